"""Steps of kernel weights: the level that the level method asks for can be reached."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from gramplane.kernels.weights.domains import BoxSet, ElasticNetSet
from gramplane.kernels.weights.level_programs import lower_bound
from gramplane.pipeline.loops import weight_steps as steppers
from gramplane.pipeline.loops.kernel_weights import Trial, initial_state


@pytest.mark.parametrize("share", [0.0, 1e-6, 0.5])
def test_the_level_lies_above_the_point_that_it_is_projected_through(monkeypatch, share):
    """Bounds that rounding has brought together ask for a level that no point reaches: the lowest known point is still below it."""
    rng, domain = np.random.default_rng(0), ElasticNetSet(0.5)
    state = replace(initial_state(domain, 3, 4), cut_values=np.array([5.0, 4.0]), cut_forms=rng.random((2, 3)))
    bound = lower_bound(state.cuts, domain)
    lowest = state.cuts.height(bound.theta)
    state = replace(state, floor=lowest - 1e-9 * abs(lowest), upper=lowest + share)
    levels = []
    project = steppers.project_on_level
    monkeypatch.setattr(
        steppers,
        "project_on_level",
        lambda theta, cuts, level, *rest, **named: (levels.append(level), project(theta, cuts, level, *rest, **named))[1],
    )
    trial = Trial(state.theta, np.zeros(4), 0.0, np.zeros(4), 0.0, 0.0, 0.0, np.ones(3))
    moved = steppers._project_on_level(state, bound, trial, domain, 0.0)
    assert levels[0] > lowest
    assert state.cuts.height(moved.theta) <= levels[0] * (1 + 1e-12)


def test_generated_sets_minimise_a_model_in_the_box():
    rng, domain = np.random.default_rng(2), BoxSet(3)
    for _ in range(3):
        theta, s, root = domain.project(rng.random(8)), rng.random(8), 0.4 * rng.normal(size=(5, 8))

        def value(x, theta=theta, s=s, root=root):
            return -0.5 * s @ (x - theta) + 0.5 * np.sum((root @ (x - theta)) ** 2)

        limit = {"type": "ineq", "fun": lambda x: 3 - x.sum()}
        wanted = minimize(value, theta, bounds=[(0, 1)] * 8, constraints=[limit], method="SLSQP", options={"ftol": 1e-12}).fun
        found = steppers.minimise_in_box(theta, s, root, domain, 1e-4)
        assert domain.violation(found) <= 1e-9
        assert wanted - 1e-8 <= value(found) <= wanted + 1e-4
