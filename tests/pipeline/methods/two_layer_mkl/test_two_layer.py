"""Two-layer MKL: descent, stationarity, the infinite variant, forms of data, runs, bad input, scikit-learn's checks."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from gramplane.cluster import MemoryBoundExceeded, open_executor
from gramplane.kernels.bank.two_layer import TwoLayerPoint
from gramplane.kernels.grams.spec import as_specs
from gramplane.kernels.jit import one_thread
from gramplane.pipeline import TwoLayerMKLClassifier, load_model, predict_store, run_method, score_store
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams.settings import GramSettings
from gramplane.pipeline.methods.two_layer_mkl.config import TwoLayerConfig
from gramplane.pipeline.methods.two_layer_mkl.layer_pass import LayerGrams
from gramplane.pipeline.methods.two_layer_mkl.new_kernels import best_candidate, gamma_range
from gramplane.storage import MemoryBlocks
from gramplane.storage.ingest import ingest, ingest_grams
from tests.support.oracles import gram as gram_oracle
from tests.support.oracles import two_layer as oracle

KERNELS = ["rbf(gamma=0.3)", "rbf(gamma=2)[0,2]", "poly(degree=2)[1]", "linear"]


def rows(seed=0, n=70, d=4, classes=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    value = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.2 * rng.normal(size=n)
    return X, np.digitize(value, np.quantile(value, np.linspace(0, 1, classes + 1)[1:-1]))


def squared_distances(X):
    return ((X[:, None] - X[None]) ** 2).sum(axis=2)


def normalised(kernels, X, normalize="trace"):
    specs = [
        type(s).from_json({**s.to_json(), "normalize": normalize}) if s.normalize == "none" else s for s in as_specs(kernels, X.shape[1])
    ]
    return np.stack([gram_oracle.normalized(spec, gram_oracle.gram(spec, X)) for spec in specs])


def coefficients(found, n, m=0):
    beta = np.zeros(n)
    beta[found.support_vectors_] = found.dual_coef_[m]
    return beta


# --- the point that is found ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    X, y = rows()
    with one_thread():
        return X, y, TwoLayerMKLClassifier(KERNELS, C=1.0, penalty=1.0, scale=None).fit(X, y)


def test_objective_falls_to_a_stationary_point(fitted):
    _, y, found = fitted
    history = found.history_
    assert (np.diff(history["objective"] - history["gap"]) <= 0).all()
    assert found.converged_ and found.violation_ <= 0.05
    assert found.objective_ == history["objective"][-1]
    assert np.isnan(found.dual_gap_) and 0 <= found.machine_gap_ <= 1e-4
    assert found.kernel_weights_.min() >= 0
    assert found.kernel_weights_.sum() <= 2 * min(np.bincount(y))
    np.testing.assert_array_equal(found.support_, np.flatnonzero(found.kernel_weights_))


def test_objective_and_gradient_are_those_of_the_definition(fitted):
    X, y, found = fitted
    grams, mu, signs = normalised(KERNELS, X), found.kernel_weights_, np.where(y == 1, 1.0, -1.0)
    K2, beta = oracle.second_layer(grams, mu), coefficients(found, len(X))
    f = K2 @ beta + found.intercept_[0]
    primal = 0.5 * beta @ K2 @ beta + np.maximum(0, 1 - signs * f).sum() + mu.sum()
    assert found.objective_ == pytest.approx(primal, rel=1e-4)
    slopes = 1 - 0.5 * np.array([beta @ (K2 * K) @ beta for K in grams])
    assert np.abs(mu - np.maximum(mu - slopes, 0)).max() == pytest.approx(found.violation_, abs=1e-3)
    reference = SVC(kernel="precomputed", C=1.0, tol=1e-8).fit(K2, signs)
    np.testing.assert_allclose(f, reference.decision_function(K2), atol=1e-3)
    np.testing.assert_allclose(found.decision_function(X), f, atol=1e-4)
    np.testing.assert_array_equal(found.predict(X), (f > 0).astype(int))


def test_labels_turned_round_negate_the_decisions(fitted):
    X, y, found = fitted
    turned = TwoLayerMKLClassifier(KERNELS, penalty=1.0, scale=None).fit(X, 1 - y)
    assert turned.objective_ == pytest.approx(found.objective_, rel=1e-3)
    np.testing.assert_allclose(turned.decision_function(X), -found.decision_function(X), atol=0.05)


def test_a_zero_kernel_gets_nothing_and_is_named(fitted):
    X, y, found = fitted
    wide = np.hstack([X, np.zeros((len(X), 1))])
    with pytest.warns(UserWarning, match=r"kernel linear\[4\] trace is zero"):
        other = TwoLayerMKLClassifier([*(f"{k}[0:4]" if "[" not in k else k for k in KERNELS), "linear[4]"], penalty=1.0, scale=None).fit(
            wide, y
        )
    assert other.kernel_weights_[-1] == 0
    assert other.objective_ == pytest.approx(found.objective_, rel=2e-2)


def test_unit_trace_with_a_penalty_of_one_nth_is_the_same_problem():
    """n is a power of two, so that both are equal to the last steps of rounding."""
    X, y = rows(1, n=64)
    a = TwoLayerMKLClassifier(KERNELS, penalty=1.0, max_iter=8, tol=1e-9, scale=None).fit(X, y)
    b = TwoLayerMKLClassifier(KERNELS, normalize="unit_trace", penalty=1 / 64, max_iter=8, tol=1e-9, scale=None).fit(X, y)
    np.testing.assert_allclose(b.kernel_weights_ / 64, a.kernel_weights_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(b.history_["objective"], a.history_["objective"], rtol=1e-8)


def test_the_default_penalty_is_a_tenth_of_the_trace_and_counts_rows_with_a_cost():
    X, y = rows(1, n=64)
    found = TwoLayerMKLClassifier(KERNELS, scale=None).fit(X, y)
    assert found.penalty_ == 6.4
    same = TwoLayerMKLClassifier(KERNELS, penalty=6.4, scale=None).fit(X, y)
    assert same.dual_coef_.tobytes() == found.dual_coef_.tobytes()
    scaled = TwoLayerMKLClassifier(KERNELS, normalize="unit_trace", scale=None).fit(X, y)
    assert scaled.penalty_ == 0.1
    np.testing.assert_allclose(scaled.objective_, found.objective_, rtol=1e-3)
    assert TwoLayerMKLClassifier(KERNELS, scale=None).fit(X, y, (np.arange(64) < 50).astype(float)).penalty_ == 5.0


def test_a_machine_without_kernels_is_told():
    X, y = rows(1, n=64, classes=3)
    with pytest.warns(UserWarning, match=r"no kernel has a weight for class 0, 1, 2: penalty=6.4 is too large for C=0.01"):
        found = TwoLayerMKLClassifier(KERNELS, C=0.01, scale=None).fit(X, y)
    assert not found.kernel_weights_.any() and len(set(found.predict(X))) == 1


def test_the_number_of_kernels_told_is_that_of_the_machine_with_the_most():
    X, y = rows(5, n=64, classes=3)
    found = TwoLayerMKLClassifier(KERNELS, penalty=1.0, scale=None).fit(X, y)
    counts = np.count_nonzero(found.kernel_weights_, axis=1)
    assert found.history_["n_selected"][-1] == counts.max() > counts.min()


def test_restarts_keep_the_smallest_objective():
    X, y = rows(2)
    one = TwoLayerMKLClassifier(KERNELS, random_state=4, scale=None).fit(X, y)
    three = TwoLayerMKLClassifier(KERNELS, random_state=4, n_restarts=3, scale=None).fit(X, y)
    assert three.objective_ <= one.objective_ * (1 + 1e-9)
    assert three.kernel_weights_.shape == (4,)
    assert three.history_["machines"].max() == 3


def test_seeds_decide_the_start():
    X, y = rows(3)
    a, b, c = (TwoLayerMKLClassifier(KERNELS, random_state=seed, max_iter=2, scale=None).fit(X, y) for seed in (1, 1, 2))
    assert a.kernel_weights_.tobytes() == b.kernel_weights_.tobytes() != c.kernel_weights_.tobytes()


# --- kernels that are added -------------------------------------------------------------------------------------------------------

NARROW = ["rbf(gamma=0.01)", "linear"]


def search_inputs(policy, rule, normalize="trace", **more):
    X, _ = rows(4, n=140)
    config = TwoLayerConfig(kernels=KERNELS, infinite=True, rule=rule, normalize=normalize, **more)
    specs = [type(s).from_json({**s.to_json(), "normalize": normalize}) for s in as_specs(KERNELS, 4)]
    rng = np.random.default_rng(0)
    mu, beta = rng.random(4), rng.normal(size=140)
    with open_executor(None) as executor:
        grams = LayerGrams(MemoryBlocks(X), specs, GramSettings(policy, 128), Resources(executor), centre=True)
        K2 = oracle.second_layer(normalised(KERNELS, X, normalize), mu)
        point = TwoLayerPoint(mu, 0.0, 0.0, np.zeros(4), beta, 0.1, K2 @ beta + 0.1)
        return X, K2, point, best_candidate(config, 1.0, grams, point)


@pytest.mark.parametrize("normalize", ["trace", "unit_trace", "multiplicative"])
def test_the_best_gaussian_by_descent_against_a_fine_search(normalize):
    X, K2, point, found = search_inputs("memory", "descent", normalize)
    Q, (low, high) = squared_distances(X), gamma_range(MemoryBlocks(X))

    def slope(w):
        k = np.exp(-w * Q)
        scale = {"trace": 1.0, "unit_trace": 1 / 140, "multiplicative": 1 / (1 - k.mean())}[normalize]
        return oracle.gaussian_slopes(K2, point.beta, Q, [w], scale)[0][0]

    value = oracle.best_width(slope, low, high)[1]
    assert low * (1 - 1e-9) <= found.width <= high * (1 + 1e-9)
    assert -found.gain == pytest.approx(slope(found.width), rel=1e-5)
    assert -found.gain <= value + 1e-3 * abs(value)
    again = search_inputs("recompute", "descent", normalize)[3]
    assert again == found


def test_the_best_gaussian_by_the_thesis_rule():
    X, K2, point, found = search_inputs("memory", "thesis")
    Q, (low, high) = squared_distances(X), gamma_range(MemoryBlocks(X))
    now = 0.5 * point.beta @ K2 @ point.beta - point.mu.sum()
    alone = oracle.gaussian_alone(point.beta, Q, np.geomspace(low, high, 60))[0] - 1.0 - now
    assert found.gain == pytest.approx(oracle.gaussian_alone(point.beta, Q, [found.width])[0][0] - 1.0 - now, rel=1e-4)
    assert found.gain >= alone.max() - 1e-3 * abs(alone.max())
    assert search_inputs("recompute", "thesis")[3] == found


def test_a_kernel_near_the_unit_matrix_gains_by_the_diagonal_alone():
    """What bounds gamma: the limit grows with the coefficients, so that a machine could memorise."""
    _, K2, point, found = search_inputs("memory", "descent", gamma_range=(1e6, 1e7))
    assert found.gain == pytest.approx(0.5 * np.square(point.beta) @ np.diag(K2) - 1.0, rel=1e-5)


def test_derivatives_of_both_rules_have_the_corrected_signs():
    X, K2, point, _ = search_inputs("memory", "descent")
    Q, w = squared_distances(X), np.array([0.1, 0.7])
    for of in (lambda v: oracle.gaussian_slopes(K2, point.beta, Q, v), lambda v: oracle.gaussian_alone(point.beta, Q, v)):
        ahead, behind = of(w + 1e-5)[0], of(w - 1e-5)[0]
        np.testing.assert_allclose(of(w)[1], (ahead - behind) / 2e-5, rtol=1e-4)


def test_distances_of_equal_rows_do_not_bound_gamma():
    X = np.repeat(np.array([[0.0], [1.0], [3.0]]), 20, axis=0)
    low, high = gamma_range(MemoryBlocks(X))
    assert 1 / 9 <= low < high <= 1.0
    assert gamma_range(MemoryBlocks(np.ones((9, 2)))) is None
    np.testing.assert_allclose(gamma_range(MemoryBlocks(sp.csr_array(X))), (low, high))


@pytest.fixture(scope="module")
def grown():
    X, y = rows(5, n=80)
    with one_thread():
        return X, y, TwoLayerMKLClassifier(NARROW, penalty=1.0, infinite=True, max_new_kernels=3, scale=None).fit(X, y)


def test_added_kernels_lower_the_objective_until_none_helps(grown):
    X, y, found = grown
    finite = TwoLayerMKLClassifier(NARROW, penalty=1.0, scale=None).fit(X, y)
    added = found.kernels_[2:]
    assert 1 <= len(added) <= 3 and all(spec.name == "rbf" and spec.columns is None for spec in added)
    assert found.objective_ < finite.objective_
    assert (np.diff(found.history_["objective"] - found.history_["gap"]) <= 1e-12).all()
    assert (np.diff(found.history_["n_kernels"]) >= 0).all()
    assert len(found.kernel_weights_) == len(found.kernels_) == 2 + len(added)
    Q = squared_distances(X)
    low, high = gamma_range(MemoryBlocks(X))
    assert all(low * (1 - 1e-9) <= spec.arguments["gamma"] <= high * (1 + 1e-9) for spec in added)
    if len(added) < 3 and found.violation_ <= 1e-3:
        K2 = oracle.second_layer(normalised([str(spec) for spec in found.kernels_], X), found.kernel_weights_)
        slopes = oracle.gaussian_slopes(K2, coefficients(found, len(X)), Q, np.geomspace(low, high, 50))[0]
        assert slopes.min() >= -2e-2
    again = TwoLayerMKLClassifier([str(spec) for spec in found.kernels_], penalty=1.0, scale=None).fit(X, y)
    np.testing.assert_allclose(np.mean(again.predict(X) == found.predict(X)), 1.0, atol=0.05)


def test_one_more_kernel_at_most_and_a_range_of_ones_own():
    X, y = rows(5, n=80)
    found = TwoLayerMKLClassifier(NARROW, infinite=True, max_new_kernels=1, gamma_range=(0.5, 0.6), scale=None).fit(X, y)
    assert len(found.kernels_) == 3
    assert 0.5 <= found.kernels_[2].arguments["gamma"] <= 0.6
    none = TwoLayerMKLClassifier(NARROW, infinite=True, max_new_kernels=0, scale=None).fit(X, y)
    assert none.kernel_weights_.tobytes() == TwoLayerMKLClassifier(NARROW, scale=None).fit(X, y).kernel_weights_.tobytes()


def test_the_thesis_rule_grows_without_raising_the_objective():
    X, y = rows(6, n=80)
    found = TwoLayerMKLClassifier(NARROW, infinite=True, rule="thesis", max_new_kernels=2, scale=None).fit(X, y)
    assert (np.diff(found.history_["objective"] - found.history_["gap"]) <= 1e-12).all()
    assert 2 <= len(found.kernels_) <= 4


# --- forms of data ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernels", [KERNELS, ["rbf(gamma=1) centre", "linear cosine", "poly(degree=2) cosine centre", "linear multiplicative"]]
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_decisions_are_those_of_the_whole_matrices(kernels, n_classes):
    X, y = rows(7, n=60, classes=n_classes)
    found = TwoLayerMKLClassifier(kernels, max_iter=15, scale=None).fit(X, y)
    grams = normalised(kernels, X)
    theta, values = np.atleast_2d(found.kernel_weights_), found.decision_function(X).reshape(len(X), -1)
    assert len(theta) == (1 if n_classes == 2 else 3)
    for m, mu in enumerate(theta):
        whole = oracle.second_layer(grams, mu) @ coefficients(found, len(X), m) + found.intercept_[m]
        np.testing.assert_allclose(values[:, m], whole, atol=2e-4 * np.abs(whole).max())
    one_by_one = np.concatenate([np.atleast_1d(found.decision_function(X[i : i + 1])) for i in range(3)])
    np.testing.assert_allclose(one_by_one, found.decision_function(X[:3]), atol=1e-9)


@pytest.mark.parametrize("policy", ["store", "recompute"])
@pytest.mark.parametrize("options", [{}, {"infinite": True, "max_new_kernels": 1}])
def test_policies_give_the_same_bits(policy, options, tmp_path):
    X, y = rows(8, n=140, classes=3 if not options else 2)
    kernels = ["rbf(gamma=0.3)", "linear cosine"] if not options else NARROW
    expected = TwoLayerMKLClassifier(kernels, max_iter=4, **options, scale=None).fit(X, y)
    found = TwoLayerMKLClassifier(kernels, max_iter=4, grams=policy, gram_store=str(tmp_path / "grams"), **options, scale=None).fit(X, y)
    assert found.dual_coef_.tobytes() == expected.dual_coef_.tobytes()
    assert found.kernel_weights_.tobytes() == expected.kernel_weights_.tobytes()
    assert [str(spec) for spec in found.kernels_] == [str(spec) for spec in expected.kernels_]


def test_forms_of_data_agree(tmp_path, grown):
    X, y, dense = grown
    store = ingest((X, y), tmp_path / "data")
    for form in (sp.csr_array(X), store):
        found = TwoLayerMKLClassifier(NARROW, penalty=1.0, infinite=True, max_new_kernels=3, scale=None).fit(
            form, None if form is store else y
        )
        np.testing.assert_allclose(found.objective_, dense.objective_, rtol=1e-3)
        np.testing.assert_allclose(found.decision_function(form), found.decision_function(X), atol=1e-5)


def test_precomputed_kernels_and_strings(tmp_path, fitted):
    X, y, _ = fitted
    K = np.stack([gram_oracle.gram(spec, X) for spec in as_specs(KERNELS, 4)]).astype(np.float32)
    train, test = np.arange(50), np.arange(50, 70)
    inside, across = K[np.ix_(range(4), train, train)], K[np.ix_(range(4), test, train)]
    found = TwoLayerMKLClassifier("precomputed", penalty=1.0).fit(inside, y[train])
    peer = TwoLayerMKLClassifier(KERNELS, penalty=1.0, scale=None).fit(X[train], y[train])
    np.testing.assert_allclose(found.objective_, peer.objective_, rtol=1e-3)
    assert np.mean(found.predict(across) == peer.predict(X[test])) >= 0.9
    assert found.kernels_ == [f"precomputed {q}" for q in range(4)]
    stored = TwoLayerMKLClassifier("precomputed", penalty=1.0).fit(ingest_grams(inside, tmp_path / "grams"), y[train])
    np.testing.assert_allclose(stored.kernel_weights_, found.kernel_weights_, atol=1e-5)
    with pytest.raises(ValueError, match=r"needs \(4, n_test, 50\)"):
        found.predict(across[:3])
    texts = ["abab", "baba", "ababab", "bab", "cdcd", "dcdc", "cdcdc", "dcd"]
    words = TwoLayerMKLClassifier(["spectrum(k=2)", "spectrum(k=1)"], scale=None).fit(texts, [0, 0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(words.predict(["abba", "ccdd"]), [0, 1])


def test_far_rows_have_finite_decisions(fitted):
    X, _, found = fitted
    assert np.isfinite(found.decision_function(1e3 * X)).all()


def test_weights_of_samples_are_costs():
    X, y = rows(9)
    weight = np.where(np.arange(len(y)) % 3 == 0, 0.0, 1.0)
    kernels = ["rbf(gamma=0.3)", "rbf(gamma=2)"]
    a = TwoLayerMKLClassifier(kernels, normalize="none", scale=None).fit(X, y, weight)
    b = TwoLayerMKLClassifier(kernels, normalize="none", scale=None).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_allclose(a.objective_, b.objective_, rtol=1e-3)
    doubled = TwoLayerMKLClassifier(kernels, C=1.0, class_weight={0: 2.0, 1: 2.0}, scale=None).fit(X, y)
    np.testing.assert_allclose(doubled.objective_, TwoLayerMKLClassifier(kernels, C=2.0, scale=None).fit(X, y).objective_, rtol=1e-6)


# --- tools and runs ---------------------------------------------------------------------------------------------------------------


def test_runs_on_stores(tmp_path):
    X, y = rows(11, n=90, classes=3)
    data, run = str(tmp_path / "data"), str(tmp_path / "run")
    store = ingest((X, np.array(["a", "b", "c"])[y]), tmp_path / "data", scale="standard")
    params = {"kernels": NARROW, "infinite": True, "max_new_kernels": 2, "max_iter": 10}
    done = run_method("two-layer-mkl", params, data=data, run=run, extra={"test_share": 0.3})
    model = load_model(run)
    assert isinstance(model, TwoLayerMKLClassifier)
    assert model.objective_ == done.summary["objective"]
    assert done.summary["n_kernels"] == len(model.kernels_) == 2 + done.summary["n_new_kernels"]
    assert {"train_accuracy", "test_accuracy"} <= done.summary.keys()
    assert score_store(run, data)["accuracy"] > 0.5
    assert predict_store(run, data, str(tmp_path / "out.npz"))["rows"] == 90
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["decision"], model.decision_function(X), atol=1e-5)
    np.testing.assert_allclose(model.decision_function(store), model.decision_function(X), atol=1e-5)
    tables = json.loads((tmp_path / "run" / "tables.json").read_text())
    assert [row["kernel"] for row in tables["kernels"]] and set(tables["kernels"][0]) == {"kernel", "weight[a]", "weight[b]", "weight[c]"}
    assert {row["machine"] for row in tables["weights"]} == {"a", "b", "c"}


def test_runs_on_the_kernels_of_a_gram_store(tmp_path):
    """Matrices computed elsewhere, and kernels kept from an earlier run, which predict on other rows."""
    X, y = rows(16, n=60)
    data, grams = str(tmp_path / "data"), str(tmp_path / "grams")
    ingest((X, y), tmp_path / "data")
    kept = run_method("two-layer-mkl", {"kernels": KERNELS, "grams": "store", "gram_store": grams}, data=data, run=str(tmp_path / "a"))
    # The table has the kernels with a weight, small ones too, and no others.
    weights = load_model(tmp_path / "a").kernel_weights_
    told = [row["weight"] for row in json.loads((tmp_path / "a" / "tables.json").read_text())["kernels"]]
    assert told == sorted(weights[weights > 0], reverse=True) and told[0] > 1 > told[-1] and len(told) < len(KERNELS)
    again = run_method("two-layer-mkl", {"kernels": "precomputed", "gram_store": grams}, data=data, run=str(tmp_path / "b"))
    assert again.summary["objective"] == pytest.approx(kept.summary["objective"], rel=1e-2)
    assert np.mean(load_model(tmp_path / "b").predict(X) == y) > 0.9
    stack = np.stack([gram_oracle.gram(spec, X) for spec in as_specs(KERNELS, 4)]).astype(np.float32)
    ingest_grams(stack, tmp_path / "given")
    other = run_method(
        "two-layer-mkl", {"kernels": "precomputed", "gram_store": str(tmp_path / "given")}, data=data, run=str(tmp_path / "c")
    )
    assert other.summary["objective"] == pytest.approx(kept.summary["objective"], rel=1e-2)
    model = load_model(tmp_path / "c")
    assert model.model_.precomputed and np.mean(model.predict(stack) == y) > 0.9


@pytest.mark.parametrize("options", [{}, {"grams": "store", "infinite": True, "max_new_kernels": 1}])
def test_a_second_layer_beyond_the_drivers_memory_is_left_to_passes(tmp_path, options):
    X, y = rows(17, n=200)
    data = str(tmp_path / "data")
    ingest((X, y), tmp_path / "data")
    params = {"kernels": NARROW, "C": 3.0, "penalty": 9.0, "max_iter": 4, **options}
    for name, memory in (("a", "2GiB"), ("b", "1100KiB")):
        more = {"gram_store": str(tmp_path / f"grams-{name}")} if "grams" in options else {}
        run_method("two-layer-mkl", {**params, **more}, data=data, run=str(tmp_path / name), driver_memory=memory)
    decided = [json.loads((tmp_path / name / "decisions.json").read_text())["second_layer"] for name in "ab"]
    assert decided == ["on the driver", "by passes"]
    whole, parts = load_model(tmp_path / "a"), load_model(tmp_path / "b")
    np.testing.assert_allclose(parts.history_["objective"], whole.history_["objective"], rtol=1e-5)
    np.testing.assert_allclose(parts.kernel_weights_, whole.kernel_weights_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(parts.decision_function(X), whole.decision_function(X), atol=1e-2)


def test_the_limit_of_iterations_warns_and_tells_the_distance():
    X, y = rows(12)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 ended the fit before tol=0.001 was reached; the projected gradient is"):
        found = TwoLayerMKLClassifier(KERNELS, max_iter=2, scale=None).fit(X, y)
    assert not found.converged_ and found.n_iter_ == 2 and found.violation_ > 1e-3


# --- bad input --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0.0}, "C=0.0"),
        ({"penalty": 0.0}, "penalty=0.0"),
        ({"tol": -1.0}, "tol=-1.0"),
        ({"decrease_tol": -1.0}, "decrease_tol=-1.0"),
        ({"n_restarts": 0}, "n_restarts=0"),
        ({"max_new_kernels": -1}, "max_new_kernels=-1"),
        ({"rule": "none"}, "rule='none'"),
        ({"gamma_range": (2.0, 1.0)}, r"gamma_range=\(2.0, 1.0\): the least gamma is above the greatest"),
        ({"gamma_range": (0.0, 1.0)}, "gamma_range"),
        ({"grams": "store"}, "needs gram_store"),
        ({"kernels": ["rbf(gamma=-1)"]}, "gamma"),
        ({"kernels": ["linear[9]"]}, "column 9 is outside"),
        ({"kernels": []}, "kernels is empty"),
        ({"kernels": "precomputed", "infinite": True}, "infinite=True computes new kernels from features"),
    ],
)
def test_bad_parameters_are_named(options, message):
    X, y = rows(13)
    with pytest.raises(ValueError, match=message):
        TwoLayerMKLClassifier(**{"kernels": KERNELS, **options}).fit(X, y)


def not_a_kernel(X, Z):
    """A callable that is symmetric but not positive semi-definite."""
    X, Z = np.asarray(X), np.asarray(Z)
    return 1.0 + 5.0 * X[:, :1] @ Z[:, :1].T - 3.0 * X[:, 1:2] @ Z[:, 1:2].T


def test_bad_data_is_refused(tmp_path):
    X, y = rows(14)
    with pytest.raises(ValueError, match="one class only"):
        TwoLayerMKLClassifier(KERNELS, scale=None).fit(X, np.ones(len(X)))
    with pytest.raises(ValueError, match="NaN"):
        TwoLayerMKLClassifier(KERNELS, scale=None).fit(np.full((6, 4), np.nan), y[:6])
    with pytest.raises(ValueError, match="strings and given matrices have none"):
        TwoLayerMKLClassifier(["spectrum(k=2)"], infinite=True, scale=None).fit(["ab", "ba", "cc"], [0, 0, 1])
    with pytest.raises(ValueError, match=r"not_a_kernel.*not positive semi-definite"):
        TwoLayerMKLClassifier([not_a_kernel], normalize="none", scale=None).fit(X, y)
    with pytest.raises(ValueError, match=r"every kernel \(the first is linear trace\) is zero"):
        TwoLayerMKLClassifier(["linear", "poly(degree=2,coef0=0)"], scale=None).fit(np.zeros((len(X), 2)), y)
    with pytest.warns(UserWarning, match="kernels that are the same"):
        TwoLayerMKLClassifier(["linear", "linear"], scale=None).fit(X, y)
    ingest((X, y), tmp_path / "data")
    many = {"kernels": [f"rbf(gamma={g})" for g in range(1, 60)], "grams": "memory"}
    with pytest.raises(MemoryBoundExceeded, match=r"two-layer-mkl: this process would hold .*choose fewer kernels"):
        run_method("two-layer-mkl", many, data=str(tmp_path / "data"), run=str(tmp_path / "run"), driver_memory="500KiB", dry_run=True)
