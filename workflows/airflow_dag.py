"""One Airflow DAG per workflow file: a task per step that runs a command, so Airflow needs no scientific package and holds no data.

A file in Airflow's ``dags`` folder needs two lines::

    from gramplane.workflows.airflow_dag import build_dag

    dag = build_dag(
        "/srv/jobs/fgm_select.yaml",
        schedule="@daily",
        start_date=datetime(2026, 11, 1),
        catchup=False,
    )

Importing this module and building a DAG load PyYAML and Airflow, but not Dask, NumPy or pydantic. The file is therefore checked by the
task that runs it; use ``gramplane run FILE --check`` to check it earlier.
"""

import re
import shlex
from pathlib import Path
from typing import Any

from ..storage.errors import Foreign
from .checking import TEMPLATE, ConfigError, template_key
from .exits import Exit
from .yaml_source import Document, read_yaml

_ESCAPE = r"""replace("'", "'\\''")"""


class _AnyVariable(dict[str, str]):
    """An environment in which every variable is set, because the Airflow scheduler does not know the variables of the workers."""

    def __contains__(self, name: object) -> bool:
        return True

    def get(self, name: str, default: object = "") -> object:
        return default


def _airflow_classes() -> tuple[Any, Any]:
    """Return ``DAG`` and ``BashOperator``, wherever this version of Airflow has them."""
    try:
        from airflow.providers.standard.operators.bash import BashOperator  # pyright: ignore[reportMissingImports]
        from airflow.sdk import DAG  # pyright: ignore[reportMissingImports]
    except ImportError:
        from airflow import DAG  # pyright: ignore[reportMissingImports]
        from airflow.operators.bash import BashOperator  # pyright: ignore[reportMissingImports]
    return DAG, BashOperator


def _read_steps(document: Document) -> dict[str, list[str]]:
    """Return ``{step: needs}`` in the order of the file."""
    data = document.data if isinstance(document.data, dict) else {}
    steps = data.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) and isinstance(step.get("id"), str) for step in steps):
        raise ConfigError(f"{document.place(('steps',))}: a workflow has a list of steps, each with an id")
    needs = {step["id"]: list(step.get("needs", [])) for step in steps}
    for index, step in enumerate(steps):
        missing = [need for need in needs[step["id"]] if need not in needs]
        if missing:
            raise ConfigError(f"{document.place(('steps', index, 'needs'))}: no step {missing[0]!r}")
    return needs


def step_words(workflow: Path, step: str, run_id: str | None = None, program: str = "gramplane") -> list[str]:
    """Return the command of one step as words; arguments as in `step_command`, of which ``program`` may be empty."""
    words = [word for word in (program, "run", str(workflow), "--step", step, "--json") if word]
    for name in dict.fromkeys(re.findall(TEMPLATE, workflow.read_text(encoding="utf-8"))):
        if "=" in name:
            raise ConfigError(f"{workflow}: template {template_key(name)} has an '='; give arguments without their names")
        words += ["--template", f"{name}={template_key(name)}"]
    return [*words, *(["--run-id", run_id] if run_id else [])]


def step_command(workflow: Path, step: str, run_id: str | None = None, program: str = "gramplane") -> str:
    """Return the shell command of one step.

    ``workflow``: the file. ``step``: id of the step. ``run_id``: passed as ``--run-id``; an Airflow template such as ``{{ ds }}`` makes one
    run per day. ``program``: the command, such as ``/opt/gramplane/bin/gramplane``.
    """
    words = map(_quoted, step_words(workflow, step, None, program))
    # Not quoted like the others: Airflow fills the template in before the shell sees it, within the double quotes.
    return " ".join([*words, *([f'--run-id "{run_id}"'] if run_id else [])])


def _quoted(word: str) -> str:
    """Quote a word for the shell. Airflow fills in its templates before the shell sees them, and escapes the quotes in their values."""
    parts = re.split(TEMPLATE, word)  # texts and expressions in turn
    return "".join(f"'{{{{ ({part}) | {_ESCAPE} }}}}'" if k % 2 else part and shlex.quote(part) for k, part in enumerate(parts))


def build_dag(
    workflow_yaml: str | Path,
    *,
    run_id: str | None = None,
    program: str = "gramplane",
    operator: Foreign = None,
    operator_kwargs: dict[str, Foreign] | None = None,
    task_args: dict[str, Any] | None = None,
    **dag_kwargs: Any,
) -> Any:
    """Return the DAG of a workflow file.

    Parameters
    ----------
    workflow_yaml
        The file; it must exist under the same path where the tasks run.
    run_id
        Template of the run's name, such as ``"{{ ds }}"``. By default, the name is derived from configuration and sources; if neither has
        changed, a DAG run has nothing to do.
    program
        The ``gramplane`` command. An empty text if the image of a container starts it.
    operator
        Class of the tasks, such as ``DockerOperator`` or ``KubernetesPodOperator``: one whose ``arguments`` (a list) or ``command`` (a
        text) may hold templates. By default ``BashOperator``.
    operator_kwargs
        Arguments of the operator, such as ``{"image": "registry/gramplane:1", "deferrable": True}``.
    task_args
        Arguments of every task, such as ``retries``.
    dag_kwargs
        Arguments of the DAG; ``dag_id`` is the workflow's name by default.

    Notes
    -----
    Exit code 99 (another process holds the step) marks the task as skipped. The last line of a task's output, one JSON object of at most
    4 KiB, becomes its XCom (not with Kubernetes). Templates in the file, such as ``{{ ds }}``, are filled in by Airflow.

    Raises
    ------
    ConfigError
        If the file is no workflow; the message gives ``file:line:column``. Also if the operator takes no command.
    """
    dag_class, bash = _airflow_classes()
    path = Path(workflow_yaml).resolve()
    document = read_yaml(path, _AnyVariable())
    steps, kind = _read_steps(document), operator or bash
    place = "bash_command" if operator is None else next((name for name in ("arguments", "command") if name in kind.template_fields), None)
    if place is None:
        raise ConfigError(f"operator={kind.__name__}: takes no command; give one that has 'arguments' or 'command'")
    command = step_words if place == "arguments" else step_command
    settings = {"skip_on_exit_code": int(Exit.HELD), **({"do_xcom_push": True, "append_env": True} if operator is None else {})}
    settings |= {**(operator_kwargs or {}), **(task_args or {})}
    with dag_class(**{"dag_id": str(document.data.get("name", path.stem)), **dag_kwargs}) as dag:
        tasks = {step: kind(task_id=step, **{place: command(path, step, run_id, program)}, **settings) for step in steps}
        for step, needs in steps.items():
            for need in needs:
                tasks[step].set_upstream(tasks[need])
    return dag
