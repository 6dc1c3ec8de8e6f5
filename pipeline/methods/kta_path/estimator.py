"""KTASelectionPath and KTASelectionPathRegressor: selection of kernels (one per feature, or precomputed), which leave the model one by one
as p of the l_p norm decreases.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from ....kernels.alignment.path import p_for
from ....kernels.jit import one_thread
from ....storage.data import as_data, in_memory
from ....storage.errors import Matrix
from ...core.calibration import Fit
from ...core.resources import Resources
from ...estimators.base import Classifier, Regressor, has_probabilities, predicted_labels
from ...estimators.cv import MACHINE_C, CrossValidated
from ...estimators.inputs import Callbacks, Column, Seed, UserRows, encoded, features_of, seed_of
from ...estimators.kernels import KernelEstimator
from ...estimators.probabilities import LateModel, late_calibration
from ...estimators.selection import Selection
from ...models.calibration import Calibration, class_probabilities
from ...models.kernel import KernelModel, gram_decision_values, row_decision_values
from .config import KTAPathConfig
from .machines import Kernels, PathPoint, PathTrainer, machine_model, score_name, weights_along
from .method import KTAPath
from .problem import path_weights


class _SelectionPath(Selection, KernelEstimator):
    """Base class of classifier and regressor."""

    _method = KTAPath()
    _takes_all_memory = True
    _kernels_parameter = "kernel"

    def fit(self, X: UserRows, y: Column = None, sample_weight: Column = None) -> Self:
        """Compute the alignments, the path, and SVMs along it.

        Parameters
        ----------
        X
            ``(n_samples, n_features)`` array, sparse matrix, Dask array or block store; with ``kernel="precomputed"``, matrices.
        y
            ``(n_samples,)`` classes, or numbers for a regressor; a block store may contain them.
        sample_weight
            ``(n_samples,)`` counts of rows, used in alignments, widths and losses; rows with weight 0 are ignored.

        Raises
        ------
        ValueError
            Parameter out of range, non-finite data, a single class, or no kernel with a positive alignment.
        """
        config = self._config()
        inputs = self._inputs(X, y, sample_weight, config=config)
        self._fit(inputs, config)
        self._training = inputs
        return self

    def _set_model(self, model: KernelModel) -> None:
        super()._set_model(model)
        arrays = model.arrays
        self.alignments_, self.widths_, self.traces_ = arrays["alignments"], arrays["widths"], arrays["traces"]
        self.p_grid_, self.n_active_, self.junctures_ = arrays["p_grid"], arrays["n_active"], arrays["junctures"]
        self.weights_path_ = weights_along(model)
        self.lam1_, self.lam2_, self.p_ = model.figures["lam1"], model.figures["lam2"], model.figures["p"]
        at = arrays["scored"][:, 0].astype(int)
        scores = {f"train_{score_name(model)}": arrays["scored"][:, 1]}
        self.path_scores_ = {"p": self.p_grid_[at], "n_active": self.n_active_[at], **scores}

    # -- the path ------------------------------------------------------------------------------------------------------------------

    def _checked_p(self, p: float | None) -> float:
        check_is_fitted(self, "model_")
        if p is None:
            return self.p_
        low, high = self.p_grid_[-1], self.p_grid_[0]
        if not low <= p <= high:
            raise ValueError(f"p is {p}; the path goes from {high} to {low}")
        return float(p)

    def active_at(self, p: float) -> np.ndarray:
        """Return the indices of the active kernels at p, int64 in ascending order."""
        return np.flatnonzero(self.junctures_ < self._checked_p(p))

    def weights_at(self, p: float) -> np.ndarray:
        """Return the kernel weights at any p of the path, ``(n_kernels,)``."""
        out, (active, eta) = np.zeros(len(self.alignments_)), self._path_weights(self._checked_p(p))
        out[active] = eta
        return out

    def p_for(self, n_features: int) -> float:
        """Return a p at which ``n_features`` kernels are active; if there is none, a p with the next lower number of active kernels.

        Raises ValueError if more kernels stay active to the end of the path, or if none would be active.
        """
        check_is_fitted(self, "model_")
        return p_for(self.junctures_, n_features, float(self.p_grid_[0]), float(self.p_grid_[-1]))

    def svm_at(self, p: float, C: float | None = None, warm: PathMachine | None = None) -> PathMachine:
        """Return the SVM trained on the active kernels at p.

        Parameters
        ----------
        p
            Point of the path, on the grid or between its points.
        C
            Inverse regularisation strength. Default: ``C`` of the estimator.
        warm
            SVM at another point, or with another ``C``, from which the solver starts: coefficients change little along the path.

        Raises
        ------
        ValueError
            p outside the path, no active kernel at p, or an estimator that was copied or loaded and has no training data.
        """
        at = self._checked_p(p)
        if not len(self.active_at(at)):
            raise ValueError(f"no kernel is active at p={at}")
        config = self._machine_config(C)
        with self._context(self._training.data) as ctx:
            active, eta = self._path_weights(at)
            start = None if warm is None else warm.coefficients()
            return self._machine(config, self._trainer(config, ctx).at(at, active, eta, start))

    def svm_path(self, p: Any = None, C: float | None = None) -> Iterator[PathMachine]:
        """Yield SVMs along the path. Each starts from the previous one, which is much cheaper than :meth:`svm_at` at every point.

        Kernels of similar alignment share matrices. The kernel weights of an SVM therefore differ from those of its p, but by at most 3e-4
        of their sum.

        Parameters
        ----------
        p
            Points in descending order. Default: all points of the grid with an active kernel.
        C
            Inverse regularisation strength. Default: ``C`` of the estimator.

        Raises
        ------
        ValueError
            p outside the path, no active kernel at p, or an estimator that was copied or loaded and has no training data.
        """
        check_is_fitted(self, "model_")
        config = self._machine_config(C)
        if p is None:
            active = np.flatnonzero(self.n_active_)
            return self._machines(config, self.p_grid_[active], self.weights_path_[active])
        points = np.array([self._checked_p(q) for q in np.atleast_1d(p)])
        pairs = [self._path_weights(float(q)) for q in points]
        counts = [len(active) for active, _ in pairs]
        if 0 in counts:
            raise ValueError(f"no kernel is active at p={points[counts.index(0)]}")
        ends = np.cumsum([0, *counts])
        columns, values = (np.concatenate([np.zeros(0), *(pair[side] for pair in pairs)]) for side in (0, 1))
        weights = sp.csr_array((values, columns.astype(np.int64), ends), shape=(len(points), len(self.alignments_)))
        return self._machines(config, points, weights)

    def _machines(self, config: KTAPathConfig, points: np.ndarray, weights: sp.csr_array) -> Iterator[PathMachine]:
        with self._context(self._training.data) as ctx:
            for point in self._trainer(config, ctx).along(points, weights):
                yield self._machine(config, point)

    def _machine_config(self, C: float | None) -> KTAPathConfig:
        if not hasattr(self, "_training"):
            raise ValueError("SVMs along the path need the training data, which copied and loaded estimators do not have; fit again")
        # A checked copy: C is the user's.
        return KTAPathConfig(**{**json.loads(self.model_.params_json), **({} if C is None else {"C": C})})

    def _trainer(self, config: KTAPathConfig, ctx: Resources) -> PathTrainer:
        return PathTrainer(config, self._training, ctx, Kernels(self.alignments_, self.traces_, self.widths_))

    def _path_weights(self, p: float) -> tuple[np.ndarray, np.ndarray]:
        config = KTAPathConfig.model_validate_json(self.model_.params_json)
        return path_weights(config, (self.lam1_, self.lam2_), self.alignments_, self.junctures_, p)

    def _machine(self, config: KTAPathConfig, point: PathPoint) -> PathMachine:
        figures = {"lam1": self.lam1_, "lam2": self.lam2_, "C": float(config.C)}
        arrays, training = {"traces": self.traces_, "widths": self.widths_}, self._training
        late = None
        if has_probabilities(self):
            fit = Fit(self._method, config.model_copy(update={"p": point.p}), training)
            late = late_calibration(fit, self._fit_place(training.data), seed_of(self.random_state), self._takes_all_memory)
        return PathMachine(
            point,
            getattr(self, "classes_", None),
            float(config.C),
            lambda: machine_model(config, training, arrays, figures, point),
            self,
            late,
        )

    # -- selection and prediction --------------------------------------------------------------------------------------------------

    def get_support(self, indices: bool = False, p: float | None = None) -> np.ndarray:
        """Return the mask (or indices) of the features active at ``p``; by default at ``p_``."""
        mask = np.zeros(len(self.model_.arrays["junctures"]) if hasattr(self, "model_") else 0, dtype=bool)
        mask[self.active_at(self._checked_p(p))] = True
        return np.flatnonzero(mask) if indices else mask

    def _get_support_mask(self) -> np.ndarray:
        return self.get_support()

    def transform(self, X: UserRows, p: float | None = None) -> Matrix:
        """Return the columns of X that are active at ``p``; by default at ``p_``."""
        at = self._checked_p(p)
        if self._precomputed:
            raise ValueError("kernel='precomputed': there are no features to select; active_at returns the active kernels")
        if at == self.p_:
            return super().transform(X)
        rows, _ = as_data(X, estimator=self, encode=encoded, accept_sparse="csr", dtype=None, reset=False)
        return rows[:, self.active_at(at)]


class KTASelectionPath(_SelectionPath, Classifier):
    r"""Kernel selection by alignment with the classes, along a path of l_p norms.

    Solves, for p from ``p_start`` down to ``p_end``,

    .. math::

        \min_{\eta \ge 0} \lambda_1 \sum_i B_F(\eta_i, \eta_0) + \lambda_2 \sum_i \eta_i^p - \sum_i \eta_i a_i,
        \qquad a_i = \frac{y' H K_i H y}{\mathrm{tr}(H K_i H)} .

    As p decreases, kernels become inactive (weight at most ``eps``) and never return. For more than two classes, a_i is the sum over the
    classes, each against the rest: the alignment with "same class or not".

    :meth:`predict` and :meth:`decision_function` use the SVM at ``p_``, by default 1.25. At that p, kernels of small alignment have left
    the model, and accuracy is still that of all kernels. Fewer kernels remain nearer to ``p_end``. :meth:`svm_at` returns the SVM at any p,
    and :meth:`p_for` the p of a given number of kernels. The fit is deterministic.

    Parameters
    ----------
    kernel : {"rbf", "linear", "precomputed"}, default='rbf'
        Kernel of each feature: ``"rbf"``, with the median of the non-zero distances as its width; ``"linear"``, x x'; or ``"precomputed"``,
        with matrices (n_kernels, n, n) in ``fit`` and (n_kernels, n_test, n_train) in ``predict``.
    divergence : {"euclidean", "kl"}, default='euclidean'
        Divergence of the weights from ``eta0``: squared Euclidean, or the generalised Kullback-Leibler divergence.
    lam1 : float >= 0 or None, default=None
        Weight of the divergence. Default: half the largest alignment.
    lam2 : float >= 0 or None, default=None
        Weight of sum eta^p. Default: a value that leaves about ten kernels at ``p_end``. If fewer than 50 kernels have a positive
        alignment, it leaves a fifth of them, but at least three.
    eta0 : float >= 0, default=0.0
        Centre of the divergence; must be positive with ``"kl"``.
    p_start : float >= 1, default=2.0
        First p of the path.
    p_end : float >= 1, default=1.0
        Last p of the path.
    dp : float > 0, default=0.01
        Step size in p; the path descends.
    eps : float >= 0 and < 0.367879, default=0.0001
        A kernel whose weight falls to this value leaves the path for good.
    order : int >= 0 and <= 2, default=1
        Order of the predictor in p. It affects the time, not the path.
    C : float > 0, default=1.0
        Inverse regularisation strength of the SVMs: larger values fit the training data more closely. It has the scale of scikit-learn's
        ``SVC`` with a kernel of (centred) trace n, and is the default of ``svm_at`` and ``svm_path``.
    n_machines : int >= 1, default=11
        Number of points at which an SVM is trained and its accuracy recorded, evenly spaced from the first to the last point with an active
        kernel. 1: the last point only.
    p : float >= 1 or {"auto"} or None, default='auto'
        Point of the path whose SVM predicts; if no kernel is active there, the last point before it with an active kernel. ``"auto"``:
        1.25, or the nearest end of the path. ``None``: the last point with an active kernel, which has the fewest kernels and is less
        accurate.
    class_weight : {"balanced"} or dict or None, default=None
        Factors of ``C`` per class; alignments ignore them.
    probability : {"auto", "sigmoid", "isotonic", False}, default='auto'
        How class probabilities are obtained. A logistic loss gives them exactly; other losses need a sigmoid or isotonic calibration on
        decision values of 5 folds, about 5 more fits. ``"sigmoid"``, ``"isotonic"``: calibrate in ``fit``. ``"auto"``: exact, or a sigmoid
        when you first ask for probabilities. ``False``: none.
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
    alignments_, widths_, traces_
        ``(n_kernels,)`` each: alignment a_i, width, and trace of the centred kernel.
    p_grid_, n_active_, weights_path_
        ``(n_points,)`` values of p in descending order, ``(n_points,)`` numbers of active kernels, and ``(n_points, n_kernels)`` sparse
        weights.
    junctures_
        ``(n_kernels,)``: kernel i is active at p if and only if ``p > junctures_[i]``; infinity: never active, 0: active to the end.
    path_scores_
        ``{"p", "n_active", "train_accuracy"}``: arrays with one entry per SVM trained along the path.
    lam1_, lam2_, p_
        Regularisation used, and the point of the path whose SVM :meth:`predict` uses.
    history_
        One array per quantity, over the iterations.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gramplane import KTASelectionPath
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> path = KTASelectionPath(dp=0.05, n_machines=1).fit(X, y)
    >>> path.get_support(indices=True, p=path.p_for(12)).tolist()
    [0, 2, 3, 5, 6, 7, 13, 20, 22, 23, 26, 27]

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis (2014), chapter 7.
    """

    def __init__(
        self,
        kernel: Literal["rbf", "linear", "precomputed"] = "rbf",
        divergence: Literal["euclidean", "kl"] = "euclidean",
        lam1: float | None = None,
        lam2: float | None = None,
        eta0: float = 0.0,
        p_start: float = 2.0,
        p_end: float = 1.0,
        dp: float = 0.01,
        eps: float = 0.0001,
        order: int = 1,
        C: float = 1.0,
        n_machines: int = 11,
        p: float | Literal["auto"] | None = "auto",
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        probability: Literal["auto", "sigmoid", "isotonic", False] = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.kernel = kernel
        self.divergence = divergence
        self.lam1 = lam1
        self.lam2 = lam2
        self.eta0 = eta0
        self.p_start = p_start
        self.p_end = p_end
        self.dp = dp
        self.eps = eps
        self.order = order
        self.C = C
        self.n_machines = n_machines
        self.p = p
        self.class_weight = class_weight
        self.probability = probability
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class KTASelectionPathRegressor(_SelectionPath, Regressor):
    r"""Kernel selection by alignment with a numeric target, along a path of l_p norms.

    Solves, for p from ``p_start`` down to ``p_end``,

    .. math::

        \min_{\eta \ge 0} \lambda_1 \sum_i B_F(\eta_i, \eta_0) + \lambda_2 \sum_i \eta_i^p - \sum_i \eta_i a_i,
        \qquad a_i = \frac{y' H K_i H y}{\mathrm{tr}(H K_i H)} .

    where y is the target, centred and scaled to standard deviation 1. As p decreases, kernels become inactive (weight at most ``eps``) and
    never return.

    :meth:`predict` uses the support vector regression at ``p_``, by default 1.25. Fewer kernels remain nearer to ``p_end``. :meth:`svm_at`
    returns the model at any p, and :meth:`p_for` the p of a given number of kernels. The fit is deterministic.

    ``C`` and ``epsilon`` refer to the scaled target. Coefficients and intercepts are in the unit of the target, objective and gap in its
    square.

    Parameters
    ----------
    kernel : {"rbf", "linear", "precomputed"}, default='rbf'
        Kernel of each feature: ``"rbf"``, with the median of the non-zero distances as its width; ``"linear"``, x x'; or ``"precomputed"``,
        with matrices (n_kernels, n, n) in ``fit`` and (n_kernels, n_test, n_train) in ``predict``.
    divergence : {"euclidean", "kl"}, default='euclidean'
        Divergence of the weights from ``eta0``: squared Euclidean, or the generalised Kullback-Leibler divergence.
    lam1 : float >= 0 or None, default=None
        Weight of the divergence. Default: half the largest alignment.
    lam2 : float >= 0 or None, default=None
        Weight of sum eta^p. Default: a value that leaves about ten kernels at ``p_end``. If fewer than 50 kernels have a positive
        alignment, it leaves a fifth of them, but at least three.
    eta0 : float >= 0, default=0.0
        Centre of the divergence; must be positive with ``"kl"``.
    p_start : float >= 1, default=2.0
        First p of the path.
    p_end : float >= 1, default=1.0
        Last p of the path.
    dp : float > 0, default=0.01
        Step size in p; the path descends.
    eps : float >= 0 and < 0.367879, default=0.0001
        A kernel whose weight falls to this value leaves the path for good.
    order : int >= 0 and <= 2, default=1
        Order of the predictor in p. It affects the time, not the path.
    C : float > 0, default=1.0
        Inverse regularisation strength of the SVMs: larger values fit the training data more closely. It has the scale of scikit-learn's
        ``SVR`` with a kernel of (centred) trace n and a target of standard deviation 1, and is the default of ``svm_at`` and ``svm_path``.
    epsilon : float >= 0, default=0.1
        Half-width of the tube without loss, in standard deviations of the target.
    n_machines : int >= 1, default=11
        Number of points at which an SVM is trained and its R2 recorded, evenly spaced from the first to the last point with an active
        kernel. 1: the last point only.
    p : float >= 1 or {"auto"} or None, default='auto'
        Point of the path whose SVM predicts; if no kernel is active there, the last point before it with an active kernel. ``"auto"``:
        1.25, or the nearest end of the path. ``None``: the last point with an active kernel, which has the fewest kernels and is less
        accurate.
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
    alignments_, widths_, traces_
        ``(n_kernels,)`` each: alignment a_i, width, and trace of the centred kernel.
    p_grid_, n_active_, weights_path_
        ``(n_points,)`` values of p in descending order, ``(n_points,)`` numbers of active kernels, and ``(n_points, n_kernels)`` sparse
        weights.
    junctures_
        ``(n_kernels,)``: kernel i is active at p if and only if ``p > junctures_[i]``; infinity: never active, 0: active to the end.
    path_scores_
        ``{"p", "n_active", "train_r2"}``: arrays with one entry per SVM trained along the path.
    lam1_, lam2_, p_
        Regularisation used, and the point of the path whose SVM :meth:`predict` uses.
    history_
        One array per quantity, over the iterations.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import KTASelectionPathRegressor
    >>> X = np.random.default_rng(0).normal(size=(120, 30))
    >>> path = KTASelectionPathRegressor(dp=0.05).fit(
    ...     X, 5.0 * X[:, 3] ** 2 + 4.0 * X[:, 7]
    ... )
    >>> path.get_support(indices=True, p=path.p_for(6)).tolist()
    [3, 7, 8, 21, 22, 27]

    References
    ----------
    Jawanpuria: Learning Kernels for Multiple Predictive Tasks. PhD thesis (2014), chapter 7.
    """

    def __init__(
        self,
        kernel: Literal["rbf", "linear", "precomputed"] = "rbf",
        divergence: Literal["euclidean", "kl"] = "euclidean",
        lam1: float | None = None,
        lam2: float | None = None,
        eta0: float = 0.0,
        p_start: float = 2.0,
        p_end: float = 1.0,
        dp: float = 0.01,
        eps: float = 0.0001,
        order: int = 1,
        C: float = 1.0,
        epsilon: float = 0.1,
        n_machines: int = 11,
        p: float | Literal["auto"] | None = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.kernel = kernel
        self.divergence = divergence
        self.lam1 = lam1
        self.lam2 = lam2
        self.eta0 = eta0
        self.p_start = p_start
        self.p_end = p_end
        self.dp = dp
        self.eps = eps
        self.order = order
        self.C = C
        self.epsilon = epsilon
        self.n_machines = n_machines
        self.p = p
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class KTASelectionPathCV(CrossValidated, KTASelectionPath):
    """Kernel selection along a path of l_p norms, with the point ``p`` of the path and ``C`` chosen by cross-validation.

    The path is that of :class:`KTASelectionPath`. Every fold has its own alignments and path. The SVMs of a fold, for all ``C`` at
    ``n_machines`` points evenly spaced from ``p_start`` to ``p_end``, share their matrices. Among points with similar scores, the simplest
    has the smallest p: it has the fewest kernels.

    See :class:`KTASelectionPath` for the other parameters and further attributes.

    Parameters
    ----------
    Cs : int or list of float, default=(1.0, 10.0, 100.0)
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
    C_, p_
        Chosen parameters; :meth:`predict` uses the SVM at ``p_``.
    Cs_
        Values of ``C`` compared.
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
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gramplane import KTASelectionPathCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> path = KTASelectionPathCV(dp=0.05, n_machines=4, Cs=[1, 10], cv=3).fit(
    ...     X, y
    ... )
    >>> path.C_, round(path.best_score_, 2)
    (10.0, 0.97)
    """

    _grids = (MACHINE_C,)
    _along = ("p",)
    _simplest_by = (("p",), ("C",))

    def __init__(
        self,
        kernel: Literal["rbf", "linear", "precomputed"] = "rbf",
        divergence: Literal["euclidean", "kl"] = "euclidean",
        lam1: float | None = None,
        lam2: float | None = None,
        eta0: float = 0.0,
        p_start: float = 2.0,
        p_end: float = 1.0,
        dp: float = 0.01,
        eps: float = 0.0001,
        order: int = 1,
        Cs: int | Sequence[float] | None = (1.0, 10.0, 100.0),
        n_machines: int = 11,
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        probability: Literal["auto", "sigmoid", "isotonic", False] = "auto",
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
        self.kernel = kernel
        self.divergence = divergence
        self.lam1 = lam1
        self.lam2 = lam2
        self.eta0 = eta0
        self.p_start = p_start
        self.p_end = p_end
        self.dp = dp
        self.eps = eps
        self.order = order
        self.Cs = Cs
        self.n_machines = n_machines
        self.class_weight = class_weight
        self.probability = probability
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.one_standard_error = one_standard_error
        self.n_jobs = n_jobs
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class PathMachine:
    """SVM at one point of the path.

    Attributes
    ----------
    classes_, p_, C_
        Class labels in ascending order (``None`` for a numeric target), the point p of the path, and ``C``.
    active_, weights_
        Active kernels in ascending order, and their weights, which sum to the number of rows.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gramplane import KTASelectionPath
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> path = KTASelectionPath(dp=0.05, n_machines=1).fit(X, y)
    >>> machine = path.svm_at(path.p_for(8))
    >>> len(machine.active_), bool((machine.predict(X) == y).mean() > 0.9)
    (8, True)
    """

    def __init__(
        self,
        point: PathPoint,
        classes: np.ndarray | None,
        C: float,
        build: Callable[[], KernelModel],
        path: object,
        late: LateModel[Calibration] | None = None,
    ) -> None:
        self._point, self._build, self._path, self._late = point, build, path, late
        self.classes_, self.p_, self.C_ = classes, point.p, C
        self.active_, self.weights_ = point.active, point.share

    @cached_property
    def model_(self) -> KernelModel:
        """Model record with the support vectors, made at the first access."""
        return self._build()

    def coefficients(self) -> np.ndarray:
        """Return the signed coefficients of all training rows, ``(n_machines, n_train)``."""
        return self._point.beta

    def training_values(self) -> np.ndarray:
        """Return ``f(x)`` of the training rows, which training has computed: ``(n,)`` or ``(n, n_classes)``."""
        values = self._point.values
        return values[0] if len(values) == 1 else values.T

    def decision_function(self, X: UserRows) -> np.ndarray:
        """Return ``f(x)`` of new rows, or of matrices ``(n_kernels, n_test, n_train)``: ``(n,)`` or ``(n, n_classes)``.

        Raises ValueError if the number of features differs from that of the fit.
        """
        values = self._values(X)
        return values[:, 0] if values.shape[1] == 1 else values

    @one_thread()
    def _values(self, X: UserRows) -> np.ndarray:
        model = self.model_
        if model.precomputed:
            return gram_decision_values(model, np.asarray(in_memory(X)))
        taken, _ = features_of(self._path, X)
        rows: Matrix = sp.csr_array(taken) if sp.issparse(taken) else np.asarray(taken)
        if rows.ndim != 2 or rows.shape[1] != model.n_features:
            raise ValueError(f"X has shape {rows.shape}; the SVM needs {model.n_features} features")
        return row_decision_values(model, model.scaled_rows(rows))

    def predict(self, X: UserRows) -> np.ndarray:
        """Return the predicted class labels or values, ``(n,)``."""
        values = self.decision_function(X)
        return values if self.classes_ is None else predicted_labels(values, self.classes_)

    def predict_proba(self, X: UserRows) -> np.ndarray:
        """Return the class probabilities, ``(n, n_classes)``.

        The first call calibrates them on the training data, which takes about as long as five fits: each of these fits leaves out a fifth
        of the rows and trains an SVM at the same p, on a path of its own.

        Raises ValueError if ``probability`` of the estimator is ``False``, or if the data have changed since the fit.
        """
        calibration = None if self._late is None else self._late.get()
        if calibration is None:
            raise ValueError(
                "probability=False: this SVM has no probabilities; set probability='auto' in the estimator, and call svm_at again"
            )
        return class_probabilities(calibration, self._values(X))
