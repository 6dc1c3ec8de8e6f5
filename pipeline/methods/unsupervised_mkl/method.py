"""Unsupervised multiple kernel learning as a method: problem from rows, kernel principal components and tables from the final state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....kernels.weights.umkl import solve_simplex_qp
from ...core.memory import check_memory
from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...inputs.kernels import gram_settings, resolved_kernels, with_decided_kernels
from ...inputs.labels import Inputs
from ...models.build import build_model
from ...models.kernel import KernelModel, kernel_names
from ...models.model import Tables
from ...models.tables import kernel_rows, weight_tables
from .components import choose_way, components_by_passes, principal_components
from .config import UMKLConfig
from .problem import UMKLInputs, UMKLProblem, UMKLState
from .sums_pass import PassGrams


class UMKL(Method[UMKLConfig, UMKLProblem, UMKLState, KernelModel]):
    """Kernel weights under which a few similar rows reconstruct every row."""

    name = "unsupervised-mkl"
    config = UMKLConfig
    state = UMKLState
    models = (KernelModel,)
    programs = "methods.unsupervised_mkl.strips_pass"

    def read_inputs(self, config: UMKLConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[UMKLConfig, UMKLInputs]:
        """Return the parameters and rows; a target is not read."""
        return config, UMKLInputs(resources.data)

    def problem(self, config: UMKLConfig, inputs: UMKLInputs, resources: Resources) -> UMKLProblem:
        """Return the problem of a fit. Raises ValueError for data without coordinates (strings, matrices) or with fewer than two rows, and
        MemoryBoundExceeded if the rows exceed the driver's memory.
        """
        config, data = with_decided_kernels(config, inputs.data, resources), inputs.data
        if data.holds != "columns":
            raise ValueError(
                "unsupervised-mkl reconstructs samples from others and needs their features; strings and precomputed kernels have none"
            )
        if data.n_rows < 2:
            raise ValueError(f"n_samples={data.n_rows}: every sample is reconstructed from others, so at least 2 are needed")
        n_bases = min(config.n_bases, data.n_rows - 1)
        if n_bases < config.n_bases:
            resources.doubt(f"n_bases={config.n_bases} exceeds the {n_bases} other samples")
        specs = tuple(resolved_kernels(config.kernels, data, "none" if config.normalize == "column_sum" else config.normalize))
        settings = gram_settings(config, specs, data, resources)
        way = choose_way(config, settings, data, len(specs), n_bases, resources.driver_memory)
        check_memory(self.name, way.items, resources, "fewer rows or kernels")
        return UMKLProblem(config, inputs, specs, n_bases, way, resources)

    def init(self, problem: UMKLProblem, resources: Resources) -> UMKLState:
        """Return the initial state: equal weights, no bases."""
        k, bases = len(problem.specs), np.full((problem.inputs.data.n_rows, problem.n_bases), -1, np.int32)
        return UMKLState(0, np.full(k, 1.0 / k), bases, np.inf, np.inf, np.zeros((0, k)))

    def step(self, problem: UMKLProblem, state: UMKLState, resources: Resources) -> Step[UMKLState]:
        """Choose the bases, then the weights."""
        config = problem.config
        sweep = problem.sweep(problem.inputs.data, resources, state.weights, state.bases if state.iteration else None)
        changed = int(np.sum(np.any(np.sort(sweep.bases, axis=1) != np.sort(state.bases, axis=1), axis=1)))
        best = solve_simplex_qp(sweep.terms.W, sweep.terms.u, state.weights)
        new = UMKLState(state.iteration + 1, best.weights, sweep.bases, sweep.terms.value(best.weights), best.gap, state.path)
        if config.safeguard and state.iteration and new.objective >= state.objective:
            # Sums of single precision: what is left to gain is rounding, and the objective must not rise.
            new, changed = replace(new, weights=state.weights, bases=state.bases, objective=state.objective, qp_gap=state.qp_gap), 0
        is_settled = new.iteration > 1 and not changed and state.objective - new.objective <= config.tol * abs(state.objective)
        if len(problem.specs) == 1 or is_settled:
            new = replace(new, stop="tol")
        elif new.iteration >= config.max_iter:
            new = replace(new, stop="max_iter")
        new = replace(new, path=np.concatenate([state.path, new.weights[None, :]]))
        metrics = {"objective": new.objective, "gap": new.qp_gap, "changed": changed, "kept": sweep.n_kept}
        return Step(new, {**metrics, "n_selected": int(np.count_nonzero(new.weights))})

    def result(self, problem: UMKLProblem, state: UMKLState, resources: Resources) -> Result[KernelModel]:
        """Return the model, with one set of coefficients per principal component of the learnt kernel, and the number of kernels with
        non-zero weight.
        """
        config, data, grams = problem.config, problem.inputs.data, problem.grams(resources)
        weights, count = state.weights * problem.factors(resources), config.n_components
        if isinstance(grams, PassGrams):
            found = components_by_passes(grams.total(weights), count)
        else:
            found = principal_components(grams, weights, count)
        figures = {"objective": float(state.objective), "qp_gap": float(state.qp_gap), "iterations": float(state.iteration)}
        figures["converged"] = float(state.stop != "max_iter")
        figures |= {"component_residual": found.residual} if problem.way.by_passes else {}
        arrays = {"weights": state.weights, "bases": state.bases, "eigenvalues": found.eigenvalues}
        inputs, theta = Inputs(data, np.zeros(grams.n), None), np.tile(weights, (count, 1))
        return Result(
            build_model(config, inputs, grams, theta, found.beta, found.intercepts, figures, arrays),
            state.stop,
            objective=figures["objective"],
            gap=figures["qp_gap"],
            certified_over="the weights, for these bases",
            unfinished=f"max_iter={config.max_iter} ended the fit while bases still changed",
            figures={"n_selected": int(np.count_nonzero(state.weights)), "n_kernels": len(state.weights)},
        )

    def tables(self, model: KernelModel, names: Sequence[str] | None = None, fit: tuple[UMKLProblem, UMKLState] | None = None) -> Tables:
        """Return the kernels by weight; if the fit is given, also the largest weights along the rounds."""
        names = kernel_names(model, names)
        if fit is None:
            return {"kernels": kernel_rows(names, [0], model.arrays["weights"][None])}
        return weight_tables(names, [0], fit[1].weights[None], [fit[1].path])
