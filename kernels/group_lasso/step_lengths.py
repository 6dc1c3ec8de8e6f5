r"""Detection of steps that are too long, for streams with squared loss, and the ``gamma`` that avoids them.

A row of squared norm N changes its own prediction by :math:`N / (\gamma \sqrt t)` times its error. If this factor is far above 1, the
predictions oscillate with growing amplitude until :math:`\sqrt t` has become large enough. Other losses have bounded slopes and do not have
this problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Entry
from ..jit import compiled

OVERSHOOT = 10.0  # Residuals so many times as large as the largest target, on average of some rows: answering 0 is never above 1.
FEW = 100  # Rows of a call that says little of those before it.


def longest_row(indptr: Array, values: Array, weight: Array) -> float:
    """Return the largest product of squared norm and weight over rows in CSR form; 0 without rows."""
    owners = np.repeat(np.arange(len(weight)), np.diff(indptr[: len(weight) + 1]))
    with np.errstate(over="ignore"):
        return float((np.bincount(owners, np.square(values[: len(owners)]), len(weight)) * weight).max(initial=0.0))


@dataclass
class StepWatch:
    """Watches the losses of a stream and composes the message if steps were too long; ``gamma`` is the weight of the proximal term."""

    gamma: float
    message: str = ""
    _reach: float = 0.0  # the largest target so far
    _longest: float = 0.0  # the largest squared norm of the rows of short calls

    def remedy(self, indptr: Array, values: Array, weight: Array) -> str:
        """Return the advice for steps on these rows: the parameter to change, and its smallest value at which no step overshoots."""
        # Rounded up, so that the number that is told is one that works.
        longest = 1.005 * max(self._longest, longest_row(indptr, values, weight))
        return f"raise gamma={self.gamma:g} to {longest:.3g}, the largest squared norm of the rows, or scale the features"

    def remember(self, indptr: Array, values: Array, weight: Array) -> None:
        """Record the longest row of a call with few rows. The losses of so few rows say little about whether earlier steps were too
        long.
        """
        if len(weight) < FEW:
            self._longest = max(self._longest, longest_row(indptr, values, weight))

    def look(self, losses: Array | float, total: float, target: Array) -> bool:
        """Return True the first time that steps are found to be too long, otherwise False.

        The arguments describe the rows just learned: the loss sums of each model, the sum of the rows' weights, and their targets.
        """
        self._reach = max(self._reach, float(np.abs(target).max(initial=0.0)))
        return not self.message and total > 0.0 and bool(np.max(losses) > 0.5 * total * (OVERSHOOT * self._reach) ** 2)

    def tell(self, indptr: Array, values: Array, weight: Array) -> None:
        """Compose the message that steps are too long; its advice is computed from these rows."""
        size = f"predictions miss by more than {OVERSHOOT:g} times the largest target"
        self.message = f"steps are too long, {size}; {self.remedy(indptr, values, weight)}"


# Steps of the intercept of a stream: their length is its own, whatever the rows of a round and the scale of the features.
#
# The slope of an intercept is a mean of slopes of losses over the rows of a round, of size one, where that of a weight is as small as its
# feature. One proximity term cannot suit both: the ``gamma`` of features that are rare and of size a tenth lets an intercept overshoot by
# more than it was wrong. So that of an intercept is not the closed form ``-s_b / (gamma sqrt(t))`` (Yang 2011, (3.9)) but mirror descent,
#
# .. math:: \psi(b_{t+1}) = \psi(b_t) - \frac{g_t}{4 L \sqrt{A_t}}, \qquad A_t = \sum_{\tau \le t} \omega_\tau^2,
#
# with the slope :math:`g_t` of the round's mean loss in b, the mean weight :math:`\omega_t` of its rows, and the bound L on the curvature
# of the loss: 1/4 (logistic), 1 (squared), 1/2 in its place for the hinge. Without weights :math:`A_t = t`. The squared loss, whose slopes
# grow with the distance, takes :math:`\psi(b) = b`; the others, whose slopes are bounded, :math:`\psi = \mathrm{arsinh}`: steps of size one
# about 0, and shares of b far from it, so that intercepts of any size are reached, and left, in few rounds (Ghai, Hazan, Singer:
# Exponentiated gradient meets gradient descent, 2020).
#
# *The case of mean zero*: weights that stay, rows of weight one, and the best intercept 0. Let :math:`a_t = \psi(b_t)`, and let the slope
# be :math:`h_t b_t + \xi_t` with :math:`0 < h \le h_t \le L` and noise :math:`\xi_t` of mean zero and variance :math:`\sigma^2 / B` in
# rounds of B rows. With :math:`h_t' = h_t b_t / a_t \ge h_t` then for all B
#
# .. math:: E a_{t+1}^2 = E \Big(1 - \frac{h_t'}{4 L \sqrt t}\Big)^2 a_t^2 + \frac{\sigma^2}{16 L^2 B t}
#           \le \Big(1 - \frac{h}{4 L \sqrt t}\Big) E a_t^2 + \frac{\sigma^2}{16 L^2 B t},
#
# for the bracket lies in [0, 1): squared: :math:`h_t' = h_t \le L`; logistic: :math:`4 L = 1`, and the mean slope is at most 1, hence no
# more than :math:`|a_t|` where that is at least 1, and :math:`h_t' \le L \sinh(1)` elsewhere. Without noise b goes to 0 and never past it,
# since steps sum to infinity, and with noise :math:`E a_t^2` falls to the order of :math:`\sigma^2 / (4 L h B \sqrt t)`. An intercept by
# (3.9) is multiplied by :math:`1 - h_t / (\gamma \sqrt t)`, whose size exceeds 1 while :math:`2 \gamma \sqrt t < h_t`: over these rounds it
# grows like :math:`\prod h_\tau / (\gamma \sqrt \tau)`, which no later round forgets.
#
# *Regret.* Losses are convex in weights and intercept together, so the regret is that of the weights (Theorem 2, with the slopes as they
# come) and :math:`\sum g_t (b_t - b)`. With :math:`|b_t|, |b| \le R` and slopes of rows within G the latter is at most
# :math:`(8 L R\, \mathrm{arsinh} R + G^2 \sqrt{1 + R^2} / (4 L)) \sqrt{A_T}` for arsinh, and
# :math:`(8 L R^2 + G^2 / (4 L)) \sqrt{A_T}` for the squared loss, as :math:`\sum \omega_t^2 / \sqrt{A_t} \le 2 \sqrt{A_T}`: of the order of
# the square root of the rounds, as that of the weights.
#
# *Targets far from 0.* The squared loss has no natural origin: its intercept starts at the target of the first row, after what was lost on
# that row is noted. A number that is added to all targets is then added to the intercept, and changes nothing else but for round-off.


@compiled(inline=True)
def intercept_after(b: Entry, slope: Entry, steepness: float, paid: Entry, bounded: bool) -> Entry:
    """Return the intercept after a round, by mirror descent: ``psi(new b) = psi(b) - slope / (steepness sqrt(paid))``. If the loss has
    bounded slopes (``bounded``), psi is arsinh, otherwise the identity.

    ``steepness`` is 4 L for losses of curvature at most L (hinge: L = 1/2), and ``paid`` is the sum of the squared mean row weights of the
    rounds.
    """
    step = slope / (steepness * np.sqrt(paid))
    return np.sinh(np.arcsinh(b) - step) if bounded else b - step
