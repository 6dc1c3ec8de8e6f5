"""From the last state of a rule ensemble's loop to its model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....kernels.bounds import sound_gap
from ....kernels.graphs.norms import DualPoint
from ....kernels.rules.propositions import ABOVE, AT_MOST, Propositions
from ...core.resources import Resources
from ...inputs.tasks import TaskInputs
from ...loops.active_set import EVERYWHERE
from .blocked_lattice import BlockedLattice
from .blocked_rules import BlockedRules
from .data import Lattice, raw_columns, renumber, rule_flags
from .lattice_problem import split_alpha
from .model import RuleModel
from .problem import RulesProblem
from .state import RuleState, SelectedRules

MAX_PROPOSITIONS, MAX_ROWS = 30, 1000
"""Up to so many propositions and rows the thesis' certificate is computed, too: beyond, it tells nothing."""


def build_rule_model(problem: RulesProblem, state: RuleState, resources: Resources) -> RuleModel:
    """Return the model of the last state: the selected rules, equal ones as one, and the active set they came from."""
    assert state.kept is not None
    config, about, data = problem.config, problem.inputs, problem.rules(resources)
    inputs = about.rows
    propositions, items, weights = _merge_rules(state.kept, config.prune)
    hull = state.hull_rules(data)
    active, active_items = renumber(hull.items())
    return RuleModel(
        params_json=config.model_dump_json(),
        classes_json=json.dumps(list(inputs.labels)),
        tasks_json=json.dumps(list(inputs.names) if isinstance(inputs, TaskInputs) else None),
        names_json=json.dumps(None if about.names is None else [str(name) for name in about.names]),
        categories_json=json.dumps({str(column): list(values) for column, values in about.categories.items()}),
        n_features=int(about.data.n_cols),
        propositions=propositions,
        **_packed_lists("rule", items),
        weights=weights,
        intercepts=-state.kept.bias,
        support=_supports(problem, propositions, items, weights, resources),
        active_propositions=data.propositions.take(active),
        **_packed_lists("active", active_items),
        active_weights=hull.weights,
        figures={**_figures(state, state.kept, config.tol), "descendant_gap": descendant_gap(data.lattice, state)},
        origins_json=json.dumps({str(column): list(origin) for column, origin in about.origins.items()}),
        first_feature=int(getattr(about.data, "first_feature", 0)),
    )


def _supports(
    problem: RulesProblem, propositions: Propositions, items: Sequence[Sequence[int]], weights: np.ndarray, resources: Resources
) -> np.ndarray:
    """Return on how many rows in use each rule holds."""
    data = problem.rules(resources)
    if isinstance(data.lattice, BlockedLattice):
        return BlockedRules.of(data.lattice, propositions, items, weights).supports()
    columns = np.unique(propositions.column[sorted({j for item in items for j in item})])
    flags = rule_flags(propositions, items, columns, raw_columns(problem.data, resources, columns), problem.data.n_rows)
    return flags[data.rows].sum(axis=0).astype(np.int64)


def _packed_lists(name: str, items: Sequence[Sequence[int]]) -> dict[str, Any]:
    starts = np.concatenate([[0], np.cumsum([len(item) for item in items])]).astype(np.int64)
    return {f"{name}_starts": starts, f"{name}_items": np.array([j for item in items for j in item], np.int64)}


def _merge_rules(rules: SelectedRules, prune: float) -> tuple[Propositions, list[list[int]], np.ndarray]:
    """Return propositions, items and weights of the rules: of two cuts on one side of a column the narrower, equal rules as one."""
    items, (positions, weights) = rules.items(), rules.above(prune)
    used, chosen = renumber([items[r] for r in positions])
    props = rules.propositions.take(used)
    totals: dict[tuple[tuple[int, int, float], ...], np.ndarray] = {}
    lists: dict[tuple[tuple[int, int, float], ...], list[int]] = {}
    for item, row in zip(chosen, weights, strict=True):
        narrow = _narrowest_cuts(props, item)
        name = tuple(sorted((int(props.column[j]), int(props.kind[j]), float(props.cut[j])) for j in narrow))
        totals[name] = totals.get(name, np.zeros(len(row))) + row
        lists.setdefault(name, sorted(narrow))
    rows = np.stack(list(totals.values())) if totals else np.zeros((0, rules.weights.shape[1]))
    return props, list(lists.values()), rows


def _narrowest_cuts(props: Propositions, item: Sequence[int]) -> list[int]:
    best: dict[tuple[int, int, float], int] = {}
    for j in item:
        column, kind, cut = int(props.column[j]), int(props.kind[j]), float(props.cut[j])
        name = (column, kind, 0.0 if kind in (AT_MOST, ABOVE) else cut)
        old = best.get(name)
        if old is None or (cut < props.cut[old] if kind == AT_MOST else cut > props.cut[old]):
            best[name] = j
    return list(best.values())


def _figures(state: RuleState, rules: SelectedRules, tol: float) -> dict[str, float]:
    active = state.active
    depth = float("nan") if active.depth is None else (float("inf") if active.depth == EVERYWHERE else float(active.depth))
    gap = active.certificate if active.depth is not None else float("nan")
    certificate = {"objective": active.upper, "gap": gap, "restricted_gap": active.upper - active.lower, "depth": depth}
    outside = {"bound": active.bound, "worst_outside": active.worst, "n_nodes": active.nodes.size, "rounds": active.rounds}
    steps = {"newton_steps": state.master.steps, "iterations": state.iteration, "refit_objective": rules.objective}
    figures = certificate | outside | steps | {"converged": active.is_certified(tol)}
    return {name: float(value) for name, value in figures.items()}


def descendant_gap(lattice: Lattice, state: RuleState) -> float:
    """Return the gap that the thesis' sums over descendants certify, on the lattice of all conjunctions; NaN for more than a few rows, and
    for rows in blocks.
    """
    active, alpha = state.active, state.master.alpha
    if isinstance(lattice, BlockedLattice) or lattice.p > MAX_PROPOSITIONS or lattice.n > MAX_ROWS or not np.isfinite(active.upper):
        return float("nan")
    used = alpha > 0
    reach = float(max(np.min(np.concatenate(lattice.cost)[used] / alpha[used]), 1.0)) if used.any() else 1.0
    # The nodes that joined last came after the multipliers.
    bound = max(active.bound, lattice.descendant_bound(active.nodes, split_alpha(lattice, state.master)))
    return float(sound_gap(active.upper - DualPoint(float(alpha.sum()), 0.0, reach).value(bound), active.upper))
