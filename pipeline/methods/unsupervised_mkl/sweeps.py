"""A sweep over all points: it chooses their bases under the current weights and computes the terms of the next weights.

A sweep works on whole matrices in this process, or by passes if the matrices exceed the memory of this process. Passes take 2.2 to 2.4
times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ....kernels.eigen.block_lanczos import block_columns
from ....kernels.jit import one_thread
from ....kernels.svm.dual import DenseGram
from ....kernels.weights.umkl import BasisArray, WeightTerms, basis_costs, coded_bases, greedy_bases, weight_terms
from ....storage import BlockStore, MemoryBlocks
from ...core.resources import Resources
from ...grams.grams import Grams, LazyGrams
from ...grams.plans import GramPasses
from ...grams.sources import rows_of
from ...grams.weighted_sum import written_bytes, written_pairs
from ...models.kernel import spans
from ...passes.blocks import Blocks, scale_as_given
from .codes_pass import CodesMemory, RowInner, coded_by_passes, codes_pass, residuals_pass
from .config import UMKLConfig
from .rows_pass import Points, points_of, strips_of
from .strips_pass import BaseKernels, Chosen, KernelSum, Rebuilding, choose_pass, run_bases, terms_pass
from .sums_pass import PassGrams, largest_pass, sums_pass

ROWS = 4096  # rows read at a time


class Sweep(NamedTuple):
    """Result of a sweep.

    * ``bases`` ``(n, B)``: the bases of all points.
    * ``n_kept``: the number of points that kept their bases.
    * ``terms``: the objective at the bases as a function of the weights.
    """

    bases: BasisArray
    n_kept: int
    terms: WeightTerms


class WholeSweep:
    """Sweeps in this process, with matrices of the inner products of all rows and of the weighted sum of the kernels."""

    def __init__(self, config: UMKLConfig, n_bases: int, grams: LazyGrams[Grams], factors: Callable[[Resources], np.ndarray]) -> None:
        self._config, self._n_bases, self._grams, self._factors = config, n_bases, grams, factors
        self._inner: np.ndarray | None = None

    def __call__(self, data: Blocks, resources: Resources, weights: np.ndarray, before: BasisArray | None) -> Sweep:
        """Choose bases under the weighted sum of the loaded kernels, then gather the entries of all kernels at the bases; ``before`` are
        the bases of the last sweep, if there was one.
        """
        config = self._config
        if self._inner is None:
            self._inner = inner_products(data)
        bases, n_kept = self._choose_bases(resources, self._inner, weights, before)
        n = len(bases)
        columns = np.where(bases >= 0, bases, 0).ravel().astype(np.int64)
        entries = self._grams(resources).entries(np.repeat(np.arange(n), self._n_bases), columns)
        # In one order, whatever the policy hands over: products follow other paths, with other bits, through other layouts.
        entries = np.multiply(entries, self._factors(resources)[:, None], order="C")
        return Sweep(bases, n_kept, weight_terms(entries.reshape(-1, n, self._n_bases), bases, self._inner, config.gamma1, config.gamma2))

    def _choose_bases(
        self, resources: Resources, inner: np.ndarray, weights: np.ndarray, before: BasisArray | None
    ) -> tuple[BasisArray, int]:
        config = self._config
        if config.start == "sparse-coding" and before is None:
            return coded_bases(inner, self._n_bases, config.gamma2, stop=config.stop), 0
        combined = self._grams(resources).combine(weights * self._factors(resources))
        assert isinstance(combined, DenseGram)  # its bytes were counted before the fit began
        gram = combined.array
        if config.start == "kernel-sparse-coding" and before is None:
            return coded_bases(gram.astype(np.float64), self._n_bases, config.gamma2, stop=config.stop), 0
        bases, costs = greedy_bases(gram, inner, self._n_bases, config.gamma1, config.gamma2, stop=config.stop)
        if not config.safeguard or before is None:
            return bases, 0
        better = basis_costs(gram, inner, before, config.gamma1, config.gamma2) <= costs
        return np.where(better[:, None], before, bases), int(better.sum())


class PassSweep:
    """Sweeps by passes over strips of points; this process holds the bases and the sums of the tasks' results."""

    def __init__(self, config: UMKLConfig, n_bases: int, grams: LazyGrams[PassGrams], factors: Callable[[Resources], np.ndarray]) -> None:
        self._config, self._n_bases, self._grams, self._factors = config, n_bases, grams, factors

    def __call__(self, data: Blocks, resources: Resources, weights: np.ndarray, before: BasisArray | None) -> Sweep:
        """Choose bases and compute terms in one pass over the sum of the kernels in use."""
        config, grams, factors = self._config, self._grams(resources), self._factors(resources)
        asked = Rebuilding(grams.of_bases(factors), self._n_bases, config.gamma1, config.gamma2, config.stop)
        points = points_of(data, self._n_bases, grams.settings.block)
        if before is None and config.start != "greedy":
            bases = resources.share("bases", self._coded(resources, points, weights), len(points))
            return _sweep_of(run_bases(resources, terms_pass(points, asked, bases)))
        strips, total = grams.strips(weights * factors, points)
        kept = None if before is None or not config.safeguard else resources.share("bases", before, len(points))
        return _sweep_of(run_bases(resources, choose_pass(strips, total, asked, kept)))

    def _coded(self, resources: Resources, points: Sequence[Points], weights: np.ndarray) -> BasisArray:
        config, grams, factors = self._config, self._grams(resources), self._factors(resources)
        asked = grams.k, self._n_bases, config.gamma2, config.stop
        if config.start == "sparse-coding":
            return coded_by_passes(resources, points, RowInner(), *asked)
        return coded_by_passes(resources, *grams.strips(weights * factors, points), *asked)


def _sweep_of(result: Chosen) -> Sweep:
    return Sweep(result.bases[0][1], result.n_kept, result.terms)


def pass_figures(config: UMKLConfig, passes: GramPasses, n_bases: int) -> dict[str, int]:
    """Return the number of tasks of a sweep by passes, and the memory in bytes of the largest step of any pass."""
    specs, data, settings, refs, n = tuple(passes.specs), passes.data, passes.settings, passes.refs, passes.n
    asked = Rebuilding(BaseKernels(specs, None, np.ones(len(specs))), n_bases, config.gamma1, config.gamma2, config.stop)
    points = points_of(data, n_bases, settings.block)
    strips = strips_of(points, written_pairs(refs)) if settings.policy == "store" else points
    columns = block_columns(config.n_components)[0]
    steps = [
        choose_pass(strips, KernelSum(asked.kernels, np.ones(len(specs))), asked).memory_bound,
        passes.load() if settings.policy == "store" else sums_pass(refs, len(specs), n).memory_bound,
        written_bytes(refs, 8 * n * columns),
        *_first_steps(config, passes, asked, points, strips),
    ]
    return {"tasks_per_pass": len(strips), "task_bytes": max(steps)}


def _first_steps(
    config: UMKLConfig, passes: GramPasses, asked: Rebuilding, points: Sequence[Points], strips: Sequence[Points]
) -> Iterator[int]:
    """Yield the memory in bytes of the passes before the first sweep: those for sums of the largest entries, for sparse codes, and for the
    terms of the resulting bases.
    """
    if config.normalize == "column_sum":
        yield largest_step(passes, asked.n_bases)
    if config.start != "greedy":
        memory, some = CodesMemory(passes.k, asked.n_bases), points if config.start == "sparse-coding" else strips
        yield from (residuals_pass(some, memory, 1).memory_bound, codes_pass(some, memory).memory_bound)
        yield terms_pass(points, asked, np.zeros((0, 0))).memory_bound


def largest_step(passes: GramPasses, n_bases: int) -> int:
    """Return the memory in bytes of the pass that finds the largest entries of all kernels."""
    return largest_pass(passes.refs, passes.k, passes.n, passes.settings.block, n_bases).memory_bound


def inner_products(data: BlockStore | MemoryBlocks) -> np.ndarray:
    """Return the inner products of all rows of a data set, ``(n, n)`` float64, with constant columns reconstructed like any other."""
    parts = [rows_of(data, lo, hi, scale_as_given) for lo, hi in spans(data.n_rows, ROWS)]
    if sp.issparse(parts[0]):
        rows = sp.csr_array(sp.vstack(parts), dtype=np.float64)
        return np.ascontiguousarray((rows @ rows.T).toarray())
    rows = np.concatenate(parts).astype(np.float64)
    with one_thread():
        return rows @ rows.T
