"""Array types shared by all kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Entry = Any  # A number that a compiled loop reads from an array; type checkers take it for an array.


# Arrays that would be larger than their caller allows are refused before they are made.


def refuse_array(what: str, needed: int, allowed: int | None) -> None:
    """Raise MemoryError if ``needed`` bytes exceed ``allowed``; ``None`` allows any size. ``what`` describes the array in the message, for
    example ``"a dense decomposition of 3000 rows"``.
    """
    if allowed is not None and needed > allowed:
        raise MemoryError(
            f"{what} needs {needed / 2**20:,.0f} MiB, but only {max(allowed, 0) / 2**20:,.0f} MiB of driver_memory are left; "
            "use fewer rows or constraints, set the parameter base, or raise --driver-memory"
        )
