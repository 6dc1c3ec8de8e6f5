"""Tables of a Feature Generating Machine: its features, its groups, and its weights after every round."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from ...models.tables import N_FOLLOWED, weights_by_label
from .atoms import Atoms, GroupAtoms
from .model import FGMModel, MachineState, positions, selected_atoms

Rows = list[dict[str, Any]]

TARGET = "target"  # what the machine of a real target is called in place of a class


def selected_rows(model: FGMModel) -> Rows:
    """Return the selected coordinates with names and weights, the heaviest first."""
    names, norms, labels = coordinate_names(model), np.abs(model.weights).sum(axis=0), json.loads(model.classes_json)
    order = np.lexsort((np.arange(len(norms)), -norms))
    return [{"feature": names[j], **weights_by_label(model.weights[:, j], labels)} for j in order if norms[j] > 0]


def covariate_tables(model: FGMModel) -> dict[str, Rows]:
    """Return the coefficients of the covariates, where there are some."""
    labels, coef = json.loads(model.classes_json), zip(model.covariate_names, model.covariate_coef.T, strict=True)
    rows = [{"covariate": name, **weights_by_label(own, labels)} for name, own in coef]
    return {"covariates": rows} if rows else {}


def path_rows(model: FGMModel) -> Rows:
    """Return the weights of the heaviest coordinates after every round of every machine; of maps, whose features have many, none."""
    if model.kind not in ("linear", "groups", "poly2"):
        return []
    labels = json.loads(model.classes_json)
    named = labels if len(model.machines) > 1 else [TARGET if labels is None else labels[-1]]
    return [row for label, machine in zip(named, model.machines, strict=True) for row in _machine_rows(model, machine, label)]


def _machine_rows(model: FGMModel, machine: MachineState, label: object) -> Rows:
    final = machine.weights()
    ids, heaviest = final.coordinates, np.argsort(-np.abs(final.values), kind="stable")[:N_FOLLOWED]
    names = coordinate_names(replace(model, coordinates=ids[np.sort(heaviest)]))
    # Every round has the coordinates of those before.
    along = np.zeros((len(machine.rounds), len(ids)))
    for t, row in enumerate(along, 1):
        after = machine.weights(t)
        row[positions(ids, after.coordinates)] = after.values
    counts = [record.n_selected for record in machine.rounds]
    columns = {name: along[:, j].tolist() for name, j in zip(names, np.sort(heaviest), strict=True)}
    return [
        {"machine": label, "round": t + 1, "n_selected": counts[t], **{name: v[t] for name, v in columns.items()}}
        for t in range(len(counts))
    ]


def group_tables(model: FGMModel, atoms: Atoms) -> dict[str, list[dict[str, Any]]]:
    """Return the selected groups by the length of the weights of their features, where groups were chosen from."""
    if not isinstance(atoms, GroupAtoms):
        return {}
    index, squares, rows = atoms.groups, np.square(model.weights).sum(axis=0), []
    for g in selected_atoms(model.machines).tolist():
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
