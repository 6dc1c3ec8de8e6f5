"""Written by .ci/make_package.py."""

from .config import ClusterConfig as ClusterConfig
from .config import FORMS as FORMS
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
from .program import BlockProgram as BlockProgram
from .program import Plan as Plan
from .program import combine_tree as combine_tree
from .program import plan as plan
from .security import TLSFiles as TLSFiles
from .security import make_certificates as make_certificates

__all__ = ['BlockProgram', 'ClusterConfig', 'ClusterConfigError', 'ClusterError', 'ClusterLost', 'ClusterUnreachable', 'Executor', 'FORMS', 'Limits', 'LogSink', 'MemoryBoundExceeded', 'MemorySink', 'PlaintextRefused', 'Plan', 'PreflightFailed', 'Sink', 'Stalled', 'TLSFiles', 'TaskFailed', 'VersionMismatch', 'WorkerDiskFull', 'WorkersKilled', 'bytes_text', 'combine_tree', 'default_driver_memory', 'driver_bytes', 'executor_for_client', 'machine_memory', 'make_certificates', 'open_executor', 'parse_bytes', 'parse_cluster', 'plan', 'share_local_clusters', 'tee']
