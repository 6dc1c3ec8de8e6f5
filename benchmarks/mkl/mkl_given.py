"""Kernel learning on matrices that are given: the whole fit against the same search as a loop around SVC, and against the fit from rows.

    python -m benchmarks.mkl.mkl_given                                                # n = 2,000, 200 float32 matrices
    python -m benchmarks.mkl.mkl_given --size 1000 --kernels 100

Ours is `MKLClassifier("precomputed", v=0.5, normalize="none").fit(K, y)` with every look at the matrices: finite, symmetric, definite,
packed. The loop (`_mkl_peer.py`) takes the float32 matrices as they are and checks nothing. From rows: the same kernels as texts over the
features they are of. All three stop at a relative gap of 1e-3. Look at processor seconds: other work on the machine moves them least.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import numpy as np
from mkl_elastic import TAU, TOL, C, V, bank, rows

from benchmarks._mkl_peer import strong_loop
from gramplane import MKLClassifier
from gramplane.kernels.jit import one_thread


def texts(k: int, d: int) -> list[str]:
    """Return kernels of the rows, as many as there are matrices: Gaussians per feature and on all of them."""
    widths = np.geomspace(0.05, 10.0, -(-k // (d + 1)))
    found = [f"rbf(gamma={g / d:.6g})" for g in widths] + [f"rbf(gamma={g:.6g})[{j}]" for j in range(d) for g in widths]
    return found[:k]


def main() -> None:
    """Print the table."""
    parser = bench.arguments(__doc__ or "", size=2000, kernels=200)
    options = parser.parse_args()
    n, k = (200, 40) if options.tiny else (options.size, options.kernels)
    X, y = rows(n)
    K = bank(X, k)
    report = bench.Report(f"MKL on given matrices, n={n}, {k} float32 kernels, v={V}, C={C}, gap {TOL}", options)
    given = {"v": V, "C": C, "tol": TOL, "tau": TAU, "normalize": "none"}
    with one_thread():
        calls = {
            "given matrices": lambda: MKLClassifier("precomputed", **given, scale=None).fit(K, y),
            "the same kernels from rows": lambda: MKLClassifier(texts(k, X.shape[1]), **given, scale=None).fit(X, y),
            "loop around SVC": lambda: strong_loop(K, y, C, V, TOL, TAU),
        }
        times = bench.alternate(calls, options.reps)
    for name, timing in times.items():
        report.time(name, timing)
    report.ratio("given matrices : loop around SVC", times["given matrices"], times["loop around SVC"], 1 / 4)
    mine, other = times["given matrices"].result, times["loop around SVC"].result
    report.value("upper bounds, relative difference", abs(mine.upper_bound_ - other.upper) / other.upper, f"<= {2 * TOL}")
    report.show()


if __name__ == "__main__":
    main()
