"""Re-ranking of images as a method: from a store and tags to a loop, from its state to scores and tables; of one query, or of many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ....kernels.ranking.random_walk import average_precision, normalise_prior, rank_rows, top_precision
from ....kernels.spectral.dual_ascent import SpectralState
from ....storage import BlockStore, DataError, MemoryBlocks
from ....storage.errors import UserData
from ...core.memory import Item, check_memory, driver_plan, total_bytes
from ...grams.weighted_sum import MATRIX_SHARE
from ...method import Method
from ...models.spectral import SpectralModel
from ...models.spectral_predict import SpectralPredictor
from ...passes.columns import entry_count
from ...records.context import RunContext
from ...records.data_set import require
from .config import RankerConfig, VisualRankConfig
from .images import read_images
from .loop import RankerLoop
from .model import RankingModel
from .predict import RankerPredictor, stored_images
from .queries import N_MATRICES, QueryTable, batch_bytes, carried_bytes, query_vectors, read_queries, tag_source
from .query_loop import QUERY_FIGURES, QueriesLoop, QueriesState, joint_figures
from .ranking import ranking_figures, walk_on_kernel
from .walk_loop import DENSE_ENTRY, SPARSE_ENTRY, WalkLoop, WalkState
from .walk_pass import walk_plan

MAX_RANKED, MAX_TEXT = 50, 80  # images in the table of the ranking, and characters of their tags
FIRST_OF_QUERY = 10  # images of every query in that of many
TOP_SIZES = (3, 5, 10, 20, 50, 100)  # lengths of the top lists that are judged where the store says which images are relevant
MIN_SPREAD = 1e-9  # scores whose range is below this share of their mean are equal


@dataclass(frozen=True)
class RankerInputs:
    """Images, their tags (a string or list of each, or counts), and the prior of the walk, ``(n,)`` of sum one; perhaps queries."""

    data: BlockStore | MemoryBlocks
    tags: UserData
    prior: np.ndarray
    table: QueryTable | None = None

    @classmethod
    def read(cls, data: BlockStore | MemoryBlocks, tags: UserData, prior: ArrayLike | None, queries: UserData = None) -> Self:
        """Return the inputs, with the prior that was given, else the weights of a store's rows, else a uniform one.

        Raises ValueError: images without features, a prior that is none, or queries that are none.
        """
        require(data, Ranker.name, "columns")
        if prior is None and data.has_table("weight"):
            prior = data.row_table("weight")
        if queries is None:
            return cls(data, tags, normalise_prior(prior, data.n_rows))
        given = None if prior is None else normalise_prior(prior, data.n_rows)
        table = read_queries(queries, data.n_rows, given)
        return cls(data, tag_source(tags, data.n_rows), normalise_prior(None, data.n_rows) if given is None else given, table)


class Ranker(Method):
    """Rankings of images by a random walk on a kernel learnt from looks and tags: of one query, or of many as tasks."""

    name = "semantic-ranker"
    config_type = RankerConfig
    models = {SpectralModel: RankerPredictor(), RankingModel: SpectralPredictor()}
    programs = "methods.semantic_ranker.queries"

    config: RankerConfig
    inputs: RankerInputs
    loop: RankerLoop | QueriesLoop

    @classmethod
    def read_inputs(cls, config: RankerConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[RankerConfig, RankerInputs]:
        """Return parameters, tags (one string per image), a prior and queries, which ``extra`` may hold."""
        return config, RankerInputs.read(ctx.data, extra["tags"], extra.get("prior"), extra.get("queries"))

    @classmethod
    def build_loop(cls, config: RankerConfig, inputs: RankerInputs, ctx: RunContext) -> RankerLoop | QueriesLoop:
        """Return the loop of a fit.

        Raises ValueError: data or tags that do not go together; MemoryBoundExceeded: more images than the driver can hold.
        """
        data, table = inputs.data, inputs.table
        if table is not None:
            return _queries_loop(config, inputs, table, ctx)
        check_memory(cls.name, driver_items(data.n_rows, data.n_cols), ctx, "rank the images of one query at a time")
        if config.n_neighbors >= data.n_rows > 1:
            ctx.doubt(f"n_neighbors={config.n_neighbors} exceeds the {data.n_rows - 1} other images")
        return RankerLoop(config, read_images(config, data, inputs.tags), ctx.seed)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Images, tags and pairs, and steps of one query, which the driver does alone; of many the tasks."""
        if isinstance(self.loop, QueriesLoop):
            return self._plan_of_many(self.loop)
        images, basis = self.loop.images, self.loop.problem.basis
        tags = {"tags": len(np.unique(images.vectors.indices)), "untagged": images.untagged, "pairs": len(images.pairs)}
        steps = {"base": images.n if basis is None else basis.shape[1], "iterations_at_most": self.config.max_iter}
        held = driver_plan(driver_items(images.n, images.rows.shape[1]))
        return {**held, "images": images.n, **tags, **steps, "tasks_per_pass": 0, "task_bytes": 0}

    def _plan_of_many(self, loop: QueriesLoop) -> dict[str, Any]:
        table, width = loop.table, self.inputs.data.n_cols
        sizes = {"queries": len(table.names), "images": len(table.rows), "largest_query": int(table.sizes.max())}
        passes = {"passes_at_most": len(loop.batches), "tasks_per_pass": len(loop.batches[0]), "tasks_in_all": sum(map(len, loop.batches))}
        bound = max(batch_bytes(self.config, table, loop.carries, batch, width) for batch in loop.batches)
        return {**driver_plan(query_items(loop)), **sizes, **passes, "iterations_at_most": self.config.max_iter, "task_bytes": bound}

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do: of one query nothing."""
        return ("queries",) if isinstance(self.loop, QueriesLoop) else ()

    def model(self, state: SpectralState | QueriesState, ctx: RunContext) -> SpectralModel | RankingModel:
        """Return scores and what certifies them; of one query the kernel, too, and what unseen images are compared with."""
        if isinstance(self.loop, QueriesLoop):
            assert isinstance(state, QueriesState)
            return self._model_of_many(self.loop, state)
        assert isinstance(state, SpectralState)
        kernel, images, prior = self.loop.learnt_kernel(state), self.loop.images, self.inputs.prior
        scores = walk_on_kernel(self.config, kernel, prior, in_memory=8 * images.n**2 <= MATRIX_SHARE * ctx.driver_memory)
        row_scaled = ctx.data.scale.kind == "unit-row"
        figures = ranking_figures(images, self.loop.problem, state, kernel, scores, row_scaled=row_scaled)
        arrays = {"scores": scores.values, "prior": prior, "pairs": images.pairs, "alpha": state.best_alpha}
        arrays |= stored_images(images.rows, ctx.data)
        record = self.config.model_dump_json(), _digest(ctx.data), images.n
        return SpectralModel(*record, kernel.part.vectors, kernel.spectrum, figures, arrays)

    def _model_of_many(self, loop: QueriesLoop, state: QueriesState) -> RankingModel:
        table, data = loop.table, self.inputs.data
        figures = {**joint_figures(state), "converged": float((state.figure("converged") > 0).all())}
        figures["iterations"] = float(state.figure("iterations").sum())
        arrays = {name: np.ascontiguousarray(state.figure(name)) for name in QUERY_FIGURES}
        arrays |= {"n_pairs": state.n_pairs, "pairs": state.pairs, "alpha": state.alpha}
        record = self.config.model_dump_json(), _digest(data), data.n_rows, table.names, table.starts, table.rows
        return RankingModel(*record, state.scores, table.prior, table.lines, figures, arrays)

    def warnings(self, state: SpectralState | QueriesState, model: SpectralModel | RankingModel, ctx: RunContext) -> list[str]:
        """Return a warning where there is no ranking."""
        return ranking_warnings(model) if isinstance(model, SpectralModel) else flat_queries(model)

    def summary(self, state: SpectralState | QueriesState, model: SpectralModel | RankingModel) -> dict[str, Any]:
        """Return the kernel's certificate, the walk, and top-N precision if the store says which images are relevant."""
        if isinstance(model, RankingModel):
            return self._summary_of_many(state, model)
        assert isinstance(self.loop, RankerLoop)
        relevant, messages, images, figures = relevant_rows(self.inputs.data), ranking_warnings(model), self.loop.images, model.figures
        kernel = {"objective": figures["objective"], "gap": figures["gap"], "certified_over": "the kernel, before the random walk"}
        active = int(np.count_nonzero(model.arrays["alpha"]))
        counts = {"images": model.n_rows, "pairs": len(images.pairs), "active_pairs": active, "untagged": images.untagged}
        walk = {"walk_steps": int(figures["walk_steps"]), "score_spread": figures["score_spread"]}
        top = [int(row) for row in rank_rows(model.arrays["scores"])[:5]]
        summary = {**kernel, **counts, "rank": len(model.eigenvalues), "cap_used": figures["cap_used"], **walk, "top": top}
        summary["stop"] = state.stop
        if relevant is not None:
            summary["precision"] = {str(row["n"]): row["precision"] for row in precisions(model, relevant)}
        return {**summary, "remark": " ".join(messages)} if messages else summary

    def _summary_of_many(self, state: Any, model: RankingModel) -> dict[str, Any]:
        figures, relevant, messages = model.figures, relevant_rows(self.inputs.data), flat_queries(model)
        kernels = {"objective": figures["objective"], "gap": figures["gap"], "certified_over": "all kernels, before the random walks"}
        counts = {"queries": len(model.queries), "images": len(model.rows), "pairs": len(model.arrays["alpha"])}
        counts |= {"active_pairs": int(np.count_nonzero(model.arrays["alpha"])), "untagged": int(model.arrays["untagged"].sum())}
        converged = {"queries_converged": int(np.count_nonzero(model.arrays["converged"]))}
        summary = {**kernels, **counts, **converged, "stop": state.stop}
        if relevant is not None:
            summary["precision"] = {str(row["n"]): row["precision"] for row in mean_precisions(model, relevant)}
        return {**summary, "remark": " ".join(messages)} if messages else summary

    def tables(self, state: SpectralState | QueriesState, model: SpectralModel | RankingModel) -> dict[str, list[dict[str, Any]]]:
        """Return the first images, and the precision if it is known; the spectrum of one query, the certificates of many."""
        if isinstance(model, RankingModel):
            return self._tables_of_many(model)
        scores, prior = model.arrays["scores"], model.arrays["prior"]
        relevant = relevant_rows(self.inputs.data)
        first = []
        for rank, row in enumerate(rank_rows(scores)[:MAX_RANKED], 1):
            entry = {"rank": rank, "row": int(row), "score": float(scores[row]), "prior": float(prior[row]), "tags": self._tag_text(row)}
            first.append(entry if relevant is None else {**entry, "relevant": int(relevant[row])})
        total = float(model.eigenvalues.sum())
        spectrum = [{"index": k, "eigenvalue": float(lam), "share": float(lam) / total} for k, lam in enumerate(model.eigenvalues, 1)]
        tables = {"ranking": first, "spectrum": spectrum}
        if relevant is None:
            return tables
        averages = [{"ranking": name, "average_precision": average_precision(model.arrays[name], relevant)} for name in ("scores", "prior")]
        return {**tables, "precision": precisions(model, relevant), "average_precision": averages}

    def _tag_text(self, row: int) -> str:
        tags = self.inputs.tags
        if hasattr(tags, "shape") and (sp.issparse(tags) or tags.ndim == 2):
            text = " ".join(map(str, np.flatnonzero(tags[[row]].toarray() if sp.issparse(tags) else tags[row]).tolist()))
        else:
            text = " ".join(tags[row].split() if isinstance(tags[row], str) else map(str, tags[row]))
        return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."

    def _tables_of_many(self, model: RankingModel) -> dict[str, list[dict[str, Any]]]:
        relevant, first, queries = relevant_rows(self.inputs.data), [], []
        for q, name in enumerate(model.queries):
            span = model.span(q)
            rows, scores, prior = model.rows[span], model.scores[span], model.prior[span]
            for rank, place in enumerate(rank_rows(scores)[:FIRST_OF_QUERY].tolist(), 1):
                row, numbers = int(rows[place]), {"score": float(scores[place]), "prior": float(prior[place])}
                entry = {"query": name, "rank": rank, "row": row, **numbers, "tags": self._tag_text(row)}
                first.append(entry if relevant is None else {**entry, "relevant": int(relevant[row])})
            own = {} if relevant is None else {"average_precision": average_precision(scores, relevant[rows])}
            queries.append({**query_figures(model, q), **own})
        tables = {"queries": queries, "ranking": first}
        return tables if relevant is None else {**tables, "precision": mean_precisions(model, relevant)}


def query_figures(model: RankingModel, query: int) -> dict[str, Any]:
    """Return the certificate of a query: its row in the table of queries."""
    arrays, ends = model.arrays, np.cumsum([0, *model.arrays["n_pairs"]])
    alpha = arrays["alpha"][ends[query] : ends[query + 1]]
    sizes = {"images": len(model.scores[model.span(query)]), "pairs": len(alpha), "active_pairs": int(np.count_nonzero(alpha))}
    bounds = {name: float(arrays[name][query]) for name in ("objective", "gap", "relative_gap", "cap_used", "walk_error", "score_spread")}
    counts = {name: int(arrays[name][query]) for name in ("iterations", "converged", "rank", "walk_steps", "untagged")}
    return {"query": model.queries[query], **sizes, **bounds, **counts}


def _queries_loop(config: RankerConfig, inputs: RankerInputs, table: QueryTable, ctx: RunContext) -> QueriesLoop:
    """Return the loop of many queries, whose tags are looked at before work starts."""
    smallest = int(np.argmin(table.sizes))
    if config.n_neighbors >= table.sizes[smallest]:
        ctx.doubt(f"n_neighbors={config.n_neighbors} exceeds the {table.sizes[smallest] - 1} other images of query {table.names[smallest]}")
    check_memory(Ranker.name, _table_items(len(table.rows), config), ctx, "fewer queries at a time")
    carries = [carried_bytes(query_vectors(config, table, inputs.tags, q)[0]) for q in range(len(table.names))]
    loop = QueriesLoop(config, table, inputs.tags, np.array(carries))
    check_memory(Ranker.name, query_items(loop), ctx, "fewer queries at a time")
    return loop


def driver_items(n: int, d: int) -> tuple[Item, ...]:
    """Return what the driver holds of the images of a query."""
    return ("images, as read and in float64", 16 * n * d), ("matrices over the images", 8 * N_MATRICES * n * n)


def _table_items(m: int, config: RankerConfig) -> tuple[Item, ...]:
    return (
        ("scores, prior and lines of the table of queries, as found, and as the model has them", 96 * m),
        ("visual neighbours with their dual variables, twice", 32 * m * config.n_neighbors),
    )


def query_items(loop: QueriesLoop) -> tuple[Item, ...]:
    """Return what the driver holds of many queries: nothing of their images but tags on their way."""
    carried = max(int(loop.carries[batch[0][0] : batch[-1][1]].sum()) for batch in loop.batches)
    return *_table_items(len(loop.table.rows), loop.config), ("tag vectors of a batch of queries", 2 * carried)


def _digest(data: object) -> str:
    return data.digest if isinstance(data, BlockStore) else ""


def relevant_rows(data: BlockStore | MemoryBlocks) -> np.ndarray | None:
    """Return which images are relevant if the data's target has two values: those with the greater one. The fit does not look at it."""
    if not data.has_table("y"):
        return None
    values = np.unique(data.target())
    return data.target() == values[1] if len(values) == 2 else None


def is_flat(spread: Any, n: Any, error: Any) -> Any:
    """Return whether the scores of n images are equal, from their range in units of their mean and the error of the walk."""
    return spread <= np.maximum(MIN_SPREAD, n * error)


def ranking_warnings(model: SpectralModel) -> list[str]:
    """Return what a user should know of a ranking: here, that there is none."""
    spread = model.figures["score_spread"]
    if not is_flat(spread, model.n_rows, model.figures["walk_error"]):
        return []
    return [
        f"the scores of all images are equal to {max(spread, MIN_SPREAD):.0e} of their mean, so their order tells nothing: images fall "
        "into groups without ties between them, which keep their share of the prior; a prior, or tags in common, would tell them apart"
    ]


def flat_queries(model: RankingModel) -> list[str]:
    """Return a message that names the first queries without a ranking."""
    flat = np.flatnonzero(is_flat(model.arrays["score_spread"], np.diff(model.starts), model.arrays["walk_error"]))
    if not len(flat):
        return []
    names = ", ".join([*(model.queries[q] for q in flat[:5].tolist()), *(["..."] if len(flat) > 5 else [])])
    return [
        f"the scores of all images are equal in {len(flat)} of {len(model.queries)} queries ({names}), so "
        "that their order tells nothing there; a prior, or tags in common, would tell images apart"
    ]


def precisions(model: SpectralModel, relevant: np.ndarray) -> list[dict[str, Any]]:
    """Return rows of top-N precision, with that of the prior."""
    sizes = [size for size in TOP_SIZES if size <= len(relevant)]
    by_scores, by_prior = (top_precision(model.arrays[name], relevant, sizes).tolist() for name in ("scores", "prior"))
    is_uniform, chance = bool(np.ptp(model.arrays["prior"]) == 0), float(relevant.mean())
    rows = zip(sizes, by_scores, by_prior, strict=True)
    return [{"n": size, "precision": a, "prior": None if is_uniform else b, "chance": chance} for size, a, b in rows]


def mean_precisions(model: RankingModel, relevant: np.ndarray) -> list[dict[str, Any]]:
    """Return rows of top-N precision, the mean over the queries that have as many images, with that of the prior."""
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


@dataclass(frozen=True)
class WalkInputs:
    """A similarity of rows, square, and the prior of the walk, ``(n,)`` of sum one."""

    data: BlockStore | MemoryBlocks
    prior: np.ndarray

    @classmethod
    def read(cls, data: BlockStore | MemoryBlocks, prior: ArrayLike | None) -> Self:
        """Return the inputs, with the prior that was given, else the weights of a store's rows, else a uniform one.

        Raises ValueError: data that are not square, or a prior that is none.
        """
        require(data, VisualRank.name, "columns")
        if data.n_rows != data.n_cols:
            where = "" if data.url == "memory" else data.url
            raise DataError(f"similarity: shape ({data.n_rows}, {data.n_cols}); it must be square, (n_samples, n_samples)", where)
        if prior is None and data.has_table("weight"):
            prior = data.row_table("weight")
        return cls(data, normalise_prior(prior, data.n_rows))


class VisualRank(Method):
    """Scores of rows by a random walk on their similarity, which the data are."""

    name = "visual-rank"
    config_type = VisualRankConfig
    models = {RankingModel: SpectralPredictor()}
    programs = "methods.semantic_ranker.walk_pass"

    config: VisualRankConfig
    inputs: WalkInputs
    loop: WalkLoop

    @classmethod
    def read_inputs(cls, config: VisualRankConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[VisualRankConfig, WalkInputs]:
        """Return parameters, the similarity, and its prior."""
        return config, WalkInputs.read(ctx.data, extra.get("prior"))

    @classmethod
    def build_loop(cls, config: VisualRankConfig, inputs: WalkInputs, ctx: RunContext) -> WalkLoop:
        """Return the loop of a fit. Raises MemoryBoundExceeded: vectors, or the system of ``solver='exact'``, beyond its memory."""
        whole = walk_items(inputs.data, in_memory=True)
        in_memory = config.solver == "exact" or total_bytes(whole) <= ctx.driver_memory
        remedy = "solver='power'" if config.solver == "exact" else "fewer rows"
        check_memory(cls.name, (*walk_items(inputs.data, in_memory=in_memory), *_system_items(config, inputs.data.n_rows)), ctx, remedy)
        return WalkLoop(config, inputs.prior, in_memory=in_memory)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Where products are computed, and the tasks of one."""
        data, loop = self.inputs.data, self.loop
        exact = _system_items(self.config, data.n_rows)
        held = driver_plan((*walk_items(data, in_memory=loop.in_memory), *exact))
        sizes = {"n_rows": data.n_rows, "products_on": "matrix" if loop.in_memory else "passes"}
        products = 0 if exact else loop.most
        passes = {"tasks_per_pass": 0, "task_bytes": 0}
        if not loop.in_memory:
            work = walk_plan(data, self.inputs.prior, False)
            passes = {"tasks_per_pass": work.n_tasks, "task_bytes": work.memory_bound}
        return {**held, **sizes, "products_at_most": products, **passes}

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        return () if self.loop.in_memory else ("products with the similarity",)

    def model(self, state: WalkState, ctx: RunContext) -> RankingModel:
        """Return the scores."""
        data, n = self.inputs.data, len(state.scores)
        figures = {"gap": self.loop.error(state), "iterations": float(state.products), "converged": float(state.stop != "max_iter")}
        every, starts = np.arange(n), np.array([0, n])
        record = self.config.model_dump_json(), _digest(data), n, ("",), starts, every
        return RankingModel(*record, state.scores, self.inputs.prior, every, figures)

    def summary(self, state: WalkState, model: RankingModel) -> dict[str, Any]:
        """Return how far the scores are from the exact ones, and the first rows."""
        spread = float(np.ptp(model.scores) * len(model.scores))
        certificate = {"objective": None, "gap": model.figures["gap"], "certified_over": "the scores, as an l1 norm"}
        top = [int(row) for row in rank_rows(model.scores)[:5]]
        return {**certificate, "products": state.products, "score_spread": spread, "top": top, "stop": state.stop}

    def tables(self, state: WalkState, model: RankingModel) -> dict[str, list[dict[str, Any]]]:
        """Return the first rows."""
        numbers = [(int(row), float(model.scores[row]), float(model.prior[row])) for row in rank_rows(model.scores)[:MAX_RANKED]]
        return {"ranking": [{"rank": k, "row": row, "score": score, "prior": prior} for k, (row, score, prior) in enumerate(numbers, 1)]}


def walk_items(data: BlockStore | MemoryBlocks, *, in_memory: bool) -> tuple[Item, ...]:
    """Return what the driver holds of a walk."""
    vectors = "scores and prior", 64 * data.n_rows
    if not in_memory:
        return (vectors,)
    nbytes = DENSE_ENTRY * data.n_rows**2 if data.meta.kind == "dense" else SPARSE_ENTRY * entry_count(data)
    return vectors, ("similarity, as read and as weights", nbytes)


def _system_items(config: VisualRankConfig, n: int) -> tuple[Item, ...]:
    return (("matrix of the system, and its factors", 32 * n * n),) if config.solver == "exact" else ()
