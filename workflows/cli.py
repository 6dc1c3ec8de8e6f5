"""The ``gramplane`` command. Importing this module imports no numerical library: ``gramplane --help`` must be quick."""

import os
import sys
import traceback
from collections.abc import Sequence

import click

from .commands import config, data, fit, gram, runs
from .console import COMPLETE, Carried, OutputClosed, open_closed_streams, settle_output, show_error, version_text
from .exits import Exit, exit_code
from .signals import Interrupted, interruptible


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"gramplane {version_text()}")
        ctx.exit()


class Ordered(click.Group):
    """Lists commands in the order they are used in, not by letter."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of `_ORDER`."""
        return sorted(self.commands, key=_ORDER.index)


_ORDER = (
    *("demo", "ingest", "gram", "fit", "tune", "resume", "predict", "cluster", "score", "stability", "report"),
    *("status", "history", "run", "config", "inspect", "verify", "repair", "clean", "warmup", "completion"),
)


@click.group(cls=Ordered, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version and exit.")
def cli() -> None:
    """Sparse and kernel learning on data wider and larger than memory.

    Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 bug, 2 usage, 3 input data, 4 cluster lost (run again),
    5 out of disk or memory, 6 stored bytes damaged, 99 another process holds the run, 130/143 interrupted (run again to continue),
    141 the reader of the output went away.
    """


for _command in (*data.COMMANDS, *gram.COMMANDS, *fit.COMMANDS, *runs.COMMANDS, *config.COMMANDS):
    cli.add_command(_command)


def _report_failure(error: BaseException, words: Sequence[str]) -> int:
    if "--debug" in words and exit_code(error) is not Exit.INTERRUPTED:
        traceback.print_exception(error)
    command = next((word for word in words if not word.startswith("-")), "")
    return int(show_error(error, "--json" in words, command))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. ``arguments``: words after ``gramplane``; those of the process by default."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_closed_streams()
    try:
        with interruptible():
            code = cli.main(words, prog_name="gramplane", standalone_mode=False)
    except (Exception, KeyboardInterrupt, Interrupted) as error:
        return _report_failure(error.__cause__ if isinstance(error, Carried) and error.__cause__ else error, words)
    except SystemExit as end:
        if os.environ.get(COMPLETE):
            return int(end.code or 0)
        # So click ends where its help cannot be written; nothing else here ends so.
        return _report_failure(OutputClosed(), words)
    finally:
        settle_output()
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
