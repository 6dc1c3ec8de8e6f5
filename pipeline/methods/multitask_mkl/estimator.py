"""MultiTaskMKLClassifier and MultiTaskMKLRegressor: machines of many tasks on kernels that they choose together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ...estimators.cv import MACHINE_C, CrossValidatedTasks, Grid
from ...estimators.inputs import Callbacks, Seed
from ...estimators.kernels import UserKernels
from ...estimators.tasks import TaskClassifier, TaskEstimator, TaskRegressor
from ...models.kernel import is_selected
from ...models.task import TaskModel
from .config import MultiTaskMKLConfig
from .method import MultiTaskMKL


class _MultiTaskMKL(TaskEstimator):
    """What both estimators share."""

    _method = MultiTaskMKL()

    def _set_model(self, model: TaskModel) -> None:
        super()._set_model(model)
        self.kernel_weights_ = model.arrays["kernel_weights"].copy()
        self.task_kernel_weights_ = model.weights.copy()
        threshold = MultiTaskMKLConfig.model_validate_json(model.params_json).threshold
        selected = [is_selected(weights, threshold) for weights in np.atleast_2d(self.kernel_weights_)]
        self.support_ = np.flatnonzero(np.any(selected, axis=0))
        self._set_bounds(model.figures)


class MultiTaskMKLClassifier(_MultiTaskMKL, TaskClassifier):
    r"""Classifiers of many tasks that choose their kernels together (MK-MTFL); the classes are the same for all tasks.

    .. math::

        \min_{f, b} \frac{1}{2} \Bigl(\sum_j \bigl(\sum_t \|f_t^j\|^p\bigr)^{q/p}\Bigr)^{2/q}
        + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr), \quad F_t = \sum_j f_t^j + b_t

    over functions :math:`f_t^j` in the space of kernel j and biases.

    Of more than two classes every class has a machine against the rest, with weights of its own; arrays have one more axis then, before
    the others.

    A task all of whose rows have one label predicts it.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernels as short texts like rbf(gamma=0.5), rbf (its width the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius], or precomputed for matrices: an estimator takes (n_kernels, n, n) at fit, (n_kernels, n_test, n_train) at predict; default:
        Gaussians and polynomials on all features and on each one, while they are few, else up to ten on all features.
    p : float >= 2, default=2.0
        Norm over tasks: 2 gives all tasks the same kernel, more lets every task weight the common kernels in its own way.
    q : float >= 1 and <= 2, default=1.0
        Norm over kernels: 1 gives few kernels, 2 equal weights.
    C : float > 0, default=1.0
        Loss weight, C * sum of losses over the rows of all tasks, as scikit-learn's SVC and, on a target of standard deviation one, SVR.
    loss : {"auto", "hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: hinge for classes, epsilon_insensitive for real targets, squared; auto: the first that fits.
    solver : {"auto", "mirror"}, default='auto'
        auto: weights in closed form after every solve of the machines; mirror: the thesis' nested mirror descent.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that leave it open (trace: trace n); traces and means are taken over pairs of rows within tasks.
    tol : float > 0, default=0.001
        Gap between primal and dual value at which the fit ends, relative to the primal value.
    max_iter : int >= 1, default=500
        Times the machines of all tasks are solved at most; a warning tells when it ends the fit.
    threshold : float >= 0 and <= 1, default=0.0001
        A kernel counts as selected above this share of the largest weight.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where the Gram matrices within tasks lie: auto decides from sizes; memory, store (at gram_store), recompute.
    gram_store : str or None, default=None
        Path of a Gram store of the squares within tasks, kept for further fits.
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
        ``(n_kernels,)`` gamma, on the unit sphere of the norm ``q / (2 - q)``.
    task_kernel_weights_
        ``(n_kernels, n_tasks)`` weights of the kernels in the machine of each task, ``gamma_j / lambda_jt``.
    support_
        Indices of the selected kernels.
    objective_, dual_gap_, lower_bound_, upper_bound_
        Primal value and its distance to the dual value, a bound of the distance to the optimum; both bounds of the optimum.
    n_iter_, converged_, stop_reason_, history_
        Solves of all machines, whether ``tol`` was reached, what ended it, and one array per figure over the iterations.
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
    >>> from gramplane import MultiTaskMKLClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1] > 0
    >>> model = MultiTaskMKLClassifier(["linear[0]", "linear[1]", "rbf(gamma=0.5)"], p=4).fit(X, y, task)
    >>> model.task_kernel_weights_.mean(axis=1).round(2).tolist()
    [0.92, 0.14, 0.89]

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 3.
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        p: float = 2.0,
        q: float = 1.0,
        C: float = 1.0,
        loss: Literal["auto", "hinge", "epsilon_insensitive", "squared"] = "auto",
        solver: Literal["auto", "mirror"] = "auto",
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.001,
        max_iter: int = 500,
        threshold: float = 0.0001,
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
        self.probability = probability
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class MultiTaskMKLRegressor(_MultiTaskMKL, TaskRegressor):
    r"""Regressions of many tasks that choose their kernels together (MK-MTFL).

    .. math::

        \min_{f, b} \frac{1}{2} \Bigl(\sum_j \bigl(\sum_t \|f_t^j\|^p\bigr)^{q/p}\Bigr)^{2/q}
        + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr), \quad F_t = \sum_j f_t^j + b_t

    over functions :math:`f_t^j` in the space of kernel j and biases.

    Of more than two classes every class has a machine against the rest, with weights of its own; arrays have one more axis then, before
    the others.

    The target is centred and scaled inside: C and epsilon are about targets of standard deviation one, and mean the same in every unit.
    Coefficients and intercepts are in the unit of the target, objective and bounds in its square.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernels as short texts like rbf(gamma=0.5), rbf (its width the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius], or precomputed for matrices: an estimator takes (n_kernels, n, n) at fit, (n_kernels, n_test, n_train) at predict; default:
        Gaussians and polynomials on all features and on each one, while they are few, else up to ten on all features.
    p : float >= 2, default=2.0
        Norm over tasks: 2 gives all tasks the same kernel, more lets every task weight the common kernels in its own way.
    q : float >= 1 and <= 2, default=1.0
        Norm over kernels: 1 gives few kernels, 2 equal weights.
    C : float > 0, default=1.0
        Loss weight, C * sum of losses over the rows of all tasks, as scikit-learn's SVC and, on a target of standard deviation one, SVR.
    loss : {"auto", "hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: hinge for classes, epsilon_insensitive for real targets, squared; auto: the first that fits.
    epsilon : float >= 0, default=0.1
        epsilon_insensitive: half width of the tube without loss, in standard deviations of the target.
    solver : {"auto", "mirror"}, default='auto'
        auto: weights in closed form after every solve of the machines; mirror: the thesis' nested mirror descent.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that leave it open (trace: trace n); traces and means are taken over pairs of rows within tasks.
    tol : float > 0, default=0.001
        Gap between primal and dual value at which the fit ends, relative to the primal value.
    max_iter : int >= 1, default=500
        Times the machines of all tasks are solved at most; a warning tells when it ends the fit.
    threshold : float >= 0 and <= 1, default=0.0001
        A kernel counts as selected above this share of the largest weight.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where the Gram matrices within tasks lie: auto decides from sizes; memory, store (at gram_store), recompute.
    gram_store : str or None, default=None
        Path of a Gram store of the squares within tasks, kept for further fits.
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
        ``(n_kernels,)`` gamma, on the unit sphere of the norm ``q / (2 - q)``.
    task_kernel_weights_
        ``(n_kernels, n_tasks)`` weights of the kernels in the machine of each task, ``gamma_j / lambda_jt``.
    support_
        Indices of the selected kernels.
    objective_, dual_gap_, lower_bound_, upper_bound_
        Primal value and its distance to the dual value, a bound of the distance to the optimum; both bounds of the optimum.
    n_iter_, converged_, stop_reason_, history_
        Solves of all machines, whether ``tol`` was reached, what ended it, and one array per figure over the iterations.
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
    >>> from gramplane import MultiTaskMKLRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1]
    >>> model = MultiTaskMKLRegressor(["linear[0]", "linear[1]", "rbf(gamma=0.5)"], p=4).fit(X, y, task)
    >>> model.task_kernel_weights_.mean(axis=1).round(2).tolist()
    [1.43, 10.78, 0.0]

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis, IIT Bombay (2014), chapter 3.
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        p: float = 2.0,
        q: float = 1.0,
        C: float = 1.0,
        loss: Literal["auto", "hinge", "epsilon_insensitive", "squared"] = "auto",
        epsilon: float = 0.1,
        solver: Literal["auto", "mirror"] = "auto",
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.001,
        max_iter: int = 500,
        threshold: float = 0.0001,
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
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class _MultiTaskMKLPath(CrossValidatedTasks):
    """Chooses ``C``, ``p`` and ``q`` by cross-validation; every task is in all folds. All fits share the Gram matrices within tasks, and
    those of a C start from the weights, shares and coefficients of the C before it.
    """

    _grids = (MACHINE_C, Grid("p", "ps"), Grid("q", "qs"))


class MultiTaskMKLClassifierCV(_MultiTaskMKLPath, MultiTaskMKLClassifier):
    r"""Classifiers of many tasks that choose their kernels together, ``C``, ``p`` and ``q`` chosen by cross-validation.

    The problem, the parameters that are not explained here and further attributes are those of :class:`MultiTaskMKLClassifier`.

    Parameters
    ----------
    ps : list of float or None, default=None
        Values of p to compare; ``None``: ``p`` alone.
    qs : list of float or None, default=None
        Values of q to compare; ``None``: ``q`` alone.
    Cs : int or list of float, default=10
        Values of C; a number of them is spread evenly in the logarithm from 1/10 to 1000.
    cv : int, splitter, iterable or None, default=None
        Folds: a number, drawn from ``random_state`` as ``tune`` draws them, in every class or, of many tasks, in every task; or a splitter
        of scikit-learn, to which tasks are groups, or pairs of indices to learn from and to score. ``None``: 5, fewer where a class or task
        has fewer rows.
    scoring : str, callable, list of str, dict or None, default=None
        Name of a scorer of scikit-learn, or a callable ``(estimator, X, y)``, where ``X`` numbers the rows held out and the estimator has
        decided on them; or several: a list of names, or a dict of names and callables. ``None``: accuracy, or R2. Rows count by their
        weights; to names of scorers the second of two classes is the positive one; probabilities are exact for a logistic loss, else
        calibrated on the rows held out, each on others.
    refit : bool or str, default=True
        Fit on all rows with the parameters chosen; else there is no model, only the scores. Of several scores the name of the one that
        decides; ``True`` and ``False``: the first.
    one_standard_error : bool, default=False
        Choose the simplest model within one standard error of the best score, not the best.
    n_jobs : int or None, default=None
        Processes among which the folds are dealt, -1: all processors; the same bits for any number. ``None`` is 1.

    Attributes
    ----------
    C_, p_, q_
        Parameters chosen.
    Cs_, ps_, qs_
        Values that were compared, ``ps_`` and ``qs_`` where they were given.
    best_params_, best_score_, best_index_
        Parameters chosen, their mean score, and their place in ``cv_results_``.
    cv_results_
        Arrays with one entry a point, as ``GridSearchCV`` has them: ``params``, ``param_*``, ``split*_test_score``, ``mean_test_score``,
        ``std_test_score``, ``rank_test_score``; of several scores their names stand in the place of ``score``. Of classes further
        ``mean_margin_loss``, which chooses among points of one score.
    n_splits_, scorer_
        Number of folds, and what scored them: of several scores a dict.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import MultiTaskMKLClassifierCV
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1] > 0
    >>> model = MultiTaskMKLClassifierCV(["linear[0]", "linear[1]"], ps=[2, 4], Cs=[0.1, 1]).fit(X, y, task)
    >>> model.best_params_, round(model.best_score_, 2)
    ({'C': 1.0, 'p': 4}, 0.92)
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        p: float = 2.0,
        ps: int | Sequence[float] | None = None,
        q: float = 1.0,
        qs: int | Sequence[float] | None = None,
        Cs: int | Sequence[float] | None = 10,
        loss: Literal["auto", "hinge", "epsilon_insensitive", "squared"] = "auto",
        solver: Literal["auto", "mirror"] = "auto",
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.001,
        max_iter: int = 500,
        threshold: float = 0.0001,
        grams: Literal["auto", "memory", "store", "recompute"] = "auto",
        gram_store: str | None = None,
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        probability: Literal["auto", "sigmoid", "isotonic", False] = "auto",
        scale: Literal["auto", "standard", "max-abs", "unit-column"] | None = "auto",
        cv: Any = None,
        scoring: Any = None,
        refit: bool | str = True,
        one_standard_error: bool = False,
        n_jobs: int | None = None,
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.kernels = kernels
        self.p = p
        self.ps = ps
        self.q = q
        self.qs = qs
        self.Cs = Cs
        self.loss = loss
        self.solver = solver
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.threshold = threshold
        self.grams = grams
        self.gram_store = gram_store
        self.class_weight = class_weight
        self.probability = probability
        self.scale = scale
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.one_standard_error = one_standard_error
        self.n_jobs = n_jobs
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class MultiTaskMKLRegressorCV(_MultiTaskMKLPath, MultiTaskMKLRegressor):
    r"""Regressions of many tasks that choose their kernels together, ``C``, ``p`` and ``q`` chosen by cross-validation.

    The problem, the parameters that are not explained here and further attributes are those of :class:`MultiTaskMKLRegressor`.

    Parameters
    ----------
    ps : list of float or None, default=None
        Values of p to compare; ``None``: ``p`` alone.
    qs : list of float or None, default=None
        Values of q to compare; ``None``: ``q`` alone.
    Cs : int or list of float, default=10
        Values of C; a number of them is spread evenly in the logarithm from 1/10 to 1000.
    cv : int, splitter, iterable or None, default=None
        Folds: a number, drawn from ``random_state`` as ``tune`` draws them, in every class or, of many tasks, in every task; or a splitter
        of scikit-learn, to which tasks are groups, or pairs of indices to learn from and to score. ``None``: 5, fewer where a class or task
        has fewer rows.
    scoring : str, callable, list of str, dict or None, default=None
        Name of a scorer of scikit-learn, or a callable ``(estimator, X, y)``, where ``X`` numbers the rows held out and the estimator has
        decided on them; or several: a list of names, or a dict of names and callables. ``None``: accuracy, or R2. Rows count by their
        weights; to names of scorers the second of two classes is the positive one; probabilities are exact for a logistic loss, else
        calibrated on the rows held out, each on others.
    refit : bool or str, default=True
        Fit on all rows with the parameters chosen; else there is no model, only the scores. Of several scores the name of the one that
        decides; ``True`` and ``False``: the first.
    one_standard_error : bool, default=False
        Choose the simplest model within one standard error of the best score, not the best.
    n_jobs : int or None, default=None
        Processes among which the folds are dealt, -1: all processors; the same bits for any number. ``None`` is 1.

    Attributes
    ----------
    C_, p_, q_
        Parameters chosen.
    Cs_, ps_, qs_
        Values that were compared, ``ps_`` and ``qs_`` where they were given.
    best_params_, best_score_, best_index_
        Parameters chosen, their mean score, and their place in ``cv_results_``.
    cv_results_
        Arrays with one entry a point, as ``GridSearchCV`` has them: ``params``, ``param_*``, ``split*_test_score``, ``mean_test_score``,
        ``std_test_score``, ``rank_test_score``; of several scores their names stand in the place of ``score``. Of classes further
        ``mean_margin_loss``, which chooses among points of one score.
    n_splits_, scorer_
        Number of folds, and what scored them: of several scores a dict.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import MultiTaskMKLRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1]
    >>> model = MultiTaskMKLRegressorCV(["linear[0]", "linear[1]"], Cs=[1, 10]).fit(X, y, task)
    >>> model.best_params_, round(model.best_score_, 2)
    ({'C': 1}, 0.99)
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        p: float = 2.0,
        ps: int | Sequence[float] | None = None,
        q: float = 1.0,
        qs: int | Sequence[float] | None = None,
        Cs: int | Sequence[float] | None = 10,
        loss: Literal["auto", "hinge", "epsilon_insensitive", "squared"] = "auto",
        epsilon: float = 0.1,
        solver: Literal["auto", "mirror"] = "auto",
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.001,
        max_iter: int = 500,
        threshold: float = 0.0001,
        grams: Literal["auto", "memory", "store", "recompute"] = "auto",
        gram_store: str | None = None,
        scale: Literal["auto", "standard", "max-abs", "unit-column"] | None = "auto",
        cv: Any = None,
        scoring: Any = None,
        refit: bool | str = True,
        one_standard_error: bool = False,
        n_jobs: int | None = None,
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.kernels = kernels
        self.p = p
        self.ps = ps
        self.q = q
        self.qs = qs
        self.Cs = Cs
        self.loss = loss
        self.epsilon = epsilon
        self.solver = solver
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.threshold = threshold
        self.grams = grams
        self.gram_store = gram_store
        self.scale = scale
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.one_standard_error = one_standard_error
        self.n_jobs = n_jobs
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
