"""Workers that hang: how long each has given no sign of life, counted by whoever looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

_AT_LEAST = 2.0
"""Seconds: workers say that they live once or twice a second, on large clusters every few seconds."""

_STEP = 2.0
"""Seconds that count from one look to the next, whatever the clock says."""


class Silence:
    """Counts how long the scheduler has heard nothing of each worker.

    Time counts only while somebody looks, at most two seconds for a look: after a process that was stopped with all its workers, a laptop
    that slept or a driver that was busy for minutes, the scheduler has heard nothing of anybody, and that says nothing of the workers. The
    clock of another machine is never compared with ours.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = max(limit, _AT_LEAST)
        self._clock = clock
        self._looked = clock()
        self._heard: dict[str, tuple[Any, float]] = {}

    def of(self, workers: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return the workers that hang, by ``last_seen`` of what the scheduler knows of each."""
        now = self._clock()
        step, self._looked = min(now - self._looked, _STEP), now
        heard = {}
        for worker, facts in workers.items():
            last, silent = self._heard.get(worker, (None, 0.0))
            heard[worker] = (facts["last_seen"], silent + step if last == facts["last_seen"] else 0.0)
        self._heard = heard
        return [worker for worker, (_, silent) in heard.items() if silent >= self._limit]
