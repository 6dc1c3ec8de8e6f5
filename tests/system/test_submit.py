"""A cluster started by Dask's own commands, and whole workflows submitted to it from another folder, over TCP and over TLS."""

import json
import shutil
import socket
import time

import pytest

from gramplane.cluster import make_certificates
from gramplane.workflows.cli import main
from tests.support.clusters import CommandCluster
from tests.support.commands import equal_runs, gramplane, tree_bytes
from tests.support.places import ROOT

pytestmark = pytest.mark.cluster

WORKFLOWS = ROOT / "workflows"
STEPS = {"data": "done", "check": "done", "select": "done", "score": "done", "predict": "done", "report": "done"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the smoke workflow, and what it gives in one process."""
    folder = tmp_path_factory.mktemp("submit")
    for name in ("smoke.yaml", "smoke.svm"):
        shutil.copy(WORKFLOWS / name, folder / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAMPLANE_SMOKE", str(folder / "sync"))
        assert main(["run", str(folder / "smoke.yaml"), "--run-id", "it", "--cluster", "sync", "--quiet"]) == 0
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A scheduler and two workers on loopback."""
    with CommandCluster(tmp_path_factory.mktemp("plain"), workers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory):
    """The same, speaking TLS."""
    tls = make_certificates(tmp_path_factory.mktemp("certificates") / "own")
    with CommandCluster(tmp_path_factory.mktemp("encrypted"), workers=2, tls=tls) as cluster:
        yield cluster


def submit(place, name, cluster, *options, **environment):
    """Run the workflow from a folder that has nothing to do with it."""
    elsewhere = place / f"from-{name}"
    words = ["run", place / "smoke.yaml", "--run-id", "it", "--cluster", cluster, *options]
    return gramplane(words, elsewhere, GRAMPLANE_SMOKE=str(place / name), **environment)


def same_as_sync(place, name):
    one, two = place / name, place / "sync"
    equal_runs(one / "runs" / "it" / "select", two / "runs" / "it" / "select")
    assert tree_bytes(one / "store") == tree_bytes(two / "store")
    assert (one / "predictions.csv").read_bytes() == (two / "predictions.csv").read_bytes()
    scores = [json.loads((folder / "runs" / "it" / "score" / "score.json").read_text()) for folder in (one, two)]
    assert scores[0] == scores[1]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["address", "scheduler file"])
def test_a_workflow_over_tcp(place, plain, form):
    name = form.replace(" ", "-")
    code, found = submit(place, name, plain.address if form == "address" else plain.config)
    assert (code, found["steps"]) == (0, STEPS), found
    same_as_sync(place, name)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["options", pytest.param("environment", marks=pytest.mark.slow)])
def test_a_workflow_over_tls(place, encrypted, form):
    tls = encrypted.tls
    if form == "options":
        words = ["--tls-ca", tls.ca, "--tls-cert", tls.cert, "--tls-key", tls.key]
        code, found = submit(place, "tls", encrypted.address, *words)
    else:
        code, found = submit(
            place, "tls-env", encrypted.config, GRAMPLANE_TLS_CA=tls.ca, GRAMPLANE_TLS_CERT=tls.cert, GRAMPLANE_TLS_KEY=tls.key
        )
    assert (code, found["steps"]) == (0, STEPS), found
    same_as_sync(place, "tls" if form == "options" else "tls-env")


# -- refused ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fit(tmp_path, capsys):
    """Start a fit with some options; exit code, message and seconds. It must not leave anything in its run directory's place."""
    assert main(["ingest", str(WORKFLOWS / "smoke.svm"), str(tmp_path / "store"), "--quiet"]) == 0

    def run(*options):
        capsys.readouterr()
        began = time.monotonic()
        words = ["fit", "fgm", "--data", tmp_path / "store", "--run", tmp_path / "run", "--set", "B=1", "--json", *options]
        code = main([*map(str, words)])
        told = json.loads(capsys.readouterr().out.rstrip("\n").rpartition("\n")[2])
        assert told["exit"] == code
        assert not (tmp_path / "run" / "history.jsonl").exists()
        return code, told["error"], time.monotonic() - began

    return run


def test_an_unencrypted_connection_that_leaves_the_machine(fit, tmp_path):
    (tmp_path / "s.json").write_text('{"address": "tcp://192.0.2.1:8786"}')
    for cluster in ("tcp://192.0.2.1:8786", f"scheduler-file:{tmp_path / 's.json'}"):
        code, message, _ = fit("--cluster", cluster)
        assert code == 2
        assert "192.0.2.1" in message and "--allow-plaintext" in message and "tls://" in message


def test_a_foreign_certificate_none_at_all_and_no_encryption(fit, encrypted, tmp_path):
    foreign = make_certificates(tmp_path / "foreign")
    code, message, seconds = fit(
        "--cluster", encrypted.address, "--tls-ca", foreign.ca, "--tls-cert", foreign.cert, "--tls-key", foreign.key
    )
    assert (code, "certificates" in message, seconds < 15) == (4, True, True), message
    code, message, _ = fit("--cluster", encrypted.config)
    assert (code, "--tls-ca" in message) == (2, True), message
    code, message, seconds = fit("--cluster", encrypted.address.replace("tls://", "tcp://"))
    assert (code, "TLS" in message, seconds < 15) == (4, True, True), message


@pytest.mark.slow
@pytest.mark.parametrize("listener", ["nobody", "silent"])
def test_an_address_that_does_not_answer(fit, listener, monkeypatch):
    monkeypatch.setenv("GRAMPLANE_CONNECT_TIMEOUT", "2")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listener == "silent":
            server.listen()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        code, message, seconds = fit("--cluster", address)
    assert (code, f"no scheduler at {address} within 2 s" in message, seconds < 7) == (4, True, True), (message, seconds)


@pytest.mark.slow
def test_a_scheduler_file_of_a_scheduler_that_is_gone(fit, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAMPLANE_CONNECT_TIMEOUT", "2")
    folder = tmp_path / "gone"
    folder.mkdir()
    with CommandCluster(folder, workers=0) as cluster:
        config = cluster.config
        cluster.kill_scheduler()
    code, message, seconds = fit("--cluster", config)
    assert (code, "may be stale" in message, seconds < 7) == (4, True, True), message


def test_a_scheduler_without_workers(fit, tmp_path, monkeypatch):
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.setenv("GRAMPLANE_NO_WORKERS_TIMEOUT", "1")
    with CommandCluster(folder, workers=0) as cluster:
        code, message, seconds = fit("--cluster", cluster.config)
    assert (code, "no workers after 1 s" in message, seconds < 10) == (4, True, True), message
