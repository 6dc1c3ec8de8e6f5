"""Accuracy (of a regression R2) along the path: what each round's model gets right on training rows and on rows held out by a mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ...storage import DataError
from .labels import Inputs

NAN = float("nan")

InputsT = TypeVar("InputsT", bound=Inputs)


@dataclass(frozen=True)
class AccuracyTracker:
    """One classifier among the machines of a loop.

    Attributes
    ----------
    first, count
        Its machines: ``machines[first : first + count]``; one for two classes, else one per class.
    codes
        ``(n_samples,)`` class of each row.
    held_out
        ``(n_samples,)`` mask of test rows, or ``None``.
    """

    first: int
    count: int
    codes: np.ndarray
    held_out: np.ndarray | None = None

    @property
    def machines(self) -> range:
        """Indices of its machines."""
        return range(self.first, self.first + self.count)


@dataclass(frozen=True)
class R2Tracker:
    """One regression machine among the machines of a loop.

    Attributes
    ----------
    first
        Its number.
    target
        ``(n_samples,)`` real target.
    held_out
        ``(n_samples,)`` mask of test rows, or ``None``.
    """

    first: int
    target: np.ndarray
    held_out: np.ndarray | None = None

    @property
    def machines(self) -> range:
        """Indices of its machines: one."""
        return range(self.first, self.first + 1)


def predicted_codes(decisions: np.ndarray) -> np.ndarray:
    """Return the class of each row from ``(n_machines, n_samples)`` decision values."""
    return (decisions[0] > 0).astype(np.int64) if len(decisions) == 1 else decisions.argmax(axis=0)


def accuracies(fit: AccuracyTracker, decisions: Mapping[int, np.ndarray]) -> tuple[float, float]:
    """Return ``(train, test)`` accuracy of a fit; NaN where there are no rows."""
    values = np.stack([decisions[k] for k in fit.machines])
    right = predicted_codes(values) == fit.codes
    if fit.held_out is None:
        return float(right.mean()), NAN
    return _share(right[~fit.held_out]), _share(right[fit.held_out])


def _share(right: np.ndarray) -> float:
    return float(right.mean()) if right.size else NAN


def r_squared(target: np.ndarray, values: np.ndarray) -> float:
    """Return the share of the target's variance that values explain, 1 at best; NaN where there is none."""
    spread = float(np.square(target - target.mean()).sum()) if target.size else 0.0
    return 1.0 - float(np.square(target - values).sum()) / spread if spread > 0.0 else NAN


def explained(fit: R2Tracker, decisions: Mapping[int, np.ndarray]) -> tuple[float, float]:
    """Return ``(train, test)`` R2 of a regression; NaN where there are no rows."""
    values, mask = decisions[fit.first], np.zeros(len(fit.target), dtype=bool) if fit.held_out is None else fit.held_out
    return r_squared(fit.target[~mask], values[~mask]), r_squared(fit.target[mask], values[mask])


def accuracy_metrics(fits: Sequence[AccuracyTracker | R2Tracker], decisions: Mapping[int, np.ndarray]) -> dict[str, object]:
    """Return what a history row holds of accuracies, or of R2 for regressions: two numbers for one fit, lists for several."""
    if not fits:
        return {}
    name = "r2" if isinstance(fits[0], R2Tracker) else "accuracy"
    scores = [explained(fit, decisions) if isinstance(fit, R2Tracker) else accuracies(fit, decisions) for fit in fits]
    train, test = zip(*scores, strict=True)
    if len(fits) == 1:
        return {f"train_{name}": train[0], f"test_{name}": test[0]}
    return {f"train_{name}": list(train), f"test_{name}": list(test)}


def fit_tracker(inputs: Inputs, held_out: np.ndarray | None, first: int = 0) -> AccuracyTracker | R2Tracker:
    """Return what follows accuracy, or R2, of a fit whose machines begin at number ``first`` of a loop."""
    if inputs.classes is None:
        return R2Tracker(first, inputs.target, held_out)
    return AccuracyTracker(first, inputs.n_machines, inputs.target, held_out)


def held_out_rows(extra: Mapping[str, Any], codes: np.ndarray, seed: int, classes: Sequence[Any] | None) -> np.ndarray | None:
    """Return the mask of the rows that ``test_share`` holds out of a run, or ``None``; without ``classes`` of any rows.

    A mask that is given as ``held_out``, a fold say, goes before the share.

    Raises
    ------
    ValueError
        A share that is none, or a mask of another length.
    DataError
        A class with too few rows to appear in both parts.
    """
    if extra.get("held_out") is not None:
        return _checked_mask(extra["held_out"], len(codes))
    share = extra.get("test_share", 0.0)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
        raise ValueError(f"test_share={share!r}: must be a number between 0 and 1, without 1")
    if share == 0:
        return None
    return plain_folds(len(codes), seed, [float(share)])[0] if classes is None else stratified_split(codes, float(share), seed, classes)


def _checked_mask(given: Any, n: int) -> np.ndarray:
    mask = np.asarray(given, dtype=bool)
    if mask.shape != (n,):
        raise ValueError(f"held_out has shape {mask.shape}, the data has {n} rows: it must say of every row whether it is held out")
    return mask


def with_held_out(inputs: InputsT, held_out: np.ndarray | None) -> InputsT:
    """Return what a fit gets, with the weights of the held-out rows zero: a split is a mask, never a copy."""
    if held_out is None:
        return inputs
    weight = np.ones(len(held_out)) if inputs.sample_weight is None else inputs.sample_weight
    return replace(inputs, sample_weight=np.where(held_out, 0.0, weight), held_out=held_out)


def stratified_split(codes: np.ndarray, share: float, seed: int, classes: Sequence[Any] = ()) -> np.ndarray:
    """Return a mask with ``share`` of the rows of every class, drawn from ``seed``.

    Raises
    ------
    DataError
        A class with too few rows to appear in both parts.
    """
    return stratified_folds(codes, seed, [share], classes)[0]


def plain_folds(n: int, seed: int, shares: Sequence[float]) -> list[np.ndarray]:
    """Return disjoint masks with the given shares of n rows.

    Raises
    ------
    DataError
        Too few rows for every part to have one.
    """
    order = np.random.default_rng(np.random.SeedSequence((seed, 0xF01D))).permutation(n)
    edges = np.round(np.concatenate(([0.0], np.cumsum(shares))) * n).astype(int)
    if np.any(np.diff(edges) == 0) or (edges[-1] == n and len(shares) == 1):
        raise DataError(f"{n} rows are too few to appear in every part of a split into {list(shares)}")
    masks = [np.zeros(n, dtype=bool) for _ in shares]
    for mask, lo, hi in zip(masks, edges[:-1], edges[1:], strict=True):
        mask[order[lo:hi]] = True
    return masks


def stratified_folds(codes: np.ndarray, seed: int, shares: Sequence[float], classes: Sequence[Any] = ()) -> list[np.ndarray]:
    """Return disjoint masks with the given shares of the rows of every class (``classes``: their names, for the error)."""
    rng = np.random.default_rng(np.random.SeedSequence((seed, 0xF01D)))
    masks = [np.zeros(len(codes), dtype=bool) for _ in shares]
    for code in np.unique(codes):
        rows = rng.permutation(np.flatnonzero(codes == code))
        edges = np.round(np.concatenate(([0.0], np.cumsum(shares))) * len(rows)).astype(int)
        if np.any(np.diff(edges) == 0) or (edges[-1] - edges[0] == len(rows) and len(shares) == 1):
            name = repr(classes[code]) if len(classes) else str(code)
            raise DataError(f"class {name} has {len(rows)} rows, too few to appear in every part of a split into {list(shares)}")
        for mask, lo, hi in zip(masks, edges[:-1], edges[1:], strict=True):
            mask[rows[lo:hi]] = True
    return masks
