"""Which .mat files are read in pieces: those of version 5, by their first 128 bytes."""

import numpy as np
import pytest
import scipy.io

from gramplane.storage.ingest.mat_files import is_version_5


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
