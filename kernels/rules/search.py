"""Depth-first search for the largest M_w / d_w^2 among all conjunctions, with pruning by a bound.

With z_i = alpha_i y_i let s_t = sum_{i in t} z_i phi(x_i) be the sum of a conjunction. For all its descendants the sum is between minus the
sum of the negative z and the sum of the positive z on its support. So no descendant of a set S of k propositions has M / d^2 above

    sum_{s,t} |B_st| m_s m_t / a^(2 (k + 1)),   m_t = max(s_t+, s_t-),   d_S = a^|S|.

If this bound is at most the threshold, the search does not extend S, and does not add the last proposition of S to other extensions of
the same prefix. Rows are ordered by task, by sign, and by whether alpha is at its bound C. Rows at the bound are summed by counting bits,
and only the others are added one by one.

The same search by length (:mod:`.levels`), which requests the sums of many candidates at a time, takes 1.9 to 2.4 times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from ..jit import compiled
from .bits import Words, popcount

MAX_VIOLATORS = 4096  # Conjunctions above the threshold that a search collects before it gives up.
MAX_LENGTH = 24  # Greatest length of a conjunction that is visited.

COMPLETE, CUT_BY_LENGTH, GIVEN_UP = range(3)
"""How a search ended: complete; complete up to the largest length; or stopped at the limit of visits or violators."""


@dataclass(frozen=True)
class SignedRows:
    """Propositions over the rows with non-zero alpha, in the order in which the search counts them."""

    columns: Words  # (p, words)
    starts: IntArray  # (T, 2, 3), words of task t and sign (0: y alpha > 0): bounded rows from [0] to [1], free ones to [2]
    values: FloatArray  # (64 * words,) size of alpha of every row, 0 in the padding
    unit: float  # alpha of every bounded row
    similarity: FloatArray  # B, (T, T)


def order_signed_rows(
    columns: Words, n: int, rows: Sequence[IntArray], y: Sequence[FloatArray], alpha: Sequence[FloatArray], similarity: FloatArray,
    unit: float,
) -> SignedRows:  # fmt: skip
    """Return the rows of each task, with labels and multipliers, in the order of the search; ``unit`` is C, the bound of multipliers."""
    order: list[IntArray] = []
    amounts: list[FloatArray] = []
    starts, at = np.zeros((len(rows), 2, 3), np.int64), 0
    for t, (ids, sign, value) in enumerate(zip(rows, y, alpha, strict=True)):
        for side, positive in enumerate((True, False)):
            mine = sign * value > 0 if positive else sign * value < 0
            full = np.abs(value) >= unit * (1.0 - 1e-12)
            starts[t, side, 0] = at
            for part, chosen in enumerate((mine & full, mine & ~full)):
                length = -(-int(chosen.sum()) // 64) * 64
                order.append(np.full(length, n))
                amounts.append(np.zeros(length))
                order[-1][: chosen.sum()], amounts[-1][: chosen.sum()] = ids[chosen], np.abs(value[chosen])
                at += length // 64
                starts[t, side, part + 1] = at
    places = np.concatenate(order) if order else np.zeros(0, np.int64)
    ordered = np.zeros((len(columns), max(len(places) // 64, 1)), np.uint64)
    gather_bits(columns, n, places, ordered)
    return SignedRows(ordered, starts, np.concatenate(amounts), unit, np.ascontiguousarray(similarity, np.float64))


@compiled
def gather_bits(columns: Words, n: int, places: IntArray, out: Words) -> None:
    """Write the bits of the rows ``places``, in this order and packed again, to ``out``. Row n is padding and has no bits."""
    for e in range(columns.shape[0]):
        for at in range(places.size):
            i = places[at]
            if i < n:
                out[e, at >> 6] |= ((columns[e, i >> 6] >> np.uint64(i & 63)) & np.uint64(1)) << np.uint64(at & 63)


BOTH, FIRST_ALONE, SECOND_ALONE = 1, 2, 4
COMPATIBLE = BOTH | FIRST_ALONE | SECOND_ALONE
"""Kinds of rows for two propositions: rows where both hold, and rows where only one holds. Compatible propositions have all three kinds."""


@compiled
def shared_kinds(columns: Words, v: int, others: Words, w: int) -> int:
    """Return which kinds of rows exist for two propositions. The scan usually ends early, because the first rows have all three kinds."""
    kinds = 0
    for k in range(columns.shape[1]):
        a, b = columns[v, k], others[w, k]
        if a & b:
            kinds |= BOTH
        if a & ~b:
            kinds |= FIRST_ALONE
        if b & ~a:
            kinds |= SECOND_ALONE
        if kinds == COMPATIBLE:
            break
    return kinds


@compiled
def kinds_of_pairs(columns: Words, ids: IntArray, out: NDArray[np.uint8]) -> None:
    """Write which kinds of rows exist for each of the propositions ``ids`` paired with every proposition, ``(len(ids), p)``."""
    for i in range(ids.size):
        for w in range(columns.shape[0]):
            out[i, w] = shared_kinds(columns, ids[i], columns, w)


class ViolatorSearch(NamedTuple):
    """The violators found by a search, and how the search ended."""

    items: IntArray  # (m, DEPTHS) conjunctions out of the hull above the threshold, propositions ascending, -1 behind them
    values: FloatArray  # (m,) their M / d^2
    visits: int  # conjunctions visited
    depth: int  # longest conjunctions among which nothing else is above the threshold, if the search came to its end
    finished: bool  # whether it came to its end
    whole: bool  # whether nothing was left out for its length


def is_full(search: ViolatorSearch) -> bool:
    """Return whether a search stopped at the limit of violators."""
    return not search.finished and len(search.values) >= MAX_VIOLATORS


def joined_searches(first: ViolatorSearch, second: ViolatorSearch, some: NDArray[np.bool_]) -> ViolatorSearch:
    """Return a search with some violators of the second search appended to those of the first."""
    items, values = np.concatenate([first.items, second.items[some]]), np.concatenate([first.values, second.values[some]])
    return first._replace(items=items, values=values)


def node_keys(p: int) -> Words:
    """Return 64 random bits per proposition; the key of a conjunction is their exclusive or."""
    return np.random.default_rng(0x9E3779B9).integers(0, 2**64, size=p, dtype=np.uint64)


def known_keys(items: Sequence[Sequence[int]], keys: Words) -> Words:
    """Return the sorted keys of conjunctions."""
    return np.sort(np.array([np.bitwise_xor.reduce(keys[list(item)]) if len(item) else 0 for item in items], np.uint64))


def find_violators(
    rows: SignedRows, hull: Words, keys: Words, truth: Words | None, a: float, threshold: float, *,
    frontier: bool, depth: int, visits: int, most: int,
) -> ViolatorSearch:  # fmt: skip
    """Search for conjunctions outside the hull with M / d^2 above the threshold.

    ``hull`` ``(W,)`` are the :func:`known_keys` of the hull, and d = a^length. ``truth`` holds the propositions over all rows: propositions
    that imply or contradict each other on these rows are never combined. With ``None`` any propositions may be combined.

    With ``frontier`` only children of the hull are visited, with at most ``depth`` propositions and at most ``visits`` in total.
    Children are skipped if the bound of the set, or of one of its propositions, rules them out. Sets are extended only by the
    ``most`` remaining propositions with the largest bounds, and by the propositions in the hull.
    """
    items, values = np.full((MAX_VIOLATORS, MAX_LENGTH), -1, np.int64), np.empty(MAX_VIOLATORS)
    scales = np.asarray(float(a) ** (-2.0 * np.arange(MAX_LENGTH + 2)), np.float64)
    depth = min(depth, MAX_LENGTH)
    search = _Walk(
        rows.columns, rows.starts, rows.values, float(rows.unit), rows.similarity, hull, keys,
        rows.columns if truth is None else truth, truth is not None, scales, float(threshold),
        bool(frontier), int(depth), int(visits), int(most),
    )  # fmt: skip
    count, n_visits, end = walk_lattice(search, _empty_path(search), items, values)
    return ViolatorSearch(items[:count], values[:count], n_visits, depth, end != GIVEN_UP, end == COMPLETE)


class _Walk(NamedTuple):
    """Input of a walk: propositions over the signed rows, the hull, and the limits."""

    columns: Words
    starts: IntArray
    amounts: FloatArray
    unit: float
    similarity: FloatArray
    hull: Words
    keys: Words
    truth: Words  # propositions over all rows
    skip: bool  # whether those that imply or contradict each other there are kept apart
    scales: FloatArray
    threshold: float
    frontier: bool
    depth: int
    max_visits: int
    most: int  # propositions that may extend sets next to the hull


class _Path(NamedTuple):
    """The current set of a walk, with one row per prefix: level l is the set of the first l propositions."""

    support: Words  # rows on which the set holds
    name: Words  # exclusive or of its keys
    last: IntArray  # its last proposition
    candidates: IntArray  # the first `count` are propositions that may be added, ascending
    is_known: NDArray[np.bool_]  # whether the set with them is in the hull, and has children worth a visit
    count: IntArray  # pyright: ignore[reportIncompatibleMethodOverride]
    at: IntArray  # the next one to follow, -1 before they were visited
    bounds: FloatArray  # greatest M below those single propositions
    word: Words  # work space for sums, as what follows
    plus: FloatArray
    minus: FloatArray


def _empty_path(search: _Walk) -> _Path:
    levels, (p, n_words), tasks = search.depth + 1, search.columns.shape, len(search.starts)
    candidates, count = np.empty((levels, p), np.int64), np.zeros(levels, np.int64)
    candidates[0], count[0] = np.arange(p), p
    return _Path(
        np.full((levels, n_words), ~np.uint64(0)), np.zeros(levels, np.uint64), np.full(levels, -1), candidates,
        np.zeros((levels, p), np.bool_), count, np.full(levels, -1), np.empty(p), np.empty(n_words, np.uint64), np.empty(tasks),
        np.empty(tasks),
    )  # fmt: skip


@compiled
def side_sums(word: Words, starts: IntArray, amounts: FloatArray, unit: float, plus: FloatArray, minus: FloatArray) -> None:
    """Write to ``plus`` and ``minus`` the sums of the multipliers of the positive and of the negative rows in `word`, task by task."""
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
def conjunction_forms(plus: FloatArray, minus: FloatArray, similarity: FloatArray) -> tuple[float, float]:
    """Return M of a conjunction, and an upper bound on M of the longer conjunctions that contain it."""
    value = 0.0
    bound = 0.0
    for s in range(plus.size):
        for t in range(plus.size):
            value += similarity[s, t] * (plus[s] - minus[s]) * (plus[t] - minus[t])
            bound += abs(similarity[s, t]) * max(plus[s], minus[s]) * max(plus[t], minus[t])
    return value, bound


@compiled
def list_extensions(search: _Walk, first: int, later: IntArray, out: IntArray) -> int:
    """Write to `out` the propositions of `later` that may be combined with ``first``; return their number."""
    truth, skip, count = search.truth, search.skip, 0
    for e in later:
        if not skip or shared_kinds(truth, first, truth, e) == COMPATIBLE:
            out[count] = e
            count += 1
    return count


@compiled
def has_extension(search: _Walk, first: int, later: IntArray) -> bool:
    """Return whether a proposition of `later` may be combined with ``first``."""
    truth, skip = search.truth, search.skip
    for e in later:  # noqa: SIM110 (numba compiles no generators)
        if not skip or shared_kinds(truth, first, truth, e) == COMPATIBLE:
            return True
    return False


@compiled
def contains_key(keys: Words, key: np.uint64) -> bool:
    """Return whether sorted keys contain ``key``."""
    low, high = 0, keys.size
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low < keys.size and keys[low] == key


@compiled
def visit_extensions(
    search: _Walk, path: _Path, level: int, items: IntArray, values: FloatArray, n_found: int, n_visits: int
) -> tuple[int, int, bool]:
    """Visit every extension of the current set; extensions worth following remain among the candidates, in order.

    Returns the number of violators written, the number of sets visited so far, and whether both are below their limits.
    """
    # Read once: a field of a tuple that is read in the loop is counted as one more reference to its array, every time.
    columns, starts, amounts, unit, similarity = search.columns, search.starts, search.amounts, search.unit, search.similarity
    candidates, support, word, plus, minus = path.candidates[level], path.support[level], path.word, path.plus, path.minus
    hull, keys, name, is_known = search.hull, search.keys, path.name[level], path.is_known[level]
    threshold, frontier, scale, next_scale = search.threshold, search.frontier, search.scales[level + 1], search.scales[level + 2]
    n_follow = 0
    for c in range(path.count[level]):
        e = candidates[c]
        if n_visits >= search.max_visits:
            return n_found, n_visits, False
        n_visits += 1
        for k in range(word.size):
            word[k] = support[k] & columns[e, k]
        side_sums(word, starts, amounts, unit, plus, minus)
        value, bound = conjunction_forms(plus, minus, similarity)
        value *= scale
        in_hull = False
        if value > threshold or frontier:
            key = name ^ keys[e]
            in_hull = contains_key(hull, key)
        if value > threshold and not in_hull:
            if n_found == items.shape[0]:
                return n_found, n_visits, False
            for k in range(level):
                items[n_found, k] = path.last[k + 1]
            items[n_found, level] = e
            values[n_found] = value
            n_found += 1
        is_open = bound * next_scale > threshold
        if frontier and level > 0:
            is_known[c] = in_hull and is_open
        elif is_open:
            candidates[n_follow], is_known[n_follow] = e, in_hull
            if level == 0:
                path.bounds[n_follow] = bound
            n_follow += 1
    if not frontier or level == 0:
        path.count[level] = n_follow
    if frontier and level == 0 and n_follow > search.most:
        path.count[level] = keep_greatest(candidates, is_known, path.bounds[:n_follow], search.most)
    return n_found, n_visits, True


@compiled
def _ranked_entry(values: FloatArray, rank: int) -> float:
    """Return the entry that sorting would put at position ``rank``, by Hoare's selection; compiling numba's own function takes two
    seconds.
    """
    ordered, low, high = values.copy(), 0, values.size - 1
    while low < high:
        pivot, i, j = ordered[rank], low, high
        while i <= j:
            while ordered[i] < pivot:
                i += 1
            while pivot < ordered[j]:
                j -= 1
            if i <= j:
                ordered[i], ordered[j] = ordered[j], ordered[i]
                i += 1
                j -= 1
        if j < rank:
            low = i
        if rank < i:
            high = j
    return ordered[rank]


@compiled
def keep_greatest(candidates: IntArray, is_known: NDArray[np.bool_], bounds: FloatArray, most: int) -> int:
    """Keep the candidates with the largest bounds (in a tie, the first) and those in the hull, in order; return their number."""
    edge = _ranked_entry(bounds, bounds.size - most)
    room = most
    for bound in bounds:
        if bound > edge:
            room -= 1
    count = 0
    for c in range(bounds.size):
        is_greatest = bounds[c] > edge or (bounds[c] == edge and room > 0)
        if bounds[c] == edge:
            room -= 1
        if is_greatest or is_known[c]:
            candidates[count], is_known[count] = candidates[c], is_known[c]
            count += 1
    return count


@compiled
def walk_lattice(search: _Walk, path: _Path, items: IntArray, values: FloatArray) -> tuple[int, int, int]:
    """Write the violators to `items` and `values`; return their number, the number of visits, and how the walk ended."""
    # Not literals: for each kind of number, literal or not, numba compiles what it is handed to once more.
    n_found, n_visits, end, level = int(np.int64(0)), int(np.int64(0)), COMPLETE, int(np.int64(0))
    while level >= 0:
        if path.at[level] < 0:
            n_found, n_visits, is_within_limits = visit_extensions(search, path, level, items, values, n_found, n_visits)
            if not is_within_limits:
                return n_found, n_visits, GIVEN_UP
            path.at[level] = 0
        c = path.at[level]
        if c >= path.count[level]:
            level -= 1
            continue
        path.at[level] += 1
        if search.frontier and not path.is_known[level, c]:
            continue
        e = path.candidates[level, c]
        later = path.candidates[level, c + 1 : path.count[level]]
        if level + 1 >= search.depth:
            if has_extension(search, e, later):
                end = CUT_BY_LENGTH
            continue
        count = list_extensions(search, e, later, path.candidates[level + 1])
        if count == 0:
            continue
        level += 1
        for k in range(path.word.size):
            path.support[level, k] = path.support[level - 1, k] & search.columns[e, k]
        path.name[level] = path.name[level - 1] ^ search.keys[e]
        path.last[level], path.count[level], path.at[level] = e, count, -1
    return n_found, n_visits, end
