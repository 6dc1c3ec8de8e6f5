"""A fitted multi-task model on weighted sums of kernels: a plain record, saved without pickle, and its decision values."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ...kernels.grams.blocks import gram_block, gram_diagonal
from ...kernels.grams.normalization import Normalization
from ...storage.errors import Matrix
from ..core.resources import Resources
from ..inputs.tasks import store_codes
from ..records.scale import FeatureScale
from .calibration import Calibration
from .kernel import BLOCK_BYTES, KernelBased, RowDecisions, RowSpan, check_test_grams, row_spans, run_decisions, spans
from .model import Tables

# `blocks(kernels, rows, columns)`: raw entries (kernels, rows, columns) of some used kernels, rows and support rows.
Blocks = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

Diagonals = Callable[[np.ndarray, np.ndarray], np.ndarray]  # `diagonals(kernels, rows)`: kernels of rows with themselves, (kernels, rows)


@dataclass(frozen=True)
class TaskModel(KernelBased):
    """``f_t(x) = sum_q sum_s S_q[s, t] sum_{i in task s} beta_i K_q(x_i, x) + intercept_t`` for every task t.

    With more than two classes, there is one binary model per class, against the rest. ``beta``, ``intercepts`` and ``weights`` then have
    the classes as leading axis; if all classes share their weights, this axis of ``weights`` has length one.
    """

    record_name: ClassVar[str] = "TaskModel"
    params_json: str  # the method's parameters
    classes_json: str  # the class labels in order, as JSON; `null` for regression
    kernels_json: str  # all kernels in order, as a JSON list of records
    tasks_json: str  # the names of the tasks in order, as JSON
    # n_features, n_train: width and rows of the training data; `n_features` is 0 for strings
    n_features: int
    n_train: int
    precomputed: bool  # whether kernels are given as matrices, at prediction too
    # `(n_kernels, n_tasks)`, then S_q is diagonal and a task reads its own rows only; or `(n_kernels, n_tasks, n_tasks)`
    weights: np.ndarray
    used: np.ndarray  # `(n_used,)` kernels with a weight somewhere
    norms: tuple[Normalization, ...]  # their normalisation, vectors over the support rows
    # support_ids, support_tasks: `(n_support,)` sorted training rows with a coefficient, and the task of each
    support_ids: np.ndarray
    support_tasks: np.ndarray
    rows: np.ndarray | sp.csr_array | None  # their features, scaling applied; None for strings and matrices
    texts: tuple[str, ...]  # strings of the support rows
    beta: np.ndarray  # `(n_support,)` signed coefficients
    intercepts: np.ndarray  # `(n_tasks,)`
    # scale, row_scaled: scaling of the features; whether rows are divided by their norm before use
    scale: FeatureScale = field(default_factory=FeatureScale)
    row_scaled: bool = False
    figures: dict[str, float] = field(default_factory=dict)  # objective, gap and the like, by name
    arrays: dict[str, np.ndarray] = field(default_factory=dict)  # further results of a method, by name
    calibration: Calibration | None = None  # how decision values become probabilities, where that was fitted

    @property
    def labels(self) -> tuple[Any, ...]:
        """The class labels in order; empty for regression."""
        return tuple(json.loads(self.classes_json) or ())

    @property
    def tasks(self) -> tuple[Any, ...]:
        return tuple(json.loads(self.tasks_json))

    @property
    def n_machines(self) -> int:
        """Number of binary models per task: one, or one per class."""
        return 1 if self.beta.ndim == 1 else len(self.beta)

    @property
    def n_kernels(self) -> int:
        return self.weights.shape[self.beta.ndim - 1]

    def machine(self, m: int) -> TaskModel:
        """Return the binary model of one class against the rest. A model of two classes, or of a numeric target, is returned unchanged."""
        if self.beta.ndim == 1:
            return self
        weights = self.weights[m if len(self.weights) > 1 else 0]
        return replace(self, beta=self.beta[m], intercepts=self.intercepts[m], weights=weights, calibration=None)

    def shares(self, task: int) -> np.ndarray:
        """Return ``S_q[s, task]`` for every used kernel q and every support row, ``(n_used, n_support)``, where s is the task of the
        support row. The model must be a single binary model.
        """
        weights = self.weights[self.used]
        if weights.ndim == 3:
            return weights[:, self.support_tasks, task]
        return weights[:, task, None] * (self.support_tasks == task)

    @property
    def n_values(self) -> int:
        """Number of decision values per row; they belong to the row's task."""
        return self.n_machines

    def decision_values(self, data: Any, resources: Resources, task: object = None, **rows: Any) -> np.ndarray:
        """Return ``(n, n_machines)`` decision values of every row of a store, in one pass over its rows. ``task`` overrides the store's
        tasks.

        Raises ValueError for an unknown task, another number of features, or missing row factors.
        """
        self.check_store(data)
        codes = store_codes(self, data, task)
        refs = [TaskRows(span, codes[slice(*span.rows)]) for span in row_spans(data, self.n_features)]
        return run_decisions(resources, "task-decisions", decide_chunk, refs, self, self.n_machines)


def task_counts(model: TaskModel) -> dict[str, Any]:
    """Return the sizes of a model, and its classes, for a summary."""
    counts = {"n_kernels": model.n_kernels, "n_tasks": len(model.tasks), "n_support": len(model.support_ids)}
    return {**counts, "classes": json.loads(model.classes_json)}


def task_table(names: Sequence[Any], codes: np.ndarray, beta: np.ndarray, intercepts: np.ndarray) -> list[dict[str, Any]]:
    """Return a table of the tasks: rows, rows with a non-zero ``beta``, and intercept. ``codes`` ``(n,)`` are the tasks of the rows."""
    sizes, supports = (np.bincount(codes, used, len(names)).astype(int).tolist() for used in (None, beta != 0))
    columns = zip(names, sizes, supports, intercepts.tolist(), strict=True)
    return [{"task": task, "rows": size, "support": support, "intercept": b} for task, size, support, b in columns]


def machine_stack(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the arrays of several binary models stacked along a new axis; a single array is returned unchanged."""
    return parts[0] if len(parts) == 1 else np.stack(parts)


def by_class(tables: Sequence[Tables], labels: Sequence[Any]) -> Tables:
    """Return the combined tables of one-against-rest models. Every row begins with the class, except in the table of kernels, which has a
    weight column per class.
    """
    joined = {name: [{"class": label, **row} for label, one in zip(labels, tables, strict=True) for row in one[name]] for name in tables[0]}
    if "kernels" in joined:
        weights: dict[str, dict[str, Any]] = {}
        for row in joined["kernels"]:
            own = weights.setdefault(row["kernel"], {"kernel": row["kernel"], **{f"weight[{label}]": 0.0 for label in labels}})
            own[f"weight[{row['class']}]"] = row["weight"]
        joined["kernels"] = sorted(weights.values(), key=lambda row: -max(row[f"weight[{label}]"] for label in labels))
    return joined


def decide_task_rows(model: TaskModel, X: Matrix, codes: np.ndarray) -> np.ndarray:
    """Return ``(n, n_machines)`` decision values of scaled rows, or of strings. ``codes`` are the tasks of the rows."""
    specs, support = model.used_specs(), model.support_rows()

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
    """Return the contribution of the kernels to the decision values of some rows of one task, ``(n_rows, n_machines)``."""
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
    """A range of rows of a data set, and their tasks."""

    span: RowSpan
    codes: np.ndarray

    @property
    def rows(self) -> tuple[int, int]:
        """Half-open range of the rows."""
        return self.span.rows

    @property
    def nbytes(self) -> int:
        """Upper bound on the bytes of the rows in float64."""
        return self.span.nbytes


def decide_chunk(ref: TaskRows, model: TaskModel) -> list[RowDecisions]:
    return [RowDecisions(ref.rows, decide_task_rows(model, ref.span.load(model), ref.codes))]
