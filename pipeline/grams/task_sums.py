"""Passes over Gram matrices by pairs of tasks, for :class:`gramplane.pipeline.grams.grams.Grams` whose entries are not in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...kernels.bank.task_sums import TaskSums, block_task_sums, combine_block_tasks
from ...kernels.grams.normalization import Normalization
from ..records.context import resolve
from .sources import PairRef, normalised

Norms = tuple[Normalization, ...] | None


def task_sums_chunk(ref: PairRef, norms: Norms, beta: Any, codes: Any, units: Any) -> TaskSums:
    """Return the shares of one block pair in the forms of all pairs of tasks."""
    return block_task_sums(normalised(ref, norms), ref.rows, ref.cols, resolve(beta), resolve(codes), resolve(units))


def added_sums(parts: Sequence[TaskSums]) -> TaskSums:
    """Combine step: sums of shares are exact, so their order changes no bit."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def combined_tasks_block(ref: PairRef, norms: Norms, weights: Any, codes: Any) -> np.ndarray:
    """Return one block pair of the sum weighted by pairs of tasks."""
    return combine_block_tasks(normalised(ref, norms), ref.rows, ref.cols, resolve(weights), resolve(codes))
