"""Branch and bound over all groups of tasks: those with the greatest ``M_w / d_w^2``, and a bound of all others.

``M_w = (sum_j m_wj^P)^(1/P)``, P = p / (2 (p - 1)) >= 1. Its square root is a norm of the vectors of the tasks in w, so r more tasks add at
most the r greatest roots of single tasks; leaving tasks out of a group is bounded alike. That prunes all but some thousands of the 2^42
groups of 42 tasks (docs/theory/latent_task_mkl.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..jit import compiled
from .group_lattice import Groups, TaskLattice

MAX_VISITS = 20_000_000  # Groups visited before the search ends with what it has: some tens of seconds.


@dataclass(frozen=True)
class GroupSearch:
    """The groups of a search, and what bounds the others."""

    groups: Groups  # (n_found, T) whose value is above the threshold, the greatest first; at most max_groups
    values: FloatArray  # their M_w / d_w^2
    bound: float  # of the value of every group that is not among them: at most the threshold when the search was complete
    visits: int  # groups visited
    complete: bool  # whether neither the cap on visits nor that on the depth cut off anything above the threshold


def search_groups(
    lattice: TaskLattice, forms: FloatArray, mu: float, p: float, threshold: float, max_groups: int,
    max_depth: int | None = None, max_visits: int = MAX_VISITS,
) -> GroupSearch:  # fmt: skip
    """Return the groups of greatest ``M_w / d_w^2`` above a threshold >= 0, from ``A_j[s, t] = beta_s' K_j beta_t``, ``(k, T, T)``. ``mu``
    is the weight of the group mean, ``p`` in (1, 2] the norm over the kernels. Once it has ``max_groups`` groups the search is cut off at
    the least of them; groups have at most ``max_depth`` tasks (in the inverse: leave out so many).
    """
    inner = p / (2.0 * (p - 1.0))
    tasks = lattice.n_tasks
    single = np.diagonal(forms, axis1=1, axis2=2)
    # Tasks in descending order of their norms, so that a bound reads the next ones.
    order = np.argsort(-_inner_norms(single.T * (1.0 + 1.0 / mu), inner), kind="stable")
    sorted_forms = np.ascontiguousarray(forms[:, order[:, None], order], np.float64)
    roots = np.sqrt(_inner_norms(single.T[order] * (1.0 + 1.0 / mu), inner))
    n_marks = lattice.deepest
    deepest = n_marks if max_depth is None else max(min(max_depth, n_marks), 1)
    values, marks = np.zeros(max_groups), np.zeros((max_groups, tasks), np.uint8)
    n_found, visits, bound, complete = _branch_and_bound(
        sorted_forms, roots, 1.0 / mu, inner, float(lattice.a), lattice.inverted, deepest, n_marks, float(threshold), max_visits,
        values, marks,
    )  # fmt: skip
    chosen = np.zeros((n_found, tasks), bool)
    chosen[:, order] = marks[:n_found].astype(bool)
    ranked = np.argsort(-values[:n_found], kind="stable")
    return GroupSearch(lattice.marks(chosen)[ranked], values[:n_found][ranked], float(bound), int(visits), bool(complete))


def _inner_norms(forms: FloatArray, inner: float) -> FloatArray:
    """Return the norm over the last axis with exponent ``inner``, safe against overflow."""
    top = forms.max(axis=-1, initial=0.0)
    safe = np.where(top > 0, top, 1.0)
    return np.where(top > 0, safe * ((np.maximum(forms, 0.0) / safe[..., None]) ** inner).sum(axis=-1) ** (1.0 / inner), 0.0)


@compiled(deferred=True)
def _branch_and_bound(
    forms: FloatArray, roots: FloatArray, shared: float, inner: float, a: float, inverted: bool, deepest: int, n_marks: int,
    threshold: float, max_visits: int, values: FloatArray, marks: NDArray[np.uint8],
) -> tuple[int, int, float, bool]:  # fmt: skip
    """Depth first over sets of marks in ascending order; row l of the stacks is the set of l marks: its forms, its tasks' columns."""
    k, tasks = forms.shape[0], forms.shape[1]
    sign = -1.0 if inverted else 1.0
    levels, crossed = np.zeros((deepest + 2, k)), np.zeros((deepest + 1, k, tasks))
    upcoming, chosen = np.zeros(deepest + 1, np.int64), np.zeros(deepest + 1, np.int64)
    root_sums, scale = np.zeros(tasks + 1), np.ones(tasks + 1)
    for t in range(tasks):
        root_sums[t + 1] = root_sums[t] + roots[t]
        scale[t + 1] = scale[t] / (a * a)
    if inverted:
        for j in range(k):
            for s in range(tasks):
                levels[0, j] += forms[j, s, s]
                for t in range(tasks):
                    crossed[0, j, t] += forms[j, s, t]
                    levels[0, j] += shared * forms[j, s, t]
    n_found, weakest, visits, depth, bound, complete = 0, 0, 0, 0, 0.0, True
    raw, first = 0.0, 0
    while depth >= 0 and visits < max_visits:
        if visits > 0 or not inverted:
            t = upcoming[depth]
            if t == tasks or depth == deepest:
                depth -= 1
                continue
            upcoming[depth] = t + 1
            for j in range(k):
                form = forms[j, t, t]
                levels[depth + 1, j] = max(levels[depth, j] + sign * (form + 2.0 * shared * crossed[depth, j, t]) + shared * form, 0.0)
            depth, first = depth + 1, t + 1
            chosen[depth] = t
        visits += 1
        raw = _row_norm(levels, depth, inner)
        value = raw * scale[depth]
        cut = values[weakest] if n_found == len(values) else threshold
        if value > cut:
            at = n_found if n_found < len(values) else weakest
            bound = max(bound, values[at])
            values[at] = value
            for t in range(tasks):
                marks[at, t] = 0
            for level in range(1, depth + 1):
                marks[at, chosen[level]] = 1
            n_found = max(n_found, at + 1)
            for slot in range(n_found):
                if values[slot] < values[weakest]:
                    weakest = slot
            cut = values[weakest] if n_found == len(values) else threshold
        else:
            bound = max(bound, value)
        # The best that r more marks, each after t, can make of it.
        best = _bound_extensions(np.sqrt(raw), root_sums, scale, first, depth, n_marks)
        if depth > 0 and (best <= cut or depth == deepest):
            bound, complete = max(bound, best), complete and best <= cut
            depth -= 1
        elif depth > 0:
            upcoming[depth] = first
            for j in range(k):
                for s in range(tasks):
                    crossed[depth, j, s] = crossed[depth - 1, j, s] + sign * forms[j, chosen[depth], s]
    # What a search that was cut off would still have visited.
    for level in range(depth + 1):
        best = _bound_extensions(np.sqrt(_row_norm(levels, level, inner)), root_sums, scale, upcoming[level], level, n_marks)
        bound, complete = max(bound, best), complete and best <= (values[weakest] if n_found == len(values) else threshold)
    return n_found, visits, bound, complete


@compiled(deferred=True)
def _bound_extensions(root: float, root_sums: FloatArray, scale: FloatArray, first: int, depth: int, n_marks: int) -> float:
    """Return a bound of the values of a set of a given root with further marks, from ``first`` on."""
    best = 0.0
    for r in range(1, min(n_marks - depth, root_sums.size - 1 - first) + 1):
        greatest = root + root_sums[first + r] - root_sums[first]
        best = max(best, greatest * greatest * scale[depth + r])
    return best


@compiled(deferred=True)
def _row_norm(levels: FloatArray, row: int, inner: float) -> float:
    top, total = 0.0, 0.0
    for j in range(levels.shape[1]):
        top = max(top, levels[row, j])
    if top <= 0.0:
        return 0.0
    for j in range(levels.shape[1]):
        ratio = levels[row, j] / top
        total += ratio * np.sqrt(ratio) if inner == 1.5 else ratio**inner
    return top * total ** (1.0 / inner)
