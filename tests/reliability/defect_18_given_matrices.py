"""Kernel learning on given matrices took 3.5 times as long as on the rows they came from: they were read and copied many times."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gramplane.kernels.jit import one_thread
from gramplane.pipeline.estimators.mkl import MKLClassifier
from gramplane.pipeline.passes import given_grams
from gramplane.pipeline.passes.given_grams import GivenPair

from .walks import walk


@walk(18, "given matrices are read once, in their own type, on the way into the bank of a fit")
def given_matrices_are_read_once(folder: Path) -> None:
    """Count the looks at matrices and the blocks copied of them during a fit."""
    rng, looks, loads = np.random.default_rng(0), [], []
    X = rng.normal(size=(300, 4))
    near = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    K = np.stack([np.exp(-gamma * near) for gamma in (0.1, 0.5, 2.0)]).astype(np.float32)
    look, load = given_grams.looked_at, GivenPair.load

    def counted(*args: object) -> object:
        looks.append(np.asarray(args[0]).dtype)
        return look(*args)  # pyright: ignore[reportArgumentType] (as it was called)

    given_grams.looked_at, GivenPair.load = counted, lambda self: loads.append(1) or load(self)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with one_thread():
            MKLClassifier("precomputed").fit(K, X[:, 0] > 0)
    finally:
        given_grams.looked_at, GivenPair.load = look, load
    assert looks == [np.dtype(np.float32)] * 3, f"{len(looks)} looks at 3 matrices"
    assert not loads, f"{len(loads)} blocks were copied again"
