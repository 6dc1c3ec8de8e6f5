"""Unsupervised multiple kernel learning (Zhuang, thesis, 2011, chapter 5): alternate between bases and kernel weights.

One step chooses the bases of every point under the present kernel, then minimises the objective over the weights exactly (a quadratic
program on the simplex); see :mod:`gramplane.kernels.weights.umkl` for the objective. With the safeguard it never rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.spec import KernelSpec
from ....kernels.jit import one_thread
from ....kernels.svm.dual import DenseGram
from ....kernels.weights.umkl import basis_costs, coded_bases, greedy_bases, solve_simplex_qp, weight_terms
from ....storage import BlockStore, MemoryBlocks
from ...grams.grams import Grams
from ...grams.lazy import LazyGrams
from ...grams.settings import GramSettings
from ...grams.sources import rows_of
from ...loops.protocol import Step
from ...models.kernel_predict import spans
from ...passes.blocks import scale_as_given
from ...records.context import RunContext
from .column_sum_pass import mean_largest_sums
from .config import UMKLConfig

ROWS = 4096  # rows read at a time


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

    def __init__(self, config: UMKLConfig, specs: Sequence[KernelSpec], settings: GramSettings, n_bases: int) -> None:
        self.config, self.specs, self.settings, self.n_bases = config, tuple(specs), settings, n_bases
        self.grams = LazyGrams(lambda ctx: Grams(ctx, self.specs, settings, centre=True))
        self._inner: np.ndarray | None = None
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

    def inner(self, ctx: RunContext) -> np.ndarray:
        """Return the inner products of all rows, ``(n, n)``."""
        if self._inner is None:
            self._inner = inner_products(ctx.data)
        return self._inner

    def init(self, ctx: RunContext) -> UMKLState:
        """Return equal weights without bases."""
        k = len(self.specs)
        return UMKLState(0, np.full(k, 1.0 / k), np.full((ctx.data.n_rows, self.n_bases), -1, np.int32), np.inf, np.inf, np.zeros((0, k)))

    def step(self, state: UMKLState, ctx: RunContext) -> Step[UMKLState]:
        """Choose bases, then weights."""
        bases, n_kept = self._choose_bases(state, ctx)
        changed = int(np.sum(np.any(np.sort(bases, axis=1) != np.sort(state.bases, axis=1), axis=1)))
        new = self._solve_weights(state, bases, ctx)
        if self.config.safeguard and state.iteration and new.objective >= state.objective:
            # Sums of single precision: what is left to gain is rounding, and the objective must not rise.
            new, changed = replace(new, weights=state.weights, bases=state.bases, objective=state.objective, qp_gap=state.qp_gap), 0
        is_settled = new.iteration > 1 and not changed and state.objective - new.objective <= self.config.tol * abs(state.objective)
        if len(self.specs) == 1 or is_settled:
            new = replace(new, stop="tol")
        elif new.iteration >= self.config.max_iter:
            new = replace(new, stop="max_iter")
        new = replace(new, path=np.concatenate([state.path, new.weights[None, :]]))
        metrics = {"objective": new.objective, "gap": new.qp_gap, "changed": changed, "kept": n_kept}
        return Step(new, {**metrics, "n_selected": int(np.count_nonzero(new.weights))})

    def _choose_bases(self, state: UMKLState, ctx: RunContext) -> tuple[np.ndarray, int]:
        """Return the bases under the present weights, and how many points keep theirs."""
        config, inner = self.config, self.inner(ctx)
        if config.start == "sparse-coding" and not state.iteration:
            return coded_bases(inner, self.n_bases, config.gamma2, stop=config.stop), 0
        combined = self.grams(ctx).combine(state.weights * self.factors(ctx))
        assert isinstance(combined, DenseGram)  # its bytes were counted before the fit began
        gram = combined.array
        bases, costs = greedy_bases(gram, inner, self.n_bases, config.gamma1, config.gamma2, stop=config.stop)
        if not (config.safeguard and state.iteration):
            return bases, 0
        better = basis_costs(gram, inner, state.bases, config.gamma1, config.gamma2) <= costs
        return np.where(better[:, None], state.bases, bases), int(better.sum())

    def _solve_weights(self, state: UMKLState, bases: np.ndarray, ctx: RunContext) -> UMKLState:
        n, config = len(bases), self.config
        columns = np.where(bases >= 0, bases, 0).ravel().astype(np.int64)
        entries = self.grams(ctx).entries(np.repeat(np.arange(n), self.n_bases), columns)
        # In one order, whatever the policy hands over: products follow other paths, with other bits, through other layouts.
        entries = np.multiply(entries, self.factors(ctx)[:, None], order="C")
        terms = weight_terms(entries.reshape(-1, n, self.n_bases), bases, self.inner(ctx), config.gamma1, config.gamma2)
        best = solve_simplex_qp(terms.W, terms.u, state.weights)
        return UMKLState(state.iteration + 1, best.weights, bases, terms.value(best.weights), best.gap, state.path)


def inner_products(data: BlockStore | MemoryBlocks) -> np.ndarray:
    """Return the inner products of all rows of a data set, ``(n, n)`` float64; constant columns are rebuilt like any other."""
    parts = [rows_of(data, lo, hi, scale_as_given) for lo, hi in spans(data.n_rows, ROWS)]
    if sp.issparse(parts[0]):
        rows = sp.csr_array(sp.vstack(parts), dtype=np.float64)
        return np.ascontiguousarray((rows @ rows.T).toarray())
    rows = np.concatenate(parts).astype(np.float64)
    with one_thread():
        return rows @ rows.T
