"""References to arrays of a run: what tasks receive instead of a large vector."""

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DigestMismatch, MissingBlock


@dataclass(frozen=True)
class ArrayRef:
    """An array written once into a run folder, by the sha256 of its file: what tasks receive instead of a large vector."""

    path: str
    digest: str
    nbytes: int

    def __reduce__(self) -> tuple[type["ArrayRef"], tuple[str, str, int]]:
        return ArrayRef, (self.path, self.digest, self.nbytes)

    def load(self) -> npt.NDArray[Any]:
        """Return the array; the newest of every name is kept in the process and shared, so nobody may change it."""
        name = self.path.rpartition("=")[0]
        newest = _newest.get(name)
        if newest is None or newest[0] != self.digest:
            newest = _newest[name] = (self.digest, self._read())
        return newest[1]

    def _read(self) -> npt.NDArray[Any]:
        try:
            data = Path(self.path).read_bytes()
        except FileNotFoundError as error:
            raise MissingBlock(f"array {self.path} is absent: it was swept, or the run folder is not shared with this machine") from error
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise DigestMismatch(f"array {self.path}, bytes 0:{len(data)}: the content does not have the digest {self.digest}")
        return np.load(io.BytesIO(data), allow_pickle=False)


_newest: dict[str, tuple[str, npt.NDArray[Any]]] = {}
