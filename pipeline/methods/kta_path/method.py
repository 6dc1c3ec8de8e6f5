"""The kernel selection path as a method: problem from a store, model, summary and tables from the final state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...core.memory import check_memory, refuse
from ...core.method import Method, PathValues
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...grams.given import GivenGrams
from ...inputs.labels import Inputs, dual_problems, store_inputs
from ...inputs.scores import held_out_rows, scores_of
from ...models.kernel import KernelModel
from ...models.model import Tables
from .config import KTAPathConfig
from .machines import machine_model, score_name, spread_points, weights_along
from .problem import CELLS, KTAProblem, KTAState, machine_point, path_junctures

N_SHOWN = 1000  # kernels in the report's table
N_FOLLOWED = 20  # kernels whose weights a report follows along p


class KTAPath(Method[KTAPathConfig, KTAProblem, KTAState, KernelModel]):
    """Selection of kernels along a path, with SVMs at some of its points. Kernels leave one by one as p, the norm parameter of the weights,
    decreases.
    """

    name = "kta-path"
    config = KTAPathConfig
    state = KTAState
    models = (KernelModel,)

    def read_inputs(self, config: KTAPathConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[KTAPathConfig, Inputs]:
        """Return the parameters, and the target and weights of a store. ``extra`` may contain ``test_share``. Raises ValueError for
        precomputed kernels, which a block store cannot contain.
        """
        if config.kernel == "precomputed":
            raise ValueError("kernel='precomputed' needs matrices; a run on a block store takes 'rbf' or 'linear'")
        inputs = store_inputs(resources, self.name)
        return config, inputs.without(held_out_rows(extra, inputs.target, resources.seed, inputs.classes))

    def problem(self, config: KTAPathConfig, inputs: Inputs, resources: Resources) -> KTAProblem:
        """Return the problem of a fit. Raises DataError for a class without rows of positive weight, and MemoryBoundExceeded if rows or
        features exceed the memory.
        """
        dual_problems(config, inputs, config.epsilon)
        problem = KTAProblem(config, inputs, resources)
        if not isinstance(inputs.data, GivenGrams):
            # At least one point's weights; how many more there are shows with the alignments.
            items, remedy = problem.driver_items(1), "fewer rows or features"
            refuse(self.name, items, resources.fit_limit, remedy)
            # Cells are rarely more than some tens; that they might be as many as their share of the memory allows is nothing to tell.
            check_memory(self.name, [item for item in items if item[0] != CELLS], resources, remedy)
        return problem

    def init(self, problem: KTAProblem, resources: Resources) -> KTAState:
        """Return the initial state, without alignments and points."""
        none, ids = np.zeros(0), np.zeros(0, np.int64)
        machines = np.zeros((0, 3)), np.zeros((0, problem.inputs.data.n_rows))
        return KTAState(0, None, 0, np.zeros((4, 0)), np.nan, np.nan, none, ids, ids, none, ids, *machines)

    def step(self, problem: KTAProblem, state: KTAState, resources: Resources) -> Step[KTAState]:
        """Compute another batch of alignments, points of the path, or SVMs."""
        if np.isnan(state.lam1):
            new = problem.align(state, resources)
        elif len(state.p) < len(problem.grid):
            new = problem.advance(state)
        else:
            new = problem.train(state, resources)
        new = replace(new, iteration=state.iteration + 1)
        reached = {"p": float(new.p[-1]), "n_active": int(new.counts[-1])} if len(new.p) else {"p": np.nan, "n_active": np.nan}
        figures = {"n_aligned": new.table.shape[1], "n_points": len(new.p), **reached, "newton_steps": int(new.newton_steps.sum())}
        return Step(new, {**figures, "n_machines": len(new.scored)})

    def result(self, problem: KTAProblem, state: KTAState, resources: Resources) -> Result[KernelModel]:
        """Return the model (the path and the predicting SVM), the certificate of that SVM, numbers of kernels and rows, and scores."""
        config = problem.config
        arrays = dict(zip(("alignments", "traces", "widths"), state.table[:3], strict=True))
        arrays |= {"junctures": path_junctures(config, state), "p_grid": state.p, "n_active": state.counts}
        arrays |= {"path_indices": state.indices, "path_values": state.values, "newton_steps": state.newton_steps, "scored": state.scored}
        lam, machine = {"lam1": state.lam1, "lam2": state.lam2}, problem.machine(state, resources)
        model = machine_model(config, problem.inputs, arrays, {**lam, "C": float(config.C)}, machine)
        sizes = {"n_kernels": int(state.table.shape[1]), "n_points": len(state.p)}
        n_selected = len(model.used) if model.features is None else len(model.features.columns)
        counts = {"n_selected": n_selected, "n_active_at_start": int(state.counts[0]), "n_active_at_end": int(state.counts[-1])}
        rows = {"n_support": len(model.support_ids), "classes": json.loads(model.classes_json)}
        at = state.scored[state.scored[:, 0] == machine_point(config, state)]
        return Result(
            model,
            state.stop,
            objective=model.figures["objective"],
            gap=model.figures["gap"],
            certified_over="the SVM at this p",
            figures={**sizes, **counts, **lam, "p": machine.p, **rows, **(_finite_scores(model, *at[0, 1:]) if len(at) else {})},
            scores=partial(scores_of, problem.inputs, machine.values),
        )

    def decision_values(self, problem: KTAProblem, state: KTAState, resources: Resources) -> np.ndarray:
        """Return the decision values of the predicting SVM on all rows, ``(n_machines, n_samples)``."""
        return problem.machine(state, resources).values

    def without(self, inputs: Inputs, held_out: np.ndarray) -> Inputs:
        """Return inputs in which held-out rows have weight zero. Accuracies along the path are not computed on held-out rows."""
        return replace(inputs.without(held_out), held_out=None)

    def follow_path(self, problem: KTAProblem, before: KTAProblem | None) -> None:
        """Skip the SVMs along the path, and reuse the summed matrices of ``before``: fits that differ only in C share matrices."""
        problem.trains, problem.sums = False, None if before is None else before.sums

    def restart(self, problem: KTAProblem, fresh: KTAState, before: KTAProblem, last: KTAState) -> KTAState:
        """Return the last state, whose path is complete: the path does not depend on C."""
        return last

    def path_values(self, problem: KTAProblem, state: KTAState, resources: Resources) -> Iterator[PathValues]:
        """Yield the decision values at ``n_machines`` evenly spaced points of the path. A point without an active kernel has the values of
        the last point that has one. If the parameters name a point, yield only the values at that point.
        """
        if problem.config.p != "auto":
            yield from super().path_values(problem, state, resources)
            return
        points, active = spread_points(len(state.p), problem.config.n_machines), np.flatnonzero(state.counts)
        if not len(active):
            none = np.full((problem.inputs.n_machines, problem.inputs.data.n_rows), np.nan)
            yield from (PathValues({"p": float(state.p[k])}, none, lambda: [0]) for k in points)
            return
        trainer, chosen = problem.trainer(state, resources), np.unique(np.minimum(points, active[-1]))
        trainer.sums = problem.sums
        values = {int(k): point.values for k, point in zip(chosen, trainer.along(state.p[chosen], state.weights[chosen]), strict=True)}
        problem.sums = trainer.sums
        for k in points:
            at = min(int(k), int(active[-1]))
            yield PathValues({"p": float(state.p[k])}, values[at], lambda at=at: [int(state.counts[at])])

    def tables(self, model: KernelModel, names: Sequence[str] | None = None, fit: tuple[KTAProblem, KTAState] | None = None) -> Tables:
        """Return the kernels in the order in which they leave the path, last first; the points of the path; and the weights of the
        last kernels.
        """
        a, grid, counts = (model.arrays[name] for name in ("alignments", "p_grid", "n_active"))
        order = np.lexsort((np.arange(len(a)), -a))[:N_SHOWN]
        labels = [str(j) if names is None else names[j] for j in order.tolist()]
        used = model.used if model.features is None else model.features.columns
        weights = dict(zip(used.tolist(), model.theta[0, model.used if model.precomputed else slice(None)].tolist(), strict=True))
        ends = [p if np.isfinite(p) else None for p in model.arrays["junctures"][order].tolist()]
        kernels = [
            {"kernel": label, "weight": weights.get(j), "alignment": float(a[j]), "leaves_at_p": end}
            for j, label, end in zip(order.tolist(), labels, ends, strict=True)
        ]
        followed = weights_along(model)[:, order[:N_FOLLOWED]].toarray().tolist()
        paths = [{"p": p, **dict(zip(labels, row, strict=False))} for p, row in zip(grid.tolist(), followed, strict=True)]
        scored = {int(k): _finite_scores(model, train, test) for k, train, test in model.arrays["scored"]}
        points = enumerate(zip(grid.tolist(), counts.tolist(), strict=True))
        path = [{"p": p, "n_active": n, **scored.get(k, {})} for k, (p, n) in points]
        return {"kernels": kernels, "path": path, "path_weights": paths}


def _finite_scores(model: KernelModel, train: float, test: float) -> dict[str, float]:
    name = score_name(model)
    scores = {f"train_{name}": float(train), f"test_{name}": float(test)}
    return {name: value for name, value in scores.items() if np.isfinite(value)}
