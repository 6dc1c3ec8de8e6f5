"""DataSet: what every method may ask of the data of a run, wherever they lie and whatever they hold."""

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
    """Rows that a method learns from: a block store, arrays, strings or matrices in memory, or a text that is read once."""

    @property
    def holds(self) -> Kind:
        """What its rows are."""
        ...

    @property
    def url(self) -> str:
        """Where it lies; ``"memory"`` for arrays."""
        ...

    @property
    def digest(self) -> Any:  # (a text, made when first asked for)
        """Identity of the contents; empty where nothing is stored."""
        ...

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def n_cols(self) -> int:
        """Number of features; 0 of strings, the number of rows of matrices."""
        ...

    def has_table(self, name: str) -> bool:
        """Whether rows have a table of this name, such as ``"y"`` or ``"weight"``."""
        ...

    def row_table(self, name: str) -> np.ndarray:
        """Return that table, ``(n_rows,)``."""
        ...


@dataclass(frozen=True)
class Reads:
    """What a fit gets beside its parameters: rows to read, and what else its method declares."""

    data: Any

    def over(self, data: DataSet) -> Self:
        """Return inputs whose rows are read from ``data``: the same ones, in another place."""
        return self if data is self.data else replace(self, data=data)


def require(data: DataSet, method: str, *kinds: Kind) -> None:
    """Refuse data that a method cannot learn from.

    Raises DataError: the data hold something else; the method, what it takes and what there is are named.
    """
    if data.holds not in kinds:
        takes = " or ".join(KINDS[kind] for kind in kinds)
        raise DataError(f"{method} takes {takes}; these data are {KINDS[data.holds]}", "" if data.url == "memory" else data.url)


class CountedNames(Sequence[str]):
    """Names ``x1``, ``x2``, … of features that the source counts from another number than 0."""

    def __init__(self, first: int, count: int) -> None:
        self._numbers = range(first, first + count)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, j: Any) -> Any:
        return f"x{self._numbers[j]}"


def source_names(data: Any) -> Sequence[str] | None:
    """Return the names of the features of a data set, counted as the source counts where it has none; ``None``: ``x0``, ``x1``, …."""
    names, first = data.feature_names(), getattr(data, "first_feature", 0)
    return CountedNames(first, int(data.n_cols)) if names is None and first else names


def feature_namer(data: Any) -> Callable[[int], str]:
    """Return what names the features of a data set by their numbers; where they have no names ``x7``, counted as the source counts."""
    names = source_names(data)
    return lambda j: f"x{int(j)}" if names is None else str(names[int(j)])
