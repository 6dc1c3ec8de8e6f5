"""Folds of a calibration: rows that are held out of a fit so that its decision values on them are those of strangers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...storage import DataError
from ..inputs.folds import fold_masks
from ..inputs.labels import Inputs
from ..inputs.tasks import TaskInputs

FOLDS = 5


@dataclass(frozen=True)
class Folds:
    """The rows held out of every fit."""

    masks: tuple[np.ndarray, ...]  # `(n,)` each, disjoint
    message: str = ""  # what the user should know

    @property
    def count(self) -> int:
        """Number of folds."""
        return len(self.masks)

    @property
    def rows(self) -> np.ndarray:
        """``(n,)`` rows that are held out of some fit."""
        return np.any(self.masks, axis=0)

    @property
    def cost(self) -> str:
        """What it takes, in words."""
        return f"{self.count} folds, about {self.count} fits"


def draw_folds(rows: Inputs, seed: int) -> Folds:
    """Return folds over the rows with a weight: ``FOLDS`` of them, fewer where a class has fewer rows; each class is in all of them.

    Rows of tasks are dealt so that no task is left without others; one that would be keeps its rows in every fit.

    Raises DataError: a class with a single row, which is named.
    """
    used = np.flatnonzero(np.ones(len(rows.target), bool) if rows.sample_weight is None else rows.sample_weight > 0)
    counts = np.bincount(rows.target[used], minlength=len(rows.labels))
    least = int(counts.argmin())
    if counts[least] < 2:
        raise DataError(
            f"class {rows.labels[least]!r} has one row: probabilities are calibrated on rows held out, which takes two of every class; "
            "give more, or set probability=False"
        )
    count = min(FOLDS, int(counts[least]))
    message = "" if count == FOLDS else f"class {rows.labels[least]!r} has {count} rows: probabilities are calibrated on {count} folds"
    if isinstance(rows, TaskInputs):
        parts = _task_parts(rows, used, count, seed)
    else:
        parts = [used[part] for part in fold_masks(rows.target[used], rows.labels, count, seed)]
    return Folds(tuple(np.isin(np.arange(len(rows.target)), part) for part in parts), message)


def _task_parts(rows: TaskInputs, used: np.ndarray, count: int, seed: int) -> list[np.ndarray]:
    """Return the rows of every fold: those of a class in turn, task after task, in a drawn order."""
    drawn = np.random.default_rng(np.random.SeedSequence((seed, 0xCA11))).permutation(used)
    fold = np.full(len(rows.target), -1)
    for code in np.unique(rows.target[used]):
        own = drawn[rows.target[drawn] == code]
        own = own[np.argsort(rows.codes[own], kind="stable")]
        fold[own] = np.arange(len(own)) % count
    for task in np.unique(rows.codes[used]):
        own = used[rows.codes[used] == task]
        if np.all(fold[own] == fold[own[0]]):
            fold[own] = -1
    return [np.flatnonzero(fold == k) for k in range(count)]
