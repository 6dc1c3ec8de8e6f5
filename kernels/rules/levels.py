"""The search of :mod:`gramplane.kernels.rules.search`, ordered by length: it visits all conjunctions of one length before any longer one.

The depth-first search of that module decides whether to visit a set only from shorter sets, its threshold never changes, and certificates
are searched by length. Both searches therefore visit the same conjunctions and find the same results in the same order. In the search by
length, one request returns the sums of a whole batch of candidates. It is a pass over blocks of rows, which adds the sums of the blocks,
or a computation on rows in memory. Which propositions may be combined with a given one is determined only for the propositions of sets
that are extended, when they are extended; no square array over the propositions is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from ..jit import compiled
from .bits import Words
from .search import MAX_LENGTH, MAX_VIOLATORS, SignedRows, ViolatorSearch, conjunction_forms, side_sums

BATCH = 1 << 17  # Candidates whose sums are asked for at once; of several machines so many fewer.
PAIR_BYTES = 16 << 20  # What is asked at once of which propositions may stand together, a byte for each pair.


class Candidates(NamedTuple):
    """Conjunctions, each a set plus one further proposition."""

    sets: IntArray  # (m, longest) propositions ascending, -1 behind them
    owner: IntArray  # (c,) set of each candidate, ascending
    last: IntArray  # (c,) its last proposition


Sums = Callable[[Candidates], FloatArray]  # (c, T, 2): sums of multipliers of positive and of negative rows
Kinds = Callable[[IntArray], NDArray[np.bool_]]  # (m, p): which propositions may stand in one conjunction with some


class Open(NamedTuple):
    """A set, with the propositions that may extend it, ascending."""

    items: tuple[int, ...]
    candidates: IntArray


@compiled
def add_candidates(
    columns: Words, starts: IntArray, amounts: FloatArray, unit: float, sets: IntArray, owner: IntArray, last: IntArray, out: FloatArray
) -> None:
    """Write the sums of candidates over some rows to ``out``, ``(c, T, 2)``: for each task, over its positive and its negative rows."""
    n_words, tasks, before = columns.shape[1], starts.shape[0], -1
    support, word = np.empty(n_words, np.uint64), np.empty(n_words, np.uint64)
    plus, minus = np.empty(tasks), np.empty(tasks)
    for c in range(owner.size):
        if owner[c] != before:
            before = owner[c]
            support[:] = ~np.uint64(0)
            for e in sets[before]:
                if e >= 0:
                    for k in range(n_words):
                        support[k] &= columns[e, k]
        e = last[c]
        for k in range(n_words):
            word[k] = support[k] & columns[e, k]
        side_sums(word, starts, amounts, unit, plus, minus)
        for t in range(tasks):
            out[c, t, 0], out[c, t, 1] = plus[t], minus[t]


def candidate_sums(rows: SignedRows, candidates: Candidates) -> FloatArray:
    """Return the sums of candidates over the rows of one block, ``(c, T, 2)``: for each task, over its positive and its negative rows."""
    out = np.empty((len(candidates.owner), len(rows.starts), 2))
    add_candidates(rows.columns, rows.starts, rows.values, float(rows.unit), *candidates, out)
    return out


@compiled
def candidate_forms(sums: FloatArray, similarity: FloatArray, values: FloatArray, bounds: FloatArray) -> None:
    """Write M of each candidate to ``values``. Write to ``bounds`` an upper bound on M of the longer conjunctions that contain it."""
    plus, minus = np.empty(sums.shape[1]), np.empty(sums.shape[1])
    for c in range(sums.shape[0]):
        for t in range(plus.size):
            plus[t], minus[t] = sums[c, t, 0], sums[c, t, 1]
        values[c], bounds[c] = conjunction_forms(plus, minus, similarity)


class Finds(NamedTuple):
    """Violators with the visit at which each was found, and the number of visits."""

    items: list[tuple[int, ...]]
    values: list[float]
    visits: list[int]
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    finished: bool


@dataclass
class Level:
    """The visited sets of one length."""

    finds: Finds
    open: list[Open]  # of every set those extensions that are worth following


def visited_level(extensions: list[Open]) -> Level:
    """Return a level whose visits were counted by another search."""
    return Level(Finds([], [], [], 0, True), extensions)


@dataclass
class LevelSearch:
    """Searches for conjunctions outside a hull with M / d^2 above a threshold.

    ``roots`` is a range of positions among the single propositions worth following; longer sets begin only with propositions in this range.
    ``None`` means all.
    """

    p: int
    sums: Sums
    kinds: Kinds
    similarity: FloatArray
    a: float
    threshold: float
    known: frozenset[tuple[int, ...]]  # the hull
    roots: tuple[int, int] | None = None
    levels: list[Level] = field(default_factory=list)
    seen_at: list[int] = field(default_factory=list)  # visits at which the violators of the last search everywhere were seen

    def __post_init__(self) -> None:
        self._scales = np.asarray(float(self.a) ** (-2.0 * np.arange(MAX_LENGTH + 2)), np.float64)
        self._batch, self._pairs_at_once = max(BATCH // len(self.similarity), 1), max(PAIR_BYTES // max(self.p, 1), 1)

    def frontier(self, depth: int = MAX_LENGTH, most: int = 1 << 40) -> ViolatorSearch:
        """Visit the children of the hull with at most ``depth`` propositions, except those that the bound rules out.

        Sets are extended only by the ``most`` remaining propositions with the largest bounds, and by the propositions in the hull.
        """
        singles: list[Open] = []
        finds = self._visit([Open((), np.arange(self.p))], 1 << 62, MAX_VIOLATORS, singles)
        if finds.finished and depth > 1 and singles:
            sets = self._frontier_sets(self._greatest(singles[0].candidates, most), depth)
            longer = self._visit(sets, 1 << 62, MAX_VIOLATORS - len(finds.items), None)
            items, values = [*finds.items, *longer.items], [*finds.values, *longer.values]
            finds = Finds(items, values, [], finds.count + longer.count, longer.finished)
        return _search(finds.items, finds.values, finds.count, depth, finds.finished, finds.finished)

    def _greatest(self, singles: IntArray, most: int) -> IntArray:
        """Return the propositions of ``singles`` with the largest bounds (in a tie, the first) and those in the hull, ascending."""
        if len(singles) <= most:
            return singles
        bounds = np.concatenate([self._forms(batch)[1] for batch, _ in _batches([Open((), singles)], self._batch, 1 << 62)])
        keep = np.array([(e,) in self.known for e in singles.tolist()])
        keep[np.argsort(-bounds, kind="stable")[:most]] = True
        return singles[keep]

    def _frontier_sets(self, singles: IntArray, depth: int) -> Iterator[Open]:
        """Yield the sets of the hull that a violator may extend, each with the propositions that may extend it. A set comes after its
        prefixes.

        ``singles`` are the propositions worth following.
        """
        items = self._open_sets(min(depth, MAX_LENGTH))
        used, worth = np.array(sorted({e for item in items for e in item}), np.int64), np.zeros(self.p, bool)
        worth[singles] = True
        parts = np.split(used, range(self._pairs_at_once, len(used), self._pairs_at_once))
        rows = {e: np.packbits(row) for part in parts if len(part) for e, row in self._rows(part)}
        for item in items:
            allowed = worth.copy()
            allowed[: item[-1] + 1] = False
            for e in item:
                allowed &= np.unpackbits(rows[e], count=self.p).astype(bool)
            yield Open(item, np.flatnonzero(allowed))

    def _open_sets(self, depth: int) -> list[tuple[int, ...]]:
        """Return, in order, the sets of the hull shorter than ``depth`` whose bound does not rule out their children."""
        sets = (Open(item[:-1], np.array(item[-1:])) for item in sorted(self.known) if 0 < len(item) < depth)
        found = []
        for batch, _ in _batches(sets, self._batch, 1 << 62):
            _, bounds, lengths = self._forms(batch)
            keep = bounds * self._scales[lengths + 1] > self.threshold
            found += [(*one.items, int(one.candidates[0])) for one, kept in zip(batch, keep, strict=True) if kept]
        return found

    def _forms(self, batch: Sequence[Open]) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return three arrays with an entry for each candidate of the sets in ``batch``: its M, an upper bound on M of the longer
        conjunctions that contain it, and its length.
        """
        candidates, lengths = _candidates(batch)
        values, bounds = np.empty(len(lengths)), np.empty(len(lengths))
        candidate_forms(self.sums(candidates), self.similarity, values, bounds)
        return values, bounds, lengths

    def _rows(self, ids: IntArray) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        return zip(ids.tolist(), self.kinds(ids), strict=True)

    def everywhere(self, depth: int, max_visits: int, max_violators: int | None = None) -> ViolatorSearch:
        """Visit all conjunctions of at most ``depth`` propositions, at most ``max_visits`` in total."""
        depth, visits, items, values, self.seen_at = min(depth, MAX_LENGTH), 0, [], [], []
        limit = MAX_VIOLATORS if max_violators is None else max_violators
        for length in range(1, depth + 1):
            finds = self._level(length, max_visits - visits, limit - len(items)).finds
            self.seen_at += [visits + at for at in finds.visits]
            items, values, visits = [*items, *finds.items], [*values, *finds.values], visits + finds.count
            if not finds.finished:
                return _search(items, values, visits, depth, False, False)
        whole = next(self._extensions(self.levels[depth - 1].open, depth), None) is None
        return _search(items, values, visits, depth, True, whole)

    def _level(self, length: int, max_visits: int, max_violators: int) -> Level:
        if length <= len(self.levels):
            return self._cut(self.levels[length - 1], max_visits, max_violators)
        found: list[Open] = []
        sets = [Open((), np.arange(self.p))] if length == 1 else self._extensions(self.levels[length - 2].open, length - 1)
        level = Level(self._visit(sets, max_visits, max_violators, found), found)
        if level.finds.finished:
            self.levels.append(level)
        return level

    @staticmethod
    def _cut(level: Level, max_visits: int, max_violators: int) -> Level:
        """Return a previously visited level, truncated to the part that the limits allow to be visited again."""
        finds = level.finds
        within = sum(at < max_visits for at in finds.visits)
        if finds.count <= max_visits and len(finds.items) <= max_violators:
            return level
        count = min(max_visits, finds.visits[max_violators] + 1 if len(finds.items) > max_violators else max_visits)
        n = min(within, max_violators)
        return Level(Finds(finds.items[:n], finds.values[:n], finds.visits[:n], count, False), [])

    def _extensions(self, parents: Sequence[Open], length: int) -> Iterator[Open]:
        """Yield, in order, the sets of some length that may be extended. They are built from the sets worth following at the previous
        length.
        """
        step = self._pairs_at_once
        for parent in parents:
            lo, hi = self.roots if self.roots is not None and length == 1 else (0, len(parent.candidates))
            for first in range(lo, hi, step):
                firsts = parent.candidates[first : min(first + step, hi)]
                for k, (e, allowed) in enumerate(self._rows(firsts), first + 1):
                    later = parent.candidates[k:]
                    later = later[allowed[later]]
                    if len(later):
                        yield Open((*parent.items, e), later)

    def _visit(self, sets: Iterable[Open], max_visits: int, max_violators: int, follow: list[Open] | None) -> Finds:
        """Visit every extension of some sets. Add each set that has extensions worth following to ``follow``, with these extensions."""
        finds = Finds([], [], [], 0, True)
        for batch, is_cut in _batches(sets, self._batch, max_visits):
            if not batch:
                return finds._replace(finished=False)
            values, bounds, lengths = self._forms(batch)
            values *= self._scales[lengths]
            ends = np.cumsum([len(one.candidates) for one in batch])
            last = np.concatenate([one.candidates for one in batch])
            for c in np.flatnonzero(values > self.threshold).tolist():
                item = (*batch[int(np.searchsorted(ends, c, side="right"))].items, int(last[c]))
                if item in self.known:
                    continue
                if len(finds.items) == max_violators:
                    return finds._replace(count=finds.count + c + 1, finished=False)
                finds.items.append(item)
                finds.values.append(float(values[c]))
                finds.visits.append(finds.count + c)
            finds = finds._replace(count=finds.count + len(values), finished=not is_cut)
            if follow is not None and not is_cut:
                keep = bounds * self._scales[lengths + 1] > self.threshold
                for one, lo, hi in zip(batch, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
                    _follow(follow, one.items, last[lo:hi][keep[lo:hi]])
        return finds


def _follow(follow: list[Open], items: tuple[int, ...], candidates: IntArray) -> None:
    """Record the extensions of a set that are worth following; the candidates of one set may come in several batches."""
    if not len(candidates):
        return
    if follow and follow[-1].items == items:
        candidates = np.concatenate([follow.pop().candidates, candidates])
    follow.append(Open(items, candidates))


def _batches(sets: Iterable[Open], size: int, limit: int) -> Iterator[tuple[list[Open], bool]]:
    """Yield sets in batches of ``size`` candidates, at most ``limit`` in total. The flag of the last batch says whether sets were left out
    because of the limit.
    """
    batch: list[Open] = []
    room = min(size, limit)
    for items, candidates in sets:
        while len(candidates):
            if not room:
                limit -= sum(len(one.candidates) for one in batch)
                yield batch, limit == 0
                if limit == 0:
                    return
                batch, room = [], min(size, limit)
            part = candidates[:room]
            batch.append(Open(items, part))
            candidates, room = candidates[len(part) :], room - len(part)
    if batch:
        yield batch, False


def _candidates(batch: Sequence[Open]) -> tuple[Candidates, IntArray]:
    counts, sizes = [len(one.candidates) for one in batch], np.array([len(one.items) for one in batch], np.int64)
    sets = np.full((len(batch), max(int(sizes.max()), 1)), -1, np.int64)
    for row, one in zip(sets, batch, strict=True):
        row[: len(one.items)] = one.items
    owner = np.repeat(np.arange(len(batch)), counts)
    return Candidates(sets, owner, np.concatenate([one.candidates for one in batch]).astype(np.int64)), sizes[owner] + 1


def _search(
    items: Sequence[tuple[int, ...]], values: Sequence[float], visits: int, depth: int, finished: bool, whole: bool
) -> ViolatorSearch:
    rows = np.full((len(items), MAX_LENGTH), -1, np.int64)
    for row, item in zip(rows, items, strict=True):
        row[: len(item)] = item
    return ViolatorSearch(rows, np.array(values, np.float64), visits, depth, finished, whole)
