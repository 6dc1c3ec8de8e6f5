"""docs/theory/corrections.md, the Feature Generating Machine: every printed statement fails here, what stands in its place holds."""

from itertools import pairwise
from math import ceil, comb

import numpy as np
import pytest

from gramplane.kernels.features.groups import build_groups, group_scores, tree_select
from gramplane.kernels.losses import Logistic, SquaredHinge
from gramplane.kernels.mixed_norm import GroupProblem, LocalRows, solve_apg, solve_mkl, solve_newton
from gramplane.kernels.mixed_norm.apg import group_norms, prox_squared_mixed_norm
from gramplane.kernels.mixed_norm.elimination import bias_basis
from gramplane.pipeline import FGMClassifier
from gramplane.pipeline.methods.fgm.config import FGMConfig
from gramplane.pipeline.methods.fgm.problem import MachineProblem
from tests.support.oracles import fgm_exact as exact
from tests.support.oracles.fgm_subproblem import loss_value


def data(seed=0, n=12, m=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=n) + 0.6 > 0, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return X, y


def problem(Z, y, C=1.0, loss="squared_hinge", bias=False, starts=None):
    cost = np.full(len(y), C)
    rows = LocalRows(np.asfortranarray(Z), y, cost, loss, np.ones((len(y), int(bias))))
    return GroupProblem(rows, np.arange(Z.shape[1] + 1) if starts is None else starts)


# -- model and cutting planes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [SquaredHinge(), Logistic()])
def test_f_is_convex_in_alpha(loss):
    X, y = data()
    rng, cost, d = np.random.default_rng(1), np.ones(len(y)), np.array([1.0, 0.5, 0.5, 0.0])

    def f(alpha):
        return 0.5 * d @ (X.T @ (alpha * y)) ** 2 - loss.utility(alpha, cost)

    for _ in range(20):
        a, b = rng.random((2, len(y)))
        assert f((a + b) / 2) < (f(a) + f(b)) / 2  # strictly: no concave function does that


def test_the_domain_of_the_squared_hinge_is_not_bounded():
    low, high = SquaredHinge().dual_bounds(np.ones(3))
    assert np.all(low == 0) and np.all(np.isinf(high))
    # What Sion's theorem needs instead: f is strongly convex, so that its level sets are bounded; with C = 1, f(alpha) <= 0 only there.
    for alpha in np.random.default_rng(0).random((50, 3)) * 10:
        if SquaredHinge().utility(alpha, np.ones(3)) >= 0:
            assert np.linalg.norm(alpha) <= 2 * np.sqrt(3)


def test_equal_start_values_break_the_equality_of_the_bias():
    _, y = data(n=20)
    assert abs(np.sum(y)) > 0  # C 1'y, the printed start
    for name, loss in (("squared_hinge", SquaredHinge()), ("logistic", Logistic())):
        cost = np.ones(20)
        b = loss.best_constant(np.sum(y > 0), np.sum(y < 0))
        alpha = loss.dual(y, np.full(20, b), cost)
        share = np.mean(y > 0)
        used = np.where(y > 0, 1 - share, share)
        np.testing.assert_allclose(alpha / alpha[0], used / used[0], rtol=1e-9)
        assert np.sum(used * y) == pytest.approx(0, abs=1e-12)
        config = FGMConfig(C=1.0, loss=name, fit_intercept=True)
        start = MachineProblem(y, cost, config, bias_basis(len(y), True)).null.residual
        np.testing.assert_allclose(start, used * y, rtol=1e-12)


def test_groups_are_chosen_by_their_own_scores():
    index = build_groups([[0, 1], [2, 3], [4, 5]], 6, "none")
    c = np.array([3.0, 0.0, 2.5, 2.5, 2.9, 0.0])  # the two best features lie in groups 0 and 2; the best group is 1
    top, *_ = group_scores(c, 0, index, 1)
    assert top.ids.tolist() == [1] and top.keys[0] == pytest.approx(12.5)


def test_a_group_may_score_what_its_part_does_and_the_root_always_wins():
    nested = [[0, 1, 2, 3], [0, 1], [2, 3], [0], [1]]
    c = np.array([2.0, 0.0, 1.0, 1.0])
    plain = build_groups(nested, 4, "none")
    scores = [sum(c[j] ** 2 for j in group) for group in nested]
    assert scores[1] == scores[3]  # not s_h < s_g
    assert tree_select(c, plain, 1)[0].ids.tolist() == [0]
    for k in (2, 3):  # closed upwards: nothing is selected without all that holds it
        chosen = set(tree_select(c, plain, k)[0].ids.tolist())
        assert all(g in chosen for h in chosen for g in range(5) if set(nested[h]) < set(nested[g]))
    assert tree_select(c, build_groups(nested, 4), 1)[0].ids.tolist() == [3]  # weights 1 / size


def test_every_column_decides_so_that_correlations_cost_a_whole_pass():
    rng = np.random.default_rng(0)
    for j in range(16):
        c = rng.random(16)
        c[j] = 50.0
        index = build_groups([list(range(16)), *([k] for k in range(16))], 16, "1/size")
        assert j + 1 in tree_select(c, index, 1)[0].ids  # any single entry changes what is selected: none may stay unread


# -- sub-problem -------------------------------------------------------------------------------------------------------------------


def test_without_the_linear_term_the_mkl_dual_is_zero():
    Z, y = data()
    alpha = np.abs(np.random.default_rng(0).normal(size=(50, len(y))))
    for a in alpha:  # (29) as printed: every value is negative, the maximum is 0 at alpha = 0 whatever mu
        assert -0.5 * np.sum((Z.T @ (a * y)) ** 2) / 4 - 0.5 * a @ a < 0
    found = solve_mkl(problem(Z, y), tol=1e-9)
    again = solve_newton(problem(Z, y), tol=1e-9)
    assert found.objective == pytest.approx(again.objective, rel=1e-7) and found.objective > 1


def test_the_bias_belongs_to_the_minimum():
    Z, y = data(n=30)
    with_bias, without = (solve_newton(problem(Z, y + 0.0, bias=bias), tol=1e-9).objective for bias in (True, False))
    assert with_bias < without - 1e-3


def test_the_loss_is_not_separable_and_the_objective_not_lipschitz():
    x, y, h = np.array([0.7, -0.4]), np.array([1.0, -1.0]), 1e-4

    def P(w, b):
        return loss_value("squared_hinge", y, x * w - b, np.ones(2))

    mixed = (P(h, h) - P(h, -h) - P(-h, h) + P(-h, -h)) / (4 * h * h)
    assert mixed == pytest.approx(-np.sum(x), abs=1e-6)  # -C sum of x_i over the rows within the margin
    slopes = [abs(P(-s - 1, 0.0) + (s + 1) ** 2 / 2 - P(-s, 0.0) - s**2 / 2) for s in (1.0, 1e2, 1e4)]
    assert slopes[2] > 50 * slopes[1] > 50 * slopes[0]  # no constant bounds them
    # Gradients do have one, C ||x||^2.
    rng = np.random.default_rng(0)
    for a, b in rng.normal(size=(50, 2)) * 10:
        ga, gb = (np.sum(x * SquaredHinge().gradient(y, x * w, np.ones(2))) for w in (a, b))
        assert abs(ga - gb) <= np.sum(x**2) * abs(a - b) + 1e-9


def test_the_prox_of_zero_is_zero_though_no_index_qualifies():
    """Step 3 of Algorithm 3 takes the greatest h of a set that is empty at u = 0."""
    norms, s = np.zeros(3), 2.0
    qualifies = [norms[h - 1] - s / (1 + h * s) * norms[:h].sum() > 0 for h in (1, 2, 3)]
    assert not any(qualifies)
    assert prox_squared_mixed_norm(np.zeros(6), np.array([0, 2, 4, 6]), 0.5)[0].tolist() == [0.0] * 6


def test_sorting_takes_more_than_a_multiple_of_the_length():
    class Counted(float):
        calls = 0

        def __lt__(self, other):
            Counted.calls += 1
            return float(self) < float(other)

    per_entry = []
    for t in (16, 128, 1024):
        Counted.calls = 0
        sorted(map(Counted, np.random.default_rng(t).random(t)))
        per_entry.append(Counted.calls / t)
    assert per_entry[1] > per_entry[0] + 1.5 and per_entry[2] > per_entry[1] + 1.5  # log2 t grows by 3 each time


def test_the_capped_step_never_passes_its_test():
    """One row x = 1, y = 1, C = 1, from omega = 0: with tau <= 0.01 n C no proximal point lies below its quadratic model."""

    def passes(tau):
        w = prox_squared_mixed_norm(np.array([1.0 / tau]), np.array([0, 1]), tau)[0][0]
        return 0.5 * max(0.0, 1 - w) ** 2 <= 0.5 - w + 0.5 * tau * w * w + 1e-12

    assert not any(passes(tau) for tau in 0.01 * 0.7 ** np.arange(40))
    assert passes(1.0) and passes(3.0)  # the curvature of P, and more
    found = solve_apg(problem(np.array([[1.0], [0.0]]), np.array([1.0, -1.0])), tol=1e-9)
    assert found.omega[0] == pytest.approx(0.5, abs=1e-6)


def test_the_step_of_the_bias_may_have_no_length_that_passes():
    """(36) takes the slope at v and tests at omega; where the slopes differ in sign every step goes uphill."""
    x, y, v, omega, vb = np.array([1.0, 0.0]), np.array([1.0, -1.0]), 0.0, 1.0, 0.1

    def P(w, b):
        return loss_value("squared_hinge", y, x * w - b, np.ones(2))

    def slope(w, b):
        return -np.sum(SquaredHinge().gradient(y, x * w - b, np.ones(2)))

    g = slope(v, vb)
    assert g * slope(omega, vb) < 0
    for tau in 10.0 ** np.linspace(-6, 6, 200):
        assert P(omega, vb - g / tau) > P(omega, vb) - g * g / (2 * tau)
    right = slope(omega, vb)
    assert P(omega, vb - right / 2) <= P(omega, vb) - right**2 / 4 + 1e-12  # at omega itself tau_b = n C passes
    Z, y = data(n=30)
    assert abs(solve_apg(problem(Z, y, bias=True), tol=1e-8).residual.sum()) <= 1e-9  # b eliminated: the balance is exact


def apg(Z, y, C, steps, tau, eta=0.6):
    """Algorithm 4 as printed but for its cap and its bias: F of every iterate, and every accepted tau."""
    starts, P = np.arange(Z.shape[1] + 1), lambda w: loss_value("squared_hinge", y, Z @ w, np.full(len(y), C))
    w = v = np.zeros(Z.shape[1])
    rho, values, taus = 1.0, [P(w)], []
    for _ in range(steps):
        g = Z.T @ SquaredHinge().gradient(y, Z @ v, np.full(len(y), C))
        tau *= eta
        while True:
            new, _ = prox_squared_mixed_norm(v - g / tau, starts, tau)
            step = new - v
            if P(new) <= P(v) + g @ step + tau / 2 * step @ step + 1e-12:
                break
            tau /= eta
        following = 0.5 * (1 + np.sqrt(1 + 4 * rho * rho))
        v, w, rho = new + (rho - 1) / following * (new - w), new, following
        values.append(P(w) + 0.5 * group_norms(w, starts).sum() ** 2)
        taus.append(tau)
    return np.array(values), np.array(taus)


def test_step_sizes_fall_where_the_proof_needs_them_to_grow():
    Z, y = data(3, 40, 6)
    _, taus = apg(Z, y, 10.0, 40, 10.0 * np.linalg.norm(Z, 2) ** 2)
    assert any(b < a for a, b in pairwise(taus))  # L^{k+1} >= L^k, which Lemma 7 divides by, is false
    # Its last step, -mu^k / L^{k+1} >= -mu^k / L^k turned round: with a smaller L the inequality (61) points the other way.
    mu, before, after = 1.0, taus[0], taus[1]
    assert after < before and mu / after > mu / before


def test_an_approximate_solution_moves_scores_by_the_root_of_its_error():
    """P + 1/2 w^2 with one row x = 1, C = 1: F - F* = dw^2 (C + 1)/2 and dc = C dw."""
    ratio = []
    for dw in (1e-2, 1e-4, 1e-6):
        w = 0.5 + dw
        excess = 0.5 * w * w + 0.5 * (1 - w) ** 2 - 0.25
        c = SquaredHinge().dual(np.ones(1), np.array([w]), np.ones(1))[0]
        assert abs(c - 0.5) == pytest.approx(np.sqrt(2 * excess / 2), rel=1e-3)
        ratio.append(abs(c - 0.5) / excess)
    assert ratio[2] > 50 * ratio[1] > 50 * ratio[0]  # not O(eps)


def test_momentum_raises_the_objective_and_the_printed_rule_would_stop_there():
    Z, y = data(5, 30, 8)
    Z[:, 1] *= 8.0
    values, _ = apg(Z, y, 100.0, 200, 1.0)
    rise = np.flatnonzero(np.diff(values) > 1e-9)
    assert len(rise)
    stopped = values[rise[0] + 1]  # (F_before - F) / F_before < 0 <= eps_in, however small eps_in
    best = solve_newton(problem(Z, y, 100.0), tol=1e-10).objective
    assert stopped > best * (1 + 5e-4)
    assert solve_apg(problem(Z, y, 100.0), tol=1e-8).objective == pytest.approx(best, rel=1e-6)


def test_the_dual_of_the_squared_hinge_is_c_times_the_slack():
    y, f, C = np.array([1.0, -1.0, 1.0]), np.array([0.2, 0.5, 3.0]), 10.0
    slack = np.maximum(0, 1 - y * f)
    np.testing.assert_allclose(SquaredHinge().dual(y, f, np.full(3, C)), C * slack)
    # Fenchel's equality holds at C xi and not at xi.
    P, cost = loss_value("squared_hinge", y, f, np.full(3, C)), np.full(3, C)
    for alpha, equal in ((C * slack, True), (slack, False)):
        assert np.isclose(P, SquaredHinge().utility(alpha, cost) - np.sum(alpha * y * f), rtol=1e-6) == equal


def test_a_step_length_changes_more_than_the_shrinkage_of_a_group():
    v, g, starts = np.array([1.0, 0.0, 0.5, 0.5]), np.array([0.3, -0.8, 0.1, 0.2]), np.array([0, 2, 4])
    one, two = (prox_squared_mixed_norm(v - g / tau, starts, tau)[0][:2] for tau in (1.0, 3.0))
    assert abs(one[0] * two[1] - one[1] * two[0]) > 1e-2  # not the same direction: 1/tau turns u_h
    for tau, found in ((1.0, one), (3.0, two)):  # what has to be kept: X_h v_h and X_h g_h per row, then two factors
        u = v - g / tau
        shrink = prox_squared_mixed_norm(u, starts, tau)[1]
        np.testing.assert_allclose(found, (1 - shrink / np.linalg.norm(u[:2])) * (v[:2] - g[:2] / tau), atol=1e-12)


# -- the norm ----------------------------------------------------------------------------------------------------------------------


def test_the_third_case_of_the_norm():
    """w = (3, 1, 1), B = 2: neither nnz <= B nor ||w||_1 / max >= B; d = (1, 1/2, 1/2) and 13."""
    w, B = np.array([3.0, 1.0, 1.0]), 2
    assert np.count_nonzero(w) > B and np.abs(w).sum() / 3.0 < B
    assert exact.norm_squared(w, B) == pytest.approx(13.0) == exact.norm_squared_by_solver(w, B)
    assert np.abs(w).sum() ** 2 / B == 12.5  # the printed formula, which belongs to a d_1 above 1
    assert w @ w == 11.0


def test_the_minimiser_of_the_norm_is_not_unique_and_the_exchange_leaves_the_box():
    w = np.array([2.0, 0.0])
    values = [np.sum(np.where(w == 0, 0.0, w**2 / np.maximum(d, 1e-300))) for d in ([1.0, 0.0], [1.0, 1.0], [1.0, 0.3])]
    assert values == [4.0] * 3  # B = 2: d_2 > 0 beside w_2 = 0 in two of them
    d, eps = np.array([1.0, 0.5]), 0.1
    assert d[0] + d[1] - eps > 1  # d_j + d_l - eps of Appendix D


# -- remarks and tables ------------------------------------------------------------------------------------------------------------


def test_one_feature_a_round_is_the_squared_l1_norm():
    """B = 1 solves 1/2 ||w||_1^2 + P; active set methods solve lam ||w||_1 + P: the same w for lam = ||w*||_1 alone."""
    x, y = np.array([1.0, -0.5]), np.array([1.0, -1.0])

    def least(penalty):
        grid = np.linspace(0, 2, 200_001)
        losses = 0.5 * np.sum(np.maximum(0, 1 - grid[:, None] * (x * y)) ** 2, axis=1)
        return grid[np.argmin(penalty(grid) + losses)]

    squared = least(lambda w: 0.5 * w**2)
    assert least(lambda w: squared * w) == pytest.approx(squared, abs=2e-5)
    assert abs(least(lambda w: 1.0 * w) - squared) > 0.05
    found = FGMClassifier(B=1, C=1.0, fit_intercept=False, inner_tol=1e-10, scale=None).fit(x[:, None], y)
    assert float(np.ravel(found.coef_)[0]) == pytest.approx(squared, abs=2e-5)


def test_a_trillion_weights_take_more_than_one_terabyte():
    assert 10**12 * np.dtype(np.float32).itemsize == 4 * 10**12
    coordinates = comb(10**6 + 2, 2)  # (m + 2)(m + 1) / 2
    assert coordinates == pytest.approx(5e11, rel=1e-5) and coordinates * 8 == pytest.approx(4e12, rel=1e-5)


def test_sizes_of_table_2():
    assert comb(4_590_807 + 2, 2) == pytest.approx(1.054e13, rel=1e-3)  # printed: O(10^14)
    # The digits 3 and 8 among the 60,000 and 10,000 images of the set; 40,000 and 22,581 are the sizes of aut-avn in Table 1.
    assert 6131 + 5851 == 11_982 < 40_000 and 1010 + 974 == 1984 < 22_581 and ceil(np.log10(1.054e13)) == 14


def test_primal_weights_are_mu_times_the_correlations():
    Z, y = data(2, 40, 6)
    found = solve_newton(problem(Z, y, starts=np.array([0, 2, 4, 6])), tol=1e-10)
    live = found.weights > 1e-3
    assert live.sum() > 1
    for h in np.flatnonzero(live):
        part = slice(2 * h, 2 * h + 2)
        np.testing.assert_allclose(found.omega[part], found.weights[h] * found.correlations[part], rtol=1e-4)
        assert np.linalg.norm(found.omega[part] - found.correlations[part]) > 1e-2  # omega_h = sum alpha y x_h, as printed, is c_h


def test_the_logistic_dual_has_a_constant_and_a_box():
    """One row x = 0: P = C log 2 whatever w; alpha = C / 2."""
    C = np.array([3.0])
    alpha = C / 2
    printed = -np.sum(alpha * np.log(alpha) + (C - alpha) * np.log(C - alpha))
    assert printed == pytest.approx(3 * np.log(2) - 3 * np.log(3.0))
    assert Logistic().utility(alpha, C) == pytest.approx(3 * np.log(2)) == loss_value("logistic", np.ones(1), np.zeros(1), C)
    low, high = Logistic().dual_bounds(C)
    assert low[0] == 0 and high[0] == 3.0
    with np.errstate(invalid="ignore"):
        assert not Logistic().utility(np.array([3.5]), C) > -np.inf
