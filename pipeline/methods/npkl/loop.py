r"""Non-parametric kernel learning (Zhuang, thesis, 2011, chapter 3): a kernel matrix from constraints on pairs and a neighbour graph.

.. math::

    \min_{K \succeq 0, \; \mathrm{tr} K^p \le B} \mathrm{tr}(LK) + C \sum_{(i,j)} \ell(T_{ij} K_{ij}),

L the normalised Laplacian of the graph, T the constraints, the sum over both orders of each pair. A step is one eigendecomposition of
:math:`A = \alpha \circ T - L`; see :mod:`gramplane.kernels.spectral.dual_ascent`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.eigen.block_lanczos import dense_bytes
from ....kernels.eigen.operator import SymmetricOperator
from ....kernels.eigen.positive_part import normalized_laplacian
from ....kernels.spectral.dual_ascent import Evaluator, SpectralState, advance_ascent, begin_ascent, kernel_at, progress_figures
from ....kernels.spectral.neighbors import MAX_DENSE_BASIS_ROWS, count_components, neighbour_graph, smooth_basis
from ....kernels.spectral.pair_losses import EntryTerms
from ....kernels.spectral.problem import Evaluation, PairConstraints, SpectralProblem, select_random_pairs, select_uncertain_pairs
from ...core.memory import Item, total_bytes
from ...core.result import Step
from ...grams.eigen_blocks import worker_engine
from ...grams.eigen_plan import EigenPlan, dense_matrix_item
from ...grams.neighbours import nearest_neighbours, squared_distances
from ...records.context import RunContext
from .config import NPKLConfig

WIDTH_PAIRS = 2000  # pairs of rows whose median distance is the width of the kernel that selects constraints


def eigenpairs_item(n: int, columns: float, rank: float) -> Item:
    """Return what eigenpairs of n rows take, whose number shows on the way, with the eigensolver's block of columns."""
    return "eigenpairs, here one", int(n * (8 * columns + 16 * rank) + 40 * columns**2)


@dataclass(frozen=True)
class Setting:
    """What a fit learns from: the constraints in use, the dual problem, rows without a neighbour, and parts of the graph."""

    constraints: PairConstraints
    problem: SpectralProblem
    isolated: np.ndarray
    components: int


class NPKLLoop:
    """The ascent on the rows of a context's data, with ``n_neighbors`` in the graph, less than the rows.

    ``seed`` is that of random selections and of the eigensolver's first block.
    """

    state_type = SpectralState

    def __init__(self, config: NPKLConfig, constraints: PairConstraints, n_neighbors: int, seed: int) -> None:
        self.config, self.given, self.n_neighbors, self.seed = config, constraints, n_neighbors, seed
        self._setting: Setting | None = None
        self._evaluator = Evaluator()

    def given_items(self, n: int) -> tuple[Item, ...]:
        """Return what the driver holds whatever the rank: graph, constraints, and a base."""
        base = self.config.base or 0
        found = dense_bytes(n) if base and n <= MAX_DENSE_BASIS_ROWS else 0
        return (
            ("graph of neighbours, its Laplacian and the matrix of a step", 200 * n * self.n_neighbors),
            ("constraints, their multipliers and entries", 160 * self.given.size),
            ("base, and how it is found", 24 * n * base + found),
        )

    def judged_pairs(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the pairs of rows whose distances decide on constraints; ``None`` where all are used."""
        return None if self.config.selection is None else judged_pairs(self.given, np.random.default_rng(self.seed))

    def driver_items(self, n: int, memory: int) -> tuple[Item, ...]:
        """Return what the driver holds, of the eigenpairs the least there can be: their number r shows only as they are found."""
        solver = self.eigen_plan(n, memory)
        return (*self.given_items(n), dense_matrix_item(self.config.base or 0) if solver is None else solver.least_item())

    def eigen_plan(self, n: int, memory: int, here: bool = True) -> EigenPlan | None:
        """Return what is known of the eigensolver in a driver of so many bytes, ``here`` if passes run in it; ``None`` on a base, whose
        matrix is small and dense.
        """
        if self.config.base is not None:
            return None
        entries = (2 * self.n_neighbors + 1) * n + 2 * self.given.size
        left = memory - total_bytes(self.given_items(n))
        return EigenPlan(n, self._rank_at_most(n), entries, eigenpairs_item, left, here, adds=self._has_proximal_steps)

    @property
    def _has_proximal_steps(self) -> bool:
        """Whether the cap may be idle, so that a step goes on from the kernel of an earlier one."""
        return self.config.loss != "linear" and self.config.G is None

    def _rank_at_most(self, n: int) -> int:
        """Return how many positive eigenvalues A has at most. L takes some away; a pair adds one to A, and all lie on constrained rows."""
        if self._has_proximal_steps:
            return n  # they add those of earlier kernels
        return min(self.given.size, int(np.count_nonzero(self.given.counts)))

    def setting(self, ctx: RunContext) -> Setting:
        """Return graph, constraints and problem: a function of data and parameters, made when first asked for."""
        if self._setting is None:
            config = self.config
            graph: Any = neighbour_graph(nearest_neighbours(ctx, self.n_neighbors).ids, config.graph)
            laplacian = normalized_laplacian(graph)
            pairs = select_constraints(config, self.given, ctx, self.seed)
            ctx.emit({"event": "phase", "phase": f"graph of {graph.nnz // 2} edges, {pairs.size} constraints"})
            goal = np.zeros(pairs.size) if config.loss == "linear" else np.ones(pairs.size)
            terms, cap = EntryTerms(pairs.n, pairs.rows, pairs.cols, pairs.signs), config.B if config.G is None else None
            basis = None if config.base is None else smooth_basis(laplacian, config.base)
            budget, operator = ctx.driver_memory - total_bytes(self.given_items(pairs.n)), SymmetricOperator(sp.csr_array(-laplacian))
            engine = worker_engine(ctx, pairs.n, budget, keeps_blocks=config.loss != "linear")
            weights = (config.loss, config.C, config.p, cap, config.G)
            problem = SpectralProblem(operator, terms, goal, *weights, basis, self.seed, budget, engine)
            self._setting = Setting(pairs, problem, np.diff(graph.indptr) == 0, count_components(graph))
        return self._setting

    def init(self, ctx: RunContext) -> SpectralState:
        """Return the start: alpha = C, whose kernel is that of the linear loss."""
        problem = self.setting(ctx).problem
        return begin_ascent(problem, np.full(problem.terms.size, self.config.C))

    def step(self, state: SpectralState, ctx: RunContext) -> Step[SpectralState]:
        """Do one eigendecomposition and move."""
        problem = self.setting(ctx).problem
        state = advance_ascent(problem, state, tol=self.config.tol, max_iter=self.config.max_iter, evaluator=self._evaluator)
        return Step(state, progress_figures(problem, state))

    def kernel(self, state: SpectralState, ctx: RunContext) -> Evaluation:
        """Return the learnt kernel."""
        return kernel_at(self.setting(ctx).problem, state, tol=self.config.tol, evaluator=self._evaluator)


def select_constraints(config: NPKLConfig, pairs: PairConstraints, ctx: RunContext, seed: int) -> PairConstraints:
    """Return the constraints that are used (section 3.4 of the thesis); the kernel that judges certainty is a Gaussian."""
    if config.selection is None:
        return pairs
    rows = config.n_select or -(-int(np.count_nonzero(pairs.counts)) // 2)
    rng = np.random.default_rng(seed)
    active = select_uncertain_pairs(pairs, gaussian_at(ctx, pairs, rng), rows)
    return active if config.selection == "active" else select_random_pairs(pairs, active.size, rng)


def gaussian_at(ctx: RunContext, pairs: PairConstraints, rng: np.random.Generator) -> np.ndarray:
    """Return ``exp(-||x_i - x_j||^2 / m)`` at constrained pairs, m the median over pairs of rows drawn at random."""
    squares = squared_distances(ctx, *judged_pairs(pairs, rng))
    width = float(np.median(squares[pairs.size :]))
    return np.exp(-squares[: pairs.size] / (width if width > 0 else 1.0))


def judged_pairs(pairs: PairConstraints, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of rows whose distances decide on constraints: those of constraints, and some drawn at random."""
    i, j = rng.integers(0, pairs.n, (2, WIDTH_PAIRS))
    j = np.where(i == j, (j + 1) % pairs.n, j)
    return np.concatenate([pairs.rows, i]), np.concatenate([pairs.cols, j])
