"""UnsupervisedMKL: combination of kernels learnt without labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ....kernels.grams.blocks import gram_block, gram_diagonal
from ....kernels.grams.normalization import Normalization
from ....kernels.grams.products import AnyKernel
from ....kernels.grams.spec import KernelSpec
from ....kernels.jit import one_thread
from ...estimators.inputs import Callbacks, Seed, UserRows
from ...estimators.kernels import KernelEstimator
from ...models.kernel import KernelModel
from .method import UMKL
from .problem import UMKLInputs

Rows = np.ndarray | sp.csr_array


class UnsupervisedMKL(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    r"""Kernel weights, learnt without labels, under which a few similar samples reconstruct every sample.

    Minimises over the weights mu (on the simplex) and the bases B_i (at most ``n_bases`` other samples each)

    .. math::

        \sum_i \Big[ \tfrac12 \big\| x_i - \sum_{j \in B_i} K_{ij} x_j \big\|^2
        + \gamma_1 \sum_{j \in B_i} K_{ij} \|x_i - x_j\|^2 + \gamma_2 |B_i| \Big], \qquad K = \sum_t \mu_t K_t,

    by alternating between a greedy choice of bases and the exact minimum over the weights. The problem is not convex, and the solution is
    local. The fit is deterministic.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or None, default=None
        Kernel expressions such as rbf(gamma=0.5), rbf (its width is the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius]. Default for small data: 13 kernels on all features and 13 on each feature (ten Gaussian widths and three
        polynomial degrees); else up to ten kernels on all features, with widths around the median distance.
    n_bases : int >= 1, default=10
        Number of samples that reconstruct a sample.
    gamma1 : float >= 0, default=0.01
        Weight of the distance between a sample and its bases. It determines how many kernels have non-zero weight: with 52 to 793 kernels
        on eight data sets, 40 kernels for ``gamma1=0``, 18 for 0.01, 3 for 0.1 and 1 for 1. It has little effect on quality: accuracies
        differ by less than one percentage point, and equal weights are as good on average.
    gamma2 : float >= 0, default=0.0
        Cost of one basis; used with ``stop="gain"`` only.
    stop : {"size", "gain"}, default='size'
        ``"size"``: exactly ``n_bases`` bases. ``"gain"``: fewer bases, if a further basis does not lower the objective.
    safeguard : bool, default=True
        Keep the bases of a sample if new ones are worse, so that the objective never increases.
    n_components : int >= 1, default=2
        Number of components of the kernel principal component analysis that ``transform`` returns.
    start : {"greedy", "sparse-coding", "kernel-sparse-coding"}, default='greedy'
        Initial bases. ``"greedy"``: greedy under equal weights. ``"sparse-coding"``: from a lasso of every sample on the others, with
        penalty ``gamma2`` (if that is 0, a tenth of the smallest penalty that leaves no basis). ``"kernel-sparse-coding"``: the same in the
        feature space of the equally weighted kernels.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine", "column_sum"}, default='trace'
        Normalisation of kernels that do not specify one. ``"trace"``: mean diagonal 1. ``"unit_trace"``: as in the thesis; entries of size
        1/n leave almost no reconstruction, and one kernel takes all the weight. ``"column_sum"``: the ``n_bases`` largest off-diagonal
        entries of a row sum to 1 on average. Or ``"multiplicative"``, ``"cosine"``, ``"none"``.
    tol : float > 0, default=1e-05
        Stopping tolerance: relative decrease of the objective, once no bases change.
    max_iter : int >= 1, default=50
        Largest number of alternations between bases and weights; a warning is issued if the fit ends at this limit.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where Gram matrices are kept: ``"memory"``, ``"store"`` (at ``gram_store``), or ``"recompute"`` for nowhere. ``"auto"`` decides by
        their size.
    gram_store : str or None, default=None
        Path of a Gram store; it is kept for further fits.
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
    kernel_weights_, objective_
        ``(n_kernels,)`` weights that sum to 1, and the objective at these weights and the bases.
    bases_
        ``(n_samples, n_bases)`` bases of every training sample, in the order of choice; -1 pads rows with fewer bases.
    eigenvalues_
        ``(n_components,)`` eigenvalues of the centred learnt kernel.
    n_iter_, converged_, stop_reason_, history_
        Number of iterations, whether the fit converged, the reason for stopping, and one array per quantity over the iterations.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import UnsupervisedMKL
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = UnsupervisedMKL(["rbf(gamma=0.5)", "rbf(gamma=2)", "linear"]).fit(
    ...     X
    ... )
    >>> model.kernel_weights_.round(2).tolist()
    [0.21, 0.79, 0.0]

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 5.
    """

    _method = UMKL()

    def __init__(
        self,
        kernels: Sequence[KernelSpec | str | Callable[..., Any]] | None = None,
        n_bases: int = 10,
        gamma1: float = 0.01,
        gamma2: float = 0.0,
        stop: Literal["size", "gain"] = "size",
        safeguard: bool = True,
        n_components: int = 2,
        start: Literal["greedy", "sparse-coding", "kernel-sparse-coding"] = "greedy",
        normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine", "column_sum"] = "trace",
        tol: float = 1e-05,
        max_iter: int = 50,
        grams: Literal["auto", "memory", "store", "recompute"] = "auto",
        gram_store: str | None = None,
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.kernels = kernels
        self.n_bases = n_bases
        self.gamma1 = gamma1
        self.gamma2 = gamma2
        self.stop = stop
        self.safeguard = safeguard
        self.n_components = n_components
        self.start = start
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.grams = grams
        self.gram_store = gram_store
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, X: UserRows, y: object = None) -> Self:
        """Learn weights and bases.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``: an array, a sparse matrix, a Dask array, or a block store.
        y
            Not used.

        Raises
        ------
        ValueError
            Parameter out of range, non-finite data, fewer than two samples, strings, or precomputed kernels.
        """
        config = self._config()
        self._fit(UMKLInputs(self._data(X)[0]), config)
        return self

    def transform(self, X: UserRows) -> np.ndarray:
        """Return the kernel principal components of the learnt kernel, ``(n_samples, n_components)``, for rows in any form that ``fit``
        accepts.
        """
        return self._decide(X)

    @one_thread()
    def combined_kernel(self, X: UserRows, Z: UserRows | None = None) -> np.ndarray:
        """Return the learnt kernel between the rows of ``X`` and ``Z``, ``(len(X), len(Z))``, with the normalisation of the training
        rows.

        Parameters
        ----------
        X, Z
            ``(n_samples, n_features)`` arrays or sparse matrices; ``Z`` is ``X`` by default. For an SVM on precomputed kernels, pass
            ``combined_kernel(X_train)`` to ``fit`` and ``combined_kernel(X_test, X_train)`` to ``predict``.
        """
        check_is_fitted(self, "model_")
        left = self.model_.scaled_rows(self._checked(X, reset=False))
        right = left if Z is None else self.model_.scaled_rows(self._checked(Z, reset=False))
        total = np.zeros((left.shape[0], right.shape[0]))
        weights = self.model_.theta[0, self.model_.used]
        for spec, norm, weight in zip(self.model_.used_specs(), self.model_.norms, weights, strict=True):
            block = gram_block([spec], left, None if Z is None else right, dtype=np.float64)[0]
            total += weight * _normalise(self.model_, norm, spec, block, left, right)
        return total

    def _set_model(self, model: KernelModel) -> None:
        super()._set_model(model)
        self.kernel_weights_ = model.arrays["weights"]
        self.bases_, self.eigenvalues_ = model.arrays["bases"], model.arrays["eigenvalues"]
        self.objective_ = model.figures["objective"]
        self._n_features_out = len(model.theta)


def _normalise(model: KernelModel, norm: Normalization, spec: AnyKernel, block: np.ndarray, *rows: Rows) -> np.ndarray:
    """Return the raw kernel ``block`` between two sets of ``rows``, centred and scaled with the statistics of the training rows."""
    if norm.only_scales:
        return block * norm.scale
    means, lengths = (np.concatenate(part) for part in zip(*(_row_statistics(model, norm, spec, X) for X in rows), strict=True))
    both = replace(norm, row_mean=None if norm.row_mean is None else means, diag_root=None if norm.diag_root is None else lengths)
    return both.apply_block(block, slice(0, len(block)), slice(len(block), None))


def _row_statistics(model: KernelModel, norm: Normalization, spec: AnyKernel, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every row, the mean of its raw kernel entries over the training rows, and its norm in feature space after centring."""
    diagonal = gram_diagonal([spec], rows)[0].astype(np.float64)
    if norm.row_mean is None:
        return np.zeros(len(diagonal)), np.sqrt(np.maximum(diagonal, 0.0))
    mean = gram_block([spec], rows, model.support_rows(), dtype=np.float64)[0].mean(axis=1)
    return mean, np.sqrt(np.maximum(diagonal - 2.0 * mean + norm.mean, 0.0))
