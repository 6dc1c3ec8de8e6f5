"""From data and parameters to an FGM loop, and from its last state to a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....kernels.features import expansions
from ....kernels.features.groups import GroupIndex, build_groups
from ....kernels.mixed_norm import SOLVERS, GroupProblem
from ....storage import DataError
from ...inputs.labels import Inputs, labels_of, refuse_idle_classes, row_costs
from ...passes.blocks import scale_of
from ...passes.scaling import scaled_columns
from ...records.context import RunContext
from .atoms import ExpansionAtoms, GroupAtoms, LinearAtoms, feature_ranges
from .config import FGMConfig
from .design import Design
from .loop import CutAtoms, FGMLoop, FGMState
from .machine import Machine
from .model import FGMModel, union_of_weights
from .pairs import PairAtoms

REFIT_C = 20.0
"""C of the de-biasing refit, as in the paper's experiments."""

Warn = Callable[[str], None]


def build_loop(config: FGMConfig, inputs: Inputs, warn: Warn) -> FGMLoop:
    """Return the loop of a fit: one machine for two classes, else one per class."""
    atoms, available = build_atoms(config, inputs)
    config = _clipped(config, available, warn)
    return FGMLoop(atoms, build_machines(config, inputs), notes=map_notes(config, inputs.data))


def _clipped(config: FGMConfig, available: int, warn: Warn) -> FGMConfig:
    if available >= config.B:
        return config
    warn(f"B={config.B} exceeds the {available} features (groups, products) there are to choose from; at most B={available} can be used")
    return config.model_copy(update={"B": available})


def build_atoms(config: FGMConfig, inputs: Inputs) -> tuple[CutAtoms, int]:
    """Return the candidates and how many there are."""
    centred = config.fit_intercept
    d = int(inputs.data.n_cols)
    if inputs.groups is not None:
        if config.feature_map is not None:
            raise ValueError(f"groups cannot be combined with feature_map={config.feature_map!r}: choose one of them")
        weight = config.group_weight
        index = build_groups(inputs.groups, d, np.asarray(weight) if isinstance(weight, list) else weight)
        return GroupAtoms(index=index, centred=centred), index.n_groups
    if config.group_weight is not None:
        raise ValueError(f"group_weight={config.group_weight!r} needs groups, and there are none")
    if config.feature_map == "poly2":
        return PairAtoms(config.gamma, config.coef0, centred=centred), (d + 1) * (d + 2) // 2 - 1
    if config.feature_map is not None:
        return ExpansionAtoms(expansion=expansion_of(config, inputs.data), centred=centred), d
    return LinearAtoms(centred=centred), d


def expansion_of(config: FGMConfig, data: Any) -> expansions.Expansion:
    """Return the additive map of the parameters.

    Raises
    ------
    DataError
        A negative feature under the intersection kernel.
    ValueError
        Rows scaled to unit norm.
    """
    if data.scale.kind == "unit-row":
        raise ValueError(f"feature_map={config.feature_map!r} cannot be used on rows scaled to unit norm; ingest with another scale")
    name = "hik" if config.feature_map == "hik" else "additive_gaussian"
    if name == "hik":
        _refuse_negative(data, centred=config.fit_intercept)
    return expansions.Expansion(name, gamma=config.gamma, n_bins=config.n_bins)


def _refuse_negative(data: Any, *, centred: bool) -> None:
    low, _ = feature_ranges(data, np.arange(data.n_cols), centred=centred)
    if low.size and low.min() < 0:
        j = int(np.argmin(low))
        raise DataError(f"feature_map='hik' needs non-negative features; column {j} has the minimum {low[j]!r}")


def map_notes(config: FGMConfig, data: Any) -> list[str]:
    """Return what to say of ranges on which the additive Gaussian map is far from its kernel (docs/methods.md, "Additive maps")."""
    if config.feature_map != "additive_gaussian":
        return []
    low, high = feature_ranges(data, np.arange(data.n_cols), centred=config.fit_intercept)
    extent = high - low
    wide = np.flatnonzero(config.gamma * extent**2 > expansions.GAUSSIAN_REACH)
    if not len(wide):
        return []
    j = int(wide[np.argmax(extent[wide])])
    names, worst = data.feature_names(), float(extent[j])
    error = float(expansions.gaussian_error_bound(config.gamma, np.array(worst)))
    # What is shown must suffice: rounding to three digits may add half a percent.
    enough = 0.995 * expansions.GAUSSIAN_REACH / worst**2
    return [
        f"feature_map='additive_gaussian' is inaccurate on {len(wide)} of {data.n_cols} features: gamma * range^2 should be at most "
        f"{expansions.GAUSSIAN_REACH:g} (kernel error 1e-3); feature {j if names is None else names[j]} has range {worst:.3g} and "
        f"gamma * range^2 = {config.gamma * worst**2:.3g} (error up to {min(error, 1.0):.1g}). Use gamma <= "
        f"{enough:.3g}, or scale the features (ingest --scale unit-column)"
    ]


def build_machines(config: FGMConfig, inputs: Inputs) -> list[Machine]:
    """Return one binary machine per class (one for two classes), with their loss weights."""
    cost = row_costs(config, inputs)
    refuse_idle_classes(inputs.labels, inputs.target, cost)
    return [Machine(labels_of(inputs, machine), cost, config) for machine in range(inputs.n_machines)]


# -- from a state to a model -----------------------------------------------------------------------------------------------


def build_model(config: FGMConfig, inputs: Inputs, loop: FGMLoop, state: FGMState, refitted: Sequence[Any] | None = None) -> FGMModel:
    """Return the model of the last round (or of the refit)."""
    parts = refitted if refitted is not None else [machine.weights() for machine in _with_bias(loop, state)]
    coordinates, weights, intercepts = union_of_weights(parts)
    kind, centred = config.feature_map or loop.atoms.kind, loop.atoms.centred
    atoms_used = [machine.selected() for machine in state.machines]
    filled = [ids for ids in atoms_used if len(ids)]
    features = loop.atoms.features(np.unique(np.concatenate(filled), axis=0)) if filled else np.zeros(0, np.int64)
    names = inputs.data.feature_names()
    return FGMModel(
        kind=kind,
        params_json=config.model_dump_json(),
        classes_json=json.dumps(list(inputs.labels)),
        n_features=int(inputs.data.n_cols),
        features=features,
        scale=scale_of(inputs.data, features, centred=centred),
        ranges=np.stack(feature_ranges(inputs.data, features, centred=centred)) if loop.atoms.kind == "expansion" else np.zeros((2, 0)),
        coordinates=coordinates,
        weights=weights,
        intercepts=intercepts,
        machines=state.machines,
        names=None if names is None else tuple(names[j] for j in features),
        row_scaled=inputs.data.scale.kind == "unit-row",
    )


def _with_bias(loop: FGMLoop, state: FGMState) -> list[Any]:
    return [
        _Constant(spec.at_zero()[1]) if not machine.rounds else machine for spec, machine in zip(loop.machines, state.machines, strict=True)
    ]


@dataclass(frozen=True)
class _Constant:
    """A machine that found no signal: the best constant."""

    bias: float

    def weights(self) -> tuple[np.ndarray, np.ndarray, float]:
        return np.zeros(0, np.int64), np.zeros(0), self.bias


def refit(loop: FGMLoop, state: FGMState, ctx: RunContext) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Refit every machine on its selected atoms with a plain ridge penalty and C = 20 (Tan, Tsang and Wang's de-biasing)."""
    return [_refit_one(loop.atoms, spec, machine.selected(), ctx) for spec, machine in zip(loop.machines, state.machines, strict=True)]


def _refit_one(atoms: CutAtoms, spec: Machine, selected: np.ndarray, ctx: RunContext) -> tuple[np.ndarray, np.ndarray, float]:
    if not len(selected):
        return np.zeros(0, np.int64), np.zeros(0), spec.at_zero()[1]
    features = atoms.features(selected)
    coordinates, factors = atoms.coordinates(selected)
    design = Design(ctx.data.n_rows, len(factors))
    design.append(atoms.build(ctx.data, scaled_columns(ctx, features, centred=atoms.centred), features, selected))
    config = replace_cost(spec)
    problem = GroupProblem(
        design.rows(config.y, config.cost, config.config.loss),
        np.array([0, len(factors)], np.int64),
        config.config.loss,
        config.config.fit_intercept,
    )
    solution = SOLVERS["newton"](problem, warm=None, tol=config.config.inner_tol, max_iter=None)
    return coordinates, factors * solution.omega, float(solution.bias)


def replace_cost(spec: Machine) -> Machine:
    """Return the machine with C = 20 in place of its own C."""
    return replace(spec, cost=spec.cost * (REFIT_C / spec.config.C))


__all__ = ["GroupIndex", "Inputs", "build_atoms", "build_loop", "build_machines", "build_model", "refit", "row_costs"]
