"""Decomposition for matrices that do not fit in memory: SMO on a working set of variables whose entries are fetched together.

Each round replaces idle variables of the working set by the variables that violate optimality most. It solves the problem on the set to a
tenth of the violation, then updates the gradient: with the rows of the set or, for a matrix that returns parts, by one product with the
change. With parts, the driver receives at most the square matrix of the set, for which only the rows of new variables are fetched, and a
few vectors of n entries (Joachims, "Making large-scale SVM learning practical", 1999; in batches: Wen et al., "ThunderSVM", 2018).

If beta sums to zero in every group, each step moves two variables of one group (:mod:`gramplane.kernels.svm.smo_shrink`). The violation of
a variable is then measured within its own group, and the working set of every round includes the most violating pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from ..arrays import Array, FloatArray, IntArray
from ..mixed_norm.problem import checked_limits
from .dual import DualProblem, DualSolution, Gram, Warm, add_rows
from .smo_shrink import (
    CURVATURE_FLOORS,
    Ends,
    ShrinkingSteps,
    curvature_floor,
    find_ends,
    finish_solve,
    first_gradient,
    group_layout,
    grouped_solution,
    kink_slopes,
    move_pairs_in_groups,
)
from .smo_steps import BLOCKED_OFFSET, BROKEN, MAX_VIOLATION

WORKING_SET = 512
MIN_WORKING_SET = 3
"""Smallest working set: a round adds up to two variables, and the variable that violates most must be able to stay."""

ROW_BYTES = 256 << 20  # Greatest number of bytes of float64 rows fetched at once when the caller sets no size.
COPY_SHARE = 0.5625  # Entries of the copy of a shrunk problem, in squares of the working set.
MAX_STEPS = 10_000_000
REFRESH_ROUNDS = 50  # Rounds after which the gradient is computed anew by one product.
INNER_STEPS = 20  # Steps per variable of the working set and round.

STILL, FREE, VIOLATING = range(3)  # Ranks of variables: those that lie still leave the working set first.


@runtime_checkable
class PartGram(Gram, Protocol):
    """A Gram matrix that can return entries between chosen variables without whole rows."""

    @property
    def dtype(self) -> np.dtype[np.floating]: ...

    @property
    def room(self) -> int:
        """Number of entries, in the type of the matrix, that the caller may hold in memory."""
        ...

    def between(self, new: IntArray, old: IntArray) -> Iterable[tuple[IntArray, IntArray, Array]]:
        """Yield entries as (row positions, column positions, values). Every pair of variables that includes a new one is yielded in one
        order or in both. Positions number the new variables first, then the old variables.
        """
        ...


def solve_decomposition(
    gram: Gram, problem: DualProblem, *, warm: Warm = None, tol: float = 1e-3, max_iter: int | None = None,
    gradient: FloatArray | None = None, working: int | None = None,
) -> DualSolution:  # fmt: skip
    """Solve a dual using only rows and products of K; see :func:`gramplane.kernels.svm.smo.solve_smo` for the other arguments.

    A :class:`PartGram` supplies entries between chosen variables, and products, but never rows. ``working`` is the largest working set, at
    least 3 variables. For a :class:`PartGram` the default is the size that ``gram.room`` allows, but at most ``max(512, 2 m)``, where m is
    the number of variables that are free or violate optimality at the start. For other matrices the default is 512, or fewer if 512 rows
    exceed 256 MiB. The gradient is recomputed before the certificate. ``details`` of the solution holds the numbers of rounds, fetched rows
    and products, and the hits of a caching matrix.
    """
    problem.check_gram(gram)
    limit = checked_limits(tol, max_iter, MAX_STEPS)
    if working is not None and working < MIN_WORKING_SET:
        raise ValueError(f"working={working!r}: must be at least {MIN_WORKING_SET}")
    beta = problem.start(warm)
    kind = _State if problem.groups is None else _GroupedState
    return kind(gram, problem, beta, first_gradient(gram, problem, beta, warm, gradient), tol, working).run(tol, limit)


@dataclass(frozen=True)
class _Slopes:
    """Slopes of the objective in every variable, upwards and downwards. If a variable cannot move in a direction, that slope is
    BLOCKED_OFFSET (upwards) or -BLOCKED_OFFSET (downwards).
    """

    rise: FloatArray
    fall: FloatArray
    ends: Ends  # with groups those of the group that violates most
    # What violations are measured against: the ends; zeros when sums are free; with groups those of every variable's group, ``(n,)``.
    m: float | FloatArray
    top: float | FloatArray

    def violations(self) -> FloatArray:
        """Return each variable's violation relative to the opposite extreme, or to zero if the sum is free."""
        rising = np.where(self.rise < BLOCKED_OFFSET, self.top - self.rise, 0.0)
        return np.maximum(rising, np.where(self.fall > -BLOCKED_OFFSET, self.fall - self.m, 0.0))


class _RowSource:
    """Access to the working set through a matrix that returns whole rows."""

    def __init__(self, gram: Gram) -> None:
        self._gram, self.fetched = gram, 0

    def square(self, members: IntArray, new: IntArray) -> tuple[Array, Array | None]:
        rows = self._gram.rows(members)
        rows = np.ascontiguousarray(rows, dtype=rows.dtype if rows.dtype == np.float32 else np.float64)
        self.fetched += len(members)
        return np.ascontiguousarray(rows[:, members]), rows


class _PartSource:
    """Access to the working set through a matrix that returns parts; entries between variables that stay are reused."""

    def __init__(self, gram: PartGram, size: int) -> None:
        self._gram, self._size, self.fetched = gram, size, 0
        self._square: Array | None = None

    def square(self, members: IntArray, new: IntArray) -> tuple[Array, Array | None]:
        """Return the square matrix of the members, and ``None``. Only the entries of the members at positions ``new`` are fetched."""
        old = np.setdiff1d(np.arange(len(members)), new)
        places = np.concatenate([new, old])
        self.fetched += len(new)
        for rows, columns, values in self._gram.between(members[new], members[old]) if len(new) else ():
            if self._square is None:
                self._square = np.empty((self._size, self._size), np.float32 if values.dtype == np.float32 else np.float64)
            self._square[np.ix_(places[rows], places[columns])] = values
            self._square[np.ix_(places[columns], places[rows])] = values.T
        assert self._square is not None
        return self._square, None


class _State:
    _copy_share = COPY_SHARE

    def __init__(self, gram: Gram, problem: DualProblem, beta: FloatArray, g: FloatArray, tol: float, working: int | None) -> None:
        self._gram, self._problem, self._beta, self._g = gram, problem, beta, g
        self._ridge, self._paired = problem.ridges(), problem.sum_constraint is not None
        self._diag = gram.diag() + self._ridge
        self._size = self._choose_size(tol, working)
        self._source = _PartSource(gram, self._size) if isinstance(gram, PartGram) else _RowSource(gram)
        self._members, self._worst, self._dtype = np.empty(0, dtype=np.int64), 0.0, np.dtype(np.float64)
        self._buffer: Array = np.empty(0)
        self._steps = self._rounds = self._products = 0

    def _choose_size(self, tol: float, working: int | None) -> int:
        n = self._problem.n
        if working is not None:
            return min(working, n)
        if not isinstance(self._gram, PartGram):
            return min(max(MIN_WORKING_SET, min(WORKING_SET, ROW_BYTES // (8 * n))), n)
        moving = int(np.count_nonzero(self._rank_variables(self._measure(), tol) > STILL))
        return min(max(MIN_WORKING_SET, int((self._gram.room / (1.0 + self._copy_share)) ** 0.5)), max(2 * moving, WORKING_SET), n)

    def run(self, tol: float, limit: int) -> DualSolution:
        fresh = idle = 0
        while True:
            if not np.isfinite(self._g).all():
                raise ValueError("Gram matrix: the gradient is not finite: entries are NaN, infinite or overflow")
            slopes = self._measure()
            over = slopes.ends.violation < tol or self._steps >= limit or idle == 3
            if over and fresh == 0:
                return self._finish(slopes, slopes.ends.violation < tol)
            if over or fresh >= REFRESH_ROUNDS:
                self._g = self._gram.matvec(self._beta) + self._ridge * self._beta - self._problem.c
                self._products, fresh = self._products + 1, 0
                continue
            idle = 0 if self._round(slopes, tol, limit - self._steps) else idle + 1
            fresh += 1

    def _measure(self) -> _Slopes:
        rise, fall = self._slopes()
        ends = find_ends(float(rise.min()), float(fall.max()), self._paired)
        return _Slopes(rise, fall, ends, *(ends[:2] if self._paired else (0.0, 0.0)))

    def _slopes(self) -> tuple[FloatArray, FloatArray]:
        up, down, can_rise, can_fall = kink_slopes(self._problem, self._beta)
        return np.where(can_rise, self._g + up, BLOCKED_OFFSET), np.where(can_fall, self._g + down, -BLOCKED_OFFSET)

    def _rank_variables(self, slopes: _Slopes, tol: float) -> IntArray:
        """Return STILL, FREE or VIOLATING for every variable."""
        p, beta = self._problem, self._beta
        free = (beta > p.lo) & (beta < p.hi) & (beta != 0.0)
        return np.where(slopes.violations() >= tol, VIOLATING, np.where(free, FREE, STILL))

    def _exchange_members(self, slopes: _Slopes, tol: float) -> IntArray:
        ranks = self._rank_variables(slopes, tol)
        if not len(self._members):
            self._members = np.sort(self._first_members(slopes, ranks))
            return np.arange(len(self._members))
        inside = np.zeros(self._problem.n, np.bool_)
        inside[self._members] = True
        newcomers = self._choose_worst(slopes, np.flatnonzero((ranks == VIOLATING) & ~inside), max(2, self._size // 2))
        # Those that lie still leave first, and among them those with the smallest violations.
        places = np.sort(np.lexsort((slopes.violations()[self._members], ranks[self._members]))[: len(newcomers)])
        self._members[places] = np.sort(newcomers)
        return places

    def _first_members(self, slopes: _Slopes, ranks: IntArray) -> IntArray:
        moving = np.flatnonzero(ranks > STILL)
        if len(moving) > self._size:
            return self._choose_worst(slopes, moving, self._size)
        return np.concatenate([moving, _choose_spaced(np.flatnonzero(ranks == STILL), self._size - len(moving))])

    def _choose_worst(self, slopes: _Slopes, candidates: IntArray, count: int) -> IntArray:
        """Return the ``count`` candidates that violate most. If steps move pairs, half of them violate most upwards, the others most
        downwards.
        """
        if len(candidates) <= count:
            return candidates
        if not self._paired:
            return candidates[_find_greatest(slopes.violations()[candidates], count)]
        rising = candidates[_find_greatest(-slopes.rise[candidates], count // 2)]
        others = np.setdiff1d(candidates, rising)
        return np.concatenate([rising, others[_find_greatest(slopes.fall[others], count - len(rising))]])

    def _round(self, slopes: _Slopes, tol: float, limit: int) -> int:
        new = self._exchange_members(slopes, tol)
        chosen = self._members
        square, rows = self._source.square(chosen, new)
        self._dtype = square.dtype
        if self._buffer.dtype != square.dtype or len(self._buffer) < self._copy_share * square.size:
            self._buffer = np.empty(int(self._copy_share * square.size) + 1, square.dtype)
        old, beta = self._beta[chosen], self._beta[chosen].copy()
        inner = max(0.5 * tol, 0.1 * slopes.ends.violation)
        done, state = self._solve_members(square, beta, inner, min(limit, INNER_STEPS * len(chosen)))
        if state == BROKEN:
            raise ValueError("Gram matrix: entries are NaN, infinite or overflow")
        self._beta[chosen] = beta
        self._update_gradient(chosen, beta - old, rows)
        self._steps, self._rounds = self._steps + done, self._rounds + 1
        return done

    def _solve_members(self, square: Array, beta: FloatArray, tol: float, limit: int) -> tuple[int, int]:
        """Move beta of the members in place; return the number of steps and why they ended."""
        chosen, p = self._members, self._problem
        part = p.part(chosen, None if p.sum_constraint is None else float(beta.sum()))
        machine = ShrinkingSteps(part, square, self._buffer, self._diag[chosen], curvature_floor(self._diag, square.dtype))
        done, state, _ = machine.run(beta, self._g[chosen].copy(), tol, limit)
        self._worst = min(self._worst, machine.worst)
        return done, state

    def _update_gradient(self, chosen: IntArray, change: FloatArray, rows: Array | None) -> None:
        if rows is None:
            step = np.zeros(self._problem.n)
            step[chosen] = change
            self._g += self._gram.matvec(step)
            self._products += 1
        else:
            add_rows(self._g, rows, np.flatnonzero(change), change)
        self._g[chosen] += change * self._ridge[chosen]

    def _finish(self, slopes: _Slopes, converged: bool) -> DualSolution:
        counts = {"working": self._size, "rounds": self._rounds, "rows_fetched": self._source.fetched, "products": self._products}
        return self._solution(slopes, converged, self._worst < -CURVATURE_FLOORS[self._dtype], counts)

    def _solution(self, slopes: _Slopes, converged: bool, is_indefinite: bool, counts: Mapping[str, float]) -> DualSolution:
        return finish_solve(self._problem, self._beta, self._g, slopes.ends, converged, self._steps, is_indefinite, **counts)


class _GroupedState(_State):
    """Decomposition where beta sums to zero in every group."""

    _copy_share = 1.0  # all members may be of one group

    @property
    def _groups(self) -> IntArray:
        assert self._problem.groups is not None
        return self._problem.groups

    def _measure(self) -> _Slopes:
        rise, fall = self._slopes()
        groups = self._groups
        count = int(groups.max()) + 1
        m, top = np.full(count, BLOCKED_OFFSET), np.full(count, -BLOCKED_OFFSET)
        np.minimum.at(m, groups, rise)
        np.maximum.at(top, groups, fall)
        # A group all of whose variables lie at one end of the box violates nothing.
        gaps = np.where((m < MAX_VIOLATION) & (top > -MAX_VIOLATION), top - m, 0.0)
        self._worst_group = worst = int(np.argmax(gaps))
        ends = Ends(float(m[worst]), float(top[worst]), max(float(gaps[worst]), 0.0))
        return _Slopes(rise, fall, ends, m[groups], top[groups])

    def _choose_worst(self, slopes: _Slopes, candidates: IntArray, count: int) -> IntArray:
        """Return the candidates that violate most, half of them upwards, half downwards, including the worst pair of one group."""
        if len(candidates) <= count:
            return candidates
        rising, falling = slopes.top - slopes.rise, slopes.fall - slopes.m
        members = np.flatnonzero(self._groups == self._worst_group)
        # Where many violate alike, this pair alone makes sure of a step.
        for scores in (rising, falling):
            scores[members[np.argmax(scores[members])]] = np.inf
        first = candidates[_find_greatest(rising[candidates], count // 2)]
        others = np.setdiff1d(candidates, first)
        return np.concatenate([first, others[_find_greatest(falling[others], count - len(first))]])

    def _solve_members(self, square: Array, beta: FloatArray, tol: float, limit: int) -> tuple[int, int]:
        chosen, p, ridge = self._members, self._problem, self._ridge
        layout = group_layout(np.unique(self._groups[chosen], return_inverse=True)[1], self._buffer)
        fixed = tuple(values[chosen] for values in (self._diag, ridge, p.lo, p.hi, p.l1_weights()))
        worst, floor = np.zeros(1), curvature_floor(self._diag, square.dtype)
        done, state, _ = move_pairs_in_groups(square, layout, fixed, floor, beta, self._g[chosen].copy(), tol, limit, worst)
        self._worst = min(self._worst, float(worst[0]))
        return done, state

    def _solution(self, slopes: _Slopes, converged: bool, is_indefinite: bool, counts: Mapping[str, float]) -> DualSolution:
        ended = {"iterations": self._steps, "converged": converged, "violation": slopes.ends.violation, "indefinite": bool(is_indefinite)}
        decision = self._g + self._problem.c - self._ridge * self._beta
        return grouped_solution(self._problem, self._beta, decision, details=dict(counts), **ended)


def _find_greatest(values: FloatArray, count: int) -> IntArray:
    """Return the indices of the ``count`` largest values, ascending; ties are broken by evenly spaced choice."""
    count = min(count, len(values))
    if not count:
        return np.empty(0, dtype=np.int64)
    edge = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > edge)
    return np.sort(np.concatenate([above, _choose_spaced(np.flatnonzero(values == edge), count - len(above))]))


def _choose_spaced(candidates: IntArray, count: int) -> IntArray:
    """Return ``count`` evenly spaced candidates, because data are often sorted by class or cluster."""
    count = min(count, len(candidates))
    return candidates[(np.arange(count) * len(candidates)) // max(count, 1)]
