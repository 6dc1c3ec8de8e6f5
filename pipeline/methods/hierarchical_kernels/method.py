"""Hierarchical kernel learning as a method: problem from a store, model, summary and tables from the final state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....kernels.graphs.norms import NodeSet
from ....kernels.graphs.parsing import DEFAULT_GRAPH
from ...core.memory import check_memory
from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...inputs.labels import Inputs, resolve_loss, store_inputs
from ...inputs.scores import held_out_rows, scores_of
from ...inputs.tasks import TaskInputs, checked_task_kernel, store_tasks, with_tasks
from ...loops.active_set import EVERYWHERE, FINISHED, ActiveState, active_step
from ...models.build import build_model, build_task_model
from ...models.kernel import KernelModel, kernel_names
from ...models.model import Tables
from ...models.tables import heaviest_first
from ...models.task import TaskModel, machine_stack
from .config import HKLConfig
from .graph import associated_features, resolve_graph
from .machines import build_machines
from .problem import HKLInputs, HKLProblem, HKLState, json_count, selected_nodes
from .restricted import first_master

NEGLIGIBLE_NORM = 1e-10  # a node whose function's norm is below this share of the greatest is left out of the model
MAX_DEFAULT_FEATURES = 128  # features up to which the default graph has products of them: of every node next to the hull it keeps a name
LEAST_FEATURES, MOST_FEATURES = 8, 1000  # features that a default graph without products has
# Nodes of a hull, and visits to those next to it, as many as are usual.
USUAL_HULL, USUAL_ROUNDS = 100, 6
SEARCH_SECONDS = 40.0  # of a processor, for usual searches of the default graph
MAX_VISITS, VISIT_SECONDS = 20_000, 10.0  # max_visits="auto"
VISIT_RATE = 3e8  # pairs of rows that forms of kernels outside the hull take in a second of a processor

Model = KernelModel | TaskModel


class HKL(Method[HKLConfig, HKLProblem, HKLState, Model]):
    """SVMs on kernels selected from a graph, each together with its ancestors."""

    name = "hierarchical-kernels"
    config = HKLConfig
    state = HKLState
    models = (KernelModel, TaskModel)

    def read_inputs(self, config: HKLConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[HKLConfig, HKLInputs]:
        """Return the parameters, and the target, weights and tasks of a store; ``extra`` may contain ``test_share``."""
        rows, tasks = store_inputs(resources, self.name), store_tasks(resources.data)
        rows = rows.without(held_out_rows(extra, rows.target, resources.seed, rows.classes))
        return config, HKLInputs(rows if tasks is None else with_tasks(rows, tasks, resources.data.url))

    def decided(self, config: HKLConfig, inputs: HKLInputs, resources: Resources) -> HKLConfig:
        """Return the parameters with data-dependent values filled in: the number of nodes visited for a certificate, and the graph. With
        many features, the graph has single-feature kernels and no products.
        """
        if config.max_visits == "auto":
            affordable = int(VISIT_SECONDS * VISIT_RATE / max(inputs.data.n_rows, 1) ** 2)
            config = config.model_copy(update={"max_visits": max(1, min(MAX_VISITS, affordable))})
        if config.dag is not None or inputs.dag is not None or not inputs.data.n_cols:
            return config
        return config.model_copy(update={"dag": default_graph(inputs.rows, resources)})

    def problem(self, config: HKLConfig, inputs: HKLInputs, resources: Resources) -> HKLProblem:
        """Return the problem of a fit. Raises ValueError for a graph, task kernel or loss that does not suit the data, and
        MemoryBoundExceeded if rows or nodes exceed the driver's memory.
        """
        config, rows = self.decided(config, inputs, resources), inputs.rows
        loss = resolve_loss(config.loss, rows.classes, ("epsilon_insensitive", "squared"), ("hinge", "squared_hinge"))
        if config.task_kernel is not None and not isinstance(rows, TaskInputs):
            raise ValueError("task_kernel needs the task of every row: fit(X, y, task), or a store ingested with --task-column")
        task_kernel = checked_task_kernel(config.task_kernel, rows.n_tasks) if isinstance(rows, TaskInputs) else None
        graph = resolve_graph(config, rows, inputs.dag)
        problem = HKLProblem(config, inputs, graph, loss, build_machines(config, loss, rows, task_kernel), resources)
        check_memory(self.name, problem.items, resources, "fewer rows, or a smaller max_nodes")
        return problem

    def init(self, problem: HKLProblem, resources: Resources) -> HKLState:
        """Return the initial state: the sources of the graph, and the children of sources whose kernels are constant."""
        dag, at_most = problem.dag, problem.config.max_nodes
        roots = dag.roots()
        below = [dag.children(key) for key in roots if not dag.kernel(key).factors]
        # More than the hull may hold are looked at first: they must not take its places by their number.
        first = np.concatenate([roots, *below]) if len(roots) + sum(map(len, below)) <= at_most else roots
        nodes = NodeSet.empty(dag.width).with_hulls(first, dag.parents, dag.penalties, at_most)
        return HKLState(ActiveState(nodes), first_master(nodes.hull, problem.machines))

    def step(self, problem: HKLProblem, state: HKLState, resources: Resources) -> Step[HKLState]:
        """Continue to solve the problem on the hull; once it is solved, search the nodes outside and add the worst violators."""
        config, unit = problem.config, problem.machines.unit
        active, master, figures = active_step(state.active, state.master, problem, problem.rule, resources)
        if active.stop is None and active.iteration >= config.max_iter:
            active = replace(active, stop="max_iter")
        counts = {"solves": master.solves, "n_selected": selected_nodes(active, master, config.threshold).size}
        scores = scores_of(problem.inputs.rows, unit.values(master.best_decisions))
        return Step(HKLState(active, master), {**unit.figures(figures), **counts, **scores})

    def result(self, problem: HKLProblem, state: HKLState, resources: Resources) -> Result[Model]:
        """Return the model with the smallest primal value, with its certificate and the numbers of selected nodes and rows."""
        active, depth, solves = state.active, state.active.depth, state.master.solves
        over = "all nodes" if depth == EVERYWHERE else f"nodes of depth at most {depth}"
        model = self._model(problem, state, resources)
        ended = f"the fit ended ({state.stop}) before tol={problem.config.tol:g} was certified"
        return Result(
            model,
            state.stop,
            objective=model.figures["objective"],
            gap=model.figures["gap"],
            certified_over="none: nodes next to the hull were looked at only" if depth is None else over,
            figures={
                "restricted_gap": model.figures["restricted_gap"],
                "rounds": active.rounds,
                "solves": solves,
                "n_nodes": active.nodes.size,
                "graph_nodes": json_count(problem.dag.size),
                "n_selected": int(selected_nodes(active, state.master, problem.config.threshold).size),
                "n_support": len(model.support_ids),
                "classes": json.loads(model.classes_json),
            },
            unfinished="" if state.stop in FINISHED else ended,
            scores=lambda: scores_of(problem.inputs.rows, self.decision_values(problem, state, resources)),
        )

    def _model(self, problem: HKLProblem, state: HKLState, resources: Resources) -> Model:
        config, rows = problem.config.model_copy(update={"loss": problem.loss}), problem.inputs.rows
        machines, active, master = problem.machines, state.active, state.master
        nodes, grams, unit = active.nodes, problem.grams(active.nodes, resources), machines.unit
        in_model = master.best_norms > NEGLIGIBLE_NORM * float(master.best_norms.max(initial=0.0))
        weights = np.where(in_model, master.best_weights, 0.0)
        gap = active.certificate if np.isfinite(active.certificate) else float("nan")
        figures = {
            "objective": float(active.upper),
            "gap": gap,
            "restricted_gap": float(active.upper - active.lower),
            "certificate_depth": float("nan") if active.depth is None else float(active.depth),
            "iterations": float(active.iteration),
            "rounds": float(active.rounds),
            "solves": float(master.solves),
            "converged": float(active.is_certified(config.tol)),
        }
        arrays = {"nodes": nodes.keys, "depths": problem.dag.depth(nodes.keys), "penalties": nodes.hull.d}
        arrays |= {"norms": unit.size * master.best_norms, "weights": weights}
        betas, biases = master.best_betas, master.best_biases
        if isinstance(rows, TaskInputs):
            assert machines.task_kernel is not None
            shares = weights[:, None, None] * machines.task_kernel
            # The machines of classes share their weights.
            shares = shares if len(betas) == 1 else shares[None]
            solution = machine_stack(list(betas)), biases
            return build_task_model(config, rows, grams.specs, grams.normalizations, shares, *solution, figures, arrays, unit=unit)
        theta = np.tile(weights, (len(machines.problems), 1))
        return build_model(config, rows, grams, theta, betas, biases, figures, arrays, unit=unit)

    def decision_values(self, problem: HKLProblem, state: HKLState, resources: Resources) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        return problem.machines.unit.values(state.master.best_decisions)

    def tables(self, model: Model, names: Sequence[str] | None = None, fit: tuple[HKLProblem, HKLState] | None = None) -> Tables:
        """Return the kernels in descending order of weight; if the fit is given, also the number and the weight of the nodes at every
        depth.
        """
        arrays, names = model.arrays, kernel_names(model, names)
        weights, norms = arrays["weights"], arrays["norms"]
        total, rows = max(float(norms.sum()), 1e-300), []
        for w in heaviest_first(weights):
            node = {"kernel": names[w], "depth": int(arrays["depths"][w]), "d": float(arrays["penalties"][w])}
            rows.append({**node, "weight": float(weights[w]), "norm_share": float(norms[w]) / total})
        if fit is None:
            return {"kernels": rows}
        problem, state = fit
        nodes, master = state.active.nodes, state.master
        weights, norms, depths = master.best_weights, master.best_norms, problem.dag.depth(nodes.keys)
        total = max(float(norms.sum()), 1e-300)
        selected = np.isin(np.arange(nodes.size), selected_nodes(state.active, master, problem.config.threshold))
        by_depth = []
        for depth in np.unique(depths):
            at = depths == depth
            counts = {"depth": int(depth), "nodes": int(at.sum()), "selected": int((selected & at).sum())}
            by_depth.append({**counts, "weight": float(weights[at].sum()), "norm_share": float(norms[at].sum()) / total})
        return {"kernels": rows, "depths": by_depth}


def default_graph(rows: Inputs, resources: Resources) -> str | None:
    """Return the default graph, and warn about what it omits.

    The result is None (products of all features) if these products can be searched within a time limit. Otherwise the graph has
    single-feature kernels; with many rows, only kernels of the features most associated with the target.
    """
    n, d = rows.data.n_rows, rows.data.n_cols
    visits = SEARCH_SECONDS * VISIT_RATE / max(n, 1) ** 2
    if d <= MAX_DEFAULT_FEATURES and USUAL_HULL * d <= visits:
        return None
    count = min(max(int(visits / USUAL_ROUNDS), LEAST_FEATURES), MOST_FEATURES)
    chosen = "" if count >= d else f"[{','.join(map(str, associated_features(rows, count)))}]"
    of = "all features" if count >= d else f"the {count:,} whose values or squares correlate most with the target"
    wider = f"dag='{DEFAULT_GRAPH}' searches all products, 'subsets(gaussian[0:50])' products of some features"
    resources.warn(
        f"dag: products of {d:,} features are too many to search, so the default has only kernels of single features, for {of}; {wider}"
    )
    return f"subsets(gaussian{chosen}; depth=1)"
