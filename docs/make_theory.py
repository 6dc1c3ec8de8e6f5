"""Figures of theory pages: what a round of FGM looks at, the cuts of MKL, and the hull of a rule ensemble."""

from __future__ import annotations

import io
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import make_moons
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from gramplane import FGMClassifier
from gramplane.datasets import dense_linear

FOLDER = Path(__file__).parent / "theory" / "figures"
PLAIN, STRONG, NEXT = "#8a9099", "#0b6e8f", "#b8560f"
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "gramplane", "font.family": "sans-serif", "font.size": 11}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False}


def scores_of_rounds() -> Figure:
    """Draw the scores of all features at the start of three rounds of FGM, and which are taken."""
    data = dense_linear(n=120, d=40, relevant=6, seed=0)
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    kept: set[int] = set()
    for t, axes in enumerate(figure.subplots(1, 3, sharey=True)):
        margins = np.zeros(len(data.y))
        if t:
            model = FGMClassifier(B=2, C=0.1, scale="none", max_rounds=t).fit(data.X, data.y)
            kept, margins = set(np.flatnonzero(model.coef_)), data.y * model.decision_function(data.X)
        scores = np.abs(data.X.T @ (data.y * np.maximum(0, 1 - margins)))
        taken = set(np.argsort(-scores)[:2])
        for j, score in enumerate(scores):
            axes.bar(j, score, color=NEXT if j in taken else STRONG if j in kept else PLAIN)
        axes.set(title=f"round {t + 1}", xlabel="feature", xticks=[])
        if not t:
            axes.set_ylabel(r"score $|c_j|$")
    return figure


def cuts_of_weights() -> Figure:
    """Draw J over the weights of two kernels, and the cuts that three steps have left below it."""
    X, y = make_moons(60, noise=0.3, random_state=0)
    signs, kernels = 2.0 * y - 1, (rbf_kernel(X, gamma=1.0), rbf_kernel(X, gamma=30.0))

    def cut(theta: float) -> tuple[float, np.ndarray]:
        model = SVC(kernel="precomputed", C=1.0, tol=1e-6).fit(theta * kernels[0] + (1 - theta) * kernels[1], y)
        beta = np.zeros(len(y))
        beta[model.support_] = model.dual_coef_[0]
        return float(signs @ beta), np.array([beta @ kernel @ beta for kernel in kernels])

    def height(found: tuple[float, np.ndarray], theta: Any) -> Any:
        return found[0] - 0.5 * (theta * found[1][0] + (1 - theta) * found[1][1])

    grid = np.linspace(0, 1, 61)
    truth = [height(cut(theta), theta) for theta in grid]
    steps = [0.1, 0.85]
    for _ in range(2):
        below = np.max([height(cut(theta), grid) for theta in steps], axis=0)
        steps.append(grid[below.argmin()])
    figure = Figure(figsize=(6.0, 3.2), layout="constrained")
    axes = figure.subplots()
    for i, theta in enumerate(steps[:3], 1):
        axes.plot(grid, height(cut(theta), grid), color=PLAIN, linewidth=1)
        axes.plot(theta, height(cut(theta), theta), "o", color=STRONG)
        axes.annotate(str(i), (theta, height(cut(theta), theta)), (0, 8), textcoords="offset points", ha="center")
    axes.plot(grid, truth, color=STRONG, linewidth=2, label=r"$J(\theta)$")
    axes.plot(grid, below, color=NEXT, linewidth=2, label=r"greatest cut $h(\theta)$")
    axes.plot(steps[3], below.min(), "v", color=NEXT, label="lower bound")
    axes.set(xlabel=r"weight $\theta_1$ of the first of two kernels", ylabel="objective", ylim=(below.min() - 2, max(truth) + 1))
    axes.legend(frameon=False)
    return figure


def hull_of_rules() -> Figure:
    """Draw the conjunctions of four propositions: a hull, what may join it next, and the rest."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = figure.subplots()
    hull = {(), (0,), (1,), (2,), (0, 1)}
    rows = [list(combinations(range(4), size)) for size in range(4)]
    nodes = {node: (i - (len(row) - 1) / 2, -len(node)) for row in rows for i, node in enumerate(row)}
    for node, (x, depth) in nodes.items():
        parents = [tuple(part for part in node if part != one) for one in node]
        colour = STRONG if node in hull else NEXT if hull.issuperset(parents) else PLAIN
        for parent in parents:
            axes.plot([1.7 * nodes[parent][0], 1.7 * x], [depth + 1, depth], color=PLAIN, linewidth=0.8, zorder=0)
        text = " ∧ ".join("pqrs"[part] for part in node) or "always"
        axes.text(1.7 * x, depth, text, ha="center", va="center", color="white", bbox={"boxstyle": "round,pad=0.35", "color": colour})
    for x, colour, text in (
        (-4.8, STRONG, "in the hull W"),
        (-2.0, NEXT, "may join next"),
        (0.8, PLAIN, "bounded by a search"),
    ):
        axes.text(x, -3.7, text, color=colour, va="center", weight="bold")
    axes.set(xlim=(-5.2, 5.2), ylim=(-4, 0.4))
    axes.axis("off")
    return figure


FIGURES = {"fgm": scores_of_rounds, "mkl": cuts_of_weights, "rule_ensemble": hull_of_rules}


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    return text.getvalue()


def pages() -> dict[Path, str]:
    """Return every figure by its path."""
    with mpl.rc_context(STYLE):
        return {FOLDER / f"{name}.svg": _svg(draw()) for name, draw in FIGURES.items()}
