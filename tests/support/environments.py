"""Environments of their own, for programs that users run beside gramplane and that the tests' environment does not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT


def own_environment(folder: Path, *packages: str, dependencies: bool = True) -> Path:
    """Return the Python of a new environment with these packages and gramplane, with or without its dependencies."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    python = folder / "bin" / "python"
    # Together, so that one set of versions suits all.
    both = [*packages, str(ROOT)] if dependencies else packages
    subprocess.run([python, "-m", "pip", "install", "-q", *both], check=True, timeout=1500, cwd=folder)
    if not dependencies:
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", str(ROOT)], check=True, timeout=300, cwd=folder)
    return python
