"""What a run reads from Gram stores, so that a run that goes on can tell whether they are still the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...storage import GramStore, RunStore
from ..records.began import confirm_grams
from ..records.data_set import DataSet
from .given import GivenGrams
from .settings import GramSettings


def confirm_contents(data: DataSet, settings: GramSettings, specs: Sequence[Any], run: RunStore | None) -> None:
    """Compare the Gram store that entries come from with what it held when the run began; the first time that is noted.

    ``data``: what the kernels are over; ``settings``: where the entries lie, and rows of a block. ``specs``:
    kernels; none where the run comes to more as it goes on. Then data, block rows and each kernel decide its entries. Raises
    DigestMismatch: what the store holds for this run has changed.
    """
    source = data.source if isinstance(data, GivenGrams) else None
    if run is None:
        return
    if isinstance(source, GramStore):
        confirm_grams(run, source.url, _given(source))
    elif settings.policy == "store":
        digests = list(dict.fromkeys(spec.digest() for spec in specs))
        holds = {"data": data.digest, "rows of a block": settings.block, **({"kernels": digests} if digests else {})}
        confirm_grams(run, str(settings.store), holds)


def confirm_read_whole(run: RunStore, configs: Iterable[Any]) -> None:
    """The same of a grid: Gram stores whose kernels are those of the fits, so that all its fits see the same ones.

    ``run``: the run of the grid; ``configs``: parameters of its points. Raises DigestMismatch: what one of them holds has changed since the
    first fit.
    """
    whole = {config.gram_store for config in configs if getattr(config, "kernels", None) == "precomputed" and config.gram_store}
    for url in sorted(whole):
        confirm_grams(run, url, _given(GramStore.open(url)), f"grams {url}")


def _given(source: GramStore) -> Mapping[str, Any]:
    # Digests of kernels that were computed elsewhere are those of their entries.
    meta = source.meta
    return {"data": meta.data, "rows of a block": meta.block, "type": meta.dtype, "kernels": list(source.kernels)}
