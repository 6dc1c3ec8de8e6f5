"""MKLClassifier and MKLRegressor: support vector machines on a learnt combination of kernels."""

from __future__ import annotations

import numpy as np

from ...estimators.cross_validated import MACHINE_C, CrossValidated, Grid
from ...estimators.kernels import KernelClassifier, KernelEstimator, KernelRegressor
from ...models.kernel import KernelModel, is_selected
from .config import MKLConfig
from .loop import MKLState
from .method import MKL


class _MKL(KernelEstimator):
    """What both estimators share.

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

    References
    ----------
    Yang, Xu, Ye, King, Lyu: Efficient Sparse Generalized Multiple Kernel Learning. IEEE Trans. Neural Networks 22 (2011).
    """

    _method = MKL
    _takes_all_memory = True

    def _unfinished(self, state: MKLState) -> str:
        config = self._config()
        ended = "the machine's rounding" if state.stop == "flat" else f"max_iter={config.max_iter}"
        return f"{ended} ended the fit before tol={config.tol:g} was reached"

    def _set_model(self, model: KernelModel) -> None:
        super()._set_model(model)
        self.kernel_weights_ = model.theta[0].copy() if len(model.theta) == 1 else model.theta.copy()
        threshold = MKLConfig.model_validate_json(model.params_json).threshold
        self.support_ = np.flatnonzero(np.any([is_selected(row, threshold) for row in model.theta], axis=0))
        self.support_vectors_, self.dual_coef_, self.intercept_ = model.support_ids, model.beta, model.intercepts
        self._set_bounds(model.figures)


class MKLClassifier(KernelClassifier, _MKL):
    r"""Support vector classifier on a weighted sum of kernels, weights learnt with it.

    .. math::

        \min_{\theta \in \Theta} \max_\alpha 1'\alpha - \frac{1}{2} (\alpha y)' \Bigl(\sum_q \theta_q K_q\Bigr) (\alpha y)
        \quad 0 \le \alpha \le C, \; y'\alpha = 0

    over a convex set of weights :math:`\Theta`; several classes one-vs-rest, each with weights of its own.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(kernels=["rbf(gamma=0.5)", "linear"]).fit(X, y)
    >>> model.kernel_weights_.shape
    (3, 2)
    """


class MKLRegressor(KernelRegressor, _MKL):
    r"""Support vector regression on a weighted sum of kernels, weights learnt with it.

    The loss is :math:`C s \sum_i \max(0, |y_i - f(x_i)| - \epsilon s)`, s the standard deviation of the target, the weights are those of a
    convex set. The target is centred and scaled inside, so that C and epsilon mean the same in every unit; coefficients and
    intercept are in the unit of the target, objective and bounds in its square.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from gramplane import MKLRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MKLRegressor(kernels=["rbf(gamma=1)", "linear"], C=100).fit(X, y)
    >>> model.kernel_weights_.shape
    (2,)
    """


class _MKLPath(CrossValidated):
    """Chooses ``C`` and ``v`` by cross-validation; all fits share the Gram matrices, and the folds of a C, which start from the weights and
    coefficients of the C before it, the passes over them.

    Attributes
    ----------
    C_, v_
        Parameters chosen.
    Cs_, vs_
        Values that were compared, ``vs_`` where they were given.
    """

    _grids = (MACHINE_C, Grid("v", "vs", None, "Values of v to compare; ``None``: ``v`` alone.", "list of float or None", True))


class MKLClassifierCV(_MKLPath, MKLClassifier):
    r"""Support vector classifier on a weighted sum of kernels, its ``C`` and ``v`` chosen by cross-validation.

    The problem is that of :class:`MKLClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import MKLClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifierCV(kernels=["rbf(gamma=0.5)", "linear"], Cs=[0.1, 1, 10], vs=[0.5, 1]).fit(X, y)
    >>> len(model.cv_results_["params"]), model.best_score_ > 0.9
    (6, True)
    """


class MKLRegressorCV(_MKLPath, MKLRegressor):
    r"""Support vector regression on a weighted sum of kernels, its ``C`` and ``v`` chosen by cross-validation.

    The problem is that of :class:`MKLRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from gramplane import MKLRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MKLRegressorCV(kernels=["rbf(gamma=1)", "linear"], Cs=[1, 10, 100], cv=3).fit(X, y)
    >>> model.best_score_ > 0.3
    True
    """
