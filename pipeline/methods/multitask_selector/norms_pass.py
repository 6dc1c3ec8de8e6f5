"""The pass over column stripes of feature selection over many tasks: dual norms of the gradients ``X_t'r`` of given features.

A task returns two numbers for every feature that can enter the working set, and nothing for the other features. It returns no vector over
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.group_lasso.penalty import GroupPenalty, single_features
from ....kernels.group_lasso.task_gradients import BATCH_BYTES, feature_norms, feature_reaches
from ....storage import BlockStore, MemoryBlocks, block_cache
from ...core.resources import Resources, Shared, resolve
from ...passes.blocks import (
    Ref,
    Task,
    column_tasks,
    columns_of,
    features_inside,
    scale_as_given,
    source_of,
    task_bytes,
    tasks_holding,
)


class Query(NamedTuple):
    """Parameters of a pass, the same for every feature."""

    n_tasks: int
    kappa: float  # weights of the penalty of a feature over all tasks
    inner: float
    p: float
    with_reaches: bool  # whether the reach is asked for, too; else it is 0


def norms_chunk(task: Task, features: Shared, vectors: Shared, codes: Shared, query: Query) -> np.ndarray:
    """Return dual norms and reaches ``(2, k)`` of the given features in the stripes of one task (on a worker). The reach of a feature
    bounds how far its norm can move.

    * ``features``: sorted ids over all stripes.
    * ``vectors`` ``(2, n)``: the costs times the slopes, and the costs; both are multiplied by the row factors.
    * ``codes`` ``(n,)``: the task of each row.
    """
    ids, weight, owners = resolve(features), resolve(vectors), resolve(codes)
    return join_norms([_stripe_norms(ref, features_inside(ref, ids), weight, owners, query) for ref in task])


def _stripe_norms(ref: Ref, ids: np.ndarray, vectors: np.ndarray, codes: np.ndarray, query: Query) -> np.ndarray:
    scale = scale_as_given(source_of(ref), ids)
    X = block_cache().load(ref) if len(ids) == ref.cols[1] - ref.cols[0] else columns_of(ref, ids)
    alike, scales = single_features(1, query.kappa, query.inner, query.p), {"shift": scale.shift, "factor": scale.factor}
    norms = feature_norms(X, vectors[0], codes, query.n_tasks, alike, **scales)
    return np.stack([norms, feature_reaches(X, vectors[1], codes, query.n_tasks, **scales) if query.with_reaches else np.zeros(len(ids))])


def join_norms(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Combine results by concatenating features."""
    return np.concatenate(parts, axis=1)


def task_norms(
    data: BlockStore | MemoryBlocks, resources: Resources, features: np.ndarray, slopes: np.ndarray, cost: np.ndarray, codes: np.ndarray,
    n_tasks: int, penalty: GroupPenalty, with_reaches: bool,
) -> np.ndarray:  # fmt: skip
    """Return dual norms and reaches ``(2, len(features))`` of sorted distinct features, in one pass over the stripes that contain them.

    Three arrays ``(n,)`` describe the rows, in the order of the data:

    * ``slopes``: the negative derivative of the loss.
    * ``cost``: the weight in the mean loss.
    * ``codes``: the task.
    """
    row_factor = data.scale.row_factor
    vectors = np.stack([cost * slopes, cost])
    if row_factor is not None:
        vectors *= np.stack([row_factor, row_factor * row_factor])
    tasks = column_tasks(data)
    if len(features) < data.n_cols:
        tasks = tasks_holding(tasks, features)
    query = Query(n_tasks, float(penalty.kappa[0]), float(penalty.inner[0]), penalty.p, with_reaches)
    shared = (("features", features), ("task-slopes", vectors), ("task-codes", codes))
    arrays = (resources.share(name, array, len(tasks)) for name, array in shared)
    return resources.run_pass(norms_pass(tasks, data.n_rows, n_tasks, len(features), *arrays, query))


def norms_pass(tasks: Sequence[Task], n: int, n_tasks: int, features: int, *broadcast: object) -> Plan[np.ndarray]:
    """Return the pass that computes the dual norms of ``features`` features."""
    result = 16 * features

    def memory(task: Task) -> int:
        # The largest stripe as read and cut, vectors over the rows, sums of tasks over some columns.
        columns = sum(ref.cols[1] - ref.cols[0] for ref in task)
        return 2 * task_bytes(task) + 40 * n + 3 * max(BATCH_BYTES, 8 * n_tasks) + 64 * columns

    return plan(BlockProgram("task-norms", norms_chunk, join_norms, memory, result, combine_bytes=2 * result), tasks, *broadcast)
