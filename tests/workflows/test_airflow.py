"""The DAG of a workflow file: its shape with a stand-in for Airflow, and once with Airflow itself."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.support.places import ROOT

WORKFLOWS = ROOT / "workflows"
AIRFLOW = "apache-airflow==3.3.2"

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
    """Airflow in an environment of its own: migrate a database, run the DAG, then run it while another process holds a step."""
    env = tmp_path / "airflow-env"
    subprocess.run([sys.executable, "-m", "venv", env], check=True, timeout=120)
    python = env / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", AIRFLOW], check=True, timeout=1200)
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", str(ROOT)], check=True, timeout=300, cwd=tmp_path)
    home, work = tmp_path / "home", tmp_path / "work"
    (home / "dags").mkdir(parents=True)
    work.mkdir()
    for name in ("smoke.yaml", "smoke.svm"):
        (work / name).write_text((WORKFLOWS / name).read_text())
    (home / "dags" / "smoke_dag.py").write_text(
        "from gramplane.workflows.airflow_dag import build_dag\n"
        f"dag = build_dag({str(work / 'smoke.yaml')!r}, program={str(Path(sys.executable).with_name('gramplane'))!r}, schedule=None)\n"
    )
    settings = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
    }

    def airflow(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, "-m", "airflow", *words], env=settings, capture_output=True, text=True, timeout=600, cwd=home)

    assert airflow("db", "migrate").returncode == 0
    ran = airflow("dags", "test", "smoke")
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert len(list((work / "smoke" / "runs").glob("smoke-*/report/report.html"))) == 1
    assert "already-done" in airflow("dags", "test", "smoke").stdout
