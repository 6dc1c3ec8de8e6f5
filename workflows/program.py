"""What the installed ``gramplane`` runs: the command line, quiet from its first moment on when it is interrupted."""

import signal


def main() -> int:
    """Run the command line of this process and return its exit code. While modules are imported, before the handlers of `signals` stand,
    and after these are gone, Ctrl-C ends the process without a traceback: there is nothing to close."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli import main as run

    return run()
