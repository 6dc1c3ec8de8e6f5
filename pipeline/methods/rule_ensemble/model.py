"""A fitted rule ensemble. A plain record, saved without pickle."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.rules.propositions import MISSING, SIGNS, Propositions, proposition_text


@dataclass(frozen=True)
class RuleModel:
    """``f_t(x) = sum_r weights[r, t] [x satisfies rule r] + intercepts[t]``.

    Attributes
    ----------
    params_json, classes_json, tasks_json
        Parameters; class labels in order; task names in order, ``null`` without tasks.
    names_json, categories_json
        Feature names or ``null``; ``{column: [name of category 0, 1, ...]}`` of columns given as text.
    n_features
        Width of the training data.
    propositions
        Those that occur in a rule, or in the active set.
    rule_starts, rule_items
        Propositions of rule r: ``rule_items[rule_starts[r]:rule_starts[r + 1]]``.
    weights
        ``(n_rules, n_machines)``; one machine for two classes, one per class for more, one per task.
    intercepts
        ``(n_machines,)``.
    support
        ``(n_rules,)`` training rows that satisfy the rule.
    active_starts, active_items
        The active set on its propositions, in the same form; ``active_weights`` ``(n_active, n_machines)``.
    active_propositions
        The propositions of the active set, cuts as they were before they were moved.
    figures
        Objective, certificate and the like, by name.
    """

    record_name: ClassVar[str] = "RuleModel"
    params_json: str
    classes_json: str
    tasks_json: str
    names_json: str
    categories_json: str
    n_features: int
    propositions: Propositions
    rule_starts: np.ndarray
    rule_items: np.ndarray
    weights: np.ndarray
    intercepts: np.ndarray
    support: np.ndarray
    active_propositions: Propositions
    active_starts: np.ndarray
    active_items: np.ndarray
    active_weights: np.ndarray
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def n_rules(self) -> int:
        """Number of rules."""
        return len(self.support)

    @cached_property
    def tasks(self) -> tuple[Any, ...] | None:
        """Task names, ``None`` without tasks."""
        found = json.loads(self.tasks_json)
        return None if found is None else tuple(found)

    @cached_property
    def classes(self) -> list[Any]:
        """Class labels."""
        return json.loads(self.classes_json)

    @property
    def columns(self) -> np.ndarray:
        """Features that occur in a rule, ascending."""
        return np.unique(self.propositions.column[self.rule_items])

    @property
    def lengths(self) -> np.ndarray:
        """Propositions of every rule."""
        return np.diff(self.rule_starts)

    def items(self, rule: int) -> np.ndarray:
        """Return the propositions of a rule."""
        return self.rule_items[self.rule_starts[rule] : self.rule_starts[rule + 1]]

    def outputs(self) -> list[str]:
        """Return the names of the machines."""
        if self.tasks is not None:
            return [str(task) for task in self.tasks]
        return [str(label) for label in (self.classes[1:] if len(self.classes) == 2 else self.classes)]


def feature_name(model: RuleModel, column: int) -> str:
    """Return the name of a feature, ``x3`` for want of one."""
    names = json.loads(model.names_json)
    return f"x{column}" if names is None else str(names[column])


def conditions(model: RuleModel, propositions: Propositions, items: np.ndarray) -> list[dict[str, Any]]:
    """Return the propositions of a conjunction as ``{column, feature, sign, cut, text}``, by column."""
    categories = json.loads(model.categories_json)
    rows = []
    for j in sorted(items.tolist(), key=lambda j: (propositions.column[j], propositions.kind[j], propositions.cut[j])):
        column, kind, cut = int(propositions.column[j]), int(propositions.kind[j]), float(propositions.cut[j])
        named = categories.get(str(column))
        label = named[int(cut)] if named is not None and kind != MISSING else None
        text = proposition_text(kind, cut, feature_name(model, column), label)
        value = None if kind == MISSING else cut if label is None else label
        rows.append({"column": column, "feature": feature_name(model, column), "sign": SIGNS[kind], "cut": value, "text": text})
    return rows


def rule_records(model: RuleModel) -> list[dict[str, Any]]:
    """Return the rules, largest weight first: text, support, vote, weight, columns and cuts.

    ``vote`` is the label the rule speaks for; with several classes or tasks ``vote`` and ``weight`` are those of its largest weight and
    ``weights`` has all.
    """
    outputs = model.outputs()
    order = np.lexsort((np.arange(model.n_rules), -np.abs(model.weights).max(axis=1, initial=0.0)))
    return [_record(model, int(r), outputs) for r in order]


def _record(model: RuleModel, r: int, outputs: list[str]) -> dict[str, Any]:
    parts, row = conditions(model, model.propositions, model.items(r)), model.weights[r]
    top = int(np.argmax(np.abs(row)))
    found = {
        "text": " and ".join(part["text"] for part in parts),
        "support": int(model.support[r]),
        "vote": _vote(model, top, float(row[top])),
        "weight": float(abs(row[top])),
        "length": len(parts),
        "columns": [part["column"] for part in parts],
        "conditions": parts,
    }
    return {**found, "weights": dict(zip(outputs, row.tolist(), strict=True))} if len(row) > 1 else found


def _vote(model: RuleModel, machine: int, weight: float) -> Any:
    if model.tasks is not None or len(model.classes) == 2:
        return model.classes[int(weight > 0)]
    return model.classes[machine] if weight > 0 else f"not {model.classes[machine]}"
