"""Types of arrays, once for all kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Entry = Any  # A number that a compiled loop reads from an array; type checkers take it for an array.
