"""Checks that every method must pass on worker processes, and all checks for your own method: ``gramplane.testing.check_method``."""

import contextlib
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from ..cluster import Executor, Plan
from ..storage.temporary import temporary_folder
from .battery import CHECKS, Bench, MethodCase, assert_equal_runs, prepare_case


@dataclass
class Passes:
    """Collects from events, for each pass, the number of tasks and the number of workers that ran tasks; also the memory of the largest
    step, and the number of all workers.
    """

    tasks: list[int] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    n_workers: int = 1
    largest: int = 0

    def __call__(self, event: Mapping[str, Any]) -> None:
        self.n_workers = max(self.n_workers, event.get("n_workers", 1) if event["event"] == "phase" else 1)
        if event["event"] == "plan":
            self.largest = max(self.largest, event["memory_bound"])
        if event["event"] == "finish":
            self.tasks.append(event["n_tasks"])
            self.used.append(event["workers_used"])

    def check(self, distributed: Sequence[str], disturbed: int | None = None) -> None:
        """Check that the work was distributed as planned: at least one pass has two tasks and, if there are two workers, at least one pass
        used both.

        The pass ``disturbed`` does not count for the second condition.
        """
        told = f"the plan calls {distributed} distributed; tasks of the passes: {self.tasks}, workers: {self.used}"
        assert max(self.tasks, default=0) >= 2 if distributed else not self.tasks, told
        seen = [used for k, (tasks, used) in enumerate(zip(self.tasks, self.used, strict=True)) if tasks >= 2 and k != disturbed]
        assert self.n_workers < 2 or not seen or max(seen) >= 2, f"no two workers: {told}"


def workers_find_the_same_bits(bench: Bench, cluster: str) -> None:
    """A run on workers ends like the uninterrupted run. Distributed passes have two tasks, and use two workers if there are two.

    No task exceeds the planned memory.
    """
    passes, run = Passes(), bench.scratch / "on-workers"
    plan = bench.start(run, dry_run=True, cluster=cluster).plan or {}
    bench.start(run, cluster=cluster, on_event=passes)
    assert_equal_runs(bench.straight, run)
    passes.check(plan["distributed"])
    assert passes.largest <= plan.get("task_bytes_at_most", plan["task_bytes"]), f"a step takes {passes.largest} bytes: {plan}"
    (bench.folder / "passes.json").write_text(json.dumps(passes.tasks))


@dataclass(frozen=True)
class Deadly:
    """A step of a pass. Its second call, counted over all processes, kills the process with SIGKILL."""

    step: Callable[..., Any]
    folder: str  # where the calls leave a file

    def __call__(self, *args: Any) -> Any:
        if not self._is_new("first") and self._is_new("second"):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.step(*args)

    def _is_new(self, name: str) -> bool:
        try:
            os.close(os.open(os.path.join(self.folder, name), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


@contextlib.contextmanager
def _deadly_pass(number: int, folder: Path) -> Iterator[None]:
    """Replace the chunk steps of one pass of a run by steps that kill their process (`Deadly`)."""
    folder.mkdir()
    run, count, owner = Executor.run, iter(range(1 << 30)), cast("Any", Executor)

    def changed(executor: Executor, work: Plan[Any]) -> Any:
        if next(count) == number:
            work = replace(work, program=replace(work.program, chunk=Deadly(work.program.chunk, str(folder))))
        return run(executor, work)

    owner.run = changed
    try:
        yield
    finally:
        owner.run = run


def a_worker_killed_within_a_pass_changes_nothing(bench: Bench, cluster: str) -> bool:
    """A worker that is killed during a pass, after another task has begun, does not change the bits.

    Returns whether a worker was killed. If no pass has two tasks, the check kills none.
    """
    told = bench.folder / "passes.json"  # tasks of the passes of a run that nothing disturbed
    if not told.exists():
        workers_find_the_same_bits(bench, cluster)
    large = [k for k, tasks in enumerate(json.loads(told.read_text())) if tasks >= 2]
    if not large:
        return False
    passes, run, calls, number = Passes(), bench.scratch / "worker-killed", bench.scratch / "calls", large[len(large) // 2]
    with _deadly_pass(number, calls):
        bench.start(run, cluster=cluster, on_event=passes)
    assert (calls / "second").exists(), "no worker was killed"
    assert_equal_runs(bench.straight, run)
    passes.check((bench.start(run, dry_run=True).plan or {})["distributed"], number)
    return True


def a_killed_driver_resumes_on_workers(bench: Bench, cluster: str) -> None:
    """The driver is killed with SIGKILL after its first step; another driver resumes the run on the same workers."""
    run = bench.scratch / "killed"
    # Forked from a process that has imported everything and has no threads.
    spawn = multiprocessing.get_context("forkserver")
    spawn.set_forkserver_preload([__name__])
    driver = spawn.Process(target=_run_until_killed, args=(bench, run, cluster))
    driver.start()
    driver.join()
    assert driver.exitcode == -signal.SIGKILL, f"the driver ended with {driver.exitcode}"
    assert bench.resume(run, cluster=cluster).status == "done"
    assert_equal_runs(bench.straight, run)


def _run_until_killed(bench: Bench, run: Path, cluster: str) -> None:
    def emit(event: Mapping[str, Any]) -> None:
        if event["event"] == "iteration":
            os.kill(os.getpid(), signal.SIGKILL)

    bench.start(run, cluster=cluster, on_event=emit)


WORKER_CHECKS: tuple[Callable[..., Any], ...] = (
    workers_find_the_same_bits,
    a_worker_killed_within_a_pass_changes_nothing,
    a_killed_driver_resumes_on_workers,
)
"""All checks on a cluster."""


def check_method(case: MethodCase, clusters: Sequence[str] = ()) -> None:
    """Check that a method passes all checks that gramplane's own methods pass.

    ``case``: the method with parameters, a small data set, and the parameters with one value changed. ``clusters``: clusters on which it
    must compute the same bits, such as ``("local:1", "local:2")``. Raises AssertionError with the first failed check.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest
    >>> from gramplane.testing import MethodCase, check_method
    >>> case = MethodCase(
    ...     "fgm",
    ...     {"B": 2, "max_rounds": 2},
    ...     lambda path: ingest(load_iris(return_X_y=True), path),
    ...     ({"B": 1, "max_rounds": 2}, "B"),
    ... )
    >>> check_method(case)  # doctest: +SKIP
    """
    on_workers = [partial(check, cluster=cluster) for cluster in clusters for check in WORKER_CHECKS]
    with temporary_folder() as place:
        folder = prepare_case(case, place)
        for number, check in enumerate([*CHECKS, *on_workers]):
            scratch = folder / f"check-{number}"
            scratch.mkdir()
            try:
                check(Bench(case, folder, scratch))
            except Exception as error:
                name = (check.func if isinstance(check, partial) else check).__name__.replace("_", " ")
                raise AssertionError(f"{case.method}: {name}: {error}") from error
