"""Output of commands: results on stdout, everything else on stderr. With ``--json`` the last line on stdout is one small object."""

import errno
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..cluster.errors import bytes_text, split_remedy
from ..cluster.events import LINES, LineSink, ignore_event, progress_bar
from ..storage.errors import plain_json
from .exits import Exit, exit_code
from .signals import find_signal

Emit = Callable[[Mapping[str, Any]], None]
OUTPUT = "the standard output"
COMPLETE = "_GRAMPLANE_COMPLETE"  # variable by which a shell asks for completions, as click calls it
JSON_LIMIT = 4096  # bytes of the last line: what Airflow keeps of a task
_KEPT = ("status", "exit", "command", "kind", "truncated")


@dataclass(frozen=True)
class Result:
    """The result of a command.

    ``status``: ``done``, ``already-done``, ``planned``, ``damaged``, …. ``fields``: small JSON values for ``--json``. ``text``: the same
    values as text for users. A bad result (such as a damaged store) need not be an error of the command.
    """

    status: str = "done"
    fields: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    code: Exit = Exit.DONE


def _halve_value(value: object) -> object:
    if isinstance(value, str) and len(value) > 200:
        return f"{value[: len(value) // 2]}..."
    if isinstance(value, list) and len(value) > 1:
        return value[: len(value) // 2]
    if isinstance(value, dict) and len(value) > 1:
        sizes = {key: len(json.dumps(item)) for key, item in value.items()}
        largest = max(sizes, key=sizes.__getitem__)
        if 2 * sizes[largest] < sum(sizes.values()):
            return dict(list(value.items())[: len(value) // 2])
        # A long list beside a few numbers, such as the points of a curve beside a score: the numbers stay.
        cut = _halve_value(value[largest])
        return {key: cut if key == largest else item for key, item in value.items() if key != largest or cut is not None}
    return None


def one_line(payload: Mapping[str, Any], limit: int = JSON_LIMIT) -> str:
    """Return ``payload`` as one JSON line of at most ``limit`` bytes. The largest values are repeatedly halved until it fits."""
    fields = plain_json(payload)
    while True:
        text = json.dumps(fields, allow_nan=False, separators=(", ", ": "))
        if len(text) < limit:
            return text
        largest = max((key for key in fields if key not in _KEPT), key=lambda key: len(json.dumps(fields[key])))
        cut = _halve_value(fields.pop(largest))
        fields = {**fields, "truncated": True} if cut is None else {**fields, largest: cut, "truncated": True}


def show_result(result: Result, command: str, as_json: bool) -> None:
    """Write a result to stdout, as text or as one JSON line.

    Raises OutputClosed if the reader has closed the pipe; OSError if writing fails, with a path that names the output.
    """
    text = one_line({"status": result.status, "exit": int(result.code), "command": command, **result.fields}) if as_json else result.text
    if text:
        write_output(text)


class OutputClosed(Exception):
    """The reader of standard output has closed it."""

    def __init__(self) -> None:
        super().__init__("the program that read the standard output ended before all of it was written")


class Carried(Exception):
    """Carries an error (its ``__cause__``) through click, which would otherwise treat errors of some classes as an abort or a closed
    pipe.
    """


def settle_output() -> None:
    """Prevent further messages at exit about an output that cannot be written, because this error was reported already."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            getattr(stream, "wrapped", stream).flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def open_closed_streams() -> None:
    """Open closed descriptors 0, 1 and 2 on the null device.

    Otherwise a file opened later could get one of these numbers. Python creates no stream for a closed descriptor, so missing streams are
    created as well.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if number and getattr(sys, name) is None:  # who reads a closed input is told so
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def write_output(text: str) -> None:
    """Write text to stdout. Characters that the encoding of stdout lacks, for example from invalid file names, are escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding))
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        error.filename = error.filename or OUTPUT
        raise


def describe_error(error: BaseException) -> str:
    """Return the message of an error. If the error is a bug, the message names its class and how to show the traceback."""
    if isinstance(error, click.ClickException):
        return _misplaced_option(error) or error.format_message()
    stop = find_signal(error)
    text = _path_trouble(error) or str(stop or error) or type(error).__name__
    if exit_code(error) is Exit.BUG:
        text = f"{type(error).__name__}: {text}"
    return "\n".join([*(f"{note}:" for note in getattr(error, "__notes__", [])), text])


_HELP = {
    Exit.BUG: "this is a bug of gramplane: run again with --debug and report the traceback",
    Exit.CLUSTER_LOST: "run the same command again, it resumes at the last checkpoint",
    Exit.OUT_OF_SPACE: "free memory or disk, and run the same command again",
    Exit.DAMAGED: "`gramplane verify STORE` lists what is damaged",
    Exit.UNMET: "keep the last good model, and compare data and report with those of its run",
    Exit.HELD: "wait for the other process, or end it",
}
"""Remedies for errors whose message has none."""


def _misplaced_option(error: click.ClickException) -> str | None:
    """Return a message that names the commands that have the option this command lacks. It helps more than a list of similar option
    names.
    """
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return None
    flag, words = error.option_name, error.ctx.command_path.partition(" ")[2]
    commands = getattr(error.ctx.find_root().command, "commands", {})
    takers = [
        name for name, command in commands.items() if any(flag in param.opts for param in getattr(command, "template", command).params)
    ]
    return f"{words} has no option {flag}: it belongs to {', '.join(takers)}" if takers else None


def _path_trouble(error: BaseException) -> str | None:
    """Return the problem with a path, without the error number of the operating system. ``None`` for gramplane's own errors."""
    is_ours = type(error).__module__ != "builtins"
    if is_ours or not isinstance(error, OSError) or error.strerror is None:
        return None
    trouble = f"{error.strerror[:1].lower()}{error.strerror[1:]}"
    if error.filename is not None and isinstance(error, NotADirectoryError | FileExistsError):
        what = "this" if Path(str(error.filename)).is_file() else "a part of this path"
        trouble = f"{what} is a file, and a folder is needed"
    if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{trouble}: that of temporary files, {tempfile.gettempdir()} (TMPDIR), or of this folder, {Path.cwd()}"
    return trouble if error.filename is None else f"{error.filename}: {trouble}"


def show_error(error: BaseException, as_json: bool, command: str) -> Exit:
    """Write an error: one message on stderr and, with ``--json``, the object on stdout. Returns the exit code."""
    code = exit_code(error)
    if type(error).__name__ == "NoArgsIsHelpError" and isinstance(error, click.UsageError):
        # A group without a command; older versions of click show the help themselves.
        _write_error(error.message)
        return code
    message = describe_error(error)
    *where, last = message.split("\n") if getattr(error, "__notes__", []) else [message]
    what, remedy = split_remedy(last)
    remedy = remedy or getattr(error, "remedy", "")
    if not remedy and isinstance(error, click.UsageError) and error.ctx is not None:
        remedy = f"{error.ctx.command_path} --help"
    _write_error(what, "error", "red")
    for line in where:
        _write_error(f"  in {line.rstrip(':')}")
    if remedy or code in _HELP:
        _write_error(remedy or _HELP[code], "help", "cyan")
    if as_json and code is not Exit.PIPE_CLOSED:
        kind = type(error).__name__
        with suppress(OSError, OutputClosed):  # the message stands on stderr; a full stdout, say, must not hide it
            write_output(one_line({"status": "error", "exit": int(code), "command": command, "kind": kind, "error": message}))
    return code


def _write_error(text: str, prefix: str = "", colour: str = "") -> None:
    head = f"{click.style(f'{prefix}:', fg=colour, bold=True)} " if prefix else ""
    with suppress(OSError):  # where stderr is gone the exit code has to do
        click.echo(head + text, err=True, color=False if os.environ.get("NO_COLOR") else None)


def align_rows(rows: Sequence[tuple[str, Any]]) -> str:
    """Return ``name  value`` lines with aligned values; sizes and times are shown with units. Rows with value ``None`` are omitted."""
    shown = [(name.replace("_", " "), _with_unit(name, value)) for name, value in rows if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{name:<{width}}  {format_figure(value)}" for name, value in shown)


def _with_unit(name: str, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if "bytes" in name or name.endswith(("memory", "budget")):
        return size_text(value)
    return f"{value:.1f} s" if name == "seconds" else value


def table_lines(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None, digits: int = 3) -> list[str]:
    """Return rows as aligned lines below a header, numbers right-aligned. Columns without values are omitted."""
    names = list(columns or dict.fromkeys(key for row in rows for key in row))
    names = [name for name in names if any(row.get(name) not in (None, "") for row in rows)]
    columns_cells = [_column([row.get(name) for row in rows], digits) for name in names]
    cells = [list(line) for line in zip(*columns_cells, strict=True)]
    widths = [max(map(len, (name, *(line[k] for line in cells)))) for k, name in enumerate(names)]
    is_number = [all(not isinstance(row.get(name), str) or row[name].endswith((" %", "iB", " B")) for row in rows) for name in names]
    shown = [
        "  ".join(text.rjust(width) if right else text.ljust(width) for text, width, right in zip(line, widths, is_number, strict=True))
        for line in (names, *cells)
    ]
    return [f"  {line}".rstrip() for line in shown]


def _column(values: Sequence[object], digits: int) -> list[str]:
    """Return the cells of a column; fractions all have the same number of digits."""
    is_fraction = any(isinstance(value, float) and not value.is_integer() and math.isfinite(value) for value in values)
    pad = is_fraction and all(isinstance(value, float) and 1e-3 <= abs(value) < 10**digits for value in values)
    return [f"{value:#.{digits}g}".rstrip(".") if pad else format_figure(value, digits) for value in values]


def plan_result(plan: Mapping[str, Any]) -> Result:
    """Return the result of a dry run: the entries of the plan, and one line per memory item."""
    return Result("planned", {"plan": plan}, plan_text(plan))


def plan_text(plan: Mapping[str, Any]) -> str:
    """Return a plan as text: first whether the run fits in memory and how much data it reads, then the other entries, then the memory
    items, largest first.
    """
    fit = plan.get("first_fit") or plan
    figures = {key: value for key, value in {**plan, **fit}.items() if key != "first_fit"}
    held = [item for key, value in figures.items() if key.endswith("_holds") for item in value]
    rows = [(_LABELS.get(key, key), "nothing" if value == [] else value) for key, value in figures.items() if not key.endswith("_holds")]
    blocks = [f"{verdict(fit)}\nnothing was run", align_rows(rows)]
    if held:
        shown = [{"memory": size_text(item["bytes"]), "what": item["what"]} for item in sorted(held, key=lambda item: -item["bytes"])]
        blocks.append("\n".join(["held in memory:", *table_lines(shown)[1:]]))
    return "\n\n".join(blocks)


_LABELS = {"machines": "models", "machines_solved_on": "models_solved_on"}
_STEPS = {"passes_at_most": "pass", "passes": "pass", "rounds_at_most": "round", "iterations_at_most": "round", "epochs": "epoch"}


def verdict(plan: Mapping[str, Any]) -> str:
    """Return the first sentence of a plan, about memory and data read. The plan fits: a plan that does not fit has raised an error
    before.
    """
    needed, limit = plan.get("process_bytes") or plan.get("task_bytes"), plan.get("driver_memory") or plan.get("budget")
    is_here = plan.get("cluster", "sync") == "sync"
    needs = [f"{'this process' if is_here else 'the driver'} needs {size_text(needed)}"] if needed else []
    parts = [f"{text} of {size_text(limit)}" if limit else text for text in needs]
    if plan.get("task_bytes") and not is_here:
        parts.append(f"a task {size_text(plan['task_bytes'])} of its worker")
    read = next((key for key in ("bytes_read_per_pass", "bytes_read_per_epoch") if plan.get(key)), None)
    parts += [f"reads {size_text(plan[read])} per {read.rpartition('_')[2]}"] if read else []
    steps = next((key for key in _STEPS if plan.get(key)), None)
    parts += [f"at most {count_text(plan[steps], _STEPS[steps])}"] if steps else []
    return f"{'fits: ' if needed and limit and needed <= limit else 'plan: '}{'; '.join(parts)}"


def size_text(nbytes: float) -> str:
    """Return a number of bytes with a unit, such as ``26.6 MiB``."""
    return bytes_text(nbytes, digits=3)


def count_text(count: float, word: str) -> str:
    """Return ``1 pass``, ``3 rounds``."""
    return f"{count:,.0f} {word}{'' if count == 1 else 'es' if word.endswith('s') else 's'}"


def format_figure(value: object, digits: int = 6) -> str:
    """Return a number with ``digits`` significant digits, ``None`` as an empty text, and other values as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        is_whole = abs(value) < 1e15 and (value.is_integer() or abs(value) >= 10**digits)
        return f"{value:,.0f}" if is_whole else f"{value:.{digits}g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={format_figure(item, digits)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(format_figure(item, digits) for item in value)
    return "" if value is None else str(value)


def version_text() -> str:
    """Return the installed version of gramplane."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gramplane")
    except PackageNotFoundError:
        return "unknown (a checkout that is not installed)"


def json_line(event: Mapping[str, Any]) -> None:
    """Write an event that belongs in a log as one JSON line. A closed output does not stop the run."""
    if event.get("event") in LINES:
        with suppress(OSError):
            click.echo(one_line(event), err=True)


@contextmanager
def show_progress(quiet: bool = False, as_json: bool = False) -> Iterator[Emit]:
    """Yield the sink of a run's events. ``quiet``: drop all of them. ``as_json``: write JSON lines to files and pipes."""
    if quiet:
        yield ignore_event
    elif sys.stderr.isatty():
        with progress_bar() as emit:
            yield emit
    elif as_json:
        yield json_line
    else:
        with closing(LineSink(partial(click.echo, err=True))) as sink:
            yield sink
