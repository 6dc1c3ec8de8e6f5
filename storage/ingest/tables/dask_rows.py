"""dask arrays as input, one row block at a time; dask itself is never imported."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...errors import SchemaError
from ...sparse_door import admit_chunks
from ...value_types import Foreign, Matrix
from ..labels import Target
from ..options import Options
from ..reading import RowSource, check_width
from ..text.spool import Block
from .row_tables import array_digest


class DaskSource(RowSource):
    """A 2-D dask array of dense or SciPy sparse blocks; chunk sizes may be unknown. ``x``: features. A row of blocks is computed at once
    and must fit memory. ``tables``: "y", "task", "weight" -> vectors, NumPy or dask; ``options``: options."""

    format = "array"

    def __init__(self, x: Foreign, tables: Mapping[str, Any], options: Options) -> None:
        if x.ndim != 2:
            raise SchemaError(f"the dask array has {x.ndim} dimensions; features must be a matrix (n_rows, n_cols)")
        self._x, self._tables = x, tables
        self.name = f"<dask.array {x.name}>"
        self._chunks = admit_chunks(x, self.name)
        self._first = self._compute(0)
        self.sparse = sp.issparse(self._first)
        self.n_cols = int(self._first.shape[1])
        check_width(self.n_cols, options, self.name, self.sparse)

    def _compute(self, i: int) -> Matrix:
        parts = [self._chunks.blocks[i, j].compute() for j in range(self._x.numblocks[1])]
        if any(sp.issparse(part) for part in parts):
            return sp.csr_array(sp.hstack(parts, format="csr"))
        return np.hstack(parts)

    @property
    def held_bytes(self) -> int:
        """Bytes of the first row of blocks."""
        first: Matrix = self._first
        return int(first.data.nbytes + first.indices.nbytes + first.indptr.nbytes if self.sparse else first.nbytes)

    def identity(self) -> str | None:
        """dask's own name of the computation, which is a hash of it, with the tables."""
        names = [str(getattr(values, "name", "")) or array_digest({name: values}) for name, values in self._tables.items()]
        return " ".join(["dask", self._x.name, *names])

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield the row blocks."""
        tables = {name: np.asarray(values.compute() if hasattr(values, "compute") else values) for name, values in self._tables.items()}
        for values in tables.values():
            if values.ndim != 1:
                raise SchemaError(f"a row table has the shape {values.shape}; it must be a vector")
        row = 0
        for i in range(self._x.numblocks[0]):
            x, self._first = (self._compute(i) if self._first is None else self._first), None
            for name, values in tables.items():
                if len(values) < row + x.shape[0]:
                    raise SchemaError(f"{name} has {len(values)} entries; the dask array has at least {row + x.shape[0]} rows")
            yield self.with_tables(x, tables, row, target)
            row += x.shape[0]
        for name, values in tables.items():
            if len(values) != row:
                raise SchemaError(f"{name} has {len(values)} entries; the dask array has {row} rows")
