"""Kernel weights and their path over p against scalar root finding and generic minimisers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.kernels.alignment import path_weights as kta_weights
from gramplane.kernels.alignment.path import (
    EUCLIDEAN,
    KL,
    AlignmentProblem,
    Divergence,
    KernelPath,
    juncture_points,
    kernel_path,
    p_for,
    p_grid,
    threshold,
    weights_at,
)
from gramplane.kernels.alignment.path_weights import (
    bracket_weights,
    closed_form,
    correct_weights,
    stationarity,
    weight_derivatives,
)
from tests.support.oracles import kta

RNG = np.random.default_rng(3)
A = np.sort(RNG.gamma(1.0, 2.0, 40))
CASES = [(EUCLIDEAN, 0.0), (EUCLIDEAN, 0.2), (KL, 0.1), (KL, 0.2)]
CUBIC = Divergence("cubic", lambda x: 3 * x**2, lambda x: 6 * x, lambda x: np.full_like(x, 6.0))
"""F = x^3: a divergence the library does not know."""
SECRET_SQUARE = Divergence("secret square", EUCLIDEAN.first, EUCLIDEAN.second, EUCLIDEAN.third)
SECRET_KL = Divergence("secret KL", KL.first, KL.second, KL.third)
"""The known ones as strangers: no closed forms."""


def problem(divergence: Divergence = EUCLIDEAN, centre: float = 0.0, lam1: float = 0.7, lam2: float = 2.0) -> AlignmentProblem:
    return AlignmentProblem(lam1, lam2, divergence, centre)


def dense(path: KernelPath) -> np.ndarray:
    return path.weights.toarray()


cases = pytest.mark.parametrize(("divergence", "centre"), CASES)


# --- one p ------------------------------------------------------------------------------------------------------------------------


@cases
@pytest.mark.parametrize("p", [1.0, 1.001, 1.3, 1.5, 2.0, 3.0])
def test_weights_are_the_roots_and_minimisers(divergence: Divergence, centre: float, p: float) -> None:
    this = problem(divergence, centre)
    eta = weights_at(this, A, p)
    roots = [kta.weight(a, p, 0.7, 2.0, divergence.name, centre) for a in A]
    np.testing.assert_allclose(eta, roots, rtol=1e-11, atol=1e-12)
    for i in (3, 20, 39):
        found = kta.weight_by_minimiser(A[i], p, 0.7, 2.0, divergence.name, centre)
        assert eta[i] == pytest.approx(found, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("known", "stranger", "centre"), [(EUCLIDEAN, SECRET_SQUARE, 0.1), (KL, SECRET_KL, 0.1)])
@pytest.mark.parametrize("p", [1.0, 1.2, 1.5, 2.0, 2.5])
def test_closed_forms_equal_bracketing(known: Divergence, stranger: Divergence, centre: float, p: float) -> None:
    np.testing.assert_allclose(
        weights_at(problem(known, centre), A, p), weights_at(problem(stranger, centre), A, p), rtol=1e-11, atol=1e-300
    )


def test_closed_forms_stand_where_they_are_promised() -> None:
    for p in (1.0, 1.5, 2.0):
        assert closed_form(problem(), A, p) is not None
        assert closed_form(problem(KL, 0.1), A, p) is not None
    assert closed_form(problem(), A, 1.7) is None
    assert closed_form(problem(KL, 0.1), A, 1.7) is not None
    assert closed_form(problem(SECRET_SQUARE), A, 2.0) is None


@pytest.mark.parametrize("lam1", [1e-8, 1e-3, 1e3])
@pytest.mark.parametrize("p", [1.0 + 1e-9, 1.0001, 1.01, 1.9])
def test_the_lambert_form_neither_overflows_nor_loses_digits(lam1: float, p: float) -> None:
    this = problem(KL, 0.1, lam1=lam1, lam2=1.0)
    a = np.array([0.0, 1e-6, 0.9, 0.999, 1.0, 1.001, 1.1, 2.0])
    logs = np.array([kta.log_weight_kl(x, p, lam1, 1.0, 0.1) for x in a])
    fits = logs < 690
    inside = fits & (logs > -690)
    # The logarithm is a difference of numbers as large as a / lam1.
    np.testing.assert_allclose(np.log(weights_at(this, a[inside], p)), logs[inside], rtol=0, atol=1e-9 + 1e-13 / lam1)
    assert np.all(weights_at(this, a[logs < -760], p) == 0)
    if not fits.all():
        with pytest.raises(ValueError, match="too large for float64"):
            weights_at(this, a, p)


def test_special_cases() -> None:
    for p in (1.2, 1.5, 2.0):
        np.testing.assert_allclose(weights_at(problem(lam1=0.0), A, p), (A / (2 * p)) ** (1 / (p - 1)), rtol=1e-14)
    for p in (1.0, 1.3, 2.0):
        np.testing.assert_allclose(weights_at(problem(centre=0.3, lam2=0.0), A, p), 0.3 + A / 1.4, rtol=1e-14)
        np.testing.assert_allclose(weights_at(problem(KL, 0.3, lam2=0.0), A, p), 0.3 * np.exp(A / 0.7), rtol=1e-13)


@pytest.mark.parametrize("c", [1e-3, 64.0])
@cases
def test_a_common_factor_changes_nothing(divergence: Divergence, centre: float, c: float) -> None:
    scaled = problem(divergence, centre, 0.7 * c, 2.0 * c)
    for p in (1.0, 1.31, 2.0):
        np.testing.assert_allclose(weights_at(scaled, c * A, p), weights_at(problem(divergence, centre), A, p), rtol=1e-9, atol=1e-12)


@cases
def test_near_one_weights_tend_to_those_at_one(divergence: Divergence, centre: float) -> None:
    this = problem(divergence, centre)
    at_one = weights_at(this, A, 1.0)
    errors = [np.abs(weights_at(this, A, 1 + h) - at_one).max() for h in (1e-3, 1e-4, 1e-6)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-4 * max(1.0, at_one.max())


@pytest.mark.parametrize(("divergence", "centre"), [*CASES, (CUBIC, 0.1)])
@pytest.mark.parametrize("p", [1.1, 1.5, 1.9, 2.4])
def test_derivatives_are_finite_differences(divergence: Divergence, centre: float, p: float) -> None:
    this, h = problem(divergence, centre), 3e-4
    before, eta, after = (weights_at(this, A + 0.5, q) for q in (p - h, p, p + h))
    first, second = weight_derivatives(this, eta, p)
    np.testing.assert_allclose(first, (after - before) / (2 * h), rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(second, (after - 2 * eta + before) / h**2, rtol=2e-3, atol=2e-5)


def test_newton_and_bracket_meet_from_bad_guesses() -> None:
    for this in (problem(), problem(KL, 0.1), problem(CUBIC, 0.1)):
        loads = this.loads(A + 0.1)
        exact = bracket_weights(this, loads, 1.4)
        for guess in (1e-8, 1.0, 1e6):
            eta, steps = correct_weights(this, np.full(40, guess), loads, 1.4)
            np.testing.assert_allclose(eta, exact, rtol=1e-9)
            assert steps >= 40
    assert correct_weights(this, exact, loads, 1.4)[1] == 0


def test_a_weight_is_corrected_alike_alone_and_beside_others() -> None:
    for this in (problem(), problem(KL, 0.1), problem(CUBIC, 0.1)):
        loads, guess = this.loads(A + 0.1), np.geomspace(1e-3, 1e3, 40)
        together, steps = correct_weights(this, guess, loads, 1.4)
        alone = [correct_weights(this, guess[i : i + 1], loads[i : i + 1], 1.4) for i in range(40)]
        np.testing.assert_allclose(together, np.concatenate([eta for eta, _ in alone]), rtol=1e-14)
        assert steps == sum(taken for _, taken in alone)


def test_a_bracket_ends_where_its_roots_are_found(monkeypatch) -> None:
    taken, terms = [], kta_weights._newton_terms
    monkeypatch.setattr(kta_weights, "_newton_terms", lambda *args: taken.append(args) or terms(*args))
    for this in (problem(), problem(KL, 0.1), problem(CUBIC, 0.1)):
        for p in (1.05, 1.4, 2.4):
            bracket_weights(this, this.loads(A + 0.1), p)
    assert len(taken) <= 110


# --- the path ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("divergence", "centre"), [*CASES, (CUBIC, 0.1)])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_path_solves_every_point(divergence: Divergence, centre: float, order: int) -> None:
    this, eps = problem(divergence, centre), 1e-3
    path = kernel_path(this, A, eps=eps, order=order)
    assert path.p_grid.size == 101 and path.p_grid[-1] == 1.0
    for k, p in enumerate(path.p_grid):
        exact, eta = weights_at(this, A, float(p)), dense(path)[k]
        active = exact > eps
        assert np.array_equal(path.selected(k), np.flatnonzero(active)), p
        assert not eta[~active].any()
        np.testing.assert_allclose(eta[active], exact[active], rtol=1e-10)
        G = stationarity(this, eta[active], this.loads(A)[active], float(p))
        assert np.all(np.abs(G) <= 2e-12 * (1 + np.abs(this.loads(A)[active])))


@cases
def test_higher_orders_take_fewer_newton_steps(divergence: Divergence, centre: float) -> None:
    steps = [kernel_path(problem(divergence, centre), A, order=order).newton_steps.sum() for order in (0, 1, 2)]
    assert steps[0] > steps[1] > steps[2] > 0


@cases
@pytest.mark.parametrize("eps", [0.3, 1e-2, 1e-6])
def test_screening_gives_the_active_sets_and_junctures(divergence: Divergence, centre: float, eps: float) -> None:
    this = problem(divergence, centre, lam2=4.0)
    path = kernel_path(this, A, eps=eps)
    loads = this.loads(A)
    for k, p in enumerate(map(float, path.p_grid)):
        screened = np.flatnonzero(loads > threshold(this, p, eps))
        assert np.array_equal(path.selected(k), screened)
        assert np.array_equal(screened, np.flatnonzero(p > path.junctures))
    assert np.array_equal(path.junctures, juncture_points(this, A, eps=eps))
    inside = np.isfinite(path.junctures) & (path.junctures > 1)
    for i in np.flatnonzero(inside):
        assert threshold(this, path.junctures[i], eps) == pytest.approx(loads[i], rel=1e-12)
        assert weights_at(this, A, path.junctures[i])[i] == pytest.approx(eps, rel=1e-9)
    assert np.all(np.diff(path.n_active) <= 0)
    assert path.n_active[0] == np.isfinite(path.junctures).sum()


def test_the_junctures_test_above_met_all_three_kinds() -> None:
    path = kernel_path(problem(lam2=4.0), A, eps=0.3)
    assert np.isinf(path.junctures).any() and (path.junctures == 0).any() and ((path.junctures > 1) & (path.junctures < 2)).any()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0, 30), min_size=1, max_size=12),
    st.sampled_from(CASES),
    st.floats(0.05, 5),
    st.floats(0.05, 5),
)
def test_small_weights_fall_and_large_ones_rise(a: list[float], case: tuple[Divergence, float], lam1: float, lam2: float) -> None:
    """Theorem 7.3.2 with eps = 0 and steps of 0.1."""
    this = problem(*case, lam1=lam1, lam2=lam2)
    if case[0] is KL and max(a) / lam1 > 500:
        return
    path = kernel_path(this, np.array(a), eps=0.0, dp=0.1)
    eta = dense(path)
    slack = 1e-9 * (1 + eta)
    for k in range(1, len(eta)):
        small = eta[k - 1] < np.exp(-1)
        large = eta[k - 1] > np.exp(-1 / path.p_grid[k - 1])
        assert np.all(eta[k][small] <= (eta[k - 1] + slack[k - 1])[small])
        assert np.all(eta[k][large] >= (eta[k - 1] - slack[k - 1])[large])


@cases
def test_equal_alignments_have_equal_weights_and_order_is_kept(divergence: Divergence, centre: float) -> None:
    a = RNG.permutation(np.repeat(A[::4], 3))
    path = kernel_path(problem(divergence, centre), a)
    order = np.argsort(a, kind="stable")
    ranked = dense(path)[:, order]
    assert np.all(np.diff(ranked, axis=1) >= 0)
    assert np.array_equal(ranked[:, ::3], ranked[:, 1::3]) and np.array_equal(ranked[:, ::3], ranked[:, 2::3])
    shuffle = RNG.permutation(a.size)
    assert np.array_equal(dense(kernel_path(problem(divergence, centre), a[shuffle])), dense(path)[:, shuffle])


@pytest.mark.parametrize(("divergence", "low"), [(EUCLIDEAN, 0.0), (KL, 0.05)])
def test_a_centre_for_each_kernel(divergence: Divergence, low: float) -> None:
    centre = low + RNG.random(40) * 0.2
    this = AlignmentProblem(0.7, 2.0, divergence, centre)
    path = kernel_path(this, A, eps=1e-3)
    for k in (0, 40, 100):
        p = float(path.p_grid[k])
        exact = np.array([kta.weight(a, p, 0.7, 2.0, divergence.name, c) for a, c in zip(A, centre, strict=True)])
        np.testing.assert_allclose(dense(path)[k], np.where(exact > 1e-3, exact, 0), rtol=1e-10)


@cases
def test_the_excess_objective_keeps_its_bound_and_falls_with_eps(divergence: Divergence, centre: float) -> None:
    this, excesses = problem(divergence, centre, lam2=4.0), []
    for eps in (0.2, 0.1, 0.05):
        path, excess = kernel_path(this, A, eps=eps), []
        for k in range(0, 101, 20):
            p = float(path.p_grid[k])
            values = [kta.objective(eta, A, p, 0.7, 4.0, divergence.name, centre) for eta in (dense(path)[k], weights_at(this, A, p))]
            excess.append(values[0] - values[1])
            dropped = int(40 - path.n_active[k])
            assert -1e-9 <= excess[-1] <= dropped * kta.removal_cost(eps, p, 0.7, 4.0, divergence.name) + 1e-9
        excesses.append(max(excess))
    assert excesses[0] > excesses[1] > excesses[2] > 0


# --- a wanted number of kernels ---------------------------------------------------------------------------------------------------


@cases
def test_p_for_leaves_the_wanted_number(divergence: Divergence, centre: float) -> None:
    this = problem(divergence, centre, lam2=8.0)
    path = kernel_path(this, A, eps=0.05)
    least, most = int(path.n_active[-1]), int(path.n_active[0])
    assert least + 3 < most
    for wanted in range(max(least, 1), most + 1):
        p = path.p_for(wanted)
        assert 1 <= p <= 2
        assert (weights_at(this, A, p) > 0.05).sum() == wanted
    assert path.p_for(most + 5) == 2.0
    if least > 1:
        with pytest.raises(ValueError, match=f"still {least} kernels"):
            path.p_for(least - 1)


def test_p_for_counts_kernels_that_leave_together() -> None:
    this = problem(lam2=8.0)
    a = np.array([1.0, 3.0, 3.0, 3.0, 20.0])
    path = kernel_path(this, a, eps=0.05)
    counts = [(weights_at(this, a, path.p_for(n)) > 0.05).sum() for n in (1, 2, 3, 4, 5)]
    assert counts == [1, 1, 1, 4, 5]
    with pytest.raises(ValueError, match="become inactive together"):
        p_for(np.array([1.5, 1.5]), 1)
    with pytest.raises(ValueError, match="at least 1"):
        path.p_for(0)


# --- grid, extremes, bad input ----------------------------------------------------------------------------------------------------


def test_the_grid_is_not_accumulated() -> None:
    assert np.array_equal(p_grid()[:-1], 2.0 - 0.01 * np.arange(100)) and p_grid()[-1] == 1.0
    assert np.array_equal(p_grid(2.0, 1.25, 0.5), [2.0, 1.5])
    assert np.array_equal(p_grid(1.5, 1.5, 0.1), [1.5])


def test_nothing_active_and_everything_active() -> None:
    none = kernel_path(problem(lam2=1e9), A, eps=0.1)
    assert not none.n_active.any() and none.weights.shape == (101, 40) and none.weights.nnz == 0
    everything = kernel_path(problem(KL, 0.2), A, eps=0.0)
    assert np.all(everything.n_active == 40) and not everything.junctures.any()
    assert kernel_path(problem(), np.zeros(0)).weights.shape == (101, 0)
    zeros = kernel_path(problem(), np.zeros(4), eps=0.0)
    assert zeros.weights.nnz == 0


def test_without_norm_the_path_stands_still_without_divergence_it_stops_before_one() -> None:
    still = dense(kernel_path(problem(lam2=0.0), A))
    assert np.all(still == still[0])
    alone = kernel_path(problem(lam1=0.0), A, p_end=1.2)
    for k in (0, 30, 80):
        exact = weights_at(problem(lam1=0.0), A, float(alone.p_grid[k]))
        np.testing.assert_allclose(dense(alone)[k], np.where(exact > 1e-4, exact, 0), rtol=1e-10)
    with pytest.raises(ValueError, match="lam1 = 0 has no unique"):
        kernel_path(problem(lam1=0.0), A)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AlignmentProblem(-1.0, 1.0), "lam1 is -1"),
        (lambda: AlignmentProblem(1.0, np.nan), "lam2 is nan"),
        (lambda: AlignmentProblem(0.0, 0.0), "both 0"),
        (lambda: AlignmentProblem(1.0, 1.0, KL), "needs a centre above 0"),
        (lambda: AlignmentProblem(1.0, 1.0, EUCLIDEAN, -0.1), "centre is -0.1"),
        (lambda: kernel_path(AlignmentProblem(1.0, 1.0, KL, np.ones(3)), A), r"centre has shape \(3,\)"),
        (lambda: kernel_path(problem(), np.array([1.0, -1.0])), r"a\[1\] = -1"),
        (lambda: kernel_path(problem(), np.ones((2, 2))), "vector"),
        (lambda: kernel_path(problem(), A, eps=0.4), "eps is 0.4"),
        (lambda: kernel_path(problem(), A, order=3), "order is 3"),
        (lambda: kernel_path(problem(), A, p_end=0.9), "p_end 0.9"),
        (lambda: kernel_path(problem(), A, dp=0.0), "dp is 0"),
        (lambda: weights_at(problem(), A, 0.5), "p is 0.5"),
        (lambda: kernel_path(problem(KL, 0.1, 1e-3, 1e-3), A), "too large for float64"),
    ],
)
def test_bad_arguments_are_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_hundred_thousand_kernels_have_a_path() -> None:
    a = np.random.default_rng(0).gamma(0.5, 4.0, 100_000)
    path = kernel_path(problem(lam1=1.0, lam2=10.0), a)
    assert path.n_active[0] > 90_000 > 10_000 > path.n_active[-1]


def test_with_a_square_loss_instead_of_alignments_a_weight_comes_back() -> None:
    """Why the theorem is about alignments only: the counter-example of appendix A.3.3 to monotone l_p multiple kernel learning."""
    log_weight = {p: kta.square_loss_log_weight(p) for p in (1.9, 1.6, 1.5, 1.45, 1.3)}
    assert np.exp(log_weight[1.9]) == pytest.approx(2.9e-4, rel=0.05)
    assert log_weight[1.5] < -100 < log_weight[1.3] < log_weight[1.45] < log_weight[1.6]
