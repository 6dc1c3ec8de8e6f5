"""ColoredMVU, MinimumVolumeEmbedding, StructurePreservingEmbedding: maps of rows by a kernel matrix learnt from their neighbours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from ...estimators.inputs import fan_out, fit_context, in_memory, seed_of, warn_user
from ...estimators.kernels import KernelEstimator, documented
from ...loops.run import run_loop
from ...models.spectral import SpectralModel
from .config import ColoredMVUConfig, MVEConfig, SPEConfig
from .loop import Labels, labels_of
from .method import build_loop, model_of

GRAPH = """
    Parameters
    ----------
    n_components
        Coordinates of the map.
    n_neighbors
        Nearest neighbours of a row in the graph.
    graph
        Edges where both rows are a neighbour of the other (``"mutual"``), or one of them (``"union"``). A warning tells when the graph is
        not connected.
"""

CAPPED = """    B
        Cap of tr KK, in units in which neighbours have a mean squared distance of 1; default: 100 times that of the centred Gram matrix of
        the rows. With a small cap the map is crushed; ``cap_`` tells the default for these rows.
    tol
        {tol}
    max_iter
        {steps} at most; a warning tells when that ends the fit.
    cluster
        Not used by the fit, which takes place in this process.
    random_state
        Not used; the fit is deterministic.
    verbose
        Log one line per step.
    callbacks
        Functions called with an event record per step.

    Attributes
    ----------
    embedding_
        ``(n_samples, n_components)`` coordinates, centred, in units of the features. There is no rule for further rows.
    objective_, dual_gap_
        Value at the kernel returned, and {gap}.
    eigenvectors_, eigenvalues_
        ``(n_samples, rank)`` and ``(rank,)`` of the kernel, in units of ``unit_``.
    map_share_
        Share of the trace of the kernel in the coordinates of the map.
    edges_
        ``(n_edges, 2)`` of the neighbour graph.
    unit_, cap_, cap_used_
        Mean squared distance of neighbours, the cap, and how much of it is used.
    n_iter_, converged_, history_
        Steps, whether the fit ended by itself, and one array per figure over the steps.

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), section 3.5.
"""

SQUARES = """    C
        Weight of the squared errors of squared distances of neighbours, in units of their mean.
"""


class _Embedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """What the three share."""

    _is_classifier = False

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 5,
        graph: str = "mutual",
        C: float = 1.0,
        B: float | None = None,
        tol: float = 1e-4,
        max_iter: int = 200,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
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

    @property
    def _precomputed(self) -> bool:
        return False

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the map of some rows.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``: an array, a sparse matrix, a Dask array, or a block store.
        y
            Not used.

        Raises
        ------
        ValueError
            A parameter out of range, data that are not finite, fewer than three samples, no two that are neighbours of each other.
        """
        return self._learn(X, y)

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Learn the map and return ``embedding_``, ``(n_samples, n_components)``."""
        return self.fit(X, y).embedding_

    def _learn(self, X: Any, y: Any) -> Self:
        config = self._config()
        data, _ = self._data(X)
        labels = self._labels(data, y)
        with fit_context(data, "sync", fan_out(self.callbacks, self.verbose), seed_of(self.random_state)) as ctx:
            loop = build_loop(config, data, labels, ctx, warn_user)
            outcome = run_loop(loop, ctx, keep=False)
            self._set_model(model_of(config, loop, outcome.state, ctx))
        self._set_history(outcome.history)
        self._warn_unfinished(self.converged_, f"max_iter={config.max_iter} ended the fit before tol={config.tol:g} was reached")
        return self

    def _labels(self, data: Any, y: Any) -> Labels | None:
        return None

    def _set_model(self, model: Any) -> None:
        self.model_: SpectralModel = model
        figures = model.figures
        self.embedding_, self.edges_ = model.arrays["scores"], model.arrays["edges"]
        self.eigenvectors_, self.eigenvalues_ = model.eigenvectors, model.eigenvalues
        self.objective_, self.dual_gap_ = figures["objective"], figures["gap"]
        self.map_share_, self.unit_ = figures["map_share"], figures["unit"]
        self.cap_, self.cap_used_ = figures["cap"], figures["cap_used"]
        self.n_iter_, self.converged_ = int(figures["iterations"]), bool(figures["converged"])
        self._n_features_out = self.embedding_.shape[1]

    @classmethod
    def from_model(cls, model: Any, params: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Self:
        """Return the fitted estimator of a saved model."""
        estimator = cls(**json.loads(model.config_json))
        estimator._set_model(model)
        estimator._set_history(list(history))
        return estimator


@documented(
    GRAPH + SQUARES,
    CAPPED.format(tol="Relative duality gap at which the fit ends.", steps="Newton steps", gap="how far it is from the optimum at most"),
)
class ColoredMVU(_Embedding):
    r"""A map that keeps the distances of neighbours and is ordered by labels: coloured maximum variance unfolding.

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} KK \le B} -\mathrm{tr}(H Y Y' H K)
        + \frac{C}{2} \sum_{(i,j) \in E} (d_{ij}^2 - K_{ii} - K_{jj} + 2 K_{ij})^2

    over the kernel matrix, H centring, Y with a column per class (or the standardised real target), zero for rows without a label;
    coordinates are the leading eigenvectors of K by the roots of their eigenvalues. The map sees the labels: to judge it hide those it is
    judged by.
    """

    _config_type = ColoredMVUConfig

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the map of some rows.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``: an array, a sparse matrix, a Dask array, or a block store.
        y
            ``(n_samples,)`` classes or real numbers; a block store may hold them. Rows without a label: -1 among integers (but -1 and +1
            alone are two classes), NaN among real numbers, ``None`` among others.

        Raises
        ------
        ValueError
            A parameter out of range, data that are not finite, fewer than three samples, no two that are neighbours of each other, no two
            different labels.
        """
        return self._learn(X, y)

    def _labels(self, data: Any, y: Any) -> Labels | None:
        if y is None and not hasattr(data, "has_table"):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if y is None and not data.has_table("y"):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = self._stored_target(data) if y is None else np.asarray(in_memory(y, "y"))
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.shape != (data.n_rows,):
            raise ValueError(f"y has shape {y.shape}, the data has {data.n_rows} rows: inconsistent numbers of samples")
        if y.dtype.kind == "f" and np.isinf(y).any():
            raise ValueError("y holds infinity")
        return labels_of(y)


@documented(
    GRAPH + SQUARES,
    CAPPED.format(
        tol="Relative decrease of the objective, by a convex problem solved to a tenth of it, at which the fit ends.",
        steps="Convex problems",
        gap="the certified gap of the last convex problem",
    ),
)
class MinimumVolumeEmbedding(_Embedding):
    r"""A map that keeps the distances of neighbours and spends little of them outside of its coordinates: minimum volume embedding.

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} KK \le B} -\sum_{r \le d} \lambda_r(K) + \sum_{r > d} \lambda_r(K)
        + \frac{C}{2} \sum_{(i,j) \in E} (d_{ij}^2 - K_{ii} - K_{jj} + 2 K_{ij})^2

    with d coordinates. Not convex: the leading eigenvectors of K are held while a convex problem is solved, from those of the principal
    components on, and the objective never rises.
    """

    _config_type = MVEConfig


@documented(
    GRAPH
    + """    C
        Cost of the largest violation: one as large as the mean squared distance costs C times the best value without triples.
""",
    CAPPED.format(
        tol="Gap, relative to the objective and over all triples, at which the fit ends.",
        steps="Rounds of cutting planes",
        gap="how far it is from the optimum at most, over all triples",
    )
    .replace("With a small cap the map is crushed; ``cap_`` tells", "It only sizes the map; ``cap_`` tells")
    .replace(
        "    objective_,", "    worst_violation_\n        Largest ``d_ik - d_ij`` over all triples, in units of ``unit_``.\n    objective_,"
    ),
)
class StructurePreservingEmbedding(_Embedding):
    r"""A map of a graph in which no neighbour is farther than a stranger: structure preserving embedding.

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} KK \le B, \; \xi \ge 0} -\mathrm{tr}(H W H K) + C \xi, \qquad d_{ik}^2 \le d_{ij}^2 + \xi

    for all rows i, their neighbours k and all other rows j; W is the adjacency matrix of the neighbour graph, and d the distances under K.
    Only the graph counts, not how far neighbours are. The cap lets K have many dimensions: ``map_share_`` tells how much the map shows.
    """

    _config_type = SPEConfig

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 5,
        graph: str = "mutual",
        C: float = 1.0,
        B: float | None = None,
        tol: float = 1e-3,
        max_iter: int = 100,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
    ) -> None:
        super().__init__(n_components, n_neighbors, graph, C, B, tol, max_iter, cluster, random_state, verbose, callbacks)

    def _set_model(self, model: Any) -> None:
        super()._set_model(model)
        self.worst_violation_ = model.figures["worst_violation"]
