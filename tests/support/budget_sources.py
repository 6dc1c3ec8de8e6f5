"""Files that are larger than the budget of their ingest, and the memory that it takes: the highest of a process of its own."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp

from tests.support.clusters import ROOT


def _sparse(n: int, d: int, per_row: int) -> sp.csr_array:
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, d // per_row, (n, per_row)) + np.arange(per_row) * (d // per_row), axis=1).astype("i4")
    return sp.csr_array((rng.normal(size=n * per_row), columns.ravel(), np.arange(0, n * per_row + 1, per_row, dtype="i4")), shape=(n, d))


def _dense(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d))


def _labels(n: int) -> np.ndarray:
    return np.arange(n) % 2


def _save_sparse(form: str, packed: bool) -> Callable[[Path, int], None]:
    def save(path: Path, scale: int) -> None:
        X = _sparse(2000 * scale, 5000, 50).asformat(form)
        write = np.savez_compressed if packed else np.savez
        write(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, format=form, y=_labels(X.shape[0]))

    return save


def _save_dense(order: str, shape: tuple[int, int]) -> Callable[[Path, int], None]:
    return lambda path, scale: np.savez(path, X=np.asarray(_dense(shape[0] * scale, shape[1]), order=order), y=_labels(shape[0] * scale))


def _save_zeros(path: Path, scale: int) -> None:
    np.savez_compressed(path, X=np.zeros((400 * scale, 1000)), y=_labels(400 * scale))


def _save_mat(sparse: bool, packed: bool) -> Callable[[Path, int], None]:
    def save(path: Path, scale: int) -> None:
        X = sp.csc_matrix(_sparse(2000 * scale, 5000, 50)) if sparse else _dense(20, 15_000 * scale)
        scipy.io.savemat(path, {"X": X, "y": _labels(X.shape[0])}, do_compression=packed)

    return save


def _save_group(path: Path, scale: int) -> None:
    X = _dense(1500 * scale, 200)
    table = {f"f{k}": X[:, k] for k in range(X.shape[1])} | {"y": _labels(len(X))}
    pq.write_table(pa.table(table), path, row_group_size=len(X))


def _save_wide_group(path: Path, scale: int) -> None:
    X = _dense(600, 5000 * scale)
    pq.write_table(pa.table({f"f{k}": X[:, k] for k in range(X.shape[1])} | {"y": _labels(600)}), path, row_group_size=600)


def _save_words(path: Path, scale: int) -> None:
    names = pa.array(["a" * 200_000, "b" * 200_000])
    y = pa.DictionaryArray.from_arrays(pa.array(_labels(500 * scale).astype("i4")), names)
    pq.write_table(pa.table({"f": np.arange(500.0 * scale), "g": np.ones(500 * scale), "y": y}), path)


def _save_csv(path: Path, scale: int) -> None:
    X = _dense(1000 * scale, 100)
    pa.csv.write_csv(pa.table({f"f{k}": X[:, k] for k in range(X.shape[1])} | {"y": _labels(len(X))}), path)


def _save_wide_csv(path: Path, scale: int) -> None:
    d = 2000 * scale
    path.write_text("".join([",".join([f"c{k}" for k in range(d)]), ",y\n", "1," * d + "1\n", "2," * d + "0\n"]))


def _mixed(n: int) -> pa.Table:
    """Numbers, some missing, words of few letters and of many, and ids."""
    rng = np.random.default_rng(0)
    columns = {f"f{k}": pa.array(rng.normal(size=n), mask=rng.random(n) < 0.1) for k in range(20)}
    columns |= {f"w{k}": pa.array(rng.choice(["red", "green", "blue", "a long word of thirty letters"], n)) for k in range(10)}
    return pa.table({**columns, "k": [f"patient {k}" for k in range(n)], "y": _labels(n)})


def _save_mixed(path: Path, scale: int) -> None:
    table = _mixed(2000 * scale)
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    elif path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=len(table))
    else:
        pyarrow.feather.write_feather(table, str(path), compression="lz4", chunksize=len(table))


def _save_shops(path: Path, scale: int) -> None:
    n = 20_000 * scale
    shops = pa.array(np.char.add("shop ", np.random.default_rng(0).integers(0, 5000, n).astype(str)))
    pa.csv.write_csv(pa.table({"shop": shops, "x": np.arange(n) / 8, "y": _labels(n)}), path)


def _tall(n: int) -> pa.Table:
    return pa.table({"x": np.zeros(n), "y": np.arange(n) % 2.0})


def _save_tall_group(path: Path, scale: int) -> None:
    pq.write_table(_tall(10_000 * scale), path, row_group_size=10_000 * scale)


def _save_tall_batch(path: Path, scale: int) -> None:
    pyarrow.feather.write_feather(_tall(10_000 * scale), str(path), compression="uncompressed", chunksize=10_000 * scale)


def _save_tall_tables(path: Path, scale: int) -> None:
    rows = np.arange(10_000 * scale)
    table = {"x": rows / 8, "y": rows % 2, "k": rows, "w": rows % 3 * 0.1, "t": rows % 5, "z": rows * 0.5}
    pq.write_table(pa.table(table), path, row_group_size=500_000)


def _save_tall_csv(path: Path, scale: int) -> None:
    with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as file:
        pa.csv.write_csv(_tall(10_000 * scale), file)


def _save_tall_svmlight(path: Path, scale: int) -> None:
    part = "".join(f"{k % 2} 1:{k % 97 + 1}\n" for k in range(10_000)).encode()
    with gzip.open(path, "wb", 1) as file:
        for _ in range(scale):
            file.write(part)


def _save_bed(path: Path, scale: int) -> None:
    codes = np.random.default_rng(0).integers(0, 256, (200 * scale, 500), np.uint8)
    path.write_bytes(b"\x6c\x1b\x01" + codes.tobytes())
    path.with_suffix(".bim").write_text("".join(f"1 rs{j} 0 {j} A G\n" for j in range(len(codes))))
    path.with_suffix(".fam").write_text("".join(f"F I{k} 0 0 1 {1 + k % 2}\n" for k in range(2000)))


MIXED = {"target": "y", "missing": "median", "id_column": "k"}
TABLES = {"target": "y", "id_column": "k", "weight_column": "w", "task_column": "t", "covariates": ["z"]}
OPTIONS = dict.fromkeys(("csv of names", "parquet of names", "feather of one batch"), MIXED)
OPTIONS |= {"parquet of row tables, tall": TABLES, "svmlight, packed, tall": {}, "bed": {}}
"""Name -> options of the ingest; default: the target is y."""

SOURCES: dict[str, tuple[str, Callable[[Path, int], None], int]] = {
    "npz by rows": ("npz", _save_sparse("csr", False), 60),
    "npz by rows, packed": ("npz", _save_sparse("csr", True), 30),
    "npz by columns": ("npz", _save_sparse("csc", False), 60),
    "npz dense": ("npz", _save_dense("C", (1000, 100)), 100),
    "npz dense by columns": ("npz", _save_dense("F", (1000, 100)), 100),
    "npz wide by columns": ("npz", _save_dense("F", (2, 100_000)), 40),
    "npz of zeros": ("npz", _save_zeros, 60),
    "mat dense": ("mat", _save_mat(False, True), 30),
    "mat sparse": ("mat", _save_mat(True, True), 40),
    "mat sparse, not packed": ("mat", _save_mat(True, False), 60),
    "parquet of one row group": ("parquet", _save_group, 40),
    "parquet of many columns": ("parquet", _save_wide_group, 1),
    "parquet of long words": ("parquet", _save_words, 8),
    "csv": ("csv", _save_csv, 40),
    "csv of many columns": ("csv", _save_wide_csv, 30),
    "csv of names": ("csv", _save_mixed, 60),
    "parquet of names": ("parquet", _save_mixed, 60),
    "feather of one batch": ("feather", _save_mixed, 60),
    "bed": ("bed", _save_bed, 100),
    "csv of many levels": ("csv", _save_shops, 40),
    "parquet, tall": ("parquet", _save_tall_group, 2000),
    "feather, tall": ("feather", _save_tall_batch, 2000),
    "parquet of row tables, tall": ("parquet", _save_tall_tables, 300),
    "csv, tall": ("csv", _save_tall_csv, 500),
    "csv, packed, tall": ("csv.gz", _save_tall_csv, 500),
    "svmlight, packed, tall": ("svm.gz", _save_tall_svmlight, 500),
}
"""Name -> ending, writer of a file of a scale, and the scale that is too large for a budget of 32 MiB."""

PROGRAM = """
import gc, json, sys
from gramplane.storage.ingest import ingest
def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
small, large, folder, budget, options = sys.argv[1:]
options = json.loads(options)
ingest(small, folder + "/warm.zarr", overwrite=True, **options)
gc.collect()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the highest so far is forgotten: compiling takes more than some ingests
before, ended = memory("VmRSS"), "done"
try:
    ingest(large, folder + "/store.zarr", overwrite=True, budget=int(budget), **options)
except Exception as error:
    ended = f"{type(error).__name__}: {error}"
print(json.dumps([memory("VmHWM") - before, ended]))
"""


def memory_of(name: str, folder: Path, budget: int) -> tuple[int, int, str]:
    """Return the bytes an ingest took above what the process had after a small one, those of the file, and how it ended."""
    kind, save, scale = SOURCES[name]
    small, large = folder / f"small.{kind}", folder / f"large.{kind}"
    save(small, 1)
    save(large, scale)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "support" / "_bare"), str(ROOT)])}
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(PROGRAM),
        str(small),
        str(large),
        str(folder),
        str(budget),
        json.dumps(OPTIONS.get(name, {"target": "y"})),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    taken, ended = json.loads(done.stdout.splitlines()[-1])
    return taken, large.stat().st_size, ended
