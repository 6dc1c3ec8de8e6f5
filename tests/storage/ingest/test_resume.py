"""Interrupted ingests: killed at every step and continued to the same bytes; changed sources; locks; full disks; finished stores."""

import gzip
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from gramplane.storage import BlockStore, BlockWriter, DataError, OutOfSpace, RunLocked, SchemaError
from gramplane.storage.blocks import writer
from gramplane.storage.ingest import buckets, build, ingest, reading, scratch
from gramplane.storage.ingest.reading import ColumnCounts, Reading
from gramplane.storage.ingest.text import spool, text
from gramplane.storage.ingest.text.spool import hold_block
from gramplane.storage.locks import file_lock
from tests.support.svmlight_files import check_store, labels_for, random_csr, write_file


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Many ranges, buckets and stripes, all outside memory."""
    monkeypatch.setattr(spool, "PIECE", 2000)
    monkeypatch.setattr(text, "PIECE", 2000)
    monkeypatch.setattr(text, "_TEXT_TO_MEMORY", 1 << 40)
    monkeypatch.setattr(reading, "HELD_SHARE", 1 << 40)
    monkeypatch.setattr(buckets, "BUCKET_NNZ", 150)
    monkeypatch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 2048)
    monkeypatch.setattr("gramplane.storage.ingest.build._PIECE_SHARE", 1 << 20)


def killer(calls):
    """A progress callback that ends the ingest at its ``calls``-th call."""
    left = [calls]

    def progress(done, total, phase):
        assert 0 <= done <= total, phase
        left[0] -= 1
        if left[0] == 0:
            raise Killed(phase)

    return progress


def in_phase(name, calls):
    """A progress callback that ends the ingest at the ``calls``-th call of a phase."""
    end = killer(calls)
    return lambda done, total, phase: end(done, total, phase) if phase == name else None


def sources(folder):
    X, y = write_file(folder / "a.svm", n_rows=200)
    (folder / "a.svm.gz").write_bytes(gzip.compress((folder / "a.svm").read_bytes()))
    A = X.toarray()
    return {
        "plain": (folder / "a.svm", {"scale": "unit-column"}, X, y),
        "packed": (folder / "a.svm.gz", {"scale": "unit-row"}, X, y),
        "sparse": ((X, y), {"scale": "standard"}, X, y),
        "dense": ((A, y), {"scale": "standard"}, A, y),
    }


@pytest.mark.parametrize("kind", ["plain", "packed", "sparse", "dense"])
def test_killed_at_every_step_and_continued(tmp_path, kind):
    source, options, X, y = sources(tmp_path)[kind]
    met = []
    straight = ingest(source, tmp_path / "straight", layout="both", progress=lambda done, total, phase: met.append(phase), **options)
    check_store(straight, X, y, rows=True)
    assert set(met) == ({"read", "columns", "rows", "tables"} if kind == "dense" else {"read", "partition", "sort", "rows"})
    ends = [k for k in range(1, len(met)) if met[k - 1] != met[k]]
    for calls in sorted(
        {1, 2, 3, *ends, *(k + 1 for k in ends), *(k + 3 for k in ends), len(met)} - set(range(len(met) + 1, len(met) + 9))
    ):
        with pytest.raises(Killed) as end:
            ingest(source, tmp_path / "S", layout="both", progress=killer(calls), **options)
        assert str(end.value) == met[calls - 1]
        assert (tmp_path / "S.ingest" / "journal.jsonl").exists()
        store = ingest(source, tmp_path / "S", layout="both", **options)
        assert store.digest == straight.digest, (calls, met[calls - 1])
        assert not (tmp_path / "S.ingest").exists()
        shutil.rmtree(tmp_path / "S")


def test_work_that_was_done_is_not_repeated(tmp_path, monkeypatch):
    source, options, *_ = sources(tmp_path)["plain"]
    n_pieces = -(-source.stat().st_size // 2000)
    parsed = []
    read = text._Reader._parse_range
    monkeypatch.setattr(text._Reader, "_parse_range", lambda self, *args: parsed.append(args[1]) or read(self, *args))
    with pytest.raises(Killed):
        ingest(source, tmp_path / "S", jobs=1, progress=killer(3), **options)
    first = len(parsed)
    with pytest.raises(Killed):
        ingest(source, tmp_path / "S", jobs=1, progress=killer(n_pieces + 3), **options)
    assert len(parsed) <= n_pieces + first - 2
    stripes = []
    sort = build._sort_stripe
    monkeypatch.setattr(
        "gramplane.storage.ingest.build._sort_stripe",
        lambda meta, records, s, *rest: stripes.append(s) or sort(meta, records, s, *rest),
    )
    monkeypatch.setattr("gramplane.storage.ingest.build.fill_buckets", lambda *args: pytest.fail("partitioned again"))
    phases = []
    with pytest.raises(pytest.fail.Exception, match="partitioned again"):
        ingest(source, tmp_path / "S", progress=lambda done, total, phase: phases.append(phase), **options)
    monkeypatch.setattr("gramplane.storage.ingest.build.fill_buckets", buckets.fill_buckets)
    with pytest.raises(Killed, match="sort"):
        ingest(source, tmp_path / "S", jobs=1, progress=in_phase("sort", 4), **options)
    done = set(stripes)
    monkeypatch.setattr("gramplane.storage.ingest.build.fill_buckets", lambda *args: pytest.fail("partitioned again"))
    stripes.clear()
    ingest(source, tmp_path / "S", **options)
    # Four were written; those sorted ahead of them are sorted again.
    assert set(range(4)) <= done <= set(range(6))
    assert min(stripes) == 4
    assert "read" not in phases[n_pieces:]


@pytest.mark.parametrize("phase", ["read", "partition", "sort"])
def test_sigkill_and_another_process(tmp_path, phase):
    source, *_ = sources(tmp_path)["plain"]
    code = f"""
    import os, signal
    from gramplane.storage.ingest import buckets, build, ingest
    from gramplane.storage.ingest.text import spool, text
    spool.PIECE = text.PIECE = 2000
    text._TEXT_TO_MEMORY = 1 << 40
    def progress(done, total, phase):
        if phase == {phase!r} and done > total // 2:
            os.kill(os.getpid(), signal.SIGKILL)
    ingest({str(source)!r}, {str(tmp_path / "S")!r}, progress=progress)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (tmp_path / "S.ingest").exists()
    store = ingest(source, tmp_path / "S")
    assert store.digest == ingest(source, tmp_path / "straight").digest


def test_dense_chunks_that_were_written_are_kept(tmp_path, monkeypatch):
    source, options, A, y = sources(tmp_path)["dense"]
    calls = []
    write = BlockWriter.write_dense
    monkeypatch.setattr(
        BlockWriter, "write_dense", lambda self, i, j, block, **rest: calls.append((i, j)) or write(self, i, j, block, **rest)
    )
    interrupted(source, tmp_path / "S", calls=30, **options)
    first = set(calls)
    calls.clear()
    check_store(ingest(source, tmp_path / "S", **options), A, y)
    assert len(first) > 10
    assert not first & set(calls)


def interrupted(source, folder, calls=9, **options):
    with pytest.raises(Killed):
        ingest(source, folder, progress=killer(calls), **options)


def test_a_source_that_changed_is_read_afresh(tmp_path):
    source, *_ = sources(tmp_path)["plain"]
    interrupted(source, tmp_path / "S")
    X, y = write_file(source, seed=77, n_rows=200)
    check_store(ingest(source, tmp_path / "S", n_features=X.shape[1]), X, y)
    interrupted(source, tmp_path / "T")
    content = bytearray(source.read_bytes())
    place = content.index(b".") + 1
    content[place] = ord("9") if content[place] != ord("9") else ord("8")
    source.write_bytes(content)
    store = ingest(source, tmp_path / "T")
    assert store.digest == ingest(source, tmp_path / "U").digest


def test_packed_text_that_changed_and_is_as_long_is_read_afresh(tmp_path):
    plain, packed = tmp_path / "a.svm", tmp_path / "a.svm.gz"
    write_file(plain, n_rows=200)
    content = bytearray(plain.read_bytes())
    packed.write_bytes(gzip.compress(content, 0))
    interrupted(packed, tmp_path / "S")
    place = content.index(b".") + 1
    content[place] = ord("9") if content[place] != ord("9") else ord("8")
    packed.write_bytes(gzip.compress(content, 0))
    assert ingest(packed, tmp_path / "S").digest == ingest(packed, tmp_path / "T").digest


def test_other_options_start_afresh(tmp_path):
    source, _, X, _ = sources(tmp_path)["plain"]
    interrupted(source, tmp_path / "S")
    store = ingest(source, tmp_path / "S", dtype="float32")
    assert store.meta.dtype == "float32"
    assert np.array_equal(store.columns(np.arange(X.shape[1])).data, X.tocsc().data.astype(np.float32))


def test_resume_can_be_declined_and_a_reboot_forgets(tmp_path, monkeypatch):
    source, _, X, y = sources(tmp_path)["plain"]
    for case in ("declined", "rebooted"):
        folder = tmp_path / case
        interrupted(source, folder)
        parts = folder.with_name(case + ".ingest")
        for part in parts.glob("part-*"):
            part.write_bytes(b"lost by the machine")
        if case == "rebooted":
            monkeypatch.setattr(scratch, "boot_id", lambda: "another boot")
        check_store(ingest(source, folder, resume=case != "declined"), X, y)


def test_a_torn_journal_line_is_ignored(tmp_path):
    source, _, X, y = sources(tmp_path)["plain"]
    interrupted(source, tmp_path / "S", calls=5)
    journal = tmp_path / "S.ingest" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    interrupted(source, tmp_path / "S", calls=4)
    check_store(ingest(source, tmp_path / "S"), X, y)


def test_work_in_memory_is_done_again(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_TEXT_TO_MEMORY", 1)
    source, options, X, y = sources(tmp_path)["plain"]
    with pytest.raises(Killed):
        ingest(source, tmp_path / "S", progress=in_phase("sort", 3), **options)
    store = ingest(source, tmp_path / "S", **options)
    check_store(store, X, y)
    assert store.digest == ingest(source, tmp_path / "straight", **options).digest


def test_packed_text_without_a_last_line_end_killed_after_its_end(tmp_path, monkeypatch):
    source, _, X, y = sources(tmp_path)["packed"]
    source.write_bytes(gzip.compress(gzip.decompress(source.read_bytes())[:-1]))
    note = scratch.Scratch.note
    monkeypatch.setattr(
        scratch.Scratch, "note", lambda self, step, **values: killer(1)(0, 0, step) if step == "read" else note(self, step, **values)
    )
    with pytest.raises(Killed):
        ingest(source, tmp_path / "S")
    monkeypatch.setattr(scratch.Scratch, "note", note)
    check_store(ingest(source, tmp_path / "S"), X, y)


def test_columns_of_blocks_read_before_are_counted_to_the_greatest():
    cols = [np.array([7, 4096, 0, 7], np.int32), np.empty(0, np.int32), np.array([3, 9000], np.int32)]
    again = Reading([hold_block({"cols": part}) for part in cols], counts=ColumnCounts())
    reading.recount_columns(again)
    np.testing.assert_array_equal(again.counts.width(0, 9500), np.bincount(np.concatenate(cols), minlength=9500))
    assert (again.lowest, again.highest) == (0, 9000)


def test_two_at_once(tmp_path):
    source, _, X, y = sources(tmp_path)["plain"]
    (tmp_path / "S.ingest").mkdir()
    with file_lock(tmp_path / "S.ingest" / "lock"), pytest.raises(RunLocked, match=f"held by process {os.getpid()}"):
        ingest(source, tmp_path / "S")
    check_store(ingest(source, tmp_path / "S"), X, y)


def test_foreign_files_are_left_alone(tmp_path):
    source, _, X, y = sources(tmp_path)["plain"]
    (tmp_path / "S.ingest").mkdir()
    (tmp_path / "S.ingest" / "thesis.tex").write_text("x")
    with pytest.raises(SchemaError, match="foreign files"):
        ingest(source, tmp_path / "S")
    other = tmp_path / "fast"
    other.mkdir()
    check_store(ingest(source, tmp_path / "S", scratch=other), X, y)
    assert (tmp_path / "S.ingest" / "thesis.tex").exists()
    assert list(other.iterdir()) == []


# -- a store that is there ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "packed", "sparse", "dense"])
def test_a_finished_store_of_the_same_source_is_left_as_it_is(tmp_path, kind):
    source, options, *_ = sources(tmp_path)[kind]
    store = ingest(source, tmp_path / "S", **options)
    before = (tmp_path / "S" / "v1" / "manifest.json").stat().st_mtime_ns
    again = ingest(source, tmp_path / "S", progress=lambda *_: pytest.fail("worked"), **options)
    assert again.digest == store.digest
    assert (tmp_path / "S" / "v1" / "manifest.json").stat().st_mtime_ns == before


def test_a_moved_source_is_the_same_source(tmp_path):
    source, *_ = sources(tmp_path)["plain"]
    store = ingest(source, tmp_path / "S")
    moved = source.rename(tmp_path / "moved.svm")
    assert ingest(moved, tmp_path / "S").digest == store.digest


def test_a_finished_store_of_other_data_is_refused_unless_overwritten(tmp_path):
    source, *_ = sources(tmp_path)["plain"]
    store = ingest(source, tmp_path / "S")
    for other, options in [(source, {"scale": "standard"}), ((random_csr(9), labels_for(9, 120)), {})]:
        with pytest.raises(SchemaError, match="set overwrite to replace it"):
            ingest(other, tmp_path / "S", **options)
        assert BlockStore.open(tmp_path / "S").digest == store.digest
    X = random_csr(9)
    check_store(ingest((X, labels_for(9, 120)), tmp_path / "S", overwrite=True), X, labels_for(9, 120))


def test_bad_input_after_an_interrupt_leaves_nothing(tmp_path):
    source, *_ = sources(tmp_path)["plain"]
    interrupted(source, tmp_path / "S", calls=2)
    content = source.read_bytes()
    source.write_bytes(content[:-3] + b"x\n\n")
    with pytest.raises(DataError):
        ingest(source, tmp_path / "S")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.svm", "a.svm.gz"]


# -- full disks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [100, 1500, 9_000, 20_000])
def test_a_full_disk_is_reported_and_the_work_continued(tmp_path, limit):
    source, _, X, y = sources(tmp_path)["plain"]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(OutOfSpace, match=r"no space left to write \d+ bytes to"):
            ingest(source, tmp_path / "S")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    check_store(ingest(source, tmp_path / "S"), X, y)
    assert not (tmp_path / "S.ingest").exists()


@pytest.mark.parametrize("moment", ["journal", "before", "during"])
def test_killed_after_the_last_step(tmp_path, monkeypatch, moment):
    """The store is whole; what a kill left of journal and scratch goes with the next command."""
    source, _, X, y = sources(tmp_path)["plain"]
    space = tmp_path / "S.ingest"

    def dies(folder, **options):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        if moment == "journal":
            patch.setattr(writer.Journal, "remove", dies)
        elif moment == "before":
            patch.setattr(scratch.Scratch, "remove", dies)
        else:
            patch.setattr(scratch.shutil, "rmtree", dies)
        ingest(source, tmp_path / "S")
    assert (space / "lock").exists()
    check_store(ingest(source, tmp_path / "S"), X, y)
    assert not space.exists()
    assert not (tmp_path / "S" / "v1" / writer.JOURNAL).exists()


def test_scratch_in_use_beside_a_finished_store_stays(tmp_path):
    source, _, X, y = sources(tmp_path)["plain"]
    ingest(source, tmp_path / "S")
    (tmp_path / "S.ingest").mkdir()
    with file_lock(tmp_path / "S.ingest" / "lock"):
        check_store(ingest(source, tmp_path / "S"), X, y)
        assert (tmp_path / "S.ingest" / "lock").exists()
