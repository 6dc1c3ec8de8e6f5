"""Degree-2 products of 1,000 features, 10^5 rows, 30 non-zeros a row: FGM against ``PolynomialFeatures`` and LIBLINEAR's l1-SVM.

Run with ``python -m benchmarks.fgm.fgm_degree2``. The peer's time is building the products and one fit at the C that gives as many
features; the search for that C is not counted.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import PolynomialFeatures

from benchmarks._peers import l1_svm, quiet_fit, search_cost, support
from benchmarks.fgm.fgm_degree2_wide import planted_products, report_recovery
from benchmarks.fgm.fgm_pairs import zipf
from gramplane import FGMClassifier


def expanded(X: sp.csr_array) -> sp.csr_array:
    """Return all products, with the weights of the kernel ``(x'z + 1)^2``: squares and linear terms times 1 and sqrt 2."""
    return PolynomialFeatures(degree=2, include_bias=False).fit_transform(X)


def main() -> None:
    parser = bench.arguments(__doc__, n=100_000, d=1000, per_row=31, shift=50.0, B=10, rounds=10, cost=10.0, pairs=10, linear=50)
    options = parser.parse_args()
    if options.tiny:
        options.n, options.d, options.per_row, options.reps, options.B, options.pairs = 2000, 60, 8, 2, 2, 4
    n_test = options.n // 10
    X = zipf(options.n + n_test, options.d, options.per_row, options.shift)
    planted = planted_products(X, options.pairs, options.linear)
    y = planted.y
    rows = sp.csr_array(X.astype(np.float64))
    train, test, y_train, y_test = rows[: options.n], rows[options.n :], y[: options.n], y[options.n :]
    columns = sp.csc_array(train)

    def ours() -> FGMClassifier:
        return FGMClassifier(
            B=options.B, C=options.cost, max_rounds=options.rounds, feature_map="poly2", fit_intercept=False, scale=None
        ).fit(columns, y_train)

    wanted = len(ours().selected_)
    products = expanded(train)
    cost = search_cost(l1_svm, products, y_train, wanted, slack=0.15).cost
    del products

    def peer():
        clock = bench.stopwatch()
        products = expanded(train)
        seconds = clock()
        return quiet_fit(l1_svm(cost), products, y_train), seconds

    times = bench.alternate({"FGM": ours, "PolynomialFeatures + l1-SVM": peer}, options.reps, warm=0)
    shape = f"{options.n} x {options.d}, {train.nnz / options.n:.0f} non-zeros a row"
    report = bench.Report(f"FGM on degree-2 products, {shape}, B={options.B}, T={options.rounds}", options)
    fgm, (model, building) = times["FGM"], times["PolynomialFeatures + l1-SVM"].result
    for name, timing in times.items():
        report.time(name, timing)
    report.value("of which PolynomialFeatures", building, unit=" s")
    report.ratio("FGM : peer", fgm, times["PolynomialFeatures + l1-SVM"], 1 / 5)
    report.value("l1-SVM: products", len(support(model)))
    frequent = np.argsort(-np.diff(X.indptr), kind="stable")[:200]
    report_recovery(report, fgm.result, planted, (train, y_train, test, y_test), frequent)
    report.value("test accuracy: l1-SVM on all products", model.score(expanded(test), y_test))
    for phase in ("columns", "solve", "score"):
        report.value(f"seconds in {phase}", float(fgm.result.history_[f"seconds_{phase}"].sum()), unit=" s")
    report.note(f"C of FGM {options.cost}, of l1-SVM {cost:.4g}")
    report.show()


if __name__ == "__main__":
    main()
