"""Losses of kernels with learnt weights beside the hinge and the tube: optimum, solvers, probabilities, weights of rows, errors."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from gramplane.kernels.svm.dual import DenseGram, ridge_problem, squared_hinge_problem
from gramplane.kernels.svm.logistic import logistic_problem
from gramplane.kernels.svm.weight_model import curvature_root
from gramplane.pipeline import MKLClassifier, MKLClassifierCV, MKLRegressor, MKLRegressorCV
from gramplane.pipeline.loops.kernel_weights import solve_model
from gramplane.pipeline.methods.mkl.forms import with_second_order_model
from tests.support.oracles import mkl as oracle

EXACT = {"normalize": "none", "tol": 1e-5, "max_iter": 400}
LOSSES = ["squared_hinge", "logistic", "squared"]
SETS = [{"constraint": "elastic_net", "v": 0.5}, {"constraint": "simplex"}, {"constraint": "box", "B": 2}]
every_loss = pytest.mark.parametrize("loss", LOSSES)


def random_problem(loss, seed, **sizes):
    """With numbers of mean 0 and standard deviation 1 for the squared loss, whose C is that of such a target."""
    problem = oracle.random_problem(seed, **sizes)
    if loss == "squared":
        y = np.random.default_rng(seed).normal(size=len(problem.y))
        problem.y = (y - y.mean()) / y.std()
    return problem


def fitted(problem, loss, **options):
    kind = MKLRegressor if loss == "squared" else MKLClassifier
    return kind("precomputed", C=problem.C, loss=loss, **{**EXACT, **options}).fit(problem.grams, problem.y)


def left(constraint):
    """What the constraint leaves, as a function of the weights; not negative inside the set."""
    if constraint["constraint"] == "elastic_net":
        return lambda theta: 1 - 0.5 * np.sum(theta) - 0.5 * np.sum(theta**2)
    return lambda theta: constraint.get("B", 1) - np.sum(theta)


def coefficients(model, n):
    beta = np.zeros(n)
    beta[model.support_vectors_] = model.dual_coef_[0]
    return beta


@pytest.mark.parametrize("constraint", SETS, ids=str)
@pytest.mark.parametrize(("loss", "C"), [("squared_hinge", 1.0), ("logistic", 1.0), ("logistic", 20.0), ("squared", 1.0)])
def test_bounds_close_around_the_optimum(loss, C, constraint):
    problem = random_problem(loss, 2, C=C)
    optimum = oracle.weights_optimum(problem, left(constraint), loss)[0]
    found = fitted(problem, loss, **constraint)
    slack = 1e-5 * max(optimum, 1.0)
    assert found.converged_ and 0 <= found.dual_gap_ <= slack
    assert np.all(found.history_["lower_bound"] <= optimum + slack)
    assert np.all(found.history_["upper_bound"] >= optimum - slack)
    assert np.all(np.diff(found.history_["lower_bound"]) >= 0) and np.all(np.diff(found.history_["upper_bound"]) <= 0)
    theta, beta = found.kernel_weights_, coefficients(found, len(problem.y))
    assert np.all((theta >= 0) & (theta <= 1)) and left(constraint)(theta) >= -1e-9
    assert abs(beta.sum()) <= 1e-8 and (loss == "squared" or np.all(beta * problem.y >= 0))
    np.testing.assert_allclose(oracle.primal_value(problem, loss, theta, beta, found.intercept_), found.objective_, rtol=1e-6)


@every_loss
@pytest.mark.parametrize(
    ("solver", "constraint"),
    [("level", SETS[0]), ("silp", SETS[0]), ("alternate", SETS[0]), ("simplemkl", SETS[1]), ("fgm", SETS[2]), ("level", SETS[2])],
    ids=str,
)
def test_solvers_agree(loss, solver, constraint):
    problem = random_problem(loss, 3)
    found, known = fitted(problem, loss, solver=solver, tol=1e-3, **constraint), fitted(problem, loss, **constraint)
    assert found.converged_
    assert found.lower_bound_ <= known.upper_bound_ * (1 + 1e-6) and known.lower_bound_ <= found.upper_bound_ * (1 + 1e-6)


def test_fixed_weights_are_models_of_scikit_learn():
    """Logistic regression and ridge regression on the features of the weighted kernels; C multiplies sums of losses."""
    for loss, reference in (("logistic", LogisticRegression(tol=1e-10, max_iter=5000)), ("squared", Ridge(alpha=0.5))):
        problem = random_problem(loss, 4)
        found = fitted(problem, loss, solver="uniform", tol=1e-8)
        wide = np.hstack([np.sqrt(weight) * F for weight, F in zip(found.kernel_weights_, problem.features, strict=True)])
        reference.fit(wide, problem.y)
        values = wide @ np.ravel(reference.coef_) + reference.intercept_
        given = found.predict if loss == "squared" else found.decision_function
        np.testing.assert_allclose(given(problem.grams), values, atol=1e-3)


@every_loss
@pytest.mark.parametrize("C", [0.3, 10.0])
def test_the_second_order_model_is_that_of_the_value(loss, C):
    """Its Hessian against differences of the gradient -1/2 s, at rows of which one has no weight."""
    given = random_problem(loss, 9, N=20, C=C)
    cost = np.where(np.arange(20) == 3, 0.0, C)
    problem = {"squared_hinge": squared_hinge_problem, "logistic": logistic_problem, "squared": ridge_problem}[loss](given.y, cost)
    theta, grams = np.linspace(0.1, 0.4, 6), given.grams

    def at(weights):
        gram = DenseGram(np.tensordot(weights, grams, 1))
        return gram, solve_model(gram, problem, 1e-12)

    def slopes(weights):
        beta = at(weights)[1].beta
        return -0.5 * np.einsum("i,qij,j->q", beta, grams, beta)

    solved = with_second_order_model(at(theta)[0], problem, at(theta)[1], 6)
    assert 3 not in solved.free
    root = curvature_root(solved.matrix, (grams @ solved.solution.beta)[:, solved.free], True)
    found = np.stack([(slopes(theta + 1e-5 * e) - slopes(theta - 1e-5 * e)) / 2e-5 for e in np.eye(6)])
    np.testing.assert_allclose(root.T @ root, found, atol=3e-3 * np.abs(found).max())


@every_loss
def test_bounds_over_many_kernels_come_from_a_working_set(loss):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(50, 34))
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    kernels = [f"rbf(gamma=0.5)[{j}]" for j in range(34)]
    kind = MKLRegressor if loss == "squared" else MKLClassifier
    ends = [
        kind(kernels, constraint="simplex", loss=loss, tol=1e-4, grams=grams).fit(X, f if loss == "squared" else f > 0)
        for grams in ("memory", "recompute")
    ]
    for found in ends:
        assert found.converged_ and {0, 1} <= set(found.support_) and found.history_["working_kernels"][-1] < 34
        assert found.lower_bound_ <= ends[0].upper_bound_ and ends[0].lower_bound_ <= found.upper_bound_


def test_probabilities_of_the_logistic_loss_are_exact():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(60, 4))
    codes = np.digitize(X[:, 0] + 0.5 * rng.normal(size=60), [-0.5, 0.5])
    two, three = (MKLClassifier(["rbf", "linear"], loss="logistic").fit(X, y) for y in (codes > 0, codes))
    odds = 1 / (1 + np.exp(-two.decision_function(X)))
    np.testing.assert_allclose(two.predict_proba(X), np.column_stack([1 - odds, odds]), atol=1e-12)
    odds = 1 / (1 + np.exp(-three.decision_function(X)))
    np.testing.assert_allclose(three.predict_proba(X), odds / odds.sum(axis=1, keepdims=True), atol=1e-12)
    # The bias makes the mean probability the share of the class.
    np.testing.assert_allclose(two.predict_proba(X)[:, 1].mean(), np.mean(codes > 0), atol=1e-2)


@every_loss
def test_a_path_over_costs_ends_where_single_fits_do(loss):
    """Cuts and coefficients of one C start the next one, up and down."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(40, 3))
    y = X[:, 0] + X[:, 1] ** 2 + 0.2 * rng.normal(size=40)
    one, several, y = (MKLRegressor, MKLRegressorCV, y) if loss == "squared" else (MKLClassifier, MKLClassifierCV, y > 0.5)
    options = {"kernels": ["rbf(gamma=0.5)", "linear", "poly(degree=2)"], "loss": loss, "tol": 1e-4}
    for Cs in ([0.1, 1.0, 30.0], [30.0, 1.0, 0.1]):
        path = several(**options, Cs=Cs, cv=3).fit(X, y)
        alone = one(**options, C=path.C_, v=path.v_).fit(X, y)
        assert path.converged_
        assert path.lower_bound_ <= alone.upper_bound_ and alone.lower_bound_ <= path.upper_bound_


@pytest.mark.parametrize(
    ("kind", "loss", "message"),
    [
        (MKLRegressor, "logistic", "loss='logistic': the target holds real numbers; use 'epsilon_insensitive' or 'squared'"),
        (MKLClassifier, "squared", "loss='squared': the target holds classes; use 'hinge' or 'squared_hinge' or 'logistic'"),
        (MKLClassifier, "huber", "loss='huber'"),
    ],
)
def test_a_loss_that_does_not_suit_is_refused(kind, loss, message):
    problem = random_problem("squared" if kind is MKLRegressor else "hinge", 8)
    with pytest.raises(ValueError, match=message):
        kind("precomputed", loss=loss).fit(problem.grams, problem.y)
