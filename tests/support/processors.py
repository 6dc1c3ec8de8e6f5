"""Other kernels of BLAS than this machine's own, and processes that compute with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import llvmlite.binding as llvm
import pytest

from tests.support.clusters import ROOT

CORETYPES = {"SkylakeX": "avx512vl", "Haswell": "avx2", "Sandybridge": "avx", "Nehalem": "sse4.2"}
"""Kernels of OpenBLAS that wheels for x86 bring, and what a processor needs for them: OpenBLAS does as it is told, come what may."""


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a child process that finds this checkout, in which BLAS works in one thread."""
    paths = [str(ROOT / "tests" / "support" / "_bare"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OPENBLAS_NUM_THREADS": "1", **variables}


def said(code: str, *words: str, **variables: str) -> str:
    """Run Python code in a process with these variables; return what it printed."""
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


_ARITHMETIC = "import json; from gramplane.cluster.arithmetic import arithmetic; print(json.dumps(arithmetic()))"


@cache
def arithmetic_with(**variables: str) -> dict[str, str]:
    """Return what a process with these variables computes with."""
    return json.loads(said(_ARITHMETIC, **variables))


@cache
def other_coretypes() -> tuple[str, ...]:
    """Return the kernels of OpenBLAS that this machine can run and this process does not, newest first."""
    has, own = llvm.get_host_cpu_features(), arithmetic_with()["blas"]
    able = [name for name, needed in CORETYPES.items() if has.get(needed) and name not in own]
    return tuple(name for name in able if name in arithmetic_with(OPENBLAS_CORETYPE=name)["blas"])


def another_coretype() -> str:
    """Return the newest of :func:`other_coretypes`; skips the test where BLAS has no other kernels."""
    if not other_coretypes():
        pytest.skip("BLAS here has one kernel only, or does not read OPENBLAS_CORETYPE")
    return other_coretypes()[0]
