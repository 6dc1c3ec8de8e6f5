"""A loss on pairs of rows with a linear objective of the kernel matrix, and its evaluation at a dual point by one eigendecomposition.

:mod:`gramplane.kernels.spectral.dual_ascent` states the problem and its dual, and maximises the dual.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from ..arrays import FloatArray, IntArray
from ..eigen.column_block import BlockEngine, StoredBlock
from ..eigen.operator import SymmetricOperator
from ..eigen.positive_part import PositivePart, kernel_spectrum, positive_part
from .pair_losses import PAIR_LOSSES, PairLoss, Terms


@dataclass(frozen=True)
class SpectralProblem:
    """A loss on pairs of rows and a linear objective of the kernel matrix.

    * ``target``: M, ``(n, n)``.
    * ``goal``, ``(size,)``: d, the targets of u (zeros for the linear loss); ``C`` is the weight of the loss.
    * ``p``: the power of the regulariser, at least 1, and above 1 unless the loss is linear and there is a cap.
    * ``B``, ``G``: the cap of tr K^p, or the weight of the penalty; give one of the two.
    * ``basis``, ``(n, r)``: orthonormal columns; K then lies in their span.
    * ``seed``, ``memory``, ``engine``: for the eigensolver's block. ``seed`` determines the first block, ``memory`` is its largest size in
      bytes, and ``engine`` can store its columns outside this process.

    Raises ValueError if a parameter is out of range or has the wrong length.
    """

    target: SymmetricOperator
    terms: Terms
    goal: np.ndarray
    loss: str = "squared_hinge"
    C: float = 1.0
    p: float = 2.0
    B: float | None = 1.0
    G: float | None = None
    basis: np.ndarray | None = None
    seed: int = 0
    memory: int | None = None
    engine: BlockEngine | None = None

    def __post_init__(self) -> None:
        if self.loss not in PAIR_LOSSES:
            raise ValueError(f"loss={self.loss!r}: must be one of {', '.join(PAIR_LOSSES)}")
        if not (np.isfinite(self.C) and self.C > 0):
            raise ValueError(f"C={self.C!r}: must be a finite number above 0")
        if len(self.goal) != self.terms.size:
            raise ValueError(f"goal: has {len(self.goal)} entries; it needs one for each of the {self.terms.size} pairs")
        kernel_spectrum(np.zeros(0), self.p, B=self.B, G=self.G)  # refuses p, B and G out of range
        if self.p == 1 and self.loss != "linear":
            raise ValueError(
                f"p={self.p:g}: must be above 1 with loss={self.loss!r}, because p=1 has no closed form; use loss='linear' with p=1"
            )

    @property
    def rule(self) -> PairLoss:
        return PAIR_LOSSES[self.loss]

    def operator(self, alpha: np.ndarray) -> SymmetricOperator:
        """Return A at ``alpha``."""
        return replace(self.target, sparse=(self.target.sparse + self.terms.matrix(alpha)).tocsr())

    def project(self, alpha: np.ndarray) -> np.ndarray:
        """Return the nearest feasible point."""
        return self.rule.project(alpha, self.C)

    def loss_of(self, forms: np.ndarray) -> float:
        """Return the loss of all pairs as it enters the primal objective."""
        return self.terms.multiplicity * self.rule.value(forms, self.goal, self.C)


@dataclass(frozen=True)
class Evaluation:
    """K, both objectives and the gradient at a dual point.

    The primal objective is exact for this K whatever the accuracy of the eigenpairs, because the eigenvalues used are Rayleigh
    quotients. The dual objective is a bound: the part of ``R(A_+)`` that the eigenpairs may have missed, according to their
    residuals, is subtracted.
    """

    part: PositivePart  # of A
    spectrum: np.ndarray  # (r,) eigenvalues of K, whose eigenvectors are part.vectors
    forms: np.ndarray  # (size,) u of K
    dual: float
    primal: float
    gradient: np.ndarray  # (size,) of the function that is ascended, over the multiplicity
    curvature: float  # first guess of the gradient's Lipschitz constant; for p = 2 it is the local one
    ascended: float  # value of the function that is ascended: the dual, or the dual of a proximal step
    blur: float  # how much of primal - dual is due to the proximal step


@dataclass(frozen=True)
class Anchor:
    """Centre of a proximal step, ``K_t = vectors diag(values) vectors'``, with its weight G."""

    record_name: ClassVar[str] = "Anchor"
    weight: float
    vectors: np.ndarray
    values: np.ndarray

    def added_to(self, operator: SymmetricOperator) -> SymmetricOperator:
        """Return ``A + G K_t``."""
        if not len(self.values):
            return operator
        columns = operator.dense_factor()
        weights = np.zeros(0) if operator.weights is None else operator.weights
        return SymmetricOperator(operator.sparse, np.hstack([columns, self.vectors]), np.concatenate([weights, self.weight * self.values]))

    def product(self, vectors: np.ndarray, values: np.ndarray) -> float:
        """Return ``<K_t, K>``."""
        return float(values @ ((vectors.T @ self.vectors) ** 2 @ self.values))

    def excess(self, part: PositivePart) -> np.ndarray:
        """Return the positive eigenvalues of ``W = (A + G K_t)_+ - G K_t``, descending; each is at least the corresponding
        eigenvalue of A.
        """
        if not len(self.values):
            return part.values
        triangle: np.ndarray = np.linalg.qr(np.hstack([part.vectors, self.vectors]), mode="r")  # pyright: ignore[reportAssignmentType] (of this mode)
        small = (triangle * np.concatenate([part.values, -self.weight * self.values])) @ triangle.T
        values = np.linalg.eigvalsh(0.5 * (small + small.T))[::-1]
        return values[values > 0]


def evaluate(
    problem: SpectralProblem,
    alpha: np.ndarray,
    *,
    tol: float = 1e-8,
    start: np.ndarray | StoredBlock | None = None,
    anchor: Anchor | None = None,
) -> Evaluation:
    """Return K, both objectives and the gradient at ``alpha``, from one eigendecomposition.

    ``tol`` is the accuracy of the eigenpairs, and ``start`` the block of an earlier evaluation nearby. With the ``anchor`` of a proximal
    step the gradient is that of the step's dual; the objectives are still those of the problem.
    """
    operator = problem.operator(alpha)
    if anchor is not None:
        operator = anchor.added_to(operator)
    # The kernel of a proximal step is an array, and A + G K_t no sparse matrix that could be handed on.
    engine = None if anchor is not None else problem.engine
    options: dict[str, Any] = {"seed": problem.seed, "basis": problem.basis, "memory": problem.memory, "engine": engine}
    part = positive_part(operator, tol=tol, start=start, **options)
    p, mu, rule = problem.p, problem.terms.multiplicity, problem.rule
    # With an anchor the values are those of A + G K_t.
    if anchor is None:
        spectrum, regulariser = kernel_spectrum(part.values, p, B=problem.B, G=problem.G)
        aligned, smooth = float(part.values @ spectrum), regulariser
    else:
        assert problem.B is not None
        spectrum = proximal_spectrum(part.values, p, problem.B, anchor.weight)
        shared = anchor.product(part.vectors, spectrum)
        aligned = float(part.values @ spectrum) - anchor.weight * shared
        smooth = aligned - 0.5 * anchor.weight * (float(spectrum @ spectrum) + float(anchor.values @ anchor.values) - 2.0 * shared)
        regulariser = kernel_spectrum(anchor.excess(part), p, B=problem.B)[1]
    positive = part.values if anchor is None else anchor.excess(part)
    missed = regulariser * missed_share(positive, p, part.error * float(part.values @ part.values))
    forms = problem.terms.forms(part.vectors, spectrum)
    gained = mu * (float(problem.goal @ alpha) - rule.conjugate(alpha, problem.C))
    # <M, K> without a product: A = M + sum alpha T, and the values are Rayleigh quotients of the eigenvectors of K.
    primal = mu * float(alpha @ forms) - aligned + problem.loss_of(forms)
    primal += 0.0 if problem.G is None else problem.G / p * float(np.sum(spectrum**p))
    gradient = problem.goal - forms - rule.slope(alpha, problem.C)
    blur = 0.0 if anchor is None else regulariser - aligned
    steepest = problem.terms.norm2 * float(spectrum[0] / part.values[0]) if len(spectrum) else 0.0
    curvature = max(steepest + (1.0 / problem.C if problem.rule.smooth else 0.0), 1e-12)
    return Evaluation(part, spectrum, forms, gained - regulariser - missed, primal, gradient, curvature, gained - smooth, blur)


def missed_share(values: np.ndarray, p: float, squares: float) -> float:
    """Return the relative amount by which ``R(A_+)`` may be larger if eigenvalues with sum of squares ``squares`` are missing from A_+; 0
    if nothing is missing.

    R is a power of ``sum s^q``, q = p/(p-1), with an exponent of at most 1. For q >= 2 missing squares change R most if they belong to the
    largest eigenvalue, otherwise if they are spread over all eigenvalues.
    """
    if not squares > 0 or not len(values):
        return 0.0
    share = values / values[0]
    lost = squares / float(values[0]) ** 2
    if p == 1:
        return 0.5 * lost
    q = p / (p - 1.0)
    spread = max(float(np.mean(share**2)), np.finfo(float).tiny)
    steepest = 1.0 if q >= 2 else spread ** (0.5 * q - 1.0)
    return 0.5 * q * lost * steepest / float(np.sum(share**q))


def proximal_spectrum(values: np.ndarray, p: float, B: float, weight: float) -> np.ndarray:
    """Return the eigenvalues of the K that maximises ``<A, K> - weight / 2 * ||K||_F^2`` under ``tr K^p <= B``.

    With s the positive eigenvalues of A, the eigenvalues lam of K solve ``weight * lam + nu * lam^(p-1) = s``. nu is 0 if this satisfies
    the cap, otherwise positive and such that the cap is active.
    """
    free = values / weight
    if float(np.sum(free**p)) <= B:
        return free
    if p == 2.0:
        return free * np.sqrt(B / float(np.sum(free**2)))
    low, high = 0.0, 1.0
    while float(np.sum(_proximal_roots(values, p, weight, high) ** p)) > B:
        low, high = high, 4.0 * high
    for _ in range(100):
        nu = 0.5 * (low + high)
        low, high = (nu, high) if float(np.sum(_proximal_roots(values, p, weight, nu) ** p)) > B else (low, nu)
    return _proximal_roots(values, p, weight, high)


def _proximal_roots(values: np.ndarray, p: float, weight: float, nu: float) -> np.ndarray:
    """Return the roots of ``weight lam + nu lam^(p-1) = s`` by bisection."""
    low, high = np.zeros_like(values), values / weight
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = weight * middle + nu * middle ** (p - 1.0) < values
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high


def equal_penalty(problem: SpectralProblem, part: PositivePart) -> float:
    """Return the penalty that gives the same K as the cap: ``(sum s^q / B)^((p-1)/p)``, 0 if A has no positive eigenvalue."""
    if problem.B is None or not len(part.values) or problem.p == 1:
        return 0.0
    top, q = float(part.values[0]), problem.p / (problem.p - 1.0)
    return top * float(np.sum((part.values / top) ** q) / problem.B) ** (1.0 / q)


def cap_used(problem: SpectralProblem, evaluation: Evaluation) -> float:
    """Return tr K^p divided by the cap: 1 if the cap is active, NaN if there is none."""
    return float(np.sum(evaluation.spectrum**problem.p)) / problem.B if problem.B is not None else np.nan


# Pairs of rows that belong together or apart: reading, checking, selecting them.


@dataclass(frozen=True)
class PairConstraints:
    """Unordered pairs of n rows, distinct, sorted, with ``rows < cols``. The sign is +1.0 if the rows belong together, else -1.0."""

    n: int
    rows: IntArray
    cols: IntArray
    signs: FloatArray

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def counts(self) -> IntArray:
        """Number of pairs of each row, ``(n,)``."""
        return np.bincount(np.concatenate([self.rows, self.cols]), minlength=self.n)

    def triples(self) -> IntArray:
        """Return the rows i, j and the sign, ``(m, 3)``."""
        return np.stack([self.rows, self.cols, self.signs.astype(np.int64)], axis=1)

    def only(self, chosen: NDArray[np.bool_]) -> PairConstraints:
        return PairConstraints(self.n, self.rows[chosen], self.cols[chosen], self.signs[chosen])


def pair_constraints(pairs: object, n: int) -> PairConstraints:
    """Return constraints on n rows from a sparse ``(n, n)`` matrix with entries +1 and -1, or from triples ``(i, j, +1 or -1)``, ``(m,
    3)``.

    The matrix may be symmetric or one triangle; a pair repeated with the same sign counts once. Raises ValueError if there is no pair, the
    shape is wrong, a sign is neither +1 nor -1, a row is outside the data or paired with itself, or a pair has both signs.
    """
    i, j, signs = _read_entries(pairs, n)
    if not len(i):
        raise ValueError("constraints: no pair is given; at least one is needed")
    bad = np.flatnonzero((signs != 1) & (signs != -1))
    if len(bad):
        e = bad[0]
        raise ValueError(f"constraints: the pair ({i[e]}, {j[e]}) has the sign {signs[e]:g}; must be +1 (together) or -1 (apart)")
    low, high = np.minimum(i, j), np.maximum(i, j)
    out = np.flatnonzero((low < 0) | (high >= n))
    if len(out):
        e = out[0]
        raise ValueError(f"constraints: the pair ({i[e]}, {j[e]}) names a row outside 0 ... {n - 1}")
    loops = np.flatnonzero(low == high)
    if len(loops):
        raise ValueError(f"constraints: the pair ({i[loops[0]]}, {i[loops[0]]}) pairs a row with itself")
    keys, first = np.unique(low * np.int64(n) + high, return_index=True)
    against = np.flatnonzero(signs != signs[first][np.searchsorted(keys, low * np.int64(n) + high)])
    if len(against):
        e = against[0]
        raise ValueError(f"constraints: the pair ({low[e]}, {high[e]}) is given with both signs")
    return PairConstraints(n, keys // n, keys % n, signs[first])


def _read_entries(pairs: Any, n: int) -> tuple[IntArray, IntArray, FloatArray]:
    if sp.issparse(pairs):
        if pairs.shape != (n, n):
            raise ValueError(f"constraints: a matrix of shape {pairs.shape}; must be ({n}, {n}), one row and column per row of X")
        matrix = pairs.tocoo()
        there = matrix.data != 0
        return matrix.row[there].astype(np.int64), matrix.col[there].astype(np.int64), matrix.data[there].astype(np.float64)
    if pairs is None:
        raise ValueError("constraints: none are given; must be a sparse matrix of +1 and -1, or triples (i, j, +1 or -1)")
    try:
        triples = np.asarray(pairs if isinstance(pairs, np.ndarray) else list(pairs), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("constraints: must be a sparse matrix of +1 and -1, or triples (i, j, +1 or -1) of numbers") from None
    if not triples.size and triples.ndim < 3:
        triples = np.zeros((0, 3))
    if triples.ndim != 2 or triples.shape[1] != 3:
        raise ValueError(f"constraints: an array of shape {triples.shape}; must be (m, 3) with rows (i, j, +1 or -1), or a sparse matrix")
    places = triples[:, :2]
    whole = np.isfinite(places) & (places == np.round(places))
    if not whole.all():
        e = int(np.flatnonzero(~whole.all(axis=1))[0])
        raise ValueError(f"constraints: triple {e} names the rows {places[e].tolist()}; must be whole numbers")
    far = np.clip(places, -1.0, float(n)).astype(np.int64)
    return far[:, 0], far[:, 1], triples[:, 2]


MAX_CLOSURE_PAIRS = 20_000_000  # Pairs a closure may have; more would take gigabytes.


def close_pairs(constraints: PairConstraints) -> PairConstraints:
    """Return all pairs that the given pairs imply.

    Belonging together is an equivalence relation, so rows linked by pairs with sign +1 form classes. If a pair between two classes
    has sign -1, all pairs between these classes have sign -1. Raises ValueError if a pair within a class has sign -1, or if there are
    more pairs than ``MAX_CLOSURE_PAIRS``.
    """
    n, together = constraints.n, constraints.signs > 0
    i, j = constraints.rows[together], constraints.cols[together]
    part = connected_components(sp.coo_array((np.ones(len(i)), (i, j)), shape=(n, n)), directed=False)[1].astype(np.int64)
    order = np.argsort(part, kind="stable")
    ends = np.searchsorted(part[order], np.arange(part.max() + 2))
    separate = constraints.only(~together)
    _refuse_torn(separate, part)
    keys = np.minimum(part[separate.rows], part[separate.cols]) * np.int64(n) + np.maximum(part[separate.rows], part[separate.cols])
    keys = np.unique(np.concatenate([keys, np.unique(part[i]) * np.int64(n + 1)]))
    sizes = np.diff(ends)
    total = int(np.sum(sizes[keys // n] * sizes[keys % n]))
    if total > MAX_CLOSURE_PAIRS:
        raise ValueError(f"closure=True: the constraints imply about {total:,} pairs; at most {MAX_CLOSURE_PAIRS:,} are allowed")
    parts = np.split(order, ends[1:-1])
    groups = [_pairs_between(parts[a], parts[b], a == b) for a, b in zip(keys // n, keys % n, strict=True)]
    low, high, signs = (np.concatenate(column) for column in zip(*groups, strict=True))
    sorting = np.lexsort((high, low))
    return PairConstraints(n, low[sorting], high[sorting], signs[sorting])


def _refuse_torn(separate: PairConstraints, part: IntArray) -> None:
    torn = np.flatnonzero(part[separate.rows] == part[separate.cols])
    if len(torn):
        e = torn[0]
        raise ValueError(
            f"constraints: rows {separate.rows[e]} and {separate.cols[e]} have the sign -1, but a chain of pairs with sign +1 links them; "
            "closure=True cannot satisfy both"
        )


def _pairs_between(left: IntArray, right: IntArray, is_one_part: bool) -> tuple[IntArray, IntArray, FloatArray]:
    places = np.triu_indices(len(left), 1) if is_one_part else np.indices((len(left), len(right))).reshape(2, -1)
    a, b = left[places[0]], right[places[1]]
    return np.minimum(a, b), np.maximum(a, b), np.full(len(a), 1.0 if is_one_part else -1.0)


def margins(constraints: PairConstraints, entries: FloatArray) -> FloatArray:
    r"""Return the margin of each row under a kernel, :math:`| \frac{1}{l_i} \sum_j T_{ij} k_{ij} |`,
    where row i has l_i pairs; infinite if l_i = 0.

    T are the constraints; ``entries``, ``(m,)``, are the kernel at the pairs. A small margin means that the row is uncertain.
    """
    signed = constraints.signs * entries
    totals = np.bincount(constraints.rows, signed, constraints.n) + np.bincount(constraints.cols, signed, constraints.n)
    counts = constraints.counts
    return np.where(counts > 0, np.abs(totals) / np.maximum(counts, 1), np.inf)


def select_uncertain_pairs(constraints: PairConstraints, entries: FloatArray, n_select: int) -> PairConstraints:
    """Return the pairs of the ``n_select`` rows with the smallest margins (Zhuang, thesis, 2011, section 3.4). In a tie, the lower row
    number is selected.
    """
    confidence = margins(constraints, entries)
    order = np.lexsort((np.arange(constraints.n), confidence))[:n_select]
    chosen = np.zeros(constraints.n, dtype=bool)
    chosen[order] = np.isfinite(confidence[order])
    return constraints.only(chosen[constraints.rows] | chosen[constraints.cols])


def select_random_pairs(constraints: PairConstraints, size: int, rng: np.random.Generator) -> PairConstraints:
    """Return ``size`` randomly chosen pairs."""
    chosen = np.zeros(constraints.size, dtype=bool)
    chosen[rng.permutation(constraints.size)[:size]] = True
    return constraints.only(chosen)
