"""Commands where the system refuses: read-only and full disks, files of others, closed and broken streams, no home, no temporary folder."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.clusters import ROOT
from tests.support.disks import NotPermitted, SmallDisk, read_only
from tests.support.fault_bench import CASES, LONG, make_bench
from tests.support.fault_runner import run_elsewhere, run_words
from tests.system.test_walk import sound

SHORT = [case for name, cases in CASES.items() if name not in LONG for case in cases]
WRITES_NOTHING_NEW = (
    "gram @/store --kernels linear --out @/grams",
    "fit fgm --data @/store --run @/run",
    "tune fgm --data @/store --run @/grid",
    "run @/flow.yaml",
)
"""Commands whose work is done already, as far as their first words tell."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """One of every thing, in a folder that every user may look into."""
    with tempfile.TemporaryDirectory(prefix="gramplane-bench-") as folder:
        os.chmod(folder, 0o755)
        yield make_bench(Path(folder) / "good")


def is_done(case):
    return " ".join(case.words).startswith(WRITES_NOTHING_NEW)


@pytest.mark.slow
def test_on_a_read_only_disk_what_is_done_is_left_alone_and_the_rest_is_told(bench, tmp_path):
    try:
        prefix = read_only(bench)
    except NotPermitted:
        pytest.skip("mounting is not permitted here")
    # The demonstration writes its data first, so its end comes at once, too.
    cases = [*SHORT, *CASES["demo"]]
    for case, ended in zip(cases, run_elsewhere([case.at(bench) for case in cases], tmp_path, prefix), strict=True):
        sound(ended, f"{case.words}", str(bench))
        # Nothing is left over in a fresh store, so cleaning it writes nothing; a Gram store is locked first.
        done = case.writes is None or is_done(case) or case.words[:2] in (("clean", "@/store"), ("clean", "@/run"))
        assert ended.code == (0 if done else 2), f"{case.words}\n{ended.err}"
        assert done or "read-only file system" in ended.err, f"{case.words}\n{ended.err}"


@pytest.mark.slow
def test_on_a_full_disk_the_path_is_told_as_it_is_written(bench, tmp_path):
    place = tmp_path / "Disk With Capitals"
    place.mkdir()
    try:
        disk = SmallDisk(place, 32 << 20)
    except NotPermitted:
        pytest.skip("mounting a small file system is not permitted here")
    with disk:
        shutil.copytree(bench, disk.seen / "bench", symlinks=True)
        disk.fill(0)
        ended = run_elsewhere([case.at(place / "bench") for case in SHORT], tmp_path, disk.prefix)
    full = 0
    for case, found in zip(SHORT, ended, strict=True):
        sound(found, f"{case.words}", str(place), str(bench))
        full += found.code == 5
        assert found.code in (0, 5), f"{case.words}\n{found.err}"
        assert found.code == 0 or str(place) in found.err, f"{case.words}\n{found.err}"
    assert full >= 8


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_files_of_other_people(bench, tmp_path, mode):
    own = bench.parent / f"mode-{mode:o}"
    shutil.copytree(bench, own, symlinks=True)
    for path in own.rglob("*"):
        if path.is_file():
            path.chmod(mode)
    notes = bench.parent / f"notes-{mode:o}"
    notes.mkdir()
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    cases = [*SHORT, *CASES["demo"]]
    ended = run_elsewhere([case.at(own) for case in cases], notes, prefix, HOME="/nonexistent", NUMBA_CACHE_DIR="/proc/nowhere")
    for case, found in zip(cases, ended, strict=True):
        sound(found, f"{case.words}", str(own), str(bench), "/nonexistent")
        if mode == 0 and case.reads:
            assert found.code == 2 and "permission denied" in found.err.lower(), f"{case.words}\n{found.err}"


UNCACHED = """
import sys
sys.path[:0] = sys.argv[1:]
from module import double
assert double(2) == 4
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_compiled_code_needs_no_place_for_a_cache(bench):
    folder = bench.parent / "code"
    folder.mkdir()
    (folder / "module.py").write_text("from gramplane.kernels.jit import compiled\n\n\n@compiled\ndef double(x):\n    return 2 * x\n")
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-B", "-c", UNCACHED, str(folder), str(ROOT)]
    words.append(str(ROOT / "tests" / "support" / "_bare"))
    env = {**os.environ, "HOME": "/nonexistent", "NUMBA_CACHE_DIR": "/proc/nowhere"}
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd="/", timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_cache_that_fills_up_costs_time_only(monkeypatch):
    from gramplane.kernels import jit

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    def triple(x):
        return 3 * x

    made = jit.compiled(triple)
    monkeypatch.setattr(made._cache, "save_overload", jit._ignore_io_errors(full, made._cache.flush))
    monkeypatch.setattr(made._cache, "load_overload", jit._ignore_io_errors(full, made._cache.flush))
    assert made(2) == 6


# -- streams and surroundings of real processes -----------------------------------------------------------------------------------

CLI = [sys.executable, "-m", "gramplane.workflows.cli"]


def process(words, shell='exec "$@"', cwd="/", **more):
    """Run the command line through a shell that arranges its streams; return the finished process."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests' / 'support' / '_bare'}{os.pathsep}{ROOT}"}
    env = {name: value for name, value in {**env, **more}.items() if value is not None}
    return subprocess.run(["sh", "-c", shell, "sh", *CLI, *map(str, words)], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("shell", "words", "code", "told"),
    [
        ('"$@" | true; exec cat', ["history", "@/run", "--lines"], None, ""),
        ('exec "$@" >&-', ["status", "@/run"], 0, ""),
        ('exec "$@" 2>&-', ["status", "@/run"], 0, ""),
        ('exec "$@" 2>&-', ["fit", "fgm", "--data", "@/store", "--run", "@/quiet", "--set", "B=1", "--set", "max_rounds=1"], 0, ""),
        ('exec "$@" <&- >&- 2>&-', ["status", "@/nowhere"], 2, ""),
        ('exec "$@" <&-', ["ingest", "-", "@/new", "--format", "svmlight"], 3, "the standard input is closed"),
        ('exec "$@" >/dev/full', ["status", "@/run"], 5, "the standard output: no space left on device"),
        ('exec "$@" 2>/dev/full', ["status", "@/nowhere"], 2, ""),
    ],
    ids=["reader gone", "no stdout", "no stderr", "no stderr for progress", "none", "no stdin", "full stdout", "full stderr"],
)
def test_streams_that_are_closed_or_full(bench, shell, words, code, told):
    done = process([word.replace("@", str(bench)) for word in words], shell)
    assert code is None or done.returncode == code, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr


def test_a_reader_that_went_away_is_141(bench):
    read, write = os.pipe()
    os.close(read)
    try:
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests' / 'support' / '_bare'}{os.pathsep}{ROOT}"}
        done = subprocess.run([*CLI, "status", str(bench / "run")], stdout=write, stderr=subprocess.PIPE, text=True, env=env, timeout=300)
    finally:
        os.close(write)
    assert done.returncode == 141, done.stderr
    assert "ended before all of it was written" in done.stderr and "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.slow
def test_without_a_home_and_without_a_temporary_folder(bench, tmp_path):
    words = ["fit", "fgm", "--data", bench / "store", "--run", tmp_path / "run", "--set", "B=1", "--set", "max_rounds=2", "--json"]
    done = process(words, HOME=None, TMPDIR="/nowhere/at/all", XDG_CACHE_HOME="/proc/nowhere", NUMBA_CACHE_DIR="/proc/nowhere")
    assert done.returncode == 0, done.stderr


def test_no_temporary_folder_anywhere_is_told(bench, tmp_path, monkeypatch):
    def none(*args, **more):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/nowhere']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    place = shutil.copytree(bench, tmp_path / "bench")
    for case in SHORT:
        if case.words[0] != "report":  # a second each, and nothing of it goes there
            shutil.rmtree(place / "new", ignore_errors=True)  # what a command before this one may have made
            sound(run_words(case.at(place)), f"{case.words}", "temporary directory")
