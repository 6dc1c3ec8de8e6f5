"""What every method of the registry must do: all checks of the battery that users run, on every case."""

import functools
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
from gramplane.workflows.report.collect import view_run
from gramplane.workflows.report.found import what_was_found
from gramplane.workflows.report.tables import csv_files
from tests.support.methods import CASES

FIRST = {case.method: name for name, case in reversed(CASES.items())}
OF_A_METHOD = (
    battery.rows_left_out_are_not_looked_at,
    battery.rows_held_out_are_scored,
    battery.resumes_to_the_same_bits,
    battery.resumes_at_every_step_in_turn,
    battery.a_kill_between_history_and_checkpoint_leaves_no_trace,
    battery.a_damaged_checkpoint_falls_back_to_the_one_before,
    battery.a_kill_before_the_summary_writes_the_model_again,
    battery.a_finished_run_is_left_alone,
    battery.another_configuration_is_refused_key_by_key,
    battery.other_data_are_refused,
    battery.one_process_at_a_time,
    battery.the_command_fits_the_same_bits,
)
"""Checks of files, processes and folds, which differ little between cases of one method: of the others they are slow."""


def checks():
    for name in sorted(CASES):
        for check in CHECKS:
            many = check in OF_A_METHOD and name not in FIRST.values()
            yield pytest.param(name, check, marks=[pytest.mark.slow] if many else [], id=f"{name}-{check.__name__}")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Find a case by its name, with its store and one undisturbed run."""
    return functools.cache(lambda name: (CASES[name], battery.prepare_case(CASES[name], tmp_path_factory.mktemp(name))))


@pytest.mark.parametrize("name, check", list(checks()))
def test_every_method(name, check, prepared, tmp_path, capsys):
    with one_thread():
        check(Bench(*prepared(name), tmp_path))


def weights_of(model):
    """``(k, n)`` weights of what a model chose from: features, products, rules, groups of tasks, kernels."""
    match type(model).__name__:
        case "FGMModel" if model.kind in ("hik", "additive_gaussian", "additive_chi2"):
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


@pytest.mark.parametrize("name", CASES)
def test_what_is_selected_has_weight(name, prepared):
    case, folder = prepared(name)
    run, method = RunStore.open(folder / "straight"), METHODS[case.method].method
    summary, model = run.read_json("summary"), run.read_model(method.models)
    if "n_selected" not in summary:
        return
    weights = weights_of(model)
    listed = [row for rows in (method.tables(model).get(name, ()) for name in ("selected", "rules")) for row in rows]
    assert summary["n_selected"] <= np.count_nonzero(weights.reshape(len(weights), -1).any(axis=1))
    assert all(any(isinstance(value, float) and value != 0.0 for value in row.values()) for row in listed)


@pytest.mark.parametrize("name", CASES)
def test_what_a_run_found_is_a_short_table_without_zeros(name, prepared):
    case, folder = prepared(name)
    run = view_run(folder / "straight")
    all_of_it = what_was_found(run, most=10**6)
    first = what_was_found(run, most=2)
    assert first.title and 2 <= len(first.columns) <= 6 and all(set(row) <= set(first.columns) for row in first.rows)
    assert (len(first.rows), first.total) == (min(2, len(all_of_it.rows)), len(all_of_it.rows))
    assert first.file in csv_files([run])
    weighed = [[value for key, value in row.items() if key.startswith("weight")] for row in all_of_it.rows]
    assert all(any(row) for row in weighed if row)
    if case.method in ("mkl", "kta-path", "rule-ensemble", "group-lasso", "multitask-selector"):
        assert first.total == run.summary["n_selected"]


CERTIFIED = {*FIRST.values(), "group-lasso-batch-classes", "multitask-selector-batch", "mkl-classes-recompute"}
# Methods whose own bounds may cross; of the others, with what they report of several machines, this is seen where a fit ends.
CROSSING = {"fgm", "group-lasso", "multitask-selector", "latent-task-mkl", "rule-ensemble", "hierarchical-kernels", "npkl"}
CROSSING |= {"colored-mvu", "mve", "spe", "social-strength"}

LOOKS = {"gramplane.pipeline.method", "gramplane.pipeline.core.engine"}  # modules that look at the gap of a whole fit


@pytest.mark.parametrize("name", sorted(CERTIFIED))
def test_bounds_that_contradict_each_other_certify_nothing(name, prepared, tmp_path, monkeypatch):
    case, folder = prepared(name)
    if RunStore.open(folder / "straight").read_json("summary")["gap"] is None:
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
    assert set(FIRST) == set(METHODS), "CASES in tests/support/methods.py has cases of every method"
    assert all(isinstance(info, MethodInfo) and info.name == name for name, info in METHODS.items())
