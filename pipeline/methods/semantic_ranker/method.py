"""Re-ranking of images as a method of the runner: from a store and tags to a loop, from its state to scores and tables; unseen images."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.blocks import gram_block
from ....kernels.grams.spec import KernelSpec
from ....kernels.ranking.random_walk import Walk, average_precision, normalised_prior, ranked, top_precision, walk_on_factor, walk_scores
from ....kernels.ranking.warp import Warp, warp_of
from ....kernels.spectral.dual_ascent import SpectralState
from ....kernels.spectral.problem import cap_used
from ....storage import BlockStore
from ...grams.sources import READ
from ...grams.weighted_sum import MATRIX_SHARE
from ...loops.prepared import Prepared
from ...models.kernel_predict import spans
from ...models.spectral import SpectralModel
from ...passes.blocks import scale_of
from ...passes.scaling import inverse_row_norms, scaled
from ...records.context import RunContext
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from ...records.scale import FeatureScale
from .config import RankerConfig
from .loop import RankerLoop, images_of

SHOWN = 50
"""Images in the table of the ranking."""

SIZES = (3, 5, 10, 20, 50, 100)
"""Lengths of the top lists that are judged where the store tells which images are relevant."""

UNSEEN = 1024
"""Unseen images that are scored at a time."""

SPREAD = 1e-9
"""Scores whose range is below this share of their mean are equal."""

MATRICES = 4
"""Matrices of all images that a dense eigendecomposition holds."""

HELD = (Held("images, as read and in float64", "16 n d"), Held("matrices over the images", f"{8 * MATRICES} n^2"))
"""What the driver holds."""


def build_loop(config: RankerConfig, data: Any, tags: Any, ctx: RunContext, warn: Callable[[str], None]) -> RankerLoop:
    """Return the loop of a fit.

    Raises
    ------
    ValueError
        Data or tags that do not go together.
    gramplane.cluster.MemoryBoundExceeded
        More images than the driver can hold.
    """
    held = driver_held(data.n_rows, data.n_cols)
    refuse_beyond(held, ctx.driver_memory, "semantic-ranker", "rank the images of one query at a time")
    if config.n_neighbors >= data.n_rows > 1:
        warn(f"n_neighbors={config.n_neighbors} exceeds the {data.n_rows - 1} other images")
    return RankerLoop(config, images_of(config, data, tags), ctx.seed)


def driver_held(n: int, d: int) -> tuple[Holding, ...]:
    """Return what the driver holds of the images of a query."""
    return tuple(item.of(n=n, d=d) for item in HELD)


def _refuse(message: str) -> None:
    raise ValueError(message)


def prepare(config: RankerConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra["tags"]`` has one string per image, ``extra["prior"]`` may have a number."""
    loop = build_loop(config, ctx.data, extra["tags"], ctx, _refuse)
    prior = prior_of(ctx.data, extra.get("prior"))
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, loop, state, prior, ctx),
        summary=lambda state, model: summary(loop, state, model, relevant_rows(ctx.data)),
        tables=lambda state, model: tables(model, extra["tags"], relevant_rows(ctx.data)),
        plan=plan_of(config, loop),
    )


def prior_of(data: Any, prior: Any) -> np.ndarray:
    """Return the prior of the walk, ``(n,)``: what is given, else the weights of a store's rows, else uniform."""
    if prior is None and data.has_table("weight"):
        prior = data.row_table("weight")
    return normalised_prior(prior, data.n_rows)


def relevant_rows(data: Any) -> np.ndarray | None:
    """Return which images are relevant where the data's target has two values: those with the greater one. The fit does not look at it."""
    if not data.has_table("y"):
        return None
    values = np.unique(data.target())
    return data.target() == values[1] if len(values) == 2 else None


def plan_of(config: RankerConfig, loop: RankerLoop) -> dict[str, Any]:
    """Return what the run will do."""
    images = loop.images
    return {
        **holdings_plan(driver_held(images.n, images.rows.shape[1])),
        "images": images.n,
        "tags": len(np.unique(images.vectors.indices)),
        "untagged": images.untagged,
        "pairs": len(images.pairs),
        "base": images.n if loop.problem.basis is None else loop.problem.basis.shape[1],
        "iterations_at_most": config.max_iter,
        "tasks_per_pass": 0,
        "task_bytes": 0,
    }


def walk_of(factor: np.ndarray, config: RankerConfig, driver_memory: int) -> Walk:
    """Return the walk on a kernel known by its factor; its matrix is held where it fits."""
    return walk_on_factor(factor, config.diagonal, held=8 * len(factor) ** 2 <= MATRIX_SHARE * driver_memory)


def model_of(config: RankerConfig, loop: RankerLoop, state: SpectralState, prior: np.ndarray, ctx: RunContext) -> SpectralModel:
    """Return the model: the kernel, the scores, and what unseen images are compared with."""
    found, images = loop.learnt(state), loop.images
    factor = found.part.vectors * np.sqrt(found.spectrum)
    scores = walk_scores(walk_of(factor, config, ctx.driver_memory), prior, config.damping, config.walk_tol)
    figures = {
        "objective": float(state.best_primal),
        "gap": float(state.gap),
        "iterations": float(state.iteration),
        "converged": float(state.converged),
        "cap_used": cap_used(loop.problem, found),
        "mean_distance": images.mean,
        "row_scaled": float(ctx.data.scale.kind == "unit-row"),
        "untagged": float(images.untagged),
        "walk_steps": float(scores.steps),
        "walk_error": scores.error,
        "score_spread": float(np.ptp(scores.values) * len(scores.values)),
    }
    arrays = {
        "scores": scores.values,
        "prior": prior,
        "pairs": images.pairs,
        "alpha": state.best_alpha,
        **stored_rows(images.rows, ctx.data),
    }
    digest = ctx.data.digest if isinstance(ctx.data, BlockStore) else ""
    return SpectralModel(config.model_dump_json(), digest, images.n, found.part.vectors, found.spectrum, figures, arrays)


def remarks_of(model: SpectralModel) -> list[str]:
    """Return what a user should know of a ranking: here, that there is none."""
    spread = model.figures["score_spread"]
    if spread > max(SPREAD, model.n_rows * model.figures["walk_error"]):
        return []
    return [
        f"the scores of all images are equal to {max(spread, SPREAD):.0e} of their mean, so their order tells nothing: images fall into "
        "groups without ties between them, which keep their share of the prior; a prior, or tags in common, would tell them apart"
    ]


def stored_rows(rows: Any, data: Any) -> dict[str, np.ndarray]:
    """Return rows, and how those to come are scaled, as arrays that a model holds."""
    scale = scale_of(data, np.arange(data.n_cols))
    held = {"scale_factor": scale.factor, "scale_shift": scale.shift}
    if sp.issparse(rows):
        held |= {
            "images_data": rows.data,
            "images_indices": rows.indices,
            "images_indptr": rows.indptr,
            "images_shape": np.array(rows.shape),
        }
    else:
        held |= {"images": rows}
    return {name: array for name, array in held.items() if array is not None}


def model_rows(model: SpectralModel) -> Any:
    """Return the images of a model as they were."""
    held = model.arrays
    if "images" in held:
        return held["images"]
    shape = tuple(held["images_shape"].tolist())
    return sp.csr_array((held["images_data"], held["images_indices"], held["images_indptr"]), shape=shape)


def knows_images(model: SpectralModel) -> bool:
    """Return whether a model is a ranking of images: unseen ones can be compared with those it holds."""
    return "images" in model.arrays or "images_data" in model.arrays


def read_rows(model: SpectralModel, raw: Any) -> Any:
    """Return features ``(m, d)`` as the images of a model are: scaled, float64, dense or CSR."""
    scale = FeatureScale(model.arrays.get("scale_factor"), model.arrays.get("scale_shift"))
    given = raw.astype(np.float64)
    if sp.issparse(given):
        # A shift leaves no zeros to leave out.
        given = sp.csc_array(given) if scale.shift is None else given.toarray()
    found: Any = scaled(given, scale, inverse_row_norms(given) if model.figures["row_scaled"] else None)
    if "images" not in model.arrays:
        return sp.csr_array(found)
    return found.toarray() if sp.issparse(found) else found


# -- unseen images -----------------------------------------------------------------------------------------------------------


class Unseen:
    r"""A fitted ranking on images it has not seen.

    Their kernel with the fitted images is a Gaussian warped by what was learnt. The score of an image x is one step of the walk from x: the
    mean score of where it leads,

    .. math::

        r(x) = \lambda \sum_j \frac{w(x, x_j)}{\sum_i w(x, x_i)} r_j + \frac{1 - \lambda}{n}, \qquad w = \max(\tilde k, 0).

    (A step towards x, from the fitted images, would favour images in dense places, whatever the scores there.)

    Parameters
    ----------
    model
        Of a ranking.
    """

    def __init__(self, model: SpectralModel) -> None:
        self.model, self.rows = model, model_rows(model)
        self.config = RankerConfig.model_validate(json.loads(model.config_json))
        self.spec = KernelSpec("rbf", (("gamma", self.config.gamma / model.figures["mean_distance"]),))
        self._warp: Warp | None = None

    def given(self, left: Any, right: Any = None) -> np.ndarray:
        """Return the input kernel between rows, ``(a, b)``; with the fitted images by default."""
        return gram_block([self.spec], left, self.rows if right is None else right, dtype=np.float64)[0]

    @property
    def warp(self) -> Warp:
        """The warp, found when it is first asked for: one factorisation of an ``(n, n)`` matrix."""
        if self._warp is None:
            self._warp = warp_of(self.given(self.rows), self.model.factor, self.config.warp)
        return self._warp

    def kernel(self, left: Any, right: Any = None) -> np.ndarray:
        """Return the warped kernel between rows, ``(a, b)``; with the fitted images by default."""
        near = self.given(left)
        if right is None:
            return self.warp.block(near, near, self.given(self.rows))
        return self.warp.block(self.given(left, right), near, self.given(right))

    def scores(self, rows: Any) -> np.ndarray:
        """Return the scores of images, ``(m,)``; an image that is like no other gets the mean score."""
        scores, damping = self.model.arrays["scores"], self.config.damping
        out = np.empty(rows.shape[0])
        for lo, hi in spans(len(out), UNSEEN):
            weights = np.maximum(self.kernel(rows[lo:hi]), 0.0)
            # Row by row, where a matrix product may round a row differently in other company.
            total, found = weights.sum(axis=1), (weights * scores).sum(axis=1)
            out[lo:hi] = np.divide(found, total, out=np.full(hi - lo, scores.mean()), where=total > 0)
        return damping * out + (1.0 - damping) / self.model.n_rows


def decide_images(model: SpectralModel, ctx: RunContext) -> np.ndarray:
    """Return ``(n, 1)`` scores of a store's images: those of the fit on its own store, else those of unseen images.

    Raises
    ------
    ValueError
        Another number of features.
    """
    data = ctx.data
    if model.data_digest and data.digest == model.data_digest:
        return model.predictions()
    width = model_rows(model).shape[1]
    if data.n_cols != width:
        raise ValueError(
            f"{data.url} has {data.n_cols} features, the model was trained on {width}; ingest the file with --like TRAINING_STORE"
        )
    parts = [data.columns(np.arange(width), span) for span in spans(data.n_rows, READ)]
    unseen = Unseen(model)
    return np.concatenate([unseen.scores(read_rows(model, part)) for part in parts])[:, None]


# -- report ------------------------------------------------------------------------------------------------------------------


def summary(loop: RankerLoop, state: SpectralState, model: SpectralModel, relevant: np.ndarray | None) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    found: dict[str, Any] = {}
    if relevant is not None:
        found["precision"] = {str(row["n"]): row["precision"] for row in precisions(model, relevant)}
    if told := remarks_of(model):
        found["remark"] = " ".join(told)
    return {
        "objective": model.figures["objective"],
        "gap": model.figures["gap"],
        "certified_over": "the kernel, before the random walk",
        "images": model.n_rows,
        "pairs": len(loop.images.pairs),
        "active_pairs": int(np.count_nonzero(model.arrays["alpha"])),
        "untagged": loop.images.untagged,
        "rank": len(model.eigenvalues),
        "cap_used": model.figures["cap_used"],
        "walk_steps": int(model.figures["walk_steps"]),
        "score_spread": model.figures["score_spread"],
        "top": [int(row) for row in ranked(model.arrays["scores"])[:5]],
        "stop": state.stop,
        **found,
    }


def precisions(model: SpectralModel, relevant: np.ndarray) -> list[dict[str, Any]]:
    """Return rows of top-N precision, beside that of the prior."""
    sizes = [size for size in SIZES if size <= len(relevant)]
    scores, prior = model.arrays["scores"], model.arrays["prior"]
    own, before = (top_precision(values, relevant, sizes) for values in (scores, prior))
    uniform = bool(np.ptp(prior) == 0)
    chance = float(relevant.mean())
    return [
        {"n": size, "precision": float(a), "prior": None if uniform else float(b), "chance": chance}
        for size, a, b in zip(sizes, own, before, strict=True)
    ]


def tables(model: SpectralModel, tags: Sequence[str], relevant: np.ndarray | None) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: the first images, the spectrum, and the precision where it is known."""
    scores, prior = model.arrays["scores"], model.arrays["prior"]
    first = [
        {"rank": place, "row": int(row), "score": float(scores[row]), "prior": float(prior[row]), "tags": _line(tags[row])}
        | ({} if relevant is None else {"relevant": int(relevant[row])})
        for place, row in enumerate(ranked(scores)[:SHOWN], 1)
    ]
    total = float(model.eigenvalues.sum())
    spectrum = [{"index": k, "eigenvalue": float(lam), "share": float(lam) / total} for k, lam in enumerate(model.eigenvalues, 1)]
    found = {"ranking": first, "spectrum": spectrum}
    return (
        found if relevant is None else {**found, "precision": precisions(model, relevant), "average_precision": _average(model, relevant)}
    )


def _average(model: SpectralModel, relevant: np.ndarray) -> list[dict[str, Any]]:
    return [{"ranking": name, "average_precision": average_precision(model.arrays[name], relevant)} for name in ("scores", "prior")]


def _line(tags: Any, width: int = 80) -> str:
    text = " ".join(tags.split()) if isinstance(tags, str) else " ".join(map(str, tags))
    return text if len(text) <= width else f"{text[: width - 3]}..."
