"""What a release needs: one version, an sdist and a wheel that are whole, and lowest versions that are those of pyproject.toml."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.support.places import ROOT
from tests.workflows.pages import blocks

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_the_same_everywhere() -> None:
    version = PROJECT["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == version
    assert yaml.safe_load((ROOT / ".ci" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))["context"]["version"] == version
    heading = re.search(r"^## (\S+) \((.*)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heading and heading[1] == version


def test_no_module_has_a_version_of_its_own() -> None:
    for folder in ("cluster", "kernels", "pipeline", "storage", "workflows"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not re.search(r"^__version__ *=", path.read_text(encoding="utf-8"), re.MULTILINE), path


def test_lowest_versions_are_the_floors() -> None:
    text = (ROOT / ".ci" / "constraints-lowest.txt").read_text(encoding="utf-8")
    lowest = dict(re.findall(r"^([\w-]+)==(\S+)$", text, re.MULTILINE))
    floors = dict(re.findall(r"^([\w-]+)>=(\S+)$", "\n".join([*PROJECT["dependencies"], "pytest>=8"]), re.MULTILINE))
    assert lowest.keys() == floors.keys()
    for name, floor in floors.items():
        assert lowest[name].split(".")[: floor.count(".") + 1] == floor.split("."), name


def test_the_conda_recipe_has_the_same_dependencies() -> None:
    recipe = yaml.safe_load((ROOT / ".ci" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    names = {"dask-core": "dask", "matplotlib-base": "matplotlib"}
    wanted = {requirement.replace(" ", "") for requirement in PROJECT["dependencies"]}
    listed = [entry.partition(" ") for entry in recipe["requirements"]["run"] if not entry.startswith("python ")]
    assert {names.get(name, name) + floor for name, _, floor in listed} == wanted


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with an sdist and a wheel."""
    source, out = tmp_path_factory.mktemp("source") / "tree", tmp_path_factory.mktemp("dist")
    skip = shutil.ignore_patterns(".git", ".venv", "build", "dist", "_build", "__pycache__", "*.nb[ic]", "env", "*.egg-info", "auto_*")
    shutil.copytree(ROOT, source, ignore=skip, symlinks=True)
    call = f"from setuptools import build_meta as b; b.build_sdist({str(out)!r}); b.build_wheel({str(out)!r})"
    subprocess.run([sys.executable, "-c", call], cwd=source, check=True, capture_output=True, timeout=200)
    return out


def test_the_sdist_holds_what_a_packager_needs(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO", "workflows/smoke.yaml", "pipeline/public/__init__.py"} <= names
    assert not [name for name in names if name.endswith((".nbi", ".nbc", ".pyc"))]


def test_the_wheel_holds_the_packages_and_nothing_else(built: Path) -> None:
    """Every package of pyproject.toml with what it needs beside code; no tests, documentation, benchmarks or compiled code."""
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    assert {f"{package.replace('.', '/')}/__init__.py" for package in packages} <= names
    assert {"gramplane/py.typed", "gramplane/workflows/smoke.yaml", f"gramplane-{PROJECT['version']}.dist-info/entry_points.txt"} <= names
    assert {name.partition("/")[0] for name in names} == {"gramplane", f"gramplane-{PROJECT['version']}.dist-info"}
    assert not [name for name in names if name.endswith((".nbi", ".nbc", ".pyc"))]


@pytest.mark.skipif(importlib.util.find_spec("twine") is None, reason="twine is part of the extra dev")
def test_twine_finds_nothing(built: Path) -> None:
    checked = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built.iterdir())]
    done = subprocess.run(checked, capture_output=True, text=True, timeout=100, env={**os.environ, "NO_COLOR": "1"})
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr


@pytest.mark.slow
def test_the_two_commands_of_the_readme(tmp_path: Path) -> None:
    """In an empty environment and with cold caches; what they take is measured by ``benchmarks.first_run``."""
    install, demo = next(block.text for block in blocks(ROOT / "README.md") if block.language == "sh").strip().splitlines()
    assert demo == "gramplane demo"
    checkout = tmp_path / "checkout"
    skip = shutil.ignore_patterns(".git", ".venv", "build", "dist", "_build", "__pycache__", "*.nb[ic]", "env", "*.egg-info", "results")
    shutil.copytree(ROOT, checkout, ignore=skip, symlinks=True)
    homes = {"HOME": str(tmp_path), "PIP_NO_CACHE_DIR": "1", "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")} | homes
    for command in (install, f". .venv/bin/activate && {demo}"):
        subprocess.run(["bash", "-c", f"set -e; {command}"], cwd=checkout, env=environment, check=True, timeout=1200)
    assert (checkout / "gramplane-demo" / "report.html").exists()
