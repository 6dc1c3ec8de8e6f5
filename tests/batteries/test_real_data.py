"""Small sanity of accuracy on published data sets, where the folder that GRAMPLANE_DATA names holds them (NumPy .npz files)."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import normalize

from gramplane.pipeline import FGMClassifier

FOLDER = os.environ.get("GRAMPLANE_DATA")

pytestmark = pytest.mark.skipif(not FOLDER, reason="GRAMPLANE_DATA names no folder with the data sets")


def loaded(name):
    """Rows of unit norm and labels."""
    path = Path(FOLDER) / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"GRAMPLANE_DATA has no {path.name}")
    with np.load(path) as z:
        X = sp.csr_matrix((z["X_data"].astype(float), z["X_indices"], z["X_indptr"]), shape=z["X_shape"])
        return normalize(X), z["y"]


def accuracy(machine, X, y):
    """Mean accuracy over five folds, and features selected in the last."""
    found = [machine.fit(X[a], y[a]).score(X[b], y[b]) for a, b in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y)]
    return np.mean(found), len(machine.selected_)


@pytest.mark.parametrize(
    ("name", "shape", "least"),
    [("dexter_train", (300, 20_000), 0.85), ("pcmac", (1943, 3289), 0.89)],
)
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_few_features_classify_text(name, shape, least, loss):
    X, y = loaded(name)
    assert X.shape == shape
    machine = FGMClassifier(B=20, max_rounds=10, C=100.0, loss=loss, fit_intercept=True, scale=None)
    found, selected = accuracy(machine, X, y)
    assert 20 <= selected <= 200
    assert found >= least


def test_exactly_fifty_of_20000_features():
    X, y = loaded("dexter_train")
    machine = FGMClassifier(B=5, C=100.0, max_rounds=30, n_features_to_select=50, fit_intercept=True, allow_repeat=False, scale=None)
    found, selected = accuracy(machine, X, y)
    assert selected == 50
    assert found >= 0.82
    assert machine.transform(X).shape == (300, 50)
