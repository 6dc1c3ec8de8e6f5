"""Entry point of the installed ``gramplane``: the command line, without tracebacks on Ctrl-C."""

import signal


def main() -> int:
    """Run the command line of this process and return its exit code.

    The handlers of `signals` are active only after imports. Before and after that time, Ctrl-C ends the process without a traceback,
    because there is nothing to close.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli import main as run

    return run()
