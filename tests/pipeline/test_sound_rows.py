"""Predictions of sound rows take few steps, and rows that are not sound are refused as scikit-learn refuses them."""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.validation import validate_data

from gramplane.kernels.jit import one_thread
from gramplane.pipeline import FGMClassifier, MKLClassifier, RuleEnsembleClassifier

X = np.random.default_rng(0).standard_normal((60, 8))
Y = np.where(X[:, 0] + X[:, 1] > 0, 1, -1)
ROW = X[:1].copy()

# Estimator, and the Python calls that a prediction may take: a quarter more than it takes.
KINDS = {
    "fgm": (FGMClassifier(B=2, C=1.0, max_rounds=2), 95),
    "mkl": (MKLClassifier(kernels=["rbf(gamma=0.05)", "linear", "rbf(gamma=0.5)[0:3]"], C=1.0, v=0.5, tol=1e-2), 380),
    "rules": (RuleEnsembleClassifier(C=3.0, rho=1.1, n_thresholds=2, max_rules=10), 140),
}


def with_value(value):
    row = ROW.copy()
    row[0, 3] = value
    return row


def python_calls(act):
    """Return how many Python functions are entered."""
    entered = []
    sys.setprofile(lambda frame, event, argument: entered.append(frame.f_code.co_name) if event == "call" else None)
    try:
        act()
    finally:
        sys.setprofile(None)
    return entered


@pytest.mark.parametrize("kind", KINDS)
def test_a_prediction_of_one_row_takes_few_calls(kind):
    machine, most = KINDS[kind]
    machine.fit(X, Y).predict(ROW)
    with one_thread():  # how many calls it takes to limit BLAS depends on the libraries and the processor
        entered = python_calls(lambda: machine.predict(ROW))
    assert len(entered) <= most, entered


@pytest.mark.parametrize(
    "rows",
    [
        with_value(np.nan),
        np.ma.masked_invalid(with_value(np.nan)),
        with_value(np.inf),
        ROW[:, :-1],
        ROW[:0],
        ROW[0],
        np.zeros((1, 8), complex),
        np.full((1, 8), "a"),
        np.zeros((1, 8, 1)),
    ],
    ids=["nan", "masked", "infinity", "narrow", "empty", "flat", "complex", "text", "deep"],
)
def test_unsound_rows_are_refused_by_scikit_learn(rows):
    machine = FGMClassifier(B=2, C=1.0, max_rounds=2).fit(X, Y)
    with pytest.raises(ValueError) as expected:
        validate_data(machine, rows, reset=False, dtype=[np.float64, np.float32])
    with pytest.raises(ValueError) as refused:
        machine.predict(rows)
    assert str(expected.value) in str(refused.value)


@pytest.mark.filterwarnings("error")
def test_forms_of_the_same_rows_are_decided_alike():
    machine = FGMClassifier(B=2, C=1.0, max_rounds=2).fit(X, Y)
    expected = machine.decision_function(X)
    for rows in (np.asfortranarray(X), X.tolist(), X.astype(">f8"), np.ma.array(X), np.repeat(X, 2, axis=1)[:, ::2]):
        np.testing.assert_array_equal(machine.decision_function(rows), expected)
    assert machine.predict(np.full((60, 8), 1e307)).shape == (60,)  # finite, though their sum is not
    named = FGMClassifier(B=2, C=1.0, max_rounds=2).fit(pd.DataFrame(X, columns=list("abcdefgh")), Y)
    with pytest.warns(UserWarning, match="fitted with feature names"):
        named.predict(X)
