"""What the driver holds of a fit, on whole matrices or by passes, and which of both a fit takes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ....kernels.eigen.block_lanczos import block_columns
from ....storage import BlockStore, MemoryBlocks
from ...core.memory import Item, total_bytes
from ...grams.settings import PLACES, GramSettings
from ...passes.columns import entry_count
from .codes_pass import MAX_CANDIDATES
from .config import UMKLConfig


class Way(NamedTuple):
    """How a fit goes over its points, from sizes alone."""

    by_passes: bool
    settings: GramSettings
    items: tuple[Item, ...]  # that this process holds


def choose_way(
    config: UMKLConfig, settings: GramSettings, data: BlockStore | MemoryBlocks, k: int, n_bases: int, driver_memory: int
) -> Way:
    """Return whole matrices where they fit the driver's memory, else passes, whose kernels are in no bank."""
    n, d = data.n_rows, data.n_cols
    whole = (
        ("inner products of all rows", 8 * n * n),
        ("sum of the kernels in both precisions, with the eigensolver's copies", 28 * n * n),
        ("rows, as read and in float64", 16 * n * d),
        settings.items(n, k, driver_memory)[0],
        ("entries of the kernels at the bases", 16 * k * n * n_bases),
    )
    if total_bytes(whole) <= driver_memory:
        return Way(False, settings, whole)
    if settings.policy == "memory":
        settings = replace(settings, policy="recompute", reason=f"{PLACES['recompute']}: whole matrices are beyond the driver's memory")
    return Way(True, settings, _pass_items(config, data, k, n_bases))


def _pass_items(config: UMKLConfig, data: BlockStore | MemoryBlocks, k: int, n_bases: int) -> tuple[Item, ...]:
    n, columns = data.n_rows, block_columns(config.n_components)[1]
    largest = "largest entries of the rows of the kernels", 40 * k * n * n_bases
    codes = "candidates of the sparse codes and their coefficients", 40 * MAX_CANDIDATES * n
    return (
        ("bases of the last sweep and of this one, on their way", 24 * n * n_bases),
        ("diagonals of the kernels, sums of their rows, and parts of both", 96 * k * n),
        ("vectors of the eigensolver with their images, and coefficients", 24 * n * columns),
        ("rows of the model, as read and joined", 24 * entry_count(data)),
        *((largest,) if config.normalize == "column_sum" else ()),
        *((codes,) if config.start != "greedy" else ()),
    )
