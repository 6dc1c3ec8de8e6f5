"""Damaged stores: every flip, cut, deletion and swap is noticed, on reading and by verify, and named."""

import json
import random

import numpy as np
import pytest

from gramplane.storage import BlockStore, DigestMismatch, MissingBlock, SchemaError, StorageError
from gramplane.storage.objects import LocalObjects
from tests.support.stores import dense_store, random_sparse, sparse_store


@pytest.fixture(params=["sparse", "dense"])
def place(request, tmp_path):
    X = random_sparse(40, 60)
    sparse_store(tmp_path / "s", X, both=True) if request.param == "sparse" else dense_store(tmp_path / "s", X.toarray(), both=True)
    return tmp_path / "s/v1"


def objects_of(place):
    return sorted(file for file in place.rglob("*") if file.is_file() and file.name != "manifest.json")


def read_everything(place):
    """Everything a run may read; raises on damage."""
    store = BlockStore.open(place)
    for ref in store.column_blocks() + store.row_blocks():
        ref.load()
    store.target()
    return store


def key_of(place, file):
    return str(file.relative_to(place))


def test_sound_store_verifies(place):
    seen = []
    report = read_everything(place).verify(progress=lambda done, total: seen.append((done, total)))
    assert report.ok and report.n_objects == len(objects_of(place)) == len(seen) and seen[-1] == (report.nbytes, report.nbytes)


def test_single_bit_flips_are_found_and_named(place):
    rng = random.Random(7)
    store = BlockStore.open(place)
    files = objects_of(place)
    for _ in range(150):
        file = rng.choice(files)
        good = file.read_bytes()
        bit = rng.randrange(8 * len(good))
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bad)
        [damage] = store.verify().damaged
        assert damage.key == key_of(place, file) and "crc32c" in damage.reason
        with pytest.raises(StorageError):
            read_everything(place)
        file.write_bytes(good)
    read_everything(place)


def test_messages_name_array_chunk_and_bytes(tmp_path):
    sparse_store(tmp_path / "s", random_sparse(40, 60))
    file = tmp_path / "s/v1/columns/values/c/1"
    data = bytearray(file.read_bytes())
    data[5] ^= 1
    file.write_bytes(data)
    store = BlockStore.open(tmp_path / "s")
    for _ in range(2):  # damage is not forgotten after the first report
        with pytest.raises(DigestMismatch, match=r"array columns/values, chunk 1, bytes 0:256"):
            for ref in store.column_blocks():
                ref.load()


def test_truncated_and_grown_objects_are_found_even_after_the_first_read(place):
    rng = random.Random(3)
    files = [file for file in objects_of(place) if file.name != "zarr.json"]
    for _ in range(30):
        file = rng.choice(files)
        store = read_everything(place)
        good = file.read_bytes()
        file.write_bytes(good[: rng.randrange(len(good))] if rng.random() < 0.7 else good + b"\0")
        assert [damage.key for damage in store.verify().damaged] == [key_of(place, file)]
        if "values" in file.parts or "dense" in file.parts:
            with pytest.raises(DigestMismatch, match="instead of"):
                for ref in store.column_blocks() + store.row_blocks():
                    ref.load()
        file.write_bytes(good)


def test_deleted_objects_are_missing_never_zeros(place):
    for file in objects_of(place):
        good = file.read_bytes()
        file.unlink()
        with pytest.raises(MissingBlock, match="absent"):
            read_everything(place)
        file.write_bytes(good)


def test_swapped_chunks_are_found(place):
    array = "values" if (place / "columns/values").exists() else "dense"
    chunks = [f for f in objects_of(place) if f.parts[-3:-1] in ((array, "c"), ("c", "0")) and "columns" in f.parts and array in f.parts]
    rng = random.Random(1)
    for _ in range(10):
        a, b = rng.sample(chunks, 2)
        x, y = a.read_bytes(), b.read_bytes()
        assert x != y
        a.write_bytes(y), b.write_bytes(x)
        store = BlockStore.open(place)
        assert {damage.key for damage in store.verify().damaged} == {key_of(place, a), key_of(place, b)}
        with pytest.raises(DigestMismatch):
            read_everything(place)
        a.write_bytes(x), b.write_bytes(y)


def test_damaged_manifest_is_noticed_or_refused(place):
    manifest = place / "manifest.json"
    good = manifest.read_bytes()
    rng = random.Random(5)
    for _ in range(300):
        bad = bytearray(good)
        kind = rng.randrange(3)
        position = rng.randrange(len(bad))
        if kind == 0:
            bad[position] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del bad[position:]
        else:
            bad[position : position + rng.randrange(1, 9)] = bytes(rng.randrange(256) for _ in range(rng.randrange(9)))
        if bytes(bad) == good:
            continue
        manifest.write_bytes(bad)
        with pytest.raises(StorageError):
            BlockStore.open(place)
    manifest.write_bytes(good)
    read_everything(place)


def test_manifest_that_omits_an_object_is_incomplete(tmp_path):
    from gramplane.storage.manifest import read_seal, write_seal
    from gramplane.storage.objects import LocalObjects

    sparse_store(tmp_path / "s", random_sparse(40, 60))
    objects = LocalObjects(tmp_path / "s/v1")
    listed, _ = read_seal(objects)
    write_seal(objects, {key: entry for key, entry in listed.items() if key != "columns/rows/c/1"})
    with pytest.raises(MissingBlock, match="manifest lists"):
        BlockStore.open(tmp_path / "s/v1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        "[" * 100_000,
        '{"format": "other"}',
        '{"format": "gramplane.manifest/6"}',
        '{"format": "gramplane.manifest/6", "objects": {"a": [1]}}',
        '{"format": "gramplane.manifest/6", "objects": {"a": [true, 1]}}',
        '{"format": "gramplane.manifest/6", "objects": {"a": [-1, 1]}}',
        '{"objects": NaN}',
    ],
)
def test_nonsense_manifests_raise_our_errors_only(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises((DigestMismatch, SchemaError)):
        BlockStore.open(tmp_path)


def test_mutated_descriptions_raise_our_errors_only(tmp_path):
    """zarr.json changed at random and sealed again: it opens and reads, or is refused by a StorageError."""
    from tests.storage.test_blocks import reseal

    sparse_store(tmp_path / "s", random_sparse(10, 12))
    rng = random.Random(11)
    key = tmp_path / "s/v1/columns/values/zarr.json"
    good = key.read_bytes()
    values = [None, True, -1, 0, 1, 2**31, 2**63, 1.5, float("inf"), "", "x", [], {}, [1, 2], {"name": "bytes"}]
    for _ in range(120):
        fields = json.loads(good)
        node = fields
        while True:
            name = rng.choice(sorted(node) if isinstance(node, dict) else range(len(node)))
            if isinstance(node[name], dict | list) and node[name] and rng.random() < 0.6:
                node = node[name]
                continue
            node[name] = rng.choice(values)
            break
        key.write_text(json.dumps(fields))
        reseal(tmp_path / "s/v1")
        try:
            store = read_everything_of_columns(tmp_path / "s/v1")
        except StorageError:
            continue
        assert np.isfinite(store.target()).all()


def read_everything_of_columns(place):
    store = BlockStore.open(place)
    for ref in store.column_blocks():
        ref.load()
    return store


def test_a_folder_where_an_object_belongs_is_told_with_a_remedy(tmp_path):
    (tmp_path / "blocks").mkdir()
    with pytest.raises(MissingBlock, match=r"blocks is a folder where an object belongs: the store is damaged; remove the folder"):
        LocalObjects(str(tmp_path)).write("blocks", b"bytes")
