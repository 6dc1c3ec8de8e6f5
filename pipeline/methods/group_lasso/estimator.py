"""GroupLassoClassifier and GroupLassoRegressor: linear models with few groups of features, learned from a stream or as a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from ....kernels.group_lasso.streams import StreamLearner, StreamPoint
from ....storage.value_types import UserData
from ...estimators.cross_validated import CrossValidated, Grid, Start
from ...estimators.frames import feature_labels, named_groups
from ...estimators.inputs import Column, UserRows, label_array, warn_user
from ...estimators.linear import RESTART, StreamEstimator
from ...estimators.parameters import Parameter
from ...estimators.supervised import SupervisedClassifier, SupervisedRegressor, checked_weight
from ...inputs.labels import Inputs, class_factors
from ...loops.protocol import LoopState
from ...models.linear import LinearModel
from .inputs import chosen_groups, machine_targets
from .learners import LearnerFactory
from .method import GroupLasso
from .rows import UNSCALED, scaled_rows
from .stream_state import StreamState

GROUPS = (
    "One label per feature (a Series goes by the names of features, or of the columns they are made from), the size of groups one after "
    "the other, or a list of arrays of numbers or masks, which may overlap; ``None``: those of a store, else every feature by itself."
)
EDGES = "Edges of a graph of the features, ``(n_edges, 2)``, in the place of groups (graph lasso); a feature without one is by itself."

_GROUPS = Parameter("groups", None, "int or array of int or list of arrays or None", Any, GROUPS)
_EDGES = Parameter("edges", None, "array of int or None", Any, EDGES)


def _takes_streams(estimator: Any) -> bool:
    if isinstance(estimator, CrossValidated):
        raise AttributeError(f"{type(estimator).__name__} needs all rows at once to choose lam; partial_fit is for a lam that is known")
    if estimator.algorithm == "fista":
        raise AttributeError("algorithm='fista' needs all rows at once; partial_fit takes algorithm='da' or 'fobos'")
    return True


class _GroupLasso(StreamEstimator):
    """What classifier and regressor share.

    Attributes
    ----------
    coef_, intercept_
        ``(n_machines, n_features)`` weights, a sparse array from 50,000 features, whose zeros are exact; and ``(n_machines,)``.
    active_groups_
        Labels of the groups with a weight in some machine (of a list of groups, or of edges: their positions in it, behind the edges the
        features that have none; without groups: features).
    objective_, dual_gap_
        Mean loss of the last model plus Omega on the training rows, summed over machines, NaN after ``partial_fit``; and the duality gap of
        the batch optimum, NaN for streams, which have no certificate.
    lam_, lam_max_
        Weight of the penalty, and the least that selects nothing, NaN of a stream.
    n_iter_, converged_, stop_reason_, history_
        Rounds that are closed (of the batch, steps), whether the gap was reached (False for streams, which have no certificate), what ended
        the fit, and figures of every step: rows, losses as they came, penalty, features and groups.
    n_features_in_
        Width of the rows.

    References
    ----------
    Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 3.
    """

    _method = GroupLasso
    _iterations = "rounds"
    _forms = {"accept_sparse": "csr"}
    _own_parameters = {"gamma": _GROUPS, "class_weight": _EDGES}

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

    def _inputs(self, X: object, y: object, sample_weight: object = None) -> Inputs:
        inputs = super()._inputs(X, y, sample_weight)
        return replace(inputs, groups=self._groups(inputs.data.n_cols, inputs.data.groups()))

    def _groups(self, n_features: int, stored: object = None) -> object:
        return chosen_groups(named_groups(self, n_features), self.edges, stored)

    def _keep_run(self, run: GroupLasso, state: LoopState) -> None:
        # A stream goes on from here with partial_fit; rows of a scaled store would not be those that come then.
        if isinstance(state, StreamState) and run.inputs.data.scale.kind == "none":
            loop: Any = run.loop
            self._learners, self._place_in_stream = loop.learners, state.point

    def _unfinished(self, state: LoopState) -> str:
        if isinstance(state, StreamState):
            return ""
        reason = f"max_iter={self.get_params()['max_iter']}" if state.stop == "max_iter" else "round-off"
        return f"{reason} ended the fit at the gap {self.dual_gap_:.3g}"

    def _partial_fit(self, X: UserData, y: UserData, sample_weight: UserData, classes: UserData = None) -> Self:
        """Learn rows in the order given; a round that is not full goes on with the next call."""
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
            reason = "where a stream stands is no part of a saved model, of a batch fit, or of a fit on scaled rows"
            raise ValueError(f"partial_fit cannot go on: {reason}")
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
        """Close the open round of ``partial_fit``, however few rows it has."""
        check_is_fitted(self)
        if self._stream is not None:
            self._stream.finish()
            self._model = None
        return self

    def _stream_model(self) -> LinearModel:
        assert self._stream is not None
        return self._learners.model(self._stream.point(), tuple(self.classes_.tolist()) if self._is_classifier else None, UNSCALED)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Return the names of the features, which are the columns of ``coef_``: of a frame with levels one for each level."""
        check_is_fitted(self)
        names = feature_labels(self) if input_features is None else None
        return np.asarray(_check_feature_names_in(self, input_features) if names is None else names, dtype=object)

    @property
    def active_groups_(self) -> np.ndarray:
        """Labels of the groups with a weight in some machine."""
        return self.model_.arrays["active_groups"]

    @property
    def lam_(self) -> float:
        """Weight of the penalty."""
        return float(self.model_.figures["lam"])

    @property
    def lam_max_(self) -> float:
        """The least weight of the penalty that selects nothing, NaN of a stream."""
        return float(self.model_.figures.get("lambda_max", np.nan))

    @property
    def n_iter_(self) -> int:
        """Closed rounds of a stream, or steps of a batch."""
        return super().n_iter_ if self._stream is None else self._stream.rounds


class GroupLassoClassifier(SupervisedClassifier, _GroupLasso):
    r"""Linear classifier with few groups of features: online group lasso by dual averaging, FOBOS, or the batch optimum.

    .. math::

        \min_{w, b} \frac{1}{n} \sum_i \ell(y_i (\langle w, x_i \rangle + b)) + \Omega(w)

    Several classes are fitted one against the rest, on the same stream.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from gramplane import GroupLassoClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = GroupLassoClassifier(lam=0.05, groups=[k % 10 for k in range(30)], epochs=5).fit(scale(X), y)
    >>> model.coef_.shape
    (1, 30)
    """

    @available_if(_takes_streams)
    def partial_fit(self, X: UserRows, y: Column, classes: Column = None, sample_weight: Column = None) -> Self:
        """Learn rows in the order given; any cut of a stream into calls gives the same bits.

        A round that is not full at the end of a call goes on with the next; predictions use closed rounds (see :meth:`finish`).

        Parameters
        ----------
        X, y
            ``(n, n_features)`` rows and ``(n,)`` labels.
        classes
            All labels there will be; needed at the first call.
        sample_weight
            ``(n,)`` factors of the losses.

        Raises
        ------
        ValueError
            A label that is none of the classes, non-finite data (the row is named), another width; nothing of the call is learned then.
        """
        return self._partial_fit(X, y, sample_weight, classes)


class GroupLassoRegressor(SupervisedRegressor, _GroupLasso):
    r"""Linear regression with few groups of features: online group lasso by dual averaging, FOBOS, or the batch optimum.

    .. math::

        \min_{w, b} \frac{1}{2n} \sum_i (y_i - \langle w, x_i \rangle - b)^2 + \Omega(w)

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from gramplane import GroupLassoRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = GroupLassoRegressor(lam=1, algorithm="fista").fit(20 * X, y)
    >>> bool(model.converged_)
    True
    """

    _own_parameters = {"gamma": _GROUPS, "max_iter": _EDGES}
    _wider = {**_GroupLasso._wider, "loss": ('{"auto", "squared"}', Literal["auto", "squared"])}

    @available_if(_takes_streams)
    def partial_fit(self, X: UserRows, y: Column, sample_weight: Column = None) -> Self:
        """Learn rows in the order given; any cut of a stream into calls gives the same bits.

        A round that is not full at the end of a call goes on with the next; predictions use closed rounds (see :meth:`finish`).

        Parameters
        ----------
        X, y
            ``(n, n_features)`` rows and ``(n,)`` numbers.
        sample_weight
            ``(n,)`` factors of the losses.

        Raises
        ------
        ValueError
            Non-finite data (the row is named), another width; nothing of the call is learned then.
        """
        return self._partial_fit(X, y, sample_weight)


class _GroupLassoPath(CrossValidated):
    """Chooses ``lam`` by cross-validation; the fits of a fold follow a path from the largest value down, each from the groups and weights
    of the one before, over the same moments or columns.

    Attributes
    ----------
    lam_
        Weight of the penalty that was chosen.
    lams_
        Values that were compared, descending.
    """

    _grids = (
        Grid(
            "lam",
            "lams",
            10,
            "Values of lam; a number of them is spread evenly in the logarithm from the least that selects nothing, ``lam_max``, to a "
            "thousandth of it; to a hundredth where there are more features than rows.",
            descending=True,
        ),
    )

    def _default_values(self, grid: Grid, count: int, start: Start) -> np.ndarray:
        config, inputs, ctx = start
        batch: UserData = GroupLasso.start(config.model_copy(update={"lam": "auto", "algorithm": "fista"}), inputs, ctx).loop
        largest = batch.result(batch.step(batch.init(ctx), ctx).state).lambda_max
        decades = 2 if inputs.data.n_cols > inputs.data.n_rows else 3
        return (largest or 1.0) * np.logspace(0, -decades, count)

    @property
    def lam_(self) -> float:
        """Weight of the penalty that was chosen."""
        return self.best_params_["lam"]


class GroupLassoClassifierCV(_GroupLassoPath, GroupLassoClassifier):
    r"""Linear classifier with few groups of features, its ``lam`` chosen by cross-validation along a path.

    The problem is that of :class:`GroupLassoClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from gramplane import GroupLassoClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = GroupLassoClassifierCV(groups=[k % 10 for k in range(30)], lams=5).fit(scale(X), y)
    >>> model.best_score_ > 0.95, model.lam_ < model.lam_max_
    (True, True)
    """


class GroupLassoRegressorCV(_GroupLassoPath, GroupLassoRegressor):
    r"""Linear regression with few groups of features, its ``lam`` chosen by cross-validation along a path.

    The problem is that of :class:`GroupLassoRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from gramplane import GroupLassoRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = GroupLassoRegressorCV(lams=5).fit(20 * X, y)
    >>> model.cv_results_["mean_test_score"].shape, model.best_score_ > 0.4
    ((5,), True)
    """
