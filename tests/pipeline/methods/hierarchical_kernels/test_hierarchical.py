"""Hierarchical kernel learning: optima against a general-purpose solver, special cases, certificates, tasks, bad input."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.svm import SVC

from gramplane.kernels.grams.blocks import gram_block
from gramplane.kernels.graphs.norms import NodeSet, gauge
from gramplane.kernels.graphs.parsing import parse_graph
from gramplane.kernels.svm.dual import ridge_problem
from gramplane.pipeline import HierarchicalKernelClassifier, HierarchicalKernelRegressor, MKLClassifier, load_model, run_method
from gramplane.pipeline.inputs.scores import held_out_rows
from gramplane.pipeline.methods.hierarchical_kernels import restricted as hkl_master
from gramplane.pipeline.methods.hierarchical_kernels.machines import SharedMachines
from gramplane.pipeline.methods.hierarchical_kernels.restricted import RestrictedProblem
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest
from tests.kernels.svm.test_smo import Rows
from tests.support.oracles.hierarchy import primal_optimum

SUBSETS = "subsets(rbf(gamma=0.5))"
RHOS = (2.0, 1.5, 1.1)
every = pytest.mark.parametrize("rho", RHOS)


def drawn(seed=0, n=40, p=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.where(X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + 0.2 * rng.normal(size=n) > 0, 1, -1)


def listed(text, X, a=2.0):
    """All nodes of a graph, and their matrices."""
    dag = parse_graph(text, a, X.shape[1])
    keys, left = [], [dag.roots()[0]]
    while left:
        key = left.pop(0)
        if not any((key == one).all() for one in keys):
            keys.append(key)
            left += list(dag.children(key))
    nodes = NodeSet.empty(dag.width).with_hulls(np.stack(keys), dag.parents, dag.penalties)
    return dag, nodes, gram_block([dag.kernel(key) for key in nodes.keys], X)


# -- optima ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rho", "loss"), [(2.0, "squared_hinge"), (1.5, "squared"), (1.1, "squared_hinge")])
def test_optimum_of_the_whole_lattice(rho, loss):
    X, y = drawn(n=10)
    _, nodes, grams = listed(SUBSETS, X)
    # L-BFGS on a function with kinks comes within a few thousandths, from above.
    above = primal_optimum(nodes.hull, grams, y, rho, 2.0, loss)
    kind = HierarchicalKernelClassifier if loss == "squared_hinge" else HierarchicalKernelRegressor
    exact = kind(SUBSETS, rho=rho, C=2.0, loss=loss, n_add=1, tol=1e-5, scale=None).fit(X, y)
    assert exact.converged_
    assert exact.certificate_depth_ is None
    assert above * (1 - 4e-3) <= exact.objective_ <= above
    found = kind(SUBSETS, rho=rho, C=2.0, loss=loss, n_add=1, scale=None).fit(X, y)
    assert found.certificate_ <= 1e-3
    # A certificate is never below the true gap.
    assert found.objective_ - found.dual_gap_ <= exact.objective_ <= found.objective_ * (1 + 1e-5)


@every
def test_every_step_is_certified_truly_and_every_set_a_hull(rho):
    X, y = drawn(1, n=60)
    exact = HierarchicalKernelClassifier(SUBSETS, rho=rho, C=20.0, n_add=1, tol=1e-5, scale=None).fit(X, y)
    machine = HierarchicalKernelClassifier(SUBSETS, rho=rho, C=20.0, n_add=1, tol=1e-2, scale=None).fit(X, y)
    assert np.isfinite(machine.history_["gap"]).any()
    for objective, gap in zip(machine.history_["objective"], machine.history_["gap"], strict=True):
        assert objective >= exact.objective_ - exact.dual_gap_
        assert not objective - gap > exact.objective_
    held = {key.tobytes() for key in machine.nodes_}
    assert len(held) > 5
    for key in machine.nodes_:
        for j in np.flatnonzero(key):
            assert (key - np.eye(3, dtype=np.int64)[j]).tobytes() in held


@every
def test_one_node_is_a_machine_and_no_edges_are_multiple_kernel_learning(rho):
    X, y = drawn(2)
    one = HierarchicalKernelClassifier([{"name": "k", "kernel": "rbf(gamma=0.5)", "d": 3.0}], rho=rho, C=4.0, tol=1e-5, scale=None).fit(
        X, y
    )
    gram = gram_block([parse_graph([{"name": "k", "kernel": "rbf(gamma=0.5)"}]).kernel(np.array([0]))], X)[0] / 9.0
    machine = SVC(C=4.0, kernel="precomputed", tol=1e-8).fit(gram, y)
    beta = np.zeros(len(y))
    beta[machine.support_] = machine.dual_coef_[0]
    assert one.objective_ == pytest.approx(np.abs(beta).sum() - 0.5 * beta @ gram @ beta, rel=1e-4)
    assert one.kernel_weights_[0] == pytest.approx(1 / 9, rel=1e-6)
    kernels = ["rbf(gamma=0.5)[0:2]", "linear", "rbf(gamma=2.0)[2]"]
    d = [1.0, 1.5, 0.7]
    nodes = [{"kernel": k, "d": v} for k, v in zip(kernels, d, strict=True)]
    flat = HierarchicalKernelClassifier(nodes, rho=rho, C=1.0, tol=1e-4, scale=None).fit(X, y)
    scaled = np.stack(
        [gram_block([parse_graph([{"kernel": k}]).kernel(np.array([0]))], X)[0] / v**2 for k, v in zip(kernels, d, strict=True)]
    )
    rival = MKLClassifier("precomputed", constraint="simplex", normalize="none", tol=1e-4).fit(scaled, y)
    assert rival.lower_bound_ * (1 - 2e-4) <= flat.objective_ <= rival.upper_bound_ * (1 + 2e-4)


@pytest.mark.parametrize("solver", ["auto", "mirror"])
def test_work_that_a_step_cuts_off_is_not_done_and_goes_on(monkeypatch, solver):
    parts, run = [], RestrictedProblem.run

    def shorter(self, master, tol, max_solves=1):
        after, found = run(self, master, tol, 1)
        over = found.gap <= tol * abs(found.upper) or after.stale >= hkl_master.MAX_STALE_SOLVES or after.since >= self.max_solves
        parts.append((found.done, over))
        return after, found

    X, y = drawn(1, n=40)
    whole = HierarchicalKernelClassifier(SUBSETS, C=20.0, n_add=1, solver=solver, scale=None).fit(X, y)
    monkeypatch.setattr(RestrictedProblem, "run", shorter)
    cut = HierarchicalKernelClassifier(SUBSETS, C=20.0, n_add=1, solver=solver, scale=None).fit(X, y)
    assert all(done == over for done, over in parts) and {done for done, _ in parts} == {True, False}
    assert cut.stop_reason_ == whole.stop_reason_ and cut.objective_ == pytest.approx(whole.objective_, rel=2e-3)


def test_weights_are_ordered_along_edges_at_two_and_need_not_be_below():
    X, y = drawn(3, n=60)
    machine = HierarchicalKernelClassifier(SUBSETS, rho=2.0, C=20.0, scale=None).fit(X, y)
    place = {key.tobytes(): w for w, key in enumerate(machine.nodes_)}
    ordered = 0
    for w, key in enumerate(machine.nodes_):
        for j in np.flatnonzero(key):
            above = place[(key - np.eye(3, dtype=np.int64)[j]).tobytes()]
            if machine.nodes_[above].any():
                ordered += 1
                assert machine.kernel_weights_[w] <= machine.kernel_weights_[above] * (1 + 1e-3)
    assert ordered
    rng = np.random.default_rng(3)
    X = rng.normal(size=(100, 3))
    free = HierarchicalKernelClassifier(SUBSETS, rho=1.05, C=20.0, scale=None).fit(X, np.sign(X[:, 0] * X[:, 1]))
    weight = dict(zip(free.active_set_, free.kernel_weights_, strict=True))
    assert weight["rbf(gamma=0.5)[0] * rbf(gamma=0.5)[1]"] > min(weight["rbf(gamma=0.5)[0]"], weight["rbf(gamma=0.5)[1]"])


def test_optimum_grows_as_rho_falls_and_as_penalties_grow():
    X, y = drawn(4)
    by_rho = [HierarchicalKernelClassifier(SUBSETS, rho=rho, C=3.0, tol=1e-4, scale=None).fit(X, y) for rho in RHOS]
    by_a = [HierarchicalKernelClassifier(SUBSETS, a=a, C=3.0, tol=1e-4, scale=None).fit(X, y) for a in (1.5, 2.0, 3.0)]
    for found in (by_rho, by_a):
        for low, high in pairwise(found):
            assert high.objective_ >= low.objective_ * (1 - 1e-4)


@pytest.mark.parametrize("rho", [2.0, 1.1])
def test_mirror_descent_ends_at_the_same_optimum(rho):
    X, y = drawn(5)
    default, mirror = (
        HierarchicalKernelClassifier(SUBSETS, rho=rho, C=3.0, solver=name, scale=None).fit(X, y) for name in ("auto", "mirror")
    )
    assert mirror.converged_
    assert mirror.objective_ == pytest.approx(default.objective_, rel=1e-3)


def test_smoothing_spares_solves_near_one(monkeypatch):
    """Nodes of small norm come back from their smoothing: without it the two fits took 178 solves, with it 101."""
    solves, solved = [], RestrictedProblem._solve
    monkeypatch.setattr(RestrictedProblem, "_solve", lambda *given: (solves.append(1), solved(*given))[1])
    for data in (drawn(0, n=30, p=3), drawn(1, n=80, p=4)):
        assert HierarchicalKernelClassifier(SUBSETS, rho=1.02, C=3.0, tol=1e-5, scale=None).fit(*data).converged_
    assert len(solves) <= 1.3 * 101


def test_a_target_without_variation_is_its_constant():
    X, _ = drawn(5)
    for solver in ("auto", "mirror"):
        machine = HierarchicalKernelRegressor(SUBSETS, solver=solver, loss="squared", scale=None).fit(X, np.full(len(X), 2.0))
        assert machine.converged_
        np.testing.assert_allclose(machine.predict(X), 2.0, atol=1e-9)


def test_squared_machines_are_exact_to_a_ten_millionth_of_their_targets():
    """Whatever gap is aimed at: weights go by the forms of beta, which a loose system would blur."""
    for seed in range(12):
        X, _ = drawn(seed)
        K, t = gram_block([parse_graph([{"kernel": "rbf(gamma=0.5)"}]).kernel(np.array([0]))], X)[0], 10.0**seed * np.sin(2 * X[:, 0])
        problem = ridge_problem(t, np.full(40, 5.0))
        (found,) = SharedMachines((problem,), squared=True).solve(Rows(K), np.zeros((1, 40)), np.inf)
        left = t - K @ found.beta - problem.ridges() * found.beta - found.bias
        assert 2 * np.abs(left).max() <= 1.001e-7 * np.abs(t).max()


def test_norms_add_up_to_the_gauge_and_predictions_to_the_model():
    X, y = drawn(6)
    machine = HierarchicalKernelClassifier(SUBSETS, C=3.0, tol=1e-5, scale=None).fit(X, y)
    dag, _, _ = listed(SUBSETS, X)
    nodes = NodeSet.empty(3).with_hulls(machine.nodes_, dag.parents, dag.penalties)
    np.testing.assert_array_equal(nodes.keys, machine.nodes_)
    beta = np.zeros(len(y))
    beta[machine.support_vectors_] = machine.dual_coef_[0]
    grams = gram_block([dag.kernel(key) for key in machine.nodes_], X)
    forms = np.array([beta @ gram @ beta for gram in grams])
    omega = gauge(nodes.hull, machine.kernel_weights_ * np.sqrt(np.maximum(forms, 0.0)), 1.5)
    assert machine.kernel_weights_ @ forms == pytest.approx(omega**2, rel=1e-3)
    Z = np.random.default_rng(0).normal(size=(9, 3))
    across = gram_block([dag.kernel(key) for key in machine.nodes_], Z, X)
    expected = np.einsum("w,wij,j->i", machine.kernel_weights_, across, beta) + machine.intercept_[0]
    np.testing.assert_allclose(machine.decision_function(Z), expected, rtol=1e-9)


def test_a_node_behind_a_quiet_one_is_found_in_a_graph_without_bounds():
    X, _ = drawn(9, n=60)
    chain = {"a": "rbf(gamma=0.5)[0]", "b": ("linear[1]", ["a"]), "c": ("linear[2]", ["b"])}
    X, y = X * [1.0, 1e-3, 1.0], np.where(X[:, 2] > 0, 1, -1)
    machine = HierarchicalKernelClassifier(chain, a=1.2, C=5.0, normalize="none", scale=None).fit(X, y)
    assert machine.converged_ and machine.certificate_depth_ is None
    assert machine.active_set_[-1] == "linear[2]" and machine.score(X, y) > 0.9


# -- graphs too large to list ------------------------------------------------------------------------------------------------------


def test_a_planted_product_is_found_among_a_million_nodes():
    X, y = drawn(7, n=150, p=20)
    machine = HierarchicalKernelClassifier("subsets(gaussian(width=2.0))", C=1.0, tol=1e-2, n_add=20, rho=1.2, a=3.0, scale=None).fit(X, y)
    assert machine.converged_
    assert machine.history_["objective"][-1] <= machine.history_["objective"][0]
    assert len(machine.active_set_) < 100


def test_a_search_that_is_cut_off_says_down_to_which_depth():
    X, y = drawn(8, n=40, p=8)
    machine = HierarchicalKernelClassifier("grid(monomial(degree=2))", normalize="trace", max_visits=30, tol=1e-2, scale=None).fit(X / 3, y)
    assert machine.certificate_depth_ in (1, 2) and machine.certificate_ <= 1e-2
    assert machine.stop_reason_ == "depth" and not machine.converged_
    with pytest.warns(ConvergenceWarning, match="max_nodes"):
        capped = HierarchicalKernelClassifier(SUBSETS, C=20.0, max_nodes=4, n_add=1, scale=None).fit(X, y)
    assert len(capped.active_set_) == 4
    assert capped.certificate_ > 1e-3


# -- tasks and classes -------------------------------------------------------------------------------------------------------------


def test_one_task_is_no_task():
    X, y = drawn(9)
    plain, single = (
        HierarchicalKernelClassifier(SUBSETS, C=3.0, tol=1e-4, scale=None).fit(X, y, task) for task in (None, np.zeros(len(y), int))
    )
    assert single.objective_ == pytest.approx(plain.objective_, rel=2e-4)
    np.testing.assert_allclose(single.decision_function(X, np.zeros(len(y), int)), plain.decision_function(X), atol=0.05)


def test_tasks_with_the_same_rows_predict_the_same_and_one_kernel_over_tasks_pools_them():
    X, y = drawn(10, n=30)
    twice, tasks = np.vstack([X, X]), np.repeat(["b", "a"], 30)
    apart = HierarchicalKernelClassifier(SUBSETS, C=2.0, tol=1e-4, scale=None).fit(twice, np.tile(y, 2), tasks)
    assert apart.tasks_.tolist() == ["a", "b"]
    a, b = (apart.decision_function(X, [name] * 30) for name in "ab")
    np.testing.assert_allclose(a, b, atol=0.02)
    pooled = HierarchicalKernelClassifier(SUBSETS, C=2.0, tol=1e-4, task_kernel=np.ones((2, 2)), scale=None).fit(
        twice, np.tile(y, 2), tasks
    )
    whole = HierarchicalKernelClassifier(SUBSETS, C=2.0, tol=1e-4, scale=None).fit(twice, np.tile(y, 2))
    assert pooled.objective_ == pytest.approx(whole.objective_, rel=3e-4)
    mean = HierarchicalKernelClassifier(SUBSETS, C=2.0, tol=1e-4, task_kernel=1e-3, scale=None).fit(twice, np.tile(y, 2), tasks)
    assert mean.objective_ < apart.objective_


def test_a_task_of_one_label_predicts_it():
    X, y = drawn(11, n=40)
    tasks = np.arange(40) % 2
    y = np.where(tasks == 1, 1, y)
    for table in (None, np.eye(2) + 0.2):
        machine = HierarchicalKernelClassifier(SUBSETS, C=2.0, task_kernel=table, scale=None).fit(X, y, tasks)
        assert (machine.predict(X[tasks == 1], tasks[tasks == 1]) == 1).all()
    with pytest.raises(ValueError, match="task 7 was not there"):
        machine.predict(X, np.full(40, 7))


def test_classes_share_their_kernels():
    X, _ = drawn(12, n=60)
    y = np.array(["u", "v", "w"])[(X[:, 0] > 0.4).astype(int) + (X[:, 1] * X[:, 0] > 0)]
    machine = HierarchicalKernelClassifier(SUBSETS, C=5.0, scale=None).fit(X, y)
    assert machine.kernel_weights_.shape == (len(machine.active_set_),)
    # The weights are those of all classes: each class is the machine of one against the rest on the one weighted kernel.
    dag = parse_graph(SUBSETS, 2.0, 3)
    gram = np.tensordot(machine.kernel_weights_, gram_block([dag.kernel(key) for key in machine.nodes_], X), 1)
    alone = [SVC(C=5.0, kernel="precomputed", tol=1e-8).fit(gram, y == name).decision_function(gram) for name in "uvw"]
    np.testing.assert_allclose(machine.decision_function(X), np.stack(alone, axis=1), atol=5e-3)
    assert (machine.predict(X) == np.array(["u", "v", "w"])[np.argmax(alone, axis=0)]).all()
    with pytest.raises(ValueError, match="without tasks"):
        machine.predict(X, np.zeros(60))


def test_regression_with_tasks_and_all_losses():
    X, _ = drawn(13, n=50)
    t = np.sin(2 * X[:, 0]) * X[:, 1]
    tasks = np.arange(50) % 2
    for loss in ("squared", "epsilon_insensitive"):
        plain = HierarchicalKernelRegressor(SUBSETS, C=10.0, loss=loss, tol=1e-3, scale=None).fit(X, t)
        assert plain.converged_
        assert plain.score(X, t) > 0.3
        joint = HierarchicalKernelRegressor(SUBSETS, C=10.0, loss=loss, tol=1e-3, task_kernel=1.0, scale=None).fit(X, t, tasks)
        assert joint.converged_
        assert joint.score(X, t, task=tasks) > 0.2


# -- invariances -------------------------------------------------------------------------------------------------------------------


def test_order_of_rows_and_form_of_data_do_not_matter():
    X, y = drawn(14)
    first = HierarchicalKernelClassifier(SUBSETS, C=3.0, tol=1e-4, scale=None).fit(X, y)
    order = np.random.default_rng(0).permutation(len(y))
    second = HierarchicalKernelClassifier(SUBSETS, C=3.0, tol=1e-4, scale=None).fit(X[order], y[order])
    assert second.objective_ == pytest.approx(first.objective_, rel=1e-4)
    np.testing.assert_allclose(second.decision_function(X), first.decision_function(X), atol=0.02)
    for other in (sp.csr_array(X), sp.csc_matrix(X)):
        np.testing.assert_allclose(clone(first).fit(other, y).decision_function(X), first.decision_function(X), atol=1e-6)
    again = clone(first).set_params(grams="recompute").fit(X, y)
    assert again.decision_function(X).tobytes() == first.decision_function(X).tobytes()


def test_a_graph_in_all_its_forms():
    X, y = drawn(15)
    entries = [
        {"name": "a", "kernel": "rbf(gamma=0.5)[0]"},
        {"name": "b", "kernel": "rbf(gamma=0.5)[1]"},
        {"name": "ab", "kernel": "rbf(gamma=0.5)[0] * rbf(gamma=0.5)[1]", "parents": ["a", "b"]},
    ]
    short = {"a": "rbf(gamma=0.5)[0]", "b": "rbf(gamma=0.5)[1]", "ab": ("rbf(gamma=0.5)[0] * rbf(gamma=0.5)[1]", ["a", "b"])}
    given = [entries, short, parse_graph(entries), Wrapped(parse_graph(entries))]
    found = [HierarchicalKernelClassifier(dag, C=3.0, scale=None).fit(X, y) for dag in given]
    assert len({machine.decision_function(X).tobytes() for machine in found}) == 1
    assert found[0].active_set_[:2] == ["rbf(gamma=0.5)[0]", "rbf(gamma=0.5)[1]"]


class Wrapped:
    """A graph by its protocol alone."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    width = property(lambda self: self.inner.width)
    size = property(lambda self: self.inner.size)
    shrinks = property(lambda self: self.inner.shrinks)

    def roots(self):
        return self.inner.roots()

    def children(self, key):
        return self.inner.children(key)

    def parents(self, key):
        return self.inner.parents(key)

    def depth(self, keys):
        return self.inner.depth(keys)

    def penalties(self, keys):
        return self.inner.penalties(keys)

    def kernel(self, key):
        return self.inner.kernel(key)

    def below(self, key):
        return self.inner.below(key)


# -- bad input ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"rho": 1.0}, "rho"),
        ({"rho": 2.1}, "rho"),
        ({"a": 0.0}, "a"),
        ({"C": -1.0}, "C"),
        (
            {"dag": [{"name": "a", "kernel": "linear", "parents": ["b"]}, {"name": "b", "kernel": "linear", "parents": ["a"]}]},
            "cycle: a -> b -> a",
        ),
        ({"dag": [{"name": "a", "kernel": "linear", "parents": ["z"]}]}, "no parent 'z'"),
        ({"dag": [{"name": "a", "kernel": "linear", "d": -2.0}]}, "d=-2.0"),
        ({"dag": "subsets(linear[0:9])"}, "column"),
        ({"dag": "tree(linear)"}, "must be of the form"),
        ({"dag": "subsets(spectrum(k=2))"}, "spectrum"),
        ({"loss": "squared"}, "loss='squared'"),
        ({"task_kernel": [[1.0]]}, "task_kernel needs the task"),
        ({"normalize": "cosine"}, "normalize"),
    ],
)
def test_bad_parameters_are_named(params, words):
    X, y = drawn()
    with pytest.raises(ValueError, match=words):
        HierarchicalKernelClassifier(**params).fit(X, y)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (np.ones((3, 3)), "shape"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "positive semi-definite"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (-1.0, "task_kernel"),
    ],
)
def test_bad_task_kernels_are_named(table, words):
    X, y = drawn()
    with pytest.raises(ValueError, match=words):
        HierarchicalKernelClassifier(SUBSETS, task_kernel=table, scale=None).fit(X, y, np.arange(len(y)) % 2)


# -- runs --------------------------------------------------------------------------------------------------------------------------


def test_a_report_counts_columns_as_their_file_does(tmp_path):
    """SVMlight counts from one: the first column is x1 in every table, also as the columns of a kernel."""
    X, y = drawn(16)
    lines = (f"{label} {' '.join(f'{j}:{x!r}' for j, x in enumerate(row, 1))}" for label, row in zip(y, X.tolist(), strict=True))
    (tmp_path / "rows.svm").write_text("\n".join(lines) + "\n")
    store = ingest(tmp_path / "rows.svm", tmp_path / "rows.zarr")
    run_method("hierarchical-kernels", {"C": 3.0}, data=store.url, run=str(tmp_path / "run"))
    kernels = [row["kernel"] for row in RunStore.open(tmp_path / "run").read_json("tables")["kernels"]]
    assert kernels and all("[x" in name and "x0" not in name for name in kernels)


def test_a_run_is_the_fit_and_loads_with_and_without_tasks(tmp_path):
    X, y = drawn(16)
    plain = ingest((X, y), tmp_path / "plain.zarr")
    run_method("hierarchical-kernels", {"dag": SUBSETS, "C": 3.0, "scale": None}, data=plain.url, run=str(tmp_path / "run"))
    fitted = HierarchicalKernelClassifier(SUBSETS, C=3.0, scale=None).fit(X, y)
    loaded = load_model(tmp_path / "run")
    assert loaded.decision_function(X).tobytes() == fitted.decision_function(X).tobytes()
    assert loaded.active_set_ == fitted.active_set_
    assert loaded.certificate_ == fitted.certificate_
    tables = RunStore.open(tmp_path / "run").read_json("tables")
    for row in tables["depths"]:
        here = [kernel for kernel in tables["kernels"] if kernel["depth"] == row["depth"]]
        assert [row[name] for name in ("weight", "norm_share")] == pytest.approx(
            [sum(k[name] for k in here) for name in ("weight", "norm_share")]
        )
    assert sum(row["norm_share"] for row in tables["depths"]) == pytest.approx(1.0)
    assert sum(row["nodes"] for row in tables["depths"]) == len(loaded.nodes_) and len(tables["depths"]) > 1


def test_regressions_hold_rows_out_too(tmp_path):
    X, _ = drawn(18)
    store = ingest((X, X[:, 0] * X[:, 1]), tmp_path / "data.zarr", task="regression")
    done = run_method(
        "hierarchical-kernels",
        {"dag": SUBSETS, "C": 20.0, "tol": 1e-4, "scale": None},
        data=store.url,
        run=str(tmp_path / "run"),
        extra={"test_share": 0.25},
    )
    model, target = load_model(tmp_path / "run"), X[:, 0] * X[:, 1]
    assert isinstance(model, HierarchicalKernelRegressor)
    out = held_out_rows({"test_share": 0.25}, target, 0, None)
    assert out.sum() == 10
    for rows, name in ((~out, "train_r2"), (out, "test_r2")):
        assert done.summary[name] == pytest.approx(r2_score(target[rows], model.predict(X[rows])), abs=1e-6)
    # Rows held out take no part: the machine is that of the others.
    alone = HierarchicalKernelRegressor(SUBSETS, C=20.0, tol=1e-4, scale=None).fit(X[~out], target[~out])
    np.testing.assert_allclose(model.predict(X), alone.predict(X), atol=5e-3)
