"""Rankings of rows of one store: those of many queries, or one by a given similarity. A plain record, saved without pickle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class RankingModel:
    """Scores of rows, query by query, with what certifies them. A row may be in several queries, or in none.

    Query q has the entries ``starts[q]:starts[q + 1]`` of rows, scores and prior; the scores of a query have sum one.
    """

    record_name: ClassVar[str] = "RankingModel"
    config_json: str  # the method's parameters
    data_digest: str  # digest of the store; empty for rows that were given as an array
    n_rows: int  # rows of the store
    queries: tuple[str, ...]  # names, in order of first appearance; one without a name where all rows are one query
    starts: np.ndarray  # (Q + 1,)
    rows: np.ndarray  # (m,)
    scores: np.ndarray  # (m,)
    prior: np.ndarray  # (m,)
    lines: np.ndarray  # (m,) the line of the table of queries that every entry stands in
    figures: dict[str, float] = field(default_factory=dict)  # objective, gap and the like, of all queries together
    arrays: dict[str, np.ndarray] = field(default_factory=dict)  # figures of every query (Q,), and pairs and dual variables of all

    def span(self, query: int) -> slice:
        """Return where the entries of a query are."""
        return slice(int(self.starts[query]), int(self.starts[query + 1]))

    def predictions(self) -> np.ndarray:
        """Return the scores ``(m, 1)`` in the order of the table's lines."""
        out = np.empty((len(self.scores), 1))
        out[self.lines, 0] = self.scores
        return out
