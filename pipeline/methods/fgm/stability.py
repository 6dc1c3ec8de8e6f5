"""Selection stability: how often atoms are selected over bootstrap resamples of the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...inputs.labels import Inputs
from ...loops.run import run_loop
from ...records.context import RunContext
from .config import FGMConfig
from .fgm_setup import build_atoms, build_machines
from .loop import FGMLoop
from .machine import Machine
from .model import positions


def _resampled(machines: list[Machine], seed: np.random.SeedSequence) -> list[Machine]:
    n = len(machines[0].y)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n)).astype(float)
    return [replace(machine, cost=machine.cost * counts) for machine in machines]


def _has_both(machine: Machine) -> bool:
    used = machine.cost > 0
    return bool(np.any(machine.y[used] > 0) and np.any(machine.y[used] < 0))


def bootstrap_frequencies(config: FGMConfig, inputs: Inputs, ctx: RunContext, n_resamples: int, reference: np.ndarray) -> np.ndarray:
    """Return selection frequencies over ``n_resamples`` resamples that share the passes of one loop.

    Returns
    -------
    numpy.ndarray
        One frequency per atom; for pairs one per row of ``reference``.
    """
    atoms, available = build_atoms(config, inputs)
    config = config.model_copy(update={"B": min(config.B, available)})
    machines = build_machines(config, inputs)
    seeds = np.random.SeedSequence(ctx.seed).spawn(n_resamples)
    resamples = [machine for seed in seeds for machine in _resampled(machines, seed) if _has_both(machine)]
    state = run_loop(FGMLoop(atoms, resamples), ctx, keep=False).state
    counts = np.zeros(len(reference) if config.feature_map == "poly2" else available)
    for found in state.machines:
        _count(counts, found.selected(), reference, config.feature_map == "poly2")
    return counts / max(len(resamples), 1)


def _count(counts: np.ndarray, selected: np.ndarray, reference: np.ndarray, pairs: bool) -> None:
    if not pairs:
        counts[selected] += 1.0
        return
    known = {tuple(pair) for pair in reference.tolist()}
    shared = np.array([pair for pair in selected.tolist() if tuple(pair) in known], np.int64).reshape(-1, 2)
    counts[positions(reference, shared)] += 1.0
