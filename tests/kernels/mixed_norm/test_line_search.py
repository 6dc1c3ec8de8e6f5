"""The one-dimensional search on convex functions of known shape, and the penalty along a line."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest

from gramplane.kernels.mixed_norm.line_search import Trial, descend, minimise, penalty_along
from gramplane.kernels.weights.reduced_gradient import reduced_gradient


@dataclass
class Curve:
    """value, slope and curvature from three functions; counts the passes."""

    parts: tuple
    passes: list = field(default_factory=list)

    def at(self, steps):
        self.passes.append(len(steps))
        return [Trial(s, *(float(part(s)) for part in self.parts)) for s in steps]

    def origin(self):
        trial = self.at([0.0])[0]
        self.passes.clear()
        return Trial(0.0, trial.value, trial.slope, np.inf)


def parabola(best):
    return Curve((lambda s: (s - best) ** 2, lambda s: 2 * (s - best), lambda s: 2.0))


def kink(best):
    return Curve((lambda s: abs(s - best) + 0.1 * s, lambda s: np.sign(s - best) + 0.1, lambda s: 0.0))


def hinge(best):
    # Flat piece on the left, steep on the right: squared hinge seen from far away.
    return Curve((lambda s: -s * best + 50 * max(s - best, 0) ** 2, lambda s: -best + 100 * max(s - best, 0), lambda s: 100.0 * (s > best)))


def test_full_step_is_taken_in_one_pass_when_it_is_good():
    curve = parabola(1.2)
    assert descend(curve, curve.origin()).step == 1.0
    assert curve.passes == [1]


@pytest.mark.parametrize("best", [0.3, 0.01, 1e-5])
@pytest.mark.parametrize("shape", [parabola, kink, hinge])
def test_short_minimum_is_found_in_few_passes(shape, best):
    curve = shape(best)
    origin = curve.origin()
    found = descend(curve, origin)
    assert found.value < origin.value
    assert found.value <= min(trial.value for trial in curve.at((np.linspace(0.2, 3, 57) * best).tolist())) + 0.2 * abs(origin.slope) * best
    assert len(curve.passes) <= 12


def test_origin_comes_back_when_nothing_is_lower():
    curve = Curve((lambda s: 1.0 + s, lambda s: 1.0, lambda s: 0.0))
    assert descend(curve, Trial(0.0, 1.0, -1e-30, np.inf)).step == 0.0


@pytest.mark.parametrize("best", [1e-4, 0.5, 40.0])
def test_minimise_has_no_upper_end(best):
    curve = Curve((lambda s: np.cosh(s - best) if s < best + 500 else np.inf, lambda s: np.sinh(s - best), lambda s: np.cosh(s - best)))
    if best == 40.0:
        curve = parabola(best)
    assert minimise(curve).step == pytest.approx(best, rel=0.2)


@pytest.mark.parametrize("best", [1e-3, 0.5])
def test_minimise_goes_back_where_its_first_step_went_too_far(best):
    # Nearly straight up to the minimum: Newton's step from 0 leads to 1 / 0.01, where the function is high.
    parts = (
        lambda s: 0.005 * s * s - s + 50 * max(s - best, 0) ** 2,
        lambda s: 0.01 * s - 1 + 100 * max(s - best, 0),
        lambda s: 0.01 + 100.0 * (s > best),
    )
    found = minimise(Curve(parts))
    assert found.value < 0.0 and abs(found.slope) <= 0.1


def test_minimise_stays_where_it_does_not_fall():
    curve = parabola(-1.0)
    assert minimise(curve).step == 0.0


def test_penalty_has_the_derivatives_of_differences():
    rng = np.random.default_rng(0)
    omega, direction, starts = rng.normal(size=7), rng.normal(size=7), np.array([0, 2, 3, 7])

    def value(s):
        w = omega + s * direction
        return 0.5 * sum(np.linalg.norm(w[a:b]) for a, b in pairwise(starts)) ** 2

    steps = np.array([0.0, 0.4, 1.3])
    found = penalty_along(omega, direction, starts, steps)
    np.testing.assert_allclose(found[0], [value(s) for s in steps])
    np.testing.assert_allclose(found[1], [(value(s + 1e-6) - value(s - 1e-6)) / 2e-6 for s in steps], rtol=1e-6)
    np.testing.assert_allclose(found[2], [(value(s + 1e-4) - 2 * value(s) + value(s - 1e-4)) / 1e-8 for s in steps], rtol=1e-5)


def test_penalty_leaving_zero_has_the_slope_from_the_right():
    found = penalty_along(np.array([3.0, 0.0, 0.0]), np.array([0.0, 3.0, 4.0]), np.array([0, 1, 3]), np.zeros(1))
    np.testing.assert_allclose(found[:, 0], [4.5, 15.0, 25.0])


def test_reduced_gradient_keeps_the_sum_and_stays_in_the_simplex():
    weights, slopes = np.array([0.6, 0.4, 0.0, 0.0]), np.array([-1.0, -3.0, -0.5, -2.0])
    direction = reduced_gradient(weights, slopes)
    np.testing.assert_allclose(direction, [-3.0, 2.0, 0.0, 1.0])
    assert direction @ slopes < 0


def test_a_line_that_is_straight_to_the_last_digit_is_searched_to_an_end():
    """The tangents at both ends are one line, which meets itself nowhere; what is lower by round-off is taken."""
    line = Curve((lambda s: 1.0 - 1e-13 * (s == 0.5) + 1e-13 * (s == 1.0), lambda s: -1e-15, lambda s: np.inf))
    assert descend(line, line.origin()).step == 0.5
