"""Social strength modelling (Zhuang: Kernel learning, thesis, 2011, chapter 7): weigh the views of users, then learn to rank pairs.

The first step makes the views comparable and weighs them by their alignment with the links; the next ones solve the logistic problem over
the training pairs (:mod:`gramplane.kernels.ranking.pair_ranking`), by rounds of Newton steps, or one import vector a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ....kernels.alignment.target_alignment import MatrixSums, solve_aligned_weights
from ....kernels.ranking.pair_ranking import ImportMachine, empty_machine, full_gap, import_factor, import_step, rank_pairs
from ....kernels.ranking.user_kernels import FactorGram, PairGram, pair_block, pair_diagonal, row_factors, similarity_features
from ....kernels.svm.dual import DenseGram, Gram
from ....storage import DataError
from ...core.result import Step
from ...grams.given import NEGATIVE, GivenGrams
from ...grams.lazy import LazyGrams
from ...grams.settings import GramSettings
from ...grams.weighted_sum import MATRIX_SHARE
from ...records.context import RunContext
from ...records.data_set import DataSet
from .block_pass import BlockViews
from .config import SocialConfig
from .links import Links
from .view_pass import Scaling, ViewGrams

FIRST_ROUND_STEPS = 16
"""Newton steps of the first round; every next one takes twice as many. A round starts from the best certified point of the one before,
which may lie behind its last step: many short rounds would not get anywhere."""

MAX_DENSE_PAIRS = 4096
"""Up to this many pairs their Gram matrix is in memory, which lets hard systems be factorised; beyond, products go over the users."""

LOOKUP_ENTRIES = 1 << 20  # entries of the links that are looked up at a time


@dataclass(frozen=True)
class SocialState:
    """State of a fit."""

    record_name: ClassVar[str] = "SocialState"
    iteration: int  # steps done: 1 for the weights, then rounds
    theta: np.ndarray  # (k,) weights of the views, l2 norm 1
    factors: np.ndarray  # (k, n): with the shifts they make the views
    shifts: np.ndarray  # (k,)
    alignment: float  # of the weighted sum with the links
    uniform: float  # of equal weights
    singles: np.ndarray  # (k,) alignments of the views
    chosen: np.ndarray  # (q,) import vectors; none where all pairs take part
    coef: np.ndarray  # (m,) of the pairs; of import vectors those of the problem over all pairs at the same values
    objective: float  # value of (7.3)
    gap: float  # how far it is above the least over all pairs at most
    newton_steps: int = 0
    stop: str | None = None  # "tol", "stalled", "max_iter", "n_import" or "import_tol"
    entries: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # (k, m) views at the pairs; none where matrices are here

    @property
    def scaling(self) -> Scaling:
        """What makes the views of the raw matrices."""
        return Scaling(self.factors, self.shifts)


class SocialLoop:
    """Weights of the views, then rounds over the training pairs; ``data`` are matrices that were given, in place of the run's data.

    ``by_blocks``: no matrix of all users is made; what the fit needs of the views comes by passes over blocks of them.
    """

    state_type = SocialState

    def __init__(
        self,
        config: SocialConfig,
        specs: Sequence[Any],
        settings: GramSettings,
        links: Links,
        data: GivenGrams | None = None,
        *,
        by_blocks: bool = False,
    ) -> None:
        self.config, self.specs, self.settings, self.links, self.data = config, tuple(specs), settings, links, data
        self.by_blocks = by_blocks
        self.grams = LazyGrams(lambda ctx: ViewGrams(ctx, self.specs, settings, centre=True), data)
        self.views = LazyGrams(lambda ctx: BlockViews(ctx, self.specs))
        self._gram: Gram | None = None
        self._weighted_views: np.ndarray | None = None
        self._machine: ImportMachine | None = None

    def init(self, ctx: RunContext) -> SocialState:
        """Return the state before the views are weighed."""
        k, m = len(self.specs), len(self.links.z)
        views = np.full(k, k**-0.5), np.zeros((k, 0)), np.zeros(k), 0.0, 0.0, np.zeros(k)
        # Without a coefficient every pair has the loss ln 2, and nothing is certified.
        return SocialState(0, *views, np.zeros(0, np.int64), np.zeros(m), float(np.log(2)), np.inf)

    def step(self, state: SocialState, ctx: RunContext) -> Step[SocialState]:
        """Weigh the views, or take a round over the pairs."""
        if not state.iteration:
            new, phase = (self._weigh_by_blocks if self.by_blocks else self._weigh_views)(state, ctx), "weights"
        elif self.config.n_import is None:
            new, phase = self._newton_round(state, ctx), "newton"
        else:
            new, phase = self._add_import(state, ctx), "import"
        new = replace(new, iteration=state.iteration + 1)
        metrics = {"phase": phase, "objective": new.objective, "gap": new.gap, "alignment": new.alignment}
        more = {"n_selected": int(np.count_nonzero(new.theta)), "n_import": len(new.chosen), "newton_steps": new.newton_steps}
        return Step(new, {**metrics, **more})

    def _newton_round(self, state: SocialState, ctx: RunContext) -> SocialState:
        config = self.config
        limit = min(FIRST_ROUND_STEPS << (state.iteration - 1), config.max_iter - state.newton_steps)
        fit = rank_pairs(self.gram(state, ctx), self.links.z, config.C, warm=state.coef, tol=config.tol, max_iter=limit)
        n_steps = state.newton_steps + fit.steps
        stop = "tol" if fit.converged else "max_iter" if n_steps >= config.max_iter else None
        if stop is None and fit.steps < limit and fit.gap >= state.gap:
            stop = "stalled"
        return replace(state, coef=fit.coef, objective=fit.objective, gap=fit.gap, newton_steps=n_steps, stop=stop)

    def _add_import(self, state: SocialState, ctx: RunContext) -> SocialState:
        gram, before = self.gram(state, ctx), self._import_machine(state, ctx)
        machine = import_step(gram, self.links.z, self.config.C, before, self._candidates(state, ctx))
        gap = full_gap(gram, self.links.z, self.config.C, machine)
        self._machine = machine
        stop = None
        if machine is before or before.objective - machine.objective < self.config.import_tol * before.objective:
            stop = "import_tol"
        elif gap <= self.config.tol * machine.objective:
            stop = "tol"
        elif len(machine.chosen) >= min(int(self.config.n_import or 0), len(self.links.z)):
            stop = "n_import"
        return replace(state, chosen=machine.chosen, coef=machine.dual, objective=machine.objective, gap=gap, stop=stop)

    def _candidates(self, state: SocialState, ctx: RunContext) -> np.ndarray:
        others = np.setdiff1d(np.arange(len(self.links.z)), state.chosen)
        count = self.config.n_candidates
        if count is None or len(others) <= count:
            return others
        return np.sort(np.random.default_rng([ctx.seed, state.iteration]).choice(others, count, replace=False))

    def _import_machine(self, state: SocialState, ctx: RunContext) -> ImportMachine:
        """Return the machine of a state: the one of the last step, or after a resume the same again."""
        last = self._machine
        if last is not None and np.array_equal(last.chosen, state.chosen):
            return last
        if not len(state.chosen):
            return empty_machine(self.links.z)
        factor = import_factor(self.gram(state, ctx), state.chosen)
        return ImportMachine(state.chosen, state.coef, state.objective, factor, factor.T @ state.coef)

    def coefficients(self, state: SocialState, ctx: RunContext) -> np.ndarray:
        """Return the coefficients of the pairs, ``(m,)``: zero but at import vectors where there are some."""
        return state.coef if self.config.n_import is None else self._import_machine(state, ctx).coefficients()

    def _weigh_views(self, state: SocialState, ctx: RunContext) -> SocialState:
        grams, links, config = self.grams(ctx), self.links, self.config
        scaling = self._find_scaling(grams)
        with_links = _add_target(grams.matrix_sums(scaling, links.known), self._target_products(grams, scaling), links)
        aligned = solve_aligned_weights(with_links.centred(config.alignment), uniform=config.weights == "uniform")
        state = replace(state, theta=aligned.weights, factors=scaling.factors, shifts=scaling.shifts)
        return replace(state, alignment=aligned.value, uniform=aligned.uniform, singles=aligned.singles)

    def _weigh_by_blocks(self, state: SocialState, ctx: RunContext) -> SocialState:
        views, links, m = self.views(ctx), self.links, len(self.links.z)
        if views.given:
            views.check_symmetric()
        upper = sp.triu(links.target, 1, format="coo")
        places = np.concatenate([links.pairs.T, np.stack([upper.row, upper.col]).astype(np.int64)], axis=1)
        maxima, sizes, raw = views.survey(places)
        _refuse_empty(sizes, ctx.data)
        factors = row_factors(maxima) if self.config.normalize == "row_max" else np.ones_like(maxima)
        shifts = self._find_shifts(views, factors)
        # No place is on the diagonal, where the shifts are.
        entries = raw * (0.5 * (factors[:, places[0]] + factors[:, places[1]]))
        products = 2.0 * (entries[:, m:] @ upper.data)
        with_links = _add_target(views.sums(factors, shifts, links.known), products, links)
        aligned = solve_aligned_weights(with_links.centred(self.config.alignment), uniform=self.config.weights == "uniform")
        state = replace(state, theta=aligned.weights, factors=factors, shifts=shifts, entries=np.ascontiguousarray(entries[:, :m]))
        return replace(state, alignment=aligned.value, uniform=aligned.uniform, singles=aligned.singles)

    def _find_shifts(self, views: BlockViews, factors: np.ndarray) -> np.ndarray:
        if self.config.normalize != "none":
            return np.maximum(-views.least_eigenvalues(factors), 0.0)
        if views.given:
            least, scale = views.least_eigenvalues(factors), views.largest_row_sum()
            if (least < -NEGATIVE * scale).any():
                worst = int(np.argmin(least))
                raise DataError(
                    f"view {worst} is not positive semi-definite: its least eigenvalue is {least[worst]:.3g}; normalize='row_max'"
                )
        return np.zeros(len(factors))

    def _find_scaling(self, grams: ViewGrams) -> Scaling:
        maxima, sizes = grams.extremes()
        _refuse_empty(sizes, grams.ctx.data)
        factors = row_factors(maxima) if self.config.normalize == "row_max" else np.ones_like(maxima)
        if self.config.normalize == "none":
            return Scaling(factors, np.zeros(len(maxima)))
        return Scaling(factors, np.maximum(-grams.least_eigenvalues(factors), 0.0))

    def _target_products(self, grams: ViewGrams, scaling: Scaling) -> np.ndarray:
        """Return the inner products of the views with the links beside the diagonal, ``(k,)``."""
        upper = sp.triu(self.links.target, 1, format="coo")
        total = np.zeros(len(self.specs))
        for lo in range(0, upper.nnz, LOOKUP_ENTRIES):
            part = slice(lo, lo + LOOKUP_ENTRIES)
            rows, cols = (ids[part].astype(np.int64) for ids in (upper.row, upper.col))
            total += 2.0 * (grams.view_entries(scaling, rows, cols) @ upper.data[part])
        return total

    def entries(self, state: SocialState, ctx: RunContext) -> np.ndarray:
        """Return the entries of the views at the training pairs, ``(k, m)``."""
        if self.by_blocks:
            return state.entries
        return self.grams(ctx).view_entries(state.scaling, *self.links.pairs.T)

    def kernel(self, state: SocialState, ctx: RunContext) -> np.ndarray:
        """Return the weighted sum of the views, float32 ``(n, n)``."""
        if self._weighted_views is None:
            self._weighted_views = self.grams(ctx).weighted(state.scaling, state.theta)
        return self._weighted_views

    def gram(self, state: SocialState, ctx: RunContext) -> Gram:
        """Return the Gram matrix of the training pairs."""
        if self._gram is None:
            self._gram = self._build_gram(state, ctx)
        return self._gram

    def _build_gram(self, state: SocialState, ctx: RunContext) -> Gram:
        kind, pairs = self.config.pair_kernel, self.links.pairs
        if kind == "similarity":
            return FactorGram(similarity_features(self.entries(state, ctx), state.theta, self.config.view_scale))
        kernel, m = self.kernel(state, ctx), len(pairs)
        if m > MAX_DENSE_PAIRS or 8 * m * m > MATRIX_SHARE * ctx.driver_memory:
            return PairGram(kernel, pairs, kind)
        matrix = np.empty((m, m))
        for lo in range(0, m, 512):
            matrix[lo : lo + 512] = pair_block(kernel, pairs[lo : lo + 512], pairs, kind)
        np.fill_diagonal(matrix, pair_diagonal(kernel, pairs, kind))
        return DenseGram(matrix)


def _refuse_empty(sizes: np.ndarray, data: DataSet) -> None:
    empty = ~(sizes > 0).any(axis=0)
    if empty.any():
        raise DataError(
            f"user {int(np.argmax(empty))} has no items: the row is zero in every view ({int(empty.sum())} such users); leave them out",
            "" if data.url == "memory" else data.url,
        )


def _add_target(sums: MatrixSums, products: np.ndarray, links: Links) -> MatrixSums:
    """Return the sums with those of the links at the end; everybody is linked with himself."""
    target, diagonal = links.target, links.known.astype(np.float64)
    rows = np.asarray(target.sum(axis=1)).ravel() + diagonal
    traces = sums.diagonals[:, links.known].sum(axis=1)
    return sums.with_matrix(products + traces, float(np.square(target.data).sum() + diagonal.sum()), rows, diagonal)
