"""Kernel learning on given matrices took 3.5 times as long as on the rows they came from: they were read and copied many times.

A packed copy, the cheapest of them, still cost as much as the search for weights, in fresh memory alone.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np

from gramplane.kernels.bank.loops import count_packed
from gramplane.kernels.jit import compile_at_once, one_thread
from gramplane.pipeline.grams import given as given_grams
from gramplane.pipeline.grams.given import GivenPair
from gramplane.pipeline.methods.mkl.estimator import MKLClassifier
from tests.reliability.walks import walk


@walk(18, "given matrices are read once, in their own type, and serve every pass of a fit where they lie")
def given_matrices_are_read_once(folder: Path) -> None:
    """Count the looks at matrices, the blocks copied of them and the bytes beside them during a fit."""
    rng, looks, loads = np.random.default_rng(0), [], []
    X = rng.normal(size=(300, 4))
    near = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    K = np.stack([np.exp(-gamma * near) for gamma in np.geomspace(0.05, 5.0, 40)]).astype(np.float32)
    K.flags.writeable = False
    look, load = given_grams.inspect_matrix, GivenPair.load

    def counted(*args: object) -> object:
        looks.append(np.asarray(args[0]).dtype)
        return look(*args)  # pyright: ignore[reportArgumentType] (as it was called)

    given_grams.inspect_matrix, GivenPair.load = counted, lambda self: loads.append(1) or load(self)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        # Memory of a compilation is none of the fit's.
        with one_thread(), compile_at_once():
            MKLClassifier("precomputed").fit(K, X[:, 0] > 0)
            looks.clear()
            tracemalloc.start()
            MKLClassifier("precomputed").fit(K, X[:, 0] > 0)
            peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        given_grams.inspect_matrix, GivenPair.load = look, load
    assert looks == [np.dtype(np.float32)] * 40, f"{len(looks)} looks at 40 matrices"
    assert not loads, f"{len(loads)} blocks were copied again"
    copy = 4 * 40 * count_packed(300)
    assert peak < 0.75 * copy, f"{peak} bytes beside the matrices; a packed copy of them takes {copy}"
