"""RuleEnsembleClassifier and RuleEnsembleRegressor: models of readable rules, selected from all conjunctions jointly."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ....storage.data import is_store, square_in_memory
from ....storage.errors import space_for
from ...estimators.base import Estimator
from ...estimators.cv import CrossValidatedTasks, Grid
from ...estimators.inputs import Callbacks, Seed, warn_user
from ...estimators.kernels import KernelEstimator
from ...estimators.tasks import TaskClassifier, TaskRegressor
from ...inputs.tasks import store_tasks, with_tasks
from ...passes.columns import Columns
from ...records.csv_texts import CsvTexts
from ...records.data_set import DataSet
from .data import RuleInputs, raw_columns
from .method import Rule
from .model import (
    RuleModel,
    active_records,
    of_tasks,
    rule_certificate,
    rule_matrix,
    rule_records,
    rule_table,
    rule_values,
    unseen_message,
    unseen_values,
)


class _RuleEnsemble(TransformerMixin, KernelEstimator):
    """Base class of classifier and regressor."""

    _method = Rule()
    _kernels_parameter = None
    _frame_form = "codes"
    _forms = {**Estimator._forms, "ensure_all_finite": "allow-nan"}

    model_: RuleModel  # pyright: ignore[reportIncompatibleVariableOverride]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _plain(self, given: dict[str, Any]) -> dict[str, Any]:
        kernel, columns = given["task_kernel"], given["categorical"]
        given["task_kernel"] = None if kernel is None else np.asarray(square_in_memory(kernel, "task_kernel"), np.float64).tolist()
        given["categorical"] = None if columns is None else np.asarray(columns, object).tolist()
        return super()._plain(given)

    def fit(self, X: object, y: ArrayLike | None = None, task: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit on arrays, data frames, sparse matrices, Dask arrays, or a block store; missing values are NaN.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store may contain target and tasks.
        y
            ``(n_samples,)`` classes, or numbers for a regressor; with tasks, the same two classes for all.
        task
            ``(n_samples,)`` integers or strings: the task of each row; ``None`` without tasks.
        sample_weight
            ``(n_samples,)`` counts of rows: factors of ``C``, also used in the thresholds of rules. Folds are drawn over rows, not counts.

        Raises
        ------
        ValueError
            Parameter out of range, infinite values, a single class, or a similarity that does not match the tasks.
        gramplane.storage.DataError
            A task without rows, or a class without weight.
        """
        rows = self._inputs(X, y, sample_weight)
        frame_names = getattr(self, "feature_names_in_", None)
        names = rows.data.feature_names() if frame_names is None else [str(name) for name in frame_names]
        if task is None and is_store(X):
            task = store_tasks(rows.data)
        if task is not None:
            rows = with_tasks(rows, task, X if isinstance(X, str) else "")
        self._fit(RuleInputs.of(rows, names, self._source_columns))
        return self

    def _data(self, X: object, y: ArrayLike | None = None) -> tuple[DataSet, Any]:
        return Estimator._data(self, X, y)  # (rows of text are no strings for kernels here)

    def _set_model(self, model: RuleModel) -> None:
        super()._set_model(model)
        self.rules_ = rule_records(model)
        self.active_set_ = active_records(model)
        self.certificate_ = rule_certificate(model)
        self.coef_ = model.weights[model.by_weight].T.copy()
        self.intercept_ = model.intercepts
        self.C_ = float(json.loads(model.params_json)["C"])
        self.tasks_ = None if model.tasks is None else np.asarray(model.tasks)
        self.objective_, self.dual_gap_ = model.figures["objective"], self.certificate_["gap"]

    def _columns(self, X: object) -> tuple[Columns, int]:
        """Return the unscaled columns that the rules use, from arrays, and the number of rows."""
        rows = self._checked(X, reset=False)
        raw = rows[:, self.model_.columns]
        return (sp.csc_array(raw) if sp.issparse(raw) else raw), rows.shape[0]

    def _values(self, X: object, task: ArrayLike | None = None) -> np.ndarray:
        check_is_fitted(self, "model_")
        if is_store(X):
            with self._stored(X, _warn_event) as (data, resources):
                return self.model_.decision_values(data, resources, task=task)
        raw, n = self._columns(X)
        # What frames have in columns of names was said when they were encoded.
        named = json.loads(self.model_.categories_json)
        unseen = {column: count for column, count in unseen_values(self.model_, raw).items() if str(column) not in named}
        if unseen:
            warn_user(unseen_message(unseen))
        return of_tasks(self.model_, rule_values(self.model_, raw, n), task)

    def transform(self, X: object) -> np.ndarray:
        """Return the indicators of the rules, ``(n_samples, n_rules)``: 1 if the row satisfies the rule, in the order of ``rules_``."""
        check_is_fitted(self, "model_")
        if is_store(X):
            with self._stored(X) as (data, resources):
                flags = rule_matrix(self.model_, raw_columns(data, resources, self.model_.columns), data.n_rows)
        else:
            flags = rule_matrix(self.model_, *self._columns(X))
        return flags[:, self.model_.by_weight].astype(np.float64)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Return the texts of the rules."""
        check_is_fitted(self, "model_")
        return np.array([rule["text"] for rule in self.rules_], dtype=object)

    def rules_table(self) -> list[dict[str, Any]]:
        """Return one row per rule, in descending order of weight: rule, vote, weight, support, length, and the weight in every
        one-vs-rest or task model.
        """
        check_is_fitted(self, "model_")
        return rule_table(self.model_)

    def to_csv(self, path: str | Path, excel_safe: bool = False) -> None:
        """Write :meth:`rules_table` as CSV. ``excel_safe`` quotes texts that a spreadsheet would run as formulas; without it, a warning
        reports them.
        """
        texts = CsvTexts(excel_safe, warn_user)
        rows = [{name: texts(cell) for name, cell in row.items()} for row in self.rules_table()]
        with space_for(path, 0), Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else ["rule", "vote", "weight", "support", "length"])
            writer.writeheader()
            writer.writerows(rows)
        texts.tell(str(path))

    def to_json(self, path: str | Path | None = None) -> str:
        """Return rules, intercepts and certificate as JSON, and write them to ``path`` if it is given."""
        check_is_fitted(self, "model_")
        record = {
            "classes": json.loads(self.model_.classes_json),
            "tasks": None if self.tasks_ is None else self.tasks_.tolist(),
            "rules": self.rules_,
            "intercepts": self.intercept_.tolist(),
            # JSON has no NaN.
            "certificate": {name: value if value == value else None for name, value in self.certificate_.items()},
        }
        text = json.dumps(record, indent=1)
        if path is not None:
            with space_for(path, len(text)):
                Path(path).write_text(text + "\n", encoding="utf-8")
        return text


class RuleEnsembleClassifier(_RuleEnsemble, TaskClassifier):
    r"""Weighted rules, selected from the lattice of all conjunctions of conditions on single columns.

    Minimises, over the weights f of all conjunctions S with indicators :math:`\varphi_S(x) \in \{0, 1\}` and over intercepts b,

    .. math::

        \tfrac12 \Big( \sum_S a^{|S|} \big( \sum_{S' \supseteq S} \|f_{S'}\|^\rho \big)^{1/\rho} \Big)^2
        + C \sum_i \max\Big(0, 1 - y_i \big( \sum_S f_S \varphi_S(x_i) + b \big)\Big).

    The outer sum excludes whole branches of the lattice, so that an active set suffices. Values of ``rho`` near 1 drop the parts of a rule
    that are not needed on their own. After the fit, the thresholds of the selected rules move to the training values with the smallest
    loss, and the rules are fitted again. Several classes are fitted one-vs-rest on common rules; tasks (``fit(X, y, task)``) share rules as
    well.

    Parameters
    ----------
    rho : float > 1 and <= 2, default=1.1
        Inner exponent: 2 is hierarchical kernel learning, which selects a rule with all its parts; values near 1 select few rules.
    a : float > 1, default=2.0
        Base of the penalty: a rule of k propositions has penalty ``a ** k``. Larger values give shorter rules.
    C : float > 0 or {"auto"}, default='auto'
        Inverse regularisation strength: larger values fit the training data more closely. It has the scale of scikit-learn's ``SVC``.
        ``"auto"``: 10 for two classes; 10 per class otherwise, at most 50, because the one-vs-rest models share one norm over rules. The
        value used is stored in ``C_``.
    n_thresholds : int >= 1 and <= 1000, default=9
        Number of thresholds of a numeric column, at quantiles of the training rows.
    refine_cuts : bool, default=True
        Move the thresholds of the selected rules to the best training values, and fit the rules again.
    categorical : list of int or str, or array of bool, or None, default=None
        Columns (numbers, names or a mask) whose values are categories. Text columns of a data frame always are.
    task_kernel : array of shape (n_tasks, n_tasks) or None, default=None
        Positive semi-definite similarity (n_tasks, n_tasks) of the tasks, in ascending order of their names. Default: the identity; tasks
        then select rules together and weight them independently.
    tol : float > 0, default=0.001
        Stopping tolerance: duality gap relative to the objective, for the problem of the active set and for the fit.
    max_rounds : int >= 1, default=50
        Largest number of searches among the rules outside the active set; a warning is issued if the fit ends at a limit.
    max_rules : int >= 1, default=1000
        Largest number of conjunctions in the active set.
    max_visits : int >= 1, default=2000000
        Largest number of conjunctions that the search for the certificate visits. If the search needs more, the certificate holds only up
        to a length of rules, which the certificate states.
    rest : float > 0 or None, default=0.001
        Stop when the rules of a round lower the objective by less than this fraction. ``None``: continue until the certificate holds.
    add : int >= 1, default=30
        Number of conjunctions added per round, not counting the shorter conjunctions they contain.
    skip_implied : bool, default=True
        Skip conjunctions of propositions that imply or contradict each other.
    prune : float >= 0 and < 1, default=0.02
        Rules whose weight is below this fraction of the largest weight are dropped.
    refit : bool, default=True
        Refit the selected rules.
    solver : {"auto", "newton", "mirror"}, default='auto'
        ``"auto"`` and ``"newton"``: joint re-weighting with Newton steps. ``"mirror"``: the mirror descent of the thesis over the shares of
        the rules.
    class_weight : {"balanced"} or dict or None, default=None
        Factors of ``C`` per class.
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
    C_
        Value of ``C`` used.
    rules_
        Rules in descending order of weight: dicts of ``text``, ``support`` (number of training rows that satisfy it), ``vote``, ``weight``,
        ``length``, ``columns``, ``conditions`` (column, sign, threshold), and with several classes or tasks ``weights``.
    active_set_
        Conjunctions of the active set with their initial thresholds: ``text``, ``weight``, ``length``.
    certificate_
        Certificate of the active set's problem, before thresholds moved: ``gap``, ``relative_gap``, ``restricted_gap`` (on the active set),
        ``depth`` (length of rules up to which it holds), ``complete``, ``all_pairs``.
    coef_, intercept_
        ``(n_machines, n_rules)`` weights in the order of ``rules_``, and ``(n_machines,)``.
    objective_, dual_gap_
        Primal value of the active set's problem, before thresholds moved and rules were dropped; and ``certificate_["gap"]``, which is NaN
        if nothing beyond the active set could be certified.
    tasks_
        Task names; ``None`` without tasks.
    n_iter_, converged_, stop_reason_, history_
        Number of steps, whether the gap over all conjunctions is within ``tol``, the reason for stopping (``rest``: the parameter of that
        name), and one array per quantity over the steps.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import RuleEnsembleClassifier
    >>> X = np.random.default_rng(0).uniform(size=(200, 3)).round(2)
    >>> model = RuleEnsembleClassifier(C=3.0, n_thresholds=4).fit(
    ...     X, (X[:, 0] > 0.5) & (X[:, 1] <= 0.4)
    ... )
    >>> [rule["text"] for rule in model.rules_]
    ['x0 > 0.505', 'x1 <= 0.4', 'x1 > 0.4', 'x0 <= 0.485']

    References
    ----------
    Jawanpuria: Learning kernels for multiple predictive tasks (thesis, IIT Bombay, 2014), chapter 5.
    """

    def __init__(
        self,
        rho: float = 1.1,
        a: float = 2.0,
        C: float | Literal["auto"] = "auto",
        n_thresholds: int = 9,
        refine_cuts: bool = True,
        categorical: Sequence[int | str] | np.ndarray | None = None,
        task_kernel: Sequence[Sequence[float]] | np.ndarray | None = None,
        tol: float = 0.001,
        max_rounds: int = 50,
        max_rules: int = 1000,
        max_visits: int = 2000000,
        rest: float | None = 0.001,
        add: int = 30,
        skip_implied: bool = True,
        prune: float = 0.02,
        refit: bool = True,
        solver: Literal["auto", "newton", "mirror"] = "auto",
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        probability: Literal["auto", "sigmoid", "isotonic", False] = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.rho = rho
        self.a = a
        self.C = C
        self.n_thresholds = n_thresholds
        self.refine_cuts = refine_cuts
        self.categorical = categorical
        self.task_kernel = task_kernel
        self.tol = tol
        self.max_rounds = max_rounds
        self.max_rules = max_rules
        self.max_visits = max_visits
        self.rest = rest
        self.add = add
        self.skip_implied = skip_implied
        self.prune = prune
        self.refit = refit
        self.solver = solver
        self.class_weight = class_weight
        self.probability = probability
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class RuleEnsembleRegressor(_RuleEnsemble, TaskRegressor):
    r"""A sum of weighted rules that predicts numbers, from the lattice of all conjunctions of conditions on single columns.

    Minimises, over the weights f of all conjunctions S with indicators :math:`\varphi_S(x) \in \{0, 1\}` and over intercepts b,

    .. math::

        \tfrac12 \Big( \sum_S a^{|S|} \big( \sum_{S' \supseteq S} \|f_{S'}\|^\rho \big)^{1/\rho} \Big)^2
        + C \sum_i \ell\Big(y_i - \sum_S f_S \varphi_S(x_i) - b\Big),

    where the loss of a residual r is :math:`r^2 / 2`; with ``loss="epsilon_insensitive"`` it is :math:`\max(0, |r| - \epsilon)`. The
    prediction is the intercept plus the weights of the rules that a row satisfies. The outer sum excludes whole branches of the lattice, so
    that an active set suffices. Values of ``rho`` near 1 drop the parts of a rule that are not needed on their own. After the fit, the
    thresholds of the selected rules move to the training values with the smallest loss, and the rules are fitted again. Tasks
    (``fit(X, y, task)``) share rules.

    The target is centred and scaled internally: ``C`` and ``epsilon`` refer to a target of standard deviation 1, whatever its unit. Weights
    and intercepts are in the unit of the target, objective and bounds in its square.

    Parameters
    ----------
    rho : float > 1 and <= 2, default=1.1
        Inner exponent: 2 is hierarchical kernel learning, which selects a rule with all its parts; values near 1 select few rules.
    a : float > 1, default=2.0
        Base of the penalty: a rule of k propositions has penalty ``a ** k``. Larger values give shorter rules.
    C : float > 0 or {"auto"}, default='auto'
        Inverse regularisation strength: larger values fit the training data more closely. It multiplies the sum of losses, as in
        scikit-learn's ``SVR`` for a target of standard deviation 1. ``"auto"``: 10. The value used is stored in ``C_``.
    loss : {"auto", "squared", "epsilon_insensitive"}, default='auto'
        Loss of a residual. ``"auto"``: ``"squared"``.
    epsilon : float >= 0, default=0.1
        With ``"epsilon_insensitive"``: half-width of the tube without loss, in standard deviations of the target.
    n_thresholds : int >= 1 and <= 1000, default=9
        Number of thresholds of a numeric column, at quantiles of the training rows.
    refine_cuts : bool, default=True
        Move the thresholds of the selected rules to the best training values, and fit the rules again.
    categorical : list of int or str, or array of bool, or None, default=None
        Columns (numbers, names or a mask) whose values are categories. Text columns of a data frame always are.
    task_kernel : array of shape (n_tasks, n_tasks) or None, default=None
        Positive semi-definite similarity (n_tasks, n_tasks) of the tasks, in ascending order of their names. Default: the identity; tasks
        then select rules together and weight them independently.
    tol : float > 0, default=0.001
        Stopping tolerance: duality gap relative to the objective, for the problem of the active set and for the fit.
    max_rounds : int >= 1, default=50
        Largest number of searches among the rules outside the active set; a warning is issued if the fit ends at a limit.
    max_rules : int >= 1, default=1000
        Largest number of conjunctions in the active set.
    max_visits : int >= 1, default=2000000
        Largest number of conjunctions that the search for the certificate visits. If the search needs more, the certificate holds only up
        to a length of rules, which the certificate states.
    rest : float > 0 or None, default=0.001
        Stop when the rules of a round lower the objective by less than this fraction. ``None``: continue until the certificate holds.
    add : int >= 1, default=30
        Number of conjunctions added per round, not counting the shorter conjunctions they contain.
    skip_implied : bool, default=True
        Skip conjunctions of propositions that imply or contradict each other.
    prune : float >= 0 and < 1, default=0.02
        Rules whose weight is below this fraction of the largest weight are dropped.
    refit : bool, default=True
        Refit the selected rules.
    solver : {"auto", "newton", "mirror"}, default='auto'
        ``"auto"`` and ``"newton"``: joint re-weighting with Newton steps. ``"mirror"``: the mirror descent of the thesis over the shares of
        the rules.
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
    C_
        Value of ``C`` used.
    rules_
        Rules in descending order of absolute weight: dicts of ``text``, ``support`` (number of training rows that satisfy it), ``weight``
        (what the rule adds to the prediction), ``vote`` (1 or -1, its sign), ``length``, ``columns``, ``conditions`` (column, sign,
        threshold), and with several tasks ``weights``.
    active_set_
        Conjunctions of the active set with their initial thresholds: ``text``, ``weight``, ``length``.
    certificate_
        Certificate of the active set's problem, before thresholds moved: ``gap``, ``relative_gap``, ``restricted_gap`` (on the active set),
        ``depth`` (length of rules up to which it holds), ``complete``, ``all_pairs``.
    coef_, intercept_
        ``(n_machines, n_rules)`` weights in the order of ``rules_``, and ``(n_machines,)``.
    objective_, dual_gap_
        Primal value of the active set's problem, before thresholds moved and rules were dropped; and ``certificate_["gap"]``, which is NaN
        if nothing beyond the active set could be certified.
    tasks_
        Task names; ``None`` without tasks.
    n_iter_, converged_, stop_reason_, history_
        Number of steps, whether the gap over all conjunctions is within ``tol``, the reason for stopping (``rest``: the parameter of that
        name), and one array per quantity over the steps.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import RuleEnsembleRegressor
    >>> X = np.random.default_rng(0).uniform(size=(200, 3)).round(2)
    >>> model = RuleEnsembleRegressor(n_thresholds=4).fit(
    ...     X, 20.0 + 5.0 * ((X[:, 0] > 0.5) & (X[:, 1] <= 0.4))
    ... )
    >>> model.rules_[0]["text"], round(model.rules_[0]["weight"], 1)
    ('x0 > 0.505 and x1 <= 0.4', 3.1)

    References
    ----------
    Jawanpuria: Learning kernels for multiple predictive tasks (thesis, IIT Bombay, 2014), chapter 5.
    """

    def __init__(
        self,
        rho: float = 1.1,
        a: float = 2.0,
        C: float | Literal["auto"] = "auto",
        loss: Literal["auto", "squared", "epsilon_insensitive"] = "auto",
        epsilon: float = 0.1,
        n_thresholds: int = 9,
        refine_cuts: bool = True,
        categorical: Sequence[int | str] | np.ndarray | None = None,
        task_kernel: Sequence[Sequence[float]] | np.ndarray | None = None,
        tol: float = 0.001,
        max_rounds: int = 50,
        max_rules: int = 1000,
        max_visits: int = 2000000,
        rest: float | None = 0.001,
        add: int = 30,
        skip_implied: bool = True,
        prune: float = 0.02,
        refit: bool = True,
        solver: Literal["auto", "newton", "mirror"] = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.rho = rho
        self.a = a
        self.C = C
        self.loss = loss
        self.epsilon = epsilon
        self.n_thresholds = n_thresholds
        self.refine_cuts = refine_cuts
        self.categorical = categorical
        self.task_kernel = task_kernel
        self.tol = tol
        self.max_rounds = max_rounds
        self.max_rules = max_rules
        self.max_visits = max_visits
        self.rest = rest
        self.add = add
        self.skip_implied = skip_implied
        self.prune = prune
        self.refit = refit
        self.solver = solver
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class RuleEnsembleClassifierCV(CrossValidatedTasks, RuleEnsembleClassifier):
    """Weighted rules from the lattice of all conjunctions, with ``C`` and ``rho`` chosen by cross-validation.

    The problem is that of :class:`RuleEnsembleClassifier`. The fits of a fold share its propositions. With tasks, every task is in all
    folds.

    See :class:`RuleEnsembleClassifier` for the other parameters and further attributes.

    Parameters
    ----------
    rhos : list of float or None, default=None
        Values of ``rho`` to compare. ``None``: ``rho`` alone.
    Cs : int or list of float, default=5
        Values of ``C`` to compare. A number means that many values, evenly spaced in the logarithm from 1/30 to 30.
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
    C_, rho_
        Chosen parameters.
    Cs_, rhos_
        Values compared; ``rhos_`` only if they were given.
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
    >>> import numpy as np
    >>> from gramplane import RuleEnsembleClassifierCV
    >>> X = np.random.default_rng(0).uniform(size=(200, 3)).round(2)
    >>> model = RuleEnsembleClassifierCV(Cs=[0.3, 3], n_thresholds=4, cv=3).fit(
    ...     X, (X[:, 0] > 0.5) & (X[:, 1] <= 0.4)
    ... )
    >>> model.best_params_, round(model.best_score_, 2)
    ({'C': 3.0}, 1.0)
    """

    _grids = (Grid("C", "Cs", span=(1 / 30, 30.0)), Grid("rho", "rhos"))

    def __init__(
        self,
        rho: float = 1.1,
        rhos: int | Sequence[float] | None = None,
        a: float = 2.0,
        Cs: int | Sequence[float] | None = 5,
        n_thresholds: int = 9,
        refine_cuts: bool = True,
        categorical: Sequence[int | str] | np.ndarray | None = None,
        task_kernel: Sequence[Sequence[float]] | np.ndarray | None = None,
        tol: float = 0.001,
        max_rounds: int = 50,
        max_rules: int = 1000,
        max_visits: int = 2000000,
        rest: float | None = 0.001,
        add: int = 30,
        skip_implied: bool = True,
        prune: float = 0.02,
        solver: Literal["auto", "newton", "mirror"] = "auto",
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
        self.rho = rho
        self.rhos = rhos
        self.a = a
        self.Cs = Cs
        self.n_thresholds = n_thresholds
        self.refine_cuts = refine_cuts
        self.categorical = categorical
        self.task_kernel = task_kernel
        self.tol = tol
        self.max_rounds = max_rounds
        self.max_rules = max_rules
        self.max_visits = max_visits
        self.rest = rest
        self.add = add
        self.skip_implied = skip_implied
        self.prune = prune
        self.solver = solver
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


def _warn_event(event: Mapping[str, Any]) -> None:
    if event["event"] == "warning":
        warn_user(str(event["message"]))
