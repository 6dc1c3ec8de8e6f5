"""Resources: where a fit runs and what it may use. They are made once and passed on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cluster.config import default_driver_memory
from ...kernels.jit import one_thread
from ...storage import ArrayRef, MemoryRef

if TYPE_CHECKING:
    from ...cluster import Executor, Plan
    from ...storage import BlockStore, MemoryBlocks, RunStore

Shared = np.ndarray | ArrayRef  # what a task gets of an array, see :meth:`Resources.share`

# Arrays up to this size travel with the task (several may, within a megabyte); larger ones become one object of the run store.
INLINE_BYTES = 1 << 18

CARRIED_BYTES = 16 << 20  # what all tasks of a pass may carry together: a worker holds the arguments of every task that waits for it
BANK_SHARE = 0.5  # share of the driver's memory that a bank of Gram matrices may take

# What a pass on workers costs beside its arithmetic, and the speed of arithmetic that reads what it works on once. Fixed numbers: where a
# pass runs depends on counts, not on measurements.
PASS_SECONDS, TASK_SECONDS, BYTES_PER_SECOND = 0.03, 0.005, 2e9

Emit = Callable[[Mapping[str, Any]], None]


def ignore(event: Mapping[str, Any]) -> None:
    """Ignore an event."""


def hush(message: str) -> None:
    """Ignore a message."""


def warn_once(emit: Emit) -> Emit:
    """Return a sink that drops repeated warnings. Some warnings are emitted both before work starts and with the result."""
    told: set[object] = set()

    def pass_on(event: Mapping[str, object]) -> None:
        if event["event"] == "warning":
            if event["message"] in told:
                return
            told.add(event["message"])
        emit(event)

    return pass_on


def once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that passes each distinct message to ``tell`` only once."""
    told: set[str] = set()

    def tell_once(message: str) -> None:
        if message not in told:
            told.add(message)
            tell(message)

    return tell_once


def refuse(message: str) -> None:
    """Raise ValueError for a doubtful parameter. ``message`` begins with the parameter's name."""
    raise ValueError(f"{message} (--set {message.partition('=')[0]}=NUMBER)")


@dataclass
class Tally:
    """Totals over the passes of a run so far: tasks, bytes of the blocks read, and retries."""

    # tasks, bytes, retries: chunk steps planned, bytes of the blocks they name, and repeated attempts
    tasks: int = 0
    bytes: int = 0
    retries: int = 0
    mixture: str = ""  # which processes computed with other processors or kernels; empty while all are alike
    moved: str = ""  # what the driver computed with before and after it was stopped; empty while that is the same

    def add(self, work: Plan[Any]) -> None:
        self.tasks += work.n_tasks
        self.bytes += int(sum(part.nbytes for ref in work.refs for part in (ref if isinstance(ref, tuple) else (ref,))))

    def listen(self, event: Mapping[str, Any]) -> None:
        """Count the retries of a finished plan, and record whether the cluster mixes types of processors."""
        self.retries += event.get("retries", 0) if event.get("event") == "finish" else 0
        self.mixture = event.get("mixture", self.mixture)

    def notes(self) -> dict[str, str]:
        """Return the notes that a summary shows in addition to its numbers."""
        return {name: text for name, text in (("mixture", self.mixture), ("moved", self.moved)) if text}

    def figures(self) -> dict[str, int]:
        return {"tasks": self.tasks, "bytes": self.bytes, "retries": self.retries}


@dataclass(frozen=True)
class Alone:
    """Runs a step of a pass with a single BLAS thread; otherwise results would depend on the worker's number of threads."""

    step: Callable[..., Any]  # a chunk or combine function

    def __call__(self, *args: Any) -> Any:
        with one_thread():
            return self.step(*args)


@dataclass(frozen=True)
class Resources:
    """Where a fit runs and what it may use."""

    executor: Executor  # where passes run
    _: KW_ONLY
    driver_memory: int = field(default_factory=default_driver_memory)  # bytes that decide where data and sub-problems are placed
    limit: int | None = None  # bytes beyond which a fit is refused, where that is not `driver_memory`
    scratch: RunStore | None = None  # the run directory, which has large arguments of remote tasks, or None of a fit that writes nothing
    emit: Emit = ignore  # sink of event records
    seed: int = 0  # root of every random number
    tally: Tally = field(default_factory=Tally)  # tasks and bytes of the passes so far
    warn: Callable[[str], None] = hush  # takes what a fit decides or will take that its user should know, a line each, before work starts
    # takes what is doubtful about parameters, before work starts. A run refuses it: its folder would keep them; an estimator warns
    doubt: Callable[[str], None] = refuse

    @property
    def fit_limit(self) -> int:
        """Largest number of bytes that a fit may plan to use."""
        return self.driver_memory if self.limit is None else self.limit

    def run_pass(self, work: Plan[Any]) -> Any:
        """Run a planned pass and count its work. Every step uses one BLAS thread, in this process and on workers."""
        self.tally.add(work)
        if self.executor.kind == "sync":
            with one_thread():
                ref = work.refs[0]
                if work.n_tasks == 1 and not self.executor.is_heard and isinstance(ref[0] if isinstance(ref, tuple) else ref, MemoryRef):
                    # One block of arrays in this process: nothing to plan, and nobody who hears of it.
                    return work.program.finalize(work.program.chunk(ref, *work.broadcast))
                return self.executor.run(work)
        program = replace(work.program, chunk=Alone(work.program.chunk), combine=Alone(work.program.combine))
        return self.executor.run(replace(work, program=program))

    def pays_on_workers(self, nbytes: int, tasks: int) -> bool:
        """Return whether a pass that reads ``nbytes`` in ``tasks`` tasks saves more time on workers than it costs to send them.

        Two workers are assumed: a plan is made before a cluster is known.
        """
        return self.executor.kind != "sync" and nbytes / BYTES_PER_SECOND > 2 * PASS_SECONDS + TASK_SECONDS * tasks

    def share(self, name: str, array: np.ndarray, tasks: int = 1) -> Shared:
        """Return ``array`` itself, or a reference to a file in the run directory if the array is too large to send with each of ``tasks``
        tasks.

        Tasks call :func:`resolve` to get the array from either.
        """
        is_small = array.nbytes <= min(INLINE_BYTES, CARRIED_BYTES // tasks)
        return array if self.scratch is None or self.executor.kind == "sync" or is_small else self.scratch.put_array(name, array)


@dataclass(frozen=True, kw_only=True)
class RunContext(Resources):
    """Resources of a fit and the data that it reads. Used by functions that open stores."""

    data: BlockStore | MemoryBlocks  # the block store or its in-memory twin
    beside: tuple[BlockStore, ...] = ()  # further stores that the method reads
    covariates: Any = None  # of the rows that a model decides on, given beside the data: an array, or the record of a file

    def confirm(self) -> None:
        """Check that the data have not changed since the run opened them. Called before results are written.

        Raises DigestMismatch if a store was replaced or a text file was changed.
        """
        for data in (self.data, *self.beside):
            # Rows and matrices in memory have nothing that could be replaced.
            getattr(data, "confirm", tuple)()


def resolve(shared: Shared) -> np.ndarray:
    """Return the array behind a value of :meth:`Resources.share`. Workers cache the array that they loaded last."""
    return shared if isinstance(shared, np.ndarray) else shared.load()
