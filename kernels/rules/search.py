"""The greatest M_w / d_w^2 among all conjunctions: depth first, with a bound that prunes.

With z_i = alpha_i y_i a conjunction's sum s_t = sum_{i in t} z_i phi(x_i) lies, for everything below it, between minus the sum of the
negative and the sum of the positive z on its support. So a set S of k propositions has no descendant with M / d^2 above

    sum_{s,t} |B_st| m_s m_t / a^(2 (k + 1)),   m_t = max(s_t+, s_t-),   d_S = a^|S|,

and neither it nor the proposition that made it is followed further once that is at most the threshold. Rows are ordered by task, sign and
whether alpha is at its bound C: what those add is a count of bits, and only the others are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit import compiled
from .bits import UNPACKED, FloatArray, Words, counts, pack, popcount, unpack

FOUND = 4096
"""Conjunctions above the threshold that a search collects before it gives up."""

DEPTHS = 24
"""Greatest length of a conjunction that is looked at."""


@dataclass(frozen=True)
class SignedRows:
    """Propositions over the rows with alpha > 0, in the order the search counts them.

    Attributes
    ----------
    columns : uint64 ndarray of shape (p, words)
    starts : int64 ndarray of shape (T, 2, 3)
        Words of task t and sign (0: y = 1): bounded rows from ``[0]`` to ``[1]``, free ones to ``[2]``.
    values : ndarray of shape (64 * words,)
        alpha of every row, 0 in the padding.
    unit : float
        alpha of every bounded row.
    similarity : ndarray of shape (T, T)
        B.
    """

    columns: Words
    starts: NDArray[np.int64]
    values: FloatArray
    unit: float
    similarity: FloatArray


def signed_rows(
    columns: Words,
    n: int,
    rows: Sequence[NDArray[np.int64]],
    y: Sequence[FloatArray],
    alpha: Sequence[FloatArray],
    similarity: FloatArray,
    unit: float,
) -> SignedRows:
    """Put the rows of every task in the order of the search.

    Parameters
    ----------
    columns : uint64 ndarray of shape (p, words)
        Propositions over n rows.
    n : int
    rows, y, alpha : sequences of ndarray
        Of every task: which rows, their labels and multipliers.
    similarity : ndarray of shape (T, T)
    unit : float
        The bound C that most multipliers may have reached.
    """
    order: list[NDArray[np.int64]] = []
    amounts: list[FloatArray] = []
    starts = np.zeros((len(rows), 2, 3), np.int64)
    at = 0
    for t, (ids, sign, value) in enumerate(zip(rows, y, alpha, strict=True)):
        for side, positive in enumerate((True, False)):
            mine = ((sign > 0) == positive) & (value > 0)
            full = value >= unit * (1.0 - 1e-12)
            starts[t, side, 0] = at
            for part, chosen in enumerate((mine & full, mine & ~full)):
                length = -(-int(chosen.sum()) // 64) * 64
                order.append(np.full(length, n))
                amounts.append(np.zeros(length))
                order[-1][: chosen.sum()], amounts[-1][: chosen.sum()] = ids[chosen], value[chosen]
                at += length // 64
                starts[t, side, part + 1] = at
    places = np.concatenate(order) if order else np.zeros(0, np.int64)
    return SignedRows(_ordered(columns, n, places), starts, np.concatenate(amounts), unit, np.ascontiguousarray(similarity, np.float64))


def _ordered(columns: Words, n: int, places: NDArray[np.int64]) -> Words:
    p, out = len(columns), np.zeros((len(columns), max(len(places) // 64, 1)), np.uint64)
    step = max(UNPACKED // max(n + len(places), 1), 1)
    for lo in range(0, p, step) if len(places) else ():
        flags = unpack(columns[lo : lo + step], n)
        out[lo : lo + step] = pack(np.concatenate([flags, np.zeros((len(flags), 1), np.uint8)], axis=1)[:, places])
    return out


def compatible(columns: Words) -> Words:
    """Return which pairs of propositions tell something together: neither contradict nor imply each other on the rows.

    Bit w % 64 of word w // 64 of row v, (p, ceil(p / 64)): p^2 / 8 bytes.
    """
    out = np.zeros((len(columns), max(-(-len(columns) // 64), 1)), np.uint64)
    write_compatible(columns, counts(columns), out)
    return out


@compiled
def write_compatible(columns: Words, sizes: NDArray[np.int64], out: Words) -> None:
    """Set the bits of pairs whose shared rows are some, but not all of either."""
    one = np.uint64(1)
    for v in range(columns.shape[0]):
        for w in range(v):
            together = 0
            for k in range(columns.shape[1]):
                together += popcount(columns[v, k] & columns[w, k])
            if together > 0 and together < sizes[v] and together < sizes[w]:
                out[v, w >> 6] |= one << np.uint64(w & 63)
                out[w, v >> 6] |= one << np.uint64(v & 63)


class Search(NamedTuple):
    """What a search found.

    Attributes
    ----------
    items : int64 ndarray of shape (m, DEPTHS)
        Conjunctions out of the hull above the threshold, propositions ascending, -1 behind them.
    values : ndarray of shape (m,)
        Their M / d^2.
    visits : int
        Conjunctions looked at.
    depth : int
        Longest conjunctions among which nothing else is above the threshold, if the search came to its end.
    finished : bool
        Whether it came to its end.
    whole : bool
        Whether nothing was left out for its length.
    """

    items: NDArray[np.int64]
    values: FloatArray
    visits: int
    depth: int
    finished: bool
    whole: bool


def node_keys(p: int) -> NDArray[np.uint64]:
    """Return 64 random bits for every proposition; those of a conjunction are their exclusive or."""
    return np.random.default_rng(0x9E3779B9).integers(0, 2**64, size=p, dtype=np.uint64)


def known_keys(items: Sequence[Sequence[int]], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the sorted bits of conjunctions."""
    return np.sort(np.array([np.bitwise_xor.reduce(keys[list(item)]) if len(item) else 0 for item in items], np.uint64))


def find_violators(
    rows: SignedRows,
    hull: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    pairs: Words,
    a: float,
    threshold: float,
    *,
    frontier: bool,
    depth: int = DEPTHS,
    visits: int = 1 << 40,
) -> Search:
    """Look for conjunctions out of the hull with M / d^2 above the threshold.

    Parameters
    ----------
    rows : SignedRows
    hull : ndarray of shape (W,)
        :func:`known_keys` of the hull.
    keys : ndarray of shape (p,)
    pairs : uint64 ndarray of shape (p, ceil(p / 64))
        Bits of the pairs of propositions that may stand in one conjunction, as :func:`compatible` gives them.
    a : float
        d = a^length.
    threshold : float
    frontier : bool
        Whether to look at children of the hull only.
    depth : int
        Greatest length.
    visits : int
        Conjunctions looked at, at most.
    """
    items, values = np.full((FOUND, DEPTHS), -1, np.int64), np.empty(FOUND)
    scales = np.asarray(float(a) ** (-2.0 * np.arange(DEPTHS + 2)), np.float64)
    found, seen, cut = walk(
        rows.columns,
        rows.starts,
        rows.values,
        float(rows.unit),
        rows.similarity,
        hull,
        keys,
        pairs,
        scales,
        float(threshold),
        bool(frontier),
        int(min(depth, DEPTHS)),
        int(visits),
        items,
        values,
    )
    finished = cut < 2
    kept = min(found, FOUND)
    return Search(items[:kept], values[:kept], seen, min(depth, DEPTHS), finished, finished and cut == 0)


@compiled
def side_sums(
    word: NDArray[np.uint64], starts: NDArray[np.int64], amounts: FloatArray, unit: float, plus: FloatArray, minus: FloatArray
) -> None:
    """Write the sums of the multipliers of the rows in `word`, of positive and of negative rows, task by task."""
    for t in range(starts.shape[0]):
        for side in range(2):
            ones = 0
            for k in range(starts[t, side, 0], starts[t, side, 1]):
                ones += popcount(word[k])
            total = unit * ones
            for k in range(starts[t, side, 1], starts[t, side, 2]):
                bits = word[k]
                while bits:
                    lowest = bits & (~bits + np.uint64(1))
                    total += amounts[64 * k + popcount(lowest - np.uint64(1))]
                    bits ^= lowest
            if side == 0:
                plus[t] = total
            else:
                minus[t] = total


@compiled
def forms_of(plus: FloatArray, minus: FloatArray, similarity: FloatArray) -> tuple[float, float]:
    """Return M of a conjunction, and the greatest M that a longer one may have."""
    value = 0.0
    bound = 0.0
    for s in range(plus.size):
        for t in range(plus.size):
            value += similarity[s, t] * (plus[s] - minus[s]) * (plus[t] - minus[t])
            bound += abs(similarity[s, t]) * max(plus[s], minus[s]) * max(plus[t], minus[t])
    return value, bound


@compiled
def extensions(allowed: NDArray[np.uint64], later: NDArray[np.int64], out: NDArray[np.int64], any_will_do: bool) -> int:
    """Write the propositions of `later` that may stand beside one to `out`, and return how many; or 1 at the first, writing nothing."""
    count = 0
    for e in later:
        if (allowed[e >> 6] >> np.uint64(e & 63)) & np.uint64(1):
            if any_will_do:
                return 1
            out[count] = e
            count += 1
    return count


@compiled
def walk(
    columns: Words,
    starts: NDArray[np.int64],
    amounts: FloatArray,
    unit: float,
    similarity: FloatArray,
    hull: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    pairs: Words,
    scales: FloatArray,
    threshold: float,
    frontier: bool,
    depth: int,
    visits: int,
    items: NDArray[np.int64],
    values: FloatArray,
) -> tuple[int, int, int]:
    """Write what is found to `items` and `values`; returns their number, the visits, and 0, 1 (left out by length) or 2 (given up)."""
    p, nw = columns.shape
    tasks = starts.shape[0]
    support = np.empty((depth + 1, nw), np.uint64)
    support[0, :] = ~np.uint64(0)
    given = np.empty((depth + 1, p), np.int64)
    follow = np.empty((depth + 1, p), np.int64)
    number = np.zeros(depth + 1, np.int64)
    at = np.zeros(depth + 1, np.int64)
    path = np.full(depth + 1, -1, np.int64)
    names = np.zeros(depth + 1, np.uint64)
    plus = np.empty(tasks)
    minus = np.empty(tasks)
    word = np.empty(nw, np.uint64)
    found = 0
    seen = 0
    cut = 0
    level = 0
    count = p
    for e in range(p):
        given[0, e] = e
    opening = True
    while level >= 0:
        if opening:
            # Look at every extension of the set on the path; those worth following stay in order.
            kept = 0
            for c in range(count):
                e = given[level, c]
                if seen >= visits:
                    return found, seen, 2
                seen += 1
                for k in range(nw):
                    word[k] = support[level, k] & columns[e, k]
                side_sums(word, starts, amounts, unit, plus, minus)
                value, bound = forms_of(plus, minus, similarity)
                value *= scales[level + 1]
                name = names[level] ^ keys[e]
                known = False
                if value > threshold or frontier:
                    place = np.searchsorted(hull, name)
                    known = place < hull.size and hull[place] == name
                if value > threshold and not known:
                    if found == items.shape[0]:
                        return found, seen, 2
                    for k in range(level):
                        items[found, k] = path[k + 1]
                    items[found, level] = e
                    values[found] = value
                    found += 1
                if frontier:
                    follow[level, c] = 1 if known else 0
                elif bound * scales[level + 2] > threshold:
                    given[level, kept] = e
                    kept += 1
            number[level] = count if frontier else kept
            at[level] = 0
            opening = False
        if at[level] >= number[level]:
            level -= 1
            continue
        c = at[level]
        at[level] += 1
        if frontier and follow[level, c] == 0:
            continue
        e = given[level, c]
        last = level + 1 >= depth
        count = extensions(pairs[e], given[level, c + 1 : number[level]], given[level if last else level + 1], last)
        if last and count:
            cut = 1
        if last or count == 0:
            continue
        for k in range(nw):
            support[level + 1, k] = support[level, k] & columns[e, k]
        names[level + 1] = names[level] ^ keys[e]
        path[level + 1] = e
        level += 1
        opening = True
    return found, seen, cut
