"""The ascent on spectral duals: closed forms, generic solutions, optimality relations, idle caps, invariances, resume, bad input."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.eigen.operator import SymmetricOperator
from gramplane.kernels.eigen.positive_part import kernel_spectrum, normalized_laplacian, positive_part
from gramplane.kernels.spectral import dual_ascent as spectral_dual
from gramplane.kernels.spectral import problem as spectral_problem
from gramplane.kernels.spectral.dual_ascent import SpectralState, advance_ascent, begin_ascent, kernel_at, relative_gap, solve_dual
from gramplane.kernels.spectral.pair_losses import DistanceTerms, EntryTerms
from gramplane.kernels.spectral.problem import Anchor, SpectralProblem, cap_used, equal_penalty, evaluate, proximal_spectrum
from gramplane.storage.records import from_arrays, to_arrays
from tests.support.oracles import npkl as oracle

ITERATED = ("squared_hinge", "square", "hinge")


def instance(seed=0, n=8, m=9):
    """Affinities and constraints, as matrices; signs need not agree with each other."""
    rng = np.random.default_rng(seed)
    S = np.triu(rng.random((n, n)) < 0.5, 1).astype(float)
    upper = np.array(np.triu_indices(n, 1)).T
    pairs = upper[np.sort(rng.choice(len(upper), m, replace=False))]
    T = np.zeros((n, n))
    T[pairs[:, 0], pairs[:, 1]] = rng.choice([-1.0, 1.0], m)
    return S + S.T, T + T.T


def problem_of(S, T, loss="squared_hinge", C=1.0, p=2.0, B=None, G=None, **options):
    i, j = np.nonzero(np.triu(T))
    terms = EntryTerms(len(S), i, j, T[i, j])
    goal = np.zeros(len(i)) if loss == "linear" else np.ones(len(i))
    return SpectralProblem(SymmetricOperator(-normalized_laplacian(S)), terms, goal, loss, C, p, B, G, **options)


def solved(problem, tol=1e-7, max_iter=2000):
    state = solve_dual(problem, np.full(problem.terms.size, problem.C), tol=tol, max_iter=max_iter)
    found = kernel_at(problem, state, tol=tol)
    return state, found, (found.part.vectors * found.spectrum) @ found.part.vectors.T


# --- the linear loss: closed forms ------------------------------------------------------------------------------------------------


def diagonal(values, **options):
    """A problem whose A at alpha = C is diagonal; one constraint of weight nearly zero."""
    n = len(values)
    terms = EntryTerms(n, np.array([0]), np.array([1]), np.array([1.0]))
    return SpectralProblem(SymmetricOperator(sp.csr_array(np.diag(values))), terms, np.zeros(1), "linear", 1e-12, **options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"p": 2.0, "B": 1.0}, np.array([3, 1, 0]) / np.sqrt(10)),
        ({"p": 1.0, "B": 1.0}, np.array([1.0, 0, 0])),
        ({"p": 3.0, "B": 1.0}, np.array([np.sqrt(3), 1, 0]) / (3**1.5 + 1) ** (1 / 3)),
        ({"p": 2.0, "B": None, "G": 2.0}, np.array([1.5, 0.5, 0])),
    ],
)
def test_closed_forms_by_hand(options, expected):
    problem = diagonal([3.0, 1.0, -2.0], **options)
    state, _, K = solved(problem)
    assert state.stop == "closed form"
    assert state.iteration == 1
    np.testing.assert_allclose(K, np.diag(expected), atol=1e-10)
    assert state.gap == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("p", [1.0, 2.0, 4.0])
def test_without_a_positive_eigenvalue_the_kernel_is_zero(p):
    state, found, K = solved(diagonal([-1.0, -2.0], p=p, B=3.0))
    assert not K.any()
    assert len(found.spectrum) == 0
    assert state.best_primal == state.best_dual == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("p", "B", "G"), [(1.0, 2.0, None), (1.5, 2.0, None), (2.0, 5.0, None), (4.0, 3.0, None), (2.0, None, 0.5)])
def test_the_linear_loss_reaches_what_a_generic_solver_finds(seed, p, B, G):
    S, T = instance(seed)
    state, _, K = solved(problem_of(S, T, "linear", 0.8, p, B, G))
    value = oracle.objective(K, oracle.laplacian(S), T, "linear", 0.8, p, G)
    assert state.best_primal == pytest.approx(value, abs=1e-9)
    assert state.best_dual == pytest.approx(value, abs=1e-9)
    generic = oracle.solve(oracle.laplacian(S), T, "linear", 0.8, p, B, G, seed=seed)
    assert value <= generic + 1e-9 * abs(generic)
    assert value == pytest.approx(generic, rel=1e-5)


@pytest.mark.parametrize("factor", [4.0, 0.01])
def test_the_cap_only_scales_the_kernel_of_the_linear_loss(factor):
    S, T = instance(1)
    for p in (1.5, 2.0, 3.0):
        _, _, one = solved(problem_of(S, T, "linear", 0.8, p, 2.0))
        _, _, other = solved(problem_of(S, T, "linear", 0.8, p, 2.0 * factor))
        np.testing.assert_allclose(other, one * factor ** (1 / p), atol=1e-12)


# --- iterated losses --------------------------------------------------------------------------------------------------------------

FORMS = [(2.0, 4.0, None), (4.0, 4.0, None), (1.5, 4.0, None), (2.0, None, 0.3), (4.0, None, 0.3), (1.5, None, 0.5)]


@pytest.mark.parametrize("loss", ITERATED)
@pytest.mark.parametrize(("p", "B", "G"), FORMS)
@pytest.mark.parametrize("C", [0.6, 3.0])
def test_primal_meets_dual_and_both_meet_a_generic_solver(loss, p, B, G, C):
    for seed in (0, 1):
        S, T = instance(seed, n=7, m=8)
        L = oracle.laplacian(S)
        state, found, K = solved(problem_of(S, T, loss, C, p, B, G))
        value = oracle.objective(K, L, T, loss, C, p, G)
        assert state.converged
        assert found.primal == pytest.approx(value, abs=1e-8)
        assert state.best_dual <= value + 1e-9
        assert value - state.best_dual <= 1e-6 * abs(value)
        assert np.linalg.eigvalsh(K).min() > -1e-12
        if B is not None:
            assert np.sum(found.spectrum**p) <= B * (1 + 1e-9)
        generic = oracle.solve(L, T, loss, C, p, B, G, starts=1, seed=seed)
        assert state.best_dual <= generic + 1e-9 * abs(generic)
        assert value <= generic + 1e-6 * abs(generic)


@pytest.mark.parametrize("loss", ["squared_hinge", "square"])
def test_the_kernel_is_that_of_projected_gradients_on_k(loss):
    S, T = instance(2, n=6, m=7)
    for p, B in ((2.0, 3.0), (3.0, 2.0)):
        value, expected = oracle.projected_gradient(oracle.laplacian(S), T, loss, 2.0, p, B)
        state, _, K = solved(problem_of(S, T, loss, 2.0, p, B), tol=1e-9)
        assert state.best_primal == pytest.approx(value, rel=1e-7)
        np.testing.assert_allclose(K, expected, atol=2e-4)


@pytest.mark.parametrize(("p", "B", "G"), FORMS)
def test_optimality_relations(p, B, G):
    S, T = instance(3)
    i, j = np.nonzero(np.triu(T))
    C = 2.0
    for loss in ITERATED:
        state, _, K = solved(problem_of(S, T, loss, C, p, B, G), tol=1e-8 if loss == "hinge" else 1e-9)
        z, alpha = T[i, j] * K[i, j], state.best_alpha
        if loss == "squared_hinge":
            np.testing.assert_allclose(alpha, C * np.maximum(0, 1 - z), atol=2e-3)
        elif loss == "square":
            np.testing.assert_allclose(alpha, C * (1 - z), atol=2e-3)
        else:
            np.testing.assert_allclose(alpha[z < 1 - 1e-2], C, atol=1e-2)
            np.testing.assert_allclose(alpha[z > 1 + 1e-2], 0, atol=1e-2)


@pytest.mark.parametrize("loss", ITERATED)
@pytest.mark.parametrize("penalty", [None, 0.3])
def test_the_gradient_is_that_of_finite_differences(loss, penalty):
    S, T = instance(4)
    B, G = (None, penalty) if penalty else (3.0, None)
    problem = problem_of(S, T, loss, 2.0, 2.0, B, G)
    alpha = np.random.default_rng(0).uniform(0.3, 1.5, problem.terms.size)
    at = evaluate(problem, alpha)
    for e in range(problem.terms.size):
        step = np.zeros_like(alpha)
        step[e] = 1e-5
        slope = (evaluate(problem, alpha + step).dual - evaluate(problem, alpha - step).dual) / 2e-5
        assert problem.terms.multiplicity * at.gradient[e] == pytest.approx(slope, abs=1e-6)


def test_the_gradient_of_a_proximal_step_is_that_of_finite_differences():
    S, T = instance(5)
    for p in (2.0, 3.0):
        problem = problem_of(S, T, "square", 2.0, p, 3.0)
        centre = evaluate(problem, np.full(problem.terms.size, 2.0))
        anchor = Anchor(0.4, centre.part.vectors, centre.spectrum)
        alpha = np.random.default_rng(0).uniform(-1, 1.5, problem.terms.size)
        at = evaluate(problem, alpha, anchor=anchor)
        for e in range(problem.terms.size):
            step = np.zeros_like(alpha)
            step[e] = 1e-5
            after, before = (evaluate(problem, alpha + t * step, anchor=anchor).ascended for t in (1, -1))
            assert 2.0 * at.gradient[e] == pytest.approx((after - before) / 2e-5, abs=1e-5)
        # What bounds the dual from below is the dual's own value or less.
        assert at.dual <= evaluate(problem, alpha).dual + 1e-12
        assert at.dual <= at.ascended + 1e-12


def test_one_variable_per_ordered_pair_gives_the_same_kernel():
    """Each pair twice, with both orders free to differ: as terms of multiplicity one with half the matrix each."""
    S, T = instance(6)
    i, j = np.nonzero(np.triu(T))

    class Ordered(EntryTerms):
        multiplicity = 1.0

        def matrix(self, alpha):
            full = super().matrix(alpha)
            return sp.csr_array(0.5 * full)

    twice = Ordered(len(S), np.concatenate([i, i]), np.concatenate([j, j]), np.tile(T[i, j], 2))
    one = problem_of(S, T, "squared_hinge", 2.0, 2.0, 4.0)
    both = replace(one, terms=twice, goal=np.ones(2 * len(i)))
    (a, _, K), (b, _, Q) = solved(one, 1e-9), solved(both, 1e-9)
    assert a.best_primal == pytest.approx(b.best_primal, rel=1e-8)
    np.testing.assert_allclose(K, Q, atol=1e-4)


def test_a_permutation_of_rows_and_pairs_permutes_the_kernel():
    S, T = instance(7)
    order = np.random.default_rng(0).permutation(len(S))
    a, _, K = solved(problem_of(S, T, "square", 1.0, 2.0, 4.0), 1e-9)
    b, _, Q = solved(problem_of(S[np.ix_(order, order)], T[np.ix_(order, order)], "square", 1.0, 2.0, 4.0), 1e-9)
    assert a.best_primal == pytest.approx(b.best_primal, rel=1e-9)
    np.testing.assert_allclose(Q, K[np.ix_(order, order)], atol=1e-4)


# --- caps that are not active -----------------------------------------------------------------------------------------------------


IDLE = [("square", 2.0, 60.0), ("squared_hinge", 2.0, 600.0), ("square", 1.5, 60.0), ("hinge", 2.0, 60.0)]


@pytest.mark.parametrize(("loss", "p", "B"), IDLE)
def test_an_idle_cap_is_seen_and_the_gap_closes_all_the_same(loss, p, B):
    S, T = instance(4, n=6, m=8)
    problem = problem_of(S, T, loss, 10.0, p, B)
    state, found, K = solved(problem, tol=1e-4, max_iter=3000)
    assert state.converged
    assert state.steps > 0
    assert cap_used(problem, found) < 0.99
    value = oracle.objective(K, oracle.laplacian(S), T, loss, 10.0)
    assert found.primal == pytest.approx(value, abs=1e-8)
    generic = oracle.solve(oracle.laplacian(S), T, loss, 10.0, p, B, starts=2)
    assert state.best_dual <= generic + 1e-9
    assert value <= generic + 2e-4 * abs(generic)


def test_a_cap_that_is_nearly_idle_is_used_up():
    S, T = instance(4, n=6, m=8)
    problem = problem_of(S, T, "square", 10.0, 2.0, 20.0)
    state, found, _ = solved(problem, tol=1e-6)
    assert state.converged
    assert cap_used(problem, found) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0, 4.0])
def test_eigenvalues_of_proximal_steps(p):
    values = np.array([3.0, 1.0, 0.2])
    free = proximal_spectrum(values, p, 1e9, 0.5)
    np.testing.assert_allclose(free, values / 0.5)
    held = proximal_spectrum(values, p, 2.0, 0.5)
    assert np.sum(held**p) == pytest.approx(2.0, rel=1e-9)
    nu = (values - 0.5 * held) / held ** (p - 1)
    np.testing.assert_allclose(nu, nu[0], rtol=1e-6)
    assert nu[0] > 0


@pytest.mark.parametrize("p", [1.5, 2.0, 4.0])
def test_the_penalty_that_equals_a_cap(p):
    values = np.array([3.0, 1.0, 0.2])
    part = positive_part(SymmetricOperator(sp.csr_array(np.diag(values))))
    problem = diagonal(values, p=p, B=7.0)
    G = equal_penalty(problem, part)
    np.testing.assert_allclose(kernel_spectrum(values, p, G=G)[0], kernel_spectrum(values, p, B=7.0)[0])


# --- other terms, bases, eigenpairs that are not exact ----------------------------------------------------------------------------


def test_squared_distances_instead_of_entries():
    """An unfolding: tr(-MK) + C/2 sum (d - squared distance)^2, against projected gradients written down."""
    rng = np.random.default_rng(0)
    n, i, j = 6, np.array([0, 0, 1, 2, 3, 4]), np.array([1, 2, 3, 3, 4, 5])
    y = rng.normal(size=(n, 1))
    y -= y.mean()
    goal = rng.uniform(0.5, 2, len(i))
    M = SymmetricOperator(sp.csr_array((n, n)), y)
    problem = SpectralProblem(M, DistanceTerms(n, i, j), goal, "square", 1.5, 2.0, 2.0)
    state = solve_dual(problem, np.zeros(len(i)), tol=1e-8, max_iter=2000)
    assert state.converged
    ends = np.zeros((len(i), n))
    ends[np.arange(len(i)), i], ends[np.arange(len(i)), j] = 1, -1
    K = np.zeros((n, n))
    for _ in range(4000):
        short = np.einsum("ei,ij,ej->e", ends, K, ends) - goal
        K = oracle.nearest_in_ball(K - 0.1 * ((ends.T * 1.5 * short) @ ends - y @ y.T), 2.0, 2.0)
    short = np.einsum("ei,ij,ej->e", ends, K, ends) - goal
    value = 0.75 * short @ short - float((y.T @ K @ y).item())
    assert state.best_primal == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("loss", ["linear", *ITERATED])
def test_a_base_restricts_the_kernel(loss):
    S, T = instance(8)
    V = np.linalg.eigh(oracle.laplacian(S))[1][:, :4]
    state, found, K = solved(problem_of(S, T, loss, 1.5, 2.0, 4.0, basis=V), 1e-8)
    np.testing.assert_allclose(V @ (V.T @ K @ V) @ V.T, K, atol=1e-10)
    # In coordinates of the base: the same objective of E, by projected gradients on it, or at least no better by random search.
    near = [V.T @ K @ V + 0.05 * (W + W.T) for W in np.random.default_rng(0).normal(size=(100, 4, 4))]
    others = [V @ oracle.nearest_in_ball(E, 2.0, 4.0) @ V.T for E in near]
    best = min(oracle.objective(Q, oracle.laplacian(S), T, loss, 1.5) for Q in others)
    assert found.primal == pytest.approx(oracle.objective(K, oracle.laplacian(S), T, loss, 1.5), abs=1e-9)
    assert found.primal <= best + 1e-9
    assert state.gap <= 1e-7 * max(abs(found.primal), 1)


def test_a_gap_is_certified_with_tight_eigenpairs_only(monkeypatch):
    """An eigensolver that keeps to the accuracy it is asked for, and no more: it forgets the small eigenvalues."""
    S, T = instance(9, n=20, m=30)
    asked = []

    def sloppy(operator, *, tol, **_):
        asked.append(tol)
        part = positive_part(operator, method="dense")
        keep = part.values > 30 * tol * part.values[0]
        return replace(part, values=part.values[keep], vectors=part.vectors[:, keep], method="chebyshev")

    monkeypatch.setattr(spectral_problem, "positive_part", sloppy)
    problem = problem_of(S, T, "squared_hinge", 1.0, 2.0, 20.0)
    state = solve_dual(problem, np.ones(problem.terms.size), tol=1e-3, max_iter=200)
    monkeypatch.undo()
    exact = evaluate(problem, state.best_alpha).dual
    assert state.converged
    assert state.tight
    assert asked[0] == spectral_dual.COARSE_ACCURACY
    assert asked[-1] <= 1e-5
    assert state.best_dual == pytest.approx(exact, rel=1e-3)
    stopped = solve_dual(problem, np.ones(problem.terms.size), tol=1e-9, max_iter=3)
    assert stopped.stop == "max_iter"
    assert stopped.iteration == 3


# --- state ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("C", "B"), [(2.0, 4.0), (10.0, 600.0)])
def test_a_state_that_was_written_and_read_goes_on_with_the_same_bits(C, B):
    S, T = instance(4, n=6, m=8)
    problem = problem_of(S, T, "square", C, 2.0, B)
    straight = begin_ascent(problem, np.full(problem.terms.size, C))
    broken = straight
    for _ in range(30):
        if straight.stop is not None:
            break
        straight = advance_ascent(problem, straight, tol=1e-6)
        broken = advance_ascent(problem, from_arrays(SpectralState, *to_arrays(broken)), tol=1e-6)
        assert broken.best_primal == straight.best_primal
        np.testing.assert_array_equal(broken.ahead, straight.ahead)
    assert relative_gap(problem, broken) == relative_gap(problem, straight)
    np.testing.assert_array_equal(kernel_at(problem, broken).spectrum, kernel_at(problem, straight).spectrum)


def test_pairs_that_the_start_satisfies_at_no_cost_end_the_ascent():
    """One pair that must be together, no graph: every K of at least 1 there has the objective zero, so that no gap is small beside it."""
    S, T = np.zeros((2, 2)), np.array([[0.0, 1.0], [1.0, 0.0]])
    state, _, K = solved(problem_of(S, T, "squared_hinge", 5.0, 2.0, 100.0), tol=1e-4)
    assert state.converged
    assert K[0, 1] >= 1.0 - 1e-2
    assert state.best_primal <= 1e-6


# --- bad input --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "cubic", "B": 1.0}, "loss='cubic': must be one of linear, squared_hinge"),
        ({"C": 0.0, "B": 1.0}, "C=0.0: must be a finite number above 0"),
        ({"C": np.nan, "B": 1.0}, "C=nan: must be"),
        ({"p": 0.5, "B": 1.0}, "p=0.5: must be at least 1"),
        ({"p": 1.0, "B": 1.0}, "p=1: must be above 1 with loss='squared_hinge'"),
        ({"B": -1.0}, "B=-1.0: must be above 0"),
        ({"B": 1.0, "G": 1.0}, "exactly one of the cap B and the penalty G"),
        ({}, "exactly one of the cap B and the penalty G"),
    ],
)
def test_bad_parameters(options, message):
    S, T = instance()
    with pytest.raises(ValueError, match=message):
        problem_of(S, T, **options)


def test_targets_of_another_length():
    S, T = instance()
    with pytest.raises(ValueError, match="goal: has 2 entries; it needs one for each of the 9 pairs"):
        replace(problem_of(S, T, B=1.0), goal=np.ones(2))
