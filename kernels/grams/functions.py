"""The kernels by name: their parameters, their values k(x, z) for rows x and z, and the rows they accept.

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

A quotient 0/0 counts as 0. With ``gamma = 1 / (2 sigma^2)``, ``rbf`` is the Gaussian of width sigma. All kernels are positive
semi-definite, and a callable must be so, too. Sources: Maji and Berg (2009) and Vedaldi and Zisserman (2012) for histogram intersection and
additive chi-squared, Leslie, Eskin and Noble (2002) for the spectrum kernel.
"""

from __future__ import annotations

import difflib
import itertools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..arrays import Array
from .distances import CHI2, CHI2_PRODUCTS, GAUSSIANS, MANHATTAN, MINIMA, PRODUCTS, SQUARES

Value = float | int | str


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    * ``read``: the function that checks and converts the parameter's value.
    * ``default``: the default value.
    * ``may_be_open``: whether the value can be derived from the data. A parameter with no default that cannot be derived is required.
    """

    read: Callable[[object], Value]
    default: Value | None = None
    may_be_open: bool = False


@dataclass(frozen=True)
class Family:
    """The parameters of a kernel, in order, and how its blocks are computed.

    * ``pairing``: the kernel is a function of this one of the sums over features in :mod:`distances`; None for strings and callables.
    * ``decays``: the kernel has the form ``exp(-gamma * sum)`` and shares exponentials between values of gamma.
    * ``rows``: ``"numbers"``, ``"non-negative"``, ``"strings"`` or ``"any"``.
    """

    parameters: Mapping[str, Parameter]
    pairing: int | None = None
    decays: bool = False
    rows: str = "numbers"


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise ValueError("it must be a finite number")
    return float(value)


def read_positive(value: object) -> float:
    """Return a number > 0 as float. For any other value, raises a ValueError that states this rule."""
    number = _number(value)
    if number <= 0.0:
        raise ValueError("it must be > 0")
    return number


def read_not_negative(value: object) -> float:
    """Return a number >= 0 as float. For any other value, raises a ValueError that states this rule."""
    number = _number(value)
    if number < 0.0:
        raise ValueError("it must be >= 0, otherwise the kernel is not positive semi-definite")
    # A negative zero would change the digest.
    return number + 0.0


def read_count(value: object) -> int:
    """Return a whole number >= 1 as int. For any other value, raises a ValueError that states this rule."""
    number = _number(value)
    if number < 1.0 or number != int(number):
        raise ValueError("it must be a whole number >= 1")
    return int(number)


def read_dotted_name(value: object) -> str:
    """Return ``"module:function"``. For any other value, raises a ValueError that states this rule."""
    parts = value.split(":") if isinstance(value, str) else []
    if len(parts) != 2 or not all(name.isidentifier() for part in parts for name in part.split(".")):
        raise ValueError("it must name an importable function as 'module:function'")
    return str(value)


def read_plain_value(value: object) -> Value:
    """Return a number or string that can be stored in text and JSON. For any other value, raises a ValueError that states this rule."""
    if isinstance(value, bool):
        raise ValueError("it must be a number or a string")
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, str):
        if "'" in value or not value.isprintable():
            raise ValueError("a string must be printable and without single quotes")
        return str(value)
    return _number(value)


GAMMA = Parameter(read_positive)

KERNELS: dict[str, Family] = {
    "linear": Family({}, PRODUCTS),
    "poly": Family(
        {"degree": Parameter(read_count), "gamma": Parameter(read_positive, 1.0), "coef0": Parameter(read_not_negative, 1.0)}, PRODUCTS
    ),
    "rbf": Family({"gamma": Parameter(read_positive, may_be_open=True)}, SQUARES, decays=True),
    "laplacian": Family({"gamma": GAMMA}, MANHATTAN, decays=True),
    "chi2": Family({"gamma": Parameter(read_positive, 1.0)}, CHI2, decays=True, rows="non-negative"),
    "hik": Family({}, MINIMA, rows="non-negative"),
    "additive_chi2": Family({}, CHI2_PRODUCTS, rows="non-negative"),
    "additive_gaussian": Family({"gamma": GAMMA}, GAUSSIANS),
    "spectrum": Family({"k": Parameter(read_count)}, rows="strings"),
    "callable": Family({"function": Parameter(read_dotted_name)}, rows="any"),
}
"""All kernels by name."""


def kernel_family(name: str) -> Family:
    """Return the kernel family of this name. For an unknown name, the ValueError suggests the most similar one."""
    if name in KERNELS:
        return KERNELS[name]
    matches = difflib.get_close_matches(str(name), [*KERNELS, *ALIASES], n=1, cutoff=0.4)
    meant = ALIASES.get(matches[0], matches[0]) if matches else None
    hint = f"did you mean {meant!r}? " if meant else ""
    raise ValueError(f"unknown kernel {name!r}; {hint}known: {', '.join(KERNELS)}")


ALIASES = {"polynomial": "poly", "gaussian": "rbf", "histogram_intersection": "hik", "string": "spectrum", "dot": "linear"}
"""Other common names, used in the hint of :func:`kernel_family`."""


def read_parameters(name: str, values: Mapping[str, object]) -> tuple[tuple[str, Value], ...]:
    """Return the parameters of a kernel in order, with defaults, so that equal kernels have equal parameters.

    Parameters to be derived from the data are left out. Raises ValueError if the kernel or a parameter is unknown, a parameter is missing,
    or a value breaks its rule.
    """
    known = kernel_family(name).parameters
    extra = sorted(set(values) - set(known))
    if extra and name != "callable":
        takes = ", ".join(known) or "none"
        raise ValueError(f"kernel {name!r} has no parameter {extra[0]!r}; it takes: {takes}")
    rules = {**known, **{key: Parameter(read_plain_value) for key in extra}}
    given = [(key, rule) for key, rule in rules.items() if key in values or not rule.may_be_open]
    return tuple((key, _read_parameter(name, key, rule, values)) for key, rule in given)


def _read_parameter(name: str, key: str, rule: Parameter, values: Mapping[str, object]) -> Value:
    if key not in values:
        if rule.default is None:
            raise ValueError(f"kernel {name!r} needs the parameter {key!r}")
        return rule.default
    if not key.isidentifier():
        raise ValueError(f"kernel {name!r}: {key!r} is not a valid parameter name")
    try:
        return rule.read(values[key])
    except ValueError as error:
        raise ValueError(f"kernel {name!r}: {key} is {values[key]!r}; {error}") from None


# Counts of k-mers: the feature map of the spectrum kernel (Leslie, Eskin and Noble, 2002).


def kmer_counts(blocks: Sequence[Array], k: int) -> list[sp.csr_array]:
    """Return the float64 counts of all k-mers (substrings of k characters) in the strings of each block, with one column per k-mer of any
    block.

    Strings shorter than k have no k-mer. Columns ascend within a row. The column of a k-mer depends on all blocks, so only inner products
    between rows of these blocks are meaningful.
    """
    texts = [text for block in blocks for text in block]
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    symbols, lengths = np.unique(points, return_inverse=True)[1], np.array([len(text) for text in texts], dtype=np.int64)
    codes, rows = _find_windows(symbols, lengths, k)
    counts = sp.coo_array((np.ones(len(codes)), (rows, codes)), shape=(len(lengths), int(codes.max(initial=-1)) + 1)).tocsr()
    counts.sum_duplicates()
    return [counts[first:last] for first, last in itertools.pairwise(np.cumsum([0, *(len(block) for block in blocks)]))]


def _find_windows(symbols: Array, lengths: Array, k: int) -> tuple[Array, Array]:
    """Return two arrays with an entry for each window of k characters inside a string: a number that is equal for equal windows, and the
    index of the string.
    """
    starts = np.cumsum(lengths) - lengths
    per_row = np.maximum(lengths - k + 1, 0)
    rows = np.repeat(np.arange(len(lengths)), per_row)
    first = np.arange(len(rows)) - np.repeat(np.cumsum(per_row) - per_row, per_row) + np.repeat(starts, per_row)
    return _rank_windows(symbols, first, k), rows


def _rank_windows(symbols: Array, first: Array, k: int) -> Array:
    """Return the rank of each window of length k: a number with one digit per character, ranked again whenever it becomes too long."""
    base = int(symbols.max(initial=0)) + 1
    names, bound = symbols[first].astype(np.int64), base
    for offset in range(1, k):
        if bound > (1 << 62) // base:
            kinds, names = np.unique(names, return_inverse=True)
            bound = len(kinds)
        names, bound = names * base + symbols[first + offset], bound * base
    return np.unique(names, return_inverse=True)[1]
