"""Tri-class machine on 100 labels and 5,000 unlabelled rows of which 30 % are irrelevant, against the same procedure around SVC.

    python -m benchmarks.tri_class_svm.triclass

Two normal classes in 50 features whose means differ in ten, irrelevant rows between them; C = 1, C_unlabelled = .05, Gaussian kernel of
width "scale". The wrapper is what scikit-learn allows: a machine on the labelled rows, then, with the Gram matrix computed once,
``SVC(kernel="precomputed")`` on the labelled rows and those unlabelled ones with |f| >= (1 + eps) / 2, as they are signed, until these stay
(ten times at most). SVC has no loss for irrelevant rows, so it leaves them out. Self-training is scikit-learn's around an SVC whose
probabilities are calibrated by folds. Times include the kernel unless said otherwise, and are those of one draw of the data; accuracies are
means over several, of rows of the two classes, with standard errors, differences in pairs. For them the weight of unlabelled rows and which
of them count as relevant, and our start, are chosen on draws that serve for nothing else, for wrapper and ours alike; the settings of the
times stand beside, with J of both by one function. Of two machines the one with the lower J need not be the more accurate: see the table.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC

from gramplane import TriClassSVC
from gramplane.kernels.grams.blocks import gram_block
from gramplane.kernels.grams.spec import KernelSpec
from gramplane.kernels.jit import one_thread
from gramplane.kernels.svm.dual import DenseGram
from gramplane.kernels.svm.triclass import Points, objective_value
from gramplane.kernels.svm.triclass_search import SearchSettings, improve_machine, labelled_machine

C, SHARE, EPS, FEATURES = 1.0, 0.05, 0.1, 50
IRRELEVANT = 0.3
SHARES = (0.05, 0.1, 0.2)
KINDS: tuple[dict[str, Any], ...] = (
    {"start": "svm3", "eps": 0.1},
    {"start": "s3vm", "eps": 0.0},
    {"start": "s3vm", "eps": 0.1},
    {"start": "s3vm", "eps": 0.5},
    {"start": "svm3", "all_relevant": True},
)
RIVAL_KINDS = (EPS, None)
"""Weights of unlabelled rows, further settings of ours, and eps of the wrapper (or that all rows are relevant): other draws choose."""

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


def wrapper(
    X: np.ndarray, y: np.ndarray, U: np.ndarray, K: np.ndarray | None = None, share: float = SHARE, eps: float | None = EPS
) -> tuple[SVC, np.ndarray, int]:
    """The wrapper: its last machine, the rows it knows, and how many it has trained; without eps it takes all rows as relevant."""
    K = rbf_kernel(np.concatenate([X, U]), gamma=width(X, U)) if K is None else K
    n, chosen, labels, before = len(y), np.arange(len(y)), np.concatenate([y, np.zeros(len(U))]), np.empty(0)
    machine = SVC(C=C, kernel="precomputed", cache_size=1000).fit(K[:n, :n], y)
    solved = 0
    while solved < 10:
        solved += 1
        f = machine.decision_function(K[n:, chosen])
        labels[n:] = np.where(np.abs(f) >= (0.0 if eps is None else 0.5 * (1 + eps)), np.sign(f), 0)
        now = np.flatnonzero(labels)
        if np.array_equal(labels, before):
            break
        before, chosen = labels.copy(), now
        weight = np.where(now < n, 1.0, share / C)
        machine = SVC(C=C, kernel="precomputed", cache_size=1000).fit(K[np.ix_(now, now)], labels[now], weight)
    return machine, chosen, solved


def ours(start: str, X: np.ndarray, y: np.ndarray, U: np.ndarray) -> TriClassSVC:
    """Our machine from one start, or from all."""
    return TriClassSVC(C, SHARE, eps=EPS, start=start, tol=1e-3, scale=None).fit(X, y, U)


def searched(gram: DenseGram, y: np.ndarray, unlabelled: int) -> Any:
    """Our search from the machine on the labelled rows, on a Gram matrix that is there."""
    free = np.arange(len(y) + unlabelled) >= len(y)
    points = Points(np.concatenate([y, np.zeros(unlabelled)]), free, np.where(free, SHARE, C), EPS)
    with one_thread():
        machine = labelled_machine(gram, points, 1e-3)
        while machine.stop is None:
            machine = improve_machine(gram, points, machine, SearchSettings("mm", 1e-3))
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


def machine_of(K: np.ndarray, y: np.ndarray, share: float, start: str, eps: float, all_relevant: bool = False) -> TriClassSVC:
    """Our machine on a Gram matrix of labelled rows followed by unlabelled ones."""
    return TriClassSVC(C, share, eps=eps, start=start, all_relevant=all_relevant, kernel="precomputed", tol=1e-3).fit(K, y)


def decision_of(machine: TriClassSVC | SVC, chosen: np.ndarray, K: np.ndarray) -> np.ndarray:
    """Decision values of rows whose kernel with all rows of the fit is given."""
    return K[:, chosen[machine.support_]] @ machine.dual_coef_.ravel() + machine.intercept_[0]


def level(machine: TriClassSVC | SVC, chosen: np.ndarray, K: np.ndarray, y: np.ndarray, share: float) -> float:
    """J of any machine, by one and the same function."""
    beta, free = np.zeros(len(K)), np.arange(len(K)) >= len(y)
    beta[chosen[machine.support_]] = machine.dual_coef_.ravel()
    product = K @ beta
    points = Points(np.concatenate([y, np.zeros(len(K) - len(y))]), free, np.where(free, share, C), EPS)
    return objective_value(points, float(beta @ product), product + machine.intercept_[0]) / C


class Draw:
    """A draw of the data with its kernels, of the fit and of the test rows, which all machines share."""

    def __init__(self, labelled: int, unlabelled: int, seed: int) -> None:
        self.X, self.y, self.U, self.T, self.truth = rows(labelled, unlabelled, seed)
        self.gamma, both = width(self.X, self.U), np.concatenate([self.X, self.U])
        self.K, self.test = rbf_kernel(both, gamma=self.gamma), rbf_kernel(self.T, both, gamma=self.gamma)
        self.all = np.arange(len(both))

    def score(self, machine: TriClassSVC | SVC, chosen: np.ndarray) -> float:
        """Accuracy on the test rows."""
        return float(np.mean(np.where(decision_of(machine, chosen, self.test) > 0, 1, -1) == self.truth))

    def wrapped(self, share: float, eps: float | None) -> tuple[SVC, np.ndarray]:
        """The wrapper's machine, and the rows it knows."""
        return wrapper(self.X, self.y, self.U, self.K, share, eps)[:2]

    def ours(self, share: float, **kind: Any) -> tuple[TriClassSVC, np.ndarray]:
        """Our machine, and the rows it knows."""
        return machine_of(self.K, self.y, share, **{"eps": EPS, **kind}), self.all


def settings_of(report: bench.Report, draws: list[Draw]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The settings of the wrapper and of ours of highest mean accuracy over draws that serve for nothing else."""
    peer = {
        (share, eps): float(np.mean([draw.score(*draw.wrapped(share, eps)) for draw in draws])) for share in SHARES for eps in RIVAL_KINDS
    }
    own = {
        (share, kind): float(np.mean([draw.score(*draw.ours(share, **KINDS[kind])) for draw in draws]))
        for share in SHARES
        for kind in range(len(KINDS))
    }
    best, mine = max(peer, key=lambda key: peer[key]), max(own, key=lambda key: own[key])
    seen = "all rows" if best[1] is None else f"rows with |f| >= {0.5 * (1 + best[1]):g}"
    report.note(
        f"chosen on {len(draws)} other draws: wrapper C_unlabelled={best[0]:g}, {seen} ({peer[best]:.4f}); "
        f"ours C_unlabelled={mine[0]:g}, {KINDS[mine[1]]} ({own[mine]:.4f})"
    )
    return best, mine


def accuracies(report: bench.Report, labelled: int, unlabelled: int, seeds: int, others: int, slow: int) -> None:
    best, mine = settings_of(report, [Draw(labelled, unlabelled, seed) for seed in range(101, 101 + others)])
    found: dict[str, list[float]] = {}
    for seed in range(1, 1 + seeds):
        draw = Draw(labelled, unlabelled, seed)
        alone = SVC(C=C, gamma=draw.gamma).fit(draw.X, draw.y)
        timed, ours_timed, least = draw.wrapped(SHARE, EPS), draw.ours(SHARE, start="svm3"), draw.ours(SHARE, start="best")
        scores = {
            "SVC on the labels": float(alone.score(draw.T, draw.truth)),
            "wrapper, settings chosen": draw.score(*draw.wrapped(*best)),
            "ours, settings chosen": draw.score(*draw.ours(mine[0], **KINDS[mine[1]])),
            "wrapper, settings of the times": draw.score(*timed),
            "ours, svm3, settings of the times": draw.score(*ours_timed),
            "ours, least J, settings of the times": draw.score(*least),
            "J of the wrapper": level(*timed, draw.K, draw.y, SHARE),
            "J of ours, svm3": level(*ours_timed, draw.K, draw.y, SHARE),
            "J of ours, least": level(*least, draw.K, draw.y, SHARE),
        }
        if seed <= slow:
            scores["self-training"] = self_training(draw.X, draw.y, draw.U).score(draw.T, (draw.truth > 0).astype(int))
        for name, value in scores.items():
            found.setdefault(name, []).append(float(value))
    for name, values in found.items():
        what = name if name.startswith("J") else f"accuracy, {name}"
        report.value(f"{what} ({len(values)} draws)", float(np.mean(values)), unit=f" ± {error(values):.4f}", form=".4f")
    pairs = {
        ("ours, settings chosen", "wrapper, settings chosen"): ">= -0.002",
        ("ours, settings chosen", "self-training"): ">= -0.002",
        ("ours, svm3, settings of the times", "wrapper, settings of the times"): "",
        ("J of ours, svm3", "J of the wrapper"): "<= 0",
    }
    for (name, rival), target in pairs.items():
        gain = np.subtract(found[name][: len(found.get(rival, ()))], found.get(rival, ()))
        if len(gain):
            report.value(f"{name} - {rival}", float(gain.mean()), target, form=".4f")
            report.note(f"{name} - {rival}: standard error {error(gain):.4f}, {len(gain)} draws, above 0 in {int(np.sum(gain > 0))}")


def error(values: Any) -> float:
    """Standard error of a mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def main() -> None:
    options = bench.arguments(__doc__, unlabelled=5000, seeds=6, others=2, slow=3).parse_args()
    if options.tiny:
        options.unlabelled, options.seeds, options.others, options.slow, options.reps = 200, 2, 1, 1, 1
    report = bench.Report("Tri-class machine: few labels, many unlabelled rows, some irrelevant", options)
    times(report, 100, options.unlabelled, options.reps)
    accuracies(report, 100, options.unlabelled, options.seeds, options.others, options.slow)
    report.show()


if __name__ == "__main__":
    main()
