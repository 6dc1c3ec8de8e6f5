"""Hierarchical kernel learning: kernels chosen from a graph of them, a node only together with its ancestors.

Problem (docs/theory/hierarchical_kernels.md):
``min 1/2 (sum_v d_v (sum_{w in D(v)} ||f_w||^rho)^(1/rho))^2 + C sum_i loss(y_i, sum_w f_w(x_i) + b)`` over
functions f_w of the kernels of all nodes (Jawanpuria, PhD thesis, IIT Bombay, 2014, chapter 5; rho = 2: Bach, NIPS 2008). The graph may be
too large to list: an active-set loop grows a hull of nodes, with the gap over the whole graph certified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.graphs.kernel_graphs import KernelDag
from ....kernels.graphs.norms import NodeSet
from ....storage.urls import holds_store
from ...core.resources import ignore
from ...core.result import Step
from ...grams.grams import Grams
from ...grams.settings import GramSettings
from ...grams.sources import block_rows
from ...inputs.scores import AccuracyTracker, R2Tracker, accuracy_metrics
from ...loops.active_set import ActiveRule, ActiveState, Restricted, Violations, active_step
from ...loops.protocol import OverActiveSet
from ...records.context import RunContext
from .config import HKLConfig
from .frontier import FrontierSearch
from .machines import SharedMachines
from .restricted import HKLMaster, RestrictedProblem, enlarge_master, first_master

MIN_STORED_ROWS = 256  # rows of a block in a Gram store, at least: with many nodes more of its blocks would be too many objects


@dataclass(frozen=True)
class HKLState(OverActiveSet):
    """State of the loop: hull and certificate, and what is known over the hull."""

    record_name: ClassVar[str] = "HKLState"
    active: ActiveState
    master: HKLMaster


class HullGrams(Grams):
    """The matrices of a hull, which grows."""

    grows = True


def hull_settings(config: HKLConfig, specs: Sequence[Any], ctx: RunContext) -> GramSettings:
    """Return where the matrices of a hull lie. A store is cut for all hulls alike."""
    settings = GramSettings.of(ctx, specs, config.grams, config.gram_store)
    if settings.policy != "store" or holds_store(str(config.gram_store)):
        return settings
    return replace(settings, block=min(ctx.data.n_rows, max(MIN_STORED_ROWS, block_rows(ctx.data.n_rows, config.max_nodes))))


class HKLLoop:
    """The active-set loop over a graph of kernels, for machines that share them; ``fits`` follow accuracy, or R2; ``counts``: how often
    rows count, ``(n,)``.
    """

    state_type = HKLState

    def __init__(
        self,
        config: HKLConfig,
        dag: KernelDag,
        machines: SharedMachines,
        fits: Sequence[AccuracyTracker | R2Tracker] = (),
        counts: np.ndarray | None = None,
    ) -> None:
        self.config, self.dag, self.machines, self.fits, self.counts = config, dag, machines, tuple(fits), counts
        self.rule = ActiveRule(config.tol, config.max_rounds, config.max_nodes, config.n_add, True, config.rest)
        assert config.max_visits != "auto"  # it is decided by then
        self.outside = FrontierSearch(dag, config.max_visits)
        self._hull_grams: tuple[bytes, Grams] | None = None

    def grams(self, nodes: NodeSet, ctx: RunContext) -> Grams:
        """Return the matrices of the hull's kernels: a function of data and nodes, made anew when nodes joined, or after a resume."""
        name = nodes.keys.tobytes()
        if self._hull_grams is None or self._hull_grams[0] != name:
            specs: list[Any] = [self.dag.kernel(key) for key in nodes.keys]
            # A hull grows: the new matrices begin with the old ones, whose memory they take over.
            known, self._hull_grams = self._hull_grams and self._hull_grams[1], None
            settings = replace(hull_settings(self.config, specs, ctx), counts=self.counts)
            self._hull_grams = (name, HullGrams(replace(ctx, emit=ignore), specs, settings, known=known))
        grams = self._hull_grams[1]
        grams.ctx = replace(ctx, emit=ignore)
        return grams

    def init(self, ctx: RunContext) -> HKLState:
        """Return the sources, and where their kernels are constant their children: nothing is known of them before a solve."""
        roots = self.dag.roots()
        constant = [key for key in roots if not self.dag.kernel(key).factors]
        below = [self.dag.children(key) for key in constant]
        # More than the hull may hold are looked at first: they must not take its places by their number.
        first = np.concatenate([roots, *below]) if len(roots) + sum(map(len, below)) <= self.config.max_nodes else roots
        nodes = NodeSet.empty(self.dag.width).with_hulls(first, self.dag.parents, self.dag.penalties, self.config.max_nodes)
        return HKLState(ActiveState(nodes), first_master(nodes.hull, self.machines))

    def step(self, state: HKLState, ctx: RunContext) -> Step[HKLState]:
        """Solve on over the hull; when that is done, look at the nodes outside and add the worst."""
        active, master, figures = active_step(state.active, state.master, self, self.rule, ctx)
        if active.stop is None and active.iteration >= self.config.max_iter:
            active = replace(active, stop="max_iter")
        unit = self.machines.unit
        figures = unit.figures(figures) | {
            "solves": master.solves,
            "n_selected": selected_nodes(active, master, self.config.threshold).size,
        }
        return Step(HKLState(active, master), figures | accuracy_metrics(self.fits, dict(enumerate(unit.values(master.best_decisions)))))

    def solve(self, nodes: NodeSet, master: HKLMaster, tol: float, ctx: RunContext) -> tuple[HKLMaster, Restricted]:
        """Work on the restricted problem."""
        config, constant = self.config, np.array([not self.dag.kernel(key).factors for key in nodes.keys])
        settings = config.rho, config.solver, config.max_solves
        return RestrictedProblem(nodes.hull, self.grams(nodes, ctx), constant, self.machines, *settings).run(master, tol)

    def frontier(self, nodes: NodeSet, master: HKLMaster, threshold: float, ctx: RunContext) -> Violations:
        """Look at the nodes next to the hull."""
        return self.outside.frontier(nodes, self.machines.outside_forms(master.dual_betas, ctx), threshold)

    def everywhere(self, nodes: NodeSet, master: HKLMaster, threshold: float, ctx: RunContext) -> Violations:
        """Look at all nodes outside, as deep as ``max_visits`` goes."""
        return self.outside.exhaustive(nodes, self.machines.outside_forms(master.dual_betas, ctx), threshold)

    def enlarged(self, master: HKLMaster, before: NodeSet, after: NodeSet) -> HKLMaster:
        """Return the record with entries for new nodes."""
        return enlarge_master(master, after, self.config.rho)

    def parents(self, key: np.ndarray) -> np.ndarray:
        """Return the parents of a node."""
        return self.dag.parents(key)

    def penalties(self, keys: np.ndarray) -> np.ndarray:
        """Return d of nodes."""
        return self.dag.penalties(keys)


def selected_nodes(active: ActiveState, master: HKLMaster, threshold: float) -> np.ndarray:
    """Return the nodes whose weight is above ``threshold`` times the largest, ascending."""
    weights = master.best_weights[: active.nodes.size]
    return np.flatnonzero(weights > threshold * max(float(weights.max(initial=0.0)), 0.0))
