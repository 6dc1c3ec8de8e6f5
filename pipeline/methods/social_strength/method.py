"""Social strength modelling as a method: from views and training pairs to a loop, from its state to a model of ties and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...grams.given import GivenGrams
from ...grams.memory import BLOCKS, IN_PLACE, PACKED
from ...grams.sources import row_pairs
from ...inputs.kernels import given_grams_or_none, gram_settings, resolved_kernels, with_gram_store
from ...inputs.labels import Inputs
from ...method import Method
from ...models.kernel_build import data_scaling, support_rows_of
from ...records.context import RunContext
from ...records.data_set import DataSet
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from .config import SocialConfig
from .links import Links, read_links
from .loop import SocialLoop, SocialState
from .model import SocialModel
from .predict import SocialPredictor
from .scores import hit_table, pair_scores
from .view_pass import view_bytes

SCORES = Held("scores of all pairs of users", "4 M n^2", "M = 2 for `pair_kernel: similarity`, else 1")
SUM = Held("sum of the views, and a copy", "8 n^2")
AT_PAIRS = Held("views at the pairs", "16 k p", "p pairs")


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
    held = (SCORES, PACKED, IN_PLACE, BLOCKS, SUM, AT_PAIRS)
    programs = "methods.social_strength.view_pass"

    config: SocialConfig
    inputs: SocialInputs
    loop: SocialLoop

    @classmethod
    def read_inputs(cls, config: SocialConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[SocialConfig, SocialInputs]:
        """Return parameters, users and pairs; ``extra["pairs"]`` has rows u, v, z. The views may be those of a Gram store."""
        if config.kernels == "precomputed" and config.gram_store is None:
            raise ValueError("social-strength needs views: kernels over the users (--kernels), or a Gram store of matrices (--grams)")
        # Views that are not shifted must be positive semi-definite themselves.
        config, inputs = with_gram_store(config, Inputs(ctx.data, np.zeros(0), None), definite=config.normalize == "none")
        return config, SocialInputs(inputs.data, read_links(extra["pairs"], inputs.data.n_rows))

    @classmethod
    def build_loop(cls, config: SocialConfig, inputs: SocialInputs, ctx: RunContext) -> SocialLoop:
        """Return the loop of a fit. Raises MemoryBoundExceeded: more users than the driver can hold the matrix of."""
        data = inputs.data
        specs = resolved_kernels(config.kernels, data, "cosine" if config.normalize == "cosine" else "none")
        loop = SocialLoop(config, specs, gram_settings(config, specs, data, ctx), inputs.links, given_grams_or_none(data))
        refuse_beyond(driver_holdings(loop, data.n_rows, ctx), ctx.driver_memory, cls.name, "fewer users")
        return loop

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, tasks of a pass, memory of a task, pairs."""
        loop, config, data, z = self.loop, self.config, self.inputs.data, self.loop.links.z
        refs = row_pairs(data, loop.specs, loop.settings.block)
        return {
            **loop.settings.describe(data.n_rows, len(loop.specs)),
            **holdings_plan(driver_holdings(loop, data.n_rows, self.ctx)),
            "users": data.n_rows,
            "pairs": len(z),
            "linked_pairs": int(z.sum()),
            "iterations_at_most": 1 + (config.max_iter if config.n_import is None else min(config.n_import, len(z))),
            "tasks_per_pass": len(refs),
            "task_bytes": int(max(view_bytes(ref) for ref in refs)),
        }

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        return ("Gram blocks of views",)

    def model(self, state: SocialState, ctx: RunContext) -> SocialModel:
        """Return the model of ties."""
        loop, config = self.loop, self.config
        data: Any = self.inputs.data
        grams, coef = loop.grams(ctx), loop.coefficients(state, ctx)
        is_given = isinstance(data, GivenGrams)
        rows, texts = (None, ()) if is_given else support_rows_of(data, np.arange(data.n_rows))
        with_coefficient = np.flatnonzero(coef)
        offset, view_weights = 0.0, np.zeros(len(state.theta))
        strengths = np.zeros((0, data.n_rows), np.float32)
        if config.pair_kernel == "similarity":
            offset = float(coef.sum())
            view_weights = config.view_scale**2 * state.theta * (loop.entries(state, ctx) @ coef)
            strengths = grams.weighted(state.scaling, view_weights)
        # Baselines over the training pairs: sorting by K_u, by equal weights, and by every view.
        views = loop.entries(state, ctx)
        baselines = [_area(loop.links.z, row) for row in np.vstack([state.theta @ views, views.mean(axis=0), views])]
        bounds = {"objective": state.objective, "gap": state.gap, "alignment": state.alignment, "uniform_alignment": state.uniform}
        steps = {"iterations": float(state.iteration), "newton_steps": float(state.newton_steps)}
        return SocialModel(
            params_json=config.model_dump_json(),
            kernels_json=json.dumps([spec.to_json() for spec in loop.specs]),
            n_features=int(data.n_cols),
            n_train=data.n_rows,
            precomputed=is_given,
            **{name: getattr(state, name) for name in ("theta", "factors", "shifts")},
            norms=tuple(grams.normalizations),
            rows=rows,
            texts=texts,
            pairs=loop.links.pairs[with_coefficient],
            coef=coef[with_coefficient],
            view_weights=view_weights,
            offset=offset,
            kernel=loop.kernel(state, ctx),
            strengths=strengths,
            figures={**bounds, **steps, "converged": float(state.stop not in ("max_iter", "stalled"))},
            arrays={"singles": state.singles, "chosen": state.chosen, "baseline_auc": np.array(baselines)},
            **data_scaling(data),
        )

    def summary(self, state: SocialState, model: SocialModel) -> dict[str, Any]:
        """Return certificate, alignments, and the area under the curve of the learnt ranking over the training pairs."""
        scope = "the training pairs, for these weights of the views"
        certificate = {"objective": float(state.objective), "gap": float(state.gap), "certified_over": scope}
        alignment = {"alignment": float(state.alignment), "uniform_alignment": float(state.uniform)}
        views = {"n_selected": int(np.count_nonzero(state.theta)), "n_kernels": len(state.theta)}
        pairs = {"pairs": len(self.loop.links.z), "pairs_kept": len(model.coef), "auc": learnt_area(model, self.loop.links)}
        return {**certificate, **alignment, **views, **pairs, "stop": state.stop}

    def tables(self, state: SocialState, model: SocialModel) -> dict[str, list[dict[str, Any]]]:
        """Return views by weight, the learnt ranking of the training pairs with its baselines, hits among the first m."""
        names, links = [str(spec) for spec in self.loop.specs], self.loop.links
        shares, singles = model.theta / model.theta.sum(), model.arrays["singles"]
        order = np.lexsort((np.arange(len(names)), -shares))
        areas = [learnt_area(model, links), *model.arrays["baseline_auc"].tolist()]
        return {
            "kernels": [{"kernel": names[q], "weight": float(shares[q]), "alignment": float(singles[q])} for q in order],
            "rankings": [{"ranking": name, "auc": area} for name, area in zip(["learnt", "direct", "uniform", *names], areas, strict=True)],
            "hits": hit_table(model, links),
        }


def driver_holdings(loop: SocialLoop, n: int, ctx: RunContext) -> tuple[Holding, ...]:
    """Return what the driver holds: scores of all pairs of users, views in memory, the kernel of the pairs."""
    matrices, pairs, k = 2 if loop.config.pair_kernel == "similarity" else 1, len(loop.links.z), len(loop.specs)
    return (SCORES.of(n=n, M=matrices), loop.settings.held(n, k, ctx.driver_memory)[0], SUM.of(n=n), AT_PAIRS.of(k=k, p=pairs))


def _area(z: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(z, scores))


def learnt_area(model: SocialModel, links: Links) -> float:
    """Return the area under the curve of the learnt ranking over the training pairs."""
    return _area(links.z, pair_scores(model, links.pairs))
