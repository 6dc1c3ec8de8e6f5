"""Group lasso on moments: block descent on ``X'X`` with extrapolation and a certificate, without access to the rows.

Weighted least squares with a penalty on groups, for one target or several that share the groups:

    min_v  P = sum_q 1/2 sum_i c_i (y_i - x_i'w_q - b_q)^2 + lam Omega(v),  w = scatter(v)

over the rows i of each task q. For the mean loss, the costs c_i of a task sum to 1. With biases eliminated, all quantities follow from the
moments ``G_q = sum c x x'``, ``s_q = sum c x y`` and ``sum c y^2`` about the means. The dual is

    max_a  D = sum_i c_i (a_i y_i - a_i^2 / 2)   subject to   Omega*(sum_i c_i a_i x_i) <= lam,  sum_i c_i a_i = 0 for every bias,

and the residuals, scaled to be dual feasible, are the certificate.

Source: Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, section 3.3 (the
batch problem (3.1) with the mean loss of (3.6)); extrapolation: Bertrand and Massias, "Anderson acceleration of coordinate descent", 2021.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, FloatArray
from ..jit import compiled, one_thread
from ..losses import best_dual
from .lp_norms import shrink_columns
from .penalty import GroupPenalty

Rows = Any  # ``(n, p)``: an array in either order, CSR or CSC; or a list of such blocks of columns, side by side.

PIECE_BYTES = 4 << 20  # Bytes of a piece of rows.
SWEEPS_PER_EXTRAPOLATION = 5  # Sweeps between two extrapolations.
RIDGE_SHARE = 1e-12  # Share of the trace added to the normal equations of an extrapolation.
ROUND_OFF_SHARE = 64 * np.finfo(float).eps  # A gap below this share of the total square of y is what the moments can tell.


# -- moments of rows -------------------------------------------------------------------------------------------------------


def row_moments(X: Rows, y: Array, cost: Array, *, shift: Array | None = None, codes: Array | None = None, n_tasks: int = 1) -> Array:
    """Return the sums ``(n_tasks, p + m + 1, p + m + 1)`` of ``c (x - shift, y, 1)(x - shift, y, 1)'`` over the rows of each task.

    Rows are summed in pieces that fit in the cache, in float64 for every input type. Sums about a shift close to the mean lose no digits.
    Pieces are added in row order, so the bits depend only on the given rows.

    Parameters
    ----------
    X, y, cost
        Rows ``(n, p)``; targets ``(n,)``, or ``(n, m)`` for m targets per row; and weights ``(n,)``, not negative.
    shift
        ``(p,)`` subtracted from every row [default: nothing].
    codes
        ``(n,)`` task of each row, 0 to ``n_tasks - 1`` [default: all 0].
    """
    blocks: list[Any] = [sp.csr_array(block) if sp.issparse(block) else block for block in (X if isinstance(X, list) else [X])]
    p, edge = sum(int(block.shape[1]) for block in blocks), np.column_stack((y, np.ones(len(y))))
    root = np.sqrt(cost)
    out, height = np.zeros((n_tasks, p + edge.shape[1], p + edge.shape[1])), max(64, PIECE_BYTES // (8 * max(p, 1)))
    buffer = np.empty((min(height, max(len(y), 1)), p))
    even = bool((root == root[:1]).all())
    with one_thread():
        for task, piece in _pieces(codes, n_tasks, len(y), height):
            part, sides = _filled(buffer, [block[piece] for block in blocks], shift), edge[piece]
            if not even:
                part, sides = np.multiply(part, root[piece, None], out=buffer[: len(part)]), sides * root[piece, None]
            out[task, :p, :p] += part.T @ part
            out[task, :p, p:] += part.T @ sides
            out[task, p:, p:] += sides.T @ sides
    out[:, p:, :p] = out[:, :p, p:].transpose(0, 2, 1)
    return out * float(cost[0]) if even and len(cost) else out


def _pieces(codes: Array | None, n_tasks: int, n: int, height: int) -> Iterator[tuple[int, Array | slice]]:
    """Yield each task with pieces of its rows, ascending; as slices if there is only one task."""
    if codes is None:
        yield from ((0, slice(lo, min(lo + height, n))) for lo in range(0, n, height))
        return
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(n_tasks + 1))
    for task in range(n_tasks):
        for lo in range(edges[task], edges[task + 1], height):
            yield task, order[lo : min(lo + height, edges[task + 1])]


def _filled(buffer: Array, blocks: list[Rows], shift: Array | None) -> Array:
    """Return the blocks of columns side by side, minus the shift, as a copy in the buffer; a single block is used in place if possible."""
    if len(blocks) == 1 and shift is None and isinstance(blocks[0], np.ndarray):
        block = blocks[0]
        if block.dtype == np.float64 and block.flags.c_contiguous and block.flags.aligned:
            return block
    part, p = buffer[: blocks[0].shape[0]] if blocks else buffer[:0], 0
    for block in blocks:
        part[:, p : p + block.shape[1]] = block.toarray() if sp.issparse(block) else block
        p += block.shape[1]
    if shift is not None:
        part -= shift
    return part


@dataclass(frozen=True)
class Moments:
    """Weighted sums over the rows, task by task, about the means if there is a bias.

    * ``gram`` is ``(n_tasks, p, p)``, ``cross`` is ``(n_tasks, p)``.
    * ``square`` is the sum of ``c y^2`` over all tasks.
    * ``means``, ``(n_tasks, p)``, are the means of the columns; 0 without a bias.
    * ``centres``, ``(n_tasks,)``, are the means of y; 0 without a bias.
    """

    gram: FloatArray
    cross: FloatArray
    square: float
    means: FloatArray
    centres: FloatArray

    def biases(self, weights: FloatArray) -> FloatArray:
        """Return the best bias of each task for weights ``(n_tasks, p)``."""
        return self.centres - np.einsum("qp,qp->q", self.means, weights)


class MomentSolution(NamedTuple):
    """The copied coefficients v, ``(n_tasks, n_copies)``, with P and P - D; ``stop`` is ``"gap"`` or ``"max_sweeps"``."""

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


def target_moments(raw: FloatArray, fit_bias: bool, target: int = 0, n_targets: int = 1) -> Moments:
    """Return the moments of one target from raw sums (see :func:`row_moments`), about the means if there is a bias.

    Rows should be shifted close to their means before they are summed, because subtracting large means loses digits.
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
    """Return, for each group, the largest eigenvalue of its diagonal block in the Gram matrix of any task, ``(n_groups,)``."""
    sizes, out = np.diff(penalty.indptr), np.empty(penalty.n_groups)
    for size in np.unique(sizes):
        which = np.flatnonzero(sizes == size)
        members = penalty.members[penalty.indptr[which][:, None] + np.arange(size)]
        squares = gram[:, members[:, :, None], members[:, None, :]]
        largest = squares[..., 0, 0] if size == 1 else np.linalg.eigvalsh(squares)[..., -1]
        # Eigenvalues carry round-off: a step a hair too long could go uphill.
        out[which] = largest.max(axis=0) * (1.0 + 1e-12)
    return out


# -- descent ---------------------------------------------------------------------------------------------------------------


@compiled
def _sweeps(gram: Array, cross: Array, groups: tuple[Array, ...], v: Array, image: Array, path: Array, norm: float | None) -> None:
    """Do len(path) sweeps of descent, group by group; path[i] receives the copied coefficients after sweep i. ``image`` is updated so that
    it stays equal to G w. ``norm`` is the p of the groups' norms if it is not 2, else None: code for None has no part for it.
    """
    indptr, members, curvature, kappa, inner = groups
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
            length = np.sqrt(square)
            factor = 1.0 - kappa[g] / (bend * length) if bend * length > kappa[g] else 0.0
            if norm is not None:
                shrink_columns(path[turn], indptr[g], indptr[g + 1], kappa[g] / bend, norm)
                factor = 1.0
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
    moments: Moments, penalty: GroupPenalty, lam: float, *, warm: FloatArray | None = None, tol: float = 1e-4, min_gap: float = 0.0,
    max_sweeps: int = 10_000,
) -> MomentSolution:  # fmt: skip
    """Minimise weighted least squares plus ``lam Omega`` from moments alone.

    Stops when the gap is at most the largest of three values: ``min_gap``, ``tol`` times the objective, and the round-off of the moments.
    Stops in any case after ``max_sweeps`` sweeps over all groups (a multiple of 5). ``warm`` holds initial copies ``(n_tasks, n_copies)``
    [default: zeros].
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
        _sweeps(self._moments.gram, self._moments.cross, groups, copies, image, path, penalty.power)
        swept = self._point(copies)
        guess = extrapolate(at.copies, path)
        if guess is None:
            return swept
        ahead = self._point(guess)
        return ahead if ahead.objective < swept.objective else swept

    def _point(self, copies: FloatArray) -> _Point:
        """Return image, objective and gap. The image is recomputed so that its round-off does not accumulate."""
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
    """Return the affine combination of the last iterates whose combined difference is smallest, or None if it is not determined."""
    points = np.concatenate([first[None], path]).reshape(len(path) + 1, -1)
    differences = np.diff(points, axis=0)
    normal = differences @ differences.T
    trace = float(np.trace(normal))
    if not trace > 1e-280:
        return None
    shares = np.linalg.solve(normal + RIDGE_SHARE * trace * np.eye(len(normal)), np.ones(len(normal)))
    total = float(shares.sum())
    return (shares / total @ points[1:]).reshape(first.shape) if total > 0.0 else None


# Columns of a working set that only grows: what a solver asks of them, without copying what is there when more join.
#
# Columns join in batches, and every product is taken batch by batch: the bits depend on the batches, so a run that is resumed joins the
# same ones. Their Gram matrix is kept for the weights it is asked for again and again, and only its new entries are computed.


class WorkingColumns:
    """Columns of the rows of all tasks, added in batches; rows are ordered by task. The interface is that of
    :class:`gramplane.kernels.group_lasso.row_problem.TaskRows`.

    * ``cost``, ``(n,)``: the row weights for which Gram matrices are cached.
    * ``centre``: whether dense columns are stored minus their means (weighted by ``cost``), so that sums lose no digits. A bias compensates
      for the subtraction.
    * ``edges``, int64 ``(n_tasks + 1,)``: the first row of each task, then the number of rows [default: one task].
    """

    def __init__(self, cost: FloatArray, centre: bool, edges: Array | None = None) -> None:
        self._cost, self._centre = cost, centre
        self._blocks: list[Any] = []
        self.edges = np.array([0, len(cost)]) if edges is None else edges
        self.spans = [slice(int(a), int(b)) for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)]
        self.n_tasks = len(self.spans)
        self._grams, self._n_summed = np.zeros((self.n_tasks, 0, 0)), 0
        self.features, self.means = np.zeros(0, np.int64), np.zeros(0)

    @property
    def n_batches(self) -> int:
        return len(self._blocks)

    def append(self, features: Array, columns: Array | sp.sparray) -> None:
        """Add columns ``(n, k)``, dense or sparse, that belong to ``features``."""
        if sp.issparse(columns):
            block, means = sp.csr_array(columns, dtype=np.float64), np.zeros(len(features))
            block.sort_indices()
        else:
            block = np.array(columns, dtype=np.float64, order="F")
            means = self._cost @ block / max(float(self._cost.sum()), np.finfo(float).tiny) if self._centre else np.zeros(len(features))
            block -= means
        self._blocks.append(block)
        self.features, self.means = np.concatenate([self.features, features]), np.concatenate([self.means, means])

    def _part(self, block: Any, span: slice) -> Any:
        return block if self.n_tasks == 1 else block[span]

    def decide(self, weights: FloatArray) -> FloatArray:
        """Return ``x_i'w_q`` of each row, with centred columns, for weights ``(n_tasks, p)``."""
        total, lo = np.zeros(len(self._cost)), 0
        for block in self._blocks:
            for span, part in zip(self.spans, weights[:, lo : lo + block.shape[1]], strict=True):
                if part.any():
                    total[span] += self._part(block, span) @ part
            lo += block.shape[1]
        return total

    def slopes(self, u: FloatArray) -> FloatArray:
        """Return ``sum_i u_i x_i`` of each task, ``(n_tasks, p)``."""
        return np.stack([self._task_slopes(span, u) for span in self.spans])

    def _task_slopes(self, span: slice, u: FloatArray) -> FloatArray:
        return np.concatenate([np.zeros(0), *(self._part(block, span).T @ u[span] for block in self._blocks)])

    def moments(self, target: FloatArray, cost: FloatArray, fit_bias: bool) -> Moments:
        """Return the moments of a weighted least squares problem on centred columns."""
        codes = None if self.n_tasks == 1 else np.repeat(np.arange(self.n_tasks), np.diff(self.edges))
        if cost is self._cost:
            return target_moments(self._cached_moments(target), fit_bias)
        return target_moments(row_moments(self._blocks, target, cost, codes=codes, n_tasks=self.n_tasks), fit_bias)

    def _cached_moments(self, target: FloatArray) -> FloatArray:
        """Return raw moments for the row weights whose Gram matrices are cached."""
        while self._n_summed < len(self._blocks):
            self._widen(self._n_summed)
            self._n_summed += 1
        p, all_costs = self._grams.shape[1], self._cost
        raw = np.zeros((self.n_tasks, p + 2, p + 2))
        raw[:, :p, :p] = self._grams
        for task, span in zip(raw, self.spans, strict=True):
            y, cost = target[span], all_costs[span]
            task[:p, p], task[:p, p + 1] = self._task_slopes(span, all_costs * target), self._task_slopes(span, all_costs)
            task[p, :p], task[p + 1, :p] = task[:p, p], task[:p, p + 1]
            task[p, p:] = cost @ (y * y), cost @ y
            task[p + 1, p:] = cost @ y, cost.sum()
        return raw

    def _widen(self, k: int) -> None:
        p, q = self._grams.shape[1], self._grams.shape[1] + self._blocks[k].shape[1]
        grams = np.empty((self.n_tasks, q, q))
        for gram, before, span in zip(grams, self._grams, self.spans, strict=True):
            across = self._products(k, span)
            gram[:p, :p], gram[:, p:] = before, across
            gram[p:, :p] = across[:p].T
        self._grams = grams

    def _products(self, k: int, span: slice) -> FloatArray:
        """Return the weighted products of the columns of batches up to k with the columns of batch k, over the rows of one task."""
        new, cost = self._part(self._blocks[k], span), self._cost[span]
        flat = float(cost[0]) if len(cost) and (cost == cost[0]).all() else None
        weighted = new if flat is not None else (sp.diags_array(cost) @ new if sp.issparse(new) else new * cost[:, None])
        parts = [self._part(block, span).T @ weighted for block in self._blocks[: k + 1]]
        return np.concatenate([part.toarray() if sp.issparse(part) else part for part in parts]) * (1.0 if flat is None else flat)
