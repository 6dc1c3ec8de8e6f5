"""What an ingest takes over from another store, as test data need it; and what goes into a store beside the data."""

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from ..errors import SchemaError, UserData
from ..meta import ColumnScale
from ..source import Source
from .build import Extras
from .options import Options, read_groups, read_names
from .reading import Source as Reader
from .tables.tabular import Table
from .text.sequences import SequenceSource


def follow_guide(guide: Source | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with those that follow from the source that is followed: width, first index, query ids, task, labels, missing
    values, budget; what nobody gives has its default. Raises SchemaError: one is given and says otherwise."""
    if guide is None:
        return {**asked, **{name: value for name, value in _DEFAULTS.items() if asked[name] is None}}
    like, made = guide.place, guide.options
    for name in ("categorical", "drop", "columns"):
        if asked[name]:
            raise SchemaError(f"{name} is given, but {like} says what the columns are; leave it out")
    known: dict[str, Any] = {name: made.get(name, default) for name, default in _KNOWN.items()}
    known["missing_words"] = tuple(known["missing_words"])
    if guide.kind != "sequences":
        known["n_features"] = guide.n_features
    if guide.format == "svmlight":
        known["zero_based"] = "no" if guide.first_index else "yes"
    if guide.has_target:
        known["task"] = "regression" if guide.labels is None else "classification"
    free = {"missing": ("refuse",), "task": ("classification",), "zero_based": ("auto",)}  # values that ask for nothing
    if (known["missing"], asked["missing"]) == ("refuse", "keep"):
        known["missing"] = "keep"  # rules read what is missing, whether they were learnt where something was or not
    for name, value in known.items():
        if asked[name] not in (None, value, *free.get(name, ())):
            raise SchemaError(f"{name} is {asked[name]!r}, but {like} has {value!r}, which is taken over")
    labels = guide.labels if asked["labels"] is None else asked["labels"]
    rest = {"budget": made.get("budget"), "encoding": made.get("encoding"), "labels": labels}
    followed = {name: value for name, value in {**rest, **known}.items() if name in known or asked[name] is None}
    return {**follow_guide(None, {**asked, **followed}), "guide": guide}


_KNOWN: dict[str, Any] = {"qid": "refuse", "missing_words": (), "decimal": ".", "missing": "refuse"}
_DEFAULTS: dict[str, Any] = {**_KNOWN, "zero_based": "no", "budget": 256 << 20}


def collect_extras(source: Reader, guide: Source | None, options: Options, names: UserData, groups: UserData) -> Extras:
    """Return what goes beside the data, as far as it is known before these are read. Raises SchemaError: names, scaling or content do not
    go together with those of the store to follow."""
    own_names = read_names(names)
    feature_names = own_names or source.names
    labels = read_groups(groups)
    info: dict[str, Any] = {"source": {"name": os.path.basename(source.name) or source.name, "format": source.format}}
    info |= {"names": _digest_texts(feature_names), "groups": _digest_texts(None if labels is None else labels.tolist())}
    scale = None
    if guide is not None:
        if (guide.kind == "sequences") != isinstance(source, SequenceSource):
            contents = ("sequences", "numbers")
            there, here = contents if guide.kind == "sequences" else contents[::-1]
            raise SchemaError(f"{guide.place} holds {there}; {source.name} holds {here}")
        scale = _resolve_scale(guide, options, source)
        known = guide.names
        if known is not None and own_names is None and options.guided is not None and isinstance(source, Table):
            feature_names = known  # its columns are found by their names
        _check_names(known, feature_names, guide.place)
        feature_names = feature_names or known
        labels = guide.groups if labels is None else labels
        info["like"] = guide.digest
    info["options"] = options.describe()
    are_named = own_names is not None or (guide is not None and guide.are_named)
    return Extras(feature_names, labels, scale, info, are_named)


def _digest_texts(values: list[Any] | None) -> str | None:
    return None if values is None else hashlib.sha256("\n".join(map(str, values)).encode()).hexdigest()[:32]


def _resolve_scale(guide: Source, options: Options, source: Reader) -> ColumnScale | None:
    scale = guide.scale
    if options.scale not in ("none", scale.kind):
        raise SchemaError(f"scale is {options.scale!r}, but {guide.place} has {scale.kind!r}; its factors are taken over")
    if options.missing == "keep" and scale.kind != "none":
        like = f"{guide.place} has the scale {scale.kind!r}"
        raise SchemaError(f"missing is 'keep' (--missing keep), but {like}; values are scaled only where none is missing")
    if scale.shift is not None and source.sparse:
        raise SchemaError(f"{guide.place} is dense with centred columns; this source is sparse and cannot be centred")
    return scale


def _check_names(known: list[str] | None, found: list[str] | None, place: str) -> None:
    if known is None or found is None or known == found:
        return
    column = next((k for k, (a, b) in enumerate(zip(known, found, strict=False)) if a != b), min(len(known), len(found)))
    here, there = (names[column] if column < len(names) else None for names in (found, known))
    raise SchemaError(f"column {column} is named {here!r}, but {there!r} in {place}; bring the columns into the same order")


def comparison_key(info: Mapping[str, Any]) -> dict[str, Any]:
    """What tells whether a store was made in the same way: without the name of the source, which may be moved."""
    return {**info, "source": dict(info["source"] or {}).get("format")}
