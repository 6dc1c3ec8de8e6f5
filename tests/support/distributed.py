"""Cases that go the way of large data: rows or matrices have no room in this process, and blocks are a handful of rows."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gramplane.storage import BlockStore
from gramplane.storage.ingest import ingest
from gramplane.workflows.battery import MethodCase as Case


def block_of_128(n: int, n_kernels: int, itemsize: int = 4) -> int:
    """Return the rows of a Gram block."""
    return 128


SMALL: dict[str, Any] = {
    "gramplane.storage.ingest.options.STRIPE_BYTES": 600,
    "gramplane.pipeline.passes.blocks.byte_groups.__defaults__": (6000,),
    "gramplane.pipeline.grams.sources.TASK_BYTES": 1,
    "gramplane.pipeline.grams.pair_passes.PASS_BYTES": 1,
    "gramplane.pipeline.methods.tri_class_svm.linear_pass.PASS_BYTES": 3000,
    "gramplane.pipeline.methods.multitask_mkl.solve_pass.BATCH_BYTES": 30_000,
    "gramplane.pipeline.grams.neighbours.ROWS": 64,
    "gramplane.pipeline.grams.settings.block_rows": block_of_128,
}
"""Stripes, Gram blocks and tasks so small that every pass has several."""

TILES: dict[str, Any] = {
    "gramplane.pipeline.grams.eigen_blocks.WORKER_ROWS": 100,
    "gramplane.pipeline.grams.eigen_blocks.TASK_PRODUCTS": 0,
    "gramplane.kernels.eigen.positive_part.MAX_DENSE_ROWS": 64,
    "gramplane.kernels.eigen.positive_part.MAX_WHOLE_ROWS": 64,
    "gramplane.kernels.eigen.positive_part.MAX_BLOCK_SHARE": 0.9,
}
"""The eigensolver's block of small matrices is one of columns, and it lies in tiles on workers."""

MAPS: dict[str, Any] = {
    **TILES,
    "gramplane.kernels.spectral.embeddings.MAX_NEWTON_ROWS": 100,
    "gramplane.pipeline.methods.embeddings.problem.MAX_NEWTON_ROWS": 100,
}

BLOCKED_LATTICE = "gramplane.pipeline.methods.rule_ensemble.blocked_lattice"
ROW_BLOCKS: dict[str, Any] = {f"{BLOCKED_LATTICE}.ROW_BLOCK": 64, "gramplane.pipeline.methods.rule_ensemble.data.ROW_BLOCK": 64}
BELOW: dict[str, Any] = {f"{BLOCKED_LATTICE}.SUBTREE_VISITS": 20, f"{BLOCKED_LATTICE}.ROUND": 3, f"{BLOCKED_LATTICE}.GATHERED_BYTES": 0}


def rows(path: Path, n: int = 200, d: int = 6, kind: str = "") -> BlockStore:
    """Write rows of two classes; ``kind`` may name ``numbers``, ``tasks``, ``covariates``, and ``both`` layouts."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] + 0.3 * X[:, 1] + 0.2 * rng.normal(size=n) > 0, 1, -1)
    more: dict[str, Any] = {"task_column": np.arange(n) * 7 % 3} if "tasks" in kind else {}
    if "numbers" in kind:
        y, more = y + X[:, 2], {"task": "regression"}
    more |= {"covariates": 5.0 + rng.normal(size=(n, 2))} if "covariates" in kind else {}
    return ingest((X, y), path, **more, **({"layout": "both"} if "both" in kind else {}))


def similarity(path: Path, n: int = 160) -> BlockStore:
    """Write similarities of rows."""
    X = np.random.default_rng(3).normal(size=(n, 4))
    return ingest(np.exp(-0.5 * np.square(X[:, None] - X).sum(axis=2)), path)


def three_labels(path: Path) -> BlockStore:
    """Write rows of two classes and of neither, and unlabelled ones beside."""
    rng = np.random.default_rng(3)
    y = np.resize([-1, 1, -1, 1, 0], 140)
    if not Path(UNLABELLED["unlabelled"]).exists():
        ingest(rng.normal(size=(60, 6)), UNLABELLED["unlabelled"])
    return ingest((rng.normal(size=(140, 6)) + 0.9 * y[:, None], y), path)


_BESIDE = tempfile.TemporaryDirectory(prefix="gramplane-unlabelled-")
UNLABELLED = {"unlabelled": str(Path(_BESIDE.name) / "unlabelled.zarr")}

PLACE = "gramplane.pipeline.methods."
KERNELS = ["rbf(gamma=0.1)", "linear"]
POOLED = {"kernels": KERNELS, "max_iter": 2, "tol": 0.02}
RULES = {"C": 3.0, "n_thresholds": 1, "max_visits": 300, "max_rounds": 1, "max_rules": 20, "tol": 0.1}
TRI = {"start": "svm3", "max_iter": 1, "inner_tol": 0.1}
PAIRS = {"constraints": [[i, (i + 7 * k) % 200, 1 if k % 2 else -1] for k in (1, 2) for i in range(0, 200, 3)]}
TIES = {"pairs": [[i, (i + k) % 360, int(k == 1)] for k in (1, 5) for i in range(0, 360, 3)]}
QUERIES = {"tags": ["a b", "b c", "c", "a"] * 50, "queries": [[f"q{i // 20}", i] for i in range(200)]}

_tasks = partial(rows, kind="tasks")


def _case(method: str, params: dict[str, Any], data: Any, memory: str | None = None, extra: Any = None, sizes: Any = None) -> Case:
    return Case(method, params, data, (params, ""), extra or {}, memory, {**SMALL, **(sizes or {})})


DISTRIBUTED: dict[str, Case] = {
    "fgm-rows": _case("fgm", {"B": 4, "max_rounds": 2}, partial(rows, n=400, d=60), "32KiB", sizes={f"{PLACE}fgm.designs.ROW_BLOCK": 128}),
    "fgm-rows-covariates": _case(
        "fgm",
        {"B": 6, "max_rounds": 2, "loss": "logistic", "fit_intercept": True},
        partial(rows, n=400, d=60, kind="covariates"),
        "64KiB",
        sizes={f"{PLACE}fgm.designs.ROW_BLOCK": 128},
    ),
    "group-lasso-working-set": _case("group-lasso", {"lam": 0.02, "algorithm": "fista", "tol": 1e-3}, partial(rows, n=400, d=60), "192KiB"),
    "group-lasso-stream": _case("group-lasso", {"lam": 0.02, "epochs": 2, "batch_size": 50}, rows),
    "multitask-selector-working-set": _case(
        "multitask-selector", {"algorithm": "fista", "loss": "logistic", "lam": 0.08, "tol": 1e-2}, partial(_tasks, d=100), "192KiB"
    ),
    "multitask-selector-blocks": _case(
        "multitask-selector", {"loss": "logistic", "epochs": 1, "gamma": 50.0}, partial(rows, d=60, kind="tasks both"), "128KiB"
    ),
    "mkl-passes": _case("mkl", {"kernels": KERNELS, "max_iter": 3, "tol": 1e-3}, rows, "128KiB"),
    "two-layer-mkl-passes": _case("two-layer-mkl", {"kernels": KERNELS, "max_iter": 2}, rows, "128KiB"),
    "multitask-mkl-passes": _case("multitask-mkl", {"kernels": KERNELS, "max_iter": 3, "tol": 1e-3}, _tasks, "192KiB"),
    "shared-subspace-mkl-passes": _case("shared-subspace-mkl", POOLED, _tasks, "64KiB"),
    "latent-task-mkl-passes": _case("latent-task-mkl", POOLED, _tasks, "128KiB"),
    "hierarchical-kernels-passes": _case(
        "hierarchical-kernels", {"dag": "subsets(gaussian[0:2])", "tol": 3e-3, "max_nodes": 4, "grams": "recompute"}, _tasks, "96KiB"
    ),
    "kta-path-passes": _case("kta-path", {"dp": 0.5}, partial(rows, d=60), "32KiB"),
    "unsupervised-mkl-passes": _case("unsupervised-mkl", {"kernels": KERNELS, "n_bases": 4, "max_iter": 2}, rows, "768KiB"),
    "unsupervised-mkl-passes-codes": _case(
        "unsupervised-mkl", {"kernels": KERNELS, "n_bases": 4, "max_iter": 2, "start": "kernel-sparse-coding"}, rows, "1536KiB"
    ),
    "npkl-tiles": _case("npkl", {"loss": "squared_hinge", "C": 0.3, "B": 20.0, "graph": "union", "max_iter": 2}, rows, None, PAIRS, TILES),
    "colored-mvu-neighbours": _case("colored-mvu", {"graph": "union", "max_iter": 2}, partial(rows, n=70)),
    "colored-mvu-tiles": _case("colored-mvu", {"graph": "union", "tol": 0.5, "B": 1e4}, partial(rows, n=120), sizes=MAPS),
    "mve-neighbours": _case("mve", {"graph": "union", "tol": 0.5, "max_iter": 2}, partial(rows, n=100)),
    "mve-tiles": _case("mve", {"graph": "union", "tol": 0.5, "B": 1e4, "n_neighbors": 3}, partial(rows, n=120, d=3), sizes=MAPS),
    "spe-triples": _case(
        "spe", {"max_iter": 2, "n_neighbors": 4}, partial(rows, n=100), sizes={f"{PLACE}embeddings.rows_pass.TRIPLE_WORK": 20_000}
    ),
    "visual-rank-passes": _case("visual-rank", {"damping": 0.5, "tol": 1e-3}, similarity, "32KiB"),
    "semantic-ranker-queries": _case("semantic-ranker", {"n_neighbors": 3, "tol": 1e-2}, rows, "64KiB", QUERIES),
    "social-strength-blocks": _case(
        "social-strength", {"kernels": KERNELS, "C": 0.1, "max_iter": 2}, partial(rows, n=360), "1536KiB", TIES
    ),
    "rule-ensemble-lengths": _case("rule-ensemble", RULES, rows, sizes={**ROW_BLOCKS, f"{BLOCKED_LATTICE}.SUBTREE_BYTES": 0}),
    "rule-ensemble-below": _case("rule-ensemble", RULES, rows, sizes={**ROW_BLOCKS, **BELOW}),
    "rule-ensemble-numbers": _case("rule-ensemble", RULES, partial(rows, kind="numbers"), sizes={**ROW_BLOCKS, **BELOW}),
    "tri-class-svm-passes": _case("tri-class-svm", {**TRI, "algorithm": "dc", "balance": 0.1}, three_labels, "256KiB", UNLABELLED),
    "tri-class-svm-rows": _case("tri-class-svm", {**TRI, "kernel": "linear"}, three_labels, "192KiB", UNLABELLED),
}
"""The first of each method is in the quick suite."""
