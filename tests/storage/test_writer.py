"""Writing stores: whole chunks only, journal and resume, kills, full disks."""

import errno
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gramplane.storage import BlockMeta, BlockStore, BlockWriter, MissingBlock, OutOfSpace, SchemaError, UnalignedWrite, plan_stripes
from gramplane.storage.blocks.arrays import crc32c
from gramplane.storage.layout import plan_dense
from gramplane.storage.objects import require_space
from tests.support.places import ROOT
from tests.support.stores import dense_store, random_sparse, same_block, sparse_store, write_sparse


def parts_of(X, plan, s):
    lo, hi = int(plan.edges[s]), int(plan.edges[s + 1])
    a, b = int(X.indptr[lo]), int(X.indptr[hi])
    return np.diff(X.indptr[lo : hi + 1]), X.indices[a:b], X.data[a:b]


@pytest.fixture
def begun(tmp_path):
    X = random_sparse(40, 60)
    plan = plan_stripes(np.diff(X.indptr), 4, stripe_bytes=256)
    return X, plan, BlockWriter.create(tmp_path / "s", BlockMeta(40, 60, "sparse", "float32"), plan)


def test_partial_and_foreign_stripes_are_refused(begun):
    X, plan, writer = begun
    counts, rows, values = parts_of(X, plan, 1)
    for bad in [(counts, rows[:-1], values[:-1]), (counts[:-1], rows, values), (counts, rows, values[:-1]), parts_of(X, plan, 0)]:
        with pytest.raises(UnalignedWrite, match="stripe 1 of columns"):
            writer.write_stripe(1, *bad)
    for index in (-1, plan.n_stripes):
        with pytest.raises(UnalignedWrite, match="does not exist"):
            writer.write_stripe(index, counts, rows, values)
    with pytest.raises(SchemaError, match="does not round"):
        writer.write_stripe(1, counts, rows, values.astype(np.float64))
    for bad in (np.where(np.arange(len(rows)) == 2, 40, rows), np.where(np.arange(len(rows)) == 2, -1, rows), rows * 1.0):
        with pytest.raises(SchemaError, match="indices run"):
            writer.write_stripe(1, counts, bad, values)
    with pytest.raises(SchemaError, match="layout 'rows'"):
        writer.write_stripe(1, counts, rows, values, layout="rows")
    assert not list(Path(writer.url).glob("v1/columns/*/c/1"))


def test_partial_dense_chunks_are_refused(tmp_path):
    plan = plan_dense(40, 60, 8, stripe_bytes=256 * 8)
    writer = BlockWriter.create(tmp_path / "s", BlockMeta(40, 60, "dense", "float64"), plan)
    r, k = plan.chunk
    for bad in (np.zeros((r - 1, k)), np.zeros((r, k + 1)), np.zeros(r * k)):
        with pytest.raises(UnalignedWrite, match="whole chunk"):
            writer.write_dense(0, 0, bad)
    with pytest.raises(UnalignedWrite, match="does not exist"):
        writer.write_dense(9, 9, np.zeros((r, k)))
    with pytest.raises(SchemaError, match="layout 'columns'"):
        writer.write_stripe(0, [1], np.zeros(1, int), np.zeros(1))


def test_commit_without_a_chunk_is_refused(begun):
    X, plan, writer = begun
    for s in range(plan.n_stripes):
        if s != 2:
            writer.write_stripe(s, *parts_of(X, plan, s))
    with pytest.raises(MissingBlock, match=r"columns/counts/zarr.json"):
        writer.commit()
    writer.write_table("counts", np.diff(X.indptr).astype(np.uint32), of="columns")
    with pytest.raises(MissingBlock, match="columns/rows/c/"):
        writer.commit()
    with pytest.raises(MissingBlock, match="never finished"):
        BlockStore.open(writer.url)
    writer.write_stripe(2, *parts_of(X, plan, 2))
    store = writer.commit()
    assert store.verify().ok and not (Path(store.place) / "journal.jsonl").exists()
    assert not list(Path(store.url).rglob("*.tmp"))


def test_counts_that_contradict_the_stripes_are_noticed(tmp_path):
    X = random_sparse(40, 60)
    writer = write_sparse(tmp_path / "s", X)
    counts = np.diff(X.indptr).astype(np.uint32)
    writer.write_table("counts", np.roll(counts, 1), of="columns")
    store = writer.commit()
    with pytest.raises(SchemaError, match="counts sum to"):
        for ref in store.column_blocks():
            ref.load()


@pytest.mark.parametrize("name", ["columns", "rows", "manifest.json", "zarr.json", "journal.jsonl", "../y", "a/b", ""])
def test_reserved_table_names(begun, name):
    with pytest.raises(SchemaError, match=r"reserved|must match"):
        begun[2].write_table(name, np.zeros(40))


def test_bad_tables_are_named(begun):
    _, _, writer = begun
    with pytest.raises(SchemaError, match=r"'y' of rows has the shape \(39,\)"):
        writer.write_table("y", np.zeros(39))
    with pytest.raises(SchemaError, match="storable"):
        writer.write_table("y", np.array(["a"] * 40))
    with pytest.raises(SchemaError, match="60 columns"):
        writer.write_names(["a"])
    with pytest.raises(SchemaError, match="groups has the shape"):
        writer.write_groups([1, 2])


def test_copies_in_other_processes_write_and_return_records(begun):
    X, plan, writer = begun
    copy = pickle.loads(pickle.dumps(writer))
    records = [copy.write_stripe(s, *parts_of(X, plan, s)) for s in range(plan.n_stripes)]
    again = [copy.write_stripe(s, *parts_of(X, plan, s)) for s in range(plan.n_stripes)]
    assert records == again
    writer.write_table("counts", np.diff(X.indptr).astype(np.uint32), of="columns")
    assert writer.commit(records).verify().ok


def test_existing_things_are_not_overwritten(tmp_path):
    X = random_sparse(10, 12)
    store = sparse_store(tmp_path / "s", X)
    with pytest.raises(SchemaError, match="finished store"):
        sparse_store(tmp_path / "s", X)
    assert sparse_store(tmp_path / "s", random_sparse(10, 12, seed=3), overwrite=True).digest != store.digest
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(SchemaError, match="not a store"):
            sparse_store(tmp_path / "mine", X, overwrite=overwrite)
    assert (tmp_path / "mine/thesis.tex").exists()


def test_resume_keeps_sound_stripes_of_the_same_plan(begun):
    X, plan, writer = begun
    for s in range(4):
        writer.write_stripe(s, *parts_of(X, plan, s))
    place = Path(writer.url) / writer.version
    (place / "columns/values/c/1").write_bytes(b"torn")
    (place / "columns/rows/c/2").unlink()
    (place / "columns/rows/c/.9.0123456789abcdef.tmp").write_bytes(b"orphan")
    with (place / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"columns/rows/c/5": [1')
    second = BlockWriter.create(writer.url, writer.meta, plan, resume=True)
    assert [second.stripe_done(s) for s in range(5)] == [True, False, False, True, False]
    assert not list(place.rglob("*.tmp"))
    for s in range(plan.n_stripes):
        if not second.stripe_done(s):
            second.write_stripe(s, *parts_of(X, plan, s))
    second.write_table("counts", np.diff(X.indptr).astype(np.uint32), of="columns")
    straight = sparse_store(place.parents[1] / "t", X)
    resumed = second.commit()
    assert resumed.verify().ok and all(
        same_block(a.load(), b.load()) for a, b in zip(resumed.column_blocks(), straight.column_blocks(), strict=True)
    )


def test_resume_of_another_plan_begins_anew(begun):
    X, plan, writer = begun
    writer.write_stripe(0, *parts_of(X, plan, 0))
    other = BlockWriter.create(writer.url, BlockMeta(40, 60, "sparse", "float64"), plan, resume=True)
    assert not other.stripe_done(0) and not list(Path(writer.url).glob("v1/columns/rows/c/*"))
    with pytest.raises(SchemaError, match=r"does not exist|layout"):
        other.write_stripe(0, *parts_of(X, plan, 0), layout="neither")


KILLED = """
import sys, time
import numpy as np
from gramplane.storage import BlockWriter, BlockMeta, plan_stripes
place = sys.argv[1]
counts = np.full(400, 1000)
plan = plan_stripes(counts, 8, stripe_bytes=8 * 20_000)
writer = BlockWriter.create(place, BlockMeta(1000, 400, "sparse", "float64"), plan, resume=True)
print("begun", flush=True)
for s in range(plan.n_stripes):
    if writer.stripe_done(s):
        continue
    k = int(plan.edges[s + 1] - plan.edges[s])
    values = np.arange(1000.0 * k) + s
    writer.write_stripe(s, counts[:k], np.tile(np.arange(1000), k), values)
    time.sleep(0.02)
writer.write_table("counts", counts.astype(np.uint32), of="columns")
print(writer.commit().digest, flush=True)
"""


def run_writer(place):
    return subprocess.Popen([sys.executable, "-c", KILLED, str(place)], stdout=subprocess.PIPE, text=True)


def test_killed_writers_leave_nothing_torn_and_are_resumed(tmp_path):
    straight = run_writer(tmp_path / "straight").communicate()[0].split()[-1]
    rng = random.Random(2)
    acknowledged = 0
    for _ in range(4):
        process = run_writer(tmp_path / "s")
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        time.sleep(rng.uniform(0.0, 0.08))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (tmp_path / "s/current.json").exists() and not (tmp_path / "s/v1/manifest.json").exists()
        journal = (tmp_path / "s/v1/journal.jsonl").read_bytes().splitlines()
        listed = {k: v for line in journal if line for k, v in json.loads(line).items() if k != "plan"}
        for key, (nbytes, crc) in listed.items():
            data = (tmp_path / "s/v1" / key).read_bytes()
            assert (len(data), crc32c(data)) == (nbytes, crc)
        assert len(listed) >= acknowledged  # what was acknowledged before is still there
        acknowledged = len(listed)
    assert run_writer(tmp_path / "s").communicate()[0].split()[-1] == straight
    assert BlockStore.open(tmp_path / "s").verify().ok and not list((tmp_path / "s").rglob("*.tmp"))


# -- full disks ------------------------------------------------------------------------------------------------------------


class FullDisk:
    """os.write that fails after a number of bytes, writing the last piece in part as a real disk does."""

    def __init__(self, room):
        self.room, self.write = room, os.write

    def __call__(self, fd, data):
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self.write(fd, memoryview(data)[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize("room", [0, 100, 300, 1000, 3000, 6000])
def test_full_disk_is_reported_and_survived(tmp_path, monkeypatch, room):
    X = random_sparse(40, 60)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", FullDisk(room))
        with pytest.raises(OutOfSpace) as caught:
            sparse_store(tmp_path / "s", X)
    error = caught.value
    assert isinstance(error, OSError) and error.errno == errno.ENOSPC and error.needed > 0
    assert error.path.startswith(str(tmp_path)) and str(error.needed) in str(error) and error.path in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.path, copy.needed, str(copy)) == (error.path, error.needed, str(error))
    assert not list(tmp_path.rglob("*.tmp"))
    resumed = sparse_store(tmp_path / "s", X, resume=True)
    assert resumed.digest == sparse_store(tmp_path / "t", X).digest and resumed.verify().ok


def test_file_size_limit_of_the_system(tmp_path):
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "import numpy as np; from tests.support.stores import dense_store; from gramplane.storage import OutOfSpace\n"
        "try: dense_store(sys.argv[1], np.ones((100, 100)), stripe_bytes=1 << 20)\n"
        "except OutOfSpace as error: print('OutOfSpace', error.needed)\n"
    )
    found = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.split() == ["OutOfSpace", "80000"], found.stderr
    assert not list(tmp_path.rglob("*.tmp"))


def test_space_is_checked_before_work(tmp_path):
    require_space(tmp_path / "not/yet/there", 1)
    with pytest.raises(OutOfSpace, match=str(1 << 60)):
        require_space(tmp_path / "not/yet/there", 1 << 60)


def test_other_errors_of_the_system_pass_unchanged(tmp_path, monkeypatch):
    def refuse(fd, data):
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(OSError, match="I/O error") as caught:
        sparse_store(tmp_path / "s", random_sparse(4, 4))
    assert not isinstance(caught.value, OutOfSpace)


def test_dense_float32_may_be_stored_as_float64(tmp_path):
    X = np.random.default_rng(0).random((9, 5)).astype(np.float32)
    plan = plan_dense(9, 5, 8)
    writer = BlockWriter.create(tmp_path / "s", BlockMeta(9, 5, "dense", "float64"), plan)
    writer.write_dense(0, 0, X)
    assert np.array_equal(writer.commit().columns(range(5)), X.astype(np.float64))
    assert dense_store(tmp_path / "f", np.asfortranarray(X)).digest == dense_store(tmp_path / "c", X).digest
