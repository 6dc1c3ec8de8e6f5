"""TriClassSVC: scikit-learn's checks, special cases, forms of data and kernels, validation, bad input."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.svm import SVC

from gramplane.kernels.grams.spec import KernelSpec
from gramplane.pipeline import TriClassSVC
from gramplane.storage.ingest import ingest
from tests.support.oracles import triclass as oracle


def draw(n=50, U=150, seed=0, d=5):
    """Labelled rows of all three kinds, unlabelled ones, and what these are."""
    rng = np.random.default_rng(seed)
    y, hidden = np.resize([-1, 1, -1, 1, 0], n), rng.integers(-1, 2, U)
    centre = np.concatenate([[1.2, 1.2], np.zeros(d - 2)])
    X, V = (rng.normal(size=(len(labels), d)) + labels[:, None] * centre for labels in (y, hidden))
    return X, y, V, hidden


def numbers(machine):
    return machine.objective_, machine.dual_gap_, machine.intercept_.tobytes(), machine.dual_coef_.tobytes(), machine.assignment_.tobytes()


# -- what is solved ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["mm", "dc", "cccp"])
def test_objective_is_j_and_every_attribute_belongs_to_the_machine(algorithm):
    X, y, V, _ = draw()
    C, C_U, C_0 = 4.0, 0.5, 1.0
    machine = TriClassSVC(C, C_U, C_0, gamma=0.2, algorithm=algorithm, inner_tol=1e-5, random_state=1, scale=None).fit(X, y, V)
    rows, n = np.vstack([X, V]), len(y)
    K = np.exp(-0.2 * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    beta = np.zeros(len(rows))
    beta[machine.support_] = machine.dual_coef_[0]
    f = K @ beta + machine.intercept_[0]
    np.testing.assert_allclose(machine.decision_function(rows), f, atol=1e-5)
    labels, free = np.concatenate([y, np.zeros(len(V))]), np.arange(len(rows)) >= n
    r = np.where(free, C_U, np.where(labels == 0, C_0, C)) / C
    # The machine keeps beta in units of 1 / lambda, so ||w||^2 of the objective is beta'K beta.
    assert machine.objective_ == pytest.approx(oracle.objective(1 / C, beta @ K @ beta, f, labels, free, r, 0.1), rel=1e-5)
    np.testing.assert_array_equal(machine.predict_three_way(V), machine.assignment_)
    np.testing.assert_array_equal(machine.predict(V), np.where(f[n:] > 0, 1, -1))
    assert machine.converged_ and machine.objective_ == pytest.approx(machine.start_objectives_.min())
    assert np.all(np.diff(machine.history_["objective"]) <= 0)
    assert 0 <= machine.dual_gap_ <= 1e-2 * machine.objective_


def test_without_unlabelled_rows_it_is_scikit_learns_machine():
    X, y, V, _ = draw(80)
    X, y = X[y != 0], y[y != 0]
    peer = SVC(C=2.0, tol=1e-8).fit(X, y)
    for machine in (
        TriClassSVC(C=2.0, inner_tol=1e-8, scale=None).fit(X, y),
        TriClassSVC(C=2.0, C_unlabelled=0, gamma=peer._gamma, inner_tol=1e-8, scale=None).fit(X, y, V),
    ):
        np.testing.assert_allclose(machine.decision_function(V), peer.decision_function(V), atol=1e-4)
    weight = np.random.default_rng(0).uniform(0, 2, len(y))
    peer = SVC(C=2.0, tol=1e-8, class_weight={1: 3.0}).fit(X, y, weight)
    machine = TriClassSVC(C=2.0, inner_tol=1e-8, scale=None, gamma=peer._gamma, class_weight={1: 3.0}).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(machine.decision_function(V), peer.decision_function(V), atol=1e-4)


def test_scaling_all_weights_scales_j_and_turning_labels_turns_the_machine():
    X, y, V, _ = draw()
    one = TriClassSVC(2.0, 0.2, gamma=0.2, inner_tol=1e-7, scale=None).fit(X, y, V)
    turned = TriClassSVC(2.0, 0.2, gamma=0.2, inner_tol=1e-7, scale=None).fit(X, -y, V)
    np.testing.assert_allclose(turned.decision_function(V), -one.decision_function(V), atol=1e-4)
    np.testing.assert_array_equal(turned.assignment_, -one.assignment_)
    wider = TriClassSVC(8.0, 0.8, kernel="linear", inner_tol=1e-7, scale=None).fit(X, y, V)
    scaled = TriClassSVC(2.0, 0.2, kernel="linear", inner_tol=1e-7, scale=None).fit(2 * X, y, 2 * V)
    assert scaled.objective_ == pytest.approx(wider.objective_, rel=1e-4)


def test_balance_and_all_relevant():
    X, y, V, _ = draw()
    machine = TriClassSVC(gamma=0.2, balance=0.25, scale=None).fit(X, y, V)
    assert machine.decision_function(V).mean() == pytest.approx(0.25, abs=1e-4)
    assert TriClassSVC(gamma=0.2, balance="labels", scale=None).fit(X, y, V).decision_function(V).mean() == pytest.approx(0.0, abs=1e-4)
    assert set(TriClassSVC(gamma=0.2, all_relevant=True, scale=None).fit(X, y, V).assignment_) == {-1, 1}


def test_starts():
    X, y, V, _ = draw()
    best = TriClassSVC(gamma=0.2, n_random=2, random_state=3, scale=None).fit(X, y, V)
    assert len(best.start_objectives_) == 5
    alone = [TriClassSVC(gamma=0.2, start=name, scale=None).fit(X, y, V).objective_ for name in ("usvm", "svm3", "s3vm")]
    np.testing.assert_allclose(best.start_objectives_[:3], alone)
    randoms = TriClassSVC(gamma=0.2, start="random", n_random=2, random_state=3, scale=None).fit(X, y, V)
    np.testing.assert_array_equal(best.start_objectives_[3:], randoms.start_objectives_)


# -- forms -------------------------------------------------------------------------------------------------------------------------


def row_kernel(a, b):
    """A kernel that workers can import."""
    return np.exp(-0.2 * ((a[:, None] - b[None]) ** 2).sum(axis=2))


def test_every_form_of_data_gives_the_same_machine(tmp_path):
    X, y, V, _ = draw()
    make = TriClassSVC(gamma=0.2, start="svm3", scale=None)
    plain = clone(make).fit(X, y, V)
    stores = [ingest((X, y), tmp_path / "a"), ingest(V, tmp_path / "b")]
    for rows, target, more in (
        (sp.csr_array(X), y, sp.csr_matrix(V)),
        (stores[0], None, stores[1]),
        (str(tmp_path / "a"), y, str(tmp_path / "b")),
    ):
        found = clone(make).fit(rows, target, more)
        assert found.objective_ == pytest.approx(plain.objective_, rel=1e-6)
        np.testing.assert_array_equal(found.assignment_, plain.assignment_)
    assert numbers(clone(make).fit(X, y, V)) == numbers(plain)
    assert numbers(clone(make).set_params(grams="recompute").fit(X, y, V)) == numbers(plain)


def test_kernels_by_word_text_function_and_matrix():
    X, y, V, _ = draw()
    plain = TriClassSVC(gamma=0.2, start="svm3", scale=None).fit(X, y, V)
    rows = np.vstack([X, V])
    for kernel in ("rbf(gamma=0.2)", KernelSpec.parse("rbf(gamma=0.2)"), row_kernel):
        found = TriClassSVC(kernel=kernel, start="svm3", scale=None).fit(X, y, V)
        assert found.objective_ == pytest.approx(plain.objective_, rel=1e-5)
    K = row_kernel(rows, rows)
    given = TriClassSVC(kernel="precomputed", start="svm3").fit(K, y)
    assert given.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    np.testing.assert_allclose(given.decision_function(K[:7]), plain.decision_function(rows[:7]), atol=1e-4)
    poly = TriClassSVC(kernel="poly", degree=2, gamma=0.5, coef0=1.0, C_unlabelled=0, inner_tol=1e-7, scale=None).fit(X[y != 0], y[y != 0])
    peer = SVC(kernel="poly", degree=2, gamma=0.5, coef0=1.0, tol=1e-7).fit(X[y != 0], y[y != 0])
    np.testing.assert_allclose(poly.decision_function(V), peer.decision_function(V), rtol=1e-3, atol=1e-3)


def test_strings():
    words, more = ["aab", "aaab", "aabb", "ccd", "cccd", "ccdd"], ["aaa", "ccc", "abcd"]
    machine = TriClassSVC(kernel="spectrum(k=2)", C=10, scale=None).fit(words, [1, 1, 1, -1, -1, -1], more)
    np.testing.assert_array_equal(machine.predict(["aabaa", "ddcc"]), [1, -1])


# -- validation --------------------------------------------------------------------------------------------------------------------


def test_validation_stands_beside_the_rivals_and_warns_when_one_is_better():
    seen = set()
    for seed in range(8):
        X, y, V, _ = draw(20, 60, seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            machine = TriClassSVC(gamma=0.2, C_unlabelled=1.0, validation=2, scale=None).fit(X, y, V)
        told = [str(item.message) for item in caught if "did not help" in str(item.message)]
        rows = {row["machine"]: row for row in machine.validation_}
        assert list(rows) == ["SVM", "U-SVM", "3C-SVM"] and all(row["folds"] == 2 for row in rows.values())
        best = max(rows["SVM"]["accuracy"], rows["U-SVM"]["accuracy"])
        # It warns where a rival is right on more rows, by more than chance would explain.
        assert not told or rows["3C-SVM"]["accuracy"] < best
        assert told or rows["3C-SVM"]["accuracy"] > best - 0.15
        seen.add(bool(told))
        plain = TriClassSVC(gamma=0.2, C_unlabelled=1.0, validation=0, scale=None).fit(X, y, V)
        assert plain.validation_ == [] and numbers(plain) == numbers(machine)
    assert seen == {True, False}


# -- bad input ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"eps": 1.0}, "eps=1.0: must be less than 1"),
        ({"C": 0}, "C=0"),
        ({"kernel": "sigmoid"}, "unknown kernel 'sigmoid'"),
        ({"balance": "mean"}, "balance='mean'"),
        ({"validation": 1}, "validation=1: must be 0, or at least 2 folds"),
        ({"validation": 50}, "too few"),
        ({"D": 1.05, "algorithm": "cccp"}, r"D=1.05: must be at least 1 \+ eps = 1.1"),
        ({"class_weight": {2: 1.0}}, "class_weight names class '2'"),
        ({"kernel": "precomputed"}, "X_unlabelled must be None"),
    ],
)
def test_parameters_that_are_refused(options, told):
    X, y, V, _ = draw()
    with pytest.raises(ValueError, match=told):
        TriClassSVC(**options).fit(X, y, V)


def test_data_that_are_refused():
    X, y, V, _ = draw()
    holed, far = V.copy(), sp.csr_array(V)
    holed[17, 2] = np.nan
    far.data[5 * 31] = np.inf
    cases = [
        ((X, np.where(np.arange(50) == 7, 2, y), V), "y holds 0 beside 3 other labels"),
        ((X, np.array(["a"] * 50), V), r"y holds one class only \(labels \['a'\]\)"),
        ((X, np.where(y > 0, 5, 0), V[:0]), "X_unlabelled has no rows"),
        ((X, y, V[:0]), "X_unlabelled has no rows"),
        ((X, y, V[:, :3]), "3 features"),
        ((X, y, holed), r"X_unlabelled: row 17, column \d: .*NaN"),
        ((X, y, far), r"X_unlabelled: row 31, column \d: .*(infinity|NaN)"),
        ((np.where(np.arange(50)[:, None] == 3, np.inf, X), y, V), "row 3, column 0: .*infinity"),
        ((X, y[:-1], V), "inconsistent numbers of samples"),
        ((X, None, V), "requires y to be passed"),
        ((X, y, ["a", "b"]), "must both be arrays"),
    ]
    for given, told in cases:
        with pytest.raises(ValueError, match=told):
            TriClassSVC().fit(*given)
    with pytest.raises(ValueError, match="no row labelled -1 has a positive weight"):
        TriClassSVC().fit(X, y, V, np.where(y < 0, 0.0, 1.0))
    with pytest.raises(ValueError, match="balance='labels' is the mean value of unlabelled rows, but there are none"):
        TriClassSVC(balance="labels", irrelevant_label=0).fit(X, y)


def test_few_problems_end_unconverged_with_a_warning():
    X, y, V, _ = draw()
    with pytest.warns(UserWarning, match="max_iter=1 ended the best start"):
        machine = TriClassSVC(gamma=0.2, start="s3vm", max_iter=1, scale=None).fit(X, y, V)
    assert not machine.converged_


def test_minus_one_beside_zero_and_one_is_refused_unless_something_tells():
    """scikit-learn's -1 marks unlabelled rows; here 0 may mean neither class."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    X = rng.standard_normal((60, 4)) + 3 * y[:, None]
    marked = np.where(np.arange(60) < 30, y, -1)
    for labels in (marked, marked.astype(str)):
        with pytest.raises(ValueError, match=r"-1 beside 0 and 1.*X_unlabelled.*irrelevant_label=0"):
            TriClassSVC().fit(X, labels)
    assert TriClassSVC(irrelevant_label=0).fit(X, marked).classes_.tolist() == [-1, 1]
    assert TriClassSVC(validation=0).fit(X[:30], marked[:30], X[30:]).classes_.tolist() == [0, 1]
    assert TriClassSVC(validation=0).fit(X[:59], marked[:59], X[59:]).classes_.tolist() == [-1, 1], "unlabelled rows are given apart"
