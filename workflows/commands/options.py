"""Common options of commands, and the frame that runs every command."""

from __future__ import annotations

import csv
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from ...pipeline.records.compute import ComputeOptions
from ...pipeline.registry import METHODS
from ..checking import ConfigError, Locator, by_name, choose, validate_values
from ..console import Carried, Result, show_result

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ...cluster import TLSFiles
    from ...pipeline.records.config import MethodConfig
    from ..console import Emit


@dataclass(frozen=True)
class Frame:
    """Output settings of a command: whether progress is shown, and whether other output is JSON."""

    quiet: bool
    as_json: bool = False

    def progress(self) -> AbstractContextManager[Emit]:
        """Return a context manager that yields the sink of progress events."""
        from ..console import show_progress

        return show_progress(self.quiet, self.as_json)


class Command(click.Command):
    """A command whose help shows the cluster options in one line."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, with the cluster options separate."""
        self.write_options("Options", [param for param in self.get_params(ctx) if isinstance(param, click.Option)], ctx, formatter)

    @staticmethod
    def write_options(title: str, options: Sequence[click.Option], ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section of options."""
        folded = CLUSTER_OPTIONS if {option.name for option in options} >= CLUSTER_OPTIONS else set()
        rows = [row for option in options if option.name not in folded and (row := option.get_help_record(ctx))]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
        if folded:
            formatter.write("\nCluster and memory: see `gramplane help running`\n")


def command(name: str, **settings: Any) -> Callable[[Callable[..., Result]], click.Command]:
    """Convert ``function(frame, **options) -> Result`` to a command with ``--json``, ``--quiet`` and ``--debug``.

    The result is written as text, or as one JSON object in the last line on stdout.
    """

    def register(function: Callable[..., Result]) -> click.Command:
        @click.option(
            "--json", "as_json", is_flag=True, help="End stdout with one JSON object of at most 4 KiB; progress in a pipe is JSON lines."
        )
        @click.option("--quiet", is_flag=True, help="Show no progress.")
        @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
        @click.pass_context
        @functools.wraps(function)
        def run(ctx: click.Context, /, as_json: bool, quiet: bool, debug: bool, **options: Any) -> int:
            _refuse_no_text(ctx)
            try:
                result = function(Frame(quiet, as_json), **options)
            except (BrokenPipeError, EOFError) as error:
                raise Carried from error
            show_result(result, name if ctx.command.name in METHODS else ctx.command_path.partition(" ")[2], as_json)
            return int(result.code)

        made = click.command(name, cls=Command, **settings)(run)
        made.params.sort(key=lambda option: option.name in ("as_json", "quiet", "debug"))
        return made

    return register


def _refuse_no_text(ctx: click.Context) -> None:
    """Check that text arguments are not empty (an empty path would mean the current folder) and contain no NUL character."""
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        for text in value if isinstance(value, tuple) else (value,):
            if text == "" or (isinstance(text, str) and "\0" in text):
                why = "is empty" if text == "" else f"{text!r} has a NUL character"
                raise click.UsageError(f"{param.opts[0] if isinstance(param, click.Option) else param.human_readable_name}: {why}")


class Url(click.ParamType):
    """A path or URL, for the use ``use`` (a key of `gramplane.storage.places.USES`); ``file://`` becomes a path."""

    name = "path or URL"

    def __init__(self, use: str) -> None:
        self.use = use

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path or URL, after checking that it suits this use."""
        from ...storage.places import check_place

        what = "url" if param is None else param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
        return check_place(value, self.use, what)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return matching runs or stores with their state; otherwise the shell completes the path."""
        folder, _, begin = incomplete.rpartition("/")
        marks = _MARKS.get(self.use, {})
        found = []
        with suppress(OSError):
            for entry in sorted(os.scandir(folder or "."), key=lambda entry: entry.name) if marks else ():
                state = next((state for file, state in marks.items() if os.path.exists(os.path.join(entry.path, file))), None)
                if state and entry.name.startswith(begin):
                    found.append(CompletionItem(os.path.join(folder, entry.name), help=state))
        return found or [CompletionItem(incomplete, type="dir" if self.use in _FOLDERS else "file")]


_RUNS, _STORES = {"summary.json": "finished run", "config.json": "unfinished run"}, {"current.json": "store", "manifest.json": "store"}
_MARKS: Mapping[str, Mapping[str, str]] = {"run": _RUNS, "store": _STORES, "anything": {**_RUNS, **_STORES}}
"""Files that identify the contents of a folder, most specific first."""
_FOLDERS = frozenset({"store", "new-store", "run", "folder", "anything", "left-overs"})  # uses of what lies in a folder


class ColumnNames(click.ParamType):
    """Names of columns separated by commas, as in a line of CSV."""

    name = "columns"

    def convert(self, value: str | list[str], param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        if isinstance(value, list):
            return value
        names = next(csv.reader([value], skipinitialspace=True), [])
        if value and not all(names):
            self.fail(f"{value!r} has an empty name", param, ctx)
        return names


run_option = click.option("--run", type=Url("run"), required=True, metavar="RUN", help="Run directory; an unfinished run in it is resumed.")
file_option = functools.partial(click.option, type=Url("file"), metavar="FILE")
task_option = click.option("--task", type=click.Choice(["classification", "regression"]), help="What the target must be.")
_CLUSTER_HELP = "sync, local:N, local:NxT, tcp://..., tls://..., scheduler-file:PATH, factory:module:callable. [default: sync]"
_DRIVER_HELP = "Memory limit of the driver. [default: half of the computer's]"
_STALL_HELP = "Abort if no task finishes within SECONDS; must exceed the longest task. [default: 300]"
_CLUSTER = (
    click.option("--cluster", envvar="GRAMPLANE_CLUSTER", metavar="WHERE", help=_CLUSTER_HELP),
    click.option("--worker-memory", envvar="GRAMPLANE_WORKER_MEMORY", metavar="SIZE", help="Memory limit of a worker, such as 4GiB."),
    click.option("--driver-memory", envvar="GRAMPLANE_DRIVER_MEMORY", metavar="SIZE", help=_DRIVER_HELP),
    click.option("--allow-plaintext", is_flag=True, help="Allow an unencrypted connection to a remote cluster."),
    file_option("--tls-ca", envvar="GRAMPLANE_TLS_CA", help="Certificate authority of the cluster (PEM)."),
    file_option("--tls-cert", envvar="GRAMPLANE_TLS_CERT", help="Certificate of this client (PEM)."),
    file_option("--tls-key", envvar="GRAMPLANE_TLS_KEY", help="Private key of this client (PEM)."),
    click.option("--stall-timeout", envvar="GRAMPLANE_STALL_TIMEOUT", type=float, metavar="SECONDS", help=_STALL_HELP),
    click.option("--dashboard", is_flag=True, help="Show the address of Dask's dashboard; needs bokeh."),
    file_option("--performance-report", help="Write Dask's report on all tasks to this HTML file; needs bokeh."),
)


CLUSTER_OPTIONS = {"cluster", "worker_memory", "driver_memory", "allow_plaintext", "tls_ca", "tls_cert", "tls_key", "stall_timeout"}
CLUSTER_OPTIONS |= {"dashboard", "performance_report"}


def cluster_options(function: Callable[..., Result]) -> Callable[..., Result]:
    """Add the cluster options; the function receives them as one `ComputeOptions` named ``compute``."""

    @functools.wraps(function)
    def gather(*args: Any, **options: Any) -> Result:
        tls = _tls_files(*(options.pop(f"tls_{name}") for name in ("ca", "cert", "key")))
        fields = {name: options.pop(name) for name in ("cluster", "worker_memory", "driver_memory", "allow_plaintext", "stall_timeout")}
        dashboard, report, compute = options.pop("dashboard"), options.pop("performance_report"), ComputeOptions(**fields, tls=tls)
        if not dashboard and report is None:
            return function(*args, compute=compute, **options)
        from ...cluster import watch_clusters

        with watch_clusters(dashboard, report):
            return function(*args, compute=compute, **options)

    for option in reversed(_CLUSTER):
        gather = option(gather)
    return gather


def _tls_files(ca: str | None, cert: str | None, key: str | None) -> TLSFiles | None:
    if ca and cert and key:
        from ...cluster import TLSFiles

        return TLSFiles(ca, cert, key)
    missing = [f"--tls-{name}" for name, file in (("ca", ca), ("cert", cert), ("key", key)) if not file]
    if len(missing) < 3:
        raise ConfigError(f"TLS needs --tls-ca, --tls-cert and --tls-key together; give {' and '.join(missing)}, too")
    return None


def complete_method(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the matching methods for shell completion."""
    return [CompletionItem(name, help=info.title) for name, info in METHODS.items() if name.startswith(incomplete)]


def complete_setting(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the matching parameters of the method for shell completion or, after ``loss=``, the matching named values."""
    # What stands before the option is not sorted into parameters yet, the option lacking its value.
    words = (ctx.info_name, *ctx.params.values(), *ctx.args)
    method = next((word for word in words if isinstance(word, str) and word in METHODS), None)
    fields = {} if method is None else METHODS[method].config.model_fields
    name, equals, value = incomplete.partition("=")
    if not equals:
        return [CompletionItem(f"{key}=", help=field.description) for key, field in fields.items() if key.startswith(incomplete)]
    before, comma, word = value.rpartition(",")
    option = next((other for other in ctx.command.params if f"--{name.replace('_', '-')}" in other.opts), None)
    items = [] if option is None else option.type.shell_complete(ctx, option, word)
    return [CompletionItem(f"{name}={before}{comma}{item.value}") for item in items]


class Bash(BashComplete):
    """Completion in bash. Bash splits ``loss=hinge`` into three words and replaces only the last one."""

    _head = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the current one, and the current one."""
        args, incomplete = super().get_completion_args()
        if incomplete == "=":
            args, incomplete = [*args, "="], ""
        if args[-1:] == ["="]:
            args = args[:-1]
            self._head = "" if args[-1].startswith("-") else f"{args.pop()}="
        return args, self._head + incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """Return a completion in the format that the script reads."""
        return f"{item.type},{item.value.removeprefix(self._head)}"


add_completion_class(Bash)


def complete_scoring(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the matching scores for shell completion; names before a comma are kept."""
    from ...pipeline.models.held_out_scores import scorer_names

    before, comma, word = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{name}") for name in scorer_names() if name.startswith(word)]


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A parameter by its name, as in scripts; may be repeated.",
    shell_complete=complete_setting,
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show tasks, bytes and memory of the plan; run nothing.")
excel_safe_option = click.option(
    "--excel-safe", is_flag=True, help="Quote texts of CSV files that a spreadsheet would compute (they begin with =, @, + or -)."
)
_seed = click.IntRange(min=0)
seed_option = click.option("--seed", type=_seed, metavar="N", default=0, show_default=True, help="Root of every random number.")


def split_settings(texts: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Return ``{key: value}`` of ``KEY=VALUE`` texts, with values read as YAML (``10``, ``1e-3``, ``true``, ``null``, ``[1, 2]``).

    Raises ConfigError if a text has no ``=`` or a key is repeated.
    """
    from ..yaml_source import read_scalar

    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError(f"{option} {text} has no value; write KEY=VALUE")
        if key in values:
            raise ConfigError(f"{option} {text}: {key} is given twice; give it once")
        values[key] = read_scalar(value, f"{option} {key}")
    return values


def method_config(method: str, values: Mapping[str, Any], place: Locator | None = None, d: int | None = None) -> MethodConfig:
    """Return the checked parameters of ``method`` on data with ``d`` features. Kernels may be written in any way that `with_kernels` reads.

    Raises ConfigError if the method or a key is unknown (with the closest name), or a value is not allowed.
    """
    from ..kernel_files import with_kernels

    choose(method, METHODS, "method")
    config, place = METHODS[method].config, place or by_name("--set ")
    try:
        return validate_values(config, with_kernels(values, d, place(("kernels",))) if "kernels" in config.model_fields else values, place)
    except ConfigError as error:
        error.remedy = f"gramplane fit {method} --help"
        raise


def explicit_values(config: MethodConfig) -> dict[str, Any]:
    """Return the parameters that were set explicitly, converted to their types."""
    return config.model_dump(exclude_unset=True)
