"""Records: every declared type comes back exactly; anything else is refused with advice."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Optional, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from typing_extensions import TypeAliasType

from gramplane.storage import DigestMismatch, MissingBlock, OutOfSpace, SchemaError, read_model, to_arrays, write_model
from gramplane.storage.records import dump_json, from_arrays
from tests.storage.test_writer import FullDisk


@dataclass(frozen=True)
class Cut:
    ids: npt.NDArray[np.int64]
    value: float


@dataclass(frozen=True)
class Newton:
    damping: float


@dataclass(frozen=True)
class Apg:
    step: float
    restarts: int


@dataclass(frozen=True)
class State:
    alpha: np.ndarray
    count: int
    gap: float
    name: str
    stopped: bool
    best: float | None
    old: Optional[int]  # noqa: UP045
    cuts: tuple[Cut, ...]
    pair: tuple[int, str]
    nothing: tuple[()]
    more: list[Cut]
    weights: dict[str, float]
    kernel: Cut
    inner: Newton | Apg | None
    number: int | float
    kind: Literal["level", "mirror"]
    columns: sp.csc_array
    rows: sp.csr_array
    anything: Any
    seq: Sequence[int]
    table: Mapping[str, np.ndarray]
    record_version: ClassVar[int] = 3


floats = st.floats(allow_nan=True, allow_infinity=True, width=64)
arrays = hnp.arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.int32, np.uint8, np.bool_, np.dtype(">f8")]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
cuts = st.builds(Cut, hnp.arrays(np.int64, st.integers(0, 4)), floats)
text = st.text(max_size=8)


@st.composite
def states(draw):
    dense = draw(hnp.arrays(np.float64, (3, 4), elements=st.sampled_from([0.0, 1.5, -2.0])))
    return State(
        alpha=draw(arrays),
        count=draw(st.integers(-(2**70), 2**70)),
        gap=draw(floats),
        name=draw(text),
        stopped=draw(st.booleans()),
        best=draw(st.none() | floats),
        old=draw(st.none() | st.integers()),
        cuts=tuple(draw(st.lists(cuts, max_size=3))),
        pair=(draw(st.integers()), draw(text)),
        nothing=(),
        more=draw(st.lists(cuts, max_size=2)),
        weights=draw(st.dictionaries(text.filter(lambda s: not s.startswith("$")), floats, max_size=3)),
        kernel=draw(cuts),
        inner=draw(st.none() | st.builds(Newton, floats) | st.builds(Apg, floats, st.integers())),
        number=draw(st.integers() | floats),
        kind=draw(st.sampled_from(["level", "mirror"])),
        columns=sp.csc_array(dense),
        rows=sp.csr_array(dense),
        anything=draw(st.none() | st.integers() | text | st.lists(st.integers(), max_size=2) | hnp.arrays(np.float64, 2)),
        seq=tuple(draw(st.lists(st.integers(), max_size=3))),
        table={"a b/c": draw(arrays), "../x": draw(arrays)},
    )


def same(a, b):
    """Whether b is a, restored: same types and bits; arrays in the byte order of this machine."""
    if isinstance(a, np.ndarray):
        native = a.dtype.newbyteorder("=")
        return isinstance(b, np.ndarray) and b.dtype == native and a.shape == b.shape and a.astype(native).tobytes() == b.tobytes()
    if sp.issparse(a):
        return type(a) is type(b) and a.shape == b.shape and all(same(getattr(a, p), getattr(b, p)) for p in ("data", "indices", "indptr"))
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and all(same(getattr(a, f), getattr(b, f)) for f in a.__dataclass_fields__)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, float):
        return isinstance(b, float) and ((a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b)))
    return type(a) is type(b) and a == b


def through_json(value):
    return json.loads(json.dumps(value, allow_nan=False))


@settings(max_examples=50, deadline=None)
@given(state=states())
def test_records_come_back_exactly(state):
    stored, value = to_arrays(state)
    assert all(isinstance(array, np.ndarray) and array.dtype.kind in "biuf" for array in stored.values())
    assert same(state, from_arrays(State, stored, through_json(value)))


@settings(max_examples=6, deadline=None)
@given(state=states())
def test_models_come_back_exactly_from_disk(tmp_path_factory, state):
    place = tmp_path_factory.mktemp("model") / "m"
    write_model(place, state)
    assert same(state, read_model(place, [Cut, State]))


@dataclass(frozen=True)
class One:
    x: Any


def test_memory_order_of_matrices_is_kept():
    X = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    stored, value = to_arrays(One(X))
    assert from_arrays(One, {name: np.ascontiguousarray(a) for name, a in stored.items()}, value).x.flags.f_contiguous


def test_numpy_scalars_become_numbers():
    _, value = to_arrays(One([np.float64(0.1), np.int32(3), np.bool_(True), np.float32(0.5)]))
    assert value["record"]["x"] == [0.1, 3, True, 0.5]


@pytest.mark.parametrize(
    "bad",
    [np.array([None]), np.array(["a"]), np.array([1j]), object(), {1, 2}, b"x", {1: 2}, {"$array": 1}, 1j, lambda: 0, sp.coo_array((2, 2))],
)
def test_what_cannot_be_stored_is_named(bad):
    with pytest.raises(SchemaError, match="field x"):
        to_arrays(One(bad))
    with pytest.raises(SchemaError, match="dataclass instance"):
        to_arrays(bad)


def stored_state():
    cut = Cut(np.arange(2), 1.0)
    eye = np.eye(2)
    scalars = (np.zeros(2), 1, 0.5, "n", False, None, None)
    containers = ((cut,), (1, "a"), (), [], {"w": 1.0}, cut, Newton(0.1), 1, "level")
    state = State(*scalars, *containers, sp.csc_array(eye), sp.csr_array(eye), None, (1,), {})
    stored, value = to_arrays(state)
    return stored, through_json(value)


@pytest.mark.parametrize(
    ("path", "replacement", "message"),
    [
        (("format",), "gramplane.record/9", "gramplane.record/9.*start again"),
        (("record", "$class"), "Other", "class 'Other'; expected 'State'.*start again"),
        (("record", "$version"), 2, "version 2 of State; this is 3.*start again"),
        (("record", "kernel", "$class"), "Apg", "State.kernel.*'Apg'; expected 'Cut'"),
        (("record", "count"), 1.5, "State.count holds 1.5; it must be int"),
        (("record", "count"), True, "State.count holds True"),
        (("record", "stopped"), 1, "State.stopped"),
        (("record", "name"), None, "State.name"),
        (("record", "gap"), "0.5", "State.gap"),
        (("record", "gap"), {"$float": "__import__('os')"}, "State.gap"),
        (("record", "alpha"), {"$array": "absent"}, "State.alpha"),
        (("record", "alpha"), [1, 2], "State.alpha"),
        (("record", "cuts"), {"a": 1}, "State.cuts"),
        (("record", "cuts", 0), None, r"State.cuts\[0\]"),
        (("record", "pair"), [1], "State.pair"),
        (("record", "nothing"), [1], "State.nothing"),
        (("record", "weights"), [1], "State.weights"),
        (("record", "inner"), {"$class": "Evil", "$version": 1}, "State.inner"),
        (("record", "kind"), "cubic", "State.kind"),
        (("record", "columns", "$sparse"), "csr", "State.columns"),
        (("record", "extra"), 1, r"\['extra'\]"),
        (("record",), None, "State"),
    ],
)
def test_records_of_another_form_are_refused_with_the_field(path, replacement, message):
    stored, value = stored_state()
    node = value
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = replacement
    with pytest.raises(SchemaError, match=message):
        from_arrays(State, stored, value)


def test_missing_field_is_named():
    stored, value = stored_state()
    del value["record"]["gap"]
    with pytest.raises(SchemaError, match=r"\['gap'\]"):
        from_arrays(State, stored, value)


Number = TypeAliasType("Number", int | float)
Item = TypeVar("Item")
Pair = TypeAliasType("Pair", tuple[Item, Item], type_params=(Item,))


@dataclass(frozen=True)
class Aliased:
    number: Number
    pair: Pair[int]


def test_types_declared_by_an_alias_are_those_it_stands_for():
    _, value = to_arrays(Aliased(2.5, (1, 2)))
    assert from_arrays(Aliased, {}, through_json(value)) == Aliased(2.5, (1, 2))
    for name, wrong, rule in (
        ("number", "2.5", "Aliased.number"),
        ("pair", [1, 2.5], "Aliased.pair.*must be int"),
        ("pair", [1], "Aliased.pair"),
    ):
        other = through_json(value)
        other["record"][name] = wrong
        with pytest.raises(SchemaError, match=rule):
            from_arrays(Aliased, {}, other)


@dataclass(frozen=True)
class Strange:
    x: set[int] = field(default_factory=set)


def test_declared_type_that_cannot_be_restored_is_named():
    with pytest.raises(SchemaError, match=r"Strange.x is declared as"):
        from_arrays(Strange, {}, {"format": "gramplane.record/6", "record": {"$class": "Strange", "$version": 1, "x": [1]}})


def test_log_lines_are_strict_json():
    line = dump_json(
        {"gap": math.inf, "n": np.int64(3), "a": np.arange(2.0), "nan": [float("nan"), None], "t": (1, "é"), "o": np.bool_(True)}
    )
    assert json.loads(line) == {"gap": None, "n": 3, "a": [0.0, 1.0], "nan": [None, None], "t": [1, "é"], "o": True}


# -- models on disk --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sparse:
    ids: np.ndarray
    coef: np.ndarray
    bias: float


MODEL = Sparse(np.array([3, 7]), np.array([0.5, -1.25]), -0.1)


def test_models_are_zarr_groups(tmp_path):
    import zarr

    digest = write_model(tmp_path / "m", MODEL)
    assert len(digest) == 64 and write_model(tmp_path / "again", MODEL) == digest
    group = zarr.open_group(tmp_path / "m", mode="r")
    assert np.array_equal(group["coef"][:], MODEL.coef) and group.attrs["gramplane"]["schema"] == "gramplane.model/6"


def test_models_are_replaced_only_over_models(tmp_path):
    write_model(tmp_path / "m", MODEL)
    write_model(tmp_path / "m", Newton(1.0))
    assert read_model(tmp_path / "m", Newton) == Newton(1.0)
    with pytest.raises(SchemaError, match="'Newton'"):
        read_model(tmp_path / "m", Sparse)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_text("x")
    (tmp_path / "links/to").parent.mkdir()
    (tmp_path / "links/to").symlink_to(tmp_path / "mine")
    (tmp_path / "folders/empty").mkdir(parents=True)
    for name in ("mine", "links", "folders"):
        with pytest.raises(SchemaError, match="not a model"):
            write_model(tmp_path / name, MODEL)
    assert (tmp_path / "links/to").is_symlink() and (tmp_path / "folders/empty").is_dir()


def test_damaged_models_are_noticed(tmp_path):
    write_model(tmp_path / "m", MODEL)
    for file in [f for f in (tmp_path / "m").rglob("*") if f.is_file()]:
        good = file.read_bytes()
        bad = bytearray(good)
        bad[len(bad) // 2] ^= 1
        file.write_bytes(bad)
        with pytest.raises((DigestMismatch, SchemaError)):
            read_model(tmp_path / "m", Sparse)
        file.unlink()
        with pytest.raises(MissingBlock):
            read_model(tmp_path / "m", Sparse)
        file.write_bytes(good)
    assert same(read_model(tmp_path / "m", Sparse), MODEL)


def test_full_disk_while_saving_a_model(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("os.write", FullDisk(700))
        with pytest.raises(OutOfSpace, match="free space"):
            write_model(tmp_path / "m", MODEL)
    with pytest.raises(MissingBlock, match="never finished"):
        read_model(tmp_path / "m", Sparse)
    write_model(tmp_path / "m", MODEL)
    assert same(read_model(tmp_path / "m", Sparse), MODEL)
