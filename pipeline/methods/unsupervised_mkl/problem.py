"""Unsupervised multiple kernel learning (Zhuang, thesis, 2011, chapter 5): alternate between bases and kernel weights.

One step chooses the bases of every point under the current kernel, then minimises the objective over the weights exactly (a quadratic
program on the simplex); see :mod:`gramplane.kernels.weights.umkl` for the objective. With the safeguard, the objective never increases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.grams.spec import KernelSpec
from ...core.memory import driver_plan
from ...core.resources import Resources
from ...grams.grams import Grams, LazyGrams
from ...grams.plans import GramPasses
from ...passes.blocks import Blocks
from ...records.data_set import Reads
from .components import Way
from .config import UMKLConfig
from .sums_pass import PassGrams, mean_largest_sums
from .sweeps import PassSweep, WholeSweep, largest_step, pass_figures


@dataclass(frozen=True)
class UMKLState:
    """State of the alternation."""

    record_name: ClassVar[str] = "UMKLState"
    iteration: int
    weights: np.ndarray  # (k,) kernel weights, on the simplex
    bases: np.ndarray  # (n, n_bases) bases of every point, -1 where there is none; none at all before the first step
    objective: float  # J at both
    qp_gap: float  # certified distance of the last weights from the best ones for these bases
    path: np.ndarray  # (iteration, k) weights after every step
    stop: str | None = None


@dataclass(frozen=True)
class UMKLInputs(Reads):
    """The rows; there is no target."""

    data: Blocks


@dataclass(eq=False)
class UMKLProblem:
    """The alternation on the rows of a fit, with ``n_bases`` bases per point."""

    config: UMKLConfig
    inputs: UMKLInputs
    specs: tuple[KernelSpec, ...]
    n_bases: int
    way: Way
    planned: Resources  # where it was made: what decides the passes

    def __post_init__(self) -> None:
        by_passes, settings = self.way.by_passes, self.way.settings
        kind = PassGrams if by_passes else Grams
        self.grams: LazyGrams = LazyGrams(lambda resources: kind(self.inputs.data, self.specs, settings, resources, centre=True))
        self.sweep: PassSweep | WholeSweep = (PassSweep if by_passes else WholeSweep)(self.config, self.n_bases, self.grams, self.factors)
        self._factors: np.ndarray | None = None

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, number of tasks per pass, and memory of a task in bytes."""
        way, n_bases = self.way, self.n_bases
        passes = GramPasses(self.inputs.data, self.specs, way.settings, self.planned)
        if way.by_passes:
            figures = pass_figures(self.config, passes, n_bases)
        else:
            largest = largest_step(passes, n_bases) if self.config.normalize == "column_sum" else 0
            steps = (passes.load(), passes.sum(), passes.entries(passes.n * n_bases), largest)
            figures = {"tasks_per_pass": len(passes.refs), "task_bytes": max(steps)}
        return {
            **way.settings.describe(passes.n, passes.k),
            **driver_plan(way.items),
            "points": "by passes" if way.by_passes else "in this process",
            "n_bases": n_bases,
            "iterations_at_most": self.config.max_iter,
            **figures,
        }

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        by_passes = "bases of the points and quadratic program of the weights", "products for the components"
        return ("Gram blocks", *(by_passes if self.way.by_passes else ()))

    def factors(self, resources: Resources) -> np.ndarray:
        """Return factors of the normalised kernels, ``(k,)``: those that normalise column sums with ``normalize="column_sum"``, else ones.
        Raises ValueError for a kernel whose largest entries do not sum to a positive number.
        """
        if self._factors is None:
            self._factors = np.ones(len(self.specs))
            kernels = [q for q, spec in enumerate(self.specs) if spec.normalize == "none" and self.config.normalize == "column_sum"]
            if kernels:
                self._factors[kernels] = 1.0 / self._column_sums(kernels, resources)
        return self._factors

    def _column_sums(self, kernels: list[int], resources: Resources) -> np.ndarray:
        normalizations = self.grams(resources).normalizations
        specs, norms = [self.specs[q] for q in kernels], [normalizations[q] for q in kernels]
        sums = mean_largest_sums(self.inputs.data, resources, specs, norms, self.way.settings.block, self.n_bases)
        if not np.all(sums > 0):
            raise ValueError(
                f"kernel {specs[int(np.argmin(sums))]}: its {self.n_bases} largest entries of a row sum to {sums.min():.3g} on average; "
                "normalize='column_sum' needs a positive sum"
            )
        return sums
