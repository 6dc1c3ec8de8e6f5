"""A fitted machine on a weighted sum of kernels. A plain record, saved without pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ...kernels.grams.normalization import Normalization
from ...kernels.grams.products import kernel_from_json, named_text
from ..records.scale import FeatureScale
from .calibration import Calibration


@dataclass(frozen=True)
class FeatureKernels:
    """One kernel per feature, for thousands of features: ``sum_i w_i scale_i K_i(x, z)``."""

    record_name: ClassVar[str] = "FeatureKernels"
    columns: np.ndarray  # `(k,)` features, ascending; a model's rows and scaling hold these only
    widths: np.ndarray  # `(k,)` sigma of `exp(-(x - z)^2 / (2 sigma^2))`; all 0 for linear kernels
    scales: np.ndarray  # `(k,)` multipliers of the raw kernels


@dataclass(frozen=True)
class KernelModel:
    """``f_m(x) = sum_i beta_mi g(sum_q theta_mq K_q(x, x_i)) + intercept_m`` for one or several machines m.

    g is the identity, or with two layers the exponential.
    """

    record_name: ClassVar[str] = "KernelModel"
    params_json: str  # the method's parameters
    classes_json: str  # the class labels in order, as JSON; `null` for regression
    kernels_json: str  # all kernels in order, as a JSON list of records
    # n_features, n_train: width and rows of the training data; `n_features` is 0 for strings
    n_features: int
    n_train: int
    precomputed: bool  # whether kernels are matrices that users compute, at prediction too
    theta: np.ndarray  # `(n_machines, n_kernels)` kernel weights
    used: np.ndarray  # `(n_used,)` kernels with a weight in some machine
    norms: tuple[Normalization, ...]  # their normalisation, vectors over the support rows
    support_ids: np.ndarray  # `(n_support,)` sorted training rows with a coefficient
    rows: np.ndarray | sp.csr_array | None  # their features, scaling applied; None for strings and matrices
    texts: tuple[str, ...]  # strings of the support rows
    beta: np.ndarray  # `(n_machines, n_support)` signed coefficients
    intercepts: np.ndarray  # `(n_machines,)`
    # scale, row_scaled: scaling of the features; whether rows are divided by their norm before use
    scale: FeatureScale = field(default_factory=FeatureScale)
    row_scaled: bool = False
    figures: dict[str, float] = field(default_factory=dict)  # objective, bounds and the like, by name
    arrays: dict[str, np.ndarray] = field(default_factory=dict)  # further results of a method, by name
    layers: int = 1  # 1 or 2
    features: FeatureKernels | None = None  # one kernel per feature in place of `kernels_json`, or None
    calibration: Calibration | None = None  # how decision values become probabilities, where that was fitted


def kernel_names(model: Any, columns: Sequence[str] | None = None) -> list[str]:
    """Return the texts of a model's kernels, in their order; ``columns`` are the names of the features, where they have some."""
    return [kernel_text(record, columns) for record in json.loads(model.kernels_json)]


def kernel_text(record: Mapping[str, Any], columns: Sequence[str] | None = None) -> str:
    """Return the text of a kernel's record, which of a given matrix is its label."""
    if "position" in record:
        return record["label"] or f"precomputed {record['position']}"
    return named_text(kernel_from_json(record), columns)


def is_selected(theta: np.ndarray, threshold: float) -> np.ndarray:
    """Return which weights are above ``threshold`` times the largest."""
    return theta > threshold * max(float(theta.max(initial=0.0)), 0.0)
