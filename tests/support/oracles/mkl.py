"""Slow, obvious twins of generalized multiple kernel learning: primal and dual written out for a general-purpose solver.

Nothing here uses the closed forms of the product: the primal works on explicit features, the dual on a scalar epigraph.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize


@dataclass
class Problem:
    """N rows, Q kernels K_q = F_q F_q' of low rank with trace N, labels (or numbers, of the squared loss), loss weight C, balance v."""

    features: list
    y: np.ndarray
    C: float
    v: float

    @property
    def grams(self):
        return np.array([F @ F.T for F in self.features])


def random_problem(seed, N=14, Q=6, rank=4, C=1.0, v=0.5):
    rng = np.random.default_rng(seed)
    features = [rng.normal(size=(N, rank)) for _ in range(Q)]
    features = [F * np.sqrt(N / np.sum(F * F)) for F in features]
    y = np.where(np.arange(N) % 2 == 0, 1.0, -1.0)
    return Problem(features, y, C, v)


def options(steps=3000):
    return {"maxiter": steps, "ftol": 1e-15}


def primal_optimum(problem):
    """min C sum [1 - y (sum_q F_q u_q + b)]_+ + 1/2 sum ||u_q||^2 / theta_q over u, b, theta in Theta, by SLSQP. Value and theta."""
    y, C, v, features = problem.y, problem.C, problem.v, problem.features
    Q, N, rank = len(features), len(y), features[0].shape[1]
    wide = np.hstack(features)
    cut = Q * rank

    def split(x):
        return x[:cut], x[cut], x[cut + 1 : cut + 1 + Q], x[cut + 1 + Q :]

    def value(x):
        u, _, theta, slack = split(x)
        return C * slack.sum() + 0.5 * np.sum(np.square(u.reshape(Q, rank)).sum(axis=1) / theta)

    def gradient(x):
        u, _, theta, _ = split(x)
        norms = np.square(u.reshape(Q, rank)).sum(axis=1)
        return np.concatenate([u / np.repeat(theta, rank), [0.0], -0.5 * norms / theta**2, np.full(N, C)])

    margins = np.hstack([y[:, None] * wide, y[:, None], np.zeros((N, Q)), np.eye(N)])
    constraints = [
        {"type": "ineq", "fun": lambda x: margins @ x - 1, "jac": lambda x: margins},
        {
            "type": "ineq",
            "fun": lambda x: 1 - v * split(x)[2].sum() - (1 - v) * np.sum(split(x)[2] ** 2),
            "jac": lambda x: np.concatenate([np.zeros(cut + 1), -v - 2 * (1 - v) * split(x)[2], np.zeros(N)]),
        },
    ]
    bounds = [(None, None)] * (cut + 1) + [(1e-9, 1)] * Q + [(0, None)] * N
    first = np.concatenate([np.zeros(cut + 1), np.full(Q, 0.5 / Q), np.ones(N)])
    found = minimize(value, first, jac=gradient, bounds=bounds, constraints=constraints, method="SLSQP", options=options())
    return found.fun, split(found.x)[2]


def dual_optimum(problem):
    """max 1'alpha - 1/2 sigma(s(alpha)).

    sigma is the least mu + sum [s_q - mu v]_+^2 / (4 (1 - v) mu), or max s for v = 1. Returns value and alpha.
    """
    y, C, v = problem.y, problem.C, problem.v
    N = len(y)
    signed = problem.grams * np.outer(y, y)
    balance = {"type": "eq", "fun": lambda x: x[:N] @ y, "jac": lambda x: np.append(y, 0.0)}

    def forms(x):
        return np.einsum("i,qij,j->q", x[:N], signed, x[:N]), 2 * signed @ x[:N]

    def smooth(x):
        s, slopes = forms(x)
        mu, over = x[N], np.maximum(s - x[N] * v, 0)
        rest = 4 * (1 - v) * mu
        value = mu + np.sum(over**2) / rest
        by_mu = 1 - np.sum(2 * v * over) / rest - np.sum(over**2) / (rest * mu)
        return 0.5 * value - x[:N].sum(), np.append(0.5 * (2 * over / rest) @ slopes - 1, 0.5 * by_mu)

    def linear(x):
        return 0.5 * x[N] - x[:N].sum(), np.append(-np.ones(N), 0.5)

    epigraph = {"type": "ineq", "fun": lambda x: x[N] - forms(x)[0], "jac": lambda x: np.hstack([-forms(x)[1], np.ones((len(signed), 1))])}
    first = np.append(np.full(N, 0.5 * C), 1.0)
    first[N] = forms(first)[0].max()
    found = minimize(
        linear if v == 1 else smooth,
        first,
        jac=True,
        bounds=[(0, C)] * N + [(1e-9, None)],
        constraints=[balance, epigraph] if v == 1 else [balance],
        method="SLSQP",
        options=options(),
    )
    return -found.fun, found.x[:N]


def utility(problem, loss, a):
    """What the dual of a loss has beside the kernels, U(alpha), and its slopes; for the squared loss alpha is beta."""
    y, C = problem.y, problem.C
    match loss:
        case "hinge":
            return a.sum(), np.ones(len(a))
        case "squared_hinge":
            return a.sum() - a @ a / (2 * C), 1 - a / C
        case "logistic":
            share = a / C
            return -C * np.sum(share * np.log(share) + (1 - share) * np.log(1 - share)), np.log((1 - share) / share)
        case "squared":
            return y @ a - a @ a / (4 * C), y - a / (2 * C)


def primal_value(problem, loss, theta, beta, bias):
    """The primal value at given weights and coefficients, written out."""
    y, K = problem.y, np.tensordot(theta, problem.grams, 1)
    f = K @ beta + bias
    each = {
        "hinge": lambda: np.maximum(0, 1 - y * f),
        "squared_hinge": lambda: 0.5 * np.maximum(0, 1 - y * f) ** 2,
        "logistic": lambda: np.log1p(np.exp(-y * f)),
        "squared": lambda: (y - f) ** 2,
    }
    return 0.5 * beta @ K @ beta + problem.C * each[loss]().sum()


def machine(problem, theta, loss="hinge"):
    """max over alpha of D(theta, alpha), by SLSQP. Value, alpha and the quadratic forms s(alpha)."""
    C, signs = problem.C, np.ones(len(problem.y)) if loss == "squared" else problem.y
    least, most = {"logistic": (1e-9 * C, C * (1 - 1e-9)), "squared_hinge": (0, None), "squared": (None, None)}.get(loss, (0, C))
    signed = problem.grams * np.outer(signs, signs)
    K = np.tensordot(theta, signed, 1)
    balance = {"type": "eq", "fun": lambda a: a @ signs, "jac": lambda a: signs}

    def value(a):
        gain, slope = utility(problem, loss, a)
        return 0.5 * a @ K @ a - gain, K @ a - slope

    found = minimize(
        value,
        np.full(len(signs), 0.0 if loss == "squared" else 0.5 * C),
        jac=True,
        bounds=[(least, most)] * len(signs),
        constraints=[balance],
        method="SLSQP",
        options=options(),
    )
    alpha = np.clip(found.x, least, most)
    return -found.fun, alpha, np.einsum("i,qij,j->q", alpha, signed, alpha)


def weights_optimum(problem, inside, loss="hinge"):
    """min over the set of J(theta), by SLSQP on values and gradients of `machine`; ``inside`` is the set's constraint. Value and theta."""

    def value(theta):
        found, _, s = machine(problem, theta, loss)
        return found, -0.5 * s

    n = len(problem.features)
    found = minimize(
        value,
        np.full(n, 0.3 / n),
        jac=True,
        bounds=[(0, 1)] * n,
        constraints=[{"type": "ineq", "fun": inside}],
        method="SLSQP",
        options={"maxiter": 60, "ftol": 1e-9},
    )
    return found.fun, found.x


def lowest_height(c, S, inside, n):
    """min over the set of max_i c_i - 1/2 <s^i, theta>, by SLSQP with an epigraph variable; ``inside`` is the set's constraint."""
    cuts = {"type": "ineq", "fun": lambda x: x[n] - c + 0.5 * S @ x[:n], "jac": lambda x: np.hstack([0.5 * S, np.ones((len(c), 1))])}
    within = {"type": "ineq", "fun": lambda x: inside(x[:n])}
    first = np.append(np.full(n, 0.3 / n), c.max())
    bounds = [(0, 1)] * n + [(None, None)]
    found = minimize(lambda x: x[n], first, bounds=bounds, constraints=[cuts, within], method="SLSQP", options=options())
    return found.fun, found.x[:n]


def level_projection(theta0, c, S, level, inside, first):
    """min ||theta - theta0||^2 over the set with every cut at most the level, by SLSQP."""
    n = len(theta0)
    cuts = {"type": "ineq", "fun": lambda x: level - c + 0.5 * S @ x, "jac": lambda x: 0.5 * S}
    within = {"type": "ineq", "fun": inside}
    found = minimize(
        lambda x: (0.5 * np.sum((x - theta0) ** 2), x - theta0),
        first,
        jac=True,
        bounds=[(0, 1)] * n,
        constraints=[cuts, within],
        method="SLSQP",
        options=options(),
    )
    return found.x
