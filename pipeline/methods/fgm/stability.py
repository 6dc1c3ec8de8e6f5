"""Selection stability: how often atoms are selected over bootstrap resamples of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.engine import iterate
from ...core.resources import Resources
from ...inputs.labels import Inputs
from ...records.data_set import feature_namer
from .atoms import build_atoms
from .config import FGMConfig
from .method import FGM, FGMProblem, checked_problem, resolve_config
from .model import FGMModel, positions, selected_atoms
from .problem import MachineProblem, machine_problems

Key = tuple[int, ...]  # number of a feature or group, or the two of a product
MIN_STEADY = 0.8  # share of the resamples that select what the summary counts as steady


def _resample(problems: list[MachineProblem], seed: np.random.SeedSequence) -> list[MachineProblem]:
    """Return the resampled problems that have both labels and whose covariates are still independent."""
    n = len(problems[0].y)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n)).astype(float)
    resampled = [problem.reweighted(counts) for problem in problems]
    return [problem for problem in resampled if problem.is_solvable]


def bootstrap_problem(config: FGMConfig, inputs: Inputs, resources: Resources, n_resamples: int) -> FGMProblem:
    """Return one problem for all resamples, so that they share passes. Raises MemoryBoundExceeded if the columns exceed the memory."""
    config = resolve_config(config, inputs)
    atoms = build_atoms(config, inputs)
    available = atoms.count(int(inputs.data.n_cols))
    problems = machine_problems(config.model_copy(update={"B": min(config.B, available)}), inputs)
    seeds = np.random.SeedSequence(resources.seed).spawn(n_resamples)
    resampled = [problem for seed in seeds for problem in _resample(problems, seed)]
    return checked_problem(config, inputs, atoms, resampled, resources)


def _selections(problem: FGMProblem, resources: Resources) -> tuple[np.ndarray, np.ndarray]:
    """Return the atoms that any resample selects, ascending, and for each atom the fraction of resamples that select it."""
    machines = iterate(FGM(), problem, resources).state.machines
    selections = [ids for machine in machines if len(ids := selected_atoms([machine]))]
    ids, counts = np.unique(np.concatenate(selections or [np.zeros(0, np.int64)]), axis=0, return_counts=True)
    return ids, counts / max(len(machines), 1)


def bootstrap_frequencies(config: FGMConfig, inputs: Inputs, resources: Resources, n_resamples: int, reference: np.ndarray) -> np.ndarray:
    """Return the fraction of ``n_resamples`` resamples that select each atom. For pairs, return the fraction for each row of ``reference``.

    The resamples share the passes of one fit.
    """
    problem = bootstrap_problem(config, inputs, resources, n_resamples)
    ids, shares = _selections(problem, resources)
    if config.feature_map != "poly2":
        frequencies = np.zeros(problem.n_atoms)
        frequencies[ids] = shares
        return frequencies
    known = {tuple(pair) for pair in reference.tolist()}
    shared = np.array([tuple(pair) in known for pair in ids.tolist()], bool)
    frequencies = np.zeros(len(reference))
    frequencies[positions(reference, ids[shared].reshape(-1, 2))] = shares[shared]
    return frequencies


def stability_table(problem: FGMProblem, model: FGMModel, resources: Resources) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a table and its summary. The table has a row for every atom that any resample or the model selects, by descending
    frequency.
    """
    ids, shares = _selections(problem, resources)
    chosen = set(_keys(selected_atoms(model.machines)))
    found = dict(zip(_keys(ids), shares.tolist(), strict=True))
    of_groups, name = problem.atoms.kind == "groups", feature_namer(problem.data)
    ranked = sorted({*found, *chosen}, key=lambda key: (-found.get(key, 0.0), key))
    names = [f"group {key[0]}" if of_groups else "*".join(name(j) for j in key if j >= 0) for key in ranked]
    rows = [
        {"feature": text, "frequency": found.get(key, 0.0), "in_the_fit": key in chosen} for key, text in zip(ranked, names, strict=True)
    ]
    frequencies = [found.get(key, 0.0) for key in sorted(chosen)]
    summary = {
        "resamples": len(problem.problems) // max(problem.inputs.n_machines, 1),
        "n_selected": len(frequencies),
        "mean_frequency": float(np.mean(frequencies)) if frequencies else None,
        "steady": sum(share >= MIN_STEADY for share in found.values()),
        "ever_selected": len(found),
    }
    return rows, summary


def _keys(ids: np.ndarray) -> list[Key]:
    return [tuple(row) for row in np.reshape(ids, (len(ids), -1)).astype(int).tolist()]
