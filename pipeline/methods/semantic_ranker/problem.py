r"""Re-ranking the images of a query by a kernel learnt from visual features and tags (Zhuang, thesis, 2011, chapter 6).

The kernel agrees with the tags as far as visual neighbours allow:

.. math::

    \min_{K \succeq 0, \; \mathrm{tr} KK \le B} -\mathrm{tr}(K H K_t H)
    + \frac{C}{2} \sum_{(i,j) \in E} \max(0, K_{ii} + K_{jj} - 2 K_{ij} - d_{ij}^2)^2 \quad (6.2)

with tag vectors T, :math:`K_t = T T'`, and pairs E of visual neighbours with their squared distances. The dual ascent
is shared by all methods that learn a kernel through its spectrum; each step computes one eigendecomposition. A random walk on K then gives
the scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ....kernels.ranking.random_walk import average_precision, normalise_prior, rank_rows, top_precision
from ....kernels.spectral.dual_ascent import SpectralState, advance_ascent, begin_ascent, kernel_at, progress_figures
from ....storage import BlockStore, MemoryBlocks
from ....storage.errors import UserData
from ...core.memory import Item, driver_plan
from ...core.resources import Resources
from ...core.result import Result, Step
from ...grams.weighted_sum import MATRIX_SHARE
from ...models.model import Tables
from ...records.data_set import Reads, require
from .config import RankerConfig
from .model import RankerModel
from .queries import N_MATRICES, QueryTable, read_queries, tag_source
from .ranking import build_problem, ranking_figures, read_images, stored_images, walk_on_kernel

MAX_RANKED, MAX_TEXT = 50, 80  # images in the table of the ranking, and characters of their tags
TOP_SIZES = (3, 5, 10, 20, 50, 100)  # lengths of the top lists that are judged where the store says which images are relevant
MIN_SPREAD = 1e-9  # scores whose range is below this share of their mean are equal


@dataclass(frozen=True)
class RankerInputs(Reads):
    """Inputs of a ranking.

    * ``data``: the images.
    * ``tags``: a string or list per image, or counts.
    * ``prior``: the prior of the walk ``(n,)``, which sums to 1.
    * ``table``: the queries, if any.
    """

    data: BlockStore | MemoryBlocks
    tags: UserData
    prior: np.ndarray
    table: QueryTable | None = None

    @classmethod
    def read(cls, data: BlockStore | MemoryBlocks, tags: UserData, prior: ArrayLike | None, queries: UserData = None) -> Self:
        """Return the inputs with the given prior. The default prior is the weights of a store's rows; without weights, it is uniform.

        Raises ValueError for images without features, an invalid prior, or invalid queries.
        """
        require(data, "semantic-ranker", "columns")
        if prior is None and data.has_table("weight"):
            prior = data.row_table("weight")
        if queries is None:
            return cls(data, tags, normalise_prior(prior, data.n_rows))
        given = None if prior is None else normalise_prior(prior, data.n_rows)
        table = read_queries(queries, data.n_rows, given)
        return cls(data, tag_source(tags, data.n_rows), normalise_prior(None, data.n_rows) if given is None else given, table)


@dataclass(eq=False)
class RankerProblem:
    """The ranking of one query: the ascent on the dual of (6.2), entirely in this process."""

    config: RankerConfig
    inputs: RankerInputs
    planned: Resources  # where it was made
    distributed = ()
    state_type = SpectralState

    def __post_init__(self) -> None:
        self.images = read_images(self.config, self.inputs.data, self.inputs.tags)
        self.spectral = build_problem(self.config, self.images, self.planned.seed)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Numbers of images, tags, pairs and steps; the driver does all work."""
        images, basis = self.images, self.spectral.basis
        tags = {"tags": len(np.unique(images.vectors.indices)), "untagged": images.untagged, "pairs": len(images.pairs)}
        steps = {"base": images.n if basis is None else basis.shape[1], "iterations_at_most": self.config.max_iter}
        held = driver_plan(driver_items(images.n, images.rows.shape[1]))
        return {**held, "images": images.n, **tags, **steps, "tasks_per_pass": 0, "task_bytes": 0}

    def init(self, resources: Resources) -> SpectralState:
        """Return the initial state, in which the dual variables of all pairs of neighbours are zero."""
        return begin_ascent(self.spectral, np.zeros(len(self.images.pairs)))

    def step(self, state: SpectralState, resources: Resources) -> Step[SpectralState]:
        """Evaluate the dual once and take a step."""
        new = advance_ascent(self.spectral, state, tol=self.config.tol, max_iter=self.config.max_iter)
        return Step(new, {**progress_figures(self.spectral, new), "active_pairs": int(np.count_nonzero(new.best_alpha))})

    def result(self, state: SpectralState) -> Result[RankerModel]:
        """Return the kernel with the smallest objective and its certificate, the scores of the walk on it, and the data to score unseen
        images; also top-N precision if the store marks relevant images.
        """
        data, images, prior = self.inputs.data, self.images, self.inputs.prior
        kernel = kernel_at(self.spectral, state, tol=self.config.tol)
        scores = walk_on_kernel(self.config, kernel, prior, in_memory=8 * images.n**2 <= MATRIX_SHARE * self.planned.driver_memory)
        figures = ranking_figures(images, self.spectral, state, kernel, scores, row_scaled=data.scale.kind == "unit-row")
        arrays = {"scores": scores.values, "prior": prior, "pairs": images.pairs, "alpha": state.best_alpha}
        arrays |= stored_images(images.rows, data)
        record = self.config.model_dump_json(), stored_digest(data), images.n
        model = RankerModel(*record, kernel.part.vectors, kernel.spectrum, figures, arrays)
        relevant, messages = relevant_rows(data), ranking_warnings(model)
        judged = {} if relevant is None else {"precision": {str(row["n"]): row["precision"] for row in precisions(model, relevant)}}
        return Result(
            model,
            state.stop,
            objective=figures["objective"],
            gap=figures["gap"],
            certified_over="the kernel, before the random walk",
            unfinished=f"max_iter={self.config.max_iter} ended the fit with a relative gap above tol={self.config.tol:g}",
            figures={
                "images": images.n,
                "pairs": len(images.pairs),
                "active_pairs": int(np.count_nonzero(state.best_alpha)),
                "untagged": images.untagged,
                "rank": len(kernel.spectrum),
                "cap_used": figures["cap_used"],
                "walk_steps": int(figures["walk_steps"]),
                "score_spread": figures["score_spread"],
                "top": [int(row) for row in rank_rows(scores.values)[:5]],
                **judged,
                **({"remark": " ".join(messages)} if messages else {}),
            },
            warnings=messages,
        )

    def tables(self, model: RankerModel) -> Tables:
        """Return the top images, the spectrum, and the precision if it is known."""
        scores, prior = model.arrays["scores"], model.arrays["prior"]
        relevant = relevant_rows(self.inputs.data)
        first = []
        for rank, row in enumerate(rank_rows(scores)[:MAX_RANKED], 1):
            tags = tag_text(self.inputs.tags, row)
            entry = {"rank": rank, "row": int(row), "score": float(scores[row]), "prior": float(prior[row]), "tags": tags}
            first.append(entry if relevant is None else {**entry, "relevant": int(relevant[row])})
        total = float(model.eigenvalues.sum())
        spectrum = [{"index": k, "eigenvalue": float(lam), "share": float(lam) / total} for k, lam in enumerate(model.eigenvalues, 1)]
        tables = {"ranking": first, "spectrum": spectrum}
        if relevant is None:
            return tables
        averages = [{"ranking": name, "average_precision": average_precision(model.arrays[name], relevant)} for name in ("scores", "prior")]
        return {**tables, "precision": precisions(model, relevant), "average_precision": averages}


def driver_items(n: int, d: int) -> tuple[Item, ...]:
    """Return the memory of the driver for n images of a query with d features."""
    return ("images, as read and in float64", 16 * n * d), ("matrices over the images", 8 * N_MATRICES * n * n)


def stored_digest(data: BlockStore | MemoryBlocks) -> str:
    """Return the digest of a store; empty for arrays."""
    return data.digest if isinstance(data, BlockStore) else ""


def tag_text(tags: UserData, row: int) -> str:
    """Return the tags of an image in the form that tables show."""
    if hasattr(tags, "shape") and (sp.issparse(tags) or tags.ndim == 2):
        text = " ".join(map(str, np.flatnonzero(tags[[row]].toarray() if sp.issparse(tags) else tags[row]).tolist()))
    else:
        text = " ".join(tags[row].split() if isinstance(tags[row], str) else map(str, tags[row]))
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def relevant_rows(data: BlockStore | MemoryBlocks) -> np.ndarray | None:
    """Return the mask of relevant images, whose target has the larger of two values. Return None for other targets. The fit does not use
    the mask.
    """
    if not data.has_table("y"):
        return None
    values = np.unique(data.target())
    return data.target() == values[1] if len(values) == 2 else None


def is_flat(spread: Any, n: Any, error: Any) -> Any:
    """Return whether the scores of n images are equal, given the range of the scores (as a multiple of the mean score) and the error of the
    walk.
    """
    return spread <= np.maximum(MIN_SPREAD, n * error)


def ranking_warnings(model: RankerModel) -> list[str]:
    """Return a warning if all images have the same score, so that there is no ranking."""
    spread = model.figures["score_spread"]
    if not is_flat(spread, model.n_rows, model.figures["walk_error"]):
        return []
    return [
        f"the scores of all images are equal to {max(spread, MIN_SPREAD):.0e} of their mean, so there is no ranking: images form "
        "groups without links between them, which keep their share of the prior; give a prior, or tags that images share"
    ]


def precisions(model: RankerModel, relevant: np.ndarray) -> list[dict[str, Any]]:
    """Return the top-N precision of the scores and of the prior, a row per N."""
    sizes = [size for size in TOP_SIZES if size <= len(relevant)]
    by_scores, by_prior = (top_precision(model.arrays[name], relevant, sizes).tolist() for name in ("scores", "prior"))
    is_uniform, chance = bool(np.ptp(model.arrays["prior"]) == 0), float(relevant.mean())
    rows = zip(sizes, by_scores, by_prior, strict=True)
    return [{"n": size, "precision": a, "prior": None if is_uniform else b, "chance": chance} for size, a, b in rows]
