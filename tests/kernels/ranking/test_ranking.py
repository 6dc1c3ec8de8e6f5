"""Random walks on kernels, tag vectors, warped kernels, measures of rankings, and the kernel problem of image ranking on exact cases."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from gramplane.kernels.eigen.operator import SymmetricOperator
from gramplane.kernels.ranking import random_walk as ranking
from gramplane.kernels.ranking.pair_ranking import build_warp, graph_laplacian
from gramplane.kernels.ranking.random_walk import (
    average_precision,
    exact_scores,
    normalise_prior,
    rank_rows,
    top_precision,
    walk_on,
    walk_on_factor,
    walk_scores,
)
from gramplane.kernels.ranking.tags import count_tags, count_tags_of_rows, name_rows, tag_vectors, untagged_rows
from gramplane.kernels.spectral.dual_ascent import kernel_at, solve_dual
from gramplane.kernels.spectral.pair_losses import DistanceTerms
from gramplane.kernels.spectral.problem import SpectralProblem, cap_used
from tests.support.oracles import ranking as oracle


def centred(seed=0, n=9, r=3):
    """A factor whose kernel has K 1 = 0, as learnt ones have."""
    F = np.random.default_rng(seed).normal(size=(n, r))
    return F - F.mean(axis=0)


# --- the walk ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("diagonal", ["zero", "keep"])
@pytest.mark.parametrize("seed", range(3))
def test_columns_are_the_positive_part_over_its_sums(seed, diagonal):
    F = centred(seed)
    K = F @ F.T
    expected = oracle.stochastic(K, diagonal == "keep")
    for walk in (walk_on(K, diagonal), walk_on(sp.csr_array(K), diagonal), walk_on_factor(F, diagonal)):
        np.testing.assert_allclose(walk.dense(), expected, atol=1e-15)
        np.testing.assert_allclose(walk.dense().sum(axis=0), 1.0, atol=1e-14)
        r = np.random.default_rng(9).random(len(K))
        np.testing.assert_allclose(walk.product(r), expected @ r, atol=1e-14)


def test_the_given_matrix_is_not_changed():
    K = centred() @ centred().T
    before = K.copy()
    walk_on(K)
    np.testing.assert_array_equal(K, before)
    sparse = sp.csr_array(K)
    walk_on(sparse, "zero")
    np.testing.assert_array_equal(sparse.toarray(), before)


@pytest.mark.parametrize("damping", [0.0, 0.3, 0.85, 0.99])
@pytest.mark.parametrize("seed", range(3))
def test_power_iteration_solve_and_series_agree(seed, damping):
    rng = np.random.default_rng(seed)
    K, prior = centred(seed) @ centred(seed).T, rng.dirichlet(np.ones(9))
    walk = walk_on(K)
    expected = oracle.walk(oracle.stochastic(K), prior, damping)
    found = walk_scores(walk, prior, damping)
    np.testing.assert_allclose(exact_scores(walk, prior, damping).values, expected, atol=1e-14)
    assert np.abs(found.values - expected).sum() <= found.error + 1e-13
    assert found.error <= 1e-10 * damping / (1 - damping) + 1e-13
    assert found.values.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.values.min() >= 0
    assert found.steps <= 2 + (np.log(0.5e-10) / np.log(damping) + 1 if damping else 0)


def test_walks_with_closed_forms():
    prior = np.array([0.5, 0.3, 0.2, 0.0])
    loops = walk_on(np.eye(4), "keep")
    np.testing.assert_allclose(walk_scores(loops, prior).values, prior, atol=1e-15)
    flat = walk_on(np.ones((4, 4)), "keep")
    np.testing.assert_allclose(walk_scores(flat, normalise_prior(None, 4)).values, 0.25, atol=1e-15)
    # Two blocks, a prior on one of them: the other is never reached.
    blocks = walk_on(np.kron(np.eye(2), np.ones((2, 2))))
    found = walk_scores(blocks, np.array([0.5, 0.5, 0.0, 0.0])).values
    assert found[2:].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(found[:2], 0.5, atol=1e-12)
    # Nothing is similar to anything: all columns are uniform.
    np.testing.assert_allclose(walk_on(-np.ones((4, 4))).dense(), 0.25)
    lost = walk_scores(walk_on(np.zeros((4, 4))), prior, 0.5).values
    np.testing.assert_allclose(lost, 0.5 / 4 + 0.5 * prior, atol=1e-14)


def test_a_walker_leaves_along_its_column():
    """S moves mass down its columns: from j to i with S_ij, not from i to j."""
    K = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 3.0], [1.0, 2.0, 0.0]])
    np.testing.assert_allclose(walk_on(K).dense(), [[0, 0, 0.25], [0.5, 0, 0.75], [0.5, 1, 0]])


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
@settings(max_examples=25, deadline=None)
def test_scores_follow_the_rows_and_not_the_scale(seed, scale):
    rng = np.random.default_rng(seed)
    K, prior, order = rng.normal(size=(7, 7)), rng.dirichlet(np.ones(7)), rng.permutation(7)
    base = walk_scores(walk_on(K), prior).values
    np.testing.assert_allclose(walk_scores(walk_on(scale * K), prior).values, base, atol=1e-11)
    np.testing.assert_allclose(walk_scores(walk_on(K[np.ix_(order, order)]), prior[order]).values, base[order], atol=1e-11)


def test_a_copy_of_a_row_shares_its_score():
    """Two equal rows that are not similar to each other get equal scores, and the scores of the rest hardly notice the split prior."""
    F = np.abs(centred(1))
    K = F @ F.T
    double = np.r_[np.arange(9), 8]
    K2 = K[np.ix_(double, double)]
    K2[8, 9] = K2[9, 8] = 0.0
    prior = np.full(9, 1 / 9)
    split = np.r_[prior[:8], prior[8] / 2, prior[8] / 2]
    scores = walk_scores(walk_on(K2), split).values
    assert scores[8] == pytest.approx(scores[9], rel=1e-12)


def test_blocks_and_anew_computed_rows_give_the_same_bits(monkeypatch):
    F, prior = centred(2, n=23), normalise_prior(None, 23)
    monkeypatch.setattr(ranking, "ROWS_PER_BLOCK", 5)
    held, anew = (walk_scores(walk_on_factor(F, in_memory=kept), prior).values for kept in (True, False))
    np.testing.assert_array_equal(held, anew)
    monkeypatch.setattr(ranking, "ROWS_PER_BLOCK", 512)
    np.testing.assert_allclose(walk_scores(walk_on_factor(F), prior).values, held, atol=1e-13)


def test_columns_of_denormal_weights_are_uniform():
    K = np.zeros((3, 3))
    K[1, 0] = 5e-324
    np.testing.assert_allclose(walk_on(K).dense()[:, 0], 1 / 3)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ([0.5, 0.5], r"prior: shape \(2,\); it must be \(3,\)"),
        ([1.0, -0.5, 1.0], "prior: row 1 has -0.5; entries must be finite and not negative"),
        ([1.0, 1.0, np.nan], "prior: row 2 has nan"),
        ([0.0, 0.0, 0.0], "all entries are 0"),
    ],
)
def test_a_bad_prior_is_named(prior, message):
    with pytest.raises(ValueError, match=message):
        normalise_prior(prior, 3)


def test_a_prior_has_sum_one():
    np.testing.assert_allclose(normalise_prior([1, 3, 0], 3), [0.25, 0.75, 0])
    np.testing.assert_allclose(normalise_prior([1e308, 1e308], 2), 0.5)
    np.testing.assert_allclose(normalise_prior(None, 4), 0.25)


# --- measures of rankings ---------------------------------------------------------------------------------------------------------


def test_measures_on_a_ranking_by_hand():
    scores, relevant = np.array([0.1, 0.9, 0.5, 0.7]), np.array([1, 0, 1, 1])
    assert rank_rows(scores).tolist() == [1, 3, 2, 0]
    np.testing.assert_allclose(top_precision(scores, relevant, [1, 2, 3, 4, 10]), [0, 1 / 2, 2 / 3, 3 / 4, 3 / 4])
    assert average_precision(scores, relevant) == pytest.approx((1 / 2 + 2 / 3 + 3 / 4) / 3)
    assert rank_rows(np.array([1.0, 2.0, 1.0])).tolist() == [1, 0, 2]
    assert np.isnan(average_precision(scores, np.zeros(4)))


@pytest.mark.parametrize("seed", range(5))
def test_measures_agree_with_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    scores, relevant = rng.normal(size=30), rng.integers(0, 4, 30) > 1
    assert average_precision(scores, relevant) == pytest.approx(average_precision_score(relevant, scores))


# --- tags -------------------------------------------------------------------------------------------------------------------------

TAGS = [["cat", "pet"], ["cat", "dog", "dog"], ["cat"], ["pet", "cat", "snow"], ["cat", "snow"]]


def test_vectors_are_those_of_the_definition():
    counts, names = count_tags(TAGS)
    assert names == ("cat", "dog", "pet", "snow")
    assert counts.toarray()[1].tolist() == [1, 2, 0, 0]
    found = tag_vectors(counts).toarray()
    np.testing.assert_allclose(found, oracle.tf_idf(TAGS), atol=1e-15)
    # A tag of all images tells nothing, so an image that has no other has no vector; all others have unit length.
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 0, 1, 1], atol=1e-15)
    assert (found[:, 0] == 0).all()


def test_rare_tags_weigh_more_than_common_ones():
    counts = sp.csr_array(np.array([[1.0, 1], [1, 0], [1, 0], [0, 0]]))
    first = tag_vectors(counts).toarray()[0]
    assert first[1] > first[0] > 0


def test_forms_of_tags_agree():
    base, _ = count_tags(TAGS)
    matrix = base.toarray()
    lines = [" ".join(row) for row in TAGS]
    forms = [lines, [tuple(row) for row in TAGS], np.array(lines, dtype=object), np.array(lines), ["  cat \tpet", *lines[1:]]]
    for form in forms:
        counts, names = count_tags_of_rows(form)
        assert names == ("cat", "dog", "pet", "snow")
        np.testing.assert_array_equal(counts.toarray(), matrix)
    for form in (matrix, matrix.astype(int), matrix.tolist(), sp.csc_matrix(matrix), sp.coo_array(matrix)):
        counts, names = count_tags_of_rows(form)
        assert names is None
        np.testing.assert_array_equal(counts.toarray(), matrix)
    counts, names = count_tags_of_rows(np.array([3, 1, 3]))
    assert names == ("1", "3")
    assert counts.toarray().tolist() == [[0, 1], [1, 0], [0, 1]]


def test_tables_and_missing_values_of_tags():
    frame = pd.DataFrame({"cat": [1, 0], "dog": [2, 3]})
    assert count_tags_of_rows(frame)[0].toarray().tolist() == [[1, 2], [0, 3]]
    counts, names = count_tags_of_rows(pd.Series(["cat dog", None, "dog", np.nan]))
    assert names == ("cat", "dog")
    assert untagged_rows(counts).tolist() == [1, 3]
    assert count_tags_of_rows(np.array([["cat", "dog"], ["dog", "owl"]]))[1] == ("cat", "dog", "owl")
    assert count_tags_of_rows([{"cat"}, {"dog", "cat"}])[0].toarray().tolist() == [[1, 0], [1, 1]]
    assert count_tags_of_rows([[], ["cat"]])[0].toarray().tolist() == [[0], [1]]


def test_scale_of_counts_order_of_tags_and_copies_of_tags():
    counts, _ = count_tags(TAGS)
    base = tag_vectors(counts)
    np.testing.assert_allclose(tag_vectors(counts * 7.0).toarray(), base.toarray(), atol=1e-15)
    np.testing.assert_allclose(tag_vectors(counts * 1e200).toarray(), base.toarray(), atol=1e-15)
    order = [2, 0, 3, 1]
    gram = (base @ base.T).toarray()
    turned = tag_vectors(sp.csr_array(counts[:, order]))
    np.testing.assert_allclose((turned @ turned.T).toarray(), gram, atol=1e-15)
    twice = tag_vectors(sp.csr_array(sp.hstack([counts, counts])))
    np.testing.assert_allclose((twice @ twice.T).toarray(), gram, atol=1e-15)


def test_rare_tags_are_dropped():
    counts, _ = count_tags(TAGS)
    kept = np.flatnonzero(tag_vectors(counts, 2).toarray().any(axis=0))
    assert kept.tolist() == [2, 3]


def test_rows_without_tags():
    counts, _ = count_tags_of_rows(["a", "", "b", "  "])
    assert untagged_rows(counts).tolist() == [1, 3]
    stored = sp.csr_array((np.array([0.0, 1.0]), np.array([0, 0]), np.array([0, 1, 2])), shape=(2, 1))
    assert untagged_rows(count_tags_of_rows(stored)[0]).tolist() == [0]
    assert name_rows(np.arange(3)) == "0, 1, 2"
    assert name_rows(np.arange(8)) == "0, 1, 2, 3, 4 and 3 more"


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (np.array([[1.0, 0.0], [0.0, -2.0]]), "row 1 holds the count -2; counts must be finite and not negative"),
        (sp.csr_array(np.array([[1.0, np.inf], [0.0, 2.0]])), "row 0 holds the count inf"),
        ("cat dog", "str given; it must be a matrix of counts, or one string or list of tags per row"),
        (7, "int given"),
    ],
)
def test_bad_tags_are_named(tags, message):
    with pytest.raises(ValueError, match=message):
        count_tags_of_rows(tags)


# --- the warp ---------------------------------------------------------------------------------------------------------------------


def gaussian(gamma=0.5):
    return lambda x, z: float(np.exp(-gamma * np.sum((x - z) ** 2)))


def gram(kernel, left, right):
    return np.array([[kernel(x, z) for z in right] for x in left])


@pytest.mark.parametrize("seed", range(3))
def test_the_warped_kernel_is_that_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    points, others, kernel, F = rng.normal(size=(8, 2)), rng.normal(size=(4, 2)), gaussian(), centred(seed, n=8)
    Kx, L = gram(kernel, points, points), graph_laplacian(F @ F.T)
    warp = build_warp(Kx, F)
    found = warp.block(gram(kernel, others, others[:3]), gram(kernel, others, points), gram(kernel, others[:3], points))
    for i in range(4):
        for j in range(3):
            assert found[i, j] == pytest.approx(oracle.warped(kernel, L, Kx, others[i], others[j], points), abs=1e-12)
    own = warp.block(Kx, Kx, Kx)
    np.testing.assert_allclose(own, np.linalg.inv(np.linalg.inv(Kx) + L), atol=1e-9)
    every = np.concatenate([points, others])
    whole = warp.block(gram(kernel, every, every), gram(kernel, every, points), gram(kernel, every, points))
    np.testing.assert_allclose(whole, whole.T, atol=1e-12)
    assert np.linalg.eigvalsh(whole)[0] > -1e-10


def test_nothing_learnt_gives_the_input_kernel_back():
    points, kernel = np.random.default_rng(0).normal(size=(5, 2)), gaussian()
    Kx = gram(kernel, points, points)
    for F in (np.zeros((5, 0)), np.zeros((5, 2))):
        for mode in ("corrected", "seed"):
            np.testing.assert_array_equal(build_warp(Kx, F, mode).block(Kx, Kx, Kx), Kx)


def test_the_laplacian_is_semidefinite_with_constants_in_its_kernel():
    L = graph_laplacian(centred(3) @ centred(3).T)
    np.testing.assert_allclose(L.sum(axis=0), 0.0, atol=1e-12)
    assert np.linalg.eigvalsh(L)[0] > -1e-12
    assert np.abs(L).max() > 0


def test_the_printed_warp_is_refused_where_it_is_no_kernel():
    points, kernel, F = np.random.default_rng(1).normal(size=(6, 2)), gaussian(), centred(4, n=6)
    Kx = gram(kernel, points, points)
    top = float(np.linalg.eigvals(Kx @ F @ F.T).real.max())
    assert top > 1
    with pytest.raises(ValueError, match=rf"warp='seed': .*is {top:.4g} and must be below 1"):
        build_warp(Kx, F, "seed")
    with pytest.raises(ValueError, match=r"is 1\.05 and must be below 1"):
        build_warp(Kx, F * np.sqrt(1.05 / top), "seed")
    with pytest.raises(ValueError, match=r"is 1 and must be below 1"):
        build_warp(np.eye(2), np.array([[1.0], [0.0]]), "seed")
    small = F * np.sqrt(0.9 / top)
    own = build_warp(Kx, small, "seed").block(Kx, Kx, Kx)
    np.testing.assert_allclose(own, np.linalg.inv(np.linalg.inv(Kx) - small @ small.T), rtol=1e-6)
    assert np.linalg.eigvalsh(own)[0] > 0


# --- the kernel problem -----------------------------------------------------------------------------------------------------------


def problem(V, pairs, d2, C=1.0, B=1.0):
    n, pairs = len(V), np.asarray(pairs).reshape(-1, 2)
    operator = SymmetricOperator(sp.csr_array((n, n)), factor=sp.csr_array(V), centre=True)
    return SpectralProblem(operator, DistanceTerms(n, pairs[:, 0], pairs[:, 1], -1.0), -np.asarray(d2, float), C=C, B=B)


def solved(found, tol=1e-9):
    state = solve_dual(found, np.zeros(found.terms.size), tol=tol, max_iter=3000)
    part = kernel_at(found, state, tol=tol)
    return state, part, (part.part.vectors * part.spectrum) @ part.part.vectors.T


def test_two_images_have_a_closed_form():
    """K_t = I, d^2 = 1, B = 1: with C = 1/4 the cap binds, alpha = 1/4 and K = H; with C = 1 it does not, and alpha = 1/2."""
    H = np.eye(2) - 0.5
    state, _, K = solved(problem(np.eye(2), [(0, 1)], [1.0], C=0.25))
    np.testing.assert_allclose(state.best_alpha, 0.25, atol=1e-5)
    np.testing.assert_allclose(K, H, atol=1e-8)
    assert (state.best_primal, state.best_dual) == (pytest.approx(-0.875, abs=1e-8), pytest.approx(-0.875, abs=1e-8))
    loose = problem(np.eye(2), [(0, 1)], [1.0], C=1.0)
    state, part, K = solved(loose, 1e-6)
    assert state.best_primal == pytest.approx(-0.625, abs=1e-5)
    assert state.best_dual == pytest.approx(-0.625, abs=1e-5)
    assert K[0, 0] + K[1, 1] - 2 * K[0, 1] == pytest.approx(1.5, abs=1e-2)
    assert cap_used(loose, part) < 1 - 1e-3


def small(seed, n=5):
    rng = np.random.default_rng(seed)
    V = rng.random((n, 4))
    V /= np.linalg.norm(V, axis=1)[:, None]
    pairs, d = oracle.mutual_pairs(rng.normal(size=(n, 2)), 2)
    return V, pairs, d[pairs[:, 0], pairs[:, 1]], rng


@pytest.mark.parametrize(("seed", "B"), [(0, 2.0), (1, 2.0), (1, 100.0)])
def test_the_optimum_is_that_of_generic_solvers(seed, B):
    V, pairs, d2, rng = small(seed)
    M = oracle.target(V)
    state, _, K = solved(problem(V, pairs, d2, C=2.0, B=B), 1e-7)
    scale = max(abs(state.best_primal), 1e-2)
    assert state.gap <= 2e-7 * scale
    assert oracle.objective(K, M, pairs, d2, 2.0) == pytest.approx(state.best_primal, abs=1e-6 * scale)
    assert oracle.dual_value(state.best_alpha, M, pairs, d2, 2.0, B) == pytest.approx(state.best_dual, abs=1e-6 * scale)
    assert np.sum(K * K) <= B * (1 + 1e-9)
    assert oracle.best_dual(M, pairs, d2, 2.0, B) <= state.best_dual + 1e-5 * scale
    assert oracle.best_primal(M, pairs, d2, 2.0, B, rng) == pytest.approx(state.best_primal, abs=1e-4 * scale)


@pytest.mark.parametrize("seed", range(3))
def test_invariants_of_the_optimum(seed):
    """K 1 = 0, tr KK = B, alpha = C max(0, excess), and alpha = 0 for distances within their bound."""
    V, pairs, d2, _ = small(seed, n=9)
    state, _, K = solved(problem(V, pairs, d2, B=2.0))
    np.testing.assert_allclose(K.sum(axis=0), 0.0, atol=1e-12)
    assert np.sum(K * K) == pytest.approx(2.0)
    i, j = pairs.T
    excess = K[i, i] + K[j, j] - 2 * K[i, j] - d2
    np.testing.assert_allclose(state.best_alpha, np.maximum(excess, 0.0), atol=2e-4)


def test_units_of_distances_scale_the_kernel():
    V, pairs, d2, _ = small(1, n=8)
    base = solved(problem(V, pairs, d2, C=1.0, B=4.0))[2]
    scaled = solved(problem(V, pairs, 3.0 * d2, C=1.0 / 3.0, B=36.0))[2]
    np.testing.assert_allclose(scaled, 3.0 * base, atol=1e-4)


def test_without_neighbours_the_kernel_is_the_target_itself():
    V = small(2)[0]
    M = oracle.target(V)
    state, _, K = solved(problem(V, np.zeros((0, 2), np.int64), [], B=3.0))
    assert state.stop == "gap"
    np.testing.assert_allclose(K, M * np.sqrt(3.0 / np.sum(M * M)), atol=1e-12)
