"""The JSON files of a run. The last key of each file holds the file's checksum, a crc32c; `REMEDIES` says what to do if a file is damaged.

The text stays plain JSON for any reader. The checksum covers the bytes before it, so even a changed space is noticed.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ..blocks.arrays import crc32c
from ..errors import DigestMismatch, Json, MissingBlock, NothingThere, SchemaError, canonical_json, format_name, load_json
from ..manifest import read_seal
from ..objects import file_digest, is_temporary_name, write_atomic
from ..urls import check_name, holds_store, local_path, open_object, open_objects
from ..versions import open_version

KEY = "crc32c"
ROWS = "rows"
"""Key under which a list is stored, because a sealed file must be a JSON object."""

FILE, LINE = b',\n "crc32c": "%08x"\n}', b',"crc32c":"%08x"}'
_SEAL = re.compile(rb',?\n? ?"crc32c": ?"[0-9a-f]{8}"\n?\}\Z')

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
"""JSON files of a run by name, with the remedy for a damaged one."""


def seal_file(value: Mapping[str, Any] | list[Any]) -> bytes:
    """Return the text of a sealed JSON file; a list becomes ``{"rows": [...]}``. Raises SchemaError if JSON cannot represent the value."""
    fields = dict(value) if isinstance(value, Mapping) else {ROWS: value}
    try:
        return seal_text(json.dumps(fields, indent=1).encode(), FILE)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"value cannot be written as JSON: {error}") from error


def seal_text(text: bytes, form: bytes) -> bytes:
    """Return the text of a JSON object with its checksum as last key, formatted as a file or as a line; the object must not have this key
    itself.
    """
    body = text[:-1].rstrip()
    if f'"{KEY}":'.encode() in body and KEY in json.loads(text):
        raise SchemaError(f"a record has the key {KEY!r}, which belongs to its checksum")
    return body + _make_seal(body, form)


def _make_seal(body: bytes, form: bytes) -> bytes:
    seal = form % crc32c(body)
    return seal.lstrip(b",") if body == b"{" else seal


def read_sealed(data: bytes, where: str) -> Json:
    """Return the value written by `seal_file` or `seal_text`. Raises DigestMismatch if it is not JSON or its checksum is wrong."""
    seal = _SEAL.search(data, max(0, len(data) - 32))
    if seal is None:
        raise DigestMismatch(f"{where} does not end with its crc32c: it is cut short or changed")
    body = data[: seal.start()]
    if data[seal.start() :] not in (_make_seal(body, FILE), _make_seal(body, LINE)):
        raise DigestMismatch(f"{where}: the content does not have the crc32c it states")
    try:
        value = load_json(data, where)
    except SchemaError as error:
        raise DigestMismatch(str(error)) from error
    if isinstance(value, dict) and value.pop(KEY, None) is not None and set(value) == {ROWS}:
        return value[ROWS]
    return value


def has_strangers(folder: Path, own: tuple[str, ...]) -> bool:
    """Return whether a folder holds anything other than the given names and temporary files of writers."""
    return any(entry.name not in own and not is_temporary_name(entry.name) for entry in folder.iterdir())


def read_run_json(file: Path) -> Json:
    """Read a JSON file of a run; None if there is none. Raises DigestMismatch, with the remedy, if it is damaged."""
    return _read_file(file, REMEDIES.get(file.stem))


def _read_file(file: Path, remedy: str | None) -> Json:
    advice = f"; {remedy}" if remedy else ""
    try:
        return read_sealed(file.read_bytes(), str(file))
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise DigestMismatch(f"{file} is a folder, but must be a file{advice}") from error
    except DigestMismatch as error:
        raise DigestMismatch(f"{error}{advice}") from error


def read_lines(file: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield each line of a sealed history with the entry in it. An incomplete last line, left by a killed writer, is skipped.

    Raises DigestMismatch for a damaged line.
    """
    try:
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    except IsADirectoryError as error:
        raise DigestMismatch(
            f"{file} is a folder, but must be a file; remove the folder, and the run continues without the rows of this file"
        ) from error
    if lines[-1][:1] in (b"", b"{"):
        lines.pop()  # what a kill leaves is the beginning of a record, or nothing
    for number, line in enumerate(lines, start=1):
        try:
            entry = read_sealed(line, f"{file}:{number}")
        except DigestMismatch as error:
            advice = f"keep the rows before this line with `sed -i '{number},$d' {file}`; the run does not need the later rows"
            raise DigestMismatch(f"{error}; {advice}") from error
        if isinstance(entry, dict):
            yield line, entry


def checkpoint_names(folder: Path) -> list[str]:
    """Return the names of complete checkpoints of a run, newest first; a checkpoint is complete once its JSON file exists."""
    matches = (re.fullmatch(r"(\d{10})\.json", file.name) for file in (folder / "checkpoints").glob("*.json"))
    return sorted((match[1] for match in matches if match), reverse=True)


def missing_run(folder: Path) -> MissingBlock:
    """Return the error for a folder without a configuration."""
    return MissingBlock(f"{folder} holds no run (config.json is absent)")


# Step manifests: what a workflow step read, with which parameters, what it wrote; the base of skipping finished steps.

Status = Literal["running", "done", "failed"]


@dataclass(frozen=True)
class StepManifest:
    """Record of one step of a workflow: digests of inputs and outputs by path or URL (see `digest_of`), times in ISO form (UTC)."""

    step: str
    inputs: Mapping[str, str]
    params: Mapping[str, Any]
    outputs: Mapping[str, str] = field(default_factory=dict)
    status: Status = "running"
    started: str = ""
    finished: str = ""
    message: str = ""

    def __post_init__(self) -> None:
        check_name(self.step, "step id")
        if self.status not in ("running", "done", "failed"):
            raise SchemaError(f"status is {self.status!r}; it must be running, done or failed")

    @property
    def key(self) -> str:
        """The sha256 (hex) of step, inputs and parameters. Steps with the same key do the same work."""
        return hashlib.sha256(canonical_json([self.step, dict(self.inputs), dict(self.params)])).hexdigest()

    @classmethod
    def begin(cls, step: str, inputs: Mapping[str, str], params: Mapping[str, Any]) -> "StepManifest":
        """Return the manifest of a step that starts now."""
        return cls(step, dict(inputs), json.loads(canonical_json(dict(params))), started=_time_now())

    def done(self, outputs: Mapping[str, str]) -> "StepManifest":
        """Return the manifest of the same step, finished now with these outputs."""
        return replace(self, outputs=dict(outputs), status="done", finished=_time_now())

    def failed(self, message: str) -> "StepManifest":
        """Return the manifest of the same step, failed now."""
        return replace(self, status="failed", finished=_time_now(), message=message)

    def covers(self, wanted: "StepManifest") -> bool:
        """Return whether this step is done, with the inputs and parameters of ``wanted``, and whether its outputs are unchanged."""
        if self.status != "done" or self.key != wanted.key:
            return False
        with suppress(MissingBlock):
            return all(digest_of(path) == digest for path, digest in self.outputs.items())
        return False

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the manifest, atomically."""
        write_sealed(path, {"format": format_name("step"), **asdict(self)})

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "StepManifest | None":
        """Read a manifest; None if there is none. Raises DigestMismatch if it is damaged, SchemaError if it has another form."""
        stored = read_step_json(path)
        if stored is None:
            return None
        kind = stored.pop("format", None) if isinstance(stored, dict) else None
        if kind != format_name("step") or set(stored) != {f.name for f in fields(cls)}:
            raise SchemaError(f"{os.fspath(path)} is no step manifest of format {format_name('step')!r}; remove it to run the step again")
        return cls(**stored)


def write_sealed(path: str | os.PathLike[str], value: Mapping[str, Any] | list[Any]) -> None:
    """Write a JSON file with its checksum, atomically."""
    write_atomic(os.path.abspath(path), (seal_file(value),), fsync=True)


def read_step_json(path: str | os.PathLike[str]) -> Json:
    """Read a JSON file of a workflow step; None if there is none. Raises DigestMismatch if it is damaged."""
    return _read_file(Path(path), "remove it: the step runs again, finished runs and stores are found as they are")


def digest_of(path: str | os.PathLike[str]) -> str:
    """Return the digest of a path or URL: the digest in the manifest of a store or model, or the sha256 of a file or of a folder's files.

    Raises MissingBlock if nothing exists there.
    """
    local = local_path(path)
    if local is None and not holds_store(path):
        return _object_digest(os.fspath(path))
    if local is None or (local.is_dir() and holds_store(path)):
        return read_seal(open_version(open_objects(path)).objects)[1]
    if local.is_file():
        return file_digest(local)
    if not local.is_dir():
        raise MissingBlock(f"{local} does not exist")
    files = sorted(file for file in local.rglob("*") if file.is_file())
    return hashlib.sha256(canonical_json([[str(file.relative_to(local)), file_digest(file)] for file in files])).hexdigest()


def _object_digest(url: str) -> str:
    objects, key = open_object(url)
    digest = hashlib.sha256()
    try:
        for piece in objects.pieces(key):
            digest.update(piece)
    except NothingThere as error:
        raise MissingBlock(str(error)) from error
    return digest.hexdigest()


def _time_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
