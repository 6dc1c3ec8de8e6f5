"""Rule ensembles on the lattice of conjunctions (Jawanpuria, PhD thesis, 2014, section 5.4): the loop.

First the active set (:mod:`gramplane.pipeline.loops.active_set`): rules on a hull by joint re-weighting, the frontier by one walk over
packed columns, then all conjunctions by branch and bound. Then, in steps of their own, the cuts of the selected rules move to the training
values with the least loss, and the rules are fitted again on their hull.

=============  ==================================================
symbol         name
=============  ==================================================
W, d           ``RuleState.active.nodes``
f = G L'       ``RuleMaster.weights``
alpha          ``RuleMaster.alpha``
certificate    ``ActiveState.certificate``
=============  ==================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....kernels.rules.bits import MAX_UNPACKED_BYTES
from ....kernels.rules.lattice import RuleLattice
from ...core.result import Step
from ...inputs.scores import AccuracyTracker, R2Tracker, accuracy_metrics
from ...loops.active_set import ActiveRule, ActiveState, active_step, unchanged_figures
from ...records.context import RunContext
from .blocked_lattice import BlockedLattice
from .blocked_rules import BlockedRules
from .config import RuleConfig
from .data import RuleData, RuleTask, raw_columns, read_rule_data, rule_flags
from .lattice_problem import LatticeProblem
from .refinement import is_better, prune_rules, refine_rules
from .state import RuleMaster, RuleState

KEPT_SHARE = 1e-3  # conjunctions below this share of the largest weight do not go on to another C
MAX_SWEEPS = 6  # times that cuts are moved and rules fitted again


class RuleLoop:
    """The loop of a rule ensemble: one machine for two classes, one per class for more, or one per task.

    ``fits``: the classifier whose accuracy is followed, if any; ``task_codes``: ``(n_samples,)`` machine that decides a row, or ``None``
    where all machines do.
    """

    state_type = RuleState

    def __init__(
        self,
        config: RuleConfig,
        tasks: Sequence[RuleTask],
        similarity: np.ndarray,
        categorical: Sequence[int],
        n_samples: int,
        fits: Sequence[AccuracyTracker | R2Tracker] = (),
        task_codes: np.ndarray | None = None,
    ) -> None:
        self.config, self.tasks, self.similarity, self.fits = config, tuple(tasks), similarity, tuple(fits)
        self.categorical, self.n_samples, self.task_codes = tuple(categorical), n_samples, task_codes
        self.rule = ActiveRule(config.tol, config.max_rounds, config.max_rules, config.add, True, config.rest)
        self._data: RuleData | None = None

    def data(self, ctx: RunContext) -> RuleData:
        """Return propositions and lattice, made by a pass at the first call."""
        if self._data is None:
            self._data = read_rule_data(ctx, self.config, self.tasks, self.similarity, self.categorical, self.n_samples)
        return self._data

    def take_over(self, loop: RuleLoop) -> None:
        """Take over the propositions of a loop over the same rows, where they lie in memory."""
        if loop._data is not None and isinstance(loop._data.lattice, RuleLattice):
            lattice = replace(loop._data.lattice, cost=tuple(task.cost for task in self.tasks))
            self._data = replace(loop._data, lattice=lattice)

    def init(self, ctx: RunContext) -> RuleState:
        """Return the state before the first step: the empty conjunction and the best single propositions."""
        lattice = self.data(ctx).lattice
        nodes = lattice.start(self.config.add)
        weights = np.zeros((nodes.size, lattice.root.shape[1]))
        master = RuleMaster(weights, np.zeros(len(self.tasks)), np.zeros(sum(len(task.rows) for task in self.tasks)))
        return RuleState(0, ActiveState(nodes), master)

    def continued(self, fresh: RuleState, last: RuleState, ctx: RunContext) -> RuleState:
        """Return the state to begin with where a loop over the same rows ended with another C: the conjunctions with weight there, with
        their hull, and the best single propositions.
        """
        lattice, old = self.data(ctx).lattice, last.active.nodes
        sizes = np.sqrt(np.sum(last.master.weights**2, axis=1))
        used = np.flatnonzero(sizes > KEPT_SHARE * sizes.max(initial=0.0))
        nodes = fresh.active.nodes.with_hulls(old.keys[used], lattice.parents, lattice.penalties, self.config.max_rules)
        weights = np.zeros((nodes.size, last.master.weights.shape[1]))
        for key, row in zip(old.keys, last.master.weights, strict=True):
            place = nodes.place(key)
            if place >= 0:
                weights[place] = row
        master = replace(fresh.master, weights=weights, bias=last.master.bias)
        return replace(fresh, active=replace(fresh.active, nodes=nodes), master=master)

    def step(self, state: RuleState, ctx: RunContext) -> Step[RuleState]:
        """Return the state after one round of the active set, or one move of the cuts."""
        new, figures = self._grow(state, ctx) if state.active.stop is None else self._refine(state, ctx)
        if new.kept is not None:
            n_selected = len(new.kept.above(self.config.prune)[0])
        else:
            sizes = np.sqrt(np.sum(new.master.weights**2, axis=1))
            n_selected = int(np.sum(sizes > self.config.prune * sizes.max(initial=0.0)))
        accuracy = accuracy_metrics(self.fits, dict(enumerate(self.row_values(new, ctx).T))) if self.fits else {}
        return Step(new, {**figures, "newton_steps": new.master.steps, "n_selected": n_selected, **accuracy})

    def _grow(self, state: RuleState, ctx: RunContext) -> tuple[RuleState, dict[str, Any]]:
        config, data = self.config, self.data(ctx)
        active, master, figures = active_step(state.active, state.master, LatticeProblem(data.lattice, config), self.rule, ctx)
        state = RuleState(state.iteration + 1, active, master)
        if active.stop is not None:
            is_last = not (config.refine_cuts or config.refit)
            rules = prune_rules(state.hull_rules(data), data.lattice, config.prune, is_last)
            state = replace(state, kept=rules, stop=active.stop if is_last else None)
        return state, {"phase": "grow", **figures, "refit_objective": float("nan")}

    def _refine(self, state: RuleState, ctx: RunContext) -> tuple[RuleState, dict[str, Any]]:
        config, active, old = self.config, state.active, state.kept
        assert old is not None
        rules = refine_rules(old, self.data(ctx), config, ctx)
        is_last = not config.refine_cuts or rules.sweep >= MAX_SWEEPS or not is_better(old, rules, config.tol)
        if old.sweep > 0 and rules.objective > old.objective:
            rules = old
        figures = {**unchanged_figures(active), "n_nodes": rules.nodes.size, "refit_objective": rules.objective}
        state = RuleState(state.iteration + 1, active, state.master, rules, active.stop if is_last else None)
        return state, {"phase": "refine", **figures}

    def row_values(self, state: RuleState, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all machines, or of each row's task, ``(n_samples, n_machines)``."""
        values = self.decision_values(state, ctx)
        return values if self.task_codes is None else values[np.arange(len(values)), self.task_codes][:, None]

    def decision_values(self, state: RuleState, ctx: RunContext) -> np.ndarray:
        """Return ``(n_samples, n_machines)`` decision values of the rules so far."""
        data = self.data(ctx)
        rules, share = (state.hull_rules(data), 0.0) if state.kept is None else (state.kept, self.config.prune)
        items, (positions, weights) = rules.items(), rules.above(share)
        chosen = [items[r] for r in positions]
        if isinstance(data.lattice, BlockedLattice):
            return BlockedRules.of(data.lattice, rules.propositions, chosen, weights).decision_values() - rules.bias
        columns = rules.columns_above(share)
        raw = raw_columns(ctx, columns)
        flags = rule_flags(rules.propositions, chosen, columns, raw, self.n_samples)
        # Some rows at a time: as numbers they take eight times as much.
        step = max(MAX_UNPACKED_BYTES // (8 * max(len(positions), 1)), 1)
        parts = [flags[lo : lo + step].astype(np.float64) @ weights for lo in range(0, self.n_samples, step)]
        return np.concatenate(parts) - rules.bias
