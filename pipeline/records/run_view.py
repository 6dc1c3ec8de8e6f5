"""The content of a run for a report: plain values, independent of their storage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]

# Which rows a score is of: those that `test_share` held out, those the fit has seen, or rows of another store.
HELD_OUT_ROWS, TRAINING_ROWS, OTHER_ROWS = "rows held out of the fit", "training rows", "rows of another store"


@dataclass(frozen=True)
class RunView:
    """The content of a run for a report."""

    name: str  # shown in legends and headings
    path: str  # where the run lies
    # method, title: name of the method on the command line, and its full name
    method: str
    title: str
    params: Row = field(default_factory=dict)  # the method's parameters
    settings: Row = field(default_factory=dict)  # data, cluster, seed and what else the run decided once
    command: str = ""  # the command line that repeats the fit; empty where the record of the run does not hold all of it
    meanings: Mapping[str, str] = field(default_factory=dict)  # what the parameters mean, by name
    state: str = "done"  # `done`, `running`, `stopped` or `not started`
    summary: Row = field(default_factory=dict)  # figures of the finished run
    history: Sequence[Row] = ()  # one row per outer iteration
    selected: Sequence[Row] = ()  # rows `{"feature": name, "weight": w}` (or one `weight[label]` per class), largest weight first
    scores: Sequence[Row] = ()  # one row per store the run was scored on
    trials: Sequence[Row] = ()  # one row per setting compared by cross-validation
    # what is known of the training data: `rows`, `classes` (rows by label), `columns`, `widths` (of the narrowest and widest column, with
    # their names); nothing where the store is not at hand
    training: Row = field(default_factory=dict)
    # further tables of the method by name; of methods on kernels `kernels` (`{"kernel": name, "weight": w}`, largest first) and
    # `weights` (`{"machine": class, "iteration": t, name: w, ...}`)
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    is_compared: bool = False  # whether there are other runs on the page, so that figures of this one alone name it

    @property
    def bounded(self) -> bool:
        """Whether the history has a lower and an upper bound of the optimum."""
        return has_values(self.column("lower_bound")) and has_values(self.column("upper_bound"))

    @property
    def kernels(self) -> Sequence[Row]:
        """Kernels with their weights, largest first."""
        return [row for row in self.tables.get("kernels", ()) if has_values([weight_of(row)])]

    @property
    def unit(self) -> str:
        """The kind of thing that the method selects."""
        if self.tables.get("rules") is not None:
            return "rules"
        if any("tasks" in row for row in self.tables.get("groups", ())):
            return "groups of tasks"
        return "kernels" if self.tables.get("kernels") or "n_kernels" in self.summary or self.bounded else "features"

    @property
    def along_path(self) -> bool:
        """Whether accuracy or R2 was measured along a path of kernels."""
        return has_values([number(row.get(name)) for row in self.tables.get("path", ()) for name in ("train_accuracy", "train_r2")])

    @property
    def step(self) -> str:
        """What a row of the history is called: a round or, for a stream, a step, which consists of many rounds."""
        return "step" if any("epoch" in row for row in self.history) else "round"

    @property
    def steps(self) -> Any:
        """Number of rows of the history, according to the summary."""
        return self.summary.get("iterations", self.summary.get("rounds"))

    @property
    def shown_scores(self) -> Sequence[Row]:
        """Scores on held-out rows; without these, scores on training rows."""
        return [score for score in self.scores if score.get("rows_are") != TRAINING_ROWS] or self.scores

    @property
    def is_unseen(self) -> bool:
        """Whether any score is on held-out rows."""
        return any(score.get("rows_are") != TRAINING_ROWS for score in self.scores)

    def column(self, key: str) -> list[float]:
        """Return one column of the history over the rounds; NaN where a round lacks the value."""
        return [number(row.get(key)) for row in self.history]

    def phases(self) -> dict[str, list[float]]:
        """Return the seconds of each phase over the rounds."""
        keys = dict.fromkeys(key for row in self.history for key in row if key.startswith("seconds_"))
        return {key.removeprefix("seconds_"): self.column(key) for key in keys}


def measure_of(row: Row) -> str:
    """Return the name of the score that a row of a search is compared by; the default is ``"accuracy"``, or ``"r2"`` for regression."""
    return str(row.get("measure") or ("accuracy" if "accuracy" in row else "r2"))


def number(value: object) -> float:
    """Return a number as a float, the mean of a list of numbers (one per class or fold), or NaN for other values."""
    if isinstance(value, (list, tuple)):
        known = [number(item) for item in value]
        return sum(known) / len(known) if known else math.nan
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan


def has_values(values: Sequence[float]) -> bool:
    """Return whether any value is finite."""
    return any(math.isfinite(value) for value in values)


def needs_names(runs: Sequence[RunView]) -> bool:
    """Return whether lines in a chart of these runs need the runs' names."""
    return len(runs) > 1 or any(run.is_compared for run in runs)


def step_word(runs: Sequence[RunView]) -> str:
    """Return the common name of the rows of the runs' histories."""
    return " or ".join(sorted({run.step for run in runs}))


def weight_of(row: Row) -> float:
    """Return the weight of a selected feature; with several classes, the one of largest absolute value."""
    values = [number(value) for key, value in row.items() if key.startswith("weight")]
    return max(values, key=abs, default=math.nan)
