"""UnsupervisedMKL: a combination of kernels learnt without labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ....kernels.grams.blocks import gram_block, gram_diagonal
from ....kernels.grams.normalization import Normalization
from ....kernels.grams.products import AnyKernel
from ...estimators.inputs import validated, warn_user
from ...estimators.kernels import KernelEstimator
from ...loops.run import run_loop
from ...models.kernel import KernelModel
from ...models.kernel_predict import scaled_rows, support_rows, used_specs
from .config import UMKLConfig
from .method import build_loop, model_of


class UnsupervisedMKL(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    r"""Kernel weights under which every sample is rebuilt from a few near ones, without labels.

    Minimises over the weights mu (on the simplex) and the bases B_i (at most ``n_bases`` other samples each)

    .. math::

        \sum_i \Big[ \tfrac12 \big\| x_i - \sum_{j \in B_i} K_{ij} x_j \big\|^2
        + \gamma_1 \sum_{j \in B_i} K_{ij} \|x_i - x_j\|^2 + \gamma_2 |B_i| \Big], \qquad K = \sum_t \mu_t K_t,

    alternating between a greedy choice of bases and the exact minimum over the weights; not convex, so a local solution.

    Parameters
    ----------
    kernels
        List of kernels: ``KernelSpec``, short texts like ``"rbf(gamma=0.5)"``, importable functions. Default: ``kernel_grid``, ten Gaussian
        widths and three polynomial degrees on all features and on each single one.
    n_bases
        Samples that rebuild a sample.
    gamma1
        Weight of the distance between a sample and its bases. Where it outweighs the reconstruction a single kernel remains: on sets of
        13 to 60 standardised features that was so from 0.1 on.
    gamma2
        Cost of one basis; it decides with ``stop="gain"`` only.
    stop
        ``"size"``: exactly ``n_bases`` bases; ``"gain"``: fewer where no further one lowers the objective.
    safeguard
        Keep a sample's bases where the greedy ones are worse, so that the objective never rises.
    n_components
        Components that ``transform`` gives.
    start
        First bases: ``"greedy"`` under equal weights, or those of a ``"sparse-coding"`` of every sample by the others (a lasso with the
        penalty ``gamma2``, or a tenth of the least one that leaves no basis where ``gamma2`` is 0).
    normalize
        For kernels that leave it open: ``"trace"`` (mean diagonal 1), ``"unit_trace"`` (the thesis'; entries of size 1/n leave nearly no
        reconstruction, and one kernel takes all the weight), ``"column_sum"`` (the ``n_bases`` largest entries of a row off the diagonal
        sum to 1 on average), ``"multiplicative"``, ``"cosine"``, ``"none"``.
    tol
        Relative decrease of the objective at which the fit ends, once no bases change.
    max_iter
        Alternations at most; a warning tells when it ends the fit.
    grams, gram_store
        Where Gram matrices lie: ``"auto"`` decides from sizes; ``"memory"``, ``"store"`` (at the path ``gram_store``), ``"recompute"``.
    cluster
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."`` ...
    random_state
        Not used; the fit is deterministic.
    verbose
        Log one line per iteration.
    callbacks
        Functions called with an event record per iteration.

    Attributes
    ----------
    kernel_weights_
        ``(n_kernels,)`` weights, sum one.
    bases_
        ``(n_samples, n_bases)`` bases of every training sample in the order of choice, -1 where there is none.
    objective_
        Objective at both.
    eigenvalues_
        ``(n_components,)`` of the centred learnt kernel.
    n_iter_, converged_, history_
        Iterations, whether the fit ended by itself, and one array per figure over the iterations.

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 5.
    """

    _config_type = UMKLConfig
    _is_classifier = False

    def __init__(
        self,
        kernels: Any = None,
        n_bases: int = 10,
        gamma1: float = 0.01,
        gamma2: float = 0.0,
        stop: Literal["size", "gain"] = "size",
        safeguard: bool = True,
        n_components: int = 2,
        start: Literal["greedy", "sparse-coding"] = "greedy",
        normalize: str = "trace",
        tol: float = 1e-5,
        max_iter: int = 50,
        grams: str = "auto",
        gram_store: str | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
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

    def fit(self, X: Any, y: Any = None) -> Self:
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
        data, _ = self._data(X)
        with self._context(data) as ctx:
            loop = build_loop(config, ctx, warn_user)
            outcome = run_loop(loop, ctx, keep=False)
            self._set_model(model_of(config, loop, outcome.state, ctx))
        self._set_history(outcome.history)
        self._warn_unfinished(self.converged_, f"max_iter={config.max_iter} ended the fit while bases still changed")
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return kernel principal components of the learnt kernel, ``(n_samples, n_components)``.

        Parameters
        ----------
        X
            Rows in any form that ``fit`` takes.
        """
        return self._values(X)

    def combined_kernel(self, X: Any, Z: Any = None) -> np.ndarray:
        """Return the learnt kernel between rows of ``X`` and of ``Z``, ``(len(X), len(Z))``, normalised by the training rows.

        Parameters
        ----------
        X, Z
            ``(n_samples, n_features)`` arrays or sparse matrices; ``Z`` is ``X`` by default. Give a machine on precomputed kernels
            ``combined_kernel(X_train)`` to fit, and ``combined_kernel(X_test, X_train)`` to predict.
        """
        check_is_fitted(self, "model_")
        left = self._rows(X)
        right = left if Z is None else self._rows(Z)
        total = np.zeros((left.shape[0], right.shape[0]))
        for place, spec in enumerate(used_specs(self.model_)):
            block = gram_block([spec], left, None if Z is None else right, dtype=np.float64)[0]
            weight = self.model_.theta[0, self.model_.used[place]]
            total += weight * _normalised(self.model_, self.model_.norms[place], spec, block, left, right)
        return total

    def _rows(self, X: Any) -> Any:
        options: dict[str, Any] = {"dtype": [np.float64, np.float32], "accept_large_sparse": False}
        X = validated(self, X, accept_sparse="csr", reset=False, **options)
        return scaled_rows(self.model_, X)

    def _set_model(self, model: KernelModel) -> None:
        super()._set_model(model)
        self.kernel_weights_ = model.arrays["weights"]
        self.bases_, self.eigenvalues_ = model.arrays["bases"], model.arrays["eigenvalues"]
        self.objective_ = model.figures["objective"]
        self.n_iter_, self.converged_ = int(model.figures["iterations"]), bool(model.figures["converged"])
        self._n_features_out = len(model.theta)


def _normalised(model: KernelModel, norm: Normalization, spec: AnyKernel, block: np.ndarray, left: Any, right: Any) -> np.ndarray:
    """Return a raw block between any rows, centred and scaled by the sums of the training rows."""
    if norm.only_scales:
        return block * norm.scale
    sides = [_side(model, norm, spec, rows) for rows in (left, right)]
    means = [side[0] for side in sides]
    both = replace(
        norm,
        row_mean=None if norm.row_mean is None else np.concatenate(means),
        diag_root=None if norm.diag_root is None else np.concatenate([side[1] for side in sides]),
    )
    return both.apply_block(block, slice(0, len(block)), slice(len(block), None))


def _side(model: KernelModel, norm: Normalization, spec: AnyKernel, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of every row's raw entries over the training rows, and its length in feature space after centring."""
    diagonal = gram_diagonal([spec], rows)[0].astype(np.float64)
    if norm.row_mean is None:
        return np.zeros(len(diagonal)), np.sqrt(np.maximum(diagonal, 0.0))
    mean = gram_block([spec], rows, support_rows(model), dtype=np.float64)[0].mean(axis=1)
    return mean, np.sqrt(np.maximum(diagonal - 2.0 * mean + norm.mean, 0.0))
