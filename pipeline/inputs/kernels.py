"""The kernels of a fit: from short texts, specs, matrices or a Gram store to checked kernels, and the policy of their Gram matrices."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ...kernels.grams.functions import kernel_family
from ...kernels.grams.open_kernels import Closing, OpenKernel, as_kernels
from ...kernels.grams.spec import KernelSpec
from ...storage import BlockStore, DataError, GramStore, MemoryBlocks
from ..core.resources import Resources
from ..grams.given import GivenGrams, with_normalization
from ..grams.settings import GramSettings
from ..grams.widths import MedianWidths
from ..records.data_set import DataSet
from .default_kernels import default_kernels
from .scores import InputsT


def kernel_texts(kernels: Any) -> Any:
    """Return kernels as a parameter model holds them: ``None``, ``"precomputed"``, or a list of short texts.

    Raises ValueError: a kernel that cannot be read.
    """
    if kernels is None or (isinstance(kernels, str) and kernels == "precomputed"):
        return kernels
    return [str(spec) for spec in as_kernels(kernels, sys.maxsize)]


def with_decided_kernels(config: Any, data: Any, resources: Resources, counts: np.ndarray | None = None) -> Any:
    """Return parameters that name their kernels: the default ones where they name none, columns and widths as the data have them.

    ``counts``: how often rows count, ``(n,)``. Raises ValueError: kernels that do not suit the data.
    """
    kernels = config.kernels
    if isinstance(kernels, str) or isinstance(data, GivenGrams):
        return config
    if kernels is None:
        specs, told = default_kernels(data, counts)
        if told:
            resources.warn(told)
        return config.model_copy(update={"kernels": [str(spec) for spec in specs]})
    opened = [isinstance(one, OpenKernel) for one in as_kernels(kernels, data.n_cols or None)]
    if not any(opened):
        return config
    # The others stay as they were written.
    pairs = zip(kernels, opened, closed_kernels(kernels, data, counts), strict=True)
    return config.model_copy(update={"kernels": [str(spec) if is_open else text for text, is_open, spec in pairs]})


def closed_kernels(kernels: Any, data: Any, counts: np.ndarray | None = None) -> list[KernelSpec]:
    """Return kernels as specs over the columns of a data set: names of columns and widths that are left out are looked up in it.

    ``counts``: how often rows count, ``(n,)``. Raises ValueError: a kernel that cannot be read, or does not suit the data.
    """
    closing = closing_for(data, counts)
    return [closing.close(one) if isinstance(one, OpenKernel) else one for one in as_kernels(kernels, data.n_cols or None)]


def closing_for(data: BlockStore | MemoryBlocks, counts: np.ndarray | None = None) -> Closing:
    """Return what closes kernels over a data set: the names of its columns, looked up when one is named, and median widths of rows that
    count as often as ``counts`` ``(n,)`` says.
    """

    @cache
    def numbers() -> dict[str, int]:
        return {str(name): j for j, name in enumerate(data.feature_names() or ())}

    return Closing(numbers, MedianWidths(data, counts).gamma)


def resolved_kernels(kernels: Any, data: Any, normalize: str) -> list[Any]:
    """Return the kernels of a fit, with ``normalize`` where they leave it open. Raises ValueError: kernels that do not suit the data."""
    if isinstance(data, GivenGrams):
        if kernels != "precomputed":
            raise ValueError('kernel matrices are given as X, so kernels must be "precomputed"')
        return with_normalization(data.kernels(), normalize)
    if isinstance(kernels, str):
        raise ValueError('kernels="precomputed" needs matrices (n_kernels, n, n), or a Gram store')
    specs = default_kernels(data)[0] if kernels is None else closed_kernels(kernels, data)
    check_rows(specs, data)
    return with_normalization(specs, normalize)


def check_rows(specs: Sequence[KernelSpec], data: BlockStore | MemoryBlocks) -> None:
    """Refuse kernels of strings on numbers and the other way round, and those of values >= 0 on a store that has smaller ones.

    Raises DataError: the kernel is named.
    """
    kind = "numbers" if data.n_cols else "strings"
    minima = _column_minima(data) if any(kernel_family(spec.name).rows == "non-negative" for spec in specs) else None
    for spec in specs:
        needed = kernel_family(spec.name).rows
        if needed != "any" and (needed == "strings") != (kind == "strings"):
            url = "" if data.url == "memory" else data.url
            raise DataError(f"kernel {spec} reads {needed}; the data set holds {kind}", url)
        if needed != "non-negative" or minima is None:
            continue
        columns = np.arange(data.n_cols) if spec.columns is None else np.array(spec.columns)
        worst = columns[minima[columns].argmin()]
        if minima[worst] < 0:
            scaled = "" if data.scale.kind == "none" else f" (scaled: {data.scale.kind})"
            raise DataError(f"kernel {spec} needs values >= 0; column {worst} goes down to {minima[worst]:.6g}{scaled}", data.url)


def _column_minima(data: DataSet) -> np.ndarray | None:
    """Return the smallest value of every column of a store as kernels read it; kernels check data in memory themselves."""
    if not isinstance(data, BlockStore) or not data.n_cols:
        return None
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
