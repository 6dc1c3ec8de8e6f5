"""Embeddings as methods of the runner: from a store to a loop, from its state to coordinates and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....kernels.spectral.embeddings import EmbeddingState
from ....kernels.spectral.newton import NEWTON_ROWS
from ....storage import DataError
from ...grams.given import GivenGrams
from ...grams.sources import all_rows
from ...inputs.scores import held_out_rows
from ...loops.prepared import Prepared
from ...models.spectral import SpectralModel
from ...records.context import RunContext
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from .config import ColoredMVUConfig, MVEConfig, SPEConfig
from .loop import UNLABELLED, EmbeddingLoop, Labels, labels_of, near_of, neighbour_accuracy, remarks_of

MATRICES = 6
"""Matrices of all rows that a decomposition holds."""

HELD = (
    Held("matrices of a decomposition", f"{8 * MATRICES} n^2"),
    Held("rows", "8 n d"),
    Held("eigenvectors along the edges of the graph", "8 m n", f"m <= k n edges, k = `n_neighbors`; up to {NEWTON_ROWS:,} rows"),
)
"""What the driver may hold."""

SHOWN = 50
"""Eigenvalues in a report."""

NAMES = {ColoredMVUConfig: "colored-mvu", MVEConfig: "mve", SPEConfig: "spe"}

Warn = Callable[[str], None]


def build_loop(config: Any, data: Any, labels: Labels | None, ctx: RunContext, warn: Warn) -> EmbeddingLoop:
    """Return the loop of a fit.

    Raises
    ------
    DataError
        Data without coordinates, or without an edge between neighbours.
    gramplane.cluster.MemoryBoundExceeded
        More rows than the driver can hold the matrices of.
    """
    if isinstance(data, GivenGrams) or data.n_cols == 0:
        raise DataError("an embedding looks for neighbours by the features of rows, so it needs them: no strings, no matrices", data.url)
    refuse_beyond(driver_held(config, data.n_rows, data.n_cols), ctx.driver_memory, NAMES[type(config)], "fewer rows")
    near = near_of(config, all_rows(data))
    loop = EmbeddingLoop(config, near, labels)
    for remark in remarks_of(config, near):
        warn(remark)
    return loop


def driver_held(config: Any, n: int, d: int) -> tuple[Holding, ...]:
    """Return what the driver holds: decompositions of matrices of all rows, the rows while neighbours are looked for, Newton's edges."""
    edges = n * min(config.n_neighbors, n - 1) if n <= NEWTON_ROWS else 0
    return tuple(item.of(n=n, d=d, m=edges) for item in HELD)


def prepare(config: Any, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra`` may hold ``test_share``: rows whose labels the fit does not see."""
    labels = store_labels(ctx, extra)
    if isinstance(config, ColoredMVUConfig) and labels is None:
        raise DataError("there is no target; colored-mvu needs one (ingest a file that has it)", ctx.data.url)
    remarks: list[str] = []
    loop = build_loop(config, ctx.data, labels, ctx, remarks.append)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, loop, state, ctx),
        summary=lambda state, model: summary(loop, labels, state, model, remarks),
        tables=lambda state, model: tables(loop, labels, model),
        plan=plan_of(config, loop, ctx),
    )


def store_labels(ctx: RunContext, extra: Mapping[str, Any]) -> Labels | None:
    """Return the labels of a store, with the mask of those that the fit must not see; ``None`` where it has none."""
    data = ctx.data
    if not data.has_table("y"):
        return None
    target = data.target()
    if data.meta.labels is None:
        return Labels(np.zeros(0, np.int64), None, np.asarray(target, np.float64), held_out_rows(extra, target, ctx.seed, None))
    found = labels_of(np.asarray(data.meta.labels)[target.astype(np.int64)])
    held = held_out_rows(extra, target.astype(np.int64), ctx.seed, tuple(data.meta.labels))
    return Labels(found.codes, found.classes, None, held)


def plan_of(config: Any, loop: EmbeddingLoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do."""
    parts, alone = loop.near.components()
    return {
        "edges": len(loop.near.goal),
        "graph_components": parts,
        "isolated_rows": alone,
        "cap": float(loop.B),
        "iterations_at_most": config.max_iter,
        **holdings_plan(driver_held(config, loop.near.n, ctx.data.n_cols)),
        "tasks_per_pass": 0,
        "task_bytes": 0,
    }


def certified_over(config: Any) -> str:
    """Return the problem that the gap is certified for."""
    return "the last convex problem" if isinstance(config, MVEConfig) else "the whole problem"


def model_of(config: Any, loop: EmbeddingLoop, state: EmbeddingState, ctx: RunContext) -> SpectralModel:
    """Return the model: the kernel, and the coordinates as what it says of each row."""
    used = float(state.spectrum @ state.spectrum) / loop.B
    figures = {
        "objective": float(state.upper),
        "gap": float(state.gap),
        "iterations": float(state.iteration),
        "decompositions": float(state.evaluations),
        "converged": float(state.stop in ("gap", "tol")),
        "cap": float(loop.B),
        "cap_used": used,
        "unit": loop.near.unit,
        "map_share": state.share(config.n_components),
        "worst_violation": float(state.worst),
    }
    arrays = {"scores": loop.coordinates(state), "edges": np.column_stack([loop.near.rows, loop.near.cols])}
    digest = getattr(ctx.data, "digest", "")
    return SpectralModel(config.model_dump_json(), digest, loop.near.n, state.vectors, state.spectrum, figures, arrays)


def summary(loop: EmbeddingLoop, labels: Labels | None, state: EmbeddingState, model: SpectralModel, remarks: list[str]) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    parts, alone = loop.near.components()
    return {
        "objective": model.figures["objective"],
        "gap": model.figures["gap"],
        "certified_over": certified_over(loop.config),
        "edges": len(loop.near.goal),
        "graph_components": parts,
        "isolated_rows": alone,
        "rank": len(model.eigenvalues),
        "map_share": model.figures["map_share"],
        "cap_used": model.figures["cap_used"],
        "stop": state.stop,
        "classes": None if labels is None or labels.classes is None else list(labels.classes),
        **({} if labels is None else accuracies(loop, labels, model.arrays["scores"])),
        **({"remark": " ".join(remarks)} if remarks else {}),
    }


def accuracies(loop: EmbeddingLoop, labels: Labels, points: np.ndarray) -> dict[str, float]:
    """Return how often the nearest labelled rows on the map tell the class: of rows that the fit saw, and of those held out."""
    if labels.classes is None:
        return {}
    labelled = labels.codes >= 0
    held = np.zeros(labels.size, dtype=bool) if labels.held_out is None else labels.held_out
    known, k = labelled & ~held, loop.config.n_neighbors
    found = {"train_accuracy": neighbour_accuracy(points, labels.codes, known, known, k)}
    if (labelled & held).any():
        found["test_accuracy"] = neighbour_accuracy(points, labels.codes, known, labelled & held, k)
    return found


def tables(loop: EmbeddingLoop, labels: Labels | None, model: SpectralModel) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: the map with labels, and the eigenvalues of the kernel with their shares."""
    names = [f"component_{k}" for k in range(model.arrays["scores"].shape[1])]
    points = [{"row": row, **dict(zip(names, point, strict=True))} for row, point in enumerate(model.arrays["scores"].tolist())]
    if labels is not None:
        points = [{**point, **_label(labels, row)} for row, point in enumerate(points)]
    total = float(model.eigenvalues.sum()) or 1.0
    spectrum = [{"index": k, "eigenvalue": lam, "share": lam / total} for k, lam in enumerate(model.eigenvalues[:SHOWN].tolist(), 1)]
    return {"embedding": points, "spectrum": spectrum}


def _label(labels: Labels, row: int) -> dict[str, Any]:
    held = {} if labels.held_out is None else {"held_out": bool(labels.held_out[row])}
    if labels.classes is None:
        assert labels.values is not None
        value = float(labels.values[row])
        return {"value": value if np.isfinite(value) else None, **held}
    code = int(labels.codes[row])
    return {"label": None if code == UNLABELLED else labels.classes[code], **held}
