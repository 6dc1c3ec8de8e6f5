"""Folds: masks of rows that are held out of fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ...storage import DataError
from ...storage.errors import UserData
from .labels import Inputs
from .scores import plain_folds, stratified_folds
from .tasks import TaskInputs

if TYPE_CHECKING:
    pass

FOLDS = 5  # where no number is given


@dataclass(frozen=True)
class Split:
    """Training and held-out rows of one fold, as masks ``(n,)``."""

    left_out: np.ndarray  # not learnt from
    test: np.ndarray  # scored; usually the same


def row_splits(cv: UserData, rows: Inputs, seed: int, groups: np.ndarray | None = None, name: str = "cv") -> list[Split]:
    """Return the folds defined by ``cv``, a number, a splitter or an iterable.

    For a number, :func:`draw_masks` draws the folds. ``None`` means 5, or fewer if a class or task has fewer rows. Splitters get the tasks
    as groups if no ``groups`` are given. ``name``: the argument's name in messages.

    Raises ValueError if ``cv`` is invalid, or if a split lacks training rows (of any task) or held-out rows. Raises DataError if a class or
    task has too few rows.
    """
    if groups is not None and len(groups) != len(rows.target):
        raise ValueError(f"groups has {len(groups)} entries, but the data has {len(rows.target)} rows")
    if cv is None or (isinstance(cv, int | np.integer) and not isinstance(cv, bool)):
        return [Split(mask, mask) for mask in _weighted_folds(None if cv is None else int(cv), rows, seed, groups, name)]
    from sklearn.model_selection import check_cv

    target = rows.target if rows.classes is None else np.asarray(rows.classes)[rows.target]
    try:
        splitter: UserData = check_cv(cv, target, classifier=rows.classes is not None)
        pairs = list(splitter.split(np.zeros((len(target), 1)), target, getattr(rows, "codes", None) if groups is None else groups))
    except (TypeError, ValueError) as error:
        raise ValueError(f"cv={cv!r}: {error}") from error
    splits = [_split(k, train, test, len(target)) for k, (train, test) in enumerate(pairs)]
    if isinstance(rows, TaskInputs):
        for k, split in enumerate(splits):
            learnt = np.bincount(rows.codes[~split.left_out], minlength=rows.n_tasks)
            if not learnt.all():
                name = rows.names[int(learnt.argmin())]
                raise ValueError(f"cv: split {k} has no training row of task {name!r}; every task needs at least one")
    return splits


def _weighted_folds(cv: int | None, rows: Inputs, seed: int, groups: np.ndarray | None, name: str) -> list[np.ndarray]:
    """Return the masks of folds over the rows with non-zero weight."""
    n = len(rows.target)
    used = np.arange(n) if rows.sample_weight is None else np.flatnonzero(rows.sample_weight > 0)
    target = rows.target[used]
    if isinstance(rows, TaskInputs):
        some: Inputs = TaskInputs(rows.data, target, rows.classes, codes=rows.codes[used], names=rows.names)
        kinds = rows.codes[used]
    else:
        some, kinds = Inputs(rows.data, target, rows.classes), None if rows.classes is None else target
    least = len(used) if kinds is None else int(np.bincount(kinds).min())
    own = None if groups is None else groups[used]
    if own is not None:
        least = min(least, len(np.unique(own)))
    folds = min(FOLDS, max(least, 2)) if cv is None else cv
    if folds < 2:
        raise ValueError(f"{name}={cv!r}: a number of folds must be at least 2")
    if len(used) < folds:
        raise DataError(f"{name}={cv!r}: n_samples={len(used)} with positive weight are too few for {folds} folds", rows.data.url)
    return [np.isin(np.arange(n), used[part]) for part in draw_masks(some, folds, seed, own)]


def _split(k: int, train: ArrayLike, test: ArrayLike, n: int) -> Split:
    learnt, scored = np.zeros(n, bool), np.zeros(n, bool)
    for mask, rows in ((learnt, train), (scored, test)):
        mask[np.asarray(rows, None if np.size(rows) else np.int64)] = True
    if not learnt.any() or not scored.any():
        raise ValueError(f"cv: split {k} has {learnt.sum()} training rows and {scored.sum()} test rows; it needs at least one of each")
    rows = np.asarray(train)
    if rows.dtype != bool and len(rows) != learnt.sum():
        raise ValueError(f"cv: split {k} repeats training rows; list every row once, and set sample_weight instead")
    return Split(~learnt, scored)


def draw_masks(inputs: Inputs, folds: int, seed: int, groups: np.ndarray | None = None) -> list[np.ndarray]:
    """Return the mask of held-out rows of every fold, stratified by task if there are tasks, otherwise by class.

    With ``groups``, all rows of a group are in one fold, and tasks or classes are as balanced as that permits.

    Raises ValueError for fewer than two folds, or fewer groups than folds. Raises DataError if a class or task has fewer rows than folds.
    """
    if groups is not None:
        return _group_folds(inputs, folds, seed, groups)
    if isinstance(inputs, TaskInputs):
        return task_folds(inputs, folds, seed)
    return fold_masks(inputs.target, inputs.classes, folds, seed)


def _group_folds(inputs: Inputs, folds: int, seed: int, groups: np.ndarray) -> list[np.ndarray]:
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

    _fold_shares(folds)
    codes = _group_codes(groups, folds)
    kinds = inputs.codes if isinstance(inputs, TaskInputs) else None if inputs.classes is None else inputs.target
    kind = GroupKFold if kinds is None else StratifiedGroupKFold
    n = len(codes)
    parts = kind(folds, shuffle=True, random_state=seed).split(np.zeros((n, 1)), kinds, codes)
    return [np.isin(np.arange(n), held) for _, held in parts]


def _group_codes(groups: np.ndarray, folds: int) -> np.ndarray:
    distinct, codes = np.unique(groups, return_inverse=True)
    if len(distinct) < folds:
        raise ValueError(f"groups: {len(distinct)} distinct groups are too few for {folds} folds; set at most {len(distinct)} folds")
    return codes


def row_groups(data: UserData, column: str | None, folds: int) -> np.ndarray | None:
    """Return the group of every row from a column of a store: the row names, or a feature. Rows of a group are held out together.

    Raises DataError if the store has no such column, and ValueError if there are fewer groups than folds.
    """
    if column is None:
        return None
    encoding, names = data.encoding, data.feature_names() or []
    if data.has_ids and column in ("id", None if encoding is None else encoding.id_column):
        return _group_codes(np.asarray(data.ids()), folds)
    if column in names:
        values = data.columns([names.index(column)])
        return _group_codes(np.asarray(values if isinstance(values, np.ndarray) else values.toarray()).ravel(), folds)
    rule = f"is neither the id column nor a feature of the store; to store it as ids, ingest again with --id-column {column}"
    raise DataError(f"group column {column!r} {rule}", data.url)


def fold_masks(codes: np.ndarray, classes: Sequence[Any] | None, folds: int, seed: int) -> list[np.ndarray]:
    """Return the mask of held-out rows of every fold, stratified by class if there are classes.

    Raises ValueError for fewer than two folds.
    """
    shares = _fold_shares(folds)
    return plain_folds(len(codes), seed, shares) if classes is None else stratified_folds(codes, seed, shares, classes)


def task_folds(inputs: TaskInputs, folds: int, seed: int) -> list[np.ndarray]:
    """Return the mask of held-out rows of every fold, such that every fold holds out rows of every task.

    Raises ValueError for fewer than two folds, and DataError if a task has fewer rows than folds.
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
