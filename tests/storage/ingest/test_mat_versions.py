"""Which .mat files are read in pieces: those of version 5, by their first 128 bytes."""

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from gramplane.storage import DataError
from gramplane.storage.ingest import ingest
from gramplane.storage.ingest.tables import mat as _mat
from gramplane.storage.ingest.tables.mat_files import is_version_5


def test_versions_are_told_by_the_head(tmp_path):
    for version, expected in (("5", True), ("4", False)):
        path = tmp_path / f"{version}.mat"
        scipy.io.savemat(path, {"X": np.ones((3, 2))}, format=version)
        assert is_version_5(path) is expected


@pytest.mark.parametrize(
    ("version", "order", "expected"),
    [(b"\x00\x01", b"IM", True), (b"\x01\x00", b"MI", True), (b"\x00\x02", b"IM", False), (b"\x00\x01", b"XX", False)],
)
def test_both_byte_orders_are_known_and_hdf5_is_another_version(tmp_path, version, order, expected):
    path = tmp_path / "x.mat"
    path.write_bytes(b"MATLAB 5.0".ljust(124) + version + order + b"more")
    assert is_version_5(path) is expected


def test_a_file_shorter_than_a_head_has_no_version(tmp_path):
    path = tmp_path / "x.mat"
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\x00\x01I")
    assert not is_version_5(path)


def test_the_program_for_old_files_passes_on_every_matrix_and_nothing_else(tmp_path):
    A, S = np.arange(6.0).reshape(2, 3), sp.csc_array(np.array([[0, 2.0], [3, 0], [0, 0]]))
    for version, more in (("4", {}), ("5", {"record": {"a": 1.0}, "cell": np.array(["y", 1.0], dtype=object)})):
        scipy.io.savemat(tmp_path / "a.mat", {"A": A, "S": S, **more}, format=version)
        _mat.main(str(tmp_path / "a.mat"), str(tmp_path / "a.npz"))
        with np.load(tmp_path / "a.npz") as made:
            found = dict(made)
        assert set(found) == {"A", *(f"S_{part}" for part in ("data", "indices", "indptr", "shape", "format"))}
        assert np.array_equal(found["A"], A) and str(found["S_format"]) == "csc"
        again = sp.csc_array(tuple(found[f"S_{part}"] for part in ("data", "indices", "indptr")), shape=tuple(found["S_shape"]))
        assert np.array_equal(again.toarray(), S.toarray())


def test_cells_that_hold_numbers_too_are_passed_over(tmp_path):
    cells = {"names": np.array(["a", 7.0], dtype=object), "notes": np.array(["a", "b"], dtype=object)}
    scipy.io.savemat(tmp_path / "a.mat", {"X": np.eye(2), "y": np.array([1.0, -1.0]), **cells}, format="5")
    assert ingest(str(tmp_path / "a.mat"), tmp_path / "store", target="y").feature_names() is None
    with pytest.raises(DataError, match="names"):
        ingest(str(tmp_path / "a.mat"), tmp_path / "other", target="names")


def test_an_old_file_that_ends_early_is_refused_in_the_words_of_its_reader(tmp_path):
    path = tmp_path / "old.mat"
    scipy.io.savemat(path, {"X": np.ones((3, 2)), "y": np.array([1, -1, 1])}, format="4")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError) as caught:
        ingest(str(path), str(tmp_path / "store"))
    assert str(caught.value).startswith(f"{path}: cannot be read as .mat: ValueError: Not enough bytes to read matrix 'y'")
