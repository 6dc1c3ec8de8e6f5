"""Kernels that leave columns' numbers or a width to the data: their texts, what closes them, and what is wrong with them beforehand."""

import pytest

from gramplane.kernels.grams.blocks import gram_block
from gramplane.kernels.grams.spec import KernelSpec, as_specs


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("rbf[mean radius]", ("mean radius",), "rbf[mean radius]"),
        ("rbf(gamma=0.5)[sepal length (cm), 3,7:9 ] trace centre", ("sepal length (cm)", 3, 7, 8), None),
        ("rbf", None, "rbf"),
        ("poly(degree=2)['a,b]',  x , 0:3]", ("a,b]", "x", 0, 1, 2), "poly(degree=2)['a,b]',x,0:3]"),
        ("linear['3', 4,5,6, 'it\\'s']", ("3", 4, 5, 6, "it's"), "linear['3',4:7,'it\\'s']"),
        ("linear[b,a,2,1]", ("b", "a", 2, 1), "linear[b,a,2,1]"),
    ],
)
def test_texts_are_read_as_they_are_written(text, columns, shown):
    (kernel,) = as_specs(text, 100)
    assert kernel.is_open and kernel.columns == columns
    assert shown is None or str(kernel) == shown
    assert as_specs(str(kernel), 100) == [kernel]


def test_what_leaves_nothing_open_is_closed():
    texts = ["rbf(gamma=0.5)[3,7:9]", "linear", "laplacian(gamma=1)"]
    assert not any(spec.is_open for spec in as_specs(texts, 10))
    record = {"name": "rbf", "columns": ["b", 1], "normalize": "trace"}
    assert as_specs(record, 3) == [KernelSpec("rbf", (), ("b", 1), "trace")]
    assert as_specs({"name": "linear", "columns": [1]}, 3) == [KernelSpec("linear", columns=(1,))]
    assert as_specs([KernelSpec("rbf"), KernelSpec("linear")], 3) == [KernelSpec("rbf"), KernelSpec("linear")]


def test_names_and_widths_come_from_the_data():
    asked = []
    gamma = lambda columns: asked.append(columns) or 0.25  # noqa: E731
    kernel = as_specs("rbf[b,3,a] cosine", 5)[0]
    assert kernel.closed(lambda: {"a": 0, "b": 2}, gamma) == KernelSpec.parse("rbf(gamma=0.25)[0,2,3] cosine")
    assert as_specs("rbf(gamma=2)[b]", 5)[0].closed(lambda: {"b": 2}, gamma) == KernelSpec.parse("rbf(gamma=2)[2]")
    assert as_specs("rbf", 5)[0].closed(dict, gamma) == KernelSpec.parse("rbf(gamma=0.25)")
    assert asked == [(0, 2, 3), None]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("rbf[]", r"columns \[\] must be numbers and ranges"),
        ("rbf[1,]", "must be numbers and ranges like 3,7:9, or names"),
        ("rbf[5:3]", "must be numbers and ranges"),
        ("rbf[a", "is not of the form"),
        ("rbf(gama=1)[a]", "has no parameter 'gama'"),
        ("rbf(gamma=-1)[a]", "it must be > 0"),
        ("poly[a]", "needs the parameter 'degree'"),
        ("linear[200,a]", "column 200 is outside the data, which have columns 0 to 99"),
        ("linear[a,a]", "column 'a' is named twice"),
        ("rbf[a] nothing", "unknown word 'nothing'"),
    ],
)
def test_what_is_wrong_without_the_data_is_wrong_at_once(text, rule):
    with pytest.raises(ValueError, match=rule) as caught:
        as_specs(text, 100)
    assert str(caught.value).startswith("kernel ")


def test_names_need_data_and_data_need_names():
    for text, said in (("linear[a]", "kernel 'linear': column 'a' is given by name"), ("rbf", "kernel 'rbf' needs the parameter 'gamma'")):
        with pytest.raises(ValueError, match=said):
            gram_block([KernelSpec.parse(text)], [[1.0, 2.0]])
    with pytest.raises(ValueError, match="kernel rbf reads columns, but the rows are strings"):
        as_specs("rbf", None)
    kernel = as_specs("linear[a]", 3)[0]
    with pytest.raises(ValueError, match="no column has the name 'a'; the columns are 'b', 'c'"):
        kernel.closed(lambda: {"b": 0, "c": 1}, lambda columns: 1.0)
    with pytest.raises(ValueError, match="the columns of these data have no names"):
        kernel.closed(dict, lambda columns: 1.0)
    with pytest.raises(ValueError, match="distinct"):
        as_specs("linear[a,1]", 3)[0].closed(lambda: {"a": 1}, lambda columns: 1.0)
