"""LatentTaskMKLClassifier and LatentTaskMKLRegressor: kernels shared by groups of tasks, which are learnt over all groups."""

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
    """A group of tasks, ``tasks`` by name, and ``weight``, the sum of the weights of its kernels."""

    tasks: tuple[Any, ...]
    weight: float


class _LatentTaskMKL(TaskEstimator):
    """What both estimators share."""

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
    r"""Classifiers of many tasks whose kernels are shared by groups of tasks (MTGFL); the classes are the same for all tasks.

    .. math::

        \min \frac{1}{2} \Bigl(\sum_v d_v \bigl(\sum_{w \ge v} \|\Theta_w\|_p^q\bigr)^{1/q}\Bigr)^2
        + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr)

    over functions of all groups w of tasks, :math:`F_t = \sum_{w \ni t} \sum_j (h_{0w}^j + h_{tw}^j) + b_t` and
    :math:`(\Theta_w^j)^2 = \mu \|h_{0w}^j\|^2 + \sum_{t \in w} \|h_{tw}^j\|^2`.

    Of more than two classes every class has a machine against the rest, with groups of its own; attributes are lists then, in the order of
    the classes, and arrays have one more axis before the others.

    A task all of whose rows have one label predicts it, and takes no part in groups.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernels as short texts like rbf(gamma=0.5), rbf (its width the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius], or precomputed for matrices: an estimator takes (n_kernels, n, n) at fit, (n_kernels, n_test, n_train) at predict; default:
        Gaussians and polynomials on all features and on each one, while they are few, else up to ten on all features.
    p : float > 1 and <= 2, default=1.5
        Norm over the kernels of a group; small values give few kernels.
    q : float > 1 and <= 2, default=1.5
        Norm over the groups that hold a group (inverted: that are in it); small values give few groups.
    a : float > 0, default=1.5
        Penalty d_w = a^size of a group (inverted: a^tasks left out). At 1.5 groups of aligned tasks practically always help; 2 and more
        give fewer, more readable ones.
    mu : float > 0, default=1.0
        Weight of the mean of a group: small values pull its tasks together, large ones let them share kernels only.
    C : float > 0 or {"auto"}, default='auto'
        Loss weight, C * sum of losses over the rows of all tasks, as scikit-learn's SVC and, on a target of deviation one, SVR. auto: 1 for
        classes, 0.5 over the root of the number of kernels for real targets (C_).
    inverted : bool or {"auto"}, default='auto'
        Start from the group of all tasks and leave tasks out, in place of starting from single tasks: finds large groups. auto: where there
        are more tasks than groups grow to from single ones, max_size (inverted_).
    loss : {"auto", "hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: hinge for classes, epsilon_insensitive for real targets, squared; auto: the first that fits.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that leave it open; trace: trace n.
    tol : float > 0, default=0.01
        Gap, certified over all groups, at which the fit ends, relative to the objective.
    max_iter : int >= 1, default=500
        Machines solved at most.
    max_rounds : int >= 1, default=50
        Times that groups join at most.
    max_groups : int >= 1, default=2000
        Groups in the working set at most, with all their ancestors.
    max_size : int >= 1 or None, default=8
        Tasks of a group (inverted: tasks left out) that the search looks at; the certificate says where it cut something off; none: all.
    stop_at_rest : bool, default=False
        Stop too when a round lowers the objective by less than tol/10 of it; later rounds often serve the certificate alone.
    threshold : float >= 0 and <= 1, default=0.001
        A group is listed above this share of the largest weight.
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
    >>> from gramplane import LatentTaskMKLClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(90, 3)), np.arange(90) % 3
    >>> y = np.where(task < 2, X[:, 0], X[:, 1]) > 0
    >>> model = LatentTaskMKLClassifier(["linear[0]", "linear[1]"], tol=0.05).fit(X, y, task)
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
    r"""Regressions of many tasks whose kernels are shared by groups of tasks (MTGFL).

    .. math::

        \min \frac{1}{2} \Bigl(\sum_v d_v \bigl(\sum_{w \ge v} \|\Theta_w\|_p^q\bigr)^{1/q}\Bigr)^2
        + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr)

    over functions of all groups w of tasks, :math:`F_t = \sum_{w \ni t} \sum_j (h_{0w}^j + h_{tw}^j) + b_t` and
    :math:`(\Theta_w^j)^2 = \mu \|h_{0w}^j\|^2 + \sum_{t \in w} \|h_{tw}^j\|^2`.

    Of more than two classes every class has a machine against the rest, with groups of its own; attributes are lists then, in the order of
    the classes, and arrays have one more axis before the others.

    The target is centred and scaled inside: C and epsilon are about targets of standard deviation one, and mean the same in every unit.
    Coefficients and intercepts are in the unit of the target, objective and bounds in its square.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernels as short texts like rbf(gamma=0.5), rbf (its width the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius], or precomputed for matrices: an estimator takes (n_kernels, n, n) at fit, (n_kernels, n_test, n_train) at predict; default:
        Gaussians and polynomials on all features and on each one, while they are few, else up to ten on all features.
    p : float > 1 and <= 2, default=1.5
        Norm over the kernels of a group; small values give few kernels.
    q : float > 1 and <= 2, default=1.5
        Norm over the groups that hold a group (inverted: that are in it); small values give few groups.
    a : float > 0, default=1.5
        Penalty d_w = a^size of a group (inverted: a^tasks left out). At 1.5 groups of aligned tasks practically always help; 2 and more
        give fewer, more readable ones.
    mu : float > 0, default=1.0
        Weight of the mean of a group: small values pull its tasks together, large ones let them share kernels only.
    C : float > 0 or {"auto"}, default='auto'
        Loss weight, C * sum of losses over the rows of all tasks, as scikit-learn's SVC and, on a target of deviation one, SVR. auto: 1 for
        classes, 0.5 over the root of the number of kernels for real targets (C_).
    inverted : bool or {"auto"}, default='auto'
        Start from the group of all tasks and leave tasks out, in place of starting from single tasks: finds large groups. auto: where there
        are more tasks than groups grow to from single ones, max_size (inverted_).
    loss : {"auto", "hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: hinge for classes, epsilon_insensitive for real targets, squared; auto: the first that fits.
    epsilon : float >= 0, default=0.1
        epsilon_insensitive: half width of the tube without loss, in standard deviations of the target.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that leave it open; trace: trace n.
    tol : float > 0, default=0.01
        Gap, certified over all groups, at which the fit ends, relative to the objective.
    max_iter : int >= 1, default=500
        Machines solved at most.
    max_rounds : int >= 1, default=50
        Times that groups join at most.
    max_groups : int >= 1, default=2000
        Groups in the working set at most, with all their ancestors.
    max_size : int >= 1 or None, default=8
        Tasks of a group (inverted: tasks left out) that the search looks at; the certificate says where it cut something off; none: all.
    stop_at_rest : bool, default=False
        Stop too when a round lowers the objective by less than tol/10 of it; later rounds often serve the certificate alone.
    threshold : float >= 0 and <= 1, default=0.001
        A group is listed above this share of the largest weight.
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
    >>> from gramplane import LatentTaskMKLRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(90, 3)), np.arange(90) % 3
    >>> y = np.where(task < 2, X[:, 0], X[:, 1])
    >>> model = LatentTaskMKLRegressor(["linear[0]", "linear[1]"], tol=0.05).fit(X, y, task)
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
