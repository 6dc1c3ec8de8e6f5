"""A cluster that gramplane starts lets nobody in but its own processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from gramplane.cluster import make_certificates
from tests.reliability.walks import walk
from tests.support.clusters import children, import_path
from tests.support.strangers import answers

SCRIPT = """
import sys
from gramplane.cluster import open_executor
if __name__ == "__main__":
    with open_executor("local:1", worker_memory="1GiB") as executor:
        print("ready", flush=True)
        sys.stdin.readline()
"""


@walk(10, "no other process gets an answer at a port of local:N, whatever it speaks")
def refused(folder: Path) -> None:
    (folder / "script.py").write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": import_path(), "TMPDIR": str(folder)}
    driver = subprocess.Popen([sys.executable, folder / "script.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    try:
        assert driver.stdout is not None and driver.stdout.readline() == b"ready\n"
        processes = [psutil.Process(driver.pid), *children(driver.pid)]
        found = [connection.laddr for process in processes for connection in process.net_connections() if connection.status == "LISTEN"]
        assert {address.ip for address in found} == {"127.0.0.1"}
        ports = sorted({address.port for address in found})
        # Scheduler, nanny, worker, and the pages of health of scheduler and worker.
        assert len(ports) >= 3
        made = make_certificates(folder / "foreign")
        for kind in ("plain", "foreign"):
            told = answers(kind, vars(made), ports)
            assert set(told.values()) == {"refused"}, (kind, told)
        keys = list(folder.glob("gramplane-*/**/key.pem"))
        assert [oct(key.stat().st_mode & 0o777) for key in keys] == ["0o600"], keys
        driver.communicate(b"end\n", timeout=60)
        assert driver.returncode == 0 and not list(folder.glob("gramplane-*"))
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
