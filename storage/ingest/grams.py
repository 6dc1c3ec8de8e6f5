"""Writes precomputed Gram matrices (arrays, .npy and .npz files, Dask and Zarr arrays) to a Gram store, block by block."""

import hashlib
import os
import zipfile
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data import in_memory, square_in_memory
from ..errors import DataError, Foreign, SchemaError, UserData, canonical_json, space_for
from ..grams.bundle import GramTask
from ..grams.layout import OBJECT_BYTES
from ..grams.store import GramStore, begin_replacement, end_replacement
from ..objects import require_space
from ..places import parse_place as placed
from ..temporary import temporary_folder
from ..urls import holds_store, local_path
from .files import make_local, read_declared, unpack_arrays
from .options import Progress, no_progress

_TILE = 512
_TOLERANCE = {True: 1e-5, False: 1e-9}
"""Largest relative asymmetry allowed in single (True) and double (False) precision: larger than the rounding of matrix products, smaller
than errors in the data.
"""


def ingest_grams(
    source: UserData,
    store_url: str | os.PathLike[str],
    *,
    names: Sequence[str] | None = None,
    data_digest: str | None = None,
    dtype: str = "auto",
    block: int | None = None,
    budget: int = OBJECT_BYTES,
    scratch: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> GramStore:
    """Put precomputed Gram matrices into a store, reading them block by block.

    The same matrices give the same stored bytes in every form of input, and a second call writes nothing. Values above the diagonal are
    stored unchanged; values below it may differ from them by rounding.

    Parameters
    ----------
    source : array, path, Dask array or Zarr array
        (k, n, n), or (n, n) for one kernel. A .npy file is mapped. A .npz file holds one (k, n, n) array, or one (n, n) array per kernel
        under its name. A folder is read as a Zarr array. A URL that names no object is also read as a Zarr array; the objects below it are
        copied to scratch first. Compressed and chunked forms are copied to scratch piece by piece.
    store_url : path or URL
        The store; kernels are added to an existing one.
    names : sequence of str, optional
        Names of the kernels [default: those of the .npz file, else "0", "1", …].
    data_digest : str, optional
        Digest of the samples, for example that of their block store, so that kernels of other samples are rejected.
    dtype : str
        "float32" or "float64"; "auto" is float32 if every value survives the round trip (an existing store keeps its type).
    block, budget
        As for `GramStore.create`.
    scratch : path, optional
        Folder for copies [default: next to a local store, else the system's].
    overwrite : bool
        Replace a store of other samples or of another type; the old store stays unchanged until the new one is complete.
    progress : callable, optional
        Called with (kernels or blocks done, total, phase).

    Returns
    -------
    GramStore
        The committed store; `GramStore.describe` gives the name and the sha256 of each kernel's values.

    Raises
    ------
    DataError
        For values that are not finite and matrices that are not symmetric, with kernel, row and column; nothing is written.
    SchemaError
        If the source has none of these forms, or a value would be rounded.
    OutOfSpace
        If the disk is full.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import ingest_grams
    >>> x = np.arange(12.0).reshape(6, 2)
    >>> store = ingest_grams(
    ...     np.stack([x @ x.T, np.eye(6)]),
    ...     "grams/two",
    ...     names=["linear", "identity"],
    ... )
    >>> store.n, len(store.kernels)
    (6, 2)
    """
    placed(store_url, "new-store", "store_url")
    report, parent = progress or no_progress, _scratch_parent(store_url, scratch)
    with temporary_folder(parent) as folder, make_local(source, parent, folders=True) as local_source:
        grams = _open_source(local_source, folder, names)
        kernels, digest, single = [], data_digest or f"precomputed:{grams.n}", True
        for q, name in enumerate(grams.names):
            content, is_single = _scan_kernel(grams, q)
            single = single and is_single
            description = {"name": "precomputed", "label": name, "content": content}
            kernels.append((hashlib.sha256(canonical_json(description)).hexdigest(), description))
            report(q + 1, grams.k, "check")
        replacement = begin_replacement(store_url, digest, _new_dtype(dtype, single)) if overwrite else None
        kind = _choose_dtype(replacement or store_url, dtype, single, grams.dtype)
        url = replacement or store_url
        store = GramStore.create(url, data_digest=digest, n=grams.n, kernels=kernels, dtype=kind, block=block, budget=budget)
        _write_blocks(grams, store, [digest for digest, _ in kernels], report)
    if replacement is not None:
        end_replacement(store_url, replacement)
    return store


def _write_blocks(grams: "_Grams", store: GramStore, digests: list[str], report: Progress) -> None:
    positions = {digest: q for q, digest in enumerate(digests)}
    if not store.missing(digests):
        return
    with store.lock():
        tasks = store.missing(digests)
        for number, task in enumerate(tasks, 1):
            store.write(task, _read_block(grams, task, positions, store.meta.dtype))
            report(number, len(tasks), "write")


def _read_block(grams: "_Grams", task: GramTask, place: dict[str, int], dtype: str) -> npt.NDArray[Any]:
    out = np.empty(task.shape, dtype)
    for k, digest in enumerate(task.digests):
        if digest not in place:
            raise SchemaError(f"kernel {digest}, from another source, was begun together with these; ingest all kernels of that call again")
        plane = grams.read(place[digest], slice(*task.rows), slice(*task.cols))
        out[k] = _mirror_upper(plane) if task.i == task.j else plane
    return out


def _mirror_upper(square: npt.NDArray[Any]) -> npt.NDArray[Any]:
    upper = np.triu(np.ones(square.shape, dtype=bool))
    return np.where(upper, square, square.T)


def _new_dtype(dtype: str, single: bool) -> str:
    return dtype if dtype != "auto" else "float32" if single else "float64"


def _choose_dtype(url: str | os.PathLike[str], wanted: str, single: bool, found: np.dtype) -> str:
    there = GramStore.open(url).meta.dtype if holds_store(url) else None
    kind = there if wanted == "auto" and there else _new_dtype(wanted, single)
    if kind == "float32" and not single:
        what = "the type of the store" if wanted == "auto" else "dtype"
        raise SchemaError(f"{what} is 'float32', but not all values ({found}) fit into it exactly; use dtype='float64' and another place")
    return kind


def _scan_kernel(grams: "_Grams", q: int) -> tuple[str, bool]:
    """Read a kernel for the first time. Return the sha256 of its values, and whether float32 represents all values exactly."""
    digest, single, scale = hashlib.sha256(f"{grams.n}".encode()), True, 0.0
    spans = [slice(a, min(grams.n, a + _TILE)) for a in range(0, grams.n, _TILE)]
    for rows in spans:
        diagonal = np.diagonal(grams.read(q, rows, rows)).astype(np.float64)
        scale = max(scale, float(np.abs(diagonal[np.isfinite(diagonal)]).max(initial=0.0)))
    for k, rows in enumerate(spans):
        for cols in spans[k:]:
            tile = grams.read(q, rows, cols)
            upper, lower = tile.astype(np.float64), grams.read(q, cols, rows).astype(np.float64).T
            _check_tile(grams, q, rows, cols, upper, lower, scale)
            with np.errstate(over="ignore"):
                exact = tile.dtype in (np.float32, np.float16) or np.array_equal(upper.astype(np.float32), upper)
            single = single and exact
            digest.update(np.ascontiguousarray(_mirror_upper(upper) if rows == cols else upper, dtype="<f8").data)
    return digest.hexdigest(), single


def _check_tile(grams: "_Grams", q: int, rows: slice, cols: slice, upper: npt.NDArray, lower: npt.NDArray, scale: float) -> None:
    for values in (upper, lower):
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            i, j = int(bad[0][0]) + rows.start, int(bad[0][1]) + cols.start
            i, j = (i, j) if values is upper else (j, i)
            raise DataError(f"kernel {grams.names[q]!r}, row {i + 1}, column {j + 1}: the value is not finite", grams.name)
    allowed = _TOLERANCE[grams.dtype.itemsize <= 4] * max(scale, float(np.abs(upper).max(initial=0.0)))
    with np.errstate(over="ignore"):
        far = np.argwhere(np.abs(upper - lower) > allowed)
    if len(far):
        i, j = int(far[0][0]), int(far[0][1])
        pair = f"{upper[i, j]} in row {rows.start + i + 1}, column {cols.start + j + 1}, but {lower[i, j]} the other way round"
        raise DataError(f"kernel {grams.names[q]!r} is not symmetric: {pair}", grams.name)


class _Grams:
    """Square matrices with the same number of rows, which can be read in pieces."""

    def __init__(self, planes: Sequence[npt.NDArray[Any]] | npt.NDArray[Any], name: str, names: Sequence[str] | None) -> None:
        self.name = name
        self._planes = planes
        self.k, self.n, self.dtype = _check_form([plane.shape for plane in planes], {plane.dtype for plane in planes}, name)
        self.names = [str(q) for q in range(self.k)] if names is None else list(names)
        if len(self.names) != self.k or len(set(self.names)) != self.k:
            raise SchemaError(f"names are {list(self.names)!r}; they must be {self.k} different texts, one per kernel")

    def read(self, q: int, rows: slice, cols: slice) -> npt.NDArray[Any]:
        return np.asarray(self._planes[q][rows, cols])


def _check_form(shapes: list[tuple[int, ...]], dtypes: set[np.dtype], name: str) -> tuple[int, int, np.dtype]:
    n = shapes[0][0] if shapes and shapes[0] else 0
    if n == 0 or any(shape != (n, n) for shape in shapes):
        raise SchemaError(f"{name} has kernels of the shapes {sorted(set(shapes))}; (k, n, n) with k, n >= 1 is expected")
    if any(dtype.kind not in "biuf" or dtype.itemsize > 8 for dtype in dtypes):
        raise SchemaError(f"{name} has the type {', '.join(map(str, dtypes))}; real numbers of at most 64 bits are expected")
    return len(shapes), n, np.result_type(*dtypes)


def _open_source(source: UserData, folder: Path, names: Sequence[str] | None) -> _Grams:
    if isinstance(source, str | os.PathLike):
        return _open_path(os.fspath(source), folder, names)
    label = f"<{type(source).__name__}>"
    if isinstance(source, list | tuple | np.ndarray):
        return _Grams(_as_stack(np.asarray(square_in_memory(source, label)), label), label, names)
    if hasattr(source, "chunks") and hasattr(source, "shape"):
        return _Grams(_spool_array(source, folder, label), label, names)
    raise SchemaError(f"source is a {type(source).__name__}; Gram matrices come as an array, a .npy or .npz file, a dask or a Zarr array")


def _as_stack(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    if array.ndim not in (2, 3):
        raise SchemaError(f"{name} has the shape {array.shape}; Gram matrices are (k, n, n), or (n, n) for one kernel")
    return array if array.ndim == 3 else array[None]


def _open_path(text: str, folder: Path, names: Sequence[str] | None) -> _Grams:
    path = Path(text)
    if path.is_dir():
        return _open_zarr(text, folder, names)
    try:
        if path.suffix == ".npz":
            return _open_npz(path, folder, names)
        return _Grams(_as_stack(np.load(path, mmap_mode="r", allow_pickle=False), text), text, names)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        if isinstance(error, SchemaError | DataError) or getattr(error, "needed", None):
            raise
        raise DataError(f"cannot be read as {path.suffix or 'an array'}: {error}", text) from error


def _open_zarr(text: str, folder: Path, names: Sequence[str] | None) -> _Grams:
    import zarr

    try:
        array = zarr.open_array(text, mode="r")
    except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"is not a Zarr array: {error}", text) from error
    return _Grams(_spool_array(array, folder, text), text, names)


def _open_npz(path: Path, folder: Path, names: Sequence[str] | None) -> _Grams:
    require_space(folder, sum(array.nbytes for array in read_declared(path).values()))
    members = unpack_arrays(path, folder)
    arrays = [np.load(array.path, mmap_mode="r", allow_pickle=False) for array in members.values()]
    if len(arrays) == 1 and arrays[0].ndim == 3:
        return _Grams(arrays[0], str(path), names)
    return _Grams(arrays, str(path), names if names is not None else list(members))


def _spool_array(array: Foreign, folder: Path, name: str) -> npt.NDArray[Any]:
    """Copy a Dask or Zarr array to a file, reading each piece once, and map the file."""
    shape, dtype = array.shape, np.dtype(array.dtype)
    if any(not isinstance(length, int | np.integer) for length in shape):
        raise SchemaError(f"{name} has the shape {shape}; compute its chunk sizes first")
    if dtype.kind not in "biuf":
        raise SchemaError(f"{name} has the type {dtype}; real numbers are expected")
    require_space(folder, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
    mapped = np.lib.format.open_memmap(folder / "grams.npy", mode="w+", dtype=dtype, shape=shape)
    for region in _chunk_regions(array):
        part = array[region]
        mapped[region] = np.asarray(in_memory(part))
    return _as_stack(mapped, name)


def _chunk_regions(array: Foreign) -> Iterator[tuple[slice, ...]]:
    """Yield the region of each chunk of a Dask or Zarr array (or of each shard)."""
    if hasattr(array, "dask"):
        edges = [[0, *np.cumsum(lengths).tolist()] for lengths in array.chunks]
    else:
        chunk = getattr(array, "shards", None) or array.chunks
        edges = [[*range(0, length, step), length] for length, step in zip(array.shape, chunk, strict=True)]
    for spans in product(*(list(pairwise(ends)) for ends in edges)):
        yield tuple(slice(a, b) for a, b in spans)


def _scratch_parent(url: str | os.PathLike[str], parent: str | os.PathLike[str] | None) -> str | None:
    if parent is not None:
        return os.fspath(parent)
    local = local_path(url)
    if local is None:
        return None
    with space_for(local, 0):
        local.parent.mkdir(parents=True, exist_ok=True)
    return str(local.parent)


def read_order(source: str) -> int | None:
    """Return the number of rows of the matrices in a file, read from its header. For an invalid header return ``None``, so that the error
    is raised when the file is read.
    """
    import zarr

    try:
        if not Path(source).is_file():
            return int(zarr.open_array(source, mode="r").shape[-1])
        if not zipfile.is_zipfile(source):
            return int(np.load(source, mmap_mode="r", allow_pickle=False).shape[-1])
        return int(next(iter(read_declared(Path(source)).values())).shape[-1])
    except (ValueError, OSError, IndexError, KeyError, TypeError, StopIteration, zipfile.BadZipFile):
        return None
