"""Views of users, alignment weights, pair kernels, ranking of pairs, import vectors, harmonic labels, training pairs."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.alignment.target_alignment import MatrixSums, solve_aligned_weights
from gramplane.kernels.ranking import user_kernels
from gramplane.kernels.ranking.pair_ranking import empty_machine, full_gap, import_factor, import_step, rank_pairs
from gramplane.kernels.ranking.random_walk import harmonic_values, strength_graph
from gramplane.kernels.ranking.user_kernels import (
    USER_KERNELS,
    FactorGram,
    PairGram,
    PairSum,
    comment_kernel,
    incidence_kernel,
    least_eigenvalue,
    pair_block,
    pair_diagonal,
    row_factors,
    scaled_block,
    similarity_features,
    text_kernel,
    visual_kernel,
)
from gramplane.kernels.svm.dual import DenseGram
from gramplane.pipeline.synthetic.social_graph import VIEWS, social_graph
from tests.support.oracles import social as oracle
from tests.support.social import normalise_row_maximum


def gram(n=10, rank=4, seed=0):
    A = np.random.default_rng(seed).normal(size=(n, rank))
    return A @ A.T / rank


def drawn(n=10, m=24, seed=0):
    """Pairs of users and labels, both values among them."""
    rng = np.random.default_rng(seed)
    pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(m)])
    return pairs, rng.permutation(np.resize([0, 1], m))


def everybody(n):
    return np.array([(u, v) for u in range(n) for v in range(n)])


# -- views -------------------------------------------------------------------------------------------------------------------------


def test_visual_words_tags_and_comments_by_hand():
    means = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    distances = [5.0, 1.0, np.sqrt(18.0)]
    s = np.mean(distances)
    K = visual_kernel(means)
    assert K[0, 1] == pytest.approx(np.exp(-25.0 / s**2), rel=1e-12) and np.all(np.diag(K) == 1)
    assert visual_kernel(means, 2.0)[0, 2] == pytest.approx(np.exp(-0.25), rel=1e-12)
    tags = np.array([[2, 1, 0, 1], [0, 1, 3, 1], [0, 0, 0, 1]])
    # A tag that all carry says nothing; the third user has no other.
    idf = np.log(3 / np.array([1, 2, 1, 3]))
    left, right = tags[0] * idf, tags[1] * idf
    T = text_kernel(sp.csr_array(tags))
    assert T[0, 1] == pytest.approx(left @ right / np.linalg.norm(left) / np.linalg.norm(right), rel=1e-12)
    np.testing.assert_allclose(np.diag(T), [1, 1, 0], atol=1e-12)
    np.testing.assert_array_equal(comment_kernel([[5, 2, 0], [1, 7, 4], [0, 0, 0]]), [[5, 3, 0], [3, 7, 4], [0, 4, 0]])


@pytest.mark.parametrize("seed", range(4))
def test_incidence_counts_are_definite_and_row_maxima_make_them_indefinite(seed):
    B = np.random.default_rng(seed).random((9, 30)) < 0.3
    K = incidence_kernel(3 * B)
    np.testing.assert_array_equal(K, B.astype(float) @ B.T)
    assert np.linalg.eigvalsh(K)[0] > -1e-12
    d = row_factors(K.max(axis=1))
    divided = K / K.max(axis=1)[:, None]
    np.testing.assert_allclose(scaled_block(K, d, d), 0.5 * (divided + divided.T), rtol=1e-14)
    shifted = normalise_row_maximum(K)
    assert np.linalg.eigvalsh(shifted)[0] > -1e-12
    off = ~np.eye(9, dtype=bool)
    np.testing.assert_allclose(shifted[off], (0.5 * (divided + divided.T))[off], rtol=1e-14)
    assert np.ptp(np.diag(shifted)) < 1e-12


def test_the_shift_is_needed_for_kernels_that_were_definite():
    least = []
    for seed in range(20):
        B = np.random.default_rng(seed).random((12, 8)) < 0.4
        K = incidence_kernel(B)
        d = row_factors(K.max(axis=1))
        least.append(np.linalg.eigvalsh(scaled_block(K, d, d))[0])
    assert min(least) < -1e-3


def test_rows_without_items_stay_zero_and_cosines_stay_definite():
    B = np.random.default_rng(1).random((8, 20)) < 0.4
    B[3] = False
    K = incidence_kernel(B)
    found = normalise_row_maximum(K)
    assert np.all(np.delete(found[3], 3) == 0)
    C = oracle.normalise_cosine(K)
    np.testing.assert_allclose(np.diag(C), (np.arange(8) != 3).astype(float), atol=1e-12)
    assert np.linalg.eigvalsh(C)[0] > -1e-12
    assert C[0, 1] == pytest.approx(K[0, 1] / np.sqrt(K[0, 0] * K[1, 1]))


@pytest.mark.parametrize("kind", ["spread", "low rank", "tied"])
def test_the_least_eigenvalue_by_steps_is_a_lower_bound_and_close(kind):
    rng, n = np.random.default_rng(0), 90
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    values = {"spread": rng.normal(size=n), "low rank": np.r_[np.zeros(80), rng.random(10)], "tied": np.r_[-np.ones(30), np.ones(60)]}[kind]
    A = (Q * values) @ Q.T
    found = least_eigenvalue(lambda x: A @ x, n)
    true, size = values.min(), np.abs(values).max()
    assert true - 1e-4 * size <= found <= true + 1e-9 * size
    assert least_eigenvalue(lambda x: A @ x, n, lambda: A) == pytest.approx(true, abs=1e-10)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: visual_kernel(np.zeros((3, 2))), "0 if all are equal"),
        (lambda: visual_kernel([[np.nan, 1.0]]), "finite"),
        (lambda: text_kernel([[1.0, -1.0]]), "tags: row 0 holds the count -1; counts must be finite and not negative"),
        (lambda: comment_kernel(np.ones((2, 3))), r"comments: shape \(2, 3\)"),
    ],
)
def test_bad_views_are_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()


# -- alignment ---------------------------------------------------------------------------------------------------------------------


def problem(seed=0, n=14, k=4):
    """Views, some of which know of the links."""
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 3, n)
    Y = (side[:, None] == side).astype(float)
    views = [gram(n, 6, seed + t) + (0.5 * t) * gram(n, 3, 7) + 0.3 * (t % 2) * Y for t in range(k)]
    return np.array(views), Y


@pytest.mark.parametrize(("mode", "centre"), [("unit", oracle.centred), ("off-diagonal", oracle.without_diagonal)])
def test_centred_products_are_those_of_the_definition(mode, centre):
    views, Y = problem()
    every = np.array([*views, Y])
    found = MatrixSums.of(every).centred(mode)
    expected = [[np.sum(centre(A) * centre(B)) for B in every] for A in every]
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    shifts, rows = np.array([0.3, 0.0, 1.0, 2.0]), np.ones(len(Y), dtype=bool)
    moved = MatrixSums.of(views).shifted(shifts, rows)
    plain = MatrixSums.of(views + shifts[:, None, None] * np.eye(len(Y)))
    for name in ("products", "row_sums", "diagonals"):
        np.testing.assert_allclose(getattr(moved, name), getattr(plain, name), rtol=1e-12)
    joined = moved.with_matrix(np.einsum("tij,ij->t", views, Y) + shifts * np.trace(Y), np.sum(Y * Y), Y.sum(axis=1), np.diag(Y))
    whole = MatrixSums.of(np.array([*views + shifts[:, None, None] * np.eye(len(Y)), Y]))
    np.testing.assert_allclose(joined.centred(mode), whole.centred(mode), rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("mode", "centre"), [("unit", oracle.centred), ("off-diagonal", oracle.without_diagonal)])
def test_the_weights_have_the_largest_alignment(seed, mode, centre):
    views, Y = problem(seed)
    found = solve_aligned_weights(MatrixSums.of(np.array([*views, Y])).centred(mode))
    value, theta = oracle.best_alignment(views, Y, centre)
    assert found.value == pytest.approx(value, abs=1e-9)
    np.testing.assert_allclose(found.weights, theta, atol=1e-4)
    assert found.value == pytest.approx(oracle.alignment(np.tensordot(found.weights, views, 1), Y, centre), abs=1e-12)
    assert found.uniform == pytest.approx(oracle.alignment(views.sum(axis=0), Y, centre), abs=1e-12)
    np.testing.assert_allclose(found.singles, [oracle.alignment(K, Y, centre) for K in views], atol=1e-12)
    assert found.value >= max(found.uniform, found.singles.max()) - 1e-12
    assert found.weights.min() >= 0 and np.linalg.norm(found.weights) == pytest.approx(1.0)


def test_scales_of_views_and_links_and_a_view_that_is_the_links():
    views, Y = problem(3)

    def weights(views, Y):
        return solve_aligned_weights(MatrixSums.of(np.array([*views, Y])).centred()).weights

    base = weights(views, Y)
    np.testing.assert_allclose(weights(views, 7.0 * Y + 2.0), base, atol=1e-10)
    scale = np.array([1.0, 10.0, 0.1, 3.0])
    moved = weights(scale[:, None, None] * views, Y)
    np.testing.assert_allclose(moved * scale / np.linalg.norm(moved * scale), base, atol=1e-9)
    exact = solve_aligned_weights(MatrixSums.of(np.array([Y, *views[:2], Y])).centred())
    np.testing.assert_allclose(exact.weights, [1, 0, 0], atol=1e-6)
    assert exact.value == pytest.approx(1.0, abs=1e-12)


def test_copies_share_and_constant_views_get_nothing():
    views, Y = problem(1)
    twice = np.array([views[1], views[1], np.ones_like(Y), Y])
    found = solve_aligned_weights(MatrixSums.of(twice).centred())
    assert found.weights[2] == 0 and found.singles[2] == 0
    assert found.value == pytest.approx(oracle.alignment(views[1], Y), abs=1e-10)
    assert found.weights[:2].sum() > 0.9


def test_no_view_that_is_aligned_and_links_that_are_constant_are_refused():
    views, Y = problem(2)
    with pytest.raises(ValueError, match=r"no view is aligned with the links: the largest alignment is -"):
        solve_aligned_weights(MatrixSums.of(np.array([*(Y.max() - Y + 0 * views), Y])).centred())
    equal = solve_aligned_weights(MatrixSums.of(np.array([*(1.0 - Y + 0 * views), Y])).centred(), uniform=True)
    np.testing.assert_allclose(equal.weights, 0.5)
    with pytest.raises(ValueError, match="target is constant"):
        solve_aligned_weights(MatrixSums.of(np.array([*views, np.ones_like(Y)])).centred())


def test_ones_on_the_diagonal_of_the_links_raise_alignments_of_few_users():
    graph = social_graph(40, n_test=0, seed=1)
    views = np.array([normalise_row_maximum(K) for K in graph.views])
    Y = graph.contacts.astype(float)
    for K in views:
        assert oracle.alignment(K, Y + np.eye(40)) > oracle.alignment(K, Y)


# -- pair kernels ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", USER_KERNELS)
def test_blocks_products_and_sums_are_those_of_the_definition(kind):
    K, (pairs, _) = gram(), drawn()
    Kp = oracle.pair_matrix(K, pairs, pairs, kind)
    np.testing.assert_allclose(pair_block(K, pairs[:7], pairs, kind), Kp[:7], atol=1e-12)
    np.testing.assert_allclose(pair_diagonal(K, pairs, kind), np.diag(Kp), atol=1e-12)
    assert np.linalg.eigvalsh(Kp)[0] > -1e-10
    a = np.random.default_rng(1).normal(size=len(pairs))
    held = PairGram(K, pairs, kind)
    np.testing.assert_allclose(held.matvec(a), Kp @ a, atol=1e-11)
    np.testing.assert_allclose(held.rows(np.array([3, 0])), Kp[[3, 0]], atol=1e-12)
    total, every = PairSum(pairs, a, len(K), kind), everybody(len(K))
    expected = oracle.pair_matrix(K, every, pairs, kind) @ a
    np.testing.assert_allclose(total.at(K, every), expected, atol=1e-11)
    np.testing.assert_allclose(total.rows(K[[4, 1]], K), expected.reshape(10, 10)[[4, 1]], atol=1e-11)


@pytest.mark.parametrize("kind", USER_KERNELS)
def test_products_go_over_many_users_and_pairs_block_by_block(kind):
    rng, n = np.random.default_rng(0), 1100
    K = gram(n, 5)
    pairs, a = rng.integers(0, n, (900, 2)), rng.normal(size=900)
    np.testing.assert_allclose(PairGram(K, pairs, kind).matvec(a), pair_block(K, pairs, pairs, kind) @ a, atol=1e-8)
    wanted = np.array([[3, 1050], [700, 300]])
    rows = PairSum(pairs, a, n, kind).rows(K[wanted[:, 0]], K)
    np.testing.assert_allclose(rows[[0, 1], wanted[:, 1]], pair_block(K, wanted, pairs, kind) @ a, atol=1e-8)


def test_the_difference_kernel_ranks_alike_for_everybody_and_the_others_do_not():
    """Section 7.3's kernel is the Gram matrix of Phi(u) - Phi(v): f(u, v) = g(u) - g(v)."""
    A = np.random.default_rng(0).normal(size=(7, 3))
    pairs, z = drawn(7, 20)
    K = A @ A.T
    np.testing.assert_allclose(pair_block(K, pairs, pairs, "difference"), (lambda D: D @ D.T)(A[pairs[:, 0]] - A[pairs[:, 1]]), atol=1e-12)

    def scores(kind):
        found = rank_pairs(PairGram(K, pairs, kind), z, 0.01, tol=1e-10)
        return PairSum(pairs, found.coef, 7, kind).rows(K, K)

    F = scores("difference")
    np.testing.assert_allclose(F, -F.T, atol=1e-9)
    np.testing.assert_allclose(np.diag(F), 0, atol=1e-9)
    assert len({tuple(np.argsort(row)) for row in np.round(F, 9)}) == 1
    for kind in ("mlpk", "tensor", "tensor-symmetric"):
        G = scores(kind)
        assert len({tuple(np.argsort(row)) for row in G}) > 2
        assert np.allclose(G, G.T, atol=1e-9) == (kind != "tensor")


def test_similarity_features_make_the_kernel_and_the_score_is_a_sum_of_views():
    views, _ = problem(0, 9, 3)
    theta, (pairs, z) = np.array([0.6, 0.0, 0.8]), drawn(9, 20)
    Kp = oracle.similarity_matrix(views, theta, pairs, pairs)
    phi = similarity_features(views[:, pairs[:, 0], pairs[:, 1]], theta)
    np.testing.assert_allclose(phi @ phi.T, Kp, rtol=1e-10)
    factor = FactorGram(phi)
    v = np.random.default_rng(0).normal(size=20)
    np.testing.assert_allclose(factor.matvec(v), Kp @ v, rtol=1e-9)
    np.testing.assert_allclose(factor.diag(), np.diag(Kp), rtol=1e-10)
    np.testing.assert_allclose(factor.rows(np.array([2])), Kp[[2]], rtol=1e-10)
    a = rank_pairs(factor, z, 0.1, tol=1e-12).coef
    weights = 100.0 * theta * (views[:, pairs[:, 0], pairs[:, 1]] @ a)
    np.testing.assert_allclose(Kp @ a, a.sum() + weights @ views[:, pairs[:, 0], pairs[:, 1]], rtol=1e-8)


# -- ranking -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1.0, 0.01])
@pytest.mark.parametrize("kind", USER_KERNELS)
def test_the_optimum_the_dual_value_and_stationarity(kind, C):
    K, (pairs, z) = gram(), drawn()
    Kp = oracle.pair_matrix(K, pairs, pairs, kind)
    value, f = oracle.logistic_optimum(Kp, z, C)
    for matrix in (DenseGram(Kp), PairGram(K, pairs, kind)):
        found = rank_pairs(matrix, z, C, tol=1e-10)
        assert found.converged and found.objective == pytest.approx(value, abs=1e-8)
        assert found.objective == pytest.approx(oracle.objective(Kp, z, C, found.coef), abs=1e-10)
        np.testing.assert_allclose(Kp @ found.coef, f, atol=1e-4)
        y = 2 * z - 1
        b = found.coef * y * C * len(z)
        assert np.all((b > 0) & (b < 1))
        np.testing.assert_allclose(b, 1 / (1 + np.exp(y * (Kp @ found.coef))), atol=1e-5)
        assert found.objective - found.gap == pytest.approx(oracle.dual_value(Kp, z, C, b), abs=1e-9)
        assert found.objective - found.gap <= value + 1e-9


@pytest.mark.parametrize("C", [0.1, 1.0, 5.0])
def test_one_pair_has_a_closed_form(C):
    found = rank_pairs(DenseGram([[2.5]]), np.array([1]), C, tol=1e-13)
    assert found.coef[0] == pytest.approx(1 / (1 + np.exp(2.5 * found.coef[0])) / C, abs=1e-8)


def test_labels_are_two_z_minus_one():
    """With 1 - z in place of them every linked pair would have the constant loss ln 2, and links would count against a tie."""
    K, (pairs, z) = gram(seed=2), drawn(seed=2)
    held = PairGram(K, pairs, "mlpk")
    one, other = (rank_pairs(held, labels, 0.01, tol=1e-11) for labels in (z, 1 - z))
    np.testing.assert_allclose(other.coef, -one.coef, atol=1e-5)
    assert one.decision[z == 1].mean() > one.decision[z == 0].mean()
    turned = rank_pairs(PairGram(K, pairs[:, ::-1], "difference"), 1 - z, 0.1, tol=1e-11)
    straight = rank_pairs(PairGram(K, pairs, "difference"), z, 0.1, tol=1e-11)
    np.testing.assert_allclose(turned.decision, -straight.decision, atol=1e-6)


def test_steps_are_halved_where_plain_newton_diverges():
    K, (pairs, z) = 3.0 * gram(12, 3, 4), drawn(12, 60, 4)
    Kp = oracle.pair_matrix(K, pairs, pairs, "mlpk")
    with np.errstate(over="ignore", invalid="ignore"):
        along = oracle.undamped_newton(Kp, z, 1e-5)
    found = rank_pairs(DenseGram(Kp), z, 1e-5, tol=1e-8)
    assert np.nanmax(along[1:]) > 10 * along[0] or not np.isfinite(along).all()
    assert found.converged and found.objective < along[0]


def test_a_warm_start_ends_at_the_same_optimum_and_copies_change_nothing():
    K, (pairs, z) = gram(), drawn()
    held = PairGram(K, pairs, "tensor")
    cold = rank_pairs(held, z, 0.01, tol=1e-10)
    warm = rank_pairs(held, z, 0.01, warm=cold.coef, tol=1e-10)
    assert warm.steps == 0 and warm.objective == pytest.approx(cold.objective, abs=1e-12)
    twice = rank_pairs(PairGram(K, np.repeat(pairs, 2, axis=0), "tensor"), np.repeat(z, 2), 0.01, tol=1e-10)
    assert twice.objective == pytest.approx(cold.objective, abs=1e-9)
    np.testing.assert_allclose(twice.decision[::2], cold.decision, atol=1e-5)
    cut = rank_pairs(held, z, 1e-4, max_iter=1)
    assert cut.steps == 1 and not cut.converged and cut.gap > 0


# -- import vectors ----------------------------------------------------------------------------------------------------------------


def imported(held, z, C, steps, tol=1e-10):
    machines = [empty_machine(z)]
    for _ in range(steps):
        left = np.setdiff1d(np.arange(len(z)), machines[-1].chosen)
        machines.append(import_step(held, z, C, machines[-1], left, tol))
    return machines


@pytest.mark.parametrize("kind", USER_KERNELS)
def test_import_vectors_lower_the_objective_and_stay_above_the_optimum(kind):
    K, (pairs, z) = gram(10, 6), drawn(10, 40)
    held, C = PairGram(K, pairs, kind), 0.05
    Kp = oracle.pair_matrix(K, pairs, pairs, kind)
    best = rank_pairs(held, z, C, tol=1e-11).objective
    machines = imported(held, z, C, 6)
    values = np.array([machine.objective for machine in machines])
    assert values[0] == pytest.approx(np.log(2)) and np.all(np.diff(values) < 1e-9) and values[-1] >= best - 1e-9
    for machine in machines[1:]:
        a = machine.coefficients()
        assert set(np.flatnonzero(a)) <= set(machine.chosen.tolist())
        np.testing.assert_allclose(Kp @ a, machine.decision, atol=1e-8)
        assert oracle.objective(Kp, z, C, a) == pytest.approx(machine.objective, abs=1e-9)
        assert machine.objective - full_gap(held, z, C, machine) <= best + 1e-9
        np.testing.assert_array_equal(import_factor(held, machine.chosen), machine.factor)


def test_the_choice_is_the_pair_that_one_newton_step_promises_most_of():
    K, (pairs, z) = gram(10, 6, 3), drawn(10, 30, 3)
    held, C = PairGram(K, pairs, "tensor-symmetric"), 0.02
    Kp = oracle.pair_matrix(K, pairs, pairs, "tensor-symmetric")
    machines = imported(held, z, C, 4, 1e-13)
    for before, after in itertools.pairwise(machines):
        left = [j for j in range(30) if j not in before.chosen]
        a = before.coefficients()[before.chosen]
        promised = [oracle.one_step_with(Kp, z, C, before.chosen.tolist(), a, j) for j in left]
        assert after.chosen[-1] == left[int(np.argmin(promised))]


def test_enough_import_vectors_give_the_whole_machine_and_then_nothing_is_new():
    K, (pairs, z) = gram(8, 3), drawn(8, 25)
    held = PairGram(K, pairs, "difference")
    machines = imported(held, z, 0.1, 6)
    best = rank_pairs(held, z, 0.1, tol=1e-11)
    # The kernel has rank 3: the fourth vector finds nothing.
    assert machines[3].objective == pytest.approx(best.objective, abs=1e-8)
    assert full_gap(held, z, 0.1, machines[3]) == pytest.approx(0.0, abs=1e-7)
    assert machines[4] is machines[3] and len(machines[-1].chosen) == 3


# -- harmonic labels ---------------------------------------------------------------------------------------------------------------


def graph(n=12, seed=0):
    rng = np.random.default_rng(seed)
    W = strength_graph(rng.random((n, n)) * (rng.random((n, n)) < 0.5))
    labels = np.full(n, np.nan)
    labels[:4] = rng.normal(size=4)
    return W, labels


@pytest.mark.parametrize("seed", range(4))
def test_harmonic_values_minimise_the_energy_and_stay_in_range(seed):
    W, labels = graph(seed=seed)
    f = harmonic_values(W, labels)
    np.testing.assert_allclose(f, oracle.harmonic(W, labels), atol=1e-10)
    np.testing.assert_array_equal(f[:4], labels[:4])
    assert labels[:4].min() <= f.min() and f.max() <= labels[:4].max()
    np.testing.assert_allclose(W[4:] @ f, W[4:].sum(axis=1) * f[4:], atol=1e-10)
    np.testing.assert_allclose(harmonic_values(sp.csr_array(W), labels), f, atol=1e-10)
    both = harmonic_values(W, np.column_stack([labels, 2 * labels]))
    np.testing.assert_allclose(both, np.column_stack([f, 2 * f]), atol=1e-10)
    order = np.random.default_rng(seed).permutation(12)
    np.testing.assert_allclose(harmonic_values(W[np.ix_(order, order)], labels[order]), f[order], atol=1e-10)
    np.testing.assert_allclose(harmonic_values(3.0 * W + np.eye(12), labels), f, atol=1e-10)


def test_harmonic_values_refuse_what_has_no_answer():
    W, labels = graph()
    W[7] = W[:, 7] = 0.0
    with pytest.raises(ValueError, match="node 7 is not connected to any labelled node"):
        harmonic_values(W, labels)
    labels[7] = 1.0
    assert harmonic_values(W, labels)[7] == 1.0
    np.testing.assert_array_equal(harmonic_values(W, np.arange(12.0)), np.arange(12.0))
    for bad, told in ((-W, "negative"), (np.triu(W), "not symmetric"), (W[:5], "shape"), (W * np.nan, "not finite")):
        with pytest.raises(ValueError, match=told):
            harmonic_values(bad, labels)
    with pytest.raises(ValueError, match="no known value"):
        harmonic_values(W, np.full(12, np.nan))


# -- the generator ----------------------------------------------------------------------------------------------


def test_the_generator_repeats_itself_and_follows_its_law():
    one, two = social_graph(80, n_test=20, seed=5), social_graph(80, n_test=20, seed=5)
    for name in ("views", "contacts", "comments", "groups", "communities"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert one.views.shape == (len(VIEWS), 80, 80) and one.held_out.sum() == 20
    assert not np.array_equal(one.contacts, social_graph(80, seed=6).contacts)
    degrees = [social_graph(seed=seed).contacts.sum(axis=1).mean() for seed in range(4)]
    assert np.mean(degrees) == pytest.approx(8.0, abs=1.0)
    for view in one.views:
        np.testing.assert_array_equal(view, view.T)


@pytest.mark.parametrize("n", [60, 400])
def test_few_steps_still_bound_the_least_eigenvalue_from_below(n, monkeypatch):
    """Ritz values alone lie above it: what the residual takes off makes the bound, wherever the steps end."""
    rng = np.random.default_rng(n)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    values = np.sort(np.concatenate([[-1.0], rng.uniform(-0.9, 1.0, n - 1)]))
    A = (Q * values) @ Q.T
    A = 0.5 * (A + A.T)
    true, found = float(np.linalg.eigvalsh(A)[0]), []
    for steps in (10, 20, 40, 60):
        monkeypatch.setattr(user_kernels, "LANCZOS_STEPS", steps)
        found.append(user_kernels.least_eigenvalue(lambda x: A @ x, n))
        assert found[-1] <= true + 1e-12, steps
    assert found[-1] == pytest.approx(true, abs=0.2)
    # A shift by a bound makes the matrix definite; one by the Ritz value of ten steps would not.
    np.linalg.cholesky(A - (found[0] - 1e-9) * np.eye(n))
