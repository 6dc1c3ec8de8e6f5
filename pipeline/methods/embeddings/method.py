"""Embeddings as methods: they create the problem from rows and labels, and coordinates and tables from the final state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.spectral.embeddings import EmbeddingState, initial_state
from ....storage import DataError, load_matrix
from ...core.memory import check_memory
from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...inputs.scores import held_out_rows
from ...models.model import Tables
from ...models.spectral import SpectralModel
from ...records.data_set import require
from .config import ColoredMVUConfig, EmbeddingConfig, MVEConfig, SPEConfig
from .labels import Labels, matrix_factor, neighbour_accuracy, read_labels
from .problem import Edges, EmbeddingInputs, EmbeddingProblem

SPE_REMEDY = "fewer rows, or a map by colored-mvu or mve, which hold eigenpairs in place of matrices of all rows"
MAX_EIGENVALUES = 50  # eigenvalues in a report


class Embedding(Method[EmbeddingConfig, EmbeddingProblem, EmbeddingState, SpectralModel]):
    """Embedding of rows by a kernel matrix that preserves a neighbour graph."""

    state = EmbeddingState
    models = (SpectralModel,)
    programs = "grams.eigen_blocks"
    certified_over: ClassVar[str] = "the whole problem"

    def read_inputs(
        self, config: EmbeddingConfig, resources: RunContext, extra: Mapping[str, Any]
    ) -> tuple[EmbeddingConfig, EmbeddingInputs]:
        """Return parameters and labels. ``extra`` may contain ``test_share``, the share of rows whose labels are held out, and ``graph``,
        edges.
        """
        edges = None if extra.get("graph") is None else np.asarray(extra["graph"], np.int64)
        return config, EmbeddingInputs(resources.data, store_labels(resources, extra), edges)

    def problem(self, config: EmbeddingConfig, inputs: EmbeddingInputs, resources: Resources) -> EmbeddingProblem:
        """Return the problem of a fit. Raises DataError for data without coordinates or with fewer than three rows, ValueError for an
        invalid graph or label kernel, and MemoryBoundExceeded if the matrices do not fit in the driver's memory.
        """
        data = inputs.data
        require(data, self.name, "columns")
        if data.n_rows < 3:
            raise DataError(f"n_samples={data.n_rows}: an embedding needs at least 3 rows")
        given = None if inputs.edges is None else checked_edges(inputs.edges, data.n_rows)
        problem = EmbeddingProblem(config, inputs, given, resources)
        check_memory(self.name, problem.driver_items, resources, SPE_REMEDY if isinstance(config, SPEConfig) else "fewer rows")
        return replace(problem, label_factor=label_factor(config, inputs)) if isinstance(config, ColoredMVUConfig) else problem

    def init(self, problem: EmbeddingProblem, resources: Resources) -> EmbeddingState:
        """Return the initial state."""
        setting, config = problem.setting(resources), problem.config
        size = 0 if isinstance(config, SPEConfig) else setting.graph.terms.size
        directions = setting.graph.directions if isinstance(config, MVEConfig) else None
        return initial_state(setting.graph.n, size, directions, setting.violation_cost)

    def step(self, problem: EmbeddingProblem, state: EmbeddingState, resources: Resources) -> Step[EmbeddingState]:
        new = problem.setting(resources).step(state)
        certificate = {"objective": new.upper, "gap": new.gap, "relative_gap": new.relative_gap, "decompositions": new.evaluations}
        kernel = {"rank": len(new.spectrum), "map_share": new.share(problem.config.n_components)}
        triples = {"n_triples": len(new.triples), "worst_violation": new.worst} if isinstance(problem.config, SPEConfig) else {}
        return Step(new, {**certificate, **kernel, **triples})

    def result(self, problem: EmbeddingProblem, state: EmbeddingState, resources: Resources) -> Result[SpectralModel]:
        """Return the kernel with the coordinates of each row, its certificate, and the accuracy of nearest neighbours on the map."""
        config, labels, setting = problem.config, problem.inputs.labels, problem.setting(resources)
        graph, cap, messages = setting.graph, setting.B, _graph_warnings(problem, resources)
        figures = {"objective": float(state.upper), "gap": float(state.gap), "iterations": float(state.iteration)}
        figures |= {"decompositions": float(state.evaluations), "converged": float(state.stop in ("gap", "tol"))}
        figures |= {"cap": float(cap), "cap_used": float(state.spectrum @ state.spectrum) / cap, "unit": graph.unit}
        figures |= {"map_share": state.share(config.n_components), "worst_violation": float(state.worst)}
        figures |= {"violation_cost": float(state.violation_cost)} if isinstance(config, SPEConfig) else {}
        arrays = {"scores": state.coordinates(config.n_components, graph.unit), "edges": np.column_stack([graph.rows, graph.cols])}
        n_parts, n_isolated = graph.components
        return Result(
            SpectralModel(config.model_dump_json(), problem.data.digest, graph.n, state.vectors, state.spectrum, figures, arrays),
            state.stop,
            objective=figures["objective"],
            gap=figures["gap"],
            certified_over=self.certified_over,
            figures={
                "edges": len(graph.goal),
                "graph_components": n_parts,
                "isolated_rows": n_isolated,
                "rank": len(state.spectrum),
                "map_share": figures["map_share"],
                "cap_used": figures["cap_used"],
                "classes": None if labels is None or labels.classes is None else list(labels.classes),
                **({} if labels is None else map_accuracies(labels, arrays["scores"], config.n_neighbors)),
                **({"remark": " ".join(messages)} if messages else {}),
            },
            warnings=messages,
        )

    def tables(
        self, model: SpectralModel, names: Sequence[str] | None = None, fit: tuple[EmbeddingProblem, EmbeddingState] | None = None
    ) -> Tables:
        """Return the map (with labels, if the fit is given), and the eigenvalues of the kernel with their shares of the trace."""
        points = model.arrays["scores"].tolist()
        rows = [{"row": row, **{f"component_{k}": value for k, value in enumerate(point)}} for row, point in enumerate(points)]
        labels = None if fit is None else fit[0].inputs.labels
        if labels is not None:
            rows = [{**row, **labels.describe(row["row"])} for row in rows]
        total = float(model.eigenvalues.sum()) or 1.0
        largest = enumerate(model.eigenvalues[:MAX_EIGENVALUES].tolist(), 1)
        return {"embedding": rows, "spectrum": [{"index": k, "eigenvalue": lam, "share": lam / total} for k, lam in largest]}


class ColoredMVU(Embedding):
    """Coloured maximum variance unfolding: an embedding that preserves distances of neighbours and separates labels."""

    name = "colored-mvu"
    config = ColoredMVUConfig

    def read_inputs(
        self, config: EmbeddingConfig, resources: RunContext, extra: Mapping[str, Any]
    ) -> tuple[EmbeddingConfig, EmbeddingInputs]:
        """Return parameters and labels. Raises DataError if the store has no labels and no label kernel is given."""
        config, inputs = super().read_inputs(config, resources, extra)
        given = extra.get("label_kernel")
        if given is not None:
            return config, replace(inputs, label_matrix=load_matrix(given), label_file=given["file"])
        if inputs.labels is None:
            raise DataError("there is no target; colored-mvu needs one (ingest a file that has it)", resources.data.url)
        return config, inputs


class MVE(Embedding):
    """Minimum volume embedding: preserves distances of neighbours with little variance outside its coordinates."""

    name = "mve"
    config = MVEConfig
    certified_over = "the last convex problem"


class SPE(Embedding):
    """Structure preserving embedding of a graph: neighbours are nearer than all other rows."""

    name = "spe"
    config = SPEConfig


def _graph_warnings(problem: EmbeddingProblem, resources: Resources) -> list[str]:
    """Return warnings about the graph."""
    config, graph, messages = problem.config, problem.setting(resources).graph, []
    n_parts, n_isolated = graph.components
    if n_parts > 1:
        others = f", {n_isolated} of them single rows," if n_isolated else ""
        more = f"take more than n_neighbors={config.n_neighbors}" + ("" if config.graph == "union" else ", or graph='union'")
        kind, remedy = ("neighbour", more) if problem.given is None else ("given", "add edges between them")
        parts = f"{n_parts} components{others} whose distances only the cap B limits"
        messages.append(f"the {kind} graph has {parts}: {remedy}")
    if config.n_neighbors >= graph.n and problem.given is None:
        messages.append(f"n_neighbors={config.n_neighbors} exceeds the {graph.n - 1} other rows")
    return messages


def label_factor(config: ColoredMVUConfig, inputs: EmbeddingInputs) -> np.ndarray:
    """Return the factor of the label kernel. Raises ValueError for an invalid or constant kernel, or DataError if the kernel was read from
    a file.
    """
    if inputs.label_matrix is None:
        assert inputs.labels is not None
        return inputs.labels.factor(config.label_kernel)
    try:
        return matrix_factor(inputs.label_matrix, inputs.labels, inputs.data.n_rows)
    except ValueError as error:
        if not inputs.label_file:
            raise
        raise DataError(str(error), inputs.label_file) from None


def checked_edges(edges: np.ndarray, n: int) -> Edges:
    """Return the distinct edges in ascending order, with row < column. Raises ValueError for an array without edges or of another shape,
    and for an edge that names a row outside the data or links a row with itself.
    """
    if edges.ndim != 2 or edges.shape[1:] != (2,) or not len(edges):
        raise ValueError(f"graph has shape {edges.shape}; it must be a sparse matrix, or at least one edge between rows as (m, 2)")
    low, high = edges.min(axis=1), edges.max(axis=1)
    bad = np.flatnonzero((low < 0) | (high >= n) | (low == high))
    if len(bad):
        i, j = edges[bad[0]]
        why = "links a row with itself" if i == j else f"names a row outside 0 ... {n - 1}"
        raise ValueError(f"graph: the edge ({i}, {j}) {why}")
    keys = np.unique(low * np.int64(n) + high)
    return keys // n, keys % n


def store_labels(ctx: RunContext, extra: Mapping[str, Any]) -> Labels | None:
    """Return the labels of a store with the mask of held-out labels; None if the store has no labels."""
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
    """Return the accuracy of predicting a row's class from its ``k`` nearest labelled rows on the map. The accuracy is computed for rows
    whose label the fit used and, if there are any, for held-out rows.
    """
    if labels.classes is None:
        return {}
    is_labelled = labels.codes >= 0
    seen, unseen = is_labelled & ~labels.hidden, is_labelled & labels.hidden
    accuracies = {"train_accuracy": neighbour_accuracy(points, labels.codes, seen, seen, k)}
    if unseen.any():
        accuracies["test_accuracy"] = neighbour_accuracy(points, labels.codes, seen, unseen, k)
    return accuracies
