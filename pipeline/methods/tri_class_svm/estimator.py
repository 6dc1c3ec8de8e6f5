"""TriClassSVC: a support vector machine that learns from unlabelled rows, some of which may belong to neither class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.validation import check_is_fitted

from ....kernels.grams.spec import KernelSpec
from ....kernels.svm.triclass import three_way
from ....storage import DataError, MemoryBlocks
from ....storage.data import in_memory, is_store
from ....storage.value_types import UserData
from ...estimators.inputs import Column, UserRows, check_labels, label_array, stored_target
from ...estimators.kernels import KernelClassifier, is_text
from ...grams.sources import TextRows
from ...inputs.scaling import as_scaled
from ...models.kernel import KernelModel
from .config import TriClassConfig
from .inputs import TriClassInputs, TriClassRows, join_stores, kernel_text, split_labels, three_way_labels
from .loop import TriClassState
from .method import TriClass, validation_rows


class TriClassSVC(KernelClassifier):
    r"""Semi-supervised support vector machine for unlabelled rows of which some are irrelevant.

    Minimises over w, b, with :math:`f = w'\phi(x) + b` and :math:`\lambda = 1 / C`,

    .. math::

        J = \frac{\lambda}{2} \|w\|^2 + \sum_{y_i = \pm 1} \max(0, 1 - y_i f_i)
        + \frac{C_0}{C} \sum_{y_i = 0} \max(0, |f_i| - \varepsilon)
        + \frac{C_U}{C} \sum_{i \in U} \min\{\max(0, 1 - |f_i|), \max(0, |f_i| - \varepsilon)\}:

    an unlabelled row pays for being near the margin of a class or near the boundary, whichever is cheaper. The two classes stand as -1 and
    +1, rows of neither as 0. J is not convex: it falls from convex problem to convex problem, from several starts, of which the best is
    kept. A fit warns when its unlabelled rows do not help (``validation``).

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

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gramplane import TriClassSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = TriClassSVC().fit(X[:100], y[:100], X[100:])
    >>> model.assignment_.shape
    (469,)

    References
    ----------
    Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 5.
    """

    _method = TriClass
    _kernels_parameter = "kernel"
    _wider = {**KernelClassifier._wider, "kernel": ("str, KernelSpec or callable", str | KernelSpec | Callable[..., Any])}

    kernel: Any

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
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

    def _unfinished(self, state: TriClassState) -> str:
        if state.stop == "stalled":
            return f"tol={self._config().tol:g} was not reached: the gap of the best start's last convex problem stays above it by rounding"
        return f"max_iter={self._config().max_iter} ended the best start while assignments still changed"

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
