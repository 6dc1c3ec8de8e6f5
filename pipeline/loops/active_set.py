"""The active-set loop over a graph of kernels: solve a restricted problem, find nodes that violate its certificate, add their hulls.

The whole problem is ``min 1/2 Omega(f)^2 + loss`` over all nodes of a graph that may be too large to enumerate. Omega is the gauge of
``kernels/graphs/norms.py``. Each round solves the problem over a hull W, and then checks nodes outside.

* Every f over W is feasible for the whole problem. So the restricted primal value is an upper bound of the whole optimum.
* A dual point beta bounds the optimum from below by ``max_t t linear - t^2 (square + U) / 2``, where U is any upper bound of the squared
  dual gauge of sqrt(M(beta)) (:class:`.DualPoint`). Over W, U is the restricted problem's own U_W. Over the whole graph, U is
  ``max(U_W, worst)``. Here ``worst`` is an upper bound of M_w / d_w^2 for *every* node w outside W. Alternatively, it is an upper bound,
  for every node u next to W, of ``sum over w in D(u) of M_w / (sum over v in A(w) and D(u) of d_v)^2`` (Theorem 5.3.2 of the thesis;
  D: descendants, A: ancestors).
* Raising the bound from U_W to u lowers the dual value by at most ``t^2 (u - U_W) / 2``. So nodes whose value stays below

  ``threshold = U_W + OUTSIDE_GAP_SHARE (tol |P| - gap_W) / t^2``,   OUTSIDE_GAP_SHARE < 2,

  cannot prevent the whole gap from closing. If no node exceeds the threshold, the gap is at most
  ``gap_W + OUTSIDE_GAP_SHARE / 2 (tol |P| - gap_W) <= tol |P|``. If the loss is much larger than the gauge, most of the graph need not
  be visited.
* Adding nodes above the threshold whose ancestors are all in W lowers the optimum (rho > 1), so adding the worst of them makes progress.
  On a finite graph the loop ends.

:func:`active_step` depends on the state alone. The state of a method's loop contains this state and the method's record of the
master problem, which is the restricted problem.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np

from ...kernels.bounds import sound_gap
from ...kernels.graphs.norms import DualPoint, NodeSet
from ...kernels.svm.dual import DualProblem

if TYPE_CHECKING:
    from ..core.resources import Resources

M = TypeVar("M")

OUTSIDE_GAP_SHARE = 1.6  # nodes outside may take up half of this times the remaining gap; up to 2 is proven
LOOK_OUTSIDE_SHARE = 0.7  # all nodes outside are visited when the restricted gap is below this share of the tolerance

MASTER_SHARE = 0.3
FIRST_TOL = 0.03
TOL_DECAY = 0.4  # the master's tolerance: `max(MASTER_SHARE tol, FIRST_TOL TOL_DECAY^round)`
EVERYWHERE = -1  # depth of a certificate that holds for all nodes

# Stops that were asked for: the certificate closed, closed down to a depth, no violator next to the hull, or a stalled objective. Whether
# the certificate of the whole problem is within the tolerance is another question: `ActiveState.is_certified`.
FINISHED = ("certified", "depth", "frontier", "rest")

# Reasons of a stop with violators left; the certificate reached so far is computed all the same.
CUT_SHORT = ("max_rounds", "max_nodes", "rest")


@dataclass(frozen=True)
class ActiveRule:
    """Tolerances and limits of an active-set loop."""

    tol: float = 1e-3  # gap at which it ends, relative to the primal value
    # max_rounds, max_nodes: caps; a stop by one of them is no success
    max_rounds: int = 50
    max_nodes: int = 1000
    add: int = 30  # nodes added in a round, at most, without their ancestors
    exhaustive: bool = True  # visit all nodes outside (everywhere) once none next to the hull is a violator
    stall_tol: float | None = None  # stop when a round's nodes lowered the primal value by less than this share of it, or None


@dataclass(frozen=True)
class Restricted:
    """The solution of the master problem, which is the restricted problem over the hull."""

    upper: float  # primal value of the best point so far
    point: DualPoint  # a feasible dual point
    bound: float  # upper bound of its squared dual gauge over the hull
    done: bool = True  # whether the tolerance is reached, or cannot be; if not, the master needs one more slice of work

    @property
    def lower(self) -> float:
        """Lower bound of the restricted optimum."""
        return self.point.value(self.bound)

    @property
    def gap(self) -> float:
        """Duality gap of the restricted problem."""
        return sound_gap(self.upper - self.lower, self.upper)


@dataclass(frozen=True)
class Violations:
    """Nodes outside the hull that violate the optimality condition, with their values."""

    keys: np.ndarray  # `(m, width)` those above the threshold, or the worst of them; ancestors may lie outside too
    values: np.ndarray  # `(m,)` M_w / d_w^2, or a bound of it
    worst: float = 0.0  # greatest value of all nodes visited
    # `worst` is a bound for all nodes outside of at most this depth (`EVERYWHERE`: of any); None: for no others
    depth: int | None = None
    looked_at: int = 0  # number of nodes visited

    def worst_first(self, count: int) -> np.ndarray:
        """Return the keys of the nodes with the ``count`` largest values. Ties keep their order."""
        return self.keys[np.argsort(-self.values, kind="stable")[:count]]


@dataclass(frozen=True)
class ActiveState:
    """State of an active-set loop."""

    record_name: ClassVar[str] = "ActiveState"
    nodes: NodeSet  # the hull
    iteration: int = 0  # steps so far
    rounds: int = 0  # visits to the nodes outside
    # upper, lower: primal value, and lower bound over the hull
    upper: float = np.inf
    lower: float = -np.inf
    # greatest lower bound of the whole optimum; that of the nodes down to `depth` where `depth` is not `EVERYWHERE`
    certified: float = -np.inf
    depth: int | None = None  # see `certified`; None before anything is certified
    # bound, worst: newest bound of the squared dual gauge over the hull, and greatest value outside
    bound: float = 0.0
    worst: float = 0.0
    settled: float = np.inf  # primal value when nodes joined last
    tight: bool = False  # whether the master gets its final tolerance, as none next to the hull was a violator
    stop: str | None = None  # why the loop ended

    @property
    def certificate(self) -> float:
        """Certified absolute gap of the whole problem; infinite while there is no certificate."""
        return sound_gap(self.upper - self.certified, self.upper)

    def is_certified(self, tol: float) -> bool:
        """Return whether the gap over all nodes is within ``tol``, relative to the primal value."""
        return self.depth == EVERYWHERE and self.certificate <= tol * abs(self.upper)

    def master_tol(self, tol: float) -> float:
        """Return the relative gap that the master problem must reach."""
        return MASTER_SHARE * tol if self.tight else max(MASTER_SHARE * tol, FIRST_TOL * TOL_DECAY**self.rounds)


class ActiveProblem(Protocol[M]):
    """Protocol of a method's part of the loop. ``M`` is the method's record of the restricted problem (weights, dual variables)."""

    def solve(self, nodes: NodeSet, master: M, tol: float, resources: Any, /) -> tuple[M, Restricted]:
        """Solve the restricted problem to a relative gap of ``tol``, or work on it for one slice."""
        ...

    def frontier(self, nodes: NodeSet, master: M, threshold: float, resources: Any, /) -> Violations:
        """Find violations among the nodes next to the hull, that is, nodes whose parents are all inside."""
        ...

    def everywhere(self, nodes: NodeSet, master: M, threshold: float, resources: Any, /) -> Violations:
        """Find violations among all nodes outside the hull, down to the depth that the method can reach."""
        ...

    def enlarged(self, master: M, before: NodeSet, after: NodeSet) -> M:
        """Return the record ``master`` with entries for the nodes that are in ``after`` but not in ``before``."""
        ...

    def parents(self, key: np.ndarray) -> np.ndarray:
        """Return all parents of a node, ``(r, width)``."""
        ...

    def penalties(self, keys: np.ndarray) -> np.ndarray:
        """Return the penalties d of nodes, ``(m, width)``."""
        ...


def dual_point(problem: DualProblem, beta: np.ndarray) -> DualPoint:
    """Return the quantities of beta that determine the dual value of beta and of those multiples of beta that lie in the box."""
    ends = np.where(beta > 0, problem.hi, problem.lo)
    used = beta != 0
    max_scale = float(np.min(ends[used] / beta[used], initial=np.inf))
    return DualPoint(problem.linear(beta), float(problem.ridges() @ (beta * beta)), max(max_scale, 1.0))


def violation_threshold(restricted: Restricted, tol: float) -> float:
    """Return the value above which a node outside the hull may keep the relative gap of the whole problem above ``tol``."""
    t = restricted.point.scale(restricted.bound)
    return restricted.bound + (OUTSIDE_GAP_SHARE * max(tol * abs(restricted.upper) - restricted.gap, 0.0) / (t * t) if t > 0 else np.inf)


def active_step(
    state: ActiveState, master: M, problem: ActiveProblem[M], rule: ActiveRule, resources: Resources
) -> tuple[ActiveState, M, dict[str, Any]]:
    """Run one slice of work on the master problem. When it is solved, visit nodes outside the hull. Then add the worst violators with their
    hulls, or stop.

    Returns the new state, the new master record, and metrics of the step for the history.
    """
    master, restricted = problem.solve(state.nodes, master, state.master_tol(rule.tol), resources)
    state = replace(state, iteration=state.iteration + 1, upper=restricted.upper, lower=restricted.lower, bound=restricted.bound)
    if not restricted.done:
        return state, master, _figures(state, 0, 0)
    limit = violation_threshold(restricted, rule.tol)
    violations = problem.frontier(state.nodes, master, limit, resources)
    state = _with_certificate(replace(state, rounds=state.rounds + 1), restricted, violations)
    n_visited = violations.looked_at
    is_close = restricted.gap <= LOOK_OUTSIDE_SHARE * rule.tol * abs(restricted.upper)
    if not len(violations.keys) and is_close and rule.exhaustive and violations.depth != EVERYWHERE:
        violations = problem.everywhere(state.nodes, master, limit, resources)
        state, n_visited = _with_certificate(state, restricted, violations), n_visited + violations.looked_at
    nodes, depth = state.nodes, violations.depth
    state = _grow_or_stop(state, restricted, violations, is_close, problem, rule)
    if state.stop in CUT_SHORT and rule.exhaustive and depth is None:
        violations = problem.everywhere(state.nodes, master, limit, resources)
        state, n_visited = _with_certificate(state, restricted, violations), n_visited + violations.looked_at
    if state.nodes is not nodes:
        master = problem.enlarged(master, nodes, state.nodes)
    return state, master, _figures(state, state.nodes.size - nodes.size, n_visited)


def _with_certificate(state: ActiveState, restricted: Restricted, violations: Violations) -> ActiveState:
    """Return the state with the certificate that follows from a visit of outside nodes."""
    state = replace(state, worst=violations.worst)
    if violations.depth is None:
        return state
    value = restricted.point.value(max(restricted.bound, violations.worst))
    if violations.depth == state.depth or state.depth is None:
        return replace(state, depth=violations.depth, certified=max(state.certified, value))
    # A bound for more nodes replaces one for fewer, however much closer that was; never the other way round.
    wider = violations.depth == EVERYWHERE or (state.depth != EVERYWHERE and violations.depth > state.depth)
    return replace(state, depth=violations.depth, certified=value) if wider else state


def _grow_or_stop(
    state: ActiveState, restricted: Restricted, violations: Violations, is_close: bool, problem: ActiveProblem[Any], rule: ActiveRule
) -> ActiveState:
    """Return the state with new nodes, a smaller tolerance of the master problem, or a reason to stop."""
    is_quiet = not len(violations.keys)
    if is_quiet and is_close and violations.depth != EVERYWHERE:
        return replace(state, stop="frontier" if violations.depth is None else "depth")
    if is_quiet and (is_close or state.tight):
        is_certified = is_close and state.certificate <= rule.tol * abs(state.upper)
        return replace(state, stop="certified" if is_certified else "stalled")
    if state.rounds >= rule.max_rounds:
        return replace(state, stop="max_rounds")
    if is_quiet:
        return replace(state, tight=True)
    has_stalled = rule.stall_tol is not None and state.settled - state.upper <= rule.stall_tol * abs(state.upper)
    grown = state.nodes.with_hulls(violations.worst_first(rule.add), problem.parents, problem.penalties, rule.max_nodes)
    if has_stalled or grown.size == state.nodes.size:
        # The restricted problem is solved to its final tolerance before the loop stops.
        return replace(state, stop="rest" if has_stalled else "max_nodes") if is_close or state.tight else replace(state, tight=True)
    return replace(state, nodes=grown, settled=state.upper, tight=False)


def _figures(state: ActiveState, n_added: int, n_visited: int) -> dict[str, Any]:
    gap = state.certificate if np.isfinite(state.certificate) else float("nan")
    return {
        "objective": state.upper,
        "gap": gap,
        "restricted_gap": state.upper - state.lower,
        "relative_gap": gap / abs(state.upper) if state.upper else gap,
        "bound": state.bound,
        "worst_outside": state.worst,
        "n_nodes": state.nodes.size,
        "n_added": n_added,
        "looked_at": n_visited,
        "round": state.rounds,
    }


def unchanged_figures(state: ActiveState) -> dict[str, Any]:
    """Return the metrics of a step that does not change the active set."""
    return _figures(state, 0, 0)
