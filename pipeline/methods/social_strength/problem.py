"""The problem of social strength modelling: views of users, training pairs, and quantities that are computed once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from ....kernels.ranking.pair_ranking import ImportMachine, empty_machine, import_factor
from ....kernels.ranking.user_kernels import LANCZOS_STEPS, FactorGram, PairGram, pair_block, pair_diagonal, similarity_features
from ....kernels.svm.dual import DenseGram, Gram
from ...core.memory import Item, driver_plan
from ...core.resources import Resources
from ...grams.grams import LazyGrams
from ...grams.plans import GramPasses
from ...grams.settings import GramSettings
from ...grams.weighted_sum import MATRIX_SHARE
from ...records.data_set import DataSet
from .block_pass import BlockViews, Normal, lanczos_views, view_passes
from .config import SocialConfig
from .links import Links
from .score_pass import Scorer, top_plan
from .scores import TOP_SIZE
from .tile_pass import is_given_kernel, view_tiles
from .view_pass import Scaling, ViewGrams, view_pass_bytes

MAX_DENSE_PAIRS = 4096
"""Up to this number of pairs, the Gram matrix of the pairs is kept in memory, so that ill-conditioned systems can be factorised. Beyond
this number, products use the matrices of the users.
"""

LOOKUP_ENTRIES = 1 << 20  # entries of the links that are looked up at a time


@dataclass(frozen=True)
class SocialInputs:
    """Users (their features, or matrices of their similarities), and the known ties."""

    data: DataSet
    links: Links
    given: DataSet | None = None  # arrays that `data` was made of for the passes of a fit: a model holds them

    def over(self, data: DataSet) -> Self:
        """Return inputs with the same users, read from ``data``."""
        return replace(self, data=data, given=self.users)

    @property
    def users(self) -> Any:
        """The users in their original form."""
        return self.data if self.given is None else self.given


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
        """Factors and shifts that convert the raw matrices into views."""
        return Scaling(self.factors, self.shifts)


@dataclass(eq=False)
class SocialProblem:
    """Computation of the weights of the views, then rounds over the training pairs.

    ``by_blocks``: no matrix of all users is formed; passes over blocks compute what the fit needs of the views.
    """

    config: SocialConfig
    inputs: SocialInputs
    specs: tuple[Any, ...]
    settings: GramSettings
    planned: Resources  # where it was made: what decides the passes
    by_blocks: bool = False
    machine: ImportMachine | None = None  # of the newest state, where import vectors are chosen
    _gram: Gram | None = None
    _weighted_views: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.grams = LazyGrams(lambda resources: ViewGrams(self.inputs.data, self.specs, self.settings, resources, centre=True))
        self.views = LazyGrams(lambda resources: BlockViews(self.inputs.data, resources, self.specs))

    @property
    def links(self) -> Links:
        """The known ties."""
        return self.inputs.links

    @property
    def places(self) -> int:
        """Number of entries of a view that passes over blocks return: those of the pairs and of the links."""
        return len(self.links.z) + self.links.target.nnz // 2

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, number of tasks per pass, memory of a task in bytes, and number of pairs."""
        config, n, z = self.config, self.inputs.data.n_rows, self.links.z
        if self.by_blocks:
            tasks, steps = len(view_tiles(self.inputs.data, self.specs)), self._block_steps()
        else:
            grams = GramPasses(self.inputs.data, self.specs, self.settings, self.planned)
            tasks, steps = len(grams.refs), self._matrix_steps(grams)
        return {
            **self.settings.describe(n, len(self.specs)),
            "tasks_per_pass": tasks,
            "task_bytes": max(steps),
            **driver_plan(self.driver_items),
            "scores_on": "blocks" if self.by_blocks else "matrix",
            "users": n,
            "pairs": len(z),
            "linked_pairs": int(z.sum()),
            "iterations_at_most": 1 + (config.max_iter if config.n_import is None else min(config.n_import, len(z))),
        }

    def _block_steps(self) -> Iterator[int]:
        """Yield the memory in bytes of passes over blocks."""
        data, k = self.inputs.data, len(self.specs)
        searched = self.config.normalize != "none" or is_given_kernel(self.specs)
        # At the end lists by two rows of weights, those learnt and those of the alignments, over the views that have one.
        both = Scorer(Normal(), np.zeros((k, 0)), np.zeros(k), np.zeros((2, k)), np.zeros(2))
        for used in range(1, k + 1):
            yield top_plan(data, self.specs[:used], both, min(TOP_SIZE, data.n_rows - 1)).memory_bound
        for work in view_passes(data, self.specs, self.places, self.planned.driver_memory, searched=searched):
            yield work.memory_bound

    def _matrix_steps(self, grams: GramPasses) -> Iterator[int]:
        """Yield the memory in bytes of the passes of a fit whose scores form a matrix in this process: those over the entries of the
        kernels, and those over the views.
        """
        yield from (grams.load(), view_pass_bytes(grams.refs, grams.k, grams.settings.block))
        yield grams.entries(max(len(self.links.z), min(LOOKUP_ENTRIES, self.links.target.nnz // 2)))
        if self.config.normalize != "none":
            yield grams.sum()

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        return ("Gram blocks of views", "lists of candidates") if self.by_blocks else ("Gram blocks of views",)

    @property
    def driver_items(self) -> tuple[Item, ...]:
        """Memory of the driver: scores of all pairs of users, views in memory, and the kernel of the pairs."""
        n, k, memory = self.inputs.data.n_rows, len(self.specs), self.planned.driver_memory
        if self.by_blocks:
            return (
                ("row factors, sums and diagonals of the views, and their copies", 200 * k * n),
                ("vectors of Lanczos steps", 8 * LANCZOS_STEPS * n * lanczos_views(n, k, memory)),
                ("views at pairs and links, and vectors of the solver", 48 * k * self.places + 300 * self.places),
                ("first candidates of all users", 64 * TOP_SIZE * n),
            )
        return (
            ("scores of all pairs of users", 4 * (2 if self.config.pair_kernel == "similarity" else 1) * n * n),
            self.settings.items(n, k, memory)[0],
            ("sum of the views, and a copy", 8 * n * n),
            ("views at the pairs", 16 * k * len(self.links.z)),
        )

    def entries(self, state: SocialState, ctx: Resources) -> np.ndarray:
        """Return the entries of the views at the training pairs, ``(k, m)``."""
        if self.by_blocks:
            return state.entries
        return self.grams(ctx).view_entries(state.scaling, *self.links.pairs.T)

    def kernel(self, state: SocialState, ctx: Resources) -> np.ndarray:
        """Return the weighted sum of the views, float32 ``(n, n)``."""
        if self._weighted_views is None:
            self._weighted_views = self.grams(ctx).weighted(state.scaling, state.theta)
        return self._weighted_views

    def gram(self, state: SocialState, ctx: Resources) -> Gram:
        """Return the Gram matrix of the training pairs."""
        if self._gram is None:
            self._gram = self._build_gram(state, ctx)
        return self._gram

    def _build_gram(self, state: SocialState, ctx: Resources) -> Gram:
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

    def import_machine(self, state: SocialState, ctx: Resources) -> ImportMachine:
        """Return the import vector solver of a state: the one of the last step or, after a resume, a recomputed one."""
        if self.machine is not None and np.array_equal(self.machine.chosen, state.chosen):
            return self.machine
        if not len(state.chosen):
            return empty_machine(self.links.z)
        factor = import_factor(self.gram(state, ctx), state.chosen)
        return ImportMachine(state.chosen, state.coef, state.objective, factor, factor.T @ state.coef)
