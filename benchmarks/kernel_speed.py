"""Speed of kernel methods in memory: banks of Gram matrices, duals, weights of kernels."""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from benchmarks._mkl_peer import strong_loop
from gramplane import MKLClassifier
from gramplane.cluster import open_executor
from gramplane.kernels.grams.blocks import gram_block
from gramplane.kernels.grams.spec import KernelSpec
from gramplane.kernels.svm.dual import DenseGram, DualSolution, Scratch, svc_problem
from gramplane.kernels.svm.smo import solve_smo
from gramplane.pipeline.core.engine import iterate
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.grams.given import GivenGrams
from gramplane.pipeline.inputs.labels import Inputs
from gramplane.pipeline.methods.mkl.config import MKLConfig
from gramplane.pipeline.methods.mkl.method import MKL

# -- rbf_bank ----------------------------------------------------------------------------------------------------------------


@bench.program(n=(4096, 300), d=50, kernels=10, factor=2.0, seed=0, reps=(5, 2))
def rbf_bank(report: bench.Report, options: Any) -> None:
    """Ten Gaussian kernels of one data set, 4,096 x 50, against ten calls of ``sklearn.metrics.pairwise.rbf_kernel``.

    gamma doubles from kernel to kernel (``--factor 4``: the widths double instead). The bank is written into one array that is used again
    and again, as a solver does; a fresh array for every call is timed beside it.
    """
    exact = np.random.default_rng(options.seed).standard_normal((options.n, options.d)).astype(np.float32).astype(np.float64)
    # The middle kernel has entries of about exp(-1).
    gammas = [0.5 / options.d * options.factor ** (k - options.kernels // 2) for k in range(options.kernels)]
    specs = [KernelSpec("rbf", (("gamma", gamma),)) for gamma in gammas]
    report.title = f"{options.kernels} Gaussian kernels of {options.n} x {options.d}, gamma times {options.factor:g}"
    for name, target in (("float64", 1 / 5), ("float32", 1 / 8)):
        data, bank = exact.astype(name), np.empty((options.kernels, options.n, options.n), dtype=name)

        def theirs(data: np.ndarray = data) -> None:
            for gamma in gammas:
                rbf_kernel(data, gamma=gamma)

        calls: dict[str, Callable[[], Any]] = {
            f"bank into one array, {name}": partial(gram_block, specs, data, dtype=bank.dtype, out=bank),
            f"bank into a fresh array, {name}": lambda data=data: gram_block(specs, data, dtype=data.dtype).nbytes,
            f"ten rbf_kernel, {name}": theirs,
        }
        times = bench.alternate(calls, options.reps)
        report.times(times)
        kept, fresh, peer = times.values()
        report.ratio(f"bank : rbf_kernel, {name}", kept, peer, target)
        report.ratio(f"fresh bank : rbf_kernel, {name}", fresh, peer, None)
        errors = [float(np.abs(kernel - rbf_kernel(exact, gamma=gamma)).max()) for kernel, gamma in zip(bank, gammas, strict=True)]
        report.value(f"greatest error, {name}", max(errors), "<= 1e-06")
        report.value(f"written, {name}", bank.nbytes / kept.median / 1e9, unit=" GB/s")


# -- svm_dual ----------------------------------------------------------------------------------------------------------------


def smooth_rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return twenty normal features and a smooth function of five of them with noise."""
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
    rng = np.random.default_rng(0)
    kernels = [gaussian(X, gamma) for gamma in (0.02, 0.05, 0.1)] + [gaussian(X[:, q : q + 2], 0.5) for q in (0, 2, 4)]
    weights, found = np.full(6, 1 / 6), []
    for t in range(steps):
        found.append(sum(w * K for w, K in zip(weights, kernels)))
        weights = weights * (1 + 0.3 / (t + 1) * rng.uniform(-1, 1, 6))
        weights /= weights.sum()
    return found


def dual_of(found: Any, K: np.ndarray, c: np.ndarray) -> float:
    """Return the dual value of a solution of ours or a fitted SVC on the float64 matrix."""
    beta = np.zeros(len(K))
    if isinstance(found, DualSolution):
        beta[:] = found.beta
    else:
        beta[found.support_] = found.dual_coef_[0]
    return float(c @ beta - 0.5 * beta @ K @ beta)


def warm_loop(grams: list[np.ndarray], problem: Any, scratch: Scratch, scheduled: bool) -> list[DualSolution]:
    found: list[DualSolution] = []
    for t, K in enumerate(grams):
        tol = 1e-3 if not scheduled else 0.1 if t == 0 else min(0.1, max(1e-3, 0.3 * 0.5**t))
        found.append(solve_smo(DenseGram(K, scratch), problem, warm=found[-1] if found else None, tol=tol))
    return found


def against_first(
    report: bench.Report, title: str, calls: dict[str, Callable[[], Any]], reps: int, target: float, batch: int = 1
) -> dict[str, Any]:
    """Alternate, put times and ratios to the first call into the report, return the last results."""
    times = bench.alternate_batches(calls, reps, batch)
    report.times(times, f"{title}, ")
    first = next(iter(times.values()))
    for name, timing in list(times.items())[1:]:
        report.ratio(f"{title}, {name} : peer", timing, first, target)
    return {name: timing.result for name, timing in times.items()}


def compare_duals(report: bench.Report, title: str, found: dict[str, Any], K: np.ndarray, c: np.ndarray) -> None:
    """Put the relative differences of the dual values into the report; worse than the peer is positive."""
    first, *rest = ((name, dual_of(result, K, c)) for name, result in found.items())
    for name, value in rest:
        report.value(f"{title}, {name}: peer's dual - ours, relative", (first[1] - value) / abs(first[1]), "<= 1e-07")


def svc(C: float, K: np.ndarray, y: np.ndarray) -> SVC:
    return SVC(kernel="precomputed", C=C, tol=1e-3, cache_size=2000).fit(K, y)


def dual_cold(report: bench.Report, n: int, reps: int) -> None:
    X, z = smooth_rows(n)
    K, y = gaussian(X, 0.05), np.where(z > 0, 1.0, -1.0)
    grams = {"float64": DenseGram(K, Scratch()), "float32": DenseGram(K.astype(np.float32), Scratch())}
    for C, target in ((1.0, 1 / 3), (10.0, 1 / 3), (100.0, 1 / 2)):
        calls: dict[str, Callable[[], Any]] = {"SVC": partial(svc, C, K, y)}
        calls |= {name: partial(solve_smo, gram, svc_problem(y, C)) for name, gram in grams.items()}
        found = against_first(report, f"cold n={n} C={C:g}", calls, reps, target, max(1, 1000 // n))
        compare_duals(report, f"cold n={n} C={C:g}", found, K, y)


def dual_loops(report: bench.Report, n: int, steps: int, reps: int) -> None:
    X, z = smooth_rows(n)
    y, scratch, doubles = np.where(z > 0, 1.0, -1.0), Scratch(), reweighted(X, steps)
    floats = [K.astype(np.float32) for K in doubles]
    for C in (1.0, 10.0):
        problem, title, found = svc_problem(y, C), f"{steps} solves n={n} C={C:g}", {}
        for peer, name, scheduled, target in (
            ("SVC cold each", "warm float32, tol 1e-3", False, 1 / 6),
            ("SVC cold each (again)", "warm float32, schedule", True, 1 / 10),
        ):
            calls: dict[str, Callable[[], Any]] = {
                peer: lambda C=C: [svc(C, K, y) for K in doubles],
                name: partial(warm_loop, floats, problem, scratch, scheduled),
            }
            found |= against_first(report, title, calls, reps, target)
        kept, schedule = found["warm float32, tol 1e-3"], found["warm float32, schedule"]
        pairs = [(dual_of(m, K, y), dual_of(s, K, y)) for m, s, K in zip(found["SVC cold each"], kept, doubles, strict=True)]
        worst = max((wanted - value) / wanted for wanted, value in pairs)
        report.value(f"{title}: largest relative lag of the dual at 1e-3", worst, "<= 1e-07")
        report.note(f"{title}: steps {[s.iterations for s in kept]}, schedule {[s.iterations for s in schedule]}")


@bench.program(sizes=("500,1000,3000", "150"), steps=(15, 3), reps=(5, 2))
def svm_dual(report: bench.Report, options: Any) -> None:
    """Kernel duals in memory against scikit-learn on the same Gram matrix: cold solves and loops of re-weighted solves.

    C is scikit-learn's. A cold solve starts from zero on a whole matrix; SVC gets it in float64, ours in float64 and float32. A loop solves
    15 problems whose six kernel weights change by 30 % / (t + 1): first at tol 1e-3, then at the tolerances of a multiple kernel learning
    run, .1 first and min(.1, max(1e-3, .3 gap)) after, with a gap that halves at every step in place of the outer run; SVC stays at 1e-3.
    Combining kernels is timed on neither side; the start gradient of a warm solve is. Dual values are all taken on the float64 matrix. A
    solve of few milliseconds is repeated; medians are per solve or per loop.
    """
    sizes = [int(n) for n in options.sizes.split(",")]
    report.title = "Kernel duals on a Gram matrix in memory"
    for n in sizes:
        dual_cold(report, n, options.reps)
    dual_loops(report, sizes[-1], options.steps, options.reps)


# -- mkl_elastic and mkl_given -----------------------------------------------------------------------------------------------

TOL, TAU, V, COST = 1e-3, 0.3, 0.5, 1.0


def gaussians(k: int, d: int) -> list[KernelSpec]:
    """Return Gaussian kernels on all features and on every single one."""
    widths, places = np.geomspace(0.05, 10.0, -(-k // (d + 1))), [None, *((j,) for j in range(d))]
    return [KernelSpec("rbf", (("gamma", float(g) / (d if s is None else 1)),), s) for s in places for g in widths][:k]


def float_bank(X: np.ndarray, k: int) -> np.ndarray:
    """Return k kernels of unit variance in feature space, float32."""
    n = len(X)
    found = np.empty((k, n, n), np.float32)
    for q, spec in enumerate(gaussians(k, X.shape[1])):
        gram = gram_block([spec], X, dtype=np.float32)[0]
        found[q] = gram / (np.trace(gram, dtype=np.float64) / n - gram.mean(dtype=np.float64))
    return found


@bench.program(size=(2000, 200), kernels=(200, 40), peer_python=None)
def mkl_elastic(report: bench.Report, options: Any) -> None:
    """Elastic-net multiple kernel learning against a strong loop around SVC and against EasyMKL.

    All get the same kernels: packed triangles of float32 on our side, one float32 (k, n, n) array on the loop's, float64 matrices in a
    process of its own for EasyMKL (``elsewhere``; one quadratic program, another objective: only its time is compared). Making kernels is
    timed nowhere. The loop (`_mkl_peer.py`): SVC(kernel="precomputed") at its default tol 1e-3 on one vector-matrix product over all
    kernels, quadratic forms by one matrix-vector product per kernel, then the level method with our own lower-bound program and projection.
    Ours is the estimator's default: second-order steps, a working set of kernels, and the same lower-bound program. Both stop at a relative
    gap of 1e-3 between the primal value and a lower bound over all kernels. The accuracy of the machines is no question here.
    """
    n, k = options.size, options.kernels
    X, z = smooth_rows(n)
    y, grams = np.where(z > 0, 1.0, -1.0), float_bank(X, k)
    report.title = f"elastic-net MKL, n={n}, {k} kernels, v={V}, C={COST}, gap {TOL}"
    config = MKLConfig(kernels="precomputed", v=V, C=COST, tau=TAU, tol=TOL, normalize="none")
    data = GivenGrams.__new__(GivenGrams)
    # The look at eigenvalues is no part of the comparison.
    data.source, data.k, data.n_rows, data.n_cols, data.digest = grams, k, n, n, ""
    with open_executor(None) as executor:
        ctx = RunContext(executor, data=data, driver_memory=64 << 30)  # pyright: ignore[reportArgumentType]
        problem = MKL().problem(config, Inputs(data, (y > 0).astype(np.int64), (-1, 1)), ctx)
        problem.grams(ctx)
        calls: dict[str, Callable[[], Any]] = {
            "ours": lambda: iterate(MKL(), problem, ctx),
            "strong loop around SVC": lambda: strong_loop(grams, y, COST, V, TOL, TAU),
        }
        times = bench.alternate(calls, options.reps)
    mine, loops = times.values()
    found, other = mine.result.state.machines[0], loops.result
    report.times(times)
    report.ratio("ours : strong loop around SVC", mine, loops, 1 / 4)
    if options.peer_python:
        with bench.Child(str(Path(__file__).with_name("elsewhere.py")), options.peer_python) as child, bench.scratch() as folder:
            np.save(folder / "kernels.npy", grams)
            np.save(folder / "labels.npy", y)
            by = child("easymkl_prepare", kernels=str(folder / "kernels.npy"), labels=str(folder / "labels.npy"))["by"]
            report.note(f"EasyMKL by {by}" + ("" if by == "MKLpy" else ", the same steps as MKLpy's class"))
            child("easymkl_fit")
            peer = bench.timing_of([child("easymkl_fit") for _ in range(options.reps)])
        report.time("EasyMKL", peer)
        report.ratio("ours : EasyMKL", mine, peer, 1 / 2)
    else:
        report.note("no --peer-python: EasyMKL was not run (see benchmarks/peers.sh)")
    for name in ("machine", "forms", "weights"):
        report.value(f"ours, seconds in {name}", sum(row[f"seconds_{name}"] for row in mine.result.history), unit=" s")
    report.value("ours, relative gap", (found.upper - found.lower) / found.upper, f"<= {TOL}")
    report.value("strong loop, relative gap", (other.upper - other.lower) / other.upper)
    report.value("ours, weight vectors tried", len(found.cut_values))
    report.value("strong loop, weight vectors tried", other.iterations)
    report.value("ours, kernels looked at in every step at last", int(found.active.sum()))
    report.value("upper bounds, relative difference", abs(found.upper - other.upper) / other.upper, f"<= {2 * TOL}")


@bench.program(size=(2000, 200), kernels=(200, 40))
def mkl_given(report: bench.Report, options: Any) -> None:
    """Kernel learning on matrices that are given: the whole fit against the same search around SVC, and against the fit from rows.

    Ours is `MKLClassifier("precomputed", v=0.5, normalize="none").fit(K, y)` with every look at the matrices: finite, symmetric, definite,
    packed. The loop (`_mkl_peer.py`) takes the float32 matrices as they are and checks nothing. From rows: the same kernels over the
    features they are of. All three stop at a relative gap of 1e-3. Look at processor seconds: other work moves them least.
    """
    n, k = options.size, options.kernels
    X, z = smooth_rows(n)
    y, K = np.where(z > 0, 1.0, -1.0), float_bank(X, k)
    report.title = f"MKL on given matrices, n={n}, {k} float32 kernels, v={V}, C={COST}, gap {TOL}"
    given = {"v": V, "C": COST, "tol": TOL, "tau": TAU, "normalize": "none", "scale": None}
    calls: dict[str, Callable[[], Any]] = {
        "given matrices": lambda: MKLClassifier("precomputed", **given).fit(K, y),
        "the same kernels from rows": lambda: MKLClassifier(gaussians(k, X.shape[1]), **given).fit(X, y),
        "loop around SVC": lambda: strong_loop(K, y, COST, V, TOL, TAU),
    }
    times = bench.alternate(calls, options.reps)
    report.times(times)
    mine, _, loop = times.values()
    report.ratio("given matrices : loop around SVC", mine, loop, 1 / 4)
    upper = loop.result.upper
    report.value("upper bounds, relative difference", abs(mine.result.upper_bound_ - upper) / upper, f"<= {2 * TOL}")


if __name__ == "__main__":
    bench.run()
