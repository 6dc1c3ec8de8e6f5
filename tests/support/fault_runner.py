"""Commands run one after another inside one process, this one or one that sees other disks, each with its code and what it said."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.clusters import ROOT


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def run_words(words: Sequence[str]) -> Ended:
    """Run one command line in this process."""
    from gramplane.workflows.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(words))
    return Ended(code, out.getvalue(), err.getvalue())


def run_elsewhere(commands: Sequence[Sequence[str]], folder: Path, prefix: Sequence[Any] = (), **environment: str) -> list[Ended]:
    """Run command lines in one process started with ``PREFIX``; ``folder`` takes its notes, and must be one that it may read."""
    notes = folder / "commands.json"
    notes.write_text(json.dumps([[str(word) for word in words] for words in commands]))
    env = {name: value for name, value in os.environ.items() if not name.startswith("GRAMPLANE_")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests" / "support" / "_bare"), str(ROOT), env.get("PYTHONPATH", "")])
    words = [*map(str, prefix), sys.executable, "-m", "tests.support.fault_runner", str(notes)]
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, env={**env, **environment}, timeout=600)
    assert done.returncode == 0, done.stderr
    return [Ended(**found) for found in json.loads(done.stdout.rstrip("\n").rpartition("\n")[2])]


if __name__ == "__main__":
    print(json.dumps([vars(run_words(words)) for words in json.loads(Path(sys.argv[1]).read_text())]))
