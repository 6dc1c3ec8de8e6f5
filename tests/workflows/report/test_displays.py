"""Displays: the same charts from an estimator and from its run, drawn where they are asked to be, refused by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError
from sklearn.metrics import ConfusionMatrixDisplay, PredictionErrorDisplay, RocCurveDisplay
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gramplane
from gramplane import plots
from gramplane.pipeline import METHODS, load_model, run_method
from gramplane.storage.ingest import ingest
from gramplane.workflows.report.displays import ChartDisplay, view_estimator
from tests.support.fgm_problems import classes, planted
from tests.support.searches import NAMES, SEARCHES

mpl.use("Agg")

DISPLAYS = [getattr(plots, name) for name in plots.__all__ if name.endswith("Display")]
KERNELS = ["rbf(gamma=0.1)", "linear", "poly(degree=2)"]
X, Y = planted(0, 80, d=12)
GROUPS = np.arange(12) // 3

RUNS = {
    "fgm": ({"B": 2, "max_rounds": 3}, {}, [plots.PathDisplay, plots.WeightsDisplay, plots.GapDisplay]),
    "group-lasso": (
        {"lam": 0.02, "algorithm": "fista"},
        {"groups": GROUPS.tolist()},
        [plots.GroupsDisplay, plots.WeightsDisplay, plots.GapDisplay],
    ),
    "kta-path": ({"dp": 0.1, "n_machines": 2}, {}, [plots.PathDisplay, plots.WeightsDisplay]),
    "mkl": ({"kernels": KERNELS}, {}, [plots.WeightsDisplay, plots.GapDisplay]),
    "rule-ensemble": ({}, {}, [plots.RulesDisplay, plots.GapDisplay]),
    "mve": ({"graph": "union", "tol": 0.1}, {}, [plots.MapDisplay]),
}
MADE = {
    "fgm": gramplane.FGMClassifier(B=2, max_rounds=3),
    "group-lasso": gramplane.GroupLassoClassifier(lam=0.02, algorithm="fista", groups=GROUPS),
    "kta-path": gramplane.KTASelectionPath(dp=0.1, n_machines=2),
    "mkl": gramplane.MKLClassifier(kernels=KERNELS),
    "rule-ensemble": gramplane.RuleEnsembleClassifier(),
    "mve": gramplane.MinimumVolumeEmbedding(graph="union", tol=0.1),
}


@pytest.fixture(scope="module")
def fitted() -> dict:
    return {name: estimator.fit(X) if name == "mve" else estimator.fit(X, Y) for name, estimator in MADE.items()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("displays")
    store = ingest((X, Y), str(folder / "data"))
    for name, (params, extra, _) in RUNS.items():
        run_method(name, params, data=store.url, run=str(folder / name), extra=extra)
    return {name: folder / name for name in RUNS}


def axes():
    return Figure().add_subplot()


CASES = [(name, display) for name, (_, _, displays) in RUNS.items() for display in displays]


@pytest.mark.parametrize(("name", "display"), CASES, ids=lambda item: item if isinstance(item, str) else item.__name__)
def test_an_estimator_a_run_and_a_loaded_model_show_the_same(fitted: dict, runs: dict[str, Path], name: str, display: type[ChartDisplay]):
    more = {"labels": Y} if display is plots.MapDisplay else {}
    drawn = [
        display.from_estimator(fitted[name], ax=axes(), **more),
        display.from_run(runs[name], ax=axes()),
        display.from_estimator(load_model(runs[name]), ax=axes(), **more),
    ]
    one, *others = [item.chart for item in drawn]
    assert (one.kind, one.x_label, len(one.series)) != ("", "", 0)
    for other in others:
        assert (other.title, other.names, other.kind) == (one.title, one.names, one.kind)
        for a, b in zip(one.series, other.series, strict=True):
            # Stores hold float32, which these data are not.
            np.testing.assert_allclose(np.array(a.y, float), np.array(b.y, float), rtol=1e-6, atol=1e-9)
    marks = [len(item.ax_.lines) + len(item.ax_.patches) + len(item.ax_.collections) for item in drawn]
    assert marks[0] > 0 and len(set(marks)) == 1


def test_they_draw_where_they_are_asked_to(fitted: dict):
    own = plots.WeightsDisplay.from_estimator(fitted["fgm"])
    assert own.figure_.axes == [own.ax_] and own.ax_.get_xlabel() == "weight of the scaled column"
    ax = axes()
    again = own.plot(ax=ax)
    assert again is own and own.ax_ is ax and own.figure_ is ax.figure
    from matplotlib import pyplot

    pyplot.close("all")


def test_weights_have_the_names_of_the_columns(fitted: dict):
    pandas = pytest.importorskip("pandas")
    names = [f"column {j}" for j in range(12)]
    model = gramplane.GroupLassoClassifier(lam=0.02, algorithm="fista").fit(pandas.DataFrame(X, columns=names), Y)
    assert set(plots.WeightsDisplay.from_estimator(model, ax=axes()).chart.names) <= set(names)


def test_groups_of_the_feature_generating_machine():
    model = gramplane.FGMClassifier(B=1, max_rounds=2, groups=GROUPS + 10, scale=None).fit(X, Y)
    chart = plots.GroupsDisplay.from_estimator(model, ax=axes()).chart
    assert {int(name.split()[0]) for name in chart.names} == {int(g) + 10 for g in model.selected_}
    (best,) = [k for k, name in enumerate(chart.names) if name.startswith(f"{10 + int(model.selected_[0])} ")]
    norm = np.linalg.norm(np.asarray(model.coef_).ravel()[model.selected_[0] == GROUPS])
    assert chart.series[0].y[best] == pytest.approx(norm)


def test_the_path_of_a_machine_ends_at_its_weights(fitted: dict):
    model, chart = fitted["fgm"], plots.PathDisplay.from_estimator(fitted["fgm"], ax=axes()).chart
    ends = sorted(line.y[-1] for line in chart.series)
    assert ends == pytest.approx(sorted(model.model_.weights[model.model_.weights != 0].tolist())), "weights of the columns as scaled"
    assert [sum(line.y[t] != 0 for line in chart.series) for t in range(3)] <= [2, 4, 6]


def test_several_classes_have_a_path_each():
    data, codes = classes(n=90)
    model = gramplane.FGMClassifier(B=2, max_rounds=2).fit(data, np.array(["a", "b", "c"])[codes])
    assert plots.PathDisplay.from_estimator(model, ax=axes()).chart.title == "Weights along the path, class a"


def test_a_real_target_has_a_path_beside_its_covariates(tmp_path: Path):
    target, beside = X[:, 3] - 2.0 * X[:, 5] + 0.5 * X[:, 0], X[:, :1] + 7.0
    store = ingest((X, target), str(tmp_path / "data"), task="regression", covariates=beside)
    run_method("fgm", {"B": 1, "max_rounds": 3}, data=store.url, run=str(tmp_path / "run"))
    model = gramplane.FGMRegressor(B=1, max_rounds=3).fit(X, target, covariates=beside)
    for display in (plots.PathDisplay, plots.WeightsDisplay, plots.GapDisplay):
        assert display.from_estimator(model, ax=axes()).chart == display.from_run(tmp_path / "run", ax=axes()).chart
    chart = plots.PathDisplay.from_estimator(model, ax=axes()).chart
    assert chart.title == "Weights along the path"
    ends = sorted(line.y[-1] for line in chart.series)
    assert ends == pytest.approx(sorted(model.model_.weights[model.model_.weights != 0].tolist())), "weights of the columns as scaled"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_search_shows_its_scores_along_its_path(name: str):
    search = next(search for search in SEARCHES if search.name == name)
    model = search.fitted(cv=2, refit=False)
    chart = plots.PathDisplay.from_estimator(make_pipeline(model), ax=axes()).chart
    along = chart.x_label
    assert along in (*model._along, model._grids[0].name)
    mark = chart.series[-1]
    assert mark.label == "chosen" and list(mark.y) == [model.best_score_] and list(mark.x) == [model.best_params_[along]]
    lines = [series for series in chart.series if series.mark == "line"][:-1]
    errors = [series for series in chart.series if series.mark == "whisker"]
    drawn = [(x, y) for line in lines for x, y in zip(line.x, line.y, strict=True)]
    means = model.cv_results_["mean_test_score"]
    known = [(point[along], mean) for point, mean in zip(model.cv_results_["params"], means, strict=True)]
    assert len(errors) == len(lines) and set(drawn) <= set(known)
    assert len(drawn) == len(known) or len(lines) == 8
    width = model.cv_results_["std_test_score"][model.best_index_]  # of two folds the standard error is half of what lies between
    ends = [(low, high) for part in errors for x, low, high in zip(part.x, part.base, part.y, strict=True) if x == mark.x[0]]
    assert any(np.allclose((low, high), (mark.y[0] - width, mark.y[0] + width)) for low, high in ends)


def test_a_geometric_grid_has_a_logarithmic_axis():
    even = gramplane.GroupLassoClassifierCV(lams=[0.1, 0.2, 0.3], cv=2).fit(X, Y)
    wide = gramplane.GroupLassoClassifierCV(lams=[0.1, 0.2, 0.4], cv=2).fit(X, Y)
    scales = [plots.PathDisplay.from_estimator(model, ax=axes()).chart.x_scale for model in (even, wide)]
    assert scales == ["linear", "log"]


def test_maps_are_coloured_by_labels(fitted: dict):
    chart = plots.MapDisplay.from_estimator(fitted["mve"], labels=Y, ax=axes()).chart
    assert sorted(series.label for series in chart.series) == sorted(str(label) for label in np.unique(Y))
    with pytest.raises(ValueError, match="labels has 3 entries; it needs one for each of the 80 rows of the map"):
        plots.MapDisplay.from_estimator(fitted["mve"], labels=[1, 2, 3])


def test_a_pipeline_shows_its_last_step():
    pipe = make_pipeline(StandardScaler(), gramplane.FGMClassifier(B=2, max_rounds=2)).fit(X, Y)
    assert plots.GapDisplay.from_estimator(pipe, ax=axes()).chart.title == "Gaps"


@pytest.mark.parametrize(
    ("display", "name", "message"),
    [
        (plots.RulesDisplay, "fgm", "FGMClassifier has no rules; RulesDisplay is for RuleEnsembleClassifier"),
        (plots.PathDisplay, "mkl", "MKLClassifier has no path; PathDisplay is for FGMClassifier"),
        (plots.GroupsDisplay, "kta-path", "KTASelectionPath has no groups; GroupsDisplay is for .*GroupLassoClassifier"),
        (plots.GroupsDisplay, "fgm", "FGMClassifier has no groups to show"),
        (plots.MapDisplay, "rule-ensemble", "RuleEnsembleClassifier has no map of rows; MapDisplay is for ColoredMVU"),
        (plots.WeightsDisplay, "rule-ensemble", "RuleEnsembleClassifier has no weights of features or kernels to show"),
        (plots.GapDisplay, "kta-path", "KTASelectionPath has no certificate along its rounds to show"),
    ],
)
def test_a_wrong_estimator_is_refused_by_name(fitted: dict, runs: dict[str, Path], display: type[ChartDisplay], name: str, message: str):
    wrong = TypeError if "Display is for" in message else ValueError
    with pytest.raises(wrong, match=message):
        display.from_estimator(fitted[name])
    with pytest.raises(wrong, match=message.split(" has ")[1]):
        display.from_run(runs[name])


def test_foreign_and_unfitted_estimators_are_refused(tmp_path: Path):
    with pytest.raises(TypeError, match="StandardScaler is not an estimator of gramplane"):
        plots.PathDisplay.from_estimator(StandardScaler().fit(X))
    with pytest.raises(NotFittedError):
        plots.PathDisplay.from_estimator(gramplane.FGMClassifier())
    with pytest.raises(ValueError, match="is not a run directory"):
        plots.PathDisplay.from_run(tmp_path)


def test_predictions_are_shown_by_scikit_learn(fitted: dict):
    confusion = ConfusionMatrixDisplay.from_estimator(fitted["mkl"], X, Y, ax=axes())
    assert confusion.confusion_matrix.sum() == 80
    assert RocCurveDisplay.from_estimator(fitted["fgm"], X, Y, ax=axes()).ax_ is not None
    numbers = gramplane.MKLRegressor(kernels=KERNELS).fit(X, X[:, 0])
    assert PredictionErrorDisplay.from_estimator(numbers, X, X[:, 0], ax=axes()).ax_ is not None


def test_the_door_knows_every_display_and_loads_no_drawing():
    assert [display.__name__ for display in DISPLAYS] == [
        "GapDisplay", "GroupsDisplay", "MapDisplay", "PathDisplay", "RulesDisplay", "WeightsDisplay",
    ]  # fmt: skip
    code = "import sys, gramplane; gramplane.plots.WeightsDisplay; print('matplotlib' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.strip() == "False"


def test_every_kind_of_display_is_of_some_system():
    kinds = {display._kind for display in DISPLAYS}
    assert {kind for info in METHODS.values() for kind in info.charts.displays} <= kinds


def test_a_view_has_the_history_row_by_row(fitted: dict):
    view = view_estimator(fitted["fgm"])
    assert [row["iteration"] for row in view.history] == [1, 2, 3] and view.summary["classes"] == np.unique(Y).tolist()
