"""Compiles all code that a first fit would compile: it runs tiny fits of every kind and calls every compiled function, and measures the
times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.resources import Emit


def run_cases(emit: Emit) -> dict[str, float]:
    """Run every case once. Return the time of each case in seconds; a time is small if the code of the case was compiled before."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    from ...kernels.jit import compile_at_once

    seconds = {}
    with warnings.catch_warnings(), compile_at_once():
        # The cases are too short to converge; only their compilation matters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name, fit in _cases().items():
            emit({"event": "phase", "phase": name})
            began = time.perf_counter()
            fit()
            seconds[name] = round(time.perf_counter() - began, 2)
    return seconds


def _cases() -> dict[str, Callable[[], Any]]:
    import scipy.sparse as sp

    from ..methods.fgm.estimator import FGMClassifier, FGMRegressor

    rng = np.random.default_rng(0)
    dense = rng.random((40, 12))
    y = np.where(dense[:, 0] + dense[:, 1] > 1.0, 1, -1)
    sparse = sp.csc_array(np.where(dense > 0.5, dense, 0.0))
    single = sp.csc_array(sparse, dtype=np.float32)
    short: dict[str, Any] = {"B": 2, "max_rounds": 2}
    groups, beside = np.repeat(np.arange(4), 3), np.random.default_rng(1).random((40, 2))
    hinge, regression = FGMClassifier(**short), FGMRegressor(**short)
    return {
        "dense": lambda: FGMClassifier(**short).fit(dense, y),
        "sparse, float64": lambda: FGMClassifier(**short).fit(sparse, y),
        "sparse, float32": lambda: FGMClassifier(**short).fit(single, y),
        "logistic, with intercept": lambda: FGMClassifier(**short, loss="logistic").fit(single, y),
        "real targets": lambda: [regression.fit(single, dense[:, 0], covariates=Z) for Z in (None, beside)],
        "covariates": lambda: [hinge.set_params(loss=loss).fit(single, y, covariates=beside) for loss in ("squared_hinge", "logistic")],
        "groups": lambda: FGMClassifier(**short, groups=groups).fit(single, y),
        "pairs, sparse": lambda: FGMClassifier(**short, feature_map="poly2").fit(single, y),
        "pairs, dense": lambda: FGMClassifier(**short, feature_map="poly2").fit(dense, y),
        "intersection kernel": lambda: FGMClassifier(**short, feature_map="hik", n_bins=4).fit(dense, y),
        "additive Gaussian kernel": lambda: FGMClassifier(**short, feature_map="additive_gaussian").fit(dense, y),
        "reading SVMlight": _read_svmlight,
        **_kernel_cases(dense, y.astype(np.float64)),
    }


def _read_svmlight() -> None:
    from ...storage.ingest import ingest
    from ...storage.temporary import temporary_folder

    with temporary_folder() as folder:
        source = folder / "tiny.svm"
        source.write_text("1 1:0.5 3:1\n-1 2:1.25\n")
        ingest(source, folder / "store")


def _kernel_cases(X: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return functions, by name, that together run all compiled functions of :mod:`gramplane.kernels` on small data ``(n, d)``,
    ``n >= 21``.
    """
    import scipy.sparse as sp

    from ...kernels.bank.bank import PackedBank
    from ...kernels.bank.loops import count_packed
    from ...kernels.bank.two_layer import BankLayer
    from ...kernels.grams.blocks import gram_block
    from ...kernels.grams.spec import as_specs
    from ...kernels.grams.strips import kernel_decisions, packed_grams
    from ...kernels.svm.dual import DenseGram, svc_problem
    from ...kernels.svm.smo import solve_smo
    from ..methods.group_lasso.estimator import GroupLassoClassifier
    from ..methods.hierarchical_kernels.estimator import HierarchicalKernelClassifier
    from ..methods.latent_task_mkl.estimator import LatentTaskMKLClassifier
    from ..methods.multitask_selector.estimator import MultiTaskSelector
    from ..methods.rule_ensemble.estimator import RuleEnsembleClassifier

    texts = ["rbf(gamma=0.5)", "rbf(gamma=2.0)", "poly(degree=2)[0:3]", "linear", "laplacian(gamma=1.0)", "chi2", "hik"]
    specs = as_specs(texts, X.shape[1])
    single, rows, strings = X.astype(np.float32), sp.csr_array(X.astype(np.float32)), np.array(["ab", "ba"], object)
    whole = gram_block(specs, single, None, dtype=np.float32)
    bank, halves = PackedBank.from_dense(whole), np.arange(len(y)) % 2
    latent = LatentTaskMKLClassifier(["linear[0:2]", "linear"], max_iter=2)
    selector = MultiTaskSelector(lam=1e-3, gamma=1e3)
    lasso = GroupLassoClassifier(lam=0.1, gamma=1e3, groups=np.arange(X.shape[1]) // 2)

    def blocks() -> None:
        for data in (single, rows):
            gram_block(specs, data, None, dtype=np.float32)
            gram_block(specs, data[:20], data[20:], dtype=np.float32)
        packed_grams(specs, single, np.empty((len(specs), count_packed(len(single))), np.float32))
        kernel_decisions(specs, np.ones((1, len(specs))), single[:20], single[20:], np.ones((1, len(single) - 20)))

    def passes() -> None:
        bank.combine(np.ones(bank.k))
        bank.forms(y)
        bank.products(y)
        bank.inner_products(centred=True)

    def tasks() -> None:
        bank.task_forms(y, halves, 2)
        matrix = bank.combine_tasks(np.ones((bank.k, 2, 2)), halves)
        solve_smo(DenseGram(matrix), replace(svc_problem(y, 1.0), groups=halves))

    return {
        "kernel matrices": blocks,
        "kernel matrices of strings": lambda: gram_block(as_specs("spectrum(k=2)", None), strings, None, dtype=np.float32),
        "bank of kernel matrices": passes,
        "kernel machine": lambda: solve_smo(DenseGram(whole[0]), svc_problem(y, 1.0)),
        "kernel machine of tasks": tasks,
        "second layer": lambda: BankLayer(bank).weigh(np.ones(bank.k), np.ones((bank.n, bank.n)), y.astype(np.float64)),
        "level method": lambda: _small_programs(len(specs)),
        "alignments and their path": lambda: _aligned(X, y),
        "groups of tasks": lambda: [latent.set_params(loss=loss).fit(X, y, halves) for loss in ("hinge", "squared")],
        "graphs of kernels": lambda: HierarchicalKernelClassifier("subsets(gaussian; depth=1)", tol=0.1).fit(X, y),
        "rules": lambda: RuleEnsembleClassifier(n_thresholds=2, max_visits=1000).fit(X, y),
        "features of many tasks": lambda: [selector.set_params(algorithm=name).fit(X, y, halves) for name in ("da", "fista")],
        "groups of features": lambda: [lasso.set_params(algorithm=name).fit(X, y) for name in ("da", "fobos", "fista")],
    }


def _small_programs(k: int) -> None:
    from ...kernels.svm.weight_model import minimise_model
    from ...kernels.weights.domains import ElasticNetSet
    from ...kernels.weights.level_programs import Cuts, lower_bound, project_on_level

    rng, domain = np.random.default_rng(1), ElasticNetSet(0.5)
    cuts = Cuts(np.arange(3.0), rng.random((3, k)))
    start, low = domain.start(k), lower_bound(cuts, domain)
    project_on_level(start, cuts, low.value + 0.5 * (cuts.height(start) - low.value), domain, inside=low.theta)
    minimise_model(start, rng.random(k), rng.random((2, k)), domain.v, 1e-6)


def _aligned(X: np.ndarray, y: np.ndarray) -> None:
    import scipy.sparse as sp

    from ...kernels.alignment.alignment import alignments
    from ...kernels.alignment.path import AlignmentProblem, kernel_path
    from ...kernels.grams.feature_sums import feature_values, weighted_feature_sum

    single = X.astype(np.float32)
    few = np.round(3.0 * single)
    for data in (single, few, sp.csc_array(few)):
        values = alignments(data, y)
    alignments(single, y, kernel="linear")
    kernel_path(AlignmentProblem(1.0, 10.0), values.values)
    # A width next to nothing takes the exponentials of all pairs.
    pair, widths = np.asarray(X[:, :2], np.float64), np.array([1.0, 1e-6])
    weighted_feature_sum(pair, np.ones(2), widths)
    feature_values(pair, pair, np.ones(2), widths, np.ones((1, len(pair))))
