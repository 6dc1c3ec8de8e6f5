"""MK-MTFL end to end: optimum, certificate, invariances, forms of data, bad input, estimator checks."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

from gramplane.pipeline import MKLClassifier, MultiTaskMKLClassifier, MultiTaskMKLRegressor
from gramplane.pipeline.methods.multitask_mkl import grams as task_grams
from gramplane.pipeline.methods.multitask_mkl import solve_pass as task_solves
from gramplane.storage import DataError
from gramplane.storage.ingest import ingest
from tests.support.oracles.multitask import dual_optimum, few_rows, primal_optimum, random_problem, tube_optimum, tube_value

EXPONENTS = [(2.0, 1.0), (6.0, 1.0), (8.67, 1.0), (4.0, 1.5), (2.0, 1.5)]
KERNELS = ["rbf(gamma=0.5)", "rbf(gamma=2)[0:2]", "linear", "poly(degree=2)[1]"]


def given(p, q, **options):
    return MultiTaskMKLClassifier("precomputed", p=p, q=q, normalize="none", **options)


def data(seed=0, T=3, m=20, d=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(T * m, d))
    task = rng.permutation(np.repeat(np.arange(T), m))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.3 * task + 0.2 * rng.normal(size=len(X))
    return X, y, task


def signs(y, task):
    medians = np.array([np.median(y[task == t]) for t in np.unique(task)])
    return np.where(y > medians[np.unique(task, return_inverse=True)[1]], 1, -1)


# -- optimum and certificate -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "q"), EXPONENTS)
@pytest.mark.parametrize("solver", ["auto", "mirror"])
def test_bounds_hold_the_optimum_of_a_general_solver(p, q, solver):
    problem = random_problem(1)
    K, task, y = problem.stack()
    best = dual_optimum(problem, p, q)
    tol = 1e-4 if solver == "auto" else 5e-3
    machine = given(p, q, C=problem.C, tol=tol, solver=solver, max_iter=3000).fit(K, y, task)
    assert machine.converged_
    assert machine.lower_bound_ <= best * (1 + 1e-5)
    assert machine.upper_bound_ >= best * (1 - 1e-5)
    assert machine.dual_gap_ <= tol * machine.objective_


@pytest.mark.parametrize(("p", "q"), [(2.0, 1.5), (4.0, 1.5), (3.0, 2.0)])
def test_squared_loss_reaches_the_primal_optimum_of_a_general_solver(p, q):
    problem = random_problem(2, classes=False)
    K, task, y = problem.stack()
    machine = MultiTaskMKLRegressor("precomputed", p=p, q=q, loss="squared", normalize="none", tol=1e-6).fit(K, y, task)
    assert machine.objective_ == pytest.approx(primal_optimum(problem, p, q), rel=1e-4)


@pytest.mark.parametrize(("loss", "p"), [("squared", 6.0), ("epsilon_insensitive", 2.0), ("epsilon_insensitive", 6.0)])
def test_every_bound_along_the_way_holds(loss, p):
    X, y, task = data(3)
    machine = MultiTaskMKLRegressor(KERNELS, p=p, loss=loss, tol=1e-4, scale=None).fit(X, y, task)
    history = machine.history_
    assert machine.converged_
    assert (history["lower_bound"] <= machine.objective_ * (1 + 1e-9)).all()
    assert (history["upper_bound"] >= machine.lower_bound_ * (1 - 1e-9)).all()
    assert (np.diff(history["upper_bound"]) <= 0).all()
    assert (np.diff(history["lower_bound"]) >= 0).all()


@pytest.mark.parametrize(
    ("seed", "sizes", "C", "p", "q"),
    [
        *[(6, None, 3.0, 6.0, 1.5), (19, None, 3.0, 6.0, 1.5)],
        *[(13, None, 30.0, 8.67, 1.5), (15, None, 30.0, 8.67, 1.5), (13, None, 30.0, 8.67, 1.0)],
        *[(0, (5, 4, 3), 3.0, 3.0, 1.0), (1, (5, 4, 3), 3.0, 6.0, 1.5), (2, (5, 4, 3), 30.0, 8.67, 1.0)],
    ],
)
def test_few_rows_and_kernels_of_single_columns_end_certified(seed, sizes, C, p, q):
    features, y, task, kernels = few_rows(seed, sizes)
    X = features[-1]
    machine = MultiTaskMKLRegressor(kernels, C=C, p=p, q=q, max_iter=60).fit(X, y, task)
    assert machine.converged_ and 0 <= machine.dual_gap_ <= 1e-3 * machine.objective_
    # The objective is that of the machine that is returned: its functions, their norms and losses written out.
    beta = np.zeros(len(y))
    beta[machine.model_.support_ids] = machine.model_.beta
    own = (task[:, None] == np.arange(task.max() + 1)) * beta[:, None]
    parts = [weights[:, None] * (own.T @ Z) for weights, Z in zip(machine.task_kernel_weights_, features, strict=True)]
    assert machine.objective_ == pytest.approx(tube_value(features, y, task, parts, machine.intercept_, C, p, q), rel=1e-6)
    assert machine.predict(X, task) == pytest.approx(
        machine.intercept_[task] + sum(np.sum(Z * W[task], axis=1) for Z, W in zip(features, parts, strict=True)), abs=1e-6
    )
    if sizes is not None:
        best = tube_optimum(features, y, task, C, p, q)
        assert machine.lower_bound_ <= best <= machine.objective_ * (1 + 1e-4)


def test_weights_and_shares_lie_on_their_spheres():
    X, y, task = data(4)
    for p, q in [(6.0, 1.0), (4.0, 1.5), (3.0, 2.0)]:
        machine = MultiTaskMKLClassifier(KERNELS, p=p, q=q, scale=None).fit(X, signs(y, task), task)
        shares = machine.model_.arrays["task_shares"]
        assert np.allclose(np.sum(shares ** (p / (p - 2)), axis=1), 1.0)
        hat = machine.kernel_weights_.max() if q == 2 else np.sum(machine.kernel_weights_ ** (q / (2 - q)))
        assert hat == pytest.approx(1.0)
        for weights in machine.model_.arrays["weights_path"]:
            assert (weights.max() if q == 2 else np.sum(weights ** (q / (2 - q)))) == pytest.approx(1.0)


# -- special cases ---------------------------------------------------------------------------------------------------------------


def test_one_kernel_and_one_task_is_a_support_vector_machine():
    X, y, _ = data(5, T=1, m=40)
    labels = np.where(y > 0, 1, -1)
    machine = MultiTaskMKLClassifier(["rbf(gamma=0.3)"], p=8.67, q=1.5, tol=1e-6, scale=None).fit(X, labels)
    other = MKLClassifier(["rbf(gamma=0.3)"], constraint="simplex", tol=1e-6, scale=None).fit(X, labels)
    assert machine.objective_ == pytest.approx(other.objective_, rel=1e-5)
    assert np.abs(machine.decision_function(X) - other.decision_function(X)).max() < 1e-2


def test_one_task_does_not_depend_on_p_and_is_multiple_kernel_learning():
    X, y, _ = data(6, T=1, m=40)
    labels = np.where(y > 0, 1, -1)
    values = [MultiTaskMKLClassifier(KERNELS, p=p, tol=1e-4, scale=None).fit(X, labels).objective_ for p in (2.0, 6.0)]
    other = MKLClassifier(KERNELS, constraint="simplex", tol=1e-4, scale=None).fit(X, labels).objective_
    assert values == pytest.approx([other, other], rel=2e-4)
    assert MultiTaskMKLClassifier(KERNELS, q=1.5, tol=1e-4, scale=None).fit(X, labels).objective_ == pytest.approx(
        MKLClassifier(KERNELS, constraint="lp", p=3.0, tol=1e-4, scale=None).fit(X, labels).objective_, rel=2e-4
    )


def test_two_norms_make_one_kernel_for_all_tasks():
    X, y, task = data(7)
    machine = MultiTaskMKLClassifier(KERNELS, p=2.0, scale=None).fit(X, signs(y, task), task)
    assert np.allclose(machine.task_kernel_weights_, machine.kernel_weights_[:, None])
    alone = MultiTaskMKLClassifier(["linear"], p=2.0, normalize="none", tol=1e-6, scale=None).fit(X, signs(y, task), task)
    parts = [
        MKLClassifier(["linear"], constraint="simplex", normalize="none", tol=1e-6, scale=None).fit(X[task == t], signs(y, task)[task == t])
        for t in range(3)
    ]
    assert alone.objective_ == pytest.approx(sum(part.objective_ for part in parts), rel=1e-5)


def test_optimum_falls_with_both_norms_and_grows_with_C():
    X, y, task = data(8)
    labels = signs(y, task)

    def value(**options):
        return MultiTaskMKLClassifier(KERNELS, tol=1e-4, **options, scale=None).fit(X, labels, task).objective_

    for values in (
        [value(p=p) for p in (8.67, 4.0, 2.0)],
        [value(p=4.0, q=q) for q in (2.0, 1.5, 1.0)],
        [value(C=C) for C in (0.1, 1.0, 10.0)],
    ):
        assert all(a <= b * (1 + 2e-4) for a, b in pairwise(values))


# -- invariances -----------------------------------------------------------------------------------------------------------------


def test_order_of_tasks_rows_and_kernels_does_not_matter():
    X, y, task = data(9)
    labels, names = signs(y, task), np.array(["b", "c", "a"])
    plain = MultiTaskMKLClassifier(KERNELS, p=6.0, tol=1e-5, scale=None).fit(X, labels, task)
    named = MultiTaskMKLClassifier(KERNELS, p=6.0, tol=1e-5, scale=None).fit(X, labels, names[task])
    assert list(named.tasks_) == ["a", "b", "c"]
    back = np.argsort(names)
    assert np.allclose(named.task_kernel_weights_, plain.task_kernel_weights_[:, back], rtol=1e-2, atol=1e-3)
    assert named.objective_ == pytest.approx(plain.objective_, rel=1e-4)
    order = np.random.default_rng(0).permutation(len(X))
    mixed = MultiTaskMKLClassifier(KERNELS[::-1], p=6.0, tol=1e-5, scale=None).fit(X[order], labels[order], task[order])
    assert mixed.objective_ == pytest.approx(plain.objective_, rel=1e-4)
    assert np.abs(mixed.decision_function(X, task) - plain.decision_function(X, task)).max() < 2e-2


def test_a_kernel_given_twice_changes_nothing():
    X, y, task = data(10)
    values = [
        MultiTaskMKLClassifier(kernels, p=6.0, tol=1e-5, scale=None).fit(X, signs(y, task), task).objective_
        for kernels in (KERNELS, [*KERNELS, KERNELS[0]])
    ]
    assert values[0] == pytest.approx(values[1], rel=2e-5)


def test_policies_and_cuts_of_tasks_give_the_same_bits(monkeypatch, tmp_path):
    X, y, task = data(11, m=150, T=2)
    labels, kernels = signs(y, task), [*KERNELS, "linear cosine", "rbf(gamma=1) centre"]
    ingest((X, labels), tmp_path / "x.zarr", task_column=task)
    found = [
        MultiTaskMKLClassifier(kernels, p=6.0, grams=grams, gram_store=str(tmp_path / "g") if grams == "store" else None, scale=None).fit(
            where, *rest
        )
        for where, rest, grams in [(X, (labels, task), "memory"), (X, (labels, task), "recompute")]
        + [(tmp_path / "x.zarr", (), policy) for policy in ("memory", "recompute", "store", "store")]
    ]
    for other in found[1:]:
        assert other.objective_ == found[0].objective_
        assert np.array_equal(other.model_.beta, found[0].model_.beta)
        assert np.array_equal(other.model_.weights, found[0].model_.weights)
        assert np.array_equal(other.intercept_, found[0].intercept_)
    monkeypatch.setattr("gramplane.pipeline.methods.multitask_mkl.task_blocks_pass.BLOCK_BYTES", 4 * 6 * 128 * 128)
    cut = MultiTaskMKLClassifier(kernels, p=6.0, scale=None).fit(X, labels, task)
    assert cut.objective_ == pytest.approx(found[0].objective_, rel=1e-9)


def test_small_tasks_computed_together_give_the_bits_of_each_alone():
    X, y, task = data(18, T=7, m=21)
    near, far = (
        MultiTaskMKLRegressor([*KERNELS, "laplacian(gamma=0.3)"], p=6.0, grams=grams, scale=None).fit(X, y, task)
        for grams in ("memory", "recompute")
    )
    assert np.array_equal(near.model_.beta, far.model_.beta)
    assert np.array_equal(near.task_kernel_weights_, far.task_kernel_weights_)


@pytest.mark.parametrize("loss", ["hinge", "squared"])
@pytest.mark.parametrize("kernels", [KERNELS, [*KERNELS, "linear cosine"]], ids=["scaled", "normalised"])
def test_a_batch_takes_no_more_than_its_plan(loss, kernels, monkeypatch):
    X, y, task = data(20, m=200)
    kind, target = (MultiTaskMKLClassifier, signs(y, task)) if loss == "hinge" else (MultiTaskMKLRegressor, y)
    plain, taken = task_solves.solve_chunk, []

    def measured(batch):
        tracemalloc.start()
        found = plain(batch)
        taken.append((tracemalloc.get_traced_memory()[1], task_solves.batch_bytes(batch) - task_solves.FREED_BYTES))
        tracemalloc.stop()
        return found

    options = {"p": 6.0, "tol": 1e-2, "grams": "recompute", "loss": loss}
    kind(kernels, **options).fit(X, target, task)  # compiles
    monkeypatch.setattr(task_grams, "solve_chunk", measured)
    kind(kernels, **options).fit(X, target, task)
    assert taken and all(peak <= planned <= 2 * peak for peak, planned in taken)


def test_predictions_on_a_store_read_its_tasks(tmp_path):
    X, y, task = data(12)
    machine = MultiTaskMKLClassifier(KERNELS, p=6.0, scale=None).fit(sp.csr_array(X), signs(y, task), task)
    ingest((X, signs(y, task)), tmp_path / "x.zarr", task_column=task)
    assert np.allclose(machine.decision_function(tmp_path / "x.zarr"), machine.decision_function(X, task), atol=1e-6)
    ingest((X, signs(y, task)), tmp_path / "unknown.zarr", task_column=task + 7)
    with pytest.raises(ValueError, match=r"unknown\.zarr: task 7 was not there at fit; the 3 tasks are 0, 1, 2"):
        machine.predict(tmp_path / "unknown.zarr")
    ingest((X, signs(y, task)), tmp_path / "without.zarr")
    with pytest.raises(ValueError, match=r"without\.zarr: task is None; the model knows 3 tasks.*--task-column"):
        machine.predict(tmp_path / "without.zarr")


def test_weights_of_rows_count_rows():
    X, y, task = data(13)
    labels = signs(y, task)
    twice = np.arange(len(X)) % 5 == 0
    weighted = MultiTaskMKLClassifier(KERNELS, tol=1e-5, scale=None).fit(X, labels, task, sample_weight=1.0 + twice)
    doubled = MultiTaskMKLClassifier(KERNELS, tol=1e-5, scale=None).fit(
        np.vstack([X, X[twice]]), np.append(labels, labels[twice]), np.append(task, task[twice])
    )
    assert weighted.objective_ == pytest.approx(doubled.objective_, rel=2e-5)
    by_class = MultiTaskMKLClassifier(KERNELS, normalize="none", class_weight={1: 2.0}, tol=1e-5, scale=None).fit(X, labels, task)
    by_row = MultiTaskMKLClassifier(KERNELS, normalize="none", tol=1e-5, scale=None).fit(X, labels, task, sample_weight=1.0 + (labels > 0))
    assert by_class.objective_ == by_row.objective_


# -- bad input and edges ---------------------------------------------------------------------------------------------------------


def test_a_task_with_one_label_predicts_it():
    X, y, task = data(14)
    labels = np.where(task == 1, 1, signs(y, task))
    for loss, p in (("hinge", 2.0), ("hinge", 6.0), ("squared", 6.0)):
        machine = MultiTaskMKLClassifier(KERNELS, p=p, loss=loss, scale=None).fit(X, labels, task)
        assert (machine.decision_function(X[task == 1], task[task == 1]) == 1.0).all()
        assert machine.score(X, labels, task) > 0.8
    below = MultiTaskMKLClassifier(KERNELS, scale=None).fit(X, -labels, task)
    assert (below.predict(X[task == 1], task[task == 1]) == -1).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 1.9}, r"p=1\.9: must be at least 2"),
        ({"q": 0.9}, r"q=0\.9: must be at least 1"),
        ({"q": 2.1}, r"q=2\.1: must be at most 2"),
        ({"p": np.inf}, "p=inf: must be a finite number"),
        ({"loss": "epsilon_insensitive"}, "loss='epsilon_insensitive': the target holds classes; use 'hinge'"),
        ({"grams": "store"}, "grams='store' needs gram_store"),
        ({"kernels": ["linear cosine centre"]}, "cosine of centred rows needs pairs of rows from different tasks"),
    ],
)
def test_parameters_are_refused_by_name(options, message):
    X, y, task = data(15)
    with pytest.raises(ValueError, match=message):
        MultiTaskMKLClassifier(**{"kernels": KERNELS, **options}).fit(X, signs(y, task), task)


def test_tasks_are_refused_by_name():
    X, y, task = data(16)
    labels, machine = signs(y, task), MultiTaskMKLClassifier(KERNELS, scale=None)
    with pytest.raises(DataError, match="task 2 has no row of positive weight"):
        machine.fit(X, labels, task, sample_weight=np.where(task == 2, 0.0, 1.0))
    with pytest.raises(ValueError, match=r"task has shape \(59,\); it must be \(60,\)"):
        machine.fit(X, labels, task[1:])
    with pytest.raises(ValueError, match=r"task\[3\]=nan: tasks are named by integers or strings"):
        machine.fit(X, labels, np.where(np.arange(60) == 3, np.nan, task))
    with pytest.raises(ValueError, match="tasks are named by integers or strings, all of one kind"):
        machine.fit(X, labels, np.array(["a", 1] * 30, dtype=object))
    machine.fit(X, labels, task)
    with pytest.raises(ValueError, match="task 5 was not there at fit; the 3 tasks are 0, 1, 2"):
        machine.predict(X, np.full(60, 5))
    with pytest.raises(ValueError, match="task is None; the model knows 3 tasks"):
        machine.predict(X)


def test_a_cap_on_solves_is_told():
    X, y, task = data(17)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 ended the fit before tol=0.001 was reached"):
        machine = MultiTaskMKLClassifier(KERNELS, p=6.0, max_iter=1, scale=None).fit(X, signs(y, task), task)
    assert machine.n_iter_ == 1
    assert not machine.converged_


def test_cross_validation_hands_tasks_on():
    rng = np.random.default_rng(5)
    X, task = rng.normal(size=(48, 3)), np.array(["n", "s"])[np.arange(48) % 2]
    with sklearn.config_context(enable_metadata_routing=True):
        machine = MultiTaskMKLClassifier(["linear"], scale=None).set_fit_request(task=True).set_score_request(task=True)
        found = cross_val_score(machine, X, np.where(task == "n", X[:, 0], -X[:, 0]) > 0, params={"task": task}, cv=2)
    # Without the tasks, whose signs differ, it would be one half.
    assert found.mean() > 0.7
