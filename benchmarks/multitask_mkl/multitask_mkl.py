"""Multiple kernel learning for many tasks (MK-MTFL): small tasks in memory, tasks in a Gram store on workers, the School data.

    GRAMPLANE_DATA=FOLDER python -m benchmarks.multitask_mkl.multitask_mkl --parts memory,store,school

``memory``: 20 tasks of 200 rows on 50 kernels to a gap of 1e-3, for three norms over tasks, beside one l1 loop around scikit-learn's SVC
per task and beside the thesis' nested mirror descent with our machines inside. ``store``: 50 tasks of 1,000 rows on 20 kernels in Zarr
beyond the driver's budget, on one and on two workers; seconds of a step beside those of reading its bytes. ``school``: 139 tasks, 15
training rows each, C by three folds of these; explained variance of the rest (mean over tasks, and over all rows together); ``--norms
2,6,8.67`` for all three (minutes each).
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._mkl_peer import Machine, strong_loop
from gramplane.cluster import open_executor
from gramplane.kernels.grams.blocks import gram_block
from gramplane.kernels.grams.spec import as_specs
from gramplane.kernels.jit import one_thread
from gramplane.pipeline.inputs.labels import Inputs
from gramplane.pipeline.inputs.tasks import with_tasks
from gramplane.pipeline.loops.run import run_loop
from gramplane.pipeline.methods.multitask_mkl.config import MultiTaskMKLConfig
from gramplane.pipeline.methods.multitask_mkl.method import MultiTaskMKL, shared_loop
from gramplane.pipeline.models.task import TaskModel
from gramplane.pipeline.models.task_predict import decide_task_rows
from gramplane.pipeline.records.context import RunContext
from gramplane.storage import MemoryBlocks

NORMS = (2.0, 6.0, 8.67)
C, TOL = 1.0, 1e-3
SCORED = (0.1, 0.3, 1.0, 3.0)
"""C tried for the score of a method; a half of the rows left chooses, the other is counted."""

COSTS = tuple(10.0 ** (step / 2) for step in range(-6, 0))
WIDTHS = (0.1, 1.0, 10.0)


# -- many small tasks in memory -------------------------------------------------------------------------------------------------


def tasks(T: int, m: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return X, labels, tasks and a mask of test rows (as many as training rows): five features matter, in every task by other weights."""
    rng = np.random.default_rng(seed)
    X, task, common = rng.normal(size=(2 * T * m, d)), np.repeat(np.arange(T), 2 * m), rng.normal(size=5)
    weights = common + 0.5 * rng.normal(size=(T, 5))
    bent = np.stack([X[:, 0], np.sin(2 * X[:, 1]), X[:, 2] ** 2 - 1, np.tanh(2 * X[:, 3]), np.abs(X[:, 4]) - 0.8], axis=1)
    y = np.where(np.sum(bent * weights[task], axis=1) + 0.5 * rng.normal(size=len(X)) > 0, 1, -1)
    return X, y, task, np.tile(np.arange(2 * m) >= m, T)


class Search:
    """The search for weights of all tasks on Gram matrices that are there: what is timed; then its model."""

    def __init__(self, X: np.ndarray, y: np.ndarray, task: np.ndarray, kernels: Sequence[str], cost: float = C, **options: Any) -> None:
        config = MultiTaskMKLConfig(kernels=list(kernels), C=cost, tol=TOL, **options)
        inputs = with_tasks(Inputs(MemoryBlocks(X), (y > 0).astype(np.int64), (-1, 1)), task)
        ctx = RunContext(open_executor(None).__enter__(), inputs.data, driver_memory=8 << 30)
        self._method = MultiTaskMKL.start(config, inputs, ctx)
        self.loop = self._method.loop
        self.loop.grams(ctx)

    def run(self) -> Any:
        """Search, and return the last state."""
        return run_loop(self.loop, self._method.ctx, keep=False).state

    def model(self, state: Any) -> TaskModel:
        """Return the model of a state."""
        return self._method.model(state, self._method.ctx)


def banks(X: np.ndarray, task: np.ndarray, kernels: Sequence[str]) -> list[np.ndarray]:
    """Return the matrices of every task as the loops read them, trace n."""
    specs, found = as_specs(list(kernels), X.shape[1]), []
    for t in np.unique(task):
        grams = gram_block(specs, X[task == t], None, dtype=np.float64)
        found.append(grams / (np.trace(grams, axis1=1, axis2=2)[:, None, None] / grams.shape[1]))
    return found


def loops(grams: list[np.ndarray], y: np.ndarray, task: np.ndarray, cost: float = C) -> list[Machine]:
    """Return one l1 loop around SVC per task."""
    labels = [y[task == t].astype(float) for t in np.unique(task)]
    return [strong_loop(K, own, cost, 1.0, TOL) for K, own in zip(grams, labels, strict=True)]


def loop_accuracy(
    machines: list[Machine],
    X: np.ndarray,
    y: np.ndarray,
    task: np.ndarray,
    trained: np.ndarray,
    counted: np.ndarray,
    kernels: Sequence[str],
) -> float:
    """Return the mean accuracy of the loops over tasks."""
    specs, right = as_specs(list(kernels), X.shape[1]), []
    for t, machine in zip(np.unique(task), machines, strict=True):
        train, rest = X[(task == t) & trained], (task == t) & counted
        scale = np.trace(gram_block(specs, train, None, dtype=np.float64), axis1=1, axis2=2) / len(train)
        blocks = gram_block(specs, X[rest], train[machine.support], dtype=np.float64) / scale[:, None, None]
        values = np.tensordot(machine.theta, blocks, 1) @ machine.beta + machine.bias
        right.append(np.mean((values > 0) == (y[rest] > 0)))
    return float(np.mean(right))


def mean_accuracy(model: TaskModel, X: np.ndarray, y: np.ndarray, task: np.ndarray) -> float:
    """Return the mean accuracy over tasks."""
    hits = (decide_task_rows(model, X, task) > 0) == (y > 0)
    return float(np.mean([hits[task == t].mean() for t in np.unique(task)]))


def memory(report: bench.Report, options: Any) -> None:
    """Add the rows of many small tasks: searches alone, all matrices are there before."""
    T, m, d = (4, 40, 8) if options.tiny else (20, 200, 50)
    X, y, task, test = tasks(T, m, d)
    kernels = [f"rbf(gamma=0.5)[{j}]" for j in range(d)]
    train = X[~test], y[~test], task[~test]
    searches = {p: Search(*train, kernels, p=p) for p in NORMS}
    grams = banks(train[0], train[2], kernels)
    calls: dict[str, Any] = {f"ours, p={p:g}": search.run for p, search in searches.items()}
    calls["loops around SVC"] = lambda: loops(grams, *train[1:])
    times = bench.alternate(calls, 1 if options.tiny else options.reps)
    loop = times["loops around SVC"]
    choosing, counted = (test & (np.cumsum(test) % 2 == part) for part in (0, 1))

    def best(scored: Any) -> float:
        """Return the accuracy on the rows counted, with the C that is best on the others; ``scored(cost)`` gives both."""
        return max(scored(cost) for cost in SCORED)[1]

    def of_loops(cost: float) -> tuple[float, float]:
        found = loops(grams, *train[1:], cost)
        first, second = (loop_accuracy(found, X, y, task, ~test, rows, kernels) for rows in (choosing, counted))
        return first, second

    def of_ours(cost: float, p: float) -> tuple[float, float]:
        search = Search(*train, kernels, cost, p=p)
        model = search.model(search.run())
        first, second = (mean_accuracy(model, X[rows], y[rows], task[rows]) for rows in (choosing, counted))
        return first, second

    score = best(of_loops)
    report.time("loops around SVC, all tasks", loop)
    report.value("loops around SVC, weight vectors tried in all", sum(one.iterations for one in loop.result))
    report.value("loops around SVC, mean accuracy", score)
    for p in NORMS:
        own, nested = times[f"ours, p={p:g}"], Search(*train, kernels, p=p, solver="mirror")
        slow = bench.alternate({"": nested.run}, 1, warm=0)[""]
        found = own.result.searches[0]
        report.time(f"ours, p={p:g}", own)
        report.ratio(f"ours : loops around SVC, p={p:g}", own, loop, 1 / 5)
        report.ratio(f"ours : nested mirror descent, p={p:g}", own, slow, 1 / 5)
        report.value(f"outer solves, p={p:g}", own.result.iteration, "<= 15")
        report.value(f"outer solves of mirror descent, p={p:g}", slow.result.iteration)
        report.value(f"relative gap, p={p:g}", found.relative_gap, f"<= {TOL}")
        report.value(f"mean accuracy, p={p:g}", best(lambda cost, p=p: of_ours(cost, p)), f">= {score:.4f}")


# -- tasks in a store, on workers -----------------------------------------------------------------------------------------------


def store(report: bench.Report, options: Any) -> None:
    """Add the rows of tasks whose matrices lie in Zarr: built once, then read by every step."""
    from gramplane.storage.ingest import ingest

    T, m, k = (4, 60, 4) if options.tiny else (50, 1000, 20)
    X, y, task, _ = tasks(T, m // 2, max(k, 5))
    kernels = [f"rbf(gamma=0.5)[{j}]" for j in range(k)]
    with bench.kept_or_scratch(options.folder) as folder:
        if not (folder / "rows").exists():
            ingest((X, y), folder / "rows", task_column=task)
        found = {place: _run(folder, place, kernels) for place in ("sync", "local:1", "local:2")}
    entries, digests = found["sync"]["gram_bytes"], {one["digest"] for one in found.values()}
    plain = entries / bench.read_bandwidth()
    report.value("store: bytes read by a step", entries / bench.MIB, unit=" MiB")
    report.value("store: reading them once from memory", plain, unit=" s")
    for place, one in found.items():
        report.value(f"store, {place}: seconds of a step (median)", one["step"], unit=" s")
        report.value(f"store, {place}: seconds of a step : plain reads", one["step"] / plain)
        report.value(f"store, {place}: seconds of the whole run", one["seconds"], unit=" s")
    report.value("store: steps", found["sync"]["steps"])
    report.value("store: models that differ", float(len(digests) - 1), "<= 0")


def _run(folder: Path, place: str, kernels: list[str]) -> dict[str, Any]:
    """Return what a run on the store took; the matrices are built by the first."""
    from gramplane import load_model, run_method
    from gramplane.storage import RunStore

    run = folder / f"run-{place.replace(':', '-')}"
    shutil.rmtree(run, ignore_errors=True)
    params = {
        "scale": None,
        "kernels": kernels,
        "p": 6.0,
        "C": C,
        "tol": TOL,
        "grams": "store",
        "gram_store": str(folder / "grams"),
        "max_iter": 25,
    }
    done = run_method("multitask-mkl", params, data=str(folder / "rows"), run=str(run), cluster=place, driver_memory="1GiB")
    history, model = RunStore.open(run).history(), load_model(run).model_
    seconds = [row["seconds"] for row in history]
    # Blocks are checked against their checksums when a process reads them first, in the first step.
    return {
        "step": float(np.median(seconds[1:] or seconds)),
        "seconds": done.summary["seconds"],
        "steps": len(history),
        "gram_bytes": RunStore.open(run).read_json("decisions")["gram_bytes"],
        "digest": hashlib.sha256(model.beta.tobytes() + model.weights.tobytes() + model.intercepts.tobytes()).hexdigest(),
    }


# -- School ---------------------------------------------------------------------------------------------------------------------


def school(report: bench.Report, options: Any) -> None:
    """Add the rows of School, with kernels of single features and of all of them."""
    folder = os.environ.get("GRAMPLANE_DATA")
    if not folder or not (Path(folder) / "school.npz").exists():
        report.note("School: left out, GRAMPLANE_DATA names no folder with school.npz")
        return
    with np.load(Path(folder) / "school.npz") as content:
        X, y, task = content["X"].astype(np.float64), content["y"].astype(np.float64), content["task"].astype(np.int64)
    if options.tiny:
        keep = task < 6
        X, y, task = X[keep], y[keep], task[keep]
    d, splits = X.shape[1], 1 if options.tiny else options.splits
    single = [f"linear[{j}]" for j in range(d)] + [f"rbf(gamma={g})[{j}]" for g in WIDTHS for j in range(d)]
    whole = ["linear", *(f"rbf(gamma={10.0**power:g})" for power in range(-3, 3))]
    for name, kernels in (("feature-wise", single), ("whole", whole)):
        for p in map(float, options.norms.split(",")):
            rows, seconds = zip(*(one_split(X, y, task, kernels, p, seed) for seed in range(splits)), strict=True)
            mean, pooled = (np.array(rows)[:, column] for column in (0, 1))
            wanted = name == "feature-wise" and p == NORMS[1]
            report.value(f"School, {name}, p={p:g}: mean explained variance", float(mean.mean()), ">= 13" if wanted else "")
            report.value(f"School, {name}, p={p:g}: pooled", float(pooled.mean()), ">= 25" if wanted else "")
            report.value(f"School, {name}, p={p:g}: deviation of the mean", float(mean.std(ddof=1)) if splits > 1 else float("nan"))
            report.value(f"School, {name}, p={p:g}: seconds of the last fit", float(np.median(seconds)), unit=" s")


def one_split(X: np.ndarray, y: np.ndarray, task: np.ndarray, kernels: list[str], p: float, seed: int) -> tuple[tuple[float, float], float]:
    """Return mean and pooled explained variance (%) on the rows left, with 15 rows a task to train on, and the seconds of a fit."""
    rng = np.random.default_rng(seed)
    train = np.zeros(len(y), bool)
    for t in np.unique(task):
        train[rng.permutation(np.flatnonzero(task == t))[:15]] = True
    center, spread = X[train].mean(axis=0), np.maximum(X[train].std(axis=0), 1e-9)
    Z, folds = (X - center) / spread, np.empty(int(train.sum()), int)
    for t in np.unique(task):
        own = task[train] == t
        folds[own] = rng.permutation(np.arange(own.sum()) % 3)
    scores = np.zeros(len(COSTS))
    for fold in range(3):
        inside, outside = np.flatnonzero(train)[folds != fold], np.flatnonzero(train)[folds == fold]
        models = regressions(Z[inside], y[inside], task[inside], kernels, p, COSTS)
        found = [decide_task_rows(model, Z[outside], np.searchsorted(model.tasks, task[outside])) for model in models]
        scores -= [np.sum((y[outside] - values) ** 2) for values in found]
    watch = bench.stopwatch()
    (model,) = regressions(Z[train], y[train], task[train], kernels, p, [COSTS[int(np.argmax(scores))]])
    seconds = watch()
    values = decide_task_rows(model, Z[~train], np.searchsorted(model.tasks, task[~train]))
    return explained(y[~train], values, task[~train]), seconds


def regressions(X: np.ndarray, y: np.ndarray, task: np.ndarray, kernels: list[str], p: float, costs: Sequence[float]) -> list[TaskModel]:
    """Return one model per C, all on the same matrices."""
    configs = [MultiTaskMKLConfig(kernels=kernels, p=p, C=cost, loss="squared", tol=1e-2, max_iter=15) for cost in costs]
    inputs = with_tasks(Inputs(MemoryBlocks(X), y, None), task)
    with open_executor(None) as executor:
        ctx = RunContext(executor, inputs.data, driver_memory=8 << 30)
        loop = shared_loop(ctx, configs, inputs, [None])
        state = run_loop(loop, ctx, keep=False).state
        parts = [replace(state, searches=(search,)) for search in state.searches]
        return [MultiTaskMKL(config, inputs, loop, ctx).model(part, ctx) for config, part in zip(configs, parts, strict=True)]


def explained(y: np.ndarray, found: np.ndarray, task: np.ndarray) -> tuple[float, float]:
    """Return ``100 (1 - MSE / variance)``: mean over tasks, and over all rows together."""
    own = [1 - np.mean((y[task == t] - found[task == t]) ** 2) / np.var(y[task == t]) for t in np.unique(task)]
    return 100 * float(np.mean(own)), 100 * float(1 - np.mean((y - found) ** 2) / np.var(y))


PARTS = {"memory": memory, "store": store, "school": school}


def main() -> None:
    """Print the table."""
    parser = bench.arguments(__doc__ or "", parts="memory,store,school", folder=None, splits=10, norms="6")
    options = parser.parse_args()
    report = bench.Report("multiple kernel learning for many tasks", options)
    with one_thread():
        for name in options.parts.split(","):
            PARTS[name](report, options)
    report.show()


if __name__ == "__main__":
    main()
