"""Rankings of many queries, a batch of tasks a step: what a kill costs is one batch at most."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ....storage.errors import UserData
from ...core.result import Step
from ...loops.protocol import joint_stop
from ...records.context import RunContext
from .config import RankerConfig
from .queries import QueryTable, batch_groups, rank_batch, task_groups
from .ranking import RankedQuery

QUERY_FIGURES = (
    "objective", "gap", "relative_gap", "iterations", "converged", "cap_used", "rank", "mean_distance", "untagged", "walk_steps",
    "walk_error", "score_spread",
)  # fmt: skip
"""Figures of a query, in the order of their columns."""

STOPS = ("max_iter", "stalled", "gap", "closed form")
"""Why a query ended, in the order in which that of several is told."""


@dataclass(frozen=True)
class QueriesState:
    """State of a fit of many queries."""

    record_name: ClassVar[str] = "QueriesState"
    iteration: int  # batches done
    scores: np.ndarray  # (m',) of the images of all queries that are done
    pairs: np.ndarray  # (e, 2) visual neighbours, by their place in their query
    alpha: np.ndarray  # (e,)
    n_pairs: np.ndarray  # (q',) of every query that is done
    figures: np.ndarray  # (q', len(QUERY_FIGURES))
    reasons: np.ndarray  # (q',) why each ended, by its place in STOPS
    stop: str | None = None  # one of STOPS

    def figure(self, name: str) -> np.ndarray:
        """Return one figure of all queries that are done."""
        return self.figures[:, QUERY_FIGURES.index(name)]


class QueriesLoop:
    """Ranks the queries of a table, batch by batch; ``tags`` are those of every row of the data, of which every query ``carries`` bytes."""

    state_type = QueriesState

    def __init__(self, config: RankerConfig, table: QueryTable, tags: UserData, carries: np.ndarray) -> None:
        self.config, self.table, self.tags, self.carries = config, table, tags, carries
        self.batches = batch_groups(task_groups(table.sizes))

    def init(self, ctx: RunContext) -> QueriesState:
        """Return the state before the first batch."""
        nothing = np.zeros(0), np.zeros((0, 2), np.int32), np.zeros(0), np.zeros(0, np.int64)
        return QueriesState(0, *nothing, np.zeros((0, len(QUERY_FIGURES))), np.zeros(0, np.int64))

    def step(self, state: QueriesState, ctx: RunContext) -> Step[QueriesState]:
        """Rank the queries of the next batch."""
        ranked = rank_batch(ctx, self.config, self.table, self.tags, self.batches[state.iteration])
        new = replace(_extended(state, ranked), iteration=state.iteration + 1)
        if new.iteration == len(self.batches):
            new = replace(new, stop=joint_stop([STOPS[code] for code in new.reasons.tolist()], STOPS))
        done = {"queries": len(new.reasons), "images": len(new.scores)}
        return Step(new, {**done, **joint_figures(new), "active_pairs": int(np.count_nonzero(new.alpha))})


def joint_figures(state: QueriesState) -> dict[str, float]:
    """Return sums of objectives and gaps, and the largest relative gap, of the queries that are done."""
    sums = {name: float(state.figure(name).sum()) for name in ("objective", "gap")}
    return {**sums, "relative_gap": float(state.figure("relative_gap").max(initial=0.0))}


def _extended(state: QueriesState, ranked: list[RankedQuery]) -> QueriesState:
    rows = [[query.figures[name] for name in QUERY_FIGURES] for query in ranked]
    return replace(
        state,
        scores=np.concatenate([state.scores, *(query.scores for query in ranked)]),
        pairs=np.concatenate([state.pairs, *(query.pairs for query in ranked)]),
        alpha=np.concatenate([state.alpha, *(query.alpha for query in ranked)]),
        n_pairs=np.append(state.n_pairs, [len(query.alpha) for query in ranked]),
        figures=np.concatenate([state.figures, np.array(rows)]),
        reasons=np.append(state.reasons, [STOPS.index(query.stop) for query in ranked]),
    )
