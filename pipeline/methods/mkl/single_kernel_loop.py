"""The single best kernel: one machine per kernel, the kernel of highest validation score, a machine on all rows with it alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.svm.dual import DualProblem
from ....kernels.svm.smo import solve_smo
from ...grams.grams import Grams
from ...inputs.folds import fold_masks
from ...inputs.scores import AccuracyTracker, predicted_codes, r_squared
from ...loops.kernel_weights import WeightState, add_cut, solve_fixed
from ...loops.protocol import Step
from ...records.context import RunContext
from .forms import Solved, quadratic_forms
from .loop import MKLLoop, MKLState

FOLDS = 5
NAN = float("nan")


@dataclass(frozen=True)
class SingleState:
    """State of the loop over kernels.

    ``iteration``: kernels scored; one more when the last machine is solved; ``machines``: as those of
    :class:`gramplane.pipeline.methods.mkl.loop.MKLState`; bounds and cuts come with the last step; ``scores``: ``(iteration,)`` validation
    scores: accuracy, or R^2 for regression; ``stop``: ``"single"`` at the end.
    """

    record_name: ClassVar[str] = "SingleState"
    iteration: int
    machines: tuple[WeightState, ...]
    scores: np.ndarray
    stop: str | None = None


class SingleLoop(MKLLoop):
    """One kernel a step, five folds as row masks; then the best one, the first among equals, on all rows. Parameters as its base."""

    state_type = SingleState

    def init(self, ctx: RunContext) -> Any:
        """Return the state before the first kernel."""
        return SingleState(0, super().init(ctx).machines, np.zeros(0))

    def step(self, state: Any, ctx: RunContext) -> Step[Any]:
        """Score the next kernel, or fit the best one."""
        grams, q = self.grams(ctx), state.iteration
        if q == grams.k:
            return self._fit_best(state, grams)
        score = self._score(grams, q, self._masks(ctx.seed))
        new = SingleState(q + 1, state.machines, np.append(state.scores, score))
        unknown = dict.fromkeys(("objective", "gap", "lower_bound", "upper_bound", "relative_gap"), float("nan"))
        return Step(new, {**unknown, "validation": score, "n_selected": 1, "machines": len(self.problems)})

    def _masks(self, seed: int) -> list[np.ndarray]:
        fit = self.fits[0]
        return fold_masks(fit.codes, (), FOLDS, seed) if isinstance(fit, AccuracyTracker) else fold_masks(fit.target, None, FOLDS, seed)

    def _score(self, grams: Grams, q: int, masks: list[np.ndarray]) -> float:
        gram, values = grams.combine(np.eye(1, grams.k, q)[0]), np.zeros((len(self.problems), grams.n))
        for mask in masks:
            for m, problem in enumerate(self.problems):
                solution = solve_smo(gram, without_rows(problem, mask), tol=self.config.tol)
                values[m, mask] = solution.decision[mask] + solution.bias
        used = np.any([problem.hi > problem.lo for problem in self.problems], axis=0)
        fit = self.fits[0]
        if isinstance(fit, AccuracyTracker):
            return float(np.mean(predicted_codes(values)[used] == fit.codes[used]))
        score = r_squared(fit.target[used], values[0, used])
        # A target without spread tells no kernel from another.
        return score if np.isfinite(score) else 0.0

    def _fit_best(self, state: Any, grams: Grams) -> Step[Any]:
        theta, machines = np.eye(1, grams.k, int(np.argmax(state.scores)))[0], []
        gram = grams.combine(theta)
        starts = [replace(machine, theta=theta) for machine in state.machines]
        solved = [Solved(solve_fixed(gram, problem, self.config.tol)) for problem in self.problems]
        for m, trial in enumerate(quadratic_forms(grams, starts, self.problems, solved)):
            machines.append(replace(add_cut(starts[m], trial, self.domains[m]), stop="single"))
        new = SingleState(state.iteration + 1, tuple(machines), state.scores, "single")
        figures = self._metrics(MKLState(new.iteration, new.machines), range(len(machines)))
        return Step(new, {**figures, "validation": float(state.scores.max())})


def without_rows(problem: DualProblem, mask: np.ndarray) -> DualProblem:
    """Return a problem whose masked rows have no loss."""
    return replace(problem, lo=np.where(mask, 0.0, problem.lo), hi=np.where(mask, 0.0, problem.hi))
