"""Few rows, very many columns: how many features FGMClassifier keeps at its defaults, beside ten rounds and the form with cross-validation.

Run with ``python -m benchmarks.fgm.fgm_few_rows``. Columns are standard normal, true weights +1 and -1, and noise has half the deviation of
the signal, or all of it; the label is the sign of the sum. Shapes (rows, columns, true ones) and seeds 0 to 4 were written down before a
rule was tried: SHAPES, on which rules were compared, and FURTHER, on which none was. Accuracy is that on 2,000 other rows. The aim: with
defaults at most two points below cross-validation in the mean.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import warnings

import numpy as np

from gramplane import FGMClassifier, FGMClassifierCV

Shape = tuple[int, int, int]
SHAPES: tuple[Shape, ...] = ((100, 2_000, 5), (200, 10_000, 5), (400, 20_000, 8), (600, 50_000, 20), (1_000, 5_000, 20))
FURTHER: tuple[Shape, ...] = ((300, 30_000, 10), (800, 8_000, 12))
NOISES = (0.5, 1.0)
N_TEST = 2_000
BELOW = 0.02
FITS = {"ten rounds": lambda: FGMClassifier(max_rounds=10), "defaults": FGMClassifier, "cross-validation": FGMClassifierCV}


def draw(shape: Shape, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of training and test, and their labels."""
    n, d, k = shape
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n + N_TEST, d), dtype=np.float32)
    true, w = rng.choice(d, k, replace=False), rng.choice([-1.0, 1.0], k)
    return X, np.where(X[:, true] @ w + noise * np.sqrt(k) * rng.standard_normal(len(X)) > 0, 1, -1)


def measured(shape: Shape, noise: float, seed: int) -> list[tuple[float, int]]:
    """Return accuracy and number of features of every fit."""
    (X, y), n, found = draw(shape, noise, seed), shape[0], []
    for make in FITS.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            machine = make().fit(X[:n], y[:n])
        found.append((machine.score(X[n:], y[n:]), len(machine.selected_)))
    return found


def main() -> None:
    options = bench.arguments(__doc__, seeds=5).parse_args()
    report = bench.Report("FGM at its defaults where rows are few", options)
    for part, shapes in (("compared", SHAPES), ("not compared", FURTHER)):
        everything = []
        for n, d, k in ((60, 300, 3),) if options.tiny else shapes:
            for noise in NOISES:
                told = np.array([measured((n, d, k), noise, seed) for seed in range(2 if options.tiny else options.seeds)])
                everything.append(told)
                cells = (f"{name} {score:.3f} of {count:.0f}" for name, (score, count) in zip(FITS, told.mean(axis=0), strict=True))
                report.lines.append((f"{n} x {d}, {k} true, noise {noise:g} of the signal", "; ".join(cells), "", "accuracy of features"))
        means = np.concatenate(everything).mean(axis=0)
        for name, (score, count) in zip(FITS, means, strict=True):
            report.value(f"{part}: {name}, mean accuracy", float(score), form=".4f")
            report.value(f"{part}: {name}, mean number of features", float(count), form=".1f")
        below = float(means[2, 0] - means[1, 0])
        report.value(f"{part}: cross-validation minus defaults", below, f"<= {BELOW}" if part == "compared" else None, form="+.4f")
    report.show()


if __name__ == "__main__":
    main()
