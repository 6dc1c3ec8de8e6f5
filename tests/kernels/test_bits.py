"""What the same bits rest on below our own code: no result depends on where its arrays lie in memory, on any kernel of BLAS.

Otherwise two runs on one machine could differ: the addresses of arrays are chance. Of all calls tried one does depend on them, ``asum``
of OpenBLAS, which nothing here calls.
"""

import numpy as np
import pytest
import scipy.linalg

from gramplane.kernels.bank import products as bank_products
from gramplane.kernels.eigen.block_lanczos import MIN_ROWS_BY_VALUE, dense_positive
from gramplane.kernels.grams import distances, feature_sums
from gramplane.kernels.loss_types import MarginLoss
from gramplane.kernels.losses import LOSSES
from gramplane.kernels.mixed_norm import row_block, rows
from tests.support.processors import other_coretypes, said


def margin_losses():
    return [loss for loss in LOSSES.values() if isinstance(loss, MarginLoss)]


def placed(arrays, start, gap):
    """Copies of arrays in one stretch of memory: the first ``start`` bytes after a page begins, each ``gap`` bytes after the one before."""
    memory = np.empty(sum(array.nbytes + gap + 8 for array in arrays) + start + 4096, np.uint8)
    at, found = (-memory.ctypes.data) % 4096 + start, []
    for array in arrays:
        found.append(memory[at : at + array.nbytes].view(array.dtype).reshape(array.shape))
        found[-1][...] = array
        at += -(-(array.nbytes + gap) // array.itemsize) * array.itemsize
        at += (-at) % 8
    return found


def outcomes(function, arrays, places):
    """What a call returns and what it leaves in its arrays, for every place: one set of bits if all is well."""
    found = set()
    for start, gap in places:
        own = placed(arrays, start, gap)
        given = function(*own)
        parts = [*(given if isinstance(given, tuple) else (given,)), *own]
        found.add(b"".join(np.ascontiguousarray(part).tobytes() for part in parts if part is not None))
    return found


# -- BLAS and LAPACK ---------------------------------------------------------------------------------------------------------------

# As NumPy allocates, at multiples of 16: no two runs put an array at the same one of 64 or 4,096.
ALLOCATED = [(0, 0), (16, 16), (32, 16), (48, 48), (64, 80), (1040, 32)]


def triangles(matrix):
    return scipy.linalg.cho_factor(matrix, lower=True)[0]


def solved(matrix, right):
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix), right)


def calls(n, p, k):
    """Every kind of call to BLAS and LAPACK that kernels make, by name: function and arrays."""
    rng = np.random.default_rng(n)
    A, B, v, u = rng.standard_normal((n, p)), rng.standard_normal((p, k)), rng.standard_normal(p), rng.standard_normal(n)
    S = A.T @ A + np.eye(p)
    single = A.astype(np.float32)
    return {
        "dot": (lambda a, b: np.array(a @ b), [u, u[::-1].copy()]),
        "norm": (lambda a: np.array(np.linalg.norm(a)), [u]),
        "gemv": (lambda a, b: a @ b, [A, v]),
        "gemv, transposed": (lambda a, b: a.T @ b, [A, u]),
        "gemm": (lambda a, b: a @ b, [A, B]),
        "gemm, transposed": (lambda a, b: a.T @ b, [A, rng.standard_normal((n, k))]),
        "gemm, float32": (lambda a, b: a.T @ b, [single, single[:, ::-1].copy()]),
        "syrk": (lambda a: a @ a.T, [A]),
        "syrk, float32": (lambda a: a.T @ a, [single]),
        "cholesky": (triangles, [S]),
        "solve": (np.linalg.solve, [S, np.stack([v, v], axis=1)]),
        "positive solve": (solved, [S, v]),
        "triangular solve": (lambda a, b: scipy.linalg.solve_triangular(np.tril(a), b, lower=True), [S, v]),
        "eigenvalues": (np.linalg.eigvalsh, [S]),
        "eigenvectors": (lambda a: tuple(np.linalg.eigh(a)), [S]),
        "positive eigenvectors": (lambda a: dense_positive(a - 0.5 * np.trace(a) / p * np.eye(p)), [S]),
        "singular values": (lambda a: tuple(np.linalg.svd(a, full_matrices=False)), [A]),
        "triangle": (lambda a: np.linalg.qr(a, mode="r"), [A]),
        "tridiagonal": (lambda a, b: tuple(scipy.linalg.eigh_tridiagonal(a, b[1:])), [v, v[::-1].copy()]),
        "sums": (lambda a: (a.sum(axis=0), a.sum(axis=1), np.einsum("ij,ij->i", a, a)), [A]),
        "exponentials": (lambda a: (np.exp(a), np.log1p(np.abs(a)), np.abs(a) ** 0.7), [A]),
    }


SHAPES = [(33, 20, 3), (300, 129, 17), (260, MIN_ROWS_BY_VALUE + 3, 1)]


def moved():
    """Names of the calls whose bits depend on where their arrays lie."""
    every = ((name, function, arrays) for shape in SHAPES for name, (function, arrays) in calls(*shape).items())
    return sorted({name for name, function, arrays in every if len(outcomes(function, arrays, ALLOCATED)) > 1})


def test_results_of_blas_and_numpy_do_not_depend_on_where_arrays_lie():
    assert moved() == []


@pytest.mark.slow
def test_nor_do_they_under_other_kernels():
    if not other_coretypes():
        pytest.skip("BLAS here has one kernel only, or does not read OPENBLAS_CORETYPE")
    for coretype in other_coretypes()[:2]:
        assert said("from tests.kernels.test_bits import moved; print(moved())", OPENBLAS_CORETYPE=coretype).strip() == "[]", coretype


@pytest.mark.parametrize("places", ["ALLOCATED", "NEIGHBOURS"])
def test_the_places_are_different_ones(places):
    """Or the tests here could not fail."""
    arrays = [np.zeros(300), np.zeros(300)]
    assert len(outcomes(lambda a, b: np.array([a.ctypes.data % 64]), arrays, globals()[places])) > 1
    assert len(outcomes(lambda a, b: np.array([b.ctypes.data - a.ctypes.data]), arrays, globals()[places])) > 1


def test_full_squares_treat_all_places_alike():
    """What Gram matrices in blocks rest on (:mod:`gramplane.kernels.grams.blocks`): an entry depends on its two rows alone."""
    code = "from tests.kernels.test_bits import squares_differ; print(squares_differ())"
    assert squares_differ() == []
    for coretype in other_coretypes()[:2]:
        assert said(code, OPENBLAS_CORETYPE=coretype).strip() == "[]", coretype


def squares_differ():
    """Widths for which a row's or a column's place in a square of 128, or zeros beside it, or the swap of both sides, changes bits."""
    rng, found = np.random.default_rng(0), []
    for width in (17, 40, 100, 127, 128, 129, 256, 300, 385, 513, 800, 1500):
        left, right = rng.standard_normal((2, 128, width))
        turned, order, short = np.ascontiguousarray(right.T), rng.permutation(128), left.copy()
        short[77:] = 0.0
        whole, room = left @ turned, np.zeros((256, 264))
        np.matmul(left, turned, out=room[64:192, 8:136])
        same = [
            np.array_equal(whole[order], left[order] @ turned),
            np.array_equal(whole[:, order], left @ np.ascontiguousarray(turned[:, order])),
            np.array_equal(whole.T, right @ np.ascontiguousarray(left.T)),
            np.array_equal((short @ turned)[:77], whole[:77]),
            np.array_equal(room[64:192, 8:136], whole),
        ]
        found += [] if all(same) else [width]
    return found


# -- compiled sums -----------------------------------------------------------------------------------------------------------------

# Loops that store what they sum up test whether their arrays overlap, some of them with ranges rounded up: neighbours are the danger.
NEIGHBOURS = [(start, gap) for start in (0, 8, 24, 56) for gap in (0, 8, 40, 64, 136, 264, 1088, 2048)]


def sums(n):
    """Every function whose sums the compiler may take in another order, by name: function and arrays."""
    rng = np.random.default_rng(n)
    v = [rng.standard_normal(n) for _ in range(6)]
    f, p = [part.astype(np.float32) for part in v], 11
    y, flat = np.sign(v[0]), rng.standard_normal(n * p)
    few, steps, wide = rng.standard_normal(p), np.array([0.0, 0.5, 1.0]), rng.standard_normal((7, n))
    return {
        "four sums": (bank_products._four_products, v[:5]),
        "four sums, float32": (bank_products._four_products, [*f[:4], v[4]]),
        "dots": (bank_products._add_dots, [wide, v[0], np.zeros(7)]),
        **{
            f"{name} {loss.name}": (lambda *a, call=call, kind=int(loss.kind): call(kind, *a), arrays)
            for loss in margin_losses()
            for name, call, arrays in (
                ("points", rows.point_pass, [v[0], y, np.abs(v[1]), v[2]]),
                ("balance", lambda *a: rows.balance_pass(*a, 0.1), [v[0], v[2], y, np.abs(v[1])]),
                ("line", rows.line_pass, [v[0], v[2], y, np.abs(v[1]), steps]),
            )
        },
        "points of targets": (lambda *a: rows.target_point_pass(0.1, 1.0, *a), [v[0], v[3], np.abs(v[1]), v[2]]),
        "balance of targets": (lambda *a: rows.target_balance_pass(0.1, 1.0, *a, 0.1), [v[0], v[2], v[3], np.abs(v[1])]),
        "line of targets": (lambda *a: rows.target_line_pass(0.1, 1.0, *a), [v[0], v[2], v[3], np.abs(v[1]), steps]),
        "product by columns": (lambda a, b, c: row_block._product_by_columns(a, n, b, c), [flat, few, np.zeros(n)]),
        "transposed by columns": (lambda a, b, c: row_block._transposed_by_columns(a, n, b, c), [flat, v[0], np.zeros(p)]),
        "product by rows": (lambda a, b, c: row_block._product_by_rows(a, n, b, c), [flat, v[0], np.zeros(p)]),
        "transposed by rows": (lambda a, b, c: row_block._transposed_by_rows(a, n, b, c), [flat, few, np.zeros(n)]),
        "inner": (distances.dot_product, v[:2]),
        "norms": (distances.squared_norms, [wide, np.zeros(7)]),
        "next wave": (lambda a, b, c, d: feature_sums._next_wave(a, b, c, 0.3, d), [*v[:3], np.zeros(n, np.float32)]),
        "advance": (feature_sums._advance_wave, v[:3]),
        "waves": (lambda a, *rest: feature_sums.start_waves(a, 0.1, 0.3, *rest), v),
        "two terms": (feature_sums._add_two_terms, v[:5]),
    }


@pytest.mark.parametrize("n", [5, 37, 128, 1000])
def test_compiled_sums_do_not_depend_on_where_their_arrays_lie(n):
    moved = [name for name, (function, arrays) in sums(n).items() if len(outcomes(function, arrays, NEIGHBOURS)) > 1]
    assert moved == []


def test_every_function_with_sums_in_any_order_is_among_them():
    from tests.repository.test_layers import ROOT

    told = sum(path.read_text().count("@compiled(reassociate=True)") for path in (ROOT / "kernels").rglob("*.py"))
    loose = {name for name in sums(5) if not name.endswith((*(f" {loss.name}" for loss in margin_losses()[1:]), ", float32"))}
    assert len(loose) == told
