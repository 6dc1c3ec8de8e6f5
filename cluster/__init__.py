"""Executes planned programs over blocks, in this process or on a Dask cluster. It uses no disk and does no mathematics."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import FORMS as FORMS
    from .config import ClusterConfig as ClusterConfig
    from .config import Limits as Limits
    from .config import default_driver_memory as default_driver_memory
    from .config import driver_bytes as driver_bytes
    from .config import machine_memory as machine_memory
    from .config import parse_bytes as parse_bytes
    from .config import parse_cluster as parse_cluster
    from .errors import ClusterConfigError as ClusterConfigError
    from .errors import ClusterError as ClusterError
    from .errors import ClusterLost as ClusterLost
    from .errors import ClusterUnreachable as ClusterUnreachable
    from .errors import MemoryBoundExceeded as MemoryBoundExceeded
    from .errors import PlaintextRefused as PlaintextRefused
    from .errors import PreflightFailed as PreflightFailed
    from .errors import Stalled as Stalled
    from .errors import TaskFailed as TaskFailed
    from .errors import VersionMismatch as VersionMismatch
    from .errors import WorkerDiskFull as WorkerDiskFull
    from .errors import WorkersKilled as WorkersKilled
    from .errors import bytes_text as bytes_text
    from .events import LogSink as LogSink
    from .events import MemorySink as MemorySink
    from .events import Sink as Sink
    from .events import tee as tee
    from .executor import Executor as Executor
    from .opening import executor_for_client as executor_for_client
    from .opening import open_executor as open_executor
    from .opening import share_local_clusters as share_local_clusters
    from .opening import warn_of_unused_client as warn_of_unused_client
    from .opening import watch_clusters as watch_clusters
    from .program import BlockProgram as BlockProgram
    from .program import Plan as Plan
    from .program import combine_tree as combine_tree
    from .program import plan as plan
    from .security import TLSFiles as TLSFiles
    from .security import make_certificates as make_certificates

_NAMES = {
    "config": "FORMS ClusterConfig Limits default_driver_memory driver_bytes machine_memory parse_bytes parse_cluster",
    "errors": "ClusterConfigError ClusterError ClusterLost ClusterUnreachable MemoryBoundExceeded "
    "PlaintextRefused PreflightFailed Stalled TaskFailed VersionMismatch WorkerDiskFull WorkersKilled bytes_text",
    "events": "LogSink MemorySink Sink tee",
    "executor": "Executor",
    "opening": "executor_for_client open_executor share_local_clusters warn_of_unused_client watch_clusters",
    "program": "BlockProgram Plan combine_tree plan",
    "security": "TLSFiles make_certificates",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll] (names as above)


if not TYPE_CHECKING:  # (a name that there is not is an error to type checkers, too)

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)  # once
        return value


def __dir__() -> list[str]:
    return __all__
