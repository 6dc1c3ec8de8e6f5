"""Warnings of estimators name the line of the user, however the call comes about."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gramplane.pipeline as gp
from gramplane.kernels.bounds import sound_gap

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8))
Y = np.where(X[:, 0] + X[:, 1] * X[:, 2] + RNG.normal(size=60) > 0, 1, -1)
TASKS = np.arange(60) % 2
PAIRS = np.array([(0, 3, 1), (1, 4, 1), (0, 1, -1), (2, 5, -1)])

STOPPED = gp.MKLClassifier(["linear", "rbf(gamma=0.1)"], max_iter=1, tol=1e-9, scale=None)

FITS = {
    "mkl": lambda: gp.MKLClassifier(["linear", "rbf(gamma=0.1)", "rbf(gamma=1)"], max_iter=1, tol=1e-9, scale=None).fit(X, Y),
    "two-layer": lambda: gp.TwoLayerMKLClassifier(["linear", "rbf(gamma=0.1)"], max_iter=1, tol=1e-9, scale=None).fit(X, Y),
    "group-lasso": lambda: gp.GroupLassoClassifier(algorithm="fista", max_iter=1, tol=1e-12, lam=1e-3, scale=None).fit(X, Y),
    "selector": lambda: gp.MultiTaskSelector(algorithm="fista", max_iter=1, tol=1e-12, lam=1e-3, scale=None).fit(X, X[:, 0], TASKS),
    "npkl": lambda: gp.SimpleNPKL(loss="squared_hinge", max_iter=1, tol=1e-12).fit(X, constraints=PAIRS),
    "rules": lambda: gp.RuleEnsembleClassifier(max_rounds=1, n_thresholds=2).fit(X, Y),
    "in a pipeline": lambda: make_pipeline(StandardScaler(), STOPPED).fit(X, Y),
    "in a cross-validation": lambda: cross_val_score(STOPPED, X, Y, cv=2),
}


@pytest.mark.parametrize("name", FITS)
def test_a_warning_names_the_line_of_the_user(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FITS[name]()
    assert caught and {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("name", [name for name in FITS if not name.startswith("in a ")])
def test_bounds_that_contradict_each_other_are_told(name, monkeypatch):
    monkeypatch.setattr("gramplane.pipeline.core.engine.sound_gap", lambda gap, upper: sound_gap(-1e-5 * abs(upper) - 1e-300, upper))
    with pytest.warns(ConvergenceWarning, match="lies below the lower one"):
        model = FITS[name]()
    assert model.stop_reason_ == "bounds" and model.converged_ is False
    assert np.isnan(model.dual_gap_)
