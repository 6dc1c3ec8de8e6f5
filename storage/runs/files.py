"""The JSON files of a run: each sealed by a crc32c, each with a way to get it back when its bytes changed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import DigestMismatch, MissingBlock
from ..objects import is_temporary_name
from ..value_types import Json
from .sealed_json import read_sealed

HISTORY = "history.jsonl"
_AGAIN = "continue the run (`gramplane resume`, of a grid the tune command again)"
REMEDIES = {
    "config": "it cannot be made again: give the command of the run with another run directory, or put the file back",
    "where": "remove it; the command of the run, given again, writes it anew",
    "decisions": f"remove it and {_AGAIN}: what it decided is decided again, which changes no result",
    "began": f"remove it and {_AGAIN}: nothing is compared with what the run began with, which is yours to know",
    "tables": f"remove it and summary.json and {_AGAIN}: both are written again from the last checkpoint",
    "summary": f"remove it and {_AGAIN}: it is written again from what is kept",
    "tune": f"remove it and summary.json and {_AGAIN}: fits that are done are not done again",
    "scores": "remove it; `gramplane score` writes the scores of a store again",
}
"""JSON files of a run by name, and what to do about a damaged one."""


def has_strangers(folder: Path, own: tuple[str, ...]) -> bool:
    """Return whether a folder holds anything but the names given and temporary files of writers."""
    return any(entry.name not in own and not is_temporary_name(entry.name) for entry in folder.iterdir())


def read_run_json(file: Path, *, required: bool) -> Json:
    """Return the content of a JSON file of a run, None if there is none; DigestMismatch says what can be done about a damaged one."""
    try:
        return read_sealed(file.read_bytes(), str(file), required=required)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise DigestMismatch(_with_remedy(f"{file} is a folder, and a file was written there", file.stem)) from error
    except DigestMismatch as error:
        raise DigestMismatch(_with_remedy(str(error), file.stem)) from error


def _with_remedy(message: str, name: str) -> str:
    remedy = REMEDIES.get(name)
    return message if remedy is None else f"{message}; {remedy}"


def read_lines(file: Path, *, required: bool) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield every line of a sealed history with its entry; a last line torn by a kill, which has no end, is left out.

    DigestMismatch at a damaged line. Of a run of format 1, whose lines have no checksum, lines that are no JSON object are left out.
    """
    try:
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    except IsADirectoryError as error:
        raise DigestMismatch(f"{file} is a folder, and a file was written there; remove it, the run goes on without its rows") from error
    if lines[-1][:1] in (b"", b"{"):
        lines.pop()  # what a kill leaves is the beginning of a record, or nothing
    for number, line in enumerate(lines, start=1):
        try:
            entry = read_sealed(line, f"{file}:{number}", required=required)
        except DigestMismatch as error:
            if not required and b'"crc32c"' not in line:
                continue
            raise DigestMismatch(f"{error}; {_cut_back(file, number)}") from error
        if isinstance(entry, dict):
            yield line, entry


def _cut_back(file: Path, number: int) -> str:
    return f"`sed -i '{number},$d' {file}` keeps the rows before it; checkpoints and model do not need them, so the run goes on as it is"


def checkpoint_names(folder: Path) -> list[str]:
    """Names of complete checkpoints of a run, newest first; the JSON file is the completion mark."""
    matches = (re.fullmatch(r"(\d{10})\.json", file.name) for file in (folder / "checkpoints").glob("*.json"))
    return sorted((match[1] for match in matches if match), reverse=True)


def missing_run(folder: Path) -> MissingBlock:
    """Return the error for a folder without a configuration."""
    return MissingBlock(f"{folder} holds no run (config.json is absent)")
