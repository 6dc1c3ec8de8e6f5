"""Tables of a Feature Generating Machine: its features, its groups, and its weights after every round."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from ...method import N_FOLLOWED, weights_by_label
from .atoms import Atoms, GroupAtoms
from .model import FGMModel, MachineState, positions

Rows = list[dict[str, Any]]


def selected_rows(model: FGMModel) -> Rows:
    """Return the selected coordinates with names and weights, the heaviest first."""
    names, norms, labels = coordinate_names(model), np.abs(model.weights).sum(axis=0), json.loads(model.classes_json)
    order = np.lexsort((np.arange(len(norms)), -norms))
    return [{"feature": names[j], **weights_by_label(model.weights[:, j], labels)} for j in order]


def path_rows(model: FGMModel) -> Rows:
    """Return the weights of the heaviest coordinates after every round of every machine; of maps, whose features have many, none."""
    if model.kind not in ("linear", "groups", "poly2"):
        return []
    labels = json.loads(model.classes_json)
    named = [labels[-1]] if len(model.machines) == 1 else labels
    return [row for label, machine in zip(named, model.machines, strict=True) for row in _machine_rows(model, machine, label)]


def _machine_rows(model: FGMModel, machine: MachineState, label: object) -> Rows:
    ids, last, _ = machine.weights()
    heaviest = np.argsort(-np.abs(last), kind="stable")[:N_FOLLOWED]
    names = coordinate_names(replace(model, coordinates=ids[np.sort(heaviest)]))
    # Every round has the coordinates of those before.
    along = np.zeros((len(machine.rounds), len(ids)))
    for t, row in enumerate(along, 1):
        some, values, _ = machine.weights(t)
        row[positions(ids, some)] = values
    counts = [record.n_selected for record in machine.rounds]
    columns = {name: along[:, j].tolist() for name, j in zip(names, np.sort(heaviest), strict=True)}
    return [
        {"machine": label, "round": t + 1, "n_selected": counts[t], **{name: v[t] for name, v in columns.items()}}
        for t in range(len(counts))
    ]


def group_tables(model: FGMModel, atoms: Atoms) -> dict[str, list[dict[str, Any]]]:
    """Return the selected groups by the length of the weights of their features, where groups were chosen from."""
    selections = [ids for machine in model.machines if len(ids := machine.selected())]
    if not isinstance(atoms, GroupAtoms) or not selections:
        return {}
    index, squares, rows = atoms.groups, np.square(model.weights).sum(axis=0), []
    for g in np.unique(np.concatenate(selections)).tolist():
        members = index.members[index.indptr[g] : index.indptr[g + 1]]
        norm = float(np.sqrt(squares[np.isin(model.coordinates, members)].sum()))
        rows.append({"group": int(index.labels[g]), "norm": norm, "size": len(members)})
    return {"groups": sorted(rows, key=lambda row: -row["norm"])}


def coordinate_names(model: FGMModel) -> list[str]:
    """Return a readable name of every coordinate of a model."""
    names = [f"x{j}" for j in model.features] if model.names is None else model.names
    known = dict(zip(model.features.tolist(), names, strict=True))
    if model.kind == "poly2":
        return [known[int(a)] if b < 0 else f"{known[int(a)]}*{known[int(b)]}" for a, b in model.coordinates]
    if model.kind in ("linear", "groups"):
        return [known[int(j)] for j in model.coordinates]
    width = max(1, len(model.coordinates) // max(len(model.features), 1))
    return [f"{known[int(c) // width]}[{int(c) % width}]" for c in model.coordinates]
