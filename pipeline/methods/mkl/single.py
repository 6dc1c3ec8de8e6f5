"""The single best kernel: one machine per kernel, the kernel of highest validation score, a machine on all rows with it alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....kernels.svm.smo import solve_smo
from ...core.result import Step
from ...grams.grams import Grams
from ...inputs.folds import fold_masks
from ...inputs.scores import AccuracyTracker, predicted_codes, r_squared
from ...loops.kernel_weights import add_cut, solve_fixed
from .forms import Solved, quadratic_forms
from .problem import MKLProblem, MKLState

FOLDS = 5


def single_step(problem: MKLProblem, state: MKLState, grams: Grams, seed: int) -> Step[MKLState]:
    """Score the next kernel by folds, as row masks; behind the last one fit the best, the first among equals, on all rows."""
    q = state.iteration
    if q == grams.k:
        return _fit_best(problem, state, grams)
    score = _score(problem, grams, q, seed)
    new = MKLState(q + 1, state.machines, np.append(state.scores, score))
    unknown = dict.fromkeys(("objective", "gap", "lower_bound", "upper_bound", "relative_gap"), float("nan"))
    return Step(new, {**unknown, "validation": score, "n_selected": 1, "machines": len(problem.problems)})


def _score(problem: MKLProblem, grams: Grams, q: int, seed: int) -> float:
    gram, values, fit = grams.combine(np.eye(1, grams.k, q)[0]), np.zeros((len(problem.problems), grams.n)), problem.fits[0]
    codes, classes = (fit.codes, ()) if isinstance(fit, AccuracyTracker) else (fit.target, None)
    for mask in fold_masks(codes, classes, FOLDS, seed):
        for m, one in enumerate(problem.problems):
            without_rows = replace(one, lo=np.where(mask, 0.0, one.lo), hi=np.where(mask, 0.0, one.hi))
            solution = solve_smo(gram, without_rows, tol=problem.config.tol)
            values[m, mask] = solution.decision[mask] + solution.bias
    used = np.any([one.hi > one.lo for one in problem.problems], axis=0)
    if isinstance(fit, AccuracyTracker):
        return float(np.mean(predicted_codes(values)[used] == fit.codes[used]))
    score = r_squared(fit.target[used], problem.problems[0].unit.values(values[0, used]))
    # A target without spread tells no kernel from another.
    return score if np.isfinite(score) else 0.0


def _fit_best(problem: MKLProblem, state: MKLState, grams: Grams) -> Step[MKLState]:
    theta = np.eye(1, grams.k, int(np.argmax(state.scores)))[0]
    gram = grams.combine(theta)
    starts = [replace(machine, theta=theta) for machine in state.machines]
    solved = [Solved(solve_fixed(gram, one, problem.config.tol)) for one in problem.problems]
    trials = zip(starts, quadratic_forms(grams, starts, problem.problems, solved), problem.domains, strict=True)
    machines = tuple(replace(add_cut(start, trial, domain), stop="single") for start, trial, domain in trials)
    new = MKLState(state.iteration + 1, machines, state.scores)
    figures = problem.metrics(new, range(len(machines)))
    return Step(new, {**figures, "validation": float(state.scores.max())})
