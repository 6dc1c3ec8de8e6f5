"""JSON that carries its own crc32c, and the files of a run that are made of it."""

import json
import random

import pytest

from gramplane.storage import DigestMismatch, RunStore, SchemaError
from gramplane.storage.runs.files import LINE, REMEDIES, read_sealed, seal_file, seal_text

VALUES = [{}, {"a": 1}, {"a": {"b": [1, 2.5, None, "é"]}, "c": float("inf")}, [], [{"x": 1}, {"x": 2}], {"rows": [1]}, {"rows": 1, "b": 2}]


@pytest.mark.parametrize("value", VALUES)
def test_what_is_sealed_comes_back_and_is_plain_json(value):
    text = seal_file(value)
    assert len(json.loads(text)["crc32c"]) == 8
    found = read_sealed(text, "x.json")
    assert found == ([1] if value == {"rows": [1]} else value)


@pytest.mark.parametrize("text", [seal_file({"a": [1, 2], "b": "text"}), seal_file({}), seal_text(b'{"iteration":3,"gap":0.5}', LINE)])
def test_every_changed_bit_and_every_cut_is_noticed(text):
    for at in range(len(text)):
        for bit in range(8):
            bad = bytearray(text)
            bad[at] ^= 1 << bit
            with pytest.raises(DigestMismatch, match=r"^x\.json"):
                read_sealed(bytes(bad), "x.json")
        with pytest.raises(DigestMismatch, match=r"^x\.json"):
            read_sealed(text[:at], "x.json")
    with pytest.raises(DigestMismatch):
        read_sealed(text + b" ", "x.json")


def test_a_text_without_a_checksum_is_damaged():
    for text in (b'{"a": 1}', b"[" * 100_000):
        with pytest.raises(DigestMismatch, match="does not end with its crc32c"):
            read_sealed(text, "x")


def test_the_key_of_the_checksum_is_taken():
    with pytest.raises(SchemaError, match="'crc32c'"):
        seal_file({"crc32c": 1})
    assert read_sealed(seal_file({"a": {"crc32c": 1}}), "x") == {"a": {"crc32c": 1}}


@pytest.fixture
def run(tmp_path):
    """A run with every file there is."""
    made = RunStore.create(tmp_path / "run", {"method": "fgm", "C": 10.0})
    for name in REMEDIES:
        if name != "config":
            made.write_json(name, [{"a": 1}, {"a": 2}] if name == "tune" else {"a": 1, "rows": [1, 2]})
    for t in range(1, 6):
        made.append_history({"iteration": t, "gap": 1 / t})
    return made


def test_a_sound_run_checks(run):
    run.check()
    assert run.read_json("tune") == [{"a": 1}, {"a": 2}] and run.read_json("tables") == {"a": 1, "rows": [1, 2]}
    assert [row["iteration"] for row in run.history()] == [1, 2, 3, 4, 5] and "crc32c" not in run.history()[0]


@pytest.mark.parametrize("name", [*(f"{name}.json" for name in REMEDIES), "history.jsonl"])
def test_every_flipped_byte_of_every_file_is_damage_with_a_remedy(run, name):
    file, rng = run.path / name, random.Random(0)
    good = file.read_bytes()
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << rng.randrange(8)
        file.write_bytes(bad)
        if name == "history.jsonl" and at == len(good) - 1:
            continue  # the end of the last line: what a kill leaves, too
        with pytest.raises(DigestMismatch, match=rf"{name}.*(remove it|cannot be made again|keep the rows)"):
            RunStore.open(run.path).check()
    file.write_bytes(good)
    run.check()


def test_a_configuration_that_lost_its_checksum_is_damage(run):
    file = run.path / "config.json"
    fields = json.loads(file.read_bytes())
    file.write_text(json.dumps({name: value for name, value in fields.items() if name != "crc32c"}))
    with pytest.raises(DigestMismatch, match="crc32c"):
        RunStore.open(run.path)


def test_a_damaged_line_names_itself_and_a_torn_last_line_does_not_count(run):
    file = run.path / "history.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines) + lines[0][:20])
    assert len(run.history()) == 5
    file.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"iteration":3', b'"iteration":4'), *lines[3:]]))
    for read in (run.history, run.check, lambda: run.truncate_history(5)):
        with pytest.raises(DigestMismatch, match=r"history\.jsonl:3: .*keep the rows before this line with `sed -i '3,\$d' "):
            read()


@pytest.mark.parametrize("name", ["summary.json", "history.jsonl", "config.json"])
def test_a_folder_in_place_of_a_file_is_damage(run, name):
    (run.path / name).unlink()
    (run.path / name).mkdir()
    with pytest.raises(DigestMismatch, match=f"{name} is a folder, but must be a file"):
        run.check()
