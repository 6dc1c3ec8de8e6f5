"""SharedSubspaceMKLClassifier and SharedSubspaceMKLRegressor: machines of many tasks that share a subspace of every kernel."""

from __future__ import annotations

from typing import Any, Literal

from ...core.one_vs_rest import OneVsRest, class_model
from ...estimators.inputs import Callbacks, Seed
from ...estimators.kernels import UserKernels
from ...estimators.tasks import TaskClassifier, TaskEstimator, TaskRegressor
from ...models.task import TaskModel, machine_stack
from .config import SharedSubspaceConfig
from .method import SharedSubspace


class _SharedSubspace(TaskEstimator):
    """What both estimators share."""

    _method = OneVsRest(SharedSubspace())

    def _set_model(self, model: TaskModel) -> None:
        super()._set_model(model)
        self.C_ = float(SharedSubspaceConfig.model_validate_json(model.params_json).C)
        models = [class_model(model, m) for m in range(model.n_machines)]
        self.kernel_weights_ = machine_stack([one.arrays["kernel_weights"].copy() for one in models])
        self.task_weights_ = model.weights.copy()
        self.subspace_ = self.task_weights_
        self._set_bounds(model.figures)


class SharedSubspaceMKLClassifier(_SharedSubspace, TaskClassifier):
    r"""Classifiers of many tasks that share a low-dimensional subspace of every kernel's feature space (MK-MTSFL).

    .. math::

        \min_{W, b} \frac{1}{2} \Bigl(\sum_j \|W_j\|_*^q\Bigr)^{2/q} + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr)

    the columns of :math:`W_j` being the parts of all tasks in the space of kernel j, :math:`\|\cdot\|_*` the sum of singular values.

    Of more than two classes every class has a machine against the rest, with couplings of its own; arrays have one more axis then, before
    the others.

    A task all of whose rows have one label predicts it.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernels as short texts like rbf(gamma=0.5), rbf (its width the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius], or precomputed for matrices: an estimator takes (n_kernels, n, n) at fit, (n_kernels, n_test, n_train) at predict; default:
        Gaussians and polynomials on all features and on each one, while they are few, else up to ten on all features.
    q : float >= 1 and <= 2, default=1.5
        Norm over kernels: 1 gives few kernels, 2 equal traces.
    C : float > 0 or {"auto"}, default='auto'
        Loss weight, C * sum of losses over the rows of all tasks, as scikit-learn's SVC and, on a target of deviation one, SVR. auto: 1 for
        classes, 0.5 over the root of the number of kernels for real targets (C_).
    loss : {"auto", "hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: hinge for classes, epsilon_insensitive for real targets, squared; auto: the first that fits.
    solver : {"auto", "mirror", "alternate"}, default='auto'
        auto: couplings of tasks (T x T) in closed form after every solve; mirror: the thesis' matrix mirror descent in the pooled feature
        space; alternate: alternating minimisation on the average of the kernels (MTSFL).
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that leave it open; trace: trace n.
    tol : float > 0, default=0.001
        Gap between primal and dual value at which the fit ends, relative to the primal value.
    max_iter : int >= 1, default=200
        Times the machine of all tasks is solved at most; a warning tells when it ends the fit.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where the Gram matrices lie: auto decides from sizes; memory, store (at gram_store), recompute.
    gram_store : str or None, default=None
        Path of a Gram store, kept for further fits.
    class_weight : {"balanced"} or dict or None, default=None
        Factor of C per class.
    probability : {"auto", "sigmoid", "isotonic", False}, default='auto'
        Probabilities of the classes: exact for a logistic loss; otherwise sigmoid or isotonic calibration on the decision values of 5
        folds, about 5 more fits. sigmoid, isotonic: at fit; auto: exact, or by a sigmoid when they are first asked for; false: none.
    scale : {"auto", "standard", "max-abs", "unit-column"} or None, default='auto'
        Scaling of the columns, part of the model: standard (dense columns: mean 0 and deviation 1, without an intercept deviation 1; sparse
        ones are not centred), max-abs, unit-column; None: as they are. auto: standard of dense columns, max-abs of sparse ones, without an
        intercept, and under poly2, hik, chi2 and additive_chi2; none of streams, strings and matrices. No value is copied; coefficients are
        those of the columns as given. A store that was scaled at ingest is taken as it is.
    cluster : str or None, default=None
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."``.
    random_state : int, RandomState or None, default=None
        Seed of everything drawn at random; ``None`` is 0, so that fits repeat.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and time left on a terminal or in a notebook, elsewhere a line per round;
        2 also sends every event to the log ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or several, called with an event record per step.

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
    tasks_, intercept_
        Names of the tasks, and ``(n_tasks,)`` their intercepts; ``(n_classes, n_tasks)`` of more than two classes.
    support_vectors_, dual_coef_
        Training rows with a coefficient, and ``(n_support,)`` their signed coefficients; of more than two classes
        ``(n_classes, n_support)``.
    encoding_ : Pipeline
        Of a frame with columns that are not all numbers, and of a store made of a table: scikit-learn's encoders, fitted, from the
        columns to the features; else not there.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import SharedSubspaceMKLClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1] > 0
    >>> model = SharedSubspaceMKLClassifier(["linear", "rbf(gamma=0.5)"]).fit(X, y, task)
    >>> round(model.score(X, y, task), 2)
    0.95

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 4.
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        q: float = 1.5,
        C: float | Literal["auto"] = "auto",
        loss: Literal["auto", "hinge", "epsilon_insensitive", "squared"] = "auto",
        solver: Literal["auto", "mirror", "alternate"] = "auto",
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.001,
        max_iter: int = 200,
        grams: Literal["auto", "memory", "store", "recompute"] = "auto",
        gram_store: str | None = None,
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        probability: Literal["auto", "sigmoid", "isotonic", False] = "auto",
        scale: Literal["auto", "standard", "max-abs", "unit-column"] | None = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.kernels = kernels
        self.q = q
        self.C = C
        self.loss = loss
        self.solver = solver
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.grams = grams
        self.gram_store = gram_store
        self.class_weight = class_weight
        self.probability = probability
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class SharedSubspaceMKLRegressor(_SharedSubspace, TaskRegressor):
    r"""Regressions of many tasks that share a low-dimensional subspace of every kernel's feature space (MK-MTSFL).

    .. math::

        \min_{W, b} \frac{1}{2} \Bigl(\sum_j \|W_j\|_*^q\Bigr)^{2/q} + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr)

    the columns of :math:`W_j` being the parts of all tasks in the space of kernel j, :math:`\|\cdot\|_*` the sum of singular values.

    Of more than two classes every class has a machine against the rest, with couplings of its own; arrays have one more axis then, before
    the others.

    The target is centred and scaled inside: C and epsilon are about targets of standard deviation one, and mean the same in every unit.
    Coefficients and intercepts are in the unit of the target, objective and bounds in its square.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernels as short texts like rbf(gamma=0.5), rbf (its width the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius], or precomputed for matrices: an estimator takes (n_kernels, n, n) at fit, (n_kernels, n_test, n_train) at predict; default:
        Gaussians and polynomials on all features and on each one, while they are few, else up to ten on all features.
    q : float >= 1 and <= 2, default=1.5
        Norm over kernels: 1 gives few kernels, 2 equal traces.
    C : float > 0 or {"auto"}, default='auto'
        Loss weight, C * sum of losses over the rows of all tasks, as scikit-learn's SVC and, on a target of deviation one, SVR. auto: 1 for
        classes, 0.5 over the root of the number of kernels for real targets (C_).
    loss : {"auto", "hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: hinge for classes, epsilon_insensitive for real targets, squared; auto: the first that fits.
    epsilon : float >= 0, default=0.1
        epsilon_insensitive: half width of the tube without loss, in standard deviations of the target.
    solver : {"auto", "mirror", "alternate"}, default='auto'
        auto: couplings of tasks (T x T) in closed form after every solve; mirror: the thesis' matrix mirror descent in the pooled feature
        space; alternate: alternating minimisation on the average of the kernels (MTSFL).
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that leave it open; trace: trace n.
    tol : float > 0, default=0.001
        Gap between primal and dual value at which the fit ends, relative to the primal value.
    max_iter : int >= 1, default=200
        Times the machine of all tasks is solved at most; a warning tells when it ends the fit.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where the Gram matrices lie: auto decides from sizes; memory, store (at gram_store), recompute.
    gram_store : str or None, default=None
        Path of a Gram store, kept for further fits.
    scale : {"auto", "standard", "max-abs", "unit-column"} or None, default='auto'
        Scaling of the columns, part of the model: standard (dense columns: mean 0 and deviation 1, without an intercept deviation 1; sparse
        ones are not centred), max-abs, unit-column; None: as they are. auto: standard of dense columns, max-abs of sparse ones, without an
        intercept, and under poly2, hik, chi2 and additive_chi2; none of streams, strings and matrices. No value is copied; coefficients are
        those of the columns as given. A store that was scaled at ingest is taken as it is.
    cluster : str or None, default=None
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."``.
    random_state : int, RandomState or None, default=None
        Seed of everything drawn at random; ``None`` is 0, so that fits repeat.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and time left on a terminal or in a notebook, elsewhere a line per round;
        2 also sends every event to the log ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or several, called with an event record per step.

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
    tasks_, intercept_
        Names of the tasks, and ``(n_tasks,)`` their intercepts; ``(n_classes, n_tasks)`` of more than two classes.
    support_vectors_, dual_coef_
        Training rows with a coefficient, and ``(n_support,)`` their signed coefficients; of more than two classes
        ``(n_classes, n_support)``.
    encoding_ : Pipeline
        Of a frame with columns that are not all numbers, and of a store made of a table: scikit-learn's encoders, fitted, from the
        columns to the features; else not there.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import SharedSubspaceMKLRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1]
    >>> model = SharedSubspaceMKLRegressor(["linear", "rbf(gamma=0.5)"]).fit(X, y, task)
    >>> round(model.score(X, y, task), 2)
    0.98

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 4.
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        q: float = 1.5,
        C: float | Literal["auto"] = "auto",
        loss: Literal["auto", "hinge", "epsilon_insensitive", "squared"] = "auto",
        epsilon: float = 0.1,
        solver: Literal["auto", "mirror", "alternate"] = "auto",
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.001,
        max_iter: int = 200,
        grams: Literal["auto", "memory", "store", "recompute"] = "auto",
        gram_store: str | None = None,
        scale: Literal["auto", "standard", "max-abs", "unit-column"] | None = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.kernels = kernels
        self.q = q
        self.C = C
        self.loss = loss
        self.epsilon = epsilon
        self.solver = solver
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.grams = grams
        self.gram_store = gram_store
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
