"""Frames of pandas, polars and Arrow with columns of names in every estimator of rows: the same bits, and copies that go on working."""

import io
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pyarrow as arrow
import pytest

from gramplane import pipeline

RNG = np.random.default_rng(0)
N = 40
FRAME = pd.DataFrame({"age": RNG.normal(size=N), "colour": RNG.choice(["red", "blue"], N), "well": RNG.random(N) < 0.5})
FRAME["ward"] = pd.Categorical(RNG.choice(["n", "s"], N))
F = FRAME["age"].to_numpy() + (FRAME["colour"] == "red").to_numpy()
Y = np.where(F > 0.5, "b", "a")
TASK = np.arange(N) % 2
PAIRS = np.array([(0, 3, 1), (1, 4, 1), (0, 1, -1), (2, 5, -1)])
OTHERS = ("SemanticKernelRanker", "VisualRank", "SocialStrengthRanker")  # of tags, similarities, matrices
NAMES = sorted({name for info in pipeline.METHODS.values() for name in info.estimators} - set(OTHERS))
UNSUPERVISED = ("UnsupervisedMKL", "MinimumVolumeEmbedding", "StructurePreservingEmbedding")


def made(name):
    known = getattr(pipeline, name)().get_params()
    given = {"B": 2, "max_rounds": 2, "n_thresholds": 2, "tol": 0.05, "max_iter": 20, "dag": "subsets(gaussian; depth=1)", "n_neighbors": 4}
    given["kernels"] = ["linear", "rbf"]
    return getattr(pipeline, name)(**{key: value for key, value in given.items() if key in known})


def fitted(name, X):
    tasks = {"task": TASK} if name.startswith(("LatentTask", "MultiTask", "SharedSubspace")) else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in UNSUPERVISED:
            return made(name).fit(X), tasks
        if name == "SimpleNPKL":
            return made(name).fit(X, PAIRS), tasks
        return made(name).fit(X, F if name.endswith(("Regressor", "Selector")) else Y, **tasks), tasks


def answers(machine, X, tasks):
    """Return what a machine says of rows, or of its own where it says nothing of others."""
    for call in ("decision_function", "predict", "transform"):
        if hasattr(machine, call):
            found = getattr(machine, call)(X, **({} if call == "transform" else tasks))
            return found.toarray() if hasattr(found, "toarray") else np.asarray(found)
    return machine.embedding_ if hasattr(machine, "embedding_") else machine.eigenvalues_


@pytest.mark.parametrize("name", NAMES)
def test_every_library_gives_the_same_bits(name):
    polars = pytest.importorskip("polars")
    forms = {"pandas": FRAME, "polars": polars.from_pandas(FRAME), "arrow": arrow.Table.from_pandas(FRAME, preserve_index=False)}
    expected = None
    for X in forms.values():
        machine, tasks = fitted(name, X)
        found = answers(machine, X, tasks)
        expected = found if expected is None else expected
        assert found.tobytes() == expected.tobytes()
        assert machine.feature_names_in_.tolist() == list(FRAME) and machine.n_features_in_ == 4
        assert machine.encoding_.get_feature_names_out()[0] == "age"
        assert type(machine).__name__ in machine._repr_html_()
        copies = [pickle.loads(pickle.dumps(machine)), _through_joblib(machine)]
        assert all(answers(copy, X, tasks).tobytes() == expected.tobytes() for copy in copies)
        if hasattr(machine, "transform") and hasattr(machine, "get_feature_names_out"):
            for library, kind in (("pandas", pd.DataFrame), ("polars", polars.DataFrame)):
                table = machine.set_output(transform=library).transform(X)
                assert isinstance(table, kind) and list(table.columns) == machine.get_feature_names_out().tolist()


NUMBERS = np.column_stack([F, RNG.normal(size=(N, 2))])


@pytest.mark.parametrize("name", NAMES)
def test_masked_and_labelled_arrays(name):
    xarray, polars = pytest.importorskip("xarray"), pytest.importorskip("polars")
    named = pd.DataFrame(NUMBERS, columns=list("abc"))
    hidden = np.ma.masked_array(NUMBERS.copy(), np.zeros(NUMBERS.shape, bool))
    forms = {
        "masked": (hidden, NUMBERS),
        "array": (xarray.DataArray(NUMBERS, dims=("row", "column")), NUMBERS),
        "named array": (xarray.DataArray(NUMBERS, dims=("row", "column"), coords={"column": list("abc")}), named),
        "plan": (polars.from_pandas(named).lazy(), named),
        "set": (xarray.Dataset({key: ("row", NUMBERS[:, k]) for k, key in enumerate("abc")}), named),
    }
    for form, (X, same) in forms.items():
        machine, tasks = fitted(name, X)
        expected, _ = fitted(name, same)
        assert answers(machine, X, tasks).tobytes() == answers(expected, same, tasks).tobytes(), form
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        fitted(name, named["a"])
    hidden = hidden.copy()
    hidden[5, 1], hidden[5, 2] = np.ma.masked, np.ma.masked
    if name.startswith("RuleEnsemble"):  # reads what is missing as it is
        expected, _ = fitted(name, hidden.filled(np.nan))
        assert answers(fitted(name, hidden)[0], hidden, {}).tobytes() == answers(expected, hidden.filled(np.nan), {}).tobytes()
        return
    with pytest.raises(ValueError, match="row 5, column 1: Input X contains NaN"):
        fitted(name, hidden)


@pytest.mark.parametrize("name", sorted({*NAMES} - {*UNSUPERVISED, "SimpleNPKL", "ColoredMVU"}))
def test_masked_targets_and_weights_are_missing(name):
    mask = np.arange(N) == 7
    tasks = {"task": TASK} if name.startswith(("LatentTask", "MultiTask", "SharedSubspace")) else {}
    y = F if name.endswith(("Regressor", "Selector")) else Y
    with pytest.raises(ValueError, match=r"row 7: .*(y contains NaN|is missing)|y, row 7: the label is missing"):
        made(name).fit(NUMBERS, np.ma.masked_array(y, mask), **tasks)
    with pytest.raises(ValueError, match="sample_weight contains NaN"):
        made(name).fit(NUMBERS, y, sample_weight=np.ma.masked_array(np.ones(N), mask), **tasks)
    if tasks:
        with pytest.raises(ValueError, match=r"task\[7\]=nan"):
            made(name).fit(NUMBERS, y, task=np.ma.masked_array(TASK, mask))


def _through_joblib(machine):
    file = io.BytesIO()
    joblib.dump(machine, file)
    file.seek(0)
    return joblib.load(file)
