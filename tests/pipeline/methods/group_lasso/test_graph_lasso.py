"""Graph lasso: edges of features as groups, as a parameter, from a file, in a workflow; a stream of them, a batch of them."""

import shutil

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.pipeline import GroupLassoClassifier, GroupLassoRegressor, load_model, run_method
from gramplane.storage.ingest import ingest
from tests.support.commands import result
from tests.support.oracles import group_lasso as oracle
from tests.support.places import ROOT

EDGES = [[0, 1], [2, 1], [4, 3], [4, 6]]
GROUPS = [[0, 1], [1, 2], [3, 4], [4, 6], [5], [7]]
"""The same as groups: edges, then features without one."""


def problem(n=120):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 8))
    return X, X[:, 0] + X[:, 1] - 0.5 * X[:, 2] + 0.3 * rng.normal(size=n)


@pytest.mark.parametrize("algorithm", ["da", "fista"])
@pytest.mark.parametrize("penalty", ["gl", "sgl"])
def test_edges_are_groups_of_two_to_the_bit(algorithm, penalty):
    X, y = problem()
    params = {"lam": 0.05, "gamma": 10.0, "r": 0.2, "penalty": penalty, "algorithm": algorithm, "tol": 1e-8}
    one, other = GroupLassoRegressor(edges=EDGES, **params).fit(X, y), GroupLassoRegressor(groups=GROUPS, **params).fit(X, y)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.active_groups_, other.active_groups_)
    labels = np.where(y > 0, "a", "b")
    if algorithm == "da":
        whole = GroupLassoClassifier(edges=np.array(EDGES), shuffle=False, lam=0.02).fit(X, labels)
        parts = GroupLassoClassifier(edges=EDGES, lam=0.02, scale=None)
        for lo in (0, 50):
            parts.partial_fit(X[lo : lo + 70 if lo else 50], labels[lo : lo + 70 if lo else 50], classes=["a", "b"])
        np.testing.assert_array_equal(whole.coef_, parts.coef_)


def test_the_optimum_is_that_of_a_general_solver_and_its_support_a_union_of_edges():
    X, y = problem()
    model = GroupLassoRegressor(edges=EDGES, lam=0.1, algorithm="fista", tol=1e-9, scale=None).fit(X, y)
    groups, sizes = [np.array(group) for group in GROUPS], np.sqrt([len(group) for group in GROUPS])
    tasks = [(X, y, np.full(len(y), 1 / len(y)))]
    best = oracle.dual_optimum(tasks, groups, sizes, np.zeros(len(groups)), 0.1, "squared", True)
    assert -1e-7 <= model.objective_ - best <= model.dual_gap_ + 1e-6 * best
    support = set(np.flatnonzero(model.coef_[0]).tolist())
    assert support == set().union(*(GROUPS[g] for g in model.active_groups_)) and {0, 1} <= support and len(support) < 8


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"edges": [[0, 8]]}, r"edges\[0\] is \[0, 8\]: features are 0 to 7"),
        ({"edges": EDGES, "groups": list(range(8))}, "groups and edges are both given"),
        ({"edges": EDGES, "algorithm": "fobos"}, "groups overlap, but algorithm='fobos' needs a partition"),
        ({"edges": EDGES, "penalty": "sgl", "r": [1.0, 2.0]}, "one number, or one number for each of the 6 groups"),
    ],
)
def test_what_does_not_go_together_is_refused(params, words):
    X, y = problem()
    with pytest.raises(ValueError, match=words):
        GroupLassoRegressor(**params).fit(X, y)


def test_a_stored_partition_gives_way_to_edges(tmp_path):
    X, y = problem()
    store = ingest((X, y), tmp_path / "data", task="regression", groups=np.arange(8) // 4)
    params = {"lam": 0.05, "algorithm": "fista"}
    run_method("group-lasso", params, data=store.url, run=str(tmp_path / "run"), extra={"edges": EDGES})
    expected = GroupLassoRegressor(edges=EDGES, **params).fit(X, y)
    assert load_model(tmp_path / "run").active_groups_.tolist() == expected.active_groups_.tolist()
    with pytest.raises(ValueError, match="methods that do: group-lasso"):
        run_method("fgm", {}, data=store.url, run=str(tmp_path / "fgm"), extra={"edges": EDGES})


def test_commands_take_a_file_of_edges(tmp_path, capsys):
    X, y = problem()
    labels = np.where(y > 0, 1, -1)
    store = ingest((sp.csr_array(X), labels), tmp_path / "data")
    (tmp_path / "edges.txt").write_text("".join(f"{i},{j}\n" for i, j in EDGES))
    words = ["--set", "lam=0.05", "--set", "batch_size=4"]
    typed = ["fit", "group-lasso", "--data", store.url, "--run", tmp_path / "run", "--edges", tmp_path / "edges.txt", *words]
    assert result(typed, capsys)["summary"]["n_groups"] > 0
    expected = GroupLassoClassifier(edges=EDGES, lam=0.05, batch_size=4).fit(sp.csr_array(X), labels)
    np.testing.assert_array_equal(load_model(tmp_path / "run").coef_, expected.coef_)
    tuned = ["tune", "group-lasso", "--data", store.url, "--run", tmp_path / "tuned", "--edges", tmp_path / "edges.txt", "--folds", 2]
    plan = result([*tuned, "--grid", "lam=0.05,0.1", "--set", "algorithm=da", "--dry-run"], capsys)["plan"]
    assert plan["distributed"] == ["whole fits: points of the grid, folds, repetitions"] and plan["first_fit"]["groups"] == 6
    lines = [f"{label} " + " ".join(f"{j + 1}:{value:.17g}" for j, value in enumerate(row)) for row, label in zip(X, labels, strict=True)]
    (tmp_path / "rows.svm").write_text("\n".join(lines) + "\n")
    stream = ["fit", "group-lasso", "--stream", tmp_path / "rows.svm", "--n-features", 8, "--edges", tmp_path / "edges.txt"]
    assert result([*stream, "--run", tmp_path / "streamed", *words], capsys)["summary"]["rows"] == 120
    (tmp_path / "edges.txt").write_text("0,1\n3,8\n")
    error = result([*stream, "--run", tmp_path / "bad", *words], capsys, 3)["error"]
    assert "edges.txt:2: feature 8 does not exist, features are 0 to 7" in error


@pytest.mark.slow
def test_the_example_runs(tmp_path, capsys):
    X, y = problem()
    (tmp_path / "data").mkdir()
    lines = [
        f"{1 if label > 0 else -1} " + " ".join(f"{j + 1}:{v:.6g}" for j, v in enumerate(row)) for row, label in zip(X, y, strict=True)
    ]
    (tmp_path / "data" / "genes.svm").write_text("\n".join(lines) + "\n")
    (tmp_path / "data" / "edges.txt").write_text("".join(f"{i} {j}\n" for i, j in EDGES))
    shutil.copy(ROOT / "workflows" / "graph_lasso.yaml", tmp_path / "w.yaml")
    assert set(result(["run", tmp_path / "w.yaml"], capsys)["steps"].values()) == {"done"}
    (report,) = tmp_path.rglob("report.html")
    assert "Groups with a weight" in report.read_text()
