"""MultiTaskSelector: linear models for many tasks that share features, learned in rounds of one row per task or as a batch."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import ClassifierTags, RegressorTags, Tags, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ....kernels.group_lasso.task_selection import TaskStream
from ....kernels.jit import one_thread
from ....storage.data import is_store
from ...estimators.base import checked_weight, has_probabilities, log_of, predicted_labels
from ...estimators.inputs import Callbacks, Column, Seed, UserRows, label_array, score_of, warn_user
from ...estimators.kernels import is_text
from ...estimators.selection import Selection
from ...estimators.streams import RESTART, StreamEstimator
from ...estimators.tasks import add_tasks
from ...inputs.labels import Inputs, class_factors
from ...inputs.tasks import known_codes, task_codes
from ...models.linear import LinearModel
from ...passes.columns import fetch_columns
from ...passes.scaling import inverse_row_norms
from .inputs import task_rows
from .method import Selector, selected_weights, stream_model
from .partial_fit import TaskLearner
from .problem import SelectorProblem
from .rounds_problem import SelectorState


def _classifies(estimator: Any) -> bool:
    return estimator.loss != "squared"


def _takes_streams(estimator: Any) -> bool:
    """Return True if the estimator can learn rows one by one; raises AttributeError otherwise."""
    needs_all_rows = {
        "algorithm": estimator.algorithm == "fista",
        "refit": estimator.refit is not None,
        "task_offset": estimator.task_offset is not None,
        "class_weight": isinstance(estimator.class_weight, str),
    }
    for name, needs in needs_all_rows.items():
        if needs:
            raise AttributeError(f"{name}={getattr(estimator, name)!r} needs all rows at once, which only fit has")
    return True


class MultiTaskSelector(Selection, StreamEstimator):
    r"""Linear models for many tasks that select features jointly, learned online by dual averaging or as a batch.

    .. math::

        \min_{W, b} \sum_q \frac{1}{n_q} \sum_i \ell(y_{qi}, \langle w_q, x_{qi} \rangle + b_q) + \Omega(W)

    over tasks q. The weight matrix has a row :math:`W_j` per feature, and the penalty is :math:`\Omega = \lambda \sum_{jq} |W_{jq}|`
    (``"imtfs"``), :math:`\lambda \sum_j \|W_j\|_2` (``"amtfs"``), :math:`\lambda \sum_j (\|W_j\|_2 + r \|W_j\|_1)` (``"mtfts"``), or
    :math:`\lambda \sum_j \|W_j\|_p` (``"lp1"``).
    Online, round t takes one row of each task that still has rows. The weights minimise :math:`\langle \bar G, W \rangle + \Omega(W) +
    \gamma / (2 \sqrt t) \|W\|^2` in closed form, with the mean subgradient :math:`\bar G`. The estimator is a regressor with
    ``loss="squared"``, else a classifier of two classes.

    Parameters
    ----------
    penalty : {"imtfs", "amtfs", "mtfts", "lp1"}, default='mtfts'
        ``"imtfs"``: each task selects its own features. ``"amtfs"``: all tasks select the same features. ``"mtfts"``: each task uses some
        of the features that are selected for all. ``"lp1"``: ``p`` says how much tasks share. The batch solver of the hinge loss has it
        only for p = 1 and 2.
    lam : float >= 0 or {"auto"}, default='auto'
        Regularisation strength: weight of the penalty relative to the mean losses of the tasks. ``"auto"``: min(1.2 Q log(2 d) / n, 0.3)
        times the smallest ``lam`` that selects nothing, for Q tasks, d features and n rows; 0.1 for a stream. The value used is stored in
        ``lam_``.
    gamma : float > 0, default=1.0
        With ``"da"``: weight of the proximity term, gamma / sqrt(t) in round t. With ``"fobos"``: step sizes are 1 / (gamma sqrt(t)). It
        should be of the order of the squared norms of the rows; otherwise predictions diverge.
    r : float >= 0, default=0.01
        With ``"mtfts"``: relative weight of the l1 norm; ``lam r sum |W_jq|`` is added to ``lam sum_j ||W_j||``.
    p : 1 <= float <= inf, default=2.0
        With ``"lp1"``: norm of the weights of a feature over the tasks. 1 is ``"imtfs"``, 2 is ``"amtfs"``; with ``inf`` only the largest
        weight counts, so that weights tend to one size.
    loss : {"squared", "logistic", "hinge"}, default='squared'
        Loss of a row: ``"squared"``, (y - f)^2 / 2, for numbers; the others for two classes.
    algorithm : {"auto", "da", "fobos", "fista"}, default='auto'
        Solver: ``"da"`` is dual averaging over rounds of one row per task; ``"fobos"`` is forward-backward splitting (4.10) over the same
        rounds, each of which costs a pass over all features; ``"fista"`` finds the batch optimum and its duality gap.
        ``"auto"`` is ``"da"`` in ``partial_fit``, with ``lam=0``, or if ``gamma``, ``epochs`` or ``shuffle`` differs from its default;
        otherwise it is ``"fista"``.
    epochs : int >= 1, default=1
        With ``"da"`` and ``"fobos"``: number of passes over the rows.
    shuffle : bool, default=True
        With ``"da"`` and ``"fobos"``: shuffle the rows of every task anew in each epoch; ``random_state`` is the seed. Otherwise round k
        takes the k-th row of every task.
    fit_intercept : bool, default=True
        Fit an unpenalised intercept for every task. With ``task_offset``, the offset replaces the intercept.
    task_offset : {"mean", "shrunken"} or None, default=None
        For squared loss: offset that is subtracted from the target before the fit and added to predictions. ``"mean"``: the mean of all
        training rows. ``"shrunken"``: the mean of each task, shrunk towards the mean of all rows; the fewer rows of positive weight a task
        has, the more it is shrunk.
    refit : float >= 0 or None, default=None
        Refit the selected features alone with this value of ``lam``: a strong penalty selects features, a weak one gives better weights.
    tol : float > 0, default=0.0001
        With ``"fista"``: stopping tolerance, duality gap relative to the objective.
    max_iter : int >= 1, default=1000
        With ``"fista"``: largest number of sweeps (squared), Newton steps (logistic) or steps of the interior-point path (hinge).
    class_weight : {"balanced"} or dict or None, default=None
        Factors of the loss per class. ``"balanced"`` is not available in ``partial_fit``.
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
    tasks_, classes_
        Names of the tasks, and the two classes.
    coef_, intercept_
        ``(n_tasks, n_features)``, sparse for wide data; and ``(n_tasks,)``, offsets included.
    lam_
        Value of ``lam`` used.
    objective_, dual_gap_
        Objective of the batch problem at the weights (with ``refit``, of the second fit), and its distance to the optimum, NaN for
        ``"da"`` and ``"fobos"``.
    n_iter_, converged_, stop_reason_, history_
        Number of rounds or sweeps, whether ``tol`` was reached (False for ``"da"`` and ``"fobos"``, which have no certificate), the reason
        for stopping, and one array per quantity over the steps.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Notes
    -----
    :meth:`partial_fit` takes rows in the order given. A round is complete when it has a row of every task, or when a task occurs a second
    time. Models use complete rounds only, so that results do not depend on how the rows are divided into calls, to the last bit.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import MultiTaskSelector
    >>> rng = np.random.default_rng(0)
    >>> X, task = rng.normal(size=(300, 20)), np.repeat(["a", "b", "c"], 100)
    >>> y = X[:, 3] + (task == "b") * X[:, 5] + 0.1 * rng.normal(size=300)
    >>> model = MultiTaskSelector(lam=0.3, algorithm="fista").fit(X, y, task)
    >>> model.get_support(indices=True)
    array([3, 5])

    References
    ----------
    Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 4.
    """

    _method = Selector()
    _needs_target = True

    algorithm: str
    loss: str
    tol: float
    max_iter: int
    tasks_: np.ndarray
    _stream: TaskLearner | None = None

    def __init__(
        self,
        penalty: Literal["imtfs", "amtfs", "mtfts", "lp1"] = "mtfts",
        lam: float | Literal["auto"] = "auto",
        gamma: float = 1.0,
        r: float = 0.01,
        p: float = 2.0,
        loss: Literal["squared", "logistic", "hinge"] = "squared",
        algorithm: Literal["auto", "da", "fobos", "fista"] = "auto",
        epochs: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = True,
        task_offset: Literal["mean", "shrunken"] | None = None,
        refit: float | None = None,
        tol: float = 0.0001,
        max_iter: int = 1000,
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
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
        self.r = r
        self.p = p
        self.loss = loss
        self.algorithm = algorithm
        self.epochs = epochs
        self.shuffle = shuffle
        self.fit_intercept = fit_intercept
        self.task_offset = task_offset
        self.refit = refit
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.probability = probability
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if _classifies(self):
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags(multi_class=False)
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags

    @property
    def _is_classifier(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] (it depends on the loss)
        return _classifies(self)

    def fit(self, X: UserRows, y: Column = None, task: Column = None, sample_weight: Column = None) -> Self:
        """Fit on arrays, sparse matrices, Dask arrays, or a block store.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store may contain target and tasks.
        y
            ``(n_samples,)`` numbers, or labels of two classes.
        task
            ``(n_samples,)`` integers or strings: the task of each row, in any order. ``None`` is a single task.
        sample_weight
            ``(n_samples,)`` factors of the losses; rows with weight 0 take part in no round.

        Raises
        ------
        ValueError
            Parameter out of range, non-finite data, more than two classes, a task without rows, or diverging predictions.
        """
        self._model = self._stream = None
        vars(self).pop("classes_", None)
        config = self._config()
        self._fit(add_tasks(self._inputs(X, y, sample_weight, config=config), X, task), config)
        return self

    def _keep_run(self, problem: SelectorProblem, inputs: Inputs, state: SelectorState) -> None:
        # A stream goes on with rows as they come, so only from sums over rows that were taken as they are.
        config = problem.config
        if config.algorithm != "fista" and config.refit is None and config.task_offset is None and inputs.data.scale.kind == "none":
            self._stream = TaskLearner.after(config, state.stream)

    @property
    def lam_(self) -> float:
        """Weight of the penalty."""
        return float(self.model_.figures["lam"])

    def _data(self, X: object, y: object = None) -> tuple[Any, Any]:
        if is_text(X):
            raise ValueError("X holds strings; features are numbers")
        return super()._data(X, y)

    @available_if(_takes_streams)
    @one_thread()
    def partial_fit(
        self, X: UserRows, y: Column, task: Column = None, sample_weight: Column = None, *, tasks: Column = None, classes: Column = None
    ) -> Self:
        """Learn from further rows, in the order given.

        Parameters
        ----------
        X, y, task, sample_weight
            As for :meth:`fit`, in memory.
        tasks, classes
            All tasks and both classes that will occur; required if the rows of the first call do not contain them all.

        Raises
        ------
        ValueError
            Non-finite rows, or an unknown task or class; the call has then changed nothing. Also diverging predictions.
        AttributeError
            A parameter requires all rows at once.
        """
        config, goes_on = self._config().resolved(is_stream=True), self._stream is not None
        if self._model is not None and not goes_on and self.algorithm == "auto" and not np.isnan(self.dual_gap_):
            warn_user(RESTART)
            classes = self.classes_ if self._is_classifier and classes is None else classes
        elif not goes_on and self._model is not None:
            raise ValueError(
                "cannot continue a stream: this estimator was loaded, fitted as a batch, or fitted on a scaled store; use a new estimator"
            )
        rows, labels = self._read(X, y, reset=not goes_on)
        labels = label_array(labels)
        n, d = rows.shape
        weight = np.ones(n) if sample_weight is None else checked_weight(sample_weight, n)
        codes, target = self._codes(task, tasks, n, goes_on), self._signs(labels, classes, goes_on)
        if config.class_weight is not None:
            sides = (target > 0).astype(np.int64)
            weight = weight * class_factors(config.class_weight, self.classes_.tolist(), sides)[sides]
        if self._stream is None:
            self._stream = TaskLearner.after(config, TaskStream.empty(d, len(self.tasks_)))
            self.history_ = {}
        self._model, told = None, self._stream.watch.message
        self._stream.learn(task_rows(rows, codes, target, weight), self.tasks_.tolist())
        if not told:
            self._warn_unfinished(False, self._stream.watch.message)
        return self

    def _codes(self, task: object, tasks: object, n: int, goes_on: bool) -> np.ndarray:
        if goes_on:
            return known_codes(task, tuple(self.tasks_.tolist()), n)
        if tasks is None:
            codes, names = task_codes(task, n)
        else:
            named = np.asarray(tasks)
            names = task_codes(named, len(named))[1]
            codes = known_codes(task, names, n)
        self.tasks_ = np.asarray(names)
        return codes

    def _signs(self, y: np.ndarray, classes: object, goes_on: bool) -> np.ndarray:
        if not self._is_classifier:
            return np.asarray(y, np.float64)
        if not goes_on:
            self.classes_ = np.unique(y if classes is None else column_or_1d(classes))
            if len(self.classes_) != 2:
                raise ValueError(f"classes={self.classes_.tolist()}: there must be two; name both in the first call of partial_fit")
        unknown = np.flatnonzero(~np.isin(y, self.classes_))
        if unknown.size:
            raise ValueError(f"row {unknown[0]}: label {y[unknown[0]].item()!r} is not among the classes {self.classes_.tolist()}")
        return np.where(y == self.classes_[1], 1.0, -1.0)

    def _stream_model(self) -> LinearModel:
        assert self._stream is not None
        classes = tuple(self.classes_.tolist()) if self._is_classifier else None
        return stream_model(self._config().resolved(is_stream=True), self._stream, tuple(self.tasks_.tolist()), classes)

    def _set_model(self, model: LinearModel) -> None:
        super()._set_model(model)
        self.tasks_ = np.asarray(model.tasks)

    def _values(self, X: object, task: object = None) -> np.ndarray:
        """Return the decision values of data in any form, ``(n_samples, 1)``."""
        check_is_fitted(self)
        model, names = self.model_, tuple(self.tasks_.tolist())
        if is_store(X):
            with self._stored(X) as (data, resources):
                return model.decision_values(data, resources, task=task)
        rows, weights = self._checked(X, reset=False), selected_weights(model)
        codes, none = known_codes(task, names, rows.shape[0]), np.zeros(rows.shape[0])
        factor = inverse_row_norms(rows) if model.row_scaled else np.ones(rows.shape[0])
        values = task_rows(rows[:, model.features], codes, none, none).decide(weights, np.zeros(len(weights)))
        return (factor * values + model.intercepts[codes])[:, None]

    @available_if(_classifies)
    def decision_function(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return ``f_t(x)`` of every row x of task t, ``(n_samples,)``. Positive values predict the second class."""
        return self._decide(X, task=task)[:, 0]

    def predict(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the predicted numbers or labels, ``(n_samples,)``."""
        values = self._decide(X, task=task)[:, 0]
        return predicted_labels(values, self.classes_) if self._is_classifier else values

    @available_if(has_probabilities)
    def predict_proba(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the class probabilities, ``(n_samples, n_classes)`` in the order of ``classes_``.

        ``task`` is the task of every row. All tasks share one calibration.

        :meth:`predict` uses decision values; after calibration the most probable class may differ from it. With ``probability="auto"`` and
        a loss other than logistic, the first call takes about as long as five fits.

        Raises ValueError if there are no data to calibrate on, or if the training data have changed since the fit.
        """
        return self._probabilities(X, task=task)

    @available_if(has_probabilities)
    def predict_log_proba(self, X: UserRows, task: Column = None) -> np.ndarray:
        """Return the logarithms of :meth:`predict_proba`, ``(n_samples, n_classes)``."""
        return log_of(self.predict_proba(X, task))

    def score(self, X: UserRows, y: Column = None, task: Column = None, sample_weight: Column = None) -> float:
        """Return the accuracy over all rows, or R2 for a real target."""
        return score_of(self._is_classifier, X, y, self.predict(X, task), sample_weight)

    def transform(self, X: UserRows) -> np.ndarray | sp.sparray:
        """Return the unscaled columns of the features that any task has selected, also from a store."""
        check_is_fitted(self)
        if not is_store(X):
            return super().transform(X)
        with self._stored(X) as (data, resources):
            return fetch_columns(data, resources, self.model_.features)
