"""Steps of kernel weights: the level that the level method asks for can be reached."""

from dataclasses import replace

import numpy as np
import pytest

from gramplane.kernels.weights.domains import ElasticNetSet
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
