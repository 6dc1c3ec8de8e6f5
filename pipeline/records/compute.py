"""Where passes run, and within which memory: what every run, and every command that computes, may be told."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...cluster import ClusterConfig, Limits, TLSFiles


@dataclass(frozen=True)
class ComputeOptions:
    """``None`` and ``False``: not said. ``cluster``: the cluster text, such as ``sync`` (as if said) or ``local:4``; memory in bytes or as
    a text such as ``4GiB``; ``stall_timeout``: seconds without a finished task before a run is given up."""

    cluster: str | None = None
    worker_memory: str | int | None = None
    driver_memory: str | int | None = None
    allow_plaintext: bool = False
    tls: TLSFiles | None = None
    stall_timeout: float | None = None

    def over(self, **lower: Any) -> ComputeOptions:
        """Return these settings with ``lower`` filling in what was not said (YAML < environment < flags)."""
        return ComputeOptions(**{**lower, **{key: value for key, value in vars(self).items() if value not in (None, False)}})

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of functions that compute."""
        return {**vars(self), "cluster": self.cluster or "sync"}

    @property
    def driver_bytes(self) -> int:
        """Bytes that the driver may hold: those given, or half of the memory of machine or container."""
        from ...cluster import driver_bytes

        return driver_bytes(self.driver_memory)

    def config(self) -> ClusterConfig:
        """Return the checked cluster configuration."""
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
