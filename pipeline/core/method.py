"""Method: how one method is set up, iterated and finished; the engine derives everything else."""

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
    """A config with every "auto" resolved, its inputs, and caches that may be rebuilt.

    Its ``plan`` is a mapping of what a run will do: ``task_bytes``, what the driver holds, and figures of its own. It may also have
    ``state_type``, the record of its states where a method has several kinds of problems; ``beside``, stores that it reads beside its data;
    ``grams``, matrices that fits over the same kernels may share; ``follow()``, called of a run, from where on steps measure its answers;
    and ``about``, what a checkpoint says beside its state.
    """

    config: Any
    inputs: Any
    plan: Any

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do of a run: each kind of task in words. Empty: all of it is the work of one process."""
        ...


P = TypeVar("P", bound=Problem)


class PathValues(NamedTuple):
    """What fits of one problem decide at a point of their path."""

    further: dict[str, Any]  # parameters that a fit would end there with, such as the number of rounds
    values: np.ndarray  # (n_machines, n_labelled), machines fit after fit
    selected: Callable[[], Sequence[float]]  # of every fit, how many features, groups, kernels or rules it has selected


class Method(ABC, Generic[C, P, S, M]):
    """A method. Everything else (command, run directory, resume, report, estimator) is derived by the engine.

    All of its functions are functions of their arguments; caches live on the problem and are rebuilt after a resume.
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
        """Resolve every "auto" parameter and check config, inputs and memory. Runs nothing, writes nothing."""

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
        """Return parameters and inputs of a run on a store; ``extra`` holds what the user gave beside it."""

    @abstractmethod
    def tables(self, model: M, names: Sequence[str] | None = None, fit: tuple[P, S] | None = None) -> Tables:
        """Return the report's tables, name to rows: those of a model alone, with the ``names`` of features, where the model does not know
        them; and with a ``fit``, its problem and final state, those that only a fit can tell.
        """

    def decided(self, config: C, inputs: Any, resources: Resources) -> C:
        """Return parameters with what they leave to the data filled in: by the data alone, and once, for a run writes it down."""
        return config

    def decision_values(self, problem: P, state: S, resources: Resources) -> np.ndarray:
        """Return the decision values of all labelled rows, ``(n_machines, n_labelled)``, machines fit after fit."""
        return model_values(problem.inputs, self.result(problem, state, resources).model, resources)

    # -- fits that leave rows out ------------------------------------------------------------------------------------------------------

    def without(self, inputs: Any, held_out: np.ndarray) -> Any:
        """Return inputs with the weights of some rows ``(n_labelled,)`` zero."""
        return inputs.without(held_out)

    def shared_fits(self, configs: Sequence[C], inputs: Any, masks: Sequence[np.ndarray], resources: Resources) -> P | None:
        """Return one problem of fits with each of some parameters, and for each without the rows of every mask, where such fits share
        passes; else ``None``, as of several parameters where fits rather start from one another. MemoryBoundExceeded: together they are
        more than the memory allows.
        """
        return None

    def follow_path(self, problem: P, before: P | None) -> None:
        """Make a problem ready for :meth:`path_values`, and take over what one on the same rows has made of the data, if there was one."""

    def restart(self, problem: P, fresh: S, before: P, last: S) -> S:
        """Return the state to begin with where ``before`` ended with ``last``: a fit with other parameters on the same rows, or of all rows
        with the same parameters. ``fresh`` is the state to begin with otherwise.
        """
        return fresh

    def path_values(self, problem: P, state: S, resources: Resources) -> Iterator[PathValues]:
        """Yield what the models along the path of the fits decide on all labelled rows, each with the parameters that a fit would end there
        with. Without a path that is the end.
        """
        yield PathValues({}, self.decision_values(problem, state, resources), partial(self.selected, problem, state, resources))

    def selected(self, problem: P, state: S, resources: Resources) -> Sequence[float]:
        """Return of every fit how many features, groups, kernels or rules it has selected: 0 where its figures tell neither ``n_selected``
        nor ``n_kernels``.
        """
        figures = self.result(problem, state, resources).figures
        return [figures.get("n_selected", figures.get("n_kernels", 0))]


AnyMethod: TypeAlias = Method[Any, Any, Any, Any]
