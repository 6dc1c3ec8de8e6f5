"""Graphs of kernels: grids, lists, their text forms, products and the closed form of sums over descendants."""

import numpy as np
import pytest

from gramplane.kernels.grams.blocks import gram_block, gram_diagonal
from gramplane.kernels.grams.products import ProductSpec, kernel_from_json
from gramplane.kernels.grams.spec import KernelSpec
from gramplane.kernels.graphs.kernel_graphs import KernelDag, KernelGrid, KernelList
from gramplane.kernels.graphs.norms import NodeSet
from gramplane.kernels.graphs.parsing import graph_record, parse_graph
from tests.support.oracles.hierarchy import descendant_form

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 4))


def names(dag):
    """All nodes of a graph, parents first."""
    found, left = [], [tuple(map(int, key)) for key in dag.roots()]
    while left:
        key = left.pop(0)
        if key not in found:
            found.append(key)
            left += [tuple(map(int, child)) for child in dag.children(np.array(key))]
    keys = np.array(found)
    return keys[np.argsort(dag.depth(keys), kind="stable")]


@pytest.mark.parametrize(
    "text",
    [
        "subsets(rbf(gamma=0.7)[0:3])",
        "grid(monomial(degree=2)[0:2])",
        "grid(rbf(gamma=0.5)[0:2]; rbf(gamma=2.0)[1:3])",
        "subsets(linear; depth=2)",
    ],
)
def test_grids(text):
    dag = parse_graph(text, a=1.5, d=4)
    assert isinstance(dag, KernelDag)
    keys = names(dag)
    assert len(keys) == dag.size
    for key in keys:
        for parent in dag.parents(key):
            assert key.tolist() in dag.children(parent).tolist()
            assert dag.depth(parent[None])[0] == dag.depth(key[None])[0] - 1
    np.testing.assert_allclose(dag.penalties(keys), 1.5 ** keys.sum(axis=1))
    assert parse_graph(graph_record(dag)) == dag


@pytest.mark.parametrize(
    "text", ["subsets(gaussian[0:3])", "grid(hermite(degree=2)[0:2])", "grid(rbf(gamma=0.5)[0:2]; laplacian(gamma=2.0)[1:3])"]
)
def test_sums_over_descendants_three_ways(text):
    dag = parse_graph(text, a=2.0).scaled([[0.5 + level for level in range(len(chain))] for chain in parse_graph(text).chains])
    keys = names(dag)
    whole = NodeSet.empty(dag.width).with_hulls(keys, dag.parents, dag.penalties)
    beta = RNG.normal(size=len(X))
    forms = np.array([beta @ block @ beta for block in gram_block([dag.kernel(key) for key in keys], X)])
    for u, key in enumerate(keys):
        closed = beta @ gram_block([dag.below(key)], X)[0] @ beta
        assert closed == pytest.approx(descendant_form(whole.hull, u, forms), rel=1e-10)
    single = beta @ gram_block([dag.below(keys[0])], X, X.copy())[0] @ beta
    assert single == pytest.approx(beta @ gram_block([dag.below(keys[0])], X)[0] @ beta, rel=1e-12)


def test_products_are_what_they_say():
    spec = ProductSpec.parse("rbf(gamma=0.5)[0] * poly(degree=2)[1:3]")
    parts = gram_block([KernelSpec.parse("rbf(gamma=0.5)[0]"), KernelSpec.parse("poly(degree=2)[1:3]")], X)
    np.testing.assert_allclose(gram_block([spec, KernelSpec.parse("linear")], X)[0], parts[0] * parts[1], rtol=1e-14)
    np.testing.assert_allclose(gram_diagonal([spec], X)[0], np.diagonal(parts[0] * parts[1]), rtol=1e-14)
    assert str(spec) == "rbf(gamma=0.5)[0] * poly(degree=2)[1:3]"
    assert kernel_from_json(spec.to_json()) == spec
    assert str(ProductSpec()) == "constant"
    assert ProductSpec.parse("constant") == ProductSpec()
    assert (gram_block([ProductSpec()], X, dtype=np.float32)[0] == 1).all()
    with pytest.raises(ValueError, match="unknown kernel"):
        ProductSpec.parse("linear * gauss")


def test_shrinking_grids_know_it():
    assert parse_graph("subsets(gaussian)", d=3).shrinks == 2.0
    assert parse_graph("grid(rbf(gamma=0.5); rbf(gamma=2.0))", d=3).shrinks == 2.0
    assert parse_graph("grid(rbf(gamma=2.0); rbf(gamma=0.5))", d=3).shrinks == 0.0
    assert parse_graph("subsets(linear)", d=3).shrinks == 0.0
    assert parse_graph("subsets(gaussian; depth=2)", a=0.5, d=3).shrinks == 0.25
    assert parse_graph(None, d=2).scaled([[2.0], [1.0]]).shrinks == 0.0


def test_default_grid_takes_widths_from_the_features():
    dag = parse_graph(None, d=3, spread=np.array([2.0, 0.0, 0.5]))
    assert [str(chain[0]) for chain in dag.chains] == ["rbf(gamma=0.125)[0]", "rbf(gamma=2.0)[2]"]
    assert dag.size == 4
    with pytest.raises(ValueError, match="every feature is constant"):
        parse_graph(None, d=2, spread=np.zeros(2))


def test_grid_sizes_count_without_listing():
    assert parse_graph("subsets(linear)", d=200).size == 2**200
    assert parse_graph("subsets(linear; depth=2)", d=20).size == 1 + 20 + 190
    assert parse_graph("grid(monomial(degree=3))", d=5).size == 4**5


def test_lists_of_nodes_in_three_forms():
    entries = [
        {"name": "c", "kernel": "linear[0] * linear[1]", "parents": ["a", "b"]},
        {"name": "a", "kernel": "linear[0]"},
        {"name": "b", "kernel": "linear[1]", "d": 3.0},
    ]
    first = parse_graph(entries)
    second = parse_graph({"c": ("linear[0] * linear[1]", ["a", "b"]), "a": "linear[0]", "b": {"kernel": "linear[1]", "d": 3.0}})
    third = parse_graph(graph_record(first))
    for dag in (first, second, third):
        assert isinstance(dag, KernelList)
        assert isinstance(dag, KernelDag)
        assert dag.penalties(np.array([[0], [1], [2]])).tolist() == [2.0, 1.0, 3.0]
        assert dag.roots()[:, 0].tolist() == [1, 2]
        assert dag.parents(np.array([0]))[:, 0].tolist() == [1, 2]
        assert dag.children(np.array([1]))[:, 0].tolist() == [0]
        assert str(dag.kernel(np.array([0]))) == "linear[0] * linear[1]"
    assert graph_record(None) is None
    assert graph_record(first.kernels[0]) == "gramplane.kernels.grams.products:ProductSpec"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            [
                {"name": "a", "kernel": "linear", "parents": ["c"]},
                {"name": "b", "kernel": "linear", "parents": ["a"]},
                {"name": "c", "kernel": "linear", "parents": ["b"]},
            ],
            "cycle: a -> b -> c -> a|cycle: b -> c -> a -> b|cycle: c -> a -> b -> c",
        ),
        ([{"name": "a", "kernel": "linear", "parents": ["a"]}], "cycle: a -> a"),
        ([{"name": "a", "kernel": "linear", "parents": ["z"]}], "no parent 'z'"),
        ([{"name": "a", "kernel": "linear", "parents": "z"}], "list of names"),
        ([{"name": "a", "kernel": "linear", "d": 0}], "node 'a': d=0.0"),
        ([{"name": "a", "kernel": "linear"}, {"name": "a", "kernel": "linear"}], "'a' occurs twice"),
        ([{"name": "a", "kernel": "gauss"}], "node 'a': .*unknown kernel"),
        ([{"name": "a", "spec": "linear"}], r"dag\[0\]"),
        ([], "must be"),
        (3, "must be"),
        ("chain(linear)", "must be of the form"),
        ("subsets(linear; rbf(gamma=1.0))", "one kernel"),
        ("subsets(monomial(degree=2))", "takes one kernel per feature"),
        ("grid(linear; depth=0)", "depth=0"),
        ("grid(linear trace)", "cannot be normalised or centred"),
        ("grid(gaussian(degree=2))", "no parameter 'degree'"),
        ("grid(monomial(degree=x))", "degree=x"),
        ("grid(gauss)", "unknown kernel"),
    ],
)
def test_what_cannot_be_read_is_named(given, words):
    with pytest.raises(ValueError, match=words):
        parse_graph(given, d=3)


def test_grids_refuse():
    with pytest.raises(ValueError, match="number of features is not known"):
        parse_graph("subsets(linear)")
    for a in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="a="):
            parse_graph("subsets(linear)", a=a, d=2)
    with pytest.raises(ValueError, match="at least one dimension"):
        KernelGrid(())


def test_hermite_polynomials_have_unit_norm_under_their_weight():
    dag = parse_graph("grid(hermite(degree=4)[0])")
    t, weight = np.polynomial.hermite.hermgauss(20)
    for block in gram_block(dag.chains[0], t[:, None]):
        assert weight @ np.diagonal(block) == pytest.approx(np.sqrt(np.pi))
        assert np.linalg.matrix_rank(block) == 1
