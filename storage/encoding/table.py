"""Conversion of a table to numbers: one reader per column, and the encoding learnt from all rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .chunks import Chunk
from .columns import ColumnReader, Fault, Floats
from .record import FILLS, ColumnEncoding, Form, Missing, TableColumns, make_encoding


class Other(NamedTuple):
    """A source column that is not a feature. ``kind`` is "dropped" or "id"; ``before`` is the number of feature columns that precede the
    column.
    """

    name: str
    kind: Literal["dropped", "id"]
    before: int


@dataclass(frozen=True)
class Summary:
    """Properties of a column after all rows were read: the number that replaces missing values, and whether any value is missing."""

    fill: float
    is_missing: bool


class TableReader:
    """Converts the feature columns of a table to numbers, and learns their encoding, or follows a ``known`` encoding of the same columns.

    * ``names``: the names of the columns.
    * ``plain``: columns of a numeric type, for which no state is kept.
    * ``named``: columns whose values are names, according to the user.
    * ``missing``: the treatment of missing values.
    * ``limit``: the largest size of a column's levels in bytes.
    * ``is_frame``: whether messages refer to a frame in memory instead of the source of an ingest.
    """

    def __init__(
        self,
        names: Sequence[str],
        plain: Iterable[int] = (),
        *,
        named: Iterable[str] = (),
        missing: Missing = "refuse",
        others: Sequence[Other] = (),
        known: TableColumns | None = None,
        form: Form = "one-hot",
        limit: int = 1 << 40,
        is_frame: bool = False,
    ) -> None:
        self.names, self.others, self.known = names, others, known
        self.missing: Missing = missing
        self.form: Form = form
        self._limit, self._is_frame = limit, is_frame
        named, number = set(named), plain if isinstance(plain, range) else set(plain)
        self.columns: dict[int, ColumnReader] = {}
        if known is not None:
            for k, column in enumerate(known.sources):
                levels = {level: number for number, level in enumerate(column.levels)}
                kind = column.kind if column.kind not in ("dropped", "id") else None
                self.columns[k] = replace(self._new(column.name, False), kind=kind, levels=levels, is_known=True)
            return
        for k, name in enumerate(names):
            if k not in number or name in named:
                self.columns[k] = self._new(name, name in named)

    def _new(self, name: str, is_named: bool) -> ColumnReader:
        return ColumnReader(name, is_named=is_named, refuses=self.missing == "refuse", limit=self._limit, is_frame=self._is_frame)

    def is_plain_number(self, k: int) -> bool:
        """Return whether a column has a numeric type and needs no state."""
        return k not in self.columns

    def read(self, k: int, chunk: Chunk, fault: Fault) -> Floats:
        """Return the numbers of some rows of column ``k``. Raises the exception built by ``fault`` for values that the column
        cannot have.
        """
        if k not in self.columns:
            self.columns[k] = self._new(self.names[k], False)
            self.columns[k].kind = "numeric"
        return self.columns[k].read(chunk, fault)

    def check_end(self, fault: Callable[[str, int, int], Exception]) -> None:
        """Reject columns that turn out to be invalid once all rows were read. ``fault`` takes reason, row and column."""
        for k, column in self.columns.items():
            column.check_end(lambda reason, row, k=k: fault(reason, row, k))

    def final(self, block: npt.NDArray[np.floating], first: int) -> npt.NDArray[np.floating]:
        """Return the numbers read, ``(n_columns, n)``, as final numbers: codes are replaced by the numbers of the sorted levels. ``first``
        is the first row of the block.
        """
        changing = {k: column for k, column in self.columns.items() if not column.is_final}
        out = np.array(block) if changing else block
        for k, column in changing.items():
            out[k] = column.final(block[k].astype(np.float64), first)
        return out

    def final_columns(self, columns: Floats, first: int) -> Floats:
        """Return whole columns, from column ``first`` on, with codes replaced as in `final`."""
        return np.array([self.columns[k].final(values, 0) if k in self.columns else values for k, values in enumerate(columns, first)])

    @property
    def is_plain(self) -> bool:
        """Return whether the numbers read are the features, because no column has levels and no value is filled in."""
        if self.known is not None:
            return self.known.is_plain
        return self.missing not in FILLS and all(column.is_final for column in self.columns.values())

    def finish(self, summaries: Mapping[int, Summary]) -> TableColumns | None:
        """Return the encoding, or None for a table whose numbers are the features. ``summaries`` has an entry for each column whose missing
        values are filled in.
        """
        if self.known is not None:
            return self.known
        if self.is_plain and not self.others and all(column.final_kind == "numeric" for column in self.columns.values()):
            return None
        return self.encoding(summaries)

    def encoding(self, summaries: Mapping[int, Summary]) -> TableColumns:
        """Return the encoding that was learnt, also for a purely numeric table."""
        columns = [self._encoding(k, summaries.get(k)) for k in range(len(self.names))]
        for other in reversed(self.others):
            columns.insert(other.before, ColumnEncoding(other.name, other.kind))
        return make_encoding(columns, self.form)

    def _encoding(self, k: int, summary: Summary | None) -> ColumnEncoding:
        reader = self.columns.get(k)
        kind = "numeric" if reader is None else reader.final_kind
        encoding = ColumnEncoding(self.names[k], kind, missing=self.missing)
        if reader is not None and kind == "nominal":
            encoding = replace(encoding, levels=tuple(reader.sorted_levels()))
        if summary is None:
            return encoding
        has_indicator = self.missing == "indicator" and summary.is_missing
        return replace(encoding, fill=None if kind == "nominal" else summary.fill, has_indicator=has_indicator)

    def messages(self) -> list[str]:
        """Return messages about columns once all rows are read: levels unknown to the encoding, numbers with leading zeros, too many
        levels.
        """
        form = self.form if self.known is None else self.known.form
        return [message for column in self.columns.values() for message in column.messages(form)]

    def to_json(self) -> dict[str, Any]:
        """Return the learnt state, for the journal."""
        return {str(k): column.to_json() for k, column in self.columns.items()}

    def restore(self, fields: Mapping[str, Any]) -> None:
        """Restore the state from the journal."""
        for k, values in fields.items():
            self.columns.setdefault(int(k), self._new(self.names[int(k)], False)).restore(values)


def summarise(values: npt.NDArray[np.floating], missing: Missing) -> Summary:
    """Return the replacement for missing values of a column, given all its rows: the mean or median of the values present, or 0 if all
    values are missing.
    """
    gone = np.isnan(values)
    known = values[~gone].astype(np.float64) if gone.any() else values.astype(np.float64)
    centre = np.median if missing == "median" else np.mean
    return Summary(float(centre(known)) if known.size else 0.0, bool(gone.any()))
