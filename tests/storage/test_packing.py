"""Many small arrays in one: what goes in comes out, and few files are made of it."""

from dataclasses import dataclass

import numpy as np
import pytest

from gramplane.storage import RunStore, SchemaError, read_model, write_model
from gramplane.storage.records import MAX_PLAIN_ARRAYS, pack, unpack


@dataclass(frozen=True)
class Many:
    parts: tuple[np.ndarray, ...]
    big: np.ndarray


def many(count: int) -> Many:
    rng = np.random.default_rng(count)
    shapes = [(), (0,), (3,), (2, 2), (5, 0)]
    kinds = [np.int64, np.float64, np.float32, np.bool_]
    parts = tuple(np.asarray(10 * rng.standard_normal(shapes[k % 5])).astype(kinds[k % 4]) for k in range(count))
    return Many(parts, rng.standard_normal(10_000))


def equal(a: Many, b: Many) -> bool:
    pairs = [*zip(a.parts, b.parts, strict=True), (a.big, b.big)]
    return all(x.dtype == y.dtype and x.shape == y.shape and np.array_equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("count", [0, 3, MAX_PLAIN_ARRAYS, MAX_PLAIN_ARRAYS + 1, 500])
def test_records_of_any_number_of_arrays_come_back(tmp_path, count):
    record = many(count)
    write_model(tmp_path / "model", record)
    assert equal(read_model(tmp_path / "model", Many), record)
    run = RunStore.create(tmp_path / "run", {})
    run.save_checkpoint(1, record)
    found = run.load_checkpoint(Many)
    assert found is not None and equal(found[1], record)


def test_few_files_for_many_arrays(tmp_path):
    write_model(tmp_path / "model", many(500))
    assert sum(1 for path in (tmp_path / "model").rglob("*") if path.is_file()) < 20


def test_few_arrays_keep_their_names():
    arrays = {f"a{k}": np.ones(k) for k in range(MAX_PLAIN_ARRAYS)}
    kept, index = pack(arrays)
    assert index == {} and kept.keys() == arrays.keys()


@pytest.mark.parametrize("entry", [["float64", [10**6], 0], ["int8", [1], 0], ["float64", "x", 0], [1]])
def test_an_index_that_does_not_fit_is_refused(entry):
    arrays, index = pack({f"a{k}": np.ones(2) for k in range(MAX_PLAIN_ARRAYS + 1)})
    with pytest.raises(SchemaError, match="packed array 'a3'"):
        unpack(arrays, {**index, "a3": entry})
