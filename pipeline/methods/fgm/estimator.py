"""FGMClassifier and FGMRegressor: classification and regression with feature selection by the Feature Generating Machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ....storage import MEMORY_STRIPE_BYTES, MemoryBlocks
from ....storage.data import is_store
from ....storage.errors import Matrix
from ...estimators.base import Classifier, Estimator, Regressor, by_class, has_probabilities, log_of, predicted_labels
from ...estimators.cv import CrossValidated, Grid, Start
from ...estimators.frames import feature_count, named_groups
from ...estimators.inputs import Callbacks, Column, Seed, UserRows, score_of
from ...estimators.selection import Selection
from ...inputs.covariates import covariates_to_decide, covariates_to_fit
from ...inputs.labels import Inputs
from ...models.model import Tables
from ...records.config import MethodConfig
from .atoms import build_atoms
from .build import group_tables
from .config import FGMConfig
from .method import FGM, FGMProblem, FGMState
from .model import FGMModel, MachineState, decision_values, model_columns, selected_atoms
from .stability import bootstrap_frequencies

WIDE = 50_000  # from this many features ``coef_`` is a sparse row: a dense one would be mostly zeros

WIDER = 4  # times B that a search goes on to where the best model has most of its rounds


@dataclass(frozen=True)
class PathPoint:
    """Model after one round: ``<weights, x> + intercept`` over the features ``support``, with ``objective`` F_t and its certificates.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gramplane import FGMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = FGMClassifier(B=2, max_rounds=3).fit(X, y)
    >>> [point.n_selected for point in model.path_]
    [2, 4, 6]
    """

    support: np.ndarray  # `(k,)` coordinates with weight (features; `(k, 2)` pairs for `poly2`)
    weights: np.ndarray  # `(k,)` their weights
    intercept: float
    objective: float
    gap: float
    outer_gap: float
    n_selected: int  # atoms with weight
    covariate_coef: np.ndarray  # `(q,)` coefficients of the covariates


class _FGM(Selection, Estimator):
    """Base class of classifier and regressor."""

    _method = FGM()
    _takes_all_memory = True
    _forms = {"accept_sparse": ["csc", "csr"], "accept_large_sparse": True}

    groups: Any
    feature_map: str | None
    model_: FGMModel
    _training: Inputs

    # -- fitting -----------------------------------------------------------------------------------------------------------

    def fit(self, X: UserRows, y: Column = None, sample_weight: Column = None, *, covariates: UserRows | None = None) -> Self:
        """Fit on arrays, sparse matrices, Dask arrays, or a block store.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store (its path or object) may contain target, weights, groups and covariates.
        y
            ``(n_samples,)`` target.
        sample_weight
            ``(n_samples,)`` factors of the losses; rows with weight 0 are ignored.
        covariates
            ``(n_samples, n_covariates)``, at most 100 columns. They are always in the model, and their coefficients are not penalised.

        Raises
        ------
        ValueError
            Parameter out of range, non-finite data, a single class, or groups that do not match the data. Also covariates that are constant
            although there is an intercept, are linear combinations of others, or separate the classes under the logistic loss.
        """
        config = self._config()
        self._fit(self._inputs(X, y, sample_weight, covariates, config=config), config)
        return self

    def _inputs(
        self, X: object, y: object, sample_weight: object = None, covariates: object = None, *, config: MethodConfig | None = None
    ) -> Inputs:
        inputs = super()._inputs(X, y, sample_weight, config=config)
        if covariates is not None or is_store(X):
            inputs = replace(inputs, covariates=covariates_to_fit(covariates, inputs.data))
        of_store = is_store(X) and self.groups is None and self.feature_map is None
        groups = inputs.data.groups() if of_store else named_groups(self, inputs.data.n_cols)
        return replace(inputs, groups=groups)

    def _blocks(self, X: object) -> MemoryBlocks:
        return MemoryBlocks(X, stripe_bytes=MEMORY_STRIPE_BYTES)

    def _set_model(self, model: FGMModel) -> None:
        super()._set_model(model)
        machines, config = model.machines, FGMConfig.model_validate_json(model.params_json)
        self.covariate_coef_ = model.covariate_coef.reshape(len(machines), len(model.covariate_names))
        self.selected_ = selected_atoms(machines).reshape((-1, 2) if model.kind == "poly2" else -1)
        self.coef_ = _coef(model)
        rows = zip(model.weights, model.intercepts, strict=True)
        self.intercept_ = np.array([_raw_units(model, model.coordinates, w, b)[1] for w, b in rows])
        prices = np.array([machine.C for machine in machines])
        self.C_ = float(prices[0]) if len(prices) == 1 else prices
        self.objective_ = float(sum(machine.objective for machine in machines))
        self.dual_gap_ = float(sum(machine.gap for machine in machines))
        self.outer_gap_ = float(sum(machine.outer_gap for machine in machines))
        self.n_iter_ = max(len(machine.rounds) for machine in machines)
        self.cuts_ = _of_machines([list(machine.cuts) for machine in machines])
        self.cut_weights_ = _of_machines([machine.rounds[-1].cut_weights if machine.rounds else np.zeros(0) for machine in machines])
        vars(self).pop("path_", None)
        self.converged_ = all(_has_converged(config, machine) for machine in machines)

    @cached_property
    def path_(self) -> Any:
        """Models after every round, computed at the first access."""
        check_is_fitted(self, "model_")
        return _of_machines([_path(self.model_, machine) for machine in self.model_.machines])

    def _keep_run(self, problem: FGMProblem, inputs: Inputs, state: FGMState) -> None:
        # For selection_stability; dropped when the estimator is pickled.
        self._training = inputs

    def _chart_tables(self) -> Tables:
        tables, inputs = super()._chart_tables(), getattr(self, "_training", None)
        # A loaded model does not know its groups.
        if self.model_.kind != "groups" or inputs is None:
            return tables
        return {**tables, **group_tables(self.model_, build_atoms(self._config(), inputs))}

    # -- using -------------------------------------------------------------------------------------------------------------

    def predict(self, X: UserRows, *, covariates: UserRows | None = None) -> np.ndarray:
        """Return the predicted class labels or target values, ``(n_samples,)``."""
        values = by_class(self._decide(X, covariates=covariates))
        return predicted_labels(values, self.classes_) if self._is_classifier else values

    def score(self, X: UserRows, y: Column = None, sample_weight: Column = None, *, covariates: UserRows | None = None) -> float:
        """Return the accuracy of a classifier, or R2 of a regressor."""
        return score_of(self._is_classifier, X, y, self.predict(X, covariates=covariates), sample_weight)

    def _values(self, X: object, covariates: object = None) -> np.ndarray:
        check_is_fitted(self, "model_")
        model = self.model_
        if is_store(X):
            with self._stored(X) as (data, resources):
                return model.decision_values(data, resources, covariates=covariates)
        rows = self._checked(X, reset=False)
        further = covariates_to_decide(model.covariate_names, covariates, rows.shape[0])
        values = decision_values(model, model_columns(model, rows))
        return values if further is None else values + further @ model.covariate_coef.T

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self, "model_")
        return np.isin(np.arange(feature_count(self)), self.model_.used_features)

    def transform(self, X: UserRows) -> Matrix:
        """Return the selected columns of ``X``, or with ``poly2`` the selected products, ``(n_samples, k)``."""
        check_is_fitted(self, "model_")
        if self.model_.kind != "poly2":
            return super().transform(X)
        return model_columns(self.model_, self._checked(X, reset=False))[:, self.model_.is_used]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of :meth:`transform`; a product is named ``a*b``."""
        check_is_fitted(self, "model_")
        if self.model_.kind != "poly2":
            return super().get_feature_names_out(input_features)
        known = getattr(self, "feature_names_in_", None) if input_features is None else input_features
        names = [f"x{j}" for j in range(self.n_features_in_)] if known is None else list(known)
        pairs = self.selected_.tolist()
        return np.array([names[a] if b < 0 else f"{names[a]}*{names[b]}" for a, b in pairs], dtype=object)

    def selection_stability(
        self, n_resamples: int = 50, X: UserRows | None = None, y: Column = None, *, covariates: UserRows | None = None
    ) -> np.ndarray:
        """Return how often each feature (group) is selected over bootstrap resamples of the training rows.

        The result has frequencies in [0, 1]: ``(n_features,)``, or ``(n_groups,)`` with groups; with ``poly2``, one per row of
        ``selected_``. All resamples are fitted in the same passes, as row weights; the data are not copied.

        Parameters
        ----------
        n_resamples
            Number of bootstrap resamples.
        X, y, covariates
            Training data, needed only when the estimator was loaded from a file.
        """
        check_is_fitted(self, "model_")
        inputs = self._inputs(X, y, covariates=covariates) if X is not None else getattr(self, "_training", None)
        if inputs is None:
            raise ValueError("selection_stability needs X and y: the training data is not kept in a saved estimator")
        config = self._config()
        with self._context(inputs.data) as ctx:
            return bootstrap_frequencies(config, inputs.over(ctx.data), ctx, n_resamples, self.selected_)


class FGMClassifier(_FGM, Classifier):
    r"""Linear classifier on a few features, selected by cutting planes (Feature Generating Machine).

    .. math::

        \min_{w, b} \frac{1}{2} \|w\|_B^2 + \sum_i \ell_i(y_i (\langle w, x_i \rangle + b))

    is solved approximately, by ``max_rounds`` cutting planes of ``B`` features each; :math:`\|w\|_B` is the k-support norm with k = B.
    ``B`` and ``max_rounds`` limit the number of selected features, and ``C`` determines how closely they fit the training data. Several
    classes are fitted one-vs-rest. Covariates, like the intercept, add to the decision values without a penalty.

    Parameters
    ----------
    B : int >= 1, default=10
        Number of features (groups, pairs) that a round may select: at most ``B * max_rounds`` are selected in all. A value above the number
        available is reduced to it, with a warning.
    C : float > 0 or {"auto"}, default='auto'
        Inverse regularisation strength: larger values fit the training data more closely. ``"auto"`` derives it from the data, whatever the
        unit of the columns (formula: Choosing parameters); the value used is stored in ``C_``. The loss term is C/2 * sum xi^2 for
        squared_hinge (``C`` is twice that of ``LinearSVC``), C * sum log(1 + exp(-m)) for logistic (as in ``LogisticRegression``), and C/2
        * sum r^2 for real targets (outside the tube, up to ``delta``), whatever their unit. The experiments of the paper use ``C=10`` and
        no intercept.
    max_rounds : int >= 1 or {"auto"}, default='auto'
        Largest number of rounds (cutting planes). Stopping early is what makes the model sparse: near-exact solutions are denser and often
        less accurate. ``"auto"``: 10. With dense columns and without a feature map, the fit then stops earlier when no candidate (feature,
        group) scores higher than chance explains, unless ``n_features_to_select`` or ``outer_tol`` is set.
    n_features_to_select : int >= 1 or None, default=None
        Stop when exactly this many distinct features (groups, pairs) have been chosen. Chosen features whose weight is zero are not in
        ``selected_``.
    loss : {"squared_hinge", "logistic"}, default='squared_hinge'
        Loss of a row: ``"squared_hinge"`` or ``"logistic"`` for classes; ``"squared"``, ``"squared_epsilon_insensitive"`` or ``"huber"``
        for real targets.
    fit_intercept : bool, default=True
        Fit an unpenalised intercept; the solver eliminates it exactly.
    groups : int or array of int or list of arrays or None, default=None
        Groups of features: one label per feature (negative: no group; a Series is matched by the names of features, or of the columns they
        are made from), the size of consecutive groups, or a list of arrays of indices or masks, which may be disjoint, nested or
        overlapping. ``None``: the groups of the store, else no groups.
    group_weight : {"none", "1/size"} or array of float or None, default=None
        Weight eta of each group: one number per group, or a rule. Default: ``"none"``; ``"1/size"`` for nested groups.
    feature_map : {"poly2", "hik", "additive_gaussian", "additive_chi2"} or None, default=None
        Implicit map of the features. ``"poly2"``: the kernel (gamma x'z + coef0)^2, never computed explicitly. ``"hik"``: histogram
        intersection of non-negative features. ``"additive_gaussian"``: sum_j exp(-gamma (x_j - z_j)^2). ``"additive_chi2"``: sum_j 2 x_j
        z_j / (x_j + z_j) of non-negative features, such as counts, by the 3 columns per feature of ``AdditiveChi2Sampler``.
    gamma : float > 0, default=1.0
        With ``"poly2"``: (gamma x'z + coef0)^2. With ``"additive_gaussian"``: exp(-gamma (x - z)^2).
    coef0 : float >= 0, default=1.0
        Constant term of the degree-2 kernel.
    n_bins : int >= 1 and <= 10000, default=100
        Number of columns per feature of the intersection kernel.
    exponent : float > 0 or None, default=None
        Exponent a of the intersection kernel: with a number, min(|x|^a, |z|^a) of features of either sign; ``None``: min(x, z).
    solver : {"auto", "newton", "apg", "mkl"}, default='auto'
        Solver of the sub-problems. ``"auto"`` is ``"newton"``, on the active rows; ``"apg"`` is the solver of the paper; ``"mkl"`` is a
        slow reference.
    inner_tol : float > 0, default=0.001
        Tolerance of the stopping criterion of a sub-problem (see ``inner_stop``).
    inner_stop : {"gap", "decrease"}, default='gap'
        Stopping criterion of a sub-problem. ``"gap"``: its relative duality gap. ``"decrease"``: the relative decrease of a step, (41) in
        the paper; ``solver="auto"`` is then ``"apg"``. It is fast but leaves gaps of tens of percent, which are reported.
    max_inner : int >= 1 or None, default=None
        Largest number of steps of a sub-problem per round; the remaining gap is reported.
    outer_tol : float > 0 or None, default=None
        Stop when the criterion ``outer_stop`` falls to this value. ``None``: never.
    allow_repeat : bool, default=True
        Let a round select a feature again, as the exact method does. With False, every round adds ``B`` new features.
    debias : bool, default=False
        Refit the selected features with a ridge penalty, C=20.
    outer_stop : {"gap", "decrease"}, default='gap'
        Stopping criterion of the fit. ``"gap"``: the certified relative distance to the exact optimum. ``"decrease"``: (38) of the paper.
    class_weight : {"balanced"} or dict or None, default=None
        Factors of ``C`` per class.
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
    classes_
        Class labels in ascending order.
    selected_
        Sorted indices of the features with non-zero weight in any class. With ``groups``, indices of groups. With ``"poly2"``, ``(k, 2)``
        pairs, whose second index is -1 for a linear term.
    coef_, intercept_
        Weights ``(n_machines, n_features)``, a sparse array from 50,000 features on; with a feature map, ``(n_machines, k)`` aligned with
        the columns of the map. Intercepts ``(n_machines,)``.
    C_
        Value of ``C`` used; ``(n_machines,)`` for several classes.
    covariate_coef_
        ``(n_machines, n_covariates)`` unpenalised coefficients of the covariates.
    cuts_, cut_weights_
        Features (groups, pairs) of each round, and the kernel weight mu of each round; with several classes, a list per class.
    path_
        :class:`PathPoint` after every round; with several classes, a list per class.
    objective_, dual_gap_, outer_gap_
        Objective F_T, absolute duality gap of the last sub-problem, and certified distance of F_T from the exact optimum; each is
        summed over classes.
    n_iter_, converged_, stop_reason_, history_
        Number of rounds; whether the last sub-problem was solved and the goal (number of features, outer tolerance) was reached; the reason
        for stopping; and one array per quantity.
    n_features_in_
        Number of features.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from gramplane import FGMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = FGMClassifier(B=2, max_rounds=3).fit(scale(X), y)
    >>> model.selected_.tolist(), round(model.score(scale(X), y), 2)
    ([1, 10, 21, 22, 24, 27], 0.98)

    References
    ----------
    Tan, Tsang, Wang: Towards Ultrahigh Dimensional Feature Selection for Big Data. JMLR 15 (2014), problems (7), (31), (37).
    """

    def __init__(
        self,
        B: int = 10,
        C: float | Literal["auto"] = "auto",
        max_rounds: int | Literal["auto"] = "auto",
        n_features_to_select: int | None = None,
        loss: Literal["squared_hinge", "logistic"] = "squared_hinge",
        fit_intercept: bool = True,
        groups: Any = None,
        group_weight: Any = None,
        feature_map: Literal["poly2", "hik", "additive_gaussian", "additive_chi2"] | None = None,
        gamma: float = 1.0,
        coef0: float = 1.0,
        n_bins: int = 100,
        exponent: float | None = None,
        solver: Literal["auto", "newton", "apg", "mkl"] = "auto",
        inner_tol: float = 0.001,
        inner_stop: Literal["gap", "decrease"] = "gap",
        max_inner: int | None = None,
        outer_tol: float | None = None,
        allow_repeat: bool = True,
        debias: bool = False,
        outer_stop: Literal["gap", "decrease"] = "gap",
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        probability: Literal["auto", "sigmoid", "isotonic", False] = "auto",
        scale: Literal["auto", "standard", "max-abs", "unit-column"] | None = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.B = B
        self.C = C
        self.max_rounds = max_rounds
        self.n_features_to_select = n_features_to_select
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.groups = groups
        self.group_weight = group_weight
        self.feature_map = feature_map
        self.gamma = gamma
        self.coef0 = coef0
        self.n_bins = n_bins
        self.exponent = exponent
        self.solver = solver
        self.inner_tol = inner_tol
        self.inner_stop = inner_stop
        self.max_inner = max_inner
        self.outer_tol = outer_tol
        self.allow_repeat = allow_repeat
        self.debias = debias
        self.outer_stop = outer_stop
        self.class_weight = class_weight
        self.probability = probability
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def decision_function(self, X: UserRows, *, covariates: UserRows | None = None) -> np.ndarray:
        """Return ``f(x)``: ``(n_samples,)`` for two classes, else ``(n_samples, n_classes)``."""
        return by_class(self._decide(X, covariates=covariates))

    @available_if(has_probabilities)
    def predict_proba(self, X: UserRows, *, covariates: UserRows | None = None) -> np.ndarray:
        """Return the class probabilities, ``(n_samples, n_classes)`` in the order of ``classes_``.

        :meth:`predict` uses decision values; after calibration the most probable class may differ from it. With ``probability="auto"`` and
        a loss other than logistic, the first call takes about as long as five fits.

        Raises ValueError if there are no data to calibrate on, or if the training data have changed since the fit.
        """
        return self._probabilities(X, covariates=covariates)

    @available_if(has_probabilities)
    def predict_log_proba(self, X: UserRows, *, covariates: UserRows | None = None) -> np.ndarray:
        """Return the logarithms of :meth:`predict_proba`, ``(n_samples, n_classes)``."""
        return log_of(self.predict_proba(X, covariates=covariates))


class FGMRegressor(_FGM, Regressor):
    r"""Linear regression on a few features, selected by cutting planes (Feature Generating Machine).

    .. math::

        \min_{w, b} \frac{1}{2} \|w\|_B^2 + \sum_i \ell_i(y_i - \langle w, x_i \rangle - b)

    is solved approximately, by ``max_rounds`` cutting planes of ``B`` features each; :math:`\|w\|_B` is the k-support norm with k = B. The
    loss is C/2 times the squared residual, C/2 times the squared distance from a tube of half-width ``epsilon``, or C times the Huber loss,
    which is linear beyond ``delta``. Both ``epsilon`` and ``delta`` are in standard deviations of the target.

    The target is centred (if there is an intercept) and scaled internally, so that C has the same meaning in every unit: penalty and losses
    are proportional to the square of the unit. Weights, intercept and coefficients of covariates are in the unit of the target; objective
    and gaps are in the square of this unit. All are those of the problem above, with ``epsilon`` and ``delta`` multiplied by the standard
    deviation.

    Parameters
    ----------
    B : int >= 1, default=10
        Number of features (groups, pairs) that a round may select: at most ``B * max_rounds`` are selected in all. A value above the number
        available is reduced to it, with a warning.
    C : float > 0 or {"auto"}, default='auto'
        Inverse regularisation strength: larger values fit the training data more closely. ``"auto"`` derives it from the data, whatever the
        unit of the columns (formula: Choosing parameters); the value used is stored in ``C_``. The loss term is C/2 * sum xi^2 for
        squared_hinge (``C`` is twice that of ``LinearSVC``), C * sum log(1 + exp(-m)) for logistic (as in ``LogisticRegression``), and C/2
        * sum r^2 for real targets (outside the tube, up to ``delta``), whatever their unit. The experiments of the paper use ``C=10`` and
        no intercept.
    max_rounds : int >= 1 or {"auto"}, default='auto'
        Largest number of rounds (cutting planes). Stopping early is what makes the model sparse: near-exact solutions are denser and often
        less accurate. ``"auto"``: 10. With dense columns and without a feature map, the fit then stops earlier when no candidate (feature,
        group) scores higher than chance explains, unless ``n_features_to_select`` or ``outer_tol`` is set.
    n_features_to_select : int >= 1 or None, default=None
        Stop when exactly this many distinct features (groups, pairs) have been chosen. Chosen features whose weight is zero are not in
        ``selected_``.
    loss : {"squared", "squared_epsilon_insensitive", "huber"}, default='squared'
        Loss of a row: ``"squared_hinge"`` or ``"logistic"`` for classes; ``"squared"``, ``"squared_epsilon_insensitive"`` or ``"huber"``
        for real targets.
    epsilon : float >= 0, default=0.1
        With ``"squared_epsilon_insensitive"``: half-width of the tube without loss, in standard deviations of the target.
    delta : float > 0, default=1.35
        With ``"huber"``: residual beyond which the loss is linear, in standard deviations of the target.
    fit_intercept : bool, default=True
        Fit an unpenalised intercept; the solver eliminates it exactly.
    groups : int or array of int or list of arrays or None, default=None
        Groups of features: one label per feature (negative: no group; a Series is matched by the names of features, or of the columns they
        are made from), the size of consecutive groups, or a list of arrays of indices or masks, which may be disjoint, nested or
        overlapping. ``None``: the groups of the store, else no groups.
    group_weight : {"none", "1/size"} or array of float or None, default=None
        Weight eta of each group: one number per group, or a rule. Default: ``"none"``; ``"1/size"`` for nested groups.
    feature_map : {"poly2", "hik", "additive_gaussian", "additive_chi2"} or None, default=None
        Implicit map of the features. ``"poly2"``: the kernel (gamma x'z + coef0)^2, never computed explicitly. ``"hik"``: histogram
        intersection of non-negative features. ``"additive_gaussian"``: sum_j exp(-gamma (x_j - z_j)^2). ``"additive_chi2"``: sum_j 2 x_j
        z_j / (x_j + z_j) of non-negative features, such as counts, by the 3 columns per feature of ``AdditiveChi2Sampler``.
    gamma : float > 0, default=1.0
        With ``"poly2"``: (gamma x'z + coef0)^2. With ``"additive_gaussian"``: exp(-gamma (x - z)^2).
    coef0 : float >= 0, default=1.0
        Constant term of the degree-2 kernel.
    n_bins : int >= 1 and <= 10000, default=100
        Number of columns per feature of the intersection kernel.
    exponent : float > 0 or None, default=None
        Exponent a of the intersection kernel: with a number, min(|x|^a, |z|^a) of features of either sign; ``None``: min(x, z).
    solver : {"auto", "newton", "apg", "mkl"}, default='auto'
        Solver of the sub-problems. ``"auto"`` is ``"newton"``, on the active rows; ``"apg"`` is the solver of the paper; ``"mkl"`` is a
        slow reference.
    inner_tol : float > 0, default=0.001
        Tolerance of the stopping criterion of a sub-problem (see ``inner_stop``).
    inner_stop : {"gap", "decrease"}, default='gap'
        Stopping criterion of a sub-problem. ``"gap"``: its relative duality gap. ``"decrease"``: the relative decrease of a step, (41) in
        the paper; ``solver="auto"`` is then ``"apg"``. It is fast but leaves gaps of tens of percent, which are reported.
    max_inner : int >= 1 or None, default=None
        Largest number of steps of a sub-problem per round; the remaining gap is reported.
    outer_tol : float > 0 or None, default=None
        Stop when the criterion ``outer_stop`` falls to this value. ``None``: never.
    allow_repeat : bool, default=True
        Let a round select a feature again, as the exact method does. With False, every round adds ``B`` new features.
    debias : bool, default=False
        Refit the selected features with a ridge penalty, C=20.
    outer_stop : {"gap", "decrease"}, default='gap'
        Stopping criterion of the fit. ``"gap"``: the certified relative distance to the exact optimum. ``"decrease"``: (38) of the paper.
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
    selected_
        Sorted indices of the features with non-zero weight. With ``groups``, indices of groups. With ``"poly2"``, ``(k, 2)``
        pairs, whose second index is -1 for a linear term.
    coef_, intercept_
        Weights ``(1, n_features)``, a sparse array from 50,000 features on; with a feature map, ``(1, k)`` aligned with
        the columns of the map. Intercept ``(1,)``.
    C_
        Value of ``C`` used.
    covariate_coef_
        ``(1, n_covariates)`` unpenalised coefficients of the covariates.
    cuts_, cut_weights_
        Features (groups, pairs) of each round, and the kernel weight mu of each round.
    path_
        :class:`PathPoint` after every round.
    objective_, dual_gap_, outer_gap_
        Objective F_T, absolute duality gap of the last sub-problem, and certified distance of F_T from the exact optimum.
    n_iter_, converged_, stop_reason_, history_
        Number of rounds; whether the last sub-problem was solved and the goal (number of features, outer tolerance) was reached; the reason
        for stopping; and one array per quantity.
    n_features_in_
        Number of features.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from gramplane import FGMRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = FGMRegressor(B=2, max_rounds=2).fit(scale(X), y)
    >>> model.selected_.tolist()
    [2, 3, 6, 8]

    References
    ----------
    Tan, Tsang, Wang: Towards Ultrahigh Dimensional Feature Selection for Big Data. JMLR 15 (2014), problems (7), (31), (37).
    """

    def __init__(
        self,
        B: int = 10,
        C: float | Literal["auto"] = "auto",
        max_rounds: int | Literal["auto"] = "auto",
        n_features_to_select: int | None = None,
        loss: Literal["squared", "squared_epsilon_insensitive", "huber"] = "squared",
        epsilon: float = 0.1,
        delta: float = 1.35,
        fit_intercept: bool = True,
        groups: Any = None,
        group_weight: Any = None,
        feature_map: Literal["poly2", "hik", "additive_gaussian", "additive_chi2"] | None = None,
        gamma: float = 1.0,
        coef0: float = 1.0,
        n_bins: int = 100,
        exponent: float | None = None,
        solver: Literal["auto", "newton", "apg", "mkl"] = "auto",
        inner_tol: float = 0.001,
        inner_stop: Literal["gap", "decrease"] = "gap",
        max_inner: int | None = None,
        outer_tol: float | None = None,
        allow_repeat: bool = True,
        debias: bool = False,
        outer_stop: Literal["gap", "decrease"] = "gap",
        scale: Literal["auto", "standard", "max-abs", "unit-column"] | None = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.B = B
        self.C = C
        self.max_rounds = max_rounds
        self.n_features_to_select = n_features_to_select
        self.loss = loss
        self.epsilon = epsilon
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.groups = groups
        self.group_weight = group_weight
        self.feature_map = feature_map
        self.gamma = gamma
        self.coef0 = coef0
        self.n_bins = n_bins
        self.exponent = exponent
        self.solver = solver
        self.inner_tol = inner_tol
        self.inner_stop = inner_stop
        self.max_inner = max_inner
        self.outer_tol = outer_tol
        self.allow_repeat = allow_repeat
        self.debias = debias
        self.outer_stop = outer_stop
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class _FGMPath(CrossValidated):
    """Choice of ``C``, ``B`` and the number of rounds by cross-validation. The fits of all folds and parameters share the same passes."""

    _grids = (Grid("C", "Cs", span=(0.01, 100.0)), Grid("B", "Bs"))
    _along = ("max_rounds",)
    _simplest_by = (("B", "max_rounds"), ("C",))

    Bs: Any

    def fit(
        self, X: UserRows, y: Column = None, sample_weight: Column = None, *, covariates: UserRows | None = None, groups: Column = None
    ) -> Self:
        """Choose parameters by cross-validation, then fit all rows with them.

        Parameters
        ----------
        X, y, sample_weight, covariates
            As for the estimator without a search.
        groups
            ``(n_samples,)`` labels of rows that are held out together, such as the patient of each row; passed to splitters that need
            groups.
        """
        with self._grouped(groups):
            return super(CrossValidated, self).fit(X, y, sample_weight, covariates=covariates)  # pyright: ignore[reportCallIssue] (of `_FGM`)

    def _unit(self, start: Start) -> float:
        auto = start.config.model_copy(update={"C": "auto"})
        state = self._method.init(self._method.problem(auto, start.inputs, start.ctx), start.ctx)
        return float(np.exp(np.mean([np.log(machine.C) for machine in state.machines])))

    def _chains(self, start: Start, known: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
        config: FGMConfig = start.config
        if not known:
            return super()._chains(start, known)
        is_asked = self.Bs is not None or config.n_features_to_select is not None or any("B" in point for point in known)
        if is_asked or 2 * self.best_params_.get("max_rounds", 0) <= config.most_rounds:
            return []
        wide = WIDER * config.B
        n_atoms = self._method.problem(config, start.inputs, start.ctx).n_atoms
        return [[{**point, "B": wide} for point in known]] if wide * config.most_rounds <= n_atoms else []


class FGMClassifierCV(_FGMPath, FGMClassifier):
    """Linear classifier on a few features, with ``C``, ``B`` and the number of rounds chosen by cross-validation.

    One fit yields the models for every number of rounds up to ``max_rounds`` (with ``debias``, only the last one). The simplest of several
    models is the one with the smallest product of ``B`` and the number of rounds.

    See :class:`FGMClassifier` for the problem, the other parameters and further attributes.

    Parameters
    ----------
    Bs : list of int or None, default=None
        Values of ``B`` to compare. ``None``: only ``B``. If the best model then uses more than half of ``max_rounds``, ``4 * B`` is
        compared, too, unless there are fewer than ``4 * B * max_rounds`` features, groups or pairs, or ``n_features_to_select`` is set.
    Cs : int or list of float, default=5
        Values of ``C`` to compare. A number means that many values, evenly spaced in the logarithm from 1/100 to 100 times the value of
        ``C="auto"`` on all rows (the mean over classes).
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
    C_, B_, max_rounds_
        Chosen parameters.
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
    >>> from sklearn.preprocessing import scale
    >>> from gramplane import FGMClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = FGMClassifierCV(Cs=3, B=2, max_rounds=4).fit(scale(X), y)
    >>> model.selected_.tolist(), round(model.best_score_, 2)
    ([1, 10, 19, 21, 22, 24, 27, 28], 0.97)
    """

    def __init__(
        self,
        B: int = 10,
        Bs: int | Sequence[float] | None = None,
        Cs: int | Sequence[float] | None = 5,
        max_rounds: int | Literal["auto"] = "auto",
        n_features_to_select: int | None = None,
        loss: Literal["squared_hinge", "logistic"] = "squared_hinge",
        fit_intercept: bool = True,
        groups: Any = None,
        group_weight: Any = None,
        feature_map: Literal["poly2", "hik", "additive_gaussian", "additive_chi2"] | None = None,
        gamma: float = 1.0,
        coef0: float = 1.0,
        n_bins: int = 100,
        exponent: float | None = None,
        solver: Literal["auto", "newton", "apg", "mkl"] = "auto",
        inner_tol: float = 0.001,
        inner_stop: Literal["gap", "decrease"] = "gap",
        max_inner: int | None = None,
        outer_tol: float | None = None,
        allow_repeat: bool = True,
        debias: bool = False,
        outer_stop: Literal["gap", "decrease"] = "gap",
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
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
        self.B = B
        self.Bs = Bs
        self.Cs = Cs
        self.max_rounds = max_rounds
        self.n_features_to_select = n_features_to_select
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.groups = groups
        self.group_weight = group_weight
        self.feature_map = feature_map
        self.gamma = gamma
        self.coef0 = coef0
        self.n_bins = n_bins
        self.exponent = exponent
        self.solver = solver
        self.inner_tol = inner_tol
        self.inner_stop = inner_stop
        self.max_inner = max_inner
        self.outer_tol = outer_tol
        self.allow_repeat = allow_repeat
        self.debias = debias
        self.outer_stop = outer_stop
        self.class_weight = class_weight
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


class FGMRegressorCV(_FGMPath, FGMRegressor):
    """Linear regression on a few features, with ``C``, ``B`` and the number of rounds chosen by cross-validation.

    One fit yields the models for every number of rounds up to ``max_rounds`` (with ``debias``, only the last one). The simplest of several
    models is the one with the smallest product of ``B`` and the number of rounds.

    See :class:`FGMRegressor` for the problem, the other parameters and further attributes.

    Parameters
    ----------
    Bs : list of int or None, default=None
        Values of ``B`` to compare. ``None``: only ``B``. If the best model then uses more than half of ``max_rounds``, ``4 * B`` is
        compared, too, unless there are fewer than ``4 * B * max_rounds`` features, groups or pairs, or ``n_features_to_select`` is set.
    Cs : int or list of float, default=5
        Values of ``C`` to compare. A number means that many values, evenly spaced in the logarithm from 1/100 to 100 times the value of
        ``C="auto"`` on all rows (the mean over classes).
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
    C_, B_, max_rounds_
        Chosen parameters.
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
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from gramplane import FGMRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = FGMRegressorCV(Cs=3, Bs=[1, 2], max_rounds=4).fit(scale(X), y)
    >>> model.selected_.tolist(), round(model.best_score_, 2)
    ([1, 2, 3, 5, 6, 8], 0.49)
    """

    def __init__(
        self,
        B: int = 10,
        Bs: int | Sequence[float] | None = None,
        Cs: int | Sequence[float] | None = 5,
        max_rounds: int | Literal["auto"] = "auto",
        n_features_to_select: int | None = None,
        loss: Literal["squared", "squared_epsilon_insensitive", "huber"] = "squared",
        epsilon: float = 0.1,
        delta: float = 1.35,
        fit_intercept: bool = True,
        groups: Any = None,
        group_weight: Any = None,
        feature_map: Literal["poly2", "hik", "additive_gaussian", "additive_chi2"] | None = None,
        gamma: float = 1.0,
        coef0: float = 1.0,
        n_bins: int = 100,
        exponent: float | None = None,
        solver: Literal["auto", "newton", "apg", "mkl"] = "auto",
        inner_tol: float = 0.001,
        inner_stop: Literal["gap", "decrease"] = "gap",
        max_inner: int | None = None,
        outer_tol: float | None = None,
        allow_repeat: bool = True,
        debias: bool = False,
        outer_stop: Literal["gap", "decrease"] = "gap",
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
        self.B = B
        self.Bs = Bs
        self.Cs = Cs
        self.max_rounds = max_rounds
        self.n_features_to_select = n_features_to_select
        self.loss = loss
        self.epsilon = epsilon
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.groups = groups
        self.group_weight = group_weight
        self.feature_map = feature_map
        self.gamma = gamma
        self.coef0 = coef0
        self.n_bins = n_bins
        self.exponent = exponent
        self.solver = solver
        self.inner_tol = inner_tol
        self.inner_stop = inner_stop
        self.max_inner = max_inner
        self.outer_tol = outer_tol
        self.allow_repeat = allow_repeat
        self.debias = debias
        self.outer_stop = outer_stop
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


def _has_converged(config: FGMConfig, machine: MachineState) -> bool:
    """Return whether the last sub-problem was solved and the goal, if there was one, was reached before the rounds ran out."""
    if not machine.rounds:
        return True
    record = machine.rounds[-1]
    has_aim = config.n_features_to_select is not None or config.outer_tol is not None
    solved = record.gap <= config.inner_tol * max(abs(record.objective), 1e-300)
    return solved and not (has_aim and machine.stop == "max_rounds")


def _of_machines(per_machine: list[Any]) -> Any:
    return per_machine[0] if len(per_machine) == 1 else per_machine


def _path(model: FGMModel, machine: MachineState) -> list[PathPoint]:
    points = []
    for t, record in enumerate(machine.rounds, start=1):
        after = machine.weights(t)
        weights, intercept = _raw_units(model, after.coordinates, after.values, -after.bias)
        certificate = record.objective, record.gap, record.outer_gap
        points.append(PathPoint(after.coordinates, weights, intercept, *certificate, record.n_selected, after.covariate_coef))
    return points


def _raw_units(model: FGMModel, support: np.ndarray, weights: np.ndarray, intercept: float) -> tuple[np.ndarray, float]:
    """Return weights ``w s`` and intercept ``b - sum w s mu`` for the unscaled columns. With a feature map, both are returned unchanged."""
    if model.kind not in ("linear", "groups"):
        return weights, intercept
    indices = np.searchsorted(model.features, support)
    if model.scale.factor is not None:
        weights = weights * model.scale.factor[indices]
    shift = 0.0 if model.scale.shift is None else float(weights @ model.scale.shift[indices])
    return weights, float(intercept - shift)


def _coef(model: FGMModel) -> np.ndarray | sp.csr_array:
    if model.kind not in ("linear", "groups"):
        return model.weights[:, model.is_used]
    weights = np.array([_raw_units(model, model.coordinates, row, 0.0)[0] for row in model.weights])
    if model.n_features < WIDE:
        dense = np.zeros((len(weights), model.n_features))
        dense[:, model.coordinates] = weights
        return dense
    rows, columns = np.repeat(np.arange(len(weights)), weights.shape[1]), np.tile(model.coordinates, len(weights))
    return sp.csr_array((weights.ravel(), (rows, columns)), shape=(len(weights), model.n_features))
