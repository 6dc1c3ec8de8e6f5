"""MultiTaskMKLClassifier and MultiTaskMKLRegressor: machines of many tasks on kernels that they choose together."""

from __future__ import annotations

import numpy as np

from ...estimators.cross_validated import MACHINE_C, CrossValidatedTasks, Grid
from ...estimators.tasks import TaskClassifier, TaskEstimator, TaskRegressor
from ...models.kernel import is_selected
from ...models.task import TaskModel
from .config import MultiTaskMKLConfig
from .method import MultiTaskMKL


class _MultiTaskMKL(TaskEstimator):
    r"""What both estimators share.

    .. math::

        \min_{f, b} \frac{1}{2} \Bigl(\sum_j \bigl(\sum_t \|f_t^j\|^p\bigr)^{q/p}\Bigr)^{2/q}
        + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr), \quad F_t = \sum_j f_t^j + b_t

    over functions :math:`f_t^j` in the space of kernel j and biases.

    Of more than two classes every class has a machine against the rest, with weights of its own; arrays have one more axis then, before
    the others.

    Attributes
    ----------
    kernel_weights_
        ``(n_kernels,)`` gamma, on the unit sphere of the norm ``q / (2 - q)``.
    task_kernel_weights_
        ``(n_kernels, n_tasks)`` weights of the kernels in the machine of each task, ``gamma_j / lambda_jt``.
    support_
        Indices of the selected kernels.
    objective_, dual_gap_, lower_bound_, upper_bound_
        Primal value and its distance to the dual value, a bound of the distance to the optimum; both bounds of the optimum.
    n_iter_, converged_, stop_reason_, history_
        Solves of all machines, whether ``tol`` was reached, what ended it, and one array per figure over the iterations.

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 3.
    """

    _method = MultiTaskMKL

    def _set_model(self, model: TaskModel) -> None:
        super()._set_model(model)
        self.kernel_weights_ = model.arrays["kernel_weights"].copy()
        self.task_kernel_weights_ = model.weights.copy()
        threshold = MultiTaskMKLConfig.model_validate_json(model.params_json).threshold
        selected = [is_selected(weights, threshold) for weights in np.atleast_2d(self.kernel_weights_)]
        self.support_ = np.flatnonzero(np.any(selected, axis=0))
        self._set_bounds(model.figures)


class MultiTaskMKLClassifier(TaskClassifier, _MultiTaskMKL):
    r"""Classifiers of many tasks that choose their kernels together (MK-MTFL); the classes are the same for all tasks.

    A task all of whose rows have one label predicts it.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import MultiTaskMKLClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1] > 0
    >>> model = MultiTaskMKLClassifier(["linear[0]", "linear[1]", "rbf(gamma=0.5)"], p=4).fit(X, y, task)
    >>> model.task_kernel_weights_.shape, model.predict(X, task).shape
    ((3, 3), (60,))
    """


class MultiTaskMKLRegressor(TaskRegressor, _MultiTaskMKL):
    r"""Regressions of many tasks that choose their kernels together (MK-MTFL).

    The target is centred and scaled inside: C and epsilon are about targets of standard deviation one, and mean the same in every unit.
    Coefficients and intercepts are in the unit of the target, objective and bounds in its square.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import MultiTaskMKLRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1]
    >>> model = MultiTaskMKLRegressor(["linear[0]", "linear[1]", "rbf(gamma=0.5)"], p=4).fit(X, y, task)
    >>> model.task_kernel_weights_.shape, model.predict(X, task).shape
    ((3, 3), (60,))
    """


class _MultiTaskMKLPath(CrossValidatedTasks):
    """Chooses ``C``, ``p`` and ``q`` by cross-validation; every task is in all folds. All fits share the Gram matrices within tasks, and
    those of a C start from the weights, shares and coefficients of the C before it.

    Attributes
    ----------
    C_, p_, q_
        Parameters chosen.
    Cs_, ps_, qs_
        Values that were compared, ``ps_`` and ``qs_`` where they were given.
    """

    _grids = (
        MACHINE_C,
        Grid("p", "ps", None, "Values of p to compare; ``None``: ``p`` alone.", "list of float or None"),
        Grid("q", "qs", None, "Values of q to compare; ``None``: ``q`` alone.", "list of float or None"),
    )


class MultiTaskMKLClassifierCV(_MultiTaskMKLPath, MultiTaskMKLClassifier):
    r"""Classifiers of many tasks that choose their kernels together, ``C``, ``p`` and ``q`` chosen by cross-validation.

    The problem is that of :class:`MultiTaskMKLClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import MultiTaskMKLClassifierCV
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1] > 0
    >>> model = MultiTaskMKLClassifierCV(["linear[0]", "linear[1]"], ps=[2, 4], Cs=[0.1, 1]).fit(X, y, task)
    >>> len(model.cv_results_["params"]), model.best_score_ > 0.8
    (4, True)
    """


class MultiTaskMKLRegressorCV(_MultiTaskMKLPath, MultiTaskMKLRegressor):
    r"""Regressions of many tasks that choose their kernels together, ``C``, ``p`` and ``q`` chosen by cross-validation.

    The problem is that of :class:`MultiTaskMKLRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import MultiTaskMKLRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1]
    >>> model = MultiTaskMKLRegressorCV(["linear[0]", "linear[1]"], Cs=[1, 10]).fit(X, y, task)
    >>> model.C_ in (1.0, 10.0), model.best_score_ > 0.8
    (True, True)
    """
