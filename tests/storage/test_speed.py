"""The storage benchmark runs, and its promises hold with slack."""

import pytest

from benchmarks.storage import storage_io

pytest.importorskip("zarr")


def test_direct_files_against_zarrs_default_codec():
    speed = storage_io.measure(24 << 20, repeat=3)
    assert speed["write ours"] >= 2.0 * speed["write zarr"]
    assert speed["first read ours (crc32c)"] >= speed["read zarr"]
    assert speed["verify ours"] >= 500.0
