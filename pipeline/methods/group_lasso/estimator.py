"""GroupLassoClassifier and GroupLassoRegressor: linear models with a few groups of features, learned from a stream or as a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from ....kernels.group_lasso.streams import StreamLearner, StreamPoint
from ....kernels.jit import one_thread
from ....storage.errors import UserData
from ...core.result import State
from ...estimators.base import Classifier, Regressor, checked_weight
from ...estimators.cv import CrossValidated, Grid, Start
from ...estimators.frames import feature_labels, named_groups
from ...estimators.inputs import Callbacks, Column, Seed, UserRows, label_array, warn_user
from ...estimators.streams import RESTART, StreamEstimator
from ...inputs.labels import Inputs, class_factors
from ...models.linear import LinearModel
from ...records.config import MethodConfig
from .batch_problem import BatchProblem
from .inputs import chosen_groups, machine_targets
from .learners import LearnerFactory
from .method import GroupLasso
from .rows import UNSCALED, scaled_rows
from .stream_problem import StreamState


def _takes_streams(estimator: Any) -> bool:
    if isinstance(estimator, CrossValidated):
        raise AttributeError(
            f"{type(estimator).__name__} needs all rows at once to choose lam; use the estimator without CV, with a fixed lam"
        )
    if estimator.algorithm == "fista":
        raise AttributeError("algorithm='fista' needs all rows at once; partial_fit takes algorithm='da' or 'fobos'")
    return True


class _GroupLasso(StreamEstimator):
    """Base class of classifier and regressor."""

    _method = GroupLasso()
    _iterations = "rounds"
    _forms = {"accept_sparse": "csr"}

    groups: Any
    edges: Any
    _learners: LearnerFactory
    _place_in_stream: StreamLearner | StreamPoint | None = None

    @property
    def _stream(self) -> StreamLearner | None:  # pyright: ignore[reportIncompatibleVariableOverride] (made when it is asked for)
        # Most fits take no more rows: the learner that would is made from where they ended.
        if isinstance(self._place_in_stream, StreamPoint):
            self._place_in_stream = self._learners.learner(self._place_in_stream)
        return self._place_in_stream

    @_stream.setter
    def _stream(self, learner: StreamLearner | None) -> None:
        self._place_in_stream = learner

    def _inputs(self, X: object, y: object, sample_weight: object = None, *, config: MethodConfig | None = None) -> Inputs:
        inputs = super()._inputs(X, y, sample_weight, config=config)
        return replace(inputs, groups=self._groups(inputs.data.n_cols, inputs.data.groups()))

    def _groups(self, n_features: int, stored: object = None) -> object:
        return chosen_groups(named_groups(self, n_features), self.edges, stored)

    def _keep_run(self, problem: Any, inputs: Inputs, state: State) -> None:
        # A stream goes on from here with partial_fit; rows of a scaled store would not be those that come then.
        if isinstance(state, StreamState) and inputs.data.scale.kind == "none":
            self._learners, self._place_in_stream = problem.learners, state.point

    @one_thread()
    def _partial_fit(self, X: UserData, y: UserData, sample_weight: UserData, classes: UserData = None) -> Self:
        """Learn from rows in the given order. If the last round of the previous call was incomplete, this call continues it."""
        first = self._stream is None
        if first:
            self._begin(classes)
        elif classes is not None and not np.array_equal(classes, self.classes_) and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={list(classes)!r} is not the same as on the first call: {self.classes_.tolist()}")
        X, y = self._read(X, y, reset=first)
        rows, y = scaled_rows(X, 0, UNSCALED), label_array(y)
        weight = np.ones(len(y)) if sample_weight is None else checked_weight(sample_weight, len(y))
        target: np.ndarray = self._codes(y) if self._is_classifier else np.asarray(y, np.float64)
        groups = self._groups(X.shape[1])
        inputs = Inputs(None, target, tuple(self.classes_.tolist()) if self._is_classifier else None, None, groups)
        if self._stream is None:
            self._learners = LearnerFactory.create(self._config(), inputs, X.shape[1])
            self._stream = self._learners.learner()
        class_weight = getattr(self, "class_weight", None)
        if isinstance(class_weight, Mapping):
            weight = weight * class_factors(self._config().class_weight or {}, inputs.labels, target)[target]
        told = self._stream.watch.message
        self._stream.take(rows, machine_targets(inputs), weight)
        self._model, self.converged_, self.history_ = None, False, {}
        if not told:
            self._warn_unfinished(False, self._stream.watch.message)
        return self

    def _begin(self, classes: UserData) -> None:
        config = self._config()
        if self._model is not None and config.algorithm == "auto" and not np.isnan(self.dual_gap_):
            warn_user(RESTART)
            classes = self.classes_ if classes is None and self._is_classifier else classes
        elif self._model is not None:
            reason = "the estimator was loaded, fitted as a batch, or fitted on scaled rows; use a new estimator"
            raise ValueError(f"partial_fit cannot continue a stream: {reason}")
        if not self._is_classifier:
            return
        if classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if config.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs all rows at once; give a dict of factors to partial_fit")
        self.classes_ = np.unique(label_array(np.asarray(classes)))
        if len(self.classes_) < 2:
            raise ValueError(f"classes={list(classes)!r}: a classifier needs at least two")

    def _codes(self, y: np.ndarray) -> np.ndarray:
        # Labels of another kind cannot be sorted in among the classes.
        is_alike = (np.asarray(y).dtype.kind in "OUS") == (self.classes_.dtype.kind in "OUS")
        codes: Any = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1) if is_alike else np.zeros(len(y), np.int64)
        unknown = np.flatnonzero(self.classes_[codes] != y) if is_alike else np.zeros(1, np.int64)
        if unknown.size:
            k = int(unknown[0])
            raise ValueError(f"y[{k}] is {np.asarray(y)[k]!r}, which is not one of the classes {self.classes_.tolist()}")
        return codes

    def finish(self) -> Self:
        """Complete the current round of ``partial_fit``, even if it has fewer than ``batch_size`` rows."""
        check_is_fitted(self)
        if self._stream is not None:
            self._stream.finish()
            self._model = None
        return self

    def _stream_model(self) -> LinearModel:
        assert self._stream is not None
        return self._learners.model(self._stream.point(), tuple(self.classes_.tolist()) if self._is_classifier else None, UNSCALED)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Return the names of the columns of ``coef_``. A categorical column of a data frame has one name per category."""
        check_is_fitted(self)
        names = feature_labels(self) if input_features is None else None
        return np.asarray(_check_feature_names_in(self, input_features) if names is None else names, dtype=object)

    @property
    def active_groups_(self) -> np.ndarray:
        """Labels of the groups with a non-zero weight in any one-vs-rest model."""
        return self.model_.arrays["active_groups"]

    @property
    def lam_(self) -> float:
        """Weight of the penalty."""
        return float(self.model_.figures["lam"])

    @property
    def lam_max_(self) -> float:
        """Smallest ``lam`` that selects nothing; NaN for a stream."""
        return float(self.model_.figures.get("lambda_max", np.nan))

    @property
    def n_iter_(self) -> int:
        """Number of completed rounds of a stream, or of steps of a batch."""
        return super().n_iter_ if self._stream is None else self._stream.rounds


class GroupLassoClassifier(_GroupLasso, Classifier):
    r"""Linear classifier with a few groups of features: online group lasso by dual averaging or FOBOS, or the batch optimum.

    .. math::

        \min_{w, b} \frac{1}{n} \sum_i \ell(y_i (\langle w, x_i \rangle + b)) + \Omega(w)

    Several classes are fitted one-vs-rest, on the same stream.

    Parameters
    ----------
    penalty : {"gl", "sgl", "egl", "l1", "linf"}, default='gl'
        Penalty Omega. ``"gl"``, group lasso: lam sum_g sqrt(d_g) ||w_g||. ``"sgl"``, sparse group lasso: lam sum_g (sqrt(d_g) ||w_g|| + r_g
        ||w_g||_1). ``"egl"``: as ``"sgl"``, with a threshold that decays over the rounds (see ``rho``). ``"l1"``: lam ||w||_1.
        ``"linf"``: lam sum_g d_g ||w_g||_inf (L1,inf); the weights of a group tend to one size. The batch solver of the hinge loss does
        not have it.
    lam : float >= 0 or {"auto"}, default='auto'
        Regularisation strength: weight of the penalty, which is added to the mean loss. A group g of d_g features costs lam sqrt(d_g)
        ||w_g||. ``"auto"``: min(0.6 log(2 G) / n, 0.3) times the smallest ``lam`` that selects nothing, for G groups and n rows; 0.01 for a
        stream. The value used is stored in ``lam_``.
    gamma : float > 0, default=1.0
        With ``"da"``: weight of the proximity term, gamma / sqrt(t) in round t. With ``"fobos"``: step sizes are 1 / (gamma sqrt(t)).
    groups : int or array of int or list of arrays or None, default=None
        Groups of features: one label per feature (a Series is matched by the names of features, or of the columns they are made from), the
        size of consecutive groups, or a list of arrays of indices or masks, which may overlap. ``None``: the groups of the store, else each
        feature is its own group.
    r : float >= 0 or list of float >= 0, default=1.0
        With ``"sgl"`` and ``"egl"``: weight of the l1 norm within groups: lam r_g ||w_g||_1 is added to the penalty. One number, or one per
        group.
    group_weight : array of float > 0 or None, default=None
        Weight of each group in the penalty, one number per group, in place of sqrt(d_g) (``"linf"``: d_g). Groups are in ascending order of
        their labels, or in the order of the list of groups or edges (then the features without an edge). Without groups, and with
        ``"l1"``, one number per feature.
    rho : float >= 0, default=0.0
        With ``"egl"``: l1 part of the proximity term. The threshold of round t is lam r_g + rho gamma / sqrt(t).
    algorithm : {"auto", "da", "fobos", "fista"}, default='auto'
        Solver: ``"da"`` is dual averaging in rounds of rows; ``"fobos"`` is forward-backward splitting over the same rows;
        ``"fista"`` finds the batch optimum and its duality gap. ``"auto"`` is ``"da"`` in ``partial_fit``, for text that is read once,
        with ``lam=0``, or if a stream parameter (``gamma``, ``rho``, ``epochs``, ``batch_size``, ``shuffle``, ``average``) differs from its
        default. Otherwise it is ``"fista"``.
    epochs : int >= 1, default=1
        With ``"da"`` and ``"fobos"``: number of passes over the rows.
    batch_size : int >= 1, default=1
        With ``"da"`` and ``"fobos"``: number of rows per round.
    shuffle : bool, default=True
        With ``"da"`` and ``"fobos"``: shuffle the blocks of rows, and the rows within a block, anew in each epoch; ``random_state`` is the
        seed. ``partial_fit`` keeps the order of the rows.
    fit_intercept : bool, default=True
        Fit an unpenalised intercept. In a stream its step sizes do not depend on ``gamma``, ``batch_size`` or the scale of the features.
    average : bool, default=False
        With ``"da"``: predict with the mean of all iterates. This costs a pass over all coefficients per round.
    loss : {"auto", "logistic", "squared", "hinge"}, default='auto'
        Loss of a row. ``"auto"``: logistic for classes, squared for real targets. ``"fista"`` solves logistic loss by Newton steps, squared
        loss by descent on the moments, and hinge loss by an interior-point path.
    tol : float > 0, default=0.0001
        With ``"fista"``: stopping tolerance, duality gap relative to the objective.
    max_iter : int >= 1, default=1000
        With ``"fista"``: largest number of steps.
    class_weight : {"balanced"} or dict or None, default=None
        Factors of the loss per class. ``"balanced"`` is not available for a stream that is read once or in ``partial_fit``.
    edges : array of int or None, default=None
        Edges of a graph of features, ``(n_edges, 2)``, that replace ``groups`` (graph lasso). A feature without an edge forms its own
        group.
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
    coef_, intercept_
        Weights ``(n_machines, n_features)`` with exact zeros, a sparse array from 50,000 features on. Intercepts ``(n_machines,)``.
    active_groups_
        Labels of the groups with a non-zero weight in any one-vs-rest model. With a list of groups or with edges, the positions of the
        active groups in that list; features without an edge are numbered after the edges. Without groups, indices of features.
    objective_, dual_gap_
        Mean loss plus Omega of the final model on the training rows, summed over one-vs-rest models (NaN after ``partial_fit``); and the
        duality gap of the batch problem (NaN for streams, which have no certificate).
    lam_, lam_max_
        Value of ``lam`` used, and the smallest that selects nothing (NaN for a stream).
    n_iter_, converged_, stop_reason_, history_
        Number of completed rounds (batch: steps), whether ``tol`` was reached (False for streams, which have no certificate), the reason
        for stopping, and quantities of every step: rows, progressive losses, penalty, features and groups.
    n_features_in_
        Number of features.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from gramplane import GroupLassoClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = GroupLassoClassifier(
    ...     lam=0.05, groups=[k % 10 for k in range(30)], epochs=5
    ... ).fit(scale(X), y)
    >>> model.active_groups_.tolist(), round(model.score(scale(X), y), 2)
    ([0, 1, 2, 6, 7], 0.94)

    References
    ----------
    Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 3.
    """

    def __init__(
        self,
        penalty: Literal["gl", "sgl", "egl", "l1", "linf"] = "gl",
        lam: float | Literal["auto"] = "auto",
        gamma: float = 1.0,
        groups: Any = None,
        r: float | list[float] = 1.0,
        group_weight: Sequence[float] | np.ndarray | None = None,
        rho: float = 0.0,
        algorithm: Literal["auto", "da", "fobos", "fista"] = "auto",
        epochs: int = 1,
        batch_size: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = True,
        average: bool = False,
        loss: Literal["auto", "logistic", "squared", "hinge"] = "auto",
        tol: float = 0.0001,
        max_iter: int = 1000,
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        edges: Any = None,
        probability: Literal["auto", "sigmoid", "isotonic", False] = "auto",
        scale: Literal["auto", "standard", "max-abs", "unit-column"] | None = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.penalty = penalty
        self.lam = lam
        self.gamma = gamma
        self.groups = groups
        self.r = r
        self.group_weight = group_weight
        self.rho = rho
        self.algorithm = algorithm
        self.epochs = epochs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.fit_intercept = fit_intercept
        self.average = average
        self.loss = loss
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.edges = edges
        self.probability = probability
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    @available_if(_takes_streams)
    def partial_fit(self, X: UserRows, y: Column, classes: Column = None, sample_weight: Column = None) -> Self:
        """Learn from rows in the given order. The model does not depend on how the stream is divided into calls.

        If the last round of a call is incomplete, the next call continues it. Predictions use completed rounds only (see :meth:`finish`).

        Parameters
        ----------
        X, y
            ``(n, n_features)`` rows and ``(n,)`` labels.
        classes
            All labels that will occur; required at the first call.
        sample_weight
            ``(n,)`` factors of the losses.

        Raises
        ------
        ValueError
            Unknown label, non-finite data (the message names the row) or another number of features. The model is then unchanged.
        """
        return self._partial_fit(X, y, sample_weight, classes)


class GroupLassoRegressor(_GroupLasso, Regressor):
    r"""Linear regression with a few groups of features: online group lasso by dual averaging or FOBOS, or the batch optimum.

    .. math::

        \min_{w, b} \frac{1}{2n} \sum_i (y_i - \langle w, x_i \rangle - b)^2 + \Omega(w)

    Parameters
    ----------
    penalty : {"gl", "sgl", "egl", "l1", "linf"}, default='gl'
        Penalty Omega. ``"gl"``, group lasso: lam sum_g sqrt(d_g) ||w_g||. ``"sgl"``, sparse group lasso: lam sum_g (sqrt(d_g) ||w_g|| + r_g
        ||w_g||_1). ``"egl"``: as ``"sgl"``, with a threshold that decays over the rounds (see ``rho``). ``"l1"``: lam ||w||_1.
        ``"linf"``: lam sum_g d_g ||w_g||_inf (L1,inf); the weights of a group tend to one size. The batch solver of the hinge loss does
        not have it.
    lam : float >= 0 or {"auto"}, default='auto'
        Regularisation strength: weight of the penalty, which is added to the mean loss. A group g of d_g features costs lam sqrt(d_g)
        ||w_g||. ``"auto"``: min(0.6 log(2 G) / n, 0.3) times the smallest ``lam`` that selects nothing, for G groups and n rows; 0.01 for a
        stream. The value used is stored in ``lam_``.
    gamma : float > 0, default=1.0
        With ``"da"``: weight of the proximity term, gamma / sqrt(t) in round t. With ``"fobos"``: step sizes are 1 / (gamma sqrt(t)).
    groups : int or array of int or list of arrays or None, default=None
        Groups of features: one label per feature (a Series is matched by the names of features, or of the columns they are made from), the
        size of consecutive groups, or a list of arrays of indices or masks, which may overlap. ``None``: the groups of the store, else each
        feature is its own group.
    r : float >= 0 or list of float >= 0, default=1.0
        With ``"sgl"`` and ``"egl"``: weight of the l1 norm within groups: lam r_g ||w_g||_1 is added to the penalty. One number, or one per
        group.
    group_weight : array of float > 0 or None, default=None
        Weight of each group in the penalty, one number per group, in place of sqrt(d_g) (``"linf"``: d_g). Groups are in ascending order of
        their labels, or in the order of the list of groups or edges (then the features without an edge). Without groups, and with
        ``"l1"``, one number per feature.
    rho : float >= 0, default=0.0
        With ``"egl"``: l1 part of the proximity term. The threshold of round t is lam r_g + rho gamma / sqrt(t).
    algorithm : {"auto", "da", "fobos", "fista"}, default='auto'
        Solver: ``"da"`` is dual averaging in rounds of rows; ``"fobos"`` is forward-backward splitting over the same rows;
        ``"fista"`` finds the batch optimum and its duality gap. ``"auto"`` is ``"da"`` in ``partial_fit``, for text that is read once,
        with ``lam=0``, or if a stream parameter (``gamma``, ``rho``, ``epochs``, ``batch_size``, ``shuffle``, ``average``) differs from its
        default. Otherwise it is ``"fista"``.
    epochs : int >= 1, default=1
        With ``"da"`` and ``"fobos"``: number of passes over the rows.
    batch_size : int >= 1, default=1
        With ``"da"`` and ``"fobos"``: number of rows per round.
    shuffle : bool, default=True
        With ``"da"`` and ``"fobos"``: shuffle the blocks of rows, and the rows within a block, anew in each epoch; ``random_state`` is the
        seed. ``partial_fit`` keeps the order of the rows.
    fit_intercept : bool, default=True
        Fit an unpenalised intercept. In a stream its step sizes do not depend on ``gamma``, ``batch_size`` or the scale of the features.
    average : bool, default=False
        With ``"da"``: predict with the mean of all iterates. This costs a pass over all coefficients per round.
    loss : {"auto", "squared"}, default='auto'
        Loss of a row. ``"auto"``: logistic for classes, squared for real targets. ``"fista"`` solves logistic loss by Newton steps, squared
        loss by descent on the moments, and hinge loss by an interior-point path.
    tol : float > 0, default=0.0001
        With ``"fista"``: stopping tolerance, duality gap relative to the objective.
    max_iter : int >= 1, default=1000
        With ``"fista"``: largest number of steps.
    edges : array of int or None, default=None
        Edges of a graph of features, ``(n_edges, 2)``, that replace ``groups`` (graph lasso). A feature without an edge forms its own
        group.
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
    coef_, intercept_
        Weights ``(1, n_features)`` with exact zeros, a sparse array from 50,000 features on. Intercept ``(1,)``.
    active_groups_
        Labels of the groups with a non-zero weight. With a list of groups or with edges, the positions of the
        active groups in that list; features without an edge are numbered after the edges. Without groups, indices of features.
    objective_, dual_gap_
        Mean loss plus Omega of the final model on the training rows (NaN after ``partial_fit``); and the duality
        gap of the batch problem (NaN for streams, which have no certificate).
    lam_, lam_max_
        Value of ``lam`` used, and the smallest that selects nothing (NaN for a stream).
    n_iter_, converged_, stop_reason_, history_
        Number of completed rounds (batch: steps), whether ``tol`` was reached (False for streams, which have no certificate), the reason
        for stopping, and quantities of every step: rows, progressive losses, penalty, features and groups.
    n_features_in_
        Number of features.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from gramplane import GroupLassoRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = GroupLassoRegressor(lam=1, algorithm="fista").fit(20 * X, y)
    >>> model.active_groups_.tolist(), round(model.score(20 * X, y), 2)
    ([1, 2, 3, 4, 6, 8, 9], 0.51)

    References
    ----------
    Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 3.
    """

    def __init__(
        self,
        penalty: Literal["gl", "sgl", "egl", "l1", "linf"] = "gl",
        lam: float | Literal["auto"] = "auto",
        gamma: float = 1.0,
        groups: Any = None,
        r: float | list[float] = 1.0,
        group_weight: Sequence[float] | np.ndarray | None = None,
        rho: float = 0.0,
        algorithm: Literal["auto", "da", "fobos", "fista"] = "auto",
        epochs: int = 1,
        batch_size: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = True,
        average: bool = False,
        loss: Literal["auto", "squared"] = "auto",
        tol: float = 0.0001,
        max_iter: int = 1000,
        edges: Any = None,
        scale: Literal["auto", "standard", "max-abs", "unit-column"] | None = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.penalty = penalty
        self.lam = lam
        self.gamma = gamma
        self.groups = groups
        self.r = r
        self.group_weight = group_weight
        self.rho = rho
        self.algorithm = algorithm
        self.epochs = epochs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.fit_intercept = fit_intercept
        self.average = average
        self.loss = loss
        self.tol = tol
        self.max_iter = max_iter
        self.edges = edges
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    @available_if(_takes_streams)
    def partial_fit(self, X: UserRows, y: Column, sample_weight: Column = None) -> Self:
        """Learn from rows in the given order. The model does not depend on how the stream is divided into calls.

        If the last round of a call is incomplete, the next call continues it. Predictions use completed rounds only (see :meth:`finish`).

        Parameters
        ----------
        X, y
            ``(n, n_features)`` rows and ``(n,)`` numbers.
        sample_weight
            ``(n,)`` factors of the losses.

        Raises
        ------
        ValueError
            Non-finite data (the message names the row) or another number of features. The model is then unchanged.
        """
        return self._partial_fit(X, y, sample_weight)


class _GroupLassoPath(CrossValidated):
    """Choice of ``lam`` by cross-validation. The fits of a fold follow a path of decreasing values on the same moments or columns; each
    starts from the groups and weights of the previous one.
    """

    _grids = (Grid("lam", "lams", descending=True),)

    def _default_values(self, grid: Grid, count: int, start: Start) -> np.ndarray:
        config, inputs, ctx = start
        batch = BatchProblem.of(config.model_copy(update={"lam": "auto", "algorithm": "fista"}), inputs, ctx)
        largest = batch.solution(batch.step(batch.init(ctx), ctx).state).lambda_max
        decades = 2 if inputs.data.n_cols > inputs.data.n_rows else 3
        return (largest or 1.0) * np.logspace(0, -decades, count)

    @property
    def lam_(self) -> float:
        """Chosen ``lam``."""
        return self.best_params_["lam"]


class GroupLassoClassifierCV(_GroupLassoPath, GroupLassoClassifier):
    """Linear classifier with a few groups of features, with ``lam`` chosen by cross-validation along a path.

    See :class:`GroupLassoClassifier` for the problem, the other parameters and further attributes.

    Parameters
    ----------
    lams : int or list of float, default=10
        Values of ``lam`` to compare. A number means that many values, evenly spaced in the logarithm from ``lam_max``, the smallest that
        selects nothing, to a thousandth of it; to a hundredth if there are more features than rows.
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
    lam_
        Chosen ``lam``.
    lams_
        Values compared, in descending order.
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
    >>> from sklearn.preprocessing import scale
    >>> from gramplane import GroupLassoClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = GroupLassoClassifierCV(
    ...     groups=[k % 10 for k in range(30)], lams=5
    ... ).fit(scale(X), y)
    >>> model.active_groups_.tolist(), round(model.best_score_, 2)
    ([0, 1, 4, 5, 6, 7, 8, 9], 0.97)
    """

    def __init__(
        self,
        penalty: Literal["gl", "sgl", "egl", "l1", "linf"] = "gl",
        lams: int | Sequence[float] | None = 10,
        gamma: float = 1.0,
        groups: Any = None,
        r: float | list[float] = 1.0,
        group_weight: Sequence[float] | np.ndarray | None = None,
        rho: float = 0.0,
        algorithm: Literal["auto", "da", "fobos", "fista"] = "auto",
        epochs: int = 1,
        batch_size: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = True,
        average: bool = False,
        loss: Literal["auto", "logistic", "squared", "hinge"] = "auto",
        tol: float = 0.0001,
        max_iter: int = 1000,
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        edges: Any = None,
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
        self.penalty = penalty
        self.lams = lams
        self.gamma = gamma
        self.groups = groups
        self.r = r
        self.group_weight = group_weight
        self.rho = rho
        self.algorithm = algorithm
        self.epochs = epochs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.fit_intercept = fit_intercept
        self.average = average
        self.loss = loss
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.edges = edges
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


class GroupLassoRegressorCV(_GroupLassoPath, GroupLassoRegressor):
    """Linear regression with a few groups of features, with ``lam`` chosen by cross-validation along a path.

    See :class:`GroupLassoRegressor` for the problem, the other parameters and further attributes.

    Parameters
    ----------
    lams : int or list of float, default=10
        Values of ``lam`` to compare. A number means that many values, evenly spaced in the logarithm from ``lam_max``, the smallest that
        selects nothing, to a thousandth of it; to a hundredth if there are more features than rows.
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
    lam_
        Chosen ``lam``.
    lams_
        Values compared, in descending order.
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
    >>> from gramplane import GroupLassoRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = GroupLassoRegressorCV(lams=5).fit(20 * X, y)
    >>> model.active_groups_.tolist(), round(model.best_score_, 2)
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 0.49)
    """

    def __init__(
        self,
        penalty: Literal["gl", "sgl", "egl", "l1", "linf"] = "gl",
        lams: int | Sequence[float] | None = 10,
        gamma: float = 1.0,
        groups: Any = None,
        r: float | list[float] = 1.0,
        group_weight: Sequence[float] | np.ndarray | None = None,
        rho: float = 0.0,
        algorithm: Literal["auto", "da", "fobos", "fista"] = "auto",
        epochs: int = 1,
        batch_size: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = True,
        average: bool = False,
        loss: Literal["auto", "squared"] = "auto",
        tol: float = 0.0001,
        max_iter: int = 1000,
        edges: Any = None,
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
        self.penalty = penalty
        self.lams = lams
        self.gamma = gamma
        self.groups = groups
        self.r = r
        self.group_weight = group_weight
        self.rho = rho
        self.algorithm = algorithm
        self.epochs = epochs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.fit_intercept = fit_intercept
        self.average = average
        self.loss = loss
        self.tol = tol
        self.max_iter = max_iter
        self.edges = edges
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
