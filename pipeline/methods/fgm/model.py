"""Rounds and cuts of a Feature Generating Machine, and the model made of them. Plain records, saved without pickle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from ....kernels.bounds import sound_gap
from ...models.calibration import Calibration
from ...records.scale import FeatureScale


class MachineWeights(NamedTuple):
    """What decision values of a machine are made of."""

    coordinates: np.ndarray  # (k,) or (k, 2) sorted, distinct
    values: np.ndarray  # (k,) their weights
    bias: float  # b of the decision value z - b
    covariate_coef: np.ndarray  # (q,)


@dataclass(frozen=True)
class RoundRecord:
    """The model after one round and its certificates, in the unit of the target (its square) where that is real."""

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
        """Number of atoms with weight."""
        return len(self.selected)


@dataclass(frozen=True)
class MachineState:
    """Cuts and rounds of one machine, and the candidates of the last pass."""

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
        """Weights of the newest model."""
        return self.rounds[-1].omega if self.rounds else np.zeros(0)

    @property
    def bias(self) -> float:
        """Bias of the newest model."""
        return self.rounds[-1].bias if self.rounds else 0.0

    @property
    def covariate_coef(self) -> np.ndarray:
        """Coefficients of the covariates in the newest model."""
        return self.rounds[-1].covariate_coef if self.rounds else np.zeros(0)

    @property
    def objective(self) -> float:
        """F of the newest model; without any cut that of the null model, which is exact."""
        return self.rounds[-1].objective if self.rounds else self.lower_bound

    @property
    def gap(self) -> float:
        """Duality gap of the newest sub-problem."""
        return sound_gap(self.rounds[-1].gap, self.objective) if self.rounds else 0.0

    @property
    def outer_gap(self) -> float:
        """Distance of the newest model to the exact optimum at most."""
        return sound_gap(self.rounds[-1].outer_gap, self.objective) if self.rounds else 0.0

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each cut."""
        return tuple(len(factor) for factor in self.factors)

    @property
    def drawn(self) -> np.ndarray:
        """Sorted distinct atoms of the cuts, also those without weight."""
        return union_of_atoms(self.cuts)

    def weights(self, n_rounds: int | None = None) -> MachineWeights:
        """Return the weights of the model after ``n_rounds``, duplicates summed."""
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
class FGMModel:
    """A fitted Feature Generating Machine: decision values are ``<weights, columns> + <covariate_coef, covariates> + intercept``."""

    record_name: ClassVar[str] = "FGMModel"
    kind: str  # linear, groups, hik, additive_gaussian or poly2
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
        """``(k,)`` whether each coordinate has weight in some machine; of maps, whose features have several, whether its feature has."""
        has_weight = np.any(self.weights != 0, axis=0)
        if self.kind not in ("hik", "additive_gaussian") or not len(has_weight):
            return has_weight
        of_features = has_weight.reshape(len(self.features), -1)
        return np.repeat(of_features.any(axis=1), of_features.shape[1])

    @property
    def used_features(self) -> np.ndarray:
        """Sorted raw features behind the coordinates with weight."""
        if self.kind in ("hik", "additive_gaussian"):
            return self.features[self.is_used[:: max(len(self.coordinates) // max(len(self.features), 1), 1)]]
        used = np.unique(self.coordinates[self.is_used])
        return used[used >= 0]


def union_of_atoms(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sorted distinct atoms of several lists."""
    non_empty = [ids for ids in parts if len(ids)]
    return np.unique(np.concatenate(non_empty), axis=0) if non_empty else np.zeros(0, np.int64)


def selected_atoms(machines: Sequence[MachineState], n_rounds: int | None = None) -> np.ndarray:
    """Return the sorted distinct atoms that have weight in some machine after ``n_rounds``."""
    return union_of_atoms([machine.rounds[:n_rounds][-1].selected for machine in machines if machine.rounds])


def union_of_weights(parts: Sequence[MachineWeights]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``(coordinates, weights (n_machines, k), intercepts)`` over the union of the machines' coordinates."""
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
