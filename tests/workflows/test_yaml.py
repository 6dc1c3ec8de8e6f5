"""Reading YAML: values as written, places of all of them, and nothing that hurts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.workflows.checking import ConfigError, expand_variables
from gramplane.workflows.yaml_source import MAX_BYTES, parse_yaml, read_scalar, read_yaml
from tests.support.places import ROOT

SMOKE = ROOT / "workflows" / "smoke.yaml"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("1.5e-3", 0.0015),
        ("1E+2", 100.0),
        (".5", 0.5),
        ("-7", -7),
        ("007", "007"),
        ("1:30", "1:30"),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("2026-11-21", "2026-11-21"),
        ("[1, a, 2.0]", [1, "a", 2.0]),
        ("{a: 1}", {"a": 1}),
        ("'1e3'", "1e3"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object):
    found = read_scalar(text, "--set x")
    assert (found, type(found)) == (value, type(value))


def test_every_value_has_its_place():
    document = parse_yaml("a: 1\nsteps:\n  - {id: x, with: {C: 1}}\n  - id: y\n", "wf.yaml")
    assert document.place(("a",)) == "wf.yaml:1:1: a"
    assert document.place(("steps", 0, "with", "C")) == "wf.yaml:3:20: steps[0].with.C"
    assert document.place(("steps", 1)) == "wf.yaml:4:5: steps[1]"
    assert document.place(("steps", 1, "needs", 0)) == "wf.yaml:4:5: steps[1].needs[0]"


def test_aliases_and_merges_are_copied():
    data = parse_yaml("base: &b {B: 1, C: 2}\none: {<<: *b, C: 3}\ntwo: *b\nmany: {<<: [*b, {B: 9, D: 4}]}\n").data
    assert data["one"] == {"B": 1, "C": 3}
    assert data["many"] == {"B": 1, "C": 2, "D": 4}
    assert data["two"] == data["base"] and data["two"] is not data["base"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3:1: key 'a' is given twice (first in line 1)"),
        ("x: {k: 1, k: 2}", "f:1:11: key 'k' is given twice"),
        ("x: {<<: {a: 1}, <<: {b: 1}}", "f:1:17: key '<<' is given twice"),
        ("a: [1, 2", "did not find expected"),
        ("- a\nb: c", "f:2:1: "),
        ("a: 1\n---\nb: 2\n", "f:2:1: "),
        ("a: &x [*x]", "f:1:4: an alias inside its own anchor"),
        ("a: *nope", "f:1:4: "),
        ("a: !!python/object/apply:os.system ['true']", "f:1:4: tag 'tag:yaml.org,2002:python/object/apply:os.system' is not allowed"),
        ("a: !!python/name:os.system ''", "is not allowed; words, numbers, true, false and null only"),
        ("a: !!timestamp 2026-01-01", "is not allowed; words"),
        ("a: !!int x", "f:1:4: 'x' is not a value of its tag"),
        ("a: !!bool x", "f:1:4: 'x' is not a value of its tag"),
        ("? [1]\n: 2", "f:1:3: a key must be a word or a whole number"),
        ("null: 1", "f:1:1: a key must be a word"),
        ("true: 1", "f:1:1: a key must be a word"),
        ("a: {<<: 3}", "f:1:9: '<<' takes a mapping"),
        ("a: ${NOT_SET_ANYWHERE}", "f:1:4: environment variable NOT_SET_ANYWHERE is not set"),
        ("a: x-{{ds}}", "f:1:4: template {{ ds }} has no value; Airflow gives it one, elsewhere add --template 'ds=VALUE'"),
        ("a: ${}", "f:1:4: '${}' names no variable"),
        ("a: \x00", "f:1:1: "),
        ("[" * 40, "f:1:33: more than 32 levels"),
        ("a: &a 1\nb: [" + "*a," * 101 + "]", "more than 100 aliases"),
        ("[" + "1," * 100_001 + "]", "more than 100000 values"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, told: str):
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f", environ={})
    assert told in str(caught.value)


def test_alias_bombs_are_refused_before_they_grow():
    merges = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 45))
    lists = "a0: &a0 [x, x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 28))
    for bomb in (merges, lists):
        with pytest.raises(ConfigError, match="once aliases are expanded"):
            parse_yaml(bomb)


def test_size_and_encoding_are_checked(tmp_path: Path):
    (tmp_path / "large.yaml").write_bytes(b"a: " + b"x" * MAX_BYTES)
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        read_yaml(tmp_path / "large.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml:2:1: byte 0xe9 is not UTF-8"):
        read_yaml(tmp_path / "latin.yaml")


def test_variables_are_expanded_in_values_only():
    data = parse_yaml("s: ${A}/x\nd: ${B:-fall}\nn: $$C ${A:-no}\nk: ${B:-}\n", environ={"A": "v"}).data
    assert data == {"s": "v/x", "d": "fall", "n": "$C v", "k": ""}
    values = {"{{ ds }}": "2026-11-21", '{{ conf["a"] }}': "${A}"}
    assert parse_yaml("s: '{{ds}}/{{ conf[\"a\"] }}'\nt: x-{{  ds }}", environ=values).data == {"s": "2026-11-21/${A}", "t": "x-2026-11-21"}
    # A value cannot bring structure with it.
    assert parse_yaml("s: ${A}", environ={"A": "x\nother: 1"}).data == {"s": "x\nother: 1"}


def test_expand_names_what_is_missing():
    with pytest.raises(ConfigError, match=r"here: environment variable X is not set; set it or write \$\{X:-default\}"):
        expand_variables("${X}", "here", {})


@given(st.binary(max_size=40), st.integers(0, 10_000), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_mutated_files_give_data_or_a_config_error(noise: bytes, at: int, random):
    text = bytearray(SMOKE.read_bytes())
    at %= len(text)
    text[at : at + random.randrange(len(noise) + 1)] = noise
    try:
        decoded = bytes(text).decode()
    except UnicodeDecodeError:
        return
    try:
        found = parse_yaml(decoded, "f", environ={})
    except ConfigError as error:
        assert "f:" in str(error)
        return
    yaml.safe_dump(found.data)
