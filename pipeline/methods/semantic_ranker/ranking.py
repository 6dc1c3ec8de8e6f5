"""Ranking of the images of one query: visual features, tags, the optimisation problem that learns the kernel, and the random walk on the
kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ....kernels.eigen.operator import SymmetricOperator
from ....kernels.eigen.positive_part import normalized_laplacian
from ....kernels.jit import one_thread
from ....kernels.ranking.random_walk import Scores, walk_on_factor, walk_scores
from ....kernels.ranking.tags import count_tags_of_rows, name_rows, tag_vectors, untagged_rows
from ....kernels.spectral.dual_ascent import SpectralState, advance_ascent, begin_ascent, kernel_at, relative_gap
from ....kernels.spectral.neighbors import nearest_rows, neighbour_graph, smooth_basis
from ....kernels.spectral.pair_losses import DistanceTerms
from ....kernels.spectral.problem import Evaluation, SpectralProblem, cap_used
from ....storage import BlockStore, MemoryBlocks
from ....storage.errors import Matrix, UserData
from ...grams.sources import all_rows
from ...passes.blocks import scale_of
from .config import RankerConfig


@dataclass(frozen=True)
class Images:
    """Visual features, tag vectors and neighbours of the images of one query."""

    rows: Matrix  # (n, d) visual features, scaling applied
    vectors: sp.csr_array  # (n, V) of tags
    pairs: np.ndarray  # (m, 2) visual neighbours, i < j
    distances: np.ndarray  # (m,) their squared distances over the mean
    mean: float  # squared distance of two images; 1 where all look the same
    untagged: int  # images without a tag

    @property
    def n(self) -> int:
        return self.rows.shape[0]


def read_images(config: RankerConfig, data: BlockStore | MemoryBlocks, tags: UserData) -> Images:
    """Return the images of a data set with their tags.

    Raises ValueError if there are fewer than two images, if ``tags`` does not have one entry per image, if all images have the same tags,
    or if an image has no tag and ``untagged`` does not allow this.
    """
    n = data.n_rows
    if n < 2:
        raise ValueError(f"n_samples={n}: a ranking needs at least 2 images")
    vectors, n_untagged = read_tags(config, tags, n)
    return compare_images(config, all_rows(data), vectors, n_untagged)


def compare_images(config: RankerConfig, rows: Matrix, vectors: sp.csr_array, n_untagged: int) -> Images:
    """Return images with features ``(n, d)``, tag vectors, and visual neighbours. Raises ValueError for features that overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = mean_distance(rows)
    if not np.isfinite(mean):
        raise ValueError("visual features are so large that squared distances overflow; scale them")
    pairs = neighbour_pairs(rows, min(config.n_neighbors, rows.shape[0] - 1), config.graph)
    return Images(rows, vectors, pairs, pair_squares(rows, pairs) / mean, mean, n_untagged)


def read_tags(config: RankerConfig, tags: UserData, n: int, numbers: np.ndarray | None = None) -> tuple[sp.csr_array, int]:
    """Return tag vectors ``(n, V)``, and the number of images without a tag. Messages refer to images by ``numbers`` ``(n,)``, their row
    numbers.

    Raises ValueError if there is not one entry for each image, for an image without a tag if ``untagged`` rejects them, and for tags that
    are the same for all images.
    """
    counts, _ = count_tags_of_rows(tags)
    n_lines = len(counts.indptr) - 1
    if n_lines != n:
        raise ValueError(f"tags: {n_lines} rows, the data has {n}; there must be one for each image")
    untagged = untagged_rows(counts)
    if len(untagged) and config.untagged == "raise":
        names = name_rows(untagged if numbers is None else numbers[untagged])
        raise ValueError(f"tags: no tag in row {names}; set untagged='zero' to rank such images by their visual features alone")
    vectors = tag_vectors(counts, config.min_images)
    if not vectors.nnz:
        few = "" if config.min_images == 1 else f" of at least min_images={config.min_images} images"
        raise ValueError(f"tags: no tag{few} distinguishes images; a tag that all images have carries no information")
    return vectors, len(untagged)


def mean_distance(rows: Matrix) -> float:
    """Return the mean of ``||x_i - x_j||^2`` over all pairs ``i < j``; 1 if all rows are equal."""
    n, centre = rows.shape[0], np.asarray(rows.mean(axis=0)).ravel()
    # Sums of squares around the mean: large offsets cancel.
    if sp.issparse(rows):
        total = float(rows.multiply(rows).sum() - n * (centre @ centre))
    else:
        total = float(np.square(rows - centre).sum())
    # What is left of equal rows is rounding.
    rounding = 1e-14 * n * rows.shape[1] * np.square(np.abs(rows).max())
    return 1.0 if total <= rounding < np.inf else 2.0 * total / (n - 1)


def neighbour_pairs(rows: Matrix, k: int, graph: str) -> np.ndarray:
    """Return the pairs ``i < j`` of the nearest-neighbour graph, ``(m, 2)``, sorted."""
    upper = sp.coo_array(sp.triu(neighbour_graph(nearest_rows(rows, k).ids, graph), 1))
    pairs = np.stack([upper.row, upper.col], axis=1).astype(np.int64)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def pair_squares(rows: Matrix, pairs: np.ndarray) -> np.ndarray:
    """Return squared distances of pairs of rows, ``(m,)``."""
    if not len(pairs):
        return np.zeros(0)
    difference = rows[pairs[:, 0]] - rows[pairs[:, 1]]
    return np.asarray((difference.multiply(difference) if sp.issparse(difference) else difference * difference).sum(axis=1)).ravel()


def stored_images(rows: Matrix, data: BlockStore | MemoryBlocks) -> dict[str, np.ndarray]:
    """Return the images ``(n, d)``, and the scaling for unseen images, as arrays that a model stores."""
    scale = scale_of(data, np.arange(data.n_cols))
    arrays = {"scale_factor": scale.factor, "scale_shift": scale.shift}
    if sp.issparse(rows):
        parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": np.array(rows.shape)}
        arrays |= {f"images_{name}": array for name, array in parts.items()}
    else:
        arrays |= {"images": rows}
    return {name: array for name, array in arrays.items() if array is not None}


class RankedQuery(NamedTuple):
    """The ranked images of one query, with their certificate and the recorded quantities by name."""

    scores: np.ndarray  # (n,)
    pairs: np.ndarray  # (e, 2) int32, images by their place in the query
    alpha: np.ndarray  # (e,)
    figures: dict[str, float]
    stop: str


def build_problem(config: RankerConfig, images: Images, seed: int = 0) -> SpectralProblem:
    """Return problem (6.2) for the given images."""
    n = images.n
    target = SymmetricOperator(sp.csr_array((n, n)), factor=images.vectors, centre=True)
    terms = DistanceTerms(n, images.pairs[:, 0], images.pairs[:, 1], -1.0)
    basis = None if config.base is None else centred_basis(images.rows, config)
    cap = float(n) if config.B is None else config.B
    return SpectralProblem(target, terms, -images.distances, "squared_hinge", config.C, B=cap, basis=basis, seed=seed)


def centred_basis(rows: Matrix, config: RankerConfig) -> np.ndarray:
    """Return the smoothest functions of the visual neighbour graph, ``(n, r)`` orthonormal columns that sum to zero."""
    n = rows.shape[0]
    graph = neighbour_graph(nearest_rows(rows, min(config.n_neighbors, n - 1)).ids, "union")
    basis = smooth_basis(normalized_laplacian(graph), min(config.base or n, n))
    # A kernel of (6.2) has K 1 = 0; on functions of sum zero it has that here, too.
    with one_thread():
        left, values, _ = np.linalg.svd(basis - basis.mean(axis=0), full_matrices=False)
    return np.ascontiguousarray(left[:, values > 1e-8])


def walk_on_kernel(config: RankerConfig, kernel: Evaluation, prior: np.ndarray, *, in_memory: bool = True) -> Scores:
    """Return the scores of images by the walk on a kernel. ``in_memory``: form the kernel matrix; the scores are bit-identical if it is
    not formed.
    """
    factor = kernel.part.vectors * np.sqrt(kernel.spectrum)
    return walk_scores(walk_on_factor(factor, config.diagonal, in_memory=in_memory), prior, config.damping, config.walk_tol)


def ranking_figures(
    images: Images, problem: SpectralProblem, state: SpectralState, kernel: Evaluation, scores: Scores, *, row_scaled: bool
) -> dict[str, float]:
    """Return the recorded quantities of a ranking: of the ascent, of the visual features, and of the walk."""
    ascent = {"objective": state.best_primal, "gap": state.gap, "iterations": state.iteration, "converged": state.converged}
    looks = {"mean_distance": images.mean, "row_scaled": row_scaled, "untagged": images.untagged}
    ranking = {"walk_steps": scores.steps, "walk_error": scores.error, "score_spread": np.ptp(scores.values) * len(scores.values)}
    figures = ascent | {"cap_used": cap_used(problem, kernel)} | looks | ranking
    return {name: float(value) for name, value in figures.items()}


def rank_query(config: RankerConfig, images: Images, prior: np.ndarray, seed: int) -> RankedQuery:
    """Return the ranking of the images of one query, bit-identical to a fit of that query alone."""
    problem = build_problem(config, images, seed)
    state = begin_ascent(problem, np.zeros(len(images.pairs)))
    while state.stop is None:
        state = advance_ascent(problem, state, tol=config.tol, max_iter=config.max_iter)
    kernel = kernel_at(problem, state, tol=config.tol)
    scores = walk_on_kernel(config, kernel, prior)
    figures = ranking_figures(images, problem, state, kernel, scores, row_scaled=False)
    figures |= {"relative_gap": relative_gap(problem, state), "rank": float(len(kernel.spectrum))}
    return RankedQuery(scores.values, images.pairs.astype(np.int32), state.best_alpha, figures, str(state.stop))
