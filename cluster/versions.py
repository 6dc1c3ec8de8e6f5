"""Which software a process runs."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

PACKAGES = ("gramplane", "numpy", "numba", "scipy", "zarr", "dask", "distributed")
"""What must or should agree between driver and workers."""


def _package_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


@cache
def own_version() -> str:
    """Return the version of this package."""
    return _package_version("gramplane")


def software_versions() -> dict[str, str]:
    """Return the versions of Python and of :data:`PACKAGES`."""
    return {"python": platform.python_version(), **{package: _package_version(package) for package in PACKAGES}}


def find_conflict(driver: dict[str, str], worker: dict[str, str]) -> str | None:
    """Name the first difference that makes results wrong or unreadable, ``None`` if there is none.

    Workers load functions by name, so the package must be the same; arrays travel by pickle, so NumPy must agree in its major and
    Python in its minor version.
    """
    for package, parts in (("gramplane", 99), ("numpy", 1), ("python", 2)):
        ours, theirs = driver[package], worker.get(package, "not installed")
        if ours.split(".")[:parts] != theirs.split(".")[:parts]:
            return f"{package} {theirs}, the driver {package} {ours}"
    return None


def list_differences(driver: dict[str, str], worker: dict[str, str]) -> list[str]:
    """Return every difference as ``package theirs/ours``: those may change bits, so they are worth a warning."""
    return [f"{name} {worker.get(name)}/{ours}" for name, ours in driver.items() if worker.get(name) != ours]
