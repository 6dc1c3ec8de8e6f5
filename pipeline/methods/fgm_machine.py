"""One binary machine of an FGM fit: its data, its state, and the rules by which it cuts and stops.

Several machines (classes one-vs-rest, folds, resamples, parameter settings) share the passes of one loop, see :mod:`.fgm`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...kernels.scores import TopB
from ...kernels.solvers.outer_bound import best_scaled_dual, dual_utility
from ..records.config import FGMConfig

NAN = float("nan")


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
        """Return the start ``u = alpha * y``: the dual at w = 0, feasible with and without intercept (section 3, step 1)."""
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


@dataclass(frozen=True)
class RoundRecord:
    """The model after one round and its certificates.

    Attributes
    ----------
    omega
        ``(tB,)`` weights of the cuts' columns, cut after cut.
    bias
        ``b`` of the decision value ``z - b``.
    objective, gap, outer_gap
        F_t, the sub-problem's duality gap, and ``F_t`` minus the best lower bound of the exact optimum.
    cut_weights
        ``(t,)`` kernel weights ``mu`` on the simplex.
    n_selected
        Distinct atoms so far.
    inner_steps
        Steps of the sub-problem solver.
    inner_stop
        Why it stopped.
    """

    omega: np.ndarray
    bias: float
    objective: float
    gap: float
    outer_gap: float
    cut_weights: np.ndarray
    n_selected: int
    inner_steps: int
    inner_stop: str


@dataclass(frozen=True)
class MachineState:
    """What one machine has found: its cuts, its rounds, and the candidates of the last pass."""

    cuts: tuple[np.ndarray, ...]
    widths: tuple[int, ...]
    rounds: tuple[RoundRecord, ...]
    pending_ids: np.ndarray
    lower_bound: float
    stop: str | None

    @property
    def omega(self) -> np.ndarray:
        """Weights of the newest model."""
        return self.rounds[-1].omega if self.rounds else np.zeros(0)

    @property
    def bias(self) -> float:
        """Bias of the newest model."""
        return self.rounds[-1].bias if self.rounds else 0.0

    def selected(self, n_rounds: int | None = None) -> np.ndarray:
        """Return the sorted distinct atoms of the first ``n_rounds`` cuts."""
        cuts = self.cuts[:n_rounds]
        return np.unique(np.concatenate(cuts), axis=0) if cuts else np.zeros(0, np.int64)


def fresh(top: TopB) -> MachineState:
    """Return the state before the first round, from the pass with the start dual."""
    return MachineState((), (), (), np.asarray(top.ids), 0.0, None if len(top.ids) else "no_signal")


def next_cut(machine: Machine, state: MachineState) -> np.ndarray:
    """Return the atoms of the next cut: the pending ones, cut short where they would exceed ``n_features_to_select``."""
    ids = state.pending_ids
    wanted = machine.config.n_features_to_select
    if wanted is None:
        return ids
    have = {tuple(np.atleast_1d(atom)) for atom in state.selected()}
    new = np.cumsum([tuple(np.atleast_1d(atom)) not in have for atom in ids])
    return ids[: int(np.searchsorted(new, wanted - len(have), side="right"))] if len(have) + new[-1] > wanted else ids


def relative(value: float, scale: float) -> float:
    """Return ``value / scale`` guarded against a zero scale."""
    return value / max(abs(scale), np.finfo(float).tiny)


def close_round(machine: Machine, state: MachineState, top: TopB, squares: np.ndarray, residual: np.ndarray) -> MachineState:
    """Settle the round just solved with the scores of its dual vector: outer gap, candidates, stop."""
    alpha = residual * machine.y
    norm2 = float(np.sum(squares))
    record = state.rounds[-1]
    plain = dual_utility(alpha, machine.cost, machine.config.loss) - 0.5 * norm2
    scaled = best_scaled_dual(alpha, machine.cost, norm2, machine.config.loss)
    bound = max(state.lower_bound, plain, scaled)
    record = replace(record, outer_gap=max(record.objective - bound, 0.0))
    state = replace(state, rounds=(*state.rounds[:-1], record), pending_ids=np.asarray(top.ids), lower_bound=bound)
    return replace(state, stop=_stop_reason(machine, state))


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
    if len(state.pending_ids) == 0:
        return True
    pending = np.unique(state.pending_ids, axis=0)
    return any(len(cut) == len(pending) and np.array_equal(np.unique(cut, axis=0), pending) for cut in state.cuts)
