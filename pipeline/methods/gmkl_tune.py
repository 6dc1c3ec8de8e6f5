"""Grids and folds of multiple kernel learning: every (parameters, fold) is a set of machines, and all share Gram matrices and passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...storage import DataError
from ..passes.given_grams import GivenGrams
from ..passes.grams import GramSettings
from ..records.config_kernels import MKLConfig
from ..records.context import RunContext
from .fgm_scoring import Fit, stratified_folds
from .gmkl import MKLLoop
from .gmkl_run import check_memory
from .kernel_setup import KernelInputs, dual_problems, resolved_kernels, store_inputs, with_gram_store

GRAM_PARAMETERS = ("kernels", "normalize", "grams", "gram_store")
"""Parameters that change the matrices: points that differ in them cannot share a pass."""


@dataclass(frozen=True)
class Shared:
    """Grid points that share Gram matrices and passes.

    Attributes
    ----------
    points
        Indices into the grid.
    loop
        One fit per (point, fold), folds of a point consecutive.
    """

    points: tuple[int, ...]
    loop: MKLLoop


def shared_loops(ctx: RunContext, grid: Sequence[MKLConfig], extra: Mapping[str, Any], folds: int, seed: int) -> list[Shared]:
    """Return the loops that evaluate a grid by cross-validation on row masks.

    Raises
    ------
    DataError
        The target is real-valued: there is no accuracy to compare.
    """
    if folds < 2:
        raise ValueError(f"folds={folds}: must be at least 2")
    if any(config.solver == "single" for config in grid):
        raise ValueError("solver='single' chooses its kernel by folds of its own; run it once per setting")
    keys = [tuple(str(getattr(config, name)) for name in GRAM_PARAMETERS) for config in grid]
    return [_shared(ctx, [k for k, other in enumerate(keys) if other == key], grid, folds, seed) for key in dict.fromkeys(keys)]


def _shared(ctx: RunContext, points: Sequence[int], grid: Sequence[MKLConfig], folds: int, seed: int) -> Shared:
    first, inputs = with_gram_store(grid[points[0]], store_inputs(ctx, "mkl"))
    if inputs.classes is None:
        raise DataError("the target holds real numbers; grids are compared by accuracy, which needs classes", ctx.data.url)
    masks = stratified_folds(inputs.target, seed, [1.0 / folds] * folds, inputs.classes)
    specs, given = resolved_kernels(first.kernels, inputs.data, first.normalize), isinstance(inputs.data, GivenGrams)
    settings = GramSettings.of(ctx, specs, *(("auto",) if given and first.grams == "store" else (first.grams, first.gram_store)))
    check_memory(len(specs), ctx.data.n_rows, settings, ctx.driver_memory)
    problems, configs, fits = [], [], []
    for k in points:
        for mask in masks:
            own = dual_problems(grid[k], _without(inputs, mask), grid[k].epsilon)
            fits.append(Fit(len(problems), len(own), inputs.target, mask))
            problems += own
            configs += [grid[k]] * len(own)
    return Shared(tuple(points), MKLLoop(first, specs, problems, settings, fits, inputs.data if given else None, configs))


def _without(inputs: KernelInputs, mask: np.ndarray) -> KernelInputs:
    weight = np.ones(len(mask)) if inputs.sample_weight is None else inputs.sample_weight
    return replace(inputs, sample_weight=np.where(mask, 0.0, weight))


def table_rows(
    shared: Shared, grid: Sequence[MKLConfig], folds: int, history: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return one row per grid point: accuracy over the folds (mean, standard deviation) and kernels."""
    rows, last = [], history[-1]
    for place, point in enumerate(shared.points):
        part = slice(place * folds, (place + 1) * folds)
        accuracy = np.array(last["test_accuracy"][part], dtype=float)
        rows.append(
            {
                "point": point,
                **{name: getattr(grid[point], name) for name in names},
                "accuracy": float(accuracy.mean()),
                "deviation": float(accuracy.std(ddof=1)),
                "selected": float(np.mean(last["selected"][part])),
                "folds": accuracy.tolist(),
            }
        )
    return rows
