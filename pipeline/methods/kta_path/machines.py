"""Machines along the kernel selection path: the kernel of a point, one or many at a time, and the support vector machine on it.

The kernel at p is ``K(p) = (n / sum eta) sum_i eta_i(p) K_i / trace(H K_i H)``: its centred trace is n, so C has its usual scale. Centring
itself is left to the bias. Where the driver cannot hold n x n entries, solvers ask for squares and products by passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.alignment.path_cells import Cells, cut_cells
from ....kernels.svm.dual import DenseGram, Gram, Scratch
from ....kernels.svm.smo import solve_smo
from ...grams.given import GivenGrams
from ...grams.grams import Grams
from ...inputs.kernels import resolved_kernels
from ...inputs.labels import Inputs, dual_problems
from ...records.context import RunContext
from .config import KTAPathConfig
from .kernel_sum_pass import CellSums, FeatureGram, feature_kernel_sum, fits

TOL = 1e-3
"""Tolerance of a machine, LIBSVM's."""

CELL_TOL = 3e-4
"""How far, in trace norm, the kernel of a machine along the path may be from the one at exactly its p."""

CELL_SHARE = 0.5
"""Share of the driver's memory that the matrices of cells may take."""

TABLE_COPIES = 32
"""Bytes per point and kernel while cells are cut: the weights, sorted, and their errors."""

FEW = 2
"""Up to so many points are summed one by one."""


@dataclass(frozen=True)
class Kernels:
    """What the kernels' sums are made of.

    Attributes
    ----------
    alignments, traces, widths
        ``(k,)`` figures of every kernel.
    """

    alignments: np.ndarray
    traces: np.ndarray
    widths: np.ndarray

    @property
    def scales(self) -> np.ndarray:
        """Multipliers that make the centred trace one; 0 for a kernel that is constant."""
        return np.divide(1.0, self.traces, out=np.zeros_like(self.traces), where=self.traces > 0)


@dataclass(frozen=True)
class PathPoint:
    """The machine at one point.

    Attributes
    ----------
    p
        Norm.
    active, share
        Kernels, and their weights scaled to sum to the number of rows.
    beta, bias
        Coefficients ``(n_machines, n_samples)`` and ``(n_machines,)``.
    gap, objective
        Of all machines together.
    values
        ``(n_machines, n_samples)`` decision values of all rows.
    """

    p: float
    active: np.ndarray
    share: np.ndarray
    beta: np.ndarray
    bias: np.ndarray
    gap: float
    objective: float
    values: np.ndarray


def total_weight(inputs: Inputs) -> float:
    """Return how many rows the weights count for."""
    return float(inputs.data.n_rows if inputs.sample_weight is None else inputs.sample_weight.sum())


class PathTrainer:
    """Trains machines at points of one path.

    Parameters
    ----------
    config
        Parameters; C among them.
    inputs, ctx
        Training data.
    kernels
        Figures of the kernels.
    """

    def __init__(self, config: KTAPathConfig, inputs: Inputs, ctx: RunContext, kernels: Kernels) -> None:
        self.config, self.inputs, self.ctx, self.kernels = config, inputs, ctx, kernels
        self.problems = dual_problems(config, inputs)
        self._given: Grams | None = None
        self._scratch = Scratch()

    def at(self, p: float, active: np.ndarray, eta: np.ndarray, warm: np.ndarray | None = None) -> PathPoint:
        """Return the machine with weights ``eta`` of the kernels ``active``; ``warm`` (n_machines, n_samples) is where it starts."""
        share = self._share(eta)
        return self._solved(p, active, share, self._gram(active, share), warm)

    def along(self, p: np.ndarray, weights: sp.csr_array, warm: np.ndarray | None = None) -> Iterator[PathPoint]:
        """Yield the machine at every point, each started from the one before.

        Kernels of like alignment share a few matrices (:mod:`gramplane.kernels.alignment.path_cells`), as many points at a time as the
        driver has room for; a machine's weights are those of its kernel, to which prediction keeps.
        """
        for point in self._points(p, weights):
            active, share, gram = point[1:]
            found = self._solved(point[0], active, share, gram, warm)
            warm = found.beta
            yield found

    def _points(self, p: np.ndarray, weights: sp.csr_array) -> Iterator[tuple[float, np.ndarray, np.ndarray, Gram]]:
        count = len(p)
        apart = isinstance(self.inputs.data, GivenGrams) or not fits(self.ctx.data.n_rows, self.ctx.driver_memory) or count <= FEW
        cells = None if apart else self._cells(weights)
        if apart:
            for k in range(count):
                span = slice(weights.indptr[k], weights.indptr[k + 1])
                active, share = weights.indices[span].astype(np.int64), self._share(weights.data[span])
                yield float(p[k]), active, share, self._gram(active, share)
        elif cells is None:
            half = count // 2
            yield from self._points(p[:half], weights[:half])
            yield from self._points(p[half:], weights[half:])
        else:
            sums = CellSums(self.ctx, cells, self.kernels.scales, self.kernels.widths)
            for k in range(count):
                active, eta = cells.weights(k)
                factor = total_weight(self.inputs) / eta.sum()
                yield float(p[k]), active, factor * eta, DenseGram(sums.at(k, factor), self._scratch)

    def _cells(self, weights: sp.csr_array) -> Cells | None:
        """Return cells for all these points, or None if they or the table of weights would not fit."""
        held = np.unique(weights.indices).astype(np.int64)
        if TABLE_COPIES * (len(weights.indptr) - 1) * len(held) > CELL_SHARE * self.ctx.driver_memory:
            return None
        most = CellSums.most(self.ctx, CELL_SHARE, 4 if self.kernels.widths.any() else 8)
        cells = cut_cells(self.kernels.alignments[held], weights[:, held].toarray(), tol=CELL_TOL, most=most)
        return None if cells is None else replace(cells, members=held[cells.members])

    def _share(self, eta: np.ndarray) -> np.ndarray:
        return eta * (total_weight(self.inputs) / eta.sum()) if len(eta) else eta

    def _gram(self, active: np.ndarray, share: np.ndarray) -> Gram:
        """Return ``sum_i share_i K_i / trace(H K_i H)`` over the active kernels, not centred."""
        ctx, weights = self.ctx, share * self.kernels.scales[active]
        if isinstance(self.inputs.data, GivenGrams):
            theta = np.zeros(len(self.kernels.traces))
            theta[active] = weights
            self._given = self._given or given_grams(ctx, self.inputs)
            return self._given.combine(theta)
        if len(active) and not fits(ctx.data.n_rows, ctx.driver_memory):
            return FeatureGram(ctx, active, weights, self.kernels.widths[active])
        return DenseGram(feature_kernel_sum(ctx, active, weights, self.kernels.widths[active]), self._scratch)

    def _solved(self, p: float, active: np.ndarray, share: np.ndarray, gram: Gram, warm: np.ndarray | None) -> PathPoint:
        starts: list[Any] = [None] * len(self.problems) if warm is None else list(warm)
        found = [solve_smo(gram, problem, warm=start, tol=TOL) for problem, start in zip(self.problems, starts, strict=True)]
        beta, bias = np.stack([solution.beta for solution in found]), np.array([solution.bias for solution in found])
        values = np.stack([gram.matvec(row) for row in beta]) + bias[:, None]
        gap, objective = sum(solution.gap for solution in found), sum(solution.upper for solution in found)
        return PathPoint(p, active, share, beta, bias, float(gap), float(objective), values)


def given_grams(ctx: RunContext, inputs: Inputs) -> Grams:
    """Return access to matrices that are given, as they are."""
    return Grams(ctx, resolved_kernels("precomputed", inputs.data, "none"))


def machine_points(counts: np.ndarray, wanted: int) -> np.ndarray:
    """Return at which points of a path machines are trained: evenly from the first to the last that has an active kernel."""
    last = np.flatnonzero(counts)
    if not len(last):
        return np.zeros(0, np.int64)
    if wanted == 1:
        return last[-1:]
    return np.unique(np.round(np.linspace(0, last[-1], wanted)).astype(np.int64))
