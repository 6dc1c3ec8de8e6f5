"""Cut weights, level projections and reduced-gradient steps, alone and inside whole runs, against general-purpose solvers."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import linprog

from gramplane.kernels.weights.domains import BoxSet, ElasticNetSet, L1LpSet, LpBall, NonNegative, Simplex
from gramplane.kernels.weights.level_programs import Cuts, lower_bound, project_on_level
from gramplane.kernels.weights.reduced_gradient import clip_direction, longest_step, reduced_step
from tests.support.oracles.mkl import dual_optimum, level_projection, lowest_height, machine, primal_optimum, random_problem

DOMAINS = (
    [ElasticNetSet(v) for v in (0.0, 0.3, 0.5, 0.9, 0.99, 1.0)] + [LpBall(p) for p in (1.0, 1.3, 3.0)] + [L1LpSet(0.5, 3.0), BoxSet(2)]
)
every = pytest.mark.parametrize("domain", DOMAINS, ids=map(str, DOMAINS))
BALANCES = (0.0, 0.3, 0.5, 0.8, 1.0)


def response_gap(theta, s, domain):
    """1/2 (sigma(s) - <s, theta>) >= J(theta) - min J for the quadratic forms s of the machine at theta."""
    return 0.5 * (domain.support(s)[0] - float(s @ theta))


def written_out(domain):
    if isinstance(domain, ElasticNetSet):
        return lambda w: 1 - domain.v * np.sum(w) - (1 - domain.v) * np.sum(w**2)
    if isinstance(domain, BoxSet):
        return lambda w: domain.B - np.sum(w)
    v = domain.v if isinstance(domain, L1LpSet) else 0.0
    return lambda w: 1 - v * np.sum(w) - (1 - v) * np.sum(np.maximum(w, 0) ** domain.p)


def random_cuts(seed, t=9, Q=6):
    """Tangents of a convex function of the weights, so that every one of them matters somewhere."""
    rng = np.random.default_rng(seed)
    S = rng.uniform(0.2, 2.0, size=(t, Q)) * rng.uniform(0.5, 2.0, size=(t, 1))
    return Cuts(2.0 + 0.5 * S.mean(axis=1) + 0.1 * rng.normal(size=t), S)


def mkl_cuts(seed, t=12, Q=30):
    """Cuts of a kernel ridge dual, many of them nearly equal, as the end of a run has them."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(40, Q)), np.sign(rng.normal(size=40))
    grams = np.exp(-((X[:, None] - X[None]) ** 2)).transpose(2, 0, 1)
    made = []
    for _ in range(t):
        theta = rng.uniform(size=Q) ** 4
        alpha = np.linalg.solve(np.tensordot(theta / theta.sum(), grams, 1) + np.eye(40), y)
        made.append((alpha @ y - 0.5 * alpha @ alpha, np.einsum("i,qij,j->q", alpha, grams, alpha)))
    return Cuts(np.array([c for c, _ in made]), np.array([s for _, s in made]))


# -- lower bound -----------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("make", [random_cuts, mkl_cuts])
def test_lower_bound_agrees_with_slsqp(domain, make):
    for seed in range(2):
        cuts = make(seed)
        found = lower_bound(cuts, domain)
        wanted, theta = lowest_height(cuts.c, cuts.S, written_out(domain), cuts.S.shape[1])
        # SLSQP leaves the set by its tolerance; at a point of the set the bound must hold to round-off.
        inside = cuts.height(domain.project(theta))
        assert found.value <= inside + 1e-12
        assert found.value == pytest.approx(wanted, abs=max(1e-6, 2.0 * (inside - wanted)))
        assert found.gap <= 1e-8 * np.abs(cuts.c).max()


@every
def test_lower_bound_certifies_itself(domain):
    cuts = mkl_cuts(4)
    found = lower_bound(cuts, domain)
    assert (found.p >= 0).all()
    assert found.p.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.value == pytest.approx(cuts.c @ found.p - 0.5 * domain.support(found.p @ cuts.S)[0], abs=1e-14)
    assert cuts.height(found.theta) - found.value == pytest.approx(found.gap, abs=1e-14)
    assert domain.violation(found.theta) <= 1e-12


@every
def test_any_cut_weights_bound_from_below(domain):
    cuts, rng = random_cuts(5), np.random.default_rng(5)
    best = lower_bound(cuts, domain).value
    for _ in range(20):
        p = rng.dirichlet(np.full(len(cuts.c), 0.3))
        assert cuts.c @ p - 0.5 * domain.support(p @ cuts.S)[0] <= best + 1e-8


@every
def test_lower_bound_from_a_shorter_warm_start(domain):
    cuts = random_cuts(6)
    before = lower_bound(Cuts(cuts.c[:-2], cuts.S[:-2]), domain)
    warm, cold = lower_bound(cuts, domain, before.p), lower_bound(cuts, domain)
    assert warm.value == pytest.approx(cold.value, abs=1e-7)
    assert warm.value >= before.value - 1e-7
    again = lower_bound(cuts, domain, cold.p, tol=1e-6)
    assert again.gap <= 1e-6 * np.abs(cuts.c).max()


@every
def test_one_cut_and_cuts_without_slope(domain):
    one = Cuts(np.array([2.0]), np.array([[1.0, 3.0, 0.0]]))
    assert lower_bound(one, domain).value == pytest.approx(2.0 - 0.5 * domain.support(one.S[0])[0], abs=1e-12)
    flat = Cuts(np.array([1.0, 3.0]), np.zeros((2, 3)))
    assert lower_bound(flat, domain).value == pytest.approx(3.0, abs=1e-7)


def test_lower_bound_over_the_simplex_has_weights_with_sum_one():
    cuts = random_cuts(7)
    found, below = lower_bound(cuts, Simplex()), lower_bound(cuts, ElasticNetSet(1.0))
    assert found.theta.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.value == pytest.approx(below.value, abs=1e-8)
    # With rising cuts zero weights are best, which the simplex does not have.
    rising = Cuts(cuts.c, -cuts.S)
    assert lower_bound(rising, ElasticNetSet(1.0)).value == pytest.approx(cuts.c.max(), abs=1e-8)
    assert lower_bound(rising, Simplex()).value > cuts.c.max() + 0.01


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_lower_bound_does_not_depend_on_the_unit(unit):
    cuts = random_cuts(8)
    for domain in DOMAINS:
        found = lower_bound(Cuts(unit * cuts.c, unit * cuts.S), domain)
        assert found.value == pytest.approx(unit * lower_bound(cuts, domain).value, rel=1e-7)


# -- projection ------------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("make", [random_cuts, mkl_cuts])
@pytest.mark.parametrize("tau", [0.02, 0.3, 0.9])
def test_projection_agrees_with_slsqp_and_satisfies_every_constraint(domain, make, tau):
    cuts = make(1)
    theta0, low = domain.start(cuts.S.shape[1]), lower_bound(cuts, domain)
    level = low.value + tau * (cuts.height(theta0) - low.value)
    found = project_on_level(theta0, cuts, level, domain, inside=low.theta)
    assert cuts.height(found.theta) <= level + 1e-8
    assert domain.violation(found.theta) <= 1e-8
    wanted = level_projection(theta0, cuts.c, cuts.S, level, written_out(domain), low.theta)
    distance = 0.5 * np.sum((wanted - theta0) ** 2)
    assert found.distance == pytest.approx(distance, rel=1e-4, abs=1e-9)
    np.testing.assert_allclose(found.theta, wanted, atol=3e-3 * max(1e-2, np.sqrt(2 * distance)))


@every
def test_projection_certifies_itself(domain):
    cuts, theta0 = random_cuts(2), domain.start(6)
    low = lower_bound(cuts, domain)
    level = low.value + 0.3 * (cuts.height(theta0) - low.value)
    found = project_on_level(theta0, cuts, level, domain)
    # Weak duality, written out: the least of distance + rho'(cuts - level) over the set is at the projection of theta0 + S'rho / 2.
    at = domain.project(theta0 + 0.5 * found.rho @ cuts.S)
    dual = 0.5 * np.sum((at - theta0) ** 2) + found.rho @ (cuts.values(at) - level)
    assert (found.rho >= 0).all()
    assert found.distance - dual == pytest.approx(found.gap, abs=1e-12)
    assert found.gap <= 1e-5 * found.distance
    again = project_on_level(theta0, cuts, level, domain, found.rho)
    np.testing.assert_allclose(again.theta, found.theta, atol=1e-4)
    assert again.iterations <= found.iterations


@every
def test_a_point_below_the_level_is_its_own_projection(domain):
    cuts, theta0 = random_cuts(3), domain.start(6)
    found = project_on_level(theta0, cuts, cuts.height(theta0) + 0.1, domain)
    np.testing.assert_allclose(found.theta, theta0, atol=1e-12)
    assert found.iterations == 0
    np.testing.assert_array_equal(found.rho, 0)


def test_projection_works_on_every_set_that_projects():
    cuts = random_cuts(4)
    low = lower_bound(cuts, Simplex())
    found = project_on_level(Simplex().start(6), cuts, low.value + 0.01, Simplex(), inside=low.theta)
    assert Simplex().violation(found.theta) <= 1e-8
    free = project_on_level(np.zeros(6), cuts, 1.0, NonNegative(), inside=np.full(6, 100.0))
    assert cuts.height(free.theta) <= 1.0 + 1e-8


# -- whole runs ------------------------------------------------------------------------------------------------------------


def level_run(problem, domain, tau=0.3, tol=1e-4, project=True, limit=80):
    """The level method, or cutting planes without projection; machines by SLSQP. Rows (lower, upper), best theta, forms there."""
    theta, rows = domain.start(len(problem.features)), []
    c, S, lower, upper, best, p, rho = [], [], -np.inf, np.inf, None, None, None
    for _ in range(limit):
        value, alpha, s = machine(problem, theta)
        c.append(alpha.sum())
        S.append(s)
        if value < upper:
            upper, best = value, (theta, s)
        cuts = Cuts(np.array(c), np.array(S))
        low = lower_bound(cuts, domain, p)
        lower, p = max(lower, low.value), low.p
        rows.append((lower, upper))
        if upper - lower <= tol * upper:
            break
        if project:
            at = project_on_level(theta, cuts, lower + tau * (upper - lower), domain, rho, inside=low.theta)
            theta, rho = at.theta, at.rho
        else:
            theta = low.theta
    return np.array(rows), *best


@dataclass(frozen=True)
class At:
    """J at a point of the simplex."""

    weights: np.ndarray
    value: float
    slopes: np.ndarray


def machine_at(problem):
    def evaluate(weights, _):
        weights = np.where(weights > 1e-12, weights, 0.0)
        weights = weights / weights.sum()
        value, _, s = machine(problem, weights)
        return At(weights, value, -0.5 * s)

    return evaluate


def simple_run(problem, tol=1e-4, limit=60, flat=0.1):
    evaluate, values = machine_at(problem), []
    at = evaluate(Simplex().start(len(problem.features)), None)
    for _ in range(limit):
        values.append(at.value)
        if response_gap(at.weights, -2 * at.slopes, Simplex()) <= tol * at.value:
            break
        at = reduced_step(at, evaluate, flat=flat)
    return at, values


@pytest.fixture(scope="module")
def optima():
    return {(seed, v): dual_optimum(random_problem(seed, v=v))[0] for seed in (0, 1) for v in BALANCES}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("v", BALANCES)
def test_level_method_brackets_and_reaches_the_optimum(optima, seed, v):
    rows, theta, s = level_run(random_problem(seed, v=v), ElasticNetSet(v))
    best = optima[seed, v]
    if seed == 0:  # the bracket holds the optimum of the primal, too, which a second general solver finds
        assert rows[-1, 0] - 1e-7 <= primal_optimum(random_problem(0, v=v))[0] <= rows[-1, 1] + 1e-7
    assert (rows[:, 0] <= best + 1e-7).all()
    assert (rows[:, 1] >= best - 1e-7).all()
    assert (np.diff(rows[:, 1] - rows[:, 0]) <= 1e-9).all()
    assert rows[-1, 1] - rows[-1, 0] <= 1e-4 * rows[-1, 1]
    assert len(rows) <= 30
    assert response_gap(theta, s, ElasticNetSet(v)) >= rows[-1, 1] - best - 1e-7


@pytest.mark.parametrize("v", BALANCES)
def test_cutting_planes_without_projection_reach_it_too(optima, v):
    rows, _, _ = level_run(random_problem(0, v=v), ElasticNetSet(v), project=False)
    assert rows[-1, 1] == pytest.approx(optima[0, v], rel=1.1e-4)


@pytest.mark.parametrize("seed", [0, 1])
def test_simplemkl_reaches_the_optimum_of_the_simplex(optima, seed):
    at, values = simple_run(random_problem(seed))
    assert at.value == pytest.approx(optima[seed, 1.0], rel=1.1e-4)
    assert at.value >= optima[seed, 1.0] - 1e-7
    assert (np.diff(values) < 0).all()
    assert at.weights.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("v", [0.0, 0.5])
def test_alternation_reaches_the_optimum(optima, v):
    problem, domain = random_problem(0, v=v), ElasticNetSet(v)
    theta, values = domain.start(6), []
    for _ in range(80):
        value, _, s = machine(problem, theta)
        values.append(value)
        if response_gap(theta, s, domain) <= 1e-5 * value:
            break
        theta = domain.weights_from_norms(theta * np.sqrt(s))
    assert (np.diff(values) <= 1e-9).all()
    assert values[-1] == pytest.approx(optima[0, v], rel=1.1e-5)
    np.testing.assert_allclose(theta, domain.support(s)[1], atol=0.02)


def test_equal_kernels_get_equal_weights_and_a_zero_kernel_none():
    problem = random_problem(2)
    twins = replace(problem, features=[problem.features[0], *problem.features[:4], np.zeros((14, 4))])
    rows, theta, _ = level_run(twins, ElasticNetSet(0.5), tol=1e-6)
    assert rows[-1, 1] - rows[-1, 0] <= 1e-6 * rows[-1, 1]
    assert theta[0] == pytest.approx(theta[1], abs=1e-9)
    assert theta[5] <= 1e-6


def test_permuted_kernels_permute_the_weights_and_scaled_ones_keep_them():
    problem, domain, order = random_problem(3), ElasticNetSet(0.5), [3, 0, 5, 1, 4, 2]
    _, theta, _ = level_run(problem, domain, tol=1e-6)
    _, moved, _ = level_run(replace(problem, features=[problem.features[q] for q in order]), domain, tol=1e-6)
    np.testing.assert_allclose(moved, theta[order], atol=1e-3)
    rows, scaled, _ = level_run(replace(problem, features=[2 * F for F in problem.features], C=0.25), domain, tol=1e-6)
    np.testing.assert_allclose(scaled, theta, atol=1e-3)
    assert 4 * rows[-1, 1] == pytest.approx(level_run(problem, domain, tol=1e-6)[0][-1, 1], rel=1e-6)


def test_one_kernel_has_weight_one():
    problem = random_problem(4, Q=1)
    for v in BALANCES:
        rows, theta, _ = level_run(replace(problem, v=v), ElasticNetSet(v))
        assert len(rows) == 1
        assert theta[0] == pytest.approx(1.0, abs=1e-14)


# -- steps of SimpleMKL ----------------------------------------------------------------------------------------------------


def quadratic(A, b):
    return lambda w, _: At(w, float(0.5 * w @ A @ w + b @ w), A @ w + b)


def test_longest_step_reaches_the_border_and_the_border_direction_stays_there():
    weights, direction = np.array([0.5, 0.3, 0.2]), np.array([0.4, -0.1, -0.3])
    reach = longest_step(weights, direction)
    assert reach == pytest.approx(2 / 3)
    at = np.array([0.7, 0.3, 0.0])
    kept = clip_direction(at, direction)
    np.testing.assert_allclose(kept, [0.1, -0.1, 0.0], atol=1e-15)
    assert kept.sum() == pytest.approx(0.0, abs=1e-15)


def test_a_border_direction_falls_somewhere_however_small_its_entries_are():
    """What the greatest weight gives up is the sum of the others, not what rounding leaves of its own entry."""
    kept = clip_direction(np.array([0.7, 0.3, 0.0]), np.array([0.4, 1e-20, -0.3]))
    np.testing.assert_array_equal(kept, [-1e-20, 1e-20, 0.0])
    assert longest_step(np.array([0.7, 0.3, 0.0]), kept) == pytest.approx(7e19)


def test_reduced_steps_minimise_a_quadratic_over_the_simplex():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(6, 6))
    A, b = F @ F.T + 0.1 * np.eye(6), rng.normal(size=6)
    evaluate = quadratic(A, b)
    at = evaluate(Simplex().start(6), None)
    for _ in range(400):
        after = reduced_step(at, evaluate)
        assert after.value <= at.value + 1e-13
        assert Simplex().violation(after.weights) <= 1e-9
        at = after
    # Optimality: the gradient is least, and equal, where the weight is.
    used = at.weights > 1e-6
    assert (at.slopes[used] <= at.slopes.min() + 1e-4).all()


def test_a_linear_function_ends_in_a_vertex_by_border_steps_alone():
    slopes = np.array([3.0, 1.0, 2.0])
    calls = []

    def evaluate(weights, near):
        calls.append(near)
        clean = np.where(np.abs(weights) < 1e-15, 0.0, weights)
        return At(clean, float(clean @ slopes), slopes)

    start = At(np.array([0.4, 0.3, 0.3]), float(slopes @ [0.4, 0.3, 0.3]), slopes)
    at = reduced_step(start, evaluate)
    at = reduced_step(at, evaluate)
    np.testing.assert_allclose(at.weights, [0, 1, 0], atol=1e-12)
    assert reduced_step(at, evaluate) is at
    assert calls[0] is start


# -- bad input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda cuts: Cuts(np.ones(2), np.ones((3, 4))), r"cuts: c of shape \(2,\) and S of shape \(3, 4\)"),
        (lambda cuts: Cuts(np.ones(0), np.ones((0, 4))), "not empty"),
        (lambda cuts: Cuts(np.array([np.nan]), np.ones((1, 4))), "cuts: must be finite"),
        (lambda cuts: lower_bound(cuts, NonNegative()), "must be a Simplex, a BoxSet, an ElasticNetSet, an LpBall or an L1LpSet"),
        (lambda cuts: lower_bound(cuts, LpBall(2.0), np.ones(20)), r"warm: shape \(20,\)"),
        (lambda cuts: lower_bound(cuts, LpBall(2.0), np.full(3, np.inf)), "warm"),
        (lambda cuts: project_on_level(np.ones(5), cuts, 1.0, LpBall(2.0)), r"theta0: shape \(5,\), must be \(6,\)"),
        (lambda cuts: project_on_level(np.ones(6), cuts, 1.0, LpBall(2.0), -np.ones(3)), "warm"),
        (lambda cuts: project_on_level(np.zeros(6), cuts, -99.0, LpBall(2.0)), r"level=-99\.0: must be at least"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(random_cuts(0))


@pytest.mark.parametrize("failures", [1, 3])
def test_a_program_that_is_given_up_leaves_a_bound_that_holds(monkeypatch, failures):
    rng = np.random.default_rng(4)
    cuts, domain = Cuts(rng.normal(size=5), rng.random((5, 4))), Simplex()
    exact, calls = lower_bound(cuts, domain), []

    def giving_up(**program):
        calls.append(program["method"])
        found = linprog(**program)
        return SimpleNamespace(status=15) if len(calls) <= failures else found

    monkeypatch.setattr("scipy.optimize.linprog", giving_up)
    found = lower_bound(cuts, domain)
    assert len(calls) == min(failures + 1, 3)
    assert found.value <= exact.value + 1e-9
    assert found.value + found.gap >= exact.value - 1e-9
    if failures == 1:
        assert found.value == pytest.approx(exact.value, abs=1e-6)
