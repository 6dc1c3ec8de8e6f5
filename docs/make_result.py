"""Draw ``result.svg``, the picture of the README and of the first page, and ``weights.svg`` of "Five minutes in Python" into
``docs/_static``: ``python docs/make_result.py`` (about a minute).

Five tables of 600 rows and 4,000 columns, of which 40 carry the classes (`gramplane.datasets.dense_linear`, seeds 0 to 4), and 2,000 rows
more as test set. FGM takes B features in each of four rounds; the l1-SVM is scikit-learn's at several C. A point is the mean of the five.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.svm import LinearSVC

from gramplane import FGMClassifier
from gramplane.datasets import dense_linear
from gramplane.plots import WeightsDisplay

SETTINGS = {
    "Feature Generating Machine": [FGMClassifier(B=B, max_rounds=4) for B in (2, 5, 8, 10, 15, 20, 30, 50)],
    "l1-penalised SVM": [LinearSVC(penalty="l1", C=C, dual=False) for C in (0.005, 0.006, 0.008, 0.01, 0.014, 0.02, 0.03, 0.05, 0.1)],
}


def measured() -> dict[str, np.ndarray]:
    """Return the features kept and the test accuracy of every setting, means over the tables."""
    found = {name: [] for name in SETTINGS}
    for seed in range(5):
        data = dense_linear(n=600, d=4000, relevant=40, n_test=2000, seed=seed)
        for name, models in SETTINGS.items():
            fits = [model.fit(data.X, data.y) for model in models]
            found[name].append([(np.count_nonzero(fit.coef_), fit.score(data.X_test, data.y_test)) for fit in fits])
    return {name: np.mean(points, axis=0) for name, points in found.items()}


def draw(points: dict[str, np.ndarray]) -> plt.Figure:
    """Return the picture."""
    figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
    for (name, path), colour, marker in zip(points.items(), ("#0b6e8f", "#b8560f"), "os", strict=True):
        axes.plot(path[:, 0], 100 * path[:, 1], marker + "-", color=colour)
        best = path[path[:, 1].argmax()]
        text = f"{name}\n{best[0]:.0f} features: {100 * best[1]:.1f} %"
        axes.annotate(text, (best[0], 100 * best[1]), (0, 9), textcoords="offset points", color=colour, ha="center")
    axes.set(xscale="log", xlabel="features kept, of 4,000", ylabel="test accuracy, %", ylim=(65, 97))
    axes.set_xticks([10, 20, 40, 100, 200, 400], ["10", "20", "40", "100", "200", "400"])
    axes.minorticks_off()
    axes.axvline(40, ymax=0.55, color="grey", linestyle=":", linewidth=1)
    axes.text(41, 66, "40 carry the classes", color="grey")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_weights() -> plt.Figure:
    """Return the picture that the third block of "Five minutes in Python" draws."""
    data = load_breast_cancer(as_frame=True)
    return WeightsDisplay.from_estimator(FGMClassifier(B=2, max_rounds=3).fit(data.data, data.target)).figure_


def save(figure: plt.Figure, name: str) -> None:
    """Write a picture, the same bytes each time."""
    figure.savefig(Path(__file__).parent / "_static" / name, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gramplane", "font.family": "sans-serif", "font.size": 11})
    save(draw(measured()), "result.svg")
    save(draw_weights(), "weights.svg")
