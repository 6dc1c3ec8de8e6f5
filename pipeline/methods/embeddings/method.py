"""Embeddings as methods: from rows and labels to a loop, from its state to coordinates and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.spectral.embeddings import EmbeddingState
from ....kernels.spectral.newton import MAX_NEWTON_ROWS
from ....storage import BlockStore, DataError, MemoryBlocks, load_matrix
from ...core.memory import Item, check_memory, driver_plan, total_bytes
from ...grams.eigen_plan import EigenPlan
from ...grams.neighbours import plan_distances, plan_neighbours
from ...inputs.scores import held_out_rows
from ...method import Method
from ...models.spectral import SpectralModel
from ...models.spectral_predict import SpectralPredictor
from ...records.context import RunContext
from ...records.data_set import require
from .config import ColoredMVUConfig, EmbeddingConfig, MVEConfig, SPEConfig
from .labels import Labels, matrix_factor, neighbour_accuracy, read_labels
from .loop import Edges, EmbeddingLoop, directions_of
from .rows_pass import MAX_SCATTER_COLUMNS, WHOLE_ROWS, geometry_bytes, triples_pass

N_MATRICES = 6  # matrices of all rows that a decomposition holds
SPE_REMEDY = "fewer rows, or a map by colored-mvu or mve, which hold eigenpairs in place of matrices of all rows"
MAX_EIGENVALUES = 50  # eigenvalues in a report


@dataclass(frozen=True)
class EmbeddingInputs:
    """Rows, and what is known of them."""

    data: BlockStore | MemoryBlocks
    labels: Labels | None
    edges: np.ndarray | None = None  # (m, 2) of a graph in place of that of nearest neighbours
    label_matrix: np.ndarray | None = None  # (n, n) kernel of the labels
    label_file: str = ""  # that it was read from


class Embedding(Method):
    """A map of rows by a kernel matrix that keeps a graph of their neighbours."""

    config_type: ClassVar[type[EmbeddingConfig]]
    models = {SpectralModel: SpectralPredictor()}
    programs = "grams.eigen_blocks"
    certified_over: ClassVar[str] = "the whole problem"
    """The problem that the gap is certified for."""

    config: EmbeddingConfig
    inputs: EmbeddingInputs
    loop: EmbeddingLoop

    @classmethod
    def read_inputs(cls, config: EmbeddingConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[EmbeddingConfig, EmbeddingInputs]:
        """Return parameters and labels; ``extra`` may hold ``test_share``: rows whose labels the fit does not see, and ``graph``: edges."""
        edges = extra.get("graph")
        return config, EmbeddingInputs(ctx.data, store_labels(ctx, extra), None if edges is None else np.asarray(edges, np.int64))

    @classmethod
    def build_loop(cls, config: EmbeddingConfig, inputs: EmbeddingInputs, ctx: RunContext) -> EmbeddingLoop:
        """Return the loop of a fit. Raises DataError: data without coordinates, fewer than three rows; MemoryBoundExceeded: more rows than
        the driver can hold the matrices of; ValueError: a graph or label kernel that is none.
        """
        data = inputs.data
        require(data, cls.name, "columns")
        if data.n_rows < 3:
            raise DataError(f"n_samples={data.n_rows}: an embedding needs at least 3 rows")
        given = None if inputs.edges is None else checked_edges(inputs.edges, data.n_rows)
        held = driver_items(config, inputs, ctx.driver_memory)
        check_memory(cls.name, held, ctx, SPE_REMEDY if isinstance(config, SPEConfig) else "fewer rows")
        left = ctx.driver_memory - total_bytes(_others_items(config, inputs))
        return EmbeddingLoop(config, given, cls.label_factor(config, inputs), left)

    @classmethod
    def label_factor(cls, config: EmbeddingConfig, inputs: EmbeddingInputs) -> np.ndarray | None:
        """Return the factor of the label kernel, where there is one."""
        return None

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Passes over rows, and what the driver holds. The rank of K shows on the way: the bytes of the eigensolver are the least."""
        data, given = self.ctx.data, self.loop.given
        search = plan_neighbours(data, min(self.config.n_neighbors, data.n_rows - 1)) if given is None else plan_distances(data, *given)
        held, solver = driver_plan(driver_items(self.config, self.inputs, self.ctx.driver_memory)), self._solver
        step = max(search["task_bytes"], geometry_bytes(data, directions_of(self.config)), self._triples_bytes())
        return {
            **search,
            **held,
            **({} if solver is None else solver.describe(total_bytes(_others_items(self.config, self.inputs)))),
            **({"task_bytes": step} if solver is None else solver.task_figures(step)),
            "iterations_at_most": self.config.max_iter,
            "graph": self.config.graph if given is None else "given",
        }

    @property
    def _solver(self) -> EigenPlan | None:
        solver = eigen_plan(self.config, self.inputs, self.ctx.driver_memory)
        here = self.ctx.executor.kind == "sync"
        return None if solver is None else replace(solver, here=here, factor=self.loop.target_columns, adds=True)

    def _triples_bytes(self) -> int:
        """Return the bytes of a task on triples, where K has as many eigenvalues as rows."""
        n = self.ctx.data.n_rows
        return triples_pass(n, n, 2 * n_edges(self.config, self.inputs)).memory_bound if isinstance(self.config, SPEConfig) else 0

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        rows = "neighbours" if self.loop.given is None else "distances along the graph"
        triples = ("the most violated triple of every row",) if isinstance(self.config, SPEConfig) else ()
        return (rows, "size and directions of the rows", *triples, *(() if self._solver is None else self._solver.work()))

    def _graph_figures(self) -> dict[str, int]:
        graph = self.loop.setting(self.ctx).graph
        n_parts, n_isolated = graph.components
        return {"edges": len(graph.goal), "graph_components": n_parts, "isolated_rows": n_isolated}

    def model(self, state: EmbeddingState, ctx: RunContext) -> SpectralModel:
        """Return the kernel, and the coordinates as what it says of each row."""
        setting, count = self.loop.setting(ctx), self.config.n_components
        graph, cap = setting.graph, setting.B
        figures = {"objective": float(state.upper), "gap": float(state.gap), "iterations": float(state.iteration)}
        figures |= {"decompositions": float(state.evaluations), "converged": float(state.stop in ("gap", "tol"))}
        figures |= {"cap": float(cap), "cap_used": float(state.spectrum @ state.spectrum) / cap, "unit": graph.unit}
        figures |= {"map_share": state.share(count), "worst_violation": float(state.worst)}
        figures |= {"violation_cost": setting.cost_of(state)} if isinstance(self.config, SPEConfig) else {}
        arrays = {"scores": state.coordinates(count, graph.unit), "edges": np.column_stack([graph.rows, graph.cols])}
        return SpectralModel(self.config.model_dump_json(), ctx.data.digest, graph.n, state.vectors, state.spectrum, figures, arrays)

    def warnings(self, state: EmbeddingState, model: SpectralModel, ctx: RunContext) -> list[str]:
        """Return what is doubtful about the graph."""
        return self._graph_warnings()

    def _graph_warnings(self) -> list[str]:
        config, graph, messages = self.config, self.loop.setting(self.ctx).graph, []
        n_parts, n_isolated = graph.components
        if n_parts > 1:
            others = f", {n_isolated} of them single rows," if n_isolated else ""
            more = f"take more than n_neighbors={config.n_neighbors}" + ("" if config.graph == "union" else ", or graph='union'")
            remedy = more if self.loop.given is None else "add edges between them"
            kind = "neighbour" if self.loop.given is None else "given"
            parts = f"{n_parts} components{others} which nothing but the cap holds together"
            messages.append(f"the {kind} graph has {parts}: {remedy}")
        if config.n_neighbors >= graph.n and self.loop.given is None:
            messages.append(f"n_neighbors={config.n_neighbors} exceeds the {graph.n - 1} other rows")
        return messages

    def summary(self, state: EmbeddingState, model: SpectralModel) -> dict[str, Any]:
        """Return certificate, graph, and how well the map tells the classes."""
        labels, messages, figures = self.inputs.labels, self._graph_warnings(), model.figures
        certificate = {"objective": figures["objective"], "gap": figures["gap"], "certified_over": self.certified_over}
        kernel = {"rank": len(model.eigenvalues), "map_share": figures["map_share"], "cap_used": figures["cap_used"]}
        end = {"stop": state.stop, "classes": None if labels is None or labels.classes is None else list(labels.classes)}
        accuracies = {} if labels is None else map_accuracies(labels, model.arrays["scores"], self.config.n_neighbors)
        remark = {"remark": " ".join(messages)} if messages else {}
        return {**certificate, **self._graph_figures(), **kernel, **end, **accuracies, **remark}

    def tables(self, state: EmbeddingState, model: SpectralModel) -> dict[str, list[dict[str, Any]]]:
        """Return the map with labels, and the eigenvalues of the kernel with their shares."""
        tables, labels = self.model_tables(model), self.inputs.labels
        if labels is None:
            return tables
        return {**tables, "embedding": [{**row, **labels.describe(row["row"])} for row in tables["embedding"]]}

    @classmethod
    def model_tables(cls, model: SpectralModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return the map, and the eigenvalues of the kernel with their shares."""
        points = model.arrays["scores"].tolist()
        rows = [{"row": row, **{f"component_{k}": value for k, value in enumerate(point)}} for row, point in enumerate(points)]
        total = float(model.eigenvalues.sum()) or 1.0
        largest = enumerate(model.eigenvalues[:MAX_EIGENVALUES].tolist(), 1)
        return {"embedding": rows, "spectrum": [{"index": k, "eigenvalue": lam, "share": lam / total} for k, lam in largest]}


class ColoredMVU(Embedding):
    """Coloured maximum variance unfolding: a map that keeps distances of neighbours and is ordered by labels."""

    name = "colored-mvu"
    config_type = ColoredMVUConfig

    @classmethod
    def read_inputs(cls, config: EmbeddingConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[EmbeddingConfig, EmbeddingInputs]:
        """Return parameters and labels. Raises DataError: the store has none, and no kernel of them is given."""
        config, inputs = super().read_inputs(config, ctx, extra)
        given = extra.get("label_kernel")
        if given is not None:
            return config, replace(inputs, label_matrix=load_matrix(given), label_file=given["file"])
        if inputs.labels is None:
            raise DataError("there is no target; colored-mvu needs one (ingest a file that has it)", ctx.data.url)
        return config, inputs

    @classmethod
    def label_factor(cls, config: EmbeddingConfig, inputs: EmbeddingInputs) -> np.ndarray | None:
        """Return the factor of the label kernel. Raises ValueError: a kernel that is none, or that says nothing; of a file DataError."""
        assert isinstance(config, ColoredMVUConfig)
        if inputs.label_matrix is not None:
            try:
                return matrix_factor(inputs.label_matrix, inputs.labels, inputs.data.n_rows)
            except ValueError as error:
                if not inputs.label_file:
                    raise
                raise DataError(str(error), inputs.label_file) from None
        assert inputs.labels is not None
        return inputs.labels.factor(config.label_kernel)


class MVE(Embedding):
    """Minimum volume embedding: a map that keeps distances of neighbours and spends little outside of its coordinates."""

    name = "mve"
    config_type = MVEConfig
    certified_over = "the last convex problem"


class SPE(Embedding):
    """Structure preserving embedding: a map of a graph in which no neighbour is farther than a stranger."""

    name = "spe"
    config_type = SPEConfig


def n_edges(config: EmbeddingConfig, inputs: EmbeddingInputs) -> int:
    """Return the edges of the graph, at most."""
    n = inputs.data.n_rows
    return n * min(config.n_neighbors, n - 1) if inputs.edges is None else len(inputs.edges)


def eigen_plan(config: EmbeddingConfig, inputs: EmbeddingInputs, driver_memory: int) -> EigenPlan | None:
    """Return what is known of the eigensolver; ``None`` where matrices of all rows are decomposed."""
    n = inputs.data.n_rows
    if n <= MAX_NEWTON_ROWS or isinstance(config, SPEConfig):
        return None
    left = driver_memory - total_bytes(_others_items(config, inputs))
    return EigenPlan(n, n, n + 2 * n_edges(config, inputs), eigenpairs_item, left)


def driver_items(config: EmbeddingConfig, inputs: EmbeddingInputs, driver_memory: int) -> tuple[Item, ...]:
    """Return what the driver holds: decompositions of matrices of all rows with Newton's edges, or the least eigenpairs; the graph."""
    n, solver = inputs.data.n_rows, eigen_plan(config, inputs, driver_memory)
    if solver is not None:
        return (solver.least_item(), *_others_items(config, inputs))
    matrices = "matrices of a decomposition", 8 * N_MATRICES * n * n
    along = "eigenvectors along the edges of the graph", 8 * n * (0 if isinstance(config, SPEConfig) else n_edges(config, inputs))
    return (matrices, along, *_others_items(config, inputs))


def _others_items(config: EmbeddingConfig, inputs: EmbeddingInputs) -> tuple[Item, ...]:
    """Return what the driver holds beside the decomposition."""
    n, d, edges = inputs.data.n_rows, inputs.data.n_cols, n_edges(config, inputs)
    neighbours = 0 if inputs.edges is not None else min(config.n_neighbors, n - 1)
    items = [("graph of neighbours", 200 * n * neighbours + 100 * edges)]
    if inputs.label_matrix is not None:
        items.append(("kernel of the labels that is given, and its decomposition", 32 * n * n))
    if n > WHOLE_ROWS and inputs.data.meta.kind != "sparse" and d <= MAX_SCATTER_COLUMNS:
        items.append(("scatter matrix of the rows, or directions of an iteration", 24 * d * d))
    return tuple(items)


def eigenpairs_item(n: int, columns: float, rank: float) -> Item:
    """Return what eigenpairs of n rows take, whose number shows on the way, with the eigensolver's block of columns."""
    return "eigenpairs, here one", int(n * (8 * columns + 32 * rank) + 40 * columns**2)


def checked_edges(edges: np.ndarray, n: int) -> Edges:
    """Return edges once each, rows < columns, ordered. Raises ValueError: none, another shape, a row outside the data, a loop."""
    if edges.ndim != 2 or edges.shape[1:] != (2,) or not len(edges):
        raise ValueError(f"graph: an array of shape {edges.shape}; must be a sparse matrix, or edges (m, 2) of rows i, j, at least one")
    low, high = edges.min(axis=1), edges.max(axis=1)
    bad = np.flatnonzero((low < 0) | (high >= n) | (low == high))
    if len(bad):
        i, j = edges[bad[0]]
        why = "links a row with itself" if i == j else f"names a row outside 0 ... {n - 1}"
        raise ValueError(f"graph: the edge ({i}, {j}) {why}")
    keys = np.unique(low * np.int64(n) + high)
    return keys // n, keys % n


def store_labels(ctx: RunContext, extra: Mapping[str, Any]) -> Labels | None:
    """Return the labels of a store, with the mask of those that the fit must not see; ``None`` where it has none."""
    data = ctx.data
    if not data.has_table("y"):
        return None
    target = data.target()
    if data.meta.labels is None:
        return Labels(np.zeros(0, np.int64), None, np.asarray(target, np.float64), held_out_rows(extra, target, ctx.seed, None))
    labels = read_labels(np.asarray(data.meta.labels)[target.astype(np.int64)])
    held_out = held_out_rows(extra, target.astype(np.int64), ctx.seed, tuple(data.meta.labels))
    return Labels(labels.codes, labels.classes, None, held_out)


def map_accuracies(labels: Labels, points: np.ndarray, k: int) -> dict[str, float]:
    """Return how often the ``k`` nearest labelled rows on the map have a row's class: of rows that the fit saw, and of those held out."""
    if labels.classes is None:
        return {}
    is_labelled = labels.codes >= 0
    seen, unseen = is_labelled & ~labels.hidden, is_labelled & labels.hidden
    accuracies = {"train_accuracy": neighbour_accuracy(points, labels.codes, seen, seen, k)}
    if unseen.any():
        accuracies["test_accuracy"] = neighbour_accuracy(points, labels.codes, seen, unseen, k)
    return accuracies
