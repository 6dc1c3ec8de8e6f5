"""Decision values of machines for many tasks: from arrays, strings, matrices, or block by block from a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...kernels.grams.blocks import gram_block, gram_diagonal
from ...storage.errors import Matrix
from ..inputs.tasks import known_codes, store_codes
from ..records.context import RunContext
from .kernel_predict import (
    BLOCK_BYTES,
    RowDecisions,
    RowSpan,
    check_store,
    check_test_grams,
    row_spans,
    run_decisions,
    spans,
    support_rows,
    used_specs,
)
from .predictor import Predictor
from .task import TaskModel

# `blocks(kernels, rows, columns)`: raw entries (kernels, rows, columns) of some used kernels, rows and support rows.
Blocks = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

Diagonals = Callable[[np.ndarray, np.ndarray], np.ndarray]  # `diagonals(kernels, rows)`: kernels of rows with themselves, (kernels, rows)


def decide_task_rows(model: TaskModel, X: Matrix, codes: np.ndarray) -> np.ndarray:
    """Return ``(n, n_machines)`` decision values of rows to which scaling has been applied, or of strings; ``codes`` are their tasks."""
    specs, support = used_specs(model), support_rows(model)

    def blocks(kernels: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return gram_block([specs[q] for q in kernels], X[rows], support[columns])

    def diagonals(kernels: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return gram_diagonal([specs[q] for q in kernels], X[rows])

    return _decision_values(model, codes, blocks, diagonals)


def decide_task_grams(model: TaskModel, grams: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return ``(n_test, n_machines)`` decision values from matrices ``(n_kernels, n_test, n_train)``.

    Raises ValueError as :func:`check_test_grams` does.
    """
    check_test_grams(grams, model.n_kernels, model.n_train, model.used)

    def blocks(kernels: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        ids = model.support_ids[columns]
        return np.stack([np.asarray(grams[q][np.ix_(rows, ids)], np.float64) for q in model.used[kernels]])

    return _decision_values(model, codes, blocks, None)


def _decision_values(model: TaskModel, codes: np.ndarray, blocks: Blocks, diagonals: Diagonals | None) -> np.ndarray:
    machines = [model.machine(m) for m in range(model.n_machines)]
    out = np.column_stack([machine.intercepts[codes] for machine in machines])
    if not len(model.support_ids) or not len(model.used):
        return out
    for t in np.unique(codes):
        rows = np.flatnonzero(codes == t)
        shares = np.stack([machine.shares(int(t)) * machine.beta for machine in machines])
        # The means of a test row run over all training rows.
        all_columns = any(norm.row_mean is not None for norm in model.norms)
        columns = np.arange(len(model.support_ids)) if all_columns else np.flatnonzero(shares.any(axis=(0, 1)))
        kernels = np.flatnonzero(shares.any(axis=(0, 2)))
        if len(kernels):
            for lo, hi in spans(len(rows), max(1, BLOCK_BYTES // (8 * len(kernels) * len(columns)))):
                out[rows[lo:hi]] += _kernel_part(model, shares, kernels, rows[lo:hi], columns, blocks, diagonals)
    return out


def _kernel_part(
    model: TaskModel,
    shares: np.ndarray,
    kernels: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    blocks: Blocks,
    diagonals: Diagonals | None,
) -> np.ndarray:
    """Return what the kernels add to the decision values of some rows of one task, ``(n_rows, n_machines)``."""
    raw, sums = blocks(kernels, rows, columns), np.zeros((len(rows), len(shares)))
    has_lengths = any(model.norms[q].diag_root is not None for q in kernels)
    diagonal = diagonals(kernels, rows) if diagonals is not None and has_lengths else None
    for i, q in enumerate(kernels):
        norm = model.norms[q]
        mean = None if norm.row_mean is None else raw[i].mean(axis=1, dtype=np.float64)
        values = norm.apply_test(raw[i], diagonal=None if diagonal is None else diagonal[i], row_mean=mean, columns=columns)
        for m, of_machine in enumerate(shares):
            # Row by row: a matrix product may round a row differently in other company.
            sums[:, m] += (values * of_machine[q, columns]).sum(axis=1)
    return sums


@dataclass(frozen=True)
class TaskRows:
    """A range of rows of a data set with their tasks."""

    span: RowSpan
    codes: np.ndarray

    @property
    def rows(self) -> tuple[int, int]:
        """Half-open range of the rows."""
        return self.span.rows

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in float64, at most."""
        return self.span.nbytes


def decide_chunk(ref: TaskRows, model: TaskModel) -> list[RowDecisions]:
    """Return the decision values of a range of rows."""
    return [RowDecisions(ref.rows, decide_task_rows(model, ref.span.load(model), ref.codes))]


def decide_task_store(model: TaskModel, ctx: RunContext, task: object = None) -> np.ndarray:
    """Return ``(n, n_machines)`` decision values of every row of a store (one pass over its rows); ``task`` is in place of its tasks.

    Raises ValueError: a task that was not there at fit, data of another width, or no row factors where the model needs them.
    """
    data = ctx.data
    check_store(model, data)
    codes = store_codes(model, data) if task is None else known_codes(task, model.tasks, data.n_rows)
    refs = [TaskRows(span, codes[slice(*span.rows)]) for span in row_spans(data, model.n_features)]
    return run_decisions(ctx, "task-decisions", decide_chunk, refs, model, model.n_machines)


class TaskPredictor(Predictor):
    """Machines of many tasks: tasks read the rows, each decided on by the machine of its task."""

    def decision_values(self, model: TaskModel, ctx: RunContext) -> np.ndarray:
        """Return the decision values of each row's task."""
        return decide_task_store(model, ctx)

    def n_values(self, model: TaskModel) -> int:
        """Return those of the row's task: one, or one per class."""
        return model.n_machines
