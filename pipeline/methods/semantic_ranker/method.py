"""Two ranking methods: one ranks images by a kernel learnt from visual features and tags, for one or many queries; the other ranks rows by
a similarity that is passed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....kernels.ranking.random_walk import MIN_TOL, exact_scores, rank_rows, step_walk
from ....kernels.spectral.dual_ascent import SpectralState
from ...core.memory import check_memory, total_bytes
from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...models.model import Tables
from .config import RankerConfig, VisualRankConfig
from .model import RankerModel, RankingModel
from .problem import MAX_RANKED, RankerInputs, RankerProblem, driver_items, stored_digest
from .queries_problem import QueriesProblem, QueriesState, table_items
from .walk_pass import walk_product
from .walk_problem import WalkInputs, WalkProblem, WalkState, walk_items

PRODUCTS_PER_STEP = 16  # in this process; a pass is a step


class Ranker(Method[RankerConfig, Any, Any, Any]):
    """Rankings of images by a random walk on a kernel learnt from visual features and tags. A single query is ranked in this process; many
    queries are ranked in tasks.
    """

    name = "semantic-ranker"
    config = RankerConfig
    models = (RankerModel, RankingModel)
    programs = "methods.semantic_ranker.queries"

    def read_inputs(self, config: RankerConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[RankerConfig, RankerInputs]:
        """Return the parameters and the inputs of the ranking; ``extra`` contains the tags and may contain the prior and the queries."""
        return config, RankerInputs.read(resources.data, extra["tags"], extra.get("prior"), extra.get("queries"))

    def problem(self, config: RankerConfig, inputs: RankerInputs, resources: Resources) -> RankerProblem | QueriesProblem:
        """Return the problem of a fit.

        Raises ValueError for data and tags that do not match, and MemoryBoundExceeded if the images exceed the driver's memory.
        """
        data, table, k = inputs.data, inputs.table, config.n_neighbors
        if table is None:
            check_memory(self.name, driver_items(data.n_rows, data.n_cols), resources, "rank the images of one query at a time")
            if k >= data.n_rows > 1:
                resources.doubt(f"n_neighbors={k} exceeds the {data.n_rows - 1} other images")
            return RankerProblem(config, inputs, resources)
        smallest = int(np.argmin(table.sizes))
        if k >= table.sizes[smallest]:
            resources.doubt(f"n_neighbors={k} exceeds the {table.sizes[smallest] - 1} other images of query {table.names[smallest]}")
        check_memory(self.name, table_items(len(table.rows), config), resources, "fewer queries at a time")
        problem = QueriesProblem(config, inputs, table)
        check_memory(self.name, problem.driver_items, resources, "fewer queries at a time")
        return problem

    def init(self, problem: RankerProblem | QueriesProblem, resources: Resources) -> SpectralState | QueriesState:
        """Return the initial state."""
        return problem.init(resources)

    def step(self, problem: RankerProblem | QueriesProblem, state: Any, resources: Resources) -> Step[Any]:
        """Return the state after one more evaluation of the dual (one query), or one more batch of queries (many queries)."""
        return problem.step(state, resources)

    def result(self, problem: RankerProblem | QueriesProblem, state: Any, resources: Resources) -> Result[Any]:
        """Return the scores and their certificates; for one query, also the kernel."""
        return problem.result(state)

    def tables(
        self, model: Any, names: Sequence[str] | None = None, fit: tuple[RankerProblem | QueriesProblem, Any] | None = None
    ) -> Tables:
        """Return the top images; also the precision if relevant images are known, the spectrum for a single query, and the certificates for
        many queries.
        """
        return {} if fit is None else fit[0].tables(model)


class VisualRank(Method[VisualRankConfig, WalkProblem, WalkState, RankingModel]):
    """Scores of rows by a random walk on their similarity matrix, which is the data."""

    name = "visual-rank"
    config = VisualRankConfig
    state = WalkState
    models = (RankingModel,)
    programs = "methods.semantic_ranker.walk_pass"

    def read_inputs(self, config: VisualRankConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[VisualRankConfig, WalkInputs]:
        """Return the parameters, the similarity, and the prior of the walk."""
        return config, WalkInputs.read(resources.data, extra.get("prior"))

    def problem(self, config: VisualRankConfig, inputs: WalkInputs, resources: Resources) -> WalkProblem:
        """Return the problem of a fit. Raises MemoryBoundExceeded if the vectors, or the linear system of ``solver='exact'``, exceed the
        driver's memory.
        """
        is_exact = config.solver == "exact"
        in_memory = is_exact or total_bytes(walk_items(inputs.data, in_memory=True)) <= resources.driver_memory
        problem = WalkProblem(config, inputs, in_memory)
        check_memory(self.name, problem.driver_items, resources, "solver='power'" if is_exact else "fewer rows")
        return problem

    def init(self, problem: WalkProblem, resources: Resources) -> WalkState:
        """Return the initial state: the prior, and whether the diagonal of the similarity is kept."""
        return WalkState(0, problem.inputs.prior, 0, np.inf, problem.keeps_diagonal(resources))

    def step(self, problem: WalkProblem, state: WalkState, resources: Resources) -> Step[WalkState]:
        """Compute some matrix-vector products of the power iteration, or solve the linear system exactly."""
        config, prior, r, change, done, stop = problem.config, problem.inputs.prior, state.scores, state.change, state.products, None
        walk = problem.stochastic(state, resources) if problem.in_memory else None
        product = walk.product if walk else lambda v: walk_product(problem.inputs.data, resources, v, state.keeps_diagonal)
        if walk and config.solver == "exact":
            r, change, stop = exact_scores(walk, prior, config.damping).values, 0.0, "closed form"
        target = max(config.tol, MIN_TOL)
        while stop is None and done < state.products + (PRODUCTS_PER_STEP if problem.in_memory else 1):
            r, change = step_walk(product, r, prior, config.damping)
            done += 1
            if change < target:
                stop = "tol"
            elif done >= problem.most:
                # A contraction is within its tolerance by then, but for rounding.
                stop = "max_iter" if config.max_iter is not None and done >= config.max_iter else "stalled"
        new = replace(state, iteration=state.iteration + 1, scores=r, products=done, change=change, stop=stop)
        gap = problem.error(new)
        return Step(new, {"products": new.products, "change": new.change, "gap": gap, "relative_gap": gap})

    def result(self, problem: WalkProblem, state: WalkState, resources: Resources) -> Result[RankingModel]:
        """Return the scores, a bound of their distance to the exact scores, and the top rows."""
        scores, gap, n = state.scores, problem.error(state), len(state.scores)
        figures = {"gap": gap, "iterations": float(state.products), "converged": float(state.stop != "max_iter")}
        every, record = np.arange(n), (problem.config.model_dump_json(), stored_digest(problem.inputs.data), n)
        return Result(
            RankingModel(*record, ("",), np.array([0, n]), every, scores, problem.inputs.prior, every, figures),
            state.stop,
            gap=gap,
            certified_over="the scores, as an l1 norm",
            figures={
                "products": state.products,
                "score_spread": float(np.ptp(scores) * n),
                "top": [int(row) for row in rank_rows(scores)[:5]],
            },
        )

    def tables(self, model: RankingModel, names: Sequence[str] | None = None, fit: tuple[WalkProblem, WalkState] | None = None) -> Tables:
        """Return the top rows."""
        numbers = [(int(row), float(model.scores[row]), float(model.prior[row])) for row in rank_rows(model.scores)[:MAX_RANKED]]
        return {"ranking": [{"rank": k, "row": row, "score": score, "prior": prior} for k, (row, score, prior) in enumerate(numbers, 1)]}
