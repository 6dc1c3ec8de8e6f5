r"""Non-parametric kernel learning (Zhuang, thesis, 2011, chapter 3): a kernel matrix from constraints on pairs and a neighbour graph.

.. math::

    \min_{K \succeq 0, \; \mathrm{tr} K^p \le B} \mathrm{tr}(LK) + C \sum_{(i,j)} \ell(T_{ij} K_{ij}),

with L the normalised Laplacian of the graph, T the constraints, and the sum over both orders of each pair. A step is one
eigendecomposition of :math:`A = \alpha \circ T - L`; see :mod:`gramplane.kernels.spectral.dual_ascent`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.eigen.block_lanczos import dense_bytes
from ....kernels.eigen.operator import SymmetricOperator
from ....kernels.eigen.positive_part import normalized_laplacian
from ....kernels.spectral.dual_ascent import Evaluator
from ....kernels.spectral.neighbors import MAX_DENSE_BASIS_ROWS, count_components, neighbour_graph, smooth_basis
from ....kernels.spectral.pair_losses import EntryTerms
from ....kernels.spectral.problem import PairConstraints, SpectralProblem, select_random_pairs, select_uncertain_pairs
from ...core.memory import Item, driver_plan, total_bytes
from ...core.resources import Resources
from ...grams.eigen_blocks import worker_engine
from ...grams.eigen_plan import EigenPlan, dense_matrix_item
from ...grams.neighbours import nearest_neighbours, plan_distances, plan_neighbours, squared_distances
from ...passes.blocks import Blocks
from ...records.data_set import Reads
from .config import NPKLConfig

WIDTH_PAIRS = 2000  # pairs of rows whose median distance is the width of the kernel that selects constraints


def eigenpairs_item(n: int, columns: float, rank: float) -> Item:
    """Return the memory item of the eigenpairs of n rows and of the eigensolver's block of columns. The number of eigenpairs is not known
    in advance.
    """
    return "eigenpairs, here one", int(n * (8 * columns + 16 * rank) + 40 * columns**2)


@dataclass(frozen=True)
class Setting:
    """Data of a fit.

    * ``constraints``: the constraints in use.
    * ``problem``: the dual problem.
    * ``isolated``: rows without a neighbour.
    * ``components``: number of connected components of the graph.
    """

    constraints: PairConstraints
    problem: SpectralProblem
    isolated: np.ndarray
    components: int


@dataclass(frozen=True)
class NPKLInputs(Reads):
    """Rows, and constraints on pairs of them: triples ``(m, 3)`` i, j, +1 or -1, or a sparse matrix."""

    data: Blocks
    constraints: Any


@dataclass(eq=False)
class NPKLProblem:
    """The dual ascent on the rows of a fit; ``n_neighbors`` is smaller than the number of rows."""

    config: NPKLConfig
    inputs: NPKLInputs
    given: PairConstraints
    n_neighbors: int
    planned: Resources  # where it was made; its seed is that of random selections and of the eigensolver's first block

    def __post_init__(self) -> None:
        self.evaluator = Evaluator()
        self._setting: Setting | None = None

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The pass that finds the graph, and where the eigensolver keeps its block of columns. The number of columns of the block, and thus
        the memory of a task, is not known in advance.
        """
        data, solver = self.inputs.data, self._solver
        neighbours, others = plan_neighbours(data, self.n_neighbors), total_bytes(self._given_items())
        step = neighbours["task_bytes"]
        if self.config.selection is not None:
            pairs = judged_pairs(self.given, np.random.default_rng(self.planned.seed))
            step = max(step, plan_distances(data, *pairs)["task_bytes"])
        return {
            **neighbours,
            **({"task_bytes": step} if solver is None else solver.task_figures(step)),
            **driver_plan(self.driver_items()),
            **({"eigensolver": "in this process, on the base"} if solver is None else solver.describe(others)),
            "n_rows": data.n_rows,
            "n_neighbors": self.n_neighbors,
            "constraints": self.given.size,
            "iterations_at_most": 1 if self.config.loss == "linear" else self.config.max_iter,
        }

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        judged = () if self.config.selection is None else ("distances of constrained pairs",)
        return ("neighbours", *judged, *(() if self._solver is None else self._solver.work()))

    def _given_items(self) -> tuple[Item, ...]:
        """Return the memory of the driver that does not depend on the rank: graph, constraints, and base of smooth functions."""
        n, base = self.inputs.data.n_rows, self.config.base or 0
        found = dense_bytes(n) if base and n <= MAX_DENSE_BASIS_ROWS else 0
        return (
            ("graph of neighbours, its Laplacian and the matrix of a step", 200 * n * self.n_neighbors),
            ("constraints, their multipliers and entries", 160 * self.given.size),
            ("base, and how it is found", 24 * n * base + found),
        )

    def driver_items(self) -> tuple[Item, ...]:
        """Return the memory of the driver, for the smallest possible number of eigenpairs; the final number is not known in advance."""
        solver = self._solver
        return (*self._given_items(), dense_matrix_item(self.config.base or 0) if solver is None else solver.least_item())

    @property
    def _budget(self) -> int:
        return self.planned.driver_memory - total_bytes(self._given_items())

    @property
    def _solver(self) -> EigenPlan | None:
        """Plan of the eigensolver; None on a base, whose matrix is small and dense."""
        if self.config.base is not None:
            return None
        # A proximal step, where the cap may be idle, adds the eigenvalues of earlier kernels. Else L takes some away from those of a pair,
        # which adds one to A, and all lie on constrained rows.
        n, adds = self.inputs.data.n_rows, self.config.loss != "linear" and self.config.G is None
        rank = n if adds else min(self.given.size, int(np.count_nonzero(self.given.counts)))
        entries, is_here = (2 * self.n_neighbors + 1) * n + 2 * self.given.size, self.planned.executor.kind == "sync"
        return EigenPlan(n, rank, entries, eigenpairs_item, self._budget, is_here, adds=adds)

    def setting(self, resources: Resources) -> Setting:
        """Return graph, constraints and problem. They follow from data and parameters, and are computed at the first access."""
        if self._setting is None:
            config, data = self.config, self.inputs.data
            graph: Any = neighbour_graph(nearest_neighbours(data, resources, self.n_neighbors).ids, config.graph)
            laplacian = normalized_laplacian(graph)
            pairs = select_constraints(config, self.given, data, resources)
            resources.emit({"event": "phase", "phase": f"graph of {graph.nnz // 2} edges, {pairs.size} constraints"})
            goal = np.zeros(pairs.size) if config.loss == "linear" else np.ones(pairs.size)
            terms, cap = EntryTerms(pairs.n, pairs.rows, pairs.cols, pairs.signs), config.B if config.G is None else None
            basis = None if config.base is None else smooth_basis(laplacian, config.base)
            operator, weights = SymmetricOperator(sp.csr_array(-laplacian)), (config.loss, config.C, config.p, cap, config.G)
            engine = worker_engine(resources, pairs.n, self._budget, keeps_blocks=config.loss != "linear")
            problem = SpectralProblem(operator, terms, goal, *weights, basis, resources.seed, self._budget, engine)
            self._setting = Setting(pairs, problem, np.diff(graph.indptr) == 0, count_components(graph))
        return self._setting


def select_constraints(config: NPKLConfig, pairs: PairConstraints, data: Blocks, resources: Resources) -> PairConstraints:
    """Return the selected constraints (section 3.4 of the thesis); a Gaussian kernel measures certainty."""
    if config.selection is None:
        return pairs
    rows = config.n_select or -(-int(np.count_nonzero(pairs.counts)) // 2)
    rng = np.random.default_rng(resources.seed)
    active = select_uncertain_pairs(pairs, gaussian_at(data, resources, pairs, rng), rows)
    return active if config.selection == "active" else select_random_pairs(pairs, active.size, rng)


def gaussian_at(data: Blocks, resources: Resources, pairs: PairConstraints, rng: np.random.Generator) -> np.ndarray:
    """Return ``exp(-||x_i - x_j||^2 / m)`` at constrained pairs, where m is the median of the squared distances of random pairs of rows."""
    squares = squared_distances(data, resources, *judged_pairs(pairs, rng))
    width = float(np.median(squares[pairs.size :]))
    return np.exp(-squares[: pairs.size] / (width if width > 0 else 1.0))


def judged_pairs(pairs: PairConstraints, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of rows whose distances determine the selection: the pairs of constraints, and random pairs."""
    i, j = rng.integers(0, pairs.n, (2, WIDTH_PAIRS))
    j = np.where(i == j, (j + 1) % pairs.n, j)
    return np.concatenate([pairs.rows, i]), np.concatenate([pairs.cols, j])
