"""A weighted sum of Gram matrices that no machine holds: what a dual solver may ask of it is answered by passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...cluster import BlockProgram, plan
from ...kernels.gram_blocks import combined
from ...kernels.normalization import Normalization
from ..records.context import RunContext, received
from .blocks import listed
from .gram_source import PairRef, normalised, normalised_part, pair_bytes


class VectorPart(NamedTuple):
    """What one block pair adds to ``K v``: to its rows, and by symmetry to its columns."""

    rows: tuple[int, int]
    cols: tuple[int, int]
    to_rows: np.ndarray
    to_cols: np.ndarray | None


class SquarePart(NamedTuple):
    """Chosen entries of one block pair: where they belong in the asked square, and their values."""

    rows: np.ndarray
    cols: np.ndarray
    values: np.ndarray


def product_chunk(ref: PairRef, theta: np.ndarray, norms: Any, vector: Any) -> list[VectorPart]:
    """Return one block pair's share in ``K(theta) v``."""
    block, v = combined(normalised(ref, norms), theta).astype(np.float64), received(vector)
    across = None if ref.rows == ref.cols else v[slice(*ref.rows)] @ block
    return [VectorPart(ref.rows, ref.cols, block @ v[slice(*ref.cols)], across)]


def square_chunk(ref: PairRef, theta: np.ndarray, norms: Any, wanted: np.ndarray) -> list[SquarePart]:
    """Return the entries of one block pair among the wanted rows and columns."""
    rows, cols = (_inside(wanted, span) for span in (ref.rows, ref.cols))
    if not len(rows) or not len(cols):
        return []
    block = normalised_part(ref, norms, wanted[rows], wanted[cols])
    return [SquarePart(rows, cols, combined(block, theta))]


def _inside(wanted: np.ndarray, span: tuple[int, int]) -> np.ndarray:
    return np.flatnonzero((wanted >= span[0]) & (wanted < span[1]))


class CombinedGram:
    """``K(theta)`` by passes over its block pairs; solvers ask it for squares and products only.

    Parameters
    ----------
    ctx
        Executor.
    refs
        Block pairs of the upper triangle.
    theta
        ``(k,)`` weights of the kernels as loaded.
    norms
        Normalisation applied when a block is loaded, or ``None``.
    diagonal
        ``(n,)`` diagonal of the sum.
    block
        Rows of a block.
    """

    def __init__(
        self,
        ctx: RunContext,
        refs: Sequence[PairRef],
        theta: np.ndarray,
        norms: tuple[Normalization, ...] | None,
        diagonal: np.ndarray,
        block: int,
    ) -> None:
        self._ctx, self._refs, self._theta, self._norms, self._block = ctx, list(refs), theta, norms, block
        self._diagonal = diagonal

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self._diagonal)

    def diag(self) -> np.ndarray:
        """Return the diagonal, float64 ``(n,)``."""
        return self._diagonal

    def rows(self, idx: np.ndarray) -> np.ndarray:
        """Return whole rows, ``(len(idx), n)``: products with unit vectors, for the few that a check asks for."""
        return np.stack([self.matvec(np.eye(1, self.n, int(i))[0]) for i in idx]) if len(idx) else np.zeros((0, self.n))

    def square(self, idx: np.ndarray) -> np.ndarray:
        """Return ``K[idx][:, idx]`` (one pass over the block pairs that hold some of it)."""
        wanted = np.asarray(idx, np.int64)
        refs = [ref for ref in self._refs if len(_inside(wanted, ref.rows)) and len(_inside(wanted, ref.cols))]
        found = np.zeros((len(wanted), len(wanted)), np.float32)
        for part in self._pass("gram-square", square_chunk, refs, 4 * self._block**2, wanted):
            found[np.ix_(part.rows, part.cols)] = part.values
            found[np.ix_(part.cols, part.rows)] = part.values.T
        return found

    def matvec(self, v: np.ndarray) -> np.ndarray:
        """Return ``K v`` (one pass); parts are added in the order of the blocks."""
        out = np.zeros(self.n)
        for part in self._pass("gram-product", product_chunk, self._refs, 16 * self._block, self._ctx.share("vector", v)):
            out[slice(*part.rows)] += part.to_rows
            if part.to_cols is not None:
                out[slice(*part.cols)] += part.to_cols
        return out

    def _pass(self, name: str, chunk: Any, refs: Sequence[PairRef], result: int, argument: Any) -> list[Any]:
        program = BlockProgram(name, chunk, listed, pair_bytes, result, combine_bytes=2 * result * max(1, len(refs)))
        return self._ctx.run_pass(plan(program, refs, self._theta, self._norms, argument))
