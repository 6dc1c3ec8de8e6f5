"""Commands on runs and workflows: status, history, report, run."""

import json
import os
from typing import Any

import click

from ...storage.errors import plain_json
from ..checking import ConfigError, template_key
from ..console import Result, size_text, table_lines
from .actions import require_path, require_run
from .options import ComputeOptions, Frame, Url, cluster_options, command, dry_run_option, excel_safe_option


@command("status", short_help="Show what a run found, or how far it is.")
@click.argument("run", type=Url("run"))
def status(frame: Frame, run: str) -> Result:
    """Show what RUN found, or its progress. Needs no cluster and no data."""
    from ..report.collect import run_figures
    from ..texts import run_text

    figures = run_figures(require_run(run))
    return Result(str(figures["state"]), figures, "" if frame.as_json else run_text(run))


@command("history", short_help="Show a table of the rounds of a run.")
@click.argument("run", type=Url("run"))
@click.option("--lines", is_flag=True, help="One JSON line per round instead of a table.")
def history(frame: Frame, run: str, lines: bool) -> Result:
    """Show the figures of every round of RUN."""
    from ...storage import RunStore

    rows = RunStore.open(require_run(run)).history()
    text = "\n".join(json.dumps(plain_json(row)) for row in rows) if lines else columns_text(rows)
    return Result(fields={"run": run, "rounds": len(rows), "last": rows[-1] if rows else None}, text=text)


_SHOWN = ("iteration", "objective", "gap", "outer_gap", "n_selected", "train_accuracy", "test_accuracy", "train_r2", "test_r2")
_SHOWN += ("seconds", "tasks", "bytes")


def columns_text(rows: list[dict[str, Any]]) -> str:
    """Return the main figures of history rows as a text table."""
    names = [name for name in _SHOWN if any(row.get(name) is not None for row in rows)]
    return "\n".join(table_lines([{name: _figure(name, row.get(name)) for name in names} for row in rows], names, digits=6))


def _figure(name: str, value: float | None) -> float | str | None:
    if name == "bytes" and value:
        return size_text(value)
    return max(value, 0.0) if name.endswith("gap") and value is not None else value  # below zero by rounding


@command("report", short_help="Write an HTML report on one or more runs.")
@click.argument("runs", type=Url("run"), nargs=-1, required=True)
@click.option("--out", type=Url("folder"), metavar="DIR", help="Folder to write; default: the run's own folder, for one run.")
@click.option("--name", "names", multiple=True, metavar="NAME", help="Name of a run in the report, in the order of RUNS.")
@click.option("--title", metavar="TEXT", help="Title of the page; default: the run's name.")
@excel_safe_option
def report(frame: Frame, runs: tuple[str, ...], out: str | None, names: tuple[str, ...], title: str | None, excel_safe: bool) -> Result:
    """Write one self-contained HTML page on one run, or on several side by side, and the same numbers as CSV."""
    from ..report import write_report

    for run in runs:
        require_run(run)
    if out is None and len(runs) > 1:
        raise click.UsageError("a report of several runs needs a folder; name the folder with --out DIR")
    if names and len(names) != len(runs):
        raise click.UsageError(f"{len(names)} names for {len(runs)} runs; give one --name for each run, in the order of the runs")
    with frame.progress() as emit:
        told = {"excel_safe": excel_safe, "title": title or "", "warn": lambda message: emit({"event": "warning", "message": message})}
        written = write_report(list(runs), out or next(iter(runs)), names=list(names) or None, **told)
    return Result(fields={"report": str(written.page), "files": [str(file) for file in written.tables]}, text=str(written.page))


def _template_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--template {text} has no value; write NAME=VALUE")
    return template_key(name), value


@command("run", short_help="Run the steps of a workflow file.")
@click.argument("workflow", type=Url("file"))
@click.option("--run-id", metavar="ID", help="Name of this run of the workflow; default: from its configuration and sources.")
@click.option("--check", is_flag=True, help="Check the file and show its steps; run nothing.")
@click.option("--step", metavar="NAME", help="Run this step alone, as a scheduler does.")
@click.option("--template", "templates", multiple=True, metavar="NAME=VALUE", help="Value of {{ NAME }} in the file; may be repeated.")
@click.option("--allow-code", is_flag=True, help="Accept a factory: cluster named in the file, which runs its code.")
@cluster_options
@dry_run_option
def run(
    frame: Frame,
    workflow: str,
    run_id: str | None,
    check: bool,
    step: str | None,
    templates: tuple[str, ...],
    allow_code: bool,
    compute: ComputeOptions,
    dry_run: bool,
) -> Result:
    """Run the steps of WORKFLOW (a YAML file) that are not done yet, each after the steps that it needs."""
    from ..runner import run_workflow
    from ..schema import read_workflow
    from ..texts import workflow_text

    values = {**os.environ, **dict(map(_template_value, templates))}
    read = read_workflow(require_path(workflow, "workflow file"), allow_code, values)
    with frame.progress() as emit:
        outcome = run_workflow(read, run_id=run_id, only=step, check=check, dry_run=dry_run, where=compute, sink=emit)
    fields = {"workflow": read.spec.name, "run_id": outcome.run_id, "folder": str(outcome.folder), "steps": outcome.steps}
    return Result(outcome.status, {**fields, **outcome.last}, "" if frame.as_json else workflow_text(read, outcome))


COMMANDS = (status, history, report, run)
