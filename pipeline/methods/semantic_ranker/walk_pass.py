"""Products with the matrix of a random walk by passes over stripes of a similarity. Tasks return only vectors over the rows.

S has the positive entries of the similarity, scaled so that columns sum to 1. A stripe contains whole columns, so its task can scale them
and return ``S[:, a] r[a]``. These vectors are added in the order of a fixed tree.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, Plan, plan
from ....storage import BlockStore, MemoryBlocks
from ....storage.errors import Matrix
from ...core.resources import Resources, Shared, resolve
from ...passes.blocks import Ref, Task, add_parts, column_tasks, load_block, source_of, task_bytes
from ...passes.scaling import scaled
from ...records.scale import FeatureScale

COPIES = 6  # of a stripe while it is clipped, in float64 and with indices in 64 bits, where it is read in float32


def stripe_weights(ref: Ref, *, keeps_diagonal: bool) -> np.ndarray | sp.csc_array:
    """Return the columns of a stripe in float64 with negative entries set to 0. The diagonal is set to 0 as well, unless it is kept."""
    block, places = _read_stripe(ref), np.arange(*ref.cols)
    if not sp.issparse(block):
        out = np.maximum(block, 0.0, dtype=np.float64)
        if not keeps_diagonal:
            out[places, np.arange(len(places))] = 0.0
        return out
    values, indptr = np.maximum(block.data, 0.0, dtype=np.float64), block.indptr
    if not keeps_diagonal:
        values[block.indices == np.repeat(places, np.diff(indptr))] = 0.0
    return sp.csc_array((values, block.indices, indptr), shape=block.shape)


def _read_stripe(ref: Ref) -> Matrix:
    block = load_block(ref, centred=False)
    return scaled(block.X, FeatureScale(block.factor, block.shift), source_of(ref).scale.row_factor)


def walk_chunk(task: Task, r: Shared, keeps_diagonal: bool) -> np.ndarray:
    """Return the contribution of some stripes to S r, ``(n + 1,)``. The last entry is the sum of r over columns without positive entries,
    which S treats as uniform.
    """
    vector = resolve(r)
    out = np.zeros(len(vector) + 1)
    for ref in task:
        weights, part = stripe_weights(ref, keeps_diagonal=keeps_diagonal), vector[slice(*ref.cols)]
        sums = np.asarray(weights.sum(axis=0)).ravel()
        with np.errstate(over="ignore"):
            inverse = np.divide(1.0, sums, out=np.zeros(len(sums)), where=sums > 0)
        inverse[~np.isfinite(inverse)] = 0.0
        out[:-1] += weights @ (inverse * part)
        out[-1] += part[inverse == 0].sum()
    return out


def stochastic_chunk(task: Task) -> bool:
    """Return whether all columns of some stripes are non-negative and sum to 1, up to rounding in single precision."""
    for ref in task:
        block = _read_stripe(ref)
        sums = np.asarray(block.sum(axis=0, dtype=np.float64)).ravel()
        if not (min(block.min(), 0.0) >= 0 and np.all(np.abs(sums - 1.0) <= 1e-6)):
            return False
    return True


def _step_bytes(task: Task, n: int) -> int:
    return COPIES * task_bytes(task) + 24 * n


def walk_plan(data: BlockStore | MemoryBlocks, r: Shared, keeps_diagonal: bool) -> Plan[np.ndarray]:
    """Return the pass that computes one product ``S r``."""
    n = data.n_rows
    program = BlockProgram("walk-product", walk_chunk, add_parts, lambda task: _step_bytes(task, n), 8 * (n + 1))
    return plan(program, column_tasks(data), r, keeps_diagonal)


def walk_product(data: BlockStore | MemoryBlocks, resources: Resources, r: np.ndarray, keeps_diagonal: bool) -> np.ndarray:
    """Return ``S r`` for the similarity in ``data``, ``(n,)``, in one pass."""
    shared = resources.share("scores", r, len(column_tasks(data)))
    total = resources.run_pass(walk_plan(data, shared, keeps_diagonal))
    return total[:-1] + total[-1] / len(r)


def is_stochastic_store(data: BlockStore | MemoryBlocks, resources: Resources) -> bool:
    """Return whether the similarity has the form of S already, in one pass."""
    n = data.n_rows
    program = BlockProgram("walk-columns", stochastic_chunk, all, lambda task: _step_bytes(task, n), 16)
    return resources.run_pass(plan(program, column_tasks(data)))
