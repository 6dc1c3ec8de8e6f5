"""Hierarchical kernel learning as a method: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ....kernels.graphs.kernel_graphs import KernelDag
from ....kernels.graphs.parsing import DEFAULT_GRAPH
from ...core.memory import Item, check_memory, driver_plan
from ...core.resources import BANK_SHARE
from ...grams.plans import GramPasses, sum_plan, sum_work
from ...grams.settings import tables_item, task_forms_item
from ...grams.weighted_sum import fits_driver, sum_item
from ...inputs.labels import Inputs, resolve_loss, store_inputs
from ...inputs.memory import vectors_item
from ...inputs.scores import fit_tracker, held_out_rows
from ...inputs.tasks import TaskInputs, checked_task_kernel, store_tasks, task_fit, with_tasks
from ...loops.active_set import EVERYWHERE
from ...method import Method, heaviest_first
from ...models.kernel import KernelModel, kernel_names
from ...models.kernel_build import build_model
from ...models.kernel_predict import KernelPredictor
from ...models.task import TaskModel, machine_stack
from ...models.task_build import build_task_model
from ...models.task_predict import TaskPredictor
from ...records.context import RunContext
from ...records.data_set import DataSet
from .config import HKLConfig
from .graph import associated_features, base_kernels, resolve_graph
from .loop import HKLLoop, HKLState, hull_settings, selected_nodes
from .machines import build_machines
from .node_pass import KERNELS_PER_PASS, node_task_bytes

NEGLIGIBLE_NORM = 1e-10  # a node whose function's norm is below this share of the greatest is left out of the model
MAX_DEFAULT_FEATURES = 128  # features up to which the default graph has products of them: of every node next to the hull it keeps a name
LEAST_FEATURES, MOST_FEATURES = 8, 1000  # features that a default graph without products has
# Nodes of a hull, and visits to those next to it, as many as are usual.
USUAL_HULL, USUAL_ROUNDS = 100, 6
SEARCH_SECONDS = 40.0  # of a processor, for usual searches of the default graph
MAX_VISITS, VISIT_SECONDS = 20_000, 10.0  # max_visits="auto"
VISIT_RATE = 3e8  # pairs of rows that forms of kernels outside the hull take in a second of a processor


@dataclass(frozen=True)
class HKLInputs:
    """Rows with their target (and tasks: :class:`TaskInputs`), and a graph that parameters cannot hold."""

    rows: Inputs
    dag: KernelDag | None = None

    @property
    def data(self) -> DataSet:
        """What is learnt from."""
        return self.rows.data

    @property
    def labelled(self) -> Inputs:
        """The rows with their classes."""
        return self.rows

    @property
    def truth(self) -> np.ndarray:
        """Class of every row as its index, or its number."""
        return self.rows.target

    def without(self, held_out: np.ndarray | None) -> Self:
        """Return inputs with the weights of some rows zero."""
        return replace(self, rows=self.rows.without(held_out))


class HKL(Method):
    """Machines on kernels chosen from a graph of them, a kernel only together with its ancestors."""

    name = "hierarchical-kernels"
    config_type = HKLConfig
    models = {KernelModel: KernelPredictor(), TaskModel: TaskPredictor()}

    config: HKLConfig
    inputs: HKLInputs
    loop: HKLLoop

    @classmethod
    def read_inputs(cls, config: HKLConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[HKLConfig, HKLInputs]:
        """Return parameters, and target, weights and tasks of a store; ``extra`` may hold ``test_share``."""
        rows, tasks = store_inputs(ctx, cls.name), store_tasks(ctx.data)
        rows = rows.without(held_out_rows(extra, rows.target, ctx.seed, rows.classes))
        return config, HKLInputs(rows if tasks is None else with_tasks(rows, tasks, ctx.data.url))

    @classmethod
    def decided(cls, config: HKLConfig, inputs: HKLInputs, ctx: RunContext) -> HKLConfig:
        """Return parameters with what they leave to the data filled in: how many nodes are looked at for a certificate, and the graph: of
        many features their kernels, without products of them.
        """
        if config.max_visits == "auto":
            affordable = int(VISIT_SECONDS * VISIT_RATE / max(inputs.data.n_rows, 1) ** 2)
            config = config.model_copy(update={"max_visits": max(1, min(MAX_VISITS, affordable))})
        if config.dag is not None or inputs.dag is not None or not inputs.data.n_cols:
            return config
        return config.model_copy(update={"dag": default_graph(inputs.rows, ctx)})

    @classmethod
    def build_loop(cls, config: HKLConfig, inputs: HKLInputs, ctx: RunContext) -> HKLLoop:
        """Return the loop of a fit. Raises ValueError: a graph, a task kernel or a loss that does not suit the data; MemoryBoundExceeded:
        more rows or nodes than the driver's memory allows.
        """
        rows = inputs.rows
        loss = resolve_loss(config.loss, rows.classes, ("epsilon_insensitive", "squared"), ("hinge", "squared_hinge"))
        config = config.model_copy(update={"loss": loss})
        if config.task_kernel is not None and not isinstance(rows, TaskInputs):
            raise ValueError("task_kernel needs the task of every row: fit(X, y, task), or a store ingested with --task-column")
        task_kernel = checked_task_kernel(config.task_kernel, rows.n_tasks) if isinstance(rows, TaskInputs) else None
        graph = resolve_graph(config, rows, inputs.dag)
        fit = task_fit(rows) if isinstance(rows, TaskInputs) else fit_tracker(rows, rows.held_out)
        loop = HKLLoop(config, graph, build_machines(config, rows, task_kernel), (fit,), rows.counts)
        check_memory(cls.name, driver_items(loop, ctx), ctx, "fewer rows, or a smaller max_nodes")
        return loop

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Size of the graph, matrices of the largest hull."""
        loop, ctx, n = self.loop, self.ctx, self.ctx.data.n_rows
        hull, machines = self._hulls[0], loop.machines
        nodes = {"graph_nodes": json_count(loop.dag.size), "nodes_at_most": hull.k}
        n_tasks = 1 if machines.task_kernel is None else len(machines.task_kernel)
        steps = {"machines": len(machines.problems), "learning_tasks": n_tasks, "iterations_at_most": self.config.max_iter}
        passes = sum_plan(hull, *self._step_bytes(n_tasks))
        held = driver_plan(driver_items(loop, ctx))
        return {**hull.settings.describe(n, hull.k), **held, **nodes, **steps, **passes}

    @cached_property
    def _hulls(self) -> list[GramPasses]:
        """The passes over the matrices of the largest hull, and then of smaller ones, whose blocks are larger or lie elsewhere."""
        root, hulls = self.loop.dag.kernel(self.loop.dag.roots()[0]), dict[tuple[int, str], GramPasses]()
        for count in range(largest_hull(self.loop), 0, -1):
            specs: list[Any] = [root] * count
            settings = hull_settings(self.config, specs, self.ctx)
            hulls.setdefault((settings.block, settings.policy), GramPasses(self.ctx, specs, settings))
        return list(hulls.values())

    def _step_bytes(self, n_tasks: int) -> Iterator[int]:
        """Yield the bytes of what makes the matrices of any hull and of forms in its kernels, and of the nodes outside."""
        loop, machines = self.loop, self.loop.machines
        count, fits = len(machines.problems), fits_driver(machines.n, self.ctx.driver_memory)
        vectors = count if machines.roots is None else machines.roots.shape[1]
        for hull in self._hulls:
            yield from (hull.load(), hull.sum(), hull.forms(vectors) if fits else hull.task_forms(count, n_tasks))
        tasks = None if fits else (count, n_tasks)
        yield node_task_bytes(self.ctx.data, loop.dag, len(base_kernels(loop.dag)), vectors, tasks)

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        work = sum_work(self._hulls[0].settings, self.ctx.data.n_rows, self.ctx.driver_memory)
        return *work, "forms of kernels outside the hull"

    def model(self, state: HKLState, ctx: RunContext) -> KernelModel | TaskModel:
        """Return the model of the least primal value."""
        active, master, loop, rows, unit = state.active, state.master, self.loop, self.inputs.rows, self.loop.machines.unit
        nodes, grams = active.nodes, loop.grams(active.nodes, ctx)
        in_model = master.best_norms > NEGLIGIBLE_NORM * float(master.best_norms.max(initial=0.0))
        weights = np.where(in_model, master.best_weights, 0.0)
        depth, converged = float("nan") if active.depth is None else float(active.depth), float(active.is_certified(self.config.tol))
        steps = {"iterations": float(active.iteration), "rounds": float(active.rounds), "solves": float(master.solves)}
        figures = {**self._certificate(state), "certificate_depth": depth, **steps, "converged": converged}
        arrays = {"nodes": nodes.keys, "depths": loop.dag.depth(nodes.keys), "penalties": nodes.hull.d}
        arrays |= {"norms": unit.size * master.best_norms, "weights": weights}
        betas, biases = master.best_betas, master.best_biases
        if isinstance(rows, TaskInputs):
            assert loop.machines.task_kernel is not None
            shares = weights[:, None, None] * loop.machines.task_kernel
            # The machines of classes share their weights.
            shares = shares if len(betas) == 1 else shares[None]
            solution = machine_stack(list(betas)), biases
            return build_task_model(loop.config, rows, grams.specs, grams.normalizations, shares, *solution, figures, arrays, unit=unit)
        theta = np.tile(weights, (len(loop.machines.problems), 1))
        return build_model(loop.config, rows, grams, theta, betas, biases, figures, arrays, unit=unit)

    def decision_values(self, state: HKLState, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        return self.loop.machines.unit.values(state.master.best_decisions)

    @staticmethod
    def _certificate(state: HKLState) -> dict[str, float]:
        """Return the certificate of the machines, in their unit of a target."""
        active = state.active
        gap = active.certificate if np.isfinite(active.certificate) else float("nan")
        return {"objective": float(active.upper), "gap": gap, "restricted_gap": float(active.upper - active.lower)}

    def summary(self, state: HKLState, model: KernelModel | TaskModel) -> dict[str, Any]:
        """Return the certificate, and how many nodes and rows were selected."""
        active, depth = state.active, state.active.depth
        over = "all nodes" if depth == EVERYWHERE else f"nodes of depth at most {depth}"
        over = "none: nodes next to the hull were looked at only" if depth is None else over
        steps = {"certified_over": over, "rounds": active.rounds, "solves": state.master.solves}
        n_selected = int(selected_nodes(active, state.master, self.config.threshold).size)
        nodes = {"n_nodes": active.nodes.size, "graph_nodes": json_count(self.loop.dag.size), "n_selected": n_selected}
        rows = {"n_support": len(model.support_ids), "stop": state.stop, "classes": json.loads(model.classes_json)}
        return {**self.loop.machines.unit.figures(self._certificate(state)), **steps, **nodes, **rows}

    def tables(self, state: HKLState, model: KernelModel | TaskModel) -> dict[str, list[dict[str, Any]]]:
        """Return kernels by weight, and what every depth holds."""
        nodes, master = state.active.nodes, state.master
        weights, norms, depths = master.best_weights, master.best_norms, self.loop.dag.depth(nodes.keys)
        total = max(float(norms.sum()), 1e-300)
        selected = np.isin(np.arange(nodes.size), selected_nodes(state.active, master, self.config.threshold))
        rows: list[dict[str, Any]] = []
        for depth in np.unique(depths):
            at = depths == depth
            counts = {"depth": int(depth), "nodes": int(at.sum()), "selected": int((selected & at).sum())}
            rows.append({**counts, "weight": float(weights[at].sum()), "norm_share": float(norms[at].sum()) / total})
        return {**self.model_tables(model, self.column_names), "depths": rows}

    @classmethod
    def model_tables(cls, model: KernelModel | TaskModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return kernels by weight."""
        arrays, names = model.arrays, kernel_names(model, names)
        weights, norms = arrays["weights"], arrays["norms"]
        total, rows = max(float(norms.sum()), 1e-300), []
        for w in heaviest_first(weights):
            node = {"kernel": names[w], "depth": int(arrays["depths"][w]), "d": float(arrays["penalties"][w])}
            rows.append({**node, "weight": float(weights[w]), "norm_share": float(norms[w]) / total})
        return {"kernels": rows}


def default_graph(rows: Inputs, ctx: RunContext) -> str | None:
    """Return the graph of a fit that names none, what is left out being told: products of all features, ``None``, while searches among them
    take a bounded time; else kernels of single features, of many rows of those alone that are associated most with the target.
    """
    n, d = rows.data.n_rows, rows.data.n_cols
    visits = SEARCH_SECONDS * VISIT_RATE / max(n, 1) ** 2
    if d <= MAX_DEFAULT_FEATURES and USUAL_HULL * d <= visits:
        return None
    count = min(max(int(visits / USUAL_ROUNDS), LEAST_FEATURES), MOST_FEATURES)
    chosen = "" if count >= d else f"[{','.join(map(str, associated_features(rows, count)))}]"
    of = "all of them" if count >= d else f"the {count:,} whose values or squares correlate most with the target"
    wider = f"dag='{DEFAULT_GRAPH}' takes all products, 'subsets(gaussian[0:50])' those of some features"
    ctx.warn(f"dag: products of {d:,} features are too many to look at, so kernels of single features are taken, of {of}; {wider}")
    return f"subsets(gaussian{chosen}; depth=1)"


def largest_hull(loop: HKLLoop) -> int:
    """Return the most nodes that a hull may have."""
    return min(loop.config.max_nodes, loop.dag.size)


def driver_items(loop: HKLLoop, ctx: RunContext) -> tuple[Item, ...]:
    """Return what the driver holds of the kernels of the largest hull, one sum of them, and machines."""
    n, count, memory = ctx.data.n_rows, largest_hull(loop), ctx.driver_memory
    hull: Item = "kernels of the hull as packed triangles", 2 * count * n * n
    if loop.config.grams != "memory":
        here = 0 if loop.config.grams in ("store", "recompute") else min(hull[1], int(BANK_SHARE * memory))
        hull = f"{hull[0]}, {BANK_SHARE:g} of driver_memory at most", here
    tasks = 1 if loop.machines.task_kernel is None else len(loop.machines.task_kernel)
    most = max(count, 4 * min(KERNELS_PER_PASS, loop.dag.size))  # of nodes outside, forms of tasks and signs
    forms = () if fits_driver(n, memory) else (tables_item(n, count), task_forms_item(most, tasks))
    return hull, sum_item(n, memory), vectors_item(n, len(loop.machines.problems)), *forms


def json_count(size: int) -> int | float | None:
    """Return a count as a JSON number that every reader takes: rounded beyond 2^53; ``None`` beyond 2^1023."""
    if size <= 1 << 53:
        return size
    return float(size) if size.bit_length() < 1024 else None
