"""Memory of an ingest does not grow with the file."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def generate(path, nnz, n_cols, per_row=100, rows=1000):
    """Write SVMlight text with columns of falling popularity; after ``rows`` rows it repeats itself."""
    rng = np.random.default_rng(0)
    u = rng.random((rows, per_row))
    cols = np.sort((n_cols * np.where(np.arange(per_row) % 2, u**3, u)).astype(np.int64) + 1, axis=1)
    lines, total = [], 0
    for row, values in zip(cols.tolist(), rng.integers(1, 9999, (rows, per_row)).tolist(), strict=True):
        pairs = dict(zip(row, values, strict=True))
        lines.append("1 " + " ".join([f"{j}:0.{v:04}" for j, v in pairs.items()]) + "\n")
        total += len(pairs)
    text = "".join(lines)
    with open(path, "w") as file:
        for _ in range(0, nnz, total):
            file.write(text)


LIBRARIES = """
import json, sys
from gramplane.cluster.config import peak_bytes
from gramplane.storage.ingest import ingest
ingest(sys.argv[1], sys.argv[2] + "/warm", overwrite=True)
before = peak_bytes()
"""


def peaks(small, path, folder, budget, jobs=1, **options):
    """Resident memory before and at the worst of an ingest, in a process of its own."""
    code = LIBRARIES + textwrap.dedent(
        f"""
        store = ingest({str(path)!r}, sys.argv[2] + "/S", budget={budget}, jobs={jobs}, overwrite=True, **{options!r})
        print(json.dumps([before, peak_bytes(), store.meta.n_cols]))
        """
    )
    done = subprocess.run([sys.executable, "-c", code, str(small), str(folder)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def small(tmp_path):
    generate(tmp_path / "small.svm", 2000, 50)
    return tmp_path / "small.svm"


@pytest.mark.parametrize("jobs", [1, 2])
def test_memory_stays_within_the_budget(tmp_path, small, jobs):
    budget = 16 << 20
    sizes = []
    for nnz in (500_000, 2_000_000):
        path = tmp_path / "big.svm"
        generate(path, nnz, 50_000)
        before, worst, _ = peaks(small, path, tmp_path, budget, jobs)
        sizes.append(worst - before)
        assert worst - before < budget * jobs, (worst - before) / budget
    assert sizes[1] < sizes[0] + (6 << 20), "four times the text, the same memory"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["npy", "parquet"])
def test_memory_of_dense_input(tmp_path, small, form):
    budget = 32 << 20
    A = np.random.default_rng(0).normal(size=(45_000, 200))
    path = tmp_path / f"big.{form}"
    if form == "npy":
        np.save(path, A)
    else:
        pq.write_table(pa.table({f"f{k}": A[:, k] for k in range(A.shape[1])}), path, row_group_size=5000)
    assert path.stat().st_size > 2 * budget
    before, worst, _ = peaks(small, path, tmp_path, budget)
    # Mapped pages of the source count as resident although the system may drop them, and pyarrow is loaded.
    slack = path.stat().st_size if form == "npy" else 96 << 20
    assert worst - before < budget + slack


@pytest.mark.slow
def test_ten_million_columns_in_half_a_gigabyte(tmp_path, small):
    path = tmp_path / "wide.svm"
    # What is compiled, once on a machine, takes more memory than the ingest.
    generate(path, 2_000_000, 10_000_000, rows=2000)
    peaks(small, path, tmp_path, 256 << 20)
    generate(path, 20_000_000, 10_000_000, rows=20_000)
    _, worst, n_cols = peaks(small, path, tmp_path, 256 << 20)
    assert n_cols > 9_900_000
    assert worst < 512 << 20, worst / 2**20
