"""Searches of the tri-class support vector machine: convex problems one after the other, each from the solution before.

Machines of several starts share the Gram matrix. See :mod:`gramplane.kernels.svm.triclass` for the objective and its majorants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from .dual import DenseGram, DualProblem, Gram, certify
from .gram_access import RepeatedGram
from .smo import solve_smo
from .triclass import Convex, Points, assigned, concave_linearised, majorant, objective, relaxed, row_losses, with_indicators

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]
Algorithm = Literal["mm", "dc", "cccp"]

TIGHTENINGS = 3
"""Times a convex problem is solved on, ten times tighter each, where its solution has not lowered J."""

FAR = 1e9
"""Beyond the distance of any unlabelled point from its kink."""

LEAST_D = 2.0
"""The thesis' choice of the relaxation D."""


# -- matrices --------------------------------------------------------------------------------------------------------------


def with_mean(gram: DenseGram, unlabelled: NDArray[np.bool_]) -> DenseGram:
    """Return the matrix with the mean of the unlabelled points as one more point, the last."""
    n, free = gram.n, np.flatnonzero(unlabelled)
    array = np.empty((n + 1, n + 1), gram.array.dtype)
    array[:n, :n] = gram.array
    weights = np.zeros(n)
    weights[free] = 1.0 / len(free)
    row = gram.matvec(weights)
    array[n, :n] = array[:n, n] = row
    array[n, n] = row @ weights
    return DenseGram(array, gram.scratch)


# -- one machine -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchState:
    """A machine with the assignment that its next convex problem will use.

    Attributes
    ----------
    beta : ndarray of shape (n,)
        Coefficients; one more, of the mean of the unlabelled points, where their balance is fixed.
    product : ndarray of shape (n,)
        K beta, as long as beta.
    bias : float
        b of f = K beta + b.
    labels : ndarray of shape (n,)
        Labels, and the assignment of the unlabelled rows.
    objective : float
        J / lambda at f; infinite before the first convex problem of a start whose assignment is not that of its f.
    gap, violation : float
        Certificate of the last convex problem, in the units of J / lambda and of f.
    solves, steps, flips : int
        Convex problems solved, steps of their solver, and unlabelled rows that have changed their piece with the last.
    stop : str or None
        ``"assignment"`` (no row has changed), ``"tol"``, ``"max_iter"``.
    """

    record_name: ClassVar[str] = "Machine"
    beta: FloatArray
    product: FloatArray
    bias: float
    labels: FloatArray
    objective: float
    gap: float
    violation: float
    solves: int = 0
    steps: int = 0
    flips: int = 0
    stop: str | None = None

    @property
    def decision(self) -> FloatArray:
        """The values f of the rows."""
        return self.product[: len(self.labels)] + self.bias


@dataclass(frozen=True)
class Search:
    """How a machine is improved.

    Attributes
    ----------
    algorithm : str
        ``"mm"`` (exact majorant), ``"dc"`` (difference of convex functions), ``"cccp"`` (the thesis' Algorithm 3).
    tol : float
        Decrease of J at which a machine is left, relative to lambda + J, in units of J / lambda: see ``unit``.
    inner_tol : float
        Tolerance of a convex problem, in units of f.
    max_iter : int
        Convex problems at most.
    unit : float
        1 / lambda.
    D : float or None
        Relaxation of ``"cccp"``, at least 1 + eps; by default as small as its definition allows, and at least 2.
    """

    algorithm: Algorithm = "mm"
    tol: float = 1e-4
    inner_tol: float = 1e-3
    max_iter: int = 50
    unit: float = 1.0
    D: float | None = None


def solved(gram: Gram, points: Points, convex: Convex, tol: float, warm: SearchState | None = None) -> SearchState:
    """Solve a convex problem and return its machine, the assignment being that of its f.

    Parameters
    ----------
    gram : Gram
        Of the rows, and of the mean of the unlabelled ones where their balance is fixed.
    points, convex
        The rows and the problem.
    tol : float
        Tolerance in units of f.
    warm : Machine, optional
        Where to start: its variables, clipped to the boxes and moved by as little as their sum needs.
    """
    whole = convex if points.balance is None else _balanced(convex, points.balance)
    fixed = gram.matvec(whole.fixed) if whole.fixed.any() else np.zeros(gram.n)
    problem = whole.problem(fixed)
    start, product = _start(gram, points, whole, problem, warm)
    matrix = gram if len(whole.rows) == gram.n else RepeatedGram(gram, whole.rows)
    found = solve_smo(matrix, problem, warm=start, tol=tol, gradient=(product - fixed)[whole.rows] - problem.c)
    values, bias, gap = found.decision[np.unique(whole.rows, return_index=True)[1]] + fixed, found.bias, found.gap
    if points.balance is not None:
        bias = points.balance - float(values[-1])
        gap = certify(problem, found.beta, found.decision, bias)[1]
    beta, f = whole.beta(found.beta), values[: points.n] + bias
    value = objective(points, float(beta @ values), f)
    return SearchState(beta, values, bias, assigned(points, f), value, gap, found.violation, 0, found.iterations)


def _balanced(convex: Convex, balance: float) -> Convex:
    """Add a variable for the mean of the unlabelled points, its box as large as the sum of all others."""
    n, most = len(convex.fixed), float(np.maximum(-convex.lo, convex.hi).sum() + np.abs(convex.fixed).sum())
    return Convex(
        np.append(convex.rows, n),
        np.append(convex.target, balance),
        np.append(convex.lo, -most),
        np.append(convex.hi, most),
        np.append(convex.kink, 0.0),
        np.append(convex.fixed, 0.0),
    )


def _start(gram: Gram, points: Points, convex: Convex, problem: DualProblem, warm: SearchState | None) -> tuple[FloatArray, FloatArray]:
    """Return feasible variables whose coefficients are nearly those of a machine, and K times these coefficients."""
    n = points.n
    if warm is None:
        found = problem.feasible(np.zeros(problem.n))
        return found, gram.matvec(convex.beta(found))
    # The first variable of a row takes what it can, the second what is left.
    wanted, found = warm.beta - convex.fixed, np.zeros(problem.n)
    first = np.unique(convex.rows, return_index=True)[1]
    second = np.setdiff1d(np.arange(problem.n), first)
    found[first] = np.clip(wanted, problem.lo[first], problem.hi[first])
    rest = convex.rows[second]
    found[second] = np.clip((wanted - found[first])[rest], problem.lo[second], problem.hi[second])
    # The mean of the unlabelled points moves first, labelled points last.
    values, inside = warm.decision[np.minimum(convex.rows, n - 1)], np.append(points.unlabelled, True)[np.minimum(convex.rows, n)]
    distance = np.abs(np.abs(convex.target - values) - convex.kink) + np.where(inside, 0.0, FAR)
    distance[convex.rows == n] = -1.0
    found = problem.feasible(moved(problem, found, distance))
    beta = convex.beta(found)
    change = beta - warm.beta
    fewer = np.count_nonzero(change) <= np.count_nonzero(beta)
    return found, warm.product + gram.matvec(change) if fewer else gram.matvec(beta)


def moved(problem: DualProblem, variables: FloatArray, distance: FloatArray) -> FloatArray:
    """Return variables clipped to the box, those nearest to their kink moved to the end of it until the sum is right.

    A few rows change where a shift of all would change them all.
    """
    found = np.clip(variables, problem.lo, problem.hi)
    excess = float(found.sum() - (problem.total or 0.0))
    room = found - problem.lo if excess > 0 else problem.hi - found
    order = np.argsort(distance, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(room[order])[:-1]])
    found[order] -= np.sign(excess) * np.minimum(room[order], np.maximum(abs(excess) - before, 0.0))
    return np.clip(found, problem.lo, problem.hi)


def labelled_machine(gram: Gram, points: Points, tol: float) -> SearchState:
    """Return the machine on the labelled rows, its objective and assignment those of all rows."""
    known = replace(points, cost=np.where(points.unlabelled, 0.0, points.cost))
    found = solved(gram, known, majorant(known, points.labels), tol)
    # In these units lost: ||w||^2 / 2 is what the objective of the labelled rows has beside their losses.
    extra = float(points.cost[points.unlabelled] @ row_losses(points, found.decision)[points.unlabelled])
    return replace(found, objective=found.objective + extra)


def universum_machine(gram: Gram, points: Points, tol: float, warm: SearchState | None = None) -> SearchState:
    """Return the machine with all unlabelled rows at 0 (U-SVM), assignment by its f."""
    return solved(gram, points, majorant(points, points.labels), tol, warm)


def permuted_start(points: Points, machine: SearchState, seed: int) -> SearchState:
    """Return a machine whose next assignment is that of its f permuted over the unlabelled rows."""
    decision, free = machine.decision.copy(), np.flatnonzero(points.unlabelled)
    decision[free] = np.random.default_rng(np.random.SeedSequence((seed, 0x3C))).permutation(decision[free])
    return replace(machine, labels=assigned(points, decision), objective=np.inf)


def sided_start(points: Points, machine: SearchState) -> SearchState:
    """Return a machine that next takes all unlabelled rows as relevant, on the side of its f (S3VM)."""
    return replace(machine, labels=assigned(replace(points, all_relevant=True), machine.decision), objective=np.inf)


def row_coefficients(points: Points, machine: SearchState) -> FloatArray:
    """Return the coefficients of the rows, (n,), that of the mean of the unlabelled points shared out among these."""
    n = points.n
    if len(machine.beta) == n:
        return machine.beta
    return machine.beta[:n] + machine.beta[n] * points.unlabelled / np.count_nonzero(points.unlabelled)


def improved(gram: Gram, points: Points, machine: SearchState, search: Search) -> SearchState:
    """Return the machine after one more convex problem; J never rises.

    A solution within tolerance may leave J higher where there is next to nothing to gain: the problem is then solved on, and if that does
    not help either, the machine stays and ends.
    """
    steps, warm = machine.steps, machine
    for convex, bounds in _problems(points, machine, search):
        tol = search.inner_tol
        for _ in range(1 + TIGHTENINGS if bounds else 1):
            found = warm = solved(gram, points, convex, tol, warm)
            steps, tol = steps + found.steps, 0.1 * tol
            if found.objective <= machine.objective:
                return _ended(points, machine, replace(found, solves=machine.solves + 1, steps=steps), search)
    return replace(machine, solves=machine.solves + 1, steps=steps, flips=0, stop="tol")


def _problems(points: Points, machine: SearchState, search: Search) -> list[tuple[Convex, bool]]:
    """Return the convex problems to try in turn, and whether each bounds J from above."""
    labels = machine.labels
    if search.algorithm == "mm":
        return [(majorant(points, labels), True)]
    if search.algorithm == "dc" or points.all_relevant:
        return [(concave_linearised(points, labels), True)]
    farthest = float(np.max(np.abs(machine.decision[points.unlabelled]), initial=0.0))
    D = max(LEAST_D, 1.0 + farthest) if search.D is None else search.D
    # At first the concave part is linearised for all unlabelled rows, later for those assigned to a class (Algorithm 3).
    slopes = np.where(labels == 0.0, np.sign(machine.decision), labels) if machine.solves == 0 else labels
    return [(relaxed(points, slopes, D), False), (with_indicators(points, labels, D), search.D is None)]


def _ended(points: Points, before: SearchState, found: SearchState, search: Search) -> SearchState:
    flips = int(np.count_nonzero((found.labels != before.labels)[points.unlabelled]))
    gained = search.unit * (before.objective - found.objective) < search.tol * (1.0 + search.unit * found.objective)
    same = flips == 0 and (search.algorithm != "cccp" or before.solves > 0)
    stop = "assignment" if same else "tol" if gained else "max_iter" if found.solves >= search.max_iter else None
    return replace(found, flips=flips, stop=stop)
