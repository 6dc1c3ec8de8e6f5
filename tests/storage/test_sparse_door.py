"""No sparse matrix from outside reaches compiled code unchecked: the door itself, every way through it, and no way round it."""

import ast
import json
import os
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from gramplane.storage import DataError, MemoryBlocks
from gramplane.storage.sparse_door import admit, check_compressed
from tests.support import broken_sparse as broken
from tests.support.places import ROOT

FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")


def refusal(X, name="X"):
    with pytest.raises(DataError) as caught:
        admit(X, name)
    return str(caught.value)


# -- the door ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("k", range(10))
def test_every_broken_rule_is_refused_by_name_and_place(form, k):
    told = refusal(broken.certainly_broken((24, 6), form)[k], "views[2]")
    assert told.startswith("views[2]: ") and any(part in told for part in ("indptr", "indices", "data"))


def test_the_matrix_of_the_report_passes_scipy_and_not_the_door():
    X = broken.the_reported()
    X.check_format(full_check=True)
    assert refusal(broken.the_reported()) == "X: indptr[2] is 0 after 1073741824; pointers never fall"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_sound_matrices_pass_with_the_same_entries(form, kind):
    X = getattr(sp, f"{form}_{kind}")(broken.sound())
    found = admit(X)
    assert isinstance(found, sp.sparray) == (kind == "array")
    np.testing.assert_array_equal(found.toarray(), X.toarray())


def test_what_needs_no_change_is_not_copied():
    X = broken.sound()
    X = sp.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
    assert admit(X) is X
    for other in (np.ones((2, 2)), [[1.0]], "text", None, pd.DataFrame({"a": [1.0]})):
        assert admit(other) is other


def test_what_a_matrix_claims_of_itself_is_not_believed():
    X = sp.csr_array((np.ones(3), np.array([2, 0, 0], "i4"), np.array([0, 3], "i4")), shape=(1, 3))
    X.has_canonical_format = X.has_sorted_indices = True
    before = X.indices.copy()
    np.testing.assert_array_equal(MemoryBlocks(X).column_blocks()[0].load().toarray(), [[2.0, 0.0, 1.0]])
    np.testing.assert_array_equal(X.indices, before)


def test_subclasses_become_plain():
    class Mine(sp.csr_matrix):
        def tocsc(self, copy=False):
            raise AssertionError("called")

    assert type(admit(Mine(broken.sound()))) is sp.csr_matrix


@pytest.mark.parametrize("dtype", [">i4", ">i8", "u1", "u2", "u4", "i2", "u8"])
def test_indices_of_other_types_are_read_by_value(dtype):
    X = broken.sound()
    given = broken.put({"data": X.data, "indices": X.indices.astype(dtype), "indptr": X.indptr.astype(dtype)}, "csr", X.shape)
    found = admit(given)
    assert found.indices.dtype in (np.int32, np.int64) and found.indices.dtype.isnative
    np.testing.assert_array_equal(found.toarray(), X.toarray())


@pytest.mark.parametrize("dtype", [">f8", ">f4", "f2", "g", "i8", "?"])
def test_values_of_other_types_are_read_by_value(dtype, tmp_path):
    X = broken.sound()
    held = np.arange(X.data.size, dtype=dtype) if dtype != "?" else np.ones(X.data.size, "?")
    found = admit(broken.put({**broken.arrays(X), "data": held}, "csr", X.shape))
    assert found.data.dtype.isnative and found.data.dtype != np.float16
    np.testing.assert_array_equal(found.data.astype(np.float64), held.astype(np.float64))


@pytest.mark.parametrize("dtype", ["c16", "O", "S3", "M8[s]"])
def test_values_that_are_no_real_numbers_are_refused(dtype):
    X = broken.sound()
    held = np.zeros(X.data.size, dtype)
    assert "real numbers are expected" in refusal(broken.put({**broken.arrays(X), "data": held}, "csr", X.shape))


def test_float_indices_are_refused():
    X = broken.sound()
    assert "whole numbers are expected" in refusal(broken.put({**broken.arrays(X), "indices": X.indices.astype("f8")}, "csr", X.shape))


def test_mapped_and_read_only_arrays_pass(tmp_path):
    X = broken.sound()
    parts = {}
    for name, part in broken.arrays(X).items():
        np.save(tmp_path / f"{name}.npy", part)
        parts[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    found = admit(broken.put(parts, "csr", X.shape))
    assert type(found.data) is np.ndarray
    np.testing.assert_array_equal(found.toarray(), X.toarray())


def test_room_for_more_entries_is_cut_off():
    X = broken.sound()
    parts = {**broken.arrays(X), "data": np.append(X.data, [5.0, 5.0]), "indices": np.append(X.indices, [99, -7]).astype("i4")}
    np.testing.assert_array_equal(admit(broken.put(parts, "csr", X.shape)).toarray(), X.toarray())


def test_coordinates_outside_are_refused():
    X = sp.coo_array(broken.sound())
    X.coords[1][3] = 6
    assert refusal(X) == "X: coords[1][3] is 6; it must be in 0 … 5"
    X = sp.coo_matrix(broken.sound())
    X.data = X.data[:-1]
    assert "they must agree" in refusal(X)


def test_blocks_outside_are_refused():
    X = sp.bsr_array(broken.sound(), blocksize=(2, 3))
    X.indices[0] = 2
    assert refusal(X) == "X: indices[0] is 2, in row 0; it must be in 0 … 1"
    X = sp.bsr_array(broken.sound(), blocksize=(2, 3))
    X.data = np.ones((len(X.data), 5, 3))
    assert "must divide the shape" in refusal(X)


def test_diagonals_are_held_against_their_values():
    X = sp.dia_array(broken.sound())
    X.offsets = np.append(X.offsets, 3).astype("i4")
    assert "they must agree" in refusal(X)
    X = sp.dia_array((np.ones((2, 3)), np.array([0, 1 << 30])), shape=(3, 3))
    np.testing.assert_array_equal(admit(X).toarray(), np.eye(3))


def test_lists_and_keys_are_held_against_the_shape():
    X = sp.lil_array(broken.sound())
    X.rows[2].append(1 << 30)
    assert "row 2 has" in refusal(X)
    X.data[2].append(1.0)
    assert "it must be in 0 … 5" in refusal(X)
    X = sp.dok_array(broken.sound())
    X._dict[(0, 1 << 30)] = 1.0
    assert "it must be in 0 … 5" in refusal(X)


@pytest.mark.parametrize("kind", ["integer", "block"])
def test_sparse_columns_of_a_frame_are_looked_at(kind):
    values = pd.arrays.SparseArray([0.0, 1.0, 0.0, 2.0], kind=kind)
    frame = pd.DataFrame({"a": values})
    assert admit(frame) is frame
    index = frame["a"].array.sp_index
    places = index.indices if kind == "integer" else index.blocs
    places[0] = 1 << 30
    assert "column 'a': its places must ascend inside 0 … 3" in refusal(frame, "frame")


def test_no_block_of_a_sparse_column_has_a_length_below_zero():
    frame = pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 1.0, 0.0, 2.0], fill_value=0.0, kind="block")})
    index = frame["a"].array.sp_index
    index.blocs[:], index.blengths[:] = [0, 3], [3, -1]
    assert "column 'a': its blocks do not hold its 2 values" in refusal(frame)


def test_a_triple_that_is_not_put_together_is_checked_with_the_names_of_its_arrays():
    with pytest.raises(DataError, match=r"^x\.npz: X_indptr\[1\] is -1 after 0"):
        check_compressed((np.ones(1), np.zeros(1, "i4"), np.array([0, -1, 1])), (2, 3), "csr", "x.npz", "X_")


def test_the_door_costs_little_beside_one_conversion():
    n, k, d = 50_000, 20, 10_000
    columns = np.sort(np.random.default_rng(0).integers(0, d, (n, k)), axis=1).ravel().astype("i4")
    X = sp.csr_array((np.ones(n * k, np.float32), columns, np.arange(0, n * k + 1, k, dtype="i4")), shape=(n, d))

    def seconds(call):
        found = []
        for _ in range(7):
            began = time.thread_time()
            call()
            found.append(time.thread_time() - began)
        return min(found)

    assert seconds(lambda: admit(X)) < 0.1 * seconds(X.tocsc)


# -- every way in --------------------------------------------------------------------------------------------------------------


def handed_in(*words, cache=None):
    """Run the program of broken matrices; return (how it ended, entry -> outcome)."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "support" / "_bare"), str(ROOT)])}
    if cache is not None:
        env |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.broken_sparse", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return done, {row["entry"]: row["ended"] for row in found}


PARTS = 4
"""Processes that the estimators are divided among: fitting all of them takes a while."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_argument_of_every_method_refuses_broken_matrices_by_name(part):
    names = broken.estimators()[part::PARTS]
    done, found = handed_in("every", *names)
    assert done.returncode == 0 and found.pop("end") == "done", (done.returncode, list(found)[-1:], done.stderr[-2000:])
    reached = {entry.rpartition(" ")[0] for entry in found}
    assert reached >= {f"{name}.{method}({argument})" for name in names for method, argument in broken.entries(name)}
    for entry, ended in found.items():
        argument = entry.partition("(")[2].partition(")")[0]
        if argument in broken.SPARSE and argument != "target":
            assert ended.startswith((f"DataError: {argument}: ", "DataError: X: ")), (entry, ended)
        elif ended != "done":
            assert ended.split(":")[0] in ("DataError", "ValueError", "TypeError", "AttributeError"), (entry, ended)


@pytest.mark.parametrize("name", ["FGMClassifier", "MKLClassifier", "RuleEnsembleClassifier"])
def test_a_broken_target_is_refused_by_its_name(name):
    for y in broken.certainly_broken((broken.ROWS, 1)):
        with pytest.raises(DataError, match=r"^y: "):
            broken.enter(name, "fit", "y", y)


def test_every_form_of_ingest_refuses_broken_matrices():
    done, found = handed_in("forms")
    assert done.returncode == 0 and found.pop("end") == "done", (done.returncode, done.stderr[-2000:])
    for entry, ended in found.items():
        form, k = entry.rpartition(" ")[::2]
        # Files of .mat say only once how many entries there are; of the frame's places only those of one column are broken.
        if not (form == "mat" and k in "789") and not (form == "frame" and k not in "45"):
            assert ended.startswith("DataError: "), (entry, ended)


def test_mutated_triples_at_the_door_do_no_harm(tmp_path):
    done, found = handed_in("fuzz-door", "--count", 2000, cache=tmp_path)
    assert done.returncode == 0 and found.pop("end") == "done", (done.returncode, done.stderr[-2000:])
    for entry, ends in found.items():
        assert set(json.loads(ends)) <= {"DataError", "SchemaError", "done"}, (entry, ends)
        assert json.loads(ends)["DataError"] > 500 and json.loads(ends)["done"] > 50, (entry, ends)


# -- no way round --------------------------------------------------------------------------------------------------------------

ENTRANCES = (
    "storage/data.py",
    "pipeline/estimators/*.py",
    "pipeline/methods/*/estimator.py",
    "pipeline/methods/*/partial_fit.py",
    "storage/ingest/**/*.py",
)
"""Where data from outside arrive; beyond them lie matrices that came through the door."""

CONVERSIONS = {
    "tocsr",
    "tocsc",
    "tocoo",
    "toarray",
    "todense",
    "sort_indices",
    "sum_duplicates",
    "eliminate_zeros",
    "check_format",
    "asformat",
}

MADE = {"csr_array", "csc_array", "coo_array", "csr_matrix", "csc_matrix", "coo_matrix", "vstack", "hstack", "bmat", "block_array"}

BEHIND = {
    "storage/data.py": {"in_memory": "the way to the door", "first_fault": "rows that came through in_memory"},
    "pipeline/methods/fgm/estimator.py": {"_coef": "weights of its own"},
    "pipeline/methods/kta_path/estimator.py": {
        "svm_path": "weights of its own",
        "_values": "behind features_of, the line before",
    },
    "pipeline/methods/embeddings/estimator.py": {
        **dict.fromkeys(("read_graph", "fit", "_matrix"), "in_memory in the same line, or the one before"),
        "_matrix_edges": "a copy of what read_graph had from in_memory",
    },
    "pipeline/methods/rule_ensemble/estimator.py": {"_columns": "validated rows"},
    "pipeline/methods/social_strength/estimator.py": {
        "recommend_groups": "in_memory in the same line, and its copy",
        "_sparse_views": "in_memory in the same line",
        "_matrices": "views of _sparse_views",
    },
    "pipeline/methods/tri_class_svm/estimator.py": {"_join_rows": "MemoryBlocks, which are behind the door"},
    "storage/ingest/tables/arrays.py": {
        "_check_csr": "admitted in the same line",
        "_compute": "chunks that were admitted one by one",
    },
    "storage/ingest/api.py": {"load_columns": "columns of a store"},
    "storage/ingest/reading.py": {"sparse_block": "a copy of rows that came through the door"},
    "storage/ingest/turning.py": {"csr_pieces": "of parts that check_compressed() returned", "_turn_rows": "entries that were sorted here"},
}
"""Functions there that convert or build sparse matrices all the same, each with the reason why it may."""

VALIDATORS = {"validate_data", "check_array", "check_X_y", "as_float_array"}


def _calls(path):
    """Yield (function, name called) of every call in a file."""
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    called = node.func
                    yield function.name, called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def test_conversions_where_data_arrive_stand_behind_the_door():
    found = {}
    for pattern in ENTRANCES:
        for path in sorted(ROOT.glob(pattern)):
            for function, called in _calls(path):
                if called in CONVERSIONS | MADE:
                    found.setdefault(path.relative_to(ROOT).as_posix(), set()).add(function)
    found.pop("storage/ingest/tables/mat.py", None)  # a process of its own, whose arrays come through the door
    assert found == {file: set(functions) for file, functions in BEHIND.items()}


def test_estimators_open_stores_and_gather_through_the_one_entrance():
    for pattern in ENTRANCES[1:4]:
        for path in sorted(ROOT.glob(pattern)):
            called = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
            assert not called & {"BlockStore.open", "GramStore.open", "admit", "gather"}, path


def test_scikit_learn_is_asked_in_one_place_only():
    for path in sorted((ROOT / "pipeline").rglob("*.py")):
        assert not {called for _, called in _calls(path)} & VALIDATORS, path
    bases = [node for path in (ROOT / "pipeline").rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    reading = {"SelectorMixin", "ClassifierMixin", "RegressorMixin"}
    mixed = [node.name for node in bases if isinstance(node, ast.ClassDef) if reading & set(map(ast.unparse, node.bases))]
    # (The two that scorers see have decided already, and read row numbers.)
    known = ["Classifier", "HeldOutClassifier", "HeldOutRegressor", "Regressor", "Selection"]
    assert sorted(mixed) == known, "scikit-learn's mixins read sparse matrices by themselves"


def test_a_matrix_that_avoids_the_door_is_seen(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("def fit(self, X):\n    return X.tocsc()")
    assert ("fit", "tocsc") in set(_calls(path))
