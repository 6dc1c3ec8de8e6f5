"""Step manifests: what a workflow step read, with which parameters, what it wrote; the base of skipping finished steps."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ..blocks.arrays import canonical_json
from ..errors import DigestMismatch, MissingBlock, NothingThere, SchemaError
from ..manifest import read_seal
from ..objects import write_atomic
from ..urls import check_name, holds_store, local_path, open_object, open_objects
from ..value_types import Json
from ..versions import open_version
from .files import read_sealed, seal_file

FORMAT = "gramplane.step/2"

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
        """sha256 (hex) of step, inputs and parameters: two steps with the same key do the same work."""
        return hashlib.sha256(canonical_json([self.step, dict(self.inputs), dict(self.params)])).hexdigest()

    @classmethod
    def begin(cls, step: str, inputs: Mapping[str, str], params: Mapping[str, Any]) -> "StepManifest":
        """Manifest of a step that starts now."""
        return cls(step, dict(inputs), json.loads(canonical_json(dict(params))), started=_time_now())

    def done(self, outputs: Mapping[str, str]) -> "StepManifest":
        """The same step, finished now with these outputs."""
        return replace(self, outputs=dict(outputs), status="done", finished=_time_now())

    def failed(self, message: str) -> "StepManifest":
        """The same step, failed now."""
        return replace(self, status="failed", finished=_time_now(), message=message)

    def covers(self, wanted: "StepManifest") -> bool:
        """Whether this step is done, had the inputs and parameters of ``wanted``, and its outputs are still there unchanged."""
        if self.status != "done" or self.key != wanted.key:
            return False
        with suppress(MissingBlock):
            return all(digest_of(path) == digest for path, digest in self.outputs.items())
        return False

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the manifest, atomically."""
        write_sealed(path, {"format": FORMAT, **asdict(self)})

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "StepManifest | None":
        """Read a manifest; None if there is none. DigestMismatch if it is damaged, SchemaError if it is of another form."""
        stored = read_step_json(path)
        if stored is None:
            return None
        kind = stored.pop("format", None) if isinstance(stored, dict) else None
        if kind != FORMAT or set(stored) != {f.name for f in fields(cls)}:
            raise SchemaError(f"{os.fspath(path)} is not a step manifest of format {FORMAT!r}; remove it to run the step again")
        return cls(**stored)


def write_sealed(path: str | os.PathLike[str], value: Mapping[str, Any] | list[Any]) -> None:
    """Write a JSON file with its checksum, atomically."""
    write_atomic(os.path.abspath(path), (seal_file(value),), fsync=True)


def read_step_json(path: str | os.PathLike[str]) -> Json:
    """Read a JSON file of a workflow step; None if there is none, DigestMismatch if it is damaged."""
    location = os.fspath(path)
    try:
        return read_sealed(Path(path).read_bytes(), location)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise DigestMismatch(f"{location} is a folder, and a file was written there; remove it: the step runs again") from error
    except DigestMismatch as error:
        raise DigestMismatch(f"{error}; remove it: the step runs again, finished runs and stores are found as they are") from error


def digest_of(path: str | os.PathLike[str]) -> str:
    """Digest of a path or URL: of the manifest of a store or model, sha256 of a file or of a folder's files; MissingBlock if none."""
    local = local_path(path)
    if local is None and not holds_store(path):
        return _object_digest(os.fspath(path))
    if local is None or (local.is_dir() and holds_store(path)):
        return read_seal(open_version(open_objects(path)).objects)[1]
    if local.is_file():
        return _file_digest(local)
    if not local.is_dir():
        raise MissingBlock(f"{local} does not exist")
    files = sorted(file for file in local.rglob("*") if file.is_file())
    return hashlib.sha256(canonical_json([[str(file.relative_to(local)), _file_digest(file)] for file in files])).hexdigest()


def _object_digest(url: str) -> str:
    objects, key = open_object(url)
    digest = hashlib.sha256()
    try:
        for piece in objects.pieces(key):
            digest.update(piece)
    except NothingThere as error:
        raise MissingBlock(str(error)) from error
    return digest.hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _time_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
