"""RuleEnsembleClassifier: a classifier of readable rules, chosen from all conjunctions at once."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ....storage.data import is_store, square_in_memory
from ....storage.errors import space_for
from ...estimators.cross_validated import CrossValidatedTasks, Grid
from ...estimators.inputs import Classifying, score_of, warn_user
from ...estimators.kernels import KernelEstimator
from ...estimators.probabilities import TaskProbabilities
from ...estimators.supervised import SupervisedEstimator, predicted_labels
from ...inputs.tasks import store_tasks, with_tasks
from ...loops.active_set import FINISHED
from ...passes.columns import Columns
from ...records.csv_texts import CsvTexts
from ...records.data_set import DataSet
from .data import RuleInputs, raw_columns
from .method import Rule
from .model import RuleModel, active_records, rule_certificate, rule_records, rule_table
from .predict import RulePredictor, of_tasks, rule_matrix, rule_values, unseen_message, unseen_values
from .state import RuleState

STOPS = {"max_rounds": "max_rounds={0.max_rounds}", "max_nodes": "max_rules={0.max_rules}", "stalled": "a standstill"}
"""What ended a fit before the rules next to the active set were quiet, in words."""


class RuleEnsembleClassifier(Classifying, TransformerMixin, TaskProbabilities, KernelEstimator):
    r"""Weighted rules, each a conjunction of basic propositions about single columns, from the lattice of all conjunctions.

    Minimises over the weights f of all conjunctions S with columns :math:`\varphi_S(x) \in \{0, 1\}`, and biases,

    .. math::

        \tfrac12 \Big( \sum_S a^{|S|} \big( \sum_{S' \supseteq S} \|f_{S'}\|^\rho \big)^{1/\rho} \Big)^2
        + C \sum_i \max\Big(0, 1 - y_i \big( \sum_S f_S \varphi_S(x_i) + b \big)\Big).

    The outer sum switches whole branches of the lattice off, so that an active set suffices; ``rho`` towards 1 drops the parts of a rule
    that are not needed on their own. Then the cuts of the selected rules move to the training values with the least loss, and the rules are
    fitted again. Several classes are fitted one against the rest on common rules; tasks (``fit(X, y, task)``) share rules, too.

    Attributes
    ----------
    C_
        Weight of the losses.
    rules_
        The rules, largest weight first: dicts of ``text``, ``support`` (training rows that satisfy it), ``vote``, ``weight``, ``length``,
        ``columns``, ``conditions`` (column, sign, cut), and with several classes or tasks ``weights``.
    active_set_
        The conjunctions of the active set on the first cuts: ``text``, ``weight``, ``length``.
    certificate_
        Certified gap of the active set's problem, before cuts moved: ``gap``, ``relative_gap``, ``restricted_gap`` (on the active set),
        ``depth`` (length of rules to which it holds), ``complete``, ``all_pairs``.
    coef_, intercept_
        ``(n_machines, n_rules)`` weights in the order of ``rules_``, and ``(n_machines,)``.
    objective_, dual_gap_
        Primal value of the active set's problem, before cuts moved and rules were dropped, and ``certificate_["gap"]``: NaN where nothing
        beyond the active set could be certified.
    tasks_
        Task names; ``None`` without tasks.
    n_iter_, converged_, stop_reason_, history_
        Steps, whether the gap over all conjunctions is within ``tol``, what ended it (``rest``: the parameter), and one array per figure
        over the steps.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import RuleEnsembleClassifier
    >>> X = np.random.default_rng(0).uniform(size=(200, 3))
    >>> model = RuleEnsembleClassifier(C=3.0, n_thresholds=4).fit(X, (X[:, 0] > 0.5) & (X[:, 1] <= 0.4))
    >>> len(model.rules_) == model.transform(X).shape[1]
    True

    References
    ----------
    Jawanpuria: Learning kernels for multiple predictive tasks (thesis, IIT Bombay, 2014), chapter 5.
    """

    _method = Rule
    _kernels_parameter = None
    _frame_form = "codes"
    _forms = {**KernelEstimator._forms, "ensure_all_finite": "allow-nan"}
    _wider = {
        **KernelEstimator._wider,
        "categorical": ("list of int or str, or array of bool, or None", Sequence[int | str] | np.ndarray | None),
        "task_kernel": ("array of shape (n_tasks, n_tasks) or None", Sequence[Sequence[float]] | np.ndarray | None),
    }

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
            ``(n_samples, n_features)``; a block store may hold target and tasks itself.
        y
            ``(n_samples,)`` classes; with tasks two of them, the same for all.
        task
            ``(n_samples,)`` integers or strings, or ``None``.
        sample_weight
            ``(n_samples,)`` how often rows count: factors of ``C``, and of rows between cuts. Folds are drawn over rows.

        Raises
        ------
        ValueError
            A parameter out of range, infinite values, one class only, a similarity that does not suit the tasks.
        gramplane.storage.DataError
            An empty task, a class without weight.
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

    def _unfinished(self, state: RuleState) -> str:
        if state.stop in FINISHED:
            return ""
        reason = STOPS.get(str(state.stop), "").format(self._config())
        gap = self.certificate_["restricted_gap"]
        return f"{reason} ended the fit before rules next to the active set were quiet; the gap on the active set is {gap:.2g}"

    def _data(self, X: object, y: ArrayLike | None = None) -> tuple[DataSet, Any]:
        return SupervisedEstimator._data(self, X, y)  # (rows of text are no strings for kernels here)

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
        """Return the raw columns of the rules of arrays, and the number of rows."""
        rows = self._checked(X, reset=False)
        raw = rows[:, self.model_.columns]
        return (sp.csc_array(raw) if sp.issparse(raw) else raw), rows.shape[0]

    def _values(self, X: object, task: ArrayLike | None = None) -> np.ndarray:
        check_is_fitted(self, "model_")
        if is_store(X):
            with self._stored(X, _warn_event) as ctx:
                return RulePredictor().decision_values(self.model_, ctx, task)
        raw, n = self._columns(X)
        # What frames have in columns of names was said when they were encoded.
        named = json.loads(self.model_.categories_json)
        unseen = {column: count for column, count in unseen_values(self.model_, raw).items() if str(column) not in named}
        if unseen:
            warn_user(unseen_message(unseen))
        return of_tasks(self.model_, rule_values(self.model_, raw, n), task)

    def decision_function(self, X: object, task: ArrayLike | None = None) -> np.ndarray:
        """Return ``f(x)``: ``(n_samples,)`` for two classes and for tasks, else ``(n_samples, n_classes)``."""
        values = self._values(X, task)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: object, task: ArrayLike | None = None) -> np.ndarray:
        """Return the predicted class labels, ``(n_samples,)``."""
        return predicted_labels(self.decision_function(X, task), self.classes_)

    def score(self, X: object, y: ArrayLike | None = None, task: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of right labels over all rows."""
        return score_of(True, X, y, self.predict(X, task), sample_weight)

    def transform(self, X: object) -> np.ndarray:
        """Return which rows satisfy which rule: ``(n_samples, n_rules)`` zeros and ones in the order of ``rules_``."""
        check_is_fitted(self, "model_")
        if is_store(X):
            with self._stored(X) as ctx:
                flags = rule_matrix(self.model_, raw_columns(ctx, self.model_.columns), ctx.data.n_rows)
        else:
            flags = rule_matrix(self.model_, *self._columns(X))
        return flags[:, self.model_.by_weight].astype(np.float64)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Return the texts of the rules."""
        check_is_fitted(self, "model_")
        return np.array([rule["text"] for rule in self.rules_], dtype=object)

    def rules_table(self) -> list[dict[str, Any]]:
        """Return one flat row per rule, largest weight first: rule, vote, weight, support, length, and the weight of every machine."""
        check_is_fitted(self, "model_")
        return rule_table(self.model_)

    def to_csv(self, path: str | Path, excel_safe: bool = False) -> None:
        """Write :meth:`rules_table` as CSV; ``excel_safe`` quotes texts that a spreadsheet would compute, else a warning tells of them."""
        texts = CsvTexts(excel_safe, warn_user)
        rows = [{name: texts(cell) for name, cell in row.items()} for row in self.rules_table()]
        with space_for(path, 0), Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else ["rule", "vote", "weight", "support", "length"])
            writer.writeheader()
            writer.writerows(rows)
        texts.tell(str(path))

    def to_json(self, path: str | Path | None = None) -> str:
        """Return rules, intercepts and certificate as JSON, and write them to ``path`` if there is one."""
        check_is_fitted(self, "model_")
        record = {
            "classes": self.classes_.tolist(),
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


class RuleEnsembleClassifierCV(CrossValidatedTasks, RuleEnsembleClassifier):
    r"""Weighted rules from the lattice of all conjunctions, ``C`` and ``rho`` chosen by cross-validation.

    The problem is that of :class:`RuleEnsembleClassifier`. The fits of a fold share its propositions; with tasks every one of them is in
    all folds.

    Attributes
    ----------
    C_, rho_
        Parameters chosen.
    Cs_, rhos_
        Values that were compared, ``rhos_`` where they were given.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import RuleEnsembleClassifierCV
    >>> X = np.random.default_rng(0).uniform(size=(200, 3))
    >>> model = RuleEnsembleClassifierCV(Cs=[0.3, 3], n_thresholds=4, cv=3).fit(X, (X[:, 0] > 0.5) & (X[:, 1] <= 0.4))
    >>> model.best_score_ > 0.9, len(model.rules_) == model.transform(X).shape[1]
    (True, True)
    """

    _left_out = ("refit",)  # (of rules: it is that of the search here)
    _grids = (
        Grid("C", "Cs", 5, "Values of C; a number of them is spread evenly in the logarithm from 1/30 to 30.", span=(1 / 30, 30.0)),
        Grid("rho", "rhos", None, "Values of rho to compare; ``None``: ``rho`` alone.", "list of float or None"),
    )


def _warn_event(event: Mapping[str, Any]) -> None:
    if event["event"] == "warning":
        warn_user(str(event["message"]))
