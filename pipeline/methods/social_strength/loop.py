"""Social strength modelling (Zhuang: Kernel learning, thesis, 2011, chapter 7): weigh the views of users, then learn to rank pairs.

The first step makes the views comparable and weighs them by their alignment with the links; the next ones solve the logistic problem over
the training pairs (:mod:`gramplane.kernels.ranking.pair_ranking`), by rounds of Newton steps, or one import vector a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ....kernels.alignment.target_alignment import Aligned, MatrixSums, aligned_weights
from ....kernels.ranking.pair_kernels import FactorGram, PairGram, pair_block, pair_diagonal, similarity_features
from ....kernels.ranking.pair_ranking import ImportMachine, empty_machine, full_gap, import_factor, import_step, rank_pairs
from ....kernels.ranking.user_kernels import row_factors
from ....kernels.svm.dual import DenseGram, Gram
from ....storage import DataError
from ...grams.held import Held
from ...grams.settings import GramSettings
from ...grams.weighted_sum import MATRIX_SHARE
from ...loops.protocol import Step
from ...records.context import RunContext
from .config import SocialConfig
from .view_pass import Scaling, ViewGrams

ROUND = 16
"""Newton steps of the first round; every next one takes twice as many. A round starts from the best certified point of the one before,
which may lie behind its last step: many short rounds would not get anywhere."""

HELD_PAIRS = 4096
"""Up to this many pairs their Gram matrix is held, which lets hard systems be factorised; beyond, products go over the users."""

ENTRIES = 1 << 20
"""Entries of the links that are looked up at a time."""


@dataclass(frozen=True)
class Links:
    """Training pairs and the links that views are aligned with.

    Attributes
    ----------
    pairs, z
        ``(m, 2)`` users, and ``(m,)`` 1 for a link, 0 for none.
    target
        ``(n, n)`` symmetric links without their diagonal; of the linked pairs by default.
    known
        ``(n,)`` True for users that some pair or link names: the others may have links nobody has seen.
    """

    pairs: np.ndarray
    z: np.ndarray
    target: sp.csr_array
    known: np.ndarray


@dataclass(frozen=True)
class SocialState:
    """State of a fit.

    Attributes
    ----------
    iteration
        Steps done: 1 for the weights, then rounds.
    theta
        ``(k,)`` weights of the views, l2 norm 1.
    factors, shifts
        ``(k, n)`` and ``(k,)``, what makes the views.
    alignment, uniform
        Alignment of the weighted sum with the links, and of equal weights.
    singles
        ``(k,)`` alignments of the views.
    chosen
        ``(q,)`` import vectors; none where all pairs take part.
    coef
        ``(m,)`` coefficients of the pairs; of import vectors those of the problem over all pairs at the same values.
    objective, gap
        Value of (7.3), and how far it is above the least over all pairs at most.
    newton_steps
        Taken so far.
    stop
        ``"tol"``, ``"stalled"``, ``"max_iter"``, ``"n_import"``, ``"import_tol"``, or ``None``.
    """

    record_name: ClassVar[str] = "SocialState"
    iteration: int
    theta: np.ndarray
    factors: np.ndarray
    shifts: np.ndarray
    alignment: float
    uniform: float
    singles: np.ndarray
    chosen: np.ndarray
    coef: np.ndarray
    objective: float
    gap: float
    newton_steps: int = 0
    stop: str | None = None

    @property
    def scaling(self) -> Scaling:
        """What makes the views of the raw matrices."""
        return Scaling(self.factors, self.shifts)


class SocialLoop:
    """Weights of the views, then rounds over the training pairs.

    Parameters
    ----------
    config
        Parameters.
    specs
        Views.
    settings
        Where their matrices lie.
    links
        Training pairs.
    data
        Matrices that were given, which take the place of the run's data set.
    """

    state_type = SocialState

    def __init__(self, config: SocialConfig, specs: Sequence[Any], settings: GramSettings, links: Links, data: Any = None) -> None:
        self.config, self.specs, self.settings, self.links, self.data = config, tuple(specs), settings, links, data
        self.grams = Held(lambda ctx: ViewGrams(ctx, self.specs, settings, centre=True), data)
        self._gram: Gram | None = None
        self._kernel: np.ndarray | None = None
        self._machine: ImportMachine | None = None

    # -- steps ---------------------------------------------------------------------------------------------------------------------

    def init(self, ctx: RunContext) -> SocialState:
        """Return the state before the views are weighed."""
        k, m = len(self.specs), len(self.links.z)
        none = np.zeros(0, np.int64)
        # Without a coefficient every pair has the loss ln 2, and nothing is certified.
        return SocialState(
            0, np.full(k, k**-0.5), np.zeros((k, 0)), np.zeros(k), 0.0, 0.0, np.zeros(k), none, np.zeros(m), float(np.log(2)), np.inf
        )

    def step(self, state: SocialState, ctx: RunContext) -> Step[SocialState]:
        """Weigh the views, or take a round over the pairs."""
        if not state.iteration:
            new, phase = self._weighed(state, ctx), "weights"
        elif self.config.n_import is None:
            new, phase = self._round(state, ctx), "newton"
        else:
            new, phase = self._imported(state, ctx), "import"
        new = replace(new, iteration=state.iteration + 1)
        metrics = {"phase": phase, "objective": new.objective, "gap": new.gap, "alignment": new.alignment}
        more = {"n_selected": int(np.count_nonzero(new.theta)), "n_import": len(new.chosen), "newton_steps": new.newton_steps}
        return Step(new, {**metrics, **more})

    def _round(self, state: SocialState, ctx: RunContext) -> SocialState:
        left = min(ROUND << (state.iteration - 1), self.config.max_iter - state.newton_steps)
        found = rank_pairs(self.gram(state, ctx), self.links.z, self.config.C, warm=state.coef, tol=self.config.tol, max_iter=left)
        taken = state.newton_steps + found.steps
        stop = "tol" if found.converged else "max_iter" if taken >= self.config.max_iter else None
        if stop is None and found.steps < left and found.gap >= state.gap:
            stop = "stalled"
        return replace(state, coef=found.coef, objective=found.objective, gap=found.gap, newton_steps=taken, stop=stop)

    def _imported(self, state: SocialState, ctx: RunContext) -> SocialState:
        gram, before = self.gram(state, ctx), self._imports(state, ctx)
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
        left = np.setdiff1d(np.arange(len(self.links.z)), state.chosen)
        count = self.config.n_candidates
        if count is None or len(left) <= count:
            return left
        return np.sort(np.random.default_rng([ctx.seed, state.iteration]).choice(left, count, replace=False))

    def _imports(self, state: SocialState, ctx: RunContext) -> ImportMachine:
        """Return the machine of a state: the one of the last step, or after a resume the same again."""
        held = self._machine
        if held is not None and np.array_equal(held.chosen, state.chosen):
            return held
        if not len(state.chosen):
            return empty_machine(self.links.z)
        factor = import_factor(self.gram(state, ctx), state.chosen)
        return ImportMachine(state.chosen, state.coef, state.objective, factor, factor.T @ state.coef)

    def coefficients(self, state: SocialState, ctx: RunContext) -> np.ndarray:
        """Return the coefficients of the pairs, ``(m,)``: zero but at import vectors where there are some."""
        return state.coef if self.config.n_import is None else self._imports(state, ctx).coefficients()

    # -- views ---------------------------------------------------------------------------------------------------------------------

    def _weighed(self, state: SocialState, ctx: RunContext) -> SocialState:
        grams = self.grams(ctx)
        scaling = self._scaling(grams)
        found = self._aligned(grams, scaling)
        return replace(
            state,
            theta=found.weights,
            factors=scaling.factors,
            shifts=scaling.shifts,
            alignment=found.value,
            uniform=found.uniform,
            singles=found.singles,
        )

    def _scaling(self, grams: ViewGrams) -> Scaling:
        maxima, sizes = grams.extremes()
        empty = ~(sizes > 0).any(axis=0)
        if empty.any():
            raise DataError(
                f"user {int(np.argmax(empty))} has no items: the row is zero in every view ({int(empty.sum())} such users); leave them out",
                "" if grams.ctx.data.url == "memory" else grams.ctx.data.url,
            )
        factors = row_factors(maxima) if self.config.normalize == "row_max" else np.ones_like(maxima)
        if self.config.normalize == "none":
            return Scaling(factors, np.zeros(len(maxima)))
        return Scaling(factors, np.maximum(-grams.least_eigenvalues(factors), 0.0))

    def _aligned(self, grams: ViewGrams, scaling: Scaling) -> Aligned:
        links, config = self.links, self.config
        sums = grams.matrix_sums(scaling, links.known)
        with_links = _with_target(sums, self._linked_sums(grams, scaling), links)
        return aligned_weights(with_links.centred(config.alignment), uniform=config.weights == "uniform")

    def _linked_sums(self, grams: ViewGrams, scaling: Scaling) -> np.ndarray:
        """Return the inner products of the views with the links beside the diagonal, ``(k,)``."""
        upper = sp.triu(self.links.target, 1, format="coo")
        total = np.zeros(len(self.specs))
        for lo in range(0, upper.nnz, ENTRIES):
            part = slice(lo, lo + ENTRIES)
            places = (ids[part].astype(np.int64) for ids in (upper.row, upper.col))
            total += 2.0 * (grams.view_entries(scaling, *places) @ upper.data[part])
        return total

    def entries(self, state: SocialState, ctx: RunContext) -> np.ndarray:
        """Return the entries of the views at the training pairs, ``(k, m)``."""
        return self.grams(ctx).view_entries(state.scaling, *self.links.pairs.T)

    def kernel(self, state: SocialState, ctx: RunContext) -> np.ndarray:
        """Return the weighted sum of the views, float32 ``(n, n)``."""
        if self._kernel is None:
            self._kernel = self.grams(ctx).weighted(state.scaling, state.theta)
        return self._kernel

    def gram(self, state: SocialState, ctx: RunContext) -> Gram:
        """Return the Gram matrix of the training pairs."""
        if self._gram is None:
            self._gram = self._pair_gram(state, ctx)
        return self._gram

    def _pair_gram(self, state: SocialState, ctx: RunContext) -> Gram:
        kind, pairs = self.config.pair_kernel, self.links.pairs
        if kind == "similarity":
            return FactorGram(similarity_features(self.entries(state, ctx), state.theta, self.config.view_scale))
        kernel, m = self.kernel(state, ctx), len(pairs)
        if m > HELD_PAIRS or 8 * m * m > MATRIX_SHARE * ctx.driver_memory:
            return PairGram(kernel, pairs, kind)
        matrix = np.empty((m, m))
        for lo in range(0, m, 512):
            matrix[lo : lo + 512] = pair_block(kernel, pairs[lo : lo + 512], pairs, kind)
        np.fill_diagonal(matrix, pair_diagonal(kernel, pairs, kind))
        return DenseGram(matrix)


def _with_target(sums: MatrixSums, products: np.ndarray, links: Links) -> MatrixSums:
    """Return the sums with those of the links at the end; everybody is linked with himself."""
    target, own = links.target, links.known.astype(np.float64)
    rows = np.asarray(target.sum(axis=1)).ravel() + own
    traces = sums.diagonals[:, links.known].sum(axis=1)
    return sums.with_matrix(products + traces, float(np.square(target.data).sum() + own.sum()), rows, own)
