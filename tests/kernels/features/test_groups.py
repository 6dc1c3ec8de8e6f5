"""Groups of features: structure, scores under any stripes, tree search, columns of a cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.kernels.features.groups import (
    GroupIndex,
    build_groups,
    cut_columns,
    finish_partials,
    group_scores,
    merge_partials,
    tree_select,
)
from gramplane.kernels.features.scores import TopB, merge_top, top_b
from tests.support.oracles.selection import Ranked, best, exact_group_score, is_laminar

FEW = settings(max_examples=40, deadline=None)
D = 16


def members(index: GroupIndex, g: int) -> list[int]:
    return index.members[index.indptr[g] : index.indptr[g + 1]].tolist()


def ranked(index: GroupIndex, c: np.ndarray, B: int) -> Ranked:
    return best([((g,), exact_group_score(c, members(index, g), index.weight[g])) for g in range(index.n_groups)], B)


def as_list(top: TopB) -> Ranked:
    assert np.array_equal(top.keys, top.values)
    return [((int(g),), float(v)) for g, v in zip(top.ids, top.values, strict=True)]


def by_stripes(index: GroupIndex, c: np.ndarray, edges: list[int], B: int, order: list[int] | None = None) -> TopB:
    found = [group_scores(c[a:b], a, index, B) for a, b in pairwise(edges)]
    found = [found[k] for k in order] if order else found
    cut = merge_partials([cut for _, cut in found])
    return finish_partials(merge_top([top for top, _ in found], B), *cut, B)


def random_tree(seed: int) -> list[list[int]]:
    """Nested intervals with some equal sets, in shuffled order."""
    rng = np.random.default_rng(seed)
    out, work = [[0]], [(0, D)]
    while work:
        a, b = work.pop()
        out += [list(range(a, b))] * int(rng.integers(1, 3))
        if b - a > 1:
            middle = int(rng.integers(a + 1, b))
            work += [part for part in ((a, middle), (middle, b)) if rng.random() < 0.8]
    return [out[k] for k in rng.permutation(len(out))]


def some_groups(kind: str, seed: int) -> GroupIndex:
    rng = np.random.default_rng(seed)
    if kind == "labels":
        labels = rng.integers(-1, 5, D)
        labels[0] = 3
        return build_groups(labels, D, rng.choice(["none", "1/size"]))
    if kind == "tree":
        return build_groups(random_tree(seed), D)
    lists = [np.sort(rng.choice(D, rng.integers(1, 7), replace=False)) for _ in range(6)]
    lists[0] = np.union1d(lists[0], np.setdiff1d(np.arange(D), np.concatenate(lists)))
    return build_groups(lists, D, rng.uniform(0.1, 2.0, 6))


# --- structure --------------------------------------------------------------------------------------------------------------------


@FEW
@given(st.lists(st.sets(st.integers(0, 7), min_size=1), min_size=1, max_size=6))
def test_kind_is_what_comparing_all_sets_says(groups: list[set[int]]) -> None:
    groups = [*groups, *({j} for j in set(range(8)).difference(*groups))]
    lists = [sorted(group) for group in groups]
    index = build_groups(lists, 8)
    disjoint = sum(len(group) for group in groups) == len(set().union(*groups))
    assert index.kind == ("disjoint" if disjoint else "tree" if is_laminar(lists) else "overlap")
    assert [members(index, g) for g in range(index.n_groups)] == lists
    for j in range(8):
        around = index.feature_groups[index.feature_indptr[j] : index.feature_indptr[j + 1]]
        assert around.tolist() == [g for g, group in enumerate(lists) if j in group]
    assert (index.parent is None) == (index.kind != "tree")
    if index.parent is not None:
        for g, around in enumerate(index.parent):
            larger = [len(groups[h]) for h in range(len(groups)) if groups[h] > groups[g]]
            equal_before = [h for h in range(g) if groups[h] == groups[g]]
            if around < 0:
                assert not larger and not equal_before
            else:
                assert groups[around] >= groups[g]
                assert len(groups[around]) == (len(groups[g]) if equal_before else min(larger))


def test_labels_keep_their_names_and_negative_means_none() -> None:
    index = build_groups([7, 3, -1, 7, 3, 3], 6)
    assert index.kind == "disjoint" and index.labels.tolist() == [3, 7]
    assert [members(index, g) for g in range(2)] == [[1, 4, 5], [0, 3]]
    assert index.sizes.tolist() == [3, 2] and index.n_features == 6
    assert index.weight.tolist() == [1.0, 1.0]


def test_default_weight_is_one_over_size_for_trees_only() -> None:
    assert build_groups([[0, 1, 2], [1, 2], [0]], 3).weight.tolist() == [1 / 3, 1 / 2, 1.0]
    assert build_groups([[0, 1], [1, 2]], 3).weight.tolist() == [1.0, 1.0]
    assert build_groups([[0, 1], [2]], 3, "1/size").weight.tolist() == [0.5, 1.0]
    assert build_groups([[0, 1], [2]], 3, np.array([2, 3])).weight.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("groups", "weight", "message"),
    [
        ([0, 1], None, "2 labels; it needs one for each of the 3 features"),
        ([-1, -1, -1], None, "every label is negative"),
        (np.zeros(3), None, "labels must be one integer per feature"),
        (np.zeros((3, 1), int), None, "2-dimensional"),
        ([], None, "empty list"),
        ([[0, 1, 2], []], None, r"groups\[1\] is empty"),
        ([[0, 1], [2, 3]], None, r"groups\[1\] names feature 3; features are 0 to 2"),
        ([[0, 1], [-1, 2]], None, r"groups\[1\] names feature -1"),
        ([[0, 1], [2, 2]], None, r"groups\[1\] names a feature twice"),
        ([[0.5, 1], [2]], None, r"groups\[0\] is a 1-dimensional float64"),
        ([[0], [2]], None, "leaves out 1 features, the first is feature 1"),
        ([[0, 1], [2]], "size", "'size'; it must be 'none'"),
        ([[0, 1], [2]], np.ones(3), r"shape \(3,\)"),
        ([[0, 1], [2]], np.array([1.0, 0.0]), r"weight\[1\] is 0.0"),
        ([[0, 1], [2]], np.array([np.nan, 1.0]), r"weight\[0\] is nan"),
    ],
)
def test_bad_groups_are_named(groups: object, weight: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_groups(groups, 3, weight)  # type: ignore[arg-type]


# --- scores -----------------------------------------------------------------------------------------------------------------------


@FEW
@given(st.sampled_from(["labels", "tree", "overlap"]), st.integers(0, 999), st.lists(st.integers(0, D), max_size=5), st.randoms())
def test_scores_are_exact_under_any_stripes_and_order(kind: str, seed: int, cuts: list[int], random) -> None:
    index = some_groups(kind, seed)
    c = np.random.default_rng(seed).normal(size=D) * 10.0 ** np.random.default_rng(seed).integers(-3, 4, D)
    edges = sorted({0, D, *cuts})
    order = list(range(len(edges) - 1))
    random.shuffle(order)
    for B in (1, 3, 50):
        assert as_list(by_stripes(index, c, edges, B, order)) == ranked(index, c, B)


def test_scores_equal_those_of_replicated_columns() -> None:
    rng = np.random.default_rng(0)
    X, u = rng.normal(size=(20, D)), rng.normal(size=20)
    for kind in ("labels", "tree", "overlap"):
        index = some_groups(kind, 1)
        columns = [X[:, members(index, g)] * np.sqrt(index.weight[g]) for g in range(index.n_groups)]
        expected = [float(np.sum((part.T @ u) ** 2)) for part in columns]
        top = by_stripes(index, X.T @ u, [0, 5, D], index.n_groups)
        assert np.allclose(top.keys, np.array(expected)[top.ids], rtol=1e-12)


def test_groups_of_one_are_single_features() -> None:
    c = np.random.default_rng(0).integers(-3, 4, D).astype(float)
    top = by_stripes(build_groups(np.arange(D), D), c, [0, D], 5)
    assert top.ids.tolist() == top_b(np.abs(c), c, 5).ids.tolist()


def test_equal_groups_tie_wherever_stripes_cut_them() -> None:
    rng = np.random.default_rng(0)
    c = np.tile(rng.normal(size=8), 2)
    index = build_groups(np.repeat([0, 1], 8), D)
    for cut in range(1, D):
        top = by_stripes(index, c, [0, cut, D], 2)
        assert top.ids.tolist() == [0, 1] and top.keys[0] == top.keys[1]


def test_read_only_tables_are_read() -> None:
    index, c = some_groups("tree", 3), np.arange(float(D))
    for table in (index.indptr, index.members, index.feature_indptr, index.feature_groups, index.weight, index.parent, c):
        assert table is not None
        table.flags.writeable = False
    assert as_list(by_stripes(index, c, [0, D], 4)) == ranked(index, c, 4) == as_list(tree_select(c, index, 4)[0])


def test_bad_stripes_and_scores_are_named() -> None:
    index = build_groups(np.zeros(4, int), 4)
    with pytest.raises(ValueError, match="features 2 to 5, but the groups have 4 features"):
        group_scores(np.zeros(4), 2, index, 1)
    with pytest.raises(ValueError, match="candidate 0 is not finite"):
        group_scores(np.full(4, 1e200), 0, index, 1)
    _, cut = group_scores(np.full(2, 1e200), 0, index, 1)
    with pytest.raises(ValueError, match="candidate 0 is not finite"):
        finish_partials(merge_top([], 1), *merge_partials([cut, cut]), 1)


# --- tree search ------------------------------------------------------------------------------------------------------------------


@FEW
@given(st.integers(0, 10**6), st.sampled_from(["none", "1/size", "random"]), st.integers(1, 8), st.booleans())
def test_tree_search_equals_full_enumeration(seed: int, weight: str, B: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    lists = random_tree(seed)
    eta = rng.choice([0.5, 1.0, 2.0], len(lists)) if weight == "random" else weight
    index = build_groups(lists, D, eta)
    c = rng.integers(-1, 2, D).astype(float) if ties else rng.normal(size=D)
    full = ranked(index, c, B)
    top, visited = tree_select(c, index, B)
    assert as_list(top) == full and visited <= index.n_groups
    bar = full[-1][1] if full else 0.0
    assert as_list(tree_select(c, index, B, threshold=bar)[0]) == full


def test_pruning_leaves_light_subtrees_unread_but_visits_ties() -> None:
    left, right = list(range(8)), list(range(8, 16))
    groups = [left, right, *[[j] for j in range(16)]]
    index = build_groups(groups, D, "1/size")
    c = np.concatenate((np.full(8, 10.0), np.full(8, 0.1)))
    top, visited = tree_select(c, index, 3)
    assert top.ids.tolist() == [0, 2, 3]
    # The right half cannot reach 100; all of the left half ties and must be seen.
    assert visited == 2 + 8
    assert tree_select(c, index, 3, threshold=100.0)[1] == 2 + 8
    # An exact tie below a group of higher index still wins by its lower one.
    tied = build_groups([[1], [0, 1]], 2, np.array([2.0, 1.0]))
    assert tree_select(np.array([1.0, 1.0]), tied, 1)[0].ids.tolist() == [0]


def test_tree_search_needs_a_tree_and_all_correlations() -> None:
    with pytest.raises(ValueError, match="kind 'disjoint'"):
        tree_select(np.zeros(2), build_groups([0, 1], 2), 1)
    tree = build_groups([[0, 1], [1]], 2)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        tree_select(np.zeros(3), tree, 1)
    with pytest.raises(ValueError, match="group 0 is not finite"):
        tree_select(np.full(2, 1e200), tree, 1)


# --- columns of a cut -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["labels", "tree", "overlap"])
def test_scaled_columns_give_the_sum_of_the_groups_kernels(kind: str) -> None:
    index = some_groups(kind, 5)
    X = np.random.default_rng(0).normal(size=(9, D))
    chosen = np.array([2, 0, 1])
    features, scale = cut_columns(index, chosen)
    Z = X[:, features] * scale
    expected = sum(index.weight[g] * X[:, members(index, g)] @ X[:, members(index, g)].T for g in chosen)
    assert np.allclose(Z @ Z.T, expected)
    assert features.tolist() == sorted({j for g in chosen for j in members(index, g)})


def test_cut_columns_of_nothing_and_of_a_missing_group() -> None:
    index = build_groups([[0, 1], [1, 2]], 3)
    features, scale = cut_columns(index, np.array([1, 0]))
    assert features.tolist() == [0, 1, 2] and scale.tolist() == [1.0, np.sqrt(2.0), 1.0]
    assert [part.size for part in cut_columns(index, np.zeros(0, int))] == [0, 0]
    with pytest.raises(ValueError, match="group 2 does not exist; groups are 0 to 1"):
        cut_columns(index, np.array([2]))
