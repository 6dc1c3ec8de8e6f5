"""Schedulers and workers as separate processes, started by Dask's own commands: to connect to, and to kill.

with CommandCluster(tmp_path, workers=2) as cluster:
    with open_executor(f"scheduler-file:{cluster.scheduler_file}") as executor:
        ...
        cluster.kill_worker(0)
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psutil

from gramplane.cluster import TLSFiles

ROOT = Path(__file__).parents[2]

_QUIET: dict[str, object] = {"worker.profile.enabled": False, "admin.tick.interval": "1s", "admin.system-monitor.interval": "2s"}
"""Idle processes take a fifth of the time of the processor: nobody looks at profiles of statements or at delays of a loop."""


def wait_until(condition: Callable[[], object], timeout: float = 30.0, what: str = "condition", pause: float = 0.05) -> None:
    """Poll every ``pause`` seconds until ``condition()`` is true; fail loudly after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} not met within {timeout:g} s")
        time.sleep(pause)


def children(of: int | None = None) -> list[psutil.Process]:
    """Living descendants of a process (default: this one), without Python's own bookkeeping process."""
    found = psutil.Process(of).children(recursive=True)
    return [process for process in found if _is_alive(process) and "resource_tracker" not in _command(process)]


def _is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@contextmanager
def killed_holders(*passes: int) -> Iterator[list[str]]:
    """Kill the worker that holds the result of some passes of this process, counted from 1, before it is fetched; yield their addresses."""
    from gramplane.cluster.workers.dask_executor import _Run

    lost: list[str] = []
    number, gather = count(1), _Run._gather

    def kill_and_gather(run: _Run) -> None:
        if next(number) in passes:
            client = run._root.client
            (holders,) = client.who_has([run._root]).values()
            (pid,) = client.run(os.getpid, workers=list(holders)).values()
            lost.extend(holders)
            psutil.Process(pid).kill()
        gather(run)

    _Run._gather = kill_and_gather
    try:
        yield lost
    finally:
        _Run._gather = gather


def import_path() -> str:
    """``PYTHONPATH`` of a process that uses gramplane: in a bare checkout its own packages are found last."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH"), str(ROOT / "tests" / "support" / "_bare")]))


class CommandCluster:
    """One scheduler and some workers in processes of their own, on loopback.

    Parameters
    ----------
    folder
        For the scheduler file, logs and worker directories.
    workers
        How many to start at once.
    tls
        Speak TLS with these files (scheduler and workers).
    memory_limit
        Of each worker, as Dask writes it; ``"0"`` is none.
    threads
        Of each worker.
    nanny
        Let a nanny watch each worker and restart it when it dies (a process more for each).
    settings
        Dask configuration of scheduler and workers, ``{"scheduler.allowed-failures": 1}`` below ``distributed``.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 1,
        *,
        tls: TLSFiles | None = None,
        memory_limit: str = "0",
        threads: int = 1,
        nanny: bool = False,
        settings: dict[str, object] | None = None,
    ) -> None:
        self.folder = folder
        self.scheduler_file = folder / "scheduler.json"
        self.tls = tls
        self.memory_limit = memory_limit
        self.threads = threads
        self.nanny = nanny
        self._settings = {**_QUIET, **(settings or {})}
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start_scheduler()
        try:
            wait_until(self._has_address, what="scheduler file")
            for _ in range(workers):
                self.start_worker(wait=False)
            self.wait_for_workers(workers)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> CommandCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        return json.loads(self.scheduler_file.read_text())["address"]

    @property
    def config(self) -> str:
        """The cluster in the product's grammar."""
        return f"scheduler-file:{self.scheduler_file}"

    def start_worker(self, *, wait: bool = True, **environment: str) -> subprocess.Popen[bytes]:
        """Start one more worker, with further variables in its environment; with ``wait`` return when it has joined."""
        number = len(self.workers)
        local = self.folder / f"worker-{number}"
        before = self.n_joined()
        command = ["--scheduler-file", str(self.scheduler_file), "--nworkers", "1", "--nthreads", str(self.threads)]
        command += ["--memory-limit", self.memory_limit, "--local-directory", str(local), "--no-dashboard", "--death-timeout", "30"]
        command += ["--nanny" if self.nanny else "--no-nanny"]
        process = self._start("dask_worker", command, f"worker-{number}.log", environment)
        self.workers.append(process)
        if wait:
            self.wait_for_workers(before + 1)
        return process

    @property
    def living(self) -> list[int]:
        """Numbers of the workers that still run."""
        return [number for number, process in enumerate(self.workers) if process.poll() is None]

    def wait_for_workers(self, count: int, timeout: float = 30.0) -> None:
        """Wait until the logs tell of ``count`` registered workers (dead ones included)."""
        wait_until(lambda: self.n_joined() >= count, timeout, f"{count} workers")

    def kill_worker(self, number: int, sign: int = signal.SIGKILL, *, with_nanny: bool = True) -> None:
        """Send a signal to a worker's process; under a nanny to both, or to the worker alone."""
        process = psutil.Process(self.workers[number].pid)
        below = process.children(recursive=True)
        if with_nanny or not below:
            process.send_signal(sign)
        for child in below:
            if _is_alive(child) and "resource_tracker" not in _command(child):
                child.send_signal(sign)

    def kill_scheduler(self, sign: int = signal.SIGKILL) -> None:
        """Send a signal to the scheduler."""
        self.scheduler.send_signal(sign)

    def stop(self) -> None:
        """End every process that was started here."""
        processes = [*self.workers, self.scheduler]
        below = [child for process in processes if process.poll() is None for child in psutil.Process(process.pid).children(recursive=True)]
        for process in processes:
            if process.poll() is None:
                process.kill()
        for child in below:
            if _is_alive(child):
                child.kill()
        for process in processes:
            process.wait(10)
        psutil.wait_procs(below, timeout=10)

    def log(self) -> str:
        """Everything the processes wrote, for failure messages."""
        return "\n".join(f"== {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("*.log")))

    def _start_scheduler(self) -> subprocess.Popen[bytes]:
        host = "tls://127.0.0.1" if self.tls else "127.0.0.1"
        command = ["--host", host, "--port", "0", "--scheduler-file", str(self.scheduler_file)]
        command += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        return self._start("dask_scheduler", command, "scheduler.log")

    def _start(self, module: str, command: list[str], log: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        if self.tls:
            command = [*command, "--tls-ca-file", self.tls.ca, "--tls-cert", self.tls.cert, "--tls-key", self.tls.key]
        with open(self.folder / log, "wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**self._environment(), **(environment or {})},
                cwd=self.folder,
                umask=0o077,
            )

    def _environment(self) -> dict[str, str]:
        env = {**os.environ, "PYTHONPATH": import_path()}
        env.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"))
        for name, value in self._settings.items():
            env["DASK_DISTRIBUTED__" + name.replace("-", "_").replace(".", "__").upper()] = str(value)
        return env

    def _has_address(self) -> bool:
        if self.scheduler.poll() is not None:
            raise RuntimeError(f"the scheduler ended at once:\n{self.log()}")
        try:
            return bool(self.address)
        except (OSError, ValueError, KeyError):
            return False

    def n_joined(self) -> int:
        return (self.folder / "scheduler.log").read_text().count("Register worker")
