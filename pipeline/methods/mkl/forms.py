"""Computations of multiple kernel learning with Gram matrices: quadratic forms over the working set, second-order models, and certificates
over all kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....kernels.svm.dual import DenseGram, DualSolution, Gram
from ....kernels.svm.logistic import LogisticProblem
from ....kernels.svm.weight_model import curvature_root, free_part, free_rows, is_model_cheaper
from ....kernels.weights.domains import NormDomain
from ...grams.grams import Grams
from ...loops.kernel_weights import ModelProblem, Trial, WeightState, average_dual, certify_all_kernels, make_trial

CUT_BYTES = 32 << 20  # shares of all tiles in the forms of cuts that one pass brings

# Logistic loss: a second-order model leaves out rows whose curvature is below this share of C. Their ridges would dwarf all others.
MIN_WEIGHT_SHARE = 1e-4


@dataclass(frozen=True)
class Solved:
    """Solution of an SVM. If a second-order model is to be made, also the free rows F of the solution and the matrix
    ``(K(theta) + diag(ridge))_FF``.
    """

    solution: DualSolution
    free: np.ndarray | None = None
    matrix: np.ndarray | None = None


def with_second_order_model(gram: Gram, problem: ModelProblem, solution: DualSolution, kernels: int) -> Solved:
    """Return ``solution``. If a second-order model is worth its cost and the Gram matrix is in the driver, add the matrix of that model."""
    if isinstance(problem, LogisticProblem):
        weights = problem.weights(solution.beta)
        free, ridges = np.flatnonzero(weights > MIN_WEIGHT_SHARE * problem.cost), 1.0 / np.maximum(weights, np.finfo(float).tiny)
    else:
        free, ridges = free_rows(problem, solution.beta), problem.ridges()
    if not isinstance(gram, DenseGram) or not is_model_cheaper(problem.n, len(free), kernels):
        return Solved(solution)
    return Solved(solution, free, free_part(gram.array, free, ridges))


def quadratic_forms(grams: Grams, states: Sequence[WeightState], problems: Sequence[ModelProblem], solved: Sequence[Solved]) -> list[Trial]:
    """Return a trial per SVM: its solution with the quadratic forms of the kernels in its working set. One pass serves all SVMs without a
    second-order model, another pass all SVMs with such a model.
    """
    kernels = np.flatnonzero(np.any([state.active for state in states], axis=0))
    chosen = None if len(kernels) == grams.k else kernels
    betas = np.stack([one.solution.beta for one in solved], axis=1)
    trials: dict[int, Trial] = {}
    plain = [m for m, one in enumerate(solved) if one.matrix is None]
    if plain:
        for m, forms in zip(plain, grams.forms(betas[:, plain], chosen).T, strict=True):
            trials[m] = make_trial(problems[m], states[m].theta, solved[m].solution, _scatter(forms, kernels, states[m].active))
    modelled = [m for m, one in enumerate(solved) if one.matrix is not None]
    if modelled:
        products = grams.products(betas[:, modelled], betas[:, modelled] != 0.0, chosen)
        for column, m in enumerate(modelled):
            trials[m] = _trial_with_model(products[:, column], kernels, states[m], problems[m], solved[m])
    return [trials[m] for m in range(len(solved))]


def _scatter(values: np.ndarray, kernels: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Return an array over all kernels: ``values`` of ``kernels`` where ``active`` is True, and zero elsewhere."""
    scattered = np.zeros(len(active))
    scattered[kernels] = values
    return np.where(active, scattered, 0.0)


def _trial_with_model(products: np.ndarray, kernels: np.ndarray, state: WeightState, problem: ModelProblem, solved: Solved) -> Trial:
    beta, free, matrix = solved.solution.beta, solved.free, solved.matrix
    assert free is not None and matrix is not None
    s = _scatter(np.maximum(np.einsum("kn,n->k", products, beta), 0.0), kernels, state.active)
    working = products[state.active[kernels]][:, free]
    return make_trial(problem, state.theta, solved.solution, s, curvature_root(matrix, working, problem.sum_constraint is not None))


def certify_with_all_kernels(grams: Grams, state: WeightState, problem: ModelProblem, domain: NormDomain) -> WeightState:
    """Return the state with the lower bound over all kernels, and with the kernels that violate it added to the working set. This takes one
    or more passes.
    """
    if not len(state.mix):
        return state
    mean = average_dual(state)
    state = certify_all_kernels(state, problem, mean, grams.forms(mean), domain)
    lacking = np.isnan(state.cut_forms) & state.active
    kernels, cuts = np.flatnonzero(lacking.any(axis=0)), np.flatnonzero(lacking.any(axis=1))
    if not len(kernels):
        return state
    forms, size = state.cut_forms.copy(), cuts_at_once(grams.k, grams.n)
    for some in (cuts[lo : lo + size] for lo in range(0, len(cuts), size)):
        forms[np.ix_(some, kernels)] = grams.forms(state.cut_betas[some].T, kernels).T
    return replace(state, cut_forms=forms)


def cuts_at_once(k: int, n: int) -> int:
    """Return the number of cuts for which one pass can compute quadratic forms in k kernels, with results of at most ``CUT_BYTES``."""
    tiles = -(-n // 128)
    return max(1, CUT_BYTES // (8 * k * tiles**2))
