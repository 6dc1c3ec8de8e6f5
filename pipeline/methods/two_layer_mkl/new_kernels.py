"""The search for a Gaussian kernel that improves a two-layer SVM (Zhuang, thesis, 2011, section 4.3), by passes over candidates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....kernels.bank.two_layer import TwoLayerPoint
from ....kernels.grams.spec import KernelSpec
from ....storage import BlockStore, MemoryBlocks
from ...grams.settings import GramSettings, Policy
from ...grams.sources import rows_at
from ...grams.widths import distance_quantiles, sampled_rows
from .config import TwoLayerConfig
from .layer_pass import LayerGrams

N_WIDTHS = 13  # widths tried at a time, log-spaced
N_REFINEMENTS = 2  # times a finer grid is laid between the neighbours of the best width; each is a sixth as coarse as the one before
# Quantiles of the squared distances, whose inverses bound gamma. Wider ranges let a machine memorise: a near-unit matrix always helps.
DISTANCE_QUANTILES = (0.95, 0.05)


class Candidate(NamedTuple):
    """A Gaussian ``exp(-width ||x - z||^2)`` and its gain, positive if it helps."""

    width: float
    gain: float


def best_candidate(
    config: TwoLayerConfig, penalty: float, grams: LayerGrams, point: TwoLayerPoint, weight: np.ndarray | None = None
) -> Candidate | None:
    """Return the Gaussian with the largest gain, or None if all rows are equal.

    With the rule ``descent``, the gain is ``1/2 beta'(K2 o k) beta - penalty``, the rate at which the objective decreases as the weight of
    k grows from zero; at the optimum over all Gaussians, no gain is positive. With the rule ``thesis``, the gain is ``1/2 beta' K2 beta -
    penalty * sum of weights`` for k alone with weight one, minus the same quantity for the current combination. ``weight``: counts of the
    rows, which affect the range of widths.
    """
    span = config.gamma_range or gamma_range(grams.data, weight)
    best: Candidate | None = None
    for _ in range(1 + N_REFINEMENTS if span else 0):
        assert span is not None
        widths = np.unique(np.geomspace(*span, N_WIDTHS))
        gains = _gains(config, penalty, grams, point, widths)
        q = int(np.argmax(gains))
        if best is None or gains[q] > best.gain:
            best = Candidate(float(widths[q]), float(gains[q]))
        span = float(widths[max(q - 1, 0)]), float(widths[min(q + 1, len(widths) - 1)])
    return best


def _gains(config: TwoLayerConfig, penalty: float, grams: LayerGrams, point: TwoLayerPoint, widths: np.ndarray) -> np.ndarray:
    candidates = [KernelSpec("rbf", (("gamma", float(width)),), None, config.normalize) for width in widths]
    if config.rule == "thesis":
        inner = float(point.beta @ (point.decision - point.bias))
        now = 0.5 * inner - penalty * float(point.mu.sum())
        return 0.5 * _first_layer(grams, candidates, "recompute").exponential_forms(point.beta) - penalty - now
    if grams.settings.policy == "memory":
        kernel = grams.kernel(point.mu)
        assert kernel is not None  # the machine was solved there
        sums = _first_layer(grams, candidates, "memory").weigh(point.mu, kernel, point.beta)
    else:
        mu = np.append(point.mu, np.zeros(len(candidates)))
        sums = _first_layer(grams, [*grams.specs, *candidates], "recompute").weigh(mu, np.zeros((0, 0)), point.beta)[grams.k :]
    return 0.5 * sums - penalty


def _first_layer(grams: LayerGrams, specs: list[KernelSpec], policy: Policy) -> LayerGrams:
    """Return kernels over the same rows, with the block size of the SVM's kernels."""
    settings = GramSettings(policy, grams.settings.block, counts=grams.settings.counts)
    return LayerGrams(grams.data, specs, settings, grams.resources, centre=True)


def gamma_range(data: BlockStore | MemoryBlocks, weight: np.ndarray | None = None) -> tuple[float, float] | None:
    """Return the range of widths of added Gaussians: inverse quantiles of the squared distances between different rows. None if all rows
    are equal.

    ``weight`` ``(n,)`` has the counts of the rows.
    """
    ids = sampled_rows(data.n_rows, weight)
    found = distance_quantiles(rows_at(data, ids), DISTANCE_QUANTILES, None if weight is None else weight[ids])
    return None if found is None else (1.0 / float(found[0]), 1.0 / float(found[1]))
