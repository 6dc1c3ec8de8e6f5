"""The kernels of a fit that names none: a bank over single features while it is small, else kernels on all features around their median
distance.

Which of both follows from the numbers of rows and features alone, and the widths from a sample of rows that these numbers draw.
"""

from __future__ import annotations

import numpy as np

from ...cluster import bytes_text
from ...kernels.bank.loops import count_packed
from ...kernels.grams.spec import KernelSpec, kernel_grid
from ...storage import BlockStore, MemoryBlocks
from ..grams.widths import DIGITS, MedianWidths

BANK_KERNELS = 512  # kernels of a bank over single features at most
BANK_BYTES = 512 << 20  # and bytes of their matrices, packed triangles of single precision
PER_FEATURE = 13  # kernels of the grid on a set of features

# Kernels on all features, those that help most first: widths as shares of the median distance, and degrees of polynomials. Polynomials
# have diagonal one: by its cube a single row far outside those learnt from would get an answer without bound.
WHOLE = (1.0, 0.5, 2.0, "linear", 0.25, 4.0, "poly 2", 0.125, 8.0, "poly 3")
WHOLE_BYTES = 2 << 30  # bytes of these matrices at most, but for the first
FEWEST = 3


def default_kernels(data: BlockStore | MemoryBlocks, counts: np.ndarray | None = None) -> tuple[list[KernelSpec], str]:
    """Return the kernels of a fit that names none, and what to tell of the choice; nothing where it is the bank over single features.

    ``counts``: how often rows count, ``(n,)``. Raises ValueError: rows are strings, for which there is no default.
    """
    n, d = data.n_rows if counts is None else counted_rows(counts), data.n_cols
    if not d:
        raise ValueError("kernels must be given where rows are strings")
    if bank_fits(n, d):
        return kernel_grid(d), ""
    specs, k = whole_kernels(data, n, counts), PER_FEATURE * (d + 1)
    bank = f"{k:,} kernels on all features and on each of {d:,} would be {bytes_text(k * _matrix_bytes(n))} of matrices"
    more = "kernels=[...] names others, such as 'rbf[0]' on one feature"
    return specs, f"kernels: {bank}, so {len(specs)} on all features at once are taken, widths around the median distance of rows; {more}"


def grid_texts(d: int) -> list[str]:
    """Return the bank over single features as parameters hold it."""
    return [str(spec) for spec in kernel_grid(d)]


def bank_fits(n: int, d: int) -> bool:
    """Return whether a bank over single features is small enough to be the default."""
    k = PER_FEATURE * (d + 1)
    return k <= BANK_KERNELS and k * _matrix_bytes(n) <= BANK_BYTES


def whole_kernels(data: BlockStore | MemoryBlocks, n: int, counts: np.ndarray | None = None) -> list[KernelSpec]:
    """Return Gaussians on all features at shares of the median distance of n rows, and polynomials with that distance as their unit."""
    square = MedianWidths(data, counts).square()
    return [KernelSpec.parse(text) for text in whole_texts(n, 1.0 if square is None else square)]


def counted_rows(counts: np.ndarray) -> int:
    """Return the number of rows that count as often as ``counts`` says; weights below one do not make them fewer."""
    return max(int(np.count_nonzero(counts)), round(float(counts.sum())))


def whole_texts(n: int, square: float) -> list[str]:
    """Return the texts of these kernels for n rows, of a squared median distance; as many as keep within their bytes."""
    count = max(FEWEST, min(len(WHOLE), WHOLE_BYTES // _matrix_bytes(n)))
    texts = []
    for kind in WHOLE[:count]:
        if not isinstance(kind, str):
            texts.append(f"rbf(gamma={0.5 / (kind**2 * square):.{DIGITS}g})")
        else:
            degree = kind.removeprefix("poly ")
            texts.append(kind if kind == "linear" else f"poly(degree={degree},gamma={1.0 / square:.{DIGITS}g}) cosine")
    return texts


def _matrix_bytes(n: int) -> int:
    return 4 * count_packed(n)
