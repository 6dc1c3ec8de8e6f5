"""The only place with numba options and thread limits.

Everything compiled goes through :func:`compiled`; everything that calls BLAS goes through :func:`one_thread`.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload

import numba
import threadpoolctl

F = TypeVar("F", bound=Callable[..., Any])

_pinned = threading.local()


@overload
def compiled(function: F) -> F: ...
@overload
def compiled(*, reassociate: bool = False, inline: bool = False) -> Callable[[F], F]: ...
def compiled(function: Any = None, *, reassociate: bool = False, inline: bool = False) -> Any:
    """Compile a function with numba: cached on disk, without the interpreter lock, IEEE division.

    Parameters
    ----------
    function : callable, optional
        The function, when used as a bare decorator.
    reassociate : bool
        Let sums be re-ordered so that they vectorise. The order is fixed at compile time, so results repeat bit for bit on one kind
        of CPU; NaN and infinity keep their meaning. Measured: a gather loop gets *slower* with it, so it is asked for loop by loop.
    inline : bool
        Paste the body into compiled callers, which saves a call in an inner loop.

    Returns
    -------
    callable
        The compiled function, or a decorator.
    """
    options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
    if reassociate:
        options["fastmath"] = {"reassoc"}
    if inline:
        options["inline"] = "always"
    decorate = numba.njit(**options)
    return decorate if function is None else decorate(function)


class one_thread:
    """Hold BLAS to one thread inside a ``with`` block, whatever the caller had set; re-entrant.

    Entering while already held costs well under a microsecond, entering from outside some tens. BLAS libraries keep the limit for the
    whole process, so threads that enter together count as one holder: the last to leave restores the caller's setting.

    Notes
    -----
    Two BLAS threads on two loaded cores made the Newton steps 5 to 14 times slower, and let the bits depend on the machine.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _HOLD.enter()

    def __exit__(self, *exc: object) -> None:
        _HOLD.leave()


class _Hold:
    """Counts the holders of the one process-wide limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._controller: Any = None
        self._limiter: Any = None

    def enter(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._limiter = self._libraries().limit(limits=1, user_api="blas")
            self._holders += 1

    def leave(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self._limiter.restore_original_limits()

    def _libraries(self) -> threadpoolctl.ThreadpoolController:
        # Listing the libraries takes a millisecond, so it is done once; SciPy's own BLAS must be loaded before that.
        if self._controller is None:
            importlib.import_module("scipy.linalg.blas")
            self._controller = threadpoolctl.ThreadpoolController()
        return self._controller


_HOLD = _Hold()
