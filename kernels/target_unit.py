"""Standardised real targets: solvers receive targets divided by their standard deviation, and centred if the model has an intercept.

For targets y = shift + size * y', a model of y' under the same penalty has decision values ``shift + size * f'``. Penalty and losses scale
with ``size``². Parameters refer to targets of standard deviation one, so that they mean the same in every unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .arrays import FloatArray

Values = TypeVar("Values", float, FloatArray)

_BITS = 40  # of a target in the machine's unit

# Figures of a fit in the square of the unit: values of an objective, bounds of it, and their distances.
SQUARED_FIGURES = (
    "objective", "gap", "restricted_gap", "certified_gap", "lower_bound", "upper_bound", "bound", "worst_outside", "refit_objective",
    "descendant_gap",
)  # fmt: skip


class TargetUnit(NamedTuple):
    """The affine map from the solver's target y' to the original target: ``y = shift + size * y'``. Class labels are not changed."""

    shift: float = 0.0
    size: float = 1.0

    def values(self, values: Values) -> Values:
        """Map decision values or intercepts from the solver's unit to the unit of the target; labels stay as they are."""
        return values if self == LABELS else values * self.size + self.shift

    def figures(self, figures: Mapping[str, Any]) -> dict[str, Any]:
        """Map statistics of a fit to the unit of the target; objectives scale with the square of the unit."""
        area = self.size**2
        squared = {name: area * figures[name] for name in SQUARED_FIGURES if figures.get(name) is not None}
        return {**figures, **squared}


LABELS = TargetUnit()


def in_machine_unit(target: FloatArray, weight: FloatArray, *, centred: bool) -> tuple[FloatArray, TargetUnit]:
    """Return real targets divided by their standard deviation over the rows with positive weight, and the unit that reverses this.

    Targets are centred if ``centred``. The targets are then rounded to multiples of 2^-40 times the largest target, far below the accuracy
    of a fit. Without this rounding, the same targets in another unit would be rounded differently, and loops could take different steps.
    """
    shares = weight / weight.max()
    # Overflow of squares is no reason to refuse a unit.
    top = float(np.ldexp(1.0, int(np.frexp(np.abs(target).max(initial=0.0))[1]) - 1))
    scaled = target / top
    mean = float(np.average(scaled, weights=shares))
    spread = float(np.sqrt(np.average((scaled - mean) ** 2, weights=shares))) or abs(mean) or 1.0
    shift = mean if centred else 0.0
    values = (scaled - shift) / spread
    grid = np.ldexp(1.0, int(np.frexp(np.abs(values[weight > 0]).max())[1]) - _BITS)
    return np.rint(values / grid) * grid, TargetUnit(shift * top, spread * top)
