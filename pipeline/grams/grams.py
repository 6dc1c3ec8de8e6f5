"""Gram matrices of many kernels over the rows of a data set: quadratic forms, products, weighted sums.

:class:`GramSettings` decides once, from sizes, where the entries are: in memory, in a Gram store, or recomputed in every pass. Results are
bit-identical in all three cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from ...kernels.bank.bank import PackedBank
from ...kernels.bank.products import product_units, total_forms, total_products
from ...kernels.bank.task_sums import check_codes, check_weights, task_units
from ...kernels.grams.normalization import (
    BlockSums,
    KernelSums,
    block_sums,
    kernel_sums,
    leave_out_idle,
    make_normalizations,
    needs_diagonal_only,
)
from ...kernels.grams.spec import KernelSpec
from ...kernels.svm.dual import DenseGram, Gram, Scratch
from ...storage import GramStore, GramTask
from .fill import filled_bank, fills_here, given_bank
from .given import StoredPair
from .pair_passes import (
    Build,
    Chunk,
    block_bytes,
    block_chunk,
    build_pass,
    combine_chunk,
    combine_tasks_chunk,
    diagonal_bytes,
    diagonals_chunk,
    entries_bytes,
    entries_chunk,
    forms_bytes,
    forms_chunk,
    joined_pass,
    matrix_bytes,
    on_diagonal,
    pair_batches,
    place_pair,
    products_pass,
    sums_bytes,
    sums_chunk,
    task_sums_pass,
)
from .settings import GramSettings, confirm_contents
from .sources import PairRef, RowPair, load_normalised, row_pairs
from .weighted_sum import BlockSum, BlockTaskSum, BlockTotal, CombinedGram, Norms, fits_driver, gram_by_passes

if TYPE_CHECKING:
    from ..core.resources import Resources, Shared


def build_blocks(resources: Resources, tasks: Sequence[GramTask], specs: Mapping[str, Any], pairs: Iterable[Any]) -> list[Any]:
    """Compute the block pairs that a Gram store lacks, on workers. Returns the list of objects for the store's ``commit``.

    ``specs`` maps digests to kernels. ``pairs`` covers all row and column ranges; the kernels of these pairs are ignored.
    """
    by_range = {(pair.rows, pair.cols): pair for pair in pairs}
    builds = [Build(task, replace(by_range[task.rows, task.cols], specs=tuple(specs[key] for key in task.digests))) for task in tasks]
    return resources.run_pass(build_pass(builds))


def filled_store(
    resources: Resources, path: str, specs: Sequence[Any], pairs: Iterable[Any], **layout: Any
) -> tuple[GramStore, list[Any], list[KernelSums]]:
    """Create a Gram store with the given ``layout``, or open it, and add the kernels that it lacks. Returns the store, references to its
    blocks, and the ``KernelSums`` of every kernel.
    """
    raw = {spec.digest(): spec for spec in specs}
    store = GramStore.create(path, kernels=[(digest, spec.raw_json()) for digest, spec in raw.items()], **layout)
    missing = store.missing(list(raw))
    if missing:
        with store.lock():
            store.commit(build_blocks(resources, missing, raw, pairs))
    resources.emit({"event": "grams", "gram_store": path, "kernels": len(raw), "blocks_computed": len(missing)})
    places, sums = {digest: q for q, digest in enumerate(raw)}, {digest: KernelSums(*store.sums(digest)) for digest in raw}
    which = tuple(places[spec.digest()] for spec in specs)
    return store, [StoredPair(ref, which) for ref in store.refs(list(raw))], [sums[spec.digest()] for spec in specs]


class Grams:
    """k Gram matrices over the n rows of a data set, normalised by their specs.

    * ``specs``: the kernels.
    * ``settings``: where the entries are stored; by default decided from sizes.
    * ``centre``: whether to centre the entries as the specs request. With an unpenalised intercept this is not needed: centring shifts
      decision values by a constant, which the intercept absorbs. Without ``centre``, only the scale is taken from the centred matrix.
    * ``known``: an object with the matrices of the first of these kernels. Its memory is reused if possible, so do not use it afterwards.
    """

    grows = False  # whether a run comes to more kernels as it goes on

    def __init__(
        self,
        data: Any,
        specs: Sequence[KernelSpec],
        settings: GramSettings | None,
        resources: Resources,
        *,
        centre: bool = False,
        known: Grams | None = None,
    ) -> None:
        self.data, self.resources = data, resources
        self.specs = tuple(specs)
        self.settings = settings or GramSettings.of(data, resources, specs)
        self._bank: PackedBank | None = None
        self._before = self._taken_over(known)
        self._scratch = Scratch()
        self._matrix: np.ndarray | None = None
        self._greatest: np.ndarray | None = None
        self._refs: list[PairRef] = list(row_pairs(data, self.specs, self.settings.block))
        resources.emit({"event": "grams", **self.settings.describe(data.n_rows, len(self.specs))})
        confirm_contents(data, self.settings, () if self.grows else self.specs, resources.scratch)
        self.sums = self._load_sums()
        norms = make_normalizations(self.specs, self.sums)
        self.normalizations = [norm if centre or norm.row_mean is None else replace(norm, row_mean=None, mean=0.0) for norm in norms]
        # Nobody asks what rows that do not count are decided to be, and far ones would cost the others their digits.
        is_lent = self._bank is not None and self._bank.lent
        seen = self.normalizations if is_lent else leave_out_idle(self.normalizations, self._counts)
        self._norms: Norms = None if all(norm.only_scales for norm in seen) else tuple(seen)
        self.scale = np.array([norm.scale for norm in self.normalizations]) if self._norms is None else np.ones(len(self.specs))
        if self._bank is not None and self._norms is not None:
            self._bank.transform([norm.apply_block for norm in self._norms])

    @property
    def n(self) -> int:
        return self.data.n_rows

    @property
    def k(self) -> int:
        return len(self.specs)

    def diagonals(self) -> np.ndarray:
        """Return the diagonals of the normalised matrices, ``(k, n)``."""
        if self._norms is None:
            return np.array([sums.diagonal for sums in self.sums]) * self.scale[:, None]
        return np.array([norm.apply_diagonal(sums.diagonal) for norm, sums in zip(self._norms, self.sums, strict=True)])

    def forms(self, vectors: np.ndarray, kernels: np.ndarray | None = None) -> np.ndarray:
        """Return ``beta' K_q beta``: ``(k,)`` for one vector ``(n,)``, ``(k, m)`` for several ``(n, m)``. One pass over the entries.

        ``kernels`` are ascending indices of the kernels to include; the default is all.
        """
        scale = self.scale if kernels is None else self.scale[kernels]
        if self._bank is not None:
            raw = self._bank.forms(vectors, kernels)
        else:
            columns = self._columns(vectors)
            result = forms_bytes(len(scale), len(columns), self.settings.block)
            raw = total_forms(self._pass("quadratic-forms", forms_chunk, result, self._broadcast("vectors", columns), self._norms, kernels))
            raw = raw[:, 0] if np.ndim(vectors) == 1 else raw
        return raw * (scale if raw.ndim == 1 else scale[:, None])

    def products(self, vectors: np.ndarray, wanted: np.ndarray, kernels: np.ndarray | None = None) -> np.ndarray:
        """Return ``K_q beta`` for several vectors ``(n, m)``, as ``(k, m, n)``. Entries outside the mask ``wanted`` ``(n, m)`` are zero.
        One pass.
        """
        chosen = np.arange(self.k) if kernels is None else kernels
        columns = self._columns(vectors)
        units = product_units(self._tops()[chosen], columns)
        if self._bank is not None:
            raw = self._bank.products(vectors, chosen, wanted=wanted, units=units)
        else:
            rows = np.ascontiguousarray(wanted.T)
            shared = self._broadcast("vectors", columns), self._norms, kernels, self._broadcast("wanted", rows), units
            work = products_pass(self._refs, 8 * len(chosen) * columns.size, *shared)
            raw = total_products(self.resources.run_pass(work), rows)
        return raw * self.scale[chosen][:, None, None]

    def _columns(self, vectors: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.asarray(vectors, np.float64).reshape(self.n, -1).T)

    def _tops(self) -> np.ndarray:
        """Return the largest diagonal entry of every normalised matrix, ``(k,)``. Cached, because every pass of products needs it."""
        if self._greatest is None:
            diagonals = [part.diagonal for part in self.sums]
            if self._norms is not None:
                diagonals = [norm.apply_diagonal(one) for norm, one in zip(self._norms, diagonals, strict=True)]
            self._greatest = np.array([max(float(one.max()), 0.0) for one in diagonals])
        return self._greatest

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return ``K_q[rows[i], columns[i]]`` of every kernel, float64 ``(k, m)``. At most one pass."""
        if self._bank is not None:
            return self._bank.entries(rows, columns) * self.scale[:, None]
        places = np.stack([np.minimum(rows, columns), np.maximum(rows, columns)])
        raw = np.zeros((self.k, len(rows)))
        result = entries_bytes(self.k, len(rows), self.settings.block)
        for part in self._pass("gram-entries", entries_chunk, result, self._broadcast("entries", places), self._norms):
            raw[:, part.places] = part.values
        return raw * self.scale[:, None]

    def corner(self, rows: int) -> np.ndarray:
        """Return the leading ``rows`` by ``rows`` submatrix of every normalised matrix, ``(k, rows, rows)``. ``rows`` must not exceed the
        size of the first block.
        """
        return load_normalised(self._refs[0], self._norms)[:, :rows, :rows]

    def raw(self, q: int) -> np.ndarray:
        """Return the entries of a raw matrix in memory, in the bank's format."""
        assert self._bank is not None
        return self._bank.values[q]

    def combine(self, theta: np.ndarray) -> Gram:
        """Return ``K(theta) = sum_q theta_q K_q`` for a dual solver: a matrix on the driver, or passes if the matrix exceeds the driver's
        memory.

        The next call overwrites the matrix.
        """
        if not self.holds_sum:
            return self.sum_by_passes(theta)
        weights, matrix = np.asarray(theta, np.float64) * self.scale, self._room()
        if self._bank is not None:
            self._bank.combine(weights, matrix)
        else:
            self._fill(matrix, "weighted-sum", combine_chunk, weights, self._norms)
        return DenseGram(matrix, self._scratch)

    def sum_by_passes(self, theta: np.ndarray) -> Gram:
        """Return ``K(theta)`` as passes, even if the driver's memory could hold the matrix."""
        weights = np.asarray(theta, np.float64) * self.scale
        return self._by_passes(BlockSum(self._norms, weights), np.asarray(theta) @ self.diagonals())

    @property
    def holds_sum(self) -> bool:
        """Whether the driver's memory can hold one weighted sum as a matrix."""
        return fits_driver(self.n, self.resources.driver_memory)

    def combine_tasks(self, weights: np.ndarray, codes: np.ndarray) -> Gram:
        """Return ``K[i, l] = sum_q W_q[c_i, c_l] K_q[i, l]`` for a dual solver, where ``c_i`` is the task of row i.

        The result is a matrix on the driver, or passes if the matrix exceeds the driver's memory (:attr:`holds_sum`). ``weights``: ``(k, T,
        T)``, symmetric in the tasks. ``codes``: ``(n,)`` tasks of the rows; a pass is fastest if rows are sorted by task. The next call of
        this method or of :meth:`combine` overwrites the matrix. Raises ValueError if the shapes of weights and codes do not match.
        """
        scaled = check_weights(weights, self.k) * self.scale[:, None, None]
        tasks = check_codes(codes, self.n, scaled.shape[1])
        if not self.holds_sum:
            diagonal = np.einsum("kn,kn->n", np.asarray(weights, np.float64)[:, tasks, tasks], self.diagonals())
            return self._by_passes(BlockTaskSum(self._norms, scaled, tasks), diagonal)
        matrix = self._room()
        if self._bank is not None:
            self._bank.combine_tasks(scaled, tasks, matrix)
        else:
            shared = self._broadcast("task-weights", scaled), self._broadcast("tasks", tasks)
            self._fill(matrix, "task-weighted-sum", combine_tasks_chunk, self._norms, *shared)
        return DenseGram(matrix, self._scratch)

    def task_forms(self, beta: np.ndarray, codes: np.ndarray, n_tasks: int | None = None) -> np.ndarray:
        """Return ``A_q[s, t] = beta_s' K_q[s, t] beta_t`` for all pairs of tasks, ``(k, T, T)``, exactly symmetric. One pass.

        ``beta``: ``(n,)``, or several vectors ``(m, n)``, which give ``(m, k, T, T)``. ``codes``: ``(n,)`` tasks of the rows. ``n_tasks``:
        T; by default the largest code plus one.
        """
        n_tasks = int(np.max(codes)) + 1 if n_tasks is None else n_tasks
        vectors, tasks = np.ascontiguousarray(np.atleast_2d(beta), np.float64), check_codes(codes, self.n, n_tasks)
        units = np.stack([task_units(self._tops(), vector, tasks, n_tasks) for vector in vectors])
        if self._bank is not None:
            raw = np.stack([self._bank.task_forms(vector, tasks, n_tasks, unit) for vector, unit in zip(vectors, units, strict=True)])
        else:
            raw = task_sums_pass(self.resources, self._refs, self._norms, vectors, tasks, units)
        forms = raw * self.scale[:, None, None]
        return forms if np.ndim(beta) == 2 else forms[0]

    def _by_passes(self, total: BlockTotal, diagonal: np.ndarray, refs: Sequence[PairRef] | None = None) -> CombinedGram:
        some = self._refs if refs is None else refs
        return gram_by_passes(self.data, self.resources, some, total, diagonal, self.settings.block)

    def _room(self) -> np.ndarray:
        self._matrix = np.empty((self.n, self.n), np.float32) if self._matrix is None else self._matrix
        return self._matrix

    def _fill(self, matrix: np.ndarray, name: str, chunk: Chunk, *broadcast: Any) -> None:
        for batch in pair_batches(self._refs):
            for part in self._pass(name, chunk, max(map(matrix_bytes, batch)), *broadcast, refs=batch):
                place_pair(matrix, part)

    def _load_sums(self) -> list[KernelSums]:
        if self.settings.policy == "store":
            layout = {"data_digest": self.data.digest, "n": self.n, "block": self.settings.block}
            # Held: a store that is replaced stays as long as somebody does so.
            self._held, self._refs, sums = filled_store(self.resources, str(self.settings.store), self.specs, self._refs, **layout)
            if self._counts is None:
                return sums
            if all(map(needs_diagonal_only, self.specs)):
                return KernelSums.of_diagonals(np.stack([one.diagonal for one in sums]), self._counts)
        if self.settings.policy == "memory":
            return self._fill_bank()
        if all(isinstance(ref, RowPair) for ref in self._refs) and all(map(needs_diagonal_only, self.specs)):
            # Sums of rows, one part for every block pair, would be more than the driver may hold of large matrices.
            return KernelSums.of_diagonals(self._diagonals(), self._counts)
        counts = None if self._counts is None else self._broadcast("counts", self._counts)
        return kernel_sums(self.n, self._pass("kernel-sums", sums_chunk, sums_bytes(self.k, self.settings.block), counts), self._counts)

    @property
    def _counts(self) -> np.ndarray | None:
        """Return the multiplicities of the rows, ``(n,)``."""
        return self.settings.counts

    def _diagonals(self) -> np.ndarray:
        """Return the raw diagonals ``(k, n)``, by a pass over the diagonal blocks."""
        result, blocks = diagonal_bytes(self.k, self.settings.block), on_diagonal(self._refs)
        parts = self._pass("kernel-diagonals", diagonals_chunk, result, refs=blocks)
        return np.concatenate([part.values for part in sorted(parts, key=lambda part: part.rows)], axis=1)

    def _fill_bank(self) -> list[KernelSums]:
        in_place = given_bank(self.data, self.specs)
        if in_place is not None:
            self._bank = in_place
            return KernelSums.of_diagonals(in_place.diagonals(), self._counts)
        if fills_here(self.data, self.resources, self.specs):
            self._before = None
            self._bank = bank = filled_bank(self.data, self.resources, self.specs)
            return KernelSums.of_diagonals(bank.diagonals(), self._counts)
        (bank, sums), self._before = self._before or (PackedBank.empty(self.k, self.n, np.float32), []), None
        first, refs = len(sums), self._refs
        if first:
            bank, refs = bank.grown(self.k), [ref.select(range(first, self.k)) for ref in refs]
        parts: list[BlockSums] = []
        for batch in pair_batches(refs):
            for part in self._pass("gram-blocks", block_chunk, max(map(block_bytes, batch)), refs=batch):
                bank.put(first, part.rows[0], part.cols[0], part.block)
                parts.append(block_sums(part.block, part.rows, part.cols, self._counts))
        self._bank = bank
        return sums + kernel_sums(self.n, parts, self._counts)

    def _taken_over(self, known: Grams | None) -> tuple[PackedBank, list[KernelSums]] | None:
        """Return the bank and sums of ``known``, to be extended, if the kernels of ``known`` are the first kernels of this object;
        otherwise ``None``.

        In either case ``known`` loses its bank.
        """
        if known is None:
            return None
        bank, known._bank = known._bank, None
        if bank is None or bank.lent or self.settings.policy != "memory" or known._norms is not None:
            return None
        return (bank, known.sums) if known.k < self.k and known.specs == self.specs[: known.k] else None

    def _pass(self, name: str, chunk: Chunk, result: int, *broadcast: Any, refs: Sequence[PairRef] | None = None) -> list[Any]:
        return self.resources.run_pass(joined_pass(name, chunk, self._refs if refs is None else refs, result, *broadcast))

    def _broadcast(self, name: str, array: np.ndarray) -> Shared:
        return self.resources.share(name, array, len(self._refs))


class _RunsPasses(Protocol):
    resources: Resources


G = TypeVar("G", bound=_RunsPasses)


class LazyGrams(Generic[G]):
    """The matrices of a fit, created at the first request. They depend on data and settings only, so a resumed run creates them again."""

    def __init__(self, make: Callable[[Resources], G]) -> None:
        self._make = make
        self.found: G | None = None

    def __call__(self, resources: Resources) -> G:
        """Return the matrices; their passes run on ``resources``."""
        self.found = self._make(resources) if self.found is None else self.found
        self.found.resources = resources
        return self.found


def hand_over(grams: Any, problem: object) -> Any:
    """Let ``problem`` reuse the matrices ``grams`` of an earlier problem, if both have any. Return the matrices for the next problem."""
    own = getattr(problem, "grams", None)
    if not isinstance(own, LazyGrams):
        return grams
    if isinstance(grams, LazyGrams):
        own.found = grams.found
    return own


def lazy_grams(data: Any, specs: Sequence[Any], settings: GramSettings | None) -> LazyGrams[Grams]:
    """Return the matrices of a fit whose models have intercepts. Intercepts replace centring, except before a cosine normalisation."""
    centre = any(spec.centre and spec.normalize == "cosine" for spec in specs)
    return LazyGrams(lambda resources: Grams(data, specs, settings, resources, centre=centre))
