"""Non-parametric kernel learning as a method: problem from a store and constraints, model and tables from the final state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....kernels.bounds import sound_gap
from ....kernels.spectral.dual_ascent import SpectralState, advance_ascent, begin_ascent, kernel_at, progress_figures
from ....kernels.spectral.problem import cap_used, close_pairs, pair_constraints
from ...core.memory import check_memory
from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...models.model import Tables
from ...models.spectral import SpectralModel
from ...records.data_set import require
from .config import NPKLConfig
from .problem import NPKLInputs, NPKLProblem

ACTIVE_CAP = 1.0 - 1e-6  # share of the cap from which it counts as active


class NPKL(Method[NPKLConfig, NPKLProblem, SpectralState, SpectralModel]):
    """A kernel of the training rows, from pairs of rows of the same or different clusters."""

    name = "npkl"
    config = NPKLConfig
    state = SpectralState
    models = (SpectralModel,)
    programs = "grams.eigen_blocks"

    def read_inputs(self, config: NPKLConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[NPKLConfig, NPKLInputs]:
        """Return parameters and constraints."""
        return config, NPKLInputs(resources.data, extra.get("constraints"))

    def problem(self, config: NPKLConfig, inputs: NPKLInputs, resources: Resources) -> NPKLProblem:
        """Return the problem of a fit. Raises ValueError for fewer than two rows, invalid constraints or impossible sizes, DataError for
        data without coordinates, and MemoryBoundExceeded if graph, constraints and the smallest possible number of eigenpairs exceed the
        driver's memory.
        """
        require(inputs.data, self.name, "columns")
        n = inputs.data.n_rows
        if n < 2:
            raise ValueError(f"n_samples={n}: a kernel over pairs of rows needs at least 2 rows")
        if config.n_neighbors >= n:
            resources.doubt(f"n_neighbors={config.n_neighbors} exceeds the {n - 1} other rows")
        if config.base is not None and config.base > n:
            raise ValueError(f"base={config.base}: must be at most the number of rows, {n}")
        pairs = pair_constraints(inputs.constraints, n)
        given, n_neighbors = close_pairs(pairs) if config.closure else pairs, min(config.n_neighbors, n - 1)
        problem = NPKLProblem(config, inputs, given, n_neighbors, resources)
        check_memory(self.name, problem.driver_items(), resources, "fewer rows, fewer constraints or a smaller base")
        return problem

    def init(self, problem: NPKLProblem, resources: Resources) -> SpectralState:
        """Return the initial state, alpha = C, which gives the kernel of the linear loss."""
        dual = problem.setting(resources).problem
        return begin_ascent(dual, np.full(dual.terms.size, problem.config.C))

    def step(self, problem: NPKLProblem, state: SpectralState, resources: Resources) -> Step[SpectralState]:
        """Compute one eigendecomposition and take a step."""
        config, dual = problem.config, problem.setting(resources).problem
        state = advance_ascent(dual, state, tol=config.tol, max_iter=config.max_iter, evaluator=problem.evaluator)
        return Step(state, progress_figures(dual, state))

    def result(self, problem: NPKLProblem, state: SpectralState, resources: Resources) -> Result[SpectralModel]:
        """Return the kernel with the smallest objective, and the number of constraints that it satisfies."""
        config, data, setting = problem.config, problem.inputs.data, problem.setting(resources)
        best = kernel_at(setting.problem, state, tol=config.tol, evaluator=problem.evaluator)
        rank, dual = int(np.count_nonzero(best.spectrum > 0)), max(state.best_dual, best.dual)
        # Rows of K are zero where a row has neither a neighbour nor a constraint.
        alone = setting.isolated & (setting.constraints.counts == 0)
        figures = {
            "objective": best.primal,
            "dual": dual,
            "gap": sound_gap(best.primal - dual, best.primal),
            "iterations": float(state.iteration),
            "converged": float(state.converged),
            "cap_used": cap_used(setting.problem, best),
            "isolated": float(setting.isolated.sum()),
            "isolated_alone": float(alone.sum()),
            "components": float(setting.components),
        }
        entries = setting.constraints.signs * best.forms
        arrays = {"constraints": setting.constraints.triples(), "alpha": state.best_alpha, "entries": entries}
        vectors = best.part.vectors
        vectors = np.ascontiguousarray(vectors[:, :rank]) if isinstance(vectors, np.ndarray) else vectors.leading(rank)
        digest = getattr(data, "digest", "") if data.url != "memory" else ""
        model = SpectralModel(config.model_dump_json(), digest, data.n_rows, vectors, best.spectrum[:rank], figures, arrays)
        messages, reason = _idle_parts(model), f"max_iter={config.max_iter}" if state.stop == "max_iter" else "rounding"
        return Result(
            model,
            state.stop,
            objective=figures["objective"],
            gap=figures["gap"],
            certified_over="all kernel matrices" if config.base is None else "kernel matrices on the base",
            figures={
                "rank": rank,
                "constraints": len(arrays["constraints"]),
                "constraints_given": problem.given.size,
                "satisfied": int(sum(row["satisfied"] for row in constraint_counts(model))),
                **({"remark": "; ".join(messages)} if messages else {}),
            },
            warnings=messages,
            unfinished=f"{reason} ended the fit at a duality gap of {figures['gap']:.3g}",
        )

    def tables(
        self, model: SpectralModel, names: Sequence[str] | None = None, fit: tuple[NPKLProblem, SpectralState] | None = None
    ) -> Tables:
        """Return the constraints by type, and the eigenvalues of the kernel."""
        return {
            "constraints": constraint_counts(model),
            "spectrum": [{"rank": k, "eigenvalue": float(value)} for k, value in enumerate(model.eigenvalues, 1)],
        }


def _idle_parts(model: SpectralModel) -> list[str]:
    """Return warnings about parts of the graph, the constraints or the bound that have no effect."""
    figures, messages = model.figures, []
    if isolated := figures["isolated"]:
        messages.append(
            f"{isolated:.0f} of {model.n_rows} rows have no neighbour in the graph, {figures['isolated_alone']:.0f} of these have no "
            "constraint either, and the kernel is zero there; set graph='union', or raise n_neighbors"
        )
    if not len(model.eigenvalues):
        messages.append("the kernel is zero: the constraints weigh too little against the graph; raise C")
    elif figures["cap_used"] < ACTIVE_CAP:
        messages.append(f"the cap B is not active: tr K^p is {figures['cap_used']:.3g} of it; a larger B changes nothing")
    return messages


def constraint_counts(model: SpectralModel) -> list[dict[str, Any]]:
    """Return, for constraints of either type, how many the kernel satisfies: the kernel's entry has the sign of the constraint."""
    signs, entries = model.arrays["constraints"][:, 2], model.arrays["entries"]
    rows = []
    for name, sign in (("together", 1), ("apart", -1)):
        chosen = signs == sign
        right = int(np.sum(chosen & (signs * entries > 0)))
        mean, count = float(entries[chosen].mean()) if chosen.any() else None, int(chosen.sum())
        rows.append({"constraints": name, "given": count, "satisfied": right, "violated": count - right, "mean_entry": mean})
    return rows
