"""The storage benchmark runs, and its promises hold with slack."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("zarr")


def test_direct_files_against_zarrs_default_codec():
    spec = importlib.util.spec_from_file_location("storage_io", Path(__file__).parents[1] / "benchmarks/storage_io.py")
    assert spec is not None and spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    speed = benchmark.measure(24 << 20, repeat=3)
    assert speed["write ours"] >= 2.0 * speed["write zarr"]
    assert speed["first read ours (crc32c)"] >= speed["read zarr"]
    assert speed["verify ours"] >= 500.0
