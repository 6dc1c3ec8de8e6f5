"""Probabilities of every classifier beside scikit-learn's ``CalibratedClassifierCV`` around the same one: Brier score and log-loss.

Three splits of breast_cancer and wine, columns standardised; both sides calibrate by a sigmoid on decision values of five folds, and
predict with the machine on all rows. Ours shares passes and matrices among folds; seconds are of a fit with its first probabilities,
both sides alternating. ``--only "mkl;fgm"`` measures some methods.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

import gramplane

KERNELS = ["rbf", "linear"]
MACHINES = {
    "fgm": gramplane.FGMClassifier(loss="squared_hinge"),
    "fgm, logistic": gramplane.FGMClassifier(loss="logistic"),
    "group-lasso, squared": gramplane.GroupLassoClassifier(loss="squared", algorithm="fista"),
    "mkl": gramplane.MKLClassifier(KERNELS, scale=None),
    "two-layer-mkl": gramplane.TwoLayerMKLClassifier(KERNELS, scale=None),
    "kta-path": gramplane.KTASelectionPath(),
    "tri-class-svm": gramplane.TriClassSVC(validation=0),
    "rule-ensemble": gramplane.RuleEnsembleClassifier(max_rounds=10),
    "hierarchical-kernels": gramplane.HierarchicalKernelClassifier(dag="subsets(gaussian; depth=1)", scale=None),
    "multitask-mkl": gramplane.MultiTaskMKLClassifier(KERNELS, scale=None),
    "latent-task-mkl": gramplane.LatentTaskMKLClassifier(KERNELS, tol=1e-2, scale=None),
    "shared-subspace-mkl": gramplane.SharedSubspaceMKLClassifier(KERNELS, tol=1e-2, scale=None),
}
SETS = {"breast_cancer": load_breast_cancer, "wine": load_wine}
WORSE = 0.01  # by which the mean Brier score may be above the peer's


def splits(name: str) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    X, y = SETS[name](return_X_y=True)
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(X, y):
        scaler = StandardScaler().fit(X[train])
        yield scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test]


def figures(machine: Any, X: np.ndarray, y: np.ndarray, Z: np.ndarray, truth: np.ndarray) -> tuple[dict[str, float], list[float]]:
    """Return the clock of a fit with its first probabilities, and Brier score and log-loss of these."""
    clock, found = bench.clocked(lambda: clone(machine).fit(X, y).predict_proba(Z))
    hot = np.eye(found.shape[1])[truth]
    return clock, [float(np.mean(np.sum((found - hot) ** 2, axis=1))), float(log_loss(truth, found))]


@bench.program(only=(";".join(MACHINES), "mkl"))
def probabilities(report: bench.Report, options: Any) -> None:
    report.title = "Probabilities beside CalibratedClassifierCV, means over splits"
    for data in list(SETS)[: 1 if options.tiny else None]:
        for name in options.only.split(";"):
            if name == "tri-class-svm" and data == "wine":
                continue  # two classes
            scores: dict[str, list[list[float]]] = {"ours": [], "peer": []}
            clocks: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
            peer = CalibratedClassifierCV(clone(MACHINES[name]), ensemble=False, cv=5)
            figures(MACHINES[name], *next(splits(data)))  # compiles
            for part in islice(splits(data), 1 if options.tiny else 3):
                for side, machine in (("ours", MACHINES[name]), ("peer", peer)):
                    clock, found = figures(machine, *part)
                    scores[side].append(found)
                    clocks[side].append(clock)
            (brier, loss), (brier_peer, loss_peer) = (np.mean(scores[side], axis=0) for side in ("ours", "peer"))
            report.value(f"{data}, {name}: Brier score", brier, f"<= {brier_peer + WORSE:.3f}", form=".3f")
            report.value(f"{data}, {name}: Brier score of the peer", brier_peer, form=".3f")
            report.value(f"{data}, {name}: log-loss", loss, form=".3f")
            report.value(f"{data}, {name}: log-loss of the peer", loss_peer, form=".3f")
            report.ratio(f"{data}, {name}: time, ours : peer", *map(bench.timing_of, clocks.values()), None)
            print(
                f"{data:14} {name:22} Brier {brier:.3f} {brier_peer:.3f}  log-loss {loss:.3f} {loss_peer:.3f}", file=sys.stderr, flush=True
            )
    report.note(
        "Both sides fit once on all training rows and five times without a fold; the logistic loss needs no calibration on our side."
    )


if __name__ == "__main__":
    bench.run()
