"""What must be on the disk before what: bytes before their names, and all that a mark counts before the mark.

A system that loses power may keep a rename and lose the bytes renamed, or keep neither unless the folder was synced. So the order of the
calls is the promise, and it is watched here; a kill at every single call is then survived by what was promised before it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gramplane.storage import BlockStore, RunStore
from gramplane.storage.manifest import MANIFEST
from gramplane.storage.objects import write_atomic
from tests.support.stores import random_sparse, sparse_store


class Watch:
    """The calls that make files durable, in their order: ("fsync" | "rename", path)."""

    def __init__(self, monkeypatch, stop_at=None):
        self.calls, self.stop_at = [], stop_at
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, self._renaming(getattr(os, name)))
        fsync = os.fsync

        def synced(fd):
            self._note("fsync", os.path.realpath(f"/proc/self/fd/{fd}"))
            fsync(fd)

        monkeypatch.setattr(os, "fsync", synced)

    def _renaming(self, call):
        def renamed(source, target, **options):
            self._note("rename", os.path.realpath(source), os.path.realpath(target))
            call(source, target, **options)

        return renamed

    def _note(self, *what):
        if self.stop_at is not None and len(self.calls) == self.stop_at:
            raise Killed
        self.calls.append(what)

    def renames(self):
        return [call for call in self.calls if call[0] == "rename"]

    def durable(self, target):
        """Whether the bytes of ``target`` were synced before its rename, and its folder afterwards; returns where in the order."""
        at = next(i for i, call in enumerate(self.calls) if call[0] == "rename" and call[2] == os.path.realpath(target))
        _, source, path = self.calls[at]
        assert ("fsync", source) in self.calls[:at], f"{path} was renamed before its bytes were on the disk"
        folder = self.calls.index(("fsync", os.path.dirname(path)), at)
        return at, folder


class Killed(BaseException):
    """The process ends here."""


@dataclass(frozen=True)
class State:
    alpha: np.ndarray


@dataclass(frozen=True)
class Record:
    record_name = "tests.Record"
    weights: np.ndarray


def test_an_object_is_on_the_disk_before_its_name_and_its_name_before_the_call_returns(tmp_path, monkeypatch):
    watch = Watch(monkeypatch)
    write_atomic(str(tmp_path / "x"), (b"12", np.arange(3)), fsync=True)
    at, folder = watch.durable(tmp_path / "x")
    assert (at, folder, len(watch.calls)) == (1, 2, 3)
    write_atomic(str(tmp_path / "y"), (b"12",), fsync=False)
    assert [call[0] for call in watch.calls[3:]] == ["rename"]


def test_the_mark_of_a_checkpoint_comes_after_its_arrays_are_on_the_disk(tmp_path, monkeypatch):
    run, watch = RunStore.create(tmp_path / "run", {"method": "fgm"}), Watch(monkeypatch)
    run.save_checkpoint(3, State(np.arange(4.0)))
    arrays, mark = (watch.durable(run.path / "checkpoints" / f"{3:010d}.{kind}") for kind in ("npz", "json"))
    assert arrays[1] < mark[0]


def test_everything_small_of_a_run_is_durable(tmp_path, monkeypatch):
    watch = Watch(monkeypatch)
    run = RunStore.create(tmp_path / "run", {"method": "fgm"})
    run.write_config({"method": "fgm", "layout": 1})
    run.write_json("summary", {"a": 1})
    for name in ("config.json", "summary.json"):
        watch.durable(run.path / name)


def test_a_store_is_listed_after_all_it_lists(tmp_path, monkeypatch):
    watch = Watch(monkeypatch)
    store = Path(sparse_store(tmp_path / "s", random_sparse(10, 12), fsync=True).url)
    at, folder = watch.durable(next(file for file in store.rglob(MANIFEST)))
    pointed, _ = watch.durable(store / "current.json")
    assert folder < pointed, "a version is pointed to when it is whole, and on the disk"
    objects = [call for call in watch.renames() if Path(call[2]).name not in (MANIFEST, "current.json") and store in Path(call[2]).parents]
    assert objects
    for _, source, target in objects:
        assert ("fsync", source) in watch.calls, target
        assert watch.calls.index(("rename", source, target)) < at, target
    assert sparse_store(tmp_path / "other", random_sparse(10, 12)).digest == BlockStore.open(store).digest


@pytest.mark.parametrize("stop_at", range(24))
def test_a_kill_at_any_call_leaves_a_sound_checkpoint_and_no_word_of_damage(tmp_path, monkeypatch, caplog, stop_at):
    run = RunStore.create(tmp_path / "run", {"method": "fgm"})
    run.save_checkpoint(1, State(np.full(3, 1.0)))
    with monkeypatch.context() as patched:
        watch = Watch(patched, stop_at)
        try:
            for t in range(2, 6):
                run.save_checkpoint(t, State(np.full(3, float(t))))
        except Killed:
            pass
        finished = [int(Path(call[2]).stem) for call in watch.renames() if call[2].endswith(".json")]
    with RunStore.open(run.path).lock() as again:
        iteration, state = again.load_checkpoint(State)
        assert iteration == max(finished, default=1)
        np.testing.assert_array_equal(state.alpha, np.full(3, float(iteration)))
    assert "damaged" not in caplog.text
    assert len(list((run.path / "checkpoints").glob("*.tmp"))) == 0
