"""Second moments of rows: sums of ``c (x, y, 1)(x, y, 1)'``, by task; what least squares needs of tall data.

The sums are taken over pieces of rows that stay in a cache, in float64 whatever the data are, about a given shift: far from it they would
lose digits. Pieces are added in the order of the rows, so the bits depend on the rows given and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..jit import one_thread

Array = np.ndarray
Rows = Any
"""``(n, p)``: an array in either order, CSR or CSC; or a list of such blocks of columns, side by side."""

PIECE_BYTES = 4 << 20
"""Bytes of a piece of rows."""


def row_moments(X: Rows, y: Array, cost: Array, *, shift: Array | None = None, codes: Array | None = None, n_tasks: int = 1) -> Array:
    """Return the sums ``(n_tasks, p + m + 1, p + m + 1)`` of ``c (x - shift, y, 1)(x - shift, y, 1)'`` over the rows of each task.

    Parameters
    ----------
    X
        ``(n, p)`` rows: dense in either order, CSR or CSC; or a list of such blocks of columns.
    y
        ``(n,)`` targets, or ``(n, m)`` several.
    cost
        ``(n,)`` weights, not negative.
    shift
        ``(p,)`` subtracted from every row; nothing by default.
    codes
        ``(n,)`` task of each row, 0 to ``n_tasks - 1``; all 0 by default.
    n_tasks
        Number of tasks.
    """
    blocks: list[Any] = [sp.csr_array(block) if sp.issparse(block) else block for block in (X if isinstance(X, list) else [X])]
    p, edge = sum(int(block.shape[1]) for block in blocks), np.column_stack((y, np.ones(len(y))))
    root = np.sqrt(cost)
    out, height = np.zeros((n_tasks, p + edge.shape[1], p + edge.shape[1])), max(64, PIECE_BYTES // (8 * max(p, 1)))
    buffer = np.empty((min(height, max(len(y), 1)), p))
    even = bool((root == root[:1]).all())
    with one_thread():
        for task, piece in _pieces(codes, n_tasks, len(y), height):
            part, sides = _filled(buffer, [block[piece] for block in blocks], shift), edge[piece]
            if not even:
                part, sides = np.multiply(part, root[piece, None], out=buffer[: len(part)]), sides * root[piece, None]
            out[task, :p, :p] += part.T @ part
            out[task, :p, p:] += part.T @ sides
            out[task, p:, p:] += sides.T @ sides
    out[:, p:, :p] = out[:, :p, p:].transpose(0, 2, 1)
    return out * float(cost[0]) if even and len(cost) else out


def _pieces(codes: Array | None, n_tasks: int, n: int, height: int) -> Iterator[tuple[int, Array | slice]]:
    """Yield pieces of the rows of every task, ascending: a range where there is one task."""
    if codes is None:
        yield from ((0, slice(lo, min(lo + height, n))) for lo in range(0, n, height))
        return
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(n_tasks + 1))
    for task in range(n_tasks):
        for lo in range(edges[task], edges[task + 1], height):
            yield task, order[lo : min(lo + height, edges[task + 1])]


def _filled(buffer: Array, blocks: list[Rows], shift: Array | None) -> Array:
    """Return the rows of blocks side by side: in the buffer, or as they lie where they are what is wanted."""
    if len(blocks) == 1 and shift is None and isinstance(blocks[0], np.ndarray):
        block = blocks[0]
        if block.dtype == np.float64 and block.flags.c_contiguous and block.flags.aligned:
            return block
    part, p = buffer[: blocks[0].shape[0]] if blocks else buffer[:0], 0
    for block in blocks:
        part[:, p : p + block.shape[1]] = block.toarray() if sp.issparse(block) else block
        p += block.shape[1]
    if shift is not None:
        part -= shift
    return part


def unshifted(raw: Array, shift: Array) -> Array:
    """Return sums about zero, of sums about a shift ``(p,)`` of the columns."""
    move = np.eye(raw.shape[-1])
    move[: len(shift), -1] = shift
    return move @ raw @ move.T
