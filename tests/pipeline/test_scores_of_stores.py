"""``score`` of a store takes the target that the store holds, as ``fit`` does."""

import inspect

import numpy as np
import pytest

import gramplane
from gramplane import ingest
from gramplane.pipeline import METHODS
from gramplane.storage import DataError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5))
T = X[:, 0] + 0.5 * X[:, 1] + 0.1 * RNG.normal(size=60)
NAMES = np.array(["low", "mid", "top"])[np.digitize(T, [-0.5, 0.5])]
TWO, TASK = np.where(T > 0, "up", "down"), np.arange(60) % 2

SCORED = [
    name for info in METHODS.values() for name in (*info.estimators, *info.cross_validated) if hasattr(getattr(gramplane, name), "score")
]
KERNELS = {"kernels": ["linear", "rbf(gamma=0.1)"]}
FITS = {
    "FGMClassifier": ({"B": 2, "max_rounds": 2}, NAMES),
    "FGMRegressor": ({"B": 2, "max_rounds": 2}, T),
    "GroupLassoRegressorCV": ({"lams": 2, "cv": 2}, T),
    "MKLClassifier": (KERNELS, NAMES),
    "MKLRegressor": (KERNELS, T),
    "TriClassSVC": ({"kernel": "linear", "max_iter": 3}, TWO),
    "RuleEnsembleClassifier": ({"max_rounds": 2, "n_thresholds": 2}, TWO),
    "RuleEnsembleRegressor": ({"max_rounds": 2, "n_thresholds": 2}, T),
    "KTASelectionPathRegressor": ({"dp": 0.2}, T),
    "TwoLayerMKLRegressor": ({**KERNELS, "max_iter": 2}, T),
    "HierarchicalKernelRegressor": ({"dag": "subsets(gaussian[0:2])"}, T),
    "MultiTaskMKLClassifier": (KERNELS, TWO),
    "MultiTaskMKLRegressor": (KERNELS, T),
    "MultiTaskSelector": ({}, T),
}


@pytest.mark.parametrize("name", SCORED)
def test_no_score_needs_a_target_beside_a_store(name):
    assert inspect.signature(getattr(gramplane, name).score).parameters["y"].default is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_score_reads_the_target_of_a_store(name, tmp_path):
    params, y = FITS[name]
    has_tasks = name.startswith("MultiTask")
    tasks = {"task_column": TASK} if has_tasks else {}
    path = str(tmp_path / "rows.zarr")
    ingest((X, y), path, **({"task": "regression"} if y is T else {}), **tasks)
    model = getattr(gramplane, name)(**params).fit(path)
    assert model.score(path) == model.score(path, y) == pytest.approx(model.score(X, y, *([TASK] if has_tasks else [])), abs=1e-6)
    with pytest.raises(ValueError, match="y is None"):
        model.score(X, **({"task": TASK} if has_tasks else {}))
    bare = str(tmp_path / "bare.zarr")
    ingest(X, bare, **tasks)
    with pytest.raises(DataError, match="there is no target"):
        model.score(bare)
