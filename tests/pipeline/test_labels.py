"""Labels of any kind in every classifier: predicted as they were given, scored, and told apart from numbers."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import DataConversionWarning

from gramplane import pipeline

RNG = np.random.default_rng(0)
N = 40
X = RNG.normal(size=(N, 3))
F = X[:, 0] + 0.3 * RNG.normal(size=N)
TASK = np.arange(N) % 2
KERNELS = {"kernels": ["linear", "rbf"]}
MACHINES = {
    "FGMClassifier": {"B": 2, "max_rounds": 2},
    "GroupLassoClassifier": {},
    "MKLClassifier": KERNELS,
    "TriClassSVC": {"validation": 0},
    "KTASelectionPath": {"dp": 0.2},
    "TwoLayerMKLClassifier": {**KERNELS, "max_iter": 2},
    "RuleEnsembleClassifier": {"n_thresholds": 2, "max_rounds": 2},
    "HierarchicalKernelClassifier": {"dag": "subsets(gaussian; depth=1)"},
    "LatentTaskMKLClassifier": {**KERNELS, "tol": 0.1},
    "MultiTaskMKLClassifier": KERNELS,
    "SharedSubspaceMKLClassifier": {**KERNELS, "tol": 0.1},
    "MultiTaskSelector": {"loss": "logistic", "lam": 0.01},
}
OF_TASKS = ("LatentTaskMKLClassifier", "MultiTaskMKLClassifier", "SharedSubspaceMKLClassifier", "MultiTaskSelector")
OF_TWO = ("MultiTaskSelector",)
KINDS = {
    "texts": np.array(["no", "yes", "or"]),
    "objects": np.array(["no", "yes", "or"], dtype=object),
    "truth values": np.array([False, True]),
    "truth values as objects": np.array([False, True], dtype=object),
    "numbers below zero": np.array([-3, -1, 7]),
    "numbers as objects": np.array([-3, -1, 7], dtype=object),
    "fractions": np.array([0.5, 1.5, 2.5]),
    "bytes of numbers": np.array([3, 5, 9], dtype=np.uint8),
}


def fitted(name, y, **more):
    tasks = {"task": TASK} if name in OF_TASKS else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(pipeline, name)(**{**MACHINES[name], **more}).fit(X, y, **tasks), tasks


def test_every_classifier_is_here():
    known = {name for info in pipeline.METHODS.values() for name in info.estimators}
    assert {name for name in known if "Classifier" in name} <= set(MACHINES) <= known


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MACHINES)
def test_labels_come_back_as_they_were_given(name, kind):
    labels = KINDS[kind]
    y = labels[(F > 0).astype(int)]
    machine, tasks = fitted(name, y)
    predicted = machine.predict(X, **tasks)
    assert set(predicted.tolist()) == set(y.tolist()) and sorted(machine.classes_.tolist()) == sorted(set(y.tolist()))
    right = predicted == y
    assert machine.score(X, y, **tasks) == pytest.approx(right.mean())
    weight = np.where(F > 0, 3.0, 1.0)
    assert machine.score(X, y, sample_weight=weight, **tasks) == pytest.approx(np.average(right, weights=weight))
    if name == "MultiTaskSelector" or len(labels) < 3:
        return
    assert machine.predict_proba(X, **tasks).shape == (N, 2)


@pytest.mark.parametrize("name", [name for name in MACHINES if name not in OF_TWO])
def test_several_classes_are_those_of_their_numbers(name):
    codes = np.digitize(F, [-0.4, 0.4])
    by_number, tasks = fitted(name, codes, **({"irrelevant_label": None} if name == "TriClassSVC" else {}))
    for kind in ("texts", "fractions"):
        labels = np.sort(KINDS[kind])
        machine, _ = fitted(name, labels[codes])
        np.testing.assert_array_equal(machine.predict(X, **tasks), labels[by_number.predict(X, **tasks)])
        assert machine.decision_function(X, **tasks).shape == (N, 3)


def test_a_label_of_rows_of_no_class_is_no_class():
    three = np.array(["a", "b", "c"])[np.digitize(F, [-0.4, 0.4])]
    machine, _ = fitted("TriClassSVC", three, irrelevant_label="b")
    assert machine.classes_.tolist() == ["a", "c"]


@pytest.mark.parametrize("classes", [(0, 1), (False, True), ("0", "1")])
def test_rows_of_neither_class_need_a_label_of_their_own(classes):
    y = np.array(classes)[(F > 0).astype(int)]
    machine, _ = fitted("TriClassSVC", y)
    with pytest.raises(ValueError, match=r"irrelevant_label=0 is also the class .*: fit with another irrelevant_label"):
        machine.predict_three_way(X)
    other, _ = fitted("TriClassSVC", y, irrelevant_label="neither")
    assert set(other.predict_three_way(X).tolist()) <= {*classes, "neither"}
    assert machine.predict(X).tolist() == other.predict(X).tolist()


@pytest.mark.parametrize("name", MACHINES)
def test_numbers_that_differ_from_row_to_row_are_no_labels(name):
    with pytest.raises(ValueError, match=r"continuous|real-valued|real numbers"):
        fitted(name, F)


def test_a_score_says_what_does_not_go_together():
    machine, _ = fitted("MKLClassifier", F > 0)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        machine.score(X, (F > 0)[:-1])


@pytest.mark.parametrize("labels", [[0, 1], ["no", "yes"]])
def test_a_score_takes_a_column_and_refuses_missing_labels(labels):
    y = np.array(labels)[(F > 0).astype(int)]
    machine, _ = fitted("MKLClassifier", y)
    with pytest.warns(DataConversionWarning):
        assert machine.score(X, y[:, None]) == machine.score(X, y)
    with pytest.raises(ValueError, match="y, row 1: the label is missing"):
        machine.score(X, [y[0], None, *y[2:]])
