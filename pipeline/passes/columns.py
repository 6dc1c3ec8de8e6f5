"""The column pass: fetch selected columns from the workers that hold their stripes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from ...cluster import BlockProgram, plan
from ..records.context import RunContext
from .blocks import Columns, Ref, Task, column_tasks, columns_of, task_bytes, tasks_holding


def _held(ref: Ref, features: np.ndarray) -> np.ndarray:
    lo, hi = np.searchsorted(features, ref.cols)
    return features[lo:hi]


def stack(parts: Sequence[Columns]) -> Columns:
    """Put column blocks side by side; sparse stays sparse."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.hstack([np.asarray(part) for part in parts])
    return sp.csc_array(sp.hstack(parts, format="csc"))


def fetch_chunk(task: Task, features: np.ndarray) -> Columns:
    """Return the asked columns of one task's stripes, in feature order (on a worker)."""
    return stack([columns_of(ref, _held(ref, features)) for ref in task])


def fetch_columns(ctx: RunContext, features: np.ndarray) -> Columns:
    """Return the raw columns of sorted distinct ``features``: ``(n_samples, len(features))``, sparse if the data is.

    Scaling is not applied here: see :func:`scaled`.
    """
    tasks = tasks_holding(column_tasks(ctx.data), features)
    result = ctx.data.n_rows * 12 * len(features)
    program = BlockProgram("columns", fetch_chunk, stack, task_bytes, result, combine_bytes=2 * result)
    return ctx.run_pass(plan(program, tasks, features))
