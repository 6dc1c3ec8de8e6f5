"""The storage benchmark runs, and its promises hold with slack."""

import pytest

from benchmarks.storage import storage_io

pytest.importorskip("zarr")


def test_direct_files_against_zarrs_default_codec():
    # Other work on the machine makes single measurements unequal: the best of three is compared.
    runs = [storage_io.measure(24 << 20, repeat=3) for _ in range(3)]
    speed = {name: max(run[name] for run in runs) for name in runs[0]}
    assert max(run["write ours"] / run["write zarr"] for run in runs) >= 2.0
    assert max(run["first read ours (crc32c)"] / run["read zarr"] for run in runs) >= 1.0
    assert speed["verify ours"] >= 500.0
