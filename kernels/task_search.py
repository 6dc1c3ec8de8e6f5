"""Branch and bound over all groups of tasks: those with the greatest ``M_w / d_w^2``, and a bound on what was not looked at.

``M_w = (sum_j m_wj^P)^(1/P)``, P = p / (2 (p - 1)) >= 1. Its square root is a norm of the vectors of the tasks in w, so r more tasks add at
most the r greatest roots of single tasks; leaving tasks out of a group is bounded alike. That prunes all but some thousands of the 2^42
groups of 42 tasks (docs/methods.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .jit import compiled
from .task_lattice import Groups, TaskLattice

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

MAX_VISITS = 20_000_000
"""Groups looked at before the search ends with what it has: some tens of seconds."""


@dataclass(frozen=True)
class GroupSearch:
    """What a search over groups found.

    Attributes
    ----------
    groups
        ``(n_found, T)`` groups whose value is above the threshold, the greatest first; at most as many as asked for.
    values
        Their ``M_w / d_w^2``.
    bound
        Upper bound of the value of every group that is not among them: at most the threshold when the search was complete.
    visits
        Groups looked at.
    complete
        Whether neither the cap on visits nor the cap on the depth cut off anything above the threshold.
    """

    groups: Groups
    values: FloatArray
    bound: float
    visits: int
    complete: bool


def search_groups(
    lattice: TaskLattice,
    forms: FloatArray,
    mu: float,
    p: float,
    threshold: float,
    wanted: int,
    max_depth: int | None = None,
    max_visits: int = MAX_VISITS,
) -> GroupSearch:
    """Return the groups of greatest ``M_w / d_w^2`` above a threshold.

    Parameters
    ----------
    lattice
        Groups and their penalties.
    forms
        ``(k, T, T)`` symmetric, ``A_j[s, t] = beta_s' K_j beta_t``.
    mu
        Weight of the group mean.
    p
        Norm over the kernels, in (1, 2].
    threshold
        Smaller values are of no interest, >= 0.
    wanted
        Greatest number of groups to return; the search is cut off at the least of them once it has so many.
    max_depth
        Greatest number of tasks of a group (in the inverse: of tasks left out), all by default.
    max_visits
        Greatest number of groups looked at.
    """
    inner = p / (2.0 * (p - 1.0))
    tasks = lattice.n_tasks
    own = np.diagonal(forms, axis1=1, axis2=2)
    # Tasks in descending order of their norms, so that a bound reads the next ones.
    order = np.argsort(-_norms(own.T * (1.0 + 1.0 / mu), inner), kind="stable")
    sorted_forms = np.ascontiguousarray(forms[:, order[:, None], order], np.float64)
    roots = np.sqrt(_norms(own.T[order] * (1.0 + 1.0 / mu), inner))
    most = lattice.deepest
    deepest = most if max_depth is None else max(min(max_depth, most), 1)
    values, marks = np.zeros(wanted), np.zeros((wanted, tasks), np.uint8)
    found, visits, bound, complete = _search(
        sorted_forms, roots, 1.0 / mu, inner, float(lattice.a), lattice.inverted, deepest, most, float(threshold), max_visits,
        values, marks,
    )  # fmt: skip
    chosen = np.zeros((found, tasks), bool)
    chosen[:, order] = marks[:found].astype(bool)
    ranked = np.argsort(-values[:found], kind="stable")
    return GroupSearch(lattice.marks(chosen)[ranked], values[:found][ranked], float(bound), int(visits), bool(complete))


def _norms(forms: FloatArray, inner: float) -> FloatArray:
    """Return the norm over the last axis with exponent ``inner``, safe against overflow."""
    top = forms.max(axis=-1, initial=0.0)
    safe = np.where(top > 0, top, 1.0)
    return np.where(top > 0, safe * ((np.maximum(forms, 0.0) / safe[..., None]) ** inner).sum(axis=-1) ** (1.0 / inner), 0.0)


@compiled
def _search(
    forms: FloatArray,
    roots: FloatArray,
    shared: float,
    inner: float,
    a: float,
    inverted: bool,
    deepest: int,
    most: int,
    threshold: float,
    max_visits: int,
    values: FloatArray,
    marks: NDArray[np.uint8],
) -> tuple[int, int, float, bool]:
    """Depth first over sets of marks in ascending order; ``values`` and ``marks`` hold the best so far, a heap with the least on top."""
    k, tasks = forms.shape[0], forms.shape[1]
    sign = -1.0 if inverted else 1.0
    # Level l: the forms of the set of l marks and the sums of their tasks' columns.
    level_forms, crossed = np.zeros((deepest + 1, k)), np.zeros((deepest + 1, k, tasks))
    level_next, chosen = np.zeros(deepest + 2, np.int64), np.zeros(deepest + 1, np.int64)
    current = np.zeros(tasks, np.uint8)
    trial = np.zeros(k)
    reach = np.zeros(tasks + 1)
    scale = np.ones(tasks + 1)
    for t in range(tasks):
        reach[t + 1] = reach[t] + roots[t]
        scale[t + 1] = scale[t] / (a * a)
    if inverted:
        for j in range(k):
            for s in range(tasks):
                level_forms[0, j] += forms[j, s, s]
                for t in range(tasks):
                    crossed[0, j, t] += forms[j, s, t]
                    level_forms[0, j] += shared * forms[j, s, t]
    found, visits, bound, complete = 0, 0, 0.0, True
    cut = threshold
    if inverted:
        visits = 1
        value = _norm(level_forms[0], inner)
        if value > cut:
            values[0] = value
            found = 1
            if found == len(values):
                cut = value
        else:
            bound = value
    depth = 0
    level_next[0] = 0
    while depth >= 0:
        t = level_next[depth]
        if t == tasks or depth == deepest:
            if depth > 0:
                current[chosen[depth]] = 0
            depth -= 1
            continue
        level_next[depth] = t + 1
        for j in range(k):
            own = forms[j, t, t]
            trial[j] = max(level_forms[depth, j] + sign * (own + 2.0 * shared * crossed[depth, j, t]) + shared * own, 0.0)
        visits += 1
        raw = _norm(trial, inner)
        value = raw * scale[depth + 1]
        if value > cut:
            current[t] = 1
            found, bound = _keep(value, current, found, values, marks, bound)
            current[t] = 0
            if found == len(values):
                cut = values[0]
        else:
            bound = max(bound, value)
        # The best that r more marks, each after t, can make of it.
        root, best = np.sqrt(raw), 0.0
        for r in range(1, min(most - depth - 1, tasks - t - 1) + 1):
            best = max(best, (root + reach[t + 1 + r] - reach[t + 1]) ** 2 * scale[depth + 1 + r])
        if best <= cut:
            bound = max(bound, best)
        elif depth + 1 == deepest or visits >= max_visits:
            bound, complete = max(bound, best), False
        else:
            depth += 1
            chosen[depth] = t
            current[t] = 1
            level_next[depth] = t + 1
            for j in range(k):
                level_forms[depth, j] = trial[j]
                for s in range(tasks):
                    crossed[depth, j, s] = crossed[depth - 1, j, s] + sign * forms[j, t, s]
        if visits >= max_visits:
            # What the open levels would still have looked at.
            for level in range(depth + 1):
                root = np.sqrt(_norm(level_forms[level], inner))
                first = level_next[level]
                for r in range(1, min(most - level, tasks - first) + 1):
                    bound = max(bound, (root + reach[first + r] - reach[first]) ** 2 * scale[level + r])
            complete = complete and bound <= cut
            break
    return found, visits, bound, complete


@compiled
def _norm(forms: FloatArray, inner: float) -> float:
    top = 0.0
    for j in range(forms.size):
        top = max(top, forms[j])
    if top <= 0.0 or inner == 1.0:
        return forms.sum() if inner == 1.0 else 0.0
    total = 0.0
    for j in range(forms.size):
        ratio = forms[j] / top
        total += ratio * np.sqrt(ratio) if inner == 1.5 else ratio**inner
    return top * total ** (1.0 / inner)


@compiled
def _keep(
    value: float, current: NDArray[np.uint8], found: int, values: FloatArray, marks: NDArray[np.uint8], bound: float
) -> tuple[int, float]:
    """Put a set into the heap; the least leaves a full one and joins the bound."""
    if found < len(values):
        at = found
        found += 1
        while at > 0 and values[(at - 1) // 2] > value:
            values[at], marks[at] = values[(at - 1) // 2], marks[(at - 1) // 2]
            at = (at - 1) // 2
    else:
        bound = max(bound, values[0])
        at = 0
        while True:
            child = 2 * at + 1
            if child + 1 < found and values[child + 1] < values[child]:
                child += 1
            if child >= found or values[child] >= value:
                break
            values[at], marks[at] = values[child], marks[child]
            at = child
    values[at], marks[at] = value, current
    return found, bound
