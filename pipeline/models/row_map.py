"""Coordinates of unseen rows under a learnt kernel or map (:mod:`gramplane.kernels.spectral.row_map`), as a kernel model."""

from __future__ import annotations

import numpy as np

from ...kernels.grams.blocks import gram_block
from ...kernels.grams.normalization import Normalization
from ...kernels.grams.spec import KernelSpec
from ...kernels.spectral.row_map import RowMap, fit_row_map
from ...storage import BlockStore, DataError, MemoryBlocks
from ..core.memory import Item, check_memory
from ..core.resources import Resources
from ..grams.widths import MedianWidths
from ..inputs.labels import Inputs
from ..records.config import MethodConfig
from .build import data_fields
from .kernel import KernelModel
from .spectral import SpectralModel


def row_map_items(n: int, n_cols: int, k: int) -> tuple[Item, ...]:
    """Return the memory that the map of n rows with k coordinates takes while it is fitted."""
    matrices = "Gaussian kernel of the training rows, its eigenvectors and work space", 32 * n * n
    return (matrices, ("training rows and their coordinates", 16 * n * n_cols + 40 * n * k))


def fit_kernel_map(
    name: str, config: MethodConfig, learnt: SpectralModel, data: BlockStore | MemoryBlocks, resources: Resources, *, plan: bool = False
) -> KernelModel:
    """Return the model whose decision values are the coordinates of a row. ``name`` is the method's; with ``plan``, nothing is fitted.

    Raises MemoryBoundExceeded if the matrices of all training rows do not fit; DataError if there is nothing to learn from: the learnt
    kernel is zero, or the rows are all equal, as for a fit on a graph alone.
    """
    n, points = data.n_rows, learnt.predictions()
    check_memory(f"{name}: coordinates of unseen rows", row_map_items(n, data.n_cols, points.shape[1]), resources, "fewer training rows")
    widths = MedianWidths(data)
    if widths.square() is None:
        raise DataError(
            f"{name}: the training rows are all equal, as in a fit on a graph alone, so unseen rows cannot be compared with them; fit on "
            "rows with features, or on old and new rows together",
            data.url,
        )
    if not points.shape[1]:
        raise DataError(f"{name}: the learnt kernel is zero, so rows have no coordinates; raise C", data.url)
    spec = KernelSpec("rbf", (("gamma", widths.gamma(None)),))
    fields = data_fields(config, Inputs(data, np.zeros(n), None), [spec], n, np.arange(n))
    found = RowMap(np.zeros(points.shape), 0.0, 0.0) if plan else fit_row_map(gram_block([spec], fields["rows"])[0], points)
    return KernelModel(
        theta=np.ones((points.shape[1], 1)),
        used=np.zeros(1, np.int64),
        norms=(Normalization(1.0, None, 0.0, None),),
        beta=np.ascontiguousarray(found.coef.T),
        intercepts=np.zeros(points.shape[1]),
        figures={"ridge": found.ridge, "transform_error": found.error},
        **fields,
    )
