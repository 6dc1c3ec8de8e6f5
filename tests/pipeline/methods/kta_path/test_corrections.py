"""docs/theory/corrections.md, the kernel selection path: printed statements fail here, what stands in their place holds."""

import numpy as np
import pytest

from gramplane.kernels.alignment.path import EUCLIDEAN, KL, AlignmentProblem, weights_at
from gramplane.kernels.alignment.path_weights import weight_derivatives
from tests.support.oracles import kta


def terms(this, eta, p):
    lam1, lam2, F, log = this.lam1, this.lam2, this.divergence, np.log(eta)
    first = weight_derivatives(this, eta, p)[0]
    mixed = 2 * eta ** (p - 2) * (2 * p - 1 + p * p * log - p * log) * first
    rest = mixed + eta ** (p - 1) * log * (2 + p * log)
    return lam1 / lam2 * F.third(eta), p * (p - 1) * (p - 2) * eta ** (p - 3), first, rest


@pytest.mark.parametrize(("divergence", "centre"), [(EUCLIDEAN, 0.1), (KL, 0.2)])
def test_the_second_derivative_takes_a_bracket_and_the_second_derivative_of_F(divergence, centre):
    """A.3.4: (F''' + p (p - 1)(p - 2) eta^(p - 3)) eta'^2, D with F''. For F = x^2 the printed D has F''' = 0, for KL F''' < 0."""
    this, p, h = AlignmentProblem(0.7, 2.0, divergence, centre), 1.6, 3e-4
    a = np.array([0.8, 2.0, 5.0])
    before, eta, after = (weights_at(this, a, s) for s in (p - h, p, p + h))
    slope = (after - 2 * eta + before) / h**2
    third, power, first, rest = terms(this, eta, p)
    own, curve = this.lam2 * p * (p - 1) * eta ** (p - 2), this.lam1 * this.divergence.second(eta)
    right = -this.lam2 / (own + curve) * ((third + power) * first**2 + rest)
    np.testing.assert_allclose(right, slope, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(weight_derivatives(this, eta, p)[1], slope, rtol=1e-3, atol=1e-5)
    without_bracket = -this.lam2 / (own + curve) * (third + power * first**2 + rest)
    third_in_D = -this.lam2 / (own + this.lam1 * this.divergence.third(eta)) * ((third + power) * first**2 + rest)
    assert np.abs(third_in_D - slope).max() > 0.05
    if divergence is KL:
        assert np.abs(without_bracket - slope).max() > 0.05


def test_without_divergence_the_path_has_no_point_at_one():
    """Theorem 7.3.1 calls the path unique: with lam1 = 0, p = 1, y'Ky = lam2 every weight has the value 0, and above no value is least."""
    for eta in (0.0, 1.0, 7.0):
        assert kta.objective([eta], [2.0], 1.0, 0.0, 2.0, "euclidean", 0.0) == 0.0
    assert kta.objective([7.0], [3.0], 1.0, 0.0, 2.0, "euclidean", 0.0) == -7.0
    with pytest.raises(ValueError, match="no unique solution"):
        weights_at(AlignmentProblem(0.0, 2.0), np.array([2.0]), 1.0)


def test_the_lead_on_arcene_is_ten_points():
    """Text: 11 % higher than the closest. Table 7.2 has 92.00, and 82.00 for the closest, SMO-MKL; 11 is over PF-l1-MKL, 81.00."""
    own, others = 92.0, {"Centered-KTA": 75.0, "SMO-MKL": 82.0, "BAHSIC": 69.0, "PF-l1-MKL": 81.0, "PF-l1-SVM": 77.0}
    assert own - max(others.values()) == 10.0 and own - others["PF-l1-MKL"] == 11.0
