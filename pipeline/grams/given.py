"""Precomputed Gram matrices, as an array or a Gram store, used in place of a data set; their block pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs

from ...cluster import default_driver_memory
from ...kernels.bank.bank import PackedBank, is_readable_in_place
from ...kernels.bank.given_matrices import inspect_matrix
from ...kernels.bank.loops import count_packed
from ...kernels.jit import one_thread
from ...storage import GramRef, GramStore, block_cache
from ..core.resources import BANK_SHARE
from ..records.data_set import Kind

TILE = 128
SYMMETRIC = 1e-5  # relative asymmetry that products of single-precision matrices leave
NEGATIVE = 1e-5  # an eigenvalue below minus this share of the largest is more than rounding of single precision
WHOLE_WORK = 3e10  # matrices are looked at as a whole up to this many operations, beyond that by a principal part of `PART` rows each

PART = 256

(_potrf,) = get_lapack_funcs(("potrf",), dtype=np.float64)

FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class GivenPair:
    """A block pair of matrices in memory. It is not sent to other processes."""

    rows: tuple[int, int]
    cols: tuple[int, int]
    which: tuple[int, ...]
    source: np.ndarray = field(repr=False, compare=False)

    row_bytes = 0

    @property
    def nbytes(self) -> int:
        return 4 * len(self.which) * (self.rows[1] - self.rows[0]) * (self.cols[1] - self.cols[0])

    def select(self, which: Sequence[int]) -> GivenPair:
        """Return the same block pair for a subset of the kernels."""
        return replace(self, which=tuple(self.which[q] for q in which))

    def load(self) -> np.ndarray:
        """Return the raw kernels, float32 ``(k, rows, columns)``. For a pair on the diagonal, the upper triangle is mirrored."""
        block = np.array(self.source[list(self.which), slice(*self.rows), slice(*self.cols)], dtype=np.float32, order="C")
        if self.rows == self.cols:
            upper = np.triu(block)
            block = upper + np.triu(block, 1).transpose(0, 2, 1)
        return np.ascontiguousarray(block)

    def part(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return entries of the block at the given rows and columns, which are positions in the block."""
        return np.ascontiguousarray(self.load()[:, rows][:, :, cols])


@dataclass(frozen=True)
class StoredPair:
    """A block pair that is read from a Gram store."""

    ref: GramRef  # its distinct raw kernels
    which: tuple[int, ...]  # position in `ref` of every kernel; two that differ in normalisation only share their entries

    @property
    def rows(self) -> tuple[int, int]:
        return self.ref.rows

    @property
    def cols(self) -> tuple[int, int]:
        return self.ref.cols

    @property
    def nbytes(self) -> int:
        return self.ref.nbytes * len(self.which) // sum(stop - start for _, start, stop in self.ref.parts)

    row_bytes = 0

    def select(self, which: Sequence[int]) -> StoredPair:
        """Return the same block pair for a subset of the kernels; only these are read."""
        return StoredPair(self.ref.select([self.which[q] for q in which]), tuple(range(len(which))))

    def load(self) -> np.ndarray:
        """Read the raw kernels ``(k, rows, columns)``."""
        block = block_cache().load(self.ref)
        return block if self.which == tuple(range(len(block))) else block[list(self.which)]

    def part(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return entries of the block at the given rows and columns, which are positions in the block."""
        return np.ascontiguousarray(self.load()[:, rows][:, :, cols])


@dataclass(frozen=True)
class GivenKernel:
    """A kernel that is known only by its matrix."""

    position: int  # its place among the matrices
    label: str = ""  # name in messages and tables
    # normalize, centre: as those of KernelSpec
    normalize: str = "none"
    centre: bool = False

    def __str__(self) -> str:
        return self.label or f"precomputed {self.position}"

    def to_json(self) -> dict[str, Any]:
        record = {"name": "precomputed", "position": self.position, "label": self.label}
        return {**record, "normalize": self.normalize, "centre": self.centre}


class GivenGrams:
    """Precomputed matrices ``(k, n, n)``, or the matrices of a finished Gram store, that replace a data set.

    * ``source``: an array or a Gram store.
    * ``definite``: whether matrices must be positive semi-definite. False, for example, if a method shifts the matrices later.
    * ``room``: bytes that a packed copy of matrices in memory may take; the default is the driver's limit for a bank.
    * ``bank``: the matrices in memory; ``None`` for a Gram store, or if ``room`` is too small.

    Exactly symmetric float32 matrices in C order are used in place, read-only and without a copy. Other matrices are copied to packed
    float32, the type of all stored Gram matrices, in the same pass that checks them.

    Raises ValueError, naming the kernel, if a matrix is not square, finite, symmetric or (if required) positive semi-definite.
    """

    url, scale = "memory", None
    holds: Kind = "grams"

    bank: PackedBank | None = None

    def __init__(self, source: np.ndarray | GramStore, *, definite: bool = True, room: int | None = None) -> None:
        self.source = source
        if isinstance(source, GramStore):
            self.k, self.n_rows, self.digest = len(source.kernels), source.n, source.meta.data
            if definite:
                _check_stored(source, self.kernels())
        else:
            self.source = as_stack(source)
            self.k, self.n_rows, self.digest = len(self.source), self.source.shape[1], ""
            self.bank = _checked(self.source, definite, int(BANK_SHARE * default_driver_memory()) if room is None else room)
        self.n_cols = self.n_rows

    @property
    def travels(self) -> bool:
        """Whether the matrices can be read by other processes, which is the case only for those of a Gram store."""
        return isinstance(self.source, GramStore)

    def feature_names(self) -> None:
        """Always ``None``: matrices have no feature names."""

    def has_table(self, name: str) -> bool:
        """Always ``False``: matrices have no row tables such as targets or weights."""
        return False

    def kernels(self) -> list[GivenKernel]:
        """Return the kernels in order."""
        if isinstance(self.source, GramStore):
            records = [self.source.describe(digest) for digest in self.source.kernels]
            return [GivenKernel(q, str(item.get("label", item.get("name", "")))) for q, item in enumerate(records)]
        return [GivenKernel(q) for q in range(self.k)]

    def pairs(self, which: Sequence[int], block: int) -> list[Any]:
        chosen = tuple(which)
        if isinstance(self.source, GramStore):
            edge = self.source.meta.block
            if edge < self.n_rows and edge % TILE:
                raise ValueError(f"{self.source.url} has blocks of {edge} rows; they must be multiples of {TILE}")
            return [StoredPair(ref, chosen) for ref in self.source.refs(list(self.source.kernels))]
        spans = [(lo, min(lo + block, self.n_rows)) for lo in range(0, self.n_rows, block)]
        return [GivenPair(rows, cols, chosen, self.source) for i, rows in enumerate(spans) for cols in spans[i:]]


def as_stack(grams: Any) -> np.ndarray:
    """Return matrices as ``(k, rows, columns)``. A single matrix may lack the first axis.

    Raises ValueError for other shapes, or matrices of different sizes.
    """
    if isinstance(grams, (list, tuple)):
        shapes = {np.shape(part) for part in grams}
        if len(shapes) > 1 and all(np.ndim(part) == 2 for part in grams):
            raise ValueError(f"precomputed kernels have different sizes: {', '.join(str(shape) for shape in sorted(shapes))}")
    stack = np.asarray(grams)
    if stack.ndim == 2:
        stack = stack[None]
    if stack.ndim != 3 or stack.dtype.kind not in "fiub" or not stack.size:
        raise ValueError(f"precomputed kernels have shape {stack.shape} and type {stack.dtype}; they must be numbers (n_kernels, rows, n)")
    return stack


def _checked(grams: np.ndarray, definite: bool, room: int) -> PackedBank | None:
    """Check every matrix in a single pass, in its own type. Return the bank of the matrices, or ``None`` if ``room`` is too small."""
    k, n, width = grams.shape
    if n != width:
        raise ValueError(f"precomputed kernels have shape {grams.shape}; at fit they must be (n_kernels, n, n)")
    in_place, whole = grams.dtype == np.float32 and is_readable_in_place(grams), k * float(n) ** 3 <= WHOLE_WORK
    chosen = np.arange(n) if whole or n <= PART else np.linspace(0, n - 1, PART).astype(int)
    packed = None if in_place else _room_for(k, n, room)
    for q, gram in enumerate(grams):
        seen = inspect_matrix(gram, None if packed is None else packed[q])
        if not seen.asymmetry <= SYMMETRIC * seen.greatest:
            _refuse_entries(q, np.asarray(gram, np.float64))
        if packed is not None and seen.greatest > FLOAT32_MAX:
            raise ValueError(f"precomputed kernel {q} holds values up to {seen.greatest:g}, which overflow float32")
        if definite:
            _check_definite(f"precomputed kernel {q}", np.array(gram[chosen][:, chosen], np.float64, order="C"))
        if in_place and seen.asymmetry > 0:
            # What is symmetric but for rounding is packed: everybody reads the upper triangle.
            in_place, packed = False, _packed(grams[: q + 1], _room_for(k, n, room))
    return PackedBank.over(grams) if in_place else None if packed is None else PackedBank(packed, n)


def _room_for(k: int, n: int, room: int) -> np.ndarray | None:
    """Return memory for packed matrices, or ``None`` if ``room`` is too small."""
    return np.empty((k, count_packed(n)), np.float32) if PackedBank.bytes_for(k, n, np.float32) <= room else None


def _packed(grams: np.ndarray, packed: np.ndarray | None) -> np.ndarray | None:
    """Copy matrices that are already checked to the memory ``packed``, unless it is ``None``. Used when only a later matrix shows that a
    copy is needed.
    """
    if packed is not None:
        for gram, entries in zip(grams, packed, strict=False):
            inspect_matrix(gram, entries)
    return packed


def _check_stored(store: GramStore, kernels: Sequence[GivenKernel]) -> None:
    """Check that a principal submatrix of the first block is positive semi-definite. Entries and symmetry were checked at writing."""
    first = store.refs(list(store.kernels))[0]
    for kernel, block in zip(kernels, first.load(), strict=True):
        _check_definite(f"kernel {kernel} of {store.url}", np.array(block[:PART, :PART], np.float64, order="C"))


def _refuse_entries(q: int, gram: np.ndarray) -> None:
    if not np.isfinite(gram).all():
        i, j = (int(index[0]) for index in np.nonzero(~np.isfinite(gram)))
        raise ValueError(f"precomputed kernel {q} holds {gram[i, j]} in row {i}, column {j} (NaN or infinity)")
    i, j = divmod(int(np.abs(gram - gram.T).argmax()), len(gram))
    raise ValueError(
        f"precomputed kernel {q} is not symmetric: {gram[i, j]:g} in row {i}, column {j}, but {gram[j, i]:g} in row {j}, column {i}"
    )


def _check_definite(name: str, gram: np.ndarray) -> None:
    with one_thread():
        if _surely_definite(gram):
            return
        values = np.linalg.eigvalsh(gram)
    if values[0] < -NEGATIVE * max(values[-1], -values[0]):
        raise ValueError(f"{name} is not positive semi-definite: its least eigenvalue is {values[0]:.3g}, the greatest {values[-1]:.3g}")


def _surely_definite(gram: np.ndarray) -> bool:
    """Return whether a Cholesky factorisation proves that the matrix is positive semi-definite up to rounding.

    It costs a tenth of computing the eigenvalues. The rounding tolerance is relative to the largest diagonal entry, a lower bound of the
    largest eigenvalue.
    """
    diagonal = np.einsum("ii->i", gram)
    saved = diagonal.copy()
    diagonal += NEGATIVE * max(float(saved.max()), 0.0)
    # A third of the time of NumPy's, which copies and orders anew.
    _, wrong = _potrf(gram.T, lower=1, clean=0)
    diagonal[:] = saved
    return wrong == 0
