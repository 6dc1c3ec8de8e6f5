"""Programs beside libraries that live in environments of their own (benchmarks/peers.sh), whose python is told by an option.

Such an environment imports this file, too, and has no gramplane. Each side holds its data in a process of its own; peers get column-major
data before their clock starts. Without an environment ours runs alone.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import functools
import importlib.util
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.svm import SVC

from benchmarks._harness import HELD
from benchmarks._peers import refit, refit_r2, ridge_svm


def packages(names: list[str]) -> dict[str, Any]:
    return {f"{names[0]}: {name}": version for name, version in bench.versions(names).items() if name != "python"}


def beside(report: bench.Report, options: Any, *names: str) -> list[str]:
    """Return the peers of the environment of ``--peer-python``, and tell the versions there; without one none, which a note says."""
    if not options.peer_python:
        report.note(f"no --peer-python: without {' and '.join(names)} (see benchmarks/peers.sh)")
        return []
    with bench.Child(__file__, options.peer_python) as child:
        found = child("packages", names=[*names, "numpy", "scikit-learn"])
    report.packages |= {name: version for name, version in found.items() if isinstance(version, str)}
    return list(names)


def alpha_for(count: Callable[[float], int], wanted: int, high: float) -> tuple[float, int]:
    """Return the alpha below ``high`` that keeps ``wanted`` columns or groups within 5 %, and the fits it took."""
    low, alpha, found = 0.0, 0.7 * high, []
    for _ in range(14):
        kept = count(alpha)
        found.append((abs(kept - wanted), alpha))
        if abs(kept - wanted) <= 0.05 * wanted:
            break
        low, high = (low, alpha) if kept < wanted else (alpha, high)
        alpha = 0.85 * high if low == 0.0 else float(np.sqrt(low * high))
    return min(found)[1], len(found)


def tell_means(report: bench.Report, name: str, rows: list[dict[str, Any]]) -> None:
    told = [{key: value for key, value in row.items() if key not in ("seconds", "cpu", "peak")} for row in rows]
    report.means(told, f"{name}: ", f", mean of {len(rows)} seeds")


def group_lasso(name: str, alpha: float, **given: Any) -> Any:
    return getattr(importlib.import_module(name), "GroupLasso")(groups=10, alpha=alpha, fit_intercept=False, **given)  # noqa: B009


# -- fgm_groups --------------------------------------------------------------------------------------------------------------


@functools.cache
def generators() -> Any:
    """Return the module of generators by its path: the peers' environment has no gramplane."""
    spec = importlib.util.spec_from_file_location("generators", bench.ROOT / "pipeline" / "synthetic" / "linear.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["generators"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def groups_load(n: int, n_groups: int, relevant: int, seed: int, column_major: bool) -> None:
    HELD.clear()
    data = generators().dense_groups(n, n_groups, 10, relevant, n_test=max(n // 2, 100), seed=seed)
    HELD.update(data=data, X=np.asfortranarray(data.X) if column_major else data.X)


def groups_told(groups: np.ndarray) -> dict[str, int]:
    return {"groups": len(groups), "true": len(np.intersect1d(groups, HELD["data"].relevant))}


def groups_ours(B: int, rounds: int, cost: float, loss: str, max_inner: int | None) -> dict[str, Any]:
    from gramplane import FGMClassifier

    data = HELD["data"]
    settings = {"B": B, "max_rounds": rounds, "C": cost, "loss": loss, "max_inner": max_inner, "fit_intercept": False, "scale": None}
    clock, model = bench.clocked(lambda: FGMClassifier(groups=data.groups, **settings).fit(HELD["X"], data.y))
    found = {"accuracy": model.score(data.X_test, data.y_test), **groups_told(model.selected_)}
    found |= {name: float(values.sum()) for name, values in model.history_.items() if name.startswith("seconds_")}
    return {**clock, **found, "relative_gap": model.dual_gap_ / model.objective_, "read": bench.best_read(HELD["X"], 2)}


def kept_groups(model: Any) -> np.ndarray:
    return np.flatnonzero(np.any(np.asarray(model.coef_).reshape(-1, 10), axis=1))


def groups_peer(name: str, wanted: int) -> dict[str, Any]:
    """Search alpha and the refit's C, then time one fit of each."""
    data, X, y = HELD["data"], HELD["X"], HELD["data"].y.astype(float)
    high = float(np.linalg.norm((X.T @ y).reshape(-1, 10), axis=1).max()) / len(y)
    count = lambda alpha: len(kept_groups(group_lasso(name, alpha).fit(X, y)))  # noqa: E731
    searched, (alpha, fits) = bench.clocked(lambda: alpha_for(count, wanted, high))
    clock, model = bench.clocked(lambda: group_lasso(name, alpha).fit(X, y))
    features = np.flatnonzero(np.isin(data.groups, kept_groups(model)))
    searching, again = bench.clocked(lambda: refit(data.X, data.y, features))
    refitting, _ = bench.clocked(lambda: ridge_svm(again.C).fit(data.X[:, features], data.y))
    accuracy = float(np.mean((data.X_test @ model.coef_ > 0) == (data.y_test > 0)))
    refitted = again.score(data.X_test[:, features], data.y_test)
    others = {"seconds_lasso": clock["seconds"], "seconds_refit": refitting["seconds"], "fits": fits}
    searches = {"seconds_search_alpha": searched["seconds"], "seconds_search_C": searching["seconds"]}
    clock = {part: clock[part] + refitting[part] for part in clock}
    return {**clock, "accuracy": accuracy, "refitted": refitted, **others, **searches, **groups_told(kept_groups(model))}


@bench.program(
    n=(4096, 300), groups=(4000, 60), relevant=(100, 10), B=(20, 2), rounds=5, seeds=(5, 2), max_inner=1, loss="logistic", peer_python=None
)
def fgm_groups(report: bench.Report, options: Any) -> None:
    """Groups of 10 features, 4,096 x 40,000: FGM against the group lasso of celer and skglm with a refit.

    The seeds are the repetitions. FGM runs twice: with at most ``max_inner`` steps a round, with the gap that leaves, and to a gap of 1e-3.
    """
    title = f"FGM on groups, {options.n} x {10 * options.groups}, B={options.B}, T={options.rounds}, {options.loss}"
    report.title, peers = title, beside(report, options, "celer", "skglm")
    fit = {"B": options.B, "rounds": options.rounds, "cost": 10.0, "loss": options.loss}
    capped, exact = f"FGM, max_inner={options.max_inner}", "FGM to gap 1e-3"
    fits = {capped: {**fit, "max_inner": options.max_inner}, exact: {**fit, "max_inner": None}}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in (*fits, *peers)}
    small = {"n": 200, "n_groups": 40, "relevant": 3, "seed": 0}
    sizes = {"n": options.n, "n_groups": options.groups, "relevant": options.relevant}
    with bench.Child(__file__) as us, bench.Child(__file__, options.peer_python or sys.executable) as them:
        us("groups_load", **small, column_major=False)
        us("groups_ours", **{**fits[exact], "B": 2})
        for name in peers:
            them("groups_load", **small, column_major=True)
            them("groups_peer", name=name, wanted=3)
        for seed in range(options.seeds):
            us("groups_load", **sizes, seed=seed, column_major=False)
            for name, given in fits.items():
                found[name].append(us("groups_ours", **given))
            if peers:
                them("groups_load", **sizes, seed=seed, column_major=True)
            for name in peers:
                found[name].append(them("groups_peer", name=name, wanted=options.B * options.rounds))
    times = {name: bench.timing_of(rows) for name, rows in found.items()}
    for name, rows in found.items():
        report.time(f"{name}, one fit and one refit" if name in peers else f"{name}, one fit", times[name])
        tell_means(report, name, rows)
        report.value(f"{name}: peak memory of its process", max(row["peak"] for row in rows) / 2**30, unit=" GiB")
    for peer, ours in itertools.product(peers, fits):
        report.ratio(f"{ours} : {peer}", times[ours], times[peer], 1 / 5 if ours == capped else None)
        mine, theirs = [row["accuracy"] for row in found[ours]], [row["refitted"] for row in found[peer]]
        report.gain(f"accuracy: {ours} minus {peer} refitted", mine, theirs, ">= 0")
    for name in fits:
        passes = (options.rounds + 1) * float(np.median([row["read"] for row in found[name]]))
        report.value(f"{name}: time : reading all passes at full bandwidth", times[name].median / passes, unit="x")


# -- fgm_targets -------------------------------------------------------------------------------------------------------------

COUNTS = {"sarcos_test": (3, 6, 10), "bardet": (5, 10, 20), "diabetes": (2, 5)}
FITS: dict[str, dict[str, Any]] = {
    **{f"FGM, {loss}": {"loss": loss} for loss in ("squared", "squared_epsilon_insensitive", "huber")},
    "FGM, squared, 10 covariates": {"covariates": 10},
}


def targets_load(n: int, d: int, relevant: int, seed: int, column_major: bool) -> dict[str, Any]:
    """Make the data of a seed, half as many rows for the test; the digest tells that all processes made the same."""
    HELD.clear()
    rng = np.random.default_rng(seed)
    columns, n_test = np.sort(rng.choice(d, relevant, replace=False)), max(n // 2, 100)
    w = rng.standard_normal(relevant) + np.sign(rng.standard_normal(relevant))
    X, X_test = rng.standard_normal((n, d)), rng.standard_normal((n_test, d))
    noise = 0.5 * float(np.linalg.norm(w))
    y, y_test = (part[:, columns] @ w + noise * rng.standard_normal(len(part)) + 10.0 for part in (X, X_test))
    HELD.update(X=np.asfortranarray(X) if column_major else X, y=y, X_test=X_test, y_test=y_test, columns=columns)
    return {"digest": f"{y.sum():.6g}"}


def targets_told(clock: dict[str, float], features: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    y = HELD["y_test"]
    again, refitted = bench.clocked(lambda: refit_r2(HELD["X"], HELD["y"], HELD["X_test"], y, features))
    fitted = 1.0 - float(np.sum((y - predicted) ** 2) / np.sum((y - y.mean()) ** 2))
    found = {"features": len(features), "true": len(np.intersect1d(features, HELD["columns"]))}
    return {**clock, "R2": fitted, "R2 refitted": refitted, "seconds of the refit": again["seconds"], **found}


def targets_ours(B: int, wanted: int, cost: float, loss: str = "squared", covariates: int = 0) -> dict[str, Any]:
    """Fit FGM, with covariates of no use if some are asked for."""
    X, rng = HELD["X"], np.random.default_rng(1)
    beside = {"covariates": rng.standard_normal((len(X), covariates))} if covariates else {}
    clock, model = bench.clocked(lambda: fgm_regressor(B, wanted, cost, loss).fit(X, HELD["y"], **beside))
    at_test = {"covariates": np.zeros((len(HELD["y_test"]), covariates))} if covariates else {}
    told = targets_told(clock, model.selected_, model.predict(HELD["X_test"], **at_test))
    return {**told, "relative gap": model.dual_gap_ / model.objective_}


def fgm_regressor(B: int, k: int, cost: float, loss: str = "squared") -> Any:
    from gramplane import FGMRegressor

    shared = {"allow_repeat": False, "fit_intercept": True, "scale": None}
    return FGMRegressor(B=B, max_rounds=k, n_features_to_select=k, C=cost, loss=loss, **shared)


def lasso(name: str, alpha: float) -> Any:
    return importlib.import_module({"scikit-learn": "sklearn.linear_model"}.get(name, name)).Lasso(alpha=alpha)


def targets_peer(name: str, wanted: int) -> dict[str, Any]:
    X, y = HELD["X"], HELD["y"]
    high = float(np.abs(X.T @ (y - y.mean())).max()) / len(y)
    count = lambda alpha: np.count_nonzero(lasso(name, alpha).fit(X, y).coef_)  # noqa: E731
    searched, (alpha, fits) = bench.clocked(lambda: alpha_for(count, wanted, high))
    clock, model = bench.clocked(lambda: lasso(name, alpha).fit(X, y))
    told = targets_told(clock, np.sort(heaviest(model.coef_, wanted)), model.predict(HELD["X_test"]))
    return {**told, "fits": fits, "seconds of the search": searched["seconds"]}


def heaviest(coef: np.ndarray, k: int) -> np.ndarray:
    """Return the k columns with the largest weights, or all that have one."""
    return np.argsort(-np.abs(coef), kind="stable")[: min(k, np.count_nonzero(coef))]


def targets_seed(options: Any, pythons: dict[str, str], seed: int) -> dict[str, dict[str, Any]]:
    """Run every program on a seed, each after a small warm run, one at a time: each holds a copy of the data."""
    found: dict[str, dict[str, Any]] = {}
    small, sizes = {"n": 200, "d": 50, "relevant": 5}, {"n": options.n, "d": options.d, "relevant": options.relevant}
    with bench.Child(__file__) as us:
        us("targets_load", **small, seed=0, column_major=False)
        for fit in FITS.values():
            us("targets_ours", B=1, wanted=5, cost=1.0, **fit)
        digest = us("targets_load", **sizes, seed=seed, column_major=False)["digest"]
        for name, fit in FITS.items():
            found[name] = us("targets_ours", B=options.B, wanted=options.relevant, cost=options.cost, **fit)
    for name, python in pythons.items():
        with bench.Child(__file__, python) as them:
            them("targets_load", **small, seed=0, column_major=True)
            them("targets_peer", name=name, wanted=5)
            assert them("targets_load", **sizes, seed=seed, column_major=True)["digest"] == digest, "generators differ"
            found[name] = them("targets_peer", name=name, wanted=options.relevant)
    return found


def targets_planted(report: bench.Report, options: Any, pythons: dict[str, str], parts: bench.Parts) -> None:
    seeds = [parts(f"seed {seed}", functools.partial(targets_seed, options, pythons, seed)) for seed in range(options.seeds)]
    found = {name: [rows[name] for rows in seeds] for name in (*FITS, *pythons)}
    times = {name: bench.timing_of(rows) for name, rows in found.items()}
    for name, rows in found.items():
        report.time(f"{name}, one fit", times[name])
        tell_means(report, name, rows)
    refitted = {name: [row["R2 refitted"] for row in rows] for name, rows in found.items()}
    for name in pythons:
        report.ratio(f"FGM : {name}", times["FGM, squared"], times[name], None)
        report.gain(f"R2: FGM minus {name}, both refitted", refitted["FGM, squared"], refitted[name], ">= 0")
    report.ratio("FGM with 10 covariates : without", times["FGM, squared, 10 covariates"], times["FGM, squared"], None)


def real_targets(tiny: bool) -> Iterator[tuple[str, np.ndarray, np.ndarray, tuple[int, ...]]]:
    from sklearn.datasets import load_diabetes

    if not tiny or os.environ.get("GRAMPLANE_DATA"):
        held = bench.arrays("bardet")
        yield "bardet", held["X"].astype(float), held["y"].astype(float), COUNTS["bardet"][: 1 if tiny else None]
        held = bench.arrays("sarcos_test")
        for torque in range(1 if tiny else 7):
            yield f"sarcos_test, torque {torque + 1}", held["X"], held["Y"][:, torque], COUNTS["sarcos_test"][: 1 if tiny else None]
    X, y = load_diabetes(return_X_y=True)
    yield "diabetes", X, y, COUNTS["diabetes"]


def by_fgm(X: np.ndarray, y: np.ndarray, k: int, rounds: int = 5) -> np.ndarray:
    """Return k features of FGM, by at least so many rounds; its C by cross-validation of refitted R2."""
    from sklearn.model_selection import KFold

    def chosen(rows: np.ndarray, C: float) -> np.ndarray:
        return fgm_regressor(max(1, -(-k // rounds)), k, C).fit(X[rows], y[rows]).selected_

    def value(C: float) -> float:
        folds = KFold(3, shuffle=True, random_state=0).split(X)
        return float(np.mean([refit_r2(X[a], y[a], X[b], y[b], chosen(a, C)) for a, b in folds]))

    return chosen(np.arange(len(y)), 0.1 if rounds == 1 else max((0.1, 1.0, 10.0), key=value))


def by_lasso(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Return the features of the first point of the lasso's path with k of them, the heaviest if there are more."""
    from sklearn.linear_model import lasso_path

    coefs = lasso_path(X, y - y.mean(), alphas=300)[1]
    enough = np.flatnonzero(np.count_nonzero(coefs, axis=0) >= k)
    return heaviest(coefs[:, enough[0] if len(enough) else -1], k)


METHODS = {"FGM": by_fgm, "first pass": functools.partial(by_fgm, rounds=1), "lasso": by_lasso}


def targets_split(X: np.ndarray, y: np.ndarray, counts: tuple[int, ...], seed: int) -> dict[str, list[float]]:
    """Return R2 of every method at every count, on a third of the rows."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: 2 * len(y) // 3], order[2 * len(y) // 3 :]
    mean, spread = X[train].mean(axis=0), X[train].std(axis=0)
    Z = (X - mean) / np.where(spread > 0, spread, 1.0)
    return {
        name: [refit_r2(Z[train], y[train], Z[test], y[test], method(Z[train], y[train], k)) for k in counts]
        for name, method in METHODS.items()
    }


def targets_real(report: bench.Report, options: Any, parts: bench.Parts) -> None:
    gains: list[float] = []
    for name, X, y, counts in real_targets(options.tiny):
        of_split = functools.partial(targets_split, X, y, counts)
        splits = [parts(f"{name}, split {seed}", functools.partial(of_split, seed)) for seed in range(options.splits)]
        means = {method: np.mean([told[method] for told in splits], axis=0) for method in METHODS}
        for method, values in means.items():
            report.values({f"{name}, {k} features, {method}: R2": float(v) for k, v in zip(counts, values, strict=True)}, form=".3f")
        gains += list(means["FGM"] - means["lasso"])
    report.value("real sets, FGM minus lasso, both refitted: R2, mean over sets and counts", float(np.mean(gains)), ">= 0", form="+.4f")


@bench.program(
    n=(4096, 300),
    d=(20_000, 120),
    relevant=(100, 10),
    B=(10, 2),
    cost=10.0,
    seeds=(5, 2),
    splits=(10, 2),
    parts="planted,real",
    peer_python=None,
    keep=None,
)
def fgm_targets(report: bench.Report, options: Any) -> None:
    """Real targets: FGM beside the lasso of scikit-learn and celer at equal feature counts; time and R2, all refitted.

    * *Planted*: normal columns, 100 relevant ones, noise of half the signal's deviation. The seeds are the repetitions. A peer's alpha is
      searched until it keeps as many columns as FGM within 5 % (the heaviest of them count if there are more), then one fit is timed, as if
      alpha had been known.
    * *Real*: sarcos_test (seven torques), bardet, and diabetes of scikit-learn, standardised on the training part, the same splits for all:
      FGM, its first pass alone, and the lasso's path. FGM's C comes from a small grid by cross-validation inside the training part.

    With ``--keep FILE`` every seed, and every split of a real set, is written down when it is measured: the same command goes on behind it.

    A refit is ridge regression on the chosen columns, its penalty from the same grid by leave-one-out for every method.
    """
    report.title = f"FGM on real targets, {options.n} x {options.d}, {options.relevant} relevant"
    pythons = {"scikit-learn": sys.executable, **dict.fromkeys(beside(report, options, "celer"), options.peer_python)}
    sizes = {name: getattr(options, name) for name in ("n", "d", "relevant", "B", "cost", "tiny")}
    parts = bench.Parts(options.keep, {**sizes, "peers": sorted(pythons)})
    if "planted" in options.parts:
        targets_planted(report, options, pythons, parts)
    if "real" in options.parts:
        targets_real(report, options, parts)
    if len(parts.commits) > 1:
        report.note(f"parts were measured at several commits: {', '.join(sorted(parts.commits))}")


# -- group_lasso_batch -------------------------------------------------------------------------------------------------------

SIZE = 10
"""Features of a group."""


def batch_load(n: int, d: int, true_groups: int, noise: float, seed: int, column_major: bool) -> None:
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
    HELD.update(X=X, y=y, largest=float(np.linalg.norm((X.T @ y).reshape(-1, SIZE), axis=1).max()) / n)


def batch_told(coef: np.ndarray, alpha: float) -> dict[str, float]:
    """Return the objective, summed anew, and the groups of a solution."""
    norms = np.linalg.norm(coef.reshape(-1, SIZE), axis=1)
    rest = HELD["y"] - HELD["X"] @ coef
    return {"objective": float(rest @ rest) / (2 * len(rest)) + alpha * float(norms.sum()), "groups": int(np.count_nonzero(norms))}


def batch_ours(share: float, tol: float) -> dict[str, Any]:
    """Fit GroupLassoRegressor; the penalty of a group is lam sqrt(d_g)."""
    from gramplane import GroupLassoRegressor

    X, y, alpha = HELD["X"], HELD["y"], HELD["largest"] / share
    shared = {"algorithm": "fista", "groups": np.arange(X.shape[1]) // SIZE, "fit_intercept": False, "scale": None}
    clock, model = bench.clocked(lambda: GroupLassoRegressor(lam=alpha / np.sqrt(SIZE), tol=tol, **shared).fit(X, y))
    gap, engine = model.dual_gap_ / model.objective_, str(model.history_["engine"][-1])
    return {**clock, **batch_told(np.asarray(model.coef_).ravel(), alpha), "relative_gap": gap, "engine": engine}


def batch_peer(name: str, share: float, tol: float) -> dict[str, Any]:
    alpha = HELD["largest"] / share
    clock, model = bench.clocked(lambda: group_lasso(name, alpha, tol=tol).fit(HELD["X"], HELD["y"]))
    return {**clock, **batch_told(np.asarray(model.coef_).ravel(), alpha)}


@bench.program(
    n=(1_000_000, 3_000),
    d=(160, 40),
    wide_n=(8_000, 200),
    wide_d=(3_000, 600),
    tall_reps=(3, 1),
    peer_python=None,
    only="tall,wide",
    reps=(5, 1),
)
def group_lasso_batch(report: bench.Report, options: Any) -> None:
    """Batch group lasso, squared loss, groups of 10: tall (1,000,000 x 160) and wide data (8,000 x 3,000) against celer and skglm.

    Columns of a group have correlation .5, 5 (tall) and 20 (wide) groups are true; noise is relative to the signal, 1 for the tall data.
    Ours is ``GroupLassoRegressor(algorithm="fista")``, validation of the arrays included. Gaps of ours are relative to the objective,
    celer's to the square of the target; the objectives are compared below.
    """
    wide = f"{options.wide_n} x {options.wide_d}"
    report.title = f"Batch group lasso, {options.n} x {options.d} and {wide}, groups of {SIZE}"
    known = beside(report, options, "celer", "skglm")
    with bench.Child(__file__) as us, bench.Child(__file__, options.peer_python or sys.executable) as them:

        def load(**given: Any) -> None:
            us("batch_load", **given, column_major=False)
            them("batch_load", **given, column_major=True)

        def compare(label: str, share: float, tol: float, peers: dict[str, float | None], reps: int) -> None:
            found: dict[str, list[dict[str, Any]]] = {name: [] for name in ("ours", *peers)}
            for _ in range(reps):
                found["ours"].append(us("batch_ours", share=share, tol=tol))
                for name in peers:
                    found[name].append(them("batch_peer", name=name, share=share, tol=tol))
            mine, times = found["ours"][-1], {name: bench.timing_of(rows) for name, rows in found.items()}
            report.time(f"{label}: ours ({mine['engine']})", times["ours"])
            report.value(f"{label}: relative gap of ours", mine["relative_gap"], f"<= {tol:g}")
            report.value(f"{label}: groups", mine["groups"])
            for name, target in peers.items():
                report.time(f"{label}: {name}", times[name])
                report.ratio(f"{label}: ours : {name}", times["ours"], times[name], target)
                higher = mine["objective"] / found[name][-1]["objective"] - 1.0
                report.value(f"{label}: objective of ours above that of {name}, relative", higher, f"<= {tol:g}", form=".2e")

        # A small problem first: compiled programs are loaded.
        for n, d in ((2_000, 40), (200, 600)):
            load(n=n, d=d, true_groups=3, noise=1.0, seed=9)
            us("batch_ours", share=10.0, tol=1e-4)
            for name in known:
                them("batch_peer", name=name, share=10.0, tol=1e-4)
        if "tall" in options.only:
            load(n=options.n, d=options.d, true_groups=min(5, options.d // SIZE), noise=1.0, seed=0)
            compare("tall, alpha_max/50", 50.0, 1e-4, {"celer": 0.1} if known else {}, options.tall_reps)
        for noise in (0.3, 1.0) if "wide" in options.only else ():
            load(n=options.wide_n, d=options.wide_d, true_groups=20, noise=noise, seed=1)
            # With much noise and little penalty nearly all groups have weights: no case for a working set, shown without a target.
            for share, target in ((10.0, 0.4), (50.0, 0.4)) if noise < 1.0 else ((50.0, None),):
                # skglm did not finish within minutes at the smaller penalty.
                rivals = {"celer": target, "skglm": None} if share == 10.0 else {"celer": target}
                compare(f"wide, alpha_max/{share:g}, noise {noise:g}", share, 1e-6, rivals if known else {}, options.reps)
    report.note("ours: arrays are checked inside the clock; peers: column-major, converted before it")


# -- kta_path ----------------------------------------------------------------------------------------------------------------


def class_features(m: int, d: int, relevant: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Return normal features; of the relevant ones half are shifted by the class, half spread."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(m) < 0.5, 1, -1)
    X = rng.standard_normal((m, d), dtype=np.float32)
    X[:, : relevant // 2] += shift * y[:, None]
    X[:, relevant // 2 : relevant] *= np.where(y > 0, 2.0, 1.0)[:, None]
    return X, y


def path_load(**sizes: Any) -> None:
    HELD["data"] = class_features(**sizes)


def path_ours(wanted: int) -> dict[str, Any]:
    """Fit 50 points and the machine at the end; return the features at the p that leaves ``wanted``."""
    from gramplane import KTASelectionPath

    clock, fitted = bench.clocked(lambda: KTASelectionPath(p_end=1.02, dp=0.02, n_machines=1).fit(*HELD["data"]))
    return {**clock, "points": len(fitted.p_grid_), "features": np.argsort(-fitted.alignments_)[:wanted].tolist()}


def path_peer(wanted: int) -> dict[str, Any]:
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


def path_small(report: bench.Report, options: Any) -> None:
    sizes = {"m": options.m, "d": options.d, "relevant": options.relevant, "shift": 0.8}
    found: dict[str, list[dict[str, Any]]] = {"ours": [], "pyHSICLasso": []}
    with bench.Child(__file__) as us, bench.Child(__file__, options.peer_python or sys.executable) as them:
        us("path_load", **sizes)
        us("path_ours", wanted=options.relevant)
        if options.peer_python:
            them("path_load", **sizes)
        for _ in range(options.reps):
            found["ours"].append(us("path_ours", wanted=options.relevant))
            if options.peer_python:
                found["pyHSICLasso"].append(them("path_peer", wanted=options.relevant))
    points = f"path, {found['ours'][0]['points']} points, widths and last machine included"
    for name, target in (("ours", f">= {0.8 * options.relevant:g}"), ("pyHSICLasso", "")):
        if found[name]:
            report.time(points if name == "ours" else name, bench.timing_of(found[name]))
            hits = sum(j < options.relevant for j in found[name][0]["features"])
            report.value(f"{name}: planted among the {options.relevant} chosen", hits, target)
    if options.peer_python:
        report.ratio("ours : pyHSICLasso", *(bench.timing_of(rows) for rows in found.values()), 1 / 10)


def path_wide(report: bench.Report, options: Any) -> None:
    from gramplane import KTASelectionPath

    X, y = class_features(options.wide_m, options.wide_d, 40, 0.5)
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


@bench.program(m=(300, 80), d=(1000, 60), relevant=10, wide_m=(800, 80), wide_d=(100_000, 400), peer_python=None, reps=(5, 1))
def kta_path(report: bench.Report, options: Any) -> None:
    """Kernel selection path from data to machines: 300 rows x 1,000 features, 50 points; 100,000 features with a machine at every point.

    The small row is alignments, widths, path and the machine at its end against pyHSICLasso for as many features as were planted (its
    kernels and its path); both are asked for those features. The wide row has 101 points: alignments of all features with their widths, the
    path, and a support vector machine at every point.
    """
    report.title = f"Kernel selection path, {options.m} x {options.d:,} and {options.wide_m} x {options.wide_d:,}"
    beside(report, options, "pyHSICLasso")
    path_small(report, options)
    path_wide(report, options)


# -- EasyMKL, for mkl_elastic of kernel_speed --------------------------------------------------------------------------------

LAM, C = 0.1, 1.0


def easymkl_prepare(kernels: str, labels: str) -> dict[str, Any]:
    """Read kernels and labels of files, the kernels into float64."""
    by = next((name for name in ("MKLpy", "cvxopt") if importlib.util.find_spec(name)), None)
    if by is None:
        raise ImportError("neither MKLpy nor cvxopt is installed: sh benchmarks/peers.sh FOLDER")
    HELD.update(
        kernels=[K.astype(float) for K in np.load(kernels, mmap_mode="r")],
        y=np.load(labels),
        call=easymkl_by_mklpy if by == "MKLpy" else easymkl_by_cvxopt,
    )
    return {"by": by}


def easymkl_fit() -> dict[str, Any]:
    """Fit EasyMKL (Aiolli, Donini, Neurocomputing 169, 2015) once on what was prepared.

    It sums the kernels, solves one quadratic program in the distance of the classes' hulls, weights every kernel by its form at the
    solution, and trains an SVC on the weighted sum: by MKLpy's class where it is installed, else by the same steps with cvxopt.
    """
    return bench.clocked(lambda: HELD["call"](HELD["kernels"], HELD["y"]))[0]


def easymkl_by_mklpy(kernels: list[np.ndarray], y: np.ndarray) -> None:
    from MKLpy.algorithms import EasyMKL  # pyright: ignore[reportMissingImports]

    EasyMKL(lam=LAM, learner=SVC(C=C)).fit(kernels, y)


def easymkl_by_cvxopt(kernels: list[np.ndarray], y: np.ndarray) -> None:
    from cvxopt import matrix, solvers  # pyright: ignore[reportMissingImports]

    solvers.options["show_progress"] = False
    n, total = len(y), np.zeros_like(kernels[0])
    for K in kernels:
        total += K
    Q = 2.0 * ((1.0 - LAM) * (y[:, None] * total * y) + LAM * np.eye(n))
    hulls = np.stack([y == 1, y == -1]).astype(float)
    found = solvers.qp(matrix(Q), matrix(np.zeros(n)), matrix(-np.eye(n)), matrix(np.zeros(n)), matrix(hulls), matrix(np.ones(2)))
    beta = np.ravel(found["x"]) * y
    weights = np.array([beta @ (K @ beta) for K in kernels])
    weights /= weights.sum()
    combined = np.zeros_like(total)
    for weight, K in zip(weights, kernels):
        combined += weight * K
    SVC(kernel="precomputed", C=C).fit(combined, y)


if __name__ == "__main__":
    bench.run()
