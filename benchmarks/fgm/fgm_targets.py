"""Real targets: FGMRegressor beside the lasso of scikit-learn, celer and adelie at equal feature counts; time and R2, all refitted.

Run with ``GRAMPLANE_DATA=FOLDER python -m benchmarks.fgm.fgm_targets --peer-python P/bin/python --adelie-python P/adelie/bin/python`` after
``sh benchmarks/peers.sh P``.

* *Planted*: 4,096 x 20,000, 100 relevant columns, noise such that R2 of the truth is 0.8; every program holds the data in a process of its
  own, the peers column by column before their clock starts, and the seeds are the repetitions. A peer's alpha is searched until it keeps as
  many columns as FGM within 5 % (the heaviest of them count if there are more), then one fit is timed, as if alpha had been known.
* *Real*: sarcos_test (seven torques), bardet, and diabetes of scikit-learn, standardised on the training part, the same splits for all:
  FGM, its first pass alone, and the lasso's path. FGM's C comes from a small grid by cross-validation inside the training part.

With ``--keep FILE`` every seed, and every split of a real set, is written down when it is measured: the same command goes on behind it.

A refit is ridge regression on the chosen columns, its penalty from the same grid by leave-one-out for every method. Without environments of
peers scikit-learn's lasso runs alone beside FGM.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks._parts import Parts
from benchmarks._peers import paired, quiet_fit, refit_r2

FGM_COSTS = (0.1, 1.0, 10.0)
COUNTS = {"sarcos_test": (3, 6, 10), "bardet": (5, 10, 20), "diabetes": (2, 5)}
LOSSES = ("squared", "squared_epsilon_insensitive", "huber")
HELD: dict[str, Any] = {}
"""Data of a child process."""


# -- served ----------------------------------------------------------------------------------------------------------------


def load(n: int, d: int, relevant: int, seed: int, column_major: bool) -> dict[str, Any]:
    """Make the data of a seed, half as many rows for the test; the digest tells that all processes made the same."""
    HELD.clear()
    rng = np.random.default_rng(seed)
    columns, n_test = np.sort(rng.choice(d, relevant, replace=False)), max(n // 2, 100)
    w = rng.standard_normal(relevant) + np.sign(rng.standard_normal(relevant))
    X, X_test = rng.standard_normal((n, d)), rng.standard_normal((n_test, d))
    noise = 0.5 * float(np.linalg.norm(w))
    y = X[:, columns] @ w + noise * rng.standard_normal(n) + 10.0
    y_test = X_test[:, columns] @ w + noise * rng.standard_normal(n_test) + 10.0
    HELD.update(X=np.asfortranarray(X) if column_major else X, y=y, X_test=X_test, y_test=y_test, columns=columns)
    return {"digest": f"{y.sum():.6g}"}


def _told(clock: dict[str, float], features: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    y = HELD["y_test"]
    again, refitted = bench.clocked(lambda: refit_r2(HELD["X"], HELD["y"], HELD["X_test"], y, features))
    fitted = 1.0 - float(np.sum((y - predicted) ** 2) / np.sum((y - y.mean()) ** 2))
    found = {"features": len(features), "true": len(np.intersect1d(features, HELD["columns"]))}
    return {**clock, "R2": fitted, "R2 refitted": refitted, "seconds of the refit": again["seconds"], **found}


def ours(B: int, wanted: int, cost: float, loss: str = "squared", covariates: int = 0) -> dict[str, Any]:
    """Fit FGM, with covariates of no use if some are asked for."""
    from gramplane import FGMRegressor

    X, rng = HELD["X"], np.random.default_rng(1)
    beside = {"covariates": rng.standard_normal((len(X), covariates))} if covariates else {}
    made = FGMRegressor(
        B=B, max_rounds=wanted, n_features_to_select=wanted, C=cost, loss=loss, allow_repeat=False, fit_intercept=True, scale=None
    )
    clock, model = bench.clocked(lambda: made.fit(X, HELD["y"], **beside))
    at_test = {"covariates": np.zeros((len(HELD["y_test"]), covariates))} if covariates else {}
    told = _told(clock, model.selected_, model.predict(HELD["X_test"], **at_test))
    return {**told, "relative gap": model.dual_gap_ / model.objective_}


class _Adelie:
    """The lasso of adelie, as scikit-learn's is called."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Adelie:
        import adelie

        state = adelie.grpnet(
            X, adelie.glm.gaussian(y), lmda_path=np.array([self.alpha]), early_exit=False, progress_bar=False, n_threads=1
        )
        self.coef_, self.intercept_ = np.asarray(state.betas[-1].todense()).ravel(), float(state.intercepts[-1])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X @ self.coef_ + self.intercept_


def _lasso(name: str, alpha: float) -> Any:
    if name == "adelie":
        return _Adelie(alpha)
    if name == "celer":
        from celer import Lasso

        return Lasso(alpha=alpha)
    from sklearn.linear_model import Lasso

    return Lasso(alpha=alpha)


def _search(name: str, wanted: int) -> tuple[float, int]:
    """Return the alpha with ``wanted`` features within 5 %, and the fits it took."""
    X, y = HELD["X"], HELD["y"]
    high = float(np.abs(X.T @ (y - y.mean())).max()) / len(y)
    low, alpha, found = 0.0, 0.7 * high, []
    for _ in range(14):
        count = np.count_nonzero(quiet_fit(_lasso(name, alpha), X, y).coef_)
        found.append((abs(count - wanted), alpha))
        if abs(count - wanted) <= 0.05 * wanted:
            break
        low, high = (low, alpha) if count < wanted else (alpha, high)
        alpha = 0.85 * high if low == 0.0 else float(np.sqrt(low * high))
    return min(found)[1], len(found)


def peer(name: str, wanted: int) -> dict[str, Any]:
    """Search alpha, then time one fit."""
    searched, (alpha, fits) = bench.clocked(lambda: _search(name, wanted))
    clock, model = bench.clocked(lambda: quiet_fit(_lasso(name, alpha), HELD["X"], HELD["y"]))
    features = np.sort(heaviest(model.coef_, wanted))
    return {**_told(clock, features, model.predict(HELD["X_test"])), "fits": fits, "seconds of the search": searched["seconds"]}


def heaviest(coef: np.ndarray, k: int) -> np.ndarray:
    """Return the k columns with the largest weights, or all that have one."""
    return np.argsort(-np.abs(coef), kind="stable")[: min(k, np.count_nonzero(coef))]


def packages(name: str) -> dict[str, Any]:
    """Return the versions of a peer's environment."""
    return {f"{name}: {key}": version for key, version in bench.versions((name, "numpy", "scikit-learn")).items() if key != "python"}


# -- planted ---------------------------------------------------------------------------------------------------------------


FITS: dict[str, dict[str, Any]] = {f"FGM, {loss}": {"loss": loss} for loss in LOSSES} | {"FGM, squared, 10 covariates": {"covariates": 10}}


def run_seed(options: Any, pythons: dict[str, str], seed: int) -> dict[str, dict[str, Any]]:
    """Run every program on a seed, each after a small warm run, one at a time: each holds a copy of the data."""
    found: dict[str, dict[str, Any]] = {}
    small, sizes = {"n": 200, "d": 50, "relevant": 5}, {"n": options.n, "d": options.d, "relevant": options.relevant}
    with bench.Child(__file__) as us:
        us("load", **small, seed=0, column_major=False)
        for fit in FITS.values():
            us("ours", B=1, wanted=5, cost=1.0, **fit)
        digest = us("load", **sizes, seed=seed, column_major=False)["digest"]
        for name, fit in FITS.items():
            found[name] = us("ours", B=options.B, wanted=options.relevant, cost=options.cost, **fit)
    for name, python in pythons.items():
        with bench.Child(__file__, python) as them:
            them("load", **small, seed=0, column_major=True)
            them("peer", name=name, wanted=5)
            assert them("load", **sizes, seed=seed, column_major=True)["digest"] == digest, "generators differ"
            found[name] = them("peer", name=name, wanted=options.relevant)
    return found


def report_planted(report: bench.Report, options: Any, pythons: dict[str, str], parts: Parts) -> None:
    seeds = [parts.get(f"seed {seed}", lambda seed=seed: run_seed(options, pythons, seed)) for seed in range(options.seeds)]
    found = {name: [rows[name] for rows in seeds] for name in (*FITS, *pythons)}
    for name, rows in found.items():
        report.time(f"{name}, one fit", bench.timing_of(rows))
        for key in rows[0]:
            if key not in ("seconds", "cpu", "peak"):
                report.value(f"{name}: {key}, mean of {options.seeds} seeds", float(np.mean([row[key] for row in rows])))
    first = found["FGM, squared"]
    for name in pythons:
        report.ratio(f"FGM : {name}", bench.timing_of(first), bench.timing_of(found[name]), None)
        gain, error = paired([row["R2 refitted"] for row in first], [row["R2 refitted"] for row in found[name]])
        report.value(f"R2: FGM minus {name}, both refitted", gain, ">= 0")
        report.note(f"planted, FGM minus {name}, both refitted: {gain:+.4f} +- {error:.4f} over {options.seeds} seeds")
    beside = bench.timing_of(found["FGM, squared, 10 covariates"])
    report.ratio("FGM with 10 covariates : without", beside, bench.timing_of(first), None)


# -- real ------------------------------------------------------------------------------------------------------------------


def real_sets(tiny: bool) -> Iterator[tuple[str, np.ndarray, np.ndarray, tuple[int, ...]]]:
    """Yield name, rows, target and feature counts."""
    from sklearn.datasets import load_diabetes

    if not tiny or os.environ.get("GRAMPLANE_DATA"):
        folder = bench.data_folder()
        with np.load(folder / "bardet.npz") as arrays:
            yield "bardet", arrays["X"].astype(float), arrays["y"].astype(float), COUNTS["bardet"][: 1 if tiny else None]
        with np.load(folder / "sarcos_test.npz") as arrays:
            for torque in range(1 if tiny else 7):
                yield f"sarcos_test, torque {torque + 1}", arrays["X"], arrays["Y"][:, torque], COUNTS["sarcos_test"][: 1 if tiny else None]
    X, y = load_diabetes(return_X_y=True)
    yield "diabetes", X, y, COUNTS["diabetes"]


def by_fgm(X: np.ndarray, y: np.ndarray, k: int, rounds: int = 5) -> np.ndarray:
    """Return k features of FGM, by at least so many rounds; its C by cross-validation of refitted R2."""
    from sklearn.model_selection import KFold

    from gramplane import FGMRegressor

    def chosen(rows: np.ndarray, C: float) -> np.ndarray:
        B = max(1, -(-k // rounds))
        made = FGMRegressor(B=B, max_rounds=k, n_features_to_select=k, C=C, allow_repeat=False, fit_intercept=True, scale=None)
        return quiet_fit(made, X[rows], y[rows]).selected_

    def value(C: float) -> float:
        folds = KFold(3, shuffle=True, random_state=0).split(X)
        return float(np.mean([refit_r2(X[a], y[a], X[b], y[b], chosen(a, C)) for a, b in folds]))

    best = FGM_COSTS[0] if rounds == 1 else max(FGM_COSTS, key=value)
    return chosen(np.arange(len(y)), best)


def by_first_pass(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Return the k features of the first cut: those that correlate most."""
    return by_fgm(X, y, k, rounds=1)


def by_lasso(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Return the features of the first point of the lasso's path with k of them, the heaviest if there are more."""
    from sklearn.linear_model import lasso_path

    with warnings.catch_warnings():
        # At its end the path does not converge, and is not used.
        warnings.simplefilter("ignore", ConvergenceWarning)
        coefs = lasso_path(X, y - y.mean(), alphas=300)[1]
    enough = np.flatnonzero(np.count_nonzero(coefs, axis=0) >= k)
    return heaviest(coefs[:, enough[0] if len(enough) else -1], k)


METHODS = {"FGM": by_fgm, "first pass": by_first_pass, "lasso": by_lasso}


def on_split(X: np.ndarray, y: np.ndarray, counts: tuple[int, ...], seed: int) -> dict[str, list[float]]:
    """Return R2 of every method at every count, on a third of the rows."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: 2 * len(y) // 3], order[2 * len(y) // 3 :]
    mean, spread = X[train].mean(axis=0), X[train].std(axis=0)
    Z = (X - mean) / np.where(spread > 0, spread, 1.0)
    return {
        name: [refit_r2(Z[train], y[train], Z[test], y[test], method(Z[train], y[train], k)) for k in counts]
        for name, method in METHODS.items()
    }


def report_real(report: bench.Report, options: Any, parts: Parts) -> None:
    gains: list[float] = []
    for name, X, y, counts in real_sets(options.tiny):
        splits = [
            parts.get(f"{name}, split {seed}", lambda X=X, y=y, counts=counts, seed=seed: on_split(X, y, counts, seed))
            for seed in range(options.splits)
        ]
        means = {method: np.mean([told[method] for told in splits], axis=0) for method in METHODS}
        for method, values in means.items():
            for k, value in zip(counts, values, strict=True):
                report.value(f"{name}, {k} features, {method}: R2", float(value), form=".3f")
        gains += list(means["FGM"] - means["lasso"])
    report.value("real sets, FGM minus lasso, both refitted: R2, mean over sets and counts", float(np.mean(gains)), ">= 0", form="+.4f")


def main() -> None:
    parser = bench.arguments(__doc__, n=4096, d=20_000, relevant=100, B=10, cost=10.0, seeds=5, splits=10, parts="planted,real")
    parser.add_argument("--peer-python", help="interpreter of the peers' environment (benchmarks/peers.sh), for celer")
    parser.add_argument("--adelie-python", help="interpreter of adelie's environment (benchmarks/peers.sh)")
    parser.add_argument(
        "--keep", metavar="FILE", help="where every part is written down when it is measured; what is there is not run again"
    )
    options = parser.parse_args()
    if options.tiny:
        options.n, options.d, options.relevant, options.B, options.seeds, options.splits = 300, 120, 10, 2, 2, 2
    report = bench.Report(f"FGM on real targets, {options.n} x {options.d}, {options.relevant} relevant", options)
    pythons = {"scikit-learn": sys.executable, "celer": options.peer_python, "adelie": options.adelie_python}
    pythons = {name: python for name, python in pythons.items() if python}
    found: dict[str, str] = {}
    for name in ("celer", "adelie"):
        if name not in pythons:
            report.note(f"no interpreter for {name} (see benchmarks/peers.sh)")
            continue
        with bench.Child(__file__, pythons[name]) as child:
            found |= {key: str(value) for key, value in child("packages", name=name).items() if key.startswith(name)}
    sizes = {name: getattr(options, name) for name in ("n", "d", "relevant", "B", "cost", "tiny")}
    parts = Parts(options.keep, {**sizes, "peers": sorted(pythons)})
    if "planted" in options.parts:
        report_planted(report, options, pythons, parts)
    if "real" in options.parts:
        report_real(report, options, parts)
    if len(parts.commits) > 1:
        report.note(f"parts were measured at several commits: {', '.join(sorted(parts.commits))}")
    report.show(found)


if __name__ == "__main__":
    bench.serve(load, ours, peer, packages)
    main()
