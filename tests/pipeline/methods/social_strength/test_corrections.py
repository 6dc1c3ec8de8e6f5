"""docs/theory/corrections.md, the strength of ties: printed statements fail here, what stands in their place holds."""

import numpy as np
import pytest

from gramplane.kernels.alignment.target_alignment import MatrixSums, solve_aligned_weights
from gramplane.kernels.ranking.pair_ranking import rank_pairs, signed_labels
from gramplane.kernels.ranking.user_kernels import PairGram
from tests.kernels.ranking.test_social import drawn, gram
from tests.kernels.ranking.test_social import problem as views_and_links
from tests.support.oracles import social as oracle
from tests.support.social import training_pairs


def test_labels_of_zero_and_one_give_ties_a_constant_loss():
    """y = 1 - z is 0 of a tie, and ln(1 + e^0) = ln 2 whatever f; of no tie it is 1, and f is pushed up where there is none."""
    z = np.array([1, 0])
    printed = 1 - z
    for f in (-3.0, 0.0, 5.0):
        assert np.log1p(np.exp(-printed[0] * f)) == pytest.approx(np.log(2))
    assert np.log1p(np.exp(-printed[1] * 3.0)) < np.log1p(np.exp(printed[1] * 3.0))
    assert signed_labels(z).tolist() == [1.0, -1.0]


def test_the_loss_has_two_arguments():
    """l(y_1, y_1) = ln(1 + e^{-y_1 y_2}): as written on the left it could not depend on the prediction."""
    assert np.log1p(np.exp(-1.0 * 1.0)) != pytest.approx(np.log1p(np.exp(-1.0 * -2.0)))


def test_there_is_a_coefficient_for_every_pair():
    """7 users and 20 pairs: alpha has 20 entries and K is 20 x 20, neither N_u = 7 nor N_u^2 = 49."""
    pairs, z = drawn(7, 20)
    held = PairGram(gram(7), pairs, "difference")
    assert rank_pairs(held, z, 0.1).coef.shape == (20,) and held.diag().shape == (20,)


def test_the_two_objectives_are_one_with_the_mean_in_both():
    """Without 1/N in (7.2) its C is that of (7.3) times N: the minimisers differ."""
    K, (pairs, z) = gram(), drawn()
    held, C, n = PairGram(K, pairs, "mlpk"), 0.1, len(z)
    Kp = oracle.pair_matrix(K, pairs, pairs, "mlpk")
    mean, total = rank_pairs(held, z, C, tol=1e-10), rank_pairs(held, z, C / n, tol=1e-10)
    assert np.abs(mean.decision - total.decision).max() > 0.1
    assert mean.objective == pytest.approx(oracle.objective(Kp, z, C, mean.coef), abs=1e-9)


def test_weights_on_the_sphere_and_on_the_simplex_are_one_direction():
    """sum_t ||theta_t||_2 = 1 of numbers is the l1 norm, the theorem divides by the l2 norm, Table 7.3 sums to one: rho is the same."""
    views, Y = views_and_links()
    found = solve_aligned_weights(MatrixSums.of(np.array([*views, Y])).centred())
    assert np.linalg.norm(found.weights) == pytest.approx(1.0) != pytest.approx(found.weights.sum())
    for scale in (1.0, 1 / found.weights.sum()):
        assert oracle.alignment(np.tensordot(scale * found.weights, views, 1), Y) == pytest.approx(found.value)
    friend = [0.0042, 0.1007, 0.6488, 0.0637, 0.1042, 0.0499, 0.0285]
    assert sum(friend) == pytest.approx(1.0, abs=1e-9) and np.linalg.norm(friend) < 0.7
    group = [0.0183, 0.1687, 0.5065, 0.2030, 0.0397, 0.0299]
    assert sum(group) == pytest.approx(0.966, abs=1e-3) and np.linalg.norm(group) < 0.7  # neither norm is one


def test_the_program_of_the_weights_takes_centred_matrices():
    views, Y = views_and_links(2)
    views = np.array([views[0] + 5.0, *views[1:]])  # a constant: nothing to a centred matrix
    best, theta = oracle.best_alignment(views, Y)
    for centre, good in ((oracle.centred, True), (lambda K: K, False)):
        A, B = np.array([centre(K) for K in views]), centre(Y)
        M, a = np.einsum("sij,tij->st", A, A), np.einsum("sij,ij->s", A, B)
        w = np.full(len(a), 0.01)
        for _ in range(2000):
            w = np.maximum(w - (M @ w - a) / np.linalg.norm(M), 0)
        value = oracle.alignment(np.tensordot(w, views, 1), Y)
        assert (value == pytest.approx(best, abs=1e-4)) == good
    assert solve_aligned_weights(MatrixSums.of(np.array([*views, Y])).centred()).value == pytest.approx(best, abs=1e-9)
    assert theta.min() >= 0


def test_centring_takes_off_the_means_of_rows_and_columns():
    """Both sums of the print run over i: then rows keep their means."""
    K = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 2.0], [0.0, 2.0, 9.0]])
    columns = K.mean(axis=0)
    printed = K - columns[None, :] - columns[None, :] + K.mean()
    right = K - columns[None, :] - K.mean(axis=1)[:, None] + K.mean()
    np.testing.assert_allclose(right, oracle.centred(K), atol=1e-12)
    np.testing.assert_allclose(right.sum(axis=1), 0.0, atol=1e-12)
    assert np.abs(printed.sum(axis=1)).max() > 1.0
    found = MatrixSums.of(np.array([K, K])).centred()
    np.testing.assert_allclose(found[0, 1], np.sum(right * right), rtol=1e-12)


def test_an_alignment_is_no_expectation():
    """E[tr KY] of Definition 7.4 stands for the plain product: rho of two fixed matrices."""
    views, Y = views_and_links(1)
    K = views[1]
    plain = np.sum(oracle.centred(K) * oracle.centred(Y)) / np.linalg.norm(oracle.centred(K)) / np.linalg.norm(oracle.centred(Y))
    found = solve_aligned_weights(MatrixSums.of(np.array([K, Y])).centred())
    assert found.value == pytest.approx(plain)


def test_longitudes_are_signed():
    """[latitude, longitude] in R_+ x R_+: half of all longitudes and latitudes are negative, and a grid over R_+ has no cell for them."""
    places = np.array([[40.7, -74.0], [-33.9, 151.2]])
    cells = np.floor((places + np.array([90.0, 180.0])) / 5.0).astype(int)
    assert (places < 0).any() and (cells >= 0).all() and len({tuple(cell) for cell in cells}) == 2


def test_strangers_are_the_least_similar_users():
    """The rule says "top N_e" of a descending order where it has excluded the users of small similarity: those would be the nearest."""
    n = 8
    similarity = 1.0 / (1.0 + np.abs(np.arange(n)[:, None] - np.arange(n)))
    contacts = (np.abs(np.arange(n)[:, None] - np.arange(n)) == 1).astype(int)
    pairs, z = training_pairs(contacts, contacts, similarity[None], per_user=1)
    for u, v in pairs[z == 0]:
        others = [w for w in range(n) if w != u and not contacts[u, w]]
        assert similarity[u, v] == min(similarity[u, w] for w in others) < max(similarity[u, w] for w in others)
