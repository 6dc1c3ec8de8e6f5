"""The search for the best degree-2 coordinates: head, screening, fallback and tiles against full enumeration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.cluster import Executor, MemorySink
from gramplane.kernels.features.pairs import PairLimits, PairMap, TooManyProducts, TopPairs, pair_columns
from gramplane.kernels.features.scores import correlations
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.methods.fgm.pairs import PairAtoms
from gramplane.pipeline.methods.fgm.score_pass import Query
from gramplane.storage import MemoryBlocks
from tests.support.oracles.selection import best
from tests.support.pairs import MAP, as_list, everything, problem

FEW = settings(max_examples=25, deadline=None)
LIMITS = [PairLimits(), PairLimits(4, 8), PairLimits(2, 5), PairLimits(1, 2), PairLimits(9, 3)]


class Search:
    """Searches over one data set, and what they reported."""

    def __init__(self, X: Any, pair_map: PairMap = MAP, limits: PairLimits | None = None, stripe_bytes: int = 4 << 20) -> None:
        self.events = MemorySink()
        self.ctx = RunContext(Executor(events=self.events), data=MemoryBlocks(X, stripe_bytes=stripe_bytes), emit=self.events)
        self.atoms = PairAtoms(pair_map.gamma, pair_map.coef0, limits)

    def __call__(self, u: np.ndarray, B: int) -> TopPairs:
        [top] = self.atoms.select(self.ctx.data, self.ctx, u[None, :], [Query(B)])
        return top

    def survivors(self) -> list[int]:
        return [event["survivors"] for event in self.events.named("pairs")]

    def programs(self) -> set[str]:
        return {event["program"] for event in self.events.named("plan")}


@FEW
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 60), st.sampled_from(LIMITS), st.sampled_from([64, 4 << 20]))
def test_sparse_search_equals_full_enumeration_to_the_bit(seed: int, whole: bool, B: int, limits: PairLimits, stripe: int) -> None:
    X, u = problem(seed, whole)
    search = Search(sp.csc_array(X), limits=limits, stripe_bytes=stripe)
    assert as_list(search(u, B)) == best(everything(X, u), B)
    # What is kept between rounds must not change the next.
    assert as_list(search(u[::-1].copy(), B)) == best(everything(X, u[::-1]), B)


@FEW
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 60))
def test_dense_search_equals_full_enumeration_to_the_bit(seed: int, whole: bool, B: int) -> None:
    X, u = problem(seed, whole)
    expected = best(everything(X, u), B)
    assert as_list(Search(X)(u, B)) == expected
    assert as_list(Search(np.asfortranarray(X))(u, B)) == expected


def test_columns_of_chosen_coordinates_have_their_scores_as_correlations() -> None:
    X, u = problem(1, whole=False)
    top = Search(sp.csc_array(X))(u, 40)
    features = np.unique(top.ids[top.ids >= 0])
    for block in (X[:, features], sp.csc_array(X[:, features]), sp.csc_array(X[:, features].astype(np.float32))):
        Z = pair_columns(block, features, top.ids, MAP)
        assert np.allclose(correlations(Z, u), top.values, rtol=1e-12 if block.dtype == np.float64 else 1e-5)


def test_screening_leaves_rare_features_out_and_the_limits_change_nothing() -> None:
    rng = np.random.default_rng(0)
    popularity = 1.0 / (np.arange(3000) + 5.0)
    columns = np.searchsorted(np.cumsum(popularity) / popularity.sum(), rng.random(60_000))
    X = sp.csc_array((np.ones(60_000), (rng.integers(0, 2000, 60_000), columns)), shape=(2000, 3001))
    X.sum_duplicates()
    u = np.where(rng.random(2000) < 0.5, 1.0, -1.0)
    usual, forced = Search(X, limits=PairLimits(head_start=64)), Search(X, limits=PairLimits(head_start=16, max_head=64))
    top = usual(u, 20)
    [survived] = usual.survivors()
    assert survived < 1500 and "pair-fallback" not in usual.programs()
    hinted = Search(X, limits=PairLimits(head_start=survived))
    assert as_list(top) == as_list(hinted(u, 20)) == as_list(forced(u, 20))
    assert "pair-fallback" in forced.programs()


def test_budget_refuses_by_name() -> None:
    X, u = problem(2, whole=True, n=50, d=12)
    with pytest.raises(TooManyProducts, match=r"of 12 features survive the screening and form .* products; the budget is 3"):
        Search(sp.csc_array(X), limits=PairLimits(2, 4, budget=3))(u, 50)
    with pytest.raises(TooManyProducts, match=r"12 dense features over .* take 3\.3e.* the budget is 300"):
        Search(X, limits=PairLimits(budget=3))(u, 50)


@pytest.mark.parametrize("coef0", [0.0, 1.0])
def test_fewer_coordinates_than_asked_for(coef0: float) -> None:
    for d in (1, 2, 3):
        X = np.zeros((4, d))
        X[:, 0] = [1.0, 2.0, 0.0, -1.0]
        u = np.array([1.0, 1.0, 1.0, 0.5])
        expected = best(everything(X, u, PairMap(1.0, coef0)), 10)
        for block in (X, sp.csc_array(X)):
            assert as_list(Search(block, PairMap(1.0, coef0))(u, 10)) == expected
            assert Search(block, PairMap())(np.zeros(4), 3).ids.shape == (0, 2)
    assert len(Search(sp.csc_array((4, 3)))(np.ones(4), 2).keys) == 0


def test_duplicate_columns_tie_and_the_lower_pair_wins() -> None:
    # All columns full and equally frequent: nothing but the ids tells a column from its copy.
    X = np.random.default_rng(8).normal(size=(30, 9))
    u = np.random.default_rng(9).normal(size=30)
    X = np.hstack([X, X[:, [0, 4]]])
    for block in (X, sp.csc_array(X)):
        top = Search(block)(u, 500)
        found = {(int(a), int(b)): (place, key) for place, ((a, b), key) in enumerate(zip(top.ids, top.keys, strict=True))}
        for original, copy in ((0, 9), (4, 10)):
            for j in set(range(9)) - {original}:
                first, second = found[min(original, j), max(original, j)], found[j, copy]
                assert first[1] == second[1] and first[0] < second[0]


def test_tiny_values_are_found_by_the_dense_search_too() -> None:
    X = np.array([[1e-170, 1.0, 3e-170], [0.0, 2.0, 1e-170]])
    expected = best(everything(X, np.ones(2)), 9)
    for block in (X, sp.csc_array(X)):
        assert as_list(Search(block)(np.ones(2), 9)) == expected
    assert ((0, 1), MAP.product * 1e-170) in expected


def test_stored_zeros_change_nothing() -> None:
    X, u = problem(4, whole=True)
    padded = sp.csc_array(X + 100.0 * (X == 0))
    padded.data[padded.data == 100.0] = 0.0
    assert as_list(Search(padded)(u, 30)) == as_list(Search(sp.csc_array(X))(u, 30))


@pytest.mark.parametrize(
    ("block", "u", "B", "message"),
    [
        ("sparse", np.ones(24), 0, "B = 0"),
        ("sparse", np.ones(23), 1, "the 24 rows of X"),
        ("sparse", np.full(24, np.nan), 1, "not finite"),
        ("sparse", np.full(24, 1e308), 1, "not finite"),
        ("huge", np.ones(24), 1, "overflow|not finite"),
    ],
)
def test_bad_values_are_named(block: str, u: np.ndarray, B: int, message: str) -> None:
    X, _ = problem(0, whole=True)
    search = Search(sp.csc_array(X) if block == "sparse" else X * 1e200)
    with pytest.raises(Exception, match=message) as caught:
        search(u, B)
    assert isinstance(caught.value.__cause__ or caught.value, ValueError)
