"""Kernels in the command line and workflow files: kernel expressions, records, grids, and files of these."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .checking import ConfigError

_GRID = ("features", "widths", "degrees", "subsets", "normalize", "centre")


def names_file(text: str) -> bool:
    """Return whether a text is the path of an existing file; ``False`` if it is too long for a path."""
    try:
        return Path(text).is_file()
    except OSError:
        return False


def kernel_entries(text: str) -> tuple[list[Any], str]:
    """Return the entries of ``--kernels``, and a text for messages that says where they come from. The option names a YAML file, or
    contains expressions separated by ``;``.

    Raises ConfigError if the file does not exist or contains no list.
    """
    from ..storage.places import check_place
    from .yaml_source import read_yaml

    text = check_place(text, "file", "kernels") if "://" in text else text
    if names_file(text):
        document = read_yaml(text)
        entries = document.data
        if isinstance(entries, Mapping) and set(entries) == {"kernels"}:
            entries = entries["kernels"]
        if not isinstance(entries, list) or not entries:
            raise ConfigError(f"{document.place()}: a kernel file is a list of kernels, such as `- rbf(gamma=0.5)` or `- grid: {{}}`")
        return entries, text
    if text.endswith((".yaml", ".yml", ".json")):
        raise ConfigError(f"kernel file {text} does not exist")
    return [part.strip() for part in text.split(";") if part.strip()], "--kernels"


def with_kernels(values: Mapping[str, Any], d: int | None, where: str) -> dict[str, Any]:
    """Return the parameters of a method with its kernels as a list of kernel expressions.

    ``kernels`` may be a file, expressions separated by ``;``, or a list of expressions, records and grids. ``d``: number of features; if it
    is ``None``, grids are expanded over a single feature, which is enough to check them. Raises ConfigError, starting with ``where`` and
    naming the kernel.
    """
    parameters = dict(values)
    kernels = parameters.get("kernels")
    if isinstance(kernels, str) and kernels != "precomputed":
        kernels, file = kernel_entries(kernels)
        where = where if file == "--kernels" else file
    if isinstance(kernels, list):
        parameters["kernels"] = [str(spec) for spec in kernel_specs(kernels, d, where, width=1)]
    return parameters


def kernel_specs(entries: Sequence[Any], d: int | None, where: str, width: int | None = None) -> list[Any]:
    """Return the specs of a list of kernels over ``d`` features (``None`` if unknown).

    Entries are expressions (``rbf(gamma=0.5)[3,7:9]``), records (``name``, ``params``, ``columns``, …) and grids
    (``{grid: {widths: …, degrees: …}}``).

    ``width``: number of features assumed for a grid if neither the grid nor ``d`` states it, so that the grid's other options can be
    checked. Raises ConfigError, starting with ``where`` and naming the entry.
    """
    specs: list[Any] = []
    for position, entry in enumerate(entries):
        try:
            specs += _read_kernels(entry, d, width)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{where}: kernels[{position}]: {error}") from None
    if not specs:
        raise ConfigError(f"{where}: no kernels; name at least one, such as rbf(gamma=0.5)")
    return specs


def _read_kernels(entry: object, d: int | None, width: int | None) -> list[Any]:
    from ..pipeline.runs.gram_stores import as_specs

    if isinstance(entry, Mapping) and "grid" in entry:
        return _read_grid(entry, d or width)
    if not isinstance(entry, (str, Mapping)):
        raise ConfigError(f"found {entry!r}; a kernel is a text like rbf(gamma=0.5), a record with a name, or a grid")
    # Columns are checked against the data where these are known.
    return as_specs(entry, 1 << 62 if d is None else d or None)


def _read_grid(entry: Mapping[str, Any], d: int | None) -> list[Any]:
    from ..pipeline.records.names import nearest
    from ..pipeline.runs.gram_stores import kernel_grid

    options = dict(entry["grid"] or {})
    if len(entry) > 1:
        raise ConfigError("`grid` must be the only key of its record; indent its options below `grid:`")
    for key in options:
        if key not in _GRID:
            raise ConfigError(f"unknown key {key!r} of grid{nearest(key, _GRID)}")
    features = options.pop("features", d)
    if not features:
        raise ConfigError("a grid needs the number of features; write `features:` below `grid:`")
    return kernel_grid(features, **options)
