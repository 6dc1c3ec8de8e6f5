"""What the columns of a table are for: features, row tables, ids, or nothing."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...encoding.table import Other
from ...errors import SchemaError
from ..options import Options

_SHOWN = 20


class Roles(NamedTuple):
    """Positions of the feature columns, and of the row tables among the columns; tables given as arrays; the columns that are neither, and
    what is to be said of those that nobody asked for."""

    features: list[int]
    columns: dict[str, int]
    arrays: dict[str, npt.NDArray[Any]]
    others: list[Other]
    messages: list[str]


def assign_roles(names: Sequence[str], options: Options, source: str, index: str | None = None) -> Roles:
    """Divide the columns of a table, by their names; ``index``, that of a frame, is left out unless the options name it. Raises SchemaError
    if a named column does not exist, names repeat, or no feature is left."""
    positions = {name: k for k, name in enumerate(names)}
    if len(positions) != len(names):
        twice = next(name for k, name in enumerate(names) if positions[name] != k)
        raise SchemaError(f"{source}: the column name {twice!r} occurs twice")
    given = options.row_columns(names)
    columns = {table: _find(column, positions, source) for table, column in given.items() if isinstance(column, str)}
    if options.guided is not None:
        features, others = _as_before(positions, options, source), []
        messages = _left_out(names, {*features, *columns.values()}, options)
    else:
        chosen = {*options.drop, *options.categorical, *(options.columns or ())}
        is_left_out = index is not None and index not in chosen and positions[index] not in columns.values()
        others = _chosen_others(names, positions, columns, options, source, {index} if is_left_out else set())
        taken = {*columns.values(), *(positions[other.name] for other in others)}
        features, messages = [k for k in range(len(names)) if k not in taken], list[str]()
        if is_left_out and options.columns is None:
            what = "the first column has no name and numbers the rows" if index == "" else f"column {index!r} is the index of a frame"
            messages.append(f"{what}: it is left out; give it a name if it is a feature")
    if not features:
        raise SchemaError(f"{source} has no column left for features")
    arrays = {table: np.asarray(values) for table, values in given.items() if not isinstance(values, str)}
    return Roles(features, columns, arrays, others, messages)


def _find(column: str, positions: dict[str, int], source: str) -> int:
    if column not in positions:
        names = list(positions)
        shown = f"{', '.join(names[:_SHOWN])}{', …' if len(names) > _SHOWN else ''}"
        raise SchemaError(f"{source} has no column {column!r}; it has {shown}")
    return positions[column]


def _as_before(positions: dict[str, int], options: Options, source: str) -> list[int]:
    """Positions of the columns that another store has features of, in its order."""
    assert options.guided is not None
    missing = [name for name in options.guided if name not in positions]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise SchemaError(f"{source} has no column {missing[0]!r}{more}, which the store given as like has")
    return [positions[name] for name in options.guided]


def _left_out(names: Sequence[str], used: set[int], options: Options) -> list[str]:
    known = set() if options.table_encoding is None else {column.name for column in options.table_encoding.columns}
    new = [name for k, name in enumerate(names) if k not in used and name not in known]
    if not new:
        return []
    shown = f"{', '.join(map(repr, new[:3]))}{f' and {len(new) - 3} more' if len(new) > 3 else ''}"
    return [f"columns that the store given as like does not have are left out: {shown}"]


def _chosen_others(
    names: Sequence[str], positions: dict[str, int], tables: dict[str, int], options: Options, source: str, index: set[str | None]
) -> list[Other]:
    """The columns that are no features, as the user chooses."""
    for name in (*options.categorical, *options.drop, *(options.columns or ())):
        _find(name, positions, source)
    busy = [name for name in (*options.drop, *options.categorical) if positions[name] in tables.values()]
    if busy:
        raise SchemaError(
            f"column {busy[0]!r} is no feature: it has the target, tasks, weights, ids or covariates; leave it out of drop and categorical"
        )
    twice = set(options.drop) & {*options.categorical, *(options.columns or ())}
    if twice:
        raise SchemaError(
            f"drop names {min(twice)!r}, which is also in {'categorical' if min(twice) in options.categorical else 'columns'}"
        )
    keep = None if options.columns is None else {*options.columns, *options.categorical}
    return list(_others(names, tables, {*options.drop, *index}, keep))


def _others(names: Sequence[str], tables: dict[str, int], drop: set[str | None], keep: set[str] | None) -> Iterable[Other]:
    before = 0
    for k, name in enumerate(names):
        if k == tables.get("id"):
            yield Other(name, "id", before)
        elif k in tables.values():
            continue
        elif name in drop or (keep is not None and name not in keep):
            yield Other(name, "dropped", before)
        else:
            before += 1
