"""Inputs of a tri-class SVM from labelled and unlabelled rows: concatenated rows, labels, costs, kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.spec import KernelSpec, as_specs
from ....kernels.svm.triclass import Points
from ....storage import BlockStore, DataError, MemoryBlocks
from ...grams.given import GivenGrams
from ...grams.sources import TextRows, read_rows, rows_of
from ...inputs.folds import fold_masks
from ...inputs.kernels import check_rows, closed_kernels, resolved_kernels
from ...inputs.labels import Inputs, class_factors, label_spelling
from ...models.kernel import spans
from ...passes.blocks import Rows
from ...records.data_set import Reads
from ...records.joined import JoinedStores
from .config import TriClassConfig

TriClassRows: TypeAlias = BlockStore | JoinedStores | MemoryBlocks | TextRows | GivenGrams  # what a fit may learn from

AUTO_FOLDS = 3  # of a validation that nobody asked for,
AUTO_ROWS = 5000  # and the most rows that it is made on
NAMED_KERNELS = ("rbf", "laplacian", "poly", "linear")


@dataclass(frozen=True)
class TriClassInputs(Reads):
    """Inputs of a fit apart from its parameters."""

    data: TriClassRows  # labelled rows, then unlabelled ones
    truth: np.ndarray  # (n_labelled,) index of the class, -1 for rows of no class
    n_unlabelled: int
    sample_weight: np.ndarray | None = None  # (n_labelled,) factors of C
    classes: tuple[Any, ...] = (-1, 1)  # the labels of the classes
    held_out: np.ndarray | None = None  # (n_labelled,) mask of rows that are not learnt from but measured
    unlabelled_store: BlockStore | None = None  # where a run found its unlabelled rows

    @property
    def labelled(self) -> Inputs:
        """The labelled rows, with weight zero for rows of no class."""
        weight = np.ones(len(self.truth)) if self.sample_weight is None else self.sample_weight
        used = self.relevant if self.held_out is None else self.relevant & ~self.held_out
        return Inputs(self.data, np.maximum(self.truth, 0), self.classes, np.where(used, weight, 0.0))

    @property
    def n_machines(self) -> int:
        """Number of binary models: one for two classes, else one per class."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    def sides(self, machine: int) -> np.ndarray:
        """Return the labels of one binary model, ``(n_labelled,)``: +1 for the second of two classes, or for the model's class; -1 for the
        other classes; 0 for rows of no class.
        """
        return np.where(self.truth == (1 if self.n_machines == 1 else machine), 1.0, np.where(self.relevant, -1.0, 0.0))

    def without(self, held_out: np.ndarray) -> TriClassInputs:
        """Return inputs without the held-out labelled rows."""
        return replace(self, held_out=held_out if self.held_out is None else self.held_out | held_out)

    @property
    def counts(self) -> np.ndarray | None:
        """Counts of labelled rows followed by unlabelled ones, ``(n,)``; None: 1 each. Held-out rows have their counts, too."""
        return None if self.sample_weight is None else np.concatenate([self.sample_weight, np.ones(self.n_unlabelled)])

    @property
    def unlabelled(self) -> np.ndarray:
        """``(n,)`` mask of the unlabelled rows."""
        return np.arange(len(self.truth) + self.n_unlabelled) >= len(self.truth)

    @property
    def relevant(self) -> np.ndarray:
        """``(n_labelled,)`` mask of the rows of the classes."""
        return self.truth >= 0


NEITHER = 0
"""Label of rows of no class with ``irrelevant_label="auto"``."""


def split_labels(
    y: Sequence[Any] | np.ndarray, irrelevant: Any, weight: np.ndarray | None = None, url: str = "", *, has_unlabelled: bool = True
) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Return the class of every row as its index in the classes, -1 for none, and the classes in ascending order.

    Rows labelled ``irrelevant`` belong to no class; if there are two labels in all, 0 is a class like any other. Raises DataError in four
    cases:

    * There is one class only.
    * A class has no row of positive weight.
    * Labels are -1, 0 and 1, and neither an irrelevant label nor unlabelled rows are given.
    * There are more than three labels, among them 0, and no irrelevant label is given: 0 may be a class, or mark rows of no class.
    """
    names, codes = np.unique(np.asarray(y), return_inverse=True)
    labels = names.tolist()
    if irrelevant == "auto" and not has_unlabelled and {"-1", "0", "1"} == {*map(label_spelling, labels)}:
        raise DataError(
            "y holds -1 beside 0 and 1: if -1 marks unlabelled rows, give these as X_unlabelled (--unlabelled); if 0 marks rows of neither "
            "class, set irrelevant_label=0",
            url,
        )
    if irrelevant == "auto" and len(labels) > 3 and "0" in map(label_spelling, labels):
        raise DataError(
            f"y holds 0 beside {len(labels) - 1} other labels: if 0 is a class, set irrelevant_label=None (--irrelevant-label null); if it "
            "marks rows of no class, set irrelevant_label=0",
            url,
        )
    irrelevant = NEITHER if irrelevant == "auto" else irrelevant
    out = [irrelevant is not None and label_spelling(label) == label_spelling(irrelevant) for label in labels]
    if len(labels) == 2 and not isinstance(irrelevant, str | bool) and irrelevant == 0:
        out = [False, False]
    chosen = [k for k, is_out in enumerate(out) if not is_out]
    if len(chosen) < 2:
        besides = f" beside irrelevant_label={irrelevant!r}" if any(out) else ""
        raise DataError(f"y holds one class only{besides} (labels {labels!r}): a fit needs rows of two or more", url)
    for k in chosen:
        if weight is not None and not np.any(weight[codes == k] > 0):
            raise DataError(f"y: no row labelled {labels[k]!r} has a positive weight; a fit needs rows of every class", url)
    places = np.full(len(labels), -1)
    places[chosen] = np.arange(len(chosen))
    return places[codes], tuple(labels[k] for k in chosen)


def three_way_labels(classes: Sequence[Any], irrelevant: Any) -> np.ndarray:
    """Return the labels of the classes, and of rows of no class: between two classes, or after several. The array has the type of the
    classes if the label of rows of no class has that type. Raises ValueError if that label is also a class.
    """
    irrelevant = NEITHER if irrelevant == "auto" else irrelevant
    same = next((label for label in classes if irrelevant is not None and label_spelling(label) == label_spelling(irrelevant)), None)
    if same is not None:
        raise ValueError(
            f"irrelevant_label={irrelevant!r} is also the class {same!r}: fit with another irrelevant_label for rows of neither class"
        )
    names = [classes[0], irrelevant, classes[1]] if len(classes) == 2 else [*classes, irrelevant]
    kinds = {
        "text" if isinstance(name, str) else "number" if isinstance(name, int | float) and not isinstance(name, bool) else ""
        for name in names
    }
    return np.array(names, dtype=None if len(kinds) == 1 and "" not in kinds else object)


def join_stores(data: BlockStore, unlabelled: BlockStore | None) -> BlockStore | JoinedStores:
    """Return the rows of two stores one after the other, without reading them; if there is no second store, return the first.

    Raises DataError if the second store has no rows, another number of features, or another scaling.
    """
    if unlabelled is None:
        return data
    _check_same_form(data, unlabelled)
    if data.shown is None:
        return JoinedStores([data, unlabelled])
    kind, centred = data.shown
    return JoinedStores([data, unlabelled.with_scale(kind, centred=centred)])


def rows_bytes(data: TriClassRows) -> int:
    """Return the memory in bytes that the rows of stores take in the form that kernels read, with the copy made while reading; 0 for other
    data.
    """
    if not isinstance(data, BlockStore | JoinedStores):
        return 0
    stores = data.stores if isinstance(data, JoinedStores) else (data,)
    is_dense = stores[0].meta.kind == "dense"
    return 8 * data.n_cols * data.n_rows if is_dense else 2 * sum(block.nbytes for store in stores for block in store.column_blocks())


def rows_here(data: JoinedStores) -> MemoryBlocks | TextRows:
    """Return the rows of two stores in the memory of this process, in the form that kernels read."""
    rows = read_rows(data)
    return MemoryBlocks(rows) if data.n_cols else TextRows([str(text) for text in rows])


def _check_same_form(data: BlockStore, unlabelled: BlockStore) -> None:
    if unlabelled.n_rows == 0:
        raise DataError("it has no rows; leave it out, or give unlabelled rows", unlabelled.url)
    if unlabelled.meta.kind != data.meta.kind:
        kinds = f"it holds {unlabelled.meta.kind} rows, but {data.url} holds {data.meta.kind} rows"
        raise DataError(f"{kinds}; ingest both in one form", unlabelled.url)
    if unlabelled.n_cols != data.n_cols:
        widths = f"it has {unlabelled.n_cols} features, {data.url} has {data.n_cols}"
        raise DataError(f"{widths}; ingest it with --like {data.url}", unlabelled.url)
    kind, own = ("none", ()) if data.shown is not None else (data.meta.scale, ("factor", "shift"))
    scales = [(getattr(unlabelled.scale, name), getattr(data.scale, name)) for name in own]
    is_same = all(np.array_equal(other, scale, equal_nan=True) for other, scale in scales if scale is not None)
    if unlabelled.meta.scale != kind or not is_same:
        raise DataError(f"its features are not scaled like those of {data.url}; ingest it with --like {data.url}", unlabelled.url)


def resolve_kernel(
    config: TriClassConfig, data: TriClassRows, held_out: np.ndarray | None = None, counts: np.ndarray | None = None
) -> KernelSpec:
    """Return the kernel of a fit; ``counts`` are the row counts. Raises ValueError for a kernel that is unknown or does not suit the
    data.
    """
    if isinstance(data, GivenGrams) or config.kernel == "precomputed":
        if not isinstance(data, GivenGrams):
            raise ValueError("kernel='precomputed' needs a matrix of the rows; a run on a store computes its kernel")
        kernels = resolved_kernels(config.kernel, data, "none")
        if len(kernels) != 1:
            raise ValueError(f"kernel='precomputed': {len(kernels)} matrices were given; tri-class-svm takes one")
        return kernels[0]
    kernel = kernel_with_parameters(config, data, held_out, counts)
    # What a kernel asks of rows is asked of those of either store.
    parts: Sequence[Any] = data.stores if isinstance(data, JoinedStores) else (data,)
    specs = closed_kernels([kernel], parts[0], None if counts is None else counts[: parts[0].n_rows])
    for part in parts:
        check_rows(specs, part)  # pyright: ignore[reportArgumentType] (texts are no joined stores)
    return specs[0]


def kernel_with_parameters(
    config: TriClassConfig, data: Rows | TextRows, held_out: np.ndarray | None = None, counts: np.ndarray | None = None
) -> str:
    """Return the kernel expression of a kernel. A kernel given by name gets gamma, degree and coef0 from the parameters."""
    if config.kernel not in NAMED_KERNELS or config.kernel == "linear":
        return config.kernel
    gamma = repr(_resolve_gamma(config, data, held_out, counts))
    poly = f"poly(degree={config.degree},gamma={gamma},coef0={config.coef0!r})"
    return poly if config.kernel == "poly" else f"{config.kernel}(gamma={gamma})"


def _resolve_gamma(config: TriClassConfig, data: Rows | TextRows, held_out: np.ndarray | None, counts: np.ndarray | None) -> float:
    if not isinstance(config.gamma, str):
        return float(config.gamma)
    if data.n_cols == 0:
        raise ValueError(f"kernel={config.kernel!r} reads numbers; the data set holds strings")
    if config.gamma == "auto":
        return 1.0 / data.n_cols
    count, total, squares = 0.0, 0.0, 0.0
    times = np.ones(data.n_rows) if counts is None else counts.copy()
    if held_out is not None:
        times[: len(held_out)][held_out] = 0.0
    for lo, hi in spans(data.n_rows, 4096):
        used = lo + np.flatnonzero(times[lo:hi])
        rows = rows_of(data, lo, hi)[used - lo]
        values, sizes = (rows.data, np.diff(rows.indptr)) if sp.issparse(rows) else (np.asarray(rows).ravel(), rows.shape[1])
        each = 1.0 if counts is None else np.repeat(times[used], sizes)
        count += float(times[used].sum()) * rows.shape[1]
        total += float((values if counts is None else each * values).sum(dtype=np.float64))
        squares += float((each * np.square(values, dtype=np.float64)).sum())
    variance = squares / count - (total / count) ** 2
    return 1.0 / (data.n_cols * variance) if variance > 0 else 1.0


def kernel_text(kernel: str | KernelSpec | Callable[..., Any]) -> str:
    """Return a kernel in the form of the parameter: a name, ``"precomputed"``, or a kernel expression."""
    if isinstance(kernel, str):
        return kernel
    return str(as_specs([kernel], None if getattr(kernel, "columns", None) is None else 1 << 31)[0])


def make_points(config: TriClassConfig, inputs: TriClassInputs, held_out: np.ndarray | None, machine: int) -> Points:
    """Return labels and costs of all rows for one binary model; held-out rows have cost zero. Raises ValueError for a balance without
    unlabelled rows, and for a class weight of an unknown class.
    """
    if config.balance is not None and not inputs.n_unlabelled:
        raise ValueError(f"balance={config.balance!r} is the mean value of unlabelled rows, but there are none; leave balance out")
    labels, count = inputs.sides(machine), inputs.n_unlabelled
    weight = np.ones(len(labels)) if inputs.sample_weight is None else inputs.sample_weight
    weight = weight if held_out is None else np.where(held_out, 0.0, weight)
    irrelevant = config.C_unlabelled if config.C_irrelevant is None else config.C_irrelevant
    cost = weight * np.where(inputs.relevant, config.C, irrelevant)
    if config.class_weight is not None:
        codes = inputs.truth[inputs.relevant]
        factors = class_factors(config.class_weight, inputs.classes, codes, weight[inputs.relevant])
        cost[inputs.relevant] *= factors[codes]
    used = inputs.relevant & (weight > 0)
    balance = float(np.average(labels[used], weights=weight[used])) if config.balance == "labels" else config.balance
    labels, cost = np.concatenate([labels, np.zeros(count)]), np.concatenate([cost, np.full(count, config.C_unlabelled)])
    return Points(labels, inputs.unlabelled, cost, config.eps, config.all_relevant, balance)


def validation_folds(config: TriClassConfig, inputs: TriClassInputs) -> int:
    """Return the number of folds of the validation of a fit; 0 for none."""
    if config.validation != "auto":
        return config.validation
    used = inputs.relevant if inputs.sample_weight is None else inputs.relevant & (inputs.sample_weight > 0)
    is_wanted = inputs.n_unlabelled > 0 and config.C_unlabelled > 0 and inputs.held_out is None and inputs.data.n_rows <= AUTO_ROWS
    return AUTO_FOLDS if is_wanted and np.bincount(inputs.truth[used], minlength=len(inputs.classes)).min() >= AUTO_FOLDS else 0


def validation_masks(config: TriClassConfig, inputs: TriClassInputs, seed: int) -> list[np.ndarray]:
    """Return the held-out rows of every fold of the validation. Folds contain rows of the classes that are not held out from the fit.
    Raises DataError if a class has fewer rows than there are folds.
    """
    folds = validation_folds(config, inputs)
    if not folds:
        return []
    free = inputs.relevant if inputs.held_out is None else inputs.relevant & ~inputs.held_out
    rows = np.flatnonzero(free)
    masks = []
    for part in fold_masks(inputs.truth[rows], inputs.classes, folds, seed):
        mask = np.zeros(len(inputs.truth), dtype=bool) if inputs.held_out is None else inputs.held_out.copy()
        mask[rows[part]] = True
        masks.append(mask)
    return masks
