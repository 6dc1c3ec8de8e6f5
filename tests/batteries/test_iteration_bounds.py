"""Every loop has an end that users may set: a parameter of the method bounds it, and a fit that it ends says so."""

import inspect

import pytest
from sklearn.base import BaseEstimator

import gramplane
from gramplane.pipeline import METHODS, run_method
from gramplane.storage import RunStore
from tests.support.methods import CASES

BOUNDS = ("max_iter", "max_rounds")
"""Names of such a parameter: ``max_rounds`` where a round has steps of its own."""

WITHOUT = {
    "kta-path": "its steps are the points of a grid that p_start, p_end and dp make; the weights of each are found to rounding",
    "KTASelectionPath": "the same",
    "KTASelectionPathCV": "the same",
    "KTASelectionPathRegressor": "the same",
}
"""Methods and estimators that none bounds, each with its reason."""

ITERATING = {"group-lasso": "group-lasso-batch-classes", "multitask-selector": "multitask-selector-batch"}
"""Cases of methods whose first one is a stream, that ends with its rows."""

GROWING = ("multitask-selector", "rule-ensemble")
"""Methods with several steps in a round, or with a working set and a second fit."""


def bound_of(names) -> str | None:
    return next((name for name in BOUNDS if name in names), None)


def test_every_method_and_every_estimator_has_a_parameter_that_bounds_its_loop():
    public = {name: getattr(gramplane, name) for name in gramplane.__all__}
    kinds = {name: kind for name, kind in public.items() if inspect.isclass(kind) and issubclass(kind, BaseEstimator)}
    assert len(kinds) >= len(METHODS)
    missing = {name for name, info in METHODS.items() if bound_of(info.config.model_fields) is None}
    missing |= {name for name, kind in kinds.items() if bound_of(kind().get_params()) is None}
    assert missing <= set(WITHOUT)
    assert not {name for name in WITHOUT if name in METHODS} - missing, "a reason for what is not so"


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(WITHOUT)))
def test_one_step_is_the_last_where_one_is_allowed(method, tmp_path):
    case = CASES[ITERATING.get(method) or next(name for name, case in CASES.items() if case.method == method)]
    name, config = bound_of(METHODS[method].config.model_fields), METHODS[method].config
    # Where there is none a walk ends by its tolerance.
    default = config.model_fields[name].default
    assert case.method == method and (default in (None, "auto") or default > 1)
    store = case.data(tmp_path / "data.zarr")
    params = {**case.params, name: 1}
    summary = run_method(method, params, data=store.url, run=str(tmp_path / "run"), extra=case.extra).summary
    steps = [row["iteration"] for row in RunStore.open(tmp_path / "run").history()]
    assert summary["stop"] is not None and summary["iterations"] == steps[-1]
    if method in GROWING:
        assert summary["stop"] == name
    else:
        # A step may come before the first that counts: first machines, or what a search begins from.
        assert 1 <= len(steps) <= 2
