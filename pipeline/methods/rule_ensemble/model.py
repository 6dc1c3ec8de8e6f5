"""A fitted rule ensemble: a plain record, saved without pickle, with its decision values and tables of its rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ....kernels.rules.propositions import ABOVE, DIFFERENT, EQUAL, MISSING, SIGNS, Propositions, proposition_text
from ....storage import BlockStore
from ...core.memory import Item
from ...core.resources import Resources
from ...inputs.tasks import known_codes, store_tasks
from ...models.calibration import Calibration
from ...models.model import Model, Part, check_width, column_batches
from ...passes.blocks import Blocks
from ...passes.columns import Columns
from .data import raw_columns, rule_flags
from .proposition_pass import dense_column

EQUAL_DIGITS = 9  # decimals of a weight's share of the largest: a rule and its complement are equal, and processors round differently


@dataclass(frozen=True)
class RuleModel(Model):
    """``f_t(x) = sum_r weights[r, t] [x satisfies rule r] + intercepts[t]``: one model for two classes, else one per class or task."""

    record_name: ClassVar[str] = "RuleModel"
    params_json: str
    classes_json: str  # labels in order, null for a real target
    tasks_json: str  # task names in order, null without tasks
    names_json: str  # of the features, or null
    categories_json: str  # {column: [name of category 0, 1, ...]} of columns given as text
    n_features: int
    propositions: Propositions  # those that occur in a rule
    rule_starts: np.ndarray
    rule_items: np.ndarray  # the propositions of rule r are rule_items[rule_starts[r]:rule_starts[r + 1]]
    weights: np.ndarray  # (n_rules, n_machines)
    intercepts: np.ndarray  # (n_machines,)
    support: np.ndarray  # (n_rules,) training rows that satisfy the rule
    active_propositions: Propositions  # of the active set, cuts as they were before they were moved
    active_starts: np.ndarray
    active_items: np.ndarray
    active_weights: np.ndarray  # (n_active, n_machines)
    figures: dict[str, float] = field(default_factory=dict)  # objective, certificate and the like
    origins_json: str = "{}"  # {column: [source column, level, or null: it is missing]} of columns that say this of another one
    first_feature: int = 0  # number of the first column in the source
    calibration: Calibration | None = None  # how decision values become probabilities, where that was fitted

    @property
    def n_rules(self) -> int:
        """Number of rules."""
        return len(self.support)

    @cached_property
    def tasks(self) -> tuple[Any, ...] | None:
        """Names of the tasks; None without tasks."""
        names = json.loads(self.tasks_json)
        return None if names is None else tuple(names)

    @cached_property
    def classes(self) -> list[Any] | None:
        """Class labels; None for a real target."""
        return json.loads(self.classes_json)

    @property
    def columns(self) -> np.ndarray:
        """Indices of the features that occur in a rule, ascending."""
        return np.unique(self.propositions.column[self.rule_items])

    @property
    def lengths(self) -> np.ndarray:
        """Number of propositions of every rule."""
        return np.diff(self.rule_starts)

    @property
    def by_weight(self) -> np.ndarray:
        """Indices of the rules in descending order of the largest weight over the models. Rules whose weights differ only by rounding keep
        their order.
        """
        sizes = np.abs(self.weights).max(axis=1, initial=0.0)
        return np.argsort(-np.round(sizes / (sizes.max(initial=0.0) or 1.0), EQUAL_DIGITS), kind="stable")

    def items(self, rule: int) -> np.ndarray:
        """Return the propositions of a rule."""
        return self.rule_items[self.rule_starts[rule] : self.rule_starts[rule + 1]]

    def outputs(self) -> list[str]:
        """Return the names of the columns of the decision values."""
        if self.tasks is not None:
            return [str(task) for task in self.tasks]
        if self.classes is None:
            return ["value"]
        return [str(label) for label in (self.classes[1:] if len(self.classes) == 2 else self.classes)]

    def decision_values(self, data: Blocks, resources: Resources, task: ArrayLike | None = None, **rows: Any) -> np.ndarray:
        """Return the sums of the weights of satisfied rules, ``(n_samples, n_machines)``; with tasks, one value per row by the model of its
        task.

        Raises ValueError if the data have another number of features than the training data, or a task that the training data do not have.
        """
        check_width(self.n_features, False, data)
        raw = raw_columns(data, resources, self.columns)
        unseen = unseen_values(self, raw)
        if unseen:
            resources.emit({"event": "warning", "message": unseen_message(unseen)})
        values = rule_values(self, raw, data.n_rows)
        return of_tasks(self, values, store_tasks(data) if task is None and self.tasks is not None else task)

    def contributions(self, read: Callable[[np.ndarray], np.ndarray], names: Sequence[str] | None, of: int) -> list[Part]:
        """Return the satisfied rules, each with its weight; with tasks, an empty list."""
        if self.tasks is not None:
            return []
        holds = rule_matrix(self, read(self.columns) if len(self.columns) else np.zeros((1, 0)), 1)[0]
        texts = {int(r): record["text"] for r, record in zip(self.by_weight, rule_records(self), strict=True)}
        return [(texts[int(r)], None, float(self.weights[r, of])) for r in np.flatnonzero(holds)]

    def memory(self, data: BlockStore) -> list[Item]:
        """Return two memory items: the values of the columns, and the indicators of the rules on the rows."""
        columns = "columns of the rules, side by side", 3 * sum(self.fetched_bytes(data))
        return [columns, ("which rows satisfy which rule, as truth values and numbers", 9 * data.n_rows * self.n_rules)]

    def fetched_bytes(self, data: BlockStore) -> list[int]:
        """Return the bytes that each pass over columns reads."""
        return column_batches(data, self.columns)


def feature_name(model: RuleModel, column: int) -> str:
    """Return the name of a feature, ``x3`` if features have no names."""
    names = json.loads(model.names_json)
    return f"x{column + model.first_feature}" if names is None else str(names[column])


def conditions(model: RuleModel, propositions: Propositions, items: np.ndarray) -> list[dict[str, Any]]:
    """Return the propositions of a conjunction as ``{column, feature, sign, cut, text}``, ordered by column."""
    categories, origins = json.loads(model.categories_json), json.loads(model.origins_json)
    rows = []
    for j in sorted(items.tolist(), key=lambda j: (propositions.column[j], propositions.kind[j], propositions.cut[j])):
        column, kind, cut = int(propositions.column[j]), int(propositions.kind[j]), float(propositions.cut[j])
        if str(column) in origins and kind != MISSING:
            feature, level = origins[str(column)]
            rows.append(_level_condition(column, feature, level, (cut > 0) == (kind in (EQUAL, ABOVE))))
            continue
        values = categories.get(str(column))
        label = values[int(cut)] if values is not None and kind != MISSING else None
        text = proposition_text(kind, cut, feature_name(model, column), label)
        value = None if kind == MISSING else cut if label is None else label
        rows.append({"column": column, "feature": feature_name(model, column), "sign": SIGNS[kind], "cut": value, "text": text})
    return rows


def _level_condition(column: int, feature: str, level: str | None, holds: bool) -> dict[str, Any]:
    """Return the condition on the original categorical column from which a 0/1 column was encoded."""
    if level is None:
        sign = SIGNS[MISSING] if holds else "is not missing"
        return {"column": column, "feature": feature, "sign": sign, "cut": None, "text": f"{feature} {sign}"}
    sign = SIGNS[EQUAL if holds else DIFFERENT]
    return {"column": column, "feature": feature, "sign": sign, "cut": level, "text": f"{feature} {sign} {level}"}


def rule_records(model: RuleModel) -> list[dict[str, Any]]:
    """Return the rules in descending order of weight: text, support, vote, weight, columns and thresholds.

    ``vote`` is the label that the rule predicts, and ``weight`` is positive. For a real target ``weight`` is what the rule adds to the
    prediction, and ``vote`` is its sign, 1 or -1. With several classes or tasks, ``vote`` and ``weight`` refer to the model with the
    largest weight, and ``weights`` has the weights of all models.
    """
    outputs = model.outputs()
    return [_record(model, int(r), outputs) for r in model.by_weight]


def rule_table(model: RuleModel) -> list[dict[str, Any]]:
    """Return one row per rule, in descending order of weight: rule, vote, weight, support, length, and the weight in every one-vs-rest
    or task model.
    """
    rows = []
    for record in rule_records(model):
        row = {"rule": record["text"], **{name: record[name] for name in ("vote", "weight", "support", "length")}}
        rows.append(row | {f"weight[{name}]": value for name, value in record.get("weights", {}).items()})
    return rows


def active_records(model: RuleModel) -> list[dict[str, Any]]:
    """Return the active set: text, weight (largest over the models) and length, in the order in which the nodes were added."""
    rows = []
    for weights, items in zip(model.active_weights, np.split(model.active_items, model.active_starts[1:-1]), strict=True):
        text = " and ".join(part["text"] for part in conditions(model, model.active_propositions, items))
        rows.append({"text": text or "always", "weight": float(weights[np.argmax(np.abs(weights))]), "length": len(items)})
    return rows


def rule_certificate(model: RuleModel) -> dict[str, Any]:
    """Return the certificate of the active set's problem, before thresholds moved.

    * ``gap``: the absolute gap.
    * ``depth``: the certificate holds for conjunctions up to this length. None means every length, or, if ``gap`` is NaN, that only the
      hull was searched completely.
    * ``all_pairs``: whether the lattice includes conjunctions of propositions that imply or contradict each other.
    * ``descendant_gap``: the gap that the thesis' sums over descendants certify, for few rows and propositions; else NaN.
    """
    figures, depth = model.figures, model.figures["depth"]
    relative = figures["gap"] / max(abs(figures["objective"]), 1e-300)
    gaps = {"gap": figures["gap"], "relative_gap": relative, "restricted_gap": figures["restricted_gap"]}
    reach = {"depth": int(depth) if np.isfinite(depth) else None, "complete": bool(np.isinf(depth))}
    others = {name: figures[name] for name in ("bound", "worst_outside", "descendant_gap")}
    return {**gaps, **reach, "all_pairs": not json.loads(model.params_json)["skip_implied"], **others}


def _record(model: RuleModel, r: int, outputs: list[str]) -> dict[str, Any]:
    parts, row = conditions(model, model.propositions, model.items(r)), model.weights[r]
    machine = int(np.argmax(np.abs(row)))
    is_for, weight = bool(row[machine] > 0), float(abs(row[machine]))
    vote: object
    if model.classes is None:
        vote, weight = 1 if is_for else -1, float(row[machine])
    elif model.tasks is not None or len(model.classes) == 2:
        vote = model.classes[int(is_for)]
    else:
        vote = model.classes[machine] if is_for else f"not {model.classes[machine]}"
    record = {
        "text": " and ".join(part["text"] for part in parts),
        "support": int(model.support[r]),
        "vote": vote,
        "weight": weight,
        "length": len(parts),
        "columns": [part["column"] for part in parts],
        "conditions": parts,
    }
    return {**record, "weights": dict(zip(outputs, row.tolist(), strict=True))} if len(row) > 1 else record


def rule_matrix(model: RuleModel, raw: Columns, n: int) -> np.ndarray:
    """Return which rows satisfy each rule, ``(n, n_rules)`` booleans, from the raw values of ``model.columns``."""
    items = [model.items(r).tolist() for r in range(model.n_rules)]
    return rule_flags(model.propositions, items, model.columns, raw, n)


def rule_values(model: RuleModel, raw: Columns, n: int) -> np.ndarray:
    """Return ``(n, n_machines)`` decision values from the raw values of ``model.columns``."""
    return rule_matrix(model, raw, n).astype(np.float64) @ model.weights + model.intercepts


def unseen_values(model: RuleModel, raw: Columns) -> dict[int, int]:
    """Return the number of values of each categorical column that do not occur in the training data."""
    counts = {int(column): model.propositions.unseen(int(column), dense_column(raw, k)) for k, column in enumerate(model.columns)}
    return {column: count for column, count in counts.items() if count}


def of_tasks(model: RuleModel, values: np.ndarray, task: ArrayLike | None) -> np.ndarray:
    """Return the values of each row's task, ``(n, 1)``; without tasks, all values."""
    if model.tasks is None:
        if task is not None:
            raise ValueError("task is given; the model was fitted without tasks")
        return values
    codes = known_codes(task, model.tasks, len(values))
    return values[np.arange(len(values)), codes][:, None]


def unseen_message(unseen: dict[int, int]) -> str:
    """Return the warning about categories that do not occur in the training data."""
    return (
        f"{sum(unseen.values())} values of {len(unseen)} categorical columns (first: column {min(unseen)}) do not occur in the "
        "training data; every comparison with them is false"
    )
