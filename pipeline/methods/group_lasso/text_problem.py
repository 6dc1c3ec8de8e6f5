"""One pass over a text. A step learns the rows of a piece of text."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ....kernels.group_lasso.dual_averaging import Rows
from ....kernels.group_lasso.streams import StreamLearner
from ....storage import DataError
from ....storage.ingest.text.svmlight import PIECE, Consumed, TextPiece
from ...core.memory import check_memory
from ...core.resources import Resources
from ...core.result import Step
from ...inputs.labels import Inputs, class_factors
from .config import GroupLassoConfig
from .inputs import machine_targets
from .learners import LearnerFactory
from .memory import stream_items
from .stream_problem import StreamState, Totals, stream_plan


class TextProblem:
    """One pass over a text, in its order."""

    state_type = StreamState
    distributed = ()
    too_long = ""  # what to tell of steps that were

    def __init__(self, config: GroupLassoConfig, inputs: Inputs, resources: Resources) -> None:
        self.config, self.inputs, self.text = config, inputs, inputs.data.text
        self.learners = LearnerFactory.create(config, inputs, int(inputs.data.n_cols))
        self._factors = np.ones(0)
        if isinstance(config.class_weight, dict):
            if inputs.classes is None:
                raise ValueError(f"class_weight={config.class_weight!r}: the target holds real numbers, there are no classes")
            self._factors = class_factors(config.class_weight, inputs.labels, inputs.target)
        check_memory("group-lasso", stream_items(self.learners, inputs.data), resources, "algorithm='fista', fewer features")

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Source of the text, bytes read per step, and memory of the state in bytes."""
        data = self.inputs.data
        source = "standard input" if data.url == "-" else "text"
        return {**stream_plan(self.config, self.learners, data), "rows_from": source, "text_bytes_per_step": PIECE}

    def init(self, resources: Resources) -> StreamState:
        """Return the initial state, before the first row."""
        return StreamState.start(self.learners.learner().point())

    def step(self, state: StreamState, resources: Resources) -> Step[StreamState]:
        """Learn the rows of a piece of text. Raises DataError for an invalid line; all rows before it have been learned and are in the
        last checkpoint.
        """
        if state.offset != self.text.consumed.nbytes:
            self._expect_same_beginning(state, resources)
        piece = self._read(state)
        learner = self.learners.learner(state.point)
        before = Totals.of(learner)
        self._take(learner, piece)
        self.too_long = self.too_long or learner.watch.message
        if piece.last:
            learner.finish()
        counts = {"iteration": state.iteration + 1, "epoch": int(piece.last), "rows": state.rows + len(piece.y)}
        state = replace(state, **counts, stop="end" if piece.last else None, block=piece.lines, offset=piece.end, point=learner.point())
        state = state.with_step(before, learner, len(piece.y), self.config.average)
        return Step(state, state.metrics())

    def about(self) -> dict[str, Any]:
        """Return a description of the text read so far; a resumed run compares its text with this description."""
        consumed = self.text.consumed
        return {"text": {"bytes": consumed.nbytes, "crc32c": consumed.crc}}

    def _expect_same_beginning(self, state: StreamState, resources: Resources) -> None:
        """Read the beginning of the text again and compare it with the rows that the run has learned."""
        record = None if resources.scratch is None else (resources.scratch.checkpoint_about() or {}).get("text")
        if record is not None:
            self.text.expect(Consumed(record["bytes"], record["crc32c"]))
        resources.emit(
            {"event": "phase", "phase": f"the first {state.offset} bytes of the text are read again, to see that they are the same"}
        )

    def _read(self, state: StreamState) -> TextPiece:
        try:
            return self.text.piece(state.offset, state.block)
        except DataError as error:
            if error.line is None or not state.rows:
                raise
            message = f"{error.reason} (row {state.rows + 1}; the {state.rows} rows before it are learned, resume goes on with this one)"
            raise DataError(message, error.file, error.line, error.column) from error

    def _take(self, learner: StreamLearner, piece: TextPiece) -> None:
        target, weight = piece.y, np.ones(len(piece.y))
        if self.inputs.classes is not None:
            target = np.searchsorted(np.array(self.inputs.classes, np.float64), piece.y)
            weight = self._factors[target] if len(self._factors) else weight
        rows = Rows(piece.indptr, piece.indices, piece.values, np.arange(len(piece.y), dtype=np.int64))
        learner.take(rows, machine_targets(replace(self.inputs, target=target)), weight)
