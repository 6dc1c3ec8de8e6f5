"""Slow, obvious twins of MK-MTFL: primal on explicit features and dual on an epigraph, for general-purpose solvers."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize


@dataclass
class TaskProblem:
    """T tasks on k kernels of low rank: features ``[task][kernel] (m_t, r)``, targets ``[task] (m_t,)``."""

    features: list
    targets: list
    C: float

    def gram(self, j, t):
        return self.features[t][j] @ self.features[t][j].T

    @property
    def k(self):
        return len(self.features[0])

    @property
    def T(self):
        return len(self.targets)

    def stack(self):
        """Kernels (k, n, n) over all rows, task names and targets; entries between tasks are what rows of one space give."""
        rows = [np.vstack([self.features[t][j] for t in range(self.T)]) for j in range(self.k)]
        tasks = np.repeat(np.arange(self.T), [len(y) for y in self.targets])
        return np.stack([F @ F.T for F in rows]), tasks, np.concatenate(self.targets)


def random_problem(seed, T=3, m=7, k=3, rank=3, C=1.0, classes=True):
    rng = np.random.default_rng(seed)
    features = [[rng.normal(size=(m + t, rank)) / np.sqrt(rank) for _ in range(k)] for t in range(T)]
    targets = []
    for t in range(T):
        raw = features[t][0][:, 0] + 0.5 * features[t][1][:, 0] + 0.3 * rng.normal(size=m + t)
        targets.append(np.where(raw > np.median(raw), 1.0, -1.0) if classes else raw)
    return TaskProblem(features, targets, C)


def dual_optimum(problem, p, q):
    """Max over alpha of ``1'alpha - 1/2 ||c(alpha)||_{q / (2 (q - 1))}`` by SLSQP; for q = 1 the greatest c_j bounds an extra variable."""
    bar = p / (2 * (p - 1))
    sizes = [len(y) for y in problem.targets]
    cuts = np.concatenate([[0], np.cumsum(sizes)])
    n = cuts[-1]
    signed = [[problem.targets[t][:, None] * problem.gram(j, t) * problem.targets[t] for t in range(problem.T)] for j in range(problem.k)]

    def strengths(a):
        forms = np.array([[a[cuts[t] : cuts[t + 1]] @ K @ a[cuts[t] : cuts[t + 1]] for t, K in enumerate(row)] for row in signed])
        return np.sum(np.maximum(forms, 1e-14) ** bar, axis=1) ** (1 / bar)

    equal = [{"type": "eq", "fun": lambda x, t=t: problem.targets[t] @ x[cuts[t] : cuts[t + 1]]} for t in range(problem.T)]
    start = np.concatenate([np.where(y > 0, np.sum(y < 0), np.sum(y > 0)) for y in problem.targets]).astype(float)
    start *= 0.1 * problem.C / start.max()
    if q == 1:
        ends = [{"type": "ineq", "fun": lambda x: x[n] - strengths(x[:n])}]
        found = minimize(
            lambda x: 0.5 * x[n] - x[:n].sum(), np.append(start, strengths(start).max()), method="SLSQP",
            bounds=[(0, problem.C)] * n + [(0, None)], constraints=equal + ends, options={"maxiter": 500, "ftol": 1e-12},
        )  # fmt: skip
    else:
        qbar = q / (2 * (q - 1))
        found = minimize(
            lambda x: 0.5 * np.sum(strengths(x) ** qbar) ** (1 / qbar) - x.sum(), start, method="SLSQP",
            bounds=[(0, problem.C)] * n, constraints=equal, options={"maxiter": 500, "ftol": 1e-12},
        )  # fmt: skip
    return -found.fun


def primal_optimum(problem, p, q):
    """Min over explicit weights and biases of ``1/2 Omega^2 + C sum (y - F)^2`` by BFGS on norms rounded at 1e-8."""
    shape = (problem.T, problem.k, problem.features[0][0].shape[1])

    def value(x):
        W, b = x[: np.prod(shape)].reshape(shape), x[np.prod(shape) :]
        norms = np.sqrt(np.sum(W**2, axis=2) + 1e-16)
        omega = np.sum(np.sum(norms**p, axis=0) ** (q / p)) ** (1 / q)
        loss = 0.0
        for t, y in enumerate(problem.targets):
            loss += np.sum((y - sum(F @ w for F, w in zip(problem.features[t], W[t], strict=True)) - b[t]) ** 2)
        return 0.5 * omega**2 + problem.C * loss

    start = np.random.default_rng(0).normal(size=np.prod(shape) + problem.T) * 0.1
    return minimize(value, start, method="BFGS", options={"gtol": 1e-6, "maxiter": 800}).fun


def few_rows(seed, sizes=None):
    """Tasks that differ in place with few rows each, kernels of single columns and of all (the setting of Jawanpuria's Table 4.2).

    Returns the kernels' features ``[(n, r)]``, whose traces are n, targets of deviation one, tasks, and the kernels of the columns.
    """
    rng = np.random.default_rng(seed)
    T, n, d = sizes or (int(rng.integers(4, 16)), int(rng.integers(3, 8)), int(rng.integers(3, 9)))
    task, base = np.repeat(np.arange(T), n), rng.normal(size=(T, d))
    X = base[task] * 2 + 0.3 * rng.normal(size=(T * n, d))
    y = 3 * base[task, 0] + 10 + rng.normal(size=T * n) * 0.5
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    features = [part * np.sqrt(len(X) / np.sum(part**2)) for part in (*(X[:, [j]] for j in range(d)), X)]
    return features, (y - y.mean()) / y.std(), task, [*(f"linear[{j}]" for j in range(d)), "linear"]


def tube_value(features, y, task, parts, biases, C, p, q, epsilon=0.1):
    """Primal value ``1/2 Omega^2 + C sum max(0, |y - F| - epsilon)`` of explicit weights ``parts`` ``[kernel] (T, r)``."""
    F = biases[task] + sum(np.sum(Z * W[task], axis=1) for Z, W in zip(features, parts, strict=True))
    norms = np.stack([np.linalg.norm(W, axis=1) for W in parts])
    omega = np.sum(np.sum(norms**p, axis=1) ** (q / p)) ** (1 / q)
    return 0.5 * omega**2 + C * np.sum(np.maximum(np.abs(y - F) - epsilon, 0.0))


def tube_optimum(features, y, task, C, p, q, epsilon=0.1):
    """Least primal value over explicit weights and biases that L-BFGS finds for losses and norms rounded less and less: near the optimum,
    never below it.
    """
    Z, T = np.hstack(features), task.max() + 1
    kernel = np.repeat(np.arange(len(features)), [part.shape[1] for part in features])
    starts, D = np.flatnonzero(np.diff(kernel, prepend=-1)), Z.shape[1]

    def value(x, width):
        W, b = x[: T * D].reshape(T, D), x[T * D :]
        squares = np.add.reduceat(W**2, starts, axis=1) + (0.01 * width) ** 2
        over_tasks = np.sum(squares ** (p / 2), axis=0)
        omega2 = np.sum(over_tasks ** (q / p)) ** (2 / q)
        slopes = omega2 ** (1 - q / 2) * over_tasks ** (q / p - 1) * squares ** (p / 2 - 1)
        rest = y - np.sum(Z * W[task], axis=1) - b[task]
        over = np.maximum(np.abs(rest) - epsilon, 0.0)
        loss = np.where(over < width, over**2 / (2 * width), over - width / 2)
        pull = -C * np.minimum(over / width, 1.0) * np.sign(rest)
        into = np.stack([pull[task == t] @ Z[task == t] for t in range(T)])
        gradient = np.concatenate([(slopes[:, kernel] * W + into).ravel(), np.bincount(task, pull, T)])
        return 0.5 * omega2 + C * np.sum(loss), gradient

    x = np.random.default_rng(0).normal(size=T * D + T) * 0.1
    for width in 10.0 ** -np.arange(2, 6.5, 1.5):
        options = {"maxiter": 20000, "maxfun": 40000, "maxcor": 50, "ftol": 1e-12, "gtol": 1e-6}
        x = minimize(value, x, args=(width,), jac=True, method="L-BFGS-B", options=options).x
    W = x[: T * D].reshape(T, D)
    return tube_value(features, y, task, [W[:, kernel == j] for j in range(len(features))], x[T * D :], C, p, q, epsilon)
