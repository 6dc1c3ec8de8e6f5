"""Every method with a target warns of what a stranger would not notice: once, with the value and a remedy, at the user's line."""

import json
import warnings

import numpy as np
import pytest

import gramplane.pipeline as api
from gramplane.pipeline import METHODS
from gramplane.pipeline.inputs.fit_warnings import fit_warnings
from gramplane.pipeline.inputs.labels import Inputs
from gramplane.pipeline.methods.mkl.config import MKLConfig
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main
from gramplane.workflows.report import write_report

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
RARE = np.where(np.arange(120) < 4, "few", "many")
CLASSIFIERS = sorted(
    name for info in METHODS.values() for name in info.estimators if "Classifier" in name or name in ("TriClassSVC", "KTASelectionPath")
)
REGRESSORS = sorted(info.regressor for info in METHODS.values() if info.regressor)
SMALL = {
    "TriClassSVC": {"irrelevant_label": None},
    "RuleEnsembleClassifier": {"n_thresholds": 2},
    "HierarchicalKernelClassifier": {"dag": "subsets(gaussian; depth=1)"},
    "FGMClassifier": {"B": 2},
}


def told(name, y, **params):
    accepted = getattr(api, name)().get_params()
    given = {key: value for key, value in {**SMALL.get(name, {}), **params}.items() if key in accepted}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(api, name)(**given).fit(X, y)
    return caught


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_rare_class_is_told_once_at_the_line_of_the_user_and_not_where_classes_are_weighted(name):
    found = [item for item in told(name, RARE) if "class 'few' has 4 of 120 rows (3.3%)" in str(item.message)]
    assert len(found) == 1 and "class_weight='balanced'" in str(found[0].message) and found[0].filename == __file__
    assert not [item for item in told(name, RARE, class_weight="balanced") if "of 120 rows" in str(item.message)]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_an_answer_that_is_always_the_same_is_told(name):
    weak = {"C": 1e-9, "lam": 1e3, **({"algorithm": "fista"} if name.startswith("GroupLasso") else {})}
    found = [str(item.message) for item in told(name, RARE, **weak)]
    words = ("same prediction", "no better than", "nothing is selected", "no kernel has a weight")
    said = [text for text in found if any(word in text for word in words)]
    assert len(said) == 1, found
    assert any(value in said[0] for value in ("1e-09", "1000", "1e+03", "C=")), "the value is named"


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regression_that_says_one_number_is_told(name):
    found = [str(item.message) for item in told(name, X[:, 0], C=1e-12, lam=1e3, algorithm="fista")]
    assert any(word in text for text in found for word in ("same prediction", "no better than", "nothing is selected")), found


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_an_ordinary_fit_says_nothing_of_the_kind(name):
    found = [str(item.message) for item in told(name, np.where(X[:, 0] + X[:, 1] > 0, "a", "b"), lam=0.05)]
    assert not [text for text in found if any(word in text for word in ("same prediction", "no better", "of 120 rows", "nothing"))], found


def test_many_numbers_as_classes_are_told_where_they_are_numbers():
    many = np.arange(120) % 24
    assert any("24 different numbers" in str(item.message) for item in told("FGMClassifier", many, max_rounds=1))
    assert not any("different numbers" in str(item.message) for item in told("FGMClassifier", many.astype(str), max_rounds=1))


PARAMETERS = MKLConfig(C=0.5)


def rows(y, **more):
    classes, codes = np.unique(y, return_inverse=True)
    return Inputs(None, codes, tuple(classes.tolist()), **more)


def test_the_majority_is_that_of_the_rows_that_were_seen():
    y, held_out = np.array([0] * 6 + [1] * 4 + [1] * 10), np.arange(20) >= 10
    one = {"train_accuracy": 0.6, "n_answers": 2}
    assert "no better than always predicting 0 (0.600)" in fit_warnings("mkl", PARAMETERS, rows(y, held_out=held_out), {}, one)[0]
    assert not fit_warnings("mkl", PARAMETERS, rows(y, held_out=held_out), {}, {**one, "train_accuracy": 0.61})
    weight = np.where(y == 1, 3.0, 1.0)
    assert not fit_warnings("mkl", PARAMETERS, rows(y, sample_weight=weight), {}, one)


def test_of_many_classes_of_one_size_none_is_rare():
    even = np.repeat(np.arange(40), 5)
    assert not fit_warnings("mkl", PARAMETERS, rows(even), {}, {"train_accuracy": 0.9, "n_answers": 40})
    assert "(0.5%)" in fit_warnings("mkl", PARAMETERS, rows(np.r_[even, 40]), {}, {"train_accuracy": 0.9, "n_answers": 40})[0]


def test_a_run_says_it_on_the_command_line_and_keeps_it(tmp_path, capsys):
    ingest((X, RARE), tmp_path / "data")
    assert main(["fit", "mkl", "--data", str(tmp_path / "data"), "--run", str(tmp_path / "run"), "--kernels", "linear"]) == 0
    assert "class 'few' has 4 of 120 rows" in capsys.readouterr().err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert any("class 'few'" in text for text in summary["warnings"])


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_run_of_every_method_says_it_once_and_its_report_shows_it(tmp_path, name):
    method = getattr(api, name)._method.name
    tasks = {"task_column": np.zeros(120, int)} if name.startswith(("LatentTask", "MultiTask", "SharedSubspace")) else {}
    ingest((X, RARE), tmp_path / "data", **tasks)
    seen = []
    api.run_method(method, SMALL.get(name, {}), data=str(tmp_path / "data"), run=str(tmp_path / "run"), on_event=seen.append)
    said = [event["message"] for event in seen if event["event"] == "warning" and "class 'few' has 4 of 120 rows" in event["message"]]
    assert len(said) == 1 and "class_weight='balanced'" in said[0]
    write_report([tmp_path / "run"], tmp_path / "page")
    shown = (tmp_path / "page" / "report.html").read_text()
    assert "few has 4 of 120 rows (3.3%)" in shown or "class &#39;few&#39; has 4 of 120 rows" in shown


def test_a_numeric_target_of_many_values_is_refused_until_somebody_says_what_it_is(tmp_path, capsys):
    table = tmp_path / "table.csv"
    table.write_text("a,y\n" + "".join(f"{k % 7},{k % 21}\n" for k in range(63)))
    assert main(["ingest", str(table), str(tmp_path / "store"), "--target", "y"]) == 3
    said = capsys.readouterr().err
    assert "21 different numbers" in said and "--task classification" in said and "--task regression" in said
    ingest(table, tmp_path / "one", target="y", task="regression")
    assert len(ingest(table, tmp_path / "two", target="y", task="classification").meta.labels) == 21
    table.write_text("a,y\n" + "".join(f"{k % 7},c{k % 21}\n" for k in range(63)))
    assert len(ingest(table, tmp_path / "four", target="y").meta.labels) == 21
