"""Data frames with columns of names in every estimator that takes frames: what is learnt of the columns is kept, and followed by name."""

from __future__ import annotations

import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gramplane import (
    ColoredMVU,
    FGMClassifier,
    GroupLassoClassifier,
    GroupLassoRegressor,
    KTASelectionPath,
    MKLClassifier,
    MKLRegressor,
    MultiTaskMKLClassifier,
    MultiTaskSelector,
    RuleEnsembleClassifier,
    SimpleNPKL,
    TriClassSVC,
    TwoLayerMKLClassifier,
    UnsupervisedMKL,
    ingest,
    load_model,
    predict_store,
    run_method,
)
from gramplane.pipeline.runs.predictions import Predictions
from gramplane.plots import WeightsDisplay
from gramplane.storage import DataError, read_model

N = 60
KERNELS = {"kernels": ["linear", "rbf(gamma=0.5)"]}


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(size=n), "colour": rng.choice(["red", "green", "blue"], n), "well": rng.random(n) < 0.5})
    frame["ward"] = pd.Categorical(rng.choice(["n", "s"], n), categories=["n", "s", "w"])
    return frame, np.where((frame["colour"] == "red") ^ (frame["age"] > 0.8), "yes", "no")


def dummies(frame):
    return np.column_stack(
        [
            frame["age"],
            *(frame["colour"] == level for level in ("blue", "green", "red")),
            frame["well"],
            *(frame["ward"] == level for level in "nsw"),
        ]
    ).astype(float)


TASK = np.arange(N) % 2
CLASSIFIERS = [
    FGMClassifier(B=2, max_rounds=2),
    GroupLassoClassifier(lam=0.01, algorithm="fista", scale=None),
    MKLClassifier(**KERNELS),
    KTASelectionPath(),
    TwoLayerMKLClassifier(**KERNELS, max_iter=3),
]
REGRESSORS = [GroupLassoRegressor(lam=0.01, scale=None), MKLRegressor(**KERNELS)]


def decided(machine, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return machine.decision_function(X) if hasattr(machine, "decision_function") else machine.predict(X)


def fitted(machine, X, y, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(machine).fit(X, y, **more)


@pytest.mark.parametrize("machine", [*CLASSIFIERS, *REGRESSORS], ids=lambda machine: type(machine).__name__)
def test_a_fit_on_a_frame_is_the_fit_on_its_dummies(machine):
    frame, y = table()
    y = y if machine in CLASSIFIERS else frame["age"] + (y == "yes")
    there, here = fitted(machine, dummies(frame), y), fitted(machine, frame, y)
    assert decided(here, frame).tobytes() == decided(there, dummies(frame)).tobytes()
    assert here.feature_names_in_.tolist() == list(frame) and here.n_features_in_ == 4
    names = ["age", "colour=blue", "colour=green", "colour=red", "well", "ward=n", "ward=s", "ward=w"]
    assert here.encoding_.get_feature_names_out().tolist() == names
    turned = frame[frame.columns[::-1]].assign(more=1.0)
    assert np.array_equal(here.encoding_.transform(turned), dummies(frame))
    for copy in (here, pickle.loads(pickle.dumps(here))):
        assert decided(copy, turned).tobytes() == decided(here, frame).tobytes()
    assert decided(here, frame.to_numpy()).tobytes() == decided(here, frame).tobytes()
    if hasattr(here, "get_support"):
        assert here.get_support().shape == (8,)
        assert here.get_feature_names_out().tolist() == [name for name, chosen in zip(names, here.get_support(), strict=True) if chosen]
        assert np.array_equal(here.transform(frame), dummies(frame)[:, here.get_support()])
    assert type(machine).__name__ in here._repr_html_()
    # A fit on numbers afterwards knows nothing of it.
    again = here.fit(dummies(frame), y)
    assert not hasattr(again, "encoding_") and not hasattr(again, "feature_names_in_") and again.n_features_in_ == 8


def test_what_is_missing_new_or_of_another_kind(tmp_path):
    frame, y = table()
    machine = fitted(CLASSIFIERS[0], frame, y)
    with pytest.raises(ValueError, match="the frame lacks column 'colour' of the training data; it has age, well, ward"):
        machine.predict(frame.drop(columns="colour"))
    with pytest.warns(UserWarning, match=r"column 'colour' has 1 values of levels that were not there at fit: 'pink' \(1\)") as told:
        machine.predict(frame.replace({"colour": {"red": "pink"}}).iloc[[int(np.argmax(frame["colour"] == "red"))]])
    assert told[0].filename == __file__
    gone = frame.assign(colour=frame["colour"].where(np.arange(N) != 7))
    for call in (lambda: machine.predict(gone), lambda: clone(machine).fit(gone, y)):
        with pytest.raises(ValueError, match=r"column 'colour' has 1 missing value, NaN or empty \(the first in row 7\); FGM"):
            call()
    with pytest.raises(ValueError, match="column 'age', row 0: value 'x' is not a finite number"):
        machine.predict(frame.assign(age="x"))
    with pytest.raises(ValueError, match="X has 3 features, but FGMClassifier is expecting 4 features"):
        machine.predict(frame.to_numpy()[:, :3])
    with pytest.raises(ValueError, match=r"column 'when', row 0: the values are dates or times .*leave the column out, or turn it into"):
        clone(machine).fit(frame.assign(when=pd.Timestamp("2024-01-01")), y)
    with pytest.raises(ValueError, match=r"column 'mixed', row 1: value '3' is a number among texts such as 'a'; .*astype\('category'\)"):
        clone(machine).fit(frame.assign(mixed=["a", 3] * (N // 2)), y)
    with pytest.raises(ValueError, match="the column name 'age' occurs twice"):
        clone(machine).fit(pd.concat([frame, frame[["age"]]], axis=1), y)
    with pytest.raises(TypeError, match="argument must be a string or a real number, not dict"):
        clone(machine).fit(frame.assign(odd=[{}] * N), y)


@pytest.mark.parametrize("kind", ["polars", "arrow", "stream", "dask"])
def test_frames_of_other_libraries(kind):
    frame, y = table()
    forms = {}
    if kind == "polars":
        forms["polars"] = lambda: pytest.importorskip("polars").from_pandas(frame.astype({"ward": str}))
    elif kind in ("arrow", "stream"):
        import pyarrow

        forms |= {"arrow": lambda: pyarrow.Table.from_pandas(frame), "stream": lambda: pyarrow.Table.from_pandas(frame).to_reader()}
    elif kind == "dask":
        forms["dask"] = lambda: pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=3)
    machine = fitted(CLASSIFIERS[0], forms[kind](), y)
    expected = fitted(CLASSIFIERS[0], frame.astype({"ward": str}) if kind == "polars" else frame, y)
    assert decided(machine, forms[kind]()).tobytes() == decided(expected, frame).tobytes()
    assert machine.feature_names_in_.tolist() == list(frame)


def test_arrays_with_texts_are_tables_for_rules_alone():
    frame, y = table()
    values = frame.astype(object).to_numpy()
    machine, other = (fitted(RuleEnsembleClassifier(C=5.0, n_thresholds=2), X, y) for X in (values, frame.astype({"ward": str})))
    assert decided(machine, values).tobytes() == decided(other, frame).tobytes() and not hasattr(machine, "feature_names_in_")
    with pytest.raises(ValueError, match="could not convert string to float"):
        clone(CLASSIFIERS[0]).fit(values, y)


@pytest.mark.parametrize("library", ["polars", "pyarrow", "sparse columns of pandas"])
def test_numbers_of_other_libraries_are_validated_by_scikit_learn(library):
    frame, y = table()
    numbers = frame[["age"]].assign(b=frame["age"] ** 2, c=np.arange(N) % 3)
    if library == "polars":
        other = pytest.importorskip("polars").from_pandas(numbers)
    elif library == "pyarrow":
        other = pytest.importorskip("pyarrow").Table.from_pandas(numbers)
    else:
        other = numbers.astype({"b": pd.SparseDtype(float), "c": pd.SparseDtype(int)})
    machine = fitted(CLASSIFIERS[0], other, y)
    assert decided(machine, other).tobytes() == decided(fitted(CLASSIFIERS[0], numbers, y), numbers).tobytes()


def test_outputs_pipelines_and_searches(tmp_path):
    frame, y = table()
    machine = FGMClassifier(B=2, max_rounds=2)
    chosen = clone(machine).set_output(transform="pandas").fit(frame, y).transform(frame)
    assert isinstance(chosen, pd.DataFrame) and list(chosen.index) == list(frame.index) and "colour=red" in chosen
    with config_context(transform_output="pandas"):  # (of the user's own transformers)
        assert np.array_equal(clone(machine).fit(frame, y).encoding_.transform(frame), dummies(frame))
    scaled = ColumnTransformer([("scaled", StandardScaler(), ["age"])], remainder="passthrough", verbose_feature_names_out=False)
    line = make_pipeline(scaled.set_output(transform="pandas"), machine).fit(frame, y)
    assert line.score(frame, y) >= 0.8 and line[-1].encoding_.get_feature_names_out()[0] == "age"
    assert line[:-1].get_feature_names_out().tolist() == line[-1].feature_names_in_.tolist()
    search = GridSearchCV(machine, {"C": [0.1, 10.0]}, cv=3).fit(frame, y)
    assert search.best_score_ > 0.8 and len(search.best_estimator_.encoding_.get_feature_names_out()) == 8
    joblib.dump(search.best_estimator_, tmp_path / "m.joblib")
    assert (joblib.load(tmp_path / "m.joblib").predict(frame) == search.predict(frame)).all()


def test_tasks_unlabelled_rows_streams_and_maps():
    frame, y = table()
    kernels = fitted(MultiTaskMKLClassifier(**KERNELS), frame, y, task=TASK)
    there = fitted(MultiTaskMKLClassifier(**KERNELS), dummies(frame), y, task=TASK)
    assert kernels.decision_function(frame[frame.columns[::-1]], TASK).tobytes() == there.decision_function(dummies(frame), TASK).tobytes()
    selector = fitted(MultiTaskSelector(lam=0.01, algorithm="fista", scale=None), frame, frame["age"], task=TASK)
    assert "age" in selector.get_feature_names_out() and selector.get_support().shape == (8,)
    signs = np.where(y == "yes", 1, -1)
    half = fitted(TriClassSVC(kernel="linear", scale=None), frame[:40], signs[:40], X_unlabelled=frame[40:][frame.columns[::-1]])
    both = fitted(TriClassSVC(kernel="linear", scale=None), dummies(frame)[:40], signs[:40], X_unlabelled=dummies(frame)[40:])
    assert half.decision_function(frame).tobytes() == both.decision_function(dummies(frame)).tobytes()
    stream = GroupLassoClassifier(lam=0.01, scale=None)
    for rows in (slice(0, 30), slice(30, N)):
        stream.partial_fit(frame[rows], y[rows], classes=["no", "yes"])
    plain = GroupLassoClassifier(lam=0.01, scale=None).partial_fit(dummies(frame), y, classes=["no", "yes"])
    assert stream.coef_.tobytes() == plain.coef_.tobytes()
    assert UnsupervisedMKL(**KERNELS, n_bases=3).fit(frame).transform(frame).shape[0] == N
    pairs = [(0, 1, 1), (2, 3, -1)]
    assert np.array_equal(SimpleNPKL().fit(frame, pairs).eigenvalues_, SimpleNPKL().fit(dummies(frame), pairs).eigenvalues_)
    maps = [ColoredMVU(n_neighbors=4, max_iter=5).fit_transform(X, signs) for X in (frame, dummies(frame))]
    assert np.array_equal(*maps)
    point = KTASelectionPath().fit(frame, y).svm_at(1.5, 1.0)
    assert set(point.predict(frame)) <= {"yes", "no"}


# -- rules -------------------------------------------------------------------------------------------------------------------------


def test_rules_read_names_and_missing_values_as_they_are(tmp_path):
    frame, y = table(150)
    frame.loc[::7, "colour"] = None
    frame.loc[::11, "age"] = np.nan
    rules = RuleEnsembleClassifier(C=5.0, n_thresholds=3, max_rounds=5).fit(frame, y)
    codes = frame["colour"].map({"blue": 0, "green": 1, "red": 2})  # (missing ones stay missing)
    np.testing.assert_array_equal(rules.encoding_.transform(frame)[:, 1], codes)
    texts = [rule["text"] for rule in rules.rules_]
    assert any("colour = red" in text or "colour != red" in text for text in texts)
    ingest(frame.assign(y=y), tmp_path / "kept", target="y", missing="keep")
    run_method("rule-ensemble", {"C": 5.0, "n_thresholds": 3, "max_rounds": 5}, data=str(tmp_path / "kept"), run=str(tmp_path / "run"))
    loaded = load_model(tmp_path / "run")
    assert [rule["text"] for rule in loaded.rules_] == texts
    assert loaded.decision_function(frame[frame.columns[::-1]]).tobytes() == rules.decision_function(frame).tobytes()
    for method in ("fgm", "mkl", "group-lasso"):
        with pytest.raises(DataError, match="does not accept missing values, only rule-ensemble does"):
            run_method(method, {}, data=str(tmp_path / "kept"), run=str(tmp_path / method))
    ingest(frame[["well", "ward"]].assign(y=y), tmp_path / "coded", target="y", missing="keep")
    for method in ("fgm", "mkl", "group-lasso"):
        with pytest.raises(DataError, match=r"column 'ward' holds category numbers \(missing='keep'\); only rule-ensemble accepts them"):
            run_method(method, {}, data=str(tmp_path / "coded"), run=str(tmp_path / method))
    with pytest.raises(DataError, match="category numbers"):
        FGMClassifier().fit(str(tmp_path / "coded"))


def test_rules_on_features_of_zeros_and_ones_are_those_on_names(tmp_path):
    frame, y = table(150)
    params = {"C": 5.0, "n_thresholds": 3, "max_rounds": 5, "categorical": ["colour"]}
    rules = RuleEnsembleClassifier(**params).fit(frame, y)
    ingest(frame.assign(y=y), tmp_path / "store", target="y")
    run_method("rule-ensemble", params, data=str(tmp_path / "store"), run=str(tmp_path / "run"))
    loaded = load_model(tmp_path / "run")
    assert sorted(rule["text"] for rule in loaded.rules_) == sorted(rule["text"] for rule in rules.rules_)
    np.testing.assert_allclose(loaded.decision_function(frame), rules.decision_function(frame), rtol=1e-3, atol=1e-3)
    assert (loaded.predict(frame) == rules.predict(frame)).all()
    filled = frame.assign(age=frame["age"].where(np.arange(150) % 3 > 0))
    ingest(filled.assign(y=np.where(filled["age"].isna(), "a", "b")), tmp_path / "gone", target="y", missing="indicator")
    said = RuleEnsembleClassifier(C=5.0, n_thresholds=2).fit(str(tmp_path / "gone"))
    assert {rule["text"] for rule in said.rules_} <= {"age is missing", "age is not missing"}


# -- runs --------------------------------------------------------------------------------------------------------------------------


def test_models_of_runs_follow_the_columns_of_the_source(tmp_path):
    frame, y = table()
    train = frame.assign(y=y, k=[f"id{k}" for k in range(N)])
    store = ingest(train, tmp_path / "train", target="y", id_column="k")
    run_method("fgm", {"B": 2, "max_rounds": 2}, data=store.url, run=str(tmp_path / "run"))
    loaded, here = load_model(tmp_path / "run"), fitted(FGMClassifier(B=2, max_rounds=2), frame, y)
    assert loaded.encoding_.get_feature_names_out().tolist() == store.encoding.feature_names
    assert decided(loaded, frame[frame.columns[::-1]]).tobytes() == decided(here, frame).tobytes() == decided(loaded, store).tobytes()
    assert decided(loaded, dummies(frame)).tobytes() == decided(here, frame).tobytes()
    assert loaded.get_feature_names_out().tolist() == here.get_feature_names_out().tolist()
    train.to_csv(tmp_path / "again.csv", index=False)
    for name, source in (("p.csv", store.url), ("q.csv", str(tmp_path / "again.csv")), ("p.parquet", store.url), ("p.npz", store.url)):
        predict_store(str(tmp_path / "run"), source, str(tmp_path / name))
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines == (tmp_path / "q.csv").read_text().splitlines() and lines[0] == "id,prediction,decision" and lines[1].startswith("id0,")
    assert pd.read_parquet(tmp_path / "p.parquet")["id"].tolist() == train["k"].tolist()
    assert np.load(tmp_path / "p.npz")["id"].tolist() == train["k"].tolist()
    other = ingest(train.assign(colour=train["colour"].replace("red", "rot")), tmp_path / "other", target="y")
    with pytest.raises(DataError, match=r"not those of the fit: column 'colour': levels .*; ingest the source with --like TRAINING_STORE"):
        predict_store(str(tmp_path / "run"), other.url, str(tmp_path / "x.csv"))


@pytest.mark.parametrize("machine", [FGMClassifier(B=2, max_rounds=2), RuleEnsembleClassifier(C=5.0, n_thresholds=2)], ids=["fgm", "rules"])
def test_probabilities_are_those_of_the_encoded_rows(tmp_path, machine):
    frame, y = table()
    here, turned = fitted(machine, frame, y), frame[frame.columns[::-1]]
    expected = here.predict_proba(frame)
    assert here.predict_proba(turned).tobytes() == pickle.loads(pickle.dumps(here)).predict_proba(turned).tobytes() == expected.tobytes()
    if not isinstance(machine, RuleEnsembleClassifier):
        assert fitted(machine, dummies(frame), y).predict_proba(dummies(frame)).tobytes() == expected.tobytes()
    missing = "keep" if isinstance(machine, RuleEnsembleClassifier) else "refuse"
    store = ingest(frame.assign(y=y, k=[f"id{k}" for k in range(N)]), tmp_path / "train", target="y", id_column="k", missing=missing)
    params = {name: value for name, value in machine.get_params().items() if name in ("B", "max_rounds", "C", "n_thresholds")}
    run_method(type(machine)._method.name, params, data=store.url, run=str(tmp_path / "run"))
    assert load_model(tmp_path / "run").predict_proba(turned).tobytes() == expected.tobytes()
    predict_store(str(tmp_path / "run"), store.url, str(tmp_path / "p.csv"), proba=True)
    stored = pd.read_csv(tmp_path / "p.csv")
    assert list(stored) == ["id", "prediction", "decision", "probability[no]", "probability[yes]"]
    assert np.array_equal(stored[["probability[no]", "probability[yes]"]].to_numpy(), expected) and stored["id"][7] == "id7"
    predict_store(str(tmp_path / "run"), store.url, str(tmp_path / "p.zarr"))
    predict_store(str(tmp_path / "run"), store.url, str(tmp_path / "p.npz"))
    arrays = np.load(tmp_path / "p.npz")
    assert sorted(arrays) == ["classes", "decision", "id", "prediction", "probability"] and np.array_equal(arrays["probability"], expected)
    kept = read_model(tmp_path / "p.zarr", Predictions)
    assert kept.classes == ("no", "yes") and np.array_equal(kept.probability, expected)


def test_displays_speak_of_features_as_the_source_does(tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    frame, y = table()
    for machine in (CLASSIFIERS[0], CLASSIFIERS[1]):
        drawn = WeightsDisplay.from_estimator(fitted(machine, frame, y))
        assert "colour=red" in [label.get_text() for label in drawn.ax_.get_yticklabels()]
    (tmp_path / "a.svm").write_text("".join(f"{1 if k % 2 else -1} 3:{1 if k % 2 else -1} 7:1\n" for k in range(20)))
    url = ingest(tmp_path / "a.svm", tmp_path / "S").url
    run_method("group-lasso", {"lam": 0.01, "algorithm": "fista"}, data=url, run=str(tmp_path / "run"))
    for drawn in (
        WeightsDisplay.from_estimator(fitted(CLASSIFIERS[1], url, None)),
        WeightsDisplay.from_estimator(load_model(tmp_path / "run")),
        WeightsDisplay.from_run(tmp_path / "run"),
    ):
        assert "x3" in [label.get_text() for label in drawn.ax_.get_yticklabels()]


def test_plain_tables_are_followed_by_name_too(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 5)), columns=list("abcde"))
    y = np.where(frame["b"] > 0, 1, 0)
    store = ingest(frame.assign(y=y), tmp_path / "train", target="y")
    assert store.encoding is None
    run_method("fgm", {"B": 1, "max_rounds": 1}, data=store.url, run=str(tmp_path / "run"))
    loaded = load_model(tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (loaded.predict(frame[list("ebdca")]) == loaded.predict(frame.to_numpy())).all()
    predict_store(str(tmp_path / "run"), store.url, str(tmp_path / "p.csv"))
    assert (tmp_path / "p.csv").read_text().startswith("row,prediction,decision\n0,")
    turned = ingest(frame[list("ebdca")].assign(y=y), tmp_path / "turned", target="y")
    with pytest.raises(DataError, match="column 'a': name 'a' and 'e'"):
        predict_store(str(tmp_path / "run"), turned.url, str(tmp_path / "q.csv"))


def test_features_of_svmlight_are_called_as_the_text_counts_them(tmp_path):
    (tmp_path / "a.svm").write_text("".join(f"{1 if k % 2 else -1} 3:{1 if k % 2 else -1} 7:1\n" for k in range(20)))
    run_method("fgm", {"B": 1, "max_rounds": 1}, data=ingest(tmp_path / "a.svm", tmp_path / "S").url, run=str(tmp_path / "run"))
    assert "x3" in (tmp_path / "run" / "tables.json").read_text() and load_model(tmp_path / "run").selected_.tolist() == [2]
    machine = FGMClassifier(B=1, max_rounds=1).fit(str(tmp_path / "S"))
    assert machine.get_feature_names_out().tolist() == ["x3"]
    zero = ingest(tmp_path / "a.svm", tmp_path / "Z", zero_based="yes")
    assert FGMClassifier(B=1, max_rounds=1).fit(zero).get_feature_names_out().tolist() == ["x3"]
    rules = RuleEnsembleClassifier(n_thresholds=2).fit(str(tmp_path / "S"))
    assert all("x3" in rule["text"] for rule in rules.rules_)


SNOMED = np.array([900000000000207008, 900000000000207009])


def test_levels_are_names_and_features_are_numbers_that_float64_holds():
    """A category may hold intervals, dates and numbers of any size; other columns name what they cannot hold."""
    frame, y = table()
    codes = SNOMED[(y == "yes").astype(int)]
    named = frame[["age"]].assign(
        bin=pd.cut(frame["age"], [-9, 0, 9]), code=pd.Categorical(codes), day=pd.Categorical(pd.to_datetime(codes // 10**9))
    )
    model = FGMClassifier(B=1, max_rounds=1).fit(named, y)
    names = [*model.encoding_.get_feature_names_out()]
    assert names[:5] == ["age", "bin=(-9, 0]", "bin=(0, 9]", *(f"code={code}" for code in SNOMED)] and model.score(named, y) == 1
    for X in (frame.assign(code=codes), frame[["age"]].assign(code=codes), frame.assign(code=codes.astype(object))):
        with pytest.raises(ValueError, match=r"column 'code'.*value 90000000000020700[89] is beyond 2\^53"):
            FGMClassifier().fit(X, y)
    with pytest.raises(ValueError, match=r"column 'x1', row 0: value 90000000000020700[89] is beyond 2\^53"):
        FGMClassifier().fit(np.c_[np.arange(N), codes], y)
    with pytest.raises(TypeError, match="column 'tags': argument must be a string or a real number, not list"):
        FGMClassifier().fit(frame.assign(tags=[[1, 2]] * N), y)
    with pytest.warns(
        UserWarning, match="column 'code' has 60 categories in 60 rows, nearly one for every row, such as '0,5'; if these are numbers"
    ):
        FGMClassifier(B=1, max_rounds=1).fit(frame.assign(code=[f"{k},5" for k in range(N)]), y)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (["0", "1", "NA"], "y, row 2: the label NA is missing"),
        (["a", "b", ""], "y, row 2: the label  ?is missing"),
        (["a", None, "b"], "y, row 1: the label is missing|Input contains NaN"),
        (pd.to_datetime(["2020-01-01", "2021-01-01"]), "y holds dates or times"),
    ],
    ids=["na", "empty", "none", "dates"],
)
def test_labels_that_are_missing_or_dates(labels, told):
    X, y = np.random.default_rng(0).normal(size=(12, 2)), pd.Series(np.resize(np.asarray(labels), 12))
    for model in (FGMClassifier(), GroupLassoClassifier(algorithm="da"), RuleEnsembleClassifier(), TriClassSVC()):
        with pytest.raises(ValueError, match=told):
            model.fit(X, y)
    if "dates" not in told:
        with pytest.raises(ValueError, match=told.replace("y,", "task,").replace("label", "task")):
            MultiTaskMKLClassifier().fit(X, np.arange(12) % 2, np.resize(np.asarray(labels, dtype=object), 12))


def test_codes_of_labels_and_tasks_stay_apart():
    frame, y = table()
    codes = SNOMED[(y == "yes").astype(int)]
    for labels in (codes, codes.astype(object), codes.astype(str), np.where(y == "yes", "007", "7")):
        model = FGMClassifier(B=2, max_rounds=1).fit(frame, labels)
        assert model.classes_.tolist() == sorted(set(labels.tolist())) and set(model.predict(frame).tolist()) <= set(labels.tolist())
    model = MultiTaskMKLClassifier(**KERNELS).fit(frame, y, codes.astype(object)[::-1])
    assert model.tasks_.tolist() == SNOMED.tolist()


def test_an_integer_that_floats_cannot_hold_is_named_with_its_column():
    with pytest.raises(ValueError, match=r"x1.*9007199254740993"):
        FGMClassifier().fit(np.array([[1, 2], [3, 2**53 + 1]]), [0, 1])
