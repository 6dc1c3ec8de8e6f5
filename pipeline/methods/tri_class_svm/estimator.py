"""TriClassSVC: a semi-supervised support vector machine for unlabelled rows that may belong to neither class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted

from ....kernels.grams.spec import KernelSpec
from ....kernels.svm.triclass import three_way
from ....storage import DataError, MemoryBlocks
from ....storage.data import in_memory, is_store
from ....storage.errors import UserData
from ...estimators.base import Classifier
from ...estimators.inputs import Callbacks, Column, Seed, UserRows, check_labels, label_array, stored_target
from ...estimators.kernels import KernelEstimator, is_text
from ...grams.sources import TextRows
from ...inputs.scaling import as_scaled
from ...models.kernel import KernelModel
from .config import TriClassConfig
from .inputs import TriClassInputs, TriClassRows, join_stores, kernel_text, split_labels, three_way_labels
from .method import TriClass, validation_rows


class TriClassSVC(KernelEstimator, Classifier):
    r"""Semi-supervised support vector machine for unlabelled rows, some of which are irrelevant.

    Minimises over w, b, with :math:`f = w'\phi(x) + b` and :math:`\lambda = 1 / C`,

    .. math::

        J = \frac{\lambda}{2} \|w\|^2 + \sum_{y_i = \pm 1} \max(0, 1 - y_i f_i)
        + \frac{C_0}{C} \sum_{y_i = 0} \max(0, |f_i| - \varepsilon)
        + \frac{C_U}{C} \sum_{i \in U} \min\{\max(0, 1 - |f_i|), \max(0, |f_i| - \varepsilon)\}.

    The loss of an unlabelled row is the smaller of two losses: the hinge loss of its predicted class, and the loss of an irrelevant row.
    The two classes are coded -1 and +1; rows of neither class are coded 0. J is not convex: a sequence of convex problems decreases J, from
    several starts, and the best result is kept. A warning reports unlabelled rows that do not help (``validation``).

    For K > 2 classes there is one J per class: this class is coded +1, the other classes -1. All of them share the Gram matrix and the
    unlabelled rows, and each keeps its best start. The class with the largest f is predicted.

    Parameters
    ----------
    C : float > 0, default=1.0
        Inverse regularisation strength: larger values fit the training data more closely. Loss weight of rows of the two classes, as in
        scikit-learn's ``SVC``; 1 / lambda in the thesis.
    C_unlabelled : float >= 0, default=0.1
        Loss weight of unlabelled rows; 0 ignores them.
    C_irrelevant : float >= 0 or None, default=None
        Loss weight of irrelevant rows. Default: ``C_unlabelled``.
    eps : float >= 0 and < 1, default=0.1
        Half-width of the tube around the decision boundary within which irrelevant rows have no loss.
    kernel : str, KernelSpec or callable, default='rbf'
        Kernel: ``"rbf"``, ``"linear"``, ``"poly"`` or ``"laplacian"``; a kernel expression such as rbf(gamma=0.5)[0:4]; or
        ``"precomputed"``. With ``"precomputed"``, ``X`` is the matrix of labelled rows followed by unlabelled ones in ``fit``, and
        (n_test, n_rows) in ``predict``.
    gamma : {"scale", "auto"} or float > 0, default='scale'
        Width parameter of a kernel given by one word, as in scikit-learn's ``SVC``. ``"scale"``: 1 / (features * variance of all rows,
        unlabelled ones included); ``"auto"``: 1 / features.
    degree : int >= 1, default=3
        Degree of ``kernel="poly"``.
    coef0 : float >= 0, default=0.0
        Constant term of ``kernel="poly"``.
    algorithm : {"mm", "dc", "cccp"}, default='mm'
        How the unlabelled rows are fitted. ``"mm"``: each takes the cheaper of its two losses, then the convex problem is solved exactly.
        ``"dc"``: the concave part of the exact difference of convex functions is linearised. ``"cccp"``: Algorithm 3 of the thesis, with
        relaxed indicators.
    start : {"best", "usvm", "svm3", "s3vm", "random"}, default='best'
        Initial assignment of the unlabelled rows: ``"svm3"``, from the model of the labelled rows alone; ``"usvm"``, from the model in
        which all unlabelled rows are irrelevant; ``"s3vm"``, all relevant; ``"random"``. ``"best"`` tries all of these and keeps the
        smallest objective. The model with the smallest objective is not always the most accurate: with many unlabelled rows and a large
        ``C_unlabelled``, nearly all unlabelled rows may become irrelevant. ``validation`` detects this.
    balance : {"labels"} or float or None, default=None
        Required mean decision value of the unlabelled rows: a number, or ``"labels"`` for the mean of the labels (-1, +1). For more than
        two classes, this holds for the decision values of every class.
    all_relevant : bool, default=False
        Assume that every unlabelled row belongs to one of the classes (a semi-supervised SVM, S3VM).
    n_random : int >= 1, default=1
        Number of random starts.
    validation : {"auto"} or int >= 0, default='auto'
        Number of folds of a cross-validation on the labelled rows; 0: none. It compares the model with the two SVMs that provide the starts
        svm3 and usvm and learn little or nothing from the unlabelled rows. A warning is issued if one of these SVMs classifies more
        held-out rows correctly, by more than the standard error of the difference. ``"auto"``: 3 folds if there are unlabelled rows, no
        rows are set aside for a test, each class has at least 3 rows, and there are at most 5,000 rows in all; otherwise 0. These folds run
        only the best start, which takes about as much work as the fit.
    irrelevant_label : bool or int or float or str or None, default='auto'
        Label of rows of no class; there must be two or more other labels, of any type. ``"auto"``: 0, unless there are only two labels in
        all. If this is ambiguous, labels are rejected: -1, 0 and 1 without unlabelled rows, because -1 may mean unlabelled; and 0 beside
        three or more others, because 0 may be a class. ``None``: no row is irrelevant.
    D : float >= 1 or None, default=None
        With ``"cccp"``: range of its relaxation, at least 1 + eps. Default: the range of the decision values, at least 2.
    class_weight : {"balanced"} or dict or None, default=None
        Factors of ``C`` per class.
    tol : float > 0, default=0.0001
        A start ends when no assignment changes, or when the objective J decreases by less than tol (1 + J). If ``tol`` is below a tenth of
        ``inner_tol``, the last convex problem of a start is also solved until the gap of this problem is at most tol (1 + J).
    inner_tol : float > 0, default=0.001
        Tolerance of a convex problem, in units of decision values.
    max_iter : int >= 1, default=50
        Largest number of convex problems per start; a warning is issued if the best start ends at this limit.
    grams : {"auto", "memory", "recompute"}, default='auto'
        Where the Gram matrix is kept: ``"memory"``, or ``"recompute"`` for nowhere. ``"auto"`` decides by its size.
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
    classes_, three_way_labels_
        The classes in ascending order; and the labels that :meth:`predict_three_way` returns: ``irrelevant_label`` between two classes, or
        after several.
    assignment_
        ``(n_unlabelled,)`` assignment of every unlabelled row. Two classes: -1 for the first class, 0 for neither, +1 for the second. K > 2
        classes: the index of the class in ``classes_``, or -1 for none, so that ``three_way_labels_[assignment_]`` are the labels.
    dual_coef_, support_, intercept_
        Coefficients ``(1, n_support)`` of labelled rows followed by unlabelled ones, their positions, and the intercept b ``(1,)``. K > 2
        classes: ``(K, n_support)`` and ``(K,)``.
    objective_, dual_gap_
        Objective J, and the certified gap of the last convex problem; the sums over all classes if there are more than two.
    start_objectives_
        ``(n_starts,)`` objective J of every start; ``(K, n_starts)`` for K > 2 classes.
    validation_
        Rows ``{"machine", "accuracy", "deviation", "folds"}`` for three models: the SVM on the labelled rows (``"SVM"``), the SVM in which
        all unlabelled rows are irrelevant (``"U-SVM"``), and this model (``"3C-SVM"``). Empty without validation.
    n_iter_, converged_, stop_reason_, history_
        Number of steps, whether the best start converged, the reason for stopping, and one array per quantity over the steps.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gramplane import TriClassSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = TriClassSVC().fit(X[:100], y[:100], X[100:])
    >>> round(model.score(X[100:], y[100:]), 2)
    0.9

    References
    ----------
    Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 5.
    """

    _method = TriClass()
    _kernels_parameter = "kernel"

    kernel: Any

    def __init__(
        self,
        C: float = 1.0,
        C_unlabelled: float = 0.1,
        C_irrelevant: float | None = None,
        eps: float = 0.1,
        kernel: str | KernelSpec | Callable[..., Any] = "rbf",
        gamma: Literal["scale", "auto"] | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        algorithm: Literal["mm", "dc", "cccp"] = "mm",
        start: Literal["best", "usvm", "svm3", "s3vm", "random"] = "best",
        balance: Literal["labels"] | float | None = None,
        all_relevant: bool = False,
        n_random: int = 1,
        validation: Literal["auto"] | int = "auto",
        irrelevant_label: bool | int | float | str | None = "auto",
        D: float | None = None,
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        tol: float = 0.0001,
        inner_tol: float = 0.001,
        max_iter: int = 50,
        grams: Literal["auto", "memory", "recompute"] = "auto",
        probability: Literal["auto", "sigmoid", "isotonic", False] = "auto",
        scale: Literal["auto", "standard", "max-abs", "unit-column"] | None = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.C = C
        self.C_unlabelled = C_unlabelled
        self.C_irrelevant = C_irrelevant
        self.eps = eps
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.algorithm = algorithm
        self.start = start
        self.balance = balance
        self.all_relevant = all_relevant
        self.n_random = n_random
        self.validation = validation
        self.irrelevant_label = irrelevant_label
        self.D = D
        self.class_weight = class_weight
        self.tol = tol
        self.inner_tol = inner_tol
        self.max_iter = max_iter
        self.grams = grams
        self.probability = probability
        self.scale = scale
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def _plain(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**super()._plain(params), "kernel": kernel_text(params["kernel"])}

    def fit(self, X: UserRows, y: Column = None, X_unlabelled: UserRows | None = None, sample_weight: Column = None) -> Self:
        """Learn from labelled and unlabelled rows.

        Parameters
        ----------
        X
            ``(n_labelled, n_features)`` array, sparse matrix, Dask array, block store, or strings. With ``kernel="precomputed"``: the
            matrix ``(n, n)`` of labelled rows followed by unlabelled ones.
        y
            ``(n_labelled,)`` labels of two or more classes of any type, and ``irrelevant_label`` for rows of no class; a block store may
            contain them.
        X_unlabelled
            ``(n_unlabelled, n_features)`` in the form of ``X``. ``None``: fit the labelled rows only.
        sample_weight
            ``(n_labelled,)`` how often each row counts: a factor of its loss weight, also used in ``gamma`` and in traces. Folds are drawn
            over rows, regardless of these counts.

        Raises
        ------
        ValueError
            Parameter out of range, ambiguous labels, class without rows, an empty ``X_unlabelled``, unlabelled rows with another number of
            features, or non-finite values. The message names the row.
        """
        config = self._config()
        inputs = self._read_inputs(config, X, y, X_unlabelled, sample_weight)
        self._fit(inputs, config)
        return self

    def predict_three_way(self, X: UserRows) -> np.ndarray:
        """Return the label of every row, ``(n_samples,)``; ``irrelevant_label`` if ``|f| < (1 + eps) / 2``, for every f of several
        classes.
        """
        check_is_fitted(self, "model_")
        codes = three_way(self.decision_function(X), self.model_.figures["eps"])
        return self.three_way_labels_[codes + 1 if len(self.classes_) == 2 else codes]

    @property
    def three_way_labels_(self) -> np.ndarray:
        """Labels that :meth:`predict_three_way` may return, ``(3,)``: the first class, the label for neither, and the second class. For K >
        2 classes, ``(K + 1,)``: the classes, and last the label for none.
        """
        check_is_fitted(self, "model_")
        return three_way_labels(self.classes_.tolist(), TriClassConfig.model_validate_json(self.model_.params_json).irrelevant_label)

    def _read_inputs(
        self, config: TriClassConfig, X: UserData, y: UserData, X_unlabelled: UserData, sample_weight: UserData
    ) -> TriClassInputs:
        if y is None and not is_store(X):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if X_unlabelled is not None and self._precomputed:
            raise ValueError("kernel='precomputed': X is the matrix of all rows, labelled ones first; X_unlabelled must be None")
        if X_unlabelled is not None and np.shape(X_unlabelled)[:1] == (0,):
            raise ValueError("X_unlabelled has no rows: leave it out, or give unlabelled rows")
        first, _ = self._data(X)
        second = None if X_unlabelled is None else self._more_rows(X_unlabelled)
        y = stored_target(first) if y is None else label_array(column_or_1d(in_memory(y, "y"), warn=True))
        check_labels(y)
        labelled = first.n_rows if not self._precomputed else len(y)
        if len(y) != labelled or labelled > first.n_rows:
            raise ValueError(f"y has {len(y)} entries, the data has {first.n_rows} rows: inconsistent numbers of samples")
        sample_weight = self._weight(first, sample_weight, labelled)
        has_unlabelled = second is not None or first.n_rows > labelled
        truth, classes = split_labels(y, config.irrelevant_label, sample_weight, has_unlabelled=has_unlabelled)
        self.classes_ = np.array(classes, y.dtype)
        data, count = _join_rows(first, second), first.n_rows - labelled if second is None else second.n_rows
        inputs = TriClassInputs(data, truth, count, sample_weight, classes)
        return replace(inputs, data=as_scaled(config, data, inputs.counts))

    def _more_rows(self, X: UserData) -> Any:
        """Return unlabelled rows as a data set."""
        rows = TextRows(X) if is_text(X) else self._read(X, reset=False, name="X_unlabelled")[0]
        return rows if isinstance(rows, TextRows) or is_store(rows) else self._blocks(rows)

    def _set_model(self, model: KernelModel) -> None:
        super()._set_model(model)
        self.assignment_, self.start_objectives_ = model.arrays["assignment"], model.arrays["starts"]
        self.validation_ = validation_rows(model.arrays["validation"])
        self.dual_coef_, self.support_, self.intercept_ = model.beta, model.support_ids, model.intercepts
        self.objective_, self.dual_gap_ = model.figures["objective"], model.figures["gap"]


def _join_rows(first: Any, second: Any) -> TriClassRows:
    """Return labelled and unlabelled rows as one data set."""
    if second is None:
        return first
    if type(first) is not type(second):
        raise DataError("X and X_unlabelled must both be arrays, both stores, or both strings")
    if isinstance(first, TextRows):
        return TextRows([*first.texts, *second.texts])
    if is_store(first):
        return join_stores(first, second)
    parts = [first.X, second.X]
    if any(sp.issparse(part) for part in parts):
        return MemoryBlocks(sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts])), names=first.feature_names())
    return MemoryBlocks(np.concatenate(parts), names=first.feature_names())
