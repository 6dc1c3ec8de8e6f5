"""Training pairs of social strength modelling, and the links between users with which views are aligned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ....storage import DataError


@dataclass(frozen=True)
class Links:
    """Training pairs, and the links with which views are aligned."""

    pairs: np.ndarray  # (m, 2) users
    z: np.ndarray  # (m,) 1 for a link, 0 for none
    target: sp.csr_array  # (n, n) symmetric links without their diagonal
    known: np.ndarray  # (n,) whether some pair or link names a user: the others may have links nobody has seen


def read_links(table: ArrayLike, n: int, target: ArrayLike | sp.spmatrix | sp.sparray | None = None) -> Links:
    """Return training pairs and links of n users.

    ``table`` has rows u, v, z ``(m, 3)``. ``target`` ``(n, n)`` holds the links with which views are aligned, by default the links among
    the pairs. Raises DataError if a pair is invalid (the message has its number), or if all labels are equal.
    """
    rows = np.asarray(table, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1:] != (3,) or not len(rows):
        raise DataError(f"pairs have shape {rows.shape}; they must be (n_pairs, 3): two users and z, at least one pair")
    _refuse_bad_pairs(rows, n)
    z = rows[:, 2]
    if np.all(z == z[0]):
        raise DataError(f"all {len(z)} pairs have z={int(z[0])}; linked and unlinked pairs are needed")
    pairs, is_linked = np.ascontiguousarray(rows[:, :2].astype(np.int64)), z == 1
    if target is None:
        links = link_matrix(pairs[is_linked], n)
    else:
        matrix = sp.csr_array(target, dtype=np.float64)
        if matrix.shape != (n, n) or not np.isfinite(matrix.data).all():
            raise ValueError(f"target has shape {matrix.shape}; it must be ({n}, {n}) with finite entries, one row and one column per user")
        both = sp.csr_array(0.5 * (matrix + matrix.T))
        links = sp.csr_array(both - sp.diags_array(both.diagonal()))
        links.eliminate_zeros()
    known = np.zeros(n, dtype=bool)
    known[pairs] = True
    known[links.indices] = True
    return Links(pairs, z.astype(np.int64), links, known)


def _refuse_bad_pairs(rows: np.ndarray, n: int) -> None:
    def refuse(is_bad: np.ndarray, describe: Callable[[np.ndarray], str]) -> None:
        if is_bad.any():
            i = int(np.argmax(is_bad))
            raise DataError(f"pair {i}: {describe(rows[i])}")

    def is_outside(ends: np.ndarray) -> np.ndarray:
        return (ends < 0) | (ends >= n) | (ends % 1 != 0)

    ends, z = rows[:, :2], rows[:, 2]
    refuse(~np.isfinite(rows.sum(axis=1)), lambda row: f"{row.tolist()} is not made of finite numbers")
    refuse(
        np.logical_or(*is_outside(ends).T), lambda row: f"user {row[:2][is_outside(row[:2])][0]:g}: must be a row number from 0 to {n - 1}"
    )
    refuse(ends[:, 0] == ends[:, 1], lambda row: f"user {int(row[0])} is paired with himself; a pair has two users")
    refuse((z != 0) & (z != 1), lambda row: f"z={row[2]:g}: must be 1 for a link or 0 for none")


def link_matrix(pairs: np.ndarray, n: int) -> sp.csr_array:
    """Return linked pairs ``(m, 2)`` as a symmetric ``(n, n)`` matrix of zeros and ones."""
    both = np.concatenate([pairs, pairs[:, ::-1]]).T
    matrix = sp.csr_array((np.ones(both.shape[1]), tuple(both)), shape=(n, n))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix
