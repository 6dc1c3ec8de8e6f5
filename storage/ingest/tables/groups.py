"""Files of tables in groups of rows (Parquet, Arrow). A group that fits an eighth of the budget is read by rows; of a larger one, some
columns at a time go to scratch, from where rows are put together again: what pyarrow holds of a group grows with the columns that are read
side by side."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...encoding.arrow import has_fixed_width, is_number_type, is_word_type
from ...encoding.chunks import Chunk, Coded, Words, chunk_length
from ...errors import DataError, OutOfSpace, SchemaError
from ...value_types import Foreign
from ..files import Panels
from ..options import Options
from ..text.streams import FileDigest
from .tabular import Table

COLUMN_BYTES = 6 << 10  # bytes that pyarrow takes for a column while it is read
CELL_BYTES = 9  # bytes of a number in a page, with its part of the page's head
GROUP_SHARE = 8
_INDEX = "__index_level_0__"  # what pandas calls an index without a name


class GroupedTable(Table):
    """A file of groups of rows, whose columns can be read apart from one another. ``schema``: its Arrow schema."""

    digest: FileDigest
    n_rows: int

    def __init__(self, path: Path, schema: Foreign, options: Options) -> None:
        self.numbers = [k for k, field in enumerate(schema) if is_number_type(field.type)]
        index = _INDEX if _INDEX in schema.names else None
        super().__init__(str(path), schema.names, self.numbers, options, index)
        # Texts that repeat are read as a table of texts and numbers of them, and are texts all the same; ids do not repeat.
        repeat = [k for k in self.columns_read if k != self._roles.columns.get("id")]
        self.texts = [self.columns[k] for k in repeat if is_word_type(schema.field(k).type)]
        self.long = [self.columns[k] for k in self.columns_read if not has_fixed_width(schema.field(k).type)]

    @property
    @abstractmethod
    def n_groups(self) -> int:
        """Number of groups."""

    @abstractmethod
    def group_rows(self, group: int) -> int:
        """Rows of a group."""

    @abstractmethod
    def group_bytes(self, group: int) -> int:
        """Bytes that a group takes at most, packed and unpacked."""

    def stays_in_file(self, group: int) -> bool:
        """Whether nothing of a group is in memory but the rows at hand."""
        return False

    @abstractmethod
    def read_group(self, group: int, names: Sequence[str], step: int, alone: bool) -> Iterator[list[Chunk]]:
        """Yield about ``step`` rows of some columns of a group; ``alone``: one whose column does not fit the share of a group."""

    def batches(self, step: int, options: Options) -> Iterator[list[Chunk]]:
        """Yield batches of rows."""
        try:
            row = 0
            for group in range(self.n_groups):
                yield from self._group(group, row, step, options)
                row += self.group_rows(group)
        except (DataError, SchemaError, OutOfSpace):
            raise
        except Exception as error:  # damaged files make pyarrow raise almost anything
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> DataError:
        """Build the error for a file that cannot be read."""
        return DataError(f"cannot be read as {self.format.capitalize()}: {error}", self.name)

    def _group(self, group: int, row: int, step: int, options: Options) -> Iterator[list[Chunk]]:
        sizes, share = self._sizes(group), options.budget // GROUP_SHARE
        if self.stays_in_file(group) or sum(sizes[self.columns[k]] for k in self._roles.features) <= share:
            names = [self.columns[k] for k in self.columns_read]
            yield from map(self.in_places, self._read(group, names, self._rows(group, sizes, step)))
        else:
            yield from self._by_columns(group, sizes, row, step, options)

    def _sizes(self, group: int) -> dict[str, int]:
        """Bytes that reading every column of a group takes at most: packed, unpacked, and what pyarrow keeps. From the numbers of rows and
        bytes alone: what the footer says of single columns ends the process where it is damaged."""
        whole, long = self.group_bytes(group), set(self.long)
        number = min(whole, 2 * CELL_BYTES * max(0, self.group_rows(group)))
        return {name: COLUMN_BYTES + (whole if name in long else number) for name in self.columns}

    def _rows(self, group: int, sizes: dict[str, int], step: int) -> int:
        """Rows of a batch: fewer where texts are long."""
        width = 8 * len(self.columns) + sum(sizes[name] for name in self.long) // max(1, self.group_rows(group))
        return max(1, step * 8 * len(self.columns) // width)

    def _read(self, group: int, names: Sequence[str], step: int, alone: bool = False) -> Iterator[list[Chunk]]:
        texts = {k for k, name in enumerate(names) if name in self.texts}
        for chunks in self.read_group(group, names, step, alone):
            for k in texts:
                chunk = chunks[k]
                chunks[k] = chunk._replace(is_type=False) if isinstance(chunk, Words) else chunk
            yield chunks

    def _by_columns(self, group: int, sizes: dict[str, int], row: int, step: int, options: Options) -> Iterator[list[Chunk]]:
        """Yield batches of a large group by way of panels of columns on scratch."""
        assert self.scratch is not None
        count = self.group_rows(group)
        panels = Panels(self.scratch.path("panels.bin"), count)
        names, share = [self.columns[k] for k in self._roles.features], options.budget // GROUP_SHARE
        at = 0
        while at < len(names):
            end, taken = at + 1, sizes[names[at]]
            while end < len(names) and taken + sizes[names[end]] <= share:
                taken, end = taken + sizes[names[end]], end + 1
            panels.add(self._stacked(group, names[at:end], row, at, taken > share, options), end - at, np.dtype(np.float64))
            at = end
        others = [self.columns[k] for k in self._roles.columns.values()]
        lo, step = 0, self._rows(group, sizes, step)
        for tables in self._read(group, others, step) if others else ([] for _ in range(0, count, step)):
            hi = lo + (chunk_length(tables[0]) if tables else min(step, count - lo))
            chunks: dict[str, Any] = dict(zip(others, tables, strict=False))
            chunks |= {name: Coded(values) for name, values in zip(names, panels[lo:hi].T, strict=True)}
            yield self.in_places([chunks[self.columns[k]] for k in self.columns_read])
            lo = hi

    def _stacked(self, group: int, names: list[str], row: int, feature: int, alone: bool, options: Options) -> Iterator[npt.NDArray[Any]]:
        for columns in self._read(group, names, self.step(options, len(names)), alone):
            yield np.column_stack([self._numbers(chunk, row, k) for k, chunk in enumerate(columns, feature)])
            row += chunk_length(columns[0])
