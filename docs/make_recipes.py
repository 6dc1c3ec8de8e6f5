"""Put the files of ``tests/recipes`` into CONTRIBUTING.md: ``python docs/make_recipes.py``. A test compares the page with them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"


def filled(text: str) -> str:
    """Return the page with every file between ``<!-- file: PATH -->`` and ``<!-- end -->`` as it is now."""

    def block(found: re.Match[str]) -> str:
        kind = "diff" if found[1].endswith(".diff") else "python"
        return f"<!-- file: {found[1]} -->\n```{kind}\n# {found[1]}\n{(ROOT / found[1]).read_text()}```\n<!-- end -->"

    return re.sub(r"<!-- file: (\S+) -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)


def main(check: bool) -> int:
    """Write the page, or compare it; 1 where a comparison fails."""
    text = PAGE.read_text()
    if not check:
        PAGE.write_text(filled(text))
    return int(check and filled(text) != text)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
