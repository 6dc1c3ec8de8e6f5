"""Every block of code on the pages runs, or says why it is only shown."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.workflows.pages import blocks, pages, walk

PAGES = {path.relative_to(ROOT).as_posix(): path for path in pages()}
WIDTH = 79  # of code on a page: longer lines are cut off on the site
LANGUAGES = {"python", "sh", "yaml", "text", "diff"}
WALKED = [name for name, path in PAGES.items() if any(block.mark != "shown" for block in blocks(path))]


@pytest.mark.parametrize("name", [name if name == "README.md" else pytest.param(name, marks=pytest.mark.slow) for name in WALKED])
def test_blocks_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", UserWarning)
        walk(PAGES[name], tmp_path)


@pytest.mark.parametrize("name", PAGES)
def test_a_block_is_of_a_known_language_and_runs_or_says_why_not(name: str) -> None:
    text = PAGES[name].read_text(encoding="utf-8")
    found = blocks(PAGES[name])
    for block in found:
        assert block.language in LANGUAGES, block
        assert block.mark in ("", "runs", "shown"), block
        if block.mark == "shown":
            assert len(block.reason) > 10, block
        if name.startswith(("docs/guides", "docs/start", "docs/index")):
            wide = [line for line in f"{block.text}{block.output}".splitlines() if len(line) > WIDTH]
            assert not wide, wide
        if block.language == "sh":
            assert block.mark, f"{name}: <!-- runs -->, or <!-- shown: why --> before\n{block.text}"
    # Directives of the site, and blocks without a language (output as it looks), are no code.
    directives = sum(line.startswith("```{") for line in text.splitlines())
    plain = sum(line == "```" for line in text.splitlines()) - len(found) - sum(bool(block.output) for block in found) - directives
    assert plain % 2 == 0, "a fence that the blocks do not explain"
