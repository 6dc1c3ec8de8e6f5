"""Group lasso on moments: block descent on ``X'X`` with extrapolation and a certificate; rows are not needed any more.

Weighted least squares with a penalty on groups, for one target or several that share the groups:

    min_v  P = sum_q 1/2 sum_i c_i (y_i - x_i'w_q - b_q)^2 + lam Omega(v),  w = scatter(v)

over the rows i of each task q; the costs c_i of a task sum to 1 for the mean loss. With biases eliminated everything follows from the
moments ``G_q = sum c x x'``, ``s_q = sum c x y`` and ``sum c y^2`` about the means. The dual is

    max_a  D = sum_i c_i (a_i y_i - a_i^2 / 2)   subject to   Omega*(sum_i c_i a_i x_i) <= lam,  sum_i c_i a_i = 0 for every bias,

and the residuals, scaled into it, are the certificate.

Source: Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, section 3.3 (the
batch problem (3.1) with the mean loss of (3.6)); extrapolation: Bertrand and Massias, "Anderson
acceleration of coordinate descent", AISTATS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit import compiled, one_thread
from ..losses import best_dual
from .penalty import GroupPenalty

Array = np.ndarray
FloatArray = NDArray[np.float64]

SWEEPS_PER_EXTRAPOLATION = 5
"""Sweeps between two extrapolations."""

RIDGE_SHARE = 1e-12
"""Share of the trace added to the normal equations of an extrapolation."""

ROUND_OFF_SHARE = 64 * np.finfo(float).eps
"""A gap below this share of the total square of y is what the moments can tell."""


@dataclass(frozen=True)
class Moments:
    """Sums over rows, one task after the other, about the means where there is a bias.

    ``gram``: ``(n_tasks, p, p)``, symmetric; ``cross``: ``(n_tasks, p)``; ``square``: sum of ``c y^2`` over the rows of all tasks;
    ``means``: ``(n_tasks, p)`` means of the columns; 0 without a bias; ``centres``: ``(n_tasks,)`` means of y; 0 without a bias.
    """

    gram: FloatArray
    cross: FloatArray
    square: float
    means: FloatArray
    centres: FloatArray

    def biases(self, weights: FloatArray) -> FloatArray:
        """Return the best bias of every task at weights ``(n_tasks, p)``."""
        return self.centres - np.einsum("qp,qp->q", self.means, weights)


class MomentSolution(NamedTuple):
    """Where a solve ended.

    ``copies``: ``(n_tasks, n_copies)`` v; ``objective``, ``gap``: P and P - D, at v; ``sweeps``: sweeps over all groups; ``stop``:
    ``"gap"`` or ``"max_sweeps"``.
    """

    copies: FloatArray
    objective: float
    gap: float
    sweeps: int
    stop: str


class _Point(NamedTuple):
    copies: FloatArray
    image: FloatArray
    objective: float
    gap: float


def centred(raw: FloatArray, fit_bias: bool, target: int = 0, n_targets: int = 1) -> Moments:
    """Return the moments of one target, of raw sums (see :func:`gramplane.kernels.group_lasso.moments.row_moments`); about the means with a
    bias.

    Rows are to be shifted close to their means before they are summed: what is subtracted here must not be large.
    """
    p = raw.shape[1] - n_targets - 1
    at = p + target
    gram, cross, squares = raw[:, :p, :p], raw[:, :p, at], raw[:, at, at]
    total = np.maximum(raw[:, -1, -1], np.finfo(float).tiny)
    means, centres = raw[:, :p, -1] / total[:, None], raw[:, at, -1] / total
    if not fit_bias:
        return Moments(_contiguous(gram), _contiguous(cross), float(squares.sum()), 0.0 * means, 0.0 * centres)
    gram = gram - raw[:, :p, -1, None] * means[:, None, :]
    cross = cross - raw[:, :p, -1] * centres[:, None]
    square = float(np.maximum(squares - raw[:, at, -1] * centres, 0.0).sum())
    return Moments(_contiguous(gram), _contiguous(cross), square, means, centres)


def _contiguous(values: Array) -> FloatArray:
    return np.ascontiguousarray(values, dtype=np.float64)


def block_curvatures(gram: FloatArray, penalty: GroupPenalty) -> FloatArray:
    """Return the largest eigenvalue of every group's square of the Gram matrices, the largest over the tasks, ``(n_groups,)``."""
    sizes, out = np.diff(penalty.indptr), np.empty(penalty.n_groups)
    for size in np.unique(sizes):
        which = np.flatnonzero(sizes == size)
        members = penalty.members[penalty.indptr[which][:, None] + np.arange(size)]
        squares = gram[:, members[:, :, None], members[:, None, :]]
        largest = squares[..., 0, 0] if size == 1 else np.linalg.eigvalsh(squares)[..., -1]
        # Eigenvalues carry round-off: a step a hair too long could go uphill.
        out[which] = largest.max(axis=0) * (1.0 + 1e-12)
    return out


@compiled
def _sweeps(
    gram: Array,
    cross: Array,
    indptr: Array,
    members: Array,
    curvature: Array,
    kappa: Array,
    inner: Array,
    v: Array,
    image: Array,
    path: Array,
) -> None:
    """Descend group by group, len(path) times; path[i] becomes the copies after sweep i, image stays G w."""
    n_tasks = v.shape[0]
    for turn in range(path.shape[0]):
        for g in range(curvature.size):
            bend = curvature[g]
            if not bend > 0.0:
                continue
            square, tau = 0.0, inner[g] / bend
            for q in range(n_tasks):
                for p in range(indptr[g], indptr[g + 1]):
                    j = members[p]
                    aim = v[q, p] - (image[q, j] - cross[q, j]) / bend
                    aim = np.sign(aim) * max(abs(aim) - tau, 0.0)
                    path[turn, q, p] = aim
                    square += aim * aim
            norm = np.sqrt(square)
            factor = 1.0 - kappa[g] / (bend * norm) if bend * norm > kappa[g] else 0.0
            for q in range(n_tasks):
                for p in range(indptr[g], indptr[g + 1]):
                    new = factor * path[turn, q, p]
                    change = new - v[q, p]
                    if change != 0.0:
                        v[q, p] = new
                        row = gram[q, members[p]]
                        for j in range(row.size):
                            image[q, j] += change * row[j]
        for q in range(n_tasks):
            for p in range(v.shape[1]):
                path[turn, q, p] = v[q, p]


def solve_moments(
    moments: Moments,
    penalty: GroupPenalty,
    lam: float,
    *,
    warm: FloatArray | None = None,
    tol: float = 1e-4,
    min_gap: float = 0.0,
    max_sweeps: int = 10_000,
) -> MomentSolution:
    """Minimise weighted least squares plus ``lam Omega`` from moments alone.

    Parameters
    ----------
    moments
        See :class:`Moments`.
    penalty
        Groups over its p columns.
    lam
        Positive weight of the penalty.
    warm
        First copies ``(n_tasks, n_copies)``; zeros by default.
    tol
        Stop when the gap is at most ``tol`` times the objective (or round-off of the moments).
    min_gap
        Stop when the gap is at most this, too.
    max_sweeps
        Most sweeps over all groups, a multiple of 5.

    Returns
    -------
    MomentSolution
    """
    with one_thread():
        return _Descent(moments, penalty, lam).run(warm, tol, min_gap, max_sweeps)


class _Descent:
    def __init__(self, moments: Moments, penalty: GroupPenalty, lam: float) -> None:
        self._moments, self._penalty, self._lam = moments, penalty, lam
        self._curvature = block_curvatures(moments.gram, penalty)
        self._kappa, self._inner = lam * penalty.kappa, lam * penalty.inner

    def run(self, warm: FloatArray | None, tol: float, min_gap: float, limit: int) -> MomentSolution:
        shape = (len(self._moments.cross), self._penalty.n_copies)
        at = self._point(np.zeros(shape) if warm is None else _contiguous(warm).copy())
        floor, sweeps = max(min_gap, ROUND_OFF_SHARE * self._moments.square), 0
        while at.gap > max(tol * at.objective, floor):
            if sweeps >= limit:
                return MomentSolution(at.copies, at.objective, at.gap, sweeps, "max_sweeps")
            at = self._advance(at)
            sweeps += SWEEPS_PER_EXTRAPOLATION
        return MomentSolution(at.copies, at.objective, at.gap, sweeps, "gap")

    def _advance(self, at: _Point) -> _Point:
        path = np.zeros((SWEEPS_PER_EXTRAPOLATION, *at.copies.shape))
        copies, image, penalty = at.copies.copy(), at.image.copy(), self._penalty
        groups = (penalty.indptr, penalty.members, self._curvature, self._kappa, self._inner)
        _sweeps(self._moments.gram, self._moments.cross, *groups, copies, image, path)
        swept = self._point(copies)
        guess = extrapolate(at.copies, path)
        if guess is None:
            return swept
        ahead = self._point(guess)
        return ahead if ahead.objective < swept.objective else swept

    def _point(self, copies: FloatArray) -> _Point:
        """Return image, objective and gap; the image is computed anew, so that its round-off does not add up over sweeps."""
        moments, weights = self._moments, self._penalty.scatter(copies)
        image = np.einsum("qij,qj->qi", moments.gram, weights)
        shared = float(np.sum(moments.cross * weights))
        residual_square = max(moments.square - 2.0 * shared + float(np.sum(weights * image)), 0.0)
        objective = 0.5 * residual_square + self._lam * self._penalty.value(copies)
        reach = float(self._penalty.dual_norms(moments.cross - image).max(initial=0.0))
        dual = best_dual(residual_square, moments.square - shared, self._lam / reach if reach > 0.0 else np.inf)
        # Round-off may put the dual value a hair above the objective.
        return _Point(copies, image, objective, max(objective - dual, 0.0))


def extrapolate(first: FloatArray, path: FloatArray) -> FloatArray | None:
    """Return the affine combination of the last iterates whose differences are least, or None where they do not tell."""
    points = np.concatenate([first[None], path]).reshape(len(path) + 1, -1)
    differences = np.diff(points, axis=0)
    normal = differences @ differences.T
    trace = float(np.trace(normal))
    if not trace > 1e-280:
        return None
    shares = np.linalg.solve(normal + RIDGE_SHARE * trace * np.eye(len(normal)), np.ones(len(normal)))
    total = float(shares.sum())
    return (shares / total @ points[1:]).reshape(first.shape) if total > 0.0 else None
