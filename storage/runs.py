"""One folder per run: configuration, lock, checkpoints, history, broadcast arrays, model, events."""

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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from . import models
from .arrays import canonical, parse_json
from .errors import DigestMismatch, MissingBlock, SchemaError, StorageError, space_for
from .locks import file_lock
from .objects import sweep_temporaries, write_all, write_atomic
from .packing import pack, unpack
from .records import dumps, from_arrays, to_arrays
from .urls import check_name, local_path

CONFIG_FORMAT = "gramplane.run/1"
CHECKPOINT_FORMAT = "gramplane.checkpoint/1"
KEPT_CHECKPOINTS = 2
KEPT_ARRAYS = 4
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArrayRef:
    """An array written once into a run folder, by content: what tasks receive instead of a large vector.

    Attributes
    ----------
    path : str
        The file.
    digest : str
        sha256 of the file.
    nbytes : int
        Bytes of the array.
    """

    path: str
    digest: str
    nbytes: int

    def __reduce__(self) -> tuple[type["ArrayRef"], tuple[str, str, int]]:
        return ArrayRef, (self.path, self.digest, self.nbytes)

    def load(self) -> npt.NDArray[Any]:
        """Return the array; the newest of every name is kept in the process and shared, so nobody may change it.

        Raises
        ------
        MissingBlock
            If the file was swept or the run folder is not visible from here.
        DigestMismatch
            If its bytes changed.
        """
        name = self.path.rpartition("=")[0]
        found = _newest.get(name)
        if found is None or found[0] != self.digest:
            found = _newest[name] = (self.digest, self._read())
        return found[1]

    def _read(self) -> npt.NDArray[Any]:
        try:
            data = Path(self.path).read_bytes()
        except FileNotFoundError as error:
            raise MissingBlock(f"array {self.path} is absent: it was swept, or the run folder is not shared with this machine") from error
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise DigestMismatch(f"array {self.path}, bytes 0:{len(data)}: the content does not have the digest {self.digest}")
        return np.load(io.BytesIO(data), allow_pickle=False)


_newest: dict[str, tuple[str, npt.NDArray[Any]]] = {}


class RunStore:
    """The folder of one run. Reading needs no lock; whoever writes holds `lock`.

    Parameters
    ----------
    path : path
        The folder; use `create` or `open`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: Mapping[str, Any]) -> "RunStore":
        """Make the folder of a run, or open it if it was made with the same configuration.

        Parameters
        ----------
        path : path
            The folder.
        config : mapping
            JSON values: method, parameters, digests of inputs, ….

        Raises
        ------
        SchemaError
            If the folder holds a run of another configuration (the differing keys are listed), or other files.
        OutOfSpace
            If the disk is full.
        """
        run = cls(_folder(path))
        wanted = json.loads(canonical(dict(config)))
        if (run.path / "config.json").exists():
            found = run.config
            differing = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key) or (key in found) != (key in wanted))
            if differing:
                raise SchemaError(
                    f"{run.path} holds a run with another configuration; differing: {', '.join(differing)}: use another folder"
                )
            return run
        if run.path.exists() and any(entry.name != "lock" for entry in run.path.iterdir()):
            raise SchemaError(f"{run.path} is a folder with files that are not a run; choose an empty place")
        with space_for(run.path, 0):
            run.path.mkdir(parents=True, exist_ok=True)
        run.write_config(wanted)
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "RunStore":
        """Open the folder of a run.

        Raises
        ------
        MissingBlock
            If there is no run.
        SchemaError
            If its format is unknown.
        """
        run = cls(_folder(path))
        _ = run.config
        return run

    @property
    def config(self) -> dict[str, Any]:
        """The configuration the run was made with."""
        where = self.path / "config.json"
        try:
            fields = parse_json(where.read_bytes(), str(where))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingBlock(f"{self.path} holds no run (config.json is absent)") from error
        if fields.get("format") != CONFIG_FORMAT or not isinstance(fields.get("config"), dict):
            raise SchemaError(f"{where} has the format {fields.get('format')!r}; this version reads {CONFIG_FORMAT!r}")
        return fields["config"]

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replace the configuration, atomically."""
        self._write("config.json", json.dumps({"format": CONFIG_FORMAT, "config": dict(config)}, indent=1, sort_keys=True).encode())

    def write_json(self, name: str, value: Any) -> None:
        """Write a small JSON file ``NAME.json`` of the run, atomically."""
        self._write(f"{check_name(name, 'file name')}.json", json.dumps(value, indent=1).encode())

    def read_json(self, name: str) -> Any | None:
        """Return what `write_json` wrote, or None.

        Raises
        ------
        DigestMismatch
            If the file is not valid JSON.
        """
        where = self.path / f"{check_name(name, 'file name')}.json"
        try:
            return json.loads(where.read_bytes()) if where.exists() else None
        except ValueError as error:
            raise DigestMismatch(f"{where} is not valid JSON: {error}") from error

    def _write(self, name: str, data: bytes) -> None:
        write_atomic(str(self.path / name), (data,), fsync=True)

    @contextmanager
    def lock(self) -> Iterator["RunStore"]:
        """Hold the run for the duration of the block; what a killed writer left half-written or half-removed is removed first.

        Raises
        ------
        RunLocked
            If another process holds it, naming pid, host and starting time.
        """
        with file_lock(self.path / "lock"):
            sweep_temporaries(self.path)
            self._drop_checkpoints()
            yield self

    def reset(self) -> None:
        """Forget everything but the configuration: checkpoints, history, events, arrays and model (to start the run anew)."""
        for name in ("checkpoints", "arrays", "scratch", "model"):
            if (self.path / name).exists():
                shutil.rmtree(self.path / name)
        for file in self.path.iterdir():
            if file.suffix in (".json", ".jsonl", ".log") and file.name != "config.json":
                file.unlink()

    @property
    def scratch(self) -> Path:
        """Folder of what a run needs only while it computes; it may be made anew at any time."""
        return self.path / "scratch"

    def drop_scratch(self) -> None:
        """Remove the scratch folder, if there is one."""
        if self.scratch.exists():
            shutil.rmtree(self.scratch)

    def withdraw(self) -> None:
        """Forget the configuration, too: the folder can be used for another run."""
        self.reset()
        (self.path / "config.json").unlink(missing_ok=True)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _checkpoint_names(self) -> list[str]:
        """Names of complete checkpoints, newest first; the JSON file is the completion mark."""
        return sorted((file.stem for file in (self.path / "checkpoints").glob("*.json")), reverse=True)

    def save_checkpoint(self, iteration: int, state: Any, about: Mapping[str, Any] | None = None) -> None:
        """Write the state after an iteration; the last two are kept.

        Parameters
        ----------
        iteration : int
            Number of finished iterations.
        state : dataclass
            Anything `to_arrays` takes.
        about : mapping, optional
            Further JSON values, such as digests and seeds; see `checkpoint_about`.

        Raises
        ------
        OutOfSpace
            If the disk is full; earlier checkpoints stay valid.
        """
        named_arrays, value = to_arrays(state)
        arrays, index = pack(named_arrays)
        packed = io.BytesIO()
        # names are keywords of savez: the prefix keeps a field called "file" from meaning its first parameter
        named: dict[str, Any] = {f"x.{name}": array for name, array in arrays.items()}
        np.savez(packed, **named)
        data = packed.getbuffer()
        name = f"{iteration:010d}"
        fields = {
            "format": CHECKPOINT_FORMAT,
            "iteration": iteration,
            "sha256": hashlib.sha256(data).hexdigest(),
            "state": value,
            "about": dict(about or {}),
            "packed": index,
        }
        fields["digest"] = hashlib.sha256(canonical(fields)).hexdigest()
        write_atomic(str(self.path / "checkpoints" / f"{name}.npz"), (np.frombuffer(data, np.uint8),), fsync=True)
        self._write(f"checkpoints/{name}.json", canonical(fields))
        self._drop_checkpoints()

    def _drop_checkpoints(self) -> None:
        kept = set(self._checkpoint_names()[:KEPT_CHECKPOINTS])
        files = [file for file in (self.path / "checkpoints").glob("*") if file.stem not in kept and file.suffix in (".json", ".npz")]
        for file in sorted(files, key=lambda f: f.suffix):  # the mark goes first, so that a half-removed checkpoint is none
            file.unlink(missing_ok=True)

    def load_checkpoint(self, cls: type[T]) -> tuple[int, T] | None:
        """Newest sound checkpoint: (iteration, state), or None if none was written.

        Raises
        ------
        DigestMismatch
            If every checkpoint there is damaged.
        SchemaError
            If the state is of another class or version.
        """
        names, damage = self._checkpoint_names(), []
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
        """The ``about`` of the newest sound checkpoint, or None."""
        for name in self._checkpoint_names():
            with contextlib.suppress(StorageError):
                return self._read_checkpoint(name)[0]["about"]
        return None

    def _read_checkpoint(self, name: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        where = self.path / "checkpoints" / name
        try:
            text, data = where.with_suffix(".json").read_bytes(), where.with_suffix(".npz").read_bytes()
        except FileNotFoundError as error:
            raise MissingBlock(f"{error.filename} is absent: the checkpoint is incomplete") from error
        fields = parse_json(text, f"{where}.json")
        stated = fields.pop("digest", None)
        if stated != hashlib.sha256(canonical(fields)).hexdigest() or fields.get("format") != CHECKPOINT_FORMAT:
            raise DigestMismatch(f"{where}.json does not have its digest {stated!r} and the format {CHECKPOINT_FORMAT!r}")
        if hashlib.sha256(data).hexdigest() != fields["sha256"]:
            raise DigestMismatch(f"{where}.npz, bytes 0:{len(data)}: the content does not have the digest {fields['sha256']}")
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return fields, unpack({key.removeprefix("x."): stored[key] for key in stored.files}, fields["packed"])

    # -- logs --------------------------------------------------------------------------------------------------------

    def append_history(self, entry: Mapping[str, Any]) -> None:
        """Add a line to ``history.jsonl``; infinities and NaN become null."""
        self._append("history.jsonl", entry)

    def log_event(self, event: Mapping[str, Any]) -> None:
        """Add a line with the present time to ``events.log``."""
        self._append("events.log", {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **event})

    def _append(self, name: str, entry: Mapping[str, Any]) -> None:
        line = dumps(entry) + b"\n"
        path = self.path / name
        with space_for(path, len(line)):
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                write_all(fd, line)
            finally:
                os.close(fd)

    def history(self) -> list[dict[str, Any]]:
        """Entries of ``history.jsonl``; a line torn by a kill is left out."""
        return [entry for _, entry in self._history_lines()]

    def _history_lines(self) -> list[tuple[bytes, dict[str, Any]]]:
        path = self.path / "history.jsonl"
        found = []
        for line in path.read_bytes().splitlines() if path.exists() else []:
            with contextlib.suppress(SchemaError):
                found.append((line, parse_json(line, str(path))))
        return found

    def truncate_history(self, iteration: int) -> None:
        """Cut ``history.jsonl`` before the first entry whose "iteration" is larger; called on resume."""
        kept = []
        for line, entry in self._history_lines():
            if (entry.get("iteration") or 0) > iteration:
                break
            kept.append(line + b"\n")
        if kept or (self.path / "history.jsonl").exists():
            self._write("history.jsonl", b"".join(kept))

    # -- arrays and model --------------------------------------------------------------------------------------------

    def put_array(self, name: str, array: npt.NDArray[Any], keep: int = KEPT_ARRAYS) -> ArrayRef:
        """Write an array once, under its content's digest; older arrays of the name are removed.

        Parameters
        ----------
        name : str
            What it is, such as "alpha"; [A-Za-z0-9._-]{1,128}.
        array : ndarray
            Numbers.
        keep : int
            Arrays of this name that stay.

        Raises
        ------
        OutOfSpace
            If the disk is full.
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
        self._drop_arrays(path, keep)
        return ArrayRef(str(path), digest, array.nbytes)

    def _drop_arrays(self, newest: Path, keep: int) -> None:
        others = [file for file in newest.parent.glob(f"{newest.name.partition('=')[0]}=*.npy") if file != newest]
        others.sort(key=lambda file: file.stat().st_mtime_ns, reverse=True)
        for old in others[max(0, keep - 1) :]:
            old.unlink(missing_ok=True)

    def write_model(self, record: Any) -> str:
        """Write the model of the run (see `gramplane.storage.models.write_model`); return its digest."""
        return models.write_model(self.path / "model", record)

    def read_model(self, cls: type[T] | Sequence[type[T]]) -> T:
        """Read the model of the run (see `gramplane.storage.models.read_model`)."""
        return models.read_model(self.path / "model", cls)


def _folder(path: str | os.PathLike[str]) -> Path:
    found = local_path(path)
    if found is None:
        raise SchemaError(f"run {os.fspath(path)!r} is an object store; a run is a local folder (checkpoints need flock and fsync)")
    return found
