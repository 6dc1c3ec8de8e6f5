"""Rows held out: disjoint parts of the promised shares, and a refusal where a part would be empty."""

import numpy as np
import pytest

from gramplane.pipeline.inputs.scores import plain_folds, stratified_folds, stratified_split
from gramplane.storage.errors import DataError


@pytest.mark.parametrize("shares", [[0.25], [1 / 3] * 3, [0.2, 0.5]])
def test_parts_are_disjoint_and_of_their_shares(shares):
    codes = np.repeat([0, 1], 60)
    for masks in (plain_folds(120, 3, shares), stratified_folds(codes, 3, shares)):
        assert np.sum(masks, axis=0).max() == 1
        assert [mask.sum() for mask in masks] == [round(120 * share) for share in shares]
    for mask, share in zip(stratified_folds(codes, 3, shares), shares, strict=True):
        assert np.bincount(codes[mask]).tolist() == [round(60 * share)] * 2
    assert (plain_folds(120, 3, shares)[0] != plain_folds(120, 4, shares)[0]).any()


@pytest.mark.parametrize(("n", "shares"), [(2, [1 / 3] * 3), (3, [0.1]), (3, [0.9]), (1, [0.5, 0.5])])
def test_a_part_without_a_row_is_refused(n, shares):
    with pytest.raises(DataError, match=f"{n} rows are too few to appear in every part"):
        plain_folds(n, 0, shares)
    codes = np.concatenate([np.zeros(40, int), np.ones(n, int)])
    with pytest.raises(DataError, match=f"class 'rare' has {n} rows, too few"):
        stratified_folds(codes, 0, shares, ("common", "rare"))
    if len(shares) == 1:
        with pytest.raises(DataError, match="class 1 has"):
            stratified_split(codes, shares[0], 0)
