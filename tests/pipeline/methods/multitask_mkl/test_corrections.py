"""docs/theory/corrections.md, kernels of many tasks: printed statements fail here, what stands in their place holds."""

import numpy as np
import pytest

from gramplane.pipeline import MultiTaskMKLClassifier


def test_the_norm_is_halved():
    """One task, one kernel, rows -1 and +1 of labels -1 and +1: w = 1, b = 0. 1/2 w^2 is the dual value 1/2 of (3.6); w^2 of (3.1) is 1."""
    x, y = np.array([[-1.0], [1.0]]), np.array([-1, 1])
    machine = MultiTaskMKLClassifier("precomputed", p=2.0, q=1.0, C=10.0, normalize="none", tol=1e-6).fit(x @ x.T, y, np.zeros(2, int))
    alpha = np.linspace(0, 10, 100_001)  # both multipliers are alpha
    assert np.max(2 * alpha - 0.5 * (2 * alpha) ** 2) == pytest.approx(0.5)
    assert machine.objective_ == pytest.approx(0.5, rel=1e-4)


def test_predictions_take_the_bias_off():
    """Rows 0 and 2 of labels -1 and +1: F(x) = x - 1. The sum of kernels without -b is x: it calls 0 and 2 no different sides."""
    x, y = np.array([[0.0], [2.0]]), np.array([-1, 1])
    machine = MultiTaskMKLClassifier("precomputed", C=10.0, normalize="none", tol=1e-8).fit(x @ x.T, y, np.zeros(2, int))
    decision = machine.decision_function((x @ x.T), np.zeros(2, int))
    np.testing.assert_allclose(decision, [-1.0, 1.0], atol=1e-3)
    alpha = np.array([0.5, 0.5])  # w = alpha (2 - 0) = 1
    printed = (x @ x.T) @ (alpha * y)
    np.testing.assert_allclose(printed, [0.0, 2.0])
    np.testing.assert_allclose(printed - 1.0, decision, atol=1e-3)
