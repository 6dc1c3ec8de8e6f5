"""Blocks of Gram matrices: all kernels of a pair of row blocks together, sharing inner products, distances and exponentials.

* ``gram_block(specs, X)`` is exactly symmetric, and an entry does not depend on the other kernels of a call, nor on their order.
* An entry depends on its two rows alone if the rows are strings, if they are sparse, if there are at most ``MAX_DIRECT_COLUMNS`` features
  (:mod:`tiles`), or if the kernel is not a function of inner products or Euclidean distances. Any division into blocks then gives
  bit-identical results, and so does swapping the rows.
* In all other cases, BLAS is used in tiles of one fixed shape, padded with zeros. An entry then depends on its two rows alone if the BLAS
  library computes all entries of a tile alike (OpenBLAS does). With other libraries, different divisions agree up to rounding, as do
  dense and sparse input.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled, one_thread
from .distances import CHI2_PRODUCTS, GAUSSIANS, MINIMA, PRODUCTS, SQUARES, Chain, mirror_upper, plan_chain, single_rate
from .functions import KERNELS, kmer_counts
from .products import AnyKernel, ProductSpec, distinct_kernels
from .rows import MAX_NUMBER, DenseColumns, Rows, Side, as_rows, n_columns, row_shape, select_columns, text_rows
from .spec import KernelSpec, check_columns
from .tiles import (
    BLAS_SIDE,
    STRIP_ROWS,
    DenseSums,
    Powers,
    SparseSums,
    Sums,
    Target,
    Tiles,
    Workspace,
    single_decays,
    tile_size,
    write_decays,
    write_powers,
)

# Gaussian kernels that read one feature each, many of them: to the bits of :mod:`blocks`, without a tile of sums for every feature.
#
# A wide table has thousands of them; where blocks are small, what surrounds the tile of a feature takes longer than the tile.

FEWEST = 32  # features: those of fewer take no time, and no other function is compiled for them

Groups = dict[tuple[bool, tuple[int, ...] | None], list[int]]
"""Indices of kernels, grouped by two keys: whether the kernel is independent of sums over features, and which features it reads."""


def write_many_columns(
    specs: Sequence[KernelSpec], groups: Groups, left: Rows | DenseColumns, right: Rows | DenseColumns, out: Array
) -> Groups:
    """Write the Gaussian kernels of single features to float32 ``(k, n, m)``, if there are many such features; return the other groups."""
    single = ((key, members, [KERNELS[specs[q].name] for q in members]) for key, members in groups.items() if len(key[1] or ()) == 1)
    own = {key: members for key, members, families in single if all(one.decays and one.pairing == SQUARES for one in families)}
    if out.dtype != np.float32 or len(own) < FEWEST:
        return groups
    columns = [key[1][0] for key in own if key[1]]
    x = _features(left, columns)
    z = x if right is left else _features(right, columns)
    if x is None or z is None:
        return groups
    slots = [slot for members in own.values() for slot in members]
    gammas = [float(specs[slot].arguments["gamma"]) for slot in slots]
    rates = np.array([single_rate(gamma) for gamma in gammas], np.float32)
    starts = np.cumsum([0, *map(len, own.values())], dtype=np.int64)
    _write_columns(x, z, starts, np.array(gammas), rates, np.array(slots, np.int64), out)
    return {key: members for key, members in groups.items() if key not in own}


def _features(rows: Rows | DenseColumns, columns: Sequence[int]) -> FloatArray | None:
    """Return the features as rows of a matrix. The result is ``None`` for sparse rows, for rows that are not numeric, and if a number is
    not finite; the computation by tiles then reports the error.
    """
    if isinstance(rows, DenseColumns):
        found = rows.values.T[[rows.places[column] for column in columns]]
    elif isinstance(rows, np.ndarray) and rows.ndim == 2:
        found = rows.T[columns]
    else:
        return None
    found = np.ascontiguousarray(found, dtype=np.float64)
    return found if max(found.max(initial=0.0), -found.min(initial=0.0)) <= MAX_NUMBER else None


@compiled
def _write_columns(x: FloatArray, z: FloatArray, starts: IntArray, gammas: FloatArray, rates: Array, slots: IntArray, out: Array) -> None:
    """Write the kernels of features, given as rows ``(f, n)``, ``(f, m)``; feature f has the kernels ``starts[f]`` to ``starts[f + 1]``."""
    width = z.shape[1]
    squares, rounded = np.empty((STRIP_ROWS, width)), np.empty(width, np.float32)
    for f in range(len(x)):
        own = slice(starts[f], starts[f + 1])
        for first in range(0, x.shape[1], STRIP_ROWS):
            rows = min(STRIP_ROWS, x.shape[1] - first)
            for r in range(rows):
                for j in range(width):
                    t = x[f, first + r] - z[f, j]
                    squares[r, j] = t * t
            single_decays(squares, rows, width, gammas[own], rates[own], slots[own], out, first, 0, rounded)


def gram_block(
    specs: Sequence[AnyKernel], X: object, Z: object = None, *, dtype: DTypeLike = np.float64, out: Array | None = None
) -> Array:
    """Return the raw kernels of all pairs of rows of two blocks, ``(n_specs, n, m)``. The normalisation of the kernels is ignored; it is
    applied by :mod:`normalization`.

    ``X`` and ``Z`` are ``(n, d)`` and ``(m, d)``, dense or csr, or lists of strings. Without ``Z``, or if it is X itself, the result is the
    symmetric block of X. Sums and powers are computed in float64 for every ``dtype``; exponentials of float32 results are accurate to 1e-7.
    A C-ordered array of this type can be passed as ``out``; this avoids the page faults of a new array, which take longer than the
    arithmetic. Raises ValueError if the data do not suit a kernel or a value overflows; the message names the kernel and the row.
    """
    left = as_rows(X)
    right = left if Z is None or Z is X else as_rows(Z, "Z")
    if n_columns(left) != n_columns(right):
        raise ValueError(f"X has {_describe_width(left)}, Z has {_describe_width(right)}; both must have strings or equally many columns")
    out = _check_output((len(specs), row_shape(left)[0], row_shape(right)[0]), np.dtype(dtype), out)
    specs = [spec.single or spec if isinstance(spec, ProductSpec) else spec for spec in specs]
    plain = [spec for spec in specs if not isinstance(spec, ProductSpec)]
    if len(plain) < len(specs):
        kernels = distinct_kernels(specs)
        base = gram_block(kernels, X, Z, dtype=out.dtype) if kernels else np.empty((0, *out.shape[1:]), out.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            _fill_products(specs, base, kernels, out)
            for spec, block in zip(specs, out, strict=True):
                if isinstance(spec, ProductSpec) and not spec.is_bounded:
                    check_result(spec, block)
        return out
    for spec in plain:
        check_columns(spec, n_columns(left))
    with one_thread(), np.errstate(over="ignore", invalid="ignore"):
        size = tile_size(max(out.shape[1:]))
        work, tiles = Workspace(size, right is left), Tiles(size)
        of_numbers = [spec.columns for spec in plain if KERNELS[spec.name].pairing is not None]
        x = DenseColumns.of(left, of_numbers)
        z = x if right is left else DenseColumns.of(right, of_numbers)
        for (other, _), members in write_many_columns(plain, group_by_columns(plain), x, z, out).items():
            if other:
                for q in members:
                    (_fill_spectrum if plain[q].name == "spectrum" else _fill_callable)(plain[q], left, right, out[q])
            else:
                _fill_numbers(NumberKernels.take(plain, members, x, z), out, work, tiles)
    return out


def group_by_columns(specs: Sequence[KernelSpec]) -> Groups:
    """Return the indices of the kernels, grouped by two keys: whether the kernel is independent of sums over features, and which features
    it reads.
    """
    groups: Groups = {}
    for q, spec in enumerate(specs):
        groups.setdefault((KERNELS[spec.name].pairing is None, spec.columns), []).append(q)
    return groups


def _fill_products(specs: Sequence[AnyKernel], base: Array, kernels: Sequence[KernelSpec], out: Array) -> None:
    """Fill ``out`` ``(n_specs, ...)`` with the kernels and products ``specs``, given the entries ``base`` of the distinct ``kernels``."""
    places = {spec: index for index, spec in enumerate(kernels)}
    for spec, block in zip(specs, out, strict=True):
        if isinstance(spec, ProductSpec):
            spec.block(places, base, block)
        else:
            block[...] = base[places[spec]]


def _describe_width(rows: Rows) -> str:
    return "strings" if rows.ndim == 1 else f"{row_shape(rows)[1]} columns"


def _check_output(shape: tuple[int, int, int], dtype: np.dtype, out: Array | None) -> Array:
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype is {dtype}; it must be float32 or float64")
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(
            f"out has shape {out.shape} and type {out.dtype}; it must be a C-ordered writeable array of shape {shape} and type {dtype}"
        )
    return out


def _group_by(items: Iterable[int], key: Callable[[int], Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


@dataclass(frozen=True)
class _SumKernels:
    kind: int
    gamma: float
    chain: Chain | None
    powers: tuple[Powers, ...]

    def write(self, sums: Array, to: Target, mirror: bool, work: Workspace) -> None:
        if self.chain is not None:
            write_decays(sums, self.chain, to, mirror, work)
        for powers in self.powers:
            write_powers(sums, powers, to, mirror, work)

    def at(self, places: Array) -> _SumKernels:
        """Return the same kernels with their results at other positions."""
        chain = None if self.chain is None else self.chain._replace(slots=places[self.chain.slots])
        powers = tuple(Powers(one.gamma, one.coef0, one.degrees, places[one.slots]) for one in self.powers)
        return _SumKernels(self.kind, self.gamma, chain, powers)


def _sum_kernels(specs: Sequence[KernelSpec], kind: int, gamma: float, slots: list[int]) -> _SumKernels:
    decaying = [q for q in slots if KERNELS[specs[q].name].decays]
    others = _group_by((q for q in slots if q not in decaying), lambda q: _power_parameters(specs[q])[:2])
    plan = plan_chain([float(specs[q].arguments["gamma"]) for q in decaying], decaying) if decaying else None
    powers = []
    for base, group in others.items():
        degrees, places = np.array(sorted((_power_parameters(specs[q])[2], q) for q in group), dtype=np.int64).T.copy()
        powers.append(Powers(base[0], base[1], degrees, places))
    return _SumKernels(kind, gamma, plan, tuple(powers))


def _power_parameters(spec: KernelSpec) -> tuple[float, float, int]:
    """Return gamma, coef0 and degree of a kernel ``(gamma sum + coef0)^degree``."""
    of = spec.arguments
    return (float(of["gamma"]), float(of["coef0"]), int(of["degree"])) if spec.name == "poly" else (1.0, 0.0, 1)


class NumberPlan(NamedTuple):
    """The sums and functions needed for some kernels of numbers over the same features; slots are indices of these kernels.

    * ``sum_kinds``: the kinds of sums, each with its gamma.
    * ``signed``: the kernels that need values >= 0.
    * ``growing``: the kernels that may overflow, each with gamma, coef0, degree, and whether it is a function of inner products.
    """

    works: list[_SumKernels]
    sum_kinds: set[tuple[int, float]]
    signed: list[int]
    growing: list[tuple[int, float, float, int, bool]]


def make_plan(specs: Sequence[KernelSpec], members: Sequence[int]) -> NumberPlan:
    return _make_plan(tuple([(specs[q].name, specs[q].params) for q in members]))


@lru_cache(maxsize=1 << 10)
def _make_plan(kinds: tuple[tuple[str, Any], ...]) -> NumberPlan:
    # Cached: a grid has the same kernels on every feature, and in every block again.
    specs = [KernelSpec(*kind) for kind in kinds]
    pairings = [KERNELS[spec.name].pairing for spec in specs]
    # The additive Gaussian has its gamma inside the sum.
    sums = _group_by(range(len(specs)), lambda q: (pairings[q], float(specs[q].arguments["gamma"]) if pairings[q] == GAUSSIANS else 0.0))
    works = [_sum_kernels(specs, kind, gamma, slots) for (kind, gamma), slots in sorted(sums.items())]
    signed = [q for q, spec in enumerate(specs) if KERNELS[spec.name].rows == "non-negative"]
    grows = [(q, spec, KERNELS[spec.name]) for q, spec in enumerate(specs) if not KERNELS[spec.name].decays]
    growing = [(q, *_power_parameters(spec), kind.pairing == PRODUCTS) for q, spec, kind in grows]
    return NumberPlan(works, {(item.kind, item.gamma) for item in works}, signed, growing)


class NumberKernels(NamedTuple):
    """Kernels of numbers over the same features, with the rows of both sides; ``members`` are the kernels' indices among all kernels."""

    members: list[int]
    specs: list[KernelSpec]
    plan: NumberPlan
    x: Side
    z: Side

    @classmethod
    def take(cls, specs: Sequence[KernelSpec], members: list[int], left: Rows | DenseColumns, right: Rows | DenseColumns) -> NumberKernels:
        """Return some kernels over the same features, with their plan and rows. Raises ValueError if the rows do not suit every kernel."""
        chosen = [specs[q] for q in members]
        if isinstance(left, np.ndarray) and left.ndim == 1:
            raise ValueError(f"kernel {chosen[0]} reads numbers; X holds strings")
        x = Side.take(left, "X", chosen[0].columns, chosen[0])
        z = x if right is left else Side.take(right, "Z", chosen[0].columns, chosen[0])
        plan = make_plan(specs, members)
        for q in plan.signed:
            _check_signs(chosen[q], (x, z))
        return cls(members, chosen, plan, x, z)

    def overflowing(self, dtype: np.dtype) -> list[int]:
        """Return the indices of the kernels whose entries may be too large for ``dtype``."""
        limit = 0.999 * math.log(float(np.finfo(dtype).max))
        places = []
        for q, gamma, coef0, degree, inner in self.plan.growing:
            product = self.x.peak * self.z.peak if inner else max(1.0, self.x.peak, self.z.peak)
            bound = gamma * self.x.shape[1] * product + coef0
            if degree * math.log(max(bound, 1.0)) > limit:
                places.append(q)
        return places


def _fill_numbers(group: NumberKernels, out: Array, work: Workspace, tiles: Tiles) -> None:
    x, z, works = group.x, group.z, [item.at(np.array(group.members)) for item in group.plan.works]
    for to, tile in _iterate_tiles(x, z, group.plan.sum_kinds, out, tiles):
        for item in works:
            item.write(tile[item.kind, item.gamma], to, z is x and to.i != to.j, work)
    for q in group.overflowing(out.dtype):
        check_result(group.specs[q], out[group.members[q]])


def _check_signs(spec: KernelSpec, sides: tuple[Side, ...]) -> None:
    if KERNELS[spec.name].rows == "non-negative":
        for side in sides:
            if side.lowest < 0.0:
                side.refuse(side.entries < 0.0, spec, "this kernel needs values >= 0")


def check_result(spec: AnyKernel, block: Array, top: int = 0, side: int = 0) -> None:
    """Raise ValueError for entries that are not finite; the message names the kernel and both rows. The block begins at row ``top``, column
    ``side``.
    """
    bad = ~np.isfinite(block)
    if bad.any():
        i, j = (int(indices[0]) for indices in np.nonzero(bad))
        raise ValueError(
            f"kernel {spec} gives {block[i, j]} for row {top + i} of X and row {side + j} of Z; values must be finite in {block.dtype}"
        )


def make_sums(x: Side, z: Side, sum_kinds: set[tuple[int, float]], tiles: Tiles) -> DenseSums | SparseSums:
    """Return an object that computes the sums over pairs of rows, tile by tile."""
    return (SparseSums if x.sparse else DenseSums)(x, z, sum_kinds, tiles)


def _iterate_tiles(x: Side, z: Side, sum_kinds: set[tuple[int, float]], out: Array, tiles: Tiles) -> Iterator[tuple[Target, Sums]]:
    """Yield target and sums of the tiles of a block; for a symmetric block, only of its upper triangle."""
    size, make = tiles.size, make_sums(x, z, sum_kinds, tiles)
    for i in range(0, x.shape[0], size):
        for j in range(i if z is x else 0, z.shape[0], size):
            to = Target(out, i, j, min(size, x.shape[0] - i), min(size, z.shape[0] - j))
            sums = make(to)
            if z is x and i == j:
                complete_square(sums, to.height)
            yield to, sums


def complete_square(sums: Sums, n: int) -> None:
    """Complete the sums of a square block on the diagonal, of n rows, from its upper triangle; the distance of a row to itself is zero."""
    for (kind, _), tile in sums.items():
        mirror_upper(tile, n)
        if kind == SQUARES:
            np.fill_diagonal(tile, 0.0)


def _fill_spectrum(spec: KernelSpec, left: Rows, right: Rows, out: Array) -> None:
    blocks = [text_rows(left, spec, "X")] + ([] if right is left else [text_rows(right, spec, "Z")])
    counts = kmer_counts(blocks, int(spec.arguments["k"]))
    transposed = sp.csr_array(counts[-1].T)
    for i in range(0, len(out), BLAS_SIDE):
        out[i : i + BLAS_SIDE] = (counts[0][i : i + BLAS_SIDE] @ transposed).toarray()


def _fill_callable(spec: KernelSpec, left: Rows, right: Rows, out: Array) -> None:
    x, z = (select_columns(rows, spec.columns) for rows in (left, right))
    keywords = {key: value for key, value in spec.params if key != "function"}
    block = np.asarray(_import_function(spec)(x, x if right is left else z, **keywords), dtype=np.float64)
    if block.shape != out.shape:
        raise ValueError(
            f"kernel {spec} returned shape {block.shape} for {out.shape[0]} rows of X and {out.shape[1]} of Z; it must return {out.shape}"
        )
    check_result(spec, block)
    out[:] = block
    if right is left:
        off = np.abs(block - block.T)
        if off.size and off.max() > 1e-6 * np.abs(block).max():
            i, j = divmod(int(off.argmax()), len(block))
            raise ValueError(f"kernel {spec} is not symmetric: k(x_{i}, x_{j}) = {block[i, j]:g}, but k(x_{j}, x_{i}) = {block[j, i]:g}")
        mirror_upper(out, len(out))


def _import_function(spec: KernelSpec) -> Callable[..., Any]:
    module, _, name = str(spec.arguments["function"]).partition(":")
    try:
        function: Any = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"kernel {spec} cannot be imported: {error}") from error
    return function


def gram_diagonal(specs: Sequence[AnyKernel], X: object) -> Array:
    """Return k(x, x) of each row for each raw kernel, ``(n_specs, n)`` float64: the diagonal of :func:`gram_block` up to rounding."""
    rows = as_rows(X)
    plain = [spec for spec in specs if not isinstance(spec, ProductSpec)]
    if len(plain) < len(specs):
        kernels, n = distinct_kernels(specs), row_shape(rows)[0]
        out = np.empty((len(specs), n))
        _fill_products(specs, gram_diagonal(kernels, X) if kernels else np.empty((0, n)), kernels, out)
        return out
    for spec in plain:
        check_columns(spec, n_columns(rows))
    out = np.empty((len(specs), row_shape(rows)[0]))
    for (other, _), members in group_by_columns(plain).items():
        if other:
            for q in members:
                for i in range(0, out.shape[1], BLAS_SIDE):
                    out[q, i : i + BLAS_SIDE] = gram_block([plain[q]], rows[i : i + BLAS_SIDE])[0].diagonal()
        else:
            _number_diagonals(plain, members, rows, out)
    return out


def _number_diagonals(specs: Sequence[KernelSpec], members: list[int], rows: Rows, out: Array) -> None:
    first = specs[members[0]]
    if rows.ndim == 1:
        raise ValueError(f"kernel {first} reads numbers; X holds strings")
    x = Side.take(rows, "X", first.columns, first)
    for q in members:
        spec = specs[q]
        _check_signs(spec, (x,))
        gamma, coef0, degree = _power_parameters(spec)
        out[q] = 1.0 if KERNELS[spec.name].decays else (gamma * _self_sums(KERNELS[spec.name].pairing, x) + coef0) ** degree


def _self_sums(kind: int | None, x: Side) -> Array | float:
    """Return, for each row x, the sum over features of the terms of kind ``kind``, with both numbers of each term taken from x."""
    if kind in (MINIMA, CHI2_PRODUCTS):
        return np.asarray(x.values.sum(axis=1))
    return float(x.shape[1]) if kind == GAUSSIANS else x.norms
