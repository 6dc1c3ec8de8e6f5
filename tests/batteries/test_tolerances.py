"""A tighter tolerance never gives a worse model: every method of the registry, every solver of it, every tolerance it has.

Where a tolerance also steers the machines inside, both fits meet other points on their way; the tighter one ends within a hundredth of the
gap at which the looser one may end, and on these problems below it. float32 kernels are the same matrices to both fits, so that rounding is
that of float64 sums: 1e-9 of the objective is allowed, as much in gaps.
"""

import typing
import warnings
from dataclasses import dataclass, field
from typing import Any

import pytest

from gramplane.kernels.jit import one_thread
from gramplane.pipeline import METHODS, run_method
from gramplane.storage import RunStore
from tests.support.methods import CASES

ROUNDING = 1e-9
"""Of the objective's size."""

TIGHTER = 100.0

CHOICES = ("solver", "algorithm")
"""Parameters that name a solver."""


@dataclass(frozen=True)
class Entry:
    """A case of the batteries at two tolerances: `loose`, and that over TIGHTER."""

    case: str
    loose: float
    params: dict[str, Any] = field(default_factory=dict)
    tol: str = "tol"
    marks: tuple[Any, ...] = ()

    @property
    def method(self) -> str:
        return CASES[self.case].method

    @property
    def settings(self) -> dict[str, Any]:
        return {**CASES[self.case].params, **self.params}

    def __str__(self) -> str:
        told = [f"{name}={value}" for name, value in self.params.items() if name in (*CHOICES, "loss", "refit")]
        return "-".join([self.case, *([] if self.tol == "tol" else [self.tol]), *told])


LONG = {"max_iter": 300}
SLOW = (pytest.mark.slow,)

ENTRIES = [
    # As given, fits at both tolerances take the same cuts; a greedy choice of others may end at a lower objective.
    *(Entry("fgm-sparse", 1e-2, {"scale": None, "solver": solver}, "inner_tol") for solver in ("auto", "newton", "apg", "mkl")),
    Entry("fgm-logistic-bias", 1e-2, tol="inner_tol"),
    Entry("fgm-sparse", 0.5, {"max_rounds": 30, "inner_tol": 1e-10}, "outer_tol"),
    *(Entry("group-lasso-batch-classes", 1e-2, {"loss": loss}) for loss in ("logistic", "squared")),
    Entry("group-lasso-batch-classes", 1e-2, {"loss": "hinge"}, marks=SLOW),
    Entry("group-lasso-batch-numbers", 1e-2),
    *(Entry("mkl-two", 1e-2, {**LONG, "solver": solver}) for solver in ("auto", "level", "silp", "alternate", "uniform")),
    *(Entry("mkl-simplemkl", 1e-2, {**LONG, "solver": solver}) for solver in ("auto", "level", "silp", "simplemkl", "alternate")),
    *(Entry("mkl-regression", 1e-2, {"solver": solver}) for solver in ("auto", "silp", "alternate")),
    Entry("mkl-two", 1e-2, {**LONG, "constraint": "l1_lp", "p": 3.0}),
    *(Entry("mkl-box-fgm", 1e-2, {**LONG, "solver": solver}) for solver in ("auto", "silp", "fgm", "alternate")),
    *(Entry("mkl-squared-hinge-box", 1e-2, {**LONG, "solver": solver}) for solver in ("fgm", "level")),
    *(Entry("mkl-logistic-classes-recompute", 1e-2, {"solver": solver}) for solver in ("auto", "silp", "single")),
    Entry("mkl-regression", 1e-2, {"loss": "squared"}),
    Entry("mkl-single-classes", 1e-2),
    Entry("mkl-classes-recompute", 1e-2),
    *(Entry(f"latent-task-mkl-{kind}", 1e-1, LONG) for kind in ("hinge", "squared-inverted-recompute")),
    *(Entry("rule-ensemble-two", 1e-1, {"max_rounds": 30, "solver": solver}) for solver in ("auto", "newton", "mirror")),
    *(Entry(f"rule-ensemble-{name}", 1e-1, {"max_rounds": 30}) for name in ("classes", "numbers", "task-numbers")),
    Entry("hierarchical-kernels-classes-recompute", 1e-1),
    *(Entry("hierarchical-kernels-tasks-mirror", 1e-1, {"solver": solver}) for solver in ("auto", "mirror")),
    *(Entry(f"multitask-mkl-{kind}", 1e-1, LONG) for kind in ("classes", "numbers-recompute", "mirror")),
    *(Entry(f"shared-subspace-mkl-{kind}", 1e-2, LONG) for kind in ("classes", "numbers-recompute")),
    *(Entry(f"shared-subspace-mkl-{kind}", 1e-1, {"max_iter": 60}) for kind in ("mirror", "alternate")),
    # At 1e-10 round-off forbids the tolerance of the selection: the second fit is made all the same.
    *(Entry("multitask-selector-batch", loose) for loose in (1e-4, 1e-8)),
    Entry("multitask-selector-batch", 1e-2, {"refit": None}),
    Entry("multitask-selector-batch", 1.0, {"loss": "hinge", "refit": None}),
    *(Entry("npkl-squared-hinge", 1e-2, {"loss": loss}) for loss in ("squared_hinge", "hinge", "linear")),
    Entry("npkl-square-penalty", 1e-2),
    Entry("colored-mvu", 1e-2),
    Entry("spe", 1e-1),
    Entry("semantic-ranker", 1e-1),
    Entry("semantic-ranker", 1e-6, tol="walk_tol"),
    *(Entry("visual-rank", 1e-2, {"solver": solver}) for solver in ("power", "exact")),
    *(Entry("social-strength", 1e-1, tol=tol) for tol in ("tol", "import_tol")),
    *(Entry("tri-class-svm-held-out", 1e-1, {"algorithm": algorithm}) for algorithm in ("mm", "dc", "cccp")),
    Entry("tri-class-svm-cccp-balance", 1e-1),
    Entry("tri-class-svm-cccp-balance", 1e-1, tol="inner_tol"),
    *(Entry(f"two-layer-mkl-{kind}", 1e-1, {"max_iter": 60}) for kind in ("classes", "infinite", "numbers")),
    Entry("two-layer-mkl-infinite", 1e-2, {"max_iter": 60}, "decrease_tol"),
    *(Entry(f"unsupervised-mkl{kind}", 1e-1) for kind in ("", "-gain-recompute")),
    Entry("mve", 1e-1),
]

NOT_CONVEX = {
    "tri-class-svm": "an assignment of unlabelled rows to classes is searched: other tolerances may end at other assignments",
    "two-layer-mkl": "an exponential of the sum of kernels: steps end at stationary points",
    "unsupervised-mkl": "bases and kernel weights alternate: an end depends on its start and on the way",
    "mve": "a difference of sums of eigenvalues: every step bounds it by the eigenvectors of the step before",
}
"""Methods of which no tolerance promises an optimum: their model is only held to be the best of its own history."""

WITHOUT = {
    ("group-lasso", "algorithm", "auto"): "it is one of the others",
    ("group-lasso", "algorithm", "da"): "a stream ends after its epochs",
    ("group-lasso", "algorithm", "fobos"): "a stream ends after its epochs",
    ("multitask-selector", "algorithm", "auto"): "it is one of the others",
    ("multitask-selector", "algorithm", "da"): "a stream ends after its epochs",
    ("multitask-selector", "algorithm", "fobos"): "a stream ends after its epochs",
}
"""Solvers that no tolerance ends, each with its reason."""


def tolerances(method: str) -> set[str]:
    return {name for name in METHODS[method].config.model_fields if name.endswith("tol")}


def solvers(method: str) -> set[tuple[str, str, str]]:
    fields = METHODS[method].config.model_fields
    return {(method, name, value) for name in CHOICES if name in fields for value in typing.get_args(fields[name].annotation)}


def test_every_tolerance_and_every_solver_of_the_registry_has_an_entry():
    assert {(m, tol) for m in METHODS for tol in tolerances(m)} == {(entry.method, entry.tol) for entry in ENTRIES}
    fields = {m: METHODS[m].config.model_fields for m in METHODS}
    run = {
        (e.method, name, e.settings.get(name, fields[e.method][name].default))
        for e in ENTRIES
        for name in CHOICES
        if name in fields[e.method]
    }
    known = {found for m in METHODS if tolerances(m) for found in solvers(m)}
    assert run | set(WITHOUT) == known, "ENTRIES or WITHOUT here has every solver and loss of every method"
    assert not run & set(WITHOUT) and set(NOT_CONVEX) <= set(METHODS)


def fitted(entry: Entry, tol: float, data, run) -> tuple[dict[str, Any], list[float]]:
    """Return the summary of a run, and the objectives of its history."""
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_method(entry.method, {**entry.settings, entry.tol: tol}, data=data, run=str(run), seed=3, extra=CASES[entry.case].extra)
    store = RunStore.open(run)
    return store.read_json("summary"), [row["objective"] for row in store.history() if row.get("objective") is not None]


FIRST = {entry.method: entry for entry in reversed(ENTRIES)}


@pytest.fixture(
    params=[pytest.param(entry, id=str(entry), marks=entry.marks if entry in FIRST.values() else pytest.mark.slow) for entry in ENTRIES]
)
def pair(request, tmp_path):
    """An entry with its fits at the looser tolerance and the tighter."""
    entry = request.param
    CASES[entry.case].data(tmp_path / "data.zarr")
    data = str(tmp_path / "data.zarr")
    return entry, *(fitted(entry, entry.loose / over, data, tmp_path / f"run-{over:g}") for over in (1.0, TIGHTER))


def test_a_tighter_tolerance_gives_no_worse_a_model(pair):
    entry, *fits = pair
    (loose, _), (tight, _) = fits
    # A walk has no objective: the distance from its fixed point is its gap.
    loose, tight = ({**summary, "objective": summary["gap"]} if summary["objective"] is None else summary for summary in (loose, tight))
    slack = ROUNDING * abs(loose["objective"])
    if entry.method in NOT_CONVEX:
        for summary, history in fits:
            assert summary["objective"] == pytest.approx(min(history), rel=ROUNDING)
        return
    assert tight["objective"] <= loose["objective"] + slack
    # A search of rules that a bound ends at the looser tolerance may go on to where no bound of all rules is computed.
    is_certified = [not summary["certified_over"].startswith("none") for summary in (loose, tight)]
    assert [summary["gap"] is not None for summary in (loose, tight)] == is_certified and is_certified[0] >= is_certified[1]
    if all(is_certified):
        assert tight["gap"] <= loose["gap"] + slack and tight["certified_over"] == loose["certified_over"]
