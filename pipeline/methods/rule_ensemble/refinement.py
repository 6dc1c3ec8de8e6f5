"""Model from the final active set of a rule ensemble: drop unused propositions, move thresholds to better values, refit the weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ....kernels.bounds import sound_gap
from ....kernels.rules.bits import pack_bits, unpack_bits
from ....kernels.rules.lattice import RuleLattice
from ....kernels.rules.machine import dual_point, solve_rules
from ....kernels.rules.propositions import ABOVE, AT_MOST, CutMachine, Propositions, refine_cuts
from ...core.resources import Resources
from ...inputs.tasks import TaskInputs
from ...loops.active_set import EVERYWHERE
from .blocked_lattice import BlockedLattice
from .blocked_rules import BlockedRules, Rules
from .config import RuleConfig
from .data import Lattice, raw_columns, renumber, rule_flags
from .lattice_problem import MAX_REWEIGHTINGS, split_alpha
from .model import RuleModel
from .problem import RulesProblem, RuleState, SelectedRules
from .proposition_pass import dense_column

L = TypeVar("L", RuleLattice, BlockedLattice)

BIAS_SMOOTHING = 1e-2  # width of the hinge's parabola where the bias alone is fitted
ROUND_OFF = 1e-12  # share of the largest weight below which that of the empty conjunction, which the bias stands for, is round-off


def refine_rules(rules: SelectedRules, problem: RulesProblem, resources: Resources) -> SelectedRules:
    """Return the rules with moved thresholds and refitted weights, as the parameters require."""
    config, data = problem.config, problem.rules(resources)
    if isinstance(data.lattice, BlockedLattice):
        blocked, values = data.lattice, {}
        rules, lattice = restrict_propositions(rules, config, blocked.of)
    else:
        local, columns = data.lattice, rules.columns_above(config.prune)
        raw = raw_columns(problem.data, resources, columns)
        values = {int(column): dense_column(raw, k)[data.rows] for k, column in enumerate(columns)}
        rules, lattice = restrict_propositions(rules, config, lambda propositions: _with_values(local, propositions, values))
    if config.refine_cuts and np.isin(rules.propositions.kind, (AT_MOST, ABOVE)).any():
        cuts = _moved_cuts(rules, lattice, values)
        rules = replace(rules, propositions=replace(rules.propositions, cut=cuts))
        lattice = (
            lattice.of(rules.propositions) if isinstance(lattice, BlockedLattice) else _with_values(lattice, rules.propositions, values)
        )
    return refit_rules(rules, lattice, config)


def _with_values(lattice: RuleLattice, propositions: Propositions, values: dict[int, np.ndarray]) -> RuleLattice:
    """Return the lattice of the given propositions; ``values`` maps the columns that they test to the values on the rows in use."""
    flags = np.zeros((propositions.size, lattice.n), bool)
    for column, column_values in values.items():
        members = np.flatnonzero(propositions.column == column)
        if len(members):
            flags[members] = propositions.flags(members, column, column_values)
    return replace(lattice, columns=pack_bits(flags.astype(np.uint8)))


def restrict_propositions(rules: SelectedRules, config: RuleConfig, lattice_of: Callable[[Propositions], L]) -> tuple[SelectedRules, L]:
    """Return the rules in terms of the propositions that occur in them, with the lattice of these propositions."""
    items, (positions, weights) = rules.items(), rules.above(config.prune)
    used, new_items = renumber([items[r] for r in positions])
    propositions = rules.propositions.take(used)
    lattice = lattice_of(propositions)
    nodes = lattice.hull(lattice.named([[], *new_items]))
    hull_weights = np.zeros((nodes.size, rules.weights.shape[1]))
    for name, row in zip(lattice.named(new_items), weights, strict=True):
        hull_weights[nodes.place(name)] = row
    return replace(rules, propositions=propositions, nodes=nodes, weights=hull_weights), lattice


def _moved_cuts(rules: SelectedRules, lattice: Lattice, values: dict[int, np.ndarray]) -> np.ndarray:
    """Return every threshold after moving it to the training value with the smallest loss."""
    items, propositions = rules.items(), rules.propositions
    if isinstance(lattice, BlockedLattice):
        return BlockedRules(lattice, Rules(propositions, tuple(map(tuple, items)), rules.weights)).moved_cuts(rules.bias)
    machine = CutMachine(items, rules.weights, rules.bias, lattice.rows, lattice.y, lattice.cost, lattice.loss)
    flags = unpack_bits(lattice.columns, lattice.n)
    columns = [values[int(column)] for column in propositions.column]
    return refine_cuts(machine, flags, propositions.kind, propositions.cut, columns)[0]


def refit_rules(rules: SelectedRules, lattice: Lattice, config: RuleConfig) -> SelectedRules:
    """Return the rules with refitted weights, without rules of small weight. The rules are unchanged if both refitting and moving of
    thresholds are disabled.
    """
    if not config.refit and not config.refine_cuts:
        return rules
    warm = (np.asarray(rules.weights @ np.linalg.pinv(lattice.root).T, np.float64), rules.bias)
    point = solve_rules(lattice.problem(rules.nodes, config.rho), warm=warm, tol=config.tol, max_iter=MAX_REWEIGHTINGS)
    rules = replace(rules, weights=point.G @ lattice.root.T, bias=point.bias, objective=point.objective, sweep=rules.sweep + 1)
    return prune_rules(rules, lattice, config.prune)


def prune_rules(rules: SelectedRules, lattice: Lattice, share: float, is_last: bool = False) -> SelectedRules:
    """Return the rules without those whose weight is below a share of the largest weight. The intercepts of all tasks are computed again.

    The last rules, which are not fitted again, keep their intercepts if nothing is dropped, because their objective refers to them.
    """
    positions, weights = rules.above(share)
    pruned = np.zeros_like(rules.weights)
    pruned[positions] = weights
    if is_last and np.abs(rules.weights - pruned).max(initial=0.0) <= ROUND_OFF * np.abs(pruned).max(initial=0.0):
        return replace(rules, weights=pruned)
    items = rules.items()
    decisions = lattice.decisions([items[r] for r in positions], weights)
    bias, loss = np.empty(len(rules.bias)), lattice.loss.smoothed(BIAS_SMOOTHING)
    for t, (F, y, cost) in enumerate(zip(decisions, lattice.y, lattice.cost, strict=True)):
        bias[t] = loss.bias(F, y, cost, float(rules.bias[t]))
    return replace(rules, weights=pruned, bias=bias)


def is_better(old: SelectedRules, new: SelectedRules, tol: float) -> bool:
    """Return whether a sweep lowered the objective by more than ``tol``; True for the first sweep."""
    return old.sweep == 0 or new.objective < old.objective - tol * abs(old.objective)


MAX_PROPOSITIONS, MAX_ROWS = 30, 1000
"""The thesis' certificate is also computed up to this number of propositions and rows; for larger problems it is too large to be useful."""


def build_rule_model(problem: RulesProblem, state: RuleState, resources: Resources) -> RuleModel:
    """Return the model of the last state: the selected rules, with equal rules merged, and the active set from which they were selected."""
    assert state.kept is not None
    config, about, data, unit = problem.config, problem.inputs, problem.rules(resources), problem.unit
    inputs = about.rows
    propositions, items, weights = _merge_rules(state.kept, config.prune)
    hull = state.hull_rules(data)
    active, active_items = renumber(hull.items())
    return RuleModel(
        params_json=config.model_dump_json(),
        classes_json=json.dumps(None if inputs.classes is None else list(inputs.labels)),
        tasks_json=json.dumps(list(inputs.names) if isinstance(inputs, TaskInputs) else None),
        names_json=json.dumps(None if about.names is None else [str(name) for name in about.names]),
        categories_json=json.dumps({str(column): list(values) for column, values in about.categories.items()}),
        n_features=int(about.data.n_cols),
        propositions=propositions,
        **_packed_lists("rule", items),
        weights=unit.size * weights,
        intercepts=unit.values(-state.kept.bias),
        support=_supports(problem, propositions, items, weights, resources),
        active_propositions=data.propositions.take(active),
        **_packed_lists("active", active_items),
        active_weights=unit.size * hull.weights,
        figures=unit.figures({**_figures(state, state.kept, config.tol), "descendant_gap": descendant_gap(data.lattice, state)}),
        origins_json=json.dumps({str(column): list(origin) for column, origin in about.origins.items()}),
        first_feature=int(getattr(about.data, "first_feature", 0)),
    )


def _supports(
    problem: RulesProblem, propositions: Propositions, items: Sequence[Sequence[int]], weights: np.ndarray, resources: Resources
) -> np.ndarray:
    """Return the number of rows in use that satisfy each rule."""
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
    """Return propositions, items and weights of the rules. Of two thresholds on the same side of a column, the narrower is kept. Equal
    rules are merged.
    """
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
    """Return the gap that the thesis' sums over descendants certify, on the lattice of all conjunctions; NaN for many rows, and for rows in
    blocks.
    """
    active, alpha = state.active, state.master.alpha
    if isinstance(lattice, BlockedLattice) or lattice.p > MAX_PROPOSITIONS or lattice.n > MAX_ROWS or not np.isfinite(active.upper):
        return float("nan")
    point = dual_point([lattice.loss.dual_terms(alpha, np.concatenate(lattice.y), np.concatenate(lattice.cost))])
    # The nodes that joined last came after the multipliers.
    bound = max(active.bound, lattice.descendant_bound(active.nodes, split_alpha(lattice, state.master)))
    return float(sound_gap(active.upper - point.value(bound), active.upper))
