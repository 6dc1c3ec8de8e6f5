"""The kernel selection path as a method of the runner, and machines at its points."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.normalization import Normalization
from ....storage import DataError
from ...grams.given import GivenGrams
from ...inputs.labels import Inputs, dual_problems, store_inputs
from ...inputs.memory import MACHINES, vectors_held
from ...inputs.scores import held_out_rows, with_held_out
from ...loops.prepared import Prepared
from ...models.kernel import FeatureKernels, KernelModel
from ...models.kernel_predict import ROWS, spans
from ...passes.blocks import column_tasks, scale_of, task_bytes
from ...passes.scaling import scaled
from ...records.context import RunContext
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from .config import KTAPathConfig
from .kernel_sum_pass import MATRIX_COPIES, CellSums, fits
from .loop import BATCH_MACHINES, WEIGHTS, KTALoop, KTAState, kernels_of, path_junctures, weights_of
from .machines import CELL_SHARE, FEW, TABLE_COPIES, PathPoint, PathTrainer

SHOWN = 1000
"""Kernels in the report's table."""

FOLLOWED = 20
"""Kernels whose weights a report follows along p."""


def prepare(config: KTAPathConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra`` may hold ``test_share``.

    Raises
    ------
    DataError
        No classes.
    ValueError
        Matrices, which a block store does not hold.
    gramplane.cluster.MemoryBoundExceeded
        More rows or features than the driver's memory allows.
    """
    if config.kernel == "precomputed":
        raise ValueError("kernel='precomputed' needs matrices; a run on a block store takes 'rbf' or 'linear'")
    inputs = store_inputs(ctx, "kta-path")
    if inputs.classes is None:
        raise DataError("the target is real-valued; kta-path needs classes", ctx.data.url)
    held_out = held_out_rows(extra, inputs.target, ctx.seed, inputs.classes)
    inputs = with_held_out(inputs, held_out)
    loop = build_loop(config, inputs, held_out)
    # At least one point's weights; how many more there are shows with the alignments.
    refuse_beyond(driver_held(loop, ctx, 1), ctx.driver_memory, "kta-path", "fewer rows or features")
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, inputs, state, ctx),
        summary=summary,
        tables=lambda state, model: tables(state, model, ctx.data.feature_names()),
        plan=plan_of(loop, ctx),
    )


def build_loop(config: KTAPathConfig, inputs: Inputs, held_out: np.ndarray | None = None) -> KTALoop:
    """Return the loop of a fit.

    Raises
    ------
    DataError
        A class without rows of positive weight.
    """
    dual_problems(config, inputs)
    return KTALoop(config, inputs, held_out)


FEATURES = Held("alignments, traces, widths and weights of the features", "80 d")
MATRIX = Held("sums of kernels, the matrix, and the solver's copy of it", f"{MATRIX_COPIES} n^2", "where that is within L; else passes")
CELLS = Held(
    "matrices of c cells, which share the kernels of many points", "8 c n^2", f"c <= d, within {CELL_SHARE:g} L; more than {FEW} machines"
)
LINEAR_CELLS = Held(CELLS.what, "16 c n^2", f"{CELLS.when}, of linear kernels")
TABLE = Held(
    "weights of kernels at the machines, while cells are cut",
    f"{TABLE_COPIES} d M",
    f"M machines, {BATCH_MACHINES} at most, within {CELL_SHARE:g} L",
)

HELD = (FEATURES, WEIGHTS, MACHINES, MATRIX, CELLS, LINEAR_CELLS, TABLE)
"""What the driver may hold."""


def driver_held(loop: KTALoop, ctx: RunContext, points: int) -> tuple[Holding, ...]:
    """Return what the driver holds: what is known of every feature, weights at all of them at some points, vectors, matrices of a machine.

    Without room for a point's matrix there are passes instead.
    """
    n, d, memory = ctx.data.n_rows, ctx.data.n_cols, ctx.driver_memory
    held = FEATURES.of(d=d), WEIGHTS.of(A=points * d), vectors_held(n, loop.inputs.n_machines)
    if not fits(n, memory):
        return held
    machines, gaussian = min(loop.config.n_machines, BATCH_MACHINES, len(loop.grid)), loop.config.kernel == "rbf"
    if machines <= FEW:
        return (*held, MATRIX.of(n=n))
    cells = min(d, CellSums.most(ctx, CELL_SHARE, 4 if gaussian else 8))
    table = min(TABLE_COPIES * d * machines, int(CELL_SHARE * memory))
    summed = (CELLS if gaussian else LINEAR_CELLS).of(c=cells, n=n)
    # The table is gone once the cells are cut.
    return (*held, MATRIX.of(n=n), max(summed, TABLE.taking(table), key=lambda item: item.nbytes))


def plan_of(loop: KTALoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do."""
    tasks = column_tasks(ctx.data)
    n = ctx.data.n_rows
    held = fits(n, ctx.driver_memory)
    return {
        **holdings_plan(driver_held(loop, ctx, len(loop.grid))),
        "kernels": int(ctx.data.n_cols),
        "points": len(loop.grid),
        "machines": loop.inputs.n_machines,
        "machine_points": loop.config.n_machines,
        "tasks_per_pass": len(tasks),
        "task_bytes": int(max(task_bytes(task) for task in tasks)),
        "solve_on": "matrix" if held else "passes",
        "matrix_bytes": MATRIX_COPIES * n * n if held else 0,
    }


def model_of(config: KTAPathConfig, inputs: Inputs, state: KTAState, ctx: RunContext) -> KernelModel:
    """Return the path, with the machine at its last point that has a kernel."""
    kept = np.flatnonzero(state.counts)
    p = float(state.p[kept[-1]]) if len(kept) else config.p_start
    arrays = {
        "alignments": state.alignments.values,
        "traces": state.alignments.traces,
        "widths": state.alignments.widths,
        "junctures": path_junctures(config, state),
        "p_grid": state.p,
        "n_active": state.counts,
        "path_indices": state.indices,
        "path_values": state.values,
        "newton_steps": state.newton_steps,
        "scored": state.scored,
    }
    figures = {"lam1": state.lam1, "lam2": state.lam2, "C": float(config.C)}
    trainer = PathTrainer(config, inputs, ctx, kernels_of(state))
    active, eta = weights_of(config, (state.lam1, state.lam2), arrays["alignments"], arrays["junctures"], p)
    # From nothing: the same machine, whatever stood at points before.
    return record(config, inputs, arrays, figures, trainer.at(p, active, eta))


def record(
    config: KTAPathConfig, inputs: Inputs, arrays: Mapping[str, np.ndarray], figures: Mapping[str, float], point: PathPoint
) -> KernelModel:
    """Return the machine at a point as a model: of the support rows only the columns of active features.

    Parameters
    ----------
    config, inputs
        Parameters and training data.
    arrays, figures
        Results to keep beside it; traces and widths among them.
    point
        The machine.
    """
    ids = np.flatnonzero(np.any(point.beta != 0, axis=0))
    beta = np.ascontiguousarray(point.beta[:, ids])
    own = _of_matrices(inputs, arrays, ids, point) if isinstance(inputs.data, GivenGrams) else _of_features(inputs, arrays, ids, point)
    return KernelModel(
        params_json=config.model_dump_json(),
        classes_json=json.dumps(list(inputs.classes or ())),
        kernels_json="[]",
        n_train=int(inputs.data.n_rows),
        support_ids=ids,
        texts=(),
        beta=beta,
        intercepts=point.bias,
        figures={**figures, "p": point.p, "gap": point.gap, "objective": point.objective},
        arrays=dict(arrays),
        **own,
    )


def _of_matrices(inputs: Inputs, arrays: Mapping[str, np.ndarray], ids: np.ndarray, point: PathPoint) -> dict[str, Any]:
    theta = np.zeros((len(point.beta), len(arrays["traces"])))
    theta[:, point.active] = point.share
    norms = tuple(Normalization(1.0 / float(trace), None, 0.0, None) for trace in arrays["traces"][point.active])
    return {"n_features": int(inputs.data.n_rows), "precomputed": True, "theta": theta, "used": point.active, "norms": norms, "rows": None}


def _of_features(inputs: Inputs, arrays: Mapping[str, np.ndarray], ids: np.ndarray, point: PathPoint) -> dict[str, Any]:
    data, active = inputs.data, point.active
    return {
        "n_features": int(data.n_cols),
        "precomputed": False,
        "theta": np.tile(point.share, (len(point.beta), 1)),
        "used": np.arange(len(active)),
        "norms": (),
        "rows": chosen_rows(data, ids, active),
        "features": FeatureKernels(active, arrays["widths"][active], 1.0 / arrays["traces"][active]),
        "scale": scale_of(data, active),
        "row_scaled": data.scale.kind == "unit-row",
    }


def chosen_rows(data: Any, ids: np.ndarray, columns: np.ndarray) -> np.ndarray | sp.csr_array:
    """Return some rows of some columns with scaling applied; sparse if the data is."""
    parts = []
    for lo, hi in spans(data.n_rows, ROWS):
        inside = ids[(ids >= lo) & (ids < hi)]
        if len(inside):
            factor = None if data.scale.row_factor is None else data.scale.row_factor[lo:hi]
            found = scaled(data.columns(columns, (lo, hi)), scale_of(data, columns), factor)
            parts.append((sp.csr_array(found) if sp.issparse(found) else found)[inside - lo])
    if not parts:
        return np.zeros((0, len(columns)))
    return sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)


def summary(state: KTAState, model: KernelModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    return {
        "n_kernels": int(state.table.shape[1]),
        "n_points": len(state.p),
        "n_selected": int(state.counts[-1]),
        "n_active_at_start": int(state.counts[0]),
        "lam1": state.lam1,
        "lam2": state.lam2,
        "p": model.figures["p"],
        "gap": model.figures["gap"],
        "certified_over": "the machine at this p",
        "objective": model.figures["objective"],
        "n_support": len(model.support_ids),
        "stop": state.stop,
        "classes": json.loads(model.classes_json),
        **(_scores((float(state.scored[-1][1]), float(state.scored[-1][2]))) if len(state.scored) else {}),
    }


def tables(state: KTAState, model: KernelModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: kernels in the order they leave the path, last ones first; the points; weights of the last kernels."""
    junctures, a = model.arrays["junctures"], state.alignments.values
    order = np.lexsort((np.arange(len(a)), -a))
    shares = dict(zip(_used(model), model.theta[0, model.used if model.precomputed else slice(None)].tolist(), strict=True))
    kernels = [
        {
            "kernel": str(j) if names is None else names[j],
            "weight": shares.get(j),
            "alignment": float(a[j]),
            "leaves_at_p": float(junctures[j]) if np.isfinite(junctures[j]) else None,
        }
        for j in order[:SHOWN].tolist()
    ]
    followed, weights = order[:FOLLOWED], state.weights
    along = weights[:, followed].toarray()
    shown = {j: str(j) if names is None else names[j] for j in followed.tolist()}
    scored = {int(k): (train, test) for k, train, test in state.scored}
    points = [
        {"p": float(p), "n_active": int(n), **_scores(scored.get(k))} for k, (p, n) in enumerate(zip(state.p, state.counts, strict=True))
    ]
    paths = [
        {"p": float(p), **{shown[j]: float(w) for j, w in zip(followed.tolist(), row, strict=True)}}
        for p, row in zip(state.p, along, strict=True)
    ]
    return {"kernels": kernels, "path": points, "path_weights": paths}


def _used(model: KernelModel) -> list[int]:
    return (model.used if model.features is None else model.features.columns).tolist()


def _scores(found: tuple[float, float] | None) -> dict[str, float]:
    if found is None:
        return {}
    return {name: value for name, value in zip(("train_accuracy", "test_accuracy"), found, strict=True) if np.isfinite(value)}
