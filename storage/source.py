"""Source: how the rows of a store were read, so that every later file is read alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .blocks.tables import split_texts
from .encoding.record import ColumnEncoding, TableColumns
from .errors import parse_json
from .meta import ColumnScale, Label
from .records import from_arrays, to_arrays

SOURCE = "source.json"
"""Name of the object that holds it in a store."""

MAX_NAMED = 1 << 16  # columns of plain tables that are written down by name, so that frames can be matched
MAX_KEPT_BYTES = 64 << 20
"""Bytes of names, groups and factors that a run keeps; beyond them it names the store that has them."""


@dataclass(frozen=True)
class Source:
    """How a source was read: what belongs to what is learnt, not to one file.

    Attributes
    ----------
    place : str
        Where the rows are, for messages.
    digest : str
        Identity of the store that was made of it; empty before there is one.
    format : str
        Format of the source ("svmlight", "csv", …; "array" for data in memory).
    kind : str
        "sparse", "dense" or "sequences".
    n_features : int
        Width.
    first_index : int
        Index of the first column in SVMlight text, 0 or 1.
    options : mapping
        What was asked for of the reading: task, missing values, columns with the target, tasks, weights, ids and covariates, query ids,
        budget.
    labels : tuple, optional
        Label of class code 0, 1, …; None for a real-valued target.
    has_target : bool
        Whether the rows have a target.
    are_named : bool
        Whether names were given beside the source, and say nothing of its columns.
    named_tasks : bool, optional
        Whether tasks are names; None where there are none.
    encoding : TableColumns, optional
        How the columns of a table became features; None where they are the features.
    scale : ColumnScale
        Factors of the columns.
    groups, letters, lengths : ndarray, optional
        Group label of every feature; their names, UTF-8 end to end, and the bytes of each.
    is_whole : bool
        Whether names, groups and factors are here. A store has them as tables of its own (`BlockStore.whole_source`).
    """

    record_name: ClassVar[str] = "Source"
    format: str
    kind: str
    n_features: int
    first_index: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[Label, ...] | None = None
    has_target: bool = False
    are_named: bool = False
    named_tasks: bool | None = None
    encoding: TableColumns | None = None
    place: str = ""
    digest: str = ""
    scale: ColumnScale = field(default_factory=ColumnScale)
    groups: npt.NDArray[np.int64] | None = None
    letters: npt.NDArray[np.uint8] | None = None
    lengths: npt.NDArray[np.int64] | None = None
    is_whole: bool = True

    @property
    def names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        return None if self.letters is None or self.lengths is None else split_texts(self.letters, self.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes of names, groups and factors."""
        arrays = (self.groups, self.letters, self.lengths, self.scale.factor, self.scale.shift)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def table(self) -> TableColumns | None:
        """How features came from the columns of a table (`table_of`)."""
        return table_of(self, lambda: self.names)

    def bare(self) -> Source:
        """Return the record without its arrays."""
        return replace(self, is_whole=False, scale=ColumnScale(), groups=None, letters=None, lengths=None)

    def to_json(self) -> bytes:
        """JSON text of the record without its arrays."""
        arrays, value = to_arrays(self.bare())
        assert not arrays
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes, where: str) -> Source:
        """Read the record. Raises SchemaError: it is none, or one of another version."""
        return from_arrays(cls, {}, parse_json(text, where))


def table_of(source: Source, names: Callable[[], list[str] | None]) -> TableColumns | None:
    """Return how features came from the columns of a table; of a table of numbers, that they are its columns. None where they have no
    names, or too many."""
    if source.encoding is not None or source.n_features > MAX_NAMED:
        return source.encoding
    known = names()
    if known is None or len(set(known)) < len(known):
        return None
    missing = "keep" if source.options.get("missing") == "keep" else "refuse"
    return TableColumns(tuple(ColumnEncoding(name, "numeric", missing=missing, features=(name,)) for name in known))
