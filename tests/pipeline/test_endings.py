"""How fits ended: every iterative estimator says it in ``converged_`` and ``stop_reason_``, and a run, its report and its model agree."""

import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import gramplane
from gramplane import HierarchicalKernelClassifier, RuleEnsembleClassifier, load_model, run_method
from gramplane.pipeline import METHODS
from gramplane.storage import RunStore
from gramplane.workflows.report.glossary import glossary
from tests.support.methods import CASES
from tests.support.places import ROOT

FIRST_RUN = runpy.run_path(str(Path(ROOT) / "benchmarks" / "first_run.py"))
FITS = FIRST_RUN["FITS"]
BY_METHOD = {case.method: name for name, case in CASES.items()}
CERTIFIED = ("gap", "tol", "certified", "optimal", "closed form")
PATHS = ("kta-path",)  # followed to their ends: there is no tolerance to miss


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_every_estimator_says_how_its_fit_ended(name):
    there = {one: getattr(gramplane, one) for one in [FITS[name].partition("(")[0]]}
    exec(FIRST_RUN["_DATA"] + "model = " + FITS[name], there)
    model = there["model"]
    assert f"stop {model.stop_reason_}" in glossary()
    if name not in PATHS:
        assert isinstance(model.converged_, bool)
        assert model.converged_ or model.stop_reason_ not in CERTIFIED


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
def test_a_loaded_model_ended_as_its_run(method, tmp_path):
    case = CASES[BY_METHOD[method]]
    case.data(tmp_path / "data.zarr")
    run_method(method, case.params, data=str(tmp_path / "data.zarr"), run=str(tmp_path / "run"), extra=case.extra)
    summary = RunStore.open(str(tmp_path / "run")).read_json("summary")
    assert load_model(tmp_path / "run").stop_reason_ == summary["stop"]


@pytest.mark.parametrize("machine", [HierarchicalKernelClassifier, RuleEnsembleClassifier])
def test_a_fit_that_rests_above_its_tolerance_has_not_converged(machine):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = (X[:, 0] * X[:, 1] + 0.5 * X[:, 2] > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)  # to rest is what was asked for
        resting = machine(rest=0.5, tol=1e-6).fit(X, y)
    assert resting.stop_reason_ == "rest" and not resting.converged_
    assert resting.dual_gap_ > 1e-6 * resting.objective_
    done = machine(rest=None, C=0.1).fit(X, y)
    assert done.stop_reason_ == "certified" and done.converged_ and done.dual_gap_ <= done.tol * done.objective_
