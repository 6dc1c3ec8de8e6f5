"""Rows in blocks: requests of the solver answered block by block, and the search by lengths, against rows at hand."""

import numpy as np
import pytest

from gramplane.kernels.rules import levels, search
from gramplane.kernels.rules.bits import pack_bits, pack_rows, unpack_bits
from gramplane.kernels.rules.levels import LevelSearch, Open, candidate_sums, visited_level
from gramplane.kernels.rules.machine import RuleProblem, solve_rules
from gramplane.kernels.rules.row_blocks import COUNTS, OF_ZONE, PRODUCT, ROWS, SIDE_BY_SIDE, BlockedRows, SpreadRows, answer, merge_rows
from gramplane.kernels.rules.row_losses import tube_loss
from gramplane.kernels.rules.search import COMPATIBLE, kinds_of_pairs, order_signed_rows
from tests.kernels.rules.test_numbers import numbers
from tests.kernels.rules.test_rules import make


def blocked_problem(lattice, nodes, rho, cuts):
    """The restricted problem with its rows in blocks that end at ``cuts``."""
    packed, loss = pack_rows(lattice.flags(nodes)), lattice.loss
    edges = [0, *cuts, lattice.n]
    blocks, tasks = [[] for _ in edges[1:]], []
    for rows, y, cost in zip(lattice.rows, lattice.y, lattice.cost, strict=True):
        kinds = []
        for block, lo, hi in zip(blocks, edges[:-1], edges[1:], strict=True):
            mine = rows[(rows >= lo) & (rows < hi)]
            kind = merge_rows(packed[mine], (loss.signs(y)[(rows >= lo) & (rows < hi)] > 0).astype(np.uint8)) if loss.can_merge else None
            block.append(packed[mine] if kind is None else packed[mine][kind[0]])
            kinds.append((len(mine), kind))
        tasks.append(SpreadRows.of(y, cost, kinds, loss))

    def ask(requests):
        return [reply(request) for request in requests]

    def reply(request):
        parts, at = [], 0
        for block in blocks:
            rows, span = block[request.task], slice(at, at + len(block[request.task]))
            at += len(rows)
            mine = {"zone": request.zone[span]} if request.kind in OF_ZONE else {"vector": request.vector[span]}
            mine = {} if request.kind == PRODUCT else mine
            parts.append(answer(rows, nodes.size, request._replace(**mine)))
        return np.concatenate(parts) if request.kind in SIDE_BY_SIDE else sum(parts[1:], parts[0])

    return RuleProblem(nodes.hull, tasks, lattice.root, rho, BlockedRows(tasks, ask), loss)


CASES = {
    "one task": (make(5, 200, seed=3)[0], {}),
    "costs of several planes": (make(5, 200, seed=4)[0], {"costs": np.resize([1.0, 3.0, 5.0], 200)}),
    "two machines": (make(5, 150, 2, seed=5)[0], {}),
    "more conjunctions than rows": (make(9, 40, seed=8)[0], {"pairs": True}),
    "squared loss": (numbers(5, 200, seed=3)[0], {}),
    "squared loss of tasks that share weight": (numbers(5, 150, 2, seed=6, similarity=np.array([[1.0, 0.4], [0.4, 1.0]]))[0], {}),
    "tube": (numbers(5, 200, seed=3, loss=tube_loss(0.1))[0], {}),
    "tasks that share weight": (make(5, 150, 2, seed=6, similarity=np.array([[1.0, 0.4], [0.4, 1.0]]))[0], {}),
}


def hull_items(lattice, changes):
    """The conjunctions of the hull: a few, or all pairs."""
    return [[i, j] for i in range(lattice.p) for j in range(i)] if "pairs" in changes else [[0, 1], [1, 2], [2, 3, 4]]


@pytest.mark.parametrize("name", CASES)
def test_a_block_gives_the_bits_of_rows_at_hand_and_several_the_same_optimum(name):
    lattice, changes = CASES[name]
    if "costs" in changes:
        lattice = type(lattice)(lattice.columns, lattice.n, lattice.rows, lattice.y, (changes["costs"],), lattice.similarity, lattice.a)
    nodes = lattice.hull(lattice.named(hull_items(lattice, changes)))
    here = solve_rules(lattice.problem(nodes, 1.3), tol=1e-4)
    one = solve_rules(blocked_problem(lattice, nodes, 1.3, []), tol=1e-4)
    for field in ("G", "bias", "eta"):
        assert getattr(one, field).tobytes() == getattr(here, field).tobytes()
    assert (one.objective, one.dual, one.steps) == (here.objective, here.dual, here.steps) and here.converged
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one.alpha, here.alpha, strict=True))
    several = solve_rules(blocked_problem(lattice, nodes, 1.3, [40, 90]), tol=1e-4)
    assert several.converged
    assert several.objective == pytest.approx(here.objective, rel=2e-4)
    assert several.dual <= here.objective * (1 + 1e-12) and here.dual <= several.objective * (1 + 1e-12)


@pytest.mark.parametrize(("name", "kind"), [("one task", COUNTS), ("more conjunctions than rows", ROWS)])
def test_a_zone_is_asked_for_counts_or_where_it_is_small_for_its_rows(name, kind):
    lattice, changes = CASES[name]
    nodes = lattice.hull(lattice.named(hull_items(lattice, changes)))
    problem = blocked_problem(lattice, nodes, 1.3, [15])
    kinds, rows = [], problem.rows
    counted = BlockedRows(rows.tasks, lambda requests: kinds.extend(one.kind for one in requests) or rows.ask(requests))
    solve_rules(RuleProblem(nodes.hull, problem.tasks, lattice.root, 1.3, counted), tol=1e-4)
    assert kind in kinds


def test_machines_ask_at_the_same_time():
    lattice, _ = CASES["two machines"]
    nodes = lattice.hull(lattice.named([[0, 1], [1, 2]]))
    problem = blocked_problem(lattice, nodes, 1.3, [40])
    asked, rows = [], problem.rows
    counted = BlockedRows(rows.tasks, lambda requests: asked.append([one.task for one in requests]) or rows.ask(requests))
    solve_rules(RuleProblem(nodes.hull, problem.tasks, lattice.root, 1.3, counted), tol=1e-2)
    assert all(set(tasks) == {0, 1} for tasks in asked[:2])
    assert sum(len(set(tasks)) == 2 for tasks in asked) > len(asked) / 2


def test_compatible_pairs_are_those_whose_shared_rows_are_some_of_both():
    rng = np.random.default_rng(0)
    flags = (rng.random((30, 200)) < rng.random(30)[:, None] ** 3).astype(np.uint8)
    flags[5], flags[6], flags[7] = flags[4], 1 - flags[4], flags[4] & flags[3]
    together, sizes = flags.astype(int) @ flags.T, flags.sum(axis=1)
    expected = (together > 0) & (together < sizes[:, None]) & (together < sizes)
    packed = pack_bits(flags)
    whole = np.empty((30, 30), np.uint8)
    kinds_of_pairs(packed, np.arange(30), whole)
    np.testing.assert_array_equal(whole == COMPATIBLE, expected)
    found = [np.empty((3, 30), np.uint8) for _ in range(2)]
    for part, out in zip((slice(0, 2), slice(2, 4)), found, strict=True):
        kinds_of_pairs(np.ascontiguousarray(packed[:, part]), np.array([3, 4, 9]), out)
    np.testing.assert_array_equal((found[0] | found[1]) == COMPATIBLE, expected[[3, 4, 9]])


def test_rows_of_a_search_are_gathered_in_their_order():
    rng = np.random.default_rng(1)
    flags = (rng.random((7, 150)) < 0.5).astype(np.uint8)
    y, alpha = np.where(rng.random(150) < 0.5, 1.0, -1.0), np.where(rng.random(150) < 0.4, 1.0, rng.random(150) * (rng.random(150) < 0.7))
    rows = order_signed_rows(pack_bits(flags), 150, [np.arange(150)], [y], [alpha], np.eye(1), 1.0)
    order = []
    for sign in (1.0, -1.0):
        for part in ((y == sign) & (alpha == 1.0), (y == sign) & (alpha > 0) & (alpha < 1.0)):
            ids = np.flatnonzero(part)
            order += [*ids.tolist(), *[150] * (-len(ids) % 64)]
    padded = np.concatenate([flags, np.zeros((7, 1), np.uint8)], axis=1)[:, order]
    np.testing.assert_array_equal(unpack_bits(rows.columns, len(order)), padded)


def level_search(lattice, nodes, signed, threshold, roots=None):
    def kinds(ids):
        out = np.empty((len(ids), lattice.p), np.uint8)
        kinds_of_pairs(lattice.columns, ids, out)
        return (out == COMPATIBLE) if lattice.skip else np.ones(out.shape, bool)

    known = frozenset(map(tuple, lattice.items(nodes.keys)))
    ask = lambda candidates: candidate_sums(signed, candidates)  # noqa: E731
    return LevelSearch(lattice.p, ask, kinds, lattice.similarity, lattice.a, threshold, known, roots)


def same(one, other):
    np.testing.assert_array_equal(one.items, other.items)
    assert one.values.tobytes() == other.values.tobytes()
    assert (one.visits, one.finished) == (other.visits, other.finished)


@pytest.mark.parametrize("limit", [4096, 5])
@pytest.mark.parametrize(("tasks", "skip"), [(1, True), (2, False)])
def test_the_search_by_lengths_is_the_walk(tasks, skip, limit, monkeypatch):
    similarity = np.eye(1) if tasks == 1 else np.array([[1.0, 0.3], [0.3, 1.0]])
    lattice, _ = make(8, 90, tasks, seed=2 * tasks, similarity=similarity, skip=skip)
    rng = np.random.default_rng(tasks)
    alpha = [np.minimum(rng.random(90) * 1.6, 1) * (rng.random(90) < 0.8) for _ in range(tasks)]
    inside = lattice.hull(lattice.named([[0, 1], [3], [2, 4, 5]]))
    signed = lattice.signed(alpha)
    monkeypatch.setattr(search, "MAX_VIOLATORS", limit)
    monkeypatch.setattr(levels, "MAX_VIOLATORS", limit)
    seen = set()
    for batch in (1 << 17, 7):
        monkeypatch.setattr(levels, "BATCH", batch)
        monkeypatch.setattr(levels, "PAIR_BYTES", 3 * lattice.p)
        for threshold in (0.05, 0.3, 2.0):
            walk = lattice.outside(inside, alpha, threshold, frontier=True)
            same(level_search(lattice, inside, signed, threshold).frontier(), walk)
            for visits in (1 << 40, 200, 57, 20, 8, 0):
                longer = level_search(lattice, inside, signed, threshold)
                for depth in (2, 3, 8):
                    walk = lattice.outside(inside, alpha, threshold, frontier=False, depth=depth, visits=visits)
                    found = longer.everywhere(depth, visits, limit)
                    seen.add((walk.finished, walk.whole, depth))
                    if depth == 2:
                        same(found, walk)
                    assert found.finished == walk.finished
                    if walk.finished:
                        assert (found.whole, found.visits) == (walk.whole, walk.visits)
                        names = (
                            {tuple(item): value for item, value in zip(s.items.tolist(), s.values, strict=True)} for s in (found, walk)
                        )
                        assert next(names) == next(names)
    assert {(True, True, 8), (False, False, 2)} <= seen or limit == 5


def test_searches_below_some_propositions_make_up_the_search():
    lattice, _ = make(9, 120, seed=3, skip=True)
    rng = np.random.default_rng(0)
    alpha = [np.minimum(rng.random(120) * 1.6, 1)]
    inside, signed = lattice.hull(lattice.named([[0, 1]])), lattice.signed(alpha)
    whole = level_search(lattice, inside, signed, 0.3)
    result = whole.everywhere(4, 1 << 40)
    singles = whole.levels[0].open[0].candidates
    items, visits = [], lattice.p
    for lo in range(0, len(singles), 2):
        below = level_search(lattice, inside, signed, 0.3, (lo, min(lo + 2, len(singles))))
        below.levels.append(visited_level([Open((), singles)]))
        part = below.everywhere(4, 1 << 40)
        items, visits = items + part.items.tolist(), visits + part.visits
    longer = [item for item in result.items.tolist() if item[1] >= 0]
    assert sorted(items) == sorted(longer) and visits == result.visits and len(longer) > 3
