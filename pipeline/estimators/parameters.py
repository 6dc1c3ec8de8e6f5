"""Parameters of estimators: declared by the parameter model of a method, and from it signature, type hints, documentation and checks."""

from __future__ import annotations

import functools
import inspect
import operator
import re
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt

from ..records.config import MethodConfig
from ..records.names import nearest

INDENT = "    "

RANGES: dict[type, tuple[str, str]] = {Gt: ("gt", ">"), Ge: ("ge", ">="), Lt: ("lt", "<"), Le: ("le", "<=")}


@dataclass(frozen=True)
class Parameter:
    """A parameter of an estimator."""

    # name, default: as in the signature
    name: str
    default: Any
    kind: str  # type in words, with its range, such as `"float > 0"`
    hint: Any  # type as an annotation
    text: str  # what it means

    def section(self) -> str:
        """Return its part of a docstring."""
        return f"{self.name} : {self.kind}, default={self.default!r}\n" + textwrap.fill(
            self.text, 116, initial_indent=INDENT, subsequent_indent=INDENT
        )


# What every estimator has beside the parameters of its method.
RUN_PARAMETERS = (
    Parameter("cluster", None, "str or None", str | None, 'Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."``.'),
    Parameter(
        "random_state", None, "int, RandomState or None", Any, "Seed of everything drawn at random; ``None`` is 0, so that fits repeat."
    ),
    Parameter(
        "verbose",
        0,
        "int",
        int,
        "1 shows progress on standard error: a bar with rounds, gap and time left on a terminal or in a notebook, elsewhere a line per "
        "round; 2 also sends every event to the log ``gramplane``.",
    ),
    Parameter(
        "callbacks",
        None,
        "callable, list of callables or None",
        Callable[[Mapping[str, Any]], None] | Sequence[Callable[[Mapping[str, Any]], None]] | None,
        "Function, or several, called with an event record per step.",
    ),
)


def method_parameters(config: type[MethodConfig], left_out: Sequence[str] = ()) -> list[Parameter]:
    """Return the parameters that a model declares, in its order, but for those that do not concern the estimator."""
    declared = []
    for name, field in config.model_fields.items():
        if name not in left_out:
            kind, bounds = type_words(field.annotation), _bounds(field.metadata)
            kind = " and ".join([f"{kind} {bounds[0]}", *bounds[1:]]) if bounds else kind
            declared.append(Parameter(name, field.default, kind, plain_hint(field.annotation), _sentence(field.description or "")))
    return declared


def _bounds(metadata: Sequence[Any]) -> list[str]:
    """Return the range that pydantic checks, such as ``["> 0", "<= 1"]``."""
    parts = [part for item in metadata for part in getattr(item, "metadata", [item])]
    return [f"{sign} {getattr(part, key):g}" for part in parts for kind, (key, sign) in RANGES.items() if isinstance(part, kind)]


def _sentence(text: str) -> str:
    """Return a description as a sentence; one that begins with a name or formula keeps its first letter."""
    text = text if re.match(r"\w+[:(_=]|\W", text) else text[:1].upper() + text[1:]
    return text if text.endswith(".") or not text else f"{text}."


def type_words(hint: object) -> str:
    """Return a type as documentation writes it: ``{"a", "b"}``, ``int >= 1 or None``, ``list of float``."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "{" + ", ".join(repr(value).replace("'", '"') for value in args) + "}"
    if origin in (Union, types.UnionType):
        return " or ".join(type_words(arg) for arg in args)
    if origin is list:
        return f"list of {type_words(args[0])}"
    if origin in (dict, tuple):
        return origin.__name__
    if origin is Annotated:
        return " and ".join([" ".join([type_words(args[0]), *(bounds := _bounds(args[1:]))[:1]]), *bounds[1:]])
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))


def plain_hint(hint: Any) -> Any:
    """Return an annotation without the ranges that pydantic checks."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return plain_hint(args[0])
    if origin in (Union, types.UnionType):
        return functools.reduce(operator.or_, [plain_hint(arg) for arg in args])
    if origin in (list, dict, tuple):
        return types.GenericAlias(origin, tuple(plain_hint(arg) for arg in args))
    return hint


def constructor(parameters: Sequence[Parameter]) -> Callable[..., None]:
    """Return an ``__init__`` that keeps every parameter as an attribute, with the signature that they declare."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    declared = [inspect.Parameter(p.name, kind, default=p.default, annotation=p.hint) for p in parameters]
    signature = inspect.Signature([inspect.Parameter("self", kind), *declared])

    defaults = {p.name: p.default for p in parameters}

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        given = dict(zip(defaults, args, strict=False), **options) if options.keys().isdisjoint(tuple(defaults)[: len(args)]) else {}
        if len(given) != len(args) + len(options) or not given.keys() <= defaults.keys():
            try:
                signature.bind(self, *args, **options)
            except TypeError as error:
                unknown = [name for name in options if name not in defaults]
                hint = nearest(unknown[0], list(defaults)) if unknown else ""
                raise TypeError(f"{type(self).__name__}: {error}{hint}") from None
        vars(self).update({**defaults, **given})

    vars(__init__)["__signature__"] = signature
    return __init__


def declare_parameters(cls: Any, parameters: Sequence[Parameter]) -> None:
    """Give a class its constructor, and the documentation of its parameters."""
    cls.__init__ = constructor(parameters)
    cls.__doc__ = documentation(cls, parameters)


# Sections of a class' documentation behind its parameters, in order; one that a class does not write is that of its base.
SECTIONS = ("Attributes", "Notes", "Examples", "References")


def documentation(cls: type, parameters: Sequence[Parameter]) -> str:
    """Return the documentation of a class: its text, the parameters, and its other sections or those of the nearest base that has them.

    Attributes are those of all its bases. What a private base says after its first sentence follows that of the class.
    """
    bases = [base for base in cls.__mro__ if base.__module__.startswith(__name__.partition(".")[0])]
    texts = [_sections(inspect.cleandoc(base.__dict__.get("__doc__") or "")) for base in bases]
    (first, _, more), *others = (text[""].partition("\n\n") for text in texts)
    shared = [text[2] for base, text in zip(bases[1:], others, strict=True) if base.__name__.startswith("_")]
    sections = {"Parameters": "\n".join(p.section() for p in parameters)}
    for name in SECTIONS:
        bodies = [text[name] for text in texts if name in text]
        if bodies:
            sections[name] = _joined_attributes(bodies) if name == "Attributes" else bodies[0]
    parts = [part for part in (first, *shared, more) if part]
    return "\n\n".join([*parts, *(f"{name}\n{'-' * len(name)}\n{body}" for name, body in sections.items())])


def _sections(text: str) -> dict[str, str]:
    """Return a documentation's sections by name; what stands before the first is ``""``."""
    parts = re.split(r"^(\w+)\n-{3,}\n", text, flags=re.MULTILINE)
    return {"": parts[0].strip(), **{parts[k]: parts[k + 1].strip() for k in range(1, len(parts), 2)}}


def _joined_attributes(bodies: Sequence[str]) -> str:
    """Return the entries of all sections; a name that several explain has the first explanation."""
    entries: dict[str, str] = {}
    for names, text in re.findall(r"^(\w.*)\n((?: .*\n?)+)", "\n".join(bodies), re.MULTILINE):
        entries |= {name: text.rstrip() for name in names.split(", ") if name not in entries}
    texts = dict.fromkeys(entries.values())
    return "\n".join(f"{', '.join(name for name in entries if entries[name] == text)}\n{text}" for text in texts)
