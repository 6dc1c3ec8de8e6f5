"""``began.json`` of a run records the conditions, besides the data, on which the state of the run depends. A resumed run compares its own
conditions with the recorded ones.
"""

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
    """Record the arithmetic of this process. Return a warning if a run resumes with different arithmetic, otherwise an empty text.

    Earlier records are ignored unless the run ``resumed`` from a checkpoint.
    """
    noted, now = run.read_json(NAME) or {}, arithmetic()
    seen = noted.get("arithmetic", []) if resumed else []
    if now not in seen:
        seen = [*seen, now]
        run.write_json(NAME, {**noted, "arithmetic": seen})
    return describe_change(seen) or ""


def confirm_grams(run: RunStore, place: str, holds: Mapping[str, Any], name: str = "grams") -> None:
    """Record the contents of a run's Gram store, or compare them with the contents when the run began.

    ``holds``: JSON values that determine the bits read from the store at ``place``. A run with several stores records each under a
    ``name``. Raises DigestMismatch if the store was rebuilt, or has other data, another layout or other kernels.
    """
    noted = run.read_json(NAME) or {}
    before = noted.get(name)
    if before is None:
        run.write_json(NAME, {**noted, name: dict(holds)})
    elif before != dict(holds):
        changes = "; ".join(f"{name} {_change(before.get(name), value)}" for name, value in holds.items() if before.get(name) != value)
        raise DigestMismatch(
            f"{place} is not the Gram store that the run {run.path} began with: {changes}. Build the same store again, or start a new run"
        )


def _change(before: Json, now: Json) -> str:
    if not isinstance(before, list):
        return f"was {before!r} and is {now!r}"
    gone, new = (len([item for item in one if item not in other]) for one, other in ((before, now), (now, before)))
    return f"are no longer the same: of {len(before)} {gone} are gone, {new} were added" if gone or new else "have another order"
