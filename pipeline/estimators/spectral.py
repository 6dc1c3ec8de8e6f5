"""What transductive estimators share: a kernel over the rows of the fit, known by its spectrum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ...kernels.jit import one_thread
from ..models.spectral import SpectralModel
from .kernels import KernelEstimator


class SpectralEstimator(KernelEstimator):
    """Base of transductive estimators."""

    _is_classifier: ClassVar[bool] = False
    _kernels_parameter = None

    model_: SpectralModel

    def kernel_block(self, rows: Any = None, cols: Any = None) -> np.ndarray:
        """Return entries of the learnt kernel, ``K[rows][:, cols]``: indices of rows of the fit, or a slice; default: all."""
        check_is_fitted(self, "model_")
        left, right = (np.arange(self.model_.n_rows)[slice(None) if part is None else part] for part in (rows, cols))
        with one_thread():
            return self.model_.kernel_block(left, right)

    def _set_model(self, model: SpectralModel) -> None:
        if not isinstance(model.eigenvectors, np.ndarray):  # in tiles of the run, which end with it
            model = replace(model, eigenvectors=model.eigenvectors.read(0, model.n_rows))
        super()._set_model(model)
        self.eigenvectors_, self.eigenvalues_ = model.eigenvectors, model.eigenvalues
        self.objective_, self.dual_gap_ = model.figures["objective"], model.figures["gap"]

    @classmethod
    def _model_params(cls, model: SpectralModel, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return json.loads(model.config_json)
