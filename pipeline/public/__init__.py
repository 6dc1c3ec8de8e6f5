"""gramplane: sparse and kernel learning on data wider and larger than the memory of one computer.

Names are imported when they are first used: all names of ``gramplane.pipeline``, ``ingest`` and the version.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gramplane import datasets as datasets
    from gramplane import plots as plots
    from gramplane import testing as testing
    from gramplane.pipeline import *  # noqa: F403
    from gramplane.storage.ingest import ingest as ingest
    from gramplane.storage.ingest import ingest_grams as ingest_grams

    __version__: str

DOORS = ("datasets", "plots", "testing")  # modules beside this one

# Public names of other folders, with the modules that have them.
OTHERS = {"ingest": "gramplane.storage.ingest", "ingest_grams": "gramplane.storage.ingest"}


def lazy_names(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a module that imports names from sibling modules on first use. ``homes``: the sibling module of each
    name.
    """

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(f"gramplane.{homes[name]}"), name)

    return __getattr__


if not TYPE_CHECKING:  # (a name that there is not is an error to type checkers, too)

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
