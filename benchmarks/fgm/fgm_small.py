"""A small fit in memory, 1,000 x 100, warm: what Python, Zarr, cluster and graph cost when there is nothing to do.

Run with ``python -m benchmarks.fgm.fgm_small``. The machine of the paper (C=10, no intercept) against ``LinearSVC(penalty="l1",
dual=False)`` with defaults. The first fit of a fresh process with compiled code on disk is timed in a process of its own.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import numpy as np
import scipy.sparse as sp

from benchmarks._peers import l1_svm, quiet_fit
from gramplane import FGMClassifier
from gramplane.pipeline.synthetic.linear import dense_linear

PAPER = {"C": 10.0, "fit_intercept": False}


def first_fit(n: int, d: int, relevant: int) -> dict[str, float]:
    """Served: the first fit of this process (its seconds are measured by the server)."""
    data = dense_linear(n, d, relevant, n_test=10)
    FGMClassifier(**PAPER, scale=None).fit(data.X, data.y)
    return {}


def main() -> None:
    parser = bench.arguments(__doc__, n=1000, d=100, relevant=20, batch=20)
    options = parser.parse_args()
    if options.tiny:
        options.n, options.reps, options.batch = 200, 2, 2
    data = dense_linear(options.n, options.d, options.relevant, n_test=2000)
    sparse = sp.csr_array(np.where(data.X > 1.0, data.X, 0.0))

    def repeated(fit):
        return lambda: [fit() for _ in range(options.batch)][-1]

    times = bench.alternate(
        {
            "FGM, C=10 (B=10, T=10)": repeated(lambda: FGMClassifier(**PAPER, scale=None).fit(data.X, data.y)),
            "l1-SVM, defaults (C=1)": repeated(lambda: quiet_fit(l1_svm(1.0, True), data.X, data.y)),
            "FGM, B=2 (20 features)": repeated(lambda: FGMClassifier(B=2, **PAPER, scale=None).fit(data.X, data.y)),
            "l1-SVM, C=0.01": repeated(lambda: quiet_fit(l1_svm(0.01, True), data.X, data.y)),
            "FGM, sparse input": repeated(lambda: FGMClassifier(**PAPER, scale=None).fit(sparse, data.y)),
            "l1-SVM, sparse input": repeated(lambda: quiet_fit(l1_svm(1.0, True), sparse, data.y)),
        },
        options.reps,
    )
    report = bench.Report(f"FGM on {options.n} x {options.d} in memory, warm ({options.batch} fits a repetition)", options)
    for name, timing in times.items():
        timing.wall, timing.cpu = ([seconds / options.batch for seconds in kind] for kind in (timing.wall, timing.cpu))
        report.time(name, timing)
    ours, peer, narrow, narrow_peer, ours_sparse, peer_sparse = times.values()
    report.ratio("FGM : l1-SVM, defaults", ours, peer, 3)
    report.ratio("FGM : l1-SVM, 20 features", narrow, narrow_peer, 3)
    report.ratio("FGM : l1-SVM, sparse input", ours_sparse, peer_sparse, 3)
    report.value("test accuracy, FGM defaults", ours.result.score(data.X_test, data.y_test))
    report.value("test accuracy, l1-SVM defaults", peer.result.score(data.X_test, data.y_test))
    with bench.Child(__file__) as fresh:
        answer = fresh("first_fit", n=options.n, d=options.d, relevant=options.relevant)
    report.value("first fit of a process, compiled code on disk", answer["seconds"], unit=" s")
    for phase in ("columns", "solve", "score"):
        report.value(f"milliseconds in {phase}, defaults", 1e3 * float(ours.result.history_[f"seconds_{phase}"].sum()), unit=" ms")
    counts = ", ".join(f"{name} {np.count_nonzero(timing.result.coef_)}" for name, timing in list(times.items())[:4])
    report.note(f"features: {counts}")
    report.show()


if __name__ == "__main__":
    bench.serve(first_fit)
    main()
