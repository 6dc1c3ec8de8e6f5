"""The kernel selection path as a method of the runner, and machines at its points."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...kernels.normalization import Normalization
from ...kernels.solvers.dual import DenseGram, Gram
from ...kernels.solvers.smo import solve_smo
from ...kernels.spec import KernelSpec
from ...storage import DataError
from ..loops.prepared import Prepared
from ..passes.blocks import column_tasks, task_bytes
from ..passes.feature_kernel_sum import feature_kernel_sum
from ..passes.given_grams import GivenGrams
from ..records.config_kta import KTAPathConfig
from ..records.context import RunContext
from ..records.kernel_model import KernelModel
from .kernel_setup import KernelInputs, _rows, _scaling, dual_problems, store_inputs
from .kta_path import KTALoop, KTAState, given_grams, path_junctures, weights_of

SHOWN = 1000
"""Kernels in the report's table."""

TOL = 1e-3
"""Tolerance of a machine, LIBSVM's."""


def prepare(config: KTAPathConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``.

    Raises
    ------
    DataError
        No classes.
    ValueError
        A share of rows held out, or matrices, which a block store does not hold.
    """
    if extra.get("test_share"):
        raise ValueError("test_share: kta-path holds no rows out; ingest the rows of a test into a store of their own")
    if config.kernel == "precomputed":
        raise ValueError("kernel='precomputed' needs matrices; a run on a block store takes 'rbf' or 'linear'")
    inputs = store_inputs(ctx, "kta-path")
    if inputs.classes is None:
        raise DataError("the target is real-valued; kta-path needs classes", ctx.data.url)
    loop = KTALoop(config, inputs)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, inputs, state, ctx),
        summary=summary,
        tables=tables,
        plan=plan_of(loop, ctx),
    )


def plan_of(loop: KTALoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do."""
    tasks = column_tasks(ctx.data)
    n = ctx.data.n_rows
    return {
        "kernels": int(ctx.data.n_cols),
        "points": len(loop.grid),
        "machines": loop.inputs.n_machines,
        "tasks_per_pass": len(tasks),
        "task_bytes": int(max(task_bytes(task) for task in tasks)),
        "matrix_bytes": 8 * n * n,
    }


def model_of(config: KTAPathConfig, inputs: KernelInputs, state: KTAState, ctx: RunContext) -> KernelModel:
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
    }
    figures = {"lam1": state.lam1, "lam2": state.lam2, "p": p, "C": float(config.C)}
    return machine_at(config, inputs, ctx, figures, arrays, p)


def machine_at(
    config: KTAPathConfig,
    inputs: KernelInputs,
    ctx: RunContext,
    figures: dict[str, float],
    arrays: dict[str, np.ndarray],
    p: float,
    warm: np.ndarray | None = None,
) -> KernelModel:
    """Return the machine with the kernel ``K(p) = (n / sum eta) sum_i eta_i K_i / trace(H K_i H)``.

    Its centred trace is n, so C has its usual scale. Centring itself is left to the bias.

    Parameters
    ----------
    config
        Parameters; C among them.
    inputs, ctx
        Training data.
    figures
        ``lam1`` and ``lam2``.
    arrays
        Alignments, traces, widths and junctures.
    p
        Norm.
    warm
        ``(n_machines, n_samples)`` coefficients to start from.
    """
    lam = figures["lam1"], figures["lam2"]
    active, eta = weights_of(config, lam, arrays["alignments"], arrays["junctures"], p)
    share = eta * (ctx.data.n_rows / eta.sum()) if len(active) else eta
    scales = 1.0 / arrays["traces"][active]
    gram = combined(ctx, inputs, arrays, active, share * scales)
    problems = dual_problems(config, inputs)
    starts = [None] * len(problems) if warm is None else list(warm)
    found = [solve_smo(gram, problem, warm=start, tol=TOL) for problem, start in zip(problems, starts, strict=True)]
    beta = np.stack([solution.beta for solution in found])
    figures = {**figures, "p": p, "gap": sum(solution.gap for solution in found), "objective": sum(solution.upper for solution in found)}
    return _record(config, inputs, arrays, (active, share, scales), beta, np.array([solution.bias for solution in found]), figures)


def combined(ctx: RunContext, inputs: KernelInputs, arrays: dict[str, np.ndarray], active: np.ndarray, weights: np.ndarray) -> Gram:
    """Return ``sum_i w_i K_i`` over the active kernels, not centred."""
    if isinstance(inputs.data, GivenGrams):
        theta = np.zeros(len(arrays["traces"]))
        theta[active] = weights
        return given_grams(ctx, inputs).combine(theta)
    return DenseGram(feature_kernel_sum(ctx, active, weights, arrays["widths"][active]))


def _record(
    config: KTAPathConfig,
    inputs: KernelInputs,
    arrays: dict[str, np.ndarray],
    kernels: tuple[np.ndarray, np.ndarray, np.ndarray],
    beta: np.ndarray,
    bias: np.ndarray,
    figures: dict[str, float],
) -> KernelModel:
    active, share, scales = kernels
    ids = np.flatnonzero(np.any(beta != 0, axis=0))
    given = isinstance(inputs.data, GivenGrams)
    rows, texts = (None, ()) if given else _rows(inputs.data, ids)
    theta = np.zeros((len(beta), len(arrays["traces"]) if given else len(active)))
    theta[:, active if given else slice(None)] = share
    specs = [] if given else [feature_kernel(config, int(j), float(arrays["widths"][j])).to_json() for j in active]
    return KernelModel(
        params_json=config.model_dump_json(),
        classes_json=json.dumps(list(inputs.classes or ())),
        kernels_json=json.dumps(specs),
        n_features=int(inputs.data.n_rows if given else inputs.data.n_cols),
        n_train=int(inputs.data.n_rows),
        precomputed=given,
        theta=theta,
        used=active if given else np.arange(len(active)),
        norms=tuple(Normalization(float(scale), None, 0.0, None) for scale in scales),
        support_ids=ids,
        rows=rows,
        texts=texts,
        beta=np.ascontiguousarray(beta[:, ids]),
        intercepts=bias,
        figures=figures,
        arrays=arrays,
        **_scaling(inputs.data),
    )


def feature_kernel(config: KTAPathConfig, j: int, width: float) -> KernelSpec:
    """Return the kernel of feature j."""
    if config.kernel == "linear":
        return KernelSpec("linear", (), (j,))
    return KernelSpec("rbf", (("gamma", 0.5 / width**2),), (j,))


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
        "objective": model.figures["objective"],
        "iterations": state.iteration,
        "n_support": len(model.support_ids),
        "stop": state.stop,
        "classes": json.loads(model.classes_json),
    }


def tables(state: KTAState, model: KernelModel) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: kernels in the order they leave the path, last ones first, and the points."""
    junctures, a = model.arrays["junctures"], state.alignments.values
    order = np.lexsort((np.arange(len(a)), -a))[:SHOWN]
    kernels = [
        {"kernel": int(j), "alignment": float(a[j]), "leaves_at_p": float(junctures[j]) if np.isfinite(junctures[j]) else None}
        for j in order
    ]
    points = [{"p": float(p), "n_active": int(count)} for p, count in zip(state.p, state.counts, strict=True)]
    return {"kernels": kernels, "path": points}
