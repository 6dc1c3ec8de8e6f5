"""Labels of the rows of an embedding: classes or numbers. Some labels may be unknown, and some may be held out from the fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....kernels.spectral.embeddings import class_factor, kernel_factor, value_factor
from ....storage import DataError
from ....storage.errors import UserData

UNLABELLED = -1
MIN_SPREAD = 1e-6  # differences along a column of a label kernel's factor, relative to its largest entry, that are more than rounding


@dataclass(frozen=True)
class Labels:
    """Labels of the rows, with a mask of the labels that are held out from the fit."""

    codes: np.ndarray  # (n,) class of each row, -1 where there is none; no entry for real targets
    classes: tuple[Any, ...] | None  # the labels, in order; None for real targets
    values: np.ndarray | None = None  # (n,) real targets, NaN where there is none
    held_out: np.ndarray | None = None  # (n,) rows whose label the fit must not see

    @property
    def size(self) -> int:
        return len(self.codes) if self.values is None else len(self.values)

    @property
    def hidden(self) -> np.ndarray:
        """``(n,)`` mask of the rows whose labels are held out from the fit."""
        return np.zeros(self.size, dtype=bool) if self.held_out is None else self.held_out

    def factor(self, kernel: str = "auto") -> np.ndarray:
        """Return the factor Y of the label kernel ``Y Y'``. The rows of Y are zero for rows without a label and for held-out rows.

        ``kernel`` is ``"one-hot"`` or ``"linear"``; by default it follows from the type of the labels. Raises DataError for fewer than two
        distinct labels, and for labels that do not suit the kernel.
        """
        if kernel == "one-hot" and self.classes is None:
            raise DataError("label_kernel='one-hot' needs classes, but the target holds real numbers; set label_kernel='linear'")
        if self.classes is None or kernel == "linear":
            seen = np.where(self.hidden, np.nan, self.numbers)
            if len(np.unique(seen[np.isfinite(seen)])) < 2:
                raise DataError("y: all labelled rows have the same value; colored-mvu needs values that differ")
            return value_factor(seen)
        seen = np.where(self.hidden, UNLABELLED, self.codes)
        count = len(np.unique(seen[seen >= 0]))
        if count < 2:
            raise DataError(f"y: the labelled rows have {count} class; colored-mvu needs at least two classes")
        return class_factor(seen, len(self.classes))

    @property
    def numbers(self) -> np.ndarray:
        """Labels as numbers, ``(n,)``; NaN for rows without a label. Raises DataError if the labels are not numbers."""
        if self.classes is None:
            assert self.values is not None
            return self.values
        try:
            known = np.array([float(label) for label in self.classes])
        except (TypeError, ValueError):
            raise DataError(f"label_kernel='linear' needs numbers, but the target holds {self.classes[0]!r}; set 'one-hot'") from None
        return np.where(self.codes >= 0, known[self.codes], np.nan)

    def describe(self, row: int) -> dict[str, Any]:
        """Return the label of a row in the form that tables show."""
        hidden = {} if self.held_out is None else {"held_out": bool(self.held_out[row])}
        if self.classes is None:
            assert self.values is not None
            value = float(self.values[row])
            return {"value": value if np.isfinite(value) else None, **hidden}
        code = int(self.codes[row])
        return {"label": None if code == UNLABELLED else self.classes[code], **hidden}


def read_labels(y: UserData) -> Labels:
    """Return labels from a target of classes or real numbers. ``None``, NaN, and -1 among integers mean no label. Exception: if -1 and +1
    are the only integers, they are two classes.

    Raises ValueError if no row has a label.
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


def matrix_factor(kernel: np.ndarray, labels: Labels | None, n: int) -> np.ndarray:
    """Return the factor Y of a given label kernel ``Y Y'`` ``(n, n)``. Rows and columns of held-out rows are set to zero first.

    Raises ValueError if the matrix has another shape, is constant, or is not positive semi-definite.
    """
    kernel = np.asarray(kernel, dtype=np.float64)
    if kernel.shape != (n, n):
        raise ValueError(f"label_kernel has shape {kernel.shape}; it must be ({n}, {n}), one row and one column per row of the data")
    if labels is not None:
        seen = ~labels.hidden
        kernel = kernel * np.multiply.outer(seen, seen)
    factor = kernel_factor(kernel)
    if not np.any(np.ptp(factor, axis=0) > MIN_SPREAD * np.abs(factor).max(initial=0.0)):
        raise ValueError("label_kernel: is constant; colored-mvu needs labels that differ")
    return factor


PAIRS = 1 << 20  # numbers of pairs of points that are compared at once


def neighbour_accuracy(points: np.ndarray, codes: np.ndarray, voters: np.ndarray, judged: np.ndarray, k: int) -> float:
    """Return the share of the ``judged`` rows whose class is the majority class of their ``k`` nearest ``voters`` on the map. A row is not
    its own neighbour.

    * ``points``: coordinates ``(n, d)``.
    * ``codes``: classes ``(n,)``.
    * ``voters``, ``judged``: masks ``(n,)``.

    In a tie, the first class wins.
    """
    ids, rows, n_classes, right, total = np.flatnonzero(voters), np.flatnonzero(judged), int(codes.max(initial=0)) + 1, 0, 0
    step = max(1, PAIRS // max(points[ids].size, 1))
    for low in range(0, len(rows), step):
        part = rows[low : low + step]
        nothing, own = np.zeros((len(part), len(ids))), part[:, None] == ids
        squares = sum((np.subtract.outer(axis[part], axis[ids]) ** 2 for axis in points.T), nothing)
        squares[own] = np.inf
        nearest = np.argsort(squares, axis=1, kind="stable")[:, :k]
        votes_for = np.arange(len(part))[:, None] * n_classes + codes[ids[nearest]]
        counted = votes_for[~np.take_along_axis(own, nearest, axis=1)]
        votes = np.bincount(counted, minlength=len(part) * n_classes).reshape(-1, n_classes)
        has_others = votes.any(axis=1)
        right, total = right + int(np.sum((votes.argmax(axis=1) == codes[part])[has_others])), total + int(has_others.sum())
    return right / total if total else float("nan")
