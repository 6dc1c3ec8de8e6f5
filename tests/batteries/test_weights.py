"""A row of weight zero is a row that is not there, and one of weight two is there twice, for every estimator that takes weights."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

from gramplane import pipeline
from gramplane.cluster import open_executor
from gramplane.kernels.grams.spec import as_specs
from gramplane.pipeline import METHODS, MKLClassifier
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams.grams import Grams
from gramplane.pipeline.grams.settings import GramSettings
from gramplane.storage.ingest import ingest

FAR = 50.0  # rows that are left out lie as many times as far away as the others
TOL = 1e-3
"""Share of the largest decision value by which fits to a narrow tolerance may differ."""

KERNELS = ["rbf(gamma=0.5) trace centre", "poly(degree=2) cosine centre", "linear multiplicative", "rbf(gamma=0.2)[0:3] unit_trace"]
WITHIN = {"kernels": ["rbf(gamma=0.5) trace centre", "poly(degree=2) cosine", "linear multiplicative", "rbf[0:3]"]}
SMALL = {"kernels": ["rbf(gamma=0.5)", "linear", "rbf[0:3]"]}
SETTINGS = {
    "TriClassSVC": [{}, {"kernel": "rbf[0:3] centre"}, {"balance": None}],
    "MKLClassifier": [
        {},
        *({"kernels": [*KERNELS, "rbf[0:3]"], "grams": where} for where in ("memory", "recompute")),
        *({**SMALL, "loss": loss} for loss in ("squared_hinge", "logistic")),
    ],
    "MKLRegressor": [{}, {**SMALL, "loss": "squared"}],
    "TwoLayerMKLRegressor": [SMALL],
    "TwoLayerMKLClassifier": [{**SMALL, "infinite": True, "max_new_kernels": 2, "scale": None}],
    "LatentTaskMKLClassifier": [SMALL],
    "LatentTaskMKLRegressor": [SMALL],
    "MultiTaskMKLClassifier": [{**WITHIN, "grams": where} for where in ("memory", "recompute")],
    "MultiTaskMKLRegressor": [SMALL],
    # A gap of 1e-6 leaves decision values free by its root.
    "SharedSubspaceMKLRegressor": [{**SMALL, "tol": 1e-8}],
    "HierarchicalKernelClassifier": [{"dag": "subsets(gaussian; depth=1)"}],
    "HierarchicalKernelRegressor": [{"dag": "subsets(gaussian; depth=1)"}],
    "RuleEnsembleClassifier": [{"n_thresholds": 4, "max_rounds": 5}],
    "RuleEnsembleRegressor": [{"n_thresholds": 4, "max_rounds": 5, "loss": loss} for loss in ("squared", "epsilon_insensitive")],
    "MultiTaskSelector": [{}, {"loss": "logistic"}],
}
"""Parameters that say more than the defaults do, or as much in less time."""


def takers():
    """Every estimator that is fitted with weights, with parameters, and what may be asked of it."""
    for info in METHODS.values():
        for name in info.estimators:
            made = getattr(pipeline, name)
            if "sample_weight" not in inspect.signature(made.fit).parameters:
                continue
            for params in SETTINGS.get(name, [{}]):
                has_classes = is_classifier(made()) or params.get("loss") == "logistic"
                for kind in ("zero", "two", *(["balanced"] if has_classes else [])):
                    marks = pytest.mark.slow if kind == "two" else ()
                    yield pytest.param(made, params, has_classes, kind, marks=marks, id="-".join([name, *map(str, params.values()), kind]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("made", "params", "has_classes", "kind"), list(takers()))
def test_weights_are_how_often_a_row_is_there(made, params, has_classes, kind):
    rng, known = np.random.default_rng(1), inspect.signature(made).parameters
    X, n = rng.standard_normal((45, 5)), 45
    y = X[:, 0] * X[:, 1] + X[:, 2]
    y = (y > 0.3).astype(int) if has_classes else y
    weight = np.ones(n)
    if kind == "zero":
        weight[::4] = 0.0
        X[::4] *= FAR
    else:
        weight[rng.permutation(n)[:15]] = 2.0
    sharp = {key: value for key, value in {"probability": False, "tol": 1e-6}.items() if key in known}
    model = made(**{**sharp, **params, **({"class_weight": "balanced"} if kind == "balanced" else {})})
    has_tasks = "task" in inspect.signature(made.fit).parameters
    rows = np.repeat(np.arange(n), weight.astype(int))
    used, found = np.unique(rows), []
    for ids, more in ((np.arange(n), {"sample_weight": weight}), (rows, {})):
        tasks = [{"task": part % 3} if has_tasks else {} for part in (ids, used)]
        fitted = clone(model).fit(X[ids], y[ids], **tasks[0], **more)
        found.append(np.asarray(getattr(fitted, "decision_function", fitted.predict)(X[used], **tasks[1]), float))
    assert np.abs(found[0] - found[1]).max() <= TOL * np.abs(found[1]).max()


@pytest.mark.parametrize("policy", ["memory", "recompute", "store"])
def test_kernels_are_normalised_over_rows_as_often_as_they_count(policy, tmp_path):
    X, counts = np.random.default_rng(0).standard_normal((300, 4)), np.arange(300) % 4
    rows, specs = np.repeat(np.arange(300), counts), as_specs(KERNELS, 4)
    with open_executor(None) as executor:
        resources = Resources(executor)
        data = [ingest((part, np.zeros(len(part))), tmp_path / str(len(part)), task="regression") for part in (X, X[rows])]
        settings = GramSettings.of(data[0], resources, specs, policy, str(tmp_path / "grams"))
        weighted = Grams(data[0], specs, replace(settings, counts=counts.astype(float)), resources, centre=True)
        repeated = Grams(data[1], specs, None, resources, centre=True)
        theta = np.array([0.1, 0.4, 0.3, 0.2])
        np.testing.assert_allclose(weighted.combine(theta).array[rows][:, rows], repeated.combine(theta).array, rtol=1e-5, atol=1e-6)


def test_rows_of_a_store_count_as_often_as_its_weights_say(tmp_path):
    X, counts = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 3
    X[counts == 0] *= FAR
    y, rows = (X[:, 0] * X[:, 1] > 0).astype(int), np.repeat(np.arange(60), counts)
    ingest((X, y), tmp_path / "rows", weight_column=counts.astype(float))
    params = {"kernels": ["rbf", "poly(degree=2) multiplicative", "rbf[0] trace centre"], "tol": 1e-6, "probability": False, "scale": None}
    stored, repeated = MKLClassifier(**params).fit(str(tmp_path / "rows")), MKLClassifier(**params).fit(X[rows], y[rows])
    np.testing.assert_allclose(stored.decision_function(X[rows]), repeated.decision_function(X[rows]), atol=TOL)
