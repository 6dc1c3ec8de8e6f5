"""The DAG of a workflow file: its shape with a stand-in for Airflow, and once with Airflow itself."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.support.environments import own_environment
from tests.support.places import ROOT

WORKFLOWS = ROOT / "workflows"
AIRFLOW = ("apache-airflow==3.3.2", "apache-airflow-providers-docker", "apache-airflow-providers-cncf-kubernetes")

_STAND_IN = """
import sys, types

class DAG:
    open = None
    def __init__(self, dag_id, **more): self.dag_id, self.more, self.tasks = dag_id, more, {}
    def __enter__(self): DAG.open = self; return self
    def __exit__(self, *error): DAG.open = None

class BashOperator:
    def __init__(self, task_id, **more):
        self.task_id, self.more, self.upstream = task_id, more, []
        DAG.open.tasks[task_id] = self
    def set_upstream(self, other): self.upstream.append(other.task_id)

class InDocker(BashOperator): template_fields = ("image", "command")
class InPod(BashOperator): template_fields = ("cmds", "arguments")
class Python(BashOperator): template_fields = ("op_args",)

def module(name, **names):
    made = types.ModuleType(name); made.__dict__.update(names); made.__path__ = []; sys.modules[name] = made

module("airflow"); module("airflow.sdk", DAG=DAG)
module("airflow.providers"); module("airflow.providers.standard"); module("airflow.providers.standard.operators")
module("airflow.providers.standard.operators.bash", BashOperator=BashOperator)
"""


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Modules that look like Airflow's, taken out again afterwards."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "airflow"]:
        monkeypatch.delitem(sys.modules, name)
    made = types.ModuleType("stand_in")
    before = set(sys.modules)
    exec(_STAND_IN, made.__dict__)
    for name in set(sys.modules) - before:
        found = sys.modules.pop(name)
        monkeypatch.setitem(sys.modules, name, found)
    return made


def test_one_task_per_step_with_its_needs(airflow: types.ModuleType):
    from gramplane.workflows.airflow_dag import build_dag

    dag = build_dag(WORKFLOWS / "fgm_select.yaml", schedule="@daily")
    assert dag.dag_id == "fgm_select"
    assert dag.more == {"schedule": "@daily"}
    assert {name: task.upstream for name, task in dag.tasks.items()} == {
        "data": [], "test": ["data"], "select": ["data"], "score": ["select", "test"], "steady": ["select"],
        "report": ["select", "score", "steady"], "good": ["score", "report"],
    }  # fmt: skip


def test_a_task_is_the_command_line_and_skips_on_99(airflow: types.ModuleType):
    from gramplane.workflows.airflow_dag import build_dag

    dag = build_dag(WORKFLOWS / "smoke.yaml", run_id="{{ ds }}", program="/opt/my env/gramplane", task_args={"retries": 2}, dag_id="mine")
    task = dag.tasks["select"]
    assert dag.dag_id == "mine"
    assert (
        task.more["bash_command"]
        == f"'/opt/my env/gramplane' run {WORKFLOWS / 'smoke.yaml'} --step select --json --run-id \"{{{{ ds }}}}\""
    )
    assert (task.more["skip_on_exit_code"], task.more["do_xcom_push"], task.more["append_env"], task.more["retries"]) == (99, True, True, 2)


@pytest.fixture
def dated(tmp_path: Path) -> Path:
    """A workflow whose source is of the day."""
    text = (WORKFLOWS / "smoke.yaml").read_text()
    (tmp_path / "dated.yaml").write_text(text.replace("source: smoke.svm", "source: 'smoke-{{ ds }}-{{ params.site }}.svm'"))
    return tmp_path / "dated.yaml"


def test_airflow_fills_in_the_templates_of_the_file(airflow: types.ModuleType, dated: Path):
    """The shell gets every value as one word, whatever is in it."""
    from jinja2 import Environment

    from gramplane.workflows.airflow_dag import build_dag

    command = build_dag(dated).tasks["data"].more["bash_command"]
    day, site = "2026-11-21", 'it\'s "$HOME" `id`'
    told = Environment().from_string(command.replace("gramplane", "printf '%s\\n'", 1)).render(ds=day, params={"site": site})
    words = subprocess.run(told, shell=True, capture_output=True, text=True, timeout=30).stdout.splitlines()
    templates = ["--template", f"ds={day}", "--template", f"params.site={site}"]
    assert words == ["run", str(dated), "--step", "data", "--json", *templates]


def test_tasks_run_in_containers_where_an_operator_is_given(airflow: types.ModuleType, dated: Path):
    from gramplane.workflows.airflow_dag import build_dag

    kwargs = {"operator_kwargs": {"image": "g:1", "deferrable": True}, "task_args": {"retries": 2}, "run_id": "{{ ds }}", "program": ""}
    task = build_dag(dated, operator=airflow.InPod, **kwargs).tasks["score"]
    words = ["run", str(dated), "--step", "score", "--json", "--template", "ds={{ ds }}", "--template", "params.site={{ params.site }}"]
    assert task.more == {
        "arguments": [*words, "--run-id", "{{ ds }}"], "image": "g:1", "deferrable": True, "retries": 2, "skip_on_exit_code": 99,
    }  # fmt: skip
    assert task.upstream == ["select"]
    task = build_dag(WORKFLOWS / "smoke.yaml", operator=airflow.InDocker, operator_kwargs={"image": "g:1"}).tasks["score"]
    assert task.more["command"] == f"gramplane run {WORKFLOWS / 'smoke.yaml'} --step score --json"
    with pytest.raises(ValueError, match="operator=Python: takes no command; give one that has 'arguments' or 'command'"):
        build_dag(dated, operator=airflow.Python)
    dated.write_text(dated.read_text().replace("{{ ds }}", "{{ f(days=1) }}"))
    with pytest.raises(ValueError, match=r"template {{ f\(days=1\) }} has an '='"):
        build_dag(dated)


def test_an_older_airflow_is_taken_too(airflow: types.ModuleType, monkeypatch: pytest.MonkeyPatch):
    from gramplane.workflows.airflow_dag import build_dag

    dag, operator = sys.modules["airflow.sdk"].DAG, sys.modules["airflow.providers.standard.operators.bash"].BashOperator
    monkeypatch.delitem(sys.modules, "airflow.providers.standard.operators.bash")
    monkeypatch.setattr(sys.modules["airflow"], "DAG", dag, raising=False)
    for name, values in (("airflow.operators", {}), ("airflow.operators.bash", {"BashOperator": operator})):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        vars(sys.modules[name]).update(values, __path__=[])
    assert set(build_dag(WORKFLOWS / "smoke.yaml").tasks) == {"data", "check", "select", "score", "predict", "report"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: x\n", ":1:1: steps: a workflow has a list of steps"),
        ("name: x\nsteps:\n  - {id: a, needs: [b]}\n", ":3:13: steps[0].needs: no step 'b'"),
        ("steps:\n  - {id: a}\n  - {id: a\n", ":4:1: "),
    ],
)
def test_a_file_that_is_no_workflow_is_refused_with_its_place(airflow: types.ModuleType, tmp_path: Path, text: str, told: str):
    from gramplane.workflows.airflow_dag import build_dag
    from gramplane.workflows.checking import ConfigError

    (tmp_path / "wf.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        build_dag(tmp_path / "wf.yaml")
    assert f"wf.yaml{told}" in str(caught.value)


def test_parsing_a_dag_loads_nothing_scientific():
    heavy = ("dask", "distributed", "numpy", "zarr", "numba", "sklearn", "pydantic")
    code = f"""{_STAND_IN}
from gramplane.workflows.airflow_dag import build_dag
dag = build_dag({str(WORKFLOWS / "smoke.yaml")!r})
print(sorted(dag.tasks), *(name for name in {heavy} if name in sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.stdout.strip(), ran.returncode) == ("['check', 'data', 'predict', 'report', 'score', 'select']", 0), ran.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_airflow_itself_runs_the_smoke_workflow(tmp_path: Path):
    """Airflow in an environment of its own: migrate a database, run the DAG of a day twice, and fail on a check; tasks in containers are
    built, not run.
    """
    python = own_environment(tmp_path / "airflow-env", *AIRFLOW, dependencies=False)
    home, work = tmp_path / "home", tmp_path / "work"
    (home / "dags").mkdir(parents=True)
    work.mkdir()
    text = (WORKFLOWS / "smoke.yaml").read_text().replace("source: smoke.svm", "source: 'smoke-{{ ds }}.svm'")
    bad = '  - {id: good, do: check, needs: [score], with: {accuracy: "< 0.1"}}\n'
    (work / "smoke.yaml").write_text(text)
    (work / "bad.yaml").write_text(text.replace("name: smoke", "name: bad") + bad)
    (work / "smoke-2026-11-21.svm").write_text((WORKFLOWS / "smoke.svm").read_text())
    program = str(Path(sys.executable).with_name("gramplane"))
    (home / "dags" / "smoke_dag.py").write_text(f"""
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.docker.operators.docker import DockerOperator
from gramplane.workflows.airflow_dag import build_dag

smoke = build_dag({str(work / "smoke.yaml")!r}, program={program!r}, schedule=None)
bad = build_dag({str(work / "bad.yaml")!r}, program={program!r}, schedule=None)
image = {{"image": "registry/gramplane:1"}}
docker = build_dag({str(work / "smoke.yaml")!r}, operator=DockerOperator, operator_kwargs=image, program="", dag_id="docker")
pods = build_dag(
    {str(work / "smoke.yaml")!r}, operator=KubernetesPodOperator, operator_kwargs={{**image, "deferrable": True}}, program="", dag_id="pods"
)
if __name__ == "__main__":
    from airflow.sdk.definitions.context import Context

    for dag in (docker, pods):
        task = dag.get_task("data")
        task.render_template_fields(Context(ds="2026-11-21"))
        print(task.skip_on_exit_code, getattr(task, "arguments", None) or task.command, getattr(task, "deferrable", None))
""")
    settings = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
    }

    def airflow(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, "-m", "airflow", *words], env=settings, capture_output=True, text=True, timeout=600, cwd=home)

    assert airflow("db", "migrate").returncode == 0
    ran = airflow("dags", "test", "smoke", "2026-11-21")
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert len(list((work / "smoke" / "runs").glob("smoke-*/report/report.html"))) == 1
    assert "already-done" in airflow("dags", "test", "smoke", "2026-11-21").stdout
    failed = airflow("dags", "test", "bad", "2026-11-21").stdout
    assert "Bash command failed" in failed and "non-zero exit code 7" in failed, failed[-3000:]
    told = subprocess.run([python, home / "dags" / "smoke_dag.py"], env=settings, capture_output=True, text=True, timeout=600, cwd=home)
    words = ["run", str(work / "smoke.yaml"), "--step", "data", "--json", "--template", "ds=2026-11-21"]
    assert told.stdout.splitlines()[-2:] == [f"[99] {' '.join(words[:-1])} ds='2026-11-21' None", f"[99] {words} True"], (
        told.stdout + told.stderr
    )
