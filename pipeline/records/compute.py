"""Options of every run and computing command: where passes run, and memory limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...cluster import ClusterConfig, Limits, TLSFiles


@dataclass(frozen=True)
class ComputeOptions:
    """Cluster and memory options; ``None`` and ``False`` mean unset.

    ``cluster``: such as ``sync`` (the default) or ``local:4``. Memory is in bytes, or a text such as ``4GiB``. ``stall_timeout``: seconds
    without a finished task before a run is aborted.
    """

    cluster: str | None = None
    worker_memory: str | int | None = None
    driver_memory: str | int | None = None
    allow_plaintext: bool = False
    tls: TLSFiles | None = None
    stall_timeout: float | None = None

    def over(self, **lower: Any) -> ComputeOptions:
        """Return these options, with unset ones taken from ``lower`` (precedence: YAML < environment < flags)."""
        return ComputeOptions(**{**lower, **{key: value for key, value in vars(self).items() if value not in (None, False)}})

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments."""
        return {**vars(self), "cluster": self.cluster or "sync"}

    @property
    def driver_bytes(self) -> int:
        """Memory limit of the driver in bytes: as given, or half the memory of the computer or container."""
        from ...cluster import driver_bytes

        return driver_bytes(self.driver_memory)

    def config(self) -> ClusterConfig:
        from ...cluster import parse_cluster

        security = {"allow_plaintext": self.allow_plaintext, "tls": self.tls}
        return parse_cluster(self.cluster or "sync", worker_memory=self.worker_memory, limits=self._limits(), **security)

    def _limits(self) -> Limits:
        from ...cluster import ClusterConfigError, Limits

        limits = Limits.from_environment()
        if self.stall_timeout is None:
            return limits
        if not 0 < self.stall_timeout < math.inf:
            raise ClusterConfigError(f"stall_timeout={self.stall_timeout!r}: must be a positive number of seconds")
        return replace(limits, stall_timeout=float(self.stall_timeout))
