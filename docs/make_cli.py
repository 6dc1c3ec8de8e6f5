"""The page ``cli.md``, from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from gramplane.workflows.cli import cli
from gramplane.workflows.commands.methods import MethodGroup
from gramplane.workflows.commands.options import CLUSTER_OPTIONS
from gramplane.workflows.exits import EXIT_CODES, MEANING

PAGE = Path(__file__).with_name("cli.md")
COMMON = ("as_json", "quiet", "debug")
HEAD = """# Command line

Results go to stdout, progress and messages to stderr, as lines for people; with `--json` the last line on stdout is one JSON object of at
most 4 KiB (schema: `gramplane config schema result`), and progress in a pipe is JSON lines. The options of a method:
`gramplane fit fgm --help`. Parameters as JSON schemas: `gramplane config schema fgm`, `gramplane config schema workflow`.
"""


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with its words, in the order of ``gramplane --help``."""
    for name in group.list_commands(click.Context(group)):
        command = group.commands[name]
        command = command.template if isinstance(command, MethodGroup) else command
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


def _option_rows(options: list[click.Option]) -> list[str]:
    rows, escaped = ["| option | meaning |", "|---|---|"], "\\|"
    for option in options:
        words = "`, `".join(option.opts)
        value = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
        default = f" Default: {option.default}." if option.show_default and not option.is_flag else ""
        variable = f" Environment: `{option.envvar}`." if option.envvar else ""
        needed = " Required." if option.required else ""
        cells = (f"`{words}{value}`", f"{option.help}{default}{variable}{needed}")
        rows.append(f"| {' | '.join(cell.replace('|', escaped) for cell in cells)} |")
    return rows


def summary(command: click.Command) -> str:
    """Return what a command does: the first paragraph of its help."""
    return " ".join((command.help or "").split("\n\n")[0].split())


def _index(found: list[tuple[tuple[str, ...], click.Command]]) -> list[str]:
    rows = (f"| [`{' '.join(path)}`](#gramplane-{'-'.join(path)}) | {summary(command)} |" for path, command in found)
    return ["| command | what it does |", "|---|---|", *rows, ""]


def _section(path: tuple[str, ...], command: click.Command) -> list[str]:
    words = [param.make_metavar(click.Context(command)) for param in command.params if isinstance(param, click.Argument)]
    words += ["METHOD", "[OPTIONS]"] if path[0] in ("fit", "tune") else []
    options = [
        param for param in command.get_params(click.Context(command)) if isinstance(param, click.Option) and "--help" not in param.opts
    ]
    names = {option.name for option in options}
    # A command that has some options of a group alone lists them as its own.
    shared = {name: group for name, group in (("cluster options", CLUSTER_OPTIONS), ("common options", COMMON)) if names.issuperset(group)}
    own = [option for option in options if not any(option.name in group for group in shared.values())]
    text = summary(command)
    more = [" ".join(part.split()) for part in (command.help or "").split("\n\n")[1:]]
    lines = [f"## gramplane {' '.join(path)}", "", f"`gramplane {' '.join((*path, *words))}`", "", text, ""]
    lines += [line for part in more for line in (part, "")]
    lines += [*_option_rows(own), ""] if own else []
    links = " and ".join(f"[{name}](#{name.replace(' ', '-')})" for name in shared)
    return [*lines, f"And the {links}.", ""]


def _exit_codes() -> list[str]:
    """Return the section of exit codes, with the exceptions that they are in Python."""
    lines = ["## Exit codes", "", "[What to do](guides/failures.md#what-happened-what-to-do) has the cure for each message.", ""]
    lines += ["| code | meaning | exceptions in Python |", "|---|---|---|"]
    for code, text in MEANING.items():
        names = [name.partition(":")[2] for name, other in EXIT_CODES.items() if other == code and not name.startswith("click.")]
        lines.append(f"| {int(code)} | {text} | {', '.join(f'`{name}`' for name in names)} |")
    return [*lines, ""]


def page() -> str:
    """Return the page."""
    found = list(leaves(cli))
    lines = [
        HEAD,
        *_index(found),
        *_exit_codes(),
    ]
    for path, command in found:
        lines += _section(path, command)
    fit = next(command for path, command in found if path == ("fit",))
    for name, group in (("Cluster options", CLUSTER_OPTIONS), ("Common options", COMMON)):
        options = [param for param in fit.params if isinstance(param, click.Option) and param.name in group]
        lines += [f"## {name}", "", *_option_rows(options), ""]
    return "\n".join(lines).rstrip() + "\n"
