"""Runs to make pages of: every kind of figure, table, notice and advice that a page can have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gramplane.pipeline.records.run_view import HELD_OUT_ROWS, OTHER_ROWS, TRAINING_ROWS, RunView
from gramplane.pipeline.runs.evaluation import evaluate_classes, evaluate_numbers
from gramplane.workflows.report.figures import section_pictures
from gramplane.workflows.report.svg import Picture


def history(rounds: int = 5) -> list[dict]:
    return [
        {
            "iteration": t, "objective": 100 * math.exp(-t) + 5, "gap": 0.0 if t == 1 else 10.0**-t, "outer_gap": 50 * math.exp(-t),
            "n_selected": 10 * t, "train_accuracy": 1 - 0.2 / t, "test_accuracy": 0.95 - 0.2 / t, "seconds": 0.5, "seconds_score": 0.2,
            "seconds_solve": 0.3, "tasks": 4, "bytes": 3 << 20,
        }
        for t in range(1, rounds + 1)
    ]  # fmt: skip


def view(**more: object) -> RunView:
    """Return a run of the Feature Generating Machine."""
    found = RunView(
        name="run a", path="/runs/a", method="fgm", title="Feature Generating Machine", params={"B": 10, "C": 1.0},
        settings={"data": "/stores/x", "seed": 0}, summary={"n_selected": 50, "n_features": 64, "rounds": 5, "stop": "max_rounds"},
        history=history(), selected=[{"feature": f"x{j}", "weight": (-1.0) ** j / (j + 1)} for j in range(50)],
    )  # fmt: skip
    return replace(found, **more)


def score(n_classes: int = 2, n: int = 300, which: str = OTHER_ROWS, seed: int = 0, **more: Any) -> dict[str, Any]:
    """Return a score of classes, its rows drawn."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, n_classes, n)
    values = rng.normal(size=(n, 1 if n_classes == 2 else n_classes))
    values += (2 * truth[:, None] - 1) if n_classes == 2 else 2 * (truth[:, None] == np.arange(n_classes))
    labels = [f"label {k}" for k in range(n_classes)]
    codes = (values[:, 0] > 0).astype(int) if n_classes == 2 else values.argmax(axis=1)
    by_class = [
        {"label": label, "precision": 0.9, "recall": 0.8, "f1": 0.85, "support": int(np.sum(truth == k))} for k, label in enumerate(labels)
    ]
    figures = {"rows_are": which, "data_digest": f"{which}-{n}", "rows": n, "accuracy": float(np.mean(truth == codes)), "classes": by_class}
    area = {"auc": 0.92} if n_classes == 2 else {}
    return {"store": "held", **figures, **area, **evaluate_classes(truth, values, labels), **more}


def numbers(n: int = 700, which: str = OTHER_ROWS) -> dict[str, Any]:
    """Return a score of a regression, its rows drawn."""
    rng = np.random.default_rng(1)
    truth = rng.normal(size=n)
    told = truth + 0.5 * rng.normal(size=n)
    figures = {"rows_are": which, "rows": n, "r2": 1 - float(np.var(truth - told) / np.var(truth)), "rmse": 0.5, "mae": 0.4}
    return {"store": "held", **figures, **evaluate_numbers(truth, told)}


KERNELS = [{"kernel": f"rbf(gamma={0.5 * k}) trace", "weight": 1.0 / k} for k in range(1, 9)]
BOUNDS = [
    {
        "iteration": t,
        "lower_bound": 10 - 3.0 / t,
        "upper_bound": 10 + 3.0 / t,
        "relative_gap": 0.6 / t,
        "working_gap": 0.3 / t,
        "n_selected": 9 - t,
    }
    for t in range(1, 7)
]
TRIALS = [
    {
        "point": k,
        "C": C,
        "v": v,
        "accuracy": 0.8 + 0.02 * k,
        "deviation": 0.02,
        "standard_error": 0.01,
        "selected": 3.0,
        "folds": [0.8, 0.9],
    }
    for k, (C, v) in enumerate((C, v) for C in (0.1, 1.0, 10.0) for v in (0.0, 0.5))
]
RULES = [
    {
        "rule": f"a rather long name of a column <= {k / 7:.4f} and another one > {k}",
        "vote": k % 2,
        "weight": 1.0 / (k + 1),
        "support": 9,
        "length": 2,
    }
    for k in range(25)
]
TASKS = [{"task": f"task {t}", **{f"kernel {k}": math.sin(t * k + 1.0) for k in range(12)}} for t in range(8)]
PATH = [{"p": 2.0 - 0.1 * k, "n_active": 100 - 9 * k, "train_accuracy": 0.9} for k in range(10)]
WEIGHTS = [{"machine": "", "iteration": t, **{f"rbf(gamma={k}.5) trace": 1.0 / (k + t) for k in range(14)}} for t in range(1, 7)]
POINTS = [{"row": k, "component_0": math.cos(k), "component_1": math.sin(2 * k), "label": f"l{k % 3}"} for k in range(120)]


def pictures(runs: Sequence[RunView]) -> list[Picture]:
    """Return every figure of a page, section after section."""
    return [item for items in section_pictures(runs).values() for item in items]


def pages() -> dict[str, list[RunView]]:
    """Return the runs of pages that together have every figure, table, notice and advice."""
    rare = {
        "rows": 900,
        "columns": 64,
        "classes": {"yes": 880, "no": 20},
        "widths": [{"feature": "a", "width": 0.1}, {"feature": "b", "width": 1e5}],
    }
    pixels = [{"feature": f"pixel_{j}_{j % 5}*pixel_{(3 * j) % 7}_{j % 3}", "weight": (-1.0) ** j / (j + 1)} for j in range(12)]
    fgm = view(
        scores=[score(), score(which=TRAINING_ROWS, store="train")],
        selected=pixels,
        params={"B": 10, "C": 1.0, "class_weight": None, "max_rounds": 5},
        training=rare,
        summary={
            "n_selected": 50,
            "n_features": 64,
            "stop": "max_rounds",
            "objective": 9.0,
            "outer_gap": 4.0,
            "gap": 1e-3,
            "classes": ["no", "yes"],
        },
    )
    mkl = view(
        name="a run with_a_very_long_name_without_any_place_to_break_it_in_two",
        method="mkl",
        title="Generalized multiple kernel learning",
        history=BOUNDS,
        selected=[],
        trials=TRIALS,
        scores=[score(12, 600)],
        params={"C": 10.0, "v": 0.5},
        tables={"kernels": KERNELS, "weights": WEIGHTS},
        summary={"n_selected": 5, "n_kernels": 8, "classes": list("abc"), "certified_over": "all kernels"},
    )
    regression = view(
        name="numbers",
        method="group-lasso",
        title="Group lasso",
        scores=[numbers()],
        params={"lam": 0.1},
        history=[{"iteration": t, "objective": 9.0 / t, "gap": 1.0 / t} for t in range(1, 5)],
        tables={"groups": [{"group": g, "norm": 1.0 / (g + 1), "size": 3} for g in range(5)]},
    )
    rules = view(
        name="rules",
        method="rule-ensemble",
        title="Rules",
        selected=[],
        tables={"rules": RULES},
        summary={"n_selected": 25, "classes": [0, 1]},
        scores=[score(which=HELD_OUT_ROWS, seed=3)],
        history=[{**row, "outer_gap": None, "restricted_gap": row["gap"]} for row in history()],
    )
    many = view(
        name="tasks",
        method="multitask-mkl",
        title="Many tasks",
        selected=[],
        history=BOUNDS,
        tables={"kernels": KERNELS, "task_kernels": TASKS},
    )
    path = view(
        name="path",
        method="kta-path",
        title="Path",
        selected=[],
        history=[],
        tables={
            "path": PATH,
            "path_weights": [{"p": row["p"], **{f"column {k}": 1.0 / (k + row["p"]) for k in range(12)}} for row in PATH],
            "kernels": KERNELS,
        },
    )
    plane = view(
        name="map",
        method="spe",
        title="Map",
        selected=[],
        tables={"embedding": POINTS, "spectrum": [{"eigenvalue": 1.0 / k} for k in range(1, 9)]},
    )
    cut = view(name="cut", state="stopped", history=history(1), settings={"data": "/stores/other/name", "data_digest": "f" * 64})
    return {
        "fgm": [fgm], "mkl": [mkl], "regression": [regression], "rules": [rules], "tasks": [many], "path": [path], "map": [plane],
        "compared": [replace(fgm, settings={"data": "/stores/x", "data_digest": "a" * 64}), replace(mkl, name="mkl"), rules, cut],
    }  # fmt: skip
