"""Pages that must follow the code: the command line, the exit codes, the README's commands, the examples."""

from __future__ import annotations

import inspect
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

import gramplane
from gramplane.cluster.config import Limits
from gramplane.workflows.cli import cli
from gramplane.workflows.exits import Exit
from tests.support.places import ROOT
from tests.workflows.pages import blocks, pages

PAGES = pages()


def test_every_exit_code_has_advice():
    page = (ROOT / "docs" / "guides" / "failures.md").read_text(encoding="utf-8")
    told = {int(code) for row in re.findall(r"^\| ([0-9, ]+) \|", page, re.MULTILINE) for code in row.split(",")}
    assert told == {int(code) for code in Exit} - {0} | {137}  # 137: killed by the system, not a code of ours


def test_every_environment_variable_is_on_its_page():
    sources = [path for folder in ("cluster", "pipeline", "storage", "workflows") for path in (ROOT / folder).rglob("*.py")]
    read = {name for path in sources for name in re.findall(r'"(GRAMPLANE_[A-Z_]+[A-Z])"', path.read_text(encoding="utf-8"))}
    read |= {f"GRAMPLANE_{limit.name.upper()}" for limit in fields(Limits)}
    page = (ROOT / "docs" / "guides" / "environment.md").read_text(encoding="utf-8")
    assert set(re.findall(r"GRAMPLANE_[A-Z_]+", page)) == read


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_in_the_pages_are_commands(path: Path):
    """Every ``gramplane …`` line of a shell block is parsed by the command line itself, without being run."""
    import click

    lines = [line.strip() for block in blocks(path) if block.language == "sh" for line in block.text.replace("\\\n", "").splitlines()]
    for line in [line for line in lines if re.match(r"(\S*/)?gramplane ", line.partition("#")[0])]:
        words = shlex.split(re.split(r" (?:#|\||\d?>)", line)[0])[1:]
        context = click.Context(cli)
        name, command, rest = cli.resolve_command(context, words)
        while isinstance(command, click.Group):
            name, command, rest = command.resolve_command(context, rest)
        command.make_context(name, rest, resilient_parsing=False)


@pytest.mark.parametrize("path", [path for path in PAGES if path.parent == ROOT], ids=lambda path: path.name)
def test_links_of_pages_outside_of_the_site_lead_somewhere(path: Path):
    for target in re.findall(r"\]\(([^)#][^)]*)\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target.partition("#")[0]).exists(), target


def test_the_gate_runs_the_readme_test_command():
    (command,) = re.findall(r"-m (pytest -n \S+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert f"-m {command}" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_name_no_folder_of_ours(path: Path):
    assert not re.search(r"/work/|\.library|\.\./shared", path.read_text(encoding="utf-8"))


def test_sources_cite_what_users_have():
    """The paper, or a page of the theory, and a section of it that exists."""
    for path in [path for folder in ("cluster", "kernels", "pipeline", "storage", "workflows") for path in (ROOT / folder).rglob("*.py")]:
        text = " ".join(path.read_text(encoding="utf-8").split())
        assert not re.search(r"specification section|implementation notes|spec section|ingest prototype", text, re.IGNORECASE), path
        for page, cited in re.findall(r'docs/([\w/-]+\.md)(?:, ((?:"[^"]+"(?: and )?)+))?', text):
            assert (ROOT / "docs" / page).exists(), (path, page)
            headings = set(re.findall(r"^#+ (.*)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE))
            assert set(re.findall(r'"([^"]+)"', cited)) <= headings, (path, cited)


def test_every_public_name_and_method_says_what_it_does():
    """Functions inside the product need no docstring where name and types say everything; what users call has one."""
    public = [getattr(gramplane, name) for name in gramplane.__all__]
    ours = [item for item in public if inspect.isclass(item) or inspect.isfunction(item)]
    methods = [
        member
        for item in ours
        if inspect.isclass(item)
        for name, member in inspect.getmembers(item)
        if not name.startswith("_") and (member.__module__ if inspect.isfunction(member) else "").startswith("gramplane")
    ]
    assert len(ours) > 40 and len(methods) > 40
    assert [item.__qualname__ for item in [*ours, *methods] if not inspect.getdoc(item)] == []
