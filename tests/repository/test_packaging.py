"""The package list, the wheel, and the three ways of importing a checkout."""

from __future__ import annotations

import itertools
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.places import ROOT

FOLDERS = ("cluster", "kernels", "pipeline", "storage", "workflows")
DATA_SUFFIXES = (".yaml", ".svm", ".txt", ".j2", ".css", ".bib", ".example", "py.typed")
IMPORT_ALL = (
    "import gramplane.cluster, gramplane.kernels, gramplane.storage, gramplane.pipeline, gramplane.workflows.cli as c; print(c.__file__)"
)


@pytest.fixture(scope="module")
def settings() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built, so that a build leaves nothing behind in the checkout."""
    copy = tmp_path_factory.mktemp("source") / "anywhere"
    skip = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
    for folder in (*FOLDERS, "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE", "conftest.py"):
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    out = tmp_path_factory.mktemp("wheel")
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True, timeout=120)
    (path,) = out.glob("gramplane-*.whl")
    return zipfile.ZipFile(path).namelist()


def _run(code: str, cwd: Path, python: str | Path = sys.executable, flags: tuple[str, ...] = (), **env: str) -> str:
    ran = subprocess.run([str(python), *flags, "-c", code], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_the_list_of_packages_is_up_to_date():
    ran = subprocess.run([sys.executable, ROOT / ".ci" / "make_package.py", "--check"], capture_output=True, text=True)
    assert ran.returncode == 0, f"python .ci/make_package.py: {ran.stdout}{ran.stderr[-2000:]}"


def test_every_module_lies_in_a_package():
    orphans = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if not (path.parent / "__init__.py").exists()]
    assert orphans == []


def test_the_wheel_holds_only_gramplane(wheel: list[str]):
    tops = {name.split("/")[0] for name in wheel}
    assert tops == {"gramplane", next(top for top in tops if top.endswith(".dist-info"))}
    assert not [name for name in wheel if "test" in name.lower() and name != "gramplane/testing.py"]


def test_the_wheel_holds_every_module_and_data_file(wheel: list[str]):
    wanted = {
        f"gramplane/{path.relative_to(ROOT).as_posix()}".replace("/pipeline/public/", "/")
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and (path.suffix == ".py" or path.name.endswith(DATA_SUFFIXES))
    }
    assert wanted == {name for name in wheel if name.startswith("gramplane/")}
    assert {"gramplane/workflows/smoke.yaml", "gramplane/workflows/crontab.example", "gramplane/storage/py.typed"} <= wanted


def test_the_command_is_declared(settings: dict):
    assert settings["project"]["scripts"] == {"gramplane": "gramplane.workflows.program:main"}


def test_dependencies_have_floors_not_ceilings(settings: dict):
    extras = settings["project"]["optional-dependencies"]
    for requirement in itertools.chain(settings["project"]["dependencies"], *extras.values()):
        assert "<" not in requirement and "==" not in requirement


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that is installed here but gramplane."""
    libraries = tmp_path_factory.mktemp("libraries")
    for folder in map(Path, sys.path):
        if folder.name in ("site-packages", "dist-packages") and folder.is_dir():
            for entry in folder.iterdir():
                if not entry.name.lower().startswith(("gramplane", "__editable__")) and not (libraries / entry.name).exists():
                    (libraries / entry.name).symlink_to(entry)
    return libraries


def test_a_bare_checkout_imports(source: Path, libraries: Path):
    """Without the installed gramplane, ``conftest.py`` finds the folders; the copy's name is not ``gramplane``."""
    found = _run(f"import conftest; {IMPORT_ALL}", source, flags=("-S",), PYTHONPATH=f"{libraries}")
    assert found == str(source / "workflows" / "cli.py")


def _processor_seconds(code: str, cwd: Path) -> float:
    """Median over 20 processes of what one takes."""
    took = []
    for _ in range(20):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], cwd=cwd, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(took)


def test_the_door_opens_at_once(tmp_path: Path):
    assert _run("import gramplane, sys; print('numpy' in sys.modules, 'dask' in sys.modules)", tmp_path) == "False False"
    # Warm: the second process of a machine reads compiled files.
    assert _processor_seconds("import gramplane", tmp_path) - _processor_seconds("pass", tmp_path) < 0.05


def test_names_of_the_door_lie_in_one_module_each(tmp_path: Path):
    import gramplane

    names = {name: getattr(gramplane, name) for name in gramplane.__all__ if name not in ("__version__", *gramplane.DOORS)}
    assert all(value.__module__.startswith("gramplane.") for value in names.values() if hasattr(value, "__module__"))
    touched = "import gramplane, sys; [getattr(gramplane, name) for name in gramplane.__all__]"
    doubles = "print([name for name in sys.modules if name.startswith('gramplane.pipeline.public')])"
    assert _run(f"{touched}; {doubles}", tmp_path) == "[]", "the door would have a second name"


def test_no_product_code_imports_a_door():
    doors = re.compile(r"(?:from|import) +(?:gramplane|\.+)(?:\.pipeline)?\.?(?:public|plots|testing|datasets)\b")
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path.parent.name != "public"]
    # Examples of docstrings are what a user writes.
    lines = {path: [line for line in path.read_text().splitlines() if not line.lstrip().startswith((">>> ", "... "))] for path in files}
    assert len(files) > 300 and not [path for path in files if doors.search("\n".join(lines[path]))]


def test_only_the_product_is_named_gramplane():
    """In a bare checkout ``gramplane.tests`` would be found, in an installed one it is not there."""
    wrong = re.compile(r"(?:from|import) gramplane\.(?:tests|benchmarks|docs)\b")
    files = [path for folder in (*FOLDERS, "tests", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 700 and not [path for path in files if wrong.search(path.read_text())]


def _environment(folder: Path, *options: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", *options, folder], check=True, timeout=120)
    return folder / "bin" / "python"


def _check_install(python: Path, cwd: Path, home: Path) -> None:
    """Both ways in, from another folder."""
    assert _run(IMPORT_ALL, cwd, python=python, PYTHONPATH="").startswith(str(home))
    door = "from gramplane import FGMClassifier, ingest, load_model; import gramplane.plots; print(FGMClassifier().B)"
    assert _run(door, cwd, python=python, PYTHONPATH="") == "10"
    assert "Usage: gramplane" in subprocess.run([python.parent / "gramplane", "--help"], capture_output=True, text=True).stdout


MODES = {"editable": ("-e",), "strict editable": ("--config-settings", "editable_mode=strict", "-e"), "sdist": ()}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_an_install_imports(mode: str, source: Path, libraries: Path, tmp_path: Path):
    """Into an environment that sees the dependencies of this one."""
    python = _environment(tmp_path / "env", "--without-pip")
    (site,) = (tmp_path / "env" / "lib").glob("*/site-packages")
    (site / "dependencies.pth").write_text(str(libraries))
    what = source
    if mode == "sdist":
        build = f"from setuptools import build_meta; print(build_meta.build_sdist({str(tmp_path)!r}))"
        what = tmp_path / _run(build, source).splitlines()[-1]
    words = ["install", "-q", "--no-deps", "--no-build-isolation", "--ignore-installed", *MODES[mode], str(what)]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *words], check=True, timeout=120, cwd=tmp_path)
    _check_install(python, tmp_path, source if "editable" in mode else tmp_path / "env")


@pytest.mark.slow
def test_an_install_into_an_empty_environment_imports(source: Path, tmp_path: Path):
    """The README's first step: the dependencies from the index."""
    python = _environment(tmp_path / "env")
    subprocess.run([python, "-m", "pip", "install", "-q", str(source)], check=True, timeout=600, cwd=tmp_path)
    _check_install(python, tmp_path, tmp_path / "env")
