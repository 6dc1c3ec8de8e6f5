"""Passes over several similarity matrices of the same users: row maxima, sums for alignments, weighted sums.

A view t is ``(d_u + d_v) / 2 * K^t_uv + delta * [u = v]`` with its own factors d and shift delta
(:mod:`gramplane.kernels.ranking.user_kernels`). The raw entries come from :class:`gramplane.pipeline.grams.grams.Grams`, and are not
rewritten. Results are bit-identical wherever block pairs are stored. With :mod:`.block_pass`, a fit on four views of 600 and of 2,000
users takes 2.2 and 1.9 times as long, respectively.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.alignment.target_alignment import MatrixSums
from ....kernels.jit import one_thread
from ....kernels.ranking.user_kernels import least_eigenvalue, scaled_block
from ....kernels.svm.dual import Gram
from ...core.resources import Shared, resolve
from ...grams.grams import Grams
from ...grams.pair_passes import Filled, matrix_bytes, pair_batches, place_pair
from ...grams.pair_passes import load_programs as load_programs
from ...grams.sources import PairRef, load_normalised, pair_bytes
from ...grams.weighted_sum import Norms
from ...passes.blocks import join_lists


@dataclass(frozen=True)
class Scaling:
    """Conversion of raw entries into k views: factors d ``(k, n)``, and shifts delta ``(k,)``."""

    factors: np.ndarray
    shifts: np.ndarray


class Extremes(NamedTuple):
    """Extremes of one block pair.

    * ``to_rows``: the largest entry and the largest absolute entry of each row, ``(k, rows)`` each.
    * ``to_cols``: the same for each column, ``(k, columns)`` each.
    """

    rows: tuple[int, int]
    cols: tuple[int, int]
    to_rows: np.ndarray
    to_cols: np.ndarray


class Shares(NamedTuple):
    """Contributions of one block pair to the sums of the views.

    * ``products`` ``(k, k)``: inner products.
    * ``to_rows`` ``(k, rows)``, ``to_cols`` ``(k, columns)``: row sums.
    * ``diagonal``: its diagonal, for a pair on the diagonal.
    """

    rows: tuple[int, int]
    cols: tuple[int, int]
    products: np.ndarray
    to_rows: np.ndarray
    to_cols: np.ndarray
    diagonal: np.ndarray | None


def extremes_chunk(ref: PairRef, norms: Norms) -> list[Extremes]:
    """Return the extremes of one block pair."""
    return [Extremes(ref.rows, ref.cols, *block_extremes(load_normalised(ref, norms)))]


def block_extremes(block: np.ndarray) -> list[np.ndarray]:
    """Return the largest entry and the largest absolute entry of each row, ``(2, k, rows)``, and of each column, ``(2, k, columns)``, of a
    block.
    """
    sizes = np.abs(block)
    return [np.stack([block.max(axis=a), sizes.max(axis=a)]).astype(np.float64) for a in (2, 1)]


def shares_chunk(ref: PairRef, norms: Norms, factors: Shared, mask: Shared) -> list[Shares]:
    """Return the contributions of one block pair to the sums of the views, over the users in the mask."""
    return [block_shares(_scaled(ref, norms, resolve(factors)), ref.rows, ref.cols, resolve(mask))]


def block_shares(views: np.ndarray, rows: tuple[int, int], cols: tuple[int, int], mask: np.ndarray) -> Shares:
    """Return the contributions of one block of the views ``(k, rows, columns)``. The block is overwritten for users outside the mask."""
    here, there = mask[slice(*rows)], mask[slice(*cols)]
    if not (here.all() and there.all()):
        views *= here[:, None]
        views *= there
    is_diagonal = rows == cols
    flat = views.reshape(len(views), -1)
    with one_thread():
        products = (1.0 if is_diagonal else 2.0) * (flat @ flat.T)
    diagonal = np.diagonal(views, axis1=1, axis2=2).copy() if is_diagonal else None
    return Shares(rows, cols, products, views.sum(axis=2), views.sum(axis=1), diagonal)


def weighted_chunk(ref: PairRef, norms: Norms, factors: Shared, theta: np.ndarray) -> list[Filled]:
    """Return one block pair of the weighted sum of the views, without the shifts of the views."""
    scaled = _scaled(ref, norms, resolve(factors))
    out = np.zeros(scaled.shape[1:])
    for weight, view in zip(theta, scaled, strict=True):
        out += weight * view
    return [Filled(ref.rows, ref.cols, out.astype(np.float32))]


def _scaled(ref: PairRef, norms: Norms, factors: np.ndarray) -> np.ndarray:
    return scaled_block(load_normalised(ref, norms), factors[:, slice(*ref.rows)], factors[:, slice(*ref.cols)])


def view_bytes(ref: PairRef) -> int:
    """Return the memory of a task in bytes: the entries in float64, their factors, and a copy."""
    return pair_bytes(ref) + 6 * ref.nbytes


def view_pass(name: str, chunk: Callable[..., list[Any]], refs: Sequence[PairRef], result: int, *broadcast: object) -> Plan[list[Any]]:
    """Return a pass that returns at most ``result`` bytes for every pair of blocks."""
    program = BlockProgram(name, chunk, join_lists, view_bytes, result + 512, combine_bytes=2 * (result + 512) * len(refs))
    return plan(program, refs, *broadcast)


def extremes_bytes(k: int, block: int) -> int:
    """Return the size in bytes of the extremes of one block pair."""
    return 32 * k * block


def shares_bytes(k: int, block: int) -> int:
    """Return the size in bytes of the contributions of one block pair to the sums of k views."""
    return 8 * k * (k + 3 * block)


def view_pass_bytes(refs: Sequence[PairRef], k: int, block: int) -> int:
    """Return the memory in bytes of the largest step of the passes in this module."""
    sizes = [(refs, extremes_bytes(k, block)), (refs, shares_bytes(k, block))]
    sizes += [(batch, max(map(matrix_bytes, batch))) for batch in pair_batches(refs)]
    return max(view_pass("planned", list, batch, result).memory_bound for batch, result in sizes)


class ViewGrams(Grams):
    """Similarity matrices as the views of users; the parameters are those of :class:`Grams`."""

    def extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the largest entry, and the largest absolute entry, of every row of every matrix, ``(k, n)`` each, in one pass."""
        extremes = np.full((2, self.k, self.n), -np.inf)
        for part in self._view_pass("view-extremes", extremes_chunk, extremes_bytes(self.k, self.settings.block), self._norms):
            for span, values in ((part.rows, part.to_rows), (part.cols, part.to_cols)):
                part_of_span = extremes[:, :, slice(*span)]
                np.maximum(part_of_span, values, out=part_of_span)
        extremes *= self.scale[:, None]
        return extremes[0], extremes[1]

    def matrix_sums(self, scaling: Scaling, mask: np.ndarray) -> MatrixSums:
        """Return the sums of the views over the users in the mask ``(n,)``, in one pass."""
        shared = self._factors(scaling), self.resources.share("mask", mask, len(self._refs))
        result = shares_bytes(self.k, self.settings.block)
        products, rows, diagonals = np.zeros((self.k, self.k)), np.zeros((self.k, self.n)), np.zeros((self.k, self.n))
        for part in self._view_pass("view-sums", shares_chunk, result, self._norms, *shared):
            products += part.products
            rows[:, slice(*part.rows)] += part.to_rows
            if part.diagonal is None:
                rows[:, slice(*part.cols)] += part.to_cols
            else:
                diagonals[:, slice(*part.rows)] = part.diagonal
        return MatrixSums(products, rows, diagonals, int(mask.sum())).shifted(scaling.shifts, mask)

    def least_eigenvalues(self, factors: np.ndarray) -> np.ndarray:
        """Return the smallest eigenvalue of every view before its shift, ``(k,)``, or a slightly smaller value. Each view takes one
        weighted sum of kernels.
        """
        eigenvalues = np.array([self._least_eigenvalue(q, factors[q]) for q in range(self.k)])
        # The memory of these sums is not needed again.
        self._matrix = None
        return eigenvalues

    def _least_eigenvalue(self, q: int, factors: np.ndarray) -> float:
        gram: Gram = self.combine(np.eye(self.k)[q])

        def product(x: np.ndarray) -> np.ndarray:
            return 0.5 * (factors * gram.matvec(x) + gram.matvec(factors * x))

        return least_eigenvalue(product, self.n, lambda: scaled_block(gram.rows(np.arange(self.n)), factors, factors))

    def view_entries(self, scaling: Scaling, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the entries of every view at the m positions given by ``rows`` and ``columns``, ``(k, m)``, in at most one pass."""
        d = scaling.factors
        scaled = self.entries(rows, columns) * (0.5 * (d[:, rows] + d[:, columns]))
        return scaled + scaling.shifts[:, None] * (rows == columns)

    def weighted(self, scaling: Scaling, theta: np.ndarray) -> np.ndarray:
        """Return ``sum_t theta_t K^t`` of the views as a new matrix, float32 ``(n, n)``, in one pass."""
        matrix, factors = np.empty((self.n, self.n), np.float32), self._factors(scaling)
        for batch in pair_batches(self._refs):
            result = max(map(matrix_bytes, batch))
            for filled in self._view_pass("view-sum", weighted_chunk, result, self._norms, factors, theta, refs=batch):
                place_pair(matrix, filled)
        matrix.flat[:: self.n + 1] += np.float32(theta @ scaling.shifts)
        return matrix

    def _factors(self, scaling: Scaling) -> Shared:
        return self.resources.share("factors", scaling.factors * self.scale[:, None], len(self._refs))

    def _view_pass(
        self, name: str, chunk: Callable[..., list[Any]], result: int, *broadcast: object, refs: list[PairRef] | None = None
    ) -> list[Any]:
        return self.resources.run_pass(view_pass(name, chunk, self._refs if refs is None else refs, result, *broadcast))
