"""The numba options of the ingest kernels."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compile_kernel(function: F) -> F:
    """Compile with numba: cached on disk, without the interpreter lock, IEEE arithmetic in program order. No fast-math: sums must come out
    in the written order, so that the bits do not depend on how the input was cut."""
    return keep_if_possible(lambda cache: numba.njit(cache=cache, nogil=True, error_model="numpy"), function)


def keep_if_possible(decorate: Callable[[bool], Any], function: Any) -> Any:
    """Compile a function with numba's cache where there is one to write to; a cache that is full or may not be written costs time only.
    ``decorate``: returns the decorator, with the cache or without; ``function``: what is to be compiled."""
    try:
        made = decorate(True)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return decorate(False)(function)
    cache: Any = getattr(made, "_cache", None)
    for name in ("save_overload", "load_overload"):
        if hasattr(cache, name):
            setattr(cache, name, _ignore_cache_errors(getattr(cache, name)))
    return made


def _ignore_cache_errors(touch: Callable[..., Any]) -> Callable[..., Any]:
    def tried(*args: Any) -> Any:
        with suppress(OSError, EOFError):
            return touch(*args)
        return None

    return tried
