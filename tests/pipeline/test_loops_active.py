"""The active-set loop on a toy: rank-one kernels of subsets, squared loss, the master by closed-form re-weighting."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from gramplane.kernels.graphs.norms import DualPoint, NodeSet, dual_bound, dual_shares, gauge, joint_weights, start_weights
from gramplane.pipeline.loops.active_set import EVERYWHERE, ActiveRule, ActiveState, Restricted, Violations, active_step
from gramplane.storage.records import from_arrays, to_arrays
from tests.support.oracles.hierarchy import outside_bound, subsets

NO_CONTEXT = None


@dataclass(frozen=True)
class Weights:
    delta: np.ndarray
    fresh: int = 0


@dataclass(frozen=True)
class ToyState:
    active: ActiveState
    master: Weights


@dataclass
class Toy:
    """min 1/2 Omega(f)^2 + C sum_i (y_i - sum_w f_w phi_w(x_i))^2, phi_w the product of the columns in w."""

    X: np.ndarray
    y: np.ndarray
    rho: float = 1.5
    a: float = 2.0
    C: float = 1.0
    slice: int = 1000
    deepest: int | None = None

    def features(self, keys):
        return np.stack([self.X[:, key > 0].prod(axis=1) for key in keys], axis=1)

    def penalties(self, keys):
        return self.a ** keys.sum(axis=1)

    def parents(self, key):
        return (
            np.stack([np.where(np.arange(len(key)) == j, 0, key) for j in np.flatnonzero(key)])
            if key.any()
            else np.zeros((0, len(key)), int)
        )

    def solve(self, nodes, master, tol, ctx):
        phi, delta, ridge = self.features(nodes.keys), master.delta, np.eye(len(self.y)) / (2 * self.C)
        for turn in range(self.slice):
            beta = np.linalg.solve((phi * delta) @ phi.T + ridge, self.y)
            s = phi.T @ beta
            norms = delta * np.abs(s)
            upper = 0.5 * gauge(nodes.hull, norms, self.rho) ** 2 + self.C * np.sum((self.y - phi @ (delta * s)) ** 2)
            bound = dual_bound(nodes.hull, s**2, self.rho, dual_shares(nodes.hull, norms, self.rho)).value
            found = Restricted(upper, DualPoint(self.y @ beta, beta @ beta / (2 * self.C), np.inf), bound)
            if found.gap <= tol * upper:
                return Weights(delta), found
            smooth = max(1e-6, 0.1 * 0.5 ** (turn + master.fresh)) * norms.max()
            delta = joint_weights(nodes.hull, np.sqrt(norms**2 + smooth**2), self.rho)
        return Weights(delta, master.fresh + self.slice), replace(found, done=False)

    def _seen(self, nodes, master, threshold, keys, depth):
        keys = keys[~nodes.holds(keys)]
        phi = self.features(nodes.keys)
        beta = np.linalg.solve((phi * master.delta) @ phi.T + np.eye(len(self.y)) / (2 * self.C), self.y)
        values = np.array([outside_bound((self.features(key[None]).T @ beta) ** 2, self.penalties(key[None])) for key in keys])
        bad = values > threshold
        return Violations(keys[bad], values[bad], float(values.max(initial=0.0)), depth, len(keys))

    def frontier(self, nodes, master, threshold, ctx):
        every = self.names()
        near = np.array([all(nodes.place(one) >= 0 for one in self.parents(key)) for key in every])
        return self._seen(nodes, master, threshold, every[near], None)

    def everywhere(self, nodes, master, threshold, ctx):
        every = self.names()
        if self.deepest is not None:
            every = every[every.sum(axis=1) <= self.deepest]
        return self._seen(nodes, master, threshold, every, EVERYWHERE if self.deepest is None else self.deepest)

    def enlarged(self, master, before, after):
        new = start_weights(after.hull)[before.size :]
        return Weights(np.concatenate([master.delta, np.minimum(new, 0.1 * master.delta.max())]))

    def names(self):
        p = self.X.shape[1]
        return np.array([[int(j in names) for j in range(p)] for names in subsets(p)])

    def started(self):
        nodes = NodeSet.empty(self.X.shape[1]).with_hulls(np.eye(self.X.shape[1], dtype=int)[:1], self.parents, self.penalties)
        return ActiveState(nodes), Weights(start_weights(nodes.hull))


def drawn(seed=0, p=4, n=30, **options):
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], (n, p))
    y = X[:, 0] + 2 * X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    return Toy(X, y, **options)


def run(toy, rule, state=None, master=None):
    if state is None:
        state, master = toy.started()
    rows = []
    while state.stop is None:
        state, master, row = active_step(state, master, toy, rule, NO_CONTEXT)
        for w, key in enumerate(state.nodes.keys):
            above = {one.tobytes() for one in toy.parents(key)}
            assert above <= {state.nodes.keys[v].tobytes() for v in state.nodes.hull.ancestors(w)}
        rows.append(row)
    return state, master, rows


def whole_optimum(toy):
    """Bounds of the optimum over all subsets."""
    nodes = NodeSet.empty(toy.X.shape[1]).with_hulls(toy.names(), toy.parents, toy.penalties)
    found = replace(toy, slice=300).solve(nodes, Weights(start_weights(nodes.hull)), 1e-4, NO_CONTEXT)[1]
    return found.lower, found.upper


@pytest.mark.parametrize("rho", [2.0, 1.5, 1.1])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_ends_at_the_optimum_of_the_whole_graph(rho, seed):
    toy = drawn(seed, rho=rho)
    lower, upper = whole_optimum(toy)
    state, _, rows = run(toy, ActiveRule(tol=1e-3, add=2))
    assert state.stop == "certified"
    assert state.upper - lower <= state.certificate + 1e-9
    assert state.certificate <= 1e-3 * state.upper
    assert state.certified <= upper * (1 + 1e-12)
    assert rows[-1]["gap"] == pytest.approx(state.certificate)
    for row in rows:
        assert not row["gap"] < row["objective"] - upper - 1e-9


def test_slices_of_the_master_and_records_in_between_change_nothing():
    whole = run(drawn(), ActiveRule(add=1))[0]
    state, master = drawn().started()
    state, master, _ = active_step(state, master, drawn(slice=1), ActiveRule(add=1), NO_CONTEXT)
    toy, held = drawn(slice=1), ToyState(state, master)
    while held.active.stop is None:
        again = from_arrays(ToyState, *to_arrays(held))
        state, master, _ = active_step(again.active, again.master, toy, ActiveRule(add=1), NO_CONTEXT)
        held = ToyState(state, master)
    assert held.active.iteration > whole.iteration
    assert held.active.rounds == whole.rounds
    assert held.active.nodes.keys.tolist() == whole.nodes.keys.tolist()
    assert held.active.upper == pytest.approx(whole.upper, rel=1e-4)


def test_caps_stop_and_tell_the_certificate():
    for options, reason in (({"max_nodes": 3}, "max_nodes"), ({"max_rounds": 1}, "max_rounds"), ({"stall_tol": 0.5}, "rest")):
        state = run(drawn(), ActiveRule(add=1, **options))[0]
        assert state.stop == reason
        assert 1e-3 * state.upper < state.certificate < np.inf
        assert state.upper - whole_optimum(drawn())[0] <= state.certificate


def test_a_frontier_alone_certifies_nothing():
    state = run(drawn(), ActiveRule(exhaustive=False))[0]
    assert state.stop == "frontier"
    assert state.certificate == np.inf


def test_a_certificate_may_end_at_a_depth():
    state = run(drawn(deepest=2), ActiveRule())[0]
    assert state.stop == "depth"
    assert state.depth == 2
    assert state.certificate <= 1e-3 * state.upper
