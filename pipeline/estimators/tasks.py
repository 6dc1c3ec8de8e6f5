"""What estimators for many tasks share: tasks beside rows and target, decision values per task."""

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
    """Base of estimators for many tasks: ``fit(X, y, task)`` and ``predict(X, task)``.

    ``task`` names the task of every row by an integer or a string; ``None`` is a single task, or the task table of a store.
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
            ``(n_samples,)`` integers or strings that name the task of each row, in any order; ``None`` is a single task of all rows (of a
            block store: the tasks it holds). Cross-validation hands tasks on by metadata routing: ``set_fit_request(task=True)`` and
            ``set_score_request(task=True)``.
        sample_weight
            ``(n_samples,)`` how often rows count, as factors of ``C`` and where kernels, their traces and widths follow the rows: a row
            of weight zero is none, one of weight two is two. Folds are drawn over rows, whatever their weights.

        Raises
        ------
        ValueError
            A parameter out of range, data that are not finite, one class only, an empty task.
        gramplane.cluster.MemoryBoundExceeded
            A matrix of all rows is needed, and is beyond the memory that a fit may take.
        """
        self._fit(add_tasks(self._inputs(X, y, sample_weight), X, task))
        return self

    def _set_model(self, model: TaskModel) -> None:
        super()._set_model(model)
        self.tasks_ = np.asarray(model.tasks)
        self.intercept_ = model.intercepts
        self.support_vectors_, self.dual_coef_ = model.support_ids, model.beta

    def _values(self, X: UserData, task: UserData = None) -> np.ndarray:
        """Return ``(n_samples, n_machines)`` decision values of any form of data."""
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
    """Base of classifiers for many tasks; the classes are the same for all tasks."""

    def decision_function(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return ``f_t(x)`` of every row x of task t: ``(n_samples,)``, positive for the second class, or ``(n_samples, n_classes)``."""
        return by_class(self._decide(X, task=task))

    def predict(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the predicted labels, ``(n_samples,)``."""
        return self._labels(X, task=task)

    @available_if(has_probabilities)
    def predict_proba(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the probabilities of the classes, ``(n_samples, n_classes)`` in the order of ``classes_``.

        ``task`` names the task of every row. All tasks have one calibration.

        :meth:`predict` goes by decision values: where these are calibrated the most probable class may be another one. The first call
        after a fit with ``probability="auto"`` and another loss than the logistic one takes about five fits.

        Raises ValueError: there is nothing to calibrate from, or the data of the fit were changed.
        """
        return self._probabilities(X, task=task)

    @available_if(has_probabilities)
    def predict_log_proba(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the logarithms of :meth:`predict_proba`, ``(n_samples, n_classes)``."""
        return log_of(self.predict_proba(X, task))

    def score(self, X: UserRows, y: Column = None, task: Column = None, sample_weight: Column = None) -> float:
        """Return the share of right labels over all rows."""
        return score_of(True, X, y, self.predict(X, task), sample_weight)


class TaskRegressor(Regressor):
    """Base of regressors for many tasks."""

    def predict(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the predicted values, ``(n_samples,)``."""
        return self._decide(X, task=task)[:, 0]

    def score(self, X: UserRows, y: Column = None, task: Column = None, sample_weight: Column = None) -> float:
        """Return the coefficient of determination over all rows."""
        return score_of(False, X, y, self.predict(X, task), sample_weight)


def add_tasks(inputs: Inputs, X: UserRows, task: Column) -> TaskInputs:
    """Return inputs made of ``X`` with the tasks of their rows; ``None`` takes those of a store."""
    stored = store_tasks(inputs.data) if task is None and is_store(X) else task
    return with_tasks(inputs, stored, str(X) if isinstance(X, str) else "")
