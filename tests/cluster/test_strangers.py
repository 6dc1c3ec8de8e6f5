"""Who may talk to a cluster that gramplane started: its own processes, by a certificate of the run's own, and nobody else.

Whoever reaches a Dask port runs code in that process, so every port is tried: scheduler, nannies and workers.
"""

import os
import shutil
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import dask
import psutil
import pytest

from gramplane.cluster import make_certificates, open_executor, parse_cluster, plan
from gramplane.cluster.security import make_security
from tests.support import toys
from tests.support.clusters import children, import_path, wait_until
from tests.support.strangers import answers, public_copies

pytestmark = pytest.mark.cluster


def listening(processes):
    """Ports on which processes listen, and no address but loopback's."""
    found = [connection.laddr for process in processes for connection in process.net_connections() if connection.status == "LISTEN"]
    assert {address.ip for address in found} == {"127.0.0.1"}
    return sorted({address.port for address in found})


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """An open executor with two workers, its folder, and the Dask ports of scheduler, nannies and workers."""
    parent = tmp_path_factory.mktemp("temporary")
    parent.chmod(0o755)
    before = {process.pid for process in children()}
    own = set(listening_here())
    with dask.config.set({"temporary-directory": str(parent)}), open_executor(parse_cluster("local:2", worker_memory="1GiB")) as executor:
        (folder,) = parent.iterdir()
        workers = [process for process in children() if process.pid not in before]
        ports = sorted({*listening([psutil.Process(), *workers])} - own)
        yield executor, folder, ports
    assert list(parent.iterdir()) == []


def listening_here():
    return [connection.laddr.port for connection in psutil.Process().net_connections() if connection.status == "LISTEN"]


def dask_ports(executor):
    """Ports of scheduler, workers and nannies, by what the scheduler knows."""
    facts = executor._link.look()[0]
    addresses = [executor._link.address, *facts, *(fact["nanny"] for fact in facts.values())]
    assert len(addresses) == 5 and all(address.startswith("tls://127.0.0.1:") for address in addresses)
    return [int(address.rpartition(":")[2]) for address in addresses]


def own_files(executor, folder):
    """Write what the cluster's processes hold in memory to files that a stranger may be given."""
    security = executor._link.client.security
    files = {"ca": security.tls_ca_file, "cert": security.tls_client_cert, "key": security.tls_client_key}
    for name, text in files.items():
        (folder / name).write_text(text)
    return {name: folder / name for name in files}


@pytest.mark.parametrize("kind", ["foreign", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("plain", "none"))])
def test_a_process_without_the_certificate_is_refused_at_every_port(started, tmp_path, kind):
    executor, _, ports = started
    made = make_certificates(tmp_path / "foreign")
    found = answers(kind, {"ca": made.ca, "cert": made.cert, "key": made.key}, ports)
    assert set(dask_ports(executor)) <= set(ports) == set(found)
    assert set(found.values()) == {"refused"}
    # Nothing of it disturbed the cluster.
    assert executor.n_workers == 2
    assert executor.run(plan(toys.program(toys.slow), range(5), 0.0)) == 10


def test_the_certificate_is_what_opens_the_ports(started, tmp_path):
    """The test above could not fail if its stranger were refused for another reason."""
    executor, _, _ = started
    ports = dask_ports(executor)
    assert answers("own", own_files(executor, tmp_path), ports) == dict.fromkeys(ports, "answered")


def test_a_foreign_certificate_with_the_right_authority_is_refused(started, tmp_path):
    """The authority's certificate is no secret; only its key makes others that it vouches for."""
    executor, _, _ = started
    made = make_certificates(tmp_path / "foreign")
    found = answers("foreign", {"ca": own_files(executor, tmp_path)["ca"], "cert": made.cert, "key": made.key}, dask_ports(executor))
    assert set(found.values()) == {"refused"}


def test_the_key_is_in_no_file_and_the_folder_for_this_user_alone(started):
    executor, folder, _ = started
    key = executor._link.client.security.tls_client_key.encode()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not any(key in path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_connect(started, tmp_path):
    executor, _, _ = started
    made = make_certificates(tmp_path / "foreign")
    as_nobody = partial(answers, ports=dask_ports(executor), STRANGER_USER="65534")
    readable = public_copies({"ca": made.ca, "cert": made.cert, "key": made.key}, Path("/tmp"))
    try:
        for kind in ("plain", "none", "foreign"):
            assert set(as_nobody(kind, readable).values()) == {"refused"}
    finally:
        shutil.rmtree(readable["ca"].parent)
    # With the key it would be let in: what refuses it is nothing else.
    readable = public_copies(own_files(executor, tmp_path), Path("/tmp"))
    try:
        assert set(as_nobody("own", readable).values()) == {"answered"}
    finally:
        shutil.rmtree(readable["ca"].parent)


def test_users_settings_for_other_clusters_do_not_take_its_place(tmp_path):
    foreign = make_certificates(tmp_path / "foreign")
    parties = ("client", "scheduler", "worker")
    settings = {f"distributed.comm.tls.{party}.{name}": getattr(foreign, name) for party in parties for name in ("cert", "key")}
    with dask.config.set({**settings, "distributed.comm.tls.ca-file": foreign.ca, "distributed.comm.require-encryption": False}):
        security = make_security()
    assert security.require_encryption is True
    for party in parties:
        config = security.get_tls_config_for_role(party)
        assert config["ca_file"] == config["cert"] == security.tls_ca_file and "BEGIN CERTIFICATE" in config["cert"]
        assert "PRIVATE KEY" in config["key"]


@pytest.mark.slow
def test_the_folder_of_a_killed_driver_goes_with_the_next_start(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import time\nfrom gramplane.cluster import open_executor\n"
        "if __name__ == '__main__':\n    with open_executor('local:1', worker_memory='1GiB') as executor:\n"
        "        print('ready', flush=True)\n        time.sleep(60)\n"
    )
    place = tmp_path / "tmp"
    place.mkdir()
    env = {**os.environ, "PYTHONPATH": import_path(), "TMPDIR": str(place)}
    driver = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=env)
    assert driver.stdout is not None and driver.stdout.readline() == b"ready\n"
    workers = children(driver.pid)
    driver.kill()
    driver.communicate()
    (left,) = place.iterdir()
    wait_until(lambda: not any(worker.is_running() for worker in workers), 20, "workers follow")
    with dask.config.set({"temporary-directory": str(place)}), open_executor("local:1", worker_memory="1GiB"):
        assert len(list(place.iterdir())) == 1 and not left.exists()
    assert list(place.iterdir()) == []
