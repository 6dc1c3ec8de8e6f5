"""HierarchicalKernelClassifier and HierarchicalKernelRegressor: machines on kernels chosen from a graph of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from ....kernels.graphs.kernel_graphs import KernelDag
from ....kernels.graphs.parsing import graph_record
from ....storage.data import is_store, opened, square_in_memory
from ...estimators.inputs import Classifying, Column, Predicting, UserRows, score_of
from ...estimators.kernels import KernelEstimator
from ...estimators.probabilities import TaskProbabilities
from ...estimators.supervised import predicted_labels
from ...estimators.tasks import TaskEstimator, add_tasks
from ...inputs.tasks import store_tasks
from ...loops.active_set import EVERYWHERE, FINISHED
from ...models.kernel import KernelModel, is_selected, kernel_names
from ...models.task import TaskModel
from .config import HKLConfig
from .loop import HKLState
from .method import HKL, HKLInputs


class _Hierarchical(TaskEstimator):
    r"""What both estimators share; with tasks the model is a :class:`TaskModel`, else a :class:`KernelModel`.

    .. math::

        \min_{f, b} \frac{1}{2} \Bigl(\sum_v d_v \bigl(\sum_{w \in D(v)} \|f_w\|^\rho\bigr)^{1/\rho}\Bigr)^2
        + C \sum_i \ell\Bigl(y_i, \sum_w f_w(x_i) + b\Bigr)

    over functions :math:`f_w` in the spaces of the kernels of all nodes w, D(v) the descendants of v. The graph may be too large to list.

    Attributes
    ----------
    active_set_
        Kernels of the hull, as texts.
    kernel_weights_
        ``(n_nodes,)`` their weights mu: the machine's kernel is ``sum_w mu_w k_w``, times the task kernel.
    nodes_, depths_
        ``(n_nodes, width)`` names of the nodes in the graph, ``(n_nodes,)`` their depths.
    support_
        Indices of the selected kernels.
    certificate_, certificate_depth_
        Certified gap relative to the primal value, NaN where nothing is certified; ``None`` where it holds for all nodes of the graph, else
        the depth down to which it does.
    objective_, dual_gap_, restricted_gap_
        Primal value, the certified gap, and the gap over the nodes of the hull.
    tasks_, intercept_
        Names of the tasks, where there are several, and ``(n_machines,)``, or ``(n_tasks,)``; of tasks and more than two classes
        ``(n_classes, n_tasks)``.
    support_vectors_, dual_coef_
        Training rows with a coefficient, and their signed coefficients: ``(n_machines, n_support)``, with tasks and two classes
        ``(n_support,)``.
    n_iter_, converged_, stop_reason_, history_
        Steps, whether the gap over all nodes is within ``tol``, what ended it (``rest``: the parameter), and one array per figure over
        the steps.

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 5.
    Bach: Exploring Large Feature Spaces with Hierarchical Multiple Kernel Learning. NIPS (2008).
    """

    _method = HKL
    _kernels_parameter = None
    _wider = {
        **TaskEstimator._wider,
        "dag": ("str, list, dict, KernelDag or None", str | Sequence[Any] | Mapping[str, Any] | KernelDag | None),
        "task_kernel": ("float > 0 or array of shape (n_tasks, n_tasks) or None", float | Sequence[Sequence[float]] | np.ndarray | None),
    }

    dag: Any
    task_kernel: Any

    def _plain(self, given: dict[str, Any]) -> dict[str, Any]:
        given = super()._plain({**given, "dag": graph_record(given["dag"])})
        if np.ndim(given["task_kernel"]):
            given["task_kernel"] = np.asarray(square_in_memory(given["task_kernel"], "task_kernel"), np.float64).tolist()
        return given

    def fit(self, X: UserRows, y: Column = None, task: Column = None, sample_weight: Column = None) -> Self:
        """Fit on arrays, sparse matrices, Dask arrays, strings, or a block store.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store may hold target and tasks itself.
        y
            ``(n_samples,)`` target; several classes are fitted one against the rest, with one set of kernels.
        task
            ``(n_samples,)`` integers or strings that name the task of each row, in any order.
        sample_weight
            ``(n_samples,)`` how often rows count: factors of ``C``, also of widths and traces.

        Raises
        ------
        ValueError
            A parameter out of range, a graph with a cycle, data that are not finite, one class only.
        """
        has_tasks = task is not None or (is_store(X) and store_tasks(opened(X)) is not None)
        inputs = self._inputs(X, y, sample_weight)
        # What a file of parameters can hold is in the parameters already.
        dag = None if isinstance(self.dag, (str, Sequence, Mapping)) else self.dag
        self._fit(HKLInputs(add_tasks(inputs, X, task) if has_tasks else inputs, dag))
        return self

    def _unfinished(self, state: HKLState) -> str:
        if state.stop in FINISHED:
            return ""
        return f"the fit ended ({state.stop}) before tol={self._config().tol:g} was certified"

    def _set_model(self, model: Any) -> None:
        if isinstance(model, TaskModel):
            super()._set_model(model)
        else:
            KernelEstimator._set_model(self, model)
            self.intercept_, self.support_vectors_, self.dual_coef_ = model.intercepts, model.support_ids, model.beta
        figures, arrays = model.figures, model.arrays
        self.nodes_, self.depths_ = arrays["nodes"], arrays["depths"]
        self.kernel_weights_ = arrays["weights"].copy()
        self.active_set_ = kernel_names(model)
        self.support_ = np.flatnonzero(is_selected(self.kernel_weights_, HKLConfig.model_validate_json(model.params_json).threshold))
        self.objective_, self.dual_gap_, self.restricted_gap_ = figures["objective"], figures["gap"], figures["restricted_gap"]
        self.certificate_ = self.dual_gap_ / abs(self.objective_) if self.objective_ else self.dual_gap_
        depth = figures["certificate_depth"]
        self.certificate_depth_ = None if not np.isfinite(depth) or depth == EVERYWHERE else int(depth)

    def _values(self, X: object, task: object = None) -> np.ndarray:
        """Return decision values of any form of data, ``(n_samples, n_machines)``."""
        if not isinstance(getattr(self, "model_", None), KernelModel):
            return super()._values(X, task)
        if task is not None:
            raise ValueError("task is given, but the model was fitted without tasks")
        return KernelEstimator._values(self, X)


class HierarchicalKernelClassifier(Classifying, TaskProbabilities, _Hierarchical):
    r"""Support vector classifier on kernels that are chosen from a graph of them, a kernel together with its ancestors (gHKL, gHKL_MT).

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import HierarchicalKernelClassifier
    >>> X = np.random.default_rng(0).normal(size=(80, 4))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> model = HierarchicalKernelClassifier("subsets(gaussian; depth=2)", tol=0.05).fit(X, y)
    >>> len(model.active_set_) == len(model.kernel_weights_)
    True
    """

    _left_out = ("epsilon",)

    def decision_function(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return ``f(x)``: ``(n_samples,)`` for two classes, else ``(n_samples, n_classes)``; ``task`` names the task of every row."""
        values = self._values(X, task)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the predicted labels, ``(n_samples,)``."""
        return predicted_labels(self.decision_function(X, task), self.classes_)

    def score(self, X: UserRows, y: Column = None, sample_weight: Column = None, task: Column = None) -> float:
        """Return the share of right labels over all rows."""
        return score_of(True, X, y, self.predict(X, task), sample_weight)


class HierarchicalKernelRegressor(Predicting, _Hierarchical):
    r"""Support vector or ridge regression on kernels that are chosen from a graph of them, a kernel together with its ancestors.

    The target is centred and scaled inside: C and epsilon are about targets of standard deviation one, and mean the same in every unit.
    Coefficients and intercepts are in the unit of the target, objective and bounds in its square.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import HierarchicalKernelRegressor
    >>> X = np.random.default_rng(0).normal(size=(80, 4))
    >>> model = HierarchicalKernelRegressor("subsets(gaussian; depth=2)", loss="squared", tol=0.05).fit(X, X[:, 0] * X[:, 1])
    >>> len(model.active_set_) == len(model.kernel_weights_)
    True
    """

    _left_out = ("class_weight", "probability")
    _is_classifier = False

    def predict(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the predicted values, ``(n_samples,)``; ``task`` names the task of every row."""
        return self._values(X, task)[:, 0]

    def score(self, X: UserRows, y: Column = None, sample_weight: Column = None, task: Column = None) -> float:
        """Return the coefficient of determination over all rows."""
        return score_of(False, X, y, self.predict(X, task), sample_weight)
