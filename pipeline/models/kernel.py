"""A fitted model on a weighted sum of kernels: a plain record, saved without pickle, and its decision values.

It predicts arrays, strings and matrices in memory, and stores block by block.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...cluster import BlockProgram, plan
from ...kernels.grams.blocks import gram_block, gram_diagonal
from ...kernels.grams.feature_sums import feature_values
from ...kernels.grams.normalization import Normalization
from ...kernels.grams.products import AnyKernel, kernel_from_json, named_text
from ...kernels.grams.strips import has_number_kernels_only, kernel_decisions
from ...storage import BlockStore, MemoryBlocks, open_shared
from ...storage.errors import Matrix
from ..core.resources import Resources
from ..passes.blocks import join_lists
from ..passes.scaling import inverse_row_norms, scaled
from ..records.data_set import DataSet
from ..records.scale import FeatureScale
from .calibration import Calibration
from .model import Model, Part, check_width

TILES = 20 << 20  # bytes that sums over features are computed in, whatever the sizes
BLOCK_BYTES = 32 << 20  # bytes of kernel entries in memory at a time
ROWS = 4096  # largest number of rows of a task
MAX_COLUMNS = 512  # features whose columns are dense at a time
MAX_EXPONENT = 600.0  # exponents of a second layer are clipped here: sums of larger ones would overflow


@dataclass(frozen=True)
class FeatureKernels:
    """One kernel per feature, for thousands of features: ``sum_i w_i scale_i K_i(x, z)``."""

    record_name: ClassVar[str] = "FeatureKernels"
    columns: np.ndarray  # `(k,)` features, ascending; a model's rows and scaling hold these only
    widths: np.ndarray  # `(k,)` sigma of `exp(-(x - z)^2 / (2 sigma^2))`; all 0 for linear kernels
    scales: np.ndarray  # `(k,)` multipliers of the raw kernels


class KernelBased(Model):
    """Base class of models with support rows: the fields of their records, and reading of rows."""

    kernels_json: str
    n_features: int
    precomputed: bool
    used: np.ndarray
    support_ids: np.ndarray
    rows: np.ndarray | sp.csr_array | None
    texts: tuple[str, ...]
    scale: FeatureScale
    row_scaled: bool
    features: FeatureKernels | None = None  # one kernel per feature in place of `kernels_json`; None: kernels read all features

    def used_specs(self) -> list[AnyKernel]:
        """The kernels with non-zero weight."""
        kernels = _kernels(self.kernels_json)
        return [kernels[q] for q in self.used]

    def support_rows(self) -> Matrix:
        """Return the support rows as inputs of kernels: scaled numbers, or strings."""
        return self.rows if self.rows is not None else np.array(self.texts, dtype=object)

    def scaled_rows(self, X: Matrix) -> Matrix:
        """Return an array ``(n, n_features)`` after scaling. For kernels on single features, return only the columns in use."""
        factor = inverse_row_norms(X) if self.row_scaled else None
        return _scale_rows(self, X if self.features is None else X[:, self.features.columns], factor)

    def check_store(self, data: DataSet) -> None:
        """Check that a store can be predicted: the model does not need matrices, and :func:`check_width` accepts the store."""
        if self.precomputed:
            raise ValueError(
                "this model was trained on precomputed kernels; call predict with kernels of shape (n_kernels, n_test, n_train)"
            )
        check_width(self.n_features, self.row_scaled, data)


@lru_cache(maxsize=4)
def _kernels(text: str) -> tuple[AnyKernel, ...]:
    # A model predicts block after block, and a kernel checks its fields whenever it is made.
    return tuple(kernel_from_json(record) for record in json.loads(text))


@dataclass(frozen=True)
class KernelModel(KernelBased):
    """``f_m(x) = sum_i beta_mi g(sum_q theta_mq K_q(x, x_i)) + intercept_m`` for one or several binary models m.

    g is the identity, or the exponential for two layers.
    """

    record_name: ClassVar[str] = "KernelModel"
    params_json: str  # the method's parameters
    classes_json: str  # the class labels in order, as JSON; `null` for regression
    kernels_json: str  # all kernels in order, as a JSON list of records
    # n_features, n_train: width and rows of the training data; `n_features` is 0 for strings
    n_features: int
    n_train: int
    precomputed: bool  # whether kernels are matrices that users compute, at prediction too
    theta: np.ndarray  # `(n_machines, n_kernels)` kernel weights
    used: np.ndarray  # `(n_used,)` kernels with a weight in some machine
    norms: tuple[Normalization, ...]  # their normalisation, vectors over the support rows
    support_ids: np.ndarray  # `(n_support,)` sorted training rows with a coefficient
    rows: np.ndarray | sp.csr_array | None  # their features, scaling applied; None for strings and matrices
    texts: tuple[str, ...]  # strings of the support rows
    beta: np.ndarray  # `(n_machines, n_support)` signed coefficients
    intercepts: np.ndarray  # `(n_machines,)`
    # scale, row_scaled: scaling of the features; whether rows are divided by their norm before use
    scale: FeatureScale = field(default_factory=FeatureScale)
    row_scaled: bool = False
    figures: dict[str, float] = field(default_factory=dict)  # objective, bounds and the like, by name
    arrays: dict[str, np.ndarray] = field(default_factory=dict)  # further results of a method, by name
    layers: int = 1  # 1 or 2
    features: FeatureKernels | None = None  # one kernel per feature in place of `kernels_json`, or None
    calibration: Calibration | None = None  # how decision values become probabilities, where that was fitted

    def decision_values(self, data: Any, resources: Resources, **rows: Any) -> np.ndarray:
        """Return the decision values of every row of a store, in one pass over its rows. Raises ValueError as :meth:`check_store` does."""
        self.check_store(data)
        refs = row_spans(data, self.n_features if self.features is None else len(self.features.columns))
        return run_decisions(resources, "kernel-decisions", decide_chunk, refs, self, len(self.intercepts))

    def contributions(self, read: Callable[[np.ndarray], np.ndarray], names: Sequence[str] | None, of: int) -> list[Part]:
        """Return the contribution of every kernel with non-zero weight, for one-layer models on numeric rows."""
        if self.layers != 1 or self.features is not None or self.rows is None or self.row_scaled or self.n_features > MAX_COLUMNS:
            return []
        row, texts = self.scaled_rows(read(np.arange(self.n_features))), kernel_names(self, names)
        # A model with one machine for each kernel, which has the weight of this kernel alone.
        k = len(self.used)
        theta = np.zeros((k, self.theta.shape[1]))
        theta[np.arange(k), self.used] = self.theta[of, self.used]
        apart = replace(self, theta=theta, beta=np.repeat(self.beta[[of]], k, axis=0), intercepts=np.zeros(k))
        added = row_decision_values(apart, row)[0].tolist()
        return [(texts[q], None, value) for q, value in zip(self.used, added, strict=True)]


def kernel_names(model: Any, columns: Sequence[str] | None = None) -> list[str]:
    """Return the texts of a model's kernels in order. ``columns`` are the feature names, if known."""
    return [kernel_text(record, columns) for record in json.loads(model.kernels_json)]


def kernel_text(record: Mapping[str, Any], columns: Sequence[str] | None = None) -> str:
    """Return the text of a kernel's record; for a precomputed matrix, its label."""
    if "position" in record:
        return record["label"] or f"precomputed {record['position']}"
    return named_text(kernel_from_json(record), columns)


def is_selected(theta: np.ndarray, threshold: float) -> np.ndarray:
    """Return a mask of the weights above ``threshold`` times the largest."""
    return theta > threshold * max(float(theta.max(initial=0.0)), 0.0)


def row_decision_values(model: KernelModel, X: Matrix) -> np.ndarray:
    """Return ``(n, n_machines)`` decision values of scaled rows, or of strings."""
    n = X.shape[0]
    out = np.tile(model.intercepts, (n, 1))
    if not len(model.support_ids) or not len(model.used):
        return out
    if model.features is not None:
        return out + _feature_decision_values(model, X)
    specs, support = model.used_specs(), model.support_rows()
    if model.layers == 1 and model.rows is not None and has_number_kernels_only(specs) and all(norm.only_scales for norm in model.norms):
        weights = model.theta[:, model.used] * np.array([norm.scale for norm in model.norms])
        return out + kernel_decisions(specs, weights, X, support, model.beta)
    # Two layers have an inner sum per machine while the kernels are read.
    copies = 1 if model.layers == 1 else 2 + len(model.intercepts)
    for lo, hi in spans(n, max(1, BLOCK_BYTES // (8 * copies * len(model.support_ids)))):
        _add_row_values(model, specs, X[lo:hi], support, out[lo:hi])
    return out


def _add_row_values(model: KernelModel, specs: Sequence[AnyKernel], X: Matrix, support: Matrix, out: np.ndarray) -> None:
    """Add the decision values of some rows, computing as many kernels at a time as memory allows."""
    sums = _empty_sums(model, out)
    for first, last in spans(len(specs), max(1, BLOCK_BYTES // (8 * len(model.support_ids) * len(out)))):
        block, norms = gram_block(specs[first:last], X, support), model.norms[first:last]
        diagonals = gram_diagonal(specs[first:last], X) if any(norm.diag_root is not None for norm in norms) else [None] * len(norms)
        for q, norm, values, diagonal in zip(model.used[first:last], norms, block, diagonals, strict=True):
            _add_kernel(model, sums, norm.apply_test(values, diagonal=diagonal), q)
    _add_second_layer(model, sums, out)


def _empty_sums(model: KernelModel, out: np.ndarray) -> np.ndarray:
    """Return the array that kernels are added to: the decision values, or for two layers the inner sums (n_machines, rows, n_support)."""
    return out if model.layers == 1 else np.zeros((len(model.intercepts), len(out), len(model.support_ids)))


def _add_kernel(model: KernelModel, sums: np.ndarray, values: np.ndarray, q: int) -> None:
    """Add one normalised kernel ``(rows, n_support)``."""
    if model.layers == 1:
        sums += (values @ model.beta.T) * model.theta[:, q]
        return
    for m, weight in enumerate(model.theta[:, q]):
        if weight != 0.0:
            sums[m] += weight * values


def _add_second_layer(model: KernelModel, sums: np.ndarray, out: np.ndarray) -> None:
    """For two layers, apply the outer layer to the inner sums and add the result to the decision values."""
    if model.layers == 1:
        return
    for m, inner in enumerate(sums):
        np.exp(np.minimum(inner, MAX_EXPONENT, out=inner), out=inner)
        inner *= model.beta[m]
        # Row by row, where a matrix product may round a row differently in other company; machines that tie would then swap ranks.
        out[:, m] += inner.sum(axis=1)


def _feature_decision_values(model: KernelModel, X: Matrix) -> np.ndarray:
    """Return ``sum_i w_i sum_s beta_s K_i(x, z_s)`` over kernels of one feature each, ``(n, n_machines)``."""
    features = model.features
    assert features is not None and model.rows is not None
    left, right = (sp.csc_array(part) if sp.issparse(part) else part for part in (X, model.rows))
    out = np.zeros((X.shape[0], len(model.beta)))
    for first, last in spans(len(features.columns), MAX_COLUMNS):
        part = slice(first, last)
        widths = features.widths[part] if features.widths[0] else None
        weights = model.theta[0, part] * features.scales[part]
        out += feature_values(_to_dense(left[:, part]), _to_dense(right[:, part]), weights, widths, model.beta).T
    return out


def _to_dense(part: Matrix) -> np.ndarray:
    return np.asarray(part.toarray() if sp.issparse(part) else part, np.float64)


def gram_decision_values(model: KernelModel, grams: np.ndarray) -> np.ndarray:
    """Return ``(n_test, n_machines)`` decision values from matrices ``(n_kernels, n_test, n_train)``.

    Raises ValueError as :func:`check_test_grams` does.
    """
    check_test_grams(grams, model.theta.shape[1], model.n_train, model.used)
    out = np.tile(model.intercepts, (grams.shape[1], 1))
    sums = _empty_sums(model, out)
    for norm, q in zip(model.norms, model.used, strict=True):
        block = np.asarray(grams[q], np.float64)[:, model.support_ids]
        _add_kernel(model, sums, norm.apply_test(block), q)
    _add_second_layer(model, sums, out)
    return out


def check_test_grams(grams: np.ndarray, k: int, n_train: int, used: np.ndarray) -> None:
    """Check that matrices have the shape ``(k, n_test, n_train)``, and that the entries of kernels in use are finite."""
    if len(grams) != k or grams.shape[2] != n_train:
        raise ValueError(f"precomputed kernels have shape {grams.shape}; the model needs ({k}, n_test, {n_train}), training rows last")
    for q in used:
        if not np.isfinite(grams[q]).all():
            raise ValueError(f"precomputed kernel {q} holds NaN or infinity")


def _scale_rows(model: KernelBased, X: Matrix, factor: np.ndarray | None) -> Matrix:
    if sp.issparse(X) and (model.row_scaled or model.scale.factor is not None or model.scale.shift is not None):
        # A centred column has no zeros to skip.
        X = sp.csc_array(X) if model.scale.shift is None else X.toarray()
    rows = scaled(X, model.scale, factor)
    return sp.csr_array(rows) if sp.issparse(rows) else rows


def spans(n: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges of at most ``size``."""
    for lo in range(0, n, size):
        yield lo, min(lo + size, n)


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
        """Upper bound on the bytes of the rows in float64."""
        return 8 * self.width * (self.rows[1] - self.rows[0])

    def load(self, model: KernelBased) -> Matrix:
        """Return the rows as inputs of the model: strings, or numbers with the scaling of the training data."""
        data = self.source or open_shared(self.url, self.digest)
        if data.n_cols == 0:
            return data.sequences(*self.rows)
        columns = np.arange(data.n_cols) if model.features is None else model.features.columns
        factor = data.scale.row_factor
        factor = factor[slice(*self.rows)] if model.row_scaled and factor is not None else None
        return _scale_rows(model, data.columns(columns, self.rows), factor)


class RowDecisions(NamedTuple):
    """The decision values of a range of rows."""

    rows: tuple[int, int]
    values: np.ndarray


def row_spans(data: BlockStore | MemoryBlocks, width: int) -> list[RowSpan]:
    """Return references to all rows, ``ROWS`` at a time. ``width``: number of columns that are read."""
    is_stored = isinstance(data, BlockStore)
    digest, source = (data.digest, None) if is_stored else ("", data)
    return [RowSpan(data.url, digest, rows, width, source) for rows in spans(data.n_rows, ROWS)]


def decide_chunk(ref: RowSpan, model: KernelModel) -> list[RowDecisions]:
    return [RowDecisions(ref.rows, row_decision_values(model, ref.load(model)))]


@dataclass(frozen=True)
class DecideMemory:
    """Memory bound of a task: rows (as read, selected and scaled), pieces of kernel entries and their copies, and tiles."""

    # support, kernels, machines: sizes of the model
    support: int
    kernels: int
    machines: int

    def __call__(self, ref: Any) -> int:
        """Return the bytes for a range of rows with attributes ``rows`` and ``nbytes``."""
        row = 8 * self.support * (self.kernels + self.machines + 2)
        return 3 * ref.nbytes + 3 * max(min((ref.rows[1] - ref.rows[0]) * row, BLOCK_BYTES), row) + TILES


def run_decisions(
    resources: Resources, name: str, chunk: Callable[..., Any], refs: Sequence[Any], model: KernelBased, width: int
) -> np.ndarray:
    """Return the ``(n, width)`` decision values of all ranges of rows, computed by the pass ``name``."""
    result = 8 * ROWS * width + 256
    memory = DecideMemory(len(model.support_ids), len(model.used), width)
    program = BlockProgram(name, chunk, join_lists, memory, result, combine_bytes=2 * result * len(refs))
    parts: list[RowDecisions] = sorted(resources.run_pass(plan(program, refs, model)), key=lambda part: part.rows)
    return np.concatenate([part.values for part in parts]) if parts else np.zeros((0, width))
