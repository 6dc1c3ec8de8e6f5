"""The kernels by name: their parameters, the data they need, and how a pair of rows enters.

============================ ================================================== ==========================
name(parameters)             k(x, z)                                            rows
============================ ================================================== ==========================
``linear``                   ``<x, z>``                                         numbers
``poly(degree,gamma,coef0)`` ``(gamma <x, z> + coef0)^degree``                  numbers
``rbf(gamma)``               ``exp(-gamma ||x - z||^2)``                        numbers
``laplacian(gamma)``         ``exp(-gamma ||x - z||_1)``                        numbers
``chi2(gamma)``              ``exp(-gamma sum_j (x_j - z_j)^2 / (x_j + z_j))``  numbers >= 0
``hik``                      ``sum_j min(x_j, z_j)``                            numbers >= 0
``additive_chi2``            ``sum_j 2 x_j z_j / (x_j + z_j)``                  numbers >= 0
``additive_gaussian(gamma)`` ``sum_j exp(-gamma (x_j - z_j)^2)``                numbers
``spectrum(k)``              inner product of the counts of all k-mers          strings
``callable(function, ...)``  ``function(X, Z, ...)``, imported by name          whatever it takes
============================ ================================================== ==========================

A quotient 0/0 counts as 0. With ``gamma = 1 / (2 sigma^2)`` the third is the Gaussian of width sigma. All are positive semi-definite
(a callable must be so itself): histogram intersection and additive chi-squared after Maji and Berg (2009) and Vedaldi and Zisserman
(2012), the spectrum kernel after Leslie, Eskin and Noble (2002).
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .distances import CHI2, CHI2_PRODUCTS, GAUSSIANS, MANHATTAN, MINIMA, PRODUCTS, SQUARES

Value = float | int | str


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: how a value is read, and the default (None: it must be given)."""

    read: Callable[[object], Value]
    default: Value | None = None


@dataclass(frozen=True)
class Family:
    """What the block builder must know of a kernel.

    Attributes
    ----------
    parameters : mapping
        Parameters in their order.
    pairing : int or None
        The sum over features of :mod:`distances` it is a function of; None for strings and callables.
    decays : bool
        True for ``exp(-gamma * sum)``, which shares its exponentials between values of gamma.
    rows : str
        ``"numbers"``, ``"non-negative"``, ``"strings"`` or ``"any"``.
    """

    parameters: Mapping[str, Parameter]
    pairing: int | None = None
    decays: bool = False
    rows: str = "numbers"


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise ValueError("it must be a finite number")
    return float(value)


def positive(value: object) -> float:
    """Return a number > 0 as float, or raise ValueError with the rule."""
    number = _number(value)
    if number <= 0.0:
        raise ValueError("it must be > 0")
    return number


def not_negative(value: object) -> float:
    """Return a number >= 0 as float, or raise ValueError with the rule."""
    number = _number(value)
    if number < 0.0:
        raise ValueError("it must be >= 0, or the kernel is not positive semi-definite")
    # A negative zero would change the digest.
    return number + 0.0


def counting(value: object) -> int:
    """Return a whole number >= 1 as int, or raise ValueError with the rule."""
    number = _number(value)
    if number < 1.0 or number != int(number):
        raise ValueError("it must be a whole number >= 1")
    return int(number)


def dotted(value: object) -> str:
    """Return ``"module:function"``, or raise ValueError with the rule."""
    parts = value.split(":") if isinstance(value, str) else []
    if len(parts) != 2 or not all(name.isidentifier() for part in parts for name in part.split(".")):
        raise ValueError("it must name an importable function as 'module:function'")
    return str(value)


def plain(value: object) -> Value:
    """Return a number or string that text and JSON can hold, or raise ValueError with the rule."""
    if isinstance(value, bool):
        raise ValueError("it must be a number or a string")
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, str):
        if "'" in value or not value.isprintable():
            raise ValueError("a string must be printable and without single quotes")
        return str(value)
    return _number(value)


GAMMA = Parameter(positive)

KERNELS: dict[str, Family] = {
    "linear": Family({}, PRODUCTS),
    "poly": Family({"degree": Parameter(counting), "gamma": Parameter(positive, 1.0), "coef0": Parameter(not_negative, 1.0)}, PRODUCTS),
    "rbf": Family({"gamma": GAMMA}, SQUARES, decays=True),
    "laplacian": Family({"gamma": GAMMA}, MANHATTAN, decays=True),
    "chi2": Family({"gamma": Parameter(positive, 1.0)}, CHI2, decays=True, rows="non-negative"),
    "hik": Family({}, MINIMA, rows="non-negative"),
    "additive_chi2": Family({}, CHI2_PRODUCTS, rows="non-negative"),
    "additive_gaussian": Family({"gamma": GAMMA}, GAUSSIANS),
    "spectrum": Family({"k": Parameter(counting)}, rows="strings"),
    "callable": Family({"function": Parameter(dotted)}, rows="any"),
}
"""All kernels by name."""


def family(name: str) -> Family:
    """Return the family of a name.

    Raises
    ------
    ValueError
        If there is none; the message names the nearest one.
    """
    if name in KERNELS:
        return KERNELS[name]
    near = difflib.get_close_matches(str(name), [*KERNELS, *ALIASES], n=1, cutoff=0.4)
    meant = ALIASES.get(near[0], near[0]) if near else None
    hint = f"did you mean {meant!r}? " if meant else ""
    raise ValueError(f"unknown kernel {name!r}; {hint}known: {', '.join(KERNELS)}")


ALIASES = {"polynomial": "poly", "gaussian": "rbf", "histogram_intersection": "hik", "string": "spectrum", "dot": "linear"}
"""Other usual names, for the hint only."""


def read_parameters(name: str, given: Mapping[str, object]) -> tuple[tuple[str, Value], ...]:
    """Return the parameters of a kernel in their order, defaults filled in, so that equal kernels have equal parameters.

    Raises
    ------
    ValueError
        If the kernel or a parameter is unknown, one is missing, or a value breaks its rule.
    """
    known = family(name).parameters
    extra = sorted(set(given) - set(known))
    if extra and name != "callable":
        takes = ", ".join(known) or "none"
        raise ValueError(f"kernel {name!r} has no parameter {extra[0]!r}; it takes: {takes}")
    rules = {**known, **{key: Parameter(plain) for key in extra}}
    return tuple((key, _read(name, key, rule, given)) for key, rule in rules.items())


def _read(name: str, key: str, rule: Parameter, given: Mapping[str, object]) -> Value:
    if key not in given:
        if rule.default is None:
            raise ValueError(f"kernel {name!r} needs the parameter {key!r}")
        return rule.default
    if not key.isidentifier():
        raise ValueError(f"kernel {name!r}: {key!r} is not a name of a parameter")
    try:
        return rule.read(given[key])
    except ValueError as error:
        raise ValueError(f"kernel {name!r}: {key} is {given[key]!r}; {error}") from None
