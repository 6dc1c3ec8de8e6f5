"""Slow, obvious twins of learning on latent groups of tasks: all groups enumerated, all group kernels built, a general solver.

The primal is minimised on explicit features, means and deviations of groups as its variables: nothing here knows forms of groups,
closed-form weights or certificates.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.optimize import minimize


def all_groups(n_tasks):
    """Every non-empty group as a row of a boolean array."""
    rows = [np.isin(np.arange(n_tasks), some) for size in range(1, n_tasks + 1) for some in combinations(range(n_tasks), size)]
    return np.array(rows)


def above(groups, w, inverted):
    """Which groups are ancestors of w: its subsets, or in the inverse its supersets."""
    return np.all(groups >= w, axis=1) if inverted else np.all(groups <= w, axis=1)


def penalties(groups, a, inverted):
    sizes = groups.sum(axis=1)
    return a ** (groups.shape[1] - sizes if inverted else sizes)


def group_gram(K, task, w, mu):
    """Gram matrix of a group's kernel over all rows, from the map (phi / sqrt(mu), 0, ..., phi, ..., 0)."""
    inside = w[task].astype(float)
    same = task[:, None] == task[None, :]
    return np.outer(inside, inside) * K * (1.0 / mu + same)


def descendant_sum(s, forms, mu, a, inverted):
    """Left side of the sufficient condition, one descendant after the other; forms (T, T) is the sum over kernels."""
    groups = all_groups(len(s))
    d = penalties(groups, a, inverted)
    total = 0.0
    for w in groups[[above(groups, w, inverted)[np.all(groups == s, axis=1)][0] for w in groups]]:
        between = above(groups, w, inverted) & np.array([above(groups, v, inverted)[np.all(groups == s, axis=1)][0] for v in groups])
        form = forms[w][:, w].sum() / mu + np.trace(forms[w][:, w])
        total += form / d[between].sum() ** 2
    return total


@dataclass
class Problem:
    """Rows of explicit features per kernel, tasks, targets and all parameters."""

    features: list
    y: np.ndarray
    task: np.ndarray
    p: float = 1.5
    q: float = 1.5
    a: float = 1.5
    mu: float = 0.5
    C: float = 1.0
    loss: str = "squared"
    epsilon: float = 0.1
    inverted: bool = False

    @property
    def n_tasks(self):
        return int(self.task.max()) + 1


def random_problem(seed, n_tasks=3, rows=6, kernels=2, width=2, **rest):
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(n_tasks), rows)
    features = [rng.normal(size=(len(task), width)) for _ in range(kernels)]
    w = rng.normal(size=(n_tasks, width))
    w[1] = w[0] + 0.1 * rng.normal(size=width)
    values = np.einsum("nd,nd->n", features[0], w[task]) + 0.3 * rng.normal(size=len(task)) + 0.5 * task
    labels = np.where(values > np.median(values), 1.0, -1.0)
    return Problem(features, labels if rest.get("loss") == "hinge" else values, task, **rest)


def loss_terms(problem, decision, width):
    """Value and derivative of every row's loss; kinks are rounded over ``width``."""
    y, C = problem.y, problem.C
    if problem.loss == "squared":
        return C * (decision - y) ** 2, 2 * C * (decision - y)

    def ramp(t):
        if not width:
            return np.maximum(t, 0.0), (t > 0).astype(float)
        return np.where(t > width, t - width / 2, np.maximum(t, 0) ** 2 / (2 * width)), np.clip(t / width, 0, 1)

    if problem.loss == "hinge":
        value, slope = ramp(1 - y * decision)
        return C * value, -C * y * slope
    s = float(np.std(y))
    C, epsilon = C * s, problem.epsilon * s
    up, down = ramp(decision - y - epsilon), ramp(y - decision - epsilon)
    return C * (up[0] + down[0]), C * (up[1] - down[1])


class Primal:
    """1/2 Omega^2 + C sum of losses over means and deviations of every group and kernel, and the biases."""

    def __init__(self, problem):
        self.problem, self.groups = problem, all_groups(problem.n_tasks)
        self.d = penalties(self.groups, problem.a, problem.inverted)
        self.above = np.array([above(self.groups, w, problem.inverted) for w in self.groups])
        blocks, self.owner, self.weight = [], [], []
        for g, w in enumerate(self.groups):
            for j, F in enumerate(problem.features):
                for t in (-1, *np.flatnonzero(w)):
                    rows = w[problem.task] if t < 0 else problem.task == t
                    blocks.append(F * rows[:, None])
                    self.owner += [g * len(problem.features) + j] * F.shape[1]
                    self.weight += [problem.mu if t < 0 else 1.0] * F.shape[1]
        self.owner, self.weight = np.array(self.owner), np.array(self.weight)
        bias = (problem.task[:, None] == np.arange(problem.n_tasks)).astype(float)
        self.design = np.hstack([*blocks, bias])

    def gauge(self, x, smooth):
        """Omega and its gradient, with sqrt(. + smooth^2) in place of every norm of a group and kernel."""
        p, q, k = self.problem.p, self.problem.q, len(self.problem.features)
        squares = np.bincount(self.owner, self.weight * x**2, minlength=len(self.groups) * k).reshape(-1, k)
        theta = np.sqrt(squares + smooth**2)
        if not smooth:
            theta = np.maximum(theta, 1e-300)
        norms = (theta**p).sum(axis=1) ** (1 / p)
        nodes = (self.above.T @ norms**q) ** (1 / q)
        by_norm = norms ** (q - 1) * (self.above @ (self.d * nodes ** (1 - q)))
        by_theta = by_norm[:, None] * (theta / norms[:, None]) ** (p - 1)
        return self.d @ nodes, (by_theta / theta).ravel()[self.owner] * self.weight * x

    def value(self, z, smooth=0.0):
        cut = len(self.owner)
        omega, slope = self.gauge(z[:cut], smooth)
        loss, by_decision = loss_terms(self.problem, self.design @ z, smooth)
        gradient = self.design.T @ by_decision
        gradient[:cut] += omega * slope
        return 0.5 * omega**2 + loss.sum(), gradient

    def optimum(self, last=1e-5):
        """The least value that L-BFGS finds while the rounding of kinks goes to nothing: an upper bound, met to about 1e-5."""
        z, smooth, options = (
            np.zeros(self.design.shape[1]),
            1e-1,
            {"maxiter": 800, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30},
        )
        best = np.inf
        while smooth >= last:
            z = minimize(self.value, z, args=(smooth,), jac=True, method="L-BFGS-B", options=options).x
            best = min(best, self.value(z)[0])
            smooth *= 0.2
        return best, z
