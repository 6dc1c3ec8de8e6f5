"""Method: how a method is set up, iterated and finished. The engine derives everything else from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from ..inputs.scores import model_values
from .result import Result, S, Step

if TYPE_CHECKING:
    from ..models.model import Model, Tables
    from ..records.config import MethodConfig
    from .resources import Resources, RunContext

C = TypeVar("C", bound="MethodConfig")
M = TypeVar("M", bound="Model")


class Problem(Protocol):
    """A config with every "auto" resolved, its inputs, and caches that can be rebuilt.

    ``plan`` describes a run: ``task_bytes``, memory of the driver, and other entries of the method. Optional attributes are:

    - ``state_type``: record type of the states, if a method has several kinds of problems;
    - ``beside``: stores that are read in addition to the data;
    - ``grams``: matrices that other fits over the same kernels can reuse;
    - ``follow()``: called by a run, so that every later step also scores the predictions;
    - ``about``: what a checkpoint stores in addition to the state.
    """

    config: Any
    inputs: Any
    plan: Any

    @property
    def distributed(self) -> tuple[str, ...]:
        """Descriptions of the kinds of tasks that run on workers. Empty if the whole run is one process."""
        ...


P = TypeVar("P", bound=Problem)


class PathValues(NamedTuple):
    """The decision values of all fits of a problem at one point of their path."""

    further: dict[str, Any]  # parameters that a fit would end there with, such as the number of rounds
    values: np.ndarray  # (n_machines, n_labelled), machines fit after fit
    selected: Callable[[], Sequence[float]]  # of every fit, how many features, groups, kernels or rules it has selected


class Method(ABC, Generic[C, P, S, M]):
    """Protocol of a method. From these functions the engine derives the method's command, run directory, resume, report and estimator.

    All functions depend on their arguments only. Caches live on the problem and are rebuilt after a resume.
    """

    name: ClassVar[str]  # command
    config: ClassVar[type[MethodConfig]]  # parameter model
    state: ClassVar[type[Any]]  # record of a state, to load checkpoints
    models: ClassVar[tuple[type[Model], ...]]  # record types of its models, to load runs
    programs: ClassVar[str] = "grams.pair_passes"  # module under `pipeline` whose programs a worker loads before it is measured

    # Of fits that leave rows out:
    starts_from_whole: ClassVar[bool] = False  # whether paths of folds begin where a fit of all rows ends

    @abstractmethod
    def problem(self, config: C, inputs: Any, resources: Resources) -> P:
        """Resolve every "auto" parameter and check config, inputs and memory, without running or writing anything."""

    @abstractmethod
    def init(self, problem: P, resources: Resources) -> S:
        """Return the initial state."""

    @abstractmethod
    def step(self, problem: P, state: S, resources: Resources) -> Step[S]:
        """Return the next state and its row of the history."""

    @abstractmethod
    def result(self, problem: P, state: S, resources: Resources) -> Result[M]:
        """Return the result of a final state."""

    @abstractmethod
    def read_inputs(self, config: C, resources: RunContext, extra: Mapping[str, Any]) -> tuple[C, Any]:
        """Return parameters and inputs of a run on a store. ``extra`` holds further inputs, such as other files."""

    @abstractmethod
    def tables(self, model: M, names: Sequence[str] | None = None, fit: tuple[P, S] | None = None) -> Tables:
        """Return the tables of a report, from name to rows.

        ``names`` are the feature names, for models that do not store them. With ``fit``, the problem and its final state, tables that need
        the fit are included.
        """

    def decided(self, config: C, inputs: Any, resources: Resources) -> C:
        """Return parameters with data-dependent defaults filled in. A run stores them, so they are computed only once."""
        return config

    def decision_values(self, problem: P, state: S, resources: Resources) -> np.ndarray:
        """Return the decision values ``(n_machines, n_labelled)`` of all labelled rows; the binary models of one fit are consecutive."""
        return model_values(problem.inputs, self.result(problem, state, resources).model, resources)

    # -- fits that leave rows out ------------------------------------------------------------------------------------------------------

    def without(self, inputs: Any, held_out: np.ndarray) -> Any:
        """Return inputs in which the held-out rows, a mask ``(n_labelled,)``, have weight zero."""
        return inputs.without(held_out)

    def shared_fits(self, configs: Sequence[C], inputs: Any, masks: Sequence[np.ndarray], resources: Resources) -> P | None:
        """Return one problem that combines several fits: for each config, one fit per mask, which leaves out the rows of the mask.

        Returns ``None`` if the fits cannot share passes, or if warm starts from one config to the next would save more. Raises
        MemoryBoundExceeded if the combined problem exceeds the memory limit.
        """
        return None

    def follow_path(self, problem: P, before: P | None) -> None:
        """Prepare a problem for :meth:`path_values`. ``before`` is a problem on the same rows whose preprocessed data are reused."""

    def restart(self, problem: P, fresh: S, before: P, last: S) -> S:
        """Return a warm start from ``last``, the final state of ``before``.

        ``before`` has the same rows and other parameters, or all rows and the same parameters. ``fresh`` is the cold start.
        """
        return fresh

    def path_values(self, problem: P, state: S, resources: Resources) -> Iterator[PathValues]:
        """Yield the decision values of all labelled rows at each point of the path, with the parameters that make a fit end at this point.

        A method without a path yields the final point only.
        """
        yield PathValues({}, self.decision_values(problem, state, resources), partial(self.selected, problem, state, resources))

    def selected(self, problem: P, state: S, resources: Resources) -> Sequence[float]:
        """Return the number of selected features, groups, kernels or rules of each fit. The number is 0 if the ``figures`` of the result
        have neither ``n_selected`` nor ``n_kernels``.
        """
        figures = self.result(problem, state, resources).figures
        return [figures.get("n_selected", figures.get("n_kernels", 0))]


AnyMethod: TypeAlias = Method[Any, Any, Any, Any]
