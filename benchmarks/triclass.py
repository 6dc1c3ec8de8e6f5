"""Tri-class machine on 100 labels and 5,000 unlabelled rows of which 30 % are irrelevant, against the same procedure around SVC.

    python benchmarks/triclass.py

Two normal classes in 50 features whose means differ in ten, irrelevant rows between them; C = 1, C_unlabelled = .05, Gaussian kernel of
width "scale". The wrapper is what scikit-learn allows: a machine on the labelled rows, then, with the Gram matrix computed once,
``SVC(kernel="precomputed")`` on the labelled rows and those unlabelled ones with |f| >= (1 + eps) / 2, as they are signed, until these stay
(ten times at most). SVC has no loss for irrelevant rows, so it leaves them out. Self-training is scikit-learn's around an SVC whose
probabilities are calibrated by folds. Times include the kernel unless said otherwise; accuracies are those of rows of the two classes. For
them the weight of unlabelled rows, and our start and eps, are chosen on draws that serve for nothing else, for wrapper and ours alike; the
settings of the times stand beside.
"""

from __future__ import annotations

import _harness as bench  # isort: skip
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC

from gramplane.kernels.gram import gram_block
from gramplane.kernels.jit import one_thread
from gramplane.kernels.solvers.dual import DenseGram
from gramplane.kernels.spec import KernelSpec
from gramplane.kernels.triclass import Points
from gramplane.kernels.triclass_machine import Search, improved, labelled_machine
from gramplane.pipeline import TriClassSVC

C, SHARE, EPS, FEATURES = 1.0, 0.05, 0.1, 50
IRRELEVANT = 0.3
SHARES = (0.05, 0.1, 0.2)
KINDS: tuple[dict[str, Any], ...] = (
    {"start": "svm3", "eps": 0.1},
    {"start": "s3vm", "eps": 0.0},
    {"start": "s3vm", "eps": 0.1},
    {"start": "svm3", "all_relevant": True},
)
"""Weights of unlabelled rows, and further settings of ours, among which other draws choose."""

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def rows(labelled: int, unlabelled: int, seed: int) -> Rows:
    """Labelled rows, their labels, unlabelled rows, test rows, their labels."""
    rng = np.random.default_rng(seed)
    centre = np.zeros(FEATURES)
    centre[:10] = 0.5

    def draw(n: int, irrelevant: float) -> tuple[np.ndarray, np.ndarray]:
        y = np.where(np.arange(n) % 2 == 0, 1, -1)
        used = np.where(rng.random(n) < irrelevant, 0, y)
        return rng.normal(size=(n, FEATURES)) + used[:, None] * centre, y

    (X, y), (U, _), (T, truth) = draw(labelled, 0.0), draw(unlabelled, IRRELEVANT), draw(4000, 0.0)
    return X, y, U, T, truth


def width(X: np.ndarray, U: np.ndarray) -> float:
    """The width "scale" of all rows."""
    return 1.0 / (FEATURES * np.concatenate([X, U]).var())


def wrapper(X: np.ndarray, y: np.ndarray, U: np.ndarray, K: np.ndarray | None = None, share: float = SHARE) -> tuple[SVC, np.ndarray, int]:
    """The wrapper: its last machine, the rows it knows, and how many it has trained."""
    K = rbf_kernel(np.concatenate([X, U]), gamma=width(X, U)) if K is None else K
    n, chosen, labels, before = len(y), np.arange(len(y)), np.concatenate([y, np.zeros(len(U))]), np.empty(0)
    machine = SVC(C=C, kernel="precomputed", cache_size=1000).fit(K[:n, :n], y)
    solved = 0
    while solved < 10:
        solved += 1
        f = machine.decision_function(K[n:, chosen])
        labels[n:] = np.where(np.abs(f) >= 0.5 * (1 + EPS), np.sign(f), 0)
        now = np.flatnonzero(labels)
        if np.array_equal(labels, before):
            break
        before, chosen = labels.copy(), now
        weight = np.where(now < n, 1.0, share / C)
        machine = SVC(C=C, kernel="precomputed", cache_size=1000).fit(K[np.ix_(now, now)], labels[now], weight)
    return machine, chosen, solved


def ours(start: str, X: np.ndarray, y: np.ndarray, U: np.ndarray) -> TriClassSVC:
    """Our machine from one start, or from all."""
    return TriClassSVC(C, SHARE, eps=EPS, start=start, tol=1e-3).fit(X, y, U)


def searched(gram: DenseGram, y: np.ndarray, unlabelled: int) -> Any:
    """Our search from the machine on the labelled rows, on a Gram matrix that is there."""
    free = np.arange(len(y) + unlabelled) >= len(y)
    points = Points(np.concatenate([y, np.zeros(unlabelled)]), free, np.where(free, SHARE, C), EPS)
    with one_thread():
        machine = labelled_machine(gram, points, 1e-3)
        while machine.stop is None:
            machine = improved(gram, points, machine, Search("mm", 1e-3))
    return machine


def self_training(X: np.ndarray, y: np.ndarray, U: np.ndarray) -> SelfTrainingClassifier:
    """scikit-learn's self-training."""
    base = CalibratedClassifierCV(SVC(C=C, gamma=width(X, U)), ensemble=False, cv=3)
    codes = np.concatenate([(y > 0).astype(int), np.full(len(U), -1)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SelfTrainingClassifier(base).fit(np.concatenate([X, U]), codes)


def times(report: bench.Report, labelled: int, unlabelled: int, reps: int) -> None:
    X, y, U, _, _ = rows(labelled, unlabelled, 0)
    calls: dict[str, Callable[[], Any]] = {
        "wrapper around SVC": lambda: wrapper(X, y, U),
        "ours, start svm3": lambda: ours("svm3", X, y, U),
        "ours, all starts": lambda: ours("best", X, y, U),
    }
    found = bench.alternate(calls, reps)
    for name, timing in found.items():
        report.time(name, timing)
    report.ratio("ours, start svm3 : wrapper, kernels included", found["ours, start svm3"], found["wrapper around SVC"], 1 / 8)
    report.ratio("ours, all starts : wrapper, kernels included", found["ours, all starts"], found["wrapper around SVC"], None)
    K = rbf_kernel(np.concatenate([X, U]), gamma=width(X, U))
    spec = KernelSpec("rbf", (("gamma", width(X, U)),))
    gram = DenseGram(gram_block([spec], np.concatenate([X, U]), dtype=np.float32)[0])
    alone = bench.alternate({"wrapper": lambda: wrapper(X, y, U, K), "ours": lambda: searched(gram, y, unlabelled)}, reps)
    for name, timing in alone.items():
        report.time(f"{name}, kernel given", timing)
    report.ratio("ours, start svm3 : wrapper, kernels given", alone["ours"], alone["wrapper"], 1 / 30)
    slow = bench.alternate({"self-training": lambda: self_training(X, y, U)}, 1, warm=0)["self-training"]
    report.time("self-training around SVC", slow)
    machine, best = found["ours, start svm3"].result, found["ours, all starts"].result
    report.note(f"wrapper: {found['wrapper around SVC'].result[2]} machines; ours: {machine.n_iter_} convex problems from svm3")
    report.note(f"J: svm3 {machine.objective_:.4f}, all starts {np.round(best.start_objectives_, 4).tolist()}; gap {machine.dual_gap_:.2g}")


def setting_of(report: bench.Report, labelled: int, unlabelled: int, seeds: int) -> tuple[float, dict[str, Any]]:
    """The unlabelled weight of the wrapper, and the setting of ours, of highest accuracy over draws that serve for nothing else."""
    weights = {share: [] for share in SHARES}
    settings: dict[tuple[float, int], list[float]] = {(share, kind): [] for share in SHARES for kind in range(len(KINDS))}
    for seed in range(101, 101 + seeds):
        X, y, U, T, truth = rows(labelled, unlabelled, seed)
        for share, found in weights.items():
            found.append(wrapper_score(X, y, U, T, truth, share))
        for (share, kind), found in settings.items():
            found.append(TriClassSVC(C, share, tol=1e-3, **KINDS[kind]).fit(X, y, U).score(T, truth))
    share = max(weights, key=lambda key: np.mean(weights[key]))
    best = max(settings, key=lambda key: np.mean(settings[key]))
    report.note(f"chosen on {seeds} other draws: wrapper C_unlabelled={share:g}; ours C_unlabelled={best[0]:g}, {KINDS[best[1]]}")
    return share, {"C_unlabelled": best[0], **KINDS[best[1]]}


def wrapper_score(X: np.ndarray, y: np.ndarray, U: np.ndarray, T: np.ndarray, truth: np.ndarray, share: float) -> float:
    machine, chosen, _ = wrapper(X, y, U, share=share)
    K = rbf_kernel(T, np.concatenate([X, U])[chosen], gamma=width(X, U))
    return float(np.mean(machine.predict(K) == truth))


def accuracies(report: bench.Report, labelled: int, unlabelled: int, seeds: int, others: int, slow: int) -> None:
    share, setting = setting_of(report, labelled, unlabelled, others)
    found: dict[str, list[float]] = {}
    for seed in range(1, 1 + seeds):
        X, y, U, T, truth = rows(labelled, unlabelled, seed)
        scores = {
            "SVC on the labels": SVC(C=C, gamma=width(X, U)).fit(X, y).score(T, truth),
            "wrapper, settings chosen": wrapper_score(X, y, U, T, truth, share),
            "ours, settings chosen": TriClassSVC(C, tol=1e-3, **setting).fit(X, y, U).score(T, truth),
            "ours, svm3, settings of the times": ours("svm3", X, y, U).score(T, truth),
            "ours, least J, settings of the times": ours("best", X, y, U).score(T, truth),
        }
        if seed <= slow:
            scores["self-training"] = self_training(X, y, U).score(T, (truth > 0).astype(int))
        for name, value in scores.items():
            found.setdefault(name, []).append(float(value))
    for name, values in found.items():
        spread = f" +- {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
        report.value(f"accuracy, {name} ({len(values)} draws)", float(np.mean(values)), unit=spread, form=".4f")
    for rival in ("wrapper, settings chosen", "self-training"):
        gain = np.subtract(found["ours, settings chosen"][: len(found.get(rival, ()))], found.get(rival, ()))
        if len(gain):
            report.value(f"accuracy, ours - {rival.partition(',')[0]}, mean of {len(gain)}", float(gain.mean()), ">= -0.002")


def main() -> None:
    options = bench.arguments(__doc__, unlabelled=5000, seeds=5, others=2, slow=2).parse_args()
    if options.tiny:
        options.unlabelled, options.seeds, options.others, options.slow, options.reps = 200, 2, 1, 1, 1
    report = bench.Report("Tri-class machine: few labels, many unlabelled rows, some irrelevant", options)
    times(report, 100, options.unlabelled, options.reps)
    accuracies(report, 100, options.unlabelled, options.seeds, options.others, options.slow)
    report.show()


if __name__ == "__main__":
    main()
