"""One binary or regression problem of an FGM fit, and the rules by which it selects atoms and stops.

Several problems (classes one-vs-rest, folds, resamples, parameter settings) share the passes of one fit, see
:mod:`gramplane.pipeline.methods.fgm.method`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc

from ....kernels.features.pairs import TopPairs
from ....kernels.features.scores import TopB
from ....kernels.loss_types import MarginLoss, SumLoss
from ....kernels.losses import sum_loss
from ....kernels.mixed_norm import GroupSolution, LocalRows, Rows
from ....kernels.mixed_norm.elimination import SUSPICIOUS, FreeBasis, bias_basis, separates_alone, separating_direction
from ....kernels.mixed_norm.rows import Curvature, passes_of
from ....kernels.target_unit import LABELS, TargetUnit, in_machine_unit
from ....storage import DataError
from ...inputs.labels import Inputs, labels_of, refuse_idle_classes, row_costs
from .config import FGMConfig
from .model import MachineState, RoundRecord

Top = TopB | TopPairs


class NullModel(NamedTuple):
    """The best model without any feature.

    * ``objective``, ``bias``, ``covariate_coef``: in the unit of the target.
    * ``residual``: signed dual variables in the internal unit.
    """

    objective: float
    bias: float
    covariate_coef: np.ndarray
    residual: np.ndarray


@dataclass(frozen=True)
class MachineProblem:
    """Labels or targets in the internal unit, the weights of their losses, unpenalised columns, and parameters."""

    y: np.ndarray  # (n_samples,) labels -1.0 and +1.0, or targets
    cost: np.ndarray  # (n_samples,) C_i = C * sample weight * class weight * row mask; 0 takes the row out
    config: FGMConfig
    basis: FreeBasis
    covariates: np.ndarray | None = None  # (n_samples, q) as they were given
    target: np.ndarray | None = None  # (n_samples,) real targets as they were given
    unit: TargetUnit = LABELS
    is_priced: bool = True  # whether C is known; else it is 1 until the first search says it

    @cached_property
    def loss(self) -> SumLoss:
        """The loss, with its tube or Huber width in the internal unit."""
        return sum_loss(self.config.loss, epsilon=self.config.epsilon, delta=self.config.delta)

    @cached_property
    def null(self) -> NullModel:
        if self.covariates is None and isinstance(self.loss, MarginLoss):
            return self._constant_model(self.loss)
        rows = LocalRows(np.zeros((len(self.y), 1), np.float32), self.y, self.cost, self.loss, self.basis.columns)
        at = rows.evaluate(np.zeros(1), np.zeros(self.basis.q))
        return NullModel(at.loss * self.unit.size**2, *self.in_target_unit(at.free), rows.residual())

    def _constant_model(self, loss: MarginLoss) -> NullModel:
        plus, minus = float(self.cost[self.y > 0].sum()), float(self.cost[self.y < 0].sum())
        f = loss.best_constant(plus, minus) if self.basis.q else 0.0
        alpha = self.cost / self.config.C
        if self.basis.q:
            # Up to its scale, the dual at that constant for every loss.
            share = float(alpha[self.y > 0].sum() / alpha.sum())
            alpha = alpha * np.where(self.y > 0, 1.0 - share, share)
        return NullModel(loss.constant_value(plus, minus, f), -f, np.zeros(0), alpha * self.y)

    def in_target_unit(self, free: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the bias b of decision values z - b, and the coefficients of the covariates. ``free``: coefficients of the orthogonal
        basis.
        """
        constant, coef = self.basis.given(free)
        return -(constant * self.unit.size + self.unit.shift), coef * self.unit.size

    def warm_start(self, machine: MachineState, n_new: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the starting point of the next sub-problem: current weights, zeros for new columns, and coefficients of the basis."""
        omega = np.concatenate((machine.omega / self.unit.size, np.zeros(n_new)))
        if not machine.rounds:
            return omega, np.zeros(self.basis.q)
        constant = (-machine.bias - self.unit.shift) / self.unit.size
        return omega, self.basis.own(constant, machine.covariate_coef / self.unit.size)

    def record(self, solution: GroupSolution, selected: np.ndarray) -> RoundRecord:
        """Return the record of a solved round, in the unit of the target, without its outer gap."""
        size, (bias, coef) = self.unit.size, self.in_target_unit(solution.free)
        certificate = float(solution.objective) * size**2, float(solution.gap) * size**2, float("inf")
        steps = int(solution.iterations), solution.stop
        return RoundRecord(solution.omega * size, bias, *certificate, solution.weights, selected, *steps, covariate_coef=coef)

    def covariate_values(self, coef: np.ndarray) -> np.ndarray | float:
        """Return the contribution of the covariates to the decision values."""
        return 0.0 if self.covariates is None else self.covariates @ coef

    def reweighted(self, factor: np.ndarray) -> MachineProblem:
        """Return the problem with the same rows and other weights. The unit of a real target is its standard deviation, so it also changes
        with the weights.
        """
        cost = self.cost * factor
        if self.target is None or not (cost > 0).any():
            return replace(self, cost=cost)
        y, unit = in_machine_unit(self.target, cost, centred=self.basis.has_bias)
        return replace(self, y=y, cost=cost, unit=unit)

    def auto_C(self, squares: np.ndarray, n_atoms: int) -> float:
        """Return the value of ``C="auto"``: ``n / (kappa * log(2 a) * Lambda)`` with ``Lambda = sum_j <r, x_j>^2 / sum_i r_i^2``.

        Here a is the number of atoms, and the sum over j runs over the B best of them.

        * r: the residuals of the null model; ``squares`` are the squared scores ``<r, x_j>^2``.
        * n: the sum of the row weights.
        * kappa: the largest curvature of the loss: 1, or 1/4 for the logistic loss.

        The solution becomes non-zero near C = 1 / Lambda. If all ``a`` atoms are correlated with the residuals
        only by chance, their largest squared correlation is about log(2 a) / n.
        """
        used = self.cost > 0
        size = float(np.sum(np.square(self.null.residual[used]) / self.cost[used]))
        strength = float(np.sum(squares[: self.config.B]))
        if not math.isfinite(strength):
            raise ValueError("C='auto': the squared score of a column overflows float64; scale the columns, or give C")
        scale = self.loss.max_curvature * math.log(2.0 * n_atoms) * strength
        return float(self.cost.sum()) * size / scale if scale > 0 and size > 0 else 1.0

    def priced(self, C: float) -> MachineProblem:
        """Return the problem with this value of C, unless its C is already known."""
        config = self.config.model_copy(update={"C": C})
        return self if self.is_priced else replace(self, cost=C * self.cost, config=config, is_priced=True)

    @property
    def is_solvable(self) -> bool:
        """True if rows of both labels have weight, and the covariates of these rows are independent and do not separate the labels."""
        used = self.cost > 0
        if not used.any() or (self.loss.of_labels and len(np.unique(self.y[used])) < 2):
            return False
        return self.covariates is None or (self._are_independent and not self._are_separating)

    @property
    def _are_independent(self) -> bool:
        used = self.cost > 0
        if used.all():
            return True
        columns = self.basis.columns[used]
        values = np.linalg.eigvalsh(columns.T @ columns)
        return bool(len(values) <= len(columns) and values[0] > _INDEPENDENT * values[-1])

    @cached_property
    def _are_separating(self) -> bool:
        if self.config.loss != "logistic":
            return False
        values = self.null.residual[self.cost > 0] / self.cost[self.cost > 0]
        # Decision values of the null model beyond which probabilities are next to 0 or 1.
        if float(np.min(np.abs(values), initial=1.0)) > np.exp(-SUSPICIOUS):
            return False
        return separating_direction(self.basis.columns, self.y, self.cost) is not None


_INDEPENDENT = 1e-12  # Least eigenvalue of the basis' products over the rows that count, as a share of the greatest.


def machine_problems(config: FGMConfig, inputs: Inputs) -> list[MachineProblem]:
    """Return one problem per class (a single problem for two classes or a real target), with the weights of its losses.

    Raises DataError if a class, or all rows, have no weight. Raises DataError, too, if covariates are dependent on the rows with weight, or
    separate the classes under the logistic loss.
    """
    is_priced = config.C != "auto"
    config = config if is_priced else config.model_copy(update={"C": 1.0})
    cost, known = row_costs(config, inputs), inputs.covariates
    has_bias = bool(config.fit_intercept)
    basis = bias_basis(len(cost), has_bias) if known is None else known.basis(has_bias)
    values = None if known is None else known.values
    if inputs.classes is None:
        if not np.any(cost > 0):
            raise DataError("no sample has a positive weight; a fit needs some")
        target = np.asarray(inputs.target, np.float64)
        y, unit = in_machine_unit(target, cost, centred=has_bias)
        problems = [MachineProblem(y, cost, config, basis, values, target, unit, is_priced)]
    else:
        refuse_idle_classes(inputs.labels, inputs.target, cost)
        parts = (labels_of(inputs, machine) for machine in range(inputs.n_machines))
        problems = [MachineProblem(y, cost, config, basis, values, is_priced=is_priced) for y in parts]
    _refuse_covariates(problems, inputs)
    return problems


def _refuse_covariates(problems: Sequence[MachineProblem], inputs: Inputs) -> None:
    known = inputs.covariates
    if known is None or all(problem.is_solvable for problem in problems):
        return
    known.refuse_dependent_in(problems[0].cost > 0, problems[0].basis.has_bias)
    for problem in problems:
        direction = separating_direction(problem.basis.columns, problem.y, problem.cost)
        if direction is not None:
            name = known.names[_separating_column(problem, known.values, direction)]
            rule = "their coefficients would grow without limit"
            raise DataError(
                f"covariates separate the classes (above all {name!r}): {rule}; leave {name!r} out, or set loss='squared_hinge'"
            )


def _separating_column(problem: MachineProblem, values: np.ndarray, direction: np.ndarray) -> int:
    """Return the first covariate that separates the classes by itself. If there is none, return the covariate that contributes most to the
    separating ``direction``.
    """
    used, has_bias = problem.cost > 0, problem.basis.has_bias
    for k, column in enumerate(values.T):
        if separates_alone(column[used], problem.y[used], has_bias):
            return k
    return int(np.argmax(np.abs(problem.basis.given(direction)[1] * values.std(axis=0))))


def initial_state(problem: MachineProblem, top: Top, squares: np.ndarray, n_atoms: int) -> MachineState:
    """Return the state before the first round. ``top`` are the best atoms for the initial dual vector; without any, the null model is
    optimal.
    """
    C = float(problem.config.C) if problem.is_priced else problem.auto_C(squares, n_atoms)
    bound, stop = (0.0, None) if len(top.ids) else (problem.priced(C).null.objective, "no_signal")
    return MachineState((), (), (), (), np.asarray(top.ids), bound, stop, C)


def candidates(state: MachineState) -> np.ndarray:
    """Return the atoms of the next cut that no earlier cut contains."""
    drawn = _atom_set(state.drawn)
    return state.pending_ids[np.array([atom not in drawn for atom in _atoms(state.pending_ids)], dtype=bool)]


def stand_out(chances: np.ndarray, n_atoms: int) -> bool:
    """Return whether, for some k, the k-th smallest p-value is at most k / n_atoms. At this level, k of ``n_atoms`` atoms are expected by
    chance.
    """
    return bool(np.any(n_atoms * np.sort(chances) <= np.arange(1, len(chances) + 1)))


def chances(
    problem: MachineProblem, state: MachineState, rows: Rows, widths: Sequence[int], squares: np.ndarray, residual: np.ndarray
) -> np.ndarray:
    """Return p-values of the scores of candidates, under the null hypothesis that they explain nothing of the residual (score tests).

    ``rows`` has the columns of the cuts, followed by the columns of the candidates. ``widths`` are the numbers of columns of the
    candidates, and ``squares`` their scores. Let D be the second derivatives of the loss at the solution, Z the columns of the cuts and the
    unpenalised columns, and X the columns of a candidate. The part of X that Z does not explain is ``S = X'DX - X'DZ (Z'DZ + diag 1/mu)^-1
    Z'DX``. Under the null hypothesis the mean score is ``sigma^2 tr S``. A scaled score is approximately chi-squared with ``(tr S)^2 /
    |S|^2`` degrees of freedom. ``sigma^2`` is ``sum u_i^2 / d_i`` over the active rows, divided by their total weight minus the degrees of
    freedom of Z.
    """
    rows.evaluate(*problem.warm_start(state, sum(widths)))
    bend, p, live = rows.curvature(), len(state.omega), np.flatnonzero(state.omega)
    assert isinstance(bend, Curvature)
    gram = np.tril(bend.gram) + np.tril(bend.gram, -1).T
    used = np.block([[gram[np.ix_(live, live)], bend.cross[live]], [bend.cross[live].T, bend.bends]])
    across = np.vstack((gram[live, p:], bend.cross[p:].T))
    if not np.trace(bend.bends) > 0 and rows.q:
        return np.ones(len(widths))  # no row is at work
    # What is added to columns without a penalty is nothing beside them, but where no row at work tells them apart.
    free = np.full(rows.q, _INDEPENDENT * float(np.trace(bend.bends)))
    stiffness = np.append(1.0 / np.repeat(state.rounds[-1].cut_weights, state.widths)[live], free)
    explained = np.linalg.solve(used + np.diag(stiffness), np.hstack((across, used)))
    left = gram[p:, p:] - across.T @ explained[:, : sum(widths)]
    bends = np.empty(len(residual))
    passes_of(problem.loss).curvature(residual, problem.cost, bends)
    at_work = bends > 0
    freedom = float(np.sum(problem.cost[at_work])) / float(problem.config.C) - float(np.trace(explained[:, sum(widths) :]))
    if not freedom > 0:
        return np.ones(len(widths))
    variance = float(np.sum(np.square(residual[at_work]) / bends[at_work])) / freedom
    ends, whole = np.cumsum(widths), np.diag(gram)[p:]
    blocks = [(left[end - width : end, end - width : end], whole[end - width : end]) for end, width in zip(ends, widths, strict=True)]
    trace = np.array([np.trace(block) for block, _ in blocks])
    is_new = trace > _INDEPENDENT * np.array([np.sum(own) for _, own in blocks])
    trace[~is_new] = 1.0
    degrees = np.square(trace) / np.maximum([np.sum(np.square(block)) for block, _ in blocks], np.finfo(float).tiny)
    return np.where(is_new, chdtrc(degrees, degrees * squares / (variance * trace)), 1.0)


def next_cut(problem: MachineProblem, state: MachineState) -> np.ndarray:
    """Return the atoms of the next cut: the pending atoms, truncated if they would exceed ``n_features_to_select``."""
    ids, limit = state.pending_ids, problem.config.n_features_to_select
    if limit is None:
        return ids
    drawn = _atom_set(state.drawn)
    n_new = np.cumsum([atom not in drawn for atom in _atoms(ids)])
    return ids[: int(np.searchsorted(n_new, limit - len(drawn), side="right"))] if len(drawn) + n_new[-1] > limit else ids


def _relative(value: float, scale: float) -> float:
    return value / max(abs(scale), np.finfo(float).tiny)


def close_round(problem: MachineProblem, state: MachineState, top: Top, squares: np.ndarray, residual: np.ndarray) -> MachineState:
    """Return the state after a solved round. Its outer gap, candidates and stop reason follow from ``top``, the best atoms for the round's
    dual vector, and their scores ``squares``.

    ``top`` also includes atoms that a new cut may not select again, because the certificate needs them.
    """
    config, record, ids = problem.config, state.rounds[-1], np.asarray(top.ids)
    norm2 = float(np.sum(squares[: config.B]))
    bound = max(state.lower_bound, problem.loss.bound(problem.y, residual, problem.cost, norm2) * problem.unit.size**2)
    record = replace(record, outer_gap=record.objective - bound)
    if not config.allow_repeat:
        used = _atom_set(state.drawn)
        ids = ids[np.array([atom not in used for atom in _atoms(ids)], dtype=bool)]
    state = replace(state, rounds=(*state.rounds[:-1], record), pending_ids=ids[: config.B], lower_bound=bound)
    stop = _stop_reason(problem, state)
    return state if stop is None else replace(state, stop=stop)


def _stop_reason(problem: MachineProblem, state: MachineState) -> str | None:
    config = problem.config
    if config.n_features_to_select is not None and len(state.drawn) >= config.n_features_to_select:
        return "n_features_to_select"
    if config.outer_tol is not None and _outer_test(problem, state) <= config.outer_tol:
        return "outer_tol"
    # A cut that is already active has no violation left: the cutting-plane problem is solved (Theorem 2).
    pending = _atom_set(state.pending_ids)
    if not pending or any(len(cut) == len(pending) and _atom_set(cut) == pending for cut in state.cuts):
        return "optimal"
    return "max_rounds" if len(state.rounds) >= config.most_rounds else None


def _outer_test(problem: MachineProblem, state: MachineState) -> float:
    record = state.rounds[-1]
    if problem.config.outer_stop == "gap":
        return _relative(record.outer_gap, record.objective)
    first = problem.null.objective
    before = state.rounds[-2].objective if len(state.rounds) > 1 else first
    return _relative(before - record.objective, first)


def _atoms(ids: np.ndarray) -> list[Any]:
    """Return atoms as hashable values: ids, or pairs of ids."""
    return ids.tolist() if ids.ndim == 1 else [tuple(pair) for pair in ids.tolist()]


def _atom_set(ids: np.ndarray) -> set[Any]:
    return set(_atoms(ids))
