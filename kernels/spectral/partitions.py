"""How far two partitions of the same rows agree."""

from __future__ import annotations

from typing import Any

import numpy as np


def rand_accuracy(labels: Any, others: Any) -> float:
    """Return the share of pairs of rows on which two partitions agree: together in both, or apart in both.

    It is 1 for equal partitions, whatever their labels are called (Rand, J. American Statistical Association 66, 1971).

    Parameters
    ----------
    labels, others
        ``(n,)`` labels of the same rows, of any kind.

    Raises
    ------
    ValueError
        If their lengths differ, or there are fewer than two rows.
    """
    a, b = (np.unique(np.asarray(values), return_inverse=True)[1].ravel() for values in (labels, others))
    n = len(a)
    if len(b) != n or n < 2:
        raise ValueError(f"labels, others: have {n} and {len(b)} entries; must be of one length, at least 2")
    _, shared = np.unique(a * np.int64(b.max() + 1) + b, return_counts=True)
    together = float(np.sum(shared * (shared - 1.0)))
    first, second = (float(np.sum(counts * (counts - 1.0))) for counts in (np.bincount(a), np.bincount(b)))
    return 1.0 - (first + second - 2.0 * together) / (n * (n - 1.0))
