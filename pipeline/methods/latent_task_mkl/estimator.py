"""LatentTaskMKLClassifier and LatentTaskMKLRegressor: kernels shared by groups of tasks, which are learnt over all groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...estimators.tasks import TaskClassifier, TaskEstimator, TaskRegressor
from ...models.task import TaskModel
from ...one_vs_rest import class_model, of_machines
from .config import LatentTaskConfig
from .loop import Certificate, LatentState
from .method import LatentTask

STOPS = {
    "max_iter": "max_iter={0.max_iter}",
    "max_rounds": "max_rounds={0.max_rounds}",
    "max_nodes": "max_groups={0.max_groups}",
    "stalled": "a cap on the search over groups, or rounding,",
}  # what ended a fit before its tolerance was reached


@dataclass(frozen=True)
class TaskGroup:
    """A group of tasks, ``tasks`` by name, and ``weight``, the sum of the weights of its kernels."""

    tasks: tuple[Any, ...]
    weight: float


class _LatentTaskMKL(TaskEstimator):
    r"""What both estimators share.

    .. math::

        \min \frac{1}{2} \Bigl(\sum_v d_v \bigl(\sum_{w \ge v} \|\Theta_w\|_p^q\bigr)^{1/q}\Bigr)^2
        + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr)

    over functions of all groups w of tasks, :math:`F_t = \sum_{w \ni t} \sum_j (h_{0w}^j + h_{tw}^j) + b_t` and
    :math:`(\Theta_w^j)^2 = \mu \|h_{0w}^j\|^2 + \sum_{t \in w} \|h_{tw}^j\|^2`.

    Of more than two classes every class has a machine against the rest, with groups of its own; attributes are lists then, in the order of
    the classes, and arrays have one more axis before the others.

    Attributes
    ----------
    groups_
        List of :class:`TaskGroup`, the heaviest first. Compare groups of one size: the penalties make single tasks (inverted: the group
        of all) the heaviest.
    group_kernel_weights_
        ``(n_groups, n_kernels)`` weights of the kernels in these groups.
    certificate_
        :class:`Certificate`: gap to the optimum over all groups, whether the search over them was complete, and the thesis' sufficient
        condition.
    task_kernel_weights_
        ``(n_kernels, n_tasks, n_tasks)`` weight of every kernel between pairs of tasks.
    objective_, dual_gap_
        Primal value, and its certified distance to the optimum over all groups.
    C_
        Weight of the losses.
    inverted_
        Whether the search started from the group of all tasks.
    n_iter_, converged_, stop_reason_, history_
        Machines solved, whether ``tol`` was reached, what ended it, and one array per figure over the iterations.

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 6.
    """

    _method = LatentTask
    _takes_all_memory = True

    def _unfinished(self, state: LatentState) -> str:
        config, gap = self._config(), self.model_.figures["certified_relative_gap"]
        reason = STOPS.get(str(state.stop), str(state.stop)).format(config)
        return f"{reason} ended the fit before tol={config.tol:g} was reached; a relative gap of {gap:.2g} is certified"

    def _set_model(self, model: TaskModel) -> None:
        super()._set_model(model)
        config = LatentTaskConfig.model_validate_json(model.params_json)
        self.C_, self.inverted_ = float(config.C), bool(config.inverted)
        models = [class_model(model, m) for m in range(model.n_machines)]
        self.group_kernel_weights_ = of_machines([one.arrays["group_kernel_weights"].copy() for one in models])
        self.groups_ = of_machines([self._task_groups(one) for one in models])
        self.task_kernel_weights_ = model.weights.copy()
        self.certificate_ = of_machines([Certificate.of(one.figures) for one in models])
        self.objective_, self.dual_gap_ = model.figures["upper_bound"], model.figures["certified_gap"]

    def _task_groups(self, model: TaskModel) -> list[TaskGroup]:
        totals = model.arrays["group_kernel_weights"].sum(axis=1).tolist()
        groups = model.arrays["groups"].astype(bool)
        return [TaskGroup(tuple(self.tasks_[group].tolist()), total) for group, total in zip(groups, totals, strict=True)]


class LatentTaskMKLClassifier(TaskClassifier, _LatentTaskMKL):
    r"""Classifiers of many tasks whose kernels are shared by groups of tasks (MTGFL); the classes are the same for all tasks.

    A task all of whose rows have one label predicts it, and takes no part in groups.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import LatentTaskMKLClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(90, 3)), np.arange(90) % 3
    >>> y = np.where(task < 2, X[:, 0], X[:, 1]) > 0
    >>> model = LatentTaskMKLClassifier(["linear[0]", "linear[1]"], tol=0.05).fit(X, y, task)
    >>> model.task_kernel_weights_.shape, model.predict(X, task).shape
    ((2, 3, 3), (90,))
    """


class LatentTaskMKLRegressor(TaskRegressor, _LatentTaskMKL):
    r"""Regressions of many tasks whose kernels are shared by groups of tasks (MTGFL).

    The target is centred and scaled inside: C and epsilon are about targets of standard deviation one, and mean the same in every unit.
    Coefficients and intercepts are in the unit of the target, objective and bounds in its square.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import LatentTaskMKLRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(90, 3)), np.arange(90) % 3
    >>> y = np.where(task < 2, X[:, 0], X[:, 1])
    >>> model = LatentTaskMKLRegressor(["linear[0]", "linear[1]"], tol=0.05).fit(X, y, task)
    >>> model.task_kernel_weights_.shape, model.predict(X, task).shape
    ((2, 3, 3), (90,))
    """
