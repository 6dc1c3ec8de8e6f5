"""From images to a ranking: the problem of the kernel, the random walk on it, and what is said of both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ....kernels.eigen.operator import SymmetricOperator
from ....kernels.eigen.positive_part import normalized_laplacian
from ....kernels.jit import one_thread
from ....kernels.ranking.random_walk import Scores, walk_on_factor, walk_scores
from ....kernels.spectral.dual_ascent import SpectralState, advance_ascent, begin_ascent, kernel_at, relative_gap
from ....kernels.spectral.neighbors import nearest_rows, neighbour_graph, smooth_basis
from ....kernels.spectral.pair_losses import DistanceTerms
from ....kernels.spectral.problem import Evaluation, SpectralProblem, cap_used
from ....storage.errors import Matrix
from .config import RankerConfig
from .images import Images


class RankedQuery(NamedTuple):
    """The images of one query, ranked: what certifies it, and its figures by name."""

    scores: np.ndarray  # (n,)
    pairs: np.ndarray  # (e, 2) int32, images by their place in the query
    alpha: np.ndarray  # (e,)
    figures: dict[str, float]
    stop: str


def build_problem(config: RankerConfig, images: Images, seed: int = 0) -> SpectralProblem:
    """Return problem (6.2) on some images."""
    n = images.n
    target = SymmetricOperator(sp.csr_array((n, n)), factor=images.vectors, centre=True)
    terms = DistanceTerms(n, images.pairs[:, 0], images.pairs[:, 1], -1.0)
    basis = None if config.base is None else centred_basis(images.rows, config)
    cap = float(n) if config.B is None else config.B
    return SpectralProblem(target, terms, -images.distances, "squared_hinge", config.C, B=cap, basis=basis, seed=seed)


def centred_basis(rows: Matrix, config: RankerConfig) -> np.ndarray:
    """Return the smoothest functions of the visual neighbour graph, ``(n, r)`` orthonormal columns of sum zero."""
    n = rows.shape[0]
    graph = neighbour_graph(nearest_rows(rows, min(config.n_neighbors, n - 1)).ids, "union")
    basis = smooth_basis(normalized_laplacian(graph), min(config.base or n, n))
    # A kernel of (6.2) has K 1 = 0; on functions of sum zero it has that here, too.
    with one_thread():
        left, values, _ = np.linalg.svd(basis - basis.mean(axis=0), full_matrices=False)
    return np.ascontiguousarray(left[:, values > 1e-8])


def walk_on_kernel(config: RankerConfig, kernel: Evaluation, prior: np.ndarray, *, in_memory: bool = True) -> Scores:
    """Return the scores of images by the walk on a kernel; the bits are those of ``in_memory``, which holds the matrix, in any case."""
    factor = kernel.part.vectors * np.sqrt(kernel.spectrum)
    return walk_scores(walk_on_factor(factor, config.diagonal, in_memory=in_memory), prior, config.damping, config.walk_tol)


def ranking_figures(
    images: Images, problem: SpectralProblem, state: SpectralState, kernel: Evaluation, scores: Scores, *, row_scaled: bool
) -> dict[str, float]:
    """Return the figures of a ranking: of the ascent, of the images' looks, of the walk."""
    ascent = {"objective": state.best_primal, "gap": state.gap, "iterations": state.iteration, "converged": state.converged}
    looks = {"mean_distance": images.mean, "row_scaled": row_scaled, "untagged": images.untagged}
    ranking = {"walk_steps": scores.steps, "walk_error": scores.error, "score_spread": np.ptp(scores.values) * len(scores.values)}
    figures = ascent | {"cap_used": cap_used(problem, kernel)} | looks | ranking
    return {name: float(value) for name, value in figures.items()}


def rank_query(config: RankerConfig, images: Images, prior: np.ndarray, seed: int) -> RankedQuery:
    """Return the ranking of the images of one query: the bits of a fit of that query alone."""
    problem = build_problem(config, images, seed)
    state = begin_ascent(problem, np.zeros(len(images.pairs)))
    while state.stop is None:
        state = advance_ascent(problem, state, tol=config.tol, max_iter=config.max_iter)
    kernel = kernel_at(problem, state, tol=config.tol)
    scores = walk_on_kernel(config, kernel, prior)
    figures = ranking_figures(images, problem, state, kernel, scores, row_scaled=False)
    figures |= {"relative_gap": relative_gap(problem, state), "rank": float(len(kernel.spectrum))}
    return RankedQuery(scores.values, images.pairs.astype(np.int32), state.best_alpha, figures, str(state.stop))
