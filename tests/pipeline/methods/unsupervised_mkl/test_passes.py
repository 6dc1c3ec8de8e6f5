"""UnsupervisedMKL by passes: what whole matrices give, the same bits everywhere, a run that is killed, plans, and what is refused."""

import functools
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import MemoryBoundExceeded
from gramplane.kernels.grams.spec import as_specs
from gramplane.pipeline import UnsupervisedMKL, load_model, run_method
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.methods.unsupervised_mkl import codes_pass, rows_pass
from gramplane.pipeline.methods.unsupervised_mkl import strips_pass as strips
from gramplane.storage import MemoryBlocks
from gramplane.storage.ingest import ingest
from tests.support.oracles.umkl import objective

KERNELS = ["rbf(gamma=0.5)", "rbf(gamma=2)", "poly(degree=2)", "linear", "rbf(gamma=1)[0]"]
PARAMS = {"kernels": KERNELS, "n_bases": 5, "gamma1": 0.05}
LITTLE = "3MiB"  # too little for whole matrices of 300 points, enough for the passes


def points(seed=0, n=300, d=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 3.0 * rng.integers(0, 2, n)[:, None]


@pytest.fixture
def small_tasks(monkeypatch):
    """Tasks of a few dozen points."""
    monkeypatch.setattr(rows_pass, "STRIP_BYTES", 12 * 300 * 50)
    monkeypatch.setattr(rows_pass, "COLUMNS", 100)


def fit(folder, name, X, params=None, **options):
    """Run on a store of the points; return the plan, the outcome and the model."""
    path = folder / "data.zarr"
    data = str(path) if path.exists() else ingest(X, path, scale=options.pop("scale", "none")).url
    options.pop("scale", None)
    given = {"data": data, "driver_memory": LITTLE, **options}
    plan = run_method("unsupervised-mkl", {**PARAMS, **(params or {})}, run=str(folder / f"dry{name}"), dry_run=True, **given).plan
    outcome = run_method("unsupervised-mkl", {**PARAMS, **(params or {})}, run=str(folder / name), **given)
    return plan, outcome, load_model(folder / name)


def parts(model):
    return [model.kernel_weights_, model.bases_, model.eigenvalues_, model.model_.beta, np.array([model.objective_])]


def bits(model):
    return [np.ascontiguousarray(part).tobytes() for part in parts(model)]


# -- against whole matrices --------------------------------------------------------------------------------------------------------

WAYS = {
    "plain": {},
    "gain": {"stop": "gain", "gamma2": 0.2},
    "no safeguard": {"safeguard": False, "max_iter": 4},
    "cosine": {"normalize": "cosine"},
    "column sums": {"normalize": "column_sum", "gamma1": 0.0, "max_iter": 3},
    "centred": {"kernels": ["rbf(gamma=0.5) centre", "poly(degree=2) cosine centre", "linear multiplicative"], "max_iter": 4},
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("way", WAYS)
def test_passes_find_what_whole_matrices_find(tmp_path, small_tasks, way):
    X = points()
    _, whole, a = fit(tmp_path, "whole", X, WAYS[way], driver_memory="64MiB")
    plan, passes, b = fit(tmp_path, "passes", X, WAYS[way])
    assert plan["points"] == "by passes" and plan["driver_bytes"] < 36 * 300**2
    assert passes.summary["iterations"] == whole.summary["iterations"]
    assert passes.summary["objective"] == pytest.approx(whole.summary["objective"], rel=1e-10)
    np.testing.assert_allclose(b.kernel_weights_, a.kernel_weights_, atol=1e-9)
    np.testing.assert_array_equal(np.sort(b.bases_, axis=1), np.sort(a.bases_, axis=1))
    np.testing.assert_allclose(b.eigenvalues_, a.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(b.transform(X), a.transform(X), atol=1e-5 * np.abs(a.transform(X)).max())
    assert 0.0 < b.model_.figures["component_residual"] <= 1e-8


@pytest.mark.parametrize("form", ["sparse", "constant", "standard"])
def test_forms_of_the_data(tmp_path, small_tasks, form):
    """Constant columns are rebuilt like any other, and no kernel sees them."""
    X = points(1)
    X = {"sparse": np.where(X < 0.5, 0.0, X), "constant": np.column_stack([X, np.full(300, 2.0)]), "standard": X}[form]
    given = sp.csr_array(X) if form == "sparse" else X
    scale = "standard" if form == "standard" else "none"
    params = {"kernels": KERNELS[:3], "max_iter": 4, "tol": 1e-3}
    _, _, a = fit(tmp_path, "whole", given, params, driver_memory="64MiB", scale=scale)
    _, _, b = fit(tmp_path, "passes", given, params, scale=scale)
    np.testing.assert_array_equal(np.sort(b.bases_, axis=1), np.sort(a.bases_, axis=1))
    np.testing.assert_allclose(b.kernel_weights_, a.kernel_weights_, atol=1e-9)
    rows = (X - X.mean(axis=0)) / X.std(axis=0) if form == "standard" else X
    exact = objective(rows, b.combined_kernel(X), b.bases_, 0.05, 0.0)
    assert b.objective_ == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("start", ["sparse-coding", "kernel-sparse-coding"])
@pytest.mark.parametrize("stop", ["size", "gain"])
def test_sparse_codes_by_passes_are_those_of_whole_matrices(tmp_path, monkeypatch, small_tasks, start, stop):
    """Codes of the rows are well determined with as many features as points; a few candidates join at a time."""
    monkeypatch.setattr(codes_pass, "MIN_FRESH", 5)
    X, params = points(3), {"start": start, "stop": stop, "max_iter": 1}
    if start == "sparse-coding":
        X, params = np.random.default_rng(2).normal(size=(300, 300)), {**params, "kernels": ["rbf(gamma=0.002)", "linear"], "gamma2": 40.0}
    events = []
    _, _, a = fit(tmp_path, "whole", X, params, driver_memory="64MiB")
    _, _, b = fit(tmp_path, "passes", X, params, driver_memory=LITTLE if start != "sparse-coding" else "4700KiB", on_event=events.append)
    passes = [event["program"] for event in events if event["event"] == "plan"]
    assert passes.count("sparse-codes") == passes.count("code-residuals") - 1 >= 2
    np.testing.assert_array_equal(b.bases_, a.bases_)
    assert b.objective_ == pytest.approx(a.objective_, rel=1e-9)
    assert (b.bases_ < 0).any() == (stop == "gain")


def test_a_code_has_no_more_candidates_than_there_is_room_for(tmp_path, monkeypatch, small_tasks):
    monkeypatch.setattr(codes_pass, "MAX_CANDIDATES", 6)
    seen = []
    real = codes_pass.Codes.joined
    monkeypatch.setattr(codes_pass.Codes, "joined", lambda *given: seen.append(real(*given)) or seen[-1])
    _, _, found = fit(tmp_path, "passes", points(3), {"start": "kernel-sparse-coding", "max_iter": 1})
    assert max(np.diff(codes.indptr).max() for codes in seen) == 6
    assert all((np.sort(row) == np.unique(row)).all() and (row >= 0).all() for row in found.bases_)


def test_a_plan_lists_what_the_chosen_way_holds(tmp_path):
    given = {"data": ingest(points(), tmp_path / "data.zarr").url, "run": str(tmp_path / "run"), "dry_run": True}
    whole = run_method("unsupervised-mkl", {**PARAMS, "grams": "memory"}, **given).plan
    passes = run_method("unsupervised-mkl", {**PARAMS, "grams": "memory"}, driver_memory=whole["driver_bytes"] - 1, **given).plan
    assert (whole["points"], passes["points"]) == ("in this process", "by passes")
    assert whole["driver_bytes"] > 36 * 300**2 > passes["driver_bytes"]


@pytest.mark.parametrize("policy", ["memory", "store"])
def test_where_kernels_lie(tmp_path, small_tasks, policy):
    """None in a bank, which passes could not read; the sum of stored ones is a file of the run, and gone at the end."""
    X = points(4)
    plan, _, found = fit(tmp_path, "found", X, {"grams": policy, "gram_store": str(tmp_path / "grams"), "max_iter": 3})
    assert plan["grams"] == ("recompute" if policy == "memory" else "store")
    assert policy == "store" or "whole matrices are beyond the driver's memory" in plan["gram_reason"]
    _, _, base = fit(tmp_path, "base", X, {"max_iter": 3})
    np.testing.assert_array_equal(found.bases_, base.bases_)
    np.testing.assert_allclose(found.kernel_weights_, base.kernel_weights_, atol=1e-12)
    assert not (tmp_path / "found" / "scratch").exists() or not list((tmp_path / "found" / "scratch").iterdir())


def test_rows_that_are_read_block_by_block_give_the_same_bits(tmp_path, monkeypatch, small_tasks):
    X, options = points(5), {"max_iter": 3, "start": "sparse-coding"}
    monkeypatch.setattr(rows_pass, "READ", 70)
    _, _, held = fit(tmp_path, "held", X, options)
    monkeypatch.setattr(rows_pass, "HELD_BYTES", 0)
    _, _, read = fit(tmp_path, "read", X, options)
    assert bits(read) == bits(held)


def test_an_estimator_goes_by_passes_too(monkeypatch, small_tasks):
    X = points(6)
    whole = UnsupervisedMKL(**PARAMS).fit(X)
    little = functools.partial(RunContext, driver_memory=3 << 20)
    monkeypatch.setattr("gramplane.pipeline.estimators.inputs.RunContext", little)
    found = UnsupervisedMKL(**PARAMS).fit(X)
    assert "component_residual" in found.model_.figures and "component_residual" not in whole.model_.figures
    np.testing.assert_array_equal(np.sort(found.bases_, axis=1), np.sort(whole.bases_, axis=1))
    np.testing.assert_allclose(found.transform(X), whole.transform(X), atol=1e-5)


# -- plans -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [{}, {"start": "kernel-sparse-coding"}, {"normalize": "column_sum"}], ids=["plain", "codes", "sums"])
def test_every_sweep_has_the_tasks_of_the_plan_and_every_step_its_memory(tmp_path, small_tasks, params):
    events = []
    plan, outcome, _ = fit(tmp_path, "run", points(9), {**params, "max_iter": 3}, on_event=events.append)
    begun = [event for event in events if event["event"] == "plan"]
    sweeps = [event["n_tasks"] for event in begun if event["program"] in ("bases", "base-terms")]
    assert sweeps == [plan["tasks_per_pass"]] * outcome.summary["iterations"]
    assert plan["tasks_per_pass"] == 3 + 3 + 1, "50 points a task, which end where blocks of 128 rows do"
    assert max(event["memory_bound"] for event in begun) <= plan["task_bytes"]


def test_a_task_takes_no_more_than_its_plan():
    """The blocks of all kernels weigh more than what is made of them."""
    kernels = strips.BaseKernels(tuple(as_specs([f"rbf(gamma={gamma})" for gamma in range(1, 9)], 4)), None, np.ones(8))
    total, asked = strips.KernelSum(kernels, np.ones(8)), strips.Rebuilding(kernels, 5, 0.05, 0.0, "size")
    work = strips.choose_pass(rows_pass.points_of(MemoryBlocks(points(n=1200)), 5, 256), total, asked)
    strips.choose_chunk(work.refs[0], total, asked, None)  # compiles
    tracemalloc.start()
    strips.choose_chunk(work.refs[0], total, asked, None)
    taken, planned = tracemalloc.get_traced_memory()[1], work.memory_bound - strips.FREED_BYTES
    tracemalloc.stop()
    assert taken <= planned <= 3 * taken


def test_the_way_is_chosen_by_the_drivers_memory_alone(tmp_path):
    data = ingest(points(), tmp_path / "data.zarr").url

    def planned(memory, **options):
        given = {"data": data, "run": str(tmp_path / "run"), "driver_memory": memory, "dry_run": True}
        return run_method("unsupervised-mkl", {**PARAMS, "grams": "recompute"}, **given, **options).plan

    whole = planned("64MiB")
    needed = whole["driver_bytes"]
    assert whole["points"] == "in this process" and whole["distributed"] == ["Gram blocks"]
    assert planned(needed)["points"] == "in this process"
    # A little less gives smaller blocks of a sum on their way, which count; much less does not.
    passes = planned(needed // 2, cluster="local:2")
    assert passes["points"] == "by passes" == planned(needed // 2)["points"]
    assert passes["distributed"][1:] == ["bases of the points and quadratic program of the weights", "products for the components"]
    assert not any("all rows" in row["what"] or "sum of the kernels" in row["what"] for row in passes["driver_holds"])
    with pytest.raises(MemoryBoundExceeded, match=r"unsupervised-mkl: this process would hold .*fewer rows or kernels"):
        planned("100KiB")
