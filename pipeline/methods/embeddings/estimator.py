"""ColoredMVU, MinimumVolumeEmbedding, StructurePreservingEmbedding: maps of rows by a kernel matrix learnt from their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from ....kernels.grams.rows import row_shape
from ....storage.data import in_memory, square_in_memory
from ...estimators.inputs import Callbacks, Column, Seed, UserRows, stored_target
from ...estimators.kernels import SpectralEstimator
from ...models.spectral import SpectralModel
from ...records.data_set import DataSet, require
from . import method
from .labels import Labels, read_labels
from .problem import EmbeddingInputs

Graph = sp.sparray | sp.spmatrix | np.ndarray | Sequence[Sequence[int]] | None


def read_graph(graph: Graph, n: int) -> np.ndarray | None:
    """Return the edges of a graph of n rows, ``(m, 2)``. Raises ValueError: neither a square sparse matrix of weights nor edges."""
    if graph is None:
        return None
    graph = in_memory(graph, "graph")
    if sp.issparse(graph):
        matrix = sp.coo_array(graph)
        if matrix.shape != (n, n):
            raise ValueError(f"graph: a matrix of shape {matrix.shape}; must be ({n}, {n}), one row and column per row of X")
        return _matrix_edges(matrix)
    edges = np.asarray(graph)
    if edges.dtype.kind not in "iu" and edges.size:
        raise ValueError(f"graph: edges of type {edges.dtype}; must be whole numbers (m, 2), or a sparse matrix")
    return edges.astype(np.int64)


def _matrix_edges(matrix: sp.coo_array) -> np.ndarray:
    """Return the entries of a matrix that are not zero, ``(m, 2)``. Raises ValueError: weights that are negative or not finite, a
    diagonal, two triangles of which neither is empty and that differ.
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
            raise ValueError(f"graph: the weights of ({i}, {j}) and ({j}, {i}) differ; must be symmetric, or hold one triangle")
    return edges


class _Embedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SpectralEstimator):
    """What the three share."""

    _method: ClassVar[method.Embedding]

    def fit(self, X: UserRows, y: Column = None, *, graph: Graph = None) -> Self:
        """Learn the map of some rows.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``: an array, a sparse matrix, a Dask array, or a block store.
        y
            Not used.
        graph
            Graph of the rows in place of that of nearest neighbours: a sparse ``(n_samples, n_samples)`` matrix, whose entries above zero
            are edges, in one triangle or the same in both; or edges ``(n_edges, 2)``.

        Raises
        ------
        ValueError
            A parameter out of range, data that are not finite, fewer than three samples, no two that are neighbours of each other, a graph
            with a row outside the data or linked with itself, with weights that are not symmetric, negative or not finite.
        """
        data, _ = self._data(X)
        self._fit(EmbeddingInputs(data, self._labels(data, y), read_graph(graph, data.n_rows)))
        return self

    def fit_transform(self, X: UserRows, y: Column = None, *, graph: Graph = None) -> np.ndarray:
        """Learn the map and return ``embedding_``, ``(n_samples, n_components)``."""
        return self.fit(X, y, graph=graph).embedding_

    def _labels(self, data: DataSet, y: object) -> Labels | None:
        """Return what the fit may know of the rows."""
        return None

    def _set_model(self, model: SpectralModel) -> None:
        super()._set_model(model)
        figures = model.figures
        self.embedding_, self.edges_ = model.arrays["scores"], model.arrays["edges"]
        self.map_share_, self.unit_ = figures["map_share"], figures["unit"]
        self.cap_, self.cap_used_ = figures["cap"], figures["cap_used"]
        self._n_features_out = self.embedding_.shape[1]


class ColoredMVU(_Embedding):
    r"""A map that keeps the distances of neighbours and is ordered by labels: coloured maximum variance unfolding.

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} KK \le B} -\mathrm{tr}(H Y Y' H K)
        + \frac{C}{2} \sum_{(i,j) \in E} (d_{ij}^2 - K_{ii} - K_{jj} + 2 K_{ij})^2

    over the kernel matrix, H centring, Y with a column per class (or the standardised real target), zero for rows without a label, or
    :math:`Y Y'` the kernel of the labels that is given;
    coordinates are the leading eigenvectors of K by the roots of their eigenvalues. The map sees the labels: to judge it hide those it is
    judged by.

    Parameters
    ----------
    n_components : int >= 1, default=2
        Coordinates of the map.
    n_neighbors : int >= 1, default=5
        Nearest neighbours of a row in the graph.
    graph : {"mutual", "union"}, default='mutual'
        Edges where both are a neighbour of the other, or one of them; a warning says when it is not connected.
    C : float > 0, default=1.0
        Weight of squared errors of squared distances of neighbours, C/2 * sum, in units of their mean.
    B : float > 0 or None, default=None
        Cap of tr K^2, with a mean squared distance of neighbours of 1; default: 100 times that of the centred Gram matrix of the rows. With
        a small cap the map is crushed.
    tol : float > 0, default=0.0001
        Relative duality gap at which the fit ends.
    max_iter : int >= 1, default=200
        Steps at most; a warning says when they end the fit.
    label_kernel : {"auto", "one-hot", "linear"} or array (n_samples, n_samples), default='auto'
        Kernel of the labels: one-hot 1 for rows of one class, else 0; linear y y' of standardised numbers; auto: one-hot for classes,
        linear for numbers. A matrix may be given in its place.
    cluster : str or None, default=None
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."``.
    random_state : int, RandomState or None, default=None
        Not used; the fit is deterministic.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and time left on a terminal or in a notebook, elsewhere a line per round;
        2 also sends every event to the log ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or several, called with an event record per step.

    Attributes
    ----------
    embedding_
        ``(n_samples, n_components)`` coordinates, centred, in units of the features. There is no rule for further rows.
    objective_, dual_gap_
        Value at the kernel returned, and how far it is from the optimum at most: of minimum volume embedding that of the last convex
        problem, of structure preserving embedding over all triples.
    eigenvectors_, eigenvalues_
        ``(n_samples, rank)`` and ``(rank,)`` of the kernel, in units of ``unit_``.
    map_share_, edges_
        Share of the trace of the kernel in the coordinates of the map, and ``(n_edges, 2)`` of the neighbour graph.
    unit_, cap_, cap_used_
        Mean squared distance of neighbours, the cap (``cap_`` shows the default for these rows), and how much of it is used.
    worst_violation_
        Of structure preserving embedding: largest ``d_ik - d_ij`` over all triples, in units of ``unit_``.
    C_
        Of structure preserving embedding: the cost of a violation used, what ``C="auto"`` stands for on these rows.
    n_iter_, converged_, stop_reason_, history_
        Steps, whether the fit ended by itself, what ended it, and one array per figure over the steps.
    encoding_ : Pipeline
        Of a frame with columns that are not all numbers, and of a store made of a table: scikit-learn's encoders, fitted, from the
        columns to the features; else not there.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramplane import ColoredMVU
    >>> X, y = load_digits(return_X_y=True)
    >>> ColoredMVU(graph="union", tol=1e-2).fit_transform(X[:60], y[:60]).shape
    (60, 2)

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
        """Learn the map of some rows.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``: an array, a sparse matrix, a Dask array, or a block store.
        y
            ``(n_samples,)`` classes or real numbers; a block store may hold them. Rows without a label: -1 among integers (but -1 and +1
            alone are two classes), NaN among real numbers, ``None`` among others. Not needed where ``label_kernel`` is a matrix.
        graph
            Graph of the rows in place of that of nearest neighbours: a sparse ``(n_samples, n_samples)`` matrix or edges ``(n_edges, 2)``.

        Raises
        ------
        ValueError
            A parameter out of range, data that are not finite, fewer than three samples, no two that are neighbours of each other, no two
            different labels, a label kernel that is not symmetric and positive semidefinite.
        """
        data, _ = self._data(X)
        self._fit(EmbeddingInputs(data, self._labels(data, y), read_graph(graph, data.n_rows), self._matrix()))
        return self

    def _plain(self, params: dict[str, Any]) -> dict[str, Any]:
        matrix = {} if self._matrix() is None else {"label_kernel": "auto"}
        return super()._plain({**params, **matrix})

    def _matrix(self) -> np.ndarray | None:
        """Return the label kernel that is given."""
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
    r"""A map that keeps the distances of neighbours and spends little of them outside of its coordinates: minimum volume embedding.

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} KK \le B} -\sum_{r \le d} \lambda_r(K) + \sum_{r > d} \lambda_r(K)
        + \frac{C}{2} \sum_{(i,j) \in E} (d_{ij}^2 - K_{ii} - K_{jj} + 2 K_{ij})^2

    with d coordinates. Not convex: the leading eigenvectors of K are held while a convex problem is solved, from those of the principal
    components on, and the objective never rises.

    Parameters
    ----------
    n_components : int >= 1, default=2
        Coordinates of the map.
    n_neighbors : int >= 1, default=5
        Nearest neighbours of a row in the graph.
    graph : {"mutual", "union"}, default='mutual'
        Edges where both are a neighbour of the other, or one of them; a warning says when it is not connected.
    C : float > 0, default=1.0
        Weight of squared errors of squared distances of neighbours, C/2 * sum, in units of their mean.
    B : float > 0 or None, default=None
        Cap of tr K^2, with a mean squared distance of neighbours of 1; default: 100 times that of the centred Gram matrix of the rows. With
        a small cap the map is crushed.
    tol : float > 0, default=0.0001
        Relative decrease of the objective, by a problem solved to a tenth of it, that ends the fit.
    max_iter : int >= 1, default=200
        Convex problems at most; a warning says when they end the fit.
    cluster : str or None, default=None
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."``.
    random_state : int, RandomState or None, default=None
        Not used; the fit is deterministic.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and time left on a terminal or in a notebook, elsewhere a line per round;
        2 also sends every event to the log ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or several, called with an event record per step.

    Attributes
    ----------
    embedding_
        ``(n_samples, n_components)`` coordinates, centred, in units of the features. There is no rule for further rows.
    objective_, dual_gap_
        Value at the kernel returned, and how far it is from the optimum at most: of minimum volume embedding that of the last convex
        problem, of structure preserving embedding over all triples.
    eigenvectors_, eigenvalues_
        ``(n_samples, rank)`` and ``(rank,)`` of the kernel, in units of ``unit_``.
    map_share_, edges_
        Share of the trace of the kernel in the coordinates of the map, and ``(n_edges, 2)`` of the neighbour graph.
    unit_, cap_, cap_used_
        Mean squared distance of neighbours, the cap (``cap_`` shows the default for these rows), and how much of it is used.
    worst_violation_
        Of structure preserving embedding: largest ``d_ik - d_ij`` over all triples, in units of ``unit_``.
    C_
        Of structure preserving embedding: the cost of a violation used, what ``C="auto"`` stands for on these rows.
    n_iter_, converged_, stop_reason_, history_
        Steps, whether the fit ended by itself, what ended it, and one array per figure over the steps.
    encoding_ : Pipeline
        Of a frame with columns that are not all numbers, and of a store made of a table: scikit-learn's encoders, fitted, from the
        columns to the features; else not there.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramplane import MinimumVolumeEmbedding
    >>> X, y = load_digits(return_X_y=True)
    >>> MinimumVolumeEmbedding(graph="union", tol=1e-2).fit_transform(X[:60]).shape
    (60, 2)

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
    r"""A map of a graph in which no neighbour is farther than a stranger: structure preserving embedding.

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} KK \le B, \; \xi \ge 0} -\mathrm{tr}(H W H K) + C \xi, \qquad d_{ik}^2 \le d_{ij}^2 + \xi

    for all rows i, their neighbours k and all other rows j; W is the adjacency matrix of the graph, and d the distances under K.
    The graph is given, or that of nearest neighbours; nothing else counts: with a graph, ``X`` may be ``None``. The cap lets K have many
    dimensions: ``map_share_`` shows how much the map has.

    Parameters
    ----------
    n_components : int >= 1, default=2
        Coordinates of the map.
    n_neighbors : int >= 1, default=5
        Nearest neighbours of a row in the graph.
    graph : {"mutual", "union"}, default='mutual'
        Edges where both are a neighbour of the other, or one of them; a warning says when it is not connected.
    C : float > 0 or {"auto"}, default='auto'
        Cost of the largest violation, C xi; auto: a violation as large as the mean squared distance of a flat kernel on the cap costs as
        much as the best value without triples.
    B : float > 0 or None, default=None
        Cap of tr K^2, with a mean squared distance of neighbours of 1; default: 100 times that of the centred Gram matrix of the rows. It
        only sizes the map.
    tol : float > 0, default=0.001
        Relative gap, over all triples, at which the fit ends.
    max_iter : int >= 1, default=100
        Rounds of cutting planes at most; a warning says when they end the fit.
    cluster : str or None, default=None
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."``.
    random_state : int, RandomState or None, default=None
        Not used; the fit is deterministic.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and time left on a terminal or in a notebook, elsewhere a line per round;
        2 also sends every event to the log ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or several, called with an event record per step.

    Attributes
    ----------
    embedding_
        ``(n_samples, n_components)`` coordinates, centred, in units of the features. There is no rule for further rows.
    objective_, dual_gap_
        Value at the kernel returned, and how far it is from the optimum at most: of minimum volume embedding that of the last convex
        problem, of structure preserving embedding over all triples.
    eigenvectors_, eigenvalues_
        ``(n_samples, rank)`` and ``(rank,)`` of the kernel, in units of ``unit_``.
    map_share_, edges_
        Share of the trace of the kernel in the coordinates of the map, and ``(n_edges, 2)`` of the neighbour graph.
    unit_, cap_, cap_used_
        Mean squared distance of neighbours, the cap (``cap_`` shows the default for these rows), and how much of it is used.
    worst_violation_
        Of structure preserving embedding: largest ``d_ik - d_ij`` over all triples, in units of ``unit_``.
    C_
        Of structure preserving embedding: the cost of a violation used, what ``C="auto"`` stands for on these rows.
    n_iter_, converged_, stop_reason_, history_
        Steps, whether the fit ended by itself, what ended it, and one array per figure over the steps.
    encoding_ : Pipeline
        Of a frame with columns that are not all numbers, and of a store made of a table: scikit-learn's encoders, fitted, from the
        columns to the features; else not there.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramplane import StructurePreservingEmbedding
    >>> X, y = load_digits(return_X_y=True)
    >>> StructurePreservingEmbedding(graph="union", tol=1e-2).fit_transform(X[:60]).shape
    (60, 2)

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
        """Learn the map of a graph.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``: an array, a sparse matrix, a Dask array, or a block store; ``None`` where ``graph`` is a matrix.
            Rows size the map, and make the graph where none is given.
        y
            Not used.
        graph
            The graph, in place of that of nearest neighbours: a sparse ``(n_samples, n_samples)`` matrix, whose entries above zero are
            edges, in one triangle or the same in both; or edges ``(n_edges, 2)``.

        Raises
        ------
        ValueError
            A parameter out of range, data that are not finite, fewer than three samples, no edge, a graph with a row outside the data or
            linked with itself, with weights that are not symmetric, negative or not finite.
        """
        if X is None:
            if not sp.issparse(graph):
                raise ValueError("X: is None; give the graph as a sparse matrix, or rows to make one of")
            X = np.zeros((row_shape(sp.csr_array(in_memory(graph, "graph")))[0], 1))
        return super().fit(X, y, graph=graph)

    def _set_model(self, model: SpectralModel) -> None:
        super()._set_model(model)
        self.worst_violation_ = model.figures["worst_violation"]
        self.C_ = model.figures.get("violation_cost", np.nan)
