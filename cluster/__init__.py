"""Machines: programs over blocks, planned before they run, in this process or on a Dask cluster. No disk, no mathematics."""

from importlib import import_module

_NAMES = {
    "config": "FORMS ClusterConfig Limits default_driver_memory driver_bytes machine_memory parse_bytes parse_cluster",
    "errors": "ClusterConfigError ClusterError ClusterLost ClusterUnreachable MemoryBoundExceeded "
    "PlaintextRefused PreflightFailed Stalled TaskFailed VersionMismatch WorkerDiskFull WorkersKilled bytes_text",
    "events": "LogSink MemorySink Sink tee",
    "executor": "Executor",
    "opening": "executor_for_client open_executor share_local_clusters",
    "program": "BlockProgram Plan combine_tree plan",
    "security": "TLSFiles make_certificates",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll] (names of the stub)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)  # once
    return value


def __dir__() -> list[str]:
    return __all__
