"""Gram stores that keep the squares of groups of rows alone."""

import numpy as np
import pytest
import zarr

from gramplane.storage import GramStore, MissingBlock, SchemaError
from gramplane.storage.grams.layout import GramLayout

SIZES = (5, 1, 9, 4)


def matrices(k=2):
    F = np.random.default_rng(0).normal(size=(k, sum(SIZES), 3)).astype(np.float32)
    whole = F @ F.transpose(0, 2, 1)
    return np.triu(whole) + np.triu(whole, 1).transpose(0, 2, 1)


def filled(path, K):
    store = GramStore.create(path, data_digest="d", n=sum(SIZES), kernels=[("a", 1), ("b", 2)], block=4, groups=SIZES)
    for task in store.missing():
        store.write(task, K[:, slice(*task.rows), slice(*task.cols)])
    store.commit()
    return GramStore.open(path)


def test_layout_cuts_every_group_from_its_own_beginning():
    layout = GramLayout(19, 4, SIZES)
    assert layout.edges == (0, 4, 5, 6, 10, 14, 15, 19)
    assert list(layout.pairs()) == [(0, 0), (0, 1), (1, 1), (2, 2), (3, 3), (3, 4), (3, 5), (4, 4), (4, 5), (5, 5), (6, 6)]
    assert layout.n_pairs == 11
    assert layout.side == 28
    assert layout.shape(3, 5) == (4, 1)
    assert GramLayout(19, 4).side == 19
    with pytest.raises(SchemaError, match=r"block pair \(1, 2\) joins two groups of rows"):
        layout.check(1, 2)
    with pytest.raises(SchemaError, match="groups are 2 sizes that add up to 18; they must be positive and add up to 19"):
        GramLayout(19, 4, (9, 9))
    with pytest.raises(SchemaError, match="groups are 2 sizes"):
        GramLayout(19, 4, (19, 0))


def test_squares_come_back_with_their_sums_and_nothing_else_is_kept(tmp_path):
    K = matrices()
    store = filled(tmp_path / "g", K)
    assert store.meta.groups == SIZES
    assert store.verify().ok
    kept = np.zeros((19, 19), bool)
    for ref in store.refs():
        rows, cols = slice(*ref.rows), slice(*ref.cols)
        assert np.array_equal(ref.load(), K[:, rows, cols])
        kept[rows, cols] = kept[cols, rows] = True
    groups = np.repeat(np.arange(4), SIZES)
    assert np.array_equal(kept, groups[:, None] == groups)
    for q, digest in enumerate("ab"):
        sums = store.sums(digest)
        assert np.allclose(sums.row_sums, (K[q] * kept).sum(axis=1, dtype=np.float64))
        assert np.array_equal(sums.diagonal, np.diagonal(K[q]))
    with pytest.raises(SchemaError, match="joins two groups"):
        store.block("a", 0, 3)


def test_other_readers_find_the_squares(tmp_path):
    K, bundle = matrices(), next(iter(filled(tmp_path / "g", matrices()).bundles))
    array = zarr.open_group(tmp_path / "g", mode="r")[f"grams/{bundle}/blocks"]
    assert array.shape == (2, 28, 28)
    assert np.array_equal(array[:, 12:16, 12:21], K[:, 6:10, 6:15])
    assert np.isnan(array[:, 0:4, 12:16]).all()


def test_groups_are_part_of_the_identity(tmp_path):
    K = matrices()
    filled(tmp_path / "g", K)
    same = {"data_digest": "d", "n": 19, "block": 4}
    assert GramStore.create(tmp_path / "g", **same, groups=SIZES).missing() == []
    with pytest.raises(SchemaError, match="holds diagonal blocks of 4 groups of rows; whole matrices were requested: choose another place"):
        GramStore.create(tmp_path / "g", **same)
    with pytest.raises(SchemaError, match="of other sizes were requested"):
        GramStore.create(tmp_path / "g", **same, groups=(1, 5, 9, 4))
    whole = GramStore.create(tmp_path / "w", **same, kernels=[("a", 1), ("b", 2)])
    assert set(whole.bundles).isdisjoint(GramStore.open(tmp_path / "g").bundles)


def test_kernels_join_and_leave(tmp_path):
    K = matrices(3)
    store = filled(tmp_path / "g", K[:2])
    more = GramStore.create(tmp_path / "g", data_digest="d", n=19, kernels=[("c", 3)], block=4, groups=SIZES)
    with pytest.raises(MissingBlock, match="11 blocks of these kernels were not computed yet"):
        more.refs(["c"])
    for task in more.missing(["c"]):
        more.write(task, K[2:, slice(*task.rows), slice(*task.cols)])
    more.commit()
    more.drop(["a"])
    store = GramStore.open(tmp_path / "g")
    assert store.kernels == ("b", "c")
    assert all(np.array_equal(ref.load(), K[1:, slice(*ref.rows), slice(*ref.cols)]) for ref in store.refs())
    assert store.orphans() == []
