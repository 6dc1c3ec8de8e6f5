"""MultiTaskMKLClassifier and MultiTaskMKLRegressor: machines of many tasks on kernels that they choose together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...estimators.kernels import CLASS_WEIGHT, documented
from ...estimators.tasks import TaskClassifier, TaskEstimator, TaskRegressor
from ...models.kernel import selected
from ...models.task import TaskModel
from . import method as multitask_run
from .config import MultiTaskMKLConfig

_PARAMETERS = """

    Parameters
    ----------
    kernels
        List of kernels: :class:`KernelSpec`, short texts like ``"rbf(gamma=0.5)"``, ``"poly(degree=2)[3,7:9]"``, importable functions; or
        ``"precomputed"``: then X is ``(n_kernels, n, n)`` at fit and ``(n_kernels, n_test, n_train)`` at predict. Default: ``kernel_grid``.
    p
        Norm over tasks, at least 2: 2 gives all tasks the same kernel; more gives them a common set of kernels that each weights anew.
    q
        Norm over kernels, 1 to 2: 1 gives few kernels, 2 equal weights.
    C
        Loss weight, ``C * sum of losses`` over the rows of all tasks, the same as scikit-learn's ``SVC`` and ``SVR``.
    loss
        ``"hinge"`` (classes), ``"epsilon_insensitive"`` (real targets) or ``"squared"``; ``"auto"`` takes the first that fits.
    epsilon
        Half width of the tube without loss.
    solver
        ``"auto"``: weights in closed form after every solve of the machines; ``"mirror"``: the thesis' nested mirror descent.
    normalize
        For kernels that leave it open: ``"trace"`` (trace n), ``"unit_trace"``, ``"multiplicative"``, ``"cosine"``, ``"none"``; traces and
        means are taken over pairs of rows within tasks.
    tol
        Gap between primal and dual value at which the fit ends, relative to the primal value.
    max_iter
        Times the machines of all tasks are solved at most; a warning tells when it ends the fit.
    threshold
        A kernel counts as selected above this share of the largest weight.
    grams, gram_store
        Where the Gram matrices within tasks lie: ``"auto"`` decides from sizes; ``"memory"``, ``"store"`` (at the path ``gram_store``),
        ``"recompute"``.
"""

_REST = """    cluster
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."`` ...; matrices and strings in memory stay in-process.
    random_state
        Not used; the fit is deterministic.
    verbose
        Log one line per iteration.
    callbacks
        Functions called with an event record per iteration.

    Attributes
    ----------
    tasks_
        Names of the tasks.
    kernel_weights_
        ``(n_kernels,)`` gamma, on the unit sphere of the norm ``q / (2 - q)``.
    task_kernel_weights_
        ``(n_kernels, n_tasks)`` weights of the kernels in the machine of each task, ``gamma_j / lambda_jt``.
    intercept_
        ``(n_tasks,)``.
    support_
        Indices of the selected kernels.
    support_vectors_
        Training rows with a coefficient.
    dual_coef_
        ``(n_support,)`` signed coefficients of these rows.
    objective_, dual_gap_
        Primal value and its distance to the dual value, a bound of the distance to the optimum.
    lower_bound_, upper_bound_
        Both bounds of the optimum.
    n_iter_, converged_, history_
        Solves of all machines, whether ``tol`` was reached, and one array per figure over the iterations.

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 3.
    """


class _MultiTaskMKL(TaskEstimator):
    """What both estimators share."""

    _config_type = MultiTaskMKLConfig
    _method = multitask_run

    def _set_model(self, model: TaskModel) -> None:
        super()._set_model(model)
        figures = model.figures
        self.kernel_weights_ = model.arrays["kernel_weights"].copy()
        self.task_kernel_weights_ = model.weights.copy()
        self.support_ = np.flatnonzero(selected(self.kernel_weights_, MultiTaskMKLConfig.model_validate_json(model.params_json).threshold))
        self.lower_bound_, self.upper_bound_ = figures["lower_bound"], figures["upper_bound"]
        self.objective_, self.dual_gap_ = self.upper_bound_, self.upper_bound_ - self.lower_bound_
        self.n_iter_, self.converged_ = int(figures["iterations"]), bool(figures["converged"])


@documented(_PARAMETERS, _REST, CLASS_WEIGHT)
class MultiTaskMKLClassifier(TaskClassifier, _MultiTaskMKL):
    """Classifiers of many tasks that choose their kernels together (MK-MTFL); two classes, the same for all tasks.

    Minimises ``1/2 (sum_j (sum_t ||f_t^j||^p)^(q/p))^(2/q) + C sum_t sum_i loss(y_ti, F_t(x_ti))`` over functions ``f_t^j`` in the space of
    kernel j and biases, ``F_t = sum_j f_t^j + b_t``. A task all of whose rows have one label predicts it.
    """

    def __init__(
        self,
        kernels: Any = None,
        p: float = 2.0,
        q: float = 1.0,
        C: float = 1.0,
        loss: str = "auto",
        solver: str = "auto",
        normalize: str = "trace",
        tol: float = 1e-3,
        max_iter: int = 500,
        threshold: float = 1e-4,
        grams: str = "auto",
        gram_store: str | None = None,
        class_weight: Any = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None:
        self.kernels = kernels
        self.p = p
        self.q = q
        self.C = C
        self.loss = loss
        self.solver = solver
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.threshold = threshold
        self.grams = grams
        self.gram_store = gram_store
        self.class_weight = class_weight
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


@documented(_PARAMETERS, _REST)
class MultiTaskMKLRegressor(TaskRegressor, _MultiTaskMKL):
    """Regressions of many tasks that choose their kernels together (MK-MTFL).

    Minimises ``1/2 (sum_j (sum_t ||f_t^j||^p)^(q/p))^(2/q) + C sum_t sum_i loss(y_ti, F_t(x_ti))`` over functions ``f_t^j`` in the space of
    kernel j and biases, ``F_t = sum_j f_t^j + b_t``.
    """

    def __init__(
        self,
        kernels: Any = None,
        p: float = 2.0,
        q: float = 1.0,
        C: float = 1.0,
        loss: str = "auto",
        epsilon: float = 0.1,
        solver: str = "auto",
        normalize: str = "trace",
        tol: float = 1e-3,
        max_iter: int = 500,
        threshold: float = 1e-4,
        grams: str = "auto",
        gram_store: str | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None:
        self.kernels = kernels
        self.p = p
        self.q = q
        self.C = C
        self.loss = loss
        self.epsilon = epsilon
        self.solver = solver
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.threshold = threshold
        self.grams = grams
        self.gram_store = gram_store
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
