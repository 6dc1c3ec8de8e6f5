"""Unsupervised multiple kernel learning as a method of the runner; kernel principal components of the learnt kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.linalg import eigh

from ....kernels.eigen.signs import column_signs
from ....kernels.jit import one_thread
from ...grams.given import GivenGrams
from ...grams.grams import Grams
from ...grams.memory import BLOCKS, IN_PLACE, PACKED
from ...grams.sources import pair_bytes, row_pairs
from ...inputs.kernels import gram_settings, resolved_kernels
from ...inputs.labels import Inputs
from ...loops.prepared import Prepared
from ...models.kernel import KernelModel
from ...models.kernel_build import build_model
from ...records.context import RunContext
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from .config import UMKLConfig
from .loop import UMKLLoop, UMKLState

SHOWN = 20
"""Kernels whose weights a report follows along the rounds."""

RANK_TOL = 1e-6
"""Eigenvalues below this share of the largest are rounding of single-precision entries: such a component is 0."""


PRODUCTS = Held("inner products of all rows", "8 n^2")
SUM = Held("sum of the kernels in both precisions, with the eigensolver's copies", "28 n^2")
ROWS = Held("rows, as read and in float64", "16 n d")
ENTRIES = Held("entries of the kernels at the bases", "16 k n B", "B = `n_bases`")

HELD = (PRODUCTS, SUM, ROWS, PACKED, IN_PLACE, BLOCKS, ENTRIES)
"""What the driver holds."""


def build_loop(config: UMKLConfig, ctx: RunContext, warn: Callable[[str], None]) -> UMKLLoop:
    """Return the loop of a fit.

    Raises
    ------
    ValueError
        Data without coordinates (strings, matrices), or of a size that cannot be.
    """
    data = ctx.data
    if isinstance(data, GivenGrams) or data.n_cols == 0:
        raise ValueError("unsupervised MKL rebuilds samples from others, so it needs their features: no strings, no precomputed kernels")
    if data.n_rows < 2:
        raise ValueError(f"n_samples={data.n_rows}: every sample is rebuilt from others, so there must be at least 2")
    size = min(config.n_bases, data.n_rows - 1)
    if size < config.n_bases:
        warn(f"n_bases={config.n_bases} exceeds the {size} other samples")
    specs = resolved_kernels(config.kernels, data, "none" if config.normalize == "column_sum" else config.normalize)
    loop = UMKLLoop(config, specs, gram_settings(config, specs, data, ctx), size)
    refuse_beyond(driver_held(loop, ctx), ctx.driver_memory, "unsupervised-mkl", "fewer rows")
    return loop


def driver_held(loop: UMKLLoop, ctx: RunContext) -> tuple[Holding, ...]:
    """Return what the driver holds: inner products and one sum of kernels as whole matrices, all rows while the products are made."""
    n, d, k = ctx.data.n_rows, ctx.data.n_cols, len(loop.specs)
    return (
        PRODUCTS.of(n=n),
        SUM.of(n=n),
        ROWS.of(n=n, d=d),
        loop.settings.held(n, k, ctx.driver_memory)[0],
        ENTRIES.of(k=k, n=n, B=loop.size),
    )


def _refuse(message: str) -> None:
    raise ValueError(message)


def prepare(config: UMKLConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; a target is not looked at."""
    loop = build_loop(config, ctx, _refuse)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, loop, state, ctx),
        summary=summary,
        tables=lambda state, model: tables(state, loop),
        plan=plan_of(config, loop, ctx),
    )


def plan_of(config: UMKLConfig, loop: UMKLLoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: Gram policy, tasks of a pass, memory of a task."""
    refs = row_pairs(ctx.data, loop.specs, loop.settings.block)
    return {
        **loop.settings.describe(ctx.data.n_rows, len(loop.specs)),
        **holdings_plan(driver_held(loop, ctx)),
        "n_bases": loop.size,
        "iterations_at_most": config.max_iter,
        "tasks_per_pass": len(refs),
        "task_bytes": int(max(pair_bytes(ref) for ref in refs)) + 16 * ctx.data.n_rows * loop.size,
    }


def principal_components(grams: Grams, weights: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return kernel principal components as machines: coefficients ``(count, n)``, intercepts and eigenvalues ``(count,)``.

    With H the centring matrix and ``H K H = V diag(lam) V'``, component r of a point x is ``(k(x) - K 1/n)' V_r / sqrt(lam_r)``; signs
    are such that the largest coefficient is positive (Schölkopf, Smola, Müller, Neural Computation 10, 1998).
    """
    gram = np.asarray(grams.combine(weights).rows(np.arange(grams.n)), np.float64)
    means = gram.mean(axis=0)
    centred = gram - means[:, None] - means[None, :] + means.mean()
    held = min(count, grams.n)
    with one_thread():
        values, vectors = eigh(centred, subset_by_index=[grams.n - held, grams.n - 1])
    beta, lam = np.zeros((count, grams.n)), np.zeros(count)
    for r, (value, vector) in enumerate(zip(values[::-1], vectors.T[::-1], strict=True)):
        if value > RANK_TOL * max(values[-1], 0.0) and value > 0.0:
            sign = float(column_signs(vector[:, None])[0])
            beta[r], lam[r] = sign * (vector - vector.mean()) / np.sqrt(value), value
    return beta, -(beta @ means), lam


def model_of(config: UMKLConfig, loop: UMKLLoop, state: UMKLState, ctx: RunContext) -> KernelModel:
    """Return the model: one machine per principal component of the learnt kernel."""
    grams, weights = loop.grams(ctx), state.weights * loop.factors(ctx)
    beta, intercepts, lam = principal_components(grams, weights, config.n_components)
    figures = {
        "objective": float(state.objective),
        "qp_gap": float(state.qp_gap),
        "iterations": float(state.iteration),
        "converged": float(state.stop != "max_iter"),
    }
    inputs = Inputs(ctx.data, np.zeros(grams.n), None)
    theta = np.tile(weights, (config.n_components, 1))
    arrays = {"weights": state.weights, "bases": state.bases, "eigenvalues": lam}
    return build_model(config, inputs, grams, theta, beta, intercepts, figures, arrays)


def summary(state: UMKLState, model: KernelModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    return {
        "objective": float(state.objective),
        "gap": float(state.qp_gap),
        "certified_over": "the weights, for these bases",
        "n_selected": int(np.count_nonzero(state.weights)),
        "n_kernels": len(state.weights),
        "stop": state.stop,
    }


def tables(state: UMKLState, loop: UMKLLoop) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: kernels by weight, and the weights of the heaviest along the rounds."""
    order = [int(q) for q in np.lexsort((np.arange(len(state.weights)), -state.weights)) if state.weights[q] > 0]
    names = {q: str(loop.specs[q]) for q in order}
    along = [{"machine": 0, "iteration": t, **{names[q]: float(row[q]) for q in order[:SHOWN]}} for t, row in enumerate(state.path, 1)]
    return {"kernels": [{"kernel": names[q], "weight": float(state.weights[q])} for q in order], "weights": along}
