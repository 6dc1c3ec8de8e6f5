"""One binary problem of an FGM fit, and the rules by which its machine cuts and stops.

Several problems (classes one-vs-rest, folds, resamples, parameter settings) share the passes of one loop, see
:mod:`gramplane.pipeline.methods.fgm.loop`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....kernels.features.pairs import TopPairs
from ....kernels.features.scores import TopB
from ....kernels.losses import margin_loss
from ...inputs.labels import Inputs, labels_of, refuse_idle_classes, row_costs
from .config import FGMConfig
from .model import MachineState

Top = TopB | TopPairs


@dataclass(frozen=True)
class BinaryProblem:
    """Labels with the weights of their losses, and parameters."""

    y: np.ndarray  # (n_samples,) labels -1.0 and +1.0
    cost: np.ndarray  # (n_samples,) C_i = C * sample weight * class weight * row mask; 0 takes the row out
    config: FGMConfig

    def start_dual(self) -> np.ndarray:
        """Return ``u = alpha * y``, ``(n_samples,)``: the dual at w = 0, feasible with and without intercept."""
        alpha = self.cost / self.config.C
        if self.config.fit_intercept:
            share = float(alpha[self.y > 0].sum() / alpha.sum())
            alpha = alpha * np.where(self.y > 0, 1.0 - share, share)
        return alpha * self.y

    def best_constant(self) -> tuple[float, float]:
        """Return ``(objective, bias)`` of the best model without any feature (decision ``-bias``)."""
        plus, minus = float(self.cost[self.y > 0].sum()), float(self.cost[self.y < 0].sum())
        loss = margin_loss(self.config.loss)
        f = loss.best_constant(plus, minus) if self.config.fit_intercept else 0.0
        return loss.constant_value(plus, minus, f), -f


def binary_problems(config: FGMConfig, inputs: Inputs) -> list[BinaryProblem]:
    """Return one problem per class (one for two classes), with the weights of its losses."""
    cost = row_costs(config, inputs)
    refuse_idle_classes(inputs.labels, inputs.target, cost)
    return [BinaryProblem(labels_of(inputs, k), cost, config) for k in range(inputs.n_machines)]


def initial_state(problem: BinaryProblem, top: Top) -> MachineState:
    """Return the state before the first round, from the pass with the start dual; if no atom scores, the best constant is optimal."""
    bound, stop = (0.0, None) if len(top.ids) else (problem.best_constant()[0], "no_signal")
    return MachineState((), (), (), (), np.asarray(top.ids), bound, stop)


def next_cut(problem: BinaryProblem, state: MachineState) -> np.ndarray:
    """Return the atoms of the next cut: the pending ones, cut short where they would exceed ``n_features_to_select``."""
    ids, limit = state.pending_ids, problem.config.n_features_to_select
    if limit is None:
        return ids
    selected = _atom_set(state.selected())
    n_new = np.cumsum([atom not in selected for atom in _atoms(ids)])
    return ids[: int(np.searchsorted(n_new, limit - len(selected), side="right"))] if len(selected) + n_new[-1] > limit else ids


def _relative(value: float, scale: float) -> float:
    return value / max(abs(scale), np.finfo(float).tiny)


def close_round(problem: BinaryProblem, state: MachineState, top: Top, squares: np.ndarray, residual: np.ndarray) -> MachineState:
    """Return the state after a solved round, with what the best atoms of its dual vector decide: outer gap, candidates, stop. ``top`` and
    its ``squares`` rank all atoms, the ones barred from a new cut included: the certificate needs them.
    """
    config, record, ids = problem.config, state.rounds[-1], np.asarray(top.ids)
    norm2 = float(np.sum(squares[: config.B]))
    bound = max(state.lower_bound, margin_loss(config.loss).best_bound(residual * problem.y, problem.cost, norm2))
    record = replace(record, outer_gap=max(record.objective - bound, 0.0))
    if not config.allow_repeat:
        used = _atom_set(state.selected())
        ids = ids[np.array([atom not in used for atom in _atoms(ids)], dtype=bool)]
    state = replace(state, rounds=(*state.rounds[:-1], record), pending_ids=ids[: config.B], lower_bound=bound)
    stop = _stop_reason(problem, state)
    return state if stop is None else replace(state, stop=stop)


def _stop_reason(problem: BinaryProblem, state: MachineState) -> str | None:
    config, record = problem.config, state.rounds[-1]
    if config.n_features_to_select is not None and record.n_selected >= config.n_features_to_select:
        return "n_features_to_select"
    if config.outer_tol is not None and _outer_test(problem, state) <= config.outer_tol:
        return "outer_tol"
    # A cut that is already active has no violation left: the cutting-plane problem is solved (Theorem 2).
    pending = _atom_set(state.pending_ids)
    if not pending or any(len(cut) == len(pending) and _atom_set(cut) == pending for cut in state.cuts):
        return "optimal"
    return "max_rounds" if len(state.rounds) >= config.max_rounds else None


def _outer_test(problem: BinaryProblem, state: MachineState) -> float:
    record = state.rounds[-1]
    if problem.config.outer_stop == "gap":
        return _relative(record.outer_gap, record.objective)
    first = problem.best_constant()[0]
    before = state.rounds[-2].objective if len(state.rounds) > 1 else first
    return _relative(before - record.objective, first)


def _atoms(ids: np.ndarray) -> list[Any]:
    """Return atoms as hashable values: ids, or tuples of two."""
    return ids.tolist() if ids.ndim == 1 else [tuple(pair) for pair in ids.tolist()]


def _atom_set(ids: np.ndarray) -> set[Any]:
    return set(_atoms(ids))
