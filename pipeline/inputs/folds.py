"""Grids and folds: every (parameters, fold) is a set of machines of one loop; points with equal matrices share its passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...storage import DataError
from .scores import plain_folds, stratified_folds

if TYPE_CHECKING:
    from ..records.context import RunContext
    from .tasks import TaskInputs

# Parameters that change the matrices: points that differ in them cannot share a pass.
GRAM_PARAMETERS = ("kernels", "normalize", "grams", "gram_store")


@dataclass(frozen=True)
class SharedLoop:
    """Grid points that share passes."""

    points: tuple[int, ...]  # indices into the grid
    loop: Any  # one fit per (point, fold), folds of a point consecutive; `loop.fits` score them
    # `decide(state, ctx)`: what all machines decide at the end, one row each; none where the loop scores every round
    decide: Callable[[Any, RunContext], Sequence[np.ndarray]] | None = None


def group_by_parameters(grid: Sequence[Any], parameters: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the points of a grid by equal values of some parameters."""
    keys = [tuple(str(getattr(config, name)) for name in parameters) for config in grid]
    return [tuple(k for k, other in enumerate(keys) if other == key) for key in dict.fromkeys(keys)]


def fold_masks(codes: np.ndarray, classes: Sequence[Any] | None, folds: int, seed: int) -> list[np.ndarray]:
    """Return the mask of held-out rows of every fold, stratified by class where there are classes.

    Raises ValueError: fewer than two folds.
    """
    shares = _fold_shares(folds)
    return plain_folds(len(codes), seed, shares) if classes is None else stratified_folds(codes, seed, shares, classes)


def task_folds(inputs: TaskInputs, folds: int, seed: int) -> list[np.ndarray]:
    """Return the mask of held-out rows of every fold; every task has rows in all of them.

    Raises ValueError: fewer than two folds; DataError: a task with fewer rows than folds.
    """
    shares, sizes = _fold_shares(folds), np.diff(inputs.edges)
    if sizes.min() < folds:
        t = int(np.argmin(sizes))
        raise DataError(f"task {inputs.names[t]!r} has {sizes[t]} rows, too few for {folds} folds", inputs.data.url)
    return stratified_folds(inputs.codes, seed, shares)


def _fold_shares(folds: int) -> list[float]:
    if folds < 2:
        raise ValueError(f"folds={folds}: must be at least 2")
    return [1.0 / folds] * folds


def table_rows(
    shared: SharedLoop, grid: Sequence[Any], folds: int, history: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return one row per grid point: accuracy (of a regression R2 and mean square error) over the folds, and what was selected."""
    rows, last = [], history[-1]
    measure = "r2" if "test_r2" in last else "accuracy"
    for number, point in enumerate(shared.points):
        part = slice(number * folds, (number + 1) * folds)
        scores = np.array(last[f"test_{measure}"][part], dtype=float)
        row = {"point": point, **{name: getattr(grid[point], name) for name in names}, measure: float(scores.mean())}
        if measure == "r2":
            errors = ((1.0 - r2) * fit.target[fit.held_out].var() for fit, r2 in zip(shared.loop.fits[part], scores, strict=True))
            row["mse"] = float(np.mean(list(errors)))
        deviation, selected = float(scores.std(ddof=1)), float(np.mean(last["selected"][part]))
        rows.append({**row, "deviation": deviation, "selected": selected, "folds": scores.tolist()})
    return rows
