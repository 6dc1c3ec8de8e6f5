"""Labels: class codes for classification, plain numbers for regression."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..encoding.chunks import as_number
from ..errors import DataError, SchemaError
from ..meta import Label
from ..value_types import UserData

MAX_CLASSES = 1 << 16  # more distinct labels than this are taken for a real-valued target
MAX_NUMERIC_CLASSES = 20  # numbers up to which they are taken for classes where nobody says so
Vector = npt.NDArray[np.float64]

Fault = Callable[[str, int], DataError]  # builds the error for a reason and a row, counted inside the rows at hand
_TOO_MANY = f"more than {MAX_CLASSES} distinct labels: for a real-valued target set task='regression'"


def tidy_label(label: UserData) -> Label:
    """Label as text, truth value or a Python number: an int where it is one."""
    if isinstance(label, str | bool | np.bool_):
        return label if isinstance(label, str) else bool(label)
    value = float(label)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def check_declared(labels: Iterable[Any] | None) -> tuple[Label, ...] | None:
    """Sort declared labels. Raises SchemaError if one is not a finite number or text, they mix both, or there are none."""
    if labels is None:
        return None
    tidied = [tidy_label(label) for label in labels]
    texts = sum(isinstance(label, str) for label in tidied)
    finite = all(isinstance(label, str) or np.isfinite(label) for label in tidied)
    if not tidied or texts not in (0, len(tidied)) or not finite:
        raise SchemaError(f"labels is {list(tidied)!r}; it must be a list of finite numbers or a list of texts")
    return tuple(sorted(set(tidied)))  # pyright: ignore[reportArgumentType, reportReturnType]


@dataclass
class Target:
    """Collects the labels of a source while it is read, then turns them into codes. ``task``: "classification", "regression", or "auto";
    ``declared``: the only labels allowed; ``numbers``: distinct numeric labels met; ``texts``: distinct texts met, with their provisional
    code (order of appearance), which stands in the blocks until the end; ``tasks``: the same for tasks that have names; ``truths``: whether
    all labels so far were truth values, None before the first."""

    task: str = "classification"
    declared: tuple[Label, ...] | None = None
    numbers: set[float] = field(default_factory=set)
    texts: dict[str, int] = field(default_factory=dict)
    tasks: "TaskNames" = field(default_factory=lambda: TaskNames())
    truths: bool | None = None

    def allowed_numbers(self) -> Vector:
        """Declared labels as numbers; empty when any number is allowed. Raises SchemaError if the declared labels are texts."""
        if self.declared is None or self.task == "regression":
            return np.zeros(0)
        if isinstance(self.declared[0], str):
            raise SchemaError(f"labels {list(self.declared)!r} are texts; this source has numbers as labels")
        return np.array(self.declared, dtype=np.float64)

    def add_numbers(self, values: Vector, fault: Fault) -> None:
        """Note the labels of some rows; DataError from ``fault(reason, row)`` if one is not declared or there are too many for classes."""
        if self.task == "regression":
            return
        allowed = self.allowed_numbers()
        unknown = np.flatnonzero(~np.isin(values, allowed)) if allowed.size else np.zeros(0, np.int64)
        if unknown.size:
            raise fault(self._unknown(tidy_label(values[unknown[0]])), int(unknown[0]))
        self.merge(np.unique(values).tolist(), fault)

    def note_kind(self, is_truth: bool) -> None:
        """Note whether some numbers that come next were truth values."""
        self.truths = is_truth and self.truths is not False

    def merge(self, numbers: Iterable[float], fault: Fault) -> None:
        """Note distinct labels that were checked before. Raises DataError if there are too many for classes."""
        self.numbers.update(numbers)
        if len(self.numbers) > MAX_CLASSES:
            raise fault(_TOO_MANY, 0)

    def add_texts(self, texts: Sequence[str], fault: Fault) -> Vector:
        """Note labels given as text; return their provisional codes. Raises DataError: as `add_numbers`."""
        codes = np.empty(len(texts))
        for row, text in enumerate(texts):
            code = self.texts.get(text)
            if code is None:
                if self.declared is not None and _read_label(text, self._numeric()) not in self.declared:
                    raise fault(self._unknown(text), row)
                code = self.texts[text] = len(self.texts)
            codes[row] = code
        if len(self.texts) > MAX_CLASSES:
            raise fault(_TOO_MANY, 0)
        return codes

    def _unknown(self, label: Label) -> str:
        return f"label {label!r} is not one of the declared labels {describe_labels(self.declared)}"

    def _numeric(self) -> bool:
        """Whether labels given as text mean numbers: the declared labels decide, else all texts together."""
        if self.declared is not None:
            return not isinstance(self.declared[0], str)
        return all(as_number(text) is not None for text in self.texts)

    def labels(self) -> tuple[Label, ...] | None:
        """Label of code 0, 1, …: the declared ones, else those met, sorted; None for regression."""
        if self.task == "regression":
            return None
        if self.declared is not None:
            return self.declared
        numeric = self._numeric()
        met = {_read_label(text, numeric) for text in self.texts} if self.texts else {tidy_label(number) for number in self.numbers}
        if self.truths and not self.texts:
            met = {bool(label) for label in met}
        if self.task == "auto" and numeric and len(met) > MAX_NUMERIC_CLASSES:
            raise SchemaError(
                f"the target holds {len(met):,} different numbers: task='classification' (--task classification) takes each for a class, "
                "task='regression' (--task regression) takes them as numbers"
            )
        return tuple(sorted(met))  # pyright: ignore[reportArgumentType, reportReturnType]

    def encoder(self) -> Callable[[Vector], Vector]:
        """Function from raw targets (numbers, or provisional codes of texts) to class codes; the identity for regression."""
        labels = self.labels()
        if labels is None:
            return lambda values: values
        if self.texts:
            codes, numeric = {label: code for code, label in enumerate(labels)}, self._numeric()
            table = np.array([codes[_read_label(text, numeric)] for text in self.texts], dtype=np.float64)
            return lambda values: table[values.astype(np.int64)]
        known = np.array(labels if self.numbers else [], dtype=np.float64)
        return lambda values: np.searchsorted(known, values).astype(np.float64)

    def to_json(self) -> dict[str, Any]:
        """What was met, for the journal."""
        return {"numbers": sorted(self.numbers), "texts": list(self.texts), "tasks": list(self.tasks.texts), "truths": self.truths}

    def restore(self, fields: dict[str, Any]) -> None:
        """Take over what the journal holds."""
        self.numbers.update(fields["numbers"])
        self.truths = fields.get("truths")
        for text in fields["texts"]:
            self.texts.setdefault(text, len(self.texts))
        for text in fields.get("tasks", []):
            self.tasks.texts.setdefault(text, len(self.tasks.texts))


@dataclass
class TaskNames:
    """Collects tasks that are given as texts. If all of them are whole numbers, they are those numbers; else all are names. ``texts``:
    distinct texts met, with their provisional code (order of appearance), which stands in the blocks until the end."""

    texts: dict[str, int] = field(default_factory=dict)

    def add(self, texts: Sequence[str], fault: Fault) -> npt.NDArray[np.int64]:
        """Note the tasks of some rows; return their provisional codes. Raises DataError from ``fault(reason, row)``, for a number that is
        not whole or not finite, or if there are too many."""
        codes = np.empty(len(texts), np.int64)
        for row, text in enumerate(texts):
            code = self.texts.get(text)
            if code is None:
                if not text.strip():
                    raise fault("the task is missing", row)
                if _is_odd_number(text):
                    raise fault(f"task {text} is not an integer", row)
                code = self.texts[text] = len(self.texts)
            codes[row] = code
        if len(self.texts) > MAX_CLASSES:
            raise fault(f"more than {MAX_CLASSES} task names", 0)
        return codes

    def names(self) -> tuple[str, ...] | None:
        """Names in ascending order; None where tasks are numbers."""
        return None if self._numeric() else tuple(sorted(self.texts))

    def encoder(self) -> Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
        """Function from what stands in the blocks to numbers of tasks, or to codes of their names."""
        if not self.texts:
            return lambda values: values
        codes = {name: code for code, name in enumerate(sorted(self.texts))}
        meant = [int(float(text)) for text in self.texts] if self._numeric() else [codes[text] for text in self.texts]
        table = np.array(meant, np.int64)
        return lambda values: table[values]

    def _numeric(self) -> bool:
        return all(as_number(text) is not None for text in self.texts)


def _is_odd_number(text: str) -> bool:
    """Whether a text is a number that cannot be a task: NaN, infinite, not whole or beyond 2^53."""
    try:
        value = float(text)
    except ValueError:
        return False
    return "_" not in text and text.isascii() and not (value.is_integer() and abs(value) < 2**53)


def _read_label(text: str, numeric: bool) -> Label:
    value = as_number(text) if numeric else None
    if numeric and text.lower() in ("false", "true"):
        return text.lower() == "true"
    return text if value is None else tidy_label(value)


def describe_labels(labels: Sequence[Label] | None) -> str:
    """Labels as a short list."""
    shown = [repr(label) for label in (labels or ())]
    return ", ".join(shown[:10]) + (", …" if len(shown) > 10 else "")
