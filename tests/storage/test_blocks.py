"""Block stores: round trips, agreement with Zarr in both directions, references, tables, remote stores."""

import itertools
import json
import pickle
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gramplane.storage import (
    BlockMeta,
    BlockRef,
    BlockStore,
    BlockWriter,
    ColumnScale,
    DigestMismatch,
    MemoryBlocks,
    MissingBlock,
    SchemaError,
    plan_stripes,
    urls,
)
from gramplane.storage.blocks import arrays as stored_arrays
from gramplane.storage.blocks.store import open_shared
from gramplane.storage.manifest import read_seal, write_seal
from gramplane.storage.objects import LocalObjects, as_bytes
from gramplane.storage.remote import RemoteObjects
from tests.support.stores import dense_store, random_sparse, same_block, sparse_store, write_sparse


def columns_of(X, lo, hi):
    part = sp.csc_array(X[:, lo:hi]) if sp.issparse(X) else np.ascontiguousarray(X[:, lo:hi])
    if sp.issparse(part):
        part.sort_indices()
    return part


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(40, 60), (1, 5), (7, 1), (30, 0), (0, 4)])
def test_sparse_blocks_come_back_bit_for_bit(tmp_path, shape, dtype):
    X = random_sparse(*shape, dtype=dtype)
    store = sparse_store(tmp_path / "s", X)
    for _ in range(2):  # the first read checks, later reads take the direct path
        refs = store.column_blocks()
        assert [ref.cols for ref in refs] == list(zip([r.cols[0] for r in refs], [r.cols[1] for r in refs]))
        assert all(same_block(ref.load(), columns_of(X, *ref.cols)) for ref in refs)
        assert sum(ref.nnz for ref in refs) == X.nnz
    assert store.shape == shape and store.meta.dtype == dtype


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(40, 60), (3, 200), (200, 3), (1, 1), (5, 0)])
def test_dense_blocks_come_back_bit_for_bit(tmp_path, shape, dtype):
    X = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    store = dense_store(tmp_path / "s", X, both=True)
    for _ in range(2):
        assert all(same_block(ref.load(), columns_of(X, *ref.cols)) for ref in store.column_blocks())
        assert all(same_block(ref.load(), np.ascontiguousarray(X[ref.rows[0] : ref.rows[1]])) for ref in store.row_blocks())


def test_row_wise_layout_holds_the_same_data(tmp_path):
    X = random_sparse(50, 30)
    store = sparse_store(tmp_path / "s", X, both=True)
    rows = [ref.load() for ref in store.row_blocks()]
    assert len(rows) > 1 and all(block.format == "csr" for block in rows)
    assert (sp.vstack(rows) != X).nnz == 0


def test_store_without_rows_says_so(tmp_path):
    with pytest.raises(SchemaError, match="layout='both'"):
        sparse_store(tmp_path / "s", random_sparse(5, 5)).row_blocks()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ids=st.lists(st.integers(0, 59), max_size=80), checked=st.booleans(), rows=st.none() | st.tuples(st.integers(0, 40), st.integers(0, 40))
)
@pytest.mark.parametrize("kind", ["sparse", "dense", "memory-sparse", "memory-dense"])
def test_columns_in_any_order_with_repetition_and_of_any_rows(tmp_path_factory, kind, ids, checked, rows):
    X = random_sparse(40, 60)
    place = tmp_path_factory.getbasetemp() / f"columns-{kind}"
    if not place.exists() and "memory" not in kind:
        sparse_store(place, X) if kind == "sparse" else dense_store(place, X.toarray())
    store = BlockStore.open(place) if "memory" not in kind else MemoryBlocks(X if kind == "memory-sparse" else X.toarray())
    if checked:
        for ref in store.column_blocks():
            ref.load()
    span = None if rows is None else (min(rows), max(rows))
    found = store.columns(ids, span)
    expected = X.toarray()[slice(*span) if span else slice(None), np.asarray(ids, int)]
    if "sparse" in kind:
        assert found.indices.dtype == found.indptr.dtype == np.int32 and found.has_sorted_indices
        found = found.toarray()
    else:
        assert found.flags.c_contiguous
    assert np.array_equal(found, expected)


def test_checked_columns_read_only_their_bytes(tmp_path, monkeypatch):
    X = random_sparse(2000, 50, heavy=True)
    store = sparse_store(tmp_path / "s", X, stripe_bytes=1 << 20)
    [ref] = store.column_blocks()
    ref.load()
    seen = []
    original = LocalObjects.read_into
    monkeypatch.setattr(
        LocalObjects, "read_into", lambda self, key, out, *rest: (seen.append((key, out.nbytes)), original(self, key, out, *rest))[1]
    )
    monkeypatch.setattr(stored_arrays.ChunkedArray.gather, "__defaults__", (0,))
    found = store.columns([3, 25])
    assert np.array_equal(found.toarray(), X.toarray()[:, [3, 25]])
    assert sum(size for key, size in seen if "values" in key) == 4 * found.nnz


@pytest.mark.parametrize("bad", [[60], [-1], [0.5], [[1, 2]], ["a"]])
def test_ids_outside_are_refused(tmp_path, bad):
    store = sparse_store(tmp_path / "s", random_sparse(5, 60))
    with pytest.raises(SchemaError, match="ids"):
        store.columns(bad)


def test_zarr_reads_the_same_numbers(tmp_path):
    X = random_sparse(40, 60)
    store = sparse_store(tmp_path / "s", X, both=True)
    group = zarr.open_group(store.place, mode="r")
    rows, values, edges = (np.asarray(group[f"columns/{name}"]) for name in ("rows", "values", "edges"))
    offsets, counts = np.asarray(group["columns/offsets"]), np.asarray(group["columns/counts"])
    chunk = group["columns/rows"].chunks[0]
    for s, (lo, hi) in enumerate(itertools.pairwise(edges)):
        start, nnz = offsets[s] * chunk, int(counts[lo:hi].sum())
        indptr = np.concatenate([[0], np.cumsum(counts[lo:hi])])
        block = sp.csc_array((values[start : start + nnz], rows[start : start + nnz], indptr), shape=(40, hi - lo))
        assert (block != X[:, lo:hi]).nnz == 0
        assert np.isnan(values[start + nnz : offsets[s + 1] * chunk]).all() and (rows[start + nnz : offsets[s + 1] * chunk] == 0).all()
    assert np.array_equal(group["y"][:], store.target())
    assert group.attrs["gramplane"]["schema"] == "gramplane.blocks/6"


def test_zarr_reads_dense_stores(tmp_path):
    X = np.random.default_rng(0).standard_normal((23, 47))
    store = dense_store(tmp_path / "s", X, both=True)
    group = zarr.open_group(store.place, mode="r")
    assert np.array_equal(group["columns/dense"][:], X) and np.array_equal(group["rows/dense"][:], X)


def copy_through_zarr(source: Path, target: Path) -> None:
    """Write every array of a store again with the Zarr library, and seal what it wrote."""
    old = zarr.open_group(source, mode="r")
    new = zarr.create_group(target, attributes=dict(old.attrs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        members = sorted(old.members(max_depth=None))
    for path, node in members:
        if isinstance(node, zarr.Group):
            new.require_group(path)
            continue
        array = new.create_array(
            path,
            shape=node.shape,
            chunks=node.chunks,
            dtype=node.dtype,
            compressors=None,
            fill_value=node.fill_value,
            config={"write_empty_chunks": True},
        )
        array[...] = node[...]
    objects = LocalObjects(target)
    listed = {key: (data.nbytes, stored_arrays.crc32c(data)) for key in objects.listing() for data in [objects.read(key)]}
    write_seal(objects, listed)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_stores_written_by_zarr_have_the_same_chunk_bytes_and_blocks(tmp_path, kind):
    X = random_sparse(40, 60)
    store = sparse_store(tmp_path / "a", X, both=True) if kind == "sparse" else dense_store(tmp_path / "a", X.toarray(), both=True)
    copy_through_zarr(Path(store.place), tmp_path / "b")
    other = BlockStore.open(tmp_path / "b")
    assert all(same_block(a.load(), b.load()) for a, b in zip(store.column_blocks(), other.column_blocks(), strict=True))
    assert all(same_block(a.load(), b.load()) for a, b in zip(store.row_blocks(), other.row_blocks(), strict=True))
    assert np.array_equal(store.target(), other.target())
    chunks = [file.relative_to(store.place) for file in Path(store.place).rglob("*") if file.is_file() and "c" in file.parts]
    assert chunks and all((Path(store.place) / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in chunks)


def test_references_are_small_and_reopen_nothing(tmp_path, monkeypatch):
    store = sparse_store(tmp_path / "s", random_sparse(40, 60))
    refs = store.column_blocks()
    packed = pickle.dumps(refs[2])
    assert len(packed) < 300
    copy = pickle.loads(packed)
    assert copy == refs[2] and isinstance(copy, BlockRef)
    monkeypatch.setattr(BlockStore, "__init__", None)  # a second opening would fail
    assert same_block(copy.load(), refs[2].load())
    assert pickle.loads(pickle.dumps(store)) is open_shared(store.url, store.digest)


def test_reference_to_a_replaced_store_is_refused(tmp_path):
    first = sparse_store(tmp_path / "s", random_sparse(40, 60))
    ref = first.column_blocks()[0]
    sparse_store(tmp_path / "s", random_sparse(40, 60, seed=1), overwrite=True)
    with pytest.raises(DigestMismatch, match="replaced"):
        BlockRef(*(getattr(ref, f) for f in ("url", "layout", "index", "rows", "cols", "nnz", "nbytes")), digest="0" * 64).load()


def test_same_data_same_digest_other_data_other_digest(tmp_path):
    a, b, c = (sparse_store(tmp_path / name, random_sparse(20, 30, seed=seed)) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert a.digest == b.digest != c.digest and len(a.digest) == 64


def test_tables_names_groups_and_scale(tmp_path):
    X = random_sparse(20, 30)
    writer = write_sparse(tmp_path / "s", X)
    names = [f"gène {j}" if j % 7 else "" for j in range(30)]
    scale = ColumnScale("unit-row", np.linspace(1, 2, 30), None, np.linspace(2, 3, 20))
    writer.write_names(names)
    writer.write_groups(np.arange(30) // 4)
    writer.write_scale(scale)
    writer.write_table("task", np.arange(20, dtype=np.int32))
    writer.write_table("targets", np.arange(60.0).reshape(20, 3))
    writer.write_table("norm1", np.ones(30, np.float32), of="columns")
    store = writer.commit()
    assert store.feature_names() == names and store.groups().tolist() == (np.arange(30) // 4).tolist()
    assert store.scale.kind == store.meta.scale == "unit-row" and store.scale.shift is None
    assert np.array_equal(store.scale.factor, scale.factor) and np.array_equal(store.scale.row_factor, scale.row_factor)
    assert store.row_table("task").dtype == np.int32 and store.row_table("targets").shape == (20, 3)
    assert store.column_table("norm1").dtype == np.float32 and store.meta.labels == ("no", "yes")
    assert store.has_table("task") and not store.has_table("weight") and store.has_table("counts", of="columns")
    with pytest.raises(SchemaError, match="no array 'weight'"):
        store.row_table("weight")
    for bad in ("../y", "a/b", "", "..", "x" * 129):
        with pytest.raises(SchemaError, match="must match"):
            store.row_table(bad)


def test_long_tables_span_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("gramplane.storage.layout.TABLE_CHUNK", 7)
    X = random_sparse(40, 60)
    store = sparse_store(tmp_path / "s", X)
    assert np.array_equal(store.column_table("counts"), np.diff(X.indptr)) and store.target().shape == (40,)
    assert all(same_block(ref.load(), columns_of(X, *ref.cols)) for ref in store.column_blocks())


# -- object stores ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def remote(monkeypatch, tmp_path):
    obstore = pytest.importorskip("obstore.store")
    stores = {"memory": obstore.MemoryStore(), "folder": obstore.LocalStore(tmp_path / "bucket", mkdir=True)}
    for name, store in stores.items():
        url = f"s3://{name}/data"
        monkeypatch.setitem(urls._remotes, url, RemoteObjects(url, store))
    return tmp_path / "bucket"


@pytest.mark.parametrize("bucket", ["memory", "folder"])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_object_stores_hold_the_same_bytes(remote, tmp_path, bucket, kind):
    X = random_sparse(40, 60)
    make, data = (sparse_store, X) if kind == "sparse" else (dense_store, X.toarray())
    far, near = make(f"s3://{bucket}/data", data), make(tmp_path / "near", data)
    assert far.digest == near.digest and far.verify().ok
    assert all(same_block(a.load(), b.load()) for a, b in zip(far.column_blocks(), near.column_blocks(), strict=True))
    for _ in range(2):
        assert same_block(far.columns([5, 30, 5, 2]), near.columns([5, 30, 5, 2]))
    if bucket == "folder":
        assert BlockStore.open(remote).digest == near.digest


def test_damage_in_an_object_store_is_noticed(remote):
    store = sparse_store("s3://memory/data", random_sparse(40, 60))
    objects = urls.open_objects("s3://memory/data")
    data = objects.read("v1/columns/values/c/1").copy()
    data[3] ^= 4
    objects.write("v1/columns/values/c/1", data)
    objects.write("v1/columns/rows/c/2", data[:-1])
    objects.delete("v1/columns/rows/c/0")
    assert [damage.key for damage in store.verify().damaged] == ["columns/rows/c/0", "columns/rows/c/2", "columns/values/c/1"]
    with pytest.raises(MissingBlock):
        store.columns([0])


@pytest.mark.parametrize("bad", ["ftp://host/x", "zip://x", "memory://x"])
def test_unknown_schemes_are_refused(bad):
    with pytest.raises(SchemaError, match="scheme"):
        BlockStore.open(bad)


def test_file_urls_are_paths(tmp_path):
    sparse_store(tmp_path / "with space", random_sparse(5, 5))
    assert BlockStore.open(f"file://{tmp_path}/with%20space").shape == (5, 5)


# -- hostile and foreign stores --------------------------------------------------------------------------------------------


def reseal(place: Path) -> None:
    objects = LocalObjects(place)
    (place / "manifest.json").unlink()
    listed = {key: (data.nbytes, stored_arrays.crc32c(data)) for key in objects.listing() for data in [objects.read(key)]}
    write_seal(objects, listed)


def change(place: Path, key: str, **fields: object) -> None:
    path = place / key
    value = json.loads(path.read_text())
    for name, replacement in fields.items():
        target = value
        *parents, last = name.split("__")
        for parent in parents:
            target = target[parent]
        target[last] = replacement
    path.write_text(json.dumps(value))
    reseal(place)


CHUNKS = "chunk_grid__configuration__chunk_shape"


@pytest.mark.parametrize(
    ("key", "fields", "message"),
    [
        ("columns/rows/zarr.json", {CHUNKS: [2**40]}, "limit is 536870912"),
        ("columns/rows/zarr.json", {CHUNKS: [0]}, "chunk_grid"),
        ("columns/rows/zarr.json", {CHUNKS: [-5]}, "chunk_shape"),
        ("columns/rows/zarr.json", {CHUNKS: ["x"]}, "chunk_shape"),
        ("columns/rows/zarr.json", {"shape": [2**60]}, "manifest lists"),
        ("columns/rows/zarr.json", {"shape": [2**62]}, "shape is .* below 2\\^62"),
        ("columns/rows/zarr.json", {CHUNKS: [2**62]}, "chunk_shape is .* below 2\\^62"),
        ("columns/rows/zarr.json", {"shape": [True]}, "shape"),
        ("columns/rows/zarr.json", {"codecs": [{"name": "zstd"}]}, "codecs"),
        ("columns/rows/zarr.json", {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}, "codecs"),
        ("columns/rows/zarr.json", {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]}, "codecs"),
        ("columns/rows/zarr.json", {"data_type": "object"}, "data_type"),
        ("columns/rows/zarr.json", {"zarr_format": 2}, "zarr_format"),
        ("columns/rows/zarr.json", {"chunk_key_encoding": {"name": "v2"}}, "chunk_key_encoding"),
        ("zarr.json", {"attributes": {}}, "not a block store"),
        ("zarr.json", {"attributes__gramplane__schema": "gramplane.blocks/99"}, "gramplane ingest"),
        ("zarr.json", {"attributes__gramplane__n_rows": -1}, "n_rows"),
        ("zarr.json", {"attributes__gramplane__n_rows": "7"}, "n_rows is '7'"),
        ("zarr.json", {"attributes__gramplane__labels": 7}, "labels is 7"),
        ("zarr.json", {"attributes__gramplane__labels": ["no", ["yes"]]}, "labels is"),
        ("zarr.json", {"attributes__gramplane__layouts": 1.5}, "layouts is 1.5"),
        ("zarr.json", {"attributes__gramplane__info": [1]}, "info is"),
        ("zarr.json", {"attributes__gramplane__n_cols": 61}, "must divide 61"),
        ("zarr.json", {"attributes__gramplane__kind": "pickle"}, "kind"),
        ("zarr.json", {"attributes__gramplane__dtype": "object"}, "dtype"),
    ],
)
def test_foreign_descriptions_are_refused_with_the_field(tmp_path, key, fields, message):
    sparse_store(tmp_path / "s", random_sparse(40, 60))
    change(tmp_path / "s/v1", key, **fields)
    with pytest.raises((SchemaError, MissingBlock), match=message):
        BlockStore.open(tmp_path / "s/v1")


def test_only_what_lies_in_one_piece_is_read_into():
    for whole in (np.zeros((3, 4)), np.zeros((3, 4))[1:], np.zeros((5, 1), order="F"), np.zeros((0, 3)), np.array(1.0)):
        view = as_bytes(whole)
        view[:] = 255
        assert view.nbytes == whole.nbytes and np.isnan(whole).all()
    for scattered in (np.zeros((3, 4)).T, np.zeros((3, 4))[:, 1:], np.zeros(6)[::2]):
        with pytest.raises(ValueError, match="not C-contiguous"):
            as_bytes(scattered)


def test_symbolic_links_are_refused(tmp_path):
    store = sparse_store(tmp_path / "s", random_sparse(40, 60))
    chunk = tmp_path / "s/v1/columns/rows/c/0"
    shutil.move(chunk, tmp_path / "outside")
    chunk.symlink_to(tmp_path / "outside")
    with pytest.raises(SchemaError, match="symbolic link"):
        store.column_blocks()[0].load()
    sparse_store(tmp_path / "t", random_sparse(40, 60))
    shutil.move(tmp_path / "t/v1/columns/values", tmp_path / "values")
    (tmp_path / "t/v1/columns/values").symlink_to(tmp_path / "values")
    with pytest.raises(SchemaError, match="symbolic link"):
        BlockStore.open(tmp_path / "t")
    (tmp_path / "link").symlink_to(tmp_path / "good")
    sparse_store(tmp_path / "good", random_sparse(40, 60))
    assert BlockStore.open(tmp_path / "link").verify().ok  # the way to a store may be a link


@pytest.mark.parametrize("hostile", ["../evil", "/etc/passwd", "a//b", "a/./b", "..", "columns/../../x", "a\\b", "a\0b", "x" * 200, ""])
def test_hostile_keys_never_leave_the_store(tmp_path, hostile):
    objects = LocalObjects(tmp_path / "s")
    with pytest.raises(SchemaError, match="object key"):
        objects.write(hostile, b"x")
    with pytest.raises(SchemaError, match="object key"):
        objects.read(hostile)
    store = sparse_store(tmp_path / "s", random_sparse(5, 5))
    listed, _ = read_seal(LocalObjects(tmp_path / "s/v1"))
    write_seal(LocalObjects(tmp_path / "s/v1"), {**listed, hostile: (1, 1)})
    with pytest.raises(DigestMismatch, match=r"(?s)object key.*the manifest is damaged"):
        BlockStore.open(store.place)


def test_no_store_and_no_manifest(tmp_path):
    with pytest.raises(MissingBlock, match="not a store"):
        BlockStore.open(tmp_path / "absent")
    writer = write_sparse(tmp_path / "s", random_sparse(5, 5))
    with pytest.raises(MissingBlock, match="never finished"):
        BlockStore.open(tmp_path / "s")
    assert writer.commit().verify().ok


def test_meta_refuses_impossible_values():
    with pytest.raises(SchemaError, match="n_rows"):
        BlockMeta(2**31, 1, "sparse", "float32")
    with pytest.raises(SchemaError, match="scale"):
        ColumnScale("robust")


def test_layout_of_other_data_is_refused(tmp_path):
    with pytest.raises(SchemaError, match="does not fit"):
        BlockWriter.create(tmp_path / "s", BlockMeta(5, 9, "sparse", "float32"), plan_stripes([1, 2], 4))
