"""Types of arrays, for annotations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = np.ndarray
"""An array of any type."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
