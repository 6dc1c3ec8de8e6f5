"""Machines on sums of Gram matrices that the driver does not hold: by passes, and over a sum written into the run directory."""

import numpy as np
import pytest

from gramplane.cluster import MemorySink, open_executor
from gramplane.kernels.grams.spec import as_specs
from gramplane.kernels.svm.dual import ridge_problem, squared_hinge_problem, svc_problem, svr_problem
from gramplane.kernels.svm.logistic import logistic_problem, solve_logistic
from gramplane.kernels.svm.ridge import solve_ridge
from gramplane.kernels.svm.smo import solve_smo
from gramplane.pipeline import run_method
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams.grams import Grams
from gramplane.pipeline.grams.settings import GramSettings
from gramplane.storage import GramStore, RunStore
from gramplane.storage.ingest import ingest

N, D = 400, 5
KERNELS = ["rbf(gamma=0.1) trace", "poly(degree=2) trace", "rbf(gamma=0.4)[0,2] trace"]
THETA = np.array([0.6, 0.0, 0.4])
LITTLE = 1 << 18
"""Bytes for the driver: a quarter of them holds a working set of about a hundred rows."""


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    z = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    return X, z, np.where(z + 0.3 * rng.standard_normal(N) > 0, 1.0, -1.0)


@pytest.fixture(scope="module")
def store(data, tmp_path_factory):
    return ingest(data[:2], tmp_path_factory.mktemp("solves") / "data", task="regression")


PROBLEMS = {
    "svc": (lambda z, y: svc_problem(y, 2.0), lambda gram, problem: solve_smo(gram, problem, tol=1e-5)),
    "svr": (lambda z, y: svr_problem(z, 0.1, 1.0), lambda gram, problem: solve_smo(gram, problem, tol=1e-5)),
    "squared hinge": (lambda z, y: squared_hinge_problem(y, 2.0), lambda gram, problem: solve_smo(gram, problem, tol=1e-5)),
    "ridge": (lambda z, y: ridge_problem(z, 0.5), lambda gram, problem: solve_ridge(gram, problem, tol=1e-6)),
    "logistic": (lambda z, y: logistic_problem(y, 1.0), lambda gram, problem: solve_logistic(gram, problem, tol=1e-6)),
}


def opened(store, tmp_path, policy="store", *, memory=LITTLE, run=None, sink=None, kernels=KERNELS, centre=False):
    """The matrices over an executor in this process."""
    with open_executor(None, events=sink) as executor:
        resources = Resources(executor, scratch=run, driver_memory=memory, emit=sink or (lambda event: None))
        specs = as_specs(kernels, D)
        settings = GramSettings.of(store, resources, specs, policy, str(tmp_path / "grams") if policy == "store" else None)
        return Grams(store, specs, settings, resources, centre=centre)


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    """The sum in memory."""
    return opened(store, tmp_path_factory.mktemp("whole"), "memory", memory=1 << 30).combine(THETA)


@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_dual_is_solved_by_passes(kind, data, store, whole, tmp_path):
    """The optimum of the whole matrix, certified, with nothing of order n^2 on the driver; the same bits over a written sum."""
    make, solve = PROBLEMS[kind]
    problem = make(*data[1:])
    expected = solve(whole, problem)
    sink, run = MemorySink(), RunStore.create(tmp_path / "run", {})
    plain = solve(opened(store, tmp_path).combine(THETA), problem)
    assert plain.converged and plain.gap >= 0
    assert plain.objective == pytest.approx(expected.objective, rel=1e-5)
    assert plain.upper >= expected.objective - 1e-9 * abs(expected.objective)
    written = solve(opened(store, tmp_path, run=run, sink=sink).combine(THETA), problem)
    assert written.beta.tobytes() == plain.beta.tobytes()
    used = {event["program"] for event in sink.named("start")}
    assert "gram-product" in used and used.isdisjoint({"weighted-sum", "gram-blocks"})
    if kind in ("svc", "svr", "squared hinge"):
        assert plain.details["working"] <= (LITTLE / 4 / 4 / 1.5) ** 0.5 < N


def test_a_sum_is_written_once_and_replaced_by_the_next(store, tmp_path):
    run, v = RunStore.create(tmp_path / "run", {}), np.random.default_rng(1).standard_normal(N)
    found, counts = [], []
    for theta in (THETA, THETA, THETA[::-1].copy()):
        sink = MemorySink()
        found.append(opened(store, tmp_path, run=run, sink=sink).combine(theta).matvec(v))
        counts.append([event["blocks_computed"] for event in sink.named("phase") if "weighted sum" in event["phase"]])
    (place,) = run.scratch.iterdir()
    assert counts[0] == counts[2] and counts[0][0] > 1 and counts[1] == [0]
    assert found[0].tobytes() == found[1].tobytes() != found[2].tobytes()
    assert GramStore.open(place).verify().ok and len(GramStore.open(place).kernels) == 1
    run.drop_scratch()
    assert not run.scratch.exists()


def test_a_run_beyond_the_driver_leaves_no_sum_behind(data, tmp_path):
    """A whole run whose driver holds little: the model is that of one in memory, and the scratch folder is gone."""
    ingest((data[0], data[2]), tmp_path / "data")
    params = {"kernels": KERNELS, "C": 2.0, "tol": 1e-2}
    models, events = [], []
    for name, memory in (("near", "1GiB"), ("far", "256KiB")):
        out = run_method("mkl", params, data=str(tmp_path / "data"), run=str(tmp_path / name), driver_memory=memory, on_event=events.append)
        models.append((out.summary["objective"], sorted(path.name for path in (tmp_path / name).iterdir())))
    assert models[0][0] == pytest.approx(models[1][0], rel=1e-2)
    assert models[0][1] == models[1][1] and "scratch" not in models[0][1]
    assert {"gram-sum", "gram-entries"} <= {event.get("program") for event in events}
    plan = run_method("mkl", params, data=str(tmp_path / "data"), run=str(tmp_path / "dry"), driver_memory="256KiB", dry_run=True).plan
    assert plan is not None and plan["grams"] == "recompute" and "every pass" in plan["gram_reason"]


@pytest.mark.parametrize("policy", ["store", "recompute"])
def test_centred_and_normalised_sums_are_those_in_memory(policy, store, tmp_path):
    kernels = ["rbf(gamma=0.5) trace centre", "poly(degree=2) cosine centre"]
    theta, wanted = np.array([0.7, 0.3]), np.array([399, 0, 130, 7])
    near = opened(store, tmp_path, "memory", memory=1 << 30, kernels=kernels, centre=True).combine(theta).array
    run = RunStore.create(tmp_path / "run", {})
    far = opened(store, tmp_path, policy, run=run, kernels=kernels, centre=True).combine(theta)
    for rows, columns, values in far.between(wanted[:1], wanted[1:]):
        np.testing.assert_array_equal(values, near[np.ix_(wanted[rows], wanted[columns])])
    v = np.random.default_rng(2).standard_normal(N)
    np.testing.assert_allclose(far.matvec(v), near.astype(float) @ v, atol=1e-9)
    np.testing.assert_array_equal(far.rows(wanted), near[wanted])
    assert far.rows(wanted[:0]).shape == (0, N)


def test_entries_come_in_bounded_pieces(store, tmp_path, monkeypatch):
    from gramplane.pipeline.grams import weighted_sum as combined

    monkeypatch.setattr(combined, "PART_BYTES", 40_000)
    monkeypatch.setattr(combined, "BATCH_BYTES", 100_000)
    sink = MemorySink()
    gram = opened(store, tmp_path, sink=sink).combine(THETA)
    seen = np.zeros((N, N), int)
    for rows, columns, _ in gram.between(np.arange(0, N, 2), np.arange(1, N, 2)):
        ids = np.concatenate([np.arange(0, N, 2), np.arange(1, N, 2)])
        seen[np.ix_(ids[rows], ids[columns])] = 1
        seen[np.ix_(ids[columns], ids[rows])] = 1
    assert seen[::2].all() and seen[:, ::2].all() and not seen[1::2, 1::2].any()
    plans = [event for event in sink.named("plan") if event["program"] == "gram-entries"]
    assert len(plans) > 1
    # A block pair of 128 rows gives 64 KiB at most, whatever the pieces are.
    assert max(event["result_bytes"] for event in plans) <= 40_000 + (1 << 16)


def test_the_policy_and_its_reason_are_said(store, tmp_path):
    told = {}
    for name, memory, path in (("memory", 1 << 30, None), ("recompute", LITTLE, None), ("store", LITTLE, str(tmp_path / "g"))):
        sink = MemorySink()
        with open_executor(None) as executor:
            resources, specs = Resources(executor, driver_memory=memory, emit=sink), as_specs(KERNELS, D)
            Grams(store, specs, GramSettings.of(store, resources, specs, "auto", path), resources)
        told[name] = sink.named("grams")[0]
        assert told[name]["grams"] == name
    assert "in memory: 3 Gram matrices of 400 rows take 1" in told["memory"]["gram_reason"]
    assert "there is room: 3 Gram" in told["recompute"]["gram_reason"] and "128 KiB" in told["recompute"]["gram_reason"]
    assert "Gram store: 3 Gram" in told["store"]["gram_reason"]
