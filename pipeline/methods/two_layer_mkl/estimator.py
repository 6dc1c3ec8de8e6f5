"""TwoLayerMKLClassifier: a support vector machine on the exponential of a learnt combination of kernels."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from ....cluster import machine_memory
from ....kernels.grams.spec import KernelSpec
from ...estimators.kernels import NAN, KernelClassifier
from ...models.kernel import KernelModel
from . import method as two_layer_run
from .config import TwoLayerConfig

ENDED = {"flat": "a line search that found nothing lower", "max_iter": "max_iter={}"}


class TwoLayerMKLClassifier(KernelClassifier):
    r"""Support vector classifier on ``exp(sum_t mu_t k_t(x, z))``, weights mu >= 0 learnt with it.

    Minimises over the machine and the weights

    .. math::

        \tfrac12 \|f\|^2_{K_2(\mu)} + C \sum_i \max(0, 1 - y_i (f(x_i) + b)) + \lambda \sum_t \mu_t,
        \qquad K_2(\mu) = \exp\Big(\sum_t \mu_t K_t\Big) \text{ entry by entry}.

    The problem is not convex in mu: the result is a stationary point, the best of ``n_restarts`` starts. Several classes one-vs-rest, each
    with weights of its own.

    Parameters
    ----------
    kernels
        List of kernels: :class:`KernelSpec`, short texts like ``"rbf(gamma=0.5)"``, importable functions; or ``"precomputed"``: then X is
        ``(n_kernels, n, n)`` at fit and ``(n_kernels, n_test, n_train)`` at predict, or a Gram store. Default: ``kernel_grid``, ten
        Gaussian widths and three polynomial degrees on all features and on each single one.
    C
        Loss weight, the same as scikit-learn's ``SVC``.
    penalty
        Weight lambda of the sum of the kernel weights. Default: a tenth of the number of rows with a cost, n/10, and 0.1 with
        ``normalize="unit_trace"``, which is the same problem. The thesis' problem (unit trace, lambda = 1) has ten times that, and a C
        chosen with it: at C = 1 it leaves no kernel a weight where classes are hard to separate, which a warning tells. A small penalty
        lets the machine memorise the training rows.
    infinite
        Add Gaussian kernels on all features, one per machine and round, while one helps.
    rule
        When a Gaussian helps: ``"descent"``, the objective falls towards it; ``"thesis"``, it does better alone than the combination.
    max_new_kernels
        Gaussians added at most.
    gamma_range
        Least and greatest gamma of an added Gaussian; default: inverse quantiles (0.95, 0.05) of the squared distances between different
        rows. A wide range lets the machine memorise.
    n_restarts
        Random starts; the one with the smallest objective is kept, before kernels are added.
    normalize
        For kernels that leave it open: ``"trace"`` (mean diagonal 1), ``"unit_trace"`` (the thesis'; entries of size 1/n need weights of
        size n), ``"multiplicative"``, ``"cosine"``, ``"none"``.
    tol
        Largest entry of the projected gradient, in units of ``penalty``, at which the fit ends.
    decrease_tol
        The fit ends, too, when two steps in a row lower the objective by less than this share.
    max_iter
        Steps of the kernel weights at most, for one set of kernels; a warning tells when it ends the fit.
    grams, gram_store
        Where Gram matrices lie: ``"auto"`` decides from sizes; ``"memory"``, ``"store"`` (at the path ``gram_store``), ``"recompute"``.
    class_weight
        ``"balanced"`` or a dict of class factors of ``C``.
    cluster
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."`` ...; matrices and strings in memory stay in-process.
    random_state
        Seed of the first weights.
    verbose
        Log one line per iteration.
    callbacks
        Functions called with an event record per iteration.

    Attributes
    ----------
    kernel_weights_
        ``(n_kernels,)`` weights mu, or ``(n_classes, n_kernels)`` for more than two classes.
    kernels_
        All kernels, added ones last (names of given matrices).
    support_
        Sorted indices of the kernels with a weight (for any class).
    support_vectors_
        Training rows with a coefficient.
    dual_coef_
        ``(n_machines, n_support)`` signed coefficients of these rows.
    intercept_
        ``(n_machines,)``.
    objective_
        Primal value, summed over machines.
    dual_gap_
        NaN: without convexity nothing certifies the distance to the best weights.
    machine_gap_
        Duality gap of the machines at these weights: how exactly they were solved.
    violation_
        Largest entry of the projected gradient, in units of ``penalty_``: 0 at a stationary point.
    penalty_
        The lambda of the fit.
    n_iter_, converged_, history_
        Iterations, whether a tolerance ended the fit, and one array per figure over the iterations.

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 4.
    """

    _config_type = TwoLayerConfig

    def __init__(
        self,
        kernels: Any = None,
        C: float = 1.0,
        infinite: bool = False,
        penalty: float | None = None,
        rule: str = "descent",
        max_new_kernels: int = 10,
        gamma_range: tuple[float, float] | None = None,
        n_restarts: int = 1,
        normalize: str = "trace",
        tol: float = 1e-3,
        decrease_tol: float = 1e-5,
        max_iter: int = 200,
        grams: str = "auto",
        gram_store: str | None = None,
        class_weight: Any = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
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
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit on arrays, sparse matrices, Dask arrays, strings, precomputed matrices, or a block store.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store may hold the target itself.
        y
            ``(n_samples,)`` classes.
        sample_weight
            ``(n_samples,)`` factors of ``C``.

        Raises
        ------
        ValueError
            A parameter out of range, data that are not finite, one class only, or a kernel that is not positive semi-definite.
        """
        config = self._config()
        state = self._fit(two_layer_run, config, self._inputs(X, y, sample_weight), budget=machine_memory())
        ended = ENDED.get(str(state.stop), "").format(self.max_iter)
        left = f"the projected gradient is {self.violation_:.2g}"
        self._warn_unfinished(self.converged_, f"{ended} ended the fit before tol={self.tol:g} was reached; {left}")
        return self

    def _set_model(self, model: KernelModel) -> None:
        super()._set_model(model)
        figures, records = model.figures, json.loads(model.kernels_json)
        self.kernel_weights_ = model.theta[0].copy() if len(model.theta) == 1 else model.theta.copy()
        self.kernels_ = [
            KernelSpec.from_json(record) if record["name"] != "precomputed" else record["label"] or f"precomputed {record['position']}"
            for record in records
        ]
        self.support_, self.support_vectors_ = model.used, model.support_ids
        self.dual_coef_, self.intercept_ = model.beta, model.intercepts
        self.objective_, self.dual_gap_ = figures["objective"], NAN
        self.machine_gap_, self.violation_ = figures["machine_gap"], figures["violation"]
        self.penalty_ = figures["penalty"]
        self.n_iter_, self.converged_ = int(figures["iterations"]), bool(figures["converged"])
