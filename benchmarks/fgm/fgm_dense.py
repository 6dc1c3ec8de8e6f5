"""Dense data, 4,096 x 4,096, 300 relevant features: FGM against LIBLINEAR's l1-SVM and l1-logistic regression.

Run with ``python -m benchmarks.fgm.fgm_dense``. B=30 and B=60 to a gap of 1e-3, and B=60 with ``max_inner=3``, each beside an l1-SVM fit
at the C that gives as many features. Accuracies over seeds, the peers' also after a ridge refit; the one-pass screen (T=1) is a row too.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import numpy as np

from benchmarks._peers import l1_lr, l1_svm, quiet_fit, refit_accuracy, search_cost, support
from gramplane import FGMClassifier
from gramplane.pipeline.synthetic.linear import dense_linear


def problem(options, seed: int):
    return dense_linear(options.n, options.n, options.relevant, n_test=options.n, seed=seed)


def machine(options, B: int, **more) -> FGMClassifier:
    return FGMClassifier(B=B, C=options.cost, max_rounds=options.rounds, fit_intercept=False, **more, scale=None)


def accuracies(options, seed: int) -> dict[str, float]:
    """Return accuracies and feature counts of one seed."""
    data = problem(options, seed)
    row: dict[str, float] = {}

    def add(name: str, model, features, refitted: bool = False) -> None:
        row[f"{name}: features"] = len(features)
        row[f"{name}: true features"] = len(np.intersect1d(features, data.relevant))
        row[f"{name}: accuracy"] = model.score(data.X_test, data.y_test)
        if refitted:
            row[f"{name}: accuracy refitted"] = refit_accuracy(data.X, data.y, data.X_test, data.y_test, features)

    for B in options.widths:
        model = machine(options, B).fit(data.X, data.y)
        add(f"FGM B={B}", model, model.selected_)
    model = machine(options, options.widths[1], max_inner=3).fit(data.X, data.y)
    add(f"FGM B={options.widths[1]}, max_inner=3", model, model.selected_)
    row["relative gap left by max_inner=3"] = model.dual_gap_ / model.objective_
    screen = FGMClassifier(B=options.wanted, C=options.cost, max_rounds=1, fit_intercept=False, scale=None).fit(data.X, data.y)
    add("one-pass screen (T=1)", screen, screen.selected_, refitted=True)
    for name, make in (("l1-SVM", l1_svm), ("l1-LR", l1_lr)):
        peer = search_cost(make, data.X, data.y, options.wanted).model
        add(name, peer, support(peer), refitted=True)
    return row


def peer_cost(data, wanted: int) -> tuple[float, int]:
    found = search_cost(l1_svm, data.X, data.y, wanted)
    return found.cost, len(support(found.model))


def report_times(report: bench.Report, options) -> None:
    data = problem(options, 0)
    narrow, wide = options.widths
    columns = np.asfortranarray(data.X)
    sized = {B: machine(options, B).fit(data.X, data.y) for B in options.widths}
    costs = {B: peer_cost(data, len(sized[B].selected_)) for B in options.widths}
    single = data.X.astype(np.float32)
    times = bench.alternate(
        {
            f"FGM B={narrow}": lambda: machine(options, narrow).fit(data.X, data.y),
            f"l1-SVM, {costs[narrow][1]} features": lambda: quiet_fit(l1_svm(costs[narrow][0]), data.X, data.y),
            f"FGM B={wide}": lambda: machine(options, wide).fit(data.X, data.y),
            f"l1-SVM, {costs[wide][1]} features (for B={wide})": lambda: quiet_fit(l1_svm(costs[wide][0]), data.X, data.y),
            f"FGM B={wide}, max_inner=3": lambda: machine(options, wide, max_inner=3).fit(data.X, data.y),
            f"FGM B={narrow}, float32": lambda: machine(options, narrow).fit(single, data.y),
            f"FGM B={narrow}, column-major": lambda: machine(options, narrow).fit(columns, data.y),
        },
        options.reps,
    )
    for name, timing in times.items():
        report.time(name, timing)
    first, peer, second, wide_peer, capped, *_ = times.values()
    report.ratio(f"FGM B={narrow} : l1-SVM", first, peer, 1 / 5)
    report.ratio(f"FGM B={wide} : l1-SVM", second, wide_peer, 1 / 1.3)
    report.ratio(f"FGM B={wide}, max_inner=3 : l1-SVM", capped, wide_peer, 1 / 2.5)
    report_limit(report, data.X, first, options)


def report_limit(report: bench.Report, X: np.ndarray, timing: bench.Timing, options) -> None:
    """Add the phases of a fit and its distance to reading the matrix once per pass."""
    report.value("time : reading all passes at full bandwidth", timing.median / ((options.rounds + 1) * bench.best_read(X)), unit="x")
    history = timing.result.history_
    for phase in ("columns", "solve", "score"):
        report.value(f"seconds in {phase}, B={options.widths[0]}", float(history[f"seconds_{phase}"].sum()), unit=" s")


def report_accuracy(report: bench.Report, options) -> None:
    rows = [accuracies(options, seed) for seed in range(options.seeds)]
    narrow = options.widths[0]
    targets = {f"FGM B={narrow}: accuracy": ">= 0.925", f"FGM B={narrow}: features": "<= 300"}
    for name in rows[0]:
        values = [row[name] for row in rows]
        report.value(f"{name}, mean of {options.seeds} seeds", float(np.mean(values)), targets.get(name, ""))
        report.note(f"{name}: " + ", ".join(f"{value:.4g}" for value in values)) if name.endswith("accuracy") else None


def main() -> None:
    parser = bench.arguments(__doc__, n=4096, relevant=300, wanted=300, rounds=10, cost=10.0, seeds=3)
    options = parser.parse_args()
    options.widths = (30, 60)
    if options.tiny:
        options.n, options.relevant, options.wanted, options.widths, options.reps, options.seeds = 256, 20, 20, (3, 6), 2, 2
    report = bench.Report(f"FGM on dense data {options.n} x {options.n}, T={options.rounds}, C={options.cost}", options)
    report_times(report, options)
    report_accuracy(report, options)
    report.show()


if __name__ == "__main__":
    main()
