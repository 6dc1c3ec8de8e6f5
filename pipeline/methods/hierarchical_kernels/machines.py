"""SVMs that share one weighted sum of node kernels: one SVM, or one per class against the rest, each over the rows of all tasks.

With the task kernel B, the matrix of node w is ``H_w[(t, i), (s, j)] = k_w(x_ti, x_sj) B[t, s]``. With ``B = sum_r b_r b_r'``, the
quadratic form of beta in ``H_w`` is the sum of the quadratic forms of the vectors ``b_r[task] * beta`` in the matrix of k_w alone, so that
passes do not depend on tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ....kernels.graphs.norms import DualPoint
from ....kernels.svm.dual import DenseGram, DualProblem, DualSolution, Gram, squared_hinge_problem, svc_problem, target_problem
from ....kernels.svm.ridge import RidgeSolver
from ....kernels.svm.smo import solve_to_gap
from ....kernels.target_unit import TargetUnit
from ....storage import DataError
from ...core.resources import Resources
from ...grams.grams import Grams
from ...grams.sources import RowData
from ...grams.weighted_sum import fits_driver
from ...inputs.labels import Inputs, labels_of, refuse_idle_classes, row_costs
from ...inputs.tasks import TaskInputs
from ...loops.active_set import dual_point
from ...models.task import machine_stack
from .config import HKLConfig
from .node_pass import NodeForms, SignedForms, VectorForms

FIRST_TOL = 0.03  # tolerance of a machine's first solve in units of the gradient; tightened until its gap is small enough
RIDGE_TOL = 1e-7  # residual of squared-loss machines, as a share of the greatest target
TOL_DECAY = 0.2  # factor by which it is tightened
BLOCK_ROWS = 1024  # rows of a matrix that are multiplied by the task kernel at a time


@dataclass(frozen=True)
class SharedMachines:
    """Dual problems of SVMs that share the kernel."""

    problems: tuple[DualProblem, ...]  # over all rows each; the rows of all tasks are one problem with an equality per task
    squared: bool = False  # the loss: a machine is a linear system
    codes: np.ndarray | None = None  # (n,) tasks of the rows
    task_kernel: np.ndarray | None = None  # (T, T) B

    @property
    def n(self) -> int:
        return self.problems[0].n

    @property
    def n_tasks(self) -> int:
        """Number of tasks; 1 without tasks."""
        return 1 if self.task_kernel is None else len(self.task_kernel)

    @cached_property
    def roots(self) -> np.ndarray | None:
        """Columns b_r with ``B = sum_r b_r b_r'``, ``(T, r)``."""
        if self.task_kernel is None:
            return None
        values, vectors = np.linalg.eigh(self.task_kernel)
        positive = values > 1e-12 * max(float(values[-1]), 0.0)
        return vectors[:, positive] * np.sqrt(values[positive])

    def vectors(self, betas: np.ndarray) -> np.ndarray:
        """Return the vectors whose quadratic forms in k_w alone add up to the quadratic forms of ``betas`` (m, n) in H_w. Their shape is
        ``(n, m)``; with tasks it is ``(n, m r)``.
        """
        if self.roots is None:
            return np.ascontiguousarray(betas.T)
        return np.concatenate([self.roots[self.codes] * beta[:, None] for beta in betas], axis=1)

    @property
    def unit(self) -> TargetUnit:
        """Unit of a real target; for labels, the trivial unit."""
        return self.problems[0].unit

    @property
    def row_tasks(self) -> np.ndarray:
        """Tasks of the rows, ``(n,)``. Without tasks, all rows belong to one task."""
        return np.zeros(self.n, np.int64) if self.codes is None else self.codes

    @property
    def no_biases(self) -> np.ndarray:
        """Zeros in the shape of :meth:`biases`."""
        count = len(self.problems)
        return np.zeros(count) if self.task_kernel is None else machine_stack([np.zeros(len(self.task_kernel))] * count)

    def forms(self, grams: Grams, betas: np.ndarray) -> np.ndarray:
        """Return the quadratic forms M_w of the nodes of ``grams``, summed over SVMs, ``(W,)``. For large matrices, they are computed from
        sums over pairs of tasks, which workers add up.
        """
        if grams.holds_sum:
            return np.maximum(grams.forms(self.vectors(betas)), 0.0).sum(axis=1)
        shares = np.ones((1, 1)) if self.task_kernel is None else self.task_kernel
        return np.maximum(np.einsum("st,mkst->mk", shares, grams.task_forms(betas, self.row_tasks, len(shares))), 0.0).sum(axis=0)

    def outside_forms(self, betas: np.ndarray, data: RowData, resources: Resources) -> NodeForms:
        """Return an object that computes the quadratic forms of nodes outside the hull at dual variables ``(m, n)``."""
        if fits_driver(self.n, resources.driver_memory):
            return VectorForms(data, resources, self.vectors(betas))
        return SignedForms(data, resources, betas, self.row_tasks, np.ones((1, 1)) if self.roots is None else self.roots)

    def combine(self, grams: Grams, weights: np.ndarray) -> Gram:
        """Return ``sum_w weights_w H_w`` for the solvers: a matrix in the driver, or passes if the matrix exceeds the driver's memory."""
        if self.task_kernel is None:
            return grams.combine(weights)
        if not grams.holds_sum:
            return grams.combine_tasks(weights[:, None, None] * self.task_kernel, self.row_tasks)
        gram, codes = grams.combine(weights), self.codes
        assert isinstance(gram, DenseGram) and codes is not None
        table = np.asarray(self.task_kernel, gram.array.dtype)
        for lo in range(0, gram.n, BLOCK_ROWS):
            gram.array[lo : lo + BLOCK_ROWS] *= table[codes[lo : lo + BLOCK_ROWS, None], codes[None, :]]
        return DenseGram(gram.array, gram.scratch)

    def solve(self, gram: Gram, betas: np.ndarray, aim: float) -> list[DualSolution]:
        """Solve every SVM from ``betas`` (m, n) until the sum of the gaps is at most ``aim``, or as far as rounding allows."""
        share, solutions = aim / len(self.problems), []
        for problem, beta in zip(self.problems, betas, strict=True):
            if self.squared:
                tol = RIDGE_TOL * max(float(np.abs(problem.c).max()), 1e-12)
                solutions.append(RidgeSolver().solve(gram, problem, warm=beta, tol=tol))
            else:
                solutions.append(solve_to_gap(gram, problem, warm=beta, tol=FIRST_TOL, aim=lambda solution: share, tighter=TOL_DECAY))
        return solutions

    def point(self, solutions: Sequence[DualSolution]) -> DualPoint:
        """Return the joint dual point of all SVMs."""
        points = [dual_point(problem, solution.beta) for problem, solution in zip(self.problems, solutions, strict=True)]
        return DualPoint(sum(p.linear for p in points), sum(p.square for p in points), min(p.step_bound for p in points))

    def biases(self, solutions: Sequence[DualSolution]) -> np.ndarray:
        """Return the biases: one per SVM; with tasks, one per task; with tasks and several SVMs, ``(m, T)``."""
        if self.codes is not None:
            return machine_stack([np.asarray(solution.biases, np.float64) for solution in solutions])
        return np.array([solution.bias for solution in solutions])

    def decisions(self, solutions: Sequence[DualSolution]) -> np.ndarray:
        """Return the decision values on the training rows, ``(m, n)``."""
        biases = self.biases(solutions)
        if self.codes is not None:
            return np.stack([one.decision + of_tasks[self.codes] for one, of_tasks in zip(solutions, np.atleast_2d(biases), strict=True)])
        return np.stack([solution.decision + bias for solution, bias in zip(solutions, biases, strict=True)])


def total_loss(solutions: Sequence[DualSolution]) -> float:
    """Return the sum of the losses at the primal points of the solutions: their primal value without the norm terms."""
    return float(sum(solution.upper - 0.5 * float(solution.beta @ solution.decision) for solution in solutions))


def build_machines(config: HKLConfig, loss: str, inputs: Inputs, task_kernel: np.ndarray | None = None) -> SharedMachines:
    """Return the SVMs of a fit. Raises DataError if no row, or no row of a class, has positive weight."""
    cost, squared = row_costs(config, inputs), loss == "squared"
    make = svc_problem if loss == "hinge" else squared_hinge_problem
    if not isinstance(inputs, TaskInputs) and not np.any(cost > 0):
        raise DataError("no sample has a positive weight; a fit needs some")
    if inputs.classes is None:
        problem = target_problem(loss, inputs.target, config.epsilon, cost)
    elif isinstance(inputs, TaskInputs):
        # Without an equality over all rows a problem of one class only is legal; the equalities of the tasks are put in its place.
        made = [replace(make(inputs.signs(machine), cost, bias=False), sum_constraint=0.0) for machine in range(inputs.n_machines)]
        return _of_tasks(made, squared, inputs, task_kernel)
    else:
        refuse_idle_classes(inputs.classes, inputs.target, cost)
        return SharedMachines(tuple(make(labels_of(inputs, machine), cost) for machine in range(inputs.n_machines)))
    return _of_tasks([problem], squared, inputs, task_kernel) if isinstance(inputs, TaskInputs) else SharedMachines((problem,), squared)


def _of_tasks(problems: Sequence[DualProblem], squared: bool, inputs: TaskInputs, task_kernel: np.ndarray | None) -> SharedMachines:
    shared = np.eye(inputs.n_tasks) if task_kernel is None else task_kernel
    return SharedMachines(tuple(replace(problem, groups=inputs.codes) for problem in problems), squared, inputs.codes, shared)
