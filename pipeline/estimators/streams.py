"""StreamEstimator: what estimators share that learn from a stream of rows, too."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from ..models.linear import LinearModel
from .base import Estimator

RESTART = "partial_fit begins anew: the optimum of fit is no state of a stream; algorithm='da' lets streams go on"


class StreamEstimator(Estimator):
    """Base of estimators that learn from a stream of rows, too: ``partial_fit`` keeps sums, of which a model is made when it is asked for.

    A subclass says which figure of its model counts the iterations, and makes a model of its stream in :meth:`_stream_model`.
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
        """Return the model of the rows so far."""
        raise NotImplementedError

    @property
    def model_(self) -> LinearModel:  # pyright: ignore[reportIncompatibleVariableOverride] (made when it is asked for)
        """The fitted machines, a plain record; after ``partial_fit`` made when first asked for, which takes a sweep over all weights."""
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
        """Weights of every machine, ``(n_machines, n_features)``."""
        return self.model_.coef

    @property
    def intercept_(self) -> np.ndarray:
        """Intercept of every machine, ``(n_machines,)``."""
        return self.model_.intercepts

    @property
    def objective_(self) -> float:
        """Value of the batch problem at the weights; NaN after ``partial_fit``, whose rows are gone."""
        return self.model_.figures["objective"]

    @property
    def dual_gap_(self) -> float:
        """Distance of the objective to the optimum at most; NaN for streams, which have no bound."""
        return self.model_.figures["gap"]

    @property
    def n_iter_(self) -> int:
        """Closed rounds of a stream, or steps of a batch."""
        return int(self.model_.figures[self._iterations])
