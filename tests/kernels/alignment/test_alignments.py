"""Alignments of per-feature kernels against written-out Gram matrices; widths against all pairs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.kernels.alignment import alignment as module
from gramplane.kernels.alignment.alignment import Alignments, alignments
from gramplane.kernels.alignment.median_width import COARSE_GROUPS, MAX_EXACT_VALUES, RANK_TOLERANCE, _group_values, median_distance
from gramplane.kernels.grams.feature_sums import MAX_UNSORTED_RANGE, WORK_ROWS, gaussian_forms
from tests.support.oracles import kta

RNG = np.random.default_rng(7)
SHAPES = {
    "normal": lambda m: RNG.normal(size=m),
    "far from zero": lambda m: 1e6 + RNG.normal(size=m),
    "uniform": lambda m: RNG.random(m),
    "long tail": lambda m: np.exp(1.5 * RNG.normal(size=m)),
    "longer tail": lambda m: np.exp(5 * RNG.normal(size=m)),
    "cauchy": lambda m: RNG.standard_cauchy(m),
    "two clusters": lambda m: RNG.normal(size=m) * 1e-3 + (RNG.random(m) < 0.5),
    "binary": lambda m: (RNG.random(m) < 0.3) * 1.0,
    "binary, no zero": lambda m: 2.0 + (RNG.random(m) < 0.3),
    "three values": lambda m: RNG.integers(-1, 2, m) * 1.0,
    "as many as few": lambda m: np.arange(m) % MAX_EXACT_VALUES * 1.0,
    "one more than few": lambda m: np.arange(m) % (MAX_EXACT_VALUES + 1) * 1.0,
    "integers": lambda m: RNG.integers(0, 256, m) * 1.0,
    "half zeros": lambda m: RNG.normal(size=m) * (RNG.random(m) < 0.5),
    "nearly all zeros": lambda m: np.where(np.arange(m) == m // 2, 3.5, 0.0),
    "one outlier": lambda m: np.where(np.arange(m) == 1, 1e9, RNG.normal(size=m)),
}


def target(m: int) -> np.ndarray:
    y = np.where(RNG.random(m) < 0.4, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return y


def columns(m: int) -> np.ndarray:
    return np.column_stack([make(m) for make in SHAPES.values()])


def same(a: Alignments, b: Alignments) -> bool:
    return all(np.array_equal(x, z) for x, z in zip(a, b, strict=True))


# --- oracle -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "direct"])
@pytest.mark.parametrize("m", [2, 3, 40, 300])
def test_gaussian_alignments_are_those_of_the_centred_gram_matrix(m: int, method: str) -> None:
    X, y = columns(m), target(m)
    found = alignments(X, y, method=method)
    usual = np.sum((y - y.mean()) ** 2) / m
    for j, name in enumerate(SHAPES):
        if np.ptp(X[:, j]) == 0:
            assert found.values[j] == found.traces[j] == found.widths[j] == 0, name
            continue
        a, trace = kta.alignment(X[:, j], y, "rbf", found.widths[j])
        error = abs(found.values[j] - a)
        # The second term is what the written-out matrices themselves lose.
        assert error <= found.errors[j] + 1e-11 * max(a, usual), name
        assert error <= 1e-6 * max(a, usual), name
        assert found.traces[j] == pytest.approx(trace, rel=1e-6), name
        assert 0 <= found.errors[j] <= 1e-6 * max(a, usual), name


@pytest.mark.parametrize("width", [1e-3, 0.1, 30.0, 1e4])
@pytest.mark.parametrize("tol", [1e-2, 1e-10])
def test_given_widths_keep_the_error_they_promise(width: float, tol: float) -> None:
    X, y = np.column_stack([SHAPES[name](120) for name in ("normal", "long tail", "half zeros", "integers")]), target(120)
    found, exact = alignments(X, y, widths=width, tol=tol), alignments(X, y, widths=width, method="direct")
    assert np.array_equal(found.widths, np.full(4, width))
    assert np.all(np.abs(found.values - exact.values) <= found.errors + 1e-11 * np.maximum(exact.values, 1))
    assert np.all(found.errors <= tol * np.maximum(exact.values, 1))
    np.testing.assert_allclose(found.traces, exact.traces, rtol=max(1e-9, tol))


def test_a_column_is_its_own_whatever_fills_the_one_before() -> None:
    rng = np.random.default_rng(0)
    full, half = rng.random(120) - 100.0, rng.random(120) * (np.arange(120) % 2)
    X, y = np.column_stack([full, half]), np.where(np.arange(120) % 3, 1.0, -1.0)
    found, exact = (alignments(X, y, widths=1e-3, method=method) for method in ("auto", "direct"))
    assert np.all(np.abs(found.values - exact.values) <= found.errors + 1e-11 * exact.values)


def test_wide_kernels_become_linear_without_losing_digits() -> None:
    X, y = np.column_stack([SHAPES[name](60) for name in ("normal", "uniform", "three values")]), target(60)
    wide, linear = alignments(X, y, widths=1e7), alignments(X, y, kernel="linear")
    np.testing.assert_allclose(wide.values, linear.values, rtol=1e-9)
    np.testing.assert_allclose(wide.traces * 1e14, linear.traces, rtol=1e-9)


def test_narrow_kernels_become_the_identity() -> None:
    X, y = RNG.normal(size=(50, 3)), target(50)
    found = alignments(X, y, widths=1e-300)
    np.testing.assert_allclose(found.values, np.sum((y - y.mean()) ** 2) / 49, rtol=1e-12)


@pytest.mark.parametrize("m", [2, 3, 90])
def test_linear_alignments_are_exact(m: int) -> None:
    X, y = columns(m), target(m)
    for block in (X, sp.csc_array(X)):
        found = alignments(block, y, kernel="linear")
        assert not found.widths.any() and not found.errors.any()
        for j, name in enumerate(SHAPES):
            x = X[:, j] - X[:, j].mean()
            if np.ptp(X[:, j]) == 0:
                assert found.values[j] == found.traces[j] == 0, name
                continue
            a, trace = kta.alignment(x, y, "linear")
            assert found.values[j] == pytest.approx(a, rel=1e-9, abs=1e-12), name
            assert found.traces[j] == pytest.approx(trace, rel=1e-12), name


def test_binary_columns_do_not_depend_on_the_width() -> None:
    X, y = np.column_stack([SHAPES["binary"](80), SHAPES["binary, no zero"](80)]), target(80)
    linear = alignments(X, y, kernel="linear").values
    for widths in (None, 0.1, 1.0, 50.0):
        np.testing.assert_allclose(alignments(X, y, widths=widths).values, linear, rtol=1e-12)
    ones, centred = X[:, 0] == 1, y - y.mean()
    assert linear[0] == pytest.approx(80 * centred[ones].sum() ** 2 / (ones.sum() * (~ones).sum()), rel=1e-12)


def test_any_numbers_may_be_the_target() -> None:
    X, y = columns(70), RNG.normal(size=70) + 5
    found = alignments(X, y)
    a = [kta.alignment(X[:, j], y, "rbf", found.widths[j])[0] for j in range(X.shape[1])]
    np.testing.assert_allclose(found.values, a, atol=1e-6)


# --- certificate of the expansion -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [0.0, 1e-8, 0.3, 5.0, 0.99 * MAX_UNSORTED_RANGE, 1.2 * MAX_UNSORTED_RANGE, 500.0, 1e7])
@pytest.mark.parametrize("eps", [1e-2, 1e-6, 1e-13])
def test_every_pair_is_within_the_bound(span: float, eps: float) -> None:
    z = np.sort(span * np.concatenate([[0.0, 1.0], RNG.random(60), 0.01 * RNG.random(20)]))
    work = np.empty((WORK_ROWS, z.size))
    for _ in range(5):
        s, c = RNG.normal(size=z.size), RNG.integers(1, 5, z.size) * 1.0
        K = np.exp(-((z[:, None] - z) ** 2))
        form, mass = gaussian_forms(z, s, c, eps, work)
        assert abs(form - s @ K @ s) <= (eps + 1e-14) * np.abs(s).sum() ** 2
        assert abs(mass - c @ K @ c) <= (eps + 1e-14) * c.sum() ** 2


# --- widths -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [2, 3, 4, 31, 4 * COARSE_GROUPS - 1, 4 * COARSE_GROUPS, 700])
@pytest.mark.parametrize("name", list(SHAPES))
def test_widths_are_medians_of_the_non_zero_distances(name: str, m: int) -> None:
    x = SHAPES[name](m)
    away = kta.distances(x)
    if not away.size:
        return
    width = alignments(x[:, None], target(m)).widths[0]
    if len(np.unique(x)) <= MAX_EXACT_VALUES:
        assert width == kta.lower_median(x)
    else:
        share, just_below = np.mean(away <= width), np.mean(away < width)
        assert width in away
        assert just_below < 0.5 + RANK_TOLERANCE and share >= 0.5 - RANK_TOLERANCE


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-30, 30), min_size=2, max_size=MAX_EXACT_VALUES, unique=True), st.data())
def test_widths_of_counted_values_are_exact(values: list[int], data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 9), min_size=len(values), max_size=len(values)))
    v = np.sort(np.array(values, float))
    before = np.concatenate([[0.0], np.cumsum(counts)])
    assert median_distance(v, before, v.size) == kta.lower_median(np.repeat(v, counts))


def test_a_group_of_values_stands_at_its_middle_one() -> None:
    v, before = np.array([1.0, 2.0, 4.0, 8.0]), np.arange(5.0)
    for groups, middle in ((4, v), (2, [1.0, 4.0])):
        centres, edges = np.zeros(groups), np.zeros(groups + 1)
        _group_values(v, before, 4, centres, edges)
        assert centres.tolist() == list(middle) and edges.tolist() == [4 * g / groups for g in range(groups + 1)]


def test_tolerant_widths_of_lattices_are_their_middle_distance() -> None:
    """Where a distance is shared by many pairs no rank comes near one half; the search still ends, at the exact median."""
    x = np.repeat(np.arange(40.0), 5)
    assert alignments(x[:, None], target(200)).widths[0] == kta.lower_median(x)
    heavy = np.concatenate([np.zeros(5000), np.arange(1.0, 600.0)])
    assert alignments(heavy[:, None], target(heavy.size)).widths[0] == pytest.approx(kta.lower_median(heavy), rel=0.01)


# --- invariances ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("method", ["auto", "direct"])
def test_results_do_not_depend_on_how_columns_are_cut_or_held(kernel: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    m = 60
    X, y = columns(m), target(m)
    whole = alignments(X, y, kernel=kernel, method=method)
    sparse = sp.csc_array(X)
    for step in (1, 3, 7):
        for block in (X, np.asfortranarray(X), sparse):
            parts = [alignments(block[:, lo : lo + step], y, kernel=kernel, method=method) for lo in range(0, X.shape[1], step)]
            assert same(whole, Alignments(*map(np.concatenate, zip(*parts, strict=True))))
    for tile in (1, 100, 150):
        monkeypatch.setattr(module, "TILE_ENTRIES", tile)
        assert same(whole, alignments(X, y, kernel=kernel, method=method))
        assert same(whole, alignments(sparse, y, kernel=kernel, method=method))


def test_stored_zeros_and_precision_of_the_values_change_nothing() -> None:
    X, y = np.float32(columns(50)), target(50)
    stored = sp.csc_array(X + 1.0)
    stored.data = stored.data - np.float32(1.0)
    stored.data[stored.data == 0] = -0.0
    assert same(alignments(X, y), alignments(np.float64(X), y))
    exact = np.float64(stored.toarray())
    assert same(alignments(exact, y), alignments(stored, y))


def test_inputs_stay_as_they_were() -> None:
    X, y = np.asfortranarray(columns(40)), target(40)
    for block in (X, sp.csc_array(X)):
        before = block.copy()
        data = block if isinstance(block, np.ndarray) else block.data
        data.flags.writeable = False
        alignments(block, y)
        assert np.array_equal(data, before if isinstance(before, np.ndarray) else before.data)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_order_of_samples_shift_and_scale_change_rounding_only(kernel: str) -> None:
    X, y = columns(90), target(90)
    plain = alignments(X, y, kernel=kernel)
    order = RNG.permutation(90)
    shuffled = alignments(X[order], y[order], kernel=kernel)
    assert np.array_equal(shuffled.widths, plain.widths)
    np.testing.assert_allclose(shuffled.values, plain.values, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(alignments(-8.0 * X, -y, kernel=kernel).values, plain.values, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(alignments(X, 3 * y + 1, kernel=kernel).values, 9 * plain.values, rtol=1e-7, atol=1e-6)


def test_informative_features_stand_out() -> None:
    X, m = RNG.normal(size=(200, 60)), 200
    y = np.sign(X[:, 0])
    X[:, 1] = np.where(y > 0, 1.0, 2.0) * RNG.normal(size=m)
    found, linear = alignments(X, y).values, alignments(X, y, kernel="linear").values
    assert set(np.argsort(found)[-2:]) == {0, 1}
    assert np.argsort(linear)[-1] == 0


# --- bad and degenerate input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_constant_and_empty_columns_are_zero(kernel: str) -> None:
    X = np.column_stack([np.zeros(20), np.full(20, 0.1), np.full(20, -3e7)])
    for block in (X, sp.csc_array(X)):
        found = alignments(block, target(20), kernel=kernel)
        assert not any(part.any() for part in found)
    assert alignments(np.zeros((20, 0)), target(20), kernel=kernel).values.shape == (0,)
    assert alignments(sp.csc_array((20, 0)), target(20), kernel=kernel).values.shape == (0,)


def test_extreme_values_stay_finite() -> None:
    x = RNG.normal(size=(80, 1))
    y = target(80)
    middle = alignments(x, y).values
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scale in (2.0**990, 2.0**-1000):
            np.testing.assert_allclose(alignments(x * scale, y).values, middle, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.ones(9)}, "y has shape"),
        ({"y": np.ones(10)}, "y is constant"),
        ({"y": np.r_[np.nan, np.ones(9)]}, r"y\[0\]"),
        ({"kernel": "chi2"}, "kernel is 'chi2'"),
        ({"method": "fast"}, "method is 'fast'"),
        ({"tol": 0.0}, "tol is 0"),
        ({"widths": np.r_[np.ones(3), 0.0]}, r"widths\[3\] is 0"),
        ({"widths": np.inf}, r"widths\[0\] is inf"),
        ({"kernel": "linear", "widths": 1.0}, "kernel='linear' has no width"),
        ({"X": np.ones((1, 4)), "y": np.ones(1)}, "n_samples = 1: an alignment needs at least two rows"),
    ],
)
def test_bad_arguments_are_named(change: dict, message: str) -> None:
    given = {"X": RNG.normal(size=(10, 4)), "y": np.r_[1.0, -np.ones(9)]} | change
    with pytest.raises(ValueError, match=message):
        alignments(given.pop("X"), given.pop("y"), **given)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -2e300])
def test_unusable_values_are_named_by_row_and_column(bad: float) -> None:
    X = np.ones((6, 5)) + np.arange(5)
    X[4, 3] = bad
    for block in (X, sp.csc_array(X)):
        with pytest.raises(ValueError, match=r"X\[4, 3\]"):
            alignments(block, np.r_[1.0, -np.ones(5)])


def test_other_sparse_forms_are_refused() -> None:
    with pytest.raises(TypeError, match="csr"):
        alignments(sp.csr_array(np.eye(4)), np.r_[1.0, -np.ones(3)])  # type: ignore[arg-type]
