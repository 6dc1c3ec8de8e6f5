"""The kernels of a fit: converts texts, specs, matrices or a Gram store to checked kernels, and sets where their matrices are stored.

By default, small data get one kernel per feature. Larger data get kernels on all features, with widths around the median distance. The
choice depends only on the numbers of rows and features; widths come from a sample of rows that is also determined by these numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from ...cluster import bytes_text
from ...kernels.bank.loops import count_packed
from ...kernels.grams.functions import KERNELS
from ...kernels.grams.spec import KernelLike, KernelSpec, as_specs, kernel_grid
from ...storage import BlockStore, DataError, GramStore, MemoryBlocks
from ..core.resources import Resources
from ..grams.given import GivenGrams, GivenKernel
from ..grams.settings import GramSettings
from ..grams.widths import DIGITS, MedianWidths
from ..records.data_set import DataSet
from .scores import InputsT

UserKernels: TypeAlias = KernelLike | Iterable[KernelLike]
SpecT = TypeVar("SpecT", KernelSpec, GivenKernel)

BANK_KERNELS = 512  # kernels of a bank over single features at most
BANK_BYTES = 512 << 20  # and bytes of their matrices, packed triangles of single precision
PER_FEATURE = 13  # kernels of the grid on a set of features

# Kernels on all features, those that help most first: widths as shares of the median distance, and degrees of polynomials. Polynomials
# have diagonal one: by its cube a single row far outside those learnt from would get an answer without bound.
WHOLE = (1.0, 0.5, 2.0, "linear", 0.25, 4.0, "poly 2", 0.125, 8.0, "poly 3")
WHOLE_BYTES = 2 << 30  # bytes of these matrices at most, but for the first
FEWEST = 3


def kernel_texts(kernels: UserKernels | None) -> list[str] | Literal["precomputed"] | None:
    """Return kernels in the form of the parameter model: ``None``, ``"precomputed"``, or a list of kernel expressions.

    Raises ValueError if a kernel cannot be parsed.
    """
    if kernels is None:
        return None
    if isinstance(kernels, str) and kernels == "precomputed":
        return "precomputed"
    return [str(spec) for spec in as_specs(kernels, sys.maxsize)]


def with_decided_kernels(config: Any, data: Any, resources: Resources, counts: np.ndarray | None = None) -> Any:
    """Return parameters with explicit kernels. Default kernels replace ``None``, and missing columns and widths are filled in from the
    data.

    ``counts``: multiplicities of the rows, ``(n,)``. Raises ValueError if the kernels do not suit the data.
    """
    if isinstance(config.kernels, str) or isinstance(data, GivenGrams):
        return config
    if config.kernels is None:
        texts, told = default_kernels(data, counts)
        if told:
            resources.warn(told)
        return config.model_copy(update={"kernels": texts})
    specs, close = as_specs(config.kernels, data.n_cols or None), closing_for(data, counts)
    # Those that leave nothing open stay as they were written.
    texts = [str(close(spec)) if spec.is_open else text for text, spec in zip(config.kernels, specs, strict=True)]
    return config if texts == config.kernels else config.model_copy(update={"kernels": texts})


def default_kernels(data: BlockStore | MemoryBlocks, counts: np.ndarray | None = None) -> tuple[list[str], str]:
    """Return the default kernels and a message about the choice. The message is empty if every feature gets its own kernels.

    ``counts``: multiplicities of the rows, ``(n,)``. Raises ValueError for strings, which have no default kernels.
    """
    n, d = data.n_rows, data.n_cols
    if counts is not None:
        # Weights below one do not make rows fewer.
        n = max(int(np.count_nonzero(counts)), round(float(counts.sum())))
    if not d:
        raise ValueError("rows are strings: set kernels, because strings have no default kernels")
    if bank_fits(n, d):
        return list(_grid_texts(d)), ""
    square, k = MedianWidths(data, counts).square(), PER_FEATURE * (d + 1)
    texts = whole_texts(n, 1.0 if square is None else square)
    bank = f"{k:,} kernels on all {d:,} features and on each of them would need {bytes_text(k * _matrix_bytes(n))}"
    more = "set kernels=[...] to choose others, such as 'rbf[0]' on one feature"
    return texts, f"kernels: {bank}, so {len(texts)} kernels on all features are used, with widths around the median distance; {more}"


@lru_cache(maxsize=16)
def _grid_texts(d: int) -> tuple[str, ...]:
    return tuple(str(spec) for spec in kernel_grid(d))


def bank_fits(n: int, d: int) -> bool:
    """Return whether one kernel per feature is small enough to be the default."""
    k = PER_FEATURE * (d + 1)
    return k <= BANK_KERNELS and k * _matrix_bytes(n) <= BANK_BYTES


def whole_texts(n: int, square: float) -> list[str]:
    """Return Gaussian and polynomial kernels on all features, as many as the memory for default kernels allows at n rows.

    ``square``: squared median distance. Gaussian widths are multiples of the median distance; polynomials divide products by ``square``.
    """
    count = max(FEWEST, min(len(WHOLE), WHOLE_BYTES // _matrix_bytes(n)))
    texts = []
    for kind in WHOLE[:count]:
        if not isinstance(kind, str):
            texts.append(f"rbf(gamma={0.5 / (kind**2 * square):.{DIGITS}g})")
        else:
            degree = kind.removeprefix("poly ")
            texts.append(kind if kind == "linear" else f"poly(degree={degree},gamma={1.0 / square:.{DIGITS}g}) cosine")
    return texts


def _matrix_bytes(n: int) -> int:
    return 4 * count_packed(n)


def closed_kernels(kernels: UserKernels, data: Any, counts: np.ndarray | None = None) -> list[KernelSpec]:
    """Return kernels as specs over the columns of a data set, with column names resolved and missing widths filled in.

    ``counts``: multiplicities of the rows, ``(n,)``. Raises ValueError if a kernel cannot be parsed or does not suit the data.
    """
    specs, close = as_specs(kernels, data.n_cols or None), closing_for(data, counts)
    return [close(spec) if spec.is_open else spec for spec in specs]


def closing_for(data: BlockStore | MemoryBlocks, counts: np.ndarray | None = None) -> Callable[[KernelSpec], KernelSpec]:
    """Return a function that resolves column names and fills in median widths of a kernel for a data set.

    ``counts``: multiplicities of the rows, ``(n,)``.
    """

    @cache
    def numbers() -> dict[str, int]:
        return {str(name): j for j, name in enumerate(data.feature_names() or ())}

    widths = MedianWidths(data, counts)
    return lambda spec: spec.closed(numbers, widths.gamma)


def resolved_kernels(kernels: Any, data: Any, normalize: str) -> list[Any]:
    """Return the explicit kernels of a fit. Kernels without a normalisation of their own get ``normalize``. Raises ValueError if kernels do
    not suit the data.
    """
    if isinstance(data, GivenGrams):
        if kernels != "precomputed":
            raise ValueError('kernel matrices are given as X, so kernels must be "precomputed"')
        specs: list[Any] = data.kernels()
    elif isinstance(kernels, str):
        raise ValueError('kernels="precomputed" needs matrices (n_kernels, n, n), or a Gram store')
    else:
        specs = as_specs(kernels, data.n_cols or None)
        check_rows(specs, data)
    return [_normalised(spec, normalize) if spec.normalize == "none" else spec for spec in specs]


@lru_cache(maxsize=1 << 14)
def _normalised(spec: SpecT, normalize: str) -> SpecT:
    # A spec checks its fields whenever it is made; fits of a search ask for the same ones.
    return replace(spec, normalize=normalize)


def check_rows(specs: Sequence[KernelSpec], data: BlockStore | MemoryBlocks) -> None:
    """Check that rows suit the kernels: strings for string kernels, otherwise numbers, and no negative numbers for kernels that exclude
    them.

    Negative values are checked in stores only. Raises DataError with the name of the kernel.
    """
    kind = "numbers" if data.n_cols else "strings"
    minima: np.ndarray | None = None
    for spec in specs:
        needed = KERNELS[spec.name].rows
        if needed != "any" and (needed == "strings") != (kind == "strings"):
            url = "" if data.url == "memory" else data.url
            raise DataError(f"kernel {spec} reads {needed}; the data set holds {kind}", url)
        if needed != "non-negative" or not isinstance(data, BlockStore):
            continue  # data in memory are checked by the kernels themselves
        minima = _column_minima(data) if minima is None else minima
        columns = np.arange(data.n_cols) if spec.columns is None else np.array(spec.columns)
        worst = columns[minima[columns].argmin()]
        if minima[worst] < 0:
            scaled = "" if data.scale.kind == "none" else f" (scaled: {data.scale.kind})"
            raise DataError(f"kernel {spec} needs values >= 0; column {worst} goes down to {minima[worst]:.6g}{scaled}", data.url)


def _column_minima(data: BlockStore) -> np.ndarray:
    """Return the smallest value of every column of a store, after scaling for kernels."""
    scale, minima = data.scale, np.asarray(data.column_table("minimum"), np.float64)
    minima = minima if scale.shift is None else minima - scale.shift
    return minima if scale.factor is None else minima * scale.factor


def with_gram_store(config: Any, inputs: InputsT, *, definite: bool = True) -> tuple[Any, InputsT]:
    """Return parameters and inputs of a run with kernels from a Gram store (``kernels="precomputed"``).

    If the store's kernels were computed from the rows, they become the kernels of the run, which can then predict new rows. Matrices that
    were computed elsewhere replace the data; with ``definite`` they must be positive semi-definite.

    Raises ValueError if no Gram store is given, and DataError if it belongs to other data.
    """
    if config.kernels != "precomputed":
        return config, inputs
    if config.gram_store is None:
        raise ValueError("kernels='precomputed' needs gram_store, the Gram store of these rows")
    store, data = GramStore.open(config.gram_store), inputs.data
    if store.n != data.n_rows:
        raise DataError(f"the Gram store holds matrices of {store.n} rows; {data.url} has {data.n_rows} rows", config.gram_store)
    records = [store.describe(digest) for digest in store.kernels]
    if any(record.get("name") == "precomputed" for record in records):
        return config, replace(inputs, data=GivenGrams(store, definite=definite))
    if store.meta.data != data.digest:
        raise DataError(f"the Gram store holds kernels of other data than {data.url}", config.gram_store)
    texts = [str(KernelSpec.from_json(record)) for record in records]
    return config.model_copy(update={"kernels": texts, "grams": "store"}), inputs


def gram_settings(config: Any, specs: Sequence[Any], data: DataSet, resources: Resources, counts: np.ndarray | None = None) -> GramSettings:
    """Return the Gram settings of a fit. Precomputed matrices are read in place, because there is nothing to compute.

    ``counts``: multiplicities of the rows, ``(n,)``.
    """
    policy, store = config.grams, config.gram_store
    if isinstance(data, GivenGrams):
        policy, store = "auto" if policy == "store" else policy, None
    return replace(GramSettings.of(data, resources, specs, policy, store), counts=counts)
