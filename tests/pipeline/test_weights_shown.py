"""Weights are shown and ranked as of scaled columns by every method that selects columns: units change nothing. ``coef_`` goes by units."""

import numpy as np
import pytest

from gramplane import (
    FGMClassifier,
    FGMRegressor,
    GroupLassoClassifier,
    GroupLassoRegressor,
    MultiTaskSelector,
    ingest,
    load_model,
    run_method,
)
from gramplane.plots import WeightsDisplay
from gramplane.storage import RunStore

GRAMS = 1000.0
RNG = np.random.default_rng(0)
KILOGRAMS = RNG.normal(size=(120, 6))
T = 2 * KILOGRAMS[:, 0] + KILOGRAMS[:, 1] - 0.5 * KILOGRAMS[:, 2] + 0.1 * RNG.normal(size=120)
UNITS = np.array([1.0, 1.0, GRAMS, 1.0, 1.0, 1 / GRAMS])
TASK = np.arange(120) % 3

FITS = {
    "fgm": lambda X: FGMClassifier(B=3, max_rounds=2).fit(X, T > 0),
    "fgm, numbers": lambda X: FGMRegressor(B=3, max_rounds=2).fit(X, T),
    "group-lasso": lambda X: GroupLassoClassifier().fit(X, T > 0),
    "group-lasso, numbers": lambda X: GroupLassoRegressor().fit(X, T),
    "multitask-selector": lambda X: MultiTaskSelector().fit(X, T, TASK),
}


def shown(model):
    rows = model._chart_tables()["selected"]
    return [row["feature"] for row in rows], np.array([[value for value in row.values() if isinstance(value, float)] for row in rows])


@pytest.mark.filterwarnings("ignore:columns|all 6|scale")
@pytest.mark.parametrize("name", FITS)
def test_the_ranking_does_not_depend_on_units(name):
    plain, mixed = FITS[name](KILOGRAMS), FITS[name](KILOGRAMS / UNITS)
    (names, values), (others, weights) = shown(plain), shown(mixed)
    assert names == others and names[0] == "x0"
    np.testing.assert_allclose(weights, values, rtol=1e-3)
    np.testing.assert_allclose(mixed.coef_, plain.coef_ * UNITS, rtol=1e-3, atol=1e-9)
    chart = WeightsDisplay.from_estimator(mixed).chart
    assert "scaled column" in f"{chart.x_label} {chart.y_label} {chart.caption}"


def test_runs_and_their_models_show_the_same(tmp_path):
    ingest((KILOGRAMS / UNITS, T), tmp_path / "data", task="regression", scale="standard")
    run_method("group-lasso", {}, data=str(tmp_path / "data"), run=str(tmp_path / "run"))
    rows = RunStore.open(str(tmp_path / "run")).read_json("tables")["selected"]
    names, values = shown(load_model(tmp_path / "run"))
    assert [row["feature"] for row in rows] == names and names[0] == "x0"
    np.testing.assert_array_equal([[row["weight"]] for row in rows], values)
