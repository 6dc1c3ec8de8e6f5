"""The sub-problem with its rows left where they lie gives the bits of the sub-problem on the driver."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import MemoryBoundExceeded, MemorySink, open_executor
from gramplane.kernels.mixed_norm import ROW_BLOCK
from gramplane.pipeline import load_model, resume_run, run_method
from gramplane.pipeline.core.engine import iterate
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.inputs.covariates import checked_covariates
from gramplane.pipeline.inputs.labels import Inputs
from gramplane.pipeline.methods.fgm import designs as fgm_designs
from gramplane.pipeline.methods.fgm.config import FGMConfig
from gramplane.pipeline.methods.fgm.designs import solve_at
from gramplane.pipeline.methods.fgm.method import FGM
from gramplane.storage import BlockStore, MemoryBlocks, RunStore
from gramplane.storage.ingest import ingest
from tests.support.fgm_problems import bits

N = ROW_BLOCK + 700
"""Two blocks of rows, the second a small one."""

PARAMS = {"B": 2, "C": 1.0, "max_rounds": 3}
SMALL, LARGE = 1000, 2 << 30
"""Driver memory: too little for any column, and enough."""


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = sp.random_array((N, 14), density=0.05, rng=rng, format="csr")
    X.data[:] = rng.normal(size=X.nnz)
    z = X @ np.r_[2.0, -2.0, 1.5, 1.0, np.zeros(10)] + 0.2 * rng.normal(size=N) - 0.1
    codes = (z > 0).astype(np.int64)
    return X, codes


@pytest.fixture(scope="module")
def store(problem, tmp_path_factory):
    X, codes = problem
    return ingest((X, codes), tmp_path_factory.mktemp("rows") / "a.zarr").url


def machines(data, y, memory, groups=None, weight=None, events=None, covariates=None, **params):
    """State of the loop and model, with so much memory on the driver; real targets are those of a regression."""
    config = FGMConfig(**{**PARAMS, **params})
    classes = tuple(range(int(y.max()) + 1)) if y.dtype.kind == "i" else None
    known = None if covariates is None else checked_covariates(covariates, len(y))
    inputs = Inputs(data, y, classes, weight, groups, covariates=known)
    with open_executor(events=events) as executor:
        ctx = RunContext(executor, data=data, driver_memory=memory, limit=1 << 40)
        problem = FGM().problem(config, inputs, ctx)
        problem.follow()
        outcome = iterate(FGM(), problem, ctx)
        return FGM().result(problem, outcome.state, ctx).model, outcome


def everything(found):
    model, outcome = found
    arrays = [model.weights, model.intercepts, model.coordinates]
    for state in model.machines:
        arrays += [*state.cuts, np.array(state.lower_bound)]
        arrays += [np.array([r.bias, r.objective, r.gap, r.outer_gap, *r.omega, *r.cut_weights]) for r in state.rounds]
        arrays += [r.covariate_coef for r in state.rounds if r.covariate_coef is not None]
    arrays += [np.array(row.get("train_accuracy", row.get("train_r2"))) for row in outcome.history]
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


CASES = {
    "linear": {},
    "logistic-bias": {"loss": "logistic", "fit_intercept": True},
    "apg": {"solver": "apg", "max_inner": 5, "max_rounds": 2},
    "groups": {"groups": np.arange(14) // 3},
    "overlap": {"groups": [np.array([0, 1, 2, 9]), np.array([1, 3, 5]), np.array([2, 4, 6, 7]), np.arange(8, 14)]},
    "poly2": {"feature_map": "poly2"},
    "additive_gaussian": {"feature_map": "additive_gaussian", "max_rounds": 2},
}


@pytest.mark.parametrize("case", CASES)
def test_rows_on_workers_give_the_bits_of_the_driver(problem, case):
    X, codes = problem
    data = MemoryBlocks(X)
    sink = MemorySink()
    near = machines(data, codes, LARGE, events=sink, **CASES[case])
    assert not [event for event in sink.named("plan") if event["program"].startswith("rows-")]
    far = machines(data, codes, SMALL, events=sink, **CASES[case])
    passes = [event for event in sink.named("plan") if event["program"].startswith("rows-")]
    assert {event["n_tasks"] for event in passes} == {2}
    assert {"rows-evaluate", "rows-decision"} <= {event["program"] for event in passes}
    assert everything(near) == everything(far)


def aside(n=N):
    """Covariates in units far apart."""
    rng = np.random.default_rng(3)
    return np.c_[2000.0 + rng.integers(0, 9, n), 1e-4 * rng.normal(size=n)]


TARGETS = {
    "squared": {},
    "squared-covariates": {"covariates": aside()},
    "epsilon": {"loss": "squared_epsilon_insensitive", "epsilon": 0.2, "fit_intercept": False},
    "huber-covariates": {"loss": "huber", "delta": 0.5, "covariates": aside(), "debias": True},
    "apg": {"solver": "apg", "max_inner": 5, "max_rounds": 2, "covariates": aside()},
    "mkl": {"solver": "mkl", "max_inner": 3, "max_rounds": 2, "covariates": aside()},
    "groups-covariates": {"groups": np.arange(14) // 3, "covariates": aside(), "loss": "huber"},
    "poly2": {"feature_map": "poly2", "covariates": aside(), "max_rounds": 2},
    "hik": {"feature_map": "additive_gaussian", "max_rounds": 2, "covariates": aside()},
}


@pytest.mark.parametrize("case", TARGETS)
def test_real_targets_and_covariates_on_workers_give_the_bits_of_the_driver(problem, case):
    X, _ = problem
    y, data, sink = (X @ np.r_[2.0, -2.0, 1.5, 1.0, np.zeros(10)]) * 40.0 + aside()[:, 0], MemoryBlocks(X), MemorySink()
    near, far = (machines(data, y, memory, events=sink, **TARGETS[case]) for memory in (LARGE, SMALL))
    assert {event["n_tasks"] for event in sink.named("plan") if event["program"].startswith("rows-")} == {2}
    assert everything(near) == everything(far)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_covariates_of_classes_on_workers_give_the_bits_of_the_driver(problem, tmp_path, loss):
    X, codes = problem
    three = codes + (np.asarray(X[:, [4]].todense()).ravel() > 0.5)
    weight = np.random.default_rng(1).uniform(0.0, 2.0, N)
    data = ingest((X, three), tmp_path / "a.zarr")
    options = {"covariates": aside(), "weight": weight, "loss": loss, "fit_intercept": True, "max_rounds": 2}
    found = [everything(machines(data, three, memory, **options)) for memory in (LARGE, SMALL)]
    assert found[0] == found[1]


@pytest.mark.parametrize("case", ["weights", "classes", "debias", "dense"])
def test_more_of_the_same(problem, case):
    X, codes = problem
    rng = np.random.default_rng(1)
    options = {}
    if case == "weights":
        options["weight"] = rng.uniform(0.0, 2.0, N) * (rng.random(N) < 0.7)
    if case == "classes":
        codes = codes + (np.asarray(X[:, [4]].todense()).ravel() > 0.5)
        options["fit_intercept"] = True
    if case == "debias":
        options["debias"] = True
    data = MemoryBlocks(X.toarray()[:, :6].astype(np.float32) if case == "dense" else X)
    found = [everything(machines(data, codes, memory, **options)) for memory in (LARGE, SMALL)]
    assert found[0] == found[1]


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_constant_columns_are_read_alike_by_the_rows_and_the_driver(problem, form):
    """Two fits in one process whose cuts agree, with an intercept and without one: only the second reads the constant."""
    X, codes = problem
    X = sp.csr_array(sp.hstack([X[:, :3], np.ones((N, 1))])) if form == "sparse" else np.c_[X[:, :3].toarray(), np.ones(N)]
    data = MemoryBlocks(X)
    for bias in (True, False):
        given = {"groups": [np.arange(4)], "B": 1, "max_rounds": 1, "fit_intercept": bias}
        near, far = (machines(data, codes, memory, **given) for memory in (LARGE, SMALL))
        assert everything(near) == everything(far)
        assert (near[0].weights[0, 3] == 0) == bias


def test_columns_kept_by_workers_are_those_of_the_map_that_is_asked_for(problem):
    """Two fits in one process that differ only in what the columns' names do not tell."""
    X, codes = problem
    data = MemoryBlocks(X)
    for one, two in (
        ({"feature_map": "poly2", "gamma": 1.0}, {"feature_map": "poly2", "gamma": 3.0}),
        ({"feature_map": "additive_gaussian", "gamma": 0.5}, {"feature_map": "additive_gaussian", "gamma": 0.1}),
        ({"groups": [np.arange(7), np.arange(7, 14)]}, {"groups": [np.arange(3), np.arange(3, 14)]}),
        ({"groups": np.arange(14) // 7, "group_weight": [1.0, 2.0]}, {"groups": np.arange(14) // 7, "group_weight": [2.0, 1.0]}),
    ):
        params = {"max_rounds": 1}
        machines(data, codes, SMALL, **params, **one)
        assert everything(machines(data, codes, SMALL, **params, **two)) == everything(machines(data, codes, LARGE, **params, **two))


def test_columns_kept_by_this_process_are_those_of_the_arrays_that_are_asked_for(problem):
    X, codes = problem
    machines(MemoryBlocks(X), codes, SMALL, max_rounds=1)
    twice = MemoryBlocks(2 * X)
    assert everything(machines(twice, codes, SMALL, max_rounds=1)) == everything(machines(twice, codes, LARGE, max_rounds=1))


@pytest.mark.parametrize("scale", ["unit-column", "standard", "unit-row"])
def test_scaled_stores(problem, tmp_path, scale):
    X, codes = problem
    data = ingest((X, codes), tmp_path / "a.zarr", scale=scale)
    found = [everything(machines(data, codes, memory, max_rounds=2)) for memory in (LARGE, SMALL)]
    assert found[0] == found[1]


def test_dense_store_with_centred_columns(problem, tmp_path):
    X, codes = problem
    data = ingest((X.toarray()[:, :5] + 1.0, codes), tmp_path / "a.zarr", scale="standard")
    found = [everything(machines(data, codes, memory, max_rounds=2)) for memory in (LARGE, SMALL)]
    assert found[0] == found[1]


@pytest.mark.parametrize("bias", [True, False])
def test_constant_members_of_groups_weigh_nothing_on_workers_beside_an_intercept(problem, tmp_path, bias):
    X, codes = problem
    dense = X.toarray()[:, :6]
    dense[:, 1] = 2.0
    data = ingest((sp.csr_array(dense), codes), tmp_path / "a.zarr")
    assert isinstance(data, BlockStore)
    options = {"groups": [np.arange(3), np.arange(3, 6)], "max_rounds": 2, "fit_intercept": bias}
    near, far = machines(data, codes, LARGE, **options), machines(data, codes, SMALL, **options)
    assert everything(near) == everything(far)
    assert near[0].weights[:, near[0].coordinates == 1].any() != bias


def test_runs_with_little_driver_memory_resume_to_the_same_bits(store, tmp_path, monkeypatch):
    class Stopped(Exception):
        pass

    def stop(event):
        if event["event"] == "iteration" and event["iteration"] == 2:
            raise Stopped

    def run(name, memory, sink=None):
        return run_method("fgm", PARAMS, data=store, run=str(tmp_path / name), driver_memory=memory, on_event=sink)

    run("near", LARGE)
    with pytest.raises(MemoryBoundExceeded, match=r"fgm: this process would hold .*duals and decision values"):
        run("none", SMALL)
    # The vectors over the rows need more than few columns do.
    monkeypatch.setattr(fgm_designs, "DRIVER_SHARE", 0.0)
    with pytest.raises(Stopped):
        run("far", "8MiB", stop)
    assert resume_run(str(tmp_path / "far")).status == "done"
    assert bits(load_model(tmp_path / "near")) == bits(load_model(tmp_path / "far"))
    decided = [RunStore.open(tmp_path / name).read_json("decisions")["solve_at"] for name in ("near", "far")]
    assert decided == ["driver", "workers"]


@pytest.mark.parametrize(("n", "memory", "where"), [(ROW_BLOCK, 1, "driver"), (N, 1, "workers"), (N, 1 << 30, "driver")])
def test_where_sub_problems_are_solved_follows_from_sizes(n, memory, where):
    data = MemoryBlocks(sp.csc_array(np.ones((n, 2), np.float32)))
    assert solve_at(data, 20, memory) == where
