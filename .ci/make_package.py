"""Write what follows from the folders: ``packages`` of pyproject.toml.

``python .ci/make_package.py`` writes; ``--check`` only tells whether it is up to date (a test does). Run it after adding a folder.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("cluster", "kernels", "pipeline", "storage", "workflows")
DOOR = "pipeline/public"


def package_names() -> list[str]:
    """Return every package of the wheel: the door itself, and the folders that hold modules, but for the door's own folder."""
    folders = sorted({path.parent.relative_to(ROOT).as_posix() for name in FOLDERS for path in (ROOT / name).rglob("*.py")})
    return ["gramplane", *(f"gramplane.{folder.replace('/', '.')}" for folder in folders if folder != DOOR)]


def project_text(text: str) -> str:
    """Return pyproject.toml with the list of packages, and the folder of each top-level one."""
    folders = ", ".join(f'"gramplane.{name}" = "{name}"' for name in FOLDERS)
    text = re.sub(r"package-dir = \{.*?\}\n", f'package-dir = {{ "gramplane" = "{DOOR}", {folders} }}\n', text, flags=re.DOTALL)
    return re.sub(
        r"packages = \[.*?\n\]", "packages = [\n" + "".join(f'  "{name}",\n' for name in package_names()) + "]", text, flags=re.DOTALL
    )


def main(check: bool) -> int:
    """Write or compare; 1 where a comparison fails."""
    project = ROOT / "pyproject.toml"
    text = project_text(project.read_text())
    is_stale = project.read_text() != text
    if is_stale:
        print(f"pyproject.toml {'is not up to date' if check else 'written'}")
    if is_stale and not check:
        project.write_text(text)
    return int(check and is_stale)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
