"""SemanticKernelRanker, VisualRank: what is scored, its certificate, invariances, resume, unseen images, bad input, scikit-learn."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from gramplane.cluster import MemoryBoundExceeded, open_executor
from gramplane.kernels.ranking.pair_ranking import graph_laplacian
from gramplane.kernels.ranking.random_walk import top_precision
from gramplane.pipeline.core.engine import iterate
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.methods.semantic_ranker.config import RankerConfig
from gramplane.pipeline.methods.semantic_ranker.estimator import SemanticKernelRanker, VisualRank
from gramplane.pipeline.methods.semantic_ranker.method import Ranker
from gramplane.pipeline.methods.semantic_ranker.model import RankerModel
from gramplane.pipeline.methods.semantic_ranker.problem import RankerInputs
from gramplane.pipeline.synthetic.images import planted_images
from gramplane.storage import MemoryBlocks, RunStore, read_model, write_model
from gramplane.storage.ingest import ingest
from tests.support.oracles import ranking as oracle


def query(n=36, seed=0):
    return planted_images(n, seed=seed, n_scattered=8)


def lists(tags):
    return [[f"tag{j:02d}" for j in np.flatnonzero(row)] for row in tags]


# --- what is computed -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"graph": "union", "diagonal": "keep"}, {"B": 300.0, "C": 0.3}])
@pytest.mark.parametrize("seed", range(2))
def test_scores_are_those_of_the_definition(seed, options):
    q = query(seed=seed)
    found = SemanticKernelRanker(n_neighbors=4, tol=1e-7, **options).fit(q.X, lists(q.tags))
    pairs, d = oracle.mutual_pairs(q.X, 4, union="graph" in options)
    np.testing.assert_array_equal(found.pairs_, pairs)
    d2 = d[pairs[:, 0], pairs[:, 1]] / (d.sum() / (36 * 35))
    M, C, B = oracle.target(oracle.tf_idf(lists(q.tags))), options.get("C", 1.0), options.get("B", 36.0)
    K = found.kernel_block()
    assert oracle.objective(K, M, pairs, d2, C) == pytest.approx(found.objective_, rel=1e-7)
    lower = oracle.dual_value(found.dual_coef_, M, pairs, d2, C, B)
    assert found.objective_ - lower == pytest.approx(found.dual_gap_, abs=1e-10 * abs(lower))
    assert -1e-12 <= found.dual_gap_ <= 1e-7 * abs(found.objective_)
    assert np.sum(K * K) <= B * (1 + 1e-9)
    S = oracle.stochastic(K, found.diagonal == "keep")
    np.testing.assert_allclose(found.scores_, oracle.walk(S, np.full(36, 1 / 36), 0.85), atol=1e-9)
    assert found.scores_.sum() == pytest.approx(1.0, abs=1e-12)


def test_the_kernel_is_semidefinite_and_has_sum_zero():
    q = query()
    found = SemanticKernelRanker().fit(q.X, q.tags)
    K = found.kernel_block()
    np.testing.assert_allclose(K.sum(axis=0), 0.0, atol=1e-11)
    assert np.linalg.eigvalsh(K)[0] > -1e-11
    assert np.sum(K * K) == pytest.approx(36.0)
    np.testing.assert_allclose((found.eigenvectors_ * found.eigenvalues_) @ found.eigenvectors_.T, K, atol=1e-12)
    assert (found.dual_coef_ >= 0).all()
    assert 0 < np.count_nonzero(found.dual_coef_) < len(found.pairs_)


def test_the_objective_and_the_gap_fall():
    q = query(60)
    found = SemanticKernelRanker(tol=1e-8).fit(q.X, q.tags)
    assert found.converged_
    assert (np.diff(found.history_["objective"]) <= 1e-9).all()
    assert found.history_["relative_gap"][-1] <= 1e-8
    assert found.history_["objective"][-1] == found.objective_
    assert found.n_iter_ == len(found.history_["iteration"])


def test_a_base_restricts_the_kernel():
    q = query(60)
    full = SemanticKernelRanker(tol=1e-7).fit(q.X, q.tags)
    objectives = []
    for r in (5, 20, 59):
        found = SemanticKernelRanker(base=r, tol=1e-7).fit(q.X, q.tags)
        assert len(found.eigenvalues_) <= r
        np.testing.assert_allclose(found.kernel_block().sum(axis=0), 0.0, atol=1e-10)
        assert found.dual_gap_ <= 1e-6 * abs(found.objective_)
        objectives.append(found.objective_)
    assert objectives[0] > objectives[1] > full.objective_
    # On all functions of sum zero it is the whole problem.
    whole = SemanticKernelRanker(base=60, tol=1e-7).fit(q.X, q.tags)
    assert whole.objective_ == pytest.approx(full.objective_, rel=1e-6)
    np.testing.assert_allclose(whole.scores_, full.scores_, atol=1e-4)


def test_a_cap_that_does_not_bind_is_certified_too():
    q = query(20)
    found = SemanticKernelRanker(B=1e3, graph="union", tol=1e-3, max_iter=1000).fit(q.X, q.tags)
    K = found.kernel_block()
    assert np.sum(K * K) < 200
    assert found.model_.figures["cap_used"] < 0.2
    assert found.converged_
    pairs, d = oracle.mutual_pairs(q.X, 6, union=True)
    d2 = d[pairs[:, 0], pairs[:, 1]] / (d.sum() / (20 * 19))
    assert oracle.objective(K, oracle.target(oracle.tf_idf(lists(q.tags))), pairs, d2, 1.0) == pytest.approx(found.objective_, rel=1e-6)


# --- invariances ------------------------------------------------------------------------------------------------------------------


def test_order_unit_and_origin_of_images_do_not_matter():
    q = query()
    base = SemanticKernelRanker(tol=1e-8).fit(q.X, q.tags)
    order = np.random.default_rng(1).permutation(36)
    for X, tags, back in ((q.X[order], q.tags[order], order), (1e3 * q.X, q.tags, slice(None)), (q.X + 5.0, q.tags[:, ::-1], slice(None))):
        other = SemanticKernelRanker(tol=1e-8).fit(X, tags)
        np.testing.assert_allclose(other.scores_, base.scores_[back], atol=1e-6)
        assert other.objective_ == pytest.approx(base.objective_, rel=1e-6)


def test_all_forms_of_data_and_tags_agree(tmp_path):
    q = query()
    X = np.where(np.random.default_rng(0).random(q.X.shape) < 0.4, 0.0, q.X)
    base = SemanticKernelRanker().fit(X, q.tags)
    store = ingest(X, tmp_path / "images.zarr")
    for form in (sp.csr_matrix(X), sp.csc_array(X), da.from_array(X, chunks=(10, 3)), store, store.url, np.asfortranarray(X)):
        np.testing.assert_allclose(SemanticKernelRanker().fit(form, q.tags).scores_, base.scores_, atol=1e-9)
    forms = (sp.csr_array(q.tags), lists(q.tags), q.tag_lines(), q.tags.astype(int), q.tags.tolist(), da.from_array(q.tags, chunks=7))
    for tags in forms:
        np.testing.assert_allclose(SemanticKernelRanker().fit(X, tags).scores_, base.scores_, atol=1e-9)
    fresh = np.random.default_rng(1).normal(size=(4, 10))
    for form in (sp.csr_matrix(X), store):
        np.testing.assert_allclose(SemanticKernelRanker().fit(form, q.tags).score_samples(fresh), base.score_samples(fresh), atol=1e-9)


def test_a_tag_of_all_images_changes_nothing():
    q = query()
    a, b = (SemanticKernelRanker().fit(q.X, tags).scores_ for tags in (q.tags, np.c_[q.tags, np.ones(36)]))
    np.testing.assert_array_equal(a, b)


def test_scaled_stores_keep_their_scale_for_unseen_images(tmp_path):
    q = query()
    X, fresh = q.X * np.logspace(-2, 2, 10) + 3.0, q.X[:5] * np.logspace(-2, 2, 10) + 2.0
    for kind, scaled in (("standard", lambda Z: (Z - X.mean(axis=0)) / X.std(axis=0)), ("unit-row", _unit)):
        store = ingest(X, tmp_path / f"{kind}.zarr", scale=kind)
        found, plain = SemanticKernelRanker().fit(store, q.tags), SemanticKernelRanker().fit(scaled(X), q.tags)
        np.testing.assert_allclose(found.scores_, plain.scores_, atol=1e-8)
        np.testing.assert_allclose(found.score_samples(fresh), plain.score_samples(scaled(fresh)), atol=1e-8)


def _unit(Z):
    return Z / np.linalg.norm(Z, axis=1)[:, None]


def test_features_that_are_constant_do_not_count():
    q = query()
    base, more = SemanticKernelRanker().fit(q.X, q.tags), SemanticKernelRanker().fit(np.c_[q.X, np.full(36, 7.0)], q.tags)
    np.testing.assert_array_equal(base.scores_, more.scores_)
    np.testing.assert_allclose(base.score_samples(q.X[:3]), more.score_samples(np.c_[q.X[:3], [1.0, 7.0, 9.0]]), atol=1e-14)


# --- prior ------------------------------------------------------------------------------------------------------------------------


def test_a_prior_moves_scores_and_its_scale_does_not(tmp_path):
    q = query()
    prior = np.where(q.relevant, 2.0, 1.0)
    found = SemanticKernelRanker().fit(q.X, q.tags, prior)
    np.testing.assert_allclose(found.prior_, prior / prior.sum())
    np.testing.assert_allclose(SemanticKernelRanker().fit(q.X, q.tags, 10 * prior).scores_, found.scores_, atol=1e-15)
    uniform = SemanticKernelRanker().fit(q.X, q.tags)
    assert found.scores_[q.relevant].sum() > uniform.scores_[q.relevant].sum()
    np.testing.assert_allclose(SemanticKernelRanker(damping=0.0).fit(q.X, q.tags, prior).scores_, found.prior_, atol=1e-15)
    np.testing.assert_array_equal(found.kernel_block(), uniform.kernel_block())
    store = ingest(q.X, tmp_path / "weighted.zarr", weight_column=prior)
    np.testing.assert_allclose(SemanticKernelRanker().fit(store, q.tags).scores_, found.scores_, atol=1e-9)


def test_ranks_are_by_descending_score():
    q = query()
    found = SemanticKernelRanker().fit(q.X, q.tags)
    assert sorted(found.rank().tolist()) == list(range(36))
    assert (np.diff(found.scores_[found.rank()]) <= 0).all()
    assert found.rank(5).tolist() == found.rank()[:5].tolist()


# --- unseen images ----------------------------------------------------------------------------------------------------------------


def test_unseen_images_are_scored_by_the_warped_kernel():
    q, fresh = query(24), query(5, seed=9).X
    found = SemanticKernelRanker(gamma=2.0).fit(q.X, q.tags)
    d = ((q.X[:, None] - q.X[None]) ** 2).sum(-1)
    width = 2.0 / (d.sum() / (24 * 23))
    points, L = q.X, graph_laplacian(found.kernel_block())

    def kx(x, z):
        return float(np.exp(-width * np.sum((x - z) ** 2)))

    Kx = np.array([[kx(x, z) for z in points] for x in points])
    expected = np.array([[oracle.warped(kx, L, Kx, x, z, points) for z in points] for x in fresh])
    np.testing.assert_allclose(found.kernel_block(fresh), expected, atol=1e-9)
    weights = np.maximum(expected, 0.0)
    mean = weights @ found.scores_ / weights.sum(axis=1)
    np.testing.assert_allclose(found.score_samples(fresh), 0.85 * mean + 0.15 / 24, atol=1e-10)
    np.testing.assert_allclose(found.kernel_block(fresh, fresh[:2]).T, found.kernel_block(fresh[:2], fresh), atol=1e-12)
    np.testing.assert_allclose(found.kernel_block(fresh, [3, 5]), expected[:, [3, 5]], atol=1e-9)
    np.testing.assert_allclose(found.kernel_block(slice(3, 5), fresh).T, expected[:, 3:5], atol=1e-9)


def test_an_image_is_scored_alike_in_any_company():
    q, fresh = query(), query(7, seed=5).X
    found = SemanticKernelRanker().fit(q.X, q.tags)
    alone = np.array([found.score_samples(row[None])[0] for row in fresh])
    np.testing.assert_allclose(found.score_samples(fresh), alone, rtol=1e-12)


def test_an_image_that_is_like_no_other_gets_the_mean():
    q = query()
    found = SemanticKernelRanker().fit(q.X, q.tags)
    assert found.score_samples(np.full((1, 10), 1e6))[0] == pytest.approx(1 / 36)


def test_blocks_of_fitted_images_are_entries_of_the_kernel():
    q = query()
    found = SemanticKernelRanker().fit(q.X, q.tags)
    K = found.kernel_block()
    assert K.shape == (36, 36)
    for rows, cols in (([1, 5], None), (slice(2, 6), [0]), (3, -1), (np.arange(36) % 2 == 0, [7])):
        every = np.arange(36)
        left, right = (every if part is None else np.atleast_1d(every[part]) for part in (rows, cols))
        np.testing.assert_allclose(found.kernel_block(rows, cols), K[np.ix_(left, right)], atol=1e-14)
    with pytest.raises(ValueError, match="fitted images are numbered 0 to 35"):
        found.kernel_block([36])
    with pytest.raises(ValueError, match="fitted images are numbered 0 to 35"):
        found.kernel_block([0.5])


def test_the_printed_warp_is_refused_where_it_is_no_kernel():
    q = query()
    found = SemanticKernelRanker(warp="seed").fit(q.X, q.tags)
    with pytest.raises(ValueError, match="warp='seed': the largest eigenvalue"):
        found.score_samples(q.X)
    small = SemanticKernelRanker(warp="seed", B=1e-3).fit(q.X, q.tags)
    assert small.score_samples(q.X[:3]).shape == (3,)


# --- better than its rivals -------------------------------------------------------------------------------------------------------


def test_planted_images_are_ranked_better_than_by_looks_or_by_the_search():
    """Over six queries the learnt kernel beats the Gaussian and the search's own scores among the first 3, 10 and 20."""
    found = {"npk": [], "rbf": [], "raw": []}
    for seed in range(6):
        q = planted_images(seed=seed)
        squares = ((q.X[:, None] - q.X[None]) ** 2).sum(-1)
        rbf = VisualRank().fit(np.exp(-squares / squares.mean() / 0.3))
        ranker = SemanticKernelRanker(max_iter=300).fit(q.X, q.tags)
        assert ranker.dual_gap_ <= 1e-5 * abs(ranker.objective_)
        for name, scores in (("npk", ranker.scores_), ("rbf", rbf.scores_), ("raw", q.text_scores)):
            found[name].append(top_precision(scores, q.relevant, (3, 10, 20)))
    means = {name: np.mean(rows, axis=0) for name, rows in found.items()}
    assert (means["npk"] > means["rbf"] + 0.1).all()
    assert (means["npk"] > means["raw"] + 0.1).all()
    assert means["npk"][0] > 0.9


# --- runs -------------------------------------------------------------------------------------------------------------------------


def run_context(executor, store, path):
    return RunContext(executor, data=store, scratch=RunStore.create(path, {}), seed=0)


def test_a_model_is_saved_and_read(tmp_path):
    q = query()
    found = SemanticKernelRanker(gamma=2.0).fit(sp.csr_array(q.X), q.tags)
    write_model(tmp_path / "model", found.model_)
    model = read_model(tmp_path / "model", RankerModel)
    loaded = SemanticKernelRanker.from_model(model, {}, [])
    assert loaded.get_params()["gamma"] == 2.0
    assert loaded.n_features_in_ == 10
    np.testing.assert_array_equal(loaded.scores_, found.scores_)
    np.testing.assert_array_equal(loaded.kernel_block(), found.kernel_block())
    np.testing.assert_array_equal(loaded.score_samples(q.X[:4] + 0.1), found.score_samples(q.X[:4] + 0.1))


def told(config, ctx, extra):
    """Everything that a run tells."""
    ranker = Ranker()
    problem = ranker.problem(*ranker.read_inputs(config, ctx, extra), ctx)
    state = iterate(ranker, problem, ctx).state
    found = ranker.result(problem, state, ctx)
    return found.model, found.summary, ranker.tables(found.model, fit=(problem, state)), problem.plan


def test_a_run_tells_its_ranking(tmp_path):
    q = query(60)
    store = ingest((q.X, q.relevant.astype(int)), tmp_path / "images.zarr")
    with open_executor(None) as executor:
        ctx = run_context(executor, store, tmp_path / "run")
        model, summary, tables, plan = told(RankerConfig(), ctx, {"tags": q.tag_lines()})
    peer = SemanticKernelRanker().fit(q.X, q.tags)
    np.testing.assert_allclose(model.predictions()[:, 0], peer.scores_, atol=1e-9)
    assert [row["row"] for row in tables["ranking"]] == peer.rank(50).tolist()
    assert len(tables["spectrum"]) == len(model.eigenvalues) == summary["rank"]
    assert sum(row["share"] for row in tables["spectrum"]) == pytest.approx(1.0)
    expected = top_precision(peer.scores_, q.relevant, (3, 5, 10, 20, 50))
    np.testing.assert_allclose([row["precision"] for row in tables["precision"]], expected)
    assert summary["precision"]["10"] == expected[2]
    assert summary["cap_used"] == pytest.approx(1.0)
    assert summary["top"] == peer.rank(5).tolist()
    assert plan["images"] == 60
    assert plan["pairs"] == len(model.arrays["pairs"])


def test_without_relevance_there_is_nothing_to_judge(tmp_path):
    q = query()
    store = ingest(q.X, tmp_path / "images.zarr")
    with open_executor(None) as executor:
        ctx = run_context(executor, store, tmp_path / "run")
        model, summary, tables, _ = told(RankerConfig(), ctx, {"tags": q.tag_lines(), "prior": np.arange(36).tolist()})
    assert set(tables) == {"ranking", "spectrum"}
    assert "precision" not in summary
    np.testing.assert_allclose(model.arrays["prior"], np.arange(36) / np.arange(36).sum())


# --- bad input --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors=0: .*at least 1"),
        ({"C": 0.0}, "C=0.0: .*greater than 0"),
        ({"B": -1.0}, "B=-1.0"),
        ({"damping": 1.0}, "damping=1.0: .*less than 1"),
        ({"graph": "all"}, "graph='all'"),
        ({"base": 0}, "base=0"),
        ({"untagged": "drop"}, "untagged='drop'"),
        ({"warp": "plain"}, "warp='plain'"),
        ({"walk_tol": 0.0}, "walk_tol=0.0"),
    ],
)
def test_bad_parameters_are_named(params, message):
    q = query()
    with pytest.raises(ValueError, match=message):
        SemanticKernelRanker(**params).fit(q.X, q.tags)


def test_bad_data_and_tags_are_refused():
    q = query()
    fit = SemanticKernelRanker().fit
    with pytest.raises(ValueError, match="tags: 35 rows, the data has 36; there must be one for each image"):
        fit(q.X, q.tags[:-1])
    with pytest.raises(ValueError, match="the target y is None; give the tags"):
        fit(q.X)
    with pytest.raises(ValueError, match="tags: no tag distinguishes images"):
        fit(q.X, ["cat"] * 36)
    with pytest.raises(ValueError, match="tags: no tag of at least min_images=40 images distinguishes"):
        SemanticKernelRanker(min_images=40).fit(q.X, q.tags)
    with pytest.raises(ValueError, match="prior: row 0 has -1"):
        fit(q.X, q.tags, -np.ones(36))
    with pytest.raises(ValueError, match="NaN"):
        fit(np.where(q.X > 2, np.nan, q.X), q.tags)
    with pytest.raises(ValueError, match="n_samples=1"):
        fit(q.X[:1], q.tags[:1])
    with pytest.raises(ValueError, match="semantic-ranker takes rows of numeric features; these data are strings"):
        fit(["a"] * 36, q.tags)
    with pytest.raises(ValueError, match="squared distances overflow"):
        fit(q.X * 1e200, q.tags)
    with pytest.raises(ValueError, match="9 features, but SemanticKernelRanker is expecting 10"):
        fit(q.X, q.tags).score_samples(q.X[:, :9])
    with pytest.warns(UserWarning, match="n_neighbors=6 exceeds the 4 other images"):
        fit(q.X[:5], q.tags[:5])
    with pytest.raises(NotFittedError):
        SemanticKernelRanker().rank()


def test_images_without_tags_are_named_or_ranked_by_their_looks():
    q = query()
    tags = q.tags.copy()
    tags[[3, 8]] = 0.0
    with pytest.raises(
        ValueError, match="tags: no tag in row 3, 8; set untagged='zero' to rank such images by their visual features alone"
    ):
        SemanticKernelRanker().fit(q.X, tags)
    found = SemanticKernelRanker(untagged="zero").fit(q.X, tags)
    assert found.model_.figures["untagged"] == 2
    assert np.isfinite(found.scores_).all()


def test_the_limits_of_a_fit_warn_and_refuse():
    q = query()
    with pytest.warns(ConvergenceWarning, match="max_iter=2 ended the fit with a relative gap above tol=1e-05"):
        assert not SemanticKernelRanker(max_iter=2).fit(q.X, q.tags).converged_
    with open_executor(None) as executor:
        ctx = RunContext(executor, data=MemoryBlocks(q.X), driver_memory=1 << 15)
        with pytest.raises(MemoryBoundExceeded, match=r"semantic-ranker: this process would hold .* KiB .*rank the images of one query"):
            Ranker().problem(RankerConfig(), RankerInputs(ctx.data, q.tags, np.full(36, 1 / 36)), ctx)
        whole = RunContext(executor, data=ctx.data)
        with pytest.raises(ValueError, match="n_neighbors=36 exceeds the 35 other images"):
            Ranker().problem(*Ranker().read_inputs(RankerConfig(n_neighbors=36), whole, {"tags": q.tag_lines()}), whole)


def test_groups_without_ties_have_no_order():
    X = np.random.default_rng(0).normal(size=(66, 5))
    tags = [["duck", "toy"] if k < 30 else ["toy", f"thing{k % 9}"] for k in range(66)]
    with pytest.warns(UserWarning, match="the scores of all images are equal"):
        SemanticKernelRanker(C=1e-6).fit(X, tags)


@pytest.mark.parametrize("X", [np.ones((6, 2)), np.zeros((6, 2))], ids=["ones", "zeros"])
def test_images_that_all_look_the_same_are_ranked_by_their_tags(X):
    found = SemanticKernelRanker(n_neighbors=2).fit(X, ["a b", "a b", "a b", "c", "d", "c d"])
    assert found.rank()[:1].tolist() == [5]
    assert np.ptp(found.scores_[:3]) < 1e-9
    assert np.isfinite(found.score_samples(X)).all()


# --- the walk on a given matrix ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("diagonal", ["zero", "keep"])
def test_the_walk_on_a_given_matrix_is_that_of_the_definition(diagonal):
    rng = np.random.default_rng(0)
    K, prior = rng.normal(size=(12, 12)), rng.random(12)
    expected = oracle.walk(oracle.stochastic(K, diagonal == "keep"), prior / prior.sum(), 0.7)
    for form in (K, sp.csr_array(K), K.astype(np.float32), da.from_array(K, chunks=5)):
        for solver in ("power", "exact"):
            found = VisualRank(0.7, diagonal, solver).fit(form, prior)
            np.testing.assert_allclose(found.scores_, expected, atol=1e-6 if form is not K else 1e-10)
    assert VisualRank(0.7, diagonal).fit(K, prior).rank(3).tolist() == np.argsort(-expected)[:3].tolist()


def test_a_matrix_whose_columns_have_sum_one_is_taken_as_it_is():
    rng = np.random.default_rng(3)
    S, prior = rng.random((9, 9)), rng.dirichlet(np.ones(9))
    S /= S.sum(axis=0)
    expected = 0.15 * np.linalg.solve(np.eye(9) - 0.85 * S, prior)
    for form in (S, sp.csc_array(S)):
        np.testing.assert_allclose(VisualRank().fit(form, prior).scores_, expected, atol=1e-9)
    np.testing.assert_allclose(VisualRank().fit(np.eye(9), prior).scores_, prior, atol=1e-12)
    np.testing.assert_array_equal(VisualRank().fit(2 * S, prior).scores_, VisualRank(diagonal="zero").fit(S, prior).scores_)
    signed = S.copy()
    signed[0, 0], signed[1, 0] = signed[0, 0] + 2.0, signed[1, 0] - 2.0
    np.testing.assert_array_equal(VisualRank().fit(signed).scores_, VisualRank(diagonal="zero").fit(signed).scores_)


@pytest.mark.slow
def test_many_images_are_certified_too():
    """Beyond some hundred rows eigenpairs are found by iteration."""
    q = planted_images(1000, seed=1)
    found = SemanticKernelRanker(tol=1e-6).fit(q.X, q.tags)
    K = found.kernel_block()
    vectors = oracle.tf_idf(lists(q.tags))
    d = ((q.X[:, None] - q.X[None]) ** 2).sum(-1)
    d2 = d[found.pairs_[:, 0], found.pairs_[:, 1]] / (d.sum() / (1000 * 999))
    assert oracle.objective(K, oracle.target(vectors), found.pairs_, d2, 1.0) == pytest.approx(found.objective_, rel=1e-6)
    lower = oracle.dual_value(found.dual_coef_, oracle.target(vectors), found.pairs_, d2, 1.0, 1000.0)
    assert found.objective_ - lower == pytest.approx(found.dual_gap_, abs=1e-6 * abs(lower))
    assert found.dual_gap_ <= 1e-6 * abs(lower)
    assert np.abs(K.sum(axis=0)).max() < 1e-6


@pytest.mark.parametrize(
    ("params", "K", "prior", "message"),
    [
        ({}, np.ones((3, 2)), None, r"similarity: shape \(3, 2\); it must be square"),
        ({}, np.full((2, 2), np.nan), None, "NaN"),
        ({}, np.ones((2, 2)), [1.0, -1.0], "prior: row 1 has -1"),
        ({"damping": 1.5}, np.ones((2, 2)), None, "damping=1.5: .*less than 1"),
        ({"solver": "qr"}, np.ones((2, 2)), None, "solver='qr'"),
        ({"tol": 0.0}, np.ones((2, 2)), None, "tol=0.0"),
    ],
)
def test_bad_input_of_the_walk_is_named(params, K, prior, message):
    with pytest.raises(ValueError, match=message):
        VisualRank(**params).fit(K, prior)


# --- scikit-learn -----------------------------------------------------------------------------------------------------------------


def test_events_of_a_fit():
    q, events = query(), []
    found = SemanticKernelRanker(callbacks=[events.append]).fit(q.X, q.tags)
    assert [event["iteration"] for event in events if event["event"] == "iteration"] == list(range(1, found.n_iter_ + 1))
