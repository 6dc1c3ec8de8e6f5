"""Inputs of the group lasso from data and parameters: target, weights, groups, loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

import numpy as np

from ....kernels.features.groups import build_groups
from ....kernels.group_lasso.penalty import GroupPenalty, edge_groups, neighbours
from ....storage.errors import UserData
from ...core.resources import RunContext
from ...inputs.labels import Inputs, labels_of, resolve_loss, store_inputs
from ...inputs.scores import held_out_rows
from .config import ClassLoss, GroupLassoConfig, NumberLoss


@dataclass(frozen=True)
class Edges:
    """Edges of a graph of the features. The graph lasso uses them instead of groups."""

    pairs: object  # (m, 2) features


def chosen_groups(groups: object, edges: object, stored: object = None) -> object:
    """Return the edges if given, else the groups if given, else the groups of the store. Raises ValueError if both groups and edges are
    given.
    """
    if edges is None:
        return stored if groups is None else groups
    if groups is not None:
        raise ValueError("groups and edges are both given; give one of them (with edges, every edge is a group)")
    return Edges(edges)


def read_store(ctx: RunContext, extra: Mapping[str, Any]) -> Inputs:
    """Return target, weights and groups of a store; ``extra`` may contain ``groups`` or ``edges``, and ``test_share``. Raises DataError if
    there is no target or only a single class, and ValueError if both groups and edges are given.
    """
    inputs = store_inputs(ctx, "group-lasso")
    groups = chosen_groups(extra.get("groups"), extra.get("edges"), ctx.data.groups())
    return replace(inputs, groups=groups).without(held_out_rows(extra, inputs.target, ctx.seed, inputs.classes))


def machine_targets(inputs: Inputs) -> np.ndarray:
    """Return the targets of every problem, ``(n_machines, n_samples)``: labels -1 and 1, or real values."""
    if inputs.classes is None:
        return np.asarray(inputs.target, np.float64)[None]
    return np.stack([labels_of(inputs, k) for k in range(inputs.n_machines)])


def fit_loss(config: GroupLassoConfig, classes: Sequence[Any] | None) -> ClassLoss:
    """Return the loss of a fit. Raises ValueError for a classification loss with real targets."""
    return cast(ClassLoss, resolve_loss(config.loss, classes, get_args(NumberLoss), get_args(ClassLoss)))


def build_penalty(config: GroupLassoConfig, n_features: int, groups: UserData) -> tuple[GroupPenalty, np.ndarray]:
    """Return the penalty without its factor ``lam``, and the label of every group; without groups, every feature is its own group."""
    shares: object = config.r if config.penalty in ("sgl", "egl") else 0.0
    labels: np.ndarray = np.arange(n_features)
    if config.penalty == "l1" or groups is None:
        indptr, members = np.arange(n_features + 1), labels
    elif isinstance(groups, Edges):
        indptr, members = edge_groups(groups.pairs, n_features)
        labels = np.arange(len(indptr) - 1)
    elif (starts := neighbours(groups, n_features)) is not None:
        # Groups of neighbours are known by where they begin; the index of a million features would cost as much as a pass over rows.
        indptr, members, labels = starts, labels, np.asarray(groups)[starts[:-1]].astype(np.int64)
    else:
        index = build_groups(groups, n_features, "none")
        covered = np.diff(index.feature_indptr) > 0
        if not covered.all():
            raise ValueError(f"groups: feature {int(np.argmin(covered))} is in no group; a group lasso needs a group for every feature")
        indptr, members, labels = index.indptr, index.members, index.labels
    inner = _per_group("r", "one number, or ", shares, len(labels))
    # A group of equal weights then costs the same under every penalty.
    kappa, p = (1.0 * np.diff(indptr), np.inf) if config.penalty == "linf" else (np.sqrt(np.diff(indptr)), 2.0)
    if config.group_weight is not None:
        kappa = _per_group("group_weight", "", config.group_weight, len(labels))
    return GroupPenalty(indptr, members, kappa, inner, n_features, p), labels


def _per_group(name: str, or_else: str, given: object, n_groups: int) -> np.ndarray:
    """Return a parameter with one number for each group."""
    values = np.asarray(given, np.float64)
    if values.ndim and len(values) != n_groups:
        raise ValueError(f"{name} has {len(values)} entries; it must be {or_else}one number for each of the {n_groups} groups")
    return np.broadcast_to(values, n_groups).copy()
