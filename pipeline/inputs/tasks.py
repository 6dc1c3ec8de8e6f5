"""From data, target and tasks to what methods for many tasks read, and from their solutions to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...kernels.svm.dual import DualProblem, ridge_problem, svr_problem
from ...storage import DataError
from ..records.context import RunContext
from .labels import Inputs, row_costs, store_inputs

SHOWN = 5
"""Names a message lists at most."""


@dataclass(frozen=True)
class TaskInputs(Inputs):
    """What a fit for many tasks gets beside its parameters; rows of a task may lie anywhere in the data.

    Attributes
    ----------
    codes
        ``(n_samples,)`` task of each row, as its position in ``names``.
    names
        The tasks, in ascending order.
    """

    codes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    names: tuple[Any, ...] = ()

    @property
    def n_machines(self) -> int:
        """One per task; classes are two for all tasks."""
        return len(self.names)

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.names)

    @cached_property
    def order(self) -> np.ndarray:
        """``(n_samples,)`` rows task by task, those of a task ascending."""
        return np.argsort(self.codes, kind="stable")

    @cached_property
    def edges(self) -> np.ndarray:
        """``(n_tasks + 1,)`` where the tasks begin in ``order``."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.codes, minlength=self.n_tasks))]).astype(np.int64)

    def rows(self, task: int) -> np.ndarray:
        """Return the rows of one task, ascending."""
        return self.order[self.edges[task] : self.edges[task + 1]]

    def signs(self) -> np.ndarray:
        """Return the numbers that solvers fit: -1 and +1 for classes, else the target; ``(n_samples,)``."""
        return np.asarray(self.target, np.float64) if self.classes is None else np.where(self.target == 1, 1.0, -1.0)


def task_codes(task: Any, n: int) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Return the task of each row as a number, and the names in ascending order; ``None`` is a single task named 0.

    Parameters
    ----------
    task
        ``(n,)`` integers or strings.
    n
        Rows of the data.

    Raises
    ------
    ValueError
        Another length, or names that are neither integers nor strings.
    """
    if task is None:
        return np.zeros(n, np.int64), (0,)
    names, codes = np.unique(_task_array(task, n), return_inverse=True)
    return codes.astype(np.int64), tuple(names.tolist())


def _task_array(task: Any, n: int) -> np.ndarray:
    found = np.asarray(task)
    if found.shape != (n,):
        raise ValueError(f"task has shape {found.shape}, the data has {n} rows: it must name the task of every row")
    if found.dtype.kind == "O":
        texts = [isinstance(name, str) for name in found]
        found = found.astype(str) if all(texts) else _numbers(found) if not any(texts) else found
    if found.dtype.kind == "f":
        whole = np.isfinite(found) & (found == np.rint(found))
        if not whole.all():
            raise ValueError(f"task[{int(np.argmin(whole))}]={float(found[np.argmin(whole)])!r}: tasks are named by integers or strings")
        found = found.astype(np.int64)
    if found.dtype.kind not in "iubUS":
        raise ValueError(f"task has type {found.dtype}: tasks are named by integers or strings, all of one kind")
    return found


def _numbers(found: np.ndarray) -> np.ndarray:
    try:
        return found.astype(np.float64)
    except (TypeError, ValueError):
        return found


def known_codes(task: Any, names: Sequence[Any], n: int) -> np.ndarray:
    """Return the task of each row of data to predict, as its position in the names of the training tasks.

    Raises
    ------
    ValueError
        A task that was not there at fit, or no tasks where there were several.
    """
    if task is None:
        if len(names) > 1:
            raise ValueError(f"task is None; the model knows {len(names)} tasks, so predictions need the task of every row")
        return np.zeros(n, np.int64)
    there, codes = np.unique(_task_array(task, n), return_inverse=True)
    place = {name: code for code, name in enumerate(names)}
    unknown = [name for name in there.tolist() if name not in place]
    if unknown:
        known = f"{', '.join(map(repr, names[:SHOWN]))}{', …' if len(names) > SHOWN else ''}"
        raise ValueError(f"task {unknown[0]!r} was not there at fit; the {len(names)} tasks are {known}")
    return np.array([place[name] for name in there.tolist()], np.int64)[codes]


def with_tasks(inputs: Inputs, task: Any, where: str = "") -> TaskInputs:
    """Return inputs with their tasks.

    Parameters
    ----------
    inputs
        Data, target, weights.
    task
        ``(n_samples,)`` names, or ``None`` for a single task.
    where
        Place of the data, for messages.

    Raises
    ------
    ValueError
        More than two classes, or tasks that cannot be read.
    DataError
        A task without a row of positive weight.
    """
    if inputs.classes is not None and len(inputs.classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass. "
            f"There are {len(inputs.classes)} classes; make every class a task of its own, against the rest"
        )
    codes, names = task_codes(task, len(inputs.target))
    found = TaskInputs(inputs.data, inputs.target, inputs.classes, inputs.sample_weight, codes=codes, names=names)
    refuse_empty(found, where)
    return found


def refuse_empty(inputs: TaskInputs, where: str = "") -> None:
    """Refuse tasks without a row of positive weight.

    Raises
    ------
    DataError
        The first of them are named.
    """
    weight = np.ones(len(inputs.codes)) if inputs.sample_weight is None else inputs.sample_weight
    mass = np.bincount(inputs.codes, weight > 0, minlength=inputs.n_tasks)
    if not mass.all():
        empty = [inputs.names[t] for t in np.flatnonzero(mass == 0)]
        listed = f"{', '.join(map(repr, empty[:SHOWN]))}{', …' if len(empty) > SHOWN else ''}"
        raise DataError(f"task {listed} is empty: no row of positive weight; every task needs some", where)


def store_tasks(data: Any) -> np.ndarray | None:
    """Return the task of each row of a store, by its name or number; ``None`` where it has none."""
    if not (hasattr(data, "has_table") and data.has_table("task")):
        return None
    names = data.meta.task_names
    return data.row_table("task") if names is None else np.array(names)[data.row_table("task")]


def store_task_inputs(ctx: RunContext, name: str) -> TaskInputs:
    """Return a store's target, weights and tasks; a store without a task table is a single task.

    Raises
    ------
    DataError
        No target, one class only, or an empty task.
    ValueError
        More than two classes.
    """
    return with_tasks(store_inputs(ctx, name), store_tasks(ctx.data), ctx.data.url)


def single_label_tasks(inputs: TaskInputs) -> np.ndarray:
    """Return ``(n_tasks,)`` the label -1 or +1 of tasks all of whose weighted rows have it, 0 for the others and for regression.

    Such a task gets a constant prediction: the equality of its dual leaves no variable to move.
    """
    found = np.zeros(inputs.n_tasks)
    if inputs.classes is None:
        return found
    used = np.ones(len(inputs.codes), bool) if inputs.sample_weight is None else inputs.sample_weight > 0
    ups = np.bincount(inputs.codes, used & (inputs.target == 1), minlength=inputs.n_tasks)
    downs = np.bincount(inputs.codes, used & (inputs.target == 0), minlength=inputs.n_tasks)
    return np.where(ups == 0, -1.0, np.where(downs == 0, 1.0, 0.0))


@dataclass(frozen=True)
class TaskProblem:
    """Losses of one fit.

    Attributes
    ----------
    problem
        Of all rows; rows of tasks with a constant prediction have an empty box.
    constants
        ``(T,)`` label of such tasks, 0 for others.
    """

    problem: DualProblem
    constants: np.ndarray


def task_loss(config: Any, inputs: TaskInputs) -> str:
    """Return the loss, ``auto`` resolved.

    Raises
    ------
    ValueError
        A loss of classes on a real target or the other way round.
    """
    classes = inputs.classes is not None
    if config.loss == "auto":
        return "hinge" if classes else "epsilon_insensitive"
    if config.loss == ("epsilon_insensitive" if classes else "hinge"):
        held, fitting = ("classes", "hinge") if classes else ("real numbers", "epsilon_insensitive")
        raise ValueError(f"loss={config.loss!r}: the target holds {held}; use {fitting!r} or 'squared'")
    return config.loss


def pooled_problem(config: Any, inputs: TaskInputs) -> TaskProblem:
    """Return the losses of all rows in the order of the data, beta of every task with sum zero.

    Rows of tasks with one label have no box: a constant is predicted there.

    Raises
    ------
    ValueError
        A loss of classes on a real target or the other way round.
    """
    constants, loss = single_label_tasks(inputs), task_loss(config, inputs)
    cost, target = np.where(constants[inputs.codes] != 0, 0.0, row_costs(config, inputs)), inputs.signs()
    if loss == "hinge" or not cost.any():
        found = DualProblem(target, np.where(target > 0, 0.0, -cost), np.where(target > 0, cost, 0.0))
    else:
        found = ridge_problem(target, cost) if loss == "squared" else svr_problem(target, config.epsilon, cost)
    return TaskProblem(replace(found, groups=inputs.codes), constants)


def checked_task_kernel(given: Any, n_tasks: int) -> np.ndarray | None:
    """Return the task kernel as a matrix ``(T, T)``, ``None`` where it is left to the identity.

    Raises
    ------
    ValueError
        Another shape, numbers that are not finite, not symmetric, or not positive semi-definite.
    """
    if given is None:
        return None
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        if not given > 0:
            raise ValueError(f"task_kernel={given!r}: mu of I + 11'/mu must be positive")
        return np.eye(n_tasks) + 1.0 / float(given)
    found = np.asarray(given, np.float64)
    if found.shape != (n_tasks, n_tasks) or not np.isfinite(found).all():
        raise ValueError(f"task_kernel: shape {found.shape}, must be ({n_tasks}, {n_tasks}) of finite numbers, tasks in ascending order")
    top = float(np.abs(found).max())
    if np.abs(found - found.T).max() > 1e-10 * top:
        raise ValueError("task_kernel: must be symmetric")
    lowest = float(np.linalg.eigvalsh(found)[0])
    if lowest < -1e-10 * top or top == 0:
        raise ValueError(f"task_kernel: must be positive semi-definite and not zero; its least eigenvalue is {lowest:.3g}")
    return 0.5 * (found + found.T)


# -- from solutions to a model -------------------------------------------------------------------------------------------------
