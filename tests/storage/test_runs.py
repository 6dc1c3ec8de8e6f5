"""Run stores: configuration, checkpoints that survive damage and kills, history, broadcast arrays."""

import pickle
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gramplane.storage import DigestMismatch, MissingBlock, OutOfSpace, RunStore, SchemaError
from gramplane.storage.runs.files import seal_file
from tests.storage.test_writer import FullDisk
from tests.support.places import ROOT


@dataclass(frozen=True)
class State:
    alpha: np.ndarray
    file: np.ndarray  # a name NumPy's savez uses itself
    gap: float


@dataclass(frozen=True)
class Other:
    alpha: np.ndarray


def state(t):
    return State(np.arange(5.0) * t, np.full((2, 2), t), 1.0 / t if t else float("inf"))


@pytest.fixture
def run(tmp_path):
    return RunStore.create(tmp_path / "run", {"method": "fgm", "C": 10.0, "grid": (1, 2)})


def test_configuration_is_kept_and_compared(run):
    assert run.config == {"method": "fgm", "C": 10.0, "grid": [1, 2]}
    assert RunStore.create(run.path, {"grid": [1, 2], "C": 10.0, "method": "fgm"}).config == run.config
    with pytest.raises(SchemaError, match=r"different: B, C\)"):
        RunStore.create(run.path, {"method": "fgm", "C": 1.0, "grid": [1, 2], "B": None})
    with pytest.raises(SchemaError, match="JSON"):
        RunStore.create(run.path.parent / "other", {"C": float("inf")})


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(MissingBlock, match="holds no run"):
        RunStore.open(tmp_path)
    (tmp_path / "notes").write_text("x")
    with pytest.raises(SchemaError, match="not a run"):
        RunStore.create(tmp_path, {})
    with pytest.raises(SchemaError, match="object store"):
        RunStore.create("s3://bucket/run", {})
    (tmp_path / "config.json").write_bytes(seal_file({"format": "gramplane.run/9", "config": {}}))
    with pytest.raises(SchemaError, match=r"gramplane.run/9"):
        RunStore.open(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DigestMismatch, match="does not end with its crc32c"):
        RunStore.open(tmp_path)


def test_checkpoints_come_back_and_two_are_kept(run):
    assert run.load_checkpoint(State) is None and run.checkpoint_about() is None
    for t in range(5):
        run.save_checkpoint(t, state(t), {"seed": t})
        found = run.load_checkpoint(State)
        assert found is not None and found[0] == t and found[1].alpha.tobytes() == state(t).alpha.tobytes()
        assert found[1].file.tobytes() == state(t).file.tobytes() and found[1].gap == state(t).gap
    names = sorted(file.name for file in (run.path / "checkpoints").iterdir())
    assert names == [f"{t:010d}.{kind}" for t in (3, 4) for kind in ("json", "npz")]
    assert run.checkpoint_about() == {"seed": 4}


@pytest.mark.parametrize("kind", ["json", "npz"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "empty"])
def test_damaged_checkpoint_falls_back_to_the_one_before(run, kind, damage):
    for t in (1, 2):
        run.save_checkpoint(t, state(t))
    rng = random.Random(4)
    for _ in range(12 if damage == "flip" else 1):
        goods = {}
        for t, expected in ((2, 1), (1, None)):
            file = run.path / f"checkpoints/{t:010d}.{kind}"
            good = goods[file] = file.read_bytes()
            bad = bytearray(good)
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
            file.write_bytes({"flip": bad, "cut": good[: len(good) // 2], "remove": b"", "empty": b""}[damage])
            if damage == "remove":
                file.unlink()
            if expected:
                found = run.load_checkpoint(State)
                assert found is not None and found[0] == expected and np.array_equal(found[1].alpha, state(expected).alpha)
            elif damage == "remove" and kind == "json":
                assert run.load_checkpoint(State) is None  # the mark is gone: never completed
            else:
                with pytest.raises(DigestMismatch, match="all checkpoints of"):
                    run.load_checkpoint(State)
        for file, good in goods.items():
            file.write_bytes(good)
    assert run.load_checkpoint(State)[0] == 2


def test_checkpoint_of_another_class_is_refused_not_skipped(run):
    run.save_checkpoint(1, Other(np.zeros(1)))
    with pytest.raises(SchemaError, match="expected 'State'"):
        run.load_checkpoint(State)


def test_full_disk_leaves_the_last_checkpoint(run, monkeypatch):
    run.save_checkpoint(1, state(1))
    packed = (run.path / "checkpoints/0000000001.npz").stat().st_size
    for room in (0, packed - 1, packed, packed + 50):
        with monkeypatch.context() as patch:
            patch.setattr("os.write", FullDisk(room))
            with pytest.raises(OutOfSpace) as caught:
                run.save_checkpoint(2, state(2))
        assert "checkpoints" in caught.value.path and not list(run.path.rglob("*.tmp"))
        assert run.load_checkpoint(State)[0] == 1
    with monkeypatch.context() as patch:
        patch.setattr("os.write", FullDisk(0))
        for action in (lambda: run.append_history({"a": 1}), lambda: run.put_array("u", np.ones(3))):
            with pytest.raises(OutOfSpace):
                action()
    run.save_checkpoint(2, state(2))
    assert run.load_checkpoint(State)[0] == 2


SAVES = """
import sys, numpy as np
from tests.storage.test_runs import State, state
from gramplane.storage import RunStore
run = RunStore.open(sys.argv[1])
with run.lock():
    found = run.load_checkpoint(State)
    first = found[0] + 1 if found else 1
    run.truncate_history(first - 1)
    print(first, flush=True)
    for t in range(first, 10**6):
        run.save_checkpoint(t, state(t))
        print(t, flush=True)
        run.append_history({"iteration": t})
"""


def test_kills_lose_at_most_the_running_checkpoint(run):
    rng = random.Random(9)
    last = 0
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", SAVES, str(run.path)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdout is not None
        assert [int(process.stdout.readline()) for _ in range(2)] == [last + 1] * 2, "where it begins, and its first checkpoint"
        time.sleep(rng.uniform(0.02, 0.15))
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = run.load_checkpoint(State)
        assert found is not None and found[0] > last
        assert found[1].alpha.tobytes() == state(found[0]).alpha.tobytes()
        listed = [entry["iteration"] for entry in run.history()]
        assert listed == list(range(1, len(listed) + 1)) and found[0] - 1 <= len(listed) <= found[0]
        # a checkpoint may be written when its history line is not: the next owner sees both sides of that moment
        if len(listed) < found[0]:
            run.append_history({"iteration": found[0]})
        last = found[0]
    with run.lock():
        assert not list(run.path.rglob("*.tmp"))


def test_history_is_cut_back(run):
    assert run.history() == []
    run.truncate_history(3)
    for t in range(1, 6):
        run.append_history({"event": "iteration", "iteration": t, "gap": np.float64(1 / t)})
        run.append_history({"event": "phase", "name": "columns"})
    with (run.path / "history.jsonl").open("ab") as file:
        file.write(b'{"iteration": 6, "g')
    assert len(run.history()) == 10
    run.truncate_history(3)
    assert [entry.get("iteration") for entry in run.history()] == [1, None, 2, None, 3, None]
    assert run.history()[4]["gap"] == 1 / 3
    run.append_history({"iteration": 4})
    assert len(run.history()) == 7


def test_arrays_are_written_once_by_content_and_swept(run, monkeypatch):
    refs = [run.put_array("alpha", np.arange(4.0) + t, keep=2) for t in range(4)]
    assert run.put_array("alpha", np.arange(4.0) + 3, keep=2) == refs[3]
    assert run.put_array("alpha-x", np.ones(1), keep=2).load()[0] == 1
    assert len(list((run.path / "arrays").glob("alpha=*"))) == 2
    assert len(pickle.dumps(refs[3])) < 400
    first = refs[3].load()
    assert np.array_equal(first, np.arange(4.0) + 3) and pickle.loads(pickle.dumps(refs[3])).load() is first
    assert np.array_equal(refs[2].load(), np.arange(4.0) + 2)
    with pytest.raises(MissingBlock, match="it was removed"):
        refs[0].load()
    with pytest.raises(SchemaError, match="array name"):
        run.put_array("../x", np.ones(1))
    with pytest.raises(ValueError, match="Object arrays"):
        run.put_array("x", np.array([None]))


def test_damaged_array_is_noticed(run):
    ref = run.put_array("u", np.arange(4.0))
    path = Path(ref.path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DigestMismatch, match="digest"):
        ref.load()


def test_model_and_reset(run):
    run.write_model(state(3))
    assert run.read_model(State).gap == 1 / 3
    run.save_checkpoint(1, state(1))
    run.append_history({"iteration": 1})
    run.put_array("u", np.ones(2))
    run.write_json("summary", {"a": [1]})
    assert run.read_json("summary") == {"a": [1]} and run.read_json("other") is None
    (run.path / "torn.json").write_text("{")
    with pytest.raises(DigestMismatch, match=r"torn.json"):
        run.read_json("torn")
    run.reset()
    assert sorted(file.name for file in run.path.iterdir()) == ["config.json", "lock"] and run.load_checkpoint(State) is None
    with pytest.raises(MissingBlock):
        run.read_model(State)
