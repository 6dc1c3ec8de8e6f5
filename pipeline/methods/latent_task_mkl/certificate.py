"""What is proven of a fit over all groups of tasks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """What is proven of a fit.

    ``gap``: distance of the objective to the optimum over all groups, at most; ``relative_gap``: the same, as a share of the objective;
    ``complete``: whether no group above the threshold escaped the search: neither its caps nor those of the loop cut it off;
    ``sufficient``: relative gap by the thesis' sufficient condition, sums over descendants of the groups next to the working set (6.6);
    usually useless; ``visits``: groups that the last search looked at, of ``2^T - 1``.
    """

    gap: float
    relative_gap: float
    complete: bool
    sufficient: float
    visits: int
