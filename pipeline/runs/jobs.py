"""Jobs: whole fits of a search that run as tasks. Fits without distributed passes run in parallel: points of a grid, folds, repetitions.

A job runs a fit in the process of its worker exactly as the driver would. Results are bit-identical, because the job uses the same
parameters, the same folds and the same ``driver_memory``, on which decisions depend. Points whose fits use one another as a warm start form
one job. A job has its own folders with checkpoints and final scores. Finished fits are not repeated; interrupted fits resume.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...cluster import BlockProgram, bytes_text, open_executor, plan
from ...storage import RunLocked, open_shared
from ...storage.errors import Json
from ..core.memory import OVERHEAD
from ..core.method import Problem
from ..core.resources import RunContext, Shared, ignore, resolve
from ..core.search import read_scores, write_scores
from ..models.held_out_scores import read_scoring
from ..passes.blocks import join_lists
from ..records.config import make_config
from ..registry import MethodInfo
from .run import jsonable
from .search import Group, Search

FITS = "whole fits: points of the grid, folds, repetitions"  # what workers do of a search whose fits are the work of one process each
RESULT_BYTES = 1 << 16  # the scores of a job, at most


@dataclass(frozen=True)
class FitJob:
    """Fits of a search on the same fold: a single fit, or a group of fits that use one another as a warm start."""

    points: tuple[int, ...]  # numbers in the grid
    fold: int
    memory: int  # bytes that it takes at most
    nbytes: int  # bytes of the store, which it reads at least once


def job_bytes(problem: Problem) -> int:
    """Return the peak memory in bytes of a fit in a single process: the driver's memory, and one step of a pass."""
    return int(problem.plan["driver_bytes"] + problem.plan["task_bytes"]) + OVERHEAD


def run_job(job: FitJob, info: MethodInfo, order: Shared) -> list[Json]:
    """Return the scores of a job, computed on a worker. ``order`` contains the settings that all jobs share; see :func:`_order`."""
    told = json.loads(resolve(order).tobytes())
    data, chosen = open_shared(told["data"], told["digest"]), {name: [told[name][k] for k in job.points] for name in ("given", "params")}
    configs = [make_config(info.config, params) for params in chosen["params"]]
    split = {name: told[name] for name in ("folds", "seed", "extra", "repeats", "column")}
    search = Search(info, chosen["given"], configs, data, **split, scoring=read_scoring(told["scoring"]))
    with open_executor(None) as executor:
        ctx = search.context(executor, told["driver_memory"], ignore)
        (group,) = search.groups(ctx)
        numbers = [job.points[k] for k in group.points]
        store = replace(group, points=numbers).store(Path(told["folder"]), ignore)
        try:
            scores = [*group.scores([job.fold], ctx, store)]
        except RunLocked:
            # A worker that was taken for lost may still be at it, and holds a folder. These fits end with the same scores.
            scores = [*group.scores([job.fold], ctx, None)]
    return [write_scores(scores, numbers)]


def _order(search: Search, ctx: RunContext, folder: Path) -> np.ndarray:
    """Return the settings that all jobs share as JSON text in a uint8 array, because only arrays are shared with workers."""
    fits = {
        "params": [config.model_dump(mode="json") for config in search.configs],
        "given": search.points,
        "extra": jsonable(search.extra),
    }
    split = {"folds": search.folds, "seed": search.seed, "repeats": search.repeats, "column": search.column}
    data = {"data": ctx.data.url, "digest": ctx.data.digest, "driver_memory": ctx.driver_memory, "folder": str(folder.resolve())}
    return np.frombuffer(json.dumps({**fits, **split, **data, "scoring": search.scored_by}).encode(), np.uint8)


def run_jobs(search: Search, groups: Sequence[Group], ctx: RunContext, folder: Path) -> list[Group]:
    """Run all fits without distributed passes on workers and keep their scores. Return the groups, with these fits in groups of their own.

    The driver later runs the remaining fits one by one: fits with distributed passes, and fits that exceed a worker's memory, for which a
    warning is given. Finished fits are skipped.
    """
    if ctx.executor.kind == "sync":
        return [*groups]
    parts = [part for group in groups for part in _parts(group, ctx)]
    whole = {tuple(part.points): part for part in parts if part.is_whole}
    if jobs := _jobs(whole, ctx, folder):
        program = BlockProgram("fits", run_job, join_lists, lambda job: job.memory, RESULT_BYTES * len(jobs), patient=True)
        done = ctx.run_pass(plan(program, jobs, search.info, ctx.share("fits", _order(search, ctx, folder), len(jobs))))
        for job, rows in zip(jobs, done, strict=True):
            part = whole[job.points]
            part.store(folder, ignore).keep_all(read_scores(rows, part.points))
    return parts


def _parts(group: Group, ctx: RunContext) -> list[Group]:
    """Return a group unchanged if any of its fits has distributed passes. Otherwise, divide it into parts, each of which becomes one job
    per fold.
    """
    if any(group.problem(point, 0, ctx).distributed for point in range(len(group.points))):
        return [group]
    return group.parts()


def _jobs(parts: Mapping[tuple[int, ...], Group], ctx: RunContext, folder: Path) -> list[FitJob]:
    nbytes, jobs, largest = int(sum(ref.nbytes for ref in ctx.data.column_blocks())), list[FitJob](), 0
    for points, part in parts.items():
        store = part.store(folder, ignore)
        left = [fold for fold in range(len(part.splits)) if any(store.scores([(k, fold)]) is None for k in range(len(points)))]
        if not left:
            continue
        memory = max(job_bytes(part.problem(k, left[0], ctx)) for k in range(len(points)))
        if memory <= ctx.executor.task_memory:
            jobs += [FitJob(points, fold, memory, nbytes) for fold in left]
        largest = max(largest, memory)
    if largest > ctx.executor.task_memory:
        sizes = f"a fit takes up to {bytes_text(largest)} and a worker can give it {bytes_text(ctx.executor.task_memory)}"
        advice = "give workers more memory (--worker-memory) or the fits less (--driver-memory)"
        ctx.emit({"event": "warning", "message": f"fits run in this process one after another: {sizes}; {advice}"})
    return jobs
