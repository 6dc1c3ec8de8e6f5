"""Decomposition for matrices that are not in memory: SMO on a working set whose entries are fetched together.

Each round takes the variables that violate optimality most into the working set, in the place of those that lie still, and solves the
problem on the set to a tenth of the violation. It brings the gradient up with the rows of the set, or, for a matrix that hands out parts,
by one product with the change: then nothing larger than the square of the set and a few vectors of n entries ever comes to the driver, and
of the square only the rows of newcomers (Joachims, "Making large-scale SVM learning practical", 1999; in batches: Wen et al.,
"ThunderSVM", 2018).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..mixed_norm.problem import checked_limits
from .dual import DualProblem, DualSolution, Gram, Warm, add_rows
from .smo_shrink import Ends, ShrinkingSteps, ends_of
from .smo_state import curvature_floor, finish, first_gradient, offsets
from .smo_steps import BROKEN, FAR

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

WORKING_SET = 512
LEAST = 3
"""Least working set: a round brings in up to two variables, and the one that violates most must be able to stay."""

ROW_BYTES = 256 << 20
"""Most bytes of float64 rows fetched at once when no working set is asked for."""

SHRUNK = 0.5625
"""Entries of the copy of a shrunk problem, in squares of the working set."""

MAX_STEPS = 10_000_000
REFRESH_ROUNDS = 50
"""Rounds after which the gradient is computed anew by one product."""

INNER_STEPS = 20
"""Steps per variable of the working set and round."""

STILL, FREE, VIOLATING = range(3)
"""What a member of the working set is worth: those that lie still make room first."""


@runtime_checkable
class PartGram(Protocol):
    """A Gram matrix that can hand out entries between chosen variables without whole rows."""

    @property
    def room(self) -> int:
        """Entries of its type that the caller may hold."""
        ...

    def between(self, new: IndexArray, old: IndexArray) -> Iterable[tuple[IndexArray, IndexArray, NDArray[Any]]]:
        """Yield entries as (places of rows, places of columns, values): of every pair with a new variable one order at least.

        Places count the new variables first, then the old ones.
        """
        ...


def solve_decomposition(
    gram: Gram,
    problem: DualProblem,
    *,
    warm: Warm = None,
    tol: float = 1e-3,
    max_iter: int | None = None,
    gradient: FloatArray | None = None,
    working: int | None = None,
) -> DualSolution:
    """Solve a dual with access to rows and products of K only; see :func:`gramplane.kernels.svm.smo.solve_smo` for the other arguments.

    Parameters
    ----------
    gram : Gram
        A :class:`PartGram` is asked for entries between chosen variables and for products, never for rows.
    working : int, optional
        Greatest number of variables in the working set, at least 3. By default what the matrix gives room for, at most twice those that are
        to move at first; of rows 512, less when as many exceed 256 MiB.

    Returns
    -------
    DualSolution
        ``details`` holds the rounds, the rows fetched, the products, and what a caching matrix reports of itself. The gradient is computed
        anew by a product before the certificate.

    Raises
    ------
    ValueError
        If sizes do not fit, the warm start is not valid, or the matrix is not finite.
    """
    problem.check_gram(gram)
    if problem.groups is not None:
        raise ValueError("problem: sums of groups need the matrix in memory (DenseGram)")
    limit = checked_limits(tol, max_iter, MAX_STEPS)
    if working is not None and working < LEAST:
        raise ValueError(f"working={working!r}: must be at least {LEAST}")
    beta = problem.start(warm)
    state = _State(gram, problem, beta, first_gradient(gram, problem, beta, warm, gradient), tol, working)
    return state.run(tol, limit)


@dataclass(frozen=True)
class _Look:
    """The violation over all variables: g + slope where a variable can move, FAR or -FAR where not."""

    rise: FloatArray
    fall: FloatArray
    ends: Ends

    def violations(self, paired: bool) -> FloatArray:
        """How far every variable can go against the other end, or against zero when sums are free."""
        m, top = (self.ends.m, self.ends.top) if paired else (0.0, 0.0)
        return np.maximum(np.where(self.rise < FAR, top - self.rise, 0.0), np.where(self.fall > -FAR, self.fall - m, 0.0))


class _Rows:
    """Square of the working set, and whole rows of it, from a matrix that gives rows."""

    def __init__(self, gram: Gram) -> None:
        self._gram = gram
        self.fetched = 0

    def square(self, members: IndexArray, new: IndexArray) -> tuple[NDArray[Any], NDArray[Any] | None]:
        rows = _plain(self._gram.rows(members))
        self.fetched += len(members)
        return np.ascontiguousarray(rows[:, members]), rows


class _Parts:
    """Square of the working set from a matrix that gives parts; entries between members that stay are kept."""

    def __init__(self, gram: PartGram, size: int) -> None:
        self._gram, self._size = gram, size
        self._square: NDArray[Any] | None = None
        self.fetched = 0

    def square(self, members: IndexArray, new: IndexArray) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Fetch the entries of the members at places ``new``."""
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
    def __init__(self, gram: Gram, problem: DualProblem, beta: FloatArray, g: FloatArray, tol: float, working: int | None) -> None:
        self._gram, self._problem, self._beta, self._g = gram, problem, beta, g
        self._ridge, self._paired = problem.ridges(), problem.total is not None
        self._diag = gram.diag() + self._ridge
        self._size = self._chosen_size(tol, working)
        self._source = _Parts(gram, self._size) if isinstance(gram, PartGram) else _Rows(gram)
        self._members: IndexArray = np.empty(0, dtype=np.int64)
        self._buffer: NDArray[Any] = np.empty(0)
        self._worst = 0.0
        self._steps = self._rounds = self._products = 0
        self._dtype = np.dtype(np.float64)

    def _chosen_size(self, tol: float, working: int | None) -> int:
        n = self._problem.n
        if working is not None:
            return min(working, n)
        if not isinstance(self._gram, PartGram):
            return min(max(LEAST, min(WORKING_SET, ROW_BYTES // (8 * n))), n)
        moving = int(np.count_nonzero(self._worth(self._look(), tol) > STILL))
        return min(max(LEAST, int((self._gram.room / (1.0 + SHRUNK)) ** 0.5)), max(2 * moving, WORKING_SET), n)

    def run(self, tol: float, limit: int) -> DualSolution:
        fresh = idle = 0
        while True:
            look = self._look()
            if not np.isfinite(self._g).all():
                raise ValueError("Gram matrix: the gradient is not finite: entries are NaN, infinite or overflow")
            over = look.ends.violation < tol or self._steps >= limit or idle == 3
            if over and fresh == 0:
                return self._finish(look, look.ends.violation < tol)
            if over or fresh >= REFRESH_ROUNDS:
                self._refresh()
                fresh = 0
                continue
            done = self._round(look, tol, limit - self._steps)
            idle = 0 if done else idle + 1
            fresh += 1

    def _look(self) -> _Look:
        up, down, can_rise, can_fall = offsets(self._problem, self._beta)
        rise, fall = np.where(can_rise, self._g + up, FAR), np.where(can_fall, self._g + down, -FAR)
        return _Look(rise, fall, ends_of(float(rise.min()), float(fall.max()), self._paired))

    def _refresh(self) -> None:
        self._g = self._gram.matvec(self._beta) + self._ridge * self._beta - self._problem.c
        self._products += 1

    def _worth(self, look: _Look, tol: float) -> IndexArray:
        """Return STILL, FREE or VIOLATING for every variable."""
        p, beta = self._problem, self._beta
        free = (beta > p.lo) & (beta < p.hi) & (beta != 0.0)
        return np.where(look.violations(self._paired) >= tol, VIOLATING, np.where(free, FREE, STILL))

    def _choose(self, look: _Look, tol: float) -> IndexArray:
        """Bring the members up to date; return the places of the new ones."""
        worth = self._worth(look, tol)
        if not len(self._members):
            self._members = np.sort(self._first_members(look, worth))
            return np.arange(len(self._members))
        inside = np.zeros(self._problem.n, np.bool_)
        inside[self._members] = True
        wanted = self._worst_of(look, np.flatnonzero((worth == VIOLATING) & ~inside), max(2, self._size // 2))
        # Those that lie still go first, and among them those furthest from moving.
        order = np.lexsort((look.violations(self._paired)[self._members], worth[self._members]))
        places = np.sort(order[: len(wanted)])
        self._members[places] = np.sort(wanted)
        return places

    def _first_members(self, look: _Look, worth: IndexArray) -> IndexArray:
        moving = np.flatnonzero(worth > STILL)
        if len(moving) > self._size:
            return self._worst_of(look, moving, self._size)
        return np.concatenate([moving, _spread(np.flatnonzero(worth == STILL), self._size - len(moving))])

    def _worst_of(self, look: _Look, candidates: IndexArray, count: int) -> IndexArray:
        """Return the candidates that violate most, half of either direction when steps move pairs."""
        if len(candidates) <= count:
            return candidates
        if not self._paired:
            return candidates[_greatest(look.violations(False)[candidates], count)]
        rising = candidates[_greatest(-look.rise[candidates], count // 2)]
        rest = np.setdiff1d(candidates, rising)
        return np.concatenate([rising, rest[_greatest(look.fall[rest], count - len(rising))]])

    def _round(self, look: _Look, tol: float, limit: int) -> int:
        new = self._choose(look, tol)
        chosen, p = self._members, self._problem
        square, rows = self._source.square(chosen, new)
        self._dtype = square.dtype
        if self._buffer.dtype != square.dtype or len(self._buffer) < SHRUNK * square.size:
            self._buffer = np.empty(int(SHRUNK * square.size) + 1, square.dtype)
        old, own, g = self._beta[chosen], self._beta[chosen].copy(), self._g[chosen].copy()
        inner = max(0.5 * tol, 0.1 * look.ends.violation)
        part = p.part(chosen, None if p.total is None else float(own.sum()))
        machine = ShrinkingSteps(part, square, self._buffer, self._diag[chosen], curvature_floor(self._diag, square.dtype))
        done, state, _ = machine.run(own, g, inner, min(limit, INNER_STEPS * len(chosen)))
        self._worst = min(self._worst, machine.worst)
        if state == BROKEN:
            raise ValueError("Gram matrix: entries are NaN, infinite or overflow")
        self._move(chosen, own - old, own, rows)
        self._steps, self._rounds = self._steps + done, self._rounds + 1
        return done

    def _move(self, chosen: IndexArray, change: FloatArray, own: FloatArray, rows: NDArray[Any] | None) -> None:
        self._beta[chosen] = own
        if rows is None:
            step = np.zeros(self._problem.n)
            step[chosen] = change
            self._g += self._gram.matvec(step)
            self._products += 1
        else:
            add_rows(self._g, rows, np.flatnonzero(change), change)
        self._g[chosen] += change * self._ridge[chosen]

    def _finish(self, look: _Look, converged: bool) -> DualSolution:
        counts = {"working": self._size, "rounds": self._rounds, "rows_fetched": self._source.fetched, "products": self._products}
        counts |= getattr(self._gram, "counts", dict)()
        return finish(self._problem, self._beta, self._g, look.ends, converged, self._steps, self._worst, self._dtype, **counts)


def _greatest(values: FloatArray, count: int) -> IndexArray:
    """Return where the `count` greatest values are, ascending; of equal ones some that lie evenly apart."""
    count = min(count, len(values))
    if not count:
        return np.empty(0, dtype=np.int64)
    edge = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > edge)
    return np.sort(np.concatenate([above, _spread(np.flatnonzero(values == edge), count - len(above))]))


def _spread(candidates: IndexArray, count: int) -> IndexArray:
    """Return `count` of the candidates, evenly apart: data are often sorted by class or by cluster."""
    count = min(count, len(candidates))
    return candidates[(np.arange(count) * len(candidates)) // max(count, 1)]


def _plain(rows: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(rows, dtype=rows.dtype if rows.dtype == np.float32 else np.float64)
