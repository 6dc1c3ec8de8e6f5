"""Data made by formula, with what was planted in them: for examples, tests and benchmarks."""

from importlib import import_module
from typing import Any

_HOMES = {
    "dense_groups": "pipeline.synthetic.linear",
    "dense_linear": "pipeline.synthetic.linear",
    "planted_images": "pipeline.synthetic.images",
    "social_graph": "pipeline.synthetic.social_graph",
    "sparse_linear": "pipeline.synthetic.linear",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"gramplane.{_HOMES[name]}"), name)
