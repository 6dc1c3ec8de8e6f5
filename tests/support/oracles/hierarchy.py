"""Gauges over graphs of kernels by their definitions, and their dual by a general-purpose solver."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.optimize import minimize

from gramplane.kernels.graphs.norms import Hull, descendant_norms


def subsets(p, depth=None):
    """Names of the subsets of p things, by size."""
    return [names for size in range((p if depth is None else depth) + 1) for names in combinations(range(p), size)]


def lattice(p, a=2.0, depth=None, empty=True):
    """The hull of all subsets of p things, penalties a^size."""
    names = [one for one in subsets(p, depth) if empty or one]
    place = {name: at for at, name in enumerate(names)}
    parents = [[place[one[:j] + one[j + 1 :]] for j in range(len(one)) if one[:j] + one[j + 1 :] in place] for one in names]
    return Hull().joined([a ** len(one) for one in names], parents)


def random_graph(rng, n, degree=1.0):
    """A hull of n nodes whose edges go up, and random penalties."""
    parents = [list(np.flatnonzero(rng.random(w) < degree / (w + 1))) for w in range(n)]
    return Hull().joined(rng.uniform(0.5, 3.0, n), parents)


def gauge_gradient(hull, norms, rho):
    """The derivative of 1/2 Omega^2 by the norms, (W,): Omega norms_w^(rho - 1) sum over v in A(w) of d_v n_v^(1 - rho)."""
    sizes = descendant_norms(hull, norms, rho)
    slopes = np.where(sizes > 0, hull.d * np.where(sizes > 0, sizes, 1.0) ** (1.0 - rho), 0.0)
    return float(hull.d @ sizes) * norms ** (rho - 1.0) * hull.ancestor_sums(slopes)


def descendant_form(hull, u, forms):
    """Sum over w in D(u) of M_w / (sum over v in A(w) and D(u) of d_v)^2.

    With u the nodes outside W whose parents are all in W, the greatest one and the squared dual gauge over W bound the squared dual gauge
    over the whole graph (Theorem 5.3.2); here for a hull that is the whole graph. It is far above what is needed where nodes have many
    descendants.
    """
    below = hull.descendants(u)
    inside = np.zeros(hull.size)
    inside[below] = hull.d[below]
    return float(np.sum(forms[below] / hull.ancestor_sums(inside)[below] ** 2))


def outside_bound(forms, d):
    """The greatest M_w / d_w^2 of some nodes, 0 for none.

    Over *all* nodes outside W it and the squared dual gauge over W bound the squared dual gauge over the whole graph: in the proof of
    Theorem 5.3.2 the shares kappa of such a node may all be put on itself. For a node whose ancestors are all in W it also decides, for
    rho > 1, whether the node alone lowers the optimum: exactly if it is above the squared gauge.
    """
    return float(np.max(forms / (d * d), initial=0.0))


def pairs(hull):
    """The matrix of ancestors, (W, W): row w has ones at A(w)."""
    found = np.zeros((hull.size, hull.size))
    for w in range(hull.size):
        found[w, hull.ancestors(w)] = 1.0
    return found


def omega(hull, norms, rho):
    """The gauge, term by term."""
    above = pairs(hull)
    return sum(hull.d[v] * sum(norms[w] ** rho for w in range(hull.size) if above[w, v]) ** (1 / rho) for v in range(hull.size))


def psi(hull, eta, forms, rho):
    """psi and zeta, term by term."""
    zeta = (pairs(hull) @ (hull.d**rho * eta ** (1 - rho))) ** (1 / (1 - rho))
    return float(np.sum(zeta * forms ** (rho / (2 * (rho - 1))))), zeta


def squared_dual_gauge(hull, forms, rho):
    """max over Q of 2 sum_w Q_w sqrt(M_w) - Omega(Q)^2, by L-BFGS on logarithms from several starts."""
    root = np.sqrt(forms / forms.max())

    def value(logs):
        norms = np.exp(logs)
        return omega(hull, norms, rho) ** 2 - 2 * norms @ root

    rng = np.random.default_rng(0)
    starts = [rng.normal(-2, 0.5, hull.size) for _ in range(2)]
    bounds = [(-30, 10)] * hull.size
    found = [minimize(value, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 3000, "maxfun": 10**6}) for start in starts]
    return -min(one.fun for one in found) * forms.max()


def primal_optimum(hull, grams, y, rho, C, loss):
    """min 1/2 Omega^2 + C sum loss over functions ``f_w = L_w g_w`` with ``K_w = L_w L_w'`` and a bias, by L-BFGS; squared losses.

    Parameters
    ----------
    hull, rho
        Graph and exponent.
    grams
        ``(W, n, n)``.
    y
        Labels -1 and +1 for ``"squared_hinge"``, targets for ``"squared"``.
    """
    count, n = len(grams), len(y)
    values, vectors = zip(*(np.linalg.eigh(gram) for gram in grams), strict=True)
    maps = np.stack([v * np.sqrt(np.maximum(s, 0.0)) for s, v in zip(values, vectors, strict=True)])
    above = pairs(hull)

    def value(x):
        g, bias = x[:-1].reshape(count, n), x[-1]
        norms = np.sqrt((g**2).sum(axis=1) + 1e-14)
        sizes = (above.T @ norms**rho) ** (1 / rho)
        total = hull.d @ sizes
        slopes = total * (above @ (hull.d * sizes ** (1 - rho))) * norms ** (rho - 2)
        decision = np.einsum("wij,wj->i", maps, g) + bias
        rest = y - decision if loss == "squared" else np.maximum(1 - y * decision, 0.0)
        back = -2 * C * (rest if loss == "squared" else y * rest)
        gradient = slopes[:, None] * g + np.einsum("wij,i->wj", maps, back)
        return 0.5 * total**2 + C * rest @ rest, np.append(gradient.ravel(), back.sum())

    x = np.random.default_rng(0).normal(0, 0.01, count * n + 1)
    options = {"maxiter": 1500, "maxfun": 3000, "ftol": 1e-12, "gtol": 1e-7, "maxcor": 30}
    return float(minimize(value, x, jac=True, method="L-BFGS-B", options=options).fun)
