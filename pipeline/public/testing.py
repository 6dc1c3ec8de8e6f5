"""For those who write a method of their own: the checks that every method of gramplane passes."""

from importlib import import_module
from typing import Any

_HOMES = {"MethodCase": "workflows.battery", "check_method": "workflows.battery"}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"gramplane.{_HOMES[name]}"), name)
