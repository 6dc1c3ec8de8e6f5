"""Unsupervised multiple kernel learning (Zhuang, thesis, 2011, chapter 5): alternate between bases and kernel weights.

One step chooses the bases of every point under the present kernel, then minimises the objective over the weights exactly (a quadratic
program on the simplex); see :mod:`gramplane.kernels.weights.umkl` for the objective. With the safeguard it never rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ....kernels.grams.spec import KernelSpec
from ....kernels.weights.umkl import solve_simplex_qp
from ...core.result import Step
from ...grams.grams import Grams
from ...grams.lazy import LazyGrams
from ...grams.settings import GramSettings
from ...records.context import RunContext
from .column_sum_pass import mean_largest_sums
from .config import UMKLConfig
from .sums_pass import PassGrams
from .sweeps import PassSweep, Sweeper, WholeSweep


@dataclass(frozen=True)
class UMKLState:
    """State of the alternation."""

    record_name: ClassVar[str] = "UMKLState"
    iteration: int
    weights: np.ndarray  # (k,) kernel weights, on the simplex
    bases: np.ndarray  # (n, n_bases) bases of every point, -1 where there is none; none at all before the first step
    objective: float  # J at both
    qp_gap: float  # certified distance of the last weights from the best ones for these bases
    path: np.ndarray  # (iteration, k) weights after every step
    stop: str | None = None


class UMKLLoop:
    """The alternation on the rows of a context's data, with ``n_bases`` bases per point."""

    state_type = UMKLState

    def __init__(
        self, config: UMKLConfig, specs: Sequence[KernelSpec], settings: GramSettings, n_bases: int, by_passes: bool = False
    ) -> None:
        self.config, self.specs, self.settings, self.n_bases = config, tuple(specs), settings, n_bases
        self.by_passes = by_passes  # whether nothing of size n x n may come to this process
        kind = PassGrams if by_passes else Grams
        self.grams: LazyGrams = LazyGrams(lambda ctx: kind(ctx, self.specs, settings, centre=True))
        self._sweep: Sweeper = (PassSweep if by_passes else WholeSweep)(config, n_bases, self.grams, self.factors)
        self._factors: np.ndarray | None = None

    def factors(self, ctx: RunContext) -> np.ndarray:
        """Return multipliers of the normalised kernels, ``(k,)``: those of column sums with ``normalize="column_sum"``, else one. Raises
        ValueError: a kernel whose largest entries do not sum to a positive number.
        """
        if self._factors is None:
            self._factors = np.ones(len(self.specs))
            kernels = [q for q, spec in enumerate(self.specs) if spec.normalize == "none" and self.config.normalize == "column_sum"]
            if kernels:
                self._factors[kernels] = 1.0 / self._column_sums(kernels, ctx)
        return self._factors

    def _column_sums(self, kernels: list[int], ctx: RunContext) -> np.ndarray:
        normalizations = self.grams(ctx).normalizations
        specs, norms = [self.specs[q] for q in kernels], [normalizations[q] for q in kernels]
        sums = mean_largest_sums(ctx, specs, norms, self.settings.block, self.n_bases)
        if not np.all(sums > 0):
            raise ValueError(
                f"kernel {specs[int(np.argmin(sums))]}: its {self.n_bases} largest entries of a row sum to {sums.min():.3g} on average; "
                "normalize='column_sum' needs a positive sum"
            )
        return sums

    def init(self, ctx: RunContext) -> UMKLState:
        """Return equal weights without bases."""
        k = len(self.specs)
        return UMKLState(0, np.full(k, 1.0 / k), np.full((ctx.data.n_rows, self.n_bases), -1, np.int32), np.inf, np.inf, np.zeros((0, k)))

    def step(self, state: UMKLState, ctx: RunContext) -> Step[UMKLState]:
        """Choose bases, then weights."""
        sweep = self._sweep(ctx, state.weights, state.bases if state.iteration else None)
        changed = int(np.sum(np.any(np.sort(sweep.bases, axis=1) != np.sort(state.bases, axis=1), axis=1)))
        best = solve_simplex_qp(sweep.terms.W, sweep.terms.u, state.weights)
        new = UMKLState(state.iteration + 1, best.weights, sweep.bases, sweep.terms.value(best.weights), best.gap, state.path)
        if self.config.safeguard and state.iteration and new.objective >= state.objective:
            # Sums of single precision: what is left to gain is rounding, and the objective must not rise.
            new, changed = replace(new, weights=state.weights, bases=state.bases, objective=state.objective, qp_gap=state.qp_gap), 0
        is_settled = new.iteration > 1 and not changed and state.objective - new.objective <= self.config.tol * abs(state.objective)
        if len(self.specs) == 1 or is_settled:
            new = replace(new, stop="tol")
        elif new.iteration >= self.config.max_iter:
            new = replace(new, stop="max_iter")
        new = replace(new, path=np.concatenate([state.path, new.weights[None, :]]))
        metrics = {"objective": new.objective, "gap": new.qp_gap, "changed": changed, "kept": sweep.n_kept}
        return Step(new, {**metrics, "n_selected": int(np.count_nonzero(new.weights))})
