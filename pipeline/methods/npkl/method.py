"""Non-parametric kernel learning as a method: from a store and constraints to a loop, from its state to model and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ....kernels.bounds import sound_gap
from ....kernels.spectral.dual_ascent import SpectralState
from ....kernels.spectral.problem import cap_used, close_pairs, pair_constraints
from ...core.memory import check_memory, driver_plan, total_bytes
from ...grams.eigen_plan import EigenPlan
from ...grams.neighbours import plan_distances, plan_neighbours
from ...method import Method
from ...models.spectral import SpectralModel
from ...models.spectral_predict import SpectralPredictor
from ...records.context import RunContext
from ...records.data_set import DataSet, require
from .config import NPKLConfig
from .loop import NPKLLoop

ACTIVE_CAP = 1.0 - 1e-6  # share of the cap from which it counts as active


@dataclass(frozen=True)
class NPKLInputs:
    """Rows, and constraints on their pairs: triples ``(m, 3)`` i, j, +1 or -1, or a sparse matrix."""

    data: DataSet
    constraints: Any


class NPKL(Method):
    """A kernel of the rows of the fit, from pairs that belong together or apart."""

    name = "npkl"
    config_type = NPKLConfig
    models = {SpectralModel: SpectralPredictor()}
    programs = "grams.eigen_blocks"

    config: NPKLConfig
    inputs: NPKLInputs
    loop: NPKLLoop

    @classmethod
    def read_inputs(cls, config: NPKLConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[NPKLConfig, NPKLInputs]:
        """Return parameters and constraints."""
        return config, NPKLInputs(ctx.data, extra.get("constraints"))

    @classmethod
    def build_loop(cls, config: NPKLConfig, inputs: NPKLInputs, ctx: RunContext) -> NPKLLoop:
        """Return the loop of a fit. Raises ValueError: fewer than two rows, constraints that are none, sizes that cannot be; DataError:
        data without coordinates; MemoryBoundExceeded: graph, constraints and the least eigenpairs are more than the driver may hold.
        """
        require(inputs.data, cls.name, "columns")
        n = inputs.data.n_rows
        if n < 2:
            raise ValueError(f"n_samples={n}: a kernel over pairs of rows needs at least 2")
        if config.n_neighbors >= n:
            ctx.doubt(f"n_neighbors={config.n_neighbors} exceeds the {n - 1} other rows")
        if config.base is not None and config.base > n:
            raise ValueError(f"base={config.base}: there are {n} rows, and no more functions on them")
        pairs = pair_constraints(inputs.constraints, n)
        loop = NPKLLoop(config, close_pairs(pairs) if config.closure else pairs, min(config.n_neighbors, n - 1), ctx.seed)
        held = loop.driver_items(n, ctx.driver_memory)
        check_memory(cls.name, held, ctx, "fewer rows, fewer constraints or a smaller base")
        return loop

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The graph's pass, and where the eigensolver's block lies; its columns show on the way, and with them the bytes of a task."""
        loop, data, solver = self.loop, self.ctx.data, self._solver
        neighbours, others = plan_neighbours(data, loop.n_neighbors), total_bytes(loop.given_items(data.n_rows))
        judged = loop.judged_pairs()
        step = max(neighbours["task_bytes"], 0 if judged is None else plan_distances(data, *judged)["task_bytes"])
        return {
            **neighbours,
            **({"task_bytes": step} if solver is None else solver.task_figures(step)),
            **driver_plan(loop.driver_items(data.n_rows, self.ctx.driver_memory)),
            **({"eigensolver": "in this process, on the base"} if solver is None else solver.describe(others)),
            "n_rows": data.n_rows,
            "n_neighbors": loop.n_neighbors,
            "constraints": loop.given.size,
            "iterations_at_most": 1 if self.config.loss == "linear" else self.config.max_iter,
        }

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        judged = () if self.config.selection is None else ("distances of constrained pairs",)
        return ("neighbours", *judged, *(() if self._solver is None else self._solver.work()))

    @property
    def _solver(self) -> EigenPlan | None:
        return self.loop.eigen_plan(self.ctx.data.n_rows, self.ctx.driver_memory, self.ctx.executor.kind == "sync")

    def model(self, state: SpectralState, ctx: RunContext) -> SpectralModel:
        """Return the kernel of the least objective."""
        best, setting = self.loop.kernel(state, ctx), self.loop.setting(ctx)
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
        digest = getattr(ctx.data, "digest", "") if ctx.data.url != "memory" else ""
        return SpectralModel(self.config.model_dump_json(), digest, ctx.data.n_rows, vectors, best.spectrum[:rank], figures, arrays)

    def warnings(self, state: SpectralState, model: SpectralModel, ctx: RunContext) -> list[str]:
        """Return what of graph, constraints or cap has no effect."""
        figures, messages = model.figures, []
        if isolated := figures["isolated"]:
            messages.append(
                f"{isolated:.0f} of {model.n_rows} rows have no neighbour in the graph, {figures['isolated_alone']:.0f} of these no "
                "constraint either, so that the kernel is zero there; graph='union' or more n_neighbors link them"
            )
        if not len(model.eigenvalues):
            messages.append("the kernel is zero: the constraints weigh too little against the graph; raise C")
        elif figures["cap_used"] < ACTIVE_CAP:
            messages.append(f"the cap B is not active: tr K^p is {figures['cap_used']:.3g} of it; a larger B changes nothing")
        return messages

    def summary(self, state: SpectralState, model: SpectralModel) -> dict[str, Any]:
        """Return the certificate, and how many constraints the kernel agrees with."""
        messages = self.warnings(state, model, self.ctx)
        return {
            "objective": model.figures["objective"],
            "gap": model.figures["gap"],
            "certified_over": "all kernel matrices" if self.config.base is None else "kernel matrices on the base",
            "rank": len(model.eigenvalues),
            "constraints": len(model.arrays["constraints"]),
            "constraints_given": self.loop.given.size,
            "satisfied": int(sum(row["satisfied"] for row in constraint_counts(model))),
            "stop": state.stop,
            **({"remark": "; ".join(messages)} if messages else {}),
        }

    def tables(self, state: SpectralState, model: SpectralModel) -> dict[str, list[dict[str, Any]]]:
        """Return constraints by kind, and the eigenvalues of the kernel."""
        return {
            "constraints": constraint_counts(model),
            "spectrum": [{"rank": k, "eigenvalue": float(value)} for k, value in enumerate(model.eigenvalues, 1)],
        }


def constraint_counts(model: SpectralModel) -> list[dict[str, Any]]:
    """Return how many constraints of either kind the kernel agrees with: an entry with the sign of the constraint."""
    signs, entries = model.arrays["constraints"][:, 2], model.arrays["entries"]
    rows = []
    for name, sign in (("together", 1), ("apart", -1)):
        chosen = signs == sign
        right = int(np.sum(chosen & (signs * entries > 0)))
        mean, count = float(entries[chosen].mean()) if chosen.any() else None, int(chosen.sum())
        rows.append({"constraints": name, "given": count, "satisfied": right, "violated": count - right, "mean_entry": mean})
    return rows
