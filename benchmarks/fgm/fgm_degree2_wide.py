"""All degree-2 products of 4.6 million features, 10^6 rows, 30 non-zeros a row, Zipf popularity: 10^13 candidates, one fit in memory.

Run with ``python -m benchmarks.fgm.fgm_degree2_wide`` (4 GB). The paper needed "within 1000 s" on kddb of this size; nothing else that can
be installed runs it. Labels are the sign of some products and linear terms of popular features; with ``--linear 0`` of products alone, so
that after the first rounds only noise is left, the worst case of the screening. The set is the one of ``fgm_pairs.py``.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import numpy as np
import scipy.sparse as sp

from benchmarks.fgm.fgm_pairs import SETS, zipf
from gramplane import FGMClassifier
from gramplane.kernels.features.pairs import PairLimits


def labels(X: sp.csc_array, n_pairs: int, n_linear: int = 0, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of ``n_pairs`` disjoint products of the most frequent columns plus ``n_linear`` of these columns, and those pairs.

    Without linear terms rows that have none of the products get random labels: products of rarer columns would leave too few others.
    """
    rng = np.random.default_rng(seed)
    frequent = np.argsort(-np.diff(X.indptr), kind="stable")
    pairs = np.sort(rng.permutation(frequent[: 2 * n_pairs]).reshape(-1, 2), axis=1)
    w = np.zeros(X.shape[1])
    w[frequent[:n_linear]] = rng.standard_normal(min(n_linear, len(frequent)))
    z = np.asarray(X @ w)
    for (a, b), weight in zip(pairs, rng.choice([-1.0, 1.0], n_pairs), strict=True):
        product = X[:, [int(a)]].multiply(X[:, [int(b)]]).tocoo()
        z[product.coords[0]] += weight * product.data
    z += 1e-3 * rng.standard_normal(z.size)
    return np.where(z > np.median(z), 1, -1), pairs


def main() -> None:
    parser = bench.arguments(__doc__, B=10, rounds=10, cost=10.0, pairs=10, linear=300)
    options = parser.parse_args()
    n, d, per_row, shift = (20_000, 5_000, 12, 5.0) if options.tiny else SETS["ii"]
    if options.tiny:
        options.reps, options.B, options.rounds, options.pairs = 1, 2, 3, 4
    X = zipf(n, d, per_row, shift)
    y, pairs = labels(X, options.pairs, options.linear)
    # Without the warm fit of small data the first figures would hold compilation.
    small = zipf(2_000, 500, 8, 5.0)
    FGMClassifier(B=2, max_rounds=2, feature_map="poly2").fit(small, labels(small, 4)[0])

    survivors: list[int] = []

    def note(event) -> None:
        if event["event"] == "pairs":
            survivors.append(event["survivors"])

    def fit() -> FGMClassifier:
        survivors.clear()
        return FGMClassifier(B=options.B, C=options.cost, max_rounds=options.rounds, feature_map="poly2", callbacks=[note]).fit(X, y)

    extra, model = bench.extra_memory(fit)
    timing = bench.alternate({"fit": fit}, options.reps, warm=0)["fit"]
    title = f"FGM on all degree-2 products, {n} x {d}, {X.nnz / n:.0f} non-zeros a row ({d * (d + 3) / 2:.2g} candidates), B={options.B}"
    report = bench.Report(f"{title}, T={options.rounds}", options)
    report.time("whole fit", timing)
    report.value("seconds of a whole fit", timing.median, "<= 60", unit=" s")
    report.value("extra memory of a fit", extra / 2**20, "<= 500", unit=" MiB")
    report.value("data", (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / 2**20, unit=" MiB")
    found = {tuple(pair) for pair in model.selected_.tolist()}
    report.value("products selected", len(found))
    report.value(f"planted products found, of {len(pairs)}", sum(tuple(pair) in found for pair in pairs.tolist()))
    report.value("training accuracy", model.score(X, y))
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
