"""After selection: rules on the propositions that occur in them, cuts moved to better training values, weights fitted again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ....kernels.rules.bits import pack_bits, unpack_bits
from ....kernels.rules.lattice import RuleLattice
from ....kernels.rules.machine import solve_rules
from ....kernels.rules.newton import bias_root
from ....kernels.rules.propositions import ABOVE, AT_MOST, CutMachine, Propositions, refine_cuts
from ...core.resources import Resources
from .blocked_lattice import BlockedLattice
from .blocked_rules import BlockedRules
from .config import RuleConfig
from .data import Lattice, raw_columns, renumber
from .lattice_problem import MAX_REWEIGHTINGS
from .problem import RulesProblem
from .proposition_pass import dense_column
from .state import SelectedRules
from .value_pass import Rules

L = TypeVar("L", RuleLattice, BlockedLattice)

BIAS_SMOOTHING = 1e-2  # width of the hinge's parabola where the bias alone is fitted
ROUND_OFF = 1e-12  # share of the largest weight below which that of the empty conjunction, which the bias stands for, is round-off


def refine_rules(rules: SelectedRules, problem: RulesProblem, resources: Resources) -> SelectedRules:
    """Return the rules with moved cuts and weights fitted again, as far as the parameters say."""
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
    """Return the lattice of some propositions; ``values`` are their columns on the rows in use."""
    flags = np.zeros((propositions.size, lattice.n), bool)
    for column, column_values in values.items():
        members = np.flatnonzero(propositions.column == column)
        if len(members):
            flags[members] = propositions.flags(members, column, column_values)
    return replace(lattice, columns=pack_bits(flags.astype(np.uint8)))


def restrict_propositions(rules: SelectedRules, config: RuleConfig, lattice_of: Callable[[Propositions], L]) -> tuple[SelectedRules, L]:
    """Return the rules on the propositions that occur in them, with the lattice of these."""
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
    """Return every cut at the training value of the least loss."""
    items, propositions = rules.items(), rules.propositions
    if isinstance(lattice, BlockedLattice):
        return BlockedRules(lattice, Rules(propositions, tuple(map(tuple, items)), rules.weights)).moved_cuts(rules.bias)
    machine = CutMachine(items, rules.weights, rules.bias, lattice.rows, lattice.y, lattice.cost)
    flags = unpack_bits(lattice.columns, lattice.n)
    columns = [values[int(column)] for column in propositions.column]
    return refine_cuts(machine, flags, propositions.kind, propositions.cut, columns)[0]


def refit_rules(rules: SelectedRules, lattice: Lattice, config: RuleConfig) -> SelectedRules:
    """Return the rules with weights fitted again, small ones dropped; unchanged where the parameters want neither refit nor moved cuts."""
    if not config.refit and not config.refine_cuts:
        return rules
    warm = (np.asarray(rules.weights @ np.linalg.pinv(lattice.root).T, np.float64), rules.bias)
    point = solve_rules(lattice.problem(rules.nodes, config.rho), warm=warm, tol=config.tol, max_iter=MAX_REWEIGHTINGS)
    rules = replace(rules, weights=point.G @ lattice.root.T, bias=point.bias, objective=point.objective, sweep=rules.sweep + 1)
    return prune_rules(rules, lattice, config.prune)


def prune_rules(rules: SelectedRules, lattice: Lattice, share: float, is_last: bool = False) -> SelectedRules:
    """Return the machine without weights below a share of the largest, the bias of every task anew.

    The last machine, which is not fitted again, keeps its biases where nothing is dropped: its objective is of these.
    """
    positions, weights = rules.above(share)
    pruned = np.zeros_like(rules.weights)
    pruned[positions] = weights
    if is_last and np.abs(rules.weights - pruned).max(initial=0.0) <= ROUND_OFF * np.abs(pruned).max(initial=0.0):
        return replace(rules, weights=pruned)
    items = rules.items()
    decisions = lattice.decisions([items[r] for r in positions], weights)
    bias = np.empty(len(rules.bias))
    for t, (F, y, cost) in enumerate(zip(decisions, lattice.y, lattice.cost, strict=True)):
        bias[t] = bias_root(F, y, cost, BIAS_SMOOTHING, float(rules.bias[t]))
    return replace(rules, weights=pruned, bias=bias)


def is_better(old: SelectedRules, new: SelectedRules, tol: float) -> bool:
    """Return whether a sweep lowered the objective by more than ``tol``; the first always counts."""
    return old.sweep == 0 or new.objective < old.objective - tol * abs(old.objective)
