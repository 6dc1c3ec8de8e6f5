"""Unsupervised multiple kernel learning as a method: from rows to a loop, from its state to kernel principal components and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import eigh

from ....kernels.eigen.signs import column_signs
from ....kernels.jit import one_thread
from ...grams.grams import Grams
from ...grams.memory import BLOCKS, IN_PLACE, PACKED
from ...grams.sources import pair_bytes, row_pairs
from ...inputs.kernels import gram_settings, resolved_kernels
from ...inputs.labels import Inputs
from ...method import Method, weight_tables
from ...models.kernel import KernelModel
from ...models.kernel_build import build_model
from ...models.kernel_predict import KernelPredictor
from ...records.context import RunContext
from ...records.data_set import DataSet
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from .config import UMKLConfig
from .loop import UMKLLoop, UMKLState

RANK_TOL = 1e-6  # eigenvalues below this share of the largest are rounding of single-precision entries: such a component is 0

PRODUCTS = Held("inner products of all rows", "8 n^2")
SUM = Held("sum of the kernels in both precisions, with the eigensolver's copies", "28 n^2")
ROWS = Held("rows, as read and in float64", "16 n d")
ENTRIES = Held("entries of the kernels at the bases", "16 k n B", "B = `n_bases`")


@dataclass(frozen=True)
class UMKLInputs:
    """The rows; there is no target."""

    data: DataSet


class UMKL(Method):
    """Kernel weights under which every row is rebuilt from a few similar ones."""

    name = "unsupervised-mkl"
    config_type = UMKLConfig
    models = {KernelModel: KernelPredictor()}
    held = (PRODUCTS, SUM, ROWS, PACKED, IN_PLACE, BLOCKS, ENTRIES)

    config: UMKLConfig
    inputs: UMKLInputs
    loop: UMKLLoop

    @classmethod
    def read_inputs(cls, config: UMKLConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[UMKLConfig, UMKLInputs]:
        """Return parameters and rows; a target is not read."""
        return config, UMKLInputs(ctx.data)

    @classmethod
    def build_loop(cls, config: UMKLConfig, inputs: UMKLInputs, ctx: RunContext) -> UMKLLoop:
        """Return the loop of a fit. Raises ValueError: data without coordinates (strings, matrices), or fewer than two rows;
        MemoryBoundExceeded: more rows than the driver's memory allows.
        """
        data = ctx.data
        if data.holds != "columns":
            raise ValueError(
                "unsupervised MKL rebuilds samples from others, so it needs their features: no strings, no precomputed kernels"
            )
        if data.n_rows < 2:
            raise ValueError(f"n_samples={data.n_rows}: every sample is rebuilt from others, so there must be at least 2")
        n_bases = min(config.n_bases, data.n_rows - 1)
        if n_bases < config.n_bases:
            ctx.warn(f"n_bases={config.n_bases} exceeds the {n_bases} other samples")
        specs = resolved_kernels(config.kernels, data, "none" if config.normalize == "column_sum" else config.normalize)
        loop = UMKLLoop(config, specs, gram_settings(config, specs, data, ctx), n_bases)
        refuse_beyond(_driver_held(loop, ctx), ctx.driver_memory, cls.name, "fewer rows")
        return loop

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, tasks of a pass, memory of a task."""
        loop, n = self.loop, self.ctx.data.n_rows
        refs = row_pairs(self.ctx.data, loop.specs, loop.settings.block)
        return {
            **loop.settings.describe(n, len(loop.specs)),
            **holdings_plan(_driver_held(loop, self.ctx)),
            "n_bases": loop.n_bases,
            "iterations_at_most": self.config.max_iter,
            "tasks_per_pass": len(refs),
            "task_bytes": int(max(pair_bytes(ref) for ref in refs)) + 16 * n * loop.n_bases,
        }

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        return ("Gram blocks",)

    def model(self, state: UMKLState, ctx: RunContext) -> KernelModel:
        """Return the model: one machine per principal component of the learnt kernel."""
        grams, weights, count = self.loop.grams(ctx), state.weights * self.loop.factors(ctx), self.config.n_components
        beta, intercepts, eigenvalues = principal_components(grams, weights, count)
        figures = {"objective": float(state.objective), "qp_gap": float(state.qp_gap), "iterations": float(state.iteration)}
        figures["converged"] = float(state.stop != "max_iter")
        inputs = Inputs(ctx.data, np.zeros(grams.n), None)
        arrays = {"weights": state.weights, "bases": state.bases, "eigenvalues": eigenvalues}
        return build_model(self.config, inputs, grams, np.tile(weights, (count, 1)), beta, intercepts, figures, arrays)

    def summary(self, state: UMKLState, model: KernelModel) -> dict[str, Any]:
        """Return the objective, and how many kernels have a weight."""
        return {
            "objective": float(state.objective),
            "gap": float(state.qp_gap),
            "certified_over": "the weights, for these bases",
            "n_selected": int(np.count_nonzero(state.weights)),
            "n_kernels": len(state.weights),
            "stop": state.stop,
        }

    def tables(self, state: UMKLState, model: KernelModel) -> dict[str, list[dict[str, Any]]]:
        """Return kernels by weight, and the weights of the heaviest along the rounds."""
        return weight_tables([str(spec) for spec in self.loop.specs], [0], state.weights[None], [state.path])


def _driver_held(loop: UMKLLoop, ctx: RunContext) -> tuple[Holding, ...]:
    """Return what the driver holds: inner products and one sum of kernels as whole matrices, all rows while the products are made."""
    n, d, k = ctx.data.n_rows, ctx.data.n_cols, len(loop.specs)
    matrices = loop.settings.held(n, k, ctx.driver_memory)[0]
    return PRODUCTS.of(n=n), SUM.of(n=n), ROWS.of(n=n, d=d), matrices, ENTRIES.of(k=k, n=n, B=loop.n_bases)


def principal_components(grams: Grams, weights: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return kernel principal components as machines: coefficients ``(count, n)``, intercepts and eigenvalues ``(count,)``.

    With H the centring matrix and ``H K H = V diag(lam) V'``, component r of a point x is ``(k(x) - K 1/n)' V_r / sqrt(lam_r)``; signs
    are such that the largest coefficient is positive (Schölkopf, Smola, Müller, Neural Computation 10, 1998).
    """
    gram = np.asarray(grams.combine(weights).rows(np.arange(grams.n)), np.float64)
    means = gram.mean(axis=0)
    centred = gram - means[:, None] - means[None, :] + means.mean()
    lowest = grams.n - min(count, grams.n)
    with one_thread():
        values, vectors = eigh(centred, subset_by_index=[lowest, grams.n - 1])
    beta, lam = np.zeros((count, grams.n)), np.zeros(count)
    for r, (value, vector) in enumerate(zip(values[::-1], vectors.T[::-1], strict=True)):
        if value > RANK_TOL * max(values[-1], 0.0) and value > 0.0:
            sign = float(column_signs(vector[:, None])[0])
            beta[r], lam[r] = sign * (vector - vector.mean()) / np.sqrt(value), value
    return beta, -(beta @ means), lam
