"""Gram matrices that the user hands over: an array of them, or a Gram store, in place of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...kernels.jit import one_thread
from ...storage import GramStore

TILE = 128
SYMMETRIC = 1e-5
"""Relative asymmetry that products of single-precision matrices leave."""

NEGATIVE = 1e-5
"""An eigenvalue below minus this share of the largest is more than rounding of single precision."""

WHOLE_WORK = 3e10
"""Matrices are looked at as a whole up to this many operations, beyond that by a principal part of ``PART`` rows each."""

PART = 256


@dataclass(frozen=True)
class GivenKernel:
    """A kernel known by its matrix only.

    Attributes
    ----------
    position
        Its place among the matrices.
    label
        Name in messages and tables.
    normalize, centre
        As those of :class:`~gramplane.kernels.spec.KernelSpec`.
    """

    position: int
    label: str = ""
    normalize: str = "none"
    centre: bool = False

    def __str__(self) -> str:
        return self.label or f"precomputed {self.position}"

    def to_json(self) -> dict[str, Any]:
        """Return the kernel as JSON holds it."""
        record = {"name": "precomputed", "position": self.position, "label": self.label}
        return {**record, "normalize": self.normalize, "centre": self.centre}


@dataclass(frozen=True)
class GivenPair:
    """A block pair of matrices in memory; such a reference stays in its process."""

    rows: tuple[int, int]
    cols: tuple[int, int]
    which: tuple[int, ...]
    source: np.ndarray = field(repr=False, compare=False)

    row_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the loaded block."""
        return 4 * len(self.which) * (self.rows[1] - self.rows[0]) * (self.cols[1] - self.cols[0])

    def load(self) -> np.ndarray:
        """Return the raw kernels, float32 ``(k, rows, columns)``; of a pair on the diagonal the upper triangle, mirrored."""
        block = np.array(self.source[list(self.which), slice(*self.rows), slice(*self.cols)], dtype=np.float32, order="C")
        if self.rows == self.cols:
            upper = np.triu(block)
            block = upper + np.triu(block, 1).transpose(0, 2, 1)
        return np.ascontiguousarray(block)

    def part(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return chosen rows and columns, by their place in the block."""
        return np.ascontiguousarray(self.load()[:, rows][:, :, cols])


class GivenGrams:
    """Matrices ``(k, n, n)``, or those of a Gram store, in the place of a data set.

    Parameters
    ----------
    source
        An array, or a finished Gram store.
    definite
        Whether they must be positive semi-definite; counts of comments need not, where a shift makes them so later.

    Raises
    ------
    ValueError
        A matrix that is not square, not finite, not symmetric or, where it must be, not positive semi-definite; the kernel is named.
    """

    url, scale = "memory", None

    def __init__(self, source: np.ndarray | GramStore, *, definite: bool = True) -> None:
        self.source = source
        if isinstance(source, GramStore):
            self.k, self.n_rows, self.digest = len(source.kernels), source.n, source.meta.data
            if definite:
                _check_stored(source, self.kernels())
        else:
            self.source = as_stack(source)
            self.k, self.n_rows, self.digest = len(self.source), self.source.shape[1], ""
            _check(self.source, definite)
        self.n_cols = self.n_rows

    def kernels(self) -> list[GivenKernel]:
        """Return the kernels, by place."""
        if isinstance(self.source, GramStore):
            told = [self.source.describe(digest) for digest in self.source.kernels]
            return [GivenKernel(q, str(item.get("label", item.get("name", "")))) for q, item in enumerate(told)]
        return [GivenKernel(q) for q in range(self.k)]

    def pairs(self, which: Sequence[int], block: int) -> list[Any]:
        """Return references to the block pairs of some kernels."""
        chosen = tuple(which)
        if isinstance(self.source, GramStore):
            from .gram_source import StoredPair

            _check_edges(self.source, self.n_rows)
            return [StoredPair(ref, chosen) for ref in self.source.refs(list(self.source.kernels))]
        spans = [(lo, min(lo + block, self.n_rows)) for lo in range(0, self.n_rows, block)]
        return [GivenPair(rows, cols, chosen, self.source) for i, rows in enumerate(spans) for cols in spans[i:]]


def _check_edges(store: GramStore, n: int) -> None:
    if store.meta.block < n and store.meta.block % TILE:
        raise ValueError(f"{store.url} has blocks of {store.meta.block} rows; they must be multiples of {TILE}")


def as_stack(grams: Any) -> np.ndarray:
    """Return matrices as ``(k, rows, columns)``; one of them may come without its first axis.

    Raises
    ------
    ValueError
        Another form, or matrices of different sizes.
    """
    if isinstance(grams, (list, tuple)):
        shapes = {np.shape(part) for part in grams}
        if len(shapes) > 1 and all(np.ndim(part) == 2 for part in grams):
            raise ValueError(f"precomputed kernels have different sizes: {', '.join(str(shape) for shape in sorted(shapes))}")
    found = np.asarray(grams)
    if found.ndim == 2:
        found = found[None]
    if found.ndim != 3 or found.dtype.kind not in "fiub" or not found.size:
        raise ValueError(f"precomputed kernels have shape {found.shape} and type {found.dtype}; they must be numbers (n_kernels, rows, n)")
    return found


def _check(grams: np.ndarray, definite: bool) -> None:
    k, n, width = grams.shape
    if n != width:
        raise ValueError(f"precomputed kernels have shape {grams.shape}; at fit they must be (n_kernels, n, n)")
    whole = k * float(n) ** 3 <= WHOLE_WORK
    chosen = slice(None) if whole or n <= PART else np.linspace(0, n - 1, PART).astype(int)
    for q in range(k):
        gram = np.asarray(grams[q], np.float64)
        _check_entries(q, gram)
        if definite:
            _check_definite(f"precomputed kernel {q}", gram[chosen][:, chosen])


def _check_stored(store: GramStore, kernels: Sequence[GivenKernel]) -> None:
    """Look at a principal part of the first block: entries and symmetry were checked when the store was written."""
    first = store.refs(list(store.kernels))[0]
    for kernel, block in zip(kernels, first.load(), strict=True):
        _check_definite(f"kernel {kernel} of {store.url}", np.asarray(block[:PART, :PART], np.float64))


def _check_entries(q: int, gram: np.ndarray) -> None:
    if not np.isfinite(gram).all():
        i, j = (int(where[0]) for where in np.nonzero(~np.isfinite(gram)))
        raise ValueError(f"precomputed kernel {q} holds {gram[i, j]} in row {i}, column {j} (NaN or infinity)")
    off = np.abs(gram - gram.T)
    if off.max() > SYMMETRIC * np.abs(gram).max():
        i, j = divmod(int(off.argmax()), len(gram))
        raise ValueError(f"precomputed kernel {q} is not symmetric: {gram[i, j]:g} in row {i}, column {j}, {gram[j, i]:g} the other way")


def _check_definite(name: str, gram: np.ndarray) -> None:
    with one_thread():
        values = np.linalg.eigvalsh(gram)
    if values[0] < -NEGATIVE * max(values[-1], -values[0]):
        raise ValueError(f"{name} is not positive semi-definite: its least eigenvalue is {values[0]:.3g}, the greatest {values[-1]:.3g}")


def with_normalization(kernels: Sequence[Any], normalize: str) -> list[Any]:
    """Return the kernels with ``normalize`` where they leave it open."""
    return [_normalised(kernel, normalize) if kernel.normalize == "none" else kernel for kernel in kernels]


@lru_cache(maxsize=1 << 14)
def _normalised(kernel: Any, normalize: str) -> Any:
    # A spec checks its fields whenever it is made; fits of a search ask for the same ones.
    return replace(kernel, normalize=normalize)
