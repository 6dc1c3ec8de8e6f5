"""Latent groups of tasks: optimum against a general solver over all groups, certificates, limits, invariances, planted groups."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from gramplane.kernels.graphs.norms import NodeSet, psi_gradient
from gramplane.kernels.tasks.group_search import TaskLattice, group_forms, kernel_norms, kernel_shares
from gramplane.pipeline import LatentTaskMKLClassifier, LatentTaskMKLRegressor, MKLClassifier
from gramplane.pipeline.methods.latent_task_mkl.problem import refuse_negative
from gramplane.storage import DataError
from tests.support.oracles.latent_tasks import Primal, all_groups, random_problem


def machine(problem, **more):
    """The estimator of an oracle's problem."""
    width = problem.features[0].shape[1]
    kernels = [f"linear[{j * width}:{(j + 1) * width}]" for j in range(len(problem.features))]
    given = {name: getattr(problem, name) for name in ("p", "q", "a", "mu", "C", "inverted", "loss")}
    kind = LatentTaskMKLClassifier if problem.loss == "hinge" else LatentTaskMKLRegressor
    if problem.loss == "epsilon_insensitive":
        given["epsilon"] = problem.epsilon
    return kind(kernels, normalize="none", scale=None, **{"tol": 1e-3, **given, **more})


def fitted(problem, **more):
    return machine(problem, **more).fit(np.hstack(problem.features), problem.y, problem.task)


SETTINGS = [
    {"a": 0.8, "mu": 0.1},
    {"a": 0.8, "mu": 0.1, "p": 1.3, "q": 1.7},
    {"a": 1.1, "mu": 0.2, "inverted": True},
    {"a": 0.9, "mu": 0.2, "p": 2.0, "q": 2.0, "loss": "hinge"},
    {"a": 0.9, "mu": 0.2, "q": 1.2, "loss": "epsilon_insensitive"},
]


@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_optimum_is_that_of_a_general_solver_and_the_certificate_holds(given):
    problem = random_problem(1, rows=5, width=1, **given)
    best, _ = Primal(problem).optimum(1e-4)
    found = fitted(problem)
    assert found.converged_ and found.certificate_.complete
    assert abs(found.objective_ - best) <= 1.1e-3 * best
    # The general solver's value is an upper bound of the optimum, ours minus the gap a lower one, at every iteration.
    assert found.objective_ - found.dual_gap_ <= best * (1 + 1e-7)
    history = found.history_
    proven = np.isfinite(history["gap"])
    assert proven.any() and ((history["objective"] - history["gap"])[proven] <= best * (1 + 1e-7)).all()
    assert (history["objective"] >= best * (1 - 5e-4)).all()
    assert np.all(np.diff(history["objective"]) <= 0)


def test_the_objective_is_the_primal_value_of_the_exported_machine():
    problem = random_problem(2, rows=5, width=1, a=0.8, mu=0.1)
    found, X = fitted(problem), np.hstack(problem.features)
    decision = found.predict(X, problem.task)
    loss = problem.C * np.sum((decision - problem.y) ** 2)
    groups = np.array([[t in group.tasks for t in range(3)] for group in found.groups_])
    beta = np.zeros(len(X))
    beta[found.support_vectors_] = found.dual_coef_
    parts = (problem.task[:, None] == np.arange(3)) * beta[:, None]
    forms = np.stack([parts.T @ F @ F.T @ parts for F in problem.features])
    norms = kernel_norms(found.group_kernel_weights_ * np.sqrt(group_forms(groups, forms, problem.mu)), problem.p)
    lattice = TaskLattice(3, problem.a)
    nodes = NodeSet.empty(1, np.uint64).with_hulls(lattice.keys(groups), lattice.parents, lattice.penalties)
    order = [nodes.place(key) for key in lattice.keys(groups)]
    whole = np.zeros(nodes.size)
    whole[order] = norms
    omega = sum(nodes.hull.d[v] * np.sum(whole[nodes.hull.descendants(v)] ** problem.q) ** (1 / problem.q) for v in range(nodes.size))
    assert found.objective_ == pytest.approx(0.5 * omega**2 + loss, rel=1e-3)
    # At the optimum the weighted forms of the groups add up to Omega^2.
    weighted = np.sum(found.group_kernel_weights_ * group_forms(groups, forms, problem.mu))
    assert weighted == pytest.approx(omega**2, rel=2e-2)


# -- limits ------------------------------------------------------------------------------------------------------------------------


def two_classes(seed=0, n=40):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (X[:, 0] - 0.5 * X[:, 1] + 0.5 * rng.normal(size=n) > 0).astype(int)


def dual_value(machine, K, labels):
    beta = np.zeros(len(labels))
    beta[machine.support_] = machine.dual_coef_[0]
    return np.abs(beta).sum() - 0.5 * beta @ K @ beta


@pytest.mark.parametrize("inverted", [False, True])
def test_one_task_and_one_kernel_are_a_support_vector_machine(inverted):
    X, y = two_classes()
    found = LatentTaskMKLClassifier(["linear"], mu=0.25, a=1.7, C=2.0, inverted=inverted, normalize="none", tol=1e-5, scale=None).fit(X, y)
    # d = a for a single task, 1 for the source of the inverse.
    K = X @ X.T * (1 + 1 / 0.25) / (1.0 if inverted else 1.7**2)
    single = SVC(C=2.0, kernel="precomputed", tol=1e-6).fit(K, y)
    assert found.objective_ == pytest.approx(dual_value(single, K, y), rel=1e-4)
    np.testing.assert_allclose(found.decision_function(X), single.decision_function(K), atol=2e-2)
    other = LatentTaskMKLClassifier(
        ["linear"], mu=0.25, a=1.7, C=2.0, p=1.2, inverted=inverted, normalize="none", tol=1e-5, scale=None
    ).fit(X, y)
    assert other.objective_ == pytest.approx(found.objective_, rel=1e-5)


def test_more_tasks_than_groups_grow_to_are_searched_from_the_group_of_all():
    rng = np.random.default_rng(0)
    X, task = rng.standard_normal((240, 3)), np.arange(240) % 12
    y = X @ [1.0, -1.0, 0.5] + 0.5 * rng.standard_normal(240)

    def fit(some=slice(None), **given):
        return LatentTaskMKLRegressor(["linear", "rbf"], **given, scale=None).fit(X[some], y[some], task[some])

    found = fit()
    assert found.inverted_
    np.testing.assert_array_equal(found.dual_coef_, fit(inverted=True).dual_coef_)
    assert found.score(X, y, task) > fit(inverted=False).score(X, y, task)
    for given in ({"max_size": 12}, {"max_size": None, "max_rounds": 1}, {"some": task < 8}):
        assert not fit(**given).inverted_, given


def test_one_task_is_multiple_kernel_learning_over_an_lp_ball():
    X, y = two_classes(1)
    kernels = ["linear[0]", "linear[1]", "linear[2]"]
    scale = (1 + 1 / 0.5) / 1.5**2
    found = LatentTaskMKLClassifier(kernels, p=1.5, mu=0.5, normalize="none", tol=1e-4, scale=None).fit(X, y)
    twin = MKLClassifier(kernels, constraint="lp", p=3.0, normalize="none", tol=1e-4, scale=None).fit(np.sqrt(scale) * X, y)
    assert found.objective_ == pytest.approx(twin.objective_, rel=5e-4)
    np.testing.assert_allclose(1.5**2 * found.group_kernel_weights_[0], twin.kernel_weights_, atol=0.01)


def test_large_mu_uncouples_tasks_and_small_mu_pools_them():
    problem = random_problem(3, rows=5, width=1, inverted=True, mu=1e6)
    apart = fitted(problem).task_kernel_weights_
    for j in range(2):
        assert np.abs(apart[j] - np.diag(np.diag(apart[j]))).max() < 1e-5 * np.diag(apart[j]).max()
    problem.mu, problem.a = 1e-4, 1000.0
    pooled = fitted(problem).task_kernel_weights_.sum(axis=0)
    assert pooled.min() > 0.99 * pooled.max()


def test_squares_throughout_give_a_group_the_same_weight_for_every_kernel():
    weights = fitted(random_problem(4, rows=5, width=1, a=0.8, mu=0.1, p=2.0, q=2.0)).group_kernel_weights_
    assert len(weights) > 3
    np.testing.assert_allclose(weights, np.repeat(weights[:, :1], 2, axis=1), rtol=1e-12)
    assert kernel_shares(np.array([[0.0, 3.0], [0.0, 0.0]]), 2.0).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_the_optimum_moves_with_the_parameters_as_it_must():
    base = {"p": 1.6, "q": 1.6, "a": 1.0, "C": 1.0}
    problem = random_problem(5, rows=5, width=1, mu=0.2, **base)
    first = fitted(problem)
    for name, value in {"p": 1.3, "q": 1.2, "a": 1.3, "C": 2.0}.items():
        other = fitted(random_problem(5, rows=5, width=1, mu=0.2, **{**base, name: value}))
        assert other.objective_ >= first.objective_ - first.dual_gap_


def test_gradient_of_the_dual_value_is_that_of_finite_differences():
    rng, lattice = np.random.default_rng(6), TaskLattice(3, 1.3)
    nodes = NodeSet.empty(1, np.uint64).with_hulls(lattice.keys(all_groups(3)), lattice.parents, lattice.penalties)
    B = rng.normal(size=(2, 3, 4))
    own = group_forms(lattice.groups(nodes.keys), B @ B.transpose(0, 2, 1), 0.3)
    norms, eta = kernel_norms(own, 1.5 / (2 * 0.5)), rng.dirichlet(np.ones(7))
    _, slopes = psi_gradient(nodes.hull, eta, norms, 1.5)
    for i in range(7):
        step = 1e-6 * np.eye(7)[i]
        ends = [psi_gradient(nodes.hull, eta + sign * step, norms, 1.5)[0] for sign in (1, -1)]
        assert slopes[i] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4)


# -- groups ------------------------------------------------------------------------------------------------------------------------


def planted(seed, rows=12):
    """Four tasks in two clusters, close parameters in different features."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(4), rows)
    X, w = rng.normal(size=(4 * rows, 6)), np.zeros((4, 6))
    w[:2, :3], w[2:, 3:] = rng.normal(size=3), rng.normal(size=3)
    w += 0.05 * rng.normal(size=w.shape) * (w != 0)
    return X, np.einsum("nd,nd->n", X, w[task]) + 0.1 * rng.normal(size=len(task)), task


LINEAR = [*(f"linear[{j}]" for j in range(6)), "linear"]


@pytest.mark.parametrize("seed", range(4))
def test_planted_pairs_are_the_heaviest_groups_of_two(seed):
    X, y, task = planted(seed)
    names = np.array(["a", "b", "c", "d"])[task]
    found = LatentTaskMKLRegressor(LINEAR, mu=0.1, a=1.5, loss="squared", tol=5e-3, scale=None).fit(X, y, names)
    several = [group.tasks for group in found.groups_ if len(group.tasks) > 1]
    assert {tuple(map(str, group)) for group in several[:2]} == {("a", "b"), ("c", "d")}
    totals = [group.weight for group in found.groups_]
    assert totals == sorted(totals, reverse=True)
    np.testing.assert_allclose(found.group_kernel_weights_.sum(axis=1), totals)


def test_order_of_tasks_and_rows_does_not_matter():
    X, y, task = planted(0, rows=8)
    rng = np.random.default_rng(0)
    order, names = rng.permutation(len(y)), np.array([2, 0, 3, 1])
    one = LatentTaskMKLRegressor(LINEAR, mu=0.1, loss="squared", tol=1e-4, scale=None).fit(X, y, task)
    two = LatentTaskMKLRegressor(LINEAR, mu=0.1, loss="squared", tol=1e-4, scale=None).fit(X[order], y[order], names[task][order])
    assert two.objective_ == pytest.approx(one.objective_, rel=2e-4)
    np.testing.assert_allclose(two.predict(X, names[task]), one.predict(X, task), atol=5e-2 * np.abs(y).max())
    np.testing.assert_allclose(
        two.task_kernel_weights_[:, names[:, None], names].sum(0), one.task_kernel_weights_.sum(0), rtol=0.1, atol=0.02
    )


def test_a_task_with_one_label_gets_it_and_takes_no_part():
    X, y, task = planted(1)
    labels = np.where(y > 0, "up", "down")
    labels[task == 2] = "up"
    found = LatentTaskMKLClassifier(LINEAR, mu=0.1, normalize="none", tol=5e-3, scale=None).fit(X, labels, task)
    assert (found.decision_function(X[task == 2], task[task == 2]) == 1.0).all()
    assert not any(2 in group.tasks for group in found.groups_)
    assert not set(np.flatnonzero(task == 2)) & set(found.support_vectors_)
    rest = LatentTaskMKLClassifier(LINEAR, mu=0.1, normalize="none", tol=5e-3, scale=None).fit(
        X[task != 2], labels[task != 2], task[task != 2]
    )
    assert found.objective_ == pytest.approx(rest.objective_, rel=1e-2)
    alone = LatentTaskMKLClassifier(["linear"], scale=None).fit(X, np.where(np.isin(task, [0, 1]), "a", "b"), task)
    assert alone.objective_ == 0.0 and (alone.predict(X, task) == np.where(np.isin(task, [0, 1]), "a", "b")).all()


def test_where_the_matrices_lie_and_the_kernels_are_given_change_nothing(tmp_path):
    X, y, task = planted(2, rows=40)
    given = {"mu": 0.1, "loss": "squared"}
    kernels = ["linear[0:3]", "linear[3:6]", "rbf(gamma=0.1)"]
    one = LatentTaskMKLRegressor(kernels, **given, scale=None).fit(X, y, task)
    for more in ({"grams": "recompute"}, {"grams": "store", "gram_store": str(tmp_path / "grams")}):
        two = LatentTaskMKLRegressor(kernels, **given, **more, scale=None).fit(X, y, task)
        assert two.dual_coef_.tobytes() == one.dual_coef_.tobytes()
        assert two.group_kernel_weights_.tobytes() == one.group_kernel_weights_.tobytes()
    stack = np.stack([X[:, :3] @ X[:, :3].T, X[:, 3:] @ X[:, 3:].T, np.exp(-0.1 * np.square(X[:, None] - X[None]).sum(-1))])
    three = LatentTaskMKLRegressor("precomputed", **given).fit(stack, y, task)
    np.testing.assert_allclose(three.predict(stack, task), one.predict(X, task), atol=1e-3 * np.abs(y).max())


# -- ends --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [{"max_size": 1}, {"max_rounds": 1}, {"max_groups": 5}, {"max_iter": 3}], ids=str)
def test_a_cap_warns_and_the_certificate_still_holds(cap):
    problem = random_problem(1, rows=5, width=1, a=0.8, mu=0.1)
    best = fitted(problem)
    with pytest.warns(ConvergenceWarning, match="is certified"):
        found = fitted(problem, **cap)
    assert not found.converged_ and not found.certificate_.complete
    assert found.objective_ - found.dual_gap_ <= best.objective_
    assert found.objective_ >= best.objective_ - best.dual_gap_
    assert found.certificate_.relative_gap == pytest.approx(found.dual_gap_ / found.objective_)


def test_rest_stops_early_and_says_what_is_certified():
    X, y, task = planted(3)
    found = LatentTaskMKLRegressor(LINEAR, mu=0.1, a=1.1, loss="squared", tol=1e-3, stop_at_rest=True, scale=None).fit(X, y, task)
    whole = LatentTaskMKLRegressor(LINEAR, mu=0.1, a=1.1, loss="squared", tol=1e-3, scale=None).fit(X, y, task)
    assert found.n_iter_ <= whole.n_iter_
    assert found.objective_ - found.dual_gap_ <= whole.objective_ <= found.objective_ * (1 + 1e-3)


def test_the_sufficient_condition_of_the_thesis_is_told_beside():
    few, many = (fitted(random_problem(0, n_tasks=T, rows=4, width=1, a=1.5, mu=0.1)).certificate_ for T in (2, 7))
    assert few.sufficient >= 0 and many.sufficient > 10 * many.relative_gap
    assert many.visits > few.visits > 0


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"p": 1.0}, "p.*greater than 1"),
        ({"q": 2.5}, "q.*at most 2"),
        ({"a": 0.0}, "a.*greater than 0"),
        ({"mu": -1.0}, "mu.*greater than 0"),
        ({"loss": "hinge"}, "loss='hinge': the target holds real numbers; use 'epsilon_insensitive' or 'squared'"),
        ({"grams": "store"}, "grams='store' needs gram_store"),
    ],
    ids=str,
)
def test_bad_parameters_are_refused_by_name(params, told):
    X, y, task = planted(0, rows=4)
    with pytest.raises(ValueError, match=told):
        LatentTaskMKLRegressor(["linear"], **params, scale=None).fit(X, y, task)


def test_bad_tasks_are_refused():
    X, y, task = planted(0, rows=4)
    found = LatentTaskMKLRegressor(["linear"], scale=None).fit(X, y, task)
    with pytest.raises(ValueError, match="task 9 was not there at fit"):
        found.predict(X[:1], [9])
    with pytest.raises(ValueError, match="predictions need the task of every row"):
        found.predict(X[:1])
    with pytest.raises(DataError, match="task 3 has no row"):
        LatentTaskMKLRegressor(["linear"], scale=None).fit(X, y, task, sample_weight=(task < 3).astype(float))


@pytest.mark.parametrize("loss", ["squared", "epsilon_insensitive"])
def test_a_kernel_that_is_none_is_refused(loss):
    X, y, task = planted(0, rows=6)
    with pytest.raises(ValueError, match=r"precomputed kernel 1 is not positive semi-definite"):
        LatentTaskMKLRegressor("precomputed", loss=loss).fit(np.stack([X @ X.T, -X @ X.T]), y, task)
    grams = SimpleNamespace(specs=["good", "bad"], diagonals=lambda: np.ones((2, 4)))
    forms, beta = np.zeros((2, 2, 2)), np.array([1.0, -1.0, 0.5, -0.5])
    forms[1, 1, 1] = -1e-6
    refuse_negative(grams, forms, SimpleNamespace(beta=beta, indefinite=False), np.array([0, 0, 1, 1]))
    forms[1, 1, 1] = -1e-3
    with pytest.raises(DataError, match=r"kernel bad is not positive semi-definite: beta'K beta = -0\.001"):
        refuse_negative(grams, forms, SimpleNamespace(beta=beta, indefinite=False), np.array([0, 0, 1, 1]))
    with pytest.raises(DataError, match="the weighted sum of all kernels has negative curvature"):
        refuse_negative(grams, 0 * forms, SimpleNamespace(beta=beta, indefinite=True), np.array([0, 0, 1, 1]))
