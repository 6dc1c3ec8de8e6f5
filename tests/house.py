"""The state of the house: what is measured of it, and what each figure may be at most.

    python -m tests.house

Files are read, and one fit is walked in a process of its own. ``tests/repository/test_house.py`` keeps the limits.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("cluster", "kernels", "pipeline", "storage", "workflows")


class Figure(NamedTuple):
    """One measured figure.

    Attributes
    ----------
    what
        What is measured.
    value, goal
        What it is, and the most that it may be (``None``: it is only printed).
    detail
        Where to look.
    limit
        What the gate refuses to exceed, where that is not the goal: a goal that is missed is not to be missed by more.
    """

    what: str
    value: float
    goal: float | None
    detail: str = ""
    limit: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the goal is met."""
        return self.goal is None or self.value <= self.goal

    @property
    def is_kept(self) -> bool:
        """Whether the gate lets it pass."""
        return self.is_met or (self.limit is not None and self.value <= self.limit)


# -- source ----------------------------------------------------------------------------------------------------------------


def product_files(root: Path = ROOT) -> list[Path]:
    """Return every product file, sorted."""
    return sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the parsed file."""
    return ast.parse(path.read_text())


def module_of(path: Path, root: Path = ROOT) -> str:
    """Return ``kernels.scores`` for ``kernels/scores.py``; a package is named by its folder."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, known: set[str], root: Path = ROOT) -> Iterator[str]:
    """Yield the product modules that a file imports, inside functions and ``TYPE_CHECKING`` blocks too."""
    package = list(path.relative_to(root).parts[:-1])
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *([node.module] if node.module else [])]
            inner = {".".join([*base, alias.name]) for alias in node.names} & known
            yield from inner
            if len(inner) < len(node.names) and ".".join(base) in known:
                yield ".".join(base)


def import_graph(root: Path = ROOT) -> dict[str, set[str]]:
    """Return module -> modules it imports."""
    paths = {module_of(path, root): path for path in product_files(root)}
    return {name: set(imported_modules(path, set(paths), root)) - {name} for name, path in paths.items()}


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method of a file."""
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


# -- what is measured ------------------------------------------------------------------------------------------------------


def fullest_folder(files: Iterable[Path]) -> tuple[int, str]:
    """Return the greatest number of files side by side, and the folder."""
    folder, count = Counter(path.parent for path in files).most_common(1)[0]
    return count, folder.relative_to(ROOT).as_posix()


def import_circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other (strongly connected components of two and more)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in sorted(graph):
        _visit(start, graph, seen, order)
    reverse: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            reverse[target].add(name)
    seen, circles = set(), []
    for start in reversed(order):
        group: list[str] = []
        _visit(start, reverse, seen, group)
        if len(group) > 1:
            circles.append(sorted(group))
    return circles


def _visit(start: str, graph: dict[str, set[str]], seen: set[str], order: list[str]) -> None:
    if start in seen:
        return
    stack = [(start, iter(sorted(graph[start])))]
    seen.add(start)
    while stack:
        _, targets = stack[-1]
        following = next((target for target in targets if target not in seen), None)
        if following is None:
            order.append(stack.pop()[0])
        else:
            seen.add(following)
            stack.append((following, iter(sorted(graph[following]))))


def system_of(module: str) -> str:
    """Return the system that a module belongs to, or an empty word."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["pipeline", "methods"] and len(parts) > 3 else ""


def crossing_imports(graph: dict[str, set[str]]) -> list[str]:
    """Return the imports from one system into another."""
    return [
        f"{name} -> {target}"
        for name, targets in graph.items()
        for target in targets
        if system_of(name) and system_of(target) and system_of(name) != system_of(target)
    ]


def annotations_of_any(path: Path) -> int:
    """Count the annotations of a file that begin with ``Any``."""
    return len(re.findall(r"(?::|->) Any\b", path.read_text()))


def code_lines(path: Path) -> int:
    """Count the lines of a file that hold code: neither docstring, nor comment, nor blank."""
    docs = {
        line
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    lines = path.read_text().splitlines()
    return sum(1 for k, line in enumerate(lines, 1) if k not in docs and line.strip() and not line.lstrip().startswith("#"))


def figures() -> list[Figure]:
    """Return every figure with its goal."""
    files = product_files()
    graph = import_graph()
    circles, crossing = import_circles(graph), crossing_imports(graph)
    product, where_product = fullest_folder(files)
    tests, where_tests = fullest_folder(sorted((ROOT / "tests").rglob("*.py")))
    return [
        Figure("product files side by side in one folder", product, 20, where_product),
        Figure("test files side by side in one folder", tests, 30, where_tests),
        Figure("circles of imports", len(circles), 0, "; ".join(" <-> ".join(group) for group in circles)),
        Figure("imports from one system into another", len(crossing), 0, "; ".join(crossing)),
        Figure("annotations that say Any", sum(map(annotations_of_any, files)), 350, limit=425),
        Figure("lines of code", sum(map(code_lines, files)), 50_000, limit=67_500),
    ]


def main() -> int:
    """Print the table."""
    measured = figures()
    for figure in measured:
        goal = "" if figure.goal is None else f"{'ok' if figure.is_met else 'ABOVE'} {figure.goal:g}"
        sys.stdout.write(f"{figure.what:<52}{figure.value:>10g}  {goal:<12}{figure.detail[:90]}\n")
    return 0 if all(figure.is_kept for figure in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
