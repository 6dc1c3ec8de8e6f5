"""Reads YAML from untrusted sources: plain data only, bounded size, no duplicate keys, and the line of every value."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..storage.errors import Json
from .checking import ConfigError, Loc, dotted_path, expand_variables

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_ALIASES = 100
MAX_NODES = 100_000

_SCALARS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "null", "bool", "int", "float"))
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(_Base):
    """Safe loader with the scalars of YAML 1.2: ``no`` and ``2026-11-21`` are strings, ``1e3`` is a number."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
):
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


@dataclass(frozen=True)
class Document:
    """A parsed file and the position of each of its values.

    ``path``: the file. ``data``: plain dicts, lists, strings, numbers, booleans and None, with variables expanded. ``marks``:
    ``loc -> (line, column)``, counted from one; for entries of a mapping, the position of the key.
    """

    path: Path
    data: Json
    marks: Mapping[Loc, tuple[int, int]]

    def place(self, loc: Loc = ()) -> str:
        """Return ``file:line:column: steps[1].with.C``. If ``loc`` has no position, that of the innermost enclosing entry is used."""
        known = loc
        while known and known not in self.marks:
            known = known[:-1]
        line, column = self.marks.get(known, (1, 1))
        name = f": {dotted_path(loc)}" if loc else ""
        return f"{self.path}:{line}:{column}{name}"


def _position_text(path: Path, mark: yaml.Mark) -> str:
    return f"{path}:{mark.line + 1}:{mark.column + 1}"


def _check_events(text: str, path: Path) -> None:
    """Check depth, aliases and size before any recursive function reads the file."""
    depth = aliases = nodes = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        aliases += isinstance(event, yaml.AliasEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        for count, limit, what in ((depth, MAX_DEPTH, "levels"), (aliases, MAX_ALIASES, "aliases"), (nodes, MAX_NODES, "values")):
            if count > limit:
                location = _position_text(path, event.start_mark)
                raise ConfigError(f"{location}: more than {limit} {what}; a workflow file may not hold that many")


class _Builder:
    """Converts a node graph to plain data with positions. Aliases are copied, and every copy counts towards the limits."""

    def __init__(self, loader: yaml.SafeLoader, path: Path, environ: Mapping[str, str] | None) -> None:
        self.loader, self.path, self.environ = loader, path, environ
        self.marks: dict[Loc, tuple[int, int]] = {}
        self.open: set[int] = set()
        self.count = 0

    def fail(self, node: yaml.Node, reason: str) -> ConfigError:
        return ConfigError(f"{_position_text(self.path, node.start_mark)}: {reason}")

    def build(self, node: yaml.Node, loc: Loc) -> Json:
        self.marks.setdefault(loc, (node.start_mark.line + 1, node.start_mark.column + 1))
        self.count += 1
        if self.count > MAX_NODES:
            raise self.fail(node, f"more than {MAX_NODES} values once aliases are expanded")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self.open:
            raise self.fail(node, "an alias inside its own anchor")
        if node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise self.fail(node, f"tag {node.tag!r} is not allowed; plain lists and mappings only")
        self.open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            value = self._mapping(node, loc)
        else:
            value = [self.build(child, (*loc, index)) for index, child in enumerate(node.value)]
        self.open.discard(id(node))
        return value

    def _scalar(self, node: yaml.ScalarNode) -> Json:
        if node.tag not in _SCALARS:
            raise self.fail(node, f"tag {node.tag!r} is not allowed; words, numbers, true, false and null only")
        try:
            value = self.loader.construct_object(node)
        except (yaml.YAMLError, ValueError, KeyError):
            raise self.fail(node, f"{node.value!r} is not a value of its tag {node.tag!r}") from None
        return expand_variables(value, _position_text(self.path, node.start_mark), self.environ) if isinstance(value, str) else value

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str | int, Any]:
        fields: dict[str | int, Any] = {}
        merged: dict[str | int, Any] = {}
        lines: dict[str | int, int] = {}
        for key_node, value_node in node.value:
            is_merge = key_node.tag == "tag:yaml.org,2002:merge"
            key = key_node.value if is_merge else self._scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise self.fail(key_node, "a key must be a word or a whole number")
            if key in lines:
                raise self.fail(key_node, f"key {key!r} is given twice (first in line {lines[key]})")
            lines[key] = key_node.start_mark.line + 1
            self.marks.setdefault((*loc, key), (lines[key], key_node.start_mark.column + 1))
            value = self.build(value_node, (*loc, key))
            if not is_merge:
                fields[key] = value
                continue
            parts = value if isinstance(value, list) else [value]
            if not all(isinstance(part, dict) for part in parts):
                raise self.fail(value_node, "'<<' takes a mapping or a list of mappings")
            merged = {name: item for part in reversed(parts) for name, item in part.items()}
        return {**merged, **fields}


def parse_yaml(text: str, path: str | Path = "<text>", environ: Mapping[str, str] | None = None) -> Document:
    """Parse YAML text to plain data: at most 1 MiB, 32 levels, 100 aliases, 100,000 values; no tags, no duplicate keys.

    ``path``: shown in errors. ``environ``: variables for ``${NAME}``; the process environment by default. Raises ConfigError with
    ``file:line:column``.
    """
    path = Path(path)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ConfigError(f"{path}:1:1: larger than {MAX_BYTES} bytes; a workflow file may not be that large")
    try:
        _check_events(text, path)
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            builder = _Builder(loader, path, environ)
            data = None if node is None else builder.build(node, ())
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(f"{_position_text(path, mark) if mark else path}: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise ConfigError(f"{path}:1:1: {' '.join(str(error).split())}") from None
    return Document(path, data, builder.marks)


def read_yaml(path: str | Path, environ: Mapping[str, str] | None = None) -> Document:
    """Read and parse a YAML file (see `parse_yaml`). Raises ConfigError with ``file:line:column`` if it is invalid, and
    ``FileNotFoundError`` if it does not exist.
    """
    path = Path(path)
    with path.open("rb") as handle:
        raw = handle.read(MAX_BYTES + 1)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}:1: byte {raw[error.start]:#04x} is not UTF-8 text") from None
    return parse_yaml(text, path, environ)


def read_scalar(text: str, where: str) -> Json:
    """Return the value of an option's text, read as YAML: ``10``, ``1e3``, ``true``, ``null``, ``[1, 2]``, ``a word``.

    Raises ConfigError, starting with ``where``, if it is not valid YAML.
    """
    return parse_yaml(text, where).data if text.strip() else ""
