"""The machine at a point of the kernel selection path as a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.normalization import Normalization
from ....storage import BlockStore, MemoryBlocks
from ...grams.given import GivenGrams
from ...inputs.labels import Inputs
from ...models.kernel import ROWS, FeatureKernels, KernelModel, spans
from ...passes.blocks import scale_of
from ...passes.scaling import scaled
from .config import KTAPathConfig
from .machines import PathPoint


def machine_model(
    config: KTAPathConfig, inputs: Inputs, arrays: Mapping[str, np.ndarray], figures: Mapping[str, float], point: PathPoint
) -> KernelModel:
    """Return the machine at a point as a model: of the support rows only the columns of active features. ``arrays`` (traces and widths
    among them) and ``figures`` are saved with it.
    """
    data, active, traces = inputs.data, point.active, arrays["traces"][point.active]
    ids, precomputed = np.flatnonzero(np.any(point.beta != 0, axis=0)), isinstance(data, GivenGrams)
    if precomputed:
        theta = np.zeros((len(point.beta), len(arrays["traces"])))
        theta[:, active] = point.share
        norms = tuple(Normalization(1.0 / float(trace), None, 0.0, None) for trace in traces)
        fields: dict[str, Any] = {"theta": theta, "used": active, "norms": norms, "rows": None}
    else:
        fields = {"theta": np.tile(point.share, (len(point.beta), 1)), "used": np.arange(len(active)), "norms": ()}
        fields |= {"rows": chosen_rows(data, ids, active), "features": FeatureKernels(active, arrays["widths"][active], 1.0 / traces)}
        fields |= {"scale": scale_of(data, active), "row_scaled": data.scale.kind == "unit-row"}
    return KernelModel(
        params_json=config.model_dump_json(),
        classes_json=json.dumps(list(inputs.classes or ())),
        kernels_json="[]",
        n_train=int(data.n_rows),
        n_features=int(data.n_rows if precomputed else data.n_cols),
        precomputed=precomputed,
        support_ids=ids,
        texts=(),
        beta=np.ascontiguousarray(point.beta[:, ids]),
        intercepts=point.bias,
        figures={**figures, "p": point.p, "gap": point.gap, "objective": point.objective},
        arrays=dict(arrays),
        **fields,
    )


def weights_along(model: KernelModel) -> sp.csr_array:
    """Return the weights at the points of the path, ``(points, k)``."""
    arrays = model.arrays
    indptr = np.concatenate([[0], np.cumsum(arrays["n_active"])])
    shape = (len(arrays["p_grid"]), len(arrays["alignments"]))
    return sp.csr_array((arrays["path_values"], arrays["path_indices"], indptr), shape=shape)


def chosen_rows(data: BlockStore | MemoryBlocks, ids: np.ndarray, columns: np.ndarray) -> np.ndarray | sp.csr_array:
    """Return some rows of some columns with scaling applied; sparse if the data is."""
    parts = []
    for lo, hi in spans(data.n_rows, ROWS):
        inside = ids[(ids >= lo) & (ids < hi)]
        if len(inside):
            factor = None if data.scale.row_factor is None else data.scale.row_factor[lo:hi]
            part = scaled(data.columns(columns, (lo, hi)), scale_of(data, columns), factor)
            parts.append((sp.csr_array(part) if sp.issparse(part) else part)[inside - lo])
    if not parts:
        return np.zeros((0, len(columns)))
    return sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)
