"""Data made by formula, with what was planted in them: for examples, tests and benchmarks."""

from importlib import import_module
from typing import Any

_HOMES = {
    "dense_groups": "linear",
    "dense_linear": "linear",
    "planted_images": "images",
    "social_graph": "social_graph",
    "sparse_linear": "linear",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"gramplane.pipeline.synthetic.{_HOMES[name]}"), name)
