"""What a command says: results on stdout, everything else on stderr; with ``--json`` the last stdout line is one small object."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from .exits import Exit, exit_code

JSON_LIMIT = 4096
"""Bytes of the last line: what Airflow keeps of a task."""


_KEPT = ("status", "exit", "command", "kind", "truncated")


@dataclass(frozen=True)
class Result:
    """What a command found.

    Attributes
    ----------
    status
        ``done``, ``already-done``, ``planned``, ``damaged``, ...
    fields
        Small JSON values shown with ``--json``.
    text
        The same for a reader.
    code
        Exit code; a result can be bad news (a damaged store) without being an error of the command.
    """

    status: str = "done"
    fields: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    code: Exit = Exit.DONE


def plain(value: Any) -> Any:
    """Return ``value`` as strict JSON: NaN and infinities as ``null``, NumPy numbers and arrays as numbers and lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)


def _shorter(value: Any) -> Any:
    if isinstance(value, str) and len(value) > 200:
        return f"{value[: len(value) // 2]}..."
    if isinstance(value, list) and len(value) > 1:
        return value[: len(value) // 2]
    if isinstance(value, dict) and len(value) > 1:
        return dict(list(value.items())[: len(value) // 2])
    return None


def one_line(payload: Mapping[str, Any], limit: int = JSON_LIMIT) -> str:
    """Return ``payload`` as one JSON line of at most ``limit`` bytes: the largest values are cut in halves until it fits."""
    rest = plain(payload)
    while True:
        text = json.dumps(rest, allow_nan=False, separators=(", ", ": "))
        if len(text) < limit:
            return text
        largest = max((key for key in rest if key not in _KEPT), key=lambda key: len(json.dumps(rest[key])))
        cut = _shorter(rest.pop(largest))
        rest = {**rest, "truncated": True} if cut is None else {**rest, largest: cut, "truncated": True}


def show(result: Result, command: str, as_json: bool) -> None:
    """Write a result to stdout, for a reader or as the one JSON line."""
    if as_json:
        click.echo(one_line({"status": result.status, "exit": int(result.code), "command": command, **result.fields}))
    elif result.text:
        click.echo(result.text)


def describe(error: BaseException) -> str:
    """Return the one message of an error; a bug names its class and how to see the traceback."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    stop = _stopped(error)
    text = _path_trouble(error) or str(stop or error) or type(error).__name__
    if exit_code(error) is Exit.BUG:
        text = f"{type(error).__name__}: {text}\nthis is a bug of gramplane; --debug shows where"
    notes = getattr(error, "__notes__", [])
    return "\n".join([*(f"{note}:" for note in notes), text])


def _stopped(error: BaseException) -> BaseException | None:
    """Return the signal behind an error: one that arrives while a class is made comes wrapped in what Python makes of it."""
    seen: BaseException | None = error
    while seen is not None and not hasattr(seen, "signum"):
        seen = seen.__cause__
    return seen


def _path_trouble(error: BaseException) -> str | None:
    """Return what is wrong with a path, without the system's number."""
    if not isinstance(error, OSError) or error.filename is None or error.strerror is None:
        return None
    if isinstance(error, NotADirectoryError | FileExistsError):
        what = "this" if Path(str(error.filename)).is_file() else "a part of this path"
        return f"{error.filename}: {what} is a file, and a folder is needed"
    return f"{error.filename}: {error.strerror.lower()}"


def show_error(error: BaseException, as_json: bool, command: str) -> Exit:
    """Write an error: one message on stderr and, with ``--json``, the object on stdout; return the exit code."""
    code = exit_code(error)
    if type(error).__name__ == "NoArgsIsHelpError" and isinstance(error, click.UsageError):
        # A group without a command; older versions of click show the help themselves.
        click.echo(error.message, err=True)
        return code
    message = describe(error)
    click.echo(f"gramplane: {message}", err=True)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"try: {error.ctx.command_path} --help", err=True)
    if as_json:
        kind = type(error).__name__
        click.echo(one_line({"status": "error", "exit": int(code), "command": command, "kind": kind, "error": message}))
    return code


def table(rows: list[tuple[str, Any]]) -> str:
    """Return ``name  value`` lines with aligned values; rows whose value is None are left out."""
    shown = [(name, value) for name, value in rows if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{name:<{width}}  {figure(value)}" for name, value in shown)


def run_table(figures: Mapping[str, Any]) -> str:
    """Return the figures of a run, those of its summary on lines of their own."""
    summary = figures.get("summary") or {}
    own = [(key, value) for key, value in figures.items() if key != "summary" and key not in summary]
    return table([*own, *told(summary)])


def told(summary: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the rows of a summary for a reader, the reason of the stop in words."""
    from .report.glossary import stop_text

    return [(key, stop_text(value) if key == "stop" and isinstance(value, str) else value) for key, value in summary.items()]


def figure(value: Any) -> str:
    """Return a number with six significant digits, anything else as text."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={figure(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(figure(item) for item in value)
    return str(value)


def version_text() -> str:
    """Return the installed version of gramplane."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gramplane")
    except PackageNotFoundError:
        return "unknown (a checkout that is not installed)"
