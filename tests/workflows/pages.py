"""Code blocks of the pages: which of them run, and how a page is walked."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.support.places import ROOT

MADE = {"_build", "auto_tutorials", "auto_gallery", "generated", "backreferences"}
"""Folders that the build of the site writes."""
WRITTEN = {ROOT / name for name in (ROOT / ".gitignore").read_text(encoding="utf-8").split() if name.endswith(".md")}

BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[a-z]+)(?:: (?P<reason>[^>]*))? -->\n)?```(?P<language>[a-z]+)\n(?P<text>.*?)^```$"
    r"(?:\n\n?```text\n(?P<output>.*?)^```$)?",
    re.M | re.S,
)


class Block(NamedTuple):
    """A block of code on a page: its language, text, and the word before it.

    Marks are ``runs`` (of shell commands: they run) and ``shown`` (nothing runs, for a reason that stands there). ``output`` is the block
    of text below it: what it prints.
    """

    language: str
    text: str
    mark: str
    reason: str
    output: str


def pages() -> list[Path]:
    """Return every page that somebody wrote."""
    own = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md") if (ROOT / name).exists()]
    return own + [path for path in sorted((ROOT / "docs").rglob("*.md")) if not MADE & set(path.parts) and path not in WRITTEN]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of code of a page, in order."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(block["language"], block["text"], block["mark"] or "", block["reason"] or "", block["output"] or "") for block in found]


def shell(folder: Path) -> dict[str, str]:
    """Return an environment in which ``gramplane`` and ``python`` are those under test."""
    programs = folder / ".bin"
    programs.mkdir(exist_ok=True)
    for name, words in (("gramplane", "-m gramplane.workflows.cli"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        program.chmod(0o755)
    paths = [str(ROOT / "tests" / "support" / "_bare"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(paths), "MPLBACKEND": "agg"}


def walk(page: Path, folder: Path) -> None:
    """Do what a page says, from top to bottom, in a folder: Python blocks run alone, files are written, marked commands run. Each prints
    what stands below it; of commands the end of their output.
    """
    environment = shell(folder)
    for block in blocks(page):
        if block.mark == "shown":
            continue
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(block.text, str(page), "exec"), {"__name__": "page"})
            assert not block.output or is_printed(block.output, printed.getvalue()), f"{block.text}\nprints\n{printed.getvalue()}"
        elif block.language == "yaml":
            assert yaml.safe_load(block.text)
            if name := re.match(r"# ([\w-]+\.yaml)\n", block.text):
                (folder / name[1]).write_text(block.text, encoding="utf-8")
        elif block.mark == "runs":
            command = ["bash", "-c", f"set -e\n{block.text}"]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
            assert done.returncode == 0 and "warning" not in done.stderr, block.text + done.stderr[-2000:]
            end = "".join(done.stdout.splitlines(keepends=True)[-len(block.output.splitlines()) :])
            assert not block.output or is_printed(block.output, end), f"{block.text}\nprints\n{done.stdout}"


def is_printed(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; ``...`` stands for anything, and seconds may differ."""
    shown, printed = (re.sub(r"\b[\d.]+ s\b", "_ s", text) for text in (shown, printed))
    return doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
