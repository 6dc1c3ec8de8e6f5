"""Object stores: credentials, private scratch, and what their answers mean."""

import contextlib
import os
import stat
import threading
import time

import numpy as np
import pytest

from gramplane.storage import BlockStore, DataError, MissingBlock, RunLocked, SchemaError, digest_of, errors, remote, urls, versions
from gramplane.storage.ingest import ingest
from gramplane.storage.ingest import scratch as scratches
from gramplane.storage.ingest.files import make_local
from gramplane.storage.ingest.scratch import Scratch, private_folder
from gramplane.storage.locks import Lease, file_lock
from gramplane.storage.remote import ASK_THE_MACHINE, RemoteObjects, is_unsigned
from gramplane.storage.urls import whole_file
from gramplane.workflows.exits import Exit, exit_code
from tests.support.s3 import s3_server

pytest.importorskip("obstore")


@pytest.fixture
def s3(monkeypatch):
    urls._remotes.clear()
    with s3_server("b") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server
    urls._remotes.clear()


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        ("s3", "AWS_ACCESS_KEY_ID"),
        ("s3a", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        ("gs", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("abfss", "AZURE_CLIENT_SECRET"),
    ],
)
def test_requests_are_signed_only_with_credentials_or_with_leave(scheme, name, tmp_path):
    bare = {"HOME": str(tmp_path), "AWS_REGION": "x", "AZURE_STORAGE_ACCOUNT_NAME": "a"}
    assert is_unsigned(scheme, bare) and is_unsigned(scheme, {**bare, name: ""}) and is_unsigned(scheme, {**bare, ASK_THE_MACHINE: "0"})
    assert not is_unsigned(scheme, {**bare, name: "x"}) and not is_unsigned(scheme, {**bare, ASK_THE_MACHINE: "1"})
    with pytest.raises(errors.SchemaError, match=ASK_THE_MACHINE):
        is_unsigned(scheme, {ASK_THE_MACHINE: "maybe"})


def test_a_missing_object_is_not_a_missing_bucket(s3):
    there, gone = urls.open_objects("s3://b/x"), urls.open_objects("s3://gone/x")
    assert there.size("k") is None
    with pytest.raises(MissingBlock):
        there.read("k")
    for ask in (gone.size, gone.read, gone.delete, lambda key: gone.write(key, b"1")):
        with pytest.raises(errors.NothingThere, match="bucket of s3://gone/x"):
            ask("k")


@pytest.mark.parametrize("tags", [True, False])
def test_what_is_cut_half_way_or_hangs_is_asked_for_again(s3, tmp_path, monkeypatch, tags):
    data = np.random.default_rng(0).integers(0, 256, 300_000, np.uint8)
    monkeypatch.setenv("AWS_TIMEOUT", "1s")
    objects, part = urls.open_objects("s3://b/x"), np.empty(200_000, np.uint8)
    objects.write("k", data)
    s3.tags = tags
    for fault in ("cut", "hung"):
        for read in (lambda: objects.read("k"), lambda: objects.read_into("k", part, 50_000, data.nbytes)):
            setattr(s3, fault, 1)
            found = read()
            assert getattr(s3, fault) == 0 and np.array_equal(
                part if found is None else found, data[50_000:250_000] if found is None else data
            )
    s3.cut = 2
    objects.fetch("k", tmp_path / "copy")
    assert s3.cut == 0 and (tmp_path / "copy").read_bytes() == data.tobytes()
    if not tags:
        s3.cut = 9
        with pytest.raises(errors.Unreachable, match="its answer ends half way"):
            objects.read("k")
        assert s3.cut == 6
    assert remote._RETRY["retry_timeout"] > remote._CLIENT["timeout"], "one that hangs would not be sent again"


# -- writers of one store -------------------------------------------------------------------------------------------------------------


def rows(k):
    return np.full((8, 3), float(k + 1)) + np.arange(3), np.arange(8) % 2


def test_while_one_writes_a_store_others_end_with_99(s3, monkeypatch, tmp_path):
    """Three machines wrote one store, all ended with 0, and the last one won; the temporary folder of each held a lock of its own."""
    monkeypatch.setattr(Lease.__init__, "__defaults__", (0.05,))
    with urls.open_objects("s3://b/s").held(), pytest.raises(RunLocked, match=r"is held by process \d+") as caught:
        ingest(rows(0), "s3://b/s", scratch=tmp_path)
    assert exit_code(caught.value) == Exit.HELD and not s3.buckets["b"]
    ended, start = {}, threading.Barrier(3)

    def write(k):
        start.wait()
        try:
            ended[k] = ingest(rows(k), "s3://b/s", scratch=tmp_path / str(k))
        except (RunLocked, SchemaError) as error:  # held, or finished meanwhile with other content
            ended[k] = error

    threads = [threading.Thread(target=write, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [k for k, end in ended.items() if isinstance(end, BlockStore)]
    assert BlockStore.open("s3://b/s").digest == ended[winner].digest == ingest(rows(winner), tmp_path / "local").digest
    assert not [key for key in s3.buckets["b"] if key.endswith("/lock")]


def test_writers_that_lose_their_lease_mix_nothing_and_the_first_to_end_wins(s3, monkeypatch, tmp_path):
    """Interleaved writers took the same folder, and both stores were damaged (6)."""
    ingest(rows(9), "s3://b/s", scratch=tmp_path)
    ends, real = [], versions.publish_version

    def meanwhile(base, name, digest, seen):
        if not ends:
            ends.append(name)
            with monkeypatch.context() as patch:
                patch.setattr(RemoteObjects, "held", lambda objects: contextlib.nullcontext())
                ends.append(ingest(rows(1), "s3://b/s", scratch=tmp_path / "other", overwrite=True))
        return real(base, name, digest, seen)

    monkeypatch.setattr(versions, "publish_version", meanwhile)
    with pytest.raises(RunLocked, match="was replaced by another process while this process wrote it") as caught:
        ingest(rows(0), "s3://b/s", scratch=tmp_path, overwrite=True)
    assert exit_code(caught.value) == Exit.HELD
    store = BlockStore.open("s3://b/s")
    assert store.digest == ends[1].digest and store.place.endswith("/v3") and ends[0] == "v2"
    assert {key.split("/")[1] for key in s3.buckets["b"]} == {"current.json", "v1", "v3"}


def test_what_a_killed_writer_began_is_neither_taken_nor_kept(s3, tmp_path):
    s3.buckets["b"]["s/v1/columns/zarr.json"] = b"half"
    assert ingest(rows(0), "s3://b/s", scratch=tmp_path).place.endswith("/v2")
    assert {key.split("/")[1] for key in s3.buckets["b"]} == {"current.json", "v2"}


def test_large_objects_listings_in_pages_and_clearing(s3):
    s3.page = 3
    objects, data = urls.open_objects("s3://b/x"), os.urandom(12 << 20)
    s3.buckets["b"]["beside"] = b"stays"
    objects.write("large", data)
    for k in range(7):
        objects.write(f"c/{k}", b"v")
    assert objects.read("large").tobytes() == data and sorted(objects.listing()) == [*(f"c/{k}" for k in range(7)), "large"]
    objects.clear()
    assert s3.buckets["b"] == {"beside": b"stays"}


def test_faults_of_a_remote_source_name_its_url(s3, tmp_path):
    s3.buckets["b"]["bad.svm"] = b"1 1:1\n1 2:x\n"
    with pytest.raises(DataError, match=r"^s3://b/bad\.svm:2:"):
        ingest("s3://b/bad.svm", tmp_path / "s")
    with make_local("s3://b/bad.svm", tmp_path) as copy:
        assert stat.S_IMODE(os.stat(os.path.dirname(copy)).st_mode) == 0o700
    assert os.listdir(tmp_path) == []


def test_the_digest_of_an_object_is_that_of_its_bytes(s3, tmp_path):
    (tmp_path / "x.csv").write_bytes(b"1,2\n")
    s3.buckets["b"] |= {"x.csv": b"1,2\n", "y.csv": b"1,3\n"}
    assert digest_of("s3://b/x.csv") == digest_of(tmp_path / "x.csv") != digest_of("s3://b/y.csv")
    with pytest.raises(MissingBlock):
        digest_of("s3://b/z.csv")


def test_scratch_for_an_object_store_is_private_and_found_again(tmp_path):
    first = private_folder(tmp_path, "gramplane-x-", make=True)
    assert stat.S_IMODE(first.stat().st_mode) == 0o700 and private_folder(tmp_path, "gramplane-x-", make=True) == first
    first.chmod(0o755)  # not ours any more: others may have been in it
    second = private_folder(tmp_path, "gramplane-x-", make=True)
    assert second != first and private_folder(tmp_path, "gramplane-x-", make=False) == second
    (tmp_path / "gramplane-y-0.ingest").symlink_to(second)
    assert not private_folder(tmp_path, "gramplane-y-", make=True).is_symlink()


@pytest.mark.parametrize(
    ("hours", "booted", "held", "is_gone"), [(1, 99, False, False), (25, 99, False, True), (25, 99, True, False), (2, 1, False, True)]
)
def test_scratch_of_failed_ingests_into_object_stores_goes_after_a_day(tmp_path, monkeypatch, hours, booted, held, is_gone):
    """It stayed until somebody cleaned the temporary folder, and filled its disk meanwhile."""
    monkeypatch.setattr(scratches.psutil, "boot_time", lambda: time.time() - 3600 * booted)
    left = private_folder(tmp_path, f"gramplane-{'a' * 16}-", make=True)
    with pytest.raises(OSError), Scratch(left, {"of": 1}, resume=True) as space:
        space.path("values").write_bytes(b"x" * 1000)
        raise OSError
    foreign = tmp_path / f"gramplane-{'b' * 16}-x.ingest"
    foreign.mkdir(mode=0o755)
    (foreign / "file").touch()
    for path in (*left.iterdir(), left, *foreign.iterdir(), foreign):
        os.utime(path, 2 * (time.time() - 3600 * hours,))
    with file_lock(left / "lock") if held else contextlib.nullcontext():
        for path in (*left.iterdir(), left):
            os.utime(path, 2 * (time.time() - 3600 * hours,))
        own = private_folder(tmp_path, f"gramplane-{'c' * 16}-", make=True)
    assert own.exists() and foreign.exists() and left.exists() is not is_gone


def test_of_two_ingests_that_begin_together_one_goes_on(tmp_path):
    folders, start = [], threading.Barrier(8)

    def begin():
        start.wait()
        folders.append(private_folder(tmp_path, "gramplane-z-", make=True))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(folders)) == 1
    with Scratch(folders[0], {}, resume=True), pytest.raises(RunLocked):
        Scratch(folders[0], {}, resume=True)


def test_an_ingest_into_an_object_store_works_in_private(s3, tmp_path, monkeypatch):
    made = []
    keep = scratches.Scratch.__init__
    monkeypatch.setattr(scratches.Scratch, "__init__", lambda self, folder, *a, **k: (made.append(folder), keep(self, folder, *a, **k))[1])
    (tmp_path / "a.svm").write_text("1 1:1\n-1 2:1\n")
    for k in range(2):
        ingest(tmp_path / "a.svm", f"s3://b/s{k}", scratch=tmp_path / "scratch")
    assert len({folder.name for folder in made}) == 2 and not list((tmp_path / "scratch").iterdir())


def test_a_file_takes_its_place_whole_or_not_at_all(s3, tmp_path):
    for url in (tmp_path / "p.csv", "s3://b/p.csv"):
        with whole_file(url, 3) as path:
            path.write_bytes(b"old")
        with pytest.raises(ZeroDivisionError), whole_file(url, 3) as path:
            path.write_bytes(b"new")
            raise ZeroDivisionError
    assert (tmp_path / "p.csv").read_bytes() == b"old" == s3.buckets["b"]["p.csv"] and os.listdir(tmp_path) == ["p.csv"]
