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

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted((ROOT / "docs").glob("*.md"))


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def test_the_command_page_is_what_the_commands_say():
    page = runpy.run_path(str(ROOT / "docs" / "make_cli.py"))["page"]()
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == page, "run: python docs/make_cli.py"


def test_the_page_of_memory_is_what_the_methods_declare():
    page = runpy.run_path(str(ROOT / "docs" / "make_memory.py"))["page"]()
    assert (ROOT / "docs" / "memory.md").read_text(encoding="utf-8") == page, "run: python docs/make_memory.py"


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
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    told = {int(code) for row in re.findall(r"^\| ([0-9, ]+) \|", page, re.MULTILINE) for code in row.split(",")}
    assert told == {int(code) for code in Exit} - {0}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_in_the_pages_are_commands(path: Path):
    """Every ``gramplane …`` line of a shell block is parsed by the command line itself, without being run."""
    import click

    lines = [line.strip() for block in blocks(path, "sh") for line in block.splitlines()]
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


EXAMPLES = [*blocks(ROOT / "README.md", "python"), *blocks(ROOT / "docs" / "tables.md", "python")]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.split("import ")[-1].split()[0])
def test_python_examples_of_the_pages_run(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "example.py").write_text(example)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("example.py")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_name_no_folder_of_ours(path: Path):
    assert not re.search(r"/work/|\.library|\.\./shared", path.read_text(encoding="utf-8"))


def test_sources_cite_what_users_have():
    """The paper, or a section of docs/methods.md that exists."""
    headings = set(re.findall(r"^#+ (.*)$", (ROOT / "docs" / "methods.md").read_text(encoding="utf-8"), re.MULTILINE))
    for path in [path for folder in ("cluster", "kernels", "pipeline", "storage", "workflows") for path in (ROOT / folder).rglob("*.py")]:
        text = " ".join(path.read_text(encoding="utf-8").split())
        assert not re.search(r"specification section|implementation notes|spec section|ingest prototype", text, re.IGNORECASE), path
        cited = re.findall(r'docs/methods\.md, ((?:"[^"]+"(?: and )?)+)', text)
        names = [name for found in cited for name in re.findall(r'"([^"]+)"', found)]
        assert set(names) <= headings, (path, set(names) - headings)
