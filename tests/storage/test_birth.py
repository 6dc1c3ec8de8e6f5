"""A run in birth: whoever starts it sees its lock first, whatever else lies there already, and takes nothing foreign for it."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from gramplane.pipeline import run_method
from gramplane.storage import OtherRun, RunLocked, RunStore, SchemaError
from gramplane.workflows.exits import exit_code
from tests.support.racing import exit_codes, small_store

CONFIG = {"method": "fgm"}


def test_racing_starts_work_or_are_told_who_does(tmp_path):
    found = exit_codes(small_store(tmp_path / "store"), tmp_path, starters=4, starts=24)
    assert set(found) <= {0, 99} and found[0] >= 6, found


@pytest.mark.parametrize("names", [(".config.json.0123456789abcdef.tmp",), ("lock",), ("lock", ".config.json.0123456789abcdef.tmp")])
def test_what_a_run_in_birth_shows_is_no_foreign_file(tmp_path, names):
    for name in names:
        (tmp_path / name).write_bytes(b"")
    with RunStore.begin(tmp_path, CONFIG) as run:
        assert run.born and run.config == CONFIG
        assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "lock"], "what a killed writer left is gone"


@pytest.mark.parametrize("lock", [None, b"a file of the user's, called lock", b"{}"])
def test_a_foreign_folder_stays_as_it_is(tmp_path, lock):
    (tmp_path / "notes.txt").write_text("mine")
    if lock is not None:
        (tmp_path / "lock").write_bytes(lock)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(SchemaError, match="files that are not a run"), RunStore.begin(tmp_path, CONFIG):
        pass
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_foreign_files_beside_a_lock_of_ours_are_refused_under_the_lock(tmp_path):
    (tmp_path / "lock").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SchemaError, match="files that are not a run"), RunStore.begin(tmp_path, CONFIG):
        pass
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_while_a_run_is_held_even_its_birth_is_told_as_held(tmp_path):
    run = RunStore(tmp_path / "run")
    run.path.mkdir()
    with run.lock():  # the moment between lock and configuration
        with pytest.raises(RunLocked, match=str(os.getpid())), RunStore.begin(run.path, CONFIG):
            pass
        with pytest.raises(RunLocked, match=str(os.getpid())):
            RunStore.create(run.path, CONFIG)


def test_another_configuration_is_named_by_its_keys_and_is_usage(tmp_path):
    RunStore.create(tmp_path / "run", CONFIG)
    with pytest.raises(OtherRun, match="different: C, method") as caught, RunStore.begin(tmp_path / "run", {"method": "mkl", "C": 1}):
        pass
    assert exit_code(caught.value) == 2
    with RunStore.begin(tmp_path / "run", CONFIG) as run:
        assert not run.born


def _keep_beginning(folder: str) -> None:
    while not Path(folder, "stop").exists():
        for number in range(20):
            try:
                with RunStore.begin(f"{folder}/{number}", CONFIG) as run:
                    run.write_json("where", {})
                    run.withdraw()
            except RunLocked:
                pass


@pytest.mark.slow
def test_starts_that_fail_and_withdraw_disturb_no_other_start(tmp_path):
    """A start that fails forgets its configuration, so that files come and go at any moment of the others."""
    process = multiprocessing.get_context("spawn").Process(target=_keep_beginning, args=(str(tmp_path),))
    process.start()
    try:
        while not (tmp_path / "19").exists():
            assert process.is_alive()
        begun = 0
        for turn in range(2000):
            try:
                with RunStore.begin(tmp_path / str(turn % 20), CONFIG) as run:
                    begun += run.born
                    run.withdraw()
            except RunLocked:
                continue
        assert begun > 20
    finally:
        (tmp_path / "stop").touch()
        process.join()


def test_a_run_that_came_to_stand_meanwhile_is_used_as_it_was_decided(tmp_path, monkeypatch):
    """Two starts plan at once; the second finds the first one's run finished when it gets the lock."""
    store = str(small_store(tmp_path / "store"))
    begin = RunStore.begin.__func__

    def late(cls, path, config):
        monkeypatch.setattr(RunStore, "begin", classmethod(begin))
        run_method("fgm", {"B": 1, "max_rounds": 2}, data=store, run=str(path))
        return begin(cls, path, config)

    monkeypatch.setattr(RunStore, "begin", classmethod(late))
    outcome = run_method("fgm", {"B": 1, "max_rounds": 2}, data=store, run=str(tmp_path / "run"))
    assert outcome.status == "already-done"
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rounds"] == outcome.summary["rounds"]
