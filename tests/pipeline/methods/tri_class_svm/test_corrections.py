"""docs/theory/corrections.md, the tri-class machine: printed statements fail here, what stands in their place holds."""

import numpy as np
import pytest
from scipy.optimize import minimize

from gramplane.kernels.svm.dual import DenseGram
from gramplane.kernels.svm.triclass import Points, min_loss, relaxed_problem
from gramplane.kernels.svm.triclass_search import solve_convex

U = np.linspace(-4, 4, 801)


def hinge(s, u):
    """H_s(u) of section 5.3."""
    return np.maximum(0.0, s - u)


def tube(eps, u):
    return np.maximum(0.0, np.abs(u) - eps)


def test_the_second_loss_must_be_one_sided():
    """Q_2 is to vanish at d = 1; I_eps(|f| - D) does not, its hinge form does up to |f| = D + eps."""
    eps, D = 0.1, 2.0
    printed, meant = tube(eps, np.abs(U) - D), np.maximum(0.0, np.abs(U) - D - eps)
    assert printed[400] == pytest.approx(D - eps)
    np.testing.assert_allclose(hinge(-eps - D, U) + hinge(-eps - D, -U), meant, atol=1e-12)
    assert np.abs(printed - meant).max() > 1.8
    exact = np.minimum(hinge(1 - D, np.abs(U)) + tube(eps, U), hinge(1.0, np.abs(U)) + meant)  # d = 0 and d = 1 of (5.3)
    inside = np.abs(U) <= D + eps
    np.testing.assert_allclose(exact[inside], min_loss(U, eps)[inside], atol=1e-12)


def small(seed=0):
    """Two rows of each class, one of neither, two unlabelled; L, the linear part and the rows of the QP (C.5)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(7, 2)) + np.array([1.0, 1, -1, -1, 0, 0.8, -0.1])[:, None]
    return X, np.array([1.0, 1, -1, -1, 0, 0, 0]), np.array([0, 0, 0, 0, 0, 1, 1], bool)


def sub_problem(X, y, free, mu, lam, eps, D, r):
    """(C.1): its value by a generic solver over w, b, d and one slack for every hinge; mu has the +1 copies first."""
    rows, sides, edges, slot = [], [], [], []
    for i in np.flatnonzero(~free):
        for side in (y[i],) if y[i] else (1.0, -1.0):
            rows.append(i), sides.append(side), edges.append(1.0 if y[i] else -eps), slot.append((-1, 0.0))
    for k, i in enumerate(np.flatnonzero(free)):
        for side in (1.0, -1.0):  # H_{1 - D (1 - d)} and H_{-eps - D d}
            rows += [i, i]
            sides += [side, side]
            edges += [1.0 - D, -eps]
            slot += [(k, D), (k, -D)]
    rows, sides, edges = np.array(rows), np.array(sides), np.array(edges)
    cost, d, m, u = r[rows], X.shape[1], len(rows), int(free.sum())
    by_d = np.zeros((m, u))
    for e, (k, slope) in enumerate(slot):
        if k >= 0:
            by_d[e, k] = slope
    at_least = np.hstack([sides[:, None] * X[rows], sides[:, None], -by_d, np.eye(m)])  # slack >= edge + by_d d - side f
    spread = np.concatenate([mu[:u] @ X[free] - mu[u:] @ X[free], [mu[:u].sum() - mu[u:].sum()]])
    linear = np.concatenate([spread, np.zeros(u), cost])
    found = minimize(
        lambda v: 0.5 * lam * v[:d] @ v[:d] + linear @ v,
        np.concatenate([np.zeros(d + 1), np.full(u, 0.5), np.maximum(edges, 0) + D]),
        jac=lambda v: np.concatenate([lam * v[:d], np.zeros(1 + u + m)]) + linear,
        bounds=[(None, None)] * (d + 1) + [(0, 1)] * u + [(0, None)] * m,
        constraints=[{"type": "ineq", "fun": lambda v: at_least @ v - edges, "jac": lambda v: at_least}],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    return found.fun, found.x[:d], found.x[d]


def dual(X, y, free, mu, lam, eps, D, r, *, labels=True, constant=True):
    """The dual as it should be: [a; s] over |L0| + L + 4U copies, Q with labels, the constant of mu."""
    zero, unlabelled = np.flatnonzero((y == 0) & ~free), np.flatnonzero(free)
    known = np.flatnonzero(y != 0)
    rows = np.concatenate([zero, zero, known, unlabelled, unlabelled])
    side = np.concatenate([np.ones(len(zero)), -np.ones(len(zero)), y[known], np.ones(len(unlabelled)), -np.ones(len(unlabelled))])
    u, n = len(unlabelled), len(rows)
    tail = slice(n - 2 * u, n)
    lin = np.concatenate([np.full(2 * len(zero), -eps), np.ones(len(known)), np.full(2 * u, 1.0 - D), np.full(2 * u, -eps)])
    rows, side = np.concatenate([rows, rows[tail]]), np.concatenate([side, side[tail]])
    Z = X[rows] * (side[:, None] if labels else 1.0)
    cross = (mu * (side[n:] if labels else 1.0)) @ X[rows[n:]]
    pairs = np.zeros((u, n + 2 * u))
    for k in range(u):
        pairs[k, [n - 2 * u + k, n - u + k]], pairs[k, [n + k, n + u + k]] = 1.0, -1.0

    def value(v):
        w = v @ Z - cross
        return 0.5 / lam * (w @ w - (0.0 if constant else cross @ cross)) - lin @ v, Z @ w / lam - lin

    rules = [
        {"type": "eq", "fun": lambda v: v @ side - mu @ side[n:], "jac": lambda v: side},
        {"type": "ineq", "fun": lambda v: pairs @ v, "jac": lambda v: pairs},
    ]
    start = np.full(n + 2 * u, 0.1)
    bounds = [(0.0, c) for c in r[rows]]
    found = minimize(value, start, jac=True, bounds=bounds, constraints=rules, method="SLSQP", options={"maxiter": 500, "ftol": 1e-14})
    return -found.fun, (found.x @ Z - cross) / lam


SETTINGS = {"lam": 0.7, "eps": 0.1, "D": 2.0}


def test_the_dual_of_the_sub_problem_needs_labels_and_its_constant():
    X, y, free = small()
    r, mu = np.where(free, 0.6, 1.0), np.array([0.6, 0.0, 0.0, 0.6])  # row 5 beyond kappa on one side, row 6 on the other
    best, w, _ = sub_problem(X, y, free, mu, r=r, **SETTINGS)
    value, weights = dual(X, y, free, mu, r=r, **SETTINGS)
    assert value == pytest.approx(best, abs=1e-5)
    np.testing.assert_allclose(weights, w, atol=1e-3)
    assert abs(dual(X, y, free, mu, r=r, constant=False, **SETTINGS)[0] - best) > 0.05
    assert abs(dual(X, y, free, mu, r=r, labels=False, **SETTINGS)[0] - best) > 0.05


def test_the_linear_term_has_a_row_for_every_variable():
    n, u = 9, 2  # |L0| + L + 2U variables a, 2U variables s
    Q, mu = np.ones((n, n)), np.ones(2 * u)
    with pytest.raises(ValueError, match="matmul"):
        Q[-2 * u :, :] @ mu  # the printed block Q_{2U, |L0| + L + 2U}
    assert (Q[:, -2 * u :] @ mu).shape == (n,)


def test_the_upper_end_of_the_indicators_is_never_felt():
    """p_k = 0 holds because the losses do not fall beyond d = 1, not because p_k d_k = 0: complementarity gives p_k (1 - d_k) = 0."""
    d, D, eps = np.linspace(0, 3, 3001), 2.0, 0.1
    inside = d <= 1
    for f in np.linspace(-4, 4, 81):
        losses = sum(hinge(s, side * f) for s in (1 - D * (1 - d), -eps - D * d) for side in (1, -1))
        assert losses.min() >= losses[inside].min() - 1e-12
        assert np.all(np.diff(losses[~inside]) >= -1e-12)
    p, at = 0.3, 1.0  # a positive multiplier of d <= 1 is no contradiction to p (1 - d) = 0, and p d is not 0 there
    assert p * (1 - at) == 0 != p * at


def test_a_concave_part_without_indicator_rewards_leaving_zero():
    """Q_1 at d = 0, D = 2, kappa = 0: H_{-1}(f) + H_{-1}(-f) - H_0(f) - H_0(-f) = -min(|f|, 1), where it is to be 0."""
    first = hinge(-1.0, U) + hinge(-1.0, -U)
    concave = hinge(0.0, U) + hinge(0.0, -U)
    np.testing.assert_allclose(first - concave, -np.minimum(np.abs(U), 1.0), atol=1e-12)
    np.testing.assert_allclose(hinge(1.0 - 2.0, np.abs(U)), 0.0)  # H_1(|f| + D): what it stands for
    np.testing.assert_allclose(first, np.maximum(np.abs(U) - 1, 0), atol=1e-12)  # gated by d, as in (5.6)


@pytest.mark.parametrize("kappa", [0.0, -0.3, -0.9])
def test_the_ramp_has_a_constant_that_depends_on_d(kappa):
    ramp = hinge(1.0, U) + hinge(1.0, -U) - hinge(kappa, U) - hinge(kappa, -U)
    np.testing.assert_allclose(ramp, (1 - kappa) + np.minimum(1 + kappa, hinge(1.0, np.abs(U))), atol=1e-12)
    a = 2.0  # d = 0, D = 2: H_1(|u| + a) = 0, and the constant is another one
    other = hinge(1 - a, U) + hinge(1 - a, -U) - hinge(kappa, U) - hinge(kappa, -U)
    assert other[400] == pytest.approx(0.0) and ramp[400] - min(1 + kappa, 1.0) == pytest.approx(1 - kappa)


def test_two_is_too_small_a_constant_for_far_rows():
    eps, f = 0.1, np.array([3.0])
    left = np.maximum(0.0, np.abs(f) - 2.0 - eps)
    assert left[0] == pytest.approx(0.9)  # Q_2 at d = 1, D = 2
    D = max(2.0, 1.0 + np.abs(f).max())
    assert np.maximum(0.0, np.abs(f) - D - eps)[0] == 0.0 and hinge(1.0 - D, np.abs(f))[0] == 0.0


def test_the_relaxed_problem_is_flat_up_to_the_crossing():
    """The least over d of the four losses, at D = 2: nothing up to |f| = (1 + eps)/2, where min{H_1, I_eps} is greatest."""
    eps = 0.1
    points = Points(np.zeros(1), np.ones(1, bool), np.ones(1), eps)
    kink = relaxed_problem(points, np.zeros(1), 2.0).kink[0]
    assert kink == pytest.approx((1 + eps) / 2)
    assert np.argmax(min_loss(U, eps) * (np.abs(U) <= 1)) in np.flatnonzero(np.isclose(np.abs(U), kink, atol=0.006))
    X, y, free = small(1)
    points = Points(y, free, np.where(free, 0.6, 1.0) / 0.7, eps)
    found = solve_convex(DenseGram(X @ X.T), points, relaxed_problem(points, np.array([0, 0, 0, 0, 0, 1.0, 0]), 2.0), 1e-9)
    assert abs(found.decision[5]) >= kink - 1e-6


def test_no_tube_gives_the_semi_supervised_machine():
    for eps in (0.0, 0.3, 0.99):
        assert min_loss(np.zeros(1), eps)[0] == 0.0  # (5.2) at f = 0, whatever r: the symmetric hinge has 1
    assert min_loss(np.zeros(1), 0.1, True)[0] == 1.0
    np.testing.assert_allclose(np.minimum(hinge(1.0, np.abs(U)), np.maximum(np.abs(U) + 1.0, 0.0)), min_loss(U, 0.1, True), atol=1e-12)


def test_rows_of_neither_class_do_not_enter_the_balance():
    y = np.array([1.0, 1.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0])
    assert y.sum() / len(y) == 0.25 and y[y != 0].mean() == 0.5  # L counts L_0 (5.11), n_1 does not
