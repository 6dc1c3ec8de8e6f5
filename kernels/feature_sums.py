"""Weighted sums of one kernel per feature, ``sum_i w_i K_i``, as a matrix.

A Gaussian kernel of one feature is a short cosine series on the range of that feature (Poisson summation; the error is split between the
period and the tail), so its matrix is a product of few columns, and the sum over features one symmetric product in float64.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .jit import one_thread

Array = np.ndarray

EPSILON = 1e-10
"""Largest error of one entry of one kernel."""

COLUMNS = 512
"""Columns of a product."""

LONGEST = 192
"""Series longer than this, or than half the rows, are slower than one exponential per pair."""


def weighted_feature_sum(X: Array, weights: Array, widths: Array | None = None) -> Array:
    """Return ``sum_i w_i K_i`` over the columns of X, exactly symmetric.

    Parameters
    ----------
    X : ndarray of shape (n, k)
        One feature a column.
    weights : ndarray of shape (k,)
        >= 0.
    widths : ndarray of shape (k,), optional
        sigma of ``exp(-(x - x')^2 / (2 sigma^2))``, > 0; without them the kernel is ``x x'``.

    Returns
    -------
    ndarray of shape (n, n)
        float64. For Gaussians each entry is within ``EPSILON sum_i w_i`` of the sum, plus rounding.
    """
    out = np.zeros((len(X), len(X)))
    with one_thread():
        if widths is None:
            for lo in range(0, X.shape[1], COLUMNS):
                part = X[:, lo : lo + COLUMNS] * np.sqrt(weights[lo : lo + COLUMNS])
                out += part @ part.T
            return out
        for part in _packed(X, weights, widths, out):
            out += part @ part.T
    return out


def _packed(X: Array, weights: Array, widths: Array, out: Array) -> Iterator[Array]:
    """Yield the columns of the series, about COLUMNS at a time; features with long ones are added to ``out`` directly."""
    held: list[Array] = []
    size = 0
    for j in range(X.shape[1]):
        z = X[:, j] / (np.sqrt(2.0) * widths[j])
        frequency, terms = _series(float(np.ptp(z)))
        if terms > min(LONGEST, len(X) // 2):
            out += weights[j] * np.exp(-np.square(z[:, None] - z[None, :]))
            continue
        held.append(_waves(z, frequency, terms, float(weights[j])))
        size += held[-1].shape[1]
        if size >= COLUMNS:
            yield np.concatenate(held, axis=1)
            held, size = [], 0
    if held:
        yield np.concatenate(held, axis=1)


def _series(span: float) -> tuple[float, int]:
    """Return frequency and number of terms of ``exp(-t^2)`` for |t| <= span."""
    reach = np.sqrt(np.log(2.0 / EPSILON))
    frequency = 2.0 * np.pi / (span + reach)
    return frequency, int(min(np.ceil(2.0 * reach / frequency) + 1, 1e9))


def _waves(z: Array, frequency: float, terms: int, weight: float) -> Array:
    """Return columns B (n, 2 terms - 1) with ``B B'`` the matrix of one weighted Gaussian."""
    k = np.arange(terms)
    share = (0.5 * frequency / np.sqrt(np.pi)) * np.exp(-0.25 * np.square(k * frequency))
    share[1:] *= 2.0
    angle = np.multiply.outer(frequency * (z - z.mean()), k)
    root = np.sqrt(weight * share)
    return np.concatenate([np.cos(angle) * root, np.sin(angle[:, 1:]) * root[1:]], axis=1)
