"""Rule ensembles through every door: certificates, hulls, classes, tasks, missing values, text, stores, runs, exports, bad input."""

import csv
import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from gramplane.kernels.jit import one_thread
from gramplane.kernels.rules.lattice import RuleLattice
from gramplane.kernels.rules.machine import solve_rules
from gramplane.kernels.rules.propositions import Propositions
from gramplane.pipeline import RuleEnsembleClassifier, load_model, predict_store, run_method, score_store
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.inputs.labels import Inputs
from gramplane.pipeline.methods.rule_ensemble import method as rules
from gramplane.pipeline.methods.rule_ensemble.config import RuleConfig
from gramplane.pipeline.methods.rule_ensemble.data import RuleInputs, RuleTask
from gramplane.pipeline.methods.rule_ensemble.method import Rule
from gramplane.pipeline.methods.rule_ensemble.problem import RulesProblem
from gramplane.pipeline.methods.rule_ensemble.proposition_pass import packed_propositions
from gramplane.pipeline.methods.rule_ensemble.refinement import descendant_gap
from gramplane.pipeline.passes.blocks import byte_groups
from gramplane.storage import MemoryBlocks
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main

QUICK = {"n_thresholds": 3, "max_visits": 20_000}


def planted(n=300, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, ((X[:, 0] > 0.3) & (X[:, 1] <= 0.1)).astype(int)


@pytest.fixture(scope="module")
def fitted():
    X, y = planted()
    with one_thread():
        return RuleEnsembleClassifier(C=3.0).fit(X, y), X, y


def grow(config, flags, y, ctx):
    """The problem over given 0/1 columns, without refinement, with every state that was passed."""
    X = np.column_stack([flags.T, 0.1 * np.arange(len(y))])[:, :-1]
    task = RuleTask(np.arange(len(y)), y, np.full(len(y), config.C))
    inputs = RuleInputs(Inputs(MemoryBlocks(X), (y > 0).astype(int), (0, 1)))
    resources = ctx(inputs.data)
    method, problem = Rule(), RulesProblem(config, inputs, (task,), np.eye(1), (), resources)
    states = [method.init(problem, resources)]
    while states[-1].stop is None:
        states.append(method.step(problem, states[-1], resources).state)
    return problem, states, resources


def packed(resources, *rest):
    return packed_propositions(resources.data, resources, *rest)


@pytest.fixture
def ctx():
    from gramplane.cluster import open_executor

    with open_executor(None) as executor:
        yield lambda data: RunContext(executor, data=data)


# --- the certificate, on lattices that can be listed -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("rho", [2.0, 1.1])
def test_the_certificate_is_never_below_the_true_gap_and_every_active_set_is_a_hull(rho, seed, ctx):
    rng = np.random.default_rng(seed)
    flags = (rng.random((3, 60)) < 0.5).astype(float)
    y = np.where((flags[0] * flags[1] + flags[2] * (1 - flags[0]) + (rng.random(60) < 0.15)) % 2 > 0.5, 1.0, -1.0)
    config = RuleConfig(rho=rho, a=1.5, C=4.0, tol=1e-2, add=2, rest=None, refine_cuts=False, refit=False, skip_implied=False)
    problem, states, resources = grow(config, flags, y, ctx)
    lattice = problem.rules(resources).lattice
    assert lattice.p == 6
    every = lattice.hull(lattice.named([list(item) for size in range(7) for item in combinations(range(6), size)]))
    best = solve_rules(lattice.problem(every, rho), tol=1e-4)
    last = states[-1].active
    assert last.stop == "certified"
    assert last.certificate <= config.tol * last.upper
    for state in (one.active for one in states[1:]):
        assert state.certified <= best.objective * (1 + 1e-9)
        assert state.upper >= best.dual * (1 - 1e-9)
        known = {tuple(item) for item in lattice.items(state.nodes.keys)}
        assert all(item[:k] + item[k + 1 :] in known for item in known for k in range(len(item)))
    assert any(len(item) >= 2 for item in lattice.items(last.nodes.keys))
    # The thesis' bound certifies truly too, by the best multiple of the multipliers that the costs allow.
    gap = descendant_gap(lattice, states[-1])
    assert last.upper - gap <= best.objective * (1 + 1e-9)
    halved = replace(
        states[-1], active=replace(last, bound=last.bound / 4), master=replace(states[-1].master, alpha=states[-1].master.alpha / 2)
    )
    assert descendant_gap(lattice, halved) == pytest.approx(gap, rel=1e-9)


def test_visits_that_run_out_leave_a_certificate_to_a_depth_and_caps_warn():
    X, y = planted(seed=1)
    y = y ^ (np.random.default_rng(0).random(len(y)) < 0.1)
    with pytest.warns(ConvergenceWarning, match="max_rounds=2 ended the fit"):
        machine = RuleEnsembleClassifier(C=10.0, max_rounds=2, max_visits=200, refine_cuts=False).fit(X, y)
    assert not machine.converged_
    assert not machine.certificate_["complete"]
    assert machine.certificate_["restricted_gap"] >= 0
    with pytest.warns(ConvergenceWarning, match="max_rules=30"):
        small = RuleEnsembleClassifier(C=10.0, max_rules=30, add=5, max_visits=200, rest=None, refine_cuts=False).fit(X, y)
    assert len(small.active_set_) <= 30


def test_a_search_without_visits_left_is_not_begun(monkeypatch):
    X, y = planted(seed=1)
    asked, outside = [], RuleLattice.outside
    monkeypatch.setattr(
        RuleLattice,
        "outside",
        lambda self, *given, **named: (found := outside(self, *given, **named), asked.append((named.get("visits"), found.finished)))[0],
    )
    machine = RuleEnsembleClassifier(C=10.0, max_rounds=2, max_visits=200, refine_cuts=False, refit=False)
    with pytest.warns(ConvergenceWarning, match="max_rounds=2"):
        machine.fit(X, y)
    whole = [one for one in asked if one[0] is not None]
    assert not whole[-1][1] and all(visits > 0 for visits, _ in whole)


# --- rules --------------------------------------------------------------------------------------------------------------------------


def test_predictions_are_those_of_the_rules(fitted):
    machine, X, y = fitted
    np.testing.assert_allclose(machine.transform(X) @ machine.coef_[0] + machine.intercept_[0], machine.decision_function(X), atol=1e-10)
    assert machine.score(X, y) >= 0.98
    by_hand = np.full(len(X), machine.intercept_[0])
    for rule in machine.rules_:
        holds = np.ones(len(X), bool)
        for part in rule["conditions"]:
            column = X[:, part["column"]]
            holds &= column <= part["cut"] if part["sign"] == "<=" else column > part["cut"]
        assert holds.sum() == rule["support"]
        by_hand += holds * rule["weight"] * (1 if rule["vote"] == 1 else -1)
    np.testing.assert_allclose(by_hand, machine.decision_function(X), atol=1e-10)
    assert [rule["weight"] for rule in machine.rules_] == sorted((rule["weight"] for rule in machine.rules_), reverse=True)
    assert all(rule["weight"] > 0.02 * machine.rules_[0]["weight"] for rule in machine.rules_)
    assert machine.get_feature_names_out().tolist() == [rule["text"] for rule in machine.rules_]


def test_predictions_of_rules_are_those_of_kernels(ctx):
    """f_w = mu_w sum_i alpha_i y_i phi_w(x_i) as rules, and as a machine on the kernels phi_w phi_w'."""
    X, y = planted(80)
    sign = np.where(y == 1, 1.0, -1.0)
    found = packed(ctx(MemoryBlocks(X)), np.ones(80, bool), 3, ())
    from gramplane.kernels.graphs.norms import effective_weights

    lattice = RuleLattice(found.columns, 80, (np.arange(80),), (sign,), (np.ones(80),), np.eye(1), 2.0)
    nodes = lattice.start(8)
    point = solve_rules(lattice.problem(nodes, 1.5), tol=1e-3)
    flags, beta = lattice.flags(nodes).astype(float), sign * point.alpha[0]
    mu = effective_weights(nodes.hull, point.eta, (flags @ beta) ** 2, 1.5)
    np.testing.assert_allclose(flags.T @ (mu * (flags @ beta)), ((flags.T * mu) @ flags) @ beta, atol=1e-10)


def test_moved_cuts_are_better_and_lie_between_training_values(fitted):
    machine, X, y = fitted
    plain = RuleEnsembleClassifier(C=3.0, refine_cuts=False).fit(X, y)
    fresh, labels = planted(2000, seed=9)
    assert machine.score(fresh, labels) >= plain.score(fresh, labels)
    refits = machine.history_["refit_objective"][machine.history_["phase"] == "refine"]
    assert len(refits) >= 1 and np.isfinite(refits).all() and (np.diff(refits) <= 0).all()
    assert refits[0] < machine.objective_


def test_cuts_move_at_most_so_often(monkeypatch):
    X, y = planted()
    monkeypatch.setattr(rules, "MAX_SWEEPS", 1)
    machine = RuleEnsembleClassifier(C=3.0, **QUICK).fit(X, y)
    assert np.sum(machine.history_["phase"] == "refine") == 1


def test_several_classes_share_rules(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 3))
    y = np.array(["low", "mid", "top"])[np.digitize(X[:, 0], [-0.4, 0.5])]
    machine = RuleEnsembleClassifier(C=5.0).fit(X, y)
    assert machine.score(X, y) >= 0.97
    assert machine.decision_function(X).shape == (240, 3)
    assert set(machine.rules_[0]["weights"]) == {"low", "mid", "top"}
    machine.to_csv(tmp_path / "rules.csv")
    with (tmp_path / "rules.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == [{name: str(value) for name, value in row.items()} for row in machine.rules_table()]
    np.testing.assert_allclose(machine.transform(X) @ machine.coef_.T + machine.intercept_, machine.decision_function(X), atol=1e-10)


def test_tasks_share_rules_and_one_label_gives_a_constant():
    X, y = planted(240)
    task = np.array(["a", "b", "c"])[np.arange(240) % 3]
    y = np.where(task == "c", 1, y)
    machine = RuleEnsembleClassifier(C=3.0, task_kernel=[[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]], **QUICK).fit(X, y, task)
    assert machine.tasks_.tolist() == ["a", "b", "c"]
    assert machine.score(X, y, task) >= 0.9
    assert (machine.predict(X, np.full(240, "c")) == 1).all()
    with pytest.raises(ValueError, match="task 'z' was not there at fit"):
        machine.predict(X[:1], ["z"])
    with pytest.raises(ValueError, match="predictions need the task"):
        machine.predict(X)
    for matrix, told in (([[1.0, 2], [2, 1]], "shape"), (np.diag([1.0, 1, -1]), "eigenvalue"), ([[1, 0, 0], [1, 1, 0], [0, 0, 1]], "symm")):
        with pytest.raises(ValueError, match=told):
            RuleEnsembleClassifier(task_kernel=matrix).fit(X, y, task)
    with pytest.raises(ValueError, match="needs tasks"):
        RuleEnsembleClassifier(task_kernel=np.eye(2)).fit(X, y)


# --- data -----------------------------------------------------------------------------------------------------------------------------


def test_missing_values_are_a_proposition_and_fail_every_comparison():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    X[rng.random(200) < 0.4, 0] = np.nan
    y = np.isnan(X[:, 0]).astype(int)
    machine = RuleEnsembleClassifier(C=5.0, **QUICK).fit(X, y)
    assert machine.score(X, y) == 1.0
    assert any("is missing" in rule["text"] for rule in machine.rules_)
    with pytest.raises(ValueError, match="infinity"):
        machine.fit(np.where(np.isnan(X), np.inf, X), y)


def test_columns_of_text_and_categories_that_were_not_there():
    rng = np.random.default_rng(0)
    town = np.array(["x", "y", "z"])[rng.integers(0, 3, 150)]
    frame = pd.DataFrame({"town": town, "age": rng.normal(size=150)})
    y = np.where((town == "y") & (frame["age"] > 0), "yes", "no")
    machine = RuleEnsembleClassifier(C=5.0, **QUICK).fit(frame, y)
    assert machine.score(frame, y) >= 0.97
    assert any("town = y" in rule["text"] for rule in machine.rules_)
    frame.loc[:1, "town"] = "new"
    with pytest.warns(
        UserWarning,
        match=r"column 'town' has 2 values of levels that were not there at fit: 'new' \(2\); every comparison with them is false",
    ):
        found = machine.transform(frame)[:2], machine.predict(frame)
    about = [k for k, rule in enumerate(machine.rules_) if "town" in rule["text"]]
    assert not found[0][:, about].any()
    numbers = np.column_stack([np.unique(town, return_inverse=True)[1], frame["age"]])
    named = RuleEnsembleClassifier(C=5.0, categorical=[0], **QUICK).fit(numbers, y)
    assert any("x0 = 1" in rule["text"] for rule in named.rules_)
    with pytest.raises(ValueError, match="categorical: column 'street' does not exist"):
        RuleEnsembleClassifier(categorical=["street"]).fit(frame, y)


def test_constant_columns_sparse_columns_and_order_of_rows():
    X, y = planted(200)
    wide = np.column_stack([X, np.full(200, 3.0)])
    machine = RuleEnsembleClassifier(C=2.0, **QUICK).fit(wide, y)
    assert 4 not in {column for rule in machine.rules_ for column in rule["columns"]}
    same = RuleEnsembleClassifier(C=2.0, **QUICK).fit(sp.csr_array(wide), y)
    assert same.rules_ == machine.rules_
    doubled = RuleEnsembleClassifier(C=2.0, **QUICK).fit(np.column_stack([wide, X]), y)
    assert doubled.objective_ == machine.objective_
    order = np.random.default_rng(0).permutation(200)
    turned = RuleEnsembleClassifier(C=2.0, **QUICK).fit(wide[order], y[order])
    np.testing.assert_allclose(turned.objective_, machine.objective_, rtol=2e-3)
    steep = RuleEnsembleClassifier(C=2.0, **QUICK).fit(100.0 * wide, y)
    np.testing.assert_allclose(steep.objective_, machine.objective_, rtol=1e-9)


def test_a_step_is_planned_with_the_propositions_of_its_own_columns(ctx, monkeypatch):
    seen, run_pass = [], RunContext.run_pass
    monkeypatch.setattr(RunContext, "run_pass", lambda self, work: seen.append(work) or run_pass(self, work))
    monkeypatch.setattr(byte_groups, "__defaults__", (1,))  # a stripe is a task
    X, _ = planted(100, 30)
    packed(ctx(MemoryBlocks(X, stripe_bytes=4 * 100 * X.itemsize)), np.ones(100, bool), 5, ())
    (work,) = seen
    assert [ref.cols for refs in work.refs for ref in refs] == [(0, 16), (16, 30)] and len(work.refs) == 2
    # Two propositions a cut, one more cut's worth for values that are missing; 64 bytes beside the bits of each.
    assert work.program.result_bytes == 16 * 2 * (5 + 1) * (100 // 8 + 64)


def test_propositions_do_not_depend_on_chunks(ctx):
    X, _ = planted(100, 30)
    one = packed(ctx(MemoryBlocks(X)), np.arange(100) % 5 > 0, 4, (2,))
    two = packed(ctx(MemoryBlocks(X, stripe_bytes=1024)), np.arange(100) % 5 > 0, 4, (2,))
    np.testing.assert_array_equal(one.columns, two.columns)
    for name in Propositions.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(one.propositions, name), getattr(two.propositions, name))


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"rho": 1.0}, "rho=1.0"),
        ({"rho": 2.5}, "rho=2.5"),
        ({"a": 1.0}, "a=1.0"),
        ({"n_thresholds": 0}, "n_thresholds=0"),
        ({"prune": 1.0}, "prune=1.0"),
        ({"solver": "best"}, "solver='best'"),
        ({"categorical": [9]}, "column 9"),
    ],
)
def test_bad_parameters_are_named(params, told):
    with pytest.raises(ValueError, match=told):
        RuleEnsembleClassifier(**params).fit(*planted(20))


# --- runs, reports, exports -------------------------------------------------------------------------------------------------------------


def test_a_run_is_the_estimator_and_its_report_has_the_rules(tmp_path):
    X, y = planted(200)
    store = ingest((X, np.array(["no", "yes"])[y]), tmp_path / "data.zarr", names=["age", "size", "c", "d"])
    params = {"C": 3.0, **QUICK}
    done = run_method("rule-ensemble", params, data=str(tmp_path / "data.zarr"), run=str(tmp_path / "run"))
    machine = load_model(tmp_path / "run")
    direct = RuleEnsembleClassifier(**params).fit(store)
    assert machine.rules_ == direct.rules_
    assert done.summary["n_selected"] == len(machine.rules_)
    assert done.summary["train_accuracy"] == direct.score(X, np.array(["no", "yes"])[y])
    assert all("age" in rule["text"] or "size" in rule["text"] for rule in machine.rules_[:2])
    told = predict_store(str(tmp_path / "run"), str(tmp_path / "data.zarr"), str(tmp_path / "out.csv"))
    assert told["rows"] == 200
    assert score_store(str(tmp_path / "run"), str(tmp_path / "data.zarr"))["accuracy"] == done.summary["train_accuracy"]
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report"), "--quiet"]) == 0
    rows = list(csv.DictReader((tmp_path / "report" / "rules.csv").open()))
    assert [row["rule"] for row in rows] == [rule["text"] for rule in machine.rules_]
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Rules by weight" in page and "age &gt; " in page
    machine.to_csv(tmp_path / "rules.csv")
    assert [row["rule"] for row in csv.DictReader((tmp_path / "rules.csv").open())] == [rule["text"] for rule in machine.rules_]
    whole = json.loads(machine.to_json(tmp_path / "rules.json"))
    assert whole["rules"][0]["text"] == machine.rules_[0]["text"]
    assert json.loads((tmp_path / "report" / "rules.json").read_text())[0]["rule"] == machine.rules_[0]["text"]


def test_the_command_line_fits_rules(tmp_path):
    X, y = planted(120)
    ingest((X, y), tmp_path / "data.zarr")
    words = ["fit", "rule-ensemble", "--data", tmp_path / "data.zarr", "--run", tmp_path / "run", "--set", "C=2", "--set", "n_thresholds=2"]
    assert main([*map(str, words), "--quiet"]) == 0
    assert load_model(tmp_path / "run").get_params()["n_thresholds"] == 2


def test_rules_of_equal_weight_stay_in_place_however_a_processor_rounds():
    """A rule and its complement have one weight, up to its last digits."""
    model = RuleEnsembleClassifier(n_thresholds=2).fit(*planted(200)).model_
    sizes = np.zeros((model.n_rules, 1))
    sizes[:4, 0] = 0.5, -2.0, 2.0 * (1 + 1e-13), 0.5 * (1 + 1e-6)
    assert model.n_rules >= 4 and replace(model, weights=sizes).by_weight[:4].tolist() == [1, 2, 3, 0]
    assert replace(model, weights=0.0 * sizes).by_weight.tolist() == list(range(model.n_rules))
