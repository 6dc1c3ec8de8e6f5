"""Runs of social strength modelling: tables, places of the matrices, resume, Gram stores, workers, users of another store."""

import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from gramplane.cluster import MemoryBoundExceeded, open_executor, plan
from gramplane.kernels.alignment.target_alignment import MatrixSums
from gramplane.pipeline import SocialStrengthRanker, load_model, resume_run, run_method
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams.given import GivenGrams
from gramplane.pipeline.grams.settings import GramSettings
from gramplane.pipeline.methods.social_strength.view_pass import Scaling, ViewGrams
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest
from gramplane.storage.ingest.grams import ingest_grams
from tests.support.social import normalise_row_maximum, numbers, problem, raw_views, some_pairs

SPECS = ["linear[0:12]", "linear[12:24]", "rbf(gamma=0.1)[24:28]"]


# -- passes ------------------------------------------------------------------------------------------------------------------------


def within_its_bound(program, refs, *broadcast):
    """The plan of a pass, once the largest of its results is seen to take what is said of them at most, and not much less."""
    sizes = [sum(getattr(part, "nbytes", 0) for found in program.chunk(ref, *broadcast) for part in found) for ref in refs]
    assert 0.9 * program.result_bytes - 1024 <= max(sizes) <= program.result_bytes
    return plan(program, refs, *broadcast)


@pytest.mark.parametrize("policy", ["memory", "recompute"])
def test_passes_over_several_blocks_are_those_of_whole_matrices(policy, monkeypatch):
    n = 150
    monkeypatch.setattr("gramplane.pipeline.methods.social_strength.view_pass.plan", within_its_bound)
    raw, _ = raw_views(n)
    raw = raw.astype(np.float32).astype(np.float64)
    data = GivenGrams(raw, definite=False)
    with open_executor(None) as executor:
        resources, kernels = Resources(executor), data.kernels()
        grams = ViewGrams(data, kernels, GramSettings.of(data, resources, kernels, policy), resources, centre=True)
        assert grams.settings.block < n
        maxima, sizes = grams.extremes()
        np.testing.assert_array_equal(maxima, raw.max(axis=2))
        np.testing.assert_array_equal(sizes, np.abs(raw).max(axis=2))
        d = 1.0 / maxima
        least = grams.least_eigenvalues(d)
        halves = raw * 0.5 * (d[:, :, None] + d[:, None, :])
        np.testing.assert_allclose(least, [np.linalg.eigvalsh(K)[0] for K in halves], atol=1e-6)
        scaling = Scaling(d, np.array([0.5, 0.0, 2.0]))
        views = halves + scaling.shifts[:, None, None] * np.eye(n)
        mask = np.arange(n) % 3 != 0
        found, expected = grams.matrix_sums(scaling, mask), MatrixSums.of(views[:, mask][:, :, mask])
        np.testing.assert_allclose(found.products, expected.products, rtol=1e-10)
        np.testing.assert_allclose(found.row_sums[:, mask], expected.row_sums, rtol=1e-10)
        np.testing.assert_allclose(found.diagonals[:, mask], expected.diagonals, rtol=1e-10)
        assert found.count == mask.sum() and not found.row_sums[:, ~mask].any()
        theta = np.array([0.3, -1.0, 2.0])
        np.testing.assert_allclose(grams.weighted(scaling, theta), np.tensordot(theta, views, 1), atol=1e-5)
        rows, columns = np.array([0, 149, 7, 130]), np.array([149, 3, 7, 131])
        np.testing.assert_allclose(grams.view_entries(scaling, rows, columns), views[:, rows, columns], rtol=1e-6)


# -- runs --------------------------------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """What the event sink raises to end a run."""


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    """A store of users, 28 columns in three views, and pairs."""
    folder, rng = tmp_path_factory.mktemp("users"), np.random.default_rng(0)
    circle = np.resize(np.arange(3), 40)
    counts = rng.poisson(0.4 + 2.0 * (circle[:, None] == np.resize(np.arange(3), 12)))
    X = np.hstack([counts, rng.poisson(1.0, (40, 12)), rng.normal(size=(40, 4)) + circle[:, None]]).astype(float)
    ingest(X, folder / "users")
    pairs, z = some_pairs(circle, 80, 1)
    return folder, X, np.column_stack([pairs, z])


def run(users, name, folder, **params):
    options = {key: params.pop(key) for key in ("on_event", "driver_memory", "dry_run", "cluster") if key in params}
    given = {"kernels": SPECS, "C": 0.05, **params}
    return run_method("social-strength", given, data=str(users[0] / "users"), run=str(folder / name), extra={"pairs": users[2]}, **options)


def model_files(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted((path / "model").rglob("*")) if file.is_file()}


def test_a_run_its_tables_and_the_estimator_it_loads(users, tmp_path):
    _, X, table = users
    found = run(users, "run", tmp_path, dry_run=True)
    assert (found.plan["pairs"], found.plan["linked_pairs"], found.plan["users"], found.plan["kernels"]) == (80, table[:, 2].sum(), 40, 3)
    summary = run(users, "run", tmp_path).summary
    assert summary["stop"] == "tol" and summary["n_kernels"] == 3 and summary["pairs"] == 80
    loaded = load_model(tmp_path / "run")
    fitted = SocialStrengthRanker(0.05, kernels=SPECS).fit(X, table[:, :2], table[:, 2])
    np.testing.assert_allclose(loaded.kernel_weights_, fitted.kernel_weights_, atol=1e-6)
    np.testing.assert_allclose(loaded.decision_function(table[:, :2]), fitted.decision_function(table[:, :2]), atol=1e-4)
    tables = RunStore.open(str(tmp_path / "run")).read_json("tables")
    assert [row["kernel"] for row in tables["kernels"]] == [SPECS[q] for q in np.argsort(-loaded.kernel_weights_, kind="stable")]
    areas = {row["ranking"]: row["auc"] for row in tables["rankings"]}
    assert list(areas) == ["learnt", "direct", "uniform", *SPECS]
    assert areas["learnt"] == pytest.approx(roc_auc_score(table[:, 2], loaded.decision_function(table[:, :2])))
    direct = [loaded.score_users([u], direct=True)[0, v] for u, v in table[:, :2]]
    assert areas["direct"] == pytest.approx(roc_auc_score(table[:, 2], direct), abs=1e-3)
    single = normalise_row_maximum(X[:, :12] @ X[:, :12].T)[table[:, 0], table[:, 1]]
    assert areas[SPECS[0]] == pytest.approx(roc_auc_score(table[:, 2], single), abs=1e-3)
    assert [row["first"] for row in tables["hits"]] == list(range(1, 11))
    assert json.loads(json.dumps(tables)) == tables
    assert run(users, "run", tmp_path).status == "already-done"


@pytest.mark.parametrize("params", [{}, {"pair_kernel": "tensor", "n_import": 5}], ids=["similarity", "import vectors"])
def test_every_place_of_the_matrices_gives_the_same_bits(users, tmp_path, params):
    seen = set()
    for policy in ("memory", "recompute", "store"):
        more = {"gram_store": str(tmp_path / "bank")} if policy == "store" else {}
        run(users, policy, tmp_path, grams=policy, **more, **params)
        seen.add(tuple(numbers(load_model(tmp_path / policy))))
    assert len(seen) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "params",
    [{}, {"pair_kernel": "mlpk", "n_import": 4, "n_candidates": 20}, {"pair_kernel": "tensor", "max_iter": 30, "C": 1e-4}],
    ids=["similarity", "import vectors", "tensor"],
)
def test_a_stopped_run_ends_at_the_same_bits(users, tmp_path, params, monkeypatch):
    monkeypatch.setattr("gramplane.pipeline.methods.social_strength.method.FIRST_ROUND_STEPS", 1)
    run(users, "straight", tmp_path, **params)
    for last in range(1, load_model(tmp_path / "straight").n_iter_):

        def stop(event, last=last):
            if event["event"] == "iteration" and event["iteration"] == last:
                raise Stopped

        with pytest.raises(Stopped):
            run(users, f"cut-{last}", tmp_path, on_event=stop, **params)
        resume_run(str(tmp_path / f"cut-{last}"))
        assert model_files(tmp_path / f"cut-{last}") == model_files(tmp_path / "straight")
        histories = [RunStore.open(str(tmp_path / name)).history() for name in ("straight", f"cut-{last}")]
        assert [[row["objective"], row["gap"]] for row in histories[0]] == [[row["objective"], row["gap"]] for row in histories[1]]


def test_views_of_a_gram_store_need_not_be_definite(users, tmp_path):
    _, _, table = users
    raw, _ = raw_views(40)
    ingest_grams(raw.astype(np.float32), tmp_path / "grams")
    run(users, "given", tmp_path, kernels="precomputed", gram_store=str(tmp_path / "grams"))
    fitted = SocialStrengthRanker(0.05).fit(raw, table[:, :2], table[:, 2])
    loaded = load_model(tmp_path / "given")
    np.testing.assert_allclose(loaded.kernel_weights_, fitted.kernel_weights_, atol=1e-6)
    np.testing.assert_allclose(loaded.score_users([3]), fitted.score_users([3]), atol=1e-4)
    stored = SocialStrengthRanker(0.05).fit(str(tmp_path / "grams"), table[:, :2], table[:, 2])
    assert numbers(stored) == numbers(loaded)
    with pytest.raises(ValueError, match="not positive semi-definite"):
        run(users, "plain", tmp_path, kernels="precomputed", gram_store=str(tmp_path / "grams"), normalize="none")


def test_stores_of_users_are_scored_as_new_users(users, tmp_path):
    _, X, table = users
    fitted = SocialStrengthRanker(0.05, kernels=SPECS).fit(X, table[:, :2], table[:, 2])
    new, nowhere = ingest(X[:5], tmp_path / "new"), Resources(None)  # type: ignore[arg-type]
    found = fitted.model_.decision_values(new, nowhere)
    assert found.shape == (5, 40)
    np.testing.assert_array_equal(fitted.decision_function(tmp_path / "new"), found)
    others = ~np.eye(40, dtype=bool)[:5]
    np.testing.assert_allclose(found[others], fitted.score_users(np.arange(5))[others], atol=1e-5)
    with pytest.raises(ValueError, match="has 20 features, the model was trained on 28"):
        fitted.model_.decision_values(ingest(X[:5, :20], tmp_path / "narrow"), nowhere)
    raw, pairs, z = problem()
    with pytest.raises(ValueError, match="fitted on matrices"):
        SocialStrengthRanker().fit(raw, pairs, z).model_.decision_values(new, nowhere)


def test_runs_without_views_and_with_too_many_users_are_refused(users, tmp_path):
    for params, told in (
        ({"kernels": "precomputed"}, "social-strength needs views"),
        ({"kernels": SPECS, "driver_memory": "16KiB"}, "social-strength: this process would hold"),
    ):
        with pytest.raises((ValueError, MemoryBoundExceeded), match=told):
            run(users, "none", tmp_path, **params)
    assert not (tmp_path / "none").exists()
