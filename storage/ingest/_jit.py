"""The numba options of the ingest kernels."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile with numba: cached on disk, without the interpreter lock, IEEE arithmetic in program order.

    No fast-math: sums must come out in the written order, so that the bits do not depend on how the input was cut.
    """
    decorate: Any = numba.njit(cache=True, nogil=True, error_model="numpy")
    return decorate(function)
