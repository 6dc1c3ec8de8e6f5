"""MKLClassifier and MKLRegressor: support vector machines on a learnt combination of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ...estimators.base import Classifier, Regressor
from ...estimators.cv import MACHINE_C, CrossValidated, Grid
from ...estimators.inputs import Callbacks, Seed
from ...estimators.kernels import KernelEstimator, UserKernels
from ...models.kernel import KernelModel, is_selected
from .config import MKLConfig
from .method import MKL


class _MKL(KernelEstimator):
    """Base class of classifier and regressor."""

    _method = MKL()
    _takes_all_memory = True

    def _set_model(self, model: KernelModel) -> None:
        super()._set_model(model)
        self.kernel_weights_ = model.theta[0].copy() if len(model.theta) == 1 else model.theta.copy()
        threshold = MKLConfig.model_validate_json(model.params_json).threshold
        self.support_ = np.flatnonzero(np.any([is_selected(row, threshold) for row in model.theta], axis=0))
        self.support_vectors_, self.dual_coef_, self.intercept_ = model.support_ids, model.beta, model.intercepts
        self._set_bounds(model.figures)


class MKLClassifier(_MKL, Classifier):
    r"""Support vector classifier on a weighted sum of kernels, with learnt weights.

    .. math::

        \min_{\theta \in \Theta} \max_\alpha 1'\alpha - \frac{1}{2} (\alpha y)' \Bigl(\sum_q \theta_q K_q\Bigr) (\alpha y)
        \quad 0 \le \alpha \le C, \; y'\alpha = 0

    over a convex set of weights :math:`\Theta`. This is the problem of the hinge loss; other losses have another term in place of
    :math:`1'\alpha`. Several classes are fitted one-vs-rest, each with its own weights.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernel expressions such as rbf(gamma=0.5), rbf (its width is the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius]; or ``"precomputed"``, with a Gram store or matrices (n_kernels, n, n) in ``fit`` and (n_kernels, n_test, n_train) in
        ``predict``. Default for small data: 13 kernels on all features and 13 on each feature (ten Gaussian widths and three
        polynomial degrees); else up to ten kernels on all features, with widths around the median distance.
    constraint : {"elastic_net", "simplex", "l2", "lp", "l1_lp", "box"}, default='elastic_net'
        Constraint on the kernel weights theta >= 0: ``"elastic_net"``, ``"simplex"`` (v = 1), ``"l2"`` (v = 0), ``"lp"``, ``"l1_lp"``, or
        ``"box"``.
    v : float >= 0 and <= 1, default=0.5
        Elastic net: v ||theta||_1 + (1 - v) ||theta||_2^2 <= 1. v = 1 selects few kernels, v = 0 keeps all of them.
    p : float >= 1, default=2.0
        With ``constraint="lp"``: ||theta||_p <= 1. With ``constraint="l1_lp"``: v sum_q theta_q + (1 - v) sum_q theta_q^p <= 1.
    B : int >= 1, default=10
        With ``constraint="box"``: theta_q <= 1 and sum_q theta_q <= B, a Feature Generating Machine on kernels. B = 1 is the simplex.
    C : float > 0, default=1.0
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses, as in
        scikit-learn's ``SVC`` and, for a target of standard deviation 1, ``SVR``.
    loss : {"hinge", "squared_hinge", "logistic"}, default='hinge'
        Loss of a row with margin m = y f(x): ``"hinge"``, max(0, 1 - m); ``"squared_hinge"``, half its square; or ``"logistic"``,
        log(1 + exp(-m)), whose decision values are log odds.
    solver : {"auto", "level", "silp", "fgm", "simplemkl", "alternate", "uniform", "single"}, default='auto'
        ``"auto"``: second-order steps, or steps of the level method if they fail. ``"level"``, ``"silp"``, ``"fgm"`` (in the box),
        ``"simplemkl"`` (on the simplex), ``"alternate"``: solvers of these names. Baselines: ``"uniform"`` (equal weights) and
        ``"single"`` (the kernel with the highest score in 5-fold cross-validation).
    tau : float > 0 and < 1, default=0.3
        Position of the level between the lower and the upper bound.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that do not specify one: ``"trace"`` (trace n), ``"unit_trace"`` (trace 1), ``"multiplicative"``,
        ``"cosine"`` or ``"none"``.
    tol : float > 0, default=0.001
        Stopping tolerance: gap between the bounds, in units of max(1, upper bound).
    max_iter : int >= 1, default=200
        Largest number of weight vectors tried; a warning is issued if the fit ends at this limit.
    threshold : float >= 0 and <= 1, default=0.0001
        A kernel counts as selected if its weight exceeds this fraction of the largest weight.
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
        ``(n_kernels,)``; ``(n_classes, n_kernels)`` for more than two classes.
    support_
        Sorted indices of the selected kernels (for any class).
    support_vectors_, dual_coef_, intercept_
        Indices of the support vectors, their signed coefficients ``(n_machines, n_support)``, and ``(n_machines,)`` intercepts.
    lower_bound_, upper_bound_, objective_, dual_gap_
        Rigorous bounds of the optimum; the primal value (the upper bound) and its distance to the lower bound. All are summed over
        one-vs-rest models.
    n_iter_, converged_, stop_reason_, history_
        Number of iterations, whether ``tol`` was reached, the reason for stopping, and one array per quantity over the iterations.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(kernels=["rbf(gamma=0.5)", "linear"]).fit(X, y)
    >>> model.kernel_weights_.round(2).tolist()
    [[0.63, 0.61], [1.0, 0.0], [0.88, 0.28]]

    References
    ----------
    Yang, Xu, Ye, King, Lyu: Efficient Sparse Generalized Multiple Kernel Learning. IEEE Trans. Neural Networks 22 (2011).
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        constraint: Literal["elastic_net", "simplex", "l2", "lp", "l1_lp", "box"] = "elastic_net",
        v: float = 0.5,
        p: float = 2.0,
        B: int = 10,
        C: float = 1.0,
        loss: Literal["hinge", "squared_hinge", "logistic"] = "hinge",
        solver: Literal["auto", "level", "silp", "fgm", "simplemkl", "alternate", "uniform", "single"] = "auto",
        tau: float = 0.3,
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.001,
        max_iter: int = 200,
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
        self.constraint = constraint
        self.v = v
        self.p = p
        self.B = B
        self.C = C
        self.loss = loss
        self.solver = solver
        self.tau = tau
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


class MKLRegressor(_MKL, Regressor):
    r"""Support vector regression on a weighted sum of kernels, with learnt weights.

    The loss is :math:`C s \sum_i \max(0, |y_i - f(x_i)| - \epsilon s)` with s the standard deviation of the target, or
    :math:`C \sum_i (y_i - f(x_i))^2`; the weights lie in a convex set. The target is centred and scaled internally, so that C and epsilon
    have the same meaning in every unit. Coefficients and intercept are in the unit of the target, objective and bounds in its square.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernel expressions such as rbf(gamma=0.5), rbf (its width is the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius]; or ``"precomputed"``, with a Gram store or matrices (n_kernels, n, n) in ``fit`` and (n_kernels, n_test, n_train) in
        ``predict``. Default for small data: 13 kernels on all features and 13 on each feature (ten Gaussian widths and three
        polynomial degrees); else up to ten kernels on all features, with widths around the median distance.
    constraint : {"elastic_net", "simplex", "l2", "lp", "l1_lp", "box"}, default='elastic_net'
        Constraint on the kernel weights theta >= 0: ``"elastic_net"``, ``"simplex"`` (v = 1), ``"l2"`` (v = 0), ``"lp"``, ``"l1_lp"``, or
        ``"box"``.
    v : float >= 0 and <= 1, default=0.5
        Elastic net: v ||theta||_1 + (1 - v) ||theta||_2^2 <= 1. v = 1 selects few kernels, v = 0 keeps all of them.
    p : float >= 1, default=2.0
        With ``constraint="lp"``: ||theta||_p <= 1. With ``constraint="l1_lp"``: v sum_q theta_q + (1 - v) sum_q theta_q^p <= 1.
    B : int >= 1, default=10
        With ``constraint="box"``: theta_q <= 1 and sum_q theta_q <= B, a Feature Generating Machine on kernels. B = 1 is the simplex.
    C : float > 0, default=1.0
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses, as in
        scikit-learn's ``SVC`` and, for a target of standard deviation 1, ``SVR``.
    loss : {"epsilon_insensitive", "squared"}, default='epsilon_insensitive'
        Loss of a row: ``"epsilon_insensitive"``, zero inside the tube of half-width ``epsilon``; or ``"squared"``, the squared residual.
    solver : {"auto", "level", "silp", "fgm", "simplemkl", "alternate", "uniform", "single"}, default='auto'
        ``"auto"``: second-order steps, or steps of the level method if they fail. ``"level"``, ``"silp"``, ``"fgm"`` (in the box),
        ``"simplemkl"`` (on the simplex), ``"alternate"``: solvers of these names. Baselines: ``"uniform"`` (equal weights) and
        ``"single"`` (the kernel with the highest score in 5-fold cross-validation).
    tau : float > 0 and < 1, default=0.3
        Position of the level between the lower and the upper bound.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that do not specify one: ``"trace"`` (trace n), ``"unit_trace"`` (trace 1), ``"multiplicative"``,
        ``"cosine"`` or ``"none"``.
    tol : float > 0, default=0.001
        Stopping tolerance: gap between the bounds, in units of max(1, upper bound).
    max_iter : int >= 1, default=200
        Largest number of weight vectors tried; a warning is issued if the fit ends at this limit.
    epsilon : float >= 0, default=0.1
        For regression: half-width of the tube without loss, in standard deviations of the target.
    threshold : float >= 0 and <= 1, default=0.0001
        A kernel counts as selected if its weight exceeds this fraction of the largest weight.
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
        ``(n_kernels,)``.
    support_
        Sorted indices of the selected kernels.
    support_vectors_, dual_coef_, intercept_
        Indices of the support vectors, their signed coefficients ``(1, n_support)``, and the intercept ``(1,)``.
    lower_bound_, upper_bound_, objective_, dual_gap_
        Rigorous bounds of the optimum; the primal value (the upper bound) and its distance to the lower bound.
    n_iter_, converged_, stop_reason_, history_
        Number of iterations, whether ``tol`` was reached, the reason for stopping, and one array per quantity over the iterations.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from gramplane import MKLRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MKLRegressor(kernels=["rbf(gamma=1)", "linear"], C=100).fit(X, y)
    >>> model.kernel_weights_.round(2).tolist()
    [0.94, 0.14]

    References
    ----------
    Yang, Xu, Ye, King, Lyu: Efficient Sparse Generalized Multiple Kernel Learning. IEEE Trans. Neural Networks 22 (2011).
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        constraint: Literal["elastic_net", "simplex", "l2", "lp", "l1_lp", "box"] = "elastic_net",
        v: float = 0.5,
        p: float = 2.0,
        B: int = 10,
        C: float = 1.0,
        loss: Literal["epsilon_insensitive", "squared"] = "epsilon_insensitive",
        solver: Literal["auto", "level", "silp", "fgm", "simplemkl", "alternate", "uniform", "single"] = "auto",
        tau: float = 0.3,
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.001,
        max_iter: int = 200,
        epsilon: float = 0.1,
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
        self.constraint = constraint
        self.v = v
        self.p = p
        self.B = B
        self.C = C
        self.loss = loss
        self.solver = solver
        self.tau = tau
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.epsilon = epsilon
        self.threshold = threshold
        self.grams = grams
        self.gram_store = gram_store
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class _MKLPath(CrossValidated):
    """Choice of ``C`` and ``v`` by cross-validation. All fits share the Gram matrices. The folds of one C share the passes over the
    matrices, and start from the weights and coefficients of the previous C.
    """

    _grids = (MACHINE_C, Grid("v", "vs", descending=True))


class MKLClassifierCV(_MKLPath, MKLClassifier):
    """Support vector classifier on a weighted sum of kernels, with ``C`` and ``v`` chosen by cross-validation.

    See :class:`MKLClassifier` for the problem, the other parameters and further attributes.

    Parameters
    ----------
    vs : list of float or None, default=None
        Values of ``v`` to compare. ``None``: ``v`` alone.
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
    C_, v_
        Chosen parameters.
    Cs_, vs_
        Values compared; ``vs_`` only if they were given.
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
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import MKLClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifierCV(
    ...     kernels=["rbf(gamma=0.5)", "linear"], Cs=[0.1, 1, 10], vs=[0.5, 1]
    ... ).fit(X, y)
    >>> model.best_params_, round(model.best_score_, 2)
    ({'C': 1.0, 'v': 1.0}, 0.97)
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        constraint: Literal["elastic_net", "simplex", "l2", "lp", "l1_lp", "box"] = "elastic_net",
        v: float = 0.5,
        vs: int | Sequence[float] | None = None,
        p: float = 2.0,
        B: int = 10,
        Cs: int | Sequence[float] | None = 10,
        loss: Literal["hinge", "squared_hinge", "logistic"] = "hinge",
        solver: Literal["auto", "level", "silp", "fgm", "simplemkl", "alternate", "uniform", "single"] = "auto",
        tau: float = 0.3,
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.001,
        max_iter: int = 200,
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
        self.constraint = constraint
        self.v = v
        self.vs = vs
        self.p = p
        self.B = B
        self.Cs = Cs
        self.loss = loss
        self.solver = solver
        self.tau = tau
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


class MKLRegressorCV(_MKLPath, MKLRegressor):
    """Support vector regression on a weighted sum of kernels, with ``C`` and ``v`` chosen by cross-validation.

    See :class:`MKLRegressor` for the problem, the other parameters and further attributes.

    Parameters
    ----------
    vs : list of float or None, default=None
        Values of ``v`` to compare. ``None``: ``v`` alone.
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
    C_, v_
        Chosen parameters.
    Cs_, vs_
        Values compared; ``vs_`` only if they were given.
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
    >>> from sklearn.datasets import load_diabetes
    >>> from gramplane import MKLRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MKLRegressorCV(
    ...     kernels=["rbf(gamma=1)", "linear"], Cs=[1, 10, 100], cv=3
    ... ).fit(X, y)
    >>> model.best_params_, round(model.best_score_, 2)
    ({'C': 1}, 0.49)
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        constraint: Literal["elastic_net", "simplex", "l2", "lp", "l1_lp", "box"] = "elastic_net",
        v: float = 0.5,
        vs: int | Sequence[float] | None = None,
        p: float = 2.0,
        B: int = 10,
        Cs: int | Sequence[float] | None = 10,
        loss: Literal["epsilon_insensitive", "squared"] = "epsilon_insensitive",
        solver: Literal["auto", "level", "silp", "fgm", "simplemkl", "alternate", "uniform", "single"] = "auto",
        tau: float = 0.3,
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.001,
        max_iter: int = 200,
        epsilon: float = 0.1,
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
        self.constraint = constraint
        self.v = v
        self.vs = vs
        self.p = p
        self.B = B
        self.Cs = Cs
        self.loss = loss
        self.solver = solver
        self.tau = tau
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.epsilon = epsilon
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
