"""From what the machines of a Feature Generating Machine selected to a model, and the refit on the selection."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from ....kernels.mixed_norm import SOLVERS, GroupProblem
from ...inputs.labels import Inputs
from ...passes.blocks import scale_of
from ...passes.scaling import scaled_columns
from ...records.context import RunContext
from ...records.data_set import feature_namer
from .atoms import feature_ranges
from .config import FGMConfig
from .designs import Atoms, Design
from .model import FGMModel, MachineState, union_of_weights
from .problem import BinaryProblem

REFIT_C = 20.0  # C of the de-biasing refit, as in the paper's experiments
Weights = tuple[np.ndarray, np.ndarray, float]  # coordinates, their weights, and the bias of one machine


def build_model(config: FGMConfig, inputs: Inputs, atoms: Atoms, machines: Sequence[MachineState], weights: Sequence[Weights]) -> FGMModel:
    """Return the model with these weights of the coordinates that its machines selected."""
    coordinates, rows, intercepts = union_of_weights(weights)
    selections = [ids for machine in machines if len(ids := machine.selected())]
    features = atoms.features(np.unique(np.concatenate(selections), axis=0)) if selections else np.zeros(0, np.int64)
    data, centred = inputs.data, atoms.centred
    ranges = np.stack(feature_ranges(data, features, centred=centred)) if atoms.kind == "expansion" else np.zeros((2, 0))
    texts = config.feature_map or atoms.kind, config.model_dump_json(), json.dumps(list(inputs.labels))
    read = features, scale_of(data, features, centred=centred), ranges
    is_named = data.first_feature > 0 or data.feature_names() is not None
    known = tuple(map(feature_namer(data), features.tolist())) if is_named else None
    row_scaled = data.scale.kind == "unit-row"
    return FGMModel(*texts, int(data.n_cols), *read, coordinates, rows, intercepts, tuple(machines), known, row_scaled)


def last_weights(problem: BinaryProblem, machine: MachineState) -> Weights:
    """Return the weights of the last round; without a round the best constant."""
    return machine.weights() if machine.rounds else _constant(problem)


def refit_weights(atoms: Atoms, problem: BinaryProblem, machine: MachineState, ctx: RunContext) -> Weights:
    """Return weights on the selected atoms with a plain ridge penalty and C = 20 (Tan, Tsang and Wang's de-biasing)."""
    selected, config = machine.selected(), problem.config
    if not len(selected):
        return _constant(problem)
    features = atoms.features(selected)
    coordinates, factors = atoms.coordinates(selected)
    design = Design(ctx.data.n_rows, len(factors))
    design.append(atoms.build(ctx.data, scaled_columns(ctx, features, centred=atoms.centred), features, selected))
    rows = design.rows(problem.y, problem.cost * (REFIT_C / config.C), config.loss)
    ridge = GroupProblem(rows, np.array([0, len(factors)], np.int64), config.loss, config.fit_intercept)
    solution = SOLVERS["newton"](ridge, warm=None, tol=config.inner_tol, max_iter=None)
    return coordinates, factors * solution.omega, float(solution.bias)


def _constant(problem: BinaryProblem) -> Weights:
    return np.zeros(0, np.int64), np.zeros(0), problem.best_constant()[1]
