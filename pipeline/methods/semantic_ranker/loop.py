r"""Re-ranking the images of a query by a kernel learnt from looks and tags (Zhuang, thesis, 2011, chapter 6).

The kernel agrees with the tags as far as visual neighbours allow:

.. math::

    \min_{K \succeq 0, \; \mathrm{tr} KK \le B} -\mathrm{tr}(K H K_t H)
    + \frac{C}{2} \sum_{(i,j) \in E} \max(0, K_{ii} + K_{jj} - 2 K_{ij} - d_{ij}^2)^2 \quad (6.2)

with tag vectors T, :math:`K_t = T T'`, pairs E of visual neighbours and their squared distances. One step is one eigendecomposition of the
dual ascent that all kernels known by their spectrum share. A random walk on K then gives the scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.eigen.operator import SymmetricOperator
from ....kernels.eigen.positive_part import normalized_laplacian
from ....kernels.jit import one_thread
from ....kernels.ranking.tags import counts_of, some_rows, tag_vectors, untagged_rows
from ....kernels.spectral.dual_ascent import SpectralState, advance, begin, kernel_at, progress_figures
from ....kernels.spectral.neighbors import nearest_rows, neighbour_graph, smooth_basis
from ....kernels.spectral.pair_losses import DistanceTerms
from ....kernels.spectral.problem import Evaluation, SpectralProblem
from ...grams.sources import all_rows
from ...loops.protocol import Step
from ...records.context import RunContext
from .config import RankerConfig


@dataclass(frozen=True)
class Images:
    """The images of one query.

    Attributes
    ----------
    rows
        ``(n, d)`` visual features, dense or CSR, scaling applied.
    vectors
        ``(n, V)`` tag vectors.
    pairs
        ``(m, 2)`` visual neighbours, ``i < j``.
    distances
        ``(m,)`` their squared distances over ``mean``.
    mean
        Mean squared distance of two images; 1 where all look the same.
    untagged
        Images without a tag.
    """

    rows: Any
    vectors: sp.csr_array
    pairs: np.ndarray
    distances: np.ndarray
    mean: float
    untagged: int

    @property
    def n(self) -> int:
        """Number of images."""
        return self.rows.shape[0]


def images_of(config: RankerConfig, data: Any, tags: Any) -> Images:
    """Return the images of a data set with their tags.

    Raises
    ------
    ValueError
        Fewer than two images, tags that are not one for each image or tell none from another, images without tags unless they may be.
    """
    n = data.n_rows
    if n < 2:
        raise ValueError(f"n_samples={n}: a ranking needs at least 2 images")
    if data.n_cols == 0:
        raise ValueError("images need visual features, strings have none")
    vectors, untagged = checked_vectors(config, tags, n)
    rows = all_rows(data)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = mean_distance(rows)
    if not np.isfinite(mean):
        raise ValueError("visual features are so large that squared distances overflow; scale them")
    pairs = neighbour_pairs(rows, min(config.n_neighbors, n - 1), config.graph)
    return Images(rows, vectors, pairs, pair_squares(rows, pairs) / mean, mean, untagged)


def checked_vectors(config: RankerConfig, tags: Any, n: int) -> tuple[sp.csr_array, int]:
    """Return tag vectors ``(n, V)``, and the number of images without a tag."""
    counts, _ = counts_of(tags)
    given = len(counts.indptr) - 1
    if given != n:
        raise ValueError(f"tags: {given} rows, the data has {n}; there must be one for each image")
    bare = untagged_rows(counts)
    if len(bare) and config.untagged == "raise":
        raise ValueError(f"tags: no tag in row {some_rows(bare)}; untagged='zero' ranks such images by their looks alone")
    vectors = tag_vectors(counts, config.min_images)
    if not vectors.nnz:
        few = "" if config.min_images == 1 else f" of at least min_images={config.min_images} images"
        raise ValueError(f"tags: no tag{few} tells one image from another; a tag of all images carries no information")
    return vectors, len(bare)


def mean_distance(rows: Any) -> float:
    """Return the mean of ``||x_i - x_j||^2`` over all pairs ``i < j``; 1 where all rows are equal."""
    n, centre = rows.shape[0], np.asarray(rows.mean(axis=0)).ravel()
    # Sums of squares around the mean: large offsets cancel.
    if sp.issparse(rows):
        total = float(rows.multiply(rows).sum() - n * (centre @ centre))
    else:
        total = float(np.square(rows - centre).sum())
    # What is left of equal rows is rounding.
    rounding = 1e-14 * n * rows.shape[1] * np.square(np.abs(rows).max())
    return 1.0 if total <= rounding < np.inf else 2.0 * total / (n - 1)


def neighbour_pairs(rows: Any, k: int, graph: str) -> np.ndarray:
    """Return pairs ``i < j`` of the graph of nearest neighbours, ``(m, 2)``, sorted."""
    found = sp.coo_array(sp.triu(neighbour_graph(nearest_rows(rows, k).ids, graph), 1))
    pairs = np.stack([found.row, found.col], axis=1).astype(np.int64)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def pair_squares(rows: Any, pairs: np.ndarray) -> np.ndarray:
    """Return squared distances of pairs of rows, ``(m,)``."""
    if not len(pairs):
        return np.zeros(0)
    apart = rows[pairs[:, 0]] - rows[pairs[:, 1]]
    return np.asarray((apart.multiply(apart) if sp.issparse(apart) else apart * apart).sum(axis=1)).ravel()


def problem_of(config: RankerConfig, images: Images, seed: int = 0) -> SpectralProblem:
    """Return problem (6.2) on some images."""
    n = images.n
    return SpectralProblem(
        target=SymmetricOperator(sp.csr_array((n, n)), factor=images.vectors, centre=True),
        terms=DistanceTerms(n, images.pairs[:, 0], images.pairs[:, 1], -1.0),
        goal=-images.distances,
        loss="squared_hinge",
        C=config.C,
        B=float(n) if config.B is None else config.B,
        basis=None if config.base is None else centred_basis(images.rows, config),
        seed=seed,
    )


def centred_basis(rows: Any, config: RankerConfig) -> np.ndarray:
    """Return the smoothest functions of the visual neighbour graph, ``(n, r)`` orthonormal columns of sum zero."""
    n = rows.shape[0]
    graph = neighbour_graph(nearest_rows(rows, min(config.n_neighbors, n - 1)).ids, "union")
    found = smooth_basis(normalized_laplacian(graph), min(config.base or n, n))
    # A kernel of (6.2) has K 1 = 0; on functions of sum zero it has that here, too.
    with one_thread():
        left, values, _ = np.linalg.svd(found - found.mean(axis=0), full_matrices=False)
    return np.ascontiguousarray(left[:, values > 1e-8])


class RankerLoop:
    """The ascent on the dual of (6.2).

    Parameters
    ----------
    config
        Parameters.
    images
        What is ranked.
    seed
        Of the eigensolver.
    """

    state_type = SpectralState

    def __init__(self, config: RankerConfig, images: Images, seed: int) -> None:
        self.config, self.images = config, images
        self.problem = problem_of(config, images, seed)

    def init(self, ctx: RunContext) -> SpectralState:
        """Return the state before the first evaluation: no distance counts."""
        return begin(self.problem, np.zeros(len(self.images.pairs)))

    def step(self, state: SpectralState, ctx: RunContext) -> Step[SpectralState]:
        """Evaluate once, and move."""
        new = advance(self.problem, state, tol=self.config.tol, max_iter=self.config.max_iter)
        return Step(new, {**progress_figures(self.problem, new), "active_pairs": int(np.count_nonzero(new.best_alpha))})

    def learnt(self, state: SpectralState) -> Evaluation:
        """Return the kernel of least objective so far."""
        return kernel_at(self.problem, state, tol=self.config.tol)
