"""Every command and every kind of URL: it works, or is refused before work by name."""

import os

import click
import numpy as np
import pytest

from gramplane import METHODS
from gramplane.storage import urls
from gramplane.storage.errors import UrlError
from gramplane.storage.places import USES, check_place
from gramplane.workflows.cli import cli, main
from gramplane.workflows.commands.options import Url
from tests.support.s3 import s3_server

GOOD = {
    "a/b.csv": "path",
    "with space%20ü/x.csv": "path",
    "./s3:b": "path",
    "file:///tmp/a%20b.csv": "file",
    "file://localhost/tmp/x.csv": "file",
    "s3://bucket/a b/ü%20.csv": "objects",
    "S3://bucket/x.csv": "objects",
    "gs://bucket/x.csv": "objects",
    "az://container/x.csv": "objects",
    "abfss://container@account.dfs.core.windows.net/x.csv": "objects",
    "https://host/x.csv": "web",
}
"""URL -> its kind."""

BAD = {
    "memory://x.csv": "scheme",
    "ftp://host/x.csv": "scheme",
    "C:\\data\\x.csv": "Windows",
    "C:/data/x.csv": "Windows",
    "\\\\server\\x.csv": "Windows",
    "s3:/bucket/x.csv": "slashes",
    "file:/tmp/x.csv": "slashes",
    "file://host/x.csv": "host",
    "s3:///x.csv": "no bucket",
    "s3://bucket/../x.csv": "'..'",
    "s3://key:hidden@bucket/x.csv": "credentials",
    "https://user:hidden@host/x.csv": "credentials",
    "s3://bucket/x.csv?X-Amz-Signature=hidden": "credentials",
    "https://account.blob.core.windows.net/c/x.csv?sig=hidden": "credentials",
}
"""URL that nothing takes -> a word of the message."""

NO_PLACES = {
    "title",
    "refit",
    "scoring",
    *(
        "target",
        "format",
        "encoding",
        "layer",
        "decimal",
        "zero_based",
        "qid",
        "dtype",
        "scale",
        "task",
        "labels",
        "task_column",
        "weight_column",
        "id_column",
        "group_column",
        "layout",
        "missing",
    ),
    *(
        "budget",
        "cluster",
        "worker_memory",
        "driver_memory",
        "settings",
        "grids",
        "names",
        "run_id",
        "step",
        "templates",
        "kernels",
        "set_kernels",
        "keep",
    ),
}
"""Texts of the command line that name no place, or (``kernels``, ``keep``) may name a file among other things."""


def _commands(group, words=()):
    for name in group.list_commands(context := click.Context(group)):
        if isinstance(command := group.get_command(context, name), click.Group):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(_commands(cli))
PLACES = [(words, param) for words, command in COMMANDS.items() for param in command.params if isinstance(param.type, Url)]
# Of what the commands of many methods have in common one is enough.
PLACES = list({(words[:1] if words[-1] in METHODS else words, param.name): (words, param) for words, param in PLACES}.values())


def _words(words, chosen, url):
    """Return a command with ``url`` for one parameter and something harmless for all others it needs."""
    command = COMMANDS[words]
    line = list(words)
    for param in command.params:
        if not param.required and param is not chosen:
            continue
        value = url if param is chosen else {"grids": "C=1", "n_clusters": "2"}.get(param.name, "nothing.csv")
        line += [param.opts[0], value] if isinstance(param, click.Option) else [value]
    return line


def _id(item):
    return "-".join(item[0]) + "-" + item[1].name


def test_every_text_of_the_command_line_is_a_place_or_known_to_be_none():
    texts = {param.name for command in COMMANDS.values() for param in command.params if param.type is click.STRING}
    assert texts <= NO_PLACES and len(PLACES) > 40
    assert {param.type.use for _, param in PLACES} == set(USES)


@pytest.mark.parametrize("item", PLACES, ids=_id)
def test_every_place_takes_a_url_or_refuses_it_before_work(item, tmp_path, monkeypatch, capsys):
    words, param = item
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(urls, "connect_store", lambda url: pytest.fail(f"{url} was asked"))
    for url, kind in GOOD.items():
        if kind in USES[param.type.use].kinds:
            found = param.type.convert(url, param, None)
            assert ("://" in found) == (kind in ("objects", "web")) and (kind != "path" or found == url)
            continue
        assert main(_words(words, param, url)) == 2
        message = capsys.readouterr().err
        why, _, remedy = USES[param.type.use].why.partition("; ")
        assert repr(url) in message and why in message and remedy in message and param.opts[0].lower() in message.lower()
    for url, word in BAD.items():
        assert main(_words(words, param, url)) == 2
        message = capsys.readouterr().err
        assert word in message and "hidden" not in message and param.opts[0].lower() in message.lower()
    assert os.listdir(tmp_path) == []


def test_file_urls_are_the_paths_they_name(tmp_path):
    assert check_place("file:///tmp/a%20b%3F?c", "source") == "/tmp/a b??c"
    assert check_place("s3://b/x/", "store") == "s3://b/x"
    with pytest.raises(UrlError, match="cannot be a run"):
        check_place("s3://b/x", "run")


# -- at work -------------------------------------------------------------------------------------------------------------

TEXT = "".join(f"{(-1) ** i} 1:{i % 7 + 1} 2:{i % 3 + 1} 3:{i * i % 5 + 1}\n" for i in range(40))


@pytest.fixture
def s3(monkeypatch, tmp_path):
    pytest.importorskip("obstore")
    monkeypatch.chdir(tmp_path)
    urls._remotes.clear()
    with s3_server("b") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server
    urls._remotes.clear()


def test_sources_stores_grams_and_predictions_lie_in_an_object_store(s3, tmp_path):
    (tmp_path / "a 1.svm").write_text(TEXT)
    s3.buckets["b"]["in/a 1.svm"] = TEXT.encode()
    np.save("k.npy", np.eye(5))
    s3.buckets["b"]["k.npy"] = (tmp_path / "k.npy").read_bytes()
    done = [
        ["ingest", "s3://b/in/a%201.svm", "near"],
        ["ingest", f"file://{tmp_path}/a%201.svm", "s3://b/far"],
        ["ingest", "s3://b/in/a 1.svm", "s3://b/far"],
        ["verify", "s3://b/far"],
        ["fit", "fgm", "--data", "s3://b/far", "--run", "run", "--set", "B=2", "--set", "max_rounds=2"],
        ["gram", "s3://b/far", "--kernels", "linear", "--out", "s3://b/grams"],
        ["gram", "near", "--kernels", "linear", "--out", f"file://{tmp_path}/near%20grams"],
        ["gram", "--precomputed", "s3://b/k.npy", "--out", "s3://b/given"],
        ["inspect", "s3://b/grams"],
        *[
            ["predict", "run", "s3://b/far", f"{place}p.{form}"]
            for form in ("csv", "npz", "parquet", "zarr")
            for place in ("", "s3://b/p/")
        ],
        ["predict", "run", "near", "s3://b/p/p.zarr"],
    ]
    for words in done:
        assert main([*words, "--quiet"]) == 0, words
    objects = s3.buckets["b"]
    assert all(objects[f"p/p.{form}"] == (tmp_path / f"p.{form}").read_bytes() for form in ("csv", "parquet"))
    assert {f"p/p.zarr/{file.relative_to('p.zarr')}" for file in map(_local, tmp_path.glob("p.zarr/**/*")) if file.is_file()} <= set(
        objects
    )
    assert "grams/manifest.json" in objects and (tmp_path / "near grams").is_dir() and not (tmp_path / "s3:").exists()


def _local(path):
    return path.relative_to(os.getcwd())


def test_faults_of_an_object_store_have_codes_and_names(s3, tmp_path, capsys, monkeypatch):
    (tmp_path / "a.svm").write_text(TEXT)
    assert main(["ingest", "a.svm", "near"]) == 0
    assert main(["fit", "fgm", "--data", "near", "--run", "run", "--set", "B=2", "--set", "max_rounds=2", "--quiet"]) == 0
    s3.buckets["b"]["mine.txt"] = b"not a store"
    capsys.readouterr()
    wanted = {
        ("verify", "s3://missing/x"): (2, "bucket"),
        ("ingest", "s3://b/none.svm", "new"): (2, "s3://b/none.svm does not exist"),
        ("inspect", "s3://b/none"): (2, "s3://b/none does not exist"),
        ("predict", "run", "near", "s3://missing/p.csv"): (2, "bucket of s3://missing"),
        ("ingest", "a.svm", "s3://missing/store"): (2, "bucket of s3://missing/store"),
        ("fit", "mkl", "--data", "near", "--run", "r2", "--kernels", "precomputed", "--gram-store", "s3://missing/g"): (
            2,
            "bucket of s3://missing/g",
        ),
        ("ingest", "a.svm", "s3://b"): (3, "mine.txt"),
        ("predict", "run", "near", "s3://b/nowhere/"): (2, "extension"),
    }
    for words, (code, text) in wanted.items():
        assert main(list(words)) == code, words
        message = capsys.readouterr().err
        assert text in message and "ingest it again" not in message
    assert s3.buckets["b"] == {"mine.txt": b"not a store"}
    for answer, code in ((403, 2), (401, 2), (503, 4)):
        s3.answer = answer
        urls._remotes.clear()
        assert main(["verify", "s3://b/x"]) == code == main(["predict", "run", "near", "s3://b/p.csv"])
        assert "s3://b" in capsys.readouterr().err
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    urls._remotes.clear()
    assert main(["verify", "s3://b/x"]) == 4


def test_a_workflow_file_refuses_a_url_by_its_line(tmp_path, capsys):
    file = tmp_path / "w.yaml"
    file.write_text(
        "schema: gramplane.workflow/1\nname: w\nruns: s3://b/runs\nsteps:\n- {id: a, do: ingest, with: {source: a.svm, store: x}}\n"
    )
    assert main(["run", str(file), "--check"]) == 2
    assert "w.yaml:3" in (message := capsys.readouterr().err) and "cannot be a run" in message
