"""Planning of stripes: invariants over random counts, and determinism."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.storage import SchemaError, plan_stripes
from gramplane.storage.layout import plan_dense, plan_dense_rows

counts_lists = st.lists(st.one_of(st.just(0), st.integers(0, 12), st.integers(50, 90)), min_size=0, max_size=60)


@settings(max_examples=200, deadline=None)
@given(counts=counts_lists, stripe_bytes=st.integers(4, 200), itemsize=st.sampled_from([4, 8]))
def test_stripes_cover_all_columns_once_and_fit_a_chunk(counts, stripe_bytes, itemsize):
    if stripe_bytes < itemsize:
        return
    plan = plan_stripes(counts, itemsize, stripe_bytes=stripe_bytes)
    edges = plan.edges
    assert edges[0] == 0 and edges[-1] == len(counts) and (np.diff(edges) > 0).all()
    assert plan.chunk <= max(1, stripe_bytes // itemsize)
    for s in range(plan.n_stripes):
        inside = counts[edges[s] : edges[s + 1]]
        assert plan.nnz[s] == sum(inside)
        assert plan.nnz[s] <= plan.chunk or len(inside) == 1
        assert plan.offsets[s + 1] - plan.offsets[s] == -(-sum(inside) // plan.chunk)


@settings(max_examples=100, deadline=None)
@given(runs=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), min_size=1, max_size=20), stripe_bytes=st.integers(8, 80))
def test_no_cut_divides_a_group(runs, stripe_bytes):
    labels = np.repeat(np.arange(len(runs)) % 7, [length for length, _ in runs])
    counts = np.repeat([c for _, c in runs], [length for length, _ in runs])
    plan = plan_stripes(counts, 4, stripe_bytes=stripe_bytes, groups=labels)
    inner = plan.edges[1:-1]
    assert (labels[inner] != labels[inner - 1]).all()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 7, 8, 9, 12, 15, 16, 17, 33]), max_size=30))
def test_chunks_are_no_more_than_four_times_those_that_would_be_full_and_one(counts):
    plan = plan_stripes(counts, 8, stripe_bytes=16 * 8)
    assert plan.n_chunks * plan.chunk <= 4 * sum(counts) + plan.chunk
    assert plan.n_chunks * plan.chunk <= sum(counts) + plan.chunk * np.count_nonzero(counts)


def test_equal_columns_give_about_equal_stripes():
    plan = plan_stripes(np.full(1000, 7), 4, stripe_bytes=4 * 500)
    assert plan.nnz.min() >= 0.9 * plan.nnz.max()
    assert plan.n_stripes == 15  # 71 whole columns of 7 fit a chunk of 500


def test_small_data_get_one_small_chunk():
    plan = plan_stripes([3, 0, 4], 8)
    assert (plan.n_stripes, plan.chunk, plan.n_chunks) == (1, 7, 1)


def test_default_stripe_is_four_megabytes_of_values():
    assert plan_stripes(np.full(3000, 1000), 4).chunk == 1 << 20
    assert plan_stripes(np.full(3000, 1000), 8).chunk == 1 << 19


@pytest.mark.parametrize(("n", "d"), [(1, 1), (10, 3), (100, 1000), (10**6, 40), (10**7, 5), (0, 4), (5, 0)])
@pytest.mark.parametrize("plan", [plan_dense, plan_dense_rows])
def test_dense_grid_covers_the_array_in_bounded_chunks(n, d, plan):
    layout = plan(n, d, 8)
    assert layout.chunk[0] * layout.chunk[1] * 8 <= 4 << 20
    covered = sum((r.stop - r.start) * (c.stop - c.start) for r, c in (layout.cell(i, j) for i, j in np.ndindex(*layout.grid)))
    assert covered == n * d


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"counts": [-1], "itemsize": 4}, "non-negative"),
        ({"counts": [[1]], "itemsize": 4}, "vector"),
        ({"counts": [1], "itemsize": 8, "stripe_bytes": 4}, "stripe_bytes=4"),
        ({"counts": [1, 2], "itemsize": 8, "groups": [1]}, "groups has shape"),
        ({"counts": np.full(3, 2**30), "itemsize": 4, "groups": [1, 1, 1]}, "2\\^31"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(SchemaError, match=message):
        plan_stripes(arguments.pop("counts"), **arguments)
