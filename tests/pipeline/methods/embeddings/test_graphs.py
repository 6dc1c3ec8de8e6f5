"""Graphs and kernels of labels that are given; the cost of a violation in the unit of the problem as it is written."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import open_executor
from gramplane.kernels.spectral.embeddings import violation_unit
from gramplane.pipeline import load_model
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.methods.embeddings.config import SPEConfig
from gramplane.pipeline.methods.embeddings.estimator import ColoredMVU, MinimumVolumeEmbedding, StructurePreservingEmbedding
from gramplane.pipeline.methods.embeddings.method import SPE
from gramplane.pipeline.methods.embeddings.problem import EmbeddingInputs
from gramplane.storage import MemoryBlocks
from gramplane.workflows.cli import main
from tests.support.commands import result
from tests.support.oracles.embedding import all_triples, centring, violations

X = np.random.default_rng(0).normal(size=(24, 3))
Y = np.arange(24) % 3


def ring(n: int) -> sp.csr_array:
    i = np.arange(n)
    j = (i + 1) % n
    return sp.csr_array((np.ones(n), (np.minimum(i, j), np.maximum(i, j))), shape=(n, n))


def weights(*entries: tuple[int, int, float]) -> sp.coo_array:
    i, j, values = zip(*entries, strict=True)
    return sp.coo_array((values, (i, j)), shape=(24, 24))


def test_the_neighbour_graph_given_is_the_neighbour_graph():
    for estimator in (StructurePreservingEmbedding, MinimumVolumeEmbedding):
        found = estimator(graph="union", tol=1e-2).fit(X)
        edges = found.edges_
        matrix = sp.coo_array((np.full(len(edges), 2.5), edges.T), shape=(24, 24))
        for given in (edges, edges[::-1, ::-1].tolist(), matrix, sp.csr_matrix(matrix + matrix.T)):
            other = estimator(tol=1e-2).fit(X, graph=given)
            np.testing.assert_array_equal(other.edges_, found.edges_)
            assert other.objective_ == pytest.approx(found.objective_, rel=1e-2) and other.unit_ == pytest.approx(found.unit_, rel=1e-12)
            if estimator is StructurePreservingEmbedding:
                np.testing.assert_allclose(other.embedding_, found.embedding_, atol=1e-7 * np.abs(found.embedding_).max())


def test_a_graph_alone_is_embedded_as_the_problem_is_written():
    n, C = 12, 40.0
    found = StructurePreservingEmbedding(C=C, B=12.0, tol=1e-6).fit(graph=ring(n))
    links = (ring(n) + ring(n).T).toarray()
    K, H = found.kernel_block(), centring(n)
    worst = max(0.0, violations(K, all_triples(links > 0)).max())
    assert found.objective_ == pytest.approx(-np.trace(H @ links @ H @ K) + C * worst, rel=1e-6)
    assert found.C_ == C and found.worst_violation_ == pytest.approx(worst, abs=1e-9) and np.sum(K * K) <= 12.0 * (1 + 1e-9)
    # Every row of a ring is like every other: the map is a circle.
    radii = np.linalg.norm(found.embedding_, axis=1)
    np.testing.assert_allclose(radii, radii.mean(), rtol=1e-3)
    assert StructurePreservingEmbedding(tol=1e-2).fit(graph=ring(n)).converged_


def test_auto_is_the_cost_at_which_a_violation_weighs_as_much_as_the_graph():
    ctx = RunContext(open_executor("sync").__enter__(), data=MemoryBlocks(X))
    setting = SPE().problem(SPEConfig(graph="union"), EmbeddingInputs(ctx.data, None), ctx).setting(ctx)
    unit = violation_unit(setting.graph)
    auto, same = (StructurePreservingEmbedding(graph="union", C=C, tol=1e-2).fit(X) for C in ("auto", unit))
    np.testing.assert_array_equal(auto.embedding_, same.embedding_)
    assert unit == auto.C_
    none = StructurePreservingEmbedding(graph="union", C=1e-9, tol=1e-4).fit(X)
    K = none.kernel_block()
    values = np.linalg.eigvalsh(setting.structure.target.dense())
    best = np.sqrt(none.cap_ * np.sum(np.maximum(values, 0) ** 2))
    # A violation of the mean squared distance of a flat kernel on the cap, 2 sqrt(2B)/n, costs that best value.
    assert unit * 2 * np.sqrt(2 * none.cap_) / len(X) == pytest.approx(best, rel=1e-6)
    assert -none.objective_ == pytest.approx(best, rel=1e-3) and np.sum(K * K) == pytest.approx(none.cap_, rel=1e-6)


@pytest.mark.parametrize(
    ("graph", "told"),
    [
        ([], r"graph has shape \(0,\); it must be a sparse matrix, or at least one edge"),
        ([[0, 1, 2]], r"graph has shape \(1, 3\)"),
        ([[0, 24]], r"graph: the edge \(0, 24\) names a row outside 0 ... 23"),
        ([[3, 3]], r"graph: the edge \(3, 3\) links a row with itself"),
        ([[0.5, 1.0]], "graph: edges have type float64"),
        (ring(20), r"graph has shape \(20, 20\); it must be \(24, 24\)"),
        (sp.eye_array(24), r"graph: the edge \(0, 0\) links a row with itself"),
        (weights((0, 1, 1.0), (2, 3, np.nan)), r"graph: the weight of \(2, 3\) is nan; must be finite and not negative"),
        (weights((0, 1, np.inf)), r"graph: the weight of \(0, 1\) is inf"),
        (weights((0, 1, 1.0), (4, 3, -1.0)), r"graph: the weight of \(4, 3\) is -1.0"),
        (weights((0, 1, 1.0), (3, 2, 1.0)), r"graph: the weights of \(0, 1\) and \(1, 0\) differ; make graph symmetric, or leave one tri"),
        (weights((0, 1, 1.0), (1, 0, 2.0)), r"graph: the weights of \(0, 1\) and \(1, 0\) differ"),
    ],
)
def test_graphs_that_are_none_are_named(graph, told):
    with pytest.raises(ValueError, match=told):
        StructurePreservingEmbedding().fit(X, graph=graph)


def test_without_rows_the_graph_must_be_a_matrix():
    with pytest.raises(ValueError, match="X is None; give graph as a sparse matrix"):
        StructurePreservingEmbedding().fit(graph=[[0, 1]])


def test_a_given_graph_in_parts_warns():
    with pytest.warns(UserWarning, match="the given graph has 22 components, .*: add edges between them"):
        StructurePreservingEmbedding(tol=0.1).fit(X, graph=[[0, 1], [1, 2]])


# -- kernels of the labels -----------------------------------------------------------------------------------------------------------


def colored(y=None, **options):
    return ColoredMVU(graph="union", n_neighbors=4, tol=1e-7, **options).fit(X, y)


def test_matrices_are_the_kernels_they_are_made_of():
    z = (Y - Y.mean()) / Y.std()
    for kernel, matrix in (("one-hot", np.equal.outer(Y, Y).astype(float)), ("linear", np.multiply.outer(z, z))):
        named = colored(Y, label_kernel=kernel)
        for given in (matrix, sp.csr_array(matrix)):
            other = colored(label_kernel=given)
            np.testing.assert_allclose(other.kernel_block(), named.kernel_block(), atol=1e-3 * np.abs(named.kernel_block()).max())
            assert other.objective_ == pytest.approx(named.objective_, rel=1e-6)
    assert colored(Y).objective_ == colored(Y, label_kernel="one-hot").objective_ != colored(Y, label_kernel="linear").objective_
    numbers = Y + 0.5
    assert colored(numbers).objective_ == colored(numbers, label_kernel="linear").objective_


@pytest.mark.parametrize(
    ("kernel", "y", "told"),
    [
        (np.eye(3), None, r"label_kernel has shape \(3, 3\); it must be \(24, 24\)"),
        (-np.eye(24), None, "label_kernel: has the eigenvalue -1; must be positive semidefinite"),
        (np.triu(np.ones((24, 24))), None, "label_kernel: must be finite and symmetric"),
        (np.ones((24, 24)), None, "label_kernel: is constant"),
        ("one-hot", Y + 0.5, "label_kernel='one-hot' needs classes"),
        ("linear", np.array(["a", "b", "c"])[Y], "label_kernel='linear' needs numbers, but the target holds 'a'"),
        ("rbf", Y, "label_kernel='rbf'"),
    ],
)
def test_label_kernels_that_are_none_are_named(kernel, y, told):
    with pytest.raises(ValueError, match=told):
        colored(y, label_kernel=kernel)


# -- the command line ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, capsys):
    lines = [",".join([f"{y}", *(f"{value:.6f}" for value in x)]) for x, y in zip(X, Y, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["y,a,b,c", *lines]) + "\n")
    result(["ingest", tmp_path / "rows.csv", tmp_path / "s", "--target", "y"], capsys)
    return tmp_path


def test_a_graph_and_a_label_kernel_are_typed(folder, capsys):
    (folder / "edges.csv").write_text("row,other\n" + "".join(f"{i},{(i + 1) % 24}\n" for i in range(24)))
    fit = ["--data", folder / "s", "--set", "tol=0.01"]
    done = result(["fit", "spe", *fit, "--graph", folder / "edges.csv", "--run", folder / "spe", "--set", "C=30"], capsys)
    assert done["summary"]["edges"] == 24 and load_model(folder / "spe").C_ == 30.0
    np.save(folder / "kernel.npy", np.equal.outer(Y, Y).astype(np.float32))
    objectives = []
    for k, kernel in enumerate(("one-hot", "linear", folder / "kernel.npy")):
        words = ["fit", "colored-mvu", *fit, "--label-kernel", kernel, "--run", folder / f"run{k}", "--set", "graph=union"]
        objectives.append(result(words, capsys)["summary"]["objective"])
    assert objectives[2] == pytest.approx(objectives[0], rel=1e-2) and objectives[1] != objectives[0]


def test_a_word_is_the_parameter_on_the_command_line_and_in_a_workflow(folder, capsys):
    fit = ["fit", "colored-mvu", "--data", folder / "s", "--set", "max_iter=2", "--run"]
    words = ["--graph", "union", "--label-kernel", "linear"]
    typed = result([*fit, folder / "a", *words], capsys)["summary"]
    (folder / "edges.txt").write_text("".join(f"{i},{i + 1}\n" for i in range(23)))
    np.save(folder / "kernel.npy", np.equal.outer(Y, Y).astype(np.float32))
    files = ["--graph", folder / "edges.txt", "--label-kernel", folder / "kernel.npy"]
    read = result([*fit, folder / "b", *files], capsys)["summary"]
    steps = "".join(
        f"  - {{id: {name}, do: fit, with: {{method: colored-mvu, store: s, max_iter: 2, {keys}}}}}\n"
        for name, keys in (("words", "graph: union, label_kernel: linear"), ("files", "graph: edges.txt, label_kernel: kernel.npy"))
    )
    (folder / "maps.yaml").write_text(f"schema: gramplane.workflow/1\nname: maps\nruns: runs\nsteps:\n{steps}")
    result(["run", folder / "maps.yaml"], capsys)
    assert typed["objective"] != read["objective"] and read["edges"] == 23
    for name, objective in (("words", typed["objective"]), ("files", read["objective"])):
        (run,) = (folder / "runs").glob(f"maps-*/{name}")
        assert load_model(run).objective_ == objective


LINKS = np.equal.outer(Y, Y).astype(float)
BAD_FILES = (
    (["spe", "--graph", "bad.csv"], 3, "bad.csv:2: '0 1 1' must be two integers: row, row"),
    (["spe", "--graph", "twice.csv"], 3, "twice.csv:3: the edge of rows 1 and 0 is both here and in line 1"),
    (["spe", "--graph", "none.csv"], 2, "--graph: file {}/none.csv does not exist, and is none of the words mutual, union"),
    (["visual-rank", "--graph", "bad.csv"], 2, "visual-rank has no option --graph: it belongs to npkl, colored-mvu, mve"),
    (["spe", "--graph", "twice.csv", "--set", "graph=union"], 2, "--graph is also given by --set graph"),
    (["colored-mvu", "--label-kernel", "one_hot"], 2, "--label-kernel: file one_hot does not exist, and is none of the words auto, one"),
    (["colored-mvu", "--label-kernel", "small.npy"], 3, "small.npy: holds an array of shape (3, 3); it must be (24, 24)"),
    (["colored-mvu", "--label-kernel", "text.npy"], 3, "text.npy: is not a .npy file of numbers\n"),
    (["colored-mvu", "--label-kernel", "some.npz"], 3, "some.npz: is not a .npy file of numbers\n"),
    (["colored-mvu", "--label-kernel", "words.npy"], 3, "words.npy: is not a .npy file of numbers: its entries are <U21"),
    (["colored-mvu", "--label-kernel", "nan.npy"], 3, "nan.npy: label_kernel: must be finite and symmetric"),
    (["colored-mvu", "--label-kernel", "skew.npy"], 3, "skew.npy: label_kernel: must be finite and symmetric"),
    (["colored-mvu", "--label-kernel", "negative.npy"], 3, "negative.npy: label_kernel: has the eigenvalue -8; must be positive"),
    (["mve", "--label-kernel", "text.npy"], 2, "mve has no option --label-kernel: it belongs to colored-mvu"),
    (["npkl"], 2, "--constraints: npkl needs pairs of rows that belong together (+1) or apart (-1) (--constraints FILE)"),
)


def test_bad_files_are_told_before_there_is_a_run(folder, capsys):
    (folder / "bad.csv").write_text("0,1\n0,1,1\n")
    (folder / "twice.csv").write_text("0,1\n1,2\n1,0\n")
    (folder / "text.npy").write_text("1 0\n0 1\n")
    np.savez(folder / "some.npz", LINKS)
    arrays = {"small": np.eye(3), "words": LINKS.astype(int).astype(str), "nan": np.where(LINKS > 0, np.nan, 0)}
    for name, array in {**arrays, "skew": np.triu(LINKS), "negative": -LINKS}.items():
        np.save(folder / f"{name}.npy", array)
    for words, code, message in BAD_FILES:
        given = [str(folder / word) if "." in word else word for word in words]
        assert main(["fit", *given, "--data", str(folder / "s"), "--run", str(folder / "run")]) == code, words
        told = capsys.readouterr().err
        assert message.format(folder) in told and "pickle" not in told, told
        assert not (folder / "run").exists()


def test_a_label_kernel_that_was_changed_is_refused(folder, capsys):
    np.save(folder / "kernel.npy", np.equal.outer(Y, Y).astype(np.float32))
    words = ["fit", "colored-mvu", "--data", folder / "s", "--label-kernel", folder / "kernel.npy", "--run", folder / "run"]
    result([*words, "--set", "graph=union", "--set", "max_iter=1"], capsys)
    from gramplane.storage import DigestMismatch, load_matrix, matrix_file

    record = matrix_file(str(folder / "kernel.npy"), 24)
    np.save(folder / "kernel.npy", np.eye(24))
    with pytest.raises(DigestMismatch, match="is not the file that the run began with"):
        load_matrix(record)
