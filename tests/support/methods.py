"""One small problem for every method of the registry: what the batteries run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gramplane.storage import BlockStore
from gramplane.storage.ingest import ingest
from gramplane.workflows.battery import MethodCase as Case
from tests.support.fgm_problems import classes, planted


def _sparse(path: Path, n: int = 80) -> BlockStore:
    X, y = planted(1, n, density=0.4)
    return ingest((sp.csr_array(X), y), path)


def _dense(path: Path, n: int = 80) -> BlockStore:
    return ingest(planted(2, n, d=30), path)


def _three(path: Path, n: int = 120) -> BlockStore:
    X, codes = classes(n=n, density=0.5)
    return ingest((X, np.array(["a", "b", "c"])[codes]), path, scale="standard", groups=np.arange(40) // 3)


def _real(path: Path, n: int = 80) -> BlockStore:
    X, _ = planted(2, n, d=30)
    return ingest((X, X[:, 0] + 0.5 * np.sin(3 * X[:, 1])), path, task="regression")


def _beside(path: Path, n: int = 80) -> BlockStore:
    """Real targets that two covariates and some features make, a few of them far away; the covariates are kept apart."""
    X, _ = planted(3, n, density=0.5)
    Z = np.random.default_rng(6).normal(size=(len(X), 2)) * [10.0, 0.1] + [50.0, 0.0]
    y = 2 * X[:, 0] - X[:, 3] + 0.2 * Z[:, 0] + 5 * Z[:, 1] + 9.0 * (np.arange(len(X)) % 11 == 4)
    return ingest((sp.csr_array(X), y), path, task="regression", covariates=Z)


def _three_beside(path: Path, n: int = 120) -> BlockStore:
    X, codes = classes(n=n, density=0.5)
    Z = np.random.default_rng(7).normal(size=(n, 2)) + 0.3 * codes[:, None]
    return ingest((X, np.array(["a", "b", "c"])[codes]), path, covariates=Z)


def _tasks(path: Path, n: int = 80) -> BlockStore:
    X, y = planted(2, n, d=30)
    return ingest((X, y), path, task_column=np.arange(len(y)) * 7 % 3 + 5)


def _task_numbers(path: Path, n: int = 80) -> BlockStore:
    X, y = planted(4, n, d=12)
    return ingest((X, X[:, 0] + 0.1 * y), path, task="regression", task_column=np.arange(len(y)) // (n // 4))


def _three_tasks(path: Path, n: int = 96) -> BlockStore:
    """Three classes in two tasks, some rows of which are for nothing."""
    rng = np.random.default_rng(6)
    task, X = rng.permutation(np.repeat(["far", "near"], n // 2)), rng.normal(size=(n, 4))
    values = X[:, 0] + np.where(task == "far", X[:, 1], X[:, 2]) + 0.3 * rng.normal(size=n)
    return ingest((X, np.array(["low", "mid", "top"])[np.digitize(values, [-0.6, 0.6])]), path, task_column=task)


_BESIDE = tempfile.TemporaryDirectory(prefix="gramplane-unlabelled-")
UNLABELLED = {"unlabelled": str(Path(_BESIDE.name) / "unlabelled.zarr")}
"""A second store, written when the first case that has it is."""


def _tri_class(path: Path, n: int = 40, kinds: Sequence[int] = (-1, 1, -1, 1, 0)) -> BlockStore:
    """Two classes or more and rows of none; unlabelled rows beside."""
    rng = np.random.default_rng(3)
    labels, hidden = np.resize(kinds, n), rng.integers(-1, 2, 60)
    X, U = (rng.normal(size=(len(y), 6)) + 0.9 * y[:, None] for y in (labels, hidden))
    store = ingest((X, labels), path)
    if not Path(UNLABELLED["unlabelled"]).exists():
        ingest(U, UNLABELLED["unlabelled"])
    return store


TRI = {"C": 2.0, "n_random": 1, "max_iter": 6, "irrelevant_label": 0}
OTHER_TRI = ({**TRI, "eps": 0.2}, "eps")


FGM = {"B": 4, "C": 1.0, "max_rounds": 4}
OTHER = ({**FGM, "C": 2.0}, "C")


MKL = {"kernels": ["rbf(gamma=0.5)", "rbf(gamma=1)[0:3]", "poly(degree=2)[1]", "linear cosine", "linear[4:8] centre"], "tol": 1e-3}
OTHER_MKL = ({**MKL, "C": 2.0}, "C")

UMKL = {"kernels": MKL["kernels"], "n_bases": 4, "gamma1": 0.1}
OTHER_UMKL = ({**UMKL, "gamma1": 0.2}, "gamma1")

KTA = {"C": 2.0, "dp": 0.02}
OTHER_KTA = ({**KTA, "eps": 1e-3}, "eps")

TWO_LAYER = {"kernels": ["rbf(gamma=0.05)", "linear cosine", "rbf(gamma=0.1)[0:3]"], "max_iter": 2}
OTHER_TWO_LAYER = ({**TWO_LAYER, "penalty": 2.0}, "penalty")

LATENT = {"kernels": ["linear[0:3]", "linear[3]", "rbf(gamma=0.2)[0:4]"], "mu": 0.1, "a": 1.2, "max_iter": 5}
OTHER_LATENT = ({**LATENT, "mu": 0.2}, "mu")


def _latent(path: Path, n: int = 48) -> BlockStore:
    """Four tasks in two pairs, their rows mixed."""
    rng = np.random.default_rng(5)
    task, X = rng.permutation(np.repeat(np.arange(4), n // 4)) * 10, rng.normal(size=(n, 4))
    values = np.where(task < 20, X[:, 0] - X[:, 1], X[:, 2] + X[:, 3]) + 0.3 * rng.normal(size=n)
    return ingest((X, np.where(values > 0, "up", "down")), path, task_column=task)


TASKS = {"kernels": MKL["kernels"], "p": 4.0, "tol": 1e-2}
OTHER_TASKS = ({**TASKS, "p": 6.0}, "p")

SUBSPACE = {"kernels": ["rbf(gamma=0.5)", "linear", "linear[4:8] cosine"], "tol": 1e-4, "max_iter": 4}
OTHER_SUBSPACE = ({**SUBSPACE, "q": 1.2}, "q")

SUBSPACE_OF_THREE = {"kernels": ["rbf(gamma=0.3)", "linear"], "tol": 1e-3, "max_iter": 4}

RULES = {"C": 3.0, "n_thresholds": 2, "max_visits": 2000, "max_rounds": 2, "max_rules": 60}
OTHER_RULES = ({**RULES, "a": 3.0}, "a")

HKL = {"dag": "subsets(gaussian[0:4])", "C": 5.0, "tol": 3e-2, "n_add": 2}
HKL_TASKS = {**HKL, "C": 10.0, "tol": 3e-3, "solver": "mirror", "task_kernel": 1.0}
OTHER_HKL = ({**HKL, "rho": 1.5}, "rho")

HKL_THREE = {**HKL, "dag": "subsets(gaussian[0:3])", "task_kernel": 1.0}

GROUP_LASSO = {"lam": 0.02, "epochs": 3, "batch_size": 7}
OTHER_GROUP_LASSO = ({**GROUP_LASSO, "gamma": 2.0}, "gamma")
BATCH_LASSO = {"lam": 0.02, "algorithm": "fista", "tol": 1e-6}
OTHER_BATCH_LASSO = ({**BATCH_LASSO, "lam": 0.03}, "lam")


def _by_rows(path: Path, n: int = 80) -> BlockStore:
    X, y = planted(1, n, density=0.4)
    return ingest((sp.csr_array(X), y), path, layout="both", groups=np.arange(X.shape[1]) // 4)


SELECTOR = {"penalty": "mtfts", "lam": 0.05, "gamma": 20.0, "loss": "logistic", "epochs": 3, "fit_intercept": True}
OTHER_SELECTOR = ({**SELECTOR, "r": 0.1}, "r")
LARGEST = {**SELECTOR, "penalty": "lp1", "p": "inf"}
OTHER_NORM = ({**LARGEST, "p": 3.0}, "p")

CONSTRAINTS = {"constraints": [[i, (i + 7 * k) % 40, 1 if k % 2 else -1] for k in (1, 2) for i in range(0, 40, 3)]}
NPKL = {"loss": "squared_hinge", "C": 0.3, "B": 20.0}
OTHER_NPKL = ({**NPKL, "C": 0.5}, "C")
RANKER = {"n_neighbors": 4, "tol": 1e-3}
OTHER_RANKER = ({**RANKER, "C": 2.0}, "C")
SOCIAL = {"kernels": ["rbf(gamma=0.1)[0:10]", "linear[10:20] cosine", "linear[20:30]"], "C": 0.1}
OTHER_SOCIAL = ({**SOCIAL, "C": 0.2}, "C")


def _tags(n: int = 80) -> list[str]:
    rng = np.random.default_rng(8)
    return [" ".join(["sea"] * int(rng.random() < 0.5) + [f"t{k}" for k in rng.integers(0, 9, 3)]) for _ in range(n)]


QUERIES = [[f"q{k % 6}", (7 * k + k // 6) % 80] for k in range(78)]
WALK = {"damping": 0.9, "tol": 1e-12}
OTHER_WALK = ({**WALK, "damping": 0.8}, "damping")


def _similarity(path: Path, n: int = 80) -> BlockStore:
    X, _ = planted(2, n, d=8)
    return ingest(np.exp(-0.5 * np.square(X[:, None] - X).sum(axis=2)), path)


def _links(path: Path, n: int = 80) -> BlockStore:
    X, _ = planted(3, n, d=8)
    S = X @ X.T
    return ingest(sp.csr_array(np.where(np.abs(S) > 3.0, S, 0.0)), path, weight_column=np.arange(len(S)) % 3 + 1.0)


CASES: dict[str, Case] = {
    "npkl-squared-hinge": Case("npkl", NPKL, _dense, OTHER_NPKL, CONSTRAINTS),
    "npkl-square-penalty": Case(
        "npkl", {**NPKL, "loss": "square", "G": 0.01, "p": 3.0, "graph": "union", "C": 2.0}, _sparse, OTHER_NPKL, CONSTRAINTS
    ),
    "colored-mvu": Case("colored-mvu", {"C": 0.5, "graph": "union", "tol": 1e-6}, _dense, ({"C": 1.0, "graph": "union"}, "C")),
    "mve": Case("mve", {"graph": "union", "tol": 0.1}, _dense, ({"graph": "mutual", "tol": 0.1}, "graph")),
    "spe": Case("spe", {"C": 1150.0, "n_neighbors": 4}, _dense, ({"C": 230.0, "n_neighbors": 4}, "C")),
    "semantic-ranker": Case("semantic-ranker", RANKER, _dense, OTHER_RANKER, {"tags": _tags()}),
    "semantic-ranker-queries": Case("semantic-ranker", RANKER, _dense, OTHER_RANKER, {"tags": _tags(), "queries": QUERIES}),
    "visual-rank": Case("visual-rank", WALK, _similarity, OTHER_WALK),
    "visual-rank-sparse-prior": Case("visual-rank", WALK, _links, OTHER_WALK),
    "social-strength": Case(
        "social-strength", SOCIAL, _dense, OTHER_SOCIAL, {"pairs": [[i, (i + k) % 40, int(k == 1)] for k in (1, 5) for i in range(40)]}
    ),
    "group-lasso-rows-sparse-groups": Case(
        "group-lasso", {**GROUP_LASSO, "penalty": "sgl"}, _by_rows, OTHER_GROUP_LASSO, {"test_share": 0.25}
    ),
    "group-lasso-classes-average": Case("group-lasso", {**GROUP_LASSO, "average": True, "loss": "hinge"}, _three, OTHER_GROUP_LASSO),
    "group-lasso-batch-classes": Case("group-lasso", BATCH_LASSO, _three, OTHER_BATCH_LASSO, {"test_share": 0.25}),
    "group-lasso-batch-numbers": Case(
        "group-lasso", {**BATCH_LASSO, "penalty": "sgl", "lam": 1e-4, "tol": 1e-10}, _real, OTHER_BATCH_LASSO
    ),
    "group-lasso-batch-largest": Case("group-lasso", {**BATCH_LASSO, "penalty": "linf", "lam": 0.002}, _by_rows, OTHER_BATCH_LASSO),
    "group-lasso-largest-weights": Case("group-lasso", {**GROUP_LASSO, "penalty": "linf"}, _by_rows, OTHER_GROUP_LASSO),
    "group-lasso-fobos-regression": Case("group-lasso", {**GROUP_LASSO, "algorithm": "fobos", "gamma": 5.0}, _real, OTHER_GROUP_LASSO),
    "fgm-sparse": Case("fgm", FGM, _sparse, OTHER),
    "fgm-logistic-bias": Case("fgm", {**FGM, "loss": "logistic", "fit_intercept": True, "debias": True}, _dense, OTHER),
    "fgm-groups-classes": Case("fgm", {**FGM, "outer_tol": 0.3}, _three, OTHER),
    "fgm-numbers-held-out": Case("fgm", {**FGM, "debias": True}, _real, OTHER, {"test_share": 0.25}),
    "fgm-covariates-huber": Case("fgm", {**FGM, "loss": "huber", "delta": 0.5}, _beside, OTHER),
    "fgm-covariates-tube-groups": Case(
        "fgm", {**FGM, "loss": "squared_epsilon_insensitive", "epsilon": 0.2}, _beside, OTHER, {"groups": (np.arange(60) // 4).tolist()}
    ),
    "fgm-covariates-classes": Case("fgm", {**FGM, "loss": "logistic", "fit_intercept": True}, _three_beside, OTHER),
    "fgm-pairs": Case("fgm", {**FGM, "feature_map": "poly2", "allow_repeat": False}, _sparse, OTHER),
    "fgm-gaussian-held-out": Case("fgm", {**FGM, "feature_map": "additive_gaussian"}, _dense, OTHER, {"test_share": 0.25}),
    "fgm-overlap": Case(
        "fgm", {**FGM, "n_features_to_select": 5}, _dense, OTHER, {"groups": [list(range(j, min(j + 6, 30))) for j in range(0, 30, 4)]}
    ),
    "mkl-two": Case("mkl", MKL, _dense, OTHER_MKL, {"test_share": 0.25}),
    "mkl-classes-recompute": Case("mkl", {**MKL, "grams": "recompute", "v": 0.9}, _three, OTHER_MKL),
    "mkl-simplemkl": Case("mkl", {**MKL, "constraint": "simplex", "solver": "simplemkl"}, _sparse, OTHER_MKL),
    "mkl-single-classes": Case("mkl", {**MKL, "solver": "single"}, _three, OTHER_MKL, {"test_share": 0.25}),
    "mkl-box-fgm": Case("mkl", {**MKL, "constraint": "box", "B": 2, "solver": "fgm"}, _dense, OTHER_MKL),
    "mkl-squared-hinge-box": Case(
        "mkl", {**MKL, "loss": "squared_hinge", "constraint": "box", "B": 2}, _dense, ({**MKL, "loss": "logistic"}, "loss")
    ),
    "mkl-logistic-classes-recompute": Case(
        "mkl", {**MKL, "loss": "logistic", "grams": "recompute"}, _three, OTHER_MKL, {"test_share": 0.25}
    ),
    "mkl-regression": Case("mkl", MKL, _real, OTHER_MKL, {"test_share": 0.25}),
    "unsupervised-mkl": Case("unsupervised-mkl", UMKL, _dense, OTHER_UMKL),
    "unsupervised-mkl-gain-recompute": Case(
        "unsupervised-mkl", {**UMKL, "stop": "gain", "gamma2": 0.5, "grams": "recompute"}, _sparse, OTHER_UMKL
    ),
    "two-layer-mkl-classes": Case("two-layer-mkl", {**TWO_LAYER, "n_restarts": 2}, _three, OTHER_TWO_LAYER, {"test_share": 0.25}),
    "two-layer-mkl-infinite": Case("two-layer-mkl", {**TWO_LAYER, "infinite": True, "max_new_kernels": 1}, _dense, OTHER_TWO_LAYER),
    "latent-task-mkl-hinge": Case("latent-task-mkl", LATENT, _latent, OTHER_LATENT, {"test_share": 0.25}),
    "latent-task-mkl-squared-inverted-recompute": Case(
        "latent-task-mkl", {**LATENT, "loss": "squared", "inverted": True, "grams": "recompute"}, _latent, OTHER_LATENT
    ),
    "kta-path-numbers": Case("kta-path", KTA, _real, OTHER_KTA, {"test_share": 0.25}),
    "two-layer-mkl-numbers": Case(
        "two-layer-mkl", {**TWO_LAYER, "infinite": True, "max_new_kernels": 1}, _real, OTHER_TWO_LAYER, {"test_share": 0.25}
    ),
    "kta-path-two": Case("kta-path", KTA, _dense, OTHER_KTA),
    "kta-path-classes-linear": Case("kta-path", {**KTA, "kernel": "linear"}, _three, OTHER_KTA),
    "fgm-isotonic": Case("fgm", {**FGM, "probability": "isotonic"}, _three, OTHER, {"test_share": 0.25}),
    "mkl-sigmoid-classes": Case("mkl", {**MKL, "probability": "sigmoid"}, _three, ({**MKL, "probability": "isotonic"}, "probability")),
    "group-lasso-hinge-sigmoid": Case(
        "group-lasso", {**GROUP_LASSO, "loss": "hinge", "probability": "sigmoid"}, _by_rows, OTHER_GROUP_LASSO
    ),
    "tri-class-svm-sigmoid": Case("tri-class-svm", {**TRI, "probability": "sigmoid", "validation": 0}, _tri_class, OTHER_TRI, UNLABELLED),
    "latent-task-mkl-classes": Case("latent-task-mkl", {**LATENT, "probability": "sigmoid"}, _three_tasks, OTHER_LATENT),
    "shared-subspace-mkl-three": Case("shared-subspace-mkl", SUBSPACE_OF_THREE, _three_tasks, OTHER_SUBSPACE, {"test_share": 0.25}),
    "multitask-mkl-three": Case("multitask-mkl", {**TASKS, "kernels": LATENT["kernels"]}, _three_tasks, OTHER_TASKS),
    "hierarchical-kernels-tasks-classes": Case("hierarchical-kernels", HKL_THREE, _three_tasks, ({**HKL_THREE, "rho": 1.2}, "rho")),
    "multitask-mkl-classes": Case("multitask-mkl", TASKS, _tasks, OTHER_TASKS, {"test_share": 0.25}),
    "multitask-mkl-numbers-recompute": Case(
        "multitask-mkl", {**TASKS, "q": 1.5, "loss": "squared", "grams": "recompute"}, _task_numbers, OTHER_TASKS
    ),
    "multitask-mkl-mirror": Case("multitask-mkl", {**TASKS, "solver": "mirror", "max_iter": 3}, _tasks, OTHER_TASKS),
    "shared-subspace-mkl-classes": Case("shared-subspace-mkl", SUBSPACE, _tasks, OTHER_SUBSPACE, {"test_share": 0.25}),
    "shared-subspace-mkl-numbers-recompute": Case(
        "shared-subspace-mkl", {**SUBSPACE, "loss": "squared", "grams": "recompute"}, _task_numbers, OTHER_SUBSPACE
    ),
    "shared-subspace-mkl-mirror": Case(
        "shared-subspace-mkl", {**SUBSPACE, "loss": "squared", "solver": "mirror", "max_iter": 3}, _task_numbers, OTHER_SUBSPACE
    ),
    "shared-subspace-mkl-alternate": Case(
        "shared-subspace-mkl", {**SUBSPACE, "loss": "squared", "solver": "alternate", "max_iter": 3}, _task_numbers, OTHER_SUBSPACE
    ),
    "multitask-selector-classes": Case("multitask-selector", SELECTOR, _tasks, OTHER_SELECTOR, {"test_share": 0.25}),
    "multitask-selector-numbers-refit": Case(
        "multitask-selector",
        {**SELECTOR, "loss": "squared", "task_offset": "shrunken", "refit": 0.01, "epochs": 2},
        _task_numbers,
        OTHER_SELECTOR,
        {"test_share": 0.25},
    ),
    "multitask-selector-batch": Case(
        "multitask-selector",
        {**SELECTOR, "algorithm": "fista", "tol": 1e-8, "lam": 0.02, "refit": 0.01},
        _tasks,
        OTHER_SELECTOR,
    ),
    "multitask-selector-fobos": Case(
        "multitask-selector", {**SELECTOR, "penalty": "lp1", "p": 1.5, "algorithm": "fobos"}, _tasks, OTHER_NORM, {"test_share": 0.25}
    ),
    "multitask-selector-largest": Case(
        "multitask-selector", {**LARGEST, "loss": "squared", "refit": 0.01}, _task_numbers, OTHER_NORM, {"test_share": 0.25}
    ),
    "multitask-selector-batch-largest": Case(
        "multitask-selector", {**LARGEST, "algorithm": "fista", "tol": 1e-8, "lam": 0.02}, _tasks, OTHER_NORM
    ),
    "rule-ensemble-two": Case("rule-ensemble", RULES, _dense, OTHER_RULES, {"test_share": 0.25}),
    "rule-ensemble-classes": Case("rule-ensemble", {**RULES, "rho": 2.0, "refine_cuts": False}, _three, OTHER_RULES),
    "rule-ensemble-numbers": Case("rule-ensemble", RULES, _real, OTHER_RULES, {"test_share": 0.25}),
    "rule-ensemble-task-numbers": Case("rule-ensemble", {**RULES, "loss": "epsilon_insensitive"}, _task_numbers, OTHER_RULES),
    "tri-class-svm-held-out": Case("tri-class-svm", {**TRI, "validation": 2}, _tri_class, OTHER_TRI, {**UNLABELLED, "test_share": 0.3}),
    "tri-class-svm-classes": Case(
        "tri-class-svm", TRI, partial(_tri_class, kinds=(-1, 1, 2, 0)), OTHER_TRI, {**UNLABELLED, "test_share": 0.25}
    ),
    "tri-class-svm-cccp-balance": Case(
        "tri-class-svm",
        {**TRI, "algorithm": "cccp", "balance": "labels", "kernel": "linear", "grams": "recompute"},
        _tri_class,
        OTHER_TRI,
        UNLABELLED,
    ),
    "hierarchical-kernels-classes-recompute": Case(
        "hierarchical-kernels", {**HKL, "rho": 1.2, "grams": "recompute"}, _three, OTHER_HKL, {"test_share": 0.25}
    ),
    "hierarchical-kernels-tasks-mirror": Case(
        "hierarchical-kernels", HKL_TASKS, _tasks, ({**HKL_TASKS, "task_kernel": 2.0}, "task_kernel")
    ),
}


def of_several_blocks(case: Case, n: int = 160) -> Case:
    """Return a case with so many rows that Gram matrices of the least block size have several block pairs."""
    extra = {**case.extra, "tags": _tags(n)} if "tags" in case.extra else case.extra
    return replace(case, data=partial(case.data, n=n), extra=extra)
