"""Blocks of Gram matrices: all kernels of a pair of row blocks at once, sharing inner products, distances and exponentials.

Kernels over the same features share one tile of inner products or distances at a time; in float64 all values of gamma that are powers of
two apart share one exponential (:mod:`exponentials`), all degrees of one polynomial their powers.

Which bits are equal
--------------------
* ``gram_block(specs, X)`` is exactly symmetric.
* An entry does not depend on which other kernels are asked for, nor on their order.
* For strings, sparse rows, at most ``DIRECT`` features (:mod:`pair_tiles`), and every kernel that is not a function of inner products or
  Euclidean distances, an entry depends on its two rows alone: any cut into blocks gives the same bits, and so does swapping X and Z.
* The rest goes through BLAS in tiles of one fixed shape, padded with zeros, so an entry depends on its two rows as long as the BLAS library
  treats all places of a tile alike (OpenBLAS does); else different cuts agree up to rounding.
* Dense and sparse input, and different machines, agree up to rounding.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..jit import one_thread
from .distances import CHI2_PRODUCTS, GAUSSIANS, MINIMA, PRODUCTS, SQUARES, mirror_upper
from .exponentials import Chain, chain
from .functions import family
from .pair_tiles import DenseSums, SparseSums, Sums, Tiles
from .products import AnyKernel, ProductSpec, distinct_kernels
from .rows import Rows, Side, as_rows, n_columns, shape, subset, text_rows
from .spec import KernelSpec, check_columns
from .strings import kmer_counts
from .tiles import SQUARE, Powers, Target, Workspace, edge, write_decays, write_powers

Array = np.ndarray


def gram_block(specs: Sequence[AnyKernel], X: Any, Z: Any = None, *, dtype: Any = np.float64, out: Array | None = None) -> Array:
    """Return the raw kernels of all pairs of rows of two blocks.

    Parameters
    ----------
    specs : sequence of KernelSpec or ProductSpec
        Their normalisation is ignored: see :mod:`normalization`.
    X : ndarray or csr_array of shape (n, d), or n strings
    Z : like X, (m, d), optional
        Without it, or if it is X itself, the result is the symmetric block of X.
    dtype : {float32, float64}
        Of the result. Sums and powers are computed in float64 either way; exponentials of float32 results are within 1e-7.
    out : ndarray of shape (n_specs, n, m), optional
        C-ordered array of that type to fill. Re-using one saves the page faults of a fresh one, which cost more than the arithmetic.

    Returns
    -------
    ndarray of shape (n_specs, n, m)

    Raises
    ------
    ValueError
        If the data do not suit a kernel (numbers against strings, negative or not finite values, a column outside the data), X and Z
        differ in width, or a value overflows ``dtype``; the message names the kernel and the row.
    """
    left = as_rows(X)
    right = left if Z is None or Z is X else as_rows(Z, "Z")
    if n_columns(left) != n_columns(right):
        raise ValueError(f"X has {_width(left)}, Z has {_width(right)}; the two sides of a block need the same")
    out = _output((len(specs), shape(left)[0], shape(right)[0]), np.dtype(dtype), out)
    plain = [spec for spec in specs if not isinstance(spec, ProductSpec)]
    if len(plain) < len(specs):
        return _products(specs, X, Z, out)
    for spec in plain:
        check_columns(spec, n_columns(left))
    with one_thread(), np.errstate(over="ignore", invalid="ignore"):
        room: _Room | None = None
        for (other, _), members in by_columns(plain).items():
            if other:
                _fill_others(plain, members, left, right, out)
            else:
                room = room or _Room.of(out, right is left)
                _fill_numbers(plain, members, left, right, out, room)
    return out


def by_columns(specs: Sequence[KernelSpec]) -> dict[tuple[bool, tuple[int, ...] | None], list[int]]:
    """Return the places of kernels by whether they are of other kinds than functions of sums over features, and by features."""
    return _by(range(len(specs)), lambda q: (family(specs[q].name).pairing is None, specs[q].columns))


def _products(specs: Sequence[AnyKernel], X: Any, Z: Any, out: Array) -> Array:
    """Fill a block of products of kernels: every kernel among their factors is computed once."""
    kernels = distinct_kernels(specs)
    base = gram_block(kernels, X, Z, dtype=out.dtype) if kernels else np.empty((0, *out.shape[1:]), out.dtype)
    places = {spec: place for place, spec in enumerate(kernels)}
    with np.errstate(over="ignore", invalid="ignore"):
        for spec, block in zip(specs, out, strict=True):
            if isinstance(spec, ProductSpec):
                spec.block(places, base, block)
                check_result(spec, block)
            else:
                block[...] = base[places[spec]]
    return out


def _width(rows: Rows) -> str:
    return "strings" if rows.ndim == 1 else f"{shape(rows)[1]} columns"


def _output(shape: tuple[int, int, int], dtype: np.dtype, out: Array | None) -> Array:
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype is {dtype}; kernels are float32 or float64")
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"out has shape {out.shape} and type {out.dtype}; it must be a C-ordered writeable array of {shape} {dtype}")
    return out


def _by(items: Any, key: Callable[[int], Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


# -- kernels of numbers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """Kernels that are functions of one kind of sum."""

    kind: int
    gamma: float
    chain: Chain | None
    powers: tuple[Powers, ...]

    def write(self, sums: Array, to: Target, mirror: bool, work: Workspace) -> None:
        if self.chain is not None:
            write_decays(sums, self.chain, to, mirror, work)
        for powers in self.powers:
            write_powers(sums, powers, to, mirror, work)

    def at(self, places: Array) -> _Work:
        """Return the same work with its results at other places."""
        chain = None if self.chain is None else self.chain._replace(slots=places[self.chain.slots])
        powers = tuple(Powers(one.gamma, one.coef0, one.degrees, places[one.slots]) for one in self.powers)
        return _Work(self.kind, self.gamma, chain, powers)


def _plan(specs: Sequence[KernelSpec], members: list[int]) -> list[_Work]:
    """Return the work of kernels of numbers over the same features."""
    sums = _by(members, lambda q: (family(specs[q].name).pairing, specs[q].arguments.get("gamma", 0.0) if _inner(specs[q]) else 0.0))
    return [_work(specs, kind, gamma, slots) for (kind, gamma), slots in sorted(sums.items())]


def _inner(spec: KernelSpec) -> bool:
    # Here gamma stands inside the sum.
    return family(spec.name).pairing == GAUSSIANS


def _work(specs: Sequence[KernelSpec], kind: int, gamma: float, slots: list[int]) -> _Work:
    decaying = [q for q in slots if family(specs[q].name).decays]
    others = _by([q for q in slots if q not in decaying], lambda q: _power(specs[q])[:2])
    plan = chain([float(specs[q].arguments["gamma"]) for q in decaying], decaying) if decaying else None
    powers = []
    for base, found in others.items():
        ordered = sorted((_power(specs[q])[2], q) for q in found)
        degrees, places = np.array(ordered, dtype=np.int64).T.copy()
        powers.append(Powers(base[0], base[1], degrees, places))
    return _Work(kind, gamma, plan, tuple(powers))


def _power(spec: KernelSpec) -> tuple[float, float, int]:
    """Return gamma, coef0 and degree of a kernel ``(gamma sum + coef0)^degree``."""
    if spec.name != "poly":
        return 1.0, 0.0, 1
    given = spec.arguments
    return float(given["gamma"]), float(given["coef0"]), int(given["degree"])


class Plan(NamedTuple):
    """What is to be computed of some kernels of numbers over the same features, whichever these are; slots are places among them.

    ``wanted`` are the kinds of sums, with gamma; ``signed`` the kernels of values >= 0, ``growing`` those that may overflow, with gamma,
    coef0, degree and whether of inner products.
    """

    works: list[_Work]
    wanted: set[tuple[int, float]]
    signed: list[int]
    growing: list[tuple[int, float, float, int, bool]]


@lru_cache(maxsize=1 << 10)
def _planned(kinds: tuple[tuple[str, Any], ...]) -> Plan:
    # A grid asks for the same kernels on every feature, and again in every block.
    specs = [KernelSpec(*kind) for kind in kinds]
    works = _plan(specs, list(range(len(specs))))
    signed = [q for q, spec in enumerate(specs) if family(spec.name).rows == "non-negative"]
    grows = [(q, spec, family(spec.name)) for q, spec in enumerate(specs) if not family(spec.name).decays]
    growing = [(q, *_power(spec), kind.pairing == PRODUCTS) for q, spec, kind in grows]
    return Plan(works, {(item.kind, item.gamma) for item in works}, signed, growing)


class NumberKernels(NamedTuple):
    """Kernels of numbers over the same features, and the rows of both sides as they read them.

    ``members`` are their places among all kernels, ``specs`` the kernels themselves.
    """

    members: list[int]
    specs: list[KernelSpec]
    plan: Plan
    x: Side
    z: Side

    @classmethod
    def take(cls, specs: Sequence[KernelSpec], members: list[int], left: Rows, right: Rows) -> NumberKernels:
        """Return some kernels of one set of features with what is to be computed of them.

        Raises
        ------
        ValueError
            If the rows do not suit a kernel.
        """
        own = [specs[q] for q in members]
        if left.ndim == 1:
            raise ValueError(f"kernel {own[0]} reads numbers; X holds strings")
        x = Side.take(left, "X", own[0].columns, own[0])
        z = x if right is left else Side.take(right, "Z", own[0].columns, own[0])
        plan = _planned(tuple((spec.name, spec.params) for spec in own))
        for q in plan.signed:
            _check_signs(own[q], (x, z))
        return cls(members, own, plan, x, z)

    def overflowing(self, dtype: np.dtype) -> list[int]:
        """Return the places among these kernels of those whose entries may be too large for a type."""
        most = 0.999 * math.log(float(np.finfo(dtype).max))
        found = []
        for q, gamma, coef0, degree, inner in self.plan.growing:
            product = self.x.peak * self.z.peak if inner else max(1.0, self.x.peak, self.z.peak)
            bound = gamma * self.x.shape[1] * product + coef0
            if degree * math.log(max(bound, 1.0)) > most:
                found.append(q)
        return found


class _Room(NamedTuple):
    """Arrays that the kernels of one set of features after the other are computed in."""

    work: Workspace
    tiles: Tiles

    @classmethod
    def of(cls, out: Array, symmetric: bool) -> _Room:
        size = edge(max(out.shape[1:]))
        return cls(Workspace(size, symmetric), Tiles(size))


def _fill_numbers(specs: Sequence[KernelSpec], members: list[int], left: Rows, right: Rows, out: Array, room: _Room) -> None:
    group = NumberKernels.take(specs, members, left, right)
    x, z, places = group.x, group.z, np.array(members)
    works = [item.at(places) for item in group.plan.works]
    for to, tile in _tiles(x, z, group.plan.wanted, out, room.tiles):
        for item in works:
            item.write(tile[item.kind, item.gamma], to, z is x and to.i != to.j, room.work)
    for q in group.overflowing(out.dtype):
        check_result(group.specs[q], out[members[q]])


def _check_signs(spec: KernelSpec, sides: tuple[Side, ...]) -> None:
    if family(spec.name).rows == "non-negative":
        for side in sides:
            if side.lowest < 0.0:
                side.refuse(side.entries < 0.0, spec, "this kernel needs values >= 0")


def check_result(spec: AnyKernel, block: Array, top: int = 0, side: int = 0) -> None:
    """Refuse entries that are not finite; the block begins at row ``top``, column ``side``.

    Raises
    ------
    ValueError
        The message names the kernel and both rows.
    """
    bad = ~np.isfinite(block)
    if bad.any():
        i, j = (int(where[0]) for where in np.nonzero(bad))
        raise ValueError(
            f"kernel {spec} gives {block[i, j]} for row {top + i} of X and row {side + j} of Z; a kernel must be finite in {block.dtype}"
        )


def sums_of(x: Side, z: Side, wanted: set[tuple[int, float]], tiles: Tiles) -> DenseSums | SparseSums:
    """Return what gives the sums of the pairs of a tile of rows."""
    return (SparseSums if x.sparse else DenseSums)(x, z, wanted, tiles)


def _tiles(x: Side, z: Side, wanted: set[tuple[int, float]], out: Array, tiles: Tiles) -> Iterator[tuple[Target, Sums]]:
    """Yield place and sums of the tiles of a block; of a symmetric one the upper triangle."""
    size, make = tiles.size, sums_of(x, z, wanted, tiles)
    for i in range(0, x.shape[0], size):
        for j in range(i if z is x else 0, z.shape[0], size):
            to = Target(out, i, j, min(size, x.shape[0] - i), min(size, z.shape[0] - j))
            sums = make(to)
            if z is x and i == j:
                symmetric(sums, to.height)
            yield to, sums


def symmetric(sums: Sums, n: int) -> None:
    """Complete the sums of a square of n rows on the diagonal from its upper triangle; its distances to itself are zero."""
    for (kind, _), tile in sums.items():
        mirror_upper(tile, n)
        if kind == SQUARES:
            np.fill_diagonal(tile, 0.0)


# -- strings and callables -------------------------------------------------------------------------------------------------


def _fill_others(specs: Sequence[KernelSpec], members: list[int], left: Rows, right: Rows, out: Array) -> None:
    for q in members:
        (_fill_spectrum if specs[q].name == "spectrum" else _fill_callable)(specs[q], left, right, out[q])


def _fill_spectrum(spec: KernelSpec, left: Rows, right: Rows, out: Array) -> None:
    blocks = [text_rows(left, spec, "X")] + ([] if right is left else [text_rows(right, spec, "Z")])
    counts = kmer_counts(blocks, int(spec.arguments["k"]))
    turned = sp.csr_array(counts[-1].T)
    for i in range(0, len(out), SQUARE):
        out[i : i + SQUARE] = (counts[0][i : i + SQUARE] @ turned).toarray()


def _fill_callable(spec: KernelSpec, left: Rows, right: Rows, out: Array) -> None:
    x, z = (subset(rows, spec.columns) for rows in (left, right))
    found = np.asarray(_function(spec)(x, x if right is left else z, **_keywords(spec)), dtype=np.float64)
    if found.shape != out.shape:
        raise ValueError(f"kernel {spec} returned shape {found.shape} for {out.shape[0]} rows of X and {out.shape[1]} of Z")
    check_result(spec, found)
    out[:] = found
    if right is left:
        _check_symmetry(spec, found)
        mirror_upper(out, len(out))


def _check_symmetry(spec: KernelSpec, block: Array) -> None:
    off = np.abs(block - block.T)
    if off.size and off.max() > 1e-6 * np.abs(block).max():
        i, j = divmod(int(off.argmax()), len(block))
        raise ValueError(f"kernel {spec} is not symmetric: {block[i, j]:g} for rows {i}, {j} and {block[j, i]:g} for rows {j}, {i}")


def _function(spec: KernelSpec) -> Callable[..., Any]:
    module, _, name = str(spec.arguments["function"]).partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"kernel {spec} cannot be imported: {error}") from error
    return found


def _keywords(spec: KernelSpec) -> dict[str, Any]:
    return {key: value for key, value in spec.params if key != "function"}


# -- diagonals -------------------------------------------------------------------------------------------------------------


def gram_diagonal(specs: Sequence[AnyKernel], X: Any) -> Array:
    """Return k(x, x) of every row for every raw kernel, without the block.

    Parameters
    ----------
    specs : sequence of KernelSpec
    X : ndarray or csr_array of shape (n, d), or n strings

    Returns
    -------
    ndarray of shape (n_specs, n)
        float64, equal to the diagonal of :func:`gram_block` up to rounding.

    Raises
    ------
    ValueError
        As :func:`gram_block`.
    """
    rows = as_rows(X)
    plain = [spec for spec in specs if not isinstance(spec, ProductSpec)]
    if len(plain) < len(specs):
        return _product_diagonals(specs, X, shape(rows)[0])
    for spec in plain:
        check_columns(spec, n_columns(rows))
    out = np.empty((len(specs), shape(rows)[0]))
    for (other, _), members in by_columns(plain).items():
        if other:
            for q in members:
                out[q] = _diagonal_by_blocks(plain[q], rows)
        else:
            _number_diagonals(plain, members, rows, out)
    return out


def _product_diagonals(specs: Sequence[AnyKernel], X: Any, n: int) -> Array:
    kernels = distinct_kernels(specs)
    base, out = (gram_diagonal(kernels, X) if kernels else np.empty((0, n))), np.empty((len(specs), n))
    places = {spec: place for place, spec in enumerate(kernels)}
    for spec, found in zip(specs, out, strict=True):
        if isinstance(spec, ProductSpec):
            spec.block(places, base, found)
        else:
            found[...] = base[places[spec]]
    return out


def _diagonal_by_blocks(spec: KernelSpec, rows: Rows) -> Array:
    pieces = [np.zeros(0)]
    pieces += [gram_block([spec], rows[i : i + SQUARE])[0].diagonal() for i in range(0, shape(rows)[0], SQUARE)]
    return np.concatenate(pieces)


def _number_diagonals(specs: Sequence[KernelSpec], members: list[int], rows: Rows, out: Array) -> None:
    first = specs[members[0]]
    if rows.ndim == 1:
        raise ValueError(f"kernel {first} reads numbers; X holds strings")
    x = Side.take(rows, "X", first.columns, first)
    for q in members:
        spec = specs[q]
        _check_signs(spec, (x,))
        gamma, coef0, degree = _power(spec)
        out[q] = 1.0 if family(spec.name).decays else (gamma * _self_sums(family(spec.name).pairing, x) + coef0) ** degree


def _self_sums(kind: int | None, x: Side) -> Array | float:
    """Return the sum over features of the term of a number with itself."""
    if kind in (MINIMA, CHI2_PRODUCTS):
        return np.asarray(x.values.sum(axis=1))
    return float(x.shape[1]) if kind == GAUSSIANS else x.norms
