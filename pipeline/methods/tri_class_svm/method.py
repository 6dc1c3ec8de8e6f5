"""The tri-class support vector machine as a method: problem from two stores, model, summary and tables from the final state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....kernels.jit import one_thread
from ....kernels.svm.triclass_search import SearchState, row_coefficients
from ....storage import DataError
from ....storage.data import opened
from ...core.memory import check_memory, total_bytes
from ...core.method import Method
from ...core.one_vs_rest import of_machines
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...inputs.labels import Inputs, label_spelling, store_inputs
from ...inputs.scores import held_out_rows, scores_of
from ...models.build import build_model
from ...models.kernel import KernelModel
from ...models.model import Tables
from .config import TriClassConfig
from .inputs import TriClassInputs, join_stores, make_points, resolve_kernel, split_labels, validation_masks
from .problem import BASELINES, PATH_COLUMNS, UNFINISHED, TriClassProblem, TriClassState, count_machines, decide, driver_items

WHOLE_NUMBERS = ("iteration", "minus", "zero", "plus", "flips")  # columns of the path that count


class TriClass(Method[TriClassConfig, TriClassProblem, TriClassState, KernelModel]):
    """A semi-supervised support vector machine for unlabelled rows that may belong to no class."""

    name = "tri-class-svm"
    config = TriClassConfig
    state = TriClassState
    models = (KernelModel,)

    def read_inputs(self, config: TriClassConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[TriClassConfig, TriClassInputs]:
        """Return the parameters, and the labels and rows of a run; ``extra`` may contain ``unlabelled`` (a store) and ``test_share``.

        The unlabelled store is opened in the version with which the run began.

        Raises DataError if there are fewer than two classes besides rows of neither class, or if unlabelled rows do not match the labelled
        ones; DigestMismatch if the unlabelled store was replaced since the run began and the old version no longer exists.
        """
        stored, place = store_inputs(resources, self.name), resources.data.url
        if stored.classes is None:
            raise DataError(f"the target is real-valued; {self.name} needs labels of classes", place)
        y = np.asarray(stored.classes)[stored.target]
        url = extra.get("unlabelled")
        truth, classes = split_labels(y, config.irrelevant_label, stored.sample_weight, place, has_unlabelled=url is not None)
        held_out = held_out_rows(extra, stored.target, resources.seed, stored.classes)
        decisions = {} if resources.scratch is None else resources.scratch.read_json("decisions") or {}
        store = None if url is None else opened(str(url), self.name, decisions.get("unlabelled_digest"))
        rows, count = join_stores(stored.data, store), 0 if store is None else store.n_rows
        return config, TriClassInputs(rows, truth, count, stored.sample_weight, classes, held_out, store)

    def problem(self, config: TriClassConfig, inputs: TriClassInputs, resources: Resources) -> TriClassProblem:
        """Return the problem of a fit.

        Raises ValueError if the kernel does not suit the data, if a balance is set but there are no unlabelled rows, or if a fold lacks a
        class; MemoryBoundExceeded if the rows exceed the driver's memory.
        """
        return shared_problem(config, inputs, [inputs.held_out], validation_masks(config, inputs, resources.seed), resources)

    def init(self, problem: TriClassProblem, resources: Resources) -> TriClassState:
        """Return the initial state, before the first SVM is solved."""
        return TriClassState(0, (), (), np.zeros((0, len(PATH_COLUMNS))))

    def step(self, problem: TriClassProblem, state: TriClassState, resources: Resources) -> Step[TriClassState]:
        """Fit the first SVMs, or solve the next convex problem of every start that has not ended."""
        with one_thread():
            new = problem.advance(state, problem.gram(resources), resources.seed)
        return Step(new, problem.metrics(state, new))

    def result(self, problem: TriClassProblem, state: TriClassState, resources: Resources) -> Result[KernelModel]:
        """Return the model of the best start with its certificate, and the assignment of the unlabelled rows."""
        config, inputs, best, validation = problem.config, problem.inputs, problem.best_of(state), problem.validation(state)
        figures = {
            "objective": sum(machine.objective / config.C for machine in best),
            "gap": sum(machine.gap / config.C for machine in best),
            "eps": config.eps,
            "iterations": float(state.iteration),
            "converged": float(state.stop not in UNFINISHED),
        }
        rows = [[row["accuracy"], np.nan if row["deviation"] is None else row["deviation"], row["folds"]] for row in validation]
        arrays = {
            "assignment": problem.assigned(best),
            "starts": np.array(of_machines([*problem.objectives(state)])),
            "validation": np.array(rows, dtype=np.float64).reshape(-1, 3),
        }
        kernel_inputs, theta = Inputs(inputs.data, inputs.truth, inputs.classes), np.ones((len(best), 1))
        beta = np.stack([row_coefficients(points, one) for points, one in zip(problem.points, best, strict=False)])
        grams, bias = problem.grams(resources), np.array([machine.bias for machine in best])
        model = build_model(config, kernel_inputs, grams, theta, beta, bias, figures, arrays)
        accuracies, doubts = {row["machine"]: row["accuracy"] for row in validation}, _doubts(problem, state)
        return Result(
            model,
            state.stop,
            objective=figures["objective"],
            gap=figures["gap"],
            certified_over="the last convex problem of the best start" + (" of every class" if len(best) > 1 else ""),
            figures={
                "start": of_machines(problem.best_starts(state)),
                **problem.assigned_counts(best),
                **({"assigned": _assigned(problem, arrays["assignment"])} if len(best) > 1 else {}),
                "n_kernels": 1,
                "n_support": len(model.support_ids),
                "classes": json.loads(model.classes_json),
                **({"validation": accuracies} if accuracies else {}),
                **({"remark": " ".join(doubts)} if doubts else {}),
            },
            warnings=doubts,
            unfinished=_unfinished(config, state),
            scores=partial(self._scores, problem, state, resources),
        )

    def _scores(self, problem: TriClassProblem, state: TriClassState, resources: Resources) -> dict[str, Any]:
        return scores_of(problem.inputs.labelled, self.decision_values(problem, state, resources))

    def shared_fits(
        self, configs: Sequence[TriClassConfig], inputs: TriClassInputs, masks: Sequence[np.ndarray], resources: Resources
    ) -> TriClassProblem | None:
        """Return one problem that contains a fit for each mask, on the rows outside the mask. All fits share the Gram matrix."""
        if len(configs) > 1:
            return None
        return shared_problem(configs[0], inputs, [inputs.without(mask).held_out for mask in masks], (), resources)

    def decision_values(self, problem: TriClassProblem, state: TriClassState, resources: Resources) -> np.ndarray:
        """Return the decision values of the best models of every fit on the labelled rows, ``(n_fits * n_machines, n_labelled)``."""
        machines = [machine for fit in range(problem.n_fits) for machine in problem.best_of(state, fit)]
        return np.stack([machine.decision[: len(problem.inputs.truth)] for machine in machines])

    def selected(self, problem: TriClassProblem, state: TriClassState, resources: Resources) -> list[int]:
        """Return 1 for every fit, because it has one kernel."""
        return [1] * problem.n_fits

    def tables(
        self, model: KernelModel, names: Sequence[str] | None = None, fit: tuple[TriClassProblem, TriClassState] | None = None
    ) -> Tables:
        """If the fit is given, return the validation with its baselines, the starts, and the steps of every start."""
        if fit is None:
            return {}
        problem, state = fit
        starts = [
            {**({"class": label} if problem.n_machines > 1 else {}), "start": name}
            for label in problem.inputs.classes[: None if problem.n_machines > 1 else 1]
            for name in problem.names
        ]
        steps = [{**dict(zip(PATH_COLUMNS, row, strict=True)), **starts[int(row[1])]} for row in state.path.tolist()]
        return {
            "validation": problem.validation(state),
            "starts": [{**start, **_start_row(problem, machine)} for start, machine in zip(starts, state.machines, strict=False)],
            "assignments": [{key: int(value) if key in WHOLE_NUMBERS else value for key, value in row.items()} for row in steps],
        }


def shared_problem(
    config: TriClassConfig,
    inputs: TriClassInputs,
    fits: Sequence[np.ndarray | None],
    folds: Sequence[np.ndarray],
    resources: Resources,
) -> TriClassProblem:
    """Return the problem that contains a fit for each mask of labelled rows to leave out, and the folds that validate the first fit.

    The folds of an automatic validation are omitted if they do not fit in memory, or if the solver reads the matrix by passes.
    """
    spec, is_asked = resolve_kernel(config, inputs.data, inputs.held_out, inputs.counts), config.validation != "auto"
    machines, limit = count_machines(config, inputs, len(fits), len(folds) if is_asked else 0), resources.driver_memory
    layout = decide(config, spec, inputs, resources, machines)
    check_memory(TriClass.name, driver_items(config, layout, inputs, limit, machines), resources, "fewer rows")
    if not is_asked and folds:
        more = driver_items(config, layout, inputs, limit, count_machines(config, inputs, len(fits), len(folds)))
        folds = folds if layout.solver_reads == "matrix" and total_bytes(more) <= limit else ()
    masks = *fits, *folds
    points = tuple(make_points(config, inputs, mask, machine) for mask in masks for machine in range(inputs.n_machines))
    return TriClassProblem(config, inputs, spec, layout, points, masks, len(fits), resources)


def _doubts(problem: TriClassProblem, state: TriClassState) -> list[str]:
    """Return warnings: if 0 may be a class, and if the validation shows that the unlabelled rows did not help."""
    doubts, better, inputs = [], problem.better_baseline(state), problem.inputs
    if problem.config.irrelevant_label == "auto" and [*map(label_spelling, inputs.classes)] == ["1", "2"] and not inputs.relevant.all():
        doubts = ["the labels are 0, 1 and 2, and 0 was read as rows of neither class: if it is a class, set irrelevant_label=None"]
    if better is None:
        return doubts
    name, lost, won = better
    rows = {row["machine"]: row for row in problem.validation(state)}
    which = "labelled rows alone" if name == "SVM" else "all unlabelled rows irrelevant"
    of_folds = f" in {rows[name]['folds']} folds" if rows[name]["folds"] > 1 else ""
    return [
        *doubts,
        f"the unlabelled rows did not help on held-out rows{of_folds}: accuracy {rows['3C-SVM']['accuracy']:.4f}, of the {name} "
        f"{rows[name]['accuracy']:.4f} ({which}), which is right on {lost} rows where this model is wrong, and wrong on {won} where "
        "it is right; lower C_unlabelled, or fit without unlabelled rows",
    ]


def _assigned(problem: TriClassProblem, assignment: np.ndarray) -> dict[str, int]:
    """Return the number of unlabelled rows of every class."""
    return {str(label): int(np.sum(assignment == code)) for code, label in enumerate(problem.inputs.classes)}


def _start_row(problem: TriClassProblem, machine: SearchState) -> dict[str, Any]:
    C, mask = problem.config.C, problem.inputs.held_out
    row = {
        "objective": machine.objective / C,
        "gap": machine.gap / C,
        "convex_problems": machine.solves,
        **problem.counts(machine),
        "stop": machine.stop,
    }
    if problem.n_machines > 1:  # (one class against the rest has no accuracy that compares with that of the fit)
        return row
    accuracy = problem.accuracy([machine], np.zeros(len(problem.inputs.truth), dtype=bool) if mask is None else mask)
    return {**row, "test_accuracy": None if np.isnan(accuracy) else accuracy}


def validation_rows(array: np.ndarray) -> list[dict[str, Any]]:
    """Return the rows of a validation from the array of a model: accuracy, deviation (NaN if unknown), folds."""
    names = (*BASELINES, "3C-SVM")
    return [
        {"machine": name, "accuracy": accuracy, "deviation": None if deviation != deviation else deviation, "folds": int(folds)}
        for name, (accuracy, deviation, folds) in zip(names, array.tolist(), strict=False)
    ]


def _unfinished(config: TriClassConfig, state: TriClassState) -> str:
    if state.stop == "stalled":
        return f"tol={config.tol:g} was not reached: the gap of the best start's last convex problem stays above it by rounding"
    return f"max_iter={config.max_iter} ended the best start while assignments still changed"
