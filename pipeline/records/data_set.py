"""DataSet: the common interface of all kinds of training data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self, TypeAlias

import numpy as np

from ...storage import DataError

Kind: TypeAlias = Literal["columns", "strings", "grams", "stream"]

# What data sets hold, in words.
KINDS: dict[Kind, str] = {
    "columns": "rows of numeric features",
    "strings": "strings",
    "grams": "precomputed kernel matrices",
    "stream": "a text that is read once",
}


class DataSet(Protocol):
    """Rows that a method learns from: a block store, a stream of text, or arrays, strings or matrices in memory."""

    @property
    def holds(self) -> Kind:
        """The kind of the rows."""
        ...

    @property
    def url(self) -> str:
        """Location; ``"memory"`` for arrays."""
        ...

    @property
    def digest(self) -> Any:  # (a text, made when first asked for)
        """Digest of the contents; empty for data that are not stored."""
        ...

    @property
    def n_rows(self) -> int: ...

    @property
    def n_cols(self) -> int:
        """Number of features: 0 for strings, the number of rows for matrices."""
        ...

    def has_table(self, name: str) -> bool:
        """Return whether there is a table of row values with this name, such as ``"y"`` or ``"weight"``."""
        ...

    def row_table(self, name: str) -> np.ndarray:
        """Return the table of row values with this name, ``(n_rows,)``."""
        ...


@dataclass(frozen=True)
class Reads:
    """The inputs of a fit in addition to its parameters: a data set, and other inputs that the method declares."""

    data: Any

    def over(self, data: DataSet) -> Self:
        """Return inputs that read the same rows from ``data``."""
        return self if data is self.data else replace(self, data=data)


def require(data: DataSet, method: str, *kinds: Kind) -> None:
    """Check that a method can learn from a kind of data.

    Raises DataError, which names the method, the kinds that the method takes, and the kind of the data.
    """
    if data.holds not in kinds:
        takes = " or ".join(KINDS[kind] for kind in kinds)
        raise DataError(f"{method} takes {takes}; these data are {KINDS[data.holds]}", "" if data.url == "memory" else data.url)


class CountedNames(Sequence[str]):
    """Feature names ``x1``, ``x2``, … for a source whose first column does not have number 0."""

    def __init__(self, first: int, count: int) -> None:
        self._numbers = range(first, first + count)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, j: Any) -> Any:
        return f"x{self._numbers[j]}"


def source_names(data: Any) -> Sequence[str] | None:
    """Return the feature names of a data set. Without names, features are called ``x`` and their number in the source. ``None`` stands for
    the names ``x0``, ``x1``, ….
    """
    names, first = data.feature_names(), getattr(data, "first_feature", 0)
    return CountedNames(first, int(data.n_cols)) if names is None and first else names


def feature_namer(data: Any) -> Callable[[int], str]:
    """Return a function from feature index to name; without names, ``x`` and the feature's number in the source, such as ``x7``."""
    names = source_names(data)
    return lambda j: f"x{int(j)}" if names is None else str(names[int(j)])
