"""The Feature Generating Machine as a method: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ...core.memory import driver_plan
from ...inputs.covariates import covariates_to_fit
from ...inputs.labels import Inputs, store_inputs
from ...inputs.scores import held_out_rows, with_held_out
from ...method import Method
from ...passes.blocks import column_tasks
from ...passes.columns import columns_bytes
from ...records.context import RunContext
from .atoms import build_atoms, map_warnings
from .build import build_model, last_weights, refit_weights
from .config import FGMConfig, resolve_config
from .designs import design_bytes, driver_items, refuse_columns, rows_step, solve_at
from .loop import FGMLoop, FGMState, certificates
from .model import FGMModel, selected_atoms
from .predict import FGMPredictor
from .problem import machine_problems
from .tables import covariate_tables, group_tables, path_rows, selected_rows


class FGM(Method):
    """Linear machines on few features, chosen by cutting planes."""

    name = "fgm"
    config_type = FGMConfig
    models = {FGMModel: FGMPredictor()}
    programs = "methods.fgm.score_pass"
    shares_points = True

    config: FGMConfig
    inputs: Inputs
    loop: FGMLoop

    @classmethod
    def read_inputs(cls, config: FGMConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[FGMConfig, Inputs]:
        """Return parameters, and target, weights, groups and covariates of a store; ``extra`` may hold ``groups``, ``covariates`` and
        ``test_share``. Raises DataError: a store without a target, or with one class only; covariates given twice, or unusable.
        """
        inputs = store_inputs(ctx, cls.name)
        groups = ctx.data.groups() if extra.get("groups") is None else extra["groups"]
        held_out = held_out_rows(extra, inputs.target, ctx.seed, inputs.classes)
        covariates = None
        if extra.get("covariates") is not None or ctx.data.has_table("covariates"):
            covariates = covariates_to_fit(extra.get("covariates"), ctx.data)
        return config, with_held_out(replace(inputs, groups=groups, covariates=covariates), held_out)

    @classmethod
    def build_loop(cls, config: FGMConfig, inputs: Inputs, ctx: RunContext) -> FGMLoop:
        """Return the loop of a fit: one machine for two classes or a real target, else one per class. Raises ValueError: a loss, groups, a
        map or covariates that do not suit, a class without weight; MemoryBoundExceeded: more scores and columns than the memory allows.
        """
        loop = shared_loop(ctx, [config], inputs, [inputs.held_out], ctx.fit_limit)
        available = loop.atoms.count(int(inputs.data.n_cols))
        if available < config.B:
            ctx.warn(f"B={config.B} {_few_atoms(available)}; at most B={available} can be used")
        return loop

    @classmethod
    def decided(cls, config: FGMConfig, inputs: Inputs, ctx: RunContext) -> FGMConfig:
        """Return parameters with the number of atoms of a cut, where it was left to its default and there are fewer."""
        if "B" in config.model_fields_set:
            return config
        available = build_atoms(config, inputs).count(int(inputs.data.n_cols))
        if available >= config.B:
            return config
        ctx.tell(f"B: {config.B} by default {_few_atoms(available)}, so B={available} is taken")
        return config.model_copy(update={"B": available})

    @classmethod
    def start(cls, config: FGMConfig, inputs: Inputs, ctx: RunContext) -> Self:
        """Return the method ready to run on inputs, with what depends on the target decided."""
        return super().start(resolve_config(config, inputs), inputs, ctx)

    @classmethod
    def prepare(cls, config: FGMConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Self:
        """Return the method ready to run on ``ctx.data``; a run follows the accuracy of every round, which takes decisions on all rows."""
        run = super().prepare(config, ctx, extra)
        run.loop.follow(run.inputs, [run.inputs.held_out])
        return run

    @property
    def q(self) -> int:
        """Number of covariates."""
        return 0 if self.inputs.covariates is None else self.inputs.covariates.q

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Tasks and bytes per round, memory of a task and of the driver."""
        loop, data, memory = self.loop, self.inputs.data, self.ctx.driver_memory
        tasks, (columns, first), machines = column_tasks(data), loop.columns, len(loop.problems)
        plan = {"atoms": loop.atoms.kind, "solve_at": solve_at(data, columns, memory)}
        plan |= {"design_bytes_at_most": design_bytes(data, columns), "n_atoms": loop.atoms.count(int(data.n_cols)), "machines": machines}
        plan |= {"rounds_at_most": self.config.most_rounds, "passes_at_most": self.config.most_rounds + 1, "tasks_per_pass": len(tasks)}
        plan |= {"bytes_read_per_pass": int(sum(ref.nbytes for task in tasks for ref in task))}
        plan |= {"task_bytes": max(self._steps()), **({"covariates": self.q} if self.q else {})}
        return plan | driver_plan(driver_items(data, columns, first, machines, memory, self.q))

    def _steps(self) -> Iterator[int]:
        """Yield the bytes of the largest steps: of a search, of rows of a machine, of all columns that a resumed run fetches again."""
        loop, data, memory = self.loop, self.inputs.data, self.ctx.driver_memory
        yield loop.atoms.search_bytes(data, loop.asked_at_most, memory)
        if solve_at(data, loop.columns[0], memory) == "workers":
            yield rows_step(data, max(loop.capacities), loop.atoms, max(problem.basis.q for problem in loop.problems))
        if self.config.debias or solve_at(data, loop.columns[0], memory) == "driver":
            yield columns_bytes(data, loop.columns[0] // loop.atoms.width * loop.atoms.n_read, memory)

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        return ("feature scores", *(("sub-problems, by rows",) if self.plan["solve_at"] != "driver" else ()))

    @classmethod
    def shared_fits(cls, configs: Sequence[FGMConfig], inputs: Inputs, masks: Sequence[np.ndarray], ctx: RunContext) -> Self | None:
        """Return one run of fits without the rows of every mask: they share candidates and passes."""
        return cls(resolve_config(configs[0], inputs), inputs, shared_loop(ctx, configs, inputs, masks, ctx.fit_limit), ctx)

    def follow_path(self, before: FGM | None) -> None:
        """Go all rounds, and keep the columns of machines that stop."""
        self.loop.keeps_columns = self.loop.goes_all_rounds = True

    def path_values(self, state: FGMState, ctx: RunContext) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
        """Yield the decision values after every number of rounds; of refits on the selection at the end alone."""
        if self.config.debias:
            yield from super().path_values(state, ctx)
            return
        done, values = max(len(machine.rounds) for machine in state.machines), np.zeros((0, 0))
        for rounds in range(1, self.config.most_rounds + 1):
            if rounds <= done:
                machines = tuple(replace(machine, rounds=machine.rounds[:rounds]) for machine in state.machines)
                values = self.loop.decision_values(replace(state, machines=machines), ctx)
            yield {"max_rounds": rounds}, values

    def model_values(self, model: FGMModel, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all rows, with their covariates."""
        return super().model_values(model, replace(ctx, covariates=self.inputs.covariates))

    def values_at_hand(self, state: FGMState, model: FGMModel, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all rows from the columns of the cuts, which need not be fetched again."""
        return self.model_values(model, ctx) if self.config.debias else self.loop.decision_values(state, ctx)

    def model(self, state: FGMState, ctx: RunContext) -> FGMModel:
        """Return the model of the last round, or of the refit on its selection."""
        atoms, pairs = self.loop.atoms, [(self.loop.priced(k, machine), machine) for k, machine in enumerate(state.machines)]
        weights = [refit_weights(atoms, *pair, ctx) if self.config.debias else last_weights(*pair) for pair in pairs]
        return build_model(self.config, self.inputs, atoms, state.machines, weights)

    def warnings(self, state: FGMState, model: FGMModel, ctx: RunContext) -> list[str]:
        """Return on which features an additive map is inaccurate."""
        return list(self.loop.warnings)

    def summary(self, state: FGMState, model: FGMModel) -> dict[str, Any]:
        """Return certificates, rounds, and how many features (groups, products) were selected."""
        figures, over = certificates(state.machines), "what was chosen so far; outer_gap is over all features"
        certificate = {"objective": figures["objective"], "gap": figures["gap"], "certified_over": over, "outer_gap": figures["outer_gap"]}
        rounds = max((len(machine.rounds) for machine in state.machines), default=0)
        counts: dict[str, object] = {"rounds": rounds, "n_selected": len(selected_atoms(state.machines)), "n_features": model.n_features}
        if model.covariate_names:
            counts["covariates"] = len(model.covariate_names)
        prices = [machine.C for machine in state.machines]
        counts["C"] = prices[0] if len(prices) == 1 else prices
        return {**certificate, **counts, "stop": state.stop, "classes": json.loads(model.classes_json)}

    def tables(self, state: FGMState, model: FGMModel) -> dict[str, list[dict[str, Any]]]:
        """Return the selected coordinates with names and weights, the heaviest first, coefficients of covariates, and selected groups."""
        return {**self.model_tables(model), **group_tables(model, self.loop.atoms)}

    @classmethod
    def model_tables(cls, model: FGMModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return what :meth:`tables` does; ``names``: of all features, where the model has none."""
        known = model if model.names is not None or names is None else replace(model, names=tuple(names[j] for j in model.features))
        return {"selected": selected_rows(known), "path_weights": path_rows(known), **covariate_tables(known)}


def _few_atoms(available: int) -> str:
    return f"exceeds the {available} features (groups, products) there are to choose from"


def shared_loop(ctx: RunContext, configs: Sequence[FGMConfig], inputs: Inputs, masks: Sequence[np.ndarray | None], limit: int) -> FGMLoop:
    """Return one loop for the fits of every parameters on every mask of rows held out; they share candidates and passes. ``limit`` is what
    scores, vectors and columns may take on the driver.
    """
    configs = [resolve_config(config, inputs) for config in configs]
    atoms = build_atoms(configs[0], inputs)
    available = atoms.count(int(inputs.data.n_cols))
    clipped = [config.model_copy(update={"B": min(config.B, available)}) for config in configs]
    problems = [problem for config in clipped for mask in masks for problem in machine_problems(config, with_held_out(inputs, mask))]
    loop = FGMLoop(atoms, problems, map_warnings(configs[0], inputs.data, atoms.centred))
    q = 0 if inputs.covariates is None else inputs.covariates.q
    refuse_columns(driver_items(inputs.data, *loop.columns, len(problems), ctx.driver_memory, q), limit)
    return loop
