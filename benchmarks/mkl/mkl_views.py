"""Kernels of several views: weights learnt over them against the best single kernel and equal weights, on real data.

    GRAMPLANE_DATA=FOLDER python -m benchmarks.mkl.mkl_views --sets proteins
    GRAMPLANE_DATA=FOLDER python -m benchmarks.mkl.mkl_views --sets images

* proteins: 940 proteins of multiloc_a, classes chloroplast, mitochondrial, extracellular and the rest, halves of 470 (the sizes of the
  plant set of Yang's thesis, 2010, Table 6.6). Views: counts of all 1-, 2- and 3-mers of the sequence and of 1- and 2-mers of its two ends
  (their cosines are the normalised spectrum kernels), and the composition of five segments (Gaussians of three widths, a square).
* images: msrcv1_views, 7 classes, five descriptors, halves of 105. Per view a cosine, Gaussians of three widths, and a square.

The views stand side by side as columns of one matrix, and every kernel names the columns it looks at. All methods get their C (ours and v)
from 3-fold cross-validation on the first training half; the single kernel is chosen so on every training half.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit, cross_val_score
from sklearn.preprocessing import StandardScaler

from gramplane import MKLClassifier
from gramplane.kernels.grams.spec import KernelSpec

COSTS = (0.1, 1.0, 10.0)
MIXES = (0.5, 1.0)
WIDTHS = (0.25, 1.0, 4.0)
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
PLANT = ("chloroplast", "mitochondrial", "extracellular")


@dataclass(frozen=True)
class View:
    """A block of columns: as it is (counts, for a cosine) or to be standardised (for Gaussians)."""

    name: str
    values: Any
    standardise: bool = True


@dataclass(frozen=True)
class Data:
    """Views of the same rows, and the classes."""

    name: str
    views: tuple[View, ...]
    y: np.ndarray


def columns_of(views: Sequence[View]) -> list[range]:
    """Return the columns of every view in the matrix of all."""
    edges = np.cumsum([0, *(view.values.shape[1] for view in views)]).tolist()
    return [range(lo, hi) for lo, hi in itertools.pairwise(edges)]


def kernels_of(views: Sequence[View]) -> list[KernelSpec]:
    """Return the kernels: a cosine on counts; Gaussians and a square on standardised columns."""
    found = []
    for view, columns in zip(views, columns_of(views), strict=True):
        here, d = tuple(columns), len(columns)
        if not view.standardise:
            found.append(KernelSpec("linear", (), here, "cosine"))
            continue
        found += [KernelSpec("rbf", (("gamma", width / d),), here) for width in WIDTHS]
        found.append(KernelSpec("poly", (("degree", 2), ("gamma", 1.0 / d)), here))
    return found


def matrix(views: Sequence[View], train: np.ndarray) -> sp.csr_array:
    """Return all views side by side, those that ask for it standardised by the training rows."""
    parts = [StandardScaler().fit(v.values[train]).transform(v.values) if v.standardise else v.values for v in views]
    return sp.csr_array(sp.hstack([sp.csr_array(part) for part in parts], format="csr"))


# -- data ------------------------------------------------------------------------------------------------------------------


def _counts(name: str, texts: Sequence[str], k: int) -> View:
    counter = CountVectorizer(analyzer="char", ngram_range=(k, k), lowercase=False)
    return View(f"{name}, {k}-mers", sp.csr_array(counter.fit_transform(texts).astype(np.float64)), standardise=False)


def _composition(name: str, texts: Sequence[str]) -> View:
    found = np.array([[text.count(letter) for letter in AMINO_ACIDS] for text in texts], np.float64)
    return View(f"{name}, composition", found / np.maximum(found.sum(axis=1, keepdims=True), 1.0))


def proteins(folder: Path, rows: int = 940) -> Data:
    """Return protein sequences as k-mer counts and compositions of segments."""
    with np.load(folder / "multiloc_a.npz") as arrays:
        text, edges, codes = arrays["seq"].tobytes().decode("ascii"), arrays["offsets"], arrays["y"]
        names = arrays["class_names"].tolist()
    place = {names.index(next(n for n in names if n.lower().startswith(word[:6]))): k for k, word in enumerate(PLANT)}
    y = np.array([place.get(int(code), len(PLANT)) for code in codes])
    chosen, _ = next(StratifiedShuffleSplit(1, train_size=rows, random_state=0).split(y, y))
    whole = [text[edges[i] : edges[i + 1]] for i in chosen]
    return Data("proteins", tuple(protein_views(whole)), y[chosen])


def protein_views(whole: Sequence[str]) -> Iterator[View]:
    """Yield the views of sequences."""
    head, tail = [t[:60] for t in whole], [t[-60:] for t in whole]
    for k in (1, 2, 3):
        yield _counts("whole", whole, k)
    for name, part in (("first 60", head), ("last 60", tail)):
        for k in (1, 2):
            yield _counts(name, part, k)
    segments = {"first 20": (0, 20), "20 to 60": (20, 60), "60 to 150": (60, 150)}
    for name, (lo, hi) in segments.items():
        yield _composition(name, [t[lo:hi] for t in whole])
    yield _composition("last 60", tail)
    yield _composition("whole", whole)


def images(folder: Path) -> Data:
    """Return five descriptors of images."""
    with np.load(folder / "msrcv1_views.npz") as arrays:
        values, y = [np.asarray(arrays[f"X{k}"], np.float64) for k in range(1, 6)], arrays["y"].astype(int).ravel()
    plain = [View(f"view {k + 1}", v - v.min(), standardise=False) for k, v in enumerate(values)]
    return Data("images", (*plain, *(View(f"view {k + 1}", v) for k, v in enumerate(values))), y)


def stand_in(_: Path) -> Data:
    """Return two halves of handwritten digits as views."""
    from sklearn.datasets import load_digits

    X, y = load_digits(n_class=3, return_X_y=True)
    X, y = X[:90], y[:90]
    views = (View("upper", X[:, :32]), View("lower", X[:, 32:]), View("all", X, standardise=False))
    return Data("stand-in", views, y)


SETS: dict[str, Callable[[Path], Data]] = {"proteins": proteins, "images": images}


# -- methods ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """Accuracy of a split and how many kernels are read to predict: by any class, and by a class on average."""

    accuracy: float
    kernels: int
    per_class: float


def scored(model: MKLClassifier, X: Any, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> Score:
    """Fit on training rows and score on test rows."""
    model.fit(X[train], y[train])
    weights = np.atleast_2d(model.kernel_weights_)
    each = np.mean([np.sum(row > model.threshold * row.max()) for row in weights])
    return Score(float(np.mean(model.predict(X[test]) == y[test])), len(model.support_), float(each))


def best(models: Sequence[MKLClassifier], X: Any, y: np.ndarray) -> MKLClassifier:
    """Return the model with the best accuracy in 3-fold cross-validation; the first of equal ones."""
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    return models[int(np.argmax([cross_val_score(model, X, y, cv=folds, error_score="raise").mean() for model in models]))]


def run_set(data: Data, splits: int, report: bench.Report) -> None:
    """Run all splits of a data set and add its figures."""
    kernels, halves = kernels_of(data.views), StratifiedShuffleSplit(splits, train_size=0.5, random_state=0)
    learnt = [MKLClassifier(kernels, C=C, v=v, normalize="multiplicative", scale=None) for v in MIXES for C in COSTS]
    equal = [MKLClassifier(kernels, C=C, solver="uniform", normalize="multiplicative", scale=None) for C in COSTS]
    rows: dict[str, list[Score]] = {"ours": [], "uniform": [], "single": []}
    singles, watch = [], bench.stopwatch()
    for place, (train, test) in enumerate(halves.split(data.y, data.y)):
        X = matrix(data.views, train)
        if place == 0:
            learnt, equal = [best(learnt, X[train], data.y[train])], [best(equal, X[train], data.y[train])]
            report.note(
                f"{data.name}: {len(kernels)} kernels; ours {learnt[0].C=}, {learnt[0].v=}; uniform {equal[0].C=}".replace("[0].", " ")
            )
        candidates = [
            MKLClassifier([spec], C=C, solver="uniform", normalize="multiplicative", scale=None) for spec in kernels for C in COSTS[1:]
        ]
        single = best(candidates, X[train], data.y[train])
        singles.append(str(single.kernels[0]))
        for name, model in (("ours", learnt[0]), ("uniform", equal[0]), ("single", single)):
            rows[name].append(scored(model, X, data.y, train, test))
    report.note(f"{data.name}: {watch():.0f} s; single kernels chosen: {', '.join(sorted(set(singles)))}")
    add_figures(data.name, rows, len(kernels), report)


def add_figures(name: str, rows: dict[str, list[Score]], count: int, report: bench.Report) -> None:
    """Add accuracies, paired differences and counts of kernels."""
    accuracy = {method: np.array([score.accuracy for score in found]) for method, found in rows.items()}
    for method, values in accuracy.items():
        report.value(f"{name}: accuracy, {method}", float(values.mean()))
        report.note(f"{name}, {method}: {values.mean():.4f} ± {values.std(ddof=1):.4f} over splits")
    for other in ("single", "uniform"):
        gain = accuracy["ours"] - accuracy[other]
        report.value(f"{name}: ours minus {other}, paired mean", float(gain.mean()), ">= 0")
        report.note(f"{name}, ours minus {other}: {gain.mean():+.4f}, standard error {gain.std(ddof=1) / np.sqrt(len(gain)):.4f}")
    report.value(f"{name}: kernels read, any class", float(np.mean([score.kernels for score in rows["ours"]])), f"<= {count - 1}")
    report.value(f"{name}: kernels of a class, mean", float(np.mean([score.per_class for score in rows["ours"]])))


def main() -> None:
    """Print the table."""
    parser = bench.arguments(__doc__ or "", splits=10, sets=",".join(SETS))
    parser.add_argument("--data", default=os.environ.get("GRAMPLANE_DATA"), help="folder of the data sets (default: $GRAMPLANE_DATA)")
    options = parser.parse_args()
    chosen = ["stand-in"] if options.tiny else options.sets.split(",")
    if options.tiny:
        options.splits = 2
    elif not options.data or any(name not in SETS for name in chosen):
        parser.error(f"--data (or $GRAMPLANE_DATA) must name the folder of the data sets, --sets some of {', '.join(SETS)}")
    report = bench.Report(f"learnt weights of kernels on several views: {', '.join(chosen)}, {options.splits} splits", options)
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in chosen:
        run_set({**SETS, "stand-in": stand_in}[name](Path(options.data or ".")), options.splits, report)
    report.show()


if __name__ == "__main__":
    main()
