"""Which folder may import which, and how full a folder may be: read from the source with `ast`, so the rules cost no dependency."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import house
from tests.support.places import ROOT

FOLDERS = ("cluster", "kernels", "pipeline", "storage", "workflows")
LEAVES = {"cluster", "kernels", "storage"}
MAY_IMPORT = {
    "cluster": {"cluster"},
    "kernels": {"kernels"},
    "storage": {"storage"},
    "pipeline": {"pipeline", "cluster", "kernels", "storage"},
    "workflows": {"workflows", "pipeline", "cluster", "storage"},
}
FOREIGN = {
    "kernels": {"dask", "distributed", "zarr", "click", "pydantic", "yaml", "sklearn"},
    "storage": {"dask", "distributed", "click", "pydantic", "yaml"},
    "cluster": {"zarr", "numba", "click", "pydantic", "yaml", "sklearn"},
    "pipeline": {"zarr", "numba", "click", "yaml", "jinja2", "matplotlib", "rich"},
    "workflows": {"zarr", "numba", "dask", "distributed"},
}
"""Libraries a folder must leave to another one."""
NUMBA_FILES = {"kernels/jit.py", "storage/ingest/_jit.py"}
SHARED = {("cluster", "storage.temporary")}
"""The one module that a leaf may take from another: temporary folders, which are made, locked and swept in one way only. It imports nothing
but the standard library, which `test_what_leaves_share_knows_nothing_else` holds it to."""
LEVELS = {
    "core": 0,
    "core.engine": 5,
    "core.method": 5,
    "core.one_vs_rest": 5,
    "core.search": 5,
    "core.calibration": 5,
    "records": 0,
    "synthetic": 0,
    "loops": 1,
    "passes": 1,
    "grams": 2,
    "inputs": 3,
    "models": 4,
    "estimators": 6,
    "methods": 7,
    "registry": 8,
    "runs": 9,
}
"""Levels of the parts of ``pipeline``, or of a file of one: none imports from a higher one."""
TOP_LEVEL = 10
"""Level of ``pipeline`` itself."""
APART = {"loops", "passes"}
"""Parts of one level that do not know each other."""
FILES = {"config": 0, "method": 5, "stability": 5, "partial_fit": 5, "estimator": 6}
"""Ranks of the files of a system; passes have 2, helpers 3."""


class Import(NamedTuple):
    """One import: the file it stands in, its line, and the module it names (``kernels.scores``, ``numpy``)."""

    file: str
    line: int
    module: str
    relative: bool


def product_files() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def _resolved(file: str, node: ast.ImportFrom) -> str:
    package = file.split("/")[:-1]
    base = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def imports_of(source: str, file: str) -> Iterator[Import]:
    """Yield every import of a source text, inside functions and ``TYPE_CHECKING`` blocks too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _resolved(file, node)
            if node.level and base.count(".") < 1:
                # ``from .. import kernels`` and ``from .. import x`` inside a folder name their module in the list.
                yield from (Import(file, node.lineno, f"{base}.{alias.name}".lstrip("."), True) for alias in node.names)
            else:
                yield Import(file, node.lineno, base, bool(node.level))


def level(module: str) -> int:
    parts = module.split(".")
    of_folder = LEVELS.get(parts[1], TOP_LEVEL) if len(parts) > 1 else TOP_LEVEL
    return LEVELS.get(".".join(parts[1:3]), of_folder)


def broken_rule(found: Import) -> str | None:
    """Return what is wrong with an import, or ``None``."""
    folder, target = found.file.split("/")[0], found.module.split(".")[0]
    if not found.relative:
        is_door = found.file.startswith("pipeline/public/")  # (its folder in a checkout is not where it is imported from)
        if (target == "gramplane" and not is_door) or target in FOLDERS:
            return "imports of our own code are relative"
        if target == "numba" and found.file not in NUMBA_FILES:
            return f"numba belongs in {', '.join(sorted(NUMBA_FILES))}"
        return f"{folder} leaves {target} to another folder" if target in FOREIGN[folder] - {"numba"} else None
    if target not in MAY_IMPORT[folder] and (folder, found.module) not in SHARED:
        return f"{folder} must not know {target}"
    if folder == target == "pipeline":
        return _broken_inside_pipeline(found)
    return None


def _broken_inside_pipeline(found: Import) -> str | None:
    source, target = found.file.removesuffix(".py").replace("/", "."), found.module
    own, other = [*source.split("."), ""][1], [*target.split("."), ""][1]
    if level(target) > level(source) or (own != other and {own, other} == APART):
        return f"inside pipeline, {own} must not know {other or 'the package itself'}"
    return _broken_inside_methods(source.split("."), target.split(".")) if own == other == "methods" else None


def _broken_inside_methods(source: list[str], target: list[str]) -> str | None:
    if len(source) < 4 or len(target) < 4:
        return None
    if source[2] != target[2]:
        return f"{source[2]} must not know {target[2]}: no system imports another"
    return f"{source[3]} must not know {target[3]}, which is a layer above" if rank(target[3]) > rank(source[3]) else None


def rank(file: str) -> int:
    """Return the layer of a file of a system: config, *_pass, helpers (model and problem among them), method, grid, estimator."""
    if file.endswith("_pass"):
        return 2
    return FILES.get(file, 3)


def _violations(found: Iterator[Import]) -> list[str]:
    return [f"{item.file}:{item.line}: imports {item.module}: {why}" for item in found if (why := broken_rule(item))]


def test_every_import_keeps_the_layers():
    bad = [row for path in product_files() for row in _violations(imports_of(path.read_text(), path.relative_to(ROOT).as_posix()))]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("module", sorted({module for _, module in SHARED}))
def test_what_leaves_share_knows_nothing_else(module):
    file = f"{module.replace('.', '/')}.py"
    found = [item.module.split(".")[0] for item in imports_of((ROOT / file).read_text(), file) if not item.relative]
    assert found and set(found) <= sys.stdlib_module_names
    assert not any(item.relative for item in imports_of((ROOT / file).read_text(), file))


def test_no_circle_of_imports():
    circles = house.import_circles(house.import_graph())
    assert not circles, "\n".join(" <-> ".join(group) for group in circles)


def test_a_circle_is_seen():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert house.import_circles(graph) == [["a", "b", "c"]]


def test_all_five_folders_are_read():
    assert {path.relative_to(ROOT).parts[0] for path in product_files()} == set(FOLDERS)
    assert len(product_files()) > 30


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("kernels/features/scores.py", "from ...storage import BlockStore"),
        ("kernels/mixed_norm/apg.py", "from ...cluster.graph import plan"),
        ("kernels/features/scores.py", "from ... import storage"),
        ("storage/blocks/store.py", "def f():\n    from ...pipeline import METHODS"),
        ("cluster/workers/graph.py", "import zarr"),
        ("cluster/workers/graph.py", "from ...storage.locks import file_lock"),
        ("kernels/features/scores.py", "from ...storage.temporary import temporary_folder"),
        ("storage/blocks/store.py", "from dask.array import Array"),
        ("kernels/features/scores.py", "import numba"),
        ("pipeline/runs/run.py", "from gramplane.kernels import scores"),
        ("pipeline/runs/run.py", "import kernels"),
        ("pipeline/records/config.py", "from ..methods.fgm.problem import FGMProblem"),
        ("pipeline/loops/active_set.py", "from ..passes import columns"),
        ("pipeline/passes/columns.py", "from ..core.engine import iterate"),
        ("pipeline/models/kernel.py", "from ..estimators.kernels import KernelEstimator"),
        ("pipeline/methods/mkl/problem.py", "from ...registry import METHODS"),
        ("pipeline/methods/mkl/problem.py", "from ...runs.run import run_method"),
        ("pipeline/methods/mkl/problem.py", "from ..fgm.atoms import Atoms"),
        ("pipeline/methods/mkl/problem.py", "from .method import MKL"),
        ("pipeline/methods/fgm/atoms.py", "from .method import FGM"),
        ("pipeline/methods/fgm/score_pass.py", "from .atoms import take"),
        ("pipeline/methods/fgm/score_pass.py", "if True:\n    from .model import FGMModel"),
        ("pipeline/registry.py", "from .runs.run import run_method"),
        ("pipeline/records/joined.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ...workflows import cli"),
        ("workflows/cli.py", "from ..kernels import scores"),
    ],
)
def test_a_forbidden_import_is_seen(file: str, source: str):
    assert _violations(imports_of(source, file))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("kernels/mixed_norm/apg.py", "from ..losses import Loss\nfrom . import registry\nimport numpy as np"),
        (
            "pipeline/passes/columns.py",
            "from ...kernels import scores\nfrom ...storage import BlockStore\nfrom ..core.resources import RunContext",
        ),
        (
            "pipeline/methods/mkl/problem.py",
            "from ...loops.protocol import joint_stop\nfrom ...passes import columns",
        ),
        ("pipeline/methods/fgm/estimator.py", "from ...estimators.base import Estimator\nfrom .method import shared_problem"),
        ("pipeline/methods/group_lasso/text_problem.py", "from .stream_problem import stream_plan"),
        ("pipeline/runs/run.py", "from ..registry import METHODS\nfrom ..methods.fgm.method import FGM"),
        ("workflows/runner.py", "from ..pipeline import run_method\nfrom ..storage import BlockStore"),
        ("storage/ingest/_jit.py", "import numba"),
        ("cluster/workers/local.py", "from ..storage.temporary import temporary_folder"),
    ],
)
def test_an_allowed_import_is_left_alone(file: str, source: str):
    assert _violations(imports_of(source, file)) == []


@pytest.mark.parametrize("name", ["pipeline", "storage", "workflows"])
def test_names_imported_on_first_use_are_listed(name):
    module = importlib.import_module(f"gramplane.{name}")
    assert dir(module) == sorted(module.__all__)


@pytest.mark.parametrize("name", ["cluster", "datasets", "pipeline", "plots", "storage", "testing"])
def test_type_checkers_see_the_names_that_are_imported_on_first_use(name):
    module = importlib.import_module(f"gramplane.{name}")
    tests = [node for node in ast.parse(Path(module.__file__).read_text()).body if isinstance(node, ast.If)]
    (seen,) = (node.body for node in tests if ast.unparse(node.test) == "TYPE_CHECKING")
    assert {alias.asname: node.module.removeprefix("gramplane.") for node in seen for alias in node.names} == module._HOMES
