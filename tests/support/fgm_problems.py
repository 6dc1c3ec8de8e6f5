"""Small problems for whole FGM fits, and comparisons of what comes out."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

CASES = [(loss, bias) for loss in ("squared_hinge", "logistic") for bias in (False, True)]


def planted(seed: int = 0, n: int = 80, d: int = 60, relevant: int = 8, density: float = 1.0, noise: float = 0.3):
    """Normal features, some zeroed; labels -1, +1 by a few of them, about 60 % positive."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    w = np.zeros(d)
    w[rng.choice(d, relevant, replace=False)] = rng.uniform(0.5, 1.5, relevant) * rng.choice([-1, 1], relevant)
    z = X @ w
    y = np.where(z + noise * z.std() * rng.normal(size=n) + 0.25 * z.std() > 0, 1, -1)
    y[:2] = 1, -1
    return X, y


def classes(seed: int = 0, n: int = 120, d: int = 40, n_classes: int = 3, density: float = 1.0):
    """Rows around one centre per class; three features tell each class."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % n_classes
    X = rng.normal(size=(n, d))
    for k in range(n_classes):
        X[np.ix_(codes == k, range(3 * k, 3 * k + 3))] += 1.5
    return X * (rng.random((n, d)) < density), codes


def forms(X):
    """The same numbers in every form of input."""
    return {
        "dense": X,
        "fortran": np.asfortranarray(X),
        "csc_array": sp.csc_array(X),
        "csr_array": sp.csr_array(X),
        "csr_matrix": sp.csr_matrix(X),
        "csc_matrix": sp.csc_matrix(X),
    }


def bits(machine) -> list[bytes]:
    """Everything a fit found, as bytes: two lists are equal exactly if two fits are, bit for bit."""
    arrays = [machine.selected_, np.asarray(dense(machine.coef_)), machine.intercept_]
    for state in machine.model_.machines:
        arrays += [*state.cuts, *state.coordinates, *state.factors, state.pending_ids, np.array(state.lower_bound)]
        for record in state.rounds:
            arrays += [record.omega, record.cut_weights, np.array([record.bias, record.objective, record.gap, record.outer_gap])]
    return [f"{array.shape}{array.dtype.kind}".encode() + np.ascontiguousarray(array).tobytes() for array in arrays]


def dense(coef):
    """The weights as an array."""
    return coef.toarray() if sp.issparse(coef) else coef


def same_cuts(a, b) -> bool:
    """Whether two fits chose the same features in the same order in every round."""
    return len(a.cuts_) == len(b.cuts_) and all(np.array_equal(x, z) for x, z in zip(a.cuts_, b.cuts_))
