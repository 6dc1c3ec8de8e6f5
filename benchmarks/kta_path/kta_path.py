"""Kernel selection path from data to machines: 300 rows x 1,000 features, 50 points; 100,000 features with a machine at every point.

Run with ``python -m benchmarks.kta_path.kta_path --peer-python FOLDER/bin/python`` after ``sh benchmarks/peers.sh FOLDER``; the peer,
pyHSICLasso, lives in that environment. The small row is alignments, widths, path and the machine at its end against HSIC Lasso for as many
features as were planted (its kernels and its path); both are asked for those features. The wide row has 101 points: alignments of all
features with their widths, the path, and a support vector machine at every point.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import sys
from typing import Any

import numpy as np

HELD: dict[str, Any] = {}


def planted(m: int, d: int, relevant: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Return normal features; of the relevant ones half are shifted by the class, half spread."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(m) < 0.5, 1, -1)
    X = rng.standard_normal((m, d), dtype=np.float32)
    X[:, : relevant // 2] += shift * y[:, None]
    X[:, relevant // 2 : relevant] *= np.where(y > 0, 2.0, 1.0)[:, None]
    return X, y


def load(**sizes: Any) -> None:
    HELD["data"] = planted(**sizes)


def ours(wanted: int) -> dict[str, Any]:
    """Fit 50 points and the machine at the end; return the features at the p that leaves ``wanted``."""
    from gramplane import KTASelectionPath

    clock, fitted = bench.clocked(lambda: KTASelectionPath(p_end=1.02, dp=0.02, n_machines=1).fit(*HELD["data"]))
    best = np.argsort(-fitted.alignments_)[:wanted]
    return {**clock, "points": len(fitted.p_grid_), "features": best.tolist()}


def hsic(wanted: int) -> dict[str, Any]:
    """Fit HSIC Lasso to ``wanted`` features, on one thread and on all samples at once."""
    from pyHSICLasso import HSICLasso  # pyright: ignore[reportMissingImports]

    X, y = HELD["data"]

    def fit() -> Any:
        lasso = HSICLasso()
        lasso.input(X.astype(np.float64), y)
        lasso.classification(wanted, B=0, n_jobs=1)
        return lasso

    clock, fitted = bench.clocked(fit)
    return {**clock, "features": [int(j) for j in fitted.get_index()]}


def packages() -> dict[str, str]:
    return {f"peers' {name}": version for name, version in bench.versions(("pyHSICLasso", "numpy", "scikit-learn")).items()}


bench.serve(load, ours, hsic, packages)


def small(report: bench.Report, options: Any) -> dict[str, str]:
    sizes = {"m": options.m, "d": options.d, "relevant": options.relevant, "shift": 0.8}
    found: dict[str, list[dict[str, Any]]] = {"ours": [], "hsic": []}
    versions: dict[str, str] = {}
    with bench.Child(__file__) as us, bench.Child(__file__, options.peer_python or sys.executable) as them:
        us("load", **sizes)
        us("ours", wanted=options.relevant)
        if options.peer_python:
            versions = {name: str(text) for name, text in them("packages").items() if name.startswith("peers'")}
            them("load", **sizes)
        for _ in range(options.reps):
            found["ours"].append(us("ours", wanted=options.relevant))
            if options.peer_python:
                found["hsic"].append(them("hsic", wanted=options.relevant))
    mine = bench.timing_of(found["ours"])
    report.time(f"path, {found['ours'][0]['points']} points, widths and last machine included", mine)
    hits(report, "ours", found["ours"][0], options.relevant)
    if options.peer_python:
        peer = bench.timing_of(found["hsic"])
        report.time("pyHSICLasso", peer)
        hits(report, "pyHSICLasso", found["hsic"][0], options.relevant)
        report.ratio("ours : pyHSICLasso", mine, peer, 1 / 10)
    else:
        report.note("no --peer-python: pyHSICLasso is not compared (see benchmarks/peers.sh)")
    return versions


def hits(report: bench.Report, name: str, found: dict[str, Any], relevant: int) -> None:
    target = f">= {0.8 * relevant:g}" if name == "ours" else ""
    report.value(f"{name}: planted among the {relevant} chosen", sum(j < relevant for j in found["features"]), target)


def wide(report: bench.Report, options: Any) -> None:
    from gramplane import KTASelectionPath

    X, y = planted(options.wide_m, options.wide_d, 40, 0.5)
    KTASelectionPath(n_machines=3).fit(X[:, :60], y)
    clock, fitted = bench.clocked(lambda: KTASelectionPath(n_machines=1).fit(X, y))
    report.value("wide: alignments, widths and path", clock["seconds"], unit=" s")
    along, right = bench.clocked(lambda: [np.mean((machine.training_values() > 0) == (y > 0)) for machine in fitted.svm_path()])
    report.value(f"wide: {len(right)} machines along the path", along["seconds"], unit=" s")
    report.value("wide: all of it", clock["seconds"] + along["seconds"], "<= 240", unit=" s")
    report.value("wide: processor time of all of it", clock["cpu"] + along["cpu"], unit=" s")
    report.value("wide: planted among the 40 best aligned", len(set(np.argsort(fitted.alignments_)[-40:].tolist()) & set(range(40))))
    predicted, _ = bench.clocked(lambda: fitted.svm_at(1.5).decision_function(X[:200]))
    report.value("wide: one machine alone at p = 1.5, and 200 rows by it", predicted["seconds"], unit=" s")
    report.value("wide: peak memory", bench.peak_memory() / 2**30, unit=" GiB")
    counts = {float(p): int(n) for p, n in zip(fitted.p_grid_[::20], fitted.n_active_[::20], strict=True)}
    report.note(f"wide: active kernels along p: {counts}; accuracy on the training rows at the ends: {right[0]:.3f}, {right[-1]:.3f}")


def main() -> None:
    parser = bench.arguments(__doc__ or "", m=300, d=1000, relevant=10, wide_m=800, wide_d=100_000)
    parser.add_argument("--peer-python", help="interpreter of the peers' environment (benchmarks/peers.sh)")
    options = parser.parse_args()
    if options.tiny:
        options.m, options.d, options.wide_m, options.wide_d, options.reps = 80, 60, 80, 400, 1
    report = bench.Report(f"Kernel selection path, {options.m} x {options.d:,} and {options.wide_m} x {options.wide_d:,}", options)
    versions = small(report, options)
    wide(report, options)
    report.show(versions)


if __name__ == "__main__":
    main()
