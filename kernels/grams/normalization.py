r"""Centring and scaling of kernels, from a few sums over the training rows. Both are applied when a block is read; stored entries stay raw.

For the raw kernel K over the n training rows, let r be its row means and m the mean of all entries. Means are weighted by the row weights,
and n is the sum of the weights.

.. math::

    G_{ij} = K_{ij} - r_i - r_j + m \ \text{ if centred, else } K_{ij}, \qquad \tilde K_{ij} = s\, \frac{G_{ij}}{q_i q_j},

where ``q = 1`` and s depends on the normalisation:

* ``none``: 1.
* ``trace``: ``n / trace G``.
* ``unit_trace``: ``1 / trace G`` (Yang, 2010, sec. 6.5.2).
* ``multiplicative``: ``1 / (mean diag K - mean K)``, unit variance in feature space (Zien and Ong, 2007).
* ``cosine``: ``s = 1``, and ``q_i = sqrt(G_ii)``.

Test rows are normalised with the sums of the training rows; their row means are over the training rows, too.

A kernel becomes zero if the variance in a denominator is zero (a constant kernel under ``multiplicative`` or centring, or a zero kernel).
So does a row of length zero under ``cosine``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..arrays import Array
from .spec import KernelSpec

ROUND_OFF_SHARE = 1e-12  # Share of a trace or a diagonal entry below which the remainder after centring is round-off.


@dataclass(frozen=True)
class BlockSums:
    """Sums of one block of several kernels; the block covers two half-open ranges, of rows and of columns.

    * Row sums ``(k, n_rows)``.
    * For blocks on the diagonal, the diagonal; for others, the column sums.
    """

    rows: tuple[int, int]
    columns: tuple[int, int]
    row_sums: Array
    column_sums: Array | None
    diagonal: Array | None


def block_sums(blocks: Array, rows: tuple[int, int], columns: tuple[int, int], counts: Array | None = None) -> BlockSums:
    """Return the float64 sums of ``blocks`` (k, n_rows, n_columns), a block of the upper triangle; ``counts`` as in :class:`KernelSums`."""
    on_diagonal = rows == columns
    if counts is None:
        along = blocks.sum(axis=2, dtype=np.float64)
        across = None if on_diagonal else blocks.sum(axis=1, dtype=np.float64)
    else:
        along = np.stack([(block * counts[slice(*columns)]).sum(axis=1) for block in blocks])
        across = None if on_diagonal else np.stack([(block * counts[slice(*rows), None]).sum(axis=0) for block in blocks])
    diagonal = np.diagonal(blocks, axis1=1, axis2=2).astype(np.float64) if on_diagonal else None
    return BlockSums(rows, columns, along, across, diagonal)


@dataclass(frozen=True)
class KernelSums:
    """The sums of one raw kernel over the training rows that its normalisation needs; ``total`` is the sum of all entries.

    ``counts``, ``(n,)``, is the number of times that each row counts [default: once]. A row that counts twice acts as two rows; a row that
    counts 0 times is ignored.
    """

    trace: float
    diagonal: Array
    row_sums: Array
    total: float
    counts: Array | None = None

    @property
    def n(self) -> float:
        """Number of rows, each counted as often as ``counts`` says."""
        return len(self.diagonal) if self.counts is None else float(self.counts.sum())

    @classmethod
    def of(cls, gram: Array) -> KernelSums:
        """Return the sums of a whole Gram matrix (n, n)."""
        n = len(gram)
        return kernel_sums(n, [block_sums(gram[None], (0, n), (0, n))])[0]

    @classmethod
    def of_diagonals(cls, diagonals: Array, counts: Array | None = None) -> list[KernelSums]:
        """Return the sums of kernels whose normalisation needs the diagonal only (:func:`needs_diagonal_only`), from diagonals (k, n); row
        sums are NaN.
        """
        unknown = np.broadcast_to(np.nan, diagonals.shape[1:])
        return [cls(_counted_sum(diagonal, counts), diagonal, unknown, np.nan, counts) for diagonal in diagonals]


def _counted_sum(values: Array, counts: Array | None) -> float:
    return float((values if counts is None else values * counts).sum())


def kernel_sums(n: int, parts: Iterable[BlockSums], counts: Array | None = None) -> list[KernelSums]:
    """Return the sums of each kernel from the sums of all blocks of the upper triangle, added in the order given."""
    parts = list(parts)
    k = len(parts[0].row_sums) if parts else 0
    rows, diagonal = np.zeros((k, n)), np.full((k, n), np.nan)
    for part in parts:
        rows[:, slice(*part.rows)] += part.row_sums
        if part.column_sums is not None:
            rows[:, slice(*part.columns)] += part.column_sums
        if part.diagonal is not None:
            diagonal[:, slice(*part.rows)] = part.diagonal
    if np.isnan(diagonal).any():
        raise ValueError(f"none of the {len(parts)} blocks has the diagonal entry of row {int(np.isnan(diagonal).any(axis=0).argmax())}")
    pairs = zip(diagonal, rows)
    return [KernelSums(_counted_sum(entries, counts), entries, row, _counted_sum(row, counts), counts) for entries, row in pairs]


@dataclass(frozen=True)
class Normalization:
    """Centring and scaling of one kernel.

    * ``scale``: s.
    * ``row_mean`` ``(n,)`` and ``mean``: r and m, if centred.
    * ``diag_root`` ``(n,)``: q, for ``cosine``.

    A solver with a free bias needs only ``scale``, unless the kind is ``cosine``. ``counts`` of a centred kernel is as in
    :class:`KernelSums`.
    """

    record_name: ClassVar[str] = "Normalization"
    record_optional: ClassVar[tuple[str, ...]] = ("counts",)
    scale: float
    row_mean: Array | None
    mean: float
    diag_root: Array | None
    counts: Array | None = None

    @classmethod
    def of(cls, spec: KernelSpec, sums: KernelSums) -> Normalization:
        """Return the normalisation of a kernel. Raises ValueError for a trace or variance that is negative (K is not positive
        semi-definite) or not finite.
        """
        n = sums.n
        mean = sums.total / (n * n) if n else 0.0
        row_mean = sums.row_sums / n if spec.centre else None
        root = None
        if spec.normalize == "cosine":
            root = _row_lengths(sums.diagonal, row_mean, mean)
        return cls(_compute_scale(spec, sums, mean), row_mean, mean if spec.centre else 0.0, root, sums.counts if spec.centre else None)

    @property
    def only_scales(self) -> bool:
        """Whether the normalised kernel is the raw kernel times ``scale``."""
        return self.row_mean is None and self.diag_root is None

    def apply_block(self, block: Array, rows: slice | Array, columns: slice | Array) -> Array:
        """Normalise a raw block of training rows ``rows`` and ``columns`` in float64; return it in the block's type."""
        return self._apply(block, _select_rows(self.row_mean, rows), _select_rows(self.diag_root, rows), columns)

    def apply_diagonal(self, diagonal: Array) -> Array:
        """Return the normalised diagonal (n,) of the training rows."""
        values = diagonal if self.row_mean is None else diagonal - 2.0 * self.row_mean + self.mean
        return values * self.scale if self.diag_root is None else values * _safe_inverse(self.diag_root) ** 2 * self.scale

    def apply_test(
        self, block: Array, *, diagonal: Array | None = None, row_mean: Array | None = None, columns: slice | Array | None = None
    ) -> Array:
        """Return the normalised block of test rows against training rows.

        ``cosine`` needs ``diagonal``, which is k(x, x) of the test rows (:func:`blocks.gram_diagonal`). ``columns`` are the training rows
        in the block [default: all]. If they are only some training rows, centring needs ``row_mean``, the mean of each test row's raw
        entries over all training rows.
        """
        root = None
        if self.row_mean is not None and row_mean is None:
            if columns is not None or block.shape[1] != len(self.row_mean):
                raise ValueError("row_mean is missing: centring needs the mean of k(x, z) over all training rows z for each test row x")
            row_mean = block.mean(axis=1, dtype=np.float64) if self.counts is None else np.average(block, axis=1, weights=self.counts)
        if self.diag_root is not None:
            if diagonal is None:
                raise ValueError("diagonal is missing: normalize='cosine' needs k(x, x) of each test row x")
            root = _row_lengths(diagonal, row_mean if self.row_mean is not None else None, self.mean)
        return self._apply(block, row_mean if self.row_mean is not None else None, root, slice(None) if columns is None else columns)

    def _apply(self, block: Array, row_mean: Array | None, root: Array | None, columns: slice | Array) -> Array:
        values = block.astype(np.float64)
        if row_mean is not None and self.row_mean is not None:
            # Both means are added first, so that a symmetric block stays exactly symmetric.
            values -= (row_mean[:, None] + self.row_mean[columns][None, :]) - self.mean
        if root is not None and self.diag_root is not None:
            values *= _safe_inverse(root)[:, None] * _safe_inverse(self.diag_root[columns])[None, :]
        values *= self.scale
        return values.astype(block.dtype, copy=False)


def make_normalizations(specs: Sequence[KernelSpec], sums: Sequence[KernelSums]) -> list[Normalization]:
    return [Normalization.of(spec, one) for spec, one in zip(specs, sums, strict=True)]


def leave_out_idle(norms: Sequence[Normalization], counts: Array | None) -> list[Normalization]:
    """Return normalisations that place rows with count zero at the origin: all entries of these rows become zero, however large."""
    if counts is None or counts.all():
        return list(norms)
    roots = [np.where(counts > 0, 1.0 if norm.diag_root is None else norm.diag_root, 0.0) for norm in norms]
    return [replace(norm, diag_root=root) for norm, root in zip(norms, roots, strict=True)]


def needs_diagonal_only(spec: KernelSpec) -> bool:
    """Return whether a kernel's normalisation follows from its diagonal alone."""
    return not spec.centre and spec.normalize != "multiplicative"


def _select_rows(vector: Array | None, rows: slice | Array) -> Array | None:
    return None if vector is None else vector[rows]


def _safe_inverse(root: Array) -> Array:
    return np.divide(1.0, root, out=np.zeros_like(root), where=root > 0.0)


def _row_lengths(diagonal: Array, row_mean: Array | None, mean: float) -> Array:
    """Return the lengths of rows in feature space, after centring if row means are given."""
    left = diagonal if row_mean is None else diagonal - 2.0 * row_mean + mean
    return np.sqrt(np.where(left > ROUND_OFF_SHARE * np.abs(diagonal), left, 0.0))


def _compute_scale(spec: KernelSpec, sums: KernelSums, mean: float) -> float:
    if spec.normalize in ("none", "cosine"):
        return 1.0
    n = sums.n
    left = sums.trace - n * mean if spec.centre or spec.normalize == "multiplicative" else sums.trace
    if not np.isfinite(left) or left < -1e-6 * abs(sums.trace) or sums.trace < 0.0:
        raise ValueError(f"kernel {spec} is not positive semi-definite: over {n} rows it has trace {sums.trace:g} and mean {mean:g}")
    if left <= ROUND_OFF_SHARE * sums.trace:
        return 0.0
    return 1.0 / left if spec.normalize == "unit_trace" else n / left
