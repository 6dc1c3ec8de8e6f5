"""OneVsRest extends a binary method to several classes: one binary model per class, trained side by side on shared matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic

import numpy as np

from ..inputs.scores import scores_of
from ..loops.protocol import joint_stop
from ..models.build import build_task_model
from ..models.model import Tables
from ..models.task import TaskModel, by_class
from ..records.config import MethodConfig
from .memory import Item, Memory, check_memory, driver_plan
from .method import Method
from .resources import Resources, RunContext, ignore
from .result import Result, S, Step

ALL_HOLD = ("converged", "certificate_complete")  # figures that are those of the worst machine
SUMS = ("objective", "gap", "lower_bound", "upper_bound", "restricted_gap", "n_added", "looked_at", "machines")  # figures that add up


@dataclass(frozen=True)
class JointState(Generic[S]):
    """The states of the binary models of all classes. Each method declares a subclass that names its state type."""

    iteration: int
    parts: tuple[S, ...]
    figures: tuple[dict[str, float], ...]  # of the newest step of each
    stop: str | None = None


@dataclass(eq=False)
class JointProblem:
    """The binary problems of all classes. They share the matrices of the first problem."""

    parts: tuple[Any, ...]
    state_type: type[Any]

    def __post_init__(self) -> None:
        first = self.parts[0]
        self.config, self.inputs, self.grams, self.distributed = first.config, first.inputs, first.grams, first.distributed
        for part in self.parts[1:]:
            part.grams = self.grams

    @property
    def items(self) -> list[Item]:
        """Memory items of the driver: shared items count once, other items once per problem."""
        first, count = self.parts[0], len(self.parts)
        shared = first.settings.items(self.inputs.data.n_rows, len(first.specs), first.planned.driver_memory)
        return [item if item in shared else (item[0], count * item[1]) for item in Memory.planned(first.plan).items]

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The plan of the first binary problem, but with the driver memory of all binary problems."""
        return {**self.parts[0].plan, **driver_plan(self.items), "machines": len(self.parts)}


class OneVsRest(Method[Any, Any, Any, TaskModel]):
    """A ``single`` method extended to any number of classes. Binary and numeric targets go to ``single`` unchanged.

    ``single.problem`` with the argument ``machine`` makes the problem of one class. ``single.joint_state`` names the record of the combined
    states, and ``single.finished`` lists the stop reasons that mean convergence.
    """

    def __init__(self, single: Any) -> None:
        self.single = single
        vars(self).update({name: getattr(single, name) for name in ("name", "config", "state", "models", "programs")})

    def read_inputs(self, config: MethodConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return parameters, and the target, weights and tasks of a store. ``extra`` holds further inputs."""
        return self.single.read_inputs(config, resources, extra)

    def problem(self, config: MethodConfig, inputs: Any, resources: Resources) -> Any:
        """Return the problem of a fit. Raises MemoryBoundExceeded if the binary models together exceed the memory limit."""
        first = self.single.problem(config, inputs, resources)
        if inputs.n_machines == 1:
            return first
        others = (self.single.problem(first.config, inputs, resources, machine) for machine in range(1, inputs.n_machines))
        joint = JointProblem((first, *others), self.single.joint_state)
        check_memory(self.name, joint.items, resources, "fewer rows, kernels or classes")
        return joint

    def init(self, problem: Any, resources: Resources) -> Any:
        """Return the initial state. Warnings about the data are emitted for one class only."""
        if not isinstance(problem, JointProblem):
            return self.single.init(problem, resources)
        quiet = replace(resources, emit=ignore)
        parts = tuple(self.single.init(part, quiet if k else resources) for k, part in enumerate(problem.parts))
        return problem.state_type(0, parts, tuple({} for _ in parts))

    def step(self, problem: Any, state: Any, resources: Resources) -> Step[Any]:
        """Take one step of every binary model that has not stopped."""
        if not isinstance(problem, JointProblem):
            return self.single.step(problem, state, resources)
        parts, figures, seconds = list(state.parts), list(state.figures), dict[str, float]()
        for k, (part, own) in enumerate(zip(problem.parts, state.parts, strict=True)):
            if own.stop is None:
                step = self.single.step(part, own, resources)
                parts[k], figures[k] = step.state, {name: float(value) for name, value in step.metrics.items()}
                for name in [name for name in figures[k] if name.startswith("seconds")]:
                    seconds[name] = seconds.get(name, 0.0) + figures[k].pop(name)
        reasons = [own.stop for own in parts]
        stop = joint_stop(reasons, [reason for reason in reasons if reason is not None and reason not in self.single.finished])
        new = problem.state_type(state.iteration + 1, tuple(parts), tuple(figures), stop)
        scores = scores_of(problem.inputs, self.decision_values(problem, new, resources))
        return Step(new, {**joined_figures(figures), **scores, **seconds})

    def result(self, problem: Any, state: Any, resources: Resources) -> Result[TaskModel]:
        """Return the combined model and its combined figures."""
        if not isinstance(problem, JointProblem):
            return self.single.result(problem, state, resources)
        results = [self.single.result(part, own, resources) for part, own in zip(problem.parts, state.parts, strict=True)]
        model, rows = self._model(problem, state, [one.model for one in results], resources), [one.figures for one in results]
        numbers = [name for name, value in rows[0].items() if isinstance(value, int | float) and not isinstance(value, bool)]
        joined = joined_figures([{name: row[name] for name in numbers} for row in rows])
        flags = {name: all(row[name] for row in rows) for name, value in rows[0].items() if isinstance(value, bool)}
        return Result(
            model,
            state.stop,
            objective=sum(one.objective for one in results),
            gap=sum(one.gap for one in results),
            certified_over=min((one.certified_over for one in results), key=lambda text: (len(text), text)),
            figures={**rows[0], **joined, **flags, "n_support": len(model.support_ids)},
            warnings=results[0].warnings,
            unfinished=next((one.unfinished for one in results if one.stop not in self.single.finished), ""),
            scores=lambda: scores_of(problem.inputs, self.decision_values(problem, state, resources)),
        )

    def _model(self, problem: JointProblem, state: Any, models: Sequence[TaskModel], resources: Resources) -> TaskModel:
        beta = np.zeros((len(models), len(problem.inputs.codes)))
        for row, model in zip(beta, models, strict=True):
            row[model.support_ids] = model.beta
        parts = [model.figures for model in models]
        worst = {name: min(one[name] for one in parts) for name in ALL_HOLD if name in parts[0]}
        figures = {**joined_figures(parts), **worst, "iterations": float(state.iteration)}
        figures |= {f"{name}_{m}": value for m, model in enumerate(models) for name, value in model.figures.items()}
        arrays = {f"{name}_{m}": value for m, model in enumerate(models) for name, value in model.arrays.items()}
        weights, intercepts = (np.stack([getattr(model, name) for model in models]) for name in ("weights", "intercepts"))
        specs, norms = problem.parts[0].specs, problem.grams(resources).normalizations
        return build_task_model(problem.config, problem.inputs, specs, norms, weights, beta, intercepts, figures, arrays)

    def decision_values(self, problem: Any, state: Any, resources: Resources) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        if not isinstance(problem, JointProblem):
            return self.single.decision_values(problem, state, resources)
        pairs = zip(problem.parts, state.parts, strict=True)
        return np.concatenate([self.single.decision_values(part, own, resources) for part, own in pairs])

    def tables(self, model: TaskModel, names: Sequence[str] | None = None, fit: tuple[Any, Any] | None = None) -> Tables:
        fits = list(zip(fit[0].parts, fit[1].parts, strict=True)) if fit and isinstance(fit[0], JointProblem) else [fit] * model.n_machines
        tables = [self.single.tables(class_model(model, m), names, one) for m, one in enumerate(fits)]
        return tables[0] if len(tables) == 1 else by_class(tables, model.labels)


def joined_figures(figures: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Combine the figures of all binary models: additive figures are summed; of any other figure, the largest value is returned."""
    return {name: sum(one[name] for one in figures) if name in SUMS else max(one[name] for one in figures) for name in figures[0]}


def class_model(model: TaskModel, machine: int) -> TaskModel:
    """Return the binary model of one class, with its own figures and arrays. A model of two classes is returned unchanged."""
    if model.n_machines == 1:
        return model
    ending = f"_{machine}"
    figures = {name.removesuffix(ending): value for name, value in model.figures.items() if name.endswith(ending)}
    arrays = {name.removesuffix(ending): value for name, value in model.arrays.items() if name.endswith(ending)}
    return replace(model.machine(machine), figures=figures, arrays=arrays)


def of_machines(parts: list[Any]) -> Any:
    """Return the only element if there is one, otherwise the list. Estimators use it for attributes of their binary models."""
    return parts[0] if len(parts) == 1 else parts
