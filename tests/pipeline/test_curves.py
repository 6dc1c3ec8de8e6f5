"""Curves of decision values with intervals: equal to the obvious computation, the same every time, and as wide as they should be."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score
from sklearn.metrics import roc_curve as sklearn_roc

from gramplane.pipeline.inputs.curves import (
    GRID,
    MAX_THRESHOLDS,
    calibration_bins,
    precision_curve,
    r2_interval,
    resample_counts,
    roc_curve,
    threshold_counts,
    wilson_interval,
)
from gramplane.pipeline.inputs.scores import r_squared


def drawn(n: int, seed: int = 0, digits: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < 0.3
    return positive, np.round(rng.normal(size=n) + positive, digits)


@pytest.mark.parametrize(("n", "digits"), [(7, 12), (60, 0), (400, 1), (900, 12)])
def test_curves_are_those_of_scikit_learn(n: int, digits: int):
    positive, values = drawn(n, seed=n, digits=digits)
    counts = threshold_counts(positive, values)
    np.testing.assert_array_equal(counts.sum(axis=1), [np.sum(~positive), np.sum(positive)])
    assert counts.shape[1] == len(np.unique(values))
    roc, precision = roc_curve(counts), precision_curve(counts)
    assert roc.area == pytest.approx(roc_auc_score(positive, values), abs=1e-12)
    assert precision.area == pytest.approx(average_precision_score(positive, values), abs=1e-12)
    false, true, _ = sklearn_roc(positive, values, drop_intermediate=False)
    np.testing.assert_allclose(roc.y, np.interp(GRID, false, true), atol=1e-12)
    known, recall, _ = precision_recall_curve(positive, values)
    for r, y in zip(GRID[1:], precision.y[1:], strict=True):
        # Of the thresholds that find so many, the highest.
        assert y == pytest.approx(known[np.flatnonzero(recall[:-1] >= r - 1e-12)[-1]], abs=1e-12)


def test_many_rows_are_counted_by_a_thousand_thresholds():
    positive, values = drawn(50_000)
    counts = threshold_counts(positive, values)
    assert counts.shape == (2, MAX_THRESHOLDS) and counts.sum() == 50_000
    assert roc_curve(counts).area == pytest.approx(roc_auc_score(positive, values), abs=1e-5)
    same = threshold_counts(positive, np.zeros(50_000))
    assert same.shape == (2, 1) and roc_curve(same).area == 0.5


def test_the_order_of_rows_does_not_matter_and_draws_are_fixed():
    positive, values = drawn(300, digits=1)
    order = np.random.default_rng(1).permutation(300)
    one, two = (roc_curve(threshold_counts(positive[rows], values[rows]), 3) for rows in (slice(None), order))
    for name in ("y", "lower", "upper"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert one.area_interval == two.area_interval
    assert roc_curve(threshold_counts(positive, values), 4).area_interval != one.area_interval, "classes are drawn apart"
    counts = threshold_counts(positive, values)
    assert set(resample_counts(counts).sum(axis=(1, 2)).tolist()) == {300}


def test_resampling_counts_is_resampling_rows():
    positive, values = drawn(200)
    rng, areas = np.random.default_rng(5), []
    for _ in range(400):
        rows = rng.integers(0, 200, 200)
        areas.append(roc_auc_score(positive[rows], values[rows]))
    lower, upper = roc_curve(threshold_counts(positive, values)).area_interval
    assert (lower, upper) == pytest.approx(np.quantile(areas, [0.025, 0.975]), abs=0.015)


def test_intervals_cover_the_truth():
    # The area of two unit normals one apart is Phi(1 / sqrt 2).
    covered = 0
    for seed in range(60):
        lower, upper = roc_curve(threshold_counts(*drawn(250, seed=100 + seed))).area_interval
        covered += lower <= 0.7602499 <= upper
    assert covered >= 52


def test_one_class_in_some_resamples_is_left_out():
    curve = roc_curve(threshold_counts(np.array([True, False]), np.array([1.0, 0.0])))
    assert np.isfinite(curve.lower).all() and curve.area_interval == (1.0, 1.0)


@pytest.mark.parametrize(("part", "total"), [(0, 5), (5, 5), (3, 10), (980, 1000)])
def test_wilson(part: int, total: int):
    known = binomtest(part, total).proportion_ci(0.95, method="wilson")
    assert wilson_interval(part, total) == pytest.approx((known.low, known.high), abs=1e-12)


def test_calibration_has_bins_of_as_many_rows_and_keeps_equal_values_together():
    rng = np.random.default_rng(0)
    chance = rng.random(5000)
    bins = calibration_bins(rng.random(5000) < chance, chance)
    assert [item.rows for item in bins] == [500] * 10
    assert all(item.lower < item.mean < item.upper for item in bins), "chances that are true"
    tied = calibration_bins(np.array([True, False, True, True]), np.array([1.0, 1.0, 1.0, 2.0]))
    assert [(item.mean, item.rows) for item in tied] == [(1.0, 3), (2.0, 1)]
    (alone,) = calibration_bins(np.array([True]), np.array([0.3]))
    assert (alone.share, alone.rows) == (1.0, 1)


@pytest.mark.parametrize("n", [150, 4000])
def test_intervals_of_r2_are_those_of_drawn_rows(n: int):
    rng = np.random.default_rng(2)
    truth = rng.normal(size=n)
    told = truth + 0.7 * rng.normal(size=n)
    values = []
    for _ in range(400):
        rows = rng.integers(0, n, n)
        values.append(r_squared(truth[rows], told[rows]))
    assert r2_interval(truth, told) == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.2 / n**0.5 + 0.005)


def test_a_target_without_variance_has_no_interval():
    assert np.isnan(r2_interval(np.ones(5), np.zeros(5))).all()
