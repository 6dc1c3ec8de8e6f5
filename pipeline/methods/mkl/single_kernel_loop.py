"""The single best kernel: one machine per kernel, the kernel of highest validation score, a machine on all rows with it alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

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


@dataclass(frozen=True)
class SingleState:
    """State of the loop over kernels."""

    record_name: ClassVar[str] = "SingleState"
    iteration: int  # kernels scored; one more when the last machine is solved
    machines: tuple[WeightState, ...]  # as those of MKLState; bounds and cuts come with the last step
    scores: np.ndarray  # (iteration,) validation scores: accuracy, or R^2 for regression
    stop: str | None = None  # "single" at the end


class SingleLoop(MKLLoop):
    """One kernel a step, five folds as row masks; then the best one, the first among equals, on all rows."""

    state_type = SingleState

    def init(self, ctx: RunContext) -> SingleState:
        """Return the state before the first kernel."""
        return SingleState(0, super().init(ctx).machines, np.zeros(0))

    def step(self, state: SingleState, ctx: RunContext) -> Step[SingleState]:
        """Score the next kernel, or fit the best one."""
        grams, q = self.grams(ctx), state.iteration
        if q == grams.k:
            return self._fit_best(state, grams)
        score = self._score(grams, q, ctx.seed)
        new = SingleState(q + 1, state.machines, np.append(state.scores, score))
        unknown = dict.fromkeys(("objective", "gap", "lower_bound", "upper_bound", "relative_gap"), float("nan"))
        return Step(new, {**unknown, "validation": score, "n_selected": 1, "machines": len(self.problems)})

    def _score(self, grams: Grams, q: int, seed: int) -> float:
        gram, values, fit = grams.combine(np.eye(1, grams.k, q)[0]), np.zeros((len(self.problems), grams.n)), self.fits[0]
        codes, classes = (fit.codes, ()) if isinstance(fit, AccuracyTracker) else (fit.target, None)
        for mask in fold_masks(codes, classes, FOLDS, seed):
            for m, problem in enumerate(self.problems):
                without_rows = replace(problem, lo=np.where(mask, 0.0, problem.lo), hi=np.where(mask, 0.0, problem.hi))
                solution = solve_smo(gram, without_rows, tol=self.config.tol)
                values[m, mask] = solution.decision[mask] + solution.bias
        used = np.any([problem.hi > problem.lo for problem in self.problems], axis=0)
        if isinstance(fit, AccuracyTracker):
            return float(np.mean(predicted_codes(values)[used] == fit.codes[used]))
        score = r_squared(fit.target[used], self.problems[0].unit.values(values[0, used]))
        # A target without spread tells no kernel from another.
        return score if np.isfinite(score) else 0.0

    def _fit_best(self, state: SingleState, grams: Grams) -> Step[SingleState]:
        theta = np.eye(1, grams.k, int(np.argmax(state.scores)))[0]
        gram = grams.combine(theta)
        starts = [replace(machine, theta=theta) for machine in state.machines]
        solved = [Solved(solve_fixed(gram, problem, self.config.tol)) for problem in self.problems]
        trials = zip(starts, quadratic_forms(grams, starts, self.problems, solved), self.domains, strict=True)
        machines = tuple(replace(add_cut(start, trial, domain), stop="single") for start, trial, domain in trials)
        new = SingleState(state.iteration + 1, machines, state.scores, "single")
        figures = self._metrics(MKLState(new.iteration, machines), range(len(machines)))
        return Step(new, {**figures, "validation": float(state.scores.max())})
