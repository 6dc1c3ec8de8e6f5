"""Homes of blocks: balanced, stable, followed by parts of a task, moved when workers come and go."""

from collections import Counter

import numpy as np
import pytest

from gramplane.cluster.versions import find_conflict, list_differences, software_versions
from gramplane.cluster.workers.affinity import Affinity

TWO = {"a": 1, "b": 1}


def blocks(n):
    return [f"block-{i}" for i in range(n)]


def test_homes_are_balanced_and_neighbours_stay_together():
    homes = Affinity().assign(blocks(16), [10] * 16, TWO)
    assert homes == ["a"] * 8 + ["b"] * 8


@pytest.mark.parametrize("n_workers", [1, 2, 3, 5])
def test_load_is_even_to_one_task(n_workers):
    workers = {str(i): 1 for i in range(n_workers)}
    weights = np.random.default_rng(0).integers(1, 100, 200)
    homes = Affinity().assign(blocks(200), weights.tolist(), workers)
    loads = [sum(int(w) for w, home in zip(weights, homes) if home == worker) for worker in workers]
    assert max(loads) - weights.sum() / n_workers <= 100


def test_threads_count():
    assert Counter(Affinity().assign(blocks(30), [1] * 30, {"a": 2, "b": 1})) == {"a": 20, "b": 10}


def test_homes_last():
    affinity = Affinity()
    first = affinity.assign(blocks(10), [1] * 10, TWO)
    assert affinity.assign(blocks(10), [7] * 10, TWO) == first
    assert affinity.assign(blocks(10)[6:], [1] * 4, TWO) == first[6:]


def test_a_part_of_a_task_goes_where_the_task_was():
    affinity = Affinity()
    tasks = [tuple(blocks(12)[i : i + 3]) for i in range(0, 12, 3)]
    homes = affinity.assign(tasks, [3] * 4, TWO)
    assert homes == ["a", "a", "b", "b"]
    parts = [task[1:2] for task in tasks]
    assert affinity.assign(parts, [1] * 4, TWO) == homes


def test_a_lost_worker_gives_its_blocks_to_the_others():
    affinity = Affinity()
    before = affinity.assign(blocks(12), [1] * 12, {"a": 1, "b": 1, "c": 1})
    after = affinity.assign(blocks(12), [1] * 12, TWO)
    assert Counter(after) == {"a": 6, "b": 6}
    assert all(new == old for new, old in zip(after, before) if old != "c")


def test_a_new_worker_gets_its_share_and_the_rest_stays():
    affinity = Affinity()
    before = affinity.assign(blocks(12), [1] * 12, TWO)
    after = affinity.assign(blocks(12), [1] * 12, {**TWO, "c": 1})
    assert Counter(after) == {"a": 4, "b": 4, "c": 4}
    assert all(new == old for new, old in zip(after, before) if new != "c")


def test_what_really_happened_is_learned():
    affinity = Affinity()
    affinity.assign(blocks(4), [1] * 4, TWO)
    affinity.learn("block-0", "b", 1)
    assert affinity.assign(blocks(4), [1] * 4, TWO) == ["b", "a", "b", "b"]


def test_tasks_without_bytes_are_spread_too():
    assert Affinity().assign(blocks(4), [0] * 4, TWO) == ["a", "a", "b", "b"]


def test_references_need_not_be_hashable():
    assert Affinity().assign([[1], [2]], [1, 1], TWO) == ["a", "b"]


def test_versions_that_matter_are_compared():
    ours = software_versions()
    assert find_conflict(ours, dict(ours)) is None
    assert "gramplane 9.9, the driver gramplane" in str(find_conflict(ours, {**ours, "gramplane": "9.9"}))
    assert "numpy 1.26.4, the driver numpy" in str(find_conflict(ours, {**ours, "numpy": "1.26.4"}))
    assert "python 3.9.1" in str(find_conflict(ours, {**ours, "python": "3.9.1"}))
    other = {**ours, "scipy": "0.1"}
    assert find_conflict(ours, other) is None
    assert list_differences(ours, other) == [f"scipy 0.1/{ours['scipy']}"]


def test_each_pass_is_divided_evenly_whatever_was_read_before():
    affinity = Affinity()
    assert affinity.assign(["whole"], [900], {"a": 1, "b": 1}) == ["a"]
    assert affinity.assign(["upper", "lower"], [500, 400], {"a": 1, "b": 1}) == ["b", "a"]
