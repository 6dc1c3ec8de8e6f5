"""What every method of the registry must do: all checks of the battery that users run, on every case."""

import shutil
import sys

import numpy as np
import pytest

from gramplane.kernels import bounds
from gramplane.kernels.jit import one_thread
from gramplane.pipeline import METHODS, load_model, resume_run
from gramplane.pipeline.registry import MethodInfo
from gramplane.storage import RunStore
from gramplane.workflows import battery
from gramplane.workflows.battery import CHECKS, Bench
from tests.support.methods import CASES


@pytest.fixture(scope="module", params=sorted(CASES))
def prepared(request, tmp_path_factory):
    """A case with its store and one undisturbed run."""
    case = CASES[request.param]
    return case, battery.prepare_case(case, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_method(check, prepared, tmp_path, capsys):
    with one_thread():
        check(Bench(*prepared, tmp_path))


def weights_of(model):
    """``(k, n)`` weights of what a model chose from: features, products, rules, groups of tasks, kernels."""
    match type(model).__name__:
        case "FGMModel" if model.kind in ("hik", "additive_gaussian"):
            return np.isin(model.features, model.used_features)[:, None]
        case "FGMModel":
            return model.weights.T
        case "LinearModel":
            return model.coef.toarray().T if hasattr(model.coef, "toarray") else model.coef.T
        case "KernelModel":
            return model.theta.T
        case "RuleModel":
            return model.weights
        case "TaskModel":
            return model.arrays.get("group_kernel_weights", 1.0 + model.used[:, None])
        case _:
            return model.theta[:, None]


def test_what_is_selected_has_weight(prepared):
    case, folder = prepared
    run, method = RunStore.open(folder / "straight"), METHODS[case.method].method
    summary, model = run.read_json("summary"), run.read_model(method.models)
    if "n_selected" not in summary:
        return
    weights = weights_of(model)
    listed = [row for rows in (method.model_tables(model).get(name, ()) for name in ("selected", "rules")) for row in rows]
    assert summary["n_selected"] <= np.count_nonzero(weights.reshape(len(weights), -1).any(axis=1))
    assert all(any(isinstance(value, float) and value != 0.0 for value in row.values()) for row in listed)


FIRST = {method: next(name for name in CASES if CASES[name].method == method) for method in METHODS}
CERTIFIED = {*FIRST.values(), "group-lasso-batch-classes", "multitask-selector-batch", "mkl-classes-recompute"}
# Methods whose own bounds may cross; of the others, with what they report of several machines, this is seen where a fit ends.
CROSSING = {"fgm", "group-lasso", "multitask-selector", "latent-task-mkl", "rule-ensemble", "hierarchical-kernels", "npkl"}
CROSSING |= {"colored-mvu", "mve", "spe", "social-strength"}

LOOKS = {"gramplane.pipeline.method", "gramplane.pipeline.core.engine"}  # modules that look at the gap of a whole fit


def test_bounds_that_contradict_each_other_certify_nothing(prepared, tmp_path, monkeypatch):
    case, folder = prepared
    if case not in [CASES[name] for name in CERTIFIED] or RunStore.open(folder / "straight").read_json("summary")["gap"] is None:
        return
    run, plain, calls = tmp_path / "run", bounds.sound_gap, []
    shutil.copytree(folder / "straight", run)
    (run / "summary.json").unlink()  # the last state is there, its end is made again

    def false(gap, upper):
        calls.append(gap)
        return plain(-1e-5 * abs(upper) - 1e-300, upper)

    for name, module in list(sys.modules.items()):
        if getattr(module, "sound_gap", None) is plain and (name in LOOKS) != (case.method in CROSSING):
            monkeypatch.setattr(module, "sound_gap", false)
    summary = resume_run(run).summary
    assert calls and summary["stop"] == "bounds" and summary["gap"] is None
    assert any("lies below the lower one" in text for text in summary["warnings"])
    model = load_model(run)
    assert model.stop_reason_ == "bounds" and not getattr(model, "converged_", False)
    assert np.all(np.isnan(getattr(model, "dual_gap_", np.nan)))


def test_every_method_has_a_case():
    assert {case.method for case in CASES.values()} == set(METHODS)
    assert all(isinstance(info, MethodInfo) and info.name == name for name, info in METHODS.items())
