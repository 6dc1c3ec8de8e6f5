"""StreamEstimator: estimators that can also learn from a stream of rows."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from ..models.linear import LinearModel
from .base import Estimator

RESTART = "partial_fit begins anew: the optimum of fit is no state of a stream; algorithm='da' lets streams go on"


class StreamEstimator(Estimator):
    """Base of estimators with ``partial_fit``, which accumulates sums. The model is computed from the sums when first requested.

    A subclass sets ``_iterations``, the name of the model's iteration count, and computes the model of a stream in :meth:`_stream_model`.
    """

    _iterations: ClassVar[str] = "iterations"
    _model: LinearModel | None = None
    _stream: Any = None

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None or self._stream is not None

    def _fit_place(self, data: Any) -> str | None:
        # Rows that are learnt one after another are the work of one process.
        return super()._fit_place(data) if self._config().resolved().algorithm == "fista" else "sync"

    def _stream_model(self) -> LinearModel:
        """Return the model of the rows seen so far."""
        raise NotImplementedError

    @property
    def model_(self) -> LinearModel:  # pyright: ignore[reportIncompatibleVariableOverride] (made when it is asked for)
        """The fitted linear model. After ``partial_fit`` it is made at the first request, in time linear in the number of weights."""
        if self._model is None:
            check_is_fitted(self)
            self._model = self._stream_model()
        return self._model

    @model_.setter
    def model_(self, model: LinearModel) -> None:
        self._model = model

    def _set_model(self, model: LinearModel) -> None:
        super()._set_model(model)
        self._stream = None
        self.converged_ = model.figures.get("converged", 0.0) > 0  # (a stream has no certificate)

    @property
    def coef_(self) -> np.ndarray | sp.csr_array:
        """Weights ``(n_machines, n_features)``; one row for two classes, otherwise one per class."""
        return self.model_.coef

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts ``(n_machines,)``."""
        return self.model_.intercepts

    @property
    def objective_(self) -> float:
        """Objective of the batch problem at the current weights. NaN after ``partial_fit``, because the rows are not stored."""
        return self.model_.figures["objective"]

    @property
    def dual_gap_(self) -> float:
        """Upper bound on the distance of the objective from the optimum. NaN for streams, which have no bound."""
        return self.model_.figures["gap"]

    @property
    def n_iter_(self) -> int:
        """Number of completed rounds of a stream, or of steps of a batch fit."""
        return int(self.model_.figures[self._iterations])
