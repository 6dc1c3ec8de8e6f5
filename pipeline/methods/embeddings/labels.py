"""Labels of the rows of an embedding: classes or numbers, some of them unknown, some hidden from the fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....kernels.spectral.embeddings import class_factor, value_factor
from ....storage import DataError

UNLABELLED = -1


@dataclass(frozen=True)
class Labels:
    """What is known of the rows beside their features."""

    codes: np.ndarray  # (n,) class of each row, -1 where there is none; no entry for real targets
    classes: tuple[Any, ...] | None  # the labels, in order; None for real targets
    values: np.ndarray | None = None  # (n,) real targets, NaN where there is none
    held_out: np.ndarray | None = None  # (n,) rows whose label the fit must not see

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.codes) if self.values is None else len(self.values)

    @property
    def hidden(self) -> np.ndarray:
        """``(n,)`` mask of the rows whose label the fit must not see."""
        return np.zeros(self.size, dtype=bool) if self.held_out is None else self.held_out

    def factor(self) -> np.ndarray:
        """Return Y of the rows whose label may be seen. Raises DataError: fewer than two classes, or no two different values, are left."""
        if self.classes is None:
            assert self.values is not None
            seen = np.where(self.hidden, np.nan, self.values)
            if len(np.unique(seen[np.isfinite(seen)])) < 2:
                raise DataError("y: all labelled rows have the same value; colored-mvu needs values that differ")
            return value_factor(seen)
        seen = np.where(self.hidden, UNLABELLED, self.codes)
        count = len(np.unique(seen[seen >= 0]))
        if count < 2:
            raise DataError(f"y: labelled rows are of {count} class; colored-mvu needs at least two")
        return class_factor(seen, len(self.classes))

    def describe(self, row: int) -> dict[str, Any]:
        """Return the label of a row as a table shows it."""
        hidden = {} if self.held_out is None else {"held_out": bool(self.held_out[row])}
        if self.classes is None:
            assert self.values is not None
            value = float(self.values[row])
            return {"value": value if np.isfinite(value) else None, **hidden}
        code = int(self.codes[row])
        return {"label": None if code == UNLABELLED else self.classes[code], **hidden}


def read_labels(y: Any) -> Labels:
    """Return labels from any target: classes, or real numbers; ``None`` and NaN, and -1 among integers, stand for no label. -1 and +1 alone
    are two classes. Raises ValueError: no row has a label.
    """
    y = np.asarray(y)
    if y.dtype.kind == "f" and np.any(np.isfinite(y) & (y != np.round(y))):
        return Labels(np.zeros(0, np.int64), None, y.astype(np.float64))
    missing = np.array([value is None or value != value for value in y.tolist()], dtype=bool)
    if y.dtype.kind in "iu" or (y.dtype.kind == "f" and not missing.all()):
        numbers = np.unique(y[~missing])
        if not np.array_equal(numbers, [-1, 1]):
            missing |= np.where(missing, 0, y) == UNLABELLED
    if missing.all():
        raise ValueError("y: no row has a label; None, NaN and -1 stand for rows without one")
    classes, labelled_codes = np.unique(y[~missing], return_inverse=True)
    codes = np.full(len(y), UNLABELLED, np.int64)
    codes[~missing] = labelled_codes
    return Labels(codes, tuple(classes.tolist()))


def neighbour_accuracy(points: np.ndarray, codes: np.ndarray, voters: np.ndarray, judged: np.ndarray, k: int) -> float:
    """Return the share of rows in ``judged`` whose class the majority of their ``k`` nearest others in ``voters`` has, on the map.
    ``points`` are ``(n, d)`` coordinates, ``codes`` ``(n,)`` classes, ``voters`` and ``judged`` ``(n,)`` masks. Of classes with equal votes
    the first wins.
    """
    ids = np.flatnonzero(voters)
    right, total = 0, 0
    for row in np.flatnonzero(judged):
        others = ids[ids != row]
        if not len(others):
            continue
        squares = np.sum((points[others] - points[row]) ** 2, axis=1)
        votes = codes[others[np.argsort(squares, kind="stable")[:k]]]
        right += int(np.bincount(votes).argmax() == codes[row])
        total += 1
    return right / total if total else float("nan")
