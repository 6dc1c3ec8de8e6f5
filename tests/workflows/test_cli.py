"""The command line: what every command promises, whatever it does: speed, streams, exit codes, the JSON line."""

from __future__ import annotations

import errno
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pytest

from gramplane.pipeline import METHODS
from gramplane.storage.errors import space_for
from gramplane.workflows import console, exits
from gramplane.workflows.cli import cli, main
from gramplane.workflows.exits import EXIT_CODES, MEANING, Exit, exit_code
from gramplane.workflows.schema import ResultLine
from gramplane.workflows.signals import Interrupted

HEAVY = ("dask", "distributed", "zarr", "numba", "sklearn", "scipy", "numpy", "matplotlib", "pandas", "pydantic", "rich")


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name in group.list_commands(context := click.Context(group)):
        command = group.get_command(context, name)
        found += commands(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]
    return found


def last_line(out: str) -> dict:
    line = out.rstrip("\n").rpartition("\n")[2]
    assert len(line.encode()) <= 4096
    return ResultLine.model_validate(json.loads(line)).model_dump()


# -- start-up --------------------------------------------------------------------------------------------------------


def test_importing_the_command_line_loads_nothing_heavy():
    code = f"import sys, gramplane.workflows.cli; print(*(name for name in {HEAVY} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == ""


def test_help_of_methods_shows_their_parameters_without_numpy():
    """What help, completion and schemas tell of them is told at once."""
    heavy = tuple(name for name in HEAVY if name != "pydantic")
    code = "import sys; from gramplane import METHODS; from gramplane.workflows.cli import main; "
    code += "[main([word, name, '--help']) for word in ('fit', 'tune') for name in METHODS]; "
    code += f"print(*(name for name in {heavy} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.rstrip(" \n").endswith(("exit.", "help running`"))
    helps = ran.stdout.split("Usage: gramplane fit ")[1:]
    for info, text in zip(METHODS.values(), helps, strict=True):
        for name in info.config.model_fields:
            assert f"--{name.replace('_', '-')} " in text, (info.name, name)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["help", "exit-codes"], ["config", "schema", "--help"]], ids=" ".join)
def test_help_is_quick(words: list[str]):
    """Nothing is loaded that help does not need; seconds are measured by ``benchmarks.first_run``."""
    code = (
        f"import sys; from gramplane.workflows.cli import main; main({words!r}); print(*(name for name in {HEAVY} if name in sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "gramplane" in ran.stdout and ran.stdout.endswith("\n\n") and ran.stderr == ""


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_has_help_json_quiet_and_debug(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    assert main([*path, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--json" in text and "--quiet" in text and "--debug" in text
    assert text.split("\n\n")[1].strip(), "a command says what it does"


def test_commands_are_those_of_the_architecture():
    working = {"demo", "ingest", "fit", "tune", "resume", "predict", "cluster", "score", "stability", "run", "verify"}
    looking = {"report", "status", "history", "inspect", "config"}
    assert {path[0] for path in commands()} == working | looking | {"gram", "repair", "clean", "warmup", "completion", "help"}


def test_help_lists_commands_by_what_they_are_for_and_folds_what_they_share(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    places = [text.index(f"\n{title}:\n") for title in ("Examples", "Data", "Model", "Use", "Runs", "Setup", "Options")]
    assert places == sorted(places)
    assert main(["fit", "fgm", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--stall-timeout" not in text and "gramplane help running" in text
    assert main(["help", "running"]) == 0
    text = capsys.readouterr().out
    assert "--stall-timeout" in text and "GRAMPLANE_TLS_KEY" in text
    assert main(["help", "exit-codes"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {int(code)} " in text for code in Exit)


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ftt"], "Did you mean 'fit'?"),
        (["fit", "fgm", "--dta", "x"], "'--data'"),
        (["tune", "fgm", "--test-share", "0.3"], "tune fgm has no option --test-share: it belongs to fit"),
        (["fit", "fgm", "--run", "r"], "give --data STORE"),
        (["status", "/nowhere"], "run /nowhere does not exist"),
        (["fit", "fgm", "--gram-store", "g"], "fgm has no option --gram-store: it belongs to mkl"),
        (["fit", "--data", "x", "fgm"], "--data stands before the method"),
        (["fit", "fgm", "--data", ".", "--run", "r", "--inner-tol", "small"], "--inner-tol: must be a number"),
        (["fit", "fgm", "--data", ".", "--run", "r", "--solver", "nwton"], "--solver: must be 'auto', 'newton'"),
        (["fit", "fgm", "--data", ".", "--run", "r", "--C", "3", "--set", "C=3"], "--C is also given by --set C"),
        (["config", "show", "fmg"], "unknown method 'fmg'; did you mean 'fgm'?"),
        (["fit", "fmg", "--data", "nowhere", "--run", "r"], "unknown method 'fmg'; did you mean 'fgm'?"),
        (["tune", "fmg", "--data", "nowhere", "--run", "r"], "unknown method 'fmg'; did you mean 'fgm'?"),
        (["config", "show", "fgm", "--set", "max_round=3"], "--set max_round: unknown key 'max_round'; did you mean 'max_rounds'?"),
        (["config", "show", "fgm", "--set", "C=big"], "--set C: must be a number"),
        (["config", "show", "fgm", "--set", "C"], "--set C has no value; write KEY=VALUE"),
        (["config", "show", "fgm", "--set", "C=1", "--set", "C=2"], "C is given twice"),
        (["config", "show", "fgm", "--set", "C=[1"], "--set C"),
        (["config", "schema", "nope"], "unknown schema 'nope'"),
        (["run", "/nowhere.yaml"], "workflow file /nowhere.yaml does not exist"),
        (["report", "a", "b"], "run a does not exist"),
        (["fit", "fgm", "--data", "/nowhere", "--run", "r"], "store /nowhere does not exist"),
        (["ingest", "/nowhere.svm", "s"], "source /nowhere.svm does not exist"),
        (["tune", "fgm", "--data", ".", "--run", "r", "--grid", "C=1,two"], "--grid C: must be a number"),
        (["tune", "fgm", "--data", ".", "--run", "r", "--grid", "C=1", "--set", "C=2"], "--grid C: C is also set by --set"),
        (["fit", "fgm", "--data", ".", "--run", "r", "--tls-ca", "ca.pem"], "TLS needs --tls-ca"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_usage_errors_are_one_message_and_exit_2(words: list[str], told: str, capsys: pytest.CaptureFixture[str]):
    assert main([*words, "--json"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: ") and "Traceback" not in said.err
    found = last_line(said.out)
    assert (found["status"], found["exit"], found["command"]) == ("error", 2, words[0])
    assert told in found["error"]
    assert said.out.count("\n") == 1


def _raised(path: str) -> BaseException:
    """Return an instance of an exception class given as ``module:name``."""
    import importlib

    module, _, name = path.partition(":")
    kind = getattr(importlib.import_module(module), name)
    arguments = {"OutOfSpace": ("/disk/x", 10), "MemoryBoundExceeded": ("too much", 2, 1), "TaskFailed": ("failed",), "OutputClosed": ()}
    return kind(*arguments.get(name, ("told",)))


@pytest.mark.parametrize("path", [*EXIT_CODES])
def test_every_row_of_the_table_names_a_class_that_has_this_code(path: str):
    assert exit_code(_raised(path)) == EXIT_CODES[path]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("gramplane.cluster.errors:ClusterUnreachable", 4),
        ("gramplane.cluster.errors:Stalled", 4),
        ("gramplane.cluster.errors:WorkersKilled", 4),
        ("gramplane.cluster.errors:PlaintextRefused", 2),
        ("gramplane.storage.errors:UnalignedWrite", 3),
        ("builtins:ZeroDivisionError", 1),
        ("gramplane.cluster.errors:TaskFailed", 1),
    ],
)
def test_classes_below_a_row_take_its_code_and_others_are_bugs(path: str, code: int):
    assert exit_code(_raised(path)) == code


def test_the_cause_decides_for_a_failed_task():
    failed = _raised("gramplane.cluster.errors:TaskFailed")
    failed.__cause__ = _raised("gramplane.storage.errors:DigestMismatch")
    assert exit_code(failed) == Exit.DAMAGED


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM])
def test_a_full_disk_is_5_wherever_it_shows(number: int):
    assert exit_code(OSError(number, "full")) == Exit.OUT_OF_SPACE


@pytest.mark.parametrize(("number", "code"), [(2, 130), (15, 143)])
def test_signals_are_128_and_their_number(number: int, code: int):
    assert exit_code(Interrupted(number)) == code


def test_every_code_has_a_meaning():
    assert set(MEANING) == set(Exit) == {0, 1, 2, 3, 4, 5, 6, 7, 99, 130, 141, 143}


@pytest.mark.parametrize(
    "path",
    [
        "gramplane.storage.errors:DataError",
        "gramplane.cluster.errors:ClusterLost",
        "gramplane.storage.errors:OutOfSpace",
        "gramplane.storage.errors:DigestMismatch",
        "gramplane.storage.errors:RunLocked",
        "builtins:ZeroDivisionError",
    ],
)
def test_a_command_ends_with_the_code_of_its_error(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    error = _raised(path)

    def run_method(*args: object, **more: object) -> None:
        raise error

    monkeypatch.setattr("gramplane.pipeline.run_method", run_method, raising=False)
    code = main(["fit", "fgm", "--data", str(tmp_path), "--run", str(tmp_path / "run"), "--json"])
    said = capsys.readouterr()
    assert code == exit_code(error) == last_line(said.out)["exit"]
    assert ("this is a bug" in said.err) == (code == 1)
    assert "Traceback" not in said.err
    assert main(["fit", "fgm", "--data", str(tmp_path), "--run", str(tmp_path / "run"), "--debug"]) == code
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupted_command_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run_method(*args: object, **more: object) -> None:
        raise Interrupted(15)

    monkeypatch.setattr("gramplane.pipeline.run_method", run_method, raising=False)
    assert main(["fit", "fgm", "--data", str(tmp_path), "--run", "r", "--json"]) == 143
    said = capsys.readouterr()
    assert "run the same command again" in said.err
    assert last_line(said.out)["status"] == "error"


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """Calls of the pipeline's functions, which do nothing here."""
    calls: list[tuple] = []

    def fake(name: str):
        def function(*args: object, **more: object) -> object:
            calls.append((name, args, more))
            return type("Outcome", (), {"status": "done", "summary": {"objective": 1.5}, "plan": {"tasks_per_pass": 3}})()

        return function

    for name in ("run_method", "resume_run", "tune"):
        monkeypatch.setattr(f"gramplane.pipeline.{name}", fake(name), raising=False)
    return calls


def test_fit_hands_everything_on(called: list[tuple], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "groups.json").write_text("[[0, 1], [1, 2]]")
    for name in ("ca", "cert", "key"):
        monkeypatch.setenv(f"GRAMPLANE_TLS_{name.upper()}", f"/{name}.pem")
    words = [
        "--C",
        "1e2",
        "--set",
        "loss=logistic",
        "--no-fit-intercept",
        "--max-inner",
        "none",
        "--scale",
        "none",
        "--group-weight",
        "none",
    ]
    words += ["--seed", "7", "--cluster", "tls://h:1", "--worker-memory", "3GiB"]
    words += ["--driver-memory", "1GiB", "--allow-plaintext", "--stall-timeout", "900", "--test-share", "0.2", "--dry-run"]
    words += ["--groups", str(tmp_path / "groups.json")]
    assert main(["fit", "fgm", "--data", str(tmp_path), "--run", "r", *words]) == 0
    ((_, args, more),) = called
    given = {"C": 100.0, "fit_intercept": False, "group_weight": "none", "loss": "logistic", "max_inner": None, "scale": None}
    assert args == ("fgm", given)
    assert callable(more.pop("on_event"))
    assert vars(more.pop("tls")) == {"ca": "/ca.pem", "cert": "/cert.pem", "key": "/key.pem"}
    assert more == {
        "data": str(tmp_path), "run": "r", "dry_run": True, "seed": 7, "extra": {"groups": [[0, 1], [1, 2]], "test_share": 0.2},
        "cluster": "tls://h:1", "worker_memory": "3GiB", "driver_memory": "1GiB", "allow_plaintext": True,
        "stall_timeout": 900.0,
    }  # fmt: skip


def test_environment_stands_below_options(called: list[tuple], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAMPLANE_CLUSTER", "local:3")
    monkeypatch.setenv("GRAMPLANE_WORKER_MEMORY", "1GiB")
    monkeypatch.setenv("GRAMPLANE_STALL_TIMEOUT", "30")
    words = ["fit", "fgm", "--data", str(tmp_path), "--run", "r"]
    main(words)
    main([*words, "--cluster", "local:2", "--stall-timeout", "60"])
    found = [(more["cluster"], more["worker_memory"], more["stall_timeout"]) for _, _, more in called]
    assert found == [("local:3", "1GiB", 30.0), ("local:2", "1GiB", 60.0)]


def test_tune_splits_its_grid(called: list[tuple], tmp_path: Path):
    words = ["--grid", "C=1,1e1", "--grid", "feature_map=[null, poly2]", "--set", "B=3", "--folds", "4"]
    assert main(["tune", "fgm", "--data", str(tmp_path), "--run", "r", *words]) == 0
    ((name, args, more),) = called
    assert (name, args, more["params"], more["folds"]) == ("tune", ("fgm", {"C": [1, 10.0], "feature_map": [None, "poly2"]}), {"B": 3}, 4)


def test_results_go_to_stdout_as_text_or_json(called: list[tuple], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["fit", "fgm", "--data", str(tmp_path), "--run", "r"]
    main(words)
    said = capsys.readouterr()
    assert said.out.startswith("r: ") and said.err == ""
    main([*words, "--json"])
    assert last_line(capsys.readouterr().out) == {
        "status": "done", "exit": 0, "command": "fit", "run": "r", "summary": {"objective": 1.5}, "error": None,
    }  # fmt: skip


# -- the JSON line ---------------------------------------------------------------------------------------------------


def test_the_json_line_is_cut_to_four_kilobytes_and_says_so():
    found = json.loads(console.one_line({"status": "done", "exit": 0, "long": list(range(5000)), "text": "x" * 9000, "small": 1}))
    assert found["truncated"] is True and found["small"] == 1 and found["status"] == "done"
    assert len(json.dumps(found)) <= 4096


def test_a_cut_json_line_keeps_the_numbers_beside_a_long_list():
    curve = [[k / 997, k / 991] for k in range(900)]
    score = {"accuracy": 0.9, "roc": curve, "majority": 0.6}
    found = json.loads(console.one_line({"status": "done", "results": {"model": {"rounds": 3}, "score": score, "report": {"page": "r"}}}))
    assert found["truncated"] and found["results"]["model"] == {"rounds": 3} and found["results"]["report"] == {"page": "r"}
    assert (found["results"]["score"]["accuracy"], found["results"]["score"]["majority"]) == (0.9, 0.6)


def test_the_json_line_is_strict_json():
    import numpy as np

    line = console.one_line(
        {"nan": float("nan"), "inf": np.inf, "number": np.float64(1.5), "array": np.arange(3), "path": Path("x"), "é": "€"}
    )
    assert json.loads(line) == {"nan": None, "inf": None, "number": 1.5, "array": [0, 1, 2], "path": "x", "é": "€"}
    assert line.isascii() and "NaN" not in line


def test_many_values_that_cannot_be_cut_are_left_out():
    found = json.loads(console.one_line({"status": "done", **{f"key{i}": "y" * 150 for i in range(100)}}))
    assert found["truncated"] is True and len(json.dumps(found)) <= 4096


def test_a_bare_call_shows_the_help(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("Usage: gramplane") and "Examples:" in said.err and said.out == ""


def test_exits_imports_nothing():
    assert not [name for name in vars(exits) if name in ("storage", "cluster", "pipeline")]


def test_public_names_are_there_and_others_are_not():
    import gramplane.workflows as workflows

    assert all(getattr(workflows, name) is not None for name in workflows.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        workflows.nope


# -- what a new user meets -------------------------------------------------------------------------------------------


def test_help_lists_the_methods(capsys: pytest.CaptureFixture[str]):

    for command in ("fit", "tune"):
        assert main([command, "--help"]) == 0
        shown = set(capsys.readouterr().out.split()) & set(METHODS)
        assert shown == {name for name, info in METHODS.items() if command == "fit" or info.config.has_scores}


def test_paths_of_the_wrong_kind_are_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, folder, stopped = tmp_path / "a.svm", tmp_path / "folder", tmp_path / "stopped"
    file.write_text("1 1:1\n")
    folder.mkdir()
    stopped.mkdir()
    (stopped / "lock").touch()
    expected = [
        (["fit", "fgm", "--data", file, "--run", tmp_path / "r"], 3, f"{file} is a file, not a block store; `gramplane ingest"),
        (["inspect", folder], 3, f"{folder} is a folder, but not a block store"),
        (["ingest", folder, tmp_path / "s"], 2, f"source {folder} is a folder"),
        (["ingest", file, file / "s"], 2, "a part of this path is a file, and a folder is needed"),
        (["status", stopped], 2, "was stopped before it saved anything"),
    ]
    for words, code, told in expected:
        assert main([str(word) for word in words]) == code, words
        said = capsys.readouterr()
        assert told in said.err and "Errno" not in said.err


def test_a_signal_is_told_whatever_python_wraps_it_in():
    wrapped = RuntimeError("Error calling __set_name__")
    wrapped.__cause__ = Interrupted(2)
    assert exit_code(wrapped) == 130 and console.describe_error(wrapped).startswith("stopped by SIGINT; what is finished is kept")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (gzip.BadGzipFile("Not a gzipped file (b'ab')"), "Not a gzipped file (b'ab')"),
        (OSError(errno.ENOSPC, "No space left on device"), "no space left to write 7 bytes to a place; free space there and start again"),
        (PermissionError(errno.EACCES, "Permission denied"), "a place: permission denied"),
    ],
)
def test_an_error_of_the_system_names_its_place_and_never_nothing(error, told):
    with pytest.raises(OSError) as caught, space_for("a place", 7):
        raise error
    assert console.describe_error(caught.value) == told


def test_a_full_disk_that_nobody_names_is_looked_for():
    told = console.describe_error(OSError(errno.ENOSPC, "No space left on device"))
    assert tempfile.gettempdir() in told and "TMPDIR" in told and str(Path.cwd()) in told
