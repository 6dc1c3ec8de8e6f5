"""TwoLayerMKLClassifier: a support vector machine on the exponential of a learnt combination of kernels."""

from __future__ import annotations

import json

from ....kernels.grams.spec import KernelSpec
from ....kernels.svm.generalization import generalization_bound  # noqa: F401 (public)
from ...estimators.kernels import KernelClassifier
from ...models.kernel import KernelModel
from .loop import TwoLayerState
from .method import TwoLayer


class TwoLayerMKLClassifier(KernelClassifier):
    r"""Support vector classifier on ``exp(sum_t mu_t k_t(x, z))``, weights mu >= 0 learnt with it.

    Minimises over the machine and the weights

    .. math::

        \tfrac12 \|f\|^2_{K_2(\mu)} + C \sum_i \max(0, 1 - y_i (f(x_i) + b)) + \lambda \sum_t \mu_t,
        \qquad K_2(\mu) = \exp\Big(\sum_t \mu_t K_t\Big) \text{ entry by entry}.

    The problem is not convex in mu: the result is a stationary point, the best of ``n_restarts`` starts. Several classes one-vs-rest, each
    with weights of its own.

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

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import TwoLayerMKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TwoLayerMKLClassifier(["rbf(gamma=0.5)", "linear"], C=10).fit(X[50:], y[50:])
    >>> model.kernel_weights_.shape
    (2,)

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 4.
    """

    _method = TwoLayer
    _takes_all_memory = True

    def _unfinished(self, state: TwoLayerState) -> str:
        config = self._config()
        ended = "a line search that found nothing lower" if state.stop == "flat" else f"max_iter={config.max_iter}"
        return f"{ended} ended the fit before tol={config.tol:g} was reached; the projected gradient is {self.violation_:.2g}"

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
