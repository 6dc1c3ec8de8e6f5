"""Small block stores for tests."""

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gramplane.storage import BlockMeta, BlockStore, BlockWriter, plan_stripes
from gramplane.storage.layout import plan_dense, plan_dense_rows


def random_sparse(n: int, d: int, seed: int = 0, dtype: str = "float32", heavy: bool = True) -> sp.csc_array:
    """Random CSC data with empty columns and, if asked, one column that is full."""
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((n, d)) * (rng.random((n, d)) < rng.random(d) * 0.3)
    dense[:, rng.random(d) < 0.2] = 0.0
    if heavy and d > 2:
        dense[:, d // 2] = rng.standard_normal(n)
    block = sp.csc_array(dense.astype(dtype))
    block.sort_indices()
    return block


def write_sparse(url: str | Path, X: sp.csc_array, *, stripe_bytes: int = 256, both: bool = False, **options: bool) -> BlockWriter:
    """Write every stripe and table of a sparse store; the caller commits."""
    counts = np.diff(X.indptr)
    columns = plan_stripes(counts, X.dtype.itemsize, stripe_bytes=stripe_bytes)
    by_rows = sp.csr_array(X)
    rows = plan_stripes(np.diff(by_rows.indptr), X.dtype.itemsize, stripe_bytes=stripe_bytes) if both else None
    writer = BlockWriter.create(url, BlockMeta(*X.shape, "sparse", X.dtype.name, labels=("no", "yes")), columns, rows, **options)
    for layout, plan, data in (("columns", columns, X), ("rows", rows, by_rows)):
        for s in range(plan.n_stripes if plan else 0):
            lo, hi = int(plan.edges[s]), int(plan.edges[s + 1])
            a, b = int(data.indptr[lo]), int(data.indptr[hi])
            writer.write_stripe(s, np.diff(data.indptr[lo : hi + 1]), data.indices[a:b], data.data[a:b], layout=layout)
    writer.write_table("counts", counts.astype(np.uint32), of="columns")
    if both:
        writer.write_table("counts", np.diff(by_rows.indptr).astype(np.uint32), of="row-layout")
    writer.write_table("y", np.arange(X.shape[0]) % 2 * 1.0)
    return writer


def sparse_store(url: str | Path, X: sp.csc_array, **options: object) -> BlockStore:
    """A committed sparse store."""
    return write_sparse(url, X, **options).commit()


def dense_store(url: str | Path, X: np.ndarray, *, stripe_bytes: int = 256, both: bool = False) -> BlockStore:
    """A committed dense store."""
    columns = plan_dense(*X.shape, X.dtype.itemsize, stripe_bytes=stripe_bytes)
    rows = plan_dense_rows(*X.shape, X.dtype.itemsize, stripe_bytes=stripe_bytes) if both else None
    writer = BlockWriter.create(url, BlockMeta(*X.shape, "dense", X.dtype.name), columns, rows)
    for layout, plan in (("columns", columns), ("rows", rows)):
        for i, j in np.ndindex(*plan.grid) if plan else ():
            writer.write_dense(i, j, X[plan.cell(i, j)], layout=layout)
    writer.write_table("y", np.arange(X.shape[0]) * 1.0)
    return writer.commit()


def same_block(found: object, expected: object) -> bool:
    """Whether two blocks have the same form, type, indices and bits."""
    if isinstance(expected, np.ndarray):
        return (
            isinstance(found, np.ndarray)
            and found.dtype == expected.dtype
            and found.shape == expected.shape
            and found.tobytes() == expected.tobytes()
        )
    parts = ("data", "indices", "indptr")
    return (
        found.format == expected.format
        and found.shape == expected.shape
        and all(np.array_equal(getattr(found, p), getattr(expected, p)) and (p != "data" or found.dtype == expected.dtype) for p in parts)
    )
