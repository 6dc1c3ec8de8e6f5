"""Kernels on columns by their names, and Gaussians whose width is left out, in every estimator that takes kernels."""

import warnings

import numpy as np
import pandas as pd
import pytest

from gramplane import ingest, pipeline
from gramplane.kernels.grams.products import ProductSpec, named_text
from gramplane.kernels.grams.spec import KernelSpec

RNG = np.random.default_rng(0)
N = 40
FRAME = pd.DataFrame(RNG.normal(size=(N, 3)), columns=["mean radius", "age", "b, c"])
Y = np.where(FRAME["age"] > 0, "old", "young")
TASK = np.arange(N) % 2
OF_TASKS = ("LatentTask", "MultiTask", "SharedSubspace")
NAMES = sorted(
    name
    for info in pipeline.METHODS.values()
    for name in info.estimators
    if {"kernels", "kernel", "dag"} & set(getattr(pipeline, name)().get_params())
    and name not in ("KTASelectionPath", "KTASelectionPathRegressor", "SocialStrengthRanker")  # a kernel for each feature; matrices
)


def median_gamma(X):
    far = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))[np.triu_indices(len(X), 1)]
    return float(f"{1 / (2 * np.median(far) ** 2):.6g}")


def fitted(name, by_name):
    columns = FRAME.to_numpy()
    one, both = median_gamma(columns[:, [1]]), median_gamma(columns[:, [0, 2]])
    texts = ["rbf[age]", "rbf['b, c',mean radius]"] if by_name else [f"rbf(gamma={one!r})[1]", f"rbf(gamma={both!r})[0,2]"]
    takes, given = getattr(pipeline, name)().get_params(), {"scale": None}
    if "dag" in takes:
        by_node = [{"name": "a", "kernel": texts[0]}, {"name": "b", "kernel": " * ".join(texts), "parents": ["a"]}]
        given["dag"] = by_node
    elif "kernels" in takes:
        given["kernels"] = texts
    else:
        given["kernel"] = texts[1]
    if "tol" in takes and name != "TriClassSVC":
        given["tol"] = 0.05
    machine = getattr(pipeline, name)(**{key: value for key, value in given.items() if key in takes})
    rest = () if name == "UnsupervisedMKL" else (FRAME["age"].to_numpy() if name.endswith("Regressor") else Y,)
    tasks = {"task": TASK} if name.startswith(OF_TASKS) else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return machine.fit(FRAME, *rest, **tasks), tasks


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_by_name_is_the_one_by_number_with_the_median_width(name):
    (named, tasks), (numbered, _) = fitted(name, True), fitted(name, False)
    values = [
        machine.transform(FRAME)
        if name == "UnsupervisedMKL"
        else machine.predict(FRAME, **tasks)
        if name.endswith("Regressor")
        else machine.decision_function(FRAME, **tasks)
        for machine in (named, numbered)
    ]
    np.testing.assert_array_equal(*values)


def test_a_text_names_columns_where_they_are_few():
    columns = ["mean radius", "age", "b, c", "d", "e"]
    assert named_text(KernelSpec.parse("rbf(gamma=1.0)[0,2] trace"), columns) == "rbf(gamma=1.0)[mean radius,'b, c'] trace"
    assert (
        named_text(KernelSpec.parse("linear[0:5]"), columns) == "linear[0:5]"
        and named_text(KernelSpec.parse("linear"), columns) == "linear"
    )
    product = ProductSpec.parse("rbf(gamma=1.0)[1] * linear[3]")
    assert named_text(product, columns) == "rbf(gamma=1.0)[age] * linear[d]" and named_text(product, None) == str(product)
    assert named_text(ProductSpec(), columns) == "constant"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("TriClassSVC",) and not name.endswith("Regressor")])
def test_tables_of_runs_and_of_estimators_name_columns(tmp_path, name):
    machine, _ = fitted(name, True)
    shown = [row["kernel"] for row in machine._chart_tables()["kernels"]]
    assert any("[age]" in text or "mean radius" in text for text in shown) and not any("[1]" in text for text in shown)
    takes = machine.get_params()
    given = {"dag": "subsets(gaussian[age]; depth=1)"} if "dag" in takes else {"kernels": ["rbf[age]", "linear['b, c']"]}
    given |= {"tol": 0.05} if "tol" in takes else {}
    tasks = {"task_column": "t"} if name.startswith(OF_TASKS) else {}
    store = ingest(FRAME.assign(y=Y, t=TASK) if tasks else FRAME.assign(y=Y), tmp_path / "store", target="y", **tasks)
    pipeline.run_method(type(machine)._method.name, given, data=store.url, run=str(tmp_path / "run"))
    assert "[age]" in (tmp_path / "run" / "tables.json").read_text()


@pytest.mark.parametrize(
    "dag", ["subsets(gaussian[age,mean radius])", "grid(rbf; linear[age])", "grid(monomial(degree=2)[age]; rbf['b, c'])"]
)
def test_grids_of_kernels_take_names(dag):
    numbers = {"age": "1", "mean radius": "0", "'b, c'": "2"}
    by_number = dag
    for column, number in numbers.items():
        by_number = by_number.replace(column, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = (pipeline.HierarchicalKernelClassifier(dag=text, scale=None).fit(FRAME, Y) for text in (dag, by_number))
    assert first.active_set_ == second.active_set_
    np.testing.assert_array_equal(first.decision_function(FRAME), second.decision_function(FRAME))


@pytest.mark.parametrize("dag", ["subsets(rbf[weight])", [{"name": "a", "kernel": "linear[weight]"}]])
def test_a_column_that_there_is_not_is_named(dag):
    with pytest.raises(ValueError, match=r"no column has the name 'weight'; the columns are 'mean radius', 'age', 'b, c'"):
        pipeline.HierarchicalKernelClassifier(dag=dag, scale=None).fit(FRAME, Y)
