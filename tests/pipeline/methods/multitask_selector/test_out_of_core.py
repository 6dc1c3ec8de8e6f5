"""Feature selection over many tasks where the driver may not hold all rows: the same optimum with an exact gap, rounds of the same bits."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import MemoryBoundExceeded, open_executor
from gramplane.kernels.group_lasso.task_selection import task_penalty
from gramplane.pipeline import MultiTaskSelector, load_model, run_method
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.inputs.scores import plain_folds
from gramplane.pipeline.methods.multitask_selector import working_problem
from gramplane.pipeline.methods.multitask_selector.config import SelectorConfig
from gramplane.pipeline.methods.multitask_selector.method import Selector
from gramplane.pipeline.methods.multitask_selector.problem import window_bytes
from gramplane.pipeline.passes.columns import entry_count
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest
from tests.support.oracles.task_selection import batch_optimum

N, D, TASKS = 240, 70, 3
BATCH = {"algorithm": "fista", "lam": 0.2, "r": 0.2, "tol": 1e-7, "fit_intercept": True}
ROUNDS = {"lam": 0.05, "gamma": 30.0, "epochs": 2, "fit_intercept": True}
LITTLE = 400 << 10
"""Less than all rows take: 68 bytes an entry as a batch, 40 in rounds."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 12_000)
    monkeypatch.setattr(working_problem, "first_features", lambda *sizes: 4)
    monkeypatch.setattr(working_problem, "MORE_FEATURES", 3)


def problem(seed=0, real=True):
    """Features 0 to 8 count, each for less than the one before; those from 30 on are small, and can move little."""
    rng = np.random.default_rng(seed)
    X, codes = rng.normal(size=(N, D)), rng.permutation(np.arange(N) % TASKS)
    X[:, 30:] *= 0.1
    W = np.zeros((TASKS, D))
    W[:, :9] = (1.0 + 0.2 * rng.normal(size=(TASKS, 9))) * 3.0 * 0.7 ** np.arange(9)
    y = (X * W[codes]).sum(axis=1) + 0.5 * rng.normal(size=N) + codes
    return X, (y if real else np.where(y > np.median(y), 1, -1)), codes


def stored(path, seed=0, real=True, sparse=False, **options):
    X, y, codes = problem(seed, real)
    if sparse:
        X = sp.csr_array(X * (np.random.default_rng(seed).random(X.shape) < 0.4))
    return ingest((X, y), path, task_column=codes, task="regression" if real else "classification", **options)


def run(params, store, path, limit=LITTLE, **options):
    return run_method("multitask-selector", params, data=store.url, run=str(path), driver_memory=limit, **options)


def bits(path):
    model = load_model(path)
    return model.coef_.tobytes() + model.intercept_.tobytes()


# -- the batch optimum -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["imtfs", "amtfs", "mtfts"])
def test_the_optimum_is_that_of_a_general_solver(tmp_path, name):
    X, y, codes = problem()
    done = run({**BATCH, "penalty": name}, stored(tmp_path / "data"), tmp_path / "run").summary
    lam, r = BATCH["lam"], BATCH["r"]
    row, entry = {"imtfs": (0.0, lam), "amtfs": (lam, 0.0), "mtfts": (lam, lam * r)}[name]
    best = batch_optimum(X, y, codes, TASKS, row, entry, True)
    assert done["objective"] <= best * (1 + 1e-7) and done["objective"] - done["gap"] <= best * (1 + 1e-9)
    assert done["stop"] == "tol" and done["certified_over"] == "all features"
    assert RunStore.open(tmp_path / "run").read_json("decisions")["engine"] == "working_set"


def test_a_score_on_the_way_is_of_columns_with_their_means(tmp_path):
    X, y, codes = problem()
    store = ingest((X + 5.0, y), tmp_path / "data", task_column=codes, task="regression")
    done = run({**BATCH, "scale": "none"}, store, tmp_path / "run").summary
    assert done["train_r2"] == pytest.approx(load_model(tmp_path / "run").score(X + 5.0, y, codes), abs=1e-9)


@pytest.mark.parametrize(
    ("loss", "scale", "tol"), [("logistic", "standard", 1e-6), ("logistic", "unit-row", 1e-6), ("hinge", "none", 1e-6)]
)
def test_classes_end_where_rows_in_memory_do(tmp_path, loss, scale, tol):
    store = stored(tmp_path / "data", real=False, scale=scale, sparse=scale == "unit-row")
    params = {**BATCH, "loss": loss, "lam": 0.01 if scale == "unit-row" else 0.05, "tol": tol}
    few, many = (
        run(params, store, tmp_path / str(limit), limit, extra={"test_share": 0.25}).summary
        for limit in ((900 if loss == "hinge" else 300) << 10, "1GiB")
    )
    assert abs(few["objective"] - many["objective"]) <= few["gap"] + many["gap"]
    assert few["gap"] <= tol * few["objective"] and few["n_selected"] > 5
    assert few["test_accuracy"] == pytest.approx(many["test_accuracy"], abs=0.04)


def steps_of(store, params, limit=LITTLE):
    """Yield problem and state after every step."""
    with open_executor(None) as executor:
        ctx = RunContext(executor, data=store, driver_memory=limit)
        problem = Selector().problem(*Selector().read_inputs(SelectorConfig(**params), ctx, {}), ctx)
        problem.follow()
        state = problem.init(ctx)
        while state.stop is None:
            step = problem.step(state, ctx)
            state = step.state
            yield problem, state, step.metrics


def exact_norms(loop, state, X):
    """Dual norms of all features at the slopes of a state, summed in the plain way."""
    config, slopes = loop.config, np.empty(N)
    slopes[loop.order] = state.slopes
    weight = loop.data.mean_weights * slopes
    z = np.stack([weight[loop.data.codes == q] @ X[loop.data.codes == q] for q in range(TASKS)])
    return task_penalty(config.penalty, D, config.r).dual_norms(z)


@pytest.mark.parametrize("refit", [None, 0.05])
def test_what_is_not_looked_at_cannot_enter_and_the_last_look_is_at_all(tmp_path, refit):
    X, store, looked_at = problem()[0], stored(tmp_path / "data"), []
    for loop, state, metrics in steps_of(store, {**BATCH, "refit": refit}):
        if refit is not None and not state.sweeps:
            continue  # (the second fit has not looked at anything yet)
        norms = exact_norms(loop, state, X)
        assert (norms <= state.bounds * (1 + 1e-9) + 1e-12)[state.kept].all()
        # Whoever is beyond lam is known by its norm, so that none is missed.
        assert (np.abs(norms - state.bounds)[state.kept & (state.bounds > loop.config.lam)] < 1e-10).all()
        looked_at.append(metrics["n_looked_at"])
    np.testing.assert_allclose(state.bounds[state.kept], norms[state.kept], atol=1e-12)
    if refit is None:
        assert looked_at[0] == looked_at[-1] == D and min(looked_at) < D, looked_at
        assert int(state.weights.any(axis=0).sum()) <= len(state.features) < 30
    else:
        assert state.phase == 1 and not (set(state.features.tolist()) - set(np.flatnonzero(state.kept).tolist()))


def test_a_pass_that_hides_a_feature_is_told_by_the_optimum(tmp_path, monkeypatch):
    """The certificate rests on the pass: with a feature hidden from it the objective stays above the optimum by more than the gap."""
    store, whole = stored(tmp_path / "data"), working_problem.task_norms
    true = run(BATCH, store, tmp_path / "true").summary
    without_3 = lambda data, ctx, features, *rest: whole(data, ctx, features, *rest) * (features != 3)  # noqa: E731
    monkeypatch.setattr(working_problem, "task_norms", without_3)
    false = run(BATCH, store, tmp_path / "false").summary
    assert false["objective"] - true["objective"] > 10 * (false["gap"] + true["gap"])


def test_unfinished_fits_say_so_and_a_set_too_large_is_refused(tmp_path):
    store = stored(tmp_path / "data")
    done = run({**BATCH, "max_iter": 5}, store, tmp_path / "short").summary
    assert done["stop"] == "max_iter" and done["gap"] > 1e-7 * done["objective"]
    needed = run(BATCH, store, tmp_path / "dry", dry_run=True).plan["driver_bytes"]
    with pytest.raises(MemoryBoundExceeded, match=r"multitask-selector: .*\d+ columns of a working set .*a larger lam, or algorithm='da'"):
        run({**BATCH, "lam": 0.01}, store, tmp_path / "large", needed * 3 // 4)


def test_plans_name_what_is_distributed_and_what_the_driver_holds(tmp_path):
    store = stored(tmp_path / "data", layout="both")
    plan = run(BATCH, store, tmp_path / "dry", dry_run=True).plan
    assert plan["distributed"] == ["gradients of the tasks, feature by feature"] and plan["engine"] == "working_set"
    assert plan["tasks_per_pass"] == 1 and plan["bytes_read_per_pass"] == 8 * N * D
    assert not {"rows in float64, by rows and while they are put in order"} & {row["what"] for row in plan["driver_holds"]}
    assert plan["driver_bytes"] < 68 * N * D
    assert run(BATCH, store, tmp_path / "dry", "1GiB", dry_run=True).plan["engine"] == "working_set"
    sparse = stored(tmp_path / "sparse", layout="both", sparse=True)
    here = run(BATCH, sparse, tmp_path / "dry", "1GiB", dry_run=True).plan
    assert here["distributed"] == [] and here["engine"] == "memory" and here["driver_bytes"] > 68 * entry_count(sparse)
    rounds = run(ROUNDS, store, tmp_path / "dry", dry_run=True).plan
    assert rounds["distributed"] == [] and rounds["engine"] == "blocks" and rounds["driver_bytes"] <= LITTLE


# -- rounds ------------------------------------------------------------------------------------------------------------------------


def test_a_plan_has_room_for_the_rows_of_a_step(tmp_path):
    X, y, _ = problem()
    store = ingest((X, y), tmp_path / "data", task_column=np.arange(N) % 30, task="regression", layout="both")
    plan = run(ROUNDS, store, tmp_path / "dry", 480 << 10, dry_run=True).plan
    room = {row["what"]: row["bytes"] for row in plan["driver_holds"]}["rows of a step in float64, and copies of them"]
    assert room >= 2 * 8 * N * D / plan["steps_per_epoch"]


@pytest.mark.parametrize("layout", ["both", "columns"])
@pytest.mark.parametrize(("sparse", "scale"), [(False, "standard"), (False, "unit-row"), (True, "unit-column"), (True, "none")])
def test_rounds_from_blocks_have_the_bits_of_rows_in_memory(tmp_path, sparse, scale, layout):
    store = stored(tmp_path / "data", sparse=sparse, scale=scale, layout=layout)
    limit = 38 * entry_count(store)
    params, extra = {**ROUNDS, "refit": 0.01, "gamma": 300.0 if scale == "none" else 30.0}, {"test_share": 0.2}
    few, many = (run(params, store, tmp_path / str(size), size, extra=extra) for size in (limit, 1 << 30))
    engines = [RunStore.open(done.run).read_json("decisions")["engine"] for done in (few, many)]
    assert engines == ["blocks", "memory"] and bits(few.run) == bits(many.run)
    assert [few.summary[key] for key in ("objective", "test_r2", "rounds")] == [
        many.summary[key] for key in ("objective", "test_r2", "rounds")
    ]


def test_rounds_read_a_block_once_a_window_and_resume(tmp_path, monkeypatch):
    from gramplane.storage import BlockRef

    class Stopped(Exception):
        pass

    def stop(event):
        if event["event"] == "iteration" and event["iteration"] % 5 == 3:
            raise Stopped

    store = stored(tmp_path / "data", layout="both")
    loads, load = [], BlockRef.load
    monkeypatch.setattr(BlockRef, "load", lambda ref: loads.append(ref) or load(ref))
    run({**ROUNDS, "epochs": 1}, store, tmp_path / "once")
    blocks, windows = len(store.row_blocks()), -(-8 * N * D // window_bytes(store, LITTLE))
    # Every window a sweep; objective and regret at the end of the epoch, of the model and of the steps another each.
    assert blocks > 5 and windows > 1 and len(loads) <= (windows + 1 + 3) * blocks
    run(ROUNDS, store, tmp_path / "straight")
    for _ in range(20):
        try:
            assert run(ROUNDS, store, tmp_path / "run", on_event=stop).status == "done"
            break
        except Stopped:
            pass
    assert bits(tmp_path / "run") == bits(tmp_path / "straight")
    assert RunStore.open(tmp_path / "run").read_json("tables") == RunStore.open(tmp_path / "straight").read_json("tables")


def test_arrays_in_memory_take_rounds_without_a_copy_of_all_rows(monkeypatch):
    X, y, codes = problem()
    model = MultiTaskSelector(**ROUNDS).fit(X, y, codes)
    for rows in (X, sp.csr_array(X)):
        with monkeypatch.context() as patch:
            patch.setattr("gramplane.pipeline.core.resources.default_driver_memory", lambda: LITTLE)
            patch.setattr(RunContext, "driver_memory", LITTLE, raising=False)
            few = MultiTaskSelector(**ROUNDS).fit(rows, y, codes)
        assert few.coef_.tobytes() == model.coef_.tobytes()


def test_predictions_that_grow_name_the_row_and_columns_alone_need_memory(tmp_path):
    store = stored(tmp_path / "data", layout="both")
    told = []
    for limit in (LITTLE, "1GiB"):
        with pytest.raises(ValueError, match=r"gamma=0\.001: predictions grow without bound .*row \d+, task") as caught:
            run({**ROUNDS, "gamma": 0.001, "epochs": 30}, store, tmp_path / str(limit), limit)
        told.append(str(caught.value).partition(";")[0])  # (the gamma that is named is that of the rows of the step)
    assert told[0] == told[1]
    columns = stored(tmp_path / "columns")
    with pytest.raises(MemoryBoundExceeded, match=r"rows made of the store's columns.*--layout both"):
        run(ROUNDS, columns, tmp_path / "run", 8 * N * D)


def test_folds_of_a_fit_out_of_core_are_masks(tmp_path):
    store, mask = stored(tmp_path / "data"), plain_folds(N, 0, [0.3])[0]
    X, y, codes = problem()
    held = run({**BATCH, "scale": None}, store, tmp_path / "held", extra={"test_share": 0.3}).summary
    alone = MultiTaskSelector(**BATCH, scale=None).fit(X[~mask], y[~mask], codes[~mask])
    assert held["objective"] == pytest.approx(alone.objective_, rel=1e-6) and held["n_selected"] == len(alone.get_support(indices=True))
