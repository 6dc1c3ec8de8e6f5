"""Regressions see their target centred and in a unit near its standard deviation: what they say is in the target's own."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

import gramplane.pipeline as api
from gramplane.cluster import open_executor
from gramplane.pipeline import METHODS
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.registry import METHODS as REGISTRY

REGRESSORS = sorted(info.regressor for info in METHODS.values() if info.regressor)
MACHINES = [name for name in REGRESSORS if "MKL" in name or "Kernel" in name]
X, Y = load_diabetes(return_X_y=True)
TRAIN, TEST, SEEN, UNSEEN = train_test_split(X, Y, random_state=0)
SMALL, TARGET = X[:90, [2, 3, 8]], Y[:90]
BRIEF = {"B": 2, "max_rounds": 3, "max_nodes": 10, "n_thresholds": 2, "dp": 0.2, "validation": 0, "irrelevant_label": None}
KERNELS = {"kernels": ["linear", "rbf(gamma=30)"], "tol": 1e-5}


def machine(name, **params):
    own = {"dag": "subsets(gaussian; depth=1)", "tol": 1e-5} if name.startswith("Hierarchical") else KERNELS
    return getattr(api, name)(**{**own, **params})


@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.parametrize("unit", [1.0, 1e-4, 1e4])
def test_a_first_fit_of_real_targets_explains_a_fifth_of_them_in_any_unit(name, unit):
    model = getattr(api, name)().fit(TRAIN, unit * SEEN)
    assert model.score(TEST, unit * UNSEEN) > 0.2


@pytest.mark.parametrize("name", REGRESSORS)
def test_targets_times_a_power_of_two_give_the_same_bits(name):
    estimator = getattr(api, name)() if name not in MACHINES else machine(name)
    one, other = (estimator.__class__(**estimator.get_params()).fit(SMALL, factor * TARGET) for factor in (1.0, 2.0**-9))
    np.testing.assert_array_equal(one.predict(SMALL) * 2.0**-9, other.predict(SMALL))
    if name not in ("FGMRegressor", "KTASelectionPathRegressor") and np.isfinite(np.atleast_1d(one.dual_gap_)).all():
        np.testing.assert_array_equal(np.multiply(one.dual_gap_, 2.0**-18), other.dual_gap_)
        np.testing.assert_array_equal(np.multiply(one.objective_, 2.0**-18), other.objective_)
        for figure in ("objective", "gap"):
            np.testing.assert_array_equal(one.history_[figure] * 2.0**-18, other.history_[figure])


@pytest.mark.parametrize("name", [name for info in METHODS.values() for name in info.estimators if name and info.config.has_scores])
def test_units_of_targets_and_columns_change_nothing_else(name):
    kind, few = getattr(api, name), {key: value for key, value in BRIEF.items() if key in getattr(api, name)().get_params()}
    is_real = name in (*REGRESSORS, "MultiTaskSelector")
    rows, target = SMALL[:50], TARGET[:50] if is_real else np.where(TARGET[:50] > np.median(TARGET[:50]), "more", "less")

    def decided(rows, target, unit=1.0):
        model = kind(**few).fit(rows, target)
        return np.asarray((model.predict if is_real else model.decision_function)(rows)) / unit

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = decided(rows, target)
        assert np.ptp(expected) > 0
        near = 1e-6 * np.abs(expected).max()
        for unit in (1e-12, 1e12):
            np.testing.assert_allclose(decided(rows * unit, target), expected, atol=near)
            if is_real:
                np.testing.assert_allclose(decided(rows, target * unit, unit), expected, atol=near)
        if is_real:
            with pytest.raises(ValueError, match=r"y has values up to .* divide y by a constant"):
                decided(rows, target * 1e300)


@pytest.mark.parametrize("name", MACHINES)
def test_a_shift_of_the_target_moves_the_intercept_alone(name):
    here, there = machine(name).fit(SMALL, TARGET), machine(name).fit(SMALL, TARGET + 1e5)
    np.testing.assert_allclose(there.predict(SMALL) - 1e5, here.predict(SMALL), atol=0.02 * TARGET.std())
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-3)
    np.testing.assert_allclose(np.ravel(there.intercept_) - np.ravel(here.intercept_), 1e5, rtol=1e-3)


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_published_is_in_the_unit_of_the_target(name):
    model = machine(name).fit(SMALL, TARGET)
    assert abs(np.mean(model.predict(SMALL)) - TARGET.mean()) < 0.3 * TARGET.std()
    last = {figure: model.history_[figure][-1] for figure in ("objective", "gap")}
    assert last["objective"] == pytest.approx(model.objective_, rel=1e-3)
    # A problem that is not convex has the gap of its machine alone.
    assert 0 <= (model.machine_gap_ if name.startswith("TwoLayer") else model.dual_gap_) <= 2e-3 * model.objective_
    # The losses alone, of no function at all, bound the objective from above.
    alone = (
        getattr(model, "C_", model.C)
        * TARGET.std()
        * np.maximum(np.abs(TARGET - np.median(TARGET)) - model.epsilon * TARGET.std(), 0).sum()
    )
    assert 0.01 * alone < model.objective_ <= alone * (1 + 1e-6)
    assert model.history_["train_r2"][-1] == pytest.approx(model.score(SMALL, TARGET), abs=0.02)


@pytest.mark.parametrize("name", MACHINES)
def test_decision_values_of_a_run_are_those_of_its_model(name):
    info = next(one for one in REGISTRY.values() if one.regressor == name)
    estimator = machine(name)
    seen = {}

    def keep(problem, inputs, state):
        with open_executor(None) as executor:
            ctx = RunContext(executor, data=inputs.labelled.data)
            seen["values"] = estimator._method.decision_values(problem, state, ctx)

    estimator._keep_run = keep
    estimator.fit(SMALL, TARGET)
    assert info.name and seen["values"].shape == (1, len(TARGET))
    np.testing.assert_allclose(seen["values"][0], estimator.predict(SMALL), atol=0.05 * TARGET.std())
