"""Kernel duals in memory against scikit-learn on the same Gram matrix: cold solves, loops of re-weighted solves, regression, ridge.

    python -m benchmarks.kernels.svm_dual                   # n = 500, 1,000, 3,000
    python -m benchmarks.kernels.svm_dual --sizes 500,1000

C is scikit-learn's. A cold solve starts from zero on a whole matrix; SVC and SVR get it in float64, ours in float64 and float32. A loop
solves 15 problems whose six kernel weights change by 30 % / (t + 1): first at tol 1e-3, then at the tolerances of a multiple kernel
learning run, .1 first and min(.1, max(1e-3, .3 gap)) after, with a gap that halves at every step standing in for the outer run; SVC stays
at 1e-3. Combining kernels is timed on neither side; the start gradient of a warm solve is. Dual values are all taken on the float64
matrix. A solve of few milliseconds is repeated; medians are per solve or per loop.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC, SVR

from gramplane.kernels.svm.dual import DenseGram, DualSolution, Scratch, ridge_problem, svc_problem, svr_problem
from gramplane.kernels.svm.ridge import RidgeSolver
from gramplane.kernels.svm.smo import solve_smo

EPSILON = 0.1
COLD = {1.0: 1 / 3, 10.0: 1 / 3, 100.0: 1 / 2}
"""Targets of a cold solve by C."""


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Twenty normal features and a smooth function of five of them with noise."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 20))
    z = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] - 0.5 * X[:, 4] ** 2 + 0.5
    return X, z + 0.5 * rng.normal(size=n)


def gaussian(X: np.ndarray, gamma: float) -> np.ndarray:
    norms = np.einsum("ij,ij->i", X, X)
    K = np.exp(-gamma * np.maximum(norms[:, None] + norms - 2 * X @ X.T, 0.0))
    np.fill_diagonal(K, 1.0)
    return (K + K.T) / 2


def reweighted(X: np.ndarray, steps: int) -> list[np.ndarray]:
    """The combined matrices of a loop."""
    rng = np.random.default_rng(0)
    kernels = [gaussian(X, gamma) for gamma in (0.02, 0.05, 0.1)] + [gaussian(X[:, q : q + 2], 0.5) for q in (0, 2, 4)]
    weights, found = np.full(6, 1 / 6), []
    for t in range(steps):
        found.append(sum(w * K for w, K in zip(weights, kernels)))
        weights = weights * (1 + 0.3 / (t + 1) * rng.uniform(-1, 1, 6))
        weights /= weights.sum()
    return found


def dual_of(found: Any, K: np.ndarray, c: np.ndarray, epsilon: float = 0.0) -> float:
    """The dual value of a solution of ours or a fitted SVC or SVR on the float64 matrix."""
    beta = np.zeros(len(K))
    if isinstance(found, DualSolution):
        beta[:] = found.beta
    else:
        beta[found.support_] = found.dual_coef_[0]
    return float(c @ beta - epsilon * np.abs(beta).sum() - 0.5 * beta @ K @ beta)


def our_loop(grams: list[np.ndarray], problem: Any, scratch: Scratch, scheduled: bool, keep: list[DualSolution]) -> None:
    """Warm solves one after another; `keep` receives them."""
    keep.clear()
    warm = None
    for t, K in enumerate(grams):
        tol = 0.1 if scheduled and t == 0 else min(0.1, max(1e-3, 0.3 * 0.5**t)) if scheduled else 1e-3
        warm = solve_smo(DenseGram(K, scratch), problem, warm=warm, tol=tol)
        keep.append(warm)


def timed(report: bench.Report, title: str, calls: dict[str, Callable[[], Any]], reps: int, batch: int, target: float) -> dict[str, Any]:
    """Alternate, put times and ratios to the first call into the report, return the last results."""
    repeated = {name: lambda call=call: [call() for _ in range(batch)][-1] for name, call in calls.items()}
    times = bench.alternate(repeated, reps)
    for name, timing in times.items():
        timing.wall, timing.cpu = ([seconds / batch for seconds in kind] for kind in (timing.wall, timing.cpu))
        report.time(f"{title}, {name}", timing)
    first = next(iter(times.values()))
    for name, timing in list(times.items())[1:]:
        report.ratio(f"{title}, {name} : peer", timing, first, target)
    return {name: timing.result for name, timing in times.items()}


def cold(report: bench.Report, n: int, K: np.ndarray, z: np.ndarray, reps: int) -> None:
    y, scratch = np.where(z > 0, 1.0, -1.0), Scratch()
    grams = {"float64": DenseGram(K, scratch), "float32": DenseGram(K.astype(np.float32), Scratch())}
    for C, target in COLD.items():
        calls: dict[str, Callable[[], Any]] = {"SVC": lambda C=C: SVC(kernel="precomputed", C=C, tol=1e-3, cache_size=2000).fit(K, y)}
        calls |= {name: lambda g=g, C=C: solve_smo(g, svc_problem(y, C)) for name, g in grams.items()}
        found = timed(report, f"cold n={n} C={C:g}", calls, reps, max(1, 1000 // n), target)
        compare(report, f"cold n={n} C={C:g}", found, K, y)


def compare(report: bench.Report, title: str, found: dict[str, Any], K: np.ndarray, c: np.ndarray, epsilon: float = 0.0) -> None:
    """Put the relative differences of the dual values into the report; worse than the peer is positive."""
    first, *rest = ((name, dual_of(result, K, c, epsilon)) for name, result in found.items())
    for name, value in rest:
        report.value(f"{title}, {name}: peer's dual - ours, relative", (first[1] - value) / abs(first[1]), "<= 1e-07")


def loops(report: bench.Report, n: int, X: np.ndarray, z: np.ndarray, steps: int, reps: int) -> None:
    y, scratch = np.where(z > 0, 1.0, -1.0), Scratch()
    doubles = reweighted(X, steps)
    floats = [K.astype(np.float32) for K in doubles]
    for C in (1.0, 10.0):
        problem, kept = svc_problem(y, C), {name: [] for name in ("1e-3", "schedule")}

        def peer(C: float = C) -> list[SVC]:
            return [SVC(kernel="precomputed", C=C, tol=1e-3, cache_size=2000).fit(K, y) for K in doubles]

        title = f"{steps} solves n={n} C={C:g}"
        calls: dict[str, Callable[[], Any]] = {
            "SVC cold each": peer,
            "warm float32, tol 1e-3": lambda p=problem, k=kept: our_loop(floats, p, scratch, False, k["1e-3"]),
        }
        found = timed(report, title, calls, reps, 1, 1 / 6)
        scheduled: dict[str, Callable[[], Any]] = {
            "SVC cold each (again)": peer,
            "warm float32, schedule": lambda p=problem, k=kept: our_loop(floats, p, scratch, True, k["schedule"]),
        }
        timed(report, title, scheduled, reps, 1, 1 / 10)
        pairs = [(dual_of(m, K, y), dual_of(s, K, y)) for m, s, K in zip(found["SVC cold each"], kept["1e-3"], doubles)]
        worst = max((wanted - value) / wanted for wanted, value in pairs)
        report.value(f"{title}: largest relative lag of the dual at 1e-3", worst, "<= 1e-07")
        report.note(f"{title}: steps {[s.iterations for s in kept['1e-3']]}, schedule {[s.iterations for s in kept['schedule']]}")


def regression(report: bench.Report, n: int, X: np.ndarray, z: np.ndarray, C: float, reps: int) -> None:
    K, moved = gaussian(X, 0.05), 0.97 * gaussian(X, 0.05) + 0.03 * gaussian(X, 0.1)
    problem, scratch = svr_problem(z, EPSILON, C), Scratch()
    single, single_moved = DenseGram(K.astype(np.float32), scratch), DenseGram(moved.astype(np.float32), scratch)
    before = solve_smo(single, problem)

    def peer(matrix: np.ndarray) -> SVR:
        return SVR(kernel="precomputed", C=C, epsilon=EPSILON, tol=1e-3, cache_size=2000).fit(matrix, z)

    title = f"SVR n={n} C={C:g}"
    found = timed(report, f"{title} cold", {"SVR": lambda: peer(K), "float32": lambda: solve_smo(single, problem)}, reps, 1, 1 / 4)
    compare(report, f"{title} cold", found, K, z, EPSILON)
    warm = {"SVR": lambda: peer(moved), "float32": lambda: solve_smo(single_moved, problem, warm=before)}
    found = timed(report, f"{title} after a change of 3 %", warm, reps, 1, 1 / 8)
    compare(report, f"{title} warm", found, moved, z, EPSILON)


def ridge(report: bench.Report, n: int, X: np.ndarray, z: np.ndarray, steps: int, reps: int) -> None:
    doubles = reweighted(X, steps)
    grams = [DenseGram(K.astype(np.float32)) for K in doubles]
    problem = ridge_problem(z, 1.0, bias=False)

    def ours() -> DualSolution:
        solver, warm = RidgeSolver(), None
        for gram in grams:
            warm = solver.solve(gram, problem, warm=warm)
        assert warm is not None
        return warm

    calls = {
        "KernelRidge": lambda: [KernelRidge(alpha=0.5, kernel="precomputed").fit(K, z) for K in doubles][-1],
        "factor kept": ours,
    }
    found = timed(report, f"{steps} ridge solves n={n}", calls, reps, 1, 1 / 5)
    lag = np.abs(found["factor kept"].beta - found["KernelRidge"].dual_coef_).max() / np.abs(found["KernelRidge"].dual_coef_).max()
    report.value("largest relative difference of the coefficients", float(lag), "<= 1e-05")


def main() -> None:
    options = bench.arguments(__doc__, sizes="500,1000,3000", steps=15).parse_args()
    sizes = [int(n) for n in options.sizes.split(",")]
    if options.tiny:
        sizes, options.steps, options.reps = [150], 3, 2
    report = bench.Report("Kernel duals on a Gram matrix in memory", options)
    for n in sizes:
        X, z = rows(n)
        cold(report, n, gaussian(X, 0.05), z, options.reps)
    X, z = rows(sizes[-1])
    loops(report, sizes[-1], X, z, options.steps, options.reps)
    for n, C in ((150, 1.0),) if options.tiny else ((1000, 1.0), (2000, 10.0)):
        regression(report, n, *rows(n), C, options.reps)
    n = 150 if options.tiny else 1000
    ridge(report, n, *rows(n), options.steps, options.reps)
    report.show()


if __name__ == "__main__":
    main()
