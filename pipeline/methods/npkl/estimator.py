"""SimpleNPKL: a kernel matrix without a parametric form, from constraints on pairs of rows."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.utils.validation import check_is_fitted

from ....kernels.jit import one_thread
from ....storage.data import in_memory
from ...estimators.inputs import Callbacks, Column, Seed, UserRows, seed_of
from ...estimators.kernels import SpectralEstimator
from ...models.spectral import SpectralModel
from .method import NPKL
from .problem import NPKLInputs


class SimpleNPKL(SpectralEstimator):
    r"""Learn a kernel matrix from pairs of rows that belong together or apart, smooth on a graph of nearest neighbours.

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} K^p \le B} \mathrm{tr}(LK) + C \sum_{(i,j)} \ell(T_{ij} K_{ij})

    with L the normalised Laplacian of the graph (zero at rows without a neighbour), T the constraints +1 and -1, and the sum over both
    orders of every pair. The optimum is a closed form of the positive eigenpairs of :math:`A = \alpha \circ T - L`: with the linear loss
    :math:`\alpha = C` and one eigendecomposition is all, with the others :math:`\alpha` maximises the dual, one decomposition a step.
    The kernel is of the rows of the fit only. Data are taken as they are: standardise features of different units.

    Parameters
    ----------
    loss : {"linear", "squared_hinge", "square", "hinge"}, default='linear'
        Loss of z = T_ij K_ij: linear -z, which has a closed form, one eigendecomposition; squared_hinge max(0, 1 - z)^2 / 2; square (1 -
        z)^2 / 2; hinge max(0, 1 - z).
    p : float >= 1, default=2.0
        Power of the regulariser tr K^p; 1: loss=linear only.
    B : float > 0, default=1.0
        Cap of tr K^p. With loss=linear it only scales K; otherwise entries reach 1 only where B is of the order of the number of rows. Not
        looked at where G is given.
    G : float > 0 or None, default=None
        Weight of the penalty (G/p) tr K^p, in place of the cap.
    C : float > 0, default=0.2
        Loss weight of a constrained pair, counted in both orders. It decides how well K clusters: try 0.05 to 0.5; from 1 on, pairs without
        neighbours take over.
    n_neighbors : int >= 1, default=5
        Neighbours in the graph that the kernel should be smooth on, by Euclidean distance.
    graph : {"mutual", "union"}, default='union'
        Rows are linked where both are neighbours of the other (mutual, as in the thesis), or where one is.
    closure : bool, default=False
        Use all pairs that the given ones imply: rows linked by pairs that belong together form a part, and where two rows are apart, their
        parts are.
    selection : {"active", "random"} or None, default=None
        Which constraints are used: all; those of the n_select rows of which a Gaussian kernel is least certain (active); as many drawn at
        random.
    n_select : int >= 1 or None, default=None
        Rows whose constraints a selection keeps; default: half of those that have one.
    base : int >= 1 or None, default=None
        Look for a kernel on this many smooth functions of the graph (least eigenvectors of its Laplacian): faster, and smoother; default:
        all.
    tol : float >= 1e-12 and < 1, default=0.0001
        Relative duality gap at which the fit ends.
    max_iter : int >= 1, default=200
        Eigendecompositions at most; a warning tells when they end the fit.
    run_on : str or None, default=None
        Where neighbours are searched; what is ``cluster`` elsewhere: that is the method's name here.
    random_state : int, RandomState or None, default=None
        Seed of everything drawn at random; ``None`` is 0, so that fits repeat.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and time left on a terminal or in a notebook, elsewhere a line per round;
        2 also sends every event to the log ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or several, called with an event record per step.

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
    eigenvectors_, eigenvalues_
        ``(n_samples, rank)`` and ``(rank,)``: :math:`K = U \mathrm{diag}(\lambda) U'`, eigenvalues descending and positive.
    encoding_ : Pipeline
        Of a frame with columns that are not all numbers, and of a store made of a table: scikit-learn's encoders, fitted, from the
        columns to the features; else not there.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.metrics import adjusted_rand_score
    >>> from gramplane import SimpleNPKL
    >>> X, y = load_iris(return_X_y=True)
    >>> pairs = [(i, j, 1 if y[i] == y[j] else -1) for i, j in zip(range(0, 140, 2), range(11, 150, 2))]
    >>> model = SimpleNPKL().fit(X, pairs)
    >>> round(adjusted_rand_score(y, model.cluster(3)), 2)
    0.94

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 3; Zhuang, Tsang, Hoi: A family of simple
    non-parametric kernel learning algorithms, J. Machine Learning Research 12, 2011.
    """

    _method = NPKL()
    _needs_target = True

    max_iter: int
    run_on: str | None

    def __init__(
        self,
        loss: Literal["linear", "squared_hinge", "square", "hinge"] = "linear",
        p: float = 2.0,
        B: float = 1.0,
        G: float | None = None,
        C: float = 0.2,
        n_neighbors: int = 5,
        graph: Literal["mutual", "union"] = "union",
        closure: bool = False,
        selection: Literal["active", "random"] | None = None,
        n_select: int | None = None,
        base: int | None = None,
        tol: float = 0.0001,
        max_iter: int = 200,
        run_on: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.loss = loss
        self.p = p
        self.B = B
        self.G = G
        self.C = C
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.closure = closure
        self.selection = selection
        self.n_select = n_select
        self.base = base
        self.tol = tol
        self.max_iter = max_iter
        self.run_on = run_on
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

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

    def fit_predict(
        self, X: UserRows, constraints: Column | sp.sparray = None, *, n_clusters: int = 2, normalize: bool = True
    ) -> np.ndarray:
        """Learn the kernel and return the cluster of every row, ``(n_samples,)``."""
        return self.fit(X, constraints).cluster(n_clusters, normalize=normalize)

    @one_thread()
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
        means = KMeans(int(n_clusters), n_init=10, random_state=seed_of(self.random_state))  # pyright: ignore[reportArgumentType]
        self.labels_ = np.asarray(means.fit(factor).labels_, dtype=np.int64)
        return self.labels_

    def _set_model(self, model: SpectralModel) -> None:
        super()._set_model(model)
        self.constraints_, self.dual_coef_ = model.arrays["constraints"], model.arrays["alpha"]
