"""Decomposition for matrices that are not in memory: SMO on a small working set whose rows are fetched together.

Each round takes the variables that violate optimality most, half of the set new and half kept from the round before, and solves the problem
on them to a tenth of the violation. It brings the gradient up with their rows, or, for a matrix that hands out square parts, by one product
with the change: then nothing larger than a working set and a few vectors of n entries ever comes to the driver. Rows are fetched in
batches, so a kernel can be evaluated by one matrix product (Joachims, "Making large-scale SVM learning practical", 1999; in batches: Wen et
al., "ThunderSVM", 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .dual import DualProblem, DualSolution, Gram, Warm, add_rows
from .problem import checked_limits
from .smo_shrink import Ends, ShrinkingSteps, ends_of
from .smo_state import curvature_floor, finish, first_gradient, offsets
from .smo_steps import BROKEN, FAR

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

WORKING_SET = 512
ROW_BYTES = 256 << 20
"""Most bytes of float64 rows fetched at once when no working set is asked for."""

MAX_STEPS = 10_000_000
REFRESH_ROUNDS = 50
"""Rounds after which the gradient is computed anew by one product."""

INNER_STEPS = 20
"""Steps per variable of the working set and round."""


@runtime_checkable
class SquareGram(Protocol):
    """A Gram matrix that can hand out K[idx, idx] without whole rows."""

    def square(self, idx: IndexArray) -> NDArray[Any]:
        """Return K[idx, idx], shape (len(idx), len(idx))."""
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
    """Solve a dual with access to rows and products of K only; see :func:`.smo.solve_smo` for the other arguments.

    Parameters
    ----------
    gram : Gram
        With a method ``square(idx)`` it is asked for K[idx, idx] and products, never for rows.
    working : int, optional
        Greatest number of variables in the working set, at least 2; by default 512, less when as many rows exceed 256 MiB.

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
    limit = checked_limits(tol, max_iter, MAX_STEPS)
    size = max(2, min(WORKING_SET, ROW_BYTES // (8 * problem.n))) if working is None else working
    if size < 2:
        raise ValueError(f"working={working!r}: must be at least 2")
    beta = problem.start(warm)
    state = _State(gram, problem, beta, first_gradient(gram, problem, beta, warm, gradient), min(size, problem.n))
    return state.run(tol, limit)


@dataclass(frozen=True)
class _Look:
    """The violation over all variables: g + slope where a variable can move, FAR or -FAR where not."""

    rise: FloatArray
    fall: FloatArray
    ends: Ends


class _State:
    def __init__(self, gram: Gram, problem: DualProblem, beta: FloatArray, g: FloatArray, size: int) -> None:
        self._gram, self._problem, self._beta, self._g, self._size = gram, problem, beta, g, size
        self._ridge, self._paired = problem.ridges(), problem.total is not None
        self._diag = gram.diag() + self._ridge
        self._kept: IndexArray = np.empty(0, dtype=np.int64)
        self._worst = 0.0
        self._steps = self._rounds = self._fetched = self._products = 0
        self._dtype = np.dtype(np.float64)

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

    def _choose(self, look: _Look) -> IndexArray:
        """Return the worst variables and some of the last set, ascending."""
        new = self._size if not len(self._kept) else max(2, self._size // 2)
        if self._paired:
            half = np.concatenate([_first(look.rise, new // 2), _first(-look.fall, new - new // 2)])
        else:
            half = _first(np.minimum(look.rise, -look.fall), new)
        rest = self._kept[~np.isin(self._kept, half)]
        return np.unique(np.concatenate([half, rest[: max(0, self._size - len(np.unique(half)))]]))

    def _round(self, look: _Look, tol: float, limit: int) -> int:
        chosen = self._choose(look)
        square, rows = self._part(chosen)
        old, own, g, p = self._beta[chosen], self._beta[chosen].copy(), self._g[chosen].copy(), self._problem
        floor = curvature_floor(self._diag, square.dtype)
        inner = max(0.5 * tol, 0.1 * look.ends.violation)
        cap = min(limit, INNER_STEPS * len(chosen))
        part = DualProblem(
            p.c[chosen], p.lo[chosen], p.hi[chosen], p.kink, None if p.total is None else float(own.sum()), self._ridge[chosen]
        )
        machine = ShrinkingSteps(part, square, square[:0].reshape(-1), self._diag[chosen], floor)
        done, state, _ = machine.run(own, g, inner, cap)
        self._worst = min(self._worst, machine.worst)
        if state == BROKEN:
            raise ValueError("Gram matrix: entries are NaN, infinite or overflow")
        self._move(chosen, own - old, own, rows)
        self._steps, self._rounds = self._steps + done, self._rounds + 1
        # Free variables are worth keeping: they are the ones that go on moving.
        order = np.argsort((own <= p.lo[chosen]) | (own >= p.hi[chosen]), kind="stable")
        self._kept = chosen[order]
        return done

    def _part(self, chosen: IndexArray) -> tuple[NDArray[Any], NDArray[Any] | None]:
        if isinstance(self._gram, SquareGram):
            square, rows = _plain(self._gram.square(chosen)), None
        else:
            rows = _plain(self._gram.rows(chosen))
            square = np.ascontiguousarray(rows[:, chosen])
            self._fetched += len(chosen)
        self._dtype = square.dtype
        return square, rows

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
        counts = {"rounds": self._rounds, "rows_fetched": self._fetched, "products": self._products}
        counts |= getattr(self._gram, "counts", dict)()
        return finish(self._problem, self._beta, self._g, look.ends, converged, self._steps, self._worst, self._dtype, **counts)


def _first(values: FloatArray, count: int) -> IndexArray:
    """Return the indices of the `count` least values that belong to movable variables, ties by index."""
    count = min(count, len(values))
    edge = np.partition(values, count - 1)[count - 1]
    below = np.flatnonzero(values < edge)
    equal = np.flatnonzero(values == edge)[: count - len(below)]
    found = np.concatenate([below, equal])
    return found[values[found] < 0.5 * FAR]


def _plain(rows: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(rows, dtype=rows.dtype if rows.dtype == np.float32 else np.float64)
