"""A fitted machine on a weighted sum of kernels. A plain record, saved without pickle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from ...kernels.grams.normalization import Normalization
from ..records.scale import FeatureScale


@dataclass(frozen=True)
class FeatureKernels:
    """One kernel per feature, for thousands of features: ``sum_i w_i scale_i K_i(x, z)``.

    ``columns``: ``(k,)`` features, ascending; a model's rows and scaling hold these only; ``widths``: ``(k,)`` sigma of ``exp(-(x - z)^2 /
    (2 sigma^2))``; all 0 for linear kernels; ``scales``: ``(k,)`` multipliers of the raw kernels.
    """

    record_name: ClassVar[str] = "FeatureKernels"
    columns: np.ndarray
    widths: np.ndarray
    scales: np.ndarray


@dataclass(frozen=True)
class KernelModel:
    """``f_m(x) = sum_i beta_mi g(sum_q theta_mq K_q(x, x_i)) + intercept_m`` for one or several machines m.

    g is the identity, or with two layers the exponential.

    Attributes
    ----------
    params_json
        The method's parameters.
    classes_json
        The class labels in order, as JSON; ``null`` for regression.
    kernels_json
        All kernels in order, as a JSON list of records.
    n_features, n_train
        Width and rows of the training data; ``n_features`` is 0 for strings.
    precomputed
        Whether kernels are matrices that users compute, at prediction too.
    theta
        ``(n_machines, n_kernels)`` kernel weights.
    used
        ``(n_used,)`` kernels with a weight in some machine.
    norms
        Their normalisation, vectors over the support rows.
    support_ids
        ``(n_support,)`` sorted training rows with a coefficient.
    rows
        Their features, scaling applied; ``None`` for strings and matrices.
    texts
        Strings of the support rows.
    beta
        ``(n_machines, n_support)`` signed coefficients.
    intercepts
        ``(n_machines,)``.
    scale, row_scaled
        Scaling of the features; whether rows are divided by their norm before use.
    figures
        Objective, bounds and the like, by name.
    arrays
        Further results of a method, by name.
    layers
        1 or 2.
    features
        One kernel per feature in place of ``kernels_json``, or ``None``.
    """

    record_name: ClassVar[str] = "KernelModel"
    params_json: str
    classes_json: str
    kernels_json: str
    n_features: int
    n_train: int
    precomputed: bool
    theta: np.ndarray
    used: np.ndarray
    norms: tuple[Normalization, ...]
    support_ids: np.ndarray
    rows: np.ndarray | sp.csr_array | None
    texts: tuple[str, ...]
    beta: np.ndarray
    intercepts: np.ndarray
    scale: FeatureScale = field(default_factory=FeatureScale)
    row_scaled: bool = False
    figures: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    layers: int = 1
    features: FeatureKernels | None = None


def is_selected(theta: np.ndarray, threshold: float) -> np.ndarray:
    """Return which weights are above ``threshold`` times the largest."""
    return theta > threshold * max(float(theta.max(initial=0.0)), 0.0)
