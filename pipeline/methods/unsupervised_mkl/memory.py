"""What the driver holds of a fit, on whole matrices or by passes, and which of both a fit takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ....kernels.eigen.block_lanczos import block_columns
from ....storage import BlockStore, MemoryBlocks
from ...core.memory import Item, total_bytes
from ...grams.memory import BLOCKS, IN_PLACE, PACKED
from ...grams.settings import PLACES, GramSettings
from ...passes.columns import entry_count
from ...records.holdings import Held
from .codes_pass import MAX_CANDIDATES
from .config import UMKLConfig

WHOLE = "where all of it is within L"
PASSES = "where whole matrices are not within L"

PRODUCTS = Held("inner products of all rows", "8 n^2", WHOLE)
SUM = Held("sum of the kernels in both precisions, with the eigensolver's copies", "28 n^2", WHOLE)
ROWS = Held("rows, as read and in float64", "16 n d", WHOLE)
ENTRIES = Held("entries of the kernels at the bases", "16 k n B", f"{WHOLE}; B = `n_bases`")
BASES = Held("bases of the last sweep and of this one, on their way", "24 n B", f"{PASSES}; B = `n_bases`")
SUMS = Held("diagonals of the kernels, sums of their rows, and parts of both", "96 k n", PASSES)
LARGEST = Held("largest entries of the rows of the kernels", "40 k n B", f"{PASSES}, `normalize: column_sum`")
VECTORS = Held(
    "vectors of the eigensolver with their images, and coefficients",
    "24 n w",
    f"{PASSES}; w = {block_columns(0)[1]}, more from 21 components on",
)
CODES = Held(
    "candidates of the sparse codes and their coefficients", f"{40 * MAX_CANDIDATES} n", f"{PASSES}, `start: sparse-coding` and the like"
)
MODEL = Held("rows of the model, as read and joined", "24 entries", PASSES)

HELD = (PRODUCTS, SUM, ROWS, PACKED, IN_PLACE, BLOCKS, ENTRIES, BASES, SUMS, LARGEST, CODES, VECTORS, MODEL)


class Way(NamedTuple):
    """How a fit goes over its points, from sizes alone."""

    by_passes: bool
    settings: GramSettings
    held: tuple[Item, ...]  # by this process


def choose_way(
    config: UMKLConfig, settings: GramSettings, data: BlockStore | MemoryBlocks, k: int, n_bases: int, driver_memory: int
) -> Way:
    """Return whole matrices where they fit the driver's memory, else passes, whose kernels are in no bank."""
    n, d = data.n_rows, data.n_cols
    matrices = settings.held(n, k, driver_memory)[0]
    whole = PRODUCTS.of(n=n), SUM.of(n=n), ROWS.of(n=n, d=d), matrices, ENTRIES.of(k=k, n=n, B=n_bases)
    if total_bytes(whole) <= driver_memory:
        return Way(False, settings, whole)
    if settings.policy == "memory":
        settings = replace(settings, policy="recompute", reason=f"{PLACES['recompute']}: whole matrices are beyond the driver's memory")
    return Way(True, settings, _pass_held(config, data, k, n_bases))


def _pass_held(config: UMKLConfig, data: BlockStore | MemoryBlocks, k: int, n_bases: int) -> tuple[Item, ...]:
    n, columns = data.n_rows, block_columns(config.n_components)[1]
    held: Sequence[Item] = (BASES.of(n=n, B=n_bases), SUMS.of(k=k, n=n), VECTORS.of(n=n, w=columns), MODEL.of(entries=entry_count(data)))
    largest = (LARGEST.of(k=k, n=n, B=n_bases),) if config.normalize == "column_sum" else ()
    return (*held, *largest, *((CODES.of(n=n),) if config.start != "greedy" else ()))
