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

    For the similarity kernel ``f = offset + sum_t view_weights_t K^t(u, v)``; its weights are zeros for the others, which have no
    strengths.
    """

    record_name: ClassVar[str] = "SocialModel"
    params_json: str
    kernels_json: str  # all views in order, as a list of records
    n_features: int  # 0 for strings
    n_train: int  # users
    precomputed: bool  # whether the views were given as matrices
    theta: np.ndarray  # (k,) weights of the views, l2 norm 1
    factors: np.ndarray  # (k, n) of rows: with the shifts they make a view of a raw matrix
    shifts: np.ndarray  # (k,)
    norms: tuple[Normalization, ...]  # of the raw matrices
    rows: np.ndarray | sp.csr_array | None  # the users' features, scaling applied; none for strings and matrices
    texts: tuple[str, ...]
    pairs: np.ndarray  # (m, 2) with a coefficient
    coef: np.ndarray  # a, (m,)
    view_weights: np.ndarray  # (k,)
    offset: float
    kernel: np.ndarray  # (n, n) float32, sum_t theta_t K^t
    strengths: np.ndarray  # (n, n) float32, sum_t view_weights_t K^t
    scale: FeatureScale = field(default_factory=FeatureScale)
    row_scaled: bool = False  # whether rows are divided by their norm before use
    figures: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    # data_url, data_digest: of a model by blocks the store that has its users, whose rows it does not hold; empty where `rows` are here
    data_url: str = ""
    data_digest: str = ""

    @property
    def by_blocks(self) -> bool:
        """Whether scores are computed from the users' rows, or sparse similarities, when they are asked for: no matrix is held."""
        return not self.kernel.size

    @property
    def classes_json(self) -> str:
        """There are no classes of users."""
        return "null"

    @property
    def features(self) -> None:
        """All features are read."""
        return
