"""Kernels, tasks, rules, streams and maps on published data sets (NumPy .npz files in the folder that GRAMPLANE_DATA names).

Bounds are figures of the literature or of a plain rival in the same test, not those of a run of ours.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.metrics import f1_score, rand_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from gramplane.pipeline import (
    GroupLassoClassifier,
    KTASelectionPath,
    MinimumVolumeEmbedding,
    MKLClassifier,
    MultiTaskMKLRegressor,
    RuleEnsembleClassifier,
    SimpleNPKL,
    TriClassSVC,
    UnsupervisedMKL,
)

FOLDER = os.environ.get("GRAMPLANE_DATA")

pytestmark = [pytest.mark.skipif(not FOLDER, reason="GRAMPLANE_DATA names no folder with the data sets"), pytest.mark.slow]


def loaded(name, *arrays):
    path = Path(FOLDER) / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"GRAMPLANE_DATA has no {path.name}")
    with np.load(path) as z:
        return [z[key] for key in arrays]


def halves(name, seed=0):
    """Standardised halves of a set with their labels."""
    X, y = loaded(name, "X", "y")
    A, B, a, b = train_test_split(X.astype(float), y, test_size=0.5, stratify=y, random_state=seed)
    scaler = StandardScaler().fit(A)
    return scaler.transform(A), scaler.transform(B), a, b


def test_a_sum_of_kernels_tells_sick_hearts():
    A, B, a, b = halves("uci_heart")
    kernels = [f"rbf(gamma={g})[{j}]" for j in range(13) for g in (0.1, 1.0)] + ["rbf(gamma=0.05)", "linear"]
    machine = MKLClassifier(kernels=kernels, C=1.0, scale=None).fit(A, a)
    assert 0 <= machine.upper_bound_ - machine.lower_bound_ <= 1e-3 * machine.upper_bound_
    assert machine.score(B, b) > 0.78
    assert np.count_nonzero(machine.kernel_weights_) < len(kernels)


def test_words_that_tell_two_news_groups_apart():
    data, indices, indptr, shape, y = loaded("pcmac", "X_data", "X_indices", "X_indptr", "X_shape", "y")
    X = sp.csr_matrix((data.astype(float), indices, indptr), shape=shape)
    X, held, y, truth = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
    path = KTASelectionPath().fit(X, y)
    few = path.active_at(path.p_for(50))
    assert len(few) <= 50
    # Fifty words out of 3,289 by alignment, and a vote of their neighbours: far above the larger class.
    points, others = np.asarray(X[:, few].todense()), np.asarray(held[:, few].todense())
    assert KNeighborsClassifier(5).fit(points, y).score(others, truth) > 0.75


def test_rules_of_tic_tac_toe():
    X, y = loaded("uci_tictactoe", "X", "y")
    A, B, a, b = train_test_split(X, y, train_size=0.3, stratify=y, random_state=0)
    machine = RuleEnsembleClassifier(C=100.0, rho=1.5, categorical=list(range(9)), refine_cuts=False).fit(A, a)
    assert f1_score(b, machine.predict(B), pos_label=y.max()) > 0.93
    assert len(machine.rules_) < 120
    assert all("=" in rule["text"] for rule in machine.rules_)


def test_schools_share_what_matters():
    X, y, task = loaded("school", "X", "y", "task")
    rows = np.flatnonzero(task < 20)
    X, y, task = X[rows].astype(float), y[rows].astype(float), task[rows]
    A, B, a, b, ta, tb = train_test_split(X, y, task, train_size=20 * 15, stratify=task, random_state=0)
    kernels = [f"linear[{j}]" for j in range(27)]
    machine = MultiTaskMKLRegressor(kernels=kernels, p=6.0, C=0.1, scale=None).fit(A, a, ta)
    residual = np.sum((b - machine.predict(B, tb)) ** 2)
    assert residual < np.sum((b - a.mean()) ** 2)


def test_positions_of_a_splice_site():
    X, y = loaded("memset_donor_400", "X", "y")
    hot = (X[:, :, None] == np.arange(4)).reshape(len(X), -1).astype(float)
    A, B, a, b = train_test_split(hot, y, test_size=0.5, stratify=y, random_state=0)
    machine = GroupLassoClassifier(lam=0.02, gamma=2.0, groups=np.arange(28) // 4, epochs=10).fit(A, a)
    assert len(machine.active_groups_) <= 7
    assert machine.score(B, b) > 0.75


def test_few_labels_of_digits():
    X, y = loaded("usps", "X_train", "y_train")
    rows = np.random.default_rng(0).permutation(np.flatnonzero((y == 5) | (y == 8)))[:600]
    X, y = X[rows].astype(float) / 1000.0, np.where(y[rows] == 5, 1, -1)
    machine = TriClassSVC(kernel="rbf(gamma=0.008)", random_state=0, scale=None)
    machine.fit(X[:40], y[:40], X_unlabelled=X[40:400])
    assert machine.score(X[400:], y[400:]) > 0.9


def test_pairs_group_hearts_where_centres_do_not():
    X, y = loaded("uci_heart", "X", "y")
    X = StandardScaler().fit_transform(X.astype(float))
    i, j = np.random.default_rng(0).integers(0, len(y), (2, 160))
    pairs = [(a, b, 1 if y[a] == y[b] else -1) for a, b in zip(i, j, strict=True) if a != b]
    machine = SimpleNPKL(C=0.2, n_neighbors=10, graph="union", closure=True).fit(X, pairs)
    found = rand_score(y, machine.cluster(2, normalize=True))
    assert found > rand_score(y, KMeans(2, n_init=10, random_state=0).fit_predict(X))


def test_a_map_of_wines_keeps_them_apart():
    X, y = load_wine(return_X_y=True)
    rows = np.flatnonzero(y < 2)
    points = MinimumVolumeEmbedding(tol=1e-3).fit_transform(StandardScaler().fit_transform(X[rows]))
    assert points.shape == (len(rows), 2)
    assert KNeighborsClassifier(5).fit(points[::2], y[rows][::2]).score(points[1::2], y[rows][1::2]) > 0.85


def test_kernels_of_images_without_labels():
    X, y = loaded("coil20", "X", "y")
    rows = np.flatnonzero(y < y.min() + 3)
    X = X[rows].astype(float) / 255.0
    machine = UnsupervisedMKL(kernels=["linear", "rbf(gamma=0.01)", "rbf(gamma=0.1)", "rbf(gamma=10.0)"]).fit(X)
    assert machine.kernel_weights_.sum() == pytest.approx(1.0)
    assert (machine.kernel_weights_ >= 0).all()
