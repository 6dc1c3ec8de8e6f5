"""Parsing of kernel graphs given by users: short texts for grids, records or dictionaries for explicitly listed graphs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
import scipy.sparse as sp

from ..grams.products import ProductSpec
from ..grams.spec import KernelSpec
from .kernel_graphs import KernelDag, KernelGrid, KernelList

DEFAULT_GRAPH = "subsets(gaussian)"
"""Default graph of a fit: products of Gaussian kernels of one feature each, over all subsets of the features."""

GRAPH_FORM = "subsets(KERNEL[; depth=D]) or grid(KERNEL; KERNEL; ...[; depth=D])"
KERNEL_WORDS = ("gaussian", "monomial", "hermite")
"""Kernels of single features in addition to those of KernelSpec: Gaussians with a width in standard deviations; powers and Hermite
polynomials up to a degree.
"""

_TEXT = re.compile(r"\s*(subsets|grid)\s*\((.*)\)\s*", re.DOTALL)
_WORD = re.compile(rf"({'|'.join(KERNEL_WORDS)})\s*(?:\(\s*(?:(width|degree)\s*=\s*)?([^()]*?)\s*\))?\s*(\[[^\]]*\])?")
_CLASS = re.compile(r"[\w.]+:[\w.]+")
_HERMITE = "gramplane.kernels.graphs.parsing:hermite"
_RECORD = ("name", "kernel", "parents", "d")
_SOME_COLUMN = 1 << 30  # where numbers of columns begin that stand for names while there are no data

Close = Callable[[KernelSpec], KernelSpec]  # closes a kernel over some data


def closed_anywhere(spec: KernelSpec) -> KernelSpec:
    """Return the kernel closed without data: column names are replaced by arbitrary numbers. Errors that do not depend on the data can thus
    be found.
    """
    return spec.closed(lambda: {name: _SOME_COLUMN + crc32(name.encode()) for name in spec.column_names}, lambda columns: 1.0)


def parse_graph(
    graph: object, a: float = 2.0, d: int | None = None, spread: np.ndarray | None = None, close: Close = closed_anywhere
) -> KernelDag:
    """Return the graph that ``graph`` describes. Raises ValueError if a part cannot be read; the message names the part.

    ``graph`` is ``None`` for the default, a graph object, a short text, a list of records ``{name, kernel, parents, d}``, or a dictionary
    from names to ``(kernel, parents)`` or to records without ``name``. Penalties are ``a^depth`` unless ``graph`` is already a graph
    object. The number of features d is needed if kernels in a text name no columns. Widths of ``gaussian`` are multiples of the standard
    deviations ``spread`` ``(d,)`` [default: ones]; features of spread 0 are left out of the grid of ``gaussian``. ``close`` looks up the
    numbers of named columns and the width of an ``rbf`` without gamma.
    """
    if isinstance(graph, (KernelGrid, KernelList)):
        return graph
    if graph is None or isinstance(graph, str):
        return _parse_grid(DEFAULT_GRAPH if graph is None else graph, a, d, spread, close)
    if isinstance(graph, Mapping) and set(graph) == {"nodes"}:
        graph = graph["nodes"]
    if isinstance(graph, Mapping) and "chains" in graph:
        chains = tuple(tuple(close(KernelSpec.parse(text)) for text in chain) for chain in graph["chains"])
        return KernelGrid(chains, float(graph.get("a", a)), graph.get("depth"))
    if isinstance(graph, Mapping):
        graph = [_node_record(str(name), node) for name, node in graph.items()]
    if isinstance(graph, Sequence) and len(graph):
        return _parse_nodes(graph, a, close)
    if isinstance(graph, KernelDag):
        return graph
    raise ValueError(f"dag={graph!r}: must be {GRAPH_FORM}, a list of nodes, or a graph")


def check_graph(graph: object, a: float = 2.0) -> None:
    """Raise ValueError for a graph that is invalid whatever the data. The graph may have any form that :func:`parse_graph` accepts."""
    if not (isinstance(graph, str) and _CLASS.fullmatch(graph)):
        parse_graph(graph, a, d=1)


def graph_record(graph: object) -> object:
    """Return a graph in the form stored in a parameter record: texts and lists unchanged, graph objects written out. For any other object,
    return the name of its class.
    """
    if isinstance(graph, KernelGrid):
        return {"chains": [[str(spec) for spec in chain] for chain in graph.chains], "depth": graph.limit, "a": graph.a}
    if isinstance(graph, KernelList):
        keys = np.arange(graph.size)[:, None]
        up = [[graph.names[int(one)] for one in graph.parents(key)[:, 0]] for key in keys]
        rows = zip(graph.names, graph.kernels, up, graph.penalties(keys).tolist(), strict=True)
        return {"nodes": [{"name": name, "kernel": str(kernel), "parents": above, "d": d} for name, kernel, above, d in rows]}
    if isinstance(graph, Mapping) and set(graph) != {"nodes"} and "chains" not in graph:
        graph = [_node_record(str(name), node) for name, node in graph.items()]
    if graph is None or isinstance(graph, (str, Mapping)):
        return graph
    if isinstance(graph, Sequence):
        return [{key: _plain_value(value) for key, value in entry.items()} if isinstance(entry, Mapping) else entry for entry in graph]
    return f"{type(graph).__module__}:{type(graph).__qualname__}"


def _plain_value(value: object) -> object:
    if isinstance(value, (str, int, float)) or value is None:
        return value
    return [str(one) for one in value] if isinstance(value, (list, tuple, set)) else str(value)


def _node_record(name: str, node: object) -> dict[str, Any]:
    if isinstance(node, Mapping):
        return {"name": name, **node}
    if isinstance(node, (tuple, list)) and len(node) == 2:
        return {"name": name, "kernel": node[0], "parents": node[1]}
    return {"name": name, "kernel": node}


def _parse_nodes(entries: Sequence[Any], a: float, close: Close) -> KernelList:
    for position, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or "kernel" not in entry or set(entry) - set(_RECORD):
            raise ValueError(f"dag[{position}]={entry!r}: a node is a record with the key kernel, and may have name, parents and d")
        if isinstance(entry.get("parents"), str):
            raise ValueError(f"dag[{position}]: parents={entry['parents']!r} must be a list of names")
    names = [str(entry.get("name", entry["kernel"])) for entry in entries]
    penalties = {name: float(entry["d"]) for name, entry in zip(names, entries, strict=True) if entry.get("d") is not None}
    above = [[str(one) for one in entry.get("parents") or ()] for entry in entries]
    return KernelList(names, [_read_product(*pair, close) for pair in zip(names, entries, strict=True)], above, a, penalties)


def _read_product(name: str, entry: Mapping[str, Any], close: Close) -> ProductSpec | KernelSpec:
    kernel = entry["kernel"]
    try:
        return ProductSpec.parse(kernel, close) if isinstance(kernel, str) else kernel
    except ValueError as error:
        raise ValueError(f"node {name!r}: {error}") from None


def _parse_grid(text: str, a: float, d: int | None, spread: np.ndarray | None, close: Close) -> KernelGrid:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"dag={text!r}: must be of the form {GRAPH_FORM}")
    parts = [part.strip() for part in match[2].split(";") if part.strip()]
    limits = [part for part in parts if re.fullmatch(r"depth\s*=.*", part)]
    kernels = [part for part in parts if part not in limits]
    if not kernels or (match[1] == "subsets" and len(kernels) > 1) or len(limits) > 1:
        raise ValueError(f"dag={text!r}: must be of the form {GRAPH_FORM}; subsets(...) takes one kernel")
    depth = limits[0].partition("=")[2].strip() if limits else None
    if depth is not None and (not depth.isdigit() or int(depth) < 1):
        raise ValueError(f"dag: depth={depth} must be a whole number of at least 1")
    chains: dict[int, list[KernelSpec]] = {}
    try:
        for part in kernels:
            for column, specs in _parse_chains(part, d, spread, close):
                chains.setdefault(column, []).extend(specs)
    except ValueError as error:
        raise ValueError(f"dag={text!r}: {error}") from None
    if match[1] == "subsets" and any(len(chain) > 1 for chain in chains.values()):
        raise ValueError(f"dag={text!r}: subsets(...) takes one kernel per feature; write grid(...)")
    return KernelGrid(tuple(tuple(chains[column]) for column in sorted(chains)), a, None if depth is None else int(depth))


def _parse_chains(text: str, d: int | None, spread: np.ndarray | None, close: Close) -> list[tuple[int, list[KernelSpec]]]:
    word = _WORD.fullmatch(text)
    spec = KernelSpec.parse(f"linear{word[4] or ''}" if word else text)
    if spec.normalize != "none" or spec.centre:
        raise ValueError(f"kernel {text!r}: kernels of a grid are multiplied, and cannot be normalised or centred one by one")
    if spec.columns is None and d is None:
        raise ValueError(f"kernel {text!r} names no features, and the number of features is not known; name features, as in gaussian[0:4]")
    columns = tuple(range(d or 0))
    if spec.columns is not None:
        columns = close(KernelSpec("linear", (), spec.columns)).columns or ()
    if word is None:
        return [(j, [close(replace(spec, columns=(j,)))]) for j in columns]
    return _word_chains(word[1], word[2], word[3], list(columns), spread)


def _word_chains(
    name: str, key: str | None, value: str | None, columns: list[int], spread: np.ndarray | None
) -> list[tuple[int, list[KernelSpec]]]:
    parameter = "width" if name == "gaussian" else "degree"
    number = _parse_number(name, parameter, value) if value else (1.0 if name == "gaussian" else 3.0)
    if key not in (None, parameter):
        raise ValueError(f"{name} has no parameter {key!r}; it takes {parameter}")
    if name == "gaussian":
        widths = {j: 1.0 if spread is None else float(spread[j]) for j in columns}
        varying = [j for j in columns if widths[j] > 0]
        if not varying:
            raise ValueError("every feature is constant, so a Gaussian has no width")
        return [(j, [KernelSpec("rbf", (("gamma", 0.5 / (number * widths[j]) ** 2),), (j,))]) for j in varying]
    degrees = range(1, int(number) + 1)
    if name == "monomial":
        return [(j, [KernelSpec("poly", (("degree", q), ("gamma", 1.0), ("coef0", 0.0)), (j,)) for q in degrees]) for j in columns]
    return [(j, [KernelSpec("callable", (("function", _HERMITE), ("degree", q)), (j,)) for q in degrees]) for j in columns]


def _parse_number(name: str, key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0) or (key == "degree" and number != int(number)):
        raise ValueError(f"{name}: {key}={value} must be a {'whole ' if key == 'degree' else ''}number greater than 0")
    return number


def hermite(X: np.ndarray | sp.csr_array, Z: np.ndarray | sp.csr_array, degree: int = 1) -> np.ndarray:
    """Return ``h_q(x) h_q(z)`` of one feature, ``(n, m)``, where h_q is the Hermite polynomial of degree q divided by ``sqrt(2^q q!)``."""
    left, right = (np.asarray(part if isinstance(part, np.ndarray) else part.toarray(), np.float64)[:, 0] for part in (X, Z))
    chosen = np.zeros(int(degree) + 1)
    chosen[-1] = 1.0 / math.sqrt(2.0 ** int(degree) * math.factorial(int(degree)))
    return np.outer(np.polynomial.hermite.hermval(left, chosen), np.polynomial.hermite.hermval(right, chosen))
