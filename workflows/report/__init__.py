"""Reports: one self-contained HTML page on one run or several side by side, and the same numbers as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .collect import replace_text, view_run
from .view import RunView


@dataclass(frozen=True)
class Written:
    """Files of a report: the page, and the CSV tables."""

    page: Path
    tables: tuple[Path, ...]


def write_report(runs: Sequence[str | Path], out: str | Path, names: Sequence[str] | None = None) -> Written:
    """Write ``report.html`` and CSV files.

    Parameters
    ----------
    runs
        Run directories.
    out
        Folder to write to; it is made if it is not there.
    names
        A name for each run; by default the folders' names.

    Raises
    ------
    ConfigError
        If a path is no run directory.
    """
    views = [view_run(run, name) for run, name in zip(runs, names or [None] * len(runs), strict=True)]
    return write_views(views, out)


def write_views(views: Sequence[RunView], out: str | Path) -> Written:
    """Write the report of views made by hand or by `view_run` (see `write_report`)."""
    from .render import page
    from .tables import csv_files, json_files

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    footer = f"Written by gramplane from {', '.join(view.path for view in views)}."
    files = {"report.html": page(views, footer=footer), **csv_files(views), **json_files(views)}
    for name, text in files.items():
        replace_text(folder / name, text)
    return Written(folder / "report.html", tuple(folder / name for name in files if name != "report.html"))


__all__ = ["RunView", "Written", "view_run", "write_report", "write_views"]
