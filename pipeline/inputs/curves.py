"""Curves of decision values against the true classes, with bootstrap intervals: ROC, precision and recall, calibration.

Rows are first counted between thresholds, a thousand at most. Resampling draws these counts instead of rows, so its cost does not grow
with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

N_RESAMPLES = 200
LEVEL = 0.95  # share of the resamples within an interval
MAX_THRESHOLDS = 1000
GRID = np.linspace(0.0, 1.0, 51)  # rates at which curves are told
CALIBRATION_BINS = 10
_SEED = 0xB007  # of all resamples: the same rows have the same intervals


@dataclass(frozen=True)
class Curve:
    """A curve over `GRID`, and the area under it."""

    y: np.ndarray  # `(51,)`
    lower: np.ndarray
    upper: np.ndarray
    area: float
    area_interval: tuple[float, float]


def resample_counts(counts: np.ndarray, number: int = 0) -> np.ndarray:
    """Return ``(N_RESAMPLES, *counts.shape)`` bootstrap samples of counts. Different values of ``number`` give independent samples."""
    rng, total = np.random.default_rng(np.random.SeedSequence((_SEED, number))), counts.sum()
    return rng.multinomial(total, counts.ravel() / total, size=N_RESAMPLES).reshape(N_RESAMPLES, *counts.shape)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the bounds of the central interval that contains a fraction `LEVEL` of the resampled values, ignoring NaN."""
    values = values[np.isfinite(values)]
    if not values.size:
        return np.nan, np.nan
    lower, upper = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(lower), float(upper)


def threshold_counts(is_positive: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the numbers of negative and positive rows per bin, ``(2, b)``, by decreasing value. Rows with equal values share a bin."""
    order = np.argsort(-values, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(values[order])), len(values) - 1)
    if len(ends) > MAX_THRESHOLDS:
        places = np.searchsorted(ends, np.linspace(0, len(values) - 1, MAX_THRESHOLDS + 1)[1:])
        ends = ends[np.unique(places)]
    positive = np.diff(np.cumsum(is_positive[order])[ends], prepend=0)
    return np.stack([np.diff(ends, prepend=-1) - positive, positive])


def roc_curve(counts: np.ndarray, number: int = 0) -> Curve:
    """Return the true positive rate as a function of the false positive rate, from `threshold_counts`."""
    return _with_intervals(counts, number, _roc)


def precision_curve(counts: np.ndarray, number: int = 0) -> Curve:
    """Return the precision as a function of the recall, from `threshold_counts`; the area is the average precision."""
    return _with_intervals(counts, number, _precision)


def _with_intervals(counts: np.ndarray, number: int, curve: Callable[[np.ndarray], tuple[np.ndarray, float]]) -> Curve:
    drawn = resample_counts(counts, number)
    # A resample without a positive or negative row has no curve.
    others = [curve(one) for one in drawn[(drawn.sum(axis=2) > 0).all(axis=1)]]
    y, area = curve(counts)
    bounds = np.quantile(np.stack([one for one, _ in others]), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0) if others else np.stack([y, y])
    return Curve(y, bounds[0], bounds[1], area, interval(np.array([one for _, one in others])))


def _roc(counts: np.ndarray) -> tuple[np.ndarray, float]:
    negative, positive = (np.concatenate(([0.0], np.cumsum(row) / row.sum())) for row in counts)
    return np.interp(GRID, negative, positive), float(min(np.trapezoid(positive, negative), 1.0))


def _precision(counts: np.ndarray) -> tuple[np.ndarray, float]:
    negative, positive = np.cumsum(counts, axis=1)
    recall, above = positive / positive[-1], positive + negative
    precision = np.divide(positive, above, out=np.zeros(len(above)), where=above > 0)
    at = np.minimum(np.searchsorted(recall, GRID), len(recall) - 1)
    # At recall zero, what the first rows found have.
    at[0] = np.argmax(positive > 0)
    return precision[at], float(np.sum(np.diff(recall, prepend=0.0) * precision))


@dataclass(frozen=True)
class CalibrationBin:
    """Rows with similar predicted values: the mean predicted value, and the share of positive rows."""

    mean: float
    share: float
    lower: float
    upper: float
    rows: int


def calibration_bins(is_positive: np.ndarray, values: np.ndarray) -> list[CalibrationBin]:
    """Return calibration bins with equal numbers of rows, by increasing value. Equal values share a bin.

    Intervals are Wilson's, which are also valid near 0 and 1.
    """
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    edges = np.linspace(0, len(ranked), min(CALIBRATION_BINS, len(ranked)) + 1)[1:-1].astype(int)
    starts = np.unique(np.searchsorted(ranked, ranked[edges])) if len(edges) else edges
    bins = []
    for rows in np.split(order, starts[starts > 0]):
        share, (lower, upper) = float(is_positive[rows].mean()), wilson_interval(int(is_positive[rows].sum()), len(rows))
        bins.append(CalibrationBin(float(values[rows].mean()), share, lower, upper, len(rows)))
    return bins


def wilson_interval(part: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a proportion of independent rows."""
    z = 1.959963984540054
    share, scale = part / total, 1.0 + z * z / total
    middle, half = share + z * z / (2 * total), z * np.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return float(max(middle - half, 0.0) / scale), float(min((middle + half) / scale, 1.0))


def r2_interval(truth: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """Return the bootstrap interval of R2. With many rows, random groups of rows are resampled; the variance of the sums is the same."""
    n = len(truth)
    group = np.random.default_rng(np.random.SeedSequence((_SEED, 1))).permutation(n) % min(n, MAX_THRESHOLDS)
    moved = truth - truth.mean()
    sums = np.stack([np.bincount(group, weights=part) for part in (np.ones(n), moved, moved**2, (truth - predicted) ** 2)])
    drawn = resample_counts(np.ones(sums.shape[1], dtype=np.int64), 2) @ sums.T
    rows, first, second, error = drawn.T
    spread = second - first**2 / rows
    return interval(1.0 - np.divide(error, spread, out=np.full(len(spread), np.nan), where=spread > 0))
