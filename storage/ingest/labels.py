"""Labels: class codes for classification, plain numbers for regression."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..encoding.chunks import Words, first_rows, in_order
from ..encoding.record import BEYOND, EXACT_INTEGERS, are_numbers, as_number, is_decimal, is_missing_word
from ..errors import DataError, SchemaError, UserData
from ..meta import Label

MAX_CLASSES = 1 << 16  # more distinct labels than this are taken for a real-valued target
MAX_NUMERIC_CLASSES = 20  # numbers up to which they are taken for classes where nobody says so
Vector = npt.NDArray[np.float64]

Fault = Callable[[str, int], DataError]  # builds the error for a reason and a row, counted inside the rows at hand
_TOO_MANY = f"more than {MAX_CLASSES} distinct labels: for a real-valued target set task='regression'"
DROP_ADVICE = "; --drop-missing-targets leaves such rows out"
_TRUTH = {"true": True, "false": False}


def tidy_label(label: UserData) -> Label:
    """Return a label as text, truth value or Python number. Numbers are ints if possible, and texts if float64 cannot represent them."""
    if isinstance(label, str | bool | np.bool_):
        return label if isinstance(label, str) else bool(label)
    if isinstance(label, int | np.integer):
        return int(label) if abs(int(label)) <= EXACT_INTEGERS else str(int(label))
    value = float(label)
    return int(value) if value.is_integer() and abs(value) <= EXACT_INTEGERS else value


def check_declared(labels: Iterable[Any] | None) -> tuple[Label, ...] | None:
    """Return declared labels, sorted. Raises SchemaError if a label is neither a finite number nor text, if numbers and texts are mixed, or
    if there are no labels.
    """
    if labels is None:
        return None
    tidied = [tidy_label(label) for label in labels]
    texts = sum(isinstance(label, str) for label in tidied)
    finite = all(isinstance(label, str) or np.isfinite(label) for label in tidied)
    if not tidied or texts not in (0, len(tidied)) or not finite:
        raise SchemaError(f"labels is {list(tidied)!r}; it must be a list of finite numbers or a list of texts")
    return tuple(sorted(set(tidied)))  # pyright: ignore[reportArgumentType, reportReturnType]


@dataclass
class Distinct:
    """Collects distinct labels or tasks during reading. Each distinct value, as text, gets a provisional code in order of appearance;
    blocks contain these codes until the end.

    ``are_numbers``: whether the values are numbers, if this is known from elsewhere; None if the values themselves decide. ``doubts`` holds
    errors that are raised at the end only under a condition: "name" if some value is a name, "missing" if no value is a name, "odd" (only
    for tasks) if the values are numbers.
    """

    what: str
    are_numbers: bool | None = None
    drops: bool = False
    codes: dict[str, int] = field(default_factory=dict)
    are_truths: bool | None = None
    has_name: bool = False
    doubts: dict[str, DataError] = field(default_factory=dict)

    def add(self, values: Words, fault: Fault, are_truths: bool = False) -> Vector:
        """Record the values of some rows and return their codes. The code is NaN if the value is missing and its row will be dropped.

        Raises DataError from ``fault(reason, row)`` if a value is missing or not allowed, or there are too many distinct values.
        """
        self.are_truths = are_truths and self.are_truths is not False
        gone = values.codes < 0
        if gone.any() and not self.drops:
            raise fault(f"the {self.what} is missing{self.advice}", int(gone.argmax()))
        first = first_rows(values.codes, len(values.words))
        table = np.full(len(values.words) + 1, np.nan)
        for k in in_order(first, len(values.codes)):
            word = str(values.words[k])
            if self.drops and is_missing_word(word):
                if word.strip() and "name" not in self.doubts:
                    advice = f"say so (--missing-words {word}), or keep such rows (without --drop-missing-targets)"
                    self.doubts["name"] = fault(f"the {self.what} {word!r} among names may be one, or missing: {advice}", int(first[k]))
                continue
            if word not in self.codes:
                self._meet(word, int(first[k]), fault)
            table[k] = self.codes[word]
        if len(self.codes) > MAX_CLASSES:
            self._refuse_many(fault)
        return table[np.where(gone, len(values.words), values.codes)]

    def _meet(self, word: str, row: int, fault: Fault) -> None:
        if not word.strip():
            raise fault(f"the {self.what} is missing{self.advice}", row)
        if not is_decimal(word) and not is_missing_word(word):
            self.has_name = True
        elif not self.has_name and "missing" not in self.doubts and is_missing_word(word):
            self.doubts["missing"] = fault(f"the {self.what} {word!r} is missing, among numbers{self.advice}", row)
        self.codes[word] = len(self.codes)

    def _refuse_many(self, fault: Fault) -> None:
        raise fault(_TOO_MANY, 0)

    def check_end(self) -> None:
        """Raise the errors that can be detected only after all values are known."""
        if "name" in self.doubts and self.has_name:
            raise self.doubts["name"]
        if "missing" in self.doubts and not self.has_name:
            raise self.doubts["missing"]

    @property
    def advice(self) -> str:
        """Return advice, for messages, on rows whose value is missing."""
        return DROP_ADVICE if self.what == "label" else ""

    @property
    def are_numeric(self) -> bool:
        """Return whether the values are numbers, not names."""
        return are_numbers(self.codes) if self.are_numbers is None else self.are_numbers

    def restore(self, words: Iterable[str]) -> None:
        """Restore the state from the journal."""
        for word in words:
            self.codes.setdefault(word, len(self.codes))


class Labels(Distinct):
    """Labels of a source in which labels may be names. If ``declared`` is given, only these labels are allowed."""

    declared: tuple[Label, ...] | None = None

    def _meet(self, word: str, row: int, fault: Fault) -> None:
        if self.declared is not None and word.strip():
            label = self.read(word, self.are_numeric)
            if label not in self.declared:
                raise fault(f"label {label!r} is not one of the declared labels {describe_labels(self.declared)}", row)
        super()._meet(word, row, fault)

    def read(self, word: str, is_numeric: bool) -> Label:
        """Return the label that a text represents: a number or truth value if ``is_numeric``, else a name."""
        value = as_number(word) if is_numeric else None
        return tidy_label(value) if value is not None else _TRUTH.get(word.lower(), word) if is_numeric else word

    def labels(self) -> list[Label]:
        """Return the label of each provisional code."""
        is_numeric = bool(self.are_truths) or self.are_numeric
        return [self.read(word, is_numeric) for word in self.codes]


class Tasks(Distinct):
    """Tasks, given as integers or names."""

    def _meet(self, word: str, row: int, fault: Fault) -> None:
        number = as_number(word)
        if self.are_numbers and number is None and word.strip():
            raise fault(f"task {word!r} is not a number, but the tasks of the training store are numbers", row)
        if "odd" not in self.doubts and number is not None and not number.is_integer():
            self.doubts["odd"] = fault(f"task {word} is not an integer", row)
        super()._meet(word, row, fault)

    def _refuse_many(self, fault: Fault) -> None:
        if self.has_name:
            raise fault(f"more than {MAX_CLASSES} task names", 0)

    def check_end(self) -> None:
        """Raise an error if a task is missing, or if the tasks are numbers and some task is not an integer."""
        super().check_end()
        if "odd" in self.doubts and self.are_numeric:
            raise self.doubts["odd"]

    def names(self) -> tuple[str, ...] | None:
        """Return the names in ascending order; None if tasks are numbers."""
        return None if self.are_numeric else tuple(sorted(self.codes))

    def encoder(self) -> Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
        """Return a function that converts the values in blocks to task numbers or, if tasks are names, to codes of the names."""
        names = self.names()
        codes = {} if names is None else {name: code for code, name in enumerate(names)}
        table = np.array([int(float(word.strip())) if names is None else codes[word] for word in self.codes], np.int64)
        return lambda values: table[values]


@dataclass
class Target:
    """Collects the labels of a source during reading, then converts them to codes.

    * ``task``: "classification", "regression" or "auto".
    * ``declared``: the only labels allowed, if given.
    * ``numbers``: distinct labels of a source whose format has only numeric labels; blocks then contain the labels themselves, not codes.
    * ``met``: distinct labels of all other sources.
    * ``tasks``: the tasks.
    * ``missing_words``: texts for a missing value.
    * ``drops_missing``: whether rows without a target are left out; ``n_dropped`` is their number.
    """

    task: str = "classification"
    declared: tuple[Label, ...] | None = None
    numbers: set[float] = field(default_factory=set)
    met: Labels = field(default_factory=lambda: Labels("label"))
    tasks: Tasks = field(default_factory=lambda: Tasks("task"))
    missing_words: frozenset[str] = frozenset()
    drops_missing: bool = False
    n_dropped: int = 0

    def __post_init__(self) -> None:
        self.met.drops = self.drops_missing
        self.met.declared = self.declared
        self.met.are_numbers = None if self.declared is None else not isinstance(self.declared[0], str)

    def allowed_numbers(self) -> Vector:
        """Return the declared labels as numbers; empty if every number is allowed. Raises SchemaError if the labels are texts."""
        if self.declared is None or self.task == "regression":
            return np.zeros(0)
        if isinstance(self.declared[0], str):
            raise SchemaError(f"labels {list(self.declared)!r} are texts; this source has numbers as labels")
        return np.array(self.declared, dtype=np.float64)

    def add_numbers(self, values: Vector, fault: Fault) -> None:
        """Record the labels of some rows of a source with numeric labels. Raises DataError if a label exceeds 2^53, or if there are more
        distinct labels than a classification may have.
        """
        if self.task == "regression":
            return
        large = np.abs(values) > EXACT_INTEGERS
        if large.any():
            raise fault(f"label {values[large][0]:.0f} {BEYOND}", int(large.argmax()))
        self.merge(np.unique(values).tolist(), fault)

    def merge(self, numbers: Iterable[float], fault: Fault) -> None:
        """Record distinct labels that were checked before. Raises DataError if there are more of them than a classification may have."""
        self.numbers.update(numbers)
        if len(self.numbers) > MAX_CLASSES:
            raise fault(_TOO_MANY, 0)

    def check_end(self) -> None:
        """Raise the errors that can be detected only after all labels and tasks are known."""
        self.met.check_end()
        self.tasks.check_end()

    def labels(self) -> tuple[Label, ...] | None:
        """Return the labels of codes 0, 1, …: the declared labels or, if none are declared, the labels found, sorted. None for
        regression.
        """
        if self.task == "regression":
            return None
        if self.declared is not None:
            return self.declared
        met = {*self.met.labels(), *map(tidy_label, self.numbers)}
        if self.task == "auto" and len(met) > MAX_NUMERIC_CLASSES and all(map(is_decimal, self.met.codes)):
            raise SchemaError(
                f"the target holds {len(met):,} different numbers; set task='classification' (--task classification) to make each "
                "a class, or task='regression' (--task regression) to use them as numbers"
            )
        return tuple(sorted(met))  # pyright: ignore[reportArgumentType, reportReturnType]

    def encoder(self) -> Callable[[Vector], Vector]:
        """Return a function that converts raw targets (numbers, or provisional codes) to class codes; for regression it is the identity."""
        labels = self.labels()
        if labels is None:
            return lambda values: values
        if self.met.codes:
            codes = {label: code for code, label in enumerate(labels)}
            table = np.array([codes[label] for label in self.met.labels()], dtype=np.float64)
            return lambda values: table[values.astype(np.int64)]
        known = np.array(labels if self.numbers else [], dtype=np.float64)
        return lambda values: np.searchsorted(known, values).astype(np.float64)

    def to_json(self) -> dict[str, Any]:
        """Return the collected state, for the journal."""
        met = {"met": list(self.met.codes), "truths": self.met.are_truths, "tasks": list(self.tasks.codes)}
        return {"numbers": sorted(self.numbers), "dropped": self.n_dropped, **met}

    def restore(self, fields: dict[str, Any]) -> None:
        """Restore the state from the journal."""
        self.numbers.update(fields["numbers"])
        self.n_dropped = fields["dropped"]
        self.met.are_truths = fields["truths"]
        self.met.restore(fields["met"])
        self.tasks.restore(fields["tasks"])


def describe_labels(labels: Sequence[Label] | None) -> str:
    """Return labels as a short list for messages."""
    shown = [repr(label) for label in (labels or ())]
    return ", ".join(shown[:10]) + (", …" if len(shown) > 10 else "")
