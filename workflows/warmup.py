"""Compiling what a first fit would wait for: tiny fits of every kind, timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .progress import Emit

Fit = Callable[[], Any]


def _warmup_cases() -> dict[str, Fit]:
    import scipy.sparse as sp

    from ..pipeline import FGMClassifier
    from ..pipeline.runs.warmup import kernel_cases

    rng = np.random.default_rng(0)
    dense = rng.random((40, 12))
    y = np.where(dense[:, 0] + dense[:, 1] > 1.0, 1, -1)
    sparse = sp.csc_array(np.where(dense > 0.5, dense, 0.0))
    single = sp.csc_array(sparse, dtype=np.float32)
    short: dict[str, Any] = {"B": 2, "max_rounds": 2}
    groups = np.repeat(np.arange(4), 3)
    return {
        "dense": lambda: FGMClassifier(**short).fit(dense, y),
        "sparse, float64": lambda: FGMClassifier(**short).fit(sparse, y),
        "sparse, float32": lambda: FGMClassifier(**short).fit(single, y),
        "logistic, with intercept": lambda: FGMClassifier(**short, loss="logistic", fit_intercept=True).fit(single, y),
        "groups": lambda: FGMClassifier(**short, groups=groups).fit(single, y),
        "pairs, sparse": lambda: FGMClassifier(**short, feature_map="poly2").fit(single, y),
        "pairs, dense": lambda: FGMClassifier(**short, feature_map="poly2").fit(dense, y),
        "intersection kernel": lambda: FGMClassifier(**short, feature_map="hik", n_bins=4).fit(dense, y),
        "additive Gaussian kernel": lambda: FGMClassifier(**short, feature_map="additive_gaussian").fit(dense, y),
        "reading SVMlight": _read_svmlight,
        **kernel_cases(dense, y.astype(np.float64)),
    }


def _read_svmlight() -> None:
    from ..storage.ingest import ingest
    from ..storage.temporary import temporary_folder

    with temporary_folder() as folder:
        source = folder / "tiny.svm"
        source.write_text("1 1:0.5 3:1\n-1 2:1.25\n")
        ingest(source, folder / "store")


def run_cases(emit: Emit) -> dict[str, float]:
    """Run every case once; return the seconds each took (small when the cache was warm)."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    seconds = {}
    with warnings.catch_warnings():
        # The cases are too short to converge; only their compilation matters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name, fit in _warmup_cases().items():
            emit({"event": "phase", "phase": name})
            began = time.perf_counter()
            fit()
            seconds[name] = round(time.perf_counter() - began, 2)
    return seconds
