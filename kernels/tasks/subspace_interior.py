r"""Tasks that share a subspace, by an interior-point method: Newton steps on coefficients and couplings jointly.

The dual of :mod:`gramplane.kernels.tasks.shared_subspace` in signed coefficients and levels g,

.. math::

    \max_{\beta, g} \; c'\beta - \text{kink} \|\beta\|_1 - \tfrac12 \beta' R \beta - \tfrac12 \|g\|_{q/(2(q-1))}
    \quad\text{with}\quad S_j = g_j I - A_j(\beta) \succeq 0, \quad lo \le \beta \le hi, \quad \sum_{i \in t} \beta_i = 0,

is convex, because :math:`A_j(\beta)` is quadratic in beta. Its multipliers are the biases and halves :math:`X_j = D_j / 2` of the
couplings. On the central path ``X_j S_j = mu I``, and the multiplier of each end of the box is mu divided by the distance to this end.
Newton steps towards smaller mu follow the path. Eliminating X leaves one system with as many equations as rows, with the matrix

.. math::

    K(D) + R + \Theta + \sum_j \left[ X_j[c, c] \circ V S_j^{-1} V' + S_j^{-1}[c, c] \circ V X_j V' + P \circ Q' + P' \circ Q \right],
    \qquad P[i, l] = (V X_j)_{l c_i}, \; Q[i, l] = (V S_j^{-1})_{l c_i},

where ``V`` (n x T) holds the products of :math:`K^j` with the coefficients of each task, c the tasks of the rows, and Theta the curvature
of the ends. Vanishing kernels, couplings of low rank and non-unique coefficients do not slow the method down. Some twenty steps reach a gap
of 1e-6 where the closed-form search needs thousands of models (search directions: Helmberg, Rendl, Vanderbei and Wolkowicz, "An
interior-point method for semidefinite programming", SIAM J. Optimization 6, 1996).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ..arrays import FloatArray
from ..svm.dual import DualProblem
from .multitask import power_norm
from .shared_subspace import even_coupling

CENTRING_AIMS = 0.2, 0.6, 1.0
"""Targets of a step for mu, relative to the current mu. The later targets lead back to the centre of the path; they are used if the
boundary allows only a short step to the first target.
"""

SHORT_STEP = 0.2  # A step below this share is short.
MAX_EDGE_SHARE = 0.9  # Share of the way to the edge of the cone that a step may go.
STEP_FACTOR = 0.85  # Factor of a step that leaves the cone.
MIN_STEP = 1e-6  # Steps below this are not taken.
START_MARGINS = 0.1, 0.3
"""Distances of the starting point from the ends of the box: as a share of the midpoint of the box, and as a share of the mean
coefficient. The smaller distance is used.
"""

FIRST_LIFT = 1e-13  # Share of its diagonal that is added to the matrix; ten times more each time that it has no factor.


class Passes(Protocol):
    """The passes over the matrices of all kernels that a step needs."""

    def products(self, beta: FloatArray) -> FloatArray:
        """Return ``V_j = K^j`` times the coefficients of each task, ``(k, n, T)``."""
        ...

    def forms(self, beta: FloatArray) -> FloatArray:
        """Return ``A_j``, ``(k, T, T)``."""
        ...

    def matrix(self, coupling: FloatArray) -> FloatArray:
        """Return ``K(D)``, float64 ``(n, n)``; the caller owns the array."""
        ...


@dataclass(frozen=True)
class InteriorPoint:
    """A point of the path."""

    record_name: ClassVar[str] = "InteriorPoint"
    parts: np.ndarray  # coefficients by :class:`Parts`
    below: np.ndarray  # multipliers of the ends of the parts
    above: np.ndarray
    levels: np.ndarray  # g, (k,)
    halves: np.ndarray  # X, (k, T, T), halves of the couplings
    biases: np.ndarray  # (T,)


class PointView(NamedTuple):
    """A point in terms of the problem.

    * ``beta``: the coefficients; ``products`` and ``forms``: V and A at these coefficients.
    * ``decision``: values without biases.
    * ``coupling``: the couplings, not scaled to norm one.
    """

    beta: FloatArray
    products: FloatArray
    forms: FloatArray
    decision: FloatArray
    coupling: FloatArray


class _Move(NamedTuple):
    parts: FloatArray
    below: FloatArray
    above: FloatArray
    levels: FloatArray
    halves: FloatArray
    biases: FloatArray
    beta: FloatArray
    slack: FloatArray


class Parts:
    """Coefficients as variables (parts) between two ends, with a linear objective. A coefficient with a kink has one part per sign; a
    coefficient with an empty box has none.
    """

    def __init__(self, problem: DualProblem) -> None:
        self.used = movable(problem)
        kinks, rows = problem.l1_weights(), np.flatnonzero(self.used)
        one, two = rows[kinks[rows] == 0], rows[kinks[rows] > 0]
        zero = np.zeros(len(two))
        self.n, self.singles = problem.n, len(one)
        self.rows = np.concatenate([one, two, two])
        self.signs = np.concatenate([np.ones(len(one) + len(two)), -np.ones(len(two))])
        self.low = np.concatenate([problem.lo[one], zero, zero])
        self.high = np.concatenate([problem.hi[one], problem.hi[two], -problem.lo[two]])
        self.cost = self.signs * problem.c[self.rows] - kinks[self.rows]
        self.has_low, self.has_high = np.isfinite(self.low), np.isfinite(self.high)

    @property
    def ends(self) -> int:
        """Number of finite ends of all parts."""
        return int(self.has_low.sum() + self.has_high.sum())

    def beta(self, parts: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(self.rows, self.signs * parts, self.n), np.float64)

    def over(self, parts: FloatArray) -> FloatArray:
        """Return the distance of each part to its lower end; 1 if a part has no lower end."""
        return np.where(self.has_low, parts - self.low, 1.0)

    def under(self, parts: FloatArray) -> FloatArray:
        """Return the distance of each part to its upper end; 1 if a part has no upper end."""
        return np.where(self.has_high, self.high - parts, 1.0)

    def inside(self, beta: FloatArray, centre: FloatArray) -> FloatArray:
        """Return parts that lie away from their ends and whose coefficients have the same group sums as ``beta`` and ``centre``."""
        size = float(np.abs(centre).mean())
        share = min(START_MARGINS[0], START_MARGINS[1] * float(np.abs(beta).mean()) / size) if size > 0 else 0.0
        signed = self.signs * ((1.0 - share) * beta + share * centre)[self.rows]
        split = np.arange(len(signed)) >= self.singles
        margin = START_MARGINS[0] * np.where(np.isfinite(self.high), self.high, 1.0)
        margin = np.minimum(margin, START_MARGINS[1] * float(np.abs(beta).mean()) + np.finfo(float).tiny)
        # What both parts of a row get cancels.
        pair = np.full(self.n, np.inf)
        np.minimum.at(pair, self.rows, np.where(split, margin, np.inf))
        return np.where(split, np.maximum(signed, 0.0) * (1.0 - 2.0 * START_MARGINS[0]) + np.minimum(pair[self.rows], margin), signed)

    def settled(self, move: FloatArray, beta: FloatArray, soft: FloatArray) -> FloatArray:
        """Return the move of each part. If a row has two parts, the stiffer part moves by its own equation, and the softer part by the rest
        of the coefficient's move.
        """
        out = np.where(np.arange(len(move)) < self.singles, beta[self.rows], move)
        m = (len(move) - self.singles) // 2
        up, down = slice(self.singles, self.singles + m), slice(self.singles + m, None)
        soft_up, whole = soft[up] > soft[down], beta[self.rows[up]]
        out[up] = np.where(soft_up, whole + move[down], move[up])
        out[down] = np.where(soft_up, move[down], move[up] - whole)
        return out


def movable(problem: DualProblem) -> NDArray[np.bool_]:
    """Return which coefficients can leave zero: their box has an interior, and their group can move in both directions."""
    codes = problem.groups
    assert codes is not None
    up, down = (np.bincount(codes, side)[codes] > 0 for side in (problem.hi > 0, problem.lo < 0))
    return (problem.hi > problem.lo) & up & down


def balanced_centre(problem: DualProblem) -> FloatArray:
    """Return a point inside all boxes that have an interior, with sum zero in every group; zero if ends are infinite."""
    codes = problem.groups
    assert codes is not None
    high, low = (np.where(np.isfinite(end), end, 0.0) for end in (problem.hi, problem.lo))
    above, below = np.bincount(codes, high), -np.bincount(codes, low)
    half = 0.5 * np.minimum(above, below)
    up, down = (np.divide(half, total, out=np.zeros_like(half), where=total > 0)[codes] for total in (above, below))
    return high * up + low * down


class InteriorPath:
    """Newton steps along the central path; the groups of the problem are the tasks."""

    def __init__(self, problem: DualProblem, n_tasks: int, q: float, passes: Passes) -> None:
        assert problem.groups is not None
        self.problem, self.codes, self.T, self.q, self.passes = problem, problem.groups, n_tasks, q, passes
        self.parts, self.ridge = Parts(problem), problem.ridges()
        self.member = np.eye(n_tasks)[self.codes] * self.parts.used[:, None]
        self.live = self.member.any(axis=0)

    def start(self, beta: FloatArray) -> InteriorPoint:
        """Return an interior point, from coefficients that sum to zero; tasks are not yet coupled."""
        parts = self.parts.inside(beta, balanced_centre(self.problem))
        forms = self.passes.forms(self.parts.beta(parts))
        k, top = len(forms), np.linalg.eigvalsh(forms)[:, -1]
        greatest = max(float(top.max()), np.finfo(float).tiny)
        levels = np.full(k, 1.5 * greatest) if self.q == 1 else np.maximum(top, 0.0) + 0.5 * greatest
        halves = 0.5 * even_coupling(k, self.T, self.q)
        mu = float(np.einsum("kst,kst->", halves, self._slack(levels, forms))) / (k * self.T)
        below = np.where(self.parts.has_low, mu / self.parts.over(parts), 0.0)
        above = np.where(self.parts.has_high, mu / self.parts.under(parts), 0.0)
        return InteriorPoint(parts, below, above, levels, halves, np.zeros(self.T))

    def view(self, point: InteriorPoint) -> PointView:
        """Return a point in terms of the problem; takes two passes."""
        beta, coupling = self.parts.beta(point.parts), 2.0 * point.halves
        products = self.passes.products(beta)
        decision = np.einsum("knt,knt->n", coupling[:, self.codes], products)
        return PointView(beta, products, self.passes.forms(beta), decision, coupling)

    def advance(self, point: InteriorPoint, view: PointView) -> InteriorPoint | None:
        """Return the next point, or ``None`` if round-off allows no step."""
        slack = self._slack(point.levels, view.forms)
        ends = point.below @ self.parts.over(point.parts) + point.above @ self.parts.under(point.parts)
        mu = float(np.einsum("kst,kst->", point.halves, slack) + ends) / (len(slack) * self.T + self.parts.ends)
        system, step, move = _NewtonSystem(self, point, view, slack), 0.0, None
        for aim in CENTRING_AIMS:
            tried = system.move(aim * mu)
            length = self._length(point, slack, tried) if all(np.isfinite(part).all() for part in tried) else 0.0
            if length > step:
                step, move = length, tried
            if step >= SHORT_STEP:
                break
        if move is None or step < MIN_STEP:
            return None
        named = ("parts", "below", "above", "levels", "halves", "biases")
        return InteriorPoint(**{name: getattr(point, name) + step * getattr(move, name) for name in named})

    def _slack(self, levels: FloatArray, forms: FloatArray) -> FloatArray:
        return levels[:, None, None] * np.eye(self.T) - forms

    def _length(self, point: InteriorPoint, slack: FloatArray, move: _Move) -> float:
        """Return a step length that stays in the interior. The limit of the box is computed; the limits of the curved cones are found
        by trial.
        """
        low, high = self.parts.has_low, self.parts.has_high
        values = self.parts.over(point.parts)[low], self.parts.under(point.parts)[high], point.below[low], point.above[high]
        moves = move.parts[low], -move.parts[high], move.below[low], move.above[high]
        ways = [value[way < 0] / -way[way < 0] for value, way in zip(values, moves, strict=True)]
        step = min(1.0, MAX_EDGE_SHARE * min(float(np.min(way, initial=np.inf)) for way in ways))
        bend = self.passes.forms(move.beta)
        share = 1.0 - MAX_EDGE_SHARE
        while step >= MIN_STEP:
            inside = _is_above(point.halves + step * move.halves, share * point.halves)
            if inside and _is_above(slack + step * move.slack - step**2 * bend, share * slack):
                return step
            step *= STEP_FACTOR
        return 0.0


def _is_above(matrices: FloatArray, lower: FloatArray) -> bool:
    return bool(np.linalg.eigvalsh(_symmetrise(matrices - lower))[:, 0].min() > 0)


def _symmetrise(matrices: FloatArray) -> FloatArray:
    return 0.5 * (matrices + matrices.transpose(0, 2, 1))


class _NewtonSystem:
    """The factorised linear system of one step."""

    def __init__(self, path: InteriorPath, point: InteriorPoint, view: PointView, slack: FloatArray) -> None:
        self.path, self.point, self.view, self.parts = path, point, view, path.parts
        self.inverse = _symmetrise(np.asarray(np.linalg.inv(slack), np.float64))
        self.over, self.under = self.parts.over(point.parts), self.parts.under(point.parts)
        stiff = point.below / self.over + point.above / self.under
        self.free = stiff == 0
        self.soft = np.divide(1.0, stiff, out=np.zeros_like(stiff), where=~self.free)
        by_row = np.bincount(self.parts.rows, self.soft, path.problem.n)
        self.stiff = np.divide(1.0, by_row, out=np.zeros_like(by_row), where=by_row > 0)
        self.kernel = path.passes.matrix(view.coupling)
        self.kernel[np.diag_indices(len(self.kernel))] += path.ridge
        self.scale = float(np.median(self.kernel.diagonal()[self.parts.used]))
        self._factor()

    def _factor(self) -> None:
        path, used, member = self.path, self.parts.used, self.path.member[:, self.path.live]
        both = _symmetrise(self.point.halves @ self.inverse)
        # How the coefficients move the traces of the couplings, (n, k).
        pull = 2.0 * np.einsum("knt,knt->nk", self.view.products, both[:, path.codes])
        self.shared = pull.sum(axis=1, keepdims=True) if path.q == 1 else pull
        # A multiple of the equations makes the matrix definite where few rows are free; it changes no solution.
        whole = self._bent() + np.diag(self.stiff) + self.scale * (path.member @ path.member.T)
        self.factor = _factorise(whole[np.ix_(used, used)])
        self.answers = self._solved(np.column_stack([member, self.shared]))

    def _bent(self) -> FloatArray:
        """Return K(D) + R plus the response of the couplings, ``(n, n)``, from one product over all kernels per pair of tasks."""
        X, inverse, V, out = self.point.halves, self.inverse, self.view.products, self.kernel.copy()
        P, Q, flat = V @ X, V @ inverse, V.transpose(1, 0, 2).reshape(len(out), -1)
        members = [np.flatnonzero(self.path.codes == t) for t in range(self.path.T)]
        for s, rows in enumerate(members):
            P_s, Q_s = P[:, rows], Q[:, rows]
            for t, cols in enumerate(members[s:], s):
                left = X[:, s, t, None, None] * Q_s + inverse[:, s, t, None, None] * P_s
                block = left.transpose(1, 0, 2).reshape(len(rows), -1) @ flat[cols].T
                block += Q_s[:, :, t].T @ P[:, cols, s] + P_s[:, :, t].T @ Q[:, cols, s]
                out[np.ix_(rows, cols)] += block
                if t > s:
                    out[np.ix_(cols, rows)] += block.T
        return out

    def _solved(self, sides: FloatArray) -> FloatArray:
        out = np.zeros_like(sides)
        out[self.parts.used] = cho_solve(self.factor, sides[self.parts.used])
        return out

    def move(self, mu: float) -> _Move:
        """Return the step towards ``mu``."""
        path, point, view = self.path, self.point, self.view
        base = mu * self.inverse - point.halves
        value = view.decision + path.ridge * view.beta + path.member @ point.biases
        pushed = np.where(self.parts.has_low, mu / self.over, 0.0) - np.where(self.parts.has_high, mu / self.under, 0.0)
        slope = self.parts.cost - self.parts.signs * value[self.parts.rows] + pushed
        signed, rows, n = self.parts.signs * slope, self.parts.rows, path.problem.n
        by_row = np.bincount(rows, signed * self.soft, n) * self.stiff + np.bincount(rows, signed * self.free, n)
        side = by_row - 2.0 * np.einsum("knt,knt->n", base[:, path.codes], view.products)
        plain = self._solved(side - self.scale * path.member @ (path.member.T @ view.beta))
        biases, levels = self._border(plain, base)
        tasks = int(path.live.sum())
        beta = plain - self.answers[:, :tasks] @ biases[path.live]
        beta = self._balanced(beta + self.answers[:, tasks:] @ (levels[:1] if path.q == 1 else levels))
        moved = np.einsum("ns,knt->kst", path.member * beta[:, None], view.products)
        slack = levels[:, None, None] * np.eye(path.T) - moved - moved.transpose(0, 2, 1)
        halves = base - _symmetrise(point.halves @ slack @ self.inverse)
        change = self.kernel @ beta + 2.0 * np.einsum("knt,knt->n", halves[:, path.codes], view.products) + path.member @ biases
        move = self.parts.settled((slope - self.parts.signs * change[self.parts.rows]) * self.soft, beta, self.soft)
        below = np.where(self.parts.has_low, (mu - point.below * move) / self.over - point.below, 0.0)
        above = np.where(self.parts.has_high, (mu + point.above * move) / self.under - point.above, 0.0)
        return _Move(move, below, above, levels, halves, biases, beta, slack)

    def _balanced(self, beta: FloatArray) -> FloatArray:
        """Return the step with group sums restored after round-off; the correction is spread over the coefficients that move most
        easily.
        """
        path = self.path
        weight = self.stiff + self.kernel.diagonal()
        easy = np.divide(1.0, weight, out=np.zeros_like(weight), where=self.parts.used)
        off, total = path.member.T @ (self.view.beta + beta), path.member.T @ easy
        return beta - easy * (path.member @ np.divide(off, total, out=np.zeros_like(off), where=total > 0))

    def _border(self, plain: FloatArray, base: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the moves of biases ``(T,)`` and levels ``(k,)`` for which task sums stay zero and traces of couplings follow
        the levels.
        """
        path, live = self.path, self.path.live
        member, tasks, k = path.member[:, live], int(live.sum()), len(base)
        each = np.ones((k, 1)) if path.q == 1 else np.eye(k)
        traces, bent = self._traces()
        give = np.einsum("kst,kts->k", self.point.halves, self.inverse)
        now = np.trace(self.point.halves + base, axis1=1, axis2=2)
        equations, answers = np.column_stack([member, 2.0 * self.shared]), self.answers.copy()
        answers[:, :tasks] *= -1.0
        matrix = equations.T @ answers
        matrix[tasks:, tasks:] -= 2.0 * each.T @ (give[:, None] * each) + bent
        side = np.concatenate([-(member.T @ self.view.beta), traces - 2.0 * each.T @ now]) - equations.T @ plain
        solution = np.linalg.solve(matrix, side)
        biases = np.zeros(path.T)
        biases[live] = solution[:tasks]
        return biases, each @ solution[tasks:]

    def _traces(self) -> tuple[FloatArray, FloatArray]:
        """Return the traces of the couplings that the levels require, and their derivative; in logarithms for 1 < q < 2."""
        q, g = self.path.q, self.point.levels
        if q in (1.0, 2.0):
            m = 1 if q == 1 else len(g)
            return np.ones(m), np.zeros((m, m))
        power = q / (2.0 * (q - 1.0))
        norm, now = float(power_norm(g, power)), 2.0 * np.trace(self.point.halves, axis1=1, axis2=2)
        share = g / norm
        bent = (power - 1.0) * (np.diag(now / g) - np.outer(now, share ** (power - 1.0) / norm))
        return now * (1.0 + (power - 1.0) * np.log(share) - np.log(now)), bent


def _factorise(matrix: FloatArray) -> tuple[FloatArray, bool]:
    """Return a Cholesky factor. If round-off makes this impossible, return the factor of a slightly shifted matrix."""
    diagonal, lift = matrix.diagonal().copy(), FIRST_LIFT
    while True:
        matrix[np.diag_indices(len(matrix))] = (1.0 + lift) * diagonal
        try:
            return cho_factor(matrix, lower=True)
        except np.linalg.LinAlgError:
            lift *= 10.0
            if lift > 1.0:
                raise
