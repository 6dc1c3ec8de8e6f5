"""Pages that must follow the code: the command line, the exit codes, the README's commands, the examples."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from gramplane.workflows.cli import cli
from gramplane.workflows.exits import Exit
from tests.support.places import ROOT
from tests.workflows.pages import blocks, pages

PAGES = pages()


def test_the_command_page_is_what_the_commands_say():
    page = runpy.run_path(str(ROOT / "docs" / "make_cli.py"))["page"]()
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == page, "run: python docs/make_cli.py"


@pytest.mark.parametrize("name", ["make_which_method.py", "make_memory.py"])
def test_a_written_page_is_what_its_program_writes(name: str):
    module = runpy.run_path(str(ROOT / "docs" / name))
    assert module["PAGE"].read_text(encoding="utf-8") == module["page"](), f"run: python docs/{name}"


def test_pages_of_the_reference_are_what_the_code_says():
    for path, text in runpy.run_path(str(ROOT / "docs" / "make_reference.py"))["pages"]().items():
        assert path.read_text(encoding="utf-8") == text, "run: python docs/make_reference.py"


def test_every_command_and_option_is_documented():
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name, command in cli.commands.items():
        assert f"## gramplane {name}" in page
        for option in getattr(command, "commands", {}).values() or [command]:
            for param in option.params:
                assert param.opts[0] in page or param.opts[0].upper() in page


def test_a_command_has_the_options_that_its_section_points_to():
    module = runpy.run_path(str(ROOT / "docs" / "make_cli.py"))
    groups = {"cluster options": set(module["CLUSTER"]), "common options": set(module["COMMON"])}
    sections = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").split("\n## gramplane ")
    text = {section.partition("\n")[0]: section for section in sections}
    for words, command in module["leaves"](cli):
        names = {param.name for param in command.params}
        for link, group in groups.items():
            assert (f"[{link}]" in text[" ".join(words)]) == (group <= names), (words, link)
    assert "`--driver-memory SIZE`" in text["cluster"] and "[cluster options]" not in text["cluster"]


def test_every_exit_code_has_advice():
    page = (ROOT / "docs" / "guides" / "failures.md").read_text(encoding="utf-8")
    told = {int(code) for row in re.findall(r"^\| ([0-9, ]+) \|", page, re.MULTILINE) for code in row.split(",")}
    assert told == {int(code) for code in Exit} - {0}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_in_the_pages_are_commands(path: Path):
    """Every ``gramplane …`` line of a shell block is parsed by the command line itself, without being run."""
    import click

    lines = [line.strip() for block in blocks(path) if block.language == "sh" for line in block.text.splitlines()]
    for line in [line for line in lines if re.match(r"(\S*/)?gramplane ", line.partition("#")[0])]:
        words = shlex.split(line.partition(" #")[0])[1:]
        context = click.Context(cli)
        name, command, rest = cli.resolve_command(context, words)
        while isinstance(command, click.Group):
            name, command, rest = command.resolve_command(context, rest)
        command.make_context(name, rest, resilient_parsing=False)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path):
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
