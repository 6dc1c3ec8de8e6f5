"""Bundles of kernels that are computed together, and the values that identify their blocks: tasks, references, attributes."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..blocks.arrays import ArraySpec, group_json
from ..errors import Json, SchemaError, canonical_json, check_format, format_name
from ..urls import check_name
from .layout import GramLayout, record_length

FOLDER = "grams"
ROOT = "zarr.json"
Kernel = tuple[str, Any]
"""Digest of a raw kernel, and its JSON description."""


@dataclass(frozen=True)
class GramTask:
    """One object still to be computed: the block pair (i, j), i <= j, of all kernels of a bundle.

    ``rows`` and ``cols`` are half-open ranges of samples; ``digests`` are the kernels, in the order of the block's first axis.
    """

    url: str
    i: int
    j: int
    rows: tuple[int, int]
    cols: tuple[int, int]
    digests: tuple[str, ...]
    bundle: str
    nbytes: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.digests), self.rows[1] - self.rows[0], self.cols[1] - self.cols[0]


@dataclass(frozen=True)
class GramMeta:
    """Description of a Gram store of n samples.

    * ``block``: the number of rows of a block.
    * ``data``: the digest of the samples.
    * ``budget``: the approximate size of one object in bytes.
    * ``groups``: sizes of consecutive groups of samples. Only the groups' squares on the diagonal are stored; if ``groups`` is empty, whole
      matrices are stored.
    """

    n: int
    block: int
    dtype: str
    data: str
    budget: int
    groups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        rules = {
            "dtype": self.dtype in ("float32", "float64"),
            "data": isinstance(self.data, str) and bool(self.data),
            "budget": type(self.budget) is int and self.budget >= 1,
        }
        for name, holds in rules.items():
            if not holds:
                raise SchemaError(f"{name} is {getattr(self, name)!r}, which a Gram store cannot have")
        _ = self.layout

    @cached_property
    def layout(self) -> GramLayout:
        """Division of the matrices into blocks."""
        return GramLayout(self.n, self.block, self.groups)

    @property
    def itemsize(self) -> int:
        return int(np.dtype(self.dtype).itemsize)

    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group."""
        values = {name: value for name, value in asdict(self).items() if name != "groups"}
        return {"gramplane": {"schema": format_name("grams"), **values, **({"groups": list(self.groups)} if self.groups else {})}}

    def texts(self) -> dict[str, bytes]:
        """Return the descriptions that every store contains: key -> content."""
        return {ROOT: group_json(self.attributes()), f"{FOLDER}/zarr.json": group_json()}

    @classmethod
    def from_attributes(cls, attributes: Json, where: str) -> "GramMeta":
        """Read the attributes of the root group. Raises SchemaError if this is not a Gram store, or has an unknown version."""
        values = _read_fields(attributes, "grams", where, "a Gram store")
        try:
            return cls(values["n"], values["block"], values["dtype"], values["data"], values["budget"], tuple(values.get("groups", ())))
        except (KeyError, TypeError) as error:
            raise SchemaError(f"{where}: attribute {error} is absent from the description of a Gram store") from error


@dataclass(frozen=True)
class Bundle:
    """Kernels (digest, JSON) whose blocks share objects; the first axis of an object has the kernels in this order. ``number`` is the
    position of the bundle among the bundles of a store.
    """

    meta: GramMeta
    number: int
    kernels: tuple[Kernel, ...]

    @cached_property
    def id(self) -> str:
        """Content key: a digest of data, kernels and storage format."""
        meta = self.meta
        content = [format_name("bundle"), meta.data, meta.n, meta.block, meta.dtype, list(self.digests)]
        content += [list(meta.groups)] if meta.groups else []
        return hashlib.sha256(canonical_json(content)).hexdigest()[:16]

    @cached_property
    def digests(self) -> tuple[str, ...]:
        return tuple(digest for digest, _ in self.kernels)

    @property
    def prefix(self) -> str:
        """Folder of the bundle."""
        return f"{FOLDER}/{self.id}"

    @property
    def sums_prefix(self) -> str:
        """Prefix of the keys of the bundle's sums (see `GramSums`). The rest of a key is the crc32c of the records from which the sums
        were computed.
        """
        return f"{self.prefix}/sums-"

    def without(self, digests: set[str]) -> "Bundle | None":
        """Return the bundle without these kernels, or None if no kernel is left."""
        others = tuple(kernel for kernel in self.kernels if kernel[0] not in digests)
        return Bundle(self.meta, self.number, others) if others else None

    def texts(self) -> dict[str, bytes]:
        """Return the descriptions of the bundle, as they are stored: key -> content."""
        arrays = {f"{self.prefix}/{name}/zarr.json": spec.to_json() for name, spec in (("blocks", self.blocks), ("records", self.records))}
        return {**arrays, f"{self.prefix}/zarr.json": group_json(self.attributes())}

    @cached_property
    def blocks(self) -> ArraySpec:
        """The array of the blocks, (k, n, n). Blocks below the diagonal are never written; they read as NaN.

        With groups, block i begins at row ``i * block``; rows of a block beyond the end of its group read as NaN, too.
        """
        side, b, k = self.meta.layout.side, self.meta.block, len(self.kernels)
        return ArraySpec((k, side, side), (k, b, b), self.meta.dtype)

    @cached_property
    def records(self) -> ArraySpec:
        """The array of the records, one per object."""
        m, length = self.meta.layout.n_blocks, record_length(len(self.kernels), self.meta.block)
        return ArraySpec((m, m, length), (1, 1, length), "float64")

    @property
    def plane_bytes(self) -> int:
        """Size in bytes of the block of one kernel in an object."""
        return self.blocks.chunk_bytes // len(self.kernels)

    def block_key(self, i: int, j: int) -> str:
        """Return the key of an object."""
        return f"{self.prefix}/blocks/c/0/{i}/{j}"

    def record_key(self, i: int, j: int) -> str:
        """Return the key of an object's record."""
        return f"{self.prefix}/records/c/{i}/{j}/0"

    def identity(self, i: int, j: int) -> str:
        """Return a text that identifies a record. The checksum of the record includes the text, so that swapped records are noticed."""
        return f"{self.id}/{i}/{j}"

    def task(self, url: str, i: int, j: int) -> GramTask:
        """Return the task of computing one object."""
        layout = self.meta.layout
        (rows, cols) = layout.shape(i, j)
        nbytes = len(self.kernels) * rows * cols * self.meta.itemsize
        return GramTask(url, i, j, layout.span(i), layout.span(j), self.digests, self.id, nbytes)

    def attributes(self) -> dict[str, Any]:
        return {"gramplane": {"schema": format_name("bundle"), "number": self.number, "kernels": [list(kernel) for kernel in self.kernels]}}

    @classmethod
    def from_attributes(cls, attributes: Json, meta: GramMeta, where: str) -> "Bundle":
        """Read the attributes of the bundle's group. Raises SchemaError if they do not describe a bundle."""
        values = _read_fields(attributes, "bundle", where, "a bundle of Gram matrices")
        number, kernels = values.get("number"), values.get("kernels")
        if type(number) is not int or not isinstance(kernels, list) or not kernels:
            raise SchemaError(f"{where}: number is {number!r} and kernels {kernels!r}; a bundle has a number and a list of kernels")
        return cls(meta, number, check_kernels(kernels))


def _read_fields(attributes: Json, kind: str, where: str, what: str) -> Mapping[str, Any]:
    values = attributes.get("gramplane") if isinstance(attributes, dict) else None
    if not isinstance(values, dict) or "schema" not in values:
        raise SchemaError(f"{where} is not {what}: its attributes have no 'gramplane.schema'")
    check_format(values["schema"], kind, where, "make it again with `gramplane gram`, or install the version that wrote it")
    return values


def check_kernels(kernels: Sequence[Any]) -> tuple[Kernel, ...]:
    """Return kernels as (digest, JSON) pairs, each digest once. Raises SchemaError if an element is not such a pair."""
    descriptions: dict[str, Any] = {}
    for number, kernel in enumerate(kernels):
        if not isinstance(kernel, list | tuple) or len(kernel) != 2:
            raise SchemaError(f"kernels[{number}] is {kernel!r}; it must be a pair (digest, JSON)")
        digest, description = kernel
        canonical_json(description)
        descriptions.setdefault(check_name(digest, f"digest of kernels[{number}]"), description)
    return tuple(descriptions.items())


def merge_runs(places: Sequence[tuple[str, int]]) -> tuple[tuple[str, int, int], ...]:
    """Merge pairs (bundle, position) into triples (bundle, start, stop), where positions are adjacent."""
    merged: list[tuple[str, int, int]] = []
    for bundle, q in places:
        if merged and merged[-1][0] == bundle and merged[-1][2] == q:
            merged[-1] = (bundle, merged[-1][1], q + 1)
        else:
            merged.append((bundle, q, q + 1))
    return tuple(merged)
