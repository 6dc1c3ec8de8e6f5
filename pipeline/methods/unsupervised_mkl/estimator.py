"""UnsupervisedMKL: a combination of kernels learnt without labels."""

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
    r"""Kernel weights under which every sample is rebuilt from a few similar ones, without labels.

    Minimises over the weights mu (on the simplex) and the bases B_i (at most ``n_bases`` other samples each)

    .. math::

        \sum_i \Big[ \tfrac12 \big\| x_i - \sum_{j \in B_i} K_{ij} x_j \big\|^2
        + \gamma_1 \sum_{j \in B_i} K_{ij} \|x_i - x_j\|^2 + \gamma_2 |B_i| \Big], \qquad K = \sum_t \mu_t K_t,

    alternating between a greedy choice of bases and the exact minimum over the weights; not convex, so a local solution. The fit is
    deterministic.

    Parameters
    ----------
    kernels : list of KernelSpec, str or callable, or None, default=None
        Kernels as short texts like rbf(gamma=0.5), rbf (its width the median distance of rows), poly(degree=2)[3,7:9] or linear[mean
        radius]; default: kernel_grid, ten Gaussian widths and three polynomial degrees on all features and on each one, while it is small,
        else up to ten kernels on all features, widths around the median distance.
    n_bases : int >= 1, default=10
        Samples that rebuild a sample.
    gamma1 : float >= 0, default=0.01
        Weight of the distance between a sample and its bases. It decides how many kernels keep a weight (of 52 to 793 on eight sets 40 at
        0, 18 at 0.01, 3 at 0.1, 1 at 1), not how good they are: accuracies differ by less than a point, and those of equal weights are as
        good in the mean.
    gamma2 : float >= 0, default=0.0
        Cost of one basis; decides with stop=gain only.
    stop : {"size", "gain"}, default='size'
        size: exactly n_bases bases; gain: fewer, where no further one helps.
    safeguard : bool, default=True
        Keep a sample's bases where new ones are worse, so that the objective never rises.
    n_components : int >= 1, default=2
        Components of the kernel principal component analysis, which transform gives.
    start : {"greedy", "sparse-coding", "kernel-sparse-coding"}, default='greedy'
        First bases: greedy under equal weights, or those of a sparse coding of every sample by the others (a lasso with the penalty gamma2,
        or where that is 0 a tenth of the least one that leaves no basis), of the rows or, kernel-sparse-coding, in the feature space of the
        equally weighted kernels.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine", "column_sum"}, default='trace'
        Normalisation of kernels that leave it open: trace (mean diagonal 1), unit_trace (the thesis'; entries of size 1/n leave nearly no
        reconstruction, and one kernel takes all the weight), column_sum (the n_bases largest entries of a row off the diagonal sum to 1 on
        average), multiplicative, cosine, none.
    tol : float > 0, default=1e-05
        Relative decrease of the objective at which the fit ends, once no bases change.
    max_iter : int >= 1, default=50
        Alternations between bases and weights at most; a warning tells when they end the fit.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where Gram matrices lie; auto decides from sizes.
    gram_store : str or None, default=None
        Path of a Gram store, kept for further fits.
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
    kernel_weights_, objective_
        ``(n_kernels,)`` weights, sum one, and the objective at these and the bases.
    bases_
        ``(n_samples, n_bases)`` bases of every training sample in the order of choice, -1 where there is none.
    eigenvalues_
        ``(n_components,)`` of the centred learnt kernel.
    n_iter_, converged_, stop_reason_, history_
        Iterations, whether the fit ended by itself, what ended it, and one array per figure over the iterations.
    encoding_ : Pipeline
        Of a frame with columns that are not all numbers, and of a store made of a table: scikit-learn's encoders, fitted, from the
        columns to the features; else not there.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import UnsupervisedMKL
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = UnsupervisedMKL(["rbf(gamma=0.5)", "rbf(gamma=2)", "linear"]).fit(X)
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
            A parameter out of range, data that are not finite, fewer than two samples, strings or precomputed kernels.
        """
        config = self._config()
        self._fit(UMKLInputs(self._data(X)[0]), config)
        return self

    def transform(self, X: UserRows) -> np.ndarray:
        """Return kernel principal components of the learnt kernel, ``(n_samples, n_components)``, for rows in any form of ``fit``."""
        return self._decide(X)

    @one_thread()
    def combined_kernel(self, X: UserRows, Z: UserRows | None = None) -> np.ndarray:
        """Return the learnt kernel between rows of ``X`` and of ``Z``, ``(len(X), len(Z))``, normalised by the training rows.

        Parameters
        ----------
        X, Z
            ``(n_samples, n_features)`` arrays or sparse matrices; ``Z`` is ``X`` by default. Give a machine on precomputed kernels
            ``combined_kernel(X_train)`` to fit, and ``combined_kernel(X_test, X_train)`` to predict.
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
    """Return a raw block between any ``rows`` (left and right), centred and scaled by the training rows' sums."""
    if norm.only_scales:
        return block * norm.scale
    means, lengths = (np.concatenate(part) for part in zip(*(_row_statistics(model, norm, spec, X) for X in rows), strict=True))
    both = replace(norm, row_mean=None if norm.row_mean is None else means, diag_root=None if norm.diag_root is None else lengths)
    return both.apply_block(block, slice(0, len(block)), slice(len(block), None))


def _row_statistics(model: KernelModel, norm: Normalization, spec: AnyKernel, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of every row's raw entries over the training rows, and its length in feature space after centring."""
    diagonal = gram_diagonal([spec], rows)[0].astype(np.float64)
    if norm.row_mean is None:
        return np.zeros(len(diagonal)), np.sqrt(np.maximum(diagonal, 0.0))
    mean = gram_block([spec], rows, model.support_rows(), dtype=np.float64)[0].mean(axis=1)
    return mean, np.sqrt(np.maximum(diagonal - 2.0 * mean + norm.mean, 0.0))
