"""LatentTaskMKLClassifier and LatentTaskMKLRegressor: kernels shared by groups of tasks; the groups are learnt from all possible ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ...core.one_vs_rest import OneVsRest, class_model, of_machines
from ...estimators.inputs import Callbacks, Seed
from ...estimators.kernels import UserKernels
from ...estimators.tasks import TaskClassifier, TaskEstimator, TaskRegressor
from ...models.task import TaskModel
from .config import LatentTaskConfig
from .method import LatentTask
from .problem import Certificate


@dataclass(frozen=True)
class TaskGroup:
    """Group of tasks: the names ``tasks``, and ``weight``, the sum of the weights of its kernels."""

    tasks: tuple[Any, ...]
    weight: float


class _LatentTaskMKL(TaskEstimator):
    """Base class of classifier and regressor."""

    _method = OneVsRest(LatentTask())
    _takes_all_memory = True

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


class LatentTaskMKLClassifier(_LatentTaskMKL, TaskClassifier):
    r"""Classifiers for many tasks, with kernels shared by groups of tasks (MTGFL). The classes are the same for all tasks.

    .. math::

        \min \frac{1}{2} \Bigl(\sum_v d_v \bigl(\sum_{w \ge v} \|\Theta_w\|_p^q\bigr)^{1/q}\Bigr)^2
        + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr)

    over functions of all groups w of tasks, :math:`F_t = \sum_{w \ni t} \sum_j (h_{0w}^j + h_{tw}^j) + b_t` and
    :math:`(\Theta_w^j)^2 = \mu \|h_{0w}^j\|^2 + \sum_{t \in w} \|h_{tw}^j\|^2`.

    More than two classes are fitted one-vs-rest, each class with its own groups. Attributes are then lists in the order of the classes, and
    arrays have the classes as an additional first axis.

    A task whose rows all have the same label predicts that label, and belongs to no group.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernel expressions such as rbf(gamma=0.5), rbf (its width is the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius]; or ``"precomputed"``, with matrices (n_kernels, n, n) in ``fit`` and (n_kernels, n_test, n_train) in ``predict``. Default:
        Gaussians and polynomials on all features and on each one if there are few features, else up to ten kernels on all features.
    p : float > 1 and <= 2, default=1.5
        Norm over the kernels of a group; small values select few kernels.
    q : float > 1 and <= 2, default=1.5
        Norm over the groups that contain a given group (inverted: that the given group contains); small values select few groups.
    a : float > 0, default=1.5
        Base of the penalty of a group of tasks: ``a ** size``; in an inverted search, ``a`` to the number of tasks left out. At 1.5, groups
        of similar tasks nearly always help the fit. Values of 2 and more give fewer groups that are easier to read.
    mu : float > 0, default=1.0
        Weight of the mean of a group: small values pull the functions of its tasks together; with large values the tasks share only their
        kernels.
    C : float > 0 or {"auto"}, default='auto'
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses over the rows of
        all tasks, as in scikit-learn's ``SVC`` and, for a target of standard deviation 1, ``SVR``. ``"auto"``: 1 for classes, 0.5 /
        sqrt(number of kernels) for real targets; the value used is stored in ``C_``.
    inverted : bool or {"auto"}, default='auto'
        Start from the group of all tasks and leave tasks out, instead of starting from single tasks; this finds large groups. ``"auto"``:
        start from the group of all tasks if there are more than ``max_size`` tasks, because groups that grow from single tasks have at most
        ``max_size`` tasks. The choice is stored in ``inverted_``.
    loss : {"auto", "hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: ``"hinge"`` for classes, ``"epsilon_insensitive"`` or ``"squared"`` for real targets. ``"auto"``: the first of these
        that suits the target.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that do not specify one; ``"trace"`` scales to trace n.
    tol : float > 0, default=0.01
        Stopping tolerance: duality gap certified over all groups, relative to the objective.
    max_iter : int >= 1, default=500
        Largest number of SVM solves.
    max_rounds : int >= 1, default=50
        Largest number of rounds in which groups are added.
    max_groups : int >= 1, default=2000
        Largest number of groups in the working set, with all their ancestors.
    max_size : int >= 1 or None, default=8
        Largest number of tasks in a group (inverted: of tasks left out) that the search considers; the certificate reports whether the
        search was cut short. ``None``: no limit.
    stop_at_rest : bool, default=False
        Also stop when a round lowers the objective by less than tol/10 of its value; later rounds often improve only the certificate.
    threshold : float >= 0 and <= 1, default=0.001
        A group is listed if its weight exceeds this fraction of the largest weight.
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
    groups_
        List of :class:`TaskGroup`, in descending order of weight. Compare weights only between groups of equal size: the penalties favour
        single tasks (inverted: the group of all tasks).
    group_kernel_weights_
        ``(n_groups, n_kernels)`` weights of the kernels in these groups.
    certificate_
        :class:`Certificate`: gap to the optimum over all groups, whether the search over them was complete, and the sufficient condition of
        the thesis.
    task_kernel_weights_
        ``(n_kernels, n_tasks, n_tasks)`` weight of every kernel between pairs of tasks.
    objective_, dual_gap_
        Primal value, and its certified distance to the optimum over all groups.
    C_
        Value of ``C`` used.
    inverted_
        Whether the search started from the group of all tasks.
    n_iter_, converged_, stop_reason_, history_
        Number of SVM solves, whether ``tol`` was reached, the reason for stopping, and one array per quantity over the iterations.
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
    >>> from gramplane import LatentTaskMKLClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(90, 3)), np.arange(90) % 3
    >>> y = np.where(task < 2, X[:, 0], X[:, 1]) > 0
    >>> model = LatentTaskMKLClassifier(["linear[0]", "linear[1]"], tol=0.05).fit(
    ...     X, y, task
    ... )
    >>> [group.tasks for group in model.groups_ if len(group.tasks) > 1]
    [(0, 1)]

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 6.
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        p: float = 1.5,
        q: float = 1.5,
        a: float = 1.5,
        mu: float = 1.0,
        C: float | Literal["auto"] = "auto",
        inverted: bool | Literal["auto"] = "auto",
        loss: Literal["auto", "hinge", "epsilon_insensitive", "squared"] = "auto",
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.01,
        max_iter: int = 500,
        max_rounds: int = 50,
        max_groups: int = 2000,
        max_size: int | None = 8,
        stop_at_rest: bool = False,
        threshold: float = 0.001,
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
        self.p = p
        self.q = q
        self.a = a
        self.mu = mu
        self.C = C
        self.inverted = inverted
        self.loss = loss
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.max_rounds = max_rounds
        self.max_groups = max_groups
        self.max_size = max_size
        self.stop_at_rest = stop_at_rest
        self.threshold = threshold
        self.grams = grams
        self.gram_store = gram_store
        self.class_weight = class_weight
        self.probability = probability
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class LatentTaskMKLRegressor(_LatentTaskMKL, TaskRegressor):
    r"""Regressions for many tasks, with kernels shared by groups of tasks (MTGFL).

    .. math::

        \min \frac{1}{2} \Bigl(\sum_v d_v \bigl(\sum_{w \ge v} \|\Theta_w\|_p^q\bigr)^{1/q}\Bigr)^2
        + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr)

    over functions of all groups w of tasks, :math:`F_t = \sum_{w \ni t} \sum_j (h_{0w}^j + h_{tw}^j) + b_t` and
    :math:`(\Theta_w^j)^2 = \mu \|h_{0w}^j\|^2 + \sum_{t \in w} \|h_{tw}^j\|^2`.

    The target is centred and scaled internally: C and epsilon refer to a target of standard deviation 1, whatever its unit. Coefficients
    and intercepts are in the unit of the target, objective and bounds in its square.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernel expressions such as rbf(gamma=0.5), rbf (its width is the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius]; or ``"precomputed"``, with matrices (n_kernels, n, n) in ``fit`` and (n_kernels, n_test, n_train) in ``predict``. Default:
        Gaussians and polynomials on all features and on each one if there are few features, else up to ten kernels on all features.
    p : float > 1 and <= 2, default=1.5
        Norm over the kernels of a group; small values select few kernels.
    q : float > 1 and <= 2, default=1.5
        Norm over the groups that contain a given group (inverted: that the given group contains); small values select few groups.
    a : float > 0, default=1.5
        Base of the penalty of a group of tasks: ``a ** size``; in an inverted search, ``a`` to the number of tasks left out. At 1.5, groups
        of similar tasks nearly always help the fit. Values of 2 and more give fewer groups that are easier to read.
    mu : float > 0, default=1.0
        Weight of the mean of a group: small values pull the functions of its tasks together; with large values the tasks share only their
        kernels.
    C : float > 0 or {"auto"}, default='auto'
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses over the rows of
        all tasks, as in scikit-learn's ``SVC`` and, for a target of standard deviation 1, ``SVR``. ``"auto"``: 1 for classes, 0.5 /
        sqrt(number of kernels) for real targets; the value used is stored in ``C_``.
    inverted : bool or {"auto"}, default='auto'
        Start from the group of all tasks and leave tasks out, instead of starting from single tasks; this finds large groups. ``"auto"``:
        start from the group of all tasks if there are more than ``max_size`` tasks, because groups that grow from single tasks have at most
        ``max_size`` tasks. The choice is stored in ``inverted_``.
    loss : {"auto", "hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: ``"hinge"`` for classes, ``"epsilon_insensitive"`` or ``"squared"`` for real targets. ``"auto"``: the first of these
        that suits the target.
    epsilon : float >= 0, default=0.1
        With ``"epsilon_insensitive"``: half-width of the tube without loss, in standard deviations of the target.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that do not specify one; ``"trace"`` scales to trace n.
    tol : float > 0, default=0.01
        Stopping tolerance: duality gap certified over all groups, relative to the objective.
    max_iter : int >= 1, default=500
        Largest number of SVM solves.
    max_rounds : int >= 1, default=50
        Largest number of rounds in which groups are added.
    max_groups : int >= 1, default=2000
        Largest number of groups in the working set, with all their ancestors.
    max_size : int >= 1 or None, default=8
        Largest number of tasks in a group (inverted: of tasks left out) that the search considers; the certificate reports whether the
        search was cut short. ``None``: no limit.
    stop_at_rest : bool, default=False
        Also stop when a round lowers the objective by less than tol/10 of its value; later rounds often improve only the certificate.
    threshold : float >= 0 and <= 1, default=0.001
        A group is listed if its weight exceeds this fraction of the largest weight.
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
    groups_
        List of :class:`TaskGroup`, in descending order of weight. Compare weights only between groups of equal size: the penalties favour
        single tasks (inverted: the group of all tasks).
    group_kernel_weights_
        ``(n_groups, n_kernels)`` weights of the kernels in these groups.
    certificate_
        :class:`Certificate`: gap to the optimum over all groups, whether the search over them was complete, and the sufficient condition of
        the thesis.
    task_kernel_weights_
        ``(n_kernels, n_tasks, n_tasks)`` weight of every kernel between pairs of tasks.
    objective_, dual_gap_
        Primal value, and its certified distance to the optimum over all groups.
    C_
        Value of ``C`` used.
    inverted_
        Whether the search started from the group of all tasks.
    n_iter_, converged_, stop_reason_, history_
        Number of SVM solves, whether ``tol`` was reached, the reason for stopping, and one array per quantity over the iterations.
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
    >>> from gramplane import LatentTaskMKLRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(90, 3)), np.arange(90) % 3
    >>> y = np.where(task < 2, X[:, 0], X[:, 1])
    >>> model = LatentTaskMKLRegressor(["linear[0]", "linear[1]"], tol=0.05).fit(
    ...     X, y, task
    ... )
    >>> [group.tasks for group in model.groups_ if len(group.tasks) > 1]
    [(0, 1)]

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 6.
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        p: float = 1.5,
        q: float = 1.5,
        a: float = 1.5,
        mu: float = 1.0,
        C: float | Literal["auto"] = "auto",
        inverted: bool | Literal["auto"] = "auto",
        loss: Literal["auto", "hinge", "epsilon_insensitive", "squared"] = "auto",
        epsilon: float = 0.1,
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.01,
        max_iter: int = 500,
        max_rounds: int = 50,
        max_groups: int = 2000,
        max_size: int | None = 8,
        stop_at_rest: bool = False,
        threshold: float = 0.001,
        grams: Literal["auto", "memory", "store", "recompute"] = "auto",
        gram_store: str | None = None,
        scale: Literal["auto", "standard", "max-abs", "unit-column"] | None = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.kernels = kernels
        self.p = p
        self.q = q
        self.a = a
        self.mu = mu
        self.C = C
        self.inverted = inverted
        self.loss = loss
        self.epsilon = epsilon
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.max_rounds = max_rounds
        self.max_groups = max_groups
        self.max_size = max_size
        self.stop_at_rest = stop_at_rest
        self.threshold = threshold
        self.grams = grams
        self.gram_store = gram_store
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
