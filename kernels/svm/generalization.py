r"""A generalisation bound for models with a learnt kernel, from a family of kernels of known pseudo-dimension.

Source: Srebro, Ben-David: Learning bounds for support vector machines with learned kernels (COLT 2006), with the three steps and the
constants of Zhuang's thesis (2011, section 2.6.3.3). Predictors have norm at most 1 in the space of one of the kernels. The family has
pseudo-dimension at most m, and :math:`k(x, x) \le R^2`. With margin :math:`\gamma` and n rows,

.. math::

    L(f) \le L_n(f) + \sqrt{\tfrac8n \big( 1 + \ln N_{2n}(F, \tfrac\gamma2) + \ln \tfrac1\delta \big)}, \qquad
    N_n(F, \epsilon) \le 2 N_n(K, \tfrac{\epsilon^2}{4n}) \Big(\frac{16 n R^2}{\epsilon^2}\Big)^{\frac{64 R^2}{\epsilon^2}
    \ln \frac{\epsilon e n}{8 R}}, \qquad N_n(K, \epsilon) \le \Big(\frac{e n^2 R^2}{\epsilon m}\Big)^m .
"""

from __future__ import annotations

import math

import numpy as np


def generalization_bound(n: int, m: int, margin: float, radius: float = 1.0, delta: float = 0.05) -> float:
    r"""Bound how much the risk of a model with a learnt kernel exceeds its share of training rows within the margin.

    The bound holds with probability at least ``1 - delta`` over n rows, for every kernel of a family of pseudo-dimension at most m and
    every predictor f of norm at most 1 in its space. Then the probability of :math:`y f(x) \le 0` exceeds the share of training rows with
    :math:`y f(x) < \gamma` by at most

    .. math::

        \sqrt{\frac8n \Big( 2 + m \ln \frac{128 e n^3 R^2}{\gamma^2 m} + \frac{256 R^2}{\gamma^2} \ln \frac{\gamma e n}{8 R}
        \ln \frac{128 n R^2}{\gamma^2} + \ln \frac1\delta \Big)} .

    Sums of m kernels have pseudo-dimension at most m, with weights of any sign, and so has the exponential of such sums. A two-layer model
    on m kernels therefore costs no more than one layer. The bound does not cover an intercept. Even in the best case, the bound is below 1
    only from about a million rows on.

    Parameters
    ----------
    n
        Number of training rows, drawn independently.
    m
        Pseudo-dimension of the family, such as the number of kernels.
    margin
        :math:`\gamma` for predictors of norm 1. For a support vector machine with ``y f(x) >= 1`` it is ``1 / ||f||``. It must be chosen
        before the rows are seen.
    radius
        R, the largest :math:`\sqrt{k(x, x)}` over all kernels of the family.
    delta
        Probability that the bound fails.

    Returns
    -------
    float
        The excess risk; infinity if ``n < 128 (radius / margin)^2`` or ``m > 4 n^2``, where the covering numbers are not bounded.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a number or is out of range; the message names it.

    References
    ----------
    Srebro, Ben-David: Learning bounds for support vector machines with learned kernels. COLT 2006.

    Examples
    --------
    >>> from gramplane import generalization_bound
    >>> round(generalization_bound(100_000_000, 10, margin=0.5), 2)
    0.18
    """
    _check(n, m, margin, radius, delta)
    n, m, margin, radius, delta = int(n), int(m), float(margin), float(radius), float(delta)
    ratio = (radius / margin) ** 2
    if n < 128.0 * ratio or m > 4 * n * n:
        return math.inf
    kernels = m * math.log(128.0 * math.e * float(n) ** 3 * ratio / m)
    margins = 256.0 * ratio * math.log(math.e * n / (8.0 * math.sqrt(ratio))) * math.log(128.0 * n * ratio)
    return math.sqrt(8.0 / n * (2.0 + kernels + margins - math.log(delta)))


def _check(n: int, m: int, margin: float, radius: float, delta: float) -> None:
    for name, value in (("n", n), ("m", m), ("margin", margin), ("radius", radius), ("delta", delta)):
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise TypeError(f"{name}={value!r}: must be a number")
    for name, value in (("n", n), ("m", m)):
        if not math.isfinite(value) or value != int(value) or value < 1:
            raise ValueError(f"{name}={value!r}: must be a whole number, at least 1")
    for name, value in (("margin", margin), ("radius", radius)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name}={value!r}: must be finite and above 0")
    if margin > radius:
        raise ValueError(f"margin={margin!r}: must be at most radius={radius!r}, the largest value of a predictor of norm 1")
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta!r}: must be between 0 and 1")
