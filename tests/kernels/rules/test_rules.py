"""Rules on the lattice of conjunctions: propositions, packed products, the machine, searches, certificates, cuts."""

import os
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest

from gramplane.kernels.graphs.norms import dual_bound, effective_weights
from gramplane.kernels.rules.bits import (
    apply_columns,
    apply_transpose,
    count_ones,
    pack_bits,
    pack_conjunctions,
    pack_rows,
    set_bits,
    unpack_bits,
    weighted_gram,
)
from gramplane.kernels.rules.lattice import RuleLattice
from gramplane.kernels.rules.machine import MergedRows, RuleProblem, solve_rules
from gramplane.kernels.rules.newton import (
    cost_planes,
    newton_direction,
    search_line,
    zone_curvature,
    zone_direction,
)
from gramplane.kernels.rules.propositions import (
    ABOVE,
    AT_MOST,
    DIFFERENT,
    EQUAL,
    MISSING,
    CutMachine,
    Propositions,
    column_propositions,
    proposition_text,
    refine_cuts,
)
from gramplane.kernels.rules.row_losses import HingeLoss, bias_root, smooth_value
from gramplane.kernels.rules.search import COMPATIBLE, kinds_of_pairs
from gramplane.pipeline.methods.rule_ensemble.problem import solve_mirror
from tests.support.clusters import ROOT
from tests.support.oracles import hierarchy as oracle


def make(p=5, n=80, tasks=1, a=2.0, seed=0, similarity=None, skip=False, C=1.0):
    """A lattice over p random propositions; labels of conjunctions and noise."""
    rng = np.random.default_rng(seed)
    flags = (rng.random((p, n)) < 0.55).astype(np.uint8)
    labels = []
    for t in range(tasks):
        truth = (flags[t % p] & flags[(t + 1) % p]) | (flags[(t + 2) % p] & (1 - flags[(t + 3) % p]))
        labels.append(np.where((truth ^ (rng.random(n) < 0.1)) > 0, 1.0, -1.0))
    rows = tuple(np.arange(n) for _ in range(tasks))
    B = np.eye(tasks) if similarity is None else similarity
    return RuleLattice(pack_bits(flags), n, rows, tuple(labels), tuple(np.full(n, C) for _ in rows), B, a, skip), flags


def whole(lattice):
    """The hull of all conjunctions."""
    return lattice.hull(lattice.named([list(item) for size in range(lattice.p + 1) for item in combinations(range(lattice.p), size)]))


# --- propositions -----------------------------------------------------------------------------------------------------------------


def test_propositions_of_a_numeric_column():
    values = np.arange(100.0)
    found = column_propositions(3, values, 9, False)
    assert found.column.tolist() == [3] * 18
    assert found.cut[::2].tolist() == [9.5 + 10 * k for k in range(9)]
    flags = found.flags(np.arange(18), 3, np.append(values, np.nan))
    np.testing.assert_array_equal(flags[0][:-1], values <= 9.5)
    np.testing.assert_array_equal(flags[1][:-1], values > 9.5)
    assert not flags[:, -1].any()
    few = column_propositions(0, np.array([1.0, 2.0, 2.0, 4.0]), 9, False)
    assert few.cut.tolist() == [1.5, 1.5, 3.0, 3.0]


def test_constant_columns_give_no_thresholds_and_missing_values_a_proposition():
    assert column_propositions(0, np.full(5, 2.0), 4, False).size == 0
    assert column_propositions(0, np.full(5, np.nan), 4, False).size == 0
    found = column_propositions(0, np.array([2.0, np.nan, 2.0]), 4, False)
    assert found.kind.tolist() == [MISSING]
    np.testing.assert_array_equal(found.flags(np.array([0]), 0, np.array([np.nan, 2.0]))[0], [True, False])
    assert proposition_text(MISSING, 0.0, "age") == "age is missing"


@pytest.mark.parametrize(
    ("kind", "cut", "text"),
    [
        (AT_MOST, 1_600_043_200.5, "1600043200.5"),
        (ABOVE, 1_600_043_201.0, "1600043201"),
        (AT_MOST, 0.73 + 0.5 * (0.74 - 0.73), "0.735"),
        (AT_MOST, 0.5, "0.5"),
        (EQUAL, 0.1 + 0.2, "0.30000000000000004"),
        (DIFFERENT, 12345678.0, "12345678"),
        (AT_MOST, 1e-300, "1e-300"),
        (AT_MOST, 0.0, "0"),
    ],
)
def test_the_number_of_a_proposition_has_the_digits_that_part_its_neighbours(kind, cut, text):
    assert (
        proposition_text(kind, cut, "x")
        == f"x {'<=' if kind == AT_MOST else '>' if kind == ABOVE else '=' if kind == EQUAL else '!='} {text}"
    )


def test_categories_that_training_did_not_have_make_every_comparison_false_and_are_counted():
    found = column_propositions(1, np.array([0.0, 1.0, 2.0, 2.0]), 4, True)
    assert found.kind.tolist() == [EQUAL, DIFFERENT] * 3
    new = np.array([0.0, 5.0, np.nan])
    flags = found.flags(np.arange(6), 1, new)
    np.testing.assert_array_equal(flags[:, 1:], False)
    assert flags[:, 0].tolist() == [True, False, False, True, False, True]
    assert found.unseen(1, new) == 1
    assert column_propositions(0, np.array([3.0, 7.0]), 4, False).kind.tolist() == [EQUAL, EQUAL]
    assert Propositions.joined_all([Propositions.none(), found]).take(np.array([2])).size == 1


def test_thresholds_are_a_matter_of_the_training_values_alone_and_part_neighbours():
    low = np.nextafter(1.0, 2.0)
    found = column_propositions(0, np.array([1.0, low, low, 3.0]), 9, False)
    assert (found.flags(np.arange(found.size), 0, np.array([1.0, low]))[0] == [True, False]).all()


# --- packed products ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "n"), [(1, 1), (8, 64), (13, 130), (70, 200)])
def test_packed_products_are_those_of_the_columns(width, n):
    rng = np.random.default_rng(width)
    flags = (rng.random((width, n)) < 0.4).astype(np.uint8)
    columns, rows = pack_bits(flags), pack_rows(flags)
    np.testing.assert_array_equal(unpack_bits(columns, n), flags)
    np.testing.assert_array_equal(count_ones(columns), flags.sum(axis=1))
    coef, u = rng.normal(size=width), rng.normal(size=n)
    np.testing.assert_allclose(apply_columns(rows, coef), flags.T @ coef, atol=1e-12)
    np.testing.assert_allclose(apply_transpose(rows, u, width), flags @ u, atol=1e-12)
    shared = np.empty((width, width))
    weighted_gram(columns, pack_bits(np.ones((1, n), np.uint8)), np.array([2.0]), shared)
    np.testing.assert_array_equal(shared, 2.0 * (flags.astype(int) @ flags.T))
    item = sorted({0, width // 2, width - 1})
    np.testing.assert_array_equal(unpack_bits(pack_conjunctions([item, []], columns, n), n), [flags[item].all(axis=0), np.ones(n)])


@pytest.mark.parametrize("width", [1, 64, 65, 200])
def test_positions_of_ones_are_those_of_the_flags(width):
    flags = np.random.default_rng(width).integers(0, 2, (5, width), dtype=np.uint8)
    flags[3] = 0
    assert set_bits(pack_bits(flags)) == [np.flatnonzero(row).tolist() for row in flags]


def test_curvature_takes_costs_as_bit_planes():
    rng = np.random.default_rng(0)
    flags = (rng.random((9, 150)) < 0.5).astype(np.uint8)
    cost = rng.integers(1, 6, 150) * 0.25
    multiples, unit = cost_planes(cost)
    np.testing.assert_allclose(multiples * unit, cost)
    zone = np.flatnonzero(rng.random(150) < 0.4)
    Z, c = flags[:, zone].astype(float), cost[zone]
    expected = (Z * c) @ Z.T - np.outer(Z @ c, Z @ c) / c.sum()
    np.testing.assert_allclose(
        zone_curvature(np.ascontiguousarray(pack_rows(flags)), multiples, unit, zone, np.arange(9)), expected, atol=1e-9
    )
    uneven = rng.random(150) * 1e4
    multiples, unit = cost_planes(uneven)
    assert (multiples * unit >= uneven * (1 - 1e-9)).all()


@pytest.mark.parametrize("count", [0, 1, 2, 7, 30])
def test_a_direction_from_the_rows_of_a_zone_is_the_one_from_the_columns(count):
    rng = np.random.default_rng(count)
    flags = (rng.random((40, 150)) < 0.5).astype(np.uint8)
    rows, zone = np.ascontiguousarray(pack_rows(flags)), np.sort(rng.permutation(150)[:count])
    multiples, unit = cost_planes(rng.integers(1, 6, 150) * 0.25)
    keep = np.sort(rng.permutation(40)[:33])
    D, gradient = rng.uniform(0.01, 3.0, 33), rng.normal(size=33)
    expected = newton_direction(zone_curvature(rows, multiples, unit / 0.2, zone, keep), D, gradient)
    found = zone_direction(rows[zone], multiples[zone] * (unit / 0.2), keep, D, gradient)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("length", [0.3, 1.0, 40.0])
def test_a_line_ends_where_little_of_its_slope_is_left(length):
    rng = np.random.default_rng(3)
    Phi, y, cost, h = (rng.random((90, 12)) < 0.5) * 1.0, np.where(rng.random(90) < 0.5, 1.0, -1.0), rng.uniform(0.5, 2.0, 90), 0.1

    def value_at(g):
        F = Phi @ g
        return 0.5 * g @ g + smooth_value(F, y, cost, h, bias_root(F, y, cost, h, 0.0))

    g, step = rng.normal(size=12), 1e-6
    slopes = [(value_at(g + step * unit) - value_at(g - step * unit)) / (2 * step) for unit in np.eye(12)]
    direction = -length * np.array(slopes)
    slope, b = float(direction @ slopes), bias_root(Phi @ g, y, cost, h, 0.0)
    F, bias, end, value = search_line(Phi @ g, Phi @ direction, g, direction, b, value_at(g), slope, y, cost, HingeLoss(h))
    np.testing.assert_allclose(F, Phi @ end, atol=1e-12)
    assert value == pytest.approx(value_at(end)) and bias == pytest.approx(bias_root(F, y, cost, h, 0.0), abs=1e-9)
    lengths = np.linspace(0.0, 1.0, 2001)
    least = min(value_at(g + part * direction) for part in lengths)
    assert value < value_at(g) and value - least <= 0.1 * (value_at(g) - least)


def test_curvature_writes_within_its_arrays(tmp_path):
    """A place beyond an array is silent where bounds are not looked at: a process of its own looks."""
    program = """if True:
        import numpy as np
        from gramplane.kernels.rules.newton import cost_planes, zone_curvature
        multiples, unit = cost_planes(np.ones(70))
        print(zone_curvature(np.full((70, 1), 7, np.uint8), multiples, unit, np.arange(65), np.arange(3)).tolist())
    """
    place = os.pathsep.join([str(ROOT / "tests" / "support" / "_bare"), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": place, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert (done.stdout.strip(), done.returncode) == (str([[0.0] * 3] * 3), 0), done.stderr[-2000:]


# --- the machine -----------------------------------------------------------------------------------------------------------------------


def primal(problem, flags, lattice, point):
    """The objective by its definition, over all rows."""
    f = point.G @ problem.root.T
    norms = np.sqrt(np.sum(point.G**2, axis=1))
    loss = sum(
        (lattice.cost[t] * np.maximum(1 - lattice.y[t] * (flags.T[lattice.rows[t]] @ f[:, t] - point.bias[t]), 0)).sum()
        for t in range(len(lattice.rows))
    )
    return 0.5 * oracle.omega(problem.hull, norms, problem.rho) ** 2 + loss


@pytest.mark.parametrize("rho", [2.0, 1.5, 1.1])
@pytest.mark.parametrize("similarity", [None, np.eye(2), np.array([[2.0, 1.0], [1.0, 2.0]]), np.ones((2, 2))])
def test_bounds_close_and_are_those_of_the_definitions(rho, similarity):
    tasks = 1 if similarity is None else 2
    lattice, _ = make(4, 60, tasks, seed=3, similarity=similarity)
    nodes = whole(lattice)
    problem, flags = lattice.problem(nodes, rho), lattice.flags(nodes).astype(float)
    point = solve_rules(problem, tol=1e-4)
    assert point.converged and point.gap <= 1e-4 * point.objective
    np.testing.assert_allclose(primal(problem, flags, lattice, point), point.objective, rtol=1e-10)
    for alpha, y, cost in zip(point.alpha, lattice.y, lattice.cost, strict=True):
        assert (alpha >= 0).all() and (alpha <= cost * (1 + 1e-12)).all()
        assert abs(alpha @ y) <= 1e-8 * cost.sum()
    sums = np.column_stack([flags[:, rows] @ (y * alpha) for rows, y, alpha in zip(lattice.rows, lattice.y, point.alpha, strict=True)])
    forms = np.einsum("wt,ts,ws->w", sums, lattice.similarity, sums)
    exact = dual_bound(nodes.hull, forms, rho, point.eta, passes=2000)
    assert exact.attained <= point.bound * (1 + 1e-9)
    # Omega(f)^2 = sum mu M = psi^(1/rhobar) at the optimum (Theorem 5.2.3), to the gap.
    mu = effective_weights(nodes.hull, exact.eta, forms, rho)
    assert abs(mu @ forms - oracle.omega(nodes.hull, np.sqrt(np.sum(point.G**2, axis=1)), rho) ** 2) <= 0.05 * point.objective


@pytest.mark.parametrize("rho", [2.0, 1.1])
def test_optimum_is_that_of_a_generic_solver(rho):
    from scipy.optimize import minimize

    lattice, _ = make(3, 40, seed=1, C=0.5)
    nodes = whole(lattice)
    problem, flags = lattice.problem(nodes, rho), lattice.flags(nodes).astype(float)
    point = solve_rules(problem, tol=1e-5)
    above, d, y = oracle.pairs(nodes.hull), nodes.hull.d, lattice.y[0]

    def value(x, blur, h):
        f, t = x[:-1], 1 - y * (flags.T @ x[:-1] - x[-1])
        sizes = (above.T @ (f**2 + blur**2) ** (rho / 2)) ** (1 / rho)
        soft = np.where(t > h, t - h / 2, np.maximum(t, 0) ** 2 / (2 * h))
        return 0.5 * (d @ sizes) ** 2 + 0.5 * soft.sum()

    x = np.full(nodes.size + 1, 0.01)
    for blur in (1e-1, 1e-2, 1e-3, 1e-4):
        x = minimize(value, x, args=(blur, blur), method="L-BFGS-B", options={"maxiter": 4000, "maxfun": 10**6}).x
    exact = value(x, 1e-12, 1e-9)
    assert point.dual <= exact * (1 + 1e-9)
    assert point.objective <= exact * (1 + 1e-3)


def test_mirror_descent_finds_the_same_optimum():
    lattice, _ = make(5, 80, seed=5)
    problem = lattice.problem(lattice.start(5), 1.5)
    ours, mirror = solve_rules(problem, tol=1e-3), solve_mirror(problem, tol=1e-3)
    assert mirror.converged and ours.converged
    assert abs(ours.objective - mirror.objective) <= 2e-3 * ours.objective


def test_merged_rows_are_the_rows():
    lattice, _ = make(3, 300, seed=2)
    nodes = whole(lattice)
    problem = lattice.problem(nodes, 1.5)
    assert len(problem.tasks[0].y) <= 16 < 300
    rows = pack_rows(lattice.flags(nodes))
    apart = MergedRows(rows, lattice.y[0], lattice.cost[0], np.arange(300), np.ones(300))
    one, two = solve_rules(problem, tol=1e-4), solve_rules(RuleProblem(nodes.hull, [apart], np.eye(1), 1.5), tol=1e-4)
    np.testing.assert_allclose(one.objective, two.objective, rtol=2e-4)
    assert len(one.alpha[0]) == 300


@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_a_task_with_one_label_gets_the_label_as_a_constant(label):
    lattice, _ = make(4, 50, 2, seed=4)
    lattice = RuleLattice(lattice.columns, 50, lattice.rows, (lattice.y[0], np.full(50, label)), lattice.cost, np.eye(2), 2.0)
    point = solve_rules(lattice.problem(lattice.start(4), 1.5), tol=1e-3)
    assert point.converged
    assert not np.any(point.alpha[1]) and not np.any(point.G[:, 1])
    assert point.bias[1] == -label


def test_identical_tasks_predict_alike_and_a_matrix_of_ones_pools():
    lattice, _ = make(4, 60, 1, seed=6)
    nodes = whole(lattice)
    rows, y, cost = lattice.rows[0], lattice.y[0], lattice.cost[0]
    twice = RuleLattice(lattice.columns, 60, (rows, rows), (y, y), (cost, cost), np.eye(2), 2.0)
    point = solve_rules(twice.problem(nodes, 1.5), tol=1e-5)
    np.testing.assert_allclose(point.G[:, 0], point.G[:, 1], atol=1e-3)
    pooled = solve_rules(RuleLattice(lattice.columns, 60, (rows, rows), (y, y), (cost, cost), np.ones((2, 2)), 2.0).problem(nodes, 1.5))
    single = solve_rules(RuleLattice(lattice.columns, 60, (rows,), (y,), (2 * cost,), np.eye(1), 2.0).problem(nodes, 1.5))
    np.testing.assert_allclose(pooled.objective, single.objective, rtol=2e-3)


def test_optimum_is_monotone_in_rho_and_in_the_penalties():
    lattice, _ = make(4, 60, seed=7)
    nodes = whole(lattice)
    values = [solve_rules(lattice.problem(nodes, rho), tol=1e-4) for rho in (2.0, 1.5, 1.1)]
    assert values[0].dual <= values[1].objective and values[1].dual <= values[2].objective
    steep, _ = make(4, 60, seed=7, a=3.0)
    assert values[1].dual <= solve_rules(steep.problem(whole(steep), 1.5), tol=1e-4).objective


def compatible(lattice):
    """Which propositions may stand in one conjunction, as bytes."""
    kinds = np.empty((lattice.p, lattice.p), np.uint8)
    kinds_of_pairs(lattice.columns, np.arange(lattice.p), kinds)
    return (kinds == COMPATIBLE).astype(np.uint8)


def test_complementary_exclusive_or_needs_rules_of_two():
    rng = np.random.default_rng(0)
    A = (rng.random((2, 120)) < 0.5).astype(np.uint8)
    flags = np.concatenate([A, 1 - A])
    y = np.where(A[0] ^ A[1], 1.0, -1.0)
    lattice = RuleLattice(pack_bits(flags), 120, (np.arange(120),), (y,), (np.full(120, 10.0),), np.eye(1), 2.0)
    kept = {}
    allowed = compatible(lattice)
    nodes = lattice.hull(lattice.named([[a, b] for a, b in combinations(range(4), 2) if allowed[a, b]]))
    for rho in (2.0, 1.1):
        sizes = np.abs(solve_rules(lattice.problem(nodes, rho), tol=1e-4).G[:, 0])
        lengths = np.array([len(item) for item in lattice.items(nodes.keys)])
        kept[rho] = int(np.sum(sizes > 0.02 * sizes.max()))
        assert lengths[np.argmax(sizes)] == 2
    assert kept[1.1] <= kept[2.0]


# --- searches and certificates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", [np.eye(1), np.array([[1.0, 0.3], [0.3, 1.0]])])
@pytest.mark.parametrize("threshold", [0.0, 0.2, 1.0])
def test_the_search_finds_what_enumeration_finds(similarity, threshold):
    tasks = len(similarity)
    lattice, flags = make(6, 90, tasks, seed=8, similarity=similarity)
    rng = np.random.default_rng(0)
    alpha = [np.minimum(rng.random(90) * 1.6, 1.0) * (rng.random(90) < 0.8) for _ in range(tasks)]
    inside = lattice.hull(lattice.named([[0, 1], [3]]))
    values = {}
    for size in range(1, 7):
        for item in combinations(range(6), size):
            s = np.array([flags[list(item)].all(axis=0) @ (y * a) for y, a in zip(lattice.y, alpha, strict=True)])
            values[item] = s @ similarity @ s / 4.0**size
    known = {tuple(item) for item in lattice.items(inside.keys)}
    found = lattice.outside(inside, alpha, threshold, frontier=False)
    got = {tuple(row[row >= 0].tolist()): value for row, value in zip(found.items, found.values, strict=True)}
    expected = {item: value for item, value in values.items() if value > threshold and item not in known}
    assert got.keys() == expected.keys() and found.finished and found.whole
    np.testing.assert_allclose([got[item] for item in expected], list(expected.values()), atol=1e-9)
    near = lattice.outside(inside, alpha, threshold, frontier=True)
    children = {item for item in expected if all(item[:k] + item[k + 1 :] in known for k in range(len(item)))}
    assert children <= {tuple(row[row >= 0].tolist()) for row in near.items}
    short = lattice.outside(inside, alpha, threshold, frontier=False, depth=2)
    assert {tuple(row[row >= 0].tolist()) for row in short.items} == {item for item in expected if len(item) <= 2}
    assert not lattice.outside(inside, alpha, threshold, frontier=False, visits=3).finished


def test_three_forms_of_the_descendant_sum_agree():
    """10.3 of the thesis' A.1.11: the definition, the product over propositions, and one matrix for all nodes."""
    _, flags = make(4, 30, seed=9)
    X, a = flags.T.astype(float), 2.0
    b = (1 + a) ** -2
    R = (1 + b) ** (X @ X.T)
    for u in [(0,), (1, 3), (0, 1, 2)]:
        product = np.ones((30, 30))
        for c in range(4):
            K = np.outer(X[:, c], X[:, c])
            product *= K / a**2 if c in u else K / (1 + a) ** 2 + 1
        total = np.zeros((30, 30))
        for size in range(len(u), 5):
            for w in combinations(range(4), size):
                if set(u) <= set(w):
                    phi = X[:, list(w)].prod(axis=1)
                    d = sum(a ** len(v) for k in range(5) for v in combinations(range(4), k) if set(u) <= set(v) <= set(w))
                    total += np.outer(phi, phi) / d**2
        phi = X[:, list(u)].prod(axis=1)
        np.testing.assert_allclose(product, total, rtol=1e-12)
        np.testing.assert_allclose((a**-2 / (1 + b)) ** len(u) * np.outer(phi, phi) * R, total, rtol=1e-12)


def test_the_thesis_bound_covers_every_conjunction_outside():
    similarity = np.array([[1.0, 0.4], [0.4, 1.0]])
    lattice, flags = make(4, 40, 2, seed=10, similarity=similarity)
    alpha = [np.random.default_rng(t).random(40) for t in range(2)]
    inside = lattice.hull(lattice.named([[0], [1], [2], [3], [0, 1]]))
    s = {}
    for size in range(2, 5):
        for item in combinations(range(4), size):
            s[item] = np.array([flags[list(item)].all(axis=0) @ (y * a) for y, a in zip(lattice.y, alpha, strict=True)])
    best = 0.0
    for u in [item for item in combinations(range(4), 2) if item != (0, 1)]:
        below = [w for w in s if set(u) <= set(w)]
        sums = [sum(2.0 ** len(v) for v in s if set(u) <= set(v) <= set(w)) for w in below]
        best = max(best, sum(s[w] @ similarity @ s[w] / d**2 for w, d in zip(below, sums, strict=True)))
    np.testing.assert_allclose(lattice.descendant_bound(inside, alpha), best, rtol=1e-10)


def test_pairs_that_imply_or_contradict_each_other_are_left_out():
    x = np.arange(40)
    flags = np.stack([x < 10, x >= 10, x < 20, x % 2 == 0]).astype(np.uint8)
    lattice = RuleLattice(pack_bits(flags), 40, (), (), (), np.eye(0), 2.0)
    assert compatible(lattice).tolist() == [[0, 0, 0, 1], [0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 0]]


# --- cuts ------------------------------------------------------------------------------------------------------------------------------


def test_cuts_move_to_the_least_loss():
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    x[:10] = np.nan
    y = np.where(x > 0.3, 1.0, -1.0)
    machine = CutMachine([[0]], np.array([[2.0]]), np.array([1.0]), [np.arange(200)], [y], [np.ones(200)])
    for kind, sign in ((ABOVE, 1.0), (AT_MOST, -1.0)):
        moved = CutMachine([[0]], machine.weights, machine.bias, machine.rows, [np.where(np.isnan(x), -1.0, sign * y)], machine.cost)
        flags = ((x > 0) if kind == ABOVE else (x <= 0))[None, :].astype(np.uint8)
        cuts, found = refine_cuts(moved, flags, np.array([kind]), np.array([0.0]), [x])
        seen = x[~np.isnan(x)]
        assert seen[seen <= 0.3].max() <= cuts[0] < seen[seen > 0.3].min()
        assert moved.loss(moved.decisions(found)) < 1e-12
        again, _ = refine_cuts(moved, found, np.array([kind]), cuts, [x])
        assert again[0] == cuts[0]
