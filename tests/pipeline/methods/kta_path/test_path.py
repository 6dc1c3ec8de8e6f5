"""Kernel selection path: oracles, invariances of the estimator, machines along the path, bad input."""

import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.svm import SVC

from gramplane.cluster import Executor
from gramplane.kernels.grams.feature_sums import weighted_feature_sum
from gramplane.pipeline import KTASelectionPath, load_model, run_method
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.inputs.scores import stratified_split
from gramplane.pipeline.methods.kta_path import kernel_sum_pass
from gramplane.pipeline.methods.kta_path.alignment_pass import alignments_pass
from gramplane.pipeline.methods.kta_path.kernel_sum_pass import MAX_CELLS_BYTES, CellSums
from gramplane.pipeline.passes.blocks import column_tasks
from gramplane.storage import MemoryBlocks
from gramplane.storage.ingest import ingest
from tests.support.fgm_problems import classes, planted


def gaussian(x, width):
    return np.exp(-np.square(x[:, None] - x[None, :]) / (2 * width**2))


def centred(K):
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


def found_bits(machine):
    path = machine.weights_path_
    arrays = [machine.alignments_, machine.widths_, machine.p_grid_, machine.junctures_, path.data, path.indices, path.indptr]
    arrays += [machine.model_.beta, machine.model_.intercepts, *machine.path_scores_.values()]
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


# --- oracles ----------------------------------------------------------------------------------------------------------------------


def test_alignments_and_traces_are_those_of_centred_matrices():
    X, y = planted(0, d=12)
    machine = KTASelectionPath().fit(X, y)
    for i in range(12):
        K = centred(gaussian(X[:, i], machine.widths_[i]))
        np.testing.assert_allclose(machine.traces_[i], np.trace(K), rtol=1e-6)
        np.testing.assert_allclose(machine.alignments_[i], y @ K @ y / np.trace(K), rtol=1e-5, atol=1e-6 * len(y))


def test_the_pass_of_alignments_says_what_comes_back():
    X, y = planted(0, d=12)
    work = alignments_pass(column_tasks(MemoryBlocks(X, y)), y.nbytes, np.stack([y, np.ones_like(y)]), "linear")
    back = [found for ref in work.refs for _, found in work.program.chunk(ref, *work.broadcast)]
    assert sum(found.shape[1] for found in back) == 12
    assert sum(found.nbytes for found in back) <= work.describe()["result_bytes"] <= sum(found.nbytes for found in back) + 1024


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_a_sum_over_pieces_of_columns_is_rounded_once(kernel, monkeypatch):
    X, y = planted(0, d=30)
    found = {}
    # In one piece, in two, of which one rounding does, and in five, which are added in double precision.
    for columns in (30, 16, 7):
        monkeypatch.setattr(kernel_sum_pass, "MAX_COLUMNS", columns)
        ctx, ids = RunContext(Executor(), data=MemoryBlocks(X, y)), np.arange(30)
        widths = np.full(30, 1.5 if kernel == "rbf" else 0.0)
        found[columns] = kernel_sum_pass.feature_kernel_sum(ctx.data, ctx, ids, np.linspace(0.5, 2.0, 30), widths)
        assert found[columns].dtype == (np.float32 if kernel == "rbf" else np.float64)
        pieces = [slice(lo, lo + columns) for lo in range(0, 30, columns)]
        kernel_of = (lambda x: gaussian(x, 1.5)) if kernel == "rbf" else (lambda x: np.outer(x, x))
        total = sum(w * kernel_of(x) for w, x in zip(np.linspace(0.5, 2.0, 30), X.T, strict=True))
        np.testing.assert_allclose(found[columns], total, rtol=1e-6, atol=1e-6)
        parts = np.stack(
            [kernel_sum_pass.feature_kernel_sum(ctx.data, ctx, ids[s], np.linspace(0.5, 2.0, 30)[s], widths[s]) for s in pieces]
        )
        np.testing.assert_array_equal(found[columns], parts.astype(np.float64).sum(axis=0).astype(found[columns].dtype))


def test_classes_are_aligned_with_same_class_or_not():
    X, codes = classes(d=10)
    machine = KTASelectionPath(kernel="linear").fit(X, codes)
    Y = np.where(codes[:, None] == np.arange(3), 1.0, -1.0)
    for i in range(10):
        K = centred(np.outer(X[:, i], X[:, i]))
        np.testing.assert_allclose(machine.alignments_[i], np.sum((K @ Y) * Y) / np.trace(K), rtol=1e-10)


@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_sum_of_gaussians_is_that_of_the_matrices(spread):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(40, 30)) * spread, rng.random(30)
    widths = rng.uniform(0.5, 2.0, 30)
    found = weighted_feature_sum(X, weights, widths)
    np.testing.assert_allclose(found, sum(w * gaussian(X[:, i], s) for i, (w, s) in enumerate(zip(weights, widths))), atol=2e-5)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(weighted_feature_sum(X, weights), (X * weights) @ X.T, rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_the_machine_at_a_point_is_the_svm_of_the_centred_unit_trace_kernels(kernel):
    X, y = planted(1, d=15)
    machine = KTASelectionPath(kernel=kernel).fit(X, y)
    p = 1.3
    weights, K = machine.weights_at(p), np.zeros((80, 80))
    for i in machine.active_at(p):
        own = centred(gaussian(X[:, i], machine.widths_[i]) if kernel == "rbf" else np.outer(X[:, i], X[:, i]))
        K += weights[i] * own / np.trace(own)
    K *= 80 / weights.sum()
    peer = SVC(kernel="precomputed", C=3.0, tol=1e-6).fit(K, y)
    np.testing.assert_allclose(machine.svm_at(p, 3.0).decision_function(X), peer.decision_function(K), atol=5e-3)


# --- the path ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("divergence,eta0", [("euclidean", 0.0), ("euclidean", 0.1), ("kl", 0.2)])
def test_weights_are_stationary_and_kernels_leave_for_good(divergence, eta0):
    X, y = planted(2)
    machine = KTASelectionPath(divergence=divergence, eta0=eta0, eps=1e-4).fit(X, y)
    a, lam1, lam2 = machine.alignments_, machine.lam1_, machine.lam2_
    derivative = (lambda e: 2 * e) if divergence == "euclidean" else np.log
    for k, p in enumerate(machine.p_grid_):
        ids = machine.weights_path_.indices[machine.weights_path_.indptr[k] : machine.weights_path_.indptr[k + 1]]
        eta = machine.weights_path_.data[machine.weights_path_.indptr[k] : machine.weights_path_.indptr[k + 1]]
        pull = derivative(eta) - derivative(np.array(eta0)) if eta0 else derivative(eta)
        np.testing.assert_allclose(lam1 * pull + lam2 * p * eta ** (p - 1) - a[ids], 0, atol=1e-9)
        np.testing.assert_array_equal(ids, machine.active_at(p))
    assert np.all(np.diff(machine.n_active_) <= 0)
    np.testing.assert_allclose(machine.p_grid_, 2.0 - 0.01 * np.arange(101), atol=1e-12)


def test_the_default_path_ends_with_about_ten_kernels_the_relevant_ones_among_them():
    X, y = planted(3, n=200, noise=0.0, relevant=4)
    machine = KTASelectionPath().fit(X, y)
    assert machine.n_active_[0] == 60
    assert machine.n_active_[-1] == 10
    assert machine.score(X, y) > 0.85
    assert np.isin(np.argsort(-machine.alignments_)[:10], machine.get_support(indices=True)).all()


@pytest.mark.parametrize("order", [0, 2])
def test_the_predictor_changes_nothing_but_the_work(order):
    X, y = planted(4, d=20)
    first, other = KTASelectionPath().fit(X, y), KTASelectionPath(order=order).fit(X, y)
    np.testing.assert_array_equal(first.n_active_, other.n_active_)
    np.testing.assert_allclose(first.weights_path_.toarray(), other.weights_path_.toarray(), rtol=1e-9)
    assert (other.history_["newton_steps"][-1] > first.history_["newton_steps"][-1]) == (order == 0)


def test_p_for_a_number_of_features():
    X, y = planted(5)
    machine = KTASelectionPath().fit(X, y)
    for wanted in (10, 25, 60):
        p = machine.p_for(wanted)
        assert len(machine.active_at(p)) == wanted
        assert machine.get_support(p=p).sum() == wanted
        np.testing.assert_array_equal(machine.transform(X, p=p), X[:, machine.active_at(p)])
    with pytest.raises(ValueError, match="10 kernels are still active"):
        machine.p_for(3)


def test_machines_start_from_their_neighbours():
    X, y = planted(6)
    machine = KTASelectionPath().fit(X, y)
    first = machine.svm_at(1.5, 2.0)
    warm, cold = machine.svm_at(1.49, 2.0, warm=first), machine.svm_at(1.49, 2.0)
    np.testing.assert_allclose(warm.decision_function(X), cold.decision_function(X), atol=5e-3)
    np.testing.assert_allclose(machine.svm_at(machine.p_).decision_function(X), machine.decision_function(X), atol=1e-12)


def test_machines_along_the_path_are_those_at_its_points():
    X, y = planted(16, d=400)
    fitted = KTASelectionPath(n_machines=7, dp=0.02).fit(X, y)
    machines = list(fitted.svm_path())
    assert [machine.p_ for machine in machines] == fitted.p_grid_.tolist()
    for machine in machines[::12]:
        alone, eta = fitted.svm_at(machine.p_), fitted.weights_at(machine.p_)
        np.testing.assert_array_equal(machine.active_, fitted.active_at(machine.p_))
        share = eta * len(y) / eta.sum()
        assert np.abs(machine.weights_ - share[machine.active_]).sum() <= 6e-4 * len(y)
        np.testing.assert_allclose(machine.decision_function(X), alone.decision_function(X), atol=1e-2)
        np.testing.assert_allclose(machine.training_values(), machine.decision_function(X), atol=1e-4)
        assert machine.model_.rows.shape[1] == len(machine.active_), "columns of active features only"
    scores = fitted.path_scores_
    assert len(scores["p"]) == 7 and scores["n_active"].tolist() == [len(fitted.active_at(p)) for p in scores["p"]]
    expected = [fitted.svm_at(p).predict(X) == y for p in scores["p"]]
    np.testing.assert_allclose(scores["train_accuracy"], np.mean(expected, axis=1), atol=0.03)


def test_points_of_the_path_are_those_asked_for_and_none_for_none():
    X, y = planted(6)
    machine = KTASelectionPath().fit(X, y)
    found = list(machine.svm_path([1.5, 1.2]))
    assert [one.p_ for one in found] == [1.5, 1.2]
    for one in found:
        np.testing.assert_array_equal(one.active_, machine.active_at(one.p_))
        np.testing.assert_allclose(one.decision_function(X), machine.svm_at(one.p_).decision_function(X), atol=1e-2)
    assert list(machine.svm_path([])) == []


def test_with_little_room_fewer_points_share_matrices(tmp_path):
    X, y = planted(21, n=60, d=300)
    store = ingest((X, y), tmp_path / "data.zarr")
    for name, memory in (("plenty", "2GiB"), ("little", 300_000)):
        run_method("kta-path", {"dp": 0.05, "n_machines": 9}, data=store.url, run=str(tmp_path / name), driver_memory=memory)
    near, far = load_model(tmp_path / "plenty"), load_model(tmp_path / "little")
    np.testing.assert_array_equal(near.path_scores_["n_active"], far.path_scores_["n_active"])
    np.testing.assert_allclose(near.path_scores_["train_accuracy"], far.path_scores_["train_accuracy"], atol=0.04)
    np.testing.assert_array_equal(near.decision_function(X), far.decision_function(X))


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_without_room_for_a_matrix_machines_are_solved_by_passes(kernel, tmp_path):
    X, y = planted(17, n=120, d=20)
    store = ingest((X, y), tmp_path / "data.zarr")
    options = {"kernel": kernel, "dp": 0.1, "n_machines": 3}
    for name, memory in (("matrix", "2GiB"), ("passes", 24 * 120 * 120 - 1)):
        plan = run_method("kta-path", options, data=store.url, run=str(tmp_path / "x"), driver_memory=memory, dry_run=True).plan
        assert plan["solve_on"] == name
        run_method("kta-path", options, data=store.url, run=str(tmp_path / name), driver_memory=memory)
    near, far = load_model(tmp_path / "matrix"), load_model(tmp_path / "passes")
    np.testing.assert_array_equal(near.alignments_, far.alignments_)
    np.testing.assert_allclose(near.decision_function(X), far.decision_function(X), atol=5e-3)
    np.testing.assert_allclose(near.path_scores_["train_accuracy"], far.path_scores_["train_accuracy"], atol=0.02)


@pytest.mark.parametrize("scale", ["none", "standard", "unit-row"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_store_is_predicted_as_its_rows(scale, sparse, tmp_path):
    if sparse and scale == "standard":
        scale = "unit-column"
    X, y = planted(18, d=30, density=0.5 if sparse else 1.0)
    X[:, 4] = 2.0
    store = ingest((sp.csr_array(X) if sparse else X, y), tmp_path / "data.zarr", scale=scale)
    machine = KTASelectionPath(dp=0.1).fit(store)
    columns = machine.model_.features.columns
    assert machine.model_.rows.shape == (len(machine.model_.support_ids), len(columns)) and len(columns) < 30
    np.testing.assert_allclose(machine.decision_function(store), machine.decision_function(X), atol=1e-9)
    np.testing.assert_allclose(machine.decision_function(sp.csr_array(X)), machine.decision_function(X), atol=1e-9)


def test_a_feature_that_is_constant_in_the_rows_to_predict_keeps_its_value(tmp_path):
    X, y = planted(19, d=8)
    machine = KTASelectionPath(dp=0.1).fit(X, y)
    X[:, machine.get_support(indices=True)[-1]] = 1.5
    store = ingest((X, y), tmp_path / "test.zarr")
    np.testing.assert_allclose(machine.decision_function(store), machine.decision_function(X), atol=1e-9)


# --- invariances ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_store_and_memory_give_the_same_bits(kernel, tmp_path):
    X, y = planted(7, density=0.4)
    store = ingest((sp.csr_array(X), y), tmp_path / "data.zarr")
    near = KTASelectionPath(kernel=kernel, dp=0.1).fit(sp.csr_array(X), y)
    far = KTASelectionPath(kernel=kernel, dp=0.1).fit(store)
    assert found_bits(near) == found_bits(far)
    thick = KTASelectionPath(kernel=kernel, dp=0.1).fit(X, y)
    np.testing.assert_array_equal(near.alignments_, thick.alignments_)


def test_order_of_samples_and_features():
    X, y = planted(9, d=20)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(80), rng.permutation(20)
    one, two = KTASelectionPath(dp=0.1).fit(X, y), KTASelectionPath(dp=0.1).fit(X[rows], y[rows])
    np.testing.assert_allclose(one.alignments_, two.alignments_, rtol=1e-5)
    np.testing.assert_array_equal(KTASelectionPath(dp=0.1).fit(X[:, columns], y).alignments_, one.alignments_[columns])


def test_given_matrices_are_the_features_they_come_from():
    X, y = planted(10, d=12)
    own = KTASelectionPath(dp=0.1).fit(X, y)
    G = np.stack([gaussian(X[:, i], own.widths_[i]) for i in range(12)])
    given = KTASelectionPath(kernel="precomputed", dp=0.1).fit(G, y)
    np.testing.assert_allclose(given.alignments_, own.alignments_, rtol=1e-4)
    np.testing.assert_array_equal(given.n_active_, own.n_active_)
    np.testing.assert_allclose(given.decision_function(G), own.decision_function(X), atol=1e-2)
    with pytest.raises(ValueError, match="no features to select"):
        given.transform(G)


def test_constant_features_never_enter():
    X, y = planted(11, d=8)
    X[:, 3] = 5.0
    machine = KTASelectionPath().fit(X, y)
    assert machine.alignments_[3] == 0.0
    assert machine.weights_path_[:, [3]].nnz == 0


# --- scikit-learn and bad input ---------------------------------------------------------------------------------------------------


def test_copies_predict_but_carry_no_training_data():
    X, y = planted(12, d=10)
    machine = KTASelectionPath(dp=0.1).fit(X, y)
    twin = pickle.loads(pickle.dumps(machine))
    np.testing.assert_array_equal(twin.predict(X), machine.predict(X))
    with pytest.raises(ValueError, match="need the training data"):
        twin.svm_at(1.5)
    assert clone(machine).dp == 0.1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "params,message",
    [
        ({"eps": 0.4}, "eps=0.4"),
        ({"p_end": 0.5}, "p_end=0.5"),
        ({"p_start": 1.0, "p_end": 1.5}, "p_end=1.5 is above p_start=1.0"),
        ({"dp": 0.0}, "dp=0.0"),
        ({"order": 3}, "order=3"),
        ({"kernel": "cosine"}, "kernel='cosine'"),
        ({"divergence": "kl"}, "positive eta0"),
        ({"lam1": 0.0}, "no unique solution"),
        ({"lam1": -1.0}, "lam1=-1.0"),
        ({"p_start": 0.5, "p_end": 0.5}, "p_start=0.5"),
        ({"C": 0.0}, "C=0.0"),
        ({"n_machines": 0}, "n_machines=0"),
        ({"eta0": -1.0}, "eta0=-1.0"),
    ],
)
def test_bad_parameters(params, message):
    X, y = planted(13, d=8)
    with pytest.raises(ValueError, match=message):
        KTASelectionPath(**params).fit(X, y)


def test_bad_data():
    X, y = planted(14, d=8)
    with pytest.raises(ValueError, match="all alignments with y are zero"):
        KTASelectionPath().fit(np.ones((80, 3)), y)
    with pytest.raises(ValueError, match="one class only"):
        KTASelectionPath().fit(X, np.ones(80))
    with pytest.raises(ValueError, match="NaN"):
        KTASelectionPath().fit(np.where(np.arange(8) == 3, np.nan, X), y)
    with pytest.raises(ValueError, match="one class only"):
        KTASelectionPath().fit(X[:1], y[:1])
    machine = KTASelectionPath(dp=0.1).fit(X, y)
    with pytest.raises(ValueError, match=r"p is 0.5; the path goes from 2.0 to 1.0"):
        list(machine.svm_path([1.5, 0.5]))
    with pytest.raises(ValueError, match=r"p is 2.5; the path goes from 2.0 to 1.0"):
        machine.active_at(2.5)
    with pytest.raises(ValueError, match="needs 8 features"):
        machine.svm_at(1.5).predict(X[:, :4])


def test_rows_held_out_are_as_if_they_were_not_there(tmp_path):
    X, y = planted(15, d=8)
    store = ingest((X, y), tmp_path / "data.zarr")
    outcome = run_method("kta-path", {"dp": 0.1}, data=store.url, run=str(tmp_path / "run"), extra={"test_share": 0.25}, seed=1)
    assert outcome.status == "done"
    held_out = stratified_split((y > 0).astype(int), 0.25, 1, (-1, 1))
    path = json.loads((tmp_path / "run" / "tables.json").read_text())["path"]
    peer, loaded = KTASelectionPath(dp=0.1).fit(X[~held_out], y[~held_out]), load_model(tmp_path / "run")
    np.testing.assert_allclose(loaded.alignments_, peer.alignments_, rtol=1e-9)
    np.testing.assert_allclose(loaded.decision_function(X), peer.decision_function(X), atol=5e-3)
    scored = [row for row in path if "train_accuracy" in row]
    assert [row["p"] for row in scored] == peer.path_scores_["p"].tolist()
    np.testing.assert_allclose([row["train_accuracy"] for row in scored], peer.path_scores_["train_accuracy"], atol=0.04)
    assert scored[-1]["test_accuracy"] == pytest.approx(peer.score(X[held_out], y[held_out]), abs=0.06)


def test_matrices_of_cells_have_a_limit_of_their_own_whatever_the_memory():
    data = SimpleNamespace(n_rows=7000, n_cols=300)
    counts = [CellSums.max_count(data, SimpleNamespace(driver_memory=gib << 30), 0.5, 4) for gib in (2, 8, 64)]
    assert counts[0] < counts[1] <= counts[2]
    assert 8 * counts[2] * 7000**2 <= MAX_CELLS_BYTES < 8 * (counts[2] + 1) * 7000**2
