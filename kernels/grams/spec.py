"""A kernel as a value: name, parameters, features and normalisation, with a short text, a JSON record and a digest of the raw kernel."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from .functions import Value, kernel_family, read_parameters
from .texts import FORM, KernelParts, format_kernel, parse_kernel
from .texts import NORMALIZATIONS as NORMALIZATIONS

FORMAT = "gramplane.kernel/1"  # Part of every digest; it changes with any formula.


@dataclass(frozen=True)
class KernelSpec:
    """One kernel over the rows of a data set.

    Attributes
    ----------
    name : str
        A name of :data:`functions.KERNELS`.
    params : tuple of (str, value)
        Parameters, also accepted as a mapping; defaults are filled in and the order is fixed, so equal kernels are equal values.
    columns : tuple of int or None
        The features it looks at, ascending and distinct; None for all of them.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}
        Scaling by sums over the training rows, see :class:`normalization.Normalization`.
    centre : bool
        Whether the kernel is centred in feature space over the training rows first.

    Raises
    ------
    ValueError
        If a field breaks its rule; the message names kernel, field and value.

    Examples
    --------
    >>> KernelSpec.parse("rbf(gamma=0.5)[3,7:9] trace")
    KernelSpec(name='rbf', params=(('gamma', 0.5),), columns=(3, 7, 8), normalize='trace', centre=False)
    """

    name: str
    params: tuple[tuple[str, Value], ...] = ()
    columns: tuple[int, ...] | None = None
    normalize: str = "none"
    centre: bool = False

    def __post_init__(self) -> None:
        params = dict(self.params)
        if len(params) != len(tuple(self.params)):
            raise ValueError(f"kernel {self.name!r} has a parameter twice")
        object.__setattr__(self, "params", read_parameters(self.name, params))
        object.__setattr__(self, "columns", self._read_columns())
        if self.normalize not in NORMALIZATIONS:
            raise ValueError(f"kernel {self.name!r}: normalize is {self.normalize!r}; it must be one of {', '.join(NORMALIZATIONS)}")
        if not isinstance(self.centre, (bool, np.bool_)):
            raise ValueError(f"kernel {self.name!r}: centre is {self.centre!r}; it must be True or False")
        object.__setattr__(self, "centre", bool(self.centre))

    def _read_columns(self) -> tuple[int, ...] | None:
        if self.columns is None:
            return None
        if kernel_family(self.name).rows == "strings":
            raise ValueError(f"kernel {self.name!r} reads strings; it takes no columns")
        names = [column for column in self.columns if isinstance(column, str)]
        if names:
            raise ValueError(f"kernel {self.name!r}: column {names[0]!r} is a name; only where the data are known it has a number")
        columns = np.asarray(self.columns)
        columns = np.flatnonzero(columns) if columns.dtype == bool else columns
        if columns.ndim != 1 or not columns.size or columns.dtype.kind not in "iu":
            raise ValueError(f"kernel {self.name!r}: columns is {self.columns!r}; it must be a non-empty sequence of integers")
        columns = np.sort(columns.astype(np.int64))
        if columns[0] < 0 or (columns[1:] == columns[:-1]).any():
            raise ValueError(f"kernel {self.name!r}: columns is {self.columns!r}; they must be >= 0 and distinct")
        return tuple(columns.tolist())

    @property
    def arguments(self) -> dict[str, Value]:
        """The parameters as a dictionary."""
        return dict(self.params)

    # -- text ----------------------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return _format_spec(self)

    @classmethod
    def parse(cls, text: str) -> KernelSpec:
        """Return the kernel of a short text. ``text``: ``name(parameter=value, ...)[columns] normalisation centre``, all but the name
        optional. Values may also stand in their order without names. Columns are numbers and half-open ranges: ``[3,7:9]`` is 3, 7, 8.
        Raises ValueError if it is not of this form, or a part breaks its rule.
        """
        if not isinstance(text, str):
            raise ValueError(f"kernel {text!r} is not of the form {FORM}")
        return _parse_text(text)

    # -- JSON ----------------------------------------------------------------------------------------------------------------

    def raw_json(self) -> dict[str, Any]:
        """Return the kernel without its normalisation as a dictionary of JSON values."""
        return {"name": self.name, "params": self.arguments, "columns": None if self.columns is None else list(self.columns)}

    def to_json(self) -> dict[str, Any]:
        """Return the kernel as a dictionary of JSON values."""
        return {**self.raw_json(), "normalize": self.normalize, "centre": self.centre}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> KernelSpec:
        """Return the kernel of a dictionary made by :meth:`to_json`; all keys but ``name`` are optional."""
        known = ("name", "params", "columns", "normalize", "centre")
        if set(record) - set(known) or "name" not in record:
            raise ValueError(f"a kernel record has the keys {', '.join(known)}; found {', '.join(map(str, record)) or 'none'}")
        params = tuple(dict(record.get("params") or {}).items())
        return cls(record["name"], params, **{key: record[key] for key in known[2:] if key in record})

    def digest(self) -> str:
        """Return the SHA-256 of the raw kernel: kernels that differ in normalisation only have the same numbers and the same digest."""
        text = json.dumps({"format": FORMAT, **self.raw_json()}, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


@functools.lru_cache(maxsize=1 << 14)
def _format_spec(spec: KernelSpec) -> str:
    return format_kernel(KernelParts(spec.name, spec.params, spec.columns, spec.normalize, spec.centre))


@functools.lru_cache(maxsize=1 << 14)
def _parse_text(text: str) -> KernelSpec:
    # Cached, as the parts are: a spec cannot change.
    parts = parse_kernel(text)
    try:
        return KernelSpec(*parts)  # pyright: ignore[reportArgumentType] (names of columns are refused by name)
    except ValueError as error:
        raise ValueError(f"kernel {text!r}: {error}") from None


def kernel_grid(
    d: int,
    *,
    widths: Iterable[float] = tuple(2.0**k for k in range(-3, 7)),
    degrees: Iterable[int] = (1, 2, 3),
    subsets: Iterable[Sequence[int] | None] | None = None,
    normalize: str = "none",
    centre: bool = False,
) -> list[KernelSpec]:
    r"""Return Gaussian and polynomial kernels on several subsets of the features.

    By default the ``13 (d + 1)`` kernels of Yang's thesis (2010, sec. 6.5.2): widths :math:`2^{-3}, \dots, 2^6` and degrees 1, 2, 3, on
    all features and on each single one,

    .. math:: \exp\left(-\frac{\|x - z\|^2}{2 \sigma^2}\right), \qquad (\langle x, z \rangle + 1)^p.

    Parameters
    ----------
    d : int
        Number of features.
    widths : iterable of float
        Widths sigma of the Gaussians; gamma is ``1 / (2 sigma^2)``.
    degrees : iterable of int
        Degrees of the polynomials.
    subsets : iterable of sequences of int, optional
        Subsets of features, None for all of them; by default all features and every single one.
    normalize, centre
        As in :class:`KernelSpec`, for all of them.

    Returns
    -------
    list of KernelSpec
        Subset by subset, widths before degrees.

    Raises
    ------
    ValueError
        If d < 1, a width is not positive, a degree is below one, or a subset leaves the features.
    """
    if d < 1:
        raise ValueError(f"d is {d}; a kernel grid needs at least one feature")
    widths = list(widths)
    bad = [width for width in widths if not 0 < width < float("inf")]
    if bad:
        raise ValueError(f"widths holds {bad[0]!r}; widths must be positive and finite")
    kinds = [("rbf", (("gamma", 0.5 / width**2),)) for width in widths] + [("poly", (("degree", degree),)) for degree in degrees]
    chosen = [None, *((j,) for j in range(d))] if subsets is None else list(subsets)
    columns = [None if subset is None else tuple(subset) for subset in chosen]
    return as_specs([KernelSpec(name, params, subset, normalize, centre) for subset in columns for name, params in kinds], d)


KernelLike = KernelSpec | str | Mapping[str, Any] | Callable[..., Any]  # The forms in which users may pass a kernel.


def as_specs(kernels: KernelLike | Iterable[KernelLike] | None, d: int | None) -> list[KernelSpec]:
    """Return kernels as a list of :class:`KernelSpec`; None stands for ``kernel_grid(d)``, and d is None where rows are strings. Short
    texts are parsed, mappings read as JSON records; a callable must be importable by its name, because workers import it.
    """
    if kernels is None:
        if d is None:
            raise ValueError("kernels must be given where rows are strings")
        return kernel_grid(d)
    items = [kernels] if isinstance(kernels, (KernelSpec, str, Mapping)) or callable(kernels) else kernels
    specs = [_as_spec(cast(KernelLike, kernel)) for kernel in items]
    if not specs:
        raise ValueError("kernels is empty; at least one kernel is needed")
    for spec in specs:
        check_columns(spec, d)
    return specs


def check_columns(spec: KernelSpec, d: int | None) -> None:
    """Raise ValueError if a kernel reads a column that the data do not have."""
    if spec.columns is None:
        return
    if d is None:
        raise ValueError(f"kernel {spec} names columns, but the rows are strings")
    if spec.columns[-1] >= d:
        raise ValueError(f"kernel {spec}: column {spec.columns[-1]} is outside the data, which have columns 0 to {d - 1}")


def _as_spec(kernel: KernelLike) -> KernelSpec:
    if isinstance(kernel, KernelSpec):
        return kernel
    if isinstance(kernel, str):
        return KernelSpec.parse(kernel)
    if isinstance(kernel, Mapping):
        return KernelSpec.from_json(kernel)
    if callable(kernel):
        return KernelSpec("callable", (("function", _importable_name(kernel)),))
    raise ValueError(
        f"kernels holds {kernel!r}; a kernel is a KernelSpec, a text like 'rbf(gamma=0.5)', a record or an importable function"
    )


def _importable_name(function: Callable[..., Any]) -> str:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    target: object = inspect.getmodule(function)
    for part in name.split("."):
        target = getattr(target, part, None)
    if target is not function or module in (None, "__main__"):
        raise ValueError(f"kernel {function!r} cannot be imported by name; define it at the top of a module other than the main program")
    return f"{module}:{name}"
