"""Alignments of one Gaussian kernel per feature at 100,000 features x 800 rows, and the path of their weights over p.

Run with ``python -m benchmarks.kta_path.kta_alignments``. Ours (widths included) against float64 exponentials of every pair of rows, widths
given: a compiled loop over half of each Gram matrix, and NumPy over whole ones. Those two run on ``--direct`` features, scaled up.
Few-valued features go through counts; the path has 101 points.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import numpy as np
import scipy.sparse as sp

from gramplane.kernels.alignment.alignment import Alignments, alignments
from gramplane.kernels.alignment.path import AlignmentProblem, kernel_path
from gramplane.kernels.jit import compiled


@compiled
def half_gram(z: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return y' K y and 1' K 1 of exp(-(z - z')^2) from the pairs i > j."""
    form, mass = 0.0, 0.0
    for i in range(z.size):
        f, g = 0.0, 0.0
        for j in range(i):
            k = np.exp(-((z[i] - z[j]) ** 2))
            f += y[j] * k
            g += k
        form += y[i] * (2.0 * f + y[i])
        mass += 2.0 * g + 1.0
    return form, mass


def whole_gram(z: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    K = np.exp(-((z[:, None] - z) ** 2))
    return y @ K @ y, K.sum()


def direct(forms, X: np.ndarray, y: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return the alignments of dense columns of given widths."""
    centred, out = y - y.mean(), np.zeros(X.shape[1])
    for j in range(X.shape[1]):
        form, mass = forms(X[:, j].astype(np.float64) / (np.sqrt(2.0) * widths[j]), centred)
        out[j] = form / (len(y) - mass / len(y))
    return out


def scaled(timing: bench.Timing, by: float) -> bench.Timing:
    return bench.Timing([t * by for t in timing.wall], [t * by for t in timing.cpu], timing.result)


def worst(found: Alignments, exact: np.ndarray, y: np.ndarray) -> float:
    """Return the greatest error in units of max(a, ||H y||^2 / m)."""
    usual = np.sum((y - y.mean()) ** 2) / len(y)
    return float(np.max(np.abs(found.values[: exact.size] - exact) / np.maximum(exact, usual)))


def counts(rng: np.random.Generator, m: int, d: int) -> sp.csc_array:
    """Columns of about eight entries of seven values."""
    rows = np.sort(rng.integers(0, m, (d, 8)), axis=1)
    keep = np.diff(rows, axis=1, prepend=-1) > 0
    ends = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
    values = rng.integers(1, 8, rows.shape).astype(np.float32)
    return sp.csc_array((values[keep], rows[keep].astype(np.int32), ends.astype(np.int32)), shape=(m, d))


def main() -> None:
    parser = bench.arguments(__doc__, m=800, d=100_000, direct=40)
    options = parser.parse_args()
    if options.tiny:
        options.m, options.d, options.direct, options.reps = 120, 600, 10, 1
    rng = np.random.default_rng(0)
    m, d = options.m, options.d
    y = np.where(rng.random(m) < 0.5, 1.0, -1.0)
    dense = rng.standard_normal((m, d), dtype=np.float32)
    dense[:, :20] += 0.5 * y[:, None]
    dense[:, 20:40] *= np.where(y > 0, 2.0, 1.0)[:, None]
    binary = (dense > 0.5).astype(np.float32)
    sparse = counts(rng, m, d)
    few = dense[:, : options.direct]
    widths = alignments(few, y).widths
    problem = AlignmentProblem(1.0, 10.0)
    a = rng.gamma(0.5, 4.0, d)
    times = bench.alternate(
        {
            "Gaussian, dense, widths included": lambda: alignments(dense, y),
            "half matrices, compiled": lambda: direct(half_gram, few, y, widths),
            "whole matrices, NumPy": lambda: direct(whole_gram, few, y, widths),
            "binary, dense": lambda: alignments(binary, y),
            "counts, sparse": lambda: alignments(sparse, y),
            "linear, dense": lambda: alignments(dense, y, kernel="linear"),
            "path, 101 points, order 1": lambda: kernel_path(problem, a),
            "path, 101 points, order 2": lambda: kernel_path(problem, a, order=2),
        },
        options.reps,
    )
    for name in ("half matrices, compiled", "whole matrices, NumPy"):
        times[name] = scaled(times[name], d / options.direct)
    report = bench.Report(f"Kernel alignments of {d:,} features x {m} rows, and their path", options)
    for name, timing in times.items():
        report.time(name, timing)
    ours, half, whole, on_bits, on_counts, _, path, _ = times.values()
    report.ratio("ours : half matrices", ours, half, 1 / 5)
    report.ratio("ours : whole matrices", ours, whole, 1 / 5)
    report.value("greatest error of ours, relative", worst(ours.result, half.result, y), "<= 1e-6")
    report.value("greatest error it promises", float(ours.result.errors.max()), "<= 1e-6")
    report.value("binary, dense: processor seconds", on_bits.cpu_median, "<= 1", unit=" s")
    report.value("counts, sparse: processor seconds", on_counts.cpu_median, "<= 1", unit=" s")
    report.value("path: processor seconds", path.cpu_median, "<= 3", unit=" s")
    best = set(np.argsort(ours.result.values)[-40:].tolist())
    report.value("planted features among the first 40", len(best & set(range(40))))
    report.note("direct forms are timed on " + f"{options.direct} features with given widths and scaled to {d:,}")
    steps = {
        name: int(times[f"path, 101 points, order {order}"].result.newton_steps.sum()) for order, name in ((1, "first"), (2, "second"))
    }
    report.note(f"Newton steps: {steps}; active kernels at the ends: {path.result.n_active[0]:,}, {path.result.n_active[-1]:,}")
    report.show()


if __name__ == "__main__":
    main()
