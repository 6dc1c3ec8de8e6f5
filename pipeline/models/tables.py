"""Tables of a model's feature and kernel weights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...storage import BlockStore
from ...storage.source import FACTS
from .kernel import kernel_names
from .model import Tables


def weights_by_label(weights: np.ndarray, labels: Iterable[Any]) -> dict[str, float]:
    """Return the weight columns of a table: ``weight`` for a single model, otherwise ``weight[label]`` for each."""
    if len(weights) == 1:
        return {"weight": float(weights[0])}
    return {f"weight[{label}]": float(weight) for label, weight in zip(labels, weights, strict=True)}


def name_features(features: Iterable[int], names: Sequence[str] | None) -> list[str]:
    """Return the names of features by index; ``x3`` if there are no names."""
    return [f"x{j}" if names is None else str(names[j]) for j in features]


def with_facts(tables: Tables, data: object) -> Tables:
    """Return the tables of a model. If the data are genotypes, each selected variant has what is known of it."""
    if "selected" not in tables or not isinstance(data, BlockStore) or (facts := data.column_facts()) is None:
        return tables
    selected = {row.get("feature") for row in tables["selected"]}
    known = {name: own for name, own in zip(data.feature_names() or (), facts, strict=True) if name in selected}
    return {**tables, "selected": [_with_facts(row, known.get(str(row.get("feature")))) for row in tables["selected"]]}


def _with_facts(row: dict[str, Any], facts: str | None) -> dict[str, Any]:
    if facts is None:  # of a product of two variants, say
        return row
    chromosome, position, counted, other, frequency = facts.split("\t")
    known = chromosome, int(position), counted, other, None if frequency == "nan" else float(frequency)
    return {"feature": row["feature"], **dict(zip(FACTS, known, strict=True)), **row}


N_FOLLOWED = 20  # kernels whose weights a report follows along the iterations


def heaviest_first(weights: np.ndarray) -> np.ndarray:
    """Return the indices of positive weights in decreasing order; ties keep their order."""
    order = np.argsort(-weights, kind="stable")
    return order[weights[order] > 0]


def weight_tables(names: Sequence[str], labels: Sequence[Any], weights: np.ndarray, paths: Iterable[np.ndarray]) -> Tables:
    """Return a table of kernels by weight ``(n_machines, k)``, and a table of the largest weights along ``paths`` ``(t, k)``."""
    order = heaviest_first(weights.max(axis=0))
    followed = [
        {"machine": label, "iteration": t, **{names[q]: float(row[q]) for q in order[:N_FOLLOWED]}}
        for label, path in zip(labels, paths, strict=True)
        for t, row in enumerate(path, 1)
    ]
    return {"kernels": kernel_rows(names, labels, weights), "weights": followed}


def kernel_rows(names: Sequence[str], labels: Sequence[Any], weights: np.ndarray) -> list[dict[str, Any]]:
    """Return the kernels with non-zero weight in some model, by decreasing weight; ``weights`` is ``(n_machines, k)``."""
    return [{"kernel": names[q], **weights_by_label(weights[:, q], labels)} for q in heaviest_first(weights.max(axis=0))]


def followed_tables(model: Any, names: Sequence[str] | None) -> Tables:
    """Return the tables of `weight_tables` for a kernel model that keeps its weights over the iterations."""
    labels, count = json.loads(model.classes_json) or (), len(model.theta)
    paths = [model.arrays[f"weights_path_{m}"] for m in range(count)]
    return weight_tables(kernel_names(model, names), [str(label) for label in labels] if count > 1 else [""], model.theta, paths)
