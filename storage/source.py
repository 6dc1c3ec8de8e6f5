"""Source: the record of how a store's rows were read, so that later files are read in the same way."""

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
from .records import from_arrays, record_class, to_arrays

SOURCE = "source.json"
"""Name of the object in a store that holds this record."""

MAX_NAMED = 1 << 16  # columns of plain tables that are written down by name, so that frames can be matched
MAX_KEPT_BYTES = 64 << 20
"""Largest size of names, groups and factors that a run copies, in bytes. Above it, the run refers to the store that has them."""


@dataclass(frozen=True)
class Source:
    """How a source was read: everything that belongs to the learnt model rather than to one file.

    Attributes
    ----------
    place : str
        Location of the rows, for messages.
    digest : str
        Identity of the store made from it; empty until there is one.
    format : str
        Format of the source ("svmlight", "csv", …; "array" for data in memory).
    kind : str
        "sparse", "dense" or "sequences".
    n_features : int
        Number of features.
    first_index : int
        Index of the first column in SVMlight text, 0 or 1.
    options : mapping
        Options of the reading: task, missing values, columns with the target, tasks, weights, ids and covariates, query ids, budget.
    labels : tuple, optional
        Labels of class codes 0, 1, …; None for a real-valued target.
    has_target : bool
        Whether the rows have a target.
    are_named : bool
        Whether feature names were given separately and are not those of the source's columns.
    named_tasks : bool, optional
        Whether tasks are names; None if there are no tasks.
    encoding : TableColumns, optional
        How the columns of a table became features; None if they are the features.
    scale : ColumnScale
        Factors of the columns.
    groups, letters, lengths : ndarray, optional
        Group label of each feature; feature names as concatenated UTF-8, and the length of each in bytes.
    is_whole : bool
        Whether names, groups and factors are included. A store holds them in separate tables (`BlockStore.whole_source`).
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
        """Names of the features, or None."""
        return None if self.letters is None or self.lengths is None else split_texts(self.letters, self.lengths)

    @property
    def nbytes(self) -> int:
        """Memory in bytes that names, groups and factors take."""
        arrays = (self.groups, self.letters, self.lengths, self.scale.factor, self.scale.shift)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def table(self) -> TableColumns | None:
        """Return how features were made from the columns of a table (`table_of`)."""
        return table_of(self, lambda: self.names)

    def bare(self) -> Source:
        """Return the record without its arrays."""
        return replace(self, is_whole=False, scale=ColumnScale(), groups=None, letters=None, lengths=None)

    def to_json(self) -> bytes:
        """Return the record, without its arrays, as JSON text."""
        arrays, value = to_arrays(self.bare())
        assert not arrays
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes, where: str) -> Source:
        """Read the record. Raises SchemaError if it is not one, or has another version."""
        value = parse_json(text, where)
        return from_arrays(GenotypeSource if record_class(value) == GenotypeSource.record_name else cls, {}, value)


FACTS = ("chromosome", "position", "counted allele", "other allele", "frequency")
"""What is known of a variant: the last is the frequency of the counted allele in the training data."""


@dataclass(frozen=True)
class GenotypeSource(Source):
    """How genotypes were read. Columns are found by the ids of variants, and count the same alleles.

    ``fact_letters``, ``fact_lengths``: the `FACTS` of each variant, with tabs between them, as concatenated UTF-8 and lengths in bytes.
    """

    record_name: ClassVar[str] = "GenotypeSource"
    fact_letters: npt.NDArray[np.uint8] | None = None
    fact_lengths: npt.NDArray[np.int64] | None = None

    @property
    def facts(self) -> list[str]:
        """The facts of each variant, as one text."""
        return [] if self.fact_letters is None or self.fact_lengths is None else split_texts(self.fact_letters, self.fact_lengths)

    @property
    def nbytes(self) -> int:
        """Memory in bytes that names, facts and factors take."""
        return super().nbytes + sum(array.nbytes for array in (self.fact_letters, self.fact_lengths) if array is not None)

    def bare(self) -> Source:
        """Return the record without its arrays."""
        return replace(super().bare(), fact_letters=None, fact_lengths=None)  # pyright: ignore[reportCallIssue]


def table_of(source: Source, names: Callable[[], list[str] | None]) -> TableColumns | None:
    """Return how features were made from the columns of a table. For a table of numbers, the result says that the features are its columns.

    Returns None if the columns have no names, or if there are too many columns.
    """
    if source.encoding is not None or source.n_features > MAX_NAMED:
        return source.encoding
    known = names()
    if known is None or len(set(known)) < len(known):
        return None
    missing = "keep" if source.options.get("missing") == "keep" else "refuse"
    return TableColumns(tuple(ColumnEncoding(name, "numeric", missing=missing, features=(name,)) for name in known))
