"""Data of xarray: the variables of a data set along one dimension are columns, an array of two dimensions is a matrix with names."""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from ...data import row_dimension
from ...encoding.chunks import Chunk, Unreadable, chunk_of_objects
from ...errors import DataError
from ...value_types import Foreign
from ..options import Options
from .row_tables import array_digest
from .tabular import Table


class DataSetSource(Table):
    """An xarray data set whose variables lie along one dimension, the rows; values are loaded some rows at a time."""

    format = "array"

    def __init__(self, data: Foreign, options: Options) -> None:
        name = f"<{type(data).__name__}>"
        self._dim, self._data = row_dimension(data, name), data
        self.n_rows = int(data.sizes[self._dim])
        columns = list(data.data_vars)
        numbers = [k for k, column in enumerate(columns) if data[column].dtype.kind in "iuf"]
        super().__init__(name, [str(column) for column in columns], numbers, options)
        self._variables = columns
        self.nbytes = 8 * self.n_rows * len(columns)

    def identity(self) -> str | None:
        """Identity by content."""
        return array_digest(chain(((name, self._data[name].values) for name in self._variables), self._roles.arrays.items()))

    def batches(self, step: int, options: Options) -> Iterator[list[Chunk]]:
        """Yield slices of rows."""
        for lo in range(0, self.n_rows, step):
            part = self._data.isel({self._dim: slice(lo, lo + step)})
            yield self.in_places([self._chunk(k, part[self._variables[k]].values) for k in self.columns_read])

    def _chunk(self, k: int, values: np.ndarray) -> Chunk:
        if values.dtype.kind in "biuf":
            return values
        if values.dtype.kind in "mM":
            return Unreadable(str(values.dtype), True, len(values))
        try:
            return chunk_of_objects(values.astype(object))
        except (TypeError, ValueError) as error:
            raise DataError(f"column {self.columns[k]!r}: {error}", self.name) from error


def names_of_array(data: Foreign) -> list[str] | None:
    """Labels of the columns of an xarray array, if it has any."""
    dim = data.dims[1] if len(data.dims) == 2 else None
    return [str(label) for label in data[dim].values.tolist()] if dim is not None and dim in data.coords else None
