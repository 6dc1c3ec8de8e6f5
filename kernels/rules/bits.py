"""Conjunctions as packed bits: products with 0/1 columns by table look-ups, and their weighted Gram matrices by counting bits.

A hull of W conjunctions over n rows is stored twice: as *columns*, (W, ceil(n / 64)) words, for conjunctions and counts, and as *rows*, (n,
ceil(W / 8)) bytes, for products. A product with eight columns at a time is one look-up per row in a table of their 256 possible sums, so
Phi f and Phi'u take n W / 8 additions. For rows of equal weight, sum_i c_i phi_v(i) phi_w(i) takes n / 64 bit counts per pair.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from ..jit import compiled

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

_M1 = np.uint64(0x5555555555555555)
_M2 = np.uint64(0x3333333333333333)
_M4 = np.uint64(0x0F0F0F0F0F0F0F0F)
_H01 = np.uint64(0x0101010101010101)
_S1, _S2, _S4, _S56 = (np.uint64(s) for s in (1, 2, 4, 56))


@compiled(inline=True)
def popcount(x: np.uint64) -> np.int64:
    """Return the number of bits set in a word."""
    x = x - ((x >> _S1) & _M1)
    x = (x & _M2) + ((x >> _S2) & _M2)
    x = (x + (x >> _S4)) & _M4
    # Signed: a sum of signed and unsigned integers is a float to numba.
    return np.int64((x * _H01) >> _S56)


def pack_bits(flags: NDArray[np.bool_] | Bytes) -> Words:
    """Return (k, n) zeros and ones as (k, ceil(n / 64)) words; bit i % 64 of word i // 64 is entry i."""
    k, n = flags.shape
    words = np.zeros((k, 8 * max(-(-n // 64), 1)), np.uint8)
    packed = np.packbits(flags, axis=1, bitorder="little")
    words[:, : packed.shape[1]] = packed
    return words.view(np.uint64)


MAX_UNPACKED_BYTES = 16 << 20  # Bytes of propositions that are unpacked at a time.


def unpack_bits(words: Words, n: int) -> Bytes:
    """Invert `pack_bits`: return (k, n) zeros and ones."""
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, count=n, bitorder="little")


def set_bits(words: Words) -> list[list[int]]:
    """Return the positions of the ones in each row of words, ascending."""
    node, word = np.nonzero(words)
    which, bit = np.nonzero(unpack_bits(words[node, word][:, None], 64))
    ends = np.cumsum(np.bincount(node[which], minlength=len(words))).tolist()
    places = (64 * word[which] + bit).tolist()
    return [places[lo:hi] for lo, hi in zip([0, *ends[:-1]], ends, strict=True)] if len(words) else []


def pack_rows(flags: Bytes) -> Bytes:
    """Return the rows of (k, n) zeros and ones as (n, ceil(k / 8)) bytes, at least one byte per row."""
    k, n = flags.shape
    return np.packbits(flags.T, axis=1, bitorder="little") if k else np.zeros((n, 1), np.uint8)


def pack_conjunctions(items: list[list[int]], columns: Words, n: int) -> Words:
    """Return the packed columns of conjunctions of columns; an empty list gives a column of ones for all n rows."""
    if not items:
        return np.zeros((0, columns.shape[1]), np.uint64)
    every = pack_bits(np.ones((1, n), np.uint8))[0]
    return np.stack([np.bitwise_and.reduce(columns[item], axis=0) if item else every for item in items])


def count_ones(words: Words) -> IntArray:
    """Return the number of ones of every packed column."""
    return np.bitwise_count(words).sum(axis=1, dtype=np.int64)


@compiled
def apply_columns(rows: Bytes, coef: FloatArray) -> FloatArray:
    """Return Phi coef, shape (n,)."""
    n, nb = rows.shape
    table = np.zeros((nb, 256))
    for b in range(nb):
        for k in range(min(8, coef.size - 8 * b)):
            size = 1 << k
            value = coef[8 * b + k]
            for v in range(size):
                table[b, size + v] = table[b, v] + value
        filled = 1 << max(min(8, coef.size - 8 * b), 0)
        for v in range(filled, 256):
            table[b, v] = table[b, v % filled]
    out = np.empty(n)
    for i in range(n):
        total = 0.0
        for b in range(nb):
            total += table[b, rows[i, b]]
        out[i] = total
    return out


@compiled
def apply_transpose(rows: Bytes, u: FloatArray, k: int) -> FloatArray:
    """Return Phi'u, shape (k,)."""
    n, nb = rows.shape
    sums = np.zeros((nb, 256))
    for i in range(n):
        if u[i] != 0.0:
            for b in range(nb):
                sums[b, rows[i, b]] += u[i]
    out = np.zeros(k)
    for b in range(nb):
        # Halve the table bit by bit, from the highest down: what is left after each half is the table of the lower bits.
        for bit in range(7, -1, -1):
            size = 1 << bit
            total = 0.0
            for v in range(size):
                total += sums[b, size + v]
                sums[b, v] += sums[b, size + v]
            if 8 * b + bit < k:
                out[8 * b + bit] = total
    return out


@compiled
def zone_columns(rows: Bytes, zone: IntArray, keep: IntArray) -> Words:
    """Return some columns restricted to some rows, packed again, so that counts read only as many words as the zone needs."""
    out = np.zeros((keep.size, (zone.size + 63) // 64), np.uint64)
    for at in range(zone.size):
        bit = np.uint64(1) << np.uint64(at & 63)
        for v in range(keep.size):
            if (rows[zone[at], keep[v] >> 3] >> (keep[v] & 7)) & 1:
                out[v, at >> 6] |= bit
    return out


@compiled
def weighted_gram(columns: Words, planes: Words, weights: FloatArray, out: FloatArray) -> None:
    """Write to `out` ``(W, W)``, for each pair of columns v and w, the sum over planes q of ``weights[q]`` times the number of rows of
    plane q that are in both columns.
    """
    size, nw = columns.shape
    masked = np.empty(nw, np.uint64)
    out[:, :] = 0.0
    for q in range(weights.size):
        for v in range(size):
            for k in range(nw):
                masked[k] = columns[v, k] & planes[q, k]
            for w in range(v + 1):
                total = 0
                for k in range(nw):
                    total += popcount(masked[k] & columns[w, k])
                out[v, w] += weights[q] * total
    for v in range(size):
        for w in range(v):
            out[w, v] = out[v, w]
