"""Groups of tasks: hulls, frontiers, forms and closed forms against enumeration; the search against all groups."""

import numpy as np
import pytest

from gramplane.kernels.graphs.hulls import NodeSet
from gramplane.kernels.tasks.group_search import TaskLattice, group_forms, pair_weights, search_groups
from tests.support.oracles.latent_tasks import above, all_groups, descendant_sum, group_gram, penalties

BOTH = pytest.mark.parametrize("inverted", [False, True])


def random_forms(T, k=3, rank=4, seed=0):
    B = np.random.default_rng(seed).normal(size=(k, T, rank))
    return B @ B.transpose(0, 2, 1)


def as_set(groups):
    return {tuple(row) for row in np.asarray(groups).tolist()}


def hull_of(lattice, groups):
    return NodeSet.empty(lattice.width, np.uint64).with_hulls(lattice.keys(groups), lattice.parents, lattice.penalties)


@BOTH
def test_hulls_and_frontiers_are_those_of_the_enumerated_lattice(inverted):
    lattice, everything, rng = TaskLattice(4, 1.5, inverted), all_groups(4), np.random.default_rng(1)
    sources = lattice.groups(lattice.sources())
    assert as_set(sources) == as_set([w for w in everything if above(everything, w, inverted).sum() == 1])
    for _ in range(6):
        some = np.vstack([sources, everything[rng.random(15) < 0.2]])
        hull = hull_of(lattice, some)
        groups = lattice.groups(hull.keys)
        assert as_set(groups) == as_set([v for v in everything if any(above(v[None], w, inverted)[0] for w in some)])
        np.testing.assert_array_equal(hull.hull.d, penalties(groups, 1.5, inverted))
        for at, w in enumerate(groups):
            assert as_set(groups[hull.hull.ancestors(at)]) == as_set(everything[above(everything, w, inverted)])
        outside = np.array([w for w in everything if tuple(w) not in as_set(groups)])
        expected = [w for w in outside if above(outside, w, inverted).sum() == 1]
        assert as_set(lattice.groups(lattice.frontier(hull.keys))) == as_set(expected)


@BOTH
def test_frontier_of_the_sources_is_every_child(inverted):
    lattice = TaskLattice(5, 2.0, inverted)
    frontier = lattice.frontier(lattice.sources())
    assert len(frontier) == (5 if inverted else 10)
    assert set(lattice.depths(lattice.groups(frontier))) == ({1} if inverted else {2})
    assert len(TaskLattice(1, 1.5, inverted).frontier(TaskLattice(1, 1.5, inverted).sources())) == 0


def test_more_tasks_than_bits_of_a_word():
    lattice = TaskLattice(139, 1.5)
    group = np.zeros((1, 139), bool)
    group[0, [0, 70, 138]] = True
    hull = hull_of(lattice, group)
    assert np.bincount(lattice.depths(lattice.groups(hull.keys))).tolist() == [0, 3, 3, 1]
    assert np.bincount(np.diff(hull.hull.indptr)).tolist() == [0, 3, 0, 3, 0, 0, 0, 1]
    np.testing.assert_array_equal(lattice.groups(lattice.keys(group)), group)
    assert len(lattice.frontier(lattice.sources())) == 139 * 138 // 2


def test_forms_of_groups_are_those_of_their_gram_matrices():
    rng = np.random.default_rng(3)
    task, mu, groups = np.repeat(np.arange(4), 3), 0.3, all_groups(4)
    X, beta = rng.normal(size=(2, 12, 3)), rng.normal(size=12)
    spread = (task[:, None] == np.arange(4)) * beta[:, None]
    grams = X @ X.transpose(0, 2, 1)
    forms = spread.T @ grams @ spread
    expected = [[beta @ group_gram(K, task, w, mu) @ beta for K in grams] for w in groups]
    np.testing.assert_allclose(group_forms(groups, forms, mu), expected, rtol=1e-12)
    weights = rng.random((15, 2))
    pairs = pair_weights(groups, weights, mu)
    combined = sum(pairs[j][task][:, task] * grams[j] for j in range(2))
    by_group = sum(weights[g, j] * group_gram(grams[j], task, w, mu) for g, w in enumerate(groups) for j in range(2))
    np.testing.assert_allclose(combined, by_group, rtol=1e-13)
    np.testing.assert_allclose(np.sum(weights * group_forms(groups, forms, mu)), beta @ combined @ beta, rtol=1e-12)
    assert (pairs == pairs.transpose(0, 2, 1)).all()


@BOTH
@pytest.mark.parametrize("T", [1, 2, 6])
def test_closed_form_of_the_descendant_sum(T, inverted):
    forms, lattice = random_forms(T, k=1)[0], TaskLattice(T, 1.7, inverted)
    groups = all_groups(T)[:: 7 if T == 6 else 1]
    expected = [descendant_sum(s, forms, 0.4, 1.7, inverted) for s in groups]
    np.testing.assert_allclose(lattice.descendant_bounds(groups, forms, 0.4), expected, rtol=1e-12)


def values_of(groups, forms, mu, p, a, inverted):
    inner = p / (2 * (p - 1))
    return np.sum(group_forms(groups, forms, mu) ** inner, axis=1) ** (1 / inner) / penalties(groups, a, inverted) ** 2


@BOTH
@pytest.mark.parametrize("p", [2.0, 1.5, 1.2])
def test_search_finds_the_greatest_groups_and_bounds_the_rest(inverted, p):
    for T, a, seed in [(1, 1.5, 0), (2, 1.5, 1), (6, 1.5, 2), (6, 0.9, 3)]:
        forms, groups, lattice = random_forms(T, seed=seed), all_groups(T), TaskLattice(T, a, inverted)
        values = values_of(groups, forms, 0.3, p, a, inverted)
        for threshold, wanted in [(0.0, 3), (0.999 * np.median(values), 100), (1.01 * values.max(), 5)]:
            found = search_groups(lattice, forms, 0.3, p, threshold, wanted)
            best = np.sort(values[values > threshold])[::-1][:wanted]
            assert len(found.values) == len(best)
            np.testing.assert_allclose(found.values, best, rtol=1e-12)
            np.testing.assert_allclose(values_of(found.groups, forms, 0.3, p, a, inverted), best, rtol=1e-12)
            assert found.complete
            rest = np.sort(values)[::-1][len(best) :]
            assert found.bound >= rest.max(initial=0.0) * (1 - 1e-12)
            assert found.bound <= max(threshold, best.min(initial=np.inf) if len(best) == wanted else 0.0)


@BOTH
def test_a_search_that_is_cut_off_still_bounds_everything(inverted):
    T, groups, lattice = 6, all_groups(6), TaskLattice(6, 1.2, inverted)
    for seed in range(4):
        forms = random_forms(T, seed=seed)
        values = values_of(groups, forms, 0.2, 1.5, 1.2, inverted)
        for cap in [{"max_visits": v} for v in (1, 2, 7, 20)] + [{"max_depth": 1}, {"max_depth": 2}]:
            found = search_groups(lattice, forms, 0.2, 1.5, 0.3 * values.max(), 4, **cap)
            rest = values[[tuple(w) not in as_set(found.groups) for w in groups.tolist()]]
            assert found.bound >= rest.max() * (1 - 1e-12)
            if found.complete:
                assert found.bound <= max(0.3 * values.max(), found.values.min())
        assert not search_groups(lattice, forms, 0.2, 1.5, 0.0, 4, max_visits=2).complete


def test_the_groups_of_42_tasks_are_searched_in_few_visits():
    rng = np.random.default_rng(0)
    U = rng.normal(size=(6, 20))[np.arange(42) % 6] + 0.3 * rng.normal(size=(42, 20))
    forms, lattice = np.einsum("sj,tj->jst", U, U), TaskLattice(42)
    singles = values_of(lattice.groups(lattice.sources()), forms, 0.1, 1.5, 1.5, False)
    found = search_groups(lattice, forms, 0.1, 1.5, singles.max(), 200)
    assert found.complete
    assert found.visits < 10_000
    inside = found.groups[np.argmax(lattice.depths(found.groups))]
    assert len(set(np.flatnonzero(inside) % 6)) == 1
