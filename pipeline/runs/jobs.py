"""Jobs: whole fits of a search as tasks. What no pass divides is divided by fits: points of a grid, folds, repetitions.

A job is told by name what to fit and does all of it in the process of its worker, as the driver would: with the same parameters, the same
masks, the same ``driver_memory``, on which decisions rest, so to the same bits. It keeps its own folder, with checkpoints and, at the
end, its figures: a job that is done is never done again, and one that was killed goes on where it stood.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...cluster import BlockProgram, bytes_text, open_executor, plan
from ...storage import RunLocked, open_shared
from ..core.memory import OVERHEAD
from ..core.method import Problem
from ..core.resources import Shared, resolve
from ..models.held_out_scores import read_scoring
from ..passes.blocks import join_lists
from ..records.config import make_config
from ..records.context import RunContext
from ..registry import MethodInfo
from .folds import Search, build_search, fit_figures, fit_fold, is_done
from .run import jsonable

FITS = "whole fits: points of the grid, folds, repetitions"  # what workers do of a search whose fits are the work of one process each
RESULT_BYTES = 1 << 16  # the figures of a fit, at most


@dataclass(frozen=True)
class FitJob:
    """One fit of a search, by name."""

    point: int
    fold: int
    memory: int  # bytes that it takes at most
    nbytes: int  # bytes of the store, which it reads at least once


def job_bytes(problem: Problem) -> int:
    """Return the bytes that a fit takes at most where it is run in one process: what its driver holds, and a step of its passes."""
    return int(problem.plan["driver_bytes"] + problem.plan["task_bytes"]) + OVERHEAD


def run_job(job: FitJob, info: MethodInfo, order: Shared) -> list[dict[str, Any]]:
    """Return the figures of a fit (on a worker); ``order`` is the text of what all jobs are told, see :func:`_order`."""
    told = json.loads(resolve(order).tobytes())
    with open_executor(None) as executor:
        ctx = RunContext(executor, data=open_shared(told["data"], told["digest"]), driver_memory=told["driver_memory"], seed=told["seed"])
        configs = [make_config(info.config, params) for params in told["params"]]
        split = {name: told[name] for name in ("folds", "seed", "repeats")}
        scoring, column = read_scoring(told["scoring"]), told["group_column"]
        search = build_search(ctx, info, configs, told["points"], told["extra"], **split, scoring=scoring, column=column)
        try:
            return [fit_fold(search, job.point, job.fold, ctx, Path(told["folder"]))]
        except RunLocked:
            # A worker that was taken for lost may still be at it, and holds the folder. This fit ends with the same figures.
            return [fit_figures(search, job.point, job.fold, ctx)]


def _order(search: Search, ctx: RunContext, folder: Path) -> np.ndarray:
    """Return what all jobs are told, as the bytes of a text: they are an array, and travel as one."""
    params = [config.model_dump(mode="json") for config in search.configs]
    fits = {"params": params, "points": search.points, "extra": jsonable(search.extra)}
    folds = int(search.record["folds"])
    data = {"data": ctx.data.url, "digest": ctx.data.digest, "folds": folds, "seed": ctx.seed, "repeats": len(search.masks) // folds}
    data["group_column"] = search.record.get("group_column")
    data["scoring"] = None if search.scoring is None else list(search.scoring.names)
    text = json.dumps({**fits, **data, "driver_memory": ctx.driver_memory, "folder": str(folder.resolve())})
    return np.frombuffer(text.encode(), np.uint8)


def run_jobs(search: Search, ctx: RunContext, folder: Path) -> Mapping[tuple[int, int], dict[str, Any]]:
    """Run the fits that no pass divides on workers, all at once; return their figures by point and fold.

    Left out, for this process to do one after another: fits that are done, those whose passes are distributed, and those that take more
    memory than a worker can give, of which a warning tells.
    """
    if ctx.executor.kind == "sync":
        return {}
    jobs = _jobs(search, ctx, folder)
    if not jobs:
        return {}
    program = BlockProgram("fits", run_job, join_lists, lambda job: job.memory, RESULT_BYTES * len(jobs), patient=True)
    done = ctx.run_pass(plan(program, jobs, search.info, ctx.share("fits", _order(search, ctx, folder), len(jobs))))
    return {(job.point, job.fold): figures for job, figures in zip(jobs, done, strict=True)}


def _jobs(search: Search, ctx: RunContext, folder: Path) -> Sequence[FitJob]:
    nbytes, jobs, largest = int(sum(ref.nbytes for ref in ctx.data.column_blocks())), list[FitJob](), 0
    for point in range(len(search.configs)):
        left = [fold for fold in range(len(search.masks)) if not is_done(folder, point, fold)]
        ready = search.prepared(point, left[0], ctx) if left else None
        if ready is None or ready.distributed:
            continue
        memory = job_bytes(ready)
        if memory <= ctx.executor.task_memory:
            jobs += [FitJob(point, fold, memory, nbytes) for fold in left]
        largest = max(largest, memory)
    if largest > ctx.executor.task_memory:
        sizes = f"a fit takes up to {bytes_text(largest)} and a worker can give it {bytes_text(ctx.executor.task_memory)}"
        advice = "give workers more memory (--worker-memory) or the fits less (--driver-memory)"
        ctx.emit({"event": "warning", "message": f"fits run in this process one after another: {sizes}; {advice}"})
    return jobs
