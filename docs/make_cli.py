"""The pages of ``cli``, one for each group of commands in ``gramplane --help``, from the command line itself."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import cast

import click

from gramplane.workflows.cli import GROUPS, cli
from gramplane.workflows.commands.methods import MethodGroup
from gramplane.workflows.commands.options import CLUSTER_OPTIONS
from gramplane.workflows.exits import EXIT_CODES, MEANING

FOLDER = Path(__file__).with_name("cli")
FIT = cast(MethodGroup, cli.commands["fit"]).template  # has the options that commands share
COMMON = ("as_json", "quiet", "debug")
HEAD = """# Command line

Results go to stdout, progress and messages to stderr. With `--json` the last line on stdout is one JSON object of at most 4 KiB (schema:
`gramplane config schema result`), and progress in a pipe is JSON lines.

`gramplane fit fgm --help` shows the parameters of a method; the [API](../api/estimators.md) explains them. `gramplane config schema fgm`
and `gramplane config schema workflow` print JSON schemas.

"""


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with its words, in the order of its help."""
    command = command.template if isinstance(command, MethodGroup) else command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from leaves(command.commands[name], (*path, name))
    else:
        yield path, command


def _prose(text: str) -> str:
    """Set options as code: two hyphens would become a dash."""
    return re.sub(r"(?<![\w`-])--[a-z][a-z-]*", r"`\g<0>`", text)


def _option_rows(options: list[click.Option]) -> list[str]:
    rows, escaped = ["| option | meaning |", "|---|---|"], "\\|"
    for option in options:
        words = "`, `".join(option.opts)
        value = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
        default = f" [default: {option.default}]" if option.show_default and not option.is_flag else ""
        variable = f" Environment: `{option.envvar}`." if option.envvar else ""
        needed = " Required." if option.required else ""
        cells = (f"`{words}{value}`", f"{_prose(option.help or '')}{default}{variable}{needed}")
        rows.append(f"| {' | '.join(cell.replace('|', escaped) for cell in cells)} |")
    return rows


def summary(command: click.Command) -> str:
    """Return what a command does: the first paragraph of its help."""
    return _prose(" ".join((command.help or "").split("\n\n")[0].split()))


def _index() -> list[str]:
    lines = [HEAD]
    for title, names in GROUPS.items():
        rows = (
            f"| [`{' '.join(path)}`]({title.lower()}.md#gramplane-{'-'.join(path)}) | {summary(command)} |"
            for name in names
            for path, command in leaves(cli.commands[name], (name,))
        )
        lines += [f"## {title}", "", "| command | what it does |", "|---|---|", *rows, ""]
    return [*lines, *_option_section("Common options", COMMON), "```{toctree}", ":hidden:", "", *map(str.lower, GROUPS), "```"]


def _section(path: tuple[str, ...], command: click.Command) -> list[str]:
    words = [param.make_metavar(click.Context(command)) for param in command.params if isinstance(param, click.Argument)]
    words += ["METHOD", "[OPTIONS]"] if path[0] in ("fit", "tune") else []
    options = [
        param for param in command.get_params(click.Context(command)) if isinstance(param, click.Option) and "--help" not in param.opts
    ]
    names = {option.name for option in options}
    # A command that has some options of a group alone lists them as its own.
    places = {"cluster options": ("model.md", CLUSTER_OPTIONS), "common options": ("index.md", COMMON)}
    shared = {name: place for name, (place, group) in places.items() if names.issuperset(group)}
    own = [option for option in options if not any(option.name in places[name][1] for name in shared)]
    text = summary(command)
    more = [_prose(" ".join(part.split())) for part in (command.help or "").split("\n\n")[1:]]
    lines = [f"## gramplane {' '.join(path)}", "", f"`gramplane {' '.join((*path, *words))}`", "", text, ""]
    lines += [line for part in more for line in (part, "")]
    lines += [*_option_rows(own), ""] if own else []
    links = " and ".join(f"[{name}]({place}#{name.replace(' ', '-')})" for name, place in shared.items())
    return [*lines, f"And the {links}.", ""]


def _exit_codes() -> list[str]:
    """Return the section of exit codes, with the exceptions that they are in Python."""
    lines = ["## Exit codes", "", "[What to do](../guides/failures.md#what-happened-what-to-do) has the cure for each message.", ""]
    lines += ["| code | meaning | exceptions in Python |", "|---|---|---|"]
    for code, text in MEANING.items():
        names = [name.partition(":")[2] for name, other in EXIT_CODES.items() if other == code and not name.startswith("click.")]
        lines.append(f"| {int(code)} | {text} | {', '.join(f'`{name}`' for name in names)} |")
    return [*lines, ""]


def _option_section(title: str, names: Container[str]) -> list[str]:
    options = [param for param in FIT.params if isinstance(param, click.Option) and param.name in names]
    return [f"## {title}", "", *_option_rows(options), ""]


def pages() -> dict[Path, str]:
    """Return every page by its path."""
    parts = {"index": _index()}
    for title, names in GROUPS.items():
        found = [leaf for name in names for leaf in leaves(cli.commands[name], (name,))]
        parts[title.lower()] = [f"# {title}: {', '.join(names)}", "", *(line for leaf in found for line in _section(*leaf))]
    parts["model"] += _option_section("Cluster options", CLUSTER_OPTIONS)
    parts["runs"] += _exit_codes()
    return {FOLDER / f"{name}.md": "\n".join(lines).rstrip() + "\n" for name, lines in parts.items()}
