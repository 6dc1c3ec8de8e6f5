"""MKLClassifier and MKLRegressor: support vector machines on a learnt combination of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from ....cluster import machine_memory
from ...estimators.base import Predicting
from ...estimators.kernels import CLASS_WEIGHT, KernelClassifier, KernelEstimator, documented
from ...models.kernel import KernelModel, selected
from . import method as gmkl_run
from .config import MKLConfig

_PARAMETERS = """

    Parameters
    ----------
    kernels
        List of kernels: :class:`KernelSpec`, short texts like ``"rbf(gamma=0.5)"``, ``"poly(degree=2)[3,7:9]"``, importable functions; or
        ``"precomputed"``: then X is ``(n_kernels, n, n)`` at fit and ``(n_kernels, n_test, n_train)`` at predict, or a Gram store. Default:
        ``kernel_grid``, ten Gaussian widths and three polynomial degrees on all features and on each single one.
    constraint
        Set of the kernel weights theta >= 0: ``"elastic_net"`` (``v ||theta||_1 + (1 - v) ||theta||_2^2 <= 1``), ``"simplex"`` (v = 1),
        ``"l2"`` (v = 0), ``"lp"`` (``||theta||_p <= 1``).
    v, p
        Shape of the elastic net and of the lp ball. v = 1 gives few kernels, v = 0 all of them.
    C
        Loss weight, ``C * sum of losses``, the same as scikit-learn's ``SVC`` and ``SVR``.
    solver
        ``"auto"`` (second-order steps, the level method's where they fail), ``"level"``, ``"silp"``, ``"simplemkl"`` (on the simplex),
        ``"alternate"``; baselines: ``"uniform"`` (equal weights), ``"single"`` (the kernel of highest score in 5-fold cross-validation).
    tau
        Height of the level between the bounds.
    normalize
        For kernels that leave it open: ``"trace"`` (trace n), ``"unit_trace"`` (the thesis'), ``"multiplicative"``, ``"cosine"``,
        ``"none"``.
    tol
        Gap between the bounds at which the fit ends, in units of the upper bound (of one if that is smaller).
    max_iter
        Weight vectors tried at most; a warning tells when it ends the fit.
    threshold
        A kernel counts as selected above this share of the largest weight.
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
    kernel_weights_
        ``(n_kernels,)``, or ``(n_classes, n_kernels)`` for more than two classes.
    support_
        Sorted indices of the selected kernels (of any class).
    support_vectors_
        Training rows with a coefficient.
    dual_coef_
        ``(n_machines, n_support)`` signed coefficients of these rows.
    intercept_
        ``(n_machines,)``.
    lower_bound_, upper_bound_
        Rigorous bounds of the optimum; sums over machines.
    objective_, dual_gap_
        Primal value (the upper bound) and its distance to the lower bound.
    n_iter_, converged_, history_
        Iterations, whether ``tol`` was reached, and one array per figure over the iterations.

    References
    ----------
    Yang, Xu, Ye, King, Lyu: Efficient Sparse Generalized Multiple Kernel Learning. IEEE Trans. Neural Networks 22 (2011).
    """


class _MKL(KernelEstimator):
    """What both estimators share."""

    _config_type = MKLConfig
    tol: float
    max_iter: int

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit on arrays, sparse matrices, Dask arrays, strings, precomputed matrices, or a block store.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store may hold the target itself.
        y
            ``(n_samples,)`` target.
        sample_weight
            ``(n_samples,)`` factors of ``C``.

        Raises
        ------
        ValueError
            A parameter out of range, data that are not finite, one class only, or a kernel that is not positive semi-definite.
        """
        config = self._config()
        state = self._fit(gmkl_run, config, self._inputs(X, y, sample_weight), budget=machine_memory())
        ended = "the machine's rounding" if state.stop == "flat" else f"max_iter={self.max_iter}"
        self._warn_unfinished(self.converged_, f"{ended} ended the fit before tol={self.tol:g} was reached")
        return self

    def _set_model(self, model: KernelModel) -> None:
        super()._set_model(model)
        figures = model.figures
        self.kernel_weights_ = model.theta[0].copy() if len(model.theta) == 1 else model.theta.copy()
        threshold = MKLConfig.model_validate_json(model.params_json).threshold
        self.support_ = np.flatnonzero(np.any([selected(row, threshold) for row in model.theta], axis=0))
        self.support_vectors_ = model.support_ids
        self.dual_coef_, self.intercept_ = model.beta, model.intercepts
        self.lower_bound_, self.upper_bound_ = figures["lower_bound"], figures["upper_bound"]
        self.objective_, self.dual_gap_ = self.upper_bound_, self.upper_bound_ - self.lower_bound_
        self.n_iter_, self.converged_ = int(figures["iterations"]), bool(figures["converged"])


@documented(_PARAMETERS, _REST, CLASS_WEIGHT)
class MKLClassifier(KernelClassifier, _MKL):
    """Support vector classifier on a weighted sum of kernels, weights learnt with it.

    Solves ``min_theta max_alpha 1'alpha - 1/2 (alpha y)' (sum_q theta_q K_q) (alpha y)`` over ``0 <= alpha <= C``, ``y'alpha = 0`` and a
    convex set of weights; several classes one-vs-rest, each with weights of its own.
    """

    def __init__(
        self,
        kernels: Any = None,
        constraint: str = "elastic_net",
        v: float = 0.5,
        p: float = 2.0,
        C: float = 1.0,
        solver: str = "auto",
        tau: float = 0.3,
        normalize: str = "trace",
        tol: float = 1e-3,
        max_iter: int = 200,
        threshold: float = 1e-4,
        grams: str = "auto",
        gram_store: str | None = None,
        class_weight: Any = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
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
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


@documented(
    _PARAMETERS,
    _REST,
    """    epsilon
        Half width of the tube without loss.
""",
)
class MKLRegressor(Predicting, _MKL):
    """Support vector regression on a weighted sum of kernels, weights learnt with it.

    The loss is ``C sum_i max(0, |y_i - f(x_i)| - epsilon)``.
    """

    _is_classifier = False

    def __init__(
        self,
        kernels: Any = None,
        constraint: str = "elastic_net",
        v: float = 0.5,
        p: float = 2.0,
        C: float = 1.0,
        solver: str = "auto",
        tau: float = 0.3,
        normalize: str = "trace",
        tol: float = 1e-3,
        max_iter: int = 200,
        epsilon: float = 0.1,
        threshold: float = 1e-4,
        grams: str = "auto",
        gram_store: str | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
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
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted values, ``(n_samples,)``."""
        return self._values(X)[:, 0]
