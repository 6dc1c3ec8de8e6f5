"""SVMlight files for the ingest tests, and a comparison of stores with matrices."""

import numpy as np
import scipy.sparse as sp


def random_csr(seed, n_rows=120, n_cols=90, density=0.08, *, exact=False):
    """A random matrix with a popular column, empty rows and columns; with values that fit float32 exactly, if asked."""
    rng = np.random.default_rng(seed)
    X = sp.random(n_rows, n_cols, density, format="lil", random_state=rng)
    X[rng.random(n_rows) < 0.6, n_cols // 3] = 1.5
    X[:, n_cols // 2] = 0
    X[n_rows // 2, :] = 0
    X[0, n_cols - 1] = 2.0
    found = sp.csr_array(X.tocsr())
    found.data = np.round(found.data * 64) / 64 if exact else np.round(found.data - 0.5, 5)
    found.eliminate_zeros()
    found.sort_indices()
    return found


def labels_for(seed, n_rows, labels=(-1, 1)):
    """Random labels, all of them present."""
    y = np.random.default_rng(seed + 1).choice(labels, n_rows).astype(float)
    y[: len(labels)] = labels
    return y


def to_text(X, y, first=1):
    """SVMlight text."""
    rows = []
    for i in range(X.shape[0]):
        span = slice(X.indptr[i], X.indptr[i + 1])
        entries = " ".join(f"{j + first}:{float(v)!r}" for j, v in zip(X.indices[span], X.data[span], strict=True))
        rows.append(f"{y[i]:g} {entries}")
    return ("\n".join(rows) + "\n").encode()


def write_file(path, seed=0, *, labels=(-1, 1), first=1, **shape):
    """Write a random file; its matrix and labels."""
    X = random_csr(seed, **shape)
    y = labels_for(seed, X.shape[0], labels)
    path.write_bytes(to_text(X, y, first))
    return X, y


def dense(columns):
    """Columns of a store as an ndarray."""
    return columns if isinstance(columns, np.ndarray) else columns.toarray()


def check_store(store, X, y, *, rows=False):
    """Compare everything in a store with a matrix and labels."""
    A = X if isinstance(X, np.ndarray) else X.toarray()
    assert (store.meta.n_rows, store.meta.n_cols) == A.shape
    blocks = [ref.load() for ref in store.column_blocks()]
    if store.meta.kind == "sparse":
        whole, expected = sp.csc_array(sp.hstack(blocks, format="csc")), sp.csc_array(X)
        expected.sort_indices()
        for part in ("indptr", "indices", "data"):
            assert np.array_equal(getattr(whole, part), getattr(expected, part)), part
    else:
        assert np.array_equal(np.hstack(blocks), A)
    if rows:
        assert np.array_equal(np.vstack([dense(ref.load()) for ref in store.row_blocks()]), A)
    assert np.array_equal(np.array(store.meta.labels, dtype=float)[store.target().astype(int)], y)
    check_tables(store, A)
    assert store.verify().ok


def check_tables(store, A):
    """Compare the column tables with a matrix."""
    A = A.astype(float)
    table = {name: store.column_table(name) for name in ("counts", "norm1", "sumsq", "minimum", "maximum")}
    assert np.array_equal(table["counts"], np.count_nonzero(A, axis=0))
    assert np.array_equal(table["minimum"], A.min(axis=0))
    assert np.array_equal(table["maximum"], A.max(axis=0))
    assert np.allclose(table["sumsq"], np.square(A).sum(axis=0), rtol=1e-13)
    norm1 = np.abs(A).sum(axis=0)
    assert table["norm1"].dtype == np.float32
    assert (table["norm1"] >= norm1).all()
    assert np.allclose(table["norm1"], norm1, rtol=3e-7)
