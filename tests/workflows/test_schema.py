"""Workflow files: what is right, and what is told about what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from gramplane.workflows.checking import ConfigError
from gramplane.workflows.schema import STEPS, WorkflowSpec, check_document, meets, read_workflow
from gramplane.workflows.yaml_source import parse_yaml
from tests.support.places import ROOT

EXAMPLES = sorted((ROOT / "workflows").glob("*.yaml"))
GOOD = """schema: gramplane.workflow/1
name: fgm_select
store: s
cluster: local:4
steps:
  - {id: data,   do: ingest, with: {source: data/train.svm, format: svmlight, budget: 256MiB}}
  - {id: select, do: fit,    needs: [data], with: {method: fgm, C: 1e3, B: 50, inner_tol: 1.0e-3, max_rounds: 10}}
  - {id: report, do: report, needs: [select]}
"""


def check(text: str, **more: object):
    return check_document(parse_yaml(text, "wf.yaml", environ={}), **more)


def test_the_architecture_example_is_right():
    read = check(GOOD)
    assert [step.id for step in read.order()] == ["data", "select", "report"]
    assert read.step("select").args.params() == {"C": 1000.0, "B": 50, "inner_tol": 0.001, "max_rounds": 10}
    assert read.spec.model_steps(read.step("report")) == ["select"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_right(path: Path):
    from gramplane.workflows.commands.options import ComputeOptions
    from gramplane.workflows.runner import check_workflow, merge_compute

    read = read_workflow(path, environ={})
    assert read.spec.name
    check_workflow(read, merge_compute(read, ComputeOptions()))


def test_every_kind_of_step_has_an_example():
    used = {step.do for path in EXAMPLES for step in read_workflow(path, environ={}).spec.steps}
    assert used == set(STEPS)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("source:", "sourc:", "wf.yaml:6:37: steps[0].with.sourc: unknown key 'sourc'; did you mean 'source'?"),
        ("source: data/train.svm, ", "", "wf.yaml:6:30: steps[0].with.source: key 'source' is missing"),
        ("do: fit", "do: fiit", "wf.yaml:7:5: steps[1]: unknown 'do' 'fiit'; did you mean 'fit'?"),
        ("needs: [data]", "needs: [dat]", "wf.yaml:7:38: steps[1].needs[0]: no step 'dat'; did you mean 'data'?"),
        ("cluster:", "clutser:", "wf.yaml:4:1: clutser: unknown key 'clutser'; did you mean 'cluster'?"),
        ("needs: [data]", "nedes: [data]", "wf.yaml:7:30: steps[1].nedes: unknown key 'nedes'; did you mean 'needs'?"),
        ("id: report", "id: data", "wf.yaml:8:6: steps[2].id: id 'data' is taken by steps[0]"),
        ("needs: [select]", "needs: []", "wf.yaml:8:5: steps[2]: uses a model, but its needs list no fit or tune step"),
        ("format: svmlight", "format: svm", "wf.yaml:6:61: steps[0].with.format: must be 'auto', 'svmlight'"),
        ("name: fgm_select", "name: ../x", "wf.yaml:2:1: name: "),
        ("id: select", "id: .steps", "wf.yaml:7:6: steps[1].id: "),
        ("store: s\n", "", "wf.yaml:5:5: steps[0]: neither the step nor the workflow names a store"),
        ("workflow/1", "workflow/2", "wf.yaml:1:1: schema: schema 'gramplane.workflow/2' is not known here"),
        ("method: fgm, ", "", "wf.yaml:7:45: steps[1].with.method: key 'method' is missing"),
        ("{id: data, ", "{id: data, needs: [report], ", "wf.yaml:6:16: steps[0].needs: steps data, select, report need one another"),
        ("cluster: local:4", "cluster: factory:os:getcwd", "wf.yaml:4:1: cluster: 'factory:os:getcwd' runs code named in the file"),
        ("do: report,", "do: report, with: {models: [data]},", "uses the model of 'data'; add 'data' to needs"),
        ("cluster:", "stall_timeout: 0\ncluster:", "wf.yaml:4:1: stall_timeout: must be greater than 0"),
        (GOOD, "just a word", "wf.yaml:1:1: a workflow file is a mapping"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_line_and_nearest_name(old: str, new: str, told: str):
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        check(GOOD.replace(old, new, 1))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("accuracy: '> 0.8'", "acuracy: '> 0.8'", "wf.yaml:9:50: steps[3].with.acuracy: unknown key 'acuracy'; did you mean 'accuracy'?"),
        ("'> 0.8'", "'above 0.8'", "steps[3].with.accuracy: must be <, <=, > or >= and a number, such as '> 0.8', not 'above 0.8'"),
        ("'> 0.8'", "0.8", "must be <, <=, > or >= and a number, such as '> 0.8', not 0.8"),
        ("'> 0.8'", "'> nan'", "must be <, <=, > or >= and a number, such as '> 0.8', not '> nan'"),
        ("{accuracy: '> 0.8'}", "{}", "wf.yaml:9:43: steps[3].with: check needs the bound of a score"),
        ("[score]", "[select]", "wf.yaml:9:5: steps[3]: checks scores, so its needs must list one score step"),
    ],
)  # fmt: skip
def test_bounds_and_names_of_scores_are_checked_with_the_file(old: str, new: str, told: str):
    text = GOOD.replace("  - {id: report, do: report, needs: [select]}\n", "")
    text += "  - {id: score, do: score, needs: [select], with: {store: t}}\n"
    text += "  - {id: good, do: check, needs: [score], with: {accuracy: '> 0.8'}}\n"
    check(text)
    with pytest.raises(ConfigError) as caught:
        check(text.replace(old, new, 1))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("bound", "is_met"),
    [("> 0.5", False), (">=0.5", True), ("< 0.5", False), ("<= 5e-1", True), ("> .4", True), ("> -1", True), ("< +1.", True)],
)
def test_a_score_meets_a_bound(bound: str, is_met: bool):
    assert meets(0.5, bound) is is_met
    assert not meets(None, bound) and not meets(float("nan"), bound)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("C: 1e3", "Cc: 1", "wf.yaml:7:65: steps[1].with.Cc: unknown key 'Cc'; did you mean 'C'?"),
        ("C: 1e3", "C: -1", "wf.yaml:7:65: steps[1].with.C: must be greater than 0 or 'auto', not -1"),
        ("method: fgm", "method: fmg", "wf.yaml:7:52: steps[1].with.method: unknown method 'fmg'; did you mean 'fgm'?"),
        ("256MiB", "3 parsecs", "wf.yaml:6:79: steps[0].with.budget: '3 parsecs' is not a number of bytes"),
        ("cluster:", "driver_memory: lots\ncluster:", "wf.yaml:4:1: driver_memory: 'lots' is not a number of bytes"),
    ],
)
def test_methods_and_sizes_are_checked_before_the_first_step(old: str, new: str, told: str):
    from gramplane.workflows.commands.options import ComputeOptions
    from gramplane.workflows.runner import run_workflow

    read = check(GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        run_workflow(read, check=True, where=ComputeOptions())
    assert told in str(caught.value)


def test_code_by_name_needs_a_word_from_outside():
    text = GOOD.replace("local:4", "factory:a.b:c")
    assert check(text, allow_code=True).cluster() == "factory:a.b:c"


def test_paths_start_at_the_files_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "wf.yaml").write_text(GOOD.replace("local:4", "scheduler-file:s.json"))
    monkeypatch.chdir(tmp_path)
    read = read_workflow("sub/wf.yaml")
    assert read.path("a/b") == str(tmp_path / "sub" / "a" / "b")
    assert (read.path("/a/b"), read.path("s3://bucket/a")) == ("/a/b", "s3://bucket/a")
    assert read.cluster() == f"scheduler-file:{tmp_path}/sub/s.json"


def test_steps_follow_their_needs_and_else_the_file():
    text = """schema: gramplane.workflow/1
name: x
store: s
steps:
  - {id: c, do: verify, needs: [a, b]}
  - {id: b, do: verify}
  - {id: a, do: verify}
"""
    assert [step.id for step in check(text).order()] == ["b", "a", "c"]


def test_the_schema_is_published():
    found = WorkflowSpec.model_json_schema()
    assert set(found["properties"]) >= {"schema", "name", "store", "runs", "cluster", "steps"}
    assert {"IngestArgs", "FitArgs", "TuneArgs", "PredictArgs", "ScoreArgs", "ReportArgs", "VerifyArgs"} <= set(found["$defs"])


def test_command_line_and_file_take_the_same_ingest_options():
    from gramplane.workflows.cli import cli
    from gramplane.workflows.schema import IngestArgs

    options = {option.name for option in cli.commands["ingest"].params} - {"as_json", "quiet", "debug", "dry_run"}
    assert options == set(IngestArgs.model_fields)


def test_defaults_of_the_command_line_are_those_of_the_file():
    from click import Option

    from gramplane.workflows.cli import cli
    from gramplane.workflows.schema import IngestArgs

    given = {option.name: not option.is_flag and option.default for option in cli.commands["ingest"].params if isinstance(option, Option)}
    for name, field in IngestArgs.model_fields.items():
        if name not in ("source", "store") and field.default is not None:
            assert given[name] == field.default, name
