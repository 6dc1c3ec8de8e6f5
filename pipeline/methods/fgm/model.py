"""Rounds and cuts of a Feature Generating Machine, and the resulting model. Plain records, saved without pickle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from ....kernels.bounds import sound_gap
from ....kernels.features import expansions
from ....kernels.features.pairs import PairMap, pair_columns
from ....storage import BlockStore, pick_columns
from ....storage.errors import Matrix
from ...core.memory import Item
from ...core.resources import Resources
from ...inputs.covariates import covariates_to_decide
from ...models.calibration import Calibration
from ...models.linear import multiply_rows
from ...models.model import Model, Part, check_width, column_batches
from ...passes.blocks import Blocks, table_of
from ...passes.columns import Columns, fetch_columns
from ...passes.scaling import inverse_row_norms, scaled
from ...records.scale import FeatureScale
from .config import FGMConfig


class MachineWeights(NamedTuple):
    """Coordinates, weights, intercept and covariate coefficients of one problem."""

    coordinates: np.ndarray  # (k,) or (k, 2) sorted, distinct
    values: np.ndarray  # (k,) their weights
    bias: float  # b of the decision value z - b
    covariate_coef: np.ndarray  # (q,)


@dataclass(frozen=True)
class RoundRecord:
    """Model after one round with its certificates. With a real target, weights are in its unit, objective and gaps in the square of this
    unit.
    """

    record_name: ClassVar[str] = "RoundRecord"
    omega: np.ndarray  # (tB,) weights of the cuts' columns, cut after cut
    bias: float  # b of the decision value z - b
    objective: float  # F_t
    gap: float  # duality gap of the sub-problem
    outer_gap: float  # F_t minus the best lower bound of the exact optimum
    cut_weights: np.ndarray  # (t,) kernel weights mu on the simplex
    selected: np.ndarray  # sorted distinct atoms with a weight that is not zero
    inner_steps: int  # of the sub-problem solver
    inner_stop: str  # why it stopped
    covariate_coef: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (q,) coefficients of the covariates

    @property
    def n_selected(self) -> int:
        """Number of atoms with non-zero weight."""
        return len(self.selected)


@dataclass(frozen=True)
class MachineState:
    """Cuts and rounds of one problem, and the candidates from the last pass."""

    record_name: ClassVar[str] = "MachineState"
    cuts: tuple[np.ndarray, ...]  # atom ids of each, best first: (B,) features or groups, (B, 2) pairs
    coordinates: tuple[np.ndarray, ...]  # per cut, the coordinate behind each of its columns (see the atoms)
    factors: tuple[np.ndarray, ...]  # per cut, the factor each of its columns was multiplied with
    rounds: tuple[RoundRecord, ...]
    pending_ids: np.ndarray  # atoms of the next cut
    lower_bound: float  # best lower bound of the exact optimum so far
    stop: str | None
    C: float = float("nan")  # weight of the losses; NaN in states from before it was kept there

    @property
    def omega(self) -> np.ndarray:
        return self.rounds[-1].omega if self.rounds else np.zeros(0)

    @property
    def bias(self) -> float:
        return self.rounds[-1].bias if self.rounds else 0.0

    @property
    def covariate_coef(self) -> np.ndarray:
        return self.rounds[-1].covariate_coef if self.rounds else np.zeros(0)

    @property
    def objective(self) -> float:
        """Objective F of the latest model. Without a cut, it is that of the null model, which is then optimal."""
        return self.rounds[-1].objective if self.rounds else self.lower_bound

    @property
    def gap(self) -> float:
        """Duality gap of the latest sub-problem."""
        return sound_gap(self.rounds[-1].gap, self.objective) if self.rounds else 0.0

    @property
    def outer_gap(self) -> float:
        """Upper bound of the distance of the latest model to the exact optimum."""
        return sound_gap(self.rounds[-1].outer_gap, self.objective) if self.rounds else 0.0

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of columns of each cut."""
        return tuple(len(factor) for factor in self.factors)

    @property
    def drawn(self) -> np.ndarray:
        """Sorted distinct atoms of the cuts, including those without weight."""
        return union_of_atoms(self.cuts)

    def weights(self, n_rounds: int | None = None) -> MachineWeights:
        """Return the weights of the model after ``n_rounds``, with duplicate coordinates summed."""
        t = len(self.rounds) if n_rounds is None else n_rounds
        if t == 0:
            return MachineWeights(np.zeros(0, np.int64), np.zeros(0), self.bias, self.covariate_coef)
        record = self.rounds[t - 1]
        values = record.omega * np.concatenate(self.factors[:t])
        ids, inverse = np.unique(np.concatenate(self.coordinates[:t]), axis=0, return_inverse=True)
        weights = np.zeros(len(ids))
        np.add.at(weights, inverse.ravel(), values)
        return MachineWeights(ids, weights, record.bias, record.covariate_coef)


@dataclass(frozen=True)
class FGMModel(Model):
    """A fitted Feature Generating Machine: decision values are ``<weights, columns> + <covariate_coef, covariates> + intercept``."""

    record_name: ClassVar[str] = "FGMModel"
    keeps_path = True
    kind: str  # linear, groups, poly2, or the name of an additive map
    params_json: str  # the method's parameters
    classes_json: str  # the class labels in order, null of a real target
    n_features: int  # width of the training data
    features: np.ndarray  # sorted raw features the model reads
    scale: FeatureScale  # their scaling
    ranges: np.ndarray  # (2, n) smallest and largest training value of `features` after scaling (additive maps), else empty
    coordinates: np.ndarray  # (k,) or (k, 2) of all cuts, see the atoms of each kind
    weights: np.ndarray  # (n_machines, k)
    intercepts: np.ndarray  # (n_machines,)
    machines: tuple[MachineState, ...]  # everything each went through
    names: tuple[str, ...] | None = None  # of `features`
    row_scaled: bool = False  # rows are divided by their norm before use
    covariate_coef: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # (n_machines, q); empty without covariates
    covariate_names: tuple[str, ...] = ()
    calibration: Calibration | None = None  # how decision values become probabilities, where that was fitted

    @property
    def is_used(self) -> np.ndarray:
        """Mask ``(k,)`` of the coordinates with non-zero weight in any problem. With an additive feature map, all coordinates of a feature
        are marked if one of them has such a weight.
        """
        has_weight = np.any(self.weights != 0, axis=0)
        if self.kind not in expansions.ADDITIVE or not len(has_weight):
            return has_weight
        of_features = has_weight.reshape(len(self.features), -1)
        return np.repeat(of_features.any(axis=1), of_features.shape[1])

    @property
    def used_features(self) -> np.ndarray:
        """Sorted indices of the features from which coordinates with non-zero weight are computed."""
        if self.kind in expansions.ADDITIVE:
            return self.features[self.is_used[:: max(len(self.coordinates) // max(len(self.features), 1), 1)]]
        used = np.unique(self.coordinates[self.is_used])
        return used[used >= 0]

    def decision_values(self, data: Blocks, resources: Resources, covariates: Any = None, **rows: Any) -> np.ndarray:
        """Return the decision values of the last round, or of the refit if there was one."""
        check_width(self.n_features, self.row_scaled, data)
        further = covariates_to_decide(self.covariate_names, covariates, data.n_rows, data)
        if not len(self.features):
            return self.intercepts + (np.zeros((data.n_rows, 1)) if further is None else further @ self.covariate_coef.T)
        return decision_values(self, _store_columns(self, data, resources), further)

    def staged_decision_values(
        self, data: Blocks, resources: Resources, covariates: Any = None, **rows: Any
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Return ``(n_selected, decision values)`` of the model after every round."""
        columns = _store_columns(self, data, resources) if len(self.features) else np.zeros((data.n_rows, 0))
        further = covariates_to_decide(self.covariate_names, covariates, data.n_rows, data)
        rounds = max((len(machine.rounds) for machine in self.machines), default=0)
        return (_after_round(self, columns, further, t) for t in range(1, rounds + 1))

    def contributions(self, read: Callable[[np.ndarray], np.ndarray], names: Sequence[str] | None, of: int) -> list[Part]:
        """Return the name of every coordinate, its scaled value, and its contribution: the value times the weight in model ``of``."""
        if self.row_scaled or not len(self.features):
            return []
        known = self if self.names is not None or names is None else replace(self, names=tuple(str(names[j]) for j in self.features))
        made: Any = mapped_columns(self, read(self.features))
        values = np.asarray(made.toarray() if sp.issparse(made) else made)[0]
        return list(zip(coordinate_names(known), values.tolist(), (self.weights[of] * values).tolist(), strict=True))

    def memory(self, data: BlockStore) -> list[Item]:
        """Return the memory of the columns and of the coordinates computed from them."""
        raw, count = sum(self.fetched_bytes(data)), len(self.coordinates)
        copies = 1 if count == len(self.features) else 2
        if self.kind in expansions.ADDITIVE:
            # Whole bases are made, of which the model has some coordinates.
            count = len(self.features) * _expansion(self).width
        # A column made of some has float64 entries, with row numbers where the data are sparse.
        is_dense = data.meta.kind == "dense" or not len(self.features)
        counts = (int(table_of(data, "counts", int(j), int(j) + 1)[0]) for j in self.features)
        made = copies * count * (8 * data.n_rows if is_dense else 12 * max(counts))
        items = [("columns of the model, as fetched and side by side", 2 * raw), ("coordinates made of them", made)]
        covariates = "covariates, as read and as numbers", 16 * data.n_rows * len(self.covariate_names)
        return [covariates, *items] if self.covariate_names else items

    def fetched_bytes(self, data: BlockStore) -> list[int]:
        """Return the bytes that each pass over columns reads."""
        return column_batches(data, self.features)


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


def union_of_atoms(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sorted distinct atoms of several lists."""
    non_empty = [ids for ids in parts if len(ids)]
    return np.unique(np.concatenate(non_empty), axis=0) if non_empty else np.zeros(0, np.int64)


def selected_atoms(machines: Sequence[MachineState], n_rounds: int | None = None) -> np.ndarray:
    """Return the sorted distinct atoms with non-zero weight in any problem after ``n_rounds``."""
    return union_of_atoms([machine.rounds[:n_rounds][-1].selected for machine in machines if machine.rounds])


def union_of_weights(parts: Sequence[MachineWeights]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``(coordinates, weights (n_machines, k), intercepts)`` over the union of the problems' coordinates."""
    union = union_of_atoms([part.coordinates for part in parts])
    weights = np.zeros((len(parts), len(union)))
    for row, part in zip(weights, parts, strict=True):
        row[positions(union, part.coordinates)] = part.values
    return union, weights, np.array([-part.bias for part in parts])


def positions(ids: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the positions of ``chosen`` among the sorted distinct ``ids`` (1-D ids or pairs)."""
    if ids.ndim == 1:
        return np.searchsorted(ids, chosen)
    _, inverse = np.unique(np.concatenate((ids, chosen.reshape(-1, 2))), axis=0, return_inverse=True)
    return inverse.ravel()[len(ids) :]


def _store_columns(model: FGMModel, data: Blocks, resources: Resources) -> Columns:
    """Return the model's coordinates for every row of a store, in one column pass."""
    row_factor = data.scale.row_factor if model.row_scaled else None
    return mapped_columns(model, fetch_columns(data, resources, model.features), row_factor)


def model_columns(model: FGMModel, X: Matrix) -> Columns:
    """Return the model's coordinates for an array ``X`` ``(n, n_features)``."""
    # An index of columns makes them lie one after another, and products take rows; of other orders `take` copies all.
    raw = X.take(model.features, axis=1) if isinstance(X, np.ndarray) and X.flags.c_contiguous else X[:, model.features]
    row_factor = inverse_row_norms(X) if model.row_scaled else None
    return mapped_columns(model, sp.csc_array(raw) if sp.issparse(raw) else raw, row_factor)


def mapped_columns(model: FGMModel, raw: Columns, row_factor: np.ndarray | None = None) -> Columns:
    """Return the model's coordinates as columns, ``(n, k)``, from the raw columns of ``model.features``."""
    columns = scaled(raw, model.scale, row_factor)
    if model.kind == "poly2":
        config = FGMConfig.model_validate_json(model.params_json)
        return pair_columns(columns, model.features, model.coordinates, PairMap(config.gamma, config.coef0))
    if model.kind in expansions.ADDITIVE:
        expansion = _expansion(model)
        full = expansions.expand(columns, expansion, model.ranges[0], model.ranges[1])
        every = (model.features[:, None] * expansion.width + np.arange(expansion.width)).ravel()
        return full if len(every) == len(model.coordinates) else full[:, positions(every, model.coordinates)]
    is_whole = len(model.coordinates) == len(model.features)
    return columns if is_whole else take_columns(columns, model.features, model.coordinates)


def _expansion(model: FGMModel) -> expansions.Expansion:
    return additive_map(FGMConfig.model_validate_json(model.params_json))


def additive_map(config: FGMConfig) -> expansions.Expansion:
    """Return the additive map of ``feature_map``."""
    name, exponent = cast("Any", config.feature_map), config.exponent if config.feature_map == "hik" else None
    return expansions.Expansion(name, gamma=config.gamma, n_bins=config.n_bins, exponent=exponent)


def decision_values(model: FGMModel, columns: Columns, covariates: np.ndarray | None = None) -> np.ndarray:
    """Return ``(n_samples, n_machines)`` decision values from the model's coordinates and covariates."""
    values = multiply_rows(columns, model.weights) + model.intercepts
    return values if covariates is None else values + covariates @ model.covariate_coef.T


def _after_round(model: FGMModel, columns: Columns, covariates: np.ndarray | None, t: int) -> tuple[int, np.ndarray]:
    weights = np.zeros((len(model.coordinates), len(model.machines)))
    intercepts, coef = model.intercepts.copy(), model.covariate_coef.copy()
    for k, machine in enumerate(model.machines):
        if machine.rounds:
            after = machine.weights(min(t, len(machine.rounds)))
            weights[positions(model.coordinates, after.coordinates), k] = after.values
            intercepts[k] = -after.bias
            if covariates is not None:
                coef[k] = after.covariate_coef
    values = multiply_rows(columns, weights.T) + intercepts
    count = len(selected_atoms(model.machines, t))
    return count, values if covariates is None else values + covariates @ coef.T


def take_columns(raw: Columns, features: np.ndarray, chosen: np.ndarray) -> Columns:
    """Return the columns of the ``chosen`` features from ``raw``. The columns of ``raw`` belong to the sorted ``features``."""
    indices = np.searchsorted(features, chosen)
    return raw.T[indices].T if isinstance(raw, np.ndarray) else pick_columns(raw, indices)
