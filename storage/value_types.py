"""Names of values whose type only a look at them tells: what users hand over, what JSON holds, SciPy's many sparse classes."""

from typing import Any, TypeAlias

UserData: TypeAlias = Any
"""Whatever a user hands over: array, sparse matrix, frame, list of texts, path; who takes it looks at it first."""

Json: TypeAlias = Any
"""A value that JSON can hold, or may hold: who reads one checks its form."""

SparseMatrix: TypeAlias = Any
"""A SciPy sparse matrix or array; its classes share no base with all that they have in common."""

Matrix: TypeAlias = Any
"""Rows of data: an ndarray, or a SciPy sparse matrix."""

Foreign: TypeAlias = Any
"""An object of a library that need not be installed (Arrow, pandas, Dask, obstore), or has no types."""
