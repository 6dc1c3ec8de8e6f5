"""Commands for set-up: config, warmup, completion, demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..console import COMPLETE, Result, align_rows
from ..exits import MEANING
from .actions import require_path
from .options import (
    CLUSTER_OPTIONS,
    ComputeOptions,
    Frame,
    Url,
    cluster_options,
    command,
    complete_method,
    method_config,
    set_option,
    split_settings,
)

if TYPE_CHECKING:
    from ...pipeline.records.config import MethodConfig


@command("show", short_help="Show parameters as they would be used.")
@click.argument("target", shell_complete=complete_method)
@set_option
@click.option("--resolved", is_flag=True, help="As plain YAML with defaults filled in.")
@click.option("--allow-code", is_flag=True, help="Accept a factory: cluster named in the file.")
@cluster_options
def show(frame: Frame, target: str, settings: tuple[str, ...], resolved: bool, allow_code: bool, compute: ComputeOptions) -> Result:
    """Show the parameters of TARGET, a method or a workflow file, as a run would use them.

    For a workflow file, variables are expanded. Environment and options override the file's cluster and memory.
    """
    from ...storage.places import check_place

    if Path(target).suffix in (".yaml", ".yml"):
        target = check_place(target, "file", "TARGET")
        if settings:
            raise click.UsageError("--set does not change a workflow file; write the parameters into the file")
        shown = _workflow_parameters(require_path(target, "workflow file"), resolved, allow_code, compute)
    else:
        config = method_config(target, split_settings(settings))
        shown = config.model_dump(mode="json", exclude_unset=not resolved)
        if not resolved:
            return Result(fields={"target": target, "config": shown}, text=explained_text(config))
    return Result(fields={"target": target, "config": shown}, text=yaml_text(shown))


def explained_text(config: MethodConfig) -> str:
    """Return all parameters as YAML with their meaning; the parameters that the user set come first."""
    values, given = config.model_dump(mode="json"), config.model_fields_set
    lines = {name: yaml_text({name: value}) for name, value in values.items()}
    width = min(max(map(len, lines.values())), 40)
    fields = sorted(type(config).model_fields.items(), key=lambda item: item[0] not in given)
    return "\n".join(f"{lines[name]:<{width}}  # {field.description}" for name, field in fields)


def yaml_text(value: object) -> str:
    """Return plain data as YAML, in the given order."""
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip()


def _workflow_parameters(path: str, resolved: bool, allow_code: bool, compute: ComputeOptions) -> dict[str, Any]:
    from ..runner import merge_compute, resolved_params
    from ..schema import read_workflow

    read = read_workflow(path, allow_code)
    shown = read.spec.model_dump(mode="json", by_alias=True, exclude_unset=not resolved)
    said = {key: value for key, value in vars(merge_compute(read, compute)).items() if value not in (None, False) and key != "tls"}
    shown |= said
    if resolved:
        for step, entry in zip(read.spec.steps, shown["steps"], strict=True):
            entry["with"].update(resolved_params(read, step))
    return shown


@command("schema", short_help="Show a JSON schema.")
@click.argument("target", shell_complete=complete_method)
def schema(frame: Frame, target: str) -> Result:
    """Show the JSON schema of TARGET: a method, "workflow" (the YAML file) or "result" (the last line of --json)."""
    from ...pipeline import METHODS
    from ..checking import choose
    from ..schema import ResultLine, WorkflowSpec

    models = {"workflow": WorkflowSpec, "result": ResultLine}
    choose(target, [*METHODS, *models], "schema")
    model = models[target] if target in models else METHODS[target].config
    fields = model.model_json_schema()
    return Result(fields={"target": target, "schema": fields}, text=json.dumps(fields, indent=2))


@command("warmup", short_help="Compile the kernels before the first fit.")
def warmup(frame: Frame) -> Result:
    """Compile the numerical kernels into numba's cache, so that the first fit does not wait for it."""
    from ...pipeline.runs.warmup import run_cases

    with frame.progress() as emit:
        seconds = run_cases(emit)
    return Result(fields={"seconds": seconds}, text=align_rows([(name, f"{value:.1f} s") for name, value in seconds.items()]))


@command("completion", short_help="Write what completes commands in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(frame: Frame, shell: str) -> Result:
    """Write the script that completes commands, options, methods and parameters in SHELL.

    bash: eval "$(gramplane completion bash)" in ~/.bashrc. zsh: eval "$(gramplane completion zsh)" in ~/.zshrc, after compinit. fish:
    gramplane completion fish > ~/.config/fish/completions/gramplane.fish, once.
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root()
    found: Any = get_completion_class(shell)
    script = found(root.command, {}, "gramplane", COMPLETE).source()
    return Result(fields={"shell": shell, "script": script}, text=script.rstrip())


@command("help", short_help="Explain exit codes, or the options of clusters.")
@click.argument("topic", type=click.Choice(["exit-codes", "running"]))
def explain(frame: Frame, topic: str) -> Result:
    """Explain what commands share: exit-codes, or running (cluster, memory and TLS)."""
    context = click.get_current_context()
    formatter = context.make_formatter()
    if topic == "exit-codes":
        rows = [(str(int(code)), text) for code, text in MEANING.items()]
        formatter.write("Results go to stdout, progress and messages to stderr.\n")
    else:
        options = [option for option in demo.params if isinstance(option, click.Option) and option.name in CLUSTER_OPTIONS]
        rows = [
            (record[0], f"{record[1]} Environment: {option.envvar or 'none'}.")
            for option in options
            if (record := option.get_help_record(context))
        ]
        formatter.write("Options of every command that computes. Results do not depend on them.\n")
    with formatter.section("Exit codes" if topic == "exit-codes" else "Cluster and memory"):
        formatter.write_dl(rows)
    return Result(fields={"topic": topic, "rows": dict(rows)}, text=formatter.getvalue().rstrip())


@command("demo", short_help="Run a ten-second example and write its report.")
@click.option("--out", type=Url("folder"), default="gramplane-demo", show_default=True, metavar="DIR", help="Folder to write.")
@cluster_options
def demo(frame: Frame, out: str, compute: ComputeOptions) -> Result:
    """Classify handwritten 3s and 8s by pairs of pixels, on a small Dask cluster, and write a report.

    The data come with scikit-learn. The cluster is local:2 unless --cluster names another one. You may edit the workflow file in DIR; the
    next demo runs it unchanged.
    """
    from ..demo import run_demo

    with frame.progress() as emit:
        result = run_demo(Path(out), compute.over(cluster="local:2"), emit)
    lines = [("test accuracy", f"{100 * result['accuracy']:.1f} %"), ("selected", f"{result['n_selected']} of {result['candidates']:,}")]
    return Result(fields=result, text=align_rows([*lines, ("seconds", result["seconds"]), ("report", result["report"])]))


_CONFIG = click.Group("config", commands=[show, schema], help="Show parameters and their schema.")
COMMANDS = (_CONFIG, warmup, completion, demo, explain)
