"""Selection stability: how often atoms are selected over bootstrap resamples of the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...inputs.labels import Inputs
from ...loops.run import run_loop
from ...records.context import RunContext
from .candidates import build_atoms
from .config import FGMConfig
from .loop import FGMLoop
from .model import positions
from .problem import BinaryProblem, binary_problems


def _resample(problems: list[BinaryProblem], seed: np.random.SeedSequence) -> list[BinaryProblem]:
    n = len(problems[0].y)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n)).astype(float)
    return [replace(problem, cost=problem.cost * counts) for problem in problems]


def _has_both_labels(problem: BinaryProblem) -> bool:
    used = problem.cost > 0
    return bool(np.any(problem.y[used] > 0) and np.any(problem.y[used] < 0))


def bootstrap_frequencies(config: FGMConfig, inputs: Inputs, ctx: RunContext, n_resamples: int, reference: np.ndarray) -> np.ndarray:
    """Return how often atoms are selected over ``n_resamples`` resamples that share the passes of one loop. One frequency per atom; for
    pairs one per row of ``reference``.
    """
    atoms, is_pairs = build_atoms(config, inputs), config.feature_map == "poly2"
    available = atoms.count(int(inputs.data.n_cols))
    problems = binary_problems(config.model_copy(update={"B": min(config.B, available)}), inputs)
    seeds = np.random.SeedSequence(ctx.seed).spawn(n_resamples)
    resamples = [problem for seed in seeds for problem in _resample(problems, seed) if _has_both_labels(problem)]
    state = run_loop(FGMLoop(atoms, resamples), ctx, keep=False).state
    counts = np.zeros(len(reference) if is_pairs else available)
    for machine in state.machines:
        selected = machine.selected()
        counts[_positions_of_pairs(selected, reference) if is_pairs else selected] += 1.0
    return counts / max(len(resamples), 1)


def _positions_of_pairs(selected: np.ndarray, reference: np.ndarray) -> np.ndarray:
    known = {tuple(pair) for pair in reference.tolist()}
    shared = np.array([pair for pair in selected.tolist() if tuple(pair) in known], np.int64).reshape(-1, 2)
    return positions(reference, shared)
