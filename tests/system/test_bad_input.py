"""What can be wrong with input, disks and machines, through the command line: one message with the place, and nothing half-written."""

import contextlib
import json
import os
import re
import shutil

import numpy as np
import pytest

from gramplane.storage import BlockStore, MissingBlock, RunStore
from gramplane.workflows.cli import main
from tests.support.clusters import CommandCluster
from tests.support.commands import equal_runs, fit_words, gramplane, is_resumable, rounds, tree_bytes
from tests.support.disks import NotPermitted, SmallDisk
from tests.support.methods import CASES

GOOD = "1 1:1 2:2\n-1 1:0.5 3:1\n1 2:1\n-1 3:2\n"


@pytest.fixture
def told(capsys):
    """Run a command that must fail: its exit code and message. It may not create or change anything."""

    def run(folder, *words):
        before = tree_bytes(folder)
        capsys.readouterr()
        code = main([*map(str, words), "--json"])
        out, err = capsys.readouterr()
        found = json.loads(out.rstrip("\n").rpartition("\n")[2])
        assert found["exit"] == code
        assert found["error"] in err and "Traceback" not in err
        assert tree_bytes(folder) == before
        return code, found["error"]

    return run


@pytest.fixture
def store(tmp_path):
    """A small good store: four rows, three columns."""
    (tmp_path / "good.svm").write_text(GOOD)
    assert main(["ingest", str(tmp_path / "good.svm"), str(tmp_path / "store"), "--quiet"]) == 0
    return tmp_path / "store"


def assert_matches(message, pattern):
    assert re.search(pattern, message, re.DOTALL), message


# -- stores ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """A store, and the run nothing disturbed on it, for faults that need some rounds."""
    folder = tmp_path_factory.mktemp("problem")
    CASES["fgm-sparse"].data(folder / "store")
    assert main([*map(str, fit_words(folder / "store", folder / "straight", PARAMS)), "--quiet"]) == 0
    return folder


PARAMS = {"B": 1, "C": 100.0, "max_rounds": 60, "max_inner": 1}


@pytest.mark.parametrize("cluster", ["sync", pytest.param("cluster", marks=pytest.mark.cluster)])
def test_a_damaged_chunk(tmp_path, problem, told, cluster):
    shutil.copytree(problem / "store", tmp_path / "store")
    chunk = tmp_path / "store" / "v1" / "columns" / "values" / "c" / "0"
    content = bytearray(chunk.read_bytes())
    content[100] ^= 1
    chunk.write_bytes(content)
    words = fit_words(tmp_path / "store", tmp_path / "run", PARAMS)
    with contextlib.ExitStack() as stack:
        if cluster != "sync":
            words += ["--cluster", stack.enter_context(CommandCluster(tmp_path, workers=1)).config]
        code, message = told(tmp_path / "store", *words)
    assert code == 6
    assert_matches(message, "array columns/values, chunk 0, ")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]
    assert main(["verify", str(tmp_path / "store"), "--quiet"]) == 6


def test_a_run_another_process_holds(tmp_path, problem):
    run = shutil.copytree(problem / "straight", tmp_path / "run")
    with RunStore.open(run).lock():
        for again in (fit_words(problem / "store", run, PARAMS), ["resume", run]):
            code, found = gramplane(again, tmp_path)
            assert code == 99
            assert_matches(found["error"], rf"run is held by process {os.getpid()} on .* since ")
    assert tree_bytes(run / "model") == tree_bytes(problem / "straight" / "model")


# -- full disks --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path):
    """A disk of 16 MiB."""
    (tmp_path / "disk").mkdir()
    try:
        with SmallDisk(tmp_path / "disk", 16 << 20) as small:
            yield small
    except NotPermitted:
        pytest.skip("mounting a small file system is not permitted here")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """An SVMlight file of 300,000 entries, and its store."""
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(0)
    entries = " ".join(f"{j}:{v:.2f}" for j, v in zip(range(1, 3001, 3), rng.random(1000), strict=True))
    (folder / "data.svm").write_text("".join(f"{(-1) ** i} {entries}\n" for i in range(300)))
    assert main(["ingest", str(folder / "data.svm"), str(folder / "store"), "--budget", "8MiB", "--quiet"]) == 0
    return folder


@pytest.mark.parametrize("leave", [3_000_000, *(pytest.param(size, marks=pytest.mark.slow) for size in (200_000, 9_000_000))])
def test_ingest_onto_a_full_disk(tmp_path, text, disk, leave):
    words = ["ingest", text / "data.svm", disk.folder / "store", "--budget", "8MiB"]
    disk.fill(leave)
    code, found = gramplane(words, tmp_path, disk.prefix)
    assert code == 5
    assert_matches(found["error"], rf"no space left to write \d+ bytes to {disk.folder}/store")
    with pytest.raises(MissingBlock):
        BlockStore.open(disk.seen / "store")
    disk.relieve()
    assert main(["ingest", str(text / "data.svm"), str(disk.seen / "store"), "--budget", "8MiB", "--quiet"]) == 0
    assert tree_bytes(disk.seen / "store") == tree_bytes(text / "store")
    assert [path.name for path in disk.seen.iterdir()] == ["store"]


@pytest.mark.parametrize("leave", [40_000, pytest.param(90_000, marks=pytest.mark.slow)])
def test_checkpoints_onto_a_full_disk(tmp_path, problem, disk, leave):
    run = disk.seen / "run"
    words = fit_words(problem / "store", disk.folder / "run", PARAMS)
    disk.fill(leave)
    code, found = gramplane(words, tmp_path, disk.prefix)
    assert code == 5
    assert_matches(found["error"], rf"no space left to write \d+ bytes to {disk.folder}/run/")
    assert is_resumable(run) in (rounds(run) - 1, rounds(run))
    disk.relieve()
    assert main(["resume", str(run), "--quiet"]) == 0
    equal_runs(run, problem / "straight")


@pytest.mark.slow
def test_a_limit_of_file_sizes_is_a_full_disk_too(tmp_path, text, problem):
    """For systems that do not let anyone mount: no file may grow beyond a limit."""
    words = ["ingest", text / "data.svm", tmp_path / "store", "--budget", "8MiB"]
    code, found = gramplane(words, tmp_path, ["prlimit", "--fsize=1000000"])
    assert code == 5
    assert_matches(found["error"], rf"no space left to write \d+ bytes to {tmp_path}/store")
    assert main([*map(str, words), "--quiet"]) == 0
    assert tree_bytes(tmp_path / "store") == tree_bytes(text / "store")
    run = tmp_path / "run"
    code, found = gramplane(fit_words(problem / "store", run, PARAMS), tmp_path, ["prlimit", "--fsize=8000"])
    assert code == 5
    assert is_resumable(run) in (rounds(run) - 1, rounds(run))
    assert main(["resume", str(run), "--quiet"]) == 0
    equal_runs(run, problem / "straight")


# -- clusters ----------------------------------------------------------------------------------------------------------------------


def test_a_cluster_that_does_not_answer(tmp_path, store, told, monkeypatch):
    monkeypatch.setenv("GRAMPLANE_CONNECT_TIMEOUT", "1")
    run = tmp_path / "run"
    words = ["fit", "fgm", "--data", store, "--run", run]
    code, message = told(store, *words, "--set", "B=1", "--cluster", "tcp://127.0.0.1:9")
    assert code == 4
    assert "no scheduler at tcp://127.0.0.1:9 within 1 s" in message
    assert [path.name for path in run.iterdir()] == ["lock"]
    code, message = told(tmp_path, *words, "--set", "B=1", "--cluster", "lokal:2")
    assert code == 2
    assert_matches(message, "cluster='lokal:2': unknown form; allowed forms: sync, local:N")
    assert main([*map(str, words), "--set", "B=2", "--quiet"]) == 0, "the folder is free for another configuration"
