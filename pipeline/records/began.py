"""``began.json`` of a run: what it began with beside its data. A run that goes on compares: its state was made with these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...cluster.arithmetic import arithmetic, describe_change
from ...storage import DigestMismatch
from ...storage.errors import Json

if TYPE_CHECKING:
    from ...storage import RunStore

NAME = "began"


def note_arithmetic(run: RunStore, resumed: bool) -> str:
    """Note what this process computes with; return what to say where a run goes on with something else, else an empty text.

    Unless it ``resumed`` from a state of earlier steps, nothing of what was noted before counts.
    """
    noted, now = run.read_json(NAME) or {}, arithmetic()
    seen = noted.get("arithmetic", []) if resumed else []
    if now not in seen:
        seen = [*seen, now]
        run.write_json(NAME, {**noted, "arithmetic": seen})
    return describe_change(seen) or ""


def confirm_grams(run: RunStore, place: str, holds: Mapping[str, Any], name: str = "grams") -> None:
    """Note what the Gram store of a run holds for it, or compare with what it held when the run began.

    ``holds`` are JSON values by name: whatever decides the bits that are read from the store at ``place``; a run that reads several notes
    each under a ``name``. Raises DigestMismatch: it was made again, of other data or otherwise laid out, or holds other kernels now.
    """
    noted = run.read_json(NAME) or {}
    before = noted.get(name)
    if before is None:
        run.write_json(NAME, {**noted, name: dict(holds)})
    elif before != dict(holds):
        changes = "; ".join(f"{name} {_change(before.get(name), value)}" for name, value in holds.items() if before.get(name) != value)
        raise DigestMismatch(
            f"{place} is not the Gram store that the run {run.path} began with: {changes}. Make it again as it was, or start a new run"
        )


def _change(before: Json, now: Json) -> str:
    if not isinstance(before, list):
        return f"was {before!r} and is {now!r}"
    gone, new = (len([item for item in one if item not in other]) for one, other in ((before, now), (now, before)))
    return f"are no longer the same: of {len(before)} {gone} are gone, {new} were added" if gone or new else "have another order"
