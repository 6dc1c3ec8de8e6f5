"""Rules of real targets: the square and the tube against their definitions and a generic solver, merged rows, searches, cuts."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from gramplane.kernels.graphs.norms import dual_bound
from gramplane.kernels.rules.bits import pack_rows
from gramplane.kernels.rules.machine import MergedRows, RuleProblem, solve_rules
from gramplane.kernels.rules.propositions import ABOVE, AT_MOST, CutMachine, refine_cuts
from gramplane.kernels.rules.row_losses import SQUARED, tube_loss
from tests.kernels.rules.test_rules import make, whole
from tests.support.oracles import hierarchy as oracle

LOSSES = {"square": SQUARED, "tube": tube_loss(0.2)}


def numbers(p=4, n=60, tasks=1, seed=0, similarity=None, loss=SQUARED, costs=True):
    """A lattice over p random propositions; targets are sums of conjunctions and noise."""
    lattice, flags = make(p, n, tasks, seed=seed, similarity=similarity)
    rng = np.random.default_rng(seed)
    y = tuple(label * 0.8 + rng.normal(size=n) * 0.4 + t for t, label in enumerate(lattice.y))
    cost = tuple(rng.uniform(0.5, 2.0, n) if costs else np.ones(n) for _ in y)
    return replace(lattice, y=y, cost=cost, loss=loss), flags


def losses_of(loss, residuals):
    """The loss of residuals by its definition."""
    return 0.5 * residuals**2 if loss is SQUARED else np.maximum(np.abs(residuals) - 0.2, 0)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("rho", [2.0, 1.1])
@pytest.mark.parametrize("similarity", [None, np.array([[2.0, 1.0], [1.0, 2.0]])], ids=["one", "tasks"])
def test_bounds_close_and_are_those_of_the_definitions(rho, similarity, loss):
    lattice, _ = numbers(4, 60, 1 if similarity is None else 2, seed=3, similarity=similarity, loss=loss)
    nodes = whole(lattice)
    problem, flags = lattice.problem(nodes, rho), lattice.flags(nodes).astype(float)
    point = solve_rules(problem, tol=1e-4)
    assert point.converged and point.gap <= 1e-4 * point.objective
    f, sums = point.G @ problem.root.T, []
    value, dual, square = 0.5 * oracle.omega(nodes.hull, np.sqrt(np.sum(point.G**2, axis=1)), rho) ** 2, 0.0, 0.0
    for t, (y, cost, beta) in enumerate(zip(lattice.y, lattice.cost, point.alpha, strict=True)):
        value += cost @ losses_of(loss, y - flags.T @ f[:, t] + point.bias[t])
        dual += beta @ y - (0.0 if loss is SQUARED else 0.2 * np.abs(beta).sum())
        square += np.sum(beta**2 / cost) if loss is SQUARED else 0.0
        assert abs(beta.sum()) <= 1e-8 * cost.sum()
        assert loss is SQUARED or (np.abs(beta) <= cost * (1 + 1e-12)).all()
        sums.append(flags @ beta)
    np.testing.assert_allclose(value, point.objective, rtol=1e-10)
    forms = np.einsum("tw,ts,sw->w", np.array(sums), lattice.similarity, np.array(sums))
    gauge = dual_bound(nodes.hull, forms, rho, point.eta, passes=2000).attained
    assert gauge <= point.bound * (1 + 1e-6)
    np.testing.assert_allclose([dual, square], point.dual_point[:2], rtol=1e-10)
    # The multipliers are a dual point: no value of theirs is above the primal one, and theirs at the best scale is the bound.
    scale = min(dual / (square + gauge), point.dual_point.step_bound)
    assert scale * dual - 0.5 * scale**2 * (square + gauge) == pytest.approx(point.objective, rel=1e-3)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_optimum_is_that_of_a_generic_solver(loss):
    from scipy.optimize import minimize

    lattice, _ = numbers(3, 40, seed=1, loss=loss)
    nodes, rho = whole(lattice), 1.3
    problem, flags = lattice.problem(nodes, rho), lattice.flags(nodes).astype(float)
    point = solve_rules(problem, tol=1e-5)
    above, d, y, cost = oracle.pairs(nodes.hull), nodes.hull.d, lattice.y[0], lattice.cost[0]

    def value(x, blur):
        f, residuals = x[:-1], y - flags.T @ x[:-1] - x[-1]
        sizes = (above.T @ (f**2 + blur**2) ** (rho / 2)) ** (1 / rho)
        if loss is SQUARED:
            return 0.5 * (d @ sizes) ** 2 + cost @ losses_of(loss, residuals)
        excess = np.abs(residuals) - 0.2
        return 0.5 * (d @ sizes) ** 2 + cost @ np.where(excess > blur, excess - blur / 2, np.maximum(excess, 0) ** 2 / (2 * blur))

    x = np.full(nodes.size + 1, 0.01)
    for blur in (1e-1, 1e-2, 1e-3, 1e-4):
        x = minimize(value, x, args=(blur,), method="L-BFGS-B", options={"maxiter": 4000, "maxfun": 10**6}).x
    exact = value(x, 1e-12)
    assert point.dual <= exact * (1 + 1e-9)
    assert point.objective <= exact * (1 + 1e-4)


def test_merged_rows_are_the_rows_also_for_conjunctions_outside_the_hull():
    lattice, flags = numbers(4, 300, seed=2)
    nodes = lattice.hull(lattice.named([[0, 1]]))
    problem = lattice.problem(nodes, 1.5)
    assert len(problem.tasks[0].y) <= 4 < 300
    rows = pack_rows(lattice.flags(nodes))
    apart = MergedRows(rows, lattice.y[0], lattice.cost[0], np.arange(300), np.ones(300))
    one, two = (solve_rules(p, tol=1e-7) for p in (problem, RuleProblem(nodes.hull, [apart], np.eye(1), 1.5, loss=SQUARED)))
    np.testing.assert_allclose([one.objective, one.dual], [two.objective, two.dual], rtol=1e-6)
    np.testing.assert_allclose(one.alpha[0], two.alpha[0], atol=1e-3)
    assert np.abs(flags[2:] @ one.alpha[0]).max() > 1.0
    np.testing.assert_allclose(flags @ one.alpha[0], flags @ two.alpha[0], atol=1e-2)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_searches_find_the_violators_of_multipliers_of_either_sign(loss):
    lattice, flags = numbers(6, 90, 2, seed=4, similarity=np.array([[1.0, 0.5], [0.5, 1.0]]), loss=loss, costs=False)
    rng = np.random.default_rng(0)
    # Some are at the bound of the tube, which a search counts as bits; the square has none.
    beta = [np.clip(rng.normal(size=90) * 1.5, -1, 1) for _ in range(2)]
    inside = lattice.hull(lattice.named([[0, 1]]))
    known = {tuple(item) for item in lattice.items(inside.keys)}
    values = {}
    for size in range(1, 7):
        for item in combinations(range(6), size):
            s = np.array([flags[list(item)].all(axis=0) @ b for b in beta])
            values[item] = s @ lattice.similarity @ s / 2.0 ** (2 * size)
    threshold = sorted(values.values())[-12] * (1 + 1e-9)
    expected = {item for item, value in values.items() if value > threshold and item not in known}
    found = lattice.outside(inside, beta, threshold, frontier=False)
    assert {tuple(row[row >= 0].tolist()) for row in found.items} == expected and expected
    for row, value in zip(found.items, found.values, strict=True):
        assert value == pytest.approx(values[tuple(row[row >= 0].tolist())])


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("kind", [ABOVE, AT_MOST])
def test_cuts_move_to_the_least_loss(loss, kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    y = 1.5 * (x > 0.3) + rng.normal(size=80) * 0.3
    weight = 1.5 if kind == ABOVE else -1.5
    machine = CutMachine([[0]], np.array([[weight]]), np.array([0.0 if kind == ABOVE else -1.5]), [np.arange(80)], [y], [np.ones(80)], loss)

    def loss_at(cut):
        holds = x > cut if kind == ABOVE else x <= cut
        return losses_of(loss, y - weight * holds + machine.bias[0]).sum()

    cuts, found = refine_cuts(machine, (x > 0 if kind == ABOVE else x <= 0)[None, :].astype(np.uint8), np.array([kind]), np.zeros(1), [x])
    assert loss_at(cuts[0]) == pytest.approx(min(map(loss_at, x)), abs=1e-12)
    assert machine.loss(machine.decisions(found)) == pytest.approx(loss_at(cuts[0]), abs=1e-12)
