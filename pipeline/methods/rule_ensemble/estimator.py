"""RuleEnsembleClassifier: a classifier of readable rules, chosen from all conjunctions at once."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from ....storage import MemoryBlocks
from ...estimators.inputs import Classifying, fan_out, fit_context, in_memory, is_store, opened, validated, warn_user
from ...estimators.kernels import NAN, KernelEstimator, labelled
from ...inputs.labels import Inputs
from ...inputs.tasks import store_tasks, with_tasks
from ...loops.run import run_loop
from ...passes.columns import fetch_columns
from .config import RuleConfig
from .method import active_records, build_loop, categorical_columns, certificate, model_of
from .model import RuleModel, rule_records
from .predict import decide_rules, of_tasks, rule_matrix, rule_values, unseen_message, unseen_values
from .text_columns import encoded, has_text

STOPS = {"max_rounds": "max_rounds={0.max_rounds}", "max_nodes": "max_rules={0.max_rules}", "stalled": "a standstill"}


class RuleEnsembleClassifier(Classifying, TransformerMixin, KernelEstimator):
    r"""Weighted rules, each a conjunction of basic propositions about single columns, from the lattice of all conjunctions.

    Minimises over the weights f of all conjunctions S with columns :math:`\varphi_S(x) \in \{0, 1\}`, and biases,

    .. math::

        \tfrac12 \Big( \sum_S a^{|S|} \big( \sum_{S' \supseteq S} \|f_{S'}\|^\rho \big)^{1/\rho} \Big)^2
        + C \sum_i \max\Big(0, 1 - y_i \big( \sum_S f_S \varphi_S(x_i) + b \big)\Big).

    The outer sum switches whole branches of the lattice off, so that an active set suffices; ``rho`` towards 1 drops the parts of a rule
    that are not needed on their own. Then the cuts of the kept rules move to the training values with the least loss, and the rules are
    fitted again. Several classes are fitted one against the rest on common rules; tasks (``fit(X, y, task)``) share rules, too.

    Parameters
    ----------
    rho
        Inner exponent in (1, 2]; 2 is hierarchical kernel learning.
    a
        A rule of k propositions is penalised by a^k; larger values give shorter rules.
    C
        Loss weight, the same as scikit-learn's ``SVC``.
    n_thresholds
        Cuts of a numeric column, at quantiles of the training rows.
    refine_cuts
        Move the cuts of the kept rules to the best training values and fit again.
    categorical
        Columns (numbers or names) whose values are names; columns of text always are.
    task_kernel
        ``(n_tasks, n_tasks)`` positive semidefinite similarity of the tasks in ascending order of their names; default: the identity,
        tasks choose rules together and weigh them apart.
    tol
        Gap of the active set's problem at which it is solved, relative to the objective.
    max_rounds, max_rules
        Rounds of the active set, and its conjunctions, at most; a warning tells when they end the fit.
    max_visits
        Conjunctions that a search for the certificate looks at; where more would be needed it holds to a length of rules, and says so.
    rest
        Stop when a round's new rules lowered the objective by less than this share; ``None`` goes on until the certificate is closed.
    add
        Conjunctions added in a round.
    skip_implied
        Leave out conjunctions with propositions that imply or contradict each other on the training rows.
    prune
        Rules below this share of the largest weight are dropped.
    refit
        Fit the kept rules again.
    solver
        ``"auto"`` and ``"newton"``: joint re-weighting with Newton steps; ``"mirror"``: mirror descent over the shares of the rules.
    class_weight
        ``"balanced"`` or a dict of class factors of ``C``.
    cluster
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."`` ...
    random_state
        Not used; there is nothing random.
    verbose
        Log one line per round.
    callbacks
        Functions called with an event record per round.

    Attributes
    ----------
    rules_
        The rules, largest weight first: dicts of ``text``, ``support`` (training rows that satisfy it), ``vote``, ``weight``, ``length``,
        ``columns``, ``conditions`` (column, sign, cut), and with several classes or tasks ``weights``.
    active_set_
        The conjunctions of the active set on the first cuts: ``text``, ``weight``, ``length``.
    certificate_
        Certified gap of the active set's problem, before cuts moved: ``gap``, ``relative_gap``, ``restricted_gap`` (on the active set),
        ``depth`` (length of rules to which it holds), ``complete``, ``all_pairs``.
    coef_
        ``(n_machines, n_rules)`` weights in the order of ``rules_``.
    intercept_
        ``(n_machines,)``.
    objective_
        Primal value of the active set's problem, before cuts moved and rules were dropped.
    dual_gap_
        ``certificate_["gap"]``: NaN where nothing beyond the active set could be certified.
    tasks_
        Task names; ``None`` without tasks.
    n_iter_, converged_, history_
        Steps, whether the fit ended without hitting a cap, and one array per figure over the steps.

    References
    ----------
    Jawanpuria: Learning kernels for multiple predictive tasks (thesis, IIT Bombay, 2014), chapter 5.
    """

    _config_type = RuleConfig
    model_: Any

    def __init__(
        self,
        rho: float = 1.1,
        a: float = 2.0,
        C: float = 1.0,
        n_thresholds: int = 9,
        refine_cuts: bool = True,
        categorical: Sequence[Any] | None = None,
        task_kernel: Any = None,
        tol: float = 1e-3,
        max_rounds: int = 50,
        max_rules: int = 1000,
        max_visits: int = 2_000_000,
        rest: float | None = 1e-4,
        add: int = 30,
        skip_implied: bool = True,
        prune: float = 0.02,
        refit: bool = True,
        solver: str = "auto",
        class_weight: Any = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
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
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _precomputed(self) -> bool:
        return False

    def _config(self) -> RuleConfig:
        given = {name: getattr(self, name) for name in self._config_type.model_fields}
        plain: Any = type(self)(**{**given, "task_kernel": _nested(self.task_kernel), "categorical": _listed(self.categorical)})
        return KernelEstimator._config(plain)

    # -- fitting -------------------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, task: Any = None, sample_weight: Any = None) -> Self:
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
            ``(n_samples,)`` factors of ``C``.

        Raises
        ------
        ValueError
            A parameter out of range, infinite values, one class only, a similarity that does not suit the tasks.
        gramplane.storage.DataError
            An empty task, a class without weight.
        """
        config = self._config()
        self._categories: dict[int, list[str]] = {}
        inputs = self._inputs(X, y, sample_weight)
        named = getattr(self, "feature_names_in_", None)
        names = inputs.data.feature_names() if named is None else [str(name) for name in named]
        assert inputs.classes is not None
        inputs = self._with_tasks(inputs, X, task)
        categorical = categorical_columns(config.categorical, inputs.data.n_cols, names)
        loop = build_loop(config, inputs, [*categorical, *self._categories])
        with self._context(inputs.data) as ctx:
            outcome = run_loop(loop, ctx, keep=False)
            self._set_model(model_of(config, inputs, loop, outcome.state, ctx, names, self._categories))
        self._set_history(outcome.history)
        ended = STOPS.get(str(outcome.state.stop), "").format(config)
        told = f"the gap on the active set is {self.certificate_['restricted_gap']:.2g}"
        self._warn_unfinished(self.converged_, f"{ended} ended the fit before rules next to the active set were quiet; {told}")
        return self

    def _with_tasks(self, inputs: Inputs, X: Any, task: Any) -> Inputs:
        if task is None and is_store(X):
            task = store_tasks(inputs.data)
        if task is None and self.task_kernel is not None:
            raise ValueError("task_kernel needs tasks: classes are fitted one against the rest, without shared weight")
        return inputs if task is None else with_tasks(inputs, task, str(X) if isinstance(X, str) else "")

    def _data(self, X: Any, y: Any = None) -> tuple[Any, Any]:
        if is_store(X):
            return super()._data(X, y)
        X = in_memory(X)
        if has_text(X):
            X, self._categories = encoded(X, None)
        found = validated(self, X, **({} if y is None else {"y": y, "multi_output": False}), **_rules_of_arrays())
        X, y = found if y is not None else (found, None)
        return MemoryBlocks(X), y

    # -- results -------------------------------------------------------------------------------------------------------------------

    def _set_model(self, model: Any) -> None:
        self.model_ = model
        figures = model.figures
        self.rules_ = rule_records(model)
        self.active_set_ = active_records(model)
        self.certificate_ = certificate(model)
        self.coef_ = model.weights[_order(model)].T.copy()
        self.intercept_ = model.intercepts
        self.tasks_ = None if model.tasks is None else np.asarray(model.tasks)
        self.objective_ = figures["objective"]
        self.dual_gap_ = self.certificate_["gap"] if self.certificate_["gap"] == self.certificate_["gap"] else NAN
        self.n_iter_, self.converged_ = int(figures["iterations"]), bool(figures["converged"])
        self._categories = {int(column): names for column, names in json.loads(model.categories_json).items()}

    def _columns(self, X: Any) -> tuple[Any, int]:
        """Return the raw columns of the rules of arrays, and the number of rows."""
        check_is_fitted(self, "model_")
        X = in_memory(X)
        if has_text(X) or self._categories:
            X, _ = encoded(X, self._categories)
        X = validated(self, X, reset=False, **_rules_of_arrays())
        raw = X[:, self.model_.columns]
        return (sp.csc_array(raw) if sp.issparse(raw) else raw), X.shape[0]

    def _values(self, X: Any, task: Any = None) -> np.ndarray:
        check_is_fitted(self, "model_")
        if is_store(X):
            with fit_context(opened(X), self.cluster, fan_out([_warn_event], 0), 0) as ctx:
                return decide_rules(self.model_, ctx, task)
        raw, n = self._columns(X)
        unseen = unseen_values(self.model_, raw)
        if unseen:
            warn_user(unseen_message(unseen))
        return of_tasks(self.model_, rule_values(self.model_, raw, n), task)

    def decision_function(self, X: Any, task: Any = None) -> np.ndarray:
        """Return ``f(x)``: ``(n_samples,)`` for two classes and for tasks, else ``(n_samples, n_classes)``."""
        values = self._values(X, task)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: Any, task: Any = None) -> np.ndarray:
        """Return the predicted class labels, ``(n_samples,)``."""
        return labelled(self.decision_function(X, task), self.classes_)

    def score(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> float:
        """Return the share of right labels over all rows."""
        return float(accuracy_score(in_memory(y, "y"), self.predict(X, task), sample_weight=sample_weight))

    def transform(self, X: Any) -> np.ndarray:
        """Return which rows satisfy which rule: ``(n_samples, n_rules)`` zeros and ones in the order of ``rules_``."""
        check_is_fitted(self, "model_")
        if is_store(X):
            with fit_context(opened(X), self.cluster, fan_out(None, 0), 0) as ctx:
                raw = fetch_columns(ctx, self.model_.columns) if len(self.model_.columns) else np.zeros((ctx.data.n_rows, 0))
                found = rule_matrix(self.model_, raw, ctx.data.n_rows)
        else:
            found = rule_matrix(self.model_, *self._columns(X))
        return found[:, _order(self.model_)].astype(np.float64)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the texts of the rules."""
        check_is_fitted(self, "model_")
        return np.array([rule["text"] for rule in self.rules_], dtype=object)

    def rules_table(self) -> list[dict[str, Any]]:
        """Return one flat row per rule, largest weight first: rule, vote, weight, support, length, and the weight of every machine."""
        check_is_fitted(self, "model_")
        rows = []
        for rule in self.rules_:
            told = {"rule": rule["text"], **{name: rule[name] for name in ("vote", "weight", "support", "length")}}
            rows.append({**told, **{f"weight[{name}]": value for name, value in rule.get("weights", {}).items()}})
        return rows

    def to_csv(self, path: str | Path) -> None:
        """Write :meth:`rules_table` as CSV."""
        rows = self.rules_table()
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else ["rule", "vote", "weight", "support", "length"])
            writer.writeheader()
            writer.writerows(rows)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return rules, intercepts and certificate as JSON, and write them to ``path`` if there is one."""
        check_is_fitted(self, "model_")
        told = {name: value if value == value else None for name, value in self.certificate_.items()}
        whole = {
            "classes": self.classes_.tolist(),
            "tasks": None if self.tasks_ is None else self.tasks_.tolist(),
            "rules": self.rules_,
            "intercepts": self.intercept_.tolist(),
            "certificate": told,
        }
        text = json.dumps(whole, indent=1)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text


def _order(model: RuleModel) -> np.ndarray:
    return np.lexsort((np.arange(model.n_rules), -np.abs(model.weights).max(axis=1, initial=0.0)))


def _rules_of_arrays() -> dict[str, Any]:
    return {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "accept_large_sparse": False, "ensure_all_finite": "allow-nan"}


def _warn_event(event: Mapping[str, Any]) -> None:
    if event["event"] == "warning":
        warn_user(str(event["message"]))


def _nested(matrix: Any) -> Any:
    return None if matrix is None else np.asarray(matrix, np.float64).tolist()


def _listed(columns: Any) -> Any:
    return None if columns is None else [column.item() if isinstance(column, np.generic) else column for column in columns]
