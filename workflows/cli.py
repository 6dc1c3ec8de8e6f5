"""The ``gramplane`` command. This module imports no numerical library, so that ``gramplane --help`` is quick."""

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


GROUPS = {
    "Data": ("ingest", "inspect", "verify", "clean"),
    "Model": ("fit", "tune", "resume", "stability"),
    "Use": ("score", "predict", "report", "cluster"),
    "Runs": ("status", "history", "run", "config"),
    "Setup": ("demo", "warmup", "completion", "gram", "repair", "help"),
}
_EXAMPLES = (
    "gramplane ingest patients.csv stores/train --target outcome --missing keep",
    "gramplane fit rule-ensemble --data stores/train --run runs/rules",
    "gramplane score runs/rules new.csv",
)


class Grouped(click.Group):
    """A click group that lists commands by purpose."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of `GROUPS`."""
        return [name for names in GROUPS.values() for name in names]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a description of the program and three examples."""
        super().format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            for line in _EXAMPLES:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(60)) for name in names])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)


@click.group(
    cls=Grouped,
    subcommand_metavar="COMMAND ...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="See also: `gramplane COMMAND --help`, `gramplane fit METHOD --help` for the parameters of a method, "
    "`gramplane help exit-codes`, and `gramplane help running` for clusters and memory.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version and exit.")
def cli() -> None:
    """Sparse and kernel learning on data wider and larger than memory."""


for _command in (*data.COMMANDS, *gram.COMMANDS, *fit.COMMANDS, *runs.COMMANDS, *config.COMMANDS):
    cli.add_command(_command)


def _report_failure(error: BaseException, words: Sequence[str]) -> int:
    if "--debug" in words and exit_code(error) is not Exit.INTERRUPTED:
        traceback.print_exception(error)
    command = next((word for word in words if not word.startswith("-")), "")
    return int(show_error(error, "--json" in words, command))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. ``arguments``: the words after ``gramplane``; by default those of the process's
    command line.
    """
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
