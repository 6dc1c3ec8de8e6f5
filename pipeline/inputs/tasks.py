"""Training data of multi-task methods: rows with a target and a task each, and their losses."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...kernels.svm.dual import DualProblem, ridge_problem, target_problem
from ...storage import DataError
from ...storage.data import in_memory
from ..core.resources import Resources, RunContext
from ..records.config import MethodConfig
from .labels import Inputs, labels_of, refuse_missing_names, resolve_loss, row_costs, store_inputs
from .scores import fit_tracker, held_out_rows

if TYPE_CHECKING:
    from ..grams.settings import GramSettings
    from ..records.data_set import DataSet

ConfigT = TypeVar("ConfigT", bound=MethodConfig)

MAX_NAMES = 5  # names that a message lists at most


@dataclass(frozen=True)
class TaskInputs(Inputs):
    """Training data of a multi-task fit. Rows may be in any order."""

    # `(n_samples,)` task of each row, as its position in `names`
    codes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    names: tuple[Any, ...] = ()  # the tasks, in ascending order

    @property
    def n_tasks(self) -> int:
        return len(self.names)

    @cached_property
    def order(self) -> np.ndarray:
        """``(n_samples,)`` row indices sorted by task, ascending within a task."""
        return np.argsort(self.codes, kind="stable")

    @cached_property
    def edges(self) -> np.ndarray:
        """``(n_tasks + 1,)`` offsets of the tasks in ``order``."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.codes, minlength=self.n_tasks))]).astype(np.int64)

    def rows(self, task: int) -> np.ndarray:
        return self.order[self.edges[task] : self.edges[task + 1]]

    def signs(self, machine: int = 0) -> np.ndarray:
        """Return the target of solvers, ``(n_samples,)``: labels -1 and +1 for classes, otherwise numbers.

        +1 is the second of two classes. With more classes there is one binary model per class, and +1 is the class of ``machine``.
        """
        return np.asarray(self.target, np.float64) if self.classes is None else labels_of(self, machine)


def task_codes(task: object, n: int) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Return the task of each of n rows as an index, and the sorted task names. ``None`` is a single task named 0."""
    if task is None:
        return np.zeros(n, np.int64), (0,)
    names, codes = np.unique(_task_names(task, n), return_inverse=True)
    return codes.astype(np.int64), tuple(names.tolist())


def _task_names(task: object, n: int) -> np.ndarray:
    """Return the task names of n rows, ``(n,)`` integers or strings. Floats are accepted if they are whole numbers."""
    names = np.asarray(in_memory(task, "task"))
    if names.shape != (n,):
        raise ValueError(f"task has shape {names.shape}; it must be ({n},), one task per row")
    if names.dtype.kind in "OUS" and names.size:
        refuse_missing_names(names, "task", "task")
    if names.dtype.kind == "O":
        texts = [isinstance(name, str) for name in names]
        if all(texts):
            names = names.astype(str)
        elif all(isinstance(name, int | np.integer) for name in names):
            names = names.astype(np.int64)
        elif not any(texts):
            with contextlib.suppress(TypeError, ValueError):
                names = names.astype(np.float64)
    if names.dtype.kind == "f":
        whole = np.isfinite(names) & (names == np.rint(names))
        if not whole.all():
            raise ValueError(f"task[{int(np.argmin(whole))}]={float(names[np.argmin(whole)])!r}: tasks are named by integers or strings")
        names = names.astype(np.int64)
    if names.dtype.kind not in "iubUS":
        raise ValueError(f"task has type {names.dtype}: tasks are named by integers or strings, all of one kind")
    return names


def _name_list(names: Sequence[Any]) -> str:
    return f"{', '.join(map(repr, names[:MAX_NAMES]))}{', …' if len(names) > MAX_NAMES else ''}"


def known_codes(task: object, names: Sequence[Any], n: int) -> np.ndarray:
    """Return the task of each row to predict, as an index into the names of the training tasks.

    Raises ValueError for an unknown task, or if tasks are missing for a model with several tasks.
    """
    if task is None:
        if len(names) > 1:
            raise ValueError(f"task is None; the model knows {len(names)} tasks, so predictions need the task of every row")
        return np.zeros(n, np.int64)
    present, codes = np.unique(_task_names(task, n), return_inverse=True)
    code_of = {name: code for code, name in enumerate(names)}
    unknown = [name for name in present.tolist() if name not in code_of]
    if unknown:
        raise ValueError(f"task {unknown[0]!r} was not there at fit; the {len(names)} tasks are {_name_list(names)}")
    return np.array([code_of[name] for name in present.tolist()], np.int64)[codes]


def with_tasks(inputs: Inputs, task: object, url: str = "") -> TaskInputs:
    """Return inputs with the task of every row. ``task`` contains task names ``(n_samples,)``; ``None`` is a single task. ``url`` is the
    data's name in messages.

    Raises ValueError for invalid tasks, and DataError if a task has no row of positive weight.
    """
    codes, names = task_codes(task, len(inputs.target))
    data, target, classes, weight = inputs.data, inputs.target, inputs.classes, inputs.sample_weight
    tasks = TaskInputs(data, target, classes, weight, held_out=inputs.held_out, given_weight=inputs.given_weight, codes=codes, names=names)
    refuse_empty(tasks, url)
    return tasks


def refuse_more_classes(inputs: Inputs) -> None:
    """Check that a target has two classes, for binary methods. Raises ValueError with the number of classes."""
    if inputs.classes is not None and len(inputs.classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass. "
            f"There are {len(inputs.classes)} classes; fit one task per class (this class against the rest)"
        )


def refuse_empty(inputs: TaskInputs, url: str = "") -> None:
    """Check that every task has a row of positive weight. Raises DataError with the first tasks that have none."""
    weight = np.ones(len(inputs.codes)) if inputs.sample_weight is None else inputs.sample_weight
    mass = np.bincount(inputs.codes, weight > 0, minlength=inputs.n_tasks)
    if not mass.all():
        empty = [inputs.names[t] for t in np.flatnonzero(mass == 0)]
        raise DataError(f"task {_name_list(empty)} has no row of positive weight; every task needs at least one", url)


def store_tasks(data: Any) -> np.ndarray | None:
    """Return the task of each row of a store, by name or number; ``None`` if the store has no tasks."""
    if not (hasattr(data, "has_table") and data.has_table("task")):
        return None
    names = data.meta.task_names
    return data.row_table("task") if names is None else np.array(names)[data.row_table("task")]


def store_codes(model: Any, data: DataSet, task: object = None) -> np.ndarray:
    """Return the task of each row of a store, as an index into the model's tasks. ``task`` overrides the store's tasks.

    Raises ValueError, naming the store, if it has no tasks and the model has several, or if a task is unknown.
    """
    if task is not None:
        return known_codes(task, model.tasks, data.n_rows)
    tasks = store_tasks(data)
    if tasks is not None and tasks.dtype.kind in "iu" and any(isinstance(name, str) for name in model.tasks):
        # A file that happens to hold none but the numbered ones among the names.
        tasks = tasks.astype(str)
    try:
        return known_codes(tasks, model.tasks, data.n_rows)
    except ValueError as error:
        hint = "; ingest the rows with --task-column" if tasks is None else ""
        raise ValueError(f"{data.url}: {error}{hint}") from None


def store_task_inputs(ctx: RunContext, name: str) -> TaskInputs:
    """Return the target, weights and tasks of a store. A store without tasks is a single task.

    Raises DataError if there is no target, one class only, or an empty task.
    """
    return with_tasks(store_inputs(ctx, name), store_tasks(ctx.data), ctx.data.url)


def held_out_task_inputs(ctx: RunContext, name: str, extra: Mapping[str, Any]) -> TaskInputs:
    """Return the inputs of :func:`store_task_inputs`, with weight zero for the rows that ``extra`` holds out.

    Raises DataError if a task would have no training rows.
    """
    inputs = store_task_inputs(ctx, name)
    inputs = inputs.without(held_out_rows(extra, inputs.target, ctx.seed, inputs.classes))
    refuse_empty(inputs, ctx.data.url)
    return inputs


def single_label_tasks(inputs: TaskInputs, machine: int = 0) -> np.ndarray:
    """Return, for every task, the label -1 or +1 that all its rows of positive weight share, ``(n_tasks,)``; 0 if labels differ or in
    regression.

    A task with a single label gets a constant prediction, because the equality constraint of its dual leaves no free variable. ``machine``:
    as in `TaskInputs.signs`.
    """
    if inputs.classes is None:
        return np.zeros(inputs.n_tasks)
    used = np.ones(len(inputs.codes), bool) if inputs.sample_weight is None else inputs.sample_weight > 0
    signs = inputs.signs(machine)
    ups = np.bincount(inputs.codes, used & (signs > 0), minlength=inputs.n_tasks)
    downs = np.bincount(inputs.codes, used & (signs < 0), minlength=inputs.n_tasks)
    return np.where(ups == 0, -1.0, np.where(downs == 0, 1.0, 0.0))


@dataclass(frozen=True)
class TaskProblem:
    """The losses of one fit."""

    problem: DualProblem  # of all rows; rows of tasks with a constant prediction have an empty box
    constants: np.ndarray  # `(T,)` label of such tasks, 0 for others


TARGET_C = 0.5  # C="auto" of a real target and one kernel


def with_loss_weight(config: ConfigT, inputs: Inputs, n_kernels: int = 1) -> ConfigT:
    """Return parameters with ``C="auto"`` replaced: by 1 for classes, by ``0.5 / sqrt(n_kernels)`` for numbers.

    Each kernel has trace n, so a sum of k kernels with weights of norm one has a trace up to ``sqrt(k)`` times as large. With the same C,
    such a sum would fit the training data more closely.
    """
    if dict(config)["C"] != "auto":
        return config
    return config.model_copy(update={"C": 1.0 if inputs.classes is not None else TARGET_C / float(np.sqrt(n_kernels))})


def pooled_problem(config: Any, inputs: TaskInputs, machine: int = 0) -> TaskProblem:
    """Return the losses of all rows in data order. The coefficients beta of every task sum to zero.

    Tasks with a single label have no free variables; they get a constant prediction. ``machine``: as in `TaskInputs.signs`.

    Raises ValueError if the loss does not suit the kind of target.
    """
    loss = resolve_loss(config.loss, inputs.classes, ("epsilon_insensitive", "squared"), ("hinge", "squared"))
    constants = single_label_tasks(inputs, machine)
    cost, target = np.where(constants[inputs.codes] != 0, 0.0, row_costs(config, inputs)), inputs.signs(machine)
    if loss == "hinge" or not cost.any():
        problem = DualProblem(target, np.where(target > 0, 0.0, -cost), np.where(target > 0, cost, 0.0))
    else:
        is_real = inputs.classes is None
        problem = target_problem(loss, target, config.epsilon, cost) if is_real else ridge_problem(target, cost)
    return TaskProblem(replace(problem, groups=inputs.codes), constants)


@dataclass(eq=False)
class PooledTasks:
    """Base of problems with one joint model of all tasks: its losses and its kernels."""

    config: Any
    inputs: TaskInputs
    specs: tuple[Any, ...]
    losses: TaskProblem  # of all rows in the order of the data, with one equality per task
    settings: GramSettings
    planned: Resources  # where it was made: what decides the passes

    def __post_init__(self) -> None:
        from ..grams.grams import lazy_grams  # rows with tasks are read without them

        self.dual, self.constants, self.unit = self.losses.problem, self.losses.constants, self.losses.problem.unit
        self.codes, self.n_tasks = self.inputs.codes, self.inputs.n_tasks
        # What follows accuracy, or R2; of more than two classes all machines together say it.
        self.fits = (fit_tracker(self.inputs, self.inputs.held_out),) if self.inputs.n_machines == 1 else ()
        self.grams = lazy_grams(self.inputs.data, self.specs, self.settings)

    @property
    def distributed(self) -> tuple[str, ...]:
        """Descriptions of the tasks on workers."""
        from ..grams.plans import sum_work

        return sum_work(self.settings, self.inputs.data.n_rows, self.planned.driver_memory)


def checked_task_kernel(kernel: object, n_tasks: int) -> np.ndarray | None:
    """Return the task kernel as a matrix ``(T, T)``, or ``None`` for the identity. A number mu stands for ``I + 11'/mu``.

    Raises ValueError if the matrix has another shape, or is not finite, symmetric and positive semi-definite.
    """
    if kernel is None:
        return None
    if isinstance(kernel, (int, float)) and not isinstance(kernel, bool):
        if not kernel > 0:
            raise ValueError(f"task_kernel={kernel!r}: mu of I + 11'/mu must be positive")
        return np.eye(n_tasks) + 1.0 / float(kernel)
    matrix = np.asarray(kernel, np.float64)
    if matrix.shape != (n_tasks, n_tasks) or not np.isfinite(matrix).all():
        raise ValueError(f"task_kernel has shape {matrix.shape}; it must be ({n_tasks}, {n_tasks}), finite, with tasks in ascending order")
    largest = float(np.abs(matrix).max())
    if np.abs(matrix - matrix.T).max() > 1e-10 * largest:
        raise ValueError("task_kernel: must be symmetric")
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    if lowest < -1e-10 * largest or largest == 0:
        raise ValueError(f"task_kernel: must be positive semi-definite and not zero; its least eigenvalue is {lowest:.3g}")
    return 0.5 * (matrix + matrix.T)
