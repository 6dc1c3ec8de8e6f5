"""The toys of Yang's thesis (2010, Table 6.4): 20 uniform features, additive rules on three or twelve of them, noise of deviation 1.

Run with ``python -m benchmarks.mkl.mkl_toys``. 273 kernels (Gaussians of ten widths and polynomials of degree 1 to 3, on all features and
on each), 150 rows for training and 150 for testing, features as they are drawn (the thesis standardises its UCI rows; it does not say so
here). C of every method by 5-fold cross-validation on the first eight training halves. Beside the published figures stands the accuracy of
the rule without noise, which no method can exceed in the mean.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks._peers import paired
from benchmarks.mkl.mkl_thesis import COSTS, METHODS, Half, chosen_costs, ours
from gramplane.kernels.grams.spec import kernel_grid

PARTS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda a: -2.0 * np.sin(2.0 * a) + 1.0 - np.cos(2.0),
    lambda a: a**2 - 1.0 / 3.0,
    lambda a: a - 0.5,
    lambda a: np.exp(-a) + np.exp(-1.0) - 1.0,
)
PUBLISHED = {
    1: {"v=0.5": (70.4, 3.3, 36.8), "L1": (69.2, 4.5, 22.1), "L2": (68.2, 3.0, 273.0), "uniform": (66.3, 5.3, 273.0)},
    2: {"v=0.5": (72.9, 3.2, 43.4), "L1": (72.3, 3.1, 30.2), "L2": (71.9, 3.6, 273.0), "uniform": (71.6, 4.0, 273.0)},
}
"""Accuracy in per cent, its deviation, and kernels, of Table 6.4."""


def rule(toy: int, X: np.ndarray) -> np.ndarray:
    """Return the rule without noise: the first part of three features, or four parts of three features each."""
    return np.sum([part(X[:, 3 * k : 3 * k + 3]).sum(axis=1) for k, part in enumerate(PARTS[: 1 if toy == 1 else 4])], axis=0)


def drawn(toy: int, seed: int, n: int = 150) -> tuple[Half, float]:
    """Return a draw, and the accuracy of the rule without noise on its test rows."""
    rng = np.random.default_rng([toy, seed])
    X = rng.random((2 * n, 20))
    z = rule(toy, X)
    y = np.where(z + rng.standard_normal(2 * n) > 0, 1.0, -1.0)
    return Half(X[:n], y[:n], X[n:], y[n:]), float(np.mean(np.where(z[n:] > 0, 1.0, -1.0) == y[n:]))


def main() -> None:
    options = bench.arguments(__doc__, repeats=20, choosing=8, costs=",".join(map(str, COSTS))).parse_args()
    costs = tuple(float(C) for C in options.costs.split(","))
    if options.tiny:
        options.repeats, options.choosing, costs = 2, 1, costs[1:3]
    warnings.simplefilter("ignore", ConvergenceWarning)
    report = bench.Report(f"toys of the thesis, {options.repeats} draws", options)
    specs = kernel_grid(20)
    for toy, published in PUBLISHED.items():
        halves, ceilings = zip(*(drawn(toy, seed, 30 if options.tiny else 150) for seed in range(options.repeats)), strict=True)
        chosen = chosen_costs(specs, list(halves[: options.choosing]), costs)
        found = {method: [ours(specs, half, method, chosen[method]) for half in halves] for method in METHODS}
        for method, rows in found.items():
            right, (theirs, spread, kernels) = 100 * np.array([row.accuracy for row in rows]), published[method]
            report.value(f"toy {toy}, {method}: accuracy, per cent", float(right.mean()), f">= {theirs - spread:.1f}", form=".2f")
            own = np.mean([row.kernels for row in rows])
            told = f"toy {toy}, {method}: {right.mean():.1f} +- {right.std(ddof=1):.1f} (thesis {theirs} +- {spread}), {own:.1f} kernels"
            report.note(f"{told} ({kernels:g}), {np.median([row.seconds for row in rows]):.2f} s a fit; C {chosen[method]:g}")
        report.value(f"toy {toy}: the rule without noise, per cent", 100 * float(np.mean(ceilings)), form=".2f")
        for other in ("L1", "L2", "uniform"):
            gain, error = paired([row.accuracy for row in found["v=0.5"]], [row.accuracy for row in found[other]])
            report.note(f"toy {toy}: v=0.5 minus {other}: {100 * gain:+.2f} points (standard error {100 * error:.2f})")
    report.show()


if __name__ == "__main__":
    main()
