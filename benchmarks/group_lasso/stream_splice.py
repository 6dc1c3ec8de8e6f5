"""Splice sites: dual averaging by groups of positions against l1-RDA and the batch group lasso, at equal shares of non-zero weights.

    GRAMPLANE_DATA=FOLDER python -m benchmarks.group_lasso.stream_splice [--sets worm,donor]

Dummy coding of all 1-, 2- and 3-way terms of positions (Yang 2011, section 3.6.2): a group per term, one active column per group and row.

* worm: 100,000 acceptor candidates of C. elegans (3.3 % true), 9 positions around the site: 9 + 36 + 84 terms, 6,084 columns. 60,000 rows
  to learn from, two passes, 20,000 to choose by, 20,000 to test on.
* donor: 400 donor candidates as shipped with the R package grplasso (half true), 7 positions: 63 terms, 2,604 columns. Four folds, each
  of which is tested on once; 20 passes. The set behind the thesis' Table 3.2 (8,415 + 179,438 sites) could not be found: its figures do
  not compare.

Measure: the largest Pearson correlation, over thresholds, of labels and decisions. At each budget of non-zero weights (10, 20, 40 and 80
%) every method takes, of its (lam, gamma), the fit of largest correlation on the validation rows within the budget. Differences are
bootstrapped over test rows, the same draws for both sides: "within 0.02" asks that the mean difference is above -0.02. Groups: the number
of terms with a weight, of the fits within 40 %, when both sides are asked for the same correlation on the validation rows (that of the
weaker one, less 0.01).
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import os
import sys
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gramplane import GroupLassoClassifier
from gramplane.kernels.features.groups import build_groups
from gramplane.kernels.group_lasso.dual_averaging import Rows
from gramplane.kernels.group_lasso.penalty import group_penalty, single_features
from gramplane.kernels.group_lasso.streams import StreamLearner

BUDGETS = (0.1, 0.2, 0.4, 0.8)
METHODS = ("l1-RDA", "DA-GL", "DA-SGL")
EITHER = "DA-GL or DA-SGL"
"""Both grids together: which of the two is taken, the validation rows say."""
WITHIN, SHARE_OF_BATCH = 0.02, 0.99


class Coded(NamedTuple):
    """Rows of dummy columns: the active column of every term, labels, and the columns' terms."""

    columns: np.ndarray
    y: np.ndarray
    terms: np.ndarray

    def rows(self, chosen: np.ndarray) -> Rows:
        """Return some rows as a stream reads them."""
        active = np.ascontiguousarray(self.columns[chosen])
        n, k = active.shape
        return Rows(np.arange(n + 1, dtype=np.int64) * k, active.ravel(), np.ones(n * k), np.arange(n, dtype=np.int64))


class Fit(NamedTuple):
    """A fit: weights, intercept, shares of non-zero weights, number of terms with one, correlation on the validation rows."""

    weights: np.ndarray
    bias: float
    share: float
    n_terms: int
    correlation: float


def coded(letters: np.ndarray, y: np.ndarray, order: int = 3) -> Coded:
    """Code all terms of up to ``order`` positions."""
    columns, terms, offset = [], [], 0
    for size in range(1, order + 1):
        for places in combinations(range(letters.shape[1]), size):
            code = np.zeros(len(letters), np.int64)
            for place in places:
                code = 4 * code + letters[:, place]
            columns.append(offset + code)
            terms += [len(columns) - 1] * 4**size
            offset += 4**size
    return Coded(np.stack(columns, axis=1).astype(np.int32), np.where(y > 0, 1.0, -1.0), np.array(terms))


def decisions(data: Coded, chosen: np.ndarray, weights: np.ndarray, bias: float) -> np.ndarray:
    """Return the decision values of some rows."""
    return weights[data.columns[chosen]].sum(axis=1) + bias


def best_correlation(y: np.ndarray, f: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the largest correlation, over thresholds, of labels and decisions; ``weight`` counts how often a row was drawn."""
    order = np.argsort(-f, kind="stable")
    w = np.ones(len(y)) if weight is None else weight[order]
    told, hits = np.cumsum(w), np.cumsum(w * (y[order] > 0))
    n, true = told[-1], hits[-1]
    ends = np.append(np.diff(f[order]) != 0, False) & (told > 0) & (told < n)
    if not ends.any() or true in (0, n):
        return 0.0
    covariance = n * hits[ends] - told[ends] * true
    return float((covariance / np.sqrt(told[ends] * (n - told[ends]) * true * (n - true))).max())


def stream_fits(method: str, data: Coded, train: np.ndarray, valid: np.ndarray, passes: int, lams, gammas, seed: int = 0) -> list[Fit]:
    """Return a fit for every (lam, gamma)."""
    d = len(data.terms)
    index = build_groups(data.terms, d, "none")
    penalty = (
        single_features(d)
        if method == "l1-RDA"
        else group_penalty(index, np.sqrt(index.sizes), np.sqrt(index.sizes) if method == "DA-SGL" else 0.0)
    )
    rows, rng = data.rows(train), np.random.default_rng(seed)
    orders, y, weight = [rng.permutation(len(train)) for _ in range(passes)], data.y[train][None].copy(), np.ones(len(train))
    found = []
    for lam in lams:
        for gamma in gammas:
            learner = StreamLearner(penalty, lam, loss="logistic", gamma=gamma)
            for order in orders:
                learner.take(rows._replace(order=order), y, weight)
            weights, biases, _ = learner.weights()
            found.append(fit_of(data, valid, weights[0], float(biases[0])))
    return found


def fit_of(data: Coded, valid: np.ndarray, weights: np.ndarray, bias: float) -> Fit:
    """Return weights with their figures."""
    alive = weights != 0
    correlation = best_correlation(data.y[valid], decisions(data, valid, weights, bias))
    return Fit(weights, bias, float(alive.mean()), len(np.unique(data.terms[alive])), correlation)


def batch_fits(data: Coded, train: np.ndarray, valid: np.ndarray, lams) -> list[Fit]:
    """Return the batch group lasso's fits."""
    import scipy.sparse as sp

    rows = data.rows(train)
    X = sp.csr_array((rows.values, rows.indices, rows.indptr.astype(np.int32)), shape=(len(train), len(data.terms)))
    found = []
    for lam in lams:
        model = GroupLassoClassifier(algorithm="fista", groups=data.terms, lam=lam, tol=1e-2, max_iter=300, scale=None).fit(
            X, data.y[train]
        )
        found.append(fit_of(data, valid, np.asarray(model.coef_)[0], float(model.intercept_[0])))
    return found


def chosen(fits: list[Fit], budget: float) -> Fit:
    """Return the fit of largest correlation within a budget of non-zero weights; if none is, the sparsest."""
    within = [fit for fit in fits if fit.share <= budget] or [min(fits, key=lambda fit: fit.share)]
    return max(within, key=lambda fit: fit.correlation)


def differences(y: np.ndarray, ours: np.ndarray, theirs: np.ndarray, draws: int) -> np.ndarray:
    """Return ours less theirs over bootstrap draws of the test rows."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(draws):
        weight = np.bincount(rng.integers(0, len(y), len(y)), minlength=len(y)).astype(float)
        found.append(best_correlation(y, ours, weight) - best_correlation(y, theirs, weight))
    return np.array(found)


def fewest_terms(fits: list[Fit], least: float) -> int:
    """Return the least number of terms of the fits within 40 % that reach a correlation."""
    return min((fit.n_terms for fit in fits if fit.correlation >= least and fit.share <= 0.4), default=-1)


def compared(report: bench.Report, name: str, tests, draws: int) -> None:
    """Add the table of one set: tests are (data, validation fits by method, batch fits, test rows), one per fold."""
    for _, fits, _, _ in tests:
        fits[EITHER] = fits["DA-GL"] + fits["DA-SGL"]
    methods = (*METHODS, EITHER)
    data = tests[0][0]
    y = np.concatenate([data.y[rows] for _, _, _, rows in tests])

    def decided(method: str, budget: float) -> np.ndarray:
        parts = [(chosen(fits[method] if method != "batch" else batch, budget), rows) for _, fits, batch, rows in tests]
        return np.concatenate([decisions(data, rows, fit.weights, fit.bias) for fit, rows in parts])

    batch = best_correlation(y, decided("batch", 1.0))
    report.value(f"{name}: batch group lasso", batch)
    for budget in BUDGETS:
        found = {method: decided(method, budget) for method in methods}
        for method in methods:
            report.value(f"{name}, {budget:.0%}: {method}", best_correlation(y, found[method]))
        for method in methods[1:]:
            gap = differences(y, found[method], found["l1-RDA"], draws)
            low, high = np.percentile(gap, [2.5, 97.5])
            report.value(f"{name}, {budget:.0%}: {method} less l1-RDA", float(gap.mean()), f">= -{WITHIN}" if method == EITHER else "")
            report.note(f"{name}, {budget:.0%}: {method} less l1-RDA between {low:.4f} and {high:.4f} (95 % of {draws} paired draws)")
        share = best_correlation(y, found[EITHER]) / batch
        report.value(f"{name}, {budget:.0%}: {EITHER}, share of the batch", share, f">= {SHARE_OF_BATCH}")
    counts = {method: [] for method in methods}
    for _, fits, _, _ in tests:
        least = min(chosen(fits[method], 0.4).correlation for method in METHODS) - 0.01
        for method in methods:
            counts[method].append(fewest_terms(fits[method], least))
    for method in methods:
        target = "" if method != EITHER else f"<= {np.mean(counts['l1-RDA']):.1f}"
        report.value(f"{name}: terms at equal correlation, {method}", float(np.mean(counts[method])), target)


def read(folder: Path | None, name: str, n: int, width: int):
    """Return letters and labels; without a folder (tiny runs) drawn ones, of the same form."""
    if folder is not None:
        return np.load(folder / name)
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (n, width))
    score = (X[:, 4] == X[:, 5]) + (X[:, width // 2 - 2] == 1) + (X[:, width // 2 + 2] == 3) + 0.5 * rng.normal(size=n)
    return {"X": X, "y": np.where(score > 1.5, 1, -1)}


def worm(folder: Path | None, tiny: bool):
    """Return the folds of the worm's acceptor sites: one."""
    found = read(folder, "celegans_acc_a.npz", 10_000, 82)
    places = [36, 37, 38, 39, 42, 43] if tiny else [33, 34, 35, 36, 37, 38, 39, 42, 43]
    data = coded(found["X"][:, places].astype(np.int64), found["y"])
    order = np.random.default_rng(0).permutation(len(data.y))
    edges = np.cumsum([0, 3_000, 2_000, 2_000] if tiny else [0, 60_000, 20_000, 20_000])
    train, valid, test = (order[lo:hi] for lo, hi in pairwise(edges))
    lams = (1e-3, 1e-4) if tiny else (3e-3, 1e-3, 5e-4, 2e-4, 1e-4, 3e-5)
    gammas = (1.0, 10.0) if tiny else (0.3, 1.0, 3.0, 10.0)
    fits = {method: stream_fits(method, data, train, valid, 1 if tiny else 2, lams, gammas) for method in METHODS}
    return [(data, fits, batch_fits(data, train, valid, (1e-3,) if tiny else (1e-3, 3e-4, 1e-4)), test)]


def donor(folder: Path | None, tiny: bool):
    """Return four folds of the donor sites."""
    found = read(folder, "memset_donor_400.npz", 400, 7)
    data = coded(found["X"].astype(np.int64), found["y"])
    part = np.random.default_rng(0).permutation(len(data.y)) % 4
    lams, gammas = ((3e-2, 1e-2), (3.0,)) if tiny else ((0.1, 5e-2, 3e-2, 2e-2, 1e-2, 5e-3, 2e-3), (1.0, 3.0, 10.0, 30.0))
    tests = []
    for fold in range(2 if tiny else 4):
        test, valid = np.flatnonzero(part == fold), np.flatnonzero(part == (fold + 1) % 4)
        train = np.flatnonzero((part != fold) & (part != (fold + 1) % 4))
        fits = {method: stream_fits(method, data, train, valid, 5 if tiny else 20, lams, gammas, fold) for method in METHODS}
        tests.append((data, fits, batch_fits(data, train, valid, (2e-2,) if tiny else (5e-2, 2e-2, 1e-2, 5e-3)), test))
    return tests


SETS = {"worm": worm, "donor": donor}


def main() -> None:
    parser = bench.arguments(__doc__, sets="worm,donor", draws=200)
    options = parser.parse_args()
    folder = os.environ.get("GRAMPLANE_DATA")
    if not folder and not options.tiny:
        parser.error("$GRAMPLANE_DATA must name the folder of the data sets")
    options.draws = 20 if options.tiny else options.draws
    report = bench.Report(f"splice sites, groups of positions: {options.sets}", options)
    for name in options.sets.split(","):
        clock = bench.stopwatch()
        compared(report, name, SETS[name](Path(folder) if folder else None, options.tiny), options.draws)
        report.note(f"{name}: {clock():.0f} s")
    report.show()


if __name__ == "__main__":
    sys.exit(main())
