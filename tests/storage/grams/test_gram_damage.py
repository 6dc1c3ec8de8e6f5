"""Damaged Gram stores: every flip, cut, deletion and swap is noticed, named by block and kernel, and repaired by the tasks given."""

import json
import random

import numpy as np
import pytest

from gramplane.storage import DigestMismatch, GramStore, MissingBlock, SchemaError, StorageError
from tests.support.grams import DATA, cut, make, names, random_grams, whole

GRAMS = random_grams(5, 20)


@pytest.fixture
def place(tmp_path):
    """Five kernels in two bundles, 2 x 2 blocks."""
    make(tmp_path / "g", GRAMS, block=12, budget=3 * 12 * 12 * 4)
    return tmp_path / "g"


def objects_of(place):
    return sorted(file for file in place.rglob("*") if file.is_file() and file.name not in ("manifest.json", "lock"))


def key_of(place, file):
    return str(file.relative_to(place))


def read_everything(place):
    store = GramStore.open(place)
    found = whole(store)
    for digest in store.kernels:
        store.sums(digest)
    return store, found


def repair(store):
    """What the repairing command does."""
    tasks = store.damaged()
    records = [GramStore.open(store.url).write(task, cut(task, GRAMS)) for task in tasks]
    store.commit(records)
    return tasks


def test_sound_stores_verify(place):
    seen = []
    report = GramStore.open(place).verify(progress=lambda done, total: seen.append((done, total)))
    assert report.ok and report.n_objects == len(objects_of(place)) == len(seen) and seen[-1] == (report.nbytes, report.nbytes)
    assert report.nbytes == sum(file.stat().st_size for file in objects_of(place))


def test_single_bit_flips_are_found_named_and_repaired(place):
    rng = random.Random(7)
    digest = GramStore.open(place).digest
    files = objects_of(place)
    for _ in range(50):
        file = rng.choice(files)
        store = GramStore.open(place)
        good = file.read_bytes()
        bit = rng.randrange(8 * len(good))
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bad)
        [damage] = [damage for damage in store.verify().damaged if damage.key == key_of(place, file)]
        assert "crc32c" in damage.reason
        if "blocks/c/" in damage.key:
            bundle = store.bundles[damage.key.split("/")[1]]
            assert bundle.digests[bit // 8 // bundle.plane_bytes] in damage.reason
            assert sum(digest in damage.reason for digest in bundle.digests) == 1
        if not damage.key.endswith(("blocks/zarr.json", "records/zarr.json", "grams/zarr.json")) and "/sums-" not in damage.key:
            with pytest.raises(StorageError):
                read_everything(place)
        repair(store)
        assert file.read_bytes() == good and GramStore.open(place).digest == digest
    store, found = read_everything(place)
    assert np.array_equal(found, GRAMS) and store.verify().ok


def test_damage_of_one_kernel_does_not_hinder_reading_the_others(place):
    store = GramStore.open(place)
    file = place / store.bundles[store.places["k001"][0]].block_key(0, 1)
    data = bytearray(file.read_bytes())
    data[12 * 12 * 4 + 5] ^= 1
    file.write_bytes(data)
    assert np.array_equal(store.block(["k000", "k002"], 0, 1), GRAMS[[0, 2], :12, 12:])
    with pytest.raises(DigestMismatch, match=r"chunk 0,0,1, bytes 576:1152: the crc32c of 1 kernels \(k001\)"):
        store.block(["k000", "k001", "k002"], 0, 1)
    assert [(task.i, task.j, task.digests) for task in repair(store)] == [(0, 1, ("k000", "k001", "k002"))]
    assert np.array_equal(whole(store), GRAMS)


def test_cut_grown_empty_and_deleted_objects_are_found_and_repaired(place):
    rng = random.Random(3)
    for file in objects_of(place):
        good = file.read_bytes()
        for bad in rng.sample([good[: rng.randrange(len(good))], b"", good + b"\0", None], 2):
            store = GramStore.open(place)
            file.unlink() if bad is None else file.write_bytes(bad)
            damaged = store.verify().damaged
            assert key_of(place, file) in [damage.key for damage in damaged]
            assert all("absent" in d.reason or "bytes" in d.reason or "crc32c" in d.reason for d in damaged)
            repair(store)
            assert file.read_bytes() == good and store.verify().ok


def test_a_deleted_block_is_missing_never_nan(place):
    store = GramStore.open(place)
    (place / next(iter(store.bundles.values())).block_key(0, 0)).unlink()
    with pytest.raises(MissingBlock, match="absent"):
        store.block("k000", 0, 0)


def test_shortened_objects_are_noticed_even_after_the_first_read(place):
    store, _ = read_everything(place)
    file = place / next(iter(store.bundles.values())).block_key(0, 1)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DigestMismatch, match="instead of"):
        store.block("k000", 0, 1)


@pytest.mark.parametrize("kind", ["blocks", "records"])
def test_exchanged_objects_are_found(place, kind):
    store = GramStore.open(place)
    bundle = next(iter(store.bundles.values()))
    key = bundle.block_key if kind == "blocks" else bundle.record_key
    a, b = place / key(0, 0), place / key(0, 1)
    x, y = a.read_bytes(), b.read_bytes()
    a.write_bytes(y), b.write_bytes(x)
    named = {damage.key for damage in store.verify().damaged}
    assert {key_of(place, a), key_of(place, b)} <= named
    with pytest.raises(DigestMismatch):
        whole(GramStore.open(place))
    repair(store)
    assert np.array_equal(whole(GramStore.open(place)), GRAMS)


def test_exchanged_blocks_together_with_their_records_are_found(place):
    store = GramStore.open(place)
    bundle = next(iter(store.bundles.values()))
    for key in (bundle.block_key, bundle.record_key):
        a, b = place / key(0, 0), place / key(1, 1)
        x, y = a.read_bytes(), b.read_bytes()
        a.write_bytes(y), b.write_bytes(x)
    with pytest.raises(DigestMismatch, match="record"):
        GramStore.open(place).block("k000", 0, 0)
    assert len(repair(store)) == 2 and store.verify().ok


def test_damage_before_the_commit_is_found(tmp_path):
    store = GramStore.create(tmp_path / "g", data_digest=DATA, n=20, kernels=names(5), block=12)
    tasks = store.missing()
    for task in tasks[:2]:
        store.write(task, cut(task, GRAMS))
    found = GramStore.open(store.url)
    file = tmp_path / "g" / found.bundles[tasks[0].bundle].block_key(0, 0)
    file.write_bytes(bytes(file.stat().st_size))
    assert [damage.key for damage in found.verify().damaged] == [key_of(tmp_path / "g", file)]
    assert found.damaged() == tasks[:1] and found.missing() == tasks[2:]


def test_torn_records_found_at_the_commit_make_their_block_missing(tmp_path):
    store = GramStore.create(tmp_path / "g", data_digest=DATA, n=20, kernels=names(5), block=12)
    tasks = store.missing()
    for task in tasks:
        store.write(task, cut(task, GRAMS))
    record = tmp_path / "g" / store.bundles[tasks[1].bundle].record_key(0, 1)
    record.write_bytes(bytes(record.stat().st_size))
    found = GramStore.open(store.url)
    found.commit()
    assert found.missing() == [tasks[1]]
    found.write(tasks[1], cut(tasks[1], GRAMS))
    found.commit()
    assert np.array_equal(whole(GramStore.open(store.url)), GRAMS) and found.verify().ok


def test_blocks_written_again_with_other_bits_change_the_sums(place):
    store, _ = read_everything(place)
    other = GRAMS * np.float32(2)
    task = next(iter(store.bundles.values())).task(store.url, 0, 0)
    record = GramStore.open(place).write(task, cut(task, other))
    assert np.array_equal(store.block("k000", 0, 0)[0], other[0, :12, :12])
    store.commit([record])
    expected = GRAMS[0].astype(float)
    expected[:12, :12] *= 2
    for found in (store, GramStore.open(place)):
        np.testing.assert_allclose(found.sums("k000").row_sums, expected.sum(axis=1), rtol=1e-6, atol=1e-4)
        assert found.verify().ok and found.orphans() == [], found.orphans()


def test_damaged_manifests_are_noticed(place):
    manifest = place / "manifest.json"
    good = manifest.read_bytes()
    rng = random.Random(5)
    for _ in range(80):
        bad = bytearray(good)
        position = rng.randrange(len(bad))
        if rng.random() < 0.5:
            bad[position] ^= 1 << rng.randrange(8)
        else:
            del bad[position:]
        manifest.write_bytes(bad)
        with pytest.raises(StorageError):
            GramStore.open(place)
    manifest.write_bytes(good)
    read_everything(place)


def test_mutated_descriptions_raise_our_errors_only(place):
    """Groups changed at random and sealed again: the store opens and reads, or is refused by a StorageError."""
    from tests.storage.test_blocks import reseal

    rng = random.Random(11)
    values = [None, True, -1, 0, 1, 2**31, 2**63, 1.5, "", "x", [], {}, [1, 2], ["k", {}], "float64", 2**31 - 1]
    for name in ("zarr.json", key_of(place, next(place.glob("grams/*/zarr.json")))):
        good = (place / name).read_bytes()
        for _ in range(40):
            fields = json.loads(good)
            node = fields
            while True:
                part = rng.choice(sorted(node) if isinstance(node, dict) else range(len(node)))
                if isinstance(node[part], dict | list) and node[part] and rng.random() < 0.7:
                    node = node[part]
                    continue
                node[part] = rng.choice(values)
                break
            (place / name).write_text(json.dumps(fields))
            reseal(place)
            try:
                store = GramStore.open(place)
                store.missing()
            except StorageError:
                continue
            for digest in store.kernels:
                try:
                    store.block(digest, 0, 0)
                except StorageError:
                    continue
        (place / name).write_bytes(good)
        reseal(place)
    read_everything(place)


def test_unknown_versions_say_what_to_do(place):
    from tests.storage.test_blocks import reseal

    text = (place / "zarr.json").read_text().replace("gramplane.grams/6", "gramplane.grams/9")
    (place / "zarr.json").write_text(text)
    reseal(place)
    with pytest.raises(SchemaError, match=r"gramplane\.grams/9.*gramplane gram"):
        GramStore.open(place)


def test_links_inside_a_store_are_refused(place):
    store = GramStore.open(place)
    file = place / next(iter(store.bundles.values())).block_key(0, 0)
    file.rename(place / "elsewhere")
    file.symlink_to(place / "elsewhere")
    with pytest.raises(SchemaError, match="symbolic link"):
        store.block("k000", 0, 0)
