"""The images of one query: how they look, what they are tagged with, which are visual neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ....kernels.ranking.tags import count_tags_of_rows, name_rows, tag_vectors, untagged_rows
from ....kernels.spectral.neighbors import nearest_rows, neighbour_graph
from ....storage import BlockStore, MemoryBlocks
from ....storage.errors import Matrix, UserData
from ...grams.sources import all_rows
from ...passes.blocks import scale_of
from .config import RankerConfig


@dataclass(frozen=True)
class Images:
    """The images of one query."""

    rows: Matrix  # (n, d) visual features, scaling applied
    vectors: sp.csr_array  # (n, V) of tags
    pairs: np.ndarray  # (m, 2) visual neighbours, i < j
    distances: np.ndarray  # (m,) their squared distances over the mean
    mean: float  # squared distance of two images; 1 where all look the same
    untagged: int  # images without a tag

    @property
    def n(self) -> int:
        """Number of images."""
        return self.rows.shape[0]


def read_images(config: RankerConfig, data: BlockStore | MemoryBlocks, tags: UserData) -> Images:
    """Return the images of a data set with their tags.

    Raises ValueError: fewer than two images, tags that are not one for each image or tell none from another, images without tags unless
    they may be.
    """
    n = data.n_rows
    if n < 2:
        raise ValueError(f"n_samples={n}: a ranking needs at least 2 images")
    vectors, n_untagged = read_tags(config, tags, n)
    return compare_images(config, all_rows(data), vectors, n_untagged)


def compare_images(config: RankerConfig, rows: Matrix, vectors: sp.csr_array, n_untagged: int) -> Images:
    """Return images of features ``(n, d)`` and tag vectors, with their visual neighbours. Raises ValueError: features that overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = mean_distance(rows)
    if not np.isfinite(mean):
        raise ValueError("visual features are so large that squared distances overflow; scale them")
    pairs = neighbour_pairs(rows, min(config.n_neighbors, rows.shape[0] - 1), config.graph)
    return Images(rows, vectors, pairs, pair_squares(rows, pairs) / mean, mean, n_untagged)


def read_tags(config: RankerConfig, tags: UserData, n: int, numbers: np.ndarray | None = None) -> tuple[sp.csr_array, int]:
    """Return tag vectors ``(n, V)``, and the number of images without a tag; errors name images by ``numbers`` ``(n,)``, their rows.

    Raises ValueError: not one entry for each image, an image without a tag where they are refused, or tags that tell nothing.
    """
    counts, _ = count_tags_of_rows(tags)
    n_lines = len(counts.indptr) - 1
    if n_lines != n:
        raise ValueError(f"tags: {n_lines} rows, the data has {n}; there must be one for each image")
    untagged = untagged_rows(counts)
    if len(untagged) and config.untagged == "raise":
        names = name_rows(untagged if numbers is None else numbers[untagged])
        raise ValueError(f"tags: no tag in row {names}; untagged='zero' ranks such images by their looks alone")
    vectors = tag_vectors(counts, config.min_images)
    if not vectors.nnz:
        few = "" if config.min_images == 1 else f" of at least min_images={config.min_images} images"
        raise ValueError(f"tags: no tag{few} tells one image from another; a tag of all images carries no information")
    return vectors, len(untagged)


def mean_distance(rows: Matrix) -> float:
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


def neighbour_pairs(rows: Matrix, k: int, graph: str) -> np.ndarray:
    """Return pairs ``i < j`` of the graph of nearest neighbours, ``(m, 2)``, sorted."""
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
    """Return ``(n, d)`` images, and how those to come are scaled, as arrays of a model."""
    scale = scale_of(data, np.arange(data.n_cols))
    arrays = {"scale_factor": scale.factor, "scale_shift": scale.shift}
    if sp.issparse(rows):
        parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": np.array(rows.shape)}
        arrays |= {f"images_{name}": array for name, array in parts.items()}
    else:
        arrays |= {"images": rows}
    return {name: array for name, array in arrays.items() if array is not None}
