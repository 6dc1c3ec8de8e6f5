"""Machines of the rows of all tasks on sums that the driver does not hold: shared subspace, latent groups, kernels from a graph.

Objective and certificate of a fit in memory, nothing of order n^2 on the driver, task counts and bytes of the plan, the same bits on
workers, with one of them killed, and after a stop.
"""

import numpy as np
import pytest

from gramplane.cluster import MemorySink, open_executor
from gramplane.kernels.graphs.parsing import parse_graph
from gramplane.kernels.jit import one_thread
from gramplane.kernels.svm.dual import svc_problem
from gramplane.pipeline import load_model, run_method
from gramplane.pipeline.core.resources import Resources, RunContext
from gramplane.pipeline.grams import pair_passes as gram_passes
from gramplane.pipeline.methods.hierarchical_kernels.graph import base_kernels
from gramplane.pipeline.methods.hierarchical_kernels.machines import SharedMachines
from gramplane.pipeline.methods.hierarchical_kernels.node_pass import SignedForms, VectorForms, node_task_bytes
from gramplane.storage import BlockStore, GramStore, RunStore
from gramplane.storage.ingest import ingest
from gramplane.workflows.battery import model_bytes, without_times

N, D, T = 300, 5, 4
LITTLE = "512KiB"
"""Memory of a driver that holds a working set of 128 rows."""

KERNELS = ["rbf(gamma=0.1)", "rbf(gamma=0.5)", "linear[0,1] cosine"]
TASKS = {"kernels": KERNELS, "tol": 2e-2}
GRAPH = {"dag": "subsets(gaussian[0:3])", "tol": 1e-2, "C": 5.0, "max_nodes": 8, "grams": "recompute"}
CASES = {
    "shared-subspace": ("shared-subspace-mkl", TASKS, "classes"),
    # (At its own C, 0.29, the search by passes has not closed the gap after 200 steps: 3.5 %.)
    "shared-subspace-squared": ("shared-subspace-mkl", {**TASKS, "loss": "squared", "C": 0.05}, "numbers"),
    "shared-subspace-numbers": ("shared-subspace-mkl", TASKS, "numbers"),
    "latent-tasks": ("latent-task-mkl", TASKS, "classes"),
    "latent-tasks-squared": ("latent-task-mkl", {**TASKS, "loss": "squared"}, "numbers"),
    "hierarchical": ("hierarchical-kernels", {**GRAPH, "task_kernel": 1.0}, "classes"),
    "hierarchical-squared": ("hierarchical-kernels", {**GRAPH, "loss": "squared"}, "numbers"),
    "hierarchical-three-classes": ("hierarchical-kernels", GRAPH, "three"),
}
ON_WORKERS = ("shared-subspace", "latent-tasks", "hierarchical")


@pytest.fixture(scope="module", autouse=True)
def _several_tasks():
    """Passes over a handful of small blocks have several tasks."""
    with pytest.MonkeyPatch.context() as patch, one_thread():
        patch.setattr(gram_passes, "PASS_BYTES", 1)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Stores of tasks in mixed order, and one of three classes without tasks."""
    path, rng = tmp_path_factory.mktemp("pooled"), np.random.default_rng(0)
    X, task = rng.normal(size=(N, D)), rng.integers(0, T, N)
    z = np.sin(2 * X[:, 0]) + X[:, 1] * (1 + task % 2) + 0.2 * rng.normal(size=N) + task
    ingest((X, np.where(z > task, 1, -1)), path / "classes", task_column=task)
    ingest((X, z), path / "numbers", task="regression", task_column=task)
    ingest((X, np.digitize(z, [0.5, 2.5])), path / "three")
    return path


def fit(folder, name, run, memory=LITTLE, **options):
    method, params, data = CASES[name]
    return run_method(method, params, data=str(folder / data), run=str(run), driver_memory=memory, **options)


@pytest.fixture(scope="module")
def straight(folder):
    """Fits with little memory in this process, with their events, each made once."""
    made = {}

    def run(name):
        if name not in made:
            events = []
            made[name] = fit(folder, name, folder / name, on_event=events.append).summary, events
        return made[name]

    return run


def same(run, other):
    """Every bit of the model, and every figure on the way."""
    arrays = [{name: part for name, part in model_bytes(folder).items() if "/c/" in name} for folder in (run, other)]
    assert arrays[0] == arrays[1]
    assert len(arrays[0]) > 5
    histories = [[without_times(row) for row in RunStore.open(folder).history()] for folder in (run, other)]
    assert histories[0] == histories[1]


SLOW = ("shared-subspace-numbers", "latent-tasks-squared", "hierarchical-squared")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES])
def test_a_fit_beyond_the_driver_is_certified_with_the_optimum_of_one_in_memory(name, folder, straight, tmp_path):
    near = fit(folder, name, tmp_path / "near", "1GiB").summary
    far, events = straight(name)
    tol = CASES[name][1]["tol"]
    assert far["gap"] <= 1.001 * tol * abs(far["objective"]) and far["stop"] in ("tol", "certified") and near["stop"] == far["stop"]
    assert far["objective"] - far["gap"] <= near["objective"] * (1 + 1e-6) and near["objective"] - near["gap"] <= far["objective"] * (
        1 + 1e-6
    )
    starts = [event for event in events if event["event"] == "start"]
    used = {event["program"] for event in starts}
    assert {"gram-sum", "gram-entries", "gram-product", "task-forms"} <= used
    assert used.isdisjoint({"weighted-sum", "task-weighted-sum", "gram-blocks", "gram-bank", "quadratic-forms", "node-forms"})
    # Nothing that comes to the driver is of order n^2: of the sum no more than the square of the working set.
    assert max(event["result_bytes"] for event in events if event["event"] == "plan") < 4 * N**2 // 2
    assert not (folder / name / "scratch").exists()
    a, b = (load_model(path) for path in (folder / name, tmp_path / "near"))
    assert np.abs(a.dual_coef_).max() > 0 and a.intercept_ == pytest.approx(b.intercept_, abs=0.1)


@pytest.mark.parametrize("name", ON_WORKERS)
def test_the_plan_says_what_is_done_where_and_its_counts_and_bytes_hold(name, folder, straight, tmp_path):
    far = fit(folder, name, tmp_path / "far", dry_run=True).plan
    near = fit(folder, name, tmp_path / "near", "1GiB", dry_run=True).plan
    assert far["machines_solved_on"] == "a file of the run, by passes" and near["machines_solved_on"] == "a matrix in this process"
    assert set(near["distributed"]) < set(far["distributed"]) and any("sums" in work for work in far["distributed"])
    assert {row["what"] for row in far["driver_holds"]} >= {
        "a solver's working set of the weighted sum",
        "diagonals and row sums of the kernels",
    }
    _, events = straight(name)
    passes = [event for event in events if event["event"] == "plan"]
    assert max(event["memory_bound"] for event in passes) <= far["task_bytes"]
    forms = [event["n_tasks"] for event in passes if event["program"] == "task-forms"]
    assert max(forms) == far["tasks_per_pass"] > 2
    if name != "hierarchical":  # where kernels outside the hull have passes of their own
        assert set(forms) == {far["tasks_per_pass"]}


# -- kernels from a graph ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_kernel", [None, np.eye(T), np.eye(T) + 1.0, np.array([[1.0, -0.9], [-0.9, 1.0]]).repeat(2, 0).repeat(2, 1)])
def test_sums_over_pairs_of_tasks_and_signs_are_the_forms_of_vectors_and_of_their_parts(task_kernel, folder):
    rng = np.random.default_rng(3)
    codes = None if task_kernel is None else rng.integers(0, T, N)
    problems = tuple(svc_problem(np.where(np.arange(N) % 2, 1.0, -1.0), 1.0) for _ in range(2 if task_kernel is None else 1))
    machines = SharedMachines(problems, False, codes, task_kernel)
    betas = rng.normal(size=(len(problems), N)) * (rng.random(N) < 0.6)
    dag = parse_graph("subsets(gaussian[0:3])", 2.0, D, np.ones(D))
    specs = [dag.kernel(key) for key in dag.children(dag.roots()[0])] + [dag.kernel(np.array([1, 1, 0] + [0] * (dag.width - 3)))]
    with open_executor() as executor:
        ctx = RunContext(executor, data=BlockStore.open(str(folder / "classes")), driver_memory=1 << 30)
        few = Resources(executor, driver_memory=1 << 19)
        near, far = (machines.outside_forms(betas, ctx.data, one) for one in (ctx, few))
        assert isinstance(near, VectorForms) and isinstance(far, SignedForms)
        for a, b in zip(near.split_totals(specs), far.split_totals(specs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
        np.testing.assert_allclose(near.totals(specs), far.totals(specs), rtol=1e-9)


@pytest.mark.parametrize("memory", [1 << 30, 1 << 19])
def test_forms_of_all_nodes_take_what_was_planned(memory, folder, monkeypatch):
    """Of so many machines that their vectors, and what comes back of them, are more than the kernels."""
    monkeypatch.setattr("gramplane.pipeline.grams.sources.FREED_BYTES", 0)
    rng, sink, count = np.random.default_rng(3), MemorySink(), 400
    data, dag = BlockStore.open(str(folder / "classes")), parse_graph("subsets(gaussian[0])", 2.0, D, np.ones(D))
    machines = SharedMachines(tuple(svc_problem(np.where(np.arange(N) % 2, 1.0, -1.0), 1.0) for _ in range(count)), False, None, None)
    specs = [dag.kernel(dag.roots()[0]), *map(dag.kernel, dag.children(dag.roots()[0]))]
    assert len(specs) == dag.size
    with open_executor(None, events=sink) as executor:
        forms = machines.outside_forms(rng.normal(size=(count, N)), data, Resources(executor, driver_memory=memory))
        forms.split_totals(specs)
        tasks = None if isinstance(forms, VectorForms) else (count, machines.n_tasks)
        planned = node_task_bytes(data, dag, len(base_kernels(dag)), count, tasks)
    taken = max(event["memory_bound"] for event in sink.events if event["event"] == "plan")
    assert taken == planned


def test_a_gram_store_keeps_the_kernels_of_the_hulls_for_further_fits(folder, tmp_path):
    store, digests = tmp_path / "grams", []
    params = {**GRAPH, "task_kernel": 1.0, "C": 50.0, "tol": 1e-3}
    data = str(folder / "classes")
    run_method("hierarchical-kernels", params, data=data, run=str(tmp_path / "recompute"))
    for name in ("store", "again"):
        stored = {**params, "grams": "store", "gram_store": str(store)}
        run_method("hierarchical-kernels", stored, data=data, run=str(tmp_path / name))
        same(tmp_path / name, tmp_path / "recompute")
        digests.append(GramStore.open(store).digest)
    assert digests[0] == digests[1], "the second fit computed kernels that the store has"
    hull = len(load_model(tmp_path / "store").nodes_)
    assert len(GramStore.open(store).kernels) == hull > 4


def test_a_store_needs_a_path_and_steps_have_a_cap(folder, tmp_path):
    with pytest.raises(ValueError, match="grams='store' needs gram_store"):
        run_method("hierarchical-kernels", {"grams": "store"}, data=str(folder / "classes"), run=str(tmp_path / "run"))
    capped = {**GRAPH, "max_iter": 1, "tol": 1e-6, "C": 50.0}
    summary = run_method("hierarchical-kernels", capped, data=str(folder / "classes"), run=str(tmp_path / "capped")).summary
    assert summary["stop"] == "max_iter" and summary["iterations"] == 1 and not load_model(tmp_path / "capped").converged_


def test_kernels_that_need_their_diagonals_alone_are_not_computed_in_full_before_they_are_asked_for(folder, tmp_path):
    events = []
    fit(folder, "shared-subspace", tmp_path / "run", on_event=events.append)
    sums = [event for event in events if event["event"] == "plan" and event["program"] in ("kernel-sums", "kernel-diagonals")]
    assert [(event["program"], event["n_tasks"]) for event in sums] == [("kernel-diagonals", 3)]
