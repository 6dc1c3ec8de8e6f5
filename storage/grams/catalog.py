"""Contents of a Gram store: its manifest, bundles and kernels, and the recorded blocks."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ..blocks.arrays import Record, read_listed, write_object
from ..errors import DigestMismatch, Json, MissingBlock, SchemaError, parse_json, space_for
from ..locks import LOCK
from ..manifest import MANIFEST, read_seal, write_seal
from ..objects import LocalObjects, Objects
from ..versions import POINTER, Opened, is_version
from .bundle import FOLDER, ROOT, Bundle, GramMeta, GramTask
from .reading import BlockPair, BlockReader

Digests = str | Sequence[str]


class GramCatalog:
    """The contents of a Gram store; the base class of `GramStore`.

    ``url`` is the folder of the opened version if the store was ever replaced. ``digest`` is the sha256 of the manifest, which identifies
    the committed content.
    """

    def __init__(self, objects: Objects, opened: Opened | None = None) -> None:
        self.objects, self._opened = objects, opened
        self.url = objects.url
        self.reader = BlockReader(objects)
        self.written: Record = {}
        self.bundles: dict[str, Bundle] = {}
        self.places: dict[str, tuple[str, int]] = {}
        self._verified: set[str] = set()
        self.refresh()

    def refresh(self) -> None:
        """Read the manifest again, because another process may have replaced it."""
        self.sealed, self.digest = read_seal(self.objects)
        self.listed = dict(self.sealed)
        self.meta = GramMeta.from_attributes(self._group(ROOT), f"{self.url}/{ROOT}")
        groups = [key for key in self.listed if key.startswith(f"{FOLDER}/") and key.count("/") == 2 and key.endswith("/zarr.json")]
        bundles = [Bundle.from_attributes(self._group(key), self.meta, f"{self.url}/{key}") for key in groups]
        self.set_bundles(sorted(bundles, key=lambda bundle: bundle.number))
        for key, bundle in zip(groups, bundles, strict=True):
            if key != f"{bundle.prefix}/zarr.json":
                raise SchemaError(f"{self.url}/{key} describes the bundle {bundle.id}; the folder has another name")

    def set_bundles(self, bundles: Iterable[Bundle]) -> None:
        """Set the bundles, in this order."""
        self.bundles = {bundle.id: bundle for bundle in bundles}
        self.places = {digest: (bundle.id, q) for bundle in self.bundles.values() for q, digest in enumerate(bundle.digests)}

    def _group(self, key: str) -> Json:
        if key not in self.listed:
            raise SchemaError(f"{self.url} is not a Gram store: its manifest does not list {key}")
        return parse_json(read_listed(self.objects, self.listed, key), f"{self.url}/{key}").get("attributes")

    def extend(self, kernels: Sequence[tuple[str, Any]]) -> None:
        """Declare bundles for new kernels; the manifest that lists them is written last."""
        sizes = self.meta.layout.bundle_sizes(len(kernels), self.meta.itemsize, self.meta.budget) if kernels else []
        number = 1 + max((bundle.number for bundle in self.bundles.values()), default=-1)
        made, at, listed = [], 0, dict(self.listed)
        for size in sizes:
            made.append(Bundle(self.meta, number + len(made), tuple(kernels[at : at + size])))
            listed |= write_texts(self.objects, made[-1], {})
            at += size
        self.set_bundles([*self.bundles.values(), *made])
        self.seal(listed)

    def seal(self, listed: Record) -> str:
        """Write the manifest unless it is unchanged; sums that the new manifest no longer lists are removed afterwards."""
        if listed != self.sealed:
            self.digest = write_seal(self.objects, listed)
        for key in self.sealed.keys() - listed.keys():
            if "/sums-" in key:
                self.objects.delete(key)
        self.listed, self.sealed = dict(listed), dict(listed)
        self.written = {key: entry for key, entry in self.written.items() if listed.get(key) != entry}
        return self.digest

    @property
    def n(self) -> int:
        return self.meta.n

    @property
    def edges(self) -> tuple[int, ...]:
        """Cut positions of the row blocks, from 0 to n."""
        return self.meta.layout.edges

    @property
    def kernels(self) -> tuple[str, ...]:
        """Digests of the kernels, in the order in which they were added."""
        return tuple(self.places)

    def describe(self, digest: str) -> Json:
        """Return the JSON description of a kernel, as given when it was added."""
        bundle, q = self.find(digest)
        return bundle.kernels[q][1]

    def find(self, digest: str) -> tuple[Bundle, int]:
        """Return the bundle of a kernel and the kernel's position in it."""
        if digest not in self.places:
            raise MissingBlock(f"{self.url} has no kernel {digest} among its {len(self.places)}; add the kernel with GramStore.create")
        bundle, q = self.places[digest]
        return self.bundles[bundle], q

    def bundles_of(self, digests: Digests | None) -> list[Bundle]:
        """Return the bundles of some kernels (default: all), in order."""
        if digests is None:
            return list(self.bundles.values())
        ids = {bundle.id for bundle, _ in map(self.find, as_digests(digests))}
        return [bundle for bundle in self.bundles.values() if bundle.id in ids]

    def missing(self, digests: Digests | None = None) -> list[GramTask]:
        """Return a task for each object that is not recorded yet, of the bundles of some kernels (default: all); a task covers all kernels
        of a bundle.

        Tasks are ordered by block pair, so that tasks with the same samples are consecutive.
        """
        bundles = self.bundles_of(digests)
        done = self.recorded(bundles)
        pairs = self.meta.layout.pairs()
        return [bundle.task(self.url, i, j) for i, j in pairs for bundle in bundles if bundle.record_key(i, j) not in done]

    def recorded(self, bundles: Iterable[Bundle]) -> set[str]:
        """Return the keys of the existing records of some bundles: those in the manifest, those written by this object, and those found in
        the folder.
        """
        expected = {bundle.record_key(i, j): bundle for bundle in bundles for i, j in self.meta.layout.pairs()}
        known = {key for key in expected if key in self.listed or key in self.written}
        if len(known) == len(expected):
            return known
        seen = {key for key in self.objects.listing() if key in expected}
        if isinstance(self.objects, LocalObjects):
            # After a power loss a file may be empty; object stores have no such.
            seen = {key for key in seen if self.objects.size(key) == expected[key].records.chunk_bytes}
        return known | seen

    def require(self, bundles: list[Bundle]) -> None:
        """Raise MissingBlock for bundles that are not complete."""
        lacking = len(bundles) * self.meta.layout.n_pairs - len(self.recorded(bundles))
        if lacking:
            raise MissingBlock(f"{self.url}: {lacking} blocks of these kernels were not computed yet (GramStore.missing lists them)")

    def known_places(self) -> dict[str, BlockPair]:
        """Return the keys of recorded objects and of their records, each with its bundle and block pair."""
        places: dict[str, BlockPair] = {}
        recorded = self.recorded(self.bundles.values())
        for bundle in self.bundles.values():
            for i, j in self.meta.layout.pairs():
                if bundle.record_key(i, j) in recorded:
                    places[bundle.block_key(i, j)] = places[bundle.record_key(i, j)] = (bundle, i, j)
        return places

    def unused(self, keep: Collection[str]) -> list[tuple[str, int]]:
        """Return the kernels that ``keep`` does not name, each with the size of its blocks in bytes."""
        sizes = {bundle.id: bundle.plane_bytes * self.meta.layout.n_pairs for bundle in self.bundles.values()}
        return [(digest, sizes[bundle]) for digest, (bundle, _) in self.places.items() if digest not in keep]

    def orphans(self) -> list[tuple[str, int]]:
        """Return unused objects with their sizes in bytes: blocks without a record, and remains of an interrupted removal."""
        known = {*self.listed, *self.known_places(), MANIFEST, LOCK, POINTER}
        keys = (key for key in self.objects.listing() if key not in known and not is_version(key.partition("/")[0]))
        return [(key, self.objects.size(key) or 0) for key in sorted(keys)]


def create_store(objects: Objects, meta: GramMeta) -> None:
    if isinstance(objects, LocalObjects):
        _make_folder(objects)
    with objects.held():
        if objects.size(MANIFEST) is None:
            write_seal(objects, write_texts(objects, meta, {}))


def _make_folder(objects: LocalObjects) -> None:
    ours = (LOCK, ROOT, FOLDER, MANIFEST)
    foreign = [path.name for path in objects.root.glob("*") if path.name not in ours and not path.name.endswith(".tmp")]
    if foreign:
        raise SchemaError(f"{objects.url} is a folder with files that are not a Gram store ({min(foreign)}, …); choose an empty place")
    with space_for(objects.url, 0):
        objects.root.mkdir(parents=True, exist_ok=True)


def check_same(store: GramCatalog, data_digest: str, wanted: dict[str, Any], groups: tuple[int, ...] = ()) -> None:
    """Raise DigestMismatch if a store is of other samples, and SchemaError if it has another layout than wanted."""
    meta = store.meta
    if meta.data != data_digest:
        stored = f"{store.url} holds kernels of the data {meta.data}"
        raise DigestMismatch(
            f"{stored}; these data have the digest {data_digest}: choose another place, or the scaling that the stored digest ends with"
        )
    if meta.groups != groups:
        stored, requested = (f"diagonal blocks of {len(g)} groups of rows" if g else "whole matrices" for g in (meta.groups, groups))
        sizes = " of other sizes" if stored == requested else ""
        raise SchemaError(f"{store.url} holds {stored}; {requested}{sizes} were requested: choose another place")
    for name, value in wanted.items():
        if getattr(meta, name) != value:
            raise SchemaError(f"{store.url} has {name} {getattr(meta, name)!r}; {value!r} was requested: choose another place")


def write_texts(objects: Objects, part: GramMeta | Bundle, listed: Record) -> Record:
    """Write the Zarr groups that every store has (or, for a bundle, those of the bundle), unless they are listed already."""
    written: Record = {}
    for key, text in part.texts().items():
        if key not in listed:
            written |= write_object(objects, key, text, fsync=False)
    return written


def as_digests(digests: Digests) -> tuple[str, ...]:
    return (digests,) if isinstance(digests, str) else tuple(digests)
