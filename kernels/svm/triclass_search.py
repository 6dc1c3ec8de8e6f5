"""Local search of the tri-class support vector machine: a sequence of convex problems, each started at the last solution.

The models of several starts share the Gram matrix. See :mod:`gramplane.kernels.svm.triclass` for the objective and its majorants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from .decomposition import PartGram
from .dual import DenseGram, DualProblem, Gram, certify
from .smo import solve_smo
from .triclass import (
    Convex,
    MeanParts,
    Points,
    assign_labels,
    concave_linearised,
    majorant,
    objective_value,
    relaxed_problem,
    repeated_gram,
    row_losses,
    with_indicators,
)

Algorithm = Literal["mm", "dc", "cccp"]

MAX_TIGHTENINGS = 3
"""How often a convex problem is solved again, each time to a tenth of the tolerance, if its solution has not lowered J."""

MAX_CERTIFYING = 9
"""Largest number of such repeated solves if the gap is above the tolerance of J."""

LABELLED_DISTANCE = 1e9  # Added to the distances of labelled points from their kinks, so that all unlabelled points come before them.
MIN_D = 2.0  # Least relaxation D, the thesis' choice.


# -- matrices --------------------------------------------------------------------------------------------------------------


def with_mean(gram: Gram, unlabelled: NDArray[np.bool_]) -> Gram:
    """Return the matrix extended by the mean of the unlabelled points as its last point. Raises TypeError if the matrix is not in memory
    and does not return parts.
    """
    if isinstance(gram, PartGram):
        return MeanParts(gram, unlabelled)
    if not isinstance(gram, DenseGram):
        raise TypeError(f"gram: {type(gram).__name__}, must be a DenseGram or a PartGram")
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
    """A model, with the assignment that its next convex problem will use.

    * ``beta``, ``(n,)``: the coefficients; if the balance is fixed, one more for the mean of the unlabelled points.
    * ``product``: K beta, of the same length.
    * ``bias``: b of f = K beta + b.
    * ``labels``, ``(n,)``: the labels, and the assignment of the unlabelled rows.
    * ``objective``: J / lambda at f. Before the first convex problem, the objective is infinite if the assignment does not follow from f.
    * ``gap``, ``violation``: of the last convex problem; the gap is measured like J / lambda, the violation like f.
    * ``solves``, ``steps``, ``flips``: the number of convex problems, of solver steps, and of unlabelled rows that changed their piece in
      the last problem.
    * ``stop``: ``"assignment"`` (no row has changed), ``"tol"``, ``"max_iter"`` or ``"stalled"`` (the gap of the last convex problem stays
      above the gap that ``tol`` requires).
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
        """The decision values f of the rows."""
        return self.product[: len(self.labels)] + self.bias


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search.

    * ``algorithm``: ``"mm"`` (exact majorant), ``"dc"`` (difference of convex functions) or ``"cccp"`` (the thesis' Algorithm 3).
    * ``tol``: a search ends when J decreases by less than ``tol`` relative to lambda + J.
    * ``max_iter``: the largest number of convex problems.
    * ``inner_tol``: the tolerance on f of the convex problems. If ``tol`` is below a tenth of ``inner_tol``, the last convex problem is
      solved further, until its gap is below ``tol`` relative to lambda + J.
    * ``unit``: 1 / lambda.
    * ``D``: the relaxation of ``"cccp"``, at least 1 + eps; by default the smallest value that its definition allows, and at least 2.
    """

    algorithm: Algorithm = "mm"
    tol: float = 1e-4
    inner_tol: float = 1e-3
    max_iter: int = 50
    unit: float = 1.0
    D: float | None = None

    @property
    def certifies(self) -> bool:
        """Whether the search must end with a gap within ``tol``."""
        return 10.0 * self.tol < self.inner_tol

    def is_accurate(self, machine: SearchState) -> bool:
        """Return whether the gap of a model is small enough to end the search."""
        return not self.certifies or self.unit * machine.gap <= self.tol * (1.0 + self.unit * machine.objective)


def solve_convex(gram: Gram, points: Points, convex: Convex, tol: float, warm: SearchState | None = None) -> SearchState:
    """Solve a convex problem to the tolerance ``tol`` on f; return the model, with the assignment that its decision values f imply.

    ``gram`` covers the rows and, if the balance is fixed, the mean of the unlabelled rows. The starting point has the variables of
    ``warm``, clipped to the boxes and moved as little as their sum requires.
    """
    whole = convex if points.balance is None else _with_mean_variable(convex, points.balance)
    fixed = gram.matvec(whole.fixed) if whole.fixed.any() else np.zeros(gram.n)
    problem = whole.problem(fixed)
    start, product = _start_point(gram, points, whole, problem, warm)
    matrix = gram if len(whole.rows) == gram.n else repeated_gram(gram, whole.rows)
    solution = solve_smo(matrix, problem, warm=start, tol=tol, gradient=(product - fixed)[whole.rows] - problem.c)
    values, bias, gap = solution.decision[np.unique(whole.rows, return_index=True)[1]] + fixed, solution.bias, solution.gap
    if points.balance is not None:
        bias = points.balance - float(values[-1])
        gap = certify(problem, solution.beta, solution.decision, bias)[1]
    beta, f = whole.beta(solution.beta), values[: points.n] + bias
    value = objective_value(points, float(beta @ values), f)
    return SearchState(beta, values, bias, assign_labels(points, f), value, gap, solution.violation, 0, solution.iterations)


def _with_mean_variable(convex: Convex, balance: float) -> Convex:
    """Return the problem with one more variable, for the mean of the unlabelled points, in a box as large as the sum of all other boxes."""
    n, bound = len(convex.fixed), float(np.maximum(-convex.lo, convex.hi).sum() + np.abs(convex.fixed).sum())
    fields = (convex.rows, n), (convex.target, balance), (convex.lo, -bound), (convex.hi, bound), (convex.kink, 0.0), (convex.fixed, 0.0)
    return Convex(*(np.append(values, one_more) for values, one_more in fields))


def _start_point(
    gram: Gram, points: Points, convex: Convex, problem: DualProblem, warm: SearchState | None
) -> tuple[FloatArray, FloatArray]:
    """Return feasible variables whose coefficients are close to those of a model, and K times these coefficients."""
    n = points.n
    if warm is None:
        variables = problem.feasible(np.zeros(problem.n))
        return variables, gram.matvec(convex.beta(variables))
    # The first variable of a row takes what it can, the second what is left.
    goal, variables = warm.beta - convex.fixed, np.zeros(problem.n)
    first = np.unique(convex.rows, return_index=True)[1]
    second = np.setdiff1d(np.arange(problem.n), first)
    variables[first] = np.clip(goal, problem.lo[first], problem.hi[first])
    variables[second] = np.clip((goal - variables[first])[convex.rows[second]], problem.lo[second], problem.hi[second])
    # The mean of the unlabelled points moves first, labelled points last.
    values, inside = warm.decision[np.minimum(convex.rows, n - 1)], np.append(points.unlabelled, True)[np.minimum(convex.rows, n)]
    distance = np.abs(np.abs(convex.target - values) - convex.kink) + np.where(inside, 0.0, LABELLED_DISTANCE)
    distance[convex.rows == n] = -1.0
    variables = problem.feasible(_move_to_sum(problem, variables, distance))
    beta = convex.beta(variables)
    change = beta - warm.beta
    fewer = np.count_nonzero(change) <= np.count_nonzero(beta)
    return variables, warm.product + gram.matvec(change) if fewer else gram.matvec(beta)


def _move_to_sum(problem: DualProblem, variables: FloatArray, distance: FloatArray) -> FloatArray:
    """Return the variables clipped to the box and moved to the required sum. The variables nearest to their kink move first, each to the
    end of its box.

    This changes few rows; adding one number to all variables would change all rows.
    """
    values = np.clip(variables, problem.lo, problem.hi)
    excess = float(values.sum() - (problem.sum_constraint or 0.0))
    slack = values - problem.lo if excess > 0 else problem.hi - values
    order = np.argsort(distance, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(slack[order])[:-1]])
    values[order] -= np.sign(excess) * np.minimum(slack[order], np.maximum(abs(excess) - before, 0.0))
    return np.clip(values, problem.lo, problem.hi)


def labelled_machine(gram: Gram, points: Points, tol: float) -> SearchState:
    """Return the model fitted to the labelled rows; its objective and assignment cover all rows."""
    known = replace(points, cost=np.where(points.unlabelled, 0.0, points.cost))
    machine = solve_convex(gram, known, majorant(known, points.labels), tol)
    # The objective of the labelled rows lacks the losses of the unlabelled ones.
    extra = float(points.cost[points.unlabelled] @ row_losses(points, machine.decision)[points.unlabelled])
    return replace(machine, objective=machine.objective + extra)


def universum_machine(gram: Gram, points: Points, tol: float, warm: SearchState | None = None) -> SearchState:
    """Return the model with all unlabelled rows at 0 (U-SVM), and the assignment that its f implies."""
    return solve_convex(gram, points, majorant(points, points.labels), tol, warm)


def permuted_start(points: Points, machine: SearchState, seed: int) -> SearchState:
    """Return a model with a new assignment: the assignment that its f implies, permuted over the unlabelled rows."""
    decision, free = machine.decision.copy(), np.flatnonzero(points.unlabelled)
    decision[free] = np.random.default_rng(np.random.SeedSequence((seed, 0x3C))).permutation(decision[free])
    return replace(machine, labels=assign_labels(points, decision), objective=np.inf)


def sided_start(points: Points, machine: SearchState) -> SearchState:
    """Return a model that next treats all unlabelled rows as relevant, with the label given by the sign of f (S3VM)."""
    return replace(machine, labels=assign_labels(replace(points, all_relevant=True), machine.decision), objective=np.inf)


def row_coefficients(points: Points, machine: SearchState) -> FloatArray:
    """Return the coefficients of the rows, (n,), with the coefficient of the mean shared equally among the unlabelled rows."""
    n = points.n
    if len(machine.beta) == n:
        return machine.beta
    return machine.beta[:n] + machine.beta[n] * points.unlabelled / np.count_nonzero(points.unlabelled)


def improve_machine(gram: Gram, points: Points, machine: SearchState, search: SearchSettings) -> SearchState:
    """Return the model after one more convex problem; J never increases.

    A solution within the tolerance may raise J if there is almost nothing to gain, and the gap of the last problem may be too large.
    In both cases the problem is solved again to smaller tolerances. If J still does not decrease, the model is not changed and its
    search ends.
    """
    ended, warm, fell = replace(machine, solves=machine.solves + 1, flips=0, stop="tol"), machine, False
    for convex, bounds in _convex_problems(points, machine, search):
        tol = search.inner_tol
        for attempt in range(1 + (MAX_CERTIFYING if search.certifies else MAX_TIGHTENINGS)):
            candidate = warm = solve_convex(gram, points, convex, tol, warm)
            steps, is_solved, tol = ended.steps + candidate.steps, candidate.violation < tol, 0.1 * tol
            if candidate.objective <= machine.objective:
                fell, ended = True, _with_stop(points, machine, replace(candidate, solves=machine.solves + 1), search)
            elif bounds and search.certifies:
                # J of the machine that is kept is no larger, hence within this gap of the least value, too.
                ended = replace(ended, gap=candidate.gap)
            ended = replace(ended, steps=steps)
            is_enough = ended.stop in (None, "max_iter") or search.is_accurate(ended)
            if is_enough if fell else attempt >= MAX_TIGHTENINGS and is_enough:
                break
            if not (fell or bounds) or (search.certifies and not is_solved):
                break
        if fell:
            break
    return ended if ended.stop in (None, "max_iter") or search.is_accurate(ended) else replace(ended, stop="stalled")


def _convex_problems(points: Points, machine: SearchState, search: SearchSettings) -> list[tuple[Convex, bool]]:
    """Return the convex problems to try in turn, each with a flag that says whether it majorises J."""
    labels = machine.labels
    if search.algorithm == "mm":
        return [(majorant(points, labels), True)]
    if search.algorithm == "dc" or points.all_relevant:
        return [(concave_linearised(points, labels), True)]
    farthest = float(np.max(np.abs(machine.decision[points.unlabelled]), initial=0.0))
    D = max(MIN_D, 1.0 + farthest) if search.D is None else search.D
    # At first the concave part is linearised for all unlabelled rows, later for those assigned to a class (Algorithm 3).
    slopes = np.where(labels == 0.0, np.sign(machine.decision), labels) if machine.solves == 0 else labels
    return [(relaxed_problem(points, slopes, D), False), (with_indicators(points, labels, D), search.D is None)]


def _with_stop(points: Points, before: SearchState, after: SearchState, search: SearchSettings) -> SearchState:
    """Return the model with the number of its flips and, if its search ends, the reason."""
    flips = int(np.count_nonzero((after.labels != before.labels)[points.unlabelled]))
    is_small_gain = search.unit * (before.objective - after.objective) < search.tol * (1.0 + search.unit * after.objective)
    is_same = flips == 0 and (search.algorithm != "cccp" or before.solves > 0)
    stop = "assignment" if is_same else "tol" if is_small_gain else "max_iter" if after.solves >= search.max_iter else None
    return replace(after, flips=flips, stop=stop)
