r"""Semismooth Newton steps on the dual of a squared loss on squared distances, under a kernel matrix with capped Frobenius norm.

The dual of :mod:`gramplane.kernels.spectral.dual_ascent` with p = 2 and the square loss has the gradient :math:`d - u(A_+ / g) - \alpha /
C`, with :math:`g = \max(G, \|A_+\|_F / \sqrt B)` and G the small penalty in addition to the cap. :math:`A \mapsto A_+` is strongly
semismooth. With :math:`A = U \mathrm{diag}(s) U'`, P the positive and N the other eigenvalues, the derivative of this map in direction E is

.. math::

    U (\Omega \circ U' E U) U', \quad \Omega_{PP} = 1, \; \Omega_{NN} = 0, \; \Omega_{pq} = s_p / (s_p - s_q),

One decomposition therefore gives products with the (generalised) Hessian at :math:`O(n^2 r)` each, where r is the rank of :math:`A_+`, and
a few conjugate gradient iterations give a step (Qi, Sun, SIAM J. Matrix Anal. Appl. 28, 2006; Zhao, Sun, Toh, SIAM J. Optimization 20,
2010). For embeddings of few dimensions Newton steps need a tenth as many decompositions as projected gradients, and they reach any gap.

If the cap is not active, the optimum is at a kink, :math:`A_+ = 0`. Proximal steps are then taken: A + G K_t replaces A, where K_t is the
last K, and everything else is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from ..bounds import sound_gap
from ..jit import one_thread
from .pair_losses import DistanceTerms
from .problem import SpectralProblem

EDGE_BYTES = 8 << 20  # Differences of eigenvectors along edges in memory at a time.
MAX_NEWTON_ROWS = 1500  # Rows up to which whole decompositions are taken.
FORCING_SHARE = 0.1  # Conjugate gradients end at this share of the gradient, and sooner far from the optimum than near it.
MAX_CONJUGATE_GRADIENTS = 200  # Steps of conjugate gradients for one direction, at most.
MIN_STEP_SHARE = 2.0**-20  # Least share of a Newton step that is tried.
ARMIJO = 1e-4
FIRST_WEIGHT = 0.1  # First weight of a proximal step, in units of the penalty that equals the cap.
WEIGHT_FACTOR = 0.5  # Factor of the weight from one proximal step to the next.
MIN_POSITIVE = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Edges:
    """Edges and target of a problem, in the form shared by all steps."""

    rows: np.ndarray
    cols: np.ndarray
    scatter: sp.csr_array  # (n, m): +1 and -1 at the ends of each edge
    target: np.ndarray  # M, (n, n)
    cap: float  # B

    def differences(self, columns: np.ndarray) -> np.ndarray:
        """Return the differences of rows along edges, ``(m, k)``."""
        out = columns[self.rows]
        out -= columns[self.cols]
        return out

    def matrix(self, alpha: np.ndarray) -> np.ndarray:
        """Return A, ``(n, n)``: M plus the Laplacian of the edges with weights alpha."""
        n = len(self.target)
        places = np.concatenate([self.rows * n + self.cols, self.cols * n + self.rows, self.rows * (n + 1), self.cols * (n + 1)])
        return self.target + np.bincount(places, np.concatenate([-alpha, -alpha, alpha, alpha]), minlength=n * n).reshape(n, n)


def prepare_edges(problem: SpectralProblem) -> Edges:
    """Return edges and target of a problem. Raises ValueError unless the problem has a squared loss on distances, p = 2 and a cap."""
    terms = problem.terms
    if not (isinstance(terms, DistanceTerms) and terms.sign == 1.0 and problem.loss == "square" and problem.p == 2 and problem.B):
        raise ValueError(f"loss={problem.loss!r}, p={problem.p:g}: Newton steps need loss='square' on distances, p=2 and a cap B")
    m = np.arange(terms.size)
    rows, cols = terms.rows.astype(np.int64), terms.cols.astype(np.int64)
    signs = np.concatenate([np.ones(terms.size), -np.ones(terms.size)])
    scatter = sp.csr_array((signs, (np.concatenate([rows, cols]), np.concatenate([m, m]))), shape=(terms.n, terms.size))
    return Edges(rows, cols, scatter, problem.target.dense(), problem.B)


@dataclass(frozen=True)
class Proximal:
    """Centre K_t and weight G of a proximal step; ``K_t = vectors diag(spectrum) vectors'``, with no columns if K_t is zero."""

    record_name: ClassVar[str] = "Proximal"
    weight: float
    vectors: np.ndarray
    spectrum: np.ndarray

    @property
    def is_moved(self) -> bool:
        """Whether K_t is not zero."""
        return len(self.spectrum) > 0

    @property
    def kernel(self) -> np.ndarray:
        """K_t, ``(n, n)``."""
        return (self.vectors * self.spectrum) @ self.vectors.T

    def product(self, vectors: np.ndarray, spectrum: np.ndarray) -> float:
        """Return ``<K_t, K>``."""
        return float(spectrum @ ((vectors.T @ self.vectors) ** 2 @ self.spectrum)) if self.is_moved else 0.0


@dataclass(frozen=True)
class Decomposed:
    """All eigenpairs of A at a dual point, and the quantities derived from them."""

    alpha: np.ndarray
    values: np.ndarray  # (n,) descending, of A or of A + G K_t
    vectors: np.ndarray
    rank: int  # number of positive values
    spectrum: np.ndarray  # (rank,) eigenvalues of K
    forms: np.ndarray  # (m,) squared distances of the edges under K
    dual: float
    primal: float
    ascended: float  # the dual of the proximal step
    gradient: np.ndarray  # of what is ascended
    capped: bool  # whether K lies on the cap
    blur: float  # how much of primal - dual is due to the proximal step


def decompose(problem: SpectralProblem, edges: Edges, alpha: np.ndarray, prox: Proximal) -> Decomposed:
    """Return all eigenpairs at a dual point, and the K of a proximal step."""
    matrix = edges.matrix(alpha)
    values, vectors = np.linalg.eigh(matrix + prox.weight * prox.kernel if prox.is_moved else matrix)
    values, vectors = values[::-1].copy(), np.ascontiguousarray(vectors[:, ::-1])
    rank = int(np.sum(values > len(values) * np.finfo(float).eps * float(np.abs(values).max(initial=0.0))))
    s, root = values[:rank], float(np.sqrt(edges.cap))
    length = float(np.linalg.norm(s))
    capped = length >= prox.weight * root and length > 0
    spectrum = s * (root / length) if capped else s / prox.weight
    forms = problem.terms.forms(vectors[:, :rank], spectrum)
    # <A, K>, and the ascended function without the goal: <A, K> - G/2 ||K - K_t||^2.
    shared = prox.product(vectors[:, :rank], spectrum)
    aligned = float(s @ spectrum) - prox.weight * shared
    smooth = aligned - 0.5 * prox.weight * (float(spectrum @ spectrum) + float(prox.spectrum @ prox.spectrum) - 2.0 * shared)
    plain = np.linalg.eigvalsh(matrix) if prox.is_moved else values
    regulariser = root * float(np.linalg.norm(np.maximum(plain, 0.0)))
    gained = float(problem.goal @ alpha) - 0.5 * float(alpha @ alpha) / problem.C
    primal = float(alpha @ forms) - aligned + problem.loss_of(forms)
    gradient = problem.goal - forms - alpha / problem.C
    bounds = gained - regulariser, primal, gained - smooth
    return Decomposed(alpha, values, vectors, rank, spectrum, forms, *bounds, gradient, capped, regulariser - aligned)


class Hessian:
    """The negative of a generalised Hessian of the dual at a decomposed point, available through products."""

    def __init__(self, problem: SpectralProblem, edges: Edges, at: Decomposed) -> None:
        s = at.values[: at.rank]
        self._edges, self._vectors, self._forms = edges, at.vectors, at.forms
        self._ridge, self._cap = 1.0 / problem.C, edges.cap
        self._scale = float(at.spectrum[0] / s[0])
        # Below the cap K is A_+ over the penalty; on it K also turns with the length of A_+.
        self._capped = at.capped
        self._weights = s[None, :] / (s[None, :] - np.minimum(at.values, 0.0)[:, None])
        self._weights[: len(s)] = 0.5
        self._differences = edges.differences(at.vectors[:, : at.rank])

    def product(self, v: np.ndarray) -> np.ndarray:
        moved = self._vectors.T @ (self._edges.scatter @ (v[:, None] * self._differences))
        turned = self._vectors @ (self._weights * moved)
        out = 2.0 * self._scale * np.einsum("er,er->e", self._edges.differences(turned), self._differences)
        if self._capped:
            out -= self._scale / self._cap * self._forms * float(self._forms @ v)
        return out + self._ridge * v

    def diagonal(self) -> np.ndarray:
        """Return the diagonal, which is at least the diagonal of the loss, ``(m,)``."""
        rank, out = self._differences.shape[1], np.empty(len(self._forms))
        # Some edges at a time: all of them along all vectors are m x n numbers.
        step = max(1, EDGE_BYTES // (8 * len(self._vectors)))
        for lo in range(0, len(out), step):
            part = slice(lo, lo + step)
            squares = (self._vectors[self._edges.rows[part]] - self._vectors[self._edges.cols[part]]) ** 2
            out[part] = 2.0 * self._scale * np.einsum("er,er->e", squares @ self._weights, squares[:, :rank])
        if self._capped:
            out -= self._scale / self._cap * self._forms**2
        return np.maximum(out, 0.0) + self._ridge


def newton_direction(hessian: Hessian, gradient: np.ndarray, share: float) -> np.ndarray:
    """Return an ascent direction by preconditioned conjugate gradients, to a residual of ``share`` times the gradient."""
    diagonal = hessian.diagonal()
    x, residual = np.zeros_like(gradient), gradient.copy()
    z = residual / diagonal
    along, energy = z, float(residual @ z)
    goal = share * float(np.linalg.norm(gradient))
    for _ in range(MAX_CONJUGATE_GRADIENTS):
        image = hessian.product(along)
        bent = float(along @ image)
        if bent <= 0.0:
            break
        x = x + energy / bent * along
        residual = residual - energy / bent * image
        if np.linalg.norm(residual) <= goal:
            break
        z = residual / diagonal
        following = float(residual @ z)
        along, energy = z + following / energy * along, following
    return x if x.any() else gradient / diagonal


@dataclass(frozen=True)
class NewtonState:
    """State of the ascent."""

    record_name: ClassVar[str] = "NewtonState"
    iteration: int  # decompositions done
    alpha: np.ndarray
    prox: Proximal  # the proximal step under way
    best_alpha: np.ndarray
    best_dual: float  # highest dual so far
    primal_alpha: np.ndarray
    primal_prox: Proximal  # of the K of least primal objective
    best_primal: float
    stop: str | None = None  # "gap", "max_iter" or "stalled" (numerical accuracy ends the ascent)

    @property
    def gap(self) -> float:
        """Difference of the two objectives, which is a certificate."""
        return sound_gap(self.best_primal - self.best_dual, self.best_primal)

    @property
    def relative_gap(self) -> float:
        """The gap divided by the primal objective."""
        return self.gap / max(abs(self.best_primal), MIN_POSITIVE) if np.isfinite(self.gap) else np.inf


def newton_start(n: int, alpha: np.ndarray) -> NewtonState:
    """Return the state before the first decomposition of ``n`` rows."""
    prox = Proximal(MIN_POSITIVE, np.zeros((n, 0)), np.zeros(0))
    return NewtonState(0, alpha, prox, alpha, -np.inf, alpha, prox, np.inf)


def newton_steps(
    problem: SpectralProblem, state: NewtonState, *, tol: float = 1e-4, max_iter: int = 200, steps: int | None = None
) -> tuple[NewtonState, Decomposed]:
    """Return the state after Newton steps on the dual, and its best K. The state is final if the relative gap is at most ``tol``.

    The problem must have a squared loss on distances, p = 2 and a cap. At most ``max_iter`` decompositions are done in total, and at most
    ``steps`` Newton steps in this call (``None``: no limit). The result is a function of the state alone.
    """
    edges = prepare_edges(problem)
    with one_thread():
        state, at = _begin_ascent(problem, edges, state, tol)
        taken = 0
        while state.stop is None and (steps is None or taken < steps):
            state, at = _take_step(problem, edges, state, at, tol, max_iter)
            taken += 1
        same = at.alpha is state.primal_alpha and state.prox is state.primal_prox
        best = at if same else decompose(problem, edges, state.primal_alpha, state.primal_prox)
    return state, best


def _begin_ascent(problem: SpectralProblem, edges: Edges, state: NewtonState, tol: float) -> tuple[NewtonState, Decomposed]:
    at = decompose(problem, edges, state.alpha, state.prox)
    if state.iteration:
        return state, at
    # A weight G keeps the gap open by at most G B / 2; where the cap is not active a larger one comes first.
    level = float(np.linalg.norm(at.values[: at.rank])) / float(np.sqrt(edges.cap))
    weight = max(tol * abs(at.primal) / edges.cap, FIRST_WEIGHT * level, MIN_POSITIVE)
    state = replace(state, iteration=2, prox=replace(state.prox, weight=weight))
    at = decompose(problem, edges, state.alpha, state.prox)
    return _record_bounds(state, at, tol), at


def _record_bounds(state: NewtonState, at: Decomposed, tol: float) -> NewtonState:
    if at.dual > state.best_dual:
        state = replace(state, best_dual=at.dual, best_alpha=at.alpha)
    if at.primal < state.best_primal:
        state = replace(state, best_primal=at.primal, primal_alpha=at.alpha, primal_prox=state.prox)
    return replace(state, stop="gap") if state.relative_gap <= tol else state


def _take_step(
    problem: SpectralProblem, edges: Edges, state: NewtonState, at: Decomposed, tol: float, max_iter: int
) -> tuple[NewtonState, Decomposed]:
    """Take one Newton step with a line search; if the current proximal step keeps the gap open, end this proximal step first."""
    if at.blur > 0.5 * (at.primal - at.dual) > 0.0:
        prox = Proximal(WEIGHT_FACTOR * state.prox.weight, np.ascontiguousarray(at.vectors[:, : at.rank]), at.spectrum)
        at = decompose(problem, edges, at.alpha, prox)
        state = _record_bounds(replace(state, prox=prox, iteration=state.iteration + 1), at, tol)
        if state.stop is not None:
            return state, at
    direction = _ascent_direction(problem, edges, at)
    slope, share = float(direction @ at.gradient), 1.0
    while True:
        trial = decompose(problem, edges, at.alpha + share * direction, state.prox)
        state = _record_bounds(replace(state, iteration=state.iteration + 1), trial, tol)
        rounding = 1e-13 * (abs(trial.dual) + abs(trial.primal))
        if trial.ascended >= at.ascended + ARMIJO * share * slope - rounding:
            at = trial
            break
        if state.stop is not None or state.iteration >= max_iter or share < MIN_STEP_SHARE:
            break
        share *= 0.5
    stop = "max_iter" if state.iteration >= max_iter else "stalled" if share < MIN_STEP_SHARE else None
    return replace(state, alpha=at.alpha, stop=state.stop or stop), at


def _ascent_direction(problem: SpectralProblem, edges: Edges, at: Decomposed) -> np.ndarray:
    if not at.rank:
        # At A_+ = 0 the dual is smooth on one side only: up the slope of the loss.
        return problem.C * at.gradient
    size = float(np.linalg.norm(at.gradient) / max(float(np.linalg.norm(problem.goal)), MIN_POSITIVE))
    return newton_direction(Hessian(problem, edges, at), at.gradient, min(FORCING_SHARE, FORCING_SHARE * np.sqrt(size)))
