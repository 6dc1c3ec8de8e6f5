"""gramplane: sparse and kernel learning on data wider and larger than one machine's memory.

Names are imported when they are first used; the list is that of ``gramplane.pipeline``, with ``ingest`` and the version.
"""

from importlib import import_module
from typing import Any

DOORS = ("datasets", "plots", "testing")  # modules beside this one

# Public names of other folders, with the modules that have them.
OTHERS = {"ingest": "gramplane.storage.ingest", "ingest_grams": "gramplane.storage.ingest"}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name == "__version__":
        return import_module("gramplane.cluster.versions").own_version()
    if name in DOORS:
        return import_module(f"gramplane.{name}")
    home = import_module(OTHERS.get(name, "gramplane.pipeline"))
    if name in home.__all__:
        return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*import_module("gramplane.pipeline").__all__, *OTHERS, *DOORS, "__version__"])
