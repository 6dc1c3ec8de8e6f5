"""Sparse ingest: the external sort against SciPy, independence of jobs, memory and piece sizes, widths, labels, scaling."""

import bz2
import gzip
import io
import lzma
import os
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler, normalize

from gramplane.storage import BlockStore, DataError, SchemaError, urls
from gramplane.storage.ingest import buckets, ingest
from gramplane.storage.ingest.buckets import ColumnSummary
from gramplane.storage.ingest.options import MIN_BUDGET
from gramplane.storage.ingest.planning import _STORED, _stripes_at_most
from gramplane.storage.ingest.text import spool, text
from gramplane.storage.meta import BlockMeta
from gramplane.storage.remote import RemoteObjects
from tests.support.oracles import svmlight as oracle
from tests.support.svmlight_files import check_store, check_tables, dense, labels_for, random_csr, to_text, write_file


@pytest.fixture
def small_pieces(monkeypatch):
    """Ranges of 700 bytes, buckets of 40 entries, everything in the scratch folder."""
    monkeypatch.setattr(spool, "PIECE", 700)
    monkeypatch.setattr(text, "PIECE", 700)
    monkeypatch.setattr(text, "_TEXT_TO_MEMORY", 1 << 40)
    monkeypatch.setattr(buckets, "BUCKET_NNZ", 40)
    monkeypatch.setattr(buckets, "BUCKET_COLUMNS", 9)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "data.svm"
    return path, *write_file(path)


def test_columns_as_scipy_has_them(source, tmp_path):
    path, X, y = source
    store = ingest(path, tmp_path / "S", layout="both")
    check_store(store, X, y, rows=True)
    assert store.meta.kind == "sparse"
    assert store.meta.labels == (-1, 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["S", "data.svm"]


def test_external_sort_gives_the_bytes_of_the_sort_in_memory(source, tmp_path, request):
    path, X, y = source
    held = ingest(path, tmp_path / "held", layout="both", scale="unit-row")
    request.getfixturevalue("small_pieces")
    spilled = ingest(path, tmp_path / "spilled", layout="both", scale="unit-row")
    check_store(spilled, X, y, rows=True)
    assert spilled.digest != "" and _same_objects(held, spilled)


def _same_objects(one, other):
    """Compare everything but the description, which names the source's digest (it depends on the size of its pieces)."""
    listed = [{k: v for k, v in store._listed.items() if k != "zarr.json"} for store in (one, other)]
    return listed[0] == listed[1]


@pytest.mark.parametrize("jobs", [2, 5])
def test_jobs_do_not_matter(source, tmp_path, small_pieces, jobs):
    path, *_ = source
    one, more = ingest(path, tmp_path / "one", jobs=1), ingest(path, tmp_path / "more", jobs=jobs)
    assert one.digest == more.digest


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 60), st.integers(5, 900), st.integers(1, 50), st.integers(1, 30))
def test_any_cut_gives_the_same_columns(tmp_path_factory, seed, n, d, piece, nnz, cols):
    folder = tmp_path_factory.mktemp("cut")
    rng = np.random.default_rng(seed)
    X = sp.csr_array(sp.random(n, d, 0.3, format="csr", random_state=rng))
    y = labels_for(seed, n, (3,))
    (folder / "a.svm").write_bytes(to_text(X, y))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "PIECE", piece)
        patch.setattr(text, "PIECE", piece)
        patch.setattr(text, "_TEXT_TO_MEMORY", 1 << 40)
        patch.setattr(buckets, "BUCKET_NNZ", nnz)
        patch.setattr(buckets, "BUCKET_COLUMNS", cols)
        check_store(ingest(folder / "a.svm", folder / "S", n_features=d, layout="both"), X, y, rows=True)


def test_stripes_smaller_than_a_popular_column(tmp_path, monkeypatch):
    X, y = write_file(tmp_path / "a.svm", n_rows=800, n_cols=30, density=0.1)
    monkeypatch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 512)
    monkeypatch.setattr(buckets, "BUCKET_NNZ", 100)
    store = ingest(tmp_path / "a.svm", tmp_path / "S", layout="both")
    assert len(store.column_blocks()) > 10
    assert max(ref.nnz for ref in store.column_blocks()) > 400
    check_store(store, X, y, rows=True)


def test_stripes_do_not_cut_groups(tmp_path, monkeypatch):
    X, _ = write_file(tmp_path / "a.svm", n_rows=300, n_cols=60, density=0.2)
    monkeypatch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 2048)
    groups = np.repeat(np.arange(12), 5)
    store = ingest(tmp_path / "a.svm", tmp_path / "S", groups=groups, n_features=X.shape[1])
    assert np.array_equal(store.groups(), groups)
    assert len(store.column_blocks()) > 3
    assert all(ref.cols[0] % 5 == 0 for ref in store.column_blocks())


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_text(source, tmp_path, small_pieces, compress):
    path, X, y = source
    packed = tmp_path / "packed"
    packed.write_bytes(compress(path.read_bytes()))
    store = ingest(packed, tmp_path / "S", format="svmlight")
    check_store(store, X, y)


def test_standard_input_and_pipes(source, tmp_path, monkeypatch):
    path, X, y = source
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    check_store(ingest("-", tmp_path / "S"), X, y)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    feeder = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    feeder.start()
    check_store(ingest(pipe, tmp_path / "T"), X, y)
    feeder.join()


def test_a_store_on_an_object_store(source, tmp_path, monkeypatch, small_pieces):
    path, X, y = source
    remote = RemoteObjects("s3://bucket/data", pytest.importorskip("obstore.store").MemoryStore())
    monkeypatch.setitem(urls._remotes, "s3://bucket/data", remote)
    store = ingest(path, "s3://bucket/data", scratch=tmp_path, scale="standard", layout="both")
    check_store(store, X, y, rows=True)
    assert store.digest == ingest(path, tmp_path / "S", scale="standard", layout="both").digest
    assert ingest(path, "s3://bucket/data", scratch=tmp_path, scale="standard", layout="both").digest == store.digest
    assert sorted(os.listdir(tmp_path)) == ["S", "data.svm"]


# -- damaged files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "compress"), [("gzip", gzip.compress), ("bzip2", bz2.compress), ("xz", lzma.compress)])
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damaged_compressed_files_leave_nothing(tmp_path, name, compress, damage):
    X = random_csr(0, n_rows=3000, n_cols=200)
    data = bytearray(compress(to_text(X, labels_for(0, 3000))))
    if damage == "cut":
        del data[len(data) * 2 // 3 :]
    else:
        data[len(data) // 2] ^= 0xFF
    packed = tmp_path / "a.svm.packed"
    packed.write_bytes(data)
    with pytest.raises(DataError, match=rf"a\.svm\.packed: {name} data damaged or cut short after \d+ bytes of text"):
        ingest(packed, tmp_path / "S", format="svmlight")
    assert os.listdir(tmp_path) == ["a.svm.packed"]


def test_explosive_compression_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("gramplane.storage.text.open_text._RATIO_GRACE", 1 << 16)
    packed = tmp_path / "bomb.svm.bz2"
    packed.write_bytes(bz2.compress(b"1 1:1\n" * 400_000))
    with pytest.raises(DataError, match="more than 1000 to 1 is rejected"):
        ingest(packed, tmp_path / "S")
    assert os.listdir(tmp_path) == ["bomb.svm.bz2"]


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_first_fault_is_reported_with_its_line_wherever_it_stands(source, tmp_path, small_pieces, jobs):
    path, *_ = source
    lines = path.read_bytes().split(b"\n")
    for bad in (60, 90):
        lines[bad] = b"1 1:2 oops:3"
    path.write_bytes(b"\n".join(lines))
    assert path.stat().st_size > 7 * 700
    with pytest.raises(DataError) as caught:
        ingest(path, tmp_path / "S", jobs=jobs)
    assert (caught.value.file, caught.value.line, caught.value.column) == (str(path), 61, 7)
    assert os.listdir(tmp_path) == ["data.svm"]
    packed = tmp_path / "data.svm.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(DataError, match=r"data\.svm\.gz:61:7: "):
        ingest(packed, tmp_path / "S")


def test_missing_files_and_folders(tmp_path):
    for path in (tmp_path / "none.svm", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            ingest(path, tmp_path / "S")


@pytest.mark.parametrize("content", [b"", b"\n# only comments\n", b"1\n-1\n"])
def test_nothing_to_store(tmp_path, content):
    path = tmp_path / "a.svm"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"rows|no row has an entry"):
        ingest(path, tmp_path / "S")
    assert os.listdir(tmp_path) == ["a.svm"]


def test_mutated_files_through_the_whole_ingest(tmp_path):
    rng = np.random.default_rng(0)
    base = bytearray(to_text(random_csr(2, 8, 12), labels_for(2, 8)))
    path, accepted = tmp_path / "a.svm", 0
    for k in range(80):
        content = bytearray(base)
        for at in rng.integers(0, len(content), rng.integers(1, 3)):
            content[at] = rng.choice(list(b"0123456789:.- \n#e+x"))
        path.write_bytes(content)
        try:
            rows, labels = oracle.read(bytes(content), high=5000)
        except oracle.Refused as why:
            with pytest.raises(DataError) as caught:
                ingest(path, tmp_path / "S", n_features=5000)
            assert caught.value.line == why.line
            continue
        store = ingest(path, tmp_path / f"S{k}", n_features=5000, task="regression")
        assert (store.columns(np.arange(5000)) != oracle.matrix(rows, 5000)).nnz == 0
        assert np.array_equal(store.target(), labels)
        accepted += 1
    assert 10 < accepted < 70


# -- widths, types, zeros ----------------------------------------------------------------------------------------------


def write(path, content):
    path.write_text(content)
    return path


def test_width(tmp_path):
    path = write(tmp_path / "a.svm", "1 1:1 5:2\n-1 2:3\n")
    assert ingest(path, tmp_path / "A").meta.n_cols == 5
    wide = ingest(path, tmp_path / "B", n_features=9)
    assert wide.column_table("counts").tolist() == [1, 1, 0, 0, 1, 0, 0, 0, 0]
    with pytest.raises(DataError, match=r"a\.svm:1:7: index 5 exceeds the 4 features \(--n-features\)"):
        ingest(path, tmp_path / "C", n_features=4)


def test_a_wild_index_is_refused_before_memory_is_taken_for_it(tmp_path):
    path = write(tmp_path / "a.svm", "1 1:1\n1 2000000000:1\n")
    with pytest.raises(DataError, match=r"a\.svm:2:3: index 2000000000 would need a table of column counts larger than the budget"):
        ingest(path, tmp_path / "S", budget=MIN_BUDGET)


@pytest.mark.parametrize(
    ("rule", "content", "counts"),
    [
        ("no", "1 1:1\n-1 2:1\n", [1, 1]),
        ("yes", "1 1:1\n-1 2:1\n", [0, 1, 1]),
        ("yes", "1 0:1\n-1 2:1\n", [1, 0, 1]),
        ("auto", "1 0:1\n-1 2:1\n", [1, 0, 1]),
        ("auto", "1 1:1\n-1 2:1\n", [1, 1]),
        ("auto", "1 0:0\n-1 2:1\n", [0, 0, 1]),
    ],
)
def test_zero_based(tmp_path, rule, content, counts):
    path = write(tmp_path / "a.svm", content)
    assert ingest(path, tmp_path / "S", zero_based=rule).column_table("counts").tolist() == counts


def test_zero_based_and_the_width(tmp_path):
    path = write(tmp_path / "a.svm", "1 0:1\n-1 3:1\n")
    assert ingest(path, tmp_path / "A", zero_based="auto", n_features=4).meta.n_cols == 4
    for rule in ("auto", "yes"):
        with pytest.raises(DataError, match="exceeds the 3 features"):
            ingest(path, tmp_path / "B", zero_based=rule, n_features=3)


def test_entries_that_are_zero_are_dropped(tmp_path):
    path = write(tmp_path / "a.svm", "1 1:0 2:1 7:0.0\n-1 1:-0.0\n")
    store = ingest(path, tmp_path / "S")
    assert store.column_table("counts").tolist() == [0, 1, 0, 0, 0, 0, 0]


def test_type_of_the_values(tmp_path):
    exact = write(tmp_path / "exact.svm", "1 1:0.5\n-1 2:16777216\n")
    lossy = write(tmp_path / "lossy.svm", "1 1:0.5\n-1 2:0.1\n")
    kinds = {}
    for path in (exact, lossy):
        for dtype in ("auto", "float32", "float64"):
            store = ingest(path, tmp_path / f"{path.stem}-{dtype}", dtype=dtype)
            kinds[path.stem, dtype] = store.meta.dtype
            wanted = np.array([0.5, 0.1 if path is lossy else 16777216]).astype(store.meta.dtype)
            assert np.array_equal(store.columns([0, 1]).data, wanted)
    assert kinds["exact", "auto"] == "float32"
    assert kinds["lossy", "auto"] == "float64"
    assert kinds["lossy", "float32"] == "float32"
    assert kinds["exact", "float64"] == "float64"


def test_one_lossy_piece_among_many_makes_all_values_double(tmp_path, small_pieces):
    X = random_csr(4, exact=True)
    X.data[-1] = 0.1
    y = labels_for(4, X.shape[0])
    (tmp_path / "a.svm").write_bytes(to_text(X, y))
    store = ingest(tmp_path / "a.svm", tmp_path / "S")
    assert store.meta.dtype == "float64"
    check_store(store, X, y)


# -- labels ------------------------------------------------------------------------------------------------------------


def test_label_codes_follow_the_sorted_labels(tmp_path):
    path = write(tmp_path / "a.svm", "3 1:1\n-2.5 1:1\n10 1:1\n3 1:1\n")
    store = ingest(path, tmp_path / "S")
    assert store.meta.labels == (-2.5, 3, 10)
    assert store.target().tolist() == [1, 0, 2, 1]


def test_real_target(tmp_path):
    path = write(tmp_path / "a.svm", "3.25 1:1\n-2.5 1:1\n")
    store = ingest(path, tmp_path / "S", task="regression")
    assert store.meta.labels is None
    assert store.target().tolist() == [3.25, -2.5]


def test_declared_labels(tmp_path, small_pieces):
    path = tmp_path / "a.svm"
    write_file(path, labels=(1, 2))
    store = ingest(path, tmp_path / "S", labels=[2, 1, 7])
    assert store.meta.labels == (1, 2, 7)
    assert set(store.target()) == {0, 1}
    with pytest.raises(DataError, match=r"a\.svm:2:1: label 2 is not one of the declared labels 1, 3"):
        ingest(path, tmp_path / "T", labels=[1, 3])
    for bad in ([], [1, "a"], [float("nan")]):
        with pytest.raises(SchemaError, match="labels"):
            ingest(path, tmp_path / "T", labels=bad)
    with pytest.raises(SchemaError, match="numbers as labels"):
        ingest(path, tmp_path / "T", labels=["a", "b"])


def test_a_real_target_taken_for_classes(tmp_path, monkeypatch):
    monkeypatch.setattr("gramplane.storage.ingest.labels.MAX_CLASSES", 50)
    path = write(tmp_path / "a.svm", "".join(f"{k} 1:1\n" for k in range(120)))
    for _ in range(2):
        with pytest.raises(DataError, match="task='regression'"):
            ingest(path, tmp_path / "S")
        monkeypatch.setattr(spool, "PIECE", 200)
        monkeypatch.setattr(text, "PIECE", 200)
    assert ingest(path, tmp_path / "S", task="regression").target().max() == 119


# -- scaling -----------------------------------------------------------------------------------------------------------


def scaled(store):
    scale = store.scale
    A = dense(store.columns(np.arange(store.meta.n_cols))).astype(float)
    A = A if scale.factor is None else A * scale.factor
    return A if scale.row_factor is None else A * scale.row_factor[:, None]


@pytest.mark.parametrize("spill", [False, True])
def test_scale_factors(source, tmp_path, request, spill):
    if spill:
        request.getfixturevalue("small_pieces")
    path, X, _ = source
    expected = {
        "unit-column": normalize(X, axis=0).toarray(),
        "unit-row": normalize(X, axis=1).toarray(),
        "standard": StandardScaler(with_mean=False).fit_transform(X).toarray(),
    }
    for kind, wanted in expected.items():
        store = ingest(path, tmp_path / kind, scale=kind)
        assert store.meta.scale == store.scale.kind == kind
        assert store.scale.shift is None
        assert np.allclose(scaled(store), wanted, rtol=1e-12, atol=0)
        assert np.array_equal(dense(store.columns(np.arange(X.shape[1]))), X.toarray()), "values stay raw"


def test_empty_and_constant_columns_get_the_factor_zero(tmp_path):
    path = write(tmp_path / "a.svm", "1 1:0.1 3:1\n-1 1:0.1\n-1 1:0.1 4:2\n")
    assert (ingest(path, tmp_path / "A", scale="standard").scale.factor == 0).tolist() == [True, True, False, False]
    assert (ingest(path, tmp_path / "B", scale="unit-column").scale.factor == 0).tolist() == [False, True, False, False]


@pytest.mark.parametrize(("kind", "place"), [("standard", "column 0"), ("unit-column", "column 0"), ("unit-row", "row 2")])
def test_factors_that_overflow_are_refused(tmp_path, kind, place):
    path = write(tmp_path / "a.svm", "1 2:1\n1 1:1e200\n")
    with pytest.raises(DataError, match=f"{place}: the sum of its squares overflows"):
        ingest(path, tmp_path / "S", scale=kind)
    assert os.listdir(tmp_path) == ["a.svm"]
    assert ingest(path, tmp_path / "T").column_table("norm1")[0] == np.inf, "an upper bound all the same"


# -- test data like the training data ------------------------------------------------------------------------------------


def test_like_takes_over_width_labels_names_groups_and_factors(tmp_path):
    train = ingest(
        write(tmp_path / "a.svm", "2 1:3 4:1\n1 2:4\n2 1:1\n"),
        tmp_path / "A",
        n_features=6,
        scale="unit-column",
        names=[f"f{k}" for k in range(6)],
        groups=["x", "x", "y", "y", "x", "x"],
    )
    path = write(tmp_path / "b.svm", "1 1:30\n1 2:1\n")
    test = ingest(path, tmp_path / "B", like=train.url)
    assert test.meta.n_cols == 6
    assert test.meta.labels == (1, 2)
    assert test.target().tolist() == [0, 0]
    assert np.array_equal(test.scale.factor, train.scale.factor)
    assert test.feature_names() == train.feature_names() == ["f0", "f1", "f2", "f3", "f4", "f5"]
    assert test.groups().tolist() == train.groups().tolist() == [0, 0, 1, 1, 0, 0]
    with pytest.raises(DataError, match=r"c\.svm:1:1: label 5 is not one of the declared labels 1, 2"):
        ingest(write(tmp_path / "c.svm", "5 1:1\n"), tmp_path / "C", like=train.url)
    with pytest.raises(DataError, match=r"d\.svm:1:3: index 7 exceeds the 6 features"):
        ingest(write(tmp_path / "d.svm", "1 7:1\n"), tmp_path / "C", like=train.url)
    for options in ({"n_features": 7}, {"scale": "standard"}):
        with pytest.raises(SchemaError, match="like"):
            ingest(path, tmp_path / "C", like=train.url, **options)


def test_like_makes_row_factors_afresh_and_keeps_a_real_target(tmp_path):
    train = ingest(write(tmp_path / "a.svm", "2.5 1:3 2:4\n1 2:4\n"), tmp_path / "A", scale="unit-row", task="regression")
    test = ingest(write(tmp_path / "b.svm", "0.75 1:2\n"), tmp_path / "B", like=train.url)
    assert test.target().tolist() == [0.75]
    assert test.scale.row_factor.tolist() == [0.5]


def test_names_and_groups_from_files(tmp_path):
    path = write(tmp_path / "a.svm", "1 1:1 3:1\n")
    write(tmp_path / "names", "one\ntwo\ndrei\nß\n")
    write(tmp_path / "groups", "b\nb\na\n7\n")
    store = ingest(path, tmp_path / "S", names=tmp_path / "names", groups=tmp_path / "groups")
    assert store.meta.n_cols == 4
    assert store.feature_names() == ["one", "two", "drei", "ß"]
    assert store.groups().tolist() == [0, 0, 1, 2]
    write(tmp_path / "groups", "3\n-1\n-1\n")
    with pytest.raises(SchemaError, match=r"names has 4 entries; .*a\.svm has 3 columns"):
        ingest(path, tmp_path / "T", names=tmp_path / "names", groups=tmp_path / "groups", n_features=3)
    assert ingest(path, tmp_path / "T", groups=tmp_path / "groups").groups().tolist() == [3, -1, -1]
    with pytest.raises(DataError, match="names file: cannot be read"):
        ingest(path, tmp_path / "U", names=tmp_path / "none")


@pytest.mark.parametrize(
    "options",
    [
        *({name: "other"} for name in ("format", "zero_based", "dtype", "task", "qid", "scale", "layout")),
        *({name: np.arange(2)} for name in ("format", "task", "missing")),  # tasks of rows, say
        *({"n_features": bad} for bad in (0, -1, 2**31, 1.5, True)),
        *({"budget": bad} for bad in (1, "256MiB")),
        *({"jobs": bad} for bad in (0, 1.0)),
        *({name: "z"} for name in ("target", "task_column", "weight_column")),
    ],
)
def test_bad_options_are_named(tmp_path, options):
    path = write(tmp_path / "a.svm", "1 1:1\n")
    with pytest.raises(SchemaError, match=next(iter(options))):
        ingest(path, tmp_path / "S", **options)
    assert os.listdir(tmp_path) == ["a.svm"]


def test_a_line_belongs_to_the_range_that_holds_its_first_byte(tmp_path):
    lengths = [3, 70_000, 0, 200_000, 1, 65_535, 65_536, 131_072, 5]
    whole = b"".join(b"a" * length + b"\n" for length in lengths) + b"no end"
    (tmp_path / "a").write_bytes(whole)
    starts = np.cumsum([0, *(length + 1 for length in lengths)])
    places = sorted({int(place) + shift for place in starts for shift in (-2, -1, 0, 1, 2)} | set(range(0, len(whole), 9973)))
    with (tmp_path / "a").open("rb", buffering=0) as file:
        for at in places:
            expected = min((int(start) for start in starts if start >= at), default=len(whole))
            assert spool.line_start(file, at, len(whole)) == expected, at


@pytest.mark.timeout(20)
def test_a_file_that_became_shorter_has_no_further_line(tmp_path):
    (tmp_path / "a").write_bytes(b"1 1:1\n1 1:")
    with (tmp_path / "a").open("rb", buffering=0) as file:
        assert [spool.line_start(file, at, 1000) for at in (5, 6, 7, 500)] == [6, 6, 1000, 1000]


def test_threads_are_taken_for_large_files_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(text, "PIECE", 10)
    (tmp_path / "a").write_bytes(b"1 1:1\n1 1:")
    assert [text.default_jobs(tmp_path / name) for name in "ab"] == [1, 1]
    (tmp_path / "a").write_bytes(b"1 1:1\n1 1:1")
    assert text.default_jobs(tmp_path / "a") == 2
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert text.default_jobs(tmp_path / "a") == 1


@pytest.mark.parametrize(("n_cols", "resumable", "on_disk"), [(1000, False, False), (1000, True, True), (1 << 22, False, True)])
def test_only_tables_that_are_long_or_must_outlive_the_process_are_files(tmp_path, n_cols, resumable, on_disk):
    ColumnSummary(BlockMeta(5, n_cols, "sparse", "float32"), "unit-column", tmp_path, resumable=resumable)
    assert bool(os.listdir(tmp_path)) is on_disk


def test_tables_of_a_wide_store_wait_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("gramplane.storage.ingest.buckets._IN_MEMORY", 0)
    X, y = write_file(tmp_path / "a.svm")
    store = ingest(tmp_path / "a.svm", tmp_path / "S", scale="standard")
    check_store(BlockStore.open(store.url), X, y)
    check_tables(store, X.toarray())


def test_one_column_has_one_stripe_with_less_than_a_chunk_of_padding():
    entries, stripe_bytes = 10_000, 1 << 12
    assert _stripes_at_most(entries, 1, stripe_bytes) <= _STORED * entries + 2 * stripe_bytes
