"""Embeddings as methods: from rows and labels to a loop, from its state to coordinates and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.spectral.embeddings import EmbeddingState
from ....kernels.spectral.newton import MAX_NEWTON_ROWS
from ....storage import BlockStore, DataError, MemoryBlocks
from ...grams.sources import all_rows
from ...inputs.scores import held_out_rows
from ...method import Method
from ...models.spectral import SpectralModel
from ...models.spectral_predict import SpectralPredictor
from ...records.context import RunContext
from ...records.data_set import require
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from .config import ColoredMVUConfig, EmbeddingConfig, MVEConfig, SPEConfig
from .labels import Labels, neighbour_accuracy, read_labels
from .loop import EmbeddingLoop, build_graph

N_MATRICES = 6  # matrices of all rows that a decomposition holds
EDGES = f"m <= k n edges, k = `n_neighbors`; up to {MAX_NEWTON_ROWS:,} rows"
MATRICES = Held("matrices of a decomposition", f"{8 * N_MATRICES} n^2")
HELD = (MATRICES, Held("rows", "8 n d"), Held("eigenvectors along the edges of the graph", "8 m n", EDGES))
MAX_EIGENVALUES = 50  # eigenvalues in a report


@dataclass(frozen=True)
class EmbeddingInputs:
    """Rows, and what is known of them."""

    data: BlockStore | MemoryBlocks
    labels: Labels | None


class Embedding(Method):
    """A map of rows by a kernel matrix that keeps a graph of their neighbours."""

    config_type: ClassVar[type[EmbeddingConfig]]
    models = {SpectralModel: SpectralPredictor()}
    held = HELD
    programs = "grams.neighbours"
    certified_over: ClassVar[str] = "the whole problem"
    """The problem that the gap is certified for."""

    config: EmbeddingConfig
    inputs: EmbeddingInputs
    loop: EmbeddingLoop

    @classmethod
    def read_inputs(cls, config: EmbeddingConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[EmbeddingConfig, EmbeddingInputs]:
        """Return parameters and labels; ``extra`` may hold ``test_share``: rows whose labels the fit does not see."""
        return config, EmbeddingInputs(ctx.data, store_labels(ctx, extra))

    @classmethod
    def build_loop(cls, config: EmbeddingConfig, inputs: EmbeddingInputs, ctx: RunContext) -> EmbeddingLoop:
        """Return the loop of a fit. Raises DataError: data without coordinates, or without an edge between neighbours; MemoryBoundExceeded:
        more rows than the driver can hold the matrices of.
        """
        data = inputs.data
        require(data, cls.name, "columns")
        refuse_beyond(driver_holdings(config, data.n_rows, data.n_cols), ctx.driver_memory, cls.name, "fewer rows")
        return EmbeddingLoop(config, build_graph(config, all_rows(data)), inputs.labels)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Graph and cap; all of it is done by the driver."""
        held = holdings_plan(driver_holdings(self.config, self.loop.graph.n, self.ctx.data.n_cols))
        limits = {"cap": float(self.loop.B), "iterations_at_most": self.config.max_iter}
        return {**self._graph_figures(), **limits, **held, "tasks_per_pass": 0, "task_bytes": 0}

    def _graph_figures(self) -> dict[str, int]:
        n_parts, n_isolated = self.loop.graph.components()
        return {"edges": len(self.loop.graph.goal), "graph_components": n_parts, "isolated_rows": n_isolated}

    def model(self, state: EmbeddingState, ctx: RunContext) -> SpectralModel:
        """Return the kernel, and the coordinates as what it says of each row."""
        graph, cap, count = self.loop.graph, self.loop.B, self.config.n_components
        figures = {"objective": float(state.upper), "gap": float(state.gap), "iterations": float(state.iteration)}
        figures |= {"decompositions": float(state.evaluations), "converged": float(state.stop in ("gap", "tol"))}
        figures |= {"cap": float(cap), "cap_used": float(state.spectrum @ state.spectrum) / cap, "unit": graph.unit}
        figures |= {"map_share": state.share(count), "worst_violation": float(state.worst)}
        arrays = {"scores": state.coordinates(count, graph.unit), "edges": np.column_stack([graph.rows, graph.cols])}
        return SpectralModel(self.config.model_dump_json(), ctx.data.digest, graph.n, state.vectors, state.spectrum, figures, arrays)

    def warnings(self, state: EmbeddingState, model: SpectralModel, ctx: RunContext) -> list[str]:
        """Return what is doubtful about the graph."""
        return self._graph_warnings()

    def _graph_warnings(self) -> list[str]:
        config, graph, messages = self.config, self.loop.graph, []
        n_parts, n_isolated = graph.components()
        if n_parts > 1:
            others = f", {n_isolated} of them single rows," if n_isolated else ""
            remedy = f"take more than n_neighbors={config.n_neighbors}" + ("" if config.graph == "union" else ", or graph='union'")
            messages.append(f"the neighbour graph has {n_parts} components{others} which nothing but the cap holds together: {remedy}")
        if config.n_neighbors >= graph.n:
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
        points, labels = model.arrays["scores"], self.inputs.labels
        rows: list[dict[str, Any]] = []
        for row, point in enumerate(points.tolist()):
            coordinates = {f"component_{k}": value for k, value in enumerate(point)}
            rows.append({"row": row, **coordinates, **({} if labels is None else labels.describe(row))})
        total = float(model.eigenvalues.sum()) or 1.0
        largest = enumerate(model.eigenvalues[:MAX_EIGENVALUES].tolist(), 1)
        return {"embedding": rows, "spectrum": [{"index": k, "eigenvalue": lam, "share": lam / total} for k, lam in largest]}


class ColoredMVU(Embedding):
    """Coloured maximum variance unfolding: a map that keeps distances of neighbours and is ordered by labels."""

    name = "colored-mvu"
    config_type = ColoredMVUConfig

    @classmethod
    def read_inputs(cls, config: EmbeddingConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[EmbeddingConfig, EmbeddingInputs]:
        """Return parameters and labels. Raises DataError: the store has none."""
        config, inputs = super().read_inputs(config, ctx, extra)
        if inputs.labels is None:
            raise DataError("there is no target; colored-mvu needs one (ingest a file that has it)", ctx.data.url)
        return config, inputs


class MVE(Embedding):
    """Minimum volume embedding: a map that keeps distances of neighbours and spends little outside of its coordinates."""

    name = "mve"
    config_type = MVEConfig
    certified_over = "the last convex problem"


class SPE(Embedding):
    """Structure preserving embedding: a map of a graph in which no neighbour is farther than a stranger."""

    name = "spe"
    config_type = SPEConfig


def driver_holdings(config: EmbeddingConfig, n: int, d: int) -> tuple[Holding, ...]:
    """Return what the driver holds: decompositions of matrices of all rows, the rows while neighbours are searched, Newton's edges."""
    edges = n * min(config.n_neighbors, n - 1) if n <= MAX_NEWTON_ROWS else 0
    return tuple(item.of(n=n, d=d, m=edges) for item in HELD)


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
