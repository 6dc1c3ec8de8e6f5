"""Kernels of numbers without complete blocks: written into a packed bank, or summed into decision values.

:mod:`blocks` fills complete blocks. Here all kernels over one set of features are computed one strip of rows at a time, so that the strip
stays in the cache. Each entry is written or added once; its value is bit-identical to that of :func:`blocks.gram_block`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeGuard

import numpy as np

from ..arrays import Array
from ..bank.loops import BAND, count_packed
from ..jit import compiled, one_thread
from .blocks import NumberKernels, check_result, complete_square, group_by_columns, make_plan, make_sums
from .distances import dot_product
from .functions import KERNELS
from .products import AnyKernel, ProductSpec
from .rows import Rows, as_rows, n_columns, row_shape
from .spec import KernelSpec, check_columns
from .tiles import BLAS_SIDE, MAX_TILE, SPARE_COLUMNS, Target, Tiles, Workspace, tile_size

STRIP_BYTES = 1 << 20  # Greatest number of bytes of a strip of all kernels over the same features, where that allows MIN_STRIP_ROWS.
MIN_STRIP_ROWS = 16  # Least number of rows of a strip.
COPIES = 4  # Of the rows in float64 at a time.


def has_number_kernels_only(specs: Sequence[AnyKernel]) -> TypeGuard[Sequence[KernelSpec]]:
    """Return whether all kernels are functions of sums over features, which this module can compute."""
    names = {None if isinstance(spec, ProductSpec) else spec.name for spec in specs}
    return all(name is not None and KERNELS[name].pairing is not None for name in names)


def packed_grams(specs: Sequence[KernelSpec], X: object, out: Array) -> None:
    """Write the raw kernels of all pairs of rows of X ``(n, d)`` in the layout of :class:`~gramplane.kernels.bank.bank.PackedBank`.

    The kernels must satisfy :func:`has_number_kernels_only`. ``out``, ``(n_specs, n_packed)`` in C order, receives the entries of
    ``gram_block(specs, X)``.
    """
    rows = as_rows(X)
    n = row_shape(rows)[0]
    if out.shape != (len(specs), count_packed(n)) or not out.flags.c_contiguous:
        raise ValueError(f"out: shape {out.shape}, must be a C-ordered ({len(specs)}, {count_packed(n)})")
    for group, strips in _iterate_groups(specs, rows, rows, out.dtype, triangle=True):
        slots, growing = np.array(group.members), group.overflowing(out.dtype)
        for strip in strips:
            for q in growing:
                check_result(group.specs[q], strip.entries[q], strip.i, strip.j)
            first = strip.i // BAND * BAND
            at = count_packed(n) - count_packed(n - first) + (strip.i - first) * (n - first) + strip.j - first
            _pack_strip(strip.entries, slots, out, at, n - first)


def kernel_decisions(specs: Sequence[KernelSpec], weights: Array, X: object, Z: object, beta: Array) -> Array:
    """Return ``sum_q w_mq sum_s K_q(x_i, z_s) beta_ms`` for models m, ``(n, n_machines)``, without computing a kernel matrix.

    The kernels must satisfy :func:`has_number_kernels_only`; ``weights`` is ``(n_machines, n_specs)``, and ``beta`` has one row per model
    and one column per row of Z. The value of a row does not depend on other rows, except for the rounding of BLAS (:mod:`blocks`).
    """
    left, right = as_rows(X), as_rows(Z, "Z")
    out = np.zeros((row_shape(left)[0], len(weights)))
    for group, strips in _iterate_groups(specs, left, right, out.dtype, triangle=False):
        group_weights, growing = np.ascontiguousarray(weights[:, group.members]), group.overflowing(out.dtype)
        for strip in strips:
            for q in growing:
                check_result(group.specs[q], strip.entries[q], strip.i, strip.j)
            _, rows, width = strip.entries.shape
            _add_decisions(
                strip.entries, group_weights, np.ascontiguousarray(beta[:, strip.j : strip.j + width]), out[strip.i : strip.i + rows]
            )
    return out


def packed_bytes(specs: Sequence[KernelSpec], n: int, d: int) -> int:
    """Return an upper bound of the memory in bytes that :func:`packed_grams` takes for n rows of d features. The rows themselves and
    ``out`` are not included.

    The bound covers, for one set of features:

    * copies of the rows: selected, padded and transposed;
    * one tile for each kind of sums, and partial copies of the tiles;
    * the strips of all kernels.
    """
    size, rows, largest = tile_size(n), 8 * n + 8 * BLAS_SIDE, 0
    for (_, columns), members in group_by_columns(specs).items():
        kinds = len(make_plan(specs, members).sum_kinds)
        tiles = 8 * (size + SPARE_COLUMNS) * ((kinds + 1) * size + kinds * BAND)
        strips = max(STRIP_BYTES, 8 * len(members) * MIN_STRIP_ROWS * size)
        # Sparse rows over many features are multiplied a tile of rows at a time.
        width = d if columns is None else len(columns)
        largest = max(largest, COPIES * rows * (width + 1) + tiles + strips)
    return largest


class _Strip(NamedTuple):
    """Entries (k, rows, columns) of the kernels of a group, starting at row i and column j; the next strip overwrites them."""

    i: int
    j: int
    entries: Array


class _StripBuffers:
    """Work space shared by successive groups of kernels."""

    def __init__(self, size: int, dtype: np.dtype) -> None:
        self.tiles, self.dtype = Tiles(size), dtype
        self._entries = np.empty(0, dtype)
        self._sums: list[Array] = []

    def entries(self, k: int, rows: int, width: int) -> Array:
        if len(self._entries) < k * rows * width:
            self._entries = np.empty(k * rows * width, self.dtype)
        return self._entries[: k * rows * width].reshape(k, rows, width)

    def copy_part(self, number: int, part: Array) -> Array:
        """Return a copy of a part of a tile that is hardly wider than the part. The functions that compute kernels process complete rows,
        so wider rows would cost more.
        """
        rows, width = part.shape
        while len(self._sums) <= number:
            self._sums.append(np.zeros(0))
        if len(self._sums[number]) < rows * (width + SPARE_COLUMNS):
            self._sums[number] = np.zeros(rows * (width + SPARE_COLUMNS))
        copy = self._sums[number][: rows * (width + SPARE_COLUMNS)].reshape(rows, width + SPARE_COLUMNS)
        copy[:, :width] = part
        return copy


def _iterate_groups(
    specs: Sequence[KernelSpec], left: Rows, right: Rows, dtype: np.dtype, *, triangle: bool
) -> Iterator[tuple[NumberKernels, Iterator[_Strip]]]:
    """Yield the kernels of each set of features, with the strips of their block (with ``triangle``, only those of the packed bands)."""
    for spec in specs:
        check_columns(spec, n_columns(left))
    workspace = _StripBuffers(tile_size(max(row_shape(left)[0], row_shape(right)[0])), dtype)
    with one_thread(), np.errstate(over="ignore", invalid="ignore"):
        for members in group_by_columns(specs).values():
            group = NumberKernels.take(specs, members, left, right)
            yield group, _iterate_strips(group, workspace, triangle)


def _iterate_strips(group: NumberKernels, workspace: _StripBuffers, triangle: bool) -> Iterator[_Strip]:
    n, m = group.x.shape[0], group.z.shape[0]
    make = make_sums(group.x, group.z, group.plan.sum_kinds, workspace.tiles)
    for i in range(0, n, MAX_TILE):
        for j in range(i if triangle else 0, m, MAX_TILE):
            to = Target(workspace.tiles(0), i, j, min(MAX_TILE, n - i), min(MAX_TILE, m - j))
            sums = make(to)
            if group.z is group.x and i == j:
                complete_square(sums, to.height)
            # A band begins at its own first column.
            for top in range(0, to.height, BAND if triangle else MAX_TILE):
                rows, left = min(BAND, to.height - top) if triangle else to.height, top if triangle and i == j else 0
                part = {item: tile[top : top + rows, left : to.width] for item, tile in sums.items()}
                for at, entries in _write_strips(group, workspace, part):
                    yield _Strip(i + top + at, j + left, entries)


def _write_strips(group: NumberKernels, workspace: _StripBuffers, sums: dict[tuple[int, float], Array]) -> Iterator[tuple[int, Array]]:
    """Compute kernels from ``sums`` (height, width), a few rows at a time. Yield the first row and the entries (k, rows, width)."""
    narrow = {item: workspace.copy_part(q, part) for q, (item, part) in enumerate(sums.items())}
    height, width = next(iter(sums.values())).shape
    k, work = len(group.members), Workspace(width, symmetric=False)
    step = max(MIN_STRIP_ROWS, STRIP_BYTES // (workspace.dtype.itemsize * k * width))
    for top in range(0, height, step):
        rows = min(step, height - top)
        entries = workspace.entries(k, rows, width)
        to = Target(entries, 0, 0, rows, width)
        for item in group.plan.works:
            item.write(narrow[item.kind, item.gamma][top:], to, False, work)
        yield top, entries


@compiled
def _pack_strip(entries: Array, slots: Array, values: Array, at: int, pitch: int) -> None:
    """Write a strip of kernels to a bank; row r begins at ``at + r * pitch``."""
    for q in range(entries.shape[0]):
        for r in range(entries.shape[1]):
            e = entries[q, r]
            to = values[slots[q], at + r * pitch : at + r * pitch + e.size]
            for c in range(e.size):
                to[c] = e[c]


@compiled
def _add_decisions(entries: Array, weights: Array, beta: Array, out: Array) -> None:
    """Add the contribution of a strip of kernels (k, rows, width) to the decision values (rows, m)."""
    for r in range(entries.shape[1]):
        for m in range(weights.shape[0]):
            total = 0.0
            for q in range(entries.shape[0]):
                if weights[m, q] != 0.0:
                    total += weights[m, q] * dot_product(entries[q, r], beta[m])
            out[r, m] += total
