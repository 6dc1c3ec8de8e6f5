"""Additive feature maps: each feature becomes ``width`` columns whose inner product is a kernel of that feature alone.

Source: Proposition 2 of Tan, Tsang and Wang (JMLR 15, 2014); docs/theory/fgm.md, "Additive maps".

The score of feature j is ``s_j = u' K_j u = ||Phi_j' u||^2``, where ``Phi_j`` are its ``(n, width)`` columns; it is computed without
forming these columns. All sums run over ascending rows, and zeros add nothing, so the bits are the same for sparse and dense blocks, for
any stripes and for either memory order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, Entry
from ..jit import compiled
from .scores import correlations
from .views import Columns, DenseView, SparseView, checked_dual, flat, shape, view

ADDITIVE = ("hik", "additive_gaussian", "additive_chi2")
HARMONICS = 5  # Of the additive Gaussian map: one constant column and a cosine and a sine column for each, 11 in all.
CHI2_STEP = 0.5  # Of the samples of the additive chi-squared spectrum, at 0 and one step: a constant, a cosine and a sine, 3 columns.
CHI2_AMPLITUDE = np.array([math.sqrt(CHI2_STEP), math.sqrt(2.0 * CHI2_STEP / math.cosh(math.pi * CHI2_STEP))])
GAUSSIAN_REACH = 15.4  # ``gamma * range^2`` up to which :func:`gaussian_error_bound` stays below 1e-3.
REACHED = 1.0 + 2.0**-20
"""A value counts as having reached a bin edge if it is at most one part in a million below the edge, because float32 multiples of ``M /
n_bins`` may be slightly too small.
"""

FEATURES_AT_ONCE = 256
MAPPED_AT_ONCE = 1 << 20  # entries of the columns that are mapped before they are scored


@dataclass(frozen=True)
class Expansion:
    """An additive map; the range of each feature's training values is stored separately.

    ``name`` is one of:

    * ``"identity"``.
    * ``"hik"``: the histogram intersection kernel ``min(x, z)`` by a unary code of ``n_bins`` columns. With an ``exponent`` a, it is the
      generalised kernel ``min(|x|^a, |z|^a)`` of values of either sign.
    * ``"additive_gaussian"``: ``exp(-gamma (x - z)^2)`` by a sampled spectrum of 11 columns (Vedaldi and Zisserman). ``gamma`` is
      measured in the feature's unit to the power -2.
    * ``"additive_chi2"``: ``2 x z / (x + z)`` of values >= 0 by a sampled spectrum of 3 columns, those of scikit-learn's
      ``AdditiveChi2Sampler`` (Vedaldi and Zisserman).

    Raises ValueError if the name is unknown or a parameter is not positive.
    """

    name: Literal["identity", "hik", "additive_gaussian", "additive_chi2"] = "identity"
    gamma: float = 1.0
    n_bins: int = 100
    exponent: float | None = None

    def __post_init__(self) -> None:
        if self.name not in ("identity", *ADDITIVE):
            raise ValueError(f"feature map is {self.name!r}; it must be 'identity', 'hik', 'additive_gaussian' or 'additive_chi2'")
        if not (self.gamma > 0 and math.isfinite(self.gamma)):
            raise ValueError(f"gamma is {self.gamma}; it must be positive and finite")
        if self.n_bins < 1:
            raise ValueError(f"n_bins is {self.n_bins}; at least one bin is needed")
        if self.exponent is not None and not (self.exponent > 0 and math.isfinite(self.exponent)):
            raise ValueError(f"exponent is {self.exponent}; it must be positive and finite, or None")

    @property
    def width(self) -> int:
        """Number of columns per feature."""
        return {"identity": 1, "hik": self.n_bins, "additive_gaussian": 2 * HARMONICS + 1, "additive_chi2": 3}[self.name]


def gaussian_period(gamma: float, extent: Array) -> Array:
    r"""Return the period P of the sampled spectrum for features whose values span ``extent``.

    Sampling the spectrum at multiples of ``L = 2 pi / P`` turns ``exp(-gamma d^2)`` into its P-periodic sum. The adjacent copies are at
    most ``exp(-gamma (P - extent)^2)``, the omitted harmonics about ``exp(-(6 L)^2 / (4 gamma))``. The period makes both equal:

    .. math:: P = \tfrac12 \left(D + \sqrt{D^2 + 24 \pi / \gamma}\right), \qquad D = \text{extent}.
    """
    extent = np.asarray(extent, np.float64)
    return 0.5 * (extent + np.sqrt(extent**2 + 4.0 * (HARMONICS + 1) * math.pi / gamma))


def gaussian_error_bound(gamma: float, extent: Array) -> Array:
    """Return an upper bound of ``|phi(x)'phi(z) - exp(-gamma (x - z)^2)|`` over values that span ``extent``.

    The map needs a moderate ``gamma * extent^2``: the bound is 9e-7 at 1, 1e-3 at 16, and 0.2 at 100.
    """
    extent = np.asarray(extent, np.float64)
    period = gaussian_period(gamma, extent)
    aliases = 2.0 * np.exp(-gamma * (np.arange(1, 40) * period[..., None] - extent[..., None]) ** 2).sum(axis=-1)
    left_out = 2.0 * _amplitudes(gamma, period, np.arange(HARMONICS + 1, HARMONICS + 60)).sum(axis=-1)
    return aliases + left_out


def _amplitudes(gamma: float, period: Array, harmonics: Array) -> Array:
    """Return the Fourier coefficients of the periodic sum of ``exp(-gamma d^2)``."""
    step = 2.0 * math.pi / np.asarray(period, np.float64)[..., None]
    return step / (2.0 * math.sqrt(math.pi * gamma)) * np.exp(-((step * harmonics) ** 2) / (4.0 * gamma))


@compiled(inline=True)
def _bin(x: Entry, maximum: Entry, n_bins: int) -> int:
    """Return the number of bin edges, ``k * maximum / n_bins`` for k = 1 .. n_bins, that x has reached."""
    if x <= 0.0 or maximum <= 0.0:
        return 0
    return int(min(x / maximum * n_bins * REACHED, np.float64(n_bins)))


@compiled
def _waves(x: float, step: float, amplitude: Array, wave: Array) -> None:
    """Fill ``wave[0]`` with the constant, and ``wave[1:]`` with cosine and sine of each multiple of ``step * x``, times its amplitude."""
    c1, s1 = math.cos(step * x), math.sin(step * x)
    c, s = c1, s1
    wave[0] = amplitude[0]
    for h in range(1, amplitude.size):
        wave[2 * h - 1] = amplitude[h] * c
        wave[2 * h] = amplitude[h] * s
        c, s = c * c1 - s * s1, s * c1 + c * s1


@compiled
def _histogram(x: Entry, u: Entry, maximum: Entry, state: Array) -> None:
    """Add u to the bin of x."""
    k = _bin(x, maximum, state.size)
    if k > 0:
        state[k - 1] += u


@compiled
def _wave_sum(
    x: Entry, u: Entry, low: Entry, high: Entry, step: Entry, amplitude: Array, at_zero: Array, wave: Array, state: Array
) -> None:
    """Add ``u (phi(x) - phi(0))`` to ``state``. The term of a zero is then zero, so zeros can be skipped."""
    if x != 0.0:
        _waves(min(max(x, low), high), step, amplitude, wave)
        for h in range(state.size):
            state[h] += u * (wave[h] - at_zero[h])


@compiled
def _project_sparse(values: Array, rows: Array, starts: Array, u: Array, gaussian: bool, ranges: tuple[Array, ...], state: Array) -> None:
    low, high, step, amplitude = ranges
    width = state.shape[1]
    at_zero, wave = np.zeros(width), np.zeros(width)
    for j in range(state.shape[0]):
        if gaussian:
            _waves(min(max(0.0, low[j]), high[j]), step[j], amplitude[j], at_zero)
        for p in range(np.uint64(starts[j]), np.uint64(starts[j + 1])):
            x, ui = np.float64(values[p]), u[rows[p]]
            if ui == 0.0:
                continue
            if gaussian:
                _wave_sum(x, ui, low[j], high[j], step[j], amplitude[j], at_zero, wave, state[j])
            else:
                _histogram(x, ui, high[j], state[j])


@compiled
def _project_dense(x: Array, row_step: int, column_step: int, u: Array, gaussian: bool, ranges: tuple[Array, ...], state: Array) -> None:
    low, high, step, amplitude = ranges
    n_features, width = state.shape
    at_zero, wave = np.zeros((n_features, width)), np.zeros(width)
    if gaussian:
        for j in range(n_features):
            _waves(min(max(0.0, low[j]), high[j]), step[j], amplitude[j], at_zero[j])
    # Walk along the memory; either way each feature sees its rows ascending.
    along_columns = column_step == 1
    for outer in range(u.size if along_columns else n_features):
        for inner in range(n_features if along_columns else u.size):
            i, j = (outer, inner) if along_columns else (inner, outer)
            if u[i] == 0.0:
                continue
            value = np.float64(x[i * row_step + j * column_step])
            if gaussian:
                _wave_sum(value, u[i], low[j], high[j], step[j], amplitude[j], at_zero[j], wave, state[j])
            else:
                _histogram(value, u[i], high[j], state[j])


@compiled
def _fill_waves(x: Array, low: float, high: float, step: float, amplitude: Array, out: Array) -> None:
    """Write phi(x_i) into row i of out (n, width)."""
    for i in range(x.size):
        _waves(min(max(x[i], low), high), step, amplitude, out[i])


class _Ranges(NamedTuple):
    """Ranges of the features, and the quantities derived from them."""

    low: Array
    high: Array
    step: Array
    amplitude: Array


def _ranges(expansion: Expansion, minimum: Array, maximum: Array, k: int) -> _Ranges:
    low, high = (np.array(bound, dtype=np.float64, ndmin=1) for bound in (minimum, maximum))
    for name, bound in (("minimum", low), ("maximum", high)):
        if bound.shape != (k,):
            raise ValueError(f"{name} has shape {bound.shape}; it needs one number for each of the {k} features")
        if not np.isfinite(bound).all():
            raise ValueError(f"{name}[{int(np.argmin(np.isfinite(bound)))}] is not finite; ranges must be finite")
    if expansion.name != "additive_gaussian":
        negative = np.flatnonzero(low < 0)
        if negative.size:
            j = negative[0]
            raise ValueError(f"column {j} of the block holds {low[j]:g}; feature map {expansion.name!r} needs values >= 0")
        return _Ranges(low, high, np.zeros(0), np.zeros((k, 0)))
    period = gaussian_period(expansion.gamma, np.maximum(high - low, 0.0))
    power = _amplitudes(expansion.gamma, period, np.arange(HARMONICS + 1))
    power[:, 1:] *= 2.0
    return _Ranges(low, high, 2.0 * math.pi / period, np.sqrt(power))


def _project(block: SparseView | DenseView, part: slice, u: Array, gaussian: bool, ranges: _Ranges, state: Array) -> None:
    parameters = (u, gaussian, tuple(values[part] for values in ranges), state)
    if isinstance(block, SparseView):
        _project_sparse(block.values, block.rows, block.starts[part.start : part.stop + 1], *parameters)
    else:
        _project_dense(block.flat[part.start * block.column_step :], block.row_step, block.column_step, *parameters)


def _squared_norms(state: Array, u: Array, expansion: Expansion, ranges: _Ranges, part: slice) -> Array:
    if expansion.name == "hik":
        reached = np.cumsum(state[:, ::-1], axis=1)
        return (reached**2).sum(axis=1) * (np.maximum(ranges.high[part], 0.0) / expansion.n_bins)
    at_zero, total = np.zeros((1, expansion.width)), float(u.sum())
    for row, low, high, step, amplitude in zip(state, *(values[part] for values in ranges)):
        _fill_waves(np.zeros(1), low, high, step, amplitude, at_zero)
        row += total * at_zero[0]
    return (state**2).sum(axis=1)


def _powers(X: Columns, expansion: Expansion, minimum: Array, maximum: Array) -> tuple[Columns, Expansion, Array, Array]:
    """Return ``|x|^a`` of a block, the map of these powers, and their ranges."""
    a = float(expansion.exponent or 1.0)
    if isinstance(X, np.ndarray):
        powers: Columns = np.abs(X.astype(np.float64)) ** a
    else:
        powers = sp.csc_array((np.abs(X.data.astype(np.float64)) ** a, X.indices, X.indptr), shape=X.shape)
    largest = np.maximum(np.abs(minimum), np.abs(maximum)).astype(np.float64)
    return powers, replace(expansion, exponent=None), np.zeros(len(largest)), largest**a


def _mapped_scores(X: Columns, u: Array, expansion: Expansion, minimum: Array, maximum: Array) -> Array:
    if expansion.exponent is not None:
        powers, plain, low, high = _powers(X, expansion, minimum, maximum)
        return expanded_scores(powers, u, plain, low, high)
    squares = correlations(expand(X, expansion, minimum, maximum), u) ** 2
    return squares.reshape(-1, expansion.width).sum(axis=1)


def expanded_scores(X: Columns, u: Array, expansion: Expansion, minimum: Array, maximum: Array) -> Array:
    """Return ``s_j = u' K_j u = ||Phi_j' u||^2`` of each feature, without forming its columns.

    ``X`` is an ``(n, k)`` block, ``u`` the ``(n,)`` dual vector. ``minimum`` and ``maximum``, ``(k,)``, are the ranges of the training
    values, zeros included; values outside are clipped. Histogram intersection takes one weighted histogram per feature and a reverse
    cumulative sum. For this kernel without an exponent, and for ``"additive_chi2"``, ``minimum`` must not be negative.
    """
    n, k = shape(X)
    if expansion.name == "identity":
        return correlations(X, u) ** 2
    if expansion.exponent is not None or expansion.name == "additive_chi2":
        at_once = max(1, MAPPED_AT_ONCE // max(n, 1))
        parts = [slice(j, j + at_once) for j in range(0, k, at_once)]
        scores = (_mapped_scores(X[:, part], u, expansion, minimum[part], maximum[part]) for part in parts)
        return np.concatenate([np.zeros(0), *scores])
    u, ranges, block = checked_dual(u, n), _ranges(expansion, minimum, maximum, k), view(X)
    out = np.zeros(k)
    for begin in range(0, k, FEATURES_AT_ONCE):
        part = slice(begin, min(begin + FEATURES_AT_ONCE, k))
        state = np.zeros((part.stop - begin, expansion.width))
        _project(block, part, u, expansion.name == "additive_gaussian", ranges, state)
        out[part] = _squared_norms(state, u, expansion, ranges, part)
    return out


def _expand_waves(X: Columns, width: int, ranges: _Ranges) -> Array:
    n, k = shape(X)
    out, filled = np.empty((n, k * width), order="F"), np.empty((n, width))
    for j in range(k):
        column = X[:, j] if isinstance(X, np.ndarray) else X[:, [j]].toarray()[:, 0]
        _fill_waves(np.ascontiguousarray(column, np.float64), ranges.low[j], ranges.high[j], ranges.step[j], ranges.amplitude[j], filled)
        out[:, j * width : (j + 1) * width] = filled
    return out


@compiled
def _bins(values: Array, maximum: Array, which: Array, n_bins: int, out: Array) -> None:
    for p in range(values.size):
        out[p] = _bin(np.float64(values[p]), maximum[which[p]], n_bins)


def _expand_bins_dense(X: Array, n_bins: int, high: Array) -> Array:
    n, k = X.shape
    bins = np.empty(n * k, np.int64)
    _bins(flat(np.array(X, np.float64, order="C")), high, np.tile(np.arange(k), n), n_bins, bins)
    scaled = (bins.reshape(n, k, 1) > np.arange(n_bins)) * np.sqrt(np.maximum(high, 0.0) / n_bins)[None, :, None]
    return np.asfortranarray(scaled.reshape(n, k * n_bins))


def _expand_bins_sparse(X: sp.csc_array, n_bins: int, high: Array) -> sp.csc_array:
    n, k = shape(X)
    which = np.repeat(np.arange(k), np.diff(X.indptr))
    bins = np.empty(X.nnz, np.int64)
    _bins(flat(np.asarray(X.data, np.float64)), high, which, n_bins, bins)
    entry = np.repeat(np.arange(X.nnz), bins)
    column = which[entry] * n_bins + (np.arange(entry.size) - np.repeat(np.cumsum(bins) - bins, bins))
    order = np.argsort(column, kind="stable")
    indptr = np.concatenate(([0], np.cumsum(np.bincount(column, minlength=k * n_bins))))
    step = np.sqrt(np.maximum(high, 0.0) / n_bins)
    data, rows = step[which[entry]][order], X.indices[entry][order]
    return sp.csc_array((data, rows.astype(np.int32), indptr.astype(np.int32)), shape=(n, k * n_bins))


def _chi2_waves(values: Array) -> Array:
    """Return the sampled map of numbers ``(m,)``, ``(m, 3)``: ``sqrt(x)`` times the waves of ``log x``; zero for numbers that are not
    positive.
    """
    out, is_positive = np.zeros((values.size, 3)), values > 0
    x = values[is_positive].astype(np.float64)
    waves = np.empty((x.size, 3))
    _fill_waves(np.log(x), -math.inf, math.inf, CHI2_STEP, CHI2_AMPLITUDE, waves)
    out[is_positive] = np.sqrt(x)[:, None] * waves
    return out


def _expand_chi2(X: Columns) -> Columns:
    n, k = shape(X)
    if isinstance(X, np.ndarray):
        return _chi2_waves(X.ravel(order="F")).reshape(k, n, 3).transpose(0, 2, 1).reshape(3 * k, n).T
    parts = [sp.csc_array((column, X.indices, X.indptr), shape=(n, k)) for column in _chi2_waves(X.data).T]
    return sp.csc_array(sp.hstack(parts, format="csc"))[:, np.arange(3 * k).reshape(3, k).T.ravel()]


def expand(X: Columns, expansion: Expansion, minimum: Array, maximum: Array) -> Columns:
    """Return the columns ``Phi_1 | Phi_2 | ...`` of a block of features, float64 ``(n, k * width)``; ranges as in :func:`expanded_scores`.

    Histogram intersection: column k of feature j is ``1[x >= k M_j / N] sqrt(M_j / N)``. This reproduces ``min(x, z)`` at multiples of
    ``M_j / N`` and stays sparse; with an exponent a, ``|x|^a`` replaces x, and M_j is its maximum. The Gaussian map sends zero to a
    non-zero vector, so its columns are always dense. The map of ``"additive_chi2"`` needs no ranges, clips only negative values, and stays
    sparse.
    """
    if expansion.name == "identity":
        return X
    if expansion.exponent is not None:
        return expand(*_powers(X, expansion, minimum, maximum))
    ranges = _ranges(expansion, minimum, maximum, shape(X)[1])
    if expansion.name == "additive_gaussian":
        return _expand_waves(X, expansion.width, ranges)
    if expansion.name == "additive_chi2":
        return _expand_chi2(X)
    if isinstance(X, np.ndarray):
        return _expand_bins_dense(X, expansion.n_bins, ranges.high)
    return _expand_bins_sparse(X, expansion.n_bins, ranges.high)
