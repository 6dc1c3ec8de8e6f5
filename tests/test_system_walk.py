"""Every command of the tree against every fault of the environment: never "this is a bug", always one message that names the place."""

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from gramplane.workflows.cli import cli
from gramplane.workflows.exits import Exit
from tests.support.fault_bench import CASES, DAMAGE, LONG, PATHS, files_of, leaf_commands, make_bench
from tests.support.fault_runner import run_words

KNOWN = {int(code) for code in Exit} - {int(Exit.BUG)}
SHORT = [(name, case) for name, cases in CASES.items() if name not in LONG for case in cases]
READING = [(name, case) for name, case in SHORT if case.reads]


def named(pairs):
    return pytest.mark.parametrize(("name", "case"), pairs, ids=[" ".join(case.words[:-1]).replace("@/", "") for _, case in pairs])


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


@pytest.fixture
def quick_path(tmp_path):
    """An empty folder in memory where there is one: what is flushed to a disk thousands of times says nothing more here."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="gramplane-walk-", dir="/dev/shm") as folder:
        yield Path(folder)


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
    """The files a fault is put into: all, or of everything read those of the root and a few others."""
    rng = random.Random(f"{case.words}{kind}")
    for item in case.reads:
        files = files_of(bench, item)
        # A report takes a second to draw.
        yield from files if all_of_them else rng.sample(files, min(1 if case.words[0] == "report" else 2, len(files)))


@named(READING)
@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_damaged_files(bench, quick_path, name, case, everywhere):
    for kind, damage in DAMAGE.items():
        for file in chosen(bench, case, kind, everywhere):
            place = copied(bench, quick_path, case)
            damage(place / file.relative_to(bench))
            sound(run_words(case.at(place)), f"{case.words}: {file.relative_to(bench)} {kind}", str(place), str(bench), file.name)


@named([(name, case) for name, case in SHORT if any("@" in word for word in case.words)])
def test_paths_that_are_not_what_was_meant(bench, quick_path, name, case):
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
