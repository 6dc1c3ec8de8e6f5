"""``max_rounds="auto"``: the fit ends where no candidate stands out of chance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import kstest

from gramplane import FGMClassifier, FGMClassifierCV, FGMRegressor, ingest
from gramplane.kernels.mixed_norm import rows_for
from gramplane.pipeline import run_method
from gramplane.pipeline.methods.fgm.problem import chances, machine_problems, stand_out


def planted(n: int = 400, d: int = 4_000, k: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d), dtype=np.float32)
    return X, X[:, :k].sum(axis=1) + rng.standard_normal(n)


def test_a_fit_ends_where_nothing_stands_out_of_chance() -> None:
    X, z = planted()
    machine = FGMClassifier().fit(X, z > 0)
    assert machine.stop_reason_ == "chance" and {*range(6)} <= {*machine.selected_.tolist()} and len(machine.selected_) <= 30
    assert FGMRegressor().fit(X, z).stop_reason_ == "chance"
    assert len(FGMClassifier(max_rounds=10).fit(X, z > 0).selected_) > 90


@pytest.mark.parametrize("asked", [{"n_features_to_select": 40}, {"outer_tol": 1e-9}, {"feature_map": "poly2", "B": 2}])
def test_what_is_asked_for_is_not_cut_short(asked: dict[str, Any]) -> None:
    X, z = planted(d=60)
    assert FGMClassifier(**asked).fit(X, z > 0).stop_reason_ in (*asked, "max_rounds", "optimal")


def test_sparse_columns_and_paths_go_all_rounds() -> None:
    X, z = planted(d=500)
    assert FGMClassifier(B=5).fit(sp.csr_array(np.where(X > 1, X, 0)), z > 0).n_iter_ == 10
    searched = FGMClassifierCV(Cs=1, B=5, cv=3).fit(X, z > 0)
    assert {point["max_rounds"] for point in searched.cv_results_["params"]} == {*range(1, 11)}


def test_a_row_of_weight_two_is_there_twice() -> None:
    X, z = planted(n=150, d=1_000)
    weight = np.random.default_rng(1).choice([0, 1, 1, 1, 1, 2], len(z)).astype(float)
    weighed, repeated = (
        FGMClassifier(B=4).fit(X, z > 0, weight),
        FGMClassifier(B=4).fit(np.repeat(X, weight.astype(int), axis=0), np.repeat(z > 0, weight.astype(int))),
    )
    assert weighed.stop_reason_ == repeated.stop_reason_ and weighed.n_iter_ == repeated.n_iter_
    np.testing.assert_array_equal(weighed.selected_, repeated.selected_)


def test_rows_on_workers_end_alike(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((70_000, 12), dtype=np.float32)
    ingest((X, X[:, 0] + 0.5 * X[:, 1] + rng.standard_normal(len(X)) > 0), str(tmp_path / "s"), progress=None)
    ends = [
        run_method("fgm", {"B": 2}, data=str(tmp_path / "s"), run=str(tmp_path / name), driver_memory=memory).summary
        for name, memory in (("here", 1 << 30), ("workers", 16 << 20))
    ]
    assert ends[0]["stop"] == ends[1]["stop"] == "chance" and ends[0]["rounds"] == ends[1]["rounds"] < 10


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_chances_of_columns_that_say_nothing_are_uniform(loss: str, width: int) -> None:
    X, z = planted(n=300, d=40)
    machine = FGMClassifier(B=4, max_rounds=2, loss=loss).fit(X, z > 0)
    found, rng = [], np.random.default_rng(3)
    problem, state, used = machine_of(machine, X)
    for _ in range(30):
        # Like what is selected, for the greater part: what these columns explain of them must not count.
        new = rng.standard_normal((len(X), 5 * width)) + 2 * used[:, rng.integers(0, used.shape[1], 5 * width)]
        rows = rows_for(np.asfortranarray(np.hstack((used, new))), problem.y, problem.cost, problem.loss, problem.basis.columns)
        rows.evaluate(*problem.warm_start(state, new.shape[1]))
        u = rows.residual()
        squares = np.square(new.T @ u).reshape(5, width).sum(axis=1)
        found += chances(problem, state, rows, [width] * 5, squares, u).tolist()
    assert kstest(found, "uniform").pvalue > 0.01


def machine_of(machine: FGMClassifier, X: np.ndarray) -> tuple[Any, Any, np.ndarray]:
    """Return the problem and the state of a fit, and the columns of its cuts as its scaling shows them."""
    run = machine._training
    state = machine.model_.machines[0]
    problem = machine_problems(machine._config(), run)[0].priced(state.C)
    shown = (X - X.mean(axis=0)) / X.std(axis=0)
    return problem, state, shown[:, np.concatenate(state.coordinates)].astype(np.float64)


def test_the_more_atoms_the_less_a_candidate_stands_out() -> None:
    assert stand_out(np.array([0.01, 0.5]), 100) and not stand_out(np.array([0.02, 0.5]), 100)
    assert stand_out(np.array([0.02, 0.019]), 100)


def test_nothing_is_told_by_fewer_rows_at_work_than_columns_without_a_penalty() -> None:
    X, z = planted(n=60, d=40)
    machine = FGMClassifier(B=4, max_rounds=2).fit(X, z > 0, covariates=np.eye(60)[:, :3])
    problem, state, used = machine_of(machine, X)
    problem = replace(problem, cost=np.where(np.arange(60) == 59, problem.cost, 0.0))
    rows = rows_for(np.asfortranarray(np.hstack((used, X[:, -2:]))), problem.y, problem.cost, problem.loss, problem.basis.columns)
    found = chances(problem, state, rows, [1, 1], np.ones(2), np.eye(60)[59])
    assert np.isfinite(found).all() and not stand_out(found, 40)
