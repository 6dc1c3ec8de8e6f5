"""Builds models from the solutions of kernel machines, for one task or many: weights, coefficients, and the support rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from ...kernels.grams.normalization import Normalization
from ...kernels.target_unit import LABELS, TargetUnit
from ...storage import BlockStore, MemoryBlocks
from ..grams.given import GivenGrams
from ..grams.sources import TextRows, rows_of
from ..inputs.labels import Inputs
from ..inputs.tasks import TaskInputs
from ..passes.blocks import scale_of
from ..records.config import MethodConfig
from ..records.scale import FeatureScale
from .kernel import KernelModel, spans
from .task import TaskModel


class FittedKernels(Protocol):
    """The normalised kernels of a fit over its n rows."""

    specs: tuple[Any, ...]

    @property
    def n(self) -> int: ...

    @property
    def normalizations(self) -> list[Normalization]:
        """The normalisation of every kernel."""
        ...


def build_model(
    config: MethodConfig,
    inputs: Inputs,
    grams: FittedKernels,
    theta: np.ndarray,
    beta: np.ndarray,
    intercepts: np.ndarray,
    figures: dict[str, float],
    arrays: dict[str, np.ndarray] | None = None,
    *,
    unit: TargetUnit = LABELS,
) -> KernelModel:
    """Return the model with weights ``theta`` (n_machines, n_kernels) and coefficients ``beta`` (n_machines, n_samples).

    Solvers work on a numeric target in units of ``unit``. Coefficients, intercepts and figures are passed in these units, and converted to
    the original unit of the target.
    """
    used = np.flatnonzero(np.any(theta != 0, axis=0))
    ids, norms = _of_support(np.any(beta != 0, axis=0), [grams.normalizations[q] for q in used])
    return KernelModel(
        theta=theta,
        used=used,
        norms=norms,
        beta=np.ascontiguousarray(beta[:, ids] * unit.size),
        intercepts=unit.values(intercepts),
        figures=unit.figures(figures),
        arrays=arrays or {},
        **data_fields(config, inputs, grams.specs, grams.n, ids),
    )


def _of_support(rows: np.ndarray, norms: Sequence[Normalization]) -> tuple[np.ndarray, tuple[Normalization, ...]]:
    """Return the indices of the rows that a model needs as support rows, and the normalisations restricted to them. ``rows``: mask of the
    rows with a non-zero coefficient.
    """
    # The means of a test row run over all training rows, so that a centred kernel needs them all.
    ids = np.arange(len(rows)) if any(norm.row_mean is not None for norm in norms) else np.flatnonzero(rows)
    return ids, tuple(norm if norm.diag_root is None else replace(norm, diag_root=norm.diag_root[ids]) for norm in norms)


def data_fields(config: MethodConfig, inputs: Inputs, specs: Sequence[Any], n_train: int, ids: np.ndarray) -> dict[str, Any]:
    """Return the fields of a model for parameters, classes, kernels, training data and the support rows ``ids``."""
    precomputed = isinstance(inputs.data, GivenGrams)
    rows, texts = (None, ()) if precomputed else support_rows_of(inputs.data, ids)
    return {
        "params_json": config.model_dump_json(),
        "classes_json": json.dumps(None if inputs.classes is None else list(inputs.classes)),
        "kernels_json": json.dumps([spec.to_json() for spec in specs]),
        "n_features": int(inputs.data.n_cols),
        "n_train": n_train,
        "precomputed": precomputed,
        "support_ids": ids,
        "rows": rows,
        "texts": texts,
        **data_scaling(inputs.data),
    }


def data_scaling(data: Any) -> dict[str, Any]:
    """Return the fields of a model for the scaling of its features."""
    if getattr(data, "scale", None) is None or not data.n_cols:
        return {"scale": FeatureScale(), "row_scaled": False}
    return {"scale": scale_of(data, np.arange(data.n_cols)), "row_scaled": data.scale.kind == "unit-row"}


def support_rows_of(
    data: BlockStore | MemoryBlocks | TextRows, ids: np.ndarray
) -> tuple[np.ndarray | sp.csr_array | None, tuple[str, ...]]:
    """Return the rows ``ids`` (ascending) after scaling, and the texts if rows are strings."""
    parts = []
    for lo, hi in spans(data.n_rows, 4096):
        inside = ids[(ids >= lo) & (ids < hi)] - lo
        if len(inside):
            parts.append(rows_of(data, lo, hi)[inside])
    if data.n_cols == 0:
        return None, tuple(str(text) for part in parts for text in part)
    if not parts:
        return np.zeros((0, data.n_cols)), ()
    return (sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)), ()


def build_task_model(
    config: MethodConfig,
    inputs: TaskInputs,
    specs: Sequence[Any],
    norms: Sequence[Normalization],
    weights: np.ndarray,
    beta: np.ndarray,
    intercepts: np.ndarray,
    figures: dict[str, float],
    arrays: dict[str, np.ndarray] | None = None,
    *,
    unit: TargetUnit = LABELS,
) -> TaskModel:
    """Return the model with weights ``(k, T)`` or ``(k, T, T)``, coefficients ``(n_samples,)`` and intercepts ``(T,)``.

    With one binary model per class, all three arrays have the classes as leading axis. ``specs`` and ``norms`` are all kernels and their
    normalisation over the training rows. Solvers work on a numeric target in units of ``unit``. Coefficients, intercepts and figures are
    passed in these units, and converted to the original unit of the target.
    """
    first = beta.ndim - 1
    used = np.flatnonzero(weights.any(axis=tuple(axis for axis in range(weights.ndim) if axis != first)))
    rows = np.asarray(np.atleast_2d(beta).any(axis=0))
    ids, kept = _of_support(rows, [norms[int(q)] for q in used])
    return TaskModel(
        tasks_json=json.dumps(list(inputs.names)),
        weights=weights,
        used=used,
        norms=kept,
        support_tasks=inputs.codes[ids],
        beta=np.ascontiguousarray(beta[..., ids] * unit.size),
        intercepts=unit.values(intercepts),
        figures=unit.figures(figures),
        arrays=arrays or {},
        **data_fields(config, inputs, specs, len(rows), ids),
    )
