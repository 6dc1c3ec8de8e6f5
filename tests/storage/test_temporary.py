"""Temporary folders: of this process alone, gone with it, and swept by the next one when it was killed; others' are left alone."""

import ast
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gramplane.storage.temporary import sweep_folders, temporary_folder
from tests.support.clusters import ROOT, import_path, wait_until

HOLDER = """
import sys, time
from gramplane.storage.temporary import temporary_folder
with temporary_folder(sys.argv[1]) as folder:
    (folder / "inside").mkdir()
    (folder / "inside" / "file").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""
MAKER = """
import sys
from gramplane.storage.temporary import temporary_folder
print("ready", flush=True)
while True:
    with temporary_folder(sys.argv[1]) as folder:
        (folder / "file").write_text("x")
"""


def started(script: str, *words: object) -> tuple["subprocess.Popen[str]", str]:
    env = {**os.environ, "PYTHONPATH": import_path()}
    process = subprocess.Popen([sys.executable, "-c", script, *map(str, words)], stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def killed(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_a_folder_is_private_and_gone_at_the_end(tmp_path):
    with temporary_folder(tmp_path) as folder:
        assert folder.parent == tmp_path and stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "link").symlink_to(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyError), temporary_folder(tmp_path):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_swept_by_the_next_start_however_young(tmp_path):
    process, name = started(HOLDER, tmp_path)
    killed(process)
    assert (Path(name) / "inside" / "file").exists()
    with temporary_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_the_folder_of_a_living_process_is_left_alone_however_old(tmp_path):
    process, name = started(HOLDER, tmp_path)
    try:
        long_ago = time.time() - 10 * 365 * 86400
        for path in (Path(name), *Path(name).rglob("*")):
            os.utime(path, (long_ago, long_ago))
        with temporary_folder(tmp_path) as own:
            assert sweep_folders(tmp_path) == []
            assert (Path(name) / "inside" / "file").exists() and own.exists()
    finally:
        killed(process)


def test_a_stopped_process_keeps_its_folder(tmp_path):
    process, name = started(HOLDER, tmp_path)
    try:
        process.send_signal(signal.SIGSTOP)
        assert sweep_folders(tmp_path) == [] and Path(name).exists()
    finally:
        killed(process)


def test_folders_of_anybody_else_are_left_alone(tmp_path):
    others = ["gramplane-abcdefgh.tmp", "gramplane-walk-abcd", "gramplane-0123456789abcdef.ingest", "gramplane-abcdefgh", "other.tmp"]
    for name in others:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("kept")
    for name in others[1:]:
        (tmp_path / name / "owner.lock").write_text("")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "owner.lock").write_text("")
    (tmp_path / "gramplane-linkaaaa.tmp").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "gramplane-linkbbbb.tmp").mkdir()
    (tmp_path / "gramplane-linkbbbb.tmp" / "owner.lock").symlink_to(tmp_path / "elsewhere" / "owner.lock")
    before = sorted(tmp_path.rglob("*"))
    assert sweep_folders(tmp_path) == [] and sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_folders_of_other_users_are_left_alone(tmp_path):
    folder = tmp_path / "gramplane-abcdefgh.tmp"
    folder.mkdir()
    (folder / "owner.lock").write_text("")
    os.chown(folder, 65534, 65534)
    assert sweep_folders(tmp_path) == [] and folder.exists()
    os.chown(folder, 0, 0)
    assert sweep_folders(tmp_path) == [folder]


def test_a_process_killed_before_its_lock_leaves_an_empty_folder_that_goes_too(tmp_path):
    (tmp_path / "gramplane-abcdefgh.tmp").mkdir()
    assert len(sweep_folders(tmp_path)) == 1


def test_makers_and_sweepers_at_once_never_lose_a_folder_in_use(tmp_path):
    """The sweep of one process meets the folder of another between its making and its lock."""
    makers = [started(MAKER, tmp_path)[0] for _ in range(2)]
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        with temporary_folder(tmp_path) as folder:
            (folder / "file").write_text("x")
            sweep_folders(tmp_path)
            assert (folder / "file").read_text() == "x"
    assert [maker.poll() for maker in makers] == [None, None]
    time.sleep(random.random() / 10)
    for maker in makers:
        killed(maker)
    sweep_folders(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_now_stays_recognisable(tmp_path, monkeypatch):
    process, name = started(HOLDER, tmp_path)
    killed(process)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *args, **more: None)
        assert sweep_folders(tmp_path) == []
    assert sweep_folders(tmp_path) == [Path(name)]


def test_a_forked_child_does_not_keep_the_folder_of_a_killed_owner(tmp_path):
    fork = "    import os\n    child = os.fork()\n    print(child, flush=True) if child else time.sleep(60)\n"
    script = HOLDER.replace("    time.sleep(60)", fork + "    time.sleep(60)")
    process, name = started(script, tmp_path)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        process.kill()
        process.wait()
        os.kill(child, 0)
        # The child gives the lock up at its own start, which the number told by its parent does not wait for.
        wait_until(lambda: not Path(name).exists() or sweep_folders(tmp_path) == [Path(name)], 20, "the folder to be swept")
        assert not Path(name).exists()
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


def test_nothing_else_makes_temporary_folders():
    """One mechanism: a folder made in any other way would stay behind when its process is killed."""
    makers = {"mkdtemp", "TemporaryDirectory", "mkstemp", "NamedTemporaryFile", "TemporaryFile"}
    found = set()
    for folder in ("cluster", "kernels", "pipeline", "storage", "workflows"):
        for path in (ROOT / folder).rglob("*.py"):
            names = {getattr(node, "attr", getattr(node, "id", None)) for node in ast.walk(ast.parse(path.read_text()))}
            if names & makers:
                found.add(path.relative_to(ROOT).as_posix())
    # The scratch of an ingest into an object store outlives its process, for the next attempt to go on with, under a lock of its own.
    assert found == {"storage/temporary.py", "storage/ingest/scratch.py"}
