"""Many queries as tasks: the bits of a fit of each alone, on workers, after a kill; the table of queries; VisualRank by passes."""

import itertools
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import MemoryBoundExceeded
from gramplane.cluster.workers.affinity import Affinity
from gramplane.pipeline import SemanticKernelRanker, VisualRank, load_model, run_method
from gramplane.pipeline.methods.semantic_ranker import method, queries
from gramplane.pipeline.methods.semantic_ranker.config import RankerConfig
from gramplane.pipeline.methods.semantic_ranker.queries import QueryTask, batch_groups, ranking_plan, read_queries, task_groups
from gramplane.pipeline.synthetic.images import planted_images
from gramplane.storage import MemoryBlocks
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main
from tests.support.clusters import CommandCluster
from tests.support.commands import result

PARAMS = {"n_neighbors": 4, "tol": 1e-4}
N = 60


def crowd(n_queries=9, seed=0):
    """Images, their tags, and a table of queries whose lines are mixed, of 10 to 20 images each."""
    q, rng = planted_images(N, n_scattered=8, seed=seed), np.random.default_rng(seed)
    table = [[f"q{k}", int(r)] for k in range(n_queries) for r in rng.choice(N, 10 + rng.integers(11), replace=False)]
    return q, [table[i] for i in rng.permutation(len(table))]


def rows_of(table, name):
    return np.array([line[1] for line in table if line[0] == name])


def contents(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted((path / "model").rglob("*")) if file.is_file()}


@pytest.mark.parametrize("form", ["dense", "sparse", "standard", "unit-row"])
def test_every_query_has_the_bits_of_a_fit_of_it_alone(form, tmp_path):
    q, table = crowd(4)
    X, tags = np.column_stack([q.X, np.full(N, 3.0)]), q.tag_lines()
    X[np.ix_(rows_of(table, "q1"), [0])] = 2.5  # constant in one query, not in the others
    X = sp.csr_array(np.where(np.abs(X) > 0.5, X, 0.0)) if form == "sparse" else X
    data = X if form in ("dense", "sparse") else ingest(X, tmp_path / "s", scale=form, progress=None)
    many = SemanticKernelRanker(**PARAMS).fit(data, tags, queries=table)
    assert many.queries_ == list(dict.fromkeys(line[0] for line in table)) and many.converged_
    for k, name in enumerate(many.queries_):
        rows = rows_of(table, name)
        if form in ("standard", "unit-row"):
            scaled = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
            scaled = scaled if form == "standard" else X / np.linalg.norm(X, axis=1)[:, None]
            alone = SemanticKernelRanker(**PARAMS).fit(scaled[rows], [tags[row] for row in rows])
            np.testing.assert_allclose(many.scores_[[line[0] == name for line in table]], alone.scores_, rtol=1e-6)
            continue
        alone = SemanticKernelRanker(**PARAMS).fit(X[rows], [tags[row] for row in rows])
        assert many.scores_[[line[0] == name for line in table]].tobytes() == alone.scores_.tobytes()
        assert (many.objective_[k], many.dual_gap_[k]) == (alone.objective_, alone.dual_gap_)
        assert many.rank(query=name).tolist() == rows[alone.rank()].tolist()
        figures = many.certificate(name)
        assert (figures["images"], figures["pairs"], figures["iterations"]) == (len(rows), len(alone.pairs_), alone.n_iter_)


def test_a_prior_is_that_of_the_line_else_of_the_row():
    q, table = crowd(3)
    prior = np.random.default_rng(1).random(N)
    by_rows = SemanticKernelRanker(**PARAMS).fit(q.X, q.tags, prior, table)
    by_lines = SemanticKernelRanker(**PARAMS).fit(q.X, q.tags, None, [[*line, prior[line[1]]] for line in table])
    np.testing.assert_allclose(by_rows.scores_, by_lines.scores_, rtol=1e-12)
    rows = rows_of(table, "q2")
    alone = SemanticKernelRanker(**PARAMS).fit(q.X[rows], q.tags[rows], prior[rows])
    np.testing.assert_allclose(by_rows.scores_[[line[0] == "q2" for line in table]], alone.scores_, rtol=1e-12)


@pytest.fixture
def stored(tmp_path):
    q, table = crowd()
    ingest((q.X, q.relevant.astype(int)), tmp_path / "images", progress=None)
    return tmp_path, q, table, {"data": str(tmp_path / "images"), "extra": {"tags": q.tag_lines(), "queries": table}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Scheduler and two workers for the whole module."""
    with CommandCluster(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started.config


def test_one_query_says_that_nothing_is_distributed(stored):
    folder, q, _, given = stored
    plan = run_method(
        "semantic-ranker", PARAMS, data=given["data"], run=str(folder / "r"), extra={"tags": q.tag_lines()}, dry_run=True
    ).plan
    assert plan["distributed"] == [] and plan["tasks_per_pass"] == 0


def test_from_a_file_of_queries_to_a_report(stored, capsys):
    folder, q, table, _ = stored
    (folder / "tags.txt").write_text("\n".join(q.tag_lines()) + "\n")
    (folder / "queries.csv").write_text("query,image\n" + "".join(f"{name},{row}\n" for name, row in table))
    words = ["fit", "semantic-ranker", "--data", folder / "images", "--tags", folder / "tags.txt", "--run", folder / "run"]
    words += ["--queries", folder / "queries.csv", "--set", "n_neighbors=4"]
    summary = result(words, capsys)["summary"]
    assert summary["queries"] == 9 and set(summary["precision"]) >= {"3", "5", "10"}
    assert main(["report", str(folder / "run"), "--out", str(folder / "page")]) == 0
    lines = (folder / "page" / "queries.csv").read_text().splitlines()
    assert len(lines) == 10 and {"query", "objective", "gap", "average_precision"} <= set(lines[0].split(","))
    machine = load_model(folder / "run")
    assert machine.certificate("q3")["converged"] == 1
    for call in (lambda: machine.kernel_block(), lambda: machine.score_samples(q.X)):
        with pytest.raises(ValueError, match="a fit of many queries keeps no kernels; fit the images of one query alone"):
            call()
    with pytest.raises(ValueError, match="query='q99' is not one of the 9 queries"):
        machine.rank(query="q99")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("q1,5\nq1,5\n", "q.csv:2: q1 has row 5 both here and in line 1"),
        ("q1,99\n", "q.csv:1: row 99 is not in the store, whose rows are 0 to 59"),
        ("q1\nq1,2\n", "q.csv:1: 'q1' must be a name, a row, and perhaps a number"),
        ("q1,3,-1\n", "q.csv:1: 'q1 3 -1' must be a name, a row, and perhaps a number that is not negative"),
        ("q1,3,1\nq1,4\n", "q.csv:2: the line has 2 words, but the first line has 3"),
        ("query,row\nq1,3\n\nq2,4\nq1,5\n", "q.csv:4: q2 has 1 row; at least 2 are needed"),
        ("q1,3,1\nq1,5,0\nq2,3,0\nq2,5,0\n", "q.csv:3: all numbers of q2 are 0; at least one must be positive"),
        ("\n# nothing\n", "q.csv: holds no rows"),
    ],
)
def test_files_of_queries_that_are_none(lines, told, stored, capsys):
    folder, q, _, _ = stored
    (folder / "tags.txt").write_text("\n".join(q.tag_lines()) + "\n")
    (folder / "q.csv").write_text(lines)
    words = ["fit", "semantic-ranker", "--data", folder / "images", "--tags", folder / "tags.txt", "--run", folder / "run"]
    assert main([*map(str, words), "--queries", str(folder / "q.csv")]) == 3
    assert told in capsys.readouterr().err
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"queries": [["a", 1]]}, "queries: query a has one image"),
        ({"queries": [["a", 1], ["a", 1], ["a", 2]]}, "queries: query a has row 1 twice"),
        ({"queries": [["a", 1.5], ["a", 2]]}, r"queries: line 0 has row 1\.5"),
        ({"queries": [["a", 1, "many"], ["a", 2, 1.0]]}, "queries: the prior of every line must be a number"),
        ({"queries": [["a", 7], ["a", 9]], "tags": [*(["x y"] * 9), *([""] * (N - 9))]}, "query a: tags: no tag in row 9;"),
        ({"queries": [["a", 1, 0.0], ["a", 2, 0.0]]}, "queries: query a: prior: all entries are 0"),
        ({"queries": []}, "queries: give at least one line"),
        ({"queries": [["a", k] for k in range(9)], "tags": ["x"] * N}, "query a: tags: no tag distinguishes images"),
        ({"tags": ["x"] * 3}, "tags: 3 rows, the data has 60"),
    ],
)
def test_tables_of_queries_that_are_none(change, told):
    q, table = crowd(2)
    given = {"tags": q.tag_lines(), "queries": table, **change}
    with pytest.raises(ValueError, match=told):
        SemanticKernelRanker(**PARAMS).fit(q.X, **given)


def test_tasks_follow_from_the_sizes_and_a_batch_is_a_part_of_them(monkeypatch):
    assert task_groups(np.array([30, 30, 30])) == [(0, 1), (1, 2), (2, 3)]
    groups = task_groups(np.full(1000, 100))
    assert groups[0][0] == 0 and groups[-1][1] == 1000 and all(a[1] == b[0] for a, b in itertools.pairwise(groups))
    assert max((hi - lo) * 100**2 for lo, hi in groups) <= queries.TASK_ENTRIES and len(groups) >= 10
    assert task_groups(np.array([3000, 10])) == [(0, 1), (1, 2)]
    assert [len(batch) for batch in batch_groups([(q, q + 1) for q in range(100)])] == [25] * 4
    assert max(len(batch) for batch in batch_groups([(q, q + 1) for q in range(1000)])) == queries.BATCH_TASKS
    assert [len(batch) for batch in batch_groups([(0, 1), (1, 2)])] == [2]
    assert read_queries([("b", 1), ("a", 0), ("b", 0), ("a", 3)], 4).lines.tolist() == [0, 2, 1, 3]


def test_more_lines_than_the_driver_may_hold_are_refused(stored):
    folder, _, _, given = stored
    with pytest.raises(MemoryBoundExceeded, match=r"semantic-ranker: .*fewer queries at a time"):
        run_method("semantic-ranker", PARAMS, **given, run=str(folder / "run"), driver_memory="2KiB", dry_run=True)


def test_queries_are_spread_over_workers(tmp_path):
    """Tasks are placed by what tells them from one another; queries hold arrays, which tell nothing."""
    q, table = crowd()
    store, asked = ingest(q.X, tmp_path / "s", progress=None), read_queries(table, N)
    work = ranking_plan(store, RankerConfig(**PARAMS), asked, q.tag_lines(), task_groups(asked.sizes), 0)
    homes = Affinity().assign(work.refs, work.task_weights, {"a": 1, "b": 1})
    assert abs(homes.count("a") - homes.count("b")) <= 1


@pytest.mark.parametrize(("form", "apart"), [(np.asarray, 1), (np.asarray, 80), (sp.csr_array, 80)])
def test_a_task_takes_no_more_than_its_plan(form, apart):
    """Rows that lie between those of a query are read with them."""
    rng, config = np.random.default_rng(0), RankerConfig(n_neighbors=4, tol=1e-2)
    X, tags = rng.normal(size=(4000, 400)), [f"t{k}" for k in rng.integers(3, size=4000)]
    data, asked = MemoryBlocks(form(np.where(np.abs(X) > 1.5, X, 0.0))), read_queries([("q", apart * k) for k in range(50)], 4000)
    work = ranking_plan(data, config, asked, tags, [(0, 1)], 0)
    queries.rank_chunk(work.refs[0], config, 0)  # imports
    tracemalloc.start()
    queries.rank_chunk(work.refs[0], config, 0)
    taken, planned = tracemalloc.get_traced_memory()[1], work.memory_bound - queries.FREED_BYTES
    tracemalloc.stop()
    assert taken <= planned <= 3 * taken


# -- VisualRank ---------------------------------------------------------------------------------------------------------------------


def kernel(n=90, seed=0):
    rng = np.random.default_rng(seed)
    S = rng.random((n, n)) * (rng.random((n, n)) < 0.2) - 0.1 * (rng.random((n, n)) < 0.1)
    S[:, 7] = -1.0  # a column without a positive entry
    return S


@pytest.fixture
def by_passes(monkeypatch):
    """No similarity has room in this process, and stripes are of a few columns."""
    real = method.walk_items
    monkeypatch.setattr(
        method,
        "walk_items",
        lambda data, *, in_memory: (("similarity, as read and as weights", 1 << 50),) if in_memory else real(data, in_memory=False),
    )
    monkeypatch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 4000)
    monkeypatch.setattr("gramplane.pipeline.passes.blocks.TASK_BYTES", 4000)
    monkeypatch.setattr("gramplane.pipeline.passes.blocks.byte_groups.__defaults__", (4000,))


@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
@pytest.mark.parametrize("diagonal", ["auto", "keep"])
def test_a_walk_by_passes_is_that_of_the_matrix(form, diagonal, by_passes, tmp_path, monkeypatch):
    store = ingest(form(kernel()), tmp_path / "s", weight_column=np.arange(90) % 5 + 1.0, progress=None)
    there = VisualRank(diagonal=diagonal).fit(store)
    assert there.history_["tasks"][0] > 1
    monkeypatch.undo()
    here = VisualRank(diagonal=diagonal).fit(form(kernel()), np.arange(90) % 5 + 1.0)
    np.testing.assert_allclose(there.scores_, here.scores_, atol=1e-12)
    exact = VisualRank(diagonal=diagonal, solver="exact").fit(kernel(), np.arange(90) % 5 + 1.0)
    assert np.abs(there.scores_ - exact.scores_).sum() <= there.error_bound_ + 1e-12


def test_a_stochastic_store_keeps_its_diagonal(by_passes, tmp_path, monkeypatch):
    S = np.abs(kernel())
    S /= S.sum(axis=0)
    store = ingest(sp.csc_array(S), tmp_path / "s", progress=None)
    there = VisualRank().fit(store)
    monkeypatch.undo()
    np.testing.assert_allclose(there.scores_, VisualRank(diagonal="keep").fit(S).scores_, atol=1e-12)


def test_a_walk_on_workers_has_the_bits_of_one_process(by_passes, cluster, tmp_path):
    ingest(kernel(), tmp_path / "s", progress=None)
    given = {"data": str(tmp_path / "s"), "extra": {}}
    plan = run_method("visual-rank", {"damping": 0.5}, **given, run=str(tmp_path / "d"), dry_run=True).plan
    assert plan["distributed"] == ["products with the similarity"] and plan["tasks_per_pass"] > 2
    run_method("visual-rank", {"damping": 0.5}, **given, run=str(tmp_path / "here"))
    run_method("visual-rank", {"damping": 0.5}, **given, run=str(tmp_path / "there"), cluster=cluster)
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_a_walk_as_a_user_types_it(tmp_path, capsys):
    ingest(kernel(), tmp_path / "s", weight_column=np.arange(90) % 5 + 1.0, progress=None)
    words = ["fit", "visual-rank", "--data", tmp_path / "s", "--run", tmp_path / "r", "--set", "damping=0.7"]
    assert result([*words, "--dry-run"], capsys)["plan"]["products_on"] == "matrix"
    peer = VisualRank(damping=0.7).fit(kernel(), np.arange(90) % 5 + 1.0)
    assert result(words, capsys)["summary"]["top"] == peer.rank(5).tolist()
    assert result(["predict", tmp_path / "r", tmp_path / "s", tmp_path / "scores.npz"], capsys)["rows"] == 90
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npz")["prediction"], peer.scores_)


def test_what_is_no_similarity_is_refused(tmp_path, capsys):
    ingest(np.ones((4, 3)), tmp_path / "s", progress=None)
    assert main(["fit", "visual-rank", "--data", str(tmp_path / "s"), "--run", str(tmp_path / "r")]) == 3
    assert "similarity: shape (4, 3); it must be square" in capsys.readouterr().err
    ingest(kernel(), tmp_path / "k", progress=None)
    with pytest.raises(MemoryBoundExceeded, match=r"visual-rank: .*solver='power'"):
        run_method("visual-rank", {"solver": "exact"}, data=str(tmp_path / "k"), run=str(tmp_path / "r"), driver_memory="100KiB")


def test_a_task_plans_the_images_that_it_reads():
    one = queries.Query("q", np.arange(7), np.ones(7), sp.csr_array((7, 3)), 7)
    assert QueryTask("memory", "", (0, 2), (one, one), width=5).nbytes == np.zeros((14, 5)).nbytes
