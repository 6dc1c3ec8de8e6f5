"""Batch group lasso over blocks: every engine ends at the optimum of the whole problem, wherever the data lie, with the same bits."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog
from sklearn.datasets import load_breast_cancer

from gramplane import GroupLassoClassifier, GroupLassoRegressor
from gramplane.cluster import MemoryBoundExceeded, MemorySink, open_executor
from gramplane.kernels.features.groups import build_groups
from gramplane.kernels.group_lasso.on_rows import solve_rows
from gramplane.kernels.group_lasso.penalty import group_penalty
from gramplane.kernels.group_lasso.row_problem import RowProblem, TaskRows
from gramplane.kernels.losses import mean_loss
from gramplane.pipeline.core.engine import iterate
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.inputs.labels import Inputs
from gramplane.pipeline.inputs.scores import scores_of
from gramplane.pipeline.methods.group_lasso import moments_pass as passes
from gramplane.pipeline.methods.group_lasso.batch_problem import BatchProblem
from gramplane.pipeline.methods.group_lasso.batch_terms import BatchTerms
from gramplane.pipeline.methods.group_lasso.config import GroupLassoConfig
from gramplane.pipeline.methods.group_lasso.method import GroupLasso
from gramplane.pipeline.methods.group_lasso.moments_pass import feature_slopes, moments_pass
from gramplane.pipeline.passes.blocks import scale_as_given
from gramplane.pipeline.passes.scaling import scaled
from gramplane.storage import MemoryBlocks, block_cache
from gramplane.storage.ingest import ingest

D = 60


def planted(loss="squared", sparse=False, n=90, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) + (0.0 if sparse else 1.0)
    if sparse:
        X = np.where(rng.random((n, D)) < 0.3, X, 0.0)
    y = X[:, :5] @ rng.normal(size=5) + X[:, 30] + 0.5 * rng.normal(size=n) + 1.0
    if loss != "squared":
        y = np.where(y > np.median(y), 1.0, -1.0)
    return (sp.csr_array(X) if sparse else X), y


def problem_of(y, loss="squared", share=0.1, **options):
    index = build_groups(np.arange(D) // 5, D)
    penalty = group_penalty(index, np.sqrt(index.sizes), options.pop("inner", 0.3))
    targets = np.atleast_2d(y)
    n = targets.shape[1]
    return BatchTerms(targets, np.full(n, 1.0 / n), loss, penalty, options.pop("lam", share * 0.3), **options)


def batch(terms, ctx):
    return BatchProblem(GroupLassoConfig(), Inputs(ctx.data, terms.targets[0], None), terms, np.arange(terms.penalty.n_groups), ctx)


def fitted(terms, data, run=None, **options):
    with open_executor("sync") as executor:
        ctx = RunContext(executor, data=data, scratch=run, **options)
        problem = batch(terms, ctx)
        outcome = iterate(GroupLasso(), problem, ctx, store=run)
    return problem.solution(outcome.state), outcome


def whole(problem, X, m=0):
    X = X.toarray() if sp.issparse(X) else X
    rows = TaskRows(X, np.array([0, len(X)]))
    small = RowProblem(rows, problem.targets[m], problem.cost, mean_loss(problem.loss), problem.penalty, problem.lam, problem.fit_bias)
    return solve_rows(small, tol=1e-9, max_iter=20_000)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("loss", "engine", "bias"),
    [
        ("squared", "gram", True),
        ("squared", "gram", False),
        ("squared", "working_set", True),
        ("squared", "fista", True),
        ("logistic", "working_set", True),
        ("logistic", "working_set", False),
    ],
)
def test_every_engine_ends_at_the_optimum(sparse, loss, engine, bias):
    X, y = planted(loss, sparse)
    problem = problem_of(y, loss, engine=engine, fit_bias=bias, tol=1e-7)
    found, outcome = fitted(problem, MemoryBlocks(X))
    best = whole(problem, X)
    assert found.converged
    assert found.engine == engine
    assert -1e-9 <= found.objective - best.objective <= found.gap + 1e-9
    assert found.gap <= 1e-7 * found.objective
    f = X @ found.weights[0] + found.biases[0]
    exact = problem.cost @ mean_loss(loss).values(y, f) + problem.lam * problem.penalty.value(found.weights)
    np.testing.assert_allclose(found.objective, exact, rtol=1e-9)
    assert 0 < len(found.active[0]) < problem.penalty.n_groups
    assert outcome.history[-1]["gap"] == found.gap


def test_the_first_row_of_the_history_is_that_of_zero_weights():
    X, y = planted()
    problem = problem_of(y, engine="gram")
    _, outcome = fitted(problem, MemoryBlocks(X))
    at_zero = problem.cost @ mean_loss("squared").values(y, np.full(len(y), y.mean()))
    assert outcome.history[0]["objective"] == pytest.approx(at_zero, rel=1e-12)
    assert outcome.history[-1]["objective"] < 0.9 * at_zero


def test_a_hinge_is_certified_on_a_working_set():
    X, y = planted("hinge")
    problem = problem_of(y, "hinge", tol=1e-7, share=0.3)
    found, _ = fitted(problem, MemoryBlocks(X))
    other, _ = fitted(replace(problem, engine="fista"), MemoryBlocks(X))
    assert found.converged and other.converged
    assert abs(found.objective - other.objective) <= max(found.gap, other.gap) + 1e-12


@pytest.mark.parametrize("penalty", ["l1", "gl", "sgl"])
def test_a_hinge_closes_its_gap_in_few_steps_at_any_weight_of_the_penalty(penalty):
    X, y = load_breast_cancer(return_X_y=True)
    Z, weight = (X - X.mean(axis=0)) / X.std(axis=0), 1.0 + np.arange(len(y)) % 3
    params = {"loss": "hinge", "algorithm": "fista", "penalty": penalty, "scale": None, "groups": np.arange(30) % 10, "tol": 1e-6}
    auto = GroupLassoClassifier(**params).fit(Z, y, weight).lam_
    for lam in (0.1 * auto, auto, 10 * auto):
        machine = GroupLassoClassifier(**params, lam=lam).fit(Z, y, weight)
        assert machine.converged_ and machine.dual_gap_ <= 1e-6 * machine.objective_ and machine.n_iter_ <= 8
        if penalty == "l1":
            best = hinge_optimum(Z, 2.0 * y - 1.0, weight / weight.sum(), lam)
            assert machine.objective_ == pytest.approx(best, rel=1e-6)
            assert machine.dual_gap_ >= machine.objective_ - best - 1e-9 * best


def hinge_optimum(X, y, cost, lam):
    """The l1 problem as a linear program: variables are the positive and negative parts of w, both of b, and a slack for every row."""
    n, d = X.shape
    rows = sp.hstack([sp.csr_array(-y[:, None] * X), sp.csr_array(y[:, None] * X), -y[:, None], y[:, None], -sp.eye(n)]).tocsr()
    return linprog(np.concatenate([np.full(2 * d, lam), [0.0, 0.0], cost]), A_ub=rows, b_ub=-np.ones(n)).fun


def test_machines_share_passes_and_are_those_of_single_fits():
    X, y = planted()
    for engine in ("gram", "working_set"):
        several = problem_of(np.stack([y, y**2, -y]), engine=engine, tol=1e-6)
        found, outcome = fitted(several, MemoryBlocks(X))
        for m in range(3):
            single, _ = fitted(replace(several, targets=several.targets[m : m + 1]), MemoryBlocks(X))
            np.testing.assert_allclose(found.weights[m], single.weights[0], atol=1e-9)
        assert outcome.history[0]["tasks"] == 1 if engine == "gram" else outcome.history[0]["tasks"] >= 1


@pytest.mark.parametrize(("engine", "loss"), [("gram", "squared"), ("working_set", "squared"), ("working_set", "logistic")])
def test_lambda_max_is_where_the_first_group_enters(engine, loss):
    X, y = planted(loss)
    largest = fitted(problem_of(y, loss, engine=engine), MemoryBlocks(X))[0].lambda_max
    at, _ = fitted(problem_of(y, loss, engine=engine, lam=1.000001 * largest), MemoryBlocks(X))
    below, _ = fitted(problem_of(y, loss, engine=engine, lam=0.999 * largest, tol=1e-9), MemoryBlocks(X))
    assert not at.weights.any()
    assert below.weights.any()


def test_overlapping_groups_keep_a_copy_each():
    X, y = planted()
    index = build_groups([np.arange(lo, min(lo + 8, D)) for lo in range(0, D, 6)], D)
    penalty = group_penalty(index, np.sqrt(index.sizes))
    results = [fitted(replace(problem_of(y, engine=e, tol=1e-8), penalty=penalty), MemoryBlocks(X))[0] for e in ("gram", "working_set")]
    np.testing.assert_allclose(results[0].objective, results[1].objective, rtol=1e-7)
    columns = X[:, index.members]
    apart = build_groups(np.repeat(np.arange(index.n_groups), index.sizes), columns.shape[1])
    copied = BatchTerms(y[None], np.full(90, 1 / 90), "squared", group_penalty(apart, np.sqrt(apart.sizes)), 0.03, tol=1e-8)
    np.testing.assert_allclose(fitted(copied, MemoryBlocks(columns))[0].objective, results[0].objective, rtol=1e-7)


@pytest.mark.parametrize("scale", ["none", "standard", "unit-column", "unit-row"])
def test_stores_and_memory_give_the_same_bits(tmp_path, scale, monkeypatch):
    monkeypatch.setattr(passes, "ROWS", 16)
    X, y = planted()
    store = ingest((X, y), tmp_path / "store", task="regression", scale=scale)
    held = MemoryBlocks(X, y, scale=store.scale)
    Z = scaled(X, scale_as_given(store, slice(0, D)), store.scale.row_factor)
    with open_executor("sync") as executor:
        here, there = (RunContext(executor, data=data) for data in (held, store))
        U = np.random.default_rng(1).normal(size=(2, len(y)))
        np.testing.assert_allclose(feature_slopes(store, there, U), U @ Z, atol=1e-10)
        assert (feature_slopes(held, here, U) == feature_slopes(store, there, U)).all()
        cost = np.full(len(y), 1.0 / len(y))
        (a, shift), (b, _) = (moments_pass(ctx.data, ctx, y[:, None], cost, centre=True) for ctx in (here, there))
        assert (a == b).all()
        rows = np.column_stack([Z - shift, y, np.ones(len(y))])
        np.testing.assert_allclose(a[0], rows.T @ rows / len(y), atol=1e-10)
    for engine in ("gram", "working_set"):
        found = [fitted(problem_of(y, engine=engine), data)[0] for data in (held, store)]
        assert (found[0].weights == found[1].weights).all()


@pytest.mark.parametrize("scale", ["none", "unit-row", "unit-column"])
@pytest.mark.parametrize(("shape", "sparse"), [((500, 40), False), ((300, 50_000), True)])
def test_slopes_take_no_more_than_their_plan(tmp_path, shape, sparse, scale, monkeypatch):
    X = sp.random_array(shape, density=2e-4, rng=np.random.default_rng(0)) if sparse else np.random.default_rng(0).normal(size=shape)
    store, taken = ingest((X, np.arange(shape[0]) % 7.0), tmp_path / "store", task="regression", scale=scale), []
    plain = passes.slopes_chunk

    def measured(task, vectors):
        block_cache().clear()
        tracemalloc.start()
        found = plain(task, vectors)
        taken.append(tracemalloc.get_traced_memory()[1] + vectors.nbytes)
        tracemalloc.stop()
        return found

    for count in (1, 200 if not sparse else 10):
        events, U = MemorySink(), np.ones((count, shape[0]))
        with open_executor("sync", events=events) as executor:
            monkeypatch.setattr(passes, "slopes_chunk", plain)
            feature_slopes(store, RunContext(executor, data=store), U)  # compiles
            monkeypatch.setattr(passes, "slopes_chunk", measured)
            feature_slopes(store, RunContext(executor, data=store), U)
        planned = events.named("plan")[-1]["memory_bound"]
        assert max(taken) <= planned <= 3 * max(taken), count


def test_blocks_of_rows_weigh_what_their_refs_say(monkeypatch):
    monkeypatch.setattr(passes, "ROWS", 16)
    refs = passes.row_refs(MemoryBlocks(planted()[0]))
    assert len(refs) == 6 and [ref.nbytes for ref in refs] == [ref.load().nbytes for ref in refs]


def test_left_out_rows_do_not_exist():
    X, y = planted("logistic")
    cost = np.where(np.arange(90) < 80, 1 / 80, 0.0)
    for loss, target in (("logistic", y), ("squared", y)):
        problem = replace(problem_of(target, loss, tol=1e-8), cost=cost)
        shorter = replace(problem, cost=cost[:80], targets=problem.targets[:, :80])
        a, b = fitted(problem, MemoryBlocks(X))[0], fitted(shorter, MemoryBlocks(X[:80]))[0]
        np.testing.assert_allclose(a.weights, b.weights, atol=1e-6)


def test_what_cannot_be_done_is_said():
    X, y = planted("logistic")
    with pytest.raises(ValueError, match="engine='gram' solves the squared loss; the loss is 'logistic'"):
        fitted(problem_of(y, "logistic", engine="gram"), MemoryBlocks(X))
    with pytest.raises(MemoryBoundExceeded, match=r"group-lasso: this process would hold .*columns of a working set"):
        fitted(problem_of(y, "logistic"), MemoryBlocks(X), driver_memory=1000)
    short, _ = fitted(problem_of(y, "logistic", tol=1e-12, max_iter=1), MemoryBlocks(X))
    assert not short.converged


@pytest.mark.parametrize("scale", ["standard", None])
@pytest.mark.parametrize("bias", [True, False])
def test_what_is_said_of_a_fit_on_moments_is_what_its_decisions_say(bias, scale, monkeypatch):
    X, y = planted()
    seen = []

    def both(self, state, model, ctx):
        seen.append((from_moments(self, state, model, ctx), scores_of(self.inputs, self.decision_values(state, ctx))))
        return seen[-1][0]

    from_moments = BatchProblem._scores_at_hand
    monkeypatch.setattr(BatchProblem, "_scores_at_hand", both)
    for lam in (0.05, 1e3):
        GroupLassoRegressor(lam=lam, algorithm="fista", fit_intercept=bias, scale=scale).fit(X, y)
    for found, told in seen:
        assert found["train_r2"] == pytest.approx(told["train_r2"], abs=1e-9)
        assert found["n_answers"] == told["n_answers"]
    assert [found["n_answers"] for found, _ in seen] == [2, 1]
