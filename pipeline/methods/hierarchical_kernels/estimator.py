"""HierarchicalKernelClassifier and HierarchicalKernelRegressor: machines on kernels chosen from a graph of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.metrics import accuracy_score, r2_score

from ....kernels.grams.products import kernel_of
from ....kernels.graphs.parsing import graph_record
from ...estimators.inputs import Classifying, Predicting, in_memory, is_store, opened
from ...estimators.kernels import CLASS_WEIGHT, KernelEstimator, documented, labelled
from ...estimators.tasks import TaskEstimator
from ...inputs.tasks import store_tasks
from ...loops.active_set import EVERYWHERE
from ...loops.run import run_loop
from ...models.kernel import KernelModel, selected
from ...models.task import TaskModel
from .config import HKLConfig
from .method import build_loop, model_of

_PARAMETERS = """

    Parameters
    ----------
    dag
        Graph of kernels: a text, ``"subsets(KERNEL[; depth=D])"`` (products of one kernel per feature over all subsets of features) or
        ``"grid(KERNEL; KERNEL; ...[; depth=D])"`` (a chain of kernels per feature), KERNEL a kernel of single features such as
        ``rbf(gamma=0.5)[0:8]``, ``gaussian(width=1.0)`` (in standard deviations), ``monomial(degree=3)``, ``hermite(degree=3)``; a list of
        nodes ``{"name": ..., "kernel": "rbf(gamma=1.0)[0] * linear[3]", "parents": [...], "d": ...}``, or a dictionary from names to
        ``(kernel, parents)``; a ``KernelGrid``, a ``KernelList``, or any object with the protocol ``KernelDag``. Default:
        ``"subsets(gaussian)"``, widths of one standard deviation.
    rho
        Norm over descendants, above 1 and at most 2: at 2 no kernel weighs more than its ancestors (HKL), near 1 it may.
    a
        Penalties are ``a^depth``.
    C
        Loss weight, ``C * sum of losses``, the same as scikit-learn's ``SVC`` and ``SVR``.
    loss
        ``"hinge"`` or ``"squared_hinge"`` for classes, ``"epsilon_insensitive"`` or ``"squared"`` for real targets; ``"auto"`` takes the
        first that fits.
    task_kernel
        Similarity of tasks: a positive semi-definite matrix ``(n_tasks, n_tasks)``, tasks in ascending order, or a number mu for
        ``I + 11'/mu``; by default the identity: tasks share which kernels are used, not their functions.
    solver
        ``"auto"``: all weights in closed form after every solve of the machines; ``"mirror"``: the thesis' mirror descent.
    normalize
        ``"trace"``: factors (nodes of a list) are scaled to trace n; ``"none"``.
    tol
        Certified gap at which the fit ends, relative to the primal value.
    max_rounds, max_nodes, max_solves
        Rounds, nodes of the hull, and solves over one hull, at most; a warning tells when one of them ends the fit.
    max_visits
        Nodes outside the hull looked at for a certificate, at most; beyond that it holds down to a depth (``certificate_depth_``).
    n_add
        Nodes added in a round, without their ancestors.
    rest
        Stop when a round lowers the primal value by less than this share of it.
    threshold
        A kernel counts as selected above this share of the largest weight.
    grams
        Where the hull's matrices lie: ``"auto"`` decides from sizes; ``"memory"``, ``"recompute"``.
"""

_REST = """    cluster
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."`` ...
    random_state
        Not used; the fit is deterministic.
    verbose
        Log one line per step.
    callbacks
        Functions called with an event record per step.

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
    certificate_
        Certified gap relative to the primal value, NaN where nothing is certified.
    certificate_depth_
        ``None`` where the certificate holds for all nodes of the graph, else the depth down to which it does.
    objective_, dual_gap_
        Primal value, and the certified gap.
    restricted_gap_
        Gap over the nodes of the hull.
    tasks_
        Names of the tasks, where there are several.
    intercept_
        ``(n_machines,)``, or ``(n_tasks,)``.
    support_vectors_, dual_coef_
        Training rows with a coefficient, and their signed coefficients: ``(n_machines, n_support)``, with tasks ``(n_support,)``.
    n_iter_, converged_, history_
        Steps, whether the fit ended as asked for, and one array per figure over the steps.

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 5.
    Bach: Exploring Large Feature Spaces with Hierarchical Multiple Kernel Learning. NIPS (2008).
    """


class _Hierarchical(TaskEstimator):
    """What both estimators share; with tasks the model is a :class:`TaskModel`, else a :class:`KernelModel`."""

    _config_type = HKLConfig

    dag: Any
    task_kernel: Any

    @property
    def _precomputed(self) -> bool:
        return False

    def _plain(self, given: dict[str, Any]) -> dict[str, Any]:
        given = super()._plain({**given, "dag": graph_record(given["dag"])})
        if isinstance(given["task_kernel"], (np.ndarray, list, tuple)):
            given["task_kernel"] = np.asarray(given["task_kernel"], np.float64).tolist()
        return given

    def fit(self, X: Any, y: Any = None, task: Any = None, sample_weight: Any = None) -> Self:
        """Fit on arrays, sparse matrices, Dask arrays, strings, or a block store.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store may hold target and tasks itself.
        y
            ``(n_samples,)`` target; several classes are fitted one against the rest, with one set of kernels.
        task
            ``(n_samples,)`` integers or strings that name the task of each row, in any order; then there may be two classes at most.
        sample_weight
            ``(n_samples,)`` factors of ``C``.

        Raises
        ------
        ValueError
            A parameter out of range, a graph with a cycle, data that are not finite, one class only.
        """
        config = self._config()
        inputs = self._fit_inputs(X, y, task, sample_weight)
        given = None if self.dag is None or isinstance(self.dag, (str, Sequence, Mapping)) else self.dag
        with self._context(inputs.data) as ctx:
            loop = build_loop(config, inputs, ctx, dag=given)
            outcome = run_loop(loop, ctx, keep=False)
            self._set_model(model_of(loop, inputs, outcome.state, ctx))
        self._set_history(outcome.history)
        self._warn_unfinished(self.converged_, f"the fit ended ({outcome.state.stop}) before tol={config.tol:g} was certified")
        return self

    def _fit_inputs(self, X: Any, y: Any, task: Any, sample_weight: Any) -> Any:
        if task is None and not (is_store(X) and _has_tasks(X)):
            return self._inputs(X, y, sample_weight)
        return self._task_inputs(X, y, task, sample_weight)

    def _set_model(self, model: Any) -> None:
        if isinstance(model, TaskModel):
            super()._set_model(model)
            self.dual_coef_ = model.beta
        else:
            KernelEstimator._set_model(self, model)
            self.intercept_, self.support_vectors_, self.dual_coef_ = model.intercepts, model.support_ids, model.beta
        figures, arrays = model.figures, model.arrays
        config = HKLConfig.model_validate_json(model.params_json)
        self.nodes_, self.depths_ = arrays["nodes"], arrays["depths"]
        self.kernel_weights_ = arrays["weights"].copy()
        self.active_set_ = active_texts(model)
        self.support_ = np.flatnonzero(selected(self.kernel_weights_, config.threshold))
        self.objective_, self.dual_gap_, self.restricted_gap_ = figures["objective"], figures["gap"], figures["restricted_gap"]
        self.certificate_ = self.dual_gap_ / abs(self.objective_) if self.objective_ else self.dual_gap_
        depth = figures["certificate_depth"]
        self.certificate_depth_ = None if not np.isfinite(depth) or depth == EVERYWHERE else int(depth)
        self.n_iter_, self.converged_ = int(figures["iterations"]), bool(figures["converged"])

    def _values(self, X: Any, task: Any = None) -> np.ndarray:
        """Return decision values of any form of data: ``(n_samples, n_machines)``, with tasks ``(n_samples, 1)``.

        Raises
        ------
        ValueError
            Tasks for a model that knows none.
        """
        model = getattr(self, "model_", None)
        if isinstance(model, KernelModel):
            if task is not None:
                raise ValueError("task is given, but the model was fitted without tasks")
            return KernelEstimator._values(self, X)
        return super()._values(X, task)


def _has_tasks(X: Any) -> bool:
    return store_tasks(opened(X)) is not None


def active_texts(model: Any) -> list[str]:
    """Return the kernels of a model's hull as texts."""
    return [str(kernel_of(record)) for record in json.loads(model.kernels_json)]


@documented(_PARAMETERS, _REST, CLASS_WEIGHT)
class HierarchicalKernelClassifier(Classifying, _Hierarchical):
    """Support vector classifier on kernels that are chosen from a graph of them, a kernel together with its ancestors (gHKL, gHKL_MT).

    Minimises ``1/2 (sum_v d_v (sum_{w in D(v)} ||f_w||^rho)^(1/rho))^2 + C sum_i loss(y_i, sum_w f_w(x_i) + b)`` over functions f_w in the
    spaces of the kernels of all nodes w, D(v) the descendants of v. The graph may be too large to list.
    """

    def __init__(
        self,
        dag: Any = None,
        rho: float = 1.5,
        a: float = 2.0,
        C: float = 1.0,
        loss: str = "auto",
        task_kernel: Any = None,
        solver: str = "auto",
        normalize: str = "none",
        tol: float = 1e-3,
        max_rounds: int = 50,
        max_nodes: int = 500,
        max_solves: int = 500,
        max_visits: int = 20_000,
        n_add: int = 30,
        rest: float | None = None,
        threshold: float = 1e-3,
        grams: str = "auto",
        class_weight: Any = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None:
        self.dag = dag
        self.rho = rho
        self.a = a
        self.C = C
        self.loss = loss
        self.task_kernel = task_kernel
        self.solver = solver
        self.normalize = normalize
        self.tol = tol
        self.max_rounds = max_rounds
        self.max_nodes = max_nodes
        self.max_solves = max_solves
        self.max_visits = max_visits
        self.n_add = n_add
        self.rest = rest
        self.threshold = threshold
        self.grams = grams
        self.class_weight = class_weight
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def decision_function(self, X: Any, task: Any = None) -> np.ndarray:
        """Return ``f(x)``: ``(n_samples,)`` for two classes, else ``(n_samples, n_classes)``; ``task`` names the task of every row."""
        values = self._values(X, task)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: Any, task: Any = None) -> np.ndarray:
        """Return the predicted labels, ``(n_samples,)``."""
        return labelled(self.decision_function(X, task), self.classes_)

    def score(self, X: Any, y: Any, sample_weight: Any = None, task: Any = None) -> float:
        """Return the share of right labels over all rows."""
        return float(accuracy_score(in_memory(y, "y"), self.predict(X, task), sample_weight=sample_weight))


@documented(
    _PARAMETERS,
    _REST,
    """    epsilon
        Half width of the tube without loss.
""",
)
class HierarchicalKernelRegressor(Predicting, _Hierarchical):
    """Support vector or ridge regression on kernels that are chosen from a graph of them, a kernel together with its ancestors.

    Minimises ``1/2 (sum_v d_v (sum_{w in D(v)} ||f_w||^rho)^(1/rho))^2 + C sum_i loss(y_i, sum_w f_w(x_i) + b)`` over functions f_w in the
    spaces of the kernels of all nodes w, D(v) the descendants of v. The graph may be too large to list.
    """

    _is_classifier = False

    def __init__(
        self,
        dag: Any = None,
        rho: float = 1.5,
        a: float = 2.0,
        C: float = 1.0,
        loss: str = "auto",
        epsilon: float = 0.1,
        task_kernel: Any = None,
        solver: str = "auto",
        normalize: str = "none",
        tol: float = 1e-3,
        max_rounds: int = 50,
        max_nodes: int = 500,
        max_solves: int = 500,
        max_visits: int = 20_000,
        n_add: int = 30,
        rest: float | None = None,
        threshold: float = 1e-3,
        grams: str = "auto",
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None:
        self.dag = dag
        self.rho = rho
        self.a = a
        self.C = C
        self.loss = loss
        self.epsilon = epsilon
        self.task_kernel = task_kernel
        self.solver = solver
        self.normalize = normalize
        self.tol = tol
        self.max_rounds = max_rounds
        self.max_nodes = max_nodes
        self.max_solves = max_solves
        self.max_visits = max_visits
        self.n_add = n_add
        self.rest = rest
        self.threshold = threshold
        self.grams = grams
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def predict(self, X: Any, task: Any = None) -> np.ndarray:
        """Return the predicted values, ``(n_samples,)``; ``task`` names the task of every row."""
        return self._values(X, task)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None, task: Any = None) -> float:
        """Return the coefficient of determination over all rows."""
        return float(r2_score(in_memory(y, "y"), self.predict(X, task), sample_weight=sample_weight))
