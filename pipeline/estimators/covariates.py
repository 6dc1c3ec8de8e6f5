"""What estimators share that take covariates: columns of the rows beside the features, which bear no penalty."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ...storage.data import is_store
from ..inputs.covariates import covariates_to_decide, covariates_to_fit
from ..inputs.labels import Inputs
from .inputs import Column, UserRows, score_of
from .linear import LinearEstimator
from .supervised import predicted_labels


class CovariateEstimator(LinearEstimator):
    """Base of linear estimators with covariates; their models say names and coefficients of these."""

    def fit(self, X: UserRows, y: Column = None, sample_weight: Column = None, *, covariates: UserRows | None = None) -> Self:
        """Fit on arrays, sparse matrices, Dask arrays, or a block store.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store (its path or object) may hold target, weights, groups and covariates itself.
        y
            ``(n_samples,)`` target.
        sample_weight
            ``(n_samples,)`` factors of the losses; rows of weight 0 are not learnt from.
        covariates
            ``(n_samples, n_covariates)``, at most 100: columns whose coefficients bear no penalty, and are always in the model.

        Raises
        ------
        ValueError
            A parameter out of range, data that are not finite, one class only, groups that do not fit the data, covariates that are
            constant beside an intercept, combinations of others, or that separate the classes under the logistic loss.
        """
        config = self._config()
        self._fit(self._inputs(X, y, sample_weight, covariates), config)
        return self

    def _inputs(self, X: object, y: object, sample_weight: object = None, covariates: object = None) -> Inputs:
        inputs = super()._inputs(X, y, sample_weight)
        if covariates is None and not is_store(X):
            return inputs
        return replace(inputs, covariates=covariates_to_fit(covariates, inputs.data))

    def _values(self, X: object, covariates: object = None) -> np.ndarray:
        """Return ``(n_samples, n_machines)`` decision values of any form of data, with their covariates."""
        check_is_fitted(self)
        if is_store(X):
            with self._stored(X) as ctx:
                return self._method.predictor(self.model_).decision_values(self.model_, replace(ctx, covariates=covariates))
        rows, model = self._checked(X, reset=False), self.model_
        further, values = covariates_to_decide(model.covariate_names, covariates, rows.shape[0]), self._row_values(rows)
        return values if further is None else values + further @ model.covariate_coef.T

    def score(self, X: UserRows, y: Column = None, sample_weight: Column = None, *, covariates: UserRows | None = None) -> float:
        """Return the share of right labels of a classifier, R2 of a regressor."""
        return score_of(self._is_classifier, X, y, self.predict(X, covariates=covariates), sample_weight)

    def predict(self, X: UserRows, *, covariates: UserRows | None = None) -> np.ndarray:
        """Return the predicted class labels, or values, ``(n_samples,)``."""
        values = self._values(X, covariates)
        values = values[:, 0] if values.shape[1] == 1 else values
        return predicted_labels(values, self.classes_) if self._is_classifier else values
