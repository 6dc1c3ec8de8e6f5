"""One binary machine of an FGM fit: its data, its state, and the rules by which it cuts and stops.

Several machines (classes one-vs-rest, folds, resamples, parameter settings) share the passes of one loop, see
:mod:`gramplane.pipeline.methods.fgm.loop`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....kernels.features.pairs import TopPairs
from ....kernels.features.scores import TopB
from ....kernels.mixed_norm.outer_bound import best_bound
from .config import FGMConfig
from .model import MachineState

Top = TopB | TopPairs


@dataclass(frozen=True)
class Machine:
    """A binary problem: labels, loss weights and parameters.

    Attributes
    ----------
    y
        ``(n_samples,)`` labels -1.0 and +1.0.
    cost
        ``(n_samples,)`` loss weights ``C_i = C * sample weight * class weight * row mask``; 0 takes the row out.
    config
        Parameters.
    """

    y: np.ndarray
    cost: np.ndarray
    config: FGMConfig

    def start(self) -> np.ndarray:
        """Return the start ``u = alpha * y``: the dual at w = 0, feasible with and without intercept."""
        alpha = self.cost / self.config.C
        if self.config.fit_intercept:
            share = float(alpha[self.y > 0].sum() / alpha.sum())
            alpha = alpha * np.where(self.y > 0, 1.0 - share, share)
        return alpha * self.y

    def at_zero(self) -> tuple[float, float]:
        """Return ``(objective, bias)`` of the best model without any feature (decision ``-bias``)."""
        plus, minus = float(self.cost[self.y > 0].sum()), float(self.cost[self.y < 0].sum())
        logistic = self.config.loss == "logistic"
        f = 0.0
        if self.config.fit_intercept:
            f = float(np.log(plus / minus)) if logistic else (plus - minus) / (plus + minus)
        if logistic:
            return plus * float(np.log1p(np.exp(-f))) + minus * float(np.log1p(np.exp(f))), -f
        return 0.5 * plus * (1.0 - f) ** 2 + 0.5 * minus * (1.0 + f) ** 2, -f


def fresh(machine: Machine, top: Top) -> MachineState:
    """Return the state before the first round, from the pass with the start dual; if no atom scores, the best constant is optimal."""
    if len(top.ids):
        return MachineState((), (), (), (), np.asarray(top.ids), 0.0, None)
    return MachineState((), (), (), (), np.asarray(top.ids), machine.at_zero()[0], "no_signal")


def next_cut(machine: Machine, state: MachineState) -> np.ndarray:
    """Return the atoms of the next cut: the pending ones, cut short where they would exceed ``n_features_to_select``."""
    ids = state.pending_ids
    wanted = machine.config.n_features_to_select
    if wanted is None:
        return ids
    have = _atom_set(state.selected())
    new = np.cumsum([atom not in have for atom in _atoms(ids)])
    return ids[: int(np.searchsorted(new, wanted - len(have), side="right"))] if len(have) + new[-1] > wanted else ids


def relative(value: float, scale: float) -> float:
    """Return ``value / scale`` guarded against a zero scale."""
    return value / max(abs(scale), np.finfo(float).tiny)


def close_round(machine: Machine, state: MachineState, top: Top, squares: np.ndarray, residual: np.ndarray) -> MachineState:
    """Settle the round just solved with the best atoms of its dual vector: outer gap, candidates, stop.

    ``top`` and its ``squares`` rank all atoms, the ones barred from a new cut included: the certificate needs them.
    """
    alpha = residual * machine.y
    norm2 = float(np.sum(squares[: machine.config.B]))
    record = state.rounds[-1]
    bound = max(state.lower_bound, best_bound(alpha, machine.cost, norm2, machine.config.loss))
    record = replace(record, outer_gap=max(record.objective - bound, 0.0))
    state = replace(
        state, rounds=(*state.rounds[:-1], record), pending_ids=_candidates(machine, state, np.asarray(top.ids)), lower_bound=bound
    )
    stop = _stop_reason(machine, state)
    return state if stop is None else replace(state, stop=stop)


def _candidates(machine: Machine, state: MachineState, ids: np.ndarray) -> np.ndarray:
    if not machine.config.allow_repeat:
        used = _atom_set(state.selected())
        ids = ids[np.array([atom not in used for atom in _atoms(ids)], dtype=bool)]
    return ids[: machine.config.B]


def _stop_reason(machine: Machine, state: MachineState) -> str | None:
    config, record = machine.config, state.rounds[-1]
    if config.n_features_to_select is not None and record.n_selected >= config.n_features_to_select:
        return "n_features_to_select"
    if config.outer_tol is not None and _outer_test(machine, state) <= config.outer_tol:
        return "outer_tol"
    if _no_new_cut(state):
        return "optimal"
    return "max_rounds" if len(state.rounds) >= config.max_rounds else None


def _outer_test(machine: Machine, state: MachineState) -> float:
    record = state.rounds[-1]
    if machine.config.outer_stop == "gap":
        return relative(record.outer_gap, record.objective)
    first = machine.at_zero()[0]
    before = state.rounds[-2].objective if len(state.rounds) > 1 else first
    return relative(before - record.objective, first)


def _no_new_cut(state: MachineState) -> bool:
    # A cut that is already active has no violation left: the cutting-plane problem is solved (Theorem 2).
    pending = _atom_set(state.pending_ids)
    return not pending or any(len(cut) == len(pending) and _atom_set(cut) == pending for cut in state.cuts)


def _atoms(ids: np.ndarray) -> list[Any]:
    """Return atoms as hashable values: ids, or tuples of two."""
    return ids.tolist() if ids.ndim == 1 else [tuple(pair) for pair in ids.tolist()]


def _atom_set(ids: np.ndarray) -> set[Any]:
    return set(_atoms(ids))
