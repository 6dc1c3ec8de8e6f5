"""Shared subspaces to a tight tolerance: few machines, the best point, never worse for a smaller tolerance, a cone solver's optimum."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gramplane.cluster import open_executor
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.inputs.tasks import with_tasks
from gramplane.pipeline.methods.shared_subspace_mkl import problem as shared_subspace
from gramplane.pipeline.methods.shared_subspace_mkl.config import SharedSubspaceConfig
from gramplane.pipeline.methods.shared_subspace_mkl.estimator import SharedSubspaceMKLClassifier, SharedSubspaceMKLRegressor
from gramplane.pipeline.methods.shared_subspace_mkl.method import SharedSubspace
from gramplane.pipeline.methods.shared_subspace_mkl.problem import MANY_TASKS, MAX_DEAR_SEARCH_STEPS, MAX_SEARCH_STEPS, SubspaceState
from gramplane.storage.records import from_arrays, to_arrays
from tests.support.subspace import KERNELS, LOSSES, fitted, rows, target

SEEDS = range(20)


def kernel_matrices(X):
    """The kernels of the problems, by their definitions, with the trace of the identity."""
    near = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    both = (X[:, [2, 3]] @ X[:, [2, 3]].T + 1.0) ** 2
    found = [*(X[:, c] @ X[:, c].T for c in ([0, 1], [2, 3, 4], [0, 4, 5])), near, both]
    return [K * (len(K) / np.trace(K)) for K in found]


def cone_optimum(seed, loss, q, C=1.0, epsilon=0.1):
    """The least primal value over explicit weights, by a solver of cone programs that knows nothing of the method."""
    cp = pytest.importorskip("cvxpy")
    X, z, task = rows(seed)
    y, norms, values = target(loss, z), [], cp.Variable(3)[task]
    for K in kernel_matrices(X):
        found, vectors = np.linalg.eigh(K)
        F = (vectors * np.sqrt(np.maximum(found, 0.0)))[:, found > 1e-10 * found[-1]]
        W = cp.Variable((F.shape[1], 3))
        norms.append(cp.normNuc(W))
        values = values + cp.sum(cp.multiply(F @ W, np.eye(3)[task]), axis=1)
    own = {
        "hinge": lambda: cp.sum(cp.pos(1 - cp.multiply(y, values))),
        "epsilon_insensitive": lambda: cp.sum(cp.pos(cp.abs(y - values) - epsilon)),
        "squared": lambda: cp.sum_squares(y - values),
    }[loss]()
    return cp.Problem(cp.Minimize(0.5 * cp.square(cp.norm(cp.hstack(norms), q)) + C * own)).solve(solver="CLARABEL")


@pytest.mark.parametrize("loss", LOSSES)
def test_a_relative_gap_of_1e_5_takes_at_most_60_machines(loss):
    for seed in SEEDS:
        found = fitted(seed, loss, q=(1.0, 1.25, 1.5, 2.0)[seed % 4], tol=1e-5, max_iter=60)
        assert found.converged_ and found.dual_gap_ <= 1e-5 * found.objective_, (seed, found.n_iter_)


@pytest.mark.slow
@pytest.mark.parametrize("C", [0.02, 1.0, 30.0])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("q", [1.0, 1.01, 1.25, 1.5, 1.9, 2.0])
def test_every_norm_and_cost_reach_it(loss, q, C):
    for seed in SEEDS:
        assert fitted(seed, loss, q=q, C=C, tol=1e-5, max_iter=60).converged_, seed


@pytest.mark.parametrize(
    ("loss", "q", "seed"), [("hinge", 1.0, 4), ("epsilon_insensitive", 1.5, 1), ("squared", 1.0, 0), ("hinge", 2.0, 2)]
)
def test_the_bounds_hold_the_optimum_of_a_cone_solver(loss, q, seed):
    best = cone_optimum(seed, loss, q)
    found = fitted(seed, loss, q=q, tol=1e-5, max_iter=60)
    assert found.lower_bound_ <= best * (1 + 2e-6) and best <= found.upper_bound_ * (1 + 2e-6)
    assert found.objective_ == pytest.approx(best, rel=1.5e-5)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("q", [1.0, 1.5, 2.0])
def test_a_smaller_tolerance_is_never_worse_and_the_returned_point_is_the_best_seen(loss, q):
    objective, gap, path = np.inf, np.inf, []
    for tol in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = fitted(1, loss, q=q, tol=tol, max_iter=60)
        assert found.objective_ <= objective and found.dual_gap_ <= gap
        assert found.objective_ == found.history_["objective"].min()
        # The larger tolerance ended the same search earlier.
        np.testing.assert_array_equal(found.history_["objective"][: len(path)], path)
        objective, gap, path = found.objective_, found.dual_gap_, found.history_["objective"]


def search(**options):
    X, z, task = rows(0)
    inputs = with_tasks(SharedSubspaceMKLRegressor(KERNELS, scale=None)._inputs(X, z), task)
    return SharedSubspaceConfig(kernels=KERNELS, **{"tol": 1e-9, "max_iter": MAX_SEARCH_STEPS + 8, "q": 1.5, **options}), inputs


def states(config, inputs, state=None, **context):
    """All states of a search, from one on."""
    with open_executor(None) as executor:
        ctx = RunContext(executor, data=inputs.data, **context)
        method = SharedSubspace()
        one = method.problem(config, inputs, ctx)
        found = [method.init(one, ctx) if state is None else state]
        while found[-1].stop is None:
            found.append(method.step(one, found[-1], ctx).state)
        return found


def test_the_interior_path_goes_on_from_a_stored_state_to_the_same_bits():
    straight = states(*search())
    middle = straight[MAX_SEARCH_STEPS + 3]
    # It takes over when the steps of the search are done, not one later.
    assert next(state.iteration for state in straight if state.interior is not None) == MAX_SEARCH_STEPS + 1
    arrays, value = to_arrays(middle)
    again = states(*search(), state=from_arrays(SubspaceState, arrays, value))
    assert again[-1].best_coupling.tobytes() == straight[-1].best_coupling.tobytes() and again[-1].upper == straight[-1].upper


def test_the_search_of_many_tasks_goes_on_where_a_step_of_the_path_is_dear():
    rng = np.random.default_rng(0)
    for n_tasks, steps in ((MANY_TASKS - 1, MAX_SEARCH_STEPS), (MANY_TASKS, MAX_DEAR_SEARCH_STEPS)):
        task = np.repeat(np.arange(n_tasks), 3)
        X = rng.normal(size=(len(task), 6))
        inputs = with_tasks(SharedSubspaceMKLRegressor(KERNELS, scale=None)._inputs(X, X @ rng.normal(size=6)), task)
        config = SharedSubspaceConfig(kernels=KERNELS, max_iter=1)
        assert states(config, inputs)[0].takeover == steps


def test_a_small_driver_goes_on_searching_as_it_began():
    config, inputs = search(max_iter=MAX_SEARCH_STEPS + 2)
    small = states(config, inputs, driver_memory=40_000)
    assert all(state.interior is None for state in small)
    # What the first step decided holds for a resumed run, whatever the memory is then.
    assert states(config, inputs, state=small[5])[-1].upper == small[-1].upper


def test_a_path_that_finds_no_step_leaves_the_search_to_go_on(monkeypatch):
    monkeypatch.setattr(shared_subspace.InteriorPath, "advance", lambda *_: None)
    found = states(*search(max_iter=MAX_SEARCH_STEPS + 6))
    assert found[-1].interior is None and found[-1].iteration == MAX_SEARCH_STEPS + 6
    assert found[-1].upper <= found[MAX_SEARCH_STEPS].upper


def test_a_task_of_one_label_and_rows_of_weight_zero_stay_out_of_the_path():
    X, z, task = rows(3)
    y = np.where(task == 1, 1, target("hinge", z))
    found = SharedSubspaceMKLClassifier(KERNELS, tol=1e-5, max_iter=60, scale=None).fit(X, y, task)
    assert found.converged_ and found.intercept_[1] == 1.0
    weight = np.where(np.arange(len(z)) < 4, 0.0, 1.0)
    found = SharedSubspaceMKLRegressor(KERNELS, tol=1e-5, max_iter=60, scale=None).fit(X, z, task, sample_weight=weight)
    assert found.converged_ and not set(found.support_vectors_) & set(range(4))
