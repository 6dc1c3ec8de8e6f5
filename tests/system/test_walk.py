"""Every command of the tree against every fault of the environment: never "this is a bug", always one message that names the place."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from gramplane.storage import RunStore
from gramplane.workflows.cli import cli
from gramplane.workflows.exits import Exit
from tests.support.commands import tree_bytes
from tests.support.fault_bench import CASES, DAMAGE, FIT, LONG, PATHS, files_of, leaf_commands, make_bench
from tests.support.fault_runner import run_words

KNOWN = {int(code) for code in Exit} - {int(Exit.BUG)}
SHORT = [(name, case) for name, cases in CASES.items() if name not in LONG for case in cases]
READING = [(name, case) for name, case in SHORT if case.reads]


def named(pairs):
    """Parametrise with cases; of reports, which take a second to draw, the one of a single run is enough for the gate."""
    slow = [pytest.mark.slow if case.words[:3] == ("report", "@/grid", "@/run") else () for _, case in pairs]
    names = [" ".join(case.words[:-1]).replace("@/", "") for _, case in pairs]
    return pytest.mark.parametrize(
        ("name", "case"), [pytest.param(*pair, marks=marks, id=name) for pair, marks, name in zip(pairs, slow, names, strict=True)]
    )


def sound(ended, what, *places):
    """Check how a command ended: no bug, no traceback, and a message that names one of the places."""
    assert ended.code in KNOWN, f"{what}: exit {ended.code}\n{ended.err}"
    assert "Traceback" not in ended.err and "this is a bug" not in ended.err, f"{what}\n{ended.err}"
    if ended.code:
        assert "[Errno" not in ended.err, f"{what}: a number of the system is no message\n{ended.err}"
        text = ended.err + ended.out
        assert any(place in text for place in places), f"{what}: names none of {places}\n{ended.err}"


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return make_bench(tmp_path_factory.mktemp("bench") / "good")


def copied(bench, folder, case):
    """What a command reads and writes, of its own; records name paths of the first bench, which stays there."""
    place = folder / "bench"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    items = {part for word in case.words for part in word.split("@/")[1:]} | set(case.reads)
    for item in items:
        if (bench / item).is_dir():
            shutil.copytree(bench / item, place / item)
        elif (bench / item).exists():
            shutil.copy2(bench / item, place / item)
    return place


def test_every_command_is_in_the_table_and_works_where_nothing_is_wrong(bench, quick_path):
    assert set(CASES) == set(leaf_commands(cli))
    for number, (_, case) in enumerate(SHORT):
        ended = run_words(case.at(copied(bench, quick_path / str(number), case)))
        assert ended.code == 0, (case.words, ended.err)


def chosen(bench, case, kind, all_of_them):
    """The files a fault is put into: all, or one of everything that is read."""
    rng = random.Random(f"{case.words}{kind}")
    for item in case.reads:
        files = files_of(bench, item)
        yield from files if all_of_them else rng.sample(files, min(1, len(files)))


@named(READING)
@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_damaged_files(bench, quick_path, name, case, everywhere):
    for kind, damage in DAMAGE.items():
        for file in chosen(bench, case, kind, everywhere):
            place = copied(bench, quick_path, case)
            damage(place / file.relative_to(bench))
            sound(run_words(case.at(place)), f"{case.words}: {file.relative_to(bench)} {kind}", str(place), str(bench), file.name)


@named([(name, case) for name, case in SHORT if any("@" in word for word in case.words)])
def test_paths_that_are_not_what_was_meant(bench, quick_path, name, case, monkeypatch):
    (quick_path / "here").mkdir()
    monkeypatch.chdir(quick_path / "here")
    for at, word in enumerate(case.words):
        if "@" not in word:
            continue
        for kind, make in PATHS.items():
            odd = quick_path / "odd"
            shutil.rmtree(odd, ignore_errors=True)
            odd.mkdir()
            place, text = copied(bench, odd, case), make(odd)
            words = case.at(place)
            words[at] = text
            shown = text.encode("utf-8", "backslashreplace").decode()
            places = (text or "''", shown, repr(text)[1:-1], str(odd), case.words[at - 1].lstrip("-"))
            sound(run_words(words), f"{words}: {kind}", *places)
            if kind in ("a file", "a folder"):
                kept = odd / "folder" / "notes.txt" if kind == "a folder" else odd / "file"
                assert kept.read_text() in ("mine", "text\n"), f"{words}: {kept} was overwritten"


# -- the faults of the report, with the code each must end with --------------------------------------------------------------

ON_A_RUN = (
    *("status @/run", "history @/run", "inspect @/run", "report @/run", "resume @/run"),
    *("score @/run @/store", "predict @/run @/store @/new.csv"),
)
RECORDS = ("config.json", "where.json", "decisions.json", "tables.json", "summary.json", "scores.json", "history.jsonl")


def ended(text, place):
    return run_words([*text.replace("@", str(place)).split(), "--json"])


@pytest.mark.parametrize("kind", ["flipped", "nested too deep", "a folder", "empty", "cut short"])
@pytest.mark.parametrize("record", RECORDS)
def test_a_damaged_record_of_a_run_is_6_for_every_command_and_says_what_to_do(bench, quick_path, record, kind):
    # An empty history is that of a run before its first round.
    code = 0 if (record, kind) == ("history.jsonl", "empty") else 6
    place = Path(shutil.copytree(bench, quick_path / "bench"))
    DAMAGE[kind](place / "run" / record)
    if record == "history.jsonl" and kind == "cut short":
        with (place / "run" / record).open("ab") as file:
            file.write(b"\n")  # or it would be what a kill leaves
    for text in ON_A_RUN:
        found = ended(text, place)
        sound(found, f"{text}: {record} {kind}", str(place / "run"))
        assert found.code == code, f"{text}: {record} {kind}\n{found.err}"
        if code == 6:
            remedies = ("remove it", "cannot be made again", "keep the rows")
            assert record in found.err and any(word in found.err for word in remedies), found.err


@pytest.mark.parametrize("record", ["summary", "tables", "decisions", "scores", "where"])
def test_what_the_message_says_gets_the_record_back(bench, quick_path, record):
    place = Path(shutil.copytree(bench, quick_path / "bench"))
    file = place / "run" / f"{record}.json"
    before = RunStore.open(place / "run").read_json(record)
    file.unlink()
    if record in ("tables", "decisions"):
        (place / "run" / "summary.json").unlink()
    again = {"scores": "score @/run @/store", "where": f"fit fgm --data @/store --run @/run {FIT}"}.get(record, "resume @/run")
    found = ended(again, place)
    assert found.code == 0, found.err
    after = RunStore.open(place / "run").read_json(record)
    if record == "where":
        assert after is None, "a finished run needs to know its place no more"
    else:
        assert untimed(after) == untimed(before) if record != "scores" else [*after.values()] == [*before.values()]
    assert ended("report @/run", place).code == 0


def untimed(found):
    return {name: value for name, value in found.items() if name != "seconds"}


def test_a_history_cut_where_the_message_says_is_sound_again(bench, quick_path):
    place = Path(shutil.copytree(bench, quick_path / "bench"))
    file = place / "run" / "history.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1].replace(b":", b";", 1))
    found = ended("status @/run", place)
    assert found.code == 6
    command = found.err.partition("`")[2].partition("`")[0]
    assert command == f"sed -i '2,$d' {file}"
    subprocess.run(command, shell=True, check=True)
    assert ended("status @/run", place).code == 0 and file.read_bytes() == lines[0]


@pytest.mark.parametrize(
    ("text", "item", "kind", "code"),
    [
        (f"fit fgm --data @/store --run @/new {FIT}", "store", "a folder", 6),
        (f"fit fgm --data @/store --run @/new {FIT}", "store", "flipped", 6),
        ("verify @/store", "store", "a folder", 6),
        ("verify @/store", "store", "absent", 6),
        ("predict @/run @/store @/new.csv", "store", "a folder", 6),
        ("verify @/grams", "grams/grams", "a folder", 6),
        ("verify @/grams", "grams/grams", "flipped", 6),
        ("predict @/run @/store @/new.csv", "run/model", "a folder", 6),
        ("predict @/run @/store @/new.csv", "run/model", "flipped", 6),
    ],
)
def test_damaged_objects_of_stores_and_models_are_6(bench, quick_path, text, item, kind, code):
    place = Path(shutil.copytree(bench, quick_path / "bench"))
    chunk = max((path for path in files_of(place, item) if "c" in path.parts), key=lambda path: (path.stat().st_size, str(path)))
    DAMAGE[kind](chunk)
    found = ended(text, place)
    sound(found, f"{text}: {chunk} {kind}", str(place))
    assert found.code == code, found.err


@pytest.mark.parametrize(
    ("text", "lock"),
    [
        ("resume @/stopped", "stopped/lock"),
        (f"fit fgm --data @/store --run @/run {FIT}", "run/lock"),
        (f"tune fgm --data @/store --run @/grid --folds 2 --grid C=1,10 {FIT}", "grid/lock"),
        ("gram @/store --kernels rbf(gamma=1) --out @/grams", "grams/lock"),
        ("run @/flow.yaml --run-id one", "flow-runs/one/.steps/select.lock"),
    ],
)
def test_a_lock_that_is_a_link_is_2_and_what_it_names_stays(bench, quick_path, text, lock):
    place = Path(shutil.copytree(bench, quick_path / "bench"))
    (place / "mine.txt").write_text("mine")
    (place / lock).unlink()
    (place / lock).symlink_to(place / "mine.txt")
    found = ended(text, place)
    assert found.code == 2, found.err
    assert f"{place / lock} is a symbolic link; a lock is a plain file" in found.err
    assert (place / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("out", ["mine.csv", "mine.npz", "mine.parquet", "mine.zarr", "store.zarr"])
def test_predictions_replace_predictions_and_nothing_else(bench, quick_path, out):
    place = Path(shutil.copytree(bench, quick_path / "bench"))
    text = f"predict @/run @/store @/{out}"
    if out == "store.zarr":
        shutil.copytree(place / "store", place / out)
    elif out == "mine.zarr":
        (place / out).mkdir()
        (place / out / "notes.txt").write_text("mine")
    else:
        (place / out).write_text("mine")
    before = tree_bytes(place)
    found = ended(text, place)
    assert found.code == 2 and "does not hold predictions and is not replaced" in found.err, found.err
    assert tree_bytes(place) == before
    shutil.rmtree(place / out) if (place / out).is_dir() else (place / out).unlink()
    for _ in range(2):  # its own it may replace
        found = ended(text, place)
        assert found.code == 0, found.err
    if out == "mine.zarr":
        (place / out / "notes.txt").write_text("mine")
        found = ended(text, place)
        assert found.code in (2, 3) and "files that are no part of the model, such as notes.txt" in found.err, found.err
        assert (place / out / "notes.txt").read_text() == "mine"


def test_a_report_replaces_a_report_and_nothing_else(bench, quick_path):
    place = Path(shutil.copytree(bench, quick_path / "bench"))
    for name in ("report.html", "summary.csv"):
        assert ended("report @/run --out @/page", place).code == 0
        (place / "page" / name).write_text("mine")
        before = tree_bytes(place)
        found = ended("report @/run --out @/page", place)
        assert found.code == 2 and f"{place / 'page' / name} was not written by a report and is not replaced" in found.err
        assert tree_bytes(place) == before
        (place / "page" / name).unlink()
