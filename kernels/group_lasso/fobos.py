r"""Forward-backward splitting over a stream of rows (FOBOS), the comparator of dual averaging.

Round t takes a gradient step of length ``eta_t = 1 / (gamma sqrt(t))`` and then the proximal step of ``eta_t Omega`` (Yang 2011, (3.8)).
Thresholds vanish with the steps, so iterates are less sparse than those of dual averaging; and every round sweeps over all features. The
intercept has steps of its own, as in dual averaging.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..jit import compiled
from .dual_averaging import Rows, Rule, move_intercept, note_loss
from .groups import Groups, add_shrunken


@compiled
def _step_row(rows: Rows, i: int, step: float, weights: Array) -> None:
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        weights[rows.indices[p]] -= step * rows.values[p]


@compiled
def advance_fobos(
    rows: Rows, target: Array, weight: Array, open_rows: Rows, open_slopes: Array, rule: Rule, groups: Groups,
    weights: Array, counts: Array, totals: Array, slopes: Array, mean: Array, finish: bool,
) -> int:  # fmt: skip
    """Take rows by forward-backward splitting; arguments as of `gramplane.kernels.group_lasso.dual_averaging.advance_average`. ``weights``
    are those of the round; ``mean`` is any vector that can hold the weights while they are shrunk.
    """
    n, first, n_open = len(rows.order), 0, len(open_rows.order)
    for at in range(n + 1):
        if at < n:
            i = rows.order[at]
            slopes[at] = 0.0
            if weight[i] > 0.0:
                product = 0.0
                for p in range(rows.indptr[i], rows.indptr[i + 1]):
                    product += rows.values[p] * weights[rows.indices[p]]
                slopes[at] = note_loss(rule, target[i], weight[i], product, totals)
                counts[1] += 1
        if counts[1] == rule.batch or (at == n and finish and counts[1] > 0):
            eta = 1.0 / (rule.gamma * np.sqrt(float(counts[0] + 1)))
            share, last, slope = eta / counts[1], min(at + 1, n), 0.0
            for h in range(n_open):
                _step_row(open_rows, open_rows.order[h], share * open_slopes[h], weights)
                slope += open_slopes[h]
            for h in range(first, last):
                _step_row(rows, rows.order[h], share * slopes[h], weights)
                slope += slopes[h]
            move_intercept(rule, slope / counts[1], 1.0 / counts[1], totals)
            mean[:] = 0.0
            add_shrunken(weights, groups, eta, 0.0, 1.0, mean)
            for j in range(weights.size):
                weights[j] = mean[j]
            first, n_open = last, 0
            counts[0] += 1
            counts[1] = 0
    return first if n_open == 0 else -1
