"""Decision values of machines on weighted sums of kernels: from arrays, strings, matrices, or block by block from a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...cluster import BlockProgram, plan
from ...kernels.gram import gram_block, gram_diagonal
from ...kernels.spec import KernelSpec
from ...storage import BlockStore, open_shared
from ..passes.blocks import listed
from ..passes.gram_source import rows_of
from ..passes.scaling import inverse_row_norms, scaled
from ..records.context import RunContext
from ..records.kernel_model import KernelModel

BLOCK_BYTES = 32 << 20
"""Kernel entries held at a time."""

ROWS = 4096
"""Rows of a task at most."""


def used_specs(model: KernelModel) -> list[KernelSpec]:
    """Return the kernels with a weight."""
    every = json.loads(model.kernels_json)
    return [KernelSpec.from_json(every[q]) for q in model.used]


def support_rows(model: KernelModel) -> Any:
    """Return the support rows as the kernels read them."""
    return model.rows if model.rows is not None else np.array(model.texts, dtype=object)


def decide_rows(model: KernelModel, X: Any) -> np.ndarray:
    """Return ``(n, n_machines)`` decision values of rows to which scaling has been applied, or of strings."""
    n = X.shape[0]
    out = np.tile(model.intercepts, (n, 1))
    if not len(model.support_ids) or not len(model.used):
        return out
    specs, support = used_specs(model), support_rows(model)
    for lo, hi in spans(n, max(1, BLOCK_BYTES // (8 * len(model.support_ids)))):
        for first, last in spans(len(specs), max(1, BLOCK_BYTES // (8 * len(model.support_ids) * (hi - lo)))):
            part = X[lo:hi]
            block = gram_block(specs[first:last], part, support)
            diagonals = (
                gram_diagonal(specs[first:last], part) if any(model.norms[q].diag_root is not None for q in range(first, last)) else None
            )
            _add(model, out[lo:hi], block, diagonals, first)
    return out


def _add(model: KernelModel, out: np.ndarray, blocks: np.ndarray, diagonals: np.ndarray | None, first: int) -> None:
    for q, block in enumerate(blocks):
        norm = model.norms[first + q]
        values = norm.apply_test(block, diagonal=None if diagonals is None else diagonals[q])
        out += (values @ model.beta.T) * model.theta[:, model.used[first + q]]


def decide_grams(model: KernelModel, grams: np.ndarray, diagonals: np.ndarray | None = None) -> np.ndarray:
    """Return ``(n_test, n_machines)`` decision values from matrices ``(n_kernels, n_test, n_train)``.

    Raises
    ------
    ValueError
        Another number of kernels or training rows, or entries that are not finite.
    """
    k, n, width = grams.shape
    if k != model.theta.shape[1] or width != model.n_train:
        raise ValueError(
            f"precomputed kernels have shape {grams.shape}; the model needs ({model.theta.shape[1]}, n_test, {model.n_train}), "
            "training rows last"
        )
    out = np.tile(model.intercepts, (n, 1))
    for place, q in enumerate(model.used):
        block = np.asarray(grams[q], np.float64)
        if not np.isfinite(block).all():
            raise ValueError(f"precomputed kernel {q} holds NaN or infinity")
        values = model.norms[place].apply_test(block[:, model.support_ids], diagonal=None if diagonals is None else diagonals[q])
        out += (values @ model.beta.T) * model.theta[:, q]
    return out


def scaled_rows(model: KernelModel, X: Any) -> Any:
    """Return an array ``(n, n_features)`` as the model reads its rows."""
    factor = inverse_row_norms(X) if model.row_scaled else None
    found = scaled(sp.csc_array(X) if sp.issparse(X) and _scales(model) else X, model.scale, factor)
    return sp.csr_array(found) if sp.issparse(found) else found


def _scales(model: KernelModel) -> bool:
    return model.row_scaled or model.scale.factor is not None or model.scale.shift is not None


def spans(n: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges of at most ``size``."""
    for lo in range(0, n, size):
        yield lo, min(lo + size, n)


# -- from a store ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowSpan:
    """A range of rows of a data set."""

    url: str
    digest: str
    rows: tuple[int, int]
    width: int
    source: Any = field(default=None, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in float64, at most."""
        return 8 * self.width * (self.rows[1] - self.rows[0])

    def load(self) -> Any:
        """Return the rows with scaling applied."""
        return rows_of(self.source or open_shared(self.url, self.digest), *self.rows)


class Decided(NamedTuple):
    """Decision values of a range of rows."""

    rows: tuple[int, int]
    values: np.ndarray


def row_spans(data: Any, size: int = ROWS) -> list[RowSpan]:
    """Return references to all rows, ``size`` at a time."""
    far = isinstance(data, BlockStore)
    return [RowSpan(data.url, data.digest if far else "", rows, data.n_cols, None if far else data) for rows in spans(data.n_rows, size)]


def decide_chunk(ref: RowSpan, model: KernelModel) -> list[Decided]:
    """Return the decision values of a range of rows."""
    return [Decided(ref.rows, decide_rows(model, ref.load()))]


def _task_bytes(ref: RowSpan) -> int:
    return 2 * ref.nbytes + 3 * BLOCK_BYTES


def decide_store(model: KernelModel, ctx: RunContext) -> np.ndarray:
    """Return the decision values of every row of a store (one pass over its rows).

    Raises
    ------
    ValueError
        The data has another width than the training data, or no row factors where the model needs them.
    """
    data = ctx.data
    if model.precomputed:
        raise ValueError("this model was trained on precomputed kernels; give predict the kernels (n_kernels, n_test, n_train) of the rows")
    if data.n_cols != model.n_features:
        raise ValueError(
            f"{data.url} has {data.n_cols} features, the model was trained on {model.n_features}; ingest the file with --like "
            "TRAINING_STORE"
        )
    if model.row_scaled and data.scale.row_factor is None:
        raise ValueError(f"{data.url} has no row factors, the model was trained on rows of unit norm; ingest with --like TRAINING_STORE")
    result = 8 * ROWS * len(model.intercepts) + 256
    refs = row_spans(data)
    program = BlockProgram("kernel-decisions", decide_chunk, listed, _task_bytes, result, combine_bytes=2 * result * len(refs))
    found = ctx.run_pass(plan(program, refs, model))
    return np.concatenate([part.values for part in sorted(found)]) if found else np.zeros((0, len(model.intercepts)))
