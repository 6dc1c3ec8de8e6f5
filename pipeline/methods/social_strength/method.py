"""Social strength modelling as a method of the runner: training pairs in, a model of ties, tables with its baselines out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....storage import DataError
from ...grams.given import GivenGrams
from ...grams.memory import BLOCKS, IN_PLACE, PACKED
from ...grams.sources import pair_bytes, row_pairs
from ...inputs.kernels import given_grams_or_none, gram_settings, resolved_kernels, with_gram_store
from ...inputs.labels import Inputs
from ...loops.prepared import Prepared
from ...models.kernel_build import data_scaling, support_rows_of
from ...records.context import RunContext
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from .config import SocialConfig
from .loop import Links, SocialLoop, SocialState
from .model import SocialModel
from .scores import hit_table, pair_scores

# -- training pairs ----------------------------------------------------------------------------------------------------------------


def checked_links(table: Any, n: int, target: Any = None) -> Links:
    """Return training pairs and links, checked.

    Parameters
    ----------
    table
        ``(m, 3)`` rows u, v, z.
    n
        Number of users.
    target
        ``(n, n)`` links that views are aligned with, dense or sparse; those of the pairs by default.

    Raises
    ------
    DataError
        A pair that is none, by its number, or labels that are all equal.
    """
    rows = np.asarray(table, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1:] != (3,) or not len(rows):
        raise DataError(f"pairs have shape {rows.shape}; they must be (n_pairs, 3): two users and z, at least one pair")

    def refuse(wrong: np.ndarray, told: Callable[[np.ndarray], str]) -> None:
        if wrong.any():
            i = int(np.argmax(wrong))
            raise DataError(f"pair {i}: {told(rows[i])}")

    ends, z = rows[:, :2], rows[:, 2]
    refuse(np.isnan(rows.sum(axis=1)) | np.isinf(rows.sum(axis=1)), lambda row: f"{row.tolist()} is not made of finite numbers")
    outside = ((ends < 0) | (ends >= n) | (ends != np.floor(ends))).any(axis=1)
    refuse(outside, lambda row: f"user {_plain(row[:2][(row[:2] < 0) | (row[:2] >= n) | (row[:2] % 1 != 0)][0])}{_range(n)}")
    refuse(ends[:, 0] == ends[:, 1], lambda row: f"user {int(row[0])} is paired with himself; a pair has two users")
    refuse((z != 0) & (z != 1), lambda row: f"z={_plain(row[2])}: must be 1 for a link or 0 for none")
    if np.all(z == z[0]):
        raise DataError(f"all {len(z)} pairs have z={int(z[0])}; linked and unlinked pairs are needed")
    pairs, linked = np.ascontiguousarray(ends.astype(np.int64)), z == 1
    links = _links_of(pairs[linked], n) if target is None else _target(target, n)
    known = np.zeros(n, dtype=bool)
    known[pairs] = True
    known[links.indices] = True
    return Links(pairs, z.astype(np.int64), links, known)


def _plain(value: float) -> str:
    return f"{value:g}"


def _range(n: int) -> str:
    return f": must be a row number from 0 to {n - 1}"


def _links_of(pairs: np.ndarray, n: int) -> sp.csr_array:
    both = np.concatenate([pairs, pairs[:, ::-1]]).T
    found = sp.csr_array((np.ones(both.shape[1]), tuple(both)), shape=(n, n))
    found.sum_duplicates()
    found.data[:] = 1.0
    return found


def _target(target: Any, n: int) -> sp.csr_array:
    given = sp.csr_array(target, dtype=np.float64)
    if given.shape != (n, n) or not np.isfinite(given.data).all():
        raise ValueError(f"target has shape {given.shape}; it must be finite and (n_users, n_users), here {n} users")
    both = sp.csr_array(0.5 * (given + given.T))
    both = sp.csr_array(both - sp.diags_array(both.diagonal()))
    both.eliminate_zeros()
    return both


# -- loop ----------------------------------------------------------------------------------------------------------------------


def build_loop(config: SocialConfig, data: Any, links: Links, ctx: RunContext) -> SocialLoop:
    """Return the loop of a fit.

    Raises
    ------
    gramplane.cluster.MemoryBoundExceeded
        More users than the driver can hold the matrix of.
    """
    specs = resolved_kernels(config.kernels, data, "cosine" if config.normalize == "cosine" else "none")
    loop = SocialLoop(config, specs, gram_settings(config, specs, data, ctx), links, given_grams_or_none(data))
    refuse_beyond(driver_held(loop, data.n_rows, ctx), ctx.driver_memory, "social-strength", "fewer users")
    return loop


SCORES = Held("scores of all pairs of users", "4 M n^2", "M = 2 for `pair_kernel: similarity`, else 1")
SUM = Held("sum of the views, and a copy", "8 n^2")
AT_PAIRS = Held("views at the pairs", "16 k p", "p pairs")

HELD = (SCORES, PACKED, IN_PLACE, BLOCKS, SUM, AT_PAIRS)
"""What the driver holds."""


def driver_held(loop: SocialLoop, n: int, ctx: RunContext) -> tuple[Holding, ...]:
    """Return what the driver holds: scores of all pairs of users, views in memory, the kernel of the pairs."""
    matrices, pairs, k = 2 if loop.config.pair_kernel == "similarity" else 1, len(loop.links.z), len(loop.specs)
    return (
        SCORES.of(n=n, M=matrices),
        loop.settings.held(n, k, ctx.driver_memory)[0],
        SUM.of(n=n),
        AT_PAIRS.of(k=k, p=pairs),
    )


def prepare(config: SocialConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``, the users; ``extra["pairs"]`` holds rows u, v, z."""
    config, data = _views(config, ctx)
    links = checked_links(extra["pairs"], data.n_rows)
    loop = build_loop(config, data, links, ctx)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, loop, state, ctx),
        summary=lambda state, model: summary(state, model, loop),
        tables=lambda state, model: tables(model, loop),
        plan=plan_of(config, loop, ctx),
    )


def _views(config: SocialConfig, ctx: RunContext) -> tuple[SocialConfig, Any]:
    """Return parameters and data of a run whose views may be those of a Gram store; only unshifted ones must be definite."""
    if config.kernels == "precomputed" and config.gram_store is None:
        raise ValueError("social-strength needs views: kernels over the users (--kernels), or a Gram store of matrices (--grams)")
    config, inputs = with_gram_store(config, Inputs(ctx.data, np.zeros(0), None), definite=config.normalize == "none")
    return config, inputs.data


def plan_of(config: SocialConfig, loop: SocialLoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: place of the matrices, tasks of a pass, memory of a task, pairs."""
    data = ctx.data if loop.data is None else loop.data
    refs = row_pairs(data, loop.specs, loop.settings.block)
    z = loop.links.z
    return {
        **loop.settings.describe(data.n_rows, len(loop.specs)),
        **holdings_plan(driver_held(loop, data.n_rows, ctx)),
        "users": data.n_rows,
        "pairs": len(z),
        "linked_pairs": int(z.sum()),
        "iterations_at_most": 1 + (config.max_iter if config.n_import is None else min(config.n_import, len(z))),
        "tasks_per_pass": len(refs),
        "task_bytes": int(max(pair_bytes(ref) + 6 * ref.nbytes for ref in refs)),
    }


# -- model ---------------------------------------------------------------------------------------------------------------------


def model_of(config: SocialConfig, loop: SocialLoop, state: SocialState, ctx: RunContext) -> SocialModel:
    """Return the model of a finished fit."""
    data = ctx.data if loop.data is None else loop.data
    grams, coef = loop.grams(ctx), loop.coefficients(state, ctx)
    given = isinstance(data, GivenGrams)
    rows, texts = (None, ()) if given else support_rows_of(data, np.arange(data.n_rows))
    kept = np.flatnonzero(coef)
    offset, view_weights = 0.0, np.zeros(len(state.theta))
    strengths = np.zeros((0, data.n_rows), np.float32)
    if config.pair_kernel == "similarity":
        offset = float(coef.sum())
        view_weights = config.view_scale**2 * state.theta * (loop.entries(state, ctx) @ coef)
        strengths = grams.weighted(state.scaling, view_weights)
    return SocialModel(
        params_json=config.model_dump_json(),
        kernels_json=json.dumps([spec.to_json() for spec in loop.specs]),
        n_features=int(data.n_cols),
        n_train=data.n_rows,
        precomputed=given,
        theta=state.theta,
        factors=state.factors,
        shifts=state.shifts,
        norms=tuple(grams.normalizations),
        rows=rows,
        texts=texts,
        pairs=loop.links.pairs[kept],
        coef=coef[kept],
        view_weights=view_weights,
        offset=offset,
        kernel=loop.kernel(state, ctx),
        strengths=strengths,
        figures=_figures(state),
        arrays={"singles": state.singles, "chosen": state.chosen, "baseline_auc": _baselines(loop, state, ctx)},
        **data_scaling(data),
    )


def _figures(state: SocialState) -> dict[str, float]:
    return {
        "objective": state.objective,
        "gap": state.gap,
        "alignment": state.alignment,
        "uniform_alignment": state.uniform,
        "iterations": float(state.iteration),
        "newton_steps": float(state.newton_steps),
        "converged": float(state.stop not in ("max_iter", "stalled")),
    }


def _baselines(loop: SocialLoop, state: SocialState, ctx: RunContext) -> np.ndarray:
    """Return the area under the curve over the training pairs of sorting by K_u, by equal weights, and by every view, ``(2 + k,)``."""
    from sklearn.metrics import roc_auc_score

    entries = loop.entries(state, ctx)
    scores = np.vstack([state.theta @ entries, entries.mean(axis=0), entries])
    return np.array([float(roc_auc_score(loop.links.z, row)) for row in scores])


def summary(state: SocialState, model: SocialModel, loop: SocialLoop) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    return {
        "objective": float(state.objective),
        "gap": float(state.gap),
        "certified_over": "the training pairs, for these weights of the views",
        "alignment": float(state.alignment),
        "uniform_alignment": float(state.uniform),
        "n_selected": int(np.count_nonzero(state.theta)),
        "n_kernels": len(state.theta),
        "pairs": len(loop.links.z),
        "pairs_kept": len(model.coef),
        "auc": float(tables(model, loop, hits=False)["rankings"][0]["auc"]),
        "stop": state.stop,
    }


def tables(model: SocialModel, loop: SocialLoop, hits: bool = True) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: views by weight, rankings of the training pairs beside the model's, hits among the first m."""
    from sklearn.metrics import roc_auc_score

    names = [str(spec) for spec in loop.specs]
    shares, singles = model.theta / model.theta.sum(), model.arrays["singles"]
    order = np.lexsort((np.arange(len(names)), -shares))
    views = [{"kernel": names[q], "weight": float(shares[q]), "alignment": float(singles[q])} for q in order]
    own = float(roc_auc_score(loop.links.z, pair_scores(model, loop.links.pairs)))
    areas = model.arrays["baseline_auc"].tolist()
    told = zip(["learnt", "direct", "uniform", *names], [own, *areas], strict=True)
    found = {"kernels": views, "rankings": [{"ranking": name, "auc": area} for name, area in told]}
    return {**found, "hits": hit_table(model, loop.links)} if hits else found
