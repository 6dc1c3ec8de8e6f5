"""The active-set loop over a graph of kernels: a restricted problem, the nodes that break its certificate, their hulls.

The whole problem is ``min 1/2 Omega(f)^2 + loss`` over all nodes of a graph that may be too large to list, Omega the gauge of
``kernels/graphs/norms.py``. A round solves it over a hull W and looks outside.

* Every f over W is a point of the whole problem: the restricted primal value bounds the whole optimum from above.
* A dual point beta bounds the optimum from below by ``max_t t linear - t^2 (square + U) / 2``, U any bound of the squared dual gauge
  of sqrt(M(beta)) (:class:`.DualPoint`). Over W that is the restricted problem's own U_W; over the whole graph it is
  ``max(U_W, worst)`` once ``worst`` bounds M_w / d_w^2 of *every* node outside W, or the thesis' sums over descendants of the nodes
  next to W (:func:`.outside_bound`, :func:`.descendant_form`).
* Raising the bound from U_W to u lowers the dual value by at most ``t^2 (u - U_W) / 2``. So nodes whose value stays below

  ``threshold = U_W + SLACK (tol |P| - gap_W) / t^2``,   SLACK < 2,

  cannot keep the whole gap from closing: with none above it, it is at most ``gap_W + SLACK / 2 (tol |P| - gap_W) <= tol |P|``. Where
  the loss dwarfs the gauge the slack spares most of the graph.
* Nodes above the threshold whose ancestors are all in W do lower the optimum (rho > 1), so that adding the worst of them makes
  progress; a finite graph ends the loop.

Each step of :func:`active_step` is a function of the state alone: it belongs into the state of a method's loop, beside the method's own
record of its master problem.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np

from ...kernels.graphs.norms import DualPoint, NodeSet
from ...kernels.svm.dual import DualProblem
from .kernel_weights import linear_value

if TYPE_CHECKING:
    from ..records.context import RunContext

M = TypeVar("M")

SLACK = 1.6
"""Part of the gap that is left which nodes outside may take up; 2 is the most that is proven."""

CLOSE = 0.7
"""Everything outside is looked at when the restricted gap is below this share of the tolerance."""

MASTER_SHARE = 0.3
FIRST_TOL = 0.03
DECAY = 0.4
"""The master's tolerance: ``max(MASTER_SHARE tol, FIRST_TOL DECAY^round)``."""

EVERYWHERE = -1
"""Depth of a certificate that holds for all nodes."""

FINISHED = ("certified", "depth", "frontier", "rest")
"""Stops that were asked for: the certificate closed, closed down to a depth, no violator next to the hull, objective at rest."""


CUT_SHORT = ("max_rounds", "max_nodes", "rest")
"""Reasons of a stop with violators left; the certificate that was reached is told all the same."""


@dataclass(frozen=True)
class ActiveRule:
    """How an active-set loop goes on and ends.

    Attributes
    ----------
    tol
        Gap at which it ends, relative to the primal value.
    max_rounds, max_nodes
        Caps; a stop by one of them is no success.
    add
        Nodes added in a round, at most, without their ancestors.
    exhaustive
        Look at all nodes outside (:meth:`ActiveProblem.everywhere`) once those next to the hull are quiet.
    rest
        Stop when a round's nodes lowered the primal value by less than this share of it, or ``None``.
    """

    tol: float = 1e-3
    max_rounds: int = 50
    max_nodes: int = 1000
    add: int = 30
    exhaustive: bool = True
    rest: float | None = None


@dataclass(frozen=True)
class Restricted:
    """What a master found over the hull.

    Attributes
    ----------
    upper
        Primal value of the best point so far.
    point
        A feasible dual point.
    bound
        Upper bound of its squared dual gauge over the hull.
    done
        Whether the tolerance is reached, or cannot be: ``False`` asks for one more slice of work.
    """

    upper: float
    point: DualPoint
    bound: float
    done: bool = True

    @property
    def lower(self) -> float:
        """Lower bound of the restricted optimum."""
        return self.point.value(self.bound)

    @property
    def gap(self) -> float:
        """Gap of the restricted problem."""
        return max(self.upper - self.lower, 0.0)


@dataclass(frozen=True)
class Violations:
    """Nodes outside the hull.

    Attributes
    ----------
    keys
        ``(m, width)`` those above the threshold, or the worst of them; ancestors may lie outside too.
    values
        ``(m,)`` M_w / d_w^2, or a bound of it.
    worst
        Greatest value of all nodes that were looked at.
    depth
        ``worst`` is a bound for all nodes outside of at most this depth (``EVERYWHERE``: of any); ``None``: for no others.
    looked_at
        Their number.
    """

    keys: np.ndarray
    values: np.ndarray
    worst: float = 0.0
    depth: int | None = None
    looked_at: int = 0

    def worst_first(self, most: int) -> np.ndarray:
        """Return the keys of the ``most`` greatest values; equal ones keep their order."""
        return self.keys[np.argsort(-self.values, kind="stable")[:most]]


@dataclass(frozen=True)
class ActiveState:
    """Where an active-set loop stands.

    Attributes
    ----------
    nodes
        The hull.
    iteration
        Steps so far.
    rounds
        Times that the nodes outside were looked at.
    upper, lower
        Primal value, and lower bound over the hull.
    certified
        Greatest lower bound of the whole optimum; that of the nodes down to ``depth`` where ``depth`` is not ``EVERYWHERE``.
    depth
        See ``certified``; ``None`` before anything is certified.
    bound, worst
        Newest bound of the squared dual gauge over the hull, and greatest value seen outside.
    settled
        Primal value when nodes joined last.
    tight
        Whether the master is asked for its final tolerance, as those next to the hull were quiet.
    stop
        Why the loop ended.
    """

    record_name: ClassVar[str] = "ActiveState"
    nodes: NodeSet
    iteration: int = 0
    rounds: int = 0
    upper: float = np.inf
    lower: float = -np.inf
    certified: float = -np.inf
    depth: int | None = None
    bound: float = 0.0
    worst: float = 0.0
    settled: float = np.inf
    tight: bool = False
    stop: str | None = None

    @property
    def certificate(self) -> float:
        """Certified gap of the whole problem, absolute; infinite while nothing is certified."""
        return max(self.upper - self.certified, 0.0)

    def master_tol(self, tol: float) -> float:
        """Return the relative gap that the master is asked for."""
        return MASTER_SHARE * tol if self.tight else max(MASTER_SHARE * tol, FIRST_TOL * DECAY**self.rounds)


class ActiveProblem(Protocol[M]):
    """What a method brings to the loop; ``M`` is its own record of the restricted problem (weights, dual variables)."""

    def solve(self, nodes: NodeSet, master: M, tol: float, ctx: RunContext) -> tuple[M, Restricted]:
        """Work on the restricted problem until its gap is ``tol`` relative to its value, or for one slice of work."""
        ...

    def frontier(self, nodes: NodeSet, master: M, threshold: float, ctx: RunContext) -> Violations:
        """Look at nodes next to the hull: all parents inside."""
        ...

    def everywhere(self, nodes: NodeSet, master: M, threshold: float, ctx: RunContext) -> Violations:
        """Look at all nodes outside, as deep as the method can."""
        ...

    def enlarged(self, master: M, before: NodeSet, after: NodeSet) -> M:
        """Return the master's record with places for the nodes that joined."""
        ...

    def parents(self, key: np.ndarray) -> np.ndarray:
        """Return all parents of a node, ``(r, width)``."""
        ...

    def penalties(self, keys: np.ndarray) -> np.ndarray:
        """Return d of nodes ``(m, width)``."""
        ...


def dual_point(problem: DualProblem, beta: np.ndarray) -> DualPoint:
    """Return what the dual value of beta, and of its multiples in the box, depends on."""
    ends = np.where(beta > 0, problem.hi, problem.lo)
    used = beta != 0
    reach = float(np.min(ends[used] / beta[used], initial=np.inf))
    return DualPoint(linear_value(problem, beta), float(problem.ridges() @ (beta * beta)), max(reach, 1.0))


def threshold_of(found: Restricted, tol: float) -> float:
    """Return the value above which a node outside may keep the whole gap from closing to ``tol``, relative to the primal value."""
    t = found.point.scale(found.bound)
    return found.bound + (SLACK * max(tol * abs(found.upper) - found.gap, 0.0) / (t * t) if t > 0 else np.inf)


def active_step(
    state: ActiveState, master: M, problem: ActiveProblem[M], rule: ActiveRule, ctx: RunContext
) -> tuple[ActiveState, M, dict[str, Any]]:
    """Give the master one slice of work; when it is done, look outside, and add the worst violators with their hulls or stop.

    Returns
    -------
    ActiveState, M
        New state and master.
    dict
        Figures of the step for the history.
    """
    master, found = problem.solve(state.nodes, master, state.master_tol(rule.tol), ctx)
    state = replace(state, iteration=state.iteration + 1, upper=found.upper, lower=found.lower, bound=found.bound)
    if not found.done:
        return state, master, _figures(state, 0, 0)
    limit = threshold_of(found, rule.tol)
    seen = problem.frontier(state.nodes, master, limit, ctx)
    state = _taken(replace(state, rounds=state.rounds + 1), found, seen)
    looked_at = seen.looked_at
    close = found.gap <= CLOSE * rule.tol * abs(found.upper)
    if not len(seen.keys) and close and rule.exhaustive and seen.depth != EVERYWHERE:
        seen = problem.everywhere(state.nodes, master, limit, ctx)
        state, looked_at = _taken(state, found, seen), looked_at + seen.looked_at
    before, covered = state.nodes, seen.depth
    state = _decided(state, found, seen, close, problem, rule)
    if state.stop in CUT_SHORT and rule.exhaustive and covered is None:
        seen = problem.everywhere(state.nodes, master, limit, ctx)
        state, looked_at = _taken(state, found, seen), looked_at + seen.looked_at
    if state.nodes is not before:
        master = problem.enlarged(master, before, state.nodes)
    return state, master, _figures(state, state.nodes.size - before.size, looked_at)


def _taken(state: ActiveState, found: Restricted, seen: Violations) -> ActiveState:
    """Return the state with the certificate that a look outside gives."""
    state = replace(state, worst=seen.worst)
    if seen.depth is None:
        return state
    value = found.point.value(max(found.bound, seen.worst))
    if seen.depth == state.depth or state.depth is None:
        return replace(state, depth=seen.depth, certified=max(state.certified, value))
    # A bound for more nodes takes the place of one for fewer, however much closer that was; fewer never take the place of more.
    wider = seen.depth == EVERYWHERE or (state.depth != EVERYWHERE and seen.depth > state.depth)
    return replace(state, depth=seen.depth, certified=value) if wider else state


def _decided(
    state: ActiveState, found: Restricted, seen: Violations, close: bool, problem: ActiveProblem[Any], rule: ActiveRule
) -> ActiveState:
    """Return the state with new nodes, or with a finer tolerance of the master, or with a reason to stop."""
    quiet = not len(seen.keys)
    if quiet and (close or state.tight):
        return replace(state, stop=_ending(state, seen, rule) if close else "stalled")
    if state.rounds >= rule.max_rounds:
        return replace(state, stop="max_rounds")
    if quiet:
        return replace(state, tight=True)
    resting = rule.rest is not None and state.settled - state.upper <= rule.rest * abs(state.upper)
    grown = state.nodes.with_hulls(seen.worst_first(rule.add), problem.parents, problem.penalties, rule.max_nodes)
    if resting or grown.size == state.nodes.size:
        # What stands is solved to the end before it is left.
        return replace(state, stop="rest" if resting else "max_nodes") if close or state.tight else replace(state, tight=True)
    return replace(state, nodes=grown, settled=state.upper, tight=False)


def _ending(state: ActiveState, seen: Violations, rule: ActiveRule) -> str:
    if seen.depth == EVERYWHERE:
        return "certified" if state.certificate <= rule.tol * abs(state.upper) else "stalled"
    return "frontier" if seen.depth is None else "depth"


def _figures(state: ActiveState, added: int, looked_at: int) -> dict[str, Any]:
    gap = state.certificate if np.isfinite(state.certificate) else float("nan")
    return {
        "objective": state.upper,
        "gap": gap,
        "restricted_gap": state.upper - state.lower,
        "relative_gap": gap / abs(state.upper) if state.upper else gap,
        "bound": state.bound,
        "worst_outside": state.worst,
        "n_nodes": state.nodes.size,
        "n_added": added,
        "looked_at": looked_at,
        "round": state.rounds,
    }
