"""Sparse data, n = 10,000, d = 500,000, 100 non-zeros a row, about 200 features: FGM against LIBLINEAR's l1-SVM.

Run with ``python -m benchmarks.fgm.fgm_sparse``. Each side has one number to choose: the l1-SVM its C, which must give as many features;
FGM, whose number of features is given, a C by accuracy on a fifth of the training rows. Times: one fit of each at what was chosen; the
whole task of each, choice included; one fit of FGM at its default C, which follows from the data. Accuracies are paired over seeds, as
fitted and after the same ridge refit of both. Column popularity is ``(rank + offset)^-1``; the default offset gives 9.91e5 non-zeros. A
flatter law (``--offset 500``) leaves a third of the rows without any relevant feature; there neither method reaches 0.84.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
from typing import Literal

import numpy as np
import scipy.sparse as sp

from benchmarks._peers import l1_svm, paired, quiet_fit, refit_accuracy, search_cost, support
from gramplane import FGMClassifier
from gramplane.pipeline.synthetic.linear import Planted, sparse_linear

COSTS = (1.0, 10.0, 100.0, 1000.0)
"""What FGM's C is chosen from."""
DEFAULT = "auto"


def problem(options, seed: int) -> Planted:
    """Return the data in float64, the type LIBLINEAR computes in."""
    made = sparse_linear(options.n, options.d, options.nnz, options.relevant, n_test=options.n // 2, offset=options.offset, seed=seed)
    return Planted(made.X.astype(np.float64), made.y, made.X_test.astype(np.float64), made.y_test, made.relevant)


def machine(options, C: float | Literal["auto"]) -> FGMClassifier:
    return FGMClassifier(B=options.B, C=C, max_rounds=options.rounds, fit_intercept=False, scale=None)


def whole_task(options, X, y) -> FGMClassifier:
    """Choose C by the rows that a fit on four fifths has not seen, and fit all rows at it."""
    apart = np.arange(len(y)) % 5 == 0
    rows = sp.csr_array(X)
    fits = {C: machine(options, C).fit(rows[~apart], y[~apart]).score(rows[apart], y[apart]) for C in COSTS}
    return machine(options, max(fits, key=fits.__getitem__)).fit(X, y)


def peer_search(options, data: Planted):
    return search_cost(l1_svm, data.X, data.y, options.B * options.rounds)


def accuracies(options, seed: int) -> dict[str, float]:
    """Return the accuracies of one seed, with the counts of features and of true ones."""
    data = problem(options, seed)
    ours, plain, peer = whole_task(options, data.X, data.y), machine(options, DEFAULT).fit(data.X, data.y), peer_search(options, data).model
    row: dict[str, float] = {"FGM C chosen": ours.C_, "FGM at its default C: C": plain.C_}
    models = (("FGM", ours, ours.selected_), ("FGM at its default C", plain, plain.selected_), ("l1-SVM", peer, support(peer)))
    for name, model, features in models:
        row[f"{name} accuracy"] = model.score(data.X_test, data.y_test)
        row[f"{name} refitted"] = refit_accuracy(data.X, data.y, data.X_test, data.y_test, features)
        row[f"{name} features"] = len(features)
        row[f"{name} true features"] = len(np.intersect1d(features, data.relevant))
    return row


def report_times(report: bench.Report, options) -> None:
    data = problem(options, 0)
    columns, cost = sp.csc_array(data.X), peer_search(options, data).cost
    chosen = float(whole_task(options, columns, data.y).C_)
    times = bench.alternate(
        {
            "FGM from columns (CSC)": lambda: machine(options, chosen).fit(columns, data.y),
            "l1-SVM, one fit": lambda: quiet_fit(l1_svm(cost), data.X, data.y),
            "FGM from rows (CSR)": lambda: machine(options, chosen).fit(data.X, data.y),
            "FGM (CSC) at its default C": lambda: machine(options, DEFAULT).fit(columns, data.y),
            "l1-SVM, search for C": lambda: peer_search(options, data),
            "FGM (CSC), search for C": lambda: whole_task(options, columns, data.y),
        },
        options.reps,
    )
    for name, timing in times.items():
        report.time(name, timing)
    one, search = times["l1-SVM, one fit"], times["l1-SVM, search for C"]
    report.ratio("FGM (CSC) : one fit", times["FGM from columns (CSC)"], one, 1 / 4)
    report.ratio("FGM (CSR) : one fit", times["FGM from rows (CSR)"], one, 1 / 2.5)
    report.ratio("whole task, FGM (CSC) : l1-SVM", times["FGM (CSC), search for C"], search, None)
    report.ratio("FGM (CSC) at its default C : search of the l1-SVM", times["FGM (CSC) at its default C"], search, 1 / 15)
    report.note(f"l1-SVM: C={cost:.4g}, {len(support(one.result))} features, {search.result.fits} fits; FGM: C={chosen:g} of {COSTS}")
    report_limit(report, columns, times["FGM from columns (CSC)"], options)


def report_limit(report: bench.Report, columns: sp.csc_array, timing: bench.Timing, options) -> None:
    """Add the phases of a fit and its distance to reading the matrix once per pass."""
    nbytes = (options.rounds + 1) * (columns.data.nbytes + columns.indices.nbytes + columns.indptr.nbytes)
    report.value("time : reading all passes at full bandwidth", timing.median / (nbytes / bench.read_bandwidth()), unit="x")
    history = timing.result.history_
    for phase in ("columns", "solve", "score"):
        report.value(f"seconds in {phase}", float(history[f"seconds_{phase}"].sum()), unit=" s")


def report_accuracy(report: bench.Report, options) -> None:
    rows = [accuracies(options, seed) for seed in range(options.seeds)]
    table = {name: [row[name] for row in rows] for name in rows[0]}
    for name, values in table.items():
        report.value(f"{name}, mean of {options.seeds} seeds", float(np.mean(values)))
    for name in ("FGM", "FGM at its default C"):
        for kind in ("accuracy", "refitted"):
            gain, error = paired(table[f"{name} {kind}"], table[f"l1-SVM {kind}"])
            report.value(f"{kind}: {name} minus l1-SVM", gain, ">= 0", form="+.4f")
            report.note(f"{kind}, {name}: paired difference {gain:+.4f} +- {error:.4f} (standard error over {options.seeds} seeds)")


def main() -> None:
    parser = bench.arguments(__doc__, n=10_000, d=500_000, nnz=100, relevant=100, offset=70.0, B=20, rounds=10, seeds=10)
    options = parser.parse_args()
    if options.tiny:
        options.n, options.d, options.nnz, options.relevant, options.B, options.reps, options.seeds = 500, 2000, 20, 20, 4, 2, 2
    report = bench.Report(f"FGM on sparse data {options.n} x {options.d}, B={options.B}, T={options.rounds}", options)
    report_times(report, options)
    report_accuracy(report, options)
    report.show()


if __name__ == "__main__":
    main()
