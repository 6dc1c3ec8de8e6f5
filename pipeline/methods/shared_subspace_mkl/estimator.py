"""SharedSubspaceMKLClassifier and SharedSubspaceMKLRegressor: machines of many tasks that share a subspace of every kernel."""

from __future__ import annotations

from ...estimators.tasks import TaskClassifier, TaskEstimator, TaskRegressor
from ...models.task import TaskModel, machine_stack
from ...one_vs_rest import class_model
from .config import SharedSubspaceConfig
from .method import SharedSubspace


class _SharedSubspace(TaskEstimator):
    r"""What both estimators share.

    .. math::

        \min_{W, b} \frac{1}{2} \Bigl(\sum_j \|W_j\|_*^q\Bigr)^{2/q} + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr)

    the columns of :math:`W_j` being the parts of all tasks in the space of kernel j, :math:`\|\cdot\|_*` the sum of singular values.

    Of more than two classes every class has a machine against the rest, with couplings of its own; arrays have one more axis then, before
    the others.

    Attributes
    ----------
    kernel_weights_
        ``(n_kernels,)`` traces of the couplings, on the unit sphere of the norm ``q / (2 - q)``.
    task_weights_
        ``(n_kernels, n_tasks, n_tasks)`` couplings D: kernel j counts ``D_j[s, t]`` between rows of the tasks s and t.
    subspace_
        The same: their leading eigenvectors span what the tasks share.
    objective_, dual_gap_, lower_bound_, upper_bound_
        Primal value and its distance to the dual value, a bound of the distance to the optimum; both bounds of the optimum.
    C_
        Weight of the losses.
    n_iter_, converged_, stop_reason_, history_
        Solves of the machine, whether ``tol`` was reached, what ended it, and one array per figure over the iterations.

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 4.
    """

    _method = SharedSubspace

    def _set_model(self, model: TaskModel) -> None:
        super()._set_model(model)
        self.C_ = float(SharedSubspaceConfig.model_validate_json(model.params_json).C)
        models = [class_model(model, m) for m in range(model.n_machines)]
        self.kernel_weights_ = machine_stack([one.arrays["kernel_weights"].copy() for one in models])
        self.task_weights_ = model.weights.copy()
        self.subspace_ = self.task_weights_
        self._set_bounds(model.figures)


class SharedSubspaceMKLClassifier(TaskClassifier, _SharedSubspace):
    r"""Classifiers of many tasks that share a low-dimensional subspace of every kernel's feature space (MK-MTSFL).

    A task all of whose rows have one label predicts it.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import SharedSubspaceMKLClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1] > 0
    >>> model = SharedSubspaceMKLClassifier(["linear", "rbf(gamma=0.5)"]).fit(X, y, task)
    >>> model.task_weights_.shape, model.predict(X, task).shape
    ((2, 3, 3), (60,))
    """


class SharedSubspaceMKLRegressor(TaskRegressor, _SharedSubspace):
    r"""Regressions of many tasks that share a low-dimensional subspace of every kernel's feature space (MK-MTSFL).

    The target is centred and scaled inside: C and epsilon are about targets of standard deviation one, and mean the same in every unit.
    Coefficients and intercepts are in the unit of the target, objective and bounds in its square.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import SharedSubspaceMKLRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1]
    >>> model = SharedSubspaceMKLRegressor(["linear", "rbf(gamma=0.5)"]).fit(X, y, task)
    >>> model.task_weights_.shape, model.predict(X, task).shape
    ((2, 3, 3), (60,))
    """
