"""Assignment of blocks to workers. A block goes to the worker that has it cached, or else to the worker with the least work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any


def _task_blocks(ref: object) -> tuple[Any, ...]:
    return ref if isinstance(ref, tuple) and ref else (ref,)


def _block_key(block: object) -> Hashable:
    try:
        hash(block)
    except TypeError:
        return repr(block)
    return block


class Affinity:
    """Remembers the preferred worker of each block over the runs of one executor.

    Preferences are not binding: if the scheduler runs a task elsewhere, :meth:`learn` records the new worker. Results never depend on them.
    """

    def __init__(self) -> None:
        self._homes: dict[Hashable, str] = {}
        self._weights: dict[Hashable, float] = {}

    def assign(self, refs: Sequence[Any], weights: Sequence[int], workers: Mapping[str, int]) -> list[str]:
        """Return the preferred worker of every task of a pass; ``weights`` are the bytes of the tasks. Each worker gets a share of these
        bytes that is proportional to its number of threads (``workers``).
        """
        self._homes = {block: home for block, home in self._homes.items() if home in workers}
        self._make_room(workers)
        loads, unknown = dict.fromkeys(workers, 0.0), list[tuple[Any, int]]()
        for ref, weight in zip(refs, weights, strict=True):
            if (home := self._home(ref)) is None:
                unknown.append((ref, max(weight, 1)))
            else:
                loads[home] += max(weight, 1)
        self._settle(unknown, loads, workers)
        return [str(self._home(ref)) for ref in refs]

    def learn(self, ref: object, worker: str, weight: float) -> None:
        """Record that ``worker`` now holds the blocks of ``ref``."""
        blocks = _task_blocks(ref)
        for block in blocks:
            self._homes[_block_key(block)] = worker
            # A task of no bytes is still a task: without a weight all of them would pile up on one worker.
            self._weights[_block_key(block)] = max(weight, 1) / len(blocks)

    def _home(self, ref: object) -> str | None:
        known = Counter(home for block in _task_blocks(ref) if (home := self._homes.get(_block_key(block))) is not None)
        return known.most_common(1)[0][0] if known else None

    def _loads(self, workers: Mapping[str, int]) -> dict[str, float]:
        loads = dict.fromkeys(workers, 0.0)
        for block, home in self._homes.items():
            loads[home] += self._weights[block]
        return loads

    def _make_room(self, workers: Mapping[str, int]) -> None:
        # Only for newcomers: moving blocks between settled workers would cost reads and win nothing.
        loads = self._loads(workers)
        if not self._homes or all(loads.values()):
            return
        share = sum(loads.values()) / sum(workers.values())
        for block in reversed(list(self._homes)):
            home = self._homes[block]
            if loads[home] - self._weights[block] >= share * workers[home]:
                loads[home] -= self._weights[block]
                del self._homes[block]

    def _settle(self, tasks: Sequence[tuple[Any, int]], loads: dict[str, float], workers: Mapping[str, int]) -> None:
        # Runs of neighbouring blocks go to one worker, so that the first combines find their parts in one place. Workers with as much to do
        # begin with the one that holds the least.
        held = self._loads(workers)
        share = (sum(loads.values()) + sum(weight for _, weight in tasks)) / sum(workers.values())
        order = sorted(workers, key=lambda worker: (loads[worker] - share * workers[worker], held[worker], worker))
        position = 0
        for ref, weight in tasks:
            while position + 1 < len(order) and loads[order[position]] + weight / 2 > share * workers[order[position]]:
                position += 1
            loads[order[position]] += weight
            self.learn(ref, order[position], weight)
