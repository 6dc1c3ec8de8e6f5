"""Software versions of a process."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

PACKAGES = ("gramplane", "numpy", "numba", "scipy", "zarr", "dask", "distributed")
"""Packages whose versions are compared between driver and workers."""


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
    """Return the first difference that would make results wrong or unreadable, otherwise ``None``.

    Workers load functions by name, so gramplane must have the same version. Arrays are pickled, so NumPy must agree in its major version
    and Python in its minor version.
    """
    for package, parts in (("gramplane", 99), ("numpy", 1), ("python", 2)):
        ours, theirs = driver[package], worker.get(package, "not installed")
        if ours.split(".")[:parts] != theirs.split(".")[:parts]:
            return f"{package} {theirs}, the driver {package} {ours}"
    return None


def list_differences(driver: dict[str, str], worker: dict[str, str]) -> list[str]:
    """Return all differences as ``package theirs/ours``. They may change bits, so they cause a warning."""
    return [f"{name} {worker.get(name)}/{ours}" for name, ours in driver.items() if worker.get(name) != ours]
