"""Shared-subspace kernel learning: generic optimum, certificates, invariances, policies, both rivals, bad input."""

import tracemalloc

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR

from gramplane.cluster import MemoryBoundExceeded, open_executor
from gramplane.kernels.jit import compile_at_once
from gramplane.pipeline import run_method
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.grams.plans import GramPasses
from gramplane.pipeline.inputs.tasks import with_tasks
from gramplane.pipeline.methods.mkl.estimator import MKLRegressor
from gramplane.pipeline.methods.shared_subspace_mkl.config import SharedSubspaceConfig
from gramplane.pipeline.methods.shared_subspace_mkl.estimator import SharedSubspaceMKLClassifier, SharedSubspaceMKLRegressor
from gramplane.pipeline.methods.shared_subspace_mkl.method import SharedSubspace
from gramplane.storage import DataError, MemoryBlocks
from gramplane.storage.ingest import ingest
from tests.support.driver_memory import write_store
from tests.support.oracles import shared_subspace as oracle

COLUMNS = ([0, 1], [2, 3, 4], [0, 4, 5])
KERNELS = ["linear[0,1]", "linear[2,3,4]", "linear[0,4,5]"]
MIXED = ["rbf(gamma=0.3)", "linear[0,1]", "poly(degree=2)[2,3]"]
SOLVERS = ("auto", "mirror", "alternate")


def problem(n=24, T=4, seed=0):
    """Rows of tasks in no order; tasks differ in scale and bias."""
    rng = np.random.default_rng(seed)
    X, task = rng.normal(size=(n, 6)), rng.permutation(np.arange(n) % T)
    z = X @ [1.0, -1.0, 0.5, 0, 0, 0.3] * (1 + 0.3 * task) + task + 0.2 * rng.normal(size=n)
    return X, z, task


def labelled(z, task):
    return np.where(z > task, 1.0, -1.0)


def fitted(kind, X, y, task, **options):
    options = {"kernels": KERNELS, "normalize": "none", "scale": None, "tol": 1e-3, "max_iter": 100, "C": 0.7, **options}
    return kind(**options).fit(X, y, task)


def parts_of(model, X):
    """The weights W_j of linear kernels on the columns."""
    coef = np.zeros(len(X))
    coef[model.support_vectors_] = model.dual_coef_
    codes = np.searchsorted(model.tasks_, TASK)
    apart = coef[:, None] * (codes[:, None] == np.arange(len(model.tasks_)))
    return [X[:, columns].T @ apart @ D for columns, D in zip(COLUMNS, model.task_weights_)], coef


X, Z, TASK = problem()
FEATURES = [X[:, columns] for columns in COLUMNS]


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0])
def test_the_optimum_is_that_of_a_generic_solver(q):
    best = oracle.optimum(FEATURES, Z, TASK, q, 0.7)
    found = fitted(SharedSubspaceMKLRegressor, X, Z, TASK, q=q, loss="squared", tol=1e-4)
    assert found.lower_bound_ - 1e-7 * best <= best <= found.upper_bound_ + 1e-7 * best
    assert found.upper_bound_ == pytest.approx(best, rel=2e-4) and found.converged_
    traces = found.kernel_weights_
    assert (traces.max() if q == 2 else np.sum(traces ** (q / (2 - q)))) == pytest.approx(1.0)


@pytest.mark.parametrize("loss", ["squared", "epsilon_insensitive", "hinge"])
@pytest.mark.parametrize(("q", "solver"), [(1.0, "auto"), (1.5, "auto"), (1.5, "mirror"), (2.0, "mirror")])
def test_bounds_hold_by_the_definition_of_primal_and_dual(loss, q, solver):
    kind, y = (SharedSubspaceMKLClassifier, labelled(Z, TASK)) if loss == "hinge" else (SharedSubspaceMKLRegressor, Z)
    found = fitted(kind, X, y, TASK, q=q, loss=loss, solver=solver, tol=1e-2)
    parts, coef = parts_of(found, X)
    primal = oracle.primal(parts, found.intercept_, FEATURES, y, TASK, q, 0.7, loss)
    assert found.objective_ == pytest.approx(primal, rel=1e-5) and (found.dual_gap_ <= 1.01e-2 * primal) == found.converged_
    values = found.decision_function(X, TASK) if loss == "hinge" else found.predict(X, TASK)
    np.testing.assert_allclose(values, oracle.values(parts, FEATURES, TASK) + found.intercept_[TASK], atol=1e-6 * np.abs(values).max())
    own = max(oracle.dual(s * coef, FEATURES, y, TASK, q, 0.7, loss) for s in (1.0, 0.99, 0.9))
    assert own <= found.upper_bound_ and found.lower_bound_ >= own - 1e-5 * primal


@pytest.mark.parametrize("loss", ["squared", pytest.param("epsilon_insensitive", marks=pytest.mark.slow)])
def test_the_solvers_agree(loss):
    single = {"kernels": ["rbf(gamma=0.3)"], "loss": loss, "tol": 5e-3}
    found = [fitted(SharedSubspaceMKLRegressor, X, Z, TASK, solver=solver, **single) for solver in SOLVERS]
    for one in found:
        for other in found:
            assert one.lower_bound_ <= other.upper_bound_ * (1 + 1e-6)
        assert one.objective_ == pytest.approx(found[0].objective_, rel=5e-3)
    several = [fitted(SharedSubspaceMKLRegressor, X, Z, TASK, kernels=MIXED, loss=loss, solver=s, tol=5e-3) for s in SOLVERS[:2]]
    assert several[0].objective_ == pytest.approx(several[1].objective_, rel=5e-3)


def test_alternation_uses_the_average_kernel():
    K = sum(F @ F.T for F in FEATURES)[None] / 3
    one = SharedSubspaceMKLRegressor("precomputed", C=0.7, normalize="none", loss="squared", tol=1e-3).fit(K, Z, TASK)
    found = fitted(SharedSubspaceMKLRegressor, X, Z, TASK, solver="alternate", loss="squared", tol=5e-3, max_iter=60)
    assert found.objective_ == pytest.approx(one.objective_, rel=3e-2)
    np.testing.assert_allclose(found.kernel_weights_, 1 / 3)
    np.testing.assert_allclose(found.predict(X, TASK), one.predict(K, TASK), atol=0.2 * Z.std())


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0])
def test_one_task_and_one_kernel_are_a_support_vector_machine(q):
    y = labelled(Z, Z.mean())
    machine = SVC(C=0.7, gamma=0.3, tol=1e-6).fit(X, y)
    found = fitted(SharedSubspaceMKLClassifier, X, y, None, kernels=["rbf(gamma=0.3)"], q=q)
    np.testing.assert_allclose(found.decision_function(X), machine.decision_function(X), atol=5e-3)
    machine = SVR(C=0.7 * Z.std(), gamma=0.3, tol=1e-6, epsilon=0.1 * Z.std()).fit(X, Z)
    found = fitted(SharedSubspaceMKLRegressor, X, Z, None, kernels=["rbf(gamma=0.3)"], q=q)
    np.testing.assert_allclose(found.predict(X), machine.predict(X), atol=2e-2)


@pytest.mark.parametrize(("q", "p"), [(1.0, 1.0), (1.5, 3.0)])
def test_one_task_is_kernel_learning_with_a_norm(q, p):
    found = fitted(SharedSubspaceMKLRegressor, X, Z, None, q=q)
    other = MKLRegressor(KERNELS, constraint="lp", p=p, C=0.7, normalize="none", tol=1e-5, scale=None).fit(X, Z)
    assert found.objective_ == pytest.approx(other.objective_, rel=1e-3)
    np.testing.assert_allclose(found.kernel_weights_, other.kernel_weights_, atol=5e-2)


def test_permuted_tasks_kernels_and_rows_permute_the_solution_and_rotations_leave_it():
    tight = {"loss": "squared", "tol": 3e-4}
    found = fitted(SharedSubspaceMKLRegressor, X, Z, TASK, **tight)
    renamed = fitted(SharedSubspaceMKLRegressor, X, Z, 10 - TASK, **tight)
    np.testing.assert_allclose(renamed.task_weights_[:, ::-1, ::-1], found.task_weights_, atol=1e-2)
    turned = fitted(SharedSubspaceMKLRegressor, X, Z, TASK, kernels=KERNELS[::-1], **tight)
    np.testing.assert_allclose(turned.task_weights_[::-1], found.task_weights_, atol=1e-2)
    order = np.argsort(TASK, kind="stable")
    sorted_ = fitted(SharedSubspaceMKLRegressor, X[order], Z[order], TASK[order], **tight)
    np.testing.assert_allclose(sorted_.predict(X, TASK), found.predict(X, TASK), atol=2e-2 * Z.std())
    Q = np.linalg.qr(np.random.default_rng(3).normal(size=(2, 2)))[0]
    rotated = X.copy()
    rotated[:, [2, 3]] = X[:, [2, 3]] @ Q
    both = [
        fitted(SharedSubspaceMKLRegressor, data, Z, TASK, kernels=["linear[2,3]", "rbf(gamma=1)[2,3]"], **tight) for data in (X, rotated)
    ]
    assert both[0].objective_ == pytest.approx(both[1].objective_, rel=3e-4)


def test_a_duplicate_kernel_leaves_the_optimum_for_q_1_and_the_optimum_moves_with_q_and_C_as_it_must():
    tight = {"loss": "squared", "tol": 1e-3}
    once = fitted(SharedSubspaceMKLRegressor, X, Z, TASK, q=1.0, **tight)
    twice = fitted(SharedSubspaceMKLRegressor, X, Z, TASK, q=1.0, kernels=[*KERNELS, KERNELS[0]], **tight)
    assert once.objective_ == pytest.approx(twice.objective_, rel=1e-3)
    by_q = [fitted(SharedSubspaceMKLRegressor, X, Z, TASK, q=q, **tight).objective_ for q in (1.0, 1.5, 2.0)]
    by_C = [fitted(SharedSubspaceMKLRegressor, X, Z, TASK, C=C, **tight).objective_ for C in (0.1, 0.7, 3.0)]
    assert all(np.diff(by_q) < 0) and all(np.diff(by_C) > 0)


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_iterate_is_feasible_and_bounded(q, solver):
    inputs = with_tasks(SharedSubspaceMKLRegressor(MIXED, scale=None)._inputs(X, Z), TASK)
    config = SharedSubspaceConfig(kernels=MIXED, q=q, solver=solver, tol=1e-9, max_iter=6, loss="squared")
    with open_executor(None) as executor:
        ctx = RunContext(executor, data=inputs.data)
        method = SharedSubspace()
        found = method.problem(config, inputs, ctx)
        state = method.init(found, ctx)
        power = np.inf if q == 2 else q / (2 - q)
        while state.stop is None:
            for D in (state.coupling, state.best_coupling):
                traces = np.trace(D, axis1=1, axis2=2)
                assert (traces.max() if q == 2 else np.sum(traces**power)) == pytest.approx(1.0)
                assert np.linalg.eigvalsh(D).min() >= -1e-12
            before, state = state, method.step(found, state, ctx).state
            assert state.lower <= state.upper and state.lower >= before.lower
            assert state.upper <= before.upper * (1 + 1e-6)


def test_where_entries_lie_changes_no_bit(tmp_path):
    store = ingest((X, Z), tmp_path / "data.zarr", task="regression", task_column=TASK)
    found = [
        SharedSubspaceMKLRegressor(MIXED, grams=policy, gram_store=str(tmp_path / "grams"), scale=None).fit(store)
        for policy in ("memory", "store", "recompute")
    ]
    arrays = SharedSubspaceMKLRegressor(MIXED, scale=None).fit(X, Z, TASK)
    for other in (*found[1:], arrays):
        assert other.task_weights_.tobytes() == found[0].task_weights_.tobytes()
        assert other.predict(X, TASK).tobytes() == found[0].predict(X, TASK).tobytes()


def test_a_task_with_one_label_predicts_it_and_leaves_the_others_alone():
    y = labelled(Z, TASK)
    y[TASK == 2] = 1.0
    found = fitted(SharedSubspaceMKLClassifier, X, y, TASK, tol=1e-7)
    np.testing.assert_allclose(found.decision_function(X, np.full(len(X), 2)), 1.0, atol=1e-9)
    assert found.intercept_[2] == 1.0
    rest = TASK != 2
    other = fitted(SharedSubspaceMKLClassifier, X[rest], y[rest], TASK[rest], tol=1e-7)
    assert found.converged_ and other.converged_ and found.objective_ == pytest.approx(other.objective_, rel=2e-7)
    np.testing.assert_allclose(found.decision_function(X[rest], TASK[rest]), other.decision_function(X[rest], TASK[rest]), atol=2e-4)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 ended the fit before tol=0.001"):
        SharedSubspaceMKLClassifier(KERNELS, max_iter=1, scale=None).fit(X, labelled(Z, TASK), TASK)


def test_weights_zero_leave_rows_out_and_whole_numbers_repeat_them():
    weight = np.where(np.arange(len(X)) < 4, 0.0, 1.0)
    out = fitted(SharedSubspaceMKLRegressor, X, Z, TASK, loss="squared")
    left = SharedSubspaceMKLRegressor(KERNELS, normalize="none", loss="squared", C=0.7, scale=None).fit(X, Z, TASK, sample_weight=weight)
    rest = SharedSubspaceMKLRegressor(KERNELS, normalize="none", loss="squared", C=0.7, scale=None).fit(X[4:], Z[4:], TASK[4:])
    assert left.objective_ == pytest.approx(rest.objective_, rel=2e-3) and left.objective_ < out.objective_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q": 0.9}, "q.*at least 1"),
        ({"q": 2.1}, "q.*at most 2"),
        ({"solver": "level"}, "solver.*'auto', 'mirror' or 'alternate'"),
        ({"loss": "hinge"}, "the target holds real numbers"),
        ({"grams": "store"}, "grams='store' needs gram_store"),
    ],
)
def test_bad_parameters_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SharedSubspaceMKLRegressor(KERNELS, **options, scale=None).fit(X, Z, TASK)


def test_bad_tasks_are_refused():
    model = SharedSubspaceMKLRegressor(KERNELS, scale=None)
    with pytest.raises(DataError, match="task 3 has no row"):
        model.fit(X, Z, TASK, sample_weight=(TASK != 3).astype(float))
    with pytest.raises(ValueError, match="task 9 was not there at fit"):
        model.fit(X, Z, TASK).predict(X[:1], [9])


@pytest.mark.parametrize(
    ("solver", "memory", "message"),
    [("auto", 8000, "forms of pairs of tasks"), ("mirror", 8000, "24 pooled rows"), ("mirror", 12_000, "'auto' needs none")],
)
def test_what_the_driver_cannot_hold_is_said_before_work_starts(solver, memory, message):
    inputs = with_tasks(SharedSubspaceMKLRegressor(MIXED, scale=None)._inputs(X, Z), TASK)
    config = SharedSubspaceConfig(kernels=MIXED, solver=solver)
    with open_executor(None) as executor, pytest.raises(MemoryBoundExceeded, match=message):
        SharedSubspace().problem(config, inputs, RunContext(executor, data=MemoryBlocks(X), driver_memory=memory))


def test_a_step_of_a_pass_is_planned_with_the_forms_of_all_pairs_of_tasks():
    planned = {}
    for tasks in (TASK, TASK % 2):
        inputs = with_tasks(SharedSubspaceMKLRegressor(MIXED, scale=None)._inputs(X, Z), tasks)
        with open_executor(None) as executor:
            ctx = RunContext(executor, data=inputs.data)
            found = SharedSubspace().problem(SharedSubspaceConfig(kernels=MIXED, grams="recompute"), inputs, ctx)
            planned[found.n_tasks] = GramPasses(inputs.data, found.specs, found.settings, ctx).task_forms(2, found.n_tasks)
    # Entries of two vectors, in two numbers each, four times: what a step holds, and what it adds.
    assert planned[4] - planned[2] == 4 * 2 * 2 * 8 * len(MIXED) * (4**2 - 2**2)


def test_the_plan_tells_tasks_and_the_bytes_of_the_pooled_matrix():
    inputs = with_tasks(SharedSubspaceMKLRegressor(MIXED, scale=None)._inputs(X, Z), TASK)
    with open_executor(None) as executor:
        ctx = RunContext(executor, data=inputs.data)
        found = SharedSubspace().problem(SharedSubspaceConfig(kernels=MIXED), inputs, ctx)
        grams = found.grams(ctx)
        plan, matrix = found.plan, grams.combine_tasks(found.first_state(grams).coupling, found.codes).array
    assert plan["learning_tasks"] == 4 and plan["pooled_matrix_bytes"] == matrix.nbytes


@pytest.mark.parametrize("solver", ["mirror", "alternate"])
def test_the_searches_of_the_thesis_take_what_their_plan_says(tmp_path, solver):
    data = write_store(tmp_path / "data", 200, 10, tasks=True)
    params = {"kernels": [f"rbf(gamma={g:g})" for g in np.linspace(0.05, 0.5, 8)], "solver": solver, "max_iter": 1}
    plan = run_method("shared-subspace-mkl", params, data=data, run=str(tmp_path / "run"), dry_run=True).plan
    with compile_at_once():
        run_method("shared-subspace-mkl", params, data=data, run=str(tmp_path / "first"))
    tracemalloc.start()
    run_method("shared-subspace-mkl", params, data=data, run=str(tmp_path / "run"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.95 * peak <= plan["driver_bytes"] <= 1.4 * peak
