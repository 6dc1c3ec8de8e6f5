"""Batch group lasso, squared loss, groups of 10: tall data (1,000,000 x 160) and wide data (8,000 x 3,000) against celer and skglm.

Run with ``python -m benchmarks.group_lasso.group_lasso_batch --peer-python FOLDER/bin/python`` after ``sh benchmarks/peers.sh FOLDER``.
Columns of a group have correlation .5, 5 (tall) and 20 (wide) groups are true; noise is relative to the signal, 1 for the tall data. Ours
is ``GroupLassoRegressor(algorithm="fista")``, validation of the arrays included; the peers get column-major data before their clock starts.
Gaps of ours are relative to the objective, celer's to the square of the target; the objectives are compared below. Without an environment
of peers ours runs alone.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import sys
from typing import Any

import numpy as np

SIZE = 10
"""Features of a group."""

HELD: dict[str, Any] = {}
"""Data of a child process."""


# -- served ----------------------------------------------------------------------------------------------------------------


def load(n: int, d: int, true_groups: int, noise: float, seed: int, column_major: bool) -> dict[str, Any]:
    """Make the data of a seed."""
    HELD.clear()
    rng = np.random.default_rng(seed)
    X = np.empty((n, d), order="F" if column_major else "C")
    for lo in range(0, d, SIZE):
        X[:, lo : lo + SIZE] = np.sqrt(0.5) * (rng.standard_normal((n, 1)) + rng.standard_normal((n, SIZE)))
    w = np.zeros(d)
    for g in rng.choice(d // SIZE, true_groups, replace=False):
        w[g * SIZE : (g + 1) * SIZE] = rng.standard_normal(SIZE)
    y = X @ w
    y += noise * y.std() * rng.standard_normal(n)
    largest = float(np.linalg.norm((X.T @ y).reshape(-1, SIZE), axis=1).max()) / n
    HELD.update(X=X, y=y, largest=largest)
    return {}


def _told(coef: np.ndarray, alpha: float) -> dict[str, float]:
    """Return the objective, summed anew, and the groups of a solution."""
    norms = np.linalg.norm(coef.reshape(-1, SIZE), axis=1)
    rest = HELD["y"] - HELD["X"] @ coef
    return {"objective": float(rest @ rest) / (2 * len(rest)) + alpha * float(norms.sum()), "groups": int(np.count_nonzero(norms))}


def ours(share: float, tol: float) -> dict[str, Any]:
    """Fit GroupLassoRegressor."""
    from gramplane import GroupLassoRegressor

    X, y, alpha = HELD["X"], HELD["y"], HELD["largest"] / share
    groups = np.arange(X.shape[1]) // SIZE
    # The penalty of a group is lam sqrt(d_g).
    made = GroupLassoRegressor(algorithm="fista", groups=groups, lam=alpha / np.sqrt(SIZE), tol=tol, fit_intercept=False, scale=None)
    clock, model = bench.clocked(lambda: made.fit(X, y))
    gap = model.dual_gap_ / model.objective_
    return {**clock, **_told(np.asarray(model.coef_).ravel(), alpha), "relative_gap": gap, "engine": str(model.history_["engine"][-1])}


def peer(name: str, share: float, tol: float) -> dict[str, Any]:
    """Fit the group lasso of a package."""
    if name == "celer":
        from celer import GroupLasso
    else:
        from skglm import GroupLasso
    X, y, alpha = HELD["X"], HELD["y"], HELD["largest"] / share
    made = GroupLasso(groups=SIZE, alpha=alpha, fit_intercept=False, tol=tol)
    clock, model = bench.clocked(lambda: made.fit(X, y))
    return {**clock, **_told(np.asarray(model.coef_).ravel(), alpha)}


def packages() -> dict[str, Any]:
    """Return the versions of the peers' environment."""
    return {f"peers' {name}": version for name, version in bench.versions(("celer", "skglm", "numpy", "scikit-learn")).items()}


# -- report ----------------------------------------------------------------------------------------------------------------


def compare(report: bench.Report, options: Any, label: str, share: float, tol: float, peers: dict[str, float | None], reps: int) -> None:
    """Time all on the data that the children hold, in turn."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ("ours", *peers)}
    for _ in range(reps):
        found["ours"].append(options.us("ours", share=share, tol=tol))
        for name in peers:
            found[name].append(options.them("peer", name=name, share=share, tol=tol))
    mine, times = found["ours"][-1], {name: bench.timing_of(rows) for name, rows in found.items()}
    report.time(f"{label}: ours ({mine['engine']})", times["ours"])
    report.value(f"{label}: relative gap of ours", mine["relative_gap"], f"<= {tol:g}")
    report.value(f"{label}: groups", mine["groups"])
    for name, target in peers.items():
        report.time(f"{label}: {name}", times[name])
        report.ratio(f"{label}: ours : {name}", times["ours"], times[name], target)
        higher = mine["objective"] / found[name][-1]["objective"] - 1.0
        report.value(f"{label}: objective of ours above that of {name}, relative", higher, f"<= {tol:g}", form=".2e")


def main() -> None:
    parser = bench.arguments(__doc__, n=1_000_000, d=160, wide_n=8_000, wide_d=3_000, wide_noise=0.3, tall_reps=3)
    parser.add_argument("--peer-python", help="interpreter of the peers' environment (benchmarks/peers.sh)")
    parser.add_argument("--only", choices=["tall", "wide"], help="one of the two workloads")
    options = parser.parse_args()
    if options.tiny:
        options.n, options.d, options.wide_n, options.wide_d, options.reps, options.tall_reps = 3_000, 40, 200, 600, 1, 1
    report = bench.Report(
        f"Batch group lasso, {options.n} x {options.d} and {options.wide_n} x {options.wide_d}, groups of {SIZE}", options
    )
    versions: dict[str, str] = {}
    with bench.Child(__file__) as us, bench.Child(__file__, options.peer_python or sys.executable) as them:
        options.us, options.them = us, them
        known = {"celer": 0.1, "skglm": None} if options.peer_python else {}
        if known:
            versions = {name: str(value) for name, value in them("packages").items() if name.startswith("peers'")}
        else:
            report.note("no --peer-python: ours alone (see benchmarks/peers.sh)")
        # A small problem first: compiled programs are loaded.
        for n, d in ((2_000, 40), (200, 600)):
            for child, major in ((us, False), (them, True)):
                child("load", n=n, d=d, true_groups=3, noise=1.0, seed=9, column_major=major)
            us("ours", share=10.0, tol=1e-4)
            for name in known:
                them("peer", name=name, share=10.0, tol=1e-4)
        if options.only != "wide":
            us("load", n=options.n, d=options.d, true_groups=min(5, options.d // SIZE), noise=1.0, seed=0, column_major=False)
            them("load", n=options.n, d=options.d, true_groups=min(5, options.d // SIZE), noise=1.0, seed=0, column_major=True)
            compare(report, options, "tall, alpha_max/50", 50.0, 1e-4, {"celer": 0.1} if known else {}, options.tall_reps)
        if options.only != "tall":
            for noise in (options.wide_noise, 1.0):
                for child, major in ((us, False), (them, True)):
                    child("load", n=options.wide_n, d=options.wide_d, true_groups=20, noise=noise, seed=1, column_major=major)
                # With much noise and little penalty nearly all groups have weights: no case for a working set, shown without a target.
                for share, target in ((10.0, 0.4), (50.0, 0.4)) if noise < 1.0 else ((50.0, None),):
                    # skglm did not finish within minutes at the smaller penalty.
                    rivals = {"celer": target, "skglm": None} if share == 10.0 else {"celer": target}
                    label = f"wide, alpha_max/{share:g}, noise {noise:g}"
                    compare(report, options, label, share, 1e-6, rivals if known else {}, options.reps)
    report.note("ours: arrays are checked inside the clock; peers: column-major, converted before it")
    del options.us, options.them
    report.show(versions)


if __name__ == "__main__":
    bench.serve(load, ours, peer, packages)
    main()
