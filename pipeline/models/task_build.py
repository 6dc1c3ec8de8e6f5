"""From the solution of machines for many tasks to their model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...kernels.grams.normalization import Normalization
from ...kernels.target_unit import LABELS, TargetUnit
from ..inputs.tasks import TaskInputs
from ..records.config import MethodConfig
from .kernel_build import data_fields
from .task import TaskModel


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
    """Return the model of weights ``(k, T)`` or ``(k, T, T)``, coefficients ``(n_samples,)`` and intercepts ``(T,)``; of a machine per
    class all three have one more axis, before the others.

    ``specs`` and ``norms`` are all kernels and their normalisation over the training rows. Coefficients, intercepts and figures are
    those of machines that see a real target in a ``unit``; the model's are in the target's own.
    """
    first = beta.ndim - 1
    used = np.flatnonzero(weights.any(axis=tuple(axis for axis in range(weights.ndim) if axis != first)))
    used_norms = [norms[int(q)] for q in used]
    # The means of a test row run over all training rows, so a centred kernel keeps them all.
    rows = np.asarray(np.atleast_2d(beta).any(axis=0))
    ids = np.arange(len(rows)) if any(norm.row_mean is not None for norm in used_norms) else np.flatnonzero(rows)
    return TaskModel(
        tasks_json=json.dumps(list(inputs.names)),
        weights=weights,
        used=used,
        norms=tuple(norm if norm.diag_root is None else replace(norm, diag_root=norm.diag_root[ids]) for norm in used_norms),
        support_tasks=inputs.codes[ids],
        beta=np.ascontiguousarray(beta[..., ids] * unit.size),
        intercepts=unit.values(intercepts),
        figures=unit.figures(figures),
        arrays=arrays or {},
        **data_fields(config, inputs, specs, len(rows), ids),
    )
