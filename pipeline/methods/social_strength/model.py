"""A fitted model of the strength of ties. A plain record, saved without pickle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.normalization import Normalization
from ...records.scale import FeatureScale


@dataclass(frozen=True)
class SocialModel:
    """``f(u, v) = sum_i a_i k((u, v), (u_i, v_i))`` over pairs of users, and the strength of a tie ``1 / (1 + exp(-f))``.

    Attributes
    ----------
    params_json
        The method's parameters.
    kernels_json
        All views in order, as a JSON list of records.
    n_features, n_train
        Width of the users' features, 0 for strings; number of users.
    precomputed
        Whether the views were given as matrices.
    theta
        ``(k,)`` weights of the views, l2 norm 1.
    factors, shifts
        ``(k, n)`` factors of rows and ``(k,)`` shifts that make a view of a raw matrix.
    norms
        Normalisation of the raw matrices.
    rows, texts
        The users' features, scaling applied, or strings; nothing for given matrices.
    pairs, coef
        ``(m, 2)`` pairs with a coefficient, and ``(m,)`` a.
    view_weights, offset
        Of the similarity kernel: ``f = offset + sum_t view_weights_t K^t(u, v)``; zeros for the others.
    kernel
        ``(n, n)`` float32, ``sum_t theta_t K^t``.
    strengths
        ``(n, n)`` float32, ``sum_t view_weights_t K^t`` of the similarity kernel; no rows for the others.
    scale, row_scaled
        Scaling of the features; whether rows are divided by their norm before use.
    figures, arrays
        Objective, gap and the like, and further results, by name.
    """

    record_name: ClassVar[str] = "SocialModel"
    params_json: str
    kernels_json: str
    n_features: int
    n_train: int
    precomputed: bool
    theta: np.ndarray
    factors: np.ndarray
    shifts: np.ndarray
    norms: tuple[Normalization, ...]
    rows: np.ndarray | sp.csr_array | None
    texts: tuple[str, ...]
    pairs: np.ndarray
    coef: np.ndarray
    view_weights: np.ndarray
    offset: float
    kernel: np.ndarray
    strengths: np.ndarray
    scale: FeatureScale = field(default_factory=FeatureScale)
    row_scaled: bool = False
    figures: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def classes_json(self) -> str:
        """There are no classes of users."""
        return "null"

    @property
    def features(self) -> None:
        """All features are read."""
        return
