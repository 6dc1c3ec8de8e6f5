"""Re-ranking of images as a method: from a store and tags to a loop, from its state to scores and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from ....kernels.ranking.random_walk import (
    average_precision,
    normalise_prior,
    rank_rows,
    top_precision,
    walk_on_factor,
    walk_scores,
)
from ....kernels.spectral.dual_ascent import SpectralState
from ....kernels.spectral.problem import cap_used
from ....storage import BlockStore, MemoryBlocks
from ...grams.weighted_sum import MATRIX_SHARE
from ...method import Method
from ...models.spectral import SpectralModel
from ...records.context import RunContext
from ...records.data_set import require
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from .config import RankerConfig
from .images import read_images
from .loop import RankerLoop
from .predict import RankerPredictor, stored_images

MAX_RANKED, MAX_TEXT = 50, 80  # images in the table of the ranking, and characters of their tags
TOP_SIZES = (3, 5, 10, 20, 50, 100)  # lengths of the top lists that are judged where the store says which images are relevant
MIN_SPREAD = 1e-9  # scores whose range is below this share of their mean are equal
N_MATRICES = 4  # matrices of all images that a dense eigendecomposition holds
HELD = (Held("images, as read and in float64", "16 n d"), Held("matrices over the images", f"{8 * N_MATRICES} n^2"))
"""What the driver holds."""


@dataclass(frozen=True)
class RankerInputs:
    """Images, their tags (a string or list of each, or counts), and the prior of the walk, ``(n,)`` of sum one."""

    data: BlockStore | MemoryBlocks
    tags: Any
    prior: np.ndarray

    @classmethod
    def read(cls, data: BlockStore | MemoryBlocks, tags: Any, prior: ArrayLike | None) -> Self:
        """Return the inputs, with the prior that was given, else the weights of a store's rows, else a uniform one.

        Raises ValueError: images without features, or a prior that is none.
        """
        require(data, Ranker.name, "columns")
        if prior is None and data.has_table("weight"):
            prior = data.row_table("weight")
        return cls(data, tags, normalise_prior(prior, data.n_rows))


class Ranker(Method):
    """A ranking of the images of one query by a random walk on a kernel learnt from looks and tags."""

    name = "semantic-ranker"
    config_type = RankerConfig
    models = {SpectralModel: RankerPredictor()}
    held = HELD
    programs = "grams.neighbours"

    config: RankerConfig
    inputs: RankerInputs
    loop: RankerLoop

    @classmethod
    def read_inputs(cls, config: RankerConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[RankerConfig, RankerInputs]:
        """Return parameters, tags (one string per image), and a prior, which ``extra`` may hold."""
        return config, RankerInputs.read(ctx.data, extra["tags"], extra.get("prior"))

    @classmethod
    def build_loop(cls, config: RankerConfig, inputs: RankerInputs, ctx: RunContext) -> RankerLoop:
        """Return the loop of a fit.

        Raises ValueError: data or tags that do not go together; MemoryBoundExceeded: more images than the driver can hold.
        """
        data = inputs.data
        refuse_beyond(driver_holdings(data.n_rows, data.n_cols), ctx.driver_memory, cls.name, "rank the images of one query at a time")
        if config.n_neighbors >= data.n_rows > 1:
            ctx.warn(f"n_neighbors={config.n_neighbors} exceeds the {data.n_rows - 1} other images")
        return RankerLoop(config, read_images(config, data, inputs.tags), ctx.seed)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Images, tags and pairs; all of it is done by the driver."""
        images, basis = self.loop.images, self.loop.problem.basis
        tags = {"tags": len(np.unique(images.vectors.indices)), "untagged": images.untagged, "pairs": len(images.pairs)}
        steps = {"base": images.n if basis is None else basis.shape[1], "iterations_at_most": self.config.max_iter}
        holdings = holdings_plan(driver_holdings(images.n, images.rows.shape[1]))
        return {**holdings, "images": images.n, **tags, **steps, "tasks_per_pass": 0, "task_bytes": 0}

    def model(self, state: SpectralState, ctx: RunContext) -> SpectralModel:
        """Return the kernel, the scores, and what unseen images are compared with."""
        kernel, images, prior = self.loop.learnt_kernel(state), self.loop.images, self.inputs.prior
        config, factor = self.config, kernel.part.vectors * np.sqrt(kernel.spectrum)
        walk = walk_on_factor(factor, config.diagonal, in_memory=8 * len(factor) ** 2 <= MATRIX_SHARE * ctx.driver_memory)
        scores = walk_scores(walk, prior, config.damping, config.walk_tol)
        ascent = {"objective": state.best_primal, "gap": state.gap, "iterations": state.iteration, "converged": state.converged}
        looks = {"mean_distance": images.mean, "row_scaled": ctx.data.scale.kind == "unit-row", "untagged": images.untagged}
        ranking = {"walk_steps": scores.steps, "walk_error": scores.error, "score_spread": np.ptp(scores.values) * len(scores.values)}
        figures = ascent | {"cap_used": cap_used(self.loop.problem, kernel)} | looks | ranking
        figures = {name: float(value) for name, value in figures.items()}
        arrays = {"scores": scores.values, "prior": prior, "pairs": images.pairs, "alpha": state.best_alpha}
        arrays |= stored_images(images.rows, ctx.data)
        digest = ctx.data.digest if isinstance(ctx.data, BlockStore) else ""
        return SpectralModel(config.model_dump_json(), digest, images.n, kernel.part.vectors, kernel.spectrum, figures, arrays)

    def warnings(self, state: SpectralState, model: SpectralModel, ctx: RunContext) -> list[str]:
        """Return a warning where there is no ranking."""
        return ranking_warnings(model)

    def summary(self, state: SpectralState, model: SpectralModel) -> dict[str, Any]:
        """Return the kernel's certificate, the walk, and top-N precision if the store says which images are relevant."""
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

    def tables(self, state: SpectralState, model: SpectralModel) -> dict[str, list[dict[str, Any]]]:
        """Return the first images, the spectrum, and the precision if it is known."""
        scores, prior, tags = model.arrays["scores"], model.arrays["prior"], self.inputs.tags
        relevant = relevant_rows(self.inputs.data)
        first = []
        for rank, row in enumerate(rank_rows(scores)[:MAX_RANKED], 1):
            text = " ".join(tags[row].split() if isinstance(tags[row], str) else map(str, tags[row]))
            text = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
            entry = {"rank": rank, "row": int(row), "score": float(scores[row]), "prior": float(prior[row]), "tags": text}
            first.append(entry if relevant is None else {**entry, "relevant": int(relevant[row])})
        total = float(model.eigenvalues.sum())
        spectrum = [{"index": k, "eigenvalue": float(lam), "share": float(lam) / total} for k, lam in enumerate(model.eigenvalues, 1)]
        tables = {"ranking": first, "spectrum": spectrum}
        if relevant is None:
            return tables
        averages = [{"ranking": name, "average_precision": average_precision(model.arrays[name], relevant)} for name in ("scores", "prior")]
        return {**tables, "precision": precisions(model, relevant), "average_precision": averages}


def driver_holdings(n: int, d: int) -> tuple[Holding, ...]:
    """Return what the driver holds of the images of a query."""
    return tuple(item.of(n=n, d=d) for item in HELD)


def relevant_rows(data: BlockStore | MemoryBlocks) -> np.ndarray | None:
    """Return which images are relevant if the data's target has two values: those with the greater one. The fit does not look at it."""
    if not data.has_table("y"):
        return None
    values = np.unique(data.target())
    return data.target() == values[1] if len(values) == 2 else None


def ranking_warnings(model: SpectralModel) -> list[str]:
    """Return what a user should know of a ranking: here, that there is none."""
    spread = model.figures["score_spread"]
    if spread > max(MIN_SPREAD, model.n_rows * model.figures["walk_error"]):
        return []
    return [
        f"the scores of all images are equal to {max(spread, MIN_SPREAD):.0e} of their mean, so their order tells nothing: images fall "
        "into groups without ties between them, which keep their share of the prior; a prior, or tags in common, would tell them apart"
    ]


def precisions(model: SpectralModel, relevant: np.ndarray) -> list[dict[str, Any]]:
    """Return rows of top-N precision, with that of the prior."""
    sizes = [size for size in TOP_SIZES if size <= len(relevant)]
    by_scores, by_prior = (top_precision(model.arrays[name], relevant, sizes).tolist() for name in ("scores", "prior"))
    is_uniform, chance = bool(np.ptp(model.arrays["prior"]) == 0), float(relevant.mean())
    rows = zip(sizes, by_scores, by_prior, strict=True)
    return [{"n": size, "precision": a, "prior": None if is_uniform else b, "chance": chance} for size, a, b in rows]
