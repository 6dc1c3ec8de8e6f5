"""ColoredMVU, MinimumVolumeEmbedding and StructurePreservingEmbedding: low-dimensional embeddings from a kernel matrix that is learnt
from neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from ....kernels.grams.rows import row_shape
from ....storage.data import in_memory, square_in_memory
from ...estimators.inputs import Callbacks, Column, Seed, UserRows, stored_target
from ...estimators.kernels import MappedRows
from ...models.spectral import SpectralModel
from ...records.data_set import DataSet, require
from . import method
from .labels import Labels, read_labels
from .problem import EmbeddingInputs

Graph = sp.sparray | sp.spmatrix | np.ndarray | Sequence[Sequence[int]] | None


def read_graph(graph: Graph, n: int) -> np.ndarray | None:
    """Return the edges ``(m, 2)`` of a graph of n rows. Raises ValueError for anything but an (n, n) sparse matrix of weights or an
    array of edges.
    """
    if graph is None:
        return None
    graph = in_memory(graph, "graph")
    if sp.issparse(graph):
        matrix = sp.coo_array(graph)
        if matrix.shape != (n, n):
            raise ValueError(f"graph has shape {matrix.shape}; it must be ({n}, {n}), one row and one column per row of X")
        return _matrix_edges(matrix)
    edges = np.asarray(graph)
    if edges.dtype.kind not in "iu" and edges.size:
        raise ValueError(f"graph: edges have type {edges.dtype}; they must be integers (m, 2), or a sparse matrix")
    return edges.astype(np.int64)


def _matrix_edges(matrix: sp.coo_array) -> np.ndarray:
    """Return the indices of the non-zero entries of a matrix, ``(m, 2)``. Raises ValueError for negative or non-finite weights, entries
    on the diagonal, and two non-empty triangles that differ.
    """
    matrix = sp.coo_array(sp.csr_array(matrix))  # entries that stand twice are added up
    bad = np.flatnonzero(~(np.isfinite(matrix.data) & (matrix.data >= 0)))
    if len(bad):
        i, j, weight = matrix.row[bad[0]], matrix.col[bad[0]], matrix.data[bad[0]]
        raise ValueError(f"graph: the weight of ({i}, {j}) is {weight}; must be finite and not negative")
    edges = np.column_stack([matrix.row, matrix.col])[matrix.data != 0].astype(np.int64)
    if len(loops := edges[edges[:, 0] == edges[:, 1]]):
        raise ValueError(f"graph: the edge ({loops[0, 0]}, {loops[0, 1]}) links a row with itself")
    is_upper = edges[:, 0] < edges[:, 1]
    if is_upper.any() and not is_upper.all():
        differs = sp.coo_array(sp.csr_array(matrix) != sp.csr_array(matrix.T))
        if differs.nnz:
            i, j = min(zip(differs.row.tolist(), differs.col.tolist(), strict=True))
            raise ValueError(f"graph: the weights of ({i}, {j}) and ({j}, {i}) differ; make graph symmetric, or leave one triangle empty")
    return edges


class _Embedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MappedRows):
    """Base class of the three embeddings."""

    _method: ClassVar[method.Embedding]

    def fit(self, X: UserRows, y: Column = None, *, graph: Graph = None) -> Self:
        """Learn an embedding of the rows.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``: an array, a sparse matrix, a Dask array, or a block store.
        y
            Not used.
        graph
            Graph of the rows that replaces the nearest-neighbour graph: edges ``(n_edges, 2)``, or a sparse ``(n_samples, n_samples)``
            matrix whose positive entries are edges, in one triangle or the same in both.

        Raises
        ------
        ValueError
            Parameter out of range, non-finite data, fewer than three samples, no mutual neighbours, or an invalid graph: a row outside the
            data or linked with itself; weights that are asymmetric, negative or not finite.
        """
        data, _ = self._data(X)
        self._fit(EmbeddingInputs(data, self._labels(data, y), read_graph(graph, data.n_rows)))
        return self

    def fit_transform(self, X: UserRows, y: Column = None, *, graph: Graph = None) -> np.ndarray:
        """Learn an embedding of the rows and return ``embedding_``, ``(n_samples, n_components)``."""
        return self.fit(X, y, graph=graph).embedding_

    def transform(self, X: UserRows) -> np.ndarray:
        r"""Return estimated coordinates of rows on the map, ``(n_samples, n_components)``.

        The estimate is :math:`z(x) = Z' (K + \rho I)^{-1} k(x)`, with Z the map of the training rows and k a Gaussian kernel of the median
        width; :math:`\rho` has the smallest leave-one-out error (``transform_error_``). Training rows are mapped like any others, so the
        result differs from ``embedding_``. The first call takes ``n^3`` operations and ``32 n^2`` bytes for n training rows.

        Raises ValueError if the training rows are gone (in a copy made before the first call) or all equal, as in a fit on a graph alone;
        MemoryBoundExceeded if there are too many training rows.
        """
        return self._map_rows(X)

    def _labels(self, data: DataSet, y: object) -> Labels | None:
        """Return the labels that the fit uses, if any."""
        return None

    def _set_model(self, model: SpectralModel) -> None:
        super()._set_model(model)
        figures = model.figures
        self.embedding_, self.edges_ = model.arrays["scores"], model.arrays["edges"]
        self.map_share_, self.unit_ = figures["map_share"], figures["unit"]
        self.cap_, self.cap_used_ = figures["cap"], figures["cap_used"]
        self._n_features_out = self.embedding_.shape[1]


class ColoredMVU(_Embedding):
    r"""Embedding that preserves the distances of neighbours and separates labels: coloured maximum variance unfolding.

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} KK \le B} -\mathrm{tr}(H Y Y' H K)
        + \frac{C}{2} \sum_{(i,j) \in E} (d_{ij}^2 - K_{ii} - K_{jj} + 2 K_{ij})^2

    over the kernel matrix K. H centres; Y has a column per class (or the standardised real target), zero for rows without a label; a given
    label kernel replaces :math:`Y Y'`. The coordinates are the leading eigenvectors of K, scaled by the square roots of their eigenvalues.
    The embedding uses the labels: to evaluate it, hold out labels.

    Parameters
    ----------
    n_components : int >= 1, default=2
        Number of dimensions of the map.
    n_neighbors : int >= 1, default=5
        Number of nearest neighbours of a row in the graph.
    graph : {"mutual", "union"}, default='mutual'
        Link two rows if each is a nearest neighbour of the other (``"mutual"``) or if either is (``"union"``). A warning reports a graph
        that is not connected.
    C : float > 0, default=1.0
        Weight of the squared errors of the squared distances of neighbours: C/2 times their sum, in units of the mean squared distance.
    B : float > 0 or None, default=None
        Upper bound of tr K^2, in units in which the mean squared distance of neighbours is 1. Default: 100 times tr K^2 of the centred Gram
        matrix of the rows. A small bound collapses the map.
    tol : float > 0, default=0.0001
        Stopping tolerance: relative duality gap.
    max_iter : int >= 1, default=200
        Largest number of steps; a warning is issued if the fit ends at this limit.
    label_kernel : {"auto", "one-hot", "linear"} or array (n_samples, n_samples), default='auto'
        Kernel of the labels: ``"one-hot"`` is 1 for two rows of one class, else 0; ``"linear"`` is y y' of standardised numbers; ``"auto"``
        is one-hot for classes and linear for numbers. A matrix may be given instead.
    cluster : str or None, default=None
        Where passes run: ``None`` in this process, ``"local:4"`` on four local processes, ``"tls://..."`` on a Dask cluster.
    random_state : int, RandomState or None, default=None
        Not used; the method is deterministic.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and remaining time in a terminal or notebook, else one line per round. 2
        also sends every event to the logger ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or list of functions, called with an event record after each step.

    Attributes
    ----------
    embedding_
        ``(n_samples, n_components)`` centred coordinates, in units of the features.
    transform_error_
        Relative squared leave-one-out error of :meth:`transform`; computed at the first access.
    objective_, dual_gap_
        Objective of the returned kernel, and an upper bound on its difference from the optimum. The bound refers to the last convex problem
        for minimum volume embedding, and to the problem with all triples for structure preserving embedding.
    eigenvectors_, eigenvalues_
        ``(n_samples, rank)`` and ``(rank,)`` eigenvectors and eigenvalues of the kernel, in units of ``unit_``.
    map_share_, edges_
        Fraction of the kernel's trace that the coordinates of the map hold, and ``(n_edges, 2)`` edges of the neighbour graph.
    unit_, cap_, cap_used_
        Mean squared distance of neighbours; the upper bound of tr K^2 (if ``B`` is None, the default value); and tr K^2 as a fraction of
        this bound.
    worst_violation_
        Structure preserving embedding: largest ``d_ik^2 - d_ij^2`` over all triples, in units of ``unit_``.
    C_
        Structure preserving embedding: value of ``C`` used, the cost of a violation.
    n_iter_, converged_, stop_reason_, history_
        Number of steps, whether the fit converged, the reason for stopping, and one array per quantity over the steps.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    How many of 60 digits have a neighbour on the map that is the same digit (on two principal components: 0.7):

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neighbors import kneighbors_graph
    >>> from gramplane import ColoredMVU
    >>> X, y = load_digits(return_X_y=True)
    >>> model = ColoredMVU(graph="union", tol=1e-2).fit(X[:60], y[:60])
    >>> nearest = kneighbors_graph(model.embedding_, 1).indices
    >>> print(f"{(y[nearest] == y[:60]).mean():.1f}")
    0.8

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), section 3.5.
    """

    _method = method.ColoredMVU()
    _needs_target = True

    label_kernel: str | np.ndarray | sp.sparray | sp.spmatrix | None

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 5,
        graph: Literal["mutual", "union"] = "mutual",
        C: float = 1.0,
        B: float | None = None,
        tol: float = 0.0001,
        max_iter: int = 200,
        label_kernel: Any = "auto",
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.C = C
        self.B = B
        self.tol = tol
        self.max_iter = max_iter
        self.label_kernel = label_kernel
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, X: UserRows, y: Column = None, *, graph: Graph = None) -> Self:
        """Learn an embedding of the rows.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``: an array, a sparse matrix, a Dask array, or a block store.
        y
            ``(n_samples,)`` classes or real numbers; a block store may contain them. Unlabelled rows have -1 among integers (but -1 and +1
            alone are two classes), NaN among real numbers, or ``None`` among other types. Not required if ``label_kernel`` is a matrix.
        graph
            Graph of the rows that replaces the nearest-neighbour graph: a sparse ``(n_samples, n_samples)`` matrix or edges ``(n_edges,
            2)``.

        Raises
        ------
        ValueError
            Parameter out of range, non-finite data, fewer than three samples, no mutual neighbours, fewer than two different labels, or a
            label kernel that is not symmetric and positive semi-definite.
        """
        data, _ = self._data(X)
        self._fit(EmbeddingInputs(data, self._labels(data, y), read_graph(graph, data.n_rows), self._matrix()))
        return self

    def _plain(self, params: dict[str, Any]) -> dict[str, Any]:
        matrix = {} if self._matrix() is None else {"label_kernel": "auto"}
        return super()._plain({**params, **matrix})

    def _matrix(self) -> np.ndarray | None:
        """Return the label kernel as a matrix, or None if ``label_kernel`` is a name."""
        given = self.label_kernel
        if given is None or isinstance(given, str):
            return None
        given = square_in_memory(given, "label_kernel")
        return sp.coo_array(given).toarray() if sp.issparse(given) else np.asarray(given, dtype=np.float64)

    def _labels(self, data: DataSet, y: object) -> Labels | None:
        require(data, method.ColoredMVU.name, "columns")
        if y is None and self._matrix() is not None:
            return None
        if y is None and not data.has_table("y"):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = stored_target(data) if y is None else np.asarray(in_memory(y, "y"))
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.shape != (data.n_rows,):
            raise ValueError(f"y has shape {y.shape}, the data has {data.n_rows} rows: inconsistent numbers of samples")
        if y.dtype.kind == "f" and np.isinf(y).any():
            raise ValueError("y holds infinity")
        return read_labels(y)


class MinimumVolumeEmbedding(_Embedding):
    r"""Minimum volume embedding: preserves the distances of neighbours, with little variance outside the coordinates of the map.

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} KK \le B} -\sum_{r \le d} \lambda_r(K) + \sum_{r > d} \lambda_r(K)
        + \frac{C}{2} \sum_{(i,j) \in E} (d_{ij}^2 - K_{ii} - K_{jj} + 2 K_{ij})^2

    with d coordinates. The problem is not convex. Each step fixes the leading eigenvectors of K, at first those of the principal
    components, and solves a convex problem. The objective never increases.

    Parameters
    ----------
    n_components : int >= 1, default=2
        Number of dimensions of the map.
    n_neighbors : int >= 1, default=5
        Number of nearest neighbours of a row in the graph.
    graph : {"mutual", "union"}, default='mutual'
        Link two rows if each is a nearest neighbour of the other (``"mutual"``) or if either is (``"union"``). A warning reports a graph
        that is not connected.
    C : float > 0, default=1.0
        Weight of the squared errors of the squared distances of neighbours: C/2 times their sum, in units of the mean squared distance.
    B : float > 0 or None, default=None
        Upper bound of tr K^2, in units in which the mean squared distance of neighbours is 1. Default: 100 times tr K^2 of the centred Gram
        matrix of the rows. A small bound collapses the map.
    tol : float > 0, default=0.0001
        Stopping tolerance: relative decrease of the objective over one convex problem. Each convex problem is finally solved to a
        tenth of ``tol``.
    max_iter : int >= 1, default=200
        Largest number of convex problems; a warning is issued if the fit ends at this limit.
    cluster : str or None, default=None
        Where passes run: ``None`` in this process, ``"local:4"`` on four local processes, ``"tls://..."`` on a Dask cluster.
    random_state : int, RandomState or None, default=None
        Not used; the method is deterministic.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and remaining time in a terminal or notebook, else one line per round. 2
        also sends every event to the logger ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or list of functions, called with an event record after each step.

    Attributes
    ----------
    embedding_
        ``(n_samples, n_components)`` centred coordinates, in units of the features.
    transform_error_
        Relative squared leave-one-out error of :meth:`transform`; computed at the first access.
    objective_, dual_gap_
        Objective of the returned kernel, and an upper bound on its difference from the optimum. The bound refers to the last convex problem
        for minimum volume embedding, and to the problem with all triples for structure preserving embedding.
    eigenvectors_, eigenvalues_
        ``(n_samples, rank)`` and ``(rank,)`` eigenvectors and eigenvalues of the kernel, in units of ``unit_``.
    map_share_, edges_
        Fraction of the kernel's trace that the coordinates of the map hold, and ``(n_edges, 2)`` edges of the neighbour graph.
    unit_, cap_, cap_used_
        Mean squared distance of neighbours; the upper bound of tr K^2 (if ``B`` is None, the default value); and tr K^2 as a fraction of
        this bound.
    worst_violation_
        Structure preserving embedding: largest ``d_ik^2 - d_ij^2`` over all triples, in units of ``unit_``.
    C_
        Structure preserving embedding: value of ``C`` used, the cost of a violation.
    n_iter_, converged_, stop_reason_, history_
        Number of steps, whether the fit converged, the reason for stopping, and one array per quantity over the steps.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    How much of the variance two dimensions show (two principal components: 31 %):

    >>> from sklearn.datasets import load_digits
    >>> from gramplane import MinimumVolumeEmbedding
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = MinimumVolumeEmbedding(graph="union", tol=1e-2).fit(X[:60])
    >>> print(f"{100 * model.map_share_:.0f} %")
    99 %

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), section 3.5.
    """

    _method = method.MVE()

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 5,
        graph: Literal["mutual", "union"] = "mutual",
        C: float = 1.0,
        B: float | None = None,
        tol: float = 0.0001,
        max_iter: int = 200,
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.C = C
        self.B = B
        self.tol = tol
        self.max_iter = max_iter
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class StructurePreservingEmbedding(_Embedding):
    r"""Embedding of a graph in which neighbours are nearer than all other rows: structure preserving embedding.

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} KK \le B, \; \xi \ge 0} -\mathrm{tr}(H W H K) + C \xi, \qquad d_{ik}^2 \le d_{ij}^2 + \xi

    for all rows i, their neighbours k and all other rows j. W is the adjacency matrix of the graph, and d are the distances under K. The
    method uses only the graph: a given graph, or the nearest-neighbour graph of the rows. With a given graph, ``X`` may be ``None``. K may
    have many dimensions; ``map_share_`` is the fraction of the trace of K that the map contains.

    Parameters
    ----------
    n_components : int >= 1, default=2
        Number of dimensions of the map.
    n_neighbors : int >= 1, default=5
        Number of nearest neighbours of a row in the graph.
    graph : {"mutual", "union"}, default='mutual'
        Link two rows if each is a nearest neighbour of the other (``"mutual"``) or if either is (``"union"``). A warning reports a graph
        that is not connected.
    C : float > 0 or {"auto"}, default='auto'
        Cost of the largest violation, C xi. With ``"auto"``, a violation equal to the mean squared distance costs as much as the best
        objective without triples; this mean is that of a kernel with two equal eigenvalues and tr K^2 = ``B``. The value used is stored in
        ``C_``.
    B : float > 0 or None, default=None
        Upper bound of tr K^2, in units in which the mean squared distance of neighbours is 1. Default: 100 times tr K^2 of the centred Gram
        matrix of the rows. The value only scales the map.
    tol : float > 0, default=0.001
        Stopping tolerance: relative duality gap over all triples.
    max_iter : int >= 1, default=100
        Largest number of cutting-plane rounds; a warning is issued if the fit ends at this limit.
    cluster : str or None, default=None
        Where passes run: ``None`` in this process, ``"local:4"`` on four local processes, ``"tls://..."`` on a Dask cluster.
    random_state : int, RandomState or None, default=None
        Not used; the method is deterministic.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and remaining time in a terminal or notebook, else one line per round. 2
        also sends every event to the logger ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or list of functions, called with an event record after each step.

    Attributes
    ----------
    embedding_
        ``(n_samples, n_components)`` centred coordinates, in units of the features.
    transform_error_
        Relative squared leave-one-out error of :meth:`transform`; computed at the first access.
    objective_, dual_gap_
        Objective of the returned kernel, and an upper bound on its difference from the optimum. The bound refers to the last convex problem
        for minimum volume embedding, and to the problem with all triples for structure preserving embedding.
    eigenvectors_, eigenvalues_
        ``(n_samples, rank)`` and ``(rank,)`` eigenvectors and eigenvalues of the kernel, in units of ``unit_``.
    map_share_, edges_
        Fraction of the kernel's trace that the coordinates of the map hold, and ``(n_edges, 2)`` edges of the neighbour graph.
    unit_, cap_, cap_used_
        Mean squared distance of neighbours; the upper bound of tr K^2 (if ``B`` is None, the default value); and tr K^2 as a fraction of
        this bound.
    worst_violation_
        Structure preserving embedding: largest ``d_ik^2 - d_ij^2`` over all triples, in units of ``unit_``.
    C_
        Structure preserving embedding: value of ``C`` used, the cost of a violation.
    n_iter_, converged_, stop_reason_, history_
        Number of steps, whether the fit converged, the reason for stopping, and one array per quantity over the steps.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    A map of a ring of eight nodes, from its links alone. On the map, too, the nearest neighbours of node 3 are nodes 2 and 4:

    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from sklearn.neighbors import kneighbors_graph
    >>> from gramplane import StructurePreservingEmbedding
    >>> ring = np.eye(8, k=1) + np.eye(8, k=-7)
    >>> model = StructurePreservingEmbedding().fit(
    ...     None, graph=csr_array(ring + ring.T)
    ... )
    >>> print(np.sort(kneighbors_graph(model.embedding_, 2)[[3]].indices))
    [2 4]
    >>> print(f"largest violation {model.worst_violation_:.1f}")
    largest violation 0.0

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), section 3.5.
    """

    _method = method.SPE()

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 5,
        graph: Literal["mutual", "union"] = "mutual",
        C: float | Literal["auto"] = "auto",
        B: float | None = None,
        tol: float = 0.001,
        max_iter: int = 100,
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.C = C
        self.B = B
        self.tol = tol
        self.max_iter = max_iter
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, X: UserRows | None = None, y: Column = None, *, graph: Graph = None) -> Self:
        """Learn an embedding of a graph.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``: an array, a sparse matrix, a Dask array, or a block store; ``None`` if ``graph`` is a matrix. The
            rows determine the size of the map, and the graph if none is given.
        y
            Not used.
        graph
            Graph to preserve, which replaces the nearest-neighbour graph: edges ``(n_edges, 2)``, or a sparse ``(n_samples, n_samples)``
            matrix whose positive entries are edges, in one triangle or the same in both.

        Raises
        ------
        ValueError
            Parameter out of range, non-finite data, fewer than three samples, no edge, or an invalid graph: a row outside the data or
            linked with itself; weights that are asymmetric, negative or not finite.
        """
        if X is None:
            if not sp.issparse(graph):
                raise ValueError("X is None; give graph as a sparse matrix, or give X to build a graph of its rows")
            X = np.zeros((row_shape(sp.csr_array(in_memory(graph, "graph")))[0], 1))
        return super().fit(X, y, graph=graph)

    def _set_model(self, model: SpectralModel) -> None:
        super()._set_model(model)
        self.worst_violation_ = model.figures["worst_violation"]
        self.C_ = model.figures.get("violation_cost", np.nan)
