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
    """What both estimators share."""

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
    r"""Support vector classifier on a weighted sum of kernels, weights learnt with it.

    .. math::

        \min_{\theta \in \Theta} \max_\alpha 1'\alpha - \frac{1}{2} (\alpha y)' \Bigl(\sum_q \theta_q K_q\Bigr) (\alpha y)
        \quad 0 \le \alpha \le C, \; y'\alpha = 0

    over a convex set of weights :math:`\Theta`; several classes one-vs-rest, each with weights of its own.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernels as short texts like rbf(gamma=0.5), rbf (its width the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius], or precomputed: matrices (n_kernels, n, n) at fit and (n_kernels, n_test, n_train) at predict, or a Gram store; default:
        kernel_grid, ten Gaussian widths and three polynomial degrees on all features and on each one, while it is small, else up to ten
        kernels on all features, widths around the median distance.
    constraint : {"elastic_net", "simplex", "l2", "lp"}, default='elastic_net'
        Set of the kernel weights theta >= 0: elastic_net, simplex (v = 1), l2 (v = 0), lp.
    v : float >= 0 and <= 1, default=0.5
        Elastic net: v ||theta||_1 + (1 - v) ||theta||_2^2 <= 1; v = 1 gives few kernels, v = 0 all of them.
    p : float >= 1, default=2.0
        lp: ||theta||_p <= 1.
    C : float > 0, default=1.0
        Loss weight, C * sum of losses, as scikit-learn's SVC and, on a target of standard deviation one, SVR.
    solver : {"auto", "level", "silp", "simplemkl", "alternate", "uniform", "single"}, default='auto'
        auto: second-order steps, the level method's where they fail; level; silp; simplemkl (on the simplex); alternate; baselines: uniform
        (equal weights), single (the kernel of highest score in 5-fold cross-validation).
    tau : float > 0 and < 1, default=0.3
        Height of the level between the bounds.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that leave it open: trace (trace n), unit_trace (the thesis'), multiplicative, cosine, none.
    tol : float > 0, default=0.001
        Gap between the bounds at which the fit ends, in units of max(1, upper bound).
    max_iter : int >= 1, default=200
        Weight vectors tried at most; a warning tells when they end the fit.
    threshold : float >= 0 and <= 1, default=0.0001
        A kernel counts as selected above this share of the largest weight.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where Gram matrices lie; auto decides from sizes.
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
        ``(n_kernels,)``, or ``(n_classes, n_kernels)`` for more than two classes.
    support_
        Sorted indices of the selected kernels (of any class).
    support_vectors_, dual_coef_, intercept_
        Training rows with a coefficient, their signed coefficients ``(n_machines, n_support)``, and ``(n_machines,)`` intercepts.
    lower_bound_, upper_bound_, objective_, dual_gap_
        Rigorous bounds of the optimum, sums over machines; the primal value (the upper bound) and its distance to the lower bound.
    n_iter_, converged_, stop_reason_, history_
        Iterations, whether ``tol`` was reached, what ended it, and one array per figure over the iterations.
    encoding_ : Pipeline
        Of a frame with columns that are not all numbers, and of a store made of a table: scikit-learn's encoders, fitted, from the
        columns to the features; else not there.

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
        constraint: Literal["elastic_net", "simplex", "l2", "lp"] = "elastic_net",
        v: float = 0.5,
        p: float = 2.0,
        C: float = 1.0,
        solver: Literal["auto", "level", "silp", "simplemkl", "alternate", "uniform", "single"] = "auto",
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
        self.C = C
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
    r"""Support vector regression on a weighted sum of kernels, weights learnt with it.

    The loss is :math:`C s \sum_i \max(0, |y_i - f(x_i)| - \epsilon s)`, s the standard deviation of the target, the weights are those of a
    convex set. The target is centred and scaled inside, so that C and epsilon mean the same in every unit; coefficients and
    intercept are in the unit of the target, objective and bounds in its square.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernels as short texts like rbf(gamma=0.5), rbf (its width the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius], or precomputed: matrices (n_kernels, n, n) at fit and (n_kernels, n_test, n_train) at predict, or a Gram store; default:
        kernel_grid, ten Gaussian widths and three polynomial degrees on all features and on each one, while it is small, else up to ten
        kernels on all features, widths around the median distance.
    constraint : {"elastic_net", "simplex", "l2", "lp"}, default='elastic_net'
        Set of the kernel weights theta >= 0: elastic_net, simplex (v = 1), l2 (v = 0), lp.
    v : float >= 0 and <= 1, default=0.5
        Elastic net: v ||theta||_1 + (1 - v) ||theta||_2^2 <= 1; v = 1 gives few kernels, v = 0 all of them.
    p : float >= 1, default=2.0
        lp: ||theta||_p <= 1.
    C : float > 0, default=1.0
        Loss weight, C * sum of losses, as scikit-learn's SVC and, on a target of standard deviation one, SVR.
    solver : {"auto", "level", "silp", "simplemkl", "alternate", "uniform", "single"}, default='auto'
        auto: second-order steps, the level method's where they fail; level; silp; simplemkl (on the simplex); alternate; baselines: uniform
        (equal weights), single (the kernel of highest score in 5-fold cross-validation).
    tau : float > 0 and < 1, default=0.3
        Height of the level between the bounds.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that leave it open: trace (trace n), unit_trace (the thesis'), multiplicative, cosine, none.
    tol : float > 0, default=0.001
        Gap between the bounds at which the fit ends, in units of max(1, upper bound).
    max_iter : int >= 1, default=200
        Weight vectors tried at most; a warning tells when they end the fit.
    epsilon : float >= 0, default=0.1
        regression: half width of the tube, in standard deviations of the target.
    threshold : float >= 0 and <= 1, default=0.0001
        A kernel counts as selected above this share of the largest weight.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where Gram matrices lie; auto decides from sizes.
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
        ``(n_kernels,)``, or ``(n_classes, n_kernels)`` for more than two classes.
    support_
        Sorted indices of the selected kernels (of any class).
    support_vectors_, dual_coef_, intercept_
        Training rows with a coefficient, their signed coefficients ``(n_machines, n_support)``, and ``(n_machines,)`` intercepts.
    lower_bound_, upper_bound_, objective_, dual_gap_
        Rigorous bounds of the optimum, sums over machines; the primal value (the upper bound) and its distance to the lower bound.
    n_iter_, converged_, stop_reason_, history_
        Iterations, whether ``tol`` was reached, what ended it, and one array per figure over the iterations.
    encoding_ : Pipeline
        Of a frame with columns that are not all numbers, and of a store made of a table: scikit-learn's encoders, fitted, from the
        columns to the features; else not there.

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
        constraint: Literal["elastic_net", "simplex", "l2", "lp"] = "elastic_net",
        v: float = 0.5,
        p: float = 2.0,
        C: float = 1.0,
        solver: Literal["auto", "level", "silp", "simplemkl", "alternate", "uniform", "single"] = "auto",
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
        self.C = C
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
    """Chooses ``C`` and ``v`` by cross-validation; all fits share the Gram matrices, and the folds of a C, which start from the weights and
    coefficients of the C before it, the passes over them.
    """

    _grids = (MACHINE_C, Grid("v", "vs", descending=True))


class MKLClassifierCV(_MKLPath, MKLClassifier):
    """Support vector classifier on a weighted sum of kernels, its ``C`` and ``v`` chosen by cross-validation.

    The problem, the parameters that are not explained here and further attributes are those of :class:`MKLClassifier`.

    Parameters
    ----------
    vs : list of float or None, default=None
        Values of v to compare; ``None``: ``v`` alone.
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
    C_, v_
        Parameters chosen.
    Cs_, vs_
        Values that were compared, ``vs_`` where they were given.
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
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import MKLClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifierCV(kernels=["rbf(gamma=0.5)", "linear"], Cs=[0.1, 1, 10], vs=[0.5, 1]).fit(X, y)
    >>> model.best_params_, round(model.best_score_, 2)
    ({'C': 1.0, 'v': 1.0}, 0.97)
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        constraint: Literal["elastic_net", "simplex", "l2", "lp"] = "elastic_net",
        v: float = 0.5,
        vs: int | Sequence[float] | None = None,
        p: float = 2.0,
        Cs: int | Sequence[float] | None = 10,
        solver: Literal["auto", "level", "silp", "simplemkl", "alternate", "uniform", "single"] = "auto",
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
        self.Cs = Cs
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
    """Support vector regression on a weighted sum of kernels, its ``C`` and ``v`` chosen by cross-validation.

    The problem, the parameters that are not explained here and further attributes are those of :class:`MKLRegressor`.

    Parameters
    ----------
    vs : list of float or None, default=None
        Values of v to compare; ``None``: ``v`` alone.
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
    C_, v_
        Parameters chosen.
    Cs_, vs_
        Values that were compared, ``vs_`` where they were given.
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
    >>> from sklearn.datasets import load_diabetes
    >>> from gramplane import MKLRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MKLRegressorCV(kernels=["rbf(gamma=1)", "linear"], Cs=[1, 10, 100], cv=3).fit(X, y)
    >>> model.best_params_, round(model.best_score_, 2)
    ({'C': 1}, 0.49)
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        constraint: Literal["elastic_net", "simplex", "l2", "lp"] = "elastic_net",
        v: float = 0.5,
        vs: int | Sequence[float] | None = None,
        p: float = 2.0,
        Cs: int | Sequence[float] | None = 10,
        solver: Literal["auto", "level", "silp", "simplemkl", "alternate", "uniform", "single"] = "auto",
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
        self.Cs = Cs
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
