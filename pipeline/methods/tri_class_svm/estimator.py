"""TriClassSVC: a support vector machine that learns from unlabelled rows, some of which may belong to neither class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import ClassifierTags, Tags, column_or_1d
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
    r"""Semi-supervised support vector machine for unlabelled rows of which some are irrelevant.

    Minimises over w, b, with :math:`f = w'\phi(x) + b` and :math:`\lambda = 1 / C`,

    .. math::

        J = \frac{\lambda}{2} \|w\|^2 + \sum_{y_i = \pm 1} \max(0, 1 - y_i f_i)
        + \frac{C_0}{C} \sum_{y_i = 0} \max(0, |f_i| - \varepsilon)
        + \frac{C_U}{C} \sum_{i \in U} \min\{\max(0, 1 - |f_i|), \max(0, |f_i| - \varepsilon)\}:

    an unlabelled row pays for being near the margin of a class or near the boundary, whichever is cheaper. The two classes stand as -1 and
    +1, rows of neither as 0. J is not convex: it falls from convex problem to convex problem, from several starts, of which the best is
    kept. A fit warns when its unlabelled rows do not help (``validation``).

    Parameters
    ----------
    C : float > 0, default=1.0
        Loss weight of rows of the two classes, as of scikit-learn's SVC; 1 / lambda.
    C_unlabelled : float >= 0, default=0.1
        Loss weight of unlabelled rows; 0 leaves them out.
    C_irrelevant : float >= 0 or None, default=None
        Loss weight of irrelevant rows; default: C_unlabelled.
    eps : float >= 0 and < 1, default=0.1
        Half width of the tube around the boundary in which irrelevant rows cost nothing.
    kernel : str, KernelSpec or callable, default='rbf'
        Rbf, linear, poly or laplacian; a kernel's short text such as rbf(gamma=0.5)[0:4]; or precomputed: X is the matrix of labelled rows
        followed by unlabelled ones at fit, and (n_test, n_rows) at predict.
    gamma : {"scale", "auto"} or float > 0, default='scale'
        Of a kernel named by one word, as of scikit-learn's SVC; scale: 1 / (features * variance of all rows, unlabelled ones included),
        auto: 1 / features.
    degree : int >= 1, default=3
        Degree of kernel=poly.
    coef0 : float >= 0, default=0.0
        Constant of kernel=poly.
    algorithm : {"mm", "dc", "cccp"}, default='mm'
        mm: every unlabelled row takes the cheaper of its two losses, then the convex problem is solved exactly; dc: the concave part of the
        exact difference of convex functions is made linear; cccp: the thesis' Algorithm 3 with relaxed indicators.
    start : {"best", "usvm", "svm3", "s3vm", "random"}, default='best'
        First assignment of the unlabelled rows: svm3 by the machine on the labelled rows, usvm by the one with all of them irrelevant, s3vm
        all relevant, random; best: all of these, the least objective is kept. The least objective is not always the most accurate: many
        unlabelled rows with a large C_unlabelled may find it with nearly all of them irrelevant, which validation tells.
    balance : {"labels"} or float or None, default=None
        What the mean decision value of the unlabelled rows must be: a number, or labels for the mean of the labels (-1, +1).
    all_relevant : bool, default=False
        Every unlabelled row belongs to a class: a semi-supervised machine (S3VM).
    n_random : int >= 1, default=1
        Random starts.
    validation : {"auto"} or int >= 0, default='auto'
        Folds of a cross-validation on the labelled rows, beside the machines that svm3 and usvm start from: it warns when one of these,
        which learn little or nothing from the unlabelled rows, is right on more rows held out, by more than the standard error of the
        difference. auto: 3 folds of the fit's best start alone, about as much work again as the fit, where there are unlabelled rows, no
        test share, 3 rows of each class, and at most 5,000 rows in all; 0: none.
    irrelevant_label : bool or int or float or str or None, default='auto'
        Label of rows of neither class; the others must be two, of any kind. auto: 0, which is a class like any other where there are two
        labels in all; labels -1, 0 and 1 without unlabelled rows are refused: -1 may mean these. None: no row is irrelevant.
    D : float >= 1 or None, default=None
        cccp: how far its relaxation reaches, at least 1 + eps; default: as far as the decision values do, and at least 2.
    class_weight : {"balanced"} or dict or None, default=None
        Factor of C per class.
    tol : float > 0, default=0.0001
        A start ends when no assignment changes, or the objective J falls by less than tol (1 + J); below a tenth of inner_tol its last
        convex problem is solved on until its gap is at most tol (1 + J), too.
    inner_tol : float > 0, default=0.001
        Tolerance of a convex problem, in units of decision values.
    max_iter : int >= 1, default=50
        Convex problems per start at most; a warning tells when they end the best one.
    grams : {"auto", "memory", "recompute"}, default='auto'
        Where the Gram matrix lies; auto decides from sizes.
    probability : {"auto", "sigmoid", "isotonic", False}, default='auto'
        Probabilities of the classes: exact for a logistic loss; otherwise sigmoid or isotonic calibration on the decision values of 5
        folds, about 5 more fits. sigmoid, isotonic: at fit; auto: exact, or by a sigmoid when they are first asked for; false: none.
    scale : {"auto", "standard", "max-abs", "unit-column"} or None, default='auto'
        Scaling of the columns, part of the model: standard (dense columns: mean 0 and deviation 1, without an intercept deviation 1; sparse
        ones are not centred), max-abs, unit-column; None: as they are. auto: standard of dense columns, max-abs of sparse ones, without an
        intercept, and under poly2, hik, chi2 and additive_chi2; none of streams, strings and matrices. No value is copied; coefficients are
        those of the columns as given. A store that was scaled at ingest is taken as it is.
    cluster : str or None, default=None
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."``.
    random_state : int, RandomState or None, default=None
        Seed of everything drawn at random; ``None`` is 0, so that fits repeat.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and time left on a terminal or in a notebook, elsewhere a line per round;
        2 also sends every event to the log ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or several, called with an event record per step.

    Attributes
    ----------
    classes_, three_way_labels_
        The two classes, in ascending order, and with what stands for neither between them.
    assignment_
        ``(n_unlabelled,)`` -1, 0 or +1 of every unlabelled row: the first class, neither, the second.
    dual_coef_, support_, intercept_
        Coefficients ``(1, n_support)`` of labelled rows, then unlabelled ones, their positions, and b.
    objective_, dual_gap_
        J, and the certified gap of the convex problem that was solved last.
    start_objectives_
        J of every start.
    validation_
        Rows ``{"machine", "accuracy", "deviation", "folds"}`` of SVM, U-SVM and 3C-SVM; empty where there was no validation.
    n_iter_, converged_, stop_reason_, history_
        Steps, whether the best start ended by itself, what ended it, and one array per figure over the steps.
    encoding_ : Pipeline
        Of a frame with columns that are not all numbers, and of a store made of a table: scikit-learn's encoders, fitted, from the
        columns to the features; else not there.

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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags(multi_class=False)
        return tags

    def _plain(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**super()._plain(params), "kernel": kernel_text(params["kernel"])}

    def fit(self, X: UserRows, y: Column = None, X_unlabelled: UserRows | None = None, sample_weight: Column = None) -> Self:
        """Learn from labelled and unlabelled rows.

        Parameters
        ----------
        X
            ``(n_labelled, n_features)`` array, sparse matrix, Dask array, block store, or strings; with ``kernel="precomputed"`` the matrix
            ``(n, n)`` of labelled rows followed by unlabelled ones.
        y
            ``(n_labelled,)`` labels of two classes of any kind, and ``irrelevant_label`` for rows of neither; a block store may hold them
            itself.
        X_unlabelled
            ``(n_unlabelled, n_features)`` in the form of X; ``None``: a machine on the labelled rows.
        sample_weight
            ``(n_labelled,)`` how often rows count: factors of the loss weights, also of ``gamma`` and traces. Folds are drawn over rows.

        Raises
        ------
        ValueError
            A parameter out of range, a third class (its row is named), no row of one class, unlabelled rows that are empty or of another
            width, values that are not finite (their row is named).
        """
        config = self._config()
        inputs = self._read_inputs(config, X, y, X_unlabelled, sample_weight)
        self._fit(inputs, config)
        return self

    def predict_three_way(self, X: UserRows) -> np.ndarray:
        """Return the label of every row, ``irrelevant_label`` where ``|f| < (1 + eps) / 2``, ``(n_samples,)``."""
        check_is_fitted(self, "model_")
        return self.three_way_labels_[three_way(self.decision_function(X), self.model_.figures["eps"]) + 1]

    @property
    def three_way_labels_(self) -> np.ndarray:
        """What :meth:`predict_three_way` may return: the first class, what stands for neither, and the second, ``(3,)``."""
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
        labels, classes = split_labels(y, config.irrelevant_label, sample_weight, has_unlabelled=has_unlabelled)
        self.classes_ = np.array(classes, y.dtype)
        data, count = _join_rows(first, second), first.n_rows - labelled if second is None else second.n_rows
        inputs = TriClassInputs(data, labels, count, sample_weight, classes)
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
        raise DataError("X and X_unlabelled must be of one form: both arrays, both stores, or both strings")
    if isinstance(first, TextRows):
        return TextRows([*first.texts, *second.texts])
    if is_store(first):
        return join_stores(first, second)
    parts = [first.X, second.X]
    if any(sp.issparse(part) for part in parts):
        return MemoryBlocks(sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts])), names=first.feature_names())
    return MemoryBlocks(np.concatenate(parts), names=first.feature_names())
