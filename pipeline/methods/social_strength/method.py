"""Social strength modelling as a method: from views and training pairs to a loop, from its state to a model of ties and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.bounds import sound_gap
from ....kernels.ranking.user_kernels import LANCZOS_STEPS
from ....storage import BlockStore
from ...core.memory import Item, check_memory, driver_plan, total_bytes
from ...grams.given import GivenGrams, GivenKernel
from ...grams.plans import GramPasses
from ...grams.settings import GramSettings
from ...inputs.kernels import given_grams_or_none, gram_settings, resolved_kernels, with_gram_store
from ...inputs.labels import Inputs
from ...method import Method
from ...models.kernel import kernel_names
from ...models.kernel_build import data_scaling, support_rows_of
from ...records.context import RunContext
from ...records.data_set import DataSet
from .block_pass import Normal, lanczos_views, view_passes
from .config import SocialConfig
from .links import Links, read_links
from .loop import LOOKUP_ENTRIES, SocialLoop, SocialState
from .model import SocialModel
from .predict import SocialPredictor
from .score_pass import Scorer, top_lists, top_plan
from .scores import TOP_SIZE, hit_table, pair_scores, scorer_of, train_hits
from .tile_pass import TileLayout, is_similarity, similarity_kernels, view_tiles
from .view_pass import view_pass_bytes


@dataclass(frozen=True)
class SocialInputs:
    """Users (their features, or matrices of their similarities), and the ties that are known."""

    data: DataSet
    links: Links


class Social(Method):
    """The strength of ties between users: weights of several views of them, and a ranking learnt from some pairs."""

    name = "social-strength"
    config_type = SocialConfig
    models = {SocialModel: SocialPredictor()}
    programs = "methods.social_strength.view_pass"

    config: SocialConfig
    inputs: SocialInputs
    loop: SocialLoop

    @classmethod
    def read_inputs(cls, config: SocialConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[SocialConfig, SocialInputs]:
        """Return parameters, users and pairs; ``extra["pairs"]`` has rows u, v, z. The views may be those of a Gram store."""
        if config.kernels == "precomputed" and config.gram_store is None:
            if is_similarity(ctx.data):
                return config, SocialInputs(ctx.data, read_links(extra["pairs"], ctx.data.n_rows))
            raise ValueError(
                "social-strength needs views: kernels over the users (--kernels), a Gram store of matrices (--grams), or a sparse store "
                "whose columns are similarities side by side, one for each user in every view"
            )
        # Views that are not shifted must be positive semi-definite themselves.
        config, inputs = with_gram_store(config, Inputs(ctx.data, np.zeros(0), None), definite=config.normalize == "none")
        return config, SocialInputs(inputs.data, read_links(extra["pairs"], inputs.data.n_rows))

    @classmethod
    def build_loop(cls, config: SocialConfig, inputs: SocialInputs, ctx: RunContext) -> SocialLoop:
        """Return the loop of a fit. Raises MemoryBoundExceeded: more users than the driver can hold the matrix of."""
        data = inputs.data
        if config.kernels == "precomputed" and is_similarity(data):
            return _block_loop(config, similarity_kernels(data, _normalization(config)), inputs, ctx)
        specs = resolved_kernels(config.kernels, data, _normalization(config))
        loop = SocialLoop(config, specs, gram_settings(config, specs, data, ctx), inputs.links, given_grams_or_none(data))
        items = driver_items(loop, data.n_rows, ctx)
        if total_bytes(items) > ctx.driver_memory and _goes_by_blocks(config, data):
            return _block_loop(config, specs, inputs, ctx)
        remedy = "fewer users" if config.pair_kernel == "similarity" else "fewer users, or pair_kernel='similarity', which goes by blocks"
        check_memory(cls.name, items, ctx, remedy)
        return loop

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, tasks of a pass, memory of a task, pairs."""
        loop, config, data, z = self.loop, self.config, self.inputs.data, self.loop.links.z
        if loop.by_blocks:
            tasks, step = _block_tasks(loop, data, self.ctx)
            passes = {**loop.settings.describe(data.n_rows, len(loop.specs)), "tasks_per_pass": tasks, "task_bytes": step}
        else:
            grams = GramPasses(loop.grams.over(self.ctx), loop.specs, loop.settings)
            passes = {**loop.settings.describe(data.n_rows, len(loop.specs)), "tasks_per_pass": len(grams.refs)}
            passes["task_bytes"] = max(self._matrix_steps(grams))
        return {
            **passes,
            **driver_plan(driver_items(loop, data.n_rows, self.ctx)),
            "scores_on": "blocks" if loop.by_blocks else "matrix",
            "users": data.n_rows,
            "pairs": len(z),
            "linked_pairs": int(z.sum()),
            "iterations_at_most": 1 + (config.max_iter if config.n_import is None else min(config.n_import, len(z))),
        }

    def _matrix_steps(self, grams: GramPasses) -> Iterator[int]:
        """Yield the bytes of passes over views whose scores are a matrix here: of the entries, and of views made of them."""
        links = self.loop.links
        yield from (grams.load(), view_pass_bytes(grams.refs, grams.k, grams.settings.block))
        yield grams.entries(max(len(links.z), min(LOOKUP_ENTRIES, links.target.nnz // 2)))
        if self.config.normalize != "none":
            yield grams.sum()

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        return ("Gram blocks of views", "lists of candidates") if self.loop.by_blocks else ("Gram blocks of views",)

    def model(self, state: SocialState, ctx: RunContext) -> SocialModel:
        """Return the model of ties."""
        loop, config = self.loop, self.config
        data: Any = self.inputs.data
        grams, coef = (loop.views if loop.by_blocks else loop.grams)(ctx), loop.coefficients(state, ctx)
        with_coefficient = np.flatnonzero(coef)
        offset, view_weights = 0.0, np.zeros(len(state.theta))
        if config.pair_kernel == "similarity":
            offset = float(coef.sum())
            view_weights = config.view_scale**2 * state.theta * (loop.entries(state, ctx) @ coef)
        # Baselines over the training pairs: sorting by K_u, by equal weights, and by every view.
        views = loop.entries(state, ctx)
        baselines = [_area(loop.links.z, row) for row in np.vstack([state.theta @ views, views.mean(axis=0), views])]
        bounds = {
            "objective": state.objective,
            "gap": sound_gap(state.gap, state.objective),
            "alignment": state.alignment,
            "uniform_alignment": state.uniform,
        }
        steps = {"iterations": float(state.iteration), "newton_steps": float(state.newton_steps)}
        model = SocialModel(
            params_json=config.model_dump_json(),
            kernels_json=json.dumps([spec.to_json() for spec in loop.specs]),
            n_features=int(data.n_cols),
            n_train=data.n_rows,
            precomputed=isinstance(data, GivenGrams) or is_given_kernel(loop.specs),
            **{name: getattr(state, name) for name in ("theta", "factors", "shifts")},
            norms=tuple(grams.normalizations),
            pairs=loop.links.pairs[with_coefficient],
            coef=coef[with_coefficient],
            view_weights=view_weights,
            offset=offset,
            figures={**bounds, **steps, "converged": float(state.stop not in ("max_iter", "stalled"))},
            arrays={"singles": state.singles, "chosen": state.chosen, "baseline_auc": np.array(baselines)},
            **data_scaling(data),
            **self._users(),
            **self._matrices(state, view_weights, ctx),
        )
        return self._with_hits(model, state, ctx) if loop.by_blocks else model

    def _users(self) -> dict[str, Any]:
        """Return the fields of a model that say where its users are: in it, but of a store that goes by blocks there."""
        data: Any = self.inputs.data
        if self.loop.by_blocks and isinstance(data, BlockStore):
            return {"rows": None, "texts": (), "data_url": data.url, "data_digest": data.digest}
        if self.loop.by_blocks and is_given_kernel(self.loop.specs):
            return {"rows": sp.csr_array(data.X), "texts": ()}
        rows, texts = (None, ()) if isinstance(data, GivenGrams) else support_rows_of(data, np.arange(data.n_rows))
        return {"rows": rows, "texts": texts}

    def _matrices(self, state: SocialState, view_weights: np.ndarray, ctx: RunContext) -> dict[str, Any]:
        """Return the weighted sums of the views, ``(n, n)``: by alignment, and as they were learnt; by blocks there are none."""
        if self.loop.by_blocks:
            return {"kernel": np.zeros((0, 0), np.float32), "strengths": np.zeros((0, 0), np.float32)}
        strengths = np.zeros((0, self.inputs.data.n_rows), np.float32)
        if self.config.pair_kernel == "similarity":
            strengths = self.loop.grams(ctx).weighted(state.scaling, view_weights)
        return {"kernel": self.loop.kernel(state, ctx), "strengths": strengths}

    def _with_hits(self, model: SocialModel, state: SocialState, ctx: RunContext) -> SocialModel:
        """Return a model by blocks with what the tables tell of the training links: one pass over all scores."""
        scorers = scorer_of(model), scorer_of(model, direct=True)
        weights, offsets = (np.concatenate([getattr(one, name) for one in scorers]) for name in ("weights", "offsets"))
        both = Scorer(scorers[0].normal, scorers[0].factors, model.shifts, weights, offsets)
        lists = top_lists(ctx, self.loop.specs, both, min(TOP_SIZE, model.n_train - 1))
        hits = train_hits(lists, self.loop.links, model.n_train)
        decision = model.offset + model.view_weights @ state.entries
        figures = {**model.figures, "auc": _area(self.loop.links.z, decision)}
        return replace(model, arrays={**model.arrays, "hits": hits}, figures=figures)

    def summary(self, state: SocialState, model: SocialModel) -> dict[str, Any]:
        """Return certificate, alignments, and the area under the curve of the learnt ranking over the training pairs."""
        scope = "the training pairs, for these weights of the views"
        certificate = {"objective": float(state.objective), "gap": float(sound_gap(state.gap, state.objective)), "certified_over": scope}
        alignment = {"alignment": float(state.alignment), "uniform_alignment": float(state.uniform)}
        views = {"n_selected": int(np.count_nonzero(state.theta)), "n_kernels": len(state.theta)}
        area = model.figures["auc"] if model.by_blocks else learnt_area(model, self.loop.links)
        pairs = {"pairs": len(self.loop.links.z), "pairs_kept": len(model.coef), "auc": area}
        return {**certificate, **alignment, **views, **pairs, "stop": state.stop}

    def tables(self, state: SocialState, model: SocialModel) -> dict[str, list[dict[str, Any]]]:
        """Return views by weight, the learnt ranking of the training pairs with its baselines, hits among the first m."""
        names, links = [str(spec) for spec in self.loop.specs], self.loop.links
        area = model.figures["auc"] if model.by_blocks else learnt_area(model, links)
        areas = [area, *model.arrays["baseline_auc"].tolist()]
        return {
            **self.model_tables(model),
            "rankings": [{"ranking": name, "auc": area} for name, area in zip(["learnt", "direct", "uniform", *names], areas, strict=True)],
            "hits": hit_table(model, links),
        }

    @classmethod
    def model_tables(cls, model: SocialModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return views by weight."""
        names, shares, singles = kernel_names(model), model.theta / model.theta.sum(), model.arrays["singles"]
        order = np.lexsort((np.arange(len(names)), -shares))
        return {"kernels": [{"kernel": names[q], "weight": float(shares[q]), "alignment": float(singles[q])} for q in order]}


def driver_items(loop: SocialLoop, n: int, ctx: RunContext) -> tuple[Item, ...]:
    """Return what the driver holds: scores of all pairs of users, views in memory, the kernel of the pairs."""
    matrices, pairs, k = 2 if loop.config.pair_kernel == "similarity" else 1, len(loop.links.z), len(loop.specs)
    if loop.by_blocks:
        together = lanczos_views(n, k, ctx.driver_memory)
        places = pairs + loop.links.target.nnz // 2
        return (
            ("row factors, sums and diagonals of the views, and their copies", 200 * k * n),
            ("vectors of Lanczos steps", 8 * LANCZOS_STEPS * n * together),
            ("views at pairs and links, and vectors of the solver", 48 * k * places + 300 * places),
            ("first candidates of all users", 64 * TOP_SIZE * n),
        )
    return (
        ("scores of all pairs of users", 4 * matrices * n * n),
        loop.settings.items(n, k, ctx.driver_memory)[0],
        ("sum of the views, and a copy", 8 * n * n),
        ("views at the pairs", 16 * k * pairs),
    )


def is_given_kernel(specs: Sequence[Any]) -> bool:
    """Return whether views are known by their entries alone."""
    return isinstance(specs[0], GivenKernel)


def _normalization(config: SocialConfig) -> str:
    return "cosine" if config.normalize == "cosine" else "none"


def _goes_by_blocks(config: SocialConfig, data: object) -> bool:
    """Return whether a fit can do without matrices of all users: the scores are sums of views, which are computed from rows."""
    return config.pair_kernel == "similarity" and config.grams in ("auto", "recompute") and not isinstance(data, GivenGrams)


def _block_loop(config: SocialConfig, specs: Sequence[Any], inputs: SocialInputs, ctx: RunContext) -> SocialLoop:
    """Return the loop of a fit without matrices of all users. Raises ValueError: what asks for such matrices; MemoryBoundExceeded."""
    n = inputs.data.n_rows
    if not _goes_by_blocks(config, inputs.data):
        raise ValueError(
            f"pair_kernel={config.pair_kernel!r}, grams={config.grams!r}: sparse similarities are read block by block, which goes with "
            "pair_kernel='similarity' and grams='auto'"
        )
    scale = getattr(inputs.data, "scale", None)
    if scale is not None and is_given_kernel(specs) and scale.kind != "none":
        raise ValueError(f"{inputs.data.url}: similarities are scaled ({scale.kind!r}); ingest them as they are")
    reason = f"computed again in every pass: the scores of {n} users have no room in this process"
    loop = SocialLoop(
        config, specs, GramSettings("recompute", TileLayout.of(inputs.data, len(specs)).edge, None, reason), inputs.links, by_blocks=True
    )
    check_memory(Social.name, driver_items(loop, n, ctx), ctx, "fewer users, pairs or views")
    return loop


def _block_tasks(loop: SocialLoop, data: Any, ctx: RunContext) -> tuple[int, int]:
    """Return the tasks of a pass over blocks, and the bytes of the largest step of any pass."""
    k, places = len(loop.specs), len(loop.links.z) + loop.links.target.nnz // 2
    searched = loop.config.normalize != "none" or is_given_kernel(loop.specs)
    # At the end lists by two rows of weights, those learnt and those of the alignments, over the views that have one.
    both = Scorer(Normal(), np.zeros((k, 0)), np.zeros(k), np.zeros((2, k)), np.zeros(2))
    passes = [
        *(top_plan(data, loop.specs[:used], both, min(TOP_SIZE, data.n_rows - 1)) for used in range(1, k + 1)),
        *view_passes(data, loop.specs, places, ctx.driver_memory, searched=searched),
    ]
    return len(view_tiles(data, loop.specs)), max(work.memory_bound for work in passes)


def _area(z: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(z, scores))


def learnt_area(model: SocialModel, links: Links) -> float:
    """Return the area under the curve of the learnt ranking over the training pairs."""
    return _area(links.z, pair_scores(model, links.pairs))
