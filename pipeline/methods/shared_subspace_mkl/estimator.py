"""SharedSubspaceMKLClassifier and SharedSubspaceMKLRegressor: SVMs for many tasks that share a subspace of every kernel's feature space."""

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
    """Base class of classifier and regressor."""

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
    r"""Classifiers for many tasks that share a low-dimensional subspace of every kernel's feature space (MK-MTSFL).

    .. math::

        \min_{W, b} \frac{1}{2} \Bigl(\sum_j \|W_j\|_*^q\Bigr)^{2/q} + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr)

    where column t of :math:`W_j` is the part of task t in the feature space of kernel j, and :math:`\|\cdot\|_*` is the sum of singular
    values.

    More than two classes are fitted one-vs-rest, each class with its own couplings. Arrays then have the classes as an additional first
    axis.

    A task whose rows all have the same label predicts that label.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernel expressions such as rbf(gamma=0.5), rbf (its width is the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius]; or ``"precomputed"``, with matrices (n_kernels, n, n) in ``fit`` and (n_kernels, n_test, n_train) in ``predict``. Default:
        Gaussians and polynomials on all features and on each one if there are few features, else up to ten kernels on all features.
    q : float >= 1 and <= 2, default=1.5
        Norm over kernels: 1 selects few kernels, 2 gives equal traces.
    C : float > 0 or {"auto"}, default='auto'
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses over the rows of
        all tasks, as in scikit-learn's ``SVC`` and, for a target of standard deviation 1, ``SVR``. ``"auto"``: 1 for classes, 0.5 /
        sqrt(number of kernels) for real targets; the value used is stored in ``C_``.
    loss : {"auto", "hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: ``"hinge"`` for classes, ``"epsilon_insensitive"`` or ``"squared"`` for real targets. ``"auto"``: the first of these
        that suits the target.
    solver : {"auto", "mirror", "alternate"}, default='auto'
        ``"auto"``: a closed form gives the task couplings (T x T) after every solve. ``"mirror"``: the matrix mirror descent of the thesis
        in the pooled feature space. ``"alternate"``: alternating minimisation on the average of the kernels (MTSFL).
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that do not specify one; ``"trace"`` scales to trace n.
    tol : float > 0, default=0.001
        Stopping tolerance: gap between primal and dual value, relative to the primal value.
    max_iter : int >= 1, default=200
        Largest number of times the joint SVM of all tasks is solved; a warning is issued if the fit ends at this limit.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where Gram matrices are kept: ``"memory"``, ``"store"`` (at ``gram_store``), or ``"recompute"`` for nowhere. ``"auto"`` decides by
        their size.
    gram_store : str or None, default=None
        Path of a Gram store; it is kept for further fits.
    class_weight : {"balanced"} or dict or None, default=None
        Factors of ``C`` per class.
    probability : {"auto", "sigmoid", "isotonic", False}, default='auto'
        How class probabilities are obtained. A logistic loss gives them exactly; other losses need a sigmoid or isotonic calibration on
        decision values of 5 folds, about 5 more fits. ``"sigmoid"``, ``"isotonic"``: calibrate in ``fit``. ``"auto"``: exact, or a sigmoid
        when you first ask for probabilities. ``False``: none.
    scale : {"auto", "standard", "max-abs", "unit-column"} or None, default='auto'
        Scaling of the columns, stored in the model. ``"standard"``: dense columns get mean 0 and standard deviation 1 (without an
        intercept, only standard deviation 1); sparse columns are not centred. ``"max-abs"``: largest absolute value 1. ``"unit-column"``:
        norm 1. ``None``: unchanged. ``"auto"``: none for streams, strings and matrices; max-abs for sparse columns, for models without
        an intercept, and for poly2, hik, chi2 and additive_chi2; standard otherwise. Values are not copied, and coefficients refer to the
        unscaled columns. A store that was scaled at ingest is not scaled again.
    cluster : str or None, default=None
        Where passes run: ``None`` in this process, ``"local:4"`` on four local processes, ``"tls://..."`` on a Dask cluster.
    random_state : int, RandomState or None, default=None
        Seed of the random numbers; ``None`` is 0, so that fits are reproducible.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and remaining time in a terminal or notebook, else one line per round. 2
        also sends every event to the logger ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or list of functions, called with an event record after each step.

    Attributes
    ----------
    kernel_weights_
        ``(n_kernels,)`` traces of the couplings, with norm 1 in the ``q / (2 - q)`` norm.
    task_weights_
        ``(n_kernels, n_tasks, n_tasks)`` couplings D: kernel j has factor ``D_j[s, t]`` between rows of tasks s and t.
    subspace_
        The couplings ``task_weights_``: their leading eigenvectors span the subspace that the tasks share.
    objective_, dual_gap_, lower_bound_, upper_bound_
        Primal value, its distance to the dual value (an upper bound of the distance to the optimum), and both bounds of the optimum.
    C_
        Value of ``C`` used.
    n_iter_, converged_, stop_reason_, history_
        Number of solves of the joint SVM, whether ``tol`` was reached, the reason for stopping, and one array per quantity over the
        iterations.
    tasks_, intercept_
        Names of the tasks, and ``(n_tasks,)`` their intercepts; ``(n_classes, n_tasks)`` for more than two classes.
    support_vectors_, dual_coef_
        Indices of the support vectors, and ``(n_support,)`` their signed coefficients; ``(n_classes, n_support)`` for more than two
        classes.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import SharedSubspaceMKLClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1] > 0
    >>> model = SharedSubspaceMKLClassifier(["linear", "rbf(gamma=0.5)"]).fit(
    ...     X, y, task
    ... )
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
    r"""Regressions for many tasks that share a low-dimensional subspace of every kernel's feature space (MK-MTSFL).

    .. math::

        \min_{W, b} \frac{1}{2} \Bigl(\sum_j \|W_j\|_*^q\Bigr)^{2/q} + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr)

    where column t of :math:`W_j` is the part of task t in the feature space of kernel j, and :math:`\|\cdot\|_*` is the sum of singular
    values.

    The target is centred and scaled internally: C and epsilon refer to a target of standard deviation 1, whatever its unit. Coefficients
    and intercepts are in the unit of the target, objective and bounds in its square.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernel expressions such as rbf(gamma=0.5), rbf (its width is the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius]; or ``"precomputed"``, with matrices (n_kernels, n, n) in ``fit`` and (n_kernels, n_test, n_train) in ``predict``. Default:
        Gaussians and polynomials on all features and on each one if there are few features, else up to ten kernels on all features.
    q : float >= 1 and <= 2, default=1.5
        Norm over kernels: 1 selects few kernels, 2 gives equal traces.
    C : float > 0 or {"auto"}, default='auto'
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses over the rows of
        all tasks, as in scikit-learn's ``SVC`` and, for a target of standard deviation 1, ``SVR``. ``"auto"``: 1 for classes, 0.5 /
        sqrt(number of kernels) for real targets; the value used is stored in ``C_``.
    loss : {"auto", "hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: ``"hinge"`` for classes, ``"epsilon_insensitive"`` or ``"squared"`` for real targets. ``"auto"``: the first of these
        that suits the target.
    epsilon : float >= 0, default=0.1
        With ``"epsilon_insensitive"``: half-width of the tube without loss, in standard deviations of the target.
    solver : {"auto", "mirror", "alternate"}, default='auto'
        ``"auto"``: a closed form gives the task couplings (T x T) after every solve. ``"mirror"``: the matrix mirror descent of the thesis
        in the pooled feature space. ``"alternate"``: alternating minimisation on the average of the kernels (MTSFL).
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that do not specify one; ``"trace"`` scales to trace n.
    tol : float > 0, default=0.001
        Stopping tolerance: gap between primal and dual value, relative to the primal value.
    max_iter : int >= 1, default=200
        Largest number of times the joint SVM of all tasks is solved; a warning is issued if the fit ends at this limit.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where Gram matrices are kept: ``"memory"``, ``"store"`` (at ``gram_store``), or ``"recompute"`` for nowhere. ``"auto"`` decides by
        their size.
    gram_store : str or None, default=None
        Path of a Gram store; it is kept for further fits.
    scale : {"auto", "standard", "max-abs", "unit-column"} or None, default='auto'
        Scaling of the columns, stored in the model. ``"standard"``: dense columns get mean 0 and standard deviation 1 (without an
        intercept, only standard deviation 1); sparse columns are not centred. ``"max-abs"``: largest absolute value 1. ``"unit-column"``:
        norm 1. ``None``: unchanged. ``"auto"``: none for streams, strings and matrices; max-abs for sparse columns, for models without
        an intercept, and for poly2, hik, chi2 and additive_chi2; standard otherwise. Values are not copied, and coefficients refer to the
        unscaled columns. A store that was scaled at ingest is not scaled again.
    cluster : str or None, default=None
        Where passes run: ``None`` in this process, ``"local:4"`` on four local processes, ``"tls://..."`` on a Dask cluster.
    random_state : int, RandomState or None, default=None
        Seed of the random numbers; ``None`` is 0, so that fits are reproducible.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and remaining time in a terminal or notebook, else one line per round. 2
        also sends every event to the logger ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or list of functions, called with an event record after each step.

    Attributes
    ----------
    kernel_weights_
        ``(n_kernels,)`` traces of the couplings, with norm 1 in the ``q / (2 - q)`` norm.
    task_weights_
        ``(n_kernels, n_tasks, n_tasks)`` couplings D: kernel j has factor ``D_j[s, t]`` between rows of tasks s and t.
    subspace_
        The couplings ``task_weights_``: their leading eigenvectors span the subspace that the tasks share.
    objective_, dual_gap_, lower_bound_, upper_bound_
        Primal value, its distance to the dual value (an upper bound of the distance to the optimum), and both bounds of the optimum.
    C_
        Value of ``C`` used.
    n_iter_, converged_, stop_reason_, history_
        Number of solves of the joint SVM, whether ``tol`` was reached, the reason for stopping, and one array per quantity over the
        iterations.
    tasks_, intercept_
        Names of the tasks, and ``(n_tasks,)`` their intercepts; ``(n_classes, n_tasks)`` for more than two classes.
    support_vectors_, dual_coef_
        Indices of the support vectors, and ``(n_support,)`` their signed coefficients; ``(n_classes, n_support)`` for more than two
        classes.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import SharedSubspaceMKLRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1]
    >>> model = SharedSubspaceMKLRegressor(["linear", "rbf(gamma=0.5)"]).fit(
    ...     X, y, task
    ... )
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
