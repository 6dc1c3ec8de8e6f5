"""What every way to select features over many tasks has: config, rows, plan; each kind of problem takes its own steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar

from ...core.memory import check_memory, driver_plan
from ...core.resources import Resources
from ...core.result import Step
from ...inputs.scores import AccuracyTracker, R2Tracker, fit_tracker
from ...inputs.tasks import TaskInputs
from ...passes.columns import NEEDS_ROWS, has_rows
from .config import SelectorConfig
from .inputs import Solution, penalty_weight, selector_data
from .memory import FEWER_COLUMNS, Way, driver_items


class SelectorProblem(ABC):
    """Features that are to be selected; ``trackers`` follow accuracy or R2, if any."""

    state_type: ClassVar[type[Any]]
    counter: ClassVar[str] = "sweeps"  # what the steps of a fit are counted in
    distributed: tuple[str, ...] = ()  # rounds, and rows in memory, are the work of one process

    def __init__(self, config: SelectorConfig, inputs: TaskInputs, resources: Resources, way: Way) -> None:
        self.config, self.inputs, self.planned, self.way = config, inputs, resources, way
        self.trackers: tuple[AccuracyTracker | R2Tracker, ...] = ()
        remedy = "feed the rows in pieces with MultiTaskSelector.partial_fit"
        if way != "memory":
            remedy = FEWER_COLUMNS if way == "working_set" else remedy if has_rows(inputs.data) else f"{NEEDS_ROWS}, {remedy}"
        self.items = driver_items(inputs.data, inputs.n_tasks, config.algorithm, resources.driver_memory, way)
        check_memory("multitask-selector", self.items, resources, remedy)
        self.data = selector_data(config, inputs)

    def follow(self) -> None:
        """Follow accuracy or R2, which takes decisions on all rows."""
        self.trackers = (fit_tracker(self.inputs, self.inputs.held_out),)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Which way the fit goes, steps, rounds or sweeps, memory."""
        first = {"learning_tasks": self.inputs.n_tasks, "task_bytes": 0, "engine": self.way}
        return {**first, **driver_plan(self.items), **self.steps_plan()}

    def penalties(self, state: Any) -> tuple[float, float]:
        """Return the weight of the penalty of a phase, and the least that selects nothing, NaN where it was not asked for."""
        return penalty_weight(self.config, state.phase, state.lam), state.lambda_max

    @abstractmethod
    def steps_plan(self) -> dict[str, Any]:
        """Return what a plan says of the steps."""

    @abstractmethod
    def init(self, resources: Resources) -> Any:
        """Return the initial state."""

    @abstractmethod
    def step(self, state: Any, resources: Resources) -> Step[Any]:
        """Return the state after one more step."""

    @abstractmethod
    def solution(self, state: Any) -> Solution:
        """Return the weights with their objective and their gap."""
