"""Blocks in memory: the same blocks, tables and errors as a store of the same data; the cache; the column tables."""

import pickle
import threading
import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gramplane.storage import MemoryBlocks, SchemaError, block_cache, set_cache_limit
from gramplane.storage.blocks.tables import DenseSums, column_tables, look, sparse_tables
from gramplane.storage.cache import BlockCache
from tests.support.stores import dense_store, random_sparse, same_block, sparse_store


def as_form(X, form):
    return {
        "csc_array": sp.csc_array,
        "csr_array": sp.csr_array,
        "csc_matrix": sp.csc_matrix,
        "csr_matrix": sp.csr_matrix,
        "coo": sp.coo_array,
    }[form](X)


@pytest.mark.parametrize("form", ["csc_array", "csr_array", "csc_matrix", "csr_matrix", "coo"])
def test_sparse_blocks_equal_those_of_a_store(tmp_path, form):
    X = random_sparse(40, 60)
    store, memory = sparse_store(tmp_path / "s", X, both=True), MemoryBlocks(as_form(X, form), np.arange(40) % 2, stripe_bytes=256)
    for far, near in [(store.column_blocks(), memory.column_blocks()), (store.row_blocks(), memory.row_blocks())]:
        assert [(r.rows, r.cols, r.nnz, r.nbytes) for r in far] == [(r.rows, r.cols, r.nnz, r.nbytes) for r in near]
        assert all(same_block(a.load(), b.load()) for a, b in zip(far, near, strict=True))
    assert same_block(memory.columns([5, 30, 5, 2]), store.columns([5, 30, 5, 2]))
    assert np.array_equal(memory.target(), store.target()) and memory.shape == store.shape
    assert np.array_equal(memory.column_table("counts"), store.column_table("counts"))


@pytest.mark.parametrize("form", ["csc_array", "csr_array", "coo"])
def test_ranges_of_whole_rows_equal_those_of_columns(form):
    X = random_sparse(40, 60)
    memory, every = MemoryBlocks(as_form(X, form)), np.arange(60)
    for lo, hi in ((0, 40), (0, 7), (13, 30), (39, 40), (5, 5)):
        found = memory.columns(every, (lo, hi))
        assert same_block(found, sp.csc_array(X[lo:hi])) and found.has_canonical_format
        assert same_block(memory.columns(every[::-1], (lo, hi)), sp.csc_array(X[lo:hi][:, ::-1]))


def test_rows_that_were_given_as_rows_are_read_without_a_copy_by_columns():
    memory = MemoryBlocks(sp.csr_array(random_sparse(40, 60)))
    memory.columns(np.arange(60), (3, 9))
    assert "by_columns" not in vars(memory)
    memory.columns([3, 4], (3, 9))
    assert "by_columns" in vars(memory)


@pytest.mark.parametrize("order", ["C", "F"])
def test_dense_blocks_equal_those_of_a_store_and_are_views(tmp_path, order):
    X = np.asarray(np.random.default_rng(0).standard_normal((40, 60)), order=order)
    store, memory = dense_store(tmp_path / "s", X, both=True), MemoryBlocks(X, stripe_bytes=256)
    for far, near in [(store.column_blocks(), memory.column_blocks()), (store.row_blocks(), memory.row_blocks())]:
        assert [(r.rows, r.cols) for r in far] == [(r.rows, r.cols) for r in near] and len(near) > 1
        assert all(
            same_block(a.load(), np.ascontiguousarray(b.load())) and np.shares_memory(b.load(), X) for a, b in zip(far, near, strict=True)
        )
    found = memory.columns([5, 30, 5])
    assert np.array_equal(found, X[:, [5, 30, 5]]) and found.flags.c_contiguous
    for rows in (None, (3, 10)):
        apart = memory.columns([5, 30, 5], rows, order="F")
        assert np.array_equal(apart, memory.columns([5, 30, 5], rows)) and apart.flags.f_contiguous


def test_csc_is_not_copied_and_the_caller_is_not_changed():
    X = random_sparse(40, 60)
    [block] = [ref.load() for ref in MemoryBlocks(X).column_blocks()]
    assert np.shares_memory(block.data, X.data) and np.shares_memory(block.indices, X.indices)
    messy = sp.csc_array((np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(3, 1))
    [block] = [ref.load() for ref in MemoryBlocks(messy).column_blocks()]
    assert block.indices.tolist() == [0, 2] and block.data.tolist() == [2.0, 5.0]
    assert messy.indices.tolist() == [2, 0, 2]
    duplicated = sp.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 2))
    assert MemoryBlocks(duplicated).column_blocks()[0].load().toarray().tolist() == [[0.0, 3.0]]


@pytest.mark.parametrize("dtype", [np.int8, np.int64, bool, np.float16, np.uint32])
def test_other_numbers_become_floats(dtype):
    X = np.array([[0, 1], [1, 0]], dtype=dtype)
    for data in (X, sp.csr_array(X.astype(np.float32)).astype(dtype) if dtype is not np.float16 else X):
        block = MemoryBlocks(data).column_blocks()[0].load()
        assert block.dtype == (np.float32 if dtype is np.float16 else np.float64)
        assert np.array_equal(block.toarray() if sp.issparse(block) else block, X.astype(float))


def test_conversion_from_rows_is_as_fast_as_scipy():
    rng = np.random.default_rng(0)
    X = sp.csr_array(
        (rng.random(1_000_000), rng.integers(0, 50_000, 1_000_000).astype(np.int32), np.arange(0, 1_000_001, 100)), shape=(10_000, 50_000)
    )
    X.sum_duplicates()
    ours, scipys = [], []
    for _ in range(7):
        begin = time.perf_counter()
        X.tocsc()
        middle = time.perf_counter()
        MemoryBlocks(X).column_blocks()
        ours.append(time.perf_counter() - middle)
        scipys.append(middle - begin)
    assert min(ours) < 2.0 * min(scipys) + 2e-3


def test_memory_references_stay_in_their_process():
    [ref] = MemoryBlocks(np.eye(3)).column_blocks()
    with pytest.raises(SchemaError, match="store first"):
        pickle.dumps(ref)


def test_digest_follows_the_content():
    X = random_sparse(20, 30)
    same = [MemoryBlocks(as_form(X, form)).digest for form in ("csc_array", "csr_array", "coo")]
    assert len({*same}) == 1
    Y = X.copy()
    Y.data[3] += 1
    assert len({same[0], MemoryBlocks(Y).digest, MemoryBlocks(X, np.zeros(20)).digest, MemoryBlocks(X.toarray()).digest}) == 4
    assert MemoryBlocks(X).column_blocks()[0].digest == same[0]


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (np.zeros(3), {}, "2-D"),
        (np.array([["a"]]), {}, "numbers"),
        (np.array([[None]]), {}, "numbers"),
        (np.array([[1j]]), {}, "numbers"),
        (np.zeros((3, 2)), {"y": [1, 2]}, "y has 2 entries"),
        (np.zeros((3, 2)), {"names": ["a"]}, "names has 1"),
        (np.zeros((3, 2)), {"groups": [1]}, "groups has 1"),
        (np.zeros((3, 2)), {"tables": {"task": [1]}}, "task has 1"),
    ],
)
def test_bad_arguments_are_named(X, options, message):
    with pytest.raises(SchemaError, match=message):
        MemoryBlocks(X, **options)


def test_tables_names_and_groups():
    X = random_sparse(20, 12)
    memory = MemoryBlocks(
        X, np.zeros(20), names=list("abcdefghijkl"), groups=np.arange(12) // 3, tables={"task": np.arange(20)}, labels=("n", "y")
    )
    assert memory.feature_names() == list("abcdefghijkl") and memory.groups().tolist() == (np.arange(12) // 3).tolist()
    assert memory.has_table("task") and not memory.has_table("weight") and memory.has_table("norm1", of="columns")
    assert memory.row_table("task")[3] == 3 and memory.meta.labels == ("n", "y") and memory.verify().ok
    for call in (lambda: memory.row_table("weight"), lambda: memory.column_table("weight")):
        with pytest.raises(SchemaError, match="'weight'"):
            call()
    with pytest.raises(SchemaError, match=r"ids\[1\] is 12"):
        memory.columns([0, 12])


# -- column tables ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    X=hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=12),
        elements=st.sampled_from([0.0, 0.0, 0.0, 1.5, -2.25, 1e-7, 1e10, 0.1]),
    )
)
def test_column_tables_against_the_definition(X):
    exact = np.abs(X.astype(np.longdouble)).sum(axis=0)
    for block in (X, sp.csc_array(X)):
        tables = column_tables(block)
        assert np.array_equal(tables["counts"], (X != 0).sum(axis=0)) and tables["counts"].dtype == np.uint32
        assert (tables["norm1"] >= exact).all() and tables["norm1"].dtype == np.float32
        assert (tables["norm1"] <= exact * (1 + 1e-6)).all()
        np.testing.assert_allclose(tables["sumsq"], np.square(X.astype(np.float64)).sum(axis=0), rtol=1e-14)
        assert np.array_equal(tables["minimum"], X.min(axis=0)) and np.array_equal(tables["maximum"], X.max(axis=0))
        assert tables["minimum"].dtype == X.dtype


@pytest.mark.parametrize("form", ["csc_array", "dense"])
def test_column_tables_do_not_depend_on_the_cuts(form):
    X = random_sparse(3000, 30, dtype="float64")
    data = X if form == "csc_array" else X.toarray()
    whole, cut = MemoryBlocks(data), MemoryBlocks(data, stripe_bytes=20_000)
    assert len(cut.column_blocks()) > len(whole.column_blocks())
    for name in ("counts", "norm1", "sumsq", "minimum", "maximum"):
        assert whole.column_table(name).tobytes() == cut.column_table(name).tobytes()
    for name in ("norm1", "sumsq"):  # what a store collects block by block
        parts = [column_tables(ref.load())[name] for ref in cut.column_blocks()]
        assert np.concatenate(parts).tobytes() == whole.column_table(name).tobytes()
    by_hand = [column_tables(sp.csc_array(X[:, [j]]) if form == "csc_array" else data[:, [j]])["sumsq"][0] for j in range(30)]
    assert whole.column_table("sumsq").tolist() == by_hand


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (2, 17), (5, 3), (33, 300), (100, 5000)])
def test_one_look_gives_the_same_bits_in_every_order_of_memory(shape, dtype):
    rng = np.random.default_rng(shape[1])
    X = (rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4, shape[1]) + 1e3 * rng.integers(0, 2, shape[1])).astype(dtype)
    weight = rng.integers(0, 3, shape[0]).astype(float) + np.arange(shape[0]) * 0.25 * (np.arange(shape[0]) > 4)
    weight[-1] = 1.0
    spread = np.zeros((2 * shape[0], 3 * shape[1]), dtype)
    spread[::2, ::3] = X
    locked = X.copy()
    locked.flags.writeable = False
    forms = [X, np.asfortranarray(X), spread[::2, ::3], locked, X.astype(X.dtype.newbyteorder()), X[::-1].copy()[::-1]]
    for counted in (None, weight):
        tables = [column_tables(form, counted, moments=True) for form in forms]
        for name, first in tables[0].items():
            assert all(other[name].tobytes() == first.tobytes() for other in tables), name
            one = column_tables(X[:, -1:], counted, moments=True)[name]
            assert first[-1:].tobytes() == one.tobytes(), name
        pieces, ends = DenseSums(shape[1]), sorted({0, 1, shape[0] // 3, shape[0] // 2, shape[0]})
        for lo, hi in pairwise(ends):
            pieces.add(X[lo:hi], None if counted is None else counted[lo:hi])
        again = pieces.tables(X.dtype, shape[0] if counted is None else counted[counted != 0].sum(), moments=True)
        assert {name: table.tobytes() for name, table in again.items()} == {name: table.tobytes() for name, table in tables[0].items()}
        wide, used = X.astype(np.longdouble), np.ones(shape[0]) if counted is None else counted
        mean = (wide * used[:, None]).sum(axis=0) / used.sum()
        variance = (used[:, None] * (wide - mean) ** 2).sum(axis=0) / used.sum()
        np.testing.assert_allclose(tables[0]["mean"], mean.astype(float), rtol=1e-12, atol=1e-12 * float(np.abs(wide).max()))
        np.testing.assert_allclose(tables[0]["variance"], variance.astype(float), rtol=1e-10)
        assert np.array_equal(tables[0]["minimum"], X[used > 0].min(axis=0))
        lone, cut = sp.csc_array(X[:, -1:]), shape[0] // 2
        parts = [(np.array([0, len(part)], np.int32), part, lone.data[part]) for part in np.split(lone.indices, [cut])]
        again = sparse_tables(lambda parts=parts: parts, shape[0], counted, moments=True)
        whole = column_tables(lone, counted, moments=True)
        assert {name: table.tobytes() for name, table in again.items()} == {name: table.tobytes() for name, table in whole.items()}
        sparse = column_tables(sp.csc_array(X), counted, moments=True)
        assert np.array_equal(sparse["minimum"], X[used > 0].min(axis=0))
        np.testing.assert_allclose(sparse["variance"], variance.astype(float), rtol=1e-9)


def test_the_first_value_of_a_column_may_lie_far_from_the_others():
    X = np.random.default_rng(0).normal(size=(2000, 3))
    X[0] = [1e8, 1e-8, 5.0]
    tables = column_tables(X, sizes=False, moments=True)
    assert set(tables) == {"minimum", "maximum", "mean", "variance"}
    np.testing.assert_allclose(tables["variance"], X.var(axis=0), rtol=1e-11)
    assert column_tables(np.full((7, 2), 1e200), moments=True)["variance"].tolist() == [0, 0]


def test_empty_blocks_have_empty_tables():
    assert {name: len(table) for name, table in column_tables(np.zeros((0, 3))).items()} == dict.fromkeys(
        ("counts", "norm1", "sumsq", "minimum", "maximum"), 3
    )
    assert MemoryBlocks(sp.csc_array((5, 0))).column_table("norm1").shape == (0,)


# -- cache -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fake:
    name: int
    nbytes: int
    loads: list

    def __hash__(self):
        return self.name

    def load(self):
        self.loads.append(self.name)
        return np.full(3, self.name)


def test_cache_keeps_within_its_bytes_what_is_used_again():
    loads = []
    a, b, c, big = (Fake(i, size, loads) for i, size in enumerate((40, 40, 40, 101)))
    cache = BlockCache(100)
    for ref in (a, b, a, c, a, b, big, a):
        assert cache.load(ref)[0] == ref.name
    assert loads == [0, 1, 2, 3] and cache.nbytes == 80 and (cache.hits, cache.misses) == (4, 4)
    cache.set_limit(40)
    assert cache.nbytes == 40 and cache.held(a) is not None and cache.held(b) is None
    cache.set_limit(0)
    cache.load(a)
    assert cache.nbytes == 0
    cache.clear()
    assert (cache.hits, cache.misses) == (0, 0)


def test_of_a_cycle_that_does_not_fit_what_fits_stays():
    loads = []
    cycle = [Fake(i, 10, loads) for i in range(10)]
    cache = BlockCache(70)
    for ref in cycle * 5:
        cache.load(ref)
    assert loads == [*range(10), *[7, 8, 9] * 4] and cache.nbytes == 70


def test_blocks_nobody_reads_any_more_make_room():
    loads = []
    old, new = ([Fake(i, 10, loads) for i in range(lo, lo + 5)] for lo in (0, 5))
    cache = BlockCache(50)
    for ref in old * 2 + new * 4:
        cache.load(ref)
    assert loads == [*range(5), *range(5, 10), *range(5, 10)] and all(cache.held(ref) is not None for ref in new)


def test_cache_of_the_process_and_threads(tmp_path):
    store = sparse_store(tmp_path / "s", random_sparse(40, 60))
    refs = store.column_blocks()
    block_cache().clear()
    set_cache_limit(sum(ref.nbytes for ref in refs[:4]))
    wrong = []

    def work():
        for ref in refs * 5:
            if not same_block(block_cache().load(ref), ref.load()):
                wrong.append(ref)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and 0 < block_cache().nbytes <= block_cache().limit
    [view] = MemoryBlocks(np.eye(3)).column_blocks()
    misses = block_cache().misses
    assert block_cache().load(view) is not None and block_cache().misses == misses
    block_cache().clear()
    set_cache_limit(256 << 20)


@pytest.mark.parametrize("order", ["C", "F", "every other row", "part of wider rows", "in no order"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_look_sees_what_is_not_finite_and_any_changed_number(dtype, order):
    for shape in ((9, 11), (64, 3), (35, 1)):
        X = np.asarray(np.random.default_rng(0).normal(size=(shape[0], shape[1] + 1)), dtype, order="F" if order == "F" else "C")
        X = {"every other row": X[::2], "part of wider rows": X[1:, 1:], "in no order": X[:, ::2]}.get(order, X)
        before = look(X)
        assert before.is_finite and before == look(X)
        for place in np.ndindex(X.shape):
            kept = X[place]
            for value in (np.nan, -np.inf, np.finfo(dtype).max, np.nextafter(kept, dtype(9))):
                X[place] = value
                seen = look(X)
                assert seen.is_finite == np.isfinite(value)
                assert seen.mark != before.mark
            X[place] = kept


def test_a_look_at_a_sparse_matrix_sees_its_values_and_their_places():
    X = random_sparse(40, 30).tocsr()
    marks = {look(X).mark}
    for part, value in ((X.data, np.inf), (X.indices, 29), (X.indptr, 1)):
        part[1] = value
        marks.add(look(X).mark)
    assert len(marks) == 4
    assert not look(X).is_finite
