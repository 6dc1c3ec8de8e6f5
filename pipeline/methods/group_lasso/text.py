"""The group lasso on SVMlight text that is read once, from a file or from standard input: a step is a piece of text."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ....kernels.group_lasso.dual_averaging import Rows
from ....storage import ColumnScale, DataError
from ....storage.ingest.text.row_text import Consumed, RowText, TextPiece
from ...inputs.labels import class_factors
from ...loops.protocol import Step
from ...records.context import RunContext
from ...records.data_set import Kind
from .config import GroupLassoConfig
from .inputs import GroupLassoInputs
from .stream import StreamState, figures_of, machine_of, summed_up

CLASSES = (-1, 1)
"""Labels of a text unless others are given."""


@dataclass(frozen=True)
class _TextMeta:
    labels: tuple[Any, ...] | None
    n_rows: int = 0
    kind: str = "sparse"
    scale: str = "none"


class TextData:
    """What a run knows of a text before it reads it; takes the place of a block store.

    Parameters
    ----------
    source
        Path, or ``"-"`` for standard input.
    given
        ``n_features``; ``task`` (``"classification"`` or ``"regression"``), ``labels`` (default -1 and 1), ``zero_based``.

    Raises
    ------
    ValueError
        No width, or labels that are not numbers.
    gramplane.storage.DataError
        The file cannot be read.
    """

    scale = ColumnScale()
    n_rows = 0
    holds: Kind = "stream"

    def __init__(self, source: str, given: Mapping[str, Any]) -> None:
        regression = given.get("task", "classification") == "regression"
        if regression and given.get("labels") is not None:
            raise ValueError(f"labels={given['labels']!r}: a regression has none")
        if source != "-" and not os.access(source, os.R_OK):
            raise DataError("the file does not exist or cannot be read", source)
        labels = None if regression else (given.get("labels") or CLASSES)
        self.text = RowText(source, given.get("n_features"), labels, bool(given.get("zero_based", False)))  # pyright: ignore[reportArgumentType] (checked there)
        if self.text.labels is not None and len(self.text.labels) < 2:
            raise ValueError(f"labels={list(self.text.labels)!r}: classes need at least two")
        self.url = source if source == "-" else str(Path(source).resolve())
        self.meta = _TextMeta(self.text.labels)
        self.n_cols = self.text.n_features

    @cached_property
    def digest(self) -> str:
        """Identity of the text: its name, for a text may grow."""
        return "text:" + hashlib.sha256(self.url.encode()).hexdigest()[:32]

    def confirm(self) -> None:
        """Check, once the text was read to its end, that it is still the one that was learned from.

        Raises
        ------
        gramplane.storage.DigestMismatch
            It was changed meanwhile.
        """
        if self.text.ended:
            self.text.confirm()

    def has_table(self, name: str, of: str = "rows") -> bool:
        """Whether there is a table: a text has none."""
        return False

    def groups(self) -> None:
        """Groups of the features: a text has none."""
        return

    def feature_names(self) -> None:
        """Names of the features: a text has none."""
        return

    def column_blocks(self) -> list[Any]:
        """Column blocks: a text has none."""
        return []


def text_inputs(config: GroupLassoConfig, data: TextData, extra: Mapping[str, Any]) -> GroupLassoInputs:
    """Return what is known of a text before its rows come.

    Raises
    ------
    ValueError
        A parameter or input that needs all rows at once.
    """
    wrong = {
        "algorithm='fista'": config.algorithm == "fista",
        f"epochs={config.epochs}": config.epochs > 1,
        "class_weight='balanced'": config.class_weight == "balanced",
        "a test share": bool(extra.get("test_share")),
    }
    for name, found in wrong.items():
        if found:
            raise ValueError(f"{name} needs rows that can be read again, a stream is read once: ingest the text into a store")
    return GroupLassoInputs(data, np.zeros(0, np.int64), data.meta.labels, None, extra.get("groups"))


class TextLoop:
    """One pass over a text, in its order."""

    state_type = StreamState

    def __init__(self, config: GroupLassoConfig, inputs: GroupLassoInputs) -> None:
        self.config, self.inputs, self.text = config, inputs, inputs.data.text
        self.machine = machine_of(config, inputs, int(inputs.data.n_cols))
        self.weight = np.zeros(0)
        self._factors = np.ones(0)
        if isinstance(config.class_weight, dict):
            if inputs.classes is None:
                raise ValueError(f"class_weight={config.class_weight!r}: the target holds real numbers, there are no classes")
            self._factors = class_factors(config.class_weight, inputs.labels, inputs.target)

    def init(self, ctx: RunContext) -> StreamState:
        """Return the state before the first row."""
        return StreamState(0, None, 0, 0, 0, 0, self.machine.learner().point())

    def step(self, state: StreamState, ctx: RunContext) -> Step[StreamState]:
        """Take the rows of a piece of text.

        Raises
        ------
        DataError
            The next line breaks a rule; all rows before it are learned, and in the last checkpoint.
        """
        if state.offset != self.text.consumed.nbytes:
            self._resumed(state, ctx)
        piece = self._piece(state)
        learner = self.machine.learner(state.point)
        loss, weight, n = learner.losses.sum(), learner.weight, len(piece.y)
        self._take(learner, piece)
        if piece.last:
            learner.finish()
        found = [n, learner.losses.sum() - loss, learner.weight - weight, *summed_up(learner, self.config.average)]
        state = replace(
            state,
            iteration=state.iteration + 1,
            stop="end" if piece.last else None,
            epoch=int(piece.last),
            block=piece.lines,
            rows=state.rows + n,
            offset=piece.end,
            point=learner.point(),
            along=np.vstack((state.along, found)),
        )
        return Step(state, figures_of(state.along))

    def about(self) -> dict[str, Any]:
        """Return what a checkpoint says of the text that was read, for a resume to compare."""
        consumed = self.text.consumed
        return {"text": {"bytes": consumed.nbytes, "crc32c": consumed.crc}}

    def _resumed(self, state: StreamState, ctx: RunContext) -> None:
        """Have the beginning of the text read again and compared with what the run learned from."""
        found = None if ctx.run is None else (ctx.run.checkpoint_about() or {}).get("text")
        if found is not None:
            self.text.expect(Consumed(found["bytes"], found["crc32c"]))
        ctx.emit({"event": "phase", "phase": f"the first {state.offset} bytes of the text are read again, to see that they are the same"})

    def _piece(self, state: StreamState) -> TextPiece:
        try:
            return self.text.piece(state.offset, state.block)
        except DataError as error:
            if error.line is None or not state.rows:
                raise
            kept = f"{error.reason} (row {state.rows + 1}; the {state.rows} rows before it are learned, resume goes on with this one)"
            raise DataError(kept, error.file, error.line, error.column) from error

    def _take(self, learner: Any, piece: TextPiece) -> None:
        order = np.arange(len(piece.y), dtype=np.int64)
        weight = np.ones(len(piece.y))
        target = piece.y
        if self.inputs.classes is not None:
            target = np.searchsorted(np.array(self.inputs.classes, np.float64), piece.y)
            weight = self._factors[target] if len(self._factors) else weight
        targets = replace(self.inputs, target=target).targets
        learner.take(Rows(piece.indptr, piece.indices, piece.values, order), targets, weight)
