"""Training data of a fit: rows, labels or numbers, weights and groups; and the binary problems derived from labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...kernels.svm.dual import DualProblem, svc_problem, target_problem
from ...storage import DataError
from ...storage.encoding.chunks import is_missing
from ...storage.encoding.record import is_decimal, is_missing_word
from ...storage.meta import Label
from ..core.resources import RunContext
from ..records.data_set import Reads

if TYPE_CHECKING:
    from .covariates import Covariates


@dataclass(frozen=True)
class Inputs(Reads):
    """The inputs of a fit in addition to its parameters."""

    data: Any  # block store, arrays or strings in memory, or matrices
    target: np.ndarray  # `(n_samples,)` class of each row as its index, or real numbers
    classes: tuple[Any, ...] | None  # the labels, in order; None for regression
    sample_weight: np.ndarray | None = None  # `(n_samples,)` factors of C, or None
    groups: Any = None  # one label per feature, list of index arrays, or None
    held_out: np.ndarray | None = None  # `(n_samples,)` rows that are not learnt from but measured, or None; their weight is zero
    covariates: Covariates | None = None  # columns of the rows without a penalty, for methods that take some
    given_weight: np.ndarray | None = None  # where rows are held out `sample_weight` as it was before, or None

    @property
    def counts(self) -> np.ndarray | None:
        """Multiplicities of the rows ``(n_samples,)``, for quantities that depend on features alone; ``None`` if all are 1.

        Multiplicities are the sample weights from before rows were held out, so that quantities that depend on them are the same for all
        folds.
        """
        return self.sample_weight if self.held_out is None else self.given_weight

    @property
    def labelled(self) -> Inputs:
        """The rows with a class or number, and their weights."""
        return self

    @property
    def truth(self) -> np.ndarray:
        """Target of every labelled row, ``(n_labelled,)``: index of its class (-1 for rows of neither class), or its number."""
        return self.target

    def without(self, held_out: np.ndarray | None) -> Self:
        """Return inputs in which the held-out rows, a mask ``(n_samples,)``, have weight zero. Nothing is copied."""
        if held_out is None:
            return self
        weight = np.ones(len(held_out)) if self.sample_weight is None else self.sample_weight
        return replace(self, sample_weight=np.where(held_out, 0.0, weight), held_out=held_out, given_weight=self.counts)

    @property
    def labels(self) -> tuple[Any, ...]:
        """The classes of a classification target."""
        assert self.classes is not None
        return self.classes

    @property
    def n_machines(self) -> int:
        """Number of binary models: one, or one per class if there are more than two."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)


@dataclass(frozen=True)
class AboutRows:
    """Base of inputs that combine labelled rows with further data; methods declare subclasses."""

    rows: Inputs

    @property
    def labelled(self) -> Inputs:
        return self.rows

    @property
    def truth(self) -> np.ndarray:
        """Target of every row: index of its class, or its number."""
        return self.rows.target

    def without(self, held_out: np.ndarray | None) -> Self:
        """Return inputs in which the held-out rows have weight zero."""
        return replace(self, rows=self.rows.without(held_out))

    def over(self, data: Any) -> Self:
        """Return inputs whose rows are read from ``data``, which must contain the same rows."""
        return replace(self, rows=self.rows.over(data))


def store_inputs(ctx: RunContext, name: str) -> Inputs:
    """Return the target and weights of a store: classes if it has labels, otherwise numbers.

    Raises DataError if there is no target, or one class only.
    """
    data = ctx.data
    if not data.has_table("y"):
        raise DataError(f"there is no target; {name} needs one (ingest a file that has it; --target names its column or array)", data.url)
    weight = data.row_table("weight") if data.has_table("weight") else None
    labels = data.meta.labels
    if labels is None:
        return Inputs(data, checked_numbers(data.target(), data.url), None, weight)
    codes = data.target().astype(np.int64)
    if len(np.unique(codes)) < 2:
        raise DataError(f"the target holds one class only ({labels[int(codes[0])]!r}); {name} needs at least two", data.url)
    return Inputs(data, codes, tuple(labels), weight)


def checked_numbers(target: np.ndarray, url: str = "") -> np.ndarray:
    """Return a numeric target. Raises DataError if it is not finite, or too large to square."""
    if not np.isfinite(target).all():
        raise DataError("y holds NaN or infinity", url)
    top = float(np.abs(target).max(initial=0.0))
    if top > (np.finfo(float).max / max(len(target), 1)) ** 0.5:
        raise DataError(f"y has values up to {top:.3g}, and the sum of their squares overflows float64; divide y by a constant", url)
    return target


def labels_of(inputs: Inputs, machine: int) -> np.ndarray:
    """Return the labels -1 and +1 of one binary model. +1 is the second of two classes, or the model's class against the rest."""
    return np.where(inputs.target == (1 if len(inputs.labels) == 2 else machine), 1.0, -1.0)


def resolve_loss(loss: str, classes: Sequence[Any] | None, for_numbers: Sequence[str], for_classes: Sequence[str]) -> str:
    """Return the loss of a fit. ``"auto"`` is the first loss that suits the target.

    A target without ``classes`` is numeric. ``for_numbers`` and ``for_classes`` list the method's losses. Raises ValueError if the loss
    does not suit the target; the message names the kind of target and a suitable loss.
    """
    known = for_numbers if classes is None else for_classes
    if loss == "auto":
        return known[0]
    if loss not in known:
        content = "real numbers" if classes is None else "classes"
        raise ValueError(f"loss={loss!r}: the target holds {content}; use {' or '.join(map(repr, known))}")
    return loss


def dual_problems(config: Any, inputs: Inputs, epsilon: float = 0.1) -> list[DualProblem]:
    """Return one dual problem per binary model: hinge loss for classes, epsilon-insensitive loss for numbers.

    Raises DataError if a class has no row of positive weight.
    """
    cost = checked_costs(row_costs(config, inputs), inputs)
    if inputs.classes is None:
        return [target_problem("epsilon_insensitive", inputs.target, epsilon, cost)]
    return [svc_problem(labels_of(inputs, machine), cost) for machine in range(inputs.n_machines)]


def checked_costs(cost: np.ndarray, inputs: Inputs) -> np.ndarray:
    """Return the costs of the rows. Raises DataError if no row, or no row of a class, has a positive one."""
    if not np.any(cost > 0):
        raise DataError("no sample has a positive weight; a fit needs some")
    if inputs.classes is not None:
        refuse_idle_classes(inputs.classes, inputs.target, cost)
    return cost


def refuse_idle_classes(classes: Sequence[Any], codes: np.ndarray, cost: np.ndarray) -> None:
    """Check that every class has a row with positive cost. Raises DataError with the first class that has none."""
    idle = np.bincount(codes, cost > 0, minlength=len(classes)) == 0
    if idle.any():
        raise DataError(f"class {classes[int(idle.argmax())]!r} has no sample with positive weight; every class needs one")


def row_costs(config: Any, inputs: Inputs) -> np.ndarray:
    """Return the costs ``C_i = C * sample weight * class weight``, ``(n_samples,)``."""
    cost = np.full(len(inputs.target), float(config.C))
    if inputs.sample_weight is not None:
        cost *= inputs.sample_weight
    if inputs.classes is None or config.class_weight is None:
        return cost
    return cost * class_factors(config.class_weight, inputs.classes, inputs.target, inputs.sample_weight)[inputs.target]


def class_factors(
    class_weight: Mapping[str, float] | str, classes: Sequence[Any], codes: np.ndarray, sample_weight: np.ndarray | None = None
) -> np.ndarray:
    """Return the weight of every class for a parameter ``class_weight``."""
    if isinstance(class_weight, str):
        counts = np.bincount(codes, sample_weight, minlength=len(classes))
        return counts.sum() / (len(counts) * np.maximum(counts, np.finfo(float).tiny))
    known = {label_spelling(label): k for k, label in enumerate(classes)}
    factors = np.ones(len(classes))
    for label, factor in class_weight.items():
        if label_spelling(label) not in known:
            raise ValueError(f"class_weight names class {label!r}; the classes are {list(classes)!r}")
        factors[known[label_spelling(label)]] = factor
    return factors


def refuse_missing_names(values: np.ndarray, where: str, what: str) -> None:
    """Check that labels or names contain no missing values: None, NaN, an empty string, or a word such as NA among numbers.

    Raises ValueError with the row.
    """
    words = {value: "" if is_missing(value) else str(value) for value in set(values.tolist())}
    is_numeric = all(is_decimal(word) or is_missing_word(word) for word in words.values())
    gone = {value for value, word in words.items() if not word.strip() or (is_numeric and is_missing_word(word))}
    if gone:
        row = next(row for row, value in enumerate(values.tolist()) if value in gone or is_missing(value))
        shown = "" if is_missing(values[row]) else f"{values[row]!s} "
        raise ValueError(f"{where}, row {row}: the {what} {shown}is missing; leave out such rows")


def label_spelling(label: Label) -> str:
    """Return a common spelling of a label: 1, 1.0, True, "1" and "True" give the same text."""
    label = {"True": True, "False": False}.get(label, label) if isinstance(label, str) else label
    try:
        number = float(label)
    except (TypeError, ValueError):
        return str(label)
    return repr(int(number)) if number.is_integer() else repr(number)


def row_weights(config: Any, inputs: Inputs) -> np.ndarray:
    """Return the weight of every row's loss, ``(n_samples,)``: sample weight times class weight, 0 for held-out rows.

    Raises DataError if a class, or the whole data set, has no row of positive weight. Raises ValueError for class weights without classes,
    or for an unknown class.
    """
    weight = np.ones(len(inputs.target)) if inputs.sample_weight is None else np.array(inputs.sample_weight, np.float64)
    if inputs.classes is None:
        if config.class_weight is not None:
            raise ValueError(f"class_weight={config.class_weight!r}: the target holds real numbers, there are no classes")
        if not np.any(weight > 0):
            raise DataError("no sample has a positive weight; a fit needs some")
        return weight
    refuse_idle_classes(inputs.classes, inputs.target, weight)
    if config.class_weight is None:
        return weight
    return weight * class_factors(config.class_weight, inputs.classes, inputs.target, inputs.sample_weight)[inputs.target]
