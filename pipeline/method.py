"""Method: what a system says of itself to be run, planned, resumed, reported, and used as an estimator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from ..kernels.bounds import sound_gap
from .core.method import FOLD_TOL_FACTOR
from .core.result import Result, State, Step
from .inputs.labels import Inputs
from .inputs.scores import scores_of
from .models.kernel import kernel_names
from .models.predictor import Predictor
from .records.config import MethodConfig
from .records.context import RunContext

C = TypeVar("C", bound=MethodConfig)
I = TypeVar("I", bound=Any)  # noqa: E741 (inputs)
S = TypeVar("S", bound=State)
M = TypeVar("M")


@dataclass(frozen=True)
class Method(Generic[C, I, S, M]):
    """A system with parameters and inputs, ready to run: from here to a plan, from a state to a model and to what is told of it.

    A subclass declares its class attributes and defines :meth:`read_inputs`, :meth:`build_loop`, and the methods of a run that raise
    ``NotImplementedError`` here. The command line and ``Estimator.fit`` use the same class, so that both learn the same. Parameters, and
    the inputs that are taken beside a store, are declared by the parameter model.
    """

    name: ClassVar[str]  # name of the command
    config_type: ClassVar[type[MethodConfig]]  # parameter model
    models: ClassVar[Mapping[type, Predictor]]  # record types of its models, and what decides with each
    # Module under `gramplane.pipeline` whose block programs a worker loads before its memory is measured.
    programs: ClassVar[str] = "grams.grams"
    # Tolerances that are wider in fits made for their decision values on some rows, and up to which.
    fold_tols: ClassVar[Mapping[str, float]] = {}
    starts_from_whole: ClassVar[bool] = False  # whether paths of folds begin where a fit of all rows ends
    shares_points: ClassVar[bool] = False  # whether fits of several parameters share passes, and do not start from one another

    config: C
    inputs: I
    loop: Any  # the iteration made of both
    ctx: RunContext  # where it was prepared

    @classmethod
    def read_inputs(cls, config: C, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[C, I]:
        """Return parameters and inputs of a run on ``ctx.data``; ``extra`` holds what the user gave beside the store."""
        raise NotImplementedError

    @classmethod
    def build_loop(cls, config: C, inputs: I, ctx: RunContext) -> Any:
        """Return the loop of a fit. What does not go together, and more than the memory allows, is refused here, before work starts."""
        raise NotImplementedError

    @classmethod
    def decided(cls, config: C, inputs: I, ctx: RunContext) -> C:
        """Return parameters with what they leave to the data filled in: by the data alone, and once, for a run writes it down."""
        if "kernels" not in type(config).model_fields:
            return config
        from .inputs.kernels import with_decided_kernels  # what fits without kernels need not load

        return with_decided_kernels(config, inputs.data, ctx, getattr(inputs, "counts", None))

    @classmethod
    def start(cls, config: C, inputs: I, ctx: RunContext) -> Self:
        """Return the method ready to run on inputs; what its user should know before work starts is told."""
        config = cls.decided(config, inputs, ctx)
        return cls(config, inputs, cls.build_loop(config, inputs, ctx), ctx)

    @classmethod
    def prepare(cls, config: C, ctx: RunContext, extra: Mapping[str, Any]) -> Self:
        """Return the method ready to run on ``ctx.data``."""
        return cls.start(*cls.read_inputs(config, ctx, extra), ctx)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """What the run will do: ``task_bytes``, what the driver holds, and figures of its own."""
        raise NotImplementedError

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do of this run: each kind of task in words. Empty: all of it is the work of one process."""
        return ()

    @property
    def beside(self) -> tuple[Any, ...]:
        """Stores that it reads beside the data of the run."""
        return ()

    def model(self, state: S, ctx: RunContext) -> M:
        """Return the record to save."""
        raise NotImplementedError

    def warnings(self, state: S, model: M, ctx: RunContext) -> list[str]:
        """Return what the user should know of a fit."""
        return []

    # -- as the engine asks for it ---------------------------------------------------------------------------------------------------

    @classmethod
    def problem(cls, config: C, inputs: I, ctx: RunContext) -> Self:
        """Return the method ready to run on inputs."""
        return cls.start(config, inputs, ctx)

    @property
    def state_type(self) -> type[Any]:
        """Record of a state."""
        return self.loop.state_type

    @property
    def grams(self) -> Any:
        """Gram matrices that fits over the same kernels may share, if there are some."""
        return getattr(self.loop, "grams", None)

    def about(self) -> dict[str, Any]:
        """Return what a checkpoint says beside its state."""
        return getattr(self.loop, "about", dict)()

    def init(self, ctx: RunContext) -> S:
        """Return the state before the first step."""
        return self.loop.init(ctx)

    def step(self, state: S, ctx: RunContext) -> Step[S]:
        """Return the state after one more step."""
        return self.loop.step(state, ctx)

    def result(self, state: S, ctx: RunContext) -> Result[M]:
        """Return the result of a final state."""
        model = self.model(state, ctx)
        figures = self.summary(state, model)
        known = {name: figures.pop(name, None) for name in ("stop", "objective", "gap", "certified_over")}
        known["certified_over"] = known["certified_over"] or ""
        rows = getattr(self.inputs, "labelled", None)
        scores = None if rows is None else partial(self.scores_at_hand, state, model, ctx, rows)
        return Result(model, **known, figures=figures, warnings=self.warnings(state, model, ctx), scores=scores)

    def scores_at_hand(self, state: S, model: M, ctx: RunContext, rows: Inputs) -> dict[str, Any]:
        """Return accuracy, or R2, of the training rows, and how many answers they get."""
        return scores_of(rows, self.values_at_hand(state, model, ctx))

    def summary(self, state: S, model: M) -> dict[str, Any]:
        """Return the figures of a finished run as a small JSON object."""
        raise NotImplementedError

    @property
    def column_names(self) -> Sequence[str] | None:
        """Names of the columns that kernels of the run read, if they have some."""
        return self.ctx.data.feature_names()

    def tables(self, state: S, model: M) -> dict[str, list[dict[str, Any]]]:
        """Return the report's tables: name to rows."""
        raise NotImplementedError

    @classmethod
    def model_tables(cls, model: M, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return those of the report's tables that follow from a model alone, which displays of an estimator show; ``names`` are the
        features', where the model does not know them."""
        return {}

    @classmethod
    def predictor(cls, model: M) -> Predictor:
        """Return what decides with a model of this method."""
        return cls.models[type(model)]

    # -- probabilities: fits without some rows, and what they decide on these ----------------------------------------------------------

    @classmethod
    def is_logistic(cls, config: C) -> bool:
        """Return whether decision values of classifiers with these parameters are log odds: those of the logistic loss."""
        return getattr(config, "loss", None) == "logistic"

    @classmethod
    def probability_kind(cls, config: C) -> str:
        """Return how decision values of a fit with these parameters become probabilities: logistic, sigmoid or isotonic."""
        if cls.is_logistic(config):
            return "logistic"
        return "isotonic" if getattr(config, "probability", None) == "isotonic" else "sigmoid"

    @classmethod
    def for_folds(cls, config: C) -> C:
        """Return the parameters of fits that are made for their decision values alone: tolerances are wider, see :attr:`fold_tols`."""
        given = {name: getattr(config, name) for name in cls.fold_tols}
        wider = {name: max(min(FOLD_TOL_FACTOR * tol, cls.fold_tols[name]), tol) for name, tol in given.items() if tol is not None}
        return config.model_copy(update=wider) if wider else config

    @classmethod
    def without(cls, inputs: I, held_out: np.ndarray) -> I:
        """Return inputs with the weights of some rows ``(n_labelled,)`` zero."""
        return inputs.without(held_out)

    @classmethod
    def shared_fits(cls, configs: Sequence[C], inputs: I, masks: Sequence[np.ndarray], ctx: RunContext) -> Self | None:
        """Return one run of fits with each of some parameters, and for each without the rows of every mask, where such fits share passes;
        else ``None``. MemoryBoundExceeded: together they are more than the memory allows.
        """
        return None

    def follow_path(self, before: Self | None) -> None:
        """Make the run ready for :meth:`path_values`, and take over what a run on the same rows has made of the data, if there was one."""

    def warm_start(self, fresh: S, before: Self, last: S) -> S:
        """Return the state to begin with where a run with other parameters on the same rows, ``before``, ended with ``last``; ``fresh`` is
        the state to begin with otherwise.
        """
        return fresh

    def fold_start(self, fresh: S, whole: Self, last: S) -> S:
        """Return the state to begin with where a fit of all rows with the same parameters, ``whole``, ended with ``last``. Called where
        :attr:`starts_from_whole` is set, at the beginning of a path.
        """
        return fresh

    def path_values(self, state: S, ctx: RunContext) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
        """Yield what the models along the path of the fits decide on all labelled rows, as :meth:`decision_values` does, each with the
        parameters that a fit would end there with. Without a path that is the end.
        """
        yield {}, self.decision_values(state, ctx)

    def decision_values(self, state: S, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all labelled rows, ``(n_machines, n_labelled)``, machines fit after fit."""
        return self.model_values(self.model(state, ctx), ctx)

    def model_values(self, model: M, ctx: RunContext) -> np.ndarray:
        """Return what a model decides on all labelled rows, ``(n_machines, n_labelled)``."""
        return self.predictor(model).decision_values(model, ctx).T

    def values_at_hand(self, state: S, model: M, ctx: RunContext) -> np.ndarray:
        """Return what :meth:`decision_values` does, but for rounding: from the model of the state, or what the loop still holds."""
        return self.decision_values(state, ctx)


def weights_by_label(weights: np.ndarray, labels: Iterable[Any]) -> dict[str, float]:
    """Return a table's columns for the weights of every machine: ``weight`` of a single one, else ``weight[label]`` of each."""
    if len(weights) == 1:
        return {"weight": float(weights[0])}
    return {f"weight[{label}]": float(weight) for label, weight in zip(labels, weights, strict=True)}


def name_features(features: Iterable[int], names: Sequence[str] | None) -> list[str]:
    """Return the names of features, by their numbers; ``x3`` where there are none."""
    return [f"x{j}" if names is None else str(names[j]) for j in features]


N_FOLLOWED = 20  # kernels whose weights a report follows along the iterations


def heaviest_first(weights: np.ndarray) -> np.ndarray:
    """Return the indices of positive weights, the largest first; equal ones keep their order."""
    order = np.argsort(-weights, kind="stable")
    return order[weights[order] > 0]


def weight_tables(
    names: Sequence[str], labels: Sequence[Any], weights: np.ndarray, paths: Iterable[np.ndarray]
) -> dict[str, list[dict[str, Any]]]:
    """Return kernels by weight ``(n_machines, k)``, and the weights of the heaviest along ``paths`` ``(t, k)`` of the machines."""
    order = heaviest_first(weights.max(axis=0))
    followed = [
        {"machine": label, "iteration": t, **{names[q]: float(row[q]) for q in order[:N_FOLLOWED]}}
        for label, path in zip(labels, paths, strict=True)
        for t, row in enumerate(path, 1)
    ]
    return {"kernels": kernel_rows(names, labels, weights), "weights": followed}


def kernel_rows(names: Sequence[str], labels: Sequence[Any], weights: np.ndarray) -> list[dict[str, Any]]:
    """Return kernels with a weight in some machine, the heaviest first; ``weights`` ``(n_machines, k)``."""
    return [{"kernel": names[q], **weights_by_label(weights[:, q], labels)} for q in heaviest_first(weights.max(axis=0))]


def followed_tables(model: Any, names: Sequence[str] | None) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of `weight_tables` of a model on kernels that keeps the weights of its machines along the iterations."""
    labels, count = json.loads(model.classes_json) or (), len(model.theta)
    paths = [model.arrays[f"weights_path_{m}"] for m in range(count)]
    return weight_tables(kernel_names(model, names), [str(label) for label in labels] if count > 1 else [""], model.theta, paths)


def bound_figures(machines: Sequence[Any], state: State, unfinished: Sequence[str]) -> dict[str, float]:
    """Return the figures of a model with bounds of its optimum: sums of its machines' ``lower`` and ``upper``, and how its search ended."""
    for one in machines:
        sound_gap(one.upper - one.lower, one.upper)
    bounds = {name: float(sum(getattr(one, name.removesuffix("_bound")) for one in machines)) for name in ("lower_bound", "upper_bound")}
    return {**bounds, "iterations": float(state.iteration), "converged": float(state.stop not in unfinished)}
