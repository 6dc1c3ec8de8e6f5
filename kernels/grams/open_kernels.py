"""Kernels that leave something to the data: columns by their names, or the width of a Gaussian. They are closed once the data are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from .functions import Value
from .spec import KernelLike, KernelParts, KernelSpec, as_specs, check_columns, format_kernel, parse_kernel

WIDTHS = {"rbf": "gamma"}
"""Kernels whose parameter may be left out: it is then 1 / (2 m^2), m the median distance of rows in the columns they read."""

_SOME_COLUMN = 1 << 30  # where numbers of columns begin that stand for names while a kernel is checked


@dataclass(frozen=True)
class OpenKernel:
    """One kernel as far as it is known without the data: parameters that are given, columns by number or name."""

    name: str
    params: tuple[tuple[str, Value], ...] = ()
    columns: tuple[int | str, ...] | None = None
    normalize: str = "none"
    centre: bool = False

    def __post_init__(self) -> None:
        names = self.column_names
        if len(set(names)) < len(names):
            raise ValueError(f"column {max(names, key=names.count)!r} is named twice")
        # What is wrong without the data is wrong now.
        self.closed({name: j for j, name in enumerate(self.column_names, _SOME_COLUMN)}, lambda columns: 1.0)

    def __str__(self) -> str:
        return format_kernel(KernelParts(self.name, self.params, self.columns, self.normalize, self.centre))

    @property
    def column_names(self) -> list[str]:
        """Columns that are named."""
        return [column for column in self.columns or () if isinstance(column, str)]

    def closed(self, numbers: Mapping[str, int], gamma: Callable[[tuple[int, ...] | None], float]) -> KernelSpec:
        """Return the kernel over data whose columns have ``numbers`` by name; ``gamma`` of some columns is what was left out. Raises
        ValueError: a name that no column has.
        """
        missing = [name for name in self.column_names if name not in numbers]
        if missing:
            known = f"; the columns are {', '.join(map(repr, list(numbers)[:10]))}{', ...' if len(numbers) > 10 else ''}" if numbers else ""
            raise ValueError(f"kernel {self}: no column has the name {missing[0]!r}{known or '; the columns of these data have no names'}")
        columns = None if self.columns is None else tuple(numbers[one] if isinstance(one, str) else one for one in self.columns)
        params, width = dict(self.params), WIDTHS.get(self.name)
        if width is not None and width not in params:
            params[width] = gamma(None if columns is None else tuple(sorted(columns)))
        return KernelSpec(self.name, tuple(params.items()), columns, self.normalize, self.centre)


AnySpec = KernelSpec | OpenKernel


@dataclass(frozen=True)
class Closing:
    """What closes kernels: ``numbers`` looks up the columns of the data by name, ``gamma`` the width of a Gaussian in some of them."""

    numbers: Callable[[], Mapping[str, int]]
    gamma: Callable[[tuple[int, ...] | None], float]

    def close(self, kernel: OpenKernel) -> KernelSpec:
        """Return a kernel over these data. Raises ValueError: a name that no column has."""
        return kernel.closed(self.numbers() if kernel.column_names else {}, self.gamma)

    def read(self, text: str) -> KernelSpec:
        """Return the kernel of a short text over these data."""
        opened = _as_open_kernel(text)
        return KernelSpec.parse(text) if opened is None else self.close(opened)


class _StandIns(dict[str, int]):
    """Numbers for columns of any name."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> int:
        return self.setdefault(name, _SOME_COLUMN + len(self))


NO_DATA = Closing(_StandIns, lambda columns: 1.0)
"""Closes kernels where there are no data yet: what is wrong with any data is found."""


def as_kernels(kernels: KernelLike | OpenKernel | Iterable[KernelLike | OpenKernel], d: int | None) -> list[AnySpec]:
    """Return kernels as :func:`~gramplane.kernels.grams.spec.as_specs` takes them, and open ones, for data of ``d`` columns (``None``: of
    strings).
    """
    is_one = isinstance(kernels, (KernelSpec, OpenKernel, str, Mapping)) or callable(kernels)
    items = [cast(KernelLike, kernels)] if is_one else list(cast(Iterable[KernelLike | OpenKernel], kernels))
    if not items:
        raise ValueError("kernels is empty; at least one kernel is needed")
    return [_as_kernel(item, d) for item in items]


def _as_kernel(kernel: KernelLike | OpenKernel, d: int | None) -> AnySpec:
    try:
        opened = _as_open_kernel(kernel)
    except ValueError as error:
        named = f"kernel {kernel!r}: "
        raise ValueError(str(error) if str(error).startswith(named) else named + str(error)) from None
    if opened is None:
        return as_specs(cast(KernelLike, kernel), d)[0]
    if d is None:
        raise ValueError(f"kernel {opened} reads columns, but the rows are strings")
    numbers = tuple(column for column in opened.columns or () if not isinstance(column, str))
    if numbers:
        check_columns(KernelSpec("linear", columns=numbers), d)
    return opened


def _as_open_kernel(kernel: object) -> OpenKernel | None:
    if isinstance(kernel, str):
        return _open_parts(parse_kernel(kernel))
    if isinstance(kernel, Mapping):
        # Of a record that is wrong its reader says so.
        columns, params = kernel.get("columns"), dict(kernel.get("params") or {})
        names = tuple(columns) if isinstance(columns, (list, tuple)) else None
        form = kernel.get("normalize", "none"), kernel.get("centre", False)
        return _open_parts(KernelParts(str(kernel.get("name")), tuple(params.items()), names, *form))
    return kernel if isinstance(kernel, OpenKernel) else None


def _open_parts(parts: KernelParts) -> OpenKernel | None:
    """Return the open kernel of some parts, ``None`` where nothing is left to the data."""
    width = WIDTHS.get(parts.name)
    has_names = any(isinstance(column, str) for column in parts.columns or ())
    return OpenKernel(*parts) if has_names or (width is not None and width not in dict(parts.params)) else None
