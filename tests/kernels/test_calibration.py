"""Sigmoids and steps from decision values to probabilities, against scikit-learn's."""

import numpy as np
import pytest
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss
from sklearn.metrics import log_loss as peer_log_loss

from gramplane.kernels.calibration import fit_sigmoid, fit_steps, logistic
from gramplane.pipeline.models.calibration import Calibration, brier_score, class_probabilities, fit_calibration, log_loss


def values(seed, n, scale=1.0):
    rng = np.random.default_rng(seed)
    f = scale * rng.normal(size=n)
    positive = f + scale * rng.normal(size=n) > 0.3 * scale
    positive[:2] = False, True
    return f, positive, rng.uniform(0.2, 3.0, n)


@pytest.mark.parametrize("n", [6, 50, 2000])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 20.0, 1e3])
def test_sigmoids_are_those_of_scikit_learn(n, scale):
    f, positive, weight = values(n, n, scale)
    a, b = fit_sigmoid(f, positive, weight)
    peer = _SigmoidCalibration().fit(f, positive.astype(float), weight)
    np.testing.assert_allclose(logistic(-(a * f + b)), peer.predict(f), atol=1e-6)
    # Where its own optimum is: no step lowers the loss.
    up, down = weight[positive].sum(), weight[~positive].sum()
    target = np.where(positive, (up + 1) / (up + 2), 1 / (down + 2))
    slopes = weight * (target - logistic(-(a * f + b)))
    assert abs(slopes.sum()) <= 1e-9 * weight.sum()
    assert abs(slopes @ (f / scale)) <= 1e-8 * weight.sum()


def test_a_sigmoid_of_values_that_are_separated_or_all_alike_is_finite():
    ends = np.array([-1.0, -0.9, 0.9, 1.0])
    a, b = fit_sigmoid(ends, ends > 0, np.ones(4))
    assert np.isfinite([a, b]).all() and a < 0
    np.testing.assert_allclose(logistic(-(a * ends + b)), [0.25, 0.25, 0.75, 0.75], atol=0.03)
    a, b = fit_sigmoid(np.zeros(5), np.arange(5) < 2, np.ones(5))
    # The mean of the targets 3/4 and 1/5: nothing else is known.
    np.testing.assert_allclose(logistic(np.array([-b])), (2 * 0.75 + 3 * 0.2) / 5, atol=1e-9)


@pytest.mark.parametrize("n", [2, 50, 2000])
def test_steps_are_those_of_scikit_learn(n):
    f, positive, weight = values(n, n)
    f = np.round(f, 2)  # ties
    corners, levels = fit_steps(f, positive, weight)
    peer = IsotonicRegression(out_of_bounds="clip").fit(f, positive.astype(float), weight)
    grid = np.linspace(f.min() - 1, f.max() + 1, 999)
    np.testing.assert_allclose(np.interp(grid, corners, levels), peer.predict(grid), atol=1e-12)
    assert np.all(np.diff(levels) >= 0) and len(corners) <= len(np.unique(f))


def test_large_values_do_not_overflow():
    with np.errstate(all="raise", under="ignore"):
        p = logistic(np.array([-1e4, -40.0, 0.0, 40.0, 1e4]))
    np.testing.assert_allclose(p, [0.0, np.exp(-40.0), 0.5, 1.0, 1.0], rtol=1e-12)


def test_probabilities_of_one_machine_keep_their_precision_near_zero():
    p = class_probabilities(Calibration("logistic"), np.array([[-50.0], [50.0]]))
    np.testing.assert_allclose(p, [[1.0, np.exp(-50.0)], [np.exp(-50.0), 1.0]], rtol=1e-12)


def test_several_machines_are_divided_by_their_sum_and_all_zero_is_uniform():
    rng = np.random.default_rng(0)
    codes, weight = rng.integers(0, 3, 300), np.ones(300)
    f = rng.normal(size=(3, 300)) + 2.0 * (codes == np.arange(3)[:, None])
    for kind in ("sigmoid", "isotonic"):
        found = fit_calibration(kind, 5, f, codes, weight)
        p = class_probabilities(found, f.T)
        raw = np.stack([found.scores(m, f[m])[0] for m in range(3)])
        np.testing.assert_allclose(p, (raw / raw.sum(axis=0)).T)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    lowest = np.full((1, 3), -100.0)
    np.testing.assert_array_equal(class_probabilities(found, lowest), np.full((1, 3), 1 / 3))


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(3), 200)
    codes = rng.integers(0, 3, 200)
    assert log_loss(p, codes) == pytest.approx(peer_log_loss(codes, p), rel=1e-12)
    assert brier_score(p, codes) == pytest.approx(np.mean(np.sum((p - np.eye(3)[codes]) ** 2, axis=1)))
    two = np.column_stack([1 - p[:, 0], p[:, 0]])
    assert brier_score(two, codes % 2) == pytest.approx(brier_score_loss(codes % 2, p[:, 0]))
