"""Hierarchical kernel learning as a method of the runner: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.blocks import gram_diagonal
from ....kernels.grams.products import distinct_kernels
from ....kernels.grams.spec import KernelSpec, check_columns
from ....kernels.graphs.kernel_graphs import KernelDag, KernelGrid, KernelList
from ....kernels.graphs.parsing import DEFAULT, graph_of
from ....storage import DataError
from ...grams.memory import SUM, WORKING_SET, sum_held
from ...grams.settings import GramSettings
from ...grams.sources import pair_bytes, row_pairs, rows_of
from ...inputs.kernels import check_rows
from ...inputs.labels import Inputs, store_inputs
from ...inputs.memory import MACHINES, refuse_pooled, vectors_held
from ...inputs.scores import Fit, TargetFit, held_out_rows, with_held_out
from ...inputs.tasks import TaskInputs, checked_task_kernel, store_tasks, with_tasks
from ...loops.active_set import EVERYWHERE, FINISHED
from ...loops.prepared import Prepared
from ...models.kernel import KernelModel
from ...models.kernel_build import build_model
from ...models.kernel_predict import spans
from ...models.task import TaskModel
from ...models.task_build import build_task_model
from ...records.context import BANK_SHARE, RunContext
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from .config import HKLConfig
from .loop import HKLLoop, HKLState, selected_nodes
from .machines import machines_of

ROWS = 4096
"""Rows read at a time for widths and traces."""

NEGLIGIBLE = 1e-10
"""A node whose function's norm is below this share of the greatest is left out of the model."""


def with_loss(config: HKLConfig, inputs: Inputs) -> HKLConfig:
    """Return the parameters with the loss decided.

    Raises
    ------
    ValueError
        A loss of classes for real targets, or the other way round.
    """
    known = ("epsilon_insensitive", "squared") if inputs.classes is None else ("hinge", "squared_hinge")
    if config.loss == "auto":
        return config.model_copy(update={"loss": known[0]})
    if config.loss not in known:
        kind = "real targets" if inputs.classes is None else "classes"
        raise ValueError(f"loss={config.loss!r}: {kind} need one of {', '.join(known)}")
    return config


def build_loop(config: HKLConfig, inputs: Inputs, ctx: RunContext, held_out: np.ndarray | None = None, dag: Any = None) -> HKLLoop:
    """Return the loop of a fit.

    Parameters
    ----------
    config, inputs
        Parameters and data, of one or many tasks.
    ctx
        Where it will run.
    held_out
        ``(n_samples,)`` mask of rows to measure accuracy on.
    dag
        A graph that is not in ``config``.

    Raises
    ------
    ValueError
        A graph, a task kernel or a loss that does not suit the data.
    gramplane.cluster.MemoryBoundExceeded
        More rows or nodes than the driver's memory allows.
    """
    config = with_loss(config, inputs)
    tasks = isinstance(inputs, TaskInputs)
    if config.task_kernel is not None and not tasks:
        raise ValueError("task_kernel needs the task of every row: fit(X, y, task), or a store ingested with --task-column")
    task_kernel = checked_task_kernel(config.task_kernel, inputs.n_tasks) if isinstance(inputs, TaskInputs) else None
    graph = resolved_graph(config, inputs.data, dag, inputs.sample_weight)
    if tasks:
        refuse_pooled(ctx.data.n_rows, ctx.driver_memory, "hierarchical-kernels", "fewer rows, or a fit without tasks")
    machines = 1 if tasks else inputs.n_machines
    fit = TargetFit(0, inputs.target, held_out) if inputs.classes is None else Fit(0, machines, inputs.target, held_out)
    loop = HKLLoop(config, graph, machines_of(config, inputs, task_kernel), (fit,))
    refuse_beyond(driver_held(loop, ctx), ctx.driver_memory, "hierarchical-kernels", "fewer rows, or a smaller max_nodes")
    return loop


HULL = Held(f"kernels of the hull as packed triangles, {BANK_SHARE:g} of driver_memory at most", "2 k n^2", "k = `max_nodes` at most")
ASKED = Held("kernels of the hull as packed triangles", "2 k n^2", "`grams: memory`")

HELD = (HULL, ASKED, SUM, WORKING_SET, MACHINES)
"""What the driver may hold."""


def driver_held(loop: HKLLoop, ctx: RunContext) -> tuple[Holding, ...]:
    """Return what the driver holds of the kernels of the largest hull, one sum of them, and T machines."""
    n, most, memory = ctx.data.n_rows, min(loop.config.max_nodes, loop.dag.size), ctx.driver_memory
    asked = loop.config.grams == "memory"
    return (
        ASKED.of(k=most, n=n) if asked else HULL.taking(min(2 * most * n * n, int(BANK_SHARE * memory))),
        sum_held(n, memory),
        vectors_held(n, len(loop.machines.problems)),
    )


def resolved_graph(config: HKLConfig, data: Any, dag: Any = None, weight: np.ndarray | None = None) -> KernelDag:
    """Return the graph with widths and multipliers that follow from the data, its kernels checked against them.

    Raises
    ------
    ValueError
        A kernel that does not suit the data.
    """
    given = config.dag if dag is None else dag
    worded = "gaussian" in (DEFAULT if given is None else given if isinstance(given, str) else "")
    if worded and not data.n_cols:
        raise DataError("the data set holds strings; name a dag of kernels that read them")
    if worded and data.n_rows < 2:
        raise DataError("n_samples = 1: widths of features need at least two rows")
    graph = graph_of(given, config.a, data.n_cols or None, spreads(data, weight) if worded else None)
    for spec in _base(graph):
        if data.n_cols:
            check_columns(spec, data.n_cols)
    check_rows(_base(graph), data)
    return _traced(graph, data) if config.normalize == "trace" else graph


def _base(graph: KernelDag) -> list[KernelSpec]:
    if isinstance(graph, KernelGrid):
        return [spec for chain in graph.chains for spec in chain]
    if isinstance(graph, KernelList):
        return distinct_kernels(graph.kernels)
    return distinct_kernels([graph.kernel(key) for key in graph.roots()])


def spreads(data: Any, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the standard deviations of the features as kernels read them, rows weighted, ``(d,)``; 0 of constant ones."""
    mass, mean, square, lo = 0.0, np.zeros(data.n_cols), np.zeros(data.n_cols), 0
    for part in _parts(data):
        block = np.asarray(part.toarray() if sp.issparse(part) else part, np.float64)
        own = np.ones(len(block)) if weight is None else weight[lo : lo + len(block)]
        lo, added = lo + len(block), float(own.sum())
        if added > 0:
            centre = own @ block / added
            shift, total = centre - mean, mass + added
            square += own @ (block - centre) ** 2 + shift**2 * (mass * added / total)
            mean, mass = mean + shift * (added / total), total
    found = np.sqrt(square / max(mass, 1e-300))
    return np.where(found > 1e-10 * np.abs(mean), found, 0.0)


def _parts(data: Any) -> Iterator[Any]:
    for lo, hi in spans(data.n_rows, ROWS):
        yield rows_of(data, lo, hi)


def _traced(graph: KernelDag, data: Any) -> KernelDag:
    """Return the graph with factors (or nodes of a list) of trace n.

    Raises
    ------
    ValueError
        A graph of another class, or a kernel that is zero on the training rows.
    """
    if not isinstance(graph, (KernelGrid, KernelList)):
        raise ValueError(f"normalize='trace': {type(graph).__name__} is neither a grid nor a list; scale its kernels there")
    specs: list[Any] = _base(graph) if isinstance(graph, KernelGrid) else list(graph.kernels)
    traces = np.zeros(len(specs))
    for part in _parts(data):
        traces += gram_diagonal(specs, part).sum(axis=1)
    if not (traces > 0).all():
        raise ValueError(f"kernel {specs[int(np.argmin(traces))]} has trace {traces.min():g} on the training rows; it cannot be scaled")
    scales = iter((data.n_rows / traces).tolist())
    if isinstance(graph, KernelList):
        return graph.scaled(list(scales))
    return graph.scaled([[next(scales) for _ in chain] for chain in graph.chains])


def prepare(config: HKLConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra`` may hold ``test_share``."""
    inputs = store_inputs(ctx, "hierarchical-kernels")
    held_out = held_out_rows(extra, inputs.target, ctx.seed, inputs.classes)
    inputs = with_held_out(inputs, held_out)
    codes = store_tasks(ctx.data)
    inputs = inputs if codes is None else with_tasks(inputs, codes, ctx.data.url)
    loop = build_loop(config, inputs, ctx, held_out)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(loop, inputs, state, ctx),
        summary=lambda state, model: summary(loop, state, model),
        tables=lambda state, model: tables(loop, state),
        plan=plan_of(loop, ctx),
    )


def plan_of(loop: HKLLoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: size of the graph, matrices of the largest hull."""
    config = loop.config
    most = min(config.max_nodes, loop.dag.size)
    specs: list[Any] = [loop.dag.kernel(loop.dag.roots()[0])] * most
    settings = GramSettings.of(ctx, specs, config.grams)
    refs = row_pairs(ctx.data, specs, settings.block)
    return {
        **settings.describe(ctx.data.n_rows, most),
        **holdings_plan(driver_held(loop, ctx)),
        "graph_nodes": countable(loop.dag.size),
        "nodes_at_most": most,
        "machines": len(loop.machines.problems),
        "learning_tasks": 1 if loop.machines.task_kernel is None else len(loop.machines.task_kernel),
        "iterations_at_most": config.max_rounds,
        "tasks_per_pass": len(refs),
        "task_bytes": int(max(pair_bytes(ref) for ref in refs)) + 8 * ctx.data.n_rows * len(loop.machines.problems),
    }


def model_of(loop: HKLLoop, inputs: Inputs, state: HKLState, ctx: RunContext) -> KernelModel | TaskModel:
    """Return the model of the least primal value found."""
    active, master, config = state.active, state.master, loop.config
    nodes, grams = active.nodes, loop.grams(active.nodes, ctx)
    kept = master.best_norms > NEGLIGIBLE * float(master.best_norms.max(initial=0.0))
    weights = np.where(kept, master.best_weights, 0.0)
    figures = {
        "objective": float(active.upper),
        "gap": _finite(active.certificate),
        "restricted_gap": float(active.upper - active.lower),
        "certificate_depth": float("nan") if active.depth is None else float(active.depth),
        "iterations": float(active.iteration),
        "rounds": float(active.rounds),
        "solves": float(master.solves),
        "converged": float(active.stop in FINISHED),
    }
    arrays = {
        "nodes": nodes.keys,
        "depths": loop.dag.depth(nodes.keys),
        "penalties": nodes.hull.d,
        "norms": master.best_norms,
        "weights": weights,
    }
    if isinstance(inputs, TaskInputs):
        table = loop.machines.task_kernel
        assert table is not None
        shares = weights[:, None, None] * table
        return build_task_model(
            config, inputs, grams.specs, grams.normalizations, shares, master.best_betas[0], master.best_biases, figures, arrays
        )
    theta = np.tile(weights, (len(loop.machines.problems), 1))
    return build_model(config, inputs, grams, theta, master.best_betas, master.best_biases, figures, arrays)


def _finite(value: float) -> float:
    return value if np.isfinite(value) else float("nan")


def countable(size: int) -> int | float | None:
    """Return a count as a JSON number that every reader takes: rounded beyond 2^53; ``None`` beyond 2^1023."""
    if size <= 1 << 53:
        return size
    return float(size) if size.bit_length() < 1024 else None


def certificate_text(active: Any) -> str:
    """Return what the certificate says, in words."""
    if active.depth is None:
        return "none: nodes next to the hull were looked at only"
    return "all nodes" if active.depth == EVERYWHERE else f"nodes of depth at most {active.depth}"


def summary(loop: HKLLoop, state: HKLState, model: KernelModel | TaskModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    active = state.active
    return {
        "objective": float(active.upper),
        "gap": _finite(active.certificate),
        "restricted_gap": float(active.upper - active.lower),
        "certified_over": certificate_text(active),
        "rounds": active.rounds,
        "solves": state.master.solves,
        "n_nodes": active.nodes.size,
        "graph_nodes": countable(loop.dag.size),
        "n_selected": int(selected_nodes(loop.dag, active, state.master, loop.config.threshold).size),
        "n_support": len(model.support_ids),
        "stop": state.stop,
        "classes": json.loads(model.classes_json),
    }


def tables(loop: HKLLoop, state: HKLState) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: kernels by weight, and what every depth holds."""
    nodes, master = state.active.nodes, state.master
    depths = loop.dag.depth(nodes.keys)
    order = np.lexsort((np.arange(nodes.size), -master.best_weights))
    total = max(float(master.best_norms.sum()), 1e-300)
    kernels = [
        {
            "kernel": str(loop.dag.kernel(nodes.keys[w])),
            "depth": int(depths[w]),
            "d": float(nodes.hull.d[w]),
            "weight": float(master.best_weights[w]),
            "norm_share": float(master.best_norms[w]) / total,
        }
        for w in order
        if master.best_weights[w] > 0
    ]
    chosen = np.isin(np.arange(nodes.size), selected_nodes(loop.dag, state.active, master, loop.config.threshold))
    by_depth = [
        {
            "depth": int(depth),
            "nodes": int((depths == depth).sum()),
            "selected": int((chosen & (depths == depth)).sum()),
            "weight": float(master.best_weights[depths == depth].sum()),
            "norm_share": float(master.best_norms[depths == depth].sum()) / total,
        }
        for depth in np.unique(depths)
    ]
    return {"kernels": kernels, "depths": by_depth}
