"""The positive part of a symmetric matrix, and closed-form solutions of non-parametric kernel learning that use it.

Source: Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 3, Propositions 3.25 and 3.26.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from numpy.typing import NDArray

from ..arrays import FloatArray, refuse_array
from ..jit import one_thread
from .block_lanczos import column_signs, dense_bytes, dense_positive
from .chebyshev import RANK_MARGINS, SPARE_COLUMNS, chebyshev_positive, estimate_spectrum
from .column_block import ArrayBlock, BlockEngine, ColumnBlock, StoredBlock, Vectors, WarmBlock, usable_cores
from .operator import MatrixPart, SymmetricOperator, connected_parts

MAX_DENSE_ROWS = 800  # Rows up to which a connected part of the matrix is solved as a dense one.
MAX_WHOLE_ROWS = 128  # Rows up to which looking for parts takes longer than a dense decomposition of the whole.
MAX_BLOCK_SHARE = 0.4  # Columns a block may have, relative to the rows, before a dense solution comes sooner.
MAX_LAST_SHARE = 0.8  # Columns it may have where the dense matrix is more than the memory.
MIN_BLOCK_ROWS = 64  # Rows below which a part is solved as a dense one by every method.
METHODS = ("auto", "dense", "lanczos", "chebyshev")
ROWS_PER_CHUNK = 1024
TIE_TOLERANCE = 1e-10
"""Relative difference below which eigenvalues count as equal, where a closed form needs their multiplicity."""


@dataclass(frozen=True)
class PositivePart:
    """``A_+ = U diag(s) U'``: the eigenpairs of A with positive eigenvalue, s ``(r,)`` descending, U ``(n, r)`` orthonormal; r may be 0.

    In each column of U the entry of largest magnitude (the first such entry in a tie) is positive. ``block``, ``(n, b)``, is a starting
    point for a later call with a similar matrix; it is None for dense solves. ``method`` is the method used for the largest component.
    ``error`` is the estimated relative error of ``||A_+||_F^2``. If an engine stored the block outside of this process, ``vectors`` and
    ``block`` have the engine's types and are read in pieces (:func:`column_pieces`, :class:`StoredBlock`).
    """

    values: FloatArray
    vectors: Vectors
    block: WarmBlock
    method: str
    error: float = 0.0


def positive_part(
    operator: SymmetricOperator,
    *,
    tol: float = 1e-8,
    start: NDArray[Any] | StoredBlock | None = None,
    seed: int = 0,
    method: str = "auto",
    max_rank: int | None = None,
    basis: NDArray[Any] | None = None,
    threads: int | None = None,
    memory: int | None = None,
    engine: BlockEngine | None = None,
) -> PositivePart:
    """Return the eigenpairs of a symmetric matrix with positive eigenvalue.

    Connected components are solved one by one; rows without a non-zero entry cost nothing. Results are bit-identical for any number of
    threads (default: all cores). ``tol`` is the relative error of ``||A_+||_F^2``; the relative error of A_+ itself is about ``sqrt(tol)``.
    Passing the ``block`` of a similar matrix as ``start`` saves half of the work or more.

    ``method="auto"`` chooses by size and estimated rank. A matrix of up to 128 rows is solved as a whole by a dense decomposition.
    Otherwise a component is solved by a dense decomposition if it has up to 800 rows or if more than a third of its eigenvalues are
    positive, and by ``"chebyshev"`` in all other cases. ``"dense"`` solves the matrix as a whole. Any other method is used for each
    component of at least 64 rows. At most the ``max_rank`` largest pairs are returned. With an orthonormal ``basis`` V ``(n, k)`` the
    matrix is ``V V'A V V'``, solved as a dense matrix of k rows.

    Raises MemoryError before a dense matrix or a block of columns would take more than ``memory`` bytes; ``"auto"`` uses a block if a dense
    matrix would be too large. An ``engine`` can hold blocks of columns elsewhere; results stay bit-identical.
    """
    _check_call(operator, tol, start, method, max_rank)
    if basis is not None:
        columns = np.asarray(basis, dtype=np.float64)
        values, inner = dense_positive(operator.restricted(columns))
        return _finish_part(values, columns @ inner, None, "dense", max_rank)
    if method == "auto" and operator.n <= MAX_WHOLE_ROWS:
        return _finish_part(*_solve_whole(_make_dense(operator, memory)), None, "dense", max_rank)
    if method == "dense":
        return _finish_part(*dense_positive(_make_dense(operator, memory)), None, "dense", max_rank)
    settings = (start, tol, seed, method, max_rank, usable_cores() if threads is None else threads, memory, engine)
    solved = [(part.rows, _solve_part(part, *settings)) for part in connected_parts(operator)]
    return _assemble_parts(operator.n, solved, max_rank, engine)


def lanczos_positive(
    operator: SymmetricOperator, rank: int, *, tol: float, seed: int = 0, max_rank: int | None = None
) -> tuple[FloatArray, FloatArray] | None:
    """Return the positive eigenvalues, descending, with eigenvectors; None if there are too many or the iteration does not converge.

    ``rank`` is the estimated number of positive eigenvalues: ``rank + 5`` pairs are computed first. Their number is then doubled until one
    of the eigenvalues is not positive, or ``max_rank`` is reached. ``tol`` is the relative error of ``||A_+||_F^2``; ``seed`` determines
    the first vector. At most the ``max_rank`` largest pairs are returned.
    """
    n, limit = operator.n, operator.n if max_rank is None else max_rank
    size = min(rank, limit) + 5
    rng = np.random.default_rng((seed, 4))
    first = rng.standard_normal(n)
    wrap, solve = cast("Any", sla.LinearOperator), cast("Any", sla.eigsh)
    matrix = wrap((n, n), matvec=lambda v: operator.product(np.ravel(v)), dtype=np.float64)
    while 4 * size < n:
        try:
            with one_thread():
                values, vectors = solve(matrix, k=size, which="LA", v0=first, tol=min(1e-6, tol), rng=rng)
        except sla.ArpackNoConvergence:
            return None
        order = np.argsort(-values, kind="stable")
        values, vectors = values[order], vectors[:, order]
        if values[-1] <= 0 or size >= limit:
            n_pairs = min(int(np.count_nonzero(values > 0)), limit)
            return values[:n_pairs], vectors[:, :n_pairs]
        size *= 2
    return None


def _make_dense(operator: SymmetricOperator, memory: int | None) -> FloatArray:
    """Return the dense matrix. Raises MemoryError if its decomposition does not fit into memory."""
    refuse_array(f"a dense decomposition of {operator.n} rows", dense_bytes(operator.n), memory)
    return operator.dense()


def _solve_whole(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the positive eigenpairs of a small matrix. Rows of zeros are left out; their entries are zero in every vector."""
    filled = matrix.any(axis=1)
    if filled.all():
        return dense_positive(matrix)
    values, inner = dense_positive(matrix[np.ix_(filled, filled)])
    vectors = np.zeros((len(matrix), len(values)))
    vectors[filled] = inner
    return values, vectors


def column_pieces(vectors: Vectors) -> Iterator[tuple[slice, FloatArray]]:
    """Yield pieces of the columns, with their positions, from an array or from the representation that the engine uses."""
    if isinstance(vectors, np.ndarray):
        yield slice(0, vectors.shape[1]), vectors
    else:
        yield from vectors.column_pieces()


def as_array(vectors: Vectors) -> FloatArray:
    """Return all columns as one array, from an array or from the representation that the engine uses."""
    return vectors if isinstance(vectors, np.ndarray) else vectors.read(0, vectors.shape[0])


def _check_call(operator: SymmetricOperator, tol: float, start: WarmBlock, method: str, max_rank: int | None) -> None:
    if method not in METHODS:
        raise ValueError(f"method={method!r}: must be one of {', '.join(METHODS)}")
    if not 0 < tol < 1:
        raise ValueError(f"tol={tol!r}: must be between 0 and 1")
    if max_rank is not None and max_rank < 1:
        raise ValueError(f"max_rank={max_rank!r}: must be at least 1")
    if isinstance(start, np.ndarray) and (start.ndim != 2 or len(start) != operator.n):
        raise ValueError(f"start: shape {np.shape(start)}; must be ({operator.n}, b), a block of an earlier result")


def _solve_part(
    part: MatrixPart,
    start: NDArray[Any] | StoredBlock | None,
    tol: float,
    seed: int,
    method: str,
    max_rank: int | None,
    threads: int,
    memory: int | None,
    engine: BlockEngine | None,
) -> PositivePart:
    """Return the positive eigenpairs of a component, without normalising signs."""
    operator, n = part.operator, part.operator.n
    # Beyond the memory a block is tried in place of a dense matrix that would come sooner.
    prefers_dense = method == "auto" and (memory is None or dense_bytes(n) <= memory)
    if n < MIN_BLOCK_ROWS or (prefers_dense and n <= MAX_DENSE_ROWS):
        return PositivePart(*dense_positive(_make_dense(operator, memory)), None, "dense")
    spectrum = estimate_spectrum(operator, seed)
    if spectrum.top <= 0:
        return PositivePart(np.zeros(0), np.zeros((n, 0)), None, method if method != "auto" else "chebyshev")
    rank = max(0.0, spectrum.count(0.0))
    if method == "lanczos":
        pairs = lanczos_positive(operator, round(rank), tol=tol, seed=seed, max_rank=max_rank)
        if pairs is not None:
            return PositivePart(*pairs, pairs[1].astype(np.float32), "lanczos")
    size = rank if max_rank is None else min(rank, max_rank)
    if RANK_MARGINS[0] * size + SPARE_COLUMNS > min(MAX_LAST_SHARE, MAX_BLOCK_SHARE if prefers_dense else 1.0) * n:
        return PositivePart(*dense_positive(_make_dense(operator, memory)), None, "dense")

    def make_block(columns: int, rank: float) -> ColumnBlock:
        if engine is not None and engine.takes(n, columns, rank):
            return engine.open(operator, part.rows)
        return ArrayBlock(operator, threads, part.rows)

    options: dict[str, Any] = {"seed": seed, "max_rank": max_rank, "threads": threads, "memory": memory}
    leading = chebyshev_positive(operator, spectrum, make_block, tol=tol, start=start, **options)
    method = "dense" if leading.block is None else "chebyshev"
    return PositivePart(leading.values, leading.vectors, leading.block, method, leading.error)


def _assemble_parts(
    n: int, solved: list[tuple[NDArray[np.intp], PositivePart]], max_rank: int | None, engine: BlockEngine | None
) -> PositivePart:
    """Merge the eigenpairs of the components, by descending eigenvalue, and put the blocks of the components side by side."""
    if not solved:
        return PositivePart(np.zeros(0), np.zeros((n, 0)), None, "dense")
    values = np.concatenate([part.values for _, part in solved])
    order = np.argsort(-values, kind="stable")[:max_rank]
    largest = max(solved, key=lambda pair: len(pair[0]))[1]
    squares = [float(part.values @ part.values) for _, part in solved]
    error = sum(part.error * square for (_, part), square in zip(solved, squares, strict=True)) / max(sum(squares), np.finfo(float).tiny)
    if engine is not None and not all(isinstance(item, np.ndarray | None) for _, part in solved for item in (part.vectors, part.block)):
        return PositivePart(values[order], *engine.assemble(n, solved, order), largest.method, error)
    column = np.full(len(values), -1)
    column[order] = np.arange(len(order))
    vectors = np.zeros((n, len(order)))
    ends = np.cumsum([0, *(len(part.values) for _, part in solved)])
    for (rows, part), lo, hi in zip(solved, ends[:-1], ends[1:], strict=True):
        into = column[lo:hi]
        for row in range(0, len(rows), ROWS_PER_CHUNK):
            chunk = slice(row, row + ROWS_PER_CHUNK)
            vectors[rows[chunk, None], into[into >= 0]] = part.vectors[chunk, into >= 0]
    widest = max((part.block.shape[1] for _, part in solved if part.block is not None), default=0)
    block = None if widest == 0 else np.zeros((n, widest), np.float32)
    for rows, part in solved:
        if block is not None and part.block is not None:
            block[rows, : part.block.shape[1]] = part.block
    return _finish_part(values[order], vectors, block, largest.method, None, error)


def _finish_part(
    values: FloatArray, vectors: FloatArray, block: NDArray[np.float32] | None, method: str, max_rank: int | None, error: float = 0.0
) -> PositivePart:
    values, vectors = values[:max_rank], np.ascontiguousarray(vectors[:, :max_rank])
    for lo in range(0, vectors.shape[1], 64):
        columns = vectors[:, lo : lo + 64]
        columns *= column_signs(columns)
    return PositivePart(values, vectors, block, method, error)


def kernel_spectrum(values: FloatArray, p: float, *, B: float | None = None, G: float | None = None) -> tuple[FloatArray, float]:
    """Return the eigenvalues of the kernel that maximises a linear objective, and the optimal value.

    With A = U diag(s) U' + (the part that is not positive) and q = p/(p-1):

    * cap B: ``max tr(AK)`` over K >= 0 with ``tr K^p <= B`` is ``B^{1/p} ||s||_q`` at ``K = U diag(lam) U'``,
      ``lam_i = (B / sum_j s_j^q)^{1/p} s_i^{1/(p-1)}``; for p = 1 it is ``B s_max``, and lam shares B equally among the eigenvalues that
      equal the largest one (to a relative 1e-10), because any other share has the same value.
    * penalty G: ``max tr(AK) - (G/p) tr K^p`` is ``(1/q) G^{-1/(p-1)} sum_i s_i^q`` at ``lam_i = (s_i/G)^{1/(p-1)}``.

    ``values`` is s, ``(r,)``, descending and positive; if it is empty, the kernel is zero. ``p`` is the power, at least 1, and above 1 with
    a penalty. Give exactly one of ``B`` (cap) and ``G`` (penalty), above 0. Returns the eigenvalues of K, ``(r,)``, in the order of
    ``values``, and the optimal value ``R(A_+)``. Raises ValueError if the arguments do not describe one of the two problems.

    References
    ----------
    Zhuang, thesis, 2011, Propositions 3.25 and 3.26. For p = 1 the printed rule holds only if the top eigenvalue is positive.
    """
    _check_form(p, B, G)
    if len(values) == 0:
        return np.zeros(0), 0.0
    top = float(values[0])
    share = values / top
    if B is not None:
        if p == 1:
            equal = share >= 1 - TIE_TOLERANCE
            return np.where(equal, B / equal.sum(), 0.0), B * top
        # In units of the largest value no power can overflow: lam = B^{1/p} t^{1/(p-1)} / (sum t^q)^{1/p} with t = s / s_max.
        root = share ** (1 / (p - 1))
        total = float(root @ share)
        return (B / total) ** (1 / p) * root, B ** (1 / p) * top * total ** ((p - 1) / p)
    assert G is not None
    lam = (values / G) ** (1 / (p - 1))
    return lam, (p - 1) / p * float(lam @ values)


def _check_form(p: float, B: float | None, G: float | None) -> None:
    if not (np.isfinite(p) and p >= 1):
        raise ValueError(f"p={p!r}: must be at least 1")
    if (B is None) == (G is None):
        raise ValueError("B, G: give exactly one of the cap B and the penalty G")
    name, value = ("B", B) if B is not None else ("G", G)
    if value is None or not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value!r}: must be above 0")
    if G is not None and p == 1:
        raise ValueError("p=1: needs the cap B; with a penalty the problem is unbounded or its optimum is zero")


def normalized_laplacian(S: sp.csr_array) -> sp.csr_array:
    """Return ``L = I - D^{-1/2} S D^{-1/2}`` for affinities S >= 0, with zero rows and columns for points without a neighbour.

    Then ``tr(LK) = 1/2 sum_ij S_ij ||v_i / sqrt(D_i) - v_j / sqrt(D_j)||^2`` for every ``K = V V'``, with ``D_i = sum_j S_ij``.
    """
    affinity = SymmetricOperator(S).sparse
    if affinity.data.size and affinity.data.min() < 0:
        raise ValueError(f"S: holds the entry {affinity.data.min():.9g}; affinities must not be negative")
    degrees = np.asarray(affinity.sum(axis=1), dtype=np.float64).ravel()
    linked = degrees > 0
    scale = np.zeros(len(degrees))
    scale[linked] = degrees[linked] ** -0.5
    scaling = sp.diags_array(scale)
    return sp.csr_array(sp.diags_array(linked.astype(np.float64)) - scaling @ affinity @ scaling)
