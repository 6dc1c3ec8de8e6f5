"""TwoLayerMKLClassifier and TwoLayerMKLRegressor: support vector machines on the exponential of a learnt combination of kernels."""

from __future__ import annotations

import json
from typing import Any, Literal

from ....kernels.grams.spec import KernelSpec
from ....kernels.svm.generalization import generalization_bound  # noqa: F401 (public)
from ...estimators.base import Classifier, Regressor
from ...estimators.inputs import Callbacks, Seed
from ...estimators.kernels import KernelEstimator, UserKernels
from ...models.kernel import KernelModel
from .method import TwoLayer


class _TwoLayer(KernelEstimator):
    """Base class of classifier and regressor."""

    _method = TwoLayer()
    _takes_all_memory = True

    def _set_model(self, model: KernelModel) -> None:
        super()._set_model(model)
        figures, records = model.figures, json.loads(model.kernels_json)
        self.kernel_weights_ = model.theta[0].copy() if len(model.theta) == 1 else model.theta.copy()
        self.kernels_ = [
            KernelSpec.from_json(record) if record["name"] != "precomputed" else record["label"] or f"precomputed {record['position']}"
            for record in records
        ]
        self.support_, self.intercept_ = model.used, model.intercepts
        self.support_vectors_, self.dual_coef_ = model.support_ids, model.beta
        self.objective_, self.dual_gap_ = figures["objective"], float("nan")
        self.machine_gap_, self.violation_, self.penalty_ = figures["machine_gap"], figures["violation"], figures["penalty"]


class TwoLayerMKLClassifier(_TwoLayer, Classifier):
    r"""Support vector classifier on the kernel ``exp(sum_t mu_t k_t(x, z))``, with learnt weights mu >= 0.

    Minimises, over the function f, the intercept b and the weights,

    .. math::

        \tfrac12 \|f\|^2_{K_2(\mu)} + C \sum_i \max(0, 1 - y_i (f(x_i) + b)) + \lambda \sum_t \mu_t,
        \qquad K_2(\mu) = \exp\Big(\sum_t \mu_t K_t\Big) \text{ entry by entry}.

    The problem is not convex in mu. The result is a stationary point, the best of ``n_restarts`` starts. Several classes are fitted
    one-vs-rest, each with its own weights.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernel expressions such as rbf(gamma=0.5), rbf (its width is the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius]; or ``"precomputed"``, with a Gram store or matrices (n_kernels, n, n) in ``fit`` and (n_kernels, n_test, n_train) in
        ``predict``. Default for small data: 13 kernels on all features and 13 on each feature (ten Gaussian widths and three
        polynomial degrees); else up to ten kernels on all features, with widths around the median distance.
    C : float > 0, default=10.0
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses, as in
        scikit-learn's ``SVC``.
    infinite : bool, default=False
        Add Gaussian kernels on all features as long as one of them helps: one per round for each one-vs-rest model.
    penalty : float > 0 or None, default=None
        Weight of the sum of the kernel weights. Default: n/10, where n is the number of rows with a loss; 0.1 with
        ``normalize="unit_trace"``, which is the same problem. The thesis (unit trace, penalty 1) uses a penalty ten times as large and
        tunes ``C`` with it. At C = 1, that penalty sets all kernel weights to zero if classes are hard to separate; a warning reports this.
        A small penalty lets the model memorise the training rows.
    rule : {"descent", "thesis"}, default='descent'
        With ``infinite``: criterion for adding a Gaussian. ``"descent"``: the objective decreases as the weight of the Gaussian grows from
        zero. ``"thesis"``: the Gaussian alone does better than the combination.
    max_new_kernels : int >= 0, default=10
        With ``infinite``: largest number of Gaussians added.
    gamma_range : tuple or None, default=None
        With ``infinite``: smallest and largest gamma of an added Gaussian. Default: inverses of the quantiles (0.95, 0.05) of the squared
        distances between different rows. A wide range lets the model memorise the training rows.
    n_restarts : int >= 1, default=1
        Number of random starts; the one with the smallest objective is kept before kernels are added.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that do not specify one. ``"trace"``: mean diagonal 1. ``"unit_trace"``: as in the thesis; entries of size
        1/n need weights of size n. Or ``"multiplicative"``, ``"cosine"``, ``"none"``.
    tol : float > 0, default=0.001
        Stopping tolerance: largest entry of the projected gradient, in units of the penalty.
    decrease_tol : float >= 0, default=1e-05
        The fit also ends when two steps in a row lower the objective by less than this fraction of it.
    max_iter : int >= 1, default=200
        Largest number of steps of the kernel weights, for one set of kernels; a warning is issued if the fit ends at this limit.
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
        ``(n_kernels,)`` weights mu; ``(n_classes, n_kernels)`` for more than two classes.
    kernels_
        All kernels, added ones last; for precomputed matrices, their names.
    support_
        Sorted indices of the kernels with non-zero weight (for any class).
    support_vectors_, dual_coef_, intercept_
        Indices of the support vectors, their signed coefficients ``(n_machines, n_support)``, and ``(n_machines,)`` intercepts.
    objective_, dual_gap_
        Primal value, summed over one-vs-rest models; and NaN, because the distance to the best weights of a non-convex problem cannot be
        certified.
    machine_gap_
        Duality gap of the SVMs at these weights; it measures how exactly the SVMs were solved.
    violation_, penalty_
        Largest entry of the projected gradient in units of ``penalty_`` (0 at a stationary point), and the penalty lambda of the fit.
    n_iter_, converged_, stop_reason_, history_
        Number of iterations, whether a tolerance was reached, the reason for stopping, and one array per quantity over the iterations.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import TwoLayerMKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TwoLayerMKLClassifier(["rbf(gamma=0.5)", "linear"], C=10).fit(
    ...     X[50:], y[50:]
    ... )
    >>> model.kernel_weights_.round(2).tolist()
    [1.68, 0.0]

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 4.
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        C: float = 10.0,
        infinite: bool = False,
        penalty: float | None = None,
        rule: Literal["descent", "thesis"] = "descent",
        max_new_kernels: int = 10,
        gamma_range: tuple[float, float] | None = None,
        n_restarts: int = 1,
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.001,
        decrease_tol: float = 1e-05,
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
        self.C = C
        self.infinite = infinite
        self.penalty = penalty
        self.rule = rule
        self.max_new_kernels = max_new_kernels
        self.gamma_range = gamma_range
        self.n_restarts = n_restarts
        self.normalize = normalize
        self.tol = tol
        self.decrease_tol = decrease_tol
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


class TwoLayerMKLRegressor(_TwoLayer, Regressor):
    r"""Support vector regression on the kernel ``exp(sum_t mu_t k_t(x, z))``, with learnt weights mu >= 0.

    Minimises, over the function f, the intercept b and the weights,

    .. math::

        \tfrac12 \|f\|^2_{K_2(\mu)} + C \sum_i \max(0, |y_i - f(x_i) - b| - \epsilon) + \lambda \sum_t \mu_t,
        \qquad K_2(\mu) = \exp\Big(\sum_t \mu_t K_t\Big) \text{ entry by entry}.

    The problem is not convex in mu. The result is a stationary point, the best of ``n_restarts`` starts.

    The target is centred and scaled internally: ``C``, ``epsilon`` and ``penalty`` refer to a target of standard deviation 1, whatever its
    unit. Coefficients and intercepts are in the unit of the target, objective and gaps in its square.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernel expressions such as rbf(gamma=0.5), rbf (its width is the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius]; or ``"precomputed"``, with a Gram store or matrices (n_kernels, n, n) in ``fit`` and (n_kernels, n_test, n_train) in
        ``predict``. Default for small data: 13 kernels on all features and 13 on each feature (ten Gaussian widths and three
        polynomial degrees); else up to ten kernels on all features, with widths around the median distance.
    C : float > 0, default=10.0
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses, as in
        scikit-learn's ``SVR`` for a target of standard deviation 1.
    epsilon : float >= 0, default=0.1
        Half-width of the tube without loss, in standard deviations of the target.
    infinite : bool, default=False
        Add Gaussian kernels on all features as long as one of them helps: one per round.
    penalty : float > 0 or None, default=None
        Weight of the sum of the kernel weights. Default: n/10, where n is the number of rows with a loss; 0.1 with
        ``normalize="unit_trace"``, which is the same problem. The thesis (unit trace, penalty 1) uses a penalty ten times as large and
        tunes ``C`` with it. A large penalty sets all kernel weights to zero if the target is hard to predict; a warning reports this. A
        small penalty lets the model memorise the training rows.
    rule : {"descent", "thesis"}, default='descent'
        With ``infinite``: criterion for adding a Gaussian. ``"descent"``: the objective decreases as the weight of the Gaussian grows from
        zero. ``"thesis"``: the Gaussian alone does better than the combination.
    max_new_kernels : int >= 0, default=10
        With ``infinite``: largest number of Gaussians added.
    gamma_range : tuple or None, default=None
        With ``infinite``: smallest and largest gamma of an added Gaussian. Default: inverses of the quantiles (0.95, 0.05) of the squared
        distances between different rows. A wide range lets the model memorise the training rows.
    n_restarts : int >= 1, default=1
        Number of random starts; the one with the smallest objective is kept before kernels are added.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that do not specify one. ``"trace"``: mean diagonal 1. ``"unit_trace"``: as in the thesis; entries of size
        1/n need weights of size n. Or ``"multiplicative"``, ``"cosine"``, ``"none"``.
    tol : float > 0, default=0.001
        Stopping tolerance: largest entry of the projected gradient, in units of the penalty.
    decrease_tol : float >= 0, default=1e-05
        The fit also ends when two steps in a row lower the objective by less than this fraction of it.
    max_iter : int >= 1, default=200
        Largest number of steps of the kernel weights, for one set of kernels; a warning is issued if the fit ends at this limit.
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
        ``(n_kernels,)`` weights mu.
    kernels_
        All kernels, added ones last; for precomputed matrices, their names.
    support_
        Sorted indices of the kernels with non-zero weight.
    support_vectors_, dual_coef_, intercept_
        Indices of the support vectors, their signed coefficients ``(1, n_support)``, and the intercept ``(1,)``.
    objective_, dual_gap_
        Primal value; and NaN, because the distance to the best weights of a non-convex problem cannot be
        certified.
    machine_gap_
        Duality gap of the SVM at these weights; it measures how exactly the SVM was solved.
    violation_, penalty_
        Largest entry of the projected gradient in units of ``penalty_`` (0 at a stationary point), and the penalty lambda of the fit.
    n_iter_, converged_, stop_reason_, history_
        Number of iterations, whether a tolerance was reached, the reason for stopping, and one array per quantity over the iterations.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import TwoLayerMKLRegressor
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> y = 10.0 * X[:, 0] * X[:, 1]
    >>> model = TwoLayerMKLRegressor(["rbf(gamma=0.5)", "linear"]).fit(X, y)
    >>> round(model.score(X, y), 1)
    1.0

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 4.
    """

    def __init__(
        self,
        kernels: UserKernels = None,
        C: float = 10.0,
        epsilon: float = 0.1,
        infinite: bool = False,
        penalty: float | None = None,
        rule: Literal["descent", "thesis"] = "descent",
        max_new_kernels: int = 10,
        gamma_range: tuple[float, float] | None = None,
        n_restarts: int = 1,
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine"] = "trace",
        tol: float = 0.001,
        decrease_tol: float = 1e-05,
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
        self.C = C
        self.epsilon = epsilon
        self.infinite = infinite
        self.penalty = penalty
        self.rule = rule
        self.max_new_kernels = max_new_kernels
        self.gamma_range = gamma_range
        self.n_restarts = n_restarts
        self.normalize = normalize
        self.tol = tol
        self.decrease_tol = decrease_tol
        self.max_iter = max_iter
        self.grams = grams
        self.gram_store = gram_store
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
