"""Sets of kernel weights beside the elastic net: optimum, ends that are other sets, solvers, errors."""

import numpy as np
import pytest
from sklearn.svm import SVC

from gramplane.pipeline import MKLClassifier, MKLRegressor
from tests.support.oracles import mkl as oracle

EXACT = {"normalize": "none", "tol": 1e-5, "max_iter": 400}


def fitted(problem, **options):
    return MKLClassifier("precomputed", C=problem.C, **{**EXACT, **options}).fit(problem.grams, problem.y)


def left(constraint):
    """What the constraint leaves, as a function of the weights; not negative inside the set."""
    if constraint["constraint"] == "l1_lp":
        v, p = constraint["v"], constraint["p"]
        return lambda theta: 1 - v * np.sum(theta) - (1 - v) * np.sum(np.maximum(theta, 0) ** p)
    return lambda theta: constraint["B"] - np.sum(theta)


SETS = [{"constraint": "l1_lp", "v": 0.3, "p": 3.0}, {"constraint": "l1_lp", "v": 0.7, "p": 1.4}, {"constraint": "box", "B": 3}]
every = pytest.mark.parametrize("constraint", SETS, ids=str)


@every
def test_bounds_close_around_the_optimum(constraint):
    problem = oracle.random_problem(2)
    optimum = oracle.weights_optimum(problem, left(constraint))[0]
    found = fitted(problem, **constraint)
    slack = 1e-5 * optimum
    assert found.converged_ and 0 <= found.dual_gap_ <= 1e-5 * found.objective_
    assert np.all(found.history_["lower_bound"] <= optimum + slack)
    assert np.all(found.history_["upper_bound"] >= optimum - slack)
    assert np.all(np.diff(found.history_["lower_bound"]) >= 0) and np.all(np.diff(found.history_["upper_bound"]) <= 0)
    theta = found.kernel_weights_
    assert np.all((theta >= 0) & (theta <= 1)) and left(constraint)(theta) >= -1e-9


@pytest.mark.parametrize(
    ("constraint", "solver"),
    [*((constraint, solver) for constraint in SETS for solver in ("level", "silp", "alternate")), (SETS[-1], "fgm")],
    ids=str,
)
def test_solvers_agree(constraint, solver):
    problem = oracle.random_problem(3)
    found, known = fitted(problem, solver=solver, tol=1e-4, **constraint), fitted(problem, **constraint)
    assert found.converged_
    assert found.lower_bound_ <= known.upper_bound_ * (1 + 1e-6) and known.lower_bound_ <= found.upper_bound_ * (1 + 1e-6)


@pytest.mark.parametrize(
    ("given", "other"),
    [
        ({"constraint": "l1_lp", "v": 0.4, "p": 2.0}, {"constraint": "elastic_net", "v": 0.4}),
        ({"constraint": "l1_lp", "v": 0.0, "p": 3.0}, {"constraint": "lp", "p": 3.0}),
        ({"constraint": "l1_lp", "v": 1.0, "p": 3.0}, {"constraint": "simplex"}),
        (
            {"constraint": "l1_lp", "v": 0.4, "p": 1.0, "solver": "simplemkl", "tol": 1e-3},
            {"constraint": "simplex", "solver": "simplemkl", "tol": 1e-3},
        ),
        ({"constraint": "box", "B": 1}, {"constraint": "simplex"}),
    ],
)
def test_ends_of_a_set_are_the_sets_of_that_name(given, other):
    problem = oracle.random_problem(4)
    np.testing.assert_array_equal(fitted(problem, **given).kernel_weights_, fitted(problem, **other).kernel_weights_)


@every
def test_regression_and_many_kernels(constraint):
    """40 kernels, so that a step computes the forms of a working set only; the bounds hold for all kernels."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(50, 40))
    y = X[:, 0] - X[:, 1] + X[:, 2] ** 2 + 0.1 * rng.normal(size=50)
    found = MKLRegressor([f"rbf(gamma=0.5)[{j}]" for j in range(40)], C=10.0, **constraint).fit(X, y)
    assert found.converged_ and found.lower_bound_ == found.history_["lower_bound"][-1]
    assert found.score(X, y) > 0.5
    assert left(constraint)(found.kernel_weights_) >= -1e-9


@pytest.mark.parametrize("solver", ["auto", "fgm"])
def test_a_box_for_all_kernels_is_one_machine_on_their_sum(solver):
    problem = oracle.random_problem(5)
    for B in (6, 20):
        found = fitted(problem, constraint="box", B=B, solver=solver)
        np.testing.assert_allclose(found.kernel_weights_, 1.0)
        K = problem.grams.sum(axis=0)
        reference = SVC(kernel="precomputed", C=problem.C, tol=1e-9).fit(K, problem.y)
        np.testing.assert_allclose(found.decision_function(problem.grams), reference.decision_function(K), atol=1e-3)


def test_sets_of_one_kernel_solve_the_simplex():
    problem = oracle.random_problem(7)
    found, known = fitted(problem, constraint="box", B=1, solver="fgm", tol=1e-4), fitted(problem, constraint="simplex")
    assert found.converged_ and found.lower_bound_ <= known.upper_bound_ and known.lower_bound_ <= found.upper_bound_


def test_generated_sets_select_few_of_many_kernels():
    """Three of 34 columns matter; kernels in no set have weight zero."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(50, 34))
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] - X[:, 2] > 0, 1, 0)
    kernels = [f"rbf(gamma=0.5)[{j}]" for j in range(34)]
    found, level = (MKLClassifier(kernels, constraint="box", B=3, solver=solver, tol=1e-2).fit(X, y) for solver in ("fgm", "level"))
    assert found.converged_ and {0, 1, 2} <= set(found.support_) and np.sum(found.kernel_weights_ > 0) < 34
    assert found.lower_bound_ <= level.upper_bound_ and level.lower_bound_ <= found.upper_bound_
    assert left({"constraint": "box", "B": 3})(found.kernel_weights_) >= -1e-9 and found.kernel_weights_.max() <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constraint": "l1_lp", "solver": "simplemkl"}, "solver='simplemkl' needs constraint='simplex'.*found constraint='l1_lp'"),
        ({"constraint": "l1_lp", "p": 0.5}, "p=0.5"),
        ({"constraint": "box", "solver": "simplemkl"}, "solver='simplemkl' needs constraint='simplex'.*found constraint='box'"),
        ({"constraint": "simplex", "solver": "fgm"}, "solver='fgm' needs constraint='box'.*found 'simplex'"),
        ({"constraint": "box", "B": 0}, "B=0"),
    ],
)
def test_what_does_not_fit_together_is_refused(options, message):
    problem = oracle.random_problem(6)
    with pytest.raises(ValueError, match=message):
        fitted(problem, **options)
