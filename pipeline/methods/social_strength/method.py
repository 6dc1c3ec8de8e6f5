"""Social strength modelling (Zhuang: Kernel learning, thesis, 2011, chapter 7): learn weights of the views of users, then rank pairs.

The first step normalises the views and computes their weights by alignment with the links. The next steps solve the logistic problem over
the training pairs (:mod:`gramplane.kernels.ranking.pair_ranking`), by rounds of Newton steps or with one import vector per step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.alignment.target_alignment import MatrixSums, solve_aligned_weights
from ....kernels.bounds import sound_gap
from ....kernels.ranking.pair_ranking import full_gap, import_step, rank_pairs
from ....kernels.ranking.user_kernels import row_factors
from ....storage import BlockStore, DataError
from ...core.memory import check_memory, total_bytes
from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...grams.given import NEGATIVE, GivenGrams
from ...grams.settings import GramSettings
from ...inputs.kernels import gram_settings, resolved_kernels, with_decided_kernels, with_gram_store
from ...inputs.labels import Inputs
from ...models.build import data_scaling, support_rows_of
from ...models.kernel import kernel_names
from ...models.model import Tables
from ...records.data_set import DataSet
from .block_pass import BlockViews
from .config import SocialConfig
from .links import Links, read_links
from .model import SocialModel
from .problem import LOOKUP_ENTRIES, SocialInputs, SocialProblem, SocialState
from .score_pass import Scorer, top_lists
from .scores import TOP_SIZE, hit_table, pair_scores, scorer_of, train_hits
from .tile_pass import TileLayout, is_given_kernel, is_similarity, similarity_kernels
from .view_pass import Scaling, ViewGrams

FIRST_ROUND_STEPS = 16
"""Newton steps of the first round; every further round takes twice as many. A round starts from the best certified point of the previous
round, which may precede that round's last step. Many short rounds would therefore make no progress.
"""


class Social(Method[SocialConfig, SocialProblem, SocialState, SocialModel]):
    """Strengths of ties between users: weights of several views, and a ranking learnt from labelled pairs."""

    name = "social-strength"
    config = SocialConfig
    state = SocialState
    models = (SocialModel,)
    programs = "methods.social_strength.view_pass"

    def read_inputs(self, config: SocialConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[SocialConfig, SocialInputs]:
        """Return the parameters, users and pairs; ``extra["pairs"]`` has rows u, v, z. The views may be those of a Gram store."""
        data = resources.data
        if config.kernels == "precomputed" and config.gram_store is None:
            if is_similarity(data):
                return config, SocialInputs(data, read_links(extra["pairs"], data.n_rows))
            raise ValueError(
                "social-strength needs views: kernels over the users (kernels), a Gram store of matrices (gram_store), or a sparse store "
                "whose columns are similarities side by side, one for each user in every view"
            )
        # Views that are not shifted must be positive semi-definite themselves.
        config, inputs = with_gram_store(config, Inputs(data, np.zeros(0), None), definite=config.normalize == "none")
        return config, SocialInputs(inputs.data, read_links(extra["pairs"], inputs.data.n_rows))

    def problem(self, config: SocialConfig, inputs: SocialInputs, resources: Resources) -> SocialProblem:
        """Return the problem of a fit. Raises MemoryBoundExceeded if the matrix of all users exceeds the driver's memory."""
        config, data = with_decided_kernels(config, inputs.data, resources), inputs.data
        normalization = "cosine" if config.normalize == "cosine" else "none"
        if config.kernels == "precomputed" and is_similarity(data):
            return _block_problem(config, similarity_kernels(data, normalization), inputs, resources)
        specs = resolved_kernels(config.kernels, data, normalization)
        problem = SocialProblem(config, inputs, tuple(specs), gram_settings(config, specs, data, resources), resources)
        items = problem.driver_items
        if total_bytes(items) > resources.driver_memory and _goes_by_blocks(config, data):
            return _block_problem(config, specs, inputs, resources)
        remedy = "fewer users" if config.pair_kernel == "similarity" else "fewer users, or pair_kernel='similarity', which goes by blocks"
        check_memory(self.name, items, resources, remedy)
        return problem

    def init(self, problem: SocialProblem, resources: Resources) -> SocialState:
        """Return the initial state, before the weights of the views are computed."""
        k, m = len(problem.specs), len(problem.links.z)
        views = np.full(k, k**-0.5), np.zeros((k, 0)), np.zeros(k), 0.0, 0.0, np.zeros(k)
        # Without a coefficient every pair has the loss ln 2, and nothing is certified.
        return SocialState(0, *views, np.zeros(0, np.int64), np.zeros(m), float(np.log(2)), np.inf)

    def step(self, problem: SocialProblem, state: SocialState, resources: Resources) -> Step[SocialState]:
        """Compute the weights of the views, run a round of Newton steps on the pairs, or add an import vector."""
        if not state.iteration:
            new, phase = _weigh_views(problem, state, resources), "weights"
        elif problem.config.n_import is None:
            new, phase = _newton_round(problem, state, resources), "newton"
        else:
            new, phase = _add_import(problem, state, resources), "import"
        new = replace(new, iteration=state.iteration + 1)
        metrics = {"phase": phase, "objective": new.objective, "gap": new.gap, "alignment": new.alignment}
        more = {"n_selected": int(np.count_nonzero(new.theta)), "n_import": len(new.chosen), "newton_steps": new.newton_steps}
        return Step(new, {**metrics, **more})

    def result(self, problem: SocialProblem, state: SocialState, resources: Resources) -> Result[SocialModel]:
        """Return the model with its certificate, and the area under the ROC curve of the learnt ranking over the training pairs."""
        config, links, users = problem.config, problem.links, problem.inputs.users
        grams, coef = (problem.views if problem.by_blocks else problem.grams)(resources), state.coef
        if config.n_import is not None:
            coef = problem.import_machine(state, resources).coefficients()
        with_coefficient = np.flatnonzero(coef)
        offset, view_weights = 0.0, np.zeros(len(state.theta))
        views = problem.entries(state, resources)
        if config.pair_kernel == "similarity":
            offset = float(coef.sum())
            view_weights = config.view_scale**2 * state.theta * (views @ coef)
        # Baselines over the training pairs: sorting by K_u, by equal weights, and by every view.
        baselines = [_area(links.z, row) for row in np.vstack([state.theta @ views, views.mean(axis=0), views])]
        figures = {
            "objective": state.objective,
            "gap": sound_gap(state.gap, state.objective),
            "alignment": state.alignment,
            "uniform_alignment": state.uniform,
            "iterations": float(state.iteration),
            "newton_steps": float(state.newton_steps),
            "converged": float(state.stop not in ("max_iter", "stalled")),
        }
        model = SocialModel(
            params_json=config.model_dump_json(),
            kernels_json=json.dumps([spec.to_json() for spec in problem.specs]),
            n_features=int(users.n_cols),
            n_train=users.n_rows,
            precomputed=isinstance(users, GivenGrams) or is_given_kernel(problem.specs),
            **{name: getattr(state, name) for name in ("theta", "factors", "shifts")},
            norms=tuple(grams.normalizations),
            pairs=links.pairs[with_coefficient],
            coef=coef[with_coefficient],
            view_weights=view_weights,
            offset=offset,
            figures=figures,
            arrays={"singles": state.singles, "chosen": state.chosen, "baseline_auc": np.array(baselines)},
            **data_scaling(users),
            **_users(problem),
            **_matrices(problem, state, view_weights, resources),
        )
        model = _with_hits(problem, model, state, resources) if problem.by_blocks else model
        gap = state.gap / state.objective
        return Result(
            model,
            state.stop,
            objective=float(state.objective),
            gap=float(figures["gap"]),
            certified_over="the training pairs, for these weights of the views",
            unfinished=f"max_iter={config.max_iter} ended the fit with a relative gap of {gap:.1e}; tol={config.tol:g} was asked for",
            figures={
                "alignment": float(state.alignment),
                "uniform_alignment": float(state.uniform),
                "n_selected": int(np.count_nonzero(state.theta)),
                "n_kernels": len(state.theta),
                "pairs": len(links.z),
                "pairs_kept": len(model.coef),
                "auc": learnt_area(model, links),
            },
        )

    def tables(
        self, model: SocialModel, names: Sequence[str] | None = None, fit: tuple[SocialProblem, SocialState] | None = None
    ) -> Tables:
        """Return the views by weight. If the fit is given, also return the learnt ranking of the training pairs with its baselines, and hit
        rates among the top m.
        """
        names, shares, singles = kernel_names(model), model.theta / model.theta.sum(), model.arrays["singles"]
        order = np.lexsort((np.arange(len(names)), -shares))
        tables = {"kernels": [{"kernel": names[q], "weight": float(shares[q]), "alignment": float(singles[q])} for q in order]}
        if fit is None:
            return tables
        problem, _ = fit
        rankings = ["learnt", "direct", "uniform", *map(str, problem.specs)]
        areas = [learnt_area(model, problem.links), *model.arrays["baseline_auc"].tolist()]
        return {
            **tables,
            "rankings": [{"ranking": name, "auc": area} for name, area in zip(rankings, areas, strict=True)],
            "hits": hit_table(model, problem.links),
        }


def _weigh_views(problem: SocialProblem, state: SocialState, ctx: Resources) -> SocialState:
    config = problem.config
    sums, made = (_view_sums_by_blocks if problem.by_blocks else _view_sums)(problem, ctx)
    aligned = solve_aligned_weights(sums.centred(config.alignment), uniform=config.weights == "uniform")
    state = replace(state, theta=aligned.weights, **made)
    return replace(state, alignment=aligned.value, uniform=aligned.uniform, singles=aligned.singles)


def _view_sums(problem: SocialProblem, ctx: Resources) -> tuple[MatrixSums, dict[str, np.ndarray]]:
    """Return the alignment sums of the views, in which the links are the last matrix, and the factors and shifts that convert raw matrices
    into views.
    """
    grams, links, normalize = problem.grams(ctx), problem.links, problem.config.normalize
    maxima, sizes = grams.extremes()
    _refuse_empty(sizes, problem.inputs.data)
    factors = row_factors(maxima) if normalize == "row_max" else np.ones_like(maxima)
    shifts = np.zeros(len(maxima)) if normalize == "none" else np.maximum(-grams.least_eigenvalues(factors), 0.0)
    scaling = Scaling(factors, shifts)
    sums = grams.matrix_sums(scaling, links.known)
    return _with_target(sums, _target_products(grams, scaling, links), links), {"factors": factors, "shifts": shifts}


def _view_sums_by_blocks(problem: SocialProblem, ctx: Resources) -> tuple[MatrixSums, dict[str, np.ndarray]]:
    """Return the result of :func:`_view_sums`, computed by passes over blocks, and also the entries of the views at the pairs."""
    views, links, m, normalize = problem.views(ctx), problem.links, len(problem.links.z), problem.config.normalize
    if views.given:
        views.check_symmetric()
    upper = sp.triu(links.target, 1, format="coo")
    places = np.concatenate([links.pairs.T, np.stack([upper.row, upper.col]).astype(np.int64)], axis=1)
    maxima, sizes, raw = views.survey(places)
    _refuse_empty(sizes, problem.inputs.data)
    factors = row_factors(maxima) if normalize == "row_max" else np.ones_like(maxima)
    shifts = _find_shifts(views, factors, normalize)
    # No place is on the diagonal, where the shifts are.
    entries = raw * (0.5 * (factors[:, places[0]] + factors[:, places[1]]))
    products = 2.0 * (entries[:, m:] @ upper.data)
    sums = _with_target(views.sums(factors, shifts, links.known), products, links)
    return sums, {"factors": factors, "shifts": shifts, "entries": np.ascontiguousarray(entries[:, :m])}


def _find_shifts(views: BlockViews, factors: np.ndarray, normalize: str) -> np.ndarray:
    if normalize != "none":
        return np.maximum(-views.least_eigenvalues(factors), 0.0)
    if views.given:
        least, scale = views.least_eigenvalues(factors), views.largest_row_sum()
        if (least < -NEGATIVE * scale).any():
            worst = int(np.argmin(least))
            raise DataError(
                f"view {worst} is not positive semi-definite: its smallest eigenvalue is {least[worst]:.3g}; set normalize='row_max'"
            )
    return np.zeros(len(factors))


def _target_products(grams: ViewGrams, scaling: Scaling, links: Links) -> np.ndarray:
    """Return the off-diagonal inner products of the views with the links, ``(k,)``."""
    upper = sp.triu(links.target, 1, format="coo")
    total = np.zeros(len(scaling.shifts))
    for lo in range(0, upper.nnz, LOOKUP_ENTRIES):
        part = slice(lo, lo + LOOKUP_ENTRIES)
        rows, cols = (ids[part].astype(np.int64) for ids in (upper.row, upper.col))
        total += 2.0 * (grams.view_entries(scaling, rows, cols) @ upper.data[part])
    return total


def _refuse_empty(sizes: np.ndarray, data: DataSet) -> None:
    empty = ~(sizes > 0).any(axis=0)
    if empty.any():
        raise DataError(
            f"user {int(np.argmax(empty))} has no items: the row is zero in every view ({int(empty.sum())} such users); leave them out",
            "" if data.url == "memory" else data.url,
        )


def _with_target(sums: MatrixSums, products: np.ndarray, links: Links) -> MatrixSums:
    """Return the alignment sums of the views with those of the links appended. Every user counts as linked with itself."""
    target, diagonal = links.target, links.known.astype(np.float64)
    rows = np.asarray(target.sum(axis=1)).ravel() + diagonal
    traces = sums.diagonals[:, links.known].sum(axis=1)
    return sums.with_matrix(products + traces, float(np.square(target.data).sum() + diagonal.sum()), rows, diagonal)


def _newton_round(problem: SocialProblem, state: SocialState, ctx: Resources) -> SocialState:
    config = problem.config
    limit = min(FIRST_ROUND_STEPS << (state.iteration - 1), config.max_iter - state.newton_steps)
    fit = rank_pairs(problem.gram(state, ctx), problem.links.z, config.C, warm=state.coef, tol=config.tol, max_iter=limit)
    n_steps = state.newton_steps + fit.steps
    stop = "tol" if fit.converged else "max_iter" if n_steps >= config.max_iter else None
    if stop is None and fit.steps < limit and fit.gap >= state.gap:
        stop = "stalled"
    return replace(state, coef=fit.coef, objective=fit.objective, gap=fit.gap, newton_steps=n_steps, stop=stop)


def _add_import(problem: SocialProblem, state: SocialState, ctx: Resources) -> SocialState:
    config, z, gram, before = problem.config, problem.links.z, problem.gram(state, ctx), problem.import_machine(state, ctx)
    candidates = np.setdiff1d(np.arange(len(z)), state.chosen)
    if config.n_candidates is not None and len(candidates) > config.n_candidates:
        drawn = np.random.default_rng([ctx.seed, state.iteration]).choice(candidates, config.n_candidates, replace=False)
        candidates = np.sort(drawn)
    machine = import_step(gram, z, config.C, before, candidates)
    gap = full_gap(gram, z, config.C, machine)
    problem.machine = machine
    stop = None
    if machine is before or before.objective - machine.objective < config.import_tol * before.objective:
        stop = "import_tol"
    elif gap <= config.tol * machine.objective:
        stop = "tol"
    elif len(machine.chosen) >= min(int(config.n_import or 0), len(z)):
        stop = "n_import"
    return replace(state, chosen=machine.chosen, coef=machine.dual, objective=machine.objective, gap=gap, stop=stop)


def _users(problem: SocialProblem) -> dict[str, Any]:
    """Return the fields of a model that contain its users or, if the fit went by blocks over a store, the location of the store."""
    users = problem.inputs.users
    if problem.by_blocks and isinstance(users, BlockStore):
        return {"rows": None, "texts": (), "data_url": users.url, "data_digest": users.digest}
    if problem.by_blocks and is_given_kernel(problem.specs):
        return {"rows": sp.csr_array(users.X), "texts": ()}
    rows, texts = (None, ()) if isinstance(users, GivenGrams) else support_rows_of(users, np.arange(users.n_rows))
    return {"rows": rows, "texts": texts}


def _matrices(problem: SocialProblem, state: SocialState, view_weights: np.ndarray, ctx: Resources) -> dict[str, Any]:
    """Return two weighted sums of the views, ``(n, n)`` each: one with the alignment weights, one with the learnt weights. Both are empty
    for a fit by blocks.
    """
    if problem.by_blocks:
        return {"kernel": np.zeros((0, 0), np.float32), "strengths": np.zeros((0, 0), np.float32)}
    strengths = np.zeros((0, problem.inputs.data.n_rows), np.float32)
    if problem.config.pair_kernel == "similarity":
        strengths = problem.grams(ctx).weighted(state.scaling, view_weights)
    return {"kernel": problem.kernel(state, ctx), "strengths": strengths}


def _with_hits(problem: SocialProblem, model: SocialModel, state: SocialState, ctx: Resources) -> SocialModel:
    """Return the model of a fit by blocks, completed with the hit rates of the training links, which its tables need. This takes one pass
    over all scores.
    """
    scorers = scorer_of(model), scorer_of(model, direct=True)
    weights, offsets = (np.concatenate([getattr(one, name) for one in scorers]) for name in ("weights", "offsets"))
    both = Scorer(scorers[0].normal, scorers[0].factors, model.shifts, weights, offsets)
    lists = top_lists(problem.inputs.data, ctx, problem.specs, both, min(TOP_SIZE, model.n_train - 1))
    hits = train_hits(lists, problem.links, model.n_train)
    decision = model.offset + model.view_weights @ state.entries
    figures = {**model.figures, "auc": _area(problem.links.z, decision)}
    return replace(model, arrays={**model.arrays, "hits": hits}, figures=figures)


def _area(z: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(z, scores))


def learnt_area(model: SocialModel, links: Links) -> float:
    """Return the area under the ROC curve of the learnt ranking over the training pairs."""
    return model.figures["auc"] if model.by_blocks else _area(links.z, pair_scores(model, links.pairs))


def _goes_by_blocks(config: SocialConfig, data: object) -> bool:
    """Return whether a fit needs no ``n x n`` matrix of users, because its scores are sums of views that are computed from rows."""
    return config.pair_kernel == "similarity" and config.grams in ("auto", "recompute") and not isinstance(data, GivenGrams)


def _block_problem(config: SocialConfig, specs: Sequence[Any], inputs: SocialInputs, resources: Resources) -> SocialProblem:
    """Return the problem of a fit without matrices of all users. Raises ValueError for parameters that need such matrices, and
    MemoryBoundExceeded.
    """
    data: Any = inputs.data
    if not _goes_by_blocks(config, data):
        raise ValueError(
            f"pair_kernel={config.pair_kernel!r}, grams={config.grams!r}: sparse similarities are read block by block, which needs "
            "pair_kernel='similarity' and grams='auto'"
        )
    scale = getattr(data, "scale", None)
    if scale is not None and is_given_kernel(specs) and scale.kind != "none":
        raise ValueError(f"{data.url}: similarities are scaled ({scale.kind!r}); ingest them without scaling")
    reason = f"computed again in every pass: the scores of {data.n_rows} users have no room in this process"
    settings = GramSettings("recompute", TileLayout.of(data, len(specs)).edge, None, reason)
    problem = SocialProblem(config, inputs, tuple(specs), settings, resources, by_blocks=True)
    check_memory(Social.name, problem.driver_items, resources, "fewer users, pairs or views")
    return problem
