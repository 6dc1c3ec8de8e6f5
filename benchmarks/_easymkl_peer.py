"""EasyMKL in an environment of its own, for `mkl_elastic.py`: MKLpy's class where it is installed, else the same steps with cvxopt.

EasyMKL (Aiolli, Donini, Neurocomputing 169, 2015) sums the kernels, solves one quadratic program in the distance of the classes' hulls,
weights every kernel by its form at the solution, and trains an SVC on the weighted sum.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
from typing import Any

import numpy as np

LAM, C = 0.1, 1.0
HELD: dict[str, Any] = {}


def prepare(n: int, k: int) -> dict[str, Any]:
    """Make the rows and kernels of `mkl_elastic.py`, float64."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 20))
    z = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] - 0.5 * X[:, 4] ** 2 + 0.5
    y = np.where(z + 0.5 * rng.normal(size=n) > 0, 1, -1)
    kernels: list[np.ndarray] = []
    widths = np.geomspace(0.05, 10.0, -(-k // 21))
    for part in [X, *(X[:, j : j + 1] for j in range(20))]:
        squares = (part * part).sum(axis=1)
        D = np.maximum(squares[:, None] + squares - 2.0 * part @ part.T, 0.0)
        for gamma in widths[: k - len(kernels)]:
            K = np.exp(-gamma / part.shape[1] * D)
            kernels.append(K / (1.0 - K.mean()))
    HELD.update(kernels=kernels, y=y)
    return {"kernels": len(kernels), "by": _library()}


def _library() -> str:
    for name in ("MKLpy", "cvxopt"):
        try:
            __import__(name)
        except ImportError:
            continue
        return name
    raise ImportError("neither MKLpy nor cvxopt is installed: sh benchmarks/peers.sh FOLDER")


def fit() -> dict[str, Any]:
    """Fit once on what was prepared."""
    call = _by_mklpy if _library() == "MKLpy" else _by_cvxopt
    clock, weights = bench.clocked(lambda: call(HELD["kernels"], HELD["y"]))
    return {**clock, "weights": len(weights)}


def _by_mklpy(kernels: list[np.ndarray], y: np.ndarray) -> Any:
    from MKLpy.algorithms import EasyMKL  # pyright: ignore[reportMissingImports] (in the peers' environment only)
    from sklearn.svm import SVC

    return EasyMKL(lam=LAM, learner=SVC(C=C)).fit(kernels, y).solution.weights


def _by_cvxopt(kernels: list[np.ndarray], y: np.ndarray) -> np.ndarray:
    from cvxopt import matrix, solvers  # pyright: ignore[reportMissingImports] (in the peers' environment only)
    from sklearn.svm import SVC

    solvers.options["show_progress"] = False
    n, total = len(y), np.zeros_like(kernels[0])
    for K in kernels:
        total += K
    Q = 2.0 * ((1.0 - LAM) * (y[:, None] * total * y) + LAM * np.eye(n))
    hulls = np.stack([y == 1, y == -1]).astype(float)
    found = solvers.qp(matrix(Q), matrix(np.zeros(n)), matrix(-np.eye(n)), matrix(np.zeros(n)), matrix(hulls), matrix(np.ones(2)))
    beta = np.ravel(found["x"]) * y
    weights = np.array([beta @ (K @ beta) for K in kernels])
    weights /= weights.sum()
    combined = np.zeros_like(total)
    for weight, K in zip(weights, kernels):
        combined += weight * K
    SVC(kernel="precomputed", C=C).fit(combined, y)
    return weights


bench.serve(prepare, fit)
