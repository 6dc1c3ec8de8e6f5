"""Rounds and cuts of a Feature Generating Machine, and the model made of them. Plain records, saved without pickle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...models.calibration import Calibration
from ...records.scale import FeatureScale


@dataclass(frozen=True)
class RoundRecord:
    """The model after one round and its certificates."""

    record_name: ClassVar[str] = "RoundRecord"
    omega: np.ndarray  # (tB,) weights of the cuts' columns, cut after cut
    bias: float  # b of the decision value z - b
    objective: float  # F_t
    gap: float  # duality gap of the sub-problem
    outer_gap: float  # F_t minus the best lower bound of the exact optimum
    cut_weights: np.ndarray  # (t,) kernel weights mu on the simplex
    n_selected: int  # distinct atoms so far
    inner_steps: int  # of the sub-problem solver
    inner_stop: str  # why it stopped


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

    @property
    def omega(self) -> np.ndarray:
        """Weights of the newest model."""
        return self.rounds[-1].omega if self.rounds else np.zeros(0)

    @property
    def bias(self) -> float:
        """Bias of the newest model."""
        return self.rounds[-1].bias if self.rounds else 0.0

    @property
    def objective(self) -> float:
        """F of the newest model; without any cut that of the best constant, which is exact."""
        return self.rounds[-1].objective if self.rounds else self.lower_bound

    @property
    def gap(self) -> float:
        """Duality gap of the newest sub-problem."""
        return self.rounds[-1].gap if self.rounds else 0.0

    @property
    def outer_gap(self) -> float:
        """Distance of the newest model to the exact optimum at most."""
        return self.rounds[-1].outer_gap if self.rounds else 0.0

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each cut."""
        return tuple(len(factor) for factor in self.factors)

    def selected(self, n_rounds: int | None = None) -> np.ndarray:
        """Return the sorted distinct atoms of the first ``n_rounds`` cuts."""
        cuts = self.cuts[:n_rounds]
        return np.unique(np.concatenate(cuts), axis=0) if cuts else np.zeros(0, np.int64)

    def weights(self, n_rounds: int | None = None) -> tuple[np.ndarray, np.ndarray, float]:
        """Return ``(coordinates, weights, bias)`` of the model after ``n_rounds``, duplicates summed."""
        t = len(self.rounds) if n_rounds is None else n_rounds
        if t == 0:
            return np.zeros(0, np.int64), np.zeros(0), self.bias
        record = self.rounds[t - 1]
        values = record.omega * np.concatenate(self.factors[:t])
        ids, inverse = np.unique(np.concatenate(self.coordinates[:t]), axis=0, return_inverse=True)
        weights = np.zeros(len(ids))
        np.add.at(weights, inverse.ravel(), values)
        return ids, weights, record.bias


@dataclass(frozen=True)
class FGMModel:
    """A fitted Feature Generating Machine: decision values are ``<weights, columns> + intercept``."""

    record_name: ClassVar[str] = "FGMModel"
    record_optional: ClassVar[tuple[str, ...]] = ("calibration",)
    kind: str  # linear, groups, hik, additive_gaussian or poly2
    params_json: str  # the method's parameters
    classes_json: str  # the class labels in order
    n_features: int  # width of the training data
    features: np.ndarray  # sorted raw features the model reads
    scale: FeatureScale  # their scaling
    ranges: np.ndarray  # (2, n) smallest and largest training value of `features` after scaling (additive maps), else empty
    coordinates: np.ndarray  # (k,) or (k, 2) with weight, see the atoms of each kind
    weights: np.ndarray  # (n_machines, k)
    intercepts: np.ndarray  # (n_machines,)
    machines: tuple[MachineState, ...]  # everything each went through
    names: tuple[str, ...] | None = None  # of `features`
    row_scaled: bool = False  # rows are divided by their norm before use
    calibration: Calibration | None = None  # how decision values become probabilities, where that was fitted


def union_of_weights(parts: Sequence[tuple[np.ndarray, np.ndarray, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``(coordinates, weights (n_machines, k), intercepts)`` over the union of the machines' coordinates."""
    non_empty = [ids for ids, _, _ in parts if len(ids)]
    union = np.unique(np.concatenate(non_empty), axis=0) if non_empty else np.zeros(0, np.int64)
    weights = np.zeros((len(parts), len(union)))
    for row, (ids, values, _) in zip(weights, parts, strict=True):
        row[positions(union, ids)] = values
    return union, weights, np.array([-bias for _, _, bias in parts])


def positions(ids: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the positions of ``chosen`` among the sorted distinct ``ids`` (1-D ids or pairs)."""
    if ids.ndim == 1:
        return np.searchsorted(ids, chosen)
    _, inverse = np.unique(np.concatenate((ids, chosen.reshape(-1, 2))), axis=0, return_inverse=True)
    return inverse.ravel()[len(ids) :]
