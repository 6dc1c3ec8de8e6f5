"""A kernel as a value: name, parameters, features and normalisation, with a short text, a JSON record and a digest of the raw kernel.

A kernel is open if it refers to columns by name, or leaves the width of a Gaussian to the data. Once the data are known, names are replaced
by numbers and the width is set: the kernel is then closed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from .functions import KERNELS, Value, kernel_family, read_parameters

NORMALIZATIONS = ("none", "trace", "unit_trace", "multiplicative", "cosine")
FORM = "name(parameter=value,...)[columns] normalisation centre"
FORMAT = "gramplane.kernel/1"  # Part of every digest; it changes with any formula.

_QUOTED = r"'(?:[^'\\]|\\.)*'"
_TEXT = re.compile(rf"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*(?:\[((?:{_QUOTED}|[^\]'])*)\])?([a-z_\s]*)", re.DOTALL)
_PLAIN = re.compile(r"[^\W\d][^',:\[\]]*")  # a name that needs no quotes
_COLUMN = re.compile(rf"\s*(?:(?P<first>\d+)\s*(?::\s*(?P<end>\d+)\s*)?|(?P<quoted>{_QUOTED})\s*|(?P<name>{_PLAIN.pattern}))")


@dataclass(frozen=True)
class KernelSpec:
    """One kernel over the rows of a data set.

    Attributes
    ----------
    name : str
        A name of :data:`functions.KERNELS`.
    params : tuple of (str, value)
        Parameters, also accepted as a mapping. Defaults are filled in and the order is fixed, so equal kernels are equal values.
        Without ``gamma``, an ``rbf`` uses ``1 / (2 m^2)``, where m is the median distance of rows in the columns it reads.
    columns : tuple of int or None
        The features that the kernel reads, ascending and distinct; None means all. An open kernel may also contain column names.
    normalize : {"none", "trace", "unit_trace", "multiplicative", "cosine"}
        Scaling by sums over the training rows, see :class:`normalization.Normalization`.
    centre : bool
        Whether the kernel is first centred in feature space over the training rows.

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
        object.__setattr__(self, "columns", None if self.columns is None else self._read_columns(self.columns))
        if self.normalize not in NORMALIZATIONS:
            raise ValueError(f"kernel {self.name!r}: normalize is {self.normalize!r}; it must be one of {', '.join(NORMALIZATIONS)}")
        if not isinstance(self.centre, (bool, np.bool_)):
            raise ValueError(f"kernel {self.name!r}: centre is {self.centre!r}; it must be True or False")
        object.__setattr__(self, "centre", bool(self.centre))

    def _read_columns(self, given: Sequence[int | str]) -> tuple[Any, ...]:
        if KERNELS[self.name].rows == "strings":
            raise ValueError(f"kernel {self.name!r} reads strings; it takes no columns")
        names = [str(column) for column in given if isinstance(column, str)]
        if len(set(names)) < len(names):
            raise ValueError(f"kernel {self.name!r}: column {max(names, key=names.count)!r} is named twice")
        columns = np.asarray([column for column in given if not isinstance(column, str)] if names else given)
        columns = np.flatnonzero(columns) if columns.dtype == bool else columns
        if columns.ndim != 1 or (columns.dtype.kind not in "iu" if columns.size else not names):
            raise ValueError(f"kernel {self.name!r}: columns is {self.columns!r}; it must be a non-empty sequence of integers")
        columns = np.sort(columns.astype(np.int64))
        if columns.size and (columns[0] < 0 or (columns[1:] == columns[:-1]).any()):
            raise ValueError(f"kernel {self.name!r}: columns is {self.columns!r}; they must be >= 0 and distinct")
        return tuple(column if isinstance(column, str) else int(column) for column in given) if names else tuple(columns.tolist())

    @property
    def arguments(self) -> dict[str, Value]:
        return dict(self.params)

    @functools.cached_property
    def is_open(self) -> bool:
        """Whether a width or a column number depends on the data."""
        return bool(self.column_names) or len(self.params) < len(KERNELS[self.name].parameters)

    @property
    def column_names(self) -> list[str]:
        """Columns given by name."""
        return [column for column in self.columns or () if isinstance(column, str)]

    def closed(self, numbers: Callable[[], Mapping[str, int]], width: Callable[[tuple[int, ...] | None], float]) -> KernelSpec:
        """Return the kernel with column names replaced by numbers, and with its width.

        ``numbers()`` maps column names to numbers; ``width(columns)`` computes a missing width. Raises ValueError if a column name does not
        exist.
        """
        if not self.is_open:
            return self
        known = numbers() if self.column_names else {}
        missing = [name for name in self.column_names if name not in known]
        if missing:
            names = f"the columns are {', '.join(map(repr, list(known)[:10]))}{', ...' if len(known) > 10 else ''}"
            raise ValueError(
                f"kernel {self}: no column has the name {missing[0]!r}; {names if known else 'the columns of these data have no names'}"
            )
        columns = None if self.columns is None else tuple(sorted(known[one] if isinstance(one, str) else one for one in self.columns))
        left = [(key, width(columns)) for key in KERNELS[self.name].parameters if key not in self.arguments]
        return KernelSpec(self.name, (*self.params, *left), columns, self.normalize, self.centre)

    # -- text ----------------------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return _format_spec(self)

    @classmethod
    def parse(cls, text: str) -> KernelSpec:
        """Parse a short text of the form ``name(parameter=value, ...)[columns] normalisation centre``; all parts but the name are optional.

        Values of parameters may also be given in order without names. Columns are names, numbers and half-open ranges: ``[3,7:9]`` is 3, 7,
        8. Raises ValueError if the text has another form, or a part breaks its rule.
        """
        if not isinstance(text, str):
            raise ValueError(f"kernel {text!r} is not of the form {FORM}")
        return _parse_text(text)

    # -- JSON ----------------------------------------------------------------------------------------------------------------

    def raw_json(self) -> dict[str, Any]:
        """Return the kernel without its normalisation as a JSON-compatible dictionary."""
        return {"name": self.name, "params": self.arguments, "columns": None if self.columns is None else list(self.columns)}

    def to_json(self) -> dict[str, Any]:
        """Return the kernel as a JSON-compatible dictionary."""
        return {**self.raw_json(), "normalize": self.normalize, "centre": self.centre}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> KernelSpec:
        """Return the kernel of a dictionary made by :meth:`to_json`; all keys but ``name`` are optional."""
        known = ("name", "params", "columns", "normalize", "centre")
        if set(record) - set(known) or "name" not in record:
            rule = f"needs the key name, and may have {', '.join(known[1:])}"
            raise ValueError(f"a kernel record {rule}; found {', '.join(map(str, record)) or 'none'}")
        params = tuple(dict(record.get("params") or {}).items())
        return cls(record["name"], params, **{key: record[key] for key in known[2:] if key in record})

    def digest(self) -> str:
        """Return the SHA-256 of the raw kernel. Kernels that differ only in their normalisation have equal entries and the same digest."""
        return record_digest(self.raw_json())


def record_digest(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the JSON record of a kernel."""
    text = json.dumps({"format": FORMAT, **record}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@functools.lru_cache(maxsize=1 << 14)
def _parse_text(text: str) -> KernelSpec:
    # Cached, as a spec cannot change: fits of a search read the same texts again and again.
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"kernel {text!r} is not of the form {FORM}")
    name, inside, columns, words = match.groups()
    try:
        return KernelSpec(name, _parse_arguments(name, inside or ""), _parse_columns(columns), *_parse_words(words.split()))
    except ValueError as error:
        raise ValueError(f"kernel {text!r}: {error}") from None


def _parse_arguments(name: str, inside: str) -> tuple[tuple[str, Any], ...]:
    try:
        call = ast.parse(f"f({inside})", mode="eval").body
    except SyntaxError:
        raise ValueError(f"({inside}) cannot be read as parameter=value, ...") from None
    if not isinstance(call, ast.Call) or any(word.arg is None for word in call.keywords):
        raise ValueError(f"({inside}) cannot be read as parameter=value, ...")
    known = list(kernel_family(name).parameters)
    if len(call.args) > len(known):
        raise ValueError(f"there are too many values ({len(call.args)}); the parameters are: {', '.join(known) or 'none'}")
    pairs = [*zip(known, call.args), *((str(word.arg), word.value) for word in call.keywords)]
    values = []
    for key, node in pairs:
        try:
            values.append((key, ast.literal_eval(node)))
        except ValueError:
            raise ValueError(f"{key} must be a number or a quoted string, not {ast.unparse(node)}") from None
    return tuple(values)


def _parse_columns(text: str | None) -> tuple[Any, ...] | None:
    if text is None:
        return None
    columns: list[int | str] = []
    at = 0
    while at <= len(text):
        match = _COLUMN.match(text, at)
        is_empty = match is not None and match["end"] is not None and int(match["end"]) <= int(match["first"])
        if match is None or is_empty or text[match.end() : match.end() + 1] not in ("", ","):
            raise ValueError(f"columns [{text}] must be numbers and ranges like 3,7:9, or names; put quotes around names with any of ',:[]")
        at = match.end() + 1
        if match["first"] is not None:
            columns += range(int(match["first"]), int(match["end"] or int(match["first"]) + 1))
        else:
            columns.append(ast.literal_eval(match["quoted"]) if match["quoted"] else match["name"].strip())
    return tuple(columns)


def _parse_words(words: Sequence[str]) -> tuple[str, bool]:
    fields: dict[str, Any] = {}
    for word in words:
        if word != "centre" and word not in NORMALIZATIONS:
            raise ValueError(f"unknown word {word!r}; known: {', '.join(NORMALIZATIONS)}, centre")
        key, value = ("centre", True) if word == "centre" else ("normalize", word)
        if key in fields:
            raise ValueError(f"{key} is given twice")
        fields[key] = value
    return fields.get("normalize", "none"), fields.get("centre", False)


@functools.lru_cache(maxsize=1 << 14)
def _format_spec(spec: KernelSpec) -> str:
    return format_kernel(spec, spec.columns)


def format_kernel(spec: KernelSpec, columns: Sequence[int | str] | None) -> str:
    """Return the short text of a kernel with column numbers (in ranges) or names, without parameters that have their default."""
    known = KERNELS[spec.name].parameters
    params = [(key, value) for key, value in spec.params if key not in known or value != known[key].default]
    text, shown = spec.name, ",".join(f"{key}={_quote(value) if isinstance(value, str) else repr(value)}" for key, value in params)
    text += f"({shown})" if shown else ""
    text += "" if columns is None else f"[{','.join(_column_texts(columns))}]"
    return text + (f" {spec.normalize}" if spec.normalize != "none" else "") + (" centre" if spec.centre else "")


def _quote(value: str) -> str:
    # Always in single quotes, which the text form requires.
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _column_texts(columns: Iterable[int | str]) -> Iterator[str]:
    """Yield columns as texts, with consecutive numbers as a range."""
    for _, group in itertools.groupby(enumerate(columns), lambda pair: pair if isinstance(pair[1], str) else pair[1] - pair[0]):
        members = [column for _, column in group]
        if isinstance(members[0], str):
            yield members[0] if _PLAIN.fullmatch(members[0]) and members[0] == members[0].strip() else _quote(members[0])
        else:
            yield str(members[0]) if len(members) == 1 else f"{members[0]}:{int(members[-1]) + 1}"


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

    By default these are the ``13 (d + 1)`` kernels of Yang's thesis (2010, sec. 6.5.2): widths :math:`2^{-3}, \dots, 2^6` and degrees 1, 2,
    3, on all features and on each single one,

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
        Subsets of features, None for all of them [default: all features, and each single one].
    normalize, centre
        As in :class:`KernelSpec`, for all kernels.

    Returns
    -------
    list of KernelSpec
        Subset by subset, widths before degrees.

    Raises
    ------
    ValueError
        If d < 1, a width is not positive, a degree is below one, or a subset contains a feature outside of 0 to d - 1.
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


def as_specs(kernels: KernelLike | Iterable[KernelLike], d: int | None) -> list[KernelSpec]:
    """Return kernels as a list of :class:`KernelSpec`, for data of ``d`` columns (None if rows are strings).

    Short texts are parsed, and mappings are read as JSON records. Workers import a callable by its name, so it must be importable.
    """
    is_one = isinstance(kernels, (KernelSpec, str, Mapping)) or callable(kernels)
    items = [cast(KernelLike, kernels)] if is_one else list(cast(Iterable[KernelLike], kernels))
    if not items:
        raise ValueError("kernels is empty; at least one kernel is needed")
    specs = [_parse_text(kernel) if isinstance(kernel, str) else _as_spec(kernel) for kernel in items]
    for spec in specs:
        if d is None and spec.is_open:
            raise ValueError(f"kernel {spec} reads columns, but the rows are strings")
        if spec.columns is not None:
            _refuse_columns(spec, spec.columns, d)
    return specs


def check_columns(spec: KernelSpec, d: int | None) -> None:
    """Raise ValueError if a kernel reads a column that the data do not have, or if the kernel is still open."""
    if spec.is_open:
        for name in spec.column_names:
            raise ValueError(f"kernel {spec.name!r}: column {name!r} is given by name; use a number, or data with column names")
        left = next(key for key in KERNELS[spec.name].parameters if key not in spec.arguments)
        raise ValueError(f"kernel {spec.name!r} needs the parameter {left!r}")
    if spec.columns is not None:
        _refuse_columns(spec, spec.columns, d)


def _refuse_columns(spec: KernelSpec, columns: Sequence[int], d: int | None) -> None:
    if d is None:
        raise ValueError(f"kernel {spec} names columns, but the rows are strings")
    last = max((column for column in columns if not isinstance(column, str)), default=-1) if spec.is_open else columns[-1]
    if last >= d:
        raise ValueError(f"kernel {spec}: column {last} is outside the data, which have columns 0 to {d - 1}")


def _as_spec(kernel: object) -> KernelSpec:
    if isinstance(kernel, KernelSpec):
        return kernel
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
        raise ValueError(f"kernel {function!r} cannot be imported by name; define it at the top level of a module, not in the main program")
    return f"{module}:{name}"
