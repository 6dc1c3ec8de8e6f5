"""The numba options of the ingest kernels."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def compile_kernel(function: F) -> F:
    """Compile with numba: without the interpreter lock, with IEEE arithmetic in program order, cached on disk if possible.

    If the cache folder is full or read-only, compilation is repeated. Fast-math is off, because sums must be added in the written order, so
    that the bits do not depend on how the input was divided.
    """
    compile_it: Any = numba.njit
    try:
        made = compile_it(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return compile_it(nogil=True, error_model="numpy")(function)
    cache: Any = getattr(made, "_cache", None)
    for name in ("save_overload", "load_overload"):
        if hasattr(cache, name):
            setattr(cache, name, _ignore_cache_errors(getattr(cache, name)))
    return made


def _ignore_cache_errors(touch: Callable[..., T]) -> Callable[..., T | None]:
    def touch_or_pass(*args: object) -> T | None:
        with suppress(OSError, EOFError):
            return touch(*args)
        return None

    return touch_or_pass
