"""Kernel selection path from data to machines: 300 rows x 1,000 features with 50 points, and a whole fit of 100,000 features.

Run with ``python benchmarks/kta_path.py``. The small row fits alignments, path and the machine at its end, and then a machine at every
fifth point, warm-started. pyHSICLasso, the nearest peer, is timed where it can be imported, else reported missing.
"""

from __future__ import annotations

import _harness as bench  # isort: skip
import importlib.util
from typing import Any

import numpy as np

from gramplane.pipeline import KTASelectionPath

EVERY = 5


def planted(m: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return normal features, 20 shifted and 20 spread by the class."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(m) < 0.5, 1, -1)
    X = rng.standard_normal((m, d), dtype=np.float32)
    X[:, :20] += 0.5 * y[:, None]
    X[:, 20:40] *= np.where(y > 0, 2.0, 1.0)[:, None]
    return X, y


def machines(fitted: KTASelectionPath) -> int:
    """Train machines down the path; return how many."""
    last: Any = None
    points = fitted.p_grid_[fitted.n_active_ > 0][::EVERY]
    for p in points:
        last = fitted.svm_at(float(p), warm=last)
    return len(points)


def peer(X: np.ndarray, y: np.ndarray) -> list[int]:
    from pyHSICLasso import HSICLasso  # pyright: ignore[reportMissingImports]

    lasso = HSICLasso()
    lasso.input(X.astype(np.float64), y)
    lasso.classification(20, B=0, n_jobs=1)
    return list(lasso.get_index())


def main() -> None:
    parser = bench.arguments(__doc__, m=300, d=1000, wide_m=800, wide_d=100_000)
    options = parser.parse_args()
    if options.tiny:
        options.m, options.d, options.wide_m, options.wide_d, options.reps = 80, 60, 80, 400, 1
    X, y = planted(options.m, options.d)
    fitted = KTASelectionPath(dp=0.02).fit(X, y)
    calls: dict[str, Any] = {
        "fit, 51 points": lambda: KTASelectionPath(dp=0.02).fit(X, y),
        "machines at every fifth point": lambda: machines(fitted),
    }
    if importlib.util.find_spec("pyHSICLasso") is not None:
        calls["pyHSICLasso, 20 features"] = lambda: peer(X, y)
    times = bench.alternate(calls, options.reps)
    wide, labels = planted(options.wide_m, options.wide_d)
    whole = bench.alternate({"wide fit, 101 points": lambda: KTASelectionPath().fit(wide, labels)}, 1, warm=0)
    report = bench.Report(f"Kernel selection path, {options.m} x {options.d:,} and {options.wide_m} x {options.wide_d:,}", options)
    for name, timing in {**times, **whole}.items():
        report.time(name, timing)
    best = whole["wide fit, 101 points"].result
    report.value("wide fit: seconds", whole["wide fit, 101 points"].median, "<= 300", unit=" s")
    report.value("planted features among the first 40", len(set(np.argsort(best.alignments_)[-40:].tolist()) & set(range(40))))
    if "pyHSICLasso, 20 features" in times:
        report.ratio("ours : pyHSICLasso", times["fit, 51 points"], times["pyHSICLasso, 20 features"], 1.0)
    else:
        report.note("pyHSICLasso is missing from this environment: not compared")
    report.note(f"active kernels of the wide fit at the ends: {best.n_active_[0]:,}, {best.n_active_[-1]:,}")
    report.show()


if __name__ == "__main__":
    main()
