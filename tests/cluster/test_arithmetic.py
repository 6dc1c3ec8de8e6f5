"""What a process computes with, as numba, BLAS and NumPy say themselves, and what a mixed cluster is told."""

import json
import subprocess
import sys

import numpy as np
import pytest
import threadpoolctl

from gramplane.cluster import MemorySink, open_executor, plan
from gramplane.cluster.arithmetic import arithmetic, describe_mixture, fingerprint
from gramplane.pipeline import run_method
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest
from tests.support import toys
from tests.support.clusters import CommandCluster
from tests.support.fgm_problems import planted
from tests.support.processors import another_coretype, arithmetic_with, environment, other_coretypes, said

ALIKE = {
    "processor": "znver4",
    "vectors": "avx2 fma",
    "compiler": "as it comes",
    "blas": "openblas 0.3 Zen",
    "numpy": "V3",
    "libc": "glibc 2",
}

NUMBA = """
import json
from numba.core.registry import cpu_target
_, name, features = cpu_target.target_context.codegen().magic_tuple()
print(json.dumps([name, features]))
"""


@pytest.mark.parametrize(
    "variables", [{}, {"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,-avx2,+sha"}]
)
def test_the_processor_is_the_one_that_numba_compiles_for(variables):
    found = arithmetic_with(**variables)
    name, features = json.loads(said(NUMBA, **variables))
    assert found["processor"] == name
    present = {feature[1:] for feature in features.split(",") if feature.startswith("+")}
    named = set(found["vectors"].split())
    assert named <= present and {feature for feature in present if feature.startswith(("avx", "fma", "sse"))} <= named
    assert "sha" not in named


def test_kernels_are_those_of_the_libraries_that_numpy_and_scipy_load():

    pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    named = arithmetic()["blas"]
    assert any(pool["version"] in named and str(pool.get("architecture", "")) in named for pool in pools)
    found = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    assert arithmetic()["numpy"] == (" ".join(found) or "baseline")


def test_other_kernels_instructions_and_settings_are_told_apart():
    coretype = another_coretype()
    own = arithmetic_with()
    assert coretype in arithmetic_with(OPENBLAS_CORETYPE=coretype)["blas"] and coretype not in own["blas"]
    assert arithmetic_with(NUMBA_OPT="1")["compiler"] == "NUMBA_OPT=1" and own["compiler"] == "as it comes"
    disabled = own["numpy"].split()
    assert arithmetic_with(NPY_DISABLE_CPU_FEATURES=" ".join(disabled))["numpy"] == "baseline"
    code = "from gramplane.cluster.arithmetic import fingerprint; print(fingerprint())"
    assert said(code).strip() == fingerprint() != said(code, OPENBLAS_CORETYPE=coretype).strip()


def test_processes_that_compute_alike_are_no_mixture():
    assert describe_mixture(ALIKE, {}) is None
    assert describe_mixture(ALIKE, {"tcp://a": dict(ALIKE), "tcp://b": dict(ALIKE)}) is None


def test_a_mixture_names_its_groups_and_what_sets_them_apart():
    haswell = {**ALIKE, "blas": "openblas 0.3 Haswell"}
    told = describe_mixture(ALIKE, {"tcp://b": haswell, "tcp://a": dict(ALIKE)})
    assert told is not None and "\n" not in told
    assert "the driver, worker tcp://a: blas openblas 0.3 Zen; worker tcp://b: blas openblas 0.3 Haswell" in told
    assert "no longer the same bits" in told and "processor znver4" not in told
    several = {f"tcp://{k}": {**ALIKE, "processor": "generic", "vectors": "avx2"} for k in range(5)}
    told = describe_mixture(ALIKE, several)
    assert told is not None
    assert "the driver: processor znver4, vectors fma" in told
    assert "worker tcp://0, worker tcp://1, worker tcp://2 and 2 more: processor generic, vectors none beyond" in told


def test_workers_that_all_differ_from_the_driver_alone_are_told():
    told = describe_mixture(ALIKE, {"tcp://a": {**ALIKE, "libc": "musl"}})
    assert told is not None and "the driver: libc glibc 2; worker tcp://a: libc musl" in told


# -- real workers ------------------------------------------------------------------------------------------------------------------


def mixtures(sink):
    return [event["message"] for event in sink.named("warning") if "mixture" in event]


@pytest.mark.slow
@pytest.mark.cluster
def test_a_cluster_of_mixed_kernels_is_told_at_preflight_and_in_the_summary(tmp_path):
    coretype = another_coretype()
    store, sink = ingest(planted(2, d=30), tmp_path / "data.zarr"), MemorySink()
    with CommandCluster(tmp_path, workers=1, memory_limit="1GiB") as cluster:
        with open_executor(cluster.config, events=sink) as executor:
            assert executor.n_workers == 1 and mixtures(sink) == []
        cluster.start_worker(OPENBLAS_CORETYPE=coretype)
        done = run_method(
            "fgm", {"B": 4, "max_rounds": 2}, data=str(store.url), run=str(tmp_path / "run"), cluster=cluster.config, on_event=sink
        )
    (told,) = mixtures(sink)
    assert "the driver, worker tcp://" in told and coretype in told.rpartition("; worker tcp://")[2]
    assert done.status == "done" and RunStore.open(tmp_path / "run").read_json("summary")["mixture"] == told


@pytest.mark.slow
@pytest.mark.cluster
def test_a_worker_of_another_kind_that_joins_later_is_told_once(tmp_path):
    coretype, sink = another_coretype(), MemorySink()
    work = plan(toys.program(toys.slow), range(12), 0.05)
    with CommandCluster(tmp_path, workers=1) as cluster, open_executor(cluster.config, events=sink) as executor:
        executor.run(work)
        assert mixtures(sink) == []
        cluster.start_worker(OPENBLAS_CORETYPE=coretype)
        for _ in range(2):
            executor.run(work)
        (told,) = mixtures(sink)
        assert coretype in told


@pytest.mark.slow
@pytest.mark.cluster
def test_a_driver_of_another_kind_than_all_workers_is_told_on_the_command_line(tmp_path):
    """Workers of ``local:N`` inherit the variable; those of a cluster that runs already do not."""
    coretype = another_coretype()
    ingest(planted(2, d=30), tmp_path / "data.zarr")
    words = ["fit", "fgm", "--data", "data.zarr", "--set", "B=4", "--set", "max_rounds=2"]
    with CommandCluster(tmp_path, workers=1, memory_limit="1GiB") as cluster:
        for run, where in (("near", "local:1"), ("far", cluster.config)):
            done = subprocess.run(
                [sys.executable, "-m", "gramplane.workflows.cli", *words, "--run", run, "--cluster", where],
                env=environment(OPENBLAS_CORETYPE=coretype),
                capture_output=True,
                text=True,
                cwd=tmp_path,
                timeout=240,
            )
            assert done.returncode == 0, done.stderr
            told = [line for line in done.stderr.splitlines() if "processors or their kernels differ" in line]
            assert len(told) == (1 if run == "far" else 0), done.stderr
            assert ("mixture" in (RunStore.open(tmp_path / run).read_json("summary") or {})) == (run == "far")


def test_this_machine_can_run_other_kernels():
    """Else the tests above would all be skipped, and nobody would know."""
    if "openblas" not in arithmetic()["blas"] or "avx2" not in arithmetic()["vectors"]:
        pytest.skip("not OpenBLAS on x86 with AVX2")
    assert other_coretypes()
