"""What an ingest takes over from another store, as test data need it; and what goes into a store beside the data."""

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from ..blocks.store import BlockStore
from ..errors import SchemaError
from ..meta import ColumnScale
from ..value_types import UserData
from .build import Extras
from .options import ROW_OPTIONS, Options, read_groups, read_names
from .reading import Source
from .tables.tabular import Table
from .text.sequences import SequenceSource


def follow_guide(guide: BlockStore, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that follow from another store: task, labels, missing values, roles of columns, encoding. Raises SchemaError: one
    is given and says otherwise."""
    made = dict(dict(guide.meta.info).get("options") or {})
    for name in ("categorical", "drop", "columns"):
        if chosen[name]:
            raise SchemaError(f"{name} is given, but {guide.url} (like) says what the columns are; leave it out")
    missing, encoding, info = made.get("missing", "refuse"), guide.encoding, dict(guide.meta.info)
    if (missing, chosen["missing"]) == ("refuse", "keep"):
        missing = "keep"  # rules read what is missing, whether they were learnt where something was or not
    if chosen["missing"] not in ("refuse", missing):
        raise SchemaError(f"missing is {chosen['missing']!r}, but {guide.url} (like) has {missing!r}, which is taken over")
    task = chosen["task"]
    if guide.has_table("y"):
        task = "regression" if guide.meta.labels is None else "classification"
        if chosen["task"] not in ("classification", task):
            raise SchemaError(f"task is {chosen['task']!r}, but {guide.url} (like) is made for {task}")
    # Names that were given aside do not tell which columns of the source they are of.
    names = None if info.get("are_named") else guide.feature_names()
    follow: dict[str, Any] = {name: made[option] for name, option in ROW_OPTIONS.items() if isinstance(made.get(option), str)}
    if guide.has_table("task"):
        follow["named_tasks"] = guide.meta.task_names is not None
    follow |= {"covariates": made["covariates"]} if isinstance(made.get("covariates"), list) else {}
    return {
        "task": task,
        "labels": guide.meta.labels if chosen["labels"] is None else chosen["labels"],
        "missing": missing,
        "follow": follow,
        "encoding": encoding,
        "guided": names if encoding is None else [column.name for column in encoding.sources],
    }


def resolve_width(guide: BlockStore | None, n_features: int | None) -> int | None:
    """Return the number of features that a source must have, where it is known."""
    if guide is None or _holds_sequences(guide):
        return n_features
    if n_features not in (None, guide.meta.n_cols):
        raise SchemaError(f"n_features is {n_features}, but {guide.url} (like) has {guide.meta.n_cols} columns")
    return guide.meta.n_cols


def _holds_sequences(guide: BlockStore) -> bool:
    return bool(dict(guide.meta.info).get("sequences"))


def collect_extras(source: Source, guide: BlockStore | None, options: Options, names: UserData, groups: UserData) -> Extras:
    """Return what goes beside the data, as far as it is known before these are read. Raises SchemaError: names, scaling or content do not
    go together with those of the store to follow."""
    own_names = read_names(names)
    feature_names = own_names or source.names
    labels = read_groups(groups)
    info: dict[str, Any] = {"source": {"name": os.path.basename(source.name) or source.name, "format": source.format}}
    info |= {"names": _digest_texts(feature_names), "groups": _digest_texts(None if labels is None else labels.tolist())}
    scale = None
    if guide is not None:
        if _holds_sequences(guide) != isinstance(source, SequenceSource):
            contents = ("sequences", "numbers")
            there, here = contents if _holds_sequences(guide) else contents[::-1]
            raise SchemaError(f"{guide.url} (like) holds {there}; {source.name} holds {here}")
        scale = _resolve_scale(guide, options, source)
        known = guide.feature_names()
        if known is not None and own_names is None and options.guided is not None and isinstance(source, Table):
            feature_names = known  # its columns are found by their names
        _check_names(known, feature_names, guide.url)
        feature_names = feature_names or known
        labels = guide.groups() if labels is None else labels
        info["like"] = guide.digest
    info["options"] = options.describe()
    are_named = own_names is not None or (guide is not None and bool(dict(guide.meta.info).get("are_named")))
    return Extras(feature_names, labels, scale, info, are_named)


def _digest_texts(values: list[Any] | None) -> str | None:
    return None if values is None else hashlib.sha256("\n".join(map(str, values)).encode()).hexdigest()[:32]


def _resolve_scale(guide: BlockStore, options: Options, source: Source) -> ColumnScale | None:
    scale = guide.scale
    if options.scale not in ("none", scale.kind):
        raise SchemaError(f"scale is {options.scale!r}, but {guide.url} (like) has {scale.kind!r}; its factors are taken over")
    if options.missing == "keep" and scale.kind != "none":
        like = f"{guide.url} (like) has the scale {scale.kind!r}"
        raise SchemaError(f"missing is 'keep' (--missing keep), but {like}; values are scaled only where none is missing")
    if scale.shift is not None and source.sparse:
        raise SchemaError(f"{guide.url} (like) is dense with centred columns; this source is sparse and cannot be centred")
    return scale


def _check_names(known: list[str] | None, found: list[str] | None, url: str) -> None:
    if known is None or found is None or known == found:
        return
    column = next((k for k, (a, b) in enumerate(zip(known, found, strict=False)) if a != b), min(len(known), len(found)))
    here, there = (names[column] if column < len(names) else None for names in (found, known))
    raise SchemaError(f"column {column} is named {here!r}, but {there!r} in {url} (like); bring the columns into the same order")


def comparison_key(info: Mapping[str, Any]) -> dict[str, Any]:
    """What tells whether a store was made in the same way: without the name of the source, which may be moved."""
    return {**info, "source": dict(info["source"] or {}).get("format")}
