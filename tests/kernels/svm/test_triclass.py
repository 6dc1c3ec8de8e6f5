"""The tri-class machine: losses, convex problems against a generic solver, the enumerated optimum, invariances, special cases."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.svm import SVC

from gramplane.kernels.svm import triclass_search
from gramplane.kernels.svm.decomposition import PartGram
from gramplane.kernels.svm.dual import DenseGram, DualProblem
from gramplane.kernels.svm.gram_access import RepeatedGram
from gramplane.kernels.svm.smo import solve_smo
from gramplane.kernels.svm.triclass import (
    Points,
    assign_labels,
    concave_linearised,
    crossing_point,
    majorant,
    min_loss,
    relaxed_problem,
    repeated_gram,
    three_way,
    with_indicators,
)
from gramplane.kernels.svm.triclass_search import (
    SearchSettings,
    improve_machine,
    labelled_machine,
    permuted_start,
    sided_start,
    solve_convex,
    universum_machine,
    with_mean,
)
from tests.support.oracles import triclass as oracle
from tests.support.oracles.svm_dual import qp_optimum

EXACT = 1e-9
SEEDS = range(5)


def tiny(seed, U=3, eps=0.1, lam=0.5, r=0.5):
    """Six rows of two classes, two of neither, U unlabelled; costs r / lam."""
    rng = np.random.default_rng(seed)
    y = np.array([1.0, 1, 1, -1, -1, -1, 0, 0] + [0.0] * U)
    hidden = np.concatenate([y[:8], np.resize([1.0, 0.0, -1.0], U)])
    X = rng.normal(size=(8 + U, 3)) + 0.6 * hidden[:, None]
    free = np.arange(8 + U) >= 8
    return X @ X.T, Points(y, free, np.where(free, r, 1.0) / lam, eps)


def ends(K, points, start="svm3", algorithm="mm", tol=EXACT, log=None, gram=None, **search):
    """Run one search to its end."""
    gram = DenseGram(K) if gram is None else gram
    gram = gram if points.balance is None else with_mean(gram, points.unlabelled)
    machine = labelled_machine(gram, points, tol)
    if start == "usvm":
        machine = universum_machine(gram, points, tol, machine)
    elif start == "s3vm":
        machine = sided_start(points, machine)
    elif start != "svm3":
        machine = permuted_start(points, machine, int(start))
    while machine.stop is None:
        if log is not None:
            log.append(machine)
        machine = improve_machine(gram, points, machine, SearchSettings(algorithm, tol, tol, **search))
    return machine


# -- losses ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.5, 0.9])
def test_the_min_loss_and_its_difference_of_convex_functions(eps):
    u = np.linspace(-3, 3, 1201)
    expected = np.array([oracle.min_loss(value, eps) for value in u])
    np.testing.assert_allclose(min_loss(u, eps), expected, atol=1e-15)
    pieces = [np.maximum(np.abs(u) - edge, 0) for edge in (eps, 1.0, crossing_point(eps))]
    np.testing.assert_allclose(pieces[0] + pieces[1] - 2 * pieces[2], expected, atol=1e-14)
    np.testing.assert_allclose(min_loss(u, eps, True), np.maximum(np.abs(u) - 1, 0) + 1 - np.abs(u), atol=1e-14)


@pytest.mark.parametrize(("eps", "D"), [(0.1, 2.0), (0.5, 1.5), (0.0, 4.0)])
def test_the_least_relaxed_loss_over_the_indicator_is_one_tube(eps, D):
    points, d = Points(np.zeros(1), np.ones(1, bool), np.array([3.0]), eps), np.linspace(0, 1, 4001)
    tube = relaxed_problem(points, np.zeros(1), D)
    assert tube.target.tolist() == tube.fixed.tolist() == [0.0] and tube.lo == -tube.hi
    for u in np.linspace(-1.5, 1.5, 31):
        one, other = 1 - D * (1 - d), -eps - D * d
        losses = sum(np.maximum(0, s - side * u) for s in (one, other) for side in (-1, 1))
        assert 3.0 * losses.min() == pytest.approx(tube.hi[0] * max(0.0, abs(u) - tube.kink[0]), abs=6 * D / 4000)


def test_assignments_take_the_cheaper_loss_and_more_eps_means_more_zeros():
    f = np.random.default_rng(0).normal(size=500)
    counts = []
    for eps in (0.0, 0.1, 0.3, 0.6, 0.9):
        points = Points(np.zeros(500), np.ones(500, bool), np.ones(500), eps)
        t = assign_labels(points, f)
        hinge, tube = np.maximum(0, 1 - np.abs(f)), np.maximum(0, np.abs(f) - eps)
        np.testing.assert_array_equal(t, np.where(hinge <= tube, np.sign(f), 0))
        np.testing.assert_array_equal(three_way(f, eps), t)
        counts.append(np.sum(t == 0))
    assert counts == sorted(counts) and counts[0] < counts[-1]


# -- convex problems -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["majorant", "dc", "relaxed", "indicators"])
@pytest.mark.parametrize("balance", [None, 0.2])
def test_a_convex_problem_has_the_optimum_of_a_generic_solver(kind, balance):
    K, points = tiny(2, U=4)
    t = np.where(points.unlabelled, np.resize([1.0, 0.0, -1.0, 0.0], points.n), points.labels)
    convex = {
        "majorant": lambda: majorant(points, t),
        "dc": lambda: concave_linearised(points, t),
        "relaxed": lambda: relaxed_problem(points, t, 2.0),
        "indicators": lambda: with_indicators(points, t, 2.5),
    }[kind]()
    points = replace(points, balance=balance)
    gram = DenseGram(K) if balance is None else with_mean(DenseGram(K), points.unlabelled)
    found = solve_convex(gram, points, convex, EXACT)
    assert abs(found.beta.sum()) <= 1e-9 * points.cost.sum() * 4
    np.testing.assert_allclose(found.product, gram.array @ found.beta, atol=1e-9)
    assert found.gap <= 1e-6
    # The same dual written out: rows of the matrix repeated, one more for the mean point, whose box is as good as none.
    rows = convex.rows if balance is None else np.append(convex.rows, points.n)
    free = [np.append(values, more) for values, more in ((convex.lo, -99.0), (convex.hi, 99.0), (convex.kink, 0.0))]
    lo, hi, kink = (convex.lo, convex.hi, convex.kink) if balance is None else free
    fixed = convex.fixed if balance is None else np.append(convex.fixed, 0.0)
    target = convex.target if balance is None else np.append(convex.target, balance)
    c = target - (gram.array @ fixed)[rows]
    best, _ = qp_optimum(gram.array[np.ix_(rows, rows)], c, lo, hi, kink, -fixed.sum())
    variables = solve_smo(DenseGram(gram.array[np.ix_(rows, rows)]), DualProblem(c, lo, hi, kink, -fixed.sum()), tol=EXACT)
    assert variables.objective == pytest.approx(best, rel=1e-6, abs=1e-6)
    if kind == "majorant" and balance is None:
        assert found.objective <= best + 1e-6
    if balance is not None:
        assert found.decision[points.unlabelled].mean() == pytest.approx(balance, abs=1e-9)
    again = np.bincount(rows, variables.beta, gram.n) + fixed
    np.testing.assert_allclose(gram.array @ again, found.product, atol=1e-4)


def hinge_sums(points, D, kind, t):
    """What a convex problem adds up, as the thesis prints it: (row, cost, slope, offset) of max(0, slope f + offset), and linear terms."""
    terms, slopes = [], np.zeros(points.n)
    for i in range(points.n):
        c, y = points.cost[i], points.labels[i]
        if not points.unlabelled[i]:
            terms += [(i, c, -y, 1.0)] if y else [(i, c, 1.0, -points.eps), (i, c, -1.0, -points.eps)]
            continue
        if kind == "dc":  # (|f| - eps)_+ + (|f| - 1)_+ - s f, s = 2 t
            edges, slopes[i] = [-points.eps, -1.0], -2.0 * t[i] * c
        elif kind == "all relevant":  # H_1(|f|) = (|f| - 1)_+ + 1 - |f|
            edges, slopes[i] = [-1.0], -t[i] * c
        else:  # H_{1 - D (1 - d)}(+-f) + H_{-eps - D d}(+-f) - t f of (C.1), d = |t|; H_s(u) = max(0, s - u)
            d, slopes[i] = abs(t[i]), -t[i] * c
            edges = [1.0 - D * (1.0 - d), -points.eps - D * d]
        terms += [(i, c, side, edge) for edge in edges for side in (1.0, -1.0)]
    return terms, slopes


def written_out(X, terms, slopes):
    """min of 1/2 ||w||^2 + the terms over (w, b), by a generic solver with a slack for every hinge."""
    rows, cost, sides, edges = (np.array(column) for column in zip(*terms))
    rows, count, d = rows.astype(int), len(rows), X.shape[1]
    plane = np.hstack([X, np.ones((len(X), 1))])
    linear = np.concatenate([plane.T @ slopes, cost])
    at_least = np.hstack([-sides[:, None] * plane[rows], np.eye(count)])  # slack >= side f + edge
    found = minimize(
        lambda v: 0.5 * v[:d] @ v[:d] + linear @ v,
        np.concatenate([np.zeros(d + 1), np.maximum(edges, 0.0)]),
        jac=lambda v: np.concatenate([v[:d], np.zeros(1 + count)]) + linear,
        bounds=[(None, None)] * (d + 1) + [(0.0, None)] * count,
        constraints=[{"type": "ineq", "fun": lambda v: at_least @ v - edges, "jac": lambda v: at_least}],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    return found.fun


def sum_of(terms, slopes, form, f):
    return 0.5 * form + sum(c * max(0.0, side * f[i] + edge) for i, c, side, edge in terms) + slopes @ f


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["dc", "all relevant", "indicators"])
def test_a_sub_problem_minimises_the_formula_it_is_named_for(kind, seed):
    K, points = tiny(seed, U=4, eps=0.2)
    X = np.linalg.svd(K)[0] * np.sqrt(np.linalg.svd(K)[1])
    t = np.where(points.unlabelled, np.resize([1.0, -1.0, 0.0, 1.0], points.n), points.labels)
    if kind == "all relevant":
        points, t = replace(points, all_relevant=True), np.where(t == 0.0, np.where(points.unlabelled, -1.0, 0.0), t)
    convex = with_indicators(points, t, 2.5) if kind == "indicators" else concave_linearised(points, t)
    found = solve_convex(DenseGram(K), points, convex, EXACT)
    terms, slopes = hinge_sums(points, 2.5, kind, t)
    reached = sum_of(terms, slopes, found.beta @ found.product, found.decision)
    assert reached == pytest.approx(written_out(X[:, :3], terms, slopes), rel=1e-6, abs=1e-6)


def test_the_relaxed_sub_problem_minimises_over_indicators_too():
    """The least over d in [0, 1] of the four hinges, taken row by row on a fine grid of f, is what one tube of twice the cost gives."""
    K, points = tiny(3, U=4, eps=0.2)
    slopes = np.where(points.unlabelled, np.resize([1.0, -1.0, 0.0, 0.5], points.n), 0.0)
    D, d = 2.2, np.linspace(0.0, 1.0, 2201)
    found = solve_convex(DenseGram(K), points, relaxed_problem(points, slopes, D), EXACT)
    reached = found.beta @ found.product / 2 + known_losses(points, found.decision)
    for i in np.flatnonzero(points.unlabelled):
        f = found.decision[i]
        four = sum(np.maximum(0.0, edge - side * f) for edge in (1 - D * (1 - d), -points.eps - D * d) for side in (1.0, -1.0))
        reached += points.cost[i] * (four.min() - slopes[i] * f)
    X = np.linalg.svd(K)[0] * np.sqrt(np.linalg.svd(K)[1])
    terms, _ = hinge_sums(replace(points, unlabelled=np.zeros(points.n, bool), labels=points.labels), D, "", slopes)
    terms = [term for term in terms if not points.unlabelled[term[0]]]
    edge = 0.5 * (D - 1.0 + points.eps)  # where max(0, 2 |f| - (D - 1) - eps) leaves zero
    terms += [(i, 2.0 * points.cost[i], side, -edge) for i in np.flatnonzero(points.unlabelled) for side in (1.0, -1.0)]
    assert reached == pytest.approx(written_out(X[:, :3], terms, -points.cost * slopes), rel=2e-3)


@pytest.mark.parametrize("eps", [0.0, 0.25, 0.5])
def test_a_row_at_the_crossing_takes_the_hinge(eps):
    """(5.5): both losses are equal there; 0 with every row relevant is +1."""
    edge = crossing_point(eps)
    f = np.array([edge, -edge, np.nextafter(edge, 0.0), -np.nextafter(edge, 0.0), 0.0])
    points = Points(np.zeros(5), np.ones(5, bool), np.ones(5), eps)
    assert assign_labels(points, f).tolist() == [1.0, -1.0, 0.0, 0.0, 0.0]
    assert three_way(f, eps).tolist() == [1, -1, 0, 0, 0]
    assert assign_labels(replace(points, all_relevant=True), f).tolist() == [1.0, -1.0, 1.0, -1.0, 1.0]


def test_repeated_rows_are_those_of_the_matrix_written_out():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    K, places = X @ X.T + np.eye(60), np.concatenate([np.arange(60), rng.integers(0, 60, 50)])
    cap = rng.uniform(0.1, 1.0, 110)
    problem = DualProblem(rng.normal(size=110), -cap, cap, rng.uniform(0, 0.5, 110), 0.3)
    whole = solve_smo(DenseGram(K[np.ix_(places, places)]), problem, tol=1e-7)
    found = solve_smo(RepeatedGram(DenseGram(K), places), problem, tol=1e-7)
    assert found.converged and found.objective == pytest.approx(whole.objective, rel=1e-9)
    np.testing.assert_allclose(found.decision, (K[np.ix_(places, places)] @ found.beta), atol=1e-9)
    far = solve_smo(RepeatedGram(RepeatedGram(DenseGram(K), np.arange(60)), places), problem, tol=1e-7)
    assert far.objective == pytest.approx(whole.objective, rel=1e-7)


def test_the_relaxed_optimum_is_below_that_of_any_indicators():
    K, points = tiny(1)
    gram, slopes = DenseGram(K), np.zeros(points.n)
    low = solve_convex(gram, points, relaxed_problem(points, slopes, 2.0), EXACT)
    value = low.beta @ low.product / 2 + convex_loss(points, low, 0.5 * (1.0 + points.eps), 2.0)
    for bits in range(8):
        t = np.zeros(points.n)
        t[points.unlabelled] = [bits & 1, bits >> 1 & 1, bits >> 2 & 1]
        convex = replace(with_indicators(points, t, 2.0), fixed=slopes)
        found = solve_convex(gram, points, convex, EXACT)
        f, inside = found.decision, t == 0
        free = points.unlabelled
        losses = np.where(inside, np.maximum(np.abs(f) - points.eps, 0), 2 + np.maximum(np.abs(f) - 1, 0))
        losses += np.where(inside, np.maximum(np.abs(f) - 1, 0), np.maximum(np.abs(f) - points.eps - 2, 0))
        known = known_losses(points, f)
        fixed = found.beta @ found.product / 2 + known + points.cost[free] @ losses[free]
        assert value <= fixed + 1e-6


def known_losses(points, f):
    y, free = points.labels, points.unlabelled
    losses = np.where(y == 0, np.maximum(np.abs(f) - points.eps, 0), np.maximum(1 - y * f, 0))
    return float(points.cost[~free] @ losses[~free])


def convex_loss(points, machine, edge, weight):
    f, free = machine.decision, points.unlabelled
    return known_losses(points, f) + weight * float(points.cost[free] @ np.maximum(np.abs(f[free]) - edge, 0))


# -- searches --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["mm", "dc", "cccp"])
@pytest.mark.parametrize("balance", [None, 0.1])
def test_j_never_rises_and_every_number_belongs_to_the_machine(algorithm, balance):
    for seed in SEEDS:
        K, points = tiny(seed, U=8)
        points = replace(points, balance=balance)
        for start in ("svm3", "usvm", "s3vm", "1"):
            log = []
            last = ends(K, points, start, algorithm, log=log)
            values = [machine.objective for machine in [*log, last]]
            assert all(b <= a for a, b in pairwise(values))
            beta = last.beta[: points.n]
            f = last.decision
            if balance is None:
                np.testing.assert_allclose(f, K @ beta + last.bias, atol=1e-9)
                w2 = beta @ K @ beta
            else:
                assert f[points.unlabelled].mean() == pytest.approx(balance, abs=1e-8)
                w2 = last.beta @ last.product
            expected = oracle.objective(1.0, w2, f, points.labels, points.unlabelled, points.cost, points.eps)
            assert last.objective == pytest.approx(expected, rel=1e-9)
            assert abs(last.beta.sum()) <= 1e-9 * points.cost.sum()
            assert last.stop in ("assignment", "tol")


def test_at_the_end_the_assignment_stays_and_j_is_the_value_of_its_convex_problem():
    for seed in SEEDS:
        K, points = tiny(seed, U=8)
        last = ends(K, points)
        assert last.stop == "assignment"
        np.testing.assert_array_equal(assign_labels(points, last.decision), last.labels)
        again = solve_convex(DenseGram(K), points, majorant(points, last.labels), EXACT)
        best, _ = oracle.convex_optimum(K, last.labels, points.cost, points.eps)
        assert last.objective == pytest.approx(best, rel=1e-6) == again.objective
        assert last.violation <= EXACT and last.gap <= 1e-6


def test_a_search_ends_where_it_gains_less_than_its_tolerance_though_rows_still_move():
    K, points = tiny(0, U=8)
    gram = DenseGram(K)
    first = improve_machine(
        gram, points, permuted_start(points, labelled_machine(gram, points, EXACT), 1), SearchSettings("mm", EXACT, EXACT)
    )
    gain = first.objective - improve_machine(gram, points, first, SearchSettings("mm", EXACT, EXACT)).objective
    assert first.stop is None and gain > 0
    for factor, stop in ((0.9, None), (1.1, "tol")):
        search = SearchSettings("mm", factor * gain / (1.0 + first.objective - gain), EXACT)
        last = improve_machine(gram, points, first, search)
        assert last.flips > 0 and last.stop == stop


def test_no_search_is_below_the_enumerated_optimum_and_the_best_start_meets_it():
    met = 0
    for seed in range(2):
        K, points = tiny(seed)
        best = oracle.global_optimum(K, points.labels, points.unlabelled, points.cost, points.eps)
        found = [ends(K, points, start).objective for start in ("usvm", "svm3", "s3vm", "0", "1", "2")]
        assert min(found) >= best - 1e-6
        assert ends(K, points, "svm3", "dc").objective >= best - 1e-6
        assert ends(K, points, "usvm", "cccp").objective >= best - 1e-6
        met += min(found) <= best + 1e-6
    assert met == 2


def test_all_relevant_is_the_semi_supervised_machine():
    for seed in SEEDS[:3]:
        K, points = tiny(seed)
        points = replace(points, all_relevant=True)
        best = oracle.global_optimum(K, points.labels, points.unlabelled, points.cost, points.eps, pieces=(-1, 1))
        for algorithm in ("mm", "dc", "cccp"):
            last = ends(K, points, "svm3", algorithm)
            assert last.objective >= best - 1e-6
            assert set(last.labels[points.unlabelled]) <= {-1.0, 1.0}
        assert min(ends(K, points, start).objective for start in ("svm3", "s3vm", "0", "1", "2", "3")) <= best + 1e-6


class Parts:
    """A matrix that hands out entries between chosen variables and products, as workers would give them; never rows."""

    def __init__(self, K, size=8):
        self.K, self.n, self.dtype, self.room = K, len(K), K.dtype, int(1.6 * size**2)
        self.products = 0

    def diag(self):
        return np.diagonal(self.K).astype(np.float64)

    def matvec(self, v):
        self.products += 1
        return self.K.astype(np.float64) @ v

    def between(self, new, old):
        ids, places = np.concatenate([new, old]), np.arange(len(new) + len(old))
        for columns in np.array_split(places, 2):
            yield places[: len(new)], columns, self.K[np.ix_(new, ids[columns])]

    def rows(self, idx):
        raise AssertionError("rows were asked for")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matrices_made_of_parts_are_those_written_out(dtype):
    """With the mean of some points, with repeated rows, and with both; whatever is new and whatever was there."""
    rng, X = np.random.default_rng(0), np.random.default_rng(1).normal(size=(12, 4))
    K, free = (X @ X.T).astype(dtype), np.arange(12) >= 5
    mean, whole = with_mean(Parts(K), free), with_mean(DenseGram(K), free).array
    places = np.array([0, 3, 12, 7, 7, 12, 11, 1, 3])
    for gram, matrix in (
        (mean, whole),
        (repeated_gram(Parts(K), places % 12), K[np.ix_(places % 12, places % 12)]),
        (repeated_gram(mean, places), whole[np.ix_(places, places)]),
    ):
        assert isinstance(gram, PartGram) and gram.n == len(matrix) and gram.dtype == dtype
        np.testing.assert_allclose(gram.diag(), np.diagonal(matrix), rtol=1e-6)
        v = rng.normal(size=gram.n)
        np.testing.assert_allclose(gram.matvec(v), matrix.astype(np.float64) @ v, rtol=1e-6, atol=1e-6)
        for _ in range(20):
            ids = rng.permutation(gram.n)[: rng.integers(3, gram.n + 1)]
            fresh = rng.integers(1, len(ids) + 1)
            found = np.full((len(ids), len(ids)), np.nan)
            for rows, columns, values in gram.between(ids[:fresh], ids[fresh:]):
                assert values.dtype == dtype
                found[np.ix_(rows, columns)] = values
            found = np.where(np.isnan(found), found.T, found)
            expected = matrix[np.ix_(ids, ids)].astype(np.float64)
            expected[fresh:, fresh:] = np.nan
            both = ~np.isnan(expected)
            np.testing.assert_allclose(found[both], expected[both], rtol=1e-6, atol=1e-6)
    with pytest.raises(TypeError, match="gram: object"):
        with_mean(object(), free)


@pytest.mark.parametrize("balance", [None, 0.1])
@pytest.mark.parametrize("algorithm", ["mm", "dc", "cccp"])
def test_a_search_by_parts_ends_where_that_on_the_matrix_does(algorithm, balance):
    for seed in SEEDS[:3]:
        K, points = tiny(seed, U=14)
        K, points = K + 0.1 * np.eye(len(K)), replace(points, balance=balance)
        whole, gram = ends(K, points, "svm3", algorithm, tol=1e-8), Parts(K)
        far = ends(None, points, "svm3", algorithm, tol=1e-8, gram=gram)
        np.testing.assert_array_equal(far.labels, whole.labels)
        np.testing.assert_allclose(far.decision, whole.decision, atol=1e-5)
        assert far.objective == pytest.approx(whole.objective, rel=1e-7) and far.stop == whole.stop
        assert gram.products > far.solves


@pytest.mark.parametrize("algorithm", ["mm", "dc", "cccp"])
def test_a_tight_tolerance_bounds_the_gap_of_the_problem_that_ends_a_search(algorithm):
    """Decision values at the end against those of the convex problem that ended the search: 1e-3 in them alone leaves J far above its
    optimum, and the gap, half the squared distance in the space of the kernel at least, bounds both.
    """
    worst = {1e-4: 0.0, 1e-8: 0.0}
    for seed in SEEDS:
        K, points = tiny(seed, U=8)
        K, points = K + 0.1 * np.eye(len(K)), replace(points, cost=40.0 * points.cost)
        for tol in worst:
            search = SearchSettings(algorithm, tol, 1e-3)
            before = last = labelled_machine(DenseGram(K), points, 1e-3)
            while last.stop is None:
                before, last = last, improve_machine(DenseGram(K), points, last, search)
            problems = triclass_search._convex_problems(points, before, search)
            exact = [solve_convex(DenseGram(K), points, convex, 1e-12) for convex, _ in problems]
            changes = [last.beta - one.beta for one in exact]
            distance = min(0.5 * float(change @ K @ change) for change in changes)
            assert last.stop in ("assignment", "tol")
            assert last.gap <= tol * (1.0 + last.objective) or not search.certifies
            assert distance <= last.gap + 1e-9
            worst[tol] = max(worst[tol], distance / (1.0 + last.objective))
    assert worst[1e-8] <= 1e-8 < 1e-7 < worst[1e-4], "the looser pair is what it was"


def test_a_tolerance_beyond_rounding_is_told():
    K, points = tiny(0, U=8)
    gram = DenseGram(100.0 * K)
    last = labelled_machine(gram, points, 1e-3)
    while last.stop is None:
        last = improve_machine(gram, points, last, SearchSettings("mm", 1e-30, 1e-3))
    assert last.stop == "stalled" and last.gap <= 1e-6 * last.objective


# -- special cases and invariances -------------------------------------------------------------------------------------------


def test_without_unlabelled_weight_it_is_the_support_vector_machine():
    K, points = tiny(3)
    points = replace(points, cost=np.where(points.labels == 0, 0.0, 2.0))
    last, used = ends(K, points), np.flatnonzero(points.labels)
    peer = SVC(kernel="precomputed", C=2.0, tol=1e-9).fit(K[np.ix_(used, used)], points.labels[used])
    np.testing.assert_allclose(last.decision, peer.decision_function(K[:, used]), atol=1e-5)


def test_a_vanishing_unlabelled_weight_recovers_the_universum_machine():
    K, points = tiny(4)
    alone = labelled_machine(DenseGram(K), points, EXACT)
    near = ends(K, replace(points, cost=np.where(points.unlabelled, 1e-7, points.cost)))
    np.testing.assert_allclose(near.decision, alone.decision, atol=1e-4)
    best, _ = oracle.convex_optimum(K[:8, :8], points.labels[:8], points.cost[:8], points.eps)
    assert float(alone.beta @ alone.product) / 2 + known_losses(points, alone.decision) == pytest.approx(best, rel=1e-6)


def test_all_rows_at_zero_is_the_universum_machine_of_all_of_them():
    K, points = tiny(0)
    found = universum_machine(DenseGram(K), points, EXACT)
    best, _ = oracle.convex_optimum(K, points.labels, points.cost, points.eps)
    tubes = points.cost[points.unlabelled] @ np.maximum(np.abs(found.decision[points.unlabelled]) - points.eps, 0)
    assert found.beta @ found.product / 2 + known_losses(points, found.decision) + tubes == pytest.approx(best, rel=1e-6)


def test_a_large_weight_without_tube_leaves_every_row_outside_the_margin_or_on_the_boundary():
    for seed in SEEDS[:3]:
        K, points = tiny(seed, eps=0.0, r=1e4)
        f = ends(K + 1e-9 * np.eye(len(K)), points, tol=1e-7).decision[points.unlabelled]
        assert (np.minimum(np.abs(f), np.maximum(1 - np.abs(f), 0)) <= 1e-4).all()


@pytest.mark.parametrize("algorithm", ["mm", "dc", "cccp"])
def test_turning_all_labels_turns_the_machine(algorithm):
    K, points = tiny(1, U=8)
    one, other = (ends(K, replace(points, labels=side * points.labels), algorithm=algorithm) for side in (1, -1))
    np.testing.assert_allclose(other.decision, -one.decision, atol=1e-5)
    assert other.objective == pytest.approx(one.objective, rel=1e-9)


def test_a_row_twice_is_a_row_of_twice_the_weight():
    K, points = tiny(2)
    twice = np.append(np.arange(points.n), [2, 9])
    doubled = points.cost.copy()
    doubled[[2, 9]] *= 2
    a = ends(K, replace(points, cost=doubled))
    copies = Points(points.labels[twice], points.unlabelled[twice], points.cost[twice], points.eps)
    b = ends(K[np.ix_(twice, twice)], copies)
    np.testing.assert_allclose(b.decision[: points.n], a.decision, atol=1e-5)
    assert b.objective == pytest.approx(a.objective, rel=1e-7)


def test_the_order_of_rows_does_not_matter():
    K, points = tiny(3, U=8)
    order = np.random.default_rng(0).permutation(points.n)
    moved = replace(points, labels=points.labels[order], unlabelled=points.unlabelled[order], cost=points.cost[order])
    a, b = ends(K, points), ends(K[np.ix_(order, order)], moved)
    np.testing.assert_allclose(b.decision, a.decision[order], atol=1e-5)
    np.testing.assert_array_equal(b.labels, a.labels[order])


def test_flipped_rows_keep_the_sum_and_the_gradient():
    """Boxes all equal: rows jump from bound to bound when their assignment changes."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(130, 6))
    y = np.where(np.arange(130) < 30, np.where(X[:, 0] > 0, 1.0, -1.0), 0.0)
    K = np.exp(-0.1 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    points = Points(y, y == 0, np.full(130, 0.05), 0.1)
    for start in ("svm3", "s3vm", "7"):
        log = []
        last = ends(K, points, start, tol=1e-6, log=log)
        for machine in [*log, last]:
            assert abs(machine.beta.sum()) <= 1e-9 * points.cost.sum()
            np.testing.assert_allclose(machine.product, K @ machine.beta, atol=1e-12)
            assert (np.abs(machine.beta) <= points.cost).all()
