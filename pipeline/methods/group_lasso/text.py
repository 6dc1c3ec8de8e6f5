"""SVMlight text that is read once, from a file or from standard input, as the data of a fit."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ....storage import ColumnScale, DataError
from ....storage.ingest.text.svmlight import RowText
from ....storage.source import Source
from ...inputs.labels import Inputs
from ...records.data_set import Kind
from .config import GroupLassoConfig
from .inputs import chosen_groups

CLASSES = (-1, 1)  # labels of a text by default


@dataclass(frozen=True)
class _TextMeta:
    labels: tuple[Any, ...] | None
    n_rows: int = 0
    kind: str = "sparse"
    scale: str = "none"


class TextData:
    """A text before it is read, with the interface of a block store.

    * ``source``: path, or ``"-"`` for standard input.
    * ``options``: ``n_features``; ``task`` (``"classification"`` or ``"regression"``); ``labels`` (default -1 and 1); ``zero_based``.

    Raises ValueError if ``n_features`` is missing or a label is not a number, and DataError if the file cannot be read.
    """

    scale = ColumnScale()
    n_rows = 0
    holds: Kind = "stream"

    def __init__(self, source: str, options: Mapping[str, Any]) -> None:
        regression = options.get("task", "classification") == "regression"
        if regression and options.get("labels") is not None:
            raise ValueError(f"labels={options['labels']!r}: a regression has no class labels; leave labels out")
        if source != "-" and not os.access(source, os.R_OK):
            raise DataError("the file does not exist or cannot be read", source)
        labels = None if regression else (options.get("labels") or CLASSES)
        self.text = RowText(source, options.get("n_features"), labels, bool(options.get("zero_based", False)))  # pyright: ignore[reportArgumentType] (checked there)
        if self.text.labels is not None and len(self.text.labels) < 2:
            raise ValueError(f"labels={list(self.text.labels)!r}: a classification needs at least two labels")
        self.url = source if source == "-" else str(Path(source).resolve())
        self.meta = _TextMeta(self.text.labels)
        self.n_cols, self.first_feature = self.text.n_features, 0 if options.get("zero_based") else 1

    @cached_property
    def digest(self) -> str:
        """Identity of the text: a digest of its name rather than of its content, because a text may grow."""
        return "text:" + hashlib.sha256(self.url.encode()).hexdigest()[:32]

    def whole_source(self) -> Source:
        """Return the source from which the text is read."""
        about: dict[str, Any] = {"labels": self.meta.labels, "has_target": True, "place": self.url, "digest": self.digest}
        return Source("svmlight", "sparse", self.n_cols, self.first_feature, **about)

    def confirm(self) -> None:
        """Check, after the text was read to its end, that the file has not changed. Raises DigestMismatch if it has changed."""
        if self.text.ended:
            self.text.confirm()

    def has_table(self, name: str, of: str = "rows") -> bool:
        """False: a text has no tables."""
        return False

    def groups(self) -> None:
        """None: a text has no groups of features."""
        return

    def feature_names(self) -> None:
        """None: a text has no names of features."""
        return

    def column_blocks(self) -> list[Any]:
        """Empty list: a text has no column blocks."""
        return []


def read_text(config: GroupLassoConfig, data: TextData, extra: Mapping[str, Any]) -> Inputs:
    """Return the inputs of a text before its rows are read. Raises ValueError for a parameter or input that needs all rows at once."""
    unsuited = {"algorithm='fista'": config.resolved(is_stream=True).algorithm == "fista", f"epochs={config.epochs}": config.epochs > 1}
    unsuited |= {"class_weight='balanced'": config.class_weight == "balanced", "a test share": bool(extra.get("test_share"))}
    for name, is_asked_for in unsuited.items():
        if is_asked_for:
            raise ValueError(f"{name} needs rows that can be read again, but a stream is read only once: ingest the text into a store")
    return Inputs(data, np.zeros(0, np.int64), data.meta.labels, None, chosen_groups(extra.get("groups"), extra.get("edges")))
