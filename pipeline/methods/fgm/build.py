"""Model, refit and tables from the features that a fit of the Feature Generating Machine selected."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....kernels.mixed_norm import SOLVERS, GroupProblem
from ...core.resources import Resources
from ...inputs.labels import Inputs
from ...models.model import Tables
from ...models.tables import N_FOLLOWED, weights_by_label
from ...passes.blocks import Blocks, scale_of
from ...passes.scaling import scaled_columns
from ...records.data_set import feature_namer
from .atoms import Atoms, GroupAtoms, feature_ranges
from .config import FGMConfig
from .designs import Design
from .model import FGMModel, MachineState, MachineWeights, coordinate_names, positions, selected_atoms, union_of_atoms, union_of_weights
from .problem import MachineProblem

REFIT_C = 20.0  # C of the de-biasing refit, as in the paper's experiments


def build_model(
    config: FGMConfig, inputs: Inputs, atoms: Atoms, machines: Sequence[MachineState], weights: Sequence[MachineWeights]
) -> FGMModel:
    """Return the model with the given weights of the selected coordinates."""
    coordinates, rows, intercepts = union_of_weights(weights)
    features = atoms.features(union_of_atoms([machine.drawn for machine in machines]))
    data, centred = inputs.data, atoms.centred
    ranges = np.stack(feature_ranges(data, features, centred=centred)) if atoms.kind == "expansion" else np.zeros((2, 0))
    classes = "null" if inputs.classes is None else json.dumps(list(inputs.classes))
    texts = config.feature_map or atoms.kind, config.model_dump_json(), classes
    read = features, scale_of(data, features, centred=centred), ranges
    is_named = data.first_feature > 0 or data.feature_names() is not None
    known = tuple(map(feature_namer(data), features.tolist())) if is_named else None
    row_scaled = data.scale.kind == "unit-row"
    model = FGMModel(*texts, int(data.n_cols), *read, coordinates, rows, intercepts, tuple(machines), known, row_scaled)
    if inputs.covariates is None:
        return model
    coef = np.stack([part.covariate_coef for part in weights])
    return replace(model, covariate_coef=coef, covariate_names=inputs.covariates.names)


def last_weights(problem: MachineProblem, machine: MachineState) -> MachineWeights:
    """Return the weights of the last round, or of the null model if there was no round."""
    return machine.weights() if machine.rounds else _null_weights(problem)


def refit_weights(data: Blocks, atoms: Atoms, problem: MachineProblem, machine: MachineState, resources: Resources) -> MachineWeights:
    """Return weights of a refit of the selected atoms with a ridge penalty and C = 20 (the de-biasing of Tan, Tsang and Wang)."""
    selected, config = selected_atoms([machine]), problem.config
    if not len(selected):
        return _null_weights(problem)
    features = atoms.features(selected)
    coordinates, factors = atoms.coordinates(selected)
    design = Design(data.n_rows, len(factors))
    design.append(atoms.build(data, scaled_columns(data, resources, features, centred=atoms.centred), features, selected))
    rows = design.rows(problem.y, problem.cost * (REFIT_C / float(config.C)), problem.loss, problem.basis)
    ridge = GroupProblem(rows, np.array([0, len(factors)], np.int64))
    solution = SOLVERS["newton"](ridge, warm=None, tol=config.inner_tol, max_iter=None)
    everywhere = machine.weights().coordinates
    weights = np.zeros(len(everywhere))
    weights[positions(everywhere, coordinates)] = factors * solution.omega * problem.unit.size
    return MachineWeights(everywhere, weights, *problem.in_target_unit(solution.free))


def _null_weights(problem: MachineProblem) -> MachineWeights:
    return MachineWeights(np.zeros(0, np.int64), np.zeros(0), problem.null.bias, problem.null.covariate_coef)


Rows = list[dict[str, Any]]

TARGET = "target"  # what the machine of a real target is called in place of a class


def selected_rows(model: FGMModel) -> Rows:
    """Return the selected coordinates with names and weights, in descending order of weight."""
    names, norms, labels = coordinate_names(model), np.abs(model.weights).sum(axis=0), json.loads(model.classes_json)
    order = np.lexsort((np.arange(len(norms)), -norms))
    return [{"feature": names[j], **weights_by_label(model.weights[:, j], labels)} for j in order if norms[j] > 0]


def covariate_tables(model: FGMModel) -> dict[str, Rows]:
    """Return the coefficients of the covariates, if there are any."""
    labels, coef = json.loads(model.classes_json), zip(model.covariate_names, model.covariate_coef.T, strict=True)
    rows = [{"covariate": name, **weights_by_label(own, labels)} for name, own in coef]
    return {"covariates": rows} if rows else {}


def path_rows(model: FGMModel) -> Rows:
    """Return the weights of the largest coordinates after every round of every problem. The result is empty for additive feature maps,
    because their features have many coordinates.
    """
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


def group_tables(model: FGMModel, atoms: Atoms) -> Tables:
    """Return the selected groups in descending order of the norm of their features' weights, if groups are the atoms."""
    if not isinstance(atoms, GroupAtoms):
        return {}
    index, squares, rows = atoms.groups, np.square(model.weights).sum(axis=0), []
    for g in selected_atoms(model.machines).tolist():
        members = index.members[index.indptr[g] : index.indptr[g + 1]]
        norm = float(np.sqrt(squares[np.isin(model.coordinates, members)].sum()))
        rows.append({"group": int(index.labels[g]), "norm": norm, "size": len(members)})
    return {"groups": sorted(rows, key=lambda row: -row["norm"])}
