"""All degree-2 products of 4.6 million features, 10^6 rows, 30 non-zeros a row, Zipf popularity: 10^13 candidates, one fit in memory.

Run with ``python -m benchmarks.fgm.fgm_degree2_wide`` (4 GB). The paper needed "within 1000 s" on kddb of this size; nothing else that can
be installed runs it. Labels are made of products and linear terms of popular features, so that there is something to find: what was found
and the accuracy on rows kept apart stand beside the best that is possible, a linear machine and boosted trees on the most frequent columns.
The set is the one of ``fgm_pairs.py``.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks._peers import quiet_fit, ridge_svm
from benchmarks.fgm.fgm_pairs import SETS, zipf
from gramplane import FGMClassifier
from gramplane.kernels.features.pairs import PairLimits


@dataclass(frozen=True)
class Planted:
    """Labels made of products and linear terms, and what there is to find.

    ``y``: labels; ``pairs``: ``(k, 2)`` columns of the products; ``support``: shares of rows in which each is not zero; ``best``: accuracy
    that no model can exceed in the mean, for that share of labels was left as it was made.
    """

    y: np.ndarray
    pairs: np.ndarray
    support: np.ndarray
    best: float

    def found(self, selected: np.ndarray) -> int:
        """Return how many of the products were selected."""
        chosen = {tuple(pair) for pair in selected.tolist()}
        return sum(tuple(pair) in chosen for pair in self.pairs.tolist())

    def __str__(self) -> str:
        low, high = 100 * self.support.min(), 100 * self.support.max()
        return f"{len(self.pairs)} products of disjoint pairs, each not zero in {low:.2g} to {high:.2g} % of the rows"


def planted_products(X: sp.csc_array, n_pairs: int, n_linear: int, *, share: float = 0.5, flipped: float = 0.05, seed: int = 2) -> Planted:
    """Return labels by ``z = sum of +-x_a x_b / std + linear terms``, all products of equal variance, some labels turned round.

    The pairs are drawn from the ``4 n_pairs`` most frequent columns, so that the data can show them; linear terms, of the ``n_linear`` most
    frequent columns, make up ``1 - share`` of the variance of z.
    """
    rng = np.random.default_rng(seed)
    frequent = np.argsort(-np.diff(X.indptr), kind="stable")
    pairs = np.sort(rng.permutation(frequent[: 4 * n_pairs])[: 2 * n_pairs].reshape(-1, 2), axis=1)
    z, support = np.zeros(X.shape[0]), np.zeros(n_pairs)
    for k, sign in enumerate(rng.choice([-1.0, 1.0], n_pairs)):
        product = X[:, pairs[k]].astype(np.float64).toarray().prod(axis=1)
        support[k] = np.count_nonzero(product) / len(product)
        z += sign * product / product.std()
    if n_linear:
        w = np.zeros(X.shape[1])
        w[frequent[:n_linear]] = rng.standard_normal(n_linear)
        linear = np.asarray(X @ w)
        z += linear * np.sqrt((1.0 - share) / share) * z.std() / linear.std()
    # Rows that have none of the products and no linear term get labels by chance, and nobody could tell those.
    chance = np.count_nonzero(z == np.median(z)) / len(z)
    y = np.where(z + 1e-9 * rng.standard_normal(z.size) > np.median(z), 1, -1)
    y[rng.random(z.size) < flipped] *= -1
    return Planted(y, pairs, support, 1.0 - flipped - chance * (0.5 - flipped))


COSTS = (0.01, 0.1, 1.0)
"""Costs from which the linear machine chooses on a fifth of its rows."""


def linear_accuracy(X: Any, y: np.ndarray, X_test: Any, y_test: np.ndarray) -> float:
    """Return the test accuracy of l2-SVM with the best of some costs."""
    cut = len(y) * 4 // 5
    scores = [quiet_fit(ridge_svm(C, True), X[:cut], y[:cut]).score(X[cut:], y[cut:]) for C in COSTS]
    return float(quiet_fit(ridge_svm(COSTS[int(np.argmax(scores))], True), X, y).score(X_test, y_test))


def trees_accuracy(X: Any, y: np.ndarray, X_test: Any, y_test: np.ndarray, columns: np.ndarray) -> float:
    """Return the test accuracy of boosted trees on some columns."""
    trees = HistGradientBoostingClassifier(max_iter=300, early_stopping=True, random_state=0)
    return float(trees.fit(X[:, columns].toarray(), y).score(X_test[:, columns].toarray(), y_test))


def report_recovery(report: bench.Report, model: FGMClassifier, planted: Planted, splits: tuple[Any, ...], columns: np.ndarray) -> None:
    """Add what was found of the planted products, and test accuracy beside the best possible, a linear machine and boosted trees."""
    X, y, X_test, y_test = splits
    report.value("products selected", len(model.selected_))
    report.value(f"planted products found, of {len(planted.pairs)}", planted.found(model.selected_), f">= {0.8 * len(planted.pairs):g}")
    report.value("test accuracy", model.score(X_test, y_test))
    report.value("test accuracy: best possible", planted.best)
    report.value("test accuracy: l2-SVM, linear", linear_accuracy(X, y, X_test, y_test))
    report.value(f"test accuracy: boosted trees on the {len(columns)} most frequent columns", trees_accuracy(X, y, X_test, y_test, columns))
    report.note(f"planted: {planted}; strength: each the same share of the variance that is not linear; 5 % of the labels turned round")


def main() -> None:
    parser = bench.arguments(__doc__, B=10, rounds=10, cost=10.0, pairs=10, linear=50)
    options = parser.parse_args()
    n, d, per_row, shift = (20_000, 5_000, 12, 5.0) if options.tiny else SETS["ii"]
    if options.tiny:
        options.reps, options.B, options.rounds, options.pairs = 1, 2, 3, 4
    n_test = n // 10
    every = zipf(n + n_test, d, per_row, shift)
    planted = planted_products(every, options.pairs, options.linear)
    rows = sp.csr_array(every)
    frequent = np.argsort(-np.diff(every.indptr), kind="stable")[:200]
    del every
    X, y, X_test, y_test = sp.csc_array(rows[:n]), planted.y[:n], rows[n:], planted.y[n:]
    # Without the warm fit of small data the first figures would hold compilation.
    small = zipf(2_000, 500, 8, 5.0)
    FGMClassifier(B=2, C=10, max_rounds=2, feature_map="poly2", fit_intercept=False, scale=None).fit(
        small, planted_products(small, 4, 10).y
    )

    survivors: list[int] = []

    def note(event) -> None:
        if event["event"] == "pairs":
            survivors.append(event["survivors"])

    def fit() -> FGMClassifier:
        survivors.clear()
        settings = {"B": options.B, "C": options.cost, "max_rounds": options.rounds, "feature_map": "poly2", "fit_intercept": False}
        return FGMClassifier(**settings, callbacks=[note], scale=None).fit(X, y)

    extra, model = bench.extra_memory(fit)
    timing = bench.alternate({"fit": fit}, options.reps, warm=0)["fit"]
    title = f"FGM on all degree-2 products, {n} x {d}, {X.nnz / n:.0f} non-zeros a row ({d * (d + 3) / 2:.2g} candidates), B={options.B}"
    report = bench.Report(f"{title}, T={options.rounds}", options)
    report.time("whole fit", timing)
    report.value("seconds of a whole fit", timing.median, "<= 60", unit=" s")
    report.value("extra memory of a fit", extra / 2**20, "<= 500", unit=" MiB")
    report.value("data", (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / 2**20, unit=" MiB")
    few = min(n, 100_000)
    report_recovery(report, model, planted, (rows[:few], y[:few], X_test, y_test), frequent)
    report.note(f"linear machine and trees learn from the first {few:,} rows")
    for phase in ("columns", "solve", "score"):
        report.value(f"seconds in {phase}", float(model.history_[f"seconds_{phase}"].sum()), unit=" s")
    nbytes = (len(model.history_["objective"]) + 1) * (X.data.nbytes + X.indices.nbytes)
    report.value("time : reading the data once per pass", timing.median / (nbytes / bench.read_bandwidth()), unit="x")
    limit = PairLimits().max_head
    path = "head path throughout" if max(survivors) <= limit else f"fallback in {sum(count > limit for count in survivors)} passes"
    report.note(f"features that survived the screening, by pass: {survivors}; {path} (at most {limit} in the head)")
    report.note("seconds of scoring by round: " + ", ".join(f"{value:.2f}" for value in model.history_["seconds_score"]))
    report.show()


if __name__ == "__main__":
    main()
