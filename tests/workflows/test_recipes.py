"""Recipes of the pages on operations: each is done as its page says, or checked against the schema of what would read it."""

from __future__ import annotations

import io
import re
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gramplane.datasets import patients
from gramplane.workflows.exits import Exit
from tests.support.environments import own_environment
from tests.support.places import ROOT
from tests.workflows.pages import Block, blocks, shell

GUIDES = ROOT / "docs" / "guides"
RETRIED = {Exit.CLUSTER_LOST, Exit.OUT_OF_SPACE, Exit.HELD, Exit.INTERRUPTED, Exit.PIPE_CLOSED, Exit.TERMINATED, Exit.DONE}


def recipe(page: str, word: str) -> Block:
    """Return the block of a page that has this word."""
    (found,) = [block for block in blocks(GUIDES / page) if word in block.text]
    return found


def resources(kind: str) -> dict[str, Any]:
    return yaml.safe_load(recipe("clusters.md", f"kind: {kind}\n").text)


@pytest.mark.parametrize(
    "codes",
    [
        recipe("nightly.md", "RestartPreventExitStatus").text.partition("RestartPreventExitStatus=")[2].partition("\n")[0].split(),
        resources("CronJob")["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"],
    ],
    ids=["systemd", "Kubernetes"],
)
def test_codes_that_no_other_try_cures_are_not_tried_again(codes: list[str] | list[int]):
    assert set(map(int, codes)) == set(Exit) - RETRIED


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_accepts_its_units(tmp_path: Path):
    text = recipe("nightly.md", "OnCalendar").text.replace("/opt/gramplane/bin/gramplane", "/bin/true").replace("User=models\n", "")
    for name, unit in re.findall(r"^# /etc/systemd/system/(\S+)\n(.*?)(?=^# /etc|\Z)", text, re.M | re.S):
        (tmp_path / name).write_text(unit)
    (tmp_path / "alert@.service").write_text("[Service]\nExecStart=/bin/true\n")
    units = [tmp_path / "select.service", tmp_path / "select.timer"]
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=60)
    assert "select" not in ran.stderr, ran.stderr


def test_the_job_of_slurm_is_a_script():
    text = recipe("clusters.md", "#SBATCH").text
    assert subprocess.run(["bash", "-n"], input=text, text=True, timeout=10).returncode == 0


def test_the_image_is_built_from_files_and_extras_that_there_are():
    lines = [line for line in recipe("clusters.md", "ENTRYPOINT").text.splitlines() if line]
    assert [line.split()[0] for line in lines] == ["FROM", "COPY", "RUN", "ENTRYPOINT"]
    assert f'requires-python = ">={lines[0].split(":")[1].removesuffix("-slim")[:-1]}1"' in (ROOT / "pyproject.toml").read_text()
    assert "'/src[s3]'" in lines[2] and "gramplane warmup" in lines[2] and lines[1] == "COPY . /src"


# -- in environments of their own ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kubernetes_knows_every_key(tmp_path: Path):
    """By the schemas that dask-kubernetes gives to Kubernetes; those of pods are part of them."""
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(tmp_path), "dask-kubernetes"]
    subprocess.run(words, check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith("crds/daskjob.yaml")]
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        schema = yaml.load(io.BytesIO(files.read(name)), loader)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    job = resources("DaskJob")
    check_schema({key: job[key] for key in ("spec",)}, schema)
    pod = schema["properties"]["spec"]["properties"]["job"]["properties"]["spec"]
    check_schema(resources("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"], pod)
    with pytest.raises(AssertionError, match="containrs"):
        check_schema({"containrs": []}, pod)


def check_schema(value: Any, schema: dict[str, Any], path: str = "") -> None:
    """Check types and required keys, and that every key is known."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if "type" in schema and not schema.get("x-kubernetes-int-or-string"):
        assert isinstance(value, kinds[schema["type"]]), f"{path}: {value!r} is no {schema['type']}"
    if isinstance(value, dict) and "properties" in schema:
        assert value.keys() <= schema["properties"].keys(), f"{path}: {value.keys() - schema['properties'].keys()}"
        assert set(schema.get("required", ())) <= value.keys(), f"{path}: {schema['required']}"
    for key, item in value.items() if isinstance(value, dict) else ():
        check_schema(item, schema.get("properties", {}).get(key) or schema.get("additionalProperties", {}), f"{path}.{key}")
    for k, item in enumerate(value if isinstance(value, list) else ()):
        check_schema(item, schema.get("items", {}), f"{path}[{k}]")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_prefect_and_dagster_run_their_recipes(tmp_path: Path):
    python = own_environment(tmp_path / "env", "prefect", "dagster")
    patients().to_csv(tmp_path / "patients.csv", tmp_path / "new.csv")
    prefect = f"{recipe('nightly.md', 'from prefect').text}\nif __name__ == '__main__':\n    print(nightly('2026-11-21'))\n"
    dagster = f"{recipe('nightly.md', 'import dagster').text}\nassert dg.materialize([store, rules]).success\n"
    environment = {**shell(tmp_path), "PREFECT_HOME": str(tmp_path / "prefect"), "DAGSTER_HOME": str(tmp_path), "PYTHONPATH": ""}
    for name, text in (("flow.py", prefect), ("assets.py", dagster)):
        (tmp_path / name).write_text(text)
        ran = subprocess.run([python, name], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert all((tmp_path / "runs" / name / "summary.json").exists() for name in ("2026-11-21", "dagster"))


SLURM = """ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={worker_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=64000
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Environment of a Slurm of one node, from Debian's packages slurm-wlm and munge."""
    if shutil.which("slurmctld") is None or shutil.which("munged") is None:
        pytest.skip("needs slurm-wlm and munge")
    host, folder = socket.gethostname().partition(".")[0], tmp_path / "slurm"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    (folder / "munge.key").write_bytes(b"k" * 1024)
    (folder / "munge.key").chmod(0o600)
    munge = [f"--{name}={folder}/munge.{end}" for name, end in (("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"))]
    munge += [f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed", "--force"]
    (folder / "slurm.conf").write_text(SLURM.format(host=host, folder=folder, port=free_port(), worker_port=free_port()))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    environment = {**shell(tmp_path), "SLURM_CONF": str(folder / "slurm.conf")}
    dask = tmp_path / ".bin" / "dask"
    dask.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dask "$@"\n')
    dask.chmod(0o755)
    daemons = []
    try:
        for words in (["munged", "--foreground", *munge], ["slurmctld", "-D"], ["slurmd", "-D", "-N", host]):
            daemons.append(subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(1)
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_slurm_runs_the_job_and_dask_jobqueue_its_workers(slurm: dict[str, str], tmp_path: Path):
    def run(*words: str, **more: str) -> None:
        ran = subprocess.run(words, cwd=tmp_path, env={**slurm, **more}, capture_output=True, text=True, timeout=800)
        assert ran.returncode == 0, (
            f"{words}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}{''.join(f.read_text() for f in tmp_path.glob('slurm-*.out'))}"
        )

    run("gramplane", "ingest", str(ROOT / "workflows" / "smoke.svm"), "stores/train", "--quiet")
    job = recipe("clusters.md", "#SBATCH").text.replace("--ntasks=8", "--ntasks=3").replace("--ntasks=7", "--ntasks=2")
    (tmp_path / "job.sh").write_text(job)
    run("sbatch", "--wait", "job.sh")
    assert (tmp_path / "runs" / "first" / "summary.json").exists()
    own = tmp_path / "own"
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(own), "dask-jobqueue")
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "jobs.py").write_text(recipe("clusters.md", "from dask_jobqueue").text.replace("jobs=8", "jobs=2"))
    words = recipe("clusters.md", "factory:jobs:workers").text.replace("PYTHONPATH=.", f"PYTHONPATH=.:{own}:$PYTHONPATH")
    run("bash", "-c", words)
    assert (tmp_path / "runs" / "first" / "summary.json").exists()
