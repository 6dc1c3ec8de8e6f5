"""``SimpleNPKL(loss="linear").fit`` decomposed its matrix twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gramplane.kernels.jit import one_thread
from gramplane.kernels.spectral import problem as spectral_problem
from gramplane.pipeline.methods.npkl.estimator import SimpleNPKL
from tests.reliability.walks import walk


@walk(17, "a kernel of closed form takes one decomposition, from the fit to the published matrix")
def a_closed_form_is_decomposed_once(folder: Path) -> None:
    """Count the calls of the eigensolver during a fit, and let the fit end."""
    rng, calls, plain = np.random.default_rng(0), [], spectral_problem.positive_part
    X, pairs = rng.normal(size=(200, 3)), np.array([(i, i + 1, 1 - 2 * (i % 2)) for i in range(100)])

    def counted(*args: object, **options: object) -> object:
        calls.append(1)
        return plain(*args, **options)  # pyright: ignore[reportCallIssue, reportArgumentType] (as it was called)

    spectral_problem.positive_part = counted  # pyright: ignore[reportAttributeAccessIssue] (counts)
    try:
        with one_thread():
            SimpleNPKL(loss="linear").fit(X, pairs).kernel_block()
    finally:
        spectral_problem.positive_part = plain
    assert len(calls) == 1, f"{len(calls)} decompositions"
