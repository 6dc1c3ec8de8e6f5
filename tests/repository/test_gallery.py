"""Tutorials and the gallery: what each system has, what scripts may use, and (slow) that every script runs."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from gramplane.pipeline.registry import METHODS
from tests.support.places import ROOT

GALLERY, TUTORIALS = ROOT / "docs" / "gallery", ROOT / "docs" / "tutorials"
SCRIPTS = sorted(path for folder in (GALLERY, TUTORIALS) for path in folder.rglob("*.py"))
SYSTEMS = sorted({info.system for info in METHODS.values()})
ORDER = runpy.run_path(str(ROOT / "docs" / "extensions" / "examples.py"))
OPEN_MODULES = {"gramplane", "gramplane.datasets", "gramplane.plots"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT / "docs").as_posix()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_has_examples(system: str):
    folder = GALLERY / system
    assert len(list(folder.glob("plot_*.py"))) >= 2
    title, line, _ = (folder / "GALLERY_HEADER.rst").read_text(encoding="utf-8").split("\n", 2)
    assert set(line) == {"-"} and len(line) >= len(title)


def test_every_folder_is_a_system():
    assert sorted(path.name for path in GALLERY.iterdir() if path.is_dir() and path.name[0] not in "._") == SYSTEMS


def test_every_script_has_its_place():
    pages = {f"tutorials/plot_{name}.py" for name in ORDER["TUTORIALS"]}
    pages |= {f"gallery/{system}/plot_{name}.py" for system, names in ORDER["GALLERY"].items() for name in names}
    assert pages == {name_of(path) for path in SCRIPTS}


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_scripts_are_as_a_user_would_write_them(path: Path):
    """A title with its rule, public names alone, cells of text between the code, and nothing written beside the script."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    title, rule = (ast.get_docstring(tree) or "").split("\n")[:2]
    assert set(rule) == {"="} and len(rule) >= len(title)
    assert re.match(r"(plot|long)_\w+\.py$", path.name) and text.count("# %%") >= 2
    assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree)), "an example prints what it shows"
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {module for module in modules if module.partition(".")[0] == "gramplane"} <= OPEN_MODULES
    if path.parent == TUTORIALS:
        assert "# What to try when it is bad\n" in text


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_scripts_run(path: Path, tmp_path: Path):
    search = [str(ROOT / "tests" / "support" / "_bare"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "MPLBACKEND": "agg", "PYTHONPATH": os.pathsep.join(search)}
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not list(tmp_path.iterdir()), "a script writes into temporary folders of its own"
