"""The journal of a writer: which objects are finished, so that a killed one can be continued."""

import json
import os
from pathlib import Path

from .blocks.arrays import Record, canonical_json
from .errors import space_for
from .objects import sync_folder, write_all


class Journal:
    """Lines of finished objects, continued if they were begun for the same plan (digest); a torn last line is ignored."""

    def __init__(self, path: Path, plan: str) -> None:
        self.path = path
        self._unsynced = 0
        with space_for(path, 256):
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            # a new line first: it ends a line torn by a kill
            write_all(self._fd, b"\n" + canonical_json({"plan": plan}) + b"\n")
            os.fsync(self._fd)
            sync_folder(str(path.parent))

    def append(self, record: Record) -> None:
        """Add a line; synced to the disk after every 64 MiB of objects."""
        line = canonical_json(record) + b"\n"
        with space_for(self.path, len(line)):
            write_all(self._fd, line)
            self._unsynced += sum(size for size, _ in record.values())
            if self._unsynced > 64 << 20:
                os.fsync(self._fd)
                self._unsynced = 0

    def remove(self) -> None:
        """Close and delete the journal."""
        os.close(self._fd)
        self.path.unlink(missing_ok=True)

    @staticmethod
    def read(path: Path, plan: str) -> Record | None:
        """Objects noted for this plan; None if there is no journal or it belongs to another plan."""
        if not path.exists():
            return None
        record: Record = {}
        for line in path.read_bytes().splitlines():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(entry, dict):
                continue
            if "plan" in entry:
                if entry["plan"] != plan:
                    return None
                continue
            record.update({key: (int(size), int(crc)) for key, (size, crc) in entry.items()})
        return record
