"""docs/theory/corrections.md: its numbers, its counts and the tests it names."""

import ast
import re
from functools import cache

from gramplane.pipeline.registry import METHODS
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "theory" / "corrections.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([a-z-]+)` \| ([A-Z]+) \| (\d+) \|", PAGE, re.MULTILINE)
PARTS = re.findall(r"^## [^\n]*\(`([a-z-]+)`\)\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)


def entries(part: str) -> list[tuple[str, int, str]]:
    return [
        (prefix, int(number), text)
        for prefix, number, text in re.findall(r"^- \*\*([A-Z]+)-(\d+)\*\*(.*?)(?=^- |\Z)", part, re.MULTILINE | re.DOTALL)
    ]


@cache
def defined_in(file: str) -> set[str]:
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    return {one.name for one in body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")}


def test_the_table_counts_the_entries_of_every_system():
    assert [system for system, _, _ in ROWS] == [system for system, _ in PARTS]
    for (system, prefix, count), (_, part) in zip(ROWS, PARTS, strict=True):
        assert system in METHODS
        assert [(name, number) for name, number, _ in entries(part)] == [(prefix, k + 1) for k in range(int(count))], system
    assert len({prefix for _, prefix, _ in ROWS}) == len(ROWS)
    total = sum(int(count) for _, _, count in ROWS)
    assert len(re.findall(r"^- \*\*[A-Z]+-\d+\*\*", PAGE, re.MULTILINE)) == total
    assert f"the {total} that matter" in " ".join(PAGE.split())


def test_every_entry_names_a_test_that_exists():
    named: dict[str, set[str]] = {}
    for _, part in PARTS:
        (file,) = re.findall(r"Tests: `(tests/\S+\.py)`", part)
        for prefix, number, text in entries(part):
            assert "*Printed:*" in text and "*Right:*" in text, (prefix, number)
            cited = re.findall(r"`::(test_\w+)`", text)
            assert cited and set(cited) <= defined_in(file), (prefix, number, cited)
            named.setdefault(file, set()).update(cited)
    for file, cited in named.items():
        assert cited == defined_in(file), (file, defined_in(file) - cited)  # no test of a correction without its entry


def test_every_file_of_corrections_is_on_the_page():
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "pipeline").rglob("test_corrections.py")}
    assert files == set(re.findall(r"Tests: `(\S+)`", PAGE))
