"""Rule ensembles over rows in blocks: the rules and certificates of one process, on any number of workers, within what is planned."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import MemoryBoundExceeded, open_executor
from gramplane.pipeline import RuleEnsembleClassifier, RuleEnsembleRegressor, run_method
from gramplane.pipeline.core.memory import total_bytes
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.inputs.labels import Inputs
from gramplane.pipeline.methods.rule_ensemble import blocked_lattice, blocked_rules, data, problem
from gramplane.pipeline.methods.rule_ensemble.blocked_lattice import BlockedLattice, block_rows, largest_step
from gramplane.pipeline.methods.rule_ensemble.config import RuleConfig
from gramplane.pipeline.methods.rule_ensemble.data import RuleInputs, RuleTask
from gramplane.pipeline.methods.rule_ensemble.method import Rule
from gramplane.pipeline.methods.rule_ensemble.problem import RulesProblem
from gramplane.pipeline.methods.rule_ensemble.proposition_pass import packed_propositions
from gramplane.storage import MemoryBlocks
from gramplane.storage.ingest import ingest
from gramplane.storage.records import to_arrays
from tests.pipeline.methods.rule_ensemble.test_rules import planted

PARAMS = {"C": 3.0, "n_thresholds": 2, "max_visits": 5000, "max_rounds": 4, "max_rules": 80}


def place_rows(monkeypatch, mode):
    """Let rows lie in this process, in one block, or in blocks of 64 rows: hulls gathered and searches by lengths, or solved by
    passes and searched below single propositions."""
    for module in (data, problem):
        monkeypatch.setattr(module, "lies_in_blocks", lambda *sizes: mode != "here")
        if "small" in mode:
            monkeypatch.setattr(module, "block_rows", lambda p, n: 64)
        monkeypatch.setattr(module, "fits_a_task", lambda p, n: "below" in mode)
    if "below" in mode:
        monkeypatch.setattr(blocked_lattice, "SUBTREE_VISITS", 20)
        monkeypatch.setattr(blocked_lattice, "ROUND", 3)
        monkeypatch.setattr(blocked_lattice, "GATHERED_BYTES", 0)


def named_bytes(model):
    arrays, written = to_arrays(model)
    figures = {name: value for name, value in model.figures.items() if name != "descendant_gap"}
    return {name: array.tobytes() for name, array in arrays.items()}, figures, {**written["record"], "figures": None}


def wide():
    X, y = planted(200)
    return (np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X), y), {}, {**PARAMS, "rho": 2.0}


def weighted():
    X, y = planted(260)
    rng = np.random.default_rng(1)
    return (sp.csr_array(X * (X > 0.3)), y), {"sample_weight": rng.random(260) * (rng.random(260) < 0.7)}, {**PARAMS, "skip_implied": False}


def classes():
    X = np.random.default_rng(2).normal(size=(240, 3))
    return (X, np.digitize(X[:, 0], [-0.4, 0.5])), {}, {**PARAMS, "class_weight": "balanced"}


def tasks():
    X, y = planted(240)
    kernel = [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]
    return (X, y), {"task": np.arange(240) % 3}, {**PARAMS, "task_kernel": kernel, "max_visits": 300}


def numbers():
    X, y = planted(240)
    return (X, 3.0 * y + X[:, 2]), {"sample_weight": np.resize([1.0, 2.0, 0.0, 0.5], 240)}, PARAMS


def task_numbers():
    X, y = planted(240)
    return (X, 3.0 * y + X[:, 2]), {"task": np.arange(240) % 3}, {**PARAMS, "loss": "epsilon_insensitive", "max_visits": 300}


@pytest.mark.parametrize("problem", [wide, weighted, classes, tasks, numbers, task_numbers])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rules_and_certificate_are_those_of_one_process(problem, monkeypatch):
    args, named, params = problem()
    fits = {}
    for mode in ("here", "one block", "small blocks", "small blocks, below"):
        with monkeypatch.context() as patch:
            place_rows(patch, mode)
            kind = RuleEnsembleRegressor if problem in (numbers, task_numbers) else RuleEnsembleClassifier
            fits[mode] = kind(**params).fit(*args, **named)
    here = fits["here"]
    assert named_bytes(fits["one block"].model_) == named_bytes(here.model_)
    for name in ("objective", "gap", "looked_at", "n_nodes", "newton_steps"):
        np.testing.assert_array_equal(fits["one block"].history_[name], here.history_[name])
    several = fits["small blocks"]
    assert named_bytes(fits["small blocks, below"].model_) == named_bytes(several.model_)
    for name in ("gap", "restricted_gap"):
        assert several.certificate_[name] == pytest.approx(here.certificate_[name], abs=1e-5 * here.objective_, nan_ok=True)
    for name in ("worst_outside", "bound"):
        assert several.certificate_[name] == pytest.approx(here.certificate_[name], rel=1e-3)
    assert (several.certificate_["depth"], several.objective_) == (here.certificate_["depth"], pytest.approx(here.objective_, rel=1e-6))
    if problem in (numbers, task_numbers):
        # Residuals sum to zero: a rule is worth as much as its opposite, and rounding, which blocks and processors change, chooses. What
        # is not chosen by it, objective and bounds, has been compared above.
        return
    assert [(rule["text"], rule["support"]) for rule in several.rules_] == [(rule["text"], rule["support"]) for rule in here.rules_]
    assert [rule["text"] for rule in several.active_set_] == [rule["text"] for rule in here.active_set_]
    np.testing.assert_array_equal(several.history_["looked_at"], here.history_["looked_at"])


@pytest.mark.parametrize("limits", [(120, 4096), (100_000, 6), (100_000, 20), (90, 6)])
def test_searches_below_propositions_end_where_the_walk_ends(limits, monkeypatch, ctx):
    visits, violators = limits
    X, y = planted(300, d=3, seed=4)
    y = y ^ (np.random.default_rng(0).random(300) < 0.2)
    for module in ("gramplane.kernels.rules.search", "gramplane.kernels.rules.levels", blocked_lattice.__name__):
        monkeypatch.setattr(f"{module}.MAX_VIOLATORS", violators)
    found = []
    for mode in ("here", "small blocks", "small blocks, below"):
        with monkeypatch.context() as patch:
            place_rows(patch, mode)
            found.append(search_of(X, y, ctx)(frontier=False, depth=2, visits=visits))
    here = found[0]
    assert not here.finished and len(here.items) > 3
    for one in found[1:]:
        np.testing.assert_array_equal(one.items, here.items)
        np.testing.assert_allclose(one.values, here.values, rtol=1e-12)
        assert (one.visits, one.finished) == (here.visits, here.finished)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_cuts_move_alike_however_many_rows_are_unpacked_at_a_time(monkeypatch):
    place_rows(monkeypatch, "one block")
    X, y = planted(200)
    settings = {**PARAMS, "max_rounds": 1}
    whole = RuleEnsembleClassifier(**settings).fit(X, y)
    monkeypatch.setattr(blocked_rules, "rows_at_once", lambda rules: 64)
    pieces = RuleEnsembleClassifier(**settings).fit(X, y)
    assert "refine" in pieces.history_["phase"]
    assert [rule["text"] for rule in pieces.rules_] == [rule["text"] for rule in whole.rules_]
    np.testing.assert_allclose(pieces.decision_function(X), whole.decision_function(X), rtol=1e-9)


@pytest.fixture
def ctx():
    with open_executor(None) as executor:
        yield lambda X: RunContext(executor, data=MemoryBlocks(X))


def lattice_of(X, y, ctx):
    config = RuleConfig(n_thresholds=3, C=1.0)
    task = data.RuleTask(np.arange(len(y)), np.where(y == 1, 1.0, -1.0), np.ones(len(y)))
    return data.read_rule_data(MemoryBlocks(X), ctx(X), config, [task], np.eye(1), ()).lattice


def search_of(X, y, ctx):
    lattice = lattice_of(X, y, ctx)
    alpha = np.minimum(np.random.default_rng(3).random(len(y)) * 1.5, 1.0)
    return partial(lattice.outside, lattice.hull(lattice.named([[0, 2]])), [alpha], 2.0)


def test_propositions_are_the_same_with_and_without_their_bits():
    X, _ = planted(150, 12)
    X[:, 3], X[:, 7] = X[:, 2], np.nan
    X[:, 5] = np.resize([0, 1, 2], 150)
    with open_executor(None) as executor:
        ctx = RunContext(executor, data=MemoryBlocks(X, stripe_bytes=4096))
        mask = np.arange(150) % 5 > 0
        packed = packed_propositions(ctx.data, ctx, mask, 4, (5,)).propositions
        outlined = packed_propositions(ctx.data, ctx, mask, 4, (5,), keeps_bits=False).propositions
    for name in type(packed).__dataclass_fields__:
        np.testing.assert_array_equal(getattr(outlined, name), getattr(packed, name))


# --- plans -------------------------------------------------------------------------------------------------------------------------


def test_where_rows_lie_follows_from_sizes_alone():
    config = RuleConfig()
    assert not data.lies_in_blocks(config, 65_536, 20, 1, 1 << 30)
    assert data.lies_in_blocks(config, 65_537, 20, 1, 1 << 40)
    assert data.lies_in_blocks(config, 3000, 2000, 1, 64 << 20)
    assert block_rows(3800, 1_000_000) == 65_536
    assert block_rows(113_000, 1_000_000) * 113_000 / 8 <= blocked_lattice.BLOCK_BYTES
    assert block_rows(10**9, 100) == 64


@pytest.mark.parametrize(
    ("mode", "rounds", "programs"),
    [("small blocks", 4, {"rule-hull-rows", "rule-pairs", "rule-candidates"}), ("small blocks, below", 1, {"rule-hull", "rule-subtrees"})],
)
def test_steps_are_within_the_plan_and_what_workers_do_is_named(mode, rounds, programs, tmp_path, monkeypatch):
    place_rows(monkeypatch, mode)
    ingest(planted(300), tmp_path / "data.zarr")
    place = {"data": str(tmp_path / "data.zarr"), "run": str(tmp_path / "run")}
    events = []
    run_method("rule-ensemble", {**PARAMS, "max_rounds": rounds}, **place, on_event=events.append)
    plan = json.loads((tmp_path / "run" / "decisions.json").read_text())
    assert (plan["rows"], plan["row_blocks"], plan["rows_per_block"]) == ("blocks", 5, 64)
    plans = [event for event in events if event["event"] == "plan"]
    names = {event["program"] for event in plans}
    assert programs | {"propositions", "rule-merge", "rule-values", "rule-changes", "rule-supports"} <= names
    by_blocks = names - {"rule-subtrees", "propositions", "columns"}
    assert all(event["n_tasks"] == plan["row_blocks"] for event in plans if event["program"] in by_blocks)
    assert all(event["n_tasks"] == plan["tasks_per_pass"] for event in plans if event["program"] == "propositions")
    assert max(event["memory_bound"] for event in plans) <= plan["task_bytes"]


def test_the_driver_is_planned_without_rows_times_propositions():
    one, ten = (total_bytes(data.driver_items(RuleConfig(max_rules=300), 3800, n, 200, 1, True)) for n in (10**6, 10**7))
    assert one <= 512 << 20 and (ten - one) / 9e6 <= 320
    assert largest_step(3800, 10**6, 1, 300, 2_000_000) <= 1 << 30


def test_more_propositions_than_the_driver_may_name_are_refused(ctx):
    X, y = np.random.default_rng(0).normal(size=(70, 500)), np.resize([-1.0, 1.0], 70)
    config = RuleConfig(n_thresholds=69, max_rules=50, max_visits=1000)
    task, inputs = RuleTask(np.arange(70), y, np.ones(70)), RuleInputs(Inputs(MemoryBlocks(X), (y > 0).astype(int), (0, 1)))
    resources = replace(ctx(X), driver_memory=56 << 20)
    rules = RulesProblem(config, inputs, (task,), np.eye(1), (), resources)
    with pytest.raises(MemoryBoundExceeded, match=r"this process would hold .*propositions, not their rows.*n_thresholds or max_rules"):
        Rule().init(rules, resources)


# --- workers -------------------------------------------------------------------------------------------------------------------------


def test_bits_of_a_block_are_kept_by_whoever_made_them(monkeypatch, ctx):
    place_rows(monkeypatch, "small blocks")
    lattice = lattice_of(*planted(130), ctx)
    assert isinstance(lattice, BlockedLattice)
    assert [part.n for part in lattice.parts] == [64, 64, 2]
    twin = lattice.of(lattice.propositions)
    assert twin.parts == lattice.parts and hash(twin.parts[0]) == hash(lattice.parts[0])
    other = lattice.of(lattice.propositions.take(np.arange(3)))
    assert other.parts[0] != lattice.parts[0]
