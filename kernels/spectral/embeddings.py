r"""Embeddings by a learnt kernel matrix that preserves a neighbour graph.

The methods are coloured maximum variance unfolding, minimum volume embedding and structure preserving embedding (Zhuang, thesis, 2011,
chapter 3, section 5). All are ``min_K -tr(MK) + loss`` over positive semidefinite K with ``tr KK <= B``, solved through their duals.
Coordinates are the rows of :math:`U_d \mathrm{diag}(\lambda_d)^{1/2}`. Squared distances are measured relative to their mean over the edges
of the graph, so only the size of the map depends on the unit of the features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ..bounds import sound_gap
from ..eigen.block_lanczos import column_signs
from ..eigen.column_block import BlockEngine
from ..eigen.operator import SymmetricOperator
from ..eigen.positive_part import as_array
from ..jit import one_thread
from .dual_ascent import kernel_at, solve_dual
from .newton import MAX_NEWTON_ROWS, Decomposed, NewtonState, newton_start, newton_steps
from .pair_losses import DistanceTerms
from .problem import SpectralProblem, evaluate
from .triple_losses import TripleProblem, TripleTerms, new_triples, worst_triples

DEFAULT_CAP_RATIO = 100.0
"""Default cap of tr KK, as a multiple of tr GG with G the centred Gram matrix of the input.

A smaller cap collapses the map: at 1 the labels of neighbours agree less often than under principal components; from 100 on the cap hardly
matters.
"""
FIRST_INNER_TOL = 1e-3  # Relative gap to which the first convex problem of a sequence is solved; later ones follow the gain of the last.
INNER_SHARE = 0.1  # Relative gap of a convex problem in units of that gain, and at the end of the tolerance.
MAX_TRIALS_PER_STEP = 5  # Decompositions per Newton step, on average, at most.
MIN_POSITIVE = float(np.finfo(float).tiny)
LABEL_KERNEL_ROUNDING = 1e-6  # Asymmetry, and share of the largest eigenvalue, that rounding of single precision may leave.
MAX_INNER_STEPS = 300  # Decompositions of one convex problem of a sequence at most.


@dataclass(frozen=True)
class Neighbourhood:
    """A neighbour graph of n rows with the squared lengths of its edges."""

    n: int
    rows: np.ndarray  # (m,) edges, rows < cols
    cols: np.ndarray
    goal: np.ndarray  # (m,) squared distances over unit
    unit: float  # their mean; 1 where all are zero
    energy: float  # squared Frobenius norm of the centred Gram matrix, in these units
    directions: np.ndarray  # (n, d) leading eigenvectors of that matrix, fewer where its rank is less

    @property
    def terms(self) -> DistanceTerms:
        """Squared distances of the edges under a kernel."""
        return DistanceTerms(self.n, self.rows, self.cols)

    @property
    def adjacency(self) -> sp.csr_array:
        both = np.concatenate([self.rows, self.cols]), np.concatenate([self.cols, self.rows])
        matrix = sp.csr_array((np.ones(2 * len(self.rows)), both), shape=(self.n, self.n))
        matrix.sort_indices()
        return matrix

    @cached_property
    def components(self) -> tuple[int, int]:
        """Number of connected components, and number of rows without an edge."""
        sizes = np.bincount(connected_components(self.adjacency, directed=False)[1])
        return len(sizes), int(np.sum(sizes == 1))


def build_neighbourhood(
    n: int, rows: np.ndarray, cols: np.ndarray, squares: np.ndarray, norm2: float, directions: np.ndarray
) -> Neighbourhood:
    """Return the neighbourhood of n rows from edges with squared distances.

    ``norm2`` and ``directions`` are the squared Frobenius norm of the centred Gram matrix and its leading eigenvectors.
    """
    unit = float(squares.mean())
    unit = unit if unit > 0 else 1.0
    order = np.lexsort((cols, rows))
    return Neighbourhood(n, rows[order], cols[order], squares[order] / unit, unit, norm2 / unit**2, directions)


def leading_directions(X: Any, count: int) -> tuple[float, np.ndarray]:
    """Return the squared Frobenius norm of the rows' centred Gram matrix, and its leading eigenvectors, ``(n, count)`` at most."""
    n, d = X.shape
    with one_thread():
        if not sp.issparse(X) and d <= n:
            centred = X - X.mean(axis=0)
            values, turned = np.linalg.eigh(centred.T @ centred)
            vectors = centred @ turned[:, ::-1][:, :count]
            return float(values @ values), normalise_columns(vectors, values[::-1])
        gram = (X @ X.T).toarray() if sp.issparse(X) else X @ X.T
        means = gram.mean(axis=0)
        gram = gram - means - means[:, None] + means.mean()
        values, vectors = np.linalg.eigh(0.5 * (gram + gram.T))
    return float(values @ values), normalise_columns(vectors[:, ::-1][:, :count], values[::-1])


def normalise_columns(vectors: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the columns whose eigenvalue exceeds round-off, scaled to unit length."""
    keep = values[: vectors.shape[1]] > 1e-12 * max(float(values[0]), np.finfo(float).tiny)
    return vectors[:, keep] / np.linalg.norm(vectors[:, keep], axis=0)


def class_factor(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Return Y, one column per class, ``(n, n_classes)``. Rows of code -1 have no label; they are zero in Y."""
    factor = np.zeros((len(codes), n_classes))
    known = np.flatnonzero(codes >= 0)
    factor[known, codes[known]] = 1.0
    return factor


def value_factor(y: np.ndarray) -> np.ndarray:
    """Return real targets as one column ``(n, 1)``, standardised to mean 0 and variance 1. NaN marks rows without a target; they become
    zero.
    """
    known = np.isfinite(y)
    centred = np.where(known, y - y[known].mean(), 0.0)
    spread = np.sqrt(np.mean(centred[known] ** 2))
    return (centred / (spread if spread > 0 else 1.0))[:, None]


def kernel_factor(kernel: np.ndarray) -> np.ndarray:
    """Return Y, ``(n, r)``, of a label kernel ``Y Y'``. Raises ValueError unless the kernel is symmetric and positive semidefinite, up to
    rounding.
    """
    size = float(np.abs(kernel).max(initial=0.0))
    if not np.isfinite(size) or np.abs(kernel - kernel.T).max(initial=0.0) > LABEL_KERNEL_ROUNDING * size:
        raise ValueError("label_kernel: must be finite and symmetric")
    with one_thread():
        values, vectors = np.linalg.eigh(0.5 * (kernel + kernel.T))
    top = max(float(values[-1]), MIN_POSITIVE)
    if values[0] < -LABEL_KERNEL_ROUNDING * len(kernel) * top:
        raise ValueError(f"label_kernel: has the eigenvalue {values[0]:.3g}; must be positive semidefinite")
    keep = values > LABEL_KERNEL_ROUNDING * top
    return np.ascontiguousarray((vectors[:, keep] * np.sqrt(values[keep]))[:, ::-1])


def label_target(factor: np.ndarray) -> SymmetricOperator:
    """Return ``H Y Y' H``."""
    n = len(factor)
    return SymmetricOperator(sp.csr_array((n, n)), factor, centre=True)


def split_target(directions: np.ndarray) -> SymmetricOperator:
    """Return ``2 V V' - I``; as a function of K it is the sum of the eigenvalues along V minus the sum of the others."""
    n, d = directions.shape
    return SymmetricOperator(-sp.csr_array(sp.eye_array(n, format="csr")), directions, np.full(d, 2.0))


def graph_target(graph: Neighbourhood) -> SymmetricOperator:
    """Return ``H W H`` of the adjacency matrix W, so that K is centred."""
    degrees = np.asarray(graph.adjacency.sum(axis=1), dtype=np.float64).ravel()
    ones = np.ones(graph.n)
    # HWH = W - (w 1' + 1 w')/n + (1'w) 11'/n^2, w the degrees; a sum of two squares with opposite signs.
    shifted = degrees / graph.n - 0.5 * degrees.sum() / graph.n**2
    return SymmetricOperator(graph.adjacency, np.column_stack([ones + shifted, ones - shifted]), np.array([-0.5, 0.5]))


@dataclass(frozen=True)
class KernelSolution:
    """A kernel matrix ``U diag(lam) U'`` from an ascent, with bounds of the optimum of its convex problem."""

    vectors: np.ndarray  # U, (n, r)
    spectrum: np.ndarray  # lam, (r,)
    forms: np.ndarray  # (m,) u of K
    alpha: np.ndarray  # best dual point
    upper: float  # objective of K
    lower: float
    evaluations: int  # eigendecompositions it took


@dataclass(frozen=True)
class EmbeddingState:
    """State of an embedding."""

    record_name: ClassVar[str] = "EmbeddingState"
    iteration: int  # steps done
    ascent: NewtonState  # goes on over steps
    alpha: np.ndarray  # dual point that the next step begins at
    vectors: np.ndarray  # (n, r) of the best K so far
    spectrum: np.ndarray
    upper: float = np.inf  # objective of that K
    lower: float = -np.inf  # bound of the optimum, or of that of the last convex problem
    evaluations: int = 0  # eigendecompositions done
    inner_tol: float = FIRST_INNER_TOL  # relative gap that the next convex problem is solved to
    directions: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # (n, d) eigenvectors that the next convex problem rewards
    triples: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int64))  # working set
    worst: float = 0.0  # largest violation over all triples under the best K
    # cost C of a violation; NaN in runs of versions whose C was in units of :func:`violation_unit`
    violation_cost: float = np.nan
    stop: str | None = None  # "tol", "gap", "max_iter" or "stalled"

    @property
    def gap(self) -> float:
        """Difference of the two bounds."""
        return sound_gap(self.upper - self.lower, self.upper)

    @property
    def relative_gap(self) -> float:
        """The gap divided by the objective."""
        return self.gap / max(abs(self.upper), MIN_POSITIVE) if np.isfinite(self.gap) else np.inf

    def coordinates(self, count: int, unit: float) -> np.ndarray:
        """Return the map, ``(n, count)``, in the unit of the features; columns beyond the rank of K are zero."""
        out = np.zeros((len(self.vectors), count))
        rank = min(count, len(self.spectrum))
        out[:, :rank] = self.vectors[:, :rank] * np.sqrt(unit * self.spectrum[:rank])
        return out

    def share(self, count: int) -> float:
        """Return the share of the trace of K in its first ``count`` eigenvalues."""
        total = float(self.spectrum.sum())
        return float(self.spectrum[:count].sum()) / total if total > 0 else 1.0


def initial_state(n: int, size: int, directions: np.ndarray | None = None, violation_cost: float = np.nan) -> EmbeddingState:
    """Return the state before the first step; the dual variables of this state are not used."""
    none = np.zeros(size)
    columns = np.zeros((n, 0)) if directions is None else directions
    first = EmbeddingState(0, newton_start(n, none), none, np.zeros((n, 0)), np.zeros(0), directions=columns)
    return replace(first, violation_cost=violation_cost)


def _with_kernel(state: EmbeddingState, kernel: KernelSolution, upper: float) -> EmbeddingState:
    return replace(state, vectors=kernel.vectors, spectrum=kernel.spectrum, upper=upper)


def _best_kernel(state: NewtonState, at: Decomposed) -> KernelSolution:
    """Return the best K of Newton's ascent; the entry of largest magnitude is positive in each eigenvector."""
    vectors = at.vectors[:, : at.rank]
    signed = np.ascontiguousarray(vectors * column_signs(vectors))
    return KernelSolution(signed, at.spectrum, at.forms, state.best_alpha, state.best_primal, state.best_dual, state.iteration)


def solve_kernel(problem: SpectralProblem, alpha: np.ndarray, tol: float) -> KernelSolution:
    """Return the K of a convex problem, by projected gradients from ``alpha``."""
    state = solve_dual(problem, alpha, tol=tol, max_iter=MAX_INNER_STEPS)
    best = kernel_at(problem, state, tol=tol)
    bounds = state.best_primal, state.best_dual, state.iteration
    return KernelSolution(as_array(best.part.vectors), best.spectrum, best.forms, state.best_alpha, *bounds)


@dataclass(frozen=True)
class Solver:
    """Resources of the eigensolver: the memory limit of this process in bytes, and an engine that stores blocks outside this process."""

    memory: int | None = None
    engine: BlockEngine | None = None


IN_MEMORY = Solver()


def colored_problem(graph: Neighbourhood, target: SymmetricOperator, C: float, B: float, solver: Solver = IN_MEMORY) -> SpectralProblem:
    """Return ``min_K -tr(MK) + C/2 sum_e (D_e - u_e)^2``; with M from labels this is coloured maximum variance unfolding."""
    return SpectralProblem(target, graph.terms, graph.goal, "square", C, 2.0, B, memory=solver.memory, engine=solver.engine)


def colored_step(problem: SpectralProblem, state: EmbeddingState, *, tol: float, max_iter: int) -> EmbeddingState:
    """Return the state after one Newton step or, if there are too many rows for complete decompositions, after the whole ascent."""
    state = replace(state, iteration=state.iteration + 1)
    if len(state.vectors) > MAX_NEWTON_ROWS:
        kernel = solve_kernel(problem, state.alpha, tol)
        stop = "gap" if kernel.upper - kernel.lower <= tol * abs(kernel.upper) else "max_iter"
    else:
        ascent, at = newton_steps(problem, state.ascent, tol=tol, max_iter=MAX_TRIALS_PER_STEP * max_iter, steps=1)
        kernel, stop = _best_kernel(ascent, at), ascent.stop or ("max_iter" if state.iteration >= max_iter else None)
        state = replace(state, ascent=ascent)
    state = replace(state, lower=kernel.lower, alpha=kernel.alpha, evaluations=kernel.evaluations, stop=stop)
    return _with_kernel(state, kernel, kernel.upper)


def volume_step(
    graph: Neighbourhood, state: EmbeddingState, *, count: int, C: float, B: float, tol: float, max_iter: int, solver: Solver = IN_MEMORY
) -> EmbeddingState:
    """Return the state after one convex problem, whose target splits the eigenvectors of the previous K.

    If the gain of K falls below ``tol``, the problem is solved once more, more accurately, before the sequence ends.
    """
    problem = colored_problem(graph, split_target(state.directions), C, B, solver)
    if graph.n > MAX_NEWTON_ROWS:
        kernel = solve_kernel(problem, state.alpha, state.inner_tol)
    else:
        kernel = _best_kernel(*newton_steps(problem, newton_start(graph.n, state.alpha), tol=state.inner_tol, max_iter=MAX_INNER_STEPS))
    # -sum_{i<=d} lam_i + sum_{i>d} lam_i + C/2 sum_e (D_e - u_e)^2, which no exact outer step raises.
    lam = kernel.spectrum
    value = float(lam.sum()) - 2.0 * float(lam[:count].sum()) + 0.5 * C * float(np.sum((graph.goal - kernel.forms) ** 2))
    gain = (state.upper - value) / max(abs(value), MIN_POSITIVE)
    state = replace(state, iteration=state.iteration + 1, alpha=kernel.alpha, evaluations=state.evaluations + kernel.evaluations)
    if gain > 0:
        state = replace(_with_kernel(state, kernel, value), directions=kernel.vectors[:, :count])
    final_tol, ended = INNER_SHARE * tol, gain <= tol and state.inner_tol <= INNER_SHARE * tol
    aim = final_tol if gain <= tol else max(final_tol, INNER_SHARE * min(gain, 1.0))
    state = replace(state, lower=state.upper - max(kernel.upper - kernel.lower, 0.0), inner_tol=min(state.inner_tol, aim))
    if ended:
        return replace(state, stop="tol")
    return replace(state, stop="max_iter") if state.iteration >= max_iter else state


@dataclass(frozen=True)
class StructureProblem:
    """The problem of a structure preserving embedding.

    * ``C``: the cost per unit of the largest violation. Violations are differences of squared distances.
    * ``B``: the cap of tr KK.
    """

    graph: Neighbourhood
    target: SymmetricOperator  # H W H
    C: float
    B: float
    solver: Solver = IN_MEMORY
    # (factor, starts, neighbours) -> the most violated triple of every row and its violation
    find_worst: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] = worst_triples

    def problem(self, triples: np.ndarray) -> TripleProblem:
        """Return the problem on a working set."""
        terms, (memory, engine) = TripleTerms(self.graph.n, triples), (self.solver.memory, self.solver.engine)
        return TripleProblem(self.target, terms, np.zeros(len(triples)), C=self.C, B=self.B, memory=memory, engine=engine)

    def worst(self, kernel: KernelSolution) -> tuple[np.ndarray, np.ndarray]:
        """Return the most violated triple of each row under a kernel, and its violation."""
        adjacency = self.graph.adjacency
        factor = np.ascontiguousarray(kernel.vectors * np.sqrt(kernel.spectrum))
        return self.find_worst(factor, adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int64))


def structure_problem(graph: Neighbourhood, C: float, B: float, solver: Solver = IN_MEMORY) -> StructureProblem:
    """Return the problem of a structure preserving embedding. C is the cost of a violation of size one, as in the problem's formula."""
    return StructureProblem(graph, graph_target(graph), C, B, solver)


def violation_unit(graph: Neighbourhood, solver: Solver = IN_MEMORY) -> float:
    r"""Return the cost C at which a violation equal to the mean squared distance costs as much as the best value without triples.

    A kernel on the cap with two equal eigenvalues has the mean squared distance :math:`2 \sqrt{2 B} / n`; the optimum without triples is
    :math:`\sqrt B \|(HWH)_+\|_F`. Their ratio does not depend on B.
    """
    best = _solve_unconstrained(structure_problem(graph, 1.0, 1.0, solver)).lower
    return graph.n * max(-best, MIN_POSITIVE) / float(np.sqrt(8.0))


def _solve_unconstrained(structure: StructureProblem) -> KernelSolution:
    """Return the closed-form K without triples."""
    none = np.zeros(0)
    best = evaluate(structure.problem(np.zeros((0, 3), np.int64)), none)
    return KernelSolution(as_array(best.part.vectors), best.spectrum, none, none, best.primal, best.dual, 1)


def structure_step(structure: StructureProblem, state: EmbeddingState, *, tol: float, max_iter: int) -> EmbeddingState:
    """Return the state after one round of cutting planes: solve on the working set, compute all violations, add the violated triples.

    A dual point of a working set is dual feasible for the whole problem, so ``lower`` is a valid bound. ``upper`` uses the largest
    violation over all triples.
    """
    problem = structure.problem(state.triples)
    kernel = solve_kernel(problem, state.alpha, state.inner_tol) if len(state.triples) else _solve_unconstrained(structure)
    triples, violation = structure.worst(kernel)
    worst = max(0.0, float(violation.max(initial=0.0)))
    # The loss of the working set is taken off: what is left is -tr(MK).
    upper = kernel.upper - problem.loss_of(kernel.forms) + structure.C * worst
    state = replace(state, iteration=state.iteration + 1, alpha=kernel.alpha, evaluations=state.evaluations + kernel.evaluations)
    state = replace(state, lower=max(state.lower, kernel.lower))
    if upper < state.upper:
        state = replace(_with_kernel(state, kernel, upper), worst=worst)
    closed = state.gap <= tol * abs(state.upper)
    if closed or state.iteration >= max_iter:
        return replace(state, stop="gap" if closed else "max_iter")
    return _enlarge_working_set(state, triples[violation > 0.0], tol)


def _enlarge_working_set(state: EmbeddingState, violated: np.ndarray, tol: float) -> EmbeddingState:
    """Return the state with the working set of the next round: triples with a non-zero weight, and violated ones."""
    active, weights = state.triples[state.alpha > 0], state.alpha[state.alpha > 0]
    added = new_triples(active, violated)
    final_tol = 0.3 * tol
    if not len(added) and state.inner_tol <= final_tol:
        return replace(state, stop="stalled")
    aim = INNER_SHARE * state.gap / max(abs(state.lower), MIN_POSITIVE)
    inner = max(final_tol, min(aim, state.inner_tol)) if len(added) else final_tol
    start = np.concatenate([weights, np.zeros(len(added))])
    return replace(state, triples=np.concatenate([active, added]), alpha=start, inner_tol=inner)
