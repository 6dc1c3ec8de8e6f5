"""What must hold of every multiple kernel learning fit, beyond the bounds.

Where each property of the problem has its test (``mkl`` is tests/pipeline/methods/mkl/test_mkl.py, ``here`` this file):

====  ======================================================  ==================================================================
I1    lower bound <= optimum <= upper bound                   mkl: test_bounds_close_around_the_optimum (SLSQP oracle)
I2    the gap never grows                                     the same
I3    all solvers end at one optimum                          mkl: test_solvers_agree
I4    one kernel is one machine                               mkl: test_one_kernel_is_one_machine
I5    (C, K) -> (C / a, a K)                                  mkl: test_scaling_kernels_and_cost
I6    order of the kernels                                    mkl: test_order_of_kernels_and_shape_of_the_set
I7    box and sum of the coefficients                         mkl: test_bounds_close_around_the_optimum
I8    primal value at the solution                            the same
I9    J*(v) rises with v; a zero kernel gets nothing          mkl: test_order_of_kernels..., test_a_zero_kernel...
I10   identical kernels, identical weights (v < 1)            mkl: test_order_of_kernels_and_shape_of_the_set
I11   solvers agree within their gaps                         mkl: test_solvers_agree
I12   normalised kernels over the training rows               here: test_normalised_kernels
I13   decisions are those of the whole matrices               mkl: test_decisions_are_those_of_the_whole_matrices
I14   blocks or whole, the same quadratic forms               here: test_forms_by_blocks; mkl: test_policies_give_the_same_bits
I15   projections satisfy cuts and set                        mkl: test_projection_satisfies_cuts_and_set
====  ======================================================  ==================================================================

Theorems 8 to 10 (the constraint is tight, twins, differences of weights) and the conditions of optimality are here, too.
"""

import warnings

import numpy as np
import pytest

from gramplane.cluster import open_executor
from gramplane.kernels.grams.spec import as_specs
from gramplane.kernels.weights.domains import ElasticNetSet
from gramplane.pipeline import MKLClassifier, MKLRegressor
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams.grams import Grams
from gramplane.pipeline.grams.settings import GramSettings
from gramplane.storage import MemoryBlocks
from tests.support.oracles import mkl as oracle

SHARP = {"normalize": "none", "tol": 1e-6, "max_iter": 400}


def fitted(problem, **options):
    return MKLClassifier("precomputed", C=problem.C, **{"v": problem.v, **SHARP, **options}).fit(problem.grams, problem.y)


def forms_of(model, grams):
    """Quadratic forms of the coefficients of a fitted two-class model."""
    beta = np.zeros(grams.shape[1])
    beta[model.support_vectors_] = model.dual_coef_[0]
    return np.einsum("i,qij,j->q", beta, grams, beta)


# --- optimality -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("v", [0.0, 0.4, 0.8])
def test_weights_answer_the_forms_and_the_constraint_is_tight(v):
    """Theorem 8, and theta* = argmax <s(beta*), theta>: theta_q = 0 exactly where s_q <= v / z."""
    problem = oracle.random_problem(11, v=v)
    model = fitted(problem)
    theta, s = model.kernel_weights_, forms_of(model, problem.grams)
    np.testing.assert_allclose(v * theta.sum() + (1 - v) * np.square(theta).sum(), 1.0, atol=1e-6)
    value, answer = ElasticNetSet(v).support(s)
    np.testing.assert_allclose(theta, answer, atol=5e-3)
    # The single-machine gap of the point that is returned.
    assert -1e-9 <= 0.5 * (value - s @ theta) <= 1e-4 * model.objective_


def test_on_the_simplex_kernels_with_weight_have_the_largest_form():
    problem = oracle.random_problem(12, v=1.0)
    model = fitted(problem)
    theta, s = model.kernel_weights_, forms_of(model, problem.grams)
    np.testing.assert_allclose(theta.sum(), 1.0, atol=1e-8)
    assert np.all(s[theta > 1e-2] >= (1 - 1e-2) * s.max())


# --- kernels that are alike -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("v", "changes"), [(1.0, False), (0.5, True)])
def test_a_twin_adds_nothing_on_the_simplex_and_room_inside(v, changes):
    """Theorem 9: at v = 1 the weight is split; at v < 1 more fits into the set, so J falls, and the twins weigh the same."""
    problem = oracle.random_problem(13, v=v)
    twins = oracle.Problem([*problem.features, problem.features[2]], problem.y, problem.C, v)
    with pytest.warns(UserWarning, match=r"the same: precomputed 2 and precomputed 6 \(positions 2, 6\)"):
        found = fitted(twins)
    alone = fitted(problem)
    if changes:
        assert found.objective_ < alone.lower_bound_
        np.testing.assert_allclose(found.kernel_weights_[2], found.kernel_weights_[6], atol=1e-6)
    else:
        np.testing.assert_allclose(found.objective_, alone.objective_, rtol=5e-6)
        np.testing.assert_allclose(found.kernel_weights_[[2, 6]].sum(), alone.kernel_weights_[2], atol=5e-2)


def test_weights_differ_by_no_more_than_their_forms():
    """Theorem 10: |theta_i - theta_j| <= z |s_i - s_j| / (2 (1 - v)), with equality where both are active."""
    v = 0.5
    problem = oracle.random_problem(14, Q=8, v=v)
    model = fitted(problem)
    s = forms_of(model, problem.grams)
    theta = ElasticNetSet(v).support(s)[1]
    active = theta > 0
    z = np.sqrt((4 * (1 - v) + active.sum() * v**2) / np.square(s[active]).sum())
    apart, bound = np.abs(theta[:, None] - theta), z * np.abs(s[:, None] - s) / (2 * (1 - v))
    assert np.all(apart <= bound + 1e-9)
    np.testing.assert_allclose(apart[np.ix_(active, active)], bound[np.ix_(active, active)], atol=1e-9)


def test_one_text_given_twice_is_told():
    rng = np.random.default_rng(0)
    X = rng.random((40, 3))
    with pytest.warns(UserWarning, match=r"linear trace and linear trace \(positions 0, 2\)"):
        MKLClassifier(["linear", "rbf(gamma=1)", "linear"], scale=None).fit(X, X[:, 0] > 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Gaussians of narrow widths agree on a feature of two values: nobody's mistake.
        MKLClassifier(["rbf(gamma=8)[0]", "rbf(gamma=32)[0]", "linear"], scale=None).fit(20 * np.round(X), X[:, 0] > 0.5)


# --- regression -------------------------------------------------------------------------------------------------------------------


def test_solvers_of_regressions_end_at_one_optimum():
    rng = np.random.default_rng(1)
    X = rng.random((60, 4))
    kernels = ["rbf(gamma=2)[0]", "rbf(gamma=2)[1]", "linear", "poly(degree=2)"]
    found = [
        MKLRegressor(kernels, solver=solver, tol=1e-4, epsilon=0.05, scale=None).fit(X, np.sin(6 * X[:, 0])) for solver in ("level", "silp")
    ]
    assert max(one.lower_bound_ for one in found) <= min(one.upper_bound_ for one in found) * (1 + 1e-9)
    assert all(one.kernel_weights_.argmax() == 0 for one in found)


# --- passes -----------------------------------------------------------------------------------------------------------------------


def grams_over(X, kernels, block=128):
    with open_executor(None) as executor:
        return Grams(MemoryBlocks(X), as_specs(kernels, X.shape[1]), GramSettings("memory", block), Resources(executor))


def test_forms_by_blocks():
    """I14: to 1e-12 of the whole matrices' in float64."""
    rng = np.random.default_rng(2)
    X, beta = rng.standard_normal((300, 4)), rng.standard_normal(300) * (rng.random(300) < 0.5)
    grams = grams_over(X, ["rbf(gamma=0.5)", "linear", "poly(degree=2)[1]"])
    whole = np.stack([np.asarray(grams.combine(row).array, np.float64) for row in np.eye(3)])
    np.testing.assert_allclose(grams.forms(beta), np.einsum("i,qij,j->q", beta, whole, beta), rtol=1e-12)


def test_normalised_kernels():
    """I12: trace n, trace 1, unit variance in feature space, unit length, over the training rows."""
    X = np.random.default_rng(3).standard_normal((150, 4))
    n = len(X)
    kernels = [f"rbf(gamma=0.5) {name}" for name in ("trace", "unit_trace", "multiplicative", "cosine")]
    grams = grams_over(X, kernels)
    trace, unit, variance, cosine = grams.diagonals()
    np.testing.assert_allclose([trace.sum(), unit.sum()], [n, 1.0], rtol=1e-9)
    np.testing.assert_allclose(cosine, 1.0, rtol=1e-6)
    mean = grams.forms(np.ones(n))[2] / n**2
    np.testing.assert_allclose(variance.mean() - mean, 1.0, rtol=1e-6)
