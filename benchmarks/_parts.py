"""What the parts of a long program measured, kept as they come: a program that was ended goes on behind them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._harness import commit, plain


class Parts:
    """Parts of one program by name, in a file of a line each, with the commit that measured it; without a file nothing is kept.

    ``settings`` decide the results: a file of others is refused.
    """

    def __init__(self, path: str | None, settings: dict[str, Any]) -> None:
        self._path, self._known, self.commits = None if path is None else Path(path), {}, {commit()}
        if self._path is None:
            return
        if not self._path.exists():
            self._append("settings", plain(settings))
        # A line that was cut off by a kill is measured again.
        whole = [line for line in self._path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        lines = [json.loads(line) for line in whole]
        self._known, self.commits = {name: value for name, value, _ in lines}, {one for _, _, one in lines} | self.commits
        if self._known.get("settings") != plain(settings):
            raise SystemExit(f"{path} holds parts of another run, {self._known.get('settings')}; this one is {plain(settings)}")
        self._path.write_text("".join(whole))

    def has(self, name: str) -> bool:
        """Return whether a part is known."""
        return name in self._known

    def get(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return what a part has measured, now if it is not known."""
        if name not in self._known:
            # As from the file, whether it comes from there or not.
            self._known[name] = json.loads(json.dumps(plain(measure())))
            self._append(name, self._known[name])
        return self._known[name]

    def _append(self, name: str, value: Any) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps([name, value, commit()]) + "\n")
