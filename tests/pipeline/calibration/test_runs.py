"""Probabilities of runs: at fit, or from the store of the run when first asked for, of every method with classes."""

import warnings

import numpy as np
import pytest

import gramplane
from gramplane.pipeline import METHODS
from gramplane.storage import DigestMismatch, RunStore

RNG = np.random.default_rng(0)
N = 40
X = RNG.normal(size=(N, 3))
Y = np.where(X[:, 0] + 0.4 * RNG.normal(size=N) > 0, "yes", "no")
TASK = np.arange(N) % 2
KERNELS = {"kernels": ["linear", "rbf"]}
PARAMS = {
    "fgm": {"B": 2, "max_rounds": 2},
    "group-lasso": {"loss": "hinge", "lam": 0.01},
    "mkl": KERNELS,
    "tri-class-svm": {"validation": 0},
    "kta-path": {"dp": 0.2},
    "two-layer-mkl": {**KERNELS, "max_iter": 2},
    "latent-task-mkl": {**KERNELS, "tol": 0.1},
    "rule-ensemble": {"n_thresholds": 2, "max_rounds": 2},
    "hierarchical-kernels": {"dag": "subsets(gaussian; depth=1)"},
    "multitask-mkl": KERNELS,
    "shared-subspace-mkl": {**KERNELS, "tol": 0.1},
    "multitask-selector": {"loss": "hinge", "lam": 0.01, "max_iter": 100},
}


@pytest.fixture
def place(tmp_path):
    gramplane.ingest((X, Y), tmp_path / "plain")
    gramplane.ingest((X, Y), tmp_path / "tasks", task_column=TASK)
    return tmp_path


def fit(place, method, name="run", **more):
    data = place / ("tasks" if METHODS[method].config.has_tasks and method != "rule-ensemble" else "plain")
    gramplane.run_method(method, {**PARAMS[method], **more}, data=str(data), run=str(place / name))
    return str(data)


def predicted(place, data, name="run", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gramplane.predict_store(str(place / name), data, str(place / "p.npz"), **options)
    with np.load(place / "p.npz") as arrays:
        return arrays.get("probability")


def test_every_method_with_classes_is_here():
    assert set(PARAMS) == {name for name, info in METHODS.items() if "probability" in info.config.model_fields}


@pytest.mark.parametrize("method", PARAMS)
def test_a_run_is_calibrated_from_its_store_or_at_fit_to_the_same_bits(place, method):
    data = fit(place, method)
    assert predicted(place, data) is None
    first = predicted(place, data, proba=True)
    assert first.shape == (N, 2) and np.allclose(first.sum(axis=1), 1.0)
    assert predicted(place, data).tobytes() == first.tobytes(), "it is kept"
    assert fit(place, method, "at-fit", probability="sigmoid") == data
    assert predicted(place, data, "at-fit").tobytes() == first.tobytes()
    tasks = {"task": TASK} if data.endswith("tasks") else {}
    np.testing.assert_allclose(gramplane.load_model(place / "run").predict_proba(X, **tasks), first, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("method", ["fgm", "mkl"])
def test_a_store_that_is_another_one_or_gone_is_refused_with_what_to_do(place, method):
    data = fit(place, method)
    other = gramplane.ingest((X, Y), place / "other").url
    RunStore.open(place / "run")
    gramplane.ingest((X * 2.0, Y), place / "plain", overwrite=True)
    said = r"probabilities are calibrated from the store that the run was fitted on.*probability=sigmoid"
    with pytest.raises(DigestMismatch, match=said):
        predicted(place, other, proba=True)
    with pytest.raises(DigestMismatch, match=said):
        gramplane.load_model(place / "run").predict_proba(X)
    assert predicted(place, other) is None and data.endswith("plain")


def test_a_run_without_probabilities_says_so(place):
    data = fit(place, "mkl", probability=False)
    with pytest.raises(ValueError, match="MKLClassifier was fitted with probability=False"):
        predicted(place, data, proba=True)
