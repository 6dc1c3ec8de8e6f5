"""Generalized multiple kernel learning: an SVM on a weighted sum of kernels with learnt weights.

Problem (docs/theory/mkl.md): ``min over theta in Theta of J(theta)``, where J is the value of a support vector machine with the kernel
``sum_q theta_q K_q``. The set Theta of weights is an elastic net, a simplex, or an lp ball (Yang, Xu, Ye, King, Lyu, 2011). One-vs-rest
SVMs have their own weights and share the passes over the Gram matrices.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step, ended_early
from ...grams.grams import Grams
from ...grams.settings import check_machines
from ...inputs.folds import fold_masks
from ...inputs.kernel_checks import emit_warnings, kernel_warnings
from ...inputs.kernels import gram_settings, resolved_kernels, with_decided_kernels, with_gram_store
from ...inputs.labels import Inputs, store_inputs
from ...inputs.scores import AccuracyTracker, R2Tracker, held_out_rows, predicted_codes, r_squared, scores_of
from ...loops.kernel_weights import add_cut, continue_search, initial_state, solve_fixed, solve_model
from ...loops.protocol import bound_figures
from ...models.build import build_model
from ...models.kernel import KernelModel, is_selected
from ...models.model import Tables
from ...models.tables import followed_tables
from .config import MKLConfig
from .forms import Solved, quadratic_forms
from .problem import UNFINISHED, MKLProblem, MKLState, model_problems

FOLDS = 5


def single_step(problem: MKLProblem, state: MKLState, grams: Grams, seed: int) -> Step[MKLState]:
    """Score the next kernel by cross-validation, with folds as row masks. After the last kernel, fit the best kernel (in a tie, the first)
    on all rows.
    """
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
            solution = solve_model(gram, one.without(mask), problem.config.tol)
            values[m, mask] = solution.decision[mask] + solution.bias
    used = np.any([one.used for one in problem.problems], axis=0)
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


class MKL(Method[MKLConfig, MKLProblem, MKLState, KernelModel]):
    """Support vector machines on a weighted sum of kernels with learnt weights."""

    name = "mkl"
    config = MKLConfig
    state = MKLState
    models = (KernelModel,)
    starts_from_whole = True

    def read_inputs(self, config: MKLConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[MKLConfig, Inputs]:
        """Return the parameters, and the target and weights of a store; ``extra`` may contain ``test_share``."""
        config, inputs = with_gram_store(config, store_inputs(resources, self.name))
        return config, inputs.without(held_out_rows(extra, inputs.target, resources.seed, inputs.classes))

    def decided(self, config: MKLConfig, inputs: Inputs, resources: Resources) -> MKLConfig:
        """Return the parameters with all kernels specified explicitly."""
        return with_decided_kernels(config, inputs.data, resources, inputs.counts)

    def problem(self, config: MKLConfig, inputs: Inputs, resources: Resources) -> MKLProblem:
        """Return the problem of a fit. Raises ValueError for kernels that do not suit the data, and MemoryBoundExceeded if they exceed the
        memory.
        """
        return shared_problem([self.decided(config, inputs, resources)], inputs, [inputs.held_out], resources)

    def init(self, problem: MKLProblem, resources: Resources) -> MKLState:
        """Return the initial state: equal weights for every SVM."""
        grams = problem.grams(resources)
        emit_warnings(grams, resources)
        return MKLState(0, tuple(initial_state(domain, grams.k, grams.n) for domain in problem.domains))

    def step(self, problem: MKLProblem, state: MKLState, resources: Resources) -> Step[MKLState]:
        """Solve every running SVM at its weights, add the cuts, and choose the next weights."""
        began = time.perf_counter()
        grams, machines = problem.grams(resources), list(state.machines)
        if problem.config.solver == "single":
            return single_step(problem, state, grams, resources.seed)
        running = [m for m, machine in enumerate(machines) if machine.stop is None]
        solved = [problem.solve(grams, m, machines[m], machines[m].theta) for m in running]
        after_machines = time.perf_counter()
        trials = quadratic_forms(grams, [machines[m] for m in running], [problem.problems[m] for m in running], solved)
        after_forms = time.perf_counter()
        for m, trial in zip(running, trials, strict=True):
            machines[m] = problem.advance(grams, m, machines[m], trial, state.iteration + 1)
        new = MKLState(state.iteration + 1, tuple(machines))
        seconds = {
            "seconds_machine": after_machines - began,
            "seconds_forms": after_forms - after_machines,
            "seconds_weights": time.perf_counter() - after_forms,
        }
        return Step(new, {**problem.metrics(new, running), **seconds})

    def result(self, problem: MKLProblem, state: MKLState, resources: Resources) -> Result[KernelModel]:
        """Return the model with the best weights, with bounds and the numbers of selected kernels and rows."""
        machines, grams = state.machines, problem.grams(resources)
        figures = bound_figures(machines, state, UNFINISHED)
        theta, beta = np.stack([one.best_theta for one in machines]), np.stack([one.best_beta for one in machines])
        paths, biases = {f"weights_path_{m}": one.path for m, one in enumerate(machines)}, np.array([one.best_bias for one in machines])
        unit = problem.problems[0].unit
        model = build_model(problem.config, problem.inputs, grams, theta, beta, biases, figures, paths, unit=unit)
        counts = {
            "n_selected": int(np.sum(np.any([is_selected(row, problem.config.threshold) for row in model.theta], axis=0))),
            "n_kernels": int(model.theta.shape[1]),
            "n_support": len(model.support_ids),
            "classes": json.loads(model.classes_json),
        }
        scores = partial(self._scores, problem, state)
        reason = "rounding errors" if state.stop == "flat" else "max_iter={0.max_iter}"
        told = {"warnings": kernel_warnings(grams), "unfinished": ended_early(problem.config, reason)}
        return Result.bounded(model, state.stop, "all kernels", counts, **told, scores=scores)

    def _scores(self, problem: MKLProblem, state: MKLState) -> dict[str, Any]:
        return scores_of(problem.inputs, problem.decision_values(state))

    def decision_values(self, problem: MKLProblem, state: MKLState, resources: Resources) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        return problem.decision_values(state)

    def selected(self, problem: MKLProblem, state: MKLState, resources: Resources) -> Sequence[int]:
        """Return, for every fit, the number of kernels with non-zero weight; with several one-vs-rest models, the largest number."""
        return problem.selected(state)

    def tables(self, model: KernelModel, names: Sequence[str] | None = None, fit: tuple[MKLProblem, MKLState] | None = None) -> Tables:
        """Return two tables: the kernels in descending order of weight, and the largest weights along the iterations. Several classes have
        separate entries.
        """
        return followed_tables(model, names)

    # -- fits that leave rows out ------------------------------------------------------------------------------------------------------

    def shared_fits(
        self, configs: Sequence[MKLConfig], inputs: Inputs, masks: Sequence[np.ndarray], resources: Resources
    ) -> MKLProblem | None:
        """Return one problem for several fits, each without the rows of one mask; the fits share Gram matrices and passes. Return None for
        several parameter sets, and for ``solver="single"``, where each fit selects a kernel by folds of its own.
        """
        if len(configs) > 1 or configs[0].solver == "single":
            return None
        return shared_problem(configs, inputs, masks, resources)

    def restart(self, problem: MKLProblem, fresh: MKLState, before: MKLProblem, last: MKLState) -> MKLState:
        """Return those results of the previous searches that remain valid for another C, or for a part of the rows."""
        config = problem.config
        if config.solver == "uniform":
            return fresh
        if config != before.config:
            scale, parts = config.C / before.config.C, zip(fresh.machines, last.machines, problem.problems, strict=True)
            return replace(fresh, machines=tuple(continue_search(one, end, dual, scale) for one, end, dual in parts))
        if config.solver == "single":
            return fresh
        ends = last.machines * (len(fresh.machines) // len(last.machines))
        pairs = zip(fresh.machines, ends, strict=True)
        return replace(fresh, machines=tuple(replace(one, theta=end.best_theta, beta=end.best_beta) for one, end in pairs))


def shared_problem(configs: Sequence[MKLConfig], inputs: Inputs, masks: Sequence[np.ndarray | None], resources: Resources) -> MKLProblem:
    """Return one problem with a fit for every pair of a parameter set and a mask of held-out rows. The fits share Gram matrices and
    passes.
    """
    first = configs[0]
    specs = resolved_kernels(first.kernels, inputs.data, first.normalize)
    settings = gram_settings(first, specs, inputs.data, resources, inputs.counts)
    problems, trackers, machine_configs = [], [], []
    for config in configs:
        for mask in masks:
            machines = model_problems(config, inputs.without(mask))
            if inputs.classes is None:
                trackers.append(R2Tracker(len(problems), inputs.target, mask))
            else:
                trackers.append(AccuracyTracker(len(problems), len(machines), inputs.target, mask))
            problems += machines
            machine_configs += [config] * len(machines)
    n, k = inputs.data.n_rows, len(specs)
    problem = MKLProblem(first, inputs, tuple(specs), tuple(problems), settings, resources, tuple(trackers), tuple(machine_configs))
    check_machines(settings, problem.memory_items, n, k, resources, MKL.name)
    return problem
