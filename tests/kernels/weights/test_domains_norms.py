"""Sets of kernel weights with a norm: every closed form against a general-purpose solver and its optimality conditions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from gramplane.kernels.weights.domains import BoxSet, ElasticNetSet, L1LpSet, LpBall, NonNegative, Simplex

BOUNDED = [
    *(ElasticNetSet(v) for v in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)),
    *(LpBall(p) for p in (1.0, 1.1, 1.5, 2.0, 3.0, 8.0)),
    *(L1LpSet(v, p) for v, p in ((0.1, 3.0), (0.5, 1.1), (0.5, 8.0), (0.9, 1.5), (0.99, 4.0))),
    BoxSet(2),
]
NAMES = [str(domain) for domain in BOUNDED]
NUMBERS = st.lists(st.floats(-50, 50), min_size=1, max_size=7).map(np.array)
every = pytest.mark.parametrize("domain", BOUNDED, ids=NAMES)


def inside(domain):
    """The set written out, as a constraint of SLSQP."""
    if isinstance(domain, ElasticNetSet):
        return {"type": "ineq", "fun": lambda w: 1 - domain.v * np.sum(w) - (1 - domain.v) * np.sum(w**2)}
    if isinstance(domain, BoxSet):
        return {"type": "ineq", "fun": lambda w: 1 - np.sum(w) / domain.B}
    v = domain.v if isinstance(domain, L1LpSet) else 0.0
    return {"type": "ineq", "fun": lambda w: 1 - v * np.sum(w) - (1 - v) * np.sum(np.maximum(w, 0) ** domain.p)}


def by_slsqp(value, domain, n, least=0.0):
    start = np.full(n, 0.3 / n)
    options = {"ftol": 1e-15, "maxiter": 1000}
    return minimize(value, start, bounds=[(least, 1)] * n, constraints=[inside(domain)], method="SLSQP", options=options).x


def constraint(domain, w):
    return 1 - inside(domain)["fun"](w)


@every
def test_start_has_equal_weights_on_the_boundary(domain):
    for n in (1, 2, 30):
        w = domain.start(n)
        assert np.ptp(w) == 0
        assert constraint(domain, w) == pytest.approx(1.0, abs=1e-13) or (domain == BoxSet(2) and n == 1)
    assert domain.start(1)[0] == pytest.approx(1.0, abs=1e-15)


@every
def test_results_lie_in_the_set(domain):
    rng = np.random.default_rng(0)
    for n in (1, 2, 9, 200):
        w = domain.start(n)
        for size in (0.1, 3.0, 1e4):
            s = size * rng.normal(size=n)
            points = (domain.project(s), domain.mirror(w, s, 2.0), domain.support(s)[1], domain.weights_from_norms(np.abs(s)))
            for point in points:
                assert (point >= 0).all()
                assert domain.violation(point) <= 1e-11


@every
def test_violation_is_positive_outside_only(domain):
    w = domain.start(3)
    assert domain.violation(0.5 * w) == 0
    assert domain.violation(2.0 * w) > 0.1
    assert domain.violation(np.append(0.5 * w, -0.25)) == 0.25


@every
def test_projection_agrees_with_slsqp(domain):
    rng = np.random.default_rng(1)
    for _ in range(4):
        w = rng.normal(size=5)
        wanted = by_slsqp(lambda v, w=w: np.sum((v - w) ** 2), domain, 5)
        np.testing.assert_allclose(domain.project(w), wanted, atol=2e-6)


@settings(max_examples=40, deadline=None)
@given(NUMBERS, st.sampled_from(BOUNDED))
def test_projection_is_the_nearest_point(w, domain):
    found = domain.project(w)
    assert domain.violation(found) <= 1e-11
    # <w - found, x - found> <= 0 for every x of the set: its greatest value is the support of w - found.
    rest = w - found
    assert domain.support(rest)[0] - rest @ found <= 1e-9 * max(1.0, np.abs(w).max()) ** 2
    np.testing.assert_allclose(domain.project(found), found, atol=1e-11)


@every
def test_support_agrees_with_slsqp(domain):
    rng = np.random.default_rng(2)
    for _ in range(4):
        s = rng.normal(size=5) ** 2 + 0.01
        value, best = domain.support(s)
        wanted = by_slsqp(lambda w, s=s: -s @ w, domain, 5)
        assert value == pytest.approx(s @ wanted, rel=1e-7)
        assert value == pytest.approx(s @ best, rel=1e-14)
        assert constraint(domain, best) == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("v", [0.1, 0.5, 0.9, 0.99])
def test_support_has_the_threshold_of_the_elastic_net(v):
    s = np.random.default_rng(3).uniform(size=40)
    best = ElasticNetSet(v).support(s)[1]
    used = best > 0
    z = math.sqrt((4 * (1 - v) + used.sum() * v * v) / np.sum(s[used] ** 2))
    np.testing.assert_allclose(best, np.maximum(0, (z * s - v) / (2 * (1 - v))), atol=1e-12)
    np.testing.assert_array_equal(used, s > v / z)


@pytest.mark.parametrize("v", [0.3, 0.5, 0.8])
def test_support_function_is_the_scalar_dual(v):
    # sigma(s) = min over mu of mu + sum [s - mu v]_+^2 / (4 (1 - v) mu).
    s = np.array([0.4, 1.0, 0.7, 0.05])
    mu = np.linspace(1e-3, 3, 200_001)
    values = mu + (np.maximum(s[:, None] - mu * v, 0) ** 2).sum(axis=0) / (4 * (1 - v) * mu)
    assert ElasticNetSet(v).support(s)[0] == pytest.approx(values.min(), rel=1e-8)


@every
def test_equal_entries_share_equally(domain):
    value, best = domain.support(np.array([2.0, 1.0, 2.0, -3.0, 2.0]))
    assert best[0] == best[2] == best[4] > 0
    assert best[3] == 0
    assert value > 0
    assert domain.violation(best) <= 1e-12


@every
def test_support_without_a_positive_entry(domain):
    value, best = domain.support(np.array([-1.0, -2.0]))
    assert value == 0
    np.testing.assert_array_equal(best, [0, 0])
    value, best = domain.support(np.zeros(3))
    assert value == 0
    np.testing.assert_array_equal(best, domain.start(3))


@every
@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_support_does_not_depend_on_the_unit(domain, size):
    s = np.array([0.5, 1.0, 0.25, -0.5])
    value, best = domain.support(size * s)
    np.testing.assert_allclose(best, domain.support(s)[1], rtol=1e-13)
    assert value == pytest.approx(size * domain.support(s)[0], rel=1e-13)


@every
def test_weights_from_norms_agree_with_slsqp(domain):
    norms = np.array([0.9, 0.0, 0.3, 0.5])
    found = domain.weights_from_norms(norms)
    assert found[1] == 0
    rest = norms[[0, 2, 3]]
    wanted = by_slsqp(lambda w: 0.5 * np.sum(rest**2 / w), domain, 3, 1e-6)
    np.testing.assert_allclose(found[[0, 2, 3]], wanted, atol=2e-5)
    value = 0.5 * np.sum(rest**2 / found[[0, 2, 3]])
    assert value <= 0.5 * np.sum(rest**2 / wanted) * (1 + 1e-9)
    assert constraint(domain, found) == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("v", [0.1, 0.5, 0.9, 0.99])
def test_weights_from_norms_solve_the_cubic(v):
    norms = np.random.default_rng(4).uniform(0.01, 2, size=30)
    w = ElasticNetSet(v).weights_from_norms(norms)
    kappa = (2 * (1 - v) * w**3 + v * w**2) / norms**2
    np.testing.assert_allclose(kappa, kappa[0], rtol=1e-12)


@every
def test_weights_of_zero_norms_are_the_start(domain):
    np.testing.assert_array_equal(domain.weights_from_norms(np.zeros(4)), domain.start(4))


@every
@pytest.mark.parametrize("step", [0.05, 0.7, 5.0])
def test_mirror_step_agrees_with_slsqp(domain, step):
    w, grad = np.array([0.3, 0.2, 0.1]), np.array([1.0, -2.0, 0.5])
    found = domain.mirror(w, grad, step)

    def value(x):
        return step * grad @ x + np.sum(x * np.log(x / w) - x + w)

    wanted = by_slsqp(value, domain, 3, 1e-12)
    assert value(np.maximum(found, 1e-300)) <= value(wanted) + 1e-9
    np.testing.assert_allclose(found, wanted, atol=2e-5)


@every
def test_mirror_survives_huge_gradients_and_keeps_zeros(domain):
    w = np.array([0.5, 0.5, 0.0]) * domain.start(2)[0]
    found = domain.mirror(w, np.array([1e6, -1e6, -1e6]), 1.0)
    np.testing.assert_allclose(found, [0, 1, 0], atol=1e-6)
    assert found[2] == 0


def test_special_cases_are_the_same_sets():
    rng = np.random.default_rng(5)
    for v, p in ((1.0, 1.0), (0.0, 2.0)):
        for _ in range(5):
            s = rng.normal(size=6)
            for name in ("project", "weights_from_norms"):
                given = np.abs(s) if name == "weights_from_norms" else s
                np.testing.assert_allclose(getattr(ElasticNetSet(v), name)(given), getattr(LpBall(p), name)(given), atol=1e-13)
            np.testing.assert_allclose(ElasticNetSet(v).support(s)[1], LpBall(p).support(s)[1], atol=1e-13)
            w = ElasticNetSet(v).start(6)
            np.testing.assert_allclose(ElasticNetSet(v).mirror(w, s, 1.3), LpBall(p).mirror(w, s, 1.3), atol=1e-12)


@pytest.mark.parametrize("v", [0.1, 0.5, 0.9])
def test_the_square_gives_the_elastic_net_and_no_1_norm_the_ball(v):
    rng, pairs = np.random.default_rng(7), ((L1LpSet(v, 2.0), ElasticNetSet(v)), (L1LpSet(1e-13, 1.0 + v), LpBall(1.0 + v)))
    for found, known in pairs:
        for s in rng.normal(size=(5, 6)):
            np.testing.assert_allclose(found.project(s), known.project(s), atol=1e-11)
            np.testing.assert_allclose(found.support(s)[1], known.support(s)[1], atol=1e-11)
            np.testing.assert_allclose(found.weights_from_norms(np.abs(s)), known.weights_from_norms(np.abs(s)), atol=1e-11)
            np.testing.assert_allclose(found.mirror(known.start(6), s, 1.3), known.mirror(known.start(6), s, 1.3), atol=1e-11)


@pytest.mark.parametrize("seed", range(3))
def test_ends_of_the_box(seed):
    """B = 1 is the simplex with sum at most one; from as many weights as kernels on, only the box is left."""
    s = np.random.default_rng(seed).normal(size=5)
    start = ElasticNetSet(1.0).start(5)
    for name in ("project", "support", "weights_from_norms"):
        given = np.abs(s) if name == "weights_from_norms" else s
        one, simplex = (np.hstack(getattr(domain, name)(given)) for domain in (BoxSet(1), ElasticNetSet(1.0)))
        np.testing.assert_allclose(one, simplex, atol=1e-13)
    np.testing.assert_allclose(BoxSet(1).mirror(start, s, 1.3), ElasticNetSet(1.0).mirror(start, s, 1.3), atol=1e-13)
    for B in (5, 9):
        np.testing.assert_array_equal(BoxSet(B).project(3.0 * s), np.clip(3.0 * s, 0, 1))
        assert BoxSet(B).support(s)[0] == pytest.approx(s[s > 0].sum())
        np.testing.assert_array_equal(BoxSet(B).support(s)[1], s > 0)
        np.testing.assert_array_equal(BoxSet(B).weights_from_norms(np.maximum(s, 0.0)), s > 0)
        np.testing.assert_array_equal(BoxSet(B).start(5), np.ones(5))


def test_the_set_grows_as_v_falls():
    s = np.random.default_rng(6).uniform(size=20)
    values = [ElasticNetSet(v).support(s)[0] for v in np.linspace(0, 1, 11)]
    assert np.all(np.diff(values) <= 1e-15)
    assert values[-1] == s.max()
    assert values[0] == pytest.approx(np.linalg.norm(s))


def test_nearly_one_is_nearly_the_simplex():
    s = np.array([0.3, 1.0, 1.0, 0.99])
    for v in (1 - 1e-9, np.nextafter(1.0, 0.0)):
        value, best = ElasticNetSet(v).support(s)
        assert value == pytest.approx(1.0, abs=1e-8)
        np.testing.assert_allclose(best, [0, 0.5, 0.5, 0], atol=1e-6)


def test_the_cone_of_non_negative_weights():
    cone = NonNegative()
    np.testing.assert_array_equal(cone.project(np.array([1.0, -2.0])), [1, 0])
    assert cone.support(np.array([-1.0, 0.0]))[0] == 0
    value, ray = cone.support(np.array([1.0, 3.0, 3.0]))
    assert value == math.inf
    np.testing.assert_array_equal(ray, [0, 0.5, 0.5])
    np.testing.assert_allclose(cone.mirror(np.array([2.0, 0.0]), np.array([1.0, -1e9]), 0.5), [2 * math.exp(-0.5), 0])
    with pytest.raises(ValueError, match="overflows"):
        cone.mirror(np.array([1.0, 1.0]), np.array([-1e9, 0.0]), 1.0)


def test_the_simplex_takes_norms():
    np.testing.assert_allclose(Simplex().weights_from_norms(np.array([1.0, 3.0])), [0.25, 0.75])
    assert Simplex().violation(np.array([0.5, 0.6])) == pytest.approx(0.1)
    assert Simplex().violation(np.array([-0.5, 1.5])) == 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ElasticNetSet(1.5), r"v=1\.5: must lie between 0 and 1"),
        (lambda: ElasticNetSet(math.nan), "v=nan"),
        (lambda: LpBall(0.5), r"p=0\.5: must be at least 1"),
        (lambda: LpBall(math.inf), "p=inf"),
        (lambda: BoxSet(0), "B=0: must be at least 1"),
        (lambda: L1LpSet(1.0, 2.0), r"v=1\.0: must lie between 0 and 1, both excluded"),
        (lambda: L1LpSet(0.5, 1.0), r"p=1\.0: must be above 1"),
        (lambda: LpBall(2.0).weights_from_norms(np.array([-1.0, 1.0])), "norms: must be finite and not negative"),
        (lambda: ElasticNetSet(0.5).weights_from_norms(np.array([np.nan, 1.0])), "norms"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
