"""The Feature Generating Machine as a method: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ....storage import DataError
from ...inputs.labels import Inputs, store_inputs
from ...inputs.scores import held_out_rows, with_held_out
from ...method import Method
from ...passes.blocks import column_tasks
from ...passes.columns import columns_bytes
from ...records.context import RunContext
from ...records.holdings import holdings_plan
from .atoms import build_atoms, map_warnings
from .build import build_model, last_weights, refit_weights
from .config import FGMConfig
from .designs import HELD, design_bytes, driver_holdings, refuse_columns, rows_step, solve_at
from .loop import FGMLoop, FGMState, certificates
from .model import FGMModel
from .pairs import SURVIVORS
from .predict import FGMPredictor
from .problem import binary_problems
from .tables import group_tables, path_rows, selected_rows


class FGM(Method):
    """Linear machines on few features, chosen by cutting planes."""

    name = "fgm"
    config_type = FGMConfig
    models = {FGMModel: FGMPredictor()}
    held = (*HELD, SURVIVORS)
    programs = "methods.fgm.score_pass"

    config: FGMConfig
    inputs: Inputs
    loop: FGMLoop

    @classmethod
    def read_inputs(cls, config: FGMConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[FGMConfig, Inputs]:
        """Return parameters, and labels, weights and groups of a store; ``extra`` may hold ``groups`` and ``test_share``. Raises DataError:
        a store without a target, with a real-valued one, or with one class only.
        """
        inputs = store_inputs(ctx, cls.name)
        if inputs.classes is None:
            raise DataError("the target is real-valued; fgm needs class labels (ingest with --task classification)", ctx.data.url)
        groups = ctx.data.groups() if extra.get("groups") is None else extra["groups"]
        held_out = held_out_rows(extra, inputs.target, ctx.seed, inputs.classes)
        return config, with_held_out(replace(inputs, groups=groups), held_out)

    @classmethod
    def build_loop(cls, config: FGMConfig, inputs: Inputs, ctx: RunContext) -> FGMLoop:
        """Return the loop of a fit: one machine for two classes, else one per class. Raises ValueError: groups or a map that do not suit, a
        class without weight; MemoryBoundExceeded: more scores and columns than the memory allows.
        """
        loop = shared_loop(ctx, [config], inputs, [inputs.held_out], ctx.fit_limit)
        available = loop.atoms.count(int(inputs.data.n_cols))
        if available < config.B:
            most = f"at most B={available} can be used"
            ctx.warn(f"B={config.B} exceeds the {available} features (groups, products) there are to choose from; {most}")
        return loop

    @classmethod
    def prepare(cls, config: FGMConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Self:
        """Return the method ready to run on ``ctx.data``; a run follows the accuracy of every round, which takes decisions on all rows."""
        run = super().prepare(config, ctx, extra)
        run.loop.follow(run.inputs, [run.inputs.held_out])
        return run

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Tasks and bytes per round, memory of a task and of the driver."""
        loop, data, memory = self.loop, self.inputs.data, self.ctx.driver_memory
        tasks, (columns, first), machines = column_tasks(data), loop.columns, len(loop.problems)
        plan = {"atoms": loop.atoms.kind, "solve_at": solve_at(data, columns, memory)}
        plan |= {"design_bytes_at_most": design_bytes(data, columns), "n_atoms": loop.atoms.count(int(data.n_cols)), "machines": machines}
        plan |= {"rounds_at_most": self.config.max_rounds, "passes_at_most": self.config.max_rounds + 1, "tasks_per_pass": len(tasks)}
        plan |= {"bytes_read_per_pass": int(sum(ref.nbytes for task in tasks for ref in task))}
        plan |= {"task_bytes": max(self._steps())}
        return plan | holdings_plan(driver_holdings(data, columns, first, machines, memory))

    def _steps(self) -> Iterator[int]:
        """Yield the bytes of the largest steps: of a search, of rows of a machine, of all columns that a resumed run fetches again."""
        loop, data, memory = self.loop, self.inputs.data, self.ctx.driver_memory
        yield loop.atoms.search_bytes(data, loop.asked_at_most, memory)
        if solve_at(data, loop.columns[0], memory) == "workers":
            yield rows_step(data, max(loop.capacities), loop.atoms)
        if self.config.debias or solve_at(data, loop.columns[0], memory) == "driver":
            yield columns_bytes(data, loop.columns[0] // loop.atoms.width * loop.atoms.n_read, memory)

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        return ("feature scores", *(("sub-problems, by rows",) if self.plan["solve_at"] != "driver" else ()))

    @classmethod
    def shared_folds(cls, config: FGMConfig, inputs: Inputs, masks: Sequence[np.ndarray], ctx: RunContext) -> Self | None:
        """Return one run of fits without the rows of every mask: they share candidates and passes."""
        return cls(config, inputs, shared_loop(ctx, [config], inputs, masks, ctx.fit_limit), ctx)

    def model(self, state: FGMState, ctx: RunContext) -> FGMModel:
        """Return the model of the last round, or of the refit on its selection."""
        atoms, pairs = self.loop.atoms, list(zip(self.loop.problems, state.machines, strict=True))
        weights = [refit_weights(atoms, *pair, ctx) if self.config.debias else last_weights(*pair) for pair in pairs]
        return build_model(self.config, self.inputs, atoms, state.machines, weights)

    def warnings(self, state: FGMState, model: FGMModel, ctx: RunContext) -> list[str]:
        """Return on which features an additive map is inaccurate."""
        return list(self.loop.warnings)

    def summary(self, state: FGMState, model: FGMModel) -> dict[str, Any]:
        """Return certificates, rounds, and how many features (groups, products) were selected."""
        selections = [machine.selected() for machine in state.machines if machine.cuts]
        figures, over = certificates(state.machines), "what was chosen so far; outer_gap is over all features"
        certificate = {"objective": figures["objective"], "gap": figures["gap"], "certified_over": over, "outer_gap": figures["outer_gap"]}
        rounds = max((len(machine.rounds) for machine in state.machines), default=0)
        n_selected = len(np.unique(np.concatenate(selections), axis=0)) if selections else 0
        counts = {"rounds": rounds, "n_selected": n_selected, "n_features": model.n_features}
        return {**certificate, **counts, "stop": state.stop, "classes": json.loads(model.classes_json)}

    def tables(self, state: FGMState, model: FGMModel) -> dict[str, list[dict[str, Any]]]:
        """Return the selected coordinates with names and weights, the heaviest first, and the selected groups."""
        return {**self.model_tables(model), **group_tables(model, self.loop.atoms)}

    @classmethod
    def model_tables(cls, model: FGMModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return what :meth:`tables` does; ``names``: of all features, where the model has none."""
        known = model if model.names is not None or names is None else replace(model, names=tuple(names[j] for j in model.features))
        return {"selected": selected_rows(known), "path_weights": path_rows(known)}


def shared_loop(ctx: RunContext, configs: Sequence[FGMConfig], inputs: Inputs, masks: Sequence[np.ndarray | None], limit: int) -> FGMLoop:
    """Return one loop for the fits of every parameters on every mask of rows held out; they share candidates and passes. ``limit`` is what
    scores, vectors and columns may take on the driver.
    """
    atoms = build_atoms(configs[0], inputs)
    available = atoms.count(int(inputs.data.n_cols))
    clipped = [config.model_copy(update={"B": min(config.B, available)}) for config in configs]
    problems = [problem for config in clipped for mask in masks for problem in binary_problems(config, with_held_out(inputs, mask))]
    loop = FGMLoop(atoms, problems, map_warnings(configs[0], inputs.data))
    refuse_columns(driver_holdings(inputs.data, *loop.columns, len(problems), ctx.driver_memory), limit)
    return loop
