"""Completion by a shell: the script is run in bash, and every kind of word is completed as a shell would ask."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gramplane.workflows.cli import main
from gramplane.workflows.console import COMPLETE

ASK = """
{script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
_gramplane_completion gramplane
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what click tells bash of a line whose last word is being typed: type and value."""
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    monkeypatch.setenv(COMPLETE, "bash_complete")
    assert main([]) == 0
    return capsys.readouterr().out.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
def test_bash_completes_methods_and_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    program = tmp_path / "gramplane"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gramplane.workflows.cli "$@"\n')
    program.chmod(0o755)
    found = script("bash", capsys)
    for words, expected in (("gramplane fit gr", ["group-lasso"]), ("gramplane fit fgm --set max_r", ["max_rounds="])):
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        text = ASK.format(script=found, words=words)
        ran = subprocess.run(["bash", "--norc", "-c", text], capture_output=True, text=True, env=environment, timeout=120)
        assert ran.stdout.split() == expected, ran.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_asks_the_program_and_is_for_its_shell(shell: str, capsys: pytest.CaptureFixture[str]):
    found = script(shell, capsys)
    assert f"{COMPLETE}={shell}_complete" in found and "gramplane" in found
    assert {"bash": "COMPREPLY", "zsh": "#compdef gramplane", "fish": "complete --no-files --command gramplane"}[shell] in found


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("gramplane st", ["plain,stability", "plain,status"]),
        ("gramplane fit mult", ["plain,multitask-mkl", "plain,multitask-selector"]),
        ("gramplane fit fgm --dri", ["plain,--driver-memory"]),
        ("gramplane fit fgm --set ", ["plain,B=", "plain,C="]),
        ("gramplane fit fgm --loss squared_", ["plain,squared_hinge", "plain,squared_epsilon_insensitive"]),
        ("gramplane fit fgm --set loss = squared_", ["plain,squared_hinge", "plain,squared_epsilon_insensitive"]),  # as bash splits words
        ("gramplane fit fgm --set loss =", ["plain,auto", "plain,squared_hinge"]),
        ("gramplane tune fgm --grid loss = hub", ["plain,huber"]),
        ("gramplane fit fgm --loss = squared_", ["plain,squared_hinge", "plain,squared_epsilon_insensitive"]),
        ("gramplane fit mkl --gram-store ", ["dir,"]),
        ("gramplane tune mkl --grid v", ["plain,v="]),
        ("gramplane config show kta", ["plain,kta-path"]),
        ("gramplane fit fgm --data ", ["dir,"]),
        ("gramplane ingest da", ["file,da"]),
        ("gramplane completion z", ["plain,zsh"]),
    ],
)
def test_words_are_completed(line: str, some: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    found = completed(line, capsys, monkeypatch)
    assert found[: len(some)] == some or set(some) <= set(found)


def test_runs_and_stores_are_completed_with_their_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name, file in (("runs/a", "config.json"), ("runs/b", "summary.json"), ("stores/x", "current.json"), ("runs/c", "other.txt")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / file).touch()
    monkeypatch.chdir(tmp_path)
    assert completed("gramplane score ru", capsys, monkeypatch) == ["dir,ru"]
    assert completed("gramplane score runs/", capsys, monkeypatch) == ["plain,runs/a", "plain,runs/b"]
    assert completed("gramplane fit fgm --data stores/", capsys, monkeypatch) == ["plain,stores/x"]
    monkeypatch.setenv(COMPLETE, "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", "gramplane score runs/")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert main([]) == 0
    assert "unfinished run" in capsys.readouterr().out


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
