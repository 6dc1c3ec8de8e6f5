"""Multiple kernel learning: bounds around the optimum of a general solver, invariances, forms of data, bad input."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import r2_score
from sklearn.svm import SVC, SVR

from gramplane.cluster import MemoryBoundExceeded
from gramplane.kernels.grams.spec import as_specs, kernel_grid
from gramplane.kernels.weights.domains import ElasticNetSet
from gramplane.kernels.weights.level_programs import Cuts, lower_bound, project_on_level
from gramplane.pipeline import MKLClassifier, MKLRegressor, cross_validate, load_model, predict_store, run_method, score_store, tune
from gramplane.pipeline.grams.grams import Grams
from gramplane.pipeline.inputs.folds import fold_masks
from gramplane.pipeline.methods.mkl.problem import MKLProblem
from gramplane.storage import DataError
from gramplane.storage.ingest import ingest, ingest_grams
from tests.support.oracles import gram as gram_oracle
from tests.support.oracles import mkl as oracle

KERNELS = ["rbf(gamma=0.5)", "rbf(gamma=2)[0,2]", "poly(degree=2)[1]", "linear"]
EXACT = {"normalize": "none", "tol": 1e-5, "max_iter": 400}


def rows(seed=0, n=90, d=5, classes=2):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    value = np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(n)
    return X, np.digitize(value, np.quantile(value, np.linspace(0, 1, classes + 1)[1:-1]))


def machine(problem, **options):
    return MKLClassifier("precomputed", C=problem.C, **{"v": problem.v, **EXACT, **options}).fit(problem.grams, problem.y)


# --- the optimum ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("v", [0.0, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_bounds_close_around_the_optimum(seed, v):
    """I1, I2, I7, I8."""
    problem = oracle.random_problem(seed, v=v)
    optimum = oracle.dual_optimum(problem)[0]
    found = machine(problem)
    slack = 2e-6 * optimum
    assert np.all(found.history_["lower_bound"] <= optimum + slack)
    assert np.all(found.history_["upper_bound"] >= optimum - slack)
    assert np.all(np.diff(found.history_["lower_bound"]) >= 0)
    assert np.all(np.diff(found.history_["upper_bound"]) <= 0)
    assert found.converged_ and 0 <= found.dual_gap_ <= 1e-5 * found.objective_
    beta = np.zeros(14)
    beta[found.support_vectors_] = found.dual_coef_[0]
    assert abs(beta.sum()) <= 1e-8
    assert np.all(beta * problem.y >= 0) and np.all(np.abs(beta) <= problem.C)
    theta, K = found.kernel_weights_, np.tensordot(found.kernel_weights_, problem.grams, 1)
    assert ElasticNetSet(v).violation(theta) <= 1e-9
    primal = 0.5 * beta @ K @ beta + problem.C * np.maximum(0, 1 - problem.y * (K @ beta + found.intercept_)).sum()
    np.testing.assert_allclose(primal, found.objective_, rtol=1e-6)


@pytest.mark.parametrize("v", [0.0, 0.5, 1.0])
def test_solvers_agree(v):
    """I3, I11."""
    problem = oracle.random_problem(3, v=v)
    names = ["level", "silp", "simplemkl" if v == 1 else "alternate"]
    found = {name: machine(problem, solver=name, tol=1e-3) for name in names}
    assert all(one.converged_ for one in found.values())
    lowest, highest = max(one.lower_bound_ for one in found.values()), min(one.upper_bound_ for one in found.values())
    assert lowest <= highest * (1 + 1e-6)
    assert len({one.kernel_weights_.shape for one in found.values()}) == 1


def test_equal_weights_are_one_machine():
    problem = oracle.random_problem(4)
    found = machine(problem, solver="uniform", tol=1e-8)
    K = np.tensordot(found.kernel_weights_, problem.grams, 1)
    assert found.n_iter_ == 1 and np.ptp(found.kernel_weights_) == 0
    reference = SVC(kernel="precomputed", C=problem.C, tol=1e-8).fit(K, problem.y)
    np.testing.assert_allclose(found.decision_function(problem.grams), reference.decision_function(K), atol=1e-3)
    assert found.lower_bound_ <= oracle.dual_optimum(problem)[0] <= found.upper_bound_


@pytest.mark.parametrize("v", [0.0, 0.5, 1.0])
def test_one_kernel_is_one_machine(v):
    """I4."""
    problem = oracle.random_problem(5, Q=1, v=v)
    found = machine(problem, tol=1e-6)
    reference = SVC(kernel="precomputed", C=problem.C, tol=1e-9).fit(problem.grams[0], problem.y)
    alpha = np.abs(reference.dual_coef_[0])
    beta = reference.dual_coef_[0]
    value = alpha.sum() - 0.5 * beta @ problem.grams[0][np.ix_(reference.support_, reference.support_)] @ beta
    np.testing.assert_allclose(found.kernel_weights_, [1.0], atol=1e-12)
    np.testing.assert_allclose(found.objective_, value, rtol=2e-6)


def test_scaling_kernels_and_cost():
    """I5."""
    problem = oracle.random_problem(6)
    scaled = oracle.Problem([2.0 * F for F in problem.features], problem.y, problem.C / 4.0, problem.v)
    a, b = machine(problem), machine(scaled)
    np.testing.assert_allclose(b.objective_, a.objective_ / 4.0, rtol=2e-5)
    np.testing.assert_allclose(b.kernel_weights_, a.kernel_weights_, atol=2e-2)


def test_order_of_kernels_and_shape_of_the_set():
    """I6, I9, I10."""
    problem = oracle.random_problem(7)
    order = np.array([3, 1, 5, 0, 2, 4])
    other = oracle.Problem([problem.features[q] for q in order], problem.y, problem.C, problem.v)
    np.testing.assert_allclose(machine(other).kernel_weights_, machine(problem).kernel_weights_[order], atol=2e-2)
    values = [machine(problem, v=v).objective_ for v in (0.0, 0.3, 0.6, 1.0)]
    assert np.all(np.diff(values) > 0)
    twins = oracle.Problem([*problem.features, problem.features[1]], problem.y, problem.C, 0.5)
    weights = machine(twins).kernel_weights_
    np.testing.assert_allclose(weights[1], weights[-1], atol=1e-6)


def test_a_zero_kernel_gets_nothing_and_is_named():
    problem = oracle.random_problem(8)
    grams = np.concatenate([problem.grams, np.zeros((1, 14, 14))])
    with pytest.warns(UserWarning, match="kernel precomputed 6 is zero"):
        found = MKLClassifier("precomputed", **EXACT).fit(grams, problem.y)
    assert found.kernel_weights_[6] == 0 and 6 not in found.support_
    np.testing.assert_allclose(found.objective_, machine(problem).objective_, rtol=2e-5)


@pytest.mark.parametrize(
    ("options", "domain"), [({"constraint": "lp", "p": 1.5}, None), ({"constraint": "l2"}, 0.0), ({"constraint": "simplex"}, 1.0)]
)
def test_sets_by_name(options, domain):
    problem = oracle.random_problem(9)
    found = machine(problem, **options)
    assert found.converged_
    if domain is None:
        np.testing.assert_allclose(np.sum(found.kernel_weights_**1.5), 1.0, rtol=1e-6)
    else:
        np.testing.assert_allclose(found.objective_, machine(problem, v=domain).objective_, rtol=2e-5)


def test_projection_satisfies_cuts_and_set():
    """I15."""
    problem, domain = oracle.random_problem(10), ElasticNetSet(0.5)
    rng = np.random.default_rng(0)
    trials = [oracle.machine(problem, domain.project(rng.random(6))) for _ in range(4)]
    cuts = Cuts(np.array([alpha.sum() for _, alpha, _ in trials]), np.array([s for _, _, s in trials]))
    low = lower_bound(cuts, domain)
    theta0 = domain.start(6)
    level = 0.5 * (low.value + low.gap + cuts.height(theta0))
    point = project_on_level(theta0, cuts, level, domain, inside=low.theta)
    assert cuts.height(point.theta) <= level + 1e-8 and domain.violation(point.theta) <= 1e-8


# --- kernels of data --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernels", [KERNELS, ["rbf(gamma=1) centre", "linear cosine", "poly(degree=2) cosine centre", "linear multiplicative"]]
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_decisions_are_those_of_the_whole_matrices(kernels, n_classes):
    """I12, I13."""
    X, y = rows(1, classes=n_classes)
    found = MKLClassifier(kernels, v=0.3, scale=None).fit(X, y)
    specs = [
        spec if spec.normalize != "none" else type(spec).parse(f"{spec} trace") if not spec.centre else None
        for spec in as_specs(kernels, 5)
    ]
    specs = [
        type(one).from_json({**one.to_json(), "normalize": "trace"}) if s is None else s
        for s, one in zip(specs, as_specs(kernels, 5), strict=True)
    ]
    K = np.stack([gram_oracle.normalized(spec, gram_oracle.gram(spec, X)) for spec in specs])
    for gram, spec in zip(K, specs, strict=True):
        if spec.normalize == "trace":
            np.testing.assert_allclose(np.trace(gram), len(X), rtol=1e-6)
    theta, values = np.atleast_2d(found.kernel_weights_), found.decision_function(X).reshape(len(X), -1)
    for m in range(len(theta)):
        beta = np.zeros(len(X))
        beta[found.support_vectors_] = found.dual_coef_[m]
        whole = np.tensordot(theta[m], K, 1) @ beta
        # Centring moves all values by one constant, which the intercept holds.
        np.testing.assert_allclose(values[:, m] - values[:, m].mean(), whole - whole.mean(), atol=1e-4 * np.abs(whole).max())
    assert found.score(X, y) > 0.7
    one_by_one = np.concatenate([np.atleast_1d(found.decision_function(X[i : i + 1])) for i in range(5)])
    np.testing.assert_allclose(one_by_one, found.decision_function(X[:5]), atol=1e-9)


def test_forms_of_data_agree(tmp_path):
    X, y = rows(2)
    X = np.where(X < 0.3, 0.0, X)
    dense = MKLClassifier(KERNELS, scale=None).fit(X, y)
    store = ingest((X, y), tmp_path / "data")
    for form in (sp.csr_array(X), sp.csc_matrix(X), store, str(tmp_path / "data")):
        found = MKLClassifier(KERNELS, scale=None).fit(form, None if isinstance(form, (str, type(store))) else y)
        np.testing.assert_allclose(found.objective_, dense.objective_, rtol=1e-5)
        np.testing.assert_allclose(found.decision_function(form), found.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("policy", ["memory", "store", "recompute"])
def test_policies_give_the_same_bits(policy, tmp_path):
    """I14: whatever the place of the entries, the same bits."""
    X, y = rows(3, n=140, classes=3)
    expected = MKLClassifier(KERNELS, scale=None).fit(X, y)
    for _ in range(2):
        found = MKLClassifier(KERNELS, grams=policy, gram_store=str(tmp_path / "grams"), scale=None).fit(X, y)
        assert found.dual_coef_.tobytes() == expected.dual_coef_.tobytes()
        assert found.kernel_weights_.tobytes() == expected.kernel_weights_.tobytes()


def test_precomputed_kernels_in_every_form(tmp_path):
    X, y = rows(4)
    specs = as_specs(KERNELS, 5)
    K = np.stack([gram_oracle.gram(spec, X) for spec in specs]).astype(np.float32)
    train, test = np.arange(60), np.arange(60, 90)
    inside, across = K[np.ix_(range(4), train, train)], K[np.ix_(range(4), test, train)]
    found = MKLClassifier("precomputed").fit(inside, y[train])
    raw = MKLClassifier(KERNELS, scale=None).fit(X[train], y[train])
    np.testing.assert_allclose(found.objective_, raw.objective_, rtol=1e-3)
    assert np.mean(found.predict(across) == raw.predict(X[test])) >= 0.95
    store = ingest_grams(inside, tmp_path / "grams")
    stored = MKLClassifier("precomputed").fit(store, y[train])
    np.testing.assert_allclose(stored.kernel_weights_, found.kernel_weights_, atol=1e-6)
    one = MKLClassifier("precomputed").fit(inside[0], y[train])
    np.testing.assert_array_equal(one.predict(across[0]), one.predict(across[:1]))
    with pytest.raises(ValueError, match=r"needs \(4, n_test, 60\)"):
        found.predict(across[:3])


@pytest.mark.parametrize("form", [list, np.array, pd.Series])
def test_strings(form):
    texts = form(["abab", "baba", "ababab", "bab", "cdcd", "dcdc", "cdcdc", "dcd"])
    found = MKLClassifier(["spectrum(k=2)", "spectrum(k=1)"], scale=None).fit(texts, [0, 0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(found.predict(form(["abba", "ccdd"])), [0, 1])


def test_several_views_stand_side_by_side_as_columns():
    """Sequences as counts of k-mers beside features: a linear kernel on the counts is the spectrum kernel of the strings."""
    rng = np.random.default_rng(6)
    texts = ["".join(rng.choice(list("abcd"), 30)) for _ in range(60)]
    shape, y = rng.random((60, 3)), np.array([text.count("ab") > 1 for text in texts])
    counts = CountVectorizer(analyzer="char", ngram_range=(2, 2)).fit_transform(texts)
    width = counts.shape[1]
    views = sp.hstack([counts, sp.csr_matrix(shape)], format="csr")
    kernels = [f"linear[0:{width}]", f"rbf(gamma=1)[{width}:{width + 3}]"]
    found = MKLClassifier(kernels, constraint="simplex", C=10.0, scale=None).fit(views, y)
    assert found.kernel_weights_[0] > found.kernel_weights_[1] and found.score(views, y) > 0.95
    alone, strings = (
        MKLClassifier([kernel], C=10.0, tol=1e-6, scale=None).fit(X, y) for kernel, X in ((kernels[0], views), ("spectrum(k=2)", texts))
    )
    np.testing.assert_allclose(alone.decision_function(views), strings.decision_function(texts), atol=1e-6)


def test_weights_of_samples_are_costs():
    X, y = rows(5)
    weight = np.where(np.arange(len(y)) % 3 == 0, 0.0, 1.0)
    kernels = ["rbf(gamma=0.5)", "rbf(gamma=2)"]
    a = MKLClassifier(kernels, normalize="none", tol=1e-5, scale=None).fit(X, y, weight)
    b = MKLClassifier(kernels, normalize="none", tol=1e-5, scale=None).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_allclose(a.objective_, b.objective_, rtol=3e-5)
    doubled = MKLClassifier(kernels, normalize="none", class_weight={0: 2.0, 1: 2.0}, tol=1e-5, scale=None).fit(X, y)
    np.testing.assert_allclose(
        doubled.objective_, MKLClassifier(kernels, normalize="none", C=2.0, tol=1e-5, scale=None).fit(X, y).objective_, rtol=3e-5
    )


def test_regression_against_one_machine():
    X, _ = rows(6)
    target = np.sin(6 * X[:, 0])
    found = MKLRegressor(["rbf(gamma=0.5)"], normalize="none", epsilon=0.05, C=3.0, tol=1e-6, scale=None).fit(X, target)
    s = target.std()
    reference = SVR(kernel="rbf", gamma=0.5, epsilon=0.05 * s, C=3.0 * s, tol=1e-8).fit(X, target)
    np.testing.assert_allclose(found.predict(X), reference.predict(X), atol=5e-3)
    several = MKLRegressor(KERNELS, epsilon=0.05, C=3.0, scale=None).fit(X, target)
    assert several.converged_ and several.score(X, target) > 0.9
    assert several.lower_bound_ <= several.upper_bound_


def test_default_kernels_are_the_grid():
    X, y = rows(7, n=40, d=3)
    found = MKLClassifier().fit(X, y)
    assert found.kernel_weights_.shape == (len(kernel_grid(3)),) == (52,)
    assert 1 <= len(found.support_) < 52


@pytest.fixture(scope="module")
def many():
    """Sixty kernels of which few matter."""
    rng = np.random.default_rng(20)
    X = rng.random((80, 12))
    y = (np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(80) > 0.4).astype(int)
    return [f"rbf(gamma={g})[{j}]" for j in range(12) for g in (0.3, 1, 3, 10, 30)], X, y


@pytest.mark.parametrize(
    "options", [{}, {"solver": "level"}, {"v": 0.9, "C": 10.0}, {"constraint": "simplex", "solver": "silp", "tol": 1e-2}]
)
def test_a_working_set_of_kernels_ends_at_bounds_over_all(many, options):
    kernels, X, y = many
    found = MKLClassifier(kernels, **options, scale=None).fit(X, y)
    assert found.converged_ and found.history_["working_kernels"].min() < 60
    full = MKLClassifier(kernels, **{**options, "solver": "level", "tol": 1e-4}, scale=None).fit(X, y)
    # Bounds of one bracket the other's: a form that was not looked at would show here.
    assert found.lower_bound_ <= full.upper_bound_ and full.lower_bound_ <= found.upper_bound_
    specs = [type(spec).from_json({**spec.to_json(), "normalize": "trace"}) for spec in as_specs(kernels, 12)]
    K = np.stack([gram_oracle.normalized(spec, gram_oracle.gram(spec, X)) for spec in specs])
    beta = np.zeros(80)
    beta[found.support_vectors_] = found.dual_coef_[0]
    domain = ElasticNetSet(1.0 if options.get("constraint") == "simplex" else options.get("v", 0.5))
    alone = np.abs(beta).sum() - 0.5 * domain.support(np.einsum("i,qij,j->q", beta, K, beta))[0]
    assert alone <= found.upper_bound_ and found.lower_bound_ <= found.upper_bound_
    assert np.all(np.diff(found.history_["lower_bound"]) >= 0)


@pytest.mark.parametrize(
    ("options", "times"), [({}, 1), ({"constraint": "lp", "p": 1.0, "C": 10.0}, 3), ({"constraint": "lp", "p": 2.0}, 1)]
)
def test_second_order_steps_need_fewer_machines(many, options, times):
    kernels, X, y = many
    counts = {name: MKLClassifier(kernels, solver=name, **options, scale=None).fit(X, y).n_iter_ for name in ("auto", "level")}
    assert times * counts["auto"] < counts["level"]


@pytest.mark.parametrize("solver", ["auto", "level"])
def test_a_step_is_one_pass_and_all_kernels_are_looked_at_at_the_end(many, solver, monkeypatch):
    kernels, X, y = many
    vectors = []
    for name in ("forms", "products"):
        passed = getattr(Grams, name)
        monkeypatch.setattr(
            Grams, name, lambda self, v, *rest, passed=passed: (vectors.append(np.size(v) // 80), passed(self, v, *rest))[1]
        )
    found = MKLClassifier(kernels, solver=solver, scale=None).fit(X, y)
    assert found.history_["working_kernels"].min() < 60
    # Beside the steps' own: the look at all kernels that widens the set, the forms it lacks, and the look that ends it.
    assert len(vectors) <= found.n_iter_ + 5 and min(vectors) >= 1


def test_slow_steps_after_kernels_have_joined_the_set_lead_to_one_of_the_level_method(many, monkeypatch):
    kernels, X, y = many
    with_models, solve = [], MKLProblem.solve
    monkeypatch.setattr("gramplane.pipeline.methods.mkl.problem.SLOW_STEP_SHARE", 0.0)
    monkeypatch.setattr(MKLProblem, "solve", lambda *given: [found := solve(*given), with_models.append(found.matrix is not None)][0])
    sizes = MKLClassifier(kernels, tol=1e-5, scale=None).fit(X, y).history_["working_kernels"]
    since = len(sizes) - int(np.flatnonzero(np.diff(sizes) > 0)[-1])
    assert since > 4 and not all(with_models[-since:])


def test_seconds_of_the_parts_of_a_step_are_within_it(many):
    kernels, X, y = many
    history = MKLClassifier(kernels, scale=None).fit(X, y).history_
    parts = np.array([history[f"seconds_{name}"] for name in ("machine", "forms", "weights")])
    assert (parts >= 0).all() and (parts.sum(axis=0) <= history["seconds"]).all()


@pytest.mark.parametrize("policy", ["store", "recompute"])
def test_working_sets_have_the_same_bits_under_every_policy(many, policy, tmp_path):
    kernels, X, y = many
    expected = MKLClassifier(kernels, scale=None).fit(X, y)
    found = MKLClassifier(kernels, grams=policy, gram_store=str(tmp_path / "grams"), scale=None).fit(X, y)
    assert found.dual_coef_.tobytes() == expected.dual_coef_.tobytes()
    assert found.lower_bound_ == expected.lower_bound_


# --- ends, tools, runs ------------------------------------------------------------------------------------------------------------


def test_max_iter_warns_and_keeps_valid_bounds():
    problem = oracle.random_problem(0)
    with pytest.warns(ConvergenceWarning, match="max_iter=2 ended the fit before tol=1e-05"):
        found = machine(problem, max_iter=2)
    optimum = oracle.dual_optimum(problem)[0]
    assert not found.converged_ and found.n_iter_ == 2
    assert found.lower_bound_ <= optimum <= found.upper_bound_


def test_gaps_of_several_classes_are_those_of_the_class_that_is_farthest():
    X, y = rows(15, classes=3)
    with pytest.warns(ConvergenceWarning):
        found = MKLClassifier(KERNELS, max_iter=2, scale=None).fit(X, y)
        alone = [MKLClassifier(KERNELS, max_iter=2, scale=None).fit(X, y == label) for label in range(3)]
    for name in ("relative_gap", "working_gap"):
        gaps = np.array([one.history_[name] for one in alone])
        np.testing.assert_allclose(found.history_[name], gaps.max(axis=0), rtol=1e-9)
        assert np.ptp(gaps, axis=0).min() > 0


def test_runs_on_stores(tmp_path):
    X, _ = rows(9)
    target = np.sin(6 * X[:, 0])
    store = ingest((X, target), tmp_path / "real", task="regression")
    done = run_method("mkl", {"kernels": KERNELS, "epsilon": 0.05}, data=str(tmp_path / "real"), run=str(tmp_path / "run"))
    model = load_model(tmp_path / "run")
    assert isinstance(model, MKLRegressor) and model.converged_
    np.testing.assert_allclose(model.objective_, done.summary["objective"])
    assert model.score(X, target) > 0.9
    np.testing.assert_allclose(model.predict(store), model.predict(X), atol=1e-6)
    table = score_store(str(tmp_path / "run"), str(tmp_path / "real"))
    np.testing.assert_allclose(table["r2"], model.score(X, target), atol=1e-6)
    np.testing.assert_allclose(table["mae"], np.abs(model.predict(X) - target).mean(), atol=1e-6)
    assert predict_store(str(tmp_path / "run"), str(tmp_path / "real"), str(tmp_path / "real.npz")) == {
        "rows": len(X),
        "out": str(tmp_path / "real.npz"),
        "columns": 1,
    }
    np.testing.assert_allclose(np.load(tmp_path / "real.npz")["prediction"], model.predict(X), atol=1e-6)
    X, y = rows(10, classes=3)
    ingest((X, y), tmp_path / "classes", scale="standard")
    run_method("mkl", {"kernels": KERNELS}, data=str(tmp_path / "classes"), run=str(tmp_path / "three"))
    table = score_store(str(tmp_path / "three"), str(tmp_path / "classes"))
    assert table["accuracy"] > 0.8
    assert predict_store(str(tmp_path / "three"), str(tmp_path / "classes"), str(tmp_path / "out.csv"))["rows"] == len(y)
    model = load_model(tmp_path / "three")
    np.testing.assert_allclose(model.decision_function(X), model.decision_function(str(tmp_path / "classes")), atol=1e-6)


def test_the_single_best_kernel_is_that_of_the_best_validation(tmp_path):
    X, y = rows(15, classes=3)
    kernels = ["linear[4]", "rbf(gamma=10)[0]", "linear[3]"]
    found = MKLClassifier(kernels, solver="single", scale=None).fit(X, y)
    np.testing.assert_array_equal(found.kernel_weights_, np.tile([0.0, 1.0, 0.0], (3, 1)))
    assert found.converged_ and found.history_["validation"][1] == found.history_["validation"].max() > 0.6
    full = MKLClassifier(kernels, scale=None).fit(X, y)
    assert found.lower_bound_ <= full.objective_ and full.lower_bound_ <= found.upper_bound_
    target = np.sin(6 * X[:, 0])
    one = MKLRegressor(kernels, solver="single", normalize="none", C=3.0, scale=None).fit(X, target)
    np.testing.assert_array_equal(one.kernel_weights_, [0.0, 1.0, 0.0])
    s = target.std()
    alone = SVR(gamma=10, C=3.0 * s, epsilon=0.1 * s, tol=1e-5).fit(X[:, :1], target)
    np.testing.assert_allclose(one.predict(X), alone.predict(X[:, :1]), atol=0.02)
    ingest((X, y), tmp_path / "data")
    done = run_method("mkl", {"kernels": kernels, "solver": "single"}, data=str(tmp_path / "data"), run=str(tmp_path / "run"))
    assert done.summary["n_selected"] == 1 and done.summary["stop"] == "single"


def test_grids_share_matrices_and_passes(tmp_path):
    X, y = rows(16, n=120, classes=3)
    ingest((X, y), tmp_path / "data")
    grid, events = {"C": [0.1, 10.0], "v": [0.0, 1.0]}, []
    place = {"data": str(tmp_path / "data"), "run": str(tmp_path / "run"), "params": {"kernels": KERNELS}, "folds": 3}
    done = tune("mkl", grid, **place, on_event=events.append)
    table = json.loads((tmp_path / "run" / "tune.json").read_text())["rows"]
    assert [(row["C"], row["v"]) for row in table] == [(0.1, 0.0), (0.1, 1.0), (10.0, 0.0), (10.0, 1.0)]
    assert all(len(row["folds"]) == 3 and 1 <= row["selected"] <= 4 for row in table)
    assert done.summary["accuracy"] == max(row["accuracy"] for row in table)
    model = load_model(tmp_path / "run" / "best")
    assert model.get_params()["C"] == done.summary["best"]["C"] and model.score(X, y) > 0.6
    # One of the fits by itself: its machines do not feel the others.
    alone = cross_validate("mkl", {"kernels": KERNELS, "C": 10.0, "v": 0.0}, data=str(tmp_path / "data"), folds=3)
    assert alone[0]["folds"] == table[2]["folds"] and alone[0]["selected"] == table[2]["selected"]
    assert tune("mkl", grid, **place).status == "already-done"


def test_grids_of_regressions_are_compared_by_r2(tmp_path):
    X, _ = rows(16, n=90)
    target = np.sin(2 * X[:, 0]) + 0.1 * X[:, 1]
    ingest((X, target), tmp_path / "data", task="regression")
    grid, place = {"C": [0.01, 3.0], "v": [0.0, 1.0]}, {"data": str(tmp_path / "data"), "run": str(tmp_path / "run"), "folds": 3}
    done = tune("mkl", grid, params={"kernels": KERNELS, "epsilon": 0.05, "scale": None}, **place)
    table = json.loads((tmp_path / "run" / "tune.json").read_text())["rows"]
    best = max(table, key=lambda row: row["r2"])
    assert done.summary["best"]["C"] == best["C"] == 3.0 and done.summary["r2"] == best["r2"] > 0.5
    assert best["mse"] == min(row["mse"] for row in table) < target.var()
    model = load_model(tmp_path / "run" / "best")
    assert isinstance(model, MKLRegressor) and model.score(X, target) > 0.8
    # A fold by hand: the machine of the other rows, kernels normalised over all.
    alone = cross_validate("mkl", {"kernels": KERNELS, "epsilon": 0.05, "C": 3.0, "v": 0.0, "scale": None}, data=place["data"], folds=3)
    masks = fold_masks(target, None, 3, 0)
    assert (np.sum(masks, axis=0) == 1).all()
    weights = np.where(masks[0], 0.0, 1.0)
    fitted = MKLRegressor(KERNELS, epsilon=0.05, C=3.0, v=0.0, scale=None).fit(X, target, weights)
    assert alone[0]["folds"][0] == pytest.approx(r2_score(target[masks[0]], fitted.predict(X[masks[0]])), abs=0.02)
    with pytest.raises(DataError, match="n_samples=90 with positive weight are too few for 99 folds"):
        cross_validate("mkl", {"kernels": KERNELS}, data=place["data"], folds=99)


def test_a_regression_holds_rows_out(tmp_path):
    X, _ = rows(17, n=90)
    target = np.sin(2 * X[:, 0])
    ingest((X, target), tmp_path / "data", task="regression")
    run = str(tmp_path / "run")
    done = run_method("mkl", {"kernels": KERNELS}, data=str(tmp_path / "data"), run=run, extra={"test_share": 0.3})
    table = score_store(run, str(tmp_path / "data"))
    assert table["rows"] == 27 and table["r2"] == pytest.approx(done.summary["test_r2"], abs=1e-5)


def test_the_plan_refuses_more_kernels_than_memory(tmp_path):
    ingest(rows(11), tmp_path / "data")
    params = {"kernels": [f"rbf(gamma={g})" for g in range(1, 60)], "grams": "memory"}
    with pytest.raises(MemoryBoundExceeded, match=r"mkl: this process .*packed triangles .*choose fewer kernels, or another policy"):
        run_method("mkl", params, data=str(tmp_path / "data"), run=str(tmp_path / "run"), driver_memory="1MiB", dry_run=True)
    told = run_method(
        "mkl", {**params, "grams": "auto"}, data=str(tmp_path / "data"), run=str(tmp_path / "run"), driver_memory="3MiB", dry_run=True
    )
    assert told.plan["grams"] == "recompute" and told.plan["kernels"] == 59


# --- bad input --------------------------------------------------------------------------------------------------------------------


def spoiled(kind):
    problem = oracle.random_problem(0)
    grams = problem.grams.copy()
    if kind == "asymmetric":
        grams[2, 3, 4] += 0.5
    elif kind == "negative":
        grams[2] -= 2.0 * np.eye(14)
    elif kind == "nan":
        grams[2, 3, 4] = np.nan
    elif kind == "oblong":
        grams = grams[:, :, :10]
    elif kind == "sizes":
        grams = [grams[0], grams[1][:10, :10]]
    return grams, problem.y


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("asymmetric", "kernel 2 is not symmetric.*row 3, column 4"),
        ("negative", r"kernel 2 is not positive semi-definite: its least eigenvalue is -2"),
        ("nan", "kernel 2 holds nan in row 3, column 4"),
        ("oblong", r"must be \(n_kernels, n, n\)"),
        ("sizes", "different sizes"),
    ],
)
def test_bad_matrices_are_named(kind, message):
    with pytest.raises(ValueError, match=message):
        MKLClassifier("precomputed").fit(*spoiled(kind))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0.0}, "C=0.0"),
        ({"C": -1.0}, "C=-1.0"),
        ({"v": 1.5}, "v=1.5"),
        ({"v": -0.1}, "v=-0.1"),
        ({"constraint": "lp", "p": 0.5}, "p=0.5"),
        ({"tau": 1.0}, "tau=1.0"),
        ({"tol": 0.0}, "tol=0.0"),
        ({"solver": "simplemkl"}, "needs constraint='simplex'"),
        ({"grams": "store"}, "needs gram_store"),
        ({"kernels": ["rbf(gamma=-1)"]}, "gamma"),
        ({"kernels": ["linear[9]"]}, "column 9 is outside"),
        ({"kernels": []}, "kernels is empty"),
        ({"kernels": "precomputed"}, "at fit they must be"),
    ],
)
def test_bad_parameters_are_named(options, message):
    X, y = rows(12)
    with pytest.raises(ValueError, match=message):
        MKLClassifier(**{"kernels": KERNELS, **options}).fit(X, y)


def test_one_class_and_classes_without_weight():
    X, y = rows(13)
    with pytest.raises(ValueError, match="one class only"):
        MKLClassifier(KERNELS, scale=None).fit(X, np.ones(len(X)))
    with pytest.raises(ValueError, match="class 1 has no sample with positive weight"):
        MKLClassifier(KERNELS, scale=None).fit(X, y, (y == 0).astype(float))
    with pytest.raises(ValueError, match="NaN"):
        MKLClassifier(KERNELS, scale=None).fit(np.where(X < 0.01, np.nan, X), y)


def not_a_kernel(X, Z):
    """A callable that is symmetric but not positive semi-definite."""
    return -np.asarray(X) @ np.asarray(Z).T


def test_a_function_that_is_no_kernel():
    X, y = rows(14)
    with pytest.raises(ValueError, match=r"not_a_kernel.*not positive semi-definite"):
        MKLClassifier([not_a_kernel, "linear"], scale=None).fit(X, y)
