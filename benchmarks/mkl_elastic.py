"""Elastic-net multiple kernel learning against a strong loop around SVC with the same master.

    python benchmarks/mkl_elastic.py                # n = 2,000, 200 kernels
    python benchmarks/mkl_elastic.py --size 1000 --kernels 105

Both sides get the same kernels in float32: packed triangles on ours, one (k, n, n) array on the other side; making them is timed on
neither. The peer's loop: SVC(kernel="precomputed") at its default tol 1e-3 on one vector-matrix product over all kernels, quadratic
forms by one matrix-vector product per kernel, then our own lower-bound program and projection with the same
level. Both stop at a relative gap of 1e-3 between the primal value and the lower bound. The accuracy of the machines is no question here.
"""

from __future__ import annotations

import _harness as bench  # isort: skip
from typing import Any

import numpy as np
from sklearn.svm import SVC

from gramplane.cluster import open_executor
from gramplane.kernels.domains import ElasticNetSet
from gramplane.kernels.gram import gram_block
from gramplane.kernels.solvers.duals import svc_problem
from gramplane.kernels.solvers.small_qp import Cuts, lower_bound, project_on_level
from gramplane.kernels.spec import KernelSpec
from gramplane.pipeline.loops.run import run_loop
from gramplane.pipeline.methods.gmkl import MKLLoop
from gramplane.pipeline.passes.given_grams import GivenGrams, GivenKernel
from gramplane.pipeline.records.config_kernels import MKLConfig
from gramplane.pipeline.records.context import RunContext

TOL, TAU, V, C = 1e-3, 0.3, 0.5, 1.0
MAX_ITER = 200


def rows(n: int, d: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Return normal features and a noisy function of five of them as classes."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, d))
    z = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] - 0.5 * X[:, 4] ** 2 + 0.5
    return X, np.where(z + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)


def bank(X: np.ndarray, k: int) -> np.ndarray:
    """Return k Gaussian kernels per feature and on all features, of unit variance in feature space, float32."""
    n, d = X.shape
    widths = np.geomspace(0.05, 10.0, -(-k // (d + 1)))
    specs = [
        KernelSpec("rbf", (("gamma", float(g) / (d if s is None else 1)),), s) for s in [None, *((j,) for j in range(d))] for g in widths
    ]
    found = np.empty((k, n, n), np.float32)
    for q, spec in enumerate(specs[:k]):
        gram = gram_block([spec], X, dtype=np.float32)[0]
        found[q] = gram / (np.trace(gram, dtype=np.float64) / n - gram.mean(dtype=np.float64))
    return found


def ours(ctx: RunContext, loop: MKLLoop) -> Any:
    """Run the whole search for weights on the bank that is there."""
    return run_loop(loop, ctx, keep=False).state.machines[0]


def peer(grams: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Run the strong loop; returns bounds, iterations."""
    k, n, _ = grams.shape
    domain, flat = ElasticNetSet(V), grams.reshape(k, -1)
    theta, upper, lower = domain.start(k), np.inf, -np.inf
    values, forms, mix, multipliers = [], [], None, None
    for _ in range(MAX_ITER):
        K = (theta.astype(np.float32) @ flat).reshape(n, n)
        machine = SVC(kernel="precomputed", C=C, cache_size=2000).fit(K, y)
        beta = np.zeros(n, np.float32)
        beta[machine.support_] = machine.dual_coef_[0]
        s = np.array([float(beta @ (grams[q] @ beta)) for q in range(k)])
        f = K @ beta + machine.intercept_[0]
        upper = min(upper, float(0.5 * s @ theta + C * np.maximum(0.0, 1.0 - y * f).sum()))
        values.append(float(np.abs(beta).sum()))
        forms.append(s)
        cuts = Cuts(np.array(values), np.array(forms))
        bound = lower_bound(cuts, domain, mix, tol=0.01 * TOL)
        lower, mix = max(lower, bound.value), bound.p
        if upper - lower <= TOL * upper:
            break
        level = max(lower + TAU * (upper - lower), cuts.height(bound.theta) * (1 + 1e-9))
        point = project_on_level(theta, cuts, level, domain, multipliers, inside=bound.theta)
        theta, multipliers = point.theta, point.rho
    return {"upper": upper, "lower": lower, "iterations": len(values)}


def main() -> None:
    """Print the table."""
    options = bench.arguments(__doc__ or "", size=2000, kernels=200).parse_args()
    n, k = (200, 20) if options.tiny else (options.size, options.kernels)
    X, y = rows(n)
    grams = bank(X, k)
    report = bench.Report(f"elastic-net MKL, n={n}, {k} kernels, v={V}, C={C}, gap {TOL}", options)
    config = MKLConfig(kernels="precomputed", v=V, C=C, tau=TAU, tol=TOL, normalize="none")
    data = GivenGrams.__new__(GivenGrams)
    # The look at eigenvalues is no part of the comparison.
    data.source, data.k, data.n_rows, data.n_cols, data.digest = grams, k, n, n, ""
    with open_executor(None) as executor:
        ctx = RunContext(executor, data, driver_memory=64 << 30)  # pyright: ignore[reportArgumentType]
        loop = MKLLoop(config, [GivenKernel(q) for q in range(k)], [svc_problem(y, C)])
        loop.grams(ctx)
        times = bench.alternate({"ours": lambda: ours(ctx, loop), "peer": lambda: peer(grams, y)}, options.reps)
    found, other = times["ours"].result, times["peer"].result
    report.ratio("ours : strong loop around SVC", times["ours"], times["peer"], 1 / 4)
    report.value("ours, relative gap", found.relative_gap, f"<= {TOL}")
    report.value("strong loop, relative gap", (other["upper"] - other["lower"]) / other["upper"])
    report.value("ours, weight vectors tried", len(found.cut_values))
    report.value("strong loop, weight vectors tried", other["iterations"])
    report.value("upper bounds, relative difference", abs(found.upper - other["upper"]) / other["upper"], f"<= {2 * TOL}")
    report.show()


if __name__ == "__main__":
    main()
