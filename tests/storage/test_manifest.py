"""Step manifests: a finished step is recognised by inputs, parameters and unchanged outputs, and by nothing else."""

import json

import numpy as np
import pytest

from gramplane.storage import DigestMismatch, MissingBlock, OutOfSpace, SchemaError, StepManifest, digest_of
from gramplane.storage.runs.files import write_sealed
from tests.storage.test_writer import FullDisk
from tests.support.stores import random_sparse, sparse_store


@pytest.fixture
def finished(tmp_path):
    (tmp_path / "model.json").write_text("{}")
    store = sparse_store(tmp_path / "store", random_sparse(5, 5))
    begun = StepManifest.begin("select", {"train.svm": "abc"}, {"C": 10.0, "B": 5, "tags": ("a",)})
    done = begun.done({str(tmp_path / "model.json"): digest_of(tmp_path / "model.json"), store.url: store.digest})
    done.write(tmp_path / "step.json")
    return tmp_path, done


def test_round_trip_and_skipping(finished):
    place, done = finished
    read = StepManifest.read(place / "step.json")
    assert read == done and read.status == "done" and read.started <= read.finished
    assert read.covers(StepManifest.begin("select", {"train.svm": "abc"}, {"B": 5, "C": 10.0, "tags": ["a"]}))
    for other in (
        StepManifest.begin("select", {"train.svm": "abd"}, done.params),
        StepManifest.begin("select", {"train.svm": "abc"}, {**done.params, "C": 1.0}),
        StepManifest.begin("choose", {"train.svm": "abc"}, done.params),
    ):
        assert not read.covers(other)
    wanted = StepManifest.begin("select", done.inputs, done.params)
    assert not wanted.covers(wanted) and not read.failed("cluster lost").covers(wanted)
    (place / "model.json").write_text("{ }")
    assert not read.covers(wanted)
    (place / "model.json").unlink()
    assert not read.covers(wanted)


def test_digests_of_files_folders_and_stores(finished):
    place, done = finished
    assert digest_of(place / "store") == done.outputs[str(place / "store")]
    (place / "folder/sub").mkdir(parents=True)
    (place / "folder/sub/a").write_bytes(b"1")
    first = digest_of(place / "folder")
    (place / "folder/sub/a").rename(place / "folder/sub/b")
    assert digest_of(place / "folder") != first
    np.save(place / "x.npy", np.arange(3))
    assert digest_of(place / "x.npy") == digest_of(f"file://{place}/x.npy")
    with pytest.raises(MissingBlock, match="does not exist"):
        digest_of(place / "absent")


def test_foreign_files_are_refused_and_absence_is_none(tmp_path, finished):
    assert StepManifest.read(tmp_path / "absent.json") is None
    for text in ("[]", "{}", '{"format": "gramplane.step/1"}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(DigestMismatch, match="does not end with its crc32c"):
            StepManifest.read(tmp_path / "bad.json")
    fields = json.loads((tmp_path / "step.json").read_text())
    del fields["crc32c"]
    for name, value, told in (("status", "finished", "status"), ("step", "../x", "step"), ("format", "gramplane.step/1", "format")):
        write_sealed(tmp_path / "bad.json", {**fields, name: value})
        with pytest.raises(SchemaError, match=told):
            StepManifest.read(tmp_path / "bad.json")


def test_a_damaged_record_says_that_the_step_runs_again(tmp_path, finished):
    good = (tmp_path / "step.json").read_bytes()
    for at in range(len(good)):
        (tmp_path / "bad.json").write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(DigestMismatch, match=r"bad\.json.*remove it: the step runs again"):
            StepManifest.read(tmp_path / "bad.json")
    for text in (b"", good[:-1], json.dumps({"format": "gramplane.step/6"}).encode(), b"[" * 99_999):
        (tmp_path / "bad.json").write_bytes(text)
        with pytest.raises((DigestMismatch, SchemaError), match=r"bad\.json.*remove it"):
            StepManifest.read(tmp_path / "bad.json")


def test_full_disk_keeps_the_manifest_before(finished, monkeypatch):
    place, done = finished
    with monkeypatch.context() as patch:
        patch.setattr("os.write", FullDisk(10))
        with pytest.raises(OutOfSpace, match=r"step.json"):
            done.failed("x").write(place / "step.json")
    assert StepManifest.read(place / "step.json") == done
