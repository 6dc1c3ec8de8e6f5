"""SimpleNPKL: a kernel matrix without a parametric form, from constraints on pairs of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.utils.validation import check_is_fitted

from ....kernels.jit import one_thread
from ....kernels.spectral.dual_ascent import SpectralState
from ....storage.data import in_memory
from ...estimators.inputs import Column, UserRows, seed_of
from ...estimators.parameters import RUN_PARAMETERS
from ...estimators.spectral import SpectralEstimator
from ...models.spectral import SpectralModel
from .method import NPKL, NPKLInputs


class SimpleNPKL(SpectralEstimator):
    r"""Learn a kernel matrix from pairs of rows that belong together or apart, smooth on a graph of nearest neighbours.

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} K^p \le B} \mathrm{tr}(LK) + C \sum_{(i,j)} \ell(T_{ij} K_{ij})

    with L the normalised Laplacian of the graph (zero at rows without a neighbour), T the constraints +1 and -1, and the sum over both
    orders of every pair. The optimum is a closed form of the positive eigenpairs of :math:`A = \alpha \circ T - L`: with the linear loss
    :math:`\alpha = C` and one eigendecomposition is all, with the others :math:`\alpha` maximises the dual, one decomposition a step.
    The kernel is of the rows of the fit only. Data are taken as they are: standardise features of different units.

    Attributes
    ----------
    constraints_
        ``(m, 3)`` the constraints used: i, j, +1 or -1, with i < j.
    dual_coef_
        ``(m,)`` :math:`\alpha` of these.
    objective_, dual_gap_
        Primal value, and its certified distance from the optimum.
    labels_
        Clusters of the rows, after :meth:`cluster`.
    n_iter_, converged_, stop_reason_, history_
        Decompositions, whether the gap closed, what ended it, and one array per figure over the iterations.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import SimpleNPKL
    >>> X, y = load_iris(return_X_y=True)
    >>> pairs = [(i, j, 1 if y[i] == y[j] else -1) for i, j in zip(range(0, 140, 2), range(11, 150, 2))]
    >>> model = SimpleNPKL().fit(X, pairs)
    >>> model.cluster(3).shape
    (150,)

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 3; Zhuang, Tsang, Hoi: A family of simple
    non-parametric kernel learning algorithms, J. Machine Learning Research 12, 2011.
    """

    _method = NPKL
    _needs_target = True
    _run_on = "Where neighbours are searched; what is ``cluster`` elsewhere: that is the method's name here."
    _run_parameters = (replace(RUN_PARAMETERS[0], name="run_on", text=_run_on), *RUN_PARAMETERS[1:])

    max_iter: int
    run_on: str | None

    @property
    def _place(self) -> str | None:
        return self.run_on

    def fit(self, X: UserRows, constraints: Column | sp.sparray = None) -> Self:
        """Learn the kernel of the rows of ``X``.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``: an array, a sparse matrix, a Dask array, or a block store.
        constraints
            Sparse ``(n_samples, n_samples)`` matrix with entries +1 (together) and -1 (apart), symmetric or one triangle; or triples
            ``(i, j, +1 or -1)``.

        Raises
        ------
        ValueError
            A parameter out of range, data that are not finite, strings, constraints that are none: a sign that is neither +1 nor -1, a
            row outside the data or paired with itself, a pair with both signs.
        """
        data, _ = self._data(X)
        self._fit(NPKLInputs(data, in_memory(constraints, "constraints")))
        return self

    def _unfinished(self, state: SpectralState) -> str:
        ended = f"max_iter={self.max_iter} ended the fit" if state.stop == "max_iter" else "rounding ended the fit"
        return f"{ended} at a duality gap of {self.dual_gap_:.3g}"

    def fit_predict(
        self, X: UserRows, constraints: Column | sp.sparray = None, *, n_clusters: int = 2, normalize: bool = True
    ) -> np.ndarray:
        """Learn the kernel and return the cluster of every row, ``(n_samples,)``."""
        return self.fit(X, constraints).cluster(n_clusters, normalize=normalize)

    def cluster(self, n_clusters: int, *, normalize: bool = True) -> np.ndarray:
        """Return the cluster of every row, ``(n_samples,)``: k-means under the learnt kernel, ten starts.

        Parameters
        ----------
        n_clusters
            From 1 to the number of rows.
        normalize
            Cluster directions, ``K_ij / sqrt(K_ii K_jj)``, not the rows as they are: these differ much in ``K_ii``, most of all where the
            groups are of many parts of the graph, and plain k-means then splits off the longest ones. Measured on sonar and heart: 2 to 25
            points of Rand accuracy.

        Raises
        ------
        ValueError
            Another number, or a kernel that is zero.
        """
        check_is_fitted(self, "model_")
        n = self.model_.n_rows
        if not isinstance(n_clusters, (int, np.integer)) or isinstance(n_clusters, bool) or not 1 <= n_clusters <= n:
            raise ValueError(f"n_clusters={n_clusters!r}: must be a whole number from 1 to the number of rows, {n}")
        if not len(self.eigenvalues_):
            raise ValueError("the learnt kernel is zero, so all rows are one cluster; raise C")
        factor = self.model_.factor
        if normalize:  # rows of unit length; rows of zero stay
            lengths = np.linalg.norm(factor, axis=1)
            factor = factor / np.where(lengths > 0, lengths, 1.0)[:, None]
        with one_thread():
            means = KMeans(int(n_clusters), n_init=10, random_state=seed_of(self.random_state))  # pyright: ignore[reportArgumentType]
            self.labels_ = np.asarray(means.fit(factor).labels_, dtype=np.int64)
        return self.labels_

    def _set_model(self, model: SpectralModel) -> None:
        super()._set_model(model)
        self.constraints_, self.dual_coef_ = model.arrays["constraints"], model.arrays["alpha"]
