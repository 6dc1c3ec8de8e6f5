"""For those who write a method of their own: the checks that every method of gramplane passes."""

from importlib import import_module
from typing import Any

__all__ = ["MethodCase", "check_method"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("gramplane.workflows.battery"), name)
