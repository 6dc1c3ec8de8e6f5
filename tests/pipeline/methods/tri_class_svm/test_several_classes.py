"""TriClassSVC with more than two classes: one class against the rest, on one Gram matrix, beside fits of two classes."""

import json
import warnings

import numpy as np
import pytest

from gramplane.pipeline import TriClassSVC, load_model, predict_store, run_method, score_store, tune
from gramplane.pipeline.inputs.scores import held_out_rows
from gramplane.pipeline.methods.tri_class_svm import problem as problems
from gramplane.storage.ingest import ingest
from tests.support.oracles import triclass as oracle

CLASSES = ("ant", "bee", "cat")
NONE = "none"


def draw(n=48, U=60, seed=0):
    """Labelled rows of three classes and of none, and unlabelled rows of all four kinds."""
    rng = np.random.default_rng(seed)
    names, centres = np.array([*CLASSES, NONE]), 1.8 * np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    codes, hidden = np.arange(n) % 4, rng.integers(0, 4, U)
    X, V = (rng.normal(size=(len(kinds), 4)) + centres[kinds] for kinds in (codes, hidden))
    return X, names[codes], V


def make(**more):
    return TriClassSVC(**{"C": 3.0, "C_unlabelled": 0.5, "gamma": 0.2, "scale": None, "irrelevant_label": NONE, "validation": 0, **more})


def of_class(y, label):
    """The labels of a fit of two classes: one class against the rest."""
    return np.where(y == NONE, 0, np.where(y == label, 1, -1))


X, Y, V = draw()
ROWS = np.vstack([X, V])
WEIGHT = np.random.default_rng(1).uniform(0.5, 2.0, len(Y))
K = np.exp(-0.2 * ((ROWS[:, None] - ROWS[None]) ** 2).sum(axis=2))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"algorithm": "dc", "start": "svm3"},
        {"algorithm": "cccp", "balance": "labels"},
        {"all_relevant": True, "start": "random", "n_random": 2},
    ],
    ids=["mm", "dc", "cccp-balance", "s3vm"],
)
def test_each_class_is_the_fit_of_two_classes_bit_for_bit(given):
    model = make(**given).fit(X, Y, V, WEIGHT)
    assert model.classes_.tolist() == list(CLASSES)
    for k, label in enumerate(CLASSES):
        one = make(**{**given, "irrelevant_label": 0}).fit(X, of_class(Y, label), V, WEIGHT)
        coef, own = np.zeros(len(ROWS)), np.zeros(len(ROWS))
        coef[one.support_], own[model.support_] = one.dual_coef_[0], model.dual_coef_[k]
        assert own.tobytes() == coef.tobytes() and model.intercept_[k] == one.intercept_[0]
        assert model.start_objectives_[k].tobytes() == one.start_objectives_.tobytes()
        np.testing.assert_allclose(model.decision_function(ROWS)[:, k], one.decision_function(ROWS), atol=1e-10)
    assert model.dual_coef_.shape == (3, len(model.support_)) and model.intercept_.shape == (3,)
    assert model.objective_ == pytest.approx(model.start_objectives_.min(axis=1).sum(), rel=1e-14)
    assert np.all(np.diff(model.history_["objective"]) <= 0)


def test_the_objective_is_the_sum_of_j_and_rows_go_to_the_largest_value():
    model = make(inner_tol=1e-6, C_irrelevant=1.0).fit(X, Y, V)
    free, f = np.arange(len(ROWS)) >= len(X), model.decision_function(ROWS)
    total = 0.0
    for k, label in enumerate(CLASSES):
        beta, sides = np.zeros(len(ROWS)), np.append(of_class(Y, label), np.zeros(len(V)))
        beta[model.support_] = model.dual_coef_[k]
        np.testing.assert_allclose(f[:, k], K @ beta + model.intercept_[k], atol=1e-4)  # (the matrix of the fit is float32)
        r = np.where(free, 0.5, np.where(sides == 0, 1.0, 3.0)) / 3.0
        total += oracle.objective(1 / 3.0, beta @ K @ beta, f[:, k], sides, free, r, 0.1)
    assert model.objective_ == pytest.approx(total, rel=1e-5) and 0 <= model.dual_gap_ <= 1e-3 * total
    np.testing.assert_array_equal(model.predict(V), np.array(CLASSES)[f[free].argmax(axis=1)])
    is_none = np.abs(f[free]).max(axis=1) < 0.55
    assert is_none.any() and not is_none.all() and model.three_way_labels_.tolist() == [*CLASSES, NONE]
    np.testing.assert_array_equal(model.predict_three_way(V), np.where(is_none, NONE, model.predict(V)))
    np.testing.assert_array_equal(model.assignment_, np.where(is_none, -1, f[free].argmax(axis=1)))
    np.testing.assert_array_equal(model.three_way_labels_[model.assignment_], model.predict_three_way(V))


def test_tiny_fits_are_the_enumerated_optima_of_every_class():
    x, y, v = draw(8, 2, 3)
    rows = np.vstack([x, v])
    kernel = np.exp(-0.2 * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    model = make(n_random=6, inner_tol=1e-7, tol=1e-9).fit(x, y, v)
    free, cost = np.arange(10) >= 8, np.where(np.append(y, [""] * 2) == NONE, 0.5, 3.0)
    cost[free] = 0.5
    best = [oracle.global_optimum(kernel, np.append(of_class(y, label), np.zeros(2)), free, cost, 0.1) / 3.0 for label in CLASSES]
    np.testing.assert_allclose(model.start_objectives_.min(axis=1), best, rtol=1e-4)


def test_other_names_permute_the_classes():
    model = make().fit(X, Y, V)
    names = {"ant": "z", "bee": "x", "cat": "y", NONE: NONE}
    other = make().fit(X, np.array([names[label] for label in Y]), V)
    order = [0 if name == "z" else 1 if name == "x" else 2 for name in other.classes_]
    np.testing.assert_array_equal(other.dual_coef_, model.dual_coef_[order])
    np.testing.assert_array_equal(other.start_objectives_, model.start_objectives_[order])
    np.testing.assert_array_equal(other.predict_three_way(V), [names[label] for label in model.predict_three_way(V)])


def test_weights_of_classes_are_weights_of_their_rows_and_a_copy_of_a_row_is_a_weight_of_two():
    weighted = make(inner_tol=1e-7, class_weight={"bee": 2.0}).fit(X, Y, V)
    by_row = make(inner_tol=1e-7).fit(X, Y, V, np.where(Y == "bee", 2.0, 1.0))
    assert weighted.dual_coef_.tobytes() == by_row.dual_coef_.tobytes()
    bees = Y == "bee"
    copied = make(inner_tol=1e-7).fit(np.vstack([X, X[bees]]), np.append(Y, Y[bees]), V)
    np.testing.assert_allclose(copied.start_objectives_, by_row.start_objectives_, rtol=1e-4)
    balanced = make(class_weight="balanced").fit(X, Y, V, np.where(bees, 3.0, 1.0))
    factors = {"ant": 5 / 3, "bee": 5 / 9, "cat": 5 / 3}  # 60 over 3 classes, of 12, 36 and 12
    np.testing.assert_allclose(balanced.objective_, make(class_weight=factors).fit(X, Y, V, np.where(bees, 3.0, 1.0)).objective_, rtol=1e-6)


def test_the_validation_compares_predictions_of_all_classes():
    for folds in (3, "auto"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model = make(validation=folds).fit(X, Y, V)
        assert model.dual_coef_.tobytes() == make().fit(X, Y, V).dual_coef_.tobytes()
        rows = {row["machine"]: row for row in model.validation_}
        assert list(rows) == ["SVM", "U-SVM", "3C-SVM"] and all(row["folds"] == 3 and row["accuracy"] > 0.5 for row in rows.values())


def test_folds_of_an_automatic_validation_begin_at_the_best_start_of_every_class(monkeypatch):
    begun, own = [], problems._starting_point
    monkeypatch.setattr(problems, "_starting_point", lambda name, *rest: begun.append(name) or own(name, *rest))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = make(validation="auto").fit(X, Y, V, WEIGHT)
    best = [begun[k] for k in model.start_objectives_.argmin(axis=1)]
    assert len(set(best)) > 1 and begun[12:] == 3 * best


def test_folds_with_all_starts_are_fits_without_their_rows(monkeypatch):
    """The accuracy of every model on held-out rows is that of fits of their own."""
    seen = []
    own = problems.TriClassProblem.validation
    monkeypatch.setattr(problems.TriClassProblem, "validation", lambda self, state: seen.append(self.masks[1:]) or own(self, state))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = make(validation=2).fit(X, Y, V)
    scores = [make().fit(X[~mask], Y[~mask], V).score(X[mask], Y[mask]) for mask in seen[0]]
    assert model.validation_[2]["accuracy"] == pytest.approx(np.mean(scores))
    plain = [make(C_unlabelled=0.0, C_irrelevant=0.5).fit(X[~mask], Y[~mask], V).score(X[mask], Y[mask]) for mask in seen[0]]
    assert model.validation_[0]["accuracy"] == pytest.approx(np.mean(plain))


def test_a_matrix_and_stores_give_the_same_machine(tmp_path):
    plain = make(start="svm3").fit(X, Y, V)
    given = make(start="svm3", kernel="precomputed").fit(K, Y)
    assert given.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    np.testing.assert_array_equal(given.predict(K[:9]), plain.predict(ROWS[:9]))
    stored = make(start="svm3").fit(ingest((X, Y), tmp_path / "a"), None, ingest(V, tmp_path / "b"))
    assert stored.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    np.testing.assert_array_equal(stored.assignment_, plain.assignment_)


def test_probabilities_are_of_the_classes():
    model = make(probability="sigmoid").fit(X, Y, V)
    p = model.predict_proba(V)
    assert p.shape == (60, 3) and np.allclose(p.sum(axis=1), 1.0)
    assert np.mean(p.argmax(axis=1) == model.decision_function(V).argmax(axis=1)) > 0.8


def test_a_run_predicts_scores_and_has_a_row_per_class_and_start(tmp_path):
    ingest((X, Y), tmp_path / "a")
    ingest(V, tmp_path / "b")
    params, extra = {"C": 3.0, "irrelevant_label": NONE, "n_random": 1}, {"unlabelled": str(tmp_path / "b"), "test_share": 0.25}
    run = str(tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        summary = run_method("tri-class-svm", params, data=str(tmp_path / "a"), run=run, extra=extra).summary
    assert summary["zero"] + summary["any_class"] == 60 and sum(summary["assigned"].values()) == summary["any_class"]
    assert len(summary["start"]) == 3 and "of every class" in summary["certified_over"]
    told = predict_store(run, str(tmp_path / "b"), str(tmp_path / "p.csv"), three_way=True)["predicted"]
    assert told == {name: n for name, n in {**summary["assigned"], NONE: summary["zero"]}.items() if n}
    score = score_store(run, str(tmp_path / "a"))
    assert score["accuracy"] == pytest.approx(summary["test_accuracy"]) and score["rows"] == 9 and score["rows_of_neither"] == 3
    model = load_model(run)
    held_out = held_out_rows(extra, np.searchsorted(names := [*CLASSES, NONE], Y), 0, names)
    assert score["three_way_accuracy"] == pytest.approx(np.mean(model.predict_three_way(X) == Y, where=held_out))
    tune("tri-class-svm", {"C": [3.0]}, data=str(tmp_path / "a"), run=str(tmp_path / "t"), params=params, folds=2)
    assert json.loads((tmp_path / "t" / "tune.json").read_text())["rows"][0]["accuracy"] > 0.5


def test_labels_that_may_mean_two_things_are_refused():
    y = np.arange(48) % 4
    with pytest.raises(ValueError, match=r"0 beside 3 other labels.*irrelevant_label=None.*irrelevant_label=0"):
        TriClassSVC().fit(X, y, V)
    assert make(irrelevant_label=None).fit(X, y, V).classes_.tolist() == [0, 1, 2, 3]
    assert make(irrelevant_label=0).fit(X, y, V).classes_.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="no row labelled 'cat' has a positive weight"):
        make().fit(X, Y, V, np.where(Y == "cat", 0.0, 1.0))
    with pytest.warns(UserWarning, match="0 was read as rows of neither class"):
        assert make(irrelevant_label="auto").fit(X[y < 3], y[y < 3], V).classes_.tolist() == [1, 2]
