"""SMO: general-purpose optimisers, LIBSVM, certificates, invariances, warm starts, rows on demand, bad input."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.svm import SVC, SVR

from gramplane.kernels.svm import smo_shrink
from gramplane.kernels.svm.decomposition import solve_decomposition
from gramplane.kernels.svm.dual import DenseGram, DualProblem, Scratch, check_diagonal, squared_hinge_problem, svc_problem, svr_problem
from gramplane.kernels.svm.smo import solve_smo
from tests.support.oracles import svm_dual as oracle

KINDS = ("svc", "svc-weighted", "svr", "squared_hinge", "boxes", "sum", "tubes")


def points(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    z = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3]
    return X, z + 0.3 * rng.normal(size=n)


def gaussian(X, gamma=0.2):
    K = np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    return (K + K.T) / 2


def labels(z):
    return np.where(z > 0, 1.0, -1.0)


def case(kind, n, seed=0, bias=True):
    """A Gram matrix and a problem of every shape there is."""
    X, z = points(n, seed)
    rng = np.random.default_rng(seed + 100)
    K, y = gaussian(X), labels(z)
    y[:2] = 1.0, -1.0
    if kind == "svc":
        return K, svc_problem(y, 1.5, bias=bias)
    if kind == "svc-weighted":
        return K, svc_problem(y, rng.uniform(0, 5, n) * ((rng.random(n) > 0.2) | (np.arange(n) < 2)), rng.uniform(0.2, 2, n), bias=bias)
    if kind == "svr":
        return K, svr_problem(z, 0.2, 2.0, bias=bias)
    if kind == "squared_hinge":
        return K, squared_hinge_problem(y, 2.0, bias=bias)
    if kind == "boxes":
        lo = rng.uniform(-2, 0.5, n)
        return K, DualProblem(z, lo, lo + rng.uniform(0.1, 3, n), 0.3, float((lo + 0.05).sum()) if bias else None)
    if kind == "tubes":
        return K, tubes(y, rng.random(n) < 0.6)
    return K, DualProblem(np.zeros(n), np.zeros(n), np.full(n, max(0.2, 2 / n)), 0.0, 1.0 if bias else None)


def tubes(y, inside, C=1.5, cap=0.4, width=0.1):
    """Hinges, and tubes around zero for some rows: kinks of their own."""
    cost = np.where(inside, cap, C)
    lo, hi = np.where(inside | (y < 0), -cost, 0.0), np.where(inside | (y > 0), cost, 0.0)
    return DualProblem(np.where(inside, 0.0, y), lo, hi, np.where(inside, width, 0.0), 0.0)


class Rows:
    """Only whole rows and products."""

    def __init__(self, K):
        self.K, self.n, self._diag = K, len(K), check_diagonal(np.diagonal(K))

    def diag(self):
        return self._diag

    def rows(self, idx):
        return self.K[idx]

    def matvec(self, v):
        return self.K @ v


class Parts:
    """Only entries between chosen variables and products, as workers would give them."""

    def __init__(self, K, room=10**9):
        self.K, self.n, self.room, self.dtype = K, len(K), room, K.dtype
        self.asked = []

    def diag(self):
        return np.diagonal(self.K).copy()

    def between(self, new, old):
        self.asked.append((len(new), len(old)))
        wanted, places = np.concatenate([new, old]), np.arange(len(new) + len(old))
        for columns in np.array_split(places, 3):
            if len(columns):
                yield places[: len(new)], columns, self.K[np.ix_(new, wanted[columns])]

    def matvec(self, v):
        return self.K @ v

    def rows(self, idx):
        raise AssertionError("rows were asked for")


def check(K, problem, s, tol):
    """Feasible, certified, and every number belonging to beta."""
    ridge = problem.ridges()
    K = K.astype(np.float64)
    assert (s.beta >= problem.lo).all() and (s.beta <= problem.hi).all()
    if problem.sum_constraint is not None:
        assert s.beta.sum() == pytest.approx(problem.sum_constraint, abs=1e-9 * (1 + np.abs(s.beta).sum()))
    else:
        assert s.bias == 0.0
    np.testing.assert_allclose(s.decision, K @ s.beta, atol=1e-9 * (1 + np.abs(s.beta).sum()))
    value = oracle.dual_value(K, problem.c, problem.l1_weight, ridge, s.beta)
    assert s.objective == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert s.gap >= 0 and s.upper == pytest.approx(s.objective + s.gap)
    assert s.converged == (s.violation < tol)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_reaches_the_optimum_of_a_general_purpose_solver(kind, bias):
    for n in (3, 9, 40):
        K, problem = case(kind, n, seed=n, bias=bias)
        s = solve_smo(DenseGram(K), problem, tol=1e-8)
        check(K, problem, s, 1e-8)
        assert s.converged
        wanted, _ = oracle.qp_optimum(K, problem.c, problem.lo, problem.hi, problem.l1_weight, problem.sum_constraint, problem.ridge)
        assert s.objective == pytest.approx(wanted, rel=1e-6, abs=1e-7)
        assert s.objective >= wanted - 1e-7 * (1 + abs(wanted))
        assert s.gap <= 1e-5 * (1 + abs(s.objective))


def test_matches_the_enumeration_of_active_sets():
    for seed in range(4):
        X, _ = points(6, seed)
        problem = svc_problem(np.resize([1.0, -1.0], 6), 0.8)
        K = gaussian(X)
        found = solve_smo(DenseGram(K), problem, tol=1e-9).objective
        assert found == pytest.approx(oracle.qp_by_enumeration(K, problem.c, problem.lo, problem.hi), rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
def test_same_dual_and_bias_as_libsvm(C, dtype):
    X, z = points(400)
    K, y = gaussian(X), labels(z)
    s = solve_smo(DenseGram(K.astype(dtype)), svc_problem(y, C), tol=1e-5)
    peer = SVC(kernel="precomputed", C=C, tol=1e-5).fit(K, y)
    beta = np.zeros(400)
    beta[peer.support_] = peer.dual_coef_[0]
    assert s.objective == pytest.approx(np.abs(beta).sum() - 0.5 * beta @ K @ beta, rel=3e-7)
    assert s.bias == pytest.approx(peer.intercept_[0], abs=1e-3)
    assert s.upper == pytest.approx(0.5 * s.beta @ K @ s.beta + oracle.hinge(y, K @ s.beta + s.bias, C), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 5.0])
def test_same_dual_as_libsvm_regression(epsilon):
    X, z = points(300)
    K = gaussian(X)
    s = solve_smo(DenseGram(K), svr_problem(z, epsilon, 3.0), tol=1e-6)
    peer = SVR(kernel="precomputed", C=3.0, epsilon=epsilon, tol=1e-6).fit(K, z)
    beta = np.zeros(300)
    beta[peer.support_] = peer.dual_coef_[0]
    assert s.objective == pytest.approx(z @ beta - epsilon * np.abs(beta).sum() - 0.5 * beta @ K @ beta, rel=1e-7, abs=1e-9)
    assert s.upper == pytest.approx(0.5 * s.beta @ K @ s.beta + oracle.tube(z, K @ s.beta + s.bias, 3.0, epsilon), rel=1e-9)


def test_squared_hinge_upper_is_its_primal():
    X, z = points(60)
    K, y = gaussian(X), labels(z)
    s = solve_smo(DenseGram(K), squared_hinge_problem(y, 4.0), tol=1e-3)
    assert s.upper == pytest.approx(0.5 * s.beta @ K @ s.beta + oracle.hinge(y, K @ s.beta + s.bias, 4.0, power=2), rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loose_solve_is_bracketed_by_its_bounds(kind):
    K, problem = case(kind, 80, seed=5)
    exact = solve_smo(DenseGram(K), problem, tol=1e-9).objective
    for tol, cap in ((1.0, None), (1e-1, None), (1e-3, 7)):
        s = solve_smo(DenseGram(K), problem, tol=tol, max_iter=cap)
        check(K, problem, s, tol)
        assert s.objective <= exact + 1e-9 * (1 + abs(exact))
        assert exact <= s.upper + 1e-9 * (1 + abs(exact))


def test_few_steps_end_unconverged_and_more_are_never_worse():
    K, problem = case("svc", 120)
    values = [solve_smo(DenseGram(K), problem, max_iter=k) for k in (0, 5, 20, 80)]
    assert [s.iterations for s in values] == [0, 5, 20, 80]
    assert not any(s.converged for s in values)
    assert all(a.objective <= b.objective for a, b in pairwise(values))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shrinking_changes_nothing_but_time(kind, dtype, monkeypatch):
    K, problem = case(kind, 300, seed=2)
    gram = DenseGram(K.astype(dtype))
    monkeypatch.setattr(smo_shrink, "MIN_STEPS", 20)
    shrunk = solve_smo(gram, problem, tol=1e-7)
    monkeypatch.setattr(smo_shrink, "MAX_COPIED_SHARE", 0.0)
    whole = solve_smo(gram, problem, tol=1e-7)
    check(gram.array, problem, shrunk, 1e-7)
    assert shrunk.converged and whole.converged
    assert shrunk.objective == pytest.approx(whole.objective, rel=1e-9, abs=1e-9)


def test_shrinking_takes_place(monkeypatch):
    K, problem = case("svc", 500, seed=3)
    sizes = []
    real = smo_shrink.ShrinkingSteps._part
    monkeypatch.setattr(
        smo_shrink.ShrinkingSteps, "_part", lambda self, active, *rest: sizes.append(len(active)) or real(self, active, *rest)
    )
    s = solve_smo(DenseGram(K), problem)
    assert sizes and max(sizes) < 300
    check(K, problem, s, 1e-3)


def test_equal_bits_every_time_and_with_a_used_scratch():
    K, problem = case("svc", 300)
    scratch = Scratch()
    first = solve_smo(DenseGram(K, scratch), problem)
    other = solve_smo(DenseGram(gaussian(points(300, 9)[0]), scratch), problem)
    again = solve_smo(DenseGram(K, scratch), problem)
    assert first.beta.tobytes() == again.beta.tobytes()
    assert (first.objective, first.bias, first.gap) == (again.objective, again.bias, again.gap)
    assert other.objective != first.objective


@pytest.mark.parametrize("n", [2, 31, 32, 33, 127, 128, 129, 160, 257])
@pytest.mark.parametrize("bias", [True, False])
def test_every_length_of_the_vectorised_loops(n, bias):
    K, problem = case("svr", n, seed=n, bias=bias)
    s = solve_smo(DenseGram(K), problem, tol=1e-9)
    check(K, problem, s, 1e-9)
    assert s.converged
    assert s.gap <= 1e-6 * (1 + abs(s.objective))


def test_permuting_rows_permutes_the_solution():
    K, problem = case("svr", 70)
    order = np.random.default_rng(0).permutation(70)
    moved = DualProblem(problem.c[order], problem.lo[order], problem.hi[order], problem.l1_weight)
    a = solve_smo(DenseGram(K), problem, tol=1e-8)
    b = solve_smo(DenseGram(K[np.ix_(order, order)]), moved, tol=1e-8)
    np.testing.assert_allclose(b.beta, a.beta[order], atol=1e-5)


@pytest.mark.parametrize("scale", [1e-4, 1e3])
def test_scaling_kernel_and_cost_scales_the_dual(scale):
    """(K, C) -> (a K, C / a) divides the dual by a; tolerances in gradient units mean the same."""
    K, _ = case("svc", 80)
    y = labels(points(80)[1])
    a = solve_smo(DenseGram(K), svc_problem(y, 1.0), tol=1e-6)
    b = solve_smo(DenseGram(scale * K), svc_problem(y, 1.0 / scale), tol=1e-6)
    assert b.objective * scale == pytest.approx(a.objective, rel=1e-9)
    assert b.iterations == pytest.approx(a.iterations, abs=0.2 * a.iterations)


@pytest.mark.parametrize("rows", [False, True])
def test_one_kink_for_all_and_one_each_are_the_same_bits(rows):
    K, problem = case("svr", 90)
    each = replace(problem, l1_weight=np.full(90, problem.l1_weight))
    a, b = (solve_smo(Rows(K) if rows else DenseGram(K), p, tol=1e-6) for p in (problem, each))
    assert a.beta.tobytes() == b.beta.tobytes()
    assert (a.bias, a.objective, a.iterations) == (b.bias, b.objective, b.iterations)
    assert problem.linear(a.beta) == each.linear(b.beta)


def test_pairs_that_reach_both_their_ends_in_one_step_keep_the_sum():
    """Boxes small and equal: nearly every step is cut at both ends, or at a kink and an end."""
    for seed in range(6):
        K, _ = case("svc", 120, seed=seed)
        rng = np.random.default_rng(seed)
        y = np.where(rng.random(120) < 0.5, 1.0, -1.0)
        before = tubes(y, rng.random(120) < 0.3, C=0.05, cap=0.05)
        flipped = tubes(np.where(rng.random(120) < 0.2, -y, y), rng.random(120) < 0.3, C=0.05, cap=0.05)
        first = solve_smo(DenseGram(K), before, tol=1e-7)
        for s in (first, solve_smo(DenseGram(K), flipped, warm=first, tol=1e-7)):
            assert np.mean(np.abs(s.beta) == 0.05) > 0.5
            assert abs(s.beta.sum()) <= 1e-9 * 0.05 * 120
            np.testing.assert_allclose(s.decision, K @ s.beta, atol=1e-12)
        check(K, flipped, s, 1e-7)


def test_row_left_out_by_cost_zero():
    X, z = points(60)
    K, y = gaussian(X), labels(z)
    cost = np.ones(60)
    cost[::7] = 0.0
    keep = cost > 0
    a = solve_smo(DenseGram(K), svc_problem(y, cost), tol=1e-8)
    b = solve_smo(DenseGram(K[np.ix_(keep, keep)]), svc_problem(y[keep], 1.0), tol=1e-8)
    assert a.objective == pytest.approx(b.objective, rel=1e-9)
    assert not a.beta[~keep].any()


# -- warm starts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_warm_start_reaches_the_same_optimum_sooner(kind):
    K, problem = case(kind, 300, seed=1)
    other = 0.97 * K + 0.03 * gaussian(points(300, 1)[0], 1.0)
    before = solve_smo(DenseGram(K), problem, tol=1e-5)
    cold = solve_smo(DenseGram(other), problem, tol=1e-5)
    warm = solve_smo(DenseGram(other), problem, tol=1e-5, warm=before)
    check(other, problem, warm, 1e-5)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-6, abs=1e-6)
    assert warm.iterations < cold.iterations


def test_solution_given_back_takes_no_step():
    K, problem = case("svc", 100)
    first = solve_smo(DenseGram(K), problem)
    assert solve_smo(DenseGram(K), problem, warm=first).iterations == 0


def test_given_gradient_is_used_when_it_belongs_to_the_start():
    K, problem = case("squared_hinge", 100)
    start = solve_smo(DenseGram(K), problem, tol=1e-1).beta
    gradient = K @ start - problem.c
    a = solve_smo(DenseGram(K), problem, warm=start)
    b = solve_smo(DenseGram(K), problem, warm=start, gradient=gradient)
    assert b.objective == pytest.approx(a.objective, rel=1e-9)
    check(K, problem, b, 1e-3)
    cut = svc_problem(labels(points(100)[1]), 0.01)
    check(K, cut, solve_smo(DenseGram(K), cut, warm=start, gradient=gradient), 1e-3)


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_warm_start_from_another_cost_is_made_feasible(factor):
    K, y = case("svc", 150)[0], labels(points(150)[1])
    before = solve_smo(DenseGram(K), svc_problem(y, 1.0))
    problem = svc_problem(y, factor)
    s = solve_smo(DenseGram(K), problem, warm=before, tol=1e-6)
    check(K, problem, s, 1e-6)
    assert s.objective == pytest.approx(solve_smo(DenseGram(K), problem, tol=1e-6).objective, rel=1e-7)


# -- matrices that are not in memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_parts_reach_what_the_whole_matrix_does(kind, bias):
    K, problem = case(kind, 200, seed=4, bias=bias)
    whole = solve_smo(DenseGram(K), problem, tol=1e-6)
    for gram in (Rows(K), Parts(K)):
        s = solve_decomposition(gram, problem, tol=1e-6, working=24)
        check(K, problem, s, 1e-6)
        assert s.converged
        assert s.objective == pytest.approx(whole.objective, rel=1e-7, abs=1e-8)


def test_parts_are_fetched_once_and_within_the_room():
    K, problem = case("svc", 300)
    whole = solve_smo(DenseGram(K), problem, tol=1e-6)
    gram = Parts(K, room=int(1.6 * 60**2))
    s = solve_decomposition(gram, problem, tol=1e-6)
    assert s.objective == pytest.approx(whole.objective, rel=1e-7)
    assert max(new + old for new, old in gram.asked) == s.details["working"] <= 60
    # After the first set only newcomers are asked for, at most half of the set at a time.
    assert gram.asked[0] == (s.details["working"], 0) and all(0 < new <= 30 for new, _ in gram.asked[1:])
    assert s.details["rows_fetched"] == sum(new for new, _ in gram.asked)
    again = Parts(K)
    warm = solve_decomposition(again, problem, tol=1e-4, warm=s)
    assert warm.iterations == 0 and again.asked == []


def test_first_working_set_of_sorted_data_holds_both_ends():
    X, z = points(300)
    order = np.argsort(z)
    gram = Parts(gaussian(X[order]), room=int(1.6 * 40**2))
    s = solve_decomposition(gram, svc_problem(labels(z[order]), 1.0), tol=1e-4)
    assert s.converged and s.details["rounds"] < 40


def test_solve_smo_takes_any_gram_and_repeats_bits():
    K, problem = case("svc", 150)
    found = [solve_smo(Rows(K), problem) for _ in range(2)]
    assert len({s.beta.tobytes() for s in found}) == 1
    assert found[0].objective == pytest.approx(solve_smo(DenseGram(K), problem).objective, rel=1e-6)


def test_decomposition_warm_and_capped():
    K, problem = case("svr", 150)
    first = solve_decomposition(Rows(K), problem, tol=1e-4, working=16)
    assert solve_decomposition(Rows(K), problem, tol=1e-4, warm=first).iterations == 0
    capped = solve_decomposition(Rows(K), problem, tol=1e-4, working=16, max_iter=10)
    assert capped.iterations == 10
    assert not capped.converged
    check(K, problem, capped, 1e-4)


# -- bad input ---------------------------------------------------------------------------------------------------------------


def test_indefinite_matrix_ends_and_is_reported():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(40, 40))
    K = A + A.T + 2 * np.eye(40)
    np.fill_diagonal(K, np.abs(np.diagonal(K)))
    problem = svc_problem(np.resize([1.0, -1.0], 40), 1.0)
    s = solve_smo(DenseGram(K), problem, max_iter=5000)
    assert s.indefinite
    assert s.gap >= 0 and np.isfinite(s.objective)
    assert not solve_smo(DenseGram(A @ A.T), problem).indefinite


def test_duplicate_rows_in_float32_are_not_called_indefinite():
    X, z = points(100)
    X = np.vstack([X, X])
    K = gaussian(X).astype(np.float32)
    s = solve_smo(DenseGram(K), svc_problem(np.concatenate([labels(z), labels(z)]), 100.0), tol=1e-3)
    assert s.converged
    assert not s.indefinite


def test_zero_matrix():
    s = solve_smo(DenseGram(np.zeros((4, 4))), svc_problem([1, -1, 1, 1], 2.0), tol=1e-9)
    assert s.converged
    assert s.objective == pytest.approx(4.0)
    assert s.bias == pytest.approx(1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("make", [DenseGram, Rows])
def test_matrix_that_is_not_finite_is_refused(value, make):
    K, problem = case("svc", 30)
    K[3, 7] = K[7, 3] = value
    with pytest.raises(ValueError, match="Gram matrix"):
        solve_smo(make(K), problem)
    K[0, 0] = value
    with pytest.raises(ValueError, match="diagonal entry 0"):
        make(K)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: svc_problem([1, -1], 0.0), "C=0.0"),
        (lambda: svc_problem([1, -1], -1.0), "C=-1.0"),
        (lambda: svc_problem([1, -1], np.nan), "C=nan"),
        (lambda: svc_problem([1, -1], [1.0, 2.0, 3.0]), "C: shape"),
        (lambda: svc_problem([1, 1], 1.0), "one class"),
        (lambda: svc_problem([1, -1, -1], [0.0, 1.0, 1.0]), "one class"),
        (lambda: svc_problem([1, 2], 1.0), "-1 and [+]1"),
        (lambda: svc_problem([1, -1], 1.0, [1.0, np.nan]), "c: must be finite"),
        (lambda: svr_problem([1.0, 2.0], -0.1, 1.0), "epsilon=-0.1"),
        (lambda: DualProblem(np.ones(2), np.ones(2), np.zeros(2)), "lo <= hi"),
        (lambda: DualProblem(np.ones(2), np.zeros(2), np.full(2, np.inf)), "finite where ridge"),
        (lambda: DualProblem(np.ones(2), np.zeros(2), np.ones(2), 0.0, 3.0), "sum_constraint=3.0"),
        (lambda: DualProblem(np.ones(2), np.zeros(2), np.ones(2), ridge=np.array([1.0, -1.0])), "ridge: must be finite and not negative"),
        (lambda: DualProblem(np.ones(2), np.zeros(2), np.ones(2), ridge=np.array([1.0, np.inf])), "ridge: must be finite and not negative"),
        (lambda: DualProblem(np.ones(2), np.zeros(3), np.ones(2)), "lo: shape"),
        (lambda: DualProblem(np.ones(2), np.zeros(2), np.ones(2), -1.0), "l1_weight"),
        (lambda: DualProblem(np.ones(2), np.zeros(2), np.ones(2), np.array([0.1, np.nan])), "l1_weight"),
        (lambda: DualProblem(np.ones(2), np.zeros(2), np.ones(2), np.ones(3)), "l1_weight: shape"),
        (lambda: DenseGram(np.ones((2, 3))), "square"),
        (lambda: DenseGram(-np.eye(2)), "diagonal entry 0"),
        (lambda: solve_smo(DenseGram(np.eye(3)), svc_problem([1, -1], 1.0)), "has 3 rows"),
        (lambda: solve_smo(DenseGram(np.eye(2)), svc_problem([1, -1], 1.0), tol=-1.0), "tol"),
        (lambda: solve_smo(DenseGram(np.eye(2)), svc_problem([1, -1], 1.0), warm=np.ones(3)), "warm"),
        (lambda: solve_smo(DenseGram(np.eye(2)), svc_problem([1, -1], 1.0), gradient=np.ones(3)), "gradient"),
        (lambda: solve_decomposition(DenseGram(np.eye(2)), svc_problem([1, -1], 1.0), working=2), "working=2"),
    ],
)
def test_bad_input_is_named(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_one_class_without_a_bias_is_a_problem():
    s = solve_smo(DenseGram(np.eye(3)), svc_problem([1, 1, 1], 0.5, bias=False), tol=1e-9)
    np.testing.assert_allclose(s.beta, 0.5)
