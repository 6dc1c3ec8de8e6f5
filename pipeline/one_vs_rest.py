"""OneVsRest: a method of two classes on several ones: a machine of each class against the rest, side by side, on the same matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .core.memory import Item, Memory, check_memory, driver_plan
from .inputs.scores import accuracy_metrics
from .inputs.tasks import task_fit
from .loops.side_by_side import SideBySide, joined_figures
from .method import Method
from .models.task import TaskModel, by_class
from .models.task_build import build_task_model
from .records.context import RunContext

ALL_HOLD = ("converged", "certificate_complete")  # figures that are those of the worst machine


@dataclass(frozen=True)
class OneVsRest(Method[Any, Any, Any, Any]):
    """What a method adds to itself of two classes: ``single`` makes the loop of one class, ``machine`` its number.

    A class that derives from this one and from the method of two classes names it, and the record of the state; the parts are runs of it,
    each with the labels of its class.
    """

    single: ClassVar[Any]
    state_type: ClassVar[type[Any]]

    loop: SideBySide[Any]

    @classmethod
    def over(cls, config: Any, inputs: Any, ctx: RunContext) -> OneVsRest:
        """Return the method ready to run on inputs of several classes.

        Raises MemoryBoundExceeded: together the machines are more than the memory allows.
        """
        config = cls.decided(config, inputs, ctx)
        loops = [cls.single.build_loop(config, inputs, ctx, machine=machine) for machine in range(inputs.n_machines)]
        fit, decide = task_fit(inputs), cls.single.decision_of

        def scores(parts: Sequence[Any]) -> dict[str, Any]:
            return accuracy_metrics([fit], {m: decide(part) for m, part in enumerate(parts)})

        ready = cls(config, inputs, SideBySide(loops, cls.state_type, scores, cls.single.is_unfinished), ctx)
        check_memory(cls.name, ready.items, ctx, "fewer rows, kernels or classes")
        return ready

    @cached_property
    def parts(self) -> list[Method]:
        """The runs of every class against the rest."""
        return [self.single(self.config, self.inputs, loop, self.ctx) for loop in self.loop.loops]

    @property
    def items(self) -> list[Item]:
        """What the driver holds: of the first machine everything, of the others what is not matrices that they share."""
        first, count = self.loop.loops[0], len(self.parts)
        shared = first.settings.items(self.ctx.data.n_rows, len(first.specs), self.ctx.driver_memory)
        items = Memory.planned(self.parts[0].plan).items
        return [item if item in shared else (item[0], count * item[1]) for item in items]

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The plan of one machine, with what all of them hold."""
        count = len(self.parts)
        return {**self.parts[0].plan, **driver_plan(self.items), "machines": count}

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        return self.parts[0].distributed

    def model(self, state: Any, ctx: RunContext) -> TaskModel:
        """Return the model of all machines."""
        models: list[TaskModel] = [part.model(one, ctx) for part, one in zip(self.parts, state.parts, strict=True)]
        beta = np.zeros((len(models), len(self.inputs.codes)))
        for row, model in zip(beta, models, strict=True):
            row[model.support_ids] = model.beta
        parts = [model.figures for model in models]
        worst = {name: min(one[name] for one in parts) for name in ALL_HOLD if name in parts[0]}
        figures = {**joined_figures(parts), **worst, "iterations": float(state.iteration)}
        figures |= {f"{name}_{m}": value for m, model in enumerate(models) for name, value in model.figures.items()}
        arrays = {f"{name}_{m}": value for m, model in enumerate(models) for name, value in model.arrays.items()}
        first = self.loop.loops[0]
        weights, intercepts = (np.stack([getattr(model, name) for model in models]) for name in ("weights", "intercepts"))
        norms = first.grams(ctx).normalizations
        return build_task_model(self.config, self.inputs, first.specs, norms, weights, beta, intercepts, figures, arrays)

    def decision_values(self, state: Any, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        return np.concatenate([part.decision_values(one, ctx) for part, one in zip(self.parts, state.parts, strict=True)])

    def warnings(self, state: Any, model: TaskModel, ctx: RunContext) -> list[str]:
        """Return what the user should know of the matrices, which the machines share."""
        return self.parts[0].warnings(state.parts[0], class_model(model, 0), ctx)

    def summary(self, state: Any, model: TaskModel) -> dict[str, Any]:
        """Return the figures of all machines together."""
        rows = [part.summary(one, class_model(model, m)) for m, (part, one) in enumerate(zip(self.parts, state.parts, strict=True))]
        numbers = {name: value for name, value in rows[0].items() if isinstance(value, (int, float)) and not isinstance(value, bool)}
        joined = joined_figures([{name: row[name] for name in numbers} for row in rows])
        flags = {name: all(row[name] for row in rows) for name, value in rows[0].items() if isinstance(value, bool)}
        over = {"certified_over": min((row["certified_over"] for row in rows), key=lambda text: (len(text), text))}
        return {**rows[0], **joined, **flags, **over, "n_support": len(model.support_ids), "stop": state.stop}

    def tables(self, state: Any, model: TaskModel) -> dict[str, list[dict[str, Any]]]:
        """Return the tables of all machines, class by class."""
        parts = enumerate(zip(self.parts, state.parts, strict=True))
        return by_class([part.tables(one, class_model(model, m)) for m, (part, one) in parts], self.inputs.labels)


def class_model(model: TaskModel, machine: int) -> TaskModel:
    """Return the model of one class against the rest, with its own figures and arrays; one of two classes is itself."""
    if model.n_machines == 1:
        return model
    ending = f"_{machine}"
    figures = {name.removesuffix(ending): value for name, value in model.figures.items() if name.endswith(ending)}
    arrays = {name.removesuffix(ending): value for name, value in model.arrays.items() if name.endswith(ending)}
    return replace(model.machine(machine), figures=figures, arrays=arrays)


def class_tables(method: type[Method], model: TaskModel, names: Sequence[str] | None) -> dict[str, list[dict[str, Any]]]:
    """Return the tables that follow from a model of several classes, class by class."""
    return by_class([method.model_tables(class_model(model, m), names) for m in range(model.n_machines)], model.labels)


def of_machines(parts: list[Any]) -> Any:
    """Return what an estimator says of its machines: of a single one the thing itself, else a list."""
    return parts[0] if len(parts) == 1 else parts
