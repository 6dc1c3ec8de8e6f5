"""The positive part of a symmetric matrix, and the closed forms of non-parametric kernel learning that follow from it.

Source: Zhuang, PhD thesis on kernel learning, Nanyang Technological University, chapter 3: Propositions 3.25 and 3.26 (kernels from positive
parts), equation 3.2 (normalised Laplacian).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from .jit import one_thread
from .spectral_operator import SymmetricOperator

FloatArray = NDArray[np.float64]

BY_VALUE = 200
"""Rows from which only the positive eigenpairs of a dense matrix are asked for; below, all of them come sooner."""

TIE = 1e-10
"""Eigenvalues that differ by less, relative to the largest, are one eigenvalue where a closed form needs its multiplicity."""


@dataclass(frozen=True)
class PositivePart:
    """``A_+ = U diag(s) U'``: the eigenpairs of A with positive eigenvalue.

    Attributes
    ----------
    values
        s, ``(r,)``, descending, all positive; r may be 0.
    vectors
        U, ``(n, r)``, orthonormal columns; the entry largest in magnitude of each column (the first of equals) is positive.
    block
        What a later call for a similar matrix may start from, ``(n, b)`` float32; nothing from the dense path.
    method
        What found them: ``"dense"``, ``"lanczos"`` or ``"chebyshev"``.
    """

    values: FloatArray
    vectors: FloatArray
    block: NDArray[np.float32] | None
    method: str


def positive_part(
    operator: SymmetricOperator,
    *,
    tol: float = 1e-8,
    start: NDArray[Any] | None = None,
    seed: int = 0,
    method: Literal["auto", "dense", "lanczos", "chebyshev"] = "auto",
    max_rank: int | None = None,
    basis: NDArray[Any] | None = None,
) -> PositivePart:
    """Return the eigenpairs of a symmetric matrix with positive eigenvalue."""
    if basis is not None:
        return _in_basis(operator, np.asarray(basis, dtype=np.float64), max_rank)
    values, vectors = dense_positive(operator.dense())
    return _part(values, vectors, None, "dense", max_rank)


def dense_positive(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the positive eigenvalues, descending, and their eigenvectors, of a dense symmetric matrix.

    Eigenvalues within rounding of zero, ``n eps max_i sum_j |A_ij|``, are not positive.
    """
    n = len(matrix)
    cut = n * np.finfo(float).eps * float(np.abs(matrix).sum(axis=1).max(initial=0.0))
    if cut == 0:
        return np.zeros(0), np.zeros((n, 0))
    with one_thread():
        if n < BY_VALUE:
            values, vectors = np.linalg.eigh(matrix)
            keep = values > cut
            values, vectors = values[keep], vectors[:, keep]
        else:
            values, vectors = scipy.linalg.eigh(matrix, subset_by_value=(cut, np.inf), check_finite=False)
    return values[::-1].copy(), vectors[:, ::-1]


def _in_basis(operator: SymmetricOperator, basis: FloatArray, max_rank: int | None) -> PositivePart:
    values, inner = dense_positive(operator.restricted(basis))
    return _part(values, basis @ inner, None, "dense", max_rank)


def _part(values: FloatArray, vectors: FloatArray, block: NDArray[np.float32] | None, method: str, max_rank: int | None) -> PositivePart:
    if max_rank is not None and len(values) > max_rank:
        values, vectors = values[:max_rank], vectors[:, :max_rank]
    vectors = np.ascontiguousarray(vectors)
    for k in range(vectors.shape[1]):
        if vectors[np.argmax(np.abs(vectors[:, k])), k] < 0:
            vectors[:, k] *= -1
    return PositivePart(values, vectors, block, method)


def kernel_spectrum(values: FloatArray, p: float, *, B: float | None = None, G: float | None = None) -> tuple[FloatArray, float]:
    """Return the eigenvalues of the kernel that a linear objective prefers, and the optimal value.

    With A = U diag(s) U' + (the rest, not positive) and q = p/(p-1):

    * cap B: ``max tr(AK)`` over K >= 0 with ``tr K^p <= B`` is ``B^{1/p} ||s||_q`` at ``K = U diag(lam) U'``,
      ``lam_i = (B / sum_j s_j^q)^{1/p} s_i^{1/(p-1)}``; for p = 1 it is ``B s_max``, and lam shares B equally among the eigenvalues that
      equal the largest (to 1e-10 of it): any other share is as good.
    * penalty G: ``max tr(AK) - (G/p) tr K^p`` is ``(1/q) G^{-1/(p-1)} sum_i s_i^q`` at ``lam_i = (s_i/G)^{1/(p-1)}``.

    Parameters
    ----------
    values
        s, ``(r,)``, descending and positive; of no value the kernel is zero.
    p
        Power, at least 1; above 1 with a penalty.
    B, G
        Cap or penalty, above 0; exactly one of them.

    Returns
    -------
    lam
        Eigenvalues of K, ``(r,)``, in the order of ``values``.
    optimum
        The optimal value, ``R(A_+)``.

    Raises
    ------
    ValueError
        If the arguments do not describe one of the two problems.

    References
    ----------
    Zhuang, PhD thesis, chapter 3, Propositions 3.25 and 3.26. For p = 1 the printed rule holds for a positive top eigenvalue only.
    """
    _check_form(p, B, G)
    if len(values) == 0:
        return np.zeros(0), 0.0
    top = float(values[0])
    share = values / top
    if B is not None:
        if p == 1:
            equal = share >= 1 - TIE
            return np.where(equal, B / equal.sum(), 0.0), B * top
        # In units of the largest value no power can overflow: lam = B^{1/p} t^{1/(p-1)} / (sum t^q)^{1/p} with t = s / s_max.
        root = share ** (1 / (p - 1))
        total = float(root @ share)
        return (B / total) ** (1 / p) * root, B ** (1 / p) * top * total ** ((p - 1) / p)
    assert G is not None
    lam = (values / G) ** (1 / (p - 1))
    return lam, (p - 1) / p * float(lam @ values)


def _check_form(p: float, B: float | None, G: float | None) -> None:
    if not (np.isfinite(p) and p >= 1):
        raise ValueError(f"p={p!r}: must be at least 1")
    if (B is None) == (G is None):
        raise ValueError("B, G: give exactly one of the cap B and the penalty G")
    name, value = ("B", B) if B is not None else ("G", G)
    if value is None or not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value!r}: must be above 0")
    if G is not None and p == 1:
        raise ValueError("p=1: needs the cap B; with a penalty the problem is unbounded or its optimum is zero")


def normalized_laplacian(S: Any) -> sp.csr_array:
    """Return ``L = I - D^{-1/2} S D^{-1/2}``, with zero rows and columns for points without a neighbour.

    With them ``tr(LK) = 1/2 sum_ij S_ij ||v_i / sqrt(D_i) - v_j / sqrt(D_j)||^2`` holds for every ``K = V V'``.

    Parameters
    ----------
    S
        Affinity, ``(n, n)`` sparse or dense, symmetric, no negative entry; ``D_i = sum_j S_ij``.

    Raises
    ------
    ValueError
        If S is not such a matrix.
    """
    affinity = SymmetricOperator(S).sparse
    if affinity.data.size and affinity.data.min() < 0:
        raise ValueError(f"S: holds the entry {affinity.data.min():.9g}; affinities must not be negative")
    degrees = np.asarray(affinity.sum(axis=1), dtype=np.float64).ravel()
    linked = degrees > 0
    scale = np.zeros(len(degrees))
    scale[linked] = degrees[linked] ** -0.5
    scaling = sp.diags_array(scale)
    return sp.csr_array(sp.diags_array(linked.astype(np.float64)) - scaling @ affinity @ scaling)
