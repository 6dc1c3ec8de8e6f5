"""Tri-class machines whose driver holds neither rows nor matrix: passes over Gram blocks, or over linear rows; any workers, any kill."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import MemoryBoundExceeded
from gramplane.kernels.grams.spec import KernelSpec
from gramplane.pipeline import TriClassSVC, load_model, run_method
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams.sources import all_rows, read_rows, rows_of
from gramplane.pipeline.methods.tri_class_svm import linear_pass
from gramplane.pipeline.methods.tri_class_svm.inputs import rows_here
from gramplane.pipeline.passes.blocks import scale_as_given
from gramplane.pipeline.records.joined import JoinedStores
from gramplane.storage import BlockStore, DataError
from gramplane.storage.ingest import ingest

LITTLE, ENOUGH = "1MiB", "1GiB"
"""A quarter of the first is less than the matrix of 420 rows."""
N, U, D = 120, 300, 12
TOL = {"C": 2.0, "start": "svm3", "tol": 1e-6}


def draw(d=D, constant=True, seed=0):
    rng = np.random.default_rng(seed)
    y, hidden = np.resize([-1, 1, -1, 1, 0], N), rng.integers(-1, 2, U)
    X, V = (rng.normal(size=(len(side), d)) + 1.2 * side[:, None] * (np.arange(d) < 2) for side in (y, hidden))
    if constant:
        X[:, 5], V[:, 5] = 2.0, 2.0  # in both
        X[:, 6] = 1.0  # in the labelled rows alone
    return X, y, V


def thin(X):
    return sp.csr_array(np.where(np.abs(X) > 0.7, X, 0.0))


FORMS = {"dense": (np.asarray, "none"), "standard": (np.asarray, "standard"), "sparse": (thin, "none"), "unit rows": (thin, "unit-row")}


@pytest.fixture(scope="module", params=FORMS)
def stores(request, tmp_path_factory):
    """Both stores in small stripes, of every form."""
    folder, (form, scale) = tmp_path_factory.mktemp("stores"), FORMS[request.param]
    X, y, V = draw()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 3000)
        ingest((form(X), y), folder / "a", scale=scale)
        ingest(form(V), folder / "b", like=str(folder / "a"))
    return folder


def dense(rows):
    return rows.toarray() if sp.issparse(rows) else rows


# -- rows of two stores --------------------------------------------------------------------------------------------------------------


def test_rows_of_two_stores_are_read_where_they_lie(stores):
    parts = [BlockStore.open(str(stores / name)) for name in "ab"]
    assert parts[0].meta.kind == "dense" or len(parts[1].column_blocks()) > 2
    data = JoinedStores(parts)
    whole = dense(read_rows(data))
    assert (data.n_rows, data.n_cols) == whole.shape == (N + U, D) and len(pickle.dumps(data)) < 1000
    for lo, hi in ((0, 7), (100, 130), (119, 121), (120, 121), (300, 420), (0, 420)):
        np.testing.assert_array_equal(dense(rows_of(data, lo, hi)), whole[lo:hi])
        np.testing.assert_array_equal(dense(rows_of(pickle.loads(pickle.dumps(data)), lo, hi)), whole[lo:hi])
    np.testing.assert_array_equal(dense(all_rows(rows_here(data))), whole)
    # A column that is constant in the rows of one store only tells these from the others.
    alone = np.vstack([dense(all_rows(store)) for store in parts])
    if parts[0].meta.scale == "none":
        assert not whole[:, 5].any() and not alone[:N, 6].any() and whole[:N, 6].any()


def test_a_range_of_sparse_rows_is_that_of_the_columns(stores):
    store = BlockStore.open(str(stores / "b"))
    if store.meta.kind == "sparse":
        raw = store.columns(np.arange(D), (37, 211))
        found = rows_of(store, 37, 211, scale_as_given)
        row = 1.0 if store.scale.row_factor is None else store.scale.row_factor[37:211, None]
        np.testing.assert_allclose(found.toarray(), raw.toarray() * row, atol=1e-12)


def test_stores_of_two_forms_are_refused(tmp_path):
    X, y, V = draw()
    ingest((X, y), tmp_path / "a")
    ingest(sp.csr_array(V), tmp_path / "b")
    with pytest.raises(DataError, match=r"b: it holds sparse rows, .*a holds dense rows; ingest both in one form"):
        run(tmp_path, tmp_path / "run", {}, dry_run=True)


# -- a linear kernel -----------------------------------------------------------------------------------------------------------------


def test_a_linear_matrix_by_passes_over_rows_is_the_product_of_the_rows(stores, monkeypatch):
    from gramplane.cluster import open_executor

    data = JoinedStores([BlockStore.open(str(stores / name)) for name in "ab"])
    X, rng = dense(read_rows(data)), np.random.default_rng(1)
    monkeypatch.setattr(linear_pass, "PASS_BYTES", 4000)
    monkeypatch.setattr(linear_pass, "CHUNK_BYTES", 8000)
    with open_executor(None) as executor:
        gram = linear_pass.LinearGram(data, Resources(executor, driver_memory=1 << 20), KernelSpec.parse("linear"))
        np.testing.assert_allclose(gram.diag(), np.square(X).sum(axis=1), rtol=1e-12)
        v = rng.normal(size=N + U)
        np.testing.assert_allclose(gram.matvec(v), X @ (X.T @ v), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(gram.rows(np.array([3, 200])), (X @ X.T)[[3, 200]], atol=1e-10)
        ids = rng.permutation(N + U)
        for new, old in ((ids[:90], ids[:0]), (ids[90:130], ids[40:90]), (ids[:5], ids[90:120])):
            every = np.concatenate([new, old])
            found = np.zeros((len(new), len(every)))
            for rows, columns, values in gram.between(new, old):
                found[np.ix_(rows, columns)] = values
            np.testing.assert_allclose(found, X[new] @ X[every].T, atol=1e-10)
        room = gram.room
        size = int((room / 1.5625) ** 0.5)
        assert 3 <= size < N + U
        taken = 8 * room + 3 * 12 * np.sort((X != 0).sum(axis=1))[::-1][:size].sum()
        assert taken <= 1.05 * (1 << 18)


# -- whole runs ----------------------------------------------------------------------------------------------------------------------

KINDS = {
    "mm": {},
    "dc balance": {"algorithm": "dc", "balance": 0.1},
    "cccp": {"algorithm": "cccp"},
    "mm balance": {"balance": "labels"},
    "linear mm": {"kernel": "linear"},
    "linear cccp balance": {"kernel": "linear", "algorithm": "cccp", "balance": 0.1},
}
MATRIX = {"weighted-sum", "gram-blocks", "gram-bank"}


def run(stores, folder, params, memory=LITTLE, events=None, **options):
    place = {"data": str(stores / "a"), "run": str(folder), "extra": {"unlabelled": str(stores / "b")}, "driver_memory": memory}
    return run_method("tri-class-svm", {**TOL, **params}, **place, on_event=None if events is None else events.append, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_every_algorithm_by_passes_finds_the_machine_of_the_matrix(kind, tmp_path):
    X, y, V = draw(constant=False, seed=3)  # of seed 0 the start decides on one row by less than its tolerance
    ingest((X, y), tmp_path / "a")
    ingest(V, tmp_path / "b")
    params, events = KINDS[kind], []
    near = run(tmp_path, tmp_path / "near", params, ENOUGH).summary
    dry = run(tmp_path, tmp_path / "dry", params, dry_run=True).plan
    far = run(tmp_path, tmp_path / "far", params, events=events).summary
    assert far["objective"] == pytest.approx(near["objective"], abs=3e-6 * (1 + near["objective"]))
    assert far["gap"] <= 1e-6 * (1 + far["objective"]) and near["gap"] <= 1e-6 * (1 + near["objective"])
    found, expected = load_model(tmp_path / "far"), load_model(tmp_path / "near")
    np.testing.assert_array_equal(found.assignment_, expected.assignment_)
    np.testing.assert_allclose(found.decision_function(V), expected.decision_function(V), atol=1e-3)
    plans = [event for event in events if event["event"] == "plan"]
    reads, product = ("rows", "row-values") if "linear" in kind else ("blocks", "gram-product")
    assert dry["solver_reads"] == reads and {event["program"] for event in plans}.isdisjoint(MATRIX)
    assert {event["n_tasks"] for event in plans if event["program"] == product} == {dry["tasks_per_pass"]}
    assert max(event["memory_bound"] for event in plans) <= dry["task_bytes"]
    assert dry["driver_bytes"] <= 1 << 20 and len(dry["distributed"]) == (2 if reads == "rows" else 3)
    assert not (tmp_path / "far" / "scratch").exists()


def test_too_little_for_the_vectors_is_refused_before_work(tmp_path):
    X, y, V = draw()
    ingest((X, y), tmp_path / "a")
    ingest(V, tmp_path / "b")
    with pytest.raises(MemoryBoundExceeded, match=r"tri-class-svm: this process would hold .*fewer rows"):
        run(tmp_path, tmp_path / "run", {}, "100KiB")
    assert not (tmp_path / "run").exists()


def test_the_matrix_that_moves_decides_with_that_of_the_rows(tmp_path):
    """Where K alone fits and the copy of doubled rows does not, passes solve; ``mm`` has no such copy."""
    X, y, V = draw()
    ingest((X, y), tmp_path / "a")
    ingest(V, tmp_path / "b")
    plans = {name: run(tmp_path, tmp_path / "run", {"algorithm": name}, "3300KiB", dry_run=True).plan for name in ("mm", "dc")}
    reads = {name: plan["solver_reads"] for name, plan in plans.items()}
    assert reads == {"mm": "matrix", "dc": "blocks"}


def test_estimators_on_two_stores_are_those_on_arrays(tmp_path):
    X, y, V = draw()
    stores = [ingest((X, y), tmp_path / "a"), ingest(V, tmp_path / "b")]
    on_arrays, on_stores = TriClassSVC(**TOL).fit(X, y, V), TriClassSVC(**TOL).fit(stores[0], None, stores[1])
    assert on_stores.objective_ == pytest.approx(on_arrays.objective_, rel=1e-6)
    np.testing.assert_allclose(on_stores.decision_function(V), on_arrays.decision_function(V), atol=1e-5)
