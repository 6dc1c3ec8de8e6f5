"""Examples in the documentation of every public name run, and every public name is on the page of the site."""

from __future__ import annotations

import doctest
import inspect
import re
import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest

import gramplane
from tests.support.places import ROOT

PLAIN = {"METHODS", "__version__", "ConfigMismatch", *gramplane.DOORS}
"""A dictionary, a text, an exception, and modules, whose names are listed one by one."""


def public_names() -> dict[str, Any]:
    """Return every public object by its dotted name."""
    modules = {"gramplane": gramplane, **{f"gramplane.{door}": getattr(gramplane, door) for door in gramplane.DOORS}}
    return {f"{dotted}.{name}": getattr(module, name) for dotted, module in modules.items() for name in module.__all__ if name not in PLAIN}


NAMES = public_names()


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example_that_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(NAMES[name]) or ""
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert test.examples, f"{name}: no example"
    told: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test, out=told.append).failed
    assert not failed, "".join(told)


def test_the_page_of_public_names_has_all_of_them() -> None:
    module = runpy.run_path(str(ROOT / "docs" / "make_api.py"))
    listed = {f"{folder}.{name}" for _, _, folder, names in module["sections"]() for name in names}
    assert set(NAMES) <= listed, set(NAMES) - listed


def test_groups_of_parameters_name_parameters_that_exist() -> None:
    known = {word for thing in NAMES.values() if inspect.isclass(thing) for word in inspect.signature(thing).parameters}
    module = runpy.run_path(str(ROOT / "docs" / "make_api.py"))
    assert set(module["GROUP_OF"]) <= known, set(module["GROUP_OF"]) - known


def test_pages_link_public_names_only() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        if "_build" not in page.parts:
            linked = set(re.findall(r"\{(?:class|func)\}`~?(gramplane\.[\w.]+)", page.read_text(encoding="utf-8")))
            assert linked <= {*NAMES, "gramplane.ConfigMismatch"}, (page, linked - set(NAMES))
