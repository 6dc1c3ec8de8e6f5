"""Passes over a bank of Gram matrices in memory: what one outer step of multiple kernel learning and one alignment matrix cost.

Run with ``python -m benchmarks.kernels.gram_bank``. Packed float32 triangles against BLAS on the whole matrices in float32 (vector-matrix
product for the combination, matrix-vector products for the quadratic forms) and, for the inner products of all pairs of kernels,
against the usual double loop over pairs of whole matrices, timed on some pairs and scaled up; loops over half of the pairs are beside it.
The lower bound and the projection of the level method are timed on cuts of the same bank.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import numpy as np

from gramplane.kernels.bank.bank import PackedBank
from gramplane.kernels.weights.domains import ElasticNetSet
from gramplane.kernels.weights.level_programs import Cuts, lower_bound, project_on_level


def filled(k: int, n: int, seed: int) -> PackedBank:
    """Return k Gaussian kernels of n random rows, one feature each."""
    X = np.random.default_rng(seed).normal(size=(n, k)).astype(np.float32)
    bank = PackedBank.empty(k, n)
    for q in range(k):
        bank.put(q, 0, 0, np.exp(-0.5 * np.square(X[:, None, q] - X[None, :, q])))
    return bank


def unpacked(bank: PackedBank, count: int) -> np.ndarray:
    """Return the first whole matrices, float32."""
    return np.stack([bank.combine(np.eye(1, bank.k, q)[0]) for q in range(count)])


def passes(report: bench.Report, options) -> None:
    """Combination, forms and products."""
    rng, bank = np.random.default_rng(1), filled(options.kernels, options.n, 0)
    full, out = unpacked(bank, bank.k), np.empty((bank.n, bank.n), dtype=np.float32)
    theta = rng.uniform(0.1, 1.0, size=bank.k)
    beta = rng.normal(size=bank.n) * (rng.uniform(size=bank.n) < options.support)
    several = np.stack([rng.permutation(beta) for _ in range(8)], axis=1)
    single, narrow, support = theta.astype(np.float32), beta.astype(np.float32), beta != 0

    def repeated(call):
        return lambda: [call() for _ in range(options.batch)][-1]

    calls = {
        "combine, packed": lambda: bank.combine(theta, out),
        "combine, BLAS": lambda: single @ full.reshape(bank.k, -1),
        "forms, packed": lambda: bank.forms(beta),
        "forms, BLAS": lambda: (full @ narrow) @ narrow,
        "forms of 8 vectors, packed": lambda: bank.forms(several),
        "products, packed": lambda: bank.products(beta),
        "products at the support": lambda: bank.products(beta, wanted=support),
    }
    times = bench.alternate({name: repeated(call) for name, call in calls.items()}, options.reps)
    for name, timing in times.items():
        timing.wall, timing.cpu = ([seconds / options.batch for seconds in kind] for kind in (timing.wall, timing.cpu))
        report.time(name, timing)
    report.ratio("combine, packed : BLAS", times["combine, packed"], times["combine, BLAS"], None)
    report.ratio("forms, packed : BLAS", times["forms, packed"], times["forms, BLAS"], None)
    report.value("combine reads", bank.nbytes / times["combine, packed"].median / 1e9, unit=" GB/s")
    exact = np.array([beta @ (matrix.astype(np.float64) @ beta) for matrix in full])
    report.value("largest relative error of a form", float(np.max(np.abs(bank.forms(beta) / exact - 1.0))), "<= 1e-10")


def inner(report: bench.Report, options) -> None:
    """All inner products against loops over pairs."""
    bank = filled(options.many, options.rows, 2)
    some = unpacked(bank, min(options.loop, bank.k))
    wide = some.astype(np.float64)
    times = bench.alternate(
        {
            "inner products of all pairs": bank.inner_products,
            "double loop, dot products in float64": lambda: [np.vdot(a, b) for a in wide for b in wide],
            "loop over half of the pairs, the same": lambda: [np.vdot(a, b) for i, a in enumerate(wide) for b in wide[i:]],
            "loop over half of the pairs, float32": lambda: [np.vdot(a, b) for i, a in enumerate(some) for b in some[i:]],
        },
        options.reps,
    )
    ours, double, half, narrow = times.values()
    k, few = bank.k, len(some)
    for loop, share in ((double, (k / few) ** 2), (half, k * (k + 1) / (few * (few + 1))), (narrow, k * (k + 1) / (few * (few + 1)))):
        loop.wall, loop.cpu = ([seconds * share for seconds in kind] for kind in (loop.wall, loop.cpu))
    for name, timing in times.items():
        report.time(name, timing)
    report.ratio("inner products : double loop", ours, double, 1 / 20)
    report.ratio("inner products : loop over half of the pairs", ours, half, None)
    report.ratio("inner products : loop over half of the pairs, float32", ours, narrow, None)
    report.note(f"{k} kernels of order {bank.n}; the loops run over {few} of them and are scaled to all pairs; float32 sums in float32")


def masters(report: bench.Report, options) -> None:
    """Lower bound and projection with as many cuts as a run makes."""
    rng, bank, cuts = np.random.default_rng(3), filled(options.kernels, 256, 4), options.cuts
    y = np.sign(rng.normal(size=bank.n))
    c, S = np.empty(cuts), np.empty((cuts, bank.k))
    for t in range(cuts):
        theta = rng.dirichlet(np.full(bank.k, 0.3))
        alpha = np.linalg.solve(bank.combine(theta).astype(np.float64) + np.eye(bank.n), y)
        c[t], S[t] = alpha @ y - 0.5 * alpha @ alpha, bank.forms(alpha)
    made, domain = Cuts(c, S), ElasticNetSet(0.5)
    theta = domain.start(bank.k)
    low = lower_bound(made, domain)
    level = low.value + 0.3 * (made.height(theta) - low.value)
    times = bench.alternate(
        {
            "lower bound, v = 0.5": lambda: lower_bound(made, domain, tol=1e-5),
            "lower bound, v = 1 (linear program)": lambda: lower_bound(made, ElasticNetSet(1.0)),
            "projection onto the level, v = 0.5": lambda: project_on_level(theta, made, level, domain, inside=low.theta),
        },
        options.reps,
    )
    for name, timing in times.items():
        report.time(name, timing)
    report.note(f"{cuts} cuts of {bank.k} kernels, cold starts")


def main() -> None:
    defaults = {"n": 1024, "kernels": 64, "support": 0.4, "many": 500, "rows": 1000, "loop": 24, "cuts": 20, "batch": 5}
    options = bench.arguments(__doc__, **defaults).parse_args()
    if options.tiny:
        options.n, options.kernels, options.many, options.rows, options.loop, options.cuts = 200, 6, 10, 150, 4, 4
        options.reps, options.batch = 2, 1
    report = bench.Report(f"{options.kernels} Gram matrices of order {options.n}, float32, {options.support:.0%} support vectors", options)
    passes(report, options)
    inner(report, options)
    masters(report, options)
    report.show()


if __name__ == "__main__":
    main()
