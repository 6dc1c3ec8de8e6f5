"""Reports: one self-contained HTML page on one run or several side by side, and the same numbers as CSV."""

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...pipeline.records.csv_texts import CsvTexts
from ...pipeline.records.run_view import RunView
from ..checking import ConfigError
from .collect import replace_text, view_run


@dataclass(frozen=True)
class Written:
    """Files of a report: the page, and the CSV tables."""

    page: Path
    tables: tuple[Path, ...]


def write_report(
    runs: Sequence[str | Path],
    out: str | Path,
    names: Sequence[str] | None = None,
    written: Collection[str] = (),
    excel_safe: bool = False,
    warn: Callable[[str], object] | None = None,
    title: str = "",
) -> Written:
    """Write ``report.html`` and CSV files.

    Parameters
    ----------
    runs
        Run directories.
    out
        Folder to write to; it is created if it does not exist.
    names
        A name for each run; by default the folders' names.
    written
        Paths of files that an earlier report is known to have written; they are replaced whatever they contain now.
    excel_safe
        In the CSV files, put an apostrophe before texts that a spreadsheet would take for formulas: texts that begin with = or @, and texts
        that begin with + or - and are not numbers.
    warn
        Without ``excel_safe``, called with a message about such texts; default: a Python warning.
    title
        Title of the page; by default the name of the run.

    Raises
    ------
    ConfigError
        If a path is no run directory.
    """
    views = [view_run(run, name) for run, name in zip(runs, names or [None] * len(runs), strict=True)]
    return write_views(views, out, written, CsvTexts(excel_safe, warn or warnings.warn), title)


def write_views(
    views: Sequence[RunView], out: str | Path, written: Collection[str] = (), texts: CsvTexts | None = None, title: str = ""
) -> Written:
    """Write the report of views that `view_run` returned (see `write_report`)."""
    from ...storage.objects import require_writable
    from .render import page
    from .tables import csv_files, json_files
    from .words import relative_path

    folder, texts = Path(out), texts or CsvTexts(False, warnings.warn)
    require_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    footer = f"Written by gramplane from {', '.join(relative_path(view.path) for view in views)}."
    files = {"report.html": page(views, footer, title), **csv_files(views, texts), **json_files(views)}
    for name in files:
        if str(folder / name) not in written:
            _refuse_foreign(folder / name)
    for name, text in files.items():
        replace_text(folder / name, text)
    texts.tell(str(folder))
    return Written(folder / "report.html", tuple(folder / name for name in files if name != "report.html"))


_MARKS = {".html": b"Written by gramplane from ", ".csv": b"run,", ".json": b'[\n {\n  "run": '}
"""Text that identifies files written by a report, by file extension: a CSV table or a JSON list begins with it, a page contains it."""


def _refuse_foreign(file: Path) -> None:
    """Raise ConfigError if ``file`` exists, is not empty and was not written by a report."""
    if not file.is_file():
        return
    text, mark = file.read_bytes(), _MARKS[file.suffix]
    if text and not (mark in text if file.suffix == ".html" else text.startswith(mark)):
        raise ConfigError(f"{file} was not written by a report and is not replaced; name another folder with --out")


__all__ = ["RunView", "Written", "view_run", "write_report", "write_views"]
