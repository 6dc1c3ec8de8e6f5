"""Tall matrices in tiles: what is written is read back by rows, columns and pieces; absent and damaged tiles are named."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from gramplane.storage import DigestMismatch, MissingBlock, TiledMatrix, read_model, write_model


@dataclass(frozen=True)
class Tall:
    """A record with a tall matrix."""

    record_name: ClassVar[str] = "Tall"
    matrix: np.ndarray


def written(folder: Path, n: int = 50, columns: int = 150, dtype: str = "float64") -> tuple[np.ndarray, TiledMatrix]:
    values = np.random.default_rng(0).normal(size=(n, columns)).astype(dtype)
    tiles = TiledMatrix(str(folder / "tiles"), (n, columns), 16, np.dtype(dtype))
    for lo, hi in tiles.row_spans():
        tiles.write(lo, 0, values[lo:hi])
    return values, tiles


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_rows_and_columns_come_back(tmp_path, dtype):
    values, tiles = written(tmp_path, dtype=dtype)
    tiles.write(0, 64, values[:, 64:128] * 2)  # by columns, all rows
    values[:, 64:128] *= 2
    for lo, hi, first, last in ((0, 50, 0, 150), (5, 33, 60, 131), (16, 32, 64, 128), (49, 50, 149, 150)):
        np.testing.assert_array_equal(tiles.read(lo, hi, first, last), values[lo:hi, first:last])
    ids = [149, 0, 64, 63, 100]
    np.testing.assert_array_equal(tiles.take(ids), values[:, ids])
    assert [place for place, _ in tiles.column_pieces()] == [slice(0, 64), slice(64, 128), slice(128, 150)]
    np.testing.assert_array_equal(np.hstack([piece for _, piece in tiles.column_pieces()]), values)
    few = tiles.leading(70).leading(67)
    np.testing.assert_array_equal(few.read(0, 50), values[:, :67])
    np.testing.assert_array_equal(np.hstack([piece for _, piece in few.column_pieces()]), values[:, :67])


def test_a_model_is_written_from_tiles_as_from_an_array(tmp_path):
    values, tiles = written(tmp_path, 3000)
    digests = [write_model(tmp_path / name, Tall(matrix)) for name, matrix in (("a", values), ("b", tiles))]
    assert digests[0] == digests[1]
    np.testing.assert_array_equal(read_model(tmp_path / "b", Tall).matrix, values)


def test_what_is_damaged_or_absent_is_named(tmp_path):
    _, tiles = written(tmp_path)
    file = Path(tiles.path) / "1-2.tile"
    whole = file.read_bytes()
    for bad in (whole[:-1], bytes([whole[0] ^ 1]) + whole[1:]):
        file.write_bytes(bad)
        with pytest.raises(DigestMismatch, match=r"1-2.tile, bytes 0:\d+: the content does not have the crc32c"):
            tiles.read(0, 50)
        assert tiles.read(0, 50, 0, 128).shape == (50, 128)
    file.unlink()
    with pytest.raises(MissingBlock, match=r"1-2.tile is absent"):
        tiles.take([140])
    tiles.remove()
    assert not Path(tiles.path).exists()
