"""The kernels of a fit that names none, and what kernels leave to the data: decided by the data alone, once, and told in one line."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import pdist

from gramplane.kernels.bank.loops import count_packed
from gramplane.kernels.grams.spec import KernelSpec, as_specs, kernel_grid
from gramplane.pipeline import (
    MKLClassifier,
    MKLRegressor,
    MultiTaskMKLClassifier,
    TriClassSVC,
    TwoLayerMKLClassifier,
    UnsupervisedMKL,
    load_model,
    resume_run,
    run_method,
)
from gramplane.pipeline.grams.widths import SAMPLED_ROWS, MedianWidths, sampled_rows
from gramplane.pipeline.inputs import kernels as bank
from gramplane.pipeline.inputs.kernels import bank_fits, default_kernels
from gramplane.storage import BlockStore, MemoryBlocks
from gramplane.storage.ingest import ingest


def rows(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.1, 10, d) + 3
    return X, (X[:, 0] + rng.normal(size=n) > 3).astype(int)


# --- widths --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [None, (1, 4)])
def test_a_width_is_the_median_distance_of_different_rows(columns):
    X, _ = rows(120, 6)
    X[50:60] = X[0]
    some = X if columns is None else X[:, list(columns)]
    far = pdist(some)
    assert MedianWidths(MemoryBlocks(X)).gamma(columns) == pytest.approx(0.5 / np.median(far[far > 0]) ** 2, rel=1e-5)


def test_rows_that_differ_by_rounding_alone_are_equal():
    X = np.append(1e-7 * np.arange(9), 1.0)[:, None]
    assert MedianWidths(MemoryBlocks(X)).gamma(None) == pytest.approx(0.5, rel=1e-5)


def test_widths_depend_on_the_data_alone(tmp_path):
    X, y = rows(900, 7)
    X[np.abs(X) < 2] = 0
    found = {MedianWidths(MemoryBlocks(form)).gamma(None) for form in (X, np.asfortranarray(X), sp.csr_array(X), sp.csc_array(X))}
    for k, (form, budget) in enumerate([(X, 256 << 20), (X, 8 << 20), (sp.csr_array(X), 8 << 20)]):
        found.add(MedianWidths(ingest((form, y), tmp_path / str(k), budget=budget)).gamma(None))
    # Up to SAMPLED_ROWS rows all of them are looked at: in whatever order.
    found.add(MedianWidths(MemoryBlocks(X[::-1])).gamma(None))
    assert len(found) == 1
    far = MedianWidths(MemoryBlocks(X + 1e7)).gamma(None)
    assert far == pytest.approx(MedianWidths(MemoryBlocks(X - 5)).gamma(None), rel=1e-4)


def test_many_rows_are_sampled_without_regard_to_what_they_hold():
    ids = sampled_rows(10 * SAMPLED_ROWS)
    assert len(ids) == len(set(ids.tolist())) == SAMPLED_ROWS and (np.diff(ids) > 0).all()
    np.testing.assert_array_equal(ids, sampled_rows(10 * SAMPLED_ROWS))
    # Rows that alternate between two places are met at both.
    assert 0.4 < np.mean(ids % 2) < 0.6
    X, _ = rows(3 * SAMPLED_ROWS, 4)
    assert MedianWidths(MemoryBlocks(X)).gamma(None) == pytest.approx(0.5 / np.median(pdist(X)) ** 2, rel=0.1)


def test_rows_that_are_all_equal_have_some_width():
    assert MedianWidths(MemoryBlocks(np.ones((5, 3)))).gamma(None) == 1.0
    assert len(default_kernels(MemoryBlocks(np.ones((5, 60))))[0]) == len(bank.WHOLE)


# --- the default ---------------------------------------------------------------------------------------------------------------------


def test_the_bank_over_features_is_the_default_while_it_is_small():
    features = bank.BANK_KERNELS // 13 - 1
    assert bank_fits(100, features) and not bank_fits(100, features + 1)
    n = max(n for n in range(1, 3000) if 273 * 4 * count_packed(n) <= bank.BANK_BYTES)
    assert bank_fits(n, 20) and not bank_fits(n + 1, 20)
    X, _ = rows(40, features + 1)
    assert default_kernels(MemoryBlocks(X[:, :-1])) == ([str(spec) for spec in kernel_grid(features)], "")
    texts, told = default_kernels(MemoryBlocks(X))
    assert [KernelSpec.parse(text).columns for text in texts] == [None] * len(bank.WHOLE)
    assert "\n" not in told and f"{13 * (features + 2)} kernels" in told and "kernels=[...]" in told


def test_whole_kernels_lie_around_the_median_distance():
    X, _ = rows(60, 50)
    square = float(np.median(pdist(X)) ** 2)
    specs = as_specs(default_kernels(MemoryBlocks(X))[0], 50)
    widths = sorted((0.5 / spec.arguments["gamma"] / square) ** 0.5 for spec in specs if spec.name == "rbf")
    np.testing.assert_allclose(widths, [0.125, 0.25, 0.5, 1, 2, 4, 8], rtol=1e-4)
    assert [str(spec).partition("(")[0] for spec in specs if spec.name != "rbf"] == ["linear", "poly", "poly"]


def test_a_row_far_outside_gets_no_answer_of_its_cube():
    """Polynomials of the default have diagonal one: what is far is at most linear."""
    X, _ = rows(60, 50)
    y = X[:, 0] + X[:, 1] ** 2 / 50
    assert all(text.endswith(" cosine") for text in default_kernels(MemoryBlocks(X))[0] if text.startswith("poly"))
    model = MKLRegressor().fit(X, y)
    steps = 10.0 ** np.arange(2, 6)
    answers = model.predict(X.mean(axis=0) + steps[:, None] * X.std(axis=0) * np.eye(50)[0]) - y.mean()
    assert np.abs(answers[1:] / answers[:-1]).max() < 11 and np.abs(answers[-1]) < 3 * y.std() * steps[-1]


def test_fewer_kernels_of_more_rows():
    count = lambda n: len(bank.whole_texts(n, 1.0))  # noqa: E731
    assert count(9000) == len(bank.WHOLE) > count(12_000) > count(40_000) == bank.FEWEST
    assert count(12_000) * 4 * count_packed(12_000) <= bank.WHOLE_BYTES


@pytest.mark.parametrize("kind", [MKLClassifier, TwoLayerMKLClassifier, MultiTaskMKLClassifier, UnsupervisedMKL])
def test_the_choice_is_told_once_at_the_users_line(kind):
    X, y = rows(30, 45)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kind(max_iter=2).fit(X, y)
    said = [one for one in caught if "kernels on all 45 features and on each of them" in str(one.message)]
    assert len(said) == 1 and said[0].filename == __file__ and said[0].category is UserWarning
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kind(max_iter=2).fit(X[:, :5], y)
    assert not [one for one in caught if "kernels" in str(one.message)]


def test_strings_have_no_default():
    with pytest.raises(ValueError, match="rows are strings: set kernels"):
        MKLClassifier().fit(["ab", "bc"] * 5, [0, 1] * 5)


# --- runs ----------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def wide(tmp_path):
    X, y = rows(40, 45)
    return str(ingest((X, y), tmp_path / "data", names=[f"gene {j}" for j in range(45)]).url)


def test_a_run_writes_its_kernels_down_and_goes_on_with_them(wide, tmp_path, monkeypatch):
    events, run = [], str(tmp_path / "run")

    def stop(event):
        events.append(event)
        if event["event"] == "iteration":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_method("mkl", {}, data=wide, run=run, on_event=stop)
    expected = default_kernels(BlockStore.open(wide).with_scale("standard"))[0]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert "decided" in str(config) and expected[0] in str(config)
    said = [event["message"] for event in events if event["event"] == "warning"]
    assert len(said) == 1 and "45" in said[0]
    # Whatever a later version would decide, the run goes on with what it has.
    monkeypatch.setattr(bank, "WHOLE", ("linear",) * 3)
    assert resume_run(run).status == "done"
    loaded = load_model(run)
    assert [str(spec) for spec in map(json.dumps, json.loads(loaded.model_.kernels_json))] and loaded.kernels == expected
    assert run_method("mkl", {}, data=wide, run=run).status == "already-done"


def test_a_dry_run_says_what_would_be_decided(wide, tmp_path):
    plan = run_method("mkl", {}, data=wide, run=str(tmp_path / "run"), dry_run=True).plan
    assert plan["kernels"] == len(bank.WHOLE) and "widths around the median distance" in plan["notes"][0]


# --- names and widths in every method ------------------------------------------------------------------------------------------------


def test_columns_are_named_and_widths_left_out(tmp_path):
    X, y = rows(50, 4)
    frame = pd.DataFrame(X, columns=["mean radius", "b", "it's, [odd]", "3"])
    texts = ["rbf[mean radius]", "linear[b,3]", "rbf", r"poly(degree=2)['3','it\'s, [odd]']"]
    widths = MedianWidths(MemoryBlocks(X))
    expected = [
        f"rbf(gamma={widths.gamma((0,))!r})[0]", "linear[1,3]", f"rbf(gamma={widths.gamma(None)!r})", "poly(degree=2)[2:4]",
    ]  # fmt: skip
    given = MKLClassifier(expected, max_iter=3, scale=None).fit(X, y)
    for kind in (MKLClassifier, TwoLayerMKLClassifier, MultiTaskMKLClassifier):
        found = kind(texts, max_iter=3, scale=None).fit(frame, y)
        assert json.loads(found.model_.params_json)["kernels"] == expected
        assert found.kernels == texts
    np.testing.assert_array_equal(
        MKLClassifier(texts, max_iter=3, scale=None).fit(frame, y).decision_function(frame), given.decision_function(X)
    )
    with pytest.raises(ValueError, match="no column has the name 'radius'; the columns are 'mean radius'"):
        MKLClassifier(["rbf[radius]"], scale=None).fit(frame, y)
    with pytest.raises(ValueError, match="have no names"):
        MKLClassifier(["rbf[b]"], scale=None).fit(X, y)
    store = ingest((X, y), tmp_path / "data", names=list(frame))
    run_method("mkl", {"kernels": texts, "max_iter": 3, "scale": None}, data=str(store.url), run=str(tmp_path / "run"))
    loaded = load_model(str(tmp_path / "run"))
    assert loaded.kernels == expected
    np.testing.assert_allclose(loaded.decision_function(X), given.decision_function(X), rtol=1e-12)


def test_a_tri_class_machine_knows_names():
    X, y = rows(60, 3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    labels, more = np.where(y == 1, 1, -1), X[:7] + 0.1
    width = MedianWidths(MemoryBlocks(np.concatenate([X, more]))).gamma((1,))
    named = TriClassSVC(kernel="rbf[b]", max_iter=3, scale=None).fit(frame, labels, X_unlabelled=pd.DataFrame(more, columns=frame.columns))
    numbered = TriClassSVC(kernel=f"rbf(gamma={width!r})[1]", max_iter=3, scale=None).fit(X, labels, X_unlabelled=more)
    np.testing.assert_array_equal(named.decision_function(frame), numbered.decision_function(X))
