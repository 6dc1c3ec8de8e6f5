r"""Steps of a stream of the squared loss that are too long: how they are noticed, and from which ``gamma`` on they are not.

A row of squared norm N changes its own prediction by :math:`N / (\gamma \sqrt t)` of what it was wrong by. Where that is far above 1 the
predictions swing, each time further, until :math:`\sqrt t` has caught up; the other losses have slopes that are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array

OVERSHOOT = 10.0  # Residuals so many times as large as the largest target, on average of some rows: answering 0 is never above 1.
FEW = 100  # Rows of a call that says little of those before it.


def longest_row(indptr: Array, values: Array, weight: Array) -> float:
    """Return the largest squared norm of rows in CSR form, each times its weight; 0 of none."""
    owners = np.repeat(np.arange(len(weight)), np.diff(indptr[: len(weight) + 1]))
    with np.errstate(over="ignore"):
        return float((np.bincount(owners, np.square(values[: len(owners)]), len(weight)) * weight).max(initial=0.0))


@dataclass
class StepWatch:
    """Looks at the losses of a stream, and knows what to tell once steps were too long; ``gamma``: weight of the proximity term."""

    gamma: float
    message: str = ""
    _reach: float = 0.0  # the largest target so far
    _longest: float = 0.0  # the largest squared norm of the rows of short calls

    def remedy(self, indptr: Array, values: Array, weight: Array) -> str:
        """Return what to do about steps on these rows: the parameter, and the value from which on none overshoots."""
        # Rounded up, so that the number that is told is one that works.
        longest = 1.005 * max(self._longest, longest_row(indptr, values, weight))
        return f"raise gamma={self.gamma:g} to {longest:.3g}, the largest squared norm of the rows, or scale the features"

    def remember(self, indptr: Array, values: Array, weight: Array) -> None:
        """Keep the length of the rows of a short call, which say little of those before."""
        if len(weight) < FEW:
            self._longest = max(self._longest, longest_row(indptr, values, weight))

    def look(self, losses: Array | float, total: float, target: Array) -> bool:
        """Return whether steps are seen to be too long for the first time, of rows that were learnt: the sums of their losses, of every
        machine, and of their weights, and their targets.
        """
        self._reach = max(self._reach, float(np.abs(target).max(initial=0.0)))
        return not self.message and total > 0.0 and bool(np.max(losses) > 0.5 * total * (OVERSHOOT * self._reach) ** 2)

    def tell(self, indptr: Array, values: Array, weight: Array) -> None:
        """Have the message say what to do about steps on these rows."""
        size = f"predictions miss by more than {OVERSHOOT:g} times the largest target"
        self.message = f"steps are too long, {size}; {self.remedy(indptr, values, weight)}"
