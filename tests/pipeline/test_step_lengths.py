"""Streams of the squared loss whose steps are too long say so, with a gamma that works."""

import re
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gramplane import GroupLassoRegressor, MultiTaskSelector
from gramplane.kernels.group_lasso.step_lengths import StepWatch

NAMED = r"raise gamma=1 to ([\d.e+]+), the largest squared norm of the rows"


def _rows(scale, n_features=40):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, n_features))
    return X * scale, X[:, 3] + 0.1 * rng.normal(size=300), np.repeat([0, 1, 2], 100)


def _stream(name, **params):
    if name == "tasks":
        return MultiTaskSelector(loss="squared", **params)
    return GroupLassoRegressor(algorithm=name, **params)


def _learn(model, X, y, task, calls=1):
    extra = {"tasks": [0, 1, 2]} if isinstance(model, MultiTaskSelector) else {}
    for part in np.array_split(np.random.default_rng(1).permutation(len(y)), calls):
        more = (task[part],) if extra else ()
        model.partial_fit(X[part], y[part], *more, **extra)
    return model


@pytest.mark.parametrize("name", ["tasks", "da", "fobos"])
@pytest.mark.parametrize("calls", [1, 300])
@pytest.mark.parametrize("scale", [1.0, 3.0, 1e8])
def test_long_steps_name_gamma_and_a_value_that_works(name, calls, scale):
    X, y, task = _rows(scale)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = _learn(_stream(name), X, y, task, calls)
        except ValueError as error:
            told = str(error)
        else:
            assert np.isfinite(model.coef_).all()
            told = str(caught[0].message)
            assert [item.category for item in caught] == [ConvergenceWarning]
    found = re.search(NAMED, told)
    assert found, told
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = _learn(_stream(name, gamma=float(found[1])), X, y, task, calls)
    assert np.abs(model.coef_).max() * scale < 2


@pytest.mark.parametrize("name", ["tasks", "da", "fobos"])
def test_a_fit_on_a_stream_says_it_in_place_of_a_weaker_penalty(name):
    X, y, task = _rows(1.0)
    more = (task,) if name == "tasks" else ()
    model = _stream(name, **({"algorithm": "da"} if name == "tasks" else {})).set_params(scale=None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, *more)
    texts = [str(item.message) for item in caught]
    assert any(re.search(NAMED, text) for text in texts), texts
    assert not any("smaller lam" in text for text in texts)


@pytest.mark.parametrize("name", ["tasks", "da"])
def test_the_longest_row_of_earlier_calls_counts(name):
    X, y, task = _rows(3.0)
    X[0], y[0] = 1000.0 * X[0], 0.0  # without a loss, so that nothing is learnt from it
    model, more = _stream(name, fit_intercept=False), {"tasks": [0, 1, 2]} if name == "tasks" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises((ConvergenceWarning, ValueError), match=NAMED) as caught:
            for i in range(len(y)):
                model.partial_fit(X[i : i + 1], y[i : i + 1], *((task[i : i + 1],) if more else ()), **more)
    assert float(re.search(NAMED, str(caught.value))[1]) >= X[0] @ X[0]


@pytest.mark.parametrize(("miss", "is_long"), [(9.0, False), (11.0, True)])
def test_steps_are_too_long_where_rows_miss_by_ten_targets_on_average(miss, is_long):
    assert StepWatch(1.0).look(3 * 0.5 * (miss * 2.0) ** 2, 3.0, np.array([2.0, -1.0, 0.0])) == is_long
