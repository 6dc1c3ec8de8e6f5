"""SIGINT, SIGTERM and SIGHUP: leave through the ``finally`` blocks once, leave at once the second time."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_SECONDS = 8.0  # time to close a cluster after the first signal; then the process goes, whatever still runs


class Interrupted(BaseException):
    """A signal asked the process to stop. Not an ``Exception``: code that recovers from errors must not recover from this. ``signum``: the
    signal, SIGTERM for SIGHUP; the exit code is 128 + signum; ``kept``: what is left of the work, and what to do."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = _taken_as(signum)
        self.kept = "what is finished is kept, run the same command again to continue"

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.args[0]).name}; {self.kept}"


def _taken_as(signum: int) -> int:
    """Return SIGTERM for the end of a terminal or of a connection to one."""
    return signal.SIGTERM if signum == signal.SIGHUP else signum


def find_signal(error: BaseException) -> Interrupted | None:
    """Return the signal behind an error: one that arrives while a class is made comes wrapped in what Python makes of it."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, Interrupted):
        seen = seen.__cause__
    return seen


class _Stop:
    """Signal handler: raise once, exit the second time."""

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.timer: threading.Timer | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if self.timer is not None:
            os._exit(128 + _taken_as(signum))
        self.timer = threading.Timer(self.grace, os._exit, (128 + _taken_as(signum),))
        self.timer.daemon = True
        self.timer.start()
        raise Interrupted(signum)


@contextmanager
def interruptible(grace: float = GRACE_SECONDS) -> Iterator[None]:
    """Turn the first SIGINT, SIGTERM or SIGHUP inside the block into `Interrupted`; a second one, or ``grace`` seconds, ends the process.
    A SIGHUP that is ignored at the start (nohup) stays ignored. Outside the main thread, where Python allows no handlers, the block runs
    as it is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stop = _Stop(grace)
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    before = {signum: signal.signal(signum, stop) for signum in (signal.SIGINT, signal.SIGTERM, *hangup)}
    try:
        yield
    finally:
        # After a first signal the handler stays: the second one must end the process while it closes, too.
        if stop.timer is None:
            for signum, handler in before.items():
                signal.signal(signum, handler)
