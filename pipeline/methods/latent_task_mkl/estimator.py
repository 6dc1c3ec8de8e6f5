"""LatentTaskMKLClassifier and LatentTaskMKLRegressor: kernels shared by groups of tasks, which are learnt over all groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....cluster import machine_memory
from ...estimators.kernels import CLASS_WEIGHT, documented
from ...estimators.tasks import TaskClassifier, TaskEstimator, TaskRegressor
from ...models.task import TaskModel
from . import method as latent_tasks_run
from .config import LatentTaskConfig
from .method import Certificate

ENDED = {
    "max_iter": "max_iter={0.max_iter}",
    "max_rounds": "max_rounds={0.max_rounds}",
    "max_nodes": "max_groups={0.max_groups}",
    "stalled": "a cap on the search over groups, or rounding,",
}


@dataclass(frozen=True)
class TaskGroup:
    """A group of tasks and the weight of its kernels.

    Attributes
    ----------
    tasks
        Names of its tasks.
    weight
        Sum of the weights of its kernels.
    """

    tasks: tuple[Any, ...]
    weight: float


_PARAMETERS = """

    Parameters
    ----------
    kernels
        List of kernels: :class:`KernelSpec`, short texts like ``"rbf(gamma=0.5)"``, ``"linear[3]"``, importable functions; or
        ``"precomputed"``: then X is ``(n_kernels, n, n)`` at fit and ``(n_kernels, n_test, n_train)`` at predict. Default: ``kernel_grid``.
    p
        Norm over the kernels of a group, greater than 1 and at most 2; small values give few kernels.
    q
        Norm over the groups that hold a group (inverted: that are in it), greater than 1 and at most 2; small values give few groups.
    a
        Penalty ``a^size`` of a group (inverted: ``a^`` tasks left out). At 1.5 groups of aligned tasks practically always help; 2 and more
        give fewer, more readable ones.
    mu
        Weight of the mean of a group: small values pull its tasks together, large ones let them share kernels only.
    C
        Loss weight, ``C * sum of losses`` over the rows of all tasks, the same as scikit-learn's ``SVC`` and ``SVR``.
    inverted
        Start from the group of all tasks and leave tasks out, in place of starting from single tasks: finds large groups.
    loss
        ``"hinge"`` (classes), ``"epsilon_insensitive"`` (real targets) or ``"squared"``; ``"auto"`` takes the first that fits.
    epsilon
        Half width of the tube without loss.
    normalize
        For kernels that leave it open: ``"trace"`` (trace n), ``"unit_trace"``, ``"multiplicative"``, ``"cosine"``, ``"none"``.
    tol
        Gap, certified over all groups, at which the fit ends, relative to the objective.
    max_iter, max_rounds, max_groups
        Machines solved, times that groups join, and groups in the working set (with all their ancestors) at most.
    max_size
        Tasks of a group (inverted: tasks left out) that the search looks at; ``certificate_`` tells where it cut something off. ``None``:
        all.
    stop_at_rest
        Stop too when a round lowers the objective by less than ``tol / 10`` of it; later rounds often serve the certificate alone.
    threshold
        A group is listed above this share of the largest weight.
    grams, gram_store
        Where Gram matrices lie: ``"auto"`` decides from sizes; ``"memory"``, ``"store"`` (at the path ``gram_store``), ``"recompute"``.
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
    groups_
        List of :class:`TaskGroup`, the heaviest first. Compare groups of one size: the penalties make single tasks (inverted: the group
        of all) the heaviest.
    group_kernel_weights_
        ``(n_groups, n_kernels)`` weights of the kernels in these groups.
    certificate_
        :class:`Certificate`: gap to the optimum over all groups, whether the search over them was complete, and the thesis' sufficient
        condition beside it.
    task_kernel_weights_
        ``(n_kernels, n_tasks, n_tasks)`` weight of every kernel between pairs of tasks.
    intercept_
        ``(n_tasks,)``.
    support_vectors_
        Training rows with a coefficient.
    dual_coef_
        ``(n_support,)`` signed coefficients of these rows.
    objective_, dual_gap_
        Primal value, and its certified distance to the optimum over all groups.
    n_iter_, converged_, history_
        Machines solved, whether ``tol`` was reached, and one array per figure over the iterations.

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 6.
    """


class _LatentTaskMKL(TaskEstimator):
    """What both estimators share."""

    _config_type = LatentTaskConfig
    _method = latent_tasks_run

    def _options(self) -> dict[str, Any]:
        return {"budget": machine_memory()}

    def _unfinished(self, state: Any) -> str:
        ended = ENDED.get(str(state.stop), str(state.stop)).format(self)
        told = f"a relative gap of {self.certificate_.relative_gap:.2g} is certified"
        return f"{ended} ended the fit before tol={self.tol:g} was reached; {told}"

    def _set_model(self, model: TaskModel) -> None:
        super()._set_model(model)
        figures, groups = model.figures, model.arrays["groups"].astype(bool)
        self.group_kernel_weights_ = model.arrays["group_kernel_weights"].copy()
        totals = self.group_kernel_weights_.sum(axis=1).tolist()
        self.groups_ = [TaskGroup(tuple(self.tasks_[own].tolist()), total) for own, total in zip(groups, totals, strict=True)]
        self.task_kernel_weights_ = model.weights.copy()
        self.certificate_ = Certificate(
            figures["certified_gap"],
            figures["certified_relative_gap"],
            bool(figures["certificate_complete"]),
            figures["sufficient_relative_gap"],
            int(figures["search_visits"]),
        )
        self.objective_, self.dual_gap_ = figures["upper_bound"], figures["certified_gap"]
        self.n_iter_, self.converged_ = int(figures["iterations"]), bool(figures["converged"])


@documented(_PARAMETERS, _REST, CLASS_WEIGHT)
class LatentTaskMKLClassifier(TaskClassifier, _LatentTaskMKL):
    """Classifiers of many tasks whose kernels are shared by groups of tasks (MTGFL); two classes, the same for all tasks.

    Minimises ``1/2 (sum_v d_v (sum_{w >= v} ||Theta_w||_p^q)^(1/q))^2 + C sum_t sum_i loss(y_ti, F_t(x_ti))`` over functions of all groups
    w of tasks, ``F_t = sum_{w with t} sum_j (h_0w^j + h_tw^j) + b_t``, ``(Theta_w^j)^2 = mu ||h_0w^j||^2 + sum_{t in w} ||h_tw^j||^2``.
    A task all of whose rows have one label predicts it, and takes no part in groups.
    """

    def __init__(
        self,
        kernels: Any = None,
        p: float = 1.5,
        q: float = 1.5,
        a: float = 1.5,
        mu: float = 1.0,
        C: float = 1.0,
        inverted: bool = False,
        loss: str = "auto",
        normalize: str = "trace",
        tol: float = 1e-2,
        max_iter: int = 500,
        max_rounds: int = 50,
        max_groups: int = 2000,
        max_size: int | None = 8,
        stop_at_rest: bool = False,
        threshold: float = 1e-3,
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
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


@documented(_PARAMETERS, _REST)
class LatentTaskMKLRegressor(TaskRegressor, _LatentTaskMKL):
    """Regressions of many tasks whose kernels are shared by groups of tasks (MTGFL).

    Minimises ``1/2 (sum_v d_v (sum_{w >= v} ||Theta_w||_p^q)^(1/q))^2 + C sum_t sum_i loss(y_ti, F_t(x_ti))`` over functions of all groups
    w of tasks, ``F_t = sum_{w with t} sum_j (h_0w^j + h_tw^j) + b_t``, ``(Theta_w^j)^2 = mu ||h_0w^j||^2 + sum_{t in w} ||h_tw^j||^2``.
    """

    def __init__(
        self,
        kernels: Any = None,
        p: float = 1.5,
        q: float = 1.5,
        a: float = 1.5,
        mu: float = 1.0,
        C: float = 1.0,
        inverted: bool = False,
        loss: str = "auto",
        epsilon: float = 0.1,
        normalize: str = "trace",
        tol: float = 1e-2,
        max_iter: int = 500,
        max_rounds: int = 50,
        max_groups: int = 2000,
        max_size: int | None = 8,
        stop_at_rest: bool = False,
        threshold: float = 1e-3,
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
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
