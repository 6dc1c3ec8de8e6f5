"""Pages of theory: one for every system, all with the same sections in the same order."""

from __future__ import annotations

import re

import pytest

from gramplane.pipeline.registry import METHODS
from tests.support.places import ROOT

SECTIONS = ["Intuition", "Problem", "Dual", "Algorithm", "Certificate", "Complexity", "Numerics", "Corrections", "References"]
SYSTEMS = sorted({info.system for info in METHODS.values()})


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_page_has_the_sections_of_all_pages(system: str):
    """None of them empty; what the source prints wrong is a link to the part of every command of the system that has one."""
    text = (ROOT / "docs" / "theory" / f"{system}.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)[1:]
    assert parts[::2] == SECTIONS
    bodies = dict(zip(parts[::2], parts[1::2], strict=True))
    assert all(len(body.split()) >= 8 for body in bodies.values()), [name for name, body in bodies.items() if len(body.split()) < 8]
    corrected = re.findall(r"^## .*\(`([a-z-]+)`\)$", (ROOT / "docs/theory/corrections.md").read_text(encoding="utf-8"), re.MULTILINE)
    for name in [info.name for info in METHODS.values() if info.system == system and info.name in corrected]:
        assert re.search(rf"\(corrections\.md#[a-z-]*-{name}\)", bodies["Corrections"]), name
    assert re.search(r"\[\[\d+\]\]\(references\.md#ref-\d+\)", bodies["References"])
