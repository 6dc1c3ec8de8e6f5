"""What estimators for many tasks share: tasks beside rows and target, decision values per task."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_is_fitted, validate_data

from ..methods.kernel_predict import scaled_rows
from ..methods.task_predict import decide_task_grams, decide_task_rows, decide_task_store
from ..methods.task_setup import TaskInputs, known_codes, store_tasks, with_tasks
from ..records.task_model import TaskModel
from .inputs import fan_out, fit_context, in_memory, is_store, opened
from .kernel_base import KernelEstimator, is_text, labelled


class TaskEstimator(KernelEstimator):
    """Base of estimators for many tasks: ``fit(X, y, task)`` and ``predict(X, task)``.

    ``task`` names the task of every row by an integer or a string; ``None`` is a single task, or the task table of a store. A subclass
    names its parameter model, calls :meth:`_task_inputs` in ``fit`` and sets its :class:`TaskModel` with :meth:`_set_model`.
    """

    model_: Any
    tasks_: np.ndarray
    intercept_: np.ndarray

    def _task_inputs(self, X: Any, y: Any, task: Any, sample_weight: Any = None) -> TaskInputs:
        """Return data, target, tasks and weights from any form of data.

        Raises
        ------
        ValueError
            Data that are not finite, more than two classes, tasks that cannot be read.
        gramplane.storage.DataError
            An empty task.
        """
        inputs = self._inputs(X, y, sample_weight)
        stored = store_tasks(inputs.data) if task is None and is_store(X) else task
        return with_tasks(inputs, stored, str(X) if isinstance(X, str) else "")

    def _set_model(self, model: TaskModel) -> None:
        super()._set_model(model)  # pyright: ignore[reportArgumentType] (the record of this family)
        self.tasks_ = np.asarray(model.tasks)
        self.intercept_ = model.intercepts
        self.support_vectors_ = model.support_ids

    def _values(self, X: Any, task: Any = None) -> np.ndarray:
        """Return ``(n_samples, 1)`` decision values of any form of data."""
        check_is_fitted(self, "model_")
        model: TaskModel = self.model_
        if is_store(X) and not model.precomputed:
            with fit_context(opened(X), self.cluster, fan_out(None, 0), 0) as ctx:
                return decide_task_store(model, ctx, task)
        if model.precomputed:
            grams = self._test_matrices(X)
            return decide_task_grams(model, grams, known_codes(task, model.tasks, grams.shape[1]))[:, None]
        if is_text(X):
            rows: Any = np.array(list(X), dtype=object)
        else:
            options: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "accept_large_sparse": False, "reset": False}
            rows = scaled_rows(model, validate_data(self, in_memory(X), **options))  # pyright: ignore[reportArgumentType]
        return decide_task_rows(model, rows, known_codes(task, model.tasks, rows.shape[0]))[:, None]


class TaskClassifier(ClassifierMixin, TaskEstimator):
    """What classifiers for many tasks share; two classes, the same for all tasks."""

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def decision_function(self, X: Any, task: Any = None) -> np.ndarray:
        """Return ``f_t(x)`` of every row x of task t, ``(n_samples,)``; positive speaks for the second class."""
        return self._values(X, task)[:, 0]

    def predict(self, X: Any, task: Any = None) -> np.ndarray:
        """Return the predicted labels, ``(n_samples,)``."""
        return labelled(self.decision_function(X, task), self.classes_)

    def score(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> float:
        """Return the share of right labels over all rows."""
        return float(accuracy_score(y, self.predict(X, task), sample_weight=sample_weight))


class TaskRegressor(RegressorMixin, TaskEstimator):
    """What regressors for many tasks share."""

    _is_classifier = False

    def predict(self, X: Any, task: Any = None) -> np.ndarray:
        """Return the predicted values, ``(n_samples,)``."""
        return self._values(X, task)[:, 0]

    def score(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination over all rows."""
        return float(r2_score(y, self.predict(X, task), sample_weight=sample_weight))
