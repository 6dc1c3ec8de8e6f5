"""Positive parts of symmetric matrices by every path, and the closed forms that follow from them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import block_diag

from gramplane.kernels.eigen import column_block
from gramplane.kernels.eigen.chebyshev import estimate_spectrum, orthonormalise, plan_block
from gramplane.kernels.eigen.column_block import ArrayBlock, filter_block, gram_matrix, solve_columns
from gramplane.kernels.eigen.operator import Panels, SymmetricOperator, connected_parts, filter_step
from gramplane.kernels.eigen.positive_part import kernel_spectrum, normalized_laplacian, positive_part
from tests.support.oracles.spectral import best_kernel, graph_problem, laplacian_energy, positive_pairs


def operator(A):
    return SymmetricOperator(sp.csr_array(A))


def rebuilt(part):
    return (part.vectors * part.values) @ part.vectors.T


def assert_same_part(part, A, objective=1e-8, matrix=2e-4):
    values, vectors = positive_pairs(A)
    wanted = (vectors * values) @ vectors.T
    assert part.values @ part.values == pytest.approx(values @ values, rel=objective)
    assert np.linalg.norm(rebuilt(part) - wanted) <= matrix * np.linalg.norm(wanted)
    np.testing.assert_allclose(part.vectors.T @ part.vectors, np.eye(len(part.values)), atol=1e-8)
    assert (part.values > 0).all()
    assert (np.diff(part.values) <= 0).all()
    for vector in part.vectors.T:  # of entries that rounding alone tells apart the first is positive
        assert vector[np.abs(vector) >= (1 - 1e-6) * np.abs(vector).max()][0] > 0


# -- closed forms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "given", "kernel", "optimum"),
    [
        (2, {"B": 1.0}, np.array([3, 1, 0]) / np.sqrt(10), np.sqrt(10)),
        (1, {"B": 1.0}, np.array([1, 0, 0]), 3.0),
        (3, {"B": 1.0}, np.array([np.sqrt(3), 1, 0]) / (3**1.5 + 1) ** (1 / 3), (3**1.5 + 1) ** (2 / 3)),
        (2, {"G": 2.0}, np.array([1.5, 0.5, 0]), 2.5),
    ],
)
def test_golden_diagonal(p, given, kernel, optimum):
    part = positive_part(operator(np.diag([3.0, 1.0, -2.0])))
    lam, value = kernel_spectrum(part.values, p, **given)
    np.testing.assert_allclose((part.vectors * lam) @ part.vectors.T, np.diag(kernel), atol=1e-12)
    assert value == pytest.approx(optimum, rel=1e-12)


@pytest.mark.parametrize("given", [{"B": 2.5}, {"G": 0.7}])
@pytest.mark.parametrize("p", [1.5, 2.0, 4.0])
def test_closed_forms_are_optimal(p, given):
    A = graph_problem(4, seed=3, pairs=1.5, neighbours=2)[0]
    part = positive_part(operator(A))
    lam, value = kernel_spectrum(part.values, p, **given)
    assert value == pytest.approx(best_kernel(A, p, **given), rel=1e-5)
    K = (part.vectors * lam) @ part.vectors.T
    power = np.sum(lam**p)
    reached = np.sum(A * K) - (given["G"] / p * power if "G" in given else 0.0)
    assert reached == pytest.approx(value, rel=1e-10)
    if "B" in given:
        assert power == pytest.approx(given["B"], rel=1e-10)


def test_trace_cap_shares_a_multiple_top_eigenvalue():
    lam, value = kernel_spectrum(np.array([2.0, 2.0 * (1 - 1e-13), 1.0]), 1, B=3.0)
    np.testing.assert_allclose(lam, [1.5, 1.5, 0])
    assert value == 6.0


def test_powers_near_one_do_not_overflow():
    lam, value = kernel_spectrum(np.array([1e4, 1.0]), 1.001, B=2.0)
    assert np.isfinite(lam).all()
    assert value == pytest.approx(2.0 ** (1 / 1.001) * 1e4, rel=1e-12)


def test_no_positive_value_gives_the_zero_kernel():
    assert kernel_spectrum(np.zeros(0), 2, B=1.0)[1] == 0.0


@pytest.mark.parametrize(
    ("p", "given", "message"),
    [
        (0.5, {"B": 1.0}, "p=0.5: must be at least 1"),
        (2, {}, "B, G: give exactly one"),
        (2, {"B": 1.0, "G": 1.0}, "B, G: give exactly one"),
        (2, {"B": 0.0}, "B=0.0: must be above 0"),
        (2, {"G": np.nan}, "G=nan: must be above 0"),
        (1, {"G": 1.0}, "p=1: needs the cap B"),
    ],
)
def test_closed_forms_refuse(p, given, message):
    with pytest.raises(ValueError, match=message):
        kernel_spectrum(np.ones(2), p, **given)


# -- Laplacian -------------------------------------------------------------------------------------------------------------


def test_laplacian_measures_differences_and_leaves_out_isolated_points():
    S = graph_problem(20, seed=1, neighbours=3)[1]
    S[4] = S[:, 4] = 0
    L = normalized_laplacian(S)
    V = np.random.default_rng(0).normal(size=(20, 3))
    assert np.trace(V.T @ (L @ V)) == pytest.approx(laplacian_energy(S, V), rel=1e-12)
    assert not L.toarray()[4].any()
    assert not L.toarray()[:, 4].any()
    values = np.linalg.eigvalsh(L.toarray())
    assert values.min() > -1e-12
    assert values.max() < 2 + 1e-12
    np.testing.assert_allclose(L @ np.sqrt(S.sum(axis=1)), 0, atol=1e-12)


def test_laplacian_refuses():
    with pytest.raises(ValueError, match="S: holds the entry -1"):
        normalized_laplacian(np.array([[0, -1], [-1, 0.0]]))
    with pytest.raises(ValueError, match="must be symmetric"):
        normalized_laplacian(np.array([[0, 1], [0, 0.0]]))


# -- operators -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("kind", ["none", "dense", "sparse"])
def test_operator_is_its_formula(kind, centre):
    rng = np.random.default_rng(2)
    A, n = graph_problem(9, seed=2, neighbours=2)[0], 9
    F, w = rng.normal(size=(n, 3)) * (rng.random((n, 3)) < 0.6), np.array([1.0, -0.5, 2.0])
    given = {"none": (None, None), "dense": (F, w), "sparse": (sp.csr_array(F), w)}[kind]
    made = SymmetricOperator(sp.csr_array(A), *given, centre)
    H = np.eye(n) - (1 / n if centre else 0)
    wanted = A if kind == "none" else A + H @ F @ np.diag(w) @ F.T @ H
    np.testing.assert_allclose(made.dense(), wanted, atol=1e-12)
    V = rng.normal(size=(n, 4))
    np.testing.assert_allclose(made.product(V), wanted @ V, atol=1e-12)
    np.testing.assert_allclose(made.product(V[:, 0]), wanted @ V[:, 0], atol=1e-12)
    np.testing.assert_allclose(made.restricted(V), V.T @ wanted @ V, atol=1e-12)
    assert made.shape == (n, n)
    assert (made.row_sums() >= np.abs(wanted).sum(axis=1) - 1e-12).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((np.ones((2, 3)),), "sparse: shape .* must be square"),
        ((np.array([[0, np.nan], [np.nan, 0]]),), "sparse: holds an entry that is not finite"),
        ((np.array([[0, 1.0], [2.0, 0]]),), "sparse: must be symmetric"),
        ((np.eye(2), np.ones((3, 1))), r"factor: shape \(3, 1\); must be \(2, k\)"),
        ((np.eye(2), np.full((2, 1), np.inf)), "factor: holds an entry that is not finite"),
        ((np.eye(2), np.ones((2, 1)), np.ones(2)), r"weights: shape \(2,\); must be finite and of shape \(1,\)"),
        ((np.eye(2), None, np.ones(2)), "weights: given without factor"),
    ],
)
def test_operator_refuses(given, message):
    with pytest.raises(ValueError, match=message):
        SymmetricOperator(sp.csr_array(given[0]), *given[1:])


# -- positive parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "dense"])
@pytest.mark.parametrize(("n", "cost"), [(30, 1.0), (230, 0.4)])
def test_small_parts_are_exact(n, cost, method):
    A = graph_problem(n, cost=cost)[0]
    part = positive_part(operator(A), method=method)
    assert_same_part(part, A, 1e-12, 1e-10)
    assert part.method == "dense"
    assert part.block is None


@pytest.mark.parametrize(("pairs", "cost"), [(0.5, 0.7), (0.3, 1.0), (0.1, 0.9), (0.5, 0.1)])
@pytest.mark.parametrize("method", ["chebyshev", "lanczos"])
def test_large_paths_agree_with_the_dense_one(method, pairs, cost):
    A = graph_problem(300, seed=5, pairs=pairs, cost=cost, neighbours=12)[0]
    part = positive_part(operator(A), method=method)
    assert_same_part(part, A)
    assert part.error <= 1e-8
    assert part.method in {method, "chebyshev"}


def test_looser_tolerance():
    A = graph_problem(320, seed=5, pairs=0.4, neighbours=10)[0]
    exact, loose = (positive_part(operator(A), method="chebyshev", tol=tol) for tol in (1e-8, 1e-4))
    assert loose.values @ loose.values == pytest.approx(exact.values @ exact.values, rel=1e-4)
    assert_same_part(loose, A, 1e-4, 2e-2)


def test_auto_takes_the_large_path_only_for_large_parts_of_moderate_rank():
    A = graph_problem(820, seed=5, pairs=0.2, neighbours=16)[0]
    part = positive_part(operator(A))
    assert part.method == "chebyshev"
    assert_same_part(part, A)
    rng = np.random.default_rng(0)
    i, j = rng.integers(820, size=(2, 5000))
    full = np.zeros((820, 820))
    full[i, j] = full[j, i] = 1.0
    assert positive_part(operator(full)).method == "dense"


@pytest.mark.parametrize("method", ["auto", "dense", "chebyshev", "lanczos"])
def test_negative_definite_has_no_positive_part(method):
    A = graph_problem(120, cost=0.0)[0] - 0.1 * np.eye(120)
    part = positive_part(operator(A), method=method)
    assert part.values.shape == (0,)
    assert part.vectors.shape == (120, 0)


@pytest.mark.parametrize("method", ["auto", "chebyshev"])
def test_empty_matrix(method):
    part = positive_part(operator(np.zeros((7, 7))), method=method)
    assert part.vectors.shape == (7, 0)
    assert part.error == 0.0


def test_parts_are_solved_apart_and_put_back():
    one, two = graph_problem(140, seed=1, pairs=0.4, neighbours=8)[0], graph_problem(90, seed=2, pairs=0.4, neighbours=8)[0]
    A = block_diag(one, np.zeros((3, 3)), two, [[0.0, 2.0], [2.0, 0.0]], [[1.5]])
    order = np.random.default_rng(0).permutation(len(A))
    shuffled = A[np.ix_(order, order)]
    for method in ("auto", "chebyshev"):
        part = positive_part(operator(shuffled), method=method)
        assert_same_part(part, shuffled)
        zero = np.flatnonzero(~shuffled.any(axis=1))
        assert not part.vectors[zero].any()
    assert {len(p.rows) for p in connected_parts(operator(shuffled))} >= {2, 1}
    assert sum(len(p.rows) for p in connected_parts(operator(shuffled))) == len(A) - len(zero)


def test_parts_are_submatrices():
    A = graph_problem(210, seed=4, pairs=0.1, neighbours=3)[0]
    parts = connected_parts(operator(A))
    assert len(parts) > 3
    for part in parts:
        np.testing.assert_array_equal(part.operator.dense(), A[np.ix_(part.rows, part.rows)])
        rest = np.setdiff1d(np.arange(210), part.rows)
        assert not A[np.ix_(part.rows, rest)].any()


def test_explicit_zeros_link_nothing():
    A = operator(np.diag([1.0, 2.0]))
    linked = sp.csr_array((np.array([1.0, 0.0, 0.0, 2.0]), np.array([0, 1, 0, 1]), np.array([0, 2, 4])), shape=(2, 2))
    [part] = connected_parts(SymmetricOperator(linked))
    assert part.operator.sparse.nnz == 2
    np.testing.assert_array_equal(positive_part(SymmetricOperator(linked)).values, positive_part(A).values)


def test_isolated_points_have_zero_rows():
    S = graph_problem(30, seed=1, neighbours=3)[1]
    S[7] = S[:, 7] = 0
    T = np.zeros((30, 30))
    T[0, 1] = T[1, 0] = 1
    part = positive_part(SymmetricOperator(sp.csr_array(T - normalized_laplacian(S))))
    assert not part.vectors[7].any()
    assert len(part.values) >= 1


@pytest.mark.parametrize("centre", [False, True])
def test_low_rank_terms_in_the_large_path(centre):
    rng = np.random.default_rng(3)
    A = graph_problem(260, seed=6, pairs=0.2, neighbours=10)[0]
    F, w = rng.normal(size=(260, 3)) / 15, np.array([1.0, 2.0, -1.0])
    made = SymmetricOperator(sp.csr_array(A), F, w, centre)
    assert_same_part(positive_part(made, method="chebyshev"), made.dense())
    only = SymmetricOperator(sp.csr_array((260, 260)), F, w, centre)
    assert_same_part(positive_part(only, method="chebyshev"), only.dense())


def test_multiple_eigenvalues_are_all_found():
    piece = np.array([[0.0, 1.0], [1.0, 0.0]])
    chain = np.kron(np.eye(100), piece) + 1e-3 * (np.eye(200, k=1) + np.eye(200, k=-1)) - 0.5 * np.eye(200)
    assert_same_part(positive_part(operator(chain), method="chebyshev"), chain)


def test_a_start_saves_work_and_does_not_change_the_answer():
    A = graph_problem(300, seed=8, pairs=0.3, neighbours=12)[0]
    first = positive_part(operator(A), method="chebyshev")
    moved = graph_problem(300, seed=8, pairs=0.3, neighbours=12, cost=0.95)[0]
    warm = positive_part(operator(moved), method="chebyshev", start=first.block)
    assert_same_part(warm, moved)
    other = positive_part(operator(moved), method="chebyshev", start=np.zeros((300, 3), np.float32))
    assert_same_part(other, moved)


def test_max_rank_keeps_the_largest():
    A = graph_problem(300, seed=5, pairs=0.5, neighbours=12)[0]
    values = positive_pairs(A)[0]
    for method in ("dense", "chebyshev", "lanczos"):
        part = positive_part(operator(A), method=method, max_rank=12)
        assert part.vectors.shape == (300, 12)
        assert part.values @ part.values == pytest.approx(values[:12] @ values[:12], rel=1e-7)


def test_a_basis_restricts_the_kernel():
    A = graph_problem(40, seed=2)[0]
    basis = np.linalg.qr(np.random.default_rng(1).normal(size=(40, 6)))[0]
    part = positive_part(operator(A), basis=basis)
    inside = basis @ (basis.T @ A @ basis) @ basis.T
    assert_same_part(part, inside, 1e-12, 1e-10)


@pytest.mark.parametrize("method", ["dense", "chebyshev"])
def test_order_of_rows_does_not_matter(method):
    A = graph_problem(300, seed=9, pairs=0.3, neighbours=9)[0]
    order = np.random.default_rng(4).permutation(300)
    one, two = positive_part(operator(A), method=method), positive_part(operator(A[np.ix_(order, order)]), method=method)
    assert two.values @ two.values == pytest.approx(one.values @ one.values, rel=2e-8)
    np.testing.assert_allclose(rebuilt(two), rebuilt(one)[np.ix_(order, order)], atol=1e-3)


def test_scale_of_the_matrix_scales_the_values():
    A = graph_problem(300, seed=9, pairs=0.3, neighbours=9)[0]
    one, two = positive_part(operator(A), method="chebyshev"), positive_part(operator(1024 * A), method="chebyshev")
    np.testing.assert_allclose(two.values, 1024 * one.values, rtol=1e-6, atol=1e-2)


def test_bits_do_not_depend_on_threads(monkeypatch):
    # So that every step has tiles to share out.
    monkeypatch.setattr(column_block, "TILE_COLUMNS", 32)
    monkeypatch.setattr(column_block, "TILE_ROWS", 100)
    A = graph_problem(330, seed=9, pairs=0.3, neighbours=9)[0]
    found = [positive_part(operator(A), method="chebyshev", threads=threads) for threads in (1, 3, 1)]
    for part in found[1:]:
        np.testing.assert_array_equal(part.values, found[0].values)
        np.testing.assert_array_equal(part.vectors, found[0].vectors)
        np.testing.assert_array_equal(part.block, found[0].block)
    other = positive_part(operator(A), method="chebyshev", seed=1)
    assert other.values @ other.values == pytest.approx(found[0].values @ found[0].values, rel=2e-8)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "qr"}, "method='qr': must be one of auto"),
        ({"tol": 0.0}, "tol=0.0: must be between 0 and 1"),
        ({"max_rank": 0}, "max_rank=0: must be at least 1"),
        ({"start": np.zeros((3, 2))}, r"start: shape \(3, 2\); must be \(5, b\)"),
        ({"basis": np.zeros((3, 2))}, r"basis: shape \(3, 2\); must be \(5, r\)"),
    ],
)
def test_positive_part_refuses(given, message):
    with pytest.raises(ValueError, match=message):
        positive_part(operator(np.eye(5)), **given)


# -- what the large path is made of ------------------------------------------------------------------------------------------


def test_spectrum_counts_eigenvalues():
    A = graph_problem(400, seed=1, pairs=0.4, neighbours=10)[0]
    values = np.linalg.eigvalsh(A)
    found = estimate_spectrum(operator(A), 0)
    assert found.lo <= values[0] + 1e-9
    assert found.top >= values[-1] - 1e-9
    assert found.top - found.lo <= 1.1 * (values[-1] - values[0])
    for level in (-1.0, -0.3, 0.0, 0.3):
        assert found.count(level) == pytest.approx(np.count_nonzero(values > level), abs=15)
    assert found.count(found.level(100)) == pytest.approx(100, abs=1)


def test_filter_is_the_chebyshev_polynomial():
    A = graph_problem(90, seed=2, pairs=0.4, neighbours=5)[0]
    values, vectors = np.linalg.eigh(A)
    lo, hi, top = values[0] - 0.1, -0.2, values[-1] + 0.1
    V = np.random.default_rng(0).normal(size=(90, 70))
    block = V.copy()
    filter_block(Panels.of(operator(A), np.float64), block, 7, (lo, hi), top, 1)
    units = lambda t: np.polynomial.chebyshev.chebval(2 * (t - lo) / (hi - lo) - 1, [0] * 7 + [1])  # noqa: E731
    np.testing.assert_allclose(block, (vectors * (units(values) / units(top))) @ (vectors.T @ V), atol=1e-11)


@pytest.mark.parametrize("tol", [1e-4, 1e-8])
def test_the_planned_degree_is_about_the_least_that_leaves_the_tolerance(tol):
    A = graph_problem(400, seed=1, pairs=0.4, neighbours=10)[0]
    values = np.linalg.eigvalsh(A)
    plan = plan_block(estimate_spectrum(operator(A), 0), np.count_nonzero(values > 0), 400, np.count_nonzero(A), tol)
    (lo, edge), outside = plan.damped, values[values > max(0.0, plan.damped[1])]

    def left(degree):
        grown = np.polynomial.chebyshev.chebval(2 * (outside - lo) / (edge - lo) - 1, [0] * degree + [1])
        return 1e6 * np.sum((outside / grown) ** 2) / np.sum(outside**2)

    assert left(plan.degree + 4) <= tol < left(plan.degree - 4)


@pytest.mark.parametrize("step", [filter_step, filter_step.py_func])
def test_fused_step(step):
    A = sp.csr_array(graph_problem(12, seed=2, neighbours=3)[0])
    rng = np.random.default_rng(0)
    x, out = rng.normal(size=(2, 12, 64))
    wanted = 1.5 * (A @ x - 0.3 * x) - 0.7 * out
    step(A.indptr, A.indices, A.data, x, out, 1.5, 0.3, -0.7)
    np.testing.assert_allclose(out, wanted, atol=1e-12)


def test_tall_blocks_in_tiles():
    V = np.random.default_rng(0).normal(size=(2100, 530))
    np.testing.assert_allclose(gram_matrix(V, 2), V.T @ V, atol=1e-9)
    L, scale = np.tril(np.random.default_rng(1).normal(size=(530, 530))) / 40 + np.eye(530), np.linspace(1, 2, 530)
    W = V.copy()
    solve_columns(W, scale, L, 2)
    np.testing.assert_allclose(W @ L.T, V * scale, atol=1e-9)
    block = ArrayBlock(SymmetricOperator(sp.eye_array(2100, format="csr")), 2)
    block.array = V
    orthonormalise(block)
    np.testing.assert_allclose(V.T @ V, np.eye(530), atol=1e-3)


def test_dependent_columns_do_no_harm():
    block = ArrayBlock(operator(np.eye(200)), 1)
    block.array = np.random.default_rng(0).normal(size=(200, 10)).astype(np.float32)
    block.array[:, 5] = block.array[:, 4]
    block.array[:, 6] = 0
    orthonormalise(block)
    assert np.isfinite(block.array).all()
