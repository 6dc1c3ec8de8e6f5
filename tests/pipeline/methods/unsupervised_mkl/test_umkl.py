"""UnsupervisedMKL: exact cases, invariances, the learnt kernel, its principal components, bad input, scikit-learn's checks."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.decomposition import KernelPCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from gramplane.pipeline import UnsupervisedMKL, load_model, predict_store, run_method, score_store
from gramplane.pipeline.grams.sources import FREED_BYTES
from gramplane.storage.ingest import ingest
from tests.support.oracles.umkl import objective

KERNELS = ["rbf(gamma=0.5)", "rbf(gamma=2)", "poly(degree=2)", "linear", "rbf(gamma=1)[0]"]


def points(seed=0, n=60, d=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 3.0 * rng.integers(0, 2, n)[:, None]


@pytest.mark.parametrize(("gamma1", "expected"), [(0.1, None), (0.0, 3.0 / 3.25), (50.0, 0.2)])
def test_two_points_have_a_closed_form(gamma1, expected):
    """J depends on k = K(1, 2) only; its minimiser is clipped to what the kernels can give."""
    X = np.array([[1.0], [1.5]])
    spread = np.log([1 / 0.2, 1 / 0.95]) / 0.25
    found = UnsupervisedMKL([f"rbf(gamma={g!r})" for g in spread.tolist()], n_bases=1, gamma1=gamma1).fit(X)
    best = (2 * 1.5 - 2 * gamma1 * 0.25) / (1 + 2.25)
    assert expected is None or np.clip(best, 0.2, 0.95) == pytest.approx(expected)
    k = found.combined_kernel(X)[0, 1]
    assert k == pytest.approx(np.clip(best, 0.2, 0.95), abs=1e-6)
    assert found.bases_.tolist() == [[1], [0]]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [{}, {"stop": "gain", "gamma2": 0.2}, {"gamma1": 0.0}, {"normalize": "unit_trace"}])
def test_the_objective_is_that_of_the_definition_and_never_rises(seed, options):
    X = points(seed)
    found = UnsupervisedMKL(KERNELS, n_bases=5, gamma1=0.05).set_params(**options).fit(X)
    J = found.history_["objective"]
    assert (np.diff(J) <= 0).all()
    assert found.converged_
    exact = objective(X, found.combined_kernel(X), found.bases_, found.gamma1, found.gamma2)
    assert found.objective_ == pytest.approx(exact, rel=1e-5)
    assert found.kernel_weights_.min() >= 0
    assert found.kernel_weights_.sum() == pytest.approx(1.0, abs=1e-9)
    held = (found.bases_ >= 0).sum(axis=1)
    assert (held == 5).all() if found.stop == "size" else (held <= 5).all()
    assert not (found.bases_ == np.arange(60)[:, None]).any()


def test_no_weights_are_better_for_the_final_bases():
    X = points(1)
    found = UnsupervisedMKL(KERNELS, n_bases=5, gamma1=0.05).fit(X)
    grams = [UnsupervisedMKL([kernel], n_bases=5, max_iter=1).fit(X).combined_kernel(X) for kernel in KERNELS]
    rng = np.random.default_rng(0)
    for mu in [*np.eye(5), *rng.dirichlet(np.ones(5), 20)]:
        other = objective(X, np.tensordot(mu, np.array(grams), 1), found.bases_, 0.05, 0.0)
        assert other >= found.objective_ * (1 - 1e-5)


def test_one_kernel_needs_one_sweep_and_all_others_as_bases_need_no_search():
    X = points(2, n=12)
    found = UnsupervisedMKL(["rbf(gamma=1)"], n_bases=3).fit(X)
    assert found.n_iter_ == 1
    assert found.kernel_weights_.tolist() == [1.0]
    whole = UnsupervisedMKL(KERNELS, n_bases=11, gamma1=0.1).fit(X)
    assert all(sorted(row) == [j for j in range(12) if j != i] for i, row in enumerate(whole.bases_.tolist()))


def test_copies_order_of_kernels_and_of_points_change_nothing_that_matters():
    X = points(3)
    base = UnsupervisedMKL(KERNELS, n_bases=4, gamma1=0.1).fit(X)
    turned = UnsupervisedMKL(KERNELS[::-1], n_bases=4, gamma1=0.1).fit(X)
    np.testing.assert_allclose(turned.kernel_weights_[::-1], base.kernel_weights_, atol=1e-6)
    twice = UnsupervisedMKL([kernel for kernel in KERNELS for _ in range(2)], n_bases=4, gamma1=0.1).fit(X)
    assert twice.objective_ == pytest.approx(base.objective_, rel=1e-6)
    order = np.random.default_rng(0).permutation(len(X))
    moved = UnsupervisedMKL(KERNELS, n_bases=4, gamma1=0.1).fit(X[order])
    np.testing.assert_allclose(moved.kernel_weights_, base.kernel_weights_, atol=1e-6)
    np.testing.assert_array_equal(np.sort(order[moved.bases_], axis=1), np.sort(base.bases_[order], axis=1))


def test_rotated_points_have_the_same_bases():
    X = points(4)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    a, b = (UnsupervisedMKL(KERNELS[:4], n_bases=4, gamma1=0.1).fit(rows) for rows in (X, X @ turn))
    np.testing.assert_allclose(a.kernel_weights_, b.kernel_weights_, atol=1e-4)
    assert a.objective_ == pytest.approx(b.objective_, rel=1e-5)


def test_the_unit_trace_picks_one_kernel_and_rebuilds_little():
    """Entries of size 1/n leave the quadratic term without weight, so that a vertex of the simplex wins."""
    X = points(5)
    small = UnsupervisedMKL(KERNELS, n_bases=5, gamma1=0.0, normalize="unit_trace").fit(X)
    usual = UnsupervisedMKL(KERNELS, n_bases=5, gamma1=0.0).fit(X)
    whole = 0.5 * np.sum(X**2)
    assert np.count_nonzero(small.kernel_weights_) == 1
    assert small.objective_ > 0.5 * whole
    assert usual.objective_ < 0.15 * whole


def test_column_sums_of_the_kernels_are_one():
    X = points(13)
    found = UnsupervisedMKL(KERNELS[:3], n_bases=5, gamma1=0.0, normalize="column_sum").fit(X)
    for kernel in KERNELS[:3]:
        K = UnsupervisedMKL([kernel], n_bases=5, normalize="column_sum", max_iter=1).fit(X).combined_kernel(X)
        np.fill_diagonal(K, -np.inf)
        assert np.sort(K, axis=1)[:, -5:].sum(axis=1).mean() == pytest.approx(1.0, rel=1e-5)
    assert found.kernel_weights_.sum() == pytest.approx(1.0, abs=1e-9)
    assert found.objective_ == pytest.approx(objective(X, found.combined_kernel(X), found.bases_, 0.0, 0.0), rel=1e-5)
    peer = KernelPCA(2, kernel="precomputed").fit(found.combined_kernel(X))
    np.testing.assert_allclose(np.abs(found.transform(X)), np.abs(peer.transform(found.combined_kernel(X))), atol=1e-3)
    blocks = UnsupervisedMKL(KERNELS[:3], n_bases=5, gamma1=0.0, normalize="column_sum", grams="recompute").fit(X)
    np.testing.assert_array_equal(blocks.kernel_weights_, found.kernel_weights_)


@pytest.mark.parametrize("stop", ["size", "gain"])
def test_a_start_from_sparse_codes_descends_as_well(stop):
    X = points(14)
    greedy, coded = (UnsupervisedMKL(KERNELS, n_bases=5, gamma1=0.05, stop=stop, start=name).fit(X) for name in ("greedy", "sparse-coding"))
    J = coded.history_["objective"]
    assert (np.diff(J) <= 0).all() and coded.converged_
    assert J[0] != greedy.history_["objective"][0]
    assert coded.objective_ == pytest.approx(objective(X, coded.combined_kernel(X), coded.bases_, 0.05, 0.0), rel=1e-5)
    assert J[-1] < J[0]


@pytest.mark.parametrize("normalize", ["trace", "cosine"])
def test_transform_is_kernel_pca_of_the_learnt_kernel(normalize):
    X, Z = points(6), points(7, n=25)
    found = UnsupervisedMKL(KERNELS, n_bases=4, gamma1=0.05, n_components=3, normalize=normalize).fit(X)
    peer = KernelPCA(3, kernel="precomputed").fit(found.combined_kernel(X))
    for rows in (X, Z):
        expected = peer.transform(found.combined_kernel(rows, X))
        scores = found.transform(rows)
        signs = np.sign(np.sum(scores * expected, axis=0))
        np.testing.assert_allclose(scores * signs, expected, atol=2e-3 * np.abs(expected).max())
    np.testing.assert_allclose(found.eigenvalues_, peer.eigenvalues_, rtol=1e-4)
    assert found.get_feature_names_out().tolist() == ["unsupervisedmkl0", "unsupervisedmkl1", "unsupervisedmkl2"]


@pytest.mark.parametrize("kernel", ["poly(degree=2) centre", "rbf(gamma=0.5) cosine centre", "poly(degree=2) cosine", "linear trace"])
def test_the_learnt_kernel_is_normalised_by_the_training_rows(kernel):
    """One kernel: between training rows it is the normalised Gram matrix, and rows may come in any company."""
    X = points(8, n=40)
    found = UnsupervisedMKL([kernel], n_bases=3, normalize="none").fit(X)
    whole = found.combined_kernel(X)
    np.testing.assert_allclose(found.combined_kernel(X[5:9], X[20:23]), whole[5:9, 20:23], atol=1e-9 * np.abs(whole).max())
    if "centre" in kernel and "cosine" not in kernel:
        np.testing.assert_allclose(whole.sum(axis=0), 0.0, atol=1e-3 * np.abs(whole).max())
    if "cosine" in kernel:
        np.testing.assert_allclose(np.diag(whole), 1.0, atol=1e-5)
    assert np.linalg.eigvalsh(whole)[0] >= -1e-4 * np.abs(whole).max() * len(X)


def test_more_components_than_the_kernel_has_are_zero():
    X = points(9, d=2)
    found = UnsupervisedMKL(["linear"], n_bases=3, n_components=5).fit(X)
    assert np.count_nonzero(found.eigenvalues_) == 2
    assert (found.transform(X)[:, 2:] == 0).all()


def test_dense_sparse_and_stores_agree(tmp_path):
    X = np.where(np.random.default_rng(0).random((50, 4)) < 0.5, 0.0, points(10, n=50))
    store = ingest((X, np.zeros(50)), tmp_path / "data.zarr")
    a, b, c = (UnsupervisedMKL(KERNELS, n_bases=4, gamma1=0.1).fit(data) for data in (X, sp.csr_matrix(X), store))
    for other in (b, c):
        np.testing.assert_allclose(other.kernel_weights_, a.kernel_weights_, atol=1e-5)
        np.testing.assert_allclose(np.abs(other.transform(X)), np.abs(a.transform(X)), atol=1e-4)
    np.testing.assert_allclose(c.transform(store), c.transform(X), atol=1e-9)


@pytest.mark.parametrize("policy", ["memory", "recompute", "store"])
def test_every_policy_gives_the_same_bits(tmp_path, policy):
    X = points(11, n=150)
    found = UnsupervisedMKL(KERNELS, n_bases=4, grams=policy, gram_store=str(tmp_path / "g")).fit(X)
    base = UnsupervisedMKL(KERNELS, n_bases=4).fit(X)
    np.testing.assert_array_equal(found.kernel_weights_, base.kernel_weights_)
    np.testing.assert_array_equal(found.bases_, base.bases_)
    np.testing.assert_array_equal(found.transform(X), base.transform(X))


def test_a_machine_on_the_learnt_kernel():
    X, y = load_iris(return_X_y=True)
    found = UnsupervisedMKL(KERNELS, n_bases=5, gamma1=0.01).fit(X[::2])
    machine = SVC(kernel="precomputed").fit(found.combined_kernel(X[::2]), y[::2])
    assert machine.score(found.combined_kernel(X[1::2], X[::2]), y[1::2]) > 0.9


def test_a_run_on_a_store_without_labels(tmp_path):
    store = ingest(points(12), tmp_path / "data.zarr")
    assert not store.has_table("y")
    outcome = run_method("unsupervised-mkl", {"kernels": KERNELS, "n_bases": 4}, data=store.url, run=str(tmp_path / "run"))
    peer, loaded = UnsupervisedMKL(KERNELS, n_bases=4).fit(store), load_model(tmp_path / "run")
    assert outcome.summary["objective"] == peer.objective_
    np.testing.assert_array_equal(loaded.bases_, peer.bases_)
    np.testing.assert_array_equal(loaded.transform(store), peer.transform(store))
    done = predict_store(str(tmp_path / "run"), store.url, str(tmp_path / "components.npz"))
    assert done["columns"] == peer.transform(store).shape[1]
    np.testing.assert_array_equal(np.load(tmp_path / "components.npz")["component_0"], peer.transform(store)[:, 0])
    with pytest.raises(ValueError, match="UnsupervisedMKL learns without a target, there is nothing to score"):
        score_store(str(tmp_path / "run"), store.url)
    with pytest.raises(ValueError, match="n_bases=60 exceeds the 59 other samples"):
        run_method("unsupervised-mkl", {"kernels": KERNELS, "n_bases": 60}, data=store.url, run=str(tmp_path / "other"))


def test_the_limit_of_iterations_warns():
    with pytest.warns(ConvergenceWarning, match="max_iter=1 ended the fit"):
        assert not UnsupervisedMKL(KERNELS, n_bases=4, max_iter=1).fit(points()).converged_


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_bases": 0}, "n_bases=0: .*at least 1"),
        ({"gamma1": -1.0}, r"gamma1=-1.0: .*at least 0"),
        ({"gamma2": float("nan")}, "gamma2=nan"),
        ({"stop": "never"}, "stop='never'"),
        ({"grams": "store"}, "grams='store' needs gram_store"),
        ({"kernels": ["rbf(gamma=-1)"]}, "gamma"),
        ({"kernels": "precomputed"}, "kernels"),
        ({"start": "random"}, "start='random'"),
    ],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        UnsupervisedMKL(**{"kernels": KERNELS, **params}).fit(points())


def test_bad_data_is_refused():
    with pytest.raises(ValueError, match=r"kernel linear.*: its 59 largest entries of a row sum to -.*needs a positive sum"):
        UnsupervisedMKL(["linear"], n_bases=59, normalize="column_sum").fit(points() - points().mean(axis=0))
    with pytest.raises(ValueError, match="n_samples=1"):
        UnsupervisedMKL(KERNELS).fit(np.ones((1, 4)))
    with pytest.raises(ValueError, match="strings and precomputed kernels have none"):
        UnsupervisedMKL(["spectrum(k=2)"]).fit(["abc", "abd", "bcd"])
    with pytest.raises(ValueError, match="NaN"):
        UnsupervisedMKL(KERNELS).fit(np.full((5, 4), np.nan))
    with pytest.warns(UserWarning, match="n_bases=10 exceeds the 4 other samples"):
        UnsupervisedMKL(KERNELS).fit(points(n=5))


def test_the_plan_takes_the_largest_pair_of_blocks(tmp_path):
    store = ingest(points(n=150), tmp_path / "data.zarr")
    plan = run_method("unsupervised-mkl", {"kernels": KERNELS, "n_bases": 3}, data=store.url, run=str(tmp_path / "run"), dry_run=True).plan
    block, n = plan["gram_block_rows"], 150
    assert block < n < 2 * block, "the last block is a short one"
    assert plan["task_bytes"] >= FREED_BYTES + 16 * len(KERNELS) * block**2 + 16 * n * 3
