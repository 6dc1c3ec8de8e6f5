"""Which mutants a run plants, and which tests look at each first."""

from __future__ import annotations

import ast
import math
import random
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from tests.mutation.mutants import Mutant, mutants_of

STRATA = {"kernels": 0.4, "pipeline": 0.4, "storage": 0.2}
"""Shares of the top folders."""
KINDS = {
    0.25: ("constant",),
    0.26: ("arithmetic", "sign", "update"),
    0.30: ("compare", "boolean", "condition", "negation"),
    0.19: ("removed call", "removed assignment", "swapped call", "jump"),
}
"""Shares of the kinds of faults inside a folder: constants are most of what could be made, and a block size doubled tells little."""


def chosen_mutants(root: Path, count: int, seed: int) -> list[Mutant]:
    """Draw ``count`` mutants by folder and kind, without return."""
    drawn: list[Mutant] = []
    for folder, part in STRATA.items():
        every = [m for path in sorted((root / folder).rglob("*.py")) for m in mutants_of(str(path.relative_to(root)), path.read_text())]
        for share, kinds in KINDS.items():
            alike = [mutant for mutant in every if mutant.kind in kinds]
            drawn += random.Random(f"{seed}:{folder}:{kinds[0]}").sample(alike, round(share * part * count))
    random.Random(seed).shuffle(drawn)
    return drawn


class ImportGraph:
    """Who imports whom among product files and tests, dotted strings that name a module of ours included (registries are strings)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        product = [path for folder in ("cluster", "kernels", "pipeline", "storage", "workflows") for path in (root / folder).rglob("*.py")]
        self._files = {_dotted(path.relative_to(root)): path for path in product}
        systems = (folder for folder in (root / "pipeline" / "methods").iterdir() if folder.is_dir())
        self._systems = {folder.name: sorted(folder.glob("*.py")) for folder in systems}
        self.tests = sorted((root / "tests").rglob("test_*.py"))
        self._importers: dict[Path, set[Path]] = {}
        for path in [*product, *(root / "tests").rglob("*.py")]:
            for named in self._imports(path):
                self._importers.setdefault(named, set()).add(path)

    def _imports(self, path: Path) -> Iterable[Path]:
        package = list(path.relative_to(self.root).parts[:-1])
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names):
                    words = [alias.name for alias in names]
                case ast.ImportFrom(module=module, level=level, names=names):
                    base = [*package[: len(package) - level + 1], *([module] if module else [])] if level else [module or ""]
                    words = [".".join(base), *(".".join([*base, alias.name]) for alias in names)]
                case ast.Constant(value=str() as value) if ":" in value or "." in value:
                    words = [value.partition(":")[0], ".".join([*package, value.partition(":")[0].lstrip(".")])]
                case ast.Constant(value=str() as value) if value in self._systems and path.stem == "registry":
                    yield from self._systems[value]  # the registry names the folders of systems
                    continue
                case _:
                    continue
            yield from (found for word in words if (found := self._named(word)) is not None and found != path)

    def _named(self, word: str) -> Path | None:
        word = word.removeprefix("gramplane.")
        if word.startswith("tests."):
            path = self.root / (word.replace(".", "/") + ".py")
            return path if path.exists() else None
        return self._files.get(word)

    def users(self, path: Path) -> dict[Path, int]:
        """Return every file that imports ``path``, however indirectly, with its distance."""
        distance, todo = {path: 0}, deque([path])
        while todo:
            here = todo.popleft()
            for other in sorted(self._importers.get(here, ())):
                if other not in distance:
                    distance[other] = distance[here] + 1
                    todo.append(other)
        return distance

    def tests_of(self, file: str, most: float = math.inf) -> list[Path]:
        """Return the test files that reach a product file, nearest first, then by name and size: over at most ``most`` imports, or all
        files where none reaches it.
        """
        distance = self.users(self.root / file)
        words = _words(Path(file))
        reached = [test for test in self.tests if distance.get(test, most + 1) <= most] or (self.tests if most == math.inf else [])

        def order(test: Path) -> tuple[int, int, int]:
            return distance.get(test, 0), -len(words & _words(test.relative_to(self.root))), test.stat().st_size

        return sorted(reached, key=order)


def _words(path: Path) -> set[str]:
    """Return the words of a path but for its top folder."""
    return {word for part in path.with_suffix("").parts[1:] for word in part.split("_")}


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_compiled(graph: ImportGraph, file: str) -> bool:
    """Tell whether a file holds compiled code, or is used by a file that does (callers are cached with what they call)."""
    users = [path for path in graph.users(graph.root / file) if path.parts[len(graph.root.parts)] in ("kernels", "storage")]
    return any("@compiled" in path.read_text() or "compiled(" in path.read_text() for path in users)
