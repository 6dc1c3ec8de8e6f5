"""SVMs along the kernel selection path: sums of kernels for one or many points at a time, training, and the model of one point.

With Gaussian kernels, a fit by passes takes 12 to 52 times as long as with the matrix in memory. SVMs along the path take 2.6 to 2.8 times
as long with a sum for each point as with cells (``CellSums``). With linear kernels, passes and separate sums can be faster, but the
results differ in their last bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.alignment.path import Cells, cut_into_cells
from ....kernels.grams.normalization import Normalization
from ....kernels.svm.decomposition import solve_decomposition
from ....kernels.svm.dual import DenseGram, Gram, Scratch
from ....kernels.svm.smo import solve_smo
from ....kernels.target_unit import LABELS, TargetUnit
from ....storage import BlockStore, MemoryBlocks
from ...core.resources import Resources
from ...grams.given import GivenGrams
from ...grams.grams import Grams
from ...inputs.kernels import resolved_kernels
from ...inputs.labels import Inputs, dual_problems
from ...models.kernel import ROWS, FeatureKernels, KernelModel, spans
from ...passes.blocks import scale_of
from ...passes.scaling import scaled
from .config import KTAPathConfig
from .kernel_sum_pass import CellSums, FeatureGram, feature_kernel_sum, matrix_fits

MACHINE_TOL = 1e-3  # tolerance of a machine, LIBSVM's
CELL_TOL = 3e-4  # how far, in trace norm, the kernel of a machine along the path may be from the one at exactly its p
CELL_SHARE = 0.5  # share of the driver's memory that the matrices of cells may take
TABLE_COPIES = 32  # bytes per point and kernel while cells are cut: the weights, sorted, and their errors
MAX_SINGLE_POINTS = 2  # up to this many points are summed one by one


SharedSums = tuple[tuple[float, ...], Cells, CellSums]
"""What all trainers of SVMs on one path share: the points of the path, their cells, and the matrices of the cells."""


@dataclass(frozen=True)
class Kernels:
    """Alignments, widths and traces of the kernels that are summed, ``(k,)`` each."""

    alignments: np.ndarray
    traces: np.ndarray
    widths: np.ndarray

    @property
    def scales(self) -> np.ndarray:
        """Factors that scale the centred trace to 1; 0 for a constant kernel."""
        return np.divide(1.0, self.traces, out=np.zeros_like(self.traces), where=self.traces > 0)


@dataclass(frozen=True)
class PathPoint:
    """The SVM at one point of the path.

    * ``active``, ``share``: the active kernels and their weights, scaled to sum to the number of rows.
    * ``beta``, ``bias``: signed coefficients ``(n_machines, n_samples)``, and intercepts, in the solver's unit.
    * ``values``: decision values ``(n_machines, n_samples)``, in the unit of the target.
    * ``gap``, ``objective``: summed over the one-vs-rest models, in the solver's unit.
    * ``unit``: unit of a real target.
    """

    p: float
    active: np.ndarray
    share: np.ndarray
    beta: np.ndarray
    bias: np.ndarray
    gap: float
    objective: float
    values: np.ndarray
    unit: TargetUnit = LABELS


def total_weight(inputs: Inputs) -> float:
    """Return the sum of the row weights."""
    return float(inputs.data.n_rows if inputs.sample_weight is None else inputs.sample_weight.sum())


class PathTrainer:
    """Trains SVMs at points of one path."""

    def __init__(self, config: KTAPathConfig, inputs: Inputs, resources: Resources, kernels: Kernels) -> None:
        self.config, self.inputs, self.resources, self.kernels, self._data = config, inputs, resources, kernels, inputs.data
        self.problems = dual_problems(config, inputs, config.epsilon)
        self._grams: Grams | None = None
        self.sums: SharedSums | None = None
        self._scratch = Scratch()

    def at(self, p: float, active: np.ndarray, eta: np.ndarray, warm: np.ndarray | None = None) -> PathPoint:
        """Return the SVM with weights ``eta`` of the kernels ``active``; ``warm`` (n_machines, n_samples) has its initial coefficients."""
        share = self._share(eta)
        return self._solve(p, active, share, self._gram(active, share), warm)

    def along(self, p: np.ndarray, weights: sp.csr_array, warm: np.ndarray | None = None) -> Iterator[PathPoint]:
        """Yield the SVM at every point, each started from the previous one. Kernels of similar alignment share a few matrices
        (:mod:`gramplane.kernels.alignment.path`), for as many points at a time as the driver's memory allows. The reported weights are
        those of the kernel that is used for both training and prediction.
        """
        for point in self._points(p, weights):
            machine = self._solve(*point, warm)
            warm = machine.beta
            yield machine

    def _points(self, p: np.ndarray, weights: sp.csr_array) -> Iterator[tuple[float, np.ndarray, np.ndarray, Gram]]:
        count, fits = len(p), matrix_fits(self.inputs.data.n_rows, self.inputs.data.n_cols, self.resources.driver_memory)
        one_by_one = isinstance(self.inputs.data, GivenGrams) or not fits or count <= MAX_SINGLE_POINTS
        known = self.sums if self.sums is not None and self.sums[0] == tuple(p.tolist()) else None
        cells = None if one_by_one else self._cells(weights) if known is None else known[1]
        if one_by_one:
            for k in range(count):
                span = slice(weights.indptr[k], weights.indptr[k + 1])
                active, share = weights.indices[span].astype(np.int64), self._share(weights.data[span])
                yield float(p[k]), active, share, self._gram(active, share)
        elif cells is None:
            for half in (slice(count // 2), slice(count // 2, count)):
                yield from self._points(p[half], weights[half])
        else:
            sums = known[2] if known else CellSums(self._data, self.resources, cells, self.kernels.scales, self.kernels.widths)
            self.sums = tuple(p.tolist()), cells, sums
            for k in range(count):
                active, eta = cells.weights(k)
                factor = total_weight(self.inputs) / eta.sum()
                yield float(p[k]), active, factor * eta, DenseGram(sums.at(k, factor), self._scratch)

    def _cells(self, weights: sp.csr_array) -> Cells | None:
        """Return cells for all points, or None if the cells or the table of weights would not fit in memory."""
        active = np.unique(weights.indices).astype(np.int64)
        if TABLE_COPIES * (len(weights.indptr) - 1) * len(active) > CELL_SHARE * self.resources.driver_memory:
            return None
        max_count = CellSums.max_count(self.inputs.data, self.resources, CELL_SHARE, 4 if self.kernels.widths.any() else 8)
        cells = cut_into_cells(self.kernels.alignments[active], weights[:, active].toarray(), tol=CELL_TOL, max_cells=max_count)
        return None if cells is None else replace(cells, members=active[cells.members])

    def _share(self, eta: np.ndarray) -> np.ndarray:
        return eta * (total_weight(self.inputs) / eta.sum()) if len(eta) else eta

    def _gram(self, active: np.ndarray, share: np.ndarray) -> Gram:
        """Return the uncentred ``sum_i share_i K_i / trace(H K_i H)`` over the active kernels."""
        data, weights = self.inputs.data, share * self.kernels.scales[active]
        if isinstance(self.inputs.data, GivenGrams):
            theta = np.zeros(len(self.kernels.traces))
            theta[active] = weights
            self._grams = self._grams or given_grams(self.inputs, self.resources)
            return self._grams.combine(theta)
        if len(active) and not matrix_fits(data.n_rows, data.n_cols, self.resources.driver_memory):
            return FeatureGram(data, self.resources, active, weights, self.kernels.widths[active])
        return DenseGram(feature_kernel_sum(data, self.resources, active, weights, self.kernels.widths[active]), self._scratch)

    def _solve(self, p: float, active: np.ndarray, share: np.ndarray, gram: Gram, warm: np.ndarray | None) -> PathPoint:
        starts: list[np.ndarray | None] = [None] * len(self.problems) if warm is None else list(warm)
        working = getattr(gram, "working", None)  # (matrices that are never whole are solved on some rows at a time)
        solve = partial(solve_decomposition, working=working) if working else solve_smo
        solutions = [solve(gram, problem, warm=start, tol=MACHINE_TOL) for problem, start in zip(self.problems, starts, strict=True)]
        beta, bias = np.stack([solution.beta for solution in solutions]), np.array([solution.bias for solution in solutions])
        unit = self.problems[0].unit
        values = unit.values(np.stack([gram.matvec(row) for row in beta]) + bias[:, None])
        gap, objective = sum(solution.gap for solution in solutions), sum(solution.upper for solution in solutions)
        return PathPoint(p, active, share, beta, bias, float(gap), float(objective), values, unit)


def given_grams(inputs: Inputs, resources: Resources) -> Grams:
    """Return access to the precomputed matrices, unchanged."""
    return Grams(inputs.data, resolved_kernels("precomputed", inputs.data, "none"), None, resources)


def machine_points(counts: np.ndarray, n_machines: int, last: int) -> np.ndarray:
    """Return the points of a path at which SVMs are trained: evenly spaced from the first to the last point with an active kernel. The
    nearest of these points is moved to ``last``, the point whose SVM predicts.
    """
    active = np.flatnonzero(counts)
    if not len(active):
        return active
    points = spread_points(int(active[-1]) + 1, n_machines)
    points[np.argmin(np.abs(points - last))] = last
    return points


def spread_points(n_points: int, count: int) -> np.ndarray:
    """Return ``count`` of ``n_points`` points, evenly spaced from the first to the last. If ``count`` is one, return the last point."""
    return np.unique(np.round(np.linspace(0, n_points - 1, count)).astype(np.int64)) if count > 1 else np.array([n_points - 1])


def machine_model(
    config: KTAPathConfig, inputs: Inputs, arrays: Mapping[str, np.ndarray], figures: Mapping[str, float], point: PathPoint
) -> KernelModel:
    """Return the SVM at a point as a model. The model stores the support vectors, restricted to the columns of active features; ``arrays``,
    together with traces and widths; and ``figures``.
    """
    data, active, traces = inputs.data, point.active, arrays["traces"][point.active]
    ids, precomputed = np.flatnonzero(np.any(point.beta != 0, axis=0)), isinstance(data, GivenGrams)
    if precomputed:
        theta = np.zeros((len(point.beta), len(arrays["traces"])))
        theta[:, active] = point.share
        norms = tuple(Normalization(1.0 / float(trace), None, 0.0, None) for trace in traces)
        fields: dict[str, Any] = {"theta": theta, "used": active, "norms": norms, "rows": None}
    else:
        fields = {"theta": np.tile(point.share, (len(point.beta), 1)), "used": np.arange(len(active)), "norms": ()}
        fields |= {"rows": chosen_rows(data, ids, active), "features": FeatureKernels(active, arrays["widths"][active], 1.0 / traces)}
        fields |= {"scale": scale_of(data, active), "row_scaled": data.scale.kind == "unit-row"}
    return KernelModel(
        params_json=config.model_dump_json(),
        classes_json=json.dumps(None if inputs.classes is None else list(inputs.classes)),
        kernels_json="[]",
        n_train=int(data.n_rows),
        n_features=int(data.n_rows if precomputed else data.n_cols),
        precomputed=precomputed,
        support_ids=ids,
        texts=(),
        beta=np.ascontiguousarray(point.beta[:, ids] * point.unit.size),
        intercepts=point.unit.values(point.bias),
        figures=point.unit.figures({**figures, "p": point.p, "gap": point.gap, "objective": point.objective}),
        arrays=dict(arrays),
        **fields,
    )


def score_name(model: KernelModel) -> str:
    """Return the name of the score along the path."""
    return "r2" if json.loads(model.classes_json) is None else "accuracy"


def weights_along(model: KernelModel) -> sp.csr_array:
    """Return the kernel weights at the points of the path, ``(points, k)``."""
    arrays = model.arrays
    indptr = np.concatenate([[0], np.cumsum(arrays["n_active"])])
    shape = (len(arrays["p_grid"]), len(arrays["alignments"]))
    return sp.csr_array((arrays["path_values"], arrays["path_indices"], indptr), shape=shape)


def chosen_rows(data: BlockStore | MemoryBlocks, ids: np.ndarray, columns: np.ndarray) -> np.ndarray | sp.csr_array:
    """Return the given rows of the given columns, scaled; sparse if the data are."""
    parts = []
    for lo, hi in spans(data.n_rows, ROWS):
        inside = ids[(ids >= lo) & (ids < hi)]
        if len(inside):
            factor = None if data.scale.row_factor is None else data.scale.row_factor[lo:hi]
            part = scaled(data.columns(columns, (lo, hi)), scale_of(data, columns), factor)
            parts.append((sp.csr_array(part) if sp.issparse(part) else part)[inside - lo])
    if not parts:
        return np.zeros((0, len(columns)))
    return sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)
