"""Common parts of multi-task estimators: a task per row, decision values per task."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ...storage.data import is_store
from ...storage.errors import UserData
from ..inputs.labels import Inputs
from ..inputs.tasks import TaskInputs, known_codes, store_tasks, with_tasks
from ..models.task import TaskModel, decide_task_grams, decide_task_rows
from .base import Classifier, Regressor, by_class, has_probabilities, log_of
from .inputs import Column, UserRows, score_of
from .kernels import KernelEstimator, is_text


class TaskEstimator(KernelEstimator):
    """Base of multi-task estimators: ``fit(X, y, task)`` and ``predict(X, task)``.

    ``task`` names the task of every row by an integer or a string. ``None`` is a single task, or the task table of a store.
    """

    model_: Any
    tasks_: np.ndarray
    intercept_: np.ndarray
    dual_coef_: np.ndarray

    def fit(self, X: UserRows, y: Column = None, task: Column = None, sample_weight: Column = None) -> Self:
        """Fit on arrays, sparse matrices, Dask arrays, strings, precomputed matrices, or a block store.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store may hold target and tasks itself.
        y
            ``(n_samples,)`` target.
        task
            ``(n_samples,)`` task of each row, as integers or strings in any order. ``None`` is a single task, or the tasks of a block
            store. For cross-validation, request metadata routing: ``set_fit_request(task=True)`` and ``set_score_request(task=True)``.
        sample_weight
            ``(n_samples,)`` multiplicities of rows: a row of weight 2 counts as two rows, a row of weight 0 as none. Weights scale ``C``
            and enter data-dependent kernel widths and traces. Folds are drawn over rows, regardless of weights.

        Raises
        ------
        ValueError
            A parameter is out of range, data are not finite, the target has one class only, or a task has no rows.
        gramplane.cluster.MemoryBoundExceeded
            The method needs a matrix over all rows, and it exceeds the memory limit of a fit.
        """
        self._fit(add_tasks(self._inputs(X, y, sample_weight), X, task))
        return self

    def _set_model(self, model: TaskModel) -> None:
        super()._set_model(model)
        self.tasks_ = np.asarray(model.tasks)
        self.intercept_ = model.intercepts
        self.support_vectors_, self.dual_coef_ = model.support_ids, model.beta

    def _values(self, X: UserData, task: UserData = None) -> np.ndarray:
        """Return the decision values ``(n_samples, n_machines)`` for data in any supported form."""
        check_is_fitted(self, "model_")
        model: TaskModel = self.model_
        if is_store(X) and not model.precomputed:
            with self._stored(X) as (data, resources):
                return model.decision_values(data, resources, task=task)
        if model.precomputed:
            grams = self._test_matrices(X)
            return decide_task_grams(model, grams, known_codes(task, model.tasks, grams.shape[1]))
        rows = np.array(list(X), dtype=object) if is_text(X) else model.scaled_rows(self._checked(X, reset=False))
        return decide_task_rows(model, rows, known_codes(task, model.tasks, rows.shape[0]))


class TaskClassifier(Classifier):
    """Base of multi-task classifiers. All tasks have the same classes."""

    def decision_function(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return ``f_t(x)`` of every row x of task t: ``(n_samples,)``, positive for the second class, or ``(n_samples, n_classes)``."""
        return by_class(self._decide(X, task=task))

    def predict(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the predicted labels, ``(n_samples,)``."""
        return self._labels(X, task=task)

    @available_if(has_probabilities)
    def predict_proba(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the class probabilities, ``(n_samples, n_classes)``, in the order of ``classes_``.

        ``task`` names the task of every row. One calibration serves all tasks.

        :meth:`predict` uses decision values, so after calibration it may differ from the most probable class. With ``probability="auto"``
        and a loss other than the logistic one, the first call after a fit takes as long as about five fits.

        Raises ValueError if the data for the calibration are missing, or were changed since the fit.
        """
        return self._probabilities(X, task=task)

    @available_if(has_probabilities)
    def predict_log_proba(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the logarithms of :meth:`predict_proba`, ``(n_samples, n_classes)``."""
        return log_of(self.predict_proba(X, task))

    def score(self, X: UserRows, y: Column = None, task: Column = None, sample_weight: Column = None) -> float:
        """Return the accuracy over all rows."""
        return score_of(True, X, y, self.predict(X, task), sample_weight)


class TaskRegressor(Regressor):
    """Base of multi-task regressors."""

    def predict(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the predicted values, ``(n_samples,)``."""
        return self._decide(X, task=task)[:, 0]

    def score(self, X: UserRows, y: Column = None, task: Column = None, sample_weight: Column = None) -> float:
        """Return the coefficient of determination over all rows."""
        return score_of(False, X, y, self.predict(X, task), sample_weight)


def add_tasks(inputs: Inputs, X: UserRows, task: Column) -> TaskInputs:
    """Return the inputs with the task of each row. ``task=None`` uses the task table of the store ``X``."""
    stored = store_tasks(inputs.data) if task is None and is_store(X) else task
    return with_tasks(inputs, stored, str(X) if isinstance(X, str) else "")
