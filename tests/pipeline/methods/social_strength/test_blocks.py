"""Ties of users by blocks: what the matrices give, from features and from sparse similarities; bits, resume, memory, candidates, labels."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import MemoryBoundExceeded, open_executor
from gramplane.kernels.alignment.target_alignment import MatrixSums
from gramplane.kernels.grams.blocks import gram_block
from gramplane.kernels.grams.normalization import KernelSums, Normalization
from gramplane.kernels.grams.spec import as_specs
from gramplane.pipeline import SocialStrengthRanker, load_model, predict_store, resume_run, run_method
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.methods.social_strength import block_pass, tile_pass
from gramplane.pipeline.methods.social_strength.block_pass import BlockViews
from gramplane.pipeline.methods.social_strength.problem import SocialProblem
from gramplane.pipeline.methods.social_strength.tile_pass import TileLayout, similarity_kernels, tile_bytes, view_tiles
from gramplane.pipeline.runs.recommend import use_store
from gramplane.storage import DataError, MemoryBlocks
from gramplane.storage.ingest import ingest
from tests.support.clusters import CommandCluster

SPECS = ["linear[0:12] cosine", "linear[12:24]", "rbf(gamma=0.1)[24:28]", "poly(degree=2)[0:6] centre"]
N = 150


def community(n=N, seed=0):
    """Features of users in three circles, and pairs."""
    rng = np.random.default_rng(seed)
    circle = np.resize(np.arange(3), n)
    counts = rng.poisson(0.4 + 2.0 * (circle[:, None] == np.resize(np.arange(3), 12)))
    X = np.hstack([counts, 1 + rng.poisson(1.0, (n, 12)), rng.normal(size=(n, 4)) + circle[:, None]]).astype(float)
    pairs = np.array([[i, (i + k) % n] for k in (3, 1, 2, 6) for i in range(n)])
    return X, np.column_stack([pairs, circle[pairs[:, 0]] == circle[pairs[:, 1]]]).astype(int), circle


def similarities(n=N, seed=0):
    """Two sparse similarities: items that users share."""
    rng = np.random.default_rng(seed)
    circle = np.resize(np.arange(3), n)
    items = (rng.random((n, 30)) < 0.05 + 0.3 * (circle[:, None] == np.resize(np.arange(3), 30))).astype(float)
    others = (rng.random((n, 50)) < 0.06).astype(float)
    return [sp.csr_array(B) @ sp.csr_array(B).T for B in (items, others)]


@pytest.fixture
def blocks(monkeypatch):
    """No fit has room for matrices of all users, and tiles are of one block."""
    real = SocialProblem.driver_items.fget

    def held(problem):
        found = real(problem)
        return found if problem.by_blocks else ((found[0][0], problem.planned.driver_memory + 1),)

    monkeypatch.setattr(SocialProblem, "driver_items", property(held))


def raw_matrices(X, specs):
    """Normalised kernels, as of whole matrices in float64."""
    K = gram_block(specs, X, None)
    return np.array(
        [Normalization.of(spec, KernelSums.of(G)).apply_block(G, slice(None), slice(None)) for spec, G in zip(specs, K, strict=True)]
    )


@pytest.mark.parametrize("source", ["features", "similarities"])
def test_passes_are_those_of_whole_matrices(source, monkeypatch):
    monkeypatch.setattr(tile_pass, "TALL_BLOCKS", 1)
    if source == "features":
        X, _, _ = community()
        specs = as_specs(SPECS, 28)
        data, raw = MemoryBlocks(sp.csr_array(X)), raw_matrices(X, specs)
    else:
        views = similarities()
        data, raw = MemoryBlocks(sp.csc_array(sp.hstack(views))), np.array([view.toarray() for view in views])
        specs = similarity_kernels(data, "none")
    k, rng = len(raw), np.random.default_rng(1)
    places = rng.integers(0, N, (2, 400))
    with open_executor(None) as executor:
        views = BlockViews(data, Resources(executor), specs)
        assert len(views.tiles) >= 2 and views.block < N
        maxima, sizes, entries = views.survey(places)
        np.testing.assert_allclose(maxima, raw.max(axis=2), rtol=1e-5)
        np.testing.assert_allclose(sizes, np.abs(raw).max(axis=2), rtol=1e-5)
        np.testing.assert_allclose(entries, raw[:, places[0], places[1]], rtol=1e-5, atol=1e-5)
        d = np.where(maxima > 0, 1.0 / np.where(maxima > 0, maxima, 1.0), 0.0)
        halves = raw * 0.5 * (d[:, :, None] + d[:, None, :])
        spectra = np.array([np.linalg.eigvalsh(half) for half in halves])
        least = views.least_eigenvalues(d)
        assert (least <= spectra[:, 0] + 1e-5).all() and (least >= spectra[:, 0] - 1e-4 * spectra[:, -1]).all()
        shifts, mask = np.arange(k) * 0.5, np.arange(N) % 3 != 0
        whole = halves + shifts[:, None, None] * np.eye(N)
        found, expected = views.sums(d, shifts, mask), MatrixSums.of(whole[:, mask][:, :, mask])
        np.testing.assert_allclose(found.products, expected.products, rtol=1e-5)
        np.testing.assert_allclose(found.row_sums[:, mask], expected.row_sums, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.diagonals[:, mask], expected.diagonals, rtol=1e-5, atol=1e-6)
        assert found.count == mask.sum() and not found.row_sums[:, ~mask].any()


def test_a_view_with_equal_row_factors_is_not_searched_and_indeed_has_no_negative_eigenvalue(monkeypatch):
    X, _, _ = community()
    with open_executor(None) as executor:
        views = BlockViews(MemoryBlocks(X), Resources(executor), as_specs(["rbf(gamma=0.1)"], 28))
        monkeypatch.setattr(views, "_search", lambda *_: pytest.fail("searched"))
        near = 1.0 + 0.5 * block_pass.EQUAL_FACTORS * np.random.default_rng(0).random((1, N))
        assert views.least_eigenvalues(near).tolist() == [0.0]
    K = raw_matrices(X, as_specs(["rbf(gamma=0.1)"], 28))[0]
    half = K * 0.5 * (near[0][:, None] + near[0])
    values = np.linalg.eigvalsh(half)
    assert values[0] >= -(block_pass.EQUAL_FACTORS**2) * values[-1]


@pytest.mark.parametrize("params", [{}, {"normalize": "cosine", "weights": "uniform"}, {"normalize": "none", "n_import": 4}], ids=str)
def test_a_fit_by_blocks_is_that_of_matrices(params, blocks, monkeypatch):
    X, table, _ = community()
    specs = SPECS[:3] if params.get("normalize") == "none" else SPECS
    settings = {"C": 0.05, "kernels": specs, "tol": 1e-9, **params}
    there = SocialStrengthRanker(**settings).fit(X, table[:, :2], table[:, 2])
    monkeypatch.undo()
    here = SocialStrengthRanker(**settings).fit(X, table[:, :2], table[:, 2])
    assert there.model_.by_blocks and not here.model_.by_blocks and not there.model_.kernel.size
    np.testing.assert_allclose(there.kernel_weights_, here.kernel_weights_, atol=1e-4)
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-4)
    np.testing.assert_allclose(there.decision_function(table[:, :2]), here.decision_function(table[:, :2]), atol=2e-3)
    users = [0, 7, 149]
    for direct in (False, True):
        np.testing.assert_allclose(there.score_users(users, direct=direct), here.score_users(users, direct=direct), atol=2e-3)


def test_the_plan_has_room_for_the_vectors_of_all_views_that_are_searched_together(blocks, tmp_path):
    X, table, _ = community()
    ingest(X, tmp_path / "users", progress=None)
    steps = {}
    for count in (2, 4):
        plan = start(tmp_path, "run", table, {**PARAMS, "kernels": SPECS[:count]}, dry_run=True).plan
        steps[count] = next(row["bytes"] for row in plan["driver_holds"] if "Lanczos" in row["what"])
    assert steps == {count: 8 * block_pass.LANCZOS_STEPS * N * count for count in (2, 4)}


def test_sparse_similarities_are_those_of_dense_ones():
    views, (_, table, _) = similarities(), community()
    sparse = SocialStrengthRanker(0.05, tol=1e-9).fit(views, table[:, :2], table[:, 2])
    dense = SocialStrengthRanker(0.05, tol=1e-9).fit([view.toarray() for view in views], table[:, :2], table[:, 2])
    assert sparse.model_.by_blocks and sparse.model_.precomputed
    np.testing.assert_allclose(sparse.kernel_weights_, dense.kernel_weights_, atol=1e-4)
    np.testing.assert_allclose(sparse.decision_function(table[:, :2]), dense.decision_function(table[:, :2]), atol=1e-3)
    assert sparse.recommend(3, 5).tolist() == dense.recommend(3, 5).tolist()


def test_a_store_of_similarities_is_fitted_like_their_list(tmp_path):
    views, (X, table, _) = similarities(), community()
    store = ingest(sp.csc_array(sp.hstack(views)), tmp_path / "views", progress=None)
    stored = SocialStrengthRanker(0.05).fit(store, table[:, :2], table[:, 2])
    listed = SocialStrengthRanker(0.05).fit(views, table[:, :2], table[:, 2])
    np.testing.assert_array_equal(stored.score_users([3]), listed.score_users([3]))
    with pytest.raises(ValueError, match="users: kernels='precomputed' needs a sparse store with one column per view and user"):
        SocialStrengthRanker().fit(ingest(X, tmp_path / "users", progress=None), table[:, :2], table[:, 2])


# -- runs --------------------------------------------------------------------------------------------------------------------------

PARAMS = {"kernels": SPECS, "C": 0.05, "tol": 1e-9}


def start(folder, name, table, params=PARAMS, data="users", **options):
    return run_method("social-strength", params, data=str(folder / data), run=str(folder / name), extra={"pairs": table}, **options)


def contents(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted((path / "model").rglob("*")) if file.is_file()}


class Stopped(Exception):
    """What the event sink raises to end a run."""


@pytest.fixture
def users(tmp_path, blocks):
    X, table, circle = community()
    ingest(sp.csr_array(X), tmp_path / "users", progress=None)
    ingest(sp.csc_array(sp.hstack(similarities())), tmp_path / "views", progress=None)
    return tmp_path, table, circle


@pytest.mark.slow
def test_bits_do_not_depend_on_workers_and_a_killed_run_ends_alike(users, monkeypatch):
    # Each is a pass, and the driver takes them.
    monkeypatch.setattr("gramplane.kernels.ranking.user_kernels.LANCZOS_STEPS", 12)
    folder, table, _ = users
    straight = start(folder, "straight", table)
    assert straight.summary["stop"] == "tol"
    plan = start(folder, "dry", table, dry_run=True).plan
    assert plan["scores_on"] == "blocks" and "scores of all pairs" not in json.dumps(plan["driver_holds"])

    def stop(event):
        if event["event"] == "iteration":
            raise Stopped

    with pytest.raises(Stopped):
        start(folder, "killed", table, on_event=stop)
    with CommandCluster(folder, workers=2) as cluster:
        events = []
        start(folder, "there", table, cluster=cluster.config, on_event=events.append)
        passes = [event for event in events if event["event"] == "plan"]
        assert {"view-survey", "view-block-sums", "tops"} <= {event["program"] for event in passes}
        assert [event["n_tasks"] for event in passes if event["program"] == "view-survey"] == [plan["tasks_per_pass"]]
        assert all(event["memory_bound"] <= plan["task_bytes"] for event in passes)
        resume_run(str(folder / "killed"), cluster=cluster.config)
        for name in ("there", "killed"):
            assert contents(folder / name) == contents(folder / "straight")
        use = {"recommend": 4, "out": str(folder / "there.csv"), "cluster": cluster.config}
        use_store(str(folder / "there"), str(folder / "users"), **use)
        labels = ["" if i % 5 else "abc"[i % 3] for i in range(N)]
        use_store(str(folder / "there"), str(folder / "users"), str(folder / "labels-there.npz"), labels=labels, cluster=cluster.config)
    use_store(str(folder / "straight"), str(folder / "users"), str(folder / "here.csv"), recommend=4)
    assert (folder / "there.csv").read_bytes() == (folder / "here.csv").read_bytes()
    use_store(str(folder / "straight"), str(folder / "users"), str(folder / "labels-here.npz"), labels=labels)
    there, here = (np.load(folder / f"labels-{name}.npz")["decision"] for name in ("there", "here"))
    assert there.tobytes() == here.tobytes()


def test_a_run_on_sparse_similarities_and_what_its_model_says(users):
    folder, table, circle = users
    params = {"C": 0.05}
    summary = start(folder, "run", table, params, "views").summary
    machine = load_model(folder / "run")
    views = similarities()
    peer = SocialStrengthRanker(0.05).fit(views, table[:, :2], table[:, 2])
    assert summary["auc"] == pytest.approx(RunView(folder / "run").tables["rankings"][0]["auc"])
    np.testing.assert_array_equal(machine.score_users([3]), peer.score_users([3]))
    found = use_store(str(folder / "run"), str(folder / "views"), str(folder / "best.npz"), recommend=6)
    assert found["rows"] == 6 * N
    best = np.load(folder / "best.npz")
    for user in (0, 77):
        mine = best["user"] == user
        assert best["candidate"][mine].tolist() == machine.recommend(user, 6).tolist() and best["rank"][mine].tolist() == [1, 2, 3, 4, 5, 6]
        np.testing.assert_allclose(best["decision"][mine], machine.score_users([user])[0][best["candidate"][mine]], rtol=1e-12)
    hits = RunView(folder / "run").tables["hits"]
    same = circle[best["candidate"]] == circle[best["user"]]
    assert hits[0]["learnt"] > hits[0]["chance"] and same.mean() > 0.5
    with pytest.raises(ValueError, match="the model was fitted on matrices"):
        predict_store(str(folder / "run"), str(folder / "views"), str(folder / "out.csv"))


class RunView:
    """Tables of a run."""

    def __init__(self, path):
        self.tables = json.loads((path / "tables.json").read_text())


def test_new_users_are_scored_from_the_store_of_the_fit(users):
    folder, table, _ = users
    start(folder, "run", table)
    X, _, _ = community(5, seed=9)
    ingest(X, folder / "fresh", progress=None)
    predict_store(str(folder / "run"), str(folder / "fresh"), str(folder / "out.npz"))
    machine, all_rows = load_model(folder / "run"), community()[0]
    specs = as_specs(SPECS, 28)
    raw = gram_block(specs, X, all_rows)
    diagonals = np.array([gram_block([spec], X, X)[0].diagonal() for spec in specs])
    found = np.load(folder / "out.npz")
    values = np.stack([found[name] for name in sorted(found, key=lambda name: int(name.rpartition("_")[2]))], axis=1)
    np.testing.assert_allclose(values, machine.score_new_users(raw, diagonals), atol=1e-3)


def test_groups_and_labels_by_blocks_are_those_of_matrices(users, monkeypatch):
    folder, table, circle = users
    rng = np.random.default_rng(2)
    members = [[f"g{g}", int(u)] for g in range(12) for u in np.flatnonzero((circle == g % 3) & (rng.random(N) < 0.4))]
    labels = ["" if i % 4 else ["red", "green", "blue"][circle[i]] for i in range(N)]
    start(folder, "blocks", table)
    monkeypatch.undo()
    start(folder, "matrices", table)
    answers = {}
    for name in ("blocks", "matrices"):
        place = str(folder / name), str(folder / "users")
        for score in ("decision", "strength"):
            use_store(*place, str(folder / "groups.npz"), recommend=3, members=members, group_score=score)
            answers[name, score] = dict(np.load(folder / "groups.npz"))
        use_store(*place, str(folder / "labels.npz"), labels=labels)
        answers[name, "labels"] = dict(np.load(folder / "labels.npz"))
    for score in ("decision", "strength"):
        one, other = answers["blocks", score], answers["matrices", score]
        np.testing.assert_allclose(one["decision"], other["decision"], rtol=1e-3, atol=1e-2)
        assert (one["group"] == other["group"]).mean() > 0.98
    one, other = answers["blocks", "labels"], answers["matrices", "labels"]
    np.testing.assert_allclose(one["decision"], other["decision"], atol=1e-4)
    machine = load_model(folder / "matrices")
    memberships = np.zeros((N, 12))
    names = sorted({name for name, _ in members})
    for name, user in members:
        memberships[user, names.index(name)] = 1
    groups = answers["matrices", "decision"]
    mine = groups["group"][groups["user"] == 5].tolist()
    assert mine == [names[g] for g in machine.recommend_groups(5, memberships, 3)]
    assert not {names.index(name) for name in mine} & set(np.flatnonzero(memberships[5]))
    known = np.array([bool(text) for text in labels])
    assert (other["prediction"][known] == np.array(labels)[known]).all()
    estimated = load_model(folder / "blocks").label_users(np.where(known, np.array(labels) == "red", np.nan))
    np.testing.assert_allclose(estimated, one["decision"][:, sorted({"red", "green", "blue"}).index("red")], atol=1e-5)


# -- memory ------------------------------------------------------------------------------------------------------------------------


def test_a_layout_follows_from_the_data_and_is_within_its_bytes():
    for n, d in ((100_000, 600), (3000, 10)):
        data = MemoryBlocks(np.zeros((1, 1)))
        data.meta = replace(data.meta, n_rows=n, n_cols=d)
        layout = view_tiles(data, as_specs(["linear", "rbf(gamma=1)"], d))[0].layout
        assert layout == TileLayout.of(data, 2)
        assert layout.tall % layout.edge == 0 and layout.wide % layout.tall == 0
        assert layout.wide * layout.row_bytes <= tile_pass.READ_BYTES or layout.wide == layout.tall
        tiles = view_tiles(data, as_specs(["linear", "rbf(gamma=1)"], d))
        assert len(tiles) >= 16 and max(map(tile_bytes, tiles)) < 192 << 20


def test_beyond_the_memory_it_is_refused_and_so_is_what_needs_the_matrix(tmp_path):
    X, table, _ = community()
    ingest(X, tmp_path / "users", progress=None)
    with pytest.raises(MemoryBoundExceeded, match=r"social-strength: .*fewer users, pairs or views"):
        start(tmp_path, "run", table, driver_memory="100KiB", dry_run=True)
    with pytest.raises(MemoryBoundExceeded, match="or pair_kernel='similarity', which goes by blocks"):
        start(tmp_path, "run", table, {**PARAMS, "pair_kernel": "tensor"}, driver_memory="100KiB", dry_run=True)
    views = similarities()
    with pytest.raises(ValueError, match="sparse similarities are read block by block, which needs pair_kernel='similarity'"):
        SocialStrengthRanker(pair_kernel="tensor").fit(views, table[:, :2], table[:, 2])


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda V: V[1].__setitem__((3, 4), 9.0), "view 1 is not symmetric"),
        (lambda V: V[0].__setitem__((3, 3), np.nan), "view 0 holds NaN or infinity"),
    ],
)
def test_sparse_similarities_that_are_none_are_named(spoil, told):
    views, (_, table, _) = [view.tolil() for view in similarities()], community()
    spoil(views)
    with pytest.raises(ValueError, match=told):
        SocialStrengthRanker().fit(views, table[:, :2], table[:, 2])


def test_sparse_similarities_have_one_size_and_one_form():
    _, table, _ = community()
    with pytest.raises(ValueError, match=r"view 1 has shape \(3, 3\); all sparse similarities must be \(n_users, n_users\)"):
        SocialStrengthRanker().fit([similarities()[0], sp.eye_array(3)], table[:, :2], table[:, 2])
    with pytest.raises(ValueError, match="view 1 is dense and others are sparse; give all views in one form"):
        SocialStrengthRanker().fit([similarities()[0], np.eye(N)], table[:, :2], table[:, 2])


def test_a_store_of_similarities_that_are_none_is_refused(tmp_path):
    _, table, _ = community()
    views = [view.tolil() for view in similarities()]
    views[1][5, 9] += 3.0
    ingest(sp.csc_array(sp.hstack(views)), tmp_path / "views", progress=None)
    with pytest.raises(Exception, match="view 1 is not symmetric"):
        start(tmp_path, "run", table, {}, "views")
    indefinite = sp.csc_array(-sp.eye_array(N) + 0.5 * views[0])
    ingest(indefinite, tmp_path / "indefinite", progress=None)
    with pytest.raises(DataError, match="view 0 is not positive semi-definite"):
        start(tmp_path, "run2", table, {"normalize": "none"}, "indefinite")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, "give exactly one of the two"),
        ({"recommend": 2, "labels": ["a"] * N}, "give exactly one of the two"),
        ({"recommend": 0}, "recommend=0: must be at least 1"),
        ({"labels": ["a"] * 3}, f"labels has 3 entries, but .* has {N} users"),
        ({"labels": ["a"] * N}, "labels: at least two different labels are needed, found 1"),
    ],
)
def test_questions_that_are_none(asked, told, users):
    folder, table, _ = users
    start(folder, "run", table, {**PARAMS, "kernels": ["linear[0:12]"]})
    with pytest.raises(ValueError, match=told):
        use_store(str(folder / "run"), str(folder / "users"), str(folder / "out.npz"), **asked)
    with pytest.raises(DataError, match="these are not the users of the fit"):
        use_store(str(folder / "run"), str(folder / "views"), str(folder / "out.npz"), recommend=2)
    with pytest.raises(ValueError, match=r"the file extension must be one of \.npz, \.csv, \.parquet"):
        use_store(str(folder / "run"), str(folder / "users"), str(folder / "out.zarr"), recommend=2)
    with pytest.raises(MemoryBoundExceeded, match=r"predict: .*candidates of all users"):
        use_store(str(folder / "run"), str(folder / "users"), str(folder / "out.npz"), recommend=2, driver_memory="1KiB")
