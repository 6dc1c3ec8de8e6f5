"""Positive eigenpairs of a large symmetric matrix by subspace iteration with Chebyshev filters, for ranks too large for Krylov methods.

Source: Zhou, Saad, Tiago and Chelikowsky, "Parallel self-consistent-field calculations via Chebyshev-filtered subspace acceleration", Phys.
Rev. E 74 (2006), algorithm 4.1 with running sigma.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ..arrays import FloatArray, refuse_array
from ..jit import compiled, one_thread
from .block_lanczos import dense_bytes, dense_positive
from .column_block import ColumnBlock, Vectors, WarmBlock, solve_lower
from .operator import PANEL_WIDTH, Panels, SymmetricOperator

# Ends and density of the spectrum of a large symmetric matrix, from products alone, before any eigenvalue is computed.
#
# Source: Di Napoli, Polizzi and Saad, "Efficient estimation of eigenvalue counts in an interval", Numer. Linear Algebra Appl. 23 (2016).

Block = NDArray[Any]

MAX_MOMENT = 120
LANCZOS_STEPS = 40


@dataclass(frozen=True)
class Spectrum:
    """Bounds of a spectrum, and moments that estimate how many eigenvalues are above a value.

    All eigenvalues are between ``lo`` and ``top``. ``moments``, ``(MAX_MOMENT + 1,)``, are estimates of ``trace T_k(A~)``, where A~ is the
    matrix with its spectrum mapped to [-1, 1] and T_k is the Chebyshev polynomial of degree k.
    """

    lo: float
    top: float
    moments: FloatArray

    def count(self, level: float) -> float:
        """Return an estimate of the number of eigenvalues above ``level``.

        It is ``sum_k g_k c_k m_k`` with moments m, Jackson factors g, ``c_0 = arccos(t)/pi`` and ``c_k = 2 sin(k arccos t) / (k pi)``,
        where t is ``level`` mapped to [-1, 1].
        """
        centre, half = 0.5 * (self.top + self.lo), 0.5 * (self.top - self.lo)
        angle = math.acos(min(1.0, max(-1.0, (level - centre) / half)))
        length = len(self.moments)
        k, w = np.arange(1, length), np.pi / (length + 1)
        jackson = ((length - k + 1) * np.cos(k * w) + np.sin(k * w) / np.tan(w)) / (length + 1)
        return float(angle / np.pi * self.moments[0] + (jackson * (2 * np.sin(k * angle) / (k * np.pi))) @ self.moments[1:])

    def level(self, count: float) -> float:
        """Return, by bisection, a value such that an estimated ``count`` eigenvalues are above it."""
        lo, hi = self.lo, self.top
        for _ in range(50):
            middle = 0.5 * (lo + hi)
            lo, hi = (middle, hi) if self.count(middle) > count else (lo, middle)
        return 0.5 * (lo + hi)

    def positive_density(self) -> tuple[FloatArray, FloatArray]:
        """Return values from 0 to the top, and the approximate number of eigenvalues around each; both ``(200,)``."""
        edges = np.linspace(0.0, max(self.top, 0.0), 201)
        counts = np.array([self.count(float(edge)) for edge in edges])
        return 0.5 * (edges[1:] + edges[:-1]), np.maximum(0.0, counts[:-1] - counts[1:])


def estimate_spectrum(operator: SymmetricOperator, seed: int) -> Spectrum:
    """Return bounds and density of the spectrum of an operator, from 40 Lanczos steps and 60 products with 64 random sign vectors."""
    with one_thread():
        lo, top = _bound_spectrum(operator, seed)
        return Spectrum(lo, top, _estimate_moments(operator, lo, top, seed))


def _bound_spectrum(operator: SymmetricOperator, seed: int) -> tuple[float, float]:
    """Return bounds of the spectrum: the extreme Ritz values of a Lanczos run, widened by twice their residuals."""
    n = operator.n
    basis = np.zeros((LANCZOS_STEPS + 1, n))
    basis[0] = np.random.default_rng((seed, 1)).standard_normal(n)
    basis[0] /= np.linalg.norm(basis[0])
    diagonal, off = [], []
    for k in range(min(LANCZOS_STEPS, n)):
        vector = operator.product(basis[k])
        diagonal.append(float(vector @ basis[k]))
        for _ in range(2):
            vector = vector - basis[: k + 1].T @ (basis[: k + 1] @ vector)
        off.append(float(np.linalg.norm(vector)))
        if off[-1] <= 1e-12 * max(abs(diagonal[0]), max(off)):
            break
        basis[k + 1] = vector / off[-1]
    values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, off[:-1])
    # An end that is missed by little does no harm: what lies beyond it grows a little, too.
    spare = 2 * off[-1] * np.abs(vectors[-1]) + 1e-3 * float(values[-1] - values[0])
    return float(values[0] - spare[0]), float(values[-1] + spare[-1])


@compiled
def _inner_product(x: Block, y: Block) -> float:
    total = 0.0
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            total += np.float64(x[i, k]) * np.float64(y[i, k])
    return total


def _estimate_moments(operator: SymmetricOperator, lo: float, top: float, seed: int) -> FloatArray:
    """Return ``trace T_k(A~)`` for k up to ``MAX_MOMENT``; one product gives two moments by ``T_j T_k = (T_{j+k} + T_{|j-k|}) / 2``."""
    panels, n = Panels.of(operator, np.float32), operator.n
    centre, half = 0.5 * (top + lo), 0.5 * (top - lo)
    old = (2 * np.random.default_rng((seed, 2)).integers(0, 2, size=(n, PANEL_WIDTH)) - 1).astype(np.float32)
    new = np.zeros_like(old)
    panels.step(old, new, 1 / half, centre, 0.0)
    out = np.empty(MAX_MOMENT + 1)
    out[0], out[1] = _inner_product(old, old), _inner_product(old, new)
    for k in range(1, MAX_MOMENT // 2 + 1):
        out[2 * k] = 2 * _inner_product(new, new) - out[0]
        panels.step(new, old, 2 / half, centre, -1.0)
        old, new = new, old
        if 2 * k + 1 <= MAX_MOMENT:
            out[2 * k + 1] = 2 * _inner_product(old, new) - out[1]
    return out / PANEL_WIDTH


MAX_STAGE_GROWTH = 1e6
"""Largest factor by which one stage may amplify the top of the spectrum relative to the damped part. With a larger factor, float32 columns
become linearly dependent.
"""

MAX_STAGES = 12  # Stages after which the best subspace so far is returned, with the error it has.
RESIDUAL_SAMPLES = 64  # Ritz pairs from whose residuals the error is estimated, evenly spaced by rank.
RANK_MARGINS = (1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.6, 2.0)
SPARE_COLUMNS = 20  # Columns of a block: one of the margins times the estimated rank, and these.


@dataclass(frozen=True)
class LeadingPairs:
    """The positive eigenpairs found in a filtered subspace: values ``(r,)``, descending, vectors ``(n, r)``, and the relative error of
    ``sum_i values_i^2``.

    ``block``, ``(n, b)``, holds the Ritz vectors of the whole subspace, by descending Ritz value; it is None if a dense decomposition was
    used. ``vectors`` and ``block`` have the type that the :class:`ColumnBlock` returns, which is an array for a block in memory.
    """

    values: FloatArray
    vectors: Vectors
    block: WarmBlock
    error: float


@dataclass(frozen=True)
class BlockPlan:
    """A plan for the filter.

    * ``columns``: the block size b; about b eigenvalues are above the damped interval.
    * ``damped``: the interval whose eigenvectors the filter damps.
    * ``top``: the upper end of the spectrum.
    * ``degree``: the total degree that a random block needs.
    """

    columns: int
    damped: tuple[float, float]
    top: float
    degree: int

    def stage(self, left: int) -> int:
        """Divide the total degree ``left`` into equal stages, so that the growth in each stage is at most ``MAX_STAGE_GROWTH``. Return the
        degree of the next stage.
        """
        rate = math.acosh(1 + 2 * (self.top - self.damped[1]) / (self.damped[1] - self.damped[0]))
        max_degree = max(1, int(math.acosh(MAX_STAGE_GROWTH) / rate))
        return math.ceil(left / math.ceil(left / max_degree))


def plan_block(spectrum: Spectrum, rank: float, n: int, entries: int, tol: float, columns: int | None = None) -> BlockPlan:
    """Return the plan with the block size and interval for which the filter needs the fewest operations.

    After degree m, a random block misses about ``1e6 * sum_i s_i^2 / cosh(m a_i)^2`` of ``sum_i s_i^2``, where ``cosh a_i`` is the
    eigenvalue s_i after mapping the damped interval to [-1, 1]. On graphs, the true factor in place of 1e6 was between 1e5 and 1e7.
    """
    sizes = sorted({min(n, int(margin * rank) + SPARE_COLUMNS) for margin in RANK_MARGINS}) if columns is None else [columns]
    plans = [_plan_size(spectrum, size, tol) for size in sizes]
    # In units of one double precision product inside a dense matrix: sparse ones cost ten times as much, eigenvectors three times.
    costs = [
        10 * p.degree * entries * p.columns
        + n * p.columns**2 * (1.0 * math.ceil(p.degree / max(1, p.stage(p.degree))) + 1.0)
        + n * p.columns * rank
        + 15 * p.columns**3
        for p in plans
    ]
    return plans[int(np.argmin(costs))]


def _plan_size(spectrum: Spectrum, size: int, tol: float) -> BlockPlan:
    spread = spectrum.top - spectrum.lo
    level = spectrum.level(size)
    edge = min(max(level, spectrum.lo + 0.05 * spread), spectrum.top - 0.05 * spread)
    # Positive eigenvalues lie outside what is damped, however far the top is above the rest, unless the block is smaller than their number.
    edge = min(edge, max(level, 0.0, spectrum.lo + 1e-3 * spread))
    values, weights = spectrum.positive_density()
    weights = weights * values**2
    angles = np.arccosh(1 + 2 * np.maximum(values - edge, 1e-3 * spread) / (edge - spectrum.lo))
    degree = 8
    while degree < 200 and 1e6 * float(weights @ np.cosh(np.minimum(degree * angles, 300.0)) ** -2.0) > tol * float(weights.sum()):
        degree += 2
    return BlockPlan(size, (spectrum.lo, edge), spectrum.top, degree)


def chebyshev_positive(
    operator: SymmetricOperator, spectrum: Spectrum, make_block: Callable[[int, float], ColumnBlock], *, tol: float,
    start: WarmBlock = None, seed: int = 0, max_rank: int | None = None, threads: int = 1, memory: int | None = None,
) -> LeadingPairs:  # fmt: skip
    """Return the positive eigenpairs of a large symmetric matrix, at most ``max_rank``. The result does not depend on the number of
    threads.

    * ``spectrum`` is used only to choose the block size and the damped interval.
    * ``make_block`` makes a block, given the number of columns and the estimated number of positive pairs.
    * ``tol`` is the relative error of ``||A_+||_F^2``.
    * ``start`` is the block of a similar matrix; starting from it, a smaller degree is enough.

    Raises MemoryError before a block, or the dense matrix used in its place, would take more than ``memory`` bytes of this process.
    """
    n, limit = operator.n, operator.n if max_rank is None else max_rank
    rank = max(0.0, min(spectrum.count(0.0), limit))
    plan = plan_block(spectrum, rank, n, operator.sparse.nnz, tol)
    block = make_block(plan.columns, rank)
    refuse_array(f"a block of {plan.columns} columns of {n} rows", block.driver_bytes(plan.columns, rank), memory)
    error = math.inf
    # A block that was good for a similar matrix mostly needs one stage; the error decides.
    degree = plan.stage(plan.degree) if block.begin(plan.columns, start, seed) else plan.degree
    for stage in range(MAX_STAGES):
        _filter_in_stages(block, plan, degree)
        values, weights = _rayleigh_ritz(block, threads)
        n_pairs = min(int(np.count_nonzero(values > 0)), limit)
        if n_pairs == block.columns:
            wider = math.ceil(1.5 * n_pairs)
            if 2 * wider > n:
                refuse_array(f"a dense decomposition of {n} rows", dense_bytes(n), memory)
                return LeadingPairs(*dense_positive(operator.dense()), None, 0.0)
            plan = plan_block(spectrum, rank, n, operator.sparse.nnz, tol, wider)
            refuse_array(f"a block of {wider} columns of {n} rows", block.driver_bytes(wider, n_pairs), memory)
            orthonormalise(block)
            block.widen(wider, seed + stage + 1)
            degree = plan.degree
            continue
        error = _estimate_error(block, values, weights, n_pairs, plan.damped[1])
        if error <= tol or stage == MAX_STAGES - 1:
            break
        orthonormalise(block)
        degree = plan.stage(8)
    return LeadingPairs(values[:n_pairs], block.rotate(weights, n_pairs), block.result(), error)


def _filter_in_stages(block: ColumnBlock, plan: BlockPlan, degree: int) -> None:
    """Filter a block by a total degree, in stages; the columns are orthonormalised between stages."""
    left = degree
    while left > 0:
        step = plan.stage(left)
        block.filter(step, plan.damped, plan.top)
        left -= step
        if left > 0:
            orthonormalise(block)


def orthonormalise(block: ColumnBlock) -> None:
    """Overwrite V by ``V R^{-1}`` with ``R'R = V'V``: the columns become orthonormal up to the precision of V."""
    product = block.gram()
    scale = _unit_scale(product)
    block.solve(scale, _factorise(product * np.multiply.outer(scale, scale), 1e-6))


def _unit_scale(product: FloatArray) -> FloatArray:
    return 1 / np.sqrt(np.maximum(np.diag(product), np.finfo(np.float32).tiny))


def _factorise(matrix: FloatArray, shift: float) -> FloatArray:
    """Return the lower Cholesky factor of a matrix with unit diagonal, shifted until the factor exists."""
    while True:
        try:
            with one_thread():
                return np.asarray(np.linalg.cholesky(matrix + shift * np.eye(len(matrix))), dtype=np.float64)
        except np.linalg.LinAlgError:
            shift = max(10 * shift, 1e-14)


def _rayleigh_ritz(block: ColumnBlock, threads: int) -> tuple[FloatArray, FloatArray]:
    """Return all Ritz values, descending, and weights W such that the Ritz vectors are ``V W``, in double precision.

    ``L^{-1} V'AV L'^{-1} = Q diag(values) Q'`` with ``V'V = L L'``.
    """
    product = block.exact_gram()
    scale = _unit_scale(product)
    lower = _factorise(product * np.multiply.outer(scale, scale), 0.0)
    if np.diag(lower).min() < 1e-4:
        # Columns this close to dependent would leave the vectors orthonormal to less than 1e-8.
        orthonormalise(block)
        product = block.exact_gram()
        scale = _unit_scale(product)
        lower = _factorise(product * np.multiply.outer(scale, scale), 1e-14)
    del product
    small = block.form()
    small *= np.multiply.outer(scale, scale)
    small = solve_lower(lower, solve_lower(lower, small, threads).T, threads)
    with one_thread():
        values, vectors = scipy.linalg.eigh(0.5 * (small + small.T), driver="evd", overwrite_a=True, check_finite=False)
    weights = solve_lower(lower, vectors[:, ::-1], threads, transposed=True)
    weights *= scale[:, None]
    return values[::-1].copy(), weights


def _estimate_error(block: ColumnBlock, values: FloatArray, weights: FloatArray, n_pairs: int, edge: float) -> float:
    """Return the estimated relative error of ``sum_i s_i^2``, from the residuals of 64 evenly spaced pairs.

    A Ritz value s_i with residual ``rho_i = ||A u_i - s_i u_i||`` is too small by about ``rho_i^2 / (s_i - edge)``, because the part that
    the block misses is below the edge.
    """
    if n_pairs == 0:
        return 0.0
    sample = np.unique(np.linspace(0, n_pairs - 1, RESIDUAL_SAMPLES).round().astype(np.intp))
    some = values[sample]
    residuals = block.squared_residuals(np.ascontiguousarray(weights[:, sample]), some)
    gaps = np.maximum(some - edge, 1e-3 * values[0])
    return n_pairs * float(np.mean(2 * some * residuals / gaps)) / float(values[:n_pairs] @ values[:n_pairs])
