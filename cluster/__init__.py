"""Machines: programs over blocks, planned before they run, in this process or on a Dask cluster. No disk, no mathematics."""

from .config import FORMS, ClusterConfig, Limits, driver_bytes, parse_bytes, parse_cluster
from .errors import (
    ClusterConfigError,
    ClusterError,
    ClusterLost,
    ClusterUnreachable,
    MemoryBoundExceeded,
    PlaintextRefused,
    PreflightFailed,
    Stalled,
    TaskFailed,
    VersionMismatch,
    WorkerDiskFull,
    WorkersKilled,
    bytes_text,
)
from .events import JsonLinesSink, LogSink, MemorySink, Sink, tee
from .executor import Executor
from .opening import executor_for_client, open_executor
from .process import default_driver_memory, machine_memory
from .program import BlockProgram, Plan, combine_tree, plan
from .security import TLSFiles, make_certificates

__all__ = [
    "FORMS",
    "BlockProgram",
    "ClusterConfig",
    "ClusterConfigError",
    "ClusterError",
    "ClusterLost",
    "ClusterUnreachable",
    "Executor",
    "JsonLinesSink",
    "Limits",
    "LogSink",
    "MemoryBoundExceeded",
    "MemorySink",
    "PlaintextRefused",
    "Plan",
    "PreflightFailed",
    "Sink",
    "Stalled",
    "TLSFiles",
    "TaskFailed",
    "VersionMismatch",
    "WorkerDiskFull",
    "WorkersKilled",
    "bytes_text",
    "combine_tree",
    "default_driver_memory",
    "driver_bytes",
    "executor_for_client",
    "machine_memory",
    "make_certificates",
    "open_executor",
    "parse_bytes",
    "parse_cluster",
    "plan",
    "tee",
]
