"""Selection stability: how often atoms are selected over bootstrap resamples of the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...inputs.labels import Inputs
from ...loops.run import run_loop
from ...records.context import RunContext
from .atoms import build_atoms
from .config import FGMConfig
from .loop import FGMLoop
from .model import positions
from .problem import BinaryProblem, binary_problems


def _resample(problems: list[BinaryProblem], seed: np.random.SeedSequence) -> list[BinaryProblem]:
    """Return those of the resampled problems that have both labels."""
    n = len(problems[0].y)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n)).astype(float)
    resampled = [replace(problem, cost=problem.cost * counts) for problem in problems]
    return [problem for problem in resampled if len(np.unique(problem.y[problem.cost > 0])) == 2]


def bootstrap_frequencies(config: FGMConfig, inputs: Inputs, ctx: RunContext, n_resamples: int, reference: np.ndarray) -> np.ndarray:
    """Return how often atoms are selected over ``n_resamples`` resamples that share the passes of one loop. One frequency per atom; for
    pairs one per row of ``reference``.
    """
    atoms, is_pairs = build_atoms(config, inputs), config.feature_map == "poly2"
    available = atoms.count(int(inputs.data.n_cols))
    problems = binary_problems(config.model_copy(update={"B": min(config.B, available)}), inputs)
    seeds = np.random.SeedSequence(ctx.seed).spawn(n_resamples)
    resamples = [problem for seed in seeds for problem in _resample(problems, seed)]
    state = run_loop(FGMLoop(atoms, resamples), ctx, keep=False).state
    counts, known = np.zeros(len(reference) if is_pairs else available), {tuple(pair) for pair in reference.tolist()} if is_pairs else set()
    for machine in state.machines:
        selected = machine.selected()
        if is_pairs:
            shared = [pair for pair in selected.tolist() if tuple(pair) in known]
            selected = positions(reference, np.array(shared, np.int64).reshape(-1, 2))
        counts[selected] += 1.0
    return counts / max(len(resamples), 1)
