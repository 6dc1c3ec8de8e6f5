"""From what the machines of a Feature Generating Machine selected to a model, and the refit on the selection."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....kernels.mixed_norm import SOLVERS, GroupProblem
from ...core.resources import Resources
from ...inputs.labels import Inputs
from ...passes.blocks import Blocks, scale_of
from ...passes.scaling import scaled_columns
from ...records.data_set import feature_namer
from .atoms import feature_ranges
from .config import FGMConfig
from .designs import Atoms, Design
from .model import FGMModel, MachineState, MachineWeights, positions, selected_atoms, union_of_atoms, union_of_weights
from .problem import MachineProblem

REFIT_C = 20.0  # C of the de-biasing refit, as in the paper's experiments


def build_model(
    config: FGMConfig, inputs: Inputs, atoms: Atoms, machines: Sequence[MachineState], weights: Sequence[MachineWeights]
) -> FGMModel:
    """Return the model with these weights of the coordinates that its machines selected."""
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
    """Return the weights of the last round; without a round the null model."""
    return machine.weights() if machine.rounds else _null_weights(problem)


def refit_weights(data: Blocks, atoms: Atoms, problem: MachineProblem, machine: MachineState, resources: Resources) -> MachineWeights:
    """Return weights on the selected atoms with a plain ridge penalty and C = 20 (Tan, Tsang and Wang's de-biasing)."""
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
