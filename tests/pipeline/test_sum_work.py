"""What plans say that workers do, where machines are solved on a matrix of this process and where by passes."""

import numpy as np
import pytest

from gramplane.pipeline import run_method
from gramplane.pipeline.grams.plans import BLOCKS_WORK, FORMS_WORK, SUM_WORK
from gramplane.storage.ingest import ingest

N = 400
KERNELS = {"kernels": ["rbf(gamma=0.1)", "linear"], "max_iter": 1}
MANY = {"kernels": [f"rbf(gamma={k / 10})" for k in range(1, 9)], "max_iter": 1}
SOLVER = {"gram-sum", "gram-product", "gram-entries"}
LAYER = ("second layer", "sums of the kernels weighted by it")
FEATURES = "alignments of features"
# Of each case: what workers do with much memory, and with little; the programs that only the second may run.
CASES = {
    "mkl": (MANY, (BLOCKS_WORK,), (BLOCKS_WORK, *SUM_WORK, FORMS_WORK), SOLVER | {"quadratic-forms"}),
    "mkl-bank": (KERNELS, (BLOCKS_WORK,), (BLOCKS_WORK, *SUM_WORK), SOLVER),
    "two-layer-mkl": (KERNELS, (BLOCKS_WORK,), (BLOCKS_WORK, *LAYER, *SUM_WORK), SOLVER | {"layer-sums"}),
    "kta-path": (
        {"n_machines": 1},
        (FEATURES, "Gram blocks of models"),
        (FEATURES, "products and entries of the models' kernels"),
        {"feature-product", "feature-rows"},
    ),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=N) > 0, 1, -1)
    return ingest(X, tmp_path_factory.mktemp("sums") / "s", target=y).url


@pytest.mark.parametrize("case", CASES)
def test_passes_of_the_solver_are_named_where_they_run(case, data, tmp_path):
    params, near, far, programs = CASES[case]
    name = case.removesuffix("-bank")
    for memory, expected in (("1GiB", near), ("2MiB", far)):
        events = []
        options = {"data": data, "driver_memory": memory, "on_event": events.append}
        plan = run_method(name, params, run=tmp_path / f"{memory}-plan", dry_run=True, **options).plan
        assert tuple(plan["distributed"]) == expected
        run_method(name, params, run=tmp_path / memory, **options)
        passes = [event for event in events if event["event"] == "plan"]
        used = {event["program"] for event in passes}
        assert programs.isdisjoint(used) if expected == near else programs <= used, used
        assert ("quadratic-forms" in used) == (FORMS_WORK in expected)
        if "quadratic-forms" in used or "layer-sums" in used:
            bounds = {event["program"]: event["memory_bound"] for event in passes}
            assert max(bounds.values()) <= plan["task_bytes"], bounds
