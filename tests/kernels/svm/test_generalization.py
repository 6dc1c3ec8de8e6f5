"""The bound of learnt kernels: composed from its three steps, and as a function of each argument."""

import math
import re

import numpy as np
import pytest

from gramplane import generalization_bound
from gramplane.pipeline import generalization_bound as same

N, M, MARGIN = 10_000_000, 13, 0.4


def steps(n, m, margin, radius, delta):
    """The three steps of the source one after the other, as logarithms of covering numbers."""
    kappa, epsilon = radius**2, margin / 2

    def kernels(n, epsilon):
        return m * math.log(math.e * n**2 * kappa / (epsilon * m))

    def predictors(n, epsilon):
        power = 64 * kappa / epsilon**2 * math.log(epsilon * math.e * n / (8 * math.sqrt(kappa)))
        return math.log(2) + kernels(n, epsilon**2 / (4 * n)) + power * math.log(16 * n * kappa / epsilon**2)

    return 8 * (1 + predictors(2 * n, epsilon) - math.log(delta)) / n


@pytest.mark.parametrize("n", [10**5, 10**7, 10**9])
@pytest.mark.parametrize("m", [1, 13, 800])
@pytest.mark.parametrize(("margin", "radius", "delta"), [(0.4, 1.0, 0.05), (1.0, 1.0, 1e-6), (2.0, 7.0, 0.5)])
def test_the_bound_is_its_three_steps_put_together(n, m, margin, radius, delta):
    """The number 1 + ln 2 is rounded up to 2, and nothing else."""
    found = generalization_bound(n, m, margin, radius, delta)
    assert found**2 == pytest.approx(steps(n, m, margin, radius, delta) + 8 * (1 - math.log(2)) / n, rel=1e-12)


def test_it_grows_with_kernels_and_confidence_and_falls_with_rows_and_margin():
    base = generalization_bound(N, M, MARGIN)
    assert generalization_bound(N, 10 * M, MARGIN) > base
    assert generalization_bound(N, M, MARGIN, delta=1e-9) > base
    assert generalization_bound(10 * N, M, MARGIN) < base
    assert generalization_bound(N, M, 2 * MARGIN) < base
    assert generalization_bound(N, M, 5 * MARGIN, radius=5.0) == pytest.approx(base, rel=1e-12), "margin and radius have one unit"
    # The price of kernels is added, not multiplied: squares differ by the same for every margin.
    more = [generalization_bound(N, 2 * M, margin) ** 2 - generalization_bound(N, M, margin) ** 2 for margin in (0.4, 0.8)]
    prices = [8 * M / N * (math.log(128 * math.e * N**3 / (margin**2 * M)) - 2 * math.log(2)) for margin in (0.4, 0.8)]
    assert more == pytest.approx(prices, rel=1e-6)
    assert same is generalization_bound


def test_it_says_nothing_where_the_covering_numbers_are_unknown():
    ratio = (1 / MARGIN) ** 2
    assert generalization_bound(int(128 * ratio) - 1, M, MARGIN) == math.inf
    assert 1.0 < generalization_bound(int(128 * ratio) + 1, M, MARGIN) < math.inf
    assert generalization_bound(200, 160_001, 1.0) == math.inf
    assert generalization_bound(200, 160_000, 1.0) < math.inf


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n": 0}, "n=0: must be a whole number, at least 1"),
        ({"n": 1.5}, "n=1.5"),
        ({"m": 0}, "m=0"),
        ({"n": math.inf}, "n=inf: must be a whole number, at least 1"),
        ({"n": math.nan}, "n=nan: must be a whole number"),
        ({"m": math.inf}, "m=inf: must be a whole number"),
        ({"m": -3}, "m=-3: must be"),
        ({"margin": 0.0}, "margin=0.0: must be finite and above 0"),
        ({"margin": math.nan}, "margin=nan"),
        ({"margin": math.inf}, "margin=inf: must be finite and above 0"),
        ({"radius": -1.0}, "radius=-1.0"),
        ({"radius": math.inf}, "radius=inf: must be finite and above 0"),
        ({"radius": math.nan}, "radius=nan"),
        ({"delta": math.nan}, "delta=nan: must be between 0 and 1"),
        ({"delta": math.inf}, "delta=inf"),
        ({"margin": 2.0}, "margin=2.0: must be at most radius=1.0"),
        ({"delta": 0.0}, "delta=0.0: must be between 0 and 1"),
        ({"delta": 1.0}, "delta=1.0"),
    ],
)
def test_bad_arguments_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        generalization_bound(**{"n": N, "m": M, "margin": MARGIN, **given})


@pytest.mark.parametrize("name", ["n", "m", "margin", "radius", "delta"])
@pytest.mark.parametrize("value", ["a", True, None, [3], np.True_, 1j])
def test_arguments_that_are_no_numbers_are_named(name, value):
    with pytest.raises(TypeError, match=re.escape(f"{name}={value!r}: must be a number")):
        generalization_bound(**{"n": N, "m": M, "margin": MARGIN, name: value})


def test_numbers_of_numpy_are_numbers():
    given = generalization_bound(np.int64(N), np.int32(M), np.float32(0.5), np.float64(1.0))
    assert given == generalization_bound(N, M, 0.5) == generalization_bound(float(N), float(M), 0.5)
