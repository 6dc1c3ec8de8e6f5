"""One folder per run: configuration, lock, checkpoints, history, broadcast arrays, model and events."""

import contextlib
import hashlib
import io
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import (
    DigestMismatch,
    Json,
    MissingBlock,
    OtherRun,
    SchemaError,
    StorageError,
    canonical_json,
    check_format,
    format_name,
    parse_json,
    space_for,
)
from ..locks import is_lock, lock_unless_done
from ..objects import sweep_temporaries, write_all, write_atomic
from ..places import parse_place
from ..records import dump_json, from_arrays, pack, to_arrays, unpack
from ..source import MAX_KEPT_BYTES, GenotypeSource, Source
from ..urls import check_name
from . import models
from .files import (
    HISTORY,
    LINE,
    REMEDIES,
    checkpoint_names,
    has_strangers,
    missing_run,
    read_lines,
    read_run_json,
    seal_file,
    seal_text,
)

KEPT_CHECKPOINTS = 2
KEPT_ARRAYS = 4
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArrayRef:
    """An array written once into a run folder, identified by the sha256 of its file; tasks receive this reference in place of a large
    vector.
    """

    path: str
    digest: str
    nbytes: int

    def __reduce__(self) -> tuple[type["ArrayRef"], tuple[str, str, int]]:
        return ArrayRef, (self.path, self.digest, self.nbytes)

    def load(self) -> npt.NDArray[Any]:
        """Return the array. The newest array of each name is cached and shared in the process, so it must not be modified."""
        name = self.path.rpartition("=")[0]
        newest = _newest.get(name)
        if newest is None or newest[0] != self.digest:
            newest = _newest[name] = (self.digest, self._read())
        return newest[1]

    def _read(self) -> npt.NDArray[Any]:
        try:
            data = Path(self.path).read_bytes()
        except FileNotFoundError as error:
            raise MissingBlock(
                f"array {self.path} is absent: it was removed, or the run folder is not shared with this computer"
            ) from error
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise DigestMismatch(f"array {self.path}, bytes 0:{len(data)}: the content does not have the digest {self.digest}")
        return np.load(io.BytesIO(data), allow_pickle=False)


_newest: dict[str, tuple[str, npt.NDArray[Any]]] = {}


class RunStore:
    """The folder of one run; use `create` or `open`. Reading needs no lock; writers hold `lock`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.born = False

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: Mapping[str, Any]) -> "RunStore":
        """Create the folder of a run, or open it if it was created with the same configuration. To write to it, use `begin` instead."""
        run = cls(_run_folder(path))
        if not run._was_made(_plain_json(config)):
            with cls.begin(path, config):
                pass
        return run

    @classmethod
    @contextmanager
    def begin(cls, path: str | os.PathLike[str], config: Mapping[str, Any]) -> Iterator["RunStore"]:
        """Create the folder of a run, or open an existing one with the same configuration, and hold its lock during the block.

        If several processes begin one run at the same time, one creates it; its lock is the first file, so the others are rejected. The
        attribute ``born`` says whether this call wrote the configuration. Raises RunLocked, naming pid, host and start time, if another
        process holds the run; OtherRun, with the differing keys, if the folder holds a run with another configuration; SchemaError if it
        holds other files.
        """
        run, requested = cls(_run_folder(path)), _plain_json(config)
        run._refuse_strangers()
        with space_for(run.path, 0):
            run.path.mkdir(parents=True, exist_ok=True)
        with run.lock():
            if not run._was_made(requested):
                if has_strangers(run.path, ("lock",)):
                    raise _foreign_files_error(run.path)
                run.write_config(requested)
                run.born = True
            yield run

    def _was_made(self, wanted: Mapping[str, Any]) -> bool:
        """Return whether the folder already holds a run with this configuration. Raises OtherRun if it holds a run with another one."""
        if not (self.path / "config.json").exists():
            return False
        stored = self.config
        differing = sorted(key for key in {*stored, *wanted} if stored.get(key) != wanted.get(key) or (key in stored) != (key in wanted))
        if differing:
            raise OtherRun(f"{self.path} holds a run with another configuration (different: {', '.join(differing)}); use another folder")
        return True

    def _refuse_strangers(self) -> None:
        # A run in birth has its lock before anything else and its configuration before all but the lock: with either, the lock decides.
        if not self.path.is_dir() or not has_strangers(self.path, ("lock",)):
            return
        if not (self.path / "config.json").exists() and not is_lock(self.path / "lock"):
            raise _foreign_files_error(self.path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "RunStore":
        """Open the folder of a run. Raises MissingBlock if there is none, DigestMismatch if its configuration is damaged."""
        run = cls(_run_folder(path))
        _ = run.config
        return run

    @property
    def config(self) -> dict[str, Any]:
        """The configuration with which the run was created."""
        return self._head()["config"]

    def _head(self) -> dict[str, Any]:
        file = self.path / "config.json"
        try:
            fields = read_run_json(file)
        except NotADirectoryError as error:
            raise missing_run(self.path) from error
        if fields is None:
            raise missing_run(self.path)
        known = isinstance(fields, dict) and isinstance(fields.get("config"), dict)
        check_format(fields.get("format") if known else None, "run", file, "fit again")
        return fields

    def check(self) -> None:
        """Check all JSON files of the run against their checksums. Raises DigestMismatch, with the remedy, for the first damaged one."""
        for name in REMEDIES:
            read_run_json(self.path / f"{name}.json")
        for _ in read_lines(self.path / HISTORY):
            pass

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replace the configuration, atomically."""
        self._write("config.json", seal_file({"format": format_name("run"), "config": dict(config)}))

    def write_json(self, name: str, value: Mapping[str, Any] | list[Any]) -> None:
        """Write a small JSON file ``NAME.json`` of the run with its checksum, atomically."""
        self._write(f"{check_name(name, 'file name')}.json", seal_file(value))

    def read_json(self, name: str) -> Json:
        """Return the value written by `write_json`, or None. Raises DigestMismatch, with the remedy, if the file is damaged."""
        return read_run_json(self.path / f"{check_name(name, 'file name')}.json")

    def _write(self, name: str, data: bytes) -> None:
        write_atomic(str(self.path / name), (data,), fsync=True)

    @contextmanager
    def lock(self) -> Iterator["RunStore"]:
        """Hold the run during the block. First remove files that a killed writer left half-written or half-removed.

        A finished run that cannot be written to (on a read-only disk, for example) needs no lock, because nothing is left to do.
        """
        with lock_unless_done(self.path / "lock", self._is_finished) as is_locked:
            if is_locked:
                sweep_temporaries(self.path)
                self._drop_checkpoints()
            yield self

    def _is_finished(self) -> bool:
        return (self.path / "config.json").is_file() and self.read_json("summary") is not None

    def reset(self) -> None:
        """Remove everything except the configuration: checkpoints, history, events, arrays, model and calibration (to restart the run)."""
        for name in ("checkpoints", "arrays", "scratch", "model", "source", "calibration", "row-map"):
            self._remove_folder(name)
        for file in self.path.iterdir():
            if file.suffix in (".json", ".jsonl", ".log") and file.name != "config.json":
                file.unlink()

    @property
    def scratch(self) -> Path:
        """Return the folder for files that a run needs only while it computes; they can be recreated at any time."""
        return self.path / "scratch"

    def drop_scratch(self) -> None:
        """Remove the scratch folder, if it exists."""
        self._remove_folder("scratch")

    def _remove_folder(self, name: str) -> None:
        if (self.path / name).exists():
            shutil.rmtree(self.path / name)

    def withdraw(self) -> None:
        """Remove the configuration as well, so that the folder can be used for another run."""
        self.reset()
        (self.path / "config.json").unlink(missing_ok=True)

    def save_checkpoint(self, iteration: int, state: object, about: Mapping[str, Any] | None = None) -> None:
        """Write the state after ``iteration`` iterations, and the JSON values ``about`` it. The last two checkpoints are kept, even if the
        disk is full.
        """
        named_arrays, value = to_arrays(state)
        arrays, index = pack(named_arrays)
        packed = io.BytesIO()
        # names are keywords of savez: the prefix keeps a field called "file" from meaning its first parameter
        named: dict[str, Any] = {f"x.{name}": array for name, array in arrays.items()}
        np.savez(packed, **named)
        data = packed.getbuffer()
        name = f"{iteration:010d}"
        fields = {"format": format_name("checkpoint"), "iteration": iteration, "sha256": hashlib.sha256(data).hexdigest()}
        fields |= {"state": value, "about": dict(about or {}), "packed": index}
        fields["digest"] = hashlib.sha256(canonical_json(fields)).hexdigest()
        write_atomic(str(self.path / "checkpoints" / f"{name}.npz"), (np.frombuffer(data, np.uint8),), fsync=True)
        self._write(f"checkpoints/{name}.json", canonical_json(fields))
        self._drop_checkpoints()

    def _drop_checkpoints(self) -> None:
        newest = set(checkpoint_names(self.path)[:KEPT_CHECKPOINTS])
        files = [file for file in (self.path / "checkpoints").glob("*") if file.stem not in newest and file.suffix in (".json", ".npz")]
        for file in sorted(files, key=lambda f: f.suffix):  # the mark goes first, so that a half-removed checkpoint is none
            file.unlink(missing_ok=True)

    def load_checkpoint(self, cls: type[T]) -> tuple[int, T] | None:
        """Return (iteration, state) of the newest intact checkpoint, or None if none was written. Raises DigestMismatch if all
        are damaged.
        """
        names, damage = checkpoint_names(self.path), []
        for name in names:
            try:
                fields, arrays = self._read_checkpoint(name)
            except StorageError as error:
                log.warning("checkpoint %s is damaged, trying the one before: %s", name, error)
                damage.append(str(error))
                continue
            return int(fields["iteration"]), from_arrays(cls, arrays, fields["state"])
        if damage:
            raise DigestMismatch(f"all checkpoints of {self.path} are damaged: {'; '.join(damage)}")
        return None

    def checkpoint_about(self) -> dict[str, Any] | None:
        """Return the ``about`` of the newest intact checkpoint, or None."""
        for name in checkpoint_names(self.path):
            with contextlib.suppress(StorageError):
                return self._read_checkpoint(name)[0]["about"]
        return None

    def _read_checkpoint(self, name: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        stem = self.path / "checkpoints" / name
        try:
            text, data = stem.with_suffix(".json").read_bytes(), stem.with_suffix(".npz").read_bytes()
        except FileNotFoundError as error:
            raise MissingBlock(f"{error.filename} is absent: the checkpoint is incomplete") from error
        except IsADirectoryError as error:
            raise MissingBlock(f"{error.filename} is a folder, but must be a file") from error
        fields = parse_json(text, f"{stem}.json")
        stated = fields.pop("digest", None)
        if stated != hashlib.sha256(canonical_json(fields)).hexdigest() or fields.get("format") != format_name("checkpoint"):
            raise DigestMismatch(f"{stem}.json does not match its digest {stated!r}, or is not of the format {format_name('checkpoint')!r}")
        if hashlib.sha256(data).hexdigest() != fields["sha256"]:
            raise DigestMismatch(f"{stem}.npz, bytes 0:{len(data)}: the content does not have the digest {fields['sha256']}")
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return fields, unpack({key.removeprefix("x."): stored[key] for key in stored.files}, fields["packed"])

    def append_history(self, entry: Mapping[str, Any]) -> None:
        """Add a line with its checksum to ``history.jsonl``; infinities and NaN become null."""
        line, path = seal_text(dump_json(entry), LINE) + b"\n", self.path / HISTORY
        with space_for(path, len(line)):
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                write_all(fd, line)
            finally:
                os.close(fd)

    def history(self) -> list[dict[str, Any]]:
        """Return the entries of ``history.jsonl`` without an incomplete last line. Raises DigestMismatch for a damaged line."""
        return [entry for _, entry in read_lines(self.path / HISTORY)]

    def truncate_history(self, iteration: int) -> None:
        """Truncate ``history.jsonl`` before the first entry whose "iteration" exceeds ``iteration``; called when a run resumes."""
        lines = []
        for line, entry in read_lines(self.path / HISTORY):
            if (entry.get("iteration") or 0) > iteration:
                break
            lines.append(line + b"\n")
        if lines or (self.path / HISTORY).exists():
            self._write(HISTORY, b"".join(lines))

    def put_array(self, name: str, array: npt.NDArray[Any], keep: int = KEPT_ARRAYS) -> ArrayRef:
        """Write an array, unless it exists, under its name and the digest of its content. Of the older arrays of this name, ``keep`` - 1
        are kept.
        """
        check_name(name, "array name")
        packed = io.BytesIO()
        np.save(packed, array, allow_pickle=False)
        digest = hashlib.sha256(packed.getbuffer()).hexdigest()
        path = self.path / "arrays" / f"{name}={digest[:32]}.npy"
        if path.exists():
            os.utime(path)
        else:
            write_atomic(str(path), (np.frombuffer(packed.getbuffer(), np.uint8),), fsync=False)
        others = [file for file in path.parent.glob(f"{name}=*.npy") if file != path]
        others.sort(key=lambda file: file.stat().st_mtime_ns, reverse=True)
        for old in others[max(0, keep - 1) :]:
            old.unlink(missing_ok=True)
        return ArrayRef(str(path), digest, array.nbytes)

    def write_model(self, record: object) -> str:
        """Write the model of the run, replacing an existing one; return its digest."""
        self._remove_folder("model")
        return models.write_model(self.path / "model", record)

    def write_source(self, source: Source) -> None:
        """Record how the training data were read. If the record exceeds 64 MiB, omit names, groups and factors."""
        self._remove_folder("source")
        models.write_model(self.path / "source", source if source.nbytes <= MAX_KEPT_BYTES else source.bare())

    def read_source(self) -> Source:
        """Return how the training data were read."""
        return models.read_model(self.path / "source", (Source, GenotypeSource))

    def read_model(self, cls: type[T] | Sequence[type[T]]) -> T:
        """Read the model of the run (see `gramplane.storage.runs.models.read_model`)."""
        return models.read_model(self.path / "model", cls)


def _plain_json(config: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(canonical_json(dict(config)))


def _foreign_files_error(path: Path) -> SchemaError:
    return SchemaError(f"{path} is a folder with files that are not a run; choose an empty place")


def _run_folder(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(parse_place(path, "run", "run").text))
