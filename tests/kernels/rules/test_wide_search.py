"""Searches over many propositions: nothing as large as the square of their number, and the violators that pairs held would give."""

import tracemalloc
from itertools import combinations

import numpy as np
import pytest

from gramplane.kernels.rules import levels, search
from gramplane.kernels.rules.bits import pack_bits
from gramplane.kernels.rules.lattice import RuleLattice
from gramplane.pipeline.methods.rule_ensemble.config import RuleConfig
from gramplane.pipeline.methods.rule_ensemble.lattice_problem import LatticeProblem, conditions_looked_at
from gramplane.pipeline.methods.rule_ensemble.problem import RuleMaster
from tests.kernels.rules.test_row_blocks import level_search, same
from tests.kernels.rules.test_rules import make

INSIDE = [[0, 1], [3], [2, 4]]


def multipliers(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.minimum(rng.random(n) * 1.6, 1) * (rng.random(n) < 0.8)


def next_to_the_hull(lattice, flags, inside, alpha):
    """Values of the conjunctions outside whose beginnings are inside, by lists of all pairs that may stand together."""
    p, known = len(flags), {tuple(item) for item in lattice.items(inside.keys)}
    together, sizes = flags.astype(int) @ flags.T, flags.sum(axis=1)
    pairs = (together > 0) & (together < sizes[:, None]) & (together < sizes)
    values = {}
    for size in range(1, 4):
        for item in combinations(range(p), size):
            if item not in known and (size == 1 or item[:-1] in known) and all(pairs[v, w] for v, w in combinations(item, 2)):
                values[item] = float(flags[list(item)].all(axis=0) @ (lattice.y[0] * alpha)) ** 2 / 4.0**size
    return values


def named(found):
    return {tuple(row[row >= 0].tolist()): value for row, value in zip(found.items, found.values, strict=True)}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.5])
def test_violators_next_to_the_hull_are_those_that_lists_of_pairs_give(seed, threshold):
    lattice, flags = make(8, 60, seed=seed, skip=True)
    alpha, inside = multipliers(60, seed), lattice.hull(lattice.named(INSIDE))
    expected = {item: value for item, value in next_to_the_hull(lattice, flags, inside, alpha).items() if value > threshold}
    found = named(lattice.outside(inside, [alpha], threshold, frontier=True))
    assert expected.keys() == found.keys()
    np.testing.assert_allclose([found[item] for item in expected], list(expected.values()), atol=1e-9)


@pytest.mark.parametrize("most", [1, 3, 7])
def test_only_the_conditions_of_the_greatest_bounds_and_those_inside_extend_sets(most, monkeypatch):
    monkeypatch.setattr(levels, "PAIR_BYTES", 24)
    lattice, _ = make(8, 90, seed=1, skip=True)
    alpha, inside = multipliers(90), lattice.hull(lattice.named(INSIDE))
    every = named(lattice.outside(inside, [alpha], 0.02, frontier=True))
    walk = lattice.outside(inside, [alpha], 0.02, frontier=True, most=most)
    same(level_search(lattice, inside, lattice.signed([alpha]), 0.02).frontier(most=most), walk)
    some = named(walk)
    assert some.items() <= every.items() and {item for item in every if len(item) == 1} <= some.keys()
    signs = lattice.y[0] * alpha
    sums = np.array([[np.maximum(s * signs, 0) @ row for s in (1, -1)] for row in make(8, 90, seed=1)[1]])
    greatest = set(np.argsort(-(np.maximum(*sums.T) ** 2), kind="stable")[:most].tolist())
    inner = {item[0] for item in lattice.items(inside.keys) if len(item) == 1}
    assert all(item[-1] in greatest | inner for item in some if len(item) > 1) and (most > 1 or len(some) < len(every))


@pytest.mark.parametrize("limit", [4096, 6])
@pytest.mark.parametrize("add", [1, 3, 5])
def test_those_that_join_are_the_worst_of_all_next_to_the_hull(add, limit, monkeypatch):
    monkeypatch.setattr(search, "MAX_VIOLATORS", limit)
    lattice, flags = make(9, 70, seed=2, skip=True)
    alpha, inside = multipliers(70, 3), lattice.hull(lattice.named(INSIDE))
    problem = LatticeProblem(lattice, RuleConfig(add=add))
    found = problem.frontier(inside, RuleMaster(np.zeros((inside.size, 1)), np.zeros(1), alpha, 0), 0.01, None)
    worst = np.sort([value for value in next_to_the_hull(lattice, flags, inside, alpha).values() if value > 0.01])[::-1]
    assert len(worst) > 5 and found.worst == pytest.approx(worst[0])
    joined = [tuple(item) for item in lattice.items(found.worst_first(add))]
    assert len(set(joined)) == add
    np.testing.assert_allclose(np.sort(found.values)[::-1][:add], worst[:add])


def test_no_search_holds_the_square_of_the_number_of_propositions():
    p, n = 30_000, 64
    rng = np.random.default_rng(0)
    columns = pack_bits((rng.random((p, n)) < 0.5).astype(np.uint8))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    lattice = RuleLattice(columns, n, (np.arange(n),), (y,), (np.ones(n),), np.eye(1), 2.0, True)
    problem, inside = LatticeProblem(lattice, RuleConfig(max_visits=10_000)), lattice.hull(lattice.named(INSIDE))
    tracemalloc.start()
    found = problem.frontier(inside, RuleMaster(np.zeros((inside.size, 1)), np.zeros(1), np.ones(n), 0), 1.0, None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.values) >= 30 and peak < p * p / 8 / 4
    assert found.looked_at <= 4 * (1 << 20) + 4 * p


def test_more_conditions_are_looked_at_where_the_certificate_may_take_more():
    config = RuleConfig()
    assert conditions_looked_at(config, 1) == config.max_visits and conditions_looked_at(config, 1000) == config.max_visits // 1000
    assert conditions_looked_at(RuleConfig(max_visits=1), 1 << 10) == 1 << 10 and conditions_looked_at(config, 10**9) == config.add
