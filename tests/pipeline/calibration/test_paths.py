"""Fits that begin where others ended: the same optimum, in fewer steps, whichever way the parameter goes."""

from functools import partial

import numpy as np
import pytest

from gramplane import pipeline
from gramplane.pipeline.core.engine import iterate
from gramplane.pipeline.methods.mkl import method as mkl
from gramplane.pipeline.records.config import FOLD_TOL_FACTOR
from gramplane.pipeline.registry import METHODS
from tests.support.searches import KERNELS, LABELS, TASKS, X, Y

THREE_CS = [0.3, 30.0, 300.0]


def fits(name, chain, **more):
    """The runs of an estimator along some values of C, each continued and each from nothing, with the states they end with."""
    machine, given = getattr(pipeline, name)(kernels=KERNELS, tol=1e-4), []
    machine._fit = lambda inputs, config=None: given.append(inputs)  # what is fitted, and no fit
    machine.fit(X, LABELS if "Classifier" in name else Y, **more)
    inputs, method = given[0], machine._method
    with machine._context(inputs.labelled.data) as ctx:
        before = None
        for C in chain:
            config = machine._config().model_copy(update={"C": C})
            alone, run = (method.problem(config, inputs, ctx) for _ in range(2))
            cold = iterate(method, alone, ctx).state
            if before is None:
                before = run, iterate(method, run, ctx).state
                continue
            before = run, iterate(method, run, ctx, start=partial(method.restart, run, method.init(run, ctx), *before)).state
            yield method, alone, cold, *before


CASES = [
    ("MKLClassifier", {}),
    ("MKLRegressor", {}),
    ("MultiTaskMKLClassifier", {"task": TASKS}),
    ("MultiTaskMKLRegressor", {"task": TASKS}),
]


@pytest.mark.parametrize(("name", "more"), CASES, ids=[name for name, _ in CASES])
@pytest.mark.parametrize("chain", [THREE_CS, THREE_CS[::-1]], ids=["up", "down"])
def test_a_continued_fit_ends_at_the_optimum_of_a_fit_alone(name, more, chain):
    for _, _, cold, _, warm in fits(name, chain, **more):
        ends = [(end.lower, end.upper) for state in (cold, warm) for end in getattr(state, "machines", getattr(state, "searches", ()))]
        (low, high), (other_low, other_high) = ends
        assert max(low, other_low) <= min(high, other_high) + 1e-9 * abs(high), "the bounds of both hold the optimum"
        assert warm.stop == cold.stop == "tol"


@pytest.mark.parametrize(("name", "more"), CASES[:1], ids=["MKLClassifier"])
def test_where_no_coefficient_is_at_its_bound_one_step_or_two_say_so(name, more):
    *_, (_, _, cold, _, warm) = fits(name, [1e3, 1e4, 1e5], **more)
    assert warm.iteration <= 2 < cold.iteration


@pytest.mark.parametrize("solver", ["auto", "single"])
def test_folds_begin_with_the_weights_of_the_fit_on_all_rows(solver):
    for method, run, whole, *_ in fits("MKLClassifier", [1.0, 1.0]):
        ctx, config = run.planned, run.config.model_copy(update={"solver": solver})
        every_row = mkl.shared_problem([config], run.inputs, [None], ctx)
        folds = mkl.shared_problem([config], run.inputs, [np.arange(len(LABELS)) % 2 == fold for fold in range(2)], ctx)
        fresh = method.init(folds, ctx)
        begun = method.restart(folds, fresh, every_row, whole)
        chosen = whole.machines[0].best_theta if solver == "auto" else fresh.machines[0].theta  # a single kernel is chosen anew
        assert all(np.array_equal(machine.theta, chosen) for machine in begun.machines) and len(begun.machines) == 2
        assert not np.array_equal(whole.machines[0].best_theta, fresh.machines[0].theta)


def test_folds_are_solved_to_a_wider_tolerance_and_no_further():
    for info in METHODS.values():
        for name, largest in info.config.fold_tols.items():
            default = info.config.model_fields[name].default
            assert getattr(info.config().for_folds(), name) > default, "a default that moved takes its limit along"
            for tol in (default, 1e-9, 0.5):
                config = info.config().model_copy(update={name: tol})
                wide = getattr(config.for_folds(), name)
                assert wide == max(tol, min(FOLD_TOL_FACTOR * tol, largest))


def test_rules_go_on_from_those_with_weight():
    model = pipeline.RuleEnsembleClassifierCV(Cs=[0.3, 3.0], n_thresholds=3, cv=2, refit=False).fit(X, LABELS)
    alone = pipeline.RuleEnsembleClassifierCV(Cs=[3.0], n_thresholds=3, cv=2, refit=False).fit(X, LABELS)
    scores = [m.cv_results_["mean_test_score"][-1] for m in (model, alone)]
    assert np.ptp(scores) <= 0.1
