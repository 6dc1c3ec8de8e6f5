"""Rankings of many queries; a step ranks one batch of tasks, so that an interruption loses at most one batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.ranking.random_walk import average_precision, rank_rows, top_precision
from ...core.memory import Item, driver_plan
from ...core.resources import Resources
from ...core.result import Result, Step
from ...loops.protocol import joint_stop
from ...models.model import Tables
from .config import RankerConfig
from .model import RankingModel
from .problem import TOP_SIZES, RankerInputs, is_flat, relevant_rows, stored_digest, tag_text
from .queries import QueryTable, batch_bytes, batch_groups, carried_bytes, query_vectors, ranking_plan, read_bytes, task_groups
from .ranking import RankedQuery

FIRST_OF_QUERY = 10  # images of every query in the table of rankings
QUERY_FIGURES = (
    "objective", "gap", "relative_gap", "iterations", "converged", "cap_used", "rank", "mean_distance", "untagged", "walk_steps",
    "walk_error", "score_spread",
)  # fmt: skip
"""Quantities recorded per query, in the order of their columns."""

STOPS = ("max_iter", "stalled", "gap", "closed form")
"""Reasons to stop, in order of precedence when queries stop for different reasons."""


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
        """Return one quantity of all finished queries."""
        return self.figures[:, QUERY_FIGURES.index(name)]

    @property
    def joint_figures(self) -> dict[str, float]:
        """Sums of objectives and gaps, and the largest relative gap, over the finished queries."""
        sums = {name: float(self.figure(name).sum()) for name in ("objective", "gap")}
        return {**sums, "relative_gap": float(self.figure("relative_gap").max(initial=0.0))}


@dataclass(eq=False)
class QueriesProblem:
    """The queries of a table, ranked batch by batch; their tags are validated before the first batch."""

    config: RankerConfig
    inputs: RankerInputs
    table: QueryTable
    distributed = ("queries",)
    state_type = QueriesState

    def __post_init__(self) -> None:
        carries = [carried_bytes(query_vectors(self.config, self.table, self.inputs.tags, q)[0]) for q in range(len(self.table.names))]
        self.carries = np.array(carries)  # bytes that travel of every query
        self.batches = batch_groups(task_groups(self.table.sizes))

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Numbers of queries and images, and the tasks of the passes."""
        table, batches, read = self.table, self.batches, (self.inputs.data.n_cols, read_bytes(self.inputs.data))
        sizes = {"queries": len(table.names), "images": len(table.rows), "largest_query": int(table.sizes.max())}
        passes = {"passes_at_most": len(batches), "tasks_per_pass": len(batches[0]), "tasks_in_all": sum(map(len, batches))}
        bound = max(batch_bytes(self.config, table, self.carries, batch, *read) for batch in batches)
        return {**driver_plan(self.driver_items), **sizes, **passes, "iterations_at_most": self.config.max_iter, "task_bytes": bound}

    @property
    def driver_items(self) -> tuple[Item, ...]:
        """Memory of the driver, which holds no images, only the tags in transit."""
        carried = max(int(self.carries[batch[0][0] : batch[-1][1]].sum()) for batch in self.batches)
        return *table_items(len(self.table.rows), self.config), ("tag vectors of a batch of queries", 2 * carried)

    def init(self, resources: Resources) -> QueriesState:
        """Return the initial state, before the first batch."""
        nothing = np.zeros(0), np.zeros((0, 2), np.int32), np.zeros(0), np.zeros(0, np.int64)
        return QueriesState(0, *nothing, np.zeros((0, len(QUERY_FIGURES))), np.zeros(0, np.int64))

    def step(self, state: QueriesState, resources: Resources) -> Step[QueriesState]:
        """Rank the queries of the next batch."""
        batch = self.batches[state.iteration]
        work = ranking_plan(self.inputs.data, self.config, self.table, self.inputs.tags, batch, resources.seed)
        new = replace(_extended(state, resources.run_pass(work)), iteration=state.iteration + 1)
        if new.iteration == len(self.batches):
            new = replace(new, stop=joint_stop([STOPS[code] for code in new.reasons.tolist()], STOPS))
        done = {"queries": len(new.reasons), "images": len(new.scores)}
        return Step(new, {**done, **new.joint_figures, "active_pairs": int(np.count_nonzero(new.alpha))})

    def result(self, state: QueriesState) -> Result[RankingModel]:
        """Return scores and certificates of all queries, and top-N precision if the store marks relevant images."""
        table, data, converged = self.table, self.inputs.data, state.figure("converged")
        figures = {**state.joint_figures, "converged": float((converged > 0).all())}
        figures["iterations"] = float(state.figure("iterations").sum())
        arrays = {name: np.ascontiguousarray(state.figure(name)) for name in QUERY_FIGURES}
        arrays |= {"n_pairs": state.n_pairs, "pairs": state.pairs, "alpha": state.alpha}
        record = self.config.model_dump_json(), stored_digest(data), data.n_rows, table.names, table.starts, table.rows
        model = RankingModel(*record, state.scores, table.prior, table.lines, figures, arrays)
        relevant, messages = relevant_rows(data), flat_queries(model)
        judged = {} if relevant is None else {"precision": {str(row["n"]): row["precision"] for row in mean_precisions(model, relevant)}}
        return Result(
            model,
            state.stop,
            objective=figures["objective"],
            gap=figures["gap"],
            certified_over="all kernels, before the random walks",
            unfinished=f"max_iter={self.config.max_iter} ended the fit with a relative gap above tol={self.config.tol:g}",
            figures={
                "queries": len(table.names),
                "images": len(table.rows),
                "pairs": len(state.alpha),
                "active_pairs": int(np.count_nonzero(state.alpha)),
                "untagged": int(state.figure("untagged").sum()),
                "queries_converged": int(np.count_nonzero(converged)),
                **judged,
                **({"remark": " ".join(messages)} if messages else {}),
            },
            warnings=messages,
        )

    def tables(self, model: RankingModel) -> Tables:
        """Return the certificates of the queries, their top images, and the precision if it is known."""
        relevant, first, queries = relevant_rows(self.inputs.data), [], []
        for q, name in enumerate(model.queries):
            span = model.span(q)
            rows, scores, prior = model.rows[span], model.scores[span], model.prior[span]
            for rank, place in enumerate(rank_rows(scores)[:FIRST_OF_QUERY].tolist(), 1):
                row, numbers = int(rows[place]), {"score": float(scores[place]), "prior": float(prior[place])}
                entry = {"query": name, "rank": rank, "row": row, **numbers, "tags": tag_text(self.inputs.tags, row)}
                first.append(entry if relevant is None else {**entry, "relevant": int(relevant[row])})
            own = {} if relevant is None else {"average_precision": average_precision(scores, relevant[rows])}
            queries.append({**query_figures(model, q), **own})
        tables = {"queries": queries, "ranking": first}
        return tables if relevant is None else {**tables, "precision": mean_precisions(model, relevant)}


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


def query_figures(model: RankingModel, query: int) -> dict[str, Any]:
    """Return the certificate of a query as its row in the table of queries."""
    arrays, ends = model.arrays, np.cumsum([0, *model.arrays["n_pairs"]])
    alpha = arrays["alpha"][ends[query] : ends[query + 1]]
    sizes = {"images": len(model.scores[model.span(query)]), "pairs": len(alpha), "active_pairs": int(np.count_nonzero(alpha))}
    bounds = {name: float(arrays[name][query]) for name in ("objective", "gap", "relative_gap", "cap_used", "walk_error", "score_spread")}
    counts = {name: int(arrays[name][query]) for name in ("iterations", "converged", "rank", "walk_steps", "untagged")}
    return {"query": model.queries[query], **sizes, **bounds, **counts}


def table_items(m: int, config: RankerConfig) -> tuple[Item, ...]:
    """Return the memory of the driver for a table of queries with m rows."""
    return (
        ("scores, prior and lines of the table of queries, as found, and as the model has them", 96 * m),
        ("visual neighbours with their dual variables, twice", 32 * m * config.n_neighbors),
    )


def flat_queries(model: RankingModel) -> list[str]:
    """Return a warning that names the first queries without a ranking, that is, whose images all have the same score."""
    flat = np.flatnonzero(is_flat(model.arrays["score_spread"], np.diff(model.starts), model.arrays["walk_error"]))
    if not len(flat):
        return []
    names = ", ".join([*(model.queries[q] for q in flat[:5].tolist()), *(["..."] if len(flat) > 5 else [])])
    return [
        f"all images have equal scores in {len(flat)} of {len(model.queries)} queries ({names}), so these "
        "queries have no ranking; give a prior, or tags that images share"
    ]


def mean_precisions(model: RankingModel, relevant: np.ndarray) -> list[dict[str, Any]]:
    """Return the top-N precision of scores and prior, a row per N: the mean over the queries with at least N images."""
    spans = [model.span(q) for q in range(len(model.queries))]
    out = []
    for size in TOP_SIZES:
        large = [span for span in spans if span.stop - span.start >= size]
        if not large:
            break
        mine = [float(top_precision(model.scores[span], relevant[model.rows[span]], [size])[0]) for span in large]
        prior = [float(top_precision(model.prior[span], relevant[model.rows[span]], [size])[0]) for span in large]
        is_uniform = all(np.ptp(model.prior[span]) == 0 for span in large)
        chance = float(np.mean([relevant[model.rows[span]].mean() for span in large]))
        row = {"n": size, "queries": len(large), "precision": float(np.mean(mine)), "prior": None if is_uniform else float(np.mean(prior))}
        out.append({**row, "chance": chance})
    return out
