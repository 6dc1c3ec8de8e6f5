"""The lines that a mutation run leaves, and what they add up to."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

GOAL, ARGUED = 0.95, 0.10
"""Least share of killed mutants among those not argued equivalent, and the greatest share that may be argued."""


@dataclass(frozen=True)
class Line:
    """How one mutant ended: ``killed`` (by the test named), ``survived``, or ``stale`` when its file has changed since it was drawn."""

    name: str
    mutant: dict[str, Any]
    commit: str
    verdict: str
    by: str
    seconds: float


class Results:
    """``results.jsonl`` and ``equivalent.json`` of a folder; the last line of a mutant counts."""

    def __init__(self, folder: Path) -> None:
        self.path, self._arguments = folder / "results.jsonl", folder / "equivalent.json"
        self.reached = folder / "reached.json"

    def all_lines(self) -> list[Line]:
        """Return every line in its order."""
        return [Line(**json.loads(row)) for row in (self.path.read_text().splitlines() if self.path.exists() else [])]

    def lines(self) -> dict[str, Line]:
        """Return the last line of every mutant."""
        return {line.name: line for line in self.all_lines()}

    def add(self, line: Line) -> None:
        """Append a line."""
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(line)) + "\n")

    def argued(self) -> dict[str, str]:
        """Return name -> why the mutant changes nothing that anybody could see."""
        return json.loads(self._arguments.read_text()) if self._arguments.exists() else {}

    def _counted(self) -> tuple[dict[str, Line], int]:
        lines = {name: line for name, line in self.lines().items() if line.verdict != "stale"}
        argued = sum(name in self.argued() and line.verdict == "survived" for name, line in lines.items())
        return lines, argued

    def goal_met(self) -> bool:
        """Tell whether enough were killed and few enough argued."""
        lines, argued = self._counted()
        killed = sum(line.verdict == "killed" for line in lines.values())
        return bool(lines) and killed >= GOAL * (len(lines) - argued) and argued <= ARGUED * len(lines)

    def summary(self) -> str:
        """Return the figures by folder and the survivors, a line each."""
        lines, argued = self._counted()
        arguments, by_folder = self.argued(), Counter[tuple[str, str]]()
        for line in lines.values():
            by_folder[line.mutant["file"].split("/")[0], line.verdict] += 1
        folders = sorted({folder for folder, _ in by_folder})
        rows = [f"{folder}: {by_folder[folder, 'killed']} killed, {by_folder[folder, 'survived']} survived" for folder in folders]
        killed = sum(line.verdict == "killed" for line in lines.values())
        share = killed / max(1, len(lines) - argued)
        rows.append(f"{len(lines)} mutants: {killed} killed, {argued} argued; {100 * share:.1f} % of the others (goal {100 * GOAL:.0f} %)")
        for name, line in sorted(lines.items(), key=lambda item: (item[1].mutant["file"], item[1].mutant["line"])):
            if line.verdict == "survived":
                told = f"  equivalent: {arguments[name]}" if name in arguments else ""
                m = line.mutant
                rows.append(f"{name} {m['file']}:{m['line']} {m['kind']}: {m['before']!r} -> {m['after']!r}{told}")
        return "\n".join(rows)
