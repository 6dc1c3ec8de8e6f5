"""TwoLayerMKLClassifier: a support vector machine on the exponential of a learnt combination of kernels."""

from __future__ import annotations

import json
from typing import Any, Literal

from ....kernels.grams.spec import KernelSpec
from ....kernels.svm.generalization import generalization_bound  # noqa: F401 (public)
from ...estimators.base import Classifier
from ...estimators.inputs import Callbacks, Seed
from ...estimators.kernels import KernelEstimator, UserKernels
from ...models.kernel import KernelModel
from .method import TwoLayer


class TwoLayerMKLClassifier(KernelEstimator, Classifier):
    r"""Support vector classifier on ``exp(sum_t mu_t k_t(x, z))``, weights mu >= 0 learnt with it.

    Minimises over the machine and the weights

    .. math::

        \tfrac12 \|f\|^2_{K_2(\mu)} + C \sum_i \max(0, 1 - y_i (f(x_i) + b)) + \lambda \sum_t \mu_t,
        \qquad K_2(\mu) = \exp\Big(\sum_t \mu_t K_t\Big) \text{ entry by entry}.

    The problem is not convex in mu: the result is a stationary point, the best of ``n_restarts`` starts. Several classes one-vs-rest, each
    with weights of its own.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default=None
        Kernels as short texts like rbf(gamma=0.5), rbf (its width the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius], or precomputed: matrices (n_kernels, n, n) at fit and (n_kernels, n_test, n_train) at predict, or a Gram store; default:
        kernel_grid, ten Gaussian widths and three polynomial degrees on all features and on each one, while it is small, else up to ten
        kernels on all features, widths around the median distance.
    C : float > 0, default=10.0
        Loss weight, C * sum of losses, as scikit-learn's SVC.
    infinite : bool, default=False
        Add Gaussian kernels on all features, one per machine and round, while one helps.
    penalty : float > 0 or None, default=None
        Weight of the sum of the kernel weights; default: a tenth of the number of rows with a cost, n/10, and 0.1 with
        normalize=unit_trace, which is the same problem. The thesis' problem (unit trace, penalty 1) has ten times that, and a C chosen with
        it: at C = 1 it leaves no kernel a weight where classes are hard to separate, which a warning tells. A small penalty lets the
        machine memorise the training rows.
    rule : {"descent", "thesis"}, default='descent'
        infinite: when a Gaussian helps. descent: the objective falls towards it; thesis: it does better alone than the combination.
    max_new_kernels : int >= 0, default=10
        infinite: Gaussians added at most.
    gamma_range : tuple or None, default=None
        infinite: least and greatest gamma of an added Gaussian; default: inverse quantiles (0.95, 0.05) of the squared distances between
        different rows. A wide range lets the machine memorise.
    n_restarts : int >= 1, default=1
        Random starts; the one with the smallest objective is kept, before kernels are added.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}, default='trace'
        Normalisation of kernels that leave it open: trace (mean diagonal 1), unit_trace (the thesis'; entries of size 1/n need weights of
        size n), multiplicative, cosine, none.
    tol : float > 0, default=0.001
        Largest entry of the projected gradient, in units of the penalty, at which the fit ends.
    decrease_tol : float >= 0, default=1e-05
        The fit ends, too, when two steps in a row lower the objective by less than this share.
    max_iter : int >= 1, default=200
        Steps of the kernel weights at most, for one set of kernels; a warning tells when they end the fit.
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
        ``(n_kernels,)`` weights mu, or ``(n_classes, n_kernels)`` for more than two classes.
    kernels_
        All kernels, added ones last (names of given matrices).
    support_
        Sorted indices of the kernels with a weight (for any class).
    support_vectors_, dual_coef_, intercept_
        Training rows with a coefficient, their signed coefficients ``(n_machines, n_support)``, and ``(n_machines,)`` intercepts.
    objective_, dual_gap_
        Primal value, summed over machines, and NaN: without convexity nothing certifies the distance to the best weights.
    machine_gap_
        Duality gap of the machines at these weights: how exactly they were solved.
    violation_, penalty_
        Largest entry of the projected gradient, in units of ``penalty_``: 0 at a stationary point; and the lambda of the fit.
    n_iter_, converged_, stop_reason_, history_
        Iterations, whether a tolerance ended the fit, what ended it, and one array per figure over the iterations.
    encoding_ : Pipeline
        Of a frame with columns that are not all numbers, and of a store made of a table: scikit-learn's encoders, fitted, from the
        columns to the features; else not there.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import TwoLayerMKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TwoLayerMKLClassifier(["rbf(gamma=0.5)", "linear"], C=10).fit(X[50:], y[50:])
    >>> model.kernel_weights_.round(2).tolist()
    [1.68, 0.0]

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 4.
    """

    _method = TwoLayer()
    _takes_all_memory = True

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
