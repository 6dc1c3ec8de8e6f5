"""SimpleNPKL: a kernel matrix without a parametric form, from constraints on pairs of rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.cluster import KMeans
from sklearn.utils.validation import check_is_fitted

from ....kernels.jit import one_thread
from ...estimators.inputs import fan_out, fit_context, in_memory, seed_of, warn_user
from ...estimators.kernels import KernelEstimator
from ...loops.run import run_loop
from ...records.config import MethodConfig
from ...records.context import RunContext
from .config import NPKLConfig
from .method import build_loop, model_of, remarks


class SpectralEstimator(KernelEstimator):
    """What transductive estimators share: a kernel over the rows of the fit, known by its spectrum."""

    _is_classifier: ClassVar[bool] = False
    _config_type: ClassVar[type[MethodConfig]]

    kernels: ClassVar[Any] = None
    model_: Any  # a SpectralModel

    def kernel_block(self, rows: Any = None, cols: Any = None) -> np.ndarray:
        """Return entries of the learnt kernel, ``K[rows][:, cols]``.

        Parameters
        ----------
        rows, cols
            Indices of rows of the fit, or a slice; default: all.
        """
        check_is_fitted(self, "model_")
        left, right = (np.arange(self.model_.n_rows)[slice(None) if part is None else part] for part in (rows, cols))
        with one_thread():
            return self.model_.kernel_block(left, right)

    @classmethod
    def from_model(cls, model: Any, params: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Self:
        """Return the fitted estimator of a saved model."""
        estimator = cls(**{name: value for name, value in params.items() if name in cls().get_params()})
        estimator._set_model(model)
        estimator._set_history(list(history))
        return estimator

    def _set_model(self, model: Any) -> None:
        self.model_ = model
        self.eigenvectors_, self.eigenvalues_ = model.eigenvectors, model.eigenvalues
        figures = model.figures
        self.objective_, self.dual_gap_ = figures["objective"], figures["gap"]
        self.n_iter_, self.converged_ = int(figures["iterations"]), bool(figures["converged"])


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
    loss
        Of :math:`z = T_{ij} K_{ij}`: ``"linear"`` -z; ``"squared_hinge"`` max(0, 1 - z)^2 / 2; ``"square"`` (1 - z)^2 / 2; ``"hinge"``
        max(0, 1 - z).
    p
        Power of the regulariser, at least 1; 1 with the linear loss only.
    B
        Cap of tr K^p. With the linear loss it only scales K; otherwise entries reach 1 only where B is of the order of the number of rows.
    G
        Take the penalty (G/p) tr K^p in place of the cap.
    C
        Loss weight. It decides how well K clusters: try 0.05 to 0.5; from 1 on, pairs without neighbours take over.
    n_neighbors
        Neighbours in the graph, by Euclidean distance; ties by row.
    graph
        Rows are linked where ``"mutual"`` both are neighbours of the other, ``"union"`` one of them is.
    closure
        Use all pairs that the given ones imply: rows linked by pairs that belong together form a part, and where two rows are apart, their
        parts are.
    selection
        Use all constraints (``None``), those of the ``n_select`` rows of which a Gaussian kernel is least certain (``"active"``), or as
        many drawn at random (``"random"``).
    n_select
        Rows whose constraints a selection keeps; default: half of those that have one.
    base
        Look for K on this many eigenvectors of L with the least eigenvalues only: faster, and smoother; default: all.
    tol
        Relative duality gap at which the fit ends.
    max_iter
        Eigendecompositions at most; a warning tells when they end the fit.
    run_on
        Where neighbours are searched: ``None`` in-process, ``"local:4"``, ``"tls://..."`` ... (what is ``cluster`` elsewhere: that name is
        the method's here).
    random_state
        Of random selections, of the eigensolver's first block, and of :meth:`cluster`.
    verbose
        Log one line per iteration.
    callbacks
        Functions called with an event record per iteration.

    Attributes
    ----------
    eigenvectors_, eigenvalues_
        ``(n_samples, rank)`` and ``(rank,)``: :math:`K = U \mathrm{diag}(\lambda) U'`, eigenvalues descending and positive.
    constraints_
        ``(m, 3)`` the constraints used: i, j, +1 or -1, with i < j.
    dual_coef_
        ``(m,)`` :math:`\alpha` of these.
    objective_, dual_gap_
        Primal value, and its certified distance from the optimum.
    labels_
        Clusters of the rows, after :meth:`cluster`.
    n_iter_, converged_, history_
        Decompositions, whether the gap closed, and one array per figure over the iterations.

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 3; Zhuang, Tsang, Hoi: A family of simple
    non-parametric kernel learning algorithms, J. Machine Learning Research 12, 2011.
    """

    _config_type = NPKLConfig

    def __init__(
        self,
        loss: Literal["linear", "squared_hinge", "square", "hinge"] = "linear",
        p: float = 2.0,
        B: float = 1.0,
        G: float | None = None,
        C: float = 1.0,
        n_neighbors: int = 5,
        graph: Literal["mutual", "union"] = "mutual",
        closure: bool = False,
        selection: Literal["active", "random"] | None = None,
        n_select: int | None = None,
        base: int | None = None,
        tol: float = 1e-4,
        max_iter: int = 200,
        run_on: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, constraints: Any = None) -> Self:
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
        config = self._config()
        data, _ = self._data(X)
        with self._context(data) as ctx:
            loop = build_loop(config, data, in_memory(constraints, "constraints"), ctx, warn_user)
            outcome = run_loop(loop, ctx, keep=False)
            self._set_model(model_of(config, loop, outcome.state, ctx))
        self._set_history(outcome.history)
        for message in remarks(self.model_):
            warn_user(message)
        stop = outcome.state.stop
        told = f"max_iter={config.max_iter} ended the fit" if stop == "max_iter" else "rounding ended the fit"
        self._warn_unfinished(self.converged_, f"{told} at a duality gap of {self.dual_gap_:.3g}")
        return self

    def fit_predict(self, X: Any, constraints: Any = None, *, n_clusters: int = 2, normalize: bool = False) -> np.ndarray:
        """Learn the kernel and return the cluster of every row, ``(n_samples,)``."""
        return self.fit(X, constraints).cluster(n_clusters, normalize=normalize)

    def cluster(self, n_clusters: int, *, normalize: bool = False) -> np.ndarray:
        """Return the cluster of every row, ``(n_samples,)``: k-means under the learnt kernel, ten starts.

        Parameters
        ----------
        n_clusters
            From 1 to the number of rows.
        normalize
            Cluster directions, ``K_ij / sqrt(K_ii K_jj)``: rows differ much in ``K_ii``, most of all where the groups are of many parts of
            the graph, and plain k-means then splits off the longest ones. Measured on sonar and heart: 2 to 25 points of Rand accuracy.

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
        with one_thread():
            means: Any = KMeans(int(n_clusters), n_init=10, random_state=seed_of(self.random_state))  # pyright: ignore[reportArgumentType]
            self.labels_ = np.asarray(means.fit(_directions(factor) if normalize else factor).labels_, dtype=np.int64)
        return self.labels_

    def _set_model(self, model: Any) -> None:
        super()._set_model(model)
        self.constraints_, self.dual_coef_ = model.arrays["constraints"], model.arrays["alpha"]

    @contextlib.contextmanager
    def _context(self, data: Any) -> Iterator[RunContext]:
        with fit_context(data, self.run_on, fan_out(self.callbacks, self.verbose), seed_of(self.random_state)) as ctx:
            yield ctx


def _directions(factor: np.ndarray) -> np.ndarray:
    """Return rows of unit length; rows of zero stay."""
    lengths = np.linalg.norm(factor, axis=1)
    return factor / np.where(lengths > 0, lengths, 1.0)[:, None]
