"""Rule ensembles as a method of the runner: from data and parameters to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....kernels.graphs.norms import DualPoint
from ....kernels.rules.propositions import ABOVE, AT_MOST, Propositions
from ....storage import DataError
from ...inputs.labels import Inputs, labels_of, refuse_idle_classes, row_costs, store_inputs
from ...inputs.scores import Fit, held_out_rows, with_held_out
from ...inputs.tasks import TaskInputs, checked_task_kernel, store_tasks, with_tasks
from ...loops.active_set import EVERYWHERE, FINISHED
from ...loops.prepared import Prepared
from ...passes.blocks import column_tasks
from ...passes.columns import fetch_columns
from ...records.context import RunContext
from ...records.holdings import holdings_plan, refuse_beyond
from .config import RuleConfig
from .loop import Kept, RuleLoop, RuleState, Task, chosen, items_of, rule_flags
from .memory import REMEDY, driver_held, most_propositions
from .model import RuleModel, conditions, rule_records

FEW_PROPOSITIONS, FEW_ROWS = 30, 1000
"""Up to so many propositions and rows the thesis' certificate is computed, too: beyond, it tells nothing."""


def build_loop(config: RuleConfig, inputs: Inputs, categorical: Sequence[int], held_out: np.ndarray | None = None) -> RuleLoop:
    """Return the loop of a fit.

    Parameters
    ----------
    config, inputs
        Parameters and data; with tasks :class:`TaskInputs`.
    categorical
        Columns whose values are names.
    held_out
        ``(n_samples,)`` mask of rows to measure accuracy on.

    Raises
    ------
    ValueError
        A similarity that does not suit the tasks.
    DataError
        A class without a row of positive weight.
    """
    assert inputs.classes is not None  # callers have seen to it
    cost = row_costs(config, inputs)
    tasked = isinstance(inputs, TaskInputs)
    machines = _task_machines(inputs, cost) if isinstance(inputs, TaskInputs) else _class_machines(inputs, cost)
    similarity = task_similarity(config.task_kernel, len(machines), tasked)
    one = tasked or len(machines) == 1
    fit = Fit(0, 1 if one else len(machines), inputs.target, held_out)
    codes = inputs.codes if isinstance(inputs, TaskInputs) else None
    return RuleLoop(config, machines, similarity, categorical, len(inputs.target), fit, codes)


def _task_machines(inputs: TaskInputs, cost: np.ndarray) -> list[Task]:
    signs = inputs.signs()
    found = []
    for t in range(inputs.n_tasks):
        rows = inputs.rows(t)
        rows = rows[cost[rows] > 0]
        found.append(Task(rows, signs[rows], cost[rows]))
    return found


def _class_machines(inputs: Inputs, cost: np.ndarray) -> list[Task]:
    assert inputs.classes is not None
    rows = np.flatnonzero(cost > 0)
    refuse_idle_classes(inputs.classes, inputs.target, cost)
    return [Task(rows, labels_of(inputs, machine)[rows], cost[rows]) for machine in range(inputs.n_machines)]


def task_similarity(given: Any, n_tasks: int, tasked: bool) -> np.ndarray:
    """Return the checked similarity of the tasks; the identity for none.

    Raises
    ------
    ValueError
        Not a kernel of the tasks with a positive diagonal, or given without tasks.
    """
    if given is not None and not tasked:
        raise ValueError("task_kernel needs tasks: classes are fitted one against the rest, without shared weight")
    found = checked_task_kernel(given, n_tasks)
    if found is None:
        return np.eye(n_tasks)
    if np.any(np.diag(found) <= 0):
        raise ValueError(f"task_kernel: its diagonal must be positive; the least entry is {np.diag(found).min():.3g}")
    return found


def categorical_columns(given: Sequence[Any] | None, n_cols: int, names: Sequence[str] | None) -> list[int]:
    """Return the numbers of columns given by number or name.

    Raises
    ------
    ValueError
        A column that is not there.
    """
    place = {} if names is None else {str(name): j for j, name in enumerate(names)}
    found = []
    for entry in given or ():
        column = place.get(entry, -1) if isinstance(entry, str) else int(entry)
        if not 0 <= column < n_cols:
            raise ValueError(
                f"categorical names column {entry!r}; the data has columns 0 to {n_cols - 1}{' and no such name' * bool(place)}"
            )
        found.append(column)
    return sorted(set(found))


def prepare(config: RuleConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra`` may hold ``test_share``.

    Raises
    ------
    DataError
        The target is real-valued, or a task is empty.
    gramplane.cluster.MemoryBoundExceeded
        Even a single proposition, with hulls of ``max_rules`` conjunctions, is more than the driver may hold.
    """
    inputs = store_inputs(ctx, "rule-ensemble")
    if inputs.classes is None:
        raise DataError("the target is real-valued; rule-ensemble separates classes (ingest with --task classification)", ctx.data.url)
    tasks = store_tasks(ctx.data)
    inputs = inputs if tasks is None else with_tasks(inputs, tasks, ctx.data.url)
    held_out = held_out_rows(extra, inputs.target, ctx.seed, inputs.classes or ())
    inputs = with_held_out(inputs, held_out)
    names = ctx.data.feature_names()
    loop = build_loop(config, inputs, categorical_columns(config.categorical, ctx.data.n_cols, names), held_out)
    # How many propositions there are is known after the first pass, which looks again.
    least = driver_held(config, 1, ctx.data.n_rows, 1, len(loop.tasks))
    refuse_beyond(least, ctx.driver_memory, "rule-ensemble", REMEDY)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, inputs, loop, state, ctx, names),
        summary=lambda state, model: summary(state, model),
        tables=lambda state, model: tables(model),
        plan=plan_of(config, loop, ctx),
    )


def plan_of(config: RuleConfig, loop: RuleLoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: tasks of the one pass, memory of a task; of the driver with as many propositions as there may be."""
    tasks, n = column_tasks(ctx.data), ctx.data.n_rows
    largest = max((max(ref.nbytes for ref in task) for task in tasks), default=0)
    return {
        "machines": len(loop.tasks),
        "tasks_per_pass": len(tasks),
        "task_bytes": int(largest + 64 * n),
        **holdings_plan(driver_held(config, most_propositions(config, ctx.data.n_cols, n), n, ctx.data.n_cols, len(loop.tasks))),
        "max_rules": config.max_rules,
        "max_visits": config.max_visits,
    }


# -- from a state to a model -----------------------------------------------------------------------------------------------------


def model_of(
    config: RuleConfig,
    inputs: Inputs,
    loop: RuleLoop,
    state: RuleState,
    ctx: RunContext,
    names: Sequence[str] | None,
    categories: Mapping[int, Sequence[str]] | None = None,
) -> RuleModel:
    """Return the model of the last state: the kept rules, equal ones as one, and the active set they came from."""
    kept = state.kept
    assert kept is not None
    propositions, items, weights = _simplified(kept, config.prune)
    active = state.active
    lattice, every = loop.grounds(ctx).lattice, loop.grounds(ctx).propositions
    nodes = Kept(every, active.nodes, state.master.weights @ lattice.root.T, state.master.bias, active.upper, 0)
    active_items = items_of(nodes)
    used = np.array(sorted({j for item in active_items for j in item}), np.int64)
    place = {int(j): k for k, j in enumerate(used)}
    return RuleModel(
        params_json=config.model_dump_json(),
        classes_json=json.dumps(list(inputs.classes or ())),
        tasks_json=json.dumps(list(inputs.names) if isinstance(inputs, TaskInputs) else None),
        names_json=json.dumps(None if names is None else [str(name) for name in names]),
        categories_json=json.dumps({str(column): list(found) for column, found in (categories or {}).items()}),
        n_features=int(ctx.data.n_cols),
        propositions=propositions,
        **_lists("rule", items),
        weights=weights,
        intercepts=-kept.bias,
        support=_support(propositions, items, loop, ctx),
        active_propositions=every.take(used),
        **_lists("active", [[place[j] for j in item] for item in active_items]),
        active_weights=nodes.weights,
        figures={**_figures(state, kept), "descendant_gap": descendant_gap(loop, state, ctx)},
    )


def _lists(name: str, items: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    starts = np.concatenate([[0], np.cumsum([len(item) for item in items])]).astype(np.int64)
    return {f"{name}_starts": starts, f"{name}_items": np.array([j for item in items for j in item], np.int64)}


def _simplified(kept: Kept, prune: float) -> tuple[Propositions, list[list[int]], np.ndarray]:
    """Return the kept rules: of two cuts on one side of a column the narrower, rules that became equal as one."""
    places, weights = chosen(kept, prune)
    every, props = items_of(kept), kept.propositions
    used = np.array(sorted({j for r in places for j in every[r]}), np.int64)
    taken, place = props.take(used), {int(j): k for k, j in enumerate(used)}
    merged: dict[tuple[tuple[int, int, float], ...], np.ndarray] = {}
    lists: dict[tuple[tuple[int, int, float], ...], list[int]] = {}
    for r, row in zip(places, weights, strict=True):
        own = _narrowed(props, every[r])
        name = tuple(sorted((int(props.column[j]), int(props.kind[j]), float(props.cut[j])) for j in own))
        merged[name] = merged.get(name, np.zeros(len(row))) + row
        lists.setdefault(name, sorted(place[j] for j in own))
    rows = np.stack(list(merged.values())) if merged else np.zeros((0, kept.weights.shape[1]))
    return taken, list(lists.values()), rows


def _narrowed(props: Propositions, item: Sequence[int]) -> list[int]:
    best: dict[tuple[int, int, float], int] = {}
    for j in item:
        column, kind, cut = int(props.column[j]), int(props.kind[j]), float(props.cut[j])
        name = (column, kind, 0.0 if kind in (AT_MOST, ABOVE) else cut)
        old = best.get(name)
        if old is None or (cut < props.cut[old] if kind == AT_MOST else cut > props.cut[old]):
            best[name] = j
    return list(best.values())


def _support(propositions: Propositions, items: Sequence[Sequence[int]], loop: RuleLoop, ctx: RunContext) -> np.ndarray:
    columns = np.unique(propositions.column[sorted({j for item in items for j in item})])
    raw: Any = fetch_columns(ctx, columns) if len(columns) else np.zeros((ctx.data.n_rows, 0))
    flags = rule_flags(propositions, items, columns, raw, ctx.data.n_rows)
    return flags[loop.grounds(ctx).rows].sum(axis=0).astype(np.int64)


def _figures(state: RuleState, kept: Kept) -> dict[str, float]:
    active = state.active
    depth = float("nan") if active.depth is None else (float("inf") if active.depth == EVERYWHERE else float(active.depth))
    return {
        "objective": float(active.upper),
        "gap": float(active.certificate) if active.depth is not None else float("nan"),
        "restricted_gap": float(active.upper - active.lower),
        "depth": depth,
        "bound": float(active.bound),
        "worst_outside": float(active.worst),
        "n_nodes": float(active.nodes.size),
        "rounds": float(active.rounds),
        "newton_steps": float(state.master.steps),
        "iterations": float(state.iteration),
        "refit_objective": float(kept.objective),
        "converged": float(state.active.stop in FINISHED),
    }


def descendant_gap(loop: RuleLoop, state: RuleState, ctx: RunContext) -> float:
    """Return the gap that the thesis' sums over descendants certify, on the lattice of all conjunctions; NaN for more than a few rows."""
    lattice, active, master = loop.grounds(ctx).lattice, state.active, state.master
    if lattice.p > FEW_PROPOSITIONS or lattice.n > FEW_ROWS or not np.isfinite(active.upper):
        return float("nan")
    # The nodes that joined last came after the multipliers.
    alpha = np.split(master.alpha, np.cumsum([len(rows) for rows in lattice.rows])[:-1])
    linear, cost = float(master.alpha.sum()), np.concatenate(lattice.cost)
    used = master.alpha > 0
    reach = float(max(np.min(cost[used] / master.alpha[used]), 1.0)) if used.any() else 1.0
    bound = max(active.bound, lattice.descendant_bound(active.nodes, alpha))
    return float(max(active.upper - DualPoint(linear, 0.0, reach).value(bound), 0.0))


def certificate(model: RuleModel) -> dict[str, Any]:
    """Return what is certified of the active set's problem, before cuts were moved.

    ``gap`` is absolute; ``depth`` is the length of conjunctions to which it holds (``None``: every length; with ``gap`` NaN: nothing but
    the hull was looked at to the end); ``all_pairs`` tells whether conjunctions of propositions that imply or contradict each other were
    in the lattice. ``descendant_gap`` is what the thesis' sums over descendants certify, for few rows and propositions, else NaN.
    """
    figures, depth = model.figures, model.figures["depth"]
    return {
        "gap": figures["gap"],
        "relative_gap": figures["gap"] / max(abs(figures["objective"]), 1e-300),
        "restricted_gap": figures["restricted_gap"],
        "depth": int(depth) if np.isfinite(depth) else None,
        "complete": bool(np.isinf(depth)),
        "all_pairs": not json.loads(model.params_json)["skip_implied"],
        "bound": figures["bound"],
        "worst_outside": figures["worst_outside"],
        "descendant_gap": figures["descendant_gap"],
    }


def _certified_over(told: Mapping[str, Any]) -> str:
    if told["complete"]:
        return "all rules"
    return f"rules of at most {told['depth']} conditions" if told["depth"] else "none: rules next to the working set were looked at only"


def summary(state: RuleState, model: RuleModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    told = certificate(model)
    return {
        "objective": model.figures["objective"],
        "gap": told["gap"] if told["gap"] == told["gap"] else None,
        "relative_gap": told["relative_gap"] if told["gap"] == told["gap"] else None,
        "restricted_gap": told["restricted_gap"],
        "certified_over": _certified_over(told),
        "rounds": state.active.rounds,
        "n_selected": model.n_rules,
        "mean_length": float(model.lengths.mean()) if model.n_rules else 0.0,
        "n_nodes": state.active.nodes.size,
        "stop": state.active.stop,
        "classes": json.loads(model.classes_json),
    }


def tables(model: RuleModel) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: the rules, largest weight first."""
    rules = []
    for record in rule_records(model):
        told = {name: record[name] for name in ("vote", "weight", "support", "length")}
        rules.append({"rule": record["text"], **told, **{f"weight[{name}]": value for name, value in record.get("weights", {}).items()}})
    return {"rules": rules}


def active_records(model: RuleModel) -> list[dict[str, Any]]:
    """Return the active set: text, weight (largest over the machines) and length, in the order in which nodes joined."""
    rows = []
    for k in range(len(model.active_starts) - 1):
        items = model.active_items[model.active_starts[k] : model.active_starts[k + 1]]
        text = " and ".join(part["text"] for part in conditions(model, model.active_propositions, items))
        weights = model.active_weights[k]
        rows.append({"text": text or "always", "weight": float(weights[np.argmax(np.abs(weights))]), "length": len(items)})
    return rows
