"""Properties of a process that determine the last bits of results: processor features, compiler settings, BLAS, NumPy, the C library.

If all processes agree in these properties, a run has the same bits on any number of workers. Otherwise, results agree to within the
tolerance of the fit, and a run that mixes such processes emits a warning.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

import llvmlite.binding as llvm
import numpy as np
import threadpoolctl

COMPILER = ("NUMBA_OPT", "NUMBA_LOOP_VECTORIZE", "NUMBA_SLP_VECTORIZE", "NUMBA_ENABLE_AVX", "NUMBA_DISABLE_JIT")
"""Environment variables that change the order of compiled sums."""

VECTORS = ("sse", "avx", "fma", "f16c", "neon", "sve", "fp", "vsx", "altivec")
"""Prefixes of processor features that compiled arithmetic may use. Other features, such as encryption, do not change results."""

SHOWN = 3
"""Largest number of workers of a group that a message names."""

Arithmetic = dict[str, str]
"""The arithmetic of a process, by kind of property; see :func:`arithmetic`."""


@cache
def arithmetic() -> Arithmetic:
    """Return the arithmetic of this process: ``processor``, ``vectors``, ``compiler``, ``blas``, ``numpy`` and ``libc``.

    Two processes that agree in these, and in the versions of the software, compute the same bits.
    """
    config = cast(dict[str, Any], np.show_config(mode="dicts"))
    compiler = [f"{name}={os.environ[name]}" for name in COMPILER if name in os.environ]
    return {
        "processor": os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name(),
        "vectors": " ".join(_vector_features()),
        "compiler": " ".join(compiler) or "as it comes",
        "blas": ", ".join(_blas_libraries()) or "unknown",
        "numpy": " ".join(config.get("SIMD Extensions", {}).get("found", [])) or "baseline",
        "libc": " ".join(platform.libc_ver()).strip() or platform.system(),
    }


@cache
def fingerprint() -> str:
    """Return a short text that is equal in processes with the same arithmetic."""
    return hashlib.sha256(repr(sorted(arithmetic().items())).encode()).hexdigest()[:16]


def _vector_features() -> list[str]:
    # As numba reads them: the variable first, none for the generic processor, else what the processor has.
    configured = os.environ.get("NUMBA_CPU_FEATURES", "" if os.environ.get("NUMBA_CPU_NAME", "").lower() == "generic" else None)
    features = configured or ""
    if configured is None:
        with suppress(RuntimeError):
            features = llvm.get_host_cpu_features().flatten()
    enabled = (feature.removeprefix("+") for feature in features.split(",") if feature.startswith("+"))
    return sorted(feature for feature in enabled if feature.startswith(VECTORS))


def _blas_libraries() -> list[str]:
    # NumPy and SciPy bring one each; SciPy's is there once it is loaded, as solvers do.
    importlib.import_module("scipy.linalg.blas")
    libraries = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    # Where wheels brought their own, other packages' libraries are nothing to us.
    bundled = [pool for pool in libraries if {"numpy.libs", "scipy.libs"} & set(Path(pool["filepath"]).parts)]
    parts = ("internal_api", "version", "architecture")
    return sorted({" ".join(str(pool[part]) for part in parts if pool.get(part)) for pool in bundled or libraries})


def describe_mixture(driver: Arithmetic, workers: Mapping[str, Arithmetic]) -> str | None:
    """Return a line that describes the groups of processes (workers by address) that differ in arithmetic; ``None`` if all agree."""
    description = _describe_groups([("the driver", driver), *((f"worker {address}", workers[address]) for address in sorted(workers))])
    promise = "the same bits for any number of workers, any layout and any kill"
    mixture = f"processors or their kernels differ ({description})"
    return description and f"{mixture}: results agree to the tolerance asked for, but are no longer {promise}"


def describe_change(seen: Sequence[Arithmetic]) -> str | None:
    """Return a line about a run whose driver's arithmetic changed between resumes; ``None`` if it never changed."""
    description = _describe_groups([("at first" if not k else "then", facts) for k, facts in enumerate(seen)])
    change = f"the run goes on with another processor or other kernels ({description})"
    promise = "the bits of a run that was never stopped"
    return description and f"{change}: its result agrees to the tolerance asked for, but no longer has {promise}"


def _describe_groups(processes: Sequence[tuple[str, Arithmetic]]) -> str | None:
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for who, facts in processes:
        groups.setdefault(tuple(sorted(facts.items())), []).append(who)
    if len(groups) < 2:
        return None
    differing = [kind for kind in processes[0][1] if len({dict(facts).get(kind) for facts in groups}) > 1]
    everywhere = set.intersection(*(set(dict(facts).get("vectors", "").split()) for facts in groups))
    described = []
    for facts, who in groups.items():
        # Of the vector instructions those that not all have.
        beyond = " ".join(name for name in dict(facts).get("vectors", "").split() if name not in everywhere) or "none beyond"
        shown = {**dict.fromkeys(differing, "unknown"), **dict(facts), "vectors": beyond}
        more = f" and {len(who) - SHOWN} more" if len(who) > SHOWN else ""
        described.append(f"{', '.join(who[:SHOWN])}{more}: {', '.join(f'{kind} {shown[kind]}' for kind in differing)}")
    return "; ".join(described)
