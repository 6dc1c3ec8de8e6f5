"""SIGINT, SIGTERM and SIGHUP: the first one runs the ``finally`` blocks and exits, the second one exits immediately."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_SECONDS = 8.0  # time to close a cluster after the first signal; then the process goes, whatever still runs


class Interrupted(BaseException):
    """A signal asked the process to stop. Not an ``Exception``, because code that recovers from errors must not catch it.

    ``signum``: the signal (SIGTERM if it was SIGHUP); the exit code is 128 + signum. ``kept``: text that says what was saved and how to
    continue.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = _taken_as(signum)
        self.kept = "what is finished is kept, run the same command again to continue"

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.args[0]).name}; {self.kept}"


def _taken_as(signum: int) -> int:
    """Return SIGTERM for SIGHUP (sent when a terminal or its connection is closed), and any other signal unchanged."""
    return signal.SIGTERM if signum == signal.SIGHUP else signum


def find_signal(error: BaseException) -> Interrupted | None:
    """Return the signal that caused an error. If a signal arrives while a class is created, Python wraps the exception of the signal in
    another one.
    """
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, Interrupted):
        seen = seen.__cause__
    return seen


class _Stop:
    """Signal handler: the first call raises `Interrupted`, the second call exits."""

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
    """Raise `Interrupted` at the first SIGINT, SIGTERM or SIGHUP inside the block. A second one, or ``grace`` seconds, ends the process.

    A SIGHUP that was ignored from the start (nohup) remains ignored. Outside the main thread, Python allows no handlers, and signals are
    unchanged.
    """
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
