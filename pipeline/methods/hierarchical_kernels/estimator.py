"""HierarchicalKernelClassifier and HierarchicalKernelRegressor: SVMs on kernels selected from a graph of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from ....kernels.graphs.kernel_graphs import KernelDag
from ....kernels.graphs.parsing import graph_record
from ....storage.data import is_store, opened, square_in_memory
from ...estimators.inputs import Callbacks, Column, Seed, UserRows, score_of
from ...estimators.kernels import KernelEstimator
from ...estimators.tasks import TaskClassifier, TaskEstimator, TaskRegressor, add_tasks
from ...inputs.tasks import store_tasks
from ...loops.active_set import EVERYWHERE
from ...models.kernel import KernelModel, is_selected, kernel_names
from ...models.task import TaskModel
from .config import HKLConfig
from .method import HKL
from .problem import HKLInputs


class _Hierarchical(TaskEstimator):
    """Base class of classifier and regressor. The model is a :class:`TaskModel` if there are tasks, otherwise a :class:`KernelModel`."""

    _method = HKL()
    _kernels_parameter = None

    dag: Any
    task_kernel: Any

    def _plain(self, given: dict[str, Any]) -> dict[str, Any]:
        given = super()._plain({**given, "dag": graph_record(given["dag"])})
        if np.ndim(given["task_kernel"]):
            given["task_kernel"] = np.asarray(square_in_memory(given["task_kernel"], "task_kernel"), np.float64).tolist()
        return given

    def fit(self, X: UserRows, y: Column = None, task: Column = None, sample_weight: Column = None) -> Self:
        """Fit on arrays, sparse matrices, Dask arrays, strings, or a block store.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store may contain target and tasks.
        y
            ``(n_samples,)`` target. Several classes are fitted one-vs-rest, with one set of kernels.
        task
            ``(n_samples,)`` integers or strings: the task of each row, in any order.
        sample_weight
            ``(n_samples,)`` row counts: they multiply ``C``, and weight the rows in kernel widths and traces.

        Raises
        ------
        ValueError
            Parameter out of range, graph with a cycle, non-finite data, or a single class.
        """
        has_tasks = task is not None or (is_store(X) and store_tasks(opened(X)) is not None)
        inputs = self._inputs(X, y, sample_weight)
        # What a file of parameters can hold is in the parameters already.
        dag = None if isinstance(self.dag, (str, Sequence, Mapping)) else self.dag
        self._fit(HKLInputs(add_tasks(inputs, X, task) if has_tasks else inputs, dag))
        return self

    def _set_model(self, model: Any) -> None:
        if isinstance(model, TaskModel):
            super()._set_model(model)
        else:
            KernelEstimator._set_model(self, model)
            self.intercept_, self.support_vectors_, self.dual_coef_ = model.intercepts, model.support_ids, model.beta
        figures, arrays = model.figures, model.arrays
        self.nodes_, self.depths_ = arrays["nodes"], arrays["depths"]
        self.kernel_weights_ = arrays["weights"].copy()
        self.active_set_ = kernel_names(model)
        self.support_ = np.flatnonzero(is_selected(self.kernel_weights_, HKLConfig.model_validate_json(model.params_json).threshold))
        self.objective_, self.dual_gap_, self.restricted_gap_ = figures["objective"], figures["gap"], figures["restricted_gap"]
        self.certificate_ = self.dual_gap_ / abs(self.objective_) if self.objective_ else self.dual_gap_
        depth = figures["certificate_depth"]
        self.certificate_depth_ = None if not np.isfinite(depth) or depth == EVERYWHERE else int(depth)

    def _values(self, X: object, task: object = None) -> np.ndarray:
        """Return the decision values of data in any form, ``(n_samples, n_machines)``."""
        if not isinstance(getattr(self, "model_", None), KernelModel):
            return super()._values(X, task)
        if task is not None:
            raise ValueError("task is given, but the model was fitted without tasks")
        return KernelEstimator._values(self, X)


class HierarchicalKernelClassifier(_Hierarchical, TaskClassifier):
    r"""Support vector classifier that selects kernels from a graph, each together with its ancestors (gHKL, gHKL_MT).

    .. math::

        \min_{f, b} \frac{1}{2} \Bigl(\sum_v d_v \bigl(\sum_{w \in D(v)} \|f_w\|^\rho\bigr)^{1/\rho}\Bigr)^2
        + C \sum_i \ell\Bigl(y_i, \sum_w f_w(x_i) + b\Bigr)

    over functions :math:`f_w` in the spaces of the kernels of all nodes w; D(v) are the descendants of v. The graph may have too many nodes
    to enumerate.

    Parameters
    ----------
    dag : str, list, dict, KernelDag or None, default=None
        Graph of kernels. ``subsets(KERNEL[; depth=D])`` has the products of one kernel per feature over all subsets of features;
        ``grid(KERNEL; KERNEL; ...[; depth=D])`` has a chain of kernels per feature. KERNEL acts on single features, such as
        rbf(gamma=0.5)[0:8], gaussian(width=1.0) (in standard deviations), monomial(degree=3) or hermite(degree=3). Alternatively: a list of
        nodes {"name": ..., "kernel": "rbf(gamma=1.0)[0] * linear[3]", "parents": [...], "d": ...}; a dictionary from names to (kernel,
        parents); a KernelGrid, a KernelList, or any object with the protocol KernelDag. Default: subsets(gaussian) with widths of one
        standard deviation. With more than 128 features, or if evaluating products takes long, the default is single features without
        products (depth=1); with many rows or features, only the features most associated with the target.
    rho : float > 1 and <= 2, default=1.5
        Norm over descendants: at 2 no kernel weighs more than its ancestors (HKL); near 1 a kernel may weigh more.
    a : float > 0, default=2.0
        Base of the penalties: a kernel of depth d in the graph has penalty ``a ** d``.
    C : float > 0, default=10.0
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses, as in
        scikit-learn's ``SVC`` and, for a target of standard deviation 1, ``SVR``.
    loss : {"auto", "hinge", "squared_hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: ``"hinge"`` or ``"squared_hinge"`` for classes, ``"epsilon_insensitive"`` or ``"squared"`` for real targets.
        ``"auto"``: the first of these that suits the target.
    task_kernel : float > 0 or array of shape (n_tasks, n_tasks) or None, default=None
        Similarity of tasks: a positive semi-definite matrix (n_tasks, n_tasks), with tasks in ascending order, or a number mu for the
        matrix I + 11'/mu. Default: the identity; tasks then share the selected kernels, but not their functions.
    solver : {"auto", "mirror"}, default='auto'
        ``"auto"``: a closed form gives all weights after every solve of the SVMs. ``"mirror"``: the mirror descent of the thesis.
    normalize : {"none", "trace"}, default='none'
        ``"trace"`` scales the factors of the products to trace n; if the graph is a list of nodes, it scales the nodes.
    tol : float > 0, default=0.001
        Stopping tolerance: certified duality gap relative to the primal value.
    max_rounds : int >= 1, default=50
        Largest number of searches among the nodes outside the selected part; a warning is issued if the fit ends at a limit.
    max_nodes : int >= 1, default=500
        Largest number of nodes in the selected part of the graph.
    max_solves : int >= 1, default=500
        Largest number of solves for one set of selected nodes.
    max_visits : int >= 1 or {"auto"}, default='auto'
        Largest number of nodes outside the selected part that are visited for a certificate. Beyond it, the certificate holds up to a depth
        (``certificate_depth_``). ``"auto"``: 20,000; with many rows, as many as take about ten seconds of processor time.
    n_add : int >= 1, default=30
        Number of nodes added per round, not counting their ancestors.
    rest : float > 0 or None, default=0.001
        Stop when a round lowers the primal value by less than this fraction. ``None``: continue until the certificate holds.
    threshold : float >= 0 and <= 1, default=0.001
        A kernel counts as selected if its weight exceeds this fraction of the largest weight.
    max_iter : int >= 1, default=5000
        Largest number of steps, each of up to eight solves; a warning is issued if the fit ends at this limit.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where the Gram matrices of the selected part of the graph are kept: ``"memory"``, ``"store"`` (at ``gram_store``), or
        ``"recompute"`` for nowhere. ``"auto"`` decides by their size.
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
    active_set_
        Kernels of the selected part of the graph, as texts.
    kernel_weights_
        ``(n_nodes,)`` kernel weights mu: the model's kernel is ``sum_w mu_w k_w``, times the task kernel.
    nodes_, depths_
        ``(n_nodes, width)`` names of the nodes in the graph, and ``(n_nodes,)`` their depths.
    support_
        Indices of the selected kernels.
    certificate_, certificate_depth_
        Certified gap relative to the primal value (NaN without a certificate), and the depth up to which it holds (``None``: for all nodes
        of the graph).
    objective_, dual_gap_, restricted_gap_
        Primal value, the certified gap, and the gap over the nodes of the selected part.
    tasks_, intercept_
        Names of the tasks, if there are several, and intercepts: ``(n_machines,)``; with tasks ``(n_tasks,)``, or ``(n_classes, n_tasks)``
        for more than two classes.
    support_vectors_, dual_coef_
        Indices of the support vectors, and their signed coefficients: ``(n_machines, n_support)``; ``(n_support,)`` with tasks and two
        classes.
    n_iter_, converged_, stop_reason_, history_
        Number of steps, whether the gap over all nodes is within ``tol``, the reason for stopping (``rest``: the parameter of that name),
        and one array per quantity over the steps.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import HierarchicalKernelClassifier
    >>> X = np.random.default_rng(0).normal(size=(80, 4))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> model = HierarchicalKernelClassifier(
    ...     "subsets(gaussian; depth=2)", tol=0.05
    ... ).fit(X, y)
    >>> len(model.active_set_), round(model.score(X, y), 2)
    (7, 0.82)

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 5.
    Bach: Exploring Large Feature Spaces with Hierarchical Multiple Kernel Learning. NIPS (2008).
    """

    def __init__(
        self,
        dag: str | Sequence[Any] | Mapping[str, Any] | KernelDag | None = None,
        rho: float = 1.5,
        a: float = 2.0,
        C: float = 10.0,
        loss: Literal["auto", "hinge", "squared_hinge", "epsilon_insensitive", "squared"] = "auto",
        task_kernel: float | Sequence[Sequence[float]] | np.ndarray | None = None,
        solver: Literal["auto", "mirror"] = "auto",
        normalize: Literal["none", "trace"] = "none",
        tol: float = 0.001,
        max_rounds: int = 50,
        max_nodes: int = 500,
        max_solves: int = 500,
        max_visits: int | Literal["auto"] = "auto",
        n_add: int = 30,
        rest: float | None = 0.001,
        threshold: float = 0.001,
        max_iter: int = 5000,
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

    def score(self, X: UserRows, y: Column = None, sample_weight: Column = None, task: Column = None) -> float:
        """Return the accuracy over all rows."""
        return score_of(True, X, y, self.predict(X, task), sample_weight)


class HierarchicalKernelRegressor(_Hierarchical, TaskRegressor):
    r"""Support vector or ridge regression that selects kernels from a graph, each together with its ancestors.

    .. math::

        \min_{f, b} \frac{1}{2} \Bigl(\sum_v d_v \bigl(\sum_{w \in D(v)} \|f_w\|^\rho\bigr)^{1/\rho}\Bigr)^2
        + C \sum_i \ell\Bigl(y_i, \sum_w f_w(x_i) + b\Bigr)

    over functions :math:`f_w` in the spaces of the kernels of all nodes w; D(v) are the descendants of v. The graph may have too many nodes
    to enumerate.

    The target is centred and scaled internally: C and epsilon refer to a target of standard deviation 1, whatever its unit. Coefficients
    and intercepts are in the unit of the target, objective and bounds in its square.

    Parameters
    ----------
    dag : str, list, dict, KernelDag or None, default=None
        Graph of kernels. ``subsets(KERNEL[; depth=D])`` has the products of one kernel per feature over all subsets of features;
        ``grid(KERNEL; KERNEL; ...[; depth=D])`` has a chain of kernels per feature. KERNEL acts on single features, such as
        rbf(gamma=0.5)[0:8], gaussian(width=1.0) (in standard deviations), monomial(degree=3) or hermite(degree=3). Alternatively: a list of
        nodes {"name": ..., "kernel": "rbf(gamma=1.0)[0] * linear[3]", "parents": [...], "d": ...}; a dictionary from names to (kernel,
        parents); a KernelGrid, a KernelList, or any object with the protocol KernelDag. Default: subsets(gaussian) with widths of one
        standard deviation. With more than 128 features, or if evaluating products takes long, the default is single features without
        products (depth=1); with many rows or features, only the features most associated with the target.
    rho : float > 1 and <= 2, default=1.5
        Norm over descendants: at 2 no kernel weighs more than its ancestors (HKL); near 1 a kernel may weigh more.
    a : float > 0, default=2.0
        Base of the penalties: a kernel of depth d in the graph has penalty ``a ** d``.
    C : float > 0, default=10.0
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses, as in
        scikit-learn's ``SVC`` and, for a target of standard deviation 1, ``SVR``.
    loss : {"auto", "hinge", "squared_hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: ``"hinge"`` or ``"squared_hinge"`` for classes, ``"epsilon_insensitive"`` or ``"squared"`` for real targets.
        ``"auto"``: the first of these that suits the target.
    epsilon : float >= 0, default=0.1
        With ``"epsilon_insensitive"``: half-width of the tube without loss, in standard deviations of the target.
    task_kernel : float > 0 or array of shape (n_tasks, n_tasks) or None, default=None
        Similarity of tasks: a positive semi-definite matrix (n_tasks, n_tasks), with tasks in ascending order, or a number mu for the
        matrix I + 11'/mu. Default: the identity; tasks then share the selected kernels, but not their functions.
    solver : {"auto", "mirror"}, default='auto'
        ``"auto"``: a closed form gives all weights after every solve of the SVMs. ``"mirror"``: the mirror descent of the thesis.
    normalize : {"none", "trace"}, default='none'
        ``"trace"`` scales the factors of the products to trace n; if the graph is a list of nodes, it scales the nodes.
    tol : float > 0, default=0.001
        Stopping tolerance: certified duality gap relative to the primal value.
    max_rounds : int >= 1, default=50
        Largest number of searches among the nodes outside the selected part; a warning is issued if the fit ends at a limit.
    max_nodes : int >= 1, default=500
        Largest number of nodes in the selected part of the graph.
    max_solves : int >= 1, default=500
        Largest number of solves for one set of selected nodes.
    max_visits : int >= 1 or {"auto"}, default='auto'
        Largest number of nodes outside the selected part that are visited for a certificate. Beyond it, the certificate holds up to a depth
        (``certificate_depth_``). ``"auto"``: 20,000; with many rows, as many as take about ten seconds of processor time.
    n_add : int >= 1, default=30
        Number of nodes added per round, not counting their ancestors.
    rest : float > 0 or None, default=0.001
        Stop when a round lowers the primal value by less than this fraction. ``None``: continue until the certificate holds.
    threshold : float >= 0 and <= 1, default=0.001
        A kernel counts as selected if its weight exceeds this fraction of the largest weight.
    max_iter : int >= 1, default=5000
        Largest number of steps, each of up to eight solves; a warning is issued if the fit ends at this limit.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where the Gram matrices of the selected part of the graph are kept: ``"memory"``, ``"store"`` (at ``gram_store``), or
        ``"recompute"`` for nowhere. ``"auto"`` decides by their size.
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
    active_set_
        Kernels of the selected part of the graph, as texts.
    kernel_weights_
        ``(n_nodes,)`` kernel weights mu: the model's kernel is ``sum_w mu_w k_w``, times the task kernel.
    nodes_, depths_
        ``(n_nodes, width)`` names of the nodes in the graph, and ``(n_nodes,)`` their depths.
    support_
        Indices of the selected kernels.
    certificate_, certificate_depth_
        Certified gap relative to the primal value (NaN without a certificate), and the depth up to which it holds (``None``: for all nodes
        of the graph).
    objective_, dual_gap_, restricted_gap_
        Primal value, the certified gap, and the gap over the nodes of the selected part.
    tasks_, intercept_
        Names of the tasks, if there are several, and intercepts: ``(n_machines,)``; with tasks ``(n_tasks,)``, or ``(n_classes, n_tasks)``
        for more than two classes.
    support_vectors_, dual_coef_
        Indices of the support vectors, and their signed coefficients: ``(n_machines, n_support)``; ``(n_support,)`` with tasks and two
        classes.
    n_iter_, converged_, stop_reason_, history_
        Number of steps, whether the gap over all nodes is within ``tol``, the reason for stopping (``rest``: the parameter of that name),
        and one array per quantity over the steps.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import HierarchicalKernelRegressor
    >>> X = np.random.default_rng(0).normal(size=(80, 4))
    >>> model = HierarchicalKernelRegressor(
    ...     "subsets(gaussian; depth=2)", loss="squared", tol=0.05
    ... ).fit(X, X[:, 0] * X[:, 1])
    >>> len(model.active_set_), round(model.score(X, X[:, 0] * X[:, 1]), 2)
    (11, 0.75)

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 5.
    Bach: Exploring Large Feature Spaces with Hierarchical Multiple Kernel Learning. NIPS (2008).
    """

    def __init__(
        self,
        dag: str | Sequence[Any] | Mapping[str, Any] | KernelDag | None = None,
        rho: float = 1.5,
        a: float = 2.0,
        C: float = 10.0,
        loss: Literal["auto", "hinge", "squared_hinge", "epsilon_insensitive", "squared"] = "auto",
        epsilon: float = 0.1,
        task_kernel: float | Sequence[Sequence[float]] | np.ndarray | None = None,
        solver: Literal["auto", "mirror"] = "auto",
        normalize: Literal["none", "trace"] = "none",
        tol: float = 0.001,
        max_rounds: int = 50,
        max_nodes: int = 500,
        max_solves: int = 500,
        max_visits: int | Literal["auto"] = "auto",
        n_add: int = 30,
        rest: float | None = 0.001,
        threshold: float = 0.001,
        max_iter: int = 5000,
        grams: Literal["auto", "memory", "store", "recompute"] = "auto",
        gram_store: str | None = None,
        scale: Literal["auto", "standard", "max-abs", "unit-column"] | None = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
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
        self.max_iter = max_iter
        self.grams = grams
        self.gram_store = gram_store
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def score(self, X: UserRows, y: Column = None, sample_weight: Column = None, task: Column = None) -> float:
        """Return the coefficient of determination over all rows."""
        return score_of(False, X, y, self.predict(X, task), sample_weight)
