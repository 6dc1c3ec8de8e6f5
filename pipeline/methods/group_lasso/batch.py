"""The loop of batch group lasso: the optimum over all rows, with its duality gap, for one target or for one machine per class.

    min  sum_i c_i loss(y_i, x_i'w + b) + lam Omega(v),  w = scatter(v)        (docs/methods.md, "Batch group lasso")

Three engines end at the same optimum; ``auto`` takes the first that suits:

* ``gram`` (squared loss, few columns): one pass sums the second moments of the rows; nothing of the rows is kept.
* ``working_set``: machines are solved on the columns of some groups; a pass over all columns gives the gap of the whole problem and the
  groups that violate the dual most, which join.
* ``fista``: all columns are held, steps are accelerated proximal gradients. Kept as a comparison.

Source: Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, section 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from ....kernels.group_lasso.mean_losses import LossName, MeanLoss
from ....kernels.group_lasso.on_moments import Moments, centred, solve_moments
from ....kernels.group_lasso.on_rows import RowProblem, RowSolution, solve_rows
from ....kernels.group_lasso.penalty import GroupPenalty
from ....kernels.group_lasso.working_set import WorkingColumns
from ...inputs.scores import NAN, AccuracyTracker, R2Tracker, accuracy_metrics
from ...loops.protocol import Step
from ...passes.columns import column_sizes
from ...records.context import RunContext
from ...records.holdings import Held, Holding, refuse_beyond, total_bytes
from .moments_pass import decided, feature_slopes, fetch_scaled, moment_bytes, moments_pass

Engine = Literal["auto", "gram", "working_set", "fista"]

GRAM_COLUMNS = 512
"""Up to so many columns a squared loss is solved on the moments of all of them."""

FIRST_GROUPS, MORE_GROUPS = 20, 10
"""Groups that join the empty set, and the least number that may join a later one (which may also double)."""

FEWER_COLUMNS = "a larger lam, or algorithm='da'"
"""What helps where the columns of a working set are too many."""

INNER_SHARE, TIGHTER = 0.3, 0.1
"""A set's problem is solved to this share of the tolerance; the factor of that share where no group is left to join."""

COARSE = 0.1
"""Nor, where steps read the rows, is it solved closer than to this share of the whole problem's last gap."""

SWEEPS, SET_SWEEPS, NEWTON_STEPS, PROXIMAL_STEPS = 25, 5000, 50, 300
"""Steps of a machine within one step of the loop: sweeps on moments of all columns, and on those of a set; for other losses."""


@dataclass(frozen=True)
class BatchProblem:
    """What is to be minimised.

    Attributes
    ----------
    targets
        ``(n_machines, n)``: labels +-1 or values; machines share rows, costs and penalty.
    cost
        ``(n,)`` weights c_i, 0 for rows that are left out; they sum to 1 for the mean loss.
    loss
        ``"logistic"``, ``"squared"`` or ``"hinge"``.
    penalty, lam
        Groups of features and the weight of the penalty.
    fit_bias
        Whether machines have a bias, which bears no penalty.
    tol
        Gap at which a machine ends, relative to its objective.
    max_iter
        Steps of the loop at most.
    engine
        ``"auto"``, ``"gram"``, ``"working_set"`` or ``"fista"``.
    fit
        What accuracies (R2) are measured of at the end, or ``None``.
    """

    targets: np.ndarray
    cost: np.ndarray
    loss: LossName
    penalty: GroupPenalty
    lam: float
    fit_bias: bool = True
    tol: float = 1e-4
    max_iter: int = 1000
    engine: Engine = "auto"
    fit: AccuracyTracker | R2Tracker | None = None


@dataclass(frozen=True)
class BatchMachine:
    """What one machine has found.

    Attributes
    ----------
    groups
        int64 groups of the working set, in the order they joined.
    joined
        int64 how many joined at a time.
    copies
        ``(1, size)`` weights of their copies, group after group.
    biases
        ``(1,)``.
    objective, lower
        P, and the best dual value so far.
    lambda_max
        Least lam without any feature; NaN before it is known.
    inner_tol
        Relative gap to which the set's problem is solved.
    mu
        Smoothing of a hinge.
    stop
        ``"gap"``, ``"max_iter"``, ``"no_progress"`` or ``None``.
    """

    record_name: ClassVar[str] = "BatchMachine"
    groups: np.ndarray
    joined: np.ndarray
    copies: np.ndarray
    biases: np.ndarray
    objective: float
    lower: float
    lambda_max: float
    inner_tol: float
    mu: float = 0.0
    stop: str | None = None

    @property
    def gap(self) -> float:
        """P minus the best dual value; not negative but for round-off, which is cut."""
        return max(self.objective - self.lower, 0.0)


@dataclass(frozen=True)
class BatchState:
    """State of the loop: what was decided, and one entry per machine."""

    record_name: ClassVar[str] = "BatchState"
    iteration: int
    engine: str
    machines: tuple[BatchMachine, ...]

    @property
    def stop(self) -> str | None:
        """Reason why every machine has stopped, or ``None``."""
        reasons = [machine.stop for machine in self.machines]
        return None if None in reasons else max(str(reason) for reason in reasons)


class BatchResult(NamedTuple):
    """A finished fit.

    Attributes
    ----------
    weights
        ``(n_machines, n_features)`` of the columns as they were scaled.
    biases
        ``(n_machines,)``.
    active
        Per machine, the groups with weights, ascending.
    objective, gap
        Sums over the machines.
    lambda_max
        Greatest of the machines.
    converged
        Whether every gap is within the tolerance.
    engine
        Which engine ran.
    """

    weights: np.ndarray
    biases: np.ndarray
    active: tuple[np.ndarray, ...]
    objective: float
    gap: float
    lambda_max: float
    converged: bool
    engine: str


class BatchLoop:
    """Iteration of batch group lasso; a step is one round of every machine that has not stopped.

    Parameters
    ----------
    problem
        What is minimised.
    """

    state_type = BatchState

    def __init__(self, problem: BatchProblem) -> None:
        self._problem = problem
        self._moments: list[Moments] | None = None
        self._held: dict[int, WorkingColumns] = {}

    # -- the contract of a loop ---------------------------------------------------------------------------------------------

    def init(self, ctx: RunContext) -> BatchState:
        """Return the state before the first step: zeros, over no groups or over all."""
        problem, engine = self._problem, chosen_engine(self._problem, ctx)
        every = engine != "working_set"
        groups = np.arange(problem.penalty.n_groups if every else 0, dtype=np.int64)
        copies = np.zeros((1, problem.penalty.n_copies if every else 0))
        start = BatchMachine(
            groups, np.full(1 if every else 0, len(groups)), copies, np.zeros(1), np.inf, -np.inf, float("nan"), INNER_SHARE * problem.tol
        )
        return BatchState(0, engine, (start,) * len(problem.targets))

    def step(self, state: BatchState, ctx: RunContext) -> Step[BatchState]:
        """Return the state after one more round."""
        open_ones = [m for m, machine in enumerate(state.machines) if machine.stop is None]
        machines = list(state.machines)
        advance = self._on_moments if state.engine == "gram" else self._on_rows
        for m, machine in zip(open_ones, advance(open_ones, state, ctx), strict=True):
            late = machine.stop is None and state.iteration + 1 >= self._problem.max_iter
            machines[m] = replace(machine, stop="max_iter") if late else machine
        after = BatchState(state.iteration + 1, state.engine, tuple(machines))
        return Step(after, {**self._metrics(after), **self._scores(after, ctx)})

    def _metrics(self, state: BatchState) -> dict[str, Any]:
        return {
            "objective": sum(machine.objective for machine in state.machines),
            "gap": sum(machine.gap for machine in state.machines),
            "n_groups": sum(len(self._active(machine)) for machine in state.machines),
            "n_working": sum(len(machine.groups) for machine in state.machines),
            "lambda_max": max(machine.lambda_max for machine in state.machines),
            "engine": state.engine,
        }

    def _scores(self, state: BatchState, ctx: RunContext) -> dict[str, Any]:
        """Return accuracies (R2) of the last model: what a run shows, and folds are compared by."""
        fit = self._problem.fit
        if fit is None or (ctx.run is None and fit.held_out is None):
            return {}
        if state.stop is None:
            name = "r2" if isinstance(fit, R2Tracker) else "accuracy"
            return {f"train_{name}": NAN, f"test_{name}": NAN}
        found = self.result(state)
        return accuracy_metrics([fit], dict(enumerate(decided(ctx, found.weights, found.biases))))

    # -- moments -------------------------------------------------------------------------------------------------------------

    def _on_moments(self, which: Sequence[int], state: BatchState, ctx: RunContext) -> list[BatchMachine]:
        moments = self._all_moments(ctx)
        return [self._descend(state.machines[m], moments[m]) for m in which]

    def _all_moments(self, ctx: RunContext) -> list[Moments]:
        # Not part of the state: a resumed run sums them again, to the same bits.
        if self._moments is None:
            problem, n_targets = self._problem, len(self._problem.targets)
            targets = np.ascontiguousarray(problem.targets.T)
            raw, shift = moments_pass(ctx, targets, problem.cost, centre=problem.fit_bias)
            found = [centred(raw, problem.fit_bias, m, n_targets) for m in range(n_targets)]
            self._moments = found if shift is None else [replace(one, means=one.means + shift) for one in found]
        return self._moments

    def _descend(self, machine: BatchMachine, moments: Moments) -> BatchMachine:
        problem = self._problem
        # The first step is the pass, and tells how far from the optimum zeros are.
        limit = SWEEPS if np.isfinite(machine.objective) else 0
        found = solve_moments(moments, problem.penalty, problem.lam, warm=machine.copies, tol=problem.tol, max_sweeps=limit)
        largest = float(problem.penalty.dual_norms(moments.cross).max(initial=0.0))
        biases = moments.biases(problem.penalty.scatter(found.copies))
        after = replace(machine, copies=found.copies, biases=biases, objective=found.objective, lambda_max=largest)
        after = replace(after, lower=max(machine.lower, found.objective - found.gap))
        return replace(after, stop="gap") if found.stop == "gap" else after

    # -- rows ----------------------------------------------------------------------------------------------------------------

    def _on_rows(self, which: Sequence[int], state: BatchState, ctx: RunContext) -> list[BatchMachine]:
        solved = [self._solve(m, state, ctx) for m in which]
        cost = self._problem.cost
        U = np.stack([cost * found.slopes for _, found in solved])
        machines = [state.machines[m] for m in which]
        if state.engine == "fista":
            slopes = [self._placed(rows, u) for (rows, _), u in zip(solved, U, strict=True)]
            if state.iteration == 0:
                largest = [self._largest(m, rows) for m, (rows, _) in zip(which, solved, strict=True)]
                machines = [replace(machine, lambda_max=value) for machine, value in zip(machines, largest, strict=True)]
        else:
            slopes = list(feature_slopes(ctx, U)[:, None])
        return [self._judged(machine, m, found, z) for machine, m, (_, found), z in zip(machines, which, solved, slopes, strict=True)]

    def _placed(self, rows: WorkingColumns, u: np.ndarray) -> np.ndarray:
        """Return ``X'u`` over all features, of columns that are held."""
        slopes = np.zeros((1, self._problem.penalty.n_features))
        slopes[:, rows.features] = rows.slopes(u)
        return slopes

    def _solve(self, m: int, state: BatchState, ctx: RunContext) -> tuple[WorkingColumns, RowSolution]:
        """Solve the problem of a machine's working set."""
        machine, loss = state.machines[m], self._problem.loss
        rows = self._columns(m, machine, ctx)
        small = self._rows_problem(m, rows, self._problem.penalty.restricted(machine.groups, rows.features), machine.mu)
        method = "fista" if state.engine == "fista" else "auto"
        limit = PROXIMAL_STEPS if method == "fista" or loss == "hinge" else SET_SWEEPS if loss == "squared" else NEWTON_STEPS
        tol = machine.inner_tol
        if loss != "squared" and np.isfinite(machine.objective):
            # Far from the optimum a set is not worth a close look: it will grow.
            tol = max(tol, COARSE * machine.gap / machine.objective)
        found = solve_rows(small, warm=machine.copies, biases=machine.biases, tol=tol, max_iter=limit, method=method)
        # Columns are centred here: the bias of raw ones is another.
        return rows, found._replace(biases=found.biases - small.penalty.scatter(found.copies) @ rows.means)

    def _rows_problem(self, m: int, rows: WorkingColumns, penalty: GroupPenalty, mu: float) -> RowProblem:
        problem = self._problem
        loss = MeanLoss(problem.loss, mu)
        return RowProblem(rows, problem.targets[m], problem.cost, loss, penalty, problem.lam, problem.fit_bias)

    def _largest(self, m: int, rows: WorkingColumns) -> float:
        """Return the least lam without any feature, from rows of all columns."""
        none, penalty = np.zeros(0, np.int64), self._problem.penalty
        nothing = solve_rows(self._rows_problem(m, rows, penalty.restricted(none, none), 0.0))
        return float(penalty.dual_norms(self._placed(rows, self._problem.cost * nothing.slopes)).max(initial=0.0))

    def _columns(self, m: int, machine: BatchMachine, ctx: RunContext) -> WorkingColumns:
        """Return the columns of a machine's set; what is not held is fetched, as it joined."""
        penalty, problem = self._problem.penalty, self._problem
        held = self._held.setdefault(m, WorkingColumns(problem.cost, problem.fit_bias))
        ends = np.cumsum(machine.joined)
        for lo, hi in zip((ends - machine.joined)[held.n_batches :], ends[held.n_batches :], strict=True):
            wanted = np.unique(penalty.members[penalty.copies_of(machine.groups[lo:hi])])
            new = np.setdiff1d(wanted, held.features)
            self._check_memory(ctx, np.concatenate([held.features, new]))
            held.append(new, fetch_scaled(ctx, new))
        return held

    def _check_memory(self, ctx: RunContext, features: np.ndarray) -> None:
        refuse_beyond([columns_held(ctx.data, features)], ctx.driver_memory, "group-lasso", FEWER_COLUMNS)

    def _judged(self, machine: BatchMachine, m: int, found: RowSolution, z: np.ndarray) -> BatchMachine:
        """Return a machine with the certificate over all groups, and with the groups that violate it most."""
        problem = self._problem
        norms = problem.penalty.dual_norms(z)
        loss, reach = MeanLoss(problem.loss, found.mu), float(norms.max(initial=0.0))
        dual = loss.dual_value(problem.targets[m], problem.cost, found.slopes, reach, problem.lam)
        largest = machine.lambda_max if len(machine.groups) else reach
        after = replace(
            machine,
            copies=found.copies,
            biases=found.biases,
            objective=found.objective,
            lower=max(machine.lower, dual),
            lambda_max=largest,
            mu=found.mu,
        )
        return self._grown(after, norms, found.stop)

    def _grown(self, machine: BatchMachine, norms: np.ndarray, inner_stop: str) -> BatchMachine:
        problem = self._problem
        if machine.gap <= problem.tol * machine.objective:
            return replace(machine, stop="gap")
        violating = norms > problem.lam
        violating[machine.groups] = False
        ids = np.flatnonzero(violating)
        room = max(MORE_GROUPS, len(machine.groups)) if len(machine.groups) else FIRST_GROUPS
        new = np.sort(ids[np.lexsort((ids, -norms[ids]))][:room])
        if not len(new):
            if inner_stop == "no_progress":
                return replace(machine, stop="no_progress")
            return replace(machine, inner_tol=TIGHTER * machine.inner_tol) if inner_stop == "gap" else machine
        sizes = int(np.diff(problem.penalty.indptr)[new].sum())
        copies = np.concatenate([machine.copies, np.zeros((1, sizes))], axis=1)
        return replace(machine, groups=np.concatenate([machine.groups, new]), joined=np.append(machine.joined, len(new)), copies=copies)

    # -- results -------------------------------------------------------------------------------------------------------------

    def _full(self, machine: BatchMachine) -> np.ndarray:
        copies = np.zeros((1, self._problem.penalty.n_copies))
        copies[:, self._problem.penalty.copies_of(machine.groups)] = machine.copies
        return copies

    def _active(self, machine: BatchMachine) -> np.ndarray:
        alive = machine.copies.any(axis=0)
        owners = np.repeat(machine.groups, np.diff(self._problem.penalty.indptr)[machine.groups])
        return np.unique(owners[alive])

    def result(self, state: BatchState) -> BatchResult:
        """Return the fit of the last state."""
        machines = state.machines
        return BatchResult(
            weights=np.concatenate([self._problem.penalty.scatter(self._full(machine)) for machine in machines]),
            biases=np.concatenate([machine.biases for machine in machines]),
            active=tuple(self._active(machine) for machine in machines),
            objective=sum(machine.objective for machine in machines),
            gap=sum(machine.gap for machine in machines),
            lambda_max=max(machine.lambda_max for machine in machines),
            converged=all(machine.stop == "gap" for machine in machines),
            engine=state.engine,
        )


WEIGHTS = Held("weights, slopes and norms of the groups", "40 d T")
VECTORS = Held("labels, costs, duals and decision values", "64 n T")
MOMENTS = Held("second moments of the rows, and a centred copy", "16 (d + T + 1)^2", "squared loss, few columns: `engine: gram`")
COLUMNS = Held("columns of a working set", "2 stored", "other losses, or many columns; in float64, as fetched and as held")

HELD = (WEIGHTS, VECTORS, MOMENTS, COLUMNS)
"""What the driver may hold of a batch."""


def columns_held(data: Any, features: np.ndarray) -> Holding:
    """Return what the columns of a working set take: as they are fetched and as they are held."""
    nbytes = 16 * data.n_rows * len(features) if data.meta.kind == "dense" else 2 * int(column_sizes(data, features).sum())
    return replace(COLUMNS, what=f"{len(features)} {COLUMNS.what}").taking(nbytes)


def driver_held(problem: BatchProblem, data: Any, engine: str) -> tuple[Holding, ...]:
    """Return what the driver holds of T machines: weights and slopes, vectors, and moments or the columns of a working set.

    How many columns join shows only along the way: counted are those of the first set, and each that joins is looked at.
    """
    n, d, machines = data.n_rows, data.n_cols, len(problem.targets)
    held = (
        WEIGHTS.of(d=d, T=machines),
        VECTORS.of(n=n, T=machines),
    )
    if engine == "gram":
        return (*held, MOMENTS.taking(2 * moment_bytes(data, machines)))
    return (*held, columns_held(data, np.arange(d if engine == "fista" else min(d, FIRST_GROUPS))))


def chosen_engine(problem: BatchProblem, ctx: RunContext) -> str:
    """Return the engine that will run.

    Raises
    ------
    ValueError
        ``"gram"`` for another loss than the squared one.
    """
    if problem.engine == "gram" and problem.loss != "squared":
        raise ValueError(f"engine='gram' solves the squared loss; the loss is {problem.loss!r}: use 'auto'")
    if problem.engine != "auto":
        return problem.engine
    few = ctx.data.n_cols <= GRAM_COLUMNS
    fits = total_bytes(driver_held(problem, ctx.data, "gram")) <= ctx.driver_memory
    return "gram" if problem.loss == "squared" and few and fits else "working_set"
