"""Defect 9: processes that asked an object store ended with 134; without credentials a metadata address was asked."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.reliability.walks import walk
from tests.support.clusters import ROOT
from tests.support.commands import gramplane
from tests.support.s3 import s3_server

_ASK = """
import sys
from gramplane.storage.errors import NothingThere
from gramplane.storage.urls import open_objects
objects = open_objects("s3://missing/g")
for step in (lambda: objects.read("manifest.json"), lambda: objects.write("k", bytes(2_000_000))):
    try:
        step()
        sys.exit(1)
    except NothingThere:
        pass
sys.exit(6)
"""


def _clean() -> dict[str, str]:
    """The environment without anything that names credentials or settings of an object store."""
    prefixes = ("AWS_", "GOOGLE_", "AZURE_", "GRAMPLANE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "tests" / "support" / "_bare"), os.environ.get("PYTHONPATH")]))
    return kept


def _ends(words: list[str], times: int, folder: Path, environment: dict[str, str], code: int | None = None) -> None:
    """Start a command many times, three at a time; fail unless every one ends with ``code`` (if given), with what one of them said."""

    def once(_: int) -> tuple[int, str]:
        done = subprocess.run(words, cwd=folder, env={**_clean(), **environment}, capture_output=True, text=True)
        return done.returncode, done.stderr

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(once, range(times)))
    wrong = [message for number, message in found if code not in (None, number)]
    assert not wrong, (collections.Counter(number for number, _ in found), wrong[0][-2000:])


@walk(9, "a process that asked an object store ends with its own code, 12 times of 12")
def few_ends(folder: Path) -> None:
    with s3_server() as s3:
        _ends([sys.executable, "-c", _ASK], 12, folder, s3.environment(), 6)


@walk(9, "200 processes that asked an object store, and 200 fits on a missing bucket, end with their own codes", quick=False)
def many_ends(folder: Path) -> None:
    with s3_server() as s3:
        _ends([sys.executable, "-c", _ASK], 200, folder, s3.environment(), 6)
        (folder / "a.svm").write_text("".join(f"{(-1) ** i} 1:{i % 7 + 1} 2:{i % 3 + 1}\n" for i in range(20)))
        assert gramplane(["ingest", "a.svm", "store"], folder)[0] == 0
        words = ["fit", "mkl", "--data", "store", "--run", "run", "--kernels", "precomputed", "--gram-store", "s3://missing/g"]
        _ends([sys.executable, "-m", "gramplane.workflows.cli", *words], 200, folder, s3.environment(), 2)


@walk(9, "without credentials no metadata address is asked, unless the user allows it")
def nobody_asked(folder: Path) -> None:
    ask = "import gramplane.storage.urls as u\ntry: u.open_objects('{}://b/x').size('k')\nexcept Exception: pass"
    with s3_server("b") as s3, s3_server() as metadata:
        address = metadata.endpoint
        places = {"AWS_METADATA_ENDPOINT": address, "GCE_METADATA_HOST": address.removeprefix("http://"), "IDENTITY_ENDPOINT": address}
        places |= {"AZURE_MSI_ENDPOINT": address, "AZURE_STORAGE_ACCOUNT_NAME": "a", "HOME": str(folder), **s3.environment(signed=False)}
        for scheme in ("s3", "gs", "az"):
            _ends([sys.executable, "-c", ask.format(scheme)], 1, folder, places)
        assert metadata.requests == [], metadata.requests
        assert any(request.startswith("HEAD /b/x/k") for request in s3.requests), s3.requests
        _ends([sys.executable, "-c", ask.format("s3")], 1, folder, {**places, "GRAMPLANE_INSTANCE_CREDENTIALS": "1"})
        assert metadata.requests, "with leave the machine is asked"
