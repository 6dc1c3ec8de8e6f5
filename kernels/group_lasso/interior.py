"""Group lasso with hinge loss by a primal-dual interior-point method, with second-order cones for the norms and linear cones for the rows.

    min_{v,b}  sum_i c_i xi_i + lam sum_k w_k t_k,   xi_i >= 0,  m_i = xi_i + y_i (x_i'w_q + b_q) - 1 >= 0,  ||v_k|| <= t_k,

where the terms k are the norms in Omega: a Euclidean norm per group, over all tasks, and an absolute value per entry with r > 0. The dual
is

    max_a  sum_i a_i,   0 <= a_i <= c_i,  sum_i y_i a_i = 0 for every bias,  sum_i y_i a_i x_i = sum_k z_k,  ||z_k|| <= lam w_k.

Both problems have a known interior point, so every step keeps both feasible up to rounding. The dual point a is therefore a certificate
without further scaling. A step eliminates xi, m, t and the duals. What remains is a weighted least squares problem on the moments of the
rows, plus ``alpha I - beta d d'`` for every term. Groups over several tasks couple their problems by one vector each, handled by the
Woodbury formula.

Source: Andersen, Dahl, Vandenberghe, "Interior-point methods for large-scale cone programming", 2011 (scaling of Nesterov and Todd,
corrector of Mehrotra).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..arrays import Array, FloatArray
from .row_problem import RowProblem

START = 0.9  # share of the largest feasible multiple of the balanced dual that the path begins with
TO_BORDER = 0.99  # share of the way to the border of the cones that a step takes
LEAST_STEP = 1e-9  # a shorter step is rounding
PATH_SHARE = 0.1  # share of the tolerance at which the path is left, its small weights become zeros, and the gap is looked at
MARGINS = 1.0, 1e-3, 1e-6  # how near to zero, beside the room of its dual, a term becomes zero: less where the gap would not close

Pair = tuple[FloatArray, FloatArray]  # of every cone its first number, and the entries of all


class PathEnd(NamedTuple):
    """The end of a path; fields as in :class:`gramplane.kernels.group_lasso.on_rows.RowSolution`."""

    copies: FloatArray
    biases: FloatArray
    slopes: FloatArray
    objective: float
    gap: float
    steps: int
    stop: str


def balanced_slopes(problem: RowProblem) -> FloatArray:
    """Return the slopes of the best model without features. They are equal for all rows of one class in one task. With a bias, their sum
    over each task, weighted by the costs, is 0.
    """
    shares = np.ones(len(problem.y))
    if problem.fit_bias:
        for span in problem.rows.spans:
            y, cost = problem.y[span], problem.cost[span]
            plus, minus = float(cost[y > 0].sum()), float(cost[y < 0].sum())
            least = min(plus, minus)
            shares[span] = np.where(y > 0, least / max(plus, np.finfo(float).tiny), least / max(minus, np.finfo(float).tiny))
    return shares * problem.y


def best_constants(problem: RowProblem) -> FloatArray:
    """Return the biases of the best model without features: for each task, the label whose rows have the larger total weight. If the
    problem has no biases, return zeros.
    """
    if not problem.fit_bias:
        return np.zeros(problem.rows.n_tasks)
    return np.array([1.0 if problem.cost[s] @ problem.y[s] >= 0.0 else -1.0 for s in problem.rows.spans])


@dataclass(frozen=True)
class _Terms:
    """The terms of the penalty, each of which is a norm: their weights, and the entries of v (task after task) that each term covers. The
    terms of the groups, ``n_groups`` of them, come first.
    """

    weight: FloatArray
    entries: Array
    starts: Array
    owner: Array
    n_groups: int

    @classmethod
    def of(cls, problem: RowProblem) -> _Terms:
        penalty, n_tasks = problem.penalty, problem.rows.n_tasks
        at = np.arange(n_tasks * penalty.n_copies).reshape(n_tasks, -1)
        groups = np.flatnonzero(penalty.kappa > 0.0)
        parts = [at[:, penalty.indptr[g] : penalty.indptr[g + 1]].ravel() for g in groups]
        inner = np.tile(penalty.inner[penalty.owner], n_tasks)
        alone = np.flatnonzero(inner > 0.0)
        sizes = np.array([*map(len, parts), *np.ones(len(alone), np.int64)], np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        weight = problem.lam * np.concatenate([penalty.kappa[groups], inner[alone]])
        return cls(weight, np.concatenate([*parts, alone]).astype(np.int64), starts, np.repeat(np.arange(len(sizes)), sizes), len(groups))

    def dot(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return the inner product of each term's entries."""
        return np.add.reduceat(a * b, self.starts)

    def times(self, numbers: FloatArray, entries: FloatArray) -> FloatArray:
        """Multiply the entries of each term by the term's number."""
        return numbers[self.owner] * entries

    def border(self, at: Pair, step: Pair, square: FloatArray) -> float:
        """Return the largest step in direction ``step`` that stays in all cones; ``square`` is ``t^2 - ||u||^2`` of each cone at ``at``."""
        along = at[0] * step[0] - self.dot(at[1], step[1])
        bend = step[0] * step[0] - self.dot(step[1], step[1])
        root = along * along - bend * square
        pace = np.sqrt(np.maximum(root, 0.0)) - along
        hits = (root >= 0.0) & (pace > 0.0)
        return float(np.min(square[hits] / pace[hits], initial=np.inf))


class _Scaling:
    """Nesterov-Todd scaling of the terms' cones at (t, u) and (w, z): ``W z = W^-1 s``."""

    def __init__(self, terms: _Terms, primal: Pair, dual: Pair) -> None:
        self._terms = terms
        self.squares = tuple(self._square(*point) for point in (primal, dual))
        s, z = (np.sqrt(square) for square in self.squares)
        shared = primal[0] * dual[0] + terms.dot(primal[1], dual[1])
        half = 2.0 * np.sqrt(0.5 * (1.0 + shared / (s * z)))
        self.first = (primal[0] / s + dual[0] / z) / half
        self.rest = terms.times(1.0 / (s * half), primal[1]) - terms.times(1.0 / (z * half), dual[1])
        self.size = np.sqrt(s / z)
        self.point, self.determinant = self.grow(dual), s * z

    def _square(self, first: FloatArray, rest: FloatArray) -> FloatArray:
        norm = np.sqrt(self._terms.dot(rest, rest))
        return (first - norm) * (first + norm)

    def grow(self, x: Pair) -> Pair:
        aligned = self._terms.dot(self.rest, x[1])
        along = x[0] + aligned / (1.0 + self.first)
        return self.size * (self.first * x[0] + aligned), self._terms.times(self.size, self._terms.times(along, self.rest) + x[1])

    def shrink(self, x: Pair) -> Pair:
        aligned = self._terms.dot(self.rest, x[1])
        along = aligned / (1.0 + self.first) - x[0]
        return (self.first * x[0] - aligned) / self.size, self._terms.times(1.0 / self.size, self._terms.times(along, self.rest) + x[1])

    def corrector(self, aim: float, step: Pair, dual_step: FloatArray) -> Pair:
        r"""Return ``W^-1 (l \ (aim e - (W^-1 ds) o (W dz)))``. The change of the dual is this minus z, apart from its Hessian term."""
        dot, times, (l0, l1) = self._terms.dot, self._terms.times, self.point
        (s0, s1), (q0, q1) = self.shrink(step), self.grow((np.zeros_like(step[0]), dual_step))
        first, rest = aim - s0 * q0 - dot(s1, q1), -(times(s0, q1) + times(q0, s1))
        head = (l0 * first - dot(l1, rest)) / self.determinant
        return self.shrink((head, times(1.0 / l0, rest - times(head, l1))))


def interior_path(problem: RowProblem, tol: float, limit: int) -> PathEnd:
    """Follow the central path until the gap is at most ``tol`` times the objective, for at most ``limit`` steps."""
    slopes, biases, penalty = balanced_slopes(problem), best_constants(problem), problem.penalty
    reach = float(penalty.dual_norms(problem.rows.slopes(problem.cost * slopes)).max(initial=0.0))
    # (lam may not be known yet where there are no copies.)
    if not reach > problem.lam:
        return _end_at(problem, np.zeros((problem.rows.n_tasks, penalty.n_copies)), biases, slopes, 0, "gap")
    return _Path(problem, START * problem.lam / reach * slopes, biases).follow(tol, limit)


def _end_at(problem: RowProblem, copies: FloatArray, biases: FloatArray, slopes: FloatArray, steps: int, stop: str) -> PathEnd:
    penalty, rows, loss = problem.penalty, problem.rows, problem.loss
    f = rows.decide(penalty.scatter(copies)) + np.repeat(biases, np.diff(rows.edges))
    objective = float(problem.cost @ loss.values(problem.y, f)) + (problem.lam * penalty.value(copies) if copies.any() else 0.0)
    reach = float(penalty.dual_norms(rows.slopes(problem.cost * slopes)).max(initial=0.0))
    lower = loss.dual_value(problem.y, problem.cost, slopes, reach, problem.lam)
    return PathEnd(copies, biases, slopes, objective, objective - lower, steps, stop)


class _Path:
    """State of the interior-point method. The linear cones belong to the rows whose loss can be positive: rows with positive weight that a
    bias alone does not satisfy.
    """

    def __init__(self, problem: RowProblem, slopes: FloatArray, biases: FloatArray) -> None:
        self._problem, self._terms = problem, _Terms.of(problem)
        self._on = np.flatnonzero(problem.cost * np.abs(slopes) > 0.0)
        self._y, self._cost = problem.y[self._on], problem.cost[self._on]
        self._tasks = np.repeat(np.arange(problem.rows.n_tasks), np.diff(problem.rows.edges))[self._on]
        # A task whose rows a bias sets right keeps it.
        self._moves = problem.fit_bias & (np.bincount(self._tasks, minlength=problem.rows.n_tasks) > 0)
        self._v, self._b = np.zeros(problem.rows.n_tasks * problem.penalty.n_copies), np.where(self._moves, 0.0, biases)
        self._a = self._cost * self._y * slopes[self._on]
        self._e, self._xi, self._m = self._cost - self._a, np.full(len(self._on), 2.0), np.ones(len(self._on))
        self._t, self._z = np.ones(len(self._terms.weight)), self._first_duals()

    def _first_duals(self) -> FloatArray:
        """Return dual values inside the cones of all terms. An entry that also has a term of its own is assigned to this term up to a fixed
        fraction of its bound; the rest is assigned to the entry's group.
        """
        terms, penalty = self._terms, self._problem.penalty
        pull, inner = self._pull(self._a * self._y), self._problem.lam * np.tile(penalty.inner[penalty.owner], self._problem.rows.n_tasks)
        own = np.clip(pull, -START * inner, START * inner) if terms.n_groups else pull
        in_groups = terms.owner < terms.n_groups
        return -np.where(in_groups, (pull - own)[terms.entries], own[terms.entries])

    # -- rows ----------------------------------------------------------------------------------------------------------------

    def _spread(self, values: FloatArray) -> FloatArray:
        out = np.zeros(len(self._problem.y))
        out[self._on] = values
        return out

    def _pull(self, u: FloatArray) -> FloatArray:
        """Return ``sum u x`` for each entry of v."""
        return self._problem.rows.slopes(self._spread(u))[:, self._problem.penalty.members].ravel()

    # -- steps ---------------------------------------------------------------------------------------------------------------

    def follow(self, tol: float, limit: int) -> PathEnd:
        """Take steps until the gap is closed, at most ``limit``."""
        best: PathEnd | None = None
        for steps in range(limit + 1):
            gap = float(self._a @ self._m + self._e @ self._xi + self._terms.weight @ self._t + self._z @ self._v[self._terms.entries])
            stop = "max_iter" if steps == limit else "gap"
            if stop == "max_iter" or gap <= PATH_SHARE * tol * self._objective:
                best = self._better(best, steps, stop, tol)
                if stop == "max_iter" or best.gap <= tol * best.objective:
                    return best
            with np.errstate(all="ignore"):
                if not self._step(gap):
                    break
        return self._better(best, steps, "no_progress", tol)

    @property
    def _objective(self) -> float:
        return float(self._cost @ self._xi + self._terms.weight @ self._t)

    def _better(self, best: PathEnd | None, steps: int, stop: str, tol: float) -> PathEnd:
        """Return the best certificate so far. A term is set to 0 in it if the term is closer to 0 than its dual is to the boundary of its
        cone.

        Closeness to 0 is measured by the term's share of the objective, closeness to the boundary by the unused fraction of the bound on
        the dual. If the gap stays too large, smaller multiples of this fraction are tried.
        """
        terms, problem = self._terms, self._problem
        u = self._v[terms.entries]
        share = terms.weight * np.sqrt(terms.dot(u, u)) / self._objective
        room = 1.0 - np.sqrt(terms.dot(self._z, self._z)) / terms.weight
        for margin in MARGINS:
            v = self._v.copy()
            v[terms.entries[(share <= margin * room)[terms.owner]]] = 0.0
            copies, slopes = v.reshape(problem.rows.n_tasks, -1), self._spread(self._a / self._cost * self._y)
            end = _end_at(problem, copies, self._b.copy(), slopes, steps, stop)
            best = end if best is None or end.gap < best.gap else best._replace(steps=steps, stop=stop)
            if best.gap <= tol * best.objective:
                return best._replace(stop="gap")
        assert best is not None
        return best

    def _step(self, gap: float) -> bool:
        """Take a step with its corrector; return whether there was progress."""
        terms, a, e, m, xi = self._terms, self._a, self._e, self._m, self._xi
        primal, dual = (self._t, self._v[terms.entries]), (terms.weight, self._z)
        scaling = _Scaling(terms, primal, dual)
        try:
            direction = self._directions(scaling)
        except np.linalg.LinAlgError:
            return False
        zeros = np.zeros_like(self._t)
        ahead = direction(-a, -e, (-terms.weight, -self._z))
        far, far_dual = (min(1.0, reach) for reach in self._borders(ahead, scaling))
        left = float((a + far_dual * ahead.a) @ (m + far * ahead.m) + (e - far_dual * ahead.a) @ (xi + far * ahead.xi))
        left += float(
            terms.weight @ (self._t + far * ahead.t) + (self._z + far_dual * ahead.z) @ (primal[1] + far * ahead.v[terms.entries])
        )
        aim = max(left / gap, 0.0) ** 3 * gap / (2 * len(a) + len(zeros))
        first, rest = scaling.corrector(aim, (ahead.t, ahead.v[terms.entries]), ahead.z)
        step = direction(
            (aim - ahead.m * ahead.a) / m - a, (aim + ahead.xi * ahead.a) / xi - e, (first - terms.weight, rest - self._z)
        )  # fmt: skip
        far, far_dual = (min(1.0, TO_BORDER * reach) for reach in self._borders(step, scaling))
        if not (np.isfinite(step.v).all() and min(far, far_dual) > 0.0 and max(far, far_dual) > LEAST_STEP):
            return False
        self._v, self._b, self._t = self._v + far * step.v, self._b + far * step.b, self._t + far * step.t
        self._xi, self._m = xi + far * step.xi, m + far * step.m
        self._a, self._e, self._z = a + far_dual * step.a, e - far_dual * step.a, self._z + far_dual * step.z
        return True

    def _borders(self, step: _Step, scaling: _Scaling) -> tuple[float, float]:
        """Return the largest feasible primal step and the largest feasible dual step."""
        terms, u = self._terms, self._v[self._terms.entries]
        primal = min(_reach(self._xi, step.xi), _reach(self._m, step.m))
        dual = min(_reach(self._a, step.a), _reach(self._e, -step.a))
        primal = min(primal, terms.border((self._t, u), (step.t, step.v[terms.entries]), scaling.squares[0]))
        return primal, min(dual, terms.border((terms.weight, self._z), (np.zeros_like(self._t), step.z), scaling.squares[1]))

    def _directions(self, scaling: _Scaling) -> Callable[[FloatArray, FloatArray, Pair], _Step]:
        """Return a function that solves the Newton equations at this point. Its arguments are three right-hand sides: two for the two cones
        of the rows, and one for the terms.
        """
        problem, terms, y, n_tasks = self._problem, self._terms, self._y, self._problem.rows.n_tasks
        of_m, of_xi = self._a / self._m, self._e / self._xi
        both = of_m + of_xi
        D = of_m * of_xi / both
        moments = problem.rows.moments(np.zeros(len(problem.y)), self._spread(D), problem.fit_bias)
        means, totals = moments.means[:, problem.penalty.members], np.bincount(self._tasks, D, n_tasks)
        w0, w1 = scaling.first, scaling.rest
        alpha = 1.0 / np.square(scaling.size)
        lift = 2.0 * w0 * w0 - 1.0
        beta = 2.0 * alpha / lift
        h00, cross = alpha * lift, -terms.times(2.0 * alpha * w0, w1)
        solve = _solver(
            moments.gram[:, problem.penalty.members[:, None], problem.penalty.members], terms, alpha, terms.times(np.sqrt(beta), w1)
        )

        def direction(of_slack: FloatArray, of_loss: FloatArray, of_terms: Pair) -> _Step:
            pull = (of_slack * of_xi - of_m * of_loss) / both
            rest = of_terms[1] - terms.times(of_terms[0] / h00, cross)
            # What rounding has left of the equations of the dual goes with the step.
            sums = np.bincount(self._tasks, y * (pull + self._a), n_tasks)
            right = self._pull(y * (pull + self._a)) + np.bincount(terms.entries, rest + self._z, len(self._v))
            if problem.fit_bias:
                right = right - (means * sums[:, None]).ravel()
            v = solve(right)
            b = np.zeros(n_tasks)
            if problem.fit_bias:
                b[self._moves] = (sums / np.maximum(totals, np.finfo(float).tiny) - (means * v.reshape(n_tasks, -1)).sum(axis=1))[
                    self._moves
                ]
            values = problem.rows.decide(problem.penalty.scatter(v.reshape(n_tasks, -1)))[self._on]
            f, u = y * (values + b[self._tasks]), v[terms.entries]
            xi = (of_loss + of_slack - of_m * f) / both
            t = (of_terms[0] - terms.dot(cross, u)) / h00
            z = rest - terms.times(alpha, u) + terms.times(beta * terms.dot(w1, u), w1)
            return _Step(v, b, xi, xi + f, pull - D * f, t, z)

        return direction


class _Step(NamedTuple):
    """Changes of v, b, xi, m, a, t and z. The dual e changes by the same amount as a, with opposite sign."""

    v: FloatArray
    b: FloatArray
    xi: FloatArray
    m: FloatArray
    a: FloatArray
    t: FloatArray
    z: FloatArray


def _reach(at: FloatArray, step: FloatArray) -> float:
    falls = step < 0.0
    return float(np.min(-at[falls] / step[falls], initial=np.inf))


def _solver(gram: FloatArray, terms: _Terms, alpha: FloatArray, bends: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return a function that solves ``(G + sum_k alpha_k I_k - d_k d_k') v = r``.

    ``gram`` holds Gram matrices ``(n_tasks, p, p)`` of the copied columns; ``bends`` are the vectors d of all terms. The Gram matrices are
    overwritten.
    """
    n_tasks, p = gram.shape[:2]
    diagonal = np.arange(p)
    own = np.bincount(terms.entries, alpha[terms.owner] - np.where(terms.owner < terms.n_groups, 0.0, bends * bends), n_tasks * p)
    gram[:, diagonal, diagonal] += own.reshape(n_tasks, p)
    n_entries = int(np.searchsorted(terms.owner, terms.n_groups))
    if n_tasks == 1:
        for at, d in zip(
            np.split(terms.entries[:n_entries], terms.starts[1 : terms.n_groups]),
            np.split(bends[:n_entries], terms.starts[1 : terms.n_groups]),
            strict=True,
        ):
            gram[0][np.ix_(at, at)] -= np.outer(d, d)
        factor = cho_factor(gram[0], check_finite=False)
        return lambda right: cho_solve(factor, right, check_finite=False)
    inverse = np.linalg.inv(gram)

    def apart(right: FloatArray) -> FloatArray:
        right = right.reshape(n_tasks, p, 1)
        first = inverse @ right
        return (first + inverse @ (right - gram @ first)).ravel()

    if not terms.n_groups:
        return apart
    d = np.zeros(n_tasks * p)
    d[terms.entries[:n_entries]] = bends[:n_entries]
    group = np.zeros(n_tasks * p, np.int64)
    group[terms.entries[:n_entries]] = terms.owner[:n_entries]
    ends = group[:p]
    between = np.einsum("qi,qij,qj->ij", d.reshape(n_tasks, p), inverse, d.reshape(n_tasks, p))
    sums = np.zeros((terms.n_groups, terms.n_groups))
    np.add.at(sums, (ends[:, None], ends[None, :]), between)
    coupled = np.linalg.inv(np.eye(terms.n_groups) - sums)

    def together(right: FloatArray) -> FloatArray:
        first = apart(right)
        return first + apart(d * (coupled @ np.bincount(group, d * first, terms.n_groups))[group])

    return together
