"""From parameters and data to the candidates of a fit: features, groups, expanded features, or products of two."""

from __future__ import annotations

import numpy as np

from ....kernels.features import expansions
from ....kernels.features.groups import build_groups
from ....storage import BlockStore, DataError, MemoryBlocks
from ...inputs.labels import Inputs
from .atoms import ExpansionAtoms, GroupAtoms, LinearAtoms, feature_ranges
from .config import FGMConfig
from .designs import Atoms
from .pairs import PairAtoms


def build_atoms(config: FGMConfig, inputs: Inputs) -> Atoms:
    """Return the candidates; what does not go together is refused."""
    centred = config.fit_intercept
    if inputs.groups is not None:
        if config.feature_map is not None:
            raise ValueError(f"groups cannot be combined with feature_map={config.feature_map!r}: choose one of them")
        weight = np.asarray(config.group_weight) if isinstance(config.group_weight, list) else config.group_weight
        return GroupAtoms(index=build_groups(inputs.groups, int(inputs.data.n_cols), weight), centred=centred)
    if config.group_weight is not None:
        raise ValueError(f"group_weight={config.group_weight!r} needs groups, and there are none")
    if config.feature_map == "poly2":
        return PairAtoms(config.gamma, config.coef0, centred=centred)
    if config.feature_map is not None:
        return ExpansionAtoms(expansion=_additive_expansion(config, inputs.data), centred=centred)
    return LinearAtoms(centred=centred)


def _additive_expansion(config: FGMConfig, data: BlockStore | MemoryBlocks) -> expansions.Expansion:
    if data.scale.kind == "unit-row":
        raise ValueError(f"feature_map={config.feature_map!r} cannot be used on rows scaled to unit norm; ingest with another scale")
    name = "hik" if config.feature_map == "hik" else "additive_gaussian"
    if name == "hik":
        low, _ = feature_ranges(data, np.arange(data.n_cols), centred=config.fit_intercept)
        if low.size and low.min() < 0:
            j = int(np.argmin(low))
            raise DataError(f"feature_map='hik' needs non-negative features; column {j} has the minimum {low[j]!r}")
    return expansions.Expansion(name, gamma=config.gamma, n_bins=config.n_bins)


def map_warnings(config: FGMConfig, data: BlockStore | MemoryBlocks) -> list[str]:
    """Return a warning of ranges on which the additive Gaussian map is far from its kernel (docs/methods.md, "Additive maps")."""
    if config.feature_map != "additive_gaussian":
        return []
    low, high = feature_ranges(data, np.arange(data.n_cols), centred=config.fit_intercept)
    extent = high - low
    wide = np.flatnonzero(config.gamma * extent**2 > expansions.GAUSSIAN_REACH)
    if not len(wide):
        return []
    j = int(wide[np.argmax(extent[wide])])
    names, worst = data.feature_names(), float(extent[j])
    error = float(expansions.gaussian_error_bound(config.gamma, np.array(worst)))
    # The gamma shown must suffice: rounding to three digits may add half a percent.
    enough = 0.995 * expansions.GAUSSIAN_REACH / worst**2
    return [
        f"feature_map='additive_gaussian' is inaccurate on {len(wide)} of {data.n_cols} features: gamma * range^2 should be at most "
        f"{expansions.GAUSSIAN_REACH:g} (kernel error 1e-3); feature {j if names is None else names[j]} has range {worst:.3g} and "
        f"gamma * range^2 = {config.gamma * worst**2:.3g} (error up to {min(error, 1.0):.1g}). Use gamma <= "
        f"{enough:.3g}, or scale the features (ingest --scale unit-column)"
    ]
