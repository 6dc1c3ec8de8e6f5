"""The thesis' searches for a shared subspace, in coordinates of the pooled feature space: mirror descent, and alternation (MTSFL).

Both use factors of the Gram matrices, computed once by an eigendecomposition of every kernel. In each step, the SVMs of the
tasks are independent of one another. At the end, one solve converts the best point W into couplings and coefficients of
:mod:`gramplane.pipeline.methods.shared_subspace_mkl.problem`; this cannot make the point worse.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from ....kernels.svm.dual import DenseGram
from ....kernels.tasks import shared_subspace as pooled
from ....kernels.tasks.shared_subspace import SubspaceBounds, best_coupling, dual_value, machine_value
from ...grams.grams import Grams
from .problem import SubspaceProblem, SubspaceState


class FactoredProblem(SubspaceProblem):
    """Base class of both searches. It computes the factors of the kernels. For given matrices ``Q_j``, it solves the SVMs, and computes
    their bounds and the task weights ``W_j`` in the feature space of every kernel.
    """

    _factors: list[np.ndarray] | None = None

    def factors(self, grams: Grams) -> list[np.ndarray]:
        """Return the factors of the kernels of the search. The factors follow from the data, and are computed again after a resume."""
        if self._factors is None:
            self._factors = []
            for weights in self.mix:
                gram = grams.combine(weights)
                assert isinstance(gram, DenseGram), "what the driver cannot hold was refused before"
                self._factors.append(pooled.pooled_factor(gram.array))
        return self._factors

    def solve_independent(
        self, state: SubspaceState, halves: list[pooled.Half], grams: Grams
    ) -> tuple[SubspaceState, list[np.ndarray], list[np.ndarray], float]:
        """Return the state with the bounds at ``Q_j = H_j H_j'``, the products ``G_j`` of kernel factors and coefficients, the task weights
        ``W_j``, and the time of the SVMs in seconds.
        """
        factors, q = self.factors(grams), self.config.q
        gram = DenseGram(pooled.independent_kernel(factors, halves, self.codes))
        began = time.perf_counter()
        solution = self.solve(gram, state)
        seconds = time.perf_counter() - began
        G = pooled.factor_products(factors, pooled.scatter_by_task(solution.beta, self.codes, self.n_tasks))
        W = [half.part(part) for half, part in zip(halves, G, strict=True)]
        primal, biases = machine_value(self.dual, solution.decision, pooled.part_norms(W, q))
        limits = SubspaceBounds(primal, dual_value(self.dual, solution.beta, pooled.pair_forms(G), q), biases)
        coupling = best_coupling(pooled.part_roots(W), q)
        return self.with_bounds(replace(state, beta=solution.beta), coupling, solution.beta, solution.decision, limits), G, W, seconds

    def finish(self, state: SubspaceState, grams: Grams) -> SubspaceState:
        """Return the state with its reason to stop, if any. If there is one, the state also contains the couplings of the best point and
        the joint SVM at these couplings.
        """
        state = super().finish(state, grams)
        if state.stop is None:
            return state
        solution, _ = self.solve_coupled(replace(state, beta=state.best_beta), state.best_coupling, grams)
        forms = self.forms(solution.beta, grams)
        # The parts were as good already but for round-off: the machine of the couplings is what the model predicts with.
        return self.with_solution(replace(state, upper=np.inf), state.best_coupling, solution, forms)


class MirrorProblem(FactoredProblem):
    """Matrix mirror descent with the entropy as distance (chapter 4 of the thesis). The SVMs of all steps are averaged with the step
    lengths as weights; the dual value of this average is a lower bound of the optimum.
    """

    def first_state(self, grams: Grams) -> SubspaceState:
        """Return the initial state, before the first SVM is solved."""
        state, factors = super().first_state(grams), self.factors(grams)
        squares = np.zeros(pooled.Squares(self.codes).size)
        return replace(state, sums=squares, constants=pooled.start_constants(factors, self.config.q), average=np.zeros(self.dual.n))

    def advance(self, state: SubspaceState, grams: Grams) -> tuple[SubspaceState, float]:
        """Return the state after the next solve of the SVMs and the next mirror step, with updated bounds, and the time of the solve in
        seconds.
        """
        factors, squares = self.factors(grams), pooled.Squares(self.codes)
        point = pooled.mirror_point(factors, squares, state.sums, state.constants, self.config.q)
        state, G, _, seconds = self.solve_independent(state, point.halves, grams)
        step = pooled.mirror_length(G, sum(F.shape[1] for F in factors), state.iteration + 1)
        length = state.length + step
        average = state.average + (step / length if length > 0 else 0.0) * (state.beta - state.average)
        mean = pooled.pair_forms(pooled.factor_products(factors, pooled.scatter_by_task(average, self.codes, self.n_tasks)))
        lower = max(state.lower, dual_value(self.dual, average, mean, self.config.q))
        sums = state.sums + step * squares.outer(state.beta)
        return replace(state, sums=sums, constants=point.constants, average=average, length=length, lower=lower), seconds


class AlternatingProblem(FactoredProblem):
    """Alternating minimisation on one kernel or the average of several (multi-task sparse feature learning)."""

    @property
    def mix(self) -> np.ndarray:
        """Weights ``(1, k)`` that average all kernels into the single kernel of the search."""
        return np.full((1, len(self.specs)), 1.0 / len(self.specs))

    def advance(self, state: SubspaceState, grams: Grams) -> tuple[SubspaceState, float]:
        """Return the state after the next solve of the SVMs, with updated bounds and task weights, and the time of the solve in seconds."""
        half = pooled.alternating_half(state.part, self.factors(grams)[0].shape[1], self.smoothing(state))
        state, _, W, seconds = self.solve_independent(state, [half], grams)
        return replace(state, part=W[0]), seconds


PROBLEMS = {"auto": SubspaceProblem, "mirror": MirrorProblem, "alternate": AlternatingProblem}  # the search of every solver
