"""Gram stores: what is written comes back, to the bit; further kernels add, nothing is computed twice; interruptions cost one block."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.storage import (
    BlockStore,
    DataError,
    DigestMismatch,
    GramStore,
    MissingBlock,
    OutOfSpace,
    RunLocked,
    SchemaError,
    UnalignedWrite,
    digest_of,
    open_gram,
    urls,
)
from gramplane.storage.cache import BlockCache
from gramplane.storage.grams.layout import GramLayout, plan_block
from gramplane.storage.remote import RemoteObjects
from tests.support.grams import DATA, cut, make, names, random_grams, whole
from tests.support.places import ROOT

# -- layout ----------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 2**20), st.integers(1, 2000), st.sampled_from([4, 8]), st.integers(1, 1 << 28))
@settings(max_examples=200, deadline=None)
def test_planned_blocks_cover_the_matrix_within_the_budget(n, k, itemsize, budget):
    block = plan_block(n, k, itemsize, budget)
    layout = GramLayout(n, block)
    sizes = layout.bundle_sizes(k, itemsize, budget)
    assert 1 <= block <= n and sum(sizes) == k and max(sizes) - min(sizes) <= 1
    assert max(sizes) == 1 or max(sizes) * block * block * itemsize <= budget
    assert block <= 256 or k * block * block * itemsize <= budget
    assert layout.edges[0] == 0 and layout.edges[-1] == n and (np.diff(layout.edges) >= 1).all()
    assert len(layout.edges) - 1 == layout.n_blocks
    # evened out: a block more, of nearly the same size, would not have been needed
    assert layout.n_blocks * block - n < block and (layout.n_blocks == 1 or block * layout.n_blocks <= n + 16 * layout.n_blocks)


@pytest.mark.parametrize(("n", "block"), [(0, 1), (5, 6), (5, 0), (2**31, 5), (5.0, 5), (2**31 - 1, 16)])
def test_impossible_layouts_are_refused(n, block):
    with pytest.raises(SchemaError, match=r"1 <= block <= n|the limit is 4096"):
        GramLayout(n, block)


def test_pairs_are_the_upper_triangle_row_by_row():
    layout = GramLayout(10, 4)
    assert list(layout.pairs()) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)] and layout.n_pairs == 6
    assert layout.shape(0, 2) == (4, 2) and layout.edges == (0, 4, 8, 10)


# -- round trip ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "block", "k"), [(40, 16, 3), (48, 16, 1), (7, 7, 2), (33, 1000, 5), (5, 1, 2)])
def test_blocks_come_back_to_the_bit_on_both_sides_of_the_diagonal(tmp_path, n, block, k, dtype):
    grams = random_grams(k, n, dtype=dtype)
    made = make(tmp_path / "g", grams, block=block)
    for store in (made, GramStore.open(tmp_path / "g")):
        assert store.n == n and store.kernels == tuple(name for name, _ in names(k)) and store.missing() == []
        assert np.array_equal(whole(store), grams) and whole(store).dtype == dtype
        assert np.array_equal(whole(store, store.kernels[::-1]), grams[::-1])
        assert store.describe("k000") == names(1)[0][1]
    assert made.verify().ok and made.orphans() == [] and digest_of(tmp_path / "g") == made.digest


@given(st.integers(1, 24), st.integers(1, 20), st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(1, 3000))
@settings(max_examples=15, deadline=None)
def test_any_choice_of_kernels_in_any_order(tmp_path_factory, n, block, chosen, budget):
    grams = random_grams(6, n)
    store = make(tmp_path_factory.mktemp("grams") / "g", grams, block=block, budget=budget)
    digests = [f"k{q:03d}" for q in chosen]
    assert np.array_equal(whole(GramStore.open(store.url), digests), grams[chosen])
    for ref in GramStore.open(store.url).refs(digests):
        copy = pickle.loads(pickle.dumps(ref))
        block_of = copy.load()
        assert copy == ref and copy.nbytes == block_of.nbytes
        assert np.array_equal(block_of, grams[chosen, slice(*ref.rows)][:, :, slice(*ref.cols)])


def test_references_are_small_and_work_with_the_block_cache(tmp_path):
    store = make(tmp_path / "g", random_grams(200, 20), block=8)
    refs = store.refs()
    assert len(refs) == store.meta.layout.n_pairs and len(pickle.dumps(refs[1])) - len(store.url) < 200
    cache = BlockCache()
    assert cache.load(refs[1]) is cache.load(pickle.loads(pickle.dumps(refs[1]))) and cache.hits == 1


def test_blocks_are_read_into_given_memory(tmp_path):
    grams = random_grams(3, 20)
    store = make(tmp_path / "g", grams, block=8)
    out = np.empty((2, 8, 4), np.float32)
    assert store.block(["k002", "k000"], 1, 2, out=out) is out and np.array_equal(out, grams[[2, 0], 8:16, 16:20])
    for bad in (np.empty((2, 8, 4)), np.empty((2, 4, 8), np.float32), np.empty((2, 4, 8), np.float32).transpose(0, 2, 1)):
        with pytest.raises(SchemaError, match="out has"):
            store.block(["k002", "k000"], 1, 2, out=bad)
    with pytest.raises(SchemaError, match="does not exist"):
        store.block("k000", 0, 3)


def test_sums_are_those_of_the_whole_matrix(tmp_path):
    grams = random_grams(4, 50)
    store = make(tmp_path / "g", grams, block=16, budget=2 * 16 * 16 * 4)
    wide = grams.astype(np.float64)
    for found in (store, GramStore.open(store.url)):
        for q, name in enumerate(store.kernels):
            trace, diagonal, row_sums, total = found.sums(name)
            assert np.array_equal(diagonal, np.diagonal(wide[q]))
            np.testing.assert_allclose(row_sums, wide[q].sum(axis=1), rtol=0, atol=1e-12 * np.abs(wide[q]).sum(axis=1).max())
            assert trace == pytest.approx(np.trace(wide[q]), rel=1e-13)
            assert total == pytest.approx(wide[q].sum(), abs=1e-12 * np.abs(wide[q]).sum())


def test_sums_before_the_commit_are_the_same_bits(tmp_path):
    grams = random_grams(2, 30)
    store = GramStore.create(tmp_path / "g", data_digest=DATA, n=30, kernels=names(2), block=8)
    tasks = store.missing()
    for task in tasks[::-1]:
        with pytest.raises(MissingBlock, match="were not computed yet"):
            store.sums("k001")
        store.write(task, cut(task, grams))
    before = store.sums("k001")
    store.commit()
    after = GramStore.open(store.url).sums("k001")
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


# -- reuse -----------------------------------------------------------------------------------------------------------------


def test_a_second_run_computes_nothing_and_further_kernels_only_themselves(tmp_path):
    grams = random_grams(5, 40)
    first = make(tmp_path / "g", grams[:3], block=16)
    again = GramStore.create(tmp_path / "g", data_digest=DATA, n=40, kernels=names(3))
    assert again.missing() == [] and again.digest == first.digest
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "g/grams").rglob("*") if path.is_file()}
    more = GramStore.create(tmp_path / "g", data_digest=DATA, n=40, kernels=names(5))
    assert more.missing(["k000", "k001"]) == [] and {task.digests for task in more.missing()} == {("k003", "k004")}
    for task in more.missing():
        more.write(task, cut(task, grams))
    more.commit()
    assert np.array_equal(whole(GramStore.open(first.url)), grams) and more.missing() == []
    assert all(path.stat().st_mtime_ns == then for path, then in times.items())
    first.commit()
    assert GramStore.open(first.url).digest == more.digest and GramStore.open(first.url).kernels == more.kernels


def test_kernels_beyond_the_budget_become_several_bundles(tmp_path):
    grams = random_grams(7, 20)
    store = make(tmp_path / "g", grams, block=10, budget=3 * 10 * 10 * 4)
    assert [len(bundle.kernels) for bundle in store.bundles.values()] == [3, 2, 2]
    assert np.array_equal(whole(store), grams)
    assert store.missing() == [] and max(ref.nbytes for ref in store.refs(["k000", "k006"])) == 2 * 400


def test_tasks_follow_block_pairs_and_name_everything(tmp_path):
    store = GramStore.create(tmp_path / "g", data_digest=DATA, n=20, kernels=names(4), block=10, budget=2 * 400)
    tasks = store.missing()
    assert [(task.i, task.j) for task in tasks] == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 1), (1, 1)]
    assert tasks[2].digests == ("k000", "k001") and tasks[2].rows == (0, 10) and tasks[2].cols == (10, 20) and tasks[2].nbytes == 800
    assert pickle.loads(pickle.dumps(tasks)) == tasks and tasks[2].shape == (2, 10, 10)


def test_repeated_digests_count_once(tmp_path):
    store = GramStore.create(tmp_path / "g", data_digest=DATA, n=5, kernels=[*names(2), *names(2)])
    assert store.kernels == ("k000", "k001")


def test_the_same_blocks_give_the_same_digest_in_any_order_of_writing(tmp_path):
    grams = random_grams(3, 40)
    straight = make(tmp_path / "a", grams, block=16)
    store = GramStore.create(tmp_path / "b", data_digest=DATA, n=40, kernels=names(3), block=16)
    for task in np.random.default_rng(0).permutation(np.array(store.missing(), dtype=object)):
        GramStore.open(store.url).write(task, cut(task, grams))
    assert store.commit() == straight.digest


def test_dropping_frees_space_and_keeps_the_others(tmp_path):
    grams = random_grams(6, 40)
    store = make(tmp_path / "g", grams, block=16, budget=3 * 16 * 16 * 4)
    sums = store.sums("k001")
    size = sum(path.stat().st_size for path in (tmp_path / "g").rglob("*"))
    assert store.unused({"k001"}) == [(f"k{q:03d}", 6 * 16 * 16 * 4) for q in (0, 2, 3, 4, 5)]
    with pytest.raises(MissingBlock, match="no kernel nobody"):
        store.drop(["k000", "nobody"])
    store.drop(["k000", "k003", "k004", "k005"])
    for found in (store, GramStore.open(store.url)):
        assert found.kernels == ("k001", "k002") and np.array_equal(whole(found), grams[1:3])
        assert found.missing() == [] and found.orphans() == [] and found.verify().ok
        assert all(np.array_equal(a, b) for a, b in zip(sums, found.sums("k001"), strict=True))
    assert sum(path.stat().st_size for path in (tmp_path / "g").rglob("*")) < 0.5 * size
    with pytest.raises(MissingBlock, match="has no kernel k000"):
        store.block("k000", 0, 0)
    store.drop(store.kernels)
    assert GramStore.open(store.url).kernels == () and not list((tmp_path / "g/grams").glob("*/"))


def test_references_to_dropped_kernels_say_so(tmp_path):
    store = make(tmp_path / "g", random_grams(2, 20), block=16)
    [ref, *_] = store.refs("k000")
    store.drop(["k000"])
    with pytest.raises(MissingBlock, match="dropped"):
        ref.load()


# -- refusals --------------------------------------------------------------------------------------------------------------


def test_other_data_are_refused_by_naming_both_digests(tmp_path):
    make(tmp_path / "g", random_grams(1, 10))
    with pytest.raises(DigestMismatch, match=f"(?s){DATA}.*{'e' * 64}"):
        GramStore.create(tmp_path / "g", data_digest="e" * 64, n=10, kernels=names(1))


@pytest.mark.parametrize(
    ("change", "words"), [({"n": 11}, "n 10; 11"), ({"dtype": "float64"}, "'float32'; 'float64'"), ({"block": 3}, "block 10; 3")]
)
def test_other_forms_are_refused(tmp_path, change, words):
    make(tmp_path / "g", random_grams(1, 10))
    with pytest.raises(SchemaError, match=words):
        GramStore.create(tmp_path / "g", **{"data_digest": DATA, "n": 10, "kernels": names(1), **change})


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        (["rbf"], "pair"),
        ([("../x", {})], "must match"),
        ([("k", object())], "JSON"),
        ([("k", float("nan"))], "JSON"),
        ([(3, {})], "must match"),
    ],
)
def test_kernels_that_cannot_be_named_are_refused(tmp_path, kernels, words):
    with pytest.raises(SchemaError, match=words):
        GramStore.create(tmp_path / "g", data_digest=DATA, n=10, kernels=kernels)
    assert not (tmp_path / "g").exists()


def test_bad_descriptions_are_refused_before_anything_is_written(tmp_path):
    for change, words in (({"dtype": "int8"}, "dtype"), ({"n": 0}, "n is 0"), ({"data_digest": ""}, "data"), ({"budget": 0}, "budget")):
        with pytest.raises(SchemaError, match=words):
            GramStore.create(tmp_path / "g", **{"data_digest": DATA, "n": 10, "kernels": names(1), **change})
    with pytest.raises(SchemaError, match="limit"):
        GramStore.create(tmp_path / "h", data_digest=DATA, n=1 << 20, kernels=names(1), block=1 << 20)
    assert not (tmp_path / "g").exists()


def test_places_of_something_else_are_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    with pytest.raises(SchemaError, match=r"notes\.txt"):
        GramStore.create(tmp_path / "full", data_digest=DATA, n=10, kernels=names(1))
    from tests.support.stores import random_sparse, sparse_store

    sparse_store(tmp_path / "s", random_sparse(5, 5))
    for attempt in (GramStore.open, lambda url: GramStore.create(url, data_digest=DATA, n=5)):
        with pytest.raises(SchemaError, match=r"gramplane\.blocks/6"):
            attempt(tmp_path / "s")
    make(tmp_path / "g", random_grams(1, 10))
    with pytest.raises(SchemaError, match=r"gramplane\.grams/6"):
        BlockStore.open(tmp_path / "g")
    with pytest.raises(MissingBlock):
        GramStore.open(tmp_path / "nowhere")


def test_writes_that_are_not_the_whole_block_are_refused(tmp_path):
    grams = random_grams(2, 20)
    store = GramStore.create(tmp_path / "g", data_digest=DATA, n=20, kernels=names(2), block=16)
    task = store.missing()[1]
    block = cut(task, grams)
    for bad in (block[:1], block[:, :-1], block[..., 1:], block[0], np.zeros((2, 16, 16), np.float32)):
        with pytest.raises(UnalignedWrite, match="whole block"):
            store.write(task, bad)
    with pytest.raises(SchemaError, match="does not round"):
        store.write(task, block.astype(np.float64))
    with pytest.raises(UnalignedWrite, match="no bundle"):
        store.write(type(task)(**{**vars(task), "bundle": "f" * 16}), block)
    assert len(store.missing()) == 3 and not list((tmp_path / "g").rglob("blocks/c"))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_by_place(tmp_path, bad):
    grams = random_grams(2, 20)
    grams[1, 3, 18] = bad
    store = GramStore.create(tmp_path / "g", data_digest=DATA, n=20, kernels=names(2), block=16)
    with pytest.raises(DataError, match=r"kernel k001 is -?(nan|inf) between rows 3 and 18"):
        store.write(store.missing()[1], cut(store.missing()[1], grams))


def test_large_finite_values_are_not_mistaken_for_infinite_ones(tmp_path):
    grams = np.full((1, 6, 6), 1e308)
    with np.errstate(over="ignore"):
        store = make(tmp_path / "g", grams, block=6)
    assert np.array_equal(whole(store), grams)


def test_diagonal_blocks_must_be_symmetric_to_the_bit(tmp_path):
    grams = random_grams(2, 20)
    grams[1, 2, 5] = np.nextafter(grams[1, 2, 5], np.float32(9))
    store = GramStore.create(tmp_path / "g", data_digest=DATA, n=20, kernels=names(2), block=16)
    with pytest.raises(SchemaError, match=r"k001 is not symmetric: .* at \(2, 5\)"):
        store.write(store.missing()[0], cut(store.missing()[0], grams))


# -- interruptions ---------------------------------------------------------------------------------------------------------

WRITER = """
import sys
from gramplane.storage import GramStore
from tests.support.grams import DATA, cut, names, random_grams
grams = random_grams(4, 300)
store = GramStore.create(sys.argv[1], data_digest=DATA, n=300, kernels=names(4), block=20)
with store.lock():
    tasks = store.missing()
    print(len(tasks), flush=True)
    share = [t for t in tasks if (t.i + t.j) % int(sys.argv[3]) == int(sys.argv[2])] if len(sys.argv) > 3 else tasks
    for task in share:
        store.write(task, cut(task, grams))
print(store.digest)
"""
PART = WRITER.replace("with store.lock():", "if True:").replace("print(store.digest)", "")


def start(code, *arguments):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_a_killed_writer_loses_only_what_it_was_writing(tmp_path):
    straight = make(tmp_path / "whole", random_grams(4, 300), block=20).digest
    left, kills = 10**6, 0
    while True:
        process = start(WRITER, tmp_path / "g")
        assert process.stdout is not None
        todo = int(process.stdout.readline())
        assert todo <= left
        left = todo
        # Long enough to get on, short enough to be hit in the middle.
        time.sleep(0.01 + 0.02 * kills)
        process.send_signal(signal.SIGKILL)
        rest, code = process.communicate()[0], process.returncode
        store = GramStore.open(tmp_path / "g")
        done = set(store.kernels) and [t for t in make_tasks(store) if t not in store.missing()]
        for task in done[:: max(1, len(done) // 10)]:
            assert np.array_equal(store.block(task.digests, task.i, task.j), cut(task, random_grams(4, 300)))
        kills += 1
        if code == 0:
            break
        if kills > 3:
            rest = start(WRITER, tmp_path / "g").communicate()[0].split()[-1]
            break
    assert kills > 1, "the writer was never hit"
    assert rest.split()[-1] == straight and GramStore.open(tmp_path / "g").missing() == []
    assert GramStore.open(tmp_path / "g").verify().ok and not list(tmp_path.rglob("*.tmp"))


def make_tasks(store):
    return [bundle.task(store.url, i, j) for i, j in store.meta.layout.pairs() for bundle in store.bundles.values()]


def test_two_processes_write_different_blocks_at_the_same_time(tmp_path):
    grams = random_grams(4, 300)
    store = GramStore.create(tmp_path / "g", data_digest=DATA, n=300, kernels=names(4), block=20)
    processes = [start(PART, tmp_path / "g", part, 2) for part in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    for process in processes:
        process.stdout.close()
    assert store.missing() == [] and store.commit() == make(tmp_path / "h", grams, block=20).digest
    assert np.array_equal(whole(GramStore.open(tmp_path / "g")), grams)


def test_two_builders_exclude_one_another(tmp_path):
    store = make(tmp_path / "g", random_grams(2, 20))
    with store.lock():
        for attempt in (
            lambda: GramStore.create(tmp_path / "g", data_digest=DATA, n=20, kernels=names(3)),
            lambda: GramStore.open(tmp_path / "g").lock().__enter__(),
            lambda: GramStore.open(tmp_path / "g").drop(["k000"]),
            lambda: GramStore.open(tmp_path / "g").remove_orphans(),
        ):
            with pytest.raises(RunLocked, match=str(os.getpid())):
                attempt()
        assert GramStore.create(tmp_path / "g", data_digest=DATA, n=20, kernels=names(2)).missing() == []
    assert len(GramStore.create(tmp_path / "g", data_digest=DATA, n=20, kernels=names(3)).missing()) == 1


def test_every_prefix_of_the_file_operations_leaves_a_store_that_continues(tmp_path, monkeypatch):
    """The process dies after any number of renames: what is there opens (or begins), and ends in the same bytes."""
    grams = random_grams(3, 20)
    straight = make(tmp_path / "straight", grams, block=10, budget=2 * 400).digest

    class Died(BaseException):
        pass

    rename, allowed = os.rename, 0
    while True:
        place, count = tmp_path / f"s{allowed}", 0

        def limited(a, b):
            nonlocal count
            count += 1
            if count > allowed:  # noqa: B023 (used inside the iteration)
                raise Died
            rename(a, b)

        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", limited)
            try:
                make(place, grams, block=10, budget=2 * 400)
                break
            except Died:
                pass
        if (place / "manifest.json").exists():
            opened = GramStore.open(place)
            assert all(task.bundle in opened.bundles for task in opened.missing())
        resumed = make(place, grams, block=10, budget=2 * 400)
        assert resumed.digest == straight and np.array_equal(whole(resumed), grams)
        allowed += 1
    assert allowed > 20


@pytest.mark.parametrize("stop", [3, 6, 9, 12, 15, 18, 21])
def test_dropping_may_be_cut_short_anywhere(tmp_path, monkeypatch, stop):
    grams = random_grams(4, 20)
    store = make(tmp_path / "g", grams, block=10)
    rename, unlink, count = os.rename, Path.unlink, 0

    def step():
        nonlocal count
        count += 1
        if count > stop:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "rename", lambda a, b: (step(), rename(a, b))[1])
        patch.setattr(Path, "unlink", lambda self, missing_ok=False: (self.suffix == ".tmp" or step(), unlink(self, missing_ok))[1])
        store.drop(["k001"])
        raise KeyboardInterrupt
    found = GramStore.open(tmp_path / "g")
    assert np.array_equal(whole(found, ["k000", "k002", "k003"]), grams[[0, 2, 3]]) and found.verify().ok
    found.remove_orphans()
    if "k001" in found.kernels:
        found.drop(["k001"])
    assert np.array_equal(whole(found), grams[[0, 2, 3]]) and found.orphans() == [] and found.missing() == []


def test_blocks_without_a_record_do_not_count_and_are_orphans(tmp_path):
    store = make(tmp_path / "g", random_grams(2, 20), block=10)
    fresh = GramStore.create(tmp_path / "g", data_digest=DATA, n=20, kernels=names(3))
    task = fresh.missing()[0]
    fresh.write(task, cut(task, random_grams(3, 20)))
    key = fresh.bundles[task.bundle].record_key(task.i, task.j)
    (tmp_path / "g" / key).unlink()
    found = GramStore.open(store.url)
    assert task in found.missing() and [name for name, _ in found.orphans()] == [fresh.bundles[task.bundle].block_key(0, 0)]
    with pytest.raises(MissingBlock, match="not computed"):
        found.block("k002", 0, 0)
    (tmp_path / "g" / key).write_bytes(b"")
    assert task in GramStore.open(store.url).missing()
    assert [name for name, _ in found.remove_orphans()] == [fresh.bundles[task.bundle].block_key(0, 0), key]
    assert found.orphans() == []


def test_incomplete_kernels_give_no_references(tmp_path):
    store = GramStore.create(tmp_path / "g", data_digest=DATA, n=20, kernels=names(2), block=10)
    with pytest.raises(MissingBlock, match="3 blocks"):
        store.refs()


# -- full disks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 200, 700, 1500, 3000, 4500, 7000])
def test_a_full_disk_is_reported_and_survived(tmp_path, monkeypatch, room):
    from tests.storage.test_writer import FullDisk

    grams = random_grams(2, 20)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", FullDisk(room))
        with pytest.raises(OutOfSpace, match=r"no space left to write \d+ bytes to"):
            make(tmp_path / "g", grams, block=10)
    assert not list(tmp_path.rglob("*.tmp"))
    if (tmp_path / "g/manifest.json").exists():
        GramStore.open(tmp_path / "g")
    again = make(tmp_path / "g", grams, block=10)
    assert again.digest == make(tmp_path / "h", grams, block=10).digest and again.verify().ok


# -- other readers and object stores ---------------------------------------------------------------------------------------


def test_zarr_itself_reads_the_store(tmp_path):
    zarr = pytest.importorskip("zarr")
    grams = random_grams(3, 20)
    store = make(tmp_path / "g", grams, block=16)
    group = zarr.open_group(str(tmp_path / "g"), mode="r")
    [name] = group["grams"].group_keys()
    found = np.asarray(group[f"grams/{name}/blocks"])
    upper = np.isfinite(found)
    assert found.shape == (3, 20, 20) and np.array_equal(found[upper], grams[upper]) and not upper[:, 16:, :16].any()
    assert np.array_equal(np.where(upper, found, found.transpose(0, 2, 1)), grams)
    assert group.attrs["gramplane"]["schema"] == "gramplane.grams/6"
    [sums] = [key for key in group[f"grams/{name}"].group_keys() if key.startswith("sums-")]
    assert np.array_equal(group[f"grams/{name}/{sums}/row_sums"][1], store.sums("k001").row_sums)


@pytest.fixture
def remote(monkeypatch):
    obstore = pytest.importorskip("obstore.store")
    url = "s3://lease/g"
    monkeypatch.setitem(urls._remotes, url, RemoteObjects(url, obstore.MemoryStore()))
    return url


def test_object_stores_hold_the_same_bytes(remote, tmp_path):
    url = remote
    grams = random_grams(3, 40)
    far, near = make(url, grams, block=16), make(tmp_path / "g", grams, block=16)
    assert far.digest == near.digest and far.verify().ok and far.missing() == [] and far.orphans() == []
    assert np.array_equal(whole(GramStore.open(url), ["k002", "k000"]), grams[[2, 0]])
    with far.lock():
        pass
    far.drop(["k001"])
    assert np.array_equal(whole(GramStore.open(url)), grams[[0, 2]]) and far.orphans() == []


def test_processes_share_one_opened_store(tmp_path):
    store = make(tmp_path / "g", random_grams(2, 20))
    assert open_gram(store.url) is open_gram(store.url)
    GramStore.create(store.url, data_digest=DATA, n=20, kernels=names(3))
    bundle = GramStore.open(store.url).missing()[0].bundle
    assert bundle in open_gram(store.url, [bundle]).bundles
