"""TriClassSVC: a support vector machine that learns from unlabelled rows, some of which may belong to neither class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import column_or_1d
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ....kernels.svm.triclass import three_way
from ....storage import DataError, MemoryBlocks
from ...estimators.inputs import in_memory, is_store, opened_for, validated, warn_user
from ...estimators.kernels import KernelClassifier, is_text
from ...grams.given import GivenGrams
from ...grams.sources import TextRows
from ...loops.run import run_loop
from ...models.kernel import KernelModel
from .config import TriClassConfig
from .inputs import ROWS_SHARE, TriClassInputs, checked_labels, joined_stores, kernel_text
from .method import build_loop, model_of, remarks, validation_rows

MEMORY = 2 << 30


class TriClassSVC(KernelClassifier):
    r"""Semi-supervised support vector machine for unlabelled rows of which some are irrelevant.

    Minimises over w, b, with :math:`f = w'\phi(x) + b` and :math:`\lambda = 1 / C`,

    .. math::

        J = \frac{\lambda}{2} \|w\|^2 + \sum_{y_i = \pm 1} \max(0, 1 - y_i f_i)
        + \frac{C_0}{C} \sum_{y_i = 0} \max(0, |f_i| - \varepsilon)
        + \frac{C_U}{C} \sum_{i \in U} \min\{\max(0, 1 - |f_i|), \max(0, |f_i| - \varepsilon)\}:

    an unlabelled row pays for being near the margin of a class or near the boundary, whichever is cheaper. J is not convex: it falls from
    convex problem to convex problem, from several starts, of which the best is kept.

    Parameters
    ----------
    C
        Loss weight of rows labelled -1 and +1, as of ``SVC``.
    C_unlabelled
        Loss weight of unlabelled rows; 0 leaves them out.
    C_irrelevant
        Loss weight of rows labelled 0; default ``C_unlabelled``.
    eps
        Half width of the tube around the boundary in which irrelevant rows cost nothing.
    kernel
        ``"rbf"``, ``"linear"``, ``"poly"``, ``"laplacian"``; a :class:`KernelSpec` or its text (``"rbf(gamma=0.5)[0:4]"``); an importable
        function of two rows; or ``"precomputed"``: X is the matrix of labelled rows followed by unlabelled ones at fit, and
        ``(n_test, n_rows)`` at predict.
    gamma, degree, coef0
        Of a kernel named by one word, as of ``SVC``; ``"scale"`` takes the variance of all rows, unlabelled ones included.
    algorithm
        ``"mm"``: every unlabelled row takes the cheaper of its two losses, then the convex problem is solved exactly; ``"dc"``: the concave
        part of the exact difference of convex functions is made linear; ``"cccp"``: the thesis' Algorithm 3 with relaxed indicators.
    start
        First assignment of the unlabelled rows: ``"svm3"`` by the machine on the labelled rows, ``"usvm"`` by the one with all of them
        irrelevant, ``"s3vm"`` all relevant, ``"random"``; ``"best"``: all of these, the least J is kept. The least J is not always the
        most accurate: many unlabelled rows with a large ``C_unlabelled`` may find it with nearly all of them irrelevant. ``validation_``
        tells.
    balance
        What the mean decision value of the unlabelled rows must be: a number, or ``"labels"`` for the mean of the labels -1 and +1.
    all_relevant
        Every unlabelled row belongs to a class: a semi-supervised machine (S3VM).
    n_random
        Random starts.
    validation
        Folds of a cross-validation on the labelled rows (``validation_``), beside the machines that ``svm3`` and ``usvm`` start from: it
        tells when the unlabelled rows do not help, and warns. 0: none.
    D
        Of ``"cccp"``: how far its relaxation reaches, at least ``1 + eps``; by default as far as the decision values do, and at least 2.
    class_weight
        ``"balanced"`` or a dict of class factors of ``C``.
    tol
        A start ends when no assignment changes, or J falls by less than ``tol (1 + J)``.
    inner_tol
        Tolerance of a convex problem, in units of decision values.
    max_iter
        Convex problems per start at most; a warning tells when it ends the best one.
    grams
        Where the Gram matrix lies: ``"auto"`` decides from sizes; ``"memory"``, ``"recompute"``.
    cluster
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."`` ...; matrices and strings in memory stay in-process.
    random_state
        Of random starts and folds.
    verbose
        Log one line per step.
    callbacks
        Functions called with an event record per step.

    Attributes
    ----------
    classes_
        -1 and +1.
    assignment_
        ``(n_unlabelled,)`` -1, 0 or +1 of every unlabelled row.
    dual_coef_, support_, intercept_
        Coefficients ``(1, n_support)`` of labelled rows, then unlabelled ones, their positions, and b.
    objective_, dual_gap_
        J, and the certified gap of the convex problem that was solved last.
    start_objectives_
        J of every start.
    validation_
        Rows ``{"machine", "accuracy", "deviation", "folds"}`` of SVM, U-SVM and 3C-SVM; empty without ``validation``.
    n_iter_, converged_, history_
        Steps, whether the best start ended by itself, and one array per figure over the steps.

    References
    ----------
    Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 5.
    """

    _config_type = TriClassConfig

    def __init__(
        self,
        C: float = 1.0,
        C_unlabelled: float = 0.1,
        C_irrelevant: float | None = None,
        eps: float = 0.1,
        kernel: Any = "rbf",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        algorithm: str = "mm",
        start: str = "best",
        balance: Any = None,
        all_relevant: bool = False,
        n_random: int = 1,
        validation: int = 0,
        D: float | None = None,
        class_weight: Any = None,
        tol: float = 1e-4,
        inner_tol: float = 1e-3,
        max_iter: int = 50,
        grams: str = "auto",
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
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
        self.D = D
        self.class_weight = class_weight
        self.tol = tol
        self.inner_tol = inner_tol
        self.max_iter = max_iter
        self.grams = grams
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    @property
    def _precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _plain(self, given: dict[str, Any]) -> dict[str, Any]:
        return {**super()._plain(given), "kernel": kernel_text(given["kernel"])}

    def fit(self, X: Any, y: Any = None, X_unlabelled: Any = None, sample_weight: Any = None) -> Self:
        """Learn from labelled and unlabelled rows.

        Parameters
        ----------
        X
            ``(n_labelled, n_features)`` array, sparse matrix, Dask array, block store, or strings; with ``kernel="precomputed"`` the matrix
            ``(n, n)`` of labelled rows followed by unlabelled ones.
        y
            ``(n_labelled,)`` -1, +1, and 0 for rows of neither class; a block store may hold them itself.
        X_unlabelled
            ``(n_unlabelled, n_features)`` in the form of X; ``None``: a machine on the labelled rows.
        sample_weight
            ``(n_labelled,)`` factors of the loss weights.

        Raises
        ------
        ValueError
            A parameter out of range, another label (its row is named), no row of one class, unlabelled rows that are empty or of another
            width, values that are not finite (their row is named).
        """
        config = self._config()
        inputs = self._tri_inputs(X, y, X_unlabelled, sample_weight)
        with self._context(inputs.data) as ctx:
            own = inputs if ctx.data is inputs.data else TriClassInputs(ctx.data, *_rest(inputs))
            loop = build_loop(config, own, ctx)
            outcome = run_loop(loop, ctx, keep=False)
            state = outcome.state
            self.classes_ = np.array([-1, 1])
            self._set_model(model_of(config, own, loop, state, ctx))
            for message in remarks(loop, state):
                warn_user(message)
        self._set_history(outcome.history)
        self._warn_unfinished(self.converged_, f"max_iter={config.max_iter} ended the best start while assignments still changed")
        return self

    def predict_three_way(self, X: Any) -> np.ndarray:
        """Return -1, 0 or +1 of every row: 0 where ``|f| < (1 + eps) / 2``, ``(n_samples,)``."""
        check_is_fitted(self, "model_")
        return three_way(self.decision_function(X), self.model_.figures["eps"])

    # -- data ----------------------------------------------------------------------------------------------------------------------

    def _tri_inputs(self, X: Any, y: Any, X_unlabelled: Any, sample_weight: Any) -> TriClassInputs:
        if y is None and not is_store(X):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if X_unlabelled is not None and self._precomputed:
            raise ValueError("kernel='precomputed': X is the matrix of all rows, labelled ones first; X_unlabelled must be None")
        first = self._rows("X", X, True)
        second = None if X_unlabelled is None else self._rows("X_unlabelled", X_unlabelled, False)
        y = self._stored_target(first) if y is None else column_or_1d(y, warn=True)
        labelled = first.n_rows if not self._precomputed else len(y)
        if len(y) != labelled or labelled > first.n_rows:
            raise ValueError(f"y has {len(y)} entries, the data has {first.n_rows} rows: inconsistent numbers of samples")
        if sample_weight is None and is_store(first) and first.has_table("weight"):
            sample_weight = first.row_table("weight")
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, np.empty((labelled, 0)), dtype=np.float64, ensure_non_negative=True)
        labels = checked_labels(y, sample_weight)
        data, count = _joined(first, second), first.n_rows - labelled if second is None else second.n_rows
        return TriClassInputs(data, labels, count, sample_weight)

    def _rows(self, name: str, X: Any, reset: bool) -> Any:
        """Return rows as a data set: a block store, rows in memory, strings or a matrix."""
        if is_store(X):
            store = opened_for(self, X)
            if reset:
                self.n_features_in_ = store.n_cols
            return store
        X = in_memory(X, name)
        if not reset and _count(X) == 0:
            raise ValueError(f"{name} has no rows: leave it out, or give unlabelled rows")
        if is_text(X):
            if reset:
                self.n_features_in_ = 0
            return TextRows(X)
        _refuse_not_finite(name, X)
        if self._precomputed:
            found = GivenGrams(np.asarray(validated(self, X, dtype=[np.float64, np.float32])))
            self.n_features_in_ = found.n_rows
            return found
        options: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "accept_large_sparse": False}
        return MemoryBlocks(validated(self, X, reset=reset, **options))

    # -- results -------------------------------------------------------------------------------------------------------------------

    def _set_model(self, model: KernelModel) -> None:
        super()._set_model(model)
        self.assignment_ = model.arrays["assignment"]
        self.start_objectives_ = model.arrays["starts"]
        self.validation_ = validation_rows(model.arrays["validation"])
        self.dual_coef_, self.support_ = model.beta, model.support_ids
        self.intercept_ = model.intercepts
        self.objective_, self.dual_gap_ = model.figures["objective"], model.figures["gap"]
        self.n_iter_, self.converged_ = int(model.figures["iterations"]), bool(model.figures["converged"])


def _count(X: Any) -> int:
    """Return the number of rows of an array, a sparse matrix or a sequence."""
    return X.shape[0] if getattr(X, "ndim", 0) else len(X) if isinstance(X, Sequence) else 1


def _rest(inputs: TriClassInputs) -> tuple[Any, ...]:
    return inputs.labels, inputs.n_unlabelled, inputs.sample_weight, inputs.classes, inputs.held_out


def _joined(first: Any, second: Any) -> Any:
    """Return labelled and unlabelled rows as one data set."""
    if second is None:
        return first
    kinds = {type(first), type(second)}
    if len(kinds) > 1:
        raise DataError("X and X_unlabelled must be of one form: both arrays, both stores, or both strings")
    if isinstance(first, TextRows):
        return TextRows([*first.texts, *second.texts])
    if is_store(first):
        return joined_stores(first, second, int(ROWS_SHARE * MEMORY))
    parts = [first.X, second.X]
    if any(sp.issparse(part) for part in parts):
        return MemoryBlocks(sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts])))
    return MemoryBlocks(np.concatenate(parts))


def _refuse_not_finite(name: str, X: Any) -> None:
    """Refuse numbers that are not finite, their first row named; what is no array of numbers is left to others."""
    if sp.issparse(X):
        if X.dtype.kind != "f":
            return
        entries = X.tocoo()
        rows = entries.row[~np.isfinite(entries.data)]
    else:
        array = np.asarray(X)
        if array.dtype.kind != "f" or array.ndim != 2 or np.isfinite(array.sum()):
            return
        rows = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if len(rows):
        raise ValueError(f"{name}: row {int(rows.min())} holds NaN or infinity; all values must be finite")
