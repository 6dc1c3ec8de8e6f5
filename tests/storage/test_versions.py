"""Versions of a store: who reads stays on what he opened, who replaces it leaves the old or the new store, and nothing of anybody else."""

import gc
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gramplane.storage import BlockStore, DigestMismatch, OutOfSpace, SchemaError, digest_of, open_shared
from gramplane.storage import objects as stored_objects
from gramplane.storage import versions as stored_versions
from gramplane.storage.blocks import writer
from gramplane.storage.ingest import ingest
from gramplane.storage.urls import open_objects
from gramplane.storage.versions import POINTER, read_versions, remove_versions, replaced_versions
from tests.support.stores import random_sparse, sparse_store, write_sparse


def data(seed: int, n: int = 30, d: int = 6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), np.arange(n) % 2


def made(place: Path, seed: int, **options) -> BlockStore:
    return ingest(data(seed), place, overwrite=True, **options)


def values(store: BlockStore) -> np.ndarray:
    return np.asarray(store.columns(np.arange(store.n_cols)))


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_a_new_content_is_a_new_version_and_the_old_one_goes_when_nobody_reads_it(tmp_path):
    place = tmp_path / "s"
    first = made(place, 0)
    second = made(place, 1)
    assert names(place) == ["current.json", "v1", "v2"] and (first.url, second.url) == (str(place), str(place))
    assert np.array_equal(values(first), data(0)[0]) and np.array_equal(values(second), data(1)[0])
    assert first.verify().ok and BlockStore.open(place).digest == second.digest == digest_of(place)
    first.confirm()
    del first
    gc.collect()
    third = made(place, 2)
    assert names(place) == ["current.json", "v2", "v3"], "the first goes, the second is still read"
    assert third.digest == made(tmp_path / "t", 2).digest, "the digest speaks of the content alone"
    assert replaced_versions(open_objects(place)) == ["v2"] and remove_versions(open_objects(place), ["v2"]) == []
    shutil.rmtree(place / "v2")
    (place / "v2").mkdir()
    assert remove_versions(open_objects(place), ["v2"]) == ["v2"] and names(place) == ["current.json", "v3"], "a kill left its folder"


def test_references_find_the_version_they_were_made_from(tmp_path):
    old = made(tmp_path / "s", 0)
    ref = old.column_blocks()[0]
    made(tmp_path / "s", 1)
    assert np.array_equal(ref.load(), data(0)[0]) and open_shared(old.url, old.digest) is not BlockStore.open(tmp_path / "s")
    assert np.array_equal(values(BlockStore.open(tmp_path / "s", old.digest)), data(0)[0])
    with pytest.raises(DigestMismatch, match="the store was replaced"):
        BlockStore.open(tmp_path / "s", "0" * 64)


READER = """
import sys
from gramplane.storage import BlockStore
store = BlockStore.open(sys.argv[1])
print(store.digest, flush=True)
sys.stdin.readline()
print(store.verify().ok, flush=True)
"""


def test_readers_in_other_processes_hold_their_version(tmp_path):
    made(tmp_path / "s", 0)
    gc.collect()
    process = subprocess.Popen([sys.executable, "-c", READER, str(tmp_path / "s")], stdin=-1, stdout=-1, text=True, env=_environment())
    assert process.stdout is not None and process.stdin is not None
    digest = process.stdout.readline().strip()
    made(tmp_path / "s", 1)
    gc.collect()
    assert read_versions(open_objects(tmp_path / "s")).holding(digest) == "v1"
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "True\n"
    process.communicate()
    made(tmp_path / "s", 2)
    assert not (tmp_path / "s/v1").exists() and read_versions(open_objects(tmp_path / "s")).holding(digest) is None


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


class Killed(BaseException):
    """The process ends here."""


def test_a_kill_at_any_write_leaves_the_old_or_the_new_store(quick_path, monkeypatch):
    """Every rename, removal and folder that a replacement makes is the last thing it does, once."""
    # Some hundred collections, late in a suite, would walk through millions of objects each.
    gc.collect()
    gc.freeze()
    first, second = made(quick_path / "a", 0).digest, made(quick_path / "b", 1).digest
    met, met_new = 0, 0
    for at in range(200):
        place = quick_path / f"s{at}"
        made(place, 0)
        gc.collect()
        with monkeypatch.context() as patch:
            left = [at]
            for module, name in ((os, "rename"), (os, "unlink"), (os, "rmdir"), (os, "mkdir"), (stored_objects, "sync_folder")):
                patch.setattr(module, name, _counting(left, getattr(module, name)))
            try:
                made(place, 1)
            except Killed:
                met += 1
            else:
                break
        found = BlockStore.open(place)
        assert found.digest in (first, second) and found.verify().ok
        met_new += found.digest == second
        del found
        gc.collect()
        assert made(place, 1).digest == second and not (place.with_name(f"s{at}.ingest")).exists()
        del patch
        gc.collect()
        made(place, 2)
        shutil.rmtree(place)
    assert 20 < met < 199 and 0 < met_new < met


def _counting(left, function):
    def counted(*words, **options):
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return function(*words, **options)

    return counted


def test_late_bad_input_leaves_the_old_store(tmp_path):
    old = made(tmp_path / "s", 0)
    with pytest.raises(ValueError, match="names has"):
        made(tmp_path / "s", 1, names=["a"])
    begun = writer.BlockWriter.create(tmp_path / "s", old.meta, old._layouts["columns"], overwrite=True)
    assert names(tmp_path / "s") == ["current.json", "v1", "v2"]
    begun.discard()
    assert names(tmp_path / "s") == ["current.json", "v1"] and BlockStore.open(tmp_path / "s").verify().ok


def test_the_disk_is_asked_for_room_beside_the_old_store(tmp_path, monkeypatch):
    made(tmp_path / "s", 0)
    asked = []
    monkeypatch.setattr(writer, "require_space", lambda path, needed: asked.append((str(path), needed)))
    made(tmp_path / "s", 1)
    assert asked == [(str(tmp_path / "s"), 30 * 6 * 8)]

    def full(path, needed):
        raise OutOfSpace(str(path), needed)

    monkeypatch.setattr(writer, "require_space", full)
    with pytest.raises(OutOfSpace):
        made(tmp_path / "s", 2)
    assert np.array_equal(values(BlockStore.open(tmp_path / "s")), data(1)[0])


@pytest.mark.parametrize("kind", ["stray", "in-version", "foreign-version"])
def test_files_that_the_store_did_not_write_are_refused_not_removed(tmp_path, kind):
    old = made(tmp_path / "s", 0)
    file = {"stray": "thesis.tex", "in-version": "v1/columns/thesis.tex", "foreign-version": "v7/thesis.tex"}[kind]
    (tmp_path / "s" / file).parent.mkdir(exist_ok=True)
    (tmp_path / "s" / file).write_text("years of work")
    with pytest.raises(SchemaError, match=r"thesis\.tex.*which are not overwritten; move them elsewhere"):
        made(tmp_path / "s", 1)
    assert (tmp_path / "s" / file).read_text() == "years of work" and BlockStore.open(tmp_path / "s").digest == old.digest


def test_other_kinds_of_stores_are_not_overwritten(tmp_path):
    from gramplane.storage import GramStore, write_model
    from gramplane.storage.meta import ColumnScale

    GramStore.create(tmp_path / "grams", data_digest="d", n=3, kernels=[("k", {})])
    write_model(tmp_path / "model", ColumnScale("none", np.ones(3), None, None))
    for name, said in (("grams", "a Gram store"), ("model", "a model")):
        before = {file: file.read_bytes() for file in (tmp_path / name).rglob("*") if file.is_file()}
        with pytest.raises(SchemaError, match=f"is {said}"):
            made(tmp_path / name, 1)
        assert before == {file: file.read_bytes() for file in (tmp_path / name).rglob("*") if file.is_file()}


def test_a_damaged_store_can_be_replaced(tmp_path):
    for number, victim in enumerate([POINTER, "v1/manifest.json", "v1/zarr.json"]):
        place = tmp_path / str(number)
        made(place, 0)
        good = (place / victim).read_bytes()
        (place / victim).write_bytes(good.replace(b":", b";", 1))
        with pytest.raises(DigestMismatch):
            BlockStore.open(place)
        assert np.array_equal(values(made(place, 1)), data(1)[0]) and BlockStore.open(place).place == str(place / "v2")


def test_a_pointer_is_checked(tmp_path):
    made(tmp_path / "s", 0)
    pointer = tmp_path / "s" / POINTER
    good = pointer.read_bytes()
    for bit in range(0, 8 * len(good), 7):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        pointer.write_bytes(bad)
        with pytest.raises((DigestMismatch, SchemaError)):
            BlockStore.open(tmp_path / "s")
    shapes = ([], {}, {"v1": 5}, "v1", None)
    misshapen = [{"versions": versions} for versions in shapes] + [{"current": current} for current in ([], None, 1, "v7", {})]
    for said in misshapen:
        fields = {**json.loads(good), **said}
        fields.pop("digest")
        pointer.write_bytes(_sealed(fields))
        with pytest.raises(DigestMismatch, match=r"does not name a current version"):
            BlockStore.open(tmp_path / "s")
    for said, error in (({"current": "../elsewhere"}, DigestMismatch), ({"format": "gramplane.store/9"}, SchemaError)):
        fields = {**json.loads(good), **said}
        fields.pop("digest")
        versions = {"../elsewhere": "0" * 64, **fields["versions"]}
        sealed = _sealed({**fields, "versions": versions})
        pointer.write_bytes(sealed)
        with pytest.raises(error, match=r"elsewhere|gramplane\.store/9"):
            BlockStore.open(tmp_path / "s")


def _sealed(fields) -> bytes:
    import hashlib

    from gramplane.storage.errors import canonical_json

    return canonical_json({**fields, "digest": hashlib.sha256(canonical_json(fields)).hexdigest()})


def test_a_manifest_of_another_version_is_refused(tmp_path):
    old, new = made(tmp_path / "s", 0), made(tmp_path / "s", 1)
    shutil.copytree(old.place, new.place, dirs_exist_ok=True)
    with pytest.raises(DigestMismatch, match=r"current\.json says"):
        BlockStore.open(tmp_path / "s")


def test_a_store_removed_and_made_again_is_not_what_was_opened(tmp_path):
    store = made(tmp_path / "s", 0)
    shutil.rmtree(tmp_path / "s")
    with pytest.raises(DigestMismatch, match="was replaced while it was read"):
        store.confirm()
    made(tmp_path / "s", 1)
    with pytest.raises(DigestMismatch, match="a mixture of both stores are discarded"):
        store.confirm()


def test_readers_survive_replacements_that_never_stop(tmp_path, monkeypatch):
    """The version that the pointer named is gone when it is to be locked: the pointer is read again."""
    made(tmp_path / "s", 0)
    gc.collect()
    lock, seen = stored_versions._shared_lock, []

    def late(objects):
        seen.append(objects.url)
        if len(seen) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(stored_versions, "_shared_lock", lock)
                made(tmp_path / "s", 1)
            gc.collect()
        return lock(objects)

    monkeypatch.setattr(stored_versions, "_shared_lock", late)
    store = BlockStore.open(tmp_path / "s")
    assert np.array_equal(values(store), data(1)[0]) and store.place == str(tmp_path / "s/v2")


def test_kept_references_do_not_keep_an_old_version(tmp_path):
    made(tmp_path / "s", 0).column_blocks()[0].load()
    gc.collect()
    made(tmp_path / "s", 1)
    assert names(tmp_path / "s") == ["current.json", "v2"]


def test_the_same_bytes_whatever_lay_there_before(tmp_path):
    """A version's files depend on its content alone, also the stripes of a killed writer that were taken over."""
    X = random_sparse(40, 60)
    straight = sparse_store(tmp_path / "a", X)
    made(tmp_path / "b", 0)
    begun = write_sparse(tmp_path / "b", X, overwrite=True)
    again = write_sparse(tmp_path / "b", X, overwrite=True, resume=True)
    assert again.done.keys() >= {key for key in begun.done if "/c/" in key}
    found = again.commit()
    assert found.digest == straight.digest
    files = {file.relative_to(straight.place): file.read_bytes() for file in Path(straight.place).rglob("*") if file.is_file()}
    assert files == {file.relative_to(found.place): file.read_bytes() for file in Path(found.place).rglob("*") if file.is_file()}
