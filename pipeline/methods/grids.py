"""Grids and folds: every (parameters, fold) is a set of machines of one loop, and points that differ in nothing shared share its passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...storage import DataError
from .scoring import plain_folds, stratified_folds

if TYPE_CHECKING:
    from .task_setup import TaskInputs


@dataclass(frozen=True)
class Shared:
    """Grid points that share passes.

    Attributes
    ----------
    points
        Indices into the grid.
    loop
        One fit per (point, fold), folds of a point consecutive.
    """

    points: tuple[int, ...]
    loop: Any


def alike(grid: Sequence[Any], parameters: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the points of a grid by equal values of some parameters."""
    keys = [tuple(str(getattr(config, name)) for name in parameters) for config in grid]
    return [tuple(k for k, other in enumerate(keys) if other == key) for key in dict.fromkeys(keys)]


def fold_masks(codes: np.ndarray, classes: Sequence[Any] | None, folds: int, seed: int) -> list[np.ndarray]:
    """Return the mask of held-out rows of every fold, stratified by class where there are classes.

    Raises
    ------
    ValueError
        Fewer than two folds.
    """
    if folds < 2:
        raise ValueError(f"folds={folds}: must be at least 2")
    shares = [1.0 / folds] * folds
    return plain_folds(len(codes), seed, shares) if classes is None else stratified_folds(codes, seed, shares, classes)


def task_folds(inputs: TaskInputs, folds: int, seed: int) -> list[np.ndarray]:
    """Return the mask of held-out rows of every fold; every task has rows in all of them.

    Raises
    ------
    ValueError
        Fewer than two folds.
    DataError
        A task with fewer rows than folds.
    """
    if folds < 2:
        raise ValueError(f"folds={folds}: must be at least 2")
    sizes = np.diff(inputs.edges)
    if sizes.min() < folds:
        t = int(np.argmin(sizes))
        raise DataError(f"task {inputs.names[t]!r} has {sizes[t]} rows, too few for {folds} folds", inputs.data.url)
    return stratified_folds(inputs.codes, seed, [1.0 / folds] * folds)
