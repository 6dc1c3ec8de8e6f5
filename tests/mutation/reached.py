"""Which functions each test calls: a plugin of pytest (``-p tests.mutation.reached``) that writes it down, and the table it adds up to.

coverage.py watches all threads of the process; compiled functions and other processes stay unseen.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("cluster", "kernels", "pipeline", "storage", "workflows")
DEPTH = 8
"""Callers of callers that are looked at where a function was not seen."""

FOLDER = "GRAMPLANE_REACHED"
"""Environment variable with the folder that every process of pytest writes its part to."""


_coverage = coverage.Coverage(data_file=None, source=[str(ROOT / folder) for folder in PRODUCT], config_file=False)
_seconds, _failing = dict[str, float](), set[str]()


def pytest_configure() -> None:
    """Watch this process from its first test on."""
    if FOLDER in os.environ:
        _coverage.start()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Watch a test with its fixtures."""
    began = time.monotonic()
    _coverage.switch_context(item.nodeid)
    yield
    _coverage.switch_context("")
    _seconds[item.nodeid] = round(time.monotonic() - began, 3)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember who fails without any fault."""
    if report.failed:
        _failing.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write this process' part."""
    if not _seconds or FOLDER not in os.environ:
        return
    _coverage.stop()
    called, seen = {test: set[str]() for test in _seconds}, _coverage.get_data()
    for file in seen.measured_files():
        path = Path(file).relative_to(ROOT)
        around = _functions_by_line(Path(file).read_text())
        for line, contexts in seen.contexts_by_lineno(file).items():
            for test in called.keys() & contexts if line in around else ():
                called[test].add(f"{path}:{around[line]}")
    lines = [{"test": test, "seconds": took, "failed": test in _failing, "called": sorted(called[test])} for test, took in _seconds.items()]
    (Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _functions_by_line(text: str) -> dict[int, int]:
    """Return the first line of the innermost function around each line of a body; what stands above a body runs where it is defined."""
    found = dict[int, int]()
    for node in ast.walk(ast.parse(text)):  # by depth: inner functions come last
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found |= dict.fromkeys(range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1), first)
    return found


def _words(sources: dict[str, str]) -> dict[tuple[str, str], set[str]]:
    """Return the words of every function of some files."""
    return {
        (file, name): set(re.findall(r"\w+", "\n".join(text.split("\n")[first - 1 : last])))
        for file, text in sources.items()
        for name, first, last in functions(text)
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _imported(file: str, text: str) -> set[tuple[str, str]]:
    """Return what a file of the product imports (its imports are relative): a name of another file, or all of it, ``"*"``."""
    found, folder = set[tuple[str, str]](), file.split("/")[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            module = [*folder[: len(folder) - node.level + 1], *filter(None, (node.module or "").split("."))]
            for alias in node.names:
                found |= {("/".join(module) + ".py", alias.name), ("/".join([*module, alias.name]) + ".py", "*")}
    return found


class Reached:
    """The tests that call a function, as one run of the suite saw it; functions are found by name in the sources as they are now.

    ``failing`` holds those that fail without any fault, in a copy that belongs to one user, say: they tell nothing.

    Parameters
    ----------
    path
        The table, as `written` left it; none is an empty one.
    root
        The checkout whose sources are looked at.
    """

    def __init__(self, path: Path, root: Path) -> None:
        table = json.loads(path.read_text()) if path.exists() else {"seconds": {}, "tests": {}, "failing": []}
        self._seconds: dict[str, float] = table["seconds"]
        self._tests: dict[str, list[str]] = table["tests"]
        self.failing: list[str] = table["failing"]
        files = [path for folder in PRODUCT for path in sorted((root / folder).rglob("*.py"))] if self._tests else []
        self._sources = {str(path.relative_to(root)): path.read_text() for path in files}
        self._words = _words(self._sources)
        self._imports = {file: _imported(file, text) for file, text in self._sources.items()}
        test_files = {test.partition("::")[0] for test in self._seconds}
        self._test_words = _words({file: (root / file).read_text() for file in test_files if (root / file).exists()})
        seen = table.get("files", {})
        self._changed = {file for file in test_files if (root / file).exists() and file in seen and seen[file] != _digest(root / file)}

    def tests_of(self, file: str, line: int) -> list[str]:
        """Return the tests that call the innermost function around a line, shortest first.

        Where none was seen to, because the function is compiled or the line is a constant of a module, those of the functions that name it,
        and of those that name them, as far as it takes. Any other statement of a module starts a program, which is named by its file.
        Tests that name the function and its file come first: they may call it in a process of their own, which is not seen. Files
        of tests that have changed since are run whole.
        """
        place = enclosing(self._sources.get(file, ""), line)
        names = {place.rpartition(".")[2]} if place else assigned(self._sources.get(file, ""), line) or {Path(file).stem}
        found = set(self._tests.get(f"{file}:{place}", ())) if place else set[str]()
        named = {(file, name) for name in names}
        for _ in range(DEPTH):
            if found or not named:
                break
            callers = {key for key in self._words if key != (file, place) and any(self._names(key, *one) for one in named)}
            found = {test for where, name in callers for test in self._tests.get(f"{where}:{name}", ())}
            named = {(where, name.rpartition(".")[2]) for where, name in callers}
        naming = self._naming(place.rpartition(".")[2], Path(file).stem) if place else set[str]()
        files = {test.partition("::")[0] for test in found}
        others = [test for test in found | naming if test.partition("::")[0] not in self._changed]
        others.sort(key=lambda test: (test not in naming, self._seconds[test], test))
        return [*sorted(self._changed & files), *others, *sorted(self._changed - files)] if found | naming else []

    def _names(self, caller: tuple[str, str], file: str, name: str) -> bool:
        """Return whether a function names another; what has the same name and is not imported is something else."""
        known = name == Path(file).stem or caller[0] == file or not self._imports[caller[0]].isdisjoint({(file, name), (file, "*")})
        return known and name in self._words[caller]

    def _naming(self, *names: str) -> set[str]:
        """Return the tests in whose text all names stand."""
        functions_of_tests = {f"{file}::{name}" for (file, name), words in self._test_words.items() if words.issuperset(names)}
        return {test for test in self._seconds if test.partition("[")[0] in functions_of_tests}

    @staticmethod
    def written(parts: Path, root: Path, path: Path) -> None:
        """Add the parts of a run up to the table of ``path``."""
        names: dict[str, dict[int, str]] = {}
        seconds, tests, failing = dict[str, float](), dict[str, list[str]](), list[str]()
        for line in (json.loads(row) for part in sorted(parts.glob("*.jsonl")) for row in part.read_text().splitlines()):
            seconds[line["test"]] = line["seconds"]
            if line["failed"]:
                failing.append(line["test"])
                continue
            for called in line["called"]:
                file, _, first = called.rpartition(":")
                if file not in names:
                    names[file] = {start: name for name, start, _ in functions((root / file).read_text())}
                if int(first) in names[file]:
                    tests.setdefault(f"{file}:{names[file][int(first)]}", []).append(line["test"])
        digests = {file: _digest(root / file) for file in {test.partition("::")[0] for test in seconds} if (root / file).exists()}
        path.write_text(json.dumps({"seconds": seconds, "tests": tests, "failing": failing, "files": digests}))


def functions(text: str) -> list[tuple[str, int, int]]:
    """Return (qualified name, first line with decorators, last line) of every function of a source."""
    found: list[tuple[str, int, int]] = []

    def walk(node: ast.AST, above: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = above
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{above}.{child.name}".lstrip(".")
                if not isinstance(child, ast.ClassDef):
                    first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                    found.append((name, first, child.end_lineno or child.lineno))
            walk(child, name)

    walk(ast.parse(text), "")
    return found


def enclosing(text: str, line: int) -> str:
    """Return the name of the innermost function around a line, ``""`` outside of all."""
    around = [(last - first, name) for name, first, last in functions(text) if first <= line <= last]
    return min(around)[1] if around else ""


def assigned(text: str, line: int) -> set[str]:
    """Return the names that a statement of a module assigns on a line."""
    found = set[str]()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.lineno <= line <= (node.end_lineno or node.lineno):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found
