"""docs/theory/corrections.md, generalized multiple kernel learning: printed statements fail here, what stands in their place holds."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gramplane.kernels.svm.dual import DenseGram, svc_problem
from gramplane.kernels.svm.smo import solve_smo
from gramplane.kernels.weights.domains import ElasticNetSet
from gramplane.kernels.weights.level_programs import Cuts, lower_bound, project_on_level
from tests.support.oracles.mkl import dual_optimum, random_problem


def machine(problem, theta):
    """J, the quadratic forms and the coefficients of the machine at theta."""
    found = solve_smo(DenseGram(np.tensordot(theta, problem.grams, 1)), svc_problem(problem.y, problem.C), tol=1e-8)
    s = np.einsum("i,qij,j->q", found.beta, problem.grams, found.beta)
    return found.objective, s, found


def level(problem, tau, gap, limit, stop_at=None):
    """Upper values, the bracket and the weights of the level method; ``stop_at``: the thesis' rule, largest change of a weight."""
    domain = ElasticNetSet(problem.v)
    theta, c, S, values, gaps = domain.start(len(problem.features)), [], [], [], []
    while len(values) < limit:
        J, s, found = machine(problem, theta)
        values.append(J)
        c.append(problem.y @ found.beta)
        S.append(s)
        cuts = Cuts(np.array(c), np.array(S))
        low, high = lower_bound(cuts, domain).value, min(values)
        gaps.append(high - low)
        if gaps[-1] <= gap * max(1.0, high):
            break
        height = tau(gaps[-1] / high) if callable(tau) else tau
        new = project_on_level(theta, cuts, low + height * gaps[-1], domain).theta
        moved, theta = np.abs(new - theta).max(), new
        if stop_at is not None and moved < stop_at:
            break
    return np.array(values), np.array(gaps), theta


def test_decisions_carry_the_labels():
    problem = random_problem(0)
    theta = ElasticNetSet(0.5).start(6)
    K = np.tensordot(theta, problem.grams, 1)
    _, _, found = machine(problem, theta)
    alpha = problem.y * found.beta
    assert np.all(alpha >= -1e-12)
    free = (alpha > 1e-6) & (alpha < problem.C - 1e-6)
    assert free.any()
    margins = problem.y * (K @ (alpha * problem.y) + found.bias)
    np.testing.assert_allclose(margins[free], 1.0, atol=1e-5)
    assert np.abs(problem.y * (K @ alpha + found.bias) - 1.0)[free].max() > 0.1  # (6.3) as printed


def test_mean_and_sum_of_losses_are_different_problems():
    problem = random_problem(0)
    theta, n = ElasticNetSet(0.5).start(6), len(problem.y)
    total, mean = machine(problem, theta)[0], machine(replace(problem, C=problem.C / n), theta)[0]
    assert mean < 0.9 * total
    assert machine(replace(problem, C=problem.C / n * n), theta)[0] == pytest.approx(total, rel=1e-12)


def test_the_gap_bounds_the_best_point_and_not_every_point():
    problem = random_problem(0)
    values, gaps, _ = level(problem, 0.5, 1e-4, 40)
    best = dual_optimum(problem)[0]
    for t in range(len(gaps)):
        assert values[: t + 1].min() - best <= gaps[t] + 1e-6  # of the best point so far
    assert np.any(values[0] - best > gaps[1:] + 0.1)  # Theorem 11(3), of every i <= t


def test_a_slack_optimum_where_no_form_is_positive():
    """K_q = 11' on balanced labels: y'alpha = 0 makes every form zero, so that every theta is optimal, theta = 0 too."""
    y = np.array([1.0, -1.0, 1.0, -1.0])
    problem = replace(random_problem(0, N=4), features=[np.ones((4, 1))] * 2, y=y)
    values = [machine(problem, np.array(theta))[0] for theta in ([0.0, 0.0], [0.1, 0.0], [0.5, 0.5])]
    np.testing.assert_allclose(values, 4.0, rtol=1e-9)
    # With a positive form a slack point is never optimal.
    other = random_problem(1)
    tight = ElasticNetSet(0.5).start(6)
    assert machine(other, 0.5 * tight)[0] > machine(other, tight)[0] + 1e-3


def test_a_high_level_takes_more_machines_and_its_small_steps_stop_it_early():
    problem = random_problem(0)
    low = level(problem, 0.3, 1e-4, 40)[1]
    high = level(problem, lambda gap: 0.99 if gap < 0.01 else 0.9, 1e-4, 40)[1]
    assert len(low) <= 12 and len(high) == 40 and high[-1] > 10 * low[-1]

    def c(tau):
        return 1 / ((1 - tau) ** 2 * tau * (2 - tau))

    assert c(1 - np.sqrt(0.5)) == pytest.approx(4.0) and c(0.9) > 100 and c(0.99) > 1e4
    assert all(c(a) < c(b) for a, b in pairwise(np.linspace(0.3, 0.99, 50)))
    # The rule on the change of the weights, 0.001, ends such steps where the gap is still a hundred times what was asked for.
    gaps = level(problem, lambda gap: 0.99 if gap < 0.01 else 0.9, 1e-4, 40, stop_at=1e-3)[1]
    assert len(gaps) < 20 and gaps[-1] > 1e-2


def test_squared_and_plain_norm_make_different_sets():
    v, theta = 0.5, np.array([0.6, 0.0])
    domain = ElasticNetSet(v)
    plain = v * theta.sum() + (1 - v) * np.linalg.norm(theta)
    squared = v * theta.sum() + (1 - v) * theta @ theta
    assert plain == pytest.approx(0.6) and squared == pytest.approx(0.48)
    c = domain.start(4)[0]
    assert (1 - v) * 4 * c**2 + v * 4 * c == pytest.approx(1.0)
    assert v * 4 * c + (1 - v) * 2 * c != pytest.approx(1.0, abs=1e-2)
    # (6.17) belongs to the square: with the plain norm the maximiser of <s, theta> has no threshold of the form s_q <= v / z.
    assert domain.violation(np.full(4, 1.02 * c)) > 0 >= domain.violation(np.full(4, c)) - 1e-12


def test_the_argument_of_the_sign_has_mean_zero_and_the_labels_do_not():
    rng = np.random.default_rng(0)
    f1 = lambda a: -2 * np.sin(2 * a) + 1 - np.cos(2)  # noqa: E731
    X = rng.random((200_000, 3))
    total = f1(X).sum(axis=1)
    assert total.mean() == pytest.approx(0.0, abs=0.01)
    labels = np.sign(total + rng.normal(size=len(X)))
    assert abs(labels.mean()) > 0.01
