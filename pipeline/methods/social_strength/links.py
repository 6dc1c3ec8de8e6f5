"""Training pairs of social strength modelling, and the links between users that views are aligned with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....storage import DataError


@dataclass(frozen=True)
class Links:
    """Training pairs and the links that views are aligned with.

    ``pairs``, ``z``: ``(m, 2)`` users, and ``(m,)`` 1 for a link, 0 for none; ``target``: ``(n, n)`` symmetric links without their
    diagonal; of the linked pairs by default; ``known``: ``(n,)`` True for users that some pair or link names: the others may have links
    nobody has seen.
    """

    pairs: np.ndarray
    z: np.ndarray
    target: sp.csr_array
    known: np.ndarray


def read_links(table: Any, n: int, target: Any = None) -> Links:
    """Return training pairs and links, checked.

    ``table``: ``(m, 3)`` rows u, v, z; ``n``: number of users; ``target``: ``(n, n)`` links that views are aligned with, dense or sparse;
    those of the pairs by default. Raises DataError: a pair that is none, by its number, or labels that are all equal.
    """
    rows = np.asarray(table, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1:] != (3,) or not len(rows):
        raise DataError(f"pairs have shape {rows.shape}; they must be (n_pairs, 3): two users and z, at least one pair")
    _refuse_bad_pairs(rows, n)
    z = rows[:, 2]
    if np.all(z == z[0]):
        raise DataError(f"all {len(z)} pairs have z={int(z[0])}; linked and unlinked pairs are needed")
    pairs, is_linked = np.ascontiguousarray(rows[:, :2].astype(np.int64)), z == 1
    links = link_matrix(pairs[is_linked], n) if target is None else _symmetric_target(target, n)
    known = np.zeros(n, dtype=bool)
    known[pairs] = True
    known[links.indices] = True
    return Links(pairs, z.astype(np.int64), links, known)


def _refuse_bad_pairs(rows: np.ndarray, n: int) -> None:
    def refuse(is_bad: np.ndarray, describe: Callable[[np.ndarray], str]) -> None:
        if is_bad.any():
            i = int(np.argmax(is_bad))
            raise DataError(f"pair {i}: {describe(rows[i])}")

    def describe_outside(row: np.ndarray) -> str:
        user = row[:2][(row[:2] < 0) | (row[:2] >= n) | (row[:2] % 1 != 0)][0]
        return f"user {user:g}: must be a row number from 0 to {n - 1}"

    ends, z = rows[:, :2], rows[:, 2]
    refuse(~np.isfinite(rows.sum(axis=1)), lambda row: f"{row.tolist()} is not made of finite numbers")
    refuse(((ends < 0) | (ends >= n) | (ends != np.floor(ends))).any(axis=1), describe_outside)
    refuse(ends[:, 0] == ends[:, 1], lambda row: f"user {int(row[0])} is paired with himself; a pair has two users")
    refuse((z != 0) & (z != 1), lambda row: f"z={row[2]:g}: must be 1 for a link or 0 for none")


def link_matrix(pairs: np.ndarray, n: int) -> sp.csr_array:
    """Return linked pairs ``(m, 2)`` as a symmetric ``(n, n)`` matrix of zeros and ones."""
    both = np.concatenate([pairs, pairs[:, ::-1]]).T
    matrix = sp.csr_array((np.ones(both.shape[1]), tuple(both)), shape=(n, n))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def _symmetric_target(target: Any, n: int) -> sp.csr_array:
    matrix = sp.csr_array(target, dtype=np.float64)
    if matrix.shape != (n, n) or not np.isfinite(matrix.data).all():
        raise ValueError(f"target has shape {matrix.shape}; it must be finite and (n_users, n_users), here {n} users")
    both = sp.csr_array(0.5 * (matrix + matrix.T))
    both = sp.csr_array(both - sp.diags_array(both.diagonal()))
    both.eliminate_zeros()
    return both
