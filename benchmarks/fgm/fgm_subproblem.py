"""The FGM sub-problem alone: seconds of every solver over all rounds of a run, beside steps, objective and gap.

    python -m benchmarks.fgm.fgm_subproblem                     # tiny, seconds
    python -m benchmarks.fgm.fgm_subproblem --case small        # 1,000 x 500, 10 cuts of 10 columns
    python -m benchmarks.fgm.fgm_subproblem --case sparse       # 10,000 x 500,000, 10 cuts of 20 sparse columns
    python -m benchmarks.fgm.fgm_subproblem --case dense        # 4,096 x 4,096, 10 cuts of 30
    python -m benchmarks.fgm.fgm_subproblem --case tall         # 200,000 x 500 in blocks of rows

Scoring is plain NumPy and not timed. "newton-3" is capped at three steps a round; "apg-decrease" is the paper's stop, when F falls by less
than the tolerance: fast and not solved, look at its gap. Targets are those of one thread on an idle machine.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramplane.kernels.mixed_norm import GroupProblem, GroupSolution, rows_for, solve_apg, solve_mkl, solve_newton
from gramplane.pipeline.synthetic.linear import Planted, dense_linear, sparse_linear


@dataclass(frozen=True)
class Case:
    """The data, the cuts, the cost, and the seconds the default solver may take."""

    make: Callable[[], Planted]
    cut: int
    rounds: int
    cost: float
    target: float = np.inf


CASES = {
    "tiny": Case(partial(dense_linear, 300, 100, 20, n_test=1), 5, 5, 10.0),
    "small": Case(partial(dense_linear, 1000, 500, 60, n_test=1), 10, 10, 10.0),
    "sparse": Case(partial(sparse_linear, n_test=1), 20, 10, 10.0, 0.055),
    "dense": Case(partial(dense_linear, n_test=1), 30, 10, 10.0, 0.15),
    "dense60": Case(partial(dense_linear, n_test=1), 60, 10, 10.0),
    "tall": Case(partial(dense_linear, 200_000, 500, 60, n_test=1), 10, 5, 1.0),
}

SOLVERS: dict[str, Callable[..., GroupSolution]] = {
    "newton": solve_newton,
    "newton-3": partial(solve_newton, max_iter=3),
    "apg": solve_apg,
    "apg-decrease": partial(solve_apg, until="decrease"),
    "mkl": solve_mkl,
}


@dataclass
class Run:
    """One run over all rounds; seconds and steps of the sub-problems only."""

    wall: float = 0.0
    cpu: float = 0.0
    steps: int = 0
    worst_gap: float = 0.0
    objective: float = np.inf


def cutting_planes(X: Any, y: np.ndarray, case: Case, options: argparse.Namespace, solve: Callable[..., GroupSolution]) -> Run:
    """Alternate top-B scoring and the sub-problem, warm-started, as FGM does."""
    share = np.mean(y > 0)
    u = np.where(y > 0, 1 - share, -share) if options.bias else y
    free = np.ones((len(y), int(options.bias)))
    ids, warm, run = np.zeros(0, dtype=np.int64), (np.zeros(0), np.zeros(free.shape[1])), Run()
    for _ in range(case.rounds):
        scores = np.abs(X.T @ u)
        ids = np.append(ids, np.lexsort((np.arange(len(scores)), -scores))[: case.cut])
        Z = X[:, ids] if sp.issparse(X) else np.asfortranarray(X[:, ids])
        wall, cpu = time.perf_counter(), time.process_time()
        rows = rows_for(Z, y, np.full(len(y), case.cost), options.loss, free)
        problem = GroupProblem(rows, np.arange(0, len(ids) + 1, case.cut))
        found = solve(problem, warm=(np.append(warm[0], np.zeros(case.cut)), warm[1]), tol=options.tol)
        run.wall, run.cpu = run.wall + time.perf_counter() - wall, run.cpu + time.process_time() - cpu
        run.steps += found.iterations
        run.worst_gap, run.objective = max(run.worst_gap, found.gap / found.objective), found.objective
        warm, u = (found.omega, found.free), found.residual
    return run


def main() -> None:
    parser = bench.arguments(__doc__, case="tiny", loss="squared_hinge", tol=1e-3, solvers=",".join(SOLVERS), dtype="float64")
    parser.add_argument("--bias", action="store_true")
    options = parser.parse_args()
    if options.tiny:
        options.case, options.reps = "tiny", 1
    case, chosen = CASES[options.case], options.solvers.split(",")
    data = case.make()
    X, y = (sp.csc_array(data.X) if sp.issparse(data.X) else data.X).astype(options.dtype), data.y.astype(np.float64)
    runs: dict[str, list[Run]] = {name: [] for name in chosen}
    for rep in range(-1, options.reps):
        for name in chosen:
            run = cutting_planes(X, y, case, options, SOLVERS[name])
            if rep >= 0:
                runs[name].append(run)
    report = bench.Report(
        f"FGM sub-problem, {options.case}, {case.rounds} cuts of {case.cut}, {options.loss}, tolerance {options.tol:g}", options
    )
    for name, rows in runs.items():
        timing = bench.Timing([run.wall for run in rows], [run.cpu for run in rows], rows[-1])
        report.time(name, timing)
        report.value(f"{name}: ms per step", 1e3 * timing.median / max(rows[-1].steps, 1))
        report.value(f"{name}: F", rows[-1].objective, form=".8g")
        report.value(f"{name}: worst gap / F", rows[-1].worst_gap)
    plain = not options.bias and options.loss == "squared_hinge" and "newton" in runs
    if plain and np.isfinite(case.target):
        report.value("newton, best of all, processor seconds", min(run.cpu for run in runs["newton"]), f"<= {case.target}", unit=" s")
    report.show()


if __name__ == "__main__":
    main()
