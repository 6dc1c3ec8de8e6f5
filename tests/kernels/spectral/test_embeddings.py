"""Embeddings: targets and terms against their definitions, optima against slow solvers, certificates, invariances, resumed steps."""

from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.spectral.embeddings import (
    build_neighbourhood,
    class_factor,
    colored_problem,
    colored_step,
    graph_target,
    initial_state,
    label_target,
    leading_directions,
    solve_kernel,
    split_target,
    structure_problem,
    structure_step,
    value_factor,
    violation_unit,
    volume_step,
)
from gramplane.kernels.spectral.newton import Hessian, Proximal, decompose, newton_start, newton_steps, prepare_edges
from gramplane.kernels.spectral.problem import SpectralProblem
from gramplane.kernels.spectral.triple_losses import TripleTerms, new_triples, project_shared, worst_triples
from tests.support.oracles.embedding import (
    all_triples,
    centring,
    edge_matrices,
    squares_minimum,
    squares_objective,
    structure_minimum,
    violations,
    volume_value,
)


def points(seed=0, n=9, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def near_of(X, k=2, count=2):
    """Union graph of the k nearest rows."""
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    linked = np.zeros(squares.shape, dtype=bool)
    for i, row in enumerate(np.argsort(squares + np.diag(np.full(len(X), np.inf)), axis=1)[:, :k]):
        linked[i, row] = linked[row, i] = True
    i, j = np.nonzero(np.triu(linked))
    return build_neighbourhood(len(X), i, j, squares[i, j], *leading_directions(X, count))


def gram(state):
    return (state.vectors * state.spectrum) @ state.vectors.T


def ended(step, state, seen=None):
    while state.stop is None:
        state = step(state)
        if seen is not None:
            seen.append(state)
    return state


def colored(near, M, C, B, **options):
    problem = colored_problem(near, M, C, B)
    given = {"tol": 1e-7, "max_iter": 300, **options}
    return ended(lambda state: colored_step(problem, state, **given), initial_state(near.n, near.terms.size))


def volume(near, C, B, seen=None, **options):
    given = {"count": 2, "tol": 1e-5, "max_iter": 300, **options}
    return ended(lambda state: volume_step(near, state, C=C, B=B, **given), initial_state(near.n, near.terms.size, near.directions), seen)


def structure(near, C, B, seen=None, **options):
    given = {"tol": 1e-5, "max_iter": 100, **options}
    problem = structure_problem(near, C * violation_unit(near), B)
    return problem, ended(lambda state: structure_step(problem, state, **given), initial_state(near.n, 0), seen)


LABELS = np.arange(9) % 2
FACTOR = class_factor(LABELS, 2)


# -- targets and terms ---------------------------------------------------------------------------------------------------------


def test_targets_are_their_definitions():
    near, H = near_of(points()), centring(9)
    np.testing.assert_allclose(graph_target(near).dense(), H @ near.adjacency.toarray() @ H, atol=1e-12)
    codes = np.array([0, 1, -1, 1, 0, 2, -1, 2, 0])
    Y = np.array([[codes[i] == c for c in range(3)] for i in range(9)], float)
    np.testing.assert_allclose(label_target(class_factor(codes, 3)).dense(), H @ Y @ Y.T @ H, atol=1e-12)
    V = np.linalg.qr(points(3, 9, 2))[0]
    np.testing.assert_allclose(split_target(V).dense(), 2 * V @ V.T - np.eye(9), atol=1e-12)


def test_real_targets_have_mean_zero_and_variance_one_among_labelled_rows():
    y = np.array([3.0, np.nan, 5.0, -2.0, np.nan])
    factor = value_factor(y)[:, 0]
    np.testing.assert_allclose(factor, value_factor(100 - 7 * y)[:, 0] * -1, atol=1e-12)
    assert factor[[1, 4]].tolist() == [0, 0]
    known = factor[[0, 2, 3]]
    assert known.mean() == pytest.approx(0, abs=1e-12)
    assert (known**2).mean() == pytest.approx(1)


@pytest.mark.parametrize("shape", [(12, 4), (6, 20)])
def test_leading_directions_are_principal_components(shape):
    X = points(1, *shape)
    left, values, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    for rows in (X, sp.csr_array(X)):
        norm2, found = leading_directions(rows, 3)
        assert norm2 == pytest.approx((values**4).sum())
        np.testing.assert_allclose(found @ found.T, left[:, :3] @ left[:, :3].T, atol=1e-10)
    assert leading_directions(np.outer(np.arange(5.0), [1.0, 2.0]), 2)[1].shape == (5, 1)


def test_triple_terms_are_their_definition():
    triples = np.array([[0, 1, 2], [3, 4, 0], [2, 5, 3], [0, 4, 2]])
    terms, rng = TripleTerms(6, triples), np.random.default_rng(0)
    V, lam, alpha = np.linalg.qr(points(2, 6, 3))[0], np.array([3.0, 2.0, 0.5]), rng.normal(size=4)
    K = (V * lam) @ V.T
    np.testing.assert_allclose(terms.forms(V, lam), -violations(K, triples), atol=1e-12)
    assert np.sum(terms.matrix(alpha).toarray() * K) == pytest.approx(alpha @ terms.forms(V, lam))
    whole = np.array([terms.matrix(row).toarray().ravel() for row in np.eye(4)])
    assert 0.8 * np.linalg.norm(whole, 2) ** 2 <= terms.norm2 <= 1.0001 * np.linalg.norm(whole, 2) ** 2
    assert TripleTerms(6, triples[:0]).norm2 == 1.0


@pytest.mark.parametrize("C", [0.3, 2.0, 50.0])
def test_the_projection_is_the_nearest_point(C):
    rng = np.random.default_rng(1)
    for _ in range(20):
        w = rng.normal(size=7) * 2
        found = project_shared(w, C)
        assert found.min() >= 0 and found.sum() <= C * (1 + 1e-12)
        # Optimality: no feasible point lies ahead of it along w - found.
        rest = w - found
        assert max(0.0, C * rest.max()) <= rest @ found + 1e-9
    assert project_shared(np.zeros(0), C).shape == (0,)


def test_worst_triples_are_those_of_a_plain_search():
    near, rng = near_of(points(4, 12, 2)), np.random.default_rng(0)
    factor, graph = rng.normal(size=(12, 4)), near.adjacency
    found, violation = worst_triples(factor, graph.indptr.astype(np.int64), graph.indices.astype(np.int64))
    every = all_triples(graph.toarray() > 0)
    values = violations(factor @ factor.T, every)
    for i in range(12):
        assert violation[i] == pytest.approx(values[every[:, 0] == i].max())
        assert violations(factor @ factor.T, [found[i]])[0] == pytest.approx(violation[i])
    lonely = worst_triples(factor, np.zeros(13, np.int64), np.zeros(0, np.int64))[1]
    crowded = worst_triples(factor, 11 * np.arange(13), np.flatnonzero(~np.eye(12, dtype=bool)) % 12)[1]
    assert np.isneginf(lonely).all() and np.isneginf(crowded).all()


def test_new_triples_are_those_not_known():
    known = np.array([[0, 1, 2], [3, 4, 5]])
    assert new_triples(known, np.array([[3, 4, 5], [0, 2, 1]])).tolist() == [[0, 2, 1]]
    assert new_triples(known[:0], known).tolist() == known.tolist()


# -- Newton steps --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [1e-3, 30.0])
@pytest.mark.parametrize("rank", [0, 3])
def test_the_hessian_is_the_derivative_of_the_gradient(weight, rank):
    near = near_of(points(5))
    problem = colored_problem(near, label_target(FACTOR), 0.7, 20.0)
    edges, rng = prepare_edges(problem), np.random.default_rng(2)
    alpha, v = rng.normal(size=near.terms.size), rng.normal(size=near.terms.size)
    prox = Proximal(weight, np.linalg.qr(points(4, 9, 3))[0][:, :rank], np.array([3.0, 1.0, 0.2])[:rank])
    at = decompose(problem, edges, alpha, prox)
    assert at.capped == (weight < 1 and rank == 0) or rank
    h = 1e-6
    ahead, behind = (decompose(problem, edges, alpha + sign * h * v, prox) for sign in (1, -1))
    hessian = Hessian(problem, edges, at)
    np.testing.assert_allclose(-hessian.product(v), (ahead.gradient - behind.gradient) / (2 * h), rtol=1e-5, atol=1e-6)
    assert (ahead.ascended - behind.ascended) / (2 * h) == pytest.approx(at.gradient @ v, rel=1e-6)
    whole = np.array([hessian.product(row) for row in np.eye(len(v))])
    np.testing.assert_allclose(hessian.diagonal(), np.diag(whole), rtol=1e-9)
    assert np.linalg.eigvalsh(0.5 * (whole + whole.T))[0] > 0


@pytest.mark.parametrize("B", [0.5, 8.0, 60.0, 5000.0])
@pytest.mark.parametrize("C", [0.2, 5.0])
def test_newton_steps_end_at_the_optimum_whether_the_cap_is_active_or_not(B, C):
    near = near_of(points(6))
    target = label_target(FACTOR)
    M, T = target.dense(), edge_matrices(9, near.rows, near.cols)
    best, K = squares_minimum(M, T, near.goal, C, B)
    state = colored(near, target, C, B, tol=1e-6)
    assert state.stop == "gap"
    assert state.lower <= best + 1e-7 * abs(best)
    assert state.upper >= best - 1e-5 * abs(best)
    assert state.gap <= 1e-6 * abs(state.upper)
    assert squares_objective(gram(state), M, T, near.goal, C) == pytest.approx(state.upper, rel=1e-9)
    assert state.spectrum @ state.spectrum <= B * (1 + 1e-9)
    if np.sum(K * K) > 0.999 * B:
        np.testing.assert_allclose(gram(state), K, atol=2e-2 * np.abs(K).max())


def test_newton_steps_and_projected_gradients_agree():
    near = near_of(points(7, 25, 3), 3)
    problem = colored_problem(near, label_target(class_factor(np.arange(25) % 3, 3)), 1.0, 200.0)
    other = solve_kernel(problem, np.zeros(near.terms.size), 1e-6)
    state, at = newton_steps(problem, newton_start(near.n, np.zeros(near.terms.size)), tol=1e-6)
    assert state.best_primal == pytest.approx(other.upper, rel=3e-6)
    assert state.best_dual == pytest.approx(other.lower, rel=3e-6)
    assert at.primal == state.best_primal
    assert state.iteration < other.evaluations


def test_newton_steps_one_by_one_have_the_bits_of_steps_at_once():
    near = near_of(points(8, 20, 3), 3)
    problem = colored_problem(near, label_target(class_factor(np.arange(20) % 2, 2)), 3.0, 1e6)
    straight, _ = newton_steps(problem, newton_start(near.n, np.zeros(near.terms.size)), tol=1e-6)
    state = newton_start(near.n, np.zeros(near.terms.size))
    while state.stop is None:
        state, _ = newton_steps(problem, state, tol=1e-6, steps=1)
    assert straight.iteration > 4
    assert state.prox.is_moved
    for name in (field.name for field in fields(state)):
        one, other = getattr(state, name), getattr(straight, name)
        for a, b in zip(vars(one).values(), vars(other).values(), strict=True) if name.endswith("prox") else [(one, other)]:
            np.testing.assert_array_equal(a, b)


def test_newton_steps_refuse_other_problems():
    near = near_of(points())
    problem = SpectralProblem(label_target(FACTOR), near.terms, near.goal, "hinge", B=1.0)
    with pytest.raises(ValueError, match=r"loss='hinge', p=2: Newton steps need loss='square' on distances, p=2 and a cap B"):
        newton_steps(problem, newton_start(near.n, np.zeros(near.terms.size)))


# -- minimum volume embedding --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("B", [3.0, 50.0, 2000.0])
def test_the_volume_objective_is_that_of_the_definition_and_never_rises(seed, B):
    near, seen = near_of(points(seed)), []
    state = volume(near, 1.0, B, seen)
    values = np.array([each.upper for each in seen])
    assert (np.diff(values) <= 0).all() and state.stop == "tol"
    T = edge_matrices(9, near.rows, near.cols)
    assert state.upper == pytest.approx(volume_value(gram(state), T, near.goal, 1.0, 2), rel=1e-6)


@pytest.mark.parametrize("B", [3.0, 50.0])
def test_no_convex_problem_improves_the_last_map_of_least_volume(B):
    near = near_of(points(1))
    state = volume(near, 1.0, B, tol=1e-6)
    T = edge_matrices(9, near.rows, near.cols)
    best, K = squares_minimum(split_target(state.vectors[:, :2]).dense(), T, near.goal, 1.0, B)
    assert best >= state.upper - 1e-4 * abs(state.upper)
    assert volume_value(K, T, near.goal, 1.0, 2) >= state.upper - 1e-4 * abs(state.upper)


# -- structure preserving embedding ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.01, 0.3, 20.0])
def test_cutting_planes_end_at_the_optimum_over_all_triples(C):
    near, seen = near_of(points(7, 7, 2)), []
    problem, state = structure(near, C, 5.0, seen)
    every = all_triples(near.adjacency.toarray() > 0)
    best = structure_minimum(problem.target.dense(), every, problem.C, 5.0)
    assert state.stop == "gap"
    for each in seen:
        assert each.lower <= best + 1e-6 * abs(best) <= each.upper + 2e-6 * abs(best)
    worst = max(0.0, violations(gram(state), every).max())
    assert state.worst == pytest.approx(worst, abs=1e-10)
    assert state.upper == pytest.approx(-np.sum(problem.target.dense() * gram(state)) + problem.C * worst, rel=1e-9)
    if C == 20.0:
        assert len(seen) > 1 and worst < 1e-3


def test_the_cap_sizes_the_map_of_a_graph_and_does_nothing_else():
    near = near_of(points(9, 7, 2))
    small, large = (structure(near, 1.0, B)[1] for B in (1.0, 49.0))
    np.testing.assert_allclose(gram(large), 7 * gram(small), atol=1e-3 * np.abs(gram(large)).max())
    assert large.upper == pytest.approx(7 * small.upper, rel=1e-4)


# -- all three -----------------------------------------------------------------------------------------------------------------


def all_maps(X, k=2):
    near = near_of(X, k)
    B = 100 * near.energy
    target = label_target(class_factor(np.arange(len(X)) % 2, 2))
    return near, [colored(near, target, 1.0, B), volume(near, 1.0, B), structure(near, 1.0, B)[1]]


def test_maps_are_centred():
    for state in all_maps(points(3))[1]:
        assert np.abs(gram(state).sum(axis=1)).max() <= 1e-8 * np.abs(gram(state)).max()
        assert np.abs(state.coordinates(2, 1.0).mean(axis=0)).max() <= 1e-9 * np.sqrt(state.spectrum[0])


def test_units_of_the_features_size_the_map_and_do_nothing_else():
    X = points(3)
    for (near, first), (other, second) in [(all_maps(X), all_maps(1000 * X + 5))]:
        for a, b in zip(first, second, strict=True):
            assert b.upper == pytest.approx(a.upper, rel=1e-5)
            np.testing.assert_allclose(
                np.abs(b.coordinates(2, other.unit)),
                1000 * np.abs(a.coordinates(2, near.unit)),
                atol=3.0 * np.sqrt(near.unit * a.spectrum[0]),
            )


def test_the_order_of_rows_does_not_matter():
    X = points(3)
    order = np.array([3, 1, 8, 0, 2, 6, 7, 5, 4])
    near, moved = near_of(X), near_of(X[order])
    B = 100 * near.energy
    a, b = (volume(each, 1.0, B) for each in (near, moved))
    assert b.upper == pytest.approx(a.upper, rel=1e-5)
    c = colored(near, label_target(FACTOR), 1.0, 30.0)
    d = colored(moved, label_target(FACTOR[order]), 1.0, 30.0)
    np.testing.assert_allclose(gram(d), gram(c)[np.ix_(order, order)], atol=1e-3 * np.abs(gram(c)).max())


def test_duplicate_rows_are_at_one_place():
    X = points(3)
    X[4] = X[2]
    near = near_of(X)
    state = colored(near, label_target(np.zeros((9, 1)) + np.eye(9)[:, :1]), 100.0, 100 * near.energy, tol=1e-4)
    points_ = state.coordinates(2, near.unit)
    spread = np.linalg.norm(points_ - points_.mean(axis=0), axis=1).mean()
    assert np.linalg.norm(points_[4] - points_[2]) < 0.2 * spread


def test_steps_from_a_state_have_the_bits_of_an_undisturbed_course():
    """Every step is a function of the state alone: taken again from a copy of any state it gives the same bits."""
    near = near_of(points(5))
    B, problem = 20 * near.energy, structure_problem(near_of(points(5)), violation_unit(near_of(points(5))), 5.0)
    target = colored_problem(near, label_target(FACTOR), 1.0, B)
    steps = [
        (lambda s: colored_step(target, s, tol=1e-6, max_iter=50), initial_state(9, near.terms.size)),
        (lambda s: volume_step(near, s, count=2, C=1.0, B=B, tol=1e-4, max_iter=50), initial_state(9, near.terms.size, near.directions)),
        (lambda s: structure_step(problem, s, tol=1e-5, max_iter=50), initial_state(9, 0)),
    ]
    for step, state in steps:
        while state.stop is None:
            copy = replace(state, alpha=state.alpha.copy(), vectors=state.vectors.copy(), triples=state.triples.copy())
            state, again = step(state), step(copy)
            for name in ("alpha", "vectors", "spectrum", "upper", "lower", "triples", "stop"):
                np.testing.assert_array_equal(getattr(again, name), getattr(state, name))


def test_coordinates_beyond_the_rank_are_zero():
    state = replace(initial_state(3, 0), vectors=np.ones((3, 1)), spectrum=np.array([4.0]))
    assert state.coordinates(2, 9.0).tolist() == [[6.0, 0.0]] * 3
    assert state.share(1) == 1.0 and initial_state(3, 0).share(2) == 1.0
