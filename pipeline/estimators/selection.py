"""scikit-learn's feature selector interface. A separate module, because it imports most of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from ...storage.data import in_memory
from ...storage.errors import Matrix
from .frames import feature_count, feature_labels
from .inputs import features_of


class Selection(SelectorMixin):
    """Feature selector interface for estimators whose model knows its selected features. Input goes through :func:`in_memory`."""

    n_features_in_: int
    model_: Any

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        mask = np.zeros(feature_count(self), dtype=bool)
        mask[self.model_.features] = True
        return mask

    def transform(self, X: object) -> Matrix:
        """Return the selected columns of ``X``. For a frame with categorical columns, return the selected features made from the
        columns.
        """
        rows, is_encoded = features_of(self, X)
        return self._transform(rows) if is_encoded else super().transform(rows)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Return the names of the selected columns or features."""
        names = feature_labels(self) if input_features is None else None
        if names is None:
            return super().get_feature_names_out(input_features)
        return np.asarray(names, dtype=object)[self.get_support()]

    def inverse_transform(self, X: object) -> Matrix:
        """Return ``X`` ``(n_samples, n_selected)`` extended to all features, with zeros for features that were not selected."""
        return super().inverse_transform(in_memory(X))
