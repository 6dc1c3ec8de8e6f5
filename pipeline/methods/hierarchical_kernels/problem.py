"""Hierarchical kernel learning: selection of kernels from a graph, each node together with its ancestors.

Problem (docs/theory/hierarchical_kernels.md):
``min 1/2 (sum_v d_v (sum_{w in D(v)} ||f_w||^rho)^(1/rho))^2 + C sum_i loss(y_i, sum_w f_w(x_i) + b)`` over
functions f_w of the kernels of all nodes (Jawanpuria, PhD thesis, IIT Bombay, 2014, chapter 5; rho = 2: Bach, NIPS 2008). The graph may
have too many nodes to enumerate. An active-set loop grows a hull: a set of nodes that contains all their ancestors. The gap is certified
over the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np

from ....kernels.graphs.kernel_graphs import KernelDag
from ....kernels.graphs.norms import NodeSet
from ....storage.urls import holds_store
from ...core.memory import Item, driver_plan
from ...core.resources import BANK_SHARE, Resources, ignore
from ...grams.grams import Grams
from ...grams.plans import GramPasses, sum_plan, sum_work
from ...grams.settings import GramSettings, tables_item, task_forms_item, vectors_item
from ...grams.sources import RowData, block_rows
from ...grams.weighted_sum import fits_driver, sum_item
from ...inputs.labels import AboutRows
from ...loops.active_set import ActiveRule, ActiveState, Restricted, Violations
from ...loops.protocol import OverActiveSet
from ...records.data_set import DataSet
from .config import HKLConfig
from .graph import FrontierSearch, base_kernels
from .machines import SharedMachines
from .node_pass import KERNELS_PER_PASS, node_task_bytes
from .restricted import HKLMaster, RestrictedProblem, enlarge_master

MIN_STORED_ROWS = 256  # rows of a block in a Gram store, at least: with many nodes more of its blocks would be too many objects


@dataclass(frozen=True)
class HKLState(OverActiveSet):
    """Hull, certificate, and the solution over the hull."""

    record_name: ClassVar[str] = "HKLState"
    active: ActiveState
    master: HKLMaster


class HullGrams(Grams):
    """Gram matrices of the kernels of a hull, to which nodes are added during the fit."""

    grows = True


def hull_settings(config: HKLConfig, data: DataSet, specs: Sequence[Any], resources: Resources) -> GramSettings:
    """Return the settings that decide where the matrices of a hull are kept. A store is divided into the same blocks for all hulls."""
    settings = GramSettings.of(data, resources, specs, config.grams, config.gram_store)
    if settings.policy != "store" or holds_store(str(config.gram_store)):
        return settings
    return replace(settings, block=min(data.n_rows, max(MIN_STORED_ROWS, block_rows(data.n_rows, config.max_nodes))))


@dataclass(frozen=True)
class HKLInputs(AboutRows):
    """Rows, targets, and the graph if the parameters cannot describe it; :class:`TaskInputs` adds tasks."""

    dag: KernelDag | None = None

    @property
    def data(self) -> DataSet:
        """Training data."""
        return self.rows.data


@dataclass(eq=False)
class HKLProblem:
    """Selection of kernels from a graph, for SVMs that share the selected kernels."""

    config: HKLConfig
    inputs: HKLInputs
    dag: KernelDag
    loss: str  # what "auto" is
    machines: SharedMachines
    planned: Resources  # where it was made: what decides the passes
    _hull_grams: tuple[bytes, Grams] | None = None

    def __post_init__(self) -> None:
        config = self.config
        assert config.max_visits != "auto"  # it is decided by then
        self.rule = ActiveRule(config.tol, config.max_rounds, config.max_nodes, config.n_add, True, config.rest)
        self.outside = FrontierSearch(self.dag, config.max_visits)
        self.parents, self.penalties = self.dag.parents, self.dag.penalties

    @property
    def data(self) -> RowData:
        """Data of the training rows."""
        return cast("RowData", self.inputs.data)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Size of the graph, and the matrices of the largest hull."""
        hull, machines = self._hulls[0], self.machines
        nodes = {"graph_nodes": json_count(self.dag.size), "nodes_at_most": hull.k}
        steps = {"machines": len(machines.problems), "learning_tasks": machines.n_tasks, "iterations_at_most": self.config.max_iter}
        passes = sum_plan(hull, *self._step_bytes())
        return {**hull.settings.describe(machines.n, hull.k), **driver_plan(self.items), **nodes, **steps, **passes}

    @property
    def largest_hull(self) -> int:
        """Largest number of nodes in a hull."""
        return min(self.config.max_nodes, self.dag.size)

    @property
    def items(self) -> tuple[Item, ...]:
        """Memory of the driver: Gram matrices of the largest hull, one weighted sum of them, and the SVMs."""
        n, count, memory = self.machines.n, self.largest_hull, self.planned.driver_memory
        hull: Item = "kernels of the hull as packed triangles", 2 * count * n * n
        if self.config.grams != "memory":
            here = 0 if self.config.grams in ("store", "recompute") else min(hull[1], int(BANK_SHARE * memory))
            hull = f"{hull[0]}, {BANK_SHARE:g} of driver_memory at most", here
        most = max(count, 4 * min(KERNELS_PER_PASS, self.dag.size))  # of nodes outside, forms of tasks and signs
        forms = () if fits_driver(n, memory) else (tables_item(n, count), task_forms_item(most, self.machines.n_tasks))
        return hull, sum_item(n, memory), vectors_item(n, len(self.machines.problems)), *forms

    @cached_property
    def _hulls(self) -> list[GramPasses]:
        """Passes over the matrices of the largest hull, and over those of smaller hulls with larger blocks or another place of storage."""
        root, hulls = self.dag.kernel(self.dag.roots()[0]), dict[tuple[int, str], GramPasses]()
        for count in range(self.largest_hull, 0, -1):
            specs: list[Any] = [root] * count
            settings = hull_settings(self.config, self.inputs.data, specs, self.planned)
            hulls.setdefault((settings.block, settings.policy), GramPasses(self.inputs.data, specs, settings, self.planned))
        return list(hulls.values())

    def _step_bytes(self) -> Iterator[int]:
        """Yield the memory in bytes of a step of every pass: to load or sum the matrices of a hull, for quadratic forms in its kernels, and
        for quadratic forms of nodes outside the hull.
        """
        machines = self.machines
        count, fits = len(machines.problems), fits_driver(machines.n, self.planned.driver_memory)
        vectors = count if machines.roots is None else machines.roots.shape[1]
        for hull in self._hulls:
            yield from (hull.load(), hull.sum(), hull.forms(vectors) if fits else hull.task_forms(count, machines.n_tasks))
        tasks, data = None if fits else (count, machines.n_tasks), self.data
        yield node_task_bytes(data, self.dag, len(base_kernels(self.dag)), vectors, tasks)

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        work = sum_work(self._hulls[0].settings, self.machines.n, self.planned.driver_memory)
        return *work, "forms of kernels outside the hull"

    def grams(self, nodes: NodeSet, resources: Resources) -> Grams:
        """Return the matrices of the hull's kernels. They follow from data and nodes, and are computed again when nodes are added or a run
        resumes.
        """
        name, quiet = nodes.keys.tobytes(), replace(resources, emit=ignore)
        if self._hull_grams is None or self._hull_grams[0] != name:
            data, specs = self.inputs.data, list[Any](map(self.dag.kernel, nodes.keys))
            # A hull grows: the new matrices begin with the old ones, whose memory they take over.
            known, self._hull_grams = self._hull_grams and self._hull_grams[1], None
            settings = replace(hull_settings(self.config, data, specs, resources), counts=self.inputs.rows.counts)
            self._hull_grams = (name, HullGrams(data, specs, settings, quiet, known=known))
        grams = self._hull_grams[1]
        grams.resources = quiet
        return grams

    def solve(self, nodes: NodeSet, master: HKLMaster, tol: float, resources: Resources) -> tuple[HKLMaster, Restricted]:
        """Continue to solve the restricted problem."""
        config, constant = self.config, np.array([not self.dag.kernel(key).factors for key in nodes.keys])
        settings = config.rho, config.solver, config.max_solves
        return RestrictedProblem(nodes.hull, self.grams(nodes, resources), constant, self.machines, *settings).run(master, tol)

    def frontier(self, nodes: NodeSet, master: HKLMaster, threshold: float, resources: Resources) -> Violations:
        """Search the nodes outside the hull whose parents are all inside."""
        return self.outside.frontier(nodes, self.machines.outside_forms(master.dual_betas, self.data, resources), threshold)

    def everywhere(self, nodes: NodeSet, master: HKLMaster, threshold: float, resources: Resources) -> Violations:
        """Search all nodes outside the hull, up to ``max_visits`` nodes."""
        return self.outside.exhaustive(nodes, self.machines.outside_forms(master.dual_betas, self.data, resources), threshold)

    def enlarged(self, master: HKLMaster, before: NodeSet, after: NodeSet) -> HKLMaster:
        """Return the state with entries for the new nodes."""
        return enlarge_master(master, after, self.config.rho)


def selected_nodes(active: ActiveState, master: HKLMaster, threshold: float) -> np.ndarray:
    """Return the nodes whose weight exceeds ``threshold`` times the largest weight, ascending."""
    weights = master.best_weights[: active.nodes.size]
    return np.flatnonzero(weights > threshold * max(float(weights.max(initial=0.0)), 0.0))


def json_count(size: int) -> int | float | None:
    """Return a count as a JSON number that every reader accepts: rounded beyond 2^53; None beyond 2^1023."""
    if size <= 1 << 53:
        return size
    return float(size) if size.bit_length() < 1024 else None
