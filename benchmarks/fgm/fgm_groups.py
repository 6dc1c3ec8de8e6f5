"""Groups of 10 features, 4,096 x 40,000: FGM against the group lasso of celer and skglm with a refit.

Run with ``python -m benchmarks.fgm.fgm_groups --peer-python FOLDER/bin/python`` after ``sh benchmarks/peers.sh FOLDER``. The peers live in
that environment and each program holds the data in a process of its own; the seeds are the repetitions. FGM runs twice: with at most
``max_inner`` steps a round, with the gap that leaves, and to a gap of 1e-3. ``--wide`` runs FGM alone on 4,096 x 400,000 in float32 (7 GB).
Without an environment of peers FGM runs alone.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import importlib.util
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._peers import paired, quiet_fit, refit, ridge_svm

HELD: dict[str, Any] = {}
"""Data of a child process."""


def generators() -> Any:
    """Return the module of generators by its path: the peers' environment has no gramplane."""
    path = Path(__file__).parent.parent / "pipeline" / "synthetic.py"
    spec = importlib.util.spec_from_file_location("synthetic", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["synthetic"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- served ----------------------------------------------------------------------------------------------------------------


def load(n: int, n_groups: int, relevant: int, seed: int, column_major: bool) -> dict[str, Any]:
    """Make the data of a seed; the peers want columns, and get them before the clock starts."""
    HELD.clear()
    data = generators().dense_groups(n, n_groups, 10, relevant, n_test=max(n // 2, 100), seed=seed)
    HELD.update(data=data, X=np.asfortranarray(data.X) if column_major else data.X)
    return {}


def ours(B: int, rounds: int, cost: float, loss: str, max_inner: int) -> dict[str, Any]:
    """Fit FGM."""
    from gramplane import FGMClassifier

    data = HELD["data"]
    settings = {"B": B, "max_rounds": rounds, "C": cost, "loss": loss, "max_inner": max_inner or None, "fit_intercept": False}
    made = FGMClassifier(groups=data.groups, **settings, scale=None)
    clock, model = bench.clocked(lambda: made.fit(HELD["X"], data.y))
    phases = {name: float(values.sum()) for name, values in model.history_.items() if name.startswith("seconds_")}
    accuracy = model.score(data.X_test, data.y_test)
    return {
        **clock,
        "accuracy": accuracy,
        **_true(model.selected_),
        **phases,
        "relative_gap": model.dual_gap_ / model.objective_,
        "read": bench.best_read(HELD["X"], 2),
    }


def _true(groups: np.ndarray) -> dict[str, int]:
    return {"groups": len(groups), "true": len(np.intersect1d(groups, HELD["data"].relevant))}


def _group_lasso(name: str, alpha: float) -> Any:
    if name == "celer":
        from celer import GroupLasso

        return GroupLasso(groups=10, alpha=alpha, fit_intercept=False)
    from skglm import GroupLasso

    return GroupLasso(groups=10, alpha=alpha, fit_intercept=False)


def _kept(model: Any) -> np.ndarray:
    return np.flatnonzero(np.any(np.asarray(model.coef_).reshape(-1, 10), axis=1))


def _search(name: str, wanted: int) -> tuple[float, int]:
    """Return the alpha with ``wanted`` groups within 5 %, and the fits it took."""
    X, y = HELD["X"], HELD["data"].y.astype(float)
    high = float(np.linalg.norm((X.T @ y).reshape(-1, 10), axis=1).max()) / len(y)
    low, alpha, found = 0.0, 0.7 * high, []
    for _ in range(14):
        count = len(_kept(_group_lasso(name, alpha).fit(X, y)))
        found.append((abs(count - wanted), alpha))
        if abs(count - wanted) <= 0.05 * wanted:
            break
        low, high = (low, alpha) if count < wanted else (alpha, high)
        alpha = 0.85 * high if low == 0.0 else float(np.sqrt(low * high))
    return min(found)[1], len(found)


def peer(name: str, wanted: int) -> dict[str, Any]:
    """Search alpha and the refit's C, then time one fit of each."""
    data, y = HELD["data"], HELD["data"].y.astype(float)
    searched, (alpha, fits) = bench.clocked(lambda: _search(name, wanted))
    clock, model = bench.clocked(lambda: _group_lasso(name, alpha).fit(HELD["X"], y))
    features = np.flatnonzero(np.repeat(np.isin(np.arange(len(data.groups) // 10), _kept(model)), 10))
    searching, again = bench.clocked(lambda: refit(data.X, data.y, features))
    refitting, _ = bench.clocked(lambda: quiet_fit(ridge_svm(again.C), data.X[:, features], data.y))
    accuracy = float(np.mean((data.X_test @ model.coef_ > 0) == (data.y_test > 0)))
    refitted = again.score(data.X_test[:, features], data.y_test)
    others = {"seconds_lasso": clock["seconds"], "seconds_refit": refitting["seconds"], "fits": fits}
    searches = {"seconds_search_alpha": searched["seconds"], "seconds_search_C": searching["seconds"]}
    clock = {name: clock[name] + refitting[name] for name in clock}
    return {**clock, "accuracy": accuracy, "refitted": refitted, **others, **searches, **_true(_kept(model))}


def packages() -> dict[str, Any]:
    """Return the versions of the peers' environment."""
    return {f"peers' {name}": version for name, version in bench.versions(("celer", "skglm", "numpy", "scikit-learn")).items()}


def wide(n: int, n_groups: int, relevant: int, B: int, rounds: int, cost: float, loss: str, max_inner: int, seed: int) -> dict[str, Any]:
    """Fit FGM alone on float32 data; test rows are drawn for the columns that matter only."""
    from gramplane import FGMClassifier

    data = generators().dense_groups(n, n_groups, 10, relevant, n_test=1, dtype=np.float32, seed=seed)
    rng = np.random.default_rng(seed)
    columns = (np.sort(rng.choice(n_groups, relevant, replace=False))[:, None] * 10 + np.arange(10)).ravel()
    w = rng.standard_normal(columns.size)
    assert np.array_equal(data.y, np.where(data.X[:, columns] @ w >= 0, 1, -1)), "the generator draws in another order now"
    before = bench.peak_memory()
    settings = {"B": B, "max_rounds": rounds, "C": cost, "loss": loss, "max_inner": max_inner or None, "fit_intercept": False}
    made = FGMClassifier(groups=data.groups, **settings, scale=None)
    clock, model = bench.clocked(lambda: made.fit(data.X, data.y))
    used = np.unique(np.concatenate((columns, np.flatnonzero(np.isin(data.groups, model.selected_)))))
    Z = np.random.default_rng([seed, 1]).standard_normal((2000, used.size), dtype=np.float32)
    z = Z @ np.asarray(model.coef_[:, used].todense() if hasattr(model.coef_, "todense") else model.coef_[:, used]).ravel()
    right = (z > 0) == (Z[:, np.searchsorted(used, columns)] @ w >= 0)
    phases = {name: float(values.sum()) for name, values in model.history_.items() if name.startswith("seconds_")}
    HELD["data"] = data
    extra = {"accuracy": float(right.mean()), "extra": bench.peak_memory() - before, "read": bench.best_read(data.X, 2)}
    return {**clock, **extra, **phases, **_true(model.selected_)}


# -- report ----------------------------------------------------------------------------------------------------------------


def fits_of(options) -> dict[str, dict[str, Any]]:
    """Return the two ways FGM runs."""
    fit = {"B": options.B, "rounds": options.rounds, "cost": options.cost, "loss": options.loss}
    return {f"FGM, max_inner={options.max_inner}": {**fit, "max_inner": options.max_inner}, "FGM to gap 1e-3": {**fit, "max_inner": 0}}


def run_seeds(options, peers: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Run every program on every seed, in turn, after a small warm one."""
    fits = fits_of(options)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in (*fits, *peers)}
    small = {"n": 200, "n_groups": 40, "relevant": 3, "seed": 0}
    sizes = {"n": options.n, "n_groups": options.groups, "relevant": options.relevant}
    with bench.Child(__file__) as us, bench.Child(__file__, options.peer_python or sys.executable) as them:
        us("load", **small, column_major=False)
        us("ours", **{**fits["FGM to gap 1e-3"], "B": 2})
        if peers:
            them("load", **small, column_major=True)
        for name in peers:
            them("peer", name=name, wanted=3)
        for seed in range(options.seeds):
            us("load", **sizes, seed=seed, column_major=False)
            if peers:
                them("load", **sizes, seed=seed, column_major=True)
            for name, fit in fits.items():
                found[name].append(us("ours", **fit))
            for name in peers:
                found[name].append(them("peer", name=name, wanted=options.B * options.rounds))
    return found


def report_seeds(report: bench.Report, options, peers: list[str]) -> None:
    found = run_seeds(options, peers)
    for name, rows in found.items():
        report.time(f"{name}, one fit and one refit" if name in peers else f"{name}, one fit", bench.timing_of(rows))
        for key in rows[0]:
            if key not in ("seconds", "cpu", "peak"):
                report.value(f"{name}: {key}, mean of {options.seeds} seeds", float(np.mean([row[key] for row in rows])))
        report.value(f"{name}: peak memory of its process", max(row["peak"] for row in rows) / 2**30, unit=" GiB")
    for peer_name, ours_name in itertools.product(peers, fits_of(options)):
        target = 1 / 5 if "max_inner" in ours_name else None
        report.ratio(f"{ours_name} : {peer_name}", bench.timing_of(found[ours_name]), bench.timing_of(found[peer_name]), target)
        gain, error = paired([row["accuracy"] for row in found[ours_name]], [row["refitted"] for row in found[peer_name]])
        report.value(f"accuracy: {ours_name} minus {peer_name} refitted", gain, ">= 0")
        report.note(f"{ours_name} minus {peer_name} refitted: {gain:+.4f} +- {error:.4f} over {options.seeds} seeds")
    for name in fits_of(options):
        passes = (options.rounds + 1) * float(np.median([row["read"] for row in found[name]]))
        report.value(f"{name}: time : reading all passes at full bandwidth", bench.timing_of(found[name]).median / passes, unit="x")


def report_wide(report: bench.Report, options) -> None:
    fit = next(iter(fits_of(options).values()))
    with bench.Child(__file__) as child:
        child("wide", n=200, n_groups=40, relevant=3, **fit, seed=0)
        rows = [
            child("wide", n=options.n, n_groups=options.wide_groups, relevant=options.relevant, **fit, seed=s)
            for s in range(options.wide_reps)
        ]
    report.time("FGM alone, float32", bench.timing_of(rows))
    report.value("seconds", bench.timing_of(rows).median, "<= 60", unit=" s")
    for key in rows[0]:
        if key not in ("seconds", "cpu"):
            scale, unit = (2**30, " GiB") if key in ("extra", "peak") else (1, "")
            report.value(f"wide: {key}", float(np.median([row[key] for row in rows])) / scale, unit=unit)


def main() -> None:
    parser = bench.arguments(
        __doc__, n=4096, groups=4000, relevant=100, B=20, rounds=5, cost=10.0, seeds=5, wide_groups=40_000, wide_reps=1, max_inner=1
    )
    parser.add_argument("--loss", default="logistic", choices=["squared_hinge", "logistic"])
    parser.add_argument("--peer-python", help="interpreter of the peers' environment (benchmarks/peers.sh)")
    parser.add_argument("--peers", default="celer,skglm")
    parser.add_argument("--wide", action="store_true", help="only the wide workload, FGM alone")
    options = parser.parse_args()
    if options.tiny:
        options.n, options.groups, options.relevant, options.B, options.seeds, options.wide_groups = 300, 60, 10, 2, 2, 100
    width = options.wide_groups if options.wide else options.groups
    report = bench.Report(f"FGM on groups, {options.n} x {10 * width}, B={options.B}, T={options.rounds}, {options.loss}", options)
    found = {}
    if options.wide:
        report_wide(report, options)
    else:
        peers = options.peers.split(",") if options.peer_python else []
        if peers:
            with bench.Child(__file__, options.peer_python) as child:
                found = {name: str(value) for name, value in child("packages").items() if name.startswith("peers'")}
        else:
            report.note("no --peer-python: FGM alone (see benchmarks/peers.sh)")
        report_seeds(report, options, peers)
        if options.tiny:
            report_wide(report, options)
    report.show(found)


if __name__ == "__main__":
    bench.serve(load, ours, peer, packages, wide)
    main()
