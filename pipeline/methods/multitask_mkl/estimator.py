"""MultiTaskMKLClassifier and MultiTaskMKLRegressor: SVMs for many tasks, which select their kernels jointly."""

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
    """Base class of classifier and regressor."""

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
    r"""Classifiers for many tasks, which select their kernels jointly (MK-MTFL). The classes are the same for all tasks.

    .. math::

        \min_{f, b} \frac{1}{2} \Bigl(\sum_j \bigl(\sum_t \|f_t^j\|^p\bigr)^{q/p}\Bigr)^{2/q}
        + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr), \quad F_t = \sum_j f_t^j + b_t

    over functions :math:`f_t^j` in the space of kernel j, and intercepts :math:`b_t`.

    More than two classes are fitted one-vs-rest, each class with its own weights. Arrays then have the classes as an additional first axis.

    A task whose rows all have the same label predicts that label.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernel expressions such as rbf(gamma=0.5), rbf (its width is the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius]; or ``"precomputed"``, with matrices (n_kernels, n, n) in ``fit`` and (n_kernels, n_test, n_train) in ``predict``. Default:
        Gaussians and polynomials on all features and on each one if there are few features, else up to ten kernels on all features.
    p : float >= 2, default=2.0
        Norm over tasks: 2 gives all tasks the same kernel; larger values let each task weight the common kernels differently.
    q : float >= 1 and <= 2, default=1.0
        Norm over kernels: 1 selects few kernels, 2 gives equal weights.
    C : float > 0, default=1.0
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses over the rows of
        all tasks, as in scikit-learn's ``SVC`` and, for a target of standard deviation 1, ``SVR``.
    loss : {"auto", "hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: ``"hinge"`` for classes, ``"epsilon_insensitive"`` or ``"squared"`` for real targets. ``"auto"``: the first of these
        that suits the target.
    solver : {"auto", "mirror"}, default='auto'
        ``"auto"``: a closed form gives the weights after every solve of the SVMs. ``"mirror"``: the nested mirror descent of the thesis.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that do not specify one; ``"trace"`` scales to trace n. Traces and means are taken over pairs of rows
        within tasks.
    tol : float > 0, default=0.001
        Stopping tolerance: gap between primal and dual value, relative to the primal value.
    max_iter : int >= 1, default=500
        Largest number of times the SVMs of all tasks are solved; a warning is issued if the fit ends at this limit.
    threshold : float >= 0 and <= 1, default=0.0001
        A kernel counts as selected if its weight exceeds this fraction of the largest weight.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where the Gram matrices within tasks are kept: ``"memory"``, ``"store"`` (at ``gram_store``), or ``"recompute"`` for nowhere.
        ``"auto"`` decides by their size.
    gram_store : str or None, default=None
        Path of a Gram store for the blocks of the Gram matrices within tasks; it is kept for further fits.
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
        ``(n_kernels,)`` weights gamma, with norm 1 in the ``q / (2 - q)`` norm.
    task_kernel_weights_
        ``(n_kernels, n_tasks)`` weights of the kernels in the SVM of each task, ``gamma_j / lambda_jt``.
    support_
        Indices of the selected kernels.
    objective_, dual_gap_, lower_bound_, upper_bound_
        Primal value, its distance to the dual value (an upper bound of the distance to the optimum), and both bounds of the optimum.
    n_iter_, converged_, stop_reason_, history_
        Number of solves of all SVMs, whether ``tol`` was reached, the reason for stopping, and one array per quantity over the iterations.
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
    >>> from gramplane import MultiTaskMKLClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1] > 0
    >>> model = MultiTaskMKLClassifier(
    ...     ["linear[0]", "linear[1]", "rbf(gamma=0.5)"], p=4
    ... ).fit(X, y, task)
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
    r"""Regressions for many tasks, which select their kernels jointly (MK-MTFL).

    .. math::

        \min_{f, b} \frac{1}{2} \Bigl(\sum_j \bigl(\sum_t \|f_t^j\|^p\bigr)^{q/p}\Bigr)^{2/q}
        + C \sum_t \sum_i \ell\bigl(y_{ti}, F_t(x_{ti})\bigr), \quad F_t = \sum_j f_t^j + b_t

    over functions :math:`f_t^j` in the space of kernel j, and intercepts :math:`b_t`.

    The target is centred and scaled internally: C and epsilon refer to a target of standard deviation 1, whatever its unit. Coefficients
    and intercepts are in the unit of the target, objective and bounds in its square.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernel expressions such as rbf(gamma=0.5), rbf (its width is the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius]; or ``"precomputed"``, with matrices (n_kernels, n, n) in ``fit`` and (n_kernels, n_test, n_train) in ``predict``. Default:
        Gaussians and polynomials on all features and on each one if there are few features, else up to ten kernels on all features.
    p : float >= 2, default=2.0
        Norm over tasks: 2 gives all tasks the same kernel; larger values let each task weight the common kernels differently.
    q : float >= 1 and <= 2, default=1.0
        Norm over kernels: 1 selects few kernels, 2 gives equal weights.
    C : float > 0, default=1.0
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses over the rows of
        all tasks, as in scikit-learn's ``SVC`` and, for a target of standard deviation 1, ``SVR``.
    loss : {"auto", "hinge", "epsilon_insensitive", "squared"}, default='auto'
        Loss of a row: ``"hinge"`` for classes, ``"epsilon_insensitive"`` or ``"squared"`` for real targets. ``"auto"``: the first of these
        that suits the target.
    epsilon : float >= 0, default=0.1
        With ``"epsilon_insensitive"``: half-width of the tube without loss, in standard deviations of the target.
    solver : {"auto", "mirror"}, default='auto'
        ``"auto"``: a closed form gives the weights after every solve of the SVMs. ``"mirror"``: the nested mirror descent of the thesis.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that do not specify one; ``"trace"`` scales to trace n. Traces and means are taken over pairs of rows
        within tasks.
    tol : float > 0, default=0.001
        Stopping tolerance: gap between primal and dual value, relative to the primal value.
    max_iter : int >= 1, default=500
        Largest number of times the SVMs of all tasks are solved; a warning is issued if the fit ends at this limit.
    threshold : float >= 0 and <= 1, default=0.0001
        A kernel counts as selected if its weight exceeds this fraction of the largest weight.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where the Gram matrices within tasks are kept: ``"memory"``, ``"store"`` (at ``gram_store``), or ``"recompute"`` for nowhere.
        ``"auto"`` decides by their size.
    gram_store : str or None, default=None
        Path of a Gram store for the blocks of the Gram matrices within tasks; it is kept for further fits.
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
        ``(n_kernels,)`` weights gamma, with norm 1 in the ``q / (2 - q)`` norm.
    task_kernel_weights_
        ``(n_kernels, n_tasks)`` weights of the kernels in the SVM of each task, ``gamma_j / lambda_jt``.
    support_
        Indices of the selected kernels.
    objective_, dual_gap_, lower_bound_, upper_bound_
        Primal value, its distance to the dual value (an upper bound of the distance to the optimum), and both bounds of the optimum.
    n_iter_, converged_, stop_reason_, history_
        Number of solves of all SVMs, whether ``tol`` was reached, the reason for stopping, and one array per quantity over the iterations.
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
    >>> from gramplane import MultiTaskMKLRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1]
    >>> model = MultiTaskMKLRegressor(
    ...     ["linear[0]", "linear[1]", "rbf(gamma=0.5)"], p=4
    ... ).fit(X, y, task)
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
    """Choice of ``C``, ``p`` and ``q`` by cross-validation; every task has rows in all folds. All fits share the Gram matrices within
    tasks. The fits of one C start from the kernel weights, task shares and coefficients of the previous C.
    """

    _grids = (MACHINE_C, Grid("p", "ps"), Grid("q", "qs"))


class MultiTaskMKLClassifierCV(_MultiTaskMKLPath, MultiTaskMKLClassifier):
    """Classifiers for many tasks, which select their kernels jointly, with ``C``, ``p`` and ``q`` chosen by cross-validation.

    See :class:`MultiTaskMKLClassifier` for the problem, the other parameters and further attributes.

    Parameters
    ----------
    ps : list of float or None, default=None
        Values of ``p`` to compare. ``None``: ``p`` alone.
    qs : list of float or None, default=None
        Values of ``q`` to compare. ``None``: ``q`` alone.
    Cs : int or list of float, default=10
        Values of ``C`` to compare. A number means that many values, evenly spaced in the logarithm from 1/10 to 1000.
    cv : int, splitter, iterable or None, default=None
        Folds. A number means that many random folds, drawn from ``random_state`` as in ``tune`` and stratified by class or task. A
        scikit-learn splitter receives tasks as its groups. An iterable yields pairs of indices, training and test. ``None``: 5 folds, or
        fewer if a class or task has fewer rows.
    scoring : str, callable, list of str, dict or None, default=None
        Name of a scikit-learn scorer, or a callable ``(estimator, X, y)``. ``X`` holds the indices of the held-out rows, for which the
        methods of ``estimator`` return stored predictions. For several scores: a list of names, or a dict of names and callables. ``None``:
        accuracy, or R2. Rows count by their weights. For named scorers the second of two classes is the positive one. Probabilities are
        exact for a logistic loss; otherwise they are cross-calibrated on the held-out rows.
    refit : bool or str, default=True
        Fit all rows with the chosen parameters. With ``False`` there are scores but no model. With several scores, give the name of the
        one that decides; with ``True`` or ``False``, the first one decides.
    one_standard_error : bool, default=False
        Choose the simplest model within one standard error of the best score, instead of the best.
    n_jobs : int or None, default=None
        Number of processes that share the folds; -1 is one per processor. ``None`` is 1. The result is the same for any number.

    Attributes
    ----------
    C_, p_, q_
        Chosen parameters.
    Cs_, ps_, qs_
        Values compared; ``ps_`` and ``qs_`` only if they were given.
    best_params_, best_score_, best_index_
        Chosen parameters, their mean score, and their index in ``cv_results_``.
    cv_results_
        Arrays with one entry per combination of parameters, as in ``GridSearchCV``: ``params``, ``param_*``, ``split*_test_score``,
        ``mean_test_score``, ``std_test_score``, ``rank_test_score``. With several scores, their names replace ``score``. Classifiers also
        have ``mean_margin_loss``, which breaks ties of the score.
    n_splits_, scorer_
        Number of folds, and the scorer; with several scores, a dict of scorers.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import MultiTaskMKLClassifierCV
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1] > 0
    >>> model = MultiTaskMKLClassifierCV(
    ...     ["linear[0]", "linear[1]"], ps=[2, 4], Cs=[0.1, 1]
    ... ).fit(X, y, task)
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
    """Regressions for many tasks, which select their kernels jointly, with ``C``, ``p`` and ``q`` chosen by cross-validation.

    See :class:`MultiTaskMKLRegressor` for the problem, the other parameters and further attributes.

    Parameters
    ----------
    ps : list of float or None, default=None
        Values of ``p`` to compare. ``None``: ``p`` alone.
    qs : list of float or None, default=None
        Values of ``q`` to compare. ``None``: ``q`` alone.
    Cs : int or list of float, default=10
        Values of ``C`` to compare. A number means that many values, evenly spaced in the logarithm from 1/10 to 1000.
    cv : int, splitter, iterable or None, default=None
        Folds. A number means that many random folds, drawn from ``random_state`` as in ``tune`` and stratified by class or task. A
        scikit-learn splitter receives tasks as its groups. An iterable yields pairs of indices, training and test. ``None``: 5 folds, or
        fewer if a class or task has fewer rows.
    scoring : str, callable, list of str, dict or None, default=None
        Name of a scikit-learn scorer, or a callable ``(estimator, X, y)``. ``X`` holds the indices of the held-out rows, for which the
        methods of ``estimator`` return stored predictions. For several scores: a list of names, or a dict of names and callables. ``None``:
        accuracy, or R2. Rows count by their weights. For named scorers the second of two classes is the positive one. Probabilities are
        exact for a logistic loss; otherwise they are cross-calibrated on the held-out rows.
    refit : bool or str, default=True
        Fit all rows with the chosen parameters. With ``False`` there are scores but no model. With several scores, give the name of the
        one that decides; with ``True`` or ``False``, the first one decides.
    one_standard_error : bool, default=False
        Choose the simplest model within one standard error of the best score, instead of the best.
    n_jobs : int or None, default=None
        Number of processes that share the folds; -1 is one per processor. ``None`` is 1. The result is the same for any number.

    Attributes
    ----------
    C_, p_, q_
        Chosen parameters.
    Cs_, ps_, qs_
        Values compared; ``ps_`` and ``qs_`` only if they were given.
    best_params_, best_score_, best_index_
        Chosen parameters, their mean score, and their index in ``cv_results_``.
    cv_results_
        Arrays with one entry per combination of parameters, as in ``GridSearchCV``: ``params``, ``param_*``, ``split*_test_score``,
        ``mean_test_score``, ``std_test_score``, ``rank_test_score``. With several scores, their names replace ``score``. Classifiers also
        have ``mean_margin_loss``, which breaks ties of the score.
    n_splits_, scorer_
        Number of folds, and the scorer; with several scores, a dict of scorers.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import MultiTaskMKLRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(60, 3)), np.arange(60) % 3
    >>> y = X[:, 0] + 0.2 * task * X[:, 1]
    >>> model = MultiTaskMKLRegressorCV(
    ...     ["linear[0]", "linear[1]"], Cs=[1, 10]
    ... ).fit(X, y, task)
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
