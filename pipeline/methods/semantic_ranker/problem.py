"""The problem of a ranking: from images to what one eigendecomposition evaluates."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ....kernels.eigen.operator import SymmetricOperator
from ....kernels.eigen.positive_part import normalized_laplacian
from ....kernels.jit import one_thread
from ....kernels.spectral.neighbors import nearest_rows, neighbour_graph, smooth_basis
from ....kernels.spectral.pair_losses import DistanceTerms
from ....kernels.spectral.problem import SpectralProblem
from ....storage.errors import Matrix
from .config import RankerConfig
from .images import Images


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
