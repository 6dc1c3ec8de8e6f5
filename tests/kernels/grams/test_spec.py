"""Kernels as values: text, JSON, digest, grids, bad input."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import rbf_kernel

from gramplane.kernels.grams.functions import KERNELS
from gramplane.kernels.grams.spec import NORMALIZATIONS, KernelSpec, as_specs, kernel_grid

gammas = st.floats(1e-300, 1e300)
names = st.from_regex(r"[a-z_]{1,8}(\.[a-z_]{1,8})?:[a-z_]{1,8}", fullmatch=True).filter(
    lambda text: all(part.isidentifier() for part in text.replace(":", ".").split("."))
)
parameters = {
    "degree": st.integers(1, 9),
    "coef0": st.floats(0, 1e9),
    "gamma": gammas,
    "k": st.integers(1, 30),
    "function": names,
}


@st.composite
def specs(draw):
    name = draw(st.sampled_from(sorted(KERNELS)))
    params = {key: draw(parameters[key]) for key in KERNELS[name].parameters}
    if name == "callable":
        extra = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text('abc ,()[]=\\"é', max_size=6))
        params |= draw(st.dictionaries(st.sampled_from(["alpha", "beta"]), extra))
    columns = None if name == "spectrum" else draw(st.none() | st.sets(st.integers(0, 50), min_size=1).map(tuple))
    return KernelSpec(name, tuple(params.items()), columns, draw(st.sampled_from(NORMALIZATIONS)), draw(st.booleans()))


@settings(max_examples=100, deadline=None)
@example(KernelSpec("callable", (("function", "a:b"), ("alpha", "\\a"))))
@example(KernelSpec("callable", (("function", "a:b"), ("alpha", '\\"'))))
@example(KernelSpec("callable", (("function", "a:b"), ("alpha", "\\"))))
@given(specs())
def test_text_and_json_round_trips(spec):
    assert KernelSpec.parse(str(spec)) == spec
    assert KernelSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert KernelSpec.parse(str(spec)).digest() == spec.digest()


@settings(max_examples=60, deadline=None)
@given(specs(), specs(), st.sampled_from(NORMALIZATIONS), st.booleans())
def test_digest_is_of_the_raw_kernel_only(first, second, normalize, centre):
    same = KernelSpec(first.name, first.params, first.columns, normalize, centre)
    assert same.digest() == first.digest()
    assert (first.digest() == second.digest()) == (first.raw_json() == second.raw_json())


@settings(max_examples=200, deadline=None)
@given(st.text("rbf(gma=0.5)[3,:] polytrcen'\"\n", max_size=30))
def test_any_text_is_read_or_refused_by_name(text):
    try:
        assert KernelSpec.parse(text).name in KERNELS
    except ValueError as error:
        assert repr(text) in str(error)


def test_digests_do_not_change_between_versions():
    expected = {
        "linear": "bf19a42a6a8e0cbd7ed0690e522581680c4c824ad42e25d3768e2d5631169cc3",
        "rbf(gamma=0.5)[3,7:9] trace": "fae74aac39c6ba5db814445f82f846c7a54b4fcd1f52c8d052ccae198b821e70",
        "poly(degree=2)": "4f9a219e2057884c524f546224f50de7a49da183081b4cab5500b46673311df7",
    }
    assert {text: KernelSpec.parse(text).digest() for text in expected} == expected


def test_equal_kernels_are_equal_values_however_they_are_written():
    spec = KernelSpec("poly", (("coef0", 1), ("degree", 2.0)), (8, 7, 3))
    assert spec == KernelSpec.parse("poly(2)[3,7:9]") == KernelSpec.parse(" poly ( degree = 2 , gamma=1 ) [ 3, 7 , 8 ] none ")
    assert spec.params == (("degree", 2), ("gamma", 1.0), ("coef0", 1.0))
    assert str(spec) == "poly(degree=2)[3,7:9]"
    assert hash(spec) == hash(KernelSpec.parse(str(spec)))
    assert spec.digest() == KernelSpec.parse("poly(degree=2)[7,8,3] trace centre").digest()
    assert KernelSpec("poly", (("degree", 1), ("coef0", -0.0))).digest() == KernelSpec.parse("poly(degree=1, coef0=0)").digest()


def test_grid_holds_the_thirteen_kernels_of_all_features_and_each():
    for d, count in ((20, 273), (10, 143), (13, 182), (60, 793)):
        assert len(kernel_grid(d)) == count == 13 * (d + 1)
    grid = kernel_grid(2, normalize="unit_trace")
    assert [str(spec) for spec in grid[:3]] == ["rbf(gamma=32.0) unit_trace", "rbf(gamma=8.0) unit_trace", "rbf(gamma=2.0) unit_trace"]
    assert [str(spec) for spec in grid[23:27]] == [f"{kernel} unit_trace" for kernel in
        ("poly(degree=1)[0]", "poly(degree=2)[0]", "poly(degree=3)[0]", "rbf(gamma=32.0)[1]")]  # fmt: skip
    assert len({spec.digest() for spec in grid}) == 39
    groups = kernel_grid(5, widths=[1.0], degrees=[], subsets=[None, (0, 1), range(2, 5)])
    assert [str(spec) for spec in groups] == ["rbf(gamma=0.5)", "rbf(gamma=0.5)[0:2]", "rbf(gamma=0.5)[2:5]"]


def test_kernels_are_taken_in_every_form():
    rbf = KernelSpec("rbf", (("gamma", 0.5),))
    found = as_specs([rbf, "rbf(gamma=0.5)", rbf.to_json(), {"name": "linear"}, rbf_kernel], 3)
    assert found[:3] == [rbf] * 3
    assert [str(spec) for spec in found[3:]] == ["linear", "callable(function='sklearn.metrics.pairwise:rbf_kernel')"]
    assert as_specs("linear", 1) == as_specs(["linear"], None) == [KernelSpec("linear")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rfb(gamma=1)", "unknown kernel 'rfb'; did you mean 'rbf'"),
        ("gaussian", "did you mean 'rbf'"),
        ("polynomial(2)", "did you mean 'poly'"),
        ("zzzzqqqq", "known: linear, poly"),
        ("laplacian", "needs the parameter 'gamma'"),
        ("rbf(gamma=0)", "gamma is 0; it must be > 0"),
        ("rbf(gamma=-1.5)", "gamma is -1.5; it must be > 0"),
        ("rbf(gamma=1e999)", "gamma is inf; it must be a finite number"),
        ("rbf(gamma='a')", "gamma is 'a'; it must be a finite number"),
        ("rbf(gamma=True)", "it must be a finite number"),
        ("rbf(width=1)", "no parameter 'width'; it takes: gamma"),
        ("rbf(gamma=1, gamma=2)", "has a parameter twice"),
        ("rbf(1, gamma=2)", "has a parameter twice"),
        ("rbf(1, 2)", "too many values (2); the parameters are: gamma"),
        ("rbf(gamma=x)", "gamma must be a number or a quoted string, not x"),
        ("rbf(gamma=__import__('os'))", "must be a number or a quoted string"),
        ("rbf(**{'gamma': 1})", "cannot be read"),
        ("linear(1)", "too many values (1); the parameters are: none"),
        ("poly(degree=0)", "degree is 0; it must be a whole number >= 1"),
        ("poly(degree=1.5)", "degree is 1.5; it must be a whole number"),
        ("poly(degree=2, coef0=-1)", "coef0 is -1; it must be >= 0"),
        ("spectrum(k=0)", "k is 0"),
        ("spectrum(k=3)[1]", "takes no columns"),
        ("callable(function='os.path')", "'module:function'"),
        ("linear[]", "columns [] must be numbers and ranges"),
        ("linear[3:3]", "columns [3:3]"),
        ("linear[-1]", "columns [-1]"),
        ("linear[1,1]", "must be >= 0 and distinct"),
        ("linear trace trace", "normalize is given twice"),
        ("linear sideways", "unknown word 'sideways'"),
        ("linear trace cosine", "normalize is given twice"),
        ("", "not of the form"),
        ("rbf(gamma=1", "not of the form"),
        ("linear " + "a" * 5000 + "!", "not of the form"),
    ],
)
def test_bad_text_is_refused_with_what_is_wrong(text, said):
    with pytest.raises(ValueError) as caught:
        KernelSpec.parse(text)
    assert said in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: KernelSpec("linear", columns=(0.5,)), "columns is"),
        (lambda: KernelSpec("linear", columns=()), "non-empty"),
        (lambda: KernelSpec("linear", columns=(-1, 2)), ">= 0"),
        (lambda: KernelSpec("linear", normalize="Trace"), "one of none, trace"),
        (lambda: KernelSpec("callable", (("function", "a:b"), ("alpha", "it's"))), "without single quotes"),
        (lambda: KernelSpec("callable", (("function", "a:b"), ("alpha", "a\nb"))), "must be printable"),
        (lambda: KernelSpec("callable", (("function", "a:b"), ("alpha", True))), "a number or a string"),
        (lambda: KernelSpec("linear", centre="yes"), "True or False"),
        (lambda: KernelSpec.from_json({"kernel": "linear"}), "found kernel"),
        (lambda: KernelSpec.from_json({"name": "linear", "column": [1]}), "needs the key name"),
        (lambda: kernel_grid(0), "at least one feature"),
        (lambda: kernel_grid(3, widths=[1.0, 0.0]), "widths holds 0.0"),
        (lambda: kernel_grid(3, degrees=[0]), "degree is 0"),
        (lambda: kernel_grid(3, subsets=[(0, 3)]), "column 3 is outside the data, which have columns 0 to 2"),
        (lambda: as_specs([], 3), "kernels is empty"),
        (lambda: as_specs(["linear[4,9]"], 9), "kernel linear[4,9]: column 9 is outside the data"),
        (lambda: as_specs(["linear[4]"], None), "rows are strings"),
        (lambda: as_specs([3], 3), "holds 3; a kernel is a KernelSpec"),
        (lambda: as_specs([lambda X, Z: X @ Z.T], 3), "cannot be imported by name"),
    ],
)
def test_bad_values_are_refused_with_what_is_wrong(call, said):
    with pytest.raises(ValueError) as caught:
        call()
    assert said in str(caught.value)
