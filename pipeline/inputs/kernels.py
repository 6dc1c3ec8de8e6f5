"""The kernels of a fit: from short texts, specs, matrices or a Gram store to checked kernels, and the policy of their Gram matrices.

A fit that names none gets a bank over single features while it is small, else kernels on all features around their median distance. Which
of both follows from the numbers of rows and features alone, and the widths from a sample of rows that these numbers draw.
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
    """Return kernels as a parameter model holds them: ``None``, ``"precomputed"``, or a list of short texts.

    Raises ValueError: a kernel that cannot be read.
    """
    if kernels is None:
        return None
    if isinstance(kernels, str) and kernels == "precomputed":
        return "precomputed"
    return [str(spec) for spec in as_specs(kernels, sys.maxsize)]


def with_decided_kernels(config: Any, data: Any, resources: Resources, counts: np.ndarray | None = None) -> Any:
    """Return parameters that name their kernels: the default ones where they name none, columns and widths as the data have them.

    ``counts``: how often rows count, ``(n,)``. Raises ValueError: kernels that do not suit the data.
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
    """Return the kernels of a fit that names none, and what to tell of the choice; nothing where it is the bank over single features.

    ``counts``: how often rows count, ``(n,)``. Raises ValueError: rows are strings, for which there is no default.
    """
    n, d = data.n_rows, data.n_cols
    if counts is not None:
        # Weights below one do not make rows fewer.
        n = max(int(np.count_nonzero(counts)), round(float(counts.sum())))
    if not d:
        raise ValueError("kernels must be given where rows are strings")
    if bank_fits(n, d):
        return list(_grid_texts(d)), ""
    square, k = MedianWidths(data, counts).square(), PER_FEATURE * (d + 1)
    texts = whole_texts(n, 1.0 if square is None else square)
    bank = f"{k:,} kernels on all features and on each of {d:,} would be {bytes_text(k * _matrix_bytes(n))} of matrices"
    more = "kernels=[...] names others, such as 'rbf[0]' on one feature"
    return texts, f"kernels: {bank}, so {len(texts)} on all features at once are taken, widths around the median distance of rows; {more}"


@lru_cache(maxsize=16)
def _grid_texts(d: int) -> tuple[str, ...]:
    return tuple(str(spec) for spec in kernel_grid(d))


def bank_fits(n: int, d: int) -> bool:
    """Return whether a bank over single features is small enough to be the default."""
    k = PER_FEATURE * (d + 1)
    return k <= BANK_KERNELS and k * _matrix_bytes(n) <= BANK_BYTES


def whole_texts(n: int, square: float) -> list[str]:
    """Return Gaussians on all features of n rows at shares of the median distance, ``square`` squared, and polynomials with it as
    their unit; as many as keep within their bytes.
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
    """Return kernels as specs over the columns of a data set: names of columns and widths that are left out are looked up in it.

    ``counts``: how often rows count, ``(n,)``. Raises ValueError: a kernel that cannot be read, or does not suit the data.
    """
    specs, close = as_specs(kernels, data.n_cols or None), closing_for(data, counts)
    return [close(spec) if spec.is_open else spec for spec in specs]


def closing_for(data: BlockStore | MemoryBlocks, counts: np.ndarray | None = None) -> Callable[[KernelSpec], KernelSpec]:
    """Return what closes kernels over a data set: the names of its columns, looked up when one is named, and median widths of rows that
    count as often as ``counts`` ``(n,)`` says.
    """

    @cache
    def numbers() -> dict[str, int]:
        return {str(name): j for j, name in enumerate(data.feature_names() or ())}

    widths = MedianWidths(data, counts)
    return lambda spec: spec.closed(numbers, widths.gamma)


def resolved_kernels(kernels: Any, data: Any, normalize: str) -> list[Any]:
    """Return the kernels of a fit, decided before, with ``normalize`` where they leave it open. Raises ValueError: kernels that do not suit
    the data.
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
    """Refuse kernels of strings on numbers and the other way round, and those of values >= 0 on a store that has smaller ones.

    Raises DataError: the kernel is named.
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
    """Return the smallest value of every column of a store as kernels read it."""
    scale, minima = data.scale, np.asarray(data.column_table("minimum"), np.float64)
    minima = minima if scale.shift is None else minima - scale.shift
    return minima if scale.factor is None else minima * scale.factor


def with_gram_store(config: Any, inputs: InputsT, *, definite: bool = True) -> tuple[Any, InputsT]:
    """Return parameters and inputs of a run whose kernels are those of a Gram store (``kernels="precomputed"``).

    Kernels that were computed from the rows become the kernels of the run, which then predicts on other rows; matrices that were computed
    elsewhere replace the data; they must be positive semi-definite where ``definite`` says so.

    Raises ValueError: no Gram store is named; DataError: it belongs to other data.
    """
    if config.kernels != "precomputed":
        return config, inputs
    if config.gram_store is None:
        raise ValueError("kernels='precomputed' needs gram_store, the Gram store of these rows")
    store, data = GramStore.open(config.gram_store), inputs.data
    if store.n != data.n_rows:
        raise DataError(f"it holds matrices of {store.n} rows; {data.url} has {data.n_rows}", config.gram_store)
    records = [store.describe(digest) for digest in store.kernels]
    if any(record.get("name") == "precomputed" for record in records):
        return config, replace(inputs, data=GivenGrams(store, definite=definite))
    if store.meta.data != data.digest:
        raise DataError(f"it holds kernels of other data than {data.url}", config.gram_store)
    texts = [str(KernelSpec.from_json(record)) for record in records]
    return config.model_copy(update={"kernels": texts, "grams": "store"}), inputs


def gram_settings(config: Any, specs: Sequence[Any], data: DataSet, resources: Resources, counts: np.ndarray | None = None) -> GramSettings:
    """Return the policy of the Gram matrices of a fit; precomputed ones are read as they are: there is nothing to build into a store.

    ``counts``: how often rows count, ``(n,)``.
    """
    policy, store = config.grams, config.gram_store
    if isinstance(data, GivenGrams):
        policy, store = "auto" if policy == "store" else policy, None
    return replace(GramSettings.of(data, resources, specs, policy, store), counts=counts)
