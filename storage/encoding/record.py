"""The stored encoding of a table: which features each column of the source yields, and how."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

Kind = Literal["numeric", "boolean", "nominal", "dropped", "id"]
Missing = Literal["refuse", "keep", "mean", "median", "indicator"]
Form = Literal["one-hot", "codes"]
FILLS = ("mean", "median", "indicator")
"""Treatments of missing values that result in numbers."""

REFUSAL = (
    "missing and infinite values are rejected; fill missing ones in with --missing mean, median or indicator, or store them with "
    "--missing keep (for rule-ensemble only)"
)
"""Message about a missing value that is rejected."""
COVARIATE_RULE = "covariates are numbers, none missing: fill them in, write categories as columns of 0 and 1, or make them features"
"""Message about a covariate that is missing or a text."""

_DENSE_FEATURES = 16  # features for each source column up to which rows stay dense


class Origin(NamedTuple):
    """Meaning of a feature. With ``is_plain``, the feature is the value of its source column. Otherwise the feature is 1 if the source
    column has the level ``level`` or, if ``level`` is None, if its value is missing.
    """

    column: str
    level: str | None
    is_plain: bool = False


@dataclass(frozen=True)
class ColumnEncoding:
    """Encoding of one source column.

    * ``levels``: the levels of a nominal column, in order.
    * ``missing``: the treatment of missing values.
    * ``fill``: the number that replaces missing values, if any.
    * ``features``: the names of the features that the column yields.
    * ``has_indicator``: whether the last of these features marks missing values.
    """

    record_name: ClassVar[str] = "ColumnEncoding"
    name: str
    kind: Kind
    levels: tuple[str, ...] = ()
    missing: Missing = "refuse"
    fill: float | None = None
    features: tuple[str, ...] = ()
    has_indicator: bool = False


@dataclass(frozen=True)
class TableColumns:
    """Encoding of every column of a table, in source order, without columns for the target, tasks or weights.

    ``form``: "one-hot" if a nominal column yields one 0/1 feature per level; "codes" if it yields one feature with level numbers, which
    only rules can read. ``is_sparse``: whether rows are stored without zeros.
    """

    record_name: ClassVar[str] = "TableEncoding"
    columns: tuple[ColumnEncoding, ...]
    form: Form = "one-hot"
    is_sparse: bool = False

    @cached_property
    def sources(self) -> tuple[ColumnEncoding, ...]:
        """The columns that yield features."""
        return tuple(column for column in self.columns if column.kind not in ("dropped", "id"))

    @cached_property
    def feature_names(self) -> list[str]:
        return [name for column in self.sources for name in column.features]

    @property
    def is_plain(self) -> bool:
        """Whether the numbers in the columns are the features, because no column has levels and no value is filled in."""
        return all(column.kind != "nominal" and column.fill is None and not column.has_indicator for column in self.sources)

    @property
    def n_features(self) -> int:
        return sum(len(column.features) for column in self.sources)

    @property
    def n_coded(self) -> int:
        """Number of features that hold level numbers."""
        return len(self.coded_levels)

    @cached_property
    def coded_levels(self) -> dict[int, tuple[str, ...]]:
        """Return the names of levels 0, 1, … of each feature that holds level numbers."""
        if self.form != "codes":
            return {}
        starts = _starts(self.sources)
        return {start: column.levels for start, column in zip(starts, self.sources, strict=True) if column.kind == "nominal"}

    @cached_property
    def origins(self) -> dict[int, Origin]:
        """Return, by feature number, the meanings of the features that are 1 for a level or for missing values. Other features are
        omitted.
        """
        known: dict[int, Origin] = {}
        for start, column in zip(_starts(self.sources), self.sources, strict=True):
            if column.kind == "nominal" and self.form == "one-hot":
                known |= {start + k: Origin(column.name, level) for k, level in enumerate(column.levels)}
            if column.has_indicator:
                known[start + len(column.features) - 1] = Origin(column.name, None)
        return known

    @property
    def id_column(self) -> str | None:
        """Name of the column that names the rows."""
        return next((column.name for column in self.columns if column.kind == "id"), None)


def _starts(columns: Iterable[ColumnEncoding]) -> list[int]:
    """Return the number of the first feature of each column."""
    starts, at = [], 0
    for column in columns:
        starts.append(at)
        at += len(column.features)
    return starts


def make_encoding(columns: Iterable[ColumnEncoding], form: Form) -> TableColumns:
    """Combine columns and give their features distinct names."""
    named, known = [], dict[str, int]()
    for column in columns:
        features = tuple(_distinct(name, known) for name in _feature_names(column, form))
        named.append(ColumnEncoding(**{**vars(column), "features": features}))
    encoding = TableColumns(tuple(named), form)
    is_sparse = form == "one-hot" and encoding.n_features > _DENSE_FEATURES * len(encoding.sources)
    return TableColumns(tuple(named), form, is_sparse)


def _feature_names(column: ColumnEncoding, form: str) -> list[str]:
    if column.kind in ("dropped", "id"):
        return []
    is_split = column.kind == "nominal" and form == "one-hot"
    names = [f"{column.name}={level}" for level in column.levels] if is_split else [column.name]
    return [*names, *([f"{column.name} is missing"] if column.has_indicator else [])]


def _distinct(name: str, known: dict[str, int]) -> str:
    """Return the name, with a number appended if another feature has the same name. (A column can have the same name as a feature made from
    another column and its level.)
    """
    known[name] = known.get(name, 0) + 1
    return name if known[name] == 1 else _distinct(f"{name} ({known[name]})", known)


def first_difference(encoding: TableColumns, other: TableColumns) -> str | None:
    """Return the first difference between the features of two encodings, in words; None if they are equivalent."""
    if encoding.form != other.form:
        return f"nominal columns as {encoding.form} and as {other.form}"
    for a, b in zip(encoding.sources, other.sources, strict=False):
        for what in ("name", "kind", "levels", "fill", "features"):
            if getattr(a, what) != getattr(b, what):
                return f"column {a.name!r}: {what} {_shown(getattr(a, what))} and {_shown(getattr(b, what))}"
    more = max(encoding.sources, other.sources, key=len)[min(len(encoding.sources), len(other.sources)) :]
    return f"column {more[0].name!r} is in one of them only" if more else None


def _shown(value: Any) -> str:
    return repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}…"


def describe_encoding(encoding: TableColumns) -> list[Mapping[str, Any]]:
    """Return one readable row per source column: kind, levels, missing values and the features that it yields."""
    rows = []
    for column in encoding.columns:
        fill = "" if column.fill is None else f" {column.fill:.6g}"
        levels = [*column.levels[:8], *(["…"] if len(column.levels) > 8 else [])]
        rows.append({"column": column.name, "kind": column.kind, "levels": levels, "missing": f"{column.missing}{fill}"})
        rows[-1]["n_features"] = len(column.features)
    return rows


# One rule for numbers: what a text is, and when values that are compared for equality are numbers.
#
# A numeral is a decimal number that float64 holds: written as an integer it is at most 2^53. Labels, tasks and categories are numbers only
# if every one of them reads back as it was written; else they are names, so that 007 and 7, 1.10 and 1.1, or two codes of 18 digits stay
# apart.

EXACT_INTEGERS = 2**53
BEYOND = "is beyond 2^53 and cannot be stored exactly"
"""Message about an integer that float64 cannot represent."""

MISSING_WORDS = frozenset(("", "na", "nan", "-nan", "null", "none", "?", ".", "n/a", "#n/a", "<na>"))
"""Words for a missing number, in lower case. In a column of names, only an empty text is missing."""

_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_INFINITE = ("inf", "infinity")


def is_decimal(text: str) -> bool:
    """Return whether a text is a decimal number of any size."""
    return _DECIMAL.fullmatch(text.strip()) is not None


def is_number_like(text: str) -> bool:
    """Return whether a text is a number, finite or not."""
    return is_decimal(text) or text.strip().lstrip("+-").lower() in _INFINITE


def is_large_integer(text: str) -> bool:
    """Return whether a text is an integer beyond 2^53."""
    word = text.strip()
    return _WHOLE.fullmatch(word) is not None and abs(int(word)) > EXACT_INTEGERS


def has_leading_zero(text: str) -> bool:
    """Return whether a text has digits with a meaningless leading zero, as in 007."""
    bare = text.strip().lstrip("+-")
    return bare[:1] == "0" and bare[1:2].isdigit() and is_decimal(bare)


def as_number(text: str) -> float | None:
    """Return the value of a numeral; None for any other text."""
    if not is_decimal(text) or is_large_integer(text):
        return None
    value = float(text.strip())  # (float itself takes fewer characters for blanks)
    return value if np.isfinite(value) else None


def is_missing_word(word: str) -> bool:
    """Return whether a text represents a missing number."""
    return word.strip().lower() in MISSING_WORDS


def exact_number(text: str) -> int | float | None:
    """Return a number that prints exactly as the text; None if there is none."""
    word, value = text.strip(), as_number(text)
    if value is None:
        return None
    number = int(word) if _WHOLE.fullmatch(word) else value
    return number if str(number) == word else None


def are_numbers(texts: Collection[str]) -> bool:
    """Return whether texts can be replaced by numbers when they are compared for equality: each number prints exactly as its text, and no
    two texts have the same value.
    """
    numbers = {exact_number(text) for text in texts}
    return None not in numbers and len(numbers) == len({text.strip() for text in texts})


def labels_of_words(words: Collection[str]) -> list[str | int | float]:
    """Return the labels for words: numbers if `are_numbers` holds, else names."""
    return [float(word.strip()) for word in words] if are_numbers(words) else list(words)
