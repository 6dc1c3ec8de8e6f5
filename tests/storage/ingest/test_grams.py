"""Precomputed Gram matrices: every form gives the same bytes; what is no Gram matrix is refused by kernel, row and column."""

import subprocess
import sys

import numpy as np
import pytest

from gramplane.storage import DataError, DigestMismatch, GramStore, SchemaError
from gramplane.storage.ingest import grams as module
from gramplane.storage.ingest import ingest_grams
from tests.support.grams import random_grams, whole
from tests.support.places import ROOT

GRAMS = random_grams(3, 50, dtype="float64")
SINGLE = random_grams(3, 50)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(module, "_TILE", 16)


def forms(folder, grams):
    """The same matrices in every form: name -> source."""
    da, zarr = pytest.importorskip("dask.array"), pytest.importorskip("zarr")
    np.save(folder / "a.npy", grams)
    np.save(folder / "f.npy", np.asfortranarray(grams))
    np.savez(folder / "one.npz", K=grams)
    np.savez_compressed(folder / "many.npz", **{str(q): gram for q, gram in enumerate(grams)})
    array = zarr.create_array(folder / "z.zarr", shape=grams.shape, chunks=(2, 20, 50), dtype=grams.dtype)
    array[:] = grams
    shards = zarr.create_array(folder / "s.zarr", shape=grams.shape, chunks=(1, 10, 10), shards=(1, 20, 20), dtype=grams.dtype)
    shards[:] = grams
    return {
        "array": grams,
        "list": list(grams),
        "columns first": np.asfortranarray(grams),
        "npy": folder / "a.npy",
        "npy, columns first": str(folder / "f.npy"),
        "npz": folder / "one.npz",
        "npz by name": folder / "many.npz",
        "dask": da.from_array(grams, chunks=(2, 17, 30)),
        "zarr": array,
        "zarr path": str(folder / "z.zarr"),
        "zarr shards": folder / "s.zarr",
    }


@pytest.mark.parametrize("grams", [GRAMS, SINGLE, SINGLE.astype(np.float64)], ids=["double", "single", "single as double"])
def test_every_form_gives_the_same_bytes(tmp_path, grams):
    digests = {}
    for name, source in forms(tmp_path, grams).items():
        store = ingest_grams(source, tmp_path / name, block=20)
        assert np.array_equal(whole(store), grams) and store.meta.dtype == ("float64" if grams is GRAMS else "float32")
        assert [store.describe(digest)["label"] for digest in store.kernels] == ["0", "1", "2"]
        digests[name] = store.digest
    assert len(set(digests.values())) == 1, digests
    assert not list(tmp_path.glob("gramplane-*"))


def test_a_second_call_writes_nothing_and_further_kernels_are_added(tmp_path):
    first = ingest_grams(GRAMS, tmp_path / "g", block=20)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "g").rglob("*") if path.name != "lock"}
    assert ingest_grams(GRAMS, tmp_path / "g").digest == first.digest
    assert all(path.stat().st_mtime_ns == then for path, then in times.items())
    more = ingest_grams(SINGLE[0], tmp_path / "g", names=["new"])
    assert np.array_equal(whole(more), np.concatenate([GRAMS, SINGLE[:1]])) and more.describe(more.kernels[3])["label"] == "new"


def test_equal_matrices_under_different_names_are_kept_apart(tmp_path):
    store = ingest_grams([GRAMS[0], GRAMS[0]], tmp_path / "g")
    assert len(store.kernels) == 2 and np.array_equal(whole(store), GRAMS[[0, 0]])


def test_rounding_below_the_diagonal_is_taken_from_above(tmp_path):
    noisy = GRAMS * (1 + 1e-14 * np.tril(np.random.default_rng(0).standard_normal((50, 50)), -1))
    store = ingest_grams(noisy, tmp_path / "g", block=20)
    assert np.array_equal(whole(store), np.where(np.triu(np.ones((50, 50), bool)), noisy, noisy.transpose(0, 2, 1)))


def test_integers_and_half_precision(tmp_path):
    counts = np.rint(GRAMS[0]).astype(np.int64)
    assert np.array_equal(whole(ingest_grams(counts, tmp_path / "i"))[0], counts)
    half = GRAMS[0].astype(np.float16)
    assert np.array_equal(whole(ingest_grams(half, tmp_path / "h"))[0], half)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ((1, 3, 30), np.nan, "kernel '1', row 4, column 31: the value is not finite"),
        ((1, 30, 3), np.inf, "kernel '1', row 31, column 4: the value is not finite"),
        ((2, 40, 40), -np.inf, "kernel '2', row 41, column 41"),
        ((0, 3, 30), 99.0, "kernel '0' is not symmetric: 99.0 in row 4, column 31"),
        ((0, 31, 30), 99.0, "but 99.0 the other way round"),
    ],
)
def test_faults_are_named_before_anything_is_written(tmp_path, place, value, words):
    bad = GRAMS.copy()
    bad[place] = value
    np.save(tmp_path / "a.npy", bad)
    masked = np.ma.masked_invalid(bad)
    for source in (tmp_path / "a.npy", *((masked, list(masked)) if np.isnan(value) else ())):
        with pytest.raises(DataError, match=words):
            ingest_grams(source, tmp_path / "g")
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_a_difference_across_the_diagonal_is_judged_by_the_size_of_the_kernel(tmp_path, size):
    bad = size * GRAMS[0]
    bad[3, 30] += 1e-6 * bad[3, 3]
    with pytest.raises(DataError, match=r"kernel '0' is not symmetric: .* in row 4, column 31"):
        ingest_grams(bad, tmp_path / "g")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (np.zeros((2, 3, 4)), "shapes"),
        (np.zeros(3), "shape"),
        (np.zeros((0, 3, 3)), "shapes"),
        (np.zeros((1, 0, 0)), "shapes"),
        (np.zeros((2, 2), complex), "type"),
        (np.zeros((2, 2), object), "type"),
        (3, "int"),
    ],
)
def test_other_shapes_and_types_are_refused(tmp_path, source, words):
    with pytest.raises(SchemaError, match=words):
        ingest_grams(source, tmp_path / "g")


def test_damaged_files_are_refused(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"no array")
    (tmp_path / "a.npz").write_bytes(b"PK no archive")
    (tmp_path / "folder").mkdir()
    for name in ("a.npy", "a.npz", "folder", "absent.npy"):
        with pytest.raises(DataError, match=r"cannot be read|is not a Zarr array"):
            ingest_grams(tmp_path / name, tmp_path / "g")
    np.savez(tmp_path / "b.npz", K=np.array([object()]))
    with pytest.raises(DataError, match="cannot be read"):
        ingest_grams(tmp_path / "b.npz", tmp_path / "g")


def test_type_names_and_data_are_checked(tmp_path):
    with pytest.raises(SchemaError, match="fit into it exactly"):
        ingest_grams(GRAMS, tmp_path / "g", dtype="float32")
    for names in (["a", "b"], ["a", "b", "a"]):
        with pytest.raises(SchemaError, match="names"):
            ingest_grams(GRAMS, tmp_path / "g", names=names)
    ingest_grams(SINGLE, tmp_path / "g", data_digest="a" * 64)
    with pytest.raises(SchemaError, match="the store is 'float32'"):
        ingest_grams(GRAMS, tmp_path / "g", data_digest="a" * 64)
    with pytest.raises(DigestMismatch, match=r"(?s)a{64}.*b{64}"):
        ingest_grams(SINGLE, tmp_path / "g", data_digest="b" * 64)


def test_progress_is_reported_and_an_interrupted_call_continues(tmp_path):
    seen = []

    def stop(done, total, phase):
        seen.append((done, total, phase))
        if phase == "write" and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest_grams(GRAMS, tmp_path / "g", block=20, progress=stop)
    assert seen == [*((k, 3, "check") for k in (1, 2, 3)), *((k, 6, "write") for k in (1, 2, 3))]
    assert len(GramStore.open(tmp_path / "g").missing()) == 3
    assert ingest_grams(GRAMS, tmp_path / "g", block=20).digest == ingest_grams(GRAMS, tmp_path / "h", block=20).digest


@pytest.mark.slow
def test_memory_is_bounded_by_the_budget(tmp_path):
    """A file of 288 MB through objects of 4 MB; mapped pages are the system's, so they do not count."""
    big = np.lib.format.open_memmap(tmp_path / "a.npy", mode="w+", dtype=np.float64, shape=(4, 3000, 3000))
    x = np.random.default_rng(0).standard_normal((3000, 20))
    for q in range(4):
        big[q] = x @ x.T + q
    big.flush()
    code = (
        "import sys; from pathlib import Path; from gramplane.storage.ingest import ingest_grams\n"
        "def anonymous():\n"
        "    return max(int(l.split()[1]) for l in Path('/proc/self/status').read_text().splitlines() if l.startswith('RssAnon'))\n"
        "before, worst = anonymous(), [0]\n"
        "ingest_grams(sys.argv[1], sys.argv[2], budget=4 << 20, progress=lambda *a: worst.append(anonymous()))\n"
        "print((max(worst) - before) >> 10)\n"
    )
    root = ROOT
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "a.npy", tmp_path / "g"], capture_output=True, text=True, cwd=root)
    assert int(run.stdout) < 48, run.stderr
