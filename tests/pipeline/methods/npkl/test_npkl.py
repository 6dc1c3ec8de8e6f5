"""SimpleNPKL: certificates, forms of constraints and data, selection, bases, clusters, runs, resume, the neighbour pass, bad input."""

import json
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_set_params,
)

from gramplane.cluster import MemorySink, open_executor
from gramplane.kernels.spectral import dual_ascent as spectral_dual
from gramplane.kernels.spectral import problem as spectral_problem
from gramplane.kernels.spectral.neighbors import nearest_rows, smooth_basis
from gramplane.kernels.spectral.problem import close_pairs, margins, pair_constraints, select_uncertain_pairs
from gramplane.pipeline import load_model, predict_store, run_method, score_store
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams import neighbours as neighbour_pass
from gramplane.pipeline.grams.neighbours import nearest_neighbours
from gramplane.pipeline.methods.npkl.estimator import SimpleNPKL
from gramplane.pipeline.methods.npkl.problem import gaussian_at
from gramplane.storage import MemoryBlocks
from gramplane.storage.ingest import ingest
from tests.support.oracles import npkl as oracle

SHARP = {"loss": "squared_hinge", "B": 40.0, "C": 0.4}


def groups(seed=0, n=40, d=3):
    """Rows of two groups, and pairs of rows with their sign."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, d)) + 1.5 * y[:, None]
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    chosen = [pairs[e] for e in np.sort(rng.choice(len(pairs), n, replace=False))]
    return X, y, np.array([(i, j, 1 if y[i] == y[j] else -1) for i, j in chosen])


def graph_of(X, k, kind="mutual"):
    ids = oracle.neighbours(X, k)
    links = np.zeros((len(X), len(X)))
    links[np.repeat(np.arange(len(X)), k), ids.ravel()] = 1
    return np.minimum(links, links.T) if kind == "mutual" else np.maximum(links, links.T)


def signs_of(triples, n):
    T = np.zeros((n, n))
    for i, j, sign in triples:
        T[i, j] = T[j, i] = sign
    return T


@pytest.fixture(autouse=True)
def _isolated_rows_are_told():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*have no neighbour in the graph")
        yield


# --- the problem that is solved ---------------------------------------------------------------------------------------------------


PARAMS = [{}, {"G": 0.5}, {"p": 1.0}, {"p": 3.0}, SHARP, {**SHARP, "loss": "hinge"}, {**SHARP, "loss": "square", "p": 1.5}]


@pytest.mark.parametrize("graph", ["mutual", "union"])
@pytest.mark.parametrize("params", PARAMS)
def test_objective_and_gap_are_those_of_the_definition(graph, params):
    X, _, triples = groups()
    found = SimpleNPKL(graph=graph, n_neighbors=4, **{"C": 0.3, **params}).fit(X, triples)
    L, T, K = oracle.laplacian(graph_of(X, 4, graph)), signs_of(triples, 40), found.kernel_block()
    value = oracle.objective(K, L, T, found.loss, found.C, found.p, found.G)
    assert found.objective_ == pytest.approx(value, abs=1e-8)
    assert 0 <= found.dual_gap_ <= 1.0001e-4 * abs(value) + 1e-12
    assert found.converged_
    np.testing.assert_allclose(found.eigenvectors_.T @ found.eigenvectors_, np.eye(len(found.eigenvalues_)), atol=1e-8)
    assert (np.diff(found.eigenvalues_) <= 1e-12).all()
    if found.G is None:
        assert np.sum(found.eigenvalues_**found.p) <= found.B * (1 + 1e-9)
    gaps = found.history_["gap"]
    assert gaps[-1] == pytest.approx(found.dual_gap_, abs=1e-9 * abs(value))
    assert (np.diff(found.history_["objective"]) <= 1e-12).all()
    np.testing.assert_allclose(
        found.kernel_block([3, 1], slice(5, 8)), K[[3, 1]][:, 5:8], rtol=0, atol=1e-13 * float(found.eigenvalues_[0])
    )


def test_forms_of_constraints_and_of_data_give_one_kernel(tmp_path):
    X, _, triples = groups(1)
    base = SimpleNPKL(**SHARP).fit(X, triples)
    T = signs_of(triples, 40)
    shuffled = np.vstack([triples[::-1], triples[:5], triples[:5][:, [1, 0, 2]]])
    for given in (sp.csr_array(T), sp.csc_matrix(np.triu(T)), sp.coo_array(np.tril(T)), shuffled, [tuple(t) for t in triples.tolist()]):
        np.testing.assert_array_equal(SimpleNPKL(**SHARP).fit(X, given).eigenvalues_, base.eigenvalues_)
    store = ingest(X, tmp_path / "data.zarr")
    for data in (sp.csr_array(X), np.asfortranarray(X), store, store.url):
        other = SimpleNPKL(**SHARP).fit(data, triples)
        np.testing.assert_array_equal(other.kernel_block(), base.kernel_block())
    np.testing.assert_array_equal(base.constraints_, np.array(sorted(map(tuple, triples.tolist()))))


def test_permuted_rows_have_the_permuted_kernel():
    X, _, triples = groups(2)
    order = np.random.default_rng(0).permutation(40)
    back = np.argsort(order)
    moved = np.stack([back[triples[:, 0]], back[triples[:, 1]], triples[:, 2]], axis=1)
    for params in ({"C": 0.3}, {**SHARP, "tol": 1e-9}):
        a, b = SimpleNPKL(**params).fit(X, triples), SimpleNPKL(**params).fit(X[order], moved)
        assert a.objective_ == pytest.approx(b.objective_, rel=1e-7)
        np.testing.assert_allclose(b.kernel_block(), a.kernel_block()[np.ix_(order, order)], atol=1e-3)


def test_the_cap_scales_the_kernel_and_changes_no_cluster():
    X, _, triples = groups(3)
    one, other = SimpleNPKL(C=0.3).fit(X, triples), SimpleNPKL(C=0.3, B=9.0).fit(X, triples)
    np.testing.assert_allclose(other.kernel_block(), 3.0 * one.kernel_block(), atol=1e-10)
    assert rand_score(one.cluster(2), other.cluster(2)) == 1.0


def test_constraints_make_clusters_that_the_features_do_not_have():
    X, y, triples = groups(4, n=60)
    noise = np.random.default_rng(0).normal(size=(60, 1)) * 6
    wide = np.hstack([X, noise])
    plain = KMeans(2, n_init=10, random_state=0).fit_predict(wide)
    learnt = SimpleNPKL(C=0.4, loss="squared_hinge", B=60.0).fit(wide, triples)
    assert rand_score(learnt.cluster(2), y) > rand_score(plain, y) + 0.1
    np.testing.assert_array_equal(learnt.labels_, learnt.cluster(2))
    np.testing.assert_array_equal(SimpleNPKL(C=0.4, loss="squared_hinge", B=60.0).fit_predict(wide, triples), learnt.labels_)


def test_clusters_of_directions_are_k_means_on_the_cosine_kernel():
    X, _, triples = groups(11)
    found = SimpleNPKL(C=0.3, graph="union").fit(X, triples)
    K = found.kernel_block()
    cosine = K / np.sqrt(np.outer(np.diag(K), np.diag(K)))
    values, vectors = np.linalg.eigh(cosine)
    expected = KMeans(2, n_init=10, random_state=0).fit_predict(vectors * np.sqrt(np.maximum(values, 0)))
    assert rand_score(found.cluster(2), expected) == 1.0
    plain = KMeans(2, n_init=10, random_state=0).fit_predict(found.eigenvectors_ * np.sqrt(found.eigenvalues_))
    assert rand_score(found.cluster(2, normalize=False), plain) == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_defaults_find_two_far_blobs_from_ten_pairs(seed):
    rng = np.random.default_rng(seed)
    X, y = np.r_[rng.standard_normal((20, 2)), rng.standard_normal((20, 2)) + 6], np.repeat([0, 1], 20)
    pairs = np.unique(np.sort(rng.integers(0, 40, (10, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    clusters = SimpleNPKL().fit(X, np.c_[pairs, np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1)]).cluster(2)
    assert rand_score(clusters, y) == 1.0


# --- selection and bases ----------------------------------------------------------------------------------------------------------


def test_active_selection_keeps_the_pairs_of_the_least_certain_rows():
    T = pair_constraints([(2, 3, 1), (0, 1, 1), (1, 2, -1), (0, 4, -1)], 6)
    assert T.triples().tolist() == [[0, 1, 1], [0, 4, -1], [1, 2, -1], [2, 3, 1]]
    entries = np.array([0.9, 0.2, 0.8, 0.1])
    np.testing.assert_allclose(margins(T, entries), [0.7 / 2, 0.1 / 2, 0.7 / 2, 0.1, 0.2, np.inf])
    assert select_uncertain_pairs(T, entries, 1).triples().tolist() == [[0, 1, 1], [1, 2, -1]]  # row 1 has the least margin
    assert select_uncertain_pairs(T, entries, 6).size == 4


def test_selections_of_a_fit():
    X, _, triples = groups(5)
    active = SimpleNPKL(C=0.3, selection="active", n_select=4).fit(X, triples)
    drawn = SimpleNPKL(C=0.3, selection="random", n_select=4, random_state=3).fit(X, triples)
    T = pair_constraints(triples, 40)
    with open_executor(None) as executor:
        entries = gaussian_at(MemoryBlocks(X), Resources(executor), T, np.random.default_rng(0))
    least = np.lexsort((np.arange(40), margins(T, entries)))[:4]
    expected = [t for t in T.triples().tolist() if t[0] in least or t[1] in least]
    assert active.constraints_.tolist() == expected
    assert len(drawn.constraints_) == len(expected) < len(triples)
    assert drawn.constraints_.tolist() != expected
    assert {tuple(t) for t in drawn.constraints_} <= {tuple(t) for t in T.triples()}
    again = SimpleNPKL(C=0.3, selection="random", n_select=4, random_state=3).fit(X, triples)
    np.testing.assert_array_equal(again.eigenvalues_, drawn.eigenvalues_)
    everything = SimpleNPKL(C=0.3, selection="active", n_select=40).fit(X, triples)
    np.testing.assert_array_equal(everything.kernel_block(), SimpleNPKL(C=0.3).fit(X, triples).kernel_block())


@pytest.mark.parametrize("params", [{"C": 0.3}, SHARP])
def test_a_low_rank_base(params):
    X, _, triples = groups(6)
    low = SimpleNPKL(base=6, graph="union", **params).fit(X, triples)
    full = SimpleNPKL(base=40, graph="union", **params).fit(X, triples)
    free = SimpleNPKL(graph="union", **params).fit(X, triples)
    assert len(low.eigenvalues_) <= 6
    assert low.objective_ >= free.objective_ - 1e-4 * abs(free.objective_)
    assert full.objective_ == pytest.approx(free.objective_, rel=2e-4)
    L = oracle.laplacian(graph_of(X, 5, "union"))
    V = np.linalg.eigh(L)[1][:, :6]
    np.testing.assert_allclose(V @ (V.T @ low.eigenvectors_), low.eigenvectors_, atol=1e-6)


def test_the_least_eigenvectors_of_a_large_graph(monkeypatch):
    L = sp.csr_array(oracle.laplacian(graph_of(groups(7)[0], 5, "union")))
    dense = smooth_basis(L, 5)
    monkeypatch.setattr("gramplane.kernels.spectral.neighbors.MAX_DENSE_BASIS_ROWS", 10)
    sparse = smooth_basis(L, 5)
    np.testing.assert_allclose(sparse @ sparse.T, dense @ dense.T, atol=1e-7)


# --- the pass over neighbours -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numbers", "bits", "sparse"])
def test_the_pass_has_the_bits_of_the_search_in_memory(kind, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    X = {"numbers": rng.normal(size=(90, 4)), "bits": rng.integers(0, 2, (90, 20)), "sparse": rng.integers(0, 3, (90, 8))}[kind].astype(
        float
    )
    given = sp.csr_array(X) if kind == "sparse" else X
    whole = nearest_rows(X, 6)
    store = ingest(given, tmp_path / "data.zarr")
    with open_executor(None) as executor:
        for rows, limit in ((4096, 32 << 20), (17, 8 * 20 * 17), (32, 8 * X.shape[1] * 64)):
            monkeypatch.setattr(neighbour_pass, "ROWS", rows)
            monkeypatch.setattr(neighbour_pass, "CANDIDATE_BYTES", limit)
            for data in (MemoryBlocks(given), store):
                found = nearest_neighbours(data, Resources(executor), 6)
                np.testing.assert_array_equal(found.ids, whole.ids)
                np.testing.assert_array_equal(found.squares, whole.squares)


@pytest.mark.parametrize(("n", "d", "k"), [(1000, 3, 400), (3000, 100, 5)])
def test_a_search_takes_no_more_than_its_plan(n, d, k):
    """Many neighbours weigh more than the rows that they are looked for among."""
    data, events = MemoryBlocks(np.random.default_rng(0).normal(size=(n, d))), MemorySink()
    with open_executor(None, events=events) as executor:
        nearest_neighbours(data, Resources(executor), k)
    plan = neighbour_pass.plan_neighbours(data, k)
    (told,) = events.named("plan")
    assert (plan["tasks_per_pass"], plan["task_bytes"]) == (told["n_tasks"], told["memory_bound"])
    tracemalloc.start()
    neighbour_pass.nearest_chunk(neighbour_pass.candidates(data)[0], k)
    taken, planned = tracemalloc.get_traced_memory()[1], plan["task_bytes"] - neighbour_pass.FREED_BYTES
    tracemalloc.stop()
    assert taken <= planned <= 3 * taken


def test_merging_the_lists_of_all_rows_takes_no_more_than_its_plan(monkeypatch):
    """Among many small tasks, the lists of all rows are what weighs."""
    for name, value in (("ROWS", 50), ("CANDIDATE_BYTES", 0), ("FREED_BYTES", 0)):
        monkeypatch.setattr(neighbour_pass, name, value)
    data, k = MemoryBlocks(np.random.default_rng(0).normal(size=(600, 3))), 60
    with open_executor(None) as executor:
        nearest_neighbours(data, Resources(executor), k)
        tracemalloc.start()
        nearest_neighbours(data, Resources(executor), k)
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert taken <= neighbour_pass.plan_neighbours(data, k)["task_bytes"] <= 3 * taken


# --- runs -------------------------------------------------------------------------------------------------------------------------


def test_a_run_is_the_fit_and_its_model_comes_back(tmp_path):
    X, y, triples = groups(9)
    store = ingest((X, np.where(y, "b", "a")), tmp_path / "data.zarr", scale="standard")
    run = str(tmp_path / "run")
    outcome = run_method("npkl", SHARP, data=store.url, run=run, extra={"constraints": triples})
    peer, loaded = SimpleNPKL(**SHARP).fit(store, triples), load_model(run)
    np.testing.assert_array_equal(loaded.kernel_block(), peer.kernel_block())
    np.testing.assert_array_equal(loaded.cluster(2), peer.cluster(2))
    assert outcome.summary["objective"] == peer.objective_ == loaded.objective_
    assert outcome.summary["certified_over"] == "all kernel matrices"
    assert outcome.summary["constraints"] == 40
    tables = json.loads((tmp_path / "run" / "tables.json").read_text())
    entries = signs_of(triples, 40) * peer.kernel_block()
    assert sum(row["satisfied"] for row in tables["constraints"]) == np.sum(np.triu(entries) > 0) == outcome.summary["satisfied"]
    assert [row["eigenvalue"] for row in tables["spectrum"]] == peer.eigenvalues_.tolist()
    done = predict_store(run, store.url, str(tmp_path / "map.npz"))
    assert done["columns"] == len(peer.eigenvalues_)
    first = np.load(tmp_path / "map.npz")["component_0"]
    np.testing.assert_array_equal(first, peer.eigenvectors_[:, 0] * np.sqrt(peer.eigenvalues_[0]))
    other = ingest(X[:20], tmp_path / "other.zarr")
    assert predict_store(run, other.url, str(tmp_path / "other.npz"))["rows"] == 20
    np.testing.assert_array_equal(np.load(tmp_path / "other.npz")["component_0"], loaded.transform(X[:20])[:, 0])
    with pytest.raises(ValueError, match="nothing to score"):
        score_store(run, store.url)
    plan = run_method("npkl", SHARP, data=store.url, run=str(tmp_path / "plan"), extra={"constraints": triples}, dry_run=True).plan
    assert plan is not None
    assert plan["constraints"] == 40
    assert plan["tasks_per_pass"] == 1


@pytest.mark.parametrize("n", [40, 150])
def test_the_linear_loss_decomposes_once(n, monkeypatch):
    """The closed form's kernel is that of the only evaluation there is, in an estimator and in a run."""
    X, _, triples = groups(4, n=n)
    calls, plain = [], spectral_problem.positive_part
    monkeypatch.setattr(spectral_problem, "positive_part", lambda *args, **options: calls.append(1) or plain(*args, **options))
    found = SimpleNPKL(loss="linear").fit(X, triples)
    assert len(calls) == 1 and found.n_iter_ == 1
    # A loop that did not do the step, as after a resume, has the same kernel.
    monkeypatch.setattr(spectral_dual.Evaluator, "__call__", lambda _, *args, **options: spectral_problem.evaluate(*args, **options))
    again = SimpleNPKL(loss="linear").fit(X, triples)
    assert len(calls) == 3 and again.kernel_block().tobytes() == found.kernel_block().tobytes()


# --- what is told -----------------------------------------------------------------------------------------------------------------


def test_rows_without_a_neighbour_are_counted():
    X = np.vstack([groups()[0], [[100.0, 0, 0], [0, -100.0, 0]]])
    triples = np.vstack([groups()[2], [[0, 40, 1]]])
    links = graph_of(X, 5)
    alone = np.flatnonzero(links.sum(axis=1) == 0)
    assert {40, 41} <= set(alone.tolist())
    lonely = len(set(alone.tolist()) - set(triples[:, :2].ravel().tolist()))
    assert lonely < min(len(alone), 42 - len(set(triples[:, :2].ravel().tolist())))
    with pytest.warns(UserWarning, match=f"{len(alone)} of 42 rows have no neighbour in the graph, {lonely} of these have no constraint"):
        found = SimpleNPKL(C=0.3, graph="mutual").fit(X, triples)
    K = found.kernel_block()
    assert not K[41].any()
    assert K[40].any()


def test_a_kernel_of_zero_and_an_idle_cap_are_told():
    X, _, triples = groups()
    with pytest.warns(UserWarning, match="the kernel is zero: .*raise C"):
        found = SimpleNPKL(C=1e-6, graph="union").fit(X, [(i, j, -1) for i, j, _ in triples.tolist()])
    assert found.eigenvectors_.shape == (40, 0)
    assert not found.kernel_block().any()
    with pytest.raises(ValueError, match="the learnt kernel is zero"):
        found.cluster(2)
    with pytest.warns(UserWarning, match="the cap B is not active"):
        SimpleNPKL(loss="square", C=2.0, B=1e5, tol=1e-3, max_iter=2000).fit(X[:12], [(0, 1, 1), (2, 3, -1), (4, 5, 1)])


def test_the_limit_of_decompositions_warns_with_the_gap():
    X, _, triples = groups()
    with pytest.warns(ConvergenceWarning, match="max_iter=2 ended the fit at a duality gap of"):
        found = SimpleNPKL(**SHARP, tol=1e-9, max_iter=2).fit(X, triples)
    assert not found.converged_
    assert found.n_iter_ == 2


# --- bad input --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (None, "constraints: none are given"),
        ([], "constraints: no pair is given"),
        ([(0, 1)], r"shape \(1, 2\); must be \(m, 3\)"),
        ([(0, 1, 2)], r"the pair \(0, 1\) has the sign 2; must be \+1"),
        ([(0, 1, 0)], r"the pair \(0, 1\) has the sign 0"),
        ([(0, 40, 1)], r"the pair \(0, 40\) names a row outside 0 ... 39"),
        ([(-1, 3, 1)], r"the pair \(-1, 3\) names a row outside"),
        ([(2, 2, 1)], r"the pair \(2, 2\) pairs a row with itself"),
        ([(0, 1, 1), (3, 4, 1), (1, 0, -1)], r"the pair \(0, 1\) is given with both signs"),
        ([(0.5, 1, 1)], r"triple 0 names the rows \[0.5, 1.0\]; must be whole numbers"),
        ([(0, 1, np.nan)], "has the sign nan"),
        ("abc", "must be a sparse matrix of"),
        (sp.eye_array(3), r"a matrix of shape \(3, 3\); must be \(40, 40\)"),
        (sp.coo_array(([1.0, -1.0], ([0, 1], [1, 0])), shape=(40, 40)), "with both signs"),
        (sp.coo_array(([2.0], ([0], [1])), shape=(40, 40)), "has the sign 2"),
    ],
)
def test_bad_constraints_are_named(constraints, message):
    with pytest.raises(ValueError, match=message):
        SimpleNPKL().fit(groups()[0], constraints)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"C": 0.0}, "C=0.0: .*greater than 0"),
        ({"p": 0.5}, "p=0.5: .*at least 1"),
        ({"p": 1.0, "loss": "hinge"}, "p=1: needs loss='linear', not 'hinge'"),
        ({"p": 1.0, "G": 1.0}, "p=1: needs the cap B"),
        ({"B": -1.0}, "B=-1.0"),
        ({"loss": "cubic"}, "loss='cubic'"),
        ({"graph": "both"}, "graph='both'"),
        ({"selection": "best"}, "selection='best'"),
        ({"n_select": 3}, "n_select=3: needs selection"),
        ({"base": 41}, "base=41: must be at most the number of rows, 40"),
        ({"n_neighbors": 0}, "n_neighbors=0"),
        ({"tol": 0.0}, "tol=0.0"),
    ],
)
def test_bad_parameters_are_named(params, message):
    X, _, triples = groups()
    with pytest.raises(ValueError, match=message):
        SimpleNPKL(**params).fit(X, triples)


def test_bad_data_and_bad_calls(tmp_path):
    X, _, triples = groups()
    with pytest.raises(ValueError, match="NaN"):
        SimpleNPKL().fit(np.full((5, 2), np.nan), [(0, 1, 1)])
    with pytest.raises(ValueError, match="n_samples=1"):
        SimpleNPKL().fit(np.ones((1, 2)), [(0, 1, 1)])
    with pytest.raises(ValueError, match="npkl takes rows of numeric features; these data are strings"):
        SimpleNPKL().fit(["ab", "cd"], [(0, 1, 1)])
    with pytest.warns(UserWarning, match="n_neighbors=5 exceeds the 3 other rows"):
        SimpleNPKL().fit(X[:4], [(0, 1, 1)])
    with pytest.raises(NotFittedError):
        SimpleNPKL().cluster(2)
    found = SimpleNPKL(C=0.3).fit(X, triples)
    for bad in (0, 41, 2.5, True):
        with pytest.raises(ValueError, match=f"n_clusters={bad!r}: must be a whole number from 1 to the number of rows, 40"):
            found.cluster(bad)
    store = ingest(X[:4], tmp_path / "data.zarr")
    with pytest.raises(ValueError, match="n_neighbors=5 exceeds the 3 other rows"):
        run_method("npkl", {}, data=store.url, run=str(tmp_path / "run"), extra={"constraints": [[0, 1, 1]]})


def test_the_contract_of_estimators():
    found = SimpleNPKL(C=0.3, loss="hinge")
    for check in (check_get_params_invariance, check_set_params, check_no_attributes_set_in_init, check_parameters_default_constructible):
        check("SimpleNPKL", found)
    assert clone(found).get_params() == found.get_params()
    X, _, triples = groups()
    piped = make_pipeline(StandardScaler(), SimpleNPKL(C=0.3)).fit(X, triples)
    direct = SimpleNPKL(C=0.3).fit(StandardScaler().fit_transform(X), triples)
    np.testing.assert_array_equal(piped[-1].kernel_block(), direct.kernel_block())


def test_implied_pairs_are_those_of_parts():
    T = pair_constraints([(0, 3, 1), (3, 5, 1), (1, 2, 1), (2, 5, -1), (4, 0, -1)], 8)
    found = {(i, j): sign for i, j, sign in close_pairs(T).triples().tolist()}
    together, apart = [(0, 3), (0, 5), (3, 5), (1, 2)], [(0, 1), (0, 2), (1, 3), (2, 3), (1, 5), (2, 5), (0, 4), (3, 4), (4, 5)]
    assert found == {**dict.fromkeys(together, 1), **dict.fromkeys(apart, -1)}
    assert np.array_equal(close_pairs(close_pairs(T)).triples(), close_pairs(T).triples())


def test_implied_pairs_by_the_labels_they_came_from():
    rng = np.random.default_rng(2)
    y, pairs = rng.integers(0, 3, 30), rng.permutation(30)[:20].reshape(-1, 2)
    T = pair_constraints([(i, j, 1 if y[i] == y[j] else -1) for i, j in pairs.tolist()] + [(0, 1, 1 if y[0] == y[1] else -1)], 30)
    assert all((y[i] == y[j]) == (sign > 0) for i, j, sign in close_pairs(T).triples().tolist())


def test_implied_pairs_that_contradict_are_refused():
    X = np.random.default_rng(0).normal(size=(8, 2))
    torn = [(0, 1, 1), (1, 2, 1), (0, 2, -1)]
    SimpleNPKL(C=0.2, graph="union").fit(X, torn)
    with pytest.raises(ValueError, match="rows 0 and 2 have the sign -1, but a chain of pairs"):
        SimpleNPKL(C=0.2, graph="union", closure=True).fit(X, torn)


def test_a_closure_is_a_fit_to_all_implied_pairs():
    X = np.random.default_rng(1).normal(size=(20, 3))
    few = [(0, 1, 1), (1, 2, 1), (3, 4, 1), (2, 4, -1)]
    closure = SimpleNPKL(C=0.3, graph="union", closure=True).fit(X, few)
    whole = SimpleNPKL(C=0.3, graph="union").fit(X, close_pairs(pair_constraints(few, 20)).triples())
    assert np.array_equal(closure.eigenvectors_, whole.eigenvectors_) and len(closure.constraints_) == 10
